#!/usr/bin/env python3
"""test_pack_kill.py PROGRAM MODEL SMALL [ONLY]: packing that is stopped, and gone on with.

kill -9 at random moments, and at the moments that are too short to be met by chance: whoever goes
on ends with the file that an uninterrupted run writes, byte for byte, and until then nothing bears
the final name. The same for Ctrl-C, for a disk that fills up, and for what was spoilt between two
runs. MODEL is packed, or SMALL where that takes too long (sanitizers). Standard library only."""

import glob
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM, MODEL, SMALL = (os.path.abspath(a) for a in sys.argv[1:4])
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
OPTIONS = ["--bits", "3"]
BITS_PER_WEIGHT = "4"
KILLS = 20
SLOW_S = 5  # of an uninterrupted run; beyond it SMALL is packed
TIMEOUT_S = 300  # a drive that others keep busy makes a sync wait
TRIES_MAX = 200
SEED = 20261130


class Skip(Exception):
    """Why this system cannot show something."""


class Failure(Exception):
    """What went wrong, as a sentence."""


def want(holds, what):
    if not holds:
        raise Failure(what)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


class Bench:
    """A folder, a model, and what an uninterrupted run makes of it in one file and in parts."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.model, self.split, self.options = MODEL, "2M", OPTIONS
        self.measure()
        if self.seconds > SLOW_S:
            self.model, self.split = SMALL, "128K"
            self.measure()
        self.random = random.Random(SEED)

    def with_statistics(self):
        """Packs to a size, by statistics, from here on."""
        stats, ids = (os.path.join(self.scratch, x) for x in ("stats.gguf", "ids.txt"))
        with open(ids, "w", encoding="ascii") as f:
            f.write(" ".join(str(self.random.randrange(250)) for _ in range(64)))
        command = [PROGRAM, "calib", "-m", self.model, "--tokens", ids, "-c", "32", "-o", stats]
        done = subprocess.run(
            command,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        want(done.returncode == 0, "calib: " + done.stderr)
        self.options = ["--target-bpw", BITS_PER_WEIGHT, "--imatrix", stats]
        self.measure()

    def measure(self):
        self.right = {}
        for split in (False, True):
            folder = self.fresh("right")
            begin = time.monotonic()
            done = self.pack(folder, split)
            self.seconds = time.monotonic() - begin
            want(done.returncode == 0, "uninterrupted: " + done.stderr)
            self.right[split] = self.finals(folder)
        want(len(self.right[False]) == 1 and len(self.right[True]) > 2, "--split makes no parts")
        self.bytes = os.path.getsize(os.path.join(folder, min(self.right[True])))

    def fresh(self, name):
        folder = os.path.join(self.scratch, name)
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        return folder

    def command(self, folder, split, more=()):
        out = os.path.join(folder, "m.sluice")
        parts = ["--split", self.split] if split else []
        return [PROGRAM, "pack", self.model, "-o", out] + self.options + parts + list(more)

    def pack(self, folder, split, more=(), **how):
        return subprocess.run(
            self.command(folder, split, more),
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            **how
        )

    def start(self, folder, split, more=()):
        return subprocess.Popen(
            self.command(folder, split, more),
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def finals(self, folder):
        """The files with final names, and what is in them."""
        names = glob.glob(os.path.join(glob.escape(folder), "*.sluice"))
        return {os.path.basename(n): digest(n) for n in names}

    def unfinished(self, folder, split):
        """Nothing bears the name that one would open, and what does is as it should be."""
        found = self.finals(folder)
        first = min(self.right[split])
        want(first not in found, "there is a %s before it was finished" % first)
        for name, what in found.items():
            want(what == self.right[split].get(name), "%s is not what it should be" % name)
        for name in os.listdir(folder):
            done = subprocess.run(
                [PROGRAM, "verify", os.path.join(folder, name)],
                env=ENVIRONMENT,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            if name in found or self.lacks_its_name_only(folder, name, split):
                continue
            want(done.returncode == 1, "verify accepts %s: %s" % (name, said))
            want(len(said) == 1 and name[:2] in said[0], "verify of %s: %s" % (name, said))

    def lacks_its_name_only(self, folder, name, split):
        """Killed after the last byte, before the first name."""
        whole = self.right[split].get(name.replace(".partial", ""))
        return digest(os.path.join(folder, name)) == whole

    def finish(self, folder, split, more=()):
        done = self.pack(folder, split, more)
        want(done.returncode == 0, "going on: exit code %d: %s" % (done.returncode, done.stderr))
        self.equal(folder, split)
        return done.stderr

    def finish_or_equal(self, folder, split):
        """After a kill: whoever goes on has perhaps only the journal to remove."""
        first = min(self.right[split])
        done = first in self.finals(folder) and not glob.glob(
            os.path.join(glob.escape(folder), "*.journal")
        )
        if done:
            self.equal(folder, split)
        else:
            self.finish(folder, split)

    def equal(self, folder, split):
        names = sorted(os.listdir(folder))
        want(names == sorted(self.right[split]), "left behind: %s" % ", ".join(names))
        for name, what in self.finals(folder).items():
            want(what == self.right[split][name], "%s is not as without interruption" % name)


def stop(process, how):
    """The exit code (negative: the signal) and what was said."""
    if process.poll() is None:
        process.send_signal(how)
    err = process.communicate(timeout=TIMEOUT_S)[1]
    return process.returncode, err.decode("utf-8", "replace")


# ---- at random moments ---------------------------------------------------------------------------


def kill_at_random(b, split):
    """One container after the other, each killed again and again until it comes to its end."""
    kills = kept = containers = 0
    for _ in range(TRIES_MAX):
        if kills >= KILLS:
            break
        folder = b.fresh("work")
        containers += 1
        while kills < KILLS:
            process = b.start(folder, split)
            time.sleep(b.random.uniform(0, 1.02 * b.seconds))
            code, err = stop(process, signal.SIGKILL)
            kept += "going on with" in err
            if code == 0:
                break
            want(code == -signal.SIGKILL, "exit code %d: %s" % (code, err))
            kills += 1
            if min(b.right[split]) in b.finals(folder):
                break  # it was given its name before it was killed
            b.unfinished(folder, split)
        b.finish_or_equal(folder, split)
    want(kills >= KILLS, "only %d runs could be killed in time" % kills)
    return "%d kills, %d containers, %d runs went on with records" % (kills, containers, kept)


def test_killed__at_random_moments__same_bytes(b):
    return kill_at_random(b, False)


def test_killed__at_random_moments_in_parts__same_bytes(b):
    return kill_at_random(b, True)


# ---- at moments that are seen --------------------------------------------------------------------


def seen(folder, pattern, least):
    """Whether as many files, or a file of as many bytes, are there."""
    found = glob.glob(os.path.join(glob.escape(folder), pattern))
    try:
        return len(found) >= least or any(os.path.getsize(n) >= least > 48 for n in found)
    except OSError:
        return False  # it was renamed just now


def wait_for(process, condition):
    end = time.monotonic() + TIMEOUT_S
    while process.poll() is None and not condition():
        want(time.monotonic() < end, "what should be seen does not come")


def test_killed__as_names_are_given__same_bytes(b):
    """The journal is there; it has entries; all parts are; each of the names is given."""
    n = len(b.right[True])
    moments = [("*.journal", 1), ("*.journal", 49), ("*.journal", 48 * 4), ("*.partial", n)]
    moments += [("*.sluice", i) for i in range(1, n)]
    killed = 0
    for pattern, least in moments:
        folder = b.fresh("work")
        process = b.start(folder, True)
        wait_for(process, lambda: seen(folder, pattern, least))  # pylint: disable=W0640
        killed += stop(process, signal.SIGKILL)[0] == -signal.SIGKILL
        if min(b.right[True]) not in b.finals(folder):
            b.unfinished(folder, True)
        b.finish_or_equal(folder, True)
    want(killed > 0, "no run was killed in time")
    return "%d of %d met" % (killed, len(moments))


# ---- Ctrl-C --------------------------------------------------------------------------------------


def test_interrupted__any_time__says_so_and_same_bytes(b):
    met, longest = 0, 0.9 * b.seconds
    for split in (False, True):
        folder = b.fresh("work")
        for _ in range(8):
            process = b.start(folder, split)
            time.sleep(b.random.uniform(0.02, longest))
            code, err = stop(process, signal.SIGINT)
            if code == 0:  # the machine is faster than it was: sooner, and from the start
                longest = max(0.03, longest / 2)
                folder = b.fresh("work")
                continue
            if code == -signal.SIGINT:
                continue  # before anything was set up
            want(code == 130, "exit code %d: %s" % (code, err))
            want("goes on where it stopped" in err, "it does not say how to go on: " + err)
            met += 1
            b.unfinished(folder, split)
        b.finish_or_equal(folder, split)
    want(met > 0, "no run could be interrupted in time")
    return "%d interrupted" % met


# ---- what happens between two runs ---------------------------------------------------------------


def interrupted_in_parts(b):
    """A folder in which some parts are finished and none has its name."""
    for _ in range(20):
        folder = b.fresh("work")
        process = b.start(folder, True)
        wait_for(process, lambda: seen(folder, "*.journal", 48 * 8))
        stop(process, signal.SIGKILL)
        if not b.finals(folder):
            return folder
    raise Failure("no run was killed in time")


def test_between_two_runs__parts_are_damaged__same_bytes(b):
    for name, at in (("*-00001-of-*.partial", 20000), ("*.journal", 60), ("*.journal", 130)):
        folder = interrupted_in_parts(b)
        path = glob.glob(os.path.join(glob.escape(folder), name))[0]
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 16]))
        b.finish(folder, True)


def test_between_two_runs__a_part_is_gone_or_cut__same_bytes(b):
    for cut in (False, True):
        folder = interrupted_in_parts(b)
        path = os.path.join(folder, min(b.right[True]) + ".partial")
        if cut:
            os.truncate(path, os.path.getsize(path) // 2 + 77)
        else:
            os.unlink(path)
        b.finish(folder, True)


def test_between_two_runs__other_options__refused_then_restarted(b):
    folder = interrupted_in_parts(b)
    before = {n: digest(os.path.join(folder, n)) for n in os.listdir(folder)}
    done = b.pack(folder, True, ["--bits", "4"])
    want(done.returncode == 1, "exit code %d: %s" % (done.returncode, done.stderr))
    want("--restart" in done.stderr and "m" in done.stderr, "it says " + done.stderr)
    after = {n: digest(os.path.join(folder, n)) for n in os.listdir(folder)}
    want(before == after, "a refused run changed what was there")
    said = b.finish(folder, True, ["--restart"])
    want("going on" not in said, "--restart goes on: " + said)


def test_finished__packed_again__refused_and_untouched(b):
    for split in (False, True):
        folder = b.fresh("work")
        b.finish(folder, split)
        for more in ([], ["--restart"]):
            done = b.pack(folder, split, more)
            want(done.returncode == 1, "exit code %d: %s" % (done.returncode, done.stderr))
            want("exists already" in done.stderr, "it says " + done.stderr)
            b.equal(folder, split)


# ---- a full disk ---------------------------------------------------------------------------------


def full(done, name):
    """One sentence that names the file."""
    lines = [x for x in done.stderr.splitlines() if "becomes" not in x and "going on" not in x]
    want(done.returncode == 1, "exit code %d: %s" % (done.returncode, done.stderr))
    want(lines and name in lines[-1], "the message is %r" % (lines[-1:] or ""))
    return lines[-1]


def limit_files(size):
    """To be run in the child: writing past size is an error, as on a full disk."""

    def run():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return run


def test_disk__files_may_not_grow__error_then_same_bytes(b):
    for split in (False, True):
        total = sum(
            os.path.getsize(os.path.join(b.scratch, "right", n))
            for n in os.listdir(os.path.join(b.scratch, "right"))
        )
        whole = b.bytes if split else total
        for part in (0, 3, 8):
            folder = b.fresh("work")
            done = b.pack(folder, split, preexec_fn=limit_files(whole * part // 10))
            full(done, "m")
            b.unfinished(folder, split)
            b.finish(folder, split)


class Mounted:
    """A file system in memory, of so many KiB."""

    def __init__(self, where, kib):
        self.where, self.kib = where, kib
        os.makedirs(where, exist_ok=True)

    def size(self, kib):
        return subprocess.run(
            ["mount", "-o", "remount,size=%dk" % kib, self.where], capture_output=True, check=True
        )

    def __enter__(self):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=%dk" % self.kib, "tmpfs", self.where],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Skip("no mount here: " + done.stderr.strip())
        return self

    def __exit__(self, *ignored):
        subprocess.run(["umount", self.where], check=True)
        return False


def total_kib(b):
    folder = os.path.join(b.scratch, "right")
    return sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder)) >> 10


def test_disk__too_small__refused_before_writing_then_same_bytes(b):
    said = ""
    for split in (False, True):
        with Mounted(os.path.join(b.scratch, "small"), total_kib(b) // 2) as disk:
            done = b.pack(disk.where, split)
            said = full(done, "m")
            want("room" in said or "space" in said, "it says " + said)
            want(not b.finals(disk.where), "a full disk has a final name")
            disk.size(4 * total_kib(b))
            b.finish(disk.where, split)
    return said.replace(b.scratch, "")


def test_disk__fills_up_while_writing__error_then_same_bytes(b):
    for split in (False, True):
        with Mounted(os.path.join(b.scratch, "small"), 4 * total_kib(b)) as disk:
            process = b.start(disk.where, split)
            wait_for(process, lambda: seen(disk.where, "*.partial", 1))
            process.send_signal(signal.SIGSTOP)
            filler = os.path.join(disk.where, "filler")
            with open(filler, "wb", buffering=0) as f:
                try:
                    while True:
                        f.write(bytes(65536))
                except OSError:
                    pass
            process.send_signal(signal.SIGCONT)
            err = process.communicate(timeout=TIMEOUT_S)[1].decode("utf-8", "replace")
            code = process.returncode
            if code == 0:
                raise Skip("the run was over before the disk was full")
            done = subprocess.CompletedProcess([], code, "", err)
            said = full(done, "m")
            want("space" in said or "room" in said, "it says " + said)
            os.unlink(filler)
            b.unfinished(disk.where, split)
            b.finish(disk.where, split)
    return said.replace(b.scratch, "")


# ---- chosen types -------------------------------------------------------------------------------


def test_sizes_and_statistics__killed__same_bytes(b):
    """The choice of types takes its time, and must come out alike in every run."""
    before = b.options, b.right, b.seconds, b.bytes
    b.with_statistics()
    want(b.right[True] != before[1][True], "the options change nothing")
    try:
        folder, kills = b.fresh("work"), 0
        for _ in range(8):
            process = b.start(folder, True)
            time.sleep(b.random.uniform(0.1, 0.95 * b.seconds))
            code, err = stop(process, signal.SIGKILL)
            if code == 0:
                break
            want(code == -signal.SIGKILL, "exit code %d: %s" % (code, err))
            kills += 1
            if min(b.right[True]) in b.finals(folder):
                break
        b.finish_or_equal(folder, True)
        return "%d kills" % kills
    finally:
        b.options, b.right, b.seconds, b.bytes = before


# ---- running -------------------------------------------------------------------------------------


def main():
    only = sys.argv[4] if len(sys.argv) > 4 else ""
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        b = Bench(scratch)
        print("%s, %.2f s uninterrupted" % (os.path.basename(b.model), b.seconds))
        for name, test in sorted(globals().items()):
            if not name.startswith("test_") or only not in name:
                continue
            begin = time.monotonic()
            try:
                more = test(b)
                seconds = time.monotonic() - begin
                print("ok   %s (%.1f s)%s" % (name, seconds, ": " + more if more else ""))
            except Skip as why:
                print("skip %s: %s" % (name, why))
            except (Failure, OSError, subprocess.SubprocessError) as what:
                failed += 1
                print("FAIL %s: %s" % (name, what))
            sys.stdout.flush()
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
