#!/usr/bin/env python3
"""run_cases.py SLUICE GOLDEN FILE.cases [NAME]: run command-line tests and compare what they print.

A case is a name in the first column, then indented lines:

    test_run__no_model__usage_error
      needs mixtral-Q8_0     (optional) golden folder without which the case is skipped
      $ sluice run -p hi     shell command; several lines make one script
      = 2                    exit code of the script, 0 if left out
      > hel*o                a line of standard output, as a glob; "..." stands for any lines.
                             Without any, standard output has to be empty
      ! *no model*           a glob that some line of standard error matches
      !! *core dumped*       a glob that no line of standard error matches

Each case runs in an empty folder, with standard input from /dev/null, `sluice` on the path,
$GOLDEN, $MODEL and $CHAT (-m and a template) set, and no SLUICE_ variables. Exit code 0: all
passed, 1: not, 77: all skipped."""
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile

TIMEOUT_S = 60


class Case:
    def __init__(self, name):
        self.name, self.needs, self.script, self.exit = name, [], [], 0
        self.out, self.err, self.not_err = [], [], []


def parse(path):
    cases = []
    for number, line in enumerate(open(path, encoding='utf-8'), 1):
        line = line.rstrip('\n')
        if not line.strip() or line.startswith('#'):
            continue
        if not line.startswith(' '):
            cases.append(Case(line.strip()))
            continue
        mark, _, rest = line.strip().partition(' ')
        case = cases[-1]
        if mark == '$':
            case.script.append(rest)
        elif mark == '=':
            case.exit = int(rest)
        elif mark == '>':
            case.out.append(rest)
        elif mark == '!':
            case.err.append(rest)
        elif mark == '!!':
            case.not_err.append(rest)
        elif mark == 'needs':
            case.needs.append(rest)
        else:
            sys.exit('%s:%d: unknown mark %r' % (path, number, mark))
    return cases


def lines_match(globs, lines):
    """Whether lines match globs, where the glob "..." takes any number of lines."""
    reach = {0}  # how many globs may be used up after the lines so far
    for line in lines + [None]:
        closure = set(reach)
        for i in sorted(reach):
            while i < len(globs) and globs[i] == '...':
                i += 1
                closure.add(i)
        if line is None:
            return len(globs) in closure
        reach = set()
        for i in closure:
            if i < len(globs) and globs[i] == '...':
                reach.add(i)
            elif i < len(globs) and fnmatch.fnmatchcase(line, globs[i]):
                reach.add(i + 1)


def run(case, environment):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(['sh', '-c', '\n'.join(case.script)], cwd=folder, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
    out = done.stdout.decode('utf-8', 'backslashreplace').split('\n')
    err = done.stderr.decode('utf-8', 'backslashreplace').split('\n')
    for lines in (out, err):
        if lines[-1] == '':
            lines.pop()
    faults = []
    if done.returncode != case.exit:
        faults.append('exit code %d, wanted %d' % (done.returncode, case.exit))
    if not lines_match(case.out, out):
        faults.append('standard output differs; wanted:\n    | ' + '\n    | '.join(case.out))
    for glob in case.err:
        if not any(fnmatch.fnmatchcase(line, glob) for line in err):
            faults.append('no line of standard error matches: ' + glob)
    for glob in case.not_err:
        if any(fnmatch.fnmatchcase(line, glob) for line in err):
            faults.append('a line of standard error matches: ' + glob)
    if faults:
        faults.append('standard output:\n    | ' + '\n    | '.join(out[:40]))
        faults.append('standard error:\n    | ' + '\n    | '.join(err[:40]))
    return faults


def main():
    sluice, golden, path = (os.path.abspath(a) for a in sys.argv[1:4])
    model = golden + '/qwen3moe-Q8_0/model.gguf'
    only = sys.argv[4] if len(sys.argv) > 4 else None
    environment = {k: v for k, v in os.environ.items() if not k.startswith('SLUICE_')}
    environment.update(GOLDEN=golden, MODEL=model,
                       CHAT='-m %s --chat-template chatml' % model, LC_ALL='C.UTF-8',
                       PATH=os.path.dirname(sluice) + ':' + os.environ.get('PATH', ''))
    if shutil.which('sluice', path=environment['PATH']) != sluice:
        sys.exit('%s is not a program named sluice' % sluice)
    passed = failed = skipped = 0
    for case in parse(path):
        if only and case.name != only:
            continue
        if any('$MODEL' in s or '$CHAT' in s for s in case.script):
            case.needs.append('qwen3moe-Q8_0')
        if not all(os.path.isdir(os.path.join(golden, need)) for need in case.needs):
            skipped += 1
            continue
        faults = run(case, environment)
        passed, failed = passed + (not faults), failed + bool(faults)
        if faults:
            print('FAIL %s\n  %s' % (case.name, '\n  '.join(faults)), flush=True)
    print('%d passed, %d failed, %d skipped' % (passed, failed, skipped))
    return 1 if failed else 77 if not passed else 0


sys.exit(main())
