/* The GGUF reader on broken and hostile files. Proves for each kind of fault that the code is the
 * documented one, that the sentence names what a user needs (file, key or tensor, found, wanted),
 * that nothing leaks, and that no length from the file is believed: every case runs with a budget a
 * little above what a good file of that size needs. The files are made here, by the writer of
 * tests/support, since a few calls say more than a committed binary. */
#define _GNU_SOURCE /* mkdtemp */
#include <inttypes.h>
#include <math.h>

#include "base/limits.h"

#define CASE_BUDGET_BYTES 100000 /* none of the small files here may need more */
#include "tests/support/gguf_case.h"

static struct gguf_build built; /* begin() drops what was there before */

/* The code of opening the first n bytes of what was built. */
static sluice_err open_code(size_t n)
{
    unsigned char *copy = malloc(n + (n == 0)); /* of exactly that size, for AddressSanitizer */
    struct sl_gguf *g = NULL;
    sluice_err err, bare;

    assert_non_null(copy);
    if (n > 0) memcpy(copy, built.p, n);
    memset(&error, 0, sizeof error);
    err = sl_gg_open_memory(copy, n, &budget, &error, &g);
    assert_int_equal(error.code, err);
    assert_int_equal(err == SLUICE_OK, g != NULL);
    sl_gguf_close(g);
    bare = sl_gg_open_memory(copy, n, &budget, NULL, &g); /* nobody wants the sentence */
    assert_int_equal(bare, err);
    sl_gguf_close(g);
    free(copy);
    return err;
}

static void assert_refused(sluice_err wanted, const char *part)
{
    sluice_err err = open_code(built.n);

    if (err != wanted)
        fail_msg("%s, wanted %s: %s", sl_err_name(err), sl_err_name(wanted), error.text);
    assert_mentions("(memory): ");
    assert_mentions(part);
}

static void begin(void)
{
    gb_end(&built);
    gb_begin(&built, 3);
}

/* ---- the start ------------------------------------------------------------------------------- */

struct start_case {
    const char *bytes;
    size_t n;
    sluice_err code;
    const char *part;
};

static void test_start__other_formats__are_named(void **state)
{
    static const struct start_case cases[] = {
        {"", 0, SLUICE_E_TRUNCATED, "empty"},
        {"GG", 2, SLUICE_E_TRUNCATED, "download incomplete"},
        {"ABCDEFGH", 8, SLUICE_E_FORMAT, "begins with 'ABCD' (41 42 43 44), wanted 'GGUF'"},
        {"\1\2\xff~0123", 8, SLUICE_E_FORMAT, "begins with '???~' (01 02 ff 7e)"},
        {"lmgg....", 8, SLUICE_E_FORMAT, "older than GGUF"},
        {"tjgg....", 8, SLUICE_E_FORMAT, "GGJT"},
        {"FUGG....", 8, SLUICE_E_VERSION, "big-endian"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, SLUICE_E_FORMAT, "git lfs pull"},
        {"PK\3\4........", 12, SLUICE_E_FORMAT, "PyTorch"},
        {"<!DOCTYPE html><html>", 21, SLUICE_E_FORMAT, "web page"},
        {"\x40\0\0\0\0\0\0\0{\"a\":{}}", 16, SLUICE_E_FORMAT, "safetensors"},
        {"{\"model_type\": \"x\"}", 19, SLUICE_E_FORMAT, "config.json"},
        {"\0\0\0\0\0\0\0\0\0\0\0\0", 12, SLUICE_E_FORMAT, "has not begun"},
        {"GGUF\1\0\0\0", 8, SLUICE_E_VERSION, "version 1"},
        {"GGUF\0\0\0\0", 8, SLUICE_E_VERSION, "version 0"},
        {"GGUF\4\0\0\0", 8, SLUICE_E_VERSION,
         "version 4; this build reads versions 2 and 3: a newer"},
        {"GGUF\0\0\0\3", 8, SLUICE_E_VERSION, "big-endian GGUF (version 3)"},
        {"GGUF\0\0\0\2", 8, SLUICE_E_VERSION, "big-endian GGUF (version 2)"},
        {"GGUF\xff\xff\xff\xff", 8, SLUICE_E_VERSION, "version 4294967295"},
    };

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        gb_end(&built);
        gb_bytes(&built, cases[i].bytes, cases[i].n);
        assert_refused(cases[i].code, cases[i].part);
    }
}

