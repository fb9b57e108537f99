/* The two questions about UTF-8 that messages need answered. Text processing lives in engine/text.
 */
#ifndef SL_UTF8_H
#define SL_UTF8_H

#include "base/base.h"

/* Bytes of the well-formed character at the start of s (1..4); 0 where there is none. Thread: pure.
 */
size_t sl_utf8_char_bytes(struct sl_str s);

/* The greatest length <= n at which text does not end within a character: what is left after a
 * message was cut at a byte count. Thread: pure. */
size_t sl_utf8_whole(const char *text, size_t n);

#endif
