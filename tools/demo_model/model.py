"""The demo model: a small decoder of the shape that GGUF calls qwen3moe.

Names of parameters follow the GGUF tensors they become. The expert layer is written for a CPU:
tokens are sorted by expert, so that each expert is three plain matrix products over a contiguous
run of rows; nothing is padded and no token is dropped. The embedding table serves as output matrix
too ("tied"): with so few training tokens, both uses help each other.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    vocab: int = 4096
    width: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 32
    active: int = 4
    expert_ff: int = 128
    rope_base: float = 10000.0
    eps: float = 1e-6
    context: int = 1024


def working_type():
    """What matrix products run in; the residual stream itself stays float32."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


def rms_norm(x, weight, eps):
    x = x.float()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (x * scale * weight).to(working_type())


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


def rope_tables(length, head_dim, base):
    frequency = base ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angle = torch.arange(length).float()[:, None] * frequency
    return angle.cos(), angle.sin()


def apply_rope(x, cos, sin):
    """NEOX style: the first half of a head turns against the second half."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


ATTENTION_BLOCK = 256


def causal_attention(q, k, v):
    """Softmax attention in blocks of queries, each against the keys up to its own end.

    On this kind of processor plain bfloat16 products beat the library's fused kernel.
    """
    length = q.shape[-2]
    q = q * q.shape[-1] ** -0.5
    out = []
    for start in range(0, length, ATTENTION_BLOCK):
        end = min(start + ATTENTION_BLOCK, length)
        scores = q[..., start:end, :] @ k[..., :end, :].mT
        size = end - start
        scores[..., start:] += scores.new_full((size, size), -math.inf).triu(1)
        out.append(scores.softmax(-1) @ v[..., :end, :])
    return torch.cat(out, dim=-2) if len(out) > 1 else out[0]


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.attn_q = nn.Linear(c.width, c.heads * c.head_dim, bias=False)
        self.attn_k = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=False)
        self.attn_v = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=False)
        self.attn_output = nn.Linear(c.heads * c.head_dim, c.width, bias=False)
        self.attn_q_norm = RMSNorm(c.head_dim, c.eps)
        self.attn_k_norm = RMSNorm(c.head_dim, c.eps)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        split = lambda t, n: t.view(batch, length, n, self.c.head_dim).transpose(1, 2)
        q = self.attn_q_norm(split(self.attn_q(x), self.c.heads))
        k = self.attn_k_norm(split(self.attn_k(x), self.c.kv_heads))
        v = split(self.attn_v(x), self.c.kv_heads)
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        group = self.c.heads // self.c.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = causal_attention(q, k, v)
        return self.attn_output(y.transpose(1, 2).reshape(batch, length, -1))


class GroupedExperts(torch.autograd.Function):
    """SwiGLU experts over rows sorted by expert, with a hand-written backward pass.

    Written out because it lets every product write into one shared buffer: autograd's own record
    of some hundred small slices costs more than the arithmetic. Rows between the runs are zero.
    """

    @staticmethod
    def forward(ctx, x, gate, up, down, bounds):
        dtype = x.dtype
        gate, up, down = gate.to(dtype), up.to(dtype), down.to(dtype)
        g = x.new_zeros(x.shape[0], gate.shape[1])
        u = torch.zeros_like(g)
        y = x.new_zeros(x.shape[0], down.shape[1])
        for e, a, b in bounds:
            torch.mm(x[a:b], gate[e].t(), out=g[a:b])
            torch.mm(x[a:b], up[e].t(), out=u[a:b])
        h = F.silu(g) * u
        for e, a, b in bounds:
            torch.mm(h[a:b], down[e].t(), out=y[a:b])
        ctx.save_for_backward(x, gate, up, down, g, u, h)
        ctx.bounds = bounds
        return y

    @staticmethod
    def backward(ctx, dy):
        x, gate, up, down, g, u, h = ctx.saved_tensors
        dy = dy.contiguous()
        dh = torch.zeros_like(h)
        d_gate, d_up, d_down = (torch.zeros_like(w) for w in (gate, up, down))
        for e, a, b in ctx.bounds:
            torch.mm(dy[a:b], down[e], out=dh[a:b])
            torch.mm(dy[a:b].t(), h[a:b], out=d_down[e])
        sig = torch.sigmoid(g)
        du = dh * (g * sig)
        dg = dh * u * (sig * (1 + g * (1 - sig)))
        dx = torch.zeros_like(x)
        for e, a, b in ctx.bounds:
            torch.mm(dg[a:b], gate[e], out=dx[a:b])
            torch.addmm(dx[a:b], du[a:b], up[e], out=dx[a:b])
            torch.mm(dg[a:b].t(), x[a:b], out=d_gate[e])
            torch.mm(du[a:b].t(), x[a:b], out=d_up[e])
        return dx, d_gate.float(), d_up.float(), d_down.float(), None


ALIGN = 64


def aligned_bounds(counts):
    """(expert, first row, one past the last row) of every expert, in whole steps of ALIGN rows.

    The matrix library builds code for every new shape it meets, which takes longer than the
    product itself; with a few row counts that come again and again, it is built once.
    """
    bounds, start = [], 0
    for expert, count in enumerate(counts):
        size = -(-count // ALIGN) * ALIGN
        if size:
            bounds.append((expert, start, start + size))
        start += size
    return bounds, start


class Experts(nn.Module):
    """Softmax over all experts, the top few renormalised, as qwen3moe asks."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.ffn_gate_inp = nn.Linear(c.width, c.experts, bias=False)
        self.ffn_gate_exps = nn.Parameter(torch.empty(c.experts, c.expert_ff, c.width))
        self.ffn_up_exps = nn.Parameter(torch.empty(c.experts, c.expert_ff, c.width))
        self.ffn_down_exps = nn.Parameter(torch.empty(c.experts, c.width, c.expert_ff))
        self.chosen = None       # kept for routing statistics

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        with torch.autocast("cpu", enabled=False):
            logits = F.linear(x.float(), self.ffn_gate_inp.weight.float())
            probability = logits.softmax(-1)
        weight, chosen = probability.topk(self.c.active, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        self.chosen = chosen.detach()
        flat = chosen.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.c.experts)
        rows = order // self.c.active
        bounds, total = aligned_bounds(counts.tolist())
        padding = (-counts) % ALIGN
        place = torch.arange(len(order)) + (padding.cumsum(0) - padding)[flat[order]]
        packed = x.new_zeros(total, shape[-1]).index_copy(0, place, x[rows])
        y = GroupedExperts.apply(packed, self.ffn_gate_exps, self.ffn_up_exps,
                                 self.ffn_down_exps, bounds)
        y = y[place] * weight.reshape(-1)[order, None].to(y.dtype)
        out = torch.zeros_like(x).index_add_(0, rows, y)
        return out.view(shape), balance_loss(probability, counts), z_loss(logits)


