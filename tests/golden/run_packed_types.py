#!/usr/bin/env python3
"""run_packed_types.py PROGRAM CASE [options]: every weight type of containers, three times over.

A golden case is packed with its matrices in one of the container's own types. What the second
reader (tools/dev/read_container.py, written from docs/FORMAT.md alone) makes of the bytes must be,
to the bit, what `sluice pack` makes of them when it packs that container again as F32; and logits
of both containers, the one through the kernels of the type and the other through plain floats, may
differ by no more than activations of 8 bits cost, at the median position (at some, experts were
nearly as good as others, and others are chosen). packed_types.sums beside this file has the
SHA-256 of the kernels' logits and of the containers' weights: machines of every kind pack and
compute alike. Prints a row a type and exits 1 if one fails. Standard library only."""

import argparse
import hashlib
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tools", "dev")]
import read_container as rc  # noqa: E402
from run_golden import read_floats, read_sums, relative_rms  # noqa: E402

NAMES = {
    256: "sq2_32",
    257: "sq2_16",
    258: "sq3_32",
    259: "sq3_16",
    260: "sq4_32",
    261: "sq4_16",
    262: "sq5_32",
    263: "sq6_32",
}
RULES = "*_exps.weight %s\n*attn_q.weight %s\n*attn_output.weight %s\noutput.weight %s\n* keep\n"
F32 = 0
EVERY = 9  # of the tensors, one in so many is decoded here, which takes its time
ACTIVATIONS = 0.05
N_TOKENS = 64
TIMEOUT_S = 300
SUMS = os.path.join(HERE, "packed_types.sums")
SUMS_OF = ("f32", "q8", "weights")


class Failure(Exception):
    """What went wrong, as a sentence."""


def run(args):
    done = subprocess.run(args, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise Failure("exit code %d: %s" % (done.returncode, done.stderr.strip()[-300:]))


def pack(program, source, out, kind):
    recipe = out + ".recipe"
    with open(recipe, "w", encoding="ascii") as f:
        f.write(RULES % (kind, kind, kind, kind))
    run([program, "pack", source, "-q", "-o", out, "--keep", "--recipe", recipe])
    run([program, "verify", "--deep", "-q", out])


def tensors(path):
    """name: (type, dimensions, bytes)"""
    headers, index, _ = rc.read(path)
    found = {}
    for name, kind, dims, part, offset, size in index[b"tensors"]:
        with open(headers[part].path, "rb") as f:
            f.seek(offset)
            found[name] = (kind, dims, f.read(size))
    return found


def floats_of(kind, dims, data):
    """float32 bytes. Python's product is exact, and rounded once."""
    cols, rows = dims[0], dims[1]
    packed = rc.weights_of(kind, data, rows, cols)
    out = []
    for r in range(rows):
        d, *row = struct.unpack_from("<H%dh" % cols, packed, r * 2 * (cols + 1))
        scale = struct.unpack("<f", struct.pack("<I", d << 16))[0]
        out.append(struct.pack("<%df" % cols, *[scale * x for x in row]))
    return b"".join(out)


class Engine:
    """What evaluates, and on which tokens."""

    def __init__(self, program, case, isa):
        self.program, self.case = program, case
        self.options = ["--isa", isa, "--tokens", os.path.join(case, "tokens.txt")]

    def logits(self, model, kv="f32"):
        """A file beside the model."""
        out = "%s.%s.logits" % (model, kv)
        more = ["-m", model, "--kv", kv, "--logits", out]
        run([self.program, "eval"] + self.options + more)
        return out

    def sums(self, model, weights):
        """SHA-256 of what machines of every kind have to agree on, by its name."""
        found = {kv: hashlib.sha256() for kv in SUMS_OF}
        for kv in SUMS_OF[:2]:
            with open(self.logits(model, kv), "rb") as f:
                found[kv].update(f.read())
        for name in sorted(weights):
            found["weights"].update(weights[name][2])
        return {what: value.hexdigest() for what, value in found.items()}


def median_error(values, reference):
    n = len(reference) // N_TOKENS
    rows = range(0, len(reference), n)
    errors = sorted(relative_rms(values[i : i + n], reference[i : i + n]) for i in rows)
    return errors[N_TOKENS // 2]


def judge(engine, kind, scratch):
    """The table's columns, and the sums."""
    packed, plain = (os.path.join(scratch, x + ".sluice") for x in ("packed", "plain"))
    pack(engine.program, os.path.join(engine.case, "model.gguf"), packed, NAMES[kind])
    pack(engine.program, packed, plain, "f32")
    ours, theirs = tensors(packed), tensors(plain)
    names = [n for n, t in ours.items() if t[0] == kind]
    if len(names) < 20:
        raise Failure("only %d tensors have the type" % len(names))
    for name in names[::EVERY]:
        if theirs[name][0] != F32 or theirs[name][2] != floats_of(*ours[name]):
            raise Failure("%s is decoded to other floats" % name.decode())
    moved = median_error(*(read_floats(engine.logits(model)) for model in (packed, plain)))
    if moved > ACTIVATIONS:
        raise Failure("the kernels move logits by %.2f %%" % (moved * 100))
    return (len(names[::EVERY]), moved * 100), engine.sums(packed, ours)


def write_sums(sums):
    with open(SUMS, "w", encoding="utf-8") as f:
        f.write("# SHA-256 for each weight type: of logits, by KV type, and of packed weights\n")
        for name in sorted(sums):
            for what in SUMS_OF:
                f.write("%s %s %s\n" % (sums[name][what], name, what))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("case")
    parser.add_argument("--isa", default="auto", help="instruction set to compute with")
    parser.add_argument("--make-sums", action="store_true", help="write packed_types.sums")
    args = parser.parse_args()
    engine = Engine(os.path.abspath(args.program), os.path.abspath(args.case), args.isa)
    wanted, made = {} if args.make_sums else read_sums(SUMS), {}
    bad = 0
    for kind, name in NAMES.items():
        with tempfile.TemporaryDirectory() as scratch:
            try:
                row, made[name] = judge(engine, kind, scratch)
                if not args.make_sums and made[name] != wanted.get(name):
                    raise Failure("logits or weights are not those of other machines")
                print(
                    "%s: %d tensors equal, logits %.2f %% from exact ones" % (name.upper(), *row)
                )
                sys.stdout.flush()
            except (Failure, rc.Broken, OSError, subprocess.TimeoutExpired) as error:
                bad += 1
                print("%s FAILED: %s" % (name.upper(), error), flush=True)
    if args.make_sums and not bad:
        write_sums(made)
    print("%d of %d types are read alike" % (len(NAMES) - bad, len(NAMES)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
