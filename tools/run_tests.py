#!/usr/bin/env python3
"""Runs ctest in a build directory and ends with one line: N passed, N failed, N skipped.

Counts single GoogleTest cases (from the XML that each executable writes) and, for executables that are not GoogleTest or that died before
writing it, the ctest entry itself. Skipped cases are listed with their reasons: a step that could not run is never counted as passed.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--label", help="only tests with this label (regular expression)")
    parser.add_argument("--exclude-label")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    return parser.parse_args()


def run_ctest(arguments, results):
    environment = dict(os.environ, GTEST_OUTPUT=f"xml:{results}/")
    command = ["ctest", "--test-dir", str(arguments.build), "--output-on-failure", "--no-tests=error", "-j", str(arguments.jobs),
               "--output-junit", str(results / "ctest.junit")]
    if arguments.label:
        command += ["-L", arguments.label]
    if arguments.exclude_label:
        command += ["-LE", arguments.exclude_label]
    return subprocess.run(command, env=environment).returncode


def gtest_cases(results):
    """By executable: (passed, [failed names], [(skipped name, reason)])."""
    cases = {}
    for path in results.glob("*.xml"):
        try:
            root = xml.parse(path).getroot()
        except xml.ParseError:
            continue  # the process died while writing: ctest's own entry counts
        passed, failed, skipped = 0, [], []
        for case in root.iter("testcase"):
            name = f"{path.stem}: {case.get('classname')}.{case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None:
                failed.append(name)
            elif skip is not None or case.get("result") == "skipped":
                skipped.append((name, (skip.get("message") or "").strip().splitlines()[-1:] if skip is not None else []))
            elif case.get("status") == "run":
                passed += 1
        cases[path.stem] = (passed, failed, skipped)
    return cases


def main():
    arguments = parse_arguments()
    results = (arguments.build / "test-results").resolve()
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    code = run_ctest(arguments, results)
    cases = gtest_cases(results)
    passed, failed, skipped = 0, [], []
    junit = results / "ctest.junit"
    entries = list(xml.parse(junit).getroot().iter("testcase")) if junit.exists() else []
    for entry in entries:
        name, status = entry.get("name"), entry.get("status")
        if name in cases:
            passed += cases[name][0]
            failed += cases[name][1]
            skipped += cases[name][2]
            if status == "fail" and not cases[name][1]:
                failed.append(f"{name}: ended badly after its last case")
        elif status == "run":
            passed += 1
        elif status == "fail":
            failed.append(name)
        else:
            skipped.append((name, [status or "not run"]))
    for name, reason in skipped:
        print(f"SKIPPED {name} {' '.join(reason)}")
    for name in failed:
        print(f"FAILED {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0 if code == 0 and not failed and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
