#!/usr/bin/env python3
"""test_ppl_figures.py SLUICE GOLDEN SOURCE: the figures of sluice ppl, its reference runs, loops.

Everything is computed a second time here: windows, likelihoods and divergences from the logits of
`sluice eval`, for both methods, with and without BOS; the file of a reference run by a reader made
from docs/FORMAT.md alone; loops by looking at every end of a greedy answer. Then files that are
cut, flipped, or made to deceive: one clear line and exit code 1 each. Python's standard library
only. Exit code 77 where the golden models are missing."""
import array
import json
import math
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

SLUICE, GOLDEN = (os.path.abspath(a) for a in sys.argv[1:3])
MODELS = {name: '%s/%s/model.gguf' % (GOLDEN, name) for name in ('qwen3moe-Q8_0', 'mixtral-Q8_0')}
MODEL = MODELS['qwen3moe-Q8_0']
LOOPING = GOLDEN + '/granitemoe-shared-Q8_0/model.gguf'  # whose weights make most answers loop
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith('SLUICE_')}
MEAN, SINGLE = 1e-5, 1e-4  # how far figures may be off: of all tokens, of a single one
WORD = 1 << 64
TEXT = ('The quick brown fox jumps over the lazy dog; 12 boxing wizards jump quickly.\n'
        'Zwei Boxkämpfer jagen Eva quer durch Sylt. ') * 2


def run(*arguments):
    done = subprocess.run([SLUICE, *arguments], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stdout, done.stderr


def sluice(*arguments):
    code, out, err = run(*arguments)
    if code:
        sys.exit('FAIL sluice %s: %s' % (' '.join(arguments), err))
    return out


def write(name, content):
    with open(name, 'wb') as f:
        f.write(content if isinstance(content, bytes) else content.encode())
    return name


def read(name):
    with open(name, 'rb') as f:
        return f.read()


# ---- what the figures have to be ------------------------------------------------------------


def log_softmax(row):
    top = max(row)
    total = math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - top - total for x in row]


def windows(n, context, bos, llama_cpp):
    """(begin, end, first scored) of each window over the tokens of a text."""
    if llama_cpp:
        for i in range((n + bos) // context):
            begin = i * context
            yield begin, begin + context - bos, begin + context // 2 + 1 - bos
        return
    begin, done = 0, 1 - bos
    while done < n:
        end = min(begin + context - bos, n)
        yield begin, end, done
        begin, done = begin + context // 2, end


def distributions(model, ids, bos, context, llama_cpp, options=()):
    """For each scored token: the log-probabilities before it, and its id."""
    for begin, end, scored in windows(len(ids), context, len(bos), llama_cpp):
        sequence = bos + ids[begin:end]
        write('w', ' '.join(map(str, sequence)))
        sluice('eval', '-m', model, '--tokens', 'w', '--logits', 'l', '-q', *options)
        logits = array.array('f', read('l'))
        n_vocab = len(logits) // len(sequence)
        for i in range(len(sequence) - (end - scored), len(sequence)):
            yield log_softmax(logits[(i - 1) * n_vocab:i * n_vocab]), sequence[i]


def quantile(values, part):
    values, at = sorted(values), part * (len(values) - 1)
    low = min(int(at), len(values) - 2)
    return values[low] + (at - low) * (values[low + 1] - values[low])


def mean(values):
    return math.fsum(values) / len(values)


def error(values):
    m = mean(values)
    return math.sqrt(math.fsum((v - m) ** 2 for v in values) / len(values) / (len(values) - 1))


def figures(reference, this, n_bytes):
    kl = [math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q))
          for (p, _), (q, _) in zip(reference, this)]
    nll = [-q[i] for q, i in this]
    base = [-p[i] for p, i in reference]
    excess = [a - b for a, b in zip(nll, base)]
    perplexity, ratio = math.exp(mean(nll)), math.exp(mean(excess))
    return {
        'scored_tokens': len(nll), 'mean_nll': mean(nll), 'perplexity': perplexity,
        'perplexity_error': perplexity * error(nll),
        'bits_per_byte': math.fsum(nll) / math.log(2) / n_bytes,
        'reference_perplexity': math.exp(mean(base)), 'perplexity_ratio': ratio,
        'perplexity_ratio_error': ratio * error(excess), 'mean_kl': mean(kl),
        'kl_error': error(kl), 'median_kl': quantile(kl, 0.5), 'kl_99': quantile(kl, 0.99),
        'kl_99_9': quantile(kl, 0.999), 'max_kl': max(kl),
        'same_top': mean([p.index(max(p)) == q.index(max(q))
                          for (p, _), (q, _) in zip(reference, this)]),
    }


