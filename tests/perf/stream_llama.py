#!/usr/bin/env python3
"""Decode rate of llama.cpp on given tokens, one at a time: the other side of stream_ab.sh, and of
resident_ab.sh, which asks for the rate of a prompt too.

    stream_llama.py -m MODEL --tokens IDS [-n N] [--skip S] [-c N] [-t N] [options]

MODEL may be a block device, such as a loop device over a GGUF file. IDS holds decimal token ids
separated by white space. The first S of them are evaluated without being counted, then N are timed,
each as a batch of one whose logits are fetched. The tokens are given, not chosen, so that two
engines, and two runs, route alike. With --prompt P the first P are first read once as a prompt, and
forgotten, unless --keep is given. The model is mapped (mmap, no mlock); keys and values are F16,
flash attention is left to llama.cpp, as in its own programs.

Prints one line of JSON. `decode_ms` is the wall time of the N tokens, `driver_ms` what of it was
spent outside of llama.cpp, in this program. `decode_read_bytes` is what the process, its threads
included, had read from the drive meanwhile; for a loop device that counts the requests to the
device, not what it does below. `process_peak_bytes` holds mapped pages too.

Needs: llama-cpp-python, Linux.
"""

import argparse
import ctypes
import json
import resource
import sys
import time

import llama_cpp


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--tokens", required=True, metavar="IDS")
    parser.add_argument("-n", type=int, default=200, help="tokens that are timed (200)")
    parser.add_argument("--skip", type=int, default=0, help="tokens before them (0)")
    parser.add_argument("-c", "--ctx-size", type=int, default=1024)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=0, help="tokens read as a prompt before (0)")
    parser.add_argument(
        "--keep", action="store_true", help="the other tokens follow the prompt in the context"
    )
    parser.add_argument(
        "--batch", type=int, default=8, help="tokens that are read at once, at most (8)"
    )
    parser.add_argument(
        "--no-repack", action="store_true", help="leave all weights in the mapping"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="llama.cpp's log on stderr")
    args = parser.parse_args()
    with open(args.tokens, encoding="ascii") as f:
        args.ids = [int(x) for x in f.read().split()]
    room = min(len(args.ids), args.ctx_size)
    args.first = args.prompt if args.keep else 0
    if args.n < 1 or args.skip < 0 or args.first + args.skip + args.n > room:
        parser.error("--skip and -n ask for more tokens than IDS or the context hold")
    if not 0 <= args.prompt <= room:
        parser.error("--prompt asks for more tokens than IDS or the context hold")
    return args


@llama_cpp.llama_log_callback
def silent(_level, _text, _data):
    """Takes llama.cpp's log."""


def load(args):
    """Returns the model and a context; exits where llama.cpp refuses."""
    if not args.verbose:
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    wanted = llama_cpp.llama_model_default_params()
    wanted.n_gpu_layers = 0
    wanted.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
    wanted.use_extra_bufts = not args.no_repack
    model = llama_cpp.llama_model_load_from_file(args.model.encode(), wanted)
    if not model:
        sys.exit("stream_llama: llama.cpp cannot load " + args.model)
    room = llama_cpp.llama_context_default_params()
    room.n_ctx = args.ctx_size
    room.n_batch = room.n_ubatch = args.batch
    room.n_threads = room.n_threads_batch = args.threads
    context = llama_cpp.llama_init_from_model(model, room)
    if not context:
        sys.exit("stream_llama: llama.cpp cannot make a context")
    return model, context


def evaluate(context, token):
    """One token, its logits included; returns nanoseconds inside of llama.cpp."""
    one = (llama_cpp.llama_token * 1)(token)
    began = time.perf_counter_ns()
    if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(one, 1)) != 0:
        sys.exit("stream_llama: llama_decode failed")
    llama_cpp.llama_get_logits(context)
    return time.perf_counter_ns() - began


def read_prompt(context, ids, batch):
    """All ids, batch at once, logits of the last of each; returns nanoseconds."""
    began = time.perf_counter_ns()
    for start in range(0, len(ids), batch):
        part = ids[start : start + batch]
        part = (llama_cpp.llama_token * len(part))(*part)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(part, len(part))) != 0:
            sys.exit("stream_llama: llama_decode failed")
    llama_cpp.llama_synchronize(context)
    return time.perf_counter_ns() - began


def bytes_read():
    """What this process has caused to be read from drives so far."""
    with open("/proc/self/io", encoding="ascii") as f:
        fields = dict(line.split(":") for line in f)
    return int(fields["read_bytes"])


def middle(values):
    return sorted(values)[len(values) // 2]


def main():
    args = parse()
    started = time.perf_counter_ns()
    _model, context = load(args)
    loaded = time.perf_counter_ns()
    prompt = read_prompt(context, args.ids[: args.prompt], args.batch)
    if not args.keep:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    rest = args.ids[args.first :]
    for token in rest[: args.skip]:
        evaluate(context, token)
    before = bytes_read()
    began = time.perf_counter_ns()
    inside = [evaluate(context, token) for token in rest[args.skip : args.skip + args.n]]
    wall = time.perf_counter_ns() - began
    read = bytes_read() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = {
        "engine": "llama.cpp",
        "version": "llama-cpp-python " + llama_cpp.__version__,
        "isa": llama_cpp.llama_print_system_info().decode().strip(" |"),
        "threads": args.threads,
        "ctx_size": args.ctx_size,
        "repack": not args.no_repack,
        "prompt_tokens": args.prompt,
        "prompt_ms": prompt / 1e6,
        "skipped_tokens": args.skip,
        "decode_tokens": args.n,
        "load_ms": (loaded - started) / 1e6,
        "decode_ms": wall / 1e6,
        "driver_ms": (wall - sum(inside)) / 1e6,
        "median_token_ms": middle(inside) / 1e6,
        "decode_read_bytes": read,
        "process_peak_bytes": peak,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
