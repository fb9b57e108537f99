/* Files of reference runs; see ppl_reference.h and docs/FORMAT.md.
 *
 * Numbers are written as this machine has them, which is little-endian on every one that Sluice is
 * for. Everything is padded to whole words of 8 bytes, and the checksum takes words. */
#define _POSIX_C_SOURCE 200809L
#include "tools/ppl_reference.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/report.h"

#define VERSION 1
#define LLAMA_CPP 1u
#define BOS 2u
#define N_TOKENS_MAX ((uint64_t)1 << 28)
#define N_VOCAB_MAX (1u << 24)
#define IDS_AT_ONCE ((size_t)1 << 14) /* how many are read before more memory is taken */

static const char magic[8] = {'S', 'L', 'R', 'E', 'F', '\r', '\n', 0x1a};

struct file_head {
    char magic[8];
    uint32_t version, n_vocab, window, stride, flags, model_bytes;
    uint64_t n_tokens, text_bytes, n_rows, vocabulary;
};
_Static_assert(sizeof(struct file_head) == 64, "no padding");

struct row_head {
    double nll;
    float curve;
    uint32_t top;
};
_Static_assert(sizeof(struct row_head) == 16, "no padding");

static uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~(uint64_t)7; }

/* Takes bytes, whole words, into the checksum. */
static uint64_t sum_of(uint64_t sum, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)bytes + i, 8);
        sum = cli_reference_sum(sum, word);
    }
    return sum;
}

static struct file_head describe(const struct cli_reference_head *head)
{
    const struct cli_method *method = &head->method;
    struct file_head h = {
        .version = VERSION,
        .n_vocab = head->n_vocab,
        .window = method->window,
        .stride = method->stride,
        .flags = (method->llama_cpp ? LLAMA_CPP : 0u) | (method->bos ? BOS : 0u),
        .model_bytes = (uint32_t)strlen(head->model),
        .n_tokens = head->ids.count,
        .text_bytes = head->text_bytes,
        .n_rows = cli_method_scored(method, head->ids.count),
        .vocabulary = head->vocabulary,
    };
    memcpy(h.magic, magic, sizeof magic);
    return h;
}

static uint64_t size_of(const struct file_head *h)
{
    uint64_t row = sizeof(struct row_head) + padded(2 * (uint64_t)h->n_vocab) + 8;
    return sizeof *h + padded(h->model_bytes) + padded(4 * h->n_tokens) + 8 + h->n_rows * row;
}

