#!/usr/bin/env python3
"""What the lossy levers cost and save: a Markdown table.

    lossy_levers.py PROGRAM MODEL TOKENS [--slots N]

PROGRAM is sluice, TOKENS a file of token ids. Every setting evaluates all tokens one by one (chunk
1, as an answer is made) in one window with N expert slots, and `sluice ppl` compares it with the
exact run: mean Kullback-Leibler divergence of the next-token distribution from the exact one in
nats, how often both would choose the same token, perplexity over the text itself, bytes of experts
read for each token, and hit rate. Prefetching is off, so that bytes are those of misses.
"""

import argparse
import json
import subprocess
import tempfile

SETTINGS = [
    [],
    ["--experts-used", "6"],
    ["--experts-used", "4"],
    ["--experts-used", "3"],
    ["--experts-used", "2"],
    ["--experts-used", "1"],
    ["--sticky", "0.05"],
    ["--sticky", "0.1"],
    ["--sticky", "0.2"],
    ["--drop-cold", "0.25"],
    ["--drop-cold", "0.5"],
    ["--drop-cold", "1"],
]


def sluice(a, verb, *options):
    command = [a.program, verb, "-m", a.model, "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


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
        n_tokens = len(f.read().split())
    top_k = sluice(a, "info")["experts_per_token"]
    how = ["--chunk", "1", "--slots", str(a.slots), "--prefetch", "off"]
    print("| setting | KL, nats | same choice | perplexity | KB read a token | hit rate |")
    print("|---|---|---|---|---|---|")
    with tempfile.NamedTemporaryFile(suffix=".ref") as exact:
        text = ["--tokens", a.tokens, "-c", str(n_tokens + 1), "--no-bos"]
        sluice(a, "ppl", *text, "--save-logits", exact.name, *how)
        for options in SETTINGS:
            if options[:1] == ["--experts-used"] and int(options[1]) >= top_k:
                continue
            r = sluice(a, "ppl", "--kl", exact.name, *how, *options)
            read_kb = r["experts"]["read_bytes"] / r["scored_tokens"] / 1e3
            print(
                f"| {' '.join(options) or 'exact'} | {r['mean_kl']:.4f} "
                f"| {100 * r['same_top']:.1f} % | {r['perplexity']:.3f} | {read_kb:.0f} "
                f"| {100 * r['experts']['hit_rate']:.1f} % |"
            )


if __name__ == "__main__":
    main()
