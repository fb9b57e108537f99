/* Models most of whose layers are gated DeltaNet: their keys, and the order of heads.
 *
 * A layer has groups of one key head (and one query head) and several value heads. Qwen3-Next keeps
 * the projections of a group together; GGUF files have all queries, all keys, all values, and the
 * values' gates in a matrix of their own. Qwen3.5 has them so already, but in its GGUF files value
 * heads come first of each group, second of each, and so on, so that a reader can repeat the keys
 * as a whole; that goes for everything that has a row, a column or a value for each value head.
 *
 * Source: llama.cpp's converter (conversion/qwen.py), whose output tests compare. */
#include <inttypes.h>

#include "base/limits.h"
#include "formats/hf_internal.h"

#define RUNS_MAX 3
#define SECTIONS 4 /* of RoPE: time, height, width, and one more */
#define TAPS_MAX 64
#define KIND_MAX 32 /* bytes of a message's part */

/* ---- keys ------------------------------------------------------------------------------------ */

static sluice_err fail(const struct sl_hf_object *o, sluice_err code, const char *member,
                       const char *wanted)
{
    return sl_hf_fail(o->hf, o->file, o->e, code, "'%s': wanted %s", member, wanted);
}

static sluice_err add_sizes(struct sl_hf *hf, const struct sl_hf_object *config)
{
    static const struct {
        const char *member, *suffix;
        uint32_t fallback, max;
    } sizes[] = {
        {"linear_conv_kernel_dim", "ssm.conv_kernel", 4, TAPS_MAX},
        {"linear_key_head_dim", "ssm.state_size", 128, SL_HEAD_DIM_MAX},
        {"linear_num_key_heads", "ssm.group_count", 16, SL_HEADS_MAX},
        {"linear_num_value_heads", "ssm.time_step_rank", 32, SL_HEADS_MAX},
    };
    uint32_t value_dim = 128;

    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
        uint32_t v = sizes[i].fallback;

        SL_HF_TRY(sl_hf_u32(config, sizes[i].member, &v));
        if (v == 0 || v > sizes[i].max)
            return sl_hf_fail(hf, config->file, config->e, SLUICE_E_LIMIT,
                              "'%s' is %" PRIu32 ", wanted 1 to %" PRIu32, sizes[i].member, v,
                              sizes[i].max);
        SL_HF_TRY(sl_hf_add_u32(hf, sizes[i].suffix, v, config->e));
    }
    uint32_t heads = sl_hf_arch_u32(hf, "ssm.time_step_rank", 1);
    SL_HF_TRY(sl_hf_u32(config, "linear_value_head_dim", &value_dim));
    if (value_dim != sl_hf_arch_u32(hf, "ssm.state_size", 0))
        return fail(config, SLUICE_E_UNSUPPORTED, "linear_value_head_dim",
                    "what linear_key_head_dim is: GGUF files have one size for both");
    if (heads % sl_hf_arch_u32(hf, "ssm.group_count", 1) != 0)
        return fail(config, SLUICE_E_FORMAT, "linear_num_value_heads",
                    "a multiple of linear_num_key_heads");
    return sl_hf_add_u32(hf, "ssm.inner_size", heads * value_dim, config->e);
}

/* Where transformers wrote the config, layer_types says what full_attention_interval said. */
static sluice_err add_interval(struct sl_hf *hf, const struct sl_hf_object *config)
{
    struct sl_json_value types = sl_json_get(config->value, "layer_types");
    uint32_t n_layers = sl_hf_arch_u32(hf, "block_count", 0), interval = 0, i = 0;
    struct sl_str type = {"", 0};

    SL_HF_TRY(sl_hf_u32(config, "full_attention_interval", &interval));
    for (struct sl_json_walk w = sl_json_walk(types); interval == 0 && sl_json_step(&w);) {
        i++;
        if (sl_json_str(w.value, &type) && sl_str_eq(type, "full_attention")) interval = i;
    }
    if (interval == 0) interval = 4;
    i = 0;
    for (struct sl_json_walk w = sl_json_walk(types); sl_json_step(&w);) {
        const char *wanted = ++i % interval == 0 ? "full_attention" : "linear_attention";

        if (!sl_json_str(w.value, &type) || !sl_str_eq(type, wanted))
            return fail(config, SLUICE_E_UNSUPPORTED, "layer_types",
                        "linear_attention, and full_attention in equal steps");
    }
    if (sl_hf_has(config, "layer_types") && i != n_layers)
        return fail(config, SLUICE_E_FORMAT, "layer_types", "a kind for each layer");
    return sl_hf_add_u32(hf, "full_attention_interval", interval, config->e);
}

