/* How ppl cuts a text into windows, and which of its tokens it scores.
 *
 * A window is evaluated from an empty context: BOS, where windows begin with one, and then tokens
 * of the text. A figure means something only together with its method, so this is what is printed
 * with each, stored in each reference run, and compared. */
#ifndef CLI_PPL_METHOD_H
#define CLI_PPL_METHOD_H

#include <stddef.h>
#include <stdint.h>

#define CLI_METHOD_WINDOW_MIN 8
#define CLI_METHOD_WINDOW_MAX (1u << 22)

struct cli_method {
    uint32_t window; /* most tokens of a window, BOS included */
    uint32_t stride; /* tokens of the text from the begin of a window to that of the next */
    int llama_cpp;   /* windows that do not overlap, of each the second half is scored */
    int bos;         /* each window begins with BOS */
};

/* Tokens [begin, end) of the text are in the window; those from scored on are scored. */
struct cli_window {
    size_t begin, end, scored;
};

/* Fewest tokens of a text that can be scored. */
size_t cli_method_least(const struct cli_method *method);
/* For a text of n tokens, at least as many: how many windows there are, the index-th of them, and
 * how many tokens all of them score. */
size_t cli_method_windows(const struct cli_method *method, size_t n);
struct cli_window cli_method_window(const struct cli_method *method, size_t n, size_t index);
size_t cli_method_scored(const struct cli_method *method, size_t n);
/* How many tokens a scored one is given at least, BOS included; those of the first window are given
 * what there is. */
uint32_t cli_method_given(const struct cli_method *method);

/* The method in words; text has CLI_METHOD_TEXT bytes and is returned. */
#define CLI_METHOD_TEXT 512
const char *cli_method_text(const struct cli_method *method, size_t n, char *text);

#endif
