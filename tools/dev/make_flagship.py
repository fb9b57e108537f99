#!/usr/bin/env python3
"""A model of Qwen3.6-35B-A3B's exact shape with random weights, for measuring at full size.

    make_flagship.py OUT.gguf                             all 40 layers: 16.4 GB
    make_flagship.py OUT.gguf --layers 4                  a small one: 2.5 GB
    make_flagship.py OUT.gguf --layers 4 --experts 16 --vocab 4096       0.25 GB

Metadata, names and types are those of a file that people have (qwen35moe, as llama.cpp's converter
and quantizer write it): experts Q3_K, attention, DeltaNet and shared experts Q8_0, output matrix
Q6_K, embedding Q8_0, routers and norms F32. So arithmetic and reads cost what they cost on the real
one, while the text is noise.

Weights are random codes under fixed scales, each matrix with the gain that keeps activations near
1 through all layers. Routers whose rows are merely random would use all experts alike; here an
expert's popularity falls with its rank, and each of eight groups of token ids ("topics") prefers
other experts and is followed by its own kind, so that a cache has something to find: with 10 and
30 % of the experts of 8 layers in memory, some 100 sampled tokens hit 59 and 77 % (2026-11), while
a trace of Kimi-Linear (256 experts, 8 chosen) hits 57 and 78. DeltaNet heads forget within a token
up to within five hundred, spread evenly in logarithm.

The vocabulary has 248,320 entries: bytes, merges of likely letters up to the number that the real
one has, the special tokens at their real ids, and unused ones. --template adds a chat template.

Writes tensor by tensor, in 0.4 GB of memory. Needs numpy and gguf (PyPI).
"""

