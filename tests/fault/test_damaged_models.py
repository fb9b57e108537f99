#!/usr/bin/env python3
"""test_damaged_models.py PROGRAM: damaged and odd models through `sluice eval`.

Damaged: one line that names the file (or the layer, where the numbers went wrong) and says what
was found and wanted; exit code 1; no crash, no hang, no report of a sanitizer; and the same
whatever the instruction set. Odd but legal: it works, with the same bits for every instruction
set, chunk and number of threads. Standard library only."""

import array
import os
import re
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import tiny_model as tm  # noqa: E402
from tiny_model import ARR, BOOL, F32, I32, STR, U32, U64  # noqa: E402

NAN, INF = float("nan"), float("inf")
HUGE = 0xFFFFFFFF
TIMEOUT_S = 60
BASE = dict(
    arch="qwen3moe",
    n_expert=4,
    top_k=2,
    n_layer=2,
    n_embd=32,
    n_head=4,
    n_kv=2,
    ff_exp=32,
    vocab=260,
    n_ctx=64,
)
DENSE = dict(arch="llama", n_layer=2, n_embd=32, n_head=4, n_kv=2, n_ff=32, vocab=260, n_ctx=64)
DELTA = dict(
    arch="qwen3next",
    n_expert=2,
    top_k=1,
    n_layer=3,
    n_embd=32,
    n_head=2,
    n_kv=1,
    ff_exp=16,
    ff_shared=16,
    shared_gate=True,
    k_heads=2,
    v_heads=4,
    interval=3,
    vocab=260,
    n_ctx=64,
)
ROUNDS = {**DELTA, "arch": "qwen35moe"}
GRANITE = dict(arch="granitemoe", n_expert=2, top_k=1, n_embd=32, ff_exp=32, vocab=260)


# ---- damage: each takes a model and changes it --------------------------------------------------


def key(name, kind, value):
    """Sets "<architecture>.<name>", or name itself where it has a dot in front."""

    def change(m):
        m.keys[
            name[1:] if name.startswith(".") else m.keys["general.architecture"][1] + "." + name
        ] = (kind, value)

    return change


def no_key(name):
    return lambda m: m.keys.pop(name)


def no_tensor(name):
    return lambda m: m.drop(name)


def dims(name, *wanted):
    """Another shape, with as many bytes as it takes."""

    def change(m):
        t = m.tensor(name)
        n = 1
        for d in wanted:
            n *= d
        t.dims, t.data = list(wanted), bytes(4 * n)

    return change


def fill(name, value, count=None, start=0):
    """Sets floats of an F32 tensor."""

    def change(m):
        t = m.tensor(name)
        n = len(t.data) // 4 - start if count is None else count
        t.data = (
            t.data[: 4 * start] + struct.pack("<%df" % n, *[value] * n) + t.data[4 * (start + n) :]
        )

    return change


def scale_bits(name, bits, offset):
    """Sets a half-precision number of every block of a quantized tensor."""

    def change(m):
        t = m.tensor(name)
        size, data = tm.TYPES[t.type][2], bytearray(t.data)
        for at in range(offset, len(data), size):
            data[at : at + 2] = struct.pack("<H", bits)
        t.data = bytes(data)

    return change


def rename(old, new):
    def change(m):
        m.tensor(old).name = new

    return change


def extra(name, cols):
    return lambda m: m.tensors.append(tm.Tensor(name, [cols], "F32", bytes(4 * cols)))


