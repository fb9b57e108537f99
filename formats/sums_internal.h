/* What sums.c (the file and what it belongs to) and sums_pass.c (reading a whole model) share;
 * nobody else includes this, their tests excepted. docs/FORMAT.md is the format. */
#ifndef SL_SUMS_INTERNAL_H
#define SL_SUMS_INTERNAL_H

#include "formats/checksum.h"
#include "formats/sums.h"

#define SL_SUMS_VERSION 1u
#define SL_SUMS_HEAD_BYTES 40u /* before the list of files */
#define SL_SUMS_FILE_WORDS 3u  /* 64-bit words for each model file */
#define SL_SUMS_SHOW_MAX 256   /* bytes of a path in a message */

/* What is known of one model file besides its tensors. */
struct sl_sums_file {
    uint64_t bytes;
    uint64_t header_sum; /* of the bytes before its first tensor */
    uint64_t rest_sum;   /* of the bytes after that which belong to no tensor, in order */
};

/* Pieces of all tensors together; false where they do not fit 64 bits. */
bool sl_sums_count(const struct sl_gguf *g, uint64_t *pieces);

/* The head of the sums file of this model. */
void sl_sums_head(const struct sl_gguf *g, uint64_t pieces, unsigned char out[SL_SUMS_HEAD_BYTES]);

/* NAME.sums of the first file, to be freed with sl_free; NULL: no memory. */
char *sl_sums_path(const struct sl_gguf *g, struct sl_budget *b);

/* What was stored about a model file. */
struct sl_sums_file sl_sums_file(const struct sl_sums *s, uint32_t shard);

/* Reads and checks a sums file that is open, except for the headers of the model files. */
SL_MUST_CHECK sluice_err sl_sums_read(struct sl_file *f, const struct sl_gguf *g,
                                      struct sl_budget *b, sluice_error *e, struct sl_sums **out);

/* Compares the headers of all model files. SLUICE_E_CORRUPT names the first that differs. */
SL_MUST_CHECK sluice_err sl_sums_check_headers(const struct sl_gguf *g, const struct sl_sums *s,
                                               struct sl_budget *b, sluice_error *e);

/* Little-endian words. */
static inline void sl_sums_put(unsigned char *p, uint64_t v, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static inline uint64_t sl_sums_take(const unsigned char *p, uint32_t bytes)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

#endif
