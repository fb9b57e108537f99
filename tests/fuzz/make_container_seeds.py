#!/usr/bin/env python3
"""make_container_seeds.py PROGRAM [FOLDER]: writes the seeds of fuzz_container that are made by
`sluice pack`: the indexes of tiny models with every weight type of containers, resident and in
experts, and of one that is kept as it is."""

import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import tiny_model as tm  # noqa: E402

SMALL = dict(n_layer=1, n_embd=32, n_head=2, n_kv=1, n_ff=32, ff_exp=32, vocab=258, n_ctx=32)
MOE = dict(arch="qwen3moe", n_expert=2, top_k=1, tied=True)
TYPES = ("sq2_32", "sq2_16", "sq3_32", "sq3_16", "sq4_32", "sq4_16", "sq5_32", "sq6_32")
# name: (features of the model, recipe)
SEEDS = {
    "kept": (MOE, "* keep\n"),
    "kept-dense": (dict(arch="llama", fused_qkv=True, rope_freqs=True), "* keep\n"),
    "shared": (dict(arch="qwen2moe", n_expert=2, ff_shared=32, tied=True), "*shexp* sq6_32\n"),
    **{"all-" + t: (MOE, "*exps* %s\n*attn_?.weight %s\n* keep\n" % (t, t)) for t in TYPES},
    "mixed": (
        dict(MOE, n_layer=2),
        "*gate_exps* sq2_16\n*up_exps* sq4_16\nblk.0.ffn_down_exps* q8_0\n*attn_q* bf16\n* keep\n",
    ),
}
ALIGN = 16384


def pack(program, scratch, name, features, recipe):
    """The bytes of a container."""
    model, rules = os.path.join(scratch, name + ".gguf"), os.path.join(scratch, "recipe.txt")
    out = os.path.join(scratch, name + ".sluice")
    tm.build(tm.Config(**{**SMALL, **features})).write(model)
    with open(rules, "w", encoding="ascii") as f:
        f.write(recipe)
    command = [program, "pack", model, "-q", "-o", out, "--keep", "--recipe", rules]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(out, "rb") as f:
        return f.read()


def main():
    program = os.path.abspath(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "corpus", "container")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, (features, recipe) in SEEDS.items():
            data = pack(program, scratch, name, features, recipe)
            at, size = struct.unpack_from("<QQ", data, 40)
            blocks, index = at // ALIGN - 1, data[at : at + size]
            assert 0 < blocks < 128
            with open(os.path.join(folder, "pack-" + name), "wb") as f:
                f.write(bytes([blocks]) + index)
    # a header of its own, before the last index: one block of records only
    with open(os.path.join(folder, "pack-header"), "wb") as f:
        f.write(b"\x80" + data[8:64] + index)


if __name__ == "__main__":
    sys.exit(main())
