"""Pre-tokenizers by their GGUF name: regular expressions, and plausible mistakes in them.

REGEXES[name] is a tuple of expressions in the syntax of Oniguruma (Perl's, for what is used here).
They are applied one after the other: each splits every piece that the ones before have left; a
match is a piece of its own and so is what lies between matches. Sources: the tokenizer.json files
of Qwen3, Llama 3, gpt-oss and DeepSeek-V3; for the others llama.cpp's llama-vocab.cpp (v0.5.0),
with the original expression where that file keeps it in a comment (qwen35).

NFC names those whose models' own tokenizers first normalize to NFC. A GGUF file does not say so,
and llama.cpp does not do it.
"""

LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
# Letters that have case, as of Unicode 11.
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-"
    "\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-"
    "\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-"
    "\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-"
    "\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149"
    "\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-"
    "\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-"
    "\U0001e943"
)

REGEXES = {
    "qwen2": (SUFFIX + "|" + LETTERS + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,),
    "qwen35": (SUFFIX + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
               + TAIL,),
    "llama-bpe": (SUFFIX + "|" + LETTERS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,),
    "gpt-4o": (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + SUFFIX + "?|"
               r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + SUFFIX + "?|"
               r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL,),
    "deepseek-v3": (r"\p{N}{1,3}",
                    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
                    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
    "deepseek-llm": ("[\r\n]",
                     r"\s?[" + CASED + "]+",
                     r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                     r"\s+$",
                     "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
                     r"\p{N}+"),
    "gpt-2": (GPT2,),
    "olmo": (GPT2,),
    "refact": (r"\p{N}", GPT2),
    "smollm": (r"\p{N}", GPT2),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
}
NFC = frozenset(("qwen2", "qwen35", "olmo"))

# What somebody might write instead; applied at every place where the left side stands.
SLIPS = (
    ("(?i:", "(?:"), (r"\p{N}{1,3}", r"\p{N}+"), (r"\p{N}{1,3}", r"\p{N}"),
    (r"\p{N}{1,3}", r"\p{N}{1,2}"), (r"\p{N}{1,3}", "[0-9]{1,3}"), (r"\p{N}", r"\p{N}+"),
    (r"\p{N}", "[0-9]"), (r"\p{N}", r"\p{Nd}"), (r"[\r\n]*", ""), (r"[\r\n]*", r"\n*"),
    ("[\r\n]*", ""), (r"[\r\n/]*", r"[\r\n]*"), (r"(?!\S)", ""), (r"\s", r"[ \t\r\n\f\v]"),
    (r"\p{M}", ""), (r"\p{L}+", "[A-Za-z]+"), (r"\p{Lt}", ""), (r"\p{Lm}", ""), (r"\p{Lo}", ""),
    (r"[^\r\n\p{L}\p{N}]?", ""), (r"[^\r\n\p{L}\p{N}]?", " ?"),
    (r"[^\r\n\p{L}\p{N}]?", r"[^\p{L}\p{N}]?"), (" ?[", "["), (r" ?\p", r"\p"),
    (r"\s*[\r\n]+", r"[\r\n]+"), (r"\s*[\r\n]+", r"\s*\n+"), ("\\s*[\r\n]+", "[\r\n]+"),
    ("\u4e00-\u9fa5", "\u4e00-\u9fff"), ("\u3040-\u309f", ""), ("\u30a0-\u30ff", ""),
    (r"\p{P}\p{S}", r"\p{P}"), (r"\p{P}\p{S}", r"\p{S}"), ("[A-Za-z]+", "[A-Za-z]"),
    ("[A-Za-z]+", r"\p{L}+"), (r"\s?[", "["), (r"\s?[", " ?["), ("\uac00-\ud7ff", ""),
    ("\u0800-\u4e00", "\u2e80-\u4e00"), ("\u2018-\u201f", ""), ("\uff01-\uff0f\uff1a-\uff5e", ""),
    ("\u3000-\u3002", ""), ("[0-9][0-9][0-9]", "[0-9][0-9]"), ("[\r\n]", "[\n]"),
    (r"\p{P}", r"[!-/:-@\[-`{-~]"), (r"\$\+", ""), (CASED, "A-Za-z"), ("\u00b5", ""),
)


def alternatives(regex):
    """The parts between the '|' that stand in no bracket."""
    parts, depth, in_class, at = [""], 0, False, 0
    while at < len(regex):
        c = regex[at:at + 2] if regex[at] == "\\" else regex[at]
        if not in_class:
            depth += (c == "(") - (c == ")")
        in_class = c == "[" or in_class and c != "]"
        if c == "|" and not depth and not in_class:
            parts.append("")
        else:
            parts[-1] += c
        at += len(c)
    return parts


def mistakes(regexes):
    """Yields (what was done, wrong regexes): a slip, an alternative or a step left out."""
    for k, regex in enumerate(regexes):
        def variant(new):
            return regexes[:k] + (new,) + regexes[k + 1:]
        parts = alternatives(regex)
        for j in range(len(parts) if len(parts) > 1 else 0):
            yield "without %r" % parts[j], variant("|".join(parts[:j] + parts[j + 1:]))
        if len(regexes) > 1:
            yield "without step %d" % (k + 1), regexes[:k] + regexes[k + 1:]
        for old, new in SLIPS:
            at = regex.find(old)
            while at >= 0:
                yield ("%r for %r at %d of step %d" % (new, old[:20], at, k + 1),
                       variant(regex[:at] + new + regex[at + len(old):]))
                at = regex.find(old, at + 1)


def splitter(regexes):
    """A Hugging Face pre-tokenizer that applies the expressions and maps bytes to characters."""
    from tokenizers import Regex, pre_tokenizers
    steps = [pre_tokenizers.Split(Regex(r), "isolated") for r in regexes]
    return pre_tokenizers.Sequence(
        steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
