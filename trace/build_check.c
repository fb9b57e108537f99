/* The rules that a trace's header and records keep to, the same as those of formats/trace_record.c:
 * whoever has a trace may use its numbers as indices, and write it as a file. */
#include "trace/build.h"

#include <string.h>

#define MASK_WORDS (SL_EXPERTS_MAX / 64)
#define WHY_MAX 5

sluice_err sl_trace_check_header(const struct sl_trace_header *h, sluice_error *e)
{
    if (h->n_layers == 0) return sl_fail(e, SLUICE_E_FORMAT, "the header names no layers");
    if (h->n_layers > SL_LAYERS_MAX)
        return sl_fail(e, SLUICE_E_LIMIT, "%u layers, at most %d are supported", h->n_layers,
                       SL_LAYERS_MAX);
    if (h->n_classes == 0 || h->n_classes > SL_TRACE_CLASSES)
        return sl_fail(e, SLUICE_E_LIMIT, "%u size classes, 1 to %d are supported", h->n_classes,
                       SL_TRACE_CLASSES);
    bool many = h->ring_slots > SL_TRACE_SLOTS_MAX, any = false;
    for (uint32_t c = 0; c < h->n_classes; c++) many = many || h->n_slots[c] > SL_TRACE_SLOTS_MAX;
    if (many || h->measured >= 2 * SL_TRACE_OPS || h->model_bytes > SL_TRACE_NUMBER_MAX ||
        h->ram_bytes > SL_TRACE_NUMBER_MAX || h->unix_s > SL_TRACE_NUMBER_MAX)
        return sl_fail(e, SLUICE_E_FORMAT, "a number of the header is out of its range");
    for (uint32_t l = 0; l < h->n_layers; l++) {
        const struct sl_trace_layer_info *i = &h->layer[l];
        if (i->size_class >= h->n_classes || (i->n_experts == 0 && i->top_k))
            return sl_fail(e, SLUICE_E_FORMAT, "layer %u: size class %u of %u, %u of %u experts", l,
                           i->size_class, h->n_classes, i->top_k, i->n_experts);
        if (i->n_experts == 0) continue;
        any = true;
        if (i->expert_bytes > SL_TRACE_NUMBER_MAX || i->slot_bytes > SL_TRACE_NUMBER_MAX ||
            i->weights > SL_TRACE_NUMBER_MAX)
            return sl_fail(e, SLUICE_E_FORMAT, "layer %u: a size of more than 2^60", l);
        if (i->n_experts > SL_EXPERTS_MAX)
            return sl_fail(e, SLUICE_E_LIMIT, "layer %u: %u experts, at most %d are supported", l,
                           i->n_experts, SL_EXPERTS_MAX);
        if (i->top_k == 0 || i->top_k > SL_TOP_K_MAX || i->top_k > i->n_experts)
            return sl_fail(e, SLUICE_E_FORMAT,
                           "layer %u: %u of %u experts are chosen, wanted 1 to %u", l, i->top_k,
                           i->n_experts, i->n_experts < SL_TOP_K_MAX ? i->n_experts : SL_TOP_K_MAX);
    }
    if (!any) return sl_fail(e, SLUICE_E_FORMAT, "no layer has experts: there is nothing to study");
    return SLUICE_OK;
}

/* Adds a number to a set of experts; false: it was in it. */
static bool add(uint64_t set[MASK_WORDS], uint32_t expert)
{
    uint64_t bit = UINT64_C(1) << expert % 64;
    if (set[expert / 64] & bit) return false;
    set[expert / 64] |= bit;
    return true;
}

static bool finite(const float *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        if ((bits & 0x7f800000u) == 0x7f800000u) return false;
    }
    return true;
}

sluice_err sl_trace_check_time(const struct sl_trace_build *build, uint64_t ns, const char *what,
                               sluice_error *e)
{
    if (ns >= build->last_ns && ns <= SL_TRACE_NUMBER_MAX) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_FORMAT, "it %s at %llu ns, before what stands in front of it", what,
                   (unsigned long long)ns);
}

