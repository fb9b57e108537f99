#!/usr/bin/env python3
"""Measures the container's weight types against the reference quantizer's (docs/BENCHMARKS.md,
"3-bit quality"): both quantize the same matrices of a model, and nothing else changes.

    quality_table.py MODEL.gguf TEXT [--imatrix STATS.gguf] [--types sq3_32,sq3_16]
                     [--reference q3_k] [--sluice build/release/sluice] [--dir DIR] [--stride N]

The matrices are those of feed-forward layers, dense or experts; every row of them. The model with
these as float32 is the exact one: TEXT is evaluated with it, and all others are compared with that
run (`sluice ppl --kl`). Ours go through the whole path: `sluice pack --keep` with a recipe that
names these matrices, `sluice ppl` of the container. The reference is ggml's own quantizer, from
llama-cpp-python's library; its rows have to be multiples of 256, so shorter ones are joined up to
the least common multiple (and the statistics repeated with them). It is evaluated as float32 of
what it decodes to, since no engine takes such rows: so it is spared the rounding of activations
that ours have to bear.

Errors are relative: the root of sum w (y - x)^2 / sum w x^2 over all matrices, w = 1 or the mean
squares of STATS (with a thousandth of their mean added, as the encoder does). Ours are computed
from the container by a decoder that is written down here a second time, from docs/FORMAT.md.

Prints a table in Markdown. Needs gguf, numpy, llama-cpp-python; the packages of read_container.py.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys

import gguf
import numpy as np

import read_container

MATRIX = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)(_exps)?\.weight$")
FIGURES = ("mean_kl", "kl_99", "kl_99_9", "same_top", "perplexity_ratio")

# ---- the container's types, from docs/FORMAT.md --------------------------------------------------

# number: bits, columns of a group, bytes of a unit, B, S, levels
TYPES = {
    256: (2, 32, 72, 26, 3, [0, 26, 43, 63]),
    257: (2, 16, 80, 26, 3, [0, 26, 43, 63]),
    258: (3, 32, 104, 32, 2, [0, 14, 24, 32, 38, 45, 52, 63]),
    259: (3, 16, 112, 32, 2, [0, 14, 24, 32, 38, 45, 52, 63]),
    260: (4, 32, 136, 31, 2, [0, 8, 13, 17, 21, 25, 28, 31, 34, 37, 40, 43, 47, 51, 56, 63]),
    261: (4, 16, 144, 31, 2, [0, 8, 13, 17, 21, 25, 28, 31, 34, 37, 40, 43, 47, 51, 56, 63]),
}


def codes_of(bits, planes, quad):
    """Codes of four columns of eight rows: [...][32] from planes [...][bits][32]."""
    if bits == 2:
        return planes[..., quad // 4, :] >> 2 * (quad % 4) & 3
    if bits == 4:
        return planes[..., quad // 2, :] >> 4 * (quad % 2) & 15
    if quad < 6:
        return planes[..., quad // 2, :] >> 3 * (quad % 2) & 7
    return planes[..., quad - 6, :] >> 6 | (planes[..., 2, :] >> quad & 1) << 2


def decode(kind, data, rows, cols):
    bits, group, unit_bytes, base, step, levels = TYPES[kind]
    units, bands = cols // 32, -(-rows // 8)
    data = data.reshape(bands, 16 + units * unit_bytes)
    scale = (data[:, :16].copy().view("<u2").astype(np.uint32) << 16).view(np.float32)
    unit = data[:, 16:].reshape(bands, units, unit_bytes)
    planes = unit[..., : 32 * bits].reshape(bands, units, bits, 32)
    byte = unit[..., 32 * bits :].reshape(bands, units, 32 // group, 8).astype(np.int32)
    m = ((byte & 15) + 1) * np.where(byte & 128, -1, 1)
    offset = base + step * (byte >> 4 & 7)
    quads = [codes_of(bits, planes, q).reshape(bands, units, 8, 4) for q in range(8)]
    level = np.array(levels, np.int32)[np.concatenate(quads, axis=-1)]  # band, unit, row, column
    spread = [np.repeat(np.moveaxis(a, 2, 3), group, axis=-1) for a in (m, offset)]
    value = (spread[0] * (level - spread[1])).astype(np.float32) * scale[:, None, :, None]
    return np.moveaxis(value, 2, 1).reshape(bands * 8, cols)[:rows]


def container_matrices(path):
    """name -> (type, matrix) of every matrix of one of the types above."""
    headers, index, _ = read_container.read(path)
    found = {}
    for name, kind, dims, part, offset, size in index[b"tensors"]:
        if kind in TYPES:
            data = np.fromfile(headers[part].path, np.uint8, size, offset=offset)
            rows = int(dims[1]) if len(dims) > 1 else 1
            found[read_container.text(name)] = kind, decode(kind, data, rows, int(dims[0]))
    return found


# ---- the reference quantizer ---------------------------------------------------------------------


class Reference:
    def __init__(self, name):
        self.kind = getattr(gguf.GGMLQuantizationType, name.upper())
        where = os.path.dirname(importlib.util.find_spec("llama_cpp").origin)
        self.lib = ctypes.CDLL(os.path.join(where, "lib", "libggml-base.so"))
        self.lib.ggml_quantize_init.argtypes = [ctypes.c_int]
        self.lib.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.lib.ggml_quantize_chunk.argtypes = (
            [ctypes.c_int] + [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
        )
        self.lib.ggml_quantize_init(self.kind)

    def round_trip(self, x, weights):
        """Quantized and back; returns also the bits of a weight."""
        block, block_bytes = gguf.GGML_QUANT_SIZES[self.kind]
        cols = int(np.lcm(x.shape[1], block))
        flat = np.zeros(-(-x.size // cols) * cols, np.float32)
        flat[: x.size] = x.reshape(-1)
        if weights is not None:
            weights = np.ascontiguousarray(np.resize(weights, cols), np.float32)
        out = np.zeros(flat.size // block * block_bytes, np.uint8)
        n = self.lib.ggml_quantize_chunk(
            self.kind,
            flat.ctypes.data,
            out.ctypes.data,
            0,
            flat.size // cols,
            cols,
            None if weights is None else weights.ctypes.data,
        )
        assert n == out.size
        y = gguf.quants.dequantize(out, self.kind).reshape(-1)[: x.size].reshape(x.shape)
        return y.astype(np.float32), 8.0 * block_bytes / block


# ---- the model -----------------------------------------------------------------------------------


def floats(tensor):
    shape = [int(n) for n in reversed(tensor.shape)]
    x = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return np.ascontiguousarray(x, np.float32).reshape(shape)


class Model:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.names = [t.name for t in self.reader.tensors if MATRIX.match(t.name)]
        if not self.names:
            sys.exit("no feed-forward matrices in " + path)

    def matrices(self):
        """(name of the tensor, number of the matrix in it, its container name, matrix)"""
        for t in self.reader.tensors:
            match = MATRIX.match(t.name)
            if not match:
                continue
            x = floats(t)
            for i, one in enumerate(x if x.ndim == 3 else x[None]):
                name = t.name
                if match[3]:
                    name = "blk.%s.ffn_%s.%d.weight" % (match[1], match[2], i)
                yield t.name, i, name, one

    def write(self, path, change):
        """The model with its matrices, as float32, through change(tensor, number, name, matrix)."""
        new = {}
        for tensor, i, name, x in self.matrices():
            new.setdefault(tensor, []).append(change(tensor, i, name, x))
        arch = self.reader.fields["general.architecture"].contents()
        out = gguf.GGUFWriter(path, arch)
        for f in self.reader.fields.values():
            if f.name.startswith("GGUF.") or f.name == "general.architecture":
                continue
            sub = f.types[-1] if f.types[0] == gguf.GGUFValueType.ARRAY else None
            out.add_key_value(f.name, f.contents(), f.types[0], sub_type=sub)
        for t in self.reader.tensors:
            if t.name in new:
                parts = new[t.name]
                out.add_tensor(t.name, np.stack(parts) if len(t.shape) == 3 else parts[0])
            else:
                out.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()


class Statistics:
    """Mean squares of inputs; None where nothing is known."""

    def __init__(self, path):
        tensors = {t.name: t for t in gguf.GGUFReader(path).tensors} if path else {}
        self.sums = {n[:-8]: floats(t) for n, t in tensors.items() if n.endswith(".in_sum2")}
        self.counts = {n[:-7]: floats(t) for n, t in tensors.items() if n.endswith(".counts")}

    def of(self, tensor, i):
        if tensor not in self.sums:
            return None
        count = self.counts[tensor].reshape(-1)[i]
        sums = self.sums[tensor]
        return sums.reshape(-1, sums.shape[-1])[i] / count if count > 0 else None


class Errors:
    def __init__(self):
        self.sums = np.zeros(4)
        self.bits = self.weights = 0.0

    def add(self, x, y, w, bits):
        w = np.ones(x.shape[1]) if w is None else w.astype(np.float64)
        w = w + w.mean() / 1000
        x = x.astype(np.float64)
        off = (x - y) ** 2
        self.sums += (off.sum(), (x * x).sum(), (off * w).sum(), (x * x * w).sum())
        self.bits += bits * x.size
        self.weights += x.size

    def row(self):
        s = self.sums
        return self.bits / self.weights, (s[0] / s[1]) ** 0.5, (s[2] / s[3]) ** 0.5


# ---- runs ----------------------------------------------------------------------------------------


def sluice(args, *command):
    done = subprocess.run([args.sluice, *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr))
    return done.stdout


def compared(args, model):
    result = json.loads(sluice(args, "ppl", "-m", model, "--kl", args.ref, "--json"))
    return [result[f] for f in FIGURES]


def ours(args, model, stats, kind, weighted):
    """Packs the exact model, and measures the container."""
    recipe, out = os.path.join(args.dir, "recipe"), os.path.join(args.dir, "ours.sluice")
    with open(recipe, "w") as f:
        f.writelines("blk.*.ffn_%s.*weight %s\n" % (part, kind) for part in ("gate", "up", "down"))
    command = ["pack", args.exact, "-o", out, "--keep", "--recipe", recipe, "-q"]
    sluice(args, *command, *(["--imatrix", args.imatrix] if weighted else []))
    packed, e = container_matrices(out), Errors()
    for tensor, i, name, x in model.matrices():
        number, y = packed[name]
        e.add(x, y, stats.of(tensor, i), 8 * (TYPES[number][2] + 512 / x.shape[1]) / 256)
    figures = compared(args, out)
    os.unlink(out)
    return e.row(), figures


def reference(args, model, stats, kind, weighted):
    quantizer, e = Reference(kind), Errors()
    out = os.path.join(args.dir, "reference.gguf")

    def change(tensor, i, name, x):
        w = stats.of(tensor, i)
        y, bits = quantizer.round_trip(x, w if weighted else None)
        e.add(x, y, w, bits)
        return y

    model.write(out, change)
    figures = compared(args, out)
    os.unlink(out)
    return e.row(), figures


def main():
    p = argparse.ArgumentParser(description="see the head of this file")
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--imatrix", help="statistics of `sluice calib`, or llama.cpp's as a GGUF")
    p.add_argument("--types", default="sq3_32,sq3_16")
    p.add_argument("--reference", default="q3_k")
    p.add_argument("--sluice", default="build/release/sluice")
    p.add_argument("--dir", default=".", help="for files between; removed at the end")
    p.add_argument("--stride", default="256")
    args = p.parse_args()
    args.exact = os.path.join(args.dir, "exact.gguf")
    args.ref = os.path.join(args.dir, "exact.ref")
    model, stats = Model(args.model), Statistics(args.imatrix)
    model.write(args.exact, lambda tensor, i, name, x: x)
    run = sluice(args, "ppl", "-m", args.exact, "-f", args.text, "--stride", args.stride, "--json",
                 "--save-logits", args.ref)  # fmt: skip
    run = json.loads(run)
    print("%d scored tokens, perplexity %.3f\n" % (run["scored_tokens"], run["perplexity"]))
    print("| type | statistics | bpw | error | weighted | " + " | ".join(FIGURES) + " |")
    print("|---|---|" + "---:|" * (3 + len(FIGURES)), flush=True)
    for kind in [args.reference] + args.types.split(","):
        for weighted in (False, True) if args.imatrix else (False,):
            f = reference if kind == args.reference else ours
            row, figures = f(args, model, stats, kind, weighted)
            print(
                "| %s | %s | %.3f | %.4f | %.4f |" % (kind, "yes" if weighted else "no", *row),
                " | ".join("%.5f" % v for v in figures) + " |",
                flush=True,
            )
    os.unlink(args.exact)
    os.unlink(args.ref)


if __name__ == "__main__":
    main()
