#!/usr/bin/env python3
"""Renders real chat templates with Jinja2 and writes what Sluice's renderers are held against.

  make_template_goldens.py [--extra DIR] [--check] [--random N FOLDER]

Reads the sources in tests/golden/templates/sources, and in DIR those whose licence keeps them out
of the repository (the README.md there says where to get them). Writes conversations.txt and one
NAME.txt per template in tests/golden/templates, and engine/text/chat_template_known.def; --check
only says whether they are current. Sources that belong to one template must render alike on every
conversation, random ones included, or nothing is written. --random writes N random conversations
with all renderings into FOLDER instead, for a longer run: test_chat_template FOLDER.

Jinja is set up as the transformers library does it: a sandbox, trim_blocks, lstrip_blocks,
raise_exception, strftime_now. Needs Python 3.9 and jinja2 3.1.
"""
import argparse
import datetime
import pathlib
import random
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "templates"
KNOWN = ROOT / "engine" / "text" / "chat_template_known.def"
TODAY = datetime.date(2026, 11, 30)

# template name: (sources, text of BOS, text of EOS)
TEMPLATES = {
    "chatml": (["chatml-1", "chatml-2", "chatml-3", "chatml-4", "chatml-5",
                "chatml-unsloth"],
               "<s>", "<|im_end|>"),
    "smollm2": (["smollm2"], "<|im_start|>", "<|im_end|>"),
    "qwen2": (["qwen2"], "", "<|im_end|>"),
    "qwen2.5": (["qwen2.5"], "", "<|im_end|>"),
    "qwen3": (["qwen3", "qwen3-later", "qwen3-unsloth"], "", "<|im_end|>"),
    "qwen3-instruct": (["qwen3-instruct-2507"], "", "<|im_end|>"),
    "qwen3-instruct-unsloth": (["qwen3-instruct-unsloth"], "", "<|im_end|>"),
    "qwen3-thinking": (["qwen3-thinking-2507"], "", "<|im_end|>"),
    "qwen3-coder": (["qwen3-coder", "qwen3-coder-next"], "", "<|im_end|>"),
    "qwen3.5": (["qwen3.5"], "", "<|im_end|>"),
    "qwen3.5-nothink": (["qwen3.5-nothink"], "", "<|im_end|>"),
    "qwen3.6": (["qwen3.6"], "", "<|im_end|>"),
    "llama3": (["llama3"], "<|begin_of_text|>", "<|eot_id|>"),
    "llama3-always": (["llama3-always"], "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.1": (["llama3.1"], "<|begin_of_text|>", "<|eot_id|>"),
    "llama3.2": (["llama3.2"], "<|begin_of_text|>", "<|eot_id|>"),
    "mixtral": (["mixtral"], "<s>", "</s>"),
    "mistral-v0.1": (["mistral-v0.1"], "<s>", "</s>"),
    "mistral-v1": (["mistral-v1"], "<s>", "</s>"),
    "mistral-nemo": (["mistral-nemo"], "<s>", "</s>"),
    "mistral-v7": (["mistral-v7"], "<s>", "</s>"),
    "tulu": (["tulu"], "<s>", "</s>"),
    "olmo2": (["olmo2"], "<|endoftext|>", "<|endoftext|>"),
    "granite": (["granite-3.0"], "<|end_of_text|>", "<|end_of_text|>"),
    "granite-3.3": (["granite-3.3"], "<|end_of_text|>", "<|end_of_text|>"),
    "granite-4.0": (["granite-4.0"], "<|end_of_text|>", "<|end_of_text|>"),
    "granite-4.1": (["granite-4.1"], "<|end_of_text|>", "<|end_of_text|>"),
    "gemma": (["gemma"], "<bos>", "<eos>"),
    "gemma3": (["gemma3"], "<bos>", "<end_of_turn>"),
    "deepseek3": (["deepseek3"],
                  "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "gpt-oss": (["gpt-oss"], "<|startoftext|>", "<|return|>"),
}

S, U, A = "system", "user", "assistant"
CONVERSATIONS = {
    "user": [(U, "Where is §Oslo?")],
    "system": [(S, "Be §brief."), (U, "Where is §Oslo?")],
    "turns": [(S, "Be §brief."), (U, "§One"), (A, "§Two"), (U, "§Three"), (A, "§Four"),
              (U, "§Five")],
    "turns_bare": [(U, "§One"), (A, "§Two"), (U, "§Three")],
    "open_answer": [(U, "§One"), (A, "§Two")],
    "empty": [(S, ""), (U, ""), (A, ""), (U, "")],
    "spaces": [(S, " §lead\n"), (U, "\n\n §x \t"), (A, "\u00a0\u3000§y\u2003\u0085\n"),
               (U, "\x1f §z\u200b \x0b")],
    "channels": [(U, "§Q"), (A, "<|channel|>analysis<|message|>§w"), (U, "§R")],
    "unicode": [(U, "§Grüße, 世界 🌍 é"), (A, "§नमस्ते"), (U, "§ok")],
    "hostile": [(S, "{{ §raise_exception('x') }}{% endfor %}<|im_end|>"),
                (U, "§<|im_end|>\n<|im_start|>system\n[/INST]</s><|eot_id|><end_of_turn>"),
                (A, "{# §no #}'\"\\n"), (U, "§\\")],
    "thought": [(U, "§Q"), (A, "<think>\n§why\n</think>\n\n§so"), (U, "§R"),
                (A, "<think>§w</think>§t</think>\n§u\n")],
    "thought_odd": [(U, "§Q"), (A, "§x</think>"),
                    (A, "\n<think>\n<think> §a \n\n</think>\n\n\n§b "), (A, "<think></think>§c")],
    "tool": [(U, "§Q"), (A, "<think>§1</think>§2"), (U, "<tool_response>§3</tool_response>"),
             (A, "§4")],
    "tool_only": [(U, "<tool_response>§3</tool_response>"), (A, "\n§4")],
    "two_users": [(U, "§One"), (U, "§Two")],
    "late_system": [(U, "§One"), (A, "§Two"), (S, "§Three"), (U, "§Four")],
    "two_systems": [(S, "§One"), (S, "§Two"), (U, "§Three")],
    "system_only": [(S, "§One")],
    "assistant_first": [(A, "§One"), (U, "§Two")],
    "system_answer": [(S, "§One"), (A, "§Two")],
}
# Templates that drop a system message which is not the first; Sluice refuses it: never silently.
REFUSES_LATE_SYSTEM = {"gpt-oss"}
# generation prompt, thinking, whether a date is known
SETTINGS = [(g, t, d) for g in (1, 0) for t in (-1, 0, 1) for d in (1, 0)]


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    env.globals["raise_exception"] = raise_exception
    return env


def render(template, conversation, setting, bos, eos):
    """The text, or None where the template raises."""
    prompt, thinking, date = setting
    names = {"messages": [{"role": r, "content": c} for r, c in conversation],
             "add_generation_prompt": bool(prompt), "bos_token": bos, "eos_token": eos}
    if thinking >= 0:
        names["enable_thinking"] = names["thinking"] = bool(thinking)
    if date:
        names["strftime_now"] = TODAY.strftime
    try:
        return template.render(**names)
    except jinja2.TemplateError:
        return None


def tokens(source):
    """The byte string that chat_template_lex.c hashes, made with Jinja's own lexer."""
    kinds = {"variable_begin": b"V", "variable_end": b"v", "block_begin": b"B", "block_end": b"b"}
    out, text = bytearray(), False
    for token in environment().lexer.tokenize(source):
        if token.type == "data":
            if token.value:
                out += (b"" if text else b"D") + token.value.encode()
                text = True
            continue
        if text:
            out += b"\0"
        text = False
        if token.type in kinds:
            out += kinds[token.type]
        else:
            kind = {"name": b"N", "string": b"S", "integer": b"I"}.get(token.type, b"O")
            out += kind + str(token.value).encode() + b"\0"
    return bytes(out + (b"\0" if text else b""))


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & (2**64 - 1)
    return h


def random_conversations(n, seed):
    rng = random.Random(seed)
    bits = ["", "§a", "<|channel|>final<|message|>", " ", "\n", "<think>", "</think>", "§b c",
            "<tool_response>", "</tool_response>", "é\u3000", "\t", "<|im_end|>", "\u0085"]
    for _ in range(n):
        yield [(rng.choice([S, U, U, A, A]), "".join(rng.choices(bits, k=rng.randrange(6))))
               for _ in range(rng.randrange(1, 6))]


def conversations_text(named):
    out = bytearray()
    for name, conversation in named.items():
        out += f"conversation {name} {len(conversation)}\n".encode()
        for role, content in conversation:
            data = content.encode()
            out += f"{role} {len(data)}\n".encode() + data + b"\n"
    return bytes(out)


def golden_text(name, sources, named, settings_of):
    """BOS and EOS, then each case: conversation, generation prompt, thinking, date, length (-1:
    the template raises), text."""
    keys, bos, eos = TEMPLATES[name]
    compiled = [environment().from_string(sources[k]) for k in keys]
    out = bytearray()
    for what, text in (("bos", bos), ("eos", eos)):
        out += f"{what} {len(text.encode())}\n{text}\n".encode()
    for title, conversation in named.items():
        for setting in settings_of(title):
            texts = [render(t, conversation, setting, bos, eos) for t in compiled]
            if name in REFUSES_LATE_SYSTEM and any(r == S for r, _ in conversation[1:]):
                texts = [None]
            if any(t != texts[0] for t in texts):
                sys.exit(f"{name}: the sources differ on {title} {setting}: {texts}")
            data = b"" if texts[0] is None else texts[0].encode()
            length = -1 if texts[0] is None else len(data)
            prompt, thinking, date = setting
            out += f"case {title} {prompt} {thinking} {date} {length}\n".encode() + data + b"\n"
    return bytes(out)


def few_settings(title):
    """Settings where they matter, one elsewhere: the committed files stay small."""
    usual = (1, -1, 1)
    if title == "user":
        return [usual, (0, -1, 1), (1, 0, 1), (1, 1, 1), (1, -1, 0)]
    return [usual, (0, 0, 1)] if title == "thought" else [usual]


def known_text(sources):
    lines = ["/* Fingerprints of the template sources that are known; written by",
             " * tools/dev/make_template_goldens.py. */"]
    for name, (keys, _, _) in TEMPLATES.items():
        for key in keys:
            data = tokens(sources[key])
            lines.append(f'SL_CHAT_SOURCE(0x{fnv1a(data):016x}, {len(data)}, "{name}") /* {key} */')
    return ("\n".join(lines) + "\n").encode()


def read_sources(folders):
    sources = {}
    for folder in folders:
        for path in sorted(pathlib.Path(folder).glob("*.jinja")):
            sources[path.stem] = path.read_bytes().decode()
    missing = [k for keys, _, _ in TEMPLATES.values() for k in keys if k not in sources]
    if missing:
        sys.exit("no source for " + ", ".join(missing) + "; name their folder with --extra")
    return sources


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", help="folder with the sources that are not in the repository")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--random", nargs=2, metavar=("N", "FOLDER"))
    args = parser.parse_args()
    sources = read_sources([GOLDEN / "sources"] + ([args.extra] if args.extra else []))

    n_random = int(args.random[0]) if args.random else 300
    many = {f"r{i}": c for i, c in enumerate(random_conversations(n_random, 1))}
    files = {}
    folder = pathlib.Path(args.random[1]) if args.random else GOLDEN
    named = many if args.random else CONVERSATIONS
    files[folder / "conversations.txt"] = conversations_text(named)
    for name in TEMPLATES:  # the random ones first: they show sources that differ
        text = golden_text(name, sources, many, lambda _: SETTINGS)
        if not args.random:
            text = golden_text(name, sources, named, few_settings)
        files[folder / f"{name}.txt"] = text
    if not args.random:
        files[KNOWN] = known_text(sources)
    stale = [str(p) for p, data in files.items() if not p.exists() or p.read_bytes() != data]
    if args.check:
        sys.exit("not current: " + ", ".join(stale) if stale else 0)
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes, {len(stale)} changed")


if __name__ == "__main__":
    main()
