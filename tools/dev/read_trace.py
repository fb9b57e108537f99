#!/usr/bin/env python3
"""Reads trace files, written from docs/FORMAT.md alone: a check of the text and of Sluice's own
reader and writer.

    read_trace.py FILE

Prints a line of JSON for the header, for each record in the order of the file, and for the end: was
the recording cut, and how many bytes follow its last whole block. Times are those since the header
was written; prompt is 0 or 1; what was not measured is an empty list.

Exit code 1, with one line on stderr, where the file breaks its format: what came before it has been
printed. Standard library only.
"""

import json
import math
import struct
import sys

from read_container import M64, P64, SECRET, own_xxh3, words

MAGIC = b"SLTRC\r\n\x1a"
VERSION = 1
PAYLOAD_MAX = 262144
LAYERS_MAX, EXPERTS_MAX, TOP_K_MAX, TOKENS_MAX, CLASSES_MAX = 512, 1024, 64, 512, 4
SLOTS_MAX = 1 << 20
NUMBER_MAX = 1 << 60
NONE = 65535
U32 = (1 << 32) - 1
WEIGHTS, STATES = 1, 2


class Broken(Exception):
    """The file breaks its format."""


def want(condition, what):
    if not condition:
        raise Broken(what)


# ---- checksums of short data ---------------------------------------------------------------------


def fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def avalanche(h):
    h = ((h ^ (h >> 37)) * 0x165667919E3779F9) & M64
    return h ^ (h >> 32)


def mix16(data, at, secret_at):
    (a, b), (k, m) = words(data, at, 2), words(SECRET, secret_at, 2)
    return fold(a ^ k, b ^ m)


def tiny_xxh3(data):
    """Of 1 to 16 bytes."""
    n = len(data)
    if n <= 3:
        h = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        a, b = struct.unpack_from("<II", SECRET)
        h ^= a ^ b
        h = ((h ^ (h >> 33)) * P64[1]) & M64
        h = ((h ^ (h >> 29)) * P64[2]) & M64
        return h ^ (h >> 32)
    if n <= 8:
        first, last = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, n - 4)[0]
        a, b = words(SECRET, 8, 2)
        h = (last | first << 32) ^ a ^ b
        h ^= (h << 49 | h >> 15) & M64 ^ (h << 24 | h >> 40) & M64
        h = (h * 0x9FB21C651E98DF25) & M64
        h = ((h ^ ((h >> 35) + n)) * 0x9FB21C651E98DF25) & M64
        return h ^ (h >> 28)
    a, b, c, d = words(SECRET, 24, 4)
    low, high = words(data, 0, 1)[0] ^ a ^ b, words(data, n - 8, 1)[0] ^ c ^ d
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return avalanche((n + swapped + high + fold(low, high)) & M64)