def compare(name, context, llama_cpp):
    """Yields (fault, holds) for one model and method."""
    model, lossy = MODELS[name], ['--experts-used', '1']
    text = TEXT * (2 if llama_cpp else 1)
    write('t', text)
    ids = json.loads(sluice('tokenize', '-m', model, '-f', 't', '--no-bos', '--json'))['ids']
    all_ids = json.loads(sluice('tokenize', '-m', model, '-f', 't', '--json'))['ids']
    bos = all_ids[:len(all_ids) - len(ids)]
    method = ['-c', str(context)] + (['--llama-cpp'] if llama_cpp else [])
    sluice('ppl', '-m', model, '-f', 't', '--save-logits', 'r', '-q', *method)
    got = json.loads(sluice('ppl', '-m', model, '--kl', 'r', '--json', *lossy))
    reference = list(distributions(model, ids, bos, context, llama_cpp))
    this = list(distributions(model, ids, bos, context, llama_cpp, lossy))
    yield 'no BOS in mixtral', len(bos) == (name == 'mixtral-Q8_0')
    want = figures(reference, this, got['scored_bytes'])
    for key, value in want.items():
        limit = SINGLE if key in ('kl_99', 'kl_99_9', 'max_kl') else MEAN
        near = abs(got[key] - value) <= limit * max(1, abs(value))
        yield '%s of %s is %r, wanted %r' % (key, name, got[key], value), near
    if not llama_cpp:  # all tokens are scored, without BOS but the first
        first = sluice('tokenize', '-m', model, '--decode', '-p', str(ids[0]))
        missing = 0 if bos else len(first.rstrip('\n').encode())
        yield 'scored_bytes', got['scored_bytes'] == len(text.encode()) - missing


def test_ppl__both_methods_with_and_without_bos__as_computed_from_logits():
    for name in MODELS:
        for llama_cpp in (False, True):
            yield from compare(name, 48, llama_cpp)


# ---- reference runs -------------------------------------------------------------------------

HEAD = struct.Struct('<8s6I4Q')


def sum_of(value, content):
    for (word,) in struct.iter_unpack('<Q', content):
        value = (value ^ word) * 0x9e3779b97f4a7c15 % WORD
        value ^= value >> 32
    return value


def padded(n):
    return (n + 7) // 8 * 8


def sections(content):
    """The checked ranges of a file: its header, and each distribution."""
    fields = HEAD.unpack_from(content)
    n_vocab, model_bytes, n_tokens, n_rows = fields[2], fields[6], fields[7], fields[9]
    end = HEAD.size + padded(model_bytes) + padded(4 * n_tokens)
    yield 0, end
    for _ in range(n_rows):
        begin, end = end + 8, end + 8 + 16 + padded(2 * n_vocab)
        yield begin, end


def with_sums(content):
    """The same with checksums that fit."""
    content, value = bytearray(content), 0
    for begin, end in sections(bytes(content)):
        value = sum_of(value, content[begin:end])
        struct.pack_into('<Q', content, end, value)
    return bytes(content)


