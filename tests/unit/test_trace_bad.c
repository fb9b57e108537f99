/* Trace files that break their format under right checksums: each is refused with the words that it
 * is about, and what came before it is read. */
#include "tests/support/trace_case.h"

#include "formats/checksum.h"

struct forged {
    unsigned char p[4096];
    uint64_t n;
};

static void forge_begin(struct forged *f)
{
    memcpy(f->p, sl_tf_magic, sizeof sl_tf_magic);
    f->n = sizeof sl_tf_magic;
}

static void forge_block(struct forged *f, const void *payload, size_t bytes)
{
    assert_true(f->n + bytes + SL_TF_HEAD_BYTES + SL_TF_TAIL_BYTES <= sizeof f->p);
    sl_tf_put_head(f->p + f->n, (uint32_t)bytes);
    f->n += SL_TF_HEAD_BYTES;
    memcpy(f->p + f->n, payload, bytes);
    sl_tf_put_tail(f->p + f->n + bytes, sl_xxh3(payload, bytes));
    f->n += bytes + SL_TF_TAIL_BYTES;
}

/* A literal's bytes, and how many. */
#define BYTES(lit) (lit), sizeof(lit) - 1

/* ---- the header -------------------------------------------------------------------------------
 */

#define VERSION_1 "\xa7version\x01"
#define CLASSES "\xa9n_classes\x01"
#define LAYERS "\xa6layers\x92" /* of two layers, whose six numbers follow */
#define FOUR_EXPERTS "\x96\x04\x02\x00\x00\x00\x00"
#define DENSE "\x96\x00\x00\x00\x00\x00\x00"
#define BOTH LAYERS FOUR_EXPERTS DENSE

struct bad {
    const char *bytes;
    size_t n;
    sluice_err err;
    const char *words;
};

static const struct bad bad_headers[] = {
    {BYTES("\x80"), SLUICE_E_FORMAT, "wanted version"},
    {BYTES("\x93\x01\x02\x03"), SLUICE_E_FORMAT, "a map"},
    {BYTES("\x81\xa7version\x02"), SLUICE_E_VERSION, "reads version 1"},
    {BYTES("\x81\xa7version\x00"), SLUICE_E_VERSION, "of version 0"},
    {BYTES("\x81\xa7version\xc0"), SLUICE_E_FORMAT, "a whole number"},
    {BYTES("\x82" CLASSES VERSION_1), SLUICE_E_FORMAT, "wanted version"},
    {BYTES("\x82" VERSION_1 CLASSES), SLUICE_E_FORMAT, "the key layers"},
    {BYTES("\x82" VERSION_1 BOTH), SLUICE_E_FORMAT, "the key n_classes"},
    {BYTES("\x84" VERSION_1 CLASSES BOTH), SLUICE_E_FORMAT, "at byte"},
    {BYTES("\x83" VERSION_1 CLASSES BOTH "\xc0"), SLUICE_E_FORMAT, "nothing after"},
    {BYTES("\x84" VERSION_1 CLASSES BOTH CLASSES), SLUICE_E_FORMAT, "each key once"},
    {BYTES("\x84" VERSION_1 CLASSES BOTH "\xa7n_ctx\x00"), SLUICE_E_FORMAT, "at byte"},
    {BYTES("\x84" VERSION_1 CLASSES BOTH "\xa8measured\x40"), SLUICE_E_FORMAT, "in range"},
    {BYTES("\x84" VERSION_1 CLASSES BOTH "\xa5model\xa2o\0"), SLUICE_E_FORMAT, "without a zero"},
    {BYTES("\x84" VERSION_1 CLASSES BOTH "\xa7n_slots\x92\x01\x02"), SLUICE_E_FORMAT, "n_slots"},
    {BYTES("\x84" VERSION_1 CLASSES BOTH "\xa7n_slots\x90"), SLUICE_E_FORMAT, "an array"},
    {BYTES("\x83" VERSION_1 CLASSES "\xa6layers\x90"), SLUICE_E_FORMAT, "an array"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x95\x00\x00\x00\x00\x00"), SLUICE_E_FORMAT,
     "an array of another length"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x96\x04\x05\x00\x00\x00\x00"), SLUICE_E_FORMAT,
     "a choice of 1 to n_experts"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x96\x04\x00\x00\x00\x00\x00"), SLUICE_E_FORMAT,
     "a choice of 1 to n_experts"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x96\x00\x01\x00\x00\x00\x00"), SLUICE_E_FORMAT,
     "a choice of 1 to n_experts"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x96\x04\x02\x01\x00\x00\x00"), SLUICE_E_FORMAT,
     "a size class"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x96\x04\x02\x04\x00\x00\x00"), SLUICE_E_FORMAT,
     "a size class"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x96\xcd\x04\x01\x02\x00\x00\x00\x00"),
     SLUICE_E_LIMIT, "1025 experts in a layer"},
    {BYTES("\x83" VERSION_1 CLASSES LAYERS DENSE "\x96\xcc\xff\x41\x00\x00\x00\x00"),
     SLUICE_E_LIMIT, "65 experts chosen"},
};

