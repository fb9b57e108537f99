#!/usr/bin/env python3
"""test_trace_kill.py PROGRAM MODEL READER: recordings that are cut short.

kill -9 at ten random moments of `bench decode --trace`: what is there can be read, it is a whole
number of records, and of what the program had done nothing but the last second is missing. A file
that may not grow, and a disk that is full, cost the trace and not the answer: one line says so, and
the exit code is 1. READER prints "EVALS LAYERS LAST_NS CUT" of a trace. Standard library only."""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM, MODEL, READER = (os.path.abspath(a) for a in sys.argv[1:4])
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
KILLS = 10
LOST_MAX_S = 1.0
SLACK_S = 0.5  # until the process is there, and until the signal is
TIMEOUT_S = 120
SEED = 20261130
SLOTS = ["--slots", "60"]
TOKENS = "20000"  # more than can be decoded before the kill
PROMPT = ["-p", "Once upon a time", "-n", "48", "--temp", "0", "--raw"]


class Failure(Exception):
    """What went wrong, as a sentence."""


def want(holds, what):
    if not holds:
        raise Failure(what)


def read(trace):
    done = subprocess.run(
        [READER, trace], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    want(done.returncode == 0, "%s cannot be read: %s" % (trace, done.stderr))
    evals, layers, last_ns, cut = (int(x) for x in done.stdout.split())
    return evals, layers, last_ns / 1e9, bool(cut)


def decode_command(trace):
    more = ["-n", TOKENS, "-c", TOKENS, "--trace", trace]
    return [PROGRAM, "bench", "decode", "-m", MODEL] + more + SLOTS


def wait_for(path, process):
    """Until the header is there; the moment when."""
    begin = time.monotonic()
    while not (os.path.exists(path) and os.path.getsize(path) > 0):
        want(process.poll() is None, "the program ended by itself")
        want(time.monotonic() - begin < TIMEOUT_S, "no trace begins")
        time.sleep(0.002)
    return time.monotonic()


def kill_at(folder, ids, after_s):
    trace = os.path.join(folder, "killed")
    if os.path.exists(trace):
        os.remove(trace)
    with subprocess.Popen(
        decode_command(trace) + ["--tokens", ids],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        begun = wait_for(trace, process)
        time.sleep(after_s)
        ran_s = time.monotonic() - begun
        running = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=TIMEOUT_S)
    want(running, "the program ended before it was killed")
    evals, layers, last_s, cut = read(trace)
    want(cut, "a recording that was killed says that it ended by itself")
    lost_s = ran_s - last_s
    want(lost_s < LOST_MAX_S + SLACK_S, "%.2f s of %.2f are missing" % (lost_s, ran_s))
    want(evals > 0 or ran_s < LOST_MAX_S + SLACK_S, "nothing was recorded in %.2f s" % ran_s)
    return evals, layers


def run(more, limit_bytes=None):
    def limit():
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.run(
        [PROGRAM, "run", "-m", MODEL] + PROMPT + SLOTS + more,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=TIMEOUT_S,
        preexec_fn=limit,
        check=False,
    )


def lines_about(done, name):
    text = done.stderr.decode("utf-8", "replace")
    return [line for line in text.splitlines() if name in line]


def file_that_may_not_grow(folder):
    """The header fits; what comes then does not."""
    right = run([])
    want(right.returncode == 0 and right.stdout, "run: " + right.stderr.decode())
    trace = os.path.join(folder, "whole")
    traced = run(["--trace", trace])
    want(traced.returncode == 0, "run --trace: " + traced.stderr.decode())
    want(traced.stdout == right.stdout, "the answer is another one with a trace")
    want(not read(trace)[3], "a whole trace is called cut")
    size = os.path.getsize(trace)
    limited = os.path.join(folder, "limited")
    done = run(["--trace", limited], limit_bytes=size - 1000)
    want(done.stdout == right.stdout, "the answer is another one where the trace does not fit")
    want(done.returncode == 1, "exit code %d, wanted 1" % done.returncode)
    said = lines_about(done, limited)
    want(len(said) == 1 and "trace" in said[0], "said of the trace: %s" % said)
    read(limited)


def full_disk():
    if not os.path.exists("/dev/full"):
        return
    done = run(["--trace", "/dev/full"])
    said = done.stderr.decode("utf-8", "replace").splitlines()
    want(done.returncode == 1 and not done.stdout, "a trace to /dev/full: %d" % done.returncode)
    want(any("/dev/full" in s for s in said), "a trace to /dev/full: %s" % said)


def main():
    pick = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        ids = os.path.join(folder, "ids")
        with open(ids, "w", encoding="ascii") as f:
            f.write(" ".join(str(pick.randrange(3, 500)) for _ in range(400)))
        file_that_may_not_grow(folder)
        full_disk()
        seen = []
        for i in range(KILLS):
            after_s = pick.uniform(0, 2.5)
            try:
                seen.append(kill_at(folder, ids, after_s))
            except Failure as e:
                raise Failure("kill %d, after %.2f s: %s" % (i, after_s, e)) from e
        want(any(layers > 0 for _, layers in seen), "no kill left a layer: %s" % seen)
    print("%d kills, evals and layers left: %s" % (KILLS, seen))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit("FAIL " + str(failure))
