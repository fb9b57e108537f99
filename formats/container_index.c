/* The index of a container: metadata, recipe, source, segments, experts and tensors, in this order.
 *
 * What is read is checked against the sizes of the parts: records must follow one another from the
 * header of the first part to the index without a gap, and every tensor must lie in a segment or in
 * the record of an expert, none on top of another. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/container_internal.h"

#define DIMS_MAX 4

/* ---- building -------------------------------------------------------------------------------- */

void sl_cn_index_deinit(struct sl_cn_index *ix)
{
    sl_free((void *)(uintptr_t)ix->recipe.p);
    sl_free(ix->segments);
    sl_free(ix->records);
    memset(ix, 0, sizeof *ix);
}

static sluice_err room_for_records(struct sl_cn_index *ix, struct sl_budget *b, uint64_t more)
{
    if (more > SL_CN_RECORDS_MAX - ix->n_records) return SLUICE_E_LIMIT;
    if (ix->n_records + more <= ix->records_capacity) return SLUICE_OK;
    return sl_grow(b, &ix->records, &ix->records_capacity, ix->n_records + more,
                   sizeof *ix->records);
}

sluice_err sl_cn_add_segment(struct sl_cn_index *ix, struct sl_budget *b, uint32_t part,
                             uint64_t offset, uint64_t bytes)
{
    uint64_t n = bytes / SL_CN_SHEET_BYTES + (bytes % SL_CN_SHEET_BYTES != 0);
    sluice_err err = room_for_records(ix, b, n);

    SLUICE_ASSERT(ix->n_sheets == ix->n_records);
    if (err == SLUICE_OK && ix->n_segments == ix->segments_capacity)
        err = sl_grow(b, &ix->segments, &ix->segments_capacity, ix->n_segments + 1,
                      sizeof *ix->segments);
    if (err != SLUICE_OK) return err;
    ix->segments[ix->n_segments++] = (struct sl_cn_segment){offset, bytes, ix->n_records, n, part};
    for (uint64_t at = 0; at < bytes; at += SL_CN_SHEET_BYTES) {
        ix->records[ix->n_records++] = (struct sl_container_record){
            .offset = offset + at,
            .bytes = sl_min_u64(bytes - at, SL_CN_SHEET_BYTES),
            .part = part,
            .layer = -1,
            .expert = -1,
        };
    }
    ix->n_sheets = ix->n_records;
    return SLUICE_OK;
}

sluice_err sl_cn_add_expert(struct sl_cn_index *ix, struct sl_budget *b,
                            const struct sl_container_record *record)
{
    sluice_err err = room_for_records(ix, b, 1);

    if (err == SLUICE_OK) ix->records[ix->n_records++] = *record;
    return err;
}

bool sl_cn_type_known(uint32_t type) { return sl_type_info(type) != NULL; }

