#!/usr/bin/env python3
"""Checks the rules of docs/STYLE.md that a machine can check.

    tidy.py [ROOT]        prints `file:line: what` for each finding; exit code 1 where there is one
    tidy.py --selftest    proves that every rule can fail and that clean code passes

A rule is a function from a tree (path -> File) to findings, registered by @rule. Test data and what
others wrote are left out. Reading C with regular expressions works because the code is uniform:
braces of functions stand in column 0, and comments and strings are blanked first.
"""

import ast
import io
import os
import re
import sys
import tokenize

COLUMNS = 100
FUNCTION_LINES = 70
FILE_LINES = 1000
PARAMETERS = 6

SKIP = ("build", ".git/", "tests/golden/", "tests/conversations/", "tests/fuzz/corpus/", "models/")
TEXT = (".c", ".h", ".def", ".py", ".sh", ".md", ".txt", ".json", ".cmake", ".1", ".glob", ".in")
EXEMPT_NAMES = {"CMakeLists.txt", "README.md", "__init__.py"}

# A module may include those of a lower rank, and itself.
RANK = {"base": 0, "io": 1, "formats": 2, "pack": 3, "expert_cache": 3, "router": 4,
        "trace": 4, "engine/kernels": 5, "engine/text": 5, "engine": 6, "tools": 7, "examples": 7}
# Files of the program that use the modules pack or trace, and with them those they stand on.
PACKS_MODELS = re.compile(
    r'^\s*#\s*include "(pack/|trace/|tools/(weights|calib|pack|trace)\w*\.h)', re.M)
# Headers of other projects: where they may be used. A library has one file of ours around it.
THIRD_PARTY = {"pcre2.h": "engine/text/", "utf8proc.h": "engine/text/", "cJSON.h": "tools/",
               "histedit.h": "tools/",
               "liburing.h": "io/", "xxhash.h": "formats/", "msgpack.h": "formats/",
               "zlib.h": "trace/",
               "cmocka.h": "tests/"}

RULES = []


def rule(check):
    RULES.append(check)
    return check


def blank(text):
    """Spaces of the same shape."""
    return re.sub(r"[^\n]", " ", text)


C_TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


class File:
    """One file: text as it is, code (C without comments, strings and character constants), comments
    (C comments, Python # comments) as [(line, text)]."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.is_c = path.endswith((".c", ".h", ".def"))
        self.is_py = path.endswith(".py")
        self.comments = []
        self.code = C_TOKENS.sub(self._take, text) if self.is_c else text
        if self.is_py:
            self._python_comments()

    def _take(self, match):
        token = match.group(0)
        if token.startswith("/"):
            self.comments.append((self.line_of(match.start()), token))
            return blank(token)
        return token[0] + blank(token[1:-1]) + token[-1]

    def _python_comments(self):
        try:
            for t in tokenize.generate_tokens(io.StringIO(self.text).readline):
                if t.type == tokenize.COMMENT:
                    self.comments.append((t.start[0], t.string))
        except (tokenize.TokenError, SyntaxError):
            pass  # the rule about functions reports it

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def module(self):
        """The longest module prefix of the path, or None."""
        names = [m for m in RANK if self.path.startswith(m + "/")]
        return max(names, key=len) if names else None

    def in_library(self):
        return self.is_c and self.module() not in (None, "tools", "examples")

    def search(self, pattern):
        """(line, match) of every match of pattern in the code."""
        for m in re.finditer(pattern, self.code, re.M):
            yield self.line_of(m.start()), m


def each(tree, wanted):
    return [f for f in tree.values() if wanted(f)]


def is_source(f):
    return f.is_c or f.is_py


# ---- shape ---------------------------------------------------------------------------------------


@rule
def columns(tree):
    for f in each(tree, is_source):
        for i, line in enumerate(f.lines, 1):
            if len(line) > COLUMNS:
                yield f, i, f"{len(line)} columns; at most {COLUMNS}"


@rule
def white_space(tree):
    for f in tree.values():
        for i, line in enumerate(f.lines, 1):
            if line.rstrip() != line and not f.path.endswith(".md"):
                yield f, i, "white space at the end of the line"
            if "\t" in line and is_source(f):
                yield f, i, "a tab; four spaces indent"
        if is_source(f) and f.text and not f.text.endswith("\n"):
            yield f, len(f.lines), "no newline at the end of the file"


@rule
def file_length(tree):
    for f in each(tree, is_source):
        n = f.text.count("\n")
        if n > FILE_LINES:
            yield f, FILE_LINES, f"{n} lines; at most {FILE_LINES}, aim for 300"


@rule
def file_comment(tree):
    for f in each(tree, lambda f: f.is_c):
        if not f.text.lstrip().startswith("/*"):
            yield f, 1, "no comment at the top that says what the file is for"


def c_functions(f):
    """(line of the brace, lines, signature) of each function whose brace stands in column 0."""
    for m in re.finditer(r"^\{$", f.code, re.M):
        end = f.code.find("\n}", m.start())
        head = re.split(r"[;}]|^#[^\n]*$", f.code[:m.start()], flags=re.M)[-1]
        if end >= 0 and "(" in head:
            yield f.line_of(m.start()), f.code.count("\n", m.start(), end) + 2, head


@rule
def function_length(tree):
    for f in each(tree, lambda f: f.is_c):
        for line, n, _ in c_functions(f):
            if n > FUNCTION_LINES:
                yield f, line, f"a function of {n} lines; at most {FUNCTION_LINES}"
    for f in each(tree, lambda f: f.is_py):
        try:
            nodes = list(ast.walk(ast.parse(f.text)))
        except SyntaxError as e:
            yield f, e.lineno or 1, "not Python"
            continue
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                n = node.end_lineno - node.lineno + 1
                if n > FUNCTION_LINES:
                    yield f, node.lineno, f"a function of {n} lines; at most {FUNCTION_LINES}"


@rule
def braces(tree):
    words = r"(?!do\b|else\b|if\b|for\b|while\b|switch\b|struct \w+ \{|typedef\b|extern \"|#)"
    for f in each(tree, lambda f: f.is_c):
        for line, _ in f.search(r"^" + words + r"\w[^;={}]*\)[ \n]*\{$(?<!\n\{)"):
            yield f, line, "the opening brace of a function stands in column 0"


def count_parameters(signature):
    """Parameters of the first parenthesis: a declarator's, not those of function pointers in it."""
    depth, n, any_text = 0, 1, False
    for c in signature[signature.index("("):]:
        depth += (c == "(") - (c == ")")
        if depth == 0:
            break
        n += c == "," and depth == 1
        any_text = any_text or c not in "( \n"
    return n if any_text else 0


