#!/usr/bin/env python3
"""pack_case.py PROGRAM OUT.sluice MODEL [OPTION...]: packs a model for other tests, whatever was
there before, and removes the result where packing fails. Standard library only."""

import glob
import os
import subprocess
import sys


def main():
    program, out, model = sys.argv[1:4]
    name = glob.escape(out[: -len(".sluice")])
    for path in glob.glob(name + ".sluice*") + glob.glob(name + "-0*.sluice*"):
        os.unlink(path)
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    return subprocess.call([program, "pack", model, "-q", "-o", out] + sys.argv[4:])


if __name__ == "__main__":
    sys.exit(main())
