#!/usr/bin/env python3
"""Token ids for stream_ab.sh: text that keeps to a topic for a while, then turns to another.

    stream_tokens.py [--count N] [--run N] [--topics N] [--below N] [--seed N] > IDS

The random-weight models that are measured prefer, for a token, experts of its topic, which is its
id modulo the number of topics. So ids of one topic follow each other for a run, as in real text;
ids without that structure would find less in any cache, and those of one topic alone too much. The
topic of a run is drawn at random, never that of the run before. Same arguments, same ids.
"""

import argparse
import random

FIRST = 256  # below are single bytes
ROW = 16


def draw(args):
    """The list of ids."""
    source = random.Random(args.seed)
    ids, topic = [], None
    while len(ids) < args.count:
        topic = source.choice([t for t in range(args.topics) if t != topic])
        for _ in range(min(args.run, args.count - len(ids))):
            step = source.randrange(-(-FIRST // args.topics), args.below // args.topics)
            ids.append(step * args.topics + topic)
    return ids


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--run", type=int, default=32, help="tokens about one topic (32)")
    parser.add_argument("--topics", type=int, default=8)
    parser.add_argument("--below", type=int, default=151000, help="ids are less than that")
    parser.add_argument("--seed", type=int, default=20261130)
    args = parser.parse_args()
    if args.topics < 2 or args.run < 1 or args.below < FIRST + 2 * args.topics:
        parser.error("two topics or more, runs of one token or more, and ids above %d" % FIRST)
    ids = draw(args)
    for i in range(0, len(ids), ROW):
        print(" ".join(map(str, ids[i : i + ROW])))


if __name__ == "__main__":
    main()
