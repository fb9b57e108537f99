#!/usr/bin/env python3
"""What the lossy levers cost and save: a Markdown table.

    lossy_levers.py PROGRAM MODEL TOKENS [--slots N]

PROGRAM is sluice, TOKENS a file of token ids. Every setting evaluates all tokens one by one (chunk
1, as an answer is made) with N expert slots and is compared with the exact run: mean
Kullback-Leibler divergence of the next-token distribution from the exact one in nats, how often
both would choose the same token, perplexity over the text itself, bytes of experts read for each
token, and hit rate. Prefetching is off, so that bytes are those of misses. Needs numpy.
"""

import argparse
import json
import math
import subprocess
import tempfile

import numpy as np

SETTINGS = [
    ("exact", []),
    ("--experts-used 6", ["--experts-used", "6"]),
    ("--experts-used 4", ["--experts-used", "4"]),
    ("--experts-used 3", ["--experts-used", "3"]),
    ("--experts-used 2", ["--experts-used", "2"]),
    ("--experts-used 1", ["--experts-used", "1"]),
    ("--sticky 0.05", ["--sticky", "0.05"]),
    ("--sticky 0.1", ["--sticky", "0.1"]),
    ("--sticky 0.2", ["--sticky", "0.2"]),
    ("--drop-cold 0.25", ["--drop-cold", "0.25"]),
    ("--drop-cold 0.5", ["--drop-cold", "0.5"]),
    ("--drop-cold 1", ["--drop-cold", "1"]),
]


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def run(a, options, n_tokens):
    """Log probabilities [tokens][vocabulary] and the summary of a run."""
    with tempfile.NamedTemporaryFile(suffix=".f32") as f:
        command = [a.program, "eval", "-m", a.model, "--tokens", a.tokens, "--logits", f.name]
        command += ["--chunk", "1", "--slots", str(a.slots), "--prefetch", "off", "--json"]
        out = subprocess.run(command + options, check=True, capture_output=True, text=True)
        logits = np.fromfile(f.name, np.float32).reshape(n_tokens, -1)
    return log_softmax(logits), json.loads(out.stdout)


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("program")
    ap.add_argument("model")
    ap.add_argument("tokens")
    ap.add_argument("--slots", type=int, default=48)
    a = ap.parse_args()
    with open(a.tokens) as f:
        ids = np.array(f.read().split(), np.int64)
    top_k = json.loads(
        subprocess.run(
            [a.program, "info", a.model, "--json"], check=True, capture_output=True, text=True
        ).stdout
    )["experts_per_token"]
    print("| setting | KL, nats | same choice | perplexity | KB read a token | hit rate |")
    print("|---|---|---|---|---|---|")
    exact = None
    for name, options in SETTINGS:
        if options[:1] == ["--experts-used"] and int(options[1]) >= top_k:
            continue
        p, summary = run(a, options, len(ids))
        exact = p if exact is None else exact
        kl = float((np.exp(exact) * (exact - p)).sum(axis=1).mean())
        same = float((exact.argmax(axis=1) == p.argmax(axis=1)).mean())
        ppl = math.exp(-float(p[np.arange(len(ids) - 1), ids[1:]].mean()))
        s = summary["experts"]
        read_kb = s["read_bytes"] / len(ids) / 1e3
        print(
            f"| {name} | {kl:.4f} | {100 * same:.1f} % | {ppl:.3f} "
            f"| {read_kb:.0f} | {100 * s['hit_rate']:.1f} % |"
        )


if __name__ == "__main__":
    main()
