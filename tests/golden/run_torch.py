#!/usr/bin/env python3
"""run_torch.py PROGRAM FOLDER: Hugging Face folders through `sluice pack`, against PyTorch.

FOLDER holds tiny models as transformers saves them, and beside each the logits that PyTorch gives
(README.md there). Packed with --keep, `sluice eval` must be within 2e-3 of them: rotary pairs
permuted or not, norms of queries and keys, weights of chosen experts normalized or not, the shared
expert's gate, Granite's multipliers, tied embeddings, Mixtral's w1, w2 and w3, shards. Prints a
row a model and exits 1 if one fails. Standard library only."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]
import tiny_tokenizer  # noqa: E402
from run_golden import read_floats  # noqa: E402

TOLERANCE = 2e-3
TIMEOUT_S = 60


class Failure(Exception):
    """What went wrong, as a sentence."""


def run(args):
    done = subprocess.run(args, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise Failure("exit code %d: %s" % (done.returncode, done.stderr.strip()[-300:]))


def ids(n_vocab):
    """As in tools/dev/make_torch_golden.py."""
    return [(7 * i * i + 3 * i + 1) % n_vocab for i in range(48 if n_vocab < 100 else 24)]


def judge(program, source, scratch):
    """How far the logits of a folder are from PyTorch's."""
    folder, container = os.path.join(scratch, "model"), os.path.join(scratch, "m.sluice")
    tokens, out = os.path.join(scratch, "tokens.txt"), os.path.join(scratch, "logits.f32")
    shutil.copytree(source, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        n_vocab = json.load(f)["vocab_size"]
    if not os.path.exists(os.path.join(folder, "tokenizer.json")):
        tiny_tokenizer.write(folder, n_vocab)
    with open(tokens, "w", encoding="ascii") as f:
        f.write(" ".join(str(i) for i in ids(n_vocab)))
    run([program, "pack", folder, "--keep", "-q", "-o", container])
    run([program, "verify", "--deep", "-q", container])
    run([program, "eval", "-m", container, "--kv", "f32", "--tokens", tokens, "--logits", out])
    right, got = read_floats(os.path.join(source, "logits.f32")), read_floats(out)
    if len(right) != len(got):
        raise Failure("%d logits, wanted %d" % (len(got), len(right)))
    worst = max(abs(a - b) for a, b in zip(got, right))
    if not worst <= TOLERANCE:
        raise Failure("a logit is %.3g from PyTorch's, at most %g" % (worst, TOLERANCE))
    return worst, max(abs(x) for x in right)


def main():
    program, folder = (os.path.abspath(x) for x in sys.argv[1:3])
    bad = total = 0
    for name in sorted(os.listdir(folder)):
        source = os.path.join(folder, name)
        if not os.path.exists(os.path.join(source, "logits.f32")):
            continue
        total += 1
        with tempfile.TemporaryDirectory() as scratch:
            try:
                row = (name,) + judge(program, source, scratch)
                print("%-18s off by at most %.1e; the largest is %.1f" % row)
            except (Failure, OSError, subprocess.TimeoutExpired) as error:
                bad += 1
                print("%-18s FAILED: %s" % (name, error))
    print("%d of %d folders give PyTorch's logits" % (total - bad, total))
    return 1 if bad or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
