#!/usr/bin/env python3
"""test_trace_report.py SLUICE GOLDEN SOURCE: `sluice trace report`.

Traces are made here, with an LRU cache of a few slots and hostile names, so that every headline
number can be counted a second time. Proves that the page is one file without references, that the
JSON in it is that of --json, that CSV and JSON hold the same values, that trace events are valid
and do not overlap, that names cannot break out, and that errors are one line. Where node, Chromium,
playwright-core and axe-core are found (NODE_PATH), the pages are opened too (check_report.mjs)."""
import csv
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile

SLUICE, GOLDEN, SOURCE = (os.path.abspath(a) for a in sys.argv[1:4])
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith('SLUICE_')}
LAYERS, EXPERTS, TOP_K, SLOTS, BYTES = 5, 16, 2, 24, 1 << 20
HOSTILE = '</script><img src=x onerror=alert(1)> "q", \\ \u2028 <!-- =1+1'
MEASURED = ['weights', 'states', 'times', 'hints', 'reads', 'ops']
PAGE_BYTES_MAX = 2 * 1000 * 1000


def run(*arguments, stdin=None):
    done = subprocess.run([SLUICE, *arguments], env=ENVIRONMENT, input=stdin, capture_output=True,
                          timeout=120)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()


def check(name, facts):
    bad = [what for what, holds in facts if not holds]
    print(('FAIL ' + name + ': ' + '; '.join(bad)) if bad else 'ok   ' + name, flush=True)
    return not bad


# ---- a trace, and what is true of it -------------------------------------------------------------


class Maker:
    """Writes a trace as JSON lines, and counts."""

    def __init__(self, seed, tokens, name):
        self.random = random.Random(seed)
        self.lines, self.now = [], 1000
        self.cache, self.seen = {}, set()  # (layer, expert): last use; ever used
        self.uses, self.hits = {}, [0] * LAYERS
        self.cold = self.bytes = self.wait = self.total = self.useful = self.begun = 0
        self.ahead = set()
        self.header(name)
        self.eval(8, True)
        for _ in range(tokens):
            self.eval(1, False)

    def put(self, **fields):
        self.lines.append(json.dumps(fields))

    def header(self, name):
        layer = {'n_experts': EXPERTS, 'top_k': TOP_K, 'size_class': 0, 'expert_bytes': BYTES,
                 'slot_bytes': BYTES, 'weights': 4096}
        self.put(sluice_trace=1, program='sluice 0', model=name, file=name + '.gguf',
                 architecture='qwen3moe', machine='m', policy='lru', io='pread', prefetch='auto',
                 isa='scalar', lossy='drop-cold', model_hash=5, model_bytes=1 << 30, ram_bytes=0,
                 unix_s=1700000000, n_ctx=64, threads=1, chunk=8, ring_slots=2, measured=MEASURED,
                 n_slots=[SLOTS], layers=[layer] * LAYERS)

    def fetch(self, cell):
        if len(self.cache) >= SLOTS:
            gone = min(self.cache, key=self.cache.get)
            self.cache.pop(gone)
            self.ahead.discard(gone)
        self.now += 1
        self.cache[cell] = self.now

    def guess(self, layer):
        cell = (layer, self.random.randrange(EXPERTS))
        if cell in self.cache:
            return
        self.put(record='op', kind='guess', layer=layer, expert=cell[1], how=0)
        self.fetch(cell)
        self.put(record='op', kind='landed', layer=layer, expert=cell[1], how=0)
        self.put(record='read', layer=layer, expert=cell[1], why='guess', bytes=BYTES,
                 begin_ns=self.now, took_ns=90000)
        self.ahead.add(cell)
        self.begun += 1
        self.bytes += BYTES

    def choose(self, layer, chosen, prompt):
        states, missing = [], []
        for expert in chosen:
            cell, state = (layer, expert), 'miss'
            if cell in self.cache:
                state = 'hit-ahead' if cell in self.ahead else 'hit'
                self.useful += cell in self.ahead
                self.ahead.discard(cell)
            elif cell not in missing:
                missing.append(cell)
            states.append(state)
            if not prompt:
                self.uses[cell] = self.uses.get(cell, 0) + 1
                self.hits[layer] += state != 'miss'
                self.cold += cell not in self.seen
        self.seen.update((layer, e) for e in chosen)
        for cell in missing:
            why = 'prompt' if prompt else 'token'
            self.put(record='read', layer=layer, expert=cell[1], why=why, bytes=BYTES,
                     begin_ns=self.now, took_ns=100000)
            self.fetch(cell)
        for expert in chosen:
            self.now += 1
            self.cache[layer, expert] = self.now
        return states, len(missing)

    def eval(self, n, prompt):
        begin, phase = self.now, 'prompt' if prompt else 'decode'
        self.put(record='eval', session=0, position=0, tokens=n, phase=phase, begin_ns=begin)
        for layer in range(LAYERS):
            if not prompt and layer:
                self.guess(layer)
            self.now += 50000
            at = self.now
            tokens = [self.random.sample(range(EXPERTS), TOP_K) for _ in range(n)]
            if self.random.random() < .6:
                tokens = [[0, 1 + layer]] * n
            flat, missing = self.choose(layer, [e for t in tokens for e in t], prompt)
            states = [flat[i * TOP_K:(i + 1) * TOP_K] for i in range(n)]
            wait = 70000 * missing
            more = {'entries': [0] * missing} if prompt and missing else {}
            self.put(record='layer', layer=layer, experts=tokens, weights=[[.5, .5]] * n,
                     states=states, read_bytes=missing * BYTES, begin_ns=at, dense_ns=40000,
                     expert_ns=30000, wait_ns=wait, **more)
            self.now += wait + 30000
            if not prompt:
                self.bytes += missing * BYTES
                self.wait += wait
        self.now += 20000
        self.put(record='done', end_ns=self.now, phase_ns=[0] * 7)
        if not prompt:
            self.total += self.now - begin
        self.now += 1000

    def write(self, path):
        with open(path, 'w', encoding='utf-8') as f:
            f.write('\n'.join(self.lines) + '\n')


