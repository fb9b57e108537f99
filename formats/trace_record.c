/* The records of a trace file, read: see trace_internal.h. Nothing is believed: whoever gets a
 * record may use its numbers as indices. */
#include "formats/trace_internal.h"

#include <string.h>

#define MASK_WORDS (SL_EXPERTS_MAX / 64)
#define WHY_MAX 5

/* Adds a number to a set of experts; false: it was in it. */
static bool add(uint64_t set[MASK_WORDS], uint32_t expert)
{
    uint64_t bit = UINT64_C(1) << expert % 64;
    if ((set[expert / 64] & bit) != 0) return false;
    set[expert / 64] |= bit;
    return true;
}

static bool finite_floats(const float *v, uint64_t n)
{
    bool ok = true;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        ok = ok && (bits & SL_TF_EXPONENT) != SL_TF_EXPONENT;
    }
    return ok;
}

static uint32_t get_u32(struct sl_trace_reader *r, uint32_t max)
{
    return (uint32_t)sl_mp_get_uint(&r->mp, max);
}

static uint64_t get_number(struct sl_trace_reader *r)
{
    return sl_mp_get_uint(&r->mp, SL_TRACE_NUMBER_MAX);
}

static uint64_t get_time(struct sl_trace_reader *r)
{
    r->last_ns += sl_mp_get_uint(&r->mp, SL_TRACE_NUMBER_MAX - r->last_ns);
    return r->last_ns;
}

/* A bin of exactly so many bytes; its first byte, or NULL. */
static const void *get_array(struct sl_trace_reader *r, uint64_t bytes, const char *wanted)
{
    struct sl_str s = sl_mp_get_bin(&r->mp);
    if (r->mp.failed == NULL && s.n == bytes) return s.p;
    sl_mp_fail(&r->mp, wanted);
    return NULL;
}

/* The number of a layer that has experts. */
static uint32_t get_layer(struct sl_trace_reader *r)
{
    uint32_t layer = get_u32(r, r->header.n_layers - 1);
    if (r->header.layer[layer].n_experts == 0) sl_mp_fail(&r->mp, "a layer that has experts");
    return layer;
}

/* One of its experts. */
static uint32_t get_expert(struct sl_trace_reader *r, uint32_t layer)
{
    uint32_t n = r->header.layer[layer].n_experts;
    return get_u32(r, n > 0 ? n - 1 : 0);
}

static void get_eval(struct sl_trace_reader *r, struct sl_trace_eval *out)
{
    out->session = get_u32(r, UINT32_MAX);
    out->position = get_u32(r, UINT32_MAX - SL_CHUNK_MAX);
    out->n_tokens = get_u32(r, SL_CHUNK_MAX);
    if (out->n_tokens == 0) sl_mp_fail(&r->mp, "an eval of at least one token");
    out->prompt = get_u32(r, 1) != 0;
    out->begin_ns = get_time(r);
    r->in_eval = true;
    r->n_tokens = out->n_tokens;
    r->next_layer = 0;
}

static void check_chosen(struct sl_trace_reader *r, const struct sl_trace_layer *l)
{
    uint32_t n_experts = r->header.layer[l->layer].n_experts;
    for (uint32_t t = 0; t < l->n_tokens; t++) {
        uint64_t seen[MASK_WORDS] = {0};
        for (uint32_t k = 0; k < l->top_k; k++) {
            uint32_t expert = l->chosen[t * l->top_k + k];
            if (expert == SL_TRACE_NONE) continue;
            if (expert >= n_experts || !add(seen, expert)) {
                sl_mp_fail(&r->mp, "experts of the layer, of a token each once");
                return;
            }
        }
    }
}

/* How many distinct experts were missing. Their numbers have been checked. */
static uint32_t count_missing(const struct sl_trace_layer *l)
{
    uint64_t missing[MASK_WORDS] = {0};
    uint32_t n = 0;
    if (l->states == NULL) return 0;
    for (uint32_t i = 0; i < l->n_tokens * l->top_k; i++)
        if ((l->states[i] & SL_TRACE_STATE_MASK) == SL_TRACE_MISSING &&
            l->chosen[i] != SL_TRACE_NONE)
            n += add(missing, l->chosen[i]);
    return n;
}