static void test_counts__beyond_limit_or_file__are_refused_before_any_allocation(void **state)
{
    static const uint64_t counts[] = {1,
                                      100,
                                      SL_GGUF_KV_MAX,
                                      SL_GGUF_KV_MAX + 1,
                                      SL_GGUF_TENSORS_MAX,
                                      SL_GGUF_TENSORS_MAX + 1,
                                      UINT32_MAX,
                                      (uint64_t)1 << 32,
                                      (uint64_t)1 << 61,
                                      (uint64_t)1 << 63,
                                      UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < 2 * SL_ARRAY_LEN(counts); i++) {
        uint64_t n = counts[i / 2];
        uint64_t limit = i % 2 == 0 ? SL_GGUF_TENSORS_MAX : SL_GGUF_KV_MAX;

        begin();
        gb_set_u64(&built, i % 2 == 0 ? GB_AT_TENSORS : GB_AT_KEYS, n);
        assert_refused(n > limit ? SLUICE_E_LIMIT : SLUICE_E_TRUNCATED,
                       i % 2 == 0 ? "tensors" : "metadata");
    }
}

/* ---- lengths --------------------------------------------------------------------------------- */

static const uint64_t lengths[] = {100,
                                   UINT32_MAX,
                                   (uint64_t)1 << 40,
                                   (uint64_t)1 << 61,
                                   ((uint64_t)1 << 63) - 1,
                                   (uint64_t)1 << 63,
                                   UINT64_MAX - 7,
                                   UINT64_MAX};

/* A length up to what a header may have can be a broken download; none above can. */
static sluice_err length_code(uint64_t n)
{
    return n > SL_GG_HEADER_MAX ? SLUICE_E_FORMAT : SLUICE_E_TRUNCATED;
}

static void test_string__longer_than_the_file__is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(lengths); i++) {
        begin();
        gb_key(&built, "the.key", SL_GGUF_STRING);
        gb_u64(&built, lengths[i]);
        assert_refused(length_code(lengths[i]), "value of key 'the.key'");
        assert_int_equal(error.file_offset, built.n);
        begin();
        gb_set_u64(&built, GB_AT_KEYS, 1);
        gb_u64(&built, lengths[i]); /* of a key's name */
        gb_bytes(&built, "1234567890", 10);
        assert_refused(length_code(lengths[i]), "name of a metadata entry");
        begin();
        gb_set_u64(&built, GB_AT_TENSORS, 1);
        gb_u64(&built, lengths[i]); /* of a tensor's name */
        gb_bytes(&built, "123456789012345678901234567890", 30);
        assert_refused(length_code(lengths[i]), "name of a tensor");
    }
}

static void test_array__more_elements_than_bytes__is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(lengths); i++) {
        for (uint32_t kind = 0; kind <= SL_GGUF_F64; kind++) {
            sluice_err err;

            begin();
            gb_kv_array(&built, "the.key", kind, lengths[i]);
            gb_bytes(&built, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
            err = open_code(built.n);
            assert_true(err == SLUICE_E_TRUNCATED || err == SLUICE_E_FORMAT);
            assert_mentions("'the.key'");
        }
    }
}

static void test_array__of_arrays_or_strings_that_overrun__is_refused(void **state)
{
    (void)state;
    begin();
    gb_kv_array(&built, "k", SL_GGUF_STRING, 2);
    gb_str(&built, "fine");
    gb_u64(&built, UINT64_MAX);
    assert_refused(SLUICE_E_FORMAT, "'k'");
    begin();
    gb_kv_array(&built, "k", SL_GGUF_ARRAY, 1);
    gb_u32(&built, SL_GGUF_U64);
    gb_u64(&built, (uint64_t)1 << 61); /* times 8 overflows */
    assert_refused(SLUICE_E_FORMAT, "'k'");
}

