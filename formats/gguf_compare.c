/* Comparing metadata; see gguf_compare.h. Values lie in memory as the header has them, so that
 * equal ones are equal bytes; only how many an array takes has to be found out. */
#include "formats/gguf_compare.h"

#include <string.h>

#include "formats/gguf_internal.h"

uint32_t sl_gguf_key_index(const struct sl_gguf *g, struct sl_str key)
{
    const struct sl_gg_meta *m = &g->head.meta;

    return sl_gg_index_find(&m->index, m->keys, sizeof *m->keys, key);
}

/* Elements of an array that is being walked through. */
struct level {
    uint32_t kind;
    uint64_t left;
};

/* Bytes of a value, whose lengths and depth reading the header has checked. */
static uint64_t value_bytes(const struct sl_gg_key *k)
{
    struct level stack[SL_GGUF_ARRAY_DEPTH_MAX] = {{k->elem_kind, k->count}};
    const unsigned char *p = k->data;
    uint32_t depth = 1;

    if (k->kind == SL_GGUF_STRING) return k->count;
    if (k->kind != SL_GGUF_ARRAY) return sl_gg_kind_bytes(k->kind);
    while (depth > 0) {
        struct level *top = &stack[depth - 1];

        if (top->left == 0) {
            depth--;
        } else if (top->kind == SL_GGUF_STRING) {
            p += 8 + sl_gg_load_u64(p);
            top->left--;
        } else if (top->kind == SL_GGUF_ARRAY) {
            top->left--;
            SLUICE_ASSERT(depth < SL_GGUF_ARRAY_DEPTH_MAX);
            stack[depth++] = (struct level){sl_gg_load_u32(p), sl_gg_load_u64(p + 4)};
            p += 12;
        } else {
            p += top->left * sl_gg_kind_bytes(top->kind);
            top->left = 0;
        }
    }
    return (uint64_t)(p - k->data);
}

bool sl_gguf_same_value(const struct sl_gguf *a, uint32_t index_a, const struct sl_gguf *b,
                        uint32_t index_b)
{
    const struct sl_gg_key *x, *y;
    struct sl_gg_int m, n;

    SLUICE_ASSERT(index_a < a->head.meta.n_keys && index_b < b->head.meta.n_keys);
    x = &a->head.meta.keys[index_a];
    y = &b->head.meta.keys[index_b];
    if (sl_gg_int_at(x->kind, x->data, 0, &m) && sl_gg_int_at(y->kind, y->data, 0, &n))
        return m.magnitude == n.magnitude && (m.negative == n.negative || m.magnitude == 0);
    if (x->kind != y->kind || x->elem_kind != y->elem_kind || x->count != y->count) return false;
    uint64_t bytes = value_bytes(x);
    return bytes == value_bytes(y) && memcmp(x->data, y->data, bytes) == 0;
}