uint64_t cli_reference_bytes(const struct cli_reference_head *head)
{
    struct file_head h = describe(head);
    return size_of(&h);
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Writes bytes, padded with zeros to whole words, and takes them into the checksum. */
static int put(struct cli_reference_writer *writer, const void *bytes, size_t n)
{
    char last[8] = {0};
    size_t whole = n & ~(size_t)7, rest = n - whole;
    if (rest) memcpy(last, (const char *)bytes + whole, rest);
    writer->sum = sum_of(writer->sum, bytes, whole);
    if (rest) writer->sum = sum_of(writer->sum, last, 8);
    if (whole && cli_out_put(&writer->file, bytes, whole)) return -1;
    return rest ? cli_out_put(&writer->file, last, 8) : 0;
}

static int put_sum(struct cli_reference_writer *writer)
{
    return cli_out_put(&writer->file, &writer->sum, sizeof writer->sum);
}

int cli_reference_create(struct cli_reference_writer *writer, const char *name,
                         const struct cli_reference_head *head)
{
    struct file_head h = describe(head);
    memset(writer, 0, sizeof *writer);
    writer->codes_bytes = padded(2 * (size_t)head->n_vocab);
    writer->coded.codes = cli_alloc(writer->codes_bytes, 1);
    if (cli_out_open(&writer->file, name)) return -1;
    return put(writer, &h, sizeof h) || put(writer, head->model, h.model_bytes) ||
                   put(writer, head->ids.ids, 4 * head->ids.count) || put_sum(writer)
               ? -1
               : 0;
}

int cli_reference_put(struct cli_reference_writer *writer, const struct cli_prediction *prediction)
{
    cli_encode(prediction, &writer->coded);
    const struct row_head row = {writer->coded.nll, writer->coded.curve, writer->coded.top};
    return put(writer, &row, sizeof row) || put(writer, writer->coded.codes, writer->codes_bytes) ||
                   put_sum(writer)
               ? -1
               : 0;
}

int cli_reference_commit(struct cli_reference_writer *writer)
{
    return cli_out_commit(&writer->file);
}

void cli_reference_abandon(struct cli_reference_writer *writer)
{
    cli_out_abandon(&writer->file);
    cli_free(writer->coded.codes);
    writer->coded.codes = NULL;
}

/* ---- reading ------------------------------------------------------------------------------ */

static int damaged(const struct cli_reference_reader *reader, const char *what)
{
    cli_error("%s: the file is damaged: %s", reader->name, what);
    return -1;
}

/* Reads n bytes, whole words, and takes them into the checksum. */
static int get(struct cli_reference_reader *reader, void *bytes, size_t n)
{
    errno = 0;
    if (fread(bytes, 1, n, reader->stream) != n) {
        if (ferror(reader->stream))
            cli_error("%s: %s", reader->name, strerror(errno));
        else
            (void)damaged(reader, "it ends too early");
        return -1;
    }
    reader->sum = sum_of(reader->sum, bytes, n);
    return 0;
}

static int get_sum(struct cli_reference_reader *reader, const char *of)
{
    uint64_t mine = reader->sum, theirs;
    if (get(reader, &theirs, sizeof theirs)) return -1;
    reader->sum = mine;
    return mine == theirs ? 0 : damaged(reader, of);
}

/* Whether the numbers of a header can be, each and together. */
static int is_sane(const struct file_head *h)
{
    uint64_t scored = h->n_rows;
    struct cli_method method = {h->window, h->stride, (h->flags & LLAMA_CPP) != 0,
                                (h->flags & BOS) != 0};
    if (h->n_vocab < 1 || h->n_vocab > N_VOCAB_MAX) return 0;
    if (h->window < CLI_METHOD_WINDOW_MIN || h->window > CLI_METHOD_WINDOW_MAX) return 0;
    if (h->stride < 1 || h->stride > h->window - !method.llama_cpp) return 0;
    if (method.llama_cpp && h->stride != h->window) return 0;
    if (h->flags & ~(LLAMA_CPP | BOS)) return 0;
    if (h->model_bytes >= CLI_REFERENCE_MODEL || h->n_tokens > N_TOKENS_MAX) return 0;
    if (h->n_tokens < cli_method_least(&method)) return 0;
    return scored == cli_method_scored(&method, (size_t)h->n_tokens);
}

/* A regular file has to have the size that its header leads to. */
static int check_size(const struct cli_reference_reader *reader, const struct file_head *h)
{
    struct stat found;
    uint64_t wanted = size_of(h);
    if (fstat(fileno(reader->stream), &found) || !S_ISREG(found.st_mode) ||
        (uint64_t)found.st_size == wanted)
        return 0;
    cli_error("%s: found %llu bytes, wanted %llu as its header says; the file is cut or damaged",
              reader->name, (unsigned long long)found.st_size, (unsigned long long)wanted);
    return -1;
}

static int get_head(struct cli_reference_reader *reader, struct file_head *h)
{
    errno = 0;
    size_t got = fread(h, 1, sizeof *h, reader->stream);
    if (got < sizeof *h && ferror(reader->stream)) {
        cli_error("%s: %s", reader->name, strerror(errno));
        return -1;
    }
    if (got < sizeof *h || memcmp(h->magic, magic, sizeof magic) != 0) {
        cli_error("%s: this is no reference run; sluice ppl --save-logits writes them",
                  reader->name);
        return -1;
    }
    if (h->version != VERSION) {
        cli_error("%s: found version %u of the format, this program reads version %d", reader->name,
                  (unsigned)h->version, VERSION);
        return -1;
    }
    if (!is_sane(h)) return damaged(reader, "its header contradicts itself");
    reader->sum = sum_of(0, h, sizeof *h);
    return check_size(reader, h);
}

/* The ids, growing as they come: a size is not believed before the bytes are there. */
static int get_ids(struct cli_reference_reader *reader, const struct file_head *h)
{
    struct cli_ids *ids = &reader->head.ids;
    size_t left = (size_t)padded(4 * h->n_tokens) / 4;
    while (left) {
        size_t n = left < IDS_AT_ONCE ? left : IDS_AT_ONCE;
        if (ids->count + n > ids->capacity) cli_ids_reserve(ids, 2 * ids->capacity + n);
        if (get(reader, ids->ids + ids->count, 4 * n)) return -1;
        ids->count += n;
        left -= n;
    }
    ids->count = (size_t)h->n_tokens;
    return 0;
}

int cli_reference_open(struct cli_reference_reader *reader, const char *name)
{
    struct file_head h;
    struct cli_reference_head *head = &reader->head;
    memset(reader, 0, sizeof *reader);
    reader->name = name;
    reader->stream = fopen(name, "rb");
    if (!reader->stream) {
        cli_error("%s: %s", name, strerror(errno));
        return -1;
    }
    if (get_head(reader, &h)) return -1;
    if (get(reader, head->model, (size_t)padded(h.model_bytes)) || get_ids(reader, &h)) return -1;
    if (get_sum(reader, "its header does not match its checksum")) return -1;
    head->model[h.model_bytes] = 0;
    head->method =
        (struct cli_method){h.window, h.stride, (h.flags & LLAMA_CPP) != 0, (h.flags & BOS) != 0};
    head->n_vocab = h.n_vocab;
    head->text_bytes = h.text_bytes;
    head->vocabulary = h.vocabulary;
    for (size_t i = 0; i < head->ids.count; i++)
        if (head->ids.ids[i] < 0 || (uint32_t)head->ids.ids[i] >= h.n_vocab)
            return damaged(reader, "a token is outside of its vocabulary");
    reader->codes_bytes = (size_t)padded(2 * (uint64_t)h.n_vocab);
    reader->coded.codes = cli_alloc(reader->codes_bytes, 1);
    return 0;
}

int cli_reference_next(struct cli_reference_reader *reader)
{
    struct row_head row;
    char what[80];
    (void)snprintf(what, sizeof what, "distribution %llu does not match its checksum",
                   (unsigned long long)reader->read);
    if (get(reader, &row, sizeof row) || get(reader, reader->coded.codes, reader->codes_bytes) ||
        get_sum(reader, what))
        return -1;
    if (!(row.nll >= 0 && row.nll < 1e30 && row.curve >= 0 && row.curve < 1e20f) ||
        row.top >= reader->head.n_vocab || reader->coded.codes[row.top] != 0)
        return damaged(reader, "a distribution holds impossible values");
    reader->coded.nll = row.nll;
    reader->coded.curve = row.curve;
    reader->coded.top = row.top;
    reader->read++;
    return 0;
}

void cli_reference_close(struct cli_reference_reader *reader)
{
    if (reader->stream) (void)fclose(reader->stream);
    reader->stream = NULL;
    cli_ids_free(&reader->head.ids);
    cli_free(reader->coded.codes);
    reader->coded.codes = NULL;
}
