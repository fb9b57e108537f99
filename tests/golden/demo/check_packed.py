#!/usr/bin/env python3
"""check_packed.py PROGRAM FOLDER TOKENS: the demo model's container in FOLDER is, byte for byte, what
`sluice pack` makes of the GGUF there, and its perplexity on TOKENS is less than 3 % above.

Skips (exit 77) where a model does not exist."""

import filecmp
import math
import os
import subprocess
import sys
import tempfile

LIMIT = 1.03


def mean_nll(program, model, tokens):
    command = [program, "eval", "-m", model, "--tokens", tokens, "--nll", "-q"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(dict(line.split(" ", 1) for line in out.splitlines())["mean_nll"])


def main():
    program, folder, tokens = sys.argv[1:4]
    source = os.path.join(folder, "sluice-demo-q8_0.gguf")
    shipped = os.path.join(folder, "sluice-demo.sluice")
    for path in (source, shipped):
        if not os.path.exists(path):
            print("skipped: there is no model %s" % path)
            return 77
    with tempfile.TemporaryDirectory() as scratch:
        made = os.path.join(scratch, "made.sluice")
        subprocess.run([program, "pack", source, "-o", made, "-q"], check=True)
        same = filecmp.cmp(made, shipped, shallow=False)
    ratio = math.exp(mean_nll(program, shipped, tokens) - mean_nll(program, source, tokens))
    print("the container is %s; perplexity times %.4f" % ("pack's" if same else "another", ratio))
    return 0 if same and ratio < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
