/* Forms of traces as other programs and people write them: what is unusual and right is taken, what
 * is wrong is an error that names the line, and nothing is left behind. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/trace_files.h"

/* ---- what is right in unusual ways --------------------------------------------------------------
 */

#define LOAD(text, b) load_text(text, sizeof(text) - 1, b)

static void test_text__marks_line_ends_and_blanks__are_passed_over(void **state)
{
    static const struct {
        const char *text;
        size_t n;
    } same[] = {
#define TEXT(s) {s, sizeof(s) - 1}
        TEXT("0 d 1,2;3\n0 d 2,1;0\n"),
        TEXT("0 d 1,2;3\n0 d 2,1;0"),
        TEXT("\xEF\xBB\xBF"
             "0 d 1,2;3\r\n0 d 2,1;0\r\n"),
        TEXT("# a remark\n\n0  d  1,2;3 \n   \n#\n0 d 2,1;0\n\n"),
        TEXT("# {\"experts\": 4, \"top_k\": 2, \"layers\": 2, \"model\": \"\"}\n0 d 1,2;3\n0 d "
             "2,1;0\n"),
#undef TEXT
    };
    struct sl_budget b;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    for (size_t i = 0; i < SL_ARRAY_LEN(same); i++) {
        static const uint16_t wanted[] = {1, 2, 3, 2, 1, 0};
        struct sl_trace *t = load_text(same[i].text, same[i].n, &b);
        assert_int_equal(t->n_tokens, 2);
        assert_int_equal(t->n_visits, 4);
        assert_int_equal(t->n_choices, 6);
        assert_memory_equal(t->chosen, wanted, sizeof wanted);
        assert_int_equal(t->header.layer[1].n_experts, 4);
        assert_int_equal(t->header.layer[1].top_k, 2);
        sl_trace_free(t);
    }
}

static void test_text__prompts_and_sessions__become_evals(void **state)
{
    struct sl_budget b;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *t = LOAD("3 p 1;;\n3 p 2,4;;5\n3 d 1;;6\n4 d 1;;6\n3 p 1;;6\n", &b);
    static const uint32_t wanted[][4] = {/* session, position, tokens, prompt */
                                         {3, 0, 2, 1},
                                         {3, 2, 1, 0},
                                         {4, 0, 1, 0},
                                         {3, 0, 1, 1}};
    assert_int_equal(t->n_evals, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct sl_trace_eval *e = &t->evals[i].e;
        const uint32_t got[] = {e->session, e->position, e->n_tokens, e->prompt};
        assert_memory_equal(got, wanted[i], sizeof got);
        assert_int_equal(t->evals[i].n_visits, 2); /* nobody chose in layer 1 */
    }
    assert_int_equal(t->header.n_layers, 3);
    assert_int_equal(t->header.layer[1].n_experts, 0);
    static const uint16_t chosen[] = {1, SL_TRACE_NONE, 2, 4, SL_TRACE_NONE, 5};
    assert_memory_equal(t->chosen, chosen, sizeof chosen);
    assert_int_equal(t->n_prompt, 3);
    assert_int_equal(t->n_tokens, 2);
    sl_trace_free(t);
}

#define BMOE_HEAD                                                                                  \
    "# route_trace v1\n# model=/a b/m.gguf arch=x n_layer=2 n_expert=8 n_expert_used=2\n"          \
    "# layer=0 expert_bytes=10 dense_bytes=5\n# layer=1 expert_bytes=30 dense_bytes=5\n"
#define BMOE_COLUMNS "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,dropped\n"

