#!/usr/bin/env python3
"""check_calib.py SLUICE MODEL TOKENS [--context N]: the statistics of `sluice calib` against those
of llama.cpp's forward pass on the same ids.

llama-cpp-python runs the model; its evaluation callback sees the inputs of every product, which are
summed here as llama.cpp's imatrix tool sums them. Kept keys and values are float32 on both sides;
with an F32 model only the order of sums differs, with other types the rounding of activations too.
Prints the largest relative difference of a tensor's sums (of norms), and counts that differ. Needs
numpy, gguf and llama-cpp-python."""

import argparse
import collections
import ctypes
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy

MUL_MAT, MUL_MAT_ID = "MUL_MAT", "MUL_MAT_ID"


class Tensor(ctypes.Structure):
    """The begin of struct ggml_tensor."""


Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(Tensor) * 10),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
]


class Collector:
    """Sums of squares and counts of every weight matrix, [matrices][columns] and [matrices]."""

    def __init__(self):
        self.sums, self.counts = {}, {}
        ggml = llama_cpp.llama_cpp._lib
        ggml.ggml_op_name.restype = ctypes.c_char_p
        self.op_name = lambda op: ggml.ggml_op_name(op).decode()

    def add(self, name, matrix, n_matrices, rows):
        if name not in self.sums:
            self.sums[name] = numpy.zeros((n_matrices, rows.shape[1]))
            self.counts[name] = numpy.zeros(n_matrices, int)
        self.sums[name][matrix] += (rows.astype(float) ** 2).sum(0)
        self.counts[name][matrix] += len(rows)

    @staticmethod
    def array(t, kind):
        """A tensor as [ne3][ne2][ne1][ne0]; views are read by their strides."""
        size = sum((n - 1) * b for n, b in zip(t.ne, t.nb)) + 4
        raw = ctypes.string_at(t.data, size)
        return numpy.lib.stride_tricks.as_strided(
            numpy.frombuffer(raw, kind), tuple(t.ne)[::-1], tuple(t.nb)[::-1]
        )

    def see(self, pointer, ask, _user):
        t = ctypes.cast(pointer, ctypes.POINTER(Tensor)).contents
        op = self.op_name(t.op)
        if op not in (MUL_MAT, MUL_MAT_ID):
            return not ask
        w, x = t.src[0].contents, t.src[1].contents
        name = w.name.decode()
        if not name.endswith(".weight"):
            return not ask
        if ask:
            return True
        inputs = self.array(x, numpy.float32)
        if op == MUL_MAT:
            self.add(name, 0, 1, inputs.reshape(-1, x.ne[0]))
            return True
        ids = self.array(t.src[2].contents, numpy.int32)[0, 0]
        for token, chosen in enumerate(ids):
            for k, expert in enumerate(chosen):
                row = inputs[0, token, k % x.ne[1]]
                self.add(name, expert, w.ne[2], row[None])
        return True


def run_llama(model, windows):
    collector = Collector()
    callback = llama_cpp.ggml_backend_sched_eval_callback(collector.see)
    llama_cpp.llama_log_set(LOG, None)
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_default_params()
    settings.use_extra_bufts = False
    m = llama_cpp.llama_model_load_from_file(model.encode(), settings)
    context = llama_cpp.llama_context_default_params()
    context.n_ctx = context.n_batch = context.n_ubatch = len(windows[0])
    context.type_k = context.type_v = 0  # F32
    context.flash_attn_type = 0
    context.cb_eval = callback
    c = llama_cpp.llama_init_from_model(m, context)
    for ids in windows:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(c), True)
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, 1
        if llama_cpp.llama_decode(c, batch):
            sys.exit("llama.cpp could not evaluate the tokens")
        llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(c)
    llama_cpp.llama_model_free(m)
    return collector


@llama_cpp.llama_log_callback
def LOG(_level, _text, _user):
    pass


def read(path):
    sums, counts = {}, collections.Counter()
    for t in gguf.GGUFReader(path).tensors:
        name, _, kind = t.name.rpartition(".")
        if kind == "in_sum2":
            sums[name] = t.data.reshape(-1, t.shape[0]).astype(float)
        else:
            counts[name] = t.data.reshape(-1).astype(int)
    return sums, counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sluice")
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--context", type=int, default=32)
    a = parser.parse_args()
    ids = [int(word) for word in open(a.tokens).read().split()]
    fields = gguf.GGUFReader(a.model).fields

    def field(name, fallback):
        return fields[name].contents() if name in fields else fallback

    with tempfile.TemporaryDirectory() as folder:
        out = folder + "/stats.gguf"
        command = [a.sluice, "calib", "-m", a.model, "--tokens", a.tokens, "-o", out]
        command += ["-c", str(a.context), "--kv", "f32", "-q", "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        sums, counts = read(out)
    first = [field("tokenizer.ggml.bos_token_id", 0)]
    if not field("tokenizer.ggml.add_bos_token", False):
        first = []
    elif ids[:1] != first:
        ids = first + ids
    starts = range(0, len(ids) // a.context * a.context, a.context)
    windows = [first + ids[i + len(first) : i + a.context] for i in starts]
    theirs = run_llama(a.model, windows)
    worst, wrong = 0.0, 0
    for name in sorted(set(sums) | set(theirs.sums)):
        if name not in sums or name not in theirs.sums:
            print("%s: only %s has it" % (name, "Sluice" if name in sums else "llama.cpp"))
            continue
        wrong += int(abs(counts[name] - theirs.counts[name]).sum())
        error = numpy.linalg.norm(sums[name] - theirs.sums[name])
        worst = max(worst, error / numpy.linalg.norm(theirs.sums[name]))
    print(
        "%d tensors, %d windows; largest relative difference %.2g; %d counts differ"
        % (len(sums), len(windows), worst, wrong)
    )
    return 1 if worst > 1e-3 or wrong else 0


sys.exit(main())
