/* Exchanging one layer between two files of a model; see gguf_graft.h. Everything of the donor that
 * is still needed (files, and of the group names, tensors and checksums) moves over, so that it can
 * be closed at once. */
#include "formats/gguf_graft.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf_internal.h"

#define LAYER_PREFIX "blk."

uint32_t sl_gguf_group(struct sl_str name)
{
    uint32_t layer = 0;
    size_t i = strlen(LAYER_PREFIX);

    if (sl_str_starts(name, "token_embd.")) return SL_GROUP_EMBEDDING;
    if (!sl_str_starts(name, LAYER_PREFIX)) return SL_GROUP_OUTPUT;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && layer < SL_GROUP_EMBEDDING; i++)
        layer = 10 * layer + (uint32_t)(name.p[i] - '0');
    bool good = i > strlen(LAYER_PREFIX) && i < name.n && name.p[i] == '.';
    return good && layer < SL_GROUP_EMBEDDING ? layer : SL_GROUP_OUTPUT;
}

const char *sl_gguf_group_text(uint32_t group, char *buf)
{
    if (group < SL_GROUP_EMBEDDING)
        snprintf(buf, SL_GROUP_TEXT, "layer %" PRIu32, group);
    else
        snprintf(buf, SL_GROUP_TEXT, group == SL_GROUP_EMBEDDING ? "embedding" : "output");
    return buf;
}

bool sl_gguf_is_grafted(const struct sl_gguf *g) { return g->grafted; }

/* ---- what goes and what comes ---------------------------------------------------------------- */

struct graft {
    struct sl_gguf *g, *from;
    uint32_t group;
    bool joined; /* embedding and output go together */
    sluice_error *e;
};

static bool is_in(const struct graft *x, const struct sl_gguf_tensor *t)
{
    uint32_t group = sl_gguf_group(t->name);

    if (x->joined && x->group >= SL_GROUP_EMBEDDING) return group >= SL_GROUP_EMBEDDING;
    return group == x->group;
}

struct count {
    uint64_t weights, name_bytes;
    uint32_t tensors;
};

static struct count count_of(const struct graft *x, const struct sl_gguf *g)
{
    struct count n = {0, 0, 0};

    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct sl_gguf_tensor *t = &g->tensors[i];

        if (!is_in(x, t)) continue;
        bool counts = !x->joined || !sl_str_eq(t->name, "output.weight"); /* one has it only */
        if (counts) n.weights += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        n.name_bytes += t->name.n;
        n.tensors++;
    }
    return n;
}

static sluice_err fail(const struct graft *x, sluice_err code, const char *what)
{
    char a[SL_GG_SHOW_PATH_MAX], b[SL_GG_SHOW_PATH_MAX];

    return sl_fail(x->e, code, "%s and %s: %s", sl_gg_show_path(x->from->path, a),
                   sl_gg_show_path(x->g->path, b), what);
}

/* Whether both may be the same model. That tensors fit is for the engine to see, as of any model.
 */