static void test_bmoe__its_columns__are_taken(void **state)
{
    struct sl_budget b;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *t = LOAD(BMOE_HEAD BMOE_COLUMNS "0,1,5,0,0,7,0.75,0,10,0\n"
                                                     "0,1,5,0,1,2,0.25,2,0,0\n"
                                                     "0,1,5,1,0,1,0.5,0,0,1\n"
                                                     "0,1,5,1,1,3,0.5,1,0,0\n",
                              &b);
    static const uint16_t chosen[] = {7, 2, SL_TRACE_NONE, 3};
    static const float weights[] = {.75f, .25f, 0, .5f};
    static const uint8_t states[] = {SL_TRACE_MISSING, SL_TRACE_AT_HAND | SL_TRACE_AHEAD,
                                     SL_TRACE_UNKNOWN, SL_TRACE_AT_HAND};
    assert_int_equal(t->evals[0].e.position, 5);
    assert_memory_equal(t->chosen, chosen, sizeof chosen);
    assert_memory_equal(t->weights, weights, sizeof weights);
    assert_memory_equal(t->states, states, sizeof states);
    assert_int_equal(t->visits[0].read_bytes, 10);
    assert_int_equal(t->header.n_classes, 2);
    assert_int_equal(t->header.layer[1].size_class != t->header.layer[0].size_class, 1);
    assert_int_equal(t->header.layer[1].slot_bytes, 30);
    assert_string_equal(t->header.model, "m.gguf");
    assert_string_equal(t->header.architecture, "x");
    sl_trace_free(t);
    t = LOAD(BMOE_HEAD "expert,slot,layer,step,phase,turn,weight\n7,0,0,0,1,0,nan\n2,0,1,0,1,0,1\n",
             &b);
    assert_int_equal(t->header.measured, 0); /* a weight that is not known is not 0 */
    assert_null(t->weights);
    assert_null(t->states);
    assert_int_equal(t->chosen[0], 7);
    sl_trace_free(t);
    assert_int_equal(sl_budget_used(&b), 0);
}

/* ---- what is wrong ------------------------------------------------------------------------------
 */

#define REFUSED(text, code, wanted) check_refused(text, sizeof(text) - 1, code, wanted)

static void test_load__what_is_no_trace__is_refused(void **state)
{
    struct sl_budget b;
    struct sl_trace *t;
    sluice_error e;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    REFUSED("", SLUICE_E_FORMAT, "empty, a trace was wanted");
    REFUSED("\n\n", SLUICE_E_FORMAT, "found no tokens");
    REFUSED("GGUF\x03\0\0\0 whatever", SLUICE_E_FORMAT, "line 1: a byte 0");
    REFUSED("hello world\n", SLUICE_E_FORMAT, "line 1: wanted a prompt's number");
    if (gzip_works())
        REFUSED("\x1f\x8b\x08 not gzip at all", SLUICE_E_CORRUPT, "the gzip stream is damaged");
    else
        REFUSED("\x1f\x8b\x08 gzip", SLUICE_E_UNSUPPORTED, "unpack it with gunzip first");
    assert_int_equal(sl_trace_load("/nonexistent/trace", NULL, NULL, &b, &e, &t),
                     SLUICE_E_NOT_FOUND);
    assert_int_equal(sl_trace_load("/tmp", NULL, NULL, &b, &e, &t), SLUICE_E_IO);
    assert_non_null(strstr(e.text, "is a directory"));
    assert_int_equal(sl_budget_used(&b), 0);
}

static void test_text__mistakes__name_their_line(void **state)
{
    (void)state;
    REFUSED("0 d 1\n0 x 1\n", SLUICE_E_FORMAT, "line 2: wanted p or d as the second word");
    REFUSED("0 d 1;2\n0 d 1\n", SLUICE_E_FORMAT, "line 2: 1 layers, wanted 2 as before");
    REFUSED("0 d 1,,2\n", SLUICE_E_FORMAT, "line 1: wanted expert numbers below 1024");
    REFUSED("0 d -1\n", SLUICE_E_FORMAT, "line 1: wanted expert numbers below 1024");
    REFUSED("0 d 1024\n", SLUICE_E_FORMAT, "line 1: wanted expert numbers below 1024");
    REFUSED("0 d 99999999999999999999999\n", SLUICE_E_FORMAT, "wanted expert numbers");
    REFUSED("0 d 1 2\n", SLUICE_E_FORMAT, "line 1: wanted a comma between two experts");
    REFUSED("0 d 1,1\n", SLUICE_E_FORMAT, "line 1: wanted experts of a layer, each once");
    REFUSED("99999999999 d 1\n", SLUICE_E_FORMAT, "wanted a prompt's number");
    REFUSED("0 d ;;\n", SLUICE_E_FORMAT, "holds no tokens");
    REFUSED("# {\"experts\": 4}\n0 d 4\n", SLUICE_E_FORMAT,
            "line 2: wanted expert numbers below 4");
    REFUSED("# {\"top_k\": 1}\n0 d 1,2\n", SLUICE_E_FORMAT, "line 2: more than 1 experts");
    REFUSED("# {\"layers\": 3}\n0 d 1;2\n", SLUICE_E_FORMAT, "line 2: 2 layers, wanted 3");
    REFUSED("# {\"experts\": 5000}\n0 d 1\n", SLUICE_E_LIMIT, "line 1: 0 layers of 5000 experts");
    REFUSED("# {\"experts\": 2, \"top_k\": 3}\n0 d 1\n", SLUICE_E_FORMAT, "top_k 3 of 2");
    REFUSED("# {broken\n0 d 1\n", SLUICE_E_FORMAT, "line 1: ");
}

