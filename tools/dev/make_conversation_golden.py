#!/usr/bin/env python3
"""Make the goldens of tests/conversations: ten conversations as the transformers library renders
and tokenizes them with the vocabulary of Qwen 3.5 and 3.6.

    make_conversation_golden.py TOKENIZER_DIR OUT_DIR [--check]

TOKENIZER_DIR is what tiktoken_to_hf.py makes of that vocabulary. OUT_DIR receives

  vocab.gguf           the tokens of the ten conversations with the merges that build them, in
                       their old order, and the template of Qwen 3.6
  vocab.ids            the ids that these tokens have in the whole vocabulary
  conversations.txt    the messages (as in tests/golden/templates)
  TEMPLATE.txt         a case each: conversation, thinking, length; the text; how many ids, and they

The ids are those of the whole vocabulary. Leaving out merges that a text does not need changes
none of the joins that it does need, so that the small one must give the same tokens.

Needs: transformers, tokenizers, jinja2, gguf.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import make_vocab_gguf as vocab
from make_template_goldens import conversations_text

SOURCES = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "templates" / "sources"
TEMPLATES = {  # name: source, states of thinking
    "qwen3.5": ("qwen3.5", (None, False, True)),
    "qwen3.6": ("qwen3.6", (None, False, True)),
    "qwen3-instruct": ("qwen3-instruct-2507", (None,)),
    "qwen3-thinking": ("qwen3-thinking-2507", (None,)),
}
S, U, A = "system", "user", "assistant"

CONVERSATIONS = {
    "question": [(U, "What is the capital of France?")],
    "system": [
        (S, "You are a terse assistant. Answer in one word.\n"),
        (U, "Is 17 prime?"),
    ],
    "thoughts": [
        (U, "2+2?"),
        (A, "<think>\nTwo and two.\nThat makes four.\n</think>\n\nFour."),
        (U, "And 3*3?"),
        (A, "<think>\n\n</think>\n\nNine."),
        (U, "Their sum?"),
    ],
    "languages": [
        (U, "把这句话翻译成日语：今天天气很好，我们去公园散步吧。"),
        (A, "今日は天気がいいので、公園を散歩しましょう。"),
        (U, "Und auf Deutsch? Schöne Grüße, Übermut, naïve façade, Việt Nam, Ελλάδα, Россия"),
        (A, "Heute ist schönes Wetter; lass uns im Park spazieren gehen."),
        (U, "العربية؟ עברית? हिन्दी? ไทย? 한국어? বাংলা? தமிழ்?"),
    ],
    "code": [
        (S, "You write C11."),
        (
            U,
            "Why does this crash?\n\n```c\n#include <stdio.h>\n\nint main(void)\n{\n"
            "\tchar *s = NULL;\n"
            '    for (int i = 0; i < 10; i++) {\n        printf("%d: %c\\n", i, s[i]);\n    }\n'
            "\treturn 0; /* never reached */\n}\n```\n",
        ),
    ],
    "data": [
        (
            U,
            '{"id": 1234567890, "price": 3.14159, "tags": ["a", "b"],'
            ' "when": "2026-11-30T14:25:34Z", "url": "https://example.org/?q=1&x=%20#top",'
            ' "null": null}'
            "\n\n\n  Sum of 0x1F, 1e-9"
            " and 10,000.50?\r\nAlso: don't, they'll, I'VE -- what's that???",
        ),
    ],
    "marks": [
        (U, "cafe\u0301 \u1e9b\u0323 \u0e19\u0e49\u0e33 \u0928\u0940 e\u0301\u0323 \u2028x"),
        (
            A,
            "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 "
            "\U0001f3f3\ufe0f\u200d\U0001f308 ok",
        ),
        (U, "\U0001f1eb\U0001f1f7 \u00bd \u2460 \u0664\u0662 x\u00b2 \u212b \ufb01 \U0001d54f"),
    ],
    "blanks": [
        (S, "   "),
        (U, "\n\n  indented\n\t\ttabs   and   spaces  \n\n"),
        (A, "\n\nyes \n"),
        (U, " \u3000again\u00a0"),
    ],
    "responses": [
        (U, "Look it up."),
        (A, "<think>\nI should look.\n</think>\n\nLooking."),
        (U, "<tool_response>\n42\n</tool_response>"),
        (A, "<think>It says 42.</think>The answer is 42."),
        (U, "<tool_response>\n43\n</tool_response>"),
    ],
    "long": [
        (S, "Answer as a careful editor would."),
        (
            U,
            "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs. "
            "It was the best of times, it was the worst of times, it was the age of wisdom, it was "
            "the age of foolishness, it was the epoch of belief, it was the epoch of incredulity.",
        ),
        (A, "A pangram, another pangram, and the opening of a novel by Dickens (1859)."),
        (U, "Unquestionably antidisestablishmentarianism; floccinaucinihilipilification!!!"),
        (A, "Two long words."),
        (U, "Go on"),
    ],
}


def reduced(tokenizer, used):
    """The tokenizer with the tokens in used and what their merges are made of, and the old ids."""
    texts = {i: t for t, i in tokenizer["model"]["vocab"].items()}
    pairs = {a + b: (a, b) for a, b in vocab.pairs(tokenizer)}
    keep = {t for t in tokenizer["model"]["vocab"] if len(t) == 1}
    todo = [texts[i] for i in used if i in texts]
    while todo:
        text = todo.pop()
        if text not in keep:
            keep.add(text)
            todo += pairs[text]
    old = sorted(tokenizer["model"]["vocab"][t] for t in keep)
    added = tokenizer["added_tokens"]
    small = {
        **tokenizer,
        "model": {
            **tokenizer["model"],
            "vocab": {texts[i]: n for n, i in enumerate(old)},
            "merges": [p for p in vocab.pairs(tokenizer) if p[0] + p[1] in keep],
        },
        "added_tokens": [{**a, "id": len(old) + n} for n, a in enumerate(added)],
    }
    return small, old + [a["id"] for a in added]


def cases_of(tokenizer, source, states):
    """(conversation, -1, 0 or 1, text, ids), the text rendered by transformers."""
    for name, messages in CONVERSATIONS.items():
        chat = [{"role": r, "content": c} for r, c in messages]
        for state in states:
            switch = {} if state is None else {"enable_thinking": state}
            options = dict(chat_template=source, add_generation_prompt=True, **switch)
            text = tokenizer.apply_chat_template(chat, tokenize=False, **options)
            ids = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False, **options)
            yield name, -1 if state is None else int(state), text, ids


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", metavar="TOKENIZER_DIR")
    parser.add_argument("out", metavar="OUT_DIR", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare only")
    args = parser.parse_args()
    from transformers import PreTrainedTokenizerFast

    whole, config = vocab.load_tokenizer(args.folder)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=args.folder + "/tokenizer.json")
    cases, used = {}, set()
    for name, (source, states) in TEMPLATES.items():
        text = (SOURCES / (source + ".jinja")).read_text()
        cases[name] = list(cases_of(tokenizer, text, states))
        used.update(i for case in cases[name] for i in case[3])
    small, old_ids = reduced(whole, used)

    files = {
        "conversations.txt": conversations_text(CONVERSATIONS),
        "vocab.ids": (" ".join(map(str, old_ids)) + "\n").encode(),
    }
    for name, list_of_cases in cases.items():
        out = []
        for title, state, text, ids in list_of_cases:
            out.append("case %s %d %d\n%s\n" % (title, state, len(text.encode()), text))
            out.append("%d %s\n" % (len(ids), " ".join(map(str, ids))))
        files[name + ".txt"] = "".join(out).encode()
    config["chat_template"] = (SOURCES / "qwen3.6.jinja").read_text()
    with tempfile.TemporaryDirectory() as scratch:
        path = scratch + "/vocab.gguf"
        vocab.write_vocab(path, json.loads(json.dumps(small)), config, name="ten conversations")
        files["vocab.gguf"] = pathlib.Path(path).read_bytes()

    paths = {args.out / name: data for name, data in files.items()}
    stale = [str(p) for p, data in paths.items() if not p.exists() or p.read_bytes() != data]
    if args.check:
        sys.exit("not current: " + ", ".join(stale) if stale else 0)
    for path, data in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    print(
        "%d tokens, %d bytes in %d files"
        % (len(old_ids), sum(map(len, files.values())), len(files))
    )


if __name__ == "__main__":
    main()
