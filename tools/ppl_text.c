/* Tokens and method of ppl; see ppl_text.h. */
#include "tools/ppl_text.h"

#include <string.h>

#include "include/sluice.h"
#include "tools/interrupt.h"
#include "tools/open_model.h"
#include "tools/report.h"

/* The vocabulary of the model, open while the text is read. */
struct source {
    const struct cli_args *args;
    sluice_model *vocabulary;
    uint32_t n_vocab;
    uint64_t vocabulary_sum;
    int begins; /* the vocabulary begins texts with BOS */
    int32_t bos;
    const char *name;    /* of the text */
    uint64_t text_bytes; /* 0: it came as ids */
};

static uint64_t sum_vocabulary(const struct source *source)
{
    uint64_t sum = 0;
    size_t n;
    for (uint32_t id = 0; id < source->n_vocab; id++) {
        const char *piece = sluice_token_piece(source->vocabulary, (int32_t)id, 1, &n);
        sum = cli_reference_sum(sum, n);
        for (size_t i = 0; i < n; i++) sum = cli_reference_sum(sum, (unsigned char)piece[i]);
    }
    return sum;
}

static int open_vocabulary(struct source *source)
{
    struct cli_args args = *source->args;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error error;
    int32_t first[2];
    sluice_ids ids = {first, 2, 0};
    args.ram_bytes = 0; /* whether the model fits is said later, with the plan */
    args.hot_list = NULL;
    int code = cli_vocabulary_open(&args, &source->vocabulary);
    if (code) return code;
    sluice_model_get_info(source->vocabulary, &info);
    source->n_vocab = info.n_vocab;
    source->vocabulary_sum = sum_vocabulary(source);
    source->bos = sluice_token_bos(source->vocabulary);
    if (sluice_tokenize(source->vocabulary, "", 0, SLUICE_TOKENIZE_BOS, &ids, &error))
        return cli_fail(&error);
    source->begins = source->bos >= 0 && ids.count > 0 && first[0] == source->bos;
    return CLI_EXIT_OK;
}

static int tokenize(const struct source *source, const struct cli_text *bytes, struct cli_ids *ids)
{
    sluice_error error;
    sluice_err err = SLUICE_E_LIMIT;
    sluice_ids out = {NULL, 0, bytes->size + 8}; /* a token has at least a byte, nearly always */
    for (int attempt = 0; attempt < 2 && err == SLUICE_E_LIMIT; attempt++) {
        cli_ids_reserve(ids, out.count);
        out = (sluice_ids){ids->ids, ids->capacity, 0};
        err = sluice_tokenize(source->vocabulary, bytes->bytes, bytes->size, 0, &out, &error);
    }
    if (err) return cli_fail(&error);
    ids->count = out.count;
    return CLI_EXIT_OK;
}

/* Ids as they were given, but for a BOS at their begin, which windows bring along. */
static int parse(const struct source *source, const struct cli_text *bytes, struct cli_ids *ids)
{
    if (cli_ids_parse(ids, bytes->bytes, bytes->size, source->name)) return CLI_EXIT_FAILURE;
    for (size_t i = 0; i < ids->count; i++)
        if ((uint32_t)ids->ids[i] >= source->n_vocab) {
            cli_error("%s: found token id %d, wanted 0 to %u", source->name, (int)ids->ids[i],
                      (unsigned)source->n_vocab - 1);
            return CLI_EXIT_FAILURE;
        }
    if (source->begins && source->args->bos && ids->count && ids->ids[0] == source->bos)
        memmove(ids->ids, ids->ids + 1, --ids->count * sizeof ids->ids[0]);
    return CLI_EXIT_OK;
}

/* The tokens that args name. Returns an exit code. */
static int read_ids(struct source *source, struct cli_ids *ids)
{
    const struct cli_args *args = source->args;
    const char *path = args->tokens ? args->tokens : args->file;
    struct cli_text bytes = {0};
    int code;
    source->name = strcmp(path, "-") == 0 ? "standard input" : path;
    if (cli_text_read(&bytes, path))
        code = cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_FAILURE;
    else
        code = args->tokens ? parse(source, &bytes, ids) : tokenize(source, &bytes, ids);
    source->text_bytes = args->tokens ? 0 : bytes.size;
    cli_text_free(&bytes);
    return code;
}

static uint64_t piece_bytes(const struct source *source, const int32_t *ids, size_t n)
{
    uint64_t sum = 0;
    size_t bytes;
    for (size_t i = 0; i < n; i++) {
        (void)sluice_token_piece(source->vocabulary, ids[i], 0, &bytes);
        sum += bytes;
    }
    return sum;
}

/* Bytes that the scored tokens stand for: those of the text, or of all tokens, less those of the
 * tokens that are not scored. */
static uint64_t scored_bytes(const struct source *source, const struct cli_reference_head *head)
{
    size_t n = head->ids.count, windows = cli_method_windows(&head->method, n);
    const int32_t *ids = head->ids.ids;
    uint64_t all = piece_bytes(source, ids, n), scored = 0;
    for (size_t i = 0; i < windows; i++) {
        struct cli_window w = cli_method_window(&head->method, n, i);
        scored += piece_bytes(source, ids + w.scored, w.end - w.scored);
    }
    uint64_t whole = source->text_bytes ? source->text_bytes : all;
    return whole > all - scored ? whole - (all - scored) : 0;
}

