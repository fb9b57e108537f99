/* Recipes: patterns, lines, types; and the plan that rules, built-in and written, lead to: what
 * stays exact, what falls back, which recipes are refused, and the text that a container carries.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/support/pack_case.h"

#include <ctype.h>

static struct sl_str str(const char *s) { return (struct sl_str){s, strlen(s)}; }

/* ---- patterns and lines ---------------------------------------------------------------------- */

static void test_matches__stars_and_question_marks__as_globs(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool fits;
    } cases[] = {
        {"*", "", true},
        {"*", "abc", true},
        {"", "", true},
        {"", "a", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"a*c", "ac", true},
        {"a*c", "abcbc", true},
        {"a*c", "abcb", false},
        {"*.b.*", "x.b.y", true},
        {"*a*a*", "banana", true},
        {"*a*a*a*a", "banana", false},
        {"a**b", "ab", true},
        {"ab", "abc", false},
        {"abc", "ab", false},
        {"?", "", false},
        {"blk.*.ffn_down.*.weight", "blk.3.ffn_down.7.weight", true},
        {"blk.1.*", "blk.11.x", false},
    };
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++)
        if (sl_recipe_matches(str(cases[i].pattern), str(cases[i].name)) != cases[i].fits)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].name);
}

/* A pattern of many stars costs no more than the product of the lengths. */
static void test_matches__many_stars__quickly_refused(void **state)
{
    static char pattern[20001], name[20001];
    (void)state;
    for (int i = 0; i < 20000; i++) {
        pattern[i] = i % 2 ? 'a' : '*';
        name[i] = 'a';
    }
    pattern[19999] = 'b';
    assert_false(sl_recipe_matches(str(pattern), str(name)));
}

static void test_parse__lines__rules_in_order(void **state)
{
    struct sl_recipe *r = NULL;
    static const char text[] = "# comment\r\n\n  blk.0.* \t sq4_32 # more\n*_exps.weight keep\r\n"
                               "output.weight f16";
    (void)state;
    assert_int_equal(sl_recipe_parse(str(text), "r", &budget, &error, &r), SLUICE_OK);
    assert_int_equal(sl_recipe_n_rules(r), 3);
    assert_int_equal(sl_recipe_rule(r, 0)->type, SL_SQ4_32);
    assert_int_equal(sl_recipe_rule(r, 0)->line, 3);
    assert_int_equal(sl_recipe_rule(r, 1)->type, SL_RECIPE_KEEP);
    assert_int_equal(sl_recipe_rule(r, 2)->type, SL_TYPE_F16);
    assert_int_equal(
        sl_recipe_find(r, str("blk.0.ffn_up.3.weight"), str("blk.0.ffn_up_exps.weight")), 0);
    assert_int_equal(
        sl_recipe_find(r, str("blk.1.ffn_up.3.weight"), str("blk.1.ffn_up_exps.weight")), 1);
    assert_int_equal(sl_recipe_find(r, str("blk.1.attn_q.weight"), str("")), UINT32_MAX);
    sl_recipe_close(r);
}

static void test_parse__broken_lines__number_and_what_was_wanted(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"a f32\nb\n", "r, line 2: wanted a pattern and a type"},
        {"a f32 more", "r, line 1: wanted a pattern and a type"},
        {"a q4_k", "r, line 1: 'q4_k' is no type that can be written, wanted one of keep, f32"},
        {"a F31", "'F31' is no type"},
        {"a a_name_longer_than_any_type", "is no type"},
    };
    struct sl_recipe *r = NULL;
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        pc_assert_error(sl_recipe_parse(str(cases[i].text), "r", &budget, &error, &r),
                        SLUICE_E_FORMAT, cases[i].part);
        assert_null(r);
    }
    pc_assert_error(sl_recipe_parse((struct sl_str){"a\0 f32", 6}, "r", &budget, &error, &r),
                    SLUICE_E_FORMAT, "no text");
    pc_assert_error(sl_recipe_open(pc_path("none"), &budget, &error, &r), SLUICE_E_NOT_FOUND,
                    "none");
}

static void test_type__every_word_of_the_list__there_and_back(void **state)
{
    char list[SL_RECIPE_TYPES_MAX], name[SL_RECIPE_TYPE_NAME_MAX], *at = list, *word;
    uint32_t type, n = 0;
    (void)state;
    sl_recipe_types(list);
    while ((word = strsep(&at, ", ")) != NULL) {
        if (!*word) continue;
        assert_true(sl_recipe_type(str(word), &type));
        assert_string_equal(sl_recipe_type_name(type, name), word);
        uint32_t lower = type;
        word[0] = (char)toupper((unsigned char)word[0]);
        assert_true(sl_recipe_type(str(word), &type));
        assert_int_equal(type, lower);
        n++;
    }
    assert_int_equal(n, 5 + SL_SQ_TYPES);
}