static sluice_err check_chosen(const struct sl_trace_layer *r, uint32_t n_experts, sluice_error *e)
{
    for (uint32_t t = 0; t < r->n_tokens; t++) {
        uint64_t seen[MASK_WORDS] = {0};
        for (uint32_t k = 0; k < r->top_k; k++) {
            uint32_t expert = r->chosen[t * r->top_k + k];
            if (expert == SL_TRACE_NONE) continue;
            if (expert >= n_experts)
                return sl_fail(e, SLUICE_E_FORMAT, "layer %u: expert %u, but it has %u (0 to %u)",
                               r->layer, expert, n_experts, n_experts - 1);
            if (!add(seen, expert))
                return sl_fail(e, SLUICE_E_FORMAT, "layer %u: expert %u twice for one token",
                               r->layer, expert);
        }
    }
    return SLUICE_OK;
}

static sluice_err check_states(const struct sl_trace_layer *r, sluice_error *e)
{
    uint64_t missing[MASK_WORDS] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; r->states && i < r->n_tokens * r->top_k; i++) {
        if (r->states[i] > (SL_TRACE_STATE_MASK | SL_TRACE_AHEAD))
            return sl_fail(e, SLUICE_E_FORMAT, "layer %u: state %u, wanted 0 to 7", r->layer,
                           r->states[i]);
        if ((r->states[i] & SL_TRACE_STATE_MASK) == SL_TRACE_MISSING &&
            r->chosen[i] != SL_TRACE_NONE)
            n += add(missing, r->chosen[i]);
    }
    if (r->n_entries && r->n_entries != n)
        return sl_fail(e, SLUICE_E_FORMAT, "layer %u: %u entries for %u missing experts", r->layer,
                       r->n_entries, n);
    for (uint32_t i = 0; i < r->n_entries; i++)
        if (r->entries[i] > SL_TRACE_PASSED_OVER)
            return sl_fail(e, SLUICE_E_FORMAT, "layer %u: entry %u, wanted 0 to 2", r->layer,
                           r->entries[i]);
    return SLUICE_OK;
}

sluice_err sl_trace_check_layer(const struct sl_trace_build *build, const struct sl_trace_layer *r,
                                sluice_error *e)
{
    const struct sl_trace *t = build->t;
    const struct sl_trace_eval_span *last = t->n_evals ? &t->evals[t->n_evals - 1] : NULL;
    if (last == NULL || last->done.end_ns)
        return sl_fail(e, SLUICE_E_FORMAT, "layer %u before any eval", r->layer);
    if (r->layer >= t->header.n_layers || t->header.layer[r->layer].n_experts == 0)
        return sl_fail(e, SLUICE_E_FORMAT, "layer %u has no experts; the header names %u layers",
                       r->layer, t->header.n_layers);
    const struct sl_trace_layer_info *info = &t->header.layer[r->layer];
    if (r->layer < build->next_layer)
        return sl_fail(e, SLUICE_E_FORMAT, "layer %u after layer %u of the same eval", r->layer,
                       build->next_layer - 1);
    if (r->n_tokens != last->e.n_tokens)
        return sl_fail(e, SLUICE_E_FORMAT, "layer %u of %u tokens in an eval of %u", r->layer,
                       r->n_tokens, last->e.n_tokens);
    if (r->top_k == 0 || r->top_k > info->top_k)
        return sl_fail(e, SLUICE_E_FORMAT, "layer %u: %u experts a token, wanted 1 to %u", r->layer,
                       r->top_k, info->top_k);
    if (((t->header.measured & SL_TRACE_WEIGHTS) && !r->weights) ||
        ((t->header.measured & SL_TRACE_STATES) && !r->states))
        return sl_fail(e, SLUICE_E_FORMAT, "layer %u has no %s, which the header says there are",
                       r->layer, r->weights ? "states" : "weights");
    sluice_err code = check_chosen(r, info->n_experts, e);
    if (code == SLUICE_OK) code = check_states(r, e);
    if (code == SLUICE_OK && r->weights && !finite(r->weights, (uint64_t)r->n_tokens * r->top_k))
        code = sl_fail(e, SLUICE_E_FORMAT, "layer %u: a weight that is not finite", r->layer);
    if (code == SLUICE_OK &&
        (r->read_bytes > SL_TRACE_NUMBER_MAX || r->dense_ns > SL_TRACE_NUMBER_MAX ||
         r->expert_ns > SL_TRACE_NUMBER_MAX || r->wait_ns > SL_TRACE_NUMBER_MAX))
        code = sl_fail(e, SLUICE_E_FORMAT, "layer %u: a number of more than 2^60", r->layer);
    if (code == SLUICE_OK) code = sl_trace_check_time(build, r->begin_ns, "begins", e);
    return code;
}

