/* Opening and closing of GGUF models, and their tensor table.
 *
 * Opening reads the metadata of the given file first. A whole file is read on; a file of a split
 * model is closed again, and all files of the model are opened in order, because metadata comes
 * from the first. */
#include "formats/container.h"
#include "formats/gguf_internal.h"

#include <inttypes.h>
#include <string.h>

#define NAMES_CHUNK_BYTES 4096
#define MADE_CHUNK_BYTES 4096

/* ---- opening --------------------------------------------------------------------------------- */

sluice_err sl_gg_create(const char *path, struct sl_budget *b, sluice_error *e,
                        struct sl_gguf **out)
{
    size_t n = strlen(path);
    struct sl_gguf *g = sl_alloc(b, 1, sizeof *g);

    if (g == NULL) return sl_gg_no_memory(b, sizeof *g, path, e);
    g->budget = b;
    sl_arena_init(&g->names, b, NAMES_CHUNK_BYTES);
    g->path = sl_alloc(b, n + 1, 1);
    g->made = sl_alloc(b, 1, sizeof *g->made);
    if (g->path == NULL || g->made == NULL) {
        sluice_err err = sl_gg_no_memory(b, n + 1 + sizeof *g->made, path, e);

        sl_gguf_close(g);
        return err;
    }
    memcpy(g->path, path, n + 1);
    sl_arena_init(&g->made->arena, b, MADE_CHUNK_BYTES);
    *out = g;
    return SLUICE_OK;
}

static sluice_err index_tensors(struct sl_gguf *g, sluice_error *e)
{
    char path[SL_GG_SHOW_PATH_MAX], name[SL_GG_SHOW_MAX];
    const struct sl_gguf_tensor *t = g->tensors;
    uint32_t bad = 0;
    sluice_err err =
        sl_gg_index_build(&g->tensor_index, g->budget, t, g->n_tensors, sizeof *t, &bad);

    if (err == SLUICE_OK) return err;
    if (err == SLUICE_E_NOMEM) {
        return sl_gg_no_memory(g->budget, 8 * (uint64_t)g->n_tensors, g->path, e);
    }
    sl_gg_show_path(g->path, path);
    if (bad == g->n_tensors) {
        return sl_fail(e, err, "%s: the names of tensors were made to collide", path);
    }
    if (g->n_files > 1) sl_gg_show_path(sl_file_path(g->files[t[bad].shard]), path);
    return sl_fail(e, err, "%s: tensor '%s' is there twice", path,
                   sl_str_show(t[bad].name, name, sizeof name));
}

/* A file that is the whole model; its metadata has been read into h. Takes over both. */
static sluice_err open_whole(struct sl_gguf *g, struct sl_file **f, struct sl_gg_head *h)
{
    g->head = *h;
    memset(h, 0, sizeof *h);
    g->files = sl_alloc(g->budget, 1, sizeof *g->files);
    if (g->files == NULL) return sl_gg_no_memory(g->budget, sizeof *g->files, g->path, g->head.c.e);
    g->n_files = 1;
    g->files[0] = *f;
    *f = NULL;
    return sl_gg_tensors_read(g, &g->head, 0);
}

static sluice_err open_files(struct sl_gguf *g, sluice_error *e)
{
    struct sl_file *f = NULL;
    struct sl_gg_head probe;
    uint32_t no, count;
    sluice_err err = sl_file_open(g->path, g->budget, e, &f);

    if (err != SLUICE_OK) return err;
    memset(&probe, 0, sizeof probe);
    err = sl_gg_cursor_init(&probe.c, f, g->budget, e);
    if (err == SLUICE_OK) err = sl_gg_head_read(&probe, g->budget);
    no = probe.split_no;
    count = probe.split_count;
    if (err == SLUICE_OK && count <= 1) err = open_whole(g, &f, &probe);
    sl_gg_head_deinit(&probe);
    if (f != NULL) sl_file_close(f);
    if (err == SLUICE_OK && count > 1) err = sl_gg_split_open(g, g->path, no, count, e);
    return err;
}

/* Gives back what was loaded past the end of the metadata, and forgets the caller's error. */
static void settle(struct sl_gguf *g)
{
    struct sl_gg_cursor *c = &g->head.c;

    if (c->region.base != NULL) sl_region_decommit(&c->region, c->at);
    c->loaded = sl_min_u64(c->loaded, c->at);
    c->e = NULL;
}

