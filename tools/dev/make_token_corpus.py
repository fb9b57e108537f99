#!/usr/bin/env python3
"""Write a corpus of difficult but valid text for tokenizer tests, one text a line.

    make_token_corpus.py OUT.txt [--seed N] [--scale X] [--limit N]

Text is UTF-8. Within a line the backslash escapes are \\n (newline), \\t (tab), \\r (carriage
return) and \\\\ (backslash), as `sluice tokenize --lines --escape` reads them; every other
character, NUL and control characters included, stands for itself. Lines end with a newline and
with nothing else, so split the file by newline only: U+0085 or U+2028 inside a line is text.

The same seed gives the same file with any Python 3.11. Code points drawn from all of Unicode are
such as were assigned in 3.2 and have kept their category; later scripts and emoji are drawn from
blocks settled since 10.0. So programs with Unicode tables of different age agree. No line contains
a special token of a known tokenizer: nothing like <|...|>, <unused0> or <think>.
"""

import argparse
import random
import sys
import unicodedata

from token_samples import (CODE, CONTRACTIONS, EDGES, EMOJI, LINKS, PROSE, SKIN_TONES, SPACES,
                           ZERO_WIDTH)

ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
UNESCAPES = {v[1]: k for k, v in ESCAPES.items()}


def escape(text):
    return "".join(ESCAPES.get(c, c) for c in text)


def unescape(line):
    """The way back; raises ValueError on an unknown escape."""
    out, at = [], 0
    while at < len(line):
        c = line[at]
        if c == "\\":
            at += 1
            if at == len(line) or line[at] not in UNESCAPES:
                raise ValueError("bad escape in %r" % line)
            c = UNESCAPES[line[at]]
        out.append(c)
        at += 1
    return "".join(out)


def read_lines(path):
    """The texts of a corpus file, unescaped."""
    with open(path, "rb") as f:
        data = f.read().decode("utf-8")
    if not data.endswith("\n"):
        raise ValueError("%s does not end with a newline" % path)
    return [unescape(line) for line in data[:-1].split("\n")]


# Ranges of scripts that models meet, and some that they hardly ever do; Unicode 10 or before.
SCRIPTS = {
    "latin": (0x41, 0x24F), "ipa": (0x250, 0x2AF), "greek": (0x370, 0x3FF),
    "cyrillic": (0x400, 0x52F), "armenian": (0x531, 0x58A), "hebrew": (0x591, 0x5F4),
    "arabic": (0x600, 0x6FF), "syriac": (0x700, 0x74F), "devanagari": (0x900, 0x97F),
    "bengali": (0x980, 0x9FE), "tamil": (0xB82, 0xBFA), "thai": (0xE01, 0xE5B),
    "lao": (0xE81, 0xEDF), "tibetan": (0xF00, 0xFDA), "myanmar": (0x1000, 0x109F),
    "georgian": (0x10A0, 0x10FF), "jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x139F),
    "cherokee": (0x13A0, 0x13FD), "khmer": (0x1780, 0x17F9), "mongolian": (0x1820, 0x18AA),
    "viet": (0x1E00, 0x1EFF), "greek2": (0x1F00, 0x1FFE), "hiragana": (0x3041, 0x309F),
    "katakana": (0x30A0, 0x30FF), "cjk": (0x4E00, 0x9FA5), "cjk_edge": (0x9F80, 0x9FD5),
    "cjk_a": (0x3400, 0x4DB5), "hangul": (0xAC00, 0xD7A3), "compat": (0xF900, 0xFAD9),
    "fullwidth": (0xFF01, 0xFFEE), "gothic": (0x10330, 0x1034A), "cuneiform": (0x12000, 0x12399),
    "math": (0x1D400, 0x1D7FF), "cjk_b": (0x20000, 0x2A6D6), "symbols": (0x2010, 0x23FE),
    "pictographs": (0x1F300, 0x1F64F), "transport": (0x1F680, 0x1F6C5), "nko": (0x7C0, 0x7FA),
    "vai": (0xA500, 0xA62B), "phags_pa": (0xA840, 0xA877), "egyptian": (0x13000, 0x1342E),
    "adlam": (0x1E900, 0x1E943), "tangut": (0x17000, 0x187EC), "cjk_e": (0x2B820, 0x2CEA1),
    "grantha": (0x11300, 0x1134D), "deseret": (0x10400, 0x1044F), "modi": (0x11600, 0x11644),
}