static void test_text__lines_and_layers_without_end__are_refused(void **state)
{
    size_t n = (17u << 20) + 6;
    char *text = malloc(n);
    (void)state;
    assert_non_null(text);
    memset(text, '1', n);
    memcpy(text, "0 d 1\n", 6);
    check_refused(text, n, SLUICE_E_LIMIT, "line 2: longer than 16 MiB");
    memset(text + 4, ';', 600);
    text[604] = '\n';
    check_refused(text, 605, SLUICE_E_LIMIT, "line 1: 601 layers, at most 512");
    char *at = text + 4;
    for (int i = 0; i < 65; i++) at += snprintf(at, 8, i ? ",%d" : "%d", i);
    check_refused(text, (size_t)(at - text), SLUICE_E_FORMAT, "line 1: more than 64 experts");
    free(text);
}

static void test_bmoe__mistakes__name_their_line(void **state)
{
    (void)state;
    REFUSED("# route_trace v2\n", SLUICE_E_VERSION, "line 1: a route trace of another version");
    REFUSED("# route_trace v1\n# model=x arch=y n_layer=1\n", SLUICE_E_FORMAT,
            "line 2: wanted n_layer, n_expert and n_expert_used");
    REFUSED("# route_trace v1\n# model=x arch=y n_layer=1 n_expert=1025 n_expert_used=1\n",
            SLUICE_E_FORMAT, "at most 512, 1024 and 64");
    REFUSED(BMOE_HEAD, SLUICE_E_FORMAT, "found no tokens");
    REFUSED(BMOE_HEAD "turn,phase,step,layer,expert\n", SLUICE_E_FORMAT,
            "line 5: no column 'slot'");
    REFUSED("turn,phase,step,layer,slot,expert\n0,1,0,0,0,1\n", SLUICE_E_FORMAT, "rows before");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,0,0,0,8,1,0,0,0\n0,1,0,1,0,1,1,0,0,0\n", SLUICE_E_FORMAT,
            "layer 0: expert 8");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,0,0,2,1,1,0,0,0\n", SLUICE_E_FORMAT, "line 6: slot 2");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,0,2,0,1,1,0,0,0\n", SLUICE_E_FORMAT, "line 6: layer 2");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,-1,0,0,1,1,0,0,0\n", SLUICE_E_FORMAT, "step is '-1'");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,0,0,0,1,inf,0,0,0\n", SLUICE_E_FORMAT,
            "weight is 'inf', wanted a finite number or nan");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,0,0,0,1,1,3,0,0\n", SLUICE_E_FORMAT,
            "residency is '3', wanted a number from 0 to 2");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,0,5,0,0,1,1,0,0,0\n0,0,4,0,0,1,1,0,0,0\n", SLUICE_E_FORMAT,
            "line 7: step 4 after step 5");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,0,0,0\n", SLUICE_E_FORMAT, "line 6: expert is ''");
    REFUSED(BMOE_HEAD BMOE_COLUMNS "0,1,0,0,0,1,1,0,0,0\n0,1,0,0,0,2,1,0,0,0\n", SLUICE_E_FORMAT,
            "slot 0 twice");
}

#define CSV_HEAD                                                                                   \
    "# sluice_trace csv 1\n# model,\"m\"\n# measured,weights,states\n# n_slots,2\n"                \
    "# layer,n_experts,top_k,size_class,expert_bytes,slot_bytes,weights\n# 0,4,2,0,0,0,0\n"
#define CSV_COLUMNS                                                                                \
    "record,session,position,tokens,phase,layer,top_k,rank,expert,weight,state,kind,how,"          \
    "visits,bytes\n"
#define CSV_TOKEN                                                                                  \
    "eval,0,0,1,decode\nlayer,,,,,0,2\nchoice,,,,,0,,0,1,0.5,hit\n"                                \
    "choice,,,,,0,,1,,0.5,miss\n"

