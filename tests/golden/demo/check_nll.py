#!/usr/bin/env python3
"""check_nll.py PROGRAM MODEL TOKENS WANTED: `sluice eval --nll` is within 0.5 % of WANTED nats.

Skips (exit 77) where MODEL does not exist."""

import os
import subprocess
import sys

TOLERANCE = 0.005


def main():
    program, model, tokens, wanted = sys.argv[1:5]
    if not os.path.exists(model):
        print("skipped: there is no model %s" % model)
        return 77
    command = [program, "eval", "-m", model, "--tokens", tokens, "--nll", "-q"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = float(dict(line.split(" ", 1) for line in out.splitlines())["mean_nll"])
    print("mean negative log-likelihood %.5f, wanted %s" % (found, wanted))
    return 0 if abs(found - float(wanted)) <= TOLERANCE * float(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