static void test_array__nested_too_deep__is_refused(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth < 100; depth++) {
        begin();
        gb_kv_array(&built, "k", depth > 1 ? SL_GGUF_ARRAY : SL_GGUF_U8, 1);
        for (uint32_t i = 1; i < depth; i++) {
            gb_u32(&built, i + 1 < depth ? SL_GGUF_ARRAY : SL_GGUF_U8);
            gb_u64(&built, 1);
        }
        gb_uint(&built, 7, 1);
        if (depth <= SL_GGUF_ARRAY_DEPTH_MAX) {
            assert_int_equal(open_code(built.n), SLUICE_OK);
        } else {
            assert_refused(SLUICE_E_LIMIT, "nested deeper than 4");
        }
    }
}

static void test_types__unknown__are_refused(void **state)
{
    (void)state;
    begin();
    gb_key(&built, "k", 13);
    gb_u64(&built, 0);
    assert_refused(SLUICE_E_FORMAT, "key 'k' has an unknown type (13)");
    begin();
    gb_kv_array(&built, "k", UINT32_MAX, 0);
    gb_u64(&built, 0);
    assert_refused(SLUICE_E_FORMAT, "key 'k' is an array of an unknown type (4294967295)");
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_names__empty_or_too_long__are_refused(void **state)
{
    char name[SL_NAME_MAX + 2];

    (void)state;
    memset(name, 'n', sizeof name);
    name[SL_NAME_MAX + 1] = '\0';
    begin();
    gb_kv_str(&built, "", "some value");
    assert_refused(SLUICE_E_FORMAT, "empty name");
    begin();
    gb_kv_u32(&built, name, 1);
    assert_refused(SLUICE_E_LIMIT, "257 bytes, the limit is 256");
    begin();
    gb_tensor(&built, "", SL_TYPE_F32, 0, 1, 1);
    gb_data(&built, 32, 4);
    assert_refused(SLUICE_E_FORMAT, "empty name");
    begin();
    gb_tensor(&built, name, SL_TYPE_F32, 0, 1, 1);
    gb_data(&built, 32, 4);
    assert_refused(SLUICE_E_LIMIT, "257 bytes, the limit is 256");
    name[SL_NAME_MAX] = '\0';
    begin();
    gb_kv_u32(&built, name, 1);
    gb_tensor(&built, name, SL_TYPE_F32, 0, 1, 1);
    gb_data(&built, 32, 4);
    assert_int_equal(open_code(built.n), SLUICE_OK);
}

static void test_names__twice__are_refused(void **state)
{
    (void)state;
    begin();
    gb_kv_u32(&built, "same", 1);
    gb_kv_u32(&built, "other", 1);
    gb_kv_str(&built, "same", "x");
    assert_refused(SLUICE_E_FORMAT, "key 'same' is there twice");
    begin();
    gb_tensor(&built, "same", SL_TYPE_F32, 0, 1, 1);
    gb_tensor(&built, "same", SL_TYPE_F32, 32, 1, 1);
    gb_data(&built, 32, 64);
    assert_refused(SLUICE_E_FORMAT, "tensor 'same' is there twice");
}

static void test_names__hostile_bytes__are_shown_printable(void **state)
{
    (void)state;
    begin();
    gb_kv_u32(&built, "bell\a\x1b[31m\xff", 1);
    gb_kv_u32(&built, "bell\a\x1b[31m\xff", 1);
    assert_refused(SLUICE_E_FORMAT, "key 'bell??[31m?' is there twice");
}

/* The hash of gguf_index.c; names that share its low bits make a table slow. */
static uint64_t table_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *s != '\0'; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

static void test_names__made_to_collide__are_refused(void **state)
{
    uint32_t found = 0;
    char name[16];

    (void)state;
    sl_budget_init(&budget, 10 * CASE_BUDGET_BYTES);
    begin();
    for (uint32_t i = 0; found < 512; i++) {
        snprintf(name, sizeof name, "%" PRIu32, i);
        if ((table_hash(name) & 1023) != 0) continue;
        gb_kv_u32(&built, name, 1);
        found++;
    }
    assert_refused(SLUICE_E_FORMAT, "names of metadata entries were made to collide");
    begin();
    found = 0;
    for (uint32_t i = 0; found < 512; i++) {
        snprintf(name, sizeof name, "%" PRIu32, i);
        if ((table_hash(name) & 1023) != 0) continue;
        gb_tensor(&built, name, SL_TYPE_F32, 32 * (uint64_t)found, 1, 1);
        found++;
    }
    gb_data(&built, 32, 512 * 32);
    assert_refused(SLUICE_E_FORMAT, "names of tensors were made to collide");
}

/* ---- keys that the reader itself needs ------------------------------------------------------- */

static void test_alignment__no_power_of_two_in_range__is_refused(void **state)
{
    static const uint32_t bad[] = {0, 3, 33, 2 * SL_GGUF_ALIGN_MAX, 0x80000000u, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        begin();
        gb_kv_u32(&built, "general.alignment", bad[i]);
        assert_refused(SLUICE_E_FORMAT, "general.alignment");
    }
    begin();
    gb_kv_int(&built, "general.alignment", SL_GGUF_I32, -32);
    assert_refused(SLUICE_E_FORMAT, "key 'general.alignment' is -32 (i32), wanted");
    begin();
    gb_kv_str(&built, "general.alignment", "32");
    assert_refused(SLUICE_E_FORMAT, "key 'general.alignment' is 32 (string), wanted");
}

static void test_split_keys__impossible__are_refused(void **state)
{
    (void)state;
    begin();
    gb_kv_u32(&built, "split.count", SL_GGUF_SHARDS_MAX + 1);
    assert_refused(SLUICE_E_LIMIT, "split.count is 1025");
    begin();
    gb_kv_u32(&built, "split.no", 3);
    gb_kv_u32(&built, "split.count", 3);
    assert_refused(SLUICE_E_FORMAT, "split.no is 3");
    begin();
    gb_kv_str(&built, "split.no", "x");
    assert_refused(SLUICE_E_FORMAT, "'split.no' is x (string)");
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void refuse_tensor(uint32_t type, uint64_t offset, const uint64_t *dims, uint32_t n_dims,
                          sluice_err code, const char *part)
{
    begin();
    gb_str(&built, "the.tensor");
    gb_u32(&built, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 5; i++) gb_u64(&built, dims[i]);
    gb_u32(&built, type);
    gb_u64(&built, offset);
    gb_set_u64(&built, GB_AT_TENSORS, 1);
    gb_data(&built, 32, 64);
    assert_refused(code, part);
}

static void test_tensor__impossible_shape__is_refused(void **state)
{
    static const uint64_t huge = (uint64_t)1 << 32, max = UINT64_MAX, top = (uint64_t)1 << 63;

    (void)state;
    refuse_tensor(0, 0, NULL, 0, SLUICE_E_FORMAT, "'the.tensor' has 0 dimensions");
    refuse_tensor(0, 0, (uint64_t[]){1, 1, 1, 1, 1}, 5, SLUICE_E_FORMAT, "5 dimensions");
    refuse_tensor(0, 0, (uint64_t[]){1, 1, 1, 1, 1}, UINT32_MAX, SLUICE_E_FORMAT,
                  "4294967295 dimensions");
    refuse_tensor(0, 0, (uint64_t[]){0}, 1, SLUICE_E_FORMAT,
                  "dimension 0 of tensor 'the.tensor' is 0");
    refuse_tensor(0, 0, (uint64_t[]){1, 0, max, max}, 4, SLUICE_E_FORMAT, "dimension 1");
    refuse_tensor(0, 0, (uint64_t[]){huge, huge}, 2, SLUICE_E_FORMAT, "too large");
    refuse_tensor(0, 0, (uint64_t[]){1, huge, huge}, 3, SLUICE_E_FORMAT, "too large");
    refuse_tensor(0, 0, (uint64_t[]){2, 1, 1, top}, 4, SLUICE_E_FORMAT, "too large");
    refuse_tensor(0, 0, (uint64_t[]){max}, 1, SLUICE_E_FORMAT, "too large");
    refuse_tensor(0, 0, (uint64_t[]){top / 2}, 1, SLUICE_E_FORMAT,
                  "too large"); /* times 4 bytes wraps to 0 */
    refuse_tensor(SL_TYPE_Q4_K, 0, (uint64_t[]){100}, 1, SLUICE_E_FORMAT,
                  "'the.tensor' have 100 elements");
    refuse_tensor(SL_TYPE_Q8_0, 0, (uint64_t[]){32, 3, 1, 1}, 4, SLUICE_E_TRUNCATED,
                  "download incomplete");
}

static void test_tensor__type_not_supported__names_type_tensor_and_remedy(void **state)
{
    (void)state;
    refuse_tensor(16, 0, (uint64_t[]){256}, 1, SLUICE_E_UNSUPPORTED,
                  "tensor 'the.tensor' has the type IQ2_XXS (16)");
    assert_mentions("supported: F32");
    assert_mentions("newer version");
    refuse_tensor(4, 0, (uint64_t[]){256}, 1, SLUICE_E_UNSUPPORTED, "(4)");
    refuse_tensor(1000000, 0, (uint64_t[]){256}, 1, SLUICE_E_UNSUPPORTED, "unknown (1000000)");
    refuse_tensor(UINT32_MAX, 0, (uint64_t[]){256}, 1, SLUICE_E_UNSUPPORTED,
                  "unknown (4294967295)");
    refuse_tensor(258, 0, (const uint64_t[]){256, 8}, 2, SLUICE_E_UNSUPPORTED,
                  "tensor 'the.tensor' has the type SQ3_32 (258), which is for containers");
}

static void test_tensor__outside_the_file__says_both_sizes(void **state)
{
    char part[96];

    (void)state;
    refuse_tensor(0, 64, (uint64_t[]){1}, 1, SLUICE_E_TRUNCATED, "download incomplete");
    snprintf(part, sizeof part, "file is %zu bytes, needs %zu: download incomplete", built.n,
             built.n + 4);
    assert_mentions(part);
    assert_int_equal(error.file_offset, built.n);
    refuse_tensor(0, (uint64_t)1 << 62, (uint64_t[]){1}, 1, SLUICE_E_TRUNCATED,
                  "download incomplete");
    refuse_tensor(0, UINT64_MAX - 31, (uint64_t[]){1}, 1, SLUICE_E_FORMAT,
                  "'the.tensor' ends beyond any file");
    refuse_tensor(0, 0, (uint64_t[]){((uint64_t)1 << 62) - 1}, 1, SLUICE_E_FORMAT,
                  "ends beyond any file");
}

static void test_tensor__off_the_alignment__is_refused(void **state)
{
    (void)state;
    refuse_tensor(0, 1, (uint64_t[]){1}, 1, SLUICE_E_FORMAT,
                  "'the.tensor' is at offset 1, no multiple of the alignment 32");
    refuse_tensor(0, 16, (uint64_t[]){1}, 1, SLUICE_E_FORMAT, "offset 16");
}

static void test_tensors__overlapping__are_named(void **state)
{
    (void)state;
    begin();
    gb_tensor(&built, "c", SL_TYPE_F32, 96, 8, 1);
    gb_tensor(&built, "a", SL_TYPE_F32, 0, 9, 1); /* 36 bytes: into the next */
    gb_tensor(&built, "b", SL_TYPE_F32, 32, 16, 1);
    gb_data(&built, 32, 128);
    assert_refused(SLUICE_E_FORMAT, "tensors 'a' and 'b' overlap");
    begin();
    gb_tensor(&built, "x", SL_TYPE_F32, 0, 8, 1);
    gb_tensor(&built, "y", SL_TYPE_F32, 0, 8, 1);
    gb_data(&built, 32, 32);
    assert_refused(SLUICE_E_FORMAT, "overlap");
    sl_budget_init(&budget, 10 * CASE_BUDGET_BYTES);
    begin();
    for (uint32_t i = 0; i < 1000;
         i++) { /* in an order that no simple scan sees; 501 lies on 500 */
        char name[16];
        uint64_t place = (uint64_t)i * 577 % 1000;

        snprintf(name, sizeof name, "t%" PRIu64, place);
        gb_tensor(&built, name, SL_TYPE_F32, (place == 501 ? 500 : place) * 32, 8, 1);
    }
    gb_data(&built, 32, 32000);
    assert_refused(SLUICE_E_FORMAT, "overlap");
    assert_mentions("'t500'");
    assert_mentions("'t501'");
}

/* ---- any cut, any bit ------------------------------------------------------------------------ */

static void build_good(void)
{
    begin();
    gb_kv_str(&built, "general.architecture", "x");
    gb_kv_u32(&built, "general.alignment", 32);
    gb_kv_str(&built, "tokenizer.ggml.model", "gpt2");
    gb_kv_strs(&built, "tokenizer.ggml.tokens", (const char *const[]){"a", "b", "ab"}, 3);
    gb_kv_i32s(&built, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 1}, 3);
    gb_kv_strs(&built, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
    gb_kv_u32(&built, "tokenizer.ggml.eos_token_id", 2);
    gb_tensor(&built, "one", SL_TYPE_Q8_0, 0, 32, 2);
    gb_tensor(&built, "two", SL_TYPE_F32, 96, 8, 1);
    gb_data(&built, 32, 128);
}

static void test_good_file__cut_anywhere__is_truncated(void **state)
{
    (void)state;
    build_good();
    assert_int_equal(open_code(built.n), SLUICE_OK);
    for (size_t n = 0; n < built.n; n++) {
        assert_int_equal(open_code(n), SLUICE_E_TRUNCATED);
        if (n > 0) assert_mentions("download incomplete");
    }
}

static void test_good_file__any_bit_flipped__opens_or_is_refused(void **state)
{
    size_t refused = 0;

    (void)state;
    build_good();
    for (size_t i = 0; i < 8 * built.n; i++) {
        built.p[i / 8] ^= (unsigned char)(1u << (i % 8));
        if (open_code(built.n) != SLUICE_OK) refused++;
        built.p[i / 8] ^= (unsigned char)(1u << (i % 8));
    }
    assert_true(refused > 8 * 100);
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static void assert_vocab_refused(const char *part)
{
    struct sl_gguf *g = NULL;
    struct sl_vocab v;

    assert_int_equal(sl_gg_open_memory(built.p, built.n, &budget, &error, &g), SLUICE_OK);
    assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_E_FORMAT);
    assert_mentions(part);
    sl_gguf_close(g);
}

static void begin_vocab(void)
{
    begin();
    gb_kv_str(&built, "tokenizer.ggml.model", "gpt2");
    gb_kv_strs(&built, "tokenizer.ggml.tokens", (const char *const[]){"a", "b", "ab"}, 3);
}

static void test_vocab__absent_empty_or_of_other_type__is_refused(void **state)
{
    (void)state;
    begin();
    gb_kv_str(&built, "tokenizer.ggml.model", "gpt2");
    assert_vocab_refused("tokenizer.ggml.tokens' is absent");
    gb_kv_array(&built, "tokenizer.ggml.tokens", SL_GGUF_STRING, 0);
    assert_vocab_refused("holds no vocabulary");
    begin();
    gb_kv_strs(&built, "tokenizer.ggml.tokens", (const char *const[]){"a"}, 1);
    assert_vocab_refused("tokenizer.ggml.model' is absent");
    begin();
    gb_kv_i32s(&built, "tokenizer.ggml.tokens", (const int32_t[]){1}, 1);
    assert_vocab_refused("'tokenizer.ggml.tokens' is [1 i32] (array), wanted an array");
    begin();
    gb_kv_str(&built, "tokenizer.ggml.tokens", "a");
    assert_vocab_refused("'tokenizer.ggml.tokens' is a (string), wanted");
    begin();
    gb_kv_u32(&built, "tokenizer.ggml.model", 1);
    assert_vocab_refused("'tokenizer.ggml.model' is 1 (u32), wanted a string");
}

static void test_vocab__beyond_the_limit__is_refused_before_any_allocation(void **state)
{
    (void)state;
    begin();
    gb_kv_str(&built, "tokenizer.ggml.model", "gpt2");
    gb_kv_array(&built, "tokenizer.ggml.tokens", SL_GGUF_STRING, SL_VOCAB_MAX + 1);
    for (uint32_t i = 0; i <= SL_VOCAB_MAX; i++) gb_u64(&built, 0);
    assert_vocab_refused("wanted an array of at most 4194304 strings");
}

static void test_vocab__arrays_of_wrong_type_or_count__are_refused(void **state)
{
    (void)state;
    begin_vocab();
    gb_kv_i32s(&built, "tokenizer.ggml.token_type", (const int32_t[]){1, 1}, 2);
    assert_vocab_refused("'tokenizer.ggml.token_type' is [2 i32] (array), wanted an array of 3");
    begin_vocab();
    gb_kv_i32s(&built, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 7}, 3);
    assert_vocab_refused("whole numbers from 0 to 6");
    begin_vocab();
    gb_kv_i32s(&built, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, -1}, 3);
    assert_vocab_refused("token_type");
    begin_vocab();
    gb_kv_strs(&built, "tokenizer.ggml.token_type", (const char *const[]){"a", "b", "ab"}, 3);
    assert_vocab_refused("token_type");
    begin_vocab();
    gb_kv_strs(&built, "tokenizer.ggml.scores", (const char *const[]){"a", "b", "ab"}, 3);
    assert_vocab_refused("'tokenizer.ggml.scores' is [3 strings]");
    begin_vocab();
    gb_kv_i32s(&built, "tokenizer.ggml.scores", (const int32_t[]){1, 1, 1, 1}, 4);
    assert_vocab_refused("wanted an array of 3 numbers");
    begin_vocab();
    gb_kv_f32(&built, "tokenizer.ggml.scores", 1);
    assert_vocab_refused("scores");
    begin_vocab();
    gb_kv_array(&built, "tokenizer.ggml.scores", SL_GGUF_F32, 3);
    gb_f32(&built, 0);
    gb_f32(&built, NAN);
    gb_f32(&built, 0);
    assert_vocab_refused("scores");
    begin_vocab();
    gb_kv_i32s(&built, "tokenizer.ggml.merges", (const int32_t[]){1}, 1);
    assert_vocab_refused("'tokenizer.ggml.merges' is [1 i32] (array), wanted an array");
}