def balance_loss(probability, counts):
    """Experts x sum of (share of choices x mean probability): 1 when the load is even."""
    share = counts.float() / counts.sum()
    return counts.numel() * (share * probability.mean(0)).sum()


def z_loss(logits):
    """Keeps the router's scores small, so that the softmax stays away from saturation."""
    return logits.logsumexp(-1).pow(2).mean()


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attn_norm = RMSNorm(c.width, c.eps)
        self.attn = Attention(c)
        self.ffn_norm = RMSNorm(c.width, c.eps)
        self.ffn = Experts(c)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.attn_norm(x), cos, sin)
        y, balance, z = self.ffn(self.ffn_norm(x))
        return x + y, balance, z


class HeadLoss(torch.autograd.Function):
    """Mean cross entropy of softmax(x W^T), a thousand rows at a time.

    The gradients are made on the way forward, so that the big table of logits never exists whole.
    """

    ROWS = 1024

    @staticmethod
    def forward(ctx, x, weight, targets):
        w = weight.to(x.dtype)
        dx, dw = torch.empty_like(x), torch.zeros_like(weight)
        total = 0.0
        for start in range(0, len(x), HeadLoss.ROWS):
            part = x[start:start + HeadLoss.ROWS]
            aim = targets[start:start + HeadLoss.ROWS, None]
            logits = (part @ w.t()).float()
            norm = logits.logsumexp(-1, keepdim=True)
            total += (norm - logits.gather(1, aim)).sum()
            logits.sub_(norm).exp_().scatter_add_(1, aim, -torch.ones_like(norm))
            slope = logits.to(x.dtype)
            dx[start:start + HeadLoss.ROWS] = slope @ w
            dw += slope.t() @ part
        ctx.save_for_backward(dx, dw)
        ctx.count = len(x)
        return total / len(x)

    @staticmethod
    def backward(ctx, scale):
        dx, dw = ctx.saved_tensors
        scale = scale / ctx.count
        return dx * scale.to(dx.dtype), dw * scale, None


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.token_embd = nn.Embedding(c.vocab, c.width)
        self.blk = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.output_norm = RMSNorm(c.width, c.eps)
        cos, sin = rope_tables(c.context, c.head_dim, c.rope_base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.reset()

    def reset(self):
        depth = 1 / math.sqrt(2 * self.c.layers)
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            spread = 0.5 / math.sqrt(p.shape[-1])
            if "attn_output" in name or "ffn_down" in name:
                spread *= depth
            if "token_embd" in name:
                spread = 0.05
            nn.init.normal_(p, std=spread)

    def hidden(self, tokens):
        """Final normed states, and the sums over layers of the two router losses."""
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.token_embd(tokens)
        balance, z = 0.0, 0.0
        for block in self.blk:
            x, one_balance, one_z = block(x, cos, sin)
            balance, z = balance + one_balance, z + one_z
        return self.output_norm(x), balance, z

    def forward(self, tokens):
        x, _, _ = self.hidden(tokens)
        return F.linear(x, self.token_embd.weight)

    def loss(self, tokens, targets, balance_weight, z_weight):
        """(training loss, cross entropy in nats, balance loss a layer)."""
        x, balance, z = self.hidden(tokens)
        ce = HeadLoss.apply(x.reshape(-1, self.c.width), self.token_embd.weight,
                            targets.reshape(-1))
        total = ce + balance_weight * balance + z_weight * z
        return total, ce.detach(), (balance / self.c.layers).detach()

    def parameter_counts(self):
        """(all, used for one token). The embedding table is also the output matrix."""
        everything = sum(p.numel() for p in self.parameters())
        experts = sum(p.numel() for n, p in self.named_parameters() if "exps" in n)
        idle = experts * (1 - self.c.active / self.c.experts)
        return everything, int(everything - idle)
