#!/usr/bin/env python3
"""Reads containers (*.sluice), written from docs/FORMAT.md alone: a check of the text and of
Sluice's own reader and writer.

    read_container.py FILE [--sums]       FILE is the container, or any part of it

Prints one line for everything that the container holds, in the order of the files:

    container PARTS BYTES SOURCE RECIPE           recipe in hex, sums and sources too
    key NAME KIND VALUE                           the value's bytes as a GGUF has them, in hex
    record PART OFFSET BYTES LAYER EXPERT SUM     layer and expert -1: resident weights
    tensor NAME TYPE DIMS PART OFFSET BYTES

With --sums every byte is read and every checksum compared. Exit code 1, with one line on stderr,
where the container breaks its format. Uses the packages msgpack and xxhash where they are
installed, and its own decoders where not.
"""

import argparse
import os
import re
import struct
import sys

ALIGN = 16384
SHEET = 65536
MAGIC = b"SLUIC\r\n\x1a"
VERSION = 1
STRING, ARRAY = 8, 9
KINDS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
NESTED_MAX = 4
M64 = (1 << 64) - 1


class Broken(Exception):
    """The container breaks its format."""


def want(condition, what):
    if not condition:
        raise Broken(what)


# ---- checksums -----------------------------------------------------------------------------------

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578"
    "825ad07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea3"
    "71644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931"
    "c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def words(data, at, n=8):
    return struct.unpack_from(f"<{n}Q", data, at)


def xxh3_stripe(acc, data, at, secret_at):
    secret = words(SECRET, secret_at)
    for i, v in enumerate(words(data, at)):
        key = v ^ secret[i]
        acc[i ^ 1] = (acc[i ^ 1] + v) & M64
        acc[i] = (acc[i] + (key & 0xFFFFFFFF) * (key >> 32)) & M64


