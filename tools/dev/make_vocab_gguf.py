#!/usr/bin/env python3
"""Make a vocabulary-only GGUF file from a Hugging Face tokenizer folder.

    make_vocab_gguf.py TOKENIZER_DIR OUT.gguf [--pre NAME] [--pad-to N]

TOKENIZER_DIR holds tokenizer.json and, optionally, tokenizer_config.json. The result has no
tensors; its architecture says 'llama' because a tokenizer needs none. Keys and token types
are those that llama.cpp's converter writes, so that either program can read the file:

  byte-level BPE   tokenizer.ggml.model = gpt2, .pre by the pre-tokenizer's regular expressions,
                   .merges in rank order.
  Gemma            its tokenizer.json is a BPE over characters with byte fallback and ' ' to
                   U+2581; llama.cpp has it as model = llama, a SentencePiece tokenizer that
                   repeatedly joins the two neighbours whose joined text has the highest score,
                   leftmost first.

Scores for Gemma. tokenizer.json has no scores, only merges, sorted by the product's original score.
The product of the k-th merge that yields a new product gets the score -k (0, -1, -2 ...; exact in
float32); plain tokens that no merge yields (single characters) come after them, special ones have
-1000 as usual. All splits of one product stand side by side in the list, apart from the runs of
newlines, tabs and spaces at its start, which are matched before any merging. Hence 'lowest merge
rank' and 'highest score' pick the same pair, but for ties between two splits of the same product,
where the one goes by rank and the other by position. `token_oracle.py --check-spm` compares both
over a corpus; the derived order was also compared with the scores in a GGUF that was made from the
real tokenizer.model (Gemma 3 270M): the same order, without exception.

Needs: gguf, numpy. Nothing is downloaded.
"""

import argparse
import json
import os
import sys

import gguf

from pre_tokenizers import REGEXES

SPACE_MARK = "\u2581"