# One bad value each: case, key, kind, value, pattern.
BAD_KEYS = [
    ("huge_expert_count", "expert_count", U32, HUGE, "expert_count|rows"),
    ("zero_expert_count", "expert_count", U32, 0, "expert_count"),
    ("none_used", "expert_used_count", U32, 0, "expert_used_count is 0"),
    ("more_used_than_there", "expert_used_count", U32, 5, "expert_used_count is 5 .*1 to 4"),
    ("zero_key_length", "attention.key_length", U32, 0, "heads of 0"),
    ("odd_n_rot", "rope.dimension_count", U32, 3, "is 3, wanted an even number"),
    ("n_rot_above_head", "rope.dimension_count", U32, 10, "is 10, wanted"),
    ("indivisible", "attention.head_count_kv", U32, 3, "4 query heads and 3 key heads"),
    ("zero_eps", "attention.layer_norm_rms_epsilon", F32, 0.0, "is missing or not above 0"),
    ("negative_factor", "rope.scaling.factor", F32, -2.0, "scaling.factor is -2"),
    ("tiny_factor", "rope.scaling.factor", F32, 1e-30, "RoPE pair 0 turns by"),
    ("unknown_scaling", "rope.scaling.type", STR, "spiral", "'spiral'.* is not supported"),
    ("groups", "expert_group_count", U32, 2, "groups is not supported"),
    ("unknown_gating", "expert_gating_func", U32, 9, "expert_gating_func is 9"),
    ("nextn_all", "nextn_predict_layers", U32, 2, "nextn_predict_layers is 2"),
    ("not_causal", "attention.causal", BOOL, 0, "causal is false"),
    ("unknown_arch", ".general.architecture", STR, "hal9000", "'hal9000' is not supported"),
    ("alignment_3", ".general.alignment", U32, 3, "alignment"),
    ("alignment_0", ".general.alignment", U32, 0, "alignment"),
]
SIZES = ["block_count", "embedding_length", "attention.head_count"]
OTHER_SIZES = ["attention.key_length", "attention.value_length", "rope.dimension_count"]
PER_LAYER = [
    "attention.head_count",
    "attention.head_count_kv",
    "expert_count",
    "expert_used_count",
]
FLOATS = ["attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor"]
FLOATS += ["expert_weights_scale", "attention.clamp_kqv", "rope.scaling.attn_factor"]
FLOATS += ["rope.scaling.yarn_log_multiplier"]


def numbers():
    """Bad values of numeric keys: (name, change, pattern)."""

    def named(name):
        return re.escape("qwen3moe." + name)

    for case, name, kind, value, pattern in BAD_KEYS:
        yield case, key(name, kind, value), pattern
    for name in SIZES + ["context_length"]:
        yield "zero_" + name, key(name, U32, 0), named(name)
        yield "string_" + name, key(name, STR, "2"), named(name)
        yield "no_" + name, no_key("qwen3moe." + name), named(name)
    for name in SIZES + OTHER_SIZES + ["attention.head_count_kv", "expert_used_count"]:
        yield "huge_" + name, key(name, U32, HUGE), "4294967295|536870912|heads"
        yield "float_" + name, key(name, F32, 2.5), named(name)
        yield "over_32_bits_" + name, key(name, U64, 1 << 40), named(name)
        yield "negative_" + name, key(name, I32, -4), named(name)
    for name in FLOATS:
        yield "nan_" + name, key(name, F32, NAN), named(name)
        yield "infinite_" + name, key(name, F32, INF), named(name)
    for value in (0.0, -1.0, 0.5, 1.0, 1e-38):
        change = key("rope.freq_base", F32, value)
        yield "freq_base_%g" % value, change, "freq_base is .*wanted a number above 1"
    for name in PER_LAYER:
        yield "short_" + name, key(name, ARR, (U32, [4])), named(name) + ".*each of 2 layers"
        yield "strings_" + name, key(name, ARR, (STR, ["4", "4"])), named(name)
    yield "no_architecture", no_key("general.architecture"), "general.architecture"


