#!/usr/bin/env python3
"""Make the small tokenizer goldens: reduced vocabularies, texts, and ids by independent programs.

    make_token_golden.py TOKENIZERS_DIR SMOLLM2.gguf OUT_DIR [--seed N] [--only NAME]

TOKENIZERS_DIR holds a folder each for qwen3, llama3, gptoss, deepseek_v3 and gemma3 with
tokenizer.json and tokenizer_config.json. Writes to OUT_DIR:

  lines.txt                 texts for all cases, escaped (make_token_corpus.py)
  NAME.gguf, NAME.ids       a vocabulary and the ids of lines.txt with it, a line a text
  NAME.special.txt, .ids    texts with special tokens, to be tokenized with --special

How a vocabulary is reduced: the single bytes, the first tokens in merge order (with every merge
among them, so that it is a complete BPE), some special tokens; ids are renumbered in the old order.
Behind the real merges come some that join neighbours on two sides of a border between kinds of
characters: letter and space, digit and digit, mark and letter, quote and s. A real vocabulary has
none of these, because its pre-tokenizer never lets them meet; here they make a missing border
visible in the ids. More are added until every mistake in the regular expressions that
pre_tokenizers.py lists, and that splits any of the texts differently, changes the ids of one.

Needs: tokenizers, gguf, llama-cpp-python.
"""

import argparse
import collections
import json
import os
import sys
import unicodedata

import gguf

import make_token_corpus as corpus
import make_vocab_gguf as vocab
import pre_tokenizers as pre
import token_oracle as oracle
from token_samples import PROSE

# By Hugging Face: name, folder, tokens to keep though no merge yields them (they are found whole:
# 'ignore_merges').
BY_HF = (("qwen2", "qwen3", ()), ("gpt-4o", "gptoss", ()),
         ("llama-bpe", "llama3", (" vi\u1ec7c", "ektedir", " nhi\u1ec1u")),
         ("deepseek-v3", "deepseek_v3", ()))

# On one vocabulary, by llama.cpp; qwen35 and deepseek-llm by Hugging Face with the expressions of
# pre_tokenizers.py, since llama.cpp departs from those in a few texts (it prints how many).
ON_ONE = ("gpt-2", "olmo", "refact", "deepseek-llm", "default", "qwen35")
ON_ONE_BY_HF = ("deepseek-llm", "qwen35")
REAL_TOKENS = 300
BORDER_MERGES = 250


def byte_table():
    """GPT-2's printable stand-in for each byte."""
    plain = (*range(33, 127), *range(161, 173), *range(174, 256))
    others = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain}
    table.update((b, chr(256 + i)) for i, b in enumerate(others))
    return table


BYTES = byte_table()


def in_bytes(text):
    return "".join(BYTES[b] for b in text.encode("utf-8"))


def kind(text, at):
    """The kind of the character at a position, as far as pre-tokenizers tell kinds apart."""
    ch = text[at]
    if ch in " \n\r\t'/":
        return ch
    quote = text.rfind("'", max(0, at - 3), at)
    near = "'%d" % (at - quote) if quote >= 0 else ""
    code = ord(ch)
    if 0x3040 <= code <= 0x30FF:
        return "kana"
    if 0x4E00 <= code <= 0x9FA5:
        return "cjk"
    if 0xAC00 <= code <= 0xD7A3:
        return "hangul"
    return unicodedata.category(ch) + ("" if code > 127 else "a") + near


class Line:
    """One text as BPE symbols, each with the kinds of its first and its last character."""

    def __init__(self, text, bpe):
        kinds = [(kind(text, i), i) for i, c in enumerate(text) for _ in c.encode("utf-8")]
        self.symbols, self.kinds, at = [], [], 0
        for token in bpe.tokenize(in_bytes(text)):
            end = at + len(token.value)
            self.symbols.append(token.value)
            self.kinds.append((kinds[at], kinds[end - 1]))
            at = end

    def borders(self):
        """(left, right, kind of border) of the neighbours that a border might part."""
        for i in range(len(self.symbols) - 1):
            left, right = self.kinds[i][1], self.kinds[i + 1][0]
            if left[1] != right[1] and (left[0] != right[0] or left[0][0] not in "Lh"):
                yield self.symbols[i], self.symbols[i + 1], (left[0], right[0])

    def join(self, left, right):
        i = 0
        while i < len(self.symbols) - 1:
            if self.symbols[i] == left and self.symbols[i + 1] == right:
                self.symbols[i:i + 2] = [left + right]
                self.kinds[i:i + 2] = [(self.kinds[i][0], self.kinds[i + 1][1])]
            i += 1


