"""Muon for the matrices inside the blocks, Adam for everything else.

Muon replaces a matrix's momentum by the nearest orthogonal matrix, so every direction moves at
the same rate; it needs about half the tokens of Adam at this size. Each expert's matrix is
orthogonalised for itself. State lives in plain tensors that two processes can share: a process
updates only the parameters that it owns.
"""

import torch

MOMENTUM = 0.95
BETAS = (0.9, 0.95)
EPS = 1e-10
WEIGHT_DECAY = 0.02
# Coefficients of the quintic iteration that drives singular values towards 1.
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def is_matrix(name):
    return ("attn_" in name or "_exps" in name) and "norm" not in name


def orthogonal(g):
    """Approximate U V^T of a batch of matrices, in bfloat16: precision is not the point here."""
    x = g.bfloat16()
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True).bfloat16() + 1e-7)
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x if wide else x.mT).float()


class Optimizer:
    def __init__(self, model, matrix_rate, other_rate):
        self.names, self.params = zip(*model.named_parameters())
        self.rates = [matrix_rate if is_matrix(n) else other_rate for n in self.names]
        self.first = [torch.zeros_like(p.data) for p in self.params]
        self.second = [None if is_matrix(n) else torch.zeros_like(p.data)
                       for n, p in zip(self.names, self.params)]

    def share_memory(self):
        for t in self.first + self.second:
            if t is not None:
                t.share_memory_()

    def owned(self, rank, world):
        """Indices of the parameters that a process updates; sizes come out about even."""
        load, mine = [0] * world, []
        for i in sorted(range(len(self.params)), key=lambda i: -self.params[i].numel()):
            least = load.index(min(load))
            load[least] += self.params[i].numel()
            if least == rank:
                mine.append(i)
        return mine

    @torch.no_grad()
    def update(self, index, gradient, step, scale):
        p, m = self.params[index].data, self.first[index]
        rate = self.rates[index] * scale
        if is_matrix(self.names[index]):
            m.lerp_(gradient, 1 - MOMENTUM)
            direction = orthogonal(gradient.lerp(m, MOMENTUM))
            rows, columns = p.shape[-2:]
            p.mul_(1 - rate * WEIGHT_DECAY)
            p.add_(direction, alpha=-rate * max(1.0, rows / columns) ** 0.5)
            return
        v = self.second[index]
        m.lerp_(gradient, 1 - BETAS[0])
        v.lerp_(gradient.square(), 1 - BETAS[1])
        m_hat = m / (1 - BETAS[0] ** step)
        v_hat = v / (1 - BETAS[1] ** step)
        p.add_(m_hat / (v_hat.sqrt() + EPS), alpha=-rate)

    def state(self):
        return {"first": self.first, "second": self.second}

    def load(self, state):
        for mine, theirs in zip(self.first + self.second, state["first"] + state["second"]):
            if mine is not None:
                mine.copy_(theirs)
