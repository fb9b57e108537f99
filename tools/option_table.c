/* The table of options: what exists, for which verbs, in what unit and range, and with what
 * default. docs/TUNING.md and docs/man/sluice.1 name each of them, which a test checks. Options of
 * other programs that people type here stand in absent_options.c. */
#include <stdio.h>
#include <string.h>

#include "include/sluice.h"
#include "tools/args.h"

#define AT(field) offsetof(struct cli_args, field)
#define MODELS (COMPUTE | CLI_INFO | CLI_TOKENIZE | CLI_VERIFY)
#define COMPUTE (CLI_RUN | CLI_EVAL | CLI_PPL | CLI_BENCH_MODEL | CLI_CALIB | CLI_DIFF)
#define PLAN (COMPUTE | CLI_INFO)

static const struct cli_choice kv_kinds[] = {
    {"f32", SLUICE_KV_F32},
    {"f16", SLUICE_KV_F16},
    {"q8", SLUICE_KV_Q8},
    {"q8_0", SLUICE_KV_Q8},
    {NULL, 0},
};
static const struct cli_choice isas[] = {
    {"auto", SLUICE_ISA_AUTO}, {"scalar", SLUICE_ISA_SCALAR},
    {"avx2", SLUICE_ISA_AVX2}, {"avx512", SLUICE_ISA_AVX512},
    {"neon", SLUICE_ISA_NEON}, {"dotprod", SLUICE_ISA_DOTPROD},
    {"i8mm", SLUICE_ISA_I8MM}, {NULL, 0},
};
static const struct cli_choice ios[] = {
    {"auto", SLUICE_IO_AUTO},   {"uring", SLUICE_IO_URING}, {"io_uring", SLUICE_IO_URING},
    {"pread", SLUICE_IO_PREAD}, {"mmap", SLUICE_IO_MMAP},   {NULL, 0},
};
static const struct cli_choice policies[] = {
    {"recall", SLUICE_CACHE_RECALL},
    {"two_rate", SLUICE_CACHE_TWO_RATE},
    {"lru", SLUICE_CACHE_LRU},
    {"lfu", SLUICE_CACHE_LFU},
    {"decayed_lfu", SLUICE_CACHE_DECAYED_LFU},
    {NULL, 0},
};
static const struct cli_choice prefetches[] = {
    {"auto", SLUICE_PREFETCH_AUTO},
    {"off", SLUICE_PREFETCH_OFF},
    {"forced", SLUICE_PREFETCH_FORCED},
    {NULL, 0},
};

static const struct cli_choice thinks[] = {
    {"auto", CLI_THINK_AUTO},
    {"on", CLI_THINK_ON},
    {"off", CLI_THINK_OFF},
    {"show", CLI_THINK_SHOW},
    {NULL, 0},
};
static const struct cli_choice thinks_of_loops[] = {
    {"auto", CLI_THINK_AUTO},
    {"on", CLI_THINK_ON},
    {"off", CLI_THINK_OFF},
    {NULL, 0},
};

static const struct cli_choice pools[] = {
    {"one", CLI_POOL_ONE},
    {"layer", CLI_POOL_LAYER},
    {NULL, 0},
};

static const struct cli_choice bits[] = {
    {"2", 2}, {"3", 3}, {"4", 4}, {"5", 5}, {"6", 6}, {"8", 8}, {NULL, 0},
};

