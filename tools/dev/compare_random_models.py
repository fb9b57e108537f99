#!/usr/bin/env python3
"""Random small models, three ways: compare_random_models.py PROGRAM [--n 40] [--no-llama] [--types]

Draws architectures, sizes and features at random, writes each model with
tests/support/tiny_model.py, and compares the logits of `sluice eval --kv f32` with two oracles:
a forward pass in float64 below (numpy, from the published formulas) and llama.cpp through
llama_cpp, where that loads the file. Prints a line a model; exits 1 if one is off by more than
2e-4. Developer's machine only: needs numpy, and llama_cpp unless --no-llama."""

import argparse
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "support"))
import tiny_model as tm  # noqa: E402

TOLERANCE = 2e-4  # of a logit
QUANTIZED_TOLERANCE = 0.05  # root mean square over standard deviation: activations have 8 bits
ARCHS = ["llama", "qwen3", "qwen2moe", "qwen3moe", "olmoe", "granitemoe", "mixtral"]


# ---- the models ---------------------------------------------------------------------------------


def rope_scaling(rng, c):
    kind = rng.choice(["none", "none", "linear", "yarn", "yarn"])
    if kind == "linear":
        c.rope_keys = {"type": (tm.STR, "linear"), "factor": (tm.F32, rng.choice([2.0, 4.5]))}
    if kind == "yarn":
        c.rope_keys = {
            "type": (tm.STR, "yarn"),
            "factor": (tm.F32, rng.choice([2.0, 8.0, 40.0])),
            "original_context_length": (tm.U32, rng.choice([16, 32, 4096])),
        }
        if rng.random() < 0.5:
            c.rope_keys["attn_factor"] = (tm.F32, rng.choice([0.8, 1.3]))


def scales(rng, c):
    c.keys = {"logit_scale": (tm.F32, rng.choice([0.5, 2.0]))}
    for key in ("embedding_scale", "residual_scale", "attention.scale"):
        if rng.random() < 0.7:
            c.keys[key] = (tm.F32, rng.choice([0.22, 0.5, 1.5]))


def router(rng, c):
    """What a file may say about the router; llama.cpp heeds none of it for these architectures."""
    if rng.random() < 0.6:
        c.keys["expert_gating_func"] = (tm.U32, rng.choice([1, 2, 3]))
    if rng.random() < 0.5:
        c.keys["expert_weights_norm"] = (tm.BOOL, rng.choice([0, 1]))
    if rng.random() < 0.4:
        c.keys["expert_weights_scale"] = (tm.F32, rng.choice([0.0, 0.6, 2.5]))
    c.select_bias = rng.random() < 0.5


WHERE = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "gate_up"]
WHERE += ["gate_exps", "up_exps", "down_exps", "_shexp", "token_embd", "output.weight"]


def quantize(rng, c):
    """Types at random, matrix by matrix. Widths become multiples of a block."""
    block = rng.choice([32, 256])
    types = [t for t, (_, cols, _, _, _) in tm.TYPES.items() if cols in (1, 32, block)]
    c.types = {end: rng.choice(types) for end in WHERE}
    if not c.head_k:
        c.head_k = c.head_v = c.n_embd // c.n_head
    if c.arch != "olmoe":
        c.n_embd = 256
    c.n_ff = c.ff_exp = block
    c.ff_shared = 64 if c.ff_shared else 0