static void test_csv__mistakes__name_their_line(void **state)
{
    struct sl_budget b;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *t = LOAD(CSV_HEAD CSV_COLUMNS CSV_TOKEN, &b);
    assert_int_equal(t->chosen[1], SL_TRACE_NONE);
    assert_int_equal(t->states[0], SL_TRACE_AT_HAND);
    sl_trace_free(t);
    REFUSED("# sluice_trace csv 2\n", SLUICE_E_VERSION, "line 1: wanted '# sluice_trace csv 1'");
    REFUSED("# sluice_trace csv 1\n", SLUICE_E_FORMAT, "no names of columns");
    REFUSED("# sluice_trace csv 1\n# model,m\n", SLUICE_E_FORMAT, "line 2: ");
    REFUSED("# sluice_trace csv 1\n# threads,-2\n", SLUICE_E_FORMAT, "line 2: wanted a whole");
    REFUSED("# sluice_trace csv 1\n# 1,4,2,0,0,0,0\n", SLUICE_E_FORMAT, "line 2: wanted the head");
    REFUSED("# sluice_trace csv 1\n# measured,moods\n", SLUICE_E_FORMAT, "line 2: wanted weights");
    REFUSED("# sluice_trace csv 1\n" CSV_COLUMNS, SLUICE_E_FORMAT, "line 2: wanted the layers");
    REFUSED("# sluice_trace csv 1\n# 0,4,5,0,0,0,0\n" CSV_COLUMNS, SLUICE_E_FORMAT, "5 of 4");
    REFUSED(CSV_HEAD "record,session\n", SLUICE_E_FORMAT, "line 7: no column 'position'");
    REFUSED(CSV_HEAD CSV_COLUMNS, SLUICE_E_FORMAT, "holds no tokens");
    REFUSED(CSV_HEAD CSV_COLUMNS "what\n", SLUICE_E_FORMAT, "line 8: record is 'what'");
    REFUSED(CSV_HEAD CSV_COLUMNS "layer,,,,,0,2\neval,0,0,1,decode\n", SLUICE_E_FORMAT,
            "layer 0 before any eval");
    REFUSED(CSV_HEAD CSV_COLUMNS "eval,0,0,513,decode\n", SLUICE_E_FORMAT, "tokens is '513'");
    REFUSED(CSV_HEAD CSV_COLUMNS "eval,0,0,1,soon\n", SLUICE_E_FORMAT, "phase is 'soon'");
    REFUSED(CSV_HEAD CSV_COLUMNS CSV_TOKEN "layer,,,,,0,2\n", SLUICE_E_FORMAT, "has 0 choices");
    REFUSED(CSV_HEAD CSV_COLUMNS CSV_TOKEN CSV_TOKEN "choice,,,,,0,,0,1,1,hit\n", SLUICE_E_FORMAT,
            "line 16: wanted as many choices");
    REFUSED(CSV_HEAD CSV_COLUMNS "eval,0,0,1,decode\nlayer,,,,,0,2\nchoice,,,,,0,,1,1,1,hit\n",
            SLUICE_E_FORMAT, "line 10: wanted choices token by token");
    REFUSED(CSV_HEAD CSV_COLUMNS "eval,0,0,1,decode\nlayer,,,,,0,1\nchoice,,,,,0,,0,1,nan,hit\n",
            SLUICE_E_FORMAT, "weight is 'nan', wanted a finite number");
    REFUSED(CSV_HEAD CSV_COLUMNS "eval,0,0,1,decode\nlayer,,,,,0,1\nchoice,,,,,0,,0,1,1,cold\n",
            SLUICE_E_FORMAT, "state is 'cold', wanted a word such as miss");
    REFUSED(CSV_HEAD CSV_COLUMNS "eval,0,0,1,decode\nlayer,,,,,0,1\nchoice,,,,,0,,0,4,1,hit\n",
            SLUICE_E_FORMAT, "layer 0: expert 4, but it has 4");
    REFUSED(CSV_HEAD CSV_COLUMNS "op,,,,,0,,,1,,,guess,1\n", SLUICE_E_FORMAT, "line 8: an op");
    REFUSED(CSV_HEAD CSV_COLUMNS "hint,,,,,0,,0,1,1\n", SLUICE_E_FORMAT, "line 8: wanted a hints");
    REFUSED(CSV_HEAD CSV_COLUMNS "read,,,,,0,,,9,,,token\n", SLUICE_E_FORMAT, "no expert 9");
}

#define JSONL_HEAD                                                                                 \
    "{\"sluice_trace\": 1, \"measured\": [\"weights\"], \"layers\": [{\"n_experts\": 4, "          \
    "\"top_k\": 2}]}\n"
#define JSONL_EVAL "{\"record\": \"eval\", \"tokens\": 1, \"phase\": \"decode\"}\n"