def load_tokenizer(folder):
    """Returns (tokenizer.json, tokenizer_config.json or {})."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    config = {}
    path = os.path.join(folder, "tokenizer_config.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
    return tokenizer, config


def is_gemma(tokenizer):
    model, normalizer = tokenizer["model"], tokenizer.get("normalizer") or {}
    return bool(model.get("byte_fallback")) and normalizer.get("content") == SPACE_MARK


def pre_name(tokenizer):
    """The GGUF name of the pre-tokenizer, or None: a guess would give wrong ids without a word."""
    steps = tokenizer.get("pre_tokenizer") or {}
    steps = steps.get("pretokenizers", [steps])
    key = tuple(s["pattern"]["Regex"] for s in steps
                if s.get("type") == "Split" and "Regex" in s.get("pattern", {}))
    return next((name for name, regexes in REGEXES.items() if regexes == key), None)


def pairs(tokenizer):
    """The merges as (left, right), whether they are written as lists or as 'left right'."""
    return [tuple(m) if isinstance(m, list) else tuple(m.split(" ", 1))
            for m in tokenizer["model"]["merges"]]


def looks_special(text):
    """Added tokens that are marked as text in tokenizer.json though they steer the model."""
    return (text in ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
            or (text.startswith("<|") and text.endswith("|>"))
            or (text.startswith("<\uff5c") and text.endswith("\uff5c>"))
            or (text.startswith("<unused") and text.endswith(">")))


def is_byte_token(text):
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")


def merge_scores(tokenizer):
    """Score by token text for a merge-list tokenizer; see the top of the file."""
    added = {a["content"] for a in tokenizer["added_tokens"]}
    scores = {}
    for left, right in pairs(tokenizer):
        text = left + right
        if text not in scores and text not in added:
            scores[text] = -float(len(scores))
    for text, _ in sorted(tokenizer["model"]["vocab"].items(), key=lambda kv: kv[1]):
        if text not in scores and text not in added and not is_byte_token(text):
            scores[text] = -float(len(scores))
    return scores


def token_table(tokenizer, pad_to=0):
    """Returns (texts, types), by id. Holes become [PADn] tokens that are never used."""
    texts = {i: t for t, i in tokenizer["model"]["vocab"].items()}
    byte_fallback = bool(tokenizer["model"].get("byte_fallback"))
    types = {i: gguf.TokenType.BYTE if byte_fallback and is_byte_token(t) else gguf.TokenType.NORMAL
             for i, t in texts.items()}
    unknown = tokenizer["model"].get("unk_token")
    for a in tokenizer["added_tokens"]:
        i, text = a["id"], a["content"]
        if a["special"] or looks_special(text):
            types[i] = gguf.TokenType.CONTROL
        else:
            text = text.replace(SPACE_MARK, " ")    # such tokens are matched in the raw text
            types[i] = gguf.TokenType.USER_DEFINED
        if unknown is not None and a["content"] == unknown and byte_fallback:
            types[i] = gguf.TokenType.UNKNOWN
        texts[i] = text
    count = max(max(texts) + 1, pad_to)
    return ([texts.get(i, "[PAD%d]" % i) for i in range(count)],
            [types.get(i, gguf.TokenType.UNUSED) for i in range(count)])


def special_ids(tokenizer, config):
    """{'bos': id, ...} for the special tokens that the config names."""
    ids = dict(tokenizer["model"]["vocab"])
    ids.update((a["content"], a["id"]) for a in tokenizer["added_tokens"])
    found = {}
    for name in ("bos", "eos", "unk", "pad"):
        text = config.get(name + "_token")
        if isinstance(text, dict):
            text = text.get("content")
        if text in ids:
            found[name] = ids[text]
    return found


def adds_bos(tokenizer, config, ids):
    """Whether the tokenizer puts a BOS first: its config says so, or its post-processor does it."""
    if isinstance(config.get("add_bos_token"), bool):
        return config["add_bos_token"]
    post = tokenizer.get("post_processor") or {}
    for step in post.get("processors", [post]):
        if step.get("type") == "TemplateProcessing":
            first = (step.get("single") or [{}])[0].get("SpecialToken", {}).get("id")
            return first in step["special_tokens"] \
                and step["special_tokens"][first]["ids"][:1] == [ids.get("bos")]
    return None


def write_vocab(path, tokenizer, config, pre=None, pad_to=0, name="vocabulary"):
    """Writes the file; returns (model, pre, number of tokens)."""
    gemma = is_gemma(tokenizer)
    pre = pre or ("default" if gemma else pre_name(tokenizer))
    if pre is None:
        raise SystemExit("unknown pre-tokenizer: name it with --pre")
    texts, types = token_table(tokenizer, pad_to)
    ids = special_ids(tokenizer, config)
    out = gguf.GGUFWriter(path, "llama")
    out.add_name(name)
    out.add_vocab_size(len(texts))
    out.add_tokenizer_model("llama" if gemma else "gpt2")
    out.add_tokenizer_pre(pre)
    out.add_token_list([t.encode("utf-8") for t in texts])
    if gemma:
        scores = merge_scores(tokenizer)
        out.add_token_scores([scores.get(t, -1000.0) if k == gguf.TokenType.NORMAL else -1000.0
                              for t, k in zip(texts, types)])
    out.add_token_types([int(t) for t in types])
    if not gemma:
        out.add_token_merges([join_pair(p) for p in pairs(tokenizer)])
    for key, add in (("bos", out.add_bos_token_id), ("eos", out.add_eos_token_id),
                     ("unk", out.add_unk_token_id), ("pad", out.add_pad_token_id)):
        if key in ids:
            add(ids[key])
    bos = adds_bos(tokenizer, config, ids)
    if bos is not None:
        out.add_add_bos_token(bos)
    if gemma:
        out.add_add_space_prefix(False)
    if isinstance(config.get("chat_template"), str):
        out.add_chat_template(config["chat_template"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return ("llama" if gemma else "gpt2"), pre, len(texts)


def join_pair(pair):
    """'left right'; a space inside a part (not possible in byte-level BPE) would be ambiguous."""
    if " " in pair[0] or " " in pair[1]:
        raise SystemExit("a merge holds a space: %r" % (pair,))
    return pair[0] + " " + pair[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="TOKENIZER_DIR")
    parser.add_argument("out", metavar="OUT.gguf")
    parser.add_argument("--pre", help="value of tokenizer.ggml.pre (default: by the regexes)")
    parser.add_argument("--pad-to", type=int, default=0, metavar="N",
                        help="fill the vocabulary with unused tokens up to N, as models do")
    args = parser.parse_args()
    tokenizer, config = load_tokenizer(args.folder)
    if tokenizer["model"].get("type") != "BPE":
        sys.exit("not a BPE tokenizer: %s" % tokenizer["model"].get("type"))
    name = os.path.basename(os.path.normpath(args.folder))
    kind, pre, count = write_vocab(args.out, tokenizer, config, args.pre, args.pad_to, name)
    print("%s: model %s, pre %s, %d tokens" % (args.out, kind, pre, count))


if __name__ == "__main__":
    main()
