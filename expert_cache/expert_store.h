/* Where routed experts live, behind leases.
 *
 * The engine asks for an expert by layer and index, computes on the view it gets, and gives it
 * back. Here every expert is resident: acquire is an address. The contract is already that of a
 * paged cache, so that callers never hold an expert longer than they compute on it. Thread: open,
 * acquire and release on the driver; workers may read a leased view. */
#ifndef SL_EXPERT_STORE_H
#define SL_EXPERT_STORE_H

#include "base/limits.h"
#include "base/mem.h"
#include "formats/gguf.h"

#define SL_EXPERT_PARTS_MAX 3

/* One weight matrix of an expert; all experts of a layer agree on it. */
struct sl_expert_part {
    uint32_t type; /* enum sl_type */
    uint32_t rows, cols;
    uint64_t row_bytes;
    uint64_t bytes; /* rows * row_bytes */
};

/* The experts of one layer. n_experts 0: the layer has none. */
struct sl_expert_shape {
    uint32_t n_experts;
    uint32_t n_parts; /* 3: gate, up, down; 2: gate|up in one, down */
    struct sl_expert_part part[SL_EXPERT_PARTS_MAX];
};

/* Where they are in the files: for each part either one tensor [n_experts][rows][cols], or a
 * tensor for each expert (older Mixtral files). */
struct sl_expert_source {
    const struct sl_gguf_tensor *tensor[SL_EXPERT_PARTS_MAX];        /* whole, or NULL */
    const struct sl_gguf_tensor *const *single[SL_EXPERT_PARTS_MAX]; /* [n_experts], or NULL */
};

struct sl_expert_view {
    const uint8_t *part[SL_EXPERT_PARTS_MAX]; /* leased: valid until release */
};

struct sl_expert_store;

/* Bytes of all experts of a layer. */
uint64_t sl_expert_shape_bytes(const struct sl_expert_shape *s);

/* Called after each piece read with the bytes of it; nonzero gives up. */
typedef int sl_expert_progress_fn(void *user, uint64_t bytes);

struct sl_expert_store_config {
    const struct sl_gguf *gguf;
    const struct sl_expert_shape *shapes;   /* [n_layers]; copied */
    const struct sl_expert_source *sources; /* [n_layers]; used during open only */
    uint32_t n_layers;
    sl_expert_progress_fn *progress; /* or NULL */
    void *progress_user;
};

/* Reads all experts. Errors of reading carry layer, expert, file and offset. */
SL_MUST_CHECK sluice_err sl_expert_store_open(const struct sl_expert_store_config *c,
                                              struct sl_budget *b, sluice_error *e,
                                              struct sl_expert_store **out);
/* NULL is fine. Closing with a live lease is an assertion. */
void sl_expert_store_close(struct sl_expert_store *s);

SL_MUST_CHECK sluice_err sl_expert_acquire(struct sl_expert_store *s, uint32_t layer,
                                           uint32_t expert, struct sl_expert_view *view,
                                           sluice_error *e);
void sl_expert_release(struct sl_expert_store *s, uint32_t layer, uint32_t expert);

#endif
