/* Metadata that differs; see diff.h. What only says how a file was written is left out. */
#include <stdio.h>
#include <string.h>

#include "tools/diff.h"

static int is_about_the_file(struct sl_str key)
{
    static const char *const keys[] = {"general.alignment", "general.file_type",
                                       "general.quantization_version"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (sl_str_eq(key, keys[i])) return 1;
    return sl_str_starts(key, "split.") || sl_str_starts(key, "quantize.");
}

/* The key at index of a side, if it differs and was not seen from the other side. */
static int differs(const struct cli_diff *diff, int side, uint32_t index, struct cli_diff_key *out)
{
    const struct sl_gguf *mine = sl_source_meta(diff->source[side]);
    const struct sl_gguf *theirs = sl_source_meta(diff->source[!side]);
    struct sl_str key = sl_gguf_key(mine, index);
    uint32_t other = sl_gguf_key_index(theirs, key);
    if (is_about_the_file(key) || (side == 1 && other != UINT32_MAX)) return 0;
    if (other != UINT32_MAX && sl_gguf_same_value(mine, index, theirs, other)) return 0;
    memset(out, 0, sizeof *out);
    (void)sl_str_show(key, out->key, sizeof out->key);
    (void)sl_gguf_key_show(mine, index, out->value[side], sizeof out->value[side]);
    if (other != UINT32_MAX)
        (void)sl_gguf_key_show(theirs, other, out->value[!side], sizeof out->value[!side]);
    return 1;
}

int cli_diff_next_key(const struct cli_diff *diff, uint32_t *at, struct cli_diff_key *out)
{
    uint32_t n[2] = {sl_gguf_n_keys(sl_source_meta(diff->source[0])),
                     sl_gguf_n_keys(sl_source_meta(diff->source[1]))};
    while (*at < n[0] + n[1]) {
        uint32_t i = (*at)++;
        int side = i >= n[0];
        if (differs(diff, side, side ? i - n[0] : i, out)) return 1;
    }
    return 0;
}
