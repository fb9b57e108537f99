#!/usr/bin/env python3
"""Make the tiny Hugging Face folders of tests/golden/safetensors and what a GGUF says of them.

    make_safetensors_golden.py LLAMA_CPP_SOURCE OUT_FOLDER

Each folder is a model of random weights, written by transformers itself: one for each family that
is read, between them BF16, F16 and F32, one file and several. expected.txt beside it lists what
llama.cpp's converter (convert_hf_to_gguf.py of the given source tree) makes of the folder in F32:

    key NAME KIND VALUE             metadata
    tensor NAME DIMS HASH           dimensions as GGUF has them, FNV-1a 64 of the float bytes
    values NAME DIMS BITS...        the same for what the converter computes: floats in hexadecimal

The vocabulary is tiny, and none that the converter knows by fingerprint, so it is told the
pre-tokenizer's name; folders without a tokenizer are converted without vocabulary.

Needs: torch, transformers, tokenizers, gguf.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers

COMMON = dict(
    vocab_size=32,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
)
MOE = dict(intermediate_size=24, num_experts_per_tok=2)
DELTANET = dict(
    layer_types=["linear_attention", "full_attention"],
    full_attention_interval=2,
    head_dim=8,
    num_experts=3,
    num_experts_per_tok=2,
    moe_intermediate_size=8,
    shared_expert_intermediate_size=12,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
)
VISION = dict(
    depth=1,
    hidden_size=8,
    intermediate_size=8,
    num_heads=2,
    out_hidden_size=16,
    num_position_embeddings=4,
    patch_size=2,
)
# folder: (config class, settings, dtype, bytes of a shard, with a tokenizer)
CASES = {
    "qwen3_moe": (
        "Qwen3MoeConfig",
        dict(
            MOE,
            vocab_size=320,
            num_experts=4,
            moe_intermediate_size=12,
            head_dim=8,
            norm_topk_prob=True,
            rope_theta=1000000.0,
            eos_token_id=[258, 256],
            bos_token_id=256,
        ),
        torch.bfloat16,
        16000,
        True,
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        dict(MOE, num_experts=4, moe_intermediate_size=8, shared_expert_intermediate_size=20),
        torch.float32,
        0,
        False,
    ),
    "olmoe": (
        "OlmoeConfig",
        dict(num_experts=4, num_experts_per_tok=2, intermediate_size=12, clip_qkv=None),
        torch.bfloat16,
        0,
        False,
    ),
    "mixtral": (
        "MixtralConfig",
        dict(num_local_experts=3, num_experts_per_tok=2, intermediate_size=20),
        torch.float16,
        0,
        False,
    ),
    "granitemoe": (
        "GraniteMoeConfig",
        dict(
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=12,
            embedding_multiplier=12.0,
            attention_multiplier=0.0078125,
            residual_multiplier=0.22,
            logits_scaling=6.0,
            tie_word_embeddings=True,
        ),
        torch.float32,
        0,
        False,
    ),
    "granitemoeshared": (
        "GraniteMoeSharedConfig",
        dict(
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=12,
            shared_intermediate_size=20,
            embedding_multiplier=12.0,
            attention_multiplier=0.0078125,
            residual_multiplier=0.22,
            logits_scaling=6.0,
        ),
        torch.bfloat16,
        0,
        False,
    ),
    "llama": (
        "LlamaConfig",
        dict(
            intermediate_size=24,
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=500000.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=8192,
            ),
        ),
        torch.float16,
        0,
        False,
    ),
    "qwen3": (
        "Qwen3Config",
        dict(intermediate_size=24, head_dim=8, tie_word_embeddings=True),
        torch.bfloat16,
        0,
        False,
    ),
    "qwen3_next": ("Qwen3NextConfig", DELTANET, torch.bfloat16, 0, False),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeTextConfig",
        dict(
            DELTANET,
            num_hidden_layers=3,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            rope_parameters=dict(
                rope_type="default",
                rope_theta=1e7,
                partial_rotary_factor=0.5,
                mrope_section=[1, 1, 0],
                mrope_interleaved=True,
            ),
        ),
        torch.bfloat16,
        0,
        False,
    ),
    "qwen3_5_moe": ("Qwen3_5MoeConfig", DELTANET, torch.bfloat16, 0, False),
}
PRE = "qwen2"
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def make_tokenizer(folder):
    """A byte-level BPE of a few merges, Qwen's pre-tokenizer, added tokens of both kinds."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    t = tokenizers.Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    text = ["the cat and the other cat sat then and there", "\u4e2d\u6587 caf\u00e9 caf\u00e9"]
    t.train_from_iterator(
        text * 4, trainers.BpeTrainer(vocab_size=256 + 20, initial_alphabet=alphabet)
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=t,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.add_tokens(["<think>", "</think>"])
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    return fast


def make_folder(folder, case, seed):
    """Saves one model as transformers does."""
    config_class, settings, dtype, shard, with_tokenizer = case
    torch.manual_seed(seed)
    settings = dict(COMMON, **settings)
    if with_tokenizer:
        fast = make_tokenizer(folder)
        settings["eos_token_id"] = [
            fast.convert_tokens_to_ids(x) for x in ("<|im_end|>", "<|endoftext|>")
        ]
        settings["bos_token_id"] = settings["eos_token_id"][1]
    nested = config_class == "Qwen3_5MoeConfig"
    if nested:
        settings = dict(text_config=settings, vision_config=VISION)
    config = getattr(transformers, config_class)(**settings)
    auto = (
        transformers.AutoModelForImageTextToText if nested else transformers.AutoModelForCausalLM
    )
    model = auto.from_config(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            bias = -2.5 if name.endswith("A_log") else 1.0 if p.dim() == 1 else 0.0
            p.copy_(torch.randn_like(p) * 0.3 + bias)
    model = model.to(dtype)
    model.generation_config.temperature = 0.6
    model.generation_config.top_k = 20
    model.generation_config.do_sample = True
    # Experts one by one, as most checkpoints have them, or stacked, as transformers computes.
    form = dict(save_original_format=not nested)
    model.save_pretrained(folder, max_shard_size=shard or "1GB", **form)
    if nested:
        add_prediction(folder)


def add_prediction(folder):
    """Some tensors of a layer that predicts one token more, which transformers does not have."""
    from safetensors import torch as files

    path = os.path.join(folder, "model.safetensors")
    tensors = files.load_file(path)
    tensors["mtp.fc.weight"] = torch.ones(16, 32, dtype=torch.bfloat16)
    tensors["mtp.layers.0.input_layernorm.weight"] = torch.ones(16, dtype=torch.bfloat16)
    files.save_file(tensors, path, metadata={"format": "pt"})


def convert(source, folder, out, with_tokenizer):
    """Runs the converter in this process, with the gguf package that came with it."""
    sys.path[:0] = [source, os.path.join(source, "gguf-py")]
    import conversion
    import gguf

    hparams = conversion.ModelBase.load_hparams(pathlib.Path(folder), False)
    arch = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
    cls = conversion.get_model_class(arch, mmproj=False)
    cls.get_vocab_base_pre = lambda self, tokenizer: PRE
    cls.no_mtp = True
    if not with_tokenizer:
        cls.set_vocab = lambda self: None
    model = cls(
        pathlib.Path(folder), gguf.LlamaFileType.ALL_F32, pathlib.Path(out), model_name="tiny"
    )
    model.write()


def fnv(data):
    """FNV-1a of 64 bits."""
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def value_text(field):
    """A value on one line: JSON, floats as the bits of float32."""

    def show(v):
        if isinstance(v, (float, np.floating)):
            return "%08x" % int(np.float32(v).view(np.uint32))
        return v

    v = field.contents()
    return json.dumps([show(x) for x in v] if isinstance(v, list) else show(v), ensure_ascii=True)


def write_expected(path, gguf_path):
    """Lists keys and tensors of a GGUF."""
    import gguf

    reader = gguf.GGUFReader(gguf_path)
    with open(path, "w", encoding="ascii") as f:
        for name, field in reader.fields.items():
            if name.startswith("GGUF."):
                continue
            kinds = ":".join(t.name for t in field.types)
            f.write("key %s %s %s\n" % (name, kinds, value_text(field)))
        for t in sorted(reader.tensors, key=lambda t: t.name):
            data = np.asarray(t.data)
            dims = "x".join(str(int(d)) for d in t.shape)
            if t.name == "rope_freqs.weight" or t.name.endswith(".ssm_a"):
                bits = " ".join("%08x" % b for b in data.view(np.uint32))
                f.write("values %s %s %s\n" % (t.name, dims, bits))
                continue
            f.write("tensor %s %s %016x\n" % (t.name, dims, fnv(data.astype("<f4").tobytes())))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", metavar="LLAMA_CPP_SOURCE")
    parser.add_argument("out", metavar="OUT_FOLDER")
    args = parser.parse_args()
    for seed, (name, case) in enumerate(CASES.items()):
        folder = os.path.join(args.out, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        make_folder(folder, case, seed)
        with tempfile.TemporaryDirectory() as scratch:
            out = os.path.join(scratch, "model.gguf")
            convert(args.source, folder, out, case[4])
            write_expected(os.path.join(folder, "expected.txt"), out)
        print("%s: %s" % (name, " ".join(sorted(os.listdir(folder)))))


if __name__ == "__main__":
    main()
