/* Growable bytes and ids of the program; see text.h. */
#define _POSIX_C_SOURCE 200809L
#include "tools/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/interrupt.h"
#include "tools/report.h"

#define READ_BYTES ((size_t)1 << 16) /* how much one read of a stream asks for */

static void *grow(void *memory, size_t bytes)
{
    void *p = realloc(memory, bytes);
    if (!p) {
        cli_error("the system refused %zu bytes of memory", bytes);
        exit(CLI_EXIT_FAILURE);
    }
    return p;
}

void *cli_alloc(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size) count = SIZE_MAX / size;
    size_t bytes = count * size;
    if (bytes == 0) bytes = 1;
    return memset(grow(NULL, bytes), 0, bytes);
}

void cli_free(void *memory) { free(memory); }

void cli_text_reserve(struct cli_text *text, size_t extra)
{
    size_t want = text->size + extra + 1;
    if (want <= text->capacity) return;
    size_t capacity = text->capacity ? text->capacity : 64;
    while (capacity < want) capacity = capacity > SIZE_MAX / 2 ? want : capacity * 2;
    text->bytes = grow(text->bytes, capacity);
    text->capacity = capacity;
}

void cli_text_add(struct cli_text *text, const char *bytes, size_t n)
{
    cli_text_reserve(text, n);
    if (n) memcpy(text->bytes + text->size, bytes, n);
    text->size += n;
    text->bytes[text->size] = 0;
}

void cli_text_clear(struct cli_text *text)
{
    text->size = 0;
    cli_text_add(text, "", 0);
}

void cli_text_free(struct cli_text *text)
{
    free(text->bytes);
    memset(text, 0, sizeof *text);
}

void cli_ids_reserve(struct cli_ids *ids, size_t capacity)
{
    if (capacity <= ids->capacity) return;
    if (capacity > SIZE_MAX / sizeof(int32_t)) capacity = SIZE_MAX / sizeof(int32_t);
    ids->ids = grow(ids->ids, capacity * sizeof(int32_t));
    ids->capacity = capacity;
}

void cli_ids_push(struct cli_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) cli_ids_reserve(ids, ids->capacity ? ids->capacity * 2 : 256);
    ids->ids[ids->count++] = id;
}

void cli_ids_free(struct cli_ids *ids)
{
    free(ids->ids);
    memset(ids, 0, sizeof *ids);
}

/* A text, a prompt or a list of ids that is longer is no such thing: a device, or a wrong file. */
#define INPUT_BYTES_MAX ((size_t)256 << 20)

int cli_text_read(struct cli_text *text, const char *path)
{
    int from_stdin = strcmp(path, "-") == 0;
    const char *name = from_stdin ? "standard input" : path;
    int fd = from_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    cli_text_add(text, "", 0);
    while (fd >= 0) {
        if (text->size > INPUT_BYTES_MAX) {
            errno = EFBIG;
            got = -1;
            break;
        }
        cli_text_reserve(text, READ_BYTES);
        got = read(fd, text->bytes + text->size, READ_BYTES);
        if (got > 0) {
            text->size += (size_t)got;
            text->bytes[text->size] = 0;
        } else if (got == 0 || errno != EINTR || cli_interrupted()) {
            break;
        }
    }
    if (got < 0 && errno == EFBIG)
        cli_error("%s: more than %zu MiB, which is the most that is read", name,
                  INPUT_BYTES_MAX >> 20);
    else if (got < 0 && !cli_interrupted())
        cli_error("%s: %s", name, strerror(errno));
    if (fd >= 0 && !from_stdin) (void)close(fd);
    return got < 0 || cli_interrupted() ? -1 : 0;
}

void cli_text_chomp(struct cli_text *text)
{
    if (text->size && text->bytes[text->size - 1] == '\n') text->bytes[--text->size] = 0;
    if (text->size && text->bytes[text->size - 1] == '\r') text->bytes[--text->size] = 0;
}

size_t cli_unescape(char *bytes, size_t size)
{
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    size_t out = 0;
    for (size_t i = 0; i < size; i++) {
        const char *hit = NULL;
        if (bytes[i] == '\\' && i + 1 < size && bytes[i + 1]) hit = strchr(from, bytes[i + 1]);
        if (hit) i++;
        bytes[out++] = hit ? to[hit - from] : bytes[i];
    }
    return out;
}

void cli_text_add_escaped(struct cli_text *text, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (c == '\n')
            cli_text_add(text, "\\n", 2);
        else if (c == '\t')
            cli_text_add(text, "\\t", 2);
        else if (c == '\r')
            cli_text_add(text, "\\r", 2);
        else if (c == '\\')
            cli_text_add(text, "\\\\", 2);
        else
            cli_text_add(text, &c, 1);
    }
}

static int is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

int cli_ids_parse(struct cli_ids *ids, const char *bytes, size_t n, const char *source)
{
    for (size_t i = 0; i < n;) {
        size_t start = i;
        int64_t value = 0;
        if (is_space(bytes[i])) {
            i++;
            continue;
        }
        for (; i < n && bytes[i] >= '0' && bytes[i] <= '9' && value <= INT32_MAX; i++)
            value = value * 10 + (bytes[i] - '0');
        if ((i < n && !is_space(bytes[i])) || value > INT32_MAX) {
            int shown = n - start < 20 ? (int)(n - start) : 20;
            cli_error("%s: found '%.*s' at byte %zu, wanted decimal token ids separated by white "
                      "space",
                      source, shown, bytes + start, start);
            return -1;
        }
        cli_ids_push(ids, (int32_t)value);
    }
    return 0;
}
