#!/usr/bin/env python3
"""check_exports.py LIBRARY HEADER: the dynamic symbols are exactly the declared functions."""

import re
import subprocess
import sys


def declared(header):
    with open(header, encoding="utf-8") as f:
        text = f.read()
    return set(re.findall(r"^SLUICE_API[^;{]*?\b(sluice_\w+)\(", text, re.M))


def exported(library):
    command = ["nm", "-D", "--defined-only", library]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in out.stdout.splitlines()}


def main():
    wanted = declared(sys.argv[2])
    # Sanitizers and fuzzers put their own names into the table.
    foreign = re.compile(r"_*(asan|ubsan|tsan|sanitizer|interceptor|odr)")
    found = {n for n in exported(sys.argv[1]) if not foreign.match(n)}
    for name in sorted(wanted - found):
        print("declared but not exported: %s" % name)
    for name in sorted(found - wanted):
        print("exported but not declared: %s" % name)
    print("%d functions" % len(wanted))
    return 1 if wanted != found or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