static const struct cli_option table[] = {
    /* clang-format off */
    {.name = "--model", .aliases = "-m", .argument = "MODEL", .fallback = "none", .verbs = MODELS,
     .kind = CLI_TEXT, .offset = AT(model),
     .help = "a GGUF file or a container, or any part of a split one; the word MODEL alone means "
             "the same"},

    {.name = "--model", .aliases = "-m", .argument = "MODEL", .fallback = "none",
     .verbs = CLI_PACK, .kind = CLI_TEXT, .offset = AT(model),
     .help = "what to pack: a GGUF file, a Hugging Face folder or a container; the word MODEL "
             "alone means the same"},
    {.name = "--output", .aliases = "-o", .argument = "NAME.sluice", .fallback = "none",
     .verbs = CLI_PACK, .kind = CLI_TEXT, .offset = AT(output),
     .help = "the container to write; until it is complete its name ends in .partial"},
    {.name = "--bits", .aliases = "", .argument = "N", .fallback = "3", .verbs = CLI_PACK,
     .kind = CLI_CHOICE, .offset = AT(bits), .choices = bits,
     .help = "bits of an expert's weight, about; experts of the first layers get a step more"},
    {.name = "--keep", .aliases = "", .verbs = CLI_PACK, .kind = CLI_FLAG, .offset = AT(keep),
     .set_to = 1, .help = "keep every tensor bit for bit, but for what --recipe names"},
    {.name = "--recipe", .aliases = "", .argument = "FILE", .fallback = "none", .verbs = CLI_PACK,
     .kind = CLI_TEXT, .offset = AT(recipe),
     .help = "lines PATTERN TYPE that say what a tensor becomes, before the built-in rules"},
    {.name = "--target-size", .aliases = "", .argument = "SIZE", .unit = "bytes",
     .fallback = "none", .verbs = CLI_PACK, .kind = CLI_SIZE, .offset = AT(target_bytes),
     .low = 1 << 16,
     .help = "choose the types that measure best for a container of at most SIZE"},
    {.name = "--target-bpw", .aliases = "", .argument = "X", .unit = "bits a weight",
     .fallback = "none", .verbs = CLI_PACK, .kind = CLI_NUMBER, .offset = AT(target_bpw),
     .low_f = 0.5, .high_f = 32,
     .help = "choose the types that measure best for at most X bits a weight, all together"},
    {.name = "--imatrix", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_PACK, .kind = CLI_TEXT, .offset = AT(imatrix),
     .help = "column statistics of sluice calib, or llama.cpp's importance matrix as a GGUF"},
    {.name = "--calib", .aliases = "", .argument = "TEXT", .fallback = "none", .verbs = CLI_PACK,
     .kind = CLI_TEXT, .offset = AT(calib),
     .help = "the same from a text, which the model reads first"},
    {.name = "--ram", .aliases = "", .argument = "SIZE", .unit = "bytes", .fallback = "no limit",
     .verbs = CLI_PACK, .kind = CLI_SIZE, .offset = AT(ram_bytes), .low = 1 << 20,
     .takes_auto = 1,
     .help = "memory for the model while it reads the text of --calib; packing itself takes less "
             "than 100M"},
    {.name = "--split", .aliases = "", .argument = "SIZE", .unit = "bytes",
     .fallback = "one file", .verbs = CLI_PACK, .kind = CLI_SIZE, .offset = AT(split_bytes),
     .low = 1 << 16,
     .help = "write parts smaller than SIZE, such as 4G for cards with FAT or exFAT"},
    {.name = "--restart", .aliases = "", .verbs = CLI_PACK, .kind = CLI_FLAG,
     .offset = AT(restart), .set_to = 1,
     .help = "begin anew instead of going on with what an interrupted run has finished"},

    {.name = "--prompt", .aliases = "-p", .argument = "TEXT", .fallback = "standard input",
     .verbs = CLI_RUN, .kind = CLI_TEXT, .offset = AT(prompt),
     .help = "answer this one turn and leave; - reads it from standard input"},
    {.name = "--prompt", .aliases = "-p", .argument = "TEXT", .fallback = "standard input",
     .verbs = CLI_TOKENIZE, .kind = CLI_TEXT, .offset = AT(prompt),
     .help = "the text, instead of standard input"},
    {.name = "--file", .aliases = "-f", .argument = "FILE", .fallback = "none",
     .verbs = CLI_RUN | CLI_TOKENIZE, .kind = CLI_TEXT, .offset = AT(file),
     .help = "read the text from FILE; - is standard input"},
    {.name = "--file", .aliases = "-f", .argument = "FILE", .fallback = "none",
     .verbs = CLI_PPL | CLI_DIFF, .kind = CLI_TEXT, .offset = AT(file),
     .help = "the text to score, byte for byte; - is standard input"},
    {.name = "--file", .aliases = "-f", .argument = "FILE", .fallback = "none", .verbs = CLI_CALIB,
     .kind = CLI_TEXT, .offset = AT(file),
     .help = "the text to read, byte for byte; - is standard input"},
    {.name = "--tokens", .aliases = "", .argument = "FILE", .fallback = "none", .verbs = CLI_CALIB,
     .kind = CLI_TEXT, .offset = AT(tokens),
     .help = "token ids to read instead of a text, decimal, separated by white space; - is "
             "standard input"},
    {.name = "--output", .aliases = "-o --output-file", .argument = "FILE", .fallback = "none",
     .verbs = CLI_CALIB, .kind = CLI_TEXT, .offset = AT(output),
     .help = "where the statistics go: an importance matrix, as llama.cpp's tools read it"},
    {.name = "--chunks", .aliases = "", .argument = "N", .fallback = "0", .verbs = CLI_CALIB,
     .kind = CLI_INTEGER, .offset = AT(chunks), .low = -1, .high = 1 << 28,
     .help = "read at most so many windows of -c tokens; 0 or -1: all that the text has"},
    {.name = "--system-prompt", .aliases = "-sys --system", .argument = "TEXT", .fallback = "none",
     .verbs = CLI_RUN, .kind = CLI_TEXT, .offset = AT(system_prompt),
     .help = "a system message before the conversation"},
    {.name = "--conversation", .aliases = "-cnv --interactive -i", .verbs = CLI_RUN,
     .kind = CLI_FLAG, .offset = AT(chat), .set_to = 1,
     .help = "chat, also after -p and also when input is piped (then each line is a turn)"},
    {.name = "--single-turn", .aliases = "-st", .verbs = CLI_RUN, .kind = CLI_FLAG,
     .offset = AT(single_turn), .set_to = 1, .help = "leave after the first answer"},
    {.name = "--raw", .aliases = "-no-cnv --no-conversation",
     .verbs = CLI_RUN | CLI_PPL, .kind = CLI_FLAG, .offset = AT(raw), .set_to = 1,
     .help = "continue the text, or each prompt of --loops, as it is, without a chat template"},
    {.name = "--chat-template", .aliases = "", .argument = "NAME", .fallback = "the model's own",
     .verbs = CLI_RUN | CLI_PPL, .kind = CLI_TEXT, .offset = AT(chat_template),
     .help = "use this built-in template; 'sluice help run' lists them"},
    {.name = "--think", .aliases = "-rea --reasoning", .argument = "MODE", .fallback = "auto",
     .verbs = CLI_RUN, .kind = CLI_CHOICE, .offset = AT(think), .choices = thinks,
     .help = "thinking before the answer: on, off, as the template does by itself (auto), or on "
             "and printed with the answer (show); a terminal shows thoughts anyway"},
    {.name = "--think", .aliases = "-rea --reasoning", .argument = "MODE", .fallback = "auto",
     .verbs = CLI_PPL, .kind = CLI_CHOICE, .offset = AT(think), .choices = thinks_of_loops,
     .help = "whether the template asks for thinking before the answers of --loops"},
    {.name = "--no-escape", .aliases = "", .verbs = CLI_RUN, .kind = CLI_FLAG, .offset = AT(escape),
     .set_to = 0, .help = "take \\n and the like in -p, -sys and --stop as they are written"},
    {.name = "--escape", .aliases = "-e", .verbs = CLI_RUN, .kind = CLI_FLAG, .offset = AT(escape),
     .set_to = 1, .help = "read \\n \\t \\r \\\\ in -p, -sys and --stop as escapes; the default"},

    {.name = "--predict", .aliases = "-n --n-predict", .argument = "N", .unit = "tokens",
     .fallback = "2048", .verbs = CLI_RUN, .kind = CLI_INTEGER, .offset = AT(predict), .low = -1,
     .high = 1 << 22,
     .help = "most tokens of an answer; -1: as many as the context holds; 0: only read the prompt"},
    {.name = "--seed", .aliases = "-s", .argument = "N", .fallback = "-1", .verbs = CLI_RUN,
     .kind = CLI_INTEGER, .offset = AT(seed), .low = -1, .high = INT64_MAX,
     .help = "same seed, same text; -1: a new one each time, printed with -v and --json"},
    {.name = "--temp", .aliases = "--temperature", .argument = "T", .fallback = "0.8",
     .verbs = CLI_RUN, .kind = CLI_NUMBER, .offset = AT(temperature), .low_f = 0, .high_f = 100,
     .help = "randomness; 0: always the most likely token"},
    {.name = "--top-k", .aliases = "", .argument = "N", .unit = "tokens", .fallback = "40",
     .verbs = CLI_RUN, .kind = CLI_INTEGER, .offset = AT(top_k), .low = 0, .high = 1 << 22,
     .help = "choose among the N most likely tokens; 0: off"},
    {.name = "--top-p", .aliases = "", .argument = "P", .fallback = "0.95", .verbs = CLI_RUN,
     .kind = CLI_NUMBER, .offset = AT(top_p), .low_f = 0, .high_f = 1,
     .help = "choose among the most likely tokens that reach this probability together; 1: off"},
    {.name = "--min-p", .aliases = "", .argument = "P", .fallback = "0.05", .verbs = CLI_RUN,
     .kind = CLI_NUMBER, .offset = AT(min_p), .low_f = 0, .high_f = 1,
     .help = "drop tokens below this fraction of the best one's probability; 0: off"},
    {.name = "--repeat-penalty", .aliases = "", .argument = "F", .fallback = "1", .verbs = CLI_RUN,
     .kind = CLI_NUMBER, .offset = AT(repeat_penalty), .low_f = 0.01, .high_f = 100,
     .help = "make recent tokens less likely by this factor; 1: off"},
    {.name = "--repeat-last-n", .aliases = "", .argument = "N", .unit = "tokens", .fallback = "64",
     .verbs = CLI_RUN, .kind = CLI_INTEGER, .offset = AT(repeat_last), .low = -1, .high = 1 << 22,
     .help = "how many tokens count as recent; -1: all; 0: off"},
    {.name = "--stop", .aliases = "-r --reverse-prompt", .argument = "TEXT", .fallback = "none",
     .verbs = CLI_RUN, .kind = CLI_STOPS, .offset = AT(stop),
     .help = "end the answer before this text; may be given up to 64 times"},
    {.name = "--ignore-eos", .aliases = "", .verbs = CLI_RUN, .kind = CLI_FLAG,
     .offset = AT(ignore_end), .set_to = 1, .help = "go on after a token that ends the answer"},
    {.name = "--special", .aliases = "", .verbs = CLI_RUN, .kind = CLI_FLAG, .offset = AT(special),
     .set_to = 1, .help = "print control tokens too; with --raw, also read them in the prompt"},

    {.name = "--tokens", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_EVAL | CLI_BENCH_MODEL, .kind = CLI_TEXT, .offset = AT(tokens),
     .help = "token ids, decimal, separated by white space; - is standard input. No BOS is added"},
    {.name = "--logits", .aliases = "", .argument = "FILE", .fallback = "none", .verbs = CLI_EVAL,
     .kind = CLI_TEXT, .offset = AT(logits),
     .help = "write the logits of every position: float32, little-endian, [tokens][vocabulary]"},
    {.name = "--greedy", .aliases = "", .argument = "N", .unit = "tokens", .fallback = "0",
     .verbs = CLI_EVAL, .kind = CLI_INTEGER, .offset = AT(greedy), .low = 0, .high = 1 << 22,
     .help = "then continue with the N most likely tokens, end tokens included"},
    {.name = "--greedy-out", .aliases = "", .argument = "FILE", .fallback = "standard output",
     .verbs = CLI_EVAL, .kind = CLI_TEXT, .offset = AT(greedy_out),
     .help = "where the ids of --greedy go, one a line"},
    {.name = "--nll", .aliases = "", .verbs = CLI_EVAL, .kind = CLI_FLAG, .offset = AT(nll),
     .set_to = 1, .help = "print the mean negative log-likelihood of the tokens"},

    {.name = "--tokens", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_PPL | CLI_DIFF, .kind = CLI_TEXT, .offset = AT(tokens),
     .help = "token ids to score instead of a text, decimal, separated by white space; - is "
             "standard input"},
    {.name = "--stride", .aliases = "", .argument = "N", .unit = "tokens", .fallback = "0",
     .verbs = CLI_PPL | CLI_DIFF, .kind = CLI_INTEGER, .offset = AT(stride), .low = 0,
     .high = 1 << 22,
     .help = "from one window to the next: each token is scored once, given at least -c less N "
             "tokens before it; 0: half of -c"},
    {.name = "--llama-cpp", .aliases = "", .verbs = CLI_PPL | CLI_DIFF, .kind = CLI_FLAG,
     .offset = AT(llama_cpp), .set_to = 1,
     .help = "score as llama.cpp's perplexity tool does: chunks of -c tokens that do not overlap, "
             "of each the second half"},
    {.name = "--no-bos", .aliases = "", .verbs = CLI_PPL | CLI_DIFF, .kind = CLI_FLAG,
     .offset = AT(bos), .set_to = 0,
     .help = "do not begin windows with BOS where the vocabulary asks for it"},
    {.name = "--save-logits", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_PPL, .kind = CLI_TEXT, .offset = AT(save_logits),
     .help = "write a reference run: tokens, method, and what the model expected before each "
             "scored token, about 2 bytes for each token of the vocabulary"},
    {.name = "--kl", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_PPL | CLI_DIFF, .kind = CLI_TEXT, .offset = AT(kl),
     .help = "compare with the reference run in FILE, on its tokens and by its method"},
    {.name = "--loops", .aliases = "", .argument = "FILE", .fallback = "none", .verbs = CLI_PPL,
     .kind = CLI_TEXT, .offset = AT(loops),
     .help = "answer each line of FILE with the most likely tokens, and count the answers that "
             "fall into repetition"},
    {.name = "--predict", .aliases = "-n --n-predict", .argument = "N", .unit = "tokens",
     .fallback = "256", .verbs = CLI_PPL, .kind = CLI_INTEGER, .offset = AT(loop_tokens),
     .low = 64, .high = 1 << 22, .help = "most tokens of an answer to --loops"},

    {.name = "--predict", .aliases = "-n --n-predict", .argument = "N", .unit = "tokens",
     .fallback = "0", .verbs = CLI_BENCH_MODEL, .kind = CLI_INTEGER, .offset = AT(bench_tokens),
     .low = 0, .high = 1 << 22,
     .help = "how many are measured; 0: 200 for decode, 512 for prefill"},
    {.name = "--warm", .aliases = "", .argument = "N", .unit = "tokens", .fallback = "0",
     .verbs = CLI_BENCH_MODEL, .kind = CLI_INTEGER, .offset = AT(warm), .low = 0, .high = 1 << 22,
     .help = "tokens evaluated before those that are measured"},
    {.name = "--routing", .aliases = "", .argument = "TRACE", .fallback = "none",
     .verbs = CLI_BENCH_MODEL, .kind = CLI_TEXT, .offset = AT(routing),
     .help = "take experts from recorded routing, not from the model's router: what comes out is "
             "no answer, how fast it comes is that of the text it was recorded from"},
    {.name = "--full", .aliases = "", .verbs = CLI_BENCH, .kind = CLI_FLAG, .offset = AT(full),
     .set_to = 1, .help = "also other shapes, and 4, 16 and 64 tokens at once; some minutes"},

    {.name = "--meta", .aliases = "", .verbs = CLI_INFO, .kind = CLI_FLAG, .offset = AT(list_meta),
     .set_to = 1, .help = "list all metadata"},
    {.name = "--tensors", .aliases = "", .verbs = CLI_INFO, .kind = CLI_FLAG,
     .offset = AT(list_tensors), .set_to = 1, .help = "list all tensors"},

    {.name = "--make-sums", .aliases = "", .verbs = CLI_VERIFY, .kind = CLI_FLAG,
     .offset = AT(make_sums), .set_to = 1,
     .help = "where no sums file fits the model, make one instead of failing"},
    {.name = "--deep", .aliases = "", .verbs = CLI_VERIFY, .kind = CLI_FLAG, .offset = AT(deep),
     .set_to = 1,
     .help = "then decode every weight, and look for values that are no numbers (NaN, infinite); "
             "of folders, too"},
    {.name = "--swap-layers", .aliases = "", .verbs = CLI_DIFF, .kind = CLI_FLAG,
     .offset = AT(swap_layers), .set_to = 1,
     .help = "put one layer at a time of A into B, and rank layers by how much nearer to A the "
             "predictions come; needs a text (-f)"},
    {.name = "--lines", .aliases = "", .verbs = CLI_TOKENIZE, .kind = CLI_FLAG, .offset = AT(lines),
     .set_to = 1, .help = "each line by itself, without its line end; one line of output for each"},
    {.name = "--escape", .aliases = "-e", .verbs = CLI_TOKENIZE, .kind = CLI_FLAG,
     .offset = AT(escape_lines), .set_to = 1,
     .help = "read \\n \\t \\r \\\\ in the text as escapes; with --decode, write them"},
    {.name = "--special", .aliases = "", .verbs = CLI_TOKENIZE, .kind = CLI_FLAG,
     .offset = AT(special), .set_to = 1,
     .help = "text of control tokens becomes their id; with --decode, they are printed"},
    {.name = "--no-bos", .aliases = "", .verbs = CLI_TOKENIZE, .kind = CLI_FLAG, .offset = AT(bos),
     .set_to = 0, .help = "do not add BOS (and EOS) where the vocabulary asks for it"},
    {.name = "--decode", .aliases = "", .verbs = CLI_TOKENIZE, .kind = CLI_FLAG,
     .offset = AT(decode), .set_to = 1, .help = "the way back: ids in, text out"},

    {.name = "--ram", .aliases = "", .argument = "SIZE", .unit = "bytes", .fallback = "no limit",
     .verbs = PLAN, .kind = CLI_SIZE, .offset = AT(ram_bytes), .low = 1 << 20, .takes_auto = 1,
     .help = "memory for the whole process, such as 4G or 512M (powers of 1024); auto: what is "
             "available less a reserve. Experts that do not fit are read when they are needed; "
             "what cannot fit is refused"},
    {.name = "--slots", .aliases = "", .argument = "N", .fallback = "0", .verbs = PLAN,
     .kind = CLI_INTEGER, .offset = AT(slots), .low = 0, .high = 1 << 19,
     .help = "experts kept in memory, all layers together; 0: as many as fit into --ram"},
    {.name = "--io", .aliases = "", .argument = "NAME", .fallback = "auto", .verbs = PLAN,
     .kind = CLI_CHOICE, .offset = AT(io), .choices = ios,
     .help = "how experts are read: io_uring or a pool of threads; mmap is there to compare with, "
             "and outside of --ram"},
    {.name = "--cache-policy", .aliases = "", .argument = "NAME", .fallback = "recall",
     .verbs = COMPUTE, .kind = CLI_CHOICE, .offset = AT(cache_policy), .choices = policies,
     .help = "which expert goes when a slot is wanted"},
    {.name = "--prefetch", .aliases = "", .argument = "MODE", .fallback = "auto", .verbs = COMPUTE,
     .kind = CLI_CHOICE, .offset = AT(prefetch), .choices = prefetches,
     .help = "reading experts ahead on a guess; auto: only while it pays"},
    {.name = "--hot-list", .aliases = "", .argument = "FILE", .fallback = "none", .verbs = COMPUTE,
     .kind = CLI_TEXT, .offset = AT(hot_list),
     .help = "remember the most used experts in FILE, and read them at the start of the next run"},
    {.name = "--trace", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_RUN | CLI_EVAL | CLI_PPL | CLI_BENCH_MODEL, .kind = CLI_TEXT, .offset = AT(trace),
     .help = "record which experts are chosen, what the cache has of them, and what they take, to "
             "FILE, for sluice trace"},
    {.name = "--experts-used", .aliases = "", .argument = "N", .fallback = "0", .verbs = PLAN,
     .kind = CLI_INTEGER, .offset = AT(experts_used), .low = 0, .high = 64,
     .help = "lossy: use at most N experts a token and layer; 0: as many as the model says"},
    {.name = "--sticky", .aliases = "", .argument = "D[:N]", .fallback = "0", .verbs = PLAN,
     .kind = CLI_STICKY, .offset = AT(sticky), .low = 0, .high = 1024, .low_f = 0, .high_f = 1,
     .help = "lossy: prefer, by D of the router's range, the N experts a layer that the text has "
             "used most of late (without N a quarter of them); the answer depends on the text "
             "alone; 0: off"},
    {.name = "--drop-cold", .aliases = "", .argument = "F", .fallback = "0", .verbs = COMPUTE,
     .kind = CLI_NUMBER, .offset = AT(drop_cold), .low_f = 0, .high_f = 1,
     .help = "lossy: leave out an expert that is not in memory where its weight is below F of an "
             "equal share; the answer then depends on what is cached; 0: off"},
    {.name = "--ctx-size", .aliases = "-c --ctx --n-ctx", .argument = "N", .unit = "tokens",
     .fallback = "0", .verbs = PLAN & ~(unsigned)(CLI_PPL | CLI_CALIB | CLI_DIFF),
     .kind = CLI_INTEGER,
     .offset = AT(ctx_size), .low = -1, .high = 1 << 22,
     .help = "context; 0 or -1: the model's own (at most 4096 where experts do not fit into "
             "memory), or what fits into --ram"},
    {.name = "--ctx-size", .aliases = "-c --ctx --n-ctx", .argument = "N", .unit = "tokens",
     .fallback = "0", .verbs = CLI_PPL | CLI_DIFF, .kind = CLI_INTEGER, .offset = AT(window),
     .low = 0, .high = 1 << 22, .help = "tokens of a window; 0: 512, or those of --kl's file"},
    {.name = "--ctx-size", .aliases = "-c --ctx --n-ctx", .argument = "N", .unit = "tokens",
     .fallback = "0", .verbs = CLI_CALIB, .kind = CLI_INTEGER, .offset = AT(window), .low = 0,
     .high = 1 << 22, .help = "tokens of a window, each read from an empty context; 0: 512"},
    {.name = "--kv", .aliases = "", .argument = "KIND", .fallback = "q8", .verbs = PLAN,
     .kind = CLI_CHOICE, .offset = AT(kv), .choices = kv_kinds,
     .help = "how keys and values are kept"},
    {.name = "--cache-type-k", .aliases = "-ctk", .argument = "KIND", .fallback = "that of --kv",
     .verbs = PLAN, .kind = CLI_CHOICE, .offset = AT(cache_k), .choices = kv_kinds,
     .help = "llama.cpp's spelling of --kv; needs the same -ctv"},
    {.name = "--cache-type-v", .aliases = "-ctv", .argument = "KIND", .fallback = "that of --kv",
     .verbs = PLAN, .kind = CLI_CHOICE, .offset = AT(cache_v), .choices = kv_kinds,
     .help = "llama.cpp's spelling of --kv; needs the same -ctk"},
    {.name = "--threads", .aliases = "-t", .argument = "N", .fallback = "0",
     .verbs = PLAN | CLI_VERIFY | CLI_PACK | CLI_BENCH, .kind = CLI_INTEGER,
     .offset = AT(threads), .low = -1, .high = 64,
     .help = "compute threads; 0 or -1: the fastest cores that the process may use"},
    {.name = "--chunk", .aliases = "-b --batch-size -ub --ubatch-size", .argument = "N",
     .unit = "tokens", .fallback = "0", .verbs = PLAN, .kind = CLI_INTEGER, .offset = AT(chunk),
     .low = 0, .high = 512, .clamps = 1,
     .help = "prompt tokens that go through a layer together; 0: chosen by the engine; more than "
             "512 is taken as 512"},
    {.name = "--isa", .aliases = "", .argument = "NAME", .fallback = "auto",
     .verbs = PLAN | CLI_BENCH,
     .kind = CLI_CHOICE, .offset = AT(isa), .choices = isas,
     .help = "instruction set; the result is the same for each"},

    {.name = "--from", .aliases = "", .argument = "FORM", .fallback = "told by its content",
     .verbs = CLI_TRACE_CONVERT, .kind = CLI_TEXT, .offset = AT(from),
     .help = "form of what is read: trace, csv, jsonl, text or bmoe"},
    {.name = "--to", .aliases = "", .argument = "FORM", .fallback = "told by the name",
     .verbs = CLI_TRACE_CONVERT, .kind = CLI_TEXT, .offset = AT(to),
     .help = "form of what is written: trace, csv, jsonl, text or bmoe"},
    {.name = "--cache", .aliases = "", .argument = "SIZES",
     .fallback = "recorded,10%,20%,30%,50%", .verbs = CLI_TRACE_REPLAY, .kind = CLI_TEXT,
     .offset = AT(cache_sizes),
     .help = "cache sizes, separated by commas: percent of the experts (20%), bytes (2G), slots "
             "(600), or recorded, where the trace says how many there were"},
    {.name = "--policy", .aliases = "", .argument = "NAMES", .fallback = "default,lru,belady",
     .verbs = CLI_TRACE_REPLAY, .kind = CLI_TEXT, .offset = AT(policies),
     .help = "cache policies, separated by commas: default, recall, two_rate, lru, lfu, decay, "
             "belady (the optimum, which knows the future), or all"},
    {.name = "--pool", .aliases = "", .argument = "KIND", .fallback = "one",
     .verbs = CLI_TRACE_REPLAY, .kind = CLI_CHOICE, .offset = AT(pool), .choices = pools,
     .help = "one pool of slots for all layers, as the engine has, or one for each layer"},
    {.name = "--bits", .aliases = "", .argument = "X", .unit = "bits a weight",
     .fallback = "as recorded", .verbs = CLI_TRACE_REPLAY, .kind = CLI_NUMBER,
     .offset = AT(expert_bits), .low_f = 0.5, .high_f = 32,
     .help = "as if an expert's weights had so many bits: more of them fit into as many bytes"},
    {.name = "--no-prompt", .aliases = "", .verbs = CLI_TRACE_REPLAY, .kind = CLI_FLAG,
     .offset = AT(no_prompt), .set_to = 1,
     .help = "leave prompts out; they do not even warm the cache"},
    {.name = "--layers", .aliases = "", .verbs = CLI_TRACE_REPLAY, .kind = CLI_FLAG,
     .offset = AT(by_layer), .set_to = 1, .help = "print hits by layer too"},
    {.name = "--predict", .aliases = "", .verbs = CLI_TRACE_REPLAY, .kind = CLI_FLAG,
     .offset = AT(predictors), .set_to = 1,
     .help = "how well coming experts can be predicted: recall and precision by budget and layers "
             "ahead"},
    {.name = "--drive", .aliases = "", .argument = "SIZE", .unit = "bytes a second",
     .fallback = "as recorded", .verbs = CLI_TRACE_REPLAY | CLI_TRACE_REPORT, .kind = CLI_SIZE,
     .offset = AT(drive_bytes), .low = 1 << 20,
     .help = "how fast the drive reads experts, for estimating tokens a second"},
    {.name = "--compute", .aliases = "", .argument = "MS", .unit = "milliseconds",
     .fallback = "as recorded", .verbs = CLI_TRACE_REPLAY | CLI_TRACE_REPORT, .kind = CLI_NUMBER,
     .offset = AT(compute_ms), .low_f = 0.001, .high_f = 1e6,
     .help = "how long computing a token takes when nothing has to be read, for the same estimate"},
    {.name = "--output", .aliases = "-o", .argument = "FILE.html", .fallback = "none",
     .verbs = CLI_TRACE_REPORT, .kind = CLI_TEXT, .offset = AT(output),
     .help = "where the page goes: one file that needs no network"},
    {.name = "--csv", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_TRACE_REPORT, .kind = CLI_TEXT, .offset = AT(csv),
     .help = "write the numbers of the page as CSV, too; - is standard output"},
    {.name = "--perfetto", .aliases = "", .argument = "FILE", .fallback = "none",
     .verbs = CLI_TRACE_REPORT, .kind = CLI_TEXT, .offset = AT(perfetto),
     .help = "write the timeline as trace events for ui.perfetto.dev or chrome://tracing"},

    {.name = "--json", .aliases = "", .verbs = CLI_EVERY, .kind = CLI_FLAG, .offset = AT(json),
     .set_to = 1, .help = "print the result as JSON (docs/JSON.md)"},
    {.name = "--progress", .aliases = "",
     .verbs = COMPUTE | CLI_VERIFY | CLI_PACK | CLI_TRACE,
     .kind = CLI_FLAG, .offset = AT(progress), .set_to = 1,
     .help = "show progress also where standard error is not a terminal"},
    {.name = "--top", .aliases = "", .verbs = CLI_RUN, .kind = CLI_FLAG, .offset = AT(top),
     .set_to = 1,
     .help = "show speed, hits, reads, memory and layers in the terminal's lower rows while an "
             "answer is made"},
    {.name = "--verbose", .aliases = "-v", .verbs = CLI_EVERY, .kind = CLI_FLAG,
     .offset = AT(verbose), .set_to = 1,
     .help = "print the engine's log and the seed to standard error"},
    {.name = "--quiet", .aliases = "-q --log-disable", .verbs = CLI_EVERY, .kind = CLI_FLAG,
     .offset = AT(quiet), .set_to = 1, .help = "print nothing but the answer and errors"},
    {.name = "--help", .aliases = "-h --usage", .verbs = CLI_EVERY, .kind = CLI_FLAG,
     .offset = AT(help), .set_to = 1, .help = "print this help"},
    {.name = "--version", .aliases = "-V", .verbs = CLI_EVERY, .kind = CLI_FLAG,
     .offset = AT(version), .set_to = 1,
     .help = "print the version and a line about build and machine"},
    {.name = "--list-archs", .aliases = "", .verbs = CLI_EVERY, .kind = CLI_FLAG,
     .offset = AT(list_archs), .set_to = 1, .help = "print the architectures that can be run"},
    /* clang-format on */
};