import argparse

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
F = np.float32
ARCH = "qwen35moe"
WIDTH, N_HEADS, N_KV_HEADS, HEAD, ROTARY, INTERVAL = 2048, 16, 2, 256, 64, 4
EXPERT_FF, SHARED_FF, TOP_K = 512, 512, 8
K_HEADS, V_HEADS, STATE, CONV = 16, 32, 128, 4
VOCAB, N_TEXT = 248320, 248044  # the first special token comes after the texts
TOPICS = 8
CHUNK = 16 << 20  # weights made at a time
SPECIAL = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|>
<|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|>
<|vision_pad|> <|image_pad|> <|video_pad|>""".split()
ADDED = """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|>
<|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>""".split()


# ---- weights -------------------------------------------------------------------------------------


def half_bytes(x):
    return np.frombuffer(np.float16(x).tobytes(), np.uint8)


def random_blocks(rng, kind, n_weights, std):
    """Valid blocks of a type, as one array of bytes; their values have that standard deviation."""
    per, size = gguf.GGML_QUANT_SIZES[kind]
    b = np.frombuffer(rng.bytes(n_weights // per * size), np.uint8).reshape(-1, size).copy()
    if kind == T.Q8_0:  # d * -128..127
        b[:, :2] = half_bytes(std / 73.9)
    else:  # Q3_K: d * -32..31 * -4..3, scales as they come
        assert kind == T.Q3_K
        b[:, 108:] = half_bytes(std / 43.3)
    return b


def q6_k(x, limit):
    """Rows of floats in Q6_K, all blocks with one scale, cut off at limit."""
    d = np.float16(limit / (32 * 32))
    q = (np.clip(np.rint(x / (F(d) * 32)), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    b = np.full((len(q), 210), 32, np.uint8)
    low, high = q & 15, q >> 4
    b[:, :128] = (low[:, :, :2] | low[:, :, 2:] << 4).reshape(-1, 128)
    b[:, 128:192] = sum(high[:, :, i] << 2 * i for i in range(4)).reshape(-1, 64)
    b[:, 208:] = half_bytes(d)
    return b


def bf16(x):
    """Values that BF16 holds, which is what converted models have, as float32."""
    bits = np.ascontiguousarray(x, F).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(F)


class Tensor:
    """A name, a shape (rows first), a type, and a generator of its bytes in pieces."""

    def __init__(self, name, shape, kind, pieces):
        self.name, self.shape, self.kind, self.pieces = name, shape, kind, pieces

    def bytes(self):
        per, size = gguf.GGML_QUANT_SIZES[self.kind]
        return int(np.prod(self.shape)) // per * size

    def announce(self, writer):
        per, size = gguf.GGML_QUANT_SIZES[self.kind]
        if self.kind == T.F32:
            writer.add_tensor_info(self.name, self.shape, np.dtype(F), self.bytes())
            return
        raw = self.shape[:-1] + (self.shape[-1] // per * size,)
        writer.add_tensor_info(self.name, raw, np.dtype(np.uint8), self.bytes(), self.kind)


class Model:
    def __init__(self, args):
        self.args = args
        self.rng = np.random.default_rng(args.seed)
        self.residual = 0.7 / np.sqrt(
            args.layers
        )  # the embedding's directions reach the last layer
        self.common = self.rng.standard_normal(WIDTH, F)
        self.topics = self.rng.standard_normal((TOPICS, WIDTH), F)
        self.tensors = []
        self.add_all()

    def random(self, name, shape, kind, gain=1.0):
        """Rows that turn inputs of deviation 1 into outputs of deviation gain."""
        n, std = int(np.prod(shape)), gain / np.sqrt(shape[-1])

        def pieces():
            for at in range(0, n, CHUNK):
                yield random_blocks(self.rng, kind, min(CHUNK, n - at), std)

        self.tensors.append(Tensor(name, shape, kind, pieces))

    def exact(self, name, values):
        """Few floats, made at once."""
        values = np.ascontiguousarray(values, F)
        self.tensors.append(Tensor(name, values.shape, T.F32, lambda: iter([values])))

    def norm(self, name, n):
        self.exact(name, bf16(1 + 0.05 * self.rng.standard_normal(n)))

    def by_token(self, own, topic):
        """A row a token, some thousands at a time: of its own, and its topic's."""
        step = CHUNK // WIDTH
        for first in range(0, self.args.vocab, step):
            ids = np.arange(first, min(first + step, self.args.vocab))
            x = self.rng.standard_normal((len(ids), WIDTH), F) * F(own)
            yield x + F(topic) * self.topics[ids % TOPICS]

    def embedding(self):
        for x in self.by_token(0.707, 0.5):
            yield gguf.quants.quantize(x + F(0.5) * self.common, T.Q8_0)

    def output(self):
        """Logits of deviation 3, and a topic's tokens above those of others."""
        for x in self.by_token(3 / np.sqrt(WIDTH), self.args.stay / WIDTH):
            yield q6_k(x, 12 / np.sqrt(WIDTH))

    def router(self):
        n = self.args.experts
        popularity = -self.args.skew * np.log(self.rng.permutation(n) + 1)
        topical = self.args.topic * self.rng.standard_normal((n, TOPICS))
        own = self.args.noise / np.sqrt(WIDTH) * self.rng.standard_normal((n, WIDTH))
        return bf16((popularity[:, None] * self.common + topical @ self.topics) / WIDTH + own)

    def add_attention(self, b):
        self.random(b + "attn_q.weight", (2 * N_HEADS * HEAD, WIDTH), T.Q8_0)  # and its gate
        self.random(b + "attn_k.weight", (N_KV_HEADS * HEAD, WIDTH), T.Q8_0)
        self.random(b + "attn_v.weight", (N_KV_HEADS * HEAD, WIDTH), T.Q8_0)
        shape, gain = (WIDTH, N_HEADS * HEAD), 2 * self.residual
        self.random(b + "attn_output.weight", shape, T.Q8_0, gain)
        self.norm(b + "attn_q_norm.weight", HEAD)
        self.norm(b + "attn_k_norm.weight", HEAD)

    def add_deltanet(self, b):
        inner, channels = V_HEADS * STATE, (2 * K_HEADS + V_HEADS) * STATE
        taps = 0.3 * self.rng.standard_normal((channels, CONV)) + (np.arange(CONV) == CONV - 1)
        decay = np.exp(self.rng.uniform(np.log(0.002), np.log(2), V_HEADS))
        self.random(b + "attn_qkv.weight", (channels, WIDTH), T.Q8_0)
        self.random(b + "attn_gate.weight", (inner, WIDTH), T.Q8_0)
        self.exact(b + "ssm_conv1d.weight", bf16(taps))
        self.exact(b + "ssm_dt.bias", bf16(0.3 * self.rng.standard_normal(V_HEADS)))
        self.exact(b + "ssm_a", -decay)
        self.random(b + "ssm_beta.weight", (V_HEADS, WIDTH), T.Q8_0)
        self.random(b + "ssm_alpha.weight", (V_HEADS, WIDTH), T.Q8_0)
        self.norm(b + "ssm_norm.weight", STATE)
        self.random(b + "ssm_out.weight", (WIDTH, inner), T.Q8_0, 2 * self.residual)

    def add_experts(self, b):
        n = self.args.experts
        self.exact(b + "ffn_gate_inp.weight", self.router())
        self.random(b + "ffn_gate_exps.weight", (n, EXPERT_FF, WIDTH), T.Q3_K)
        self.random(b + "ffn_up_exps.weight", (n, EXPERT_FF, WIDTH), T.Q3_K)
        shape, gain = (n, WIDTH, EXPERT_FF), 4 * self.residual
        self.random(b + "ffn_down_exps.weight", shape, T.Q3_K, gain)
        gate = self.rng.standard_normal(WIDTH) / np.sqrt(WIDTH)
        self.exact(b + "ffn_gate_inp_shexp.weight", bf16(gate))
        self.random(b + "ffn_gate_shexp.weight", (SHARED_FF, WIDTH), T.Q8_0)
        self.random(b + "ffn_up_shexp.weight", (SHARED_FF, WIDTH), T.Q8_0)
        shape, gain = (WIDTH, SHARED_FF), 4 * self.residual
        self.random(b + "ffn_down_shexp.weight", shape, T.Q8_0, gain)

    def add_all(self):
        vocab = self.args.vocab
        shape = (vocab, WIDTH)
        self.tensors.append(Tensor("token_embd.weight", shape, T.Q8_0, self.embedding))
        self.norm("output_norm.weight", WIDTH)
        self.tensors.append(Tensor("output.weight", shape, T.Q6_K, self.output))
        for i in range(self.args.layers):
            b = "blk.%d." % i
            self.norm(b + "attn_norm.weight", WIDTH)
            self.norm(b + "post_attention_norm.weight", WIDTH)
            if (i + 1) % INTERVAL:
                self.add_deltanet(b)
            else:
                self.add_attention(b)
            self.add_experts(b)