static sluice_err check_place(const struct sl_trace_build *build, uint32_t layer, uint32_t expert,
                              sluice_error *e)
{
    const struct sl_trace_header *h = &build->t->header;
    if (layer < h->n_layers && expert < h->layer[layer].n_experts) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_FORMAT, "there is no expert %u of layer %u", expert, layer);
}

sluice_err sl_trace_check_hints(const struct sl_trace_build *build, const struct sl_trace_hints *r,
                                sluice_error *e)
{
    uint64_t seen[MASK_WORDS] = {0};
    sluice_err code = check_place(build, r->layer, 0, e);
    for (uint32_t i = 0; i < r->n && code == SLUICE_OK; i++) {
        code = check_place(build, r->layer, r->experts[i], e);
        if (code == SLUICE_OK && !add(seen, r->experts[i]))
            code = sl_fail(e, SLUICE_E_FORMAT, "hints of expert %u twice", r->experts[i]);
    }
    if (code == SLUICE_OK && !finite(r->probabilities, r->n))
        code = sl_fail(e, SLUICE_E_FORMAT, "a probability that is not finite");
    return code;
}

sluice_err sl_trace_check_op(const struct sl_trace_build *build, const struct sl_trace_op *r,
                             sluice_error *e)
{
    if ((unsigned)r->kind >= SL_TRACE_OP_KINDS)
        return sl_fail(e, SLUICE_E_FORMAT, "an op of kind %d, wanted 0 to %d", (int)r->kind,
                       SL_TRACE_OP_KINDS - 1);
    if (r->how > (sl_trace_op_has_how(r->kind) ? SL_TRACE_PASSED_OVER : 0))
        return sl_fail(e, SLUICE_E_FORMAT, "an op whose way in is %u", r->how);
    if (r->kind != SL_TRACE_SLOT_CLOSED && r->kind != SL_TRACE_SLOT_OPENED)
        return check_place(build, r->layer, r->expert, e);
    uint32_t limit =
        r->kind == SL_TRACE_SLOT_CLOSED ? build->t->header.n_classes : SL_TRACE_SLOTS_MAX;
    if (r->layer == 0 && r->expert < limit) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_FORMAT, "an op of slot or class %u, wanted below %u", r->expert,
                   limit);
}

sluice_err sl_trace_check_read(const struct sl_trace_build *build, const struct sl_trace_read *r,
                               sluice_error *e)
{
    if (r->why > WHY_MAX)
        return sl_fail(e, SLUICE_E_FORMAT, "a read whose reason is %u, wanted 0 to %d", r->why,
                       WHY_MAX);
    if (r->bytes > SL_TRACE_NUMBER_MAX || r->begin_ns > SL_TRACE_NUMBER_MAX ||
        r->took_ns > SL_TRACE_NUMBER_MAX)
        return sl_fail(e, SLUICE_E_FORMAT, "a read with a number of more than 2^60");
    return check_place(build, r->layer, r->expert, e);
}
