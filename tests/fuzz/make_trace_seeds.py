#!/usr/bin/env python3
"""make_trace_seeds.py [FOLDER]: writes the seeds of fuzz_trace: small traces with every kind of
record, most of them as payloads, each after its length; some as files."""

import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "dev"))
from read_trace import MAGIC, xxh3  # noqa: E402


def pack(v):
    """MessagePack, in the shortest forms."""
    if isinstance(v, dict):
        head = bytes([0x80 + len(v)]) if len(v) < 16 else b"\xde" + struct.pack(">H", len(v))
        return head + b"".join(pack(k) + pack(x) for k, x in v.items())
    if isinstance(v, list):
        head = bytes([0x90 + len(v)]) if len(v) < 16 else b"\xdc" + struct.pack(">H", len(v))
        return head + b"".join(pack(x) for x in v)
    if isinstance(v, bytes):
        return b"\xc4" + bytes([len(v)]) + v
    if isinstance(v, str):
        return bytes([0xA0 + len(v)]) + v.encode("ascii")
    if v < 0:
        return b"\xd3" + struct.pack(">q", v)
    for limit, head, form in (128, b"", "B"), (256, b"\xcc", "B"), (1 << 16, b"\xcd", "H"):
        if v < limit:
            return head + struct.pack(">" + form, v)
    return b"\xce" + struct.pack(">I", v) if v < 1 << 32 else b"\xcf" + struct.pack(">Q", v)


def u16(*v):
    return struct.pack(f"<{len(v)}H", *v)


def f32(*v):
    return struct.pack(f"<{len(v)}f", *v)


def header(measured):
    small = {"version": 1, "n_classes": 2, "measured": measured, "n_slots": [6, 3]}
    layers = [[8, 2, 0, 1000, 1024, 3000], [0, 0, 0, 0, 0, 0], [300, 4, 1, 70000, 70016, 1 << 40]]
    return {**small, "layers": layers}


def full():
    h = header(63)
    for k in "program model file architecture machine policy io prefetch isa lossy".split():
        h[k] = k[:3]
    for k in "model_hash model_bytes ram_bytes unix_s n_ctx threads chunk ring_slots".split():
        h[k] = len(k) << (40 if k.endswith("bytes") else 3)
    return h


def records(weights, states):
    w, s = (lambda *v: f32(*v) if weights else b""), (lambda *v: bytes(v) if states else b"")
    first = [2, 0, 2, u16(7, 0, 3, 7), w(0.5, 1, -2, 0), s(0, 5, 2, 0), s(1), 1000, 9, 5, 300, 7]
    last = [2, 2, 4, u16(299, 1, 65535, 0), w(1, 2, 3, 4), s(0, 1, 2, 3), b"", 70000, 1, 2, 3, 4]
    return [
        [4, 2, 2, 299, 0],
        [1, 0, 0, 2, 1, 1000],
        first,
        [3, 2, 2, 1, u16(1, 299), f32(0.75, 0.25)],
        [5, 2, 299, 3, 70000, 1999, 1 << 20],
        *([4, k, 0, 3, 2 if k in (1, 8) else 0] for k in (0, 1, 2, 3, 4, 5, 8, 9)),
        [4, 6, 0, 1, 0],
        [4, 7, 0, 1000000, 0],
        [6, 400, [1, 2, 3, 400, 5, 60000, 7 << 32]],
        [1, 1, 2, 1, 0, 7],
        last,
        [3, 0, 1, 0, b"", b""],
        [5, 0, 7, 1, 1000, -1999, 300],
        [6, 1, [0] * 7],
        [0],
    ]


def framed(*payloads):
    return b"".join(struct.pack("<H", len(p)) + p for p in payloads)


def block(payload):
    size = struct.pack(">I", len(payload))
    head = b"\x93\xce" + size + b"\xc6" + size
    return head + payload + b"\xcf" + struct.pack(">Q", xxh3(payload))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus", "trace")
    all_records = [pack(r) for r in records(True, True)]
    plain = [pack(r) for r in records(False, False)]
    seeds = {
        "full": framed(pack(full()), b"".join(all_records)),
        "blocks": framed(pack(header(3)), *all_records),
        "plain": framed(pack(header(0)), b"".join(plain)),
        "cut": framed(pack(header(3)), b"".join(all_records[:3])),
        "header": framed(pack({**full(), "later": [{"k": b"v"}, "x"]})),
        "version": framed(pack({**header(0), "version": 2})),
        "file": MAGIC + block(pack(header(3))) + block(b"".join(all_records)),
        "file-cut": MAGIC + block(pack(header(3))) + block(b"".join(all_records))[:-1],
        "file-magic": MAGIC,
    }
    os.makedirs(folder, exist_ok=True)
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    sys.exit(main())
