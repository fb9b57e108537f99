/* The trace that a model is opened with: what its header says, and when it begins and ends. What
 * happens then is record.c's business. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/api.h"
#include "engine/record.h"
#include "formats/sums.h"

_Static_assert(SL_TRACE_CLASSES == SL_EC_CLASSES_MAX, "a header has slots of every class");

static void set_text(char *to, const char *text) { (void)snprintf(to, SL_TRACE_TEXT, "%s", text); }

/* As the options are spelled on the command line. */
static void put_lossy(const sluice_model *m, char *text)
{
    size_t at = 0;
    const sluice_options *o = &m->opt;
    if (m->lossy & SLUICE_LOSSY_EXPERTS_USED)
        at +=
            (size_t)snprintf(text + at, SL_TRACE_TEXT - at, "--experts-used %u ", o->experts_used);
    if (m->lossy & SLUICE_LOSSY_STICKY)
        at += (size_t)snprintf(text + at, SL_TRACE_TEXT - at, "--sticky %g:%u ", (double)o->sticky,
                               o->sticky_size);
    if (m->lossy & SLUICE_LOSSY_DROP_COLD)
        at += (size_t)snprintf(text + at, SL_TRACE_TEXT - at, "--drop-cold %g ",
                               (double)o->drop_cold);
    if (at > 0) text[at - 1] = '\0';
}

static void put_texts(const sluice_model *m, struct sl_trace_header *h)
{
    static const char *const prefetch[] = {[SLUICE_PREFETCH_AUTO] = "auto",
                                           [SLUICE_PREFETCH_OFF] = "off",
                                           [SLUICE_PREFETCH_FORCED] = "forced"};
    const char *path = sl_file_path(sl_gguf_file(m->gguf, 0)), *slash = strrchr(path, '/');
    set_text(h->file, slash ? slash + 1 : path);
    set_text(h->model, m->name[0] ? m->name : h->file);
    (void)snprintf(h->program, SL_TRACE_TEXT, "sluice %s", sluice_version());
    set_text(h->architecture, m->arch);
    set_text(h->machine, sluice_build_info());
    set_text(h->policy, api_policy(m)->name);
    set_text(h->io, m->opt.io == SLUICE_IO_MMAP ? "mmap" : sl_io_name(m->m.io));
    set_text(h->prefetch, prefetch[m->opt.prefetch]);
    set_text(h->isa, m->kernels->isa);
    put_lossy(m, h->lossy);
}

static void put_layers(const struct sl_model *m, const struct sl_expert_sizes *z,
                       struct sl_trace_header *h)
{
    h->n_layers = m->n_layers;
    h->n_classes = z->n_classes;
    for (uint32_t l = 0; l < m->n_layers; l++) {
        const struct sl_layer *y = &m->layers[l];
        struct sl_trace_layer_info *i = &h->layer[l];
        if (y->n_experts == 0) continue;
        *i = (struct sl_trace_layer_info){
            .n_experts = y->n_experts,
            .top_k = y->router.top_k,
            .size_class = z->class_of[l],
            .expert_bytes = sl_expert_shape_bytes(&y->experts) / y->n_experts,
            .slot_bytes = z->slot_bytes[z->class_of[l]],
        };
        for (uint32_t p = 0; p < y->experts.n_parts; p++)
            i->weights += (uint64_t)y->experts.part[p].rows * y->experts.part[p].cols;
    }
}

/* Mapped files have no slots, and nobody knows what the kernel reads of them. */
static void put_cache(const sluice_model *m, const struct api_plan *plan, struct sl_trace_header *h)
{
    h->measured = SL_TRACE_WEIGHTS | SL_TRACE_TIMES;
    if (m->opt.io == SLUICE_IO_MMAP) return;
    h->measured |= SL_TRACE_STATES | SL_TRACE_READS | SL_TRACE_OPS;
    if (plan->p.streams && m->opt.prefetch != SLUICE_PREFETCH_OFF) h->measured |= SL_TRACE_HINTS;
    memcpy(h->n_slots, plan->n_slots, sizeof plan->n_slots);
    h->ring_slots = sl_expert_ring_slots(plan->n_slots);
}

static void put_numbers(const sluice_model *m, const struct api_plan *plan,
                        struct sl_trace_header *h)
{
    h->version = SL_TRACE_VERSION;
    h->model_hash = sl_sums_model(m->gguf);
    h->model_bytes = m->file_bytes;
    h->ram_bytes = m->opt.ram_bytes;
    h->unix_s = (uint64_t)time(NULL);
    h->n_ctx = m->n_ctx;
    h->threads = m->threads;
    h->chunk = m->chunk;
    put_cache(m, plan, h);
}

/* The file is written in place of what is there: not of the model. */
static sluice_err refuse(const sluice_model *m, sluice_error *e)
{
    if (m->m.n_moe_layers == 0)
        return sl_fail(e, SLUICE_E_UNSUPPORTED,
                       "'%s' has no routed experts, so there is nothing to trace; leave out "
                       "--trace (trace)",
                       sl_file_path(sl_gguf_file(m->gguf, 0)));
    for (uint32_t i = 0; i < m->n_files; i++)
        if (sl_file_is(sl_gguf_file(m->gguf, i), m->opt.trace))
            return sl_fail(e, SLUICE_E_ARG,
                           "the trace '%.256s' would be written over the model; name another file",
                           m->opt.trace);
    return SLUICE_OK;
}

/* What is too large for a stack. */
struct work {
    struct sl_trace_header header;
    struct sl_expert_sizes sizes;
    struct sl_expert_shape shapes[SL_LAYERS_MAX];
};

sluice_err api_trace_open(sluice_model *m, const struct api_plan *plan, sluice_error *e)
{
    if (!m->opt.trace) return SLUICE_OK;
    sluice_err err = refuse(m, e);
    if (err != SLUICE_OK) return err;
    struct work *w = sl_alloc(&m->budget, 1, sizeof *w);
    if (!w) return sl_fail(e, SLUICE_E_NOMEM, "no memory for a trace");
    for (uint32_t l = 0; l < m->m.n_layers; l++) w->shapes[l] = m->m.layers[l].experts;
    sl_expert_sizes(w->shapes, m->m.n_layers, &w->sizes);
    put_layers(&m->m, &w->sizes, &w->header);
    put_numbers(m, plan, &w->header);
    put_texts(m, &w->header);
    const struct sl_record_config c = {m->opt.trace, &w->header, &m->m, &m->log};
    err = sl_record_open(&c, &m->budget, e, &m->record);
    m->m.record = m->record;
    sl_free(w);
    return err;
}