def draw(rng):
    """A configuration with random features, as the architecture allows."""
    name = rng.choice(ARCHS)
    c = tm.Config(arch="llama" if name == "mixtral" else name, seed=rng.randrange(1 << 30))
    c.n_layer = rng.randint(1, 3)
    c.n_head = rng.choice([1, 2, 3, 4, 6, 8])
    c.n_kv = rng.choice([n for n in range(1, c.n_head + 1) if c.n_head % n == 0])
    head = rng.choice([2, 4, 6, 8, 16, 20, 32, 64, 72])
    c.n_embd = c.n_head * head
    if name != "olmoe" and rng.random() < 0.4:
        c.n_embd = rng.choice([24, 40, 64, 96, 100])
        c.head_k = c.head_v = head
        if rng.random() < 0.4:
            c.head_v = rng.choice([3, 8, 24, 40])
    c.n_ff, c.ff_exp = rng.choice([24, 48, 96, 130]), rng.choice([8, 32, 50, 64])
    c.vocab = rng.choice([257, 263, 288, 300, 320])
    c.eps = rng.choice([1e-6, 1e-5, 1e-3])
    c.freq_base = rng.choice([100.0, 10000.0, 1e6])
    if name not in ("llama", "qwen3"):
        c.n_expert = rng.choice([1, 2, 3, 5, 8, 17])
        c.top_k = rng.randint(1, min(c.n_expert, 8))
    if name == "qwen2moe":
        c.ff_shared, c.shared_gate = rng.choice([16, 40, 96]), True
    if name == "granitemoe":
        c.ff_shared = rng.choice([0, 0, 24, 96])
        scales(rng, c)
    c.tied = name != "olmoe" and rng.random() < 0.4
    c.qkv_bias = name != "olmoe" and rng.random() < 0.5
    c.fused_qkv = name != "olmoe" and rng.random() < 0.3
    c.o_bias = name in ("llama", "mixtral", "granitemoe") and rng.random() < 0.4
    c.ffn_bias = name == "llama" and rng.random() < 0.4
    c.fused_gate_up = c.n_expert > 0 and rng.random() < 0.2
    c.rope_freqs = c.arch in ("llama", "granitemoe") and rng.random() < 0.3
    if rng.random() < 0.2:
        c.n_rot = rng.choice([n for n in range(0, (c.head_k or head) + 1, 2)])
        c.rope_freqs = c.rope_freqs and c.n_rot > 0
    rope_scaling(rng, c)
    if c.n_expert and rng.random() < 0.3:
        router(rng, c)
    if rng.random() < 0.1:
        c.keys["attention.clamp_kqv"] = (tm.F32, rng.choice([0.3, 1.0]))
    return c


# ---- the forward pass in float64 ----------------------------------------------------------------