def tensors():
    """Missing, misshapen and unknown tensors."""
    for name in (
        "token_embd",
        "output_norm",
        "blk.0.attn_norm",
        "blk.1.attn_q",
        "blk.1.attn_k",
        "blk.0.attn_v",
        "blk.0.attn_output",
        "blk.1.attn_q_norm",
        "blk.1.ffn_norm",
        "blk.0.ffn_down_exps",
        "blk.1.ffn_up_exps",
    ):
        name += ".weight"
        yield "no_" + name, no_tensor(name), "is missing"
    for name in (
        "blk.0.attn_q",
        "blk.1.attn_v",
        "blk.0.attn_output",
        "output",
        "blk.0.ffn_gate_inp",
    ):
        name += ".weight"
        yield "narrow_" + name, dims(name, 16, 32), re.escape(name) + ".*(wanted|rows)"
    yield "row_blk.0.attn_norm", dims("blk.0.attn_norm.weight", 31), "31 columns.*wanted 32"
    yield "flat_experts", dims("blk.0.ffn_up_exps.weight", 32, 32), "1 experts|experts, wanted 4"
    yield "too_few_experts", dims("blk.0.ffn_up_exps.weight", 32, 32, 3), "3 experts, wanted 4"
    yield "thin_experts", dims("blk.1.ffn_down_exps.weight", 16, 32, 4), "do not fit together"
    yield "small_vocabulary", dims("token_embd.weight", 32, 100), "output.weight|260 tokens"
    yield "unknown_tensor_of_layer", extra(
        "blk.1.attn_sinks.weight", 4
    ), "attn_sinks.*wrong without it"
    yield "duplicate_name", rename(
        "blk.1.attn_k.weight", "blk.0.attn_k.weight"
    ), "blk.0.attn_k.weight"


def weights():
    """Weights that are no numbers: the sentence names the layer."""
    for name, layer in (
        ("token_embd", 0),
        ("blk.0.attn_norm", 0),
        ("blk.1.attn_q", 1),
        ("blk.1.attn_k", 1),
        ("blk.1.attn_v", 1),
        ("blk.0.attn_q_norm", 0),
        ("blk.1.attn_k_norm", 1),
        ("blk.0.attn_output", 0),
        ("blk.1.ffn_norm", 1),
        ("blk.0.ffn_gate_inp", 0),
        ("blk.1.ffn_gate_exps", 1),
        ("blk.1.ffn_up_exps", 1),
        ("blk.0.ffn_down_exps", 0),
        ("output_norm", 1),
        ("output", 1),
    ):
        for word, value in (("nan", NAN), ("infinite", INF)):
            yield "%s_%s" % (word, name), fill(name + ".weight", value), "layer %d[,:] " % layer
    yield "one_nan_of_a_query", fill("blk.1.attn_q.weight", NAN, 1, 5), "layer 1, "
    yield "one_nan_of_a_key", fill("blk.0.attn_k.weight", NAN, 1, 37), "layer 0, "
    yield "one_nan_of_the_head", fill("output.weight", NAN, 1, 259 * 32 + 31), "layer 1, "
    for name, layer in (("token_embd", 0), ("blk.1.attn_output", 1), ("blk.1.ffn_down_exps", 1)):
        yield "overflow_%s" % name, fill(
            name + ".weight", 1e25
        ), "layer %d, .*out of range" % layer
    yield "overflow_before_a_norm", fill("blk.1.attn_q.weight", 1e25), "layer 1, .*out of range"


def quantized():
    """Scales that are no numbers, in one tensor of each type."""
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"):
        for word, bits in (("nan", 0x7E00), ("infinite", 0x7C00)):
            yield (
                "%s_scale_%s" % (word, kind),
                {**DENSE, "type": kind},
                scale_bits("blk.1.ffn_up.weight", bits, 0),
                "layer 1, ",
            )
    wide = {**DENSE, "n_embd": 256, "n_ff": 256}
    for kind in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"):
        for offset in tm.TYPES[kind][3] + tm.TYPES[kind][4]:
            yield (
                "nan_at_%d_%s" % (offset, kind),
                {**wide, "type": kind},
                scale_bits("blk.1.attn_output.weight", 0x7E00, offset),
                "layer 1, ",
            )
    yield "nan_token_Q8_0", {**DENSE, "type": "Q8_0"}, scale_bits(
        "token_embd.weight", 0x7E00, 0
    ), "layer 0, "
    yield "nan_half", {**DENSE, "type": "F16"}, scale_bits(
        "blk.1.attn_v.weight", 0x7E00, 0
    ), "layer 1, "
    yield "nan_bfloat", {**DENSE, "type": "BF16"}, scale_bits(
        "blk.0.attn_v.weight", 0x7FC0, 0
    ), "layer 0, "


