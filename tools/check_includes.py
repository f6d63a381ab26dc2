#!/usr/bin/env python3
"""Holds every #include of framework/ against the arrows that the rooms declare.

A room's CMakeLists.txt says tranche_room(NAME x DEPENDS a b ...). A file of x may include its own room, the rooms it declares and what
those declare. A program (tranche_program) in a room's folder may also use what the program declares. Plugins, sdk and tests must not
reach past public headers: plugins include nothing of framework/, the sdk nothing at all. Exit 1 names each forbidden line.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FRAMEWORK = ROOT / "framework"
ORDER = ["base runner", "telemetry", "model", "capacity config cdi metadata store backend", "inventory", "claims slices health",
         "kube local dra admin proof", "host ctl conform"]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms.split()}


def call_arguments(text, function):
    for body in re.findall(function + r"\(([^)]*)\)", text):
        words = re.sub(r"#.*", "", body).split()
        keys, key = {}, None
        for word in words:
            if word in ("NAME", "DEPENDS", "SOURCES", "LIBRARIES"):
                key = word
                keys[key] = []
            elif key:
                keys[key].append(word)
        yield keys


def read_rooms():
    declared, programs = {}, {}
    for path in FRAMEWORK.glob("*/CMakeLists.txt"):
        text = path.read_text()
        for keys in call_arguments(text, "tranche_room"):
            declared[keys["NAME"][0]] = set(keys.get("DEPENDS", []))
        for keys in call_arguments(text, "tranche_program"):
            for source in keys.get("SOURCES", []):
                programs[(path.parent / source).resolve()] = set(keys.get("DEPENDS", []))
    return declared, programs


def closure(room, declared, seen=None):
    seen = seen if seen is not None else set()
    for dependency in declared.get(room, ()):
        if dependency not in seen:
            seen.add(dependency)
            closure(dependency, declared, seen)
    return seen


def main():
    declared, programs = read_rooms()
    problems = []
    for room, dependencies in sorted(declared.items()):
        for dependency in sorted(dependencies):
            if LEVEL.get(dependency, 99) >= LEVEL.get(room, -1):
                problems.append(f"framework/{room}/CMakeLists.txt: the arrow {room} -> {dependency} points up or sideways (docs/architecture.md, rooms)")
    include = re.compile(r'^\s*#\s*include\s+"([^"/]+)/[^"]+"')
    for path in sorted(FRAMEWORK.rglob("*")):
        if path.suffix not in (".h", ".cc", ".hpp"):
            continue
        room = path.relative_to(FRAMEWORK).parts[0]
        allowed = {room} | closure(room, declared)
        for dependency in programs.get(path.resolve(), ()):
            allowed |= {dependency} | closure(dependency, declared)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = include.match(line)
            if match and match.group(1) in LEVEL and match.group(1) not in allowed:
                problems.append(f"{path.relative_to(ROOT)}:{number}: {room} includes {match.group(1)}/, which it does not declare")
    for folder in ("plugins", "sdk"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".hpp", ".c"):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = include.match(line)
                if match and match.group(1) in LEVEL:
                    problems.append(f"{path.relative_to(ROOT)}:{number}: a backend uses the SDK only, not framework/{match.group(1)}/")
    for problem in problems:
        print(problem)
    print(f"include graph: {len(declared)} rooms, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