/* Which frequencies turn with time, height and width of a picture; all with time where there is
 * only text. */
static sluice_err add_sections(struct sl_hf *hf, const struct sl_hf_object *rope)
{
    struct sl_json_value list = sl_json_get(rope->value, "mrope_section");
    struct sl_json_walk w = sl_json_walk(list);
    uint32_t n = sl_json_count(list);
    int32_t *v = sl_arena_alloc(&hf->arena, SECTIONS, sizeof *v);
    uint64_t u = 0;

    if (v == NULL) return sl_hf_no_memory(hf, SECTIONS * sizeof *v, rope->e);
    for (uint32_t i = 0; i < SECTIONS; i++) v[i] = i < 2 ? 11 : i < 3 ? 10 : 0;
    if (sl_hf_has(rope, "mrope_section")) {
        bool list_of_three = n >= 3 && n <= SECTIONS;

        for (uint32_t i = 0; i < SECTIONS; i++) {
            bool there = sl_json_step(&w);

            list_of_three =
                list_of_three && (!there || (sl_json_u64(w.value, &u) && u <= SL_HEAD_DIM_MAX));
            v[i] = there && list_of_three ? (int32_t)u : 0;
        }
        if (!list_of_three)
            return fail(rope, SLUICE_E_FORMAT, "mrope_section", "three or four numbers");
    }
    return sl_hf_add_list(hf, "rope.dimension_sections", (struct sl_hf_list){v, SECTIONS}, rope->e);
}

static sluice_err add_rotary(struct sl_hf *hf, const struct sl_hf_object *config,
                             const struct sl_hf_object *rope)
{
    uint32_t head = sl_hf_arch_u32(hf, "attention.key_length", 0);
    double part = 0.25;

    SL_HF_TRY(sl_hf_f64(config, "partial_rotary_factor", &part));
    SL_HF_TRY(sl_hf_f64(rope, "partial_rotary_factor", &part));
    if (!(part > 0.0 && part <= 1.0) || head == 0 || head > SL_HEAD_DIM_MAX)
        return fail(config, SLUICE_E_FORMAT, "partial_rotary_factor", "above 0, and at most 1");
    SL_HF_TRY(sl_hf_add_u32(hf, "rope.dimension_count", (uint32_t)(head * part), config->e));
    return hf->family->mrope ? add_sections(hf, rope) : SLUICE_OK;
}

sluice_err sl_hf_deltanet_keys(struct sl_hf *hf, const struct sl_hf_object *config,
                               const struct sl_hf_object *rope)
{
    bool gated = true;

    SL_HF_TRY(sl_hf_bool(config, "attn_output_gate", &gated));
    if (!gated)
        return fail(config, SLUICE_E_UNSUPPORTED, "attn_output_gate",
                    "true: attention without a gate is not computed in these models");
    SL_HF_TRY(add_sizes(hf, config));
    SL_HF_TRY(add_interval(hf, config));
    return add_rotary(hf, config, rope);
}

/* ---- order of heads -------------------------------------------------------------------------- */

struct sizes {
    uint64_t groups, per_group, dim; /* a group has per_group value heads */
    uint64_t keys, values;           /* rows of all */
};

static struct sizes read_sizes(const struct sl_hf *hf)
{
    struct sizes s = {.groups = sl_hf_arch_u32(hf, "ssm.group_count", 1),
                      .dim = sl_hf_arch_u32(hf, "ssm.state_size", 1)};

    s.per_group = sl_hf_arch_u32(hf, "ssm.time_step_rank", 1) / s.groups;
    s.keys = s.groups * s.dim;
    s.values = s.keys * s.per_group;
    return s;
}

/* Rows that stay where they are. */
static struct sl_hf_run as_they_lie(uint64_t rows)
{
    return (struct sl_hf_run){.rows = rows, .piece = rows, .inner = 1};
}

