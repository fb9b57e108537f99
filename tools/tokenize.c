/* sluice tokenize: text to token ids on one line, and back with --decode.
 *
 * The text is taken byte for byte, a final line end included; --lines takes each line by itself,
 * without its end. Text of control tokens stays text unless --special is given. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <unistd.h>

#include "tools/interrupt.h"
#include "tools/json_out.h"
#include "tools/open_model.h"
#include "tools/report.h"
#include "tools/text.h"
#include "tools/verbs.h"

struct job {
    const struct cli_args *args;
    const sluice_model *model;
    sluice_decoder *decoder;
    uint32_t n_vocab;
    struct cli_ids ids;   /* of the current text */
    struct cli_text text; /* scratch: decoded or escaped */
};

static int print_ids(const struct job *job)
{
    const struct cli_ids *ids = &job->ids;
    if (job->args->json) {
        struct cli_json *root = cli_json_object();
        cli_json_integer(root, "count", ids->count);
        cli_json_ids(root, "ids", ids->ids, ids->count);
        return cli_json_finish(root, 0);
    }
    for (size_t i = 0; i < ids->count; i++)
        if (cli_printf("%s%d", i ? " " : "", (int)ids->ids[i])) return -1;
    return cli_put("\n", 1);
}

/* One text to ids. bytes may be changed. Returns an exit code. */
static int encode(struct job *job, char *bytes, size_t n)
{
    const struct cli_args *args = job->args;
    sluice_error error;
    sluice_err err = SLUICE_E_LIMIT;
    uint32_t flags = (args->special ? (uint32_t)SLUICE_TOKENIZE_SPECIAL : 0u) |
                     (args->bos ? (uint32_t)SLUICE_TOKENIZE_BOS : 0u);
    if (args->escape_lines) n = cli_unescape(bytes, n);
    sluice_ids out = {NULL, 0, n + 8}; /* a token has at least a byte, nearly always */
    for (int attempt = 0; attempt < 2 && err == SLUICE_E_LIMIT; attempt++) {
        cli_ids_reserve(&job->ids, out.count);
        out = (sluice_ids){job->ids.ids, job->ids.capacity, 0};
        err = sluice_tokenize(job->model, bytes, n, flags, &out, &error);
    }
    if (err) return cli_fail(&error);
    job->ids.count = out.count;
    return print_ids(job) ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}

static int print_text(const struct job *job, const char *bytes, size_t n)
{
    if (job->args->json) {
        struct cli_json *root = cli_json_object();
        cli_json_text(root, "text", bytes, n);
        return cli_json_finish(root, 0);
    }
    return cli_put(bytes, n);
}

/* One list of ids to text. Returns an exit code. */
static int decode(struct job *job, char *bytes, size_t n)
{
    const struct cli_args *args = job->args;
    const char *source = args->file ? args->file : args->prompt ? "-p" : "standard input";
    struct cli_text escaped = {0};
    size_t got;
    job->ids.count = 0;
    cli_text_clear(&job->text);
    if (cli_ids_parse(&job->ids, bytes, n, source)) return CLI_EXIT_FAILURE;
    for (size_t i = 0; i < job->ids.count; i++) {
        int32_t id = job->ids.ids[i];
        if ((uint32_t)id >= job->n_vocab) {
            cli_error("%s: found token id %d, wanted 0 to %u", source, (int)id,
                      (unsigned)job->n_vocab - 1);
            return CLI_EXIT_FAILURE;
        }
        const char *piece = sluice_decoder_push(job->decoder, id, &got);
        cli_text_add(&job->text, piece, got);
    }
    const char *rest = sluice_decoder_flush(job->decoder, &got);
    cli_text_add(&job->text, rest, got);
    const struct cli_text *out = &job->text;
    if (args->escape_lines) {
        cli_text_add_escaped(&escaped, job->text.bytes, job->text.size);
        out = &escaped;
    }
    int failed = print_text(job, out->bytes, out->size);
    int line_end =
        !args->json &&
        (args->lines || (isatty(STDOUT_FILENO) && out->size && out->bytes[out->size - 1] != '\n'));
    if (line_end) failed |= cli_put("\n", 1);
    cli_text_free(&escaped);
    return failed ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}

static int take(struct job *job, char *bytes, size_t n)
{
    if (cli_interrupted()) return CLI_EXIT_INTERRUPTED;
    return job->args->decode ? decode(job, bytes, n) : encode(job, bytes, n);
}

static int work(struct job *job, struct cli_text *input)
{
    int code = 0;
    if (!job->args->lines) return take(job, input->bytes, input->size);
    for (size_t at = 0; at < input->size && code == 0;) {
        char *line = input->bytes + at;
        char *end = memchr(line, '\n', input->size - at);
        size_t n = end ? (size_t)(end - line) : input->size - at;
        code = take(job, line, n);
        at += n + 1;
    }
    return code;
}

static int read_input(const struct cli_args *args, struct cli_text *input)
{
    if (args->prompt && strcmp(args->prompt, "-") != 0) {
        cli_text_add(input, args->prompt, strlen(args->prompt));
        return CLI_EXIT_OK;
    }
    if (cli_text_read(input, args->file ? args->file : "-") == 0) return CLI_EXIT_OK;
    return cli_interrupted() ? CLI_EXIT_INTERRUPTED : CLI_EXIT_FAILURE;
}

int cli_tokenize(const struct cli_args *args)
{
    struct job job = {.args = args};
    struct cli_text input = {0};
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_model *model = NULL;
    sluice_error error;
    if (!args->model) return cli_model_missing("tokenize");
    if (args->prompt && args->file) {
        cli_error("-p and -f both give the text; use one of them");
        return CLI_EXIT_USAGE;
    }
    int code = cli_vocabulary_open(args, &model);
    if (code) return code;
    sluice_model_get_info(model, &info);
    job.model = model;
    job.n_vocab = info.n_vocab;
    if (args->decode && sluice_decoder_open(model, args->special, &job.decoder, &error))
        code = cli_fail(&error);
    if (code == 0) code = read_input(args, &input);
    if (code == 0) code = work(&job, &input);
    sluice_decoder_close(job.decoder);
    sluice_model_close(model);
    cli_text_free(&input);
    cli_text_free(&job.text);
    cli_ids_free(&job.ids);
    return code;
}
