/* The tensors of a model file taken apart into those of a container: a stack of experts becomes a
 * tensor for each of them, and where gate and up are fused, two. Then the order of a container:
 * resident tensors as they come, experts by layer, number and part. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "pack/source_internal.h"

#define PARTS 3 /* gate, up, down */
#define TAIL_MAX 64
#define PART_NAME_MAX 48 /* "blk.511.ffn_gate.1023.weight" and its NUL, and room */

static const char *const part_names[PARTS] = {"gate", "up", "down"};

/* What the name of a base tensor says. */
enum role {
    RESIDENT,
    STACK,   /* blk.L.ffn_PART_exps.weight */
    FUSED,   /* blk.L.ffn_gate_up_exps.weight: of each expert the rows of gate, then those of up */
    SINGLE,  /* blk.L.ffn_PART.E.weight */
    UNKNOWN, /* belongs to experts, but is none of these */
};

struct reading {
    enum role role;
    uint32_t layer, part, expert;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* A decimal number without leading zeros at *at, followed by a dot; moves past both. */
static bool take_number(struct sl_str s, size_t *at, uint32_t max, uint32_t *out)
{
    size_t i = *at;
    uint32_t v = 0;

    for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9' && i - *at < 9; i++)
        v = 10 * v + (uint32_t)(s.p[i] - '0');
    if (i == *at || i >= s.n || s.p[i] != '.' || (s.p[*at] == '0' && i - *at > 1) || v > max)
        return false;
    *at = i + 1;
    *out = v;
    return true;
}

static bool contains(struct sl_str s, const char *what)
{
    size_t n = strlen(what);

    for (size_t i = 0; i + n <= s.n; i++)
        if (memcmp(s.p + i, what, n) == 0) return true;
    return false;
}

/* The name after "blk.L.". */
static void read_tail(struct sl_str tail, struct reading *r)
{
    char whole[TAIL_MAX];

    for (uint32_t p = 0; p < PARTS; p++) {
        r->part = p;
        snprintf(whole, sizeof whole, "ffn_%s_exps.weight", part_names[p]);
        if (sl_str_eq(tail, whole)) {
            r->role = STACK;
            return;
        }
        snprintf(whole, sizeof whole, "ffn_%s.", part_names[p]);
        size_t at = strlen(whole);
        if (!sl_str_starts(tail, whole) || !take_number(tail, &at, UINT32_MAX, &r->expert))
            continue;
        r->role = tail.n - at == 6 && memcmp(tail.p + at, "weight", 6) == 0 ? SINGLE : UNKNOWN;
        return;
    }
    if (sl_str_eq(tail, "ffn_gate_up_exps.weight"))
        r->role = FUSED;
    else if (contains(tail, "_exps.") || contains(tail, "_chexps."))
        r->role = UNKNOWN;
}

static struct reading read_name(struct sl_str name)
{
    struct reading r = {.role = RESIDENT};
    size_t at = 4;

    if (sl_str_starts(name, "blk.") && take_number(name, &at, UINT32_MAX, &r.layer))
        read_tail((struct sl_str){name.p + at, name.n - at}, &r);
    return r;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static sluice_err refuse(const struct sl_src_base *b, sluice_err code, const char *what,
                         sluice_error *e)
{
    char name[SL_SRC_SHOW_MAX];

    return sl_fail(e, code, "tensor '%s' %s", sl_str_show(b->name, name, sizeof name), what);
}

static uint64_t experts_of(const struct sl_src_base *b, const struct reading *r)
{
    return r->role == SINGLE ? 1 : b->dims[2];
}

static sluice_err check(const struct sl_src_base *b, const struct reading *r, sluice_error *e)
{
    if (r->role == RESIDENT) return SLUICE_OK;
    if (r->role == UNKNOWN)
        return refuse(b, SLUICE_E_UNSUPPORTED,
                      "belongs to routed experts, and is none of the weights of gate, up and down "
                      "that this version knows",
                      e);
    if (b->dims[3] != 1 || (r->role == SINGLE && b->dims[2] != 1) || b->n_dims < 2)
        return refuse(b, SLUICE_E_FORMAT, "has a wrong number of dimensions for experts", e);
    if (r->role == FUSED && b->dims[1] % 2 != 0)
        return refuse(b, SLUICE_E_FORMAT, "does not divide into gate and up", e);
    if (r->layer >= SL_LAYERS_MAX || b->dims[2] > SL_EXPERTS_MAX ||
        (r->role == SINGLE && r->expert >= SL_EXPERTS_MAX))
        return refuse(b, SLUICE_E_LIMIT,
                      "has a layer or an expert beyond the limits of a container", e);
    return SLUICE_OK;
}

/* ---- taking apart ---------------------------------------------------------------------------- */

/* What is being filled; names are written one after another into one piece. */
struct taking {
    struct sl_source *s;
    struct sl_src_base base;
    struct reading r;
    uint32_t index; /* of the base */
    char *name_at;
    uint64_t name_bytes; /* of all names together */
};

static void fill_sizes(struct sl_source_tensor *t)
{
    bool fits = sl_src_measure(t->type, t->rows, t->cols, &t->bytes);

    SLUICE_ASSERT(fits); /* the reader has checked the whole, of which this is a part */
}

static struct sl_source_tensor *append(struct taking *k, uint64_t first_row)
{
    struct sl_source *s = k->s;
    struct sl_source_tensor *t = &s->tensors[s->n_tensors];

