#!/usr/bin/env python3
"""test_calib_figures.py SLUICE GOLDEN SOURCE: the statistics of sluice calib against a forward pass
of its own.

Tiny random models of 32-bit floats are written and run here in plain Python, in double precision,
and the inputs of every weight matrix summed: whole and fused tensors, experts stacked and each by
itself, a shared expert, output matrix of its own and tied. Sums have to agree to 1e-4 of their
largest, counts exactly; a file is read by a reader of its own. Standard library only."""

import array
import math
import os
import struct
import subprocess
import sys
import tempfile

SLUICE, GOLDEN, SOURCE = (os.path.abspath(a) for a in sys.argv[1:4])
sys.path.insert(0, SOURCE + "/tests/support")
from tiny_model import Config, build  # noqa: E402

WINDOW, WINDOWS = 12, 3
IDS = [(i * 41 + 7) % 299 for i in range(WINDOW * WINDOWS + 5)]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
MODELS = {
    "qwen3moe": Config(arch="qwen3moe", n_expert=6, top_k=2, vocab=300),
    "qwen3moe fused": Config(
        arch="qwen3moe", n_expert=5, top_k=3, fused_qkv=True, fused_gate_up=True, tied=True
    ),
    "qwen3moe single": Config(arch="qwen3moe", n_expert=4, top_k=2, single_experts=True),
    "qwen2moe": Config(
        arch="qwen2moe", n_expert=4, top_k=2, ff_shared=48, shared_gate=True, qkv_bias=True
    ),
}


# ---- a file of statistics --------------------------------------------------------------------


