#!/usr/bin/env python3
"""Prints what a checkpoint says: a look at the model without an engine.

    python3 generate.py --work WORK "The captain of the ship"
    python3 generate.py --work WORK --chat "What does glacier mean?"
"""

import argparse
import pathlib

import torch
from tokenizers import Tokenizer

import export
import vocabulary


def sample(logits, temperature, generator):
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))


def generate(model, ids, length, temperature, seed):
    """Token ids up to <|im_end|> or <|endoftext|>; the whole text is recomputed at every step."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    with torch.no_grad():
        while len(out) < length:
            window = torch.tensor([(ids + out)[-model.c.context:]])
            token = sample(model(window)[0, -1].float(), temperature, generator)
            if token in (vocabulary.END_OF_TEXT, vocabulary.IM_END):
                break
            out.append(token)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--checkpoint", type=pathlib.Path, help="default: WORK/final.pt")
    parser.add_argument("--chat", action="store_true", help="the prompt is a user's turn")
    parser.add_argument("--length", type=int, default=80)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("prompt", nargs="+")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = export.load_model(args.checkpoint or args.work / "final.pt")
    tokenizer = Tokenizer.from_file(str(args.work / "tokenizer.json"))
    for prompt in args.prompt:
        if args.chat:
            text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
            ids = vocabulary.encode_chat(tokenizer, text)
        else:
            ids = [vocabulary.END_OF_TEXT] + vocabulary.encode(tokenizer, prompt)
        answer = generate(model, ids, args.length, args.temperature, args.seed)
        print(f"{prompt}\n  -> {tokenizer.decode(answer)}\n", flush=True)


if __name__ == "__main__":
    main()
