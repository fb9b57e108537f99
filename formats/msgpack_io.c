/* MessagePack: see msgpack_io.h. Source of the encoding: the MessagePack specification
 * (github.com/msgpack/msgpack, spec.md). */
#include "formats/msgpack_io.h"

#include <msgpack.h>
#include <string.h>

/* ---- writing ----------------------------------------------------------------------------------
 */

static int to_sink(void *user, const char *data, size_t bytes)
{
    struct sl_mp_writer *w = user;
    w->sink(w->user, data, bytes);
    return 0;
}

static msgpack_packer packer(struct sl_mp_writer *w)
{
    msgpack_packer p;
    msgpack_packer_init(&p, w, to_sink);
    return p;
}

/* The packers return what to_sink does: 0. */
#define PUT(call)                                                                                  \
    do {                                                                                           \
        msgpack_packer p = packer(w);                                                              \
        (void)(call);                                                                              \
    } while (0)

void sl_mp_put_uint(struct sl_mp_writer *w, uint64_t v) { PUT(msgpack_pack_uint64(&p, v)); }

void sl_mp_put_int(struct sl_mp_writer *w, int64_t v) { PUT(msgpack_pack_int64(&p, v)); }

void sl_mp_put_sum(struct sl_mp_writer *w, uint64_t v) { PUT(msgpack_pack_fix_uint64(&p, v)); }

void sl_mp_put_f32(struct sl_mp_writer *w, uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    PUT(msgpack_pack_float(&p, v));
}

void sl_mp_put_f64(struct sl_mp_writer *w, uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    PUT(msgpack_pack_double(&p, v));
}

void sl_mp_put_str(struct sl_mp_writer *w, struct sl_str s)
{
    SLUICE_ASSERT(s.n <= UINT32_MAX);
    PUT(msgpack_pack_str(&p, s.n));
    if (s.n > 0) w->sink(w->user, s.p, s.n);
}

void sl_mp_put_bin_head(struct sl_mp_writer *w, uint64_t bytes)
{
    SLUICE_ASSERT(bytes <= UINT32_MAX);
    PUT(msgpack_pack_bin(&p, bytes));
}

void sl_mp_put_bin(struct sl_mp_writer *w, const void *data, uint64_t bytes)
{
    sl_mp_put_bin_head(w, bytes);
    if (bytes > 0) w->sink(w->user, data, bytes);
}

void sl_mp_put_array(struct sl_mp_writer *w, uint64_t count)
{
    SLUICE_ASSERT(count <= UINT32_MAX);
    PUT(msgpack_pack_array(&p, count));
}

void sl_mp_put_map(struct sl_mp_writer *w, uint64_t count)
{
    SLUICE_ASSERT(count <= UINT32_MAX);
    PUT(msgpack_pack_map(&p, count));
}

/* ---- reading ----------------------------------------------------------------------------------
 */

enum item_kind { ITEM_NONE, NIL, BOOL, UINT, NEGATIVE, F32, F64, STR, BIN, ARRAY, MAP, EXT };

/* One item's head. */
struct item {
    enum item_kind kind;
    uint64_t v;    /* value or bits; of STR, BIN and EXT bytes; of ARRAY items, of MAP pairs */
    uint64_t head; /* bytes of the head */
};

/* The forms whose first byte is 0xc0 to 0xdf: what they are, and how many bytes of number follow
 * (for NIL, BOOL and EXT of fixed size none: v is then fixed). */
static const struct form {
    uint8_t kind, number_bytes, fixed;
} forms[32] = {
    [0x00] = {NIL, 0, 0},      [0x02] = {BOOL, 0, 0},     [0x03] = {BOOL, 0, 1},
    [0x04] = {BIN, 1, 0},      [0x05] = {BIN, 2, 0},      [0x06] = {BIN, 4, 0},
    [0x07] = {EXT, 1, 0},      [0x08] = {EXT, 2, 0},      [0x09] = {EXT, 4, 0},
    [0x0a] = {F32, 4, 0},      [0x0b] = {F64, 8, 0},      [0x0c] = {UINT, 1, 0},
    [0x0d] = {UINT, 2, 0},     [0x0e] = {UINT, 4, 0},     [0x0f] = {UINT, 8, 0},
    [0x10] = {NEGATIVE, 1, 0}, [0x11] = {NEGATIVE, 2, 0}, [0x12] = {NEGATIVE, 4, 0},
    [0x13] = {NEGATIVE, 8, 0}, [0x14] = {EXT, 0, 1},      [0x15] = {EXT, 0, 2},
    [0x16] = {EXT, 0, 4},      [0x17] = {EXT, 0, 8},      [0x18] = {EXT, 0, 16},
    [0x19] = {STR, 1, 0},      [0x1a] = {STR, 2, 0},      [0x1b] = {STR, 4, 0},
    [0x1c] = {ARRAY, 2, 0},    [0x1d] = {ARRAY, 4, 0},    [0x1e] = {MAP, 2, 0},
    [0x1f] = {MAP, 4, 0},
};

void sl_mp_read(struct sl_mp_reader *r, const void *data, uint64_t bytes)
{
    *r = (struct sl_mp_reader){.base = data, .bytes = bytes};
}

void sl_mp_fail(struct sl_mp_reader *r, const char *wanted)
{
    if (r->failed == NULL) r->failed = wanted;
}