def settled(ch):
    """Assigned, and of the same category, in Unicode 3.2 and now: every program's tables agree."""
    return unicodedata.category(ch) == unicodedata.ucd_3_2_0.category(ch) != "Cn"


class Corpus:
    """Draws texts; one method a kind."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        assigned = [chr(c) for c in range(0x21, 0x110000)
                    if not 0xD800 <= c < 0xE000 and not 0xE000 <= c < 0xF900 and c < 0xE1000]
        self.assigned = [c for c in assigned if settled(c)]
        self.rare = [c for c in self.assigned if not 0x3400 <= ord(c) < 0xD7FF and ord(c) < 0x17000]
        self.by_script = {name: [chr(c) for c in range(a, b + 1)
                                 if unicodedata.category(chr(c)) != "Cn"]
                          for name, (a, b) in SCRIPTS.items()}
        self.by_numeral = {kind: [c for c in self.assigned if unicodedata.category(c) == kind]
                         for kind in ("Nd", "Nl", "No")}
        self.marks = [c for c in self.assigned if unicodedata.combining(c)]
        self.punct = [c for c in self.assigned if unicodedata.category(c)[0] in "PS"]
        self.words = " ".join(PROSE).split()

    def word(self):
        return self.rng.choice(self.words)

    def some(self, chars, low, high):
        return "".join(self.rng.choice(chars) for _ in range(self.rng.randint(low, high)))

    def prose(self):
        r = self.rng
        text = r.choice(PROSE)
        if r.random() < 0.4:
            text += r.choice((" ", "  ", "\n", "\n\n", " \n", "\r\n", "\t")) + r.choice(PROSE)
        if r.random() < 0.3:
            start = r.randrange(len(text))
            text = text[start:start + r.randint(1, 120)]
        return text

    def cased(self):
        r = self.rng
        text = r.choice(PROSE)
        return r.choice((str.upper, str.title, str.swapcase, str.casefold))(text)

    def code(self):
        r = self.rng
        lines = r.choice(CODE).split("\n")
        start = r.randrange(len(lines))
        joint = r.choice(("\n", "\n", "\n", "\r\n", "\n\n", "\n\t"))
        text = joint.join(lines[start:start + r.randint(1, 8)])
        if r.random() < 0.3:
            text = text.replace("    ", r.choice(("\t", "  ", " ", "   ")))
        return text

    def emoji(self):
        r = self.rng
        parts = []
        for _ in range(r.randint(1, 8)):
            e = r.choice(EMOJI)
            if r.random() < 0.3:
                e += r.choice(SKIN_TONES)
            if r.random() < 0.2:
                e += "\u200d" + r.choice(EMOJI)
            if r.random() < 0.2:
                e += "\ufe0f"
            parts.append(e)
        return r.choice(("", " ", "", self.word(), "!", "  ")).join(parts)

    def flags(self):
        r = self.rng
        letters = [chr(0x1F1E6 + i) for i in range(26)]
        return " ".join(self.some(letters, 1, 5) for _ in range(r.randint(1, 4))) + self.word()

    def combining(self):
        r = self.rng
        text = r.choice(PROSE)
        form = r.choice(("NFC", "NFD", "NFD", "NFKC", "NFKD"))
        text = unicodedata.normalize(form, text)
        if r.random() < 0.5:
            at = r.randrange(len(text) + 1)
            text = text[:at] + self.some(self.marks[:400], 1, 4) + text[at:]
        return text[:200]

    def stacked(self):
        """Letters with several marks each, not in canonical order."""
        return " ".join("".join(c + self.some(self.marks[:120], 0, 5) for c in self.word()[:8])
                        for _ in range(self.rng.randint(1, 4)))

    def digits(self):
        r = self.rng
        parts = [self.some("0123456789", 1, 20) for _ in range(r.randint(1, 5))]
        return r.choice(("", "$", "-", "x", "\u20ac", " ")) + \
            r.choice((" ", ".", ",", "/", ":", "-", "e", "  ", "_", "\n", "x")).join(parts)

    def numerals(self):
        r = self.rng
        kind = r.choice(("Nd", "Nd", "Nl", "No"))
        return r.choice(("", " ")).join((self.some(self.by_numeral[kind], 1, 5), self.word(),
                                         self.some(self.by_numeral[kind], 1, 9),
                                         self.some("0123456789", 0, 4)))

    def whitespace(self):
        r = self.rng
        kinds = (" ", " ", " ", "\n", "\t", "\r\n", "\r", "\u3000", "\u00a0", "\v", "\f")
        parts = [self.some(r.sample(kinds, r.randint(1, 3)), 0, 4)]
        for _ in range(r.randint(0, 4)):
            parts += [r.choice((self.word(), self.some("0123456789", 1, 3), "{", "."))]
            parts += [r.choice(kinds) * r.randint(1, 6), self.some(kinds, 0, 3)]
        return "".join(parts)

    def blank_run(self):
        r = self.rng
        c = r.choice((" ", "\n", "\t", " \n", "\n ", "\r\n", "\t ", "\u00a0", "\n\n\t"))
        run = c * r.choice((1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 80, 130))
        return r.choice(("", "", "x", "  y", "}", "7")) + run + r.choice(("", "", "x", " z", ";"))

    def contraction(self):
        r = self.rng
        parts = []
        for _ in range(r.randint(1, 6)):
            w = self.word() if r.random() < 0.6 else r.choice(("I", "you", "O", "THEY", "\u0645"))
            parts.append(w + r.choice(CONTRACTIONS))
        return r.choice((" ", " ", "", ", ", "\n")).join(parts)

    def punctuation(self):
        r = self.rng
        ascii_run = "!\"#$%&()*+,-./:;=?@[]^_`{}~'"
        parts = []
        for _ in range(r.randint(1, 5)):
            parts.append(self.some(ascii_run if r.random() < 0.7 else self.punct, 1, 9))
            parts.append(r.choice(("", " ", "\n", "/", self.word(), "\r\n\n", "1", "ab")))
        return "".join(parts)

    def mixed(self):
        r = self.rng
        names = r.sample(sorted(SCRIPTS), r.randint(2, 5))
        return "".join(self.some(self.by_script[n], 1, 6) + r.choice(("", "", " ", "1", "-", "\n"))
                       for n in names)

    def script(self):
        name = self.rng.choice(sorted(SCRIPTS))
        return " ".join(self.some(self.by_script[name], 1, 10)
                        for _ in range(self.rng.randint(1, 6)))

    def link(self):
        r = self.rng
        return r.choice(("", " ", "(", "see ")) + r.choice(LINKS) + \
            r.choice(("", "?q=%E4%BD%A0&n=" + self.some("0123456789abcdef", 4, 40), ").", "/../x"))

    def long_word(self):
        r = self.rng
        alphabet = r.choice(("a", "ab", "aB", "xyz", "\u0430\u0431", "\u4e2d", "\u4e2d\u6587",
                             "\u3042", "\ud55c", "0", "-", "=", "_", ".", "\u0e01\u0e34", "e\u0301",
                             "abcdefghijklmnopqrstuvwxyz", "ABCDEFabcdef0123456789+/"))
        return r.choice(("", " ")) + self.some(alphabet, 60, r.choice((90, 200, 700)))

    def hidden(self):
        r = self.rng
        w = self.word()
        for _ in range(r.randint(1, 4)):
            at = r.randrange(len(w) + 1)
            w = w[:at] + r.choice(ZERO_WIDTH) * r.choice((1, 1, 2, 5)) + w[at:]
        return r.choice(("", " ", self.word() + " ")) + w

    def odd_spaces(self):
        r = self.rng
        return "".join(self.word() + r.choice(("", " ")) + self.some(SPACES, 1, 3)
                       for _ in range(r.randint(1, 5))) + r.choice(("", self.word()))

    def control(self):
        r = self.rng
        controls = [chr(c) for c in (*range(0, 32), *range(0x7F, 0xA0), 0xAD, 0xFFF9, 0xFEFF)]
        return "".join(r.choice(("", self.word(), " ")) + self.some(controls, 1, 3)
                       for _ in range(r.randint(1, 4)))

    def anything(self):
        return "".join(self.some(self.assigned, 1, 8) + self.rng.choice((" ", "", "\n", "a", "0"))
                       for _ in range(self.rng.randint(1, 5)))

    def rarities(self):
        return "".join(self.some(self.rare, 1, 8) + self.rng.choice((" ", "", "\n", "a", "0"))
                       for _ in range(self.rng.randint(1, 5)))

    def unassigned(self):
        """Private use, non-characters, and planes without characters: valid scalar values all."""
        r = self.rng
        ranges = ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD), (0xFDD0, 0xFDEF),
                  (0x40000, 0x4FFFF), (0xE0100, 0xE01EF), (0xE0020, 0xE007F), (0xFFFE, 0xFFFF))
        text = ""
        for _ in range(r.randint(1, 5)):
            a, b = r.choice(ranges)
            text += r.choice(("", " ", self.word())) + chr(r.randint(a, b))
        return text

    def collage(self):
        r = self.rng
        kinds = (self.prose, self.code, self.digits, self.emoji, self.punctuation, self.whitespace,
                 self.contraction, self.mixed, self.combining, self.link)
        return r.choice(("", " ", "\n")).join(r.choice(kinds)()[:40] for _ in range(4))


KINDS = (("prose", 420), ("cased", 90), ("code", 420), ("emoji", 120), ("flags", 30),
         ("combining", 160), ("stacked", 40), ("digits", 140), ("numerals", 90),
         ("whitespace", 180), ("blank_run", 110), ("contraction", 130), ("punctuation", 150),
         ("mixed", 150), ("script", 180), ("link", 80), ("long_word", 50), ("hidden", 80),
         ("odd_spaces", 80), ("control", 70), ("anything", 120), ("rarities", 120),
         ("unassigned", 60), ("collage", 150))

FORBIDDEN = ("<|", "|>", "<\uff5c", "\uff5c>", "<unused", "<think", "</think", "<tool_", "</tool_",
             "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<start_of", "<end_of", "<image_soft",
             "[multimodal]", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>",
             "<issue_", "<jupyter_", "<empty_output>")


def make(seed, scale=1.0, limit=None):
    """The texts: the hand-written edge cases, then scale times KINDS, shuffled."""
    corpus = Corpus(seed)
    texts, seen = list(EDGES), set(EDGES)
    drawn = []
    for kind, count in KINDS:
        draw, wanted = getattr(corpus, kind), max(1, round(count * scale))
        while wanted:
            text = draw()
            if not text or text in seen or any(f in text for f in FORBIDDEN):
                continue
            seen.add(text)
            drawn.append(text)
            wanted -= 1
    corpus.rng.shuffle(drawn)
    return (texts + drawn)[:limit]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT.txt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0,
                        help="how many texts of each kind, relative to the default")
    parser.add_argument("--limit", type=int, help="write only the first N texts")
    args = parser.parse_args()
    texts = make(args.seed, args.scale, args.limit)
    with open(args.out, "w", encoding="utf-8", newline="\n") as f:
        for text in texts:
            f.write(escape(text) + "\n")
    if read_lines(args.out) != texts:
        sys.exit("escaping does not round-trip")
    print("%s: %d lines, seed %d, Unicode %s" % (args.out, len(texts), args.seed,
                                                 unicodedata.unidata_version))


if __name__ == "__main__":
    main()