def test_reference__read_by_another_reader__what_the_model_said():
    write('ids', ' '.join(str(i * 7 % 512) for i in range(40)))
    sluice('ppl', '-m', MODEL, '--tokens', 'ids', '-c', '32', '--save-logits', 'r', '-q')
    content = read('r')
    magic, version, n_vocab, window, stride, flags, _, n_tokens, n_bytes, n_rows, _ = \
        HEAD.unpack_from(content)
    yield 'header', (magic, version, n_vocab, window, stride, flags, n_tokens, n_rows) == \
        (b'SLREF\r\n\x1a', 1, 512, 32, 16, 0, 40, 39) and n_bytes > 0
    yield 'checksums', with_sums(content) == content
    parts = list(sections(content))
    yield 'size', len(content) == parts[-1][1] + 8
    ids = struct.unpack_from('<40I', content, parts[0][1] - 160)
    yield 'ids', list(ids) == [i * 7 % 512 for i in range(40)]
    want = list(distributions(MODEL, list(ids), [], 32, False))
    worst = 0
    for (begin, _), (row, came) in zip(parts[1:], want):
        nll, curve, top = struct.unpack_from('<dfI', content, begin)
        codes = struct.unpack_from('<512H', content, begin + 16)
        found = log_softmax([-curve * c * c for c in codes])
        worst = max(worst, max(abs(a - b) * math.exp(b / 2) for a, b in zip(found, row)))
        yield 'nll or top', abs(nll + row[came]) < 1e-9 and top == row.index(max(row))
    yield 'weighted error %g' % worst, worst < 1e-4


def fails(content, why):
    """(fault, holds): the program refuses content with one line that names the file."""
    write('x', content)
    code, out, err = run('ppl', '-m', MODEL, '--kl', 'x', '-q')
    lines = err.splitlines()
    good = code == 1 and not out and len(lines) == 1 and lines[0].startswith('sluice: x: ')
    return '%s: exit code %d, %r, %r' % (why, code, out, err), good


def test_reference__cut_or_flipped__one_line():
    write('ids', '5 6 7 8 9')
    sluice('ppl', '-m', MODEL, '--tokens', 'ids', '--save-logits', 'r', '-q')
    content, chance = read('r'), random.Random(1)
    for n in [0, 1, 7, 63, 64, 65, 100, len(content) - 1] + chance.sample(range(len(content)), 10):
        yield fails(content[:n], 'cut to %d' % n)
    yield fails(content + b'\0', 'longer')
    for bit in list(range(0, 8 * HEAD.size, 5)) + chance.sample(range(8 * len(content)), 60):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        yield fails(bytes(flipped), 'bit %d flipped' % bit)


def test_reference__made_to_deceive__one_line():
    write('ids', '5 6 7 8 9')
    sluice('ppl', '-m', MODEL, '--tokens', 'ids', '--save-logits', 'r', '-q')
    content = read('r')
    (_, head_end), (row, _) = list(sections(content))[:2]
    top = struct.unpack_from('<I', content, row + 12)[0]
    lies = [('id', head_end - 24, '<I', 512), ('negative id', head_end - 24, '<i', -1),
            ('negative nll', row, '<d', -1.0), ('nll', row, '<d', math.nan),
            ('infinite curve', row + 8, '<f', math.inf), ('curve', row + 8, '<f', math.nan),
            ('negative curve', row + 8, '<f', -1.0), ('top', row + 12, '<I', 512),
            ('nothing likely', row + 16 + 2 * top, '<H', 1), ('method', 24, '<I', 4)]
    for why, offset, form, value in lies:
        lie = bytearray(content)
        struct.pack_into(form, lie, offset, value)
        yield fails(with_sums(lie), why)
    fields = [('n_vocab', 12, '<I', 0), ('n_vocab', 12, '<I', 2 ** 32 - 1), ('window', 16, '<I', 0),
              ('window', 16, '<I', 2 ** 32 - 1), ('stride', 20, '<I', 0),
              ('stride', 20, '<I', 512), ('name', 28, '<I', 2 ** 32 - 1),
              ('n_tokens', 32, '<Q', 0), ('n_tokens', 32, '<Q', 2 ** 64 - 1),
              ('n_tokens', 32, '<Q', 2 ** 28), ('n_rows', 48, '<Q', 2 ** 60),
              ('version', 8, '<I', 2), ('version', 8, '<I', 0)]
    for why, offset, form, value in fields:
        lie = bytearray(content)
        struct.pack_into(form, lie, offset, value)
        yield fails(bytes(lie), '%s %d' % (why, value))
    smaller = bytearray(content[:HEAD.size] + content[HEAD.size:head_end + 8])
    struct.pack_into('<I', smaller, 12, 12)
    rows = b''.join(content[b:b + 16 + 24] + bytes(8) for b, _ in list(sections(content))[1:])
    yield fails(with_sums(bytes(smaller) + rows), 'another vocabulary')
    renamed = bytearray(content)
    renamed[56] ^= 1
    write('x', with_sums(renamed))
    code, _, err = run('ppl', '-m', MODEL, '--kl', 'x', '-q')
    yield 'no warning: ' + err, code == 0 and err.startswith('sluice: warning: x: made with a voc')


