/* Windows of a text; see ppl_method.h.
 *
 * llama.cpp's perplexity tool cuts BOS + text into chunks and puts BOS in the place of the first
 * token of each. That is the same as a window of BOS and one token of the text less, beginning at
 * each multiple of the chunk's size: the token that BOS stands in for is the last one that the
 * window before has no room for. So both methods are windows over the text itself. */
#include "tools/ppl_method.h"

#include <stdio.h>

/* Tokens of the text that a window holds. */
static size_t room(const struct cli_method *method)
{
    return method->window - (method->bos ? 1u : 0u);
}

size_t cli_method_least(const struct cli_method *method)
{
    size_t bos = method->bos ? 1 : 0;
    return (method->llama_cpp ? 2 * (size_t)method->window : 2) - bos;
}

size_t cli_method_windows(const struct cli_method *method, size_t n)
{
    size_t most = room(method), stride = method->stride;
    if (method->llama_cpp) return (n + (method->bos ? 1 : 0)) / method->window;
    return n <= most ? 1 : 1 + (n - most + stride - 1) / stride;
}

struct cli_window cli_method_window(const struct cli_method *method, size_t n, size_t index)
{
    size_t most = room(method), bos = method->bos ? 1 : 0;
    struct cli_window w = {index * method->stride, 0, 0};
    w.end = n - w.begin < most ? n : w.begin + most;
    if (method->llama_cpp)
        w.scored = w.begin + method->window / 2 + 1 - bos;
    else
        w.scored = index ? w.begin - method->stride + most : 1 - bos;
    return w;
}

size_t cli_method_scored(const struct cli_method *method, size_t n)
{
    size_t windows = cli_method_windows(method, n), bos = method->bos ? 1 : 0;
    return method->llama_cpp ? windows * (method->window - method->window / 2 - 1) : n - 1 + bos;
}

uint32_t cli_method_given(const struct cli_method *method)
{
    return method->llama_cpp ? method->window / 2 + 1 : method->window - method->stride;
}

const char *cli_method_text(const struct cli_method *method, size_t n, char *text)
{
    size_t windows = cli_method_windows(method, n), scored = cli_method_scored(method, n);
    const char *s = windows == 1 ? "" : "s";
    unsigned window = method->window, given = cli_method_given(method);
    if (method->llama_cpp)
        (void)snprintf(
            text, CLI_METHOD_TEXT,
            "llama.cpp's: %zu chunk%s of %u tokens that do not overlap, %s; the last %u of each "
            "are scored, given %u or more before them; %zu of %zu tokens scored",
            windows, s, window,
            method->bos ? "BOS in place of the first token of each" : "no BOS added",
            window - window / 2 - 1, given, scored, n);
    else if (windows == 1)
        (void)snprintf(text, CLI_METHOD_TEXT,
                       "one window (context %u), %s; each token scored once, given all before it; "
                       "%zu of %zu tokens scored",
                       window, method->bos ? "BOS before it" : "no BOS added", scored, n);
    else
        (void)snprintf(
            text, CLI_METHOD_TEXT,
            "%zu windows of %u tokens, stride %u, %s; each token scored once, given at least %u "
            "before it (in the first window all before it); %zu of %zu tokens scored",
            windows, window, (unsigned)method->stride,
            method->bos ? "BOS first in each" : "no BOS added", given, scored, n);
    return text;
}
