#!/usr/bin/env python3
"""run_packed.py PROGRAM FOLDER [--only TEXT]: golden cases through `sluice pack`.

A container made with --keep gives the logits of the model it was made from to the byte, in one
file and in parts, with all experts in memory and with the fewest slots, on every backend. Packed
again with --keep it is the same file. Of float cases packed with --bits 8, no kind of weight is
further than 1 % from the source's (relative RMS), and logits move by no more than those 8 bits
have to cost; README.md beside this file says how much that is.

Prints a row a case and exits 1 if a case fails, 77 (skip) where FOLDER does not exist. Standard
library only."""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import run_golden
from run_golden import Failure

ALIGN = 16384
SPLIT_LEAST = 1 << 16
BITS_8_WEIGHTS = 0.01
BITS_8_LOGITS = 0.05
BITS_8_LOGITS_OF = {"qwen3next": 0.09, "qwen35moe": 0.09}  # README.md


def read(path):
    with open(path, "rb") as f:
        return f.read()


def records(data):
    """What lies between header and index, of a container in one file: all weights."""
    return data[ALIGN : struct.unpack_from("<Q", data, 40)[0]]


class Packed(run_golden.Case):
    """A golden case, and containers made of it."""

    def __init__(self, program, folder, scratch, backends):
        super().__init__(program, folder, scratch, "auto")
        self.backends = backends
        self.source, self.tokens = self.model, self.path("tokens.txt")
        self.expected = {kv: self.logits(self.tokens, ["--kv", kv]) for kv in ("f32", "q8")}

    def pack(self, source, name, options):
        """Returns the container's first part."""
        out = os.path.join(self.scratch, name + ".sluice")
        self.run(["pack", source, "-q", "-o", out] + options)
        if os.path.exists(out):
            return out
        parts = sorted(x for x in os.listdir(self.scratch) if x.startswith(name + "-0"))
        if not parts or any(x.endswith((".partial", ".journal")) for x in parts):
            raise Failure("pack left %s" % (", ".join(parts) or "nothing"))
        return os.path.join(self.scratch, parts[0])

    def fewest_slots(self):
        """0: no experts. Where experts have several sizes, a layer needs more than it uses."""
        used = self.meta["hparams"].get("expert_used_count", 0)
        try:
            if used:
                self.logits(self.tokens, ["--slots", str(used)])
        except Failure as error:
            found = re.search(r"the smallest number that works is --slots (\d+)", str(error))
            if not found:
                raise
            used = int(found[1])
        return used

    def ways(self):
        """Ways to run: everything in memory, mapped, and as few experts as are legal."""
        yield "f32", []
        yield "q8", []
        yield "f32", ["--io", "mmap"]
        yield "f32", ["--isa", "scalar", "--chunk", "7"]
        fewest = self.fewest_slots()
        for io in self.backends:
            yield "f32", ["--io", io]
            if fewest:
                yield "f32", ["--io", io, "--slots", str(fewest)]
                yield "q8", ["--io", io, "--slots", str(fewest + 1), "--chunk", "1"]

    def check_same(self, container):
        n = 0
        self.model = container
        for kv, options in self.ways():
            if self.logits(self.tokens, ["--kv", kv] + options) != self.expected[kv]:
                raise Failure(
                    "%s: other logits than the source's, with %s"
                    % (os.path.basename(container), " ".join(["--kv", kv] + options))
                )
            n += 1
        return n

    def split(self, whole):
        """Parts as small as the largest tensor or expert allows."""
        size = SPLIT_LEAST
        while size < 2 * os.path.getsize(whole):
            try:
                return self.pack(self.source, "parts", ["--keep", "--split", str(size)])
            except Failure as error:
                if "does not fit" not in str(error):
                    raise
            size += size // 4
        raise Failure("no --split size works")

    def check_keep(self):
        whole = self.pack(self.source, "whole", ["--keep"])
        self.model = whole
        self.check_tokenizer()
        ways = self.check_same(whole)
        first = self.split(whole)
        parts = int(first.rsplit("-of-", 1)[1].split(".")[0])
        if parts < 2:
            raise Failure("--split made one part")
        ways += self.check_same(first)
        self.check_again(whole, first)
        return "%d ways, %d parts" % (ways, parts)

    def check_again(self, whole, first):
        """Packing once more changes no byte but those that say from which file it was made."""
        again = self.pack(whole, "again", ["--keep"])
        joined = self.pack(first, "joined", ["--keep"])
        if records(read(again)) != records(read(whole)):
            raise Failure("packed again, the weights are others")
        if records(read(joined)) != records(read(whole)):
            raise Failure("packed from its parts, the weights are others")
        if read(self.pack(again, "third", ["--keep"])) != read(again):
            raise Failure("packed from the same once more, the container is another")
        self.model = joined
        if self.logits(self.tokens, ["--kv", "f32"]) != self.expected["f32"]:
            raise Failure("packed from its parts, the logits are others")

    def check_bits_8(self):
        if not self.is_float:
            return "-"
        out = os.path.join(self.scratch, "bits8.sluice")
        said = self.run(["pack", self.source, "-q", "--json", "-o", out, "--bits", "8"])
        errors = [x["error"] for x in json.loads(said)["packed"] if x["error"] is not None]
        if not errors or max(errors) > BITS_8_WEIGHTS:
            raise Failure("relative errors of weights with 8 bits: %s" % errors)
        self.model = out
        moved = run_golden.relative_rms(
            self.floats(self.tokens, ["--kv", "f32"]), self.as_floats(self.expected["f32"])
        )
        most = BITS_8_LOGITS_OF.get(self.meta["arch"], BITS_8_LOGITS)
        if moved > most:
            raise Failure(
                "8 bits move logits by %.2f %%, at most %.0f %%" % (moved * 100, most * 100)
            )
        return "weights %.2f %%, logits %.2f %%" % (max(errors) * 100, moved * 100)

    def as_floats(self, data):
        path = os.path.join(self.scratch, "reference.f32")
        with open(path, "wb") as f:
            f.write(data)
        return run_golden.read_floats(path)


def granted(program, folder):
    """Backends that this kernel grants."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            case = run_golden.Case(program, folder, scratch, "auto")
            case.logits(case.path("tokens.txt"), ["--io", "uring"])
        return ["uring", "pread"]
    except Failure as error:
        print("without io_uring: %s" % error)
        return ["pread"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    args = parser.parse_args()
    if not os.path.isdir(args.folder):
        print("skipped: there is no folder %s" % args.folder)
        return 77
    bad = total = 0
    backends = []
    print("%-26s %-20s %s" % ("case", "kept", "8 bits"))
    for folder in run_golden.find_cases(args.folder, args.only):
        total += 1
        backends = backends or granted(args.program, folder)
        name = os.path.basename(folder)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                case = Packed(args.program, folder, scratch, backends)
                row = (name, case.check_keep(), case.check_bits_8())
                print("%-26s %-20s %s" % row, flush=True)
            except (Failure, OSError, subprocess.TimeoutExpired) as error:
                bad += 1
                print("%-26s FAILED: %s" % (name, error), flush=True)
    print("%d of %d golden cases pass packed" % (total - bad, total))
    return 1 if bad or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
