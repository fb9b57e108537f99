/* Classes found, and types given to them: see plan.h. The text of the recipe is in plan_recipe.c.
 */
#include "pack/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "formats/sq.h"
#include "pack/encode_rows.h"
#include "pack/fits_bf16.h"

#define SHOWN_MAX 80
#define COLS_MIN 32 /* narrower tensors stay as they are: a block would be mostly its scale */
#define NAMES_CHUNK_BYTES 16384
#define PARTS 3
#define EARLY_PART 24 /* this part of the layers with experts, at least one, are the first ones */

/* ---- names ----------------------------------------------------------------------------------- */

static const char *const kind_names[SL_PACK_KINDS] = {
    [SL_PACK_EMBEDDING] = "embedding", [SL_PACK_OUTPUT] = "output",
    [SL_PACK_ATTENTION] = "attention", [SL_PACK_RECURRENT] = "recurrent",
    [SL_PACK_FFN] = "dense FFN",       [SL_PACK_SHARED] = "shared experts",
    [SL_PACK_ROUTER] = "router",       [SL_PACK_NORM] = "norms",
    [SL_PACK_OTHER] = "other",         [SL_PACK_GATE] = "experts, gate",
    [SL_PACK_UP] = "experts, up",      [SL_PACK_DOWN] = "experts, down",
};

const char *sl_pack_kind_name(enum sl_pack_kind kind)
{
    SLUICE_ASSERT(kind < SL_PACK_KINDS);
    return kind_names[kind];
}

static bool contains(struct sl_str s, const char *what)
{
    size_t n = strlen(what);

    for (size_t i = 0; i + n <= s.n; i++)
        if (memcmp(s.p + i, what, n) == 0) return true;
    return false;
}

/* The first that is contained decides. */
static const struct {
    const char *what;
    enum sl_pack_kind kind;
} kinds[] = {
    {"token_embd.", SL_PACK_EMBEDDING}, {"norm", SL_PACK_NORM},
    {"ffn_gate_inp", SL_PACK_ROUTER},   {"exp_probs", SL_PACK_ROUTER},
    {"shexp", SL_PACK_SHARED},          {"ffn_", SL_PACK_FFN},
    {"ssm_", SL_PACK_RECURRENT},        {"attn_", SL_PACK_ATTENTION},
};

static enum sl_pack_kind kind_of(const struct sl_source_tensor *t)
{
    if (t->expert >= 0) return (enum sl_pack_kind)(SL_PACK_GATE + t->part);
    if (sl_str_eq(t->name, "output.weight")) return SL_PACK_OUTPUT;
    for (size_t i = 0; i < SL_ARRAY_LEN(kinds); i++)
        if (contains(t->name, kinds[i].what)) return kinds[i].kind;
    return SL_PACK_OTHER;
}

/* The layer in "blk.L.", or -1. */
static int32_t layer_in(struct sl_str name)
{
    int32_t v = 0;
    size_t i = 4;

    if (!sl_str_starts(name, "blk.")) return -1;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && i < 10; i++)
        v = 10 * v + (name.p[i] - '0');
    return i > 4 && i < name.n && name.p[i] == '.' ? v : -1;
}

/* ---- what a class can become ----------------------------------------------------------------- */

static bool is_float(uint32_t type)
{
    return type == SL_TYPE_F32 || type == SL_TYPE_F16 || type == SL_TYPE_BF16;
}

bool sl_pack_is_exact(const struct sl_pack_class *c) { return c->rows == 1 || c->cols < COLS_MIN; }

static bool can_be(const struct sl_pack_plan *plan, const struct sl_pack_class *c, uint32_t type)
{
    const struct sl_source_tensor *t = sl_source_tensor(plan->source, c->first);

    if (type == c->from) return true;
    if (!sl_can_encode(type) || (sl_pack_is_exact(c) && type != SL_TYPE_F32)) return false;
    if (is_float(type)) return true;
    if (c->cols % 32 != 0) return false;
    if (sl_sq_info(type) == NULL) return true;
    /* Rows of the embedding are read one by one. */
    return c->kind != SL_PACK_EMBEDDING && t->n_dims == 2 && c->cols <= SL_COLS_MAX &&
           c->rows <= SL_ROWS_MAX;
}