def border_merges(tokens, merges, texts, count):
    """Merges across borders, chosen from the texts so that all kinds of borders get some."""
    from tokenizers import models
    bpe = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges)
    normal = (unicodedata.normalize("NFC", t) for t in texts)
    known = set(tokens)
    lines = [Line(t, bpe) for t in normal if t and known.issuperset(in_bytes(t))]
    chosen, used = [], collections.Counter()
    while len(chosen) < count:
        found, of_kind = collections.Counter(), {}
        for line in lines:
            for left, right, border in sorted(set(line.borders())):
                found[left, right] += 1
                of_kind[left, right] = border
        candidates = [p for p in found if p[0] + p[1] not in known]
        if not candidates:
            break
        pair = max(candidates, key=lambda p: (found[p] / (1 + used[of_kind[p]]) ** 3, p))
        chosen.append(pair)
        known.add(pair[0] + pair[1])
        used[of_kind[pair]] += 1
        for line in lines:
            line.join(*pair)
    return chosen


class Pieces:
    """BPE inside the pieces of a pre-tokenizer, with merges that can be added at the end."""

    def __init__(self, tokens, merges):
        self.ids = {t: i for i, t in enumerate(sorted(tokens))}
        self.merges = list(merges)
        self.build()

    def build(self):
        from tokenizers import models
        self.bpe = models.BPE(vocab=self.ids, merges=self.merges)

    def tokens(self, pieces):
        return [t.value for p in pieces for t in self.bpe.tokenize(p)]

    def join_at(self, pieces, at):
        """Adds a merge over position `at`, which lies inside a piece."""
        end = 0
        for left, right in zip(tokens := self.tokens(pieces), tokens[1:]):
            end += len(left)
            if end == at:
                self.ids[left + right] = len(self.ids)
                self.merges.append((left, right))
                self.build()
                return
        raise ValueError("a token spans the position already")


def ends(pieces):
    """The positions at which pieces end."""
    found, at = [], 0
    for p in pieces:
        at += len(p)
        found.append(at)
    return found


def show_mistakes(name, bpe, texts):
    """Adds merges until every mistake in the expressions changes the ids of some text.

    Returns the number of mistakes, and the names of those that split no text differently."""
    known = set(bpe.ids)
    normal = [unicodedata.normalize("NFC", t) if name in pre.NFC else t for t in texts]
    normal = [t for t in normal if t and known.issuperset(in_bytes(t))]
    split = lambda regexes: [[p for p, _ in s.pre_tokenize_str(t)] for s in (pre.splitter(regexes),)
                             for t in normal]
    right, hidden, count = split(pre.REGEXES[name]), [], 0
    for what, regexes in pre.mistakes(pre.REGEXES[name]):
        count += 1
        differing = [(a, b) for a, b in zip(right, split(regexes)) if ends(a) != ends(b)]
        if not differing:
            hidden.append(what)
        elif all(bpe.tokens(a) == bpe.tokens(b) for a, b in differing):
            a, b = min(differing, key=lambda ab: sum(map(len, ab[0])))
            at = min(set(ends(a)) ^ set(ends(b)))
            bpe.join_at(b if at in ends(a) else a, at)
    return count, hidden


def first_tokens(tokenizer, keep, alphabet):
    """The first tokens in merge order that can be built from the alphabet and each other."""
    merges = vocab.pairs(tokenizer)
    order = list(dict.fromkeys(a + b for a, b in merges))[:keep]
    kept, wanted = set(alphabet), set(order)
    while True:
        new = {a + b for a, b in merges if a + b in wanted and a in kept and b in kept} - kept
        if not new:
            break
        kept |= new
    return kept, [(a, b) for a, b in merges if a in kept and b in kept and a + b in kept]


