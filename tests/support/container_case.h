/* What the tests of containers share: a model with metadata of every kind, resident tensors and
 * experts of several types and sizes, whose bytes are random but always the same; ways to write it
 * and to look at what was written. */
#ifndef SL_TEST_CONTAINER_CASE_H
#define SL_TEST_CONTAINER_CASE_H

#define CASE_BUDGET_BYTES UINT64_MAX
#include "tests/support/gguf_case.h"

#include <sys/stat.h>

#include "formats/checksum.h"
#include "formats/container_write_internal.h"
#include "formats/sq.h"

#define CASE_TENSORS_MAX 64
#define CASE_LAYERS 2
#define CASE_EXPERTS 3
#define CASE_SMALL_PART (6 * SL_CN_ALIGN + 1) /* header and five blocks */
#define CASE_FILES_MAX 16

struct container_case {
    struct gguf_build gguf;
    struct sl_gguf *meta;
    char names[CASE_TENSORS_MAX][48];
    struct sl_container_tensor tensors[CASE_TENSORS_MAX];
    struct sl_container_plan plan;
    char path[CASE_PATH_BYTES];
};

static struct container_case cc;

/* ---- the model -------------------------------------------------------------------------------
 */

static inline void case_metadata(struct gguf_build *b)
{
    gb_begin(b, 3);
    gb_kv_str(b, "general.architecture", "packed");
    gb_kv_int(b, "k.u8", SL_GGUF_U8, 255);
    gb_kv_int(b, "k.i8", SL_GGUF_I8, -128);
    gb_kv_int(b, "k.u16", SL_GGUF_U16, 65535);
    gb_kv_int(b, "k.i16", SL_GGUF_I16, -32768);
    gb_kv_u32(b, "k.u32", UINT32_MAX);
    gb_kv_int(b, "k.i32", SL_GGUF_I32, -7);
    gb_kv_int(b, "k.u64", SL_GGUF_U64, -1);
    gb_kv_int(b, "k.i64", SL_GGUF_I64, INT64_MIN);
    gb_kv_f32(b, "k.f32", 1.1f);
    gb_kv_f64(b, "k.f64", -1e-300);
    gb_kv_bool(b, "k.bool", true);
    gb_kv_int(b, "split.no", SL_GGUF_U16, 0);
    gb_kv_int(b, "split.count", SL_GGUF_U16, 1);
    gb_kv_str(b, "k.empty", "");
    gb_kv_i32s(b, "k.i32s", (const int32_t[]){1, -2, 3}, 3);
    gb_kv_strs(b, "k.strs", (const char *const[]){"a", "", "\xff no UTF-8", "d\n"}, 4);
    gb_kv_array(b, "k.none", SL_GGUF_STRING, 0);
    gb_kv_array(b, "k.nested", SL_GGUF_ARRAY, 2);
    gb_u32(b, SL_GGUF_U8);
    gb_u64(b, 2);
    gb_uint(b, 0x0201, 2);
    gb_u32(b, SL_GGUF_ARRAY);
    gb_u64(b, 1);
    gb_u32(b, SL_GGUF_STRING);
    gb_u64(b, 1);
    gb_str(b, "deep");
}

static inline void case_tensor(uint32_t type, uint64_t cols, uint64_t rows, int32_t layer,
                               int32_t expert)
{
    uint32_t i = cc.plan.n_tensors++;
    static const char *const part[] = {"gate", "up", "down"};

    assert_true(i < CASE_TENSORS_MAX);
    if (expert < 0)
        snprintf(cc.names[i], sizeof cc.names[i], "resident.%u.weight", (unsigned)i);
    else
        snprintf(cc.names[i], sizeof cc.names[i], "blk.%d.ffn_%s.%d.weight", (int)layer,
                 part[i % 3], (int)expert);
    cc.tensors[i] = (struct sl_container_tensor){.name = {cc.names[i], strlen(cc.names[i])},
                                                 .type = type,
                                                 .n_dims = rows > 1 ? 2 : 1,
                                                 .dims = {cols, rows, 1, 1},
                                                 .layer = layer,
                                                 .expert = expert};
}

/* Resident: a vector, an embedding of more than one sheet, an odd one. Experts: gate of
 * SQ3_32, up of Q4_K, down of Q6_K or Q8_0. */
static inline int case_begin(void **state)
{
    (void)set_up(state);
    memset(&cc, 0, sizeof cc);
    case_metadata(&cc.gguf);
    cc.meta = open_built(&cc.gguf);
    cc.plan = (struct sl_container_plan){.meta = cc.meta,
                                         .recipe = SL_STR("experts=Q4_K rest=as they are"),
                                         .source = 0x1234567890abcdef,
                                         .tensors = cc.tensors,
                                         .sync_bytes = 1};
    case_tensor(SL_TYPE_F32, 100, 1, -1, -1);
    case_tensor(SL_TYPE_Q8_0, 64, 1000, -1, -1);
    case_tensor(SL_TYPE_F16, 33, 7, -1, -1);
    for (int32_t l = 0; l < CASE_LAYERS; l++) {
        for (int32_t x = 0; x < CASE_EXPERTS; x++) {
            case_tensor(SL_SQ3_32, 256, 9, l, x);
            case_tensor(SL_TYPE_Q4_K, 256, 9, l, x);
            case_tensor(l == 0 ? SL_TYPE_Q6_K : SL_TYPE_Q8_0, 512, (uint64_t)(x + 1) * 20, l, x);
        }
    }
    path_in(cc.path, "m.sluice");
    return 0;
}

