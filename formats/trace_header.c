/* The header of a trace file, read: see trace_internal.h. Keys come in any order after the version;
 * those that this version does not know are passed over, those that are not there stay 0 or empty,
 * which is "not known". */
#include "formats/trace_internal.h"

#include <inttypes.h>
#include <string.h>

#define WANTED_CLASS "a size class below n_classes"

enum { KEY_N_SLOTS = SL_TF_KEYS, KEY_LAYERS, KEY_UNKNOWN };

static uint32_t find_key(struct sl_str name)
{
    for (uint32_t i = 0; i < SL_TF_KEYS; i++)
        if (sl_str_eq(name, sl_tf_keys[i].name)) return i;
    if (sl_str_eq(name, "n_slots")) return KEY_N_SLOTS;
    return sl_str_eq(name, "layers") ? KEY_LAYERS : KEY_UNKNOWN;
}

static void get_value(struct sl_trace_reader *r, const struct sl_tf_key *k)
{
    char *at = (char *)&r->header + k->offset;
    if (k->max > 0) {
        uint64_t v = sl_mp_get_uint(&r->mp, k->max);
        memcpy(at, &v, k->max <= UINT32_MAX ? 4 : 8);
        return;
    }
    struct sl_str s = sl_mp_get_str(&r->mp);
    if (s.n >= SL_TRACE_TEXT || memchr(s.p, 0, s.n) != NULL) {
        sl_mp_fail(&r->mp, "a string of at most 255 bytes without a zero");
        return;
    }
    memcpy(at, s.p, s.n);
}

static void get_slots(struct sl_trace_reader *r, uint32_t *n_classes)
{
    *n_classes = (uint32_t)sl_mp_get_array(&r->mp, 1, SL_TRACE_CLASSES);
    for (uint32_t i = 0; i < *n_classes; i++)
        r->header.n_slots[i] = (uint32_t)sl_mp_get_uint(&r->mp, SL_TRACE_SLOTS_MAX);
}

/* Remembers what exceeds a limit of this build: other files may well have it. */
static uint32_t limited(struct sl_trace_reader *r, uint64_t v, uint32_t max, const char *what)
{
    if (v <= max) return (uint32_t)v;
    if (r->failure.code == SLUICE_OK)
        (void)sl_fail(&r->failure, SLUICE_E_LIMIT,
                      "'%s' is the trace of a model with %" PRIu64
                      " %s; this program handles at most %" PRIu32,
                      r->shown, v, what, max);
    return max;
}

static void get_layer(struct sl_trace_reader *r, struct sl_trace_layer_info *l)
{
    uint64_t v[SL_TF_LAYER_NUMBERS];
    (void)sl_mp_get_array(&r->mp, SL_TF_LAYER_NUMBERS, SL_TF_LAYER_NUMBERS);
    for (uint32_t i = 0; i < SL_TF_LAYER_NUMBERS; i++)
        v[i] = sl_mp_get_uint(&r->mp, SL_TRACE_NUMBER_MAX);
    l->n_experts = limited(r, v[0], SL_EXPERTS_MAX, "experts in a layer");
    l->top_k = limited(r, v[1], SL_TOP_K_MAX, "experts chosen for a token in a layer");
    if (v[1] > v[0] || (v[0] == 0) != (v[1] == 0))
        sl_mp_fail(&r->mp, "a choice of 1 to n_experts experts, and of none where there are none");
    if (v[2] >= SL_TRACE_CLASSES) sl_mp_fail(&r->mp, WANTED_CLASS);
    l->size_class = (uint32_t)(v[2] % SL_TRACE_CLASSES);
    l->expert_bytes = v[3];
    l->slot_bytes = v[4];
    l->weights = v[5];
}

static void get_layers(struct sl_trace_reader *r)
{
    uint64_t n = sl_mp_get_array(&r->mp, 1, UINT32_MAX);
    r->header.n_layers = limited(r, n, SL_LAYERS_MAX, "layers");
    for (uint32_t i = 0; i < r->header.n_layers && r->mp.failed == NULL; i++)
        get_layer(r, &r->header.layer[i]);
}

static void get_pairs(struct sl_trace_reader *r, uint64_t pairs)
{
    uint32_t seen = 0, n_classes = 0;
    for (uint64_t i = 1; i < pairs && r->mp.failed == NULL && r->failure.code == SLUICE_OK; i++) {
        uint32_t k = find_key(sl_mp_get_str(&r->mp));
        if (k == KEY_UNKNOWN) {
            sl_mp_skip(&r->mp);
            continue;
        }
        if ((seen & 1u << k) != 0) sl_mp_fail(&r->mp, "each key once");
        seen |= 1u << k;
        if (k < SL_TF_KEYS)
            get_value(r, &sl_tf_keys[k]);
        else if (k == KEY_LAYERS)
            get_layers(r);
        else
            get_slots(r, &n_classes);
    }
    struct sl_trace_header *h = &r->header;
    if ((seen & 1u << KEY_LAYERS) == 0) sl_mp_fail(&r->mp, "the key layers");
    if (h->n_classes == 0) sl_mp_fail(&r->mp, "the key n_classes, 1 to 4");
    if (n_classes != 0 && n_classes != h->n_classes)
        sl_mp_fail(&r->mp, "n_slots with n_classes numbers");
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (h->layer[i].size_class >= h->n_classes) sl_mp_fail(&r->mp, WANTED_CLASS);
}

static sluice_err fail_version(struct sl_trace_reader *r)
{
    return sl_fail(&r->failure, SLUICE_E_VERSION,
                   "'%s' is a trace of version %" PRIu32
                   "; this program reads version %d: use the Sluice that recorded it, or a newer",
                   r->shown, r->header.version, SL_TRACE_VERSION);
}

sluice_err sl_tf_read_header(struct sl_trace_reader *r)
{
    uint64_t pairs = sl_mp_get_map(&r->mp);
    sl_mp_expect(&r->mp, "version");
    r->header.version = (uint32_t)sl_mp_get_uint(&r->mp, UINT32_MAX);
    if (r->mp.failed == NULL && r->header.version != SL_TRACE_VERSION) return fail_version(r);
    get_pairs(r, pairs);
    if (r->failure.code != SLUICE_OK) return (sluice_err)r->failure.code;
    if (r->mp.at < r->mp.bytes) sl_mp_fail(&r->mp, "nothing after the header in its block");
    if (r->mp.failed == NULL) return SLUICE_OK;
    return sl_fail(&r->failure, SLUICE_E_FORMAT,
                   "the header of the trace '%s' breaks its format: wanted %s at byte %" PRIu64
                   " of it; copy the file again, or record anew",
                   r->shown, r->mp.failed, r->mp.at);
}