static struct cli_method method_of(const struct cli_args *args, int bos)
{
    uint32_t window = args->window ? (uint32_t)args->window : CLI_PPL_WINDOW;
    uint32_t stride = args->llama_cpp ? window : args->stride ? (uint32_t)args->stride : window / 2;
    return (struct cli_method){window, stride, args->llama_cpp, bos && args->bos};
}

static int check_length(const struct source *source, const struct cli_reference_head *head)
{
    const struct cli_method *method = &head->method;
    size_t found = head->ids.count, least = cli_method_least(method), bos = method->bos ? 1 : 0;
    if (found >= least) return CLI_EXIT_OK;
    if (method->llama_cpp)
        cli_error("%s: found %zu tokens, wanted at least %zu: two windows of %u (-c)%s",
                  source->name, found, least, (unsigned)method->window,
                  bos ? ", BOS included" : "");
    else
        cli_error("%s: found %zu token%s, wanted at least %zu", source->name, found,
                  found == 1 ? "" : "s", least);
    return CLI_EXIT_FAILURE;
}

/* ---- against a reference run -------------------------------------------------------------- */

static int check_ids(const struct source *source, const struct cli_reference_reader *reference,
                     const struct cli_ids *mine)
{
    const struct cli_ids *theirs = &reference->head.ids;
    size_t i = 0;
    while (i < mine->count && i < theirs->count && mine->ids[i] == theirs->ids[i]) i++;
    if (i == mine->count && i == theirs->count) return CLI_EXIT_OK;
    cli_error("%s: made from another text than %s: %zu tokens instead of %zu, the same up to "
              "token %zu; leave the text out, the reference run holds its own",
              reference->name, source->name, theirs->count, mine->count, i);
    return CLI_EXIT_FAILURE;
}

/* The first thing that args ask for and the reference run did otherwise, or NULL. */
static const char *contradiction(const struct cli_args *args, const struct cli_method *method)
{
    if (args->window && args->window != (int64_t)method->window) return "-c";
    if (args->llama_cpp && !method->llama_cpp) return "--llama-cpp";
    if (args->stride && args->stride != (int64_t)method->stride) return "--stride";
    if (!args->bos && method->bos) return "--no-bos";
    return NULL;
}

static int check_reference(const struct source *source,
                           const struct cli_reference_reader *reference)
{
    const struct cli_reference_head *head = &reference->head;
    const char *option = contradiction(source->args, &head->method);
    char words[CLI_METHOD_TEXT];
    if (head->n_vocab != source->n_vocab)
        cli_error("%s: made with a vocabulary of %u tokens, this model has %u", reference->name,
                  (unsigned)head->n_vocab, (unsigned)source->n_vocab);
    else if (head->method.bos && source->bos < 0)
        cli_error("%s: its windows begin with BOS, of which this model has none", reference->name);
    else if (option)
        cli_error("%s was made otherwise than %s says: %s; leave the option out", reference->name,
                  option, cli_method_text(&head->method, head->ids.count, words));
    else
        return CLI_EXIT_OK;
    return CLI_EXIT_FAILURE;
}

static int take_reference(struct source *source, const struct cli_reference_reader *reference,
                          struct cli_reference_head *head)
{
    const struct cli_args *args = source->args;
    struct cli_ids mine = {0};
    int code = check_reference(source, reference);
    if (code == 0 && (args->file || args->tokens)) {
        code = read_ids(source, &mine);
        if (code == 0) code = check_ids(source, reference, &mine);
    }
    cli_ids_free(&mine);
    if (code) return code;
    if (reference->head.vocabulary != source->vocabulary_sum)
        cli_say(
            "warning: %s: made with a vocabulary of the same size and other texts; where tokens "
            "mean something else, the comparison means nothing",
            reference->name);
    head->method = reference->head.method;
    head->text_bytes = reference->head.text_bytes;
    for (size_t i = 0; i < reference->head.ids.count; i++)
        cli_ids_push(&head->ids, reference->head.ids.ids[i]);
    return CLI_EXIT_OK;
}

static int take_text(struct source *source, struct cli_reference_head *head)
{
    int code = read_ids(source, &head->ids);
    if (code) return code;
    head->method = method_of(source->args, source->begins);
    code = check_length(source, head);
    if (code == 0) head->text_bytes = scored_bytes(source, head);
    return code;
}

int cli_ppl_text_read(struct cli_ppl_text *text, const struct cli_args *args,
                      const struct cli_reference_reader *reference)
{
    struct source source = {.args = args};
    int code = open_vocabulary(&source);
    if (code == 0)
        code = reference ? take_reference(&source, reference, &text->head)
                         : take_text(&source, &text->head);
    text->head.n_vocab = source.n_vocab;
    text->head.vocabulary = source.vocabulary_sum;
    text->bos = source.bos;
    sluice_model_close(source.vocabulary);
    return code;
}

void cli_ppl_text_free(struct cli_ppl_text *text)
{
    cli_ids_free(&text->head.ids);
    memset(text, 0, sizeof *text);
}
