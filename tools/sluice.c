/* The sluice program: one binary, a verb first, in git's manner.
 *
 * This file chooses the verb; each verb has a file of its own and gets parsed arguments. They use
 * include/sluice.h only, as any other application would, but for pack, calib, diff and verify
 * --deep, which handle model files themselves, and trace. */
#define _POSIX_C_SOURCE 200809L
#include "include/sluice.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/report.h"
#include "tools/verbs.h"

static const struct cli_verb_entry verbs[] = {
    {"run", CLI_RUN, cli_run, "answer a prompt, or chat", "-m MODEL [-p TEXT | -f FILE] [options]",
     "With -p, -f or piped text, that is one turn: it is answered and the program leaves. "
     "Otherwise\n"
     "it is a chat; /help there lists the commands. --raw continues plain text instead.\n"},
    {"eval", CLI_EVAL, cli_eval, "logits, greedy continuation and log-likelihood of given tokens",
     "-m MODEL --tokens FILE [--logits FILE] [--greedy N] [--nll] [options]",
     "Files are written as NAME.partial and renamed when complete.\n"},
    {"ppl", CLI_PPL, cli_ppl, "perplexity of a text, and distance from a reference run",
     "-m MODEL -f TEXT [--save-logits FILE | --kl FILE] [--loops FILE] [options]",
     "A text is scored in windows of -c tokens; the method is printed with each result, and\n"
     "figures of different methods cannot be compared. --save-logits writes what the model\n"
     "expected, --kl compares another model, or the same with other options, with it.\n"},
    {"calib", CLI_CALIB, cli_calib, "statistics of a model's inputs on a text, for packing it",
     "-m MODEL -f TEXT -o STATS.gguf [-c N] [--chunks N] [options]",
     "The model reads the text in windows of -c tokens, and for every weight matrix it is noted\n"
     "how large the inputs of each column are, of routed experts each by itself. The file is an\n"
     "importance matrix: what pack and llama.cpp's quantize take. Experts that no token chose are\n"
     "counted; more text reaches more.\n"},
    {"pack", CLI_PACK, cli_pack, "make a model smaller and faster to read: a container",
     "MODEL -o NAME.sluice [--bits N | --keep] [--recipe FILE] [options]",
     "MODEL is a GGUF file (of a split one any part), a Hugging Face folder, or a container.\n"
     "Experts come to 3 bits a weight, or --bits; weights that are quantized already and are not\n"
     "experts' stay as they are, other matrices come to 8 bits, and vectors and routers stay\n"
     "exact; in models with recurrent layers (Qwen3-Next, 3.5, 3.6) attention and the like come\n"
     "to 6 or 5 bits. What was interrupted goes on with the same command. docs/PACKING.md is the\n"
     "guide.\n"},
    {"info", CLI_INFO, cli_info, "what a model holds, and the memory it would take",
     "MODEL [--meta] [--tensors] [options]", "Reads headers only, also of unsupported models.\n"},
    {"tokenize", CLI_TOKENIZE, cli_tokenize, "text to token ids, and back",
     "-m MODEL [--decode] [options] < TEXT",
     "Text is taken byte for byte from standard input, a final line end included, and its ids are\n"
     "printed on one line. With --lines each line is a text by itself.\n"},
    {"verify", CLI_VERIFY, cli_verify, "compare a model with its checksums, or make them",
     "-m MODEL [--make-sums] [--deep] [options]",
     "A GGUF carries no checksums. --make-sums writes NAME.sums once, while the model is known\n"
     "to be whole; from then on whatever is read of the model is compared, by run too, and\n"
     "verify reads all of it. A sums file that fits the model is checked, never replaced. A\n"
     "container carries its own. --deep decodes every weight, too.\n"},
    {"diff", CLI_DIFF, cli_diff, "how far the weights of two files of a model are apart, and where",
     "A B [--swap-layers -f TEXT] [options]",
     "A is the better file; either may be a GGUF, a container or a Hugging Face folder. Weights\n"
     "are compared by name, worst first. --swap-layers measures what each layer of B costs\n"
     "instead, in divergence from A. Differences are no failure: the exit code is 0.\n"},
    {"bench", CLI_BENCH | CLI_BENCH_MODEL, cli_bench, "measure this machine",
     "kernels | memory | decode -m MODEL | prefill -m MODEL [options]",
     "kernels: speed of each weight type and instruction set, one thread and all, from cache and\n"
     "memory, as a share of how fast memory is read. memory: the latter alone.\n"
     "decode: a model's tokens, one by one; what is read for them, and how much of it is waited "
     "for.\n"
     "prefill: one prompt. With --warm N, N tokens are decoded before and after it.\n"
     "--routing TRACE replays recorded routing, so that a model of random weights meets real\n"
     "reuse of experts.\n"},
    {"trace", CLI_TRACE, NULL, "which experts a workload uses, and what another cache would do",
     "replay FILE | report FILE [FILE2] -o PAGE.html | convert FROM TO  [options]",
     "FILE is what --trace of run, eval, ppl and bench has recorded, or routing in another form:\n"
     "CSV, JSON lines, text, or BigMoeOnEdge's CSV, gzipped or not. replay sends it through the\n"
     "expert cache with other sizes and policies, as in\n"
     "    sluice trace replay FILE --cache 10%,20%,2G --policy default,lru,belady\n"
     "and says how far each is from the optimum. report writes a page of charts and tables.\n"
     "convert writes another form. docs/TRACING.md is the guide.\n"},
};