static void get_weights(struct sl_trace_reader *r, struct sl_trace_layer *out, uint64_t n)
{
    bool there = (r->header.measured & SL_TRACE_WEIGHTS) != 0;
    const void *p =
        get_array(r, there ? 4 * n : 0, "a weight for each choice, or none as measured");
    if (p == NULL || !there) return;
    memcpy(r->weights, p, 4 * n);
    if (!finite_floats(r->weights, n)) sl_mp_fail(&r->mp, "weights that are finite");
    out->weights = r->weights;
}

static void get_states(struct sl_trace_reader *r, struct sl_trace_layer *out, uint64_t n)
{
    bool there = (r->header.measured & SL_TRACE_STATES) != 0;
    const uint8_t *p = get_array(r, there ? n : 0, "a state for each choice, or none as measured");
    if (p == NULL || !there) return;
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > (SL_TRACE_STATE_MASK | SL_TRACE_AHEAD)) sl_mp_fail(&r->mp, "states of 0 to 7");
    out->states = p;
}

static void get_entries(struct sl_trace_reader *r, struct sl_trace_layer *out)
{
    struct sl_str s = sl_mp_get_bin(&r->mp);
    if (r->mp.failed != NULL || s.n == 0) return;
    if (s.n != count_missing(out)) sl_mp_fail(&r->mp, "an entry for each missing expert, or none");
    for (size_t i = 0; i < s.n; i++)
        if ((uint8_t)s.p[i] > SL_TRACE_PASSED_OVER) sl_mp_fail(&r->mp, "entries of 0 to 2");
    out->entries = (const uint8_t *)s.p;
    out->n_entries = (uint32_t)s.n;
}

static void get_layer_record(struct sl_trace_reader *r, struct sl_trace_layer *out)
{
    if (!r->in_eval) sl_mp_fail(&r->mp, "an eval before this layer");
    out->layer = get_layer(r);
    if (out->layer < r->next_layer) sl_mp_fail(&r->mp, "layers of an eval in ascending order");
    r->next_layer = out->layer + 1;
    out->n_tokens = r->n_tokens;
    out->top_k = get_u32(r, r->header.layer[out->layer].top_k);
    if (out->top_k == 0) sl_mp_fail(&r->mp, "a choice of at least one expert");
    uint64_t n = (uint64_t)out->n_tokens * out->top_k;
    const void *p = get_array(r, 2 * n, "top_k experts for each token of the eval");
    if (p == NULL) return;
    memcpy(r->chosen, p, 2 * n);
    out->chosen = r->chosen;
    check_chosen(r, out);
    get_weights(r, out, n);
    get_states(r, out, n);
    get_entries(r, out);
    out->read_bytes = get_number(r);
    out->begin_ns = get_time(r);
    out->dense_ns = get_number(r);
    out->expert_ns = get_number(r);
    out->wait_ns = get_number(r);
}

static void get_hints(struct sl_trace_reader *r, struct sl_trace_hints *out)
{
    uint64_t seen[MASK_WORDS] = {0};
    out->layer = get_layer(r);
    out->visits = get_u32(r, UINT32_MAX);
    out->prompt = get_u32(r, 1) != 0;
    uint32_t n_experts = r->header.layer[out->layer].n_experts;
    struct sl_str s = sl_mp_get_bin(&r->mp);
    if (s.n % 2 != 0 || s.n / 2 > n_experts) {
        sl_mp_fail(&r->mp, "at most as many hints as the layer has experts");
        return;
    }
    out->n = (uint32_t)(s.n / 2);
    memcpy(r->experts, s.p, s.n);
    for (uint32_t i = 0; i < out->n; i++)
        if (r->experts[i] >= n_experts || !add(seen, r->experts[i])) {
            sl_mp_fail(&r->mp, "hints of experts of the layer, each once");
            return;
        }
    const void *p = get_array(r, 4 * (uint64_t)out->n, "a probability for each hint");
    if (p == NULL) return;
    memcpy(r->probabilities, p, 4 * (size_t)out->n);
    if (!finite_floats(r->probabilities, out->n))
        sl_mp_fail(&r->mp, "probabilities that are finite");
    out->experts = r->experts;
    out->probabilities = r->probabilities;
}