def read_stats(path):
    """{tensor: (columns, [sums of matrix, ...], [counts])}, and the metadata."""
    blob = open(path, "rb").read()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, blob, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text():
        return take("%ds" % take("Q")).decode()

    def value(kind):
        if kind == 9:
            kind, n = take("IQ")
            return [value(kind) for _ in range(n)]
        return text() if kind == 8 else take("I")

    assert take("4sI") == (b"GGUF", 3)
    n_tensors, n_keys = take("QQ")
    keys = {text(): value(take("I")) for _ in range(n_keys)}
    places = {}
    for _ in range(n_tensors):
        name, n_dims = text(), take("I")
        dims = [take("Q") for _ in range(n_dims)] + [1]
        assert take("I") == 0
        places[name] = (dims[0], dims[1], take("Q"))
    base = -(-at // 32) * 32
    stats = {}
    for name, (cols, rows, offset) in places.items():
        tensor, _, kind = name.rpartition(".")
        floats = array.array("f", blob[base + offset : base + offset + 4 * cols * rows])
        entry = stats.setdefault(tensor, [None, None])
        entry[kind == "counts"] = [list(floats[i : i + cols]) for i in range(0, len(floats), cols)]
    return {n: (s, [c[0] for c in counts]) for n, (s, counts) in stats.items()}, keys


# ---- the forward pass ------------------------------------------------------------------------


class Forward:
    def __init__(self, config, model):
        self.c, self.seen = config, {}
        self.tensors = {t.name: t for t in model.tensors}
        self.floats = {n: array.array("f", t.data) for n, t in self.tensors.items()}

    def see(self, name, x, matrix=0, n_matrices=1):
        sums, counts = self.seen.setdefault(
            name, ([[0.0] * len(x) for _ in range(n_matrices)], [0] * n_matrices)
        )
        counts[matrix] += 1
        for i, v in enumerate(x):
            sums[matrix][i] += v * v

    def rows(self, name, x, first=0, n=None, bias=None):
        """Rows of a matrix times x; where a stack is asked for, first counts rows of all of it."""
        w, cols = self.floats[name], len(x)
        n = len(w) // cols - first if n is None else n
        y = [
            sum(map(float.__mul__, w[r * cols : (r + 1) * cols].tolist(), x))
            for r in range(first, first + n)
        ]
        return [a + b for a, b in zip(y, self.floats[bias][first:])] if bias else y

    def norm(self, name, x):
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + self.c.eps)
        return [v * scale * w for v, w in zip(x, self.floats[name])]

    def rotate(self, x, position):
        half = len(x) // 2
        out = [0.0] * len(x)
        for i in range(half):
            angle = position * self.c.freq_base ** (-i / half)
            a, b = x[i], x[i + half]
            out[i] = a * math.cos(angle) - b * math.sin(angle)
            out[i + half] = a * math.sin(angle) + b * math.cos(angle)
        return out

    def heads(self, b, part, flat, position):
        size = self.c.n_embd // self.c.n_head
        heads = [flat[i : i + size] for i in range(0, len(flat), size)]
        if part == "v":
            return heads
        name = b + "attn_%s_norm.weight" % part
        heads = [self.norm(name, h) if name in self.floats else h for h in heads]
        return [self.rotate(h, position) for h in heads]

    def project(self, b, x, position):
        size = self.c.n_embd // self.c.n_head
        n = {"q": self.c.n_head * size, "k": self.c.n_kv * size, "v": self.c.n_kv * size}
        out, first, fused = [], 0, b + "attn_qkv.weight" in self.floats
        if fused:
            self.see(b + "attn_qkv.weight", x)
        for part in "qkv":
            name = b + "attn_%s.weight" % ("qkv" if fused else part)
            if not fused:
                self.see(name, x)
            bias = name[:-6] + "bias" if self.c.qkv_bias else None
            flat = self.rows(name, x, first if fused else 0, n[part], bias)
            out.append(self.heads(b, part, flat, position))
            first += n[part]
        return out

    def attend(self, b, xs):
        done = []
        qkv = [self.project(b, self.norm(b + "attn_norm.weight", x), t) for t, x in enumerate(xs)]
        for t, (queries, _, _) in enumerate(qkv):
            out = []
            for h, q in enumerate(queries):
                kv = h // (self.c.n_head // self.c.n_kv)
                scores = [
                    sum(map(float.__mul__, q, qkv[s][1][kv])) / math.sqrt(len(q))
                    for s in range(t + 1)
                ]
                weights = [math.exp(s - max(scores)) for s in scores]
                total = sum(weights)
                out += [
                    sum(w / total * qkv[s][2][kv][i] for s, w in enumerate(weights))
                    for i in range(len(q))
                ]
            self.see(b + "attn_output.weight", out)
            done.append(self.rows(b + "attn_output.weight", out))
        return done

    def gated(self, gate, up):
        return [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]

    def expert(self, b, e, x):
        c, n, ff = self.c, self.c.n_expert, self.c.ff_exp
        if c.fused_gate_up:
            self.see(b + "ffn_gate_up_exps.weight", x, e, n)
            both = self.rows(b + "ffn_gate_up_exps.weight", x, e * 2 * ff, 2 * ff)
            parts = both[:ff], both[ff:]
        else:
            parts = []
            for part in ("gate", "up"):
                self.see(b + "ffn_%s_exps.weight" % part, x, e, n)
                parts.append(self.part(b, part, e, x, ff))
        h = self.gated(*parts)
        self.see(b + "ffn_down_exps.weight", h, e, n)
        return self.part(b, "down", e, h, c.n_embd)

    def part(self, b, part, e, x, n):
        if self.c.single_experts:
            return self.rows(b + "ffn_%s.%d.weight" % (part, e), x)
        return self.rows(b + "ffn_%s_exps.weight" % part, x, e * n, n)

    def mixture(self, b, x):
        self.see(b + "ffn_gate_inp.weight", x)
        scores = self.rows(b + "ffn_gate_inp.weight", x)
        weights = [math.exp(s - max(scores)) for s in scores]
        weights = [w / sum(weights) for w in weights]
        chosen = sorted(range(len(weights)), key=lambda e: -weights[e])[: self.c.top_k]
        total = sum(weights[e] for e in chosen) if self.c.arch == "qwen3moe" else 1
        out = [0.0] * len(x)
        for e in chosen:
            y = self.expert(b, e, x)
            out = [o + weights[e] / total * v for o, v in zip(out, y)]
        return [o + v for o, v in zip(out, self.shared(b, x))] if self.c.ff_shared else out

    def shared(self, b, x):
        parts = []
        for part in ("gate", "up"):
            self.see(b + "ffn_%s_shexp.weight" % part, x)
            parts.append(self.rows(b + "ffn_%s_shexp.weight" % part, x))
        h = self.gated(*parts)
        self.see(b + "ffn_down_shexp.weight", h)
        self.see(b + "ffn_gate_inp_shexp.weight", x)
        weight = 1 / (1 + math.exp(-self.rows(b + "ffn_gate_inp_shexp.weight", x)[0]))
        return [weight * v for v in self.rows(b + "ffn_down_shexp.weight", h)]

    def window(self, ids):
        width = self.c.n_embd
        xs = [self.floats["token_embd.weight"][i * width : (i + 1) * width].tolist() for i in ids]
        for layer in range(self.c.n_layer):
            b = "blk.%d." % layer
            xs = [[a + v for a, v in zip(x, y)] for x, y in zip(xs, self.attend(b, xs))]
            for t, x in enumerate(xs):
                y = self.mixture(b, self.norm(b + "ffn_norm.weight", x))
                xs[t] = [a + v for a, v in zip(x, y)]
        for x in xs:
            head = "token_embd.weight" if self.c.tied else "output.weight"
            self.see(head, self.norm("output_norm.weight", x))


