/* Where everything of a container comes to lie: resident tensors from the header on, then the
 * records of experts, then the index; on to the next part where one would grow too long. */
#include <inttypes.h>
#include <string.h>

#include "formats/checksum.h"
#include "formats/container_write_internal.h"

#define PART_BYTES_MIN (4 * SL_CN_ALIGN)
#define FILE_BYTES_MAX ((uint64_t)1 << 60)

struct place {
    struct sl_cn_layout *l;
    const struct sl_container_plan *plan;
    const char *path;
    struct sl_budget *budget;
    sluice_error *e;
    uint64_t limit; /* the most bytes of a part, a multiple of SL_CN_ALIGN */
    uint32_t part;
    uint64_t at; /* next byte of the part */
};

static uint64_t align_up(uint64_t n, uint64_t align)
{
    bool fits = sl_align_ok(n, align, &n);

    SLUICE_ASSERT(fits); /* sizes are limited to FILE_BYTES_MAX */
    return n;
}

static sluice_err no_memory(const struct place *p, sluice_err code)
{
    return sl_cn_fail(p->e, code, p->path, "%s",
                      code == SLUICE_E_LIMIT ? "the container would have too many records"
                                             : "no memory for the plan of the container");
}

static sluice_err too_large(const struct place *p, uint32_t tensor)
{
    char name[SL_GG_SHOW_MAX];

    return sl_cn_fail(p->e, SLUICE_E_ARG, p->path,
                      "tensor '%s' does not fit into a part of fewer than %" PRIu64
                      " bytes; parts must be larger",
                      sl_str_show(p->plan->tensors[tensor].name, name, sizeof name),
                      p->limit + SL_CN_ALIGN);
}