static void get_op(struct sl_trace_reader *r, struct sl_trace_op *out)
{
    out->kind = (enum sl_trace_op_kind)get_u32(r, SL_TRACE_OP_KINDS - 1);
    if (out->kind == SL_TRACE_SLOT_CLOSED || out->kind == SL_TRACE_SLOT_OPENED) {
        bool closed = out->kind == SL_TRACE_SLOT_CLOSED;
        out->layer = get_u32(r, 0);
        out->expert = get_u32(r, closed ? r->header.n_classes - 1 : SL_TRACE_SLOTS_MAX - 1);
    } else {
        out->layer = get_layer(r);
        out->expert = get_expert(r, out->layer);
    }
    out->how = get_u32(r, sl_trace_op_has_how(out->kind) ? SL_TRACE_PASSED_OVER : 0);
}

static void get_read(struct sl_trace_reader *r, struct sl_trace_read *out)
{
    out->layer = get_layer(r);
    out->expert = get_expert(r, out->layer);
    out->why = get_u32(r, WHY_MAX);
    out->bytes = get_number(r);
    int64_t last = (int64_t)r->last_read_ns;
    int64_t since = sl_mp_get_int(&r->mp, -last, (int64_t)SL_TRACE_NUMBER_MAX - last);
    r->last_read_ns = (uint64_t)(last + since);
    out->begin_ns = r->last_read_ns;
    out->took_ns = get_number(r);
}

static void get_done(struct sl_trace_reader *r, struct sl_trace_done *out)
{
    if (!r->in_eval) sl_mp_fail(&r->mp, "an eval before its end");
    r->in_eval = false;
    out->end_ns = get_time(r);
    (void)sl_mp_get_array(&r->mp, SL_TRACE_PHASES, SL_TRACE_PHASES);
    for (uint32_t i = 0; i < SL_TRACE_PHASES; i++) out->phase_ns[i] = get_number(r);
}

/* Items of each kind's array, the kind included. */
static const uint8_t n_items[] = {
    [SL_TRACE_END] = 1, [SL_TRACE_EVAL] = 6, [SL_TRACE_LAYER] = 12, [SL_TRACE_HINT] = 6,
    [SL_TRACE_OP] = 5,  [SL_TRACE_READ] = 7, [SL_TRACE_DONE] = 3,
};

void sl_tf_read_record(struct sl_trace_reader *r, struct sl_trace_record *out)
{
    *out = (struct sl_trace_record){.kind = SL_TRACE_END};
    uint64_t items = sl_mp_get_array(&r->mp, 1, 12);
    uint32_t kind = get_u32(r, SL_TRACE_DONE);
    if (items != n_items[kind]) sl_mp_fail(&r->mp, "a record with as many items as its kind has");
    if (r->mp.failed != NULL) return;
    out->kind = (enum sl_trace_kind)kind;
    switch (out->kind) {
    case SL_TRACE_END:
        break;
    case SL_TRACE_EVAL:
        get_eval(r, &out->u.eval);
        break;
    case SL_TRACE_LAYER:
        get_layer_record(r, &out->u.layer);
        break;
    case SL_TRACE_HINT:
        get_hints(r, &out->u.hints);
        break;
    case SL_TRACE_OP:
        get_op(r, &out->u.op);
        break;
    case SL_TRACE_READ:
        get_read(r, &out->u.read);
        break;
    case SL_TRACE_DONE:
        get_done(r, &out->u.done);
        break;
    }
}
