"""Tiny random GGUF models for tests: any architecture the engine knows, any feature, and any
damage. Standard library only.

    model = build(Config(arch="qwen3moe", n_expert=3, top_k=3))
    model.keys["qwen3moe.rope.freq_base"] = (F32, float("nan"))      # damage
    model.write("/tmp/x.gguf")

Weights are drawn from a seeded generator, scaled so that logits have a standard deviation of
about 3. Quantized types hold random codes with sensible scales; nothing is quantized from
floats. The vocabulary is 256 bytes and fillers."""

import array
import dataclasses
import math
import random
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
_PACK = {
    U8: "<B",
    I8: "<b",
    U16: "<H",
    I16: "<h",
    U32: "<I",
    I32: "<i",
    F32: "<f",
    BOOL: "<B",
    U64: "<Q",
    I64: "<q",
    F64: "<d",
}

# name: (number, elements of a block, bytes of it, offsets of half-precision scales, of minima)
TYPES = {
    "F32": (0, 1, 4, (), ()),
    "F16": (1, 1, 2, (), ()),
    "BF16": (30, 1, 2, (), ()),
    "Q4_0": (2, 32, 18, (0,), ()),
    "Q4_1": (3, 32, 20, (0,), (2,)),
    "Q5_0": (6, 32, 22, (0,), ()),
    "Q5_1": (7, 32, 24, (0,), (2,)),
    "Q8_0": (8, 32, 34, (0,), ()),
    "Q2_K": (10, 256, 84, (80,), (82,)),
    "Q3_K": (11, 256, 110, (108,), ()),
    "Q4_K": (12, 256, 144, (0,), (2,)),
    "Q5_K": (13, 256, 176, (0,), (2,)),
    "Q6_K": (14, 256, 210, (208,), ()),
    "IQ4_NL": (20, 32, 18, (0,), ()),
    "IQ4_XS": (23, 256, 136, (0,), ()),
}
# what a code of the type is worth at most, times its scale: keeps weights near 1 / sqrt(columns)
_REACH = {
    "Q4_0": 8,
    "Q4_1": 8,
    "Q5_0": 16,
    "Q5_1": 16,
    "Q8_0": 127,
    "Q2_K": 24,
    "Q3_K": 64,
    "Q4_K": 480,
    "Q5_K": 960,
    "Q6_K": 2048,
    "IQ4_NL": 100,
    "IQ4_XS": 2000,
}


# families whose attention has a gate, and a few other names of tensors
GATED = ("qwen3next", "qwen35moe")


def pack_string(s):
    b = s.encode("utf-8") if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def pack_value(kind, value):
    if kind == STR:
        return pack_string(value)
    if kind == ARR:
        elem, items = value
        return struct.pack("<IQ", elem, len(items)) + b"".join(pack_value(elem, v) for v in items)
    return struct.pack(_PACK[kind], value)


@dataclasses.dataclass
class Tensor:
    """dims[0] is contiguous; data may be damaged at will."""

    name: str
    dims: list
    type: str
    data: bytes


class Model:
    """Metadata and tensors in file order, open to damage before write()."""

    def __init__(self):
        self.keys, self.tensors, self.align = {}, [], 32

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name)

    def drop(self, name):
        self.tensors = [t for t in self.tensors if t.name != name]

    def bytes(self):
        head = [b"GGUF", struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))]
        for key, (kind, value) in self.keys.items():
            head += [pack_string(key), struct.pack("<I", kind), pack_value(kind, value)]
        at, placed = 0, []
        for t in self.tensors:
            head += [
                pack_string(t.name),
                struct.pack("<I", len(t.dims)),
                struct.pack("<%dQ" % len(t.dims), *t.dims),
                struct.pack("<IQ", TYPES[t.type][0], at),
            ]
            pad = -len(t.data) % self.align
            placed.append(t.data + bytes(pad))
            at += len(t.data) + pad
        blob = b"".join(head)
        self.header_bytes = len(blob)
        return blob + bytes(-len(blob) % self.align) + b"".join(placed)

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes())
        return path