const struct cli_verb_entry *cli_verb_at(size_t index)
{
    return index < sizeof verbs / sizeof verbs[0] ? &verbs[index] : NULL;
}

const struct cli_verb_entry *cli_verb_find(const char *name)
{
    const struct cli_verb_entry *verb;
    for (size_t i = 0; (verb = cli_verb_at(i)); i++)
        if (strcmp(verb->name, name) == 0) return verb;
    return NULL;
}

/* Verbs of other programs, and what they are here. */
static const char *verb_advice(const char *name)
{
    static const char *const table[][2] = {
        {"chat", "sluice run -m MODEL chats"},
        {"generate", "use sluice run"},
        {"show", "use sluice info"},
        {"ls", "models are files; use sluice info MODEL"},
        {"list", "models are files; use sluice info MODEL"},
        {"pull", "Sluice downloads nothing; fetch the model yourself and name it with -m"},
        {"serve", "there is no server yet"},
        {"server", "there is no server yet"},
        {"perplexity", "use sluice ppl"},
        {"imatrix", "use sluice calib"},
        {"check", "use sluice verify"},
        {"checksum", "use sluice verify --make-sums"},
        {"quantize", "use sluice pack"},
        {"convert", "use sluice pack"},
        {"imatrix", "use sluice calib"},
        {"detokenize", "use sluice tokenize --decode"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i][0], name) == 0) return table[i][1];
    return NULL;
}

static int unknown_verb(const char *name)
{
    struct cli_nearest nearest = {NULL, 0, 0};
    struct stat found;
    const char *advice = verb_advice(name);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        cli_nearest_offer(&nearest, name, verbs[i].name, strlen(verbs[i].name));
    if (advice)
        cli_error("unknown verb '%s': %s", name, advice);
    else if (stat(name, &found) == 0)
        cli_error("'%s' is a file; write: sluice run %s", name, name);
    else if (nearest.best)
        cli_error("unknown verb '%s'; did you mean '%s'?", name, nearest.best);
    else
        cli_error("unknown verb '%s'; 'sluice --help' lists them", name);
    return CLI_EXIT_USAGE;
}

static int print_version(int json)
{
    if (json) {
        struct cli_json *root = cli_json_object();
        cli_json_string(root, "version", sluice_version());
        cli_json_string(root, "build", sluice_build_info());
        (void)cli_json_finish(root, 0);
    } else {
        (void)cli_printf("sluice %s\n%s\n", sluice_version(), sluice_build_info());
    }
    return CLI_EXIT_OK;
}

static int print_archs(int json)
{
    const char *name;
    struct cli_json *root = cli_json_object(), *archs = cli_json_child_array(root, "archs");
    for (uint32_t i = 0; (name = sluice_arch_name(i)); i++) {
        cli_json_string(archs, NULL, name);
        if (!json) (void)cli_printf("%s\n", name);
    }
    if (json)
        (void)cli_json_finish(root, 0);
    else
        cli_json_drop(root);
    return CLI_EXIT_OK;
}