@rule
def parameters(tree):
    prototype = r"^(?!#|typedef\b|return\b|else\b)\w[\w \n*]*?\b\w+\((?:[^;{}])*\)[^;{}()]*" \
                r"(?:SL_PRINTF\([^)]*\))?;"
    for f in each(tree, lambda f: f.is_c):
        heads = [(line, head) for line, _, head in c_functions(f)]
        if f.path.endswith(".h"):
            heads += [(line, m.group(0)) for line, m in f.search(prototype)]
        for line, head in heads:
            n = count_parameters(head)
            if n > PARAMETERS:
                yield f, line, f"{n} parameters; at most {PARAMETERS}, then a struct"


# ---- what may be called, and where ---------------------------------------------------------------

OUTSIDE = ("tools/", "tests/", "examples/")
CALLS = [  # names, where they may stand, why not elsewhere
    ("malloc calloc realloc free strdup strndup asprintf vasprintf aligned_alloc posix_memalign",
     ("base/mem.c",) + OUTSIDE,
     "memory comes from base/mem.h"),
    ("getenv secure_getenv setenv putenv", ("tools/", "tests/"),
     "the library reads no environment"),
    ("exit abort _exit _Exit quick_exit", ("base/assert.c",) + OUTSIDE,
     "the library stops no process"),
    ("printf fprintf puts fputs putchar perror vprintf vfprintf", ("base/assert.c",) + OUTSIDE,
     "the library prints nothing; log through base/log.h"),
    ("signal sigaction setlocale chdir umask", OUTSIDE,
     "the library changes nothing of the host's"),
    ("atoi atol atoll atof strcpy strcat sprintf vsprintf strtok gets alloca", (),
     "no check of errors or sizes"),
    ("exp expf exp2 exp2f log logf log2 log2f log10 log1p log1pf expm1 pow powf sin sinf cos cosf "
     "sincos sincosf tan tanf tanh tanhf cbrt hypot", OUTSIDE,
     "libm differs between machines; use base/mathfn.h"),
]


@rule
def banned_calls(tree):
    for names, places, why in CALLS:
        pattern = r"(?<![\w.>])(" + "|".join(names.split()) + r")\s*\("
        for f in each(tree, lambda f: f.is_c):
            if f.path.startswith(places):
                continue
            for line, m in f.search(pattern):
                yield f, line, f"{m.group(1)}() may not be called here: {why}"


