/* Reading weights: one resident segment for everything but routed experts, then the expert store.
 */
#include <string.h>

#include "engine/model.h"

#define READ_PIECE (8u << 20) /* bytes between two calls of the progress callback */
#define DECODE_PIECE 4096u    /* bytes; a multiple of no block size: rounded down to whole blocks */

struct load {
    struct sl_model *m;
    const struct sl_gguf *g;
    sl_progress_fn *progress;
    void *user;
    uint64_t done, total;
    sluice_error *e;
};

static int report(void *user, uint64_t bytes)
{
    struct load *l = user;
    l->done += bytes;
    return l->progress ? l->progress(l->user, l->done, l->total) : 0;
}

/* Bytes as they are. */
static sluice_err read_raw(struct load *l, const struct sl_weight *w, uint8_t *dst)
{
    struct sl_file *file = sl_gguf_file(l->g, w->tensor->shard);
    for (uint64_t at = 0; at < w->src_bytes; at += READ_PIECE) {
        uint64_t n = sl_min_u64(READ_PIECE, w->src_bytes - at);
        sluice_err err =
            sl_file_read_at(file, w->tensor->offset + w->src_offset + at, dst + at, n, l->e);
        if (err != SLUICE_OK) return err;
        if (report(l, n)) return sl_fail(l->e, SLUICE_E_CANCELLED, "loading was cancelled");
    }
    return SLUICE_OK;
}

/* Any type to float, by pieces through a small buffer. */
static sluice_err read_f32(struct load *l, const struct sl_weight *w, float *dst)
{
    const struct sl_type_info *info = sl_type_info(w->tensor->type);
    struct sl_file *file = sl_gguf_file(l->g, w->tensor->shard);
    uint8_t buf[DECODE_PIECE];
    uint64_t step = DECODE_PIECE / info->block_bytes * info->block_bytes;
    for (uint64_t at = 0; at < w->src_bytes; at += step) {
        uint64_t n = sl_min_u64(step, w->src_bytes - at);
        sluice_err err =
            sl_file_read_at(file, w->tensor->offset + w->src_offset + at, buf, n, l->e);
        if (err != SLUICE_OK) return err;
        uint64_t elements = n / info->block_bytes * info->block_cols;
        info->decode(buf, dst, elements);
        dst += elements;
        if (report(l, n)) return sl_fail(l->e, SLUICE_E_CANCELLED, "loading was cancelled");
    }
    return SLUICE_OK;
}

static sluice_err read_resident(struct load *l, struct sl_budget *b)
{
    struct sl_model *m = l->m;
    m->resident = sl_alloc(b, m->resident_bytes, 1);
    if (!m->resident)
        return sl_fail(l->e, SLUICE_E_NOMEM,
                       "no memory for the resident weights: %llu bytes wanted",
                       (unsigned long long)m->resident_bytes);
    for (uint64_t i = 0; i < m->n_weights; i++) {
        const struct sl_weight *w = &m->weights[i];
        uint8_t *dst = m->resident + w->offset;
        sluice_err err = w->as_f32 ? read_f32(l, w, (float *)(void *)dst) : read_raw(l, w, dst);
        if (err != SLUICE_OK) return err;
        *w->slot = dst;
    }
    if (m->tied) m->output.w = m->token_embd.w;
    return SLUICE_OK;
}

static sluice_err read_experts(struct load *l, struct sl_budget *b)
{
    struct sl_model *m = l->m;
    struct sl_expert_shape *shapes = sl_alloc(b, m->n_layers, sizeof *shapes);
    if (!shapes) return sl_fail(l->e, SLUICE_E_NOMEM, "no memory for the expert table");
    for (uint32_t y = 0; y < m->n_layers; y++) shapes[y] = m->layers[y].experts;
    struct sl_expert_store_config c = {l->g, shapes, m->sources, m->n_layers, report, l};
    sluice_err err = sl_expert_store_open(&c, b, l->e, &m->store);
    sl_free(shapes);
    return err;
}

sluice_err sl_model_load(struct sl_model *m, const struct sl_gguf *g, struct sl_budget *b,
                         sl_progress_fn *progress, void *user, sluice_error *e)
{
    struct load l = {m, g, progress, user, 0, 0, e};
    for (uint64_t i = 0; i < m->n_weights; i++) l.total += m->weights[i].src_bytes;
    for (uint32_t y = 0; y < m->n_layers; y++)
        l.total += sl_expert_shape_bytes(&m->layers[y].experts);
    sluice_err err = read_resident(&l, b);
    if (err == SLUICE_OK) err = read_experts(&l, b);
    /* A file that was replaced meanwhile has given weights of two models. */
    for (uint32_t i = 0; i < sl_gguf_n_files(g) && err == SLUICE_OK; i++)
        err = sl_file_check_unchanged(sl_gguf_file(g, i), e);
    return err;
}

void sl_model_deinit(struct sl_model *m)
{
    sl_expert_store_close(m->store);
    sl_free(m->resident);
    sl_free(m->weights);
    if (m->arena.budget) sl_arena_deinit(&m->arena);
    *m = (struct sl_model){0};
}
