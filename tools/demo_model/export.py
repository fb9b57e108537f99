#!/usr/bin/env python3
"""Writes a trained demo model as GGUF files that llama.cpp and Sluice load.

    python3 export.py --work WORK --q8 OUT.gguf [--f32 OUT.gguf] [--reference FOLDER]

The F32 file is for comparing an engine with PyTorch; --reference writes the other half of that
comparison: heldout_tokens.txt (ids of held-out prose) and heldout_logits.f32 (float32, one row of
vocabulary size for each token).
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch

import vocabulary
from model import Config, Model

ARCHITECTURE = "qwen3moe"
REFERENCE_TOKENS = 256


def load_model(checkpoint):
    state = torch.load(checkpoint, weights_only=True)
    model = Model(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model.eval()


def add_hyperparameters(writer, c):
    writer.add_name("Sluice demo")
    writer.add_description("Small mixture-of-experts model for demonstrations and tests")
    writer.add_license("mit")
    writer.add_block_count(c.layers)
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.width)
    writer.add_feed_forward_length(c.active * c.expert_ff)
    writer.add_expert_feed_forward_length(c.expert_ff)
    writer.add_expert_count(c.experts)
    writer.add_expert_used_count(c.active)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_rope_freq_base(c.rope_base)
    writer.add_layer_norm_rms_eps(c.eps)
    writer.add_vocab_size(c.vocab)


def add_tokenizer(writer, path):
    description = json.loads(path.read_text())["model"]
    ids = dict(description["vocab"])
    for added in json.loads(path.read_text())["added_tokens"]:
        ids[added["content"]] = added["id"]
    tokens = sorted(ids, key=ids.get)
    if [ids[t] for t in tokens] != list(range(vocabulary.SIZE)):
        raise RuntimeError("token ids are not 0, 1, 2, ...")
    merges = [m if isinstance(m, str) else " ".join(m) for m in description["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([token_type(t) for t in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(vocabulary.END_OF_TEXT)
    writer.add_eos_token_id(vocabulary.IM_END)
    writer.add_eot_token_id(vocabulary.IM_END)
    writer.add_pad_token_id(vocabulary.END_OF_TEXT)
    writer.add_add_bos_token(False)
    writer.add_chat_template(vocabulary.CHAT_TEMPLATE)


def token_type(token):
    if token in vocabulary.SPECIALS:
        return gguf.TokenType.CONTROL
    return gguf.TokenType.UNUSED if token.startswith("<|unused") else gguf.TokenType.NORMAL


def gguf_tensors(model):
    """(GGUF name, float32 array) pairs; the tied output matrix is not repeated."""
    for name, value in model.state_dict().items():
        name = name.replace(".attn.", ".").replace(".ffn.", ".")
        name = name if name.endswith(".weight") else name + ".weight"
        yield name, value.float().contiguous().numpy()


def is_quantised(name, value):
    """Norms and the router stay float32, as llama.cpp keeps them."""
    return value.ndim >= 2 and "ffn_gate_inp" not in name


def write_gguf(path, model, tokenizer_path, quantise):
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    add_hyperparameters(writer, model.c)
    file_type = gguf.LlamaFileType.MOSTLY_Q8_0 if quantise else gguf.LlamaFileType.ALL_F32
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, tokenizer_path)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, value in gguf_tensors(model):
        if quantise and is_quantised(name, value):
            writer.add_tensor(name, gguf.quants.quantize(value, q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_reference(folder, model, heldout):
    """Token ids and logits of the start of a held-out stream, in plain float32."""
    ids = np.load(heldout)[:REFERENCE_TOKENS].astype(np.int64)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None])[0].float().numpy()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "heldout_tokens.txt").write_text(" ".join(map(str, ids)) + "\n")
    logits.astype("<f4").tofile(folder / "heldout_logits.f32")


def export(checkpoint, tokenizer_path, f32_path, q8_path):
    model = load_model(checkpoint)
    for path, quantise in ((f32_path, False), (q8_path, True)):
        if path:
            write_gguf(path, model, tokenizer_path, quantise)
            print(f"{path.name}: {path.stat().st_size} bytes")
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--checkpoint", type=pathlib.Path, help="default: WORK/final.pt")
    parser.add_argument("--f32", type=pathlib.Path)
    parser.add_argument("--q8", type=pathlib.Path)
    parser.add_argument("--reference", type=pathlib.Path)
    args = parser.parse_args()
    model = export(args.checkpoint or args.work / "final.pt", args.work / "tokenizer.json",
                   args.f32, args.q8)
    if args.reference:
        write_reference(args.reference, model, args.work / "tokens/heldout/prose.npy")


if __name__ == "__main__":
    main()
