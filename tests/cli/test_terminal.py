#!/usr/bin/env python3
"""test_terminal.py SLUICE GOLDEN SOURCE: the chat at a terminal, through a pseudo-terminal.

Proves that lines are edited and answered, that emoji and CJK arrive whole, that a paste of several
lines is one turn, that thoughts are dimmed, that Ctrl-C at the prompt warns once and leaves the
second time, that Ctrl-D leaves with 0, and that standard output stays clean when only it is
redirected. Exit code 77 where the golden model is missing."""
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
import say_model  # noqa: E402

SLUICE, GOLDEN = (os.path.abspath(a) for a in sys.argv[1:3])
MODEL = GOLDEN + '/qwen3moe-Q8_0/model.gguf'
CHAT = ['run', '-m', MODEL, '--chat-template', 'chatml']
WAIT_S = 30


class Terminal:
    """The program at a pseudo-terminal; its standard output may go elsewhere."""

    def __init__(self, arguments, stdout=None, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith('SLUICE_')}
        clean.update({'TERM': 'xterm', 'LC_ALL': 'C', **environment})
        self.master, slave = pty.openpty()
        self.seen = ''
        self.process = subprocess.Popen([SLUICE, *CHAT, *arguments], stdin=slave,
                                        stdout=slave if stdout is None else stdout,
                                        stderr=slave, env=clean, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def read_until(self, text, count=1):
        deadline = time.monotonic() + WAIT_S
        while self.seen.count(text) < count and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode('utf-8', 'replace')
                except OSError:
                    break
        return self.seen.count(text) >= count

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
            if select.select([self.master], [], [], 0)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode('utf-8', 'replace')
                except OSError:
                    pass
        if self.process.poll() is None:
            self.process.kill()
        os.close(self.master)
        return self.process.wait()


def check(name, facts, terminal):
    bad = [what for what, holds in facts if not holds]
    report = 'FAIL %s: %s\n%r' % (name, '; '.join(bad), terminal.seen) if bad else 'ok   ' + name
    print(report, flush=True)
    return not bad


def prompt_tokens(seen):
    """Of each answer, as the notes say."""
    return [int(n) for n in re.findall(r'\bprompt (\d+) tokens?\b', seen)]


def tokens_of(text):
    """Prompt tokens of text as the one-shot run counts them."""
    out = subprocess.run([SLUICE, *CHAT, '-p', text, '-n', '0', '--no-escape'],
                         capture_output=True)
    return prompt_tokens(out.stderr.decode())[0]


def test_terminal__a_line_then_ctrl_d__answered_and_0():
    t = Terminal(['-n', '5', '--temp', '0', '--ignore-eos'])
    ready = t.read_until('> ')
    t.type('Hello\n')
    answered = t.read_until('generated 5 tokens') and t.read_until('> ', 2)
    t.type('\x04')
    code = t.end()
    return [('no prompt', ready), ('no answer', answered), ('exit code %d' % code, code == 0)], t


def test_terminal__emoji_and_cjk__arrive_whole():
    text = '你好 🙂 naïve'
    t = Terminal(['-n', '1', '--temp', '0', '--ignore-eos'])
    t.read_until('> ')
    t.type(text + '\n')
    answered = t.read_until('generated 1 token')
    t.read_until('> ', 2)
    t.type('/bye\n')
    code, got, want = t.end(), prompt_tokens(t.seen), tokens_of(text)
    return [('no answer', answered), ('tokens %s, wanted %d' % (got, want), got == [want]),
            ('exit code %d' % code, code == 0)], t


def test_terminal__pasted_lines__are_one_turn():
    text = 'first line\nsecond line\n\tthird'
    t = Terminal(['-n', '1', '--temp', '0', '--ignore-eos'])
    t.read_until('> ')
    t.type('\x1b[200~' + text.replace('\n', '\r') + '\x1b[201~\n')
    answered = t.read_until('generated 1 token')
    t.read_until('> ', 2)
    t.type('/bye\n')
    code, got, want = t.end(), prompt_tokens(t.seen), tokens_of(text)
    return [('no answer', answered), ('tokens %s, wanted %d' % (got, want), got == [want]),
            ('exit code %d' % code, code == 0)], t


def test_terminal__arrow_key__brings_the_last_line_back():
    t = Terminal(['-n', '1', '--temp', '0', '--ignore-eos'])
    t.read_until('> ')
    t.type('/status\n')
    t.read_until('context 0 of')
    t.read_until('> ', 2)
    t.type('\x1b[A\n')
    again = t.read_until('context 0 of', 2)
    t.type('/bye\n')
    return [('not repeated', again), ('exit code', t.end() == 0)], t


def test_terminal__ctrl_c_twice_at_the_prompt__warns_then_130():
    t = Terminal([])
    t.read_until('> ')
    t.type('half a line\x03')
    warned = t.read_until('Ctrl-C again')
    t.read_until('> ', 2)
    t.type('\x03')
    code = t.end()
    return [('no warning', warned), ('exit code %d' % code, code == 130)], t


def test_terminal__ctrl_c_in_an_answer__back_to_the_prompt():
    t = Terminal(['-c', '200000', '-n', '-1', '--ignore-eos', '-s', '1'])
    t.read_until('> ')
    t.type('Hello\n')
    time.sleep(1.0)
    begin = time.monotonic()
    t.type('\x03')
    stopped = t.read_until('ended by an interrupt')
    seconds = time.monotonic() - begin
    t.read_until('\x1b[?2004h> ', 2)
    t.type('\x04')
    code = t.end()
    return [('not stopped', stopped), ('a warning', 'Ctrl-C again' not in t.seen),
            ('took %.2f s' % seconds, seconds < 2), ('exit code %d' % code, code == 0)], t


def test_terminal__answer_with_control_bytes__they_do_not_reach_it():
    """The tiny model says all kinds of bytes; a terminal would act on some."""
    t = Terminal(['-n', '400', '--temp', '3', '--top-k', '0', '--top-p', '1', '--min-p', '0', '-s',
                  '1', '--ignore-eos', '-p', 'Hello', '-q'])
    t.read_until('\0 never')
    code = t.end()
    loose = [c for c in t.seen if (c < ' ' and c not in '\n\t\r') or '\x7f' <= c < '\xa0']
    return [('control bytes %r' % loose, not loose), ('exit code %d' % code, code == 0)], t


def test_terminal__redirected_output__holds_answers_only():
    with tempfile.TemporaryFile() as out:
        t = Terminal(['-n', '3', '--temp', '0', '--ignore-eos'], stdout=out)
        t.read_until('> ')
        t.type('Hello\n')
        answered = t.read_until('generated 3 tokens')
        t.read_until('> ', 2)
        t.type('\x04')
        code = t.end()
        out.seek(0)
        text = out.read()
    plain = subprocess.run([SLUICE, *CHAT, '-p', 'Hello', '-n', '3', '--temp', '0', '--ignore-eos',
                            '-q'], capture_output=True).stdout
    return [('no answer', answered), ('output %r, wanted %r' % (text, plain), text == plain),
            ('exit code %d' % code, code == 0)], t


def test_terminal__dumb__no_escape_sequences():
    t = Terminal(['-n', '1', '--temp', '0', '--progress'], TERM='dumb')
    t.read_until('> ')
    t.type('/bye\n')
    code = t.end()
    return [('escape sequence', '\x1b' not in t.seen), ('exit code %d' % code, code == 0)], t


def test_terminal__a_thought__dimmed_and_apart_from_the_answer():
    with tempfile.TemporaryDirectory() as folder:
        model = say_model.model('tags').write(folder + '/m.gguf')
        options = ['-m', model, '--chat-template', 'qwen3.5', '-p', 'hi', '--temp', '0']
        t = Terminal(options)
        t.read_until('ended by')
        code = t.end()
        quiet = Terminal([*options, '-q'])
        quiet.read_until('Four.')
        quiet.end()
        with tempfile.TemporaryFile() as out:
            elsewhere = Terminal(options, stdout=out)
            elsewhere.read_until('ended by')
            elsewhere.end()
    dimmed = '\x1b[2mhm, 2+2\x1b[0m\r\n\r\nFour.\r\n'
    return [('not dimmed', dimmed in t.seen), ('exit code %d' % code, code == 0),
            ('not quiet: %r' % quiet.seen, quiet.seen == 'Four.\r\n'),
            ('output elsewhere: %r' % elsewhere.seen, 'hm' not in elsewhere.seen)], t


def main():
    if not os.path.exists(MODEL):
        return 77
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as error:
        print('skipped: this system has no pseudo-terminals: %s' % error)
        return 77
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    good = True
    for name, test in list(globals().items()):
        if name.startswith('test_'):
            facts, terminal = test()
            good &= check(name, facts, terminal)
    return 0 if good else 1


sys.exit(main())
