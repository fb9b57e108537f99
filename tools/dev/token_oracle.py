#!/usr/bin/env python3
"""Token ids of a corpus by an independent program: what `sluice tokenize` is compared with.

    token_oracle.py hf TOKENIZER_DIR LINES.txt OUT.ids [--check-spm VOCAB.gguf]
    token_oracle.py llama MODEL.gguf LINES.txt OUT.ids [--special]
    token_oracle.py special TOKENIZER_DIR OUT.txt [--seed N]

LINES.txt is what make_token_corpus.py writes: a text a line with the escapes \\n \\t \\r \\\\.
OUT.ids gets one line a text: its ids, decimal, separated by spaces; an empty line for no ids.

  hf       Hugging Face `tokenizers` on tokenizer.json, without the tokens that its post-processor
           adds. Added tokens are always parsed by it, so a text that contains a control token is
           refused unless --special says that this is wanted.
           --check-spm FILE also tokenizes by a plain, slow SentencePiece merge over the scores of
           that vocabulary file and fails if any line differs.
  llama    llama.cpp, through `llama-cpp-python`, with the vocabulary of a GGUF file: no BOS,
           control tokens only with --special (user-defined tokens, type 4, it parses always).
  special  writes texts made of the tokenizer's own added tokens, whole, cut and in odd places, to
           be tokenized with --special.

Needs: tokenizers (hf), gguf (--check-spm, special), llama-cpp-python (llama).
"""

import argparse
import heapq
import random
import sys

import make_vocab_gguf as vocab
from make_token_corpus import escape, read_lines


def hf_tokenizer(folder):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(folder + "/tokenizer.json")


def hf_ids(tokenizer, texts):
    return [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]


def control_ids(tokenizer_json):
    return {a["id"] for a in tokenizer_json["added_tokens"]
            if a["special"] or vocab.looks_special(a["content"])}


class LlamaVocab:
    """The tokenizer of a GGUF file, by llama.cpp."""

    def __init__(self, path):
        import llama_cpp
        self.api = llama_cpp
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise ValueError("llama.cpp cannot load %s" % path)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def ids(self, text, special=False):
        data = text.encode("utf-8")
        room = len(data) + 16
        out = (self.api.llama_token * room)()
        n = self.api.llama_tokenize(self.vocab, data, len(data), out, room, False, special)
        if n < 0:
            raise ValueError("%d tokens do not fit" % -n)
        return list(out[:n])

    def close(self):
        self.api.llama_model_free(self.model)


class SpmVocab:
    """SentencePiece's merge as llama.cpp does it, written for clarity; no BOS or leading space."""

    def __init__(self, path):
        import gguf
        fields = gguf.GGUFReader(path).fields
        self.texts = fields["tokenizer.ggml.tokens"].contents()
        self.scores = fields["tokenizer.ggml.scores"].contents()
        types = fields["tokenizer.ggml.token_type"].contents()
        self.id_of = {t: i for i, t in enumerate(self.texts)}
        user = [t for t, k in zip(self.texts, types) if k == 4]
        self.user = sorted(user, key=lambda t: (-len(t), self.id_of[t]))
        self.byte_ids = [self.id_of["<0x%02X>" % b] for b in range(256)]

    def ids(self, text):
        out = []
        for part, known in self.split_user(text):
            out += [known] if known is not None else self.merge(part.replace(" ", "\u2581"))
        return out

    def split_user(self, text):
        """User-defined tokens come first: the longest everywhere, then the next shorter ..."""
        parts = [(text, None)]
        for token in self.user:
            if token not in text:
                continue
            cut = []
            for part, known in parts:
                if known is not None:
                    cut.append((part, known))
                    continue
                pieces = part.split(token)
                for i, piece in enumerate(pieces):
                    if i:
                        cut.append((token, self.id_of[token]))
                    if piece:
                        cut.append((piece, None))
            parts = cut
        return parts

    def merge(self, text):
        symbols = list(text)
        after = list(range(1, len(symbols))) + [-1]
        before = list(range(-1, len(symbols) - 1))
        queue = []

        def offer(left, right):
            if left < 0 or right < 0:
                return
            joined = symbols[left] + symbols[right]
            token = self.id_of.get(joined)
            if token is not None:
                heapq.heappush(queue, (-self.scores[token], left, right, joined))

        for i in range(len(symbols) - 1):
            offer(i, i + 1)
        while queue:
            _, left, right, joined = heapq.heappop(queue)
            if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != joined:
                continue
            symbols[left], symbols[right] = joined, ""
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            offer(before[left], left)
            offer(left, after[left])
        out = []
        for s in filter(None, symbols):
            token = self.id_of.get(s)
            out += [token] if token is not None else [self.byte_ids[b] for b in s.encode("utf-8")]
        return out


