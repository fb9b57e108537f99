/* Sticky routing, a lossy lever: tokens prefer the experts that the text has used of late, so that
 * fewer are read.
 *
 * Published cache-aware routing makes the choice depend on what happens to be cached, and answers
 * irreproducible. Here it depends on a virtual cache, which holds the experts that the last
 * SL_STICKY_WINDOW tokens of this very text chose, weighted by age: a pure function of the tokens
 * before, whatever the memory, the chunk or the machine. The choices of all positions are kept, so
 * that a context can be cut back to any length.
 *
 * Thread: the driver. */
#ifndef SL_STICKY_H
#define SL_STICKY_H

#include "base/limits.h"
#include "base/mem.h"

#define SL_STICKY_WINDOW 64u

struct sl_sticky;

struct sl_sticky_config {
    float strength; /* D of --sticky D[:N]; 0 < D <= 1 */
    uint32_t size;  /* N: experts a layer that the virtual cache holds; 0: a quarter of them */
    uint32_t n_ctx; /* positions */
    uint32_t n_layers;
    const uint32_t *n_experts; /* [n_layers]; 0: none */
    const uint32_t *top_k;     /* [n_layers] */
};

/* Bytes that open will charge: those of n_ctx positions, though memory is only resident once it is
 * used. */
uint64_t sl_sticky_bytes(const struct sl_sticky_config *c);
/* The arrays of c are copied. SLUICE_E_NOMEM where the budget or the system refuses. */
SL_MUST_CHECK sluice_err sl_sticky_open(const struct sl_sticky_config *c, struct sl_budget *b,
                                        sluice_error *e, struct sl_sticky **out);
void sl_sticky_close(struct sl_sticky *s);

/* Favoured experts of the layer for the token at position pos, from the choices at positions before
 * it: [n_experts] 0 or 1, valid until the next call. The N of the highest score: a use counts
 * round(4096 * 2^(-(age - 1) / 16)), age being how many positions ago, up to the window; ties go to
 * the lower index, and experts never used in the window are not favoured. */
const uint8_t *sl_sticky_favoured(struct sl_sticky *s, uint32_t layer, uint32_t pos);
/* What the token at pos chose: [top_k] distinct experts. Positions are set in ascending order
 * within a layer, without gaps; a position may be set again after a cut, and what was set past it
 * is then forgotten. */
void sl_sticky_chose(struct sl_sticky *s, uint32_t layer, uint32_t pos, const uint32_t *chosen);
float sl_sticky_strength(const struct sl_sticky *s);

#endif
