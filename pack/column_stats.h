/* What an error in a weight costs: for every weight matrix, how large its inputs are, column by
 * column (the mean of their squares over a text), and for routed experts each by itself.
 *
 * Read and written in the form of llama.cpp's importance matrices (a GGUF of general.type
 * "imatrix": tensors NAME.in_sum2, sums of squares, and NAME.counts, for each matrix of the
 * tensor), so that statistics can be exchanged both ways. NAMEs are those of a GGUF with stacked
 * experts (blk.3.ffn_gate_exps.weight).
 *
 * Thread: open, close and collecting on one thread; look-ups are pure. */
#ifndef SL_COLUMN_STATS_H
#define SL_COLUMN_STATS_H

#include "base/mem.h"

struct sl_column_stats;

/* Reads and checks a file. SLUICE_E_FORMAT: not an importance matrix (the old .dat form is named
 * as such), or one with values that are negative or not finite. */
SL_MUST_CHECK sluice_err sl_column_stats_open(const char *path, struct sl_budget *b,
                                              sluice_error *e, struct sl_column_stats **out);
void sl_column_stats_close(struct sl_column_stats *s); /* NULL is fine */

/* name as a container or a GGUF has it: blk.3.ffn_gate.7.weight finds matrix 7 of
 * blk.3.ffn_gate_exps.weight, or of blk.3.ffn_gate_up_exps.weight. Returns the mean squares [cols],
 * the handle's, and in *count how many inputs they are from. NULL: nothing is known of it (*count
 * 0), or it was never reached (*count 0). Of another width: NULL, and *count is UINT64_MAX. */
const float *sl_column_stats_find(const struct sl_column_stats *s, struct sl_str name,
                                  uint64_t cols, uint64_t *count);

/* How many experts the statistics of the layer's stack are of, for the name of one of them; 0:
 * there is no such stack, or it has another width. */
uint64_t sl_column_stats_experts(const struct sl_column_stats *s, struct sl_str name,
                                 uint64_t cols);

/* ---- collecting ------------------------------------------------------------------------------ */

/* An empty set, to be filled with add. */
SL_MUST_CHECK sluice_err sl_column_stats_new(struct sl_budget *b, sluice_error *e,
                                             struct sl_column_stats **out);
/* Adds n inputs x[n][cols] of matrix index (0 where a tensor is one matrix) of n_matrices of the
 * tensor of that name. Sums are doubles. SLUICE_E_NOMEM, SLUICE_E_BUDGET, SLUICE_E_STATE (the
 * tensor was first added with another shape, or collecting is over). */
struct sl_column_input {
    const char *name;    /* "blk.3.ffn_gate_exps.weight" */
    const char *same_as; /* a tensor that has been given the same x for the same matrix, and always
                            is: nothing is stored twice; NULL: none */
    uint32_t matrix, n_matrices;
    const float *x;
    uint32_t n, cols;
};
SL_MUST_CHECK sluice_err sl_column_stats_add(struct sl_column_stats *s,
                                             const struct sl_column_input *in, sluice_error *e);
/* Ends collecting: sums become means, in half the memory, and find and write may be called, as of a
 * set that was opened. SLUICE_E_NOMEM, SLUICE_E_NUMERIC (an input was not finite, or too large). */
SL_MUST_CHECK sluice_err sl_column_stats_finish(struct sl_column_stats *s, sluice_error *e);
/* Writes the file (under a temporary name, synced, renamed). text: what was read, for people;
 * chunks of chunk_tokens tokens as llama.cpp notes them. */
SL_MUST_CHECK sluice_err sl_column_stats_write(const struct sl_column_stats *s, const char *path,
                                               const char *text, uint32_t chunks,
                                               uint32_t chunk_tokens, sluice_error *e);

/* Matrices that were never reached, for messages: calls fn for each, in order; returns how many. */
typedef void sl_column_unreached_fn(void *user, const char *name, uint32_t matrix);
uint64_t sl_column_stats_unreached(const struct sl_column_stats *s, sl_column_unreached_fn *fn,
                                   void *user);

#endif
