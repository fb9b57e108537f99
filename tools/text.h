/* Growable bytes and ids of the program, reading whole streams, and escapes.
 *
 * The program's own memory comes from here and nowhere else. It is small (prompts, answers, ids);
 * where the system refuses it, the program says so and leaves with exit code 1, so callers need no
 * error paths. Everything starts as zeros and is freed by its _free function. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* bytes[size] is always NUL once anything was added, so that text without NUL is a C string. */
struct cli_text {
    char *bytes;
    size_t size, capacity;
};

struct cli_ids {
    int32_t *ids;
    size_t count, capacity;
};

/* Zeroed memory, or the end of the program. free with cli_free. */
void *cli_alloc(size_t count, size_t size);
void cli_free(void *memory);

void cli_text_add(struct cli_text *text, const char *bytes, size_t n);
void cli_text_reserve(struct cli_text *text, size_t extra);
void cli_text_clear(struct cli_text *text); /* keeps the memory; bytes becomes "" */
void cli_text_free(struct cli_text *text);

void cli_ids_push(struct cli_ids *ids, int32_t id);
void cli_ids_reserve(struct cli_ids *ids, size_t capacity);
void cli_ids_free(struct cli_ids *ids);

/* Appends everything that path holds ("-": standard input). Returns 0, or -1 with a message
 * printed; an interrupt ends it with -1 too. */
int cli_text_read(struct cli_text *text, const char *path);

/* Drops one line end ("\n" or "\r\n") from the end. */
void cli_text_chomp(struct cli_text *text);

/* Decodes \n \t \r \\ \" \' in place; other backslashes stay as they are. Returns the new size. */
size_t cli_unescape(char *bytes, size_t size);

/* Appends bytes with \n, \t, \r and backslash as escapes, so that the result is one line. */
void cli_text_add_escaped(struct cli_text *text, const char *bytes, size_t n);

/* Reads decimal ids separated by white space. Returns 0, or -1 with a message that names source and
 * place. */
int cli_ids_parse(struct cli_ids *ids, const char *bytes, size_t n, const char *source);

#endif
