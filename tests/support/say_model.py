"""say_model.py FORM OUT.gguf: a tiny model that says given words, for tests of what happens to an
answer. Standard library only.

Each token decides the next one alone: a token's embedding is one-hot, the only layer adds nothing,
and the output matrix has a one where a row may follow a column. What follows no word in CHAINS is
the end of the turn. Forms: "tags" thinks between <think> and </think>, "control" too, but both are
control tokens, "channels" as gpt-oss does, and "plain" has no marks of thoughts among its tokens.
"""

import array
import sys

import tiny_model
from tiny_model import ARR, I32, STR, U32

CHAINS = {
    "tags": (
        (
            "assistant\n",
            "<think>",
            "\n",
            "hm, ",
            "2+2",
            "</think>",
            "\n\n",
            "Fo",
            "ur.",
            "<|im_end|>",
        ),
        ("</think>\n\n", "Fo"),
    ),
    "channels": (
        ("assistant", "<|channel|>", "analysis", "<|message|>", "hm, ", "2+2", "<|return|>"),
    ),
    "plain": (("assistant\n", "Fo", "ur.", "<|im_end|>"),),
}
CHAINS["control"] = CHAINS["tags"]
END = {"channels": "<|return|>"}
MORE = {"tags": (), "control": (), "channels": ("<|start|>", "<|end|>", "<|call|>"), "plain": ()}
WIDTH = 288
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def model(form):
    words = list(dict.fromkeys(w for chain in CHAINS[form] for w in chain))
    words += [w for w in ("<|im_start|>", "<|im_end|>") + MORE[form] if w not in words]
    m = tiny_model.build(tiny_model.Config(n_layer=1, n_embd=WIDTH, vocab=WIDTH, n_ctx=512))
    tokens = m.keys["tokenizer.ggml.tokens"][1][1][:256] + words
    kinds = [NORMAL] * 256
    control = ("<|", "<think>", "</think>") if form == "control" else "<|"
    kinds += [CONTROL if w.startswith(control) else USER_DEFINED for w in words]
    tokens += ["filler%d" % i for i in range(len(tokens), WIDTH)]
    kinds += [NORMAL] * (WIDTH - len(kinds))
    ids = {t: i for i, t in enumerate(tokens)}
    ids["\n"] = 256 + words.index("\n") if "\n" in words else ids["\u010a"]
    end = ids[END.get(form, "<|im_end|>")]
    m.keys["tokenizer.ggml.pre"] = (STR, "qwen35")
    m.keys["tokenizer.ggml.tokens"] = (ARR, (STR, tokens))
    m.keys["tokenizer.ggml.token_type"] = (ARR, (I32, kinds))
    m.keys["tokenizer.ggml.eos_token_id"] = (U32, end)
    m.keys["tokenizer.ggml.bos_token_id"] = (U32, end)

    follows = [end] * WIDTH
    for chain in CHAINS[form]:
        for word, after in zip(chain, chain[1:]):
            follows[ids[word]] = ids[after]
    one_hot, output = array.array("f", bytes(4 * WIDTH * WIDTH)), array.array("f")
    output.frombytes(bytes(4 * WIDTH * WIDTH))
    for token, after in enumerate(follows):
        one_hot[token * WIDTH + token] = 1.0
        output[after * WIDTH + token] = 1.0
    m.tensor("token_embd.weight").data = one_hot.tobytes()
    m.tensor("output.weight").data = output.tobytes()
    for name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight"):
        m.tensor(name).data = bytes(len(m.tensor(name).data))
    return m


def main():
    model(sys.argv[1]).write(sys.argv[2])


if __name__ == "__main__":
    main()
