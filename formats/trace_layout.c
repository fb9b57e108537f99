/* Trace files: the tables and bytes that writer and reader share. See trace_internal.h. */
#include "formats/trace_internal.h"

/* "SLTRC", CR, LF, 1A: a transfer as text would break it. */
const unsigned char sl_tf_magic[SL_TF_MAGIC_BYTES] = {0x53, 0x4c, 0x54, 0x52, 0x43, 13, 10, 0x1a};

#define TEXT(field)                                                                                \
    {                                                                                              \
#field, 0, offsetof(struct sl_trace_header, field)                                         \
    }
#define U32(field, max)                                                                            \
    {                                                                                              \
#field, max, offsetof(struct sl_trace_header, field)                                       \
    }
#define U64(field, max)                                                                            \
    {                                                                                              \
#field, max, offsetof(struct sl_trace_header, field)                                       \
    }

const struct sl_tf_key sl_tf_keys[SL_TF_KEYS] = {
    TEXT(program),
    TEXT(model),
    TEXT(file),
    TEXT(architecture),
    TEXT(machine),
    TEXT(policy),
    TEXT(io),
    TEXT(prefetch),
    TEXT(isa),
    TEXT(lossy),
    U64(model_hash, UINT64_MAX),
    U64(model_bytes, SL_TRACE_NUMBER_MAX),
    U64(ram_bytes, SL_TRACE_NUMBER_MAX),
    U64(unix_s, SL_TRACE_NUMBER_MAX),
    U32(n_ctx, UINT32_MAX),
    U32(threads, UINT32_MAX),
    U32(chunk, UINT32_MAX),
    U32(ring_slots, SL_TRACE_SLOTS_MAX),
    U32(n_classes, SL_TRACE_CLASSES),
    U32(measured, SL_TF_MEASURED_ALL),
};

static void big_endian(unsigned char *p, uint32_t bytes, uint64_t v)
{
    for (uint32_t i = 0; i < bytes; i++) p[i] = (unsigned char)(v >> 8 * (bytes - 1 - i));
}

void sl_tf_put_head(unsigned char *p, uint32_t payload_bytes)
{
    p[0] = 0x93; /* an array of 3 */
    p[1] = 0xce; /* a number of 32 bits */
    big_endian(p + 2, 4, payload_bytes);
    p[6] = 0xc6; /* bin whose length has 32 bits */
    big_endian(p + 7, 4, payload_bytes);
}

void sl_tf_put_tail(unsigned char *p, uint64_t sum)
{
    p[0] = 0xcf; /* a number of 64 bits */
    big_endian(p + 1, 8, sum);
}

bool sl_trace_is(const void *data, uint64_t bytes)
{
    const unsigned char *p = data;
    if (bytes < SL_TF_MAGIC_BYTES) return false;
    for (uint32_t i = 0; i < SL_TF_MAGIC_BYTES; i++)
        if (p[i] != sl_tf_magic[i]) return false;
    return true;
}