static void test_jsonl__mistakes__name_their_line(void **state)
{
    struct sl_budget b;
    (void)state;
    sl_budget_init(&b, UINT64_MAX);
    struct sl_trace *t =
        LOAD(JSONL_HEAD JSONL_EVAL "\r\n{\"weights\": [[1, 1e-3]], \"experts\": [[3, null]], "
                                   "\"record\": \"layer\", \"mood\": {}}",
             &b);
    assert_int_equal(t->chosen[0], 3);
    assert_int_equal(t->chosen[1], SL_TRACE_NONE);
    assert_true(t->weights[1] == 1e-3f);
    sl_trace_free(t);
    REFUSED("{\n", SLUICE_E_FORMAT, "line 1: ");
    REFUSED("{}\n", SLUICE_E_FORMAT, "line 1: \"sluice_trace\": wanted this key");
    REFUSED("{\"sluice_trace\": 2}\n", SLUICE_E_FORMAT, "wanted 1, the version");
    REFUSED("{\"sluice_trace\": 1}\n", SLUICE_E_FORMAT, "the header names no layers");
    REFUSED("{\"sluice_trace\": 1, \"model\": 5}\n", SLUICE_E_FORMAT, "\"model\": wanted a text");
    REFUSED(JSONL_HEAD, SLUICE_E_FORMAT, "holds no tokens");
    REFUSED(JSONL_HEAD "[]\n", SLUICE_E_FORMAT, "line 2: ");
    REFUSED(JSONL_HEAD "{\"record\": \"what\"}\n", SLUICE_E_FORMAT, "line 2: \"record\": wanted");
    REFUSED(JSONL_HEAD "{\"record\": \"eval\", \"tokens\": 1.5, \"phase\": \"decode\"}\n",
            SLUICE_E_FORMAT, "\"tokens\": wanted a whole number");
    REFUSED(JSONL_HEAD "{\"record\": \"eval\", \"tokens\": 0, \"phase\": \"decode\"}\n",
            SLUICE_E_FORMAT, "an eval of 0 tokens");
    REFUSED(JSONL_HEAD JSONL_EVAL "{\"record\": \"layer\", \"experts\": [[1], [2]]}\n",
            SLUICE_E_FORMAT, "line 3: \"experts\": wanted a list for each token");
    REFUSED(JSONL_HEAD JSONL_EVAL "{\"record\": \"layer\", \"experts\": [[1]]}\n", SLUICE_E_FORMAT,
            "layer 0 has no weights");
    REFUSED(JSONL_HEAD JSONL_EVAL
            "{\"record\": \"layer\", \"experts\": [[1]], \"weights\": [[1, 2]]}\n",
            SLUICE_E_FORMAT, "\"weights\": wanted lists");
    REFUSED(JSONL_HEAD JSONL_EVAL
            "{\"record\": \"layer\", \"experts\": [[1]], \"weights\": [[NaN]]}\n",
            SLUICE_E_FORMAT, "\"weights\": wanted finite numbers");
    REFUSED(JSONL_HEAD JSONL_EVAL
            "{\"record\": \"layer\", \"experts\": [[1]], \"weights\": [[1e39]]}\n",
            SLUICE_E_FORMAT, "\"weights\": wanted finite numbers");
    REFUSED(JSONL_HEAD JSONL_EVAL
            "{\"record\": \"layer\", \"experts\": [[1, 1]], \"weights\": [[1, 2]]}\n",
            SLUICE_E_FORMAT, "expert 1 twice");
    REFUSED(JSONL_HEAD JSONL_EVAL "{\"record\": \"done\", \"end_ns\": 5}\n"
                                  "{\"record\": \"done\", \"end_ns\": 6}\n",
            SLUICE_E_FORMAT, "line 4: an eval is done that had not begun");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__marks_line_ends_and_blanks__are_passed_over),
        cmocka_unit_test(test_text__prompts_and_sessions__become_evals),
        cmocka_unit_test(test_bmoe__its_columns__are_taken),
        cmocka_unit_test(test_load__what_is_no_trace__is_refused),
        cmocka_unit_test(test_text__mistakes__name_their_line),
        cmocka_unit_test(test_text__lines_and_layers_without_end__are_refused),
        cmocka_unit_test(test_bmoe__mistakes__name_their_line),
        cmocka_unit_test(test_csv__mistakes__name_their_line),
        cmocka_unit_test(test_jsonl__mistakes__name_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