# ---- reading what comes out ----------------------------------------------------------------------


def table(data, name):
    found = data[name]
    return [dict(zip(found['columns'], row)) for row in found['rows']]


def embedded(page):
    m = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return m.group(1) if m else ''


def near(a, b):
    return a is not None and abs(a - b) <= 2e-5 * max(1e-9, abs(b))


def flat(data):
    """{(table, row, column): value} of the JSON, as the CSV has it."""
    found = {}
    for group in ('a', 'b', 'compare'):
        for name, section in (data[group] or {}).items():
            place = group + '.' + name
            if 'rows' not in section:
                found.update({(place, '', key): value for key, value in section.items()})
                continue
            for i, row in enumerate(section['rows']):
                for key, value in zip(section['columns'], row):
                    if isinstance(value, list):
                        found.update({(place, str(i), str(k)): v for k, v in enumerate(value)})
                    else:
                        found[place, str(i), key] = value
    return found


def same_value(text, value):
    if value is None:
        return text == ''
    if isinstance(value, bool):
        return text == ('true' if value else 'false')
    if isinstance(value, str):
        return text == re.sub('[\x00-\x1f]', ' ', value)
    return float(text) == float(value)


# ---- the checks ----------------------------------------------------------------------------------


def check_numbers(maker, data, tokens):
    a = data['a']
    totals, uses = a['totals'], sum(maker.uses.values())
    heat = {(r['layer'], e): n for r in table(a, 'heat') for e, n in enumerate(r['uses']) if n}
    layers = table(a, 'layers')
    time = table(a, 'time')
    hot = table(a, 'hot')
    order = sorted(maker.uses.items(), key=lambda x: (-x[1], x[0]))[:50]
    curve = [r for r in table(a, 'curves') if r['slots'] == SLOTS]
    return check('numbers', [
        ('decoded tokens', totals['decoded_tokens'] == tokens),
        ('prompt tokens', totals['prompt_tokens'] == 8),
        ('uses', totals['uses'] == uses), ('hits', totals['hits'] == sum(maker.hits)),
        ('hit rate', near(totals['hit_rate'], sum(maker.hits) / uses)),
        ('first uses', totals['cold'] == maker.cold),
        ('bytes', near(totals['read_bytes'], maker.bytes)),
        ('waiting', near(totals['wait_share'], maker.wait / maker.total)),
        ('time', near(totals['token_ms'], maker.total / 1e6 / tokens)),
        ('read ahead', totals['ahead_begun'] == maker.begun),
        ('useful', totals['ahead_useful'] == maker.useful),
        ('heat', heat == maker.uses),
        ('layers', [r['hits'] for r in layers] == maker.hits),
        ('over time', sum(r['hits'] for r in time) == sum(maker.hits)),
        ('tokens over time', sum(r['tokens'] for r in time) == tokens and len(time) <= 400),
        ('hottest', [(r['layer'], r['expert']) for r in hot] == [cell for cell, _ in order]),
        ('kept tokens', 10 <= len(table(a, 'timeline_tokens')) <= 50),
        ('layers of kept tokens', len(table(a, 'timeline')) ==
         LAYERS * len(table(a, 'timeline_tokens'))),
        ('reads', len(table(a, 'timeline_reads')) > 0),
        ('the size in the curve', len(curve) == 1),
        ('the optimum is the bound', all(
            r['optimum_hit_rate'] + 1e-6 >= max(
                r[k + '_hit_rate'] or 0 for k in ('lru', 'lfu', 'default', 'decay'))
            for r in table(a, 'curves'))),
        ('misses fall with size', [r['lru_hit_rate'] for r in table(a, 'curves')] ==
         sorted(r['lru_hit_rate'] for r in table(a, 'curves'))),
        ('predictors', {r['predictor'] for r in table(a, 'predictors')} >= {'previous'}),
        ('source', a['hits']['kind'] == 'recorded' and a['hits']['slots'] == SLOTS),
        ('unknown is null', a['recorded']['ram_bytes'] is None)])


