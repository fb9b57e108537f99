#!/usr/bin/env python3
"""test_stream_layouts.py PROGRAM: streams models whose experts lie in the files in every legal way.

Experts as slices of whole tensors or as tensors of their own, gate and up in one, parts and layers
of different types (so that there are several sizes of slots, more than there are size classes),
odd alignments, tensors in any order, split over files in the middle of a layer. For each, and for
the container that `sluice pack --keep` makes of it: the same logits for every number of slots from
the fewest on, each backend, with and without reading ahead. Standard library only."""

import copy
import itertools
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import tiny_model as tm  # noqa: E402
from tiny_model import U32  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
TIMEOUT_S = 60
U16, I32 = tm.U16, tm.I32
BASE = dict(
    arch="qwen3moe", n_expert=6, top_k=2, n_layer=3, n_embd=64, ff_exp=32, vocab=260, n_ctx=64
)
# Six layers, six sizes of experts, also where each part is rounded up to blocks.
MANY_SIZES = {"n_layer": 6, "n_embd": 128, "ff_exp": 128, "type": "Q8_0"}
MANY_SIZES["types"] = {
    "blk.0.ffn_down_exps": "F32",
    "blk.1.ffn_down_exps": "F16",
    "blk.2.ffn_down_exps": "Q8_0",
    "blk.3.ffn_down_exps": "Q5_1",
    "blk.4.ffn_down_exps": "Q4_0",
    "blk.5.ffn_up_exps": "F32",
}
RECURRENT = {"k_heads": 2, "v_heads": 4, "interval": 3, "ff_shared": 32, "shared_gate": True}
LAYOUTS = [
    ("plain", {}, None, 1),
    ("float", {"type": "F32"}, None, 1),
    ("fused_gate_up", {"type": "Q8_0", "fused_gate_up": True}, None, 1),
    ("single_experts", {"type": "Q4_0", "single_experts": True}, None, 1),
    ("single_experts_reversed", {"type": "Q8_0", "single_experts": True}, "reverse", 1),
    ("reversed", {"type": "Q5_0"}, "reverse", 1),
    ("alignment_8", {"type": "Q8_0"}, "align8", 1),
    ("alignment_4096", {"type": "Q8_0"}, "align4096", 1),
    ("many_sizes", MANY_SIZES, None, 1),
    ("odd_widths", {"n_embd": 33, "head_k": 8, "head_v": 8, "ff_exp": 31}, None, 1),
    ("one_expert", {"n_expert": 1, "top_k": 1}, None, 1),
    ("all_chosen", {"n_expert": 4, "top_k": 4, "type": "Q8_0"}, None, 1),
    ("tied", {"tied": True, "type": "Q8_0"}, None, 1),
    ("shared", {"arch": "qwen2moe", "ff_shared": 64, "shared_gate": True}, None, 1),
    ("recurrent", {**RECURRENT, "arch": "qwen3next"}, None, 1),
    ("recurrent_split", {**RECURRENT, "arch": "qwen35moe", "type": "Q8_0"}, None, 2),
    ("large", {"n_embd": 256, "ff_exp": 256, "types": {"_exps": "Q6_K"}}, None, 1),
    ("split", {"type": "Q8_0"}, None, 3),
    ("split_single_experts", {"type": "Q4_0", "single_experts": True}, None, 4),
    ("split_many_sizes", MANY_SIZES, None, 5),
]


def change(m, how):
    if how == "reverse":
        m.tensors.reverse()
    elif how is not None:
        m.align = int(how[len("align") :])
        m.keys["general.alignment"] = (U32, m.align)