bool sl_pack_plan_can(const struct sl_pack_plan *plan, uint32_t class_index, uint32_t type,
                      uint64_t *bytes)
{
    const struct sl_pack_class *c = &plan->classes[class_index];

    if (type == c->from) {
        *bytes = c->from_bytes;
        return true;
    }
    return can_be(plan, c, type) && sl_type_matrix_bytes(type, c->rows, c->cols, bytes) &&
           sl_mul_ok(*bytes, c->n, bytes);
}

bool sl_pack_plan_set(struct sl_pack_plan *plan, uint32_t class_index, uint32_t type)
{
    struct sl_pack_class *c = &plan->classes[class_index];

    if (!sl_pack_plan_can(plan, class_index, type, &c->bytes)) return false;
    c->type = c->wanted = type;
    return true;
}

/* ---- built-in rules -------------------------------------------------------------------------- */

/* The type of so many bits, and the next better one. */
static const struct {
    uint32_t bits;
    const char *type, *better;
} steps[] = {
    {2, "sq2_32", "sq3_32"}, {3, "sq3_32", "sq4_32"}, {4, "sq4_32", "sq5_32"},
    {5, "sq5_32", "sq6_32"}, {6, "sq6_32", "q8_0"},   {8, "q8_0", "q8_0"},
};

bool sl_pack_bits_known(uint32_t bits)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(steps); i++)
        if (steps[i].bits == bits) return true;
    return bits == 0;
}

/* What the first layers get wrong goes through all others. On the demo model (2026-11) a step more
 * for the first of six layers halved the divergence; for another one it took off a twentieth. */
static bool is_early(const struct sl_pack_plan *plan, const struct sl_pack_class *c)
{
    return c->layer < plan->early_end;
}

static uint32_t expert_type(const struct sl_pack_plan *plan, const struct sl_pack_class *c,
                            uint32_t bits)
{
    uint32_t type = c->from;

    for (size_t i = 0; i < SL_ARRAY_LEN(steps); i++) {
        if (steps[i].bits != bits) continue;
        const char *name = is_early(plan, c) ? steps[i].better : steps[i].type;
        bool known = sl_recipe_type((struct sl_str){name, strlen(name)}, &type);
        SLUICE_ASSERT(known);
    }
    return type;
}

/* Matrices of models with recurrent layers that are in memory always. These layers project to four
 * times their width and more, so that at 8 bits a small budget would go to them: Qwen3.5-35B-A3B
 * has 1.9 billion such weights, half of 4 GiB. Here they take 6 bits on average. What is multiplied
 * once and not summed up has 5.25: the output, and the gates of recurrent outputs. The inputs of
 * decay and beta, whose errors the state sums up, stay at 8: they are few. */
static uint32_t recurrent_type(const struct sl_pack_class *c)
{
    bool steers = c->kind == SL_PACK_RECURRENT && !contains(c->name, "ssm_out.");

    if (c->kind == SL_PACK_EMBEDDING || steers) return SL_TYPE_Q8_0;
    return c->kind == SL_PACK_OUTPUT || contains(c->name, "attn_gate.") ? SL_SQ5_32 : SL_SQ6_32;
}

/* What is quantized already is so once more only for a sixth of its bytes. */
static uint32_t dense_type(const struct sl_pack_plan *plan, uint32_t class_index, uint32_t bits)
{
    const struct sl_pack_class *c = &plan->classes[class_index];
    bool small = plan->recurrent && bits < 8; /* who asks for 8 bits means all */
    uint32_t type = small ? recurrent_type(c) : SL_TYPE_Q8_0;
    uint64_t bytes = 0;

    if (is_float(c->from)) return type;
    return small && sl_pack_plan_can(plan, class_index, type, &bytes) &&
                   bytes <= c->from_bytes / 6 * 5
               ? type
               : c->from;
}

/* Never larger than the source: nothing would be gained by it. */
static uint32_t built_in(const struct sl_pack_plan *plan, uint32_t class_index, uint32_t bits)
{
    const struct sl_pack_class *c = &plan->classes[class_index];
    uint64_t bytes = 0;

    if (bits == 0 || sl_pack_is_exact(c) || c->kind == SL_PACK_NORM || c->kind == SL_PACK_ROUTER)
        return c->from;
    uint32_t type =
        c->kind >= SL_PACK_GATE ? expert_type(plan, c, bits) : dense_type(plan, class_index, bits);
    if (sl_pack_plan_can(plan, class_index, type, &bytes) && bytes >= c->from_bytes) return c->from;
    return type;
}

