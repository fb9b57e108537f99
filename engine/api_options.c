/* Options, ranges and the memory plan. */
#include <string.h>

#include "engine/api.h"

_Static_assert(sizeof(sluice_options) == 80,
               "sluice_options has tail padding or changed: bump the ABI knowingly");

sluice_err api_copy_struct(void *dst, size_t dst_size, const void *src, size_t src_size,
                           sluice_error *e)
{
    if (src_size < sizeof(uint32_t) || src_size > 4096)
        return sl_fail(e, SLUICE_E_ARG,
                       "struct_size is %zu; initialise the struct with its _INIT macro", src_size);
    memcpy(dst, src, src_size < dst_size ? src_size : dst_size);
    const unsigned char *tail = src;
    for (size_t i = dst_size; i < src_size; i++)
        if (tail[i] != 0)
            return sl_fail(e, SLUICE_E_UNSUPPORTED,
                           "the program sets an option that this version of the library (%s) "
                           "does not know",
                           sluice_version());
    return SLUICE_OK;
}

static sluice_err check_options(const sluice_options *o, sluice_error *e)
{
    if (o->threads > SL_THREADS_MAX)
        return sl_fail(e, SLUICE_E_ARG, "threads is %u, wanted 0 to %u", o->threads,
                       SL_THREADS_MAX);
    if (o->isa > SLUICE_ISA_NEON)
        return sl_fail(e, SLUICE_E_ARG, "isa is %u, wanted 0 to 3", o->isa);
    if (o->n_ctx > SL_CONTEXT_MAX)
        return sl_fail(e, SLUICE_E_ARG, "n_ctx is %u, wanted 0 to %u", o->n_ctx, SL_CONTEXT_MAX);
    if (o->kv > SLUICE_KV_Q8) return sl_fail(e, SLUICE_E_ARG, "kv is %u, wanted 0 to 3", o->kv);
    if (o->chunk > SL_CHUNK_MAX)
        return sl_fail(e, SLUICE_E_ARG, "chunk is %u, wanted 0 to %u", o->chunk, SL_CHUNK_MAX);
    if (o->flags & ~(uint32_t)(SLUICE_OPEN_HEADER | SLUICE_OPEN_VOCAB))
        return sl_fail(e, SLUICE_E_ARG, "flags is %u, which holds an unknown bit", o->flags);
    return SLUICE_OK;
}

sluice_err api_options(const sluice_options *opt, sluice_options *out, sluice_error *e)
{
    *out = (sluice_options)SLUICE_OPTIONS_INIT;
    if (opt) {
        sluice_err err = api_copy_struct(out, sizeof *out, opt, opt->struct_size, e);
        if (err != SLUICE_OK) return err;
        out->struct_size = sizeof *out;
    }
    sluice_err err = check_options(out, e);
    if (out->chunk == 0) out->chunk = API_CHUNK_DEFAULT;
    if (out->log_level == 0) out->log_level = SLUICE_LOG_INFO;
    if (out->kv == SLUICE_KV_DEFAULT) out->kv = SLUICE_KV_Q8;
    return err;
}

enum sl_kv_type api_kv_type(uint32_t kv)
{
    switch (kv) {
    case SLUICE_KV_F32:
        return SL_KV_F32;
    case SLUICE_KV_F16:
        return SL_KV_F16;
    default:
        return SL_KV_Q8;
    }
}

uint32_t api_threads(const sluice_options *opt, const struct sl_cpu_choice *choice)
{
    if (opt->threads == 0) return choice->threads;
    return opt->threads < choice->allowed ? opt->threads : choice->allowed;
}

/* Small pieces that are not worth a line each: handles, tables, block headers, a sampler, open
 * files. */
#define PLAN_SLACK_BYTES (512u << 10)

/* The plan for one context. */
static void plan_for(const struct sl_model *m, uint32_t n_ctx, const sluice_options *opt,
                     sluice_plan *p)
{
    p->n_ctx = n_ctx;
    p->kv_bytes = sl_kv_bytes(m, api_kv_type(opt->kv), n_ctx);
    p->total_bytes = p->dense_bytes + p->expert_bytes + p->tokenizer_bytes + p->kv_bytes +
                     p->scratch_bytes + p->process_bytes;
}

void api_plan(const struct sl_model *m, const sluice_options *opt, uint32_t threads,
              uint64_t tokenizer_bytes, sluice_plan *plan)
{
    sluice_plan p = SLUICE_PLAN_INIT;
    p.dense_bytes = PLAN_SLACK_BYTES + m->resident_bytes + m->arena.total_bytes +
                    m->weights_capacity * sizeof *m->weights;
    for (uint32_t l = 0; l < m->n_layers; l++)
        p.expert_bytes += sl_expert_shape_bytes(&m->layers[l].experts);
    p.tokenizer_bytes = tokenizer_bytes;
    p.scratch_bytes = sl_scratch_bytes(m, opt->chunk, threads);
    p.process_bytes = API_PROCESS_BYTES + threads * API_THREAD_BYTES;
    p.kv_token_bytes = sl_kv_bytes(m, api_kv_type(opt->kv), SL_KV_BLOCK) / SL_KV_BLOCK;

    uint32_t most = m->n_ctx_train < SL_CONTEXT_MAX ? m->n_ctx_train : SL_CONTEXT_MAX;
    uint32_t least = opt->n_ctx ? opt->n_ctx : most < API_CONTEXT_MIN ? most : API_CONTEXT_MIN;
    plan_for(m, least, opt, &p);
    p.minimum_bytes = p.total_bytes;
    uint32_t n_ctx = opt->n_ctx ? opt->n_ctx : most;
    plan_for(m, n_ctx, opt, &p);
    if (opt->n_ctx == 0 && opt->ram_bytes && p.total_bytes > opt->ram_bytes &&
        p.minimum_bytes <= opt->ram_bytes) {
        uint64_t spare =
            (opt->ram_bytes - p.minimum_bytes) / (p.kv_token_bytes ? p.kv_token_bytes : 1);
        uint64_t fits = sl_min_u64(n_ctx, least + spare / SL_KV_BLOCK * SL_KV_BLOCK);
        plan_for(m, (uint32_t)fits, opt, &p);
    }
    uint32_t size = plan->struct_size;
    p.struct_size = size;
    memcpy(plan, &p, size < sizeof p ? size : sizeof p);
}
