/* The GGUF reader on good files made in memory: every metadata type is read back, numbers convert
 * only where they fit, tensors lie where the format says, and vocabularies come out whole. Broken
 * files are the subject of test_gguf_bad, files on disk that of test_gguf_files. */
#define _GNU_SOURCE /* mkdtemp */
#include <inttypes.h>
#include <math.h>

#include "base/limits.h"

#define CASE_BUDGET_BYTES UINT64_MAX
#include "tests/support/gguf_case.h"

/* ---- metadata -------------------------------------------------------------------------------- */

static void add_every_kind(struct gguf_build *b)
{
    gb_kv_int(b, "u8", SL_GGUF_U8, 200);
    gb_kv_int(b, "i8", SL_GGUF_I8, -100);
    gb_kv_int(b, "u16", SL_GGUF_U16, 60000);
    gb_kv_int(b, "i16", SL_GGUF_I16, -30000);
    gb_kv_int(b, "u32", SL_GGUF_U32, 4000000000);
    gb_kv_int(b, "i32", SL_GGUF_I32, -2000000000);
    gb_kv_f32(b, "f32", 0.5f);
    gb_kv_bool(b, "bool", true);
    gb_kv_str(b, "string", "llama");
    gb_kv_i32s(b, "array", (const int32_t[]){1, 2, 3}, 3);
    gb_kv_int(b, "u64", SL_GGUF_U64, INT64_MAX);
    gb_kv_int(b, "i64", SL_GGUF_I64, INT64_MIN);
    gb_kv_f64(b, "f64", -2.25);
}

static void test_metadata__every_type__is_listed_and_shown(void **state)
{
    static const char *const shown[] = {
        "200",  "-100", "60000", "-30000",  "4000000000",          "-2000000000",
        "0.5",  "true", "llama", "[3 i32]", "9223372036854775807", "-9223372036854775808",
        "-2.25"};
    char buf[64];

    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_build b;
        struct sl_gguf *g;

        gb_begin(&b, version);
        add_every_kind(&b);
        g = open_built(&b);
        assert_int_equal(sl_gguf_version(g), version);
        assert_int_equal(sl_gguf_n_keys(g), SL_ARRAY_LEN(shown));
        assert_int_equal(sl_gguf_n_tensors(g), 0);
        for (uint32_t i = 0; i < SL_ARRAY_LEN(shown); i++) {
            assert_int_equal(sl_gguf_key_kind(g, i), i);
            assert_str(sl_gguf_key(g, i), sl_gg_kind_name(i));
            assert_string_equal(sl_gguf_key_show(g, i, buf, sizeof buf), shown[i]);
            assert_true(sl_gguf_has(g, sl_gg_kind_name(i)));
        }
        assert_false(sl_gguf_has(g, "absent"));
        assert_false(sl_gguf_has(g, ""));
        sl_gguf_close(g);
        gb_end(&b);
    }
}

static void test_key_show__small_buffer__is_cut(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    char buf[8];

    (void)state;
    gb_begin(&b, 3);
    gb_kv_str(&b, "s", "a long string\nwith a line break");
    gb_kv_strs(&b, "one", (const char *const[]){"x"}, 1);
    gb_kv_f32(&b, "eps", 1e-6f);
    g = open_built(&b);
    assert_string_equal(sl_gguf_key_show(g, 0, buf, sizeof buf), "a lo...");
    assert_string_equal(sl_gguf_key_show(g, 0, buf, 4), "...");
    assert_int_equal(strlen(sl_gguf_key_show(g, 1, buf, sizeof buf)), 7);
    assert_string_equal(sl_gguf_key_show(g, 2, buf, sizeof buf), "1e-06");
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_u32__any_integer_type_in_range__is_read(void **state)
{
    static const uint32_t kinds[] = {SL_GGUF_U8,  SL_GGUF_I8,  SL_GGUF_U16, SL_GGUF_I16,
                                     SL_GGUF_U32, SL_GGUF_I32, SL_GGUF_U64, SL_GGUF_I64};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(kinds); i++) {
        struct gguf_build b;
        struct sl_gguf *g;
        uint32_t v = 7;

        gb_begin(&b, 3);
        gb_kv_int(&b, "n", kinds[i], 100);
        g = open_built(&b);
        assert_int_equal(sl_gguf_u32(g, "absent", &v, &error), SLUICE_OK);
        assert_int_equal(v, 7);
        assert_int_equal(sl_gguf_u32(g, "n", &v, &error), SLUICE_OK);
        assert_int_equal(v, 100);
        sl_gguf_close(g);
        gb_end(&b);
    }
}

