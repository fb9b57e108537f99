#!/usr/bin/env python3
"""Recompute what `sluice ppl` says, from logits and in numpy, and compare.

    check_ppl.py PROGRAM MODEL TEXT [--context N] [--options "--experts-used 2"]
    check_ppl.py PROGRAM MODEL TEXT [--context N] --llama [--kv f16]

The first form cuts the text into windows itself, gets the logits of each from `sluice eval`, once
as they are and once with the options, and compares perplexity, bits per byte, and every figure of
--kl; exit code 1 where one is further off than 1e-5 (relative where it is above 1, as perplexities
are), or 1e-4 where it is that of a single token. The second form evaluates chunks by llama.cpp, by
the rule of its perplexity tool, and compares with --llama-cpp; it prints how far apart the two are
and judges nothing. Needs numpy, the second form llama-cpp-python too.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile

import numpy as np

TOLERANCE = 1e-5
SINGLE = {"kl_99": 1e-4, "kl_99_9": 1e-4, "max_kl": 1e-4}  # of single tokens


def sluice(a, verb, *options):
    command = [a.program, verb, "-m", a.model, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr))
    return done.stdout


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def windows(n, context, bos):
    """(begin, end, first scored token) for a stride of half the context."""
    room, stride, begin, done = context - bos, context // 2, 0, 1 - bos
    while done < n:
        end = min(begin + room, n)
        yield begin, end, done
        begin, done = begin + stride, end


def expected(a, ids, bos, options):
    """Log-probabilities before each scored token, and the ids of those."""
    rows, came = [], []
    for begin, end, scored in windows(len(ids), a.context, bos is not None):
        sequence = ([] if bos is None else [bos]) + ids[begin:end]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as t:
            t.write(" ".join(map(str, sequence)))
            t.flush()
            with tempfile.NamedTemporaryFile(suffix=".f32") as f:
                sluice(a, "eval", "--tokens", t.name, "--logits", f.name, *options)
                logits = np.fromfile(f.name, np.float32).reshape(len(sequence), -1)
        n = end - scored
        rows.append(log_softmax(logits[-n - 1 : -1]))
        came += sequence[-n:]
    return np.concatenate(rows), np.array(came)


def figures(p, q, came, n_bytes):
    """All figures for q against the reference p."""
    at = np.arange(len(came))
    nll, base = -q[at, came], -p[at, came]
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    root = np.sqrt(len(came) - 1)
    ratio = np.exp((nll - base).mean())
    return {
        "mean_nll": nll.mean(),
        "perplexity": np.exp(nll.mean()),
        "perplexity_error": np.exp(nll.mean()) * nll.std() / root,
        "bits_per_byte": nll.sum() / np.log(2) / n_bytes,
        "reference_perplexity": np.exp(base.mean()),
        "perplexity_ratio": ratio,
        "perplexity_ratio_error": ratio * (nll - base).std() / root,
        "mean_kl": kl.mean(),
        "kl_error": kl.std() / root,
        "median_kl": np.median(kl),
        "kl_99": np.quantile(kl, 0.99),
        "kl_99_9": np.quantile(kl, 0.999),
        "max_kl": kl.max(),
        "same_top": (p.argmax(axis=1) == q.argmax(axis=1)).mean(),
    }


def check(a):
    with open(a.text, "rb") as f:
        text = f.read()
    ids = json.loads(sluice(a, "tokenize", "-f", a.text, "--no-bos", "--json"))["ids"]
    with_bos = json.loads(sluice(a, "tokenize", "-f", a.text, "--json"))["ids"]
    bos = with_bos[0] if len(with_bos) > len(ids) else None
    options = shlex.split(a.options)
    p, came = expected(a, ids, bos, [])
    q, _ = expected(a, ids, bos, options)
    first = json.loads(sluice(a, "tokenize", "--decode", "-p", str(ids[0]), "--json"))["text"]
    n_bytes = len(text) - (len(first.encode()) if bos is None else 0)
    want = figures(p, q, came, n_bytes)
    with tempfile.NamedTemporaryFile(suffix=".ref") as f:
        context = ["-c", str(a.context)]
        sluice(a, "ppl", "-f", a.text, "--save-logits", f.name, *context)
        got = json.loads(sluice(a, "ppl", "--kl", f.name, "--json", *options))
    bad = 0
    print("| figure | sluice ppl | numpy | apart |\n|---|---|---|---|")
    for name, value in want.items():
        apart = abs(got[name] - value) / max(1.0, abs(value))
        bad += not apart <= SINGLE.get(name, TOLERANCE)
        print("| %s | %.9g | %.9g | %.1e |" % (name, got[name], value, apart))
    return 1 if bad or got["scored_tokens"] != len(came) else 0


def llama(a):
    import llama_cpp

    kinds = {"f32": 0, "f16": 1}
    model = llama_cpp.Llama(
        a.model,
        n_ctx=a.context,
        n_batch=a.context,
        logits_all=True,
        n_threads=2,
        n_threads_batch=2,
        type_k=kinds[a.kv],
        type_v=kinds[a.kv],
        verbose=False,
    )
    vocabulary = llama_cpp.llama_model_get_vocab(model.model)
    begins = llama_cpp.llama_vocab_get_add_bos(vocabulary)
    with open(a.text, "rb") as f:
        ids = model.tokenize(f.read(), add_bos=begins, special=False)
    half, nll = a.context // 2, []
    for begin in range(0, len(ids) // a.context * a.context, a.context):
        chunk = ids[begin : begin + a.context]
        if begins:
            chunk[0] = model.token_bos()
        model.reset()
        model.eval(chunk)
        p = log_softmax(np.asarray(model.scores[half : a.context - 1]))
        nll += [-p[i, chunk[half + 1 + i]] for i in range(len(p))]
    mean = float(np.mean(nll))
    print("llama.cpp: mean nll %.6f, perplexity %.4f, %d scored" % (mean, np.exp(mean), len(nll)))
    options = ["--llama-cpp", "-c", str(a.context), "--kv", a.kv, "--json"]
    got = json.loads(sluice(a, "ppl", "-f", a.text, *options))
    print(
        "sluice:    mean nll %.6f, perplexity %.4f, %d scored"
        % (got["mean_nll"], got["perplexity"], got["scored_tokens"])
    )
    return 0


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("program")
    ap.add_argument("model")
    ap.add_argument("text")
    ap.add_argument("--context", type=int, default=512)
    ap.add_argument("--options", default="--experts-used 2", help="of the run that is compared")
    ap.add_argument("--llama", action="store_true")
    ap.add_argument("--kv", choices=("f16", "f32"), default="f16")
    a = ap.parse_args()
    return llama(a) if a.llama else check(a)


if __name__ == "__main__":
    sys.exit(main())
