/* Opening containers. The headers of all parts are read and compared, then the index, which lies at
 * the end of the last; out of it comes a struct sl_gguf like one that was read from a GGUF. */
#include "formats/container.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/checksum.h"
#include "formats/container_internal.h"

struct sl_container {
    struct sl_gguf *model; /* NULL: was taken */
    struct sl_cn_index index;
    struct sl_cn_header header; /* of the first part */
};

/* What opening needs and nothing later. */
struct opening {
    struct sl_container *c;
    struct sl_budget *budget;
    sluice_error *e;
    unsigned char block[SL_CN_HEADER_BYTES];
    struct sl_cn_extent extent;
};

sluice_err sl_container_probe(const char *path, struct sl_budget *b, sluice_error *e,
                              bool *is_container)
{
    unsigned char start[8];
    struct sl_file *f;

    *is_container = false;
    sluice_err err = sl_file_open(path, b, e, &f);
    if (err != SLUICE_OK) return err;
    if (sl_file_bytes(f) >= sizeof start) {
        err = sl_file_read_at(f, 0, start, sizeof start, e);
        if (err == SLUICE_OK) *is_container = sl_cn_has_magic(start);
    }
    sl_file_close(f);
    return err;
}

/* ---- files ----------------------------------------------------------------------------------- */

static sluice_err read_header(struct opening *o, struct sl_file *f, struct sl_cn_header *h)
{
    const char *path = sl_file_path(f);

    if (sl_file_bytes(f) < SL_CN_HEADER_BYTES)
        return sl_cn_fail(o->e, SLUICE_E_TRUNCATED, path,
                          "file is %" PRIu64 " bytes, too few for a container: download incomplete",
                          sl_file_bytes(f));
    sluice_err err = sl_file_read_at(f, 0, o->block, SL_CN_HEADER_BYTES, o->e);
    if (err != SLUICE_OK) return err;
    return sl_cn_header_decode(o->block, sl_file_bytes(f), path, h, o->e);
}

static bool same_container(const struct sl_cn_header *a, const struct sl_cn_header *b)
{
    return a->n_parts == b->n_parts && a->total_bytes == b->total_bytes &&
           a->index_offset == b->index_offset && a->index_bytes == b->index_bytes &&
           a->index_sum == b->index_sum;
}

/* Opens part i, and adds its size. first: the header of the part that was asked for. */
static sluice_err open_part(struct opening *o, const char *whole, uint32_t i,
                            const struct sl_cn_header *first, uint64_t *total)
{
    struct sl_gguf *g = o->c->model;
    struct sl_cn_header h;
    char *path = sl_cn_part_path(whole, i, first->n_parts, "", o->budget);

    if (path == NULL)
        return sl_fail(o->e, SLUICE_E_NOMEM, "no memory to open part %" PRIu32 " of the model", i);
    sluice_err err = sl_file_open(path, o->budget, o->e, &g->files[i]);
    if (err == SLUICE_E_NOT_FOUND)
        err = sl_cn_fail(o->e, err, path,
                         "there is no such file, and it is part %" PRIu32 " of %" PRIu32
                         " of the container; parts keep the names that they were written with",
                         i + 1, first->n_parts);
    sl_free(path);
    if (err != SLUICE_OK) return err;
    err = read_header(o, g->files[i], &h);
    if (err != SLUICE_OK) return err;
    if (h.part != i || !same_container(&h, first))
        return sl_cn_fail(o->e, SLUICE_E_FORMAT, sl_file_path(g->files[i]),
                          "this is not part %" PRIu32 " of %" PRIu32
                          " of the same container; parts of two containers were mixed",
                          i + 1, first->n_parts);
    if (i == 0) o->c->header = h;
    o->extent.part_bytes[i] = h.file_bytes;
    *total += h.file_bytes; /* at most 1024 of at most 2^63, each below total_bytes or refused */
    return SLUICE_OK;
}

static sluice_err open_parts(struct opening *o, const char *path)
{
    struct sl_gguf *g = o->c->model;
    struct sl_cn_header first;
    struct sl_file *f;
    uint64_t total = 0;

    sluice_err err = sl_file_open(path, o->budget, o->e, &f);
    if (err != SLUICE_OK) return err;
    err = read_header(o, f, &first);
    sl_file_close(f);
    if (err != SLUICE_OK) return err;
    g->files = sl_alloc(o->budget, first.n_parts, sizeof *g->files);
    char *whole = sl_cn_whole_path(path, first.part, first.n_parts, o->budget);
    if (g->files == NULL || whole == NULL)
        err = sl_fail(o->e, SLUICE_E_NOMEM, "no memory to open the parts of the model");
    else
        g->n_files = first.n_parts;
    for (uint32_t i = 0; i < first.n_parts && err == SLUICE_OK; i++) {
        err = open_part(o, whole, i, &first, &total);
        if (err == SLUICE_OK && total > first.total_bytes) break;
    }
    sl_free(whole);
    if (err == SLUICE_OK && total != first.total_bytes)
        err =
            sl_cn_fail(o->e, SLUICE_E_FORMAT, path, "the sizes of the parts contradict each other");
    if (err != SLUICE_OK) return err;
    o->extent.n_parts = first.n_parts;
    o->extent.part_bytes[first.n_parts - 1] = first.index_offset;
    return SLUICE_OK;
}

/* ---- the index ------------------------------------------------------------------------------- */