def own_xxh3(data):
    """XXH3-64 of more than 240 bytes; nothing in a container is shorter."""
    acc = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    for stripe in range((len(data) - 1) // 64):
        xxh3_stripe(acc, data, 64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15:
            for i, key in enumerate(words(SECRET, 128)):
                acc[i] = ((acc[i] ^ (acc[i] >> 47) ^ key) * P32[0]) & M64
    xxh3_stripe(acc, data, len(data) - 64, 121)
    h = len(data) * P64[0]
    for i in range(4):
        a, b = words(SECRET, 11 + 16 * i, 2)
        product = (acc[2 * i] ^ a) * (acc[2 * i + 1] ^ b)
        h += (product & M64) ^ (product >> 64)
    h &= M64
    h = ((h ^ (h >> 37)) * 0x165667919E3779F9) & M64
    return h ^ (h >> 32)


try:
    import xxhash

    def xxh3(data):
        return xxhash.xxh3_64_intdigest(data)

except ImportError:
    xxh3 = own_xxh3


# ---- MessagePack ---------------------------------------------------------------------------------


class Cursor:
    """The types of MessagePack that an index uses, as bytes, int, float, list and dict."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, n):
        want(n <= len(self.data) - self.at, "the index ends early")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def items(self, n):
        return [self.item() for _ in range(n)]

    def pairs(self, n):
        flat = self.items(2 * n)
        return dict(zip(flat[0::2], flat[1::2]))

    def item(self):
        first = self.number("B")
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 256
        if first < 0x90:
            return self.pairs(first & 15)
        if first < 0xA0:
            return self.items(first & 15)
        if first < 0xC0:
            return self.take(first & 31)
        if 0xC4 <= first <= 0xC6:
            return self.take(self.number("BHI"[first - 0xC4]))
        if 0xCA <= first <= 0xD3:
            return self.number("fdBHIQbhiq"[first - 0xCA])
        if 0xD9 <= first <= 0xDB:
            return self.take(self.number("BHI"[first - 0xD9]))
        if 0xDC <= first <= 0xDD:
            return self.items(self.number("HI"[first - 0xDC]))
        want(0xDE <= first <= 0xDF, f"the index holds a form {first:#x} that it must not")
        return self.pairs(self.number("HI"[first - 0xDE]))


def own_unpack(data):
    cursor = Cursor(data)
    value = cursor.item()
    want(cursor.at == len(data), "bytes follow the index")
    return value


try:
    import msgpack

    def unpack(data):
        try:
            return msgpack.unpackb(data, raw=True, strict_map_key=False)
        except (ValueError, msgpack.UnpackException) as e:
            raise Broken(f"the index is no MessagePack: {e}") from e

except ImportError:
    unpack = own_unpack


# ---- headers -------------------------------------------------------------------------------------


class Header:
    def __init__(self, path):
        with open(path, "rb") as f:
            block = f.read(ALIGN)
        want(len(block) == ALIGN, f"{path}: shorter than a header")
        want(block[:8] == MAGIC, f"{path}: no container")
        self.version = struct.unpack_from("<I", block, 8)[0]
        want(self.version == VERSION, f"{path}: version {self.version}, {VERSION} was wanted")
        want(words(block, ALIGN - 8, 1)[0] == xxh3(block[: ALIGN - 8]), f"{path}: header damaged")
        fields = struct.unpack_from("<IIIQQQQQ", block, 12)
        self.parts, self.part, reserved, self.bytes = fields[:4]
        self.total, self.index_at, self.index_bytes, self.index_sum = fields[4:]
        want(reserved == 0 and not any(block[64 : ALIGN - 8]), f"{path}: unused bytes are not 0")
        want(os.path.getsize(path) == self.bytes, f"{path}: size is not what the header says")
        want(self.bytes % ALIGN == 0 and self.index_at % ALIGN == 0, f"{path}: not aligned")
        self.path = path

    def common(self):
        return (self.parts, self.total, self.index_at, self.index_bytes, self.index_sum)


def part_path(path, header, part):
    if header.parts == 1:
        return path
    number = f"-{header.part + 1:05}-of-{header.parts:05}"
    match = re.fullmatch(r"(.*)" + re.escape(number) + r"(\.sluice)?", path, re.S)
    want(match, f"{path}: the name does not end in {number}.sluice")
    return f"{match[1]}-{part + 1:05}-of-{header.parts:05}{match[2] or ''}"


# ---- the index -----------------------------------------------------------------------------------


def gguf_string(s):
    return struct.pack("<Q", len(s)) + s


def gguf_array(value, depth=0):
    want(depth < NESTED_MAX, "arrays are nested too deeply")
    kind, elements = value
    if kind == ARRAY:
        body = b"".join(gguf_array(v, depth + 1) for v in elements)
        return struct.pack("<IQ", kind, len(elements)) + body
    if kind == STRING:
        body = b"".join(gguf_string(s) for s in elements)
        return struct.pack("<IQ", kind, len(elements)) + body
    want(kind in KINDS, f"unknown kind {kind}")
    size = struct.calcsize(KINDS[kind])
    want(len(elements) % size == 0, "part of an element in an array")
    return struct.pack("<IQ", kind, len(elements) // size) + elements


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    if kind == ARRAY:
        return gguf_array(value)
    want(kind in KINDS, f"unknown kind {kind}")
    return struct.pack("<" + KINDS[kind], value)


def records_of(index):
    """(part, offset, bytes, layer, expert, sum), in the order of the files."""
    for part, offset, size, sums in index[b"segments"]:
        want(len(sums) == 8 * -(-size // SHEET), "sums of a segment")
        for i, total in enumerate(words(sums, 0, len(sums) // 8)):
            at = i * SHEET
            yield part, offset + at, min(SHEET, size - at), -1, -1, total
    for layer, expert, part, offset, size, total in index[b"experts"]:
        yield part, offset, size, layer, expert, total


def check_records(records, headers):
    part, at = 0, ALIGN
    ends = [h.bytes for h in headers[:-1]] + [headers[-1].index_at]
    for r in records:
        if at == ends[part] and r[0] == part + 1:
            part, at = part + 1, ALIGN
        want(r[0] == part and r[1] == at and r[2] > 0 and r[2] % ALIGN == 0, "a record's place")
        at += r[2]
    if at == ends[part] and part + 2 == len(headers):
        part, at = part + 1, ALIGN
    want(part == len(headers) - 1 and at == ends[part], "records do not fill the files")


def check_tensors(index):
    homes = [(part, at, at + size) for part, at, size, _ in index[b"segments"]]
    homes += [(part, at, at + size) for _, _, part, at, size, _ in index[b"experts"]]
    ends = {home: home[1] for home in homes}
    i = 0
    for name, _, dims, part, offset, size in index[b"tensors"]:
        while i < len(homes) and (part, offset) >= (homes[i][0], homes[i][2]):
            i += 1
        want(i < len(homes), f"the place of tensor {name}")
        home = homes[i]
        inside = part == home[0] and ends[home] <= offset and offset + size <= home[2]
        want(inside and offset % 64 == 0 and 1 <= len(dims) <= 4, f"the place of tensor {name}")
        ends[home] = offset + size


def read(path):
    first = Header(path)
    headers = [Header(part_path(path, first, i)) for i in range(first.parts)]
    for i, h in enumerate(headers):
        want(h.part == i and h.common() == first.common(), f"{h.path}: of another container")
    want(sum(h.bytes for h in headers) == first.total, "sizes of the parts")
    padded = -(-first.index_bytes // ALIGN) * ALIGN
    want(first.index_at + padded == headers[-1].bytes, "the place of the index")
    with open(headers[-1].path, "rb") as f:
        f.seek(first.index_at)
        data = f.read(padded)
    want(xxh3(data) == first.index_sum, "the index is damaged")
    index = unpack(data[: first.index_bytes])
    names = [b"metadata", b"recipe", b"source", b"segments", b"experts", b"tensors"]
    want(isinstance(index, dict) and list(index)[:6] == names, "the keys of the index")
    records = list(records_of(index))
    check_records(records, headers)
    check_tensors(index)
    return headers, index, records


# ---- output --------------------------------------------------------------------------------------


def check_sums(headers, records):
    files = [open(h.path, "rb") for h in headers]
    for part, offset, size, layer, expert, total in records:
        files[part].seek(offset)
        data = files[part].read(size)
        place = f"record at {offset} of part {part} (layer {layer}, expert {expert})"
        want(len(data) == size and xxh3(data) == total, f"{place} is damaged")
    for f in files:
        f.close()


def text(name):
    return name.decode("utf-8", "surrogateescape")


def show(headers, index, records, out):
    recipe = index[b"recipe"].hex() or "-"
    print("container", len(headers), headers[0].total, f"{index[b'source']:016x}", recipe, file=out)
    for name, kind, value in index[b"metadata"]:
        print("key", text(name), kind, gguf_value(kind, value).hex(), file=out)
    for part, offset, size, layer, expert, total in records:
        print("record", part, offset, size, layer, expert, f"{total:016x}", file=out)
    for name, kind, dims, part, offset, size in index[b"tensors"]:
        shape = "x".join(str(d) for d in dims)
        print("tensor", text(name), kind, shape, part, offset, size, file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--sums", action="store_true", help="compare every checksum")
    args = parser.parse_args()
    try:
        headers, index, records = read(args.file)
        if args.sums:
            check_sums(headers, records)
        show(headers, index, records, sys.stdout)
    except (Broken, OSError, ValueError, TypeError, struct.error) as e:
        print(f"read_container: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
