#!/usr/bin/env python3
"""test_top.py SLUICE GOLDEN SOURCE: the view of run --top, through a pseudo-terminal.

A small terminal of our own reads what the program writes; like tmux it forgets, when the cursor is
put back, that it stood behind the last column. Proves that the answer stands whole on the screen
and in what was scrolled, that the view is drawn and gone in the end, that the terminal is as before
after the answer, Ctrl-C, SIGTERM, SIGHUP and Ctrl-Z, that a resize moves the view, and what small
terminals, pipes, TERM=dumb, NO_COLOR and other locales get. Exit code 77 where a model is
missing."""
import fcntl
import functools
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

SLUICE, GOLDEN, SOURCE = (os.path.abspath(a) for a in sys.argv[1:4])
TINY = GOLDEN + '/qwen3moe-Q8_0/model.gguf'
DENSE = GOLDEN + '/llama-Q8_0/model.gguf'
DEMO = SOURCE + '/models/sluice-demo-q8_0.gguf'  # says plain English: a column a byte
ANSWER = ['run', '-m', DEMO, '--raw', '-p', 'The', '-n', '300', '-c', '512', '-s', '1',
          '--ignore-eos', '--slots', '60', '-q']
RESTORED = '\x1b7\x1b[r\x1b8\x1b[0m\x1b[J\x1b[?25h'
WAIT_S = 60
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith('SLUICE_') and k != 'NO_COLOR'}
ENVIRONMENT.update({'TERM': 'xterm', 'LC_ALL': 'C.UTF-8'})
SEQUENCE = re.compile(r'\x1b(?:\[([?\d;]*)([A-Za-z])|([78D]))|([\s\S])')


class Screen:
    """What a terminal shows: rows of text, and what was scrolled off their top."""

    def __init__(self, rows, columns):
        self.columns = columns
        self.cells = [[' '] * columns for _ in range(rows)]
        self.wraps = [False] * rows  # the row goes on in the next one
        self.scrolled = []
        self.bottom, self.at, self.saved, self.shown = rows - 1, (0, 0), (0, 0), True
        self.seen = set()  # all rows there have been

    def feed(self, text):
        for match in SEQUENCE.finditer(text):
            arguments, letter, short, plain = match.groups()
            if plain is not None:
                self.plain(plain)
            elif short:
                self.short(short)
            else:
                self.control(arguments, letter)

    def index(self):
        row, column = self.at
        if row != self.bottom:
            self.at = min(row + 1, len(self.cells) - 1), column
            return
        self.scrolled.append((''.join(self.cells.pop(0)), self.wraps.pop(0)))
        self.cells.insert(row, [' '] * self.columns)
        self.wraps.insert(row, False)

    def plain(self, c):
        if c == '\r':
            self.at = self.at[0], 0
        elif c == '\n':
            self.index()
        elif c >= ' ':
            if self.at[1] == self.columns:
                self.wraps[self.at[0]] = True
                self.index()
                self.at = self.at[0], 0
            self.cells[self.at[0]][self.at[1]] = c
            self.at = self.at[0], self.at[1] + 1

    def short(self, letter):
        if letter == '7':
            self.saved = self.at
        elif letter == '8':
            self.at = self.saved[0], min(self.saved[1], self.columns - 1)
        else:
            self.index()

    def control(self, arguments, letter):
        numbers = [int(n) for n in re.findall(r'\d+', arguments)]
        row, column = self.at
        if letter == 'r':
            self.bottom = (numbers[1] if numbers else len(self.cells)) - 1
            self.at = 0, 0
        elif letter == 'H':
            self.at = numbers[0] - 1, numbers[1] - 1
        elif letter == 'A':
            self.at = max(row - numbers[0], 0), column
        elif letter == 'J':
            self.note_rows()
            self.cells[row][column:] = [' '] * (self.columns - column)
            self.cells[row + 1:] = [[' '] * self.columns for _ in self.cells[row + 1:]]
        elif letter == 'K':
            self.cells[row] = [' '] * self.columns
        elif letter in 'hl':
            self.shown = letter == 'h' if numbers == [25] else self.shown

    def note_rows(self):
        self.seen.update(''.join(row).rstrip() for row in self.cells)

    def text(self):
        """As somebody would copy it: rows that were wrapped are one line."""
        out = ''
        for row, wraps in self.scrolled + [(''.join(c), w) for c, w in zip(self.cells, self.wraps)]:
            out += row if wraps else row.rstrip() + '\n'
        return out.rstrip('\n') + '\n'