/* A part of each group's rows, group after group. */
static struct sl_hf_run of_groups(const struct sizes *s, uint64_t piece, uint64_t first)
{
    return (struct sl_hf_run){.rows = s->groups * piece,
                              .piece = piece,
                              .first = first,
                              .inner = s->groups,
                              .step_inner = 2 * (1 + s->per_group) * s->dim};
}

/* Value heads of so many rows: the first of each group, the second of each, and so on. */
static struct sl_hf_run of_heads(const struct sizes *s, uint64_t piece, uint64_t first)
{
    return (struct sl_hf_run){.rows = s->groups * s->per_group * piece,
                              .piece = piece,
                              .first = first,
                              .inner = s->groups,
                              .step_inner = s->per_group * piece,
                              .step_outer = piece};
}

/* Fills runs; *rows: those of the source. Returns how many. */
static uint32_t make_runs(const struct sizes *s, enum sl_hf_heads heads,
                          struct sl_hf_run runs[RUNS_MAX], uint64_t *rows)
{
    switch (heads) {
    case SL_HF_JOINT_QKV:
        *rows = 2 * (s->keys + s->values);
        runs[0] = of_groups(s, s->dim, 0);
        runs[1] = of_groups(s, s->dim, s->dim);
        runs[2] = of_groups(s, s->per_group * s->dim, 2 * s->dim);
        return 3;
    case SL_HF_JOINT_GATE:
        *rows = 2 * (s->keys + s->values);
        runs[0] = of_groups(s, s->per_group * s->dim, (2 + s->per_group) * s->dim);
        return 1;
    case SL_HF_HEADS_QKV:
        *rows = 2 * s->keys + s->values;
        runs[0] = as_they_lie(2 * s->keys);
        runs[1] = of_heads(s, s->dim, 2 * s->keys);
        return 2;
    case SL_HF_HEADS_ROWS:
        *rows = s->values;
        runs[0] = of_heads(s, s->dim, 0);
        return 1;
    default:
        *rows = s->groups * s->per_group;
        runs[0] = of_heads(s, 1, 0);
        return 1;
    }
}

/* Columns, and the elements of a vector. */
static sluice_err order_columns(const struct sl_hf *hf, const struct sl_st_tensor *src,
                                uint64_t wanted, struct sl_hf_tensor *t, sluice_error *e)
{
    const struct sizes s = read_sizes(hf);

    if (t->dims[0] != wanted || t->n_dims > 2)
        return sl_hf_fail_tensor(hf, src->name, e, SLUICE_E_FORMAT,
                                 "does not divide into the heads of config.json");
    if (hf->family->tiled && s.per_group > 1) {
        t->source.groups = (uint32_t)s.groups;
        t->source.per_group = (uint32_t)s.per_group;
    }
    return SLUICE_OK;
}

sluice_err sl_hf_order_heads(struct sl_hf *hf, enum sl_hf_heads heads, const struct sl_st_tensor *s,
                             struct sl_hf_tensor *t, sluice_error *e)
{
    const struct sizes sizes = read_sizes(hf);
    bool joint = heads == SL_HF_JOINT_QKV || heads == SL_HF_JOINT_GATE;
    struct sl_hf_run *runs;
    uint64_t rows = 0;

    if (heads == SL_HF_HEADS_COLS) return order_columns(hf, s, sizes.values, t, e);
    if (t->n_dims == 1) return order_columns(hf, s, sizes.groups * sizes.per_group, t, e);
    if (t->n_dims == 3 && t->dims[1] == 1) { /* of a convolution: a filter a channel */
        t->n_dims = 2;
        t->dims[1] = t->dims[2];
        t->dims[2] = 1;
    }
    runs = sl_arena_alloc(&hf->arena, RUNS_MAX, sizeof *runs);
    if (runs == NULL) return sl_hf_no_memory(hf, RUNS_MAX * sizeof *runs, e);
    uint32_t n = make_runs(&sizes, heads, runs, &rows);
    if (t->n_dims != 2 || t->dims[1] != rows)
        return sl_hf_fail_tensor(hf, s->name, e, SLUICE_E_FORMAT,
                                 "does not divide into the heads of config.json");
    if (!joint && !hf->family->tiled) return SLUICE_OK;
    t->source.runs = runs;
    t->source.n_runs = n;
    for (t->dims[1] = 0; n-- > 0;) t->dims[1] += runs[n].rows;
    return SLUICE_OK;
}