def features():
    """Faults of single architectures."""
    yield "unshared", dict(arch="qwen2moe", n_expert=2), lambda m: None, "ffn_up_shexp.weight"
    yield "no_shared_gate", dict(
        arch="qwen2moe", n_expert=2, ff_shared=8
    ), lambda m: None, "ffn_gate_inp_shexp.weight"
    yield "fused_too_short", {**DENSE, "fused_qkv": True}, dims(
        "blk.0.attn_qkv.weight", 32, 63
    ), "attn_qkv"
    yield "fused_4_dims", {**DENSE, "fused_qkv": True}, dims(
        "blk.0.attn_qkv.weight", 32, 64, 1, 2
    ), "attn_qkv"
    yield (
        "fused_bias_2_rows",
        {**DENSE, "fused_qkv": True, "qkv_bias": True},
        dims("blk.0.attn_qkv.bias", 64, 1, 2),
        "attn_qkv.bias",
    )
    yield "wrong_factors", {**DENSE, "rope_freqs": True}, dims(
        "rope_freqs.weight", 3
    ), "rope_freqs.weight"
    for word, value in (("nan", NAN), ("zero", 0.0), ("negative", -1.0)):
        yield word + "_factor", {**DENSE, "rope_freqs": True}, fill(
            "rope_freqs.weight", value
        ), "rope_freqs.weight"
    yield "tiny_factors", {**DENSE, "rope_freqs": True}, fill(
        "rope_freqs.weight", 1e-30
    ), "RoPE pair 0 turns"
    yield (
        "yarn_log_multiplier",
        {
            **DENSE,
            "rope_keys": {
                "type": (STR, "yarn"),
                "factor": (F32, 8.0),
                "yarn_log_multiplier": (F32, -100.0),
            },
        },
        lambda m: None,
        "multiply rotations by",
    )
    for name in ("logit_scale", "residual_scale", "embedding_scale", "attention.scale"):
        yield "nan_" + name, GRANITE, key(name, F32, NAN), re.escape(name)
    yield "tiny_logit_scale", GRANITE, key("logit_scale", F32, 1e-39), "layer 1, a logit"
    yield (
        "missing_single_expert",
        {**BASE, "single_experts": True},
        no_tensor("blk.1.ffn_up.2.weight"),
        "ffn_up.2.weight.*is missing",
    )


