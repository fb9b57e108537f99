/* JSON on standard output; see json_out.h. The one file that knows cJSON: struct cli_json is its
 * node under our name. */
#include "tools/json_out.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report.h"
#include "tools/text.h"

static cJSON *node(struct cli_json *json) { return (cJSON *)json; }

static struct cli_json *made(cJSON *fresh)
{
    if (fresh) return (struct cli_json *)fresh;
    cli_error("the system refused memory for the JSON output");
    exit(CLI_EXIT_FAILURE);
}

static struct cli_json *put(struct cli_json *in, const char *key, cJSON *value)
{
    (void)made(value);
    if (!(key ? cJSON_AddItemToObject(node(in), key, value)
              : cJSON_AddItemToArray(node(in), value)))
        (void)made(NULL);
    return (struct cli_json *)value;
}

struct cli_json *cli_json_object(void) { return made(cJSON_CreateObject()); }

struct cli_json *cli_json_child(struct cli_json *in, const char *key)
{
    return put(in, key, cJSON_CreateObject());
}

struct cli_json *cli_json_child_array(struct cli_json *in, const char *key)
{
    return put(in, key, cJSON_CreateArray());
}

/* Length of the valid UTF-8 sequence at bytes[0..n), or 0. */
static size_t sequence_length(const unsigned char *bytes, size_t n)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = bytes[0];
    if (c < 0x80) return 1;
    size_t length = c >= 0xf0 && c < 0xf8 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;
    if (c >= 0xf8 || length == 0 || length > n) return 0;
    unsigned value = c & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (bytes[i] & 0x3fu);
    }
    if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
    return length;
}

void cli_json_text(struct cli_json *in, const char *key, const char *bytes, size_t n)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    struct cli_text valid = {0};
    cli_text_reserve(&valid, n);
    cli_text_clear(&valid);
    for (size_t i = 0; i < n;) {
        size_t length = sequence_length((const unsigned char *)bytes + i, n - i);
        if (length && bytes[i]) {
            cli_text_add(&valid, bytes + i, length);
        } else {
            cli_text_add(&valid, replacement, sizeof replacement - 1);
            length = 1;
        }
        i += length;
    }
    put(in, key, cJSON_CreateString(valid.bytes));
    cli_text_free(&valid);
}

void cli_json_string(struct cli_json *in, const char *key, const char *text)
{
    cli_json_text(in, key, text, strlen(text));
}

void cli_json_integer(struct cli_json *in, const char *key, uint64_t value)
{
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    put(in, key, cJSON_CreateRaw(digits)); /* a cJSON number is a double, with 53 bits */
}

void cli_json_number(struct cli_json *in, const char *key, double value)
{
    put(in, key, cJSON_CreateNumber(value));
}

void cli_json_bool(struct cli_json *in, const char *key, int value)
{
    put(in, key, cJSON_CreateBool(value));
}

void cli_json_null(struct cli_json *in, const char *key) { put(in, key, cJSON_CreateNull()); }

void cli_json_known(struct cli_json *in, const char *key, uint64_t value)
{
    if (value)
        cli_json_integer(in, key, value);
    else
        cli_json_null(in, key);
}

void cli_json_known_string(struct cli_json *in, const char *key, const char *text)
{
    if (*text)
        cli_json_string(in, key, text);
    else
        cli_json_null(in, key);
}

void cli_json_ids(struct cli_json *in, const char *key, const int32_t *ids, size_t count)
{
    struct cli_text list = {0};
    cli_text_add(&list, "[", 1);
    for (size_t i = 0; i < count; i++) {
        char digits[16];
        int n = snprintf(digits, sizeof digits, "%s%d", i ? "," : "", (int)ids[i]);
        cli_text_add(&list, digits, (size_t)n);
    }
    cli_text_add(&list, "]", 1);
    put(in, key, cJSON_CreateRaw(list.bytes)); /* one node instead of one for each id */
    cli_text_free(&list);
}

int cli_json_finish(struct cli_json *root, int indented)
{
    char *text = indented ? cJSON_Print(node(root)) : cJSON_PrintUnformatted(node(root));
    if (!text) (void)made(NULL);
    int failed = cli_put(text, strlen(text)) || cli_put("\n", 1);
    cJSON_free(text);
    cJSON_Delete(node(root));
    return failed ? -1 : 0;
}

void cli_json_print(const struct cli_json *root, struct cli_text *text)
{
    char *line = cJSON_PrintUnformatted((const cJSON *)root);
    if (!line) (void)made(NULL);
    cli_text_add(text, line, strlen(line));
    cJSON_free(line);
}

void cli_json_drop(struct cli_json *root) { cJSON_Delete(node(root)); }