def some_added(tokenizer, most):
    """The first added tokens, and those that say what they are for."""
    added = sorted(tokenizer["added_tokens"], key=lambda a: a["id"])
    dull = ("reserved", "unused", "place")
    return [a for a in added if not any(d in a["content"] for d in dull)][:most] + \
        [a for a in added if any(d in a["content"] for d in dull)][:2]


def renumber(tokenizer, texts, merges, added):
    """A tokenizer.json with these tokens only; ids in the old order, new tokens at the end."""
    old = dict(tokenizer["model"]["vocab"])
    added_texts = {a["content"] for a in added}
    plain = sorted((t for t in texts if t not in added_texts),
                   key=lambda t: (old.get(t, 1 << 30), t))
    small = dict(tokenizer)
    small["model"] = dict(tokenizer["model"])
    entries = [(old.get(t, 1 << 30), n, t) for n, t in enumerate(plain)]
    entries += [(a["id"], 0, a["content"]) for a in added]
    ids = {t: i for i, (_, _, t) in enumerate(sorted(entries))}
    small["model"]["vocab"] = ids       # with the added tokens: else they are numbered anew
    small["model"]["merges"] = [list(m) for m in merges]
    small["added_tokens"] = sorted((dict(a, id=ids[a["content"]]) for a in added),
                                   key=lambda a: a["id"])
    post = small.get("post_processor") or {}
    if post.get("type") == "TemplateProcessing":
        small["post_processor"] = None
    return small


def reduce_bpe(tokenizer, names, whole, texts):
    """A byte-level BPE tokenizer.json cut down, with merges across borders for these names."""
    alphabet = [c for c in BYTES.values() if c in tokenizer["model"]["vocab"]]
    tokens, merges = first_tokens(tokenizer, REAL_TOKENS, alphabet)
    across = border_merges(sorted(tokens), merges, texts, BORDER_MERGES)
    tokens.update(a + b for a, b in across)
    bpe = Pieces(tokens, merges + across)
    for name in names:
        count, hidden = show_mistakes(name, bpe, texts)
        print("%s: %d mistakes show, %d split no text differently: %s"
              % (name, count - len(hidden), len(hidden), hidden))
    tokens.update(bpe.ids)
    tokens.update(in_bytes(w) for w in whole)
    return renumber(tokenizer, tokens, bpe.merges, some_added(tokenizer, 14))


def reduce_gemma(tokenizer, keep, texts):
    """Gemma's tokenizer.json cut down: tags, white space, bytes, some characters, merges."""
    ids = tokenizer["model"]["vocab"]
    used = collections.Counter(c for t in PROSE for c in t.replace(" ", vocab.SPACE_MARK))
    letters = [c for c, n in used.most_common() if c in ids][:330]
    added = [a for a in tokenizer["added_tokens"] if "unused" not in a["content"]][:180]
    blank = [a["content"] for a in added if not a["content"].strip("\n\t" + vocab.SPACE_MARK)]
    tokens, merges = first_tokens(tokenizer, 20000, [*letters, "\n", "\t", vocab.SPACE_MARK])
    seen = collections.Counter()
    for t in texts:
        spaced = t.replace(" ", vocab.SPACE_MARK)
        seen.update({spaced[i:i + n] for i in range(len(spaced)) for n in range(2, 9)} & tokens)
    order = {t: i for i, t in reversed(list(enumerate(a + b for a, b in merges)))}
    wanted = set(sorted((t for t in seen if len(t) > 1), key=order.get)[:keep])
    kept = {*letters, *blank, *(t for t in ids if vocab.is_byte_token(t)), vocab.SPACE_MARK}
    kept |= {a["content"] for a in added if a["content"] in ids}
    usable = set(kept)
    for left, right in merges:
        if left + right in wanted:
            usable.update((left, right, left + right))
    merges = [(a, b) for a, b in merges if a in usable and b in usable and a + b in usable]
    reachable = usable - kept
    reachable &= {a + b for a, b in merges}
    return renumber(tokenizer, kept | reachable, merges, added)


def write_case(out, name, tokenizer, config, pre=None):
    path = os.path.join(out, name + ".gguf")
    config = {k: v for k, v in config.items() if k != "chat_template"}
    vocab.write_vocab(path, tokenizer, config, pre or name, name=name)
    return path


