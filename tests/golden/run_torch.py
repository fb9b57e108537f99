#!/usr/bin/env python3
"""run_torch.py PROGRAM FOLDER [options]: Hugging Face folders, packed, against PyTorch.

FOLDER holds tiny models as transformers saves them, and beside each the logits that PyTorch gives
(README.md there). Packed with --keep, `sluice eval` must be within 2e-3 of them: rotary pairs
permuted or not, norms of queries and keys, weights of chosen experts normalized or not, the shared
expert's gate, Granite's multipliers, tied embeddings, Mixtral's w1, w2 and w3, shards, DeltaNet's
heads, gates and decay over 300 tokens. FOLDER/logits.sums has the SHA-256 of our logits, for all
KV types: machines of every kind give the same bytes. Prints a row a model and exits 1 if one
fails. Standard library only."""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]
import tiny_tokenizer  # noqa: E402
from run_golden import KV_TYPES, read_floats, read_sums, write_sums  # noqa: E402

TOLERANCE = 2e-3
TIMEOUT_S = 300
RECURRENT = ["qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe"]


class Failure(Exception):
    """What went wrong, as a sentence."""


def run(args):
    done = subprocess.run(args, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise Failure("exit code %d: %s" % (done.returncode, done.stderr.strip()[-300:]))


def ids(model_type, n_vocab):
    """As in tools/dev/make_torch_golden.py."""
    n = 300 if model_type in RECURRENT else 48 if n_vocab < 100 else 24
    return [(7 * i * i + 3 * i + 1) % n_vocab for i in range(n)]


def logits_file(program, scratch, options):
    out = os.path.join(scratch, "logits.f32")
    model, tokens = os.path.join(scratch, "m.sluice"), os.path.join(scratch, "tokens.txt")
    run([program, "eval", "-m", model, "--tokens", tokens, "--logits", out] + options)
    return out


def take_sums(program, scratch, options):
    sums = {}
    for kv in KV_TYPES:
        with open(logits_file(program, scratch, ["--kv", kv] + options), "rb") as f:
            sums[kv] = hashlib.sha256(f.read()).hexdigest()
    return sums


def pack(program, source, scratch):
    """Leaves m.sluice and tokens.txt in the folder scratch."""
    folder, container = os.path.join(scratch, "model"), os.path.join(scratch, "m.sluice")
    shutil.copytree(source, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    n_vocab = config.get("text_config", config)["vocab_size"]
    if not os.path.exists(os.path.join(folder, "tokenizer.json")):
        tiny_tokenizer.write(folder, n_vocab)
    with open(os.path.join(scratch, "tokens.txt"), "w", encoding="ascii") as f:
        f.write(" ".join(str(i) for i in ids(config["model_type"], n_vocab)))
    run([program, "pack", folder, "--keep", "-q", "-o", container])
    run([program, "verify", "--deep", "-q", container])


def distance(program, source, scratch, options):
    """How far the logits of a folder are from PyTorch's."""
    right = read_floats(os.path.join(source, "logits.f32"))
    got = read_floats(logits_file(program, scratch, ["--kv", "f32"] + options))
    if len(got) < len(right) or len(right) == 0:
        raise Failure("%d logits, wanted %d" % (len(got), len(right)))
    got = got[-len(right) :]
    worst = max(abs(a - b) for a, b in zip(got, right))
    if not worst <= TOLERANCE:
        raise Failure("a logit is %.3g from PyTorch's, at most %g" % (worst, TOLERANCE))
    return worst, max(abs(x) for x in right)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--isa", default="auto", help="instruction set to compute with")
    parser.add_argument("--make-sums", action="store_true", help="write FOLDER/logits.sums")
    args = parser.parse_args()
    program, folder = os.path.abspath(args.program), os.path.abspath(args.folder)
    options, sums_file = ["--isa", args.isa], os.path.join(folder, "logits.sums")
    wanted, made = {} if args.make_sums else read_sums(sums_file), {}
    bad = total = 0
    for name in sorted(os.listdir(folder)):
        source = os.path.join(folder, name)
        if not os.path.exists(os.path.join(source, "logits.f32")):
            continue
        total += 1
        with tempfile.TemporaryDirectory() as scratch:
            try:
                pack(program, source, scratch)
                row = (name,) + distance(program, source, scratch, options)
                made[name] = take_sums(program, scratch, options)
                if not args.make_sums and made[name] != wanted.get(name):
                    raise Failure("logits are not those of other machines")
                print("%-18s off by at most %.1e; the largest is %.1f" % row, flush=True)
            except (Failure, OSError, subprocess.TimeoutExpired) as error:
                bad += 1
                print("%-18s FAILED: %s" % (name, error))
    if args.make_sums and not bad:
        write_sums(sums_file, made)
    print("%d of %d folders give PyTorch's logits" % (total - bad, total))
    return 1 if bad or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
