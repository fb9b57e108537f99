#!/usr/bin/env python3
"""run_golden.py PROGRAM FOLDER [options]: runs `sluice eval` and `tokenize` on golden cases.

What is compared, and how far apart things may be, is in README.md beside this file. Prints a row a
case and exits 1 if a case fails, 77 (skip) where FOLDER does not exist. Standard library only."""

import argparse
import array
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile

ARCHS = {
    "llama",
    "qwen3",
    "qwen2moe",
    "qwen3moe",
    "qwen3next",
    "qwen35moe",
    "olmoe",
    "granitemoe",
}
FLOAT_WEIGHTS = {"F32", "F16", "BF16"}
FLOAT_TOLERANCE = 2e-4
F32_GAP = 1e-3  # a greedy token of an F32 case counts where its gap exceeds this
QUANT_RATIO = 1.25
KV_Q8_LIMIT = 0.02
KV_TYPES = ("f32", "f16", "q8")
TIMEOUT_S = 300


class Failure(Exception):
    """What went wrong with a case, as a sentence."""


def read_floats(path):
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def relative_rms(values, reference):
    """RMS of the difference over the reference's standard deviation."""
    n = len(reference)
    mean = sum(reference) / n
    variance = sum((x - mean) ** 2 for x in reference) / n
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(values, reference)) / n / variance)