def from_json(tokenizer):
    from tokenizers import Tokenizer
    return Tokenizer.from_str(json.dumps(tokenizer))


def case_by_hf(out, name, tokenizer, config, texts, args):
    """Writes vocabulary, ids, and texts with special tokens."""
    path = write_case(out, name, tokenizer, config, "default" if name == "gemma3" else None)
    hf = from_json(tokenizer)
    oracle.write_ids(os.path.join(out, name + ".ids"), oracle.hf_ids(hf, texts))
    special = oracle.special_texts(tokenizer, args.seed)[:60:2] + \
        oracle.special_texts(tokenizer, args.seed)[-30:]
    write_texts(os.path.join(out, name + ".special.txt"), special)
    oracle.write_ids(os.path.join(out, name + ".special.ids"), oracle.hf_ids(hf, special))
    return path


def case_by_llama(out, name, path, texts, special=False):
    spoken = oracle.LlamaVocab(path)
    oracle.write_ids(os.path.join(out, name + ".ids"), [spoken.ids(t, special) for t in texts])
    spoken.close()


def write_texts(path, texts):
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.writelines(corpus.escape(t) + "\n" for t in texts)


def json_of_gguf(path):
    """A tokenizer.json, as far as this script needs one, from a byte-level BPE in a GGUF."""
    fields = gguf.GGUFReader(path).fields
    texts = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    added = [{"id": i, "content": t, "special": k == 3, "normalized": False, "lstrip": False,
              "rstrip": False, "single_word": False}
             for i, (t, k) in enumerate(zip(texts, types)) if k != 1]
    return {"model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(texts)},
                      "merges": fields["tokenizer.ggml.merges"].contents()},
            "added_tokens": added}


def train_spm(texts, count):
    """A small SentencePiece vocabulary: (pieces in order of their joining, characters)."""
    words = collections.Counter()
    for t in texts:
        for w in t.split(" "):
            words[tuple(vocab.SPACE_MARK + w)] += 1
    chars = collections.Counter(c for w, n in words.items() for c in w)
    letters = [c for c, _ in chars.most_common(260)]
    pieces = []
    while len(pieces) < count:
        found = collections.Counter()
        for w, n in words.items():
            for a, b in zip(w, w[1:]):
                if len(a + b) <= 10 and set(a + b).issubset(letters):
                    found[a, b] += n
        (left, right), _ = max(found.items(), key=lambda kv: (kv[1], kv[0]))
        pieces.append(left + right)
        joined = collections.Counter()
        for w, n in words.items():
            parts, i = [], 0
            while i < len(w):
                both = i + 1 < len(w) and w[i] == left and w[i + 1] == right
                parts.append(left + right if both else w[i])
                i += 2 if both else 1
            joined[tuple(parts)] += n
        words = joined
    return pieces, letters


def write_spm(path, add_space_prefix):
    """SentencePiece as in Llama 2 and Mistral: <unk> <s> </s>, bytes, pieces, characters."""
    pieces, letters = train_spm(PROSE, 420)
    pieces = list(dict.fromkeys(pieces))
    # Runs of spaces and a few pieces of equal score, where the leftmost must win.
    pieces[100:100] = [vocab.SPACE_MARK * n for n in (2, 4, 8, 3)]
    scores = [-float(i) for i in range(len(pieces))]
    for i in range(60, 68):
        scores[i] = scores[60]
    out = gguf.GGUFWriter(path, "llama")
    rows = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    rows += [("<0x%02X>" % b, 0.0, 6) for b in range(256)]
    rows += [(p, s, 1) for p, s in zip(pieces, scores)]
    rows += [(c, -1000.0 - i, 1) for i, c in enumerate(letters) if c not in pieces]
    rows += [("[TOOL]", 0.0, 4), ("  \n", 0.0, 4)]
    out.add_name("spm")
    out.add_vocab_size(len(rows))
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list([t.encode("utf-8") for t, _, _ in rows])
    out.add_token_scores([s for _, s, _ in rows])
    out.add_token_types([k for _, _, k in rows])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_add_bos_token(True)
    out.add_add_space_prefix(add_space_prefix)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


