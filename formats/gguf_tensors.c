/* The second part of a GGUF header: one entry a tensor. Checks the geometry of each (sizes, type,
 * whole blocks, products that fit) and then all extents against the file: on the alignment, inside
 * the file, none on top of another.
 *
 * Names are copied here, so that the header they come from need not stay. */
#include "formats/gguf_internal.h"

#include <inttypes.h>
#include <string.h>

#define DIMS_MAX 4

static sluice_err fail_type(struct sl_gg_cursor *c, uint32_t type, const char *name)
{
    const char *known = sl_type_name(type);

    if (sl_type_info(type) != NULL)
        return sl_gg_fail(c, SLUICE_E_UNSUPPORTED,
                          "tensor '%s' has the type %s (%" PRIu32
                          "), which is for containers (.sluice); a GGUF cannot hold it",
                          name, known, type);
    return sl_gg_fail(
        c, SLUICE_E_UNSUPPORTED,
        "tensor '%s' has the type %s (%" PRIu32 "), which this build does not support; "
        "supported: %s. The file is not damaged: a newer version of Sluice may be needed",
        name, known != NULL ? known : "unknown", type, sl_type_supported_list());
}

/* The derived sizes of t, whose dims and type come from the file as they are. */
static sluice_err measure(struct sl_gg_cursor *c, struct sl_gguf_tensor *t)
{
    char name[SL_GG_SHOW_MAX];
    uint64_t rows = 1, elements;
    const struct sl_type_info *info = sl_type_info(t->type);

    sl_str_show(t->name, name, sizeof name);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] == 0) {
            return sl_gg_fail(c, SLUICE_E_FORMAT, "dimension %" PRIu32 " of tensor '%s' is 0", i,
                              name);
        }
    }
    if (!sl_type_in_gguf(t->type)) return fail_type(c, t->type, name);
    if (t->dims[0] % info->block_cols != 0) {
        return sl_gg_fail(c, SLUICE_E_FORMAT,
                          "rows of tensor '%s' have %" PRIu64
                          " elements, no multiple of the %" PRIu32 " of a %s block",
                          name, t->dims[0], info->block_cols, info->name);
    }
    if (!sl_mul_ok(t->dims[1], t->dims[2], &rows) || !sl_mul_ok(rows, t->dims[3], &rows) ||
        !sl_mul_ok(rows, t->dims[0], &elements) ||
        !sl_type_row_bytes(t->type, t->dims[0], &t->row_bytes) ||
        !sl_mul_ok(rows, t->row_bytes, &t->bytes)) {
        return sl_gg_fail(c, SLUICE_E_FORMAT,
                          "tensor '%s' [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                          "] is too large for any memory",
                          name, t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    }
    return SLUICE_OK;
}

static sluice_err read_tensor(struct sl_gg_cursor *c, struct sl_gguf_tensor *t)
{
    char name[SL_GG_SHOW_MAX];
    sluice_err err;

    c->what = "the name of a tensor";
    c->name = (struct sl_str){"", 0};
    err = sl_gg_read_str(c, &t->name);
    if (err != SLUICE_OK) return err;
    if (t->name.n == 0) return sl_gg_fail(c, SLUICE_E_FORMAT, "a tensor has an empty name");
    if (t->name.n > SL_NAME_MAX) {
        return sl_gg_fail(c, SLUICE_E_LIMIT, "the name of a tensor has %zu bytes, the limit is %d",
                          t->name.n, SL_NAME_MAX);
    }
    c->what = "the entry of tensor";
    c->name = t->name;
    err = sl_gg_read_u32(c, &t->n_dims);
    if (err != SLUICE_OK) return err;
    if (t->n_dims == 0 || t->n_dims > DIMS_MAX) {
        return sl_gg_fail(c, SLUICE_E_FORMAT,
                          "tensor '%s' has %" PRIu32 " dimensions, wanted 1 to %d",
                          sl_str_show(t->name, name, sizeof name), t->n_dims, DIMS_MAX);
    }
    for (uint32_t i = 0; i < DIMS_MAX; i++) t->dims[i] = 1;
    for (uint32_t i = 0; i < t->n_dims && err == SLUICE_OK; i++)
        err = sl_gg_read_u64(c, &t->dims[i]);
    if (err == SLUICE_OK) err = sl_gg_read_u32(c, &t->type);
    if (err == SLUICE_OK) err = sl_gg_read_u64(c, &t->offset);
    return err == SLUICE_OK ? measure(c, t) : err;
}

/* ---- extents --------------------------------------------------------------------------------- */

/* Makes offsets absolute. Reports the tensor that reaches farthest past the end of the file, since
 * its end says how long the file should be. */