static void test_u32__other_type_or_range__names_key_found_and_wanted(void **state)
{
    static const char *const bad[] = {"i8",     "i16",   "i32", "f32", "bool",
                                      "string", "array", "u64", "i64", "f64"};
    struct gguf_build b;
    struct sl_gguf *g;
    uint32_t v = 7;

    (void)state;
    gb_begin(&b, 3);
    add_every_kind(&b);
    g = open_built(&b);
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        assert_int_equal(sl_gguf_u32(g, bad[i], &v, &error), SLUICE_E_FORMAT);
        assert_int_equal(v, 7);
        assert_mentions(bad[i]);
        assert_mentions("wanted a whole number");
        assert_int_equal(sl_gguf_u32(g, bad[i], &v, NULL), SLUICE_E_FORMAT);
    }
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_f32__finite_numbers__are_read_and_others_refused(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    float v = 7;

    (void)state;
    gb_begin(&b, 3);
    add_every_kind(&b);
    gb_kv_f32(&b, "nan", NAN);
    gb_kv_f64(&b, "inf", INFINITY);
    gb_kv_f64(&b, "huge", 1e300);
    g = open_built(&b);
    assert_int_equal(sl_gguf_f32(g, "absent", &v, &error), SLUICE_OK);
    assert_true(v == 7);
    assert_int_equal(sl_gguf_f32(g, "f32", &v, &error), SLUICE_OK);
    assert_true(v == 0.5f);
    assert_int_equal(sl_gguf_f32(g, "f64", &v, &error), SLUICE_OK);
    assert_true(v == -2.25f);
    assert_int_equal(sl_gguf_f32(g, "i8", &v, &error), SLUICE_OK);
    assert_true(v == -100);
    for (int i = 0; i < 6; i++) {
        static const char *const bad[] = {"nan", "inf", "huge", "bool", "string", "array"};

        assert_int_equal(sl_gguf_f32(g, bad[i], &v, &error), SLUICE_E_FORMAT);
        assert_mentions(bad[i]);
        assert_true(v == -100);
    }
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_bool__bool_or_zero_or_one__is_read_and_others_refused(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    bool v = false;

    (void)state;
    gb_begin(&b, 3);
    gb_kv_bool(&b, "true", true);
    gb_kv_int(&b, "zero", SL_GGUF_U32, 0);
    gb_kv_int(&b, "one", SL_GGUF_I8, 1);
    gb_kv_int(&b, "two", SL_GGUF_U8, 2);
    gb_kv_int(&b, "minus one", SL_GGUF_I8, -1);
    gb_kv_int(&b, "broken bool", SL_GGUF_BOOL, 2);
    gb_kv_str(&b, "string", "true");
    g = open_built(&b);
    assert_int_equal(sl_gguf_bool(g, "true", &v, &error), SLUICE_OK);
    assert_true(v);
    assert_int_equal(sl_gguf_bool(g, "zero", &v, &error), SLUICE_OK);
    assert_false(v);
    assert_int_equal(sl_gguf_bool(g, "one", &v, &error), SLUICE_OK);
    assert_true(v);
    for (int i = 0; i < 4; i++) {
        static const char *const bad[] = {"two", "minus one", "broken bool", "string"};

        assert_int_equal(sl_gguf_bool(g, bad[i], &v, &error), SLUICE_E_FORMAT);
        assert_mentions(bad[i]);
    }
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_str__any_bytes__come_as_they_are(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    struct sl_str s = {"default", 7};

    (void)state;
    gb_begin(&b, 3);
    gb_key(&b, "raw", SL_GGUF_STRING);
    gb_str_n(&b, "a\0\xff\xc3", 4);
    gb_kv_str(&b, "empty", "");
    gb_kv_u32(&b, "number", 1);
    g = open_built(&b);
    assert_int_equal(sl_gguf_str(g, "absent", &s, &error), SLUICE_OK);
    assert_str(s, "default");
    assert_int_equal(sl_gguf_str(g, "raw", &s, &error), SLUICE_OK);
    assert_int_equal(s.n, 4);
    assert_memory_equal(s.p, "a\0\xff\xc3", 4);
    assert_int_equal(sl_gguf_str(g, "empty", &s, &error), SLUICE_OK);
    assert_int_equal(s.n, 0);
    assert_int_equal(sl_gguf_str(g, "number", &s, &error), SLUICE_E_FORMAT);
    assert_mentions("'number' is 1 (u32), wanted a string");
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_per_layer__number_or_array__fills_every_layer(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    uint32_t v[3] = {9, 9, 9};

    (void)state;
    gb_begin(&b, 3);
    gb_kv_u32(&b, "one", 5);
    gb_kv_i32s(&b, "each", (const int32_t[]){1, 2, 3, 4}, 4);
    gb_kv_array(&b, "flags", SL_GGUF_BOOL, 3);
    gb_bytes(&b, "\1\0\1", 3);
    gb_kv_array(&b, "broken flag", SL_GGUF_BOOL, 3);
    gb_bytes(&b, "\1\0\2", 3);
    gb_kv_i32s(&b, "short", (const int32_t[]){1, 2}, 2);
    gb_kv_i32s(&b, "negative", (const int32_t[]){1, 2, -3}, 3);
    gb_kv_strs(&b, "strings", (const char *const[]){"1", "2", "3"}, 3);
    g = open_built(&b);
    assert_int_equal(sl_gguf_u32_per_layer(g, "absent", 3, v, &error), SLUICE_OK);
    assert_int_equal(v[2], 9);
    assert_int_equal(sl_gguf_u32_per_layer(g, "one", 3, v, &error), SLUICE_OK);
    assert_int_equal(v[0] + v[1] + v[2], 15);
    assert_int_equal(sl_gguf_u32_per_layer(g, "each", 3, v, &error), SLUICE_OK);
    assert_int_equal(v[0] * 100 + v[1] * 10 + v[2], 123);
    assert_int_equal(sl_gguf_u32_per_layer(g, "flags", 3, v, &error), SLUICE_OK);
    assert_int_equal(v[0] * 100 + v[1] * 10 + v[2], 101);
    for (int i = 0; i < 4; i++) {
        static const char *const bad[] = {"short", "negative", "strings", "broken flag"};

        assert_int_equal(sl_gguf_u32_per_layer(g, bad[i], 3, v, &error), SLUICE_E_FORMAT);
        assert_mentions(bad[i]);
        assert_mentions("each of 3 layers");
        assert_int_equal(v[1], 0);
    }
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_f32_array__numbers__are_read_up_to_max(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    float v[4];
    uint32_t count = 99;

    (void)state;
    gb_begin(&b, 3);
    gb_kv_i32s(&b, "ints", (const int32_t[]){-1, 2}, 2);
    gb_kv_array(&b, "floats", SL_GGUF_F64, 1);
    gb_f64(&b, 0.25);
    gb_kv_array(&b, "empty", SL_GGUF_F32, 0);
    gb_kv_array(&b, "flags", SL_GGUF_BOOL, 2);
    gb_bytes(&b, "\0\1", 2);
    gb_kv_array(&b, "broken flag", SL_GGUF_BOOL, 2);
    gb_bytes(&b, "\1\2", 2);
    gb_kv_array(&b, "nan", SL_GGUF_F32, 1);
    gb_f32(&b, NAN);
    gb_kv_i32s(&b, "long", (const int32_t[]){1, 2, 3, 4, 5}, 5);
    gb_kv_u32(&b, "scalar", 1);
    g = open_built(&b);
    assert_int_equal(sl_gguf_f32_array(g, "absent", 4, v, &count, &error), SLUICE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(sl_gguf_f32_array(g, "ints", 4, v, &count, &error), SLUICE_OK);
    assert_int_equal(count, 2);
    assert_true(v[0] == -1 && v[1] == 2);
    assert_int_equal(sl_gguf_f32_array(g, "floats", 4, v, &count, &error), SLUICE_OK);
    assert_true(count == 1 && v[0] == 0.25f);
    assert_int_equal(sl_gguf_f32_array(g, "empty", 4, v, &count, &error), SLUICE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(sl_gguf_f32_array(g, "flags", 4, v, &count, &error), SLUICE_OK);
    assert_true(count == 2 && v[0] == 0 && v[1] == 1);
    for (int i = 0; i < 4; i++) {
        static const char *const bad[] = {"nan", "long", "scalar", "broken flag"};

        assert_int_equal(sl_gguf_f32_array(g, bad[i], 4, v, &count, &error), SLUICE_E_FORMAT);
        assert_mentions(bad[i]);
    }
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_arrays__nested_up_to_the_limit__are_stepped_over(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    char buf[32];
    uint32_t v = 0;

    (void)state;
    gb_begin(&b, 3);
    gb_kv_array(&b, "a", SL_GGUF_ARRAY, 3); /* [[[1, 2], []], [], ["x", "yy"]] and one level more */
    gb_u32(&b, SL_GGUF_ARRAY);
    gb_u64(&b, 2);
    gb_u32(&b, SL_GGUF_ARRAY);
    gb_u64(&b, 1);
    gb_u32(&b, SL_GGUF_U8);
    gb_u64(&b, 2);
    gb_bytes(&b, "\1\2", 2);
    gb_u32(&b, SL_GGUF_F64);
    gb_u64(&b, 0);
    gb_u32(&b, SL_GGUF_ARRAY);
    gb_u64(&b, 0);
    gb_u32(&b, SL_GGUF_STRING);
    gb_u64(&b, 2);
    gb_str(&b, "x");
    gb_str(&b, "yy");
    gb_kv_u32(&b, "after", 42);
    g = open_built(&b);
    assert_string_equal(sl_gguf_key_show(g, 0, buf, sizeof buf), "[3 arrays]");
    assert_int_equal(sl_gguf_u32(g, "after", &v, &error), SLUICE_OK);
    assert_int_equal(v, 42);
    sl_gguf_close(g);
    gb_end(&b);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void test_tensors__several__lie_where_the_format_says(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    const struct sl_gguf_tensor *t;
    size_t header;

    (void)state;
    gb_begin(&b, 3);
    gb_kv_str(&b, "general.architecture", "x");
    gb_tensor(&b, "second", SL_TYPE_Q8_0, 128, 64, 2); /* in the file after "first" */
    gb_tensor_dims(&b, "first", SL_TYPE_F32, 0, (const uint64_t[]){5, 1, 3}, 3);
    header = b.n;
    gb_data(&b, 32, 128 + 2 * 2 * 34);
    g = open_built(&b);
    header = (header + 31) / 32 * 32;
    assert_int_equal(sl_gguf_n_tensors(g), 2);
    assert_int_equal(sl_gguf_n_files(g), 1);
    t = sl_gguf_tensor(g, 0);
    assert_str(t->name, "second");
    assert_int_equal(t->type, SL_TYPE_Q8_0);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0] * 10 + t->dims[1], 642);
    assert_int_equal(t->dims[2] * 10 + t->dims[3], 11);
    assert_int_equal(t->row_bytes, 68);
    assert_int_equal(t->bytes, 136);
    assert_int_equal(t->offset, header + 128);
    assert_int_equal(t->shard, 0);
    t = sl_gguf_find_tensor(g, "first");
    assert_ptr_equal(t, sl_gguf_tensor(g, 1));
    assert_int_equal(t->bytes, 60);
    assert_int_equal(t->offset, header);
    assert_null(sl_gguf_find_tensor(g, "third"));
    assert_null(sl_gguf_find_tensor(g, "firs"));
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_alignment__any_power_of_two_and_integer_type__places_the_data(void **state)
{
    static const uint32_t alignments[] = {1, 2, 8, 32, 64, 4096, SL_GGUF_ALIGN_MAX};
    static const uint32_t kinds[] = {SL_GGUF_U32, SL_GGUF_I32, SL_GGUF_U64, SL_GGUF_I64};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(alignments) * SL_ARRAY_LEN(kinds); i++) {
        uint32_t alignment = alignments[i % SL_ARRAY_LEN(alignments)];
        struct gguf_build b;
        struct sl_gguf *g;
        size_t start;

        gb_begin(&b, 3);
        gb_kv_int(&b, "general.alignment", kinds[i / SL_ARRAY_LEN(alignments)], alignment);
        gb_tensor(&b, "t", SL_TYPE_F32, alignment, 1, 1);
        gb_pad(&b, alignment);
        start = b.n;
        gb_data(&b, alignment, (size_t)alignment + 4);
        g = open_built(&b);
        assert_int_equal(sl_gguf_tensor(g, 0)->offset, start + alignment);
        sl_gguf_close(g);
        gb_end(&b);
    }
}

static void test_padding__after_the_last_tensor_or_none__is_accepted(void **state)
{
    (void)state;
    for (size_t padding = 0; padding < 100; padding += 33) {
        struct gguf_build b;
        struct sl_gguf *g;

        gb_begin(&b, 3);
        gb_tensor(&b, "t", SL_TYPE_F32, 0, 1, 1);
        gb_data(&b, 32, 4 + padding);
        g = open_built(&b);
        assert_int_equal(sl_gguf_n_tensors(g), 1);
        sl_gguf_close(g);
        gb_end(&b);
    }
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static const char *const tokens[] = {"<s>", "</s>", "a", "b", "ab", "\xff"};
#define N_TOKENS ((uint32_t)SL_ARRAY_LEN(tokens))

static void add_tokens(struct gguf_build *b)
{
    gb_kv_str(b, "tokenizer.ggml.model", "gpt2");
    gb_kv_strs(b, "tokenizer.ggml.tokens", tokens, N_TOKENS);
}

static void test_vocab__only_tokens__has_defaults(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    struct sl_vocab v, again;

    (void)state;
    gb_begin(&b, 3);
    add_tokens(&b);
    g = open_built(&b);
    assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_OK);
    assert_str(v.model, "gpt2");
    assert_int_equal(v.n_tokens, N_TOKENS);
    for (uint32_t i = 0; i < N_TOKENS; i++) assert_str(v.tokens[i], tokens[i]);
    assert_null(v.scores);
    assert_null(v.kinds);
    assert_null(v.merges);
    assert_int_equal(v.n_merges + v.n_eog_ids + v.pre.n + v.chat_template.n, 0);
    assert_true(v.bos_id == -1 && v.eos_id == -1 && v.eot_id == -1 && v.eom_id == -1);
    assert_true(v.unk_id == -1 && v.pad_id == -1 && v.sep_id == -1);
    assert_true(v.add_bos == -1 && v.add_eos == -1);
    assert_true(v.add_space_prefix == -1 && v.remove_extra_whitespaces == -1);
    assert_int_equal(sl_gguf_vocab(g, &again, &error), SLUICE_OK);
    assert_ptr_equal(again.tokens, v.tokens);
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_vocab__everything_given__comes_out(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    struct sl_vocab v;

    (void)state;
    gb_begin(&b, 3);
    add_tokens(&b);
    gb_kv_str(&b, "tokenizer.ggml.pre", "qwen2");
    gb_kv_array(&b, "tokenizer.ggml.scores", SL_GGUF_F32, N_TOKENS);
    for (uint32_t i = 0; i < N_TOKENS; i++) gb_f32(&b, -(float)i);
    gb_kv_i32s(&b, "tokenizer.ggml.token_type", (const int32_t[]){3, 3, 1, 1, 4, 6}, N_TOKENS);
    gb_kv_strs(&b, "tokenizer.ggml.merges", (const char *const[]){"a b", "ab a"}, 2);
    gb_kv_u32(&b, "tokenizer.ggml.bos_token_id", 0);
    gb_kv_u32(&b, "tokenizer.ggml.eos_token_id", 1);
    gb_kv_int(&b, "tokenizer.ggml.eot_token_id", SL_GGUF_I32, 2);
    gb_kv_int(&b, "tokenizer.ggml.eom_token_id", SL_GGUF_U64, 3);
    gb_kv_u32(&b, "tokenizer.ggml.unknown_token_id", 4);
    gb_kv_u32(&b, "tokenizer.ggml.padding_token_id", 5);
    gb_kv_u32(&b, "tokenizer.ggml.seperator_token_id", 2);
    gb_kv_i32s(&b, "tokenizer.ggml.eos_token_ids", (const int32_t[]){1, 4}, 2);
    gb_kv_bool(&b, "tokenizer.ggml.add_bos_token", true);
    gb_kv_bool(&b, "tokenizer.ggml.add_eos_token", false);
    gb_kv_int(&b, "tokenizer.ggml.add_space_prefix", SL_GGUF_U8, 1);
    gb_kv_bool(&b, "tokenizer.ggml.remove_extra_whitespaces", false);
    gb_kv_str(&b, "tokenizer.chat_template", "{{ x }}");
    g = open_built(&b);
    assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_OK);
    assert_str(v.pre, "qwen2");
    assert_str(v.chat_template, "{{ x }}");
    assert_true(v.scores[5] == -5);
    assert_true(v.kinds[0] == SL_TOKEN_CONTROL && v.kinds[5] == SL_TOKEN_BYTE);
    assert_int_equal(v.n_merges, 2);
    assert_str(v.merges[1], "ab a");
    assert_true(v.bos_id == 0 && v.eos_id == 1 && v.eot_id == 2 && v.eom_id == 3);
    assert_true(v.unk_id == 4 && v.pad_id == 5 && v.sep_id == 2);
    assert_int_equal(v.n_eog_ids, 2);
    assert_int_equal(v.eog_ids[1], 4);
    assert_true(v.add_bos == 1 && v.add_eos == 0);
    assert_true(v.add_space_prefix == 1 && v.remove_extra_whitespaces == 0);
    sl_gguf_close(g);
    gb_end(&b);
}

static void test_vocab__other_number_types_and_no_ids__are_read_by_their_type(void **state)
{
    struct gguf_build b;
    struct sl_gguf *g;
    struct sl_vocab v;

    (void)state;
    gb_begin(&b, 3);
    add_tokens(&b);
    gb_kv_array(&b, "tokenizer.ggml.scores", SL_GGUF_U8, N_TOKENS);
    gb_bytes(&b, "\1\2\3\4\5\6", N_TOKENS);
    gb_kv_array(&b, "tokenizer.ggml.token_type", SL_GGUF_U8, N_TOKENS);
    gb_bytes(&b, "\1\2\3\4\5\6", N_TOKENS);
    gb_kv_array(&b, "tokenizer.ggml.merges", SL_GGUF_STRING, 0);
    gb_kv_u32(&b, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    gb_kv_int(&b, "tokenizer.ggml.eos_token_id", SL_GGUF_I32, -1);
    gb_kv_u32(&b, "tokenizer.ggml.padding_token_id", N_TOKENS);
    gb_kv_u32(&b, "tokenizer.ggml.eos_token_ids", 3);
    g = open_built(&b);
    assert_int_equal(sl_gguf_vocab(g, &v, &error), SLUICE_OK);
    assert_true(v.scores[0] == 1 && v.scores[5] == 6);
    assert_true(v.kinds[0] == 1 && v.kinds[5] == 6);
    assert_null(v.merges);
    assert_true(v.bos_id == -1 && v.eos_id == -1 && v.pad_id == -1);
    assert_true(v.n_eog_ids == 1 && v.eog_ids[0] == 3);
    sl_gguf_close(g);
    gb_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_metadata__every_type__is_listed_and_shown),
        TEST(test_key_show__small_buffer__is_cut),
        TEST(test_u32__any_integer_type_in_range__is_read),
        TEST(test_u32__other_type_or_range__names_key_found_and_wanted),
        TEST(test_f32__finite_numbers__are_read_and_others_refused),
        TEST(test_bool__bool_or_zero_or_one__is_read_and_others_refused),
        TEST(test_str__any_bytes__come_as_they_are),
        TEST(test_per_layer__number_or_array__fills_every_layer),
        TEST(test_f32_array__numbers__are_read_up_to_max),
        TEST(test_arrays__nested_up_to_the_limit__are_stepped_over),
        TEST(test_tensors__several__lie_where_the_format_says),
        TEST(test_alignment__any_power_of_two_and_integer_type__places_the_data),
        TEST(test_padding__after_the_last_tensor_or_none__is_accepted),
        TEST(test_vocab__only_tokens__has_defaults),
        TEST(test_vocab__everything_given__comes_out),
        TEST(test_vocab__other_number_types_and_no_ids__are_read_by_their_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