def check_page(page, printed):
    text = embedded(page)
    outside = page.replace(text, '')
    return check('page', [
        ('size', len(page.encode()) < PAGE_BYTES_MAX),
        ('complete', page.startswith('<!DOCTYPE html>') and page.rstrip().endswith('</html>')),
        ('JSON in it is that of --json', json.loads(text) == json.loads(printed)),
        ('nothing breaks out of the data', '<' not in text),
        ('no placeholder is left', not re.search('@[A-Z]+@', outside)),
        ('no reference to elsewhere', not re.search(
            r'(src|href)\s*=\s*["\'](?!#|data:,)|@import|url\((?!#)|\bfetch\(|XMLHttp'
            r'|https?://(?!www\.w3\.org/2000/svg)', outside)),
        ('no markup from data', 'innerHTML' not in outside and 'document.write' not in outside),
        ('says that it needs a script', '<noscript>' in page)])


def check_csv(text, data):
    rows = list(csv.reader(io.StringIO(text)))
    wanted = flat(data)
    got = {tuple(row[:3]): row[3] for row in rows[1:]}
    # The heat map's list has a line for each expert.
    return check('csv', [
        ('head', rows[0] == ['table', 'row', 'column', 'value']),
        ('four columns', all(len(row) == 4 for row in rows)),
        ('the same cells', set(got) == set(wanted)),
        ('the same values', all(same_value(got.get(k, ''), v) for k, v in wanted.items())),
        ('hostile name', got['a.recorded', '', 'model'] == HOSTILE)])