class Case:
    """One folder, and the program that is judged on it."""

    def __init__(self, program, folder, scratch, isa):
        self.program, self.folder, self.scratch = program, folder, scratch
        self.isa = ["--isa", isa]
        self.sums = {}  # SHA-256 of the logits, by KV type
        with open(os.path.join(folder, "meta.json"), encoding="utf-8") as f:
            self.meta = json.load(f)
        self.model = self.path(self.meta.get("model_file", "model.gguf"))
        self.is_float = self.meta["variant"] in FLOAT_WEIGHTS

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, args, stdin=None):
        done = subprocess.run(
            [self.program] + args, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise Failure(
                "exit %d: %s"
                % (done.returncode, done.stderr.decode("utf-8", "replace").strip()[-300:])
            )
        return done.stdout

    def logits(self, tokens, options):
        """The bytes that eval writes."""
        out = os.path.join(self.scratch, "logits.f32")
        self.run(
            ["eval", "-m", self.model, "--tokens", tokens, "--logits", out] + self.isa + options
        )
        with open(out, "rb") as f:
            return f.read()

    def floats(self, tokens, options):
        self.logits(tokens, options)
        values = read_floats(os.path.join(self.scratch, "logits.f32"))
        if any(x != x for x in values):
            raise Failure("a logit is NaN")
        return values

    def check_logits(self):
        """Returns the table's columns and the error that greedy gaps are measured by."""
        exact = "logits.f32" if self.meta["variant"] == "F32" else "logits_exact.f32"
        reference = read_floats(self.path(exact))
        values = self.floats(self.path("tokens.txt"), ["--kv", "f32"])
        if len(values) != len(reference):
            raise Failure("eval wrote %d values, wanted %d" % (len(values), len(reference)))
        if self.is_float:
            worst = max(abs(x - y) for x, y in zip(values, reference))
            if worst > FLOAT_TOLERANCE:
                raise Failure(
                    "a logit is %.3g from the reference, at most %g" % (worst, FLOAT_TOLERANCE)
                )
            return "max %.2e" % worst, F32_GAP
        ours, theirs = (
            relative_rms(values, reference),
            self.meta["noise"]["exact_f32_weights"]["rel_rms"],
        )
        if ours > QUANT_RATIO * theirs:
            raise Failure("relative RMS %.4f, the reference's own is %.4f" % (ours, theirs))
        gap = 4 * self.meta["noise"]["exact_f32_weights"]["rms"]
        return "rms %.4f = %.2f x ref" % (ours, ours / theirs), gap

    def check_greedy(self, gap):
        """The argmax of each row must be the next greedy token wherever the margin exceeds gap."""
        with open(self.path("greedy.txt"), encoding="utf-8") as f:
            rows = [line.split() for line in f if not line.startswith("#")]
        wanted = [(int(r[0]), float(r[1])) for r in rows]
        forced = os.path.join(self.scratch, "forced.txt")
        with open(self.path("tokens.txt"), encoding="utf-8") as f, open(
            forced, "w", encoding="utf-8"
        ) as g:
            g.write(f.read().strip() + " " + " ".join(str(t) for t, _ in wanted))
        values, vocab = self.floats(forced, ["--kv", "f32"]), self.meta["n_vocab"]
        first, counted = self.meta["n_tokens"] - 1, 0
        for i, (token, margin) in enumerate(wanted):
            row = values[(first + i) * vocab : (first + i + 1) * vocab]
            best = max(range(vocab), key=row.__getitem__)
            if margin <= gap:
                continue
            counted += 1
            if best != token:
                raise Failure(
                    "greedy token %d is %d, the reference's is %d with a gap of %g"
                    % (i, best, token, margin)
                )
        return "%d/%d" % (counted, len(wanted))

    def take_sums(self):
        for kv in KV_TYPES:
            logits = self.logits(self.path("tokens.txt"), ["--kv", kv])
            self.sums[kv] = hashlib.sha256(logits).hexdigest()

    def check_invariance(self):
        """Bytes must not depend on threads, instruction set or chunk, for any KV type."""
        tokens = self.path("tokens.txt")
        variants = [
            ["--threads", "1"],
            ["--threads", "2"],
            ["--isa", "scalar"],
            ["--chunk", "1"],
            ["--chunk", "7"],
            ["--chunk", "64", "--threads", "2"],
        ]
        for kv in KV_TYPES:
            first = self.logits(tokens, ["--kv", kv])
            self.sums[kv] = hashlib.sha256(first).hexdigest()
            for v in variants:
                if self.logits(tokens, ["--kv", kv] + v) != first:
                    raise Failure("logits change with %s (KV %s)" % (" ".join(v), kv))
        return "same"

    def check_kv_q8(self):
        if not self.is_float:
            return "-"
        tokens = self.path("tokens.txt")
        moved = relative_rms(
            self.floats(tokens, ["--kv", "q8"]), self.floats(tokens, ["--kv", "f32"])
        )
        if moved > KV_Q8_LIMIT:
            raise Failure(
                "int8 KV moves logits by %.2f %%, at most %.0f %%"
                % (moved * 100, KV_Q8_LIMIT * 100)
            )
        return "%.2f %%" % (moved * 100)

    def check_tokenizer(self):
        if not os.path.exists(self.path("tok_ids.txt")):
            return "-"
        with open(self.path("tok_text.txt"), "rb") as f:
            texts = f.read()
        ids = self.run(
            ["tokenize", "-m", self.model, "--special", "--no-bos", "--lines", "--escape"], texts
        )
        with open(self.path("tok_ids.txt"), encoding="utf-8") as f:
            wanted = [line.split() for line in f.read().splitlines()]
        got = [line.split() for line in ids.decode().splitlines()]
        for i, (a, b) in enumerate(zip(got, wanted)):
            if a != b:
                raise Failure(
                    "ids of text line %d differ: %s, wanted %s" % (i + 1, " ".join(a), " ".join(b))
                )
        if len(got) != len(wanted):
            raise Failure("%d lines of ids, wanted %d" % (len(got), len(wanted)))
        return "%d lines" % len(wanted)

    def check_sums(self, wanted):
        """Machines of every kind must give the same bytes; wanted: what one of them gave."""
        for kv in KV_TYPES:
            if self.sums[kv] != wanted.get(kv):
                raise Failure("logits are not those of other machines (KV %s)" % kv)


def judge(case):
    logits, gap = case.check_logits()
    return [
        logits,
        case.check_greedy(gap),
        case.check_kv_q8(),
        case.check_invariance(),
        case.check_tokenizer(),
    ]


def judge_sums(case):
    """What an emulator has time for."""
    case.take_sums()
    return ["-"] * 5


def read_sums(path):
    sums = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            if not line.startswith("#"):
                value, name, kv = line.split()
                sums.setdefault(name, {})[kv] = value
    return sums


def write_sums(path, sums):
    with open(path, "w", encoding="utf-8") as f:
        f.write("# SHA-256 of the logits of each case, and the KV type: README.md\n")
        for name in sorted(sums):
            for kv in KV_TYPES:
                f.write("%s %s %s\n" % (sums[name][kv], name, kv))


def find_cases(folder, only):
    for name in sorted(os.listdir(folder)):
        meta = os.path.join(folder, name, "meta.json")
        if not os.path.exists(meta) or (only and only not in name):
            continue
        with open(meta, encoding="utf-8") as f:
            if json.load(f)["arch"] in ARCHS:
                yield os.path.join(folder, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--isa", default="auto", help="instruction set to compare with scalar")
    parser.add_argument("--sums", help="file with sums that the logits must have")
    parser.add_argument(
        "--sums-only", action="store_true", help="take sums of the logits, judge nothing else"
    )
    parser.add_argument("--make-sums", help="write that file")
    args = parser.parse_args()
    if not os.path.isdir(args.folder):
        print("skipped: there is no folder %s" % args.folder)
        return 77
    wanted, made = read_sums(args.sums) if args.sums else None, {}
    bad = total = 0
    print(
        "%-26s %-26s %-8s %-8s %-6s %s" % ("case", "logits", "greedy", "kv q8", "bytes", "tokens")
    )
    for folder in find_cases(args.folder, args.only):
        total += 1
        with tempfile.TemporaryDirectory() as scratch:
            try:
                case = Case(args.program, folder, scratch, args.isa)
                row = judge_sums(case) if args.sums_only else judge(case)
                made[os.path.basename(folder)] = case.sums
                if wanted is not None:
                    case.check_sums(wanted.get(os.path.basename(folder), {}))
                print(
                    "%-26s %-26s %-8s %-8s %-6s %s" % tuple([os.path.basename(folder)] + row),
                    flush=True,
                )
            except (Failure, OSError, subprocess.TimeoutExpired) as error:
                bad += 1
                print("%-26s FAILED: %s" % (os.path.basename(folder), error), flush=True)
    if args.make_sums and not bad:
        write_sums(args.make_sums, made)
    print("%d of %d golden cases pass" % (total - bad, total))
    return 1 if bad or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