static void test_header__nonsense__refused_in_its_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad_headers); i++) {
        const struct bad *c = &bad_headers[i];
        struct forged f;
        struct trace_text t = {0};
        forge_begin(&f);
        forge_block(&f, c->bytes, c->n);
        sluice_err err = read_all(&t, f.p, f.n);
        if (err != c->err) fail_msg("case %zu: %d, '%s'", i, err, case_error.text);
        assert_mentions(c->words);
        assert_null(t.p);
    }
}

static void test_header__strings_too_long__refused(void **state)
{
    const char start[] = "\x84" VERSION_1 CLASSES BOTH "\xa5model\xda\x01\x00";
    const size_t n = sizeof start - 1;
    unsigned char payload[400];
    struct forged f;
    struct trace_text t = {0};
    (void)state;
    memcpy(payload, start, n);
    memset(payload + n, 'x', 256);
    forge_begin(&f);
    forge_block(&f, payload, n + 256);
    assert_int_equal(read_all(&t, f.p, f.n), SLUICE_E_FORMAT);
    assert_mentions("a string of at most 255 bytes");
}

static void test_header__too_many_layers__a_limit(void **state)
{
    const char start[] = "\x83" VERSION_1 CLASSES "\xa6layers\xdc\x02\x01";
    unsigned char payload[3000] = {0};
    struct forged f;
    struct trace_text t = {0};
    (void)state;
    memcpy(payload, start, sizeof start - 1);
    forge_begin(&f);
    forge_block(&f, payload, sizeof payload);
    assert_int_equal(read_all(&t, f.p, f.n), SLUICE_E_LIMIT);
    assert_mentions("513 layers");
    assert_mentions("at most 512");
}

/* Other keys, in another order, and most of them not there. */
static void test_header__of_a_later_time__read(void **state)
{
    struct forged f;
    struct trace_text t = {0};
    struct sl_trace_header h = {.version = 1, .n_classes = 1, .n_layers = 2, .isa = "x"};
    struct trace_text wanted = {0};
    (void)state;
    h.layer[0] = (struct sl_trace_layer_info){.n_experts = 4, .top_k = 2};
    say_header(&wanted, &h);
    say_end(&wanted, true, 0);
    forge_begin(&f);
    forge_block(&f, BYTES("\x86" VERSION_1 "\xa4more\x93\xc0\xc4\x01\x00\x81\xa1k\x91\xc3" BOTH
                          "\xa3isa\xa1x\xa6others\xcb\x7f\xf0\0\0\0\0\0\0" CLASSES));
    assert_int_equal(read_all(&t, f.p, f.n), SLUICE_OK);
    assert_string_equal(t.p, wanted.p);
    text_free(&t);
    text_free(&wanted);
}

/* ---- records ----------------------------------------------------------------------------------
 */

/* Weights and states are there; layer 0 has four experts, two are chosen; layer 1 is dense. */
#define HEADER "\x84" VERSION_1 CLASSES BOTH "\xa8measured\x03"
#define EVAL "\x96\x01\x00\x00\x01\x00\x05"
#define CHOSEN "\xc4\x04\x01\0\x03\0"
#define WEIGHTS "\xc4\x08\0\0\x80\x3f\0\0\0\0"
#define STATES "\xc4\x02\x00\x02"
#define ENTRIES "\xc4\x01\x02"
#define TIMES "\x00\x00\x00\x00\x00"
#define AFTER_CHOSEN WEIGHTS STATES ENTRIES TIMES
#define LAYER "\x9c\x02\x00\x02" CHOSEN AFTER_CHOSEN
#define DONE "\x93\x06\x00\x97\x00\x00\x00\x00\x00\x00\x00"

static sluice_err read_records(struct trace_text *t, const void *records, size_t n)
{
    struct forged f;
    forge_begin(&f);
    forge_block(&f, BYTES(HEADER));
    forge_block(&f, records, n);
    return read_all(t, f.p, f.n);
}

