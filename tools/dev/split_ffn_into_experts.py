#!/usr/bin/env python3
"""Turn a dense llama GGUF into a Mixture of Experts that computes the same function.

    split_ffn_into_experts.py IN.gguf OUT.gguf [--experts 8] [--down keep|f32|q8_0]

A dense feed-forward layer is down(silu(gate x) * up x). Cut its hidden width into E equal parts:
the sum over the parts of down_e(silu(gate_e x) * up_e x) is the same. So each part becomes an
expert, all E experts are routed (expert_used_count = expert_count = E), and the router is a zero
matrix: its softmax gives each 1/E exactly, also after normalization. down_e is multiplied by E to
make up for it. E is a power of two, so that only exponents change: in block formats the
half-precision scales (and minima) times E, exact unless one overflows, which is an error here.

The result is the Mixtral form of the llama architecture: a real language model that goes through
the router and the expert path, whose answers are known from the dense file. Only the order of
additions differs: hidden columns are summed within an expert first, then over experts. (A program
that quantizes activations may also round them differently: the vector that goes into down is cut.)

Columns of down that are split must end on a block border. If E parts do not (say, 1536 / 8 = 192
against the 256 of k-quants), --down says what to do: 'keep' (the default) refuses, 'f32' writes
down as float32, which is exact, 'q8_0' quantizes once more, which is not. Gate and up are split by
rows, which any format allows; quantized bytes are copied as they are.

Needs: gguf, numpy.
"""

import argparse
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

# Where the half-precision factors stand in a block, in bytes.
FACTORS = {
    Type.Q4_0: (0,), Type.Q4_1: (0, 2), Type.Q5_0: (0,), Type.Q5_1: (0, 2), Type.Q8_0: (0,),
    Type.IQ4_NL: (0,), Type.IQ4_XS: (0,), Type.Q2_K: (80, 82), Type.Q3_K: (108,),
    Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,),
}
PARTS = ("ffn_gate", "ffn_up", "ffn_down")


def as_bytes(tensor):
    """The tensor as uint8 [rows][bytes of a row]."""
    rows = int(np.prod(tensor.shape[1:]))
    return np.ascontiguousarray(tensor.data).view(np.uint8).reshape(rows, -1)


def times(data, kind, factor):
    """Multiplies packed rows by a power of two; returns the new rows. Exact, or it fails."""
    data = data.copy()
    if kind in (Type.F32, Type.F16):
        numbers = data.view(np.float32 if kind == Type.F32 else np.float16)
        with np.errstate(over="ignore"):
            numbers *= numbers.dtype.type(factor)
        if not np.isfinite(numbers).all():
            raise SystemExit("a weight overflows when it is multiplied by %d" % factor)
        return data
    if kind == Type.BF16:
        wide = data.view(np.uint16).astype(np.uint32) << 16
        wide = (wide.view(np.float32) * np.float32(factor)).view(np.uint32)
        return (wide >> 16).astype(np.uint16).view(np.uint8)
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = data.reshape(-1, size)
    if kind == Type.MXFP4:      # one byte: an exponent
        if blocks[:, 0].max() > 254 - factor.bit_length():
            raise SystemExit("an exponent overflows")
        blocks[:, 0] += factor.bit_length() - 1
        return data
    if kind not in FACTORS:
        raise SystemExit("cannot scale tensors of type %s" % kind.name)
    for at in FACTORS[kind]:
        halves = np.ascontiguousarray(blocks[:, at:at + 2]).view(np.float16)
        with np.errstate(over="ignore"):
            halves = halves * np.float16(factor)
        if not np.isfinite(halves).all():
            raise SystemExit("a block scale overflows when it is multiplied by %d" % factor)
        blocks[:, at:at + 2] = halves.view(np.uint8)
    return data


def split_rows(tensor, experts):
    """[experts][rows / experts][bytes]: gate and up."""
    data = as_bytes(tensor)
    if data.shape[0] % experts:
        raise SystemExit("%s: %d rows do not split into %d parts"
                         % (tensor.name, data.shape[0], experts))
    return data.reshape(experts, -1, data.shape[1]), tensor.tensor_type


