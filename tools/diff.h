/* What the files of diff share.
 *
 *   diff.c         the verb
 *   diff_weights.c tensors matched and compared, and what was found summed up
 *   diff_meta.c    metadata that differs
 *   diff_print.c   what comes out of it
 *   diff_swap.c    --swap-layers: what each layer costs
 *
 * A is the better file, B what is compared with it. Tensors bear the names of containers, where
 * each part of an expert is one of its own. */
#ifndef CLI_DIFF_H
#define CLI_DIFF_H

#include "pack/compare.h"
#include "tools/args.h"
#include "tools/json_out.h"

#define CLI_DIFF_NAME 96 /* bytes of a name that is shown, NUL included */

/* Weights that are summed up together: of a layer the same part of all experts, or another tensor;
 * a class of tensors over all layers; a whole layer; everything. */
struct cli_diff_row {
    char name[CLI_DIFF_NAME]; /* "blk.3.ffn_gate.*.weight", "ffn_gate.*.weight", "layer 3" */
    uint32_t group;           /* as in formats/gguf_graft.h */
    uint32_t tensors;
    uint32_t types[2]; /* CLI_DIFF_MIXED: more than one */
    uint64_t bytes[2];
    struct sl_compared all;
    double error_sum; /* of the tensors' errors: for their mean */
    double worst;     /* the largest of them, */
    int32_t expert;   /* and whose it is; -1: no expert's */
};
#define CLI_DIFF_MIXED UINT32_MAX
#define CLI_DIFF_NO_TYPE (UINT32_MAX - 1) /* of a row without tensors */

struct cli_diff_rows {
    struct cli_diff_row *rows;
    size_t n, capacity;
};

/* A tensor by itself, as the index of the pair. */
struct cli_diff_tensor {
    double error, max_error, cosine;
    uint64_t bad[2];
};

struct cli_diff {
    const struct cli_args *args;
    struct sl_budget budget;
    struct sl_source *source[2]; /* NULL once closed */
    const char *kind[2];
    uint64_t file_bytes[2];
    struct sl_compare_pair *pairs; /* [n_pairs] in both, with equal shapes */
    uint32_t n_pairs;
    uint32_t *alone[2]; /* [n_alone] in one only, or with another shape than in the other */
    uint32_t n_alone[2];
    struct cli_diff_tensor *tensors; /* [n_pairs] */
    uint32_t n_differ;               /* of them */
    struct cli_diff_rows parts, classes, layers;
    struct cli_diff_row total;
    uint64_t ns;
};

/* Opens both, matches their tensors and compares them. Returns an exit code; free in any case. */
int cli_diff_weights(struct cli_diff *diff);
/* What was found stays; memory and files of both models go. */
void cli_diff_close_sources(struct cli_diff *diff);
void cli_diff_free(struct cli_diff *diff);

/* The tensor's name in text, which has CLI_DIFF_NAME bytes and is returned. */
const char *cli_diff_name(const struct cli_diff *diff, int side, uint32_t index, char *text);
/* "Q8_0", "mixed". */
const char *cli_diff_type(uint32_t type);
/* Sorts rows by their error, the worst first. */
void cli_diff_sort(struct cli_diff_rows *rows);

/* A key whose value differs; "" where a model has none. */
struct cli_diff_key {
    char key[CLI_DIFF_NAME];
    char value[2][64];
};
/* The index-th key that differs, counted through both models; *at, from 0, is where to go on.
 * Returns 0 past the last. */
int cli_diff_next_key(const struct cli_diff *diff, uint32_t *at, struct cli_diff_key *out);

void cli_diff_print(struct cli_diff *diff);
void cli_diff_json(struct cli_json *root, struct cli_diff *diff);
/* "version", "build" and both models. */
void cli_diff_json_models(struct cli_json *root, const struct cli_diff *diff);

/* --swap-layers. Returns an exit code. */
int cli_diff_swap(struct cli_diff *diff);

#endif