/* What the forged records begin with is right: else the others would prove nothing. */
static void test_record__as_it_should_be__read(void **state)
{
    struct trace_text t = {0};
    (void)state;
    assert_int_equal(read_records(&t, BYTES(EVAL LAYER DONE EVAL LAYER EVAL DONE)), SLUICE_OK);
    assert_non_null(strstr(t.p, "\"chosen\":[1,3],\"weights\":[1,0],\"states\":[0,2],"
                                "\"entries\":[2]"));
    assert_non_null(strstr(t.p, "\"cut\":true,\"lost_bytes\":0"));
    text_free(&t);
    assert_int_equal(read_records(&t, BYTES("\x91\x00")), SLUICE_OK);
    assert_non_null(strstr(t.p, "\"cut\":false"));
    text_free(&t);
}

#define FORMAT SLUICE_E_FORMAT

static const struct bad bad_records[] = {
    {BYTES("\xc0"), FORMAT, "an array"},
    {BYTES("\x90"), FORMAT, "an array of another length"},
    {BYTES("\x91\x07"), FORMAT, "in range"},
    {BYTES("\x92\x00\x00"), FORMAT, "as many items as its kind"},
    {BYTES("\x91\x00" EVAL), FORMAT, "after its end mark"},
    {BYTES("\x95\x01\x00\x00\x01\x00"), FORMAT, "as many items as its kind"},
    {BYTES("\x96\x01\x00\x00\x01\x00"), FORMAT, "an array"},
    {BYTES("\x96\x01\x00\x00\x00\x00\x00"), FORMAT, "at least one token"},
    {BYTES("\x96\x01\x00\x00\xcd\x02\x01\x00\x00"), FORMAT, "in range"},
    {BYTES("\x96\x01\x00\x00\x01\x02\x00"), FORMAT, "in range"},
    {BYTES("\x96\x01\x00\xce\xff\xff\xff\xff\x01\x00\x00"), FORMAT, "in range"},
    /* times together past what there is */
    {BYTES(EVAL "\x96\x01\x00\x00\x01\x00\xcf\x0f\xff\xff\xff\xff\xff\xff\xff"), FORMAT, "range"},
    {BYTES(LAYER), FORMAT, "an eval before this layer"},
    {BYTES(EVAL DONE LAYER), FORMAT, "an eval before this layer"},
    {BYTES(DONE), FORMAT, "an eval before its end"},
    {BYTES(EVAL DONE DONE), FORMAT, "an eval before its end"},
    {BYTES(EVAL LAYER LAYER), FORMAT, "ascending"},
    {BYTES(EVAL "\x9c\x02\x02\x02" CHOSEN AFTER_CHOSEN), FORMAT, "in range"},
    {BYTES(EVAL "\x9c\x02\x01\x02" CHOSEN AFTER_CHOSEN), FORMAT, "a layer that has experts"},
    {BYTES(EVAL "\x9c\x02\x00\x03" CHOSEN AFTER_CHOSEN), FORMAT, "in range"},
    {BYTES(EVAL "\x9c\x02\x00\x00" CHOSEN AFTER_CHOSEN), FORMAT, "at least one expert"},
    {BYTES(EVAL "\x9c\x02\x00\x01" CHOSEN AFTER_CHOSEN), FORMAT, "top_k experts for each token"},
    {BYTES("\x96\x01\x00\x00\x02\x00\x00" LAYER), FORMAT, "top_k experts for each token"},
    {BYTES(EVAL "\x9c\x02\x00\x02\xc4\x04\x01\0\x04\0" AFTER_CHOSEN), FORMAT, "experts of the"},
    {BYTES(EVAL "\x9c\x02\x00\x02\xc4\x04\x01\0\x01\0" AFTER_CHOSEN), FORMAT, "each once"},
    {BYTES(EVAL "\x9c\x02\x00\x02\xc4\x04\x01\0\xfe\xff" AFTER_CHOSEN), FORMAT, "experts of the"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN "\xc4\x00" STATES ENTRIES TIMES), FORMAT, "a weight"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN "\xc4\x08\0\0\x80\x7f\0\0\0\0" STATES ENTRIES TIMES),
     FORMAT, "finite"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN "\xc4\x08\0\0\0\0\x01\0\x80\xff" STATES ENTRIES TIMES),
     FORMAT, "finite"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN WEIGHTS "\xc4\x01\x00" ENTRIES TIMES), FORMAT, "a state"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN WEIGHTS "\xc4\x02\x00\x08" ENTRIES TIMES), FORMAT,
     "states of 0 to 7"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN WEIGHTS STATES "\xc4\x02\x00\x00" TIMES), FORMAT,
     "an entry for each missing expert"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN WEIGHTS "\xc4\x02\x00\x04" ENTRIES TIMES), FORMAT,
     "an entry for each missing expert"},
    {BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN WEIGHTS STATES "\xc4\x01\x03" TIMES), FORMAT,
     "entries of 0 to 2"},
    {BYTES("\x96\x03\x01\x00\x00\xc4\x00\xc4\x00"), FORMAT, "a layer that has experts"},
    {BYTES("\x96\x03\x00\x00\x02\xc4\x00\xc4\x00"), FORMAT, "in range"},
    {BYTES("\x96\x03\x00\x00\x00\xc4\x03\x01\0\x02\xc4\x00"), FORMAT, "at most as many hints"},
    {BYTES("\x96\x03\x00\x00\x00\xc4\x0a\x00\0\x01\0\x02\0\x03\0\x00\0\xc4\x00"), FORMAT,
     "at most as many hints"},
    {BYTES("\x96\x03\x00\x00\x00\xc4\x02\x04\0\xc4\x04\0\0\0\0"), FORMAT, "hints of experts"},
    {BYTES("\x96\x03\x00\x00\x00\xc4\x04\x03\0\x03\0\xc4\x08\0\0\0\0\0\0\0\0"), FORMAT,
     "each once"},
    {BYTES("\x96\x03\x00\x00\x00\xc4\x02\x03\0\xc4\x00"), FORMAT, "a probability for each"},
    {BYTES("\x96\x03\x00\x00\x00\xc4\x02\x03\0\xc4\x04\0\0\xc0\x7f"), FORMAT, "finite"},
    {BYTES("\x95\x04\x0a\x00\x00\x00"), FORMAT, "in range"},
    {BYTES("\x95\x04\x08\x00\x03\x03"), FORMAT, "in range"},
    {BYTES("\x95\x04\x09\x00\x04\x00"), FORMAT, "in range"},
    {BYTES("\x95\x04\x09\x00\x03\x01"), FORMAT, "in range"},
    {BYTES("\x95\x04\x00\x01\x00\x00"), FORMAT, "a layer that has experts"},
    {BYTES("\x95\x04\x00\x00\x04\x00"), FORMAT, "in range"},
    {BYTES("\x95\x04\x00\x00\x03\x01"), FORMAT, "in range"},
    {BYTES("\x95\x04\x01\x00\x03\x03"), FORMAT, "in range"},
    {BYTES("\x95\x04\x06\x00\x01\x00"), FORMAT, "in range"},
    {BYTES("\x95\x04\x06\x01\x00\x00"), FORMAT, "in range"},
    {BYTES("\x95\x04\x07\x00\xce\x00\x10\x00\x00\x00"), FORMAT, "in range"},
    {BYTES("\x97\x05\x01\x00\x00\x00\x00\x00"), FORMAT, "a layer that has experts"},
    {BYTES("\x97\x05\x00\x04\x00\x00\x00\x00"), FORMAT, "in range"},
    {BYTES("\x97\x05\x00\x03\x06\x00\x00\x00"), FORMAT, "in range"},
    {BYTES("\x97\x05\x00\x03\x05\x00\xff\x00"), FORMAT, "in range"}, /* before the beginning */
    {BYTES("\x97\x05\x00\x03\x05\xcf\x10\0\0\0\0\0\0\x01\x00\x00"), FORMAT, "in range"},
    {BYTES(EVAL "\x93\x06\x00\x96\x00\x00\x00\x00\x00\x00"), FORMAT, "another length"},
};