static struct item short_form(unsigned first)
{
    if (first < 0x80) return (struct item){UINT, first, 1};
    if (first < 0x90) return (struct item){MAP, first & 15, 1};
    if (first < 0xa0) return (struct item){ARRAY, first & 15, 1};
    if (first < 0xc0) return (struct item){STR, first & 31, 1};
    return (struct item){NEGATIVE, (uint64_t)((int64_t)first - 256), 1}; /* 0xe0 and above */
}

/* The head of the next item; ITEM_NONE where it or what it announces is not there. A signed form
 * with a value from 0 on is a UINT. */
static struct item look(const struct sl_mp_reader *r)
{
    const struct item none = {ITEM_NONE, 0, 0};
    if (r->failed != NULL || r->at >= r->bytes) return none;
    const unsigned char *p = r->base + r->at;
    uint64_t left = r->bytes - r->at, v = 0;
    struct item it;
    if (*p < 0xc0 || *p >= 0xe0) {
        it = short_form(*p);
    } else {
        struct form f = forms[*p - 0xc0];
        if (left < 1u + f.number_bytes) return none;
        for (uint32_t i = 0; i < f.number_bytes; i++) v = v << 8 | p[1 + i];
        it = (struct item){(enum item_kind)f.kind, v | f.fixed, 1u + f.number_bytes};
        if (f.kind == NEGATIVE) {
            uint32_t unused = 64 - 8 * f.number_bytes;
            it.v = (uint64_t)((int64_t)(v << unused) >> unused);
        }
        if (f.kind == EXT) it.v++; /* the byte of its type */
    }
    if (it.kind == NEGATIVE && (int64_t)it.v >= 0) it.kind = UINT;
    left -= it.head;
    bool sized = it.kind == STR || it.kind == BIN || it.kind == EXT || it.kind == ARRAY;
    if ((sized && it.v > left) || (it.kind == MAP && it.v > left / 2)) return none;
    return it;
}

/* Takes the next item if it is of that kind. */
static bool take(struct sl_mp_reader *r, enum item_kind kind, const char *wanted, struct item *it)
{
    *it = look(r);
    if (it->kind == kind) {
        r->at += it->head;
        return true;
    }
    sl_mp_fail(r, wanted);
    it->v = 0;
    return false;
}

uint64_t sl_mp_get_uint(struct sl_mp_reader *r, uint64_t max)
{
    struct item it = look(r);
    if (it.kind == UINT && it.v <= max) {
        r->at += it.head;
        return it.v;
    }
    sl_mp_fail(r, "a whole number in range");
    return 0;
}

int64_t sl_mp_get_int(struct sl_mp_reader *r, int64_t min, int64_t max)
{
    struct item it = look(r);
    bool fits = it.kind == NEGATIVE || (it.kind == UINT && it.v <= INT64_MAX);
    if (fits && (int64_t)it.v >= min && (int64_t)it.v <= max) {
        r->at += it.head;
        return (int64_t)it.v;
    }
    sl_mp_fail(r, "a whole number in range");
    return 0;
}

uint32_t sl_mp_get_f32(struct sl_mp_reader *r)
{
    struct item it;
    (void)take(r, F32, "a float of 32 bits", &it);
    return (uint32_t)it.v;
}

uint64_t sl_mp_get_f64(struct sl_mp_reader *r)
{
    struct item it;
    (void)take(r, F64, "a float of 64 bits", &it);
    return it.v;
}

static struct sl_str take_bytes(struct sl_mp_reader *r, enum item_kind kind, const char *wanted)
{
    struct item it;
    if (!take(r, kind, wanted, &it)) return (struct sl_str){"", 0};
    struct sl_str s = {(const char *)r->base + r->at, it.v};
    r->at += it.v;
    return s;
}

struct sl_str sl_mp_get_str(struct sl_mp_reader *r) { return take_bytes(r, STR, "a string"); }

struct sl_str sl_mp_get_bin(struct sl_mp_reader *r) { return take_bytes(r, BIN, "bytes (bin)"); }

uint64_t sl_mp_get_array(struct sl_mp_reader *r, uint64_t min, uint64_t max)
{
    struct item it = look(r);
    if (it.kind == ARRAY && it.v >= min && it.v <= max) {
        r->at += it.head;
        return it.v;
    }
    sl_mp_fail(r, it.kind == ARRAY ? "an array of another length" : "an array");
    return 0;
}

uint64_t sl_mp_get_map(struct sl_mp_reader *r)
{
    struct item it;
    (void)take(r, MAP, "a map", &it);
    return it.v;
}

void sl_mp_expect(struct sl_mp_reader *r, const char *name)
{
    struct sl_mp_reader before = *r;
    if (sl_str_eq(sl_mp_get_str(r), name)) return;
    *r = before;
    sl_mp_fail(r, name);
}

/* A count of what is still to come replaces a stack: it grows by at most an item for each byte that
 * is left, so it fits. */
void sl_mp_skip(struct sl_mp_reader *r)
{
    for (uint64_t todo = 1; todo > 0; todo--) {
        struct item it = look(r);
        if (it.kind == ITEM_NONE) {
            sl_mp_fail(r, "an item");
            return;
        }
        r->at += it.head;
        if (it.kind == STR || it.kind == BIN || it.kind == EXT) r->at += it.v;
        if (it.kind == ARRAY) todo += it.v;
        if (it.kind == MAP) todo += 2 * it.v;
    }
}