    s->origins[s->n_tensors++] = (struct sl_src_origin){k->index, first_row};
    *t = (struct sl_source_tensor){.name = k->base.name,
                                   .type = k->base.type,
                                   .whole = k->base.whole,
                                   .layer = -1,
                                   .expert = -1};
    return t;
}

static void take_resident(struct taking *k)
{
    struct sl_source_tensor *t = append(k, 0);

    t->n_dims = k->base.n_dims;
    memcpy(t->dims, k->base.dims, sizeof t->dims);
    t->cols = t->dims[0];
    t->rows = t->dims[1] * t->dims[2] * t->dims[3];
    fill_sizes(t);
}

static void take_part(struct taking *k, uint32_t part, uint32_t expert, uint64_t first_row,
                      uint64_t rows)
{
    struct sl_source_tensor *t = append(k, first_row);
    int n = snprintf(k->name_at, PART_NAME_MAX, "blk.%" PRIu32 ".ffn_%s.%" PRIu32 ".weight",
                     k->r.layer, part_names[part], expert);

    t->name = (struct sl_str){k->name_at, (size_t)n};
    k->name_at += n + 1;
    t->n_dims = 2;
    t->cols = t->dims[0] = k->base.dims[0];
    t->rows = t->dims[1] = rows;
    t->dims[2] = t->dims[3] = 1;
    t->layer = (int32_t)k->r.layer;
    t->expert = (int32_t)expert;
    t->part = part;
    fill_sizes(t);
}

static void take_experts(struct taking *k)
{
    uint64_t rows = k->base.dims[1];

    if (k->r.role == SINGLE) {
        take_part(k, k->r.part, k->r.expert, 0, rows);
        return;
    }
    for (uint32_t x = 0; x < k->base.dims[2]; x++) {
        if (k->r.role == STACK) {
            take_part(k, k->r.part, x, x * rows, rows);
        } else {
            take_part(k, 0, x, x * rows, rows / 2);
            take_part(k, 1, x, x * rows + rows / 2, rows / 2);
        }
    }
}

/* Checks all bases and counts what they become. */
static sluice_err measure(struct taking *k, uint64_t *n, sluice_error *e)
{
    for (uint32_t i = 0; i < sl_src_n_bases(k->s); i++) {
        sl_src_base(k->s, i, &k->base);
        k->r = read_name(k->base.name);
        sluice_err err = check(&k->base, &k->r, e);
        if (err != SLUICE_OK) return err;
        uint64_t parts = experts_of(&k->base, &k->r) * (k->r.role == FUSED ? 2 : 1);
        if (k->r.role == RESIDENT) parts = 1;
        *n += parts;
        if (k->r.role != RESIDENT) k->name_bytes += parts * PART_NAME_MAX;
        if (*n > SL_GGUF_TENSORS_MAX)
            return sl_fail(e, SLUICE_E_LIMIT,
                           "with a tensor for each part of each expert there are more than %u",
                           SL_GGUF_TENSORS_MAX);
    }
    return SLUICE_OK;
}

static void take_all(struct taking *k)
{
    for (uint32_t i = 0; i < sl_src_n_bases(k->s); i++) {
        k->index = i;
        sl_src_base(k->s, i, &k->base);
        k->r = read_name(k->base.name);
        if (k->r.role == RESIDENT)
            take_resident(k);
        else
            take_experts(k);
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Resident tensors first, in their order; experts by layer, expert, and part. */
static uint64_t rank_of(const struct sl_source_tensor *t, uint32_t i)
{
    if (t->expert < 0) return i;
    return (uint64_t)1 << 63 | (uint64_t)t->layer << 16 | (uint64_t)t->expert << 2 | t->part;
}

static void sift_down(uint32_t *order, const uint64_t *rank, uint32_t root, uint32_t n)
{
    uint32_t v = order[root];

    for (uint64_t child; (child = 2 * (uint64_t)root + 1) < n; root = (uint32_t)child) {
        if (child + 1 < n && rank[order[child]] < rank[order[child + 1]]) child++;
        if (rank[order[child]] <= rank[v]) break;
        order[root] = order[child];
    }
    order[root] = v;
}

/* A heap sort: qsort may take memory that nobody is charged for. */
static void sort(uint32_t *order, const uint64_t *rank, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n / 2; i-- > 0;) sift_down(order, rank, i, n);
    for (uint32_t last = n; last-- > 1;) {
        uint32_t top = order[0];

        order[0] = order[last];
        order[last] = top;
        sift_down(order, rank, 0, last);
    }
}

static sluice_err no_memory(sluice_error *e)
{
    return sl_fail(e, SLUICE_E_NOMEM, "no memory for the list of tensors");
}

static sluice_err put_in_order(struct sl_source *s, sluice_error *e)
{
    uint32_t n = s->n_tensors;
    struct sl_source_tensor *tensors = sl_alloc(s->budget, n, sizeof *tensors);
    struct sl_src_origin *origins = sl_alloc(s->budget, n, sizeof *origins);
    uint64_t *rank = sl_alloc(s->budget, n, sizeof *rank);
    uint32_t *order = sl_alloc(s->budget, n, sizeof *order);
    bool ok = tensors != NULL && origins != NULL && rank != NULL && order != NULL;

    for (uint32_t i = 0; ok && i < n; i++) rank[i] = rank_of(&s->tensors[i], i);
    if (ok) sort(order, rank, n);
    for (uint32_t i = 0; ok && i < n; i++) {
        tensors[i] = s->tensors[order[i]];
        origins[i] = s->origins[order[i]];
    }
    sl_free(rank);
    sl_free(order);
    if (!ok) {
        sl_free(tensors);
        sl_free(origins);
        return no_memory(e);
    }
    sl_free(s->tensors);
    sl_free(s->origins);
    s->tensors = tensors;
    s->origins = origins;
    return SLUICE_OK;
}

static sluice_err index_names(struct sl_source *s, sluice_error *e)
{
    char name[SL_SRC_SHOW_MAX];
    uint32_t bad = 0;
    sluice_err err =
        sl_gg_index_build(&s->index, s->budget, s->tensors, s->n_tensors, sizeof *s->tensors, &bad);

    if (err == SLUICE_OK) return err;
    if (err == SLUICE_E_NOMEM) return no_memory(e);
    if (bad == s->n_tensors) return sl_fail(e, err, "the names of tensors were made to collide");
    return sl_fail(e, err, "tensor '%s' is there twice, by itself and in a stack of experts",
                   sl_str_show(s->tensors[bad].name, name, sizeof name));
}

sluice_err sl_src_take_apart(struct sl_source *s, sluice_error *e)
{
    struct taking k = {.s = s};
    uint64_t n = 0;
    sluice_err err = measure(&k, &n, e);

    if (err != SLUICE_OK) return err;
    s->tensors = sl_alloc(s->budget, n, sizeof *s->tensors);
    s->origins = sl_alloc(s->budget, n, sizeof *s->origins);
    k.name_at = sl_arena_alloc(&s->names, sl_max_u64(k.name_bytes, 1), 1);
    if (s->tensors == NULL || s->origins == NULL || k.name_at == NULL) return no_memory(e);
    take_all(&k);
    SLUICE_ASSERT(s->n_tensors == n);
    err = put_in_order(s, e);
    return err == SLUICE_OK ? index_names(s, e) : err;
}