static sluice_err check(const struct graft *x, const struct count *goes, const struct count *comes)
{
    struct sl_str a = {"", 0}, b = {"", 0};
    char text[SL_GROUP_TEXT], what[128];

    sluice_err err = sl_gguf_str(x->g, "general.architecture", &a, x->e);
    if (err == SLUICE_OK) err = sl_gguf_str(x->from, "general.architecture", &b, x->e);
    if (err != SLUICE_OK) return err;
    if (a.n != b.n || memcmp(a.p, b.p, a.n) != 0)
        return fail(x, SLUICE_E_FORMAT, "they are of two architectures, so not the same model");
    sl_gguf_group_text(x->group, text);
    if (goes->tensors == 0 && comes->tensors == 0) {
        snprintf(what, sizeof what, "neither has a %s", text);
        return fail(x, SLUICE_E_NOT_FOUND, what);
    }
    if (goes->weights != comes->weights) {
        snprintf(what, sizeof what,
                 "%s has %" PRIu64 " weights in the first and %" PRIu64
                 " in the second, so they are not the same model",
                 text, comes->weights, goes->weights);
        return fail(x, SLUICE_E_FORMAT, what);
    }
    return x->g->n_files > SL_GGUF_SHARDS_MAX - x->from->n_files
               ? fail(x, SLUICE_E_LIMIT, "together they have too many files")
               : SLUICE_OK;
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static sluice_err no_memory(const struct graft *x, uint64_t bytes)
{
    return sl_gg_no_memory(x->g->budget, bytes, x->g->path, x->e);
}

static sluice_err join_files(const struct graft *x)
{
    struct sl_gguf *g = x->g, *from = x->from;
    struct sl_file **files = sl_alloc(g->budget, g->n_files + from->n_files, sizeof *files);

    if (files == NULL) return no_memory(x, (g->n_files + from->n_files) * sizeof *files);
    memcpy(files, g->files, g->n_files * sizeof *files);
    memcpy(files + g->n_files, from->files, from->n_files * sizeof *files);
    sl_free(g->files);
    g->files = files;
    g->n_files += from->n_files;
    from->n_files = 0; /* they are g's now */
    return SLUICE_OK;
}

/* first: the number of the donor's first file. */
static sluice_err join_records(const struct graft *x, uint32_t first)
{
    struct sl_gguf *g = x->g, *from = x->from;
    uint64_t n = g->n_records + from->n_records;

    if (from->n_records == 0) return SLUICE_OK;
    struct sl_container_record *records = sl_alloc(g->budget, n, sizeof *records);
    if (records == NULL) return no_memory(x, n * sizeof *records);
    if (g->n_records > 0) memcpy(records, g->records, g->n_records * sizeof *records);
    memcpy(records + g->n_records, from->records, from->n_records * sizeof *records);
    for (uint64_t i = g->n_records; i < n; i++) records[i].part += first;
    sl_free(g->records);
    g->records = records;
    g->n_records = n;
    return SLUICE_OK;
}

/* Tensors in the order of the files: what stays, then what comes. */
static sluice_err join_tensors(const struct graft *x, uint32_t first, const struct count *goes,
                               const struct count *comes)
{
    struct sl_gguf *g = x->g;
    uint32_t capacity = g->n_tensors - goes->tensors + comes->tensors, n = 0;
    struct sl_gguf_tensor *t = sl_alloc(g->budget, sl_max_u64(capacity, 1), sizeof *t);
    char *names = sl_arena_alloc(&g->names, sl_max_u64(comes->name_bytes, 1), 1);

    if (t == NULL || names == NULL) {
        sl_free(t);
        return no_memory(x, capacity * sizeof *t + comes->name_bytes);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        if (!is_in(x, &g->tensors[i])) t[n++] = g->tensors[i];
    }
    for (uint32_t i = 0; i < x->from->n_tensors; i++) {
        if (!is_in(x, &x->from->tensors[i])) continue;
        t[n] = x->from->tensors[i];
        t[n].shard += first;
        memcpy(names, t[n].name.p, t[n].name.n);
        t[n].name.p = names;
        names += t[n++].name.n;
    }
    SLUICE_ASSERT(n == capacity);
    sl_free(g->tensors);
    g->tensors = t;
    g->n_tensors = n;
    g->tensors_capacity = sl_max_u64(capacity, 1);
    return SLUICE_OK;
}

static sluice_err index_again(const struct graft *x)
{
    struct sl_gguf *g = x->g;
    uint32_t bad = 0;

    sl_gg_index_deinit(&g->tensor_index);
    memset(&g->tensor_index, 0, sizeof g->tensor_index);
    sluice_err err = sl_gg_index_build(&g->tensor_index, g->budget, g->tensors, g->n_tensors,
                                       sizeof *g->tensors, &bad);
    if (err == SLUICE_OK) return err;
    if (err == SLUICE_E_NOMEM) return no_memory(x, 8 * (uint64_t)g->n_tensors);
    return fail(x, err, "the names of tensors were made to collide");
}

sluice_err sl_gguf_graft(struct sl_gguf *g, struct sl_gguf *from, uint32_t group, sluice_error *e)
{
    struct graft x = {.g = g, .from = from, .group = group, .e = e};
    uint32_t first = g->n_files;

    SLUICE_ASSERT(g != from && !g->grafted);
    x.joined = (sl_gguf_find_tensor(g, "output.weight") == NULL) !=
               (sl_gguf_find_tensor(from, "output.weight") == NULL);
    struct count goes = count_of(&x, g), comes = count_of(&x, from);
    sluice_err err = check(&x, &goes, &comes);
    if (err == SLUICE_OK) err = join_files(&x);
    if (err == SLUICE_OK) err = join_records(&x, first);
    if (err == SLUICE_OK) err = join_tensors(&x, first, &goes, &comes);
    if (err == SLUICE_OK) err = index_again(&x);
    g->grafted = true;
    sl_gguf_close(from);
    return err;
}
