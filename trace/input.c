/* Bytes and lines of a trace; see input.h.
 *
 * A buffer of text holds what was read and not yet taken; a line is handed out where it stands, so
 * the buffer has to hold the longest line whole and is as large as that. */
#define _POSIX_C_SOURCE 200809L
#include "trace/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/gzip.h"

#define RAW_BYTES ((uint64_t)1 << 16)
#define PEEK_BYTES 4096

struct sl_trace_input {
    struct sl_budget *budget;
    int fd;
    bool gzipped, ended; /* ended: all there is is in text */
    bool first_taken;    /* the byte order mark was looked for */
    struct sl_gzip *z;
    unsigned char *raw; /* [RAW_BYTES] as it lies in the file */
    uint64_t raw_at, raw_n;
    bool raw_ended;
    char *text; /* [room] unpacked; at..n are not yet taken */
    uint64_t room, at, n;
    uint64_t line, done, total;
    sl_trace_progress_fn *progress;
    void *user;
    char name[200];
};

static sluice_err open_fd(struct sl_trace_input *in, const char *path, sluice_error *e)
{
    struct stat st;
    in->fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return sl_fail(e, SLUICE_E_NOT_FOUND, "there is no file '%s'", in->name);
    if (in->fd < 0)
        return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be opened for reading", in->name);
    if (fstat(in->fd, &st) != 0)
        return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be examined", in->name);
    if (S_ISDIR(st.st_mode))
        return sl_fail(e, SLUICE_E_IO, "'%s' is a directory, a trace was wanted", in->name);
    if (S_ISREG(st.st_mode)) in->total = (uint64_t)st.st_size;
    return SLUICE_OK;
}

/* Fills raw, which is used up. */
static sluice_err read_raw(struct sl_trace_input *in, sluice_error *e)
{
    ssize_t got = 0;
    in->raw_at = in->raw_n = 0;
    while (!in->raw_ended && in->raw_n < RAW_BYTES) {
        got = read(in->fd, in->raw + in->raw_n, RAW_BYTES - in->raw_n);
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got < 0)
            return sl_fail_sys(e, SLUICE_E_IO, errno, "%s: reading failed", in->name);
        else if (got == 0)
            in->raw_ended = true;
        in->raw_n += (uint64_t)got;
        in->done += (uint64_t)got;
        if (in->progress && in->progress(in->user, in->done, in->total))
            return sl_fail(e, SLUICE_E_CANCELLED, "%s: reading was cancelled", in->name);
    }
    return SLUICE_OK;
}

sluice_err sl_trace_input_open(const char *path, sl_trace_progress_fn *progress, void *user,
                               struct sl_budget *b, sluice_error *e, struct sl_trace_input **out)
{
    *out = NULL;
    struct sl_trace_input *in = sl_alloc(b, 1, sizeof *in);
    if (in == NULL) return sl_fail(e, SLUICE_E_BUDGET, "a reader does not fit into memory");
    in->fd = -1;
    in->budget = b;
    in->progress = progress;
    in->user = user;
    if (strcmp(path, "-") == 0)
        memcpy(in->name, "standard input", sizeof "standard input");
    else
        sl_str_show((struct sl_str){path, strlen(path)}, in->name, sizeof in->name);
    sluice_err code = open_fd(in, path, e);
    in->raw = code == SLUICE_OK ? sl_alloc(b, RAW_BYTES, 1) : NULL;
    if (code == SLUICE_OK && in->raw == NULL)
        code = sl_fail(e, SLUICE_E_BUDGET, "%s: a buffer does not fit into memory", in->name);
    if (code == SLUICE_OK) code = read_raw(in, e);
    if (code == SLUICE_OK && sl_gzip_is(in->raw, in->raw_n)) {
        in->gzipped = true;
        code = sl_gzip_open(false, b, e, &in->z);
    }
    if (code != SLUICE_OK)
        sl_trace_input_close(in);
    else
        *out = in;
    return code;
}

void sl_trace_input_close(struct sl_trace_input *in)
{
    if (in == NULL) return;
    if (in->fd >= 0) (void)close(in->fd);
    sl_gzip_close(in->z);
    sl_free(in->raw);
    sl_free(in->text);
    sl_free(in);
}

const char *sl_trace_input_name(const struct sl_trace_input *in) { return in->name; }

sluice_err sl_trace_input_blame(const struct sl_trace_input *in, sluice_error *e, sluice_err code)
{
    char sentence[SLUICE_ERROR_TEXT_MAX];
    if (e == NULL) return code;
    memcpy(sentence, e->text, sizeof sentence);
    if (in->line == 0) return sl_fail(e, code, "%s: %s", in->name, sentence);
    return sl_fail(e, code, "%s: line %llu: %s", in->name, (unsigned long long)in->line, sentence);
}