@dataclasses.dataclass
class Config:
    """Zero means: not there, or the usual (head_k: width / heads)."""

    arch: str = "llama"
    n_layer: int = 2
    n_embd: int = 64
    n_head: int = 4
    n_kv: int = 2
    head_k: int = 0
    head_v: int = 0
    n_ff: int = 96
    n_expert: int = 0
    top_k: int = 2
    ff_exp: int = 32
    ff_shared: int = 0
    shared_gate: bool = False
    select_bias: bool = False
    vocab: int = 300
    n_ctx: int = 128
    eps: float = 1e-5
    type: str = "F32"
    types: dict = dataclasses.field(default_factory=dict)  # by the end of a tensor's name
    tied: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    ffn_bias: bool = False
    fused_qkv: bool = False
    fused_gate_up: bool = False
    single_experts: bool = False
    n_rot: int = -1
    k_heads: int = 0  # > 0: gated DeltaNet, but for every interval-th layer
    v_heads: int = 4
    state: int = 16  # elements of a key head and of a value head
    taps: int = 4
    interval: int = 4
    by_head: bool = False  # q, k, v and the gate in one tensor, as early files have them
    nextn: int = 0  # layers after the others, for multi-token prediction
    freq_base: float = 10000.0
    rope_freqs: bool = False
    rope_keys: dict = dataclasses.field(default_factory=dict)  # after "<arch>.rope.scaling."
    keys: dict = dataclasses.field(default_factory=dict)  # after "<arch>."
    seed: int = 1