const struct cli_option *cli_option_at(size_t index)
{
    return index < sizeof table / sizeof table[0] ? &table[index] : NULL;
}

const char *cli_think_name(int think)
{
    const struct cli_choice *c = thinks;
    while (c->word && c->value != think) c++;
    return c->word;
}

int cli_think_of(const char *word)
{
    const struct cli_choice *c = thinks;
    while (c->word && strcmp(c->word, word) != 0) c++;
    return c->word ? c->value : -1;
}

/* Whether word is one of the words of list, which are separated by a space. */
static int has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; n && (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return 1;
    return 0;
}

const struct cli_option *cli_option_find(const char *name, unsigned verb)
{
    const struct cli_option *option;
    for (size_t i = 0; (option = cli_option_at(i)); i++)
        if ((option->verbs & verb) &&
            (strcmp(option->name, name) == 0 || has_word(option->aliases, name)))
            return option;
    return NULL;
}

const char *cli_option_range(const struct cli_option *option, char *text)
{
    size_t at = 0;
    text[0] = 0;
    switch (option->kind) {
    case CLI_INTEGER:
        if (option->high == INT64_MAX)
            (void)snprintf(text, CLI_RANGE_TEXT, "%lld to 2^63-1", (long long)option->low);
        else
            (void)snprintf(text, CLI_RANGE_TEXT, "%lld to %lld", (long long)option->low,
                           (long long)option->high);
        break;
    case CLI_NUMBER:
        (void)snprintf(text, CLI_RANGE_TEXT, "%g to %g", option->low_f, option->high_f);
        break;
    case CLI_STICKY:
        (void)snprintf(text, CLI_RANGE_TEXT, "D %g to %g, N 1 to %lld", option->low_f,
                       option->high_f, (long long)option->high);
        break;
    case CLI_SIZE:
        (void)snprintf(text, CLI_RANGE_TEXT, "at least %lld%c%s",
                       (long long)option->low >> (option->low < 1 << 20 ? 10 : 20),
                       option->low < 1 << 20 ? 'K' : 'M', option->takes_auto ? ", or auto" : "");
        break;
    case CLI_CHOICE:
        for (const struct cli_choice *c = option->choices; c->word; c++) {
            if (c > option->choices && c->value == c[-1].value) continue;
            at += (size_t)snprintf(text + at, CLI_RANGE_TEXT - at, "%s%s", at ? ", " : "", c->word);
        }
        break;
    case CLI_FLAG:
    case CLI_TEXT:
    case CLI_STOPS:
        break;
    }
    return text;
}