static sluice_err place(struct sl_gg_cursor *c, struct sl_gguf_tensor *t, uint32_t n,
                        uint32_t alignment)
{
    char name[SL_GG_SHOW_MAX];
    uint64_t start, end, needed = 0;

    if (!sl_align_ok(c->at, alignment, &start)) start = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (t[i].offset % alignment != 0) {
            return sl_gg_fail(c, SLUICE_E_FORMAT,
                              "tensor '%s' is at offset %" PRIu64
                              ", no multiple of the alignment %" PRIu32,
                              sl_str_show(t[i].name, name, sizeof name), t[i].offset, alignment);
        }
        if (!sl_add_ok(start, t[i].offset, &t[i].offset) ||
            !sl_add_ok(t[i].offset, t[i].bytes, &end)) {
            return sl_gg_fail(c, SLUICE_E_FORMAT, "tensor '%s' ends beyond any file",
                              sl_str_show(t[i].name, name, sizeof name));
        }
        needed = sl_max_u64(needed, end);
    }
    if (needed > c->file_bytes) {
        c->at = c->file_bytes;
        return sl_gg_fail(c, SLUICE_E_TRUNCATED,
                          "file is %" PRIu64 " bytes, needs %" PRIu64
                          ": download incomplete (or the file is damaged)",
                          c->file_bytes, needed);
    }
    return SLUICE_OK;
}

static void sift_down(uint32_t *order, uint32_t root, uint32_t n, const struct sl_gguf_tensor *t)
{
    uint32_t v = order[root];

    for (uint64_t child; (child = 2 * (uint64_t)root + 1) < n; root = (uint32_t)child) {
        if (child + 1 < n && t[order[child]].offset < t[order[child + 1]].offset) child++;
        if (t[order[child]].offset <= t[v].offset) break;
        order[root] = order[child];
    }
    order[root] = v;
}

/* Fills order with the tensors by ascending offset. A heap sort: the order of a hostile file costs
 * no more. */
void sl_gg_sort_by_offset(uint32_t *order, uint32_t n, const struct sl_gguf_tensor *t)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n / 2; i-- > 0;) sift_down(order, i, n, t);
    for (uint32_t last = n; last-- > 1;) {
        uint32_t top = order[0];

        order[0] = order[last];
        order[last] = top;
        sift_down(order, 0, last, t);
    }
}

static sluice_err check_overlap(struct sl_gguf *g, struct sl_gg_cursor *c,
                                const struct sl_gguf_tensor *t, uint32_t n)
{
    char first[SL_GG_SHOW_MAX], second[SL_GG_SHOW_MAX];
    uint32_t *order = sl_alloc(g->budget, n, sizeof *order);
    sluice_err err = SLUICE_OK;

    if (order == NULL) return sl_gg_no_memory(g->budget, n * sizeof *order, c->path, c->e);
    sl_gg_sort_by_offset(order, n, t);
    for (uint32_t i = 1; i < n && err == SLUICE_OK; i++) {
        const struct sl_gguf_tensor *a = &t[order[i - 1]], *b = &t[order[i]];

        if (a->offset + a->bytes <= b->offset) continue;
        err = sl_gg_fail(c, SLUICE_E_FORMAT, "tensors '%s' and '%s' overlap at offset %" PRIu64,
                         sl_str_show(a->name, first, sizeof first),
                         sl_str_show(b->name, second, sizeof second), b->offset);
    }
    sl_free(order);
    return err;
}

/* ---- the list -------------------------------------------------------------------------------- */

static sluice_err copy_names(struct sl_gguf *g, struct sl_gg_cursor *c, struct sl_gguf_tensor *t,
                             uint32_t n)
{
    uint64_t bytes = 0;
    char *p;

    for (uint32_t i = 0; i < n; i++) bytes += t[i].name.n;
    p = sl_arena_alloc(&g->names, sl_max_u64(bytes, 1), 1);
    if (p == NULL) return sl_gg_no_memory(g->budget, bytes, c->path, c->e);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(p, t[i].name.p, t[i].name.n);
        t[i].name.p = p;
        p += t[i].name.n;
    }
    return SLUICE_OK;
}

sluice_err sl_gg_tensors_read(struct sl_gguf *g, struct sl_gg_head *h, uint32_t shard)
{
    uint32_t n = h->n_tensors;
    struct sl_gguf_tensor *t;
    sluice_err err;

    if (n == 0) return SLUICE_OK;
    if (n > SL_GGUF_TENSORS_MAX - g->n_tensors) {
        return sl_gg_fail(&h->c, SLUICE_E_LIMIT, "the files hold more than %u tensors",
                          SL_GGUF_TENSORS_MAX);
    }
    if (g->n_tensors + n > g->tensors_capacity) {
        err = sl_grow(g->budget, &g->tensors, &g->tensors_capacity, g->n_tensors + n,
                      sizeof *g->tensors);
        if (err != SLUICE_OK) {
            return sl_gg_fail(&h->c, err, "no memory for a table of %" PRIu32 " tensors",
                              g->n_tensors + n);
        }
    }
    t = g->tensors + g->n_tensors;
    for (uint32_t i = 0; i < n; i++) {
        t[i].shard = shard;
        err = read_tensor(&h->c, &t[i]);
        if (err != SLUICE_OK) return err;
    }
    h->c.what = "the header";
    h->c.name = (struct sl_str){"", 0};
    err = place(&h->c, t, n, h->alignment);
    if (err == SLUICE_OK) err = check_overlap(g, &h->c, t, n);
    if (err == SLUICE_OK) err = copy_names(g, &h->c, t, n);
    if (err == SLUICE_OK) g->n_tensors += n;
    return err;
}