static void test_record__nonsense__refused_in_its_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad_records); i++) {
        const struct bad *c = &bad_records[i];
        struct trace_text t = {0};
        sluice_err err = read_records(&t, c->bytes, c->n);
        if (err != c->err) fail_msg("case %zu: %d, '%s'", i, err, case_error.text);
        if (strstr(case_error.text, c->words) == NULL) print_message("case %zu: ", i);
        assert_mentions(c->words);
        assert_non_null(strstr(t.p, "{\"kind\":\"header\""));
        text_free(&t);
    }
}

/* Weights and states are in all layer records or in none. */
static void test_record__what_was_not_measured__refused(void **state)
{
    struct forged f;
    struct trace_text t = {0};
    (void)state;
    forge_begin(&f);
    forge_block(&f, BYTES("\x83" VERSION_1 CLASSES BOTH));
    forge_block(&f, BYTES(EVAL LAYER));
    assert_int_equal(read_all(&t, f.p, f.n), SLUICE_E_FORMAT);
    assert_mentions("a weight for each choice, or none as measured");
    text_free(&t);
    forge_begin(&f);
    forge_block(&f, BYTES("\x83" VERSION_1 CLASSES BOTH));
    forge_block(&f, BYTES(EVAL "\x9c\x02\x00\x02" CHOSEN "\xc4\x00\xc4\x00" ENTRIES TIMES));
    assert_int_equal(read_all(&t, f.p, f.n), SLUICE_E_FORMAT);
    assert_mentions("an entry for each missing expert");
    text_free(&t);
}