/* Routers keep their values, in half the bytes where those hold them. */
static sluice_err router_type(const struct sl_pack_plan *plan, const struct sl_pack_class *c,
                              uint32_t bits, sluice_error *e, uint32_t *type)
{
    bool fits = false;

    if (bits == 0 || c->kind != SL_PACK_ROUTER || c->from != SL_TYPE_F32 || sl_pack_is_exact(c))
        return SLUICE_OK;
    sluice_err err = sl_pack_fits_bf16(plan->source, c->first, plan->budget, e, &fits);
    if (fits) *type = SL_TYPE_BF16;
    return err;
}

/* ---- one class ------------------------------------------------------------------------------- */

/* What was asked for, or the nearest that can be: of the container's own types Q8_0, and of that
 * half precision, or the source's own type where that is exact and as small. */
static uint32_t fall_back(const struct sl_pack_plan *plan, const struct sl_pack_class *c,
                          uint32_t wanted)
{
    if (can_be(plan, c, wanted)) return wanted;
    if (sl_pack_is_exact(c) || !is_float(c->from)) return c->from;
    if (can_be(plan, c, SL_TYPE_Q8_0)) return SL_TYPE_Q8_0;
    return c->from == SL_TYPE_F32 ? SL_TYPE_F16 : c->from;
}

static sluice_err decide(struct sl_pack_plan *plan, const struct sl_pack_request *request,
                         uint32_t class_index, sluice_error *e)
{
    struct sl_pack_class *c = &plan->classes[class_index];
    uint32_t wanted = built_in(plan, class_index, request->bits);
    sluice_err err = SLUICE_OK;

    if (c->rule != UINT32_MAX)
        wanted = sl_recipe_rule(request->recipe, c->rule)->type;
    else
        err = router_type(plan, c, request->bits, e, &wanted);
    if (err != SLUICE_OK) return err;
    if (wanted == SL_RECIPE_KEEP) wanted = c->from;
    bool set = sl_pack_plan_set(plan, class_index, fall_back(plan, c, wanted));
    c->wanted = wanted;
    if (set) return SLUICE_OK;
    char name[SHOWN_MAX];
    return sl_fail(e, SLUICE_E_LIMIT, "tensor '%s' is too large for any type",
                   sl_str_show(c->name, name, sizeof name));
}

/* ---- statistics ------------------------------------------------------------------------------ */

static const char *stats_name(const struct sl_pack_request *request)
{
    return request->stats_name != NULL ? request->stats_name : "statistics";
}

static bool any_weight(const float *w, uint64_t cols)
{
    for (uint64_t i = 0; i < cols; i++)
        if (w[i] > 0) return true;
    return false;
}

/* What is known of a tensor's inputs; nothing where it was never reached. */
static sluice_err find_weights(struct sl_pack_plan *plan, const struct sl_pack_request *request,
                               uint32_t i, sluice_error *e)
{
    const struct sl_source_tensor *t = sl_source_tensor(plan->source, i);
    struct sl_pack_class *c = &plan->classes[plan->class_of[i]];
    uint64_t count = 0;
    const float *w = sl_column_stats_find(request->stats, t->name, t->cols, &count);
    char name[SHOWN_MAX];

    if (count == UINT64_MAX)
        return sl_fail(e, SLUICE_E_FORMAT,
                       "%s: another number of columns for tensor '%s' than the %" PRIu64
                       " of the model: these are another model's statistics",
                       stats_name(request), sl_str_show(t->name, name, sizeof name), t->cols);
    if (w != NULL && any_weight(w, t->cols)) {
        plan->weights[i] = w;
        plan->n_reached++;
    } else {
        c->unreached++;
    }
    return SLUICE_OK;
}

/* Experts beyond those of the model would be passed over, and missing ones taken for unreached. */
static sluice_err check_experts(const struct sl_pack_plan *plan,
                                const struct sl_pack_request *request, sluice_error *e)
{
    for (uint32_t i = 0; i < plan->n_classes; i++) {
        const struct sl_pack_class *c = &plan->classes[i];
        const struct sl_source_tensor *t = sl_source_tensor(plan->source, c->first);
        char name[SHOWN_MAX];

        if (c->kind < SL_PACK_GATE) continue;
        uint64_t n = sl_column_stats_experts(request->stats, t->name, t->cols);
        if (n == 0 || n == c->n) continue;
        return sl_fail(e, SLUICE_E_FORMAT,
                       "%s: %" PRIu64 " experts in '%s', and the model has %" PRIu32
                       ": these are another model's statistics",
                       stats_name(request), n, sl_str_show(c->name, name, sizeof name), c->n);
    }
    return SLUICE_OK;
}