/* Ends the part here. */
static sluice_err next_part(struct place *p)
{
    struct sl_cn_layout *l = p->l;

    SLUICE_ASSERT(p->at % SL_CN_ALIGN == 0);
    if (l->n_parts == SL_CN_PARTS_MAX)
        return sl_cn_fail(p->e, SLUICE_E_LIMIT, p->path, "more than %u parts; make them larger",
                          SL_CN_PARTS_MAX);
    if (l->n_parts == l->parts_capacity) {
        sluice_err err = sl_grow(p->budget, &l->part_bytes, &l->parts_capacity, l->n_parts + 1,
                                 sizeof *l->part_bytes);
        if (err != SLUICE_OK) return no_memory(p, err);
    }
    l->part_bytes[l->n_parts++] = p->at;
    l->total_bytes += p->at;
    p->part++;
    p->at = SL_CN_HEADER_BYTES;
    return SLUICE_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static sluice_err take_tensor(struct place *p, uint32_t i)
{
    char name[SL_GG_SHOW_MAX];
    const struct sl_container_tensor *from = &p->plan->tensors[i];
    struct sl_gguf_tensor *t = &p->l->tensors[i];

    SLUICE_ASSERT((from->layer < 0) == (from->expert < 0));
    *t = (struct sl_gguf_tensor){.name = from->name, .type = from->type, .n_dims = from->n_dims};
    memcpy(t->dims, from->dims, sizeof t->dims);
    if (from->name.n == 0 || from->name.n > SL_NAME_MAX || from->layer >= SL_LAYERS_MAX ||
        from->expert >= SL_EXPERTS_MAX || !sl_cn_measure(t) || t->bytes > FILE_BYTES_MAX)
        return sl_cn_fail(p->e, SLUICE_E_ARG, p->path,
                          "tensor '%s' cannot be stored: its name, type or size is out of range",
                          sl_str_show(from->name, name, sizeof name));
    int32_t layer = -1, expert = -1;
    if (!sl_cn_expert_of(from->name, &layer, &expert)) layer = expert = -1;
    if (layer != from->layer || expert != from->expert)
        return sl_cn_fail(p->e, SLUICE_E_ARG, p->path,
                          "tensor '%s' does not belong to expert %" PRId32 " of layer %" PRId32,
                          sl_str_show(from->name, name, sizeof name), from->expert, from->layer);
    return SLUICE_OK;
}

static sluice_err take_tensors(struct place *p)
{
    struct sl_gg_index names = {0};
    struct sl_cn_layout *l = p->l;
    uint32_t n = p->plan->n_tensors, bad = 0;
    void *block = NULL;
    uint64_t capacity = 0, bytes = 0;

    if (n > SL_GGUF_TENSORS_MAX)
        return sl_cn_fail(p->e, SLUICE_E_LIMIT, p->path, "more than %u tensors",
                          SL_GGUF_TENSORS_MAX);
    sluice_err err = sl_grow(p->budget, &block, &capacity, (uint64_t)n + 1, sizeof *l->tensors);
    if (err != SLUICE_OK) return no_memory(p, err);
    l->tensors = block;
    for (uint32_t i = 0; i < n; i++) {
        err = take_tensor(p, i);
        if (err != SLUICE_OK) return err;
        bytes += l->tensors[i].bytes; /* at most 2^18 times 2^60 is checked at each step */
        if (bytes > FILE_BYTES_MAX)
            return sl_cn_fail(p->e, SLUICE_E_ARG, p->path, "the tensors are too large together");
    }
    err = sl_gg_index_build(&names, p->budget, l->tensors, n, sizeof *l->tensors, &bad);
    sl_gg_index_deinit(&names);
    if (err == SLUICE_OK) return err;
    if (err == SLUICE_E_NOMEM) return no_memory(p, err);
    return sl_cn_fail(p->e, SLUICE_E_ARG, p->path, "two tensors have the same name");
}

/* ---- places ---------------------------------------------------------------------------------- */

static sluice_err end_segment(struct place *p)
{
    p->at = align_up(p->at, SL_CN_ALIGN);
    if (p->at == SL_CN_HEADER_BYTES) return SLUICE_OK;
    sluice_err err = sl_cn_add_segment(&p->l->ix, p->budget, p->part, SL_CN_HEADER_BYTES,
                                       p->at - SL_CN_HEADER_BYTES);
    return err == SLUICE_OK ? err : no_memory(p, err);
}

/* Resident tensors; *n: how many there are. */
static sluice_err place_resident(struct place *p, uint32_t *n)
{
    sluice_err err = SLUICE_OK;
    uint32_t i = 0;

    for (; i < p->plan->n_tensors && p->plan->tensors[i].expert < 0; i++) {
        struct sl_gguf_tensor *t = &p->l->tensors[i];
        uint64_t offset = align_up(p->at, SL_CN_TENSOR_ALIGN);

        if (align_up(offset + t->bytes, SL_CN_ALIGN) > p->limit && p->at > SL_CN_HEADER_BYTES) {
            err = end_segment(p);
            if (err == SLUICE_OK) err = next_part(p);
            if (err != SLUICE_OK) return err;
            offset = p->at;
        }
        if (align_up(offset + t->bytes, SL_CN_ALIGN) > p->limit) return too_large(p, i);
        t->shard = p->part;
        t->offset = offset;
        p->at = offset + t->bytes;
    }
    *n = i;
    return end_segment(p);
}

/* The record of the expert whose first tensor is i; *end: one past its last. */
static sluice_err place_expert(struct place *p, uint32_t i, uint32_t *end)
{
    const struct sl_container_tensor *from = p->plan->tensors;
    struct sl_gguf_tensor *t = p->l->tensors;
    uint64_t bytes = 0;
    uint32_t k = i;

    for (; k < p->plan->n_tensors && from[k].layer == from[i].layer &&
           from[k].expert == from[i].expert;
         k++) {
        t[k].offset = align_up(bytes, SL_CN_TENSOR_ALIGN);
        bytes = t[k].offset + t[k].bytes;
    }
    bytes = align_up(bytes, SL_CN_ALIGN);
    if (bytes > p->limit - p->at && p->at > SL_CN_HEADER_BYTES) {
        sluice_err err = next_part(p);
        if (err != SLUICE_OK) return err;
    }
    if (bytes > p->limit - p->at) return too_large(p, i);
    for (uint32_t j = i; j < k; j++) {
        t[j].shard = p->part;
        t[j].offset += p->at;
    }
    struct sl_container_record r = {.offset = p->at,
                                    .bytes = bytes,
                                    .part = p->part,
                                    .layer = from[i].layer,
                                    .expert = from[i].expert};
    sluice_err err = sl_cn_add_expert(&p->l->ix, p->budget, &r);
    if (err != SLUICE_OK) return no_memory(p, err);
    p->at += bytes;
    *end = k;
    return SLUICE_OK;
}

static sluice_err place_experts(struct place *p, uint32_t i)
{
    const struct sl_container_tensor *t = p->plan->tensors;
    uint32_t end = i;

    for (uint32_t last = i; i < p->plan->n_tensors; last = i, i = end) {
        bool ascending = last == i || t[i].layer > t[last].layer ||
                         (t[i].layer == t[last].layer && t[i].expert > t[last].expert);
        SLUICE_ASSERT(ascending);
        sluice_err err = place_expert(p, i, &end);
        if (err != SLUICE_OK) return err;
    }
    return SLUICE_OK;
}

/* ---- the index ------------------------------------------------------------------------------- */

struct measure {
    struct sl_xxh3_stream sum;
    uint64_t bytes;
};

static void measure_more(void *user, const void *data, size_t bytes)
{
    struct measure *m = user;

    sl_xxh3_add(&m->sum, data, bytes);
    m->bytes += bytes;
}

static sluice_err place_index(struct place *p)
{
    struct sl_cn_layout *l = p->l;
    struct measure m = {.bytes = 0};
    struct sl_mp_writer w = {measure_more, &m};

    sl_xxh3_begin(&m.sum);
    sl_cn_index_encode(&l->ix, &p->plan->meta->head.meta, l->tensors, p->plan->n_tensors, &w);
    l->sum = sl_xxh3_end(&m.sum);
    l->index_bytes = m.bytes;
    uint64_t padded = align_up(m.bytes, SL_CN_ALIGN);
    if (m.bytes > SL_CN_INDEX_MAX)
        return sl_cn_fail(p->e, SLUICE_E_LIMIT, p->path,
                          "the index would have %" PRIu64 " bytes, the limit is %" PRIu64, m.bytes,
                          (uint64_t)SL_CN_INDEX_MAX);
    if (padded > p->limit - p->at && p->at > SL_CN_HEADER_BYTES) {
        sluice_err err = next_part(p);
        if (err != SLUICE_OK) return err;
    }
    if (padded > p->limit - p->at)
        return sl_cn_fail(p->e, SLUICE_E_ARG, p->path,
                          "the index of %" PRIu64 " bytes does not fit into a part", m.bytes);
    l->index_offset = p->at;
    p->at += padded;
    return next_part(p);
}

sluice_err sl_cn_layout_make(struct sl_cn_layout *l, const struct sl_container_plan *plan,
                             const char *path, struct sl_budget *b, sluice_error *e)
{
    struct place p = {.l = l, .plan = plan, .path = path, .budget = b, .e = e};
    void *block = NULL;
    uint64_t capacity = 0;
    uint32_t n_resident = 0;

    memset(l, 0, sizeof *l);
    if (plan->part_bytes != 0 && plan->part_bytes < PART_BYTES_MIN)
        return sl_cn_fail(e, SLUICE_E_ARG, path, "parts must have %u bytes at least",
                          PART_BYTES_MIN);
    if (plan->recipe.n > SL_CN_RECIPE_MAX)
        return sl_cn_fail(e, SLUICE_E_LIMIT, path, "the recipe is longer than %u bytes",
                          SL_CN_RECIPE_MAX);
    p.limit = plan->part_bytes == 0 ? 4 * FILE_BYTES_MAX : (plan->part_bytes - 1);
    p.limit -= p.limit % SL_CN_ALIGN;
    p.at = SL_CN_HEADER_BYTES;
    sluice_err err = sl_grow(b, &block, &capacity, plan->recipe.n + 1, 1);
    if (err != SLUICE_OK) return no_memory(&p, err);
    if (plan->recipe.n > 0) memcpy(block, plan->recipe.p, plan->recipe.n);
    l->ix.recipe = (struct sl_str){block, plan->recipe.n};
    l->ix.source = plan->source;
    err = sl_cn_meta_check(&plan->meta->head.meta, path, e);
    if (err == SLUICE_OK) err = take_tensors(&p);
    if (err == SLUICE_OK) err = place_resident(&p, &n_resident);
    if (err == SLUICE_OK) err = place_experts(&p, n_resident);
    return err == SLUICE_OK ? place_index(&p) : err;
}

void sl_cn_layout_deinit(struct sl_cn_layout *l)
{
    sl_cn_index_deinit(&l->ix);
    sl_free(l->tensors);
    sl_free(l->part_bytes);
    memset(l, 0, sizeof *l);
}