class Terminal:
    """The program at a pseudo-terminal; standard output or error may go elsewhere."""

    def __init__(self, command, size=(24, 80), program=SLUICE, stdout=None, **environment):
        self.master, slave = pty.openpty()
        self.screen, self.seen = Screen(size[0] or 24, size[1] or 80), ''
        self.resize(*size)
        self.process = subprocess.Popen([program, *command], stdin=slave,
                                        stdout=slave if stdout is None else stdout, stderr=slave,
                                        env={**ENVIRONMENT, **environment}, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def read(self):
        """False at the end."""
        if not select.select([self.master], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            text = os.read(self.master, 65536).decode('utf-8', 'replace')
        except OSError:
            return False
        self.seen += text
        return text != ''

    def read_until(self, text, count=1):
        deadline = time.monotonic() + WAIT_S
        while self.seen.count(text) < count and time.monotonic() < deadline and self.read():
            pass
        return self.seen.count(text) >= count

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and self.read():
            pass
        if self.process.poll() is None and time.monotonic() >= deadline:
            self.process.kill()
        code = self.process.wait()
        while self.read():
            pass
        os.close(self.master)
        self.screen.feed(self.seen)
        return code


def restored(t):
    """Facts about a terminal that the program has left."""
    after = t.seen[t.seen.rfind(RESTORED) + len(RESTORED):]
    return [('not restored', RESTORED in t.seen), ('a region is left', '\x1b[1;' not in after),
            ('rows are kept', t.screen.bottom == len(t.screen.cells) - 1),
            ('no cursor', t.screen.shown),
            ('the view is left', 'sluice --top' not in ' '.join(map(''.join, t.screen.cells)))]


def frames(t):
    """What was drawn, frame by frame."""
    return re.findall(r'\x1b7\x1b\[\?25l\x1b\[0m([\s\S]*?)\x1b8\x1b\[\?25h', t.seen)


def check(name, facts, seen):
    bad = [what for what, holds in facts if not holds]
    report = 'FAIL %s: %s\n%r' % (name, '; '.join(bad), seen[-3000:]) if bad else 'ok   ' + name
    print(report, flush=True)
    return not bad


def endless(model):
    """Answers until somebody stops it."""
    return ['run', '-m', model, '--raw', '-p', 'x', '-n', '-1', '-c', '100000', '-s', '1',
            '--ignore-eos', '-q', '--top']


@functools.cache
def plain_answer():
    done = subprocess.run([SLUICE, *ANSWER], capture_output=True, env=ENVIRONMENT,
                          stdin=subprocess.DEVNULL)
    return done.stdout.decode()


def test_top__answer_and_view_at_one_terminal__answer_whole_and_view_gone():
    t = Terminal([*ANSWER, '--top'])
    code = t.end()
    return [('exit code %d' % code, code == 0), ('the answer', t.screen.text() == plain_answer()),
            ('no view', frames(t)), *restored(t)], t.seen


def test_top__answer_under_way__all_rows_are_drawn():
    t = Terminal([*endless(DEMO), '--slots', '60'])
    t.read_until('layer 1: ', 2)
    t.type('\x03')
    code = t.end()
    drawn = '\n'.join(t.screen.seen)
    rows = ['sluice --top', 'tok/s', 'slots filled', 'a token', 'read ahead', 'peak', 'layer 1: ']
    return [('exit code %d' % code, code == 130),
            *(('no row with ' + what, what in drawn) for what in rows),
            ('no cells', re.search('^layers   [\u2581-\u2588]{6}$', drawn, re.M)),
            ('no bar', re.search('^time     [ewdmrho]{60,}$', drawn, re.M)),
            *restored(t)], t.seen


def test_top__long_prompt__figures_are_those_of_the_moment():
    with tempfile.NamedTemporaryFile('w', suffix='.txt') as text:
        text.write('the word ' * 20000)
        text.flush()
        t = Terminal([*(a for a in endless(DEMO) if a not in ('-p', 'x')), '-f', text.name,
                      '--slots', '60', '-b', '64'])
        t.read_until('tokens of the prompt', 4)
        t.type('\x03')
        code = t.end()
    last = re.sub(r'\x1b\[[\d;]*m', '', frames(t)[-1])
    return [('exit code %d' % code, code == 130),
            ('the prompt', re.search(r'prompt   [\d.]+ tok/s   [1-9]\d* of \d+ tokens', last)),
            ('slots', re.search(r'[1-9]\d* of 60 slots filled', last)),
            ('reads', re.search(r'reads    [1-9][\d.]+ [KM]iB a token', last)),
            *restored(t)], t.seen


def test_top__narrow_terminal__answer_whole():
    t = Terminal([*ANSWER, '--top'], (12, 11))
    code = t.end()
    one_row = all(f.count('\x1b[2K') == 1 for f in frames(t))
    return [('exit code %d' % code, code == 0), ('the answer', t.screen.text() == plain_answer()),
            ('no frame', frames(t)), ('more than a row', one_row), *restored(t)], t.seen


def test_top__redirected_output__holds_the_answer_alone():
    with tempfile.TemporaryFile() as out:
        t = Terminal([*ANSWER, '--top'], stdout=out)
        code = t.end()
        out.seek(0)
        text = out.read().decode()
    return [('exit code %d' % code, code == 0), ('output %r' % text, text == plain_answer()),
            ('no view', frames(t)), *restored(t)], t.seen


def test_top__ctrl_c__stops_and_restores():
    t = Terminal(endless(TINY))
    drawn = t.read_until('\x1b[?25l', 3)
    t.type('\x03')
    code = t.end()
    return [('no view', drawn), ('exit code %d' % code, code == 130), *restored(t)], t.seen


def test_top__terminated_and_hung_up__restores_and_dies_of_it():
    facts, seen = [], ''
    for number in (signal.SIGTERM, signal.SIGHUP):
        t = Terminal(endless(TINY))
        facts.append(('no view', t.read_until('\x1b[?25l', 3)))
        t.process.send_signal(number)
        code = t.end()
        facts += [('exit code %d of %s' % (code, number.name), code == -number),
                  *(('%s: %s' % (number.name, what), holds) for what, holds in restored(t))]
        seen += t.seen
    return facts, seen


def test_top__ctrl_z_and_back__restored_and_drawn_again():
    script = 'set -m; "$@"; echo STOP""PED; fg > /dev/null; echo EN""DED'
    t = Terminal(['-c', script, 'sh', SLUICE, *endless(TINY)], program='/bin/sh')
    drawn = t.read_until('\x1b[?25l', 3)
    t.type('\x1a')
    stopped = t.read_until('STOPPED')
    clean = t.seen[:t.seen.find('STOPPED')].endswith(RESTORED)
    again = t.read_until('\x1b[1;14r', 2)
    t.type('\x03')
    t.read_until('ENDED')
    t.end()
    return [('no view', drawn), ('not stopped', stopped), ('not restored when stopped', clean),
            ('no view after it', again), *restored(t)], t.seen


def test_top__resized__the_view_moves():
    t = Terminal(endless(TINY), (40, 100))
    t.resize(24, 80)
    first = t.read_until('\x1b[1;14r')
    t.resize(40, 100)
    larger = t.read_until('\x1b[1;30r')
    t.resize(12, 60)
    one_row = t.read_until('\x1b[1;11r')
    t.resize(3, 60)
    none = t.read_until(RESTORED[:8], 3)
    t.resize(24, 80)
    again = t.read_until('\x1b[1;14r', 2)
    t.type('\x03')
    code = t.end()
    return [('first', first), ('larger', larger), ('a row', one_row), ('none', none),
            ('again', again), ('exit code %d' % code, code == 130), *restored(t)[:-1]], t.seen


def test_top__not_a_terminal__a_note_and_the_answer():
    want, facts, seen = plain_answer(), [], ''
    command = [a for a in ANSWER if a != '-q'] + ['--top']
    done = subprocess.run([SLUICE, *command], capture_output=True, env=ENVIRONMENT,
                          stdin=subprocess.DEVNULL)
    facts.append(('a pipe: %r' % done.stderr,
                  b'--top needs a terminal on standard error; ignored\n' in done.stderr and
                  b'\x1b' not in done.stderr and done.stdout.decode() == want and
                  done.returncode == 0))
    for what, size, environment in (("TERM is 'dumb'; ignored", (24, 80), {'TERM': 'dumb'}),
                                    ('does not say it', (0, 0), {})):
        t = Terminal([*command, '-n', '5'], size, **environment)
        code = t.end()
        facts += [(what, what in t.seen), ('escape', '\x1b' not in t.seen),
                  ('exit code %d' % code, code == 0)]
        seen += t.seen
    return facts, seen


def test_top__no_color_and_ascii__as_asked():
    t = Terminal(endless(DEMO), NO_COLOR='1', LC_ALL='C')
    t.read_until('layer 1: ', 2)
    t.type('\x03')
    t.end()
    drawn = ''.join(frames(t))
    return [('no frame', drawn), ('colours', not re.search(r'\x1b\[[\d;]+m', drawn)),
            ('not ASCII', drawn.isascii()), ('no cells', re.search(r'layers   \d{6}\b', drawn))
            ], t.seen


def test_top__dense_model__nothing_about_experts():
    t = Terminal(endless(DENSE))
    t.read_until('dense ', 2)
    t.type('\x03')
    t.end()
    drawn = '\n'.join(t.screen.seen)
    bar = re.search('^time     [dmho]{60,}$', drawn, re.M)
    return [('no view', 'tok/s' in drawn), ('no bar', bar),
            ('experts', not re.search('hits|slots|layer |wait', drawn)), *restored(t)], t.seen


def test_top__chat__gone_before_the_next_line():
    t = Terminal(['run', '-m', TINY, '--chat-template', 'chatml', '-n', '40', '--temp', '0',
                  '--ignore-eos', '--top'])
    prompts = []
    for turn in (1, 2):
        prompts.append(t.read_until('> ', turn))
        t.type('Hello\n')
        prompts.append(t.read_until('generated 40 tokens', turn))
    t.read_until('\x1b[?2004h> ', 3)
    t.type('\x04')
    code = t.end()
    before = t.seen.split('\x1b[?2004h> ')
    gone = all(part.count('\x1b[1;14r') == part.count(RESTORED) == 1 for part in before[1:-1])
    return [('no prompt or no answer', all(prompts)), ('prompts', len(before) == 4),
            ('a view while typing', gone), ('exit code %d' % code, code == 0), *restored(t)], t.seen


def main():
    if not all(map(os.path.exists, (TINY, DENSE, DEMO))):
        print('skipped: no models')
        return 77
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as error:
        print('skipped: this system has no pseudo-terminals: %s' % error)
        return 77
    good = True
    for name, test in list(globals().items()):
        if name.startswith('test_'):
            good &= check(name, *test())
    return 0 if good else 1


sys.exit(main())