@rule
def conditionals(tree):
    isa = r"__(AVX\w*|SSE\w*|FMA|F16C|BMI2?|ARM_NEON|ARM_FEATURE\w*)\w*"
    system = r"\b(__ANDROID__|__linux__|__APPLE__|_WIN32|__BIONIC__|__GLIBC__)\b"
    for f in each(tree, lambda f: f.is_c):
        if not re.search(r"_(avx2|avx512|neon|dotprod|i8mm)\.[ch]$|^base/cpu\.c$|^tests/", f.path):
            for line, m in f.search(r"\b" + isa + r"\b"):
                yield f, line, f"{m.group(0)} belongs into a file named after the instruction set"
        if f.in_library() and f.module() not in ("base", "io"):
            for line, m in f.search(system):
                yield f, line, f"{m.group(0)}: systems differ in base/ and io/ only"


@rule
def volatile_data(tree):
    for f in each(tree, File.in_library):
        for line, _ in f.search(r"(?<!__asm__ )\bvolatile\b"):
            yield f, line, "volatile does not synchronise; use <stdatomic.h>"


# ---- includes ------------------------------------------------------------------------------------


def includes(f):
    for i, line in enumerate(f.lines, 1):
        m = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if m:
            yield i, m.group(1) == '"', m.group(2)


def owner_of(path):
    names = [m for m in RANK if path.startswith(m + "/")]
    return max(names, key=len) if names else None


def include_problem(f, module, name):
    """Why `module` may not include the header of ours called name; None where it may."""
    if name in ("include/sluice_err.h", "sluice_err.h"):
        return None
    if name in ("include/sluice.h", "sluice.h"):
        known = RANK[module] >= RANK["engine"]
        return None if known else "only engine and tools know the public API"
    other = owner_of(name) if "/" in name else module
    if other is None:
        return "not a header of a module"
    if module == "tools" and (other in ("pack", "trace") or PACKS_MODELS.search(f.text)):
        return None  # pack, diff and the like handle model files themselves
    if module in ("tools", "examples"):
        return None if other == module else "programs use sluice.h and their own headers only"
    if other == module or RANK[other] < RANK[module]:
        return None
    return f"{module} stands below or beside {other}"


@rule
def upward_includes(tree):
    for f in each(tree, lambda f: f.is_c and f.module()):
        for line, ours, name in includes(f):
            problem = include_problem(f, f.module(), name) if ours else None
            if problem:
                yield f, line, f"may not include {name}: {problem}"


@rule
def source_includes(tree):
    for f in each(tree, lambda f: f.is_c):
        for line, _, name in includes(f):
            if name.endswith(".c"):
                yield f, line, f"includes the source file {name}"


@rule
def third_party(tree):
    users = {}
    for f in each(tree, lambda f: f.is_c):
        for line, _, name in includes(f):
            if name not in THIRD_PARTY:
                continue
            place = THIRD_PARTY[name]
            if place == "tests/":
                if not f.path.startswith(place):
                    yield f, line, f"{name} belongs under {place}"
                continue
            if f.path.startswith("tests/"):
                continue
            if not f.path.startswith(place) or not f.path.endswith(".c"):
                yield f, line, f"{name} belongs into one .c file under {place}"
            # The same source compiled for another instruction set counts as one file.
            user = re.sub(r"_avx2\.c$", ".c", f.path)
            first = users.setdefault(os.path.basename(name), user)
            if first != user:
                yield f, line, f"{name} is already used in {first}; one file of ours around it"


# ---- names and comments --------------------------------------------------------------------------


@rule
def unique_names(tree):
    seen = {}
    for f in tree.values():
        name = os.path.basename(f.path)
        if name in EXEMPT_NAMES or not is_source(f):
            continue
        if name in seen:
            yield f, 1, f"the name is taken by {seen[name]}; names are unique in the tree"
        seen.setdefault(name, f.path)


@rule
def test_names(tree):
    for f in each(tree, lambda f: f.path.startswith("tests/unit/") and f.is_c):
        for line, m in f.search(r"^static void (test_\w+)\(void \*\*"):
            if m.group(1).count("__") != 2:
                yield f, line, f"{m.group(1)}: test_<subject>__<situation>__<expected>"


def preceding_comment(f, line):
    """The comment that ends right above `line`; prototypes in one paragraph share theirs."""
    last = line - 1
    while last >= 1 and f.lines[last - 1].strip() and "*/" not in f.lines[last - 1]:
        last -= 1
    for first, text in f.comments:
        if first + text.count("\n") == last:
            return text
    return ""