# ---- metadata ------------------------------------------------------------------------------------


def add_shape(w, args):
    for key, value in (
        ("block_count", args.layers),
        ("context_length", 262144),
        ("embedding_length", WIDTH),
        ("attention.head_count", N_HEADS),
        ("attention.head_count_kv", N_KV_HEADS),
        ("attention.key_length", HEAD),
        ("attention.value_length", HEAD),
        ("expert_count", args.experts),
        ("expert_used_count", min(TOP_K, args.experts)),
        ("expert_feed_forward_length", EXPERT_FF),
        ("expert_shared_feed_forward_length", SHARED_FF),
        ("ssm.conv_kernel", CONV),
        ("ssm.state_size", STATE),
        ("ssm.group_count", K_HEADS),
        ("ssm.time_step_rank", V_HEADS),
        ("ssm.inner_size", V_HEADS * STATE),
        ("full_attention_interval", INTERVAL),
        ("rope.dimension_count", ROTARY),
    ):
        w.add_uint32("%s.%s" % (ARCH, key), value)
    w.add_array(ARCH + ".rope.dimension_sections", [11, 11, 10, 0])
    w.add_float32(ARCH + ".rope.freq_base", 1e7)
    w.add_float32(ARCH + ".attention.layer_norm_rms_epsilon", 1e-6)


