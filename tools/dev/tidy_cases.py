"""Cases for `tidy.py --selftest`: for every rule, small trees that must be refused by it, and one
clean tree that must pass. A rule without a failing case fails the self-test."""

HEAD = "/* What this is for. */\n"
BODY = HEAD + "void f(void)\n{\n    %s;\n}\n"
PUBLIC = HEAD + "/* %s */\nSLUICE_API %s;\n"

CLEAN = {
    "base/mem.c": HEAD + '#include "base/base.h"\nvoid *f(void)\n{\n    return malloc(3);\n}\n',
    "base/assert.c": BODY % "abort()",
    "base/asan.h": HEAD + "#define SL_GAP 64\nstatic inline int one(void) { return 1; }\n",
    "io/file.c": HEAD + '#include "base/mem.h"\n#include "io/file.h"\n#ifdef __linux__\n#endif\n',
    "engine/kernels/dot_avx2.c": HEAD + "#ifndef __AVX2__\n#error \"needs -mavx2\"\n#endif\n",
    "engine/text/pretokenize.c": HEAD + "#include <pcre2.h>\n",
    "formats/checksum.c": HEAD + "#include <xxhash.h>\n",
    "formats/checksum_avx2.c": HEAD + "#include <xxhash.h>\n",
    "engine/model.c": HEAD + '#include "engine/text/tokenizer.h"\n#include "include/sluice.h"\n',
    "include/sluice.h": HEAD
    + "/* Opens. Returns a code. Owner: the caller. Thread: safe. */\n"
      "SLUICE_API int sluice_a(struct s *in, struct s **out);\n\n"
      "/* Returns a name. Thread: safe. */\n"
      "SLUICE_API const char *sluice_b(void);\nSLUICE_API const char *sluice_c(void);\n\n"
      "/* Closes. Thread: one per handle. */\nSLUICE_API void sluice_d(struct s *in);\n",
    "tools/run.c": HEAD + '#include "sluice.h"\n#include "tools/args.h"\n#include <cJSON.h>\n'
    "int main(void)\n{\n    free(malloc(1));\n    exit(getenv(\"HOME\") == 0);\n}\n",
    "tests/unit/test_x.c": HEAD + "#include <cmocka.h>\n#include \"engine/model.h\"\n"
    "static void test_a__b__c(void **state)\n{\n    (void)state;\n}\n",
    "engine/long.c": HEAD + "int f(int a,\n      int (*g)(int, int, int, int, int, int, int))\n{\n"
    + "    a++;\n" * 67 + "    return a;\n}\n",
    "formats/text.c": HEAD
    + "/* TODO(#12): later. The sum is x = a + b; see below.\n *\n *     x = y;\n"
    " */\nstatic const char *const s = \"malloc(1) TODO \\\" // x = y;\";\nint x = '\"';\n"
    "/* Never calls malloc(); 3 / 2 is written so. */\n",
    "tools/dev/ok.py": "# Twice as much.\nX = '# import os'\n",
    "docs/page.md": "A line\n",
}