@rule
def public_comments(tree):
    for f in each(tree, lambda f: f.path == "include/sluice.h"):
        for line, m in f.search(r"^SLUICE_API [^;]*;"):
            text, proto = preceding_comment(f, line), " ".join(m.group(0).split())
            name = re.search(r"(\w+)\s*\(", proto).group(1)
            returns = re.sub(r"SLUICE_\w+ ", "", proto.split(name)[0]).strip()
            wanted = ["Thread:"] + (["Returns"] if returns != "void" else [])
            if re.search(r"\bsluice_\w+ \*\*\w+", proto):
                wanted.append("Owner:")
            for word in wanted:
                if word not in text:
                    yield f, line, f"{name}: the comment does not say \"{word}\""


@rule
def open_ends(tree):
    for f in each(tree, is_source):
        for line, text in f.comments:
            for i, part in enumerate(text.split("\n")):
                m = re.search(r"\b(TODO|FIXME|XXX|HACK)\b", part)
                if m and not re.search(r"#\d+", part):
                    yield f, line + i, f"{m.group(1)} without an issue number"


# A statement, not a sentence: ends in a semicolon or a brace and has an operator or a call.
DEAD_C = re.compile(r"^(?:(?:return|goto|break|continue)\b[^.]*;"
                    r"|(?:if|for|while|switch) \(.*\) ?\{?"
                    r"|\}? ?else ?\{|[\w\[\].*&>-]+(?: \w+)? (?:[-+*/|&]|<<|>>)?= .*;"
                    r"|[\w.>-]+\(.*\);|#(?:if|include|define)\b.*)$")
DEAD_PY = re.compile(r"^(?:import \w+(?:\.\w+)*|from [\w.]+ import .+|def \w+\(.*\):"
                     r"|return [\w.\[\]()]+"
                     r"|print\(.*\)|[\w.\[\]]+ \+?= [\w.]+\(.*\)|if .+:|for \w+ in .+:)$")


@rule
def dead_code(tree):
    for f in each(tree, is_source):
        for line, text in f.comments:
            for i, part in enumerate(text.split("\n")):
                # Examples are indented by four or more inside their comment.
                if f.is_c and re.match(r"\s*\*\s{4,}", part):
                    continue
                part = re.sub(r"^\s*(/\*+|//|\*|#)?\s?|\s*\*/\s*$", "", part).strip()
                if (DEAD_C if f.is_c else DEAD_PY).match(part):
                    yield f, line + i, f"commented-out code: {part[:40]}"
        if f.is_c:
            for line, _ in f.search(r"^\s*#\s*if 0\b"):
                yield f, line, "code that is never compiled"


@rule
def private_words(tree):
    """Paths of somebody's machine say nothing to a reader."""
    for f in tree.values():
        for i, line in enumerate(f.lines, 1):
            m = re.search(r"(?<![\w.$}])/(?:home|opt|root|work|Users)/[\w.]+", line)
            if m:
                yield f, i, f"{m.group(0)}: a path of one particular machine"


@rule
def placeholders(tree):
    """What a generator or a person was to fill in."""
    for f in each(tree, lambda f: f.path.endswith(".md")):
        for i, line in enumerate(f.lines, 1):
            m = re.search(r"@[A-Z][A-Z0-9_]*@", line)
            if m:
                yield f, i, f"{m.group(0)}: a placeholder that nobody filled in"


# ---- running it ----------------------------------------------------------------------------------


def check(tree):
    """[(path, line, rule, what)] of a {path: text}."""
    files = {path: File(path, text) for path, text in sorted(tree.items())}
    found = []
    for r in RULES:
        found += [(f.path, line, r.__name__, what) for f, line, what in r(files)]
    return sorted(found)


def read_tree(root):
    tree = {}
    for folder, subfolders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        prefix = "" if relative == "." else relative + "/"
        subfolders[:] = sorted(d for d in subfolders
                               if not (prefix + d + "/").startswith(SKIP) and not d.startswith("."))
        for name in sorted(names):
            if name.endswith(TEXT) and not name.startswith("."):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
                    tree[prefix + name] = f.read()
    return tree


def selftest():
    import tidy_cases  # beside this file; only the self-test needs it
    failures = tidy_cases.run(check, [r.__name__ for r in RULES])
    print(f"tidy: self-test of {len(RULES)} rules, {failures} failures")
    return 1 if failures else 0


def main(argv):
    if argv[1:] == ["--selftest"]:
        return selftest()
    if len(argv) > 2 or (len(argv) == 2 and argv[1].startswith("-")):
        print(__doc__, file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.abspath(__file__))
    tree = read_tree(argv[1] if len(argv) == 2 else os.path.join(here, "..", ".."))
    if not tree:
        print("tidy: no files found", file=sys.stderr)
        return 1
    found = check(tree)
    for path, line, _, what in found:
        print(f"{path}:{line}: {what}")
    print(f"tidy: {len(tree)} files, {len(found)} findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
