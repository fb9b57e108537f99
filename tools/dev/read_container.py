#!/usr/bin/env python3
"""Reads containers (*.sluice), written from docs/FORMAT.md alone: a check of the text and of
Sluice's own reader and writer.

    read_container.py FILE [--sums] [--weights]     FILE is the container, or any part of it

Prints one line for everything that the container holds, in the order of the files:

    container PARTS BYTES SOURCE RECIPE           recipe in hex, sums and sources too
    key NAME KIND VALUE                           the value's bytes as a GGUF has them, in hex
    record PART OFFSET BYTES LAYER EXPERT SUM     layer and expert -1: resident weights
    tensor NAME TYPE DIMS PART OFFSET BYTES

With --sums every byte is read and every checksum compared. With --weights matrices of the
container's own types are unpacked, and another line says their checksum:

    weights NAME SUM      of each row the scale (u16), then m (level - offset) of each column (i16);
                          256 zeros at the end

Exit code 1, with one line on stderr,
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


def owner(name):
    """Layer and expert of which a tensor is a part, or None."""
    match = re.fullmatch(rb"blk\.(\d+)\.ffn_(?:gate|up|down)\.(\d+)\.weight", name)
    return match and (int(match[1]), int(match[2]))


def check_tensors(index):
    homes = [(part, at, at + size, None) for part, at, size, _ in index[b"segments"]]
    homes += [(part, at, at + n, (il, ix)) for il, ix, part, at, n, _ in index[b"experts"]]
    ends = {home: home[1] for home in homes}
    i = 0
    for name, _, dims, part, offset, size in index[b"tensors"]:
        while i < len(homes) and (part, offset) >= (homes[i][0], homes[i][2]):
            i += 1
        want(i < len(homes), f"the place of tensor {name}")
        home = homes[i]
        inside = part == home[0] and ends[home] <= offset and offset + size <= home[2]
        want(inside and offset % 64 == 0 and 1 <= len(dims) <= 4, f"the place of tensor {name}")
        want(owner(name) == home[3], f"tensor {name} lies in the record of something else")
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


# ---- weights -------------------------------------------------------------------------------------

LEVELS = {
    2: [0, 26, 43, 63],
    3: [0, 14, 24, 32, 38, 45, 52, 63],
    4: [0, 8, 13, 17, 21, 25, 28, 31, 34, 37, 40, 43, 47, 51, 56, 63],
    5: [0, *range(3, 33, 2), *range(32, 62, 2), 63],
    6: list(range(64)),
}
# Bits, columns of a group, B, S.
TYPES = {
    256: (2, 32, 26, 3),
    257: (2, 16, 26, 3),
    258: (3, 32, 32, 2),
    259: (3, 16, 32, 2),
    260: (4, 32, 31, 2),
    261: (4, 16, 31, 2),
    262: (5, 32, 25, 2),
    263: (6, 32, 29, 2),
}


def code_of(bits, planes, q):
    """The code of quad q from the bytes of the planes at its place."""
    if bits == 2:
        return planes[q // 4] >> 2 * (q % 4) & 3
    if bits == 3 and q < 6:
        return planes[q // 2] >> 3 * (q % 2) & 7
    if bits == 3:
        return planes[q - 6] >> 6 | (planes[2] >> q & 1) << 2
    low = planes[q // 2] >> 4 * (q % 2) & 15
    if bits == 5:
        return low | (planes[4] >> q & 1) << 4
    if bits == 6:
        return low | (planes[4 + q // 4] >> 2 * (q % 4) & 3) << 4
    return low


def row_of_unit(kind, unit, r):
    """The 32 integers m (level - offset) of row r."""
    bits, group, base, step = TYPES[kind]
    row = []
    for c in range(32):
        n = 4 * r + c % 4
        s = unit[32 * bits + (8 * (c // 16) if group == 16 else 0) + r]
        m = ((s & 15) + 1) * (-1 if s & 128 else 1)
        code = code_of(bits, unit[n : 32 * bits : 32], c // 4)
        row.append(m * (LEVELS[bits][code] - base - step * (s >> 4 & 7)))
    return row


def weights_of(kind, data, rows, cols):
    bits, group = TYPES[kind][:2]
    unit_bytes = 32 * bits + 256 // group
    band_bytes = 16 + cols // 32 * unit_bytes
    want(cols % 32 == 0 and len(data) == -(-rows // 8) * band_bytes, "the bytes of a matrix")
    out = []
    for row in range(rows):
        band = data[row // 8 * band_bytes :][:band_bytes]
        out.append(band[2 * (row % 8) :][:2])
        for u in range(cols // 32):
            unit = band[16 + u * unit_bytes :][:unit_bytes]
            out.append(struct.pack("<32h", *row_of_unit(kind, unit, row % 8)))
    return b"".join(out) + bytes(256)


def show_weights(headers, index):
    for name, kind, dims, part, offset, size in index[b"tensors"]:
        if kind in TYPES:
            with open(headers[part].path, "rb") as f:
                f.seek(offset)
                data = f.read(size)
            rows = dims[1] if len(dims) > 1 else 1
            print("weights", text(name), f"{xxh3(weights_of(kind, data, rows, dims[0])):016x}")


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
    print(
        "container", len(headers), headers[0].total, f"{index[b'source']:016x}", recipe, file=out
    )
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
    parser.add_argument("--weights", action="store_true", help="unpack the container's own types")
    args = parser.parse_args()
    try:
        headers, index, records = read(args.file)
        if args.sums:
            check_sums(headers, records)
        show(headers, index, records, sys.stdout)
        if args.weights:
            show_weights(headers, index)
    except (Broken, OSError, ValueError, TypeError, struct.error) as e:
        print(f"read_container: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