/* ---- plans ----------------------------------------------------------------------------------- */

struct planned {
    struct sl_source *source;
    struct sl_recipe *recipe;
    struct sl_pack_request request;
    struct sl_pack_plan plan;
};

static sluice_err plan_of(struct planned *p, uint32_t bits, const char *recipe)
{
    memset(p, 0, sizeof *p);
    p->source = pc_open(pc_path("m.gguf"));
    if (recipe != NULL)
        assert_int_equal(sl_recipe_parse(str(recipe), "r", &budget, &error, &p->recipe), SLUICE_OK);
    p->request = (struct sl_pack_request){.bits = bits, .recipe = p->recipe, .creator = "test 1"};
    return sl_pack_plan_make(p->source, &p->request, &budget, &error, &p->plan);
}

static sluice_err make(struct planned *p, uint32_t bits, const char *recipe)
{
    pc_write_model("m.gguf", pc_stacked, PC_STACKED);
    return plan_of(p, bits, recipe);
}

static void done(struct planned *p)
{
    if (p->plan.budget != NULL) sl_pack_plan_deinit(&p->plan);
    sl_recipe_close(p->recipe);
    sl_source_close(p->source);
}

static const struct sl_pack_class *class_named(const struct planned *p, const char *name)
{
    for (uint32_t i = 0; i < p->plan.n_classes; i++)
        if (sl_str_eq(p->plan.classes[i].name, name)) return &p->plan.classes[i];
    fail_msg("there is no class %s", name);
    return NULL;
}

static void assert_type(const struct planned *p, const char *name, uint32_t type)
{
    const struct sl_pack_class *c = class_named(p, name);

    if (c->type != type) fail_msg("%s is %s", name, sl_type_name(c->type));
}

static void test_plan__three_bits__experts_small_vectors_exact(void **state)
{
    struct planned p;
    (void)state;
    assert_int_equal(make(&p, 3, NULL), SLUICE_OK);
    assert_int_equal(p.plan.n_classes, 7 + 2 * 3);
    assert_type(&p, "blk.0.ffn_gate_exps.weight", SL_SQ4_32); /* the first layer */
    assert_type(&p, "blk.1.ffn_gate_exps.weight", SL_SQ3_32);
    assert_type(&p, "blk.1.ffn_down_exps.weight", SL_SQ3_32);
    assert_type(&p, "token_embd.weight", SL_TYPE_Q8_0);
    assert_type(&p, "output.weight", SL_TYPE_Q8_0);
    assert_type(&p, "blk.0.attn_q.weight", SL_TYPE_Q8_0);
    assert_type(&p, "blk.0.attn_norm.weight", SL_TYPE_F32);
    assert_type(&p, "blk.0.ffn_gate_inp.weight", SL_TYPE_F32);
    assert_type(&p, "blk.1.ssm_conv1d.weight", SL_TYPE_F32);
    assert_type(&p, "blk.0.attn_output.weight", SL_TYPE_F16); /* 48 columns */
    assert_int_equal(class_named(&p, "blk.0.attn_output.weight")->wanted, SL_TYPE_Q8_0);
    const struct sl_pack_class *c = class_named(&p, "blk.1.ffn_down_exps.weight");
    assert_int_equal(c->n, 4);
    assert_int_equal(c->from_bytes, 4 * 64 * 96 * 4);
    assert_int_equal(c->bytes, 4 * 8 * (16 + 3 * 104));
    assert_int_equal(c->kind, SL_PACK_DOWN);
    done(&p);
}

/* Of two layers, one of them recurrent. */
static const struct pc_tensor hybrid[] = {
    {"token_embd.weight", {64, 80, 1}, 2},          {"blk.0.attn_qkv.weight", {64, 96, 1}, 2},
    {"blk.0.attn_gate.weight", {64, 48, 1}, 2},     {"blk.0.ssm_conv1d.weight", {4, 96, 1}, 2},
    {"blk.0.ssm_alpha.weight", {64, 4, 1}, 2},      {"blk.0.ssm_ba.weight", {64, 8, 1}, 2},
    {"blk.0.ssm_out.weight", {96, 64, 1}, 2},       {"blk.0.ffn_up_shexp.weight", {64, 32, 1}, 2},
    {"blk.1.attn_q.weight", {64, 50, 1}, 2},        {"blk.1.attn_output.weight", {48, 64, 1}, 2},
    {"blk.1.ffn_gate_exps.weight", {64, 96, 4}, 3}, {"output.weight", {64, 80, 1}, 2},
};