def special_texts(tokenizer_json, seed):
    """Texts in which added tokens stand beside text, spaces, each other and cut ones."""
    rng = random.Random(seed)
    controls = control_ids(tokenizer_json)
    added = [a["content"] for a in tokenizer_json["added_tokens"]
             if a["id"] in controls or not a["content"].strip("\u2581\n\t") == ""]
    named = [t for t in added if "reserved" not in t and "unused" not in t and "place" not in t]
    added, named = added[:40] + named[:60], named[:60]
    words = ("", " ", "  ", "\n", "\n\n", "user", "Hello, world!", " it's", "123", "\u4e2d\u6587",
             "caf\u00e9", "\U0001f600", "\t", "<", ">", "|", "<|", "|>", "a\n", " \n")
    texts = list(named)
    while len(texts) < len(named) + 150:
        parts = []
        for _ in range(rng.randint(1, 5)):
            token = rng.choice(named if rng.random() < 0.8 else added)
            if rng.random() < 0.15:
                token = token[:rng.randrange(len(token))]
            parts += [rng.choice(words), token, rng.choice(words)]
        texts.append("".join(parts))
    return texts


def write_ids(path, rows):
    with open(path, "w", encoding="ascii", newline="\n") as f:
        for ids in rows:
            f.write(" ".join(map(str, ids)) + "\n")
    print("%s: %d lines, %d ids" % (path, len(rows), sum(map(len, rows))))


def read_ids(path):
    with open(path, encoding="ascii") as f:
        return [[int(i) for i in line.split()] for line in f]


def run_hf(args):
    texts = read_lines(args.lines)
    rows = hf_ids(hf_tokenizer(args.folder), texts)
    tokenizer_json, _ = vocab.load_tokenizer(args.folder)
    controls = control_ids(tokenizer_json)
    if not args.special:
        for n, ids in enumerate(rows):
            if controls.intersection(ids):
                sys.exit("line %d holds a control token: %r" % (n + 1, texts[n]))
    write_ids(args.out, rows)
    if args.check_spm:
        spm = SpmVocab(args.check_spm)
        wrong = [n for n, t in enumerate(texts) if spm.ids(t) != rows[n]]
        print("SentencePiece merge against HF: %d of %d lines differ" % (len(wrong), len(texts)))
        for n in wrong[:20]:
            print("  line %d: %r\n    hf  %s\n    spm %s"
                  % (n + 1, texts[n][:80], rows[n][:24], spm.ids(texts[n])[:24]))
        sys.exit(1 if wrong else 0)


def run_llama(args):
    oracle = LlamaVocab(args.model)
    write_ids(args.out, [oracle.ids(t, args.special) for t in read_lines(args.lines)])
    oracle.close()


def run_special(args):
    texts = special_texts(vocab.load_tokenizer(args.folder)[0], args.seed)
    with open(args.out, "w", encoding="utf-8", newline="\n") as f:
        f.writelines(escape(t) + "\n" for t in texts)
    print("%s: %d lines" % (args.out, len(texts)))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    hf = verbs.add_parser("hf", help="ids by Hugging Face tokenizers")
    hf.add_argument("folder", metavar="TOKENIZER_DIR")
    hf.add_argument("lines", metavar="LINES.txt")
    hf.add_argument("out", metavar="OUT.ids")
    hf.add_argument("--special", action="store_true", help="texts may hold control tokens")
    hf.add_argument("--check-spm", metavar="VOCAB.gguf", help="compare with a SentencePiece merge")
    hf.set_defaults(run=run_hf)
    llama = verbs.add_parser("llama", help="ids by llama.cpp")
    llama.add_argument("model", metavar="MODEL.gguf")
    llama.add_argument("lines", metavar="LINES.txt")
    llama.add_argument("out", metavar="OUT.ids")
    llama.add_argument("--special", action="store_true", help="parse control tokens")
    llama.set_defaults(run=run_llama)
    special = verbs.add_parser("special", help="make texts with the tokenizer's added tokens")
    special.add_argument("folder", metavar="TOKENIZER_DIR")
    special.add_argument("out", metavar="OUT.txt")
    special.add_argument("--seed", type=int, default=1)
    special.set_defaults(run=run_special)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
