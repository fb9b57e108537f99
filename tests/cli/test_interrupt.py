#!/usr/bin/env python3
"""test_interrupt.py SLUICE GOLDEN SOURCE: Ctrl-C (SIGINT) while the program works.

Proves that an answer stops within a second, that what was said is there with a line end, that the
exit code is 130, and that no half-written file stays. The tiny golden model is made busy by a large
context and --ignore-eos. Exit code 77 where the golden model is missing."""
import os
import signal
import subprocess
import sys
import tempfile
import time

SLUICE, GOLDEN = (os.path.abspath(a) for a in sys.argv[1:3])
MODEL = GOLDEN + '/qwen3moe-Q8_0/model.gguf'
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith('SLUICE_')}
ENVIRONMENT['SLUICE_CHAT_TEMPLATE'] = 'chatml'
STOP_LIMIT_S = 1.0
LONG = ['-c', '200000', '-n', '-1', '--ignore-eos', '-s', '1']


def start(arguments, **more):
    return subprocess.Popen([SLUICE, *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **more)


def interrupt(process):
    """Returns (seconds until it ended, stdout, stderr)."""
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return time.monotonic() - begin, out, err.decode()


def check(name, facts):
    bad = [what for what, holds in facts if not holds]
    print(('FAIL ' + name + ': ' + '; '.join(bad)) if bad else 'ok   ' + name, flush=True)
    return not bad


def test_run__interrupted_while_answering__stops_soon_with_130():
    process = start(['run', '-m', MODEL, '-p', 'Hello', *LONG], stdin=subprocess.DEVNULL)
    first = process.stdout.read(20)
    seconds, out, err = interrupt(process)
    return [('exit code %d' % process.returncode, process.returncode == 130),
            ('took %.2f s' % seconds, seconds < STOP_LIMIT_S),
            ('no text', len(first) == 20), ('no line end', (first + out).endswith(b'\n')),
            ('no statistics: ' + err, 'ended by an interrupt' in err)]


def test_run__interrupted_while_reading_the_prompt__stops_soon_with_130():
    with tempfile.NamedTemporaryFile('w', suffix='.txt') as text:
        text.write('word ' * 60000)
        text.flush()
        process = start(['run', '-m', MODEL, '--raw', '-f', text.name, '-c', '400000', '-t', '1'],
                        stdin=subprocess.DEVNULL)
        time.sleep(1.5)
        busy = process.poll() is None
        seconds, out, err = interrupt(process)
    return [('was not busy: ' + err, busy),
            ('exit code %d' % process.returncode, process.returncode == 130),
            ('took %.2f s' % seconds, seconds < STOP_LIMIT_S),
            ('text %r' % out, out in (b'', b'\n'))]


def test_run__interrupted_while_waiting_for_input__130():
    process = start(['run', '-m', MODEL], stdin=subprocess.PIPE)
    time.sleep(0.5)
    seconds, out, err = interrupt(process)
    return [('exit code %d: %s' % (process.returncode, err), process.returncode == 130),
            ('took %.2f s' % seconds, seconds < STOP_LIMIT_S)]


def test_eval__interrupted__no_file_is_left():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + '/t', 'w') as tokens:
            tokens.write('5 6 7 8 ' * 20000)
        process = start(['eval', '-m', MODEL, '--tokens', 't', '--logits', 'out', '-c', '100000',
                         '-t', '1'], cwd=folder, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not os.path.exists(folder + '/out.partial') and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        seconds, _, err = interrupt(process)
        left = os.listdir(folder)
    return [('exit code %d: %s' % (process.returncode, err), process.returncode == 130),
            ('took %.2f s' % seconds, seconds < STOP_LIMIT_S), ('left: %s' % left, left == ['t'])]


def test_chat__interrupted_answer__the_next_line_is_answered():
    process = start(['run', '-m', MODEL, '-cnv', *LONG], stdin=subprocess.PIPE)
    process.stdin.write(b'Hello\n')
    process.stdin.flush()
    first = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    process.stdin.write(b'/status\n/bye\n')
    process.stdin.close()
    process.stdin = None
    out, err = process.communicate(timeout=60)
    err = err.decode()
    return [('no text', len(first) == 20),
            ('exit code %d' % process.returncode, process.returncode == 0),
            ('not interrupted: ' + err, 'ended by an interrupt' in err),
            ('no status: ' + err, '2 messages; context' in err)]


def main():
    if not os.path.exists(MODEL):
        return 77
    good = True
    for name, test in list(globals().items()):
        if name.startswith('test_'):
            good &= check(name, test())
    return 0 if good else 1


sys.exit(main())
