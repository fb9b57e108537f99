#!/usr/bin/env python3
"""Trains the demo model on a CPU.

    python3 train.py --work WORK --tokens N        after data.py; goes on from WORK/checkpoint.pt
    python3 train.py --smoke                       one minute, no network, throw-away folder

Two processes of one thread each share the weights and split every batch: on a busy machine this
is much faster than two threads inside one process, which wait for each other at every product.

The learning rate warms up, stays, and falls to zero over the last quarter. With --finish-by the
length is not fixed: the fall begins when it must so that training ends by that time; the token
counts that came out are in WORK/run.json, and --tokens with the same number repeats the run.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.multiprocessing as mp

import data
from model import Config, Model
from optimizer import Optimizer

SEED = 20
WORLD = 2
MIX = {"prose": 0.40, "code": 0.16, "manual": 0.16, "spanish": 0.12, "reference": 0.10,
       "chat": 0.06}
FALL_MIX = {"prose": 0.37, "code": 0.15, "manual": 0.15, "spanish": 0.11, "reference": 0.08,
            "chat": 0.14}        # while the rate falls: what comes last is remembered best
BATCH_TOKENS = 8192              # of both processes together
PART_TOKENS = 4096               # one forward and backward pass of one process
WARMUP_TOKENS = 400_000
DECAY_SHARE = 0.25
# Short contexts first: attention is a third of the work at 512 and buys little early on.
CONTEXTS = ((0, 256), (2_500_000, 512))
DECAY_CONTEXT = 1024
MATRIX_RATE, OTHER_RATE = 0.02, 0.004
BALANCE_WEIGHT, Z_WEIGHT = 0.01, 0.0005   # a layer
CHECKPOINT_SECONDS = 240
EVALUATE_EVERY = 1_000_000       # tokens
EVALUATE_WINDOWS = 12            # of 512 tokens, a kind
GOLDEN = 0.6180339887498949


@dataclasses.dataclass
class Progress:
    """All that a resumed run needs besides weights and optimizer state."""
    step: int = 0
    tokens: int = 0
    decay_from: int = 0          # token count at which the fall began; 0: not yet
    total: int = 0               # planned end; 0: open (set when the fall begins)
    seconds: float = 0.0
    credit: dict = dataclasses.field(default_factory=dict)
    drawn: dict = dataclasses.field(default_factory=dict)


# ---- data -------------------------------------------------------------------------------------

class Sampler:
    """Draws windows from the kinds in fixed proportions.

    Starts follow a golden-ratio sequence, which covers a stream almost evenly: before a stream
    has been read once, hardly any text repeats. The state is two small dictionaries.
    """

    def __init__(self, folder, progress):
        self.streams = {p.stem: np.load(p, mmap_mode="r") for p in sorted(folder.glob("*.npy"))}
        if min(len(s) for s in self.streams.values()) <= DECAY_CONTEXT:
            raise SystemExit("a kind has fewer tokens than one context: more text is needed")
        self.credit = progress.credit or {kind: 0.0 for kind in self.streams}
        self.drawn = progress.drawn or {kind: 0 for kind in self.streams}

    def window(self, length, mix):
        """The next window of length + 1 tokens."""
        total = sum(mix[kind] for kind in self.streams)
        for kind in self.streams:
            self.credit[kind] += mix[kind] / total
        kind = max(self.credit, key=self.credit.get)
        self.credit[kind] -= 1
        self.drawn[kind] += 1
        stream = self.streams[kind]
        place = (self.drawn[kind] * GOLDEN) % 1.0
        start = int(place * (len(stream) - length - 1))
        return np.asarray(stream[start:start + length + 1], dtype=np.int64)

    def batch(self, length, rank):
        """This process's half; both processes draw everything, so their states stay equal."""
        mix = FALL_MIX if length == DECAY_CONTEXT else MIX
        windows = [self.window(length, mix) for _ in range(BATCH_TOKENS // length)]
        return torch.from_numpy(np.stack(windows[rank::WORLD]))


def context_at(progress):
    if progress.decay_from:
        return DECAY_CONTEXT
    return [length for start, length in CONTEXTS if progress.tokens >= start][-1]


# ---- schedule ---------------------------------------------------------------------------------

def rate_scale(progress, clock_share):
    if progress.decay_from:
        done = (progress.tokens - progress.decay_from) / (progress.total - progress.decay_from)
        return max(0.0, 1 - max(done, clock_share))
    return min(1.0, (progress.tokens + BATCH_TOKENS) / WARMUP_TOKENS)


class Clock:
    """Decides when the fall begins, from a token count or from a time of day."""

    def __init__(self, args):
        self.tokens = args.tokens
        self.end = finish_time(args.finish_by)
        self.fall_started = None

    def begin_fall(self, progress, seconds_a_token):
        if self.tokens:
            return progress.tokens >= (1 - DECAY_SHARE) * self.tokens
        needed = progress.tokens * DECAY_SHARE / (1 - DECAY_SHARE) * seconds_a_token
        return time.time() + needed >= self.end

    def start(self, progress):
        progress.decay_from = progress.tokens
        planned = int(progress.tokens / (1 - DECAY_SHARE))
        progress.total = self.tokens or planned

    def share(self, progress):
        """How much of the fall's time is over: on a slow machine the clock leads."""
        if not self.end or not progress.decay_from:
            return 0.0
        self.fall_started = self.fall_started or time.time()
        return (time.time() - self.fall_started) / max(1.0, self.end - self.fall_started)


def finish_time(text):
    if not text:
        return None
    now = datetime.datetime.now()
    at = datetime.datetime.combine(now.date(), datetime.time.fromisoformat(text))
    return (at if at > now else at + datetime.timedelta(days=1)).timestamp()


# ---- one process ------------------------------------------------------------------------------

class Shared:
    """What the two processes have in common."""

    def __init__(self, model, optimizer, context):
        self.model = model.share_memory()
        self.optimizer = optimizer
        optimizer.share_memory()
        self.gradients = [[torch.zeros_like(p).share_memory_() for p in model.parameters()]
                          for _ in range(WORLD)]
        self.order = torch.zeros(3, dtype=torch.float64).share_memory_()  # rate, length, stop
        self.figures = torch.zeros(WORLD, 2).share_memory_()              # loss, balance
        self.barrier = context.Barrier(WORLD)


def forward_backward(shared, rank, windows):
    gradients = shared.gradients[rank]
    for p, g in zip(shared.model.parameters(), gradients):
        g.zero_()
        p.grad = g
    parts = windows.split(max(1, PART_TOKENS // (windows.shape[1] - 1)))
    loss_sum = balance_sum = 0.0
    for part in parts:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total, loss, balance = shared.model.loss(part[:, :-1], part[:, 1:],
                                                     BALANCE_WEIGHT, Z_WEIGHT)
        share = len(part) / len(windows)
        (total * share).backward()
        loss_sum += share * loss.item()
        balance_sum += share * balance.item()
    shared.figures[rank] = torch.tensor([loss_sum, balance_sum])


def update(shared, rank, step, scale):
    for index in shared.optimizer.owned(rank, WORLD):
        mean = sum(g[index] for g in shared.gradients) / WORLD
        shared.optimizer.update(index, mean, step, scale)


def helper(shared, folder, progress):
    """The second process: does its half of every step that the first one orders."""
    torch.set_num_threads(1)
    sampler = Sampler(folder, progress)
    step = progress.step
    while True:
        shared.barrier.wait()
        scale, length, stop = shared.order.tolist()
        if stop:
            return
        forward_backward(shared, 1, sampler.batch(int(length), 1))
        shared.barrier.wait()
        step += 1
        update(shared, 1, step, scale)
        shared.barrier.wait()


# ---- the leading process ----------------------------------------------------------------------

def validation_loss(model, folder):
    """Nats a token on a few held-out windows, by kind."""
    out = {}
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for path in sorted(folder.glob("*.npy")):
            stream = np.load(path, mmap_mode="r")
            length = min(512, len(stream) - 1)
            starts = np.linspace(0, len(stream) - length - 1, EVALUATE_WINDOWS).astype(int)
            losses = []
            for start in starts:
                window = torch.from_numpy(stream[start:start + length + 1].astype(np.int64))
                losses.append(model.loss(window[None, :-1], window[None, 1:], 0, 0)[1].item())
            out[path.stem] = round(sum(losses) / len(losses), 4)
    return out


def save(path, shared, progress, sampler, args):
    progress.credit, progress.drawn = sampler.credit, sampler.drawn
    state = {"model": shared.model.state_dict(), "optimizer": shared.optimizer.state(),
             "progress": dataclasses.asdict(progress),
             "config": dataclasses.asdict(shared.model.c)}
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)
    run = dataclasses.asdict(progress) | {
        "mix": MIX, "fall_mix": FALL_MIX, "batch_tokens": BATCH_TOKENS, "seed": SEED,
        "finish_by": args.finish_by, "tokens_argument": args.tokens}
    (path.parent / "run.json").write_text(json.dumps(run, indent=1))


def load(path, model, optimizer):
    if not path.exists():
        return Progress()
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load(state["optimizer"])
    return Progress(**state["progress"])


def open_history(path, progress):
    """The history up to the checkpoint: lines written after it are repeated, so they go."""
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if json.loads(line)["tokens"] <= progress.tokens]
    path.write_text("".join(line + "\n" for line in kept))
    return open(path, "a", buffering=1)


def lead(shared, args, progress):
    work = args.work
    sampler = Sampler(work / "tokens/train", progress)
    clock, history = Clock(args), open_history(work / "history.jsonl", progress)
    saved, next_check = time.time(), progress.tokens
    pace = None
    while not (progress.total and progress.tokens >= progress.total):
        started = time.time()
        if not progress.decay_from and pace and clock.begin_fall(progress, pace):
            clock.start(progress)
        late = clock.share(progress)
        if late >= 1:
            break
        scale, length = rate_scale(progress, late), context_at(progress)
        shared.order.copy_(torch.tensor([scale, length, 0], dtype=torch.float64))
        shared.barrier.wait()
        forward_backward(shared, 0, sampler.batch(length, 0))
        shared.barrier.wait()
        progress.step += 1
        progress.tokens += BATCH_TOKENS
        update(shared, 0, progress.step, scale)
        shared.barrier.wait()
        took = time.time() - started
        progress.seconds += took
        pace = took / BATCH_TOKENS if pace is None else 0.98 * pace + 0.02 * took / BATCH_TOKENS
        report(history, shared, progress, scale, length, took)
        if progress.tokens >= next_check:
            next_check += args.evaluate_every
            record(history, {"tokens": progress.tokens,
                             "heldout": validation_loss(shared.model, work / "tokens/heldout")})
        if time.time() - saved > CHECKPOINT_SECONDS:
            save(work / "checkpoint.pt", shared, progress, sampler, args)
            saved = time.time()
    shared.order[2] = 1
    shared.barrier.wait()
    record(history, {"tokens": progress.tokens, "final": True,
                     "heldout": validation_loss(shared.model, work / "tokens/heldout")})
    save(work / "checkpoint.pt", shared, progress, sampler, args)
    save(work / "final.pt", shared, progress, sampler, args)


def record(history, entry):
    history.write(json.dumps(entry) + "\n")
    print(json.dumps(entry), flush=True)


def report(history, shared, progress, scale, length, took):
    loss, balance = shared.figures.mean(0).tolist()
    entry = {"step": progress.step, "tokens": progress.tokens, "loss": round(loss, 4),
             "balance": round(balance, 4), "scale": round(scale, 4), "context": length,
             "tokens_per_second": round(BATCH_TOKENS / took), "seconds": round(progress.seconds)}
    history.write(json.dumps(entry) + "\n")
    if progress.step % 10 == 0 or progress.step < 4:
        print(json.dumps(entry), flush=True)


def train(args):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Model(Config())
    optimizer = Optimizer(model, MATRIX_RATE, OTHER_RATE)
    progress = load(args.work / "checkpoint.pt", model, optimizer)
    everything, used = model.parameter_counts()
    print(f"parameters: {everything}, used for one token: {used}, from token {progress.tokens}")
    context = mp.get_context("spawn")
    shared = Shared(model, optimizer, context)
    child = context.Process(target=helper, args=(shared, args.work / "tokens/train", progress),
                            daemon=True)
    child.start()
    lead(shared, args, progress)
    child.join()


def smoke(args):
    """Everything end to end on a tiny corpus: tokens, training, export, evaluation."""
    import evaluate
    import export
    with tempfile.TemporaryDirectory() as folder:
        args.work = pathlib.Path(args.work or folder)
        args.work.mkdir(parents=True, exist_ok=True)
        data.smoke_corpus(args.work)
        args.tokens, args.evaluate_every = 6 * BATCH_TOKENS, 3 * BATCH_TOKENS
        train(args)
        export.export(args.work / "final.pt", args.work / "tokenizer.json",
                      args.work / "smoke-f32.gguf", args.work / "smoke-q8_0.gguf")
        evaluate.evaluate(args.work, args.work / "final.pt", tokens_a_kind=4000)
        history = [json.loads(line) for line in open(args.work / "history.jsonl")]
        losses = [entry["loss"] for entry in history if "loss" in entry]
        if not losses[-1] < losses[0]:
            raise SystemExit("smoke: the loss did not fall")
        print(f"smoke: loss {losses[0]} -> {losses[-1]}: ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=pathlib.Path, help="folder that data.py filled")
    parser.add_argument("--tokens", type=int, default=0, help="train on this many tokens")
    parser.add_argument("--finish-by", metavar="HH:MM", help="or train until this time of day")
    parser.add_argument("--smoke", action="store_true", help="one-minute check without network")
    args = parser.parse_args()
    args.evaluate_every = EVALUATE_EVERY
    if args.smoke:
        return smoke(args)
    if not args.work or not (args.tokens or args.finish_by):
        parser.error("--work and one of --tokens, --finish-by are needed")
    return train(args)


if __name__ == "__main__":
    main()