# ---- comparing -------------------------------------------------------------------------------


def calib(model, folder, *options):
    tokens, out = folder + "/ids", folder + "/stats.gguf"
    with open(tokens, "w") as f:
        f.write(" ".join(map(str, IDS)))
    command = [SLUICE, "calib", "-m", model, "--tokens", tokens, "-o", out, "-c", str(WINDOW)]
    subprocess.run(
        command + ["--kv", "f32", "-q", *options],
        env=ENVIRONMENT,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    return read_stats(out)


def faults_of(name, config, folder):
    model = build(config)
    path = model.write(folder + "/model.gguf")
    forward = Forward(config, model)
    for i in range(WINDOWS):
        forward.window(IDS[i * WINDOW : (i + 1) * WINDOW])
    for options in ([], ["--chunk", "5"], ["--slots", str(config.top_k)]):
        found, keys = calib(path, folder, *options)
        wanted = forward.seen
        if keys["general.type"] != "imatrix" or keys["imatrix.chunk_count"] != WINDOWS:
            yield "%s: metadata %s" % (name, keys)
        if keys["imatrix.chunk_size"] != WINDOW or len(keys["imatrix.datasets"]) != 1:
            yield "%s: metadata %s" % (name, keys)
        for tensor in set(found) ^ set(wanted):
            yield "%s: %s is %s" % (name, tensor, "missing" if tensor in wanted else "too much")
        for tensor in set(found) & set(wanted):
            (sums, counts), (mine, my_counts) = found[tensor], wanted[tensor]
            if counts != my_counts:
                yield "%s: %s: counts %s, wanted %s" % (name, tensor, counts, my_counts)
            for a, b in zip(sums, mine):
                if len(a) != len(b) or max(abs(x - y) for x, y in zip(a, b)) > 1e-4 * max(b):
                    yield "%s: %s: sums %s, wanted %s" % (name, tensor, a[:4], b[:4])


def main():
    with tempfile.TemporaryDirectory() as folder:
        faults = [f for name, config in MODELS.items() for f in faults_of(name, config, folder)]
    for fault in faults[:20]:
        print("FAIL " + fault)
    print("%d models, %d faults" % (len(MODELS), len(faults)))
    return 1 if faults else 0


sys.exit(main())
