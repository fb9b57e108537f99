#!/usr/bin/env python3
"""make_model_seeds.py [FOLDER]: writes the seeds of fuzz_model, one tiny model per architecture
and variant (20 to 60 KB)."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import tiny_model as tm  # noqa: E402

SMALL = dict(n_layer=1, n_embd=16, n_head=2, n_kv=1, n_ff=24, ff_exp=8, vocab=258, n_ctx=32)
SEEDS = {
    "llama": dict(arch="llama", ffn_bias=True, o_bias=True, rope_freqs=True),
    "llama-fused": dict(
        arch="llama", fused_qkv=True, qkv_bias=True, tied=True, head_k=8, head_v=6, n_rot=4
    ),
    "llama-Q8_0": dict(arch="llama", type="Q8_0", n_embd=32, n_ff=32, tied=True),
    "llama-Q4_K": dict(
        arch="llama",
        types={"ffn_down": "Q4_K", "token_embd": "F16"},
        n_ff=256,
        tied=True,
        rope_keys={"type": (tm.STR, "linear"), "factor": (tm.F32, 2.0)},
    ),
    "mixtral-single": dict(arch="llama", n_expert=2, top_k=1, single_experts=True, tied=True),
    "qwen3": dict(
        arch="qwen3",
        tied=True,
        rope_keys={
            "type": (tm.STR, "yarn"),
            "factor": (tm.F32, 4.0),
            "original_context_length": (tm.U32, 16),
        },
    ),
    "qwen2moe": dict(
        arch="qwen2moe", n_expert=3, ff_shared=8, shared_gate=True, qkv_bias=True, tied=True
    ),
    "qwen3moe": dict(arch="qwen3moe", n_expert=3, fused_gate_up=True, tied=True),
    "qwen3moe-mixed": dict(
        arch="qwen3moe",
        n_expert=2,
        n_embd=32,
        ff_exp=32,
        tied=True,
        types={
            "gate_exps": "Q4_0",
            "up_exps": "Q8_0",
            "down_exps": "IQ4_NL",
            "token_embd": "Q5_1",
        },
    ),
    "qwen3next": dict(
        arch="qwen3next",
        n_layer=2,
        interval=2,
        n_expert=2,
        top_k=1,
        ff_shared=8,
        shared_gate=True,
        k_heads=1,
        v_heads=2,
        tied=True,
    ),
    "qwen35moe": dict(
        arch="qwen35moe",
        n_expert=2,
        top_k=1,
        ff_shared=8,
        shared_gate=True,
        k_heads=2,
        v_heads=4,
        nextn=1,
        tied=True,
    ),
    "olmoe": dict(
        arch="olmoe", n_expert=2, tied=True, keys={"attention.clamp_kqv": (tm.F32, 2.0)}
    ),
    "granitemoe": dict(
        arch="granitemoe",
        n_expert=2,
        ff_shared=8,
        tied=True,
        keys={"logit_scale": (tm.F32, 2.0), "residual_scale": (tm.F32, 0.5)},
    ),
}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus", "model")
    os.makedirs(folder, exist_ok=True)
    for name, features in SEEDS.items():
        tm.build(tm.Config(**{**SMALL, **features})).write(os.path.join(folder, name + ".gguf"))


if __name__ == "__main__":
    main()