def split_columns(tensor, experts, fallback):
    """[experts][rows][bytes of a part], times experts: down. Also returns the type."""
    kind, data, width = tensor.tensor_type, as_bytes(tensor), int(tensor.shape[0])
    block = gguf.GGML_QUANT_SIZES[kind][0]
    if width % experts:
        raise SystemExit("%s: width %d does not split into %d parts"
                         % (tensor.name, width, experts))
    if width // experts % block:
        if fallback == "keep":
            raise SystemExit("%s: parts of %d columns do not end on the %d-blocks of %s; see "
                             "--down" % (tensor.name, width // experts, block, kind.name))
        numbers = gguf.quants.dequantize(tensor.data, kind).astype(np.float32)
        kind = Type.F32 if fallback == "f32" else Type.Q8_0
        if width // experts % gguf.GGML_QUANT_SIZES[kind][0]:
            raise SystemExit("%s: parts of %d columns do not fit Q8_0 either; use --down f32"
                             % (tensor.name, width // experts))
        data = gguf.quants.quantize(numbers, kind).view(np.uint8).reshape(data.shape[0], -1)
    data = times(data, kind, experts)
    parts = data.reshape(data.shape[0], experts, -1).transpose(1, 0, 2)
    return np.ascontiguousarray(parts), kind


def copy_metadata(reader, out, changed):
    """Copies every key but the changed ones, which are written instead."""
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == gguf.Keys.General.ARCHITECTURE \
                or field.name in changed:
            continue
        value, kind = field.contents(), field.types[0]
        if isinstance(value, str):
            value = bytes(field.parts[-1])      # as it stands: a chat template may hold any bytes
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        out.add_key_value(field.name, value, kind, sub_type=sub)
    for name, value in changed.items():
        out.add_uint32(name, value)


def convert(path_in, path_out, experts, fallback):
    reader = gguf.GGUFReader(path_in)
    arch = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    if arch != "llama" or "llama.expert_count" in reader.fields:
        raise SystemExit("%s is not a dense llama model" % path_in)
    width = int(reader.fields["llama.feed_forward_length"].contents())
    embedding = int(reader.fields["llama.embedding_length"].contents())
    out = gguf.GGUFWriter(path_out, arch)
    copy_metadata(reader, out, {"llama.feed_forward_length": width // experts,
                                "llama.expert_count": experts,
                                "llama.expert_used_count": experts})
    for tensor in reader.tensors:
        layer, part = tensor.name.rsplit(".", 2)[0:2] if "." in tensor.name else ("", "")
        if part not in PARTS:
            out.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        if not tensor.name.endswith(".weight"):
            raise SystemExit("%s: a bias in the feed-forward layer is not supported" % tensor.name)
        if part == "ffn_down":
            data, kind = split_columns(tensor, experts, fallback)
        else:
            data, kind = split_rows(tensor, experts)
        if part == "ffn_gate":
            out.add_tensor(layer + ".ffn_gate_inp.weight",
                           np.zeros((experts, embedding), dtype=np.float32))
        plain = {Type.F32: np.float32, Type.F16: np.float16}.get(kind)
        data = data.view(plain) if plain else data
        out.add_tensor(layer + "." + part + "_exps.weight", data, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    print("%s: %d experts of width %d" % (path_out, experts, width // experts))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", metavar="IN.gguf")
    parser.add_argument("output", metavar="OUT.gguf")
    parser.add_argument("--experts", type=int, default=8, help="a power of two (default: 8)")
    parser.add_argument("--down", choices=("keep", "f32", "q8_0"), default="keep",
                        help="what to do if the parts of ffn_down do not end on block borders")
    args = parser.parse_args()
    if args.experts < 2 or args.experts & (args.experts - 1):
        sys.exit("--experts must be a power of two, from 2")
    convert(args.input, args.output, args.experts, args.down)


if __name__ == "__main__":
    main()