def recurrent():
    """Gated DeltaNet layers, gated attention."""
    for name in ("conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size"):
        named = r"qwen3next\.ssm\." + name
        yield "no_" + name, DELTA, no_key("qwen3next.ssm." + name), named + " is missing"
        for value in (0, HUGE):
            yield "%s_%u" % (name, value), DELTA, key("ssm." + name, U32, value), named
        yield "string_" + name, DELTA, key("ssm." + name, STR, "x"), named
    yield "one_tap", DELTA, key("ssm.conv_kernel", U32, 1), "conv_kernel is 1, wanted 2 to"
    yield "nine_taps", DELTA, key("ssm.conv_kernel", U32, 9), "conv_kernel is 9, wanted"
    yield "three_taps", DELTA, key("ssm.conv_kernel", U32, 3), "ssm_conv1d.*wanted 3 columns"
    yield "three_key_heads", DELTA, key("ssm.group_count", U32, 3), "4 value heads and 3 key"
    yield "wide_keys", DELTA, key("ssm.state_size", U32, 17), "attn_qkv"
    yield "odd_values", DELTA, key("ssm.inner_size", U32, 68), "of 17 elements.*multiple of 16"
    yield "indivisible_values", DELTA, key("ssm.inner_size", U32, 66), "66 elements in 4 value"
    for name in ("attn_qkv", "attn_gate", "ssm_ba", "ssm_conv1d", "ssm_norm", "ssm_out"):
        full = "blk.1.%s.weight" % name
        without = {"ssm_out": "attn_qkv.*wanted", "ssm_ba": "ssm_beta.*is missing"}
        pattern = without.get(name, re.escape(full) + ".*is missing")
        yield "no_" + full, DELTA, no_tensor(full), pattern
        yield "small_" + full, DELTA, dims(full, 8, 8), re.escape(full) + ".*wanted"
    for name in ("ssm_a", "ssm_dt.bias"):
        yield "no_" + name, DELTA, no_tensor("blk.0." + name), name + ".*is missing"
        yield "short_" + name, DELTA, dims("blk.0." + name, 3), name + ".*wanted 4 columns"
    for name in ("ssm_beta", "ssm_alpha"):
        full = "blk.0.%s.weight" % name
        yield "no_" + full, ROUNDS, no_tensor(full), name + ".*is missing"
        yield "small_" + full, ROUNDS, dims(full, 32, 8), name + ".*wanted.*4 rows"
    early = {**DELTA, "by_head": True}
    yield "short_by_head", early, dims("blk.0.ssm_in.weight", 32, 191), "ssm_in.*wanted.* 192 rows"
    yield "by_head_in_rounds", {**early, "arch": "qwen35moe"}, nothing, "attn_qkv.*is missing"
    yield "by_head_and_not", early, extra("blk.0.attn_qkv.weight", 4), "attn_qkv.*wrong without it"
    yield "both_kinds", DELTA, extra("blk.0.attn_k.weight", 4), "attn_k.*wrong without it"
    yield "no_post_norm", DELTA, no_tensor("blk.0.post_attention_norm.weight"), "is missing"
    query = "blk.2.attn_q.weight"
    yield "no_gates", DELTA, dims(query, 32, 32), "attn_q.weight.*wanted.*64 rows"
    yield "heads_apart", {**DELTA, "head_k": 16, "head_v": 8}, nothing, "16 and 8 elements"
    yield "query_norm_of_all", DELTA, dims("blk.2.attn_q_norm.weight", 32), "attn_q_norm.*wanted"
    yield "another_family", {**DELTA, "arch": "qwen3moe"}, nothing, "attn_qkv.*wanted"
    for name in ("attn_qkv.weight", "attn_gate.weight", "ssm_ba.weight", "ssm_conv1d.weight"):
        yield "nan_" + name, DELTA, fill("blk.1." + name, NAN), "layer 1, "
    for name in ("ssm_a", "ssm_dt.bias", "ssm_norm.weight", "ssm_out.weight"):
        yield "nan_" + name, DELTA, fill("blk.1." + name, NAN), "layer 1, "
    yield "growing_state", DELTA, fill("blk.0.ssm_a", 1e4), "layer 0, .*DeltaNet"
    yield "huge_values", DELTA, fill("blk.0.attn_qkv.weight", 1e25), "layer 0, "
    yield "nan_gate", DELTA, fill("blk.2.attn_q.weight", NAN, 5, 32 * 16), "layer 2, "


def damaged():
    """All cases: (name, configuration, change, pattern)."""
    for group in (numbers, tensors, weights):
        for name, change, pattern in group():
            yield name, BASE, change, pattern
    yield from quantized()
    yield from features()
    yield from recurrent()


# ---- odd, but legal -----------------------------------------------------------------------------


def nothing(_):
    pass


def reverse(m):
    m.tensors.reverse()


def align(n):
    def change(m):
        m.align = n
        m.keys["general.alignment"] = (U32, n)

    return change


