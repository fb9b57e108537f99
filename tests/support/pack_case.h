/* What the tests of packing share: a folder to write in, small models as GGUF files whose weights
 * look like a model's, and packing one. */
#ifndef SL_TEST_PACK_CASE_H
#define SL_TEST_PACK_CASE_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE first: mkdtemp"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/container_write.h"
#include "formats/half.h"
#include "pack/pack_run.h"
#include "tests/support/gguf_build.h"

#define PC_PATH_BYTES 512

static struct sl_budget budget;
static sluice_error error;
static char pc_folder[PC_PATH_BYTES];

static inline int pc_set_up(void **state)
{
    (void)state;
    sl_budget_init(&budget, UINT64_MAX);
    memset(&error, 0, sizeof error);
    snprintf(pc_folder, sizeof pc_folder, "/tmp/sluice_test_pack_XXXXXX");
    return mkdtemp(pc_folder) == NULL;
}

static inline int pc_tear_down(void **state)
{
    char path[2 * PC_PATH_BYTES];
    struct dirent *entry;
    DIR *d = opendir(pc_folder);

    (void)state;
    while (d != NULL && (entry = readdir(d)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", pc_folder, entry->d_name);
        unlink(path);
    }
    if (d != NULL) closedir(d);
    assert_int_equal(sl_budget_used(&budget), 0);
    return rmdir(pc_folder);
}

/* NAME in the folder; the last four asked for stay valid. */
static inline const char *pc_path(const char *name)
{
    static char paths[4][2 * PC_PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", pc_folder, name);
    return path;
}

/* ---- a model --------------------------------------------------------------------------------- */

struct pc_tensor {
    const char *name;
    uint64_t dims[3]; /* unused ones are 1 */
    uint32_t n_dims;
};

/* Two layers of four experts with 64 columns, widths of 40 and 96; some of everything else. */
static const struct pc_tensor pc_stacked[] = {
    {"token_embd.weight", {64, 80, 1}, 2},
    {"blk.0.attn_norm.weight", {64, 1, 1}, 1},
    {"blk.0.attn_q.weight", {64, 50, 1}, 2},
    {"blk.0.attn_output.weight", {48, 64, 1}, 2}, /* rows of no whole blocks */
    {"blk.0.ffn_gate_inp.weight", {64, 4, 1}, 2},
    {"blk.1.ssm_conv1d.weight", {4, 64, 1}, 2},
    {"blk.0.ffn_up_exps.weight", {64, 96, 4}, 3},
    {"blk.0.ffn_down_exps.weight", {96, 64, 4}, 3},
    {"blk.0.ffn_gate_exps.weight", {64, 96, 4}, 3},
    {"blk.1.ffn_down_exps.weight", {96, 64, 4}, 3},
    {"blk.1.ffn_gate_exps.weight", {64, 96, 4}, 3},
    {"blk.1.ffn_up_exps.weight", {64, 96, 4}, 3},
    {"output.weight", {64, 80, 1}, 2},
};
#define PC_STACKED (sizeof pc_stacked / sizeof pc_stacked[0])

/* A bell curve by a sum of four, the same for the same seed. */
static inline float pc_random(uint32_t *seed)
{
    float sum = 0;

    for (int i = 0; i < 4; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        sum += (float)(*seed >> 8) * 0x1p-24f - 0.5f;
    }
    return sum * 0.05f;
}

static inline uint64_t pc_elements(const struct pc_tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2];
}

/* A GGUF of float32 tensors; the value of element k of tensor i is a function of i and k. */
static inline void pc_build(struct gguf_build *b, const struct pc_tensor *t, size_t n)
{
    static const char *const tokens[] = {"a", "b", "c"};
    uint64_t offset = 0;

    gb_begin(b, 3);
    gb_kv_str(b, "general.architecture", "qwen3moe");
    gb_kv_strs(b, "tokenizer.ggml.tokens", tokens, 3);
    for (size_t i = 0; i < n; i++) {
        gb_tensor_dims(b, t[i].name, SL_TYPE_F32, offset, t[i].dims, t[i].n_dims);
        offset += (4 * pc_elements(&t[i]) + 31) / 32 * 32;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t seed = 77 + (uint32_t)i;

        gb_pad(b, 32);
        for (uint64_t k = 0; k < pc_elements(&t[i]); k++) gb_f32(b, pc_random(&seed));
    }
}

static inline void pc_write_model(const char *name, const struct pc_tensor *t, size_t n)
{
    struct gguf_build b;

    pc_build(&b, t, n);
    assert_true(gb_write(&b, pc_path(name)));
    gb_end(&b);
}

static inline struct sl_source *pc_open(const char *path)
{
    struct sl_source *s = NULL;

    if (sl_source_open(path, &budget, &error, &s) != SLUICE_OK) fail_msg("%s", error.text);
    return s;
}

/* All values of a tensor; to be freed. */
static inline float *pc_values(const struct sl_source *s, uint32_t index)
{
    const struct sl_source_tensor *t = sl_source_tensor(s, index);
    float *out = malloc(t->rows * t->cols * sizeof *out);
    void *stage = malloc(sl_source_stage_bytes(t, t->rows) + 1);

    assert_true(out != NULL && stage != NULL);
    if (sl_source_rows(s, (struct sl_source_span){index, 0, t->rows}, stage, out, &error) !=
        SLUICE_OK)
        fail_msg("%s", error.text);
    free(stage);
    return out;
}

static inline uint32_t pc_find(const struct sl_source *s, const char *name)
{
    uint32_t i = sl_source_find(s, (struct sl_str){name, strlen(name)});

    if (i == UINT32_MAX) fail_msg("there is no tensor %s", name);
    return i;
}

/* ---- packing --------------------------------------------------------------------------------- */

struct pc_job {
    const char *from, *to; /* names in the folder */
    uint32_t bits;
    const char *recipe; /* text; NULL */
    const struct sl_column_stats *stats;
    uint32_t threads;
    sl_pack_progress_fn *progress;
    struct sl_resume_limit *limit;
    struct sl_pack_cost *costs; /* NULL */
};

static inline sluice_err pc_write(const struct pc_job *j, const struct sl_pack_plan *plan,
                                  uint64_t source)
{
    struct sl_container_plan to = {.meta = sl_source_meta(plan->source),
                                   .recipe = {plan->recipe, plan->recipe_bytes},
                                   .source = source,
                                   .tensors = plan->tensors,
                                   .n_tensors = sl_source_n_tensors(plan->source),
                                   .sync_bytes = 1, /* after each record */
                                   .limit = j->limit};
    struct sl_pack_job job = {.plan = plan, .budget = &budget, .progress = j->progress};
    struct sl_pack_cost *costs = calloc(plan->n_classes, sizeof *costs);
    struct sl_container_writer *w = NULL;

    sluice_err err = sl_pool_open(&budget, j->threads ? j->threads : 1, NULL, &job.pool);
    if (err == SLUICE_OK) err = sl_container_write_open(pc_path(j->to), &to, &budget, &error, &w);
    if (err == SLUICE_OK) err = sl_pack_run(&job, w, j->costs ? j->costs : costs, &error);
    if (err == SLUICE_OK) err = sl_container_write_commit(w, &error);
    sl_container_write_close(w);
    if (job.pool != NULL) sl_pool_close(job.pool);
    free(costs);
    return err;
}

static inline sluice_err pc_pack(const struct pc_job *j)
{
    struct sl_source *s = NULL;
    struct sl_recipe *recipe = NULL;
    struct sl_pack_plan plan = {0};
    uint64_t sum = 0;
    sluice_err err = sl_source_open(pc_path(j->from), &budget, &error, &s);

    if (err == SLUICE_OK) err = sl_source_sum(s, &error, &sum);
    if (err == SLUICE_OK && j->recipe != NULL)
        err = sl_recipe_parse((struct sl_str){j->recipe, strlen(j->recipe)}, "recipe", &budget,
                              &error, &recipe);
    struct sl_pack_request request = {
        .bits = j->bits, .recipe = recipe, .stats = j->stats, .creator = "test"};
    if (err == SLUICE_OK) err = sl_pack_plan_make(s, &request, &budget, &error, &plan);
    if (err == SLUICE_OK) err = sl_pack_plan_settle(&plan, &request, &error);
    if (err == SLUICE_OK) err = pc_write(j, &plan, sum);
    if (plan.budget != NULL) sl_pack_plan_deinit(&plan);
    sl_recipe_close(recipe);
    sl_source_close(s);
    return err;
}

static inline void pc_pack_ok(const struct pc_job *j)
{
    if (pc_pack(j) != SLUICE_OK) fail_msg("%s", error.text);
}

/* A whole file; to be freed. */
static inline unsigned char *pc_read(const char *name, size_t *n)
{
    FILE *f = fopen(pc_path(name), "rb");

    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *p = malloc(*n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

static inline void pc_assert_same_files(const char *a, const char *b)
{
    size_t n, m;
    unsigned char *p = pc_read(a, &n), *q = pc_read(b, &m);

    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
    free(p);
    free(q);
}

static inline void pc_assert_error(sluice_err found, sluice_err wanted, const char *part)
{
    if (found != wanted) fail_msg("%s, wanted '%s': %s", sl_err_name(found), part, error.text);
    if (strstr(error.text, part) == NULL) fail_msg("'%s' lacks '%s'", error.text, part);
}

#endif
