#!/usr/bin/env python3
"""How fast a drive gives random pieces of a file: the bound that stream_ab.sh prints beside a run.

    stream_drive.py FILE [--bytes N] [--depth N] [--megabytes N] [--seed N]

Reads pieces of N bytes, as they lie in a GGUF: at offsets that are no multiple of anything, widened
to whole blocks of 4096 for direct I/O. Each of `depth` threads has one piece on its way at a time.
Pieces are drawn without repetition, by a new seed each time, since a hypervisor may keep what was
read lately. Prints one line of JSON; `mb_per_s` counts the bytes asked for, not the widening.

It shares no code with the engine, so that it can be held against io_bench. Linux.
"""

import argparse
import json
import mmap
import os
import random
import threading
import time

BLOCK = 4096
SHIFT = 1184  # where in a block a piece begins; a GGUF aligns tensors to 32 bytes only


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--bytes", type=int, default=675840, help="of a piece (675840)")
    parser.add_argument("--depth", type=int, default=16, help="pieces on their way at once (16)")
    parser.add_argument("--megabytes", type=int, default=2000, help="to read in all (2000)")
    parser.add_argument("--seed", type=int, help="of the order (a new one each time)")
    args = parser.parse_args()
    if min(args.bytes, args.depth, args.megabytes) < 1:
        parser.error("sizes and the depth are at least 1")
    return args


class Reader(threading.Thread):
    """Reads the pieces it takes from a shared iterator until there is none left."""

    def __init__(self, fd, size, pieces):
        super().__init__()
        self.fd, self.size, self.pieces = fd, size, pieces
        self.memory = mmap.mmap(-1, (size + 2 * BLOCK - 1) // BLOCK * BLOCK)
        self.error = None

    def run(self):
        try:
            for piece in self.pieces:
                begin = piece * self.size + SHIFT
                start = begin // BLOCK * BLOCK
                stop = -(-(begin + self.size) // BLOCK) * BLOCK
                with memoryview(self.memory) as view, view[: stop - start] as room:
                    if os.preadv(self.fd, [room], start) != stop - start:
                        raise OSError("short read at %d" % start)
        except OSError as e:
            self.error = e


class Pieces:
    """An iterator that threads share."""

    def __init__(self, values):
        self.values, self.lock = iter(values), threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self.lock:
            return next(self.values)


def main():
    args = parse()
    fd = os.open(args.file, os.O_RDONLY | os.O_DIRECT)
    have = (os.lseek(fd, 0, os.SEEK_END) - SHIFT - BLOCK) // args.bytes
    count = min(have, args.megabytes * 1000000 // args.bytes)
    if count < args.depth:
        raise SystemExit("stream_drive: the file holds %d pieces, too few" % have)
    order = random.Random(args.seed).sample(range(have), count)
    shared = Pieces(order)
    readers = [Reader(fd, args.bytes, shared) for _ in range(args.depth)]
    began = time.perf_counter()
    for r in readers:
        r.start()
    for r in readers:
        r.join()
    seconds = time.perf_counter() - began
    os.close(fd)
    for r in readers:
        if r.error:
            raise SystemExit("stream_drive: %s" % r.error)
    read = count * args.bytes
    result = {"request_bytes": args.bytes, "depth": args.depth, "read_bytes": read}
    result["mb_per_s"] = round(read / seconds / 1e6, 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