SPM_SPECIAL = ("<s>", "</s>", "<s>a", "a<s>", "<s> a", " <s>", "<s></s>", "<s>\n</s>", "[TOOL]x",
               "x[TOOL] y", "<unk>", "a<unk>b", "<0x41>", "<s>Please don't</s> <s>Total: 12",
               "  \nx", "a  \n  \n b", "<s> [TOOL] </s>")


def make_lines(seed):
    """Edge cases that are short enough, and a spread of drawn texts; no NUL, for git's sake."""
    texts = [t for t in corpus.make(seed) if "\0" not in t]
    edges = set(corpus.EDGES)
    short = [t for t in texts if t not in edges and len(t) <= 40 and len(t.encode()) <= 70]
    return [t for t in texts if t in edges and len(t) <= 130] + short[:150]


def make_bpe_cases(args, texts, wanted):
    for name, source, whole in BY_HF:
        if wanted(name):
            tokenizer, config = vocab.load_tokenizer(os.path.join(args.tokenizers, source))
            small = reduce_bpe(tokenizer, (name,), whole, texts)
            case_by_hf(args.out, name, small, config, texts, args)
    if wanted("smollm"):
        small = reduce_bpe(json_of_gguf(args.smollm2), ("smollm",), (), texts)
        config = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "add_bos_token": False}
        path = write_case(args.out, "smollm", small, config)
        case_by_llama(args.out, "smollm", path, texts)


def make_one_vocabulary_cases(args, texts, wanted):
    if not any(map(wanted, ON_ONE)):
        return
    tokenizer, _ = vocab.load_tokenizer(os.path.join(args.tokenizers, "qwen3"))
    small = reduce_bpe(tokenizer, ON_ONE, (), texts)
    for name in filter(wanted, ON_ONE):
        path = write_case(args.out, name, small, {"add_bos_token": False})
        given = [unicodedata.normalize("NFC", t) for t in texts] if name in pre.NFC else texts
        case_by_llama(args.out, name, path, given)
        hf = from_json(dict(small, normalizer=None))
        hf.pre_tokenizer = pre.splitter(pre.REGEXES[name])
        rows = oracle.hf_ids(hf, given)
        theirs = oracle.read_ids(os.path.join(args.out, name + ".ids"))
        print("%s: llama.cpp and the expressions differ in %d texts"
              % (name, sum(a != b for a, b in zip(rows, theirs))))
        if name in ON_ONE_BY_HF:
            oracle.write_ids(os.path.join(args.out, name + ".ids"), rows)


def make_sentencepiece_cases(args, texts, wanted):
    if wanted("gemma3"):
        tokenizer, config = vocab.load_tokenizer(os.path.join(args.tokenizers, "gemma3"))
        small = reduce_gemma(tokenizer, 500, texts)
        path = case_by_hf(args.out, "gemma3", small, config, texts, args)
        spm, hf = oracle.SpmVocab(path), from_json(small)
        wrong = [t for t, ids in zip(texts, oracle.hf_ids(hf, texts)) if spm.ids(t) != ids]
        if wrong:
            sys.exit("gemma3: the scores and the merges disagree on %r" % wrong[:5])
    for name, prefix in (("spm", True), ("spm-noprefix", False)):
        if wanted(name):
            path = os.path.join(args.out, name + ".gguf")
            write_spm(path, prefix)
            case_by_llama(args.out, name, path, texts)
            write_texts(os.path.join(args.out, name + ".special.txt"), SPM_SPECIAL)
            case_by_llama(args.out, name + ".special", path, SPM_SPECIAL, special=True)


def run(args):
    texts = make_lines(args.seed)
    os.makedirs(args.out, exist_ok=True)
    write_texts(os.path.join(args.out, "lines.txt"), texts)
    for make in (make_bpe_cases, make_one_vocabulary_cases, make_sentencepiece_cases):
        make(args, texts, lambda name: args.only in (None, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", metavar="TOKENIZERS_DIR")
    parser.add_argument("smollm2", metavar="SMOLLM2.gguf")
    parser.add_argument("out", metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", metavar="NAME", help="make this case alone")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
