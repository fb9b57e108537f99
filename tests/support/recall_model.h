/* What expert_cache/recall.c defines, written out plainly: every visit is kept, and what is to be
 * expected of one expert is added up from all passages when asked for. The order of additions is
 * that of the definition, so that both have the same bits. */
#ifndef RECALL_MODEL_H
#define RECALL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define RECALL_MODEL_LAYERS 5
#define RECALL_MODEL_EXPERTS 12
#define RECALL_MODEL_VISITS 2000 /* of a layer */
#define RECALL_MODEL_SPAN 256

/* Zeroed to begin with. */
struct recall_model {
    bool used[RECALL_MODEL_LAYERS][RECALL_MODEL_VISITS][RECALL_MODEL_EXPERTS];
    double alike[RECALL_MODEL_LAYERS][RECALL_MODEL_SPAN + 2]; /* by lag */
    int visits[RECALL_MODEL_LAYERS];
    int latest; /* layer visited last, plus 1 */
};

static inline int recall_model_lags(const struct recall_model *m, uint32_t layer)
{
    int seen = m->visits[layer] - 1;
    return seen < RECALL_MODEL_SPAN ? seen : RECALL_MODEL_SPAN;
}

static inline void recall_model_visit(struct recall_model *m, uint32_t layer,
                                      const uint32_t *experts, uint32_t n)
{
    int now = m->visits[layer]++;
    for (uint32_t i = 0; i < n; i++) m->used[layer][now][experts[i]] = true;
    for (int lag = 1; lag <= recall_model_lags(m, layer); lag++) {
        int shared = 0;
        for (int x = 0; x < RECALL_MODEL_EXPERTS; x++)
            shared += m->used[layer][now][x] && m->used[layer][now - lag][x];
        double before = m->latest == 0 ? 0 : m->alike[m->latest - 1][lag];
        m->alike[layer][lag] = before * 0.75 + shared;
    }
    m->latest = (int)layer + 1;
}

/* Fourth power of the likeness. */
static inline double recall_model_weight(const struct recall_model *m, uint32_t layer, int lag)
{
    double alike = m->alike[layer][lag];
    return lag <= recall_model_lags(m, layer) ? alike * alike * (alike * alike) : 0;
}

static inline double recall_model_follows(const struct recall_model *m, uint32_t layer, uint32_t x)
{
    double sum = 0, total = 2;
    for (int lag = 1; lag <= recall_model_lags(m, layer); lag++) {
        /* what followed the passage of that lag, and was next but one after the one before it */
        int followed = m->visits[layer] - 1 - lag + 1;
        double next = recall_model_weight(m, layer, lag);
        double next_but_one = recall_model_weight(m, layer, lag + 1);
        if (m->used[layer][followed][x]) sum += next + 0.5 * next_but_one;
        total += next;
    }
    return sum / total;
}

#endif