def check_events(text, tokens):
    events = json.loads(text)['traceEvents']
    whole = [e for e in events if e['ph'] == 'X']
    lanes, overlaps = {}, 0
    for e in whole:
        lanes.setdefault((e['pid'], e['tid']), []).append((e['ts'], e['ts'] + e['dur']))
    for spans in lanes.values():
        spans.sort()
        overlaps += sum(b[0] < a[1] - 1e-6 for a, b in zip(spans, spans[1:]))
    names = {e['args']['name'] for e in events if e['ph'] == 'M'}
    counters = {e['name'] for e in events if e['ph'] == 'C'}
    return check('perfetto', [
        ('kinds', {e['ph'] for e in events} == {'X', 'M', 'C'}),
        ('names', {'compute dense', 'experts', 'waiting', 'drive', HOSTILE} <= names),
        ('counters', counters == {'hit rate', 'bytes demanded'}),
        ('tokens', sum(e['name'] == 'token' for e in whole) == tokens),
        ('no overlap in a thread', overlaps == 0),
        ('not before the beginning', all(e['ts'] >= 0 and e['dur'] >= 0 for e in whole))])


def check_full(folder):
    tokens = 90
    a, b = Maker(1, tokens, HOSTILE), Maker(2, 40, 'Other')
    one, two = folder + '/<b>one.jsonl', folder + '/two.jsonl'
    a.write(one)
    b.write(two)
    names = {k: folder + '/' + k for k in ('page.html', 'numbers.csv', 'events.json')}
    code, out, err = run('trace', 'report', one, two, '-o', names['page.html'], '--csv',
                         names['numbers.csv'], '--perfetto', names['events.json'], '--json')
    ok = check('runs', [('exit code: ' + err, code == 0),
                        ('nothing half-written', not any(n.endswith('.partial')
                                                         for n in os.listdir(folder)))])
    if not ok:
        return False
    text = {k: open(path, encoding='utf-8', newline='').read() for k, path in names.items()}
    data = json.loads(out)
    headline = {r['measure']: r for r in table(data['compare'], 'headline')}
    ok &= check_numbers(a, data, tokens)
    ok &= check_page(text['page.html'], out)
    ok &= check_csv(text['numbers.csv'], data)
    ok &= check_events(text['events.json'], tokens)
    ok &= check('comparison', [
        ('difference', near(headline['hit_rate']['difference'],
                            headline['hit_rate']['b'] - headline['hit_rate']['a'])
         or abs(headline['hit_rate']['difference']) < 1e-4),
        ('shape', data['compare']['shape']['same'] is True),
        ('overlap', all(r['shared'] <= r['top'] for r in table(data['compare'], 'overlap')))])
    again = run('trace', 'report', one, two, '--json')
    ok &= check('the same twice', [('bytes', again[1] == out)])
    standard = run('trace', 'report', one, '-o', '-')
    return ok & check('standard output', [('page', standard[1].startswith('<!DOCTYPE html>'))])


def check_plain(folder):
    """A trace that knows choices only, and one of prompts only."""
    lines = ['# {"model": "plain", "layers": 2, "experts": 8, "top_k": 2}']
    lines += [f'0 d {i % 7},7;{i % 5},{5 + i % 3}' for i in range(30)]
    plain, prompt = folder + '/plain.txt', folder + '/prompt.txt'
    open(plain, 'w').write('\n'.join(lines) + '\n')
    open(prompt, 'w').write(lines[0] + '\n0 p 1,2;3,4\n')
    code, out, err = run('trace', 'report', plain, '--json', '-o', folder + '/plain.html')
    a = json.loads(out)['a'] if code == 0 else None
    ok = check('plain', [('exit code: ' + err, code == 0)] + ([
        ('replayed', a['hits']['kind'] == 'replayed' and a['hits']['policy'] == 'default'),
        ('waiting unknown', a['totals']['wait_share'] is None),
        ('speed unknown', a['totals']['tokens_per_s'] is None),
        ('bytes unknown', a['totals']['read_bytes'] is None),
        ('lossy unknown', a['recorded']['lossy'] is None),
        ('no timeline', table(a, 'timeline_tokens') == [])] if a else []))
    code, out, err = run('trace', 'report', prompt, '--json', '-o', folder + '/prompt.html')
    ok &= check('prompt only', [('exit code: ' + err, code == 0),
                                ('no rate', code != 0 or
                                 json.loads(out)['a']['totals']['hit_rate'] is None)])
    code, _, err = run('trace', 'report', plain, '--perfetto', folder + '/x.json')
    return ok & check('perfetto without times', [('exit code', code == 1),
                                                 ('one line', err.count('\n') == 1),
                                                 ('says why', 'no times' in err),
                                                 ('no file',
                                                  not os.path.exists(folder + '/x.json'))])