class _Builder:
    def __init__(self, c):
        self.c, self.m, self.rng = c, Model(), random.Random(c.seed)

    def floats(self, n, mean, sd):
        r = self.rng
        half = sd * math.sqrt(3)
        return array.array("f", [mean + r.uniform(-half, half) for _ in range(n)])

    def encode(self, kind, n, mean, sd):
        if kind == "F32":
            return self.floats(n, mean, sd).tobytes()
        if kind == "F16":
            return struct.pack("<%de" % n, *self.floats(n, mean, sd))
        if kind == "BF16":
            raw = self.floats(n, mean, sd).tobytes()
            return b"".join(raw[i + 2 : i + 4] for i in range(0, len(raw), 4))
        _, cols, size, scales, minima = TYPES[kind]
        out = bytearray(self.rng.randbytes(n // cols * size))
        for at in range(0, len(out), size):
            d = sd * 1.7 / _REACH[kind] * self.rng.uniform(0.7, 1.3)
            for o in scales:
                out[at + o : at + o + 2] = struct.pack("<e", d)
            for o in minima:
                m = -d * _REACH[kind] if kind in ("Q4_1", "Q5_1") else d * 8
                out[at + o : at + o + 2] = struct.pack("<e", m)
        return bytes(out)

    def add(self, name, dims, sd=None, mean=0.0):
        small = len(dims) == 1 or "gate_inp" in name or "conv1d" in name
        kind = "F32" if small else self.c.type
        for end, other in self.c.types.items():
            if end in name:
                kind = other
        if dims[0] % TYPES[kind][1]:
            kind = "F32"
        n = math.prod(dims)
        sd = 1.0 / math.sqrt(dims[0]) if sd is None else sd
        self.m.tensors.append(Tensor(name, list(dims), kind, self.encode(kind, n, mean, sd)))

    def norm(self, name, n):
        self.add(name, [n], 0.2, 1.0)

    def bias(self, wanted, name, n):
        if wanted:
            self.add(name, [n], 0.3)

    # ---- metadata ----------------------------------------------------------------------------

    def metadata(self):
        c, k = self.c, self.m.keys
        k["general.architecture"] = (STR, c.arch)
        k["general.name"] = (STR, "tiny")
        a = c.arch + "."
        k[a + "block_count"] = (U32, c.n_layer + c.nextn)
        k[a + "context_length"] = (U32, c.n_ctx)
        k[a + "embedding_length"] = (U32, c.n_embd)
        of_experts = c.arch in ("olmoe", "granitemoe") or (c.arch == "llama" and c.n_expert)
        k[a + "feed_forward_length"] = (U32, c.ff_exp if of_experts else c.n_ff)
        k[a + "attention.head_count"] = (U32, c.n_head)
        k[a + "attention.head_count_kv"] = (U32, c.n_kv)
        k[a + "attention.layer_norm_rms_epsilon"] = (F32, c.eps)
        if c.head_k:
            k[a + "attention.key_length"] = (U32, c.head_k)
        if c.head_v:
            k[a + "attention.value_length"] = (U32, c.head_v)
        k[a + "rope.freq_base"] = (F32, c.freq_base)
        if c.n_rot >= 0:
            k[a + "rope.dimension_count"] = (U32, c.n_rot)
        if c.n_expert:
            k[a + "expert_count"] = (U32, c.n_expert)
            k[a + "expert_used_count"] = (U32, c.top_k)
            k[a + "expert_feed_forward_length"] = (U32, c.ff_exp)
        if c.ff_shared:
            k[a + "expert_shared_feed_forward_length"] = (U32, c.ff_shared)
        if c.nextn:
            k[a + "nextn_predict_layers"] = (U32, c.nextn)
        if c.k_heads:
            k[a + "ssm.conv_kernel"] = (U32, c.taps)
            k[a + "ssm.state_size"] = (U32, c.state)
            k[a + "ssm.group_count"] = (U32, c.k_heads)
            k[a + "ssm.time_step_rank"] = (U32, c.v_heads)
            k[a + "ssm.inner_size"] = (U32, c.v_heads * c.state)
            k[a + "full_attention_interval"] = (U32, c.interval)
        for key, value in c.rope_keys.items():
            k[a + "rope.scaling." + key] = value
        for key, value in c.keys.items():
            k[a + key] = value
        self.vocabulary()

    def vocabulary(self):
        """256 bytes in GPT-2's spelling, fillers, and <eos> last."""
        k, c = self.m.keys, self.c
        plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
        odd = [b for b in range(256) if b not in plain]
        spell = {b: chr(b) for b in plain}
        spell.update({b: chr(256 + i) for i, b in enumerate(odd)})
        tokens = [spell[b] for b in range(256)][: c.vocab - 1]
        tokens += ["filler%d" % i for i in range(len(tokens), c.vocab - 1)] + ["<eos>"]
        k["tokenizer.ggml.model"] = (STR, "gpt2")
        k["tokenizer.ggml.pre"] = (STR, "qwen2")
        k["tokenizer.ggml.tokens"] = (ARR, (STR, tokens))
        k["tokenizer.ggml.token_type"] = (ARR, (I32, [1] * (c.vocab - 1) + [3]))
        k["tokenizer.ggml.merges"] = (ARR, (STR, []))
        k["tokenizer.ggml.eos_token_id"] = (U32, c.vocab - 1)
        k["tokenizer.ggml.bos_token_id"] = (U32, c.vocab - 1)
        k["tokenizer.ggml.add_bos_token"] = (BOOL, 0)

    # ---- tensors -----------------------------------------------------------------------------

    def attention(self, b):
        c = self.c
        hk, hv = c.head_k or c.n_embd // c.n_head, c.head_v or c.n_embd // c.n_head
        gated = c.arch in GATED
        q, k, v = c.n_head * hk * (2 if gated else 1), c.n_kv * hk, c.n_kv * hv
        self.norm(b + "attn_norm.weight", c.n_embd)
        if c.fused_qkv:
            self.add(b + "attn_qkv.weight", [c.n_embd, q + k + v])
            self.bias(c.qkv_bias, b + "attn_qkv.bias", q + k + v)
        else:
            for name, n in (("q", q), ("k", k), ("v", v)):
                self.add(b + "attn_%s.weight" % name, [c.n_embd, n])
                self.bias(c.qkv_bias, b + "attn_%s.bias" % name, n)
        self.add(b + "attn_output.weight", [c.n_head * hv, c.n_embd])
        self.bias(c.o_bias, b + "attn_output.bias", c.n_embd)
        if gated or c.arch in ("qwen3", "qwen3moe", "olmoe"):
            self.norm(b + "attn_q_norm.weight", q if c.arch == "olmoe" else hk)
            self.norm(b + "attn_k_norm.weight", k if c.arch == "olmoe" else hk)

    def deltanet(self, b):
        c = self.c
        values, channels = c.v_heads * c.state, (2 * c.k_heads + c.v_heads) * c.state
        self.norm(b + "attn_norm.weight", c.n_embd)
        if c.by_head:
            self.add(b + "ssm_in.weight", [c.n_embd, channels + values])
        else:
            self.add(b + "attn_qkv.weight", [c.n_embd, channels])
            self.add(b + "attn_gate.weight", [c.n_embd, values])
        if c.arch == "qwen3next":
            self.add(b + "ssm_ba.weight", [c.n_embd, 2 * c.v_heads])
        else:
            self.add(b + "ssm_beta.weight", [c.n_embd, c.v_heads])
            self.add(b + "ssm_alpha.weight", [c.n_embd, c.v_heads])
        self.add(b + "ssm_conv1d.weight", [c.taps, channels])
        self.add(b + "ssm_dt.bias", [c.v_heads], 0.5)
        self.add(b + "ssm_a", [c.v_heads], 0.1, -0.5)
        self.norm(b + "ssm_norm.weight", c.state)
        self.add(b + "ssm_out.weight", [values, c.n_embd])

    def dense(self, b, suffix, n_ff, biases):
        for name, dims in (
            ("gate", [self.c.n_embd, n_ff]),
            ("up", [self.c.n_embd, n_ff]),
            ("down", [n_ff, self.c.n_embd]),
        ):
            self.add(b + "ffn_%s%s.weight" % (name, suffix), dims)
            self.bias(biases, b + "ffn_%s%s.bias" % (name, suffix), dims[1])

    def experts(self, b):
        c = self.c
        self.add(b + "ffn_gate_inp.weight", [c.n_embd, c.n_expert], 2.0 / math.sqrt(c.n_embd))
        self.bias(c.select_bias, b + "exp_probs_b.bias", c.n_expert)
        parts = [
            ("gate", [c.n_embd, c.ff_exp]),
            ("up", [c.n_embd, c.ff_exp]),
            ("down", [c.ff_exp, c.n_embd]),
        ]
        if c.fused_gate_up:
            parts = [("gate_up", [c.n_embd, 2 * c.ff_exp]), parts[2]]
        for name, dims in parts:
            if c.single_experts:
                for x in range(c.n_expert):
                    self.add(b + "ffn_%s.%d.weight" % (name, x), dims)
            else:
                self.add(b + "ffn_%s_exps.weight" % name, dims + [c.n_expert])
        if c.ff_shared:
            self.dense(b, "_shexp", c.ff_shared, False)
            if c.shared_gate:
                self.add(b + "ffn_gate_inp_shexp.weight", [c.n_embd])

    def layer(self, l):
        c, b = self.c, "blk.%d." % l
        if c.k_heads and l < c.n_layer and (l + 1) % c.interval:
            self.deltanet(b)
        else:
            self.attention(b)
        self.norm(
            b + ("post_attention_norm" if c.arch in GATED else "ffn_norm") + ".weight", c.n_embd
        )
        if c.n_expert:
            self.experts(b)
        else:
            self.dense(b, "", c.n_ff, c.ffn_bias)
        if l >= c.n_layer:
            self.add(b + "nextn.eh_proj.weight", [2 * c.n_embd, c.n_embd])
            self.norm(b + "nextn.enorm.weight", c.n_embd)
            self.norm(b + "nextn.hnorm.weight", c.n_embd)

    def build(self):
        c = self.c
        self.metadata()
        self.add("token_embd.weight", [c.n_embd, c.vocab], 1.0)
        self.norm("output_norm.weight", c.n_embd)
        if not c.tied:
            self.add("output.weight", [c.n_embd, c.vocab], 3.0 / math.sqrt(c.n_embd))
        if c.rope_freqs:
            n_rot = c.n_rot if c.n_rot >= 0 else (c.head_k or c.n_embd // c.n_head)
            data = array.array(
                "f", [1.0 + 7.0 * self.rng.random() for _ in range(n_rot // 2)]
            ).tobytes()
            self.m.tensors.append(Tensor("rope_freqs.weight", [n_rot // 2], "F32", data))
        for l in range(c.n_layer + c.nextn):
            self.layer(l)
        return self.m


def build(config):
    return _Builder(config).build()