bool sl_cn_measure(struct sl_gguf_tensor *t)
{
    uint64_t rows = 1;

    if (!sl_cn_type_known(t->type) || t->n_dims == 0 || t->n_dims > DIMS_MAX) return false;
    for (uint32_t i = 0; i < DIMS_MAX; i++) {
        if (t->dims[i] == 0 || (i >= t->n_dims && t->dims[i] != 1)) return false;
        if (i > 0 && !sl_mul_ok(rows, t->dims[i], &rows)) return false;
    }
    /* Where rows are interleaved, matrices stacked in one tensor could not be told apart. */
    if (sl_type_row_group(t->type) > 1 && t->n_dims > 2) return false;
    return sl_type_row_bytes(t->type, t->dims[0], &t->row_bytes) &&
           sl_type_matrix_bytes(t->type, rows, t->dims[0], &t->bytes);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_segments(const struct sl_cn_index *ix, struct sl_mp_writer *w)
{
    sl_mp_put_str(w, SL_STR("segments"));
    sl_mp_put_array(w, ix->n_segments);
    for (uint64_t i = 0; i < ix->n_segments; i++) {
        const struct sl_cn_segment *s = &ix->segments[i];

        sl_mp_put_array(w, 4);
        sl_mp_put_uint(w, s->part);
        sl_mp_put_uint(w, s->offset);
        sl_mp_put_uint(w, s->bytes);
        sl_mp_put_bin_head(w, 8 * s->n_records);
        for (uint64_t k = 0; k < s->n_records; k++) {
            unsigned char sum[8];

            sl_cn_put(sum, ix->records[s->first_record + k].sum, 8);
            w->sink(w->user, sum, sizeof sum);
        }
    }
}

static void put_experts(const struct sl_cn_index *ix, struct sl_mp_writer *w)
{
    sl_mp_put_str(w, SL_STR("experts"));
    sl_mp_put_array(w, ix->n_records - ix->n_sheets);
    for (uint64_t i = ix->n_sheets; i < ix->n_records; i++) {
        const struct sl_container_record *r = &ix->records[i];

        sl_mp_put_array(w, 6);
        sl_mp_put_uint(w, (uint64_t)r->layer);
        sl_mp_put_uint(w, (uint64_t)r->expert);
        sl_mp_put_uint(w, r->part);
        sl_mp_put_uint(w, r->offset);
        sl_mp_put_uint(w, r->bytes);
        sl_mp_put_sum(w, r->sum);
    }
}

static void put_tensors(const struct sl_gguf_tensor *tensors, uint32_t n, struct sl_mp_writer *w)
{
    sl_mp_put_str(w, SL_STR("tensors"));
    sl_mp_put_array(w, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_gguf_tensor *t = &tensors[i];

        sl_mp_put_array(w, 6);
        sl_mp_put_str(w, t->name);
        sl_mp_put_uint(w, t->type);
        sl_mp_put_array(w, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++) sl_mp_put_uint(w, t->dims[d]);
        sl_mp_put_uint(w, t->shard);
        sl_mp_put_uint(w, t->offset);
        sl_mp_put_uint(w, t->bytes);
    }
}

void sl_cn_index_encode(const struct sl_cn_index *ix, const struct sl_gg_meta *meta,
                        const struct sl_gguf_tensor *tensors, uint32_t n_tensors,
                        struct sl_mp_writer *w)
{
    sl_mp_put_map(w, 6);
    sl_mp_put_str(w, SL_STR("metadata"));
    sl_cn_meta_encode(meta, w);
    sl_mp_put_str(w, SL_STR("recipe"));
    sl_mp_put_str(w, ix->recipe);
    sl_mp_put_str(w, SL_STR("source"));
    sl_mp_put_sum(w, ix->source);
    put_segments(ix, w);
    put_experts(ix, w);
    put_tensors(tensors, n_tensors, w);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct decode {
    struct sl_mp_reader r;
    const struct sl_cn_extent *x;
    struct sl_gguf *g;
    struct sl_cn_index *ix;
    sluice_error *e;
};

static sluice_err fail(struct decode *d, sluice_err code, const char *what)
{
    return sl_cn_fail(d->e, code, d->x->path, "the index is broken: %s", what);
}

static sluice_err no_memory(struct decode *d, sluice_err code)
{
    return sl_cn_fail(d->e, code, d->x->path,
                      code == SLUICE_E_LIMIT ? "the container has too many records"
                                             : "no memory for the index");
}

/* What the cursor says, once a run of items was read. */
static sluice_err check_cursor(struct decode *d)
{
    if (d->r.failed == NULL) return SLUICE_OK;
    return sl_cn_fail(d->e, SLUICE_E_FORMAT, d->x->path,
                      "the index is broken: %s was wanted at its byte %" PRIu64, d->r.failed,
                      d->r.at);
}

static sluice_err get_metadata(struct decode *d)
{
    struct sl_gg_cursor *c = &d->g->head.c;
    uint64_t bytes = 0;

    sl_mp_expect(&d->r, "metadata");
    struct sl_mp_reader start = d->r;
    sl_cn_meta_decode(&d->r, NULL, &bytes);
    sluice_err err = check_cursor(d);
    if (err == SLUICE_OK && bytes > SL_GG_HEADER_MAX) err = no_memory(d, SLUICE_E_LIMIT);
    if (err != SLUICE_OK) return err;
    struct sl_region region;
    err = sl_region_reserve(&region, d->g->budget, bytes);
    if (err != SLUICE_OK) return no_memory(d, err);
    err = sl_region_commit(&region, bytes);
    if (err != SLUICE_OK) {
        sl_region_deinit(&region);
        return no_memory(d, err);
    }
    sl_cn_meta_decode(&start, region.base, &bytes);
    sl_gg_cursor_init_memory(c, region.base, bytes, d->e);
    c->region = region; /* the cursor's from here on */
    c->path = d->x->path;
    return SLUICE_OK;
}

static sluice_err get_made(struct decode *d)
{
    sl_mp_expect(&d->r, "recipe");
    struct sl_str s = sl_mp_get_str(&d->r);
    sl_mp_expect(&d->r, "source");
    d->ix->source = sl_mp_get_uint(&d->r, UINT64_MAX);
    sluice_err err = check_cursor(d);
    if (err != SLUICE_OK) return err;
    if (s.n > SL_CN_RECIPE_MAX) return fail(d, SLUICE_E_LIMIT, "its recipe is too long");
    void *block = NULL;
    uint64_t capacity = 0;
    err = sl_grow(d->g->budget, &block, &capacity, s.n + 1, 1);
    if (err != SLUICE_OK) return no_memory(d, err);
    memcpy(block, s.p, s.n); /* the block was zeroed */
    d->ix->recipe = (struct sl_str){block, s.n};
    return SLUICE_OK;
}

static sluice_err get_segment(struct decode *d)
{
    (void)sl_mp_get_array(&d->r, 4, 4);
    uint32_t part = (uint32_t)sl_mp_get_uint(&d->r, d->x->n_parts - 1);
    uint64_t offset = sl_mp_get_uint(&d->r, INT64_MAX);
    uint64_t bytes = sl_mp_get_uint(&d->r, INT64_MAX);
    struct sl_str sums = sl_mp_get_bin(&d->r);
    sluice_err err = check_cursor(d);
    if (err != SLUICE_OK) return err;
    uint64_t n = bytes / SL_CN_SHEET_BYTES + (bytes % SL_CN_SHEET_BYTES != 0);
    if (bytes == 0 || bytes % SL_CN_ALIGN != 0 || sums.n != 8 * n)
        return fail(d, SLUICE_E_FORMAT, "a segment's size and its checksums do not agree");
    uint64_t first = d->ix->n_records;
    err = sl_cn_add_segment(d->ix, d->g->budget, part, offset, bytes);
    if (err != SLUICE_OK) return no_memory(d, err);
    for (uint64_t i = 0; i < n; i++)
        d->ix->records[first + i].sum = sl_gg_load_u64((const unsigned char *)sums.p + 8 * i);
    return SLUICE_OK;
}

static sluice_err get_segments(struct decode *d)
{
    sl_mp_expect(&d->r, "segments");
    uint64_t n = sl_mp_get_array(&d->r, 0, d->x->n_parts);
    sluice_err err = check_cursor(d);

    for (uint64_t i = 0; i < n && err == SLUICE_OK; i++) err = get_segment(d);
    return err;
}

/* Experts are listed in ascending order, so that none is there twice. */
static sluice_err get_expert(struct decode *d)
{
    struct sl_cn_index *ix = d->ix;
    struct sl_container_record r;
    uint64_t n = ix->n_records;

    (void)sl_mp_get_array(&d->r, 6, 6);
    r.layer = (int32_t)sl_mp_get_uint(&d->r, SL_LAYERS_MAX - 1);
    r.expert = (int32_t)sl_mp_get_uint(&d->r, SL_EXPERTS_MAX - 1);
    r.part = (uint32_t)sl_mp_get_uint(&d->r, d->x->n_parts - 1);
    r.offset = sl_mp_get_uint(&d->r, INT64_MAX);
    r.bytes = sl_mp_get_uint(&d->r, INT64_MAX);
    r.sum = sl_mp_get_uint(&d->r, UINT64_MAX);
    sluice_err err = check_cursor(d);
    if (err != SLUICE_OK) return err;
    if (r.bytes == 0 || r.bytes % SL_CN_ALIGN != 0)
        return fail(d, SLUICE_E_FORMAT, "the size of an expert's record");
    if (n > ix->n_sheets &&
        (r.layer < ix->records[n - 1].layer ||
         (r.layer == ix->records[n - 1].layer && r.expert <= ix->records[n - 1].expert)))
        return fail(d, SLUICE_E_FORMAT, "experts are not in order");
    err = sl_cn_add_expert(ix, d->g->budget, &r);
    return err == SLUICE_OK ? err : no_memory(d, err);
}

static sluice_err get_experts(struct decode *d)
{
    sl_mp_expect(&d->r, "experts");
    uint64_t n = sl_mp_get_array(&d->r, 0, SL_CN_RECORDS_MAX);
    sluice_err err = check_cursor(d);

    for (uint64_t i = 0; i < n && err == SLUICE_OK; i++) err = get_expert(d);
    return err;
}

/* Records fill every part from its header to its end, or the last one to the index. */
static sluice_err check_records(struct decode *d)
{
    const struct sl_cn_extent *x = d->x;
    uint32_t part = 0;
    uint64_t at = SL_CN_HEADER_BYTES;

    for (uint64_t i = 0; i < d->ix->n_records; i++) {
        const struct sl_container_record *r = &d->ix->records[i];

        if (r->part == part + 1 && at == x->part_bytes[part]) {
            part++;
            at = SL_CN_HEADER_BYTES;
        }
        if (r->part != part || r->offset != at || r->bytes > x->part_bytes[part] - at)
            return fail(d, SLUICE_E_FORMAT, "records do not follow one another");
        at += r->bytes;
    }
    if (part + 2 == x->n_parts && at == x->part_bytes[part]) {
        part++;
        at = SL_CN_HEADER_BYTES;
    }
    if (part + 1 != x->n_parts || at != x->part_bytes[part])
        return fail(d, SLUICE_E_FORMAT, "records do not fill the files");
    return SLUICE_OK;
}

/* ---- names of experts ------------------------------------------------------------------------ */

bool sl_cn_expert_of(struct sl_str name, int32_t *layer, int32_t *expert)
{
    static const char *const parts[] = {"gate", "up", "down"};
    char text[SL_NAME_MAX + 1], wanted[64], kind[8];

    sl_str_show(name, text, sizeof text);
    if (sscanf(text, "blk.%4" SCNd32 ".ffn_%7[a-z].%4" SCNd32, layer, kind, expert) != 3)
        return false;
    for (size_t i = 0; i < SL_ARRAY_LEN(parts); i++) {
        snprintf(wanted, sizeof wanted, "blk.%" PRId32 ".ffn_%s.%" PRId32 ".weight", *layer,
                 parts[i], *expert);
        if (strcmp(text, wanted) == 0) return true;
    }
    return false;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The i-th of the segments and then the experts: places that hold tensors. */
static bool home_at(const struct sl_cn_index *ix, uint64_t i, struct sl_cn_segment *out)
{
    if (i < ix->n_segments) {
        *out = ix->segments[i];
        return true;
    }
    i = i - ix->n_segments + ix->n_sheets;
    if (i >= ix->n_records) return false;
    *out = (struct sl_cn_segment){.offset = ix->records[i].offset,
                                  .bytes = ix->records[i].bytes,
                                  .first_record = i,
                                  .part = ix->records[i].part};
    return true;
}

/* The parts of an expert lie in its own record, and nothing else does. */
static bool is_at_home(const struct sl_cn_index *ix, const struct sl_gguf_tensor *t,
                       const struct sl_cn_segment *home)
{
    int32_t layer, expert;
    bool routed = sl_cn_expert_of(t->name, &layer, &expert);
    const struct sl_container_record *r = &ix->records[home->first_record];

    if (r->layer < 0) return !routed;
    return routed && r->layer == layer && r->expert == expert;
}

static sluice_err check_tensor(struct decode *d, struct sl_gguf_tensor *t, uint64_t bytes)
{
    char name[SL_GG_SHOW_MAX];

    sl_str_show(t->name, name, sizeof name);
    if (t->name.n == 0 || t->name.n > SL_NAME_MAX)
        return fail(d, SLUICE_E_FORMAT, "the name of a tensor");
    if (!sl_cn_type_known(t->type))
        return sl_cn_fail(d->e, SLUICE_E_UNSUPPORTED, d->x->path,
                          "tensor '%s' has the type %" PRIu32
                          ", which this build does not support; a newer Sluice may be needed",
                          name, t->type);
    if (!sl_cn_measure(t) || t->bytes != bytes)
        return sl_cn_fail(d->e, SLUICE_E_FORMAT, d->x->path,
                          "the index is broken: the size of tensor '%s' does not fit its type",
                          name);
    return SLUICE_OK;
}

static sluice_err get_tensor(struct decode *d, struct sl_gguf_tensor *t)
{
    (void)sl_mp_get_array(&d->r, 6, 6);
    t->name = sl_mp_get_str(&d->r);
    t->type = (uint32_t)sl_mp_get_uint(&d->r, UINT32_MAX);
    t->n_dims = (uint32_t)sl_mp_get_array(&d->r, 1, DIMS_MAX);
    for (uint32_t i = 0; i < DIMS_MAX; i++)
        t->dims[i] = i < t->n_dims ? sl_mp_get_uint(&d->r, INT64_MAX) : 1;
    t->shard = (uint32_t)sl_mp_get_uint(&d->r, d->x->n_parts - 1);
    t->offset = sl_mp_get_uint(&d->r, INT64_MAX);
    uint64_t bytes = sl_mp_get_uint(&d->r, INT64_MAX);
    sluice_err err = check_cursor(d);
    return err == SLUICE_OK ? check_tensor(d, t, bytes) : err;
}

/* Every tensor lies in one home, after the one before it. */
static sluice_err check_places(struct decode *d)
{
    char name[SL_GG_SHOW_MAX];
    struct sl_cn_segment home;
    uint64_t next_home = 1, end = 0;
    bool there = home_at(d->ix, 0, &home);

    if (there) end = home.offset;
    for (uint32_t i = 0; i < d->g->n_tensors; i++) {
        const struct sl_gguf_tensor *t = &d->g->tensors[i];

        while (there && (t->shard > home.part ||
                         (t->shard == home.part && t->offset >= home.offset + home.bytes))) {
            there = home_at(d->ix, next_home++, &home);
            if (there) end = home.offset;
        }
        if (!there || t->shard != home.part || t->offset < end ||
            t->offset % SL_CN_TENSOR_ALIGN != 0 || t->bytes > home.offset + home.bytes - t->offset)
            return sl_cn_fail(d->e, SLUICE_E_FORMAT, d->x->path,
                              "the index is broken: the place of tensor '%s'",
                              sl_str_show(t->name, name, sizeof name));
        if (!is_at_home(d->ix, t, &home))
            return sl_cn_fail(
                d->e, SLUICE_E_FORMAT, d->x->path,
                "the index is broken: tensor '%s' lies in the record of something else",
                sl_str_show(t->name, name, sizeof name));
        end = t->offset + t->bytes;
    }
    return SLUICE_OK;
}

static sluice_err copy_names(struct decode *d)
{
    uint64_t bytes = 1;

    for (uint32_t i = 0; i < d->g->n_tensors; i++) bytes += d->g->tensors[i].name.n;
    char *p = sl_arena_alloc(&d->g->names, bytes, 1);
    if (p == NULL) return sl_gg_no_memory(d->g->budget, bytes, d->x->path, d->e);
    for (uint32_t i = 0; i < d->g->n_tensors; i++) {
        struct sl_str *name = &d->g->tensors[i].name;

        memcpy(p, name->p, name->n);
        name->p = p;
        p += name->n;
    }
    return SLUICE_OK;
}

static sluice_err get_tensors(struct decode *d)
{
    struct sl_gguf *g = d->g;

    sl_mp_expect(&d->r, "tensors");
    uint64_t n = sl_mp_get_array(&d->r, 0, SL_GGUF_TENSORS_MAX);
    sluice_err err = check_cursor(d);
    if (err == SLUICE_OK && n > 0)
        err = sl_grow(g->budget, &g->tensors, &g->tensors_capacity, n, sizeof *g->tensors);
    if (err != SLUICE_OK) return d->r.failed != NULL ? err : no_memory(d, err);
    for (uint64_t i = 0; i < n && err == SLUICE_OK; i++) err = get_tensor(d, &g->tensors[i]);
    if (err != SLUICE_OK) return err;
    g->n_tensors = (uint32_t)n;
    err = check_places(d);
    return err == SLUICE_OK ? copy_names(d) : err;
}

sluice_err sl_cn_index_decode(const void *bytes, uint64_t n, const struct sl_cn_extent *x,
                              struct sl_gguf *g, struct sl_cn_index *ix, sluice_error *e)
{
    struct decode d = {.x = x, .g = g, .ix = ix, .e = e};

    SLUICE_ASSERT(x->n_parts >= 1 && x->n_parts <= SL_CN_PARTS_MAX);
    sl_mp_read(&d.r, bytes, n);
    uint64_t pairs = sl_mp_get_map(&d.r);
    if (pairs < 6) sl_mp_fail(&d.r, "a map of 6 pairs or more");
    sluice_err err = check_cursor(&d);
    if (err == SLUICE_OK) err = get_metadata(&d);
    if (err == SLUICE_OK) err = get_made(&d);
    if (err == SLUICE_OK) err = get_segments(&d);
    if (err == SLUICE_OK) err = get_experts(&d);
    if (err == SLUICE_OK) err = check_records(&d);
    if (err == SLUICE_OK) err = get_tensors(&d);
    if (err != SLUICE_OK) return err;
    for (uint64_t i = 6; i < pairs; i++) { /* of a later revision of this version */
        (void)sl_mp_get_str(&d.r);
        sl_mp_skip(&d.r);
    }
    err = check_cursor(&d);
    if (err == SLUICE_OK && d.r.at != n) err = fail(&d, SLUICE_E_FORMAT, "bytes follow it");
    return err;
}