static sluice_err find_all_weights(struct sl_pack_plan *plan, const struct sl_pack_request *request,
                                   sluice_error *e)
{
    if (request->stats == NULL) return SLUICE_OK;
    sluice_err err = check_experts(plan, request, e);
    for (uint32_t i = 0; i < sl_source_n_tensors(plan->source) && err == SLUICE_OK; i++)
        err = find_weights(plan, request, i, e);
    if (err != SLUICE_OK || plan->n_reached > 0) return err;
    return sl_fail(e, SLUICE_E_FORMAT,
                   "%s: no tensor of the model is named: these are another model's statistics",
                   stats_name(request));
}

/* ---- finding classes ------------------------------------------------------------------------- */

struct finding {
    struct sl_pack_plan *plan;
    const struct sl_pack_request *request;
    sluice_error *e;
    int32_t layer;           /* whose experts are being gone through */
    uint32_t of_part[PARTS]; /* their classes; UINT32_MAX: none yet */
};

static sluice_err name_class(struct finding *f, struct sl_pack_class *c,
                             const struct sl_source_tensor *t)
{
    static const char *const parts[PARTS] = {"gate", "up", "down"};
    char *name;

    c->name = t->name;
    if (t->expert < 0) return SLUICE_OK;
    name = sl_arena_alloc(&f->plan->names, SHOWN_MAX, 1);
    if (name == NULL) return sl_fail(f->e, SLUICE_E_NOMEM, "no memory for the plan");
    int n =
        snprintf(name, SHOWN_MAX, "blk.%" PRId32 ".ffn_%s_exps.weight", t->layer, parts[t->part]);
    c->name = (struct sl_str){name, (size_t)n};
    return SLUICE_OK;
}

static sluice_err new_class(struct finding *f, uint32_t i)
{
    const struct sl_source_tensor *t = sl_source_tensor(f->plan->source, i);
    struct sl_pack_class *c = &f->plan->classes[f->plan->n_classes];

    *c = (struct sl_pack_class){.kind = kind_of(t),
                                .layer = t->expert >= 0 ? t->layer : layer_in(t->name),
                                .first = i,
                                .from = t->type,
                                .rows = t->rows,
                                .cols = t->cols};
    f->plan->class_of[i] = f->plan->n_classes++;
    sluice_err err = name_class(f, c, t);
    const struct sl_recipe *r = f->request->recipe;
    c->rule =
        r != NULL ? sl_recipe_find(r, t->name, t->expert >= 0 ? c->name : SL_STR("")) : UINT32_MAX;
    return err;
}

/* One more expert of a class must be like the first. */
static sluice_err join_class(struct finding *f, uint32_t i, uint32_t class_index)
{
    const struct sl_source_tensor *t = sl_source_tensor(f->plan->source, i);
    const struct sl_pack_class *c = &f->plan->classes[class_index];
    const struct sl_recipe *r = f->request->recipe;
    char name[SHOWN_MAX];

    f->plan->class_of[i] = class_index;
    if (t->type != c->from || t->rows != c->rows || t->cols != c->cols)
        return sl_fail(f->e, SLUICE_E_UNSUPPORTED,
                       "tensor '%s' is not of the type and shape of the other experts of its "
                       "layer, which are computed alike",
                       sl_str_show(t->name, name, sizeof name));
    uint32_t rule = r != NULL ? sl_recipe_find(r, t->name, c->name) : UINT32_MAX;
    if (rule == c->rule) return SLUICE_OK;
    return sl_fail(f->e, SLUICE_E_FORMAT,
                   "the recipe has a rule for tensor '%s' and another for the layer's first "
                   "expert; experts of a layer are computed alike, so a pattern must fit all of "
                   "them or none",
                   sl_str_show(t->name, name, sizeof name));
}