def write(m, folder, shards):
    """One file, or the tensors dealt out in runs to several. Returns what to open."""
    if shards == 1:
        return m.write(os.path.join(folder, "model.gguf"))
    paths, n = [], len(m.tensors)
    for i in range(shards):
        part = copy.copy(m)
        part.tensors = m.tensors[n * i // shards : n * (i + 1) // shards]
        part.keys = (
            dict(m.keys) if i == 0 else {"general.architecture": m.keys["general.architecture"]}
        )
        part.keys["split.no"] = (U16, i)
        part.keys["split.count"] = (U16, shards)
        part.keys["split.tensors.count"] = (I32, n)
        name = "model-%05d-of-%05d.gguf" % (i + 1, shards)
        paths.append(part.write(os.path.join(folder, name)))
    return paths[-1]  # any of them will do


def evaluate(model, folder, options):
    """(exit code, standard error, logits)"""
    out = os.path.join(folder, "out.f32")
    ids = os.path.join(folder, "ids.txt")
    with open(ids, "w", encoding="ascii") as f:
        f.write(" ".join(str((i * 37 + 5) % 250) for i in range(24)))
    command = [PROGRAM, "eval", "-m", model, "--tokens", ids, "--logits", out, "--greedy", "6"]
    done = subprocess.run(command + options, capture_output=True, timeout=TIMEOUT_S, check=False)
    err = done.stderr.decode("utf-8", "replace")
    if done.returncode != 0:
        return done.returncode, err, b""
    with open(out, "rb") as f:
        return 0, err, f.read() + done.stdout


def ways(experts):
    """Every number of slots with every pair of the rest; all three together at every other."""
    rest = list(itertools.product(("uring", "pread"), ("off", "forced"), ("1", "9")))
    for number, slots in enumerate(range(1, experts + 1, max(1, experts // 9))):
        for io, prefetch, chunk in rest:
            if ((io == "uring") + (prefetch == "off") + (chunk == "1") + number) % 2:
                continue
            way = ["--slots", str(slots), "--io", io, "--prefetch", prefetch]
            yield way + ["--chunk", chunk]
    yield ["--io", "mmap"]


def pack(model, folder):
    """The container, with every tensor as it was."""
    out = os.path.join(folder, "model.sluice")
    command = [PROGRAM, "pack", model, "--keep", "-q", "-o", out]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    return out if done.returncode == 0 else "pack: " + done.stderr.decode("utf-8", "replace")


def check_ways(model, folder, right, experts):
    """Returns (what is wrong or "", ways that worked, ways with too few slots)."""
    worked = few = 0
    for options in ways(experts):
        code, err, got = evaluate(model, folder, options)
        if code == 1 and "io_uring" in err.splitlines()[-1] and "uring" in options:
            continue  # not granted here
        if code == 1 and "slots" in err.splitlines()[-1] and worked == 0:
            few += 1
        elif code != 0:
            return "exit code %d with %s: %s" % (code, " ".join(options), err[-300:]), 0, 0
        elif got != right:
            return "other logits with %s" % " ".join(options), 0, 0
        else:
            worked += 1
    return "" if worked > few / 2 else "hardly anything works", worked, few


def check(config, how, shards, folder):
    """As check_ways, of the model and of the container."""
    c = tm.Config(**{**BASE, **config})
    m = tm.build(c)
    change(m, how)
    model = write(m, folder, shards)
    code, err, right = evaluate(model, folder, ["--io", "pread"])
    if code != 0:
        return "all in memory: exit code %d: %s" % (code, err[-300:]), 0, 0
    found = check_ways(model, folder, right, c.n_expert * c.n_layer)
    if found[0]:
        return found
    packed = check_ways(pack(model, folder), folder, right, c.n_expert * c.n_layer)
    return (
        ("packed: " if packed[0] else "") + packed[0],
        found[1] + packed[1],
        found[2] + packed[2],
    )


def main():
    failed = 0
    for name, config, how, shards in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            wrong, worked, few = check(config, how, shards, folder)
        failed += bool(wrong)
        if wrong:
            print("FAIL %s: %s" % (name, wrong), flush=True)
        else:
            print("ok   %s: %d ways, %d with too few slots" % (name, worked, few), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
