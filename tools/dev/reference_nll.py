#!/usr/bin/env python3
"""Mean negative log-likelihood of a token sequence by llama.cpp, to compare ours with.

    reference_nll.py MODEL.gguf TOKENS.txt [--threads N] [--kv f16|f32] [--flash]
    reference_nll.py MODEL.gguf TOKENS.txt --make TEXT.txt [--count 2000]

TOKENS.txt holds decimal ids separated by white space. They are given as they are (no BOS is added),
in batches of 512; position i is judged by how likely it makes token i + 1, so n ids give n - 1
terms. Logits are float32 by llama.cpp, the log-softmax is in float64 here. Prints the mean in nats,
the perplexity, and which llama-cpp-python did it.

--make first writes TOKENS.txt: the first ids of a UTF-8 text with the model's own tokenizer.

Needs: llama-cpp-python, numpy.
"""

import argparse
import sys

import llama_cpp
import numpy as np

F32, F16 = 0, 1     # ggml's type numbers for the KV cache
ROW = 16


def make_tokens(path_model, path_text, path_out, count):
    model = llama_cpp.Llama(path_model, vocab_only=True, verbose=False)
    with open(path_text, "rb") as f:
        ids = model.tokenize(f.read(), add_bos=False, special=False)
    if len(ids) < count:
        sys.exit("%s gives %d tokens, not %d" % (path_text, len(ids), count))
    with open(path_out, "w", encoding="ascii") as f:
        for i in range(0, count, ROW):
            f.write(" ".join(map(str, ids[i:min(i + ROW, count)])) + "\n")


def mean_nll(model, ids):
    """The mean over ids[1:]; scores are taken in slices, since they are float64 for a moment."""
    model.eval(ids)
    total = 0.0
    for i in range(0, len(ids) - 1, 64):
        end = min(i + 64, len(ids) - 1)
        rows = np.asarray(model.scores[i:end], dtype=np.float64)
        top = rows.max(axis=1)
        logs = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
        total += float((logs - rows[np.arange(end - i), ids[i + 1:end + 1]]).sum())
    return total / (len(ids) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("tokens", metavar="TOKENS.txt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kv", choices=("f16", "f32"), default="f16")
    parser.add_argument("--flash", action="store_true", help="with flash attention")
    parser.add_argument("--make", metavar="TEXT.txt", help="write TOKENS.txt from this text first")
    parser.add_argument("--count", type=int, default=2000, help="how many ids --make writes")
    args = parser.parse_args()
    if args.make:
        make_tokens(args.model, args.make, args.tokens, args.count)
    with open(args.tokens, encoding="ascii") as f:
        ids = [int(x) for x in f.read().split()]
    kv = F16 if args.kv == "f16" else F32
    model = llama_cpp.Llama(args.model, n_ctx=len(ids) + 8, n_batch=512, logits_all=True,
                            n_threads=args.threads, n_threads_batch=args.threads, type_k=kv,
                            type_v=kv, flash_attn=args.flash, verbose=False)
    nll = mean_nll(model, ids)
    print("tokens %d  mean nll %.6f nats  perplexity %.4f  kv %s  llama-cpp-python %s"
          % (len(ids), nll, np.exp(nll), args.kv, llama_cpp.__version__))


if __name__ == "__main__":
    main()
