#!/usr/bin/env python3
"""test_documented.py SLUICE GOLDEN SOURCE: every option, and every JSON key, is documented.

`sluice help options` prints the table of options: each name and alias has to stand in
docs/TUNING.md and docs/man/sluice.1, and TUNING.md has to give the table's defaults and ranges. The
keys that the verbs print with --json have to stand in docs/JSON.md (skipped without the golden
model), and bench, which runs here once for all tests, has to find every kernel bit-equal."""
import json
import os
import re
import subprocess
import sys
import tempfile

SLUICE, GOLDEN, SOURCE = (os.path.abspath(a) for a in sys.argv[1:4])
MODEL = GOLDEN + '/qwen3moe-Q8_0/model.gguf'
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith('SLUICE_')}


def read(name):
    with open(os.path.join(SOURCE, name), encoding='utf-8') as f:
        return f.read()


def sluice(*arguments):
    done = subprocess.run([SLUICE, *arguments], env=ENVIRONMENT, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit('FAIL sluice %s: %s' % (' '.join(arguments), done.stderr))
    return done.stdout


def ppl(ids):
    with tempfile.TemporaryDirectory() as folder:
        sluice('ppl', '-m', MODEL, '--tokens', ids, '--save-logits', folder + '/r')
        return sluice('ppl', '-m', MODEL, '--kl', folder + '/r', '--loops', ids, '--raw', '--json')


def calib(ids):
    with tempfile.TemporaryDirectory() as folder:
        out = folder + '/stats.gguf'
        return sluice('calib', '-m', MODEL, '--tokens', ids, '-c', '8', '--chunks', '1', '-o', out,
                      '--json')


def diffs(ids):
    with tempfile.TemporaryDirectory() as folder:
        sluice('pack', MODEL, '-o', folder + '/m.sluice', '-q')
        for option in ([], ['--swap-layers', '--tokens', ids]):
            yield sluice('diff', MODEL, folder + '/m.sluice', '--json', *option)
        yield sluice('verify', folder + '/m.sluice', '--deep', '--json')


def pack():
    with tempfile.TemporaryDirectory() as folder:
        return sluice('pack', MODEL, '-o', folder + '/m.sluice', '--json')


def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value[:1]:
            yield from keys(inner)


def undocumented_options():
    tuning, manual = read('docs/TUNING.md'), read('docs/man/sluice.1').replace('\\-', '-')
    for line in sluice('help', 'options').splitlines():
        name, aliases, _, _, default, text_range, verbs, _ = line.split('\t')
        for word in [name] + ([] if aliases == '-' else aliases.split()):
            for document, text in (('docs/TUNING.md', tuning), ('docs/man/sluice.1', manual)):
                if not re.search(r'(?<![\w-])%s(?![\w-])' % re.escape(word), text):
                    yield '%s is not in %s' % (word, document)
        rows = [r for r in tuning.splitlines()
                if r.startswith('|') and '`%s`' % name in r.split('|')[1]]
        number = re.fullmatch(r'-?[\d.]+', default)
        if number and not any(' %s |' % default in row for row in rows):
            yield 'docs/TUNING.md does not give the default %s of %s' % (default, name)
        if ' to ' in text_range and not any(text_range in row for row in rows):
            yield 'docs/TUNING.md does not give the range %s of %s' % (text_range, name)


def undocumented_keys():
    text = read('docs/JSON.md')
    if not os.path.exists(MODEL):
        return
    ids = os.path.join(os.path.dirname(MODEL), 'tokens.txt')
    outputs = [sluice('run', '-m', MODEL, '-p', 'hi', '-n', '2', '--raw', '--json'),
               sluice('eval', '-m', MODEL, '--tokens', ids, '--greedy', '1', '--nll', '--json'),
               ppl(ids),
               pack(),
               calib(ids),
               sluice('info', MODEL, '--json', '--meta', '--tensors'),
               *diffs(ids),
               sluice('tokenize', MODEL, '-p', 'hi', '--json'),
               sluice('tokenize', MODEL, '-p', '5', '--decode', '--json'),
               sluice('--list-archs', '--json'),
               sluice('bench', 'decode', '-m', MODEL, '-n', '4', '--json'),
               sluice('bench', 'prefill', '-m', MODEL, '-n', '4', '--json'),
               sluice('bench', 'memory', '--json'),
               sluice('bench', 'kernels', '--json')]
    for row in json.loads(outputs[-1])['kernels']:
        if not row['bit_equal'] or row['weights_per_s'] <= 0:
            yield 'bench kernels: %s' % row
    for output in outputs:
        for key in keys(json.loads(output)):
            if not re.fullmatch(r'[a-z][a-z0-9_]*', key):
                yield 'the JSON key %s is not in snake_case' % key
            if '`%s`' % key not in text:
                yield 'the JSON key %s is not in docs/JSON.md' % key


def main():
    faults = list(undocumented_options()) + sorted(set(undocumented_keys()))
    for fault in faults:
        print('FAIL ' + fault)
    print('%d faults' % len(faults))
    return 1 if faults else 0


sys.exit(main())
