#!/usr/bin/env python3
"""test_stream_system.py PROGRAM NO_URING GOLDEN DEMO: the program streams, the system misbehaves.

Files that are cut, replaced or rewritten before and during a run, file systems without direct
reads, a kernel that refuses io_uring, full disks, kills, and small limits. Whatever happens, a run
ends with the right answer or with exit code 1 and one sentence that names the file; never with a
signal, never with other tokens. NO_URING is the program of tests/support/no_uring.c, GOLDEN a
golden case with experts, DEMO a larger model. What this system cannot show is skipped with a line.
Nothing outside of its own folders is changed. Standard library only."""

import glob
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM, NO_URING, GOLDEN, DEMO = (os.path.abspath(a) for a in sys.argv[1:5])
SOURCE = os.path.join(GOLDEN, "model.gguf")
TOKENS = os.path.join(GOLDEN, "tokens.txt")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
STREAM = ["--slots", "2"]  # the fewest: nearly every token reads
BACKENDS = ["uring", "pread"]
TIMEOUT_S = 120
LONG = ["--raw", "-p", "one", "-n", "1200", "-c", "2000", "--temp", "0", "--ignore-eos"]
NOBODY = 65534


class Skip(Exception):
    """Why this system cannot show something."""


class Failure(Exception):
    """What went wrong, as a sentence."""


def want(holds, what):
    if not holds:
        raise Failure(what)


class Run:
    """A finished run of the program."""

    def __init__(self, code, out, err, logits=None):
        self.code, self.out, self.err, self.logits = code, out, err, logits

    def last(self):
        return (self.err.strip().splitlines() or [""])[-1]

    def refused(self, *words):
        """Fails with exit code 1 and one sentence that has one of the words."""
        want(self.code == 1, "exit code %d, wanted 1: %s" % (self.code, self.err[-400:]))
        want("Sanitizer" not in self.err, self.err[-2000:])
        found = not words or any(w in self.last() for w in words)
        want(found, "the message %r has none of %s" % (self.last(), ", ".join(words)))

    def right(self, logits):
        want(self.code == 0, "exit code %d: %s" % (self.code, self.err[-400:]))
        want("Sanitizer" not in self.err, self.err[-2000:])
        want(self.logits == logits, "other logits")

    def right_or_refused(self, logits, *words):
        if self.code == 0:
            self.right(logits)
        else:
            self.refused(*words)