ODD = [
    ("n_ctx_2_to_32", BASE, key("context_length", U32, HUGE), []),
    ("unused_tensor", BASE, extra("vision.nothing", 7), []),
    ("reversed_order", BASE, reverse, []),
    ("alignment_4096", BASE, align(4096), []),
    ("alignment_8", BASE, align(8), []),
    ("full_context", BASE, nothing, ["-c", "7"]),
    ("threads_64", BASE, nothing, ["--threads", "64"]),
    ("chunk_512", BASE, nothing, ["--chunk", "512"]),
    ("all_experts", {**BASE, "top_k": 4}, nothing, []),
    ("one_expert", {**BASE, "n_expert": 1, "top_k": 1}, nothing, []),
    ("three_experts", {**BASE, "n_expert": 3, "top_k": 3}, nothing, []),
    ("head_of_1", {**DENSE, "head_k": 1, "head_v": 1, "n_rot": 0}, nothing, []),
    ("head_of_2", {**DENSE, "head_k": 2, "head_v": 2}, nothing, []),
    ("odd_heads", {**DENSE, "head_k": 7, "head_v": 5, "n_rot": 6}, nothing, []),
    ("no_rotation", {**DENSE, "n_rot": 0}, nothing, []),
    ("partial_rotation", {**DENSE, "n_rot": 4}, nothing, []),
    ("one_key_head", {**DENSE, "n_kv": 1}, nothing, []),
    ("per_layer_heads", BASE, key("attention.head_count_kv", ARR, (I32, [2, 2])), []),
    ("long_array", BASE, key("attention.head_count", ARR, (U32, [4, 4, 4])), []),
    ("next_token_layer", {**BASE, "n_layer": 3}, key("nextn_predict_layers", U32, 1), []),
    ("deltanet", DELTA, nothing, []),
    ("deltanet_in_rounds", ROUNDS, nothing, []),
    ("deltanet_one_key_head", {**ROUNDS, "k_heads": 1, "v_heads": 3}, nothing, []),
    ("deltanet_two_taps", {**DELTA, "taps": 2}, nothing, []),
    ("deltanet_eight_taps", {**DELTA, "taps": 8}, nothing, []),
    ("deltanet_odd_keys", {**ROUNDS, "state": 48, "k_heads": 2, "v_heads": 2}, nothing, []),
    ("deltanet_only", {**DELTA, "interval": 99}, nothing, []),
    ("deltanet_fused_qkv", {**DELTA, "fused_qkv": True}, nothing, []),
    ("deltanet_by_head", {**DELTA, "by_head": True}, nothing, []),
    (
        "deltanet_18_key_heads",
        {**DELTA, "by_head": True, "k_heads": 18, "v_heads": 18},
        nothing,
        [],
    ),
    ("deltanet_dense", {**DELTA, "n_expert": 0}, nothing, []),
    ("deltanet_quantized", {**DELTA, "type": "Q8_0", "ff_exp": 32}, nothing, []),
    ("deltanet_next_token_layer", {**ROUNDS, "nextn": 1}, nothing, []),
    ("deltanet_full_context", DELTA, nothing, ["-c", "7"]),
    ("strong_decay", DELTA, fill("blk.0.ssm_a", -1e9), []),
    ("no_decay", DELTA, fill("blk.0.ssm_a", 0.0), []),
    ("factor_0_means_none", BASE, key("rope.scaling.factor", F32, 0.0), []),
    ("rows_263", {**DENSE, "vocab": 263, "type": "Q8_0"}, nothing, []),
    (
        "width_33",
        {**DENSE, "n_embd": 33, "head_k": 8, "head_v": 8, "n_ff": 31, "tied": True},
        nothing,
        [],
    ),
    (
        "mixed_gate_and_up",
        {**BASE, "types": {"gate_exps": "Q4_0", "up_exps": "F16", "down_exps": "Q5_1"}},
        nothing,
        [],
    ),
    (
        "mixed_kinds",
        {
            **BASE,
            "n_embd": 256,
            "head_k": 8,
            "head_v": 8,
            "types": {"gate_exps": "Q4_K", "up_exps": "Q8_0", "down_exps": "Q4_1"},
        },
        nothing,
        [],
    ),
    ("fused_experts_quantized", {**BASE, "fused_gate_up": True, "type": "Q8_0"}, nothing, []),
    ("single_experts", {**BASE, "single_experts": True, "type": "Q4_0"}, nothing, []),
    ("tiny_weights", {**DENSE, "type": "Q8_0"}, fill("blk.0.attn_norm.weight", 1e-42), []),
    ("zero_norm", {**DENSE, "type": "Q8_0"}, fill("blk.1.ffn_norm.weight", 0.0), []),
    (
        "short_tokenizer",
        BASE,
        lambda m: m.keys.update(
            {
                "tokenizer.ggml.tokens": (ARR, (STR, ["a", "b", "c"])),
                "tokenizer.ggml.token_type": (ARR, (I32, [1, 1, 1])),
                "tokenizer.ggml.eos_token_id": (U32, 2),
                "tokenizer.ggml.bos_token_id": (U32, 2),
            }
        ),
        [],
    ),
]


# ---- running ------------------------------------------------------------------------------------