def byte_characters():
    """How byte-level BPE writes the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


def make_texts(n, rng):
    """n texts and the merges that make them: pairs of earlier ones, likely letters first."""
    texts = byte_characters()[:n]
    likely = [*"etaoinshrdlcumwfgypbvk", "\u0120", *"EATIS.,-:0123"]
    known, merges = set(texts), []
    while len(texts) < n:
        recent = len(texts) - 256
        for u, v, z in rng.random((4096, 3)):
            end = likely[int(v * v * len(likely))]
            old = texts[256 + int(u * recent)] if recent and z < 0.8 else None
            start = old if old else likely[int(u * u * len(likely))]
            if z < 0.1 and recent:
                end = texts[256 + int(v * recent)]
            if start + end in known or len(start + end) > 14 or len(texts) == n:
                continue
            known.add(start + end)
            texts.append(start + end)
            merges.append(start + " " + end)
    return texts, merges


def add_vocab(w, args, rng):
    n_special = len(SPECIAL) + len(ADDED)
    n_text = min(N_TEXT, args.vocab - n_special)
    texts, merges = make_texts(n_text, rng)
    unused = ["[PAD%d]" % i for i in range(n_text + n_special, args.vocab)]
    kinds = [1] * n_text + [3] * len(SPECIAL) + [4] * len(ADDED) + [5] * len(unused)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(texts + SPECIAL + ADDED + unused)
    w.add_token_types(kinds)
    w.add_token_merges(merges)
    w.add_bos_token_id(n_text)
    w.add_eos_token_id(n_text + 2)
    w.add_pad_token_id(n_text)
    w.add_add_bos_token(False)
    if args.template:
        with open(args.template, encoding="utf-8") as f:
            w.add_chat_template(f.read())


# ---- writing -------------------------------------------------------------------------------------


def write(args):
    model = Model(args)
    total = sum(t.bytes() for t in model.tensors)
    w = gguf.GGUFWriter(args.out, ARCH)
    w.add_type("model")
    w.add_name("random weights in the shape of Qwen3.6-35B-A3B, %d layers" % args.layers)
    w.add_quantization_version(2)
    w.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q3_K_M))
    add_shape(w, args)
    add_vocab(w, args, np.random.default_rng(args.seed + 1))
    for t in model.tensors:
        t.announce(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    done, out = 0, w.fout[0]
    w.write_padding(out, out.tell())
    for t in model.tensors:
        n = 0
        for piece in t.pieces():
            piece.tofile(out)
            n += piece.nbytes
        assert n == t.bytes(), t.name
        w.write_padding(out, n)
        done += n
        if t.name.endswith("ffn_gate_inp.weight"):
            print("%.1f of %.1f GB" % (done / 1e9, total / 1e9), flush=True)
    w.close()
    print("%s: %.2f GB" % (args.out, total / 1e9))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", metavar="OUT.gguf")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--template", metavar="FILE", help="a chat template in Jinja")
    parser.add_argument("--skew", type=float, default=1.0, help="how much popularity decides")
    parser.add_argument("--topic", type=float, default=2.0, help="how much topics decide")
    parser.add_argument("--noise", type=float, default=1.0, help="how much single tokens decide")
    parser.add_argument("--stay", type=float, default=12.0, help="how much topics stay")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.layers < INTERVAL or args.experts < 1 or args.vocab < 512:
        parser.error("wanted at least %d layers, an expert, and 512 tokens" % INTERVAL)
    write(args)


if __name__ == "__main__":
    main()
