#!/usr/bin/env python3
"""test_container_flips.py PROGRAM MODEL TOKENS: the program meets containers with one wrong bit,
and such that are too short or too long.

test_container_flips (beside this file) does it a thousand times within one process; here the
sentences and exit codes count, of containers in parts too. `verify` says in one line what is wrong
where and ends with 1; `run` and `eval` end with 1 and have said nothing, or the right thing, where
they never read what is wrong. Standard library only."""

import os
import random
import re
import struct
import subprocess
import sys
import tempfile

PROGRAM, MODEL, TOKENS = (os.path.abspath(a) for a in sys.argv[1:4])
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
TEXT = ["--raw", "-p", "one", "-n", "12", "--temp", "0", "--ignore-eos"]
ALIGN = 16384
FLIPS = 8  # of each part
SEED = 20261130
TIMEOUT_S = 60


class Failure(Exception):
    """What went wrong, as a sentence."""


def want(holds, what):
    if not holds:
        raise Failure(what)


def run(args):
    done = subprocess.run(
        [PROGRAM] + args, env=ENVIRONMENT, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace").strip()


def says_where(err, name, at):
    """One line, which names the file, and for a record also where it begins."""
    want(len(err.splitlines()) == 1 and name in err, "the message is %r" % err)
    found = re.search(r"(\d+) bytes at offset (\d+)", err)
    if found:
        size, begin = int(found[1]), int(found[2])
        want(begin <= at < begin + size, "byte %d is not where it says: %s" % (at, err))
    else:
        want(re.search("header|index|version|begins with", err), "no place in: %s" % err)


class Bench:
    """A container, and what it answers."""

    def __init__(self, scratch, options):
        self.out = os.path.join(scratch, "logits.f32")
        self.names = []
        code, _, err = run(
            ["pack", MODEL, "-q", "-o", os.path.join(scratch, "m.sluice")] + options
        )
        want(code == 0, err)
        names = sorted(x for x in os.listdir(scratch) if x.endswith(".sluice"))
        self.names = [os.path.join(scratch, x) for x in names]
        self.model = self.names[0]
        self.text, self.logits = self.answer([]), self.eval([])
        want(self.text[0] == 0 and self.logits[0] == 0, "undamaged: " + self.text[2])

    def answer(self, options):
        return run(["run", "-m", self.model, "-q"] + TEXT + options)

    def eval(self, options):
        if os.path.exists(self.out):
            os.unlink(self.out)
        tail = ["--tokens", TOKENS, "--logits", self.out]
        code, _, err = run(["eval", "-m", self.model, "-q"] + tail + options)
        logits = None
        if os.path.exists(self.out):
            with open(self.out, "rb") as f:
                logits = f.read()
        return code, logits, err

    def judge(self, name, at, what, done, right):
        """What was said is the right thing, or nothing of it beside an error."""
        code, said, err = done
        if code == 0:
            want(said == right, "%s says something else" % what)
            return
        want(code == 1, "%s: exit code %d: %s" % (what, code, err))
        want(not said or (what == "run" and right.startswith(said.rstrip(b"\n"))), what + " said")
        says_where(err.splitlines()[-1], os.path.basename(name), at)

    def flip(self, name, at, bit):
        with open(name, "r+b") as f:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1 << bit]))

    def damaged(self, name, at, bit, options):
        self.flip(name, at, bit)
        code, said, err = run(["verify", self.model])
        want(code == 1 and not said, "verify: exit code %d, %r %s" % (code, said, err))
        says_where(err, os.path.basename(name), at)
        self.judge(name, at, "run", self.answer(options), self.text[1])
        self.judge(name, at, "eval", self.eval(options), self.logits[1])
        self.flip(name, at, bit)

    def check_sizes(self):
        """Every part cut short, or with something after it: refused by its name."""
        for name in self.names:
            with open(name, "rb") as f:
                data = f.read()
            for size in (0, 7, ALIGN - 1, ALIGN, len(data) // 2, len(data) - ALIGN, len(data) - 1):
                self.refused(name, data[:size])
            self.refused(name, data + b"x")
            self.refused(name, data + bytes(ALIGN))
            with open(name, "wb") as f:
                f.write(data)

    def refused(self, name, data):
        with open(name, "wb") as f:
            f.write(data)
        for code, said, err in (run(["verify", self.model]), self.answer([])):
            what = "%d bytes of %s" % (len(data), os.path.basename(name))
            want(code == 1 and not said, "%s: exit code %d, %r %s" % (what, code, said, err))
            good = len(err.splitlines()) == 1 and os.path.basename(name) in err
            want(good, "%s: the message is %r" % (what, err))


def places(rng, name):
    """Header, index, and anywhere."""
    size = os.path.getsize(name)
    with open(name, "rb") as f:
        index = struct.unpack_from("<Q", f.read(ALIGN), 40)[0]
    yield rng.randrange(ALIGN)
    if index < size:
        yield rng.randrange(index, size)
    for _ in range(FLIPS):
        yield rng.randrange(size)


def flip_bits(b, rng, ways):
    n = 0
    for name in b.names:
        for at in places(rng, name):
            bit, way = rng.randrange(8), ways[n % len(ways)]
            try:
                b.damaged(name, at, bit, way)
            except Failure as what:
                where = (bit, at, os.path.basename(name), " ".join(way), what)
                raise Failure("bit %d of byte %d of %s, %s: %s" % where) from what
            n += 1
    return n


def main():
    rng = random.Random(SEED)
    ways = [["--io", "pread"], ["--slots", "2"], [], ["--io", "mmap"]]
    flips = 0
    for options in (["--bits", "3"], ["--keep", "--split", "200K"]):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                b = Bench(scratch, options)
                flips += flip_bits(b, rng, ways)
                b.check_sizes()
                code, _, err = run(["verify", b.model])
                want(code == 0, "undamaged again: " + err)
            except (Failure, OSError, subprocess.TimeoutExpired) as what:
                print("FAIL %s: %s" % (" ".join(options), what))
                return 1
    print("%d flips" % flips)
    return 0


if __name__ == "__main__":
    sys.exit(main())