# rule -> [(path, text)] or [{path: text}]
REFUSED = {
    "columns": [("base/a.c", HEAD + "/* " + "x" * 95 + " */\n"), ("tools/a.py", "x" * 101 + "\n")],
    "white_space": [("base/a.c", HEAD + "int x; \n"), ("base/a.c", HEAD + "\tint x;\n"),
                    ("base/a.c", HEAD + "int x;"), ("tools/a.sh", "ls \n")],
    "file_length": [("base/a.c", HEAD + "int x;\n" * 1000), ("tools/a.py", "x = 1\n" * 1001)],
    "file_comment": [("base/a.c", "#include <stdio.h>\n")],
    "function_length": [("base/a.c", HEAD + "void f(void)\n{\n" + "    x();\n" * 69 + "}\n"),
                        ("base/a.h", HEAD + "static inline int f(int a)\n{\n" + "\n" * 69 + "}\n"),
                        ("tools/a.py", "def f():\n" + "    x()\n" * 70),
                        ("tools/a.py", "def f(:\n")],
    "braces": [("base/a.c", HEAD + "void f(void) {\n    x();\n}\n"),
               ("base/a.c", HEAD + "static int f(int a,\n   int b) {\n    return a;\n}\n")],
    "parameters": [("base/a.c", HEAD + "int f(int a, int b, int c, int d,\n"
                    "      int e, int f, int g)\n{\n}\n"),
                   ("base/a.h", HEAD + "int f(int a, int b, int c, int d, int e, int f, int g);\n"),
                   ("base/a.h", HEAD + "void f(int a, int b, int c, int d, int e,\n"
                    "       const char *f, ...) SL_PRINTF(6, 7);\n")],
    "banned_calls": [("engine/a.c", BODY % "p = malloc(1)"), ("io/a.c", BODY % "free (p)"),
                     ("base/log.c", BODY % "printf(0)"), ("engine/a.c", BODY % "getenv(x)"),
                     ("examples/a.c", BODY % "getenv(x)"), ("engine/a.c", BODY % "exit(1)"),
                     ("tools/a.c", BODY % "atoi(x)"), ("tests/a.c", BODY % "strcpy(x, y)"),
                     ("tools/a.c", BODY % "sprintf(x, y)"), ("tools/a.c", BODY % "strtok(x, y)"),
                     ("base/a.c", BODY % "p = alloca(9)"), ("engine/a.c", BODY % "y = expf(x)"),
                     ("router/a.c", BODY % "abort()"), ("io/a.c", BODY % "sigaction(1, 0, 0)")],
    "conditionals": [("engine/kernels/dot.c", HEAD + "#ifdef __AVX2__\n#endif\n"),
                     ("base/mem.c", HEAD + "#if defined(__ARM_NEON)\n#endif\n"),
                     ("engine/a.c", HEAD + "#ifdef __ANDROID__\n#endif\n")],
    "volatile_data": [("engine/a.c", HEAD + "static volatile int ready;\n")],
    "upward_includes": [("base/a.c", HEAD + '#include "io/file.h"\n'),
                        ("io/a.c", HEAD + '#include "formats/gguf.h"\n'),
                        ("formats/a.c", HEAD + '#include "expert_cache/expert_store.h"\n'),
                        ("expert_cache/a.c", HEAD + '#include "router/router.h"\n'),
                        ("router/a.c", HEAD + '#include "engine/kernels/kernels.h"\n'),
                        ("engine/kernels/a.c", HEAD + '#include "engine/model.h"\n'),
                        ("engine/kernels/a.c", HEAD + '#include "engine/text/stop.h"\n'),
                        ("engine/text/a.c", HEAD + '#include "engine/kernels/kernels.h"\n'),
                        ("engine/text/a.c", HEAD + '# include "include/sluice.h"\n'),
                        ("engine/a.c", HEAD + '#include "tools/args.h"\n'),
                        ("engine/a.c", HEAD + '#include "tests/support/gguf_build.h"\n'),
                        ("tools/a.c", HEAD + '#include "base/base.h"\n'),
                        ("examples/a.c", HEAD + '#include "engine/model.h"\n')],
    "source_includes": [("tests/a.c", HEAD + '#include "../base/mem.c"\n')],
    "third_party": [("base/a.c", HEAD + "#include <pcre2.h>\n"),
                    ("engine/text/a.h", HEAD + "#include <utf8proc.h>\n"),
                    ("engine/a.c", HEAD + "#include <cmocka.h>\n"),
                    {"tools/a.c": HEAD + "#include <cJSON.h>\n",
                     "tools/b.c": HEAD + "#include <cJSON.h>\n"},
                    {"tools/a.c": HEAD + "#include <histedit.h>\n",
                     "tools/b.c": HEAD + "#include <histedit.h>\n"}],
    "unique_names": [{"base/a.c": HEAD, "tools/a.c": HEAD}],
    "test_names": [("tests/unit/test_a.c",
                    HEAD + "static void test_it_works(void **state)\n{\n}\n")],
    "public_comments": [
        ("include/sluice.h", PUBLIC % ("Thread: safe.", "int sluice_a(void)")),
        ("include/sluice.h", PUBLIC % ("Returns one.", "int sluice_a(void)")),
        ("include/sluice.h", PUBLIC % ("Returns it. Thread: safe.", "int sluice_a(sluice_x **o)")),
        ("include/sluice.h", HEAD + "\nSLUICE_API void sluice_a(void);\n")],
    "open_ends": [("base/a.c", HEAD + "/* TODO: more */\n"), ("tools/a.py", "# FIXME\n"),
                  ("base/a.c", HEAD + "/* One\n * XXX two */\n")],
    "dead_code": [("base/a.c", HEAD + "// x = y + 1;\n"), ("base/a.c", HEAD + "/* free(p); */\n"),
                  ("base/a.c", HEAD + "/*\n * if (a) {\n * return 3;\n */\n"),
                  ("base/a.c", HEAD + "#if 0\nint x;\n#endif\n"),
                  ("base/a.c", HEAD + "/* #include <x.h> */\n"),
                  ("tools/a.py", "# print(x)\n"), ("tools/a.py", "# import os\n")],
    "placeholders": [("docs/a.md", "It takes @" + "SECONDS@ s.\n")],
    "private_words": [("docs/a.md", "see " + "/" + "home/somebody/x\n"),
                      ("base/a.c", HEAD + "/* " + "/" + "opt/tool/x.c */\n")],
}


def run(check, rules):
    """Number of failures, each printed. check: tidy.check; rules: the names of all rules."""
    failures = 0
    for path, line, name, what in check(CLEAN):
        print(f"clean code is refused by {name}: {path}:{line}: {what}")
        failures += 1
    for name in rules:
        cases = REFUSED.get(name, [])
        if not cases:
            print(f"{name}: no failing case")
            failures += 1
        for i, case in enumerate(cases):
            tree = case if isinstance(case, dict) else {case[0]: case[1]}
            if name not in {found[2] for found in check(tree)}:
                print(f"{name}: case {i} passes but must not: {sorted(tree)}")
                failures += 1
    for name in set(REFUSED) - set(rules):
        print(f"{name}: cases for a rule that does not exist")
        failures += 1
    return failures
