#!/usr/bin/env python3
"""Puts the figures of the benchmarks into docs/benchmarks.md.

The table of build/bench/NAME.json goes between `<!-- table: NAME -->` and `<!-- end -->`.

  tools/bench_table.py [--bench DIR] [FILE]          fills every table whose JSON is there; FILE is docs/benchmarks.md otherwise
  tools/bench_table.py --print host|peer             prints one table instead

Exit code 1: no JSON is there, or one is no report of `make bench` or `make bench-peer`.
"""
import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def number(value):
    """Three significant digits, as a reader wants them, without an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 3 - len(str(int(abs(value)))) if abs(value) >= 1 else 3)
    return f"{value:,.{digits}f}"


def verdict(line):
    return {True: "kept", False: "**missed**"}.get(line.get("ok"), "")


def host_table(lines):
    yield "| figure | unit | median | p99 or worst round | n | bound | |"
    yield "|---|---|--:|--:|--:|--:|---|"
    for line in lines:
        p99 = number(line["p99"]) if line["n"] > 1 and line["p99"] != line["value"] else ""
        bound = f"≤ {line['bound']:g}" if "bound" in line else ""
        yield f"| `{line['name']}` | {line['unit']} | {number(line['value'])} | {p99} | {line['n']} | {bound} | {verdict(line)} |"


def peer_table(lines):
    yield "| figure | unit | Tranche (least–most) | Go driver (least–most) | ratio | bound | |"
    yield "|---|---|--:|--:|--:|--:|---|"
    for line in lines:
        ours_least, ours_most, peer_least, peer_most = map(number, line["range"])
        ours = f"{number(line['ours'])} ({ours_least}–{ours_most})"
        has_peer = any(line["range"][2:])
        peer = f"{number(line['peer'])} ({peer_least}–{peer_most})" if has_peer else ""
        ratio = f"{line['ratio']:.3f}" if has_peer else ""
        bound = f"≤ {line['bound']}" if line.get("bound") else ""
        yield f"| `{line['name']}` | {line['unit']} | {ours} | {peer} | {ratio} | {bound} | {verdict(line)} |"


TABLES = {"host": host_table, "peer": peer_table}


def read_table(bench, name):
    """The table as Markdown; None when there is no report."""
    path = bench / f"{name}.json"
    if not path.exists():
        return None
    try:
        return "\n".join(TABLES[name](json.loads(path.read_text()))) + "\n"
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"bench_table: {path} is no report of this benchmark ({error!r}); make it again")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=ROOT / "docs/benchmarks.md")
    parser.add_argument("--bench", type=pathlib.Path, default=ROOT / "build/bench", help="where the reports are")
    parser.add_argument("--print", choices=sorted(TABLES), dest="only")
    arguments = parser.parse_args()
    tables = {name: read_table(arguments.bench, name) for name in ([arguments.only] if arguments.only else TABLES)}
    if not any(tables.values()):
        sys.exit(f"bench_table: no report in {arguments.bench}: run `make bench` or `make bench-peer` first")
    if arguments.only:
        print(tables[arguments.only], end="")
        return
    text = arguments.file.read_text()
    filled = []

    def fill(mark):
        table = tables.get(mark[2])
        if table is None:
            return mark[0]
        filled.append(mark[2])
        return mark[1] + table + mark[3]

    arguments.file.write_text(MARK.sub(fill, text))
    print(f"{arguments.file.name}: filled {', '.join(filled) or 'nothing'}")


if __name__ == "__main__":
    main()