class Runner:
    def __init__(self, program, scratch):
        self.program = program
        self.model, self.ids, self.out = (
            os.path.join(scratch, n) for n in ("model.gguf", "ids.txt", "out.f32")
        )
        with open(self.ids, "w", encoding="ascii") as f:
            f.write("1 2 250 7 7 0 99")
        self.failed = self.passed = 0

    def eval(self, options):
        args = [
            self.program,
            "eval",
            "-m",
            self.model,
            "--tokens",
            self.ids,
            "--logits",
            self.out,
        ] + options
        try:
            done = subprocess.run(
                args,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, "no end after %d s" % TIMEOUT_S
        return done.returncode, done.stderr.strip()

    def report(self, name, wrong):
        self.failed += bool(wrong)
        self.passed += not wrong
        if wrong:
            print("FAIL %s: %s" % (name, wrong))

    def refused(self, name, pattern):
        """Fails with one sentence, the same for both instruction sets."""
        code, text = self.eval([])
        last = (text.splitlines() or [""])[-1]
        wrong = ""
        if code != 1 or "Sanitizer" in text or "runtime error" in text:
            wrong = "exit code %d, wanted 1; %s" % (code, text[-300:])
        elif not re.search(pattern, last):
            wrong = "the message %r does not match %r" % (last, pattern)
        elif "model.gguf" not in last and "layer" not in last:
            wrong = "the message %r names neither file nor layer" % last
        elif self.eval(["--isa", "scalar"])[1].splitlines()[-1] != last:
            wrong = "the scalar kernels say something else than %r" % last
        self.report(name, wrong)

    def accepted(self, name, options):
        """Works, and gives the same bytes whatever the way."""
        first = None
        for more in ([], ["--isa", "scalar", "--chunk", "1"], ["--threads", "3", "--chunk", "5"]):
            code, text = self.eval(["--kv", "q8"] + more + options)
            if code != 0 or "Sanitizer" in text or "runtime error" in text:
                return self.report(name, "exit code %d with %s: %s" % (code, more, text[-300:]))
            with open(self.out, "rb") as f:
                data = f.read()
            if first is not None and data != first:
                return self.report(name, "other logits with %s" % more)
            first = data
        return self.report(name, "")

    def clamp_after_norm(self):
        """OLMoE clamps q and k after their norms, which undo any factor of the weights."""
        rows = []
        for factor in (1.0, 4096.0):
            m = tm.build(tm.Config(arch="olmoe", n_expert=2, n_kv=4, eps=1e-20))
            key("attention.clamp_kqv", F32, 0.5)(m)
            t = m.tensor("blk.0.attn_q.weight")
            w = array.array("f", t.data)
            t.data = array.array("f", [x * factor for x in w]).tobytes()
            m.write(self.model)
            code, text = self.eval(["--kv", "f32"])
            if code != 0:
                return self.report("clamp_after_norm", text)
            with open(self.out, "rb") as f:
                rows.append(array.array("f", f.read()))
        worst = max(abs(a - b) for a, b in zip(*rows))
        return self.report("clamp_after_norm", "off by %g" % worst if worst > 1e-4 else "")

    def truncations(self):
        """Every place where the file may end: header, metadata, tensor list, data."""
        m = tm.build(tm.Config(**BASE))
        whole = m.bytes()
        data_from, n = m.header_bytes, len(whole)
        cuts = set(range(0, 64)) | {data_from - 1, data_from, data_from + 1, n - 1, n // 2}
        cuts |= {data_from * i // 37 for i in range(37)}
        for cut in sorted(cuts):
            with open(self.model, "wb") as f:
                f.write(whole[:cut])
            self.refused("truncated_at_%d" % cut, "model.gguf")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        r = Runner(sys.argv[1], scratch)
        r.truncations()
        r.clamp_after_norm()
        for name, config, change, pattern in damaged():
            m = tm.build(tm.Config(**config))
            change(m)
            m.write(r.model)
            r.refused(name, pattern)
        for name, config, change, options in ODD:
            m = tm.build(tm.Config(**config))
            change(m)
            m.write(r.model)
            r.accepted(name, options)
    print("%d passed, %d failed" % (r.passed, r.failed))
    return 1 if r.failed else 0


if __name__ == "__main__":
    sys.exit(main())