static void test_vocab__id_out_of_range__is_refused(void **state)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.unknown_token_id"};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++) {
        begin_vocab();
        gb_kv_u32(&built, keys[i], 3);
        assert_vocab_refused("is 3 (u32), wanted a token id below 3");
        assert_mentions(keys[i]);
        begin_vocab();
        gb_kv_int(&built, keys[i], SL_GGUF_I64, -2);
        assert_vocab_refused("is -2 (i64)");
    }
    begin_vocab();
    gb_kv_i32s(&built, "tokenizer.ggml.eos_token_ids", (const int32_t[]){1, 3}, 2);
    assert_vocab_refused("'tokenizer.ggml.eos_token_ids' is [2 i32]");
    begin_vocab();
    gb_kv_i32s(&built, "tokenizer.ggml.eos_token_ids", (const int32_t[]){1, 1, 1, 1}, 4);
    assert_vocab_refused("eos_token_ids");
    begin_vocab();
    gb_kv_str(&built, "tokenizer.ggml.eos_token_ids", "x");
    assert_vocab_refused("eos_token_ids");
    begin_vocab();
    gb_kv_f32(&built, "tokenizer.ggml.padding_token_id", 1);
    assert_vocab_refused("padding_token_id");
    begin_vocab();
    gb_kv_u32(&built, "tokenizer.ggml.add_bos_token", 2);
    assert_vocab_refused("add_bos_token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_start__other_formats__are_named),
        TEST(test_counts__beyond_limit_or_file__are_refused_before_any_allocation),
        TEST(test_string__longer_than_the_file__is_refused),
        TEST(test_array__more_elements_than_bytes__is_refused),
        TEST(test_array__of_arrays_or_strings_that_overrun__is_refused),
        TEST(test_array__nested_too_deep__is_refused),
        TEST(test_types__unknown__are_refused),
        TEST(test_names__empty_or_too_long__are_refused),
        TEST(test_names__twice__are_refused),
        TEST(test_names__hostile_bytes__are_shown_printable),
        TEST(test_names__made_to_collide__are_refused),
        TEST(test_alignment__no_power_of_two_in_range__is_refused),
        TEST(test_split_keys__impossible__are_refused),
        TEST(test_tensor__impossible_shape__is_refused),
        TEST(test_tensor__type_not_supported__names_type_tensor_and_remedy),
        TEST(test_tensor__outside_the_file__says_both_sizes),
        TEST(test_tensor__off_the_alignment__is_refused),
        TEST(test_tensors__overlapping__are_named),
        TEST(test_good_file__cut_anywhere__is_truncated),
        TEST(test_good_file__any_bit_flipped__opens_or_is_refused),
        TEST(test_vocab__absent_empty_or_of_other_type__is_refused),
        TEST(test_vocab__beyond_the_limit__is_refused_before_any_allocation),
        TEST(test_vocab__arrays_of_wrong_type_or_count__are_refused),
        TEST(test_vocab__id_out_of_range__is_refused),
    };

    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    gb_end(&built);
    return failed;
}