/* ---- blocks -----------------------------------------------------------------------------------
 */

static void test_block__nothing_or_too_much_in_it__damaged(void **state)
{
    static const char *const heads[] = {
        "\x93\xce\0\0\0\0\xc6\0\0\0\0",         /* of 0 bytes */
        "\x93\xce\0\x04\0\x01\xc6\0\x04\0\x01", /* of 262,145 */
        "\x93\xce\0\0\0\x02\xc6\0\0\0\x03",     /* whose lengths differ */
        "\x92\xce\0\0\0\x02\xc6\0\0\0\x02",     /* of two items */
    };
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(heads); i++) {
        struct forged f;
        struct trace_text t = {0};
        forge_begin(&f);
        forge_block(&f, BYTES(HEADER));
        uint64_t at = f.n;
        memcpy(f.p + f.n, heads[i], SL_TF_HEAD_BYTES);
        f.n += SL_TF_HEAD_BYTES;
        assert_int_equal(read_all(&t, f.p, f.n), SLUICE_E_CORRUPT);
        assert_mentions("does not begin like one");
        assert_int_equal(case_error.file_offset, at);
        text_free(&t);
    }
}

/* The last block is cut or does not match its checksum: no error, but for the header, and where it
 * cannot be the end of a block at all. */
static void test_block__the_last_one_damaged__cut_unless_it_is_the_header(void **state)
{
    struct forged f;
    struct trace_text t = {0};
    (void)state;
    forge_begin(&f);
    forge_block(&f, BYTES(HEADER));
    f.p[f.n - 1] ^= 1;
    assert_int_equal(read_all(&t, f.p, f.n), SLUICE_E_CORRUPT);
    assert_mentions("does not match its checksum");
    f.p[f.n - 1] ^= 1;
    uint64_t header = f.n;
    forge_block(&f, BYTES(EVAL));
    f.p[f.n - 1] ^= 1;
    assert_int_equal(read_all(&t, f.p, f.n), SLUICE_OK);
    assert_non_null(strstr(t.p, "\"cut\":true"));
    assert_null(strstr(t.p, "\"eval\""));
    text_free(&t);
    f.p[header + SL_TF_HEAD_BYTES + sizeof EVAL - 1] ^= 1; /* no sum begins like this */
    for (uint32_t less = 0; less < SL_TF_TAIL_BYTES; less++) {
        assert_int_equal(read_all(&t, f.p, f.n - less), SLUICE_E_CORRUPT);
        assert_mentions("does not end like one");
        text_free(&t);
    }
}

/* A record must not go on in the next block. */
static void test_block__half_a_record__refused(void **state)
{
    struct forged f;
    struct trace_text t = {0};
    const char layer[] = LAYER;
    (void)state;
    for (size_t n = 1; n < sizeof layer - 1; n++) {
        forge_begin(&f);
        forge_block(&f, BYTES(HEADER));
        forge_block(&f, BYTES(EVAL));
        forge_block(&f, layer, n);
        forge_block(&f, layer + n, sizeof layer - 1 - n);
        assert_int_equal(read_all(&t, f.p, f.n), SLUICE_E_FORMAT);
        assert_mentions("breaks its format at byte");
        text_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header__nonsense__refused_in_its_words),
        cmocka_unit_test(test_header__strings_too_long__refused),
        cmocka_unit_test(test_header__too_many_layers__a_limit),
        cmocka_unit_test(test_header__of_a_later_time__read),
        cmocka_unit_test(test_record__as_it_should_be__read),
        cmocka_unit_test(test_record__nonsense__refused_in_its_words),
        cmocka_unit_test(test_record__what_was_not_measured__refused),
        cmocka_unit_test(test_block__nothing_or_too_much_in_it__damaged),
        cmocka_unit_test(test_block__the_last_one_damaged__cut_unless_it_is_the_header),
        cmocka_unit_test(test_block__half_a_record__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