static void test_plan__recurrent_layers__six_bits_for_most(void **state)
{
    struct planned p;
    (void)state;
    pc_write_model("m.gguf", hybrid, SL_ARRAY_LEN(hybrid));
    assert_int_equal(plan_of(&p, 3, "blk.1.attn_q.weight q8_0"), SLUICE_OK);
    assert_type(&p, "blk.0.attn_qkv.weight", SL_SQ6_32);
    assert_type(&p, "blk.0.attn_gate.weight", SL_SQ5_32);
    assert_type(&p, "blk.0.ssm_out.weight", SL_SQ6_32);
    assert_type(&p, "blk.0.ffn_up_shexp.weight", SL_SQ6_32);
    assert_type(&p, "output.weight", SL_SQ5_32);
    assert_type(&p, "blk.0.ssm_alpha.weight", SL_TYPE_Q8_0);
    assert_type(&p, "blk.0.ssm_ba.weight", SL_TYPE_Q8_0);
    assert_type(&p, "blk.0.ssm_conv1d.weight", SL_TYPE_F32);
    assert_type(&p, "token_embd.weight", SL_TYPE_Q8_0);
    assert_type(&p, "blk.1.attn_q.weight", SL_TYPE_Q8_0);     /* by the recipe */
    assert_type(&p, "blk.1.attn_output.weight", SL_TYPE_F16); /* 48 columns */
    done(&p);
}

static void test_plan__recurrent_layers_eight_bits__everywhere(void **state)
{
    struct planned p;
    (void)state;
    pc_write_model("m.gguf", hybrid, SL_ARRAY_LEN(hybrid));
    assert_int_equal(plan_of(&p, 8, NULL), SLUICE_OK);
    assert_type(&p, "blk.0.attn_qkv.weight", SL_TYPE_Q8_0);
    assert_type(&p, "blk.0.attn_gate.weight", SL_TYPE_Q8_0);
    assert_type(&p, "output.weight", SL_TYPE_Q8_0);
    assert_type(&p, "blk.1.ffn_gate_exps.weight", SL_TYPE_Q8_0);
    done(&p);
}

/* The types of a second run, over what the first one made of all of it with a recipe. */
static void assert_again(const char *recipe, uint32_t type)
{
    struct planned p;

    pc_write_model("f.gguf", hybrid, SL_ARRAY_LEN(hybrid));
    unlink(pc_path("m.gguf"));
    pc_pack_ok(&(struct pc_job){.from = "f.gguf", .to = "m.sluice", .recipe = recipe});
    assert_int_equal(rename(pc_path("m.sluice"), pc_path("m.gguf")), 0);
    assert_int_equal(plan_of(&p, 3, NULL), SLUICE_OK);
    assert_type(&p, "blk.0.attn_qkv.weight", type);
    done(&p);
}

static void test_plan__recurrent_layers_quantized__again_where_it_takes_off_a_sixth(void **state)
{
    (void)state;
    assert_again("*attn_qkv* q8_0", SL_SQ6_32);
    assert_again("*attn_qkv* sq6_32", SL_SQ6_32);
    assert_again("*attn_qkv* sq5_32", SL_SQ5_32);
}

static void test_plan__router__half_the_bytes_where_they_hold_its_values(void **state)
{
    struct planned p;
    (void)state;
    pc_write_model("f.gguf", pc_stacked, PC_STACKED);
    pc_pack_ok(&(struct pc_job){.from = "f.gguf", .to = "b.sluice", .recipe = "*_inp* bf16"});
    pc_pack_ok(&(struct pc_job){.from = "b.sluice", .to = "m.sluice", .recipe = "*_inp* f32"});
    assert_int_equal(rename(pc_path("m.sluice"), pc_path("m.gguf")), 0);
    assert_int_equal(plan_of(&p, 3, NULL), SLUICE_OK);
    assert_int_equal(class_named(&p, "blk.0.ffn_gate_inp.weight")->from, SL_TYPE_F32);
    assert_type(&p, "blk.0.ffn_gate_inp.weight", SL_TYPE_BF16);
    done(&p);
    assert_int_equal(plan_of(&p, 0, NULL), SLUICE_OK);
    assert_type(&p, "blk.0.ffn_gate_inp.weight", SL_TYPE_F32);
    done(&p);
    assert_int_equal(plan_of(&p, 3, "*_inp* f32"), SLUICE_OK);
    assert_type(&p, "blk.0.ffn_gate_inp.weight", SL_TYPE_F32);
    done(&p);
}

