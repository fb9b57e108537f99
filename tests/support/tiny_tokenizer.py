"""Tokenizers for tiny Hugging Face folders of tests: a byte-level BPE with Qwen's pre-tokenizer and
as many tokens as the model has, however few. Such a vocabulary cannot spell most texts, which does
not matter where token ids are given. Standard library only."""

import json
import os

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write(folder, n_vocab):
    """Writes tokenizer.json: bytes from "!" on, one merge, one added token."""
    vocab = {chr(ord("!") + i): i for i in range(min(n_vocab - 2, 90))}
    vocab["!!"] = len(vocab)
    added = {
        "id": len(vocab),
        "content": "<end>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    level["trim_offsets"] = True
    model = {"type": "BPE", "vocab": vocab, "merges": [["!", "!"]], "byte_fallback": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [added],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": level,
        "model": model,
    }
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        f.write("{}\n")