static sluice_err finish(struct sl_gguf *g, sluice_err err, sluice_error *e, struct sl_gguf **out)
{
    if (err == SLUICE_OK) err = index_tensors(g, e);
    if (err != SLUICE_OK) {
        sl_gguf_close(g);
        return err;
    }
    settle(g);
    *out = g;
    return SLUICE_OK;
}

static sluice_err open_container(const char *path, struct sl_budget *b, sluice_error *e,
                                 struct sl_gguf **out)
{
    struct sl_container *c;
    sluice_err err = sl_container_open(path, b, e, &c);

    if (err != SLUICE_OK) return err;
    *out = sl_container_take_model(c);
    sl_container_close(c);
    return SLUICE_OK;
}

sluice_err sl_gguf_open(const char *path, struct sl_budget *b, sluice_error *e,
                        struct sl_gguf **out)
{
    SLUICE_ASSERT(path != NULL && b != NULL && out != NULL);
    struct sl_gguf *g = NULL;
    bool container;

    *out = NULL;
    sluice_err err = sl_container_probe(path, b, e, &container);
    if (err == SLUICE_OK && container) {
        err = open_container(path, b, e, out);
    } else if (err == SLUICE_OK) {
        err = sl_gg_create(path, b, e, &g);
        if (err == SLUICE_OK) err = finish(g, open_files(g, e), e, out);
    }
    return err == SLUICE_OK ? err : sl_gg_explain(path, err, b, e);
}

sluice_err sl_gg_open_memory(const void *bytes, uint64_t n, struct sl_budget *b, sluice_error *e,
                             struct sl_gguf **out)
{
    struct sl_gguf *g = NULL;
    struct sl_file *none = NULL;
    struct sl_gg_head head;
    sluice_err err;

    *out = NULL;
    err = sl_gg_create("(memory)", b, e, &g);
    if (err != SLUICE_OK) return err;
    memset(&head, 0, sizeof head);
    sl_gg_cursor_init_memory(&head.c, bytes, n, e);
    err = sl_gg_head_read(&head, b);
    if (err == SLUICE_OK) err = open_whole(g, &none, &head);
    sl_gg_head_deinit(&head);
    return finish(g, err, e, out);
}

void sl_gguf_drop_metadata(struct sl_gguf *g)
{
    uint32_t version = g->head.version;

    sl_arena_deinit(&g->made->arena);
    memset(g->made, 0, sizeof *g->made);
    sl_arena_init(&g->made->arena, g->budget, MADE_CHUNK_BYTES);
    sl_gg_head_deinit(&g->head);
    g->head.version = version;
    g->head.meta.path = g->path;
}

void sl_gguf_close(struct sl_gguf *g)
{
    if (g == NULL) return;
    if (g->made != NULL) sl_arena_deinit(&g->made->arena);
    sl_free(g->made);
    sl_gg_index_deinit(&g->tensor_index);
    sl_free(g->tensors);
    sl_arena_deinit(&g->names);
    sl_gg_head_deinit(&g->head);
    for (uint32_t i = 0; i < g->n_files; i++) {
        if (g->files[i] != NULL) sl_file_close(g->files[i]);
    }
    sl_free(g->files);
    sl_free(g->records);
    sl_free((void *)(uintptr_t)g->recipe.p);
    sl_free(g->path);
    sl_free(g);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

const char *sl_gguf_path(const struct sl_gguf *g) { return g->path; }
uint32_t sl_gguf_version(const struct sl_gguf *g) { return g->head.version; }
uint32_t sl_gguf_n_files(const struct sl_gguf *g) { return g->n_files; }
uint32_t sl_gguf_n_tensors(const struct sl_gguf *g) { return g->n_tensors; }

struct sl_file *sl_gguf_file(const struct sl_gguf *g, uint32_t shard)
{
    SLUICE_ASSERT(shard < g->n_files);
    return g->files[shard];
}

const struct sl_gguf_tensor *sl_gguf_tensor(const struct sl_gguf *g, uint32_t index)
{
    SLUICE_ASSERT(index < g->n_tensors);
    return &g->tensors[index];
}

const struct sl_gguf_tensor *sl_gguf_find_tensor(const struct sl_gguf *g, const char *name)
{
    struct sl_str s = {name, strlen(name)};
    uint32_t i = sl_gg_index_find(&g->tensor_index, g->tensors, sizeof *g->tensors, s);

    return i == UINT32_MAX ? NULL : &g->tensors[i];
}