def check_errors(folder):
    plain = folder + '/plain.txt'
    ok = True
    for name, arguments, wanted, says in [
            ('no trace', [], 2, 'no trace given'), ('no output', [plain], 2, 'nothing to write'),
            ('two outputs', [plain, '--json', '-o', '-'], 2, 'standard output'),
            ('over itself', [plain, '-o', plain], 2, 'itself'),
            ('two names for one', [plain, '-o', folder + '/one.html', '--csv',
                                   folder + '/one.html'], 2, 'the same'),
            ('no file', [folder + '/absent', '--json'], 1, 'absent'),
            ('not a trace', [SLUICE, '--json'], 1, os.path.basename(SLUICE)),
            ('no folder', [plain, '-o', folder + '/none/x.html'], 1, 'none/x.html')]:
        code, out, err = run('trace', 'report', *arguments)
        ok &= check('error: ' + name, [(f'exit code {code}: {err}', code == wanted),
                                       ('one line', err.count('\n') == 1),
                                       ('says ' + says, says in err),
                                       ('nothing printed', out == '')])
    return ok


def check_recorded(folder):
    """A run of a tiny model that streams, recorded and reported."""
    model, trace = GOLDEN + '/qwen3moe-Q8_0/model.gguf', folder + '/run.trace'
    if not os.path.exists(model):
        print('skip recorded: no golden model')
        return True
    code, _, err = run('run', '-m', model, '--raw', '-p', 'abc', '-n', '24', '--temp', '0',
                       '--ignore-eos', '--slots', '6', '--trace', trace)
    if not check('recording', [('exit code: ' + err, code == 0)]):
        return False
    code, out, err = run('trace', 'report', trace, '--json', '-o', folder + '/run.html')
    a = json.loads(out)['a'] if code == 0 else None
    return check('recorded', [('exit code: ' + err, code == 0)] + ([
        ('hits recorded', a['hits']['kind'] == 'recorded'),
        ('times', a['totals']['token_ms'] > 0), ('tokens', a['totals']['decoded_tokens'] >= 20),
        ('sizes', a['totals']['slot_bytes'] > 0)] if a else []))


def check_browser(folder):
    pages = [folder + '/' + name for name in ('page.html', 'plain.html', 'prompt.html', 'run.html')]
    pages = [page for page in pages if os.path.exists(page)]
    try:
        done = subprocess.run(['node', SOURCE + '/tools/dev/check_report.mjs', *pages],
                              capture_output=True, text=True, timeout=280)
    except FileNotFoundError:
        print('skip browser: no node')
        return True
    if done.returncode == 77:
        print('skip browser: ' + done.stderr.strip())
        return True
    return check('browser', [(done.stdout + done.stderr, done.returncode == 0)])


def main():
    with tempfile.TemporaryDirectory() as folder:
        ok = check_full(folder)
        ok &= check_plain(folder)
        ok &= check_errors(folder)
        ok &= check_recorded(folder)
        ok &= check_browser(folder)
    return 0 if ok else 1


if __name__ == '__main__':
    sys.exit(main())