class Reference:
    """Formulas as published: pre-norm transformer, RoPE, YaRN, SwiGLU, top-k experts."""

    def __init__(self, c, m):
        self.c, self.t = c, {}
        for t in m.tensors:
            raw = np.frombuffer(t.data, np.float32 if t.type == "F32" else np.uint8)
            if t.type != "F32":
                rows = raw.reshape(t.dims[:0:-1] + [-1])
                raw = dequantize(rows, GGMLQuantizationType[t.type])
            self.t[t.name] = raw.astype(np.float64).reshape(t.dims[::-1])
        self.head_k, self.head_v = (
            c.head_k or c.n_embd // c.n_head,
            c.head_v or c.n_embd // c.n_head,
        )

    def key(self, name, default):
        return np.float64(np.float32(self.c.keys[name][1])) if name in self.c.keys else default

    def norm(self, x, w):
        return (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float64(np.float32(self.c.eps))) * w
        )

    def angles(self, n):
        c, k = self.c, self.c.rope_keys
        d = self.head_k if c.n_rot < 0 else c.n_rot
        i = np.arange(d // 2)
        f = np.float64(c.freq_base) ** (-2.0 * i / max(d, 1))
        if c.rope_freqs:
            f = f / self.t["rope_freqs.weight"]
        kind, s = k.get("type", (0, "none"))[1], k.get("factor", (0, 1.0))[1]
        mag = np.float64(np.float32(k.get("attn_factor", (0, 1.0))[1]))
        if kind == "linear":
            f = f / s
        if kind == "yarn":
            ctx = k["original_context_length"][1]
            at = lambda turns: d * np.log(ctx / (turns * 2 * np.pi)) / (2 * np.log(c.freq_base))
            low, high = max(np.floor(at(32.0)), 0), min(np.ceil(at(1.0)), d - 1)
            ramp = np.clip((i - low) / max(high - low, 0.001), 0, 1)
            f = f / s * ramp + f * (1 - ramp)
            mag = mag * (0.1 * np.log(s) + 1 if s > 1 else 1.0)
        a = np.outer(np.arange(n), f)
        return np.cos(a) * mag, np.sin(a) * mag, d

    def rotate(self, x):
        """x [tokens][heads][head_k]"""
        cos, sin, d = self.angles(len(x))
        cos, sin, out = cos[:, None], sin[:, None], x.copy()
        a, b = (
            (slice(0, d, 2), slice(1, d, 2))
            if self.c.arch in ("llama", "granitemoe")
            else (slice(0, d // 2), slice(d // 2, d))
        )
        if d:
            out[..., a], out[..., b] = (
                x[..., a] * cos - x[..., b] * sin,
                x[..., a] * sin + x[..., b] * cos,
            )
        return out

    def qkv(self, b, x):
        c = self.c
        rows = np.cumsum([c.n_head * self.head_k, c.n_kv * self.head_k, c.n_kv * self.head_v])
        names = ["qkv"] if c.fused_qkv else ["q", "k", "v"]
        w = np.concatenate([self.t[b + "attn_%s.weight" % n] for n in names])
        y = x @ w.T
        if c.qkv_bias:
            y = y + np.concatenate([self.t[b + "attn_%s.bias" % n] for n in names])
        return np.split(y, rows[:2], axis=1)

    def attention(self, b, x):
        c, n = self.c, len(x)
        q, k, v = self.qkv(b, x)
        qn, kn = self.t.get(b + "attn_q_norm.weight"), self.t.get(b + "attn_k_norm.weight")
        if c.arch == "olmoe":
            q, k = self.norm(q, qn), self.norm(k, kn)
        if c.arch == "olmoe" or qn is None:
            clamp = self.key("attention.clamp_kqv", np.inf)
            q, k, v = (np.clip(x, -clamp, clamp) for x in (q, k, v))
        q, k, v = q.reshape(n, c.n_head, -1), k.reshape(n, c.n_kv, -1), v.reshape(n, c.n_kv, -1)
        if qn is not None and c.arch != "olmoe":
            clamp = self.key("attention.clamp_kqv", np.inf)
            q, k, v = (np.clip(x, -clamp, clamp) for x in (self.norm(q, qn), self.norm(k, kn), v))
        q, k = self.rotate(q), self.rotate(k)
        k, v = np.repeat(k, c.n_head // c.n_kv, 1), np.repeat(v, c.n_head // c.n_kv, 1)
        s = np.einsum("thd,shd->hts", q, k) * self.key("attention.scale", 1 / np.sqrt(self.head_k))
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        o = np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v).reshape(n, -1)
        return o @ self.t[b + "attn_output.weight"].T + self.t.get(b + "attn_output.bias", 0)

    @staticmethod
    def silu(x):
        return x / (1 + np.exp(-x))

    def dense(self, b, suffix, x):
        part = lambda p, y: y @ self.t[b + "ffn_%s%s.weight" % (p, suffix)].T + self.t.get(
            b + "ffn_%s%s.bias" % (p, suffix), 0
        )
        return part("down", self.silu(part("gate", x)) * part("up", x))

    def choose(self, b, x):
        """Scores to (experts, weights) of each token."""
        c = self.c
        s = x @ self.t[b + "ffn_gate_inp.weight"].T
        gating = c.keys.get("expert_gating_func", (0, 1))[1]
        softmax = lambda z: np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        p = {
            1: lambda: np.array([softmax(row) for row in s]),
            2: lambda: 1 / (1 + np.exp(-s)),
            3: lambda: s,
        }[gating]()
        for row in p:
            chosen = np.argsort(-(row + self.t.get(b + "exp_probs_b.bias", 0)), kind="stable")[
                : c.top_k
            ]
            w = softmax(row[chosen]) if gating == 3 else row[chosen]
            if c.keys.get("expert_weights_norm", (0, c.arch not in ("qwen2moe", "olmoe")))[1]:
                w = w / w.sum()
            yield chosen, w * (self.key("expert_weights_scale", 1.0) or 1.0)

    def experts(self, b, x):
        c, out = self.c, np.zeros_like(x)
        if c.fused_gate_up:
            gate, up = np.split(self.t[b + "ffn_gate_up_exps.weight"], 2, axis=1)
        else:
            gate, up = self.t[b + "ffn_gate_exps.weight"], self.t[b + "ffn_up_exps.weight"]
        down = self.t[b + "ffn_down_exps.weight"]
        for t, (chosen, weights) in enumerate(self.choose(b, x)):
            for e, weight in zip(chosen, weights):
                out[t] += weight * (down[e] @ (self.silu(gate[e] @ x[t]) * (up[e] @ x[t])))
        if c.ff_shared:
            g = (
                1 / (1 + np.exp(-(x @ self.t[b + "ffn_gate_inp_shexp.weight"])))
                if c.shared_gate
                else np.ones(len(x))
            )
            out += g[:, None] * self.dense(b, "_shexp", x)
        return out

    def logits(self, ids):
        c, r = self.c, self.key("residual_scale", 1.0)
        x = self.t["token_embd.weight"][ids] * self.key("embedding_scale", 1.0)
        for l in range(c.n_layer):
            b = "blk.%d." % l
            x = x + r * self.attention(b, self.norm(x, self.t[b + "attn_norm.weight"]))
            y = self.norm(x, self.t[b + "ffn_norm.weight"])
            x = x + r * (self.experts(b, y) if c.n_expert else self.dense(b, "", y))
        out = self.t["token_embd.weight" if c.tied else "output.weight"]
        return self.norm(x, self.t["output_norm.weight"]) @ out.T / self.key("logit_scale", 1.0)


# ---- the programs -------------------------------------------------------------------------------

LLAMA = """
import sys, numpy as np, llama_cpp
ids = [int(t) for t in open(sys.argv[2]).read().split()]
m = llama_cpp.Llama(sys.argv[1], n_ctx=max(len(ids), 64), n_batch=512, logits_all=True,
                    verbose=False, n_threads=1, type_k=0, type_v=0)
m.eval(ids)
np.asarray(m.scores[:len(ids)], np.float32).tofile(sys.argv[3])
"""


def run(args, out):
    if os.path.exists(out):
        os.remove(out)
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0 or not os.path.exists(out):
        return None, (done.stderr.strip().splitlines() or ["?"])[-1][-110:]
    return np.fromfile(out, np.float32), ""


def features(c):
    """What differs from the defaults, on one line."""
    base, said = tm.Config(), []
    for key, value in vars(c).items():
        if value == getattr(base, key) or key == "seed":
            continue
        if isinstance(value, dict):
            value = {k: v[1] if isinstance(v, tuple) else v for k, v in value.items()}
        said.append("%s=%s" % (key, value))
    return " ".join(said)


def off(values, ref, exact):
    """The largest difference (for logits of a standard deviation of 3), or the root mean square
    over the standard deviation."""
    if exact:
        return np.abs(values - ref).max() / max(1.0, ref.std() / 3)
    return np.sqrt(((values - ref) ** 2).mean()) / ref.std()


def compare(program, c, scratch, with_llama):
    """Returns the line to print, and whether all is well."""
    model, ids_path, out = (os.path.join(scratch, n) for n in ("model.gguf", "ids.txt", "out.f32"))
    m = tm.build(c)
    m.write(model)
    dice = np.random.default_rng(c.seed)
    ids = dice.integers(0, c.vocab, dice.choice([5, 24, 90]))
    with open(ids_path, "w", encoding="utf-8") as f:
        f.write(" ".join(str(i) for i in ids))
    ref = Reference(c, m).logits(ids).ravel()
    ours, why = run(
        [
            program,
            "eval",
            "-m",
            model,
            "--tokens",
            ids_path,
            "--logits",
            out,
            "--kv",
            "f32",
            "--threads",
            "1",
        ],
        out,
    )
    if ours is None:
        return "REFUSED %s" % why, False
    exact = not c.types
    tolerance = TOLERANCE if exact else QUANTIZED_TOLERANCE
    d_ref = off(ours, ref, exact)
    line = "std %5.2f  float64 %.1e" % (ref.std(), d_ref)
    good = d_ref <= tolerance
    heeded = not any(key.startswith("expert_") or "clamp" in key for key in c.keys)
    if with_llama and heeded:
        theirs, why = run([sys.executable, "-c", LLAMA, model, ids_path, out], out)
        if theirs is None or len(theirs) != len(ours):
            line += "  llama.cpp -      "
        else:
            d = off(ours, theirs, exact)
            line += "  llama.cpp %.1e" % d
            good = good and d <= tolerance
    return line, good


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("program")
    p.add_argument("--n", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-llama", action="store_true")
    p.add_argument("--types", action="store_true", help="quantized weights, types at random")
    args = p.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for i in range(args.n):
            rng = random.Random(args.seed * 100003 + i)
            c = draw(rng)
            if args.types:
                quantize(rng, c)
            line, good = compare(args.program, c, scratch, not args.no_llama)
            bad += not good
            print("%s %3d %s  %s" % ("ok " if good else "BAD", i, line, features(c)), flush=True)
    print("%d of %d differ" % (bad, args.n))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
