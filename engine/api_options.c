/* Options and their ranges. The plan they lead to is made in api_plan.c. */
#include <string.h>

#include "engine/api.h"

_Static_assert(sizeof(sluice_options) == 144,
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
    if (o->isa > SLUICE_ISA_AVX512)
        return sl_fail(e, SLUICE_E_ARG, "isa is %u, wanted 0 to 6", o->isa);
    if (o->n_ctx > SL_CONTEXT_MAX)
        return sl_fail(e, SLUICE_E_ARG, "n_ctx is %u, wanted 0 to %u", o->n_ctx, SL_CONTEXT_MAX);
    if (o->kv > SLUICE_KV_Q8) return sl_fail(e, SLUICE_E_ARG, "kv is %u, wanted 0 to 3", o->kv);
    if (o->chunk > SL_CHUNK_MAX)
        return sl_fail(e, SLUICE_E_ARG, "chunk is %u, wanted 0 to %u", o->chunk, SL_CHUNK_MAX);
    if (o->flags & ~(uint32_t)(SLUICE_OPEN_HEADER | SLUICE_OPEN_VOCAB))
        return sl_fail(e, SLUICE_E_ARG, "flags is %u, which holds an unknown bit", o->flags);
    if (o->graft_layer > SLUICE_GRAFT_OUTPUT || o->reserved)
        return sl_fail(
            e, SLUICE_E_ARG,
            "graft_layer is %u, wanted a layer or one of enum sluice_graft (and reserved "
            "0)",
            o->graft_layer);
    return SLUICE_OK;
}

static sluice_err check_part(float value, const char *name, sluice_error *e)
{
    if (value >= 0.0f && value <= 1.0f) return SLUICE_OK; /* not for what is no number */
    return sl_fail(e, SLUICE_E_ARG, "%s is %g, wanted 0 to 1", name, (double)value);
}

static sluice_err check_streaming(const sluice_options *o, sluice_error *e)
{
    const struct {
        const char *name;
        uint32_t value, most;
    } table[] = {
        {"io", o->io, SLUICE_IO_MMAP},
        {"cache_policy", o->cache_policy, SLUICE_CACHE_RECALL},
        {"prefetch", o->prefetch, SLUICE_PREFETCH_FORCED},
        {"slots", o->slots, SL_EC_SLOTS_MAX},
        {"experts_used", o->experts_used, SL_TOP_K_MAX},
        {"sticky_size", o->sticky_size, SL_EXPERTS_MAX},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(table); i++)
        if (table[i].value > table[i].most)
            return sl_fail(e, SLUICE_E_ARG, "%s is %u, wanted 0 to %u", table[i].name,
                           table[i].value, table[i].most);
    sluice_err err = check_part(o->sticky, "sticky", e);
    return err == SLUICE_OK ? check_part(o->drop_cold, "drop_cold", e) : err;
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
    if (err == SLUICE_OK) err = check_streaming(out, e);
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