static sluice_err find_class(struct finding *f, uint32_t i)
{
    const struct sl_source_tensor *t = sl_source_tensor(f->plan->source, i);

    if (t->expert < 0) return new_class(f, i);
    if (t->layer != f->layer) {
        f->layer = t->layer;
        for (uint32_t p = 0; p < PARTS; p++) f->of_part[p] = UINT32_MAX;
    }
    if (f->of_part[t->part] != UINT32_MAX) return join_class(f, i, f->of_part[t->part]);
    f->of_part[t->part] = f->plan->n_classes;
    return new_class(f, i);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static sluice_err allocate(struct sl_pack_plan *plan, sluice_error *e)
{
    uint64_t n = sl_source_n_tensors(plan->source);

    plan->classes = sl_alloc(plan->budget, n, sizeof *plan->classes);
    plan->class_of = sl_alloc(plan->budget, n, sizeof *plan->class_of);
    plan->weights = sl_alloc(plan->budget, n, sizeof *plan->weights);
    plan->tensors = sl_alloc(plan->budget, n, sizeof *plan->tensors);
    if (plan->classes != NULL && plan->class_of != NULL && plan->weights != NULL &&
        plan->tensors != NULL)
        return SLUICE_OK;
    return sl_fail(e, SLUICE_E_NOMEM, "no memory for the plan of %" PRIu64 " tensors", n);
}

/* Layers with experts are counted from the first that has them. */
static void find_layers(struct sl_pack_plan *plan)
{
    int32_t first = SL_LAYERS_MAX, n = 0, last = -1;

    for (uint32_t i = 0; i < plan->n_classes; i++) {
        const struct sl_pack_class *c = &plan->classes[i];

        if (c->kind == SL_PACK_RECURRENT && !sl_pack_is_exact(c)) plan->recurrent = true;
        if (c->kind < SL_PACK_GATE) continue;
        first = c->layer < first ? c->layer : first;
        n += c->layer != last;
        last = c->layer;
    }
    plan->first_layer = first;
    plan->early_end = first + (n + EARLY_PART - 1) / EARLY_PART;
}

/* The recipe in the container names tensors, a line each, and must be able to. */
static sluice_err check_name(const struct sl_source_tensor *t, sluice_error *e)
{
    char name[SHOWN_MAX];

    for (size_t i = 0; i < t->name.n; i++) {
        unsigned char c = (unsigned char)t->name.p[i];

        if (c <= ' ' || c == 0x7f || c == '*' || c == '?' || c == '#')
            return sl_fail(e, SLUICE_E_UNSUPPORTED,
                           "tensor '%s' has a blank, '*', '?', '#' or a control character in its "
                           "name, which a recipe cannot have",
                           sl_str_show(t->name, name, sizeof name));
    }
    return SLUICE_OK;
}

static sluice_err find_classes(struct finding *f)
{
    struct sl_pack_plan *plan = f->plan;

    for (uint32_t i = 0; i < sl_source_n_tensors(plan->source); i++) {
        const struct sl_source_tensor *t = sl_source_tensor(plan->source, i);
        sluice_err err = check_name(t, f->e);

        if (err == SLUICE_OK) err = find_class(f, i);
        if (err != SLUICE_OK) return err;
        struct sl_pack_class *c = &plan->classes[plan->class_of[i]];
        c->n++;
        c->from_bytes += t->bytes;
        plan->n_weights += t->rows * t->cols;
    }
    find_layers(plan);
    return SLUICE_OK;
}

sluice_err sl_pack_plan_make(const struct sl_source *s, const struct sl_pack_request *request,
                             struct sl_budget *b, sluice_error *e, struct sl_pack_plan *plan)
{
    struct finding f = {.plan = plan, .request = request, .e = e, .layer = -1};

    SLUICE_ASSERT(sl_pack_bits_known(request->bits));
    memset(plan, 0, sizeof *plan);
    plan->budget = b;
    plan->source = s;
    sl_arena_init(&plan->names, b, NAMES_CHUNK_BYTES);
    sluice_err err = allocate(plan, e);
    if (err == SLUICE_OK) err = find_classes(&f);
    if (err == SLUICE_OK) err = find_all_weights(plan, request, e);
    for (uint32_t i = 0; i < plan->n_classes && err == SLUICE_OK; i++)
        err = decide(plan, request, i, e);
    if (err != SLUICE_OK) sl_pack_plan_deinit(plan);
    return err;
}

void sl_pack_plan_deinit(struct sl_pack_plan *plan)
{
    sl_free(plan->classes);
    sl_free(plan->class_of);
    sl_free(plan->weights);
    sl_free(plan->tensors);
    sl_free(plan->recipe);
    sl_arena_deinit(&plan->names);
    memset(plan, 0, sizeof *plan);
}