/* Moves one step of the raw bytes into out. */
static sluice_err unpack(struct sl_trace_input *in, char *out, uint64_t room, uint64_t *made,
                         sluice_error *e)
{
    *made = 0;
    while (*made == 0 && !in->ended) {
        if (in->raw_at == in->raw_n) {
            sluice_err code = read_raw(in, e);
            if (code != SLUICE_OK) return code;
        }
        uint64_t left = in->raw_n - in->raw_at;
        if (left == 0) {
            in->ended = true;
            if (in->gzipped && !sl_gzip_whole(in->z))
                return sl_fail(e, SLUICE_E_TRUNCATED, "%s: the file ends within its gzip stream",
                               in->name);
            break;
        }
        if (!in->gzipped) {
            *made = sl_min_u64(left, room);
            memcpy(out, in->raw + in->raw_at, *made);
            in->raw_at += *made;
            break;
        }
        struct sl_gzip_step s = {.in = in->raw + in->raw_at, .n = left, .out = out, .room = room};
        sluice_err code = sl_gzip_run(in->z, &s, e);
        if (code != SLUICE_OK) return sl_trace_input_blame(in, e, code);
        in->raw_at += s.taken;
        *made = s.made;
        if (s.taken == 0 && s.made == 0 && !s.ended)
            return sl_fail(e, SLUICE_E_CORRUPT, "%s: the gzip stream is damaged", in->name);
    }
    return SLUICE_OK;
}

/* Appends to text; makes room first. */
static sluice_err more(struct sl_trace_input *in, sluice_error *e)
{
    if (in->at && (in->at == in->n || in->n == in->room)) {
        memmove(in->text, in->text + in->at, in->n - in->at);
        in->n -= in->at;
        in->at = 0;
    }
    if (in->n + 1 >= in->room) {
        sluice_err code = sl_grow(in->budget, &in->text, &in->room, in->room + RAW_BYTES, 1);
        if (code != SLUICE_OK)
            return sl_fail(e, code, "%s: a line of %llu KiB does not fit into memory", in->name,
                           (unsigned long long)(in->n >> 10));
    }
    uint64_t made = 0;
    sluice_err code = unpack(in, in->text + in->n, in->room - in->n, &made, e);
    in->n += made;
    return code;
}

sluice_err sl_trace_input_peek(struct sl_trace_input *in, struct sl_str *out, sluice_error *e)
{
    sluice_err code = SLUICE_OK;
    while (code == SLUICE_OK && in->n - in->at < PEEK_BYTES && !in->ended) code = more(in, e);
    *out = (struct sl_str){in->text + in->at, (size_t)sl_min_u64(in->n - in->at, PEEK_BYTES)};
    return code;
}

sluice_err sl_trace_input_read(void *input, void *buf, uint64_t bytes, uint64_t *got,
                               sluice_error *e)
{
    struct sl_trace_input *in = input;
    *got = sl_min_u64(in->n - in->at, bytes);
    if (*got) {
        memcpy(buf, in->text + in->at, *got);
        in->at += *got;
        return SLUICE_OK;
    }
    return unpack(in, buf, bytes, got, e);
}

static void pass_byte_order_mark(struct sl_trace_input *in)
{
    in->first_taken = true;
    if (in->n - in->at >= 3 && memcmp(in->text + in->at, "\xEF\xBB\xBF", 3) == 0) in->at += 3;
}

sluice_err sl_trace_input_line(struct sl_trace_input *in, struct sl_trace_line *out,
                               sluice_error *e)
{
    struct sl_str first;
    sluice_err code = SLUICE_OK;
    *out = (struct sl_trace_line){NULL, 0};
    if (!in->first_taken) {
        code = sl_trace_input_peek(in, &first, e);
        if (code != SLUICE_OK) return code;
        pass_byte_order_mark(in);
    }
    uint64_t known = 0; /* bytes from at on that hold no line feed */
    const char *end = NULL;
    for (;;) {
        uint64_t n = in->n - in->at;
        if (n > known) end = memchr(in->text + in->at + known, '\n', n - known);
        known = n;
        if (end || in->ended) break;
        if (n > SL_TRACE_LINE_MAX) break;
        code = more(in, e);
        if (code != SLUICE_OK) return code;
    }
    if (known == 0 && end == NULL) return SLUICE_OK;
    in->line++;
    char *p = in->text + in->at;
    uint64_t n = end ? (uint64_t)(end - p) : known;
    if (n > SL_TRACE_LINE_MAX)
        return sl_fail(e, SLUICE_E_LIMIT, "%s: line %llu: longer than %u MiB; is this a trace?",
                       in->name, (unsigned long long)in->line, SL_TRACE_LINE_MAX >> 20);
    in->at += n + (end != NULL);
    if (memchr(p, 0, n))
        return sl_fail(e, SLUICE_E_FORMAT, "%s: line %llu: a byte 0; is this a trace?", in->name,
                       (unsigned long long)in->line);
    while (n && p[n - 1] == '\r') n--;
    *out = (struct sl_trace_line){p, (size_t)n};
    return SLUICE_OK;
}