/* What the first word after `bench` asks for: measuring a model takes other options. */
static int is_bench_of_model(const struct cli_verb_entry *verb, int argc, char **argv)
{
    return verb->run == cli_bench && argc > 0 &&
           (strcmp(argv[0], "decode") == 0 || strcmp(argv[0], "prefill") == 0);
}

/* What the first word after `trace` asks for, with the mask of its options; NULL: nothing known. */
static int (*trace_subject(int argc, char **argv, unsigned *mask))(const struct cli_args *)
{
    static const struct {
        const char *name;
        unsigned verb;
        int (*run)(const struct cli_args *args);
    } subjects[] = {
        {"replay", CLI_TRACE_REPLAY, cli_trace_replay},
        {"report", CLI_TRACE_REPORT, cli_trace_report},
        {"convert", CLI_TRACE_CONVERT, cli_trace_convert},
    };
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        if (argc < 1 || strcmp(argv[0], subjects[i].name) != 0) continue;
        *mask = subjects[i].verb;
        return subjects[i].run;
    }
    return NULL;
}

static int run_verb(const struct cli_verb_entry *verb, int argc, char **argv)
{
    struct cli_args args;
    int (*run)(const struct cli_args *args) = verb->run;
    unsigned mask = verb->verb & ~(unsigned)CLI_BENCH_MODEL;
    const char *subject = NULL;
    if (verb->verb == CLI_TRACE && (run = trace_subject(argc, argv, &mask)) != NULL) {
        argc--;
        argv++;
    }
    if (is_bench_of_model(verb, argc, argv)) {
        run = cli_bench_model;
        mask = CLI_BENCH_MODEL;
        subject = argv[0];
        argc--;
        argv++;
    }
    cli_args_init(&args);
    if (cli_args_parse(&args, mask, argc, argv)) return CLI_EXIT_USAGE;
    if (subject) args.subject = subject;
    if (args.help) {
        cli_help_verb(verb);
        return CLI_EXIT_OK;
    }
    if (args.version) return print_version(args.json);
    if (run == NULL) {
        if (args.input)
            cli_error("trace: found '%s', wanted: sluice trace replay, report or convert",
                      args.input);
        else
            cli_error("trace needs something to do: sluice trace replay, report or convert");
        return CLI_EXIT_USAGE;
    }
    if (args.list_archs) return print_archs(args.json);
    cli_report_init(args.quiet);
    for (size_t i = 0; i < CLI_REMARKS_MAX && args.remarks[i].option; i++)
        cli_note("%s: %s", args.remarks[i].option, args.remarks[i].text);
    int code = run(&args);
    return code == CLI_EXIT_OK && cli_model_complained() ? CLI_EXIT_FAILURE : code;
}

static int help(const char *topic)
{
    const struct cli_verb_entry *verb = topic ? cli_verb_find(topic) : NULL;
    if (!topic)
        cli_help_program();
    else if (verb)
        cli_help_verb(verb);
    else if (strcmp(topic, "options") == 0)
        cli_help_options();
    else
        return unknown_verb(topic);
    return CLI_EXIT_OK;
}

static int is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static int choose(int argc, char **argv)
{
    if (argc < 2) {
        cli_error("usage: sluice run -m MODEL -p TEXT; the verbs are run, eval, ppl, calib, "
                  "pack, info, tokenize, verify, diff, bench, trace, help; see 'sluice --help'");
        return CLI_EXIT_USAGE;
    }
    const char *word = argv[1];
    const struct cli_verb_entry *verb = cli_verb_find(word);
    if (verb) return run_verb(verb, argc - 2, argv + 2);
    if (is_one_of(word, "--help", "-h", "--usage")) return help(NULL);
    if (strcmp(word, "help") == 0) return help(argc > 2 ? argv[2] : NULL);
    if (strcmp(word, "version") == 0) return print_version(0);
    /* People who come from llama.cpp begin with options: that is a run. */
    if (word[0] == '-') return run_verb(&verbs[0], argc - 1, argv + 1);
    return unknown_verb(word);
}

/* Makes sure that no file we open gets the number of a closed standard stream. Writing to such a
 * stream still fails, since it is opened for reading. */
static void fill_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", O_RDONLY);
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    cli_interrupt_install();
    return cli_end(choose(argc, argv));
}
