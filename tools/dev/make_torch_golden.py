#!/usr/bin/env python3
"""What PyTorch answers: the oracle for models that come from Hugging Face folders.

    make_torch_golden.py golden FOLDER...     write logits.f32 of each folder, beside the model
    make_torch_golden.py compare PROGRAM      tiny random models with all sorts of settings, made
                                              here, packed with --keep and compared

A folder's logits are those of its weights as float32, in float32, for the tokens of ids(): float32
little-endian [tokens][vocabulary], of the last 48 tokens. Models with a recurrent state read 300.
The test is tests/golden/run_torch.py.

compare prints a row a model: how far logits are from PyTorch's, or the sentence with which the
program refuses the model, which is right where something is not supported. Exits 1 where a model
was neither refused, nor warned of, nor right.

Needs: torch, transformers.
"""

import argparse
import array
import copy
import os
import subprocess
import sys
import tempfile

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "support"))
import tiny_tokenizer  # noqa: E402

TOLERANCE = 2e-3
BASE = dict(
    vocab_size=48,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
    intermediate_size=48,
)
QWEN3_MOE = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, head_dim=16)
QWEN2_MOE = dict(
    num_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=36,
)
GRANITE = dict(
    num_local_experts=5,
    num_experts_per_tok=2,
    intermediate_size=20,
    embedding_multiplier=12.0,
    attention_multiplier=0.125,
    residual_multiplier=0.22,
    logits_scaling=6.0,
)
DELTANET = dict(
    num_hidden_layers=4,
    head_dim=16,
    num_experts=6,
    num_experts_per_tok=3,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=36,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
DYNAMIC = dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0)
PLAIN = dict(rope_type="default", rope_theta=1000.0)
HALF = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.5)
SECTIONS = dict(HALF, mrope_section=[2, 1, 1], mrope_interleaved=True)
EVERY_OTHER = dict(
    layer_types=["linear_attention", "full_attention"] * 2, full_attention_interval=2
)
# class of the configuration, settings common to the family, and of each model its own
FAMILIES = {
    "qwen3_moe": (
        "Qwen3MoeConfig",
        QWEN3_MOE,
        [
            dict(norm_topk_prob=True),
            dict(norm_topk_prob=False),
            dict(norm_topk_prob=True, attention_bias=True),
            dict(norm_topk_prob=True, tie_word_embeddings=True, rope_parameters=PLAIN),
            dict(norm_topk_prob=True, mlp_only_layers=[0]),
            dict(norm_topk_prob=True, decoder_sparse_step=2),
            dict(norm_topk_prob=True, rope_parameters=YARN),
            dict(norm_topk_prob=True, rope_parameters=LINEAR),
            dict(norm_topk_prob=True, sliding_window=8, use_sliding_window=True),
            dict(norm_topk_prob=True, num_key_value_heads=4, num_experts_per_tok=6),
            dict(norm_topk_prob=True, num_key_value_heads=1, head_dim=24),
            dict(norm_topk_prob=True, hidden_act="gelu"),
        ],
    ),
    "olmoe": (
        "OlmoeConfig",
        dict(num_experts=6, num_experts_per_tok=2, intermediate_size=20),
        [
            dict(norm_topk_prob=False),
            dict(norm_topk_prob=True),
            dict(clip_qkv=0.4),
            dict(num_key_value_heads=4),
            dict(tie_word_embeddings=True, rope_parameters=PLAIN),
            dict(attention_bias=True),
            dict(rope_parameters=YARN),
        ],
    ),
    "mixtral": (
        "MixtralConfig",
        dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=20),
        [
            dict(),
            dict(num_experts_per_tok=1),
            dict(num_local_experts=3, num_experts_per_tok=3, rope_parameters=PLAIN),
            dict(tie_word_embeddings=True),
            dict(sliding_window=8),
            dict(head_dim=16),
            dict(head_dim=12, num_key_value_heads=4),
        ],
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        QWEN2_MOE,
        [
            dict(norm_topk_prob=False),
            dict(norm_topk_prob=True),
            dict(qkv_bias=False),
            dict(tie_word_embeddings=True),
            dict(decoder_sparse_step=2),
            dict(mlp_only_layers=[1]),
            dict(sliding_window=8, use_sliding_window=True, max_window_layers=0),
            dict(rope_parameters=YARN),
        ],
    ),
    "granitemoe": (
        "GraniteMoeConfig",
        GRANITE,
        [
            dict(),
            dict(tie_word_embeddings=True),
            dict(attention_multiplier=1.0, residual_multiplier=1.0),
            dict(embedding_multiplier=1.0, logits_scaling=1.0),
            dict(attention_bias=True),
            dict(num_experts_per_tok=5, rope_parameters=PLAIN),
        ],
    ),
    "granitemoeshared": (
        "GraniteMoeSharedConfig",
        dict(GRANITE, shared_intermediate_size=28),
        [dict(), dict(tie_word_embeddings=True), dict(shared_intermediate_size=0)],
    ),
    "llama": (
        "LlamaConfig",
        dict(),
        [
            dict(),
            dict(tie_word_embeddings=True),
            dict(attention_bias=True),
            dict(mlp_bias=True),
            dict(head_dim=12),
            dict(rope_parameters=LLAMA3),
            dict(rope_parameters=LINEAR),
            dict(rope_parameters=DYNAMIC),
            dict(rope_parameters=YARN),
            dict(num_key_value_heads=1),
        ],
    ),
    "qwen3": (
        "Qwen3Config",
        dict(head_dim=16),
        [
            dict(),
            dict(tie_word_embeddings=True),
            dict(attention_bias=True),
            dict(rope_parameters=YARN),
            dict(sliding_window=8, use_sliding_window=True, max_window_layers=0),
        ],
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        DELTANET,
        [
            dict(),
            dict(norm_topk_prob=False),
            dict(linear_num_value_heads=2),
            dict(linear_num_key_heads=3, linear_conv_kernel_dim=3),
            dict(tie_word_embeddings=True, rope_parameters=HALF),
            dict(EVERY_OTHER),
            dict(attention_bias=True),
            dict(mlp_only_layers=[1]),
            dict(linear_value_head_dim=32),
        ],
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeTextConfig",
        DELTANET,
        [
            dict(),
            dict(linear_num_value_heads=2),
            dict(linear_num_key_heads=3, linear_conv_kernel_dim=5),
            dict(tie_word_embeddings=True, rope_parameters=SECTIONS),
            dict(EVERY_OTHER, num_key_value_heads=1),
            dict(num_experts_per_tok=6, linear_num_key_heads=1, linear_num_value_heads=5),
        ],
    ),
}
RECURRENT = ["qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def ids(model_type, n_vocab):
    """The tokens of every case: 48, 24 of a larger vocabulary, 300 of a recurrent model."""
    n = 300 if model_type in RECURRENT else 48 if n_vocab < 100 else 24
    return [(7 * i * i + 3 * i + 1) % n_vocab for i in range(n)]


def auto_class(config):
    """The class that has all of a model's tensors; of one that also sees, pictures' too."""
    if hasattr(config, "vision_config"):
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def logits(folder):
    """float32 [tokens][vocabulary], as a flat array, and the tokens."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = auto_class(config).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    model.eval()
    tokens = ids(config.model_type, config.get_text_config().vocab_size)
    with torch.no_grad():
        out = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return array.array("f", out.float().flatten().tolist()), tokens


def make_golden(folders):
    for folder in folders:
        values, tokens = logits(folder)
        kept = values[-min(48, len(tokens)) * (len(values) // len(tokens)) :]
        with open(os.path.join(folder, "logits.f32"), "wb") as f:
            kept.tofile(f)
        print("%s: %d tokens" % (folder, len(tokens)))


# ---- models made here ----------------------------------------------------------------------------


def make_model(folder, config_class, settings, seed):
    """Weights that leave every part its say: norms near 1, biases, routers that decide."""
    torch.manual_seed(seed)
    config = getattr(transformers, config_class)(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 1.0 if "gate.weight" in name or "router" in name else 0.25
            bias = 1.0 if p.dim() == 1 and "bias" not in name else 0.0
            bias = -2.5 if name.endswith("A_log") else bias  # decay that lasts some tokens
            p.copy_(torch.randn_like(p) * scale + bias)
    dtype = DTYPES[seed % len(DTYPES)]
    shard = "20KB" if seed % 2 else "1GB"
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    tiny_tokenizer.write(folder, settings["vocab_size"])
    return str(dtype).replace("torch.", "") + (", in parts" if seed % 2 else "")


def evaluate(program, folder, scratch, ids):
    """(logits, warnings), or (None, why not)."""
    container = os.path.join(scratch, "m.sluice")
    tokens, out = os.path.join(scratch, "tokens.txt"), os.path.join(scratch, "logits.f32")
    with open(tokens, "w", encoding="ascii") as f:
        f.write(" ".join(str(i) for i in ids))
    commands = [
        [program, "pack", folder, "--keep", "-q", "-o", container],
        [program, "eval", "-m", container, "--kv", "f32", "--tokens", tokens] + ["--logits", out],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = done.stderr.strip().replace(scratch, "")
        if done.returncode != 0:
            return None, "%s, exit code %d: %s" % (command[1], done.returncode, said)
    values = array.array("f")
    with open(out, "rb") as f:
        values.frombytes(f.read())
    return values, "; ".join(x for x in said.splitlines() if "warning" in x)


def compare_one(program, family, own, seed):
    """Prints a row. False where logits differ, or where nothing says why there are none."""
    config_class, common, _ = FAMILIES[family]
    settings = copy.deepcopy({**BASE, **common, **own})
    name = "%s %s" % (family, ", ".join("%s=%s" % kv for kv in own.items()) or "plain")
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "model")
        os.mkdir(folder)
        form = make_model(folder, config_class, settings, seed)
        right, tokens = logits(folder)
        got, why = evaluate(program, folder, scratch, tokens)
    if got is None:
        print("refused  %s (%s): %s" % (name, form, why), flush=True)
        return "exit code 1" in why
    worst = max(abs(a - b) for a, b in zip(got, right)) if len(got) == len(right) else 1e9
    mean = sum(right) / len(right)
    spread = (sum((x - mean) ** 2 for x in right) / len(right)) ** 0.5
    verdict = "ok      " if worst <= TOLERANCE else "warned  " if why else "WRONG   "
    row = (verdict, worst, spread, name, form, ": " + why if worst > TOLERANCE and why else "")
    print("%s %.1e of %.2f  %s (%s)%s" % row, flush=True)
    return worst <= TOLERANCE or why


def compare(program, only):
    wrong = n = seed = 0
    for family, (_, _, models) in FAMILIES.items():
        for own in models:
            seed += 1  # the same model whatever --only says
            if only in family:
                n += 1
                wrong += not compare_one(program, family, own, seed)
    print("%d of %d are wrong" % (wrong, n))
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["golden", "compare"])
    parser.add_argument("arguments", nargs="+", metavar="FOLDER... or PROGRAM")
    parser.add_argument("--only", default="", help="compare: families whose name contains this")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if args.what == "golden":
        return make_golden(args.arguments)
    return compare(args.arguments[0], args.only)


if __name__ == "__main__":
    sys.exit(main())