class Bench:
    """A scratch folder with a copy of the model, and what it answers when nothing is wrong."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.model = os.path.join(scratch, "model.gguf")
        self.out = os.path.join(scratch, "logits.f32")
        self.fresh()
        plain = self.eval(["--io", "pread", "--threads", "1"])
        want(plain.code == 0, "without streaming: " + plain.err)
        self.logits = plain.logits
        whole = self.run([PROGRAM, "run", "-m", self.model] + LONG)
        want(whole.code == 0, "without streaming: " + whole.err)
        self.text = whole.out

    def fresh(self):
        """The model as it should be, in a new file."""
        shutil.copyfile(SOURCE, self.model + ".new")
        os.replace(self.model + ".new", self.model)
        if os.path.exists(self.model + ".sums"):
            os.unlink(self.model + ".sums")

    def run(self, command, **more):
        done = subprocess.run(
            command, env=ENVIRONMENT, capture_output=True, timeout=TIMEOUT_S, check=False, **more
        )
        return Run(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    def eval(self, options, model=None, before=(), out=None, **more):
        out = out or self.out
        if os.path.exists(out):
            os.unlink(out)
        command = list(before) + [PROGRAM, "eval", "-m", model or self.model, "--tokens", TOKENS]
        done = self.run(command + ["--logits", out] + options, **more)
        if done.code == 0:
            with open(out, "rb") as f:
                done.logits = f.read()
        return done

    def start(self, options):
        """A long greedy answer, under way: returns the process and the first bytes it said."""
        command = [PROGRAM, "run", "-m", self.model] + LONG + STREAM + options
        process = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        return process, process.stdout.read(16)

    def finish(self, process, first):
        """Never other text: what was said is the start of the right answer."""
        rest, err = process.communicate(timeout=TIMEOUT_S)
        done = Run(process.returncode, first + rest, err.decode("utf-8", "replace"))
        said = done.out.rstrip(b"\n")
        want(len(said) >= 16 or done.code != 0, "nothing was said: " + done.err[-400:])
        # An error may come in the middle of a character.
        want(self.text.startswith(said[:-4]), "other text")
        return done


def without_a_sanitizer():
    """Limits on address space say nothing where a sanitizer reserves terabytes of it."""
    done = subprocess.run(
        [PROGRAM, "--version"],
        capture_output=True,
        check=False,
        preexec_fn=limit(resource.RLIMIT_AS, 1 << 30),
    )
    if done.returncode != 0:
        raise Skip("the program does not start in 1 GiB of address space (a sanitizer?)")


def limit(which, value):
    return lambda: resource.setrlimit(which, (value, value))


# ---- files --------------------------------------------------------------------------------------


def test_file__incomplete__refused_with_both_sizes(b):
    size = os.path.getsize(SOURCE)
    for cut in (size - 1, size - 4096, size * 3 // 4, size // 2, size // 3):
        b.fresh()
        os.truncate(b.model, cut)
        for io in BACKENDS + ["mmap"]:
            done = b.eval(["--io", io] + STREAM)
            done.refused("model.gguf")
            want(str(cut) in done.last(), "the size found is not in %r" % done.last())


def test_file__empty_or_a_folder__refused(b):
    with open(b.model, "wb"):
        pass
    b.eval(STREAM).refused("model.gguf")
    b.eval(STREAM, model=b.scratch).refused(b.scratch)


def test_file__cut_while_open__error_that_names_it(b):
    for io in BACKENDS:
        b.fresh()
        process, first = b.start(["--io", io])
        os.truncate(b.model, os.path.getsize(b.model) // 3)
        b.finish(process, first).refused("model.gguf")


def test_file__replaced_while_open__right_or_changed(b):
    for io in BACKENDS:
        b.fresh()
        process, first = b.start(["--io", io])
        other = bytearray(open(SOURCE, "rb").read())
        other[len(other) // 3 :] = bytes(len(other) - len(other) // 3)
        with open(b.model + ".other", "wb") as f:
            f.write(other)
        os.replace(b.model + ".other", b.model)
        done = b.finish(process, first)
        if done.code != 0:
            done.refused("model.gguf")


def rewrite(path, keep_time):
    """Inverts the second half of the file, which has most experts, in place."""
    before = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(before.st_size // 2)
        data = f.read()
        f.seek(before.st_size // 2)
        f.write(bytes(x ^ 0x55 for x in data))
        f.flush()
        os.fsync(f.fileno())
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_file__rewritten_while_open__never_other_text(b):
    for io in BACKENDS:
        for keep_time in (False, True):  # with the old time only checksums can tell
            b.fresh()
            process, first = b.start(["--io", io])
            rewrite(b.model, keep_time)
            b.finish(process, first).refused("model.gguf")


def test_file__removed_while_open__right(b):
    for io in BACKENDS:
        b.fresh()
        process, first = b.start(["--io", io])
        os.unlink(b.model)
        done = b.finish(process, first)
        if done.code != 0:
            done.refused("model.gguf")


# ---- sums files ---------------------------------------------------------------------------------


def make_sums(b, model=None):
    return b.run([PROGRAM, "verify", "-m", model or b.model, "--make-sums"])


def test_sums__damaged_model__found_by_verify_and_on_first_reads(b):
    done = make_sums(b)
    want(done.code == 0 and os.path.exists(b.model + ".sums"), "no sums file: " + done.err)
    for io in BACKENDS:
        for options in (STREAM, []):
            b.eval(["--io", io] + options).right(b.logits)
    size = os.path.getsize(b.model)
    for at in range(size // 5, size, size // 9):
        shutil.copyfile(SOURCE, b.model)
        with open(b.model, "r+b") as f:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 4]))
        b.run([PROGRAM, "verify", "-m", b.model]).refused("model.gguf")
        for io in BACKENDS:
            b.eval(["--io", io] + STREAM).right_or_refused(b.logits, "model.gguf")
            b.eval(["--io", io]).refused("model.gguf")


def test_sums__damaged_or_foreign__refused(b):
    want(make_sums(b).code == 0, "no sums file")
    sums = b.model + ".sums"
    with open(sums, "rb") as f:
        good = f.read()
    bad = [b"", good[:-1], good[: len(good) // 2], good[:4], b"x" * len(good), good + b"x"]
    bad += [good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :] for i in range(0, len(good), 97)]
    for content in bad:
        with open(sums, "wb") as f:
            f.write(content)
        b.eval(STREAM).refused("model.gguf")
        b.run([PROGRAM, "verify", "-m", b.model]).refused("model.gguf")
    other = os.path.join(GOLDEN, "..", "olmoe-Q8_0", "model.gguf")
    model = os.path.join(b.scratch, "other.gguf")
    shutil.copyfile(other, model)
    with open(model + ".sums", "wb") as f:
        f.write(good)
    b.eval(STREAM, model=model).refused("other.gguf")
    for name in (model, model + ".sums"):
        os.unlink(name)


def test_sums__killed_while_making__no_half_file(b):
    if not os.path.exists(DEMO):
        raise Skip("there is no %s" % DEMO)
    model = os.path.join(b.scratch, "demo.gguf")
    sums = model + ".sums"
    shutil.copyfile(DEMO, model)
    killed = 0
    for i in range(40):
        process = subprocess.Popen(
            [PROGRAM, "verify", "-m", model, "--make-sums"],
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.002 * i)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if os.path.exists(sums):
            done = b.run([PROGRAM, "verify", "-m", model])
            want(done.code == 0, "a half sums file: " + done.err)
            os.unlink(sums)
    want(killed > 0, "no run was killed in time")
    done = make_sums(b, model)
    want(done.code == 0, "after the kills: " + done.err)
    for name in glob.glob(glob.escape(model) + "*"):
        os.unlink(name)


# ---- file systems -------------------------------------------------------------------------------


class Mounted:
    """A file system for the time of a test."""

    def __init__(self, kind, options, where):
        self.where = where
        os.makedirs(where, exist_ok=True)
        self.command = ["mount", "-t", kind, "-o", options, kind, where]

    def __enter__(self):
        done = subprocess.run(self.command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Skip("no mount here: " + done.stderr.strip())
        return self.where

    def __exit__(self, *ignored):
        subprocess.run(["umount", self.where], check=True)
        return False


def same_on(b, folder):
    with tempfile.TemporaryDirectory(dir=folder) as own:
        model = os.path.join(own, "model.gguf")
        shutil.copyfile(SOURCE, model)
        for io in BACKENDS + ["mmap"]:
            for options in (STREAM, []):
                b.eval(["--io", io] + options, model=model).right(b.logits)


def test_filesystem__memory__same_logits(b):
    if not os.access("/dev/shm", os.W_OK):
        raise Skip("there is no /dev/shm to write to")
    same_on(b, "/dev/shm")


def test_filesystem__overlay__same_logits(b):
    base = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        parts = {n: os.path.join(base, n) for n in ("lower", "upper", "work")}
        for name in parts.values():
            os.mkdir(name)
        shutil.copyfile(SOURCE, os.path.join(parts["lower"], "below.gguf"))
        options = "lowerdir={lower},upperdir={upper},workdir={work}".format(**parts)
        with Mounted("overlay", options, os.path.join(b.scratch, "merged")) as where:
            same_on(b, where)
            b.eval(STREAM, model=os.path.join(where, "below.gguf")).right(b.logits)
    finally:
        shutil.rmtree(base)


def test_disk__full__sums_and_hot_list_fail_cleanly(b):
    where = os.path.join(b.scratch, "small")
    pages = os.path.getsize(SOURCE) // 4096 + 2
    with Mounted("tmpfs", "size=%dk" % (pages * 4), where):
        model = os.path.join(where, "model.gguf")
        shutil.copyfile(SOURCE, model)
        with open(os.path.join(where, "filler"), "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        before = sorted(os.listdir(where))
        make_sums(b, model).refused("model.gguf")
        want(sorted(os.listdir(where)) == before, "left behind: %s" % os.listdir(where))
        hot = os.path.join(where, "hot.txt")
        done = b.eval(STREAM + ["--hot-list", hot], model=model)
        want(done.code in (0, 1), "exit code %d" % done.code)
        want("hot.txt" in done.err, "nobody says that the hot list was not written: " + done.err)
        if done.code == 0:
            done.right(b.logits)
        want(sorted(os.listdir(where)) == before, "left behind: %s" % os.listdir(where))


# ---- hot lists ----------------------------------------------------------------------------------


def test_hot_list__written_read_back_or_damaged__same_logits(b):
    hot = os.path.join(b.scratch, "hot.txt")
    half = ["--slots", "12", "--hot-list", hot]
    for io in BACKENDS:
        for _ in range(3):
            b.eval(["--io", io] + half).right(b.logits)
        want(os.path.getsize(hot) > 0, "no hot list was written")
        with open(hot, "rb") as f:
            good = f.read()
        lines = good.splitlines(keepends=True)
        first = lines[0]
        odd = [b"", good[:-1], first, b"\xff\xfe" * 50, first + b"999999 0\n", first + b"-1 -1\n"]
        odd += [first + b"0 0\n0 0\n", b"".join(lines[1:]), first + b"0 " + b"9" * 5000 + b"\n"]
        for content in odd:
            with open(hot, "wb") as f:
                f.write(content)
            b.eval(["--io", io] + half).right_or_refused(b.logits, "hot.txt")
        os.unlink(hot)


# ---- io_uring refused ---------------------------------------------------------------------------


def refusal(b, before):
    probe = b.run(list(before) + [PROGRAM, "--version"])
    if probe.code == 77:
        raise Skip(probe.err.strip())
    done = b.eval(STREAM + ["-v"], before=before)
    done.right(b.logits)
    want("io_uring" in done.err, "the log says nothing of io_uring: " + done.err)
    b.eval(STREAM + ["--io", "pread"], before=before).right(b.logits)
    b.eval(STREAM + ["--io", "uring"], before=before).refused("io_uring")


def test_uring__refused_by_a_filter__pread_and_the_log_says_so(b):
    refusal(b, [NO_URING])


# ---- limits -------------------------------------------------------------------------------------


def test_limit__locked_memory__same_logits(b):
    """Registered buffers are an optimization. Root may lock what it likes, so as nobody."""

    def drop():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

    folder = os.path.join(b.scratch, "open")
    os.makedirs(folder, exist_ok=True)
    for path, mode in ((b.scratch, 0o755), (b.model, 0o644), (folder, 0o777)):
        os.chmod(path, mode)
    probe = [PROGRAM, "info", b.model]
    try:
        done = b.run(probe, preexec_fn=drop)
    except (PermissionError, subprocess.SubprocessError) as error:
        raise Skip("nobody cannot run the program: %s" % error) from error
    if done.code != 0:
        raise Skip("nobody cannot read the model: " + done.err.strip())
    out = os.path.join(folder, "logits.f32")
    tokens = os.path.join(folder, "tokens.txt")
    shutil.copyfile(TOKENS, tokens)
    for io in BACKENDS:
        for options in (STREAM, []):
            command = [PROGRAM, "eval", "-m", b.model, "--tokens", tokens, "--logits", out]
            done = b.run(command + ["--io", io] + options, preexec_fn=drop)
            if done.code == 0:
                with open(out, "rb") as f:
                    done.logits = f.read()
                os.unlink(out)
            done.right(b.logits)


def test_limit__address_space__right_or_refused(b):
    without_a_sanitizer()
    worked = 0
    for mib in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512):
        for io in BACKENDS:
            done = b.eval(STREAM + ["--io", io], preexec_fn=limit(resource.RLIMIT_AS, mib << 20))
            if done.code == 127 or "loading shared libraries" in done.err:
                continue  # too little for the loader: none of ours ran
            if done.code == 0:
                done.right(b.logits)
                worked += 1
            else:
                done.refused()
    want(worked > 0, "it never works, not even in 512 MiB")


def test_limit__open_files__right_or_refused(b):
    worked = 0
    for n in range(3, 24):
        for io in BACKENDS:
            done = b.eval(STREAM + ["--io", io], preexec_fn=limit(resource.RLIMIT_NOFILE, n))
            if done.code == 127 or "loading shared libraries" in done.err:
                continue
            if done.code == 0:
                done.right(b.logits)
                worked += 1
            else:
                done.refused()
    want(worked > 0, "it never works, not even with 23 descriptors")


# ---- running ------------------------------------------------------------------------------------


def granted(b):
    """Backends that this kernel grants."""
    done = b.eval(["--io", "uring"] + STREAM)
    if done.code == 0:
        return ["uring", "pread"]
    print("without io_uring: " + done.last())
    return ["pread"]


def main():
    only = sys.argv[5] if len(sys.argv) > 5 else ""
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        b = Bench(scratch)
        BACKENDS[:] = granted(b)
        for name, test in sorted(globals().items()):
            if not name.startswith("test_") or only not in name:
                continue
            b.fresh()
            begin = time.monotonic()
            try:
                test(b)
                print("ok   %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
            except Skip as why:
                print("skip %s: %s" % (name, why), flush=True)
            except (Failure, OSError, subprocess.SubprocessError) as what:
                failed += 1
                print("FAIL %s: %s" % (name, what), flush=True)
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