static sluice_err check_padding(const unsigned char *p, uint64_t from, uint64_t to,
                                const char *path, sluice_error *e)
{
    for (; from < to; from++) {
        if (p[from] != 0)
            return sl_cn_fail(e, SLUICE_E_FORMAT, path, "the padding of the index is not zero");
    }
    return SLUICE_OK;
}

static sluice_err read_index(struct opening *o)
{
    const struct sl_cn_header *h = &o->c->header;
    struct sl_gguf *g = o->c->model;
    struct sl_file *f = g->files[h->n_parts - 1];
    void *block = NULL;
    uint64_t capacity = 0, padded = 0;
    bool fits = sl_align_ok(h->index_bytes, SL_CN_ALIGN, &padded);

    SLUICE_ASSERT(fits); /* the header was checked */
    o->extent.path = sl_file_path(f);
    sluice_err err = sl_grow(o->budget, &block, &capacity, padded, 1);
    if (err != SLUICE_OK)
        return sl_cn_fail(o->e, err, o->extent.path, "no memory for an index of %" PRIu64 " bytes",
                          padded);
    err = sl_file_read_at(f, h->index_offset, block, padded, o->e);
    if (err == SLUICE_OK && sl_xxh3(block, padded) != h->index_sum) {
        err = sl_cn_fail(o->e, SLUICE_E_CORRUPT, o->extent.path,
                         "the index does not match its checksum: the file is damaged");
        if (o->e != NULL) o->e->file_offset = h->index_offset;
    }
    if (err == SLUICE_OK) err = check_padding(block, h->index_bytes, padded, o->extent.path, o->e);
    if (err == SLUICE_OK)
        err = sl_cn_index_decode(block, h->index_bytes, &o->extent, g, &o->c->index, o->e);
    sl_free(block);
    sl_file_drop_cache(f, h->index_offset, padded);
    return err;
}

/* Reads the metadata that decoding left, and indexes the tensors. */
static sluice_err finish_model(struct opening *o)
{
    char name[SL_GG_SHOW_MAX];
    struct sl_gguf *g = o->c->model;
    const struct sl_gguf_tensor *t = g->tensors;
    uint32_t bad = 0;

    g->head.c.e = o->e;
    sluice_err err = sl_gg_head_read(&g->head, g->budget);
    g->head.c.e = NULL;
    g->head.c.path = g->path;
    g->head.meta.path = g->path;
    if (err != SLUICE_OK) return err;
    if (g->head.c.at != g->head.c.file_bytes)
        return sl_cn_fail(o->e, SLUICE_E_FORMAT, g->path, "bytes follow the metadata");
    err = sl_gg_index_build(&g->tensor_index, g->budget, t, g->n_tensors, sizeof *t, &bad);
    if (err == SLUICE_E_NOMEM)
        return sl_gg_no_memory(g->budget, 8 * (uint64_t)g->n_tensors, g->path, o->e);
    if (err == SLUICE_OK) return err;
    if (bad == g->n_tensors)
        return sl_cn_fail(o->e, err, g->path, "the names of tensors were made to collide");
    return sl_cn_fail(o->e, err, g->path, "tensor '%s' is there twice",
                      sl_str_show(t[bad].name, name, sizeof name));
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What the model's reader keeps of the index. */
static void hand_over(struct sl_container *c)
{
    c->model->recipe = c->index.recipe;
    c->model->source = c->index.source;
    c->index.recipe = (struct sl_str){NULL, 0};
    c->model->records = c->index.records;
    c->model->n_records = c->index.n_records;
    c->index.records = NULL;
    c->index.n_records = 0;
}

sluice_err sl_container_open(const char *path, struct sl_budget *b, sluice_error *e,
                             struct sl_container **out)
{
    SLUICE_ASSERT(path != NULL && b != NULL && out != NULL);
    *out = NULL;
    struct opening *o = sl_alloc(b, 1, sizeof *o);
    struct sl_container *c = sl_alloc(b, 1, sizeof *c);
    if (o == NULL || c == NULL) {
        sl_free(o);
        sl_free(c);
        return sl_gg_no_memory(b, sizeof *o + sizeof *c, path, e);
    }
    o->c = c;
    o->budget = b;
    o->e = e;
    sluice_err err = sl_gg_create(path, b, e, &c->model);
    if (err == SLUICE_OK) err = open_parts(o, path);
    if (err == SLUICE_OK) err = read_index(o);
    if (err == SLUICE_OK) err = finish_model(o);
    sl_free(o);
    if (err == SLUICE_OK) hand_over(c);
    if (err != SLUICE_OK) {
        sl_container_close(c);
        return err;
    }
    *out = c;
    return SLUICE_OK;
}

void sl_container_close(struct sl_container *c)
{
    if (c == NULL) return;
    sl_gguf_close(c->model);
    sl_cn_index_deinit(&c->index);
    sl_free(c);
}

struct sl_gguf *sl_container_model(struct sl_container *c) { return c->model; }

struct sl_gguf *sl_container_take_model(struct sl_container *c)
{
    struct sl_gguf *g = c->model;

    SLUICE_ASSERT(g != NULL);
    c->model = NULL;
    return g;
}

uint64_t sl_container_n_records(const struct sl_container *c)
{
    return c->model != NULL ? c->model->n_records : 0;
}

const struct sl_container_record *sl_container_record(const struct sl_container *c, uint64_t index)
{
    SLUICE_ASSERT(index < sl_container_n_records(c));
    return &c->model->records[index];
}