# ---- loops ----------------------------------------------------------------------------------


def first_loop(ids):
    """(tokens, period) of the first loop that an answer falls into, or None."""
    for n in range(1, len(ids) + 1):
        for period in range(1, 65):
            length = max(3 * period, 64)
            end = ids[n - length:n] if n >= length else []
            if end and all(end[i] == end[i - period] for i in range(period, length)):
                return n, period
    return None


def test_loops__greedy_answers__as_found_in_their_ids():
    prompts = ['hello', 'one two three', 'x', 'The capital of', '12 34', 'zzz', '. . .', 'and then']
    write('p', '\n'.join(prompts))
    meta = json.loads(sluice('info', LOOPING, '--meta', '--json'))['metadata']
    end = {m['key']: m['value'] for m in meta}['tokenizer.ggml.eos_token_id']
    got = json.loads(sluice('ppl', '-m', LOOPING, '--loops', 'p', '--raw', '-n', '300', '--json'))
    want = []
    for line, prompt in enumerate(prompts, 1):
        sluice_ids = sluice('tokenize', '-m', LOOPING, '-p', prompt)
        write('i', sluice_ids)
        ids = sluice('eval', '-m', LOOPING, '--tokens', 'i', '--greedy', '300', '-q').split()
        loop = first_loop(ids[:ids.index(end)] if end in ids else ids)
        if loop:
            want.append({'line': line, 'tokens': loop[0], 'period': loop[1]})
    loops = got['loops']
    yield 'all or none loop, so little was tested', 0 < len(want) < len(prompts)
    yield 'found %s, wanted %s' % (loops, want), loops['found'] == want
    yield 'counts', (loops['answers'], loops['looping']) == (len(prompts), len(want))


# ---- Ctrl-C ---------------------------------------------------------------------------------


def test_ppl__interrupted__130_and_no_file_is_left():
    write('t', '5 6 7 8 ' * 50000)
    process = subprocess.Popen([SLUICE, 'ppl', '-m', MODEL, '--tokens', 't', '--save-logits', 'y',
                                '-t', '1'], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not os.path.exists('y.partial') and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    yield 'exit code %d: %s' % (process.returncode, err), process.returncode == 130
    yield 'took too long', time.monotonic() - begin < 1
    yield 'printed %r' % out, not out
    yield 'left a file', not [n for n in os.listdir('.') if n.startswith('y')]


def main():
    if not all(os.path.exists(m) for m in [LOOPING, *MODELS.values()]):
        return 77
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith('test_'):
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            faults = [fault for fault, holds in test() if not holds]
            os.chdir('/')
        failed += len(faults)
        print('\n'.join('FAIL %s: %s' % (name, f) for f in faults) if faults else 'ok   ' + name,
              flush=True)
    return 1 if failed else 0


sys.exit(main())