def xxh3(data):
    n = len(data)
    if n > 240:
        return own_xxh3(data)
    if n <= 16:
        return tiny_xxh3(data)
    h = n * P64[0]
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            h += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(h & M64)
    for i in range(8):
        h += mix16(data, 16 * i, 16 * i)
    h = avalanche(h & M64)
    for i in range(8, n // 16):
        h += mix16(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche((h + mix16(data, n - 16, 119)) & M64)


# ---- MessagePack ---------------------------------------------------------------------------------


class Cursor:
    """All of MessagePack: None, bool, int, float, str (surrogates for what is no UTF-8), bytes,
    list, and maps as lists of pairs. An ext is its bytes."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, n):
        want(n <= len(self.data) - self.at, "a block ends within an item")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def text(self, n):
        return self.take(n).decode("utf-8", "surrogateescape")

    def items(self, n):
        want(n <= len(self.data) - self.at, "a block ends within an item")
        return [self.item() for _ in range(n)]

    def pairs(self, n):
        flat = self.items(2 * n)
        return Map(zip(flat[0::2], flat[1::2]))

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
            return self.text(first & 31)
        return self.longer(first)

    def longer(self, first):
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if 0xC4 <= first <= 0xC6:
            return self.take(self.number("BHI"[first - 0xC4]))
        if 0xC7 <= first <= 0xC9:
            return self.take(self.number("BHI"[first - 0xC7]) + 1)
        if 0xCA <= first <= 0xD3:
            return self.number("fdBHIQbhiq"[first - 0xCA])
        if 0xD4 <= first <= 0xD8:
            return self.take((1 << (first - 0xD4)) + 1)
        if 0xD9 <= first <= 0xDB:
            return self.text(self.number("BHI"[first - 0xD9]))
        if 0xDC <= first <= 0xDD:
            return self.items(self.number("HI"[first - 0xDC]))
        want(first >= 0xDE, "a block holds the byte C1, which is no item")
        return self.pairs(self.number("HI"[first - 0xDE]))


class Map(list):
    """Pairs, so that a key that stands twice shows."""


def whole(v, most, least=0):
    want(type(v) is int and least <= v <= most, f"{v!r} where {least} to {most} was wanted")
    return v


def array(v, n):
    right = type(v) is list and (n is None or len(v) == n)
    want(right, f"an array of {n} was wanted" if n is not None else "an array was wanted")
    return v


def unpack_bin(v, form, n=None):
    size = struct.calcsize("<" + form)
    want(type(v) is bytes and len(v) % size == 0, "a bin of numbers was wanted")
    want(n is None or len(v) == n * size, f"{n} numbers were wanted, {len(v) // size} found")
    return list(struct.unpack(f"<{len(v) // size}{form}", v))


def floats(v, n):
    found = unpack_bin(v, "f", n)
    want(all(math.isfinite(x) for x in found), "a float that is not finite")
    return found


# ---- blocks --------------------------------------------------------------------------------------


def blocks(data):
    """(payload, where it ends) of each; at the end of the file (None, where the last one ended)."""
    at = len(MAGIC)
    while at < len(data):
        head = data[at : at + 11]
        size = head[2:6]
        wanted = b"\x93\xce" + size + b"\xc6" + size
        want(wanted.startswith(head) or head.startswith(wanted), f"no block at offset {at}")
        if len(head) < 6:
            break
        n = int.from_bytes(size, "big")
        want(1 <= n <= PAYLOAD_MAX, f"the block at offset {at} has {n} bytes")
        payload, tail = data[at + 11 : at + 11 + n], data[at + 11 + n : at + 20 + n]
        want(tail[:1] in (b"", b"\xcf"), f"the block at offset {at} does not end like one")
        if len(tail) < 9:
            break
        if int.from_bytes(tail[1:], "big") != xxh3(payload):
            want(at + 20 + n == len(data), f"the block at offset {at} does not match its sum")
            break
        at += 20 + n
        yield payload, at
    yield None, at


# ---- the header ----------------------------------------------------------------------------------

TEXTS = "program model file architecture machine policy io prefetch isa lossy".split()
NUMBERS = {
    "model_hash": M64,
    "model_bytes": NUMBER_MAX,
    "ram_bytes": NUMBER_MAX,
    "unix_s": NUMBER_MAX,
    "n_ctx": U32,
    "threads": U32,
    "chunk": U32,
    "ring_slots": SLOTS_MAX,
    "n_classes": CLASSES_MAX,
    "measured": 63,
}


def header_text(v):
    right = type(v) is str and len(v.encode("utf-8", "surrogateescape")) <= 255 and "\0" not in v
    want(right, "a string of the header")
    return v


def layer_info(v, n_classes):
    experts, top_k, size_class = array(v, 6)[:3]
    whole(experts, EXPERTS_MAX)
    whole(top_k, min(TOP_K_MAX, experts), 1 if experts > 0 else 0)
    whole(size_class, n_classes - 1)
    return v[:3] + [whole(x, NUMBER_MAX) for x in v[3:]]


def read_header(payload):
    cursor = Cursor(payload)
    pairs = cursor.item()
    want(isinstance(pairs, Map) and cursor.at == len(payload), "the header is not one map")
    want(pairs and pairs[0][0] == "version", "the header does not begin with its version")
    version = whole(pairs[0][1], U32)
    want(version == VERSION, f"version {version}, {VERSION} was wanted")
    known = {*TEXTS, *NUMBERS, "version", "n_slots", "layers"}
    names = [k for k, _ in pairs if type(k) is str and k in known]
    want(all(type(k) is str for k, _ in pairs), "a key of the header is no string")
    want(len(names) == len(set(names)), "a key of the header stands twice")
    found = dict(pairs)
    header = {"kind": "header", "version": version}
    for k in TEXTS:
        header[k] = header_text(found.get(k, ""))
    for k, most in NUMBERS.items():
        header[k] = whole(found.get(k, 0), most)
    n_classes = whole(header["n_classes"], CLASSES_MAX, 1)
    slots = array(found.get("n_slots", [0] * n_classes), n_classes)
    header["n_slots"] = [whole(v, SLOTS_MAX) for v in slots]
    layers = array(found.get("layers"), None)
    want(1 <= len(layers) <= LAYERS_MAX, f"{len(layers)} layers")
    header["layers"] = [layer_info(v, n_classes) for v in layers]
    return header


# ---- records -------------------------------------------------------------------------------------


class Records:
    """Knows the header and what came before, which a record has to fit."""

    ITEMS = [1, 6, 12, 6, 5, 7, 3]

    def __init__(self, header):
        self.layers = header["layers"]
        self.measured = header["measured"]
        self.n_classes = header["n_classes"]
        self.tokens = None  # of the eval under way
        self.next_layer = 0
        self.last_ns = self.last_read_ns = 0

    def time(self, distance):
        self.last_ns = whole(self.last_ns + whole(distance, NUMBER_MAX), NUMBER_MAX)
        return self.last_ns

    def layer(self, v):
        layer = whole(v, len(self.layers) - 1)
        want(self.layers[layer][0] > 0, f"layer {layer} has no experts")
        return layer

    def expert(self, layer, v):
        return whole(v, self.layers[layer][0] - 1)

    def read(self, v):
        array(v, None)
        want(v and type(v[0]) is int and 0 <= v[0] < len(self.ITEMS), "a record of no known kind")
        want(len(v) == self.ITEMS[v[0]], f"a record of kind {v[0]} with {len(v)} items")
        of_kind = [None, self.eval, self.choice, self.hints, self.op, self.arrival, self.done]
        return of_kind[v[0]](*v[1:]) if v[0] > 0 else None

    def eval(self, session, position, n_tokens, prompt, distance):
        self.tokens = whole(n_tokens, TOKENS_MAX, 1)
        self.next_layer = 0
        return {
            "kind": "eval",
            "session": whole(session, U32),
            "position": whole(position, U32 - 512),
            "n_tokens": n_tokens,
            "prompt": whole(prompt, 1),
            "begin_ns": self.time(distance),
        }

    def check_entries(self, chosen, states, entries):
        missing = {x for x, s in zip(chosen, states) if s & 3 == 0 and x != NONE}
        want(len(entries) in (0, len(missing)), "entries that are not those of what was missing")
        want(all(x <= 2 for x in entries), "an entry above 2")

    def choice(self, layer, k, chosen, weights, states, entries, size, distance, *spans):
        want(self.tokens is not None, "a layer outside of an eval")
        self.layer(layer)
        want(layer >= self.next_layer, "layers of an eval do not ascend")
        self.next_layer = layer + 1
        n = self.tokens * whole(k, self.layers[layer][1], 1)
        chosen = unpack_bin(chosen, "H", n)
        weights = floats(weights, n if self.measured & WEIGHTS else 0)
        states = unpack_bin(states, "B", n if self.measured & STATES else 0)
        entries = unpack_bin(entries, "B")
        for at in range(0, n, k):
            real = [self.expert(layer, x) for x in chosen[at : at + k] if x != NONE]
            want(len(set(real)) == len(real), "an expert that stands twice for a token")
        want(all(s <= 7 for s in states), "a state above 7")
        self.check_entries(chosen, states, entries)
        names = ("dense_ns", "expert_ns", "wait_ns")
        return {
            "kind": "layer",
            "layer": layer,
            "n_tokens": self.tokens,
            "top_k": k,
            "chosen": chosen,
            "weights": weights,
            "states": states,
            "entries": entries,
            "read_bytes": whole(size, NUMBER_MAX),
            "begin_ns": self.time(distance),
            **{name: whole(v, NUMBER_MAX) for name, v in zip(names, spans)},
        }

    def hints(self, layer, visits, prompt, experts, probabilities):
        self.layer(layer)
        experts = [self.expert(layer, x) for x in unpack_bin(experts, "H")]
        want(len(set(experts)) == len(experts), "a hint that stands twice")
        return {
            "kind": "hints",
            "layer": layer,
            "visits": whole(visits, U32),
            "prompt": whole(prompt, 1),
            "experts": experts,
            "probabilities": floats(probabilities, len(experts)),
        }

    def op(self, what, layer, expert, how):
        whole(what, 9)
        if what not in (6, 7):
            self.expert(self.layer(layer), expert)
        else:
            whole(layer, 0)
            whole(expert, self.n_classes - 1 if what == 6 else SLOTS_MAX - 1)
        whole(how, 2 if what in (1, 8) else 0)
        return {"kind": "op", "op": what, "layer": layer, "expert": expert, "how": how}

    def arrival(self, layer, expert, why, size, distance, took):
        self.expert(self.layer(layer), expert)
        want(type(distance) is int, "the beginning of a read")
        self.last_read_ns = whole(self.last_read_ns + distance, NUMBER_MAX)
        return {
            "kind": "read",
            "layer": layer,
            "expert": expert,
            "why": whole(why, 5),
            "bytes": whole(size, NUMBER_MAX),
            "begin_ns": self.last_read_ns,
            "took_ns": whole(took, NUMBER_MAX),
        }

    def done(self, distance, phases):
        want(self.tokens is not None, "a done outside of an eval")
        self.tokens = None
        return {
            "kind": "done",
            "end_ns": self.time(distance),
            "phase_ns": [whole(v, NUMBER_MAX) for v in array(phases, 7)],
        }


# ---- output --------------------------------------------------------------------------------------


def show(item):
    parts = []
    for k, v in item.items():
        if k in ("weights", "probabilities"):
            shown = "[" + ",".join(format(x, ".9g") for x in v) + "]"
        else:
            shown = json.dumps(v, separators=(",", ":"))
        parts.append(f'"{k}":{shown}')
    print("{" + ",".join(parts) + "}")


def read(data):
    want(data[: len(MAGIC)] == MAGIC, "the magic of a trace file was wanted")
    records = None
    for payload, end in blocks(data):
        if payload is None:
            want(records, "the file ends before its header does")
            show({"kind": "end", "cut": True, "lost_bytes": len(data) - end})
            return
        if records is None:
            header = read_header(payload)
            show(header)
            records = Records(header)
            continue
        cursor = Cursor(payload)
        while cursor.at < len(payload):
            record = records.read(cursor.item())
            if record is None:
                last = cursor.at == len(payload) and end == len(data)
                want(last, "something follows the end mark")
                show({"kind": "end", "cut": False, "lost_bytes": 0})
                return
            show(record)


def main():
    if len(sys.argv) != 2:
        print("usage: read_trace.py FILE", file=sys.stderr)
        return 2
    try:
        with open(sys.argv[1], "rb") as f:
            read(f.read())
    except (Broken, OSError, RecursionError) as e:
        sys.stdout.flush()
        print(f"read_trace: {sys.argv[1]}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
