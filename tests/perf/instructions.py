#!/usr/bin/env python3
"""Counts the instructions of fixed work (instructions.c) and compares them with stored counts.

    instructions.py PROGRAM MODEL.gguf --build TEXT [--counts FILE] [--update]

Needs valgrind; without it, and where the stored counts are those of another compiler or other flags
(--build says which), it says so and exits with 77. A piece of work that takes over 3 % more
instructions than stored is a fault; one that takes over 3 % less, or is new, is reported and no
fault: --update then stores what was counted. Of the model's pieces the functions that take 2 % or
more are compared by themselves, so that the report names what grew.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOLERANCE = 0.03
SHARE = 0.02  # of a piece, from which on a function is stored by itself
SKIP = 77


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--build", required=True, help="compiler and flags of the program")
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.json")
    parser.add_argument("--counts", default=default, help="where the counts are stored")
    parser.add_argument("--update", action="store_true", help="store what is counted")
    return parser.parse_args()


def skip(why):
    print("skipped: " + why)
    sys.exit(SKIP)


def functions(path):
    """Instructions of each function by itself, in one dump of callgrind's.

    Lines: "fn=(number) name", the name at first mention only; then "line cost" of the function
    itself, and after each "calls=" one line with what the called function took, which is not its
    own."""
    names, costs, current, of_callee = {}, collections.Counter(), None, False
    with open(path, encoding="utf-8") as file:
        for line in file:
            found = re.match(r"fn=(\(\d+\))(?: (.+))?$", line)
            if found:
                if found.group(2):
                    names[found.group(1)] = found.group(2)
                current = found.group(1)
            elif re.match(r"c?fn=", line):
                called = re.match(r"cfn=(\(\d+\))(?: (.+))?$", line)
                if called and called.group(2):
                    names[called.group(1)] = called.group(2)
            elif line.startswith("calls="):
                of_callee = True
            elif re.match(r"[+*\-\d]", line) and current:
                if not of_callee:
                    costs[current] += int(line.split()[1])
                of_callee = False
    result = collections.Counter()
    for number, cost in costs.items():  # parts of a function that the compiler split off count too
        result[re.sub(r"\.(constprop|isra|part|cold)\.?\d*|'\d+", "", names[number])] += cost
    return result


def count(args):
    """{piece: instructions} of all pieces, and of the model's large functions."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        # fmt: off
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out,
             "--toggle-collect=counted_work", "--dump-after=counted_work",
             args.program, args.model],
            capture_output=True, text=True, check=False,
        )
        # fmt: on
        if done.returncode == SKIP:
            skip("this processor has no AVX2")
        if done.returncode:
            sys.exit("instructions: the program failed under valgrind:\n" + done.stderr)
        names, counts = done.stdout.splitlines(), {}
        for number, name in enumerate(names, 1):
            own = functions("%s.%d" % (out, number))
            counts[name] = sum(own.values())
            if name.startswith("model"):
                for function, cost in own.items():
                    if cost >= SHARE * counts[name]:
                        counts["%s: %s" % (name, function)] = cost
    return counts


def compare(stored, counted):
    """Prints what differs; returns the number of faults."""
    faults = 0
    for name in sorted(set(stored) | set(counted)):
        before, now = stored.get(name), counted.get(name)
        if before and now and abs(now - before) <= TOLERANCE * before:
            continue
        if before is None:
            line = "new    %s: %d, not stored" % (name, now)
        elif now is None and ": " in name:  # a function
            line = "less   %s: %d stored, now too few to be listed" % (name, before)
        elif now is None:
            line, faults = "FAULT  %s: stored, but no longer there" % name, faults + 1
        else:
            word, faults = ("FAULT", faults + 1) if now > before else ("less", faults)
            change = 100.0 * (now - before) / before
            line = "%-6s %s: %d, stored %d (%+.1f %%)" % (word, name, now, before, change)
        print(line)
    return faults


def main():
    args = parse()
    if not shutil.which("valgrind"):
        skip("valgrind is not installed")
    build = " ".join(args.build.split())
    stored = {"build": build, "counts": {}}
    if not args.update:
        with open(args.counts, encoding="utf-8") as file:
            stored = json.load(file)
        if stored["build"] != build:
            skip("counts are of '%s', this is '%s'" % (stored["build"], build))
    counted = count(args)
    if args.update:
        with open(args.counts, "w", encoding="utf-8") as file:
            json.dump({"build": build, "counts": counted}, file, indent=1)
            file.write("\n")
        print("stored %d counts" % len(counted))
        return 0
    faults = compare(stored["counts"], counted)
    print("%d counts, %d faults" % (len(counted), faults))
    if faults:
        print("see docs/TESTING.md, Instruction counts, for what to do")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
