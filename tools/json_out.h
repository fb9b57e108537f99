/* JSON on standard output, for --json. docs/JSON.md lists the keys.
 *
 * Text becomes valid UTF-8: bytes that are not, and NUL, are replaced by U+FFFD. Integers keep all
 * 64 bits. A key of NULL appends to an array. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

struct cli_json;

struct cli_json *cli_json_object(void); /* the root; cli_json_finish frees it with its children */
struct cli_json *cli_json_child(struct cli_json *in, const char *key);       /* an object in it */
struct cli_json *cli_json_child_array(struct cli_json *in, const char *key); /* an array in it */
void cli_json_text(struct cli_json *in, const char *key, const char *bytes, size_t n);
void cli_json_string(struct cli_json *in, const char *key, const char *text);
void cli_json_integer(struct cli_json *in, const char *key, uint64_t value);
void cli_json_number(struct cli_json *in, const char *key, double value);
void cli_json_bool(struct cli_json *in, const char *key, int value);
/* The value, or null where it is 0 or "", which stand for unknown. */
void cli_json_known(struct cli_json *in, const char *key, uint64_t value);
void cli_json_known_string(struct cli_json *in, const char *key, const char *text);
void cli_json_null(struct cli_json *in, const char *key);
void cli_json_ids(struct cli_json *in, const char *key, const int32_t *ids, size_t count);

/* Prints the root on one line, or indented, and frees it. Returns what cli_put does. */
int cli_json_finish(struct cli_json *root, int indented);
/* Appends the root as one line without its end to text, and frees nothing. */
struct cli_text;
void cli_json_print(const struct cli_json *root, struct cli_text *text);
/* Frees the root unprinted. */
void cli_json_drop(struct cli_json *root);

#endif