/* Fails where a test left files behind, so that the folder is not empty at the end. */
static inline int case_end(void **state)
{
    sl_gguf_close(cc.meta);
    gb_end(&cc.gguf);
    return tear_down(state);
}

#define CASE_TEST(name) cmocka_unit_test_setup_teardown(name, case_begin, case_end)

/* Byte k of tensor i. */
static inline unsigned char case_byte(uint32_t i, uint64_t k)
{
    uint64_t h = (k + 1) * 0x9E3779B97F4A7C15u ^ ((uint64_t)i + 1) * 0xD6E8FEB86659FD93u;

    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return (unsigned char)(h >> 56);
}

static inline uint64_t case_tensor_bytes(uint32_t i)
{
    struct sl_gguf_tensor t = {.type = cc.tensors[i].type, .n_dims = cc.tensors[i].n_dims};

    memcpy(t.dims, cc.tensors[i].dims, sizeof t.dims);
    assert_true(sl_cn_measure(&t));
    return t.bytes;
}

/* ---- writing ---------------------------------------------------------------------------------
 */

/* Feeds what is wanted, in pieces of an odd size. */
static inline sluice_err case_feed(struct sl_container_writer *w)
{
    unsigned char piece[10007];
    sluice_err err = SLUICE_OK;

    while (err == SLUICE_OK && sl_container_write_next(w) < cc.plan.n_tensors) {
        uint32_t i = sl_container_write_next(w);
        uint64_t bytes = case_tensor_bytes(i);

        for (uint64_t at = 0, n; at < bytes && err == SLUICE_OK; at += n) {
            n = sl_min_u64(sizeof piece, bytes - at);
            for (uint64_t k = 0; k < n; k++) piece[k] = case_byte(i, at + k);
            err = sl_container_write_data(w, piece, n, &error);
        }
    }
    return err;
}

/* From opening to the end, or to the first error. */
static inline sluice_err case_write(void)
{
    struct sl_container_writer *w = NULL;
    sluice_err err = sl_container_write_open(cc.path, &cc.plan, &budget, &error, &w);

    if (err == SLUICE_OK) err = case_feed(w);
    if (err == SLUICE_OK) err = sl_container_write_commit(w, &error);
    sl_container_write_close(w);
    return err;
}

static inline void case_write_ok(void)
{
    sluice_err err = case_write();

    if (err != SLUICE_OK) fail_msg("%s: %s", sl_err_name(err), error.text);
}

/* ---- files -----------------------------------------------------------------------------------
 */

struct case_bytes {
    unsigned char *p;
    size_t n;
};

static inline bool case_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

static inline struct case_bytes case_read(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    struct case_bytes b = {malloc((size_t)st.st_size + 1), (size_t)st.st_size};
    assert_non_null(b.p);
    assert_int_equal(fread(b.p, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static inline void case_put(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Part i of n, with suffix. */
static inline const char *case_part(uint32_t i, uint32_t n, const char *suffix)
{
    static char path[CASE_PATH_BYTES + 32];

    if (n == 1)
        snprintf(path, sizeof path, "%s%s", cc.path, suffix);
    else
        snprintf(path, sizeof path, "%s/m-%05u-of-%05u.sluice%s", folder, (unsigned)i + 1,
                 (unsigned)n, suffix);
    return path;
}

/* How many parts were written; 0: none has its final name. */
static inline uint32_t case_n_parts(void)
{
    for (uint32_t n = 1; n <= CASE_FILES_MAX; n++) {
        if (case_exists(case_part(0, n, ""))) return n;
    }
    return 0;
}

/* Removes whatever writing may leave. */
static inline void case_clean(void)
{
    static const char *const suffix[] = {"", ".partial", ".journal"};

    for (uint32_t n = 1; n <= CASE_FILES_MAX; n++) {
        for (uint32_t i = 0; i < n; i++) {
            for (size_t s = 0; s < SL_ARRAY_LEN(suffix); s++) unlink(case_part(i, n, suffix[s]));
        }
    }
}

/* The bytes of all parts, joined. */
static inline struct case_bytes case_all_parts(void)
{
    struct case_bytes all = {NULL, 0};
    uint32_t n = case_n_parts();

    for (uint32_t i = 0; i < n; i++) {
        struct case_bytes b = case_read(case_part(i, n, ""));

        all.p = realloc(all.p, all.n + b.n);
        assert_non_null(all.p);
        memcpy(all.p + all.n, b.p, b.n);
        all.n += b.n;
        free(b.p);
    }
    return all;
}

/* ---- reading ---------------------------------------------------------------------------------
 */

static inline struct sl_container *case_open(const char *path)
{
    struct sl_container *c = NULL;
    sluice_err err = sl_container_open(path, &budget, &error, &c);

    if (err != SLUICE_OK) fail_msg("%s: %s", sl_err_name(err), error.text);
    return c;
}

/* Opens and verifies; the error of whichever failed. */
static inline sluice_err case_verify(const char *path)
{
    struct sl_container *c = NULL;
    sluice_err err = sl_container_open(path, &budget, &error, &c);

    if (err == SLUICE_OK) err = sl_container_verify(c, &budget, NULL, NULL, &error);
    sl_container_close(c);
    return err;
}

#endif
