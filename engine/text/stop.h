/* Stop strings over a stream of text: what could be the beginning of a stop string is held back
 * until it is disproved; a match is cut off exactly. Thread: one thread per matcher. */
#ifndef SL_STOP_H
#define SL_STOP_H

#include "base/mem.h"

struct sl_stop;

/* Copies the strings. Empty strings are SLUICE_E_ARG; none at all is fine. At most 64, each at most
 * 4096 bytes (SLUICE_E_LIMIT). */
SL_MUST_CHECK sluice_err sl_stop_open(const struct sl_str *strings, uint32_t n, struct sl_budget *b,
                                      sluice_error *e, struct sl_stop **out);
void sl_stop_close(struct sl_stop *s);
void sl_stop_reset(struct sl_stop *s);

/* Feeds text; emit is called with what is now certain to come before any stop string (may be called
 * several times, or not). *stopped is set where a stop string is complete: nothing after its first
 * byte is ever emitted (of matches that end together the earliest start wins). Feeding after that
 * is an assertion. Linear in the text times the number of strings. */
typedef void sl_stop_emit_fn(void *user, const char *text, size_t n);
void sl_stop_push(struct sl_stop *s, struct sl_str text, sl_stop_emit_fn *emit, void *user,
                  bool *stopped);
/* At the end without a stop: emits what is held. */
void sl_stop_flush(struct sl_stop *s, sl_stop_emit_fn *emit, void *user);

#endif
