#!/usr/bin/env python3
"""Compares the block decoders of formats/ with the Python package gguf, bit for bit, on random
bytes, and the Q8_0 encoder on random numbers.

    check_decode.py                 compare (needs a C compiler, numpy, gguf)
    check_decode.py --write-golden  also rewrite tests/golden/decode/*.bin, which test_tensor_type
                                    and test_encode_q8_0 replay

A vector file is: number of blocks (u32), the blocks, the expected floats; little-endian. NaNs
compare equal whatever their bits (the payload is nobody's contract). The random generator is
seeded, so a rerun writes the same files. encode_Q8_0.bin: number of blocks, floats, blocks.
"""

import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = [
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
]
SEED = 20240607


def build_library(folder):
    names = ["half.c", "tensor_type.c", "decode_legacy.c", "decode_iq4.c", "decode_kquant.c"]
    names += ["sq.c", "encode_q8_0.c", "../base/assert.c"]
    path = pathlib.Path(folder) / "libdecode.so"
    command = ["cc", "-std=c11", "-O2", "-ffp-contract=off", "-shared", "-fPIC", f"-I{ROOT}"]
    subprocess.run(command + ["-o", path] + [ROOT / "formats" / n for n in names], check=True)
    return ctypes.CDLL(str(path))


class TypeInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block_cols", ctypes.c_uint32),
        ("block_bytes", ctypes.c_uint32),
        ("row_group", ctypes.c_uint32),
        ("decode", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)),
    ]


def random_blocks(rng, qtype, count):
    _, size = gguf.GGML_QUANT_SIZES[qtype]
    return rng.integers(0, 256, (count, size), dtype=np.uint8)


def expected(qtype, blocks):
    with np.errstate(all="ignore"):
        if qtype == gguf.GGMLQuantizationType.F32:
            return blocks.view(np.float32).reshape(-1)
        if qtype == gguf.GGMLQuantizationType.F16:
            return blocks.view(np.float16).astype(np.float32).reshape(-1)
        return gguf.quants.dequantize(blocks, qtype).reshape(-1).astype(np.float32)


def decode(info, blocks):
    n = blocks.shape[0] * info.block_cols
    # One byte in front: any alignment must do.
    padded = np.concatenate([np.zeros(1, np.uint8), blocks.reshape(-1)])
    out = np.empty(n, np.float32)
    info.decode(padded.ctypes.data + 1, out.ctypes.data, n)
    return out


def same(a, b):
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))


def check_encoder(lib, count, write_golden):
    """Q8_0 blocks of numbers of all sizes, rounding ties among them; how many bytes differ."""
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((count, 32)) * 2.0 ** rng.integers(-140, 20, (count, 1))
    ties = rng.integers(-254, 255, (count, 32)) / 2.0
    ties[:, 0] = 127.0
    x[::4] = ties[::4] * 2.0 ** rng.integers(-15, 10, (count, 1))[::4]
    x[::9] = 0.0
    # Numbers too small for the reciprocal of their scale: zero for us, undefined in numpy.
    x[np.abs(x).max(axis=1) < 2.0**-120] = 0.0
    x = x.astype(np.float32)
    want = gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0)
    got = np.zeros(want.size + 1, np.uint8)
    lib.sl_encode_q8_0.restype = ctypes.c_bool
    ok = lib.sl_encode_q8_0(
        ctypes.c_void_p(x.ctypes.data),
        ctypes.c_uint64(x.size),
        ctypes.c_void_p(got.ctypes.data + 1),
    )
    assert ok
    if write_golden:
        path = ROOT / "tests/golden/decode/encode_Q8_0.bin"
        path.write_bytes(np.uint32(64).tobytes() + x[:64].tobytes() + want[:64].tobytes())
    return int(np.count_nonzero(got[1:] != want.reshape(-1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write-golden", action="store_true")
    parser.add_argument("--blocks", type=int, default=20000, help="random blocks per type")
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        lib = build_library(folder)
        lib.sl_type_info.restype = ctypes.POINTER(TypeInfo)
        for name in TYPES:
            rng = np.random.default_rng([SEED] + list(name.encode()))
            qtype = gguf.GGMLQuantizationType[name]
            info = lib.sl_type_info(int(qtype)).contents
            assert (info.block_cols, info.block_bytes) == tuple(gguf.GGML_QUANT_SIZES[qtype]), name
            blocks = random_blocks(rng, qtype, args.blocks)
            wrong = int(np.count_nonzero(~same(decode(info, blocks), expected(qtype, blocks))))
            print(f"{name:7s} {blocks.shape[0] * info.block_cols:9d} values, {wrong} differ")
            failed |= wrong != 0
            if args.write_golden:
                few = blocks[: max(1, 768 // info.block_cols)]
                path = ROOT / "tests/golden/decode" / f"{name}.bin"
                path.write_bytes(
                    np.uint32(few.shape[0]).tobytes()
                    + few.tobytes()
                    + expected(qtype, few).tobytes()
                )
        wrong = check_encoder(lib, args.blocks, args.write_golden)
        print(f"Q8_0 encoder {args.blocks} blocks, {wrong} bytes differ")
        failed |= wrong != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