static void test_plan__keep__every_type_as_it_was(void **state)
{
    struct planned p;
    (void)state;
    assert_int_equal(make(&p, 0, NULL), SLUICE_OK);
    for (uint32_t i = 0; i < p.plan.n_classes; i++)
        assert_int_equal(p.plan.classes[i].type, SL_TYPE_F32);
    assert_int_equal(sl_pack_plan_settle(&p.plan, &p.request, &error), SLUICE_OK);
    assert_int_equal(p.plan.recipe_bytes,
                     strlen("# test 1, encoders 1\n# statistics: none\n* keep\n"));
    done(&p);
}

static void test_plan__rules__before_the_built_in_ones(void **state)
{
    struct planned p;
    (void)state;
    assert_int_equal(make(&p, 3,
                          "blk.1.ffn_down_exps.weight sq2_16\nblk.?.ffn_up.*.weight q8_0\n"
                          "*attn_norm* q8_0\ntoken_embd.weight sq4_32\n*attn_output* sq3_32\n"
                          "*ffn_gate_inp* bf16\noutput.weight sq6_32\n"),
                     SLUICE_OK);
    assert_type(&p, "blk.1.ffn_down_exps.weight", SL_SQ2_16);
    assert_type(&p, "blk.0.ffn_up_exps.weight", SL_TYPE_Q8_0); /* by the single's name */
    assert_type(&p, "blk.0.attn_norm.weight", SL_TYPE_F32);    /* a vector */
    assert_type(&p, "token_embd.weight", SL_TYPE_Q8_0);        /* read row by row */
    assert_type(&p, "blk.0.attn_output.weight", SL_TYPE_F16);
    assert_type(&p, "blk.0.ffn_gate_inp.weight", SL_TYPE_BF16);
    assert_type(&p, "output.weight", SL_SQ6_32);
    done(&p);
}

/* Half precision is no type for them either: what reads a norm or factors of RoPE wants float32. */
static void test_plan__half_precision_for_everything__not_for_vectors(void **state)
{
    static const char *const recipes[] = {"* f16", "* bf16"};
    struct planned p;
    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(recipes); i++) {
        assert_int_equal(make(&p, 3, recipes[i]), SLUICE_OK);
        assert_type(&p, "blk.0.attn_norm.weight", SL_TYPE_F32);
        assert_type(&p, "blk.1.ssm_conv1d.weight", SL_TYPE_F32); /* narrow */
        assert_type(&p, "blk.0.attn_q.weight", i == 0 ? SL_TYPE_F16 : SL_TYPE_BF16);
        done(&p);
    }
}

static void test_plan__pattern_fits_some_experts_only__refused(void **state)
{
    struct planned p;
    (void)state;
    pc_assert_error(make(&p, 3, "blk.0.ffn_down.2.weight sq4_32"), SLUICE_E_FORMAT,
                    "'blk.0.ffn_down.2.weight'");
    done(&p);
}

/* The text is a recipe for the same types. */
static void test_settle__text__leads_to_the_same_types(void **state)
{
    struct planned p, q;
    char text[4096];
    (void)state;
    assert_int_equal(make(&p, 3, "blk.1.ffn_up_exps.weight sq2_32"), SLUICE_OK);
    assert_int_equal(sl_pack_plan_settle(&p.plan, &p.request, &error), SLUICE_OK);
    assert_true(p.plan.recipe_bytes < sizeof text);
    snprintf(text, sizeof text, "%.*s", (int)p.plan.recipe_bytes, p.plan.recipe);
    assert_non_null(strstr(text, "blk.1.ffn_up_exps.weight sq2_32\n"));
    assert_int_equal(make(&q, 0, text), SLUICE_OK);
    for (uint32_t i = 0; i < p.plan.n_classes; i++)
        assert_int_equal(p.plan.classes[i].type, q.plan.classes[i].type);
    done(&p);
    done(&q);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pc_set_up, pc_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_matches__stars_and_question_marks__as_globs),
        TEST(test_matches__many_stars__quickly_refused),
        TEST(test_parse__lines__rules_in_order),
        TEST(test_parse__broken_lines__number_and_what_was_wanted),
        TEST(test_type__every_word_of_the_list__there_and_back),
        TEST(test_plan__three_bits__experts_small_vectors_exact),
        TEST(test_plan__keep__every_type_as_it_was),
        TEST(test_plan__recurrent_layers__six_bits_for_most),
        TEST(test_plan__recurrent_layers_eight_bits__everywhere),
        TEST(test_plan__recurrent_layers_quantized__again_where_it_takes_off_a_sixth),
        TEST(test_plan__router__half_the_bytes_where_they_hold_its_values),
        TEST(test_plan__rules__before_the_built_in_ones),
        TEST(test_plan__half_precision_for_everything__not_for_vectors),
        TEST(test_plan__pattern_fits_some_experts_only__refused),
        TEST(test_settle__text__leads_to_the_same_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
