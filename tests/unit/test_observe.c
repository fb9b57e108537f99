/* sluice_session_observe: results are the same to the bit with an observer, each matrix sees each
 * of its tokens once, and what is seen does not depend on chunks, threads or streaming. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/sluice.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define N_TOKENS 30
#define SEEN_MAX 4096

static const char *const models[] = {
    GOLDEN "qwen3moe-Q8_0/model.gguf", GOLDEN "qwen2moe-Q8_0/model.gguf",
    GOLDEN "olmoe-Q8_0/model.gguf",    GOLDEN "granitemoe-shared-Q8_0/model.gguf",
    GOLDEN "mixtral-Q8_0/model.gguf",  GOLDEN "llama-F32-features/model.gguf",
    GOLDEN "llama-Q8_0/model.gguf",    GOLDEN "qwen3moe-MXFP4-features/model.gguf",
};

/* One matrix of a tensor: how many inputs, and a sum that depends on their bits, not their order.
 */
struct seen {
    char tensor[64], same_as[64];
    uint32_t matrix, n_matrices, cols;
    uint64_t inputs, sum;
};

struct watch {
    struct seen *seen; /* [SEEN_MAX] */
    size_t n;
    sluice_session *cancel; /* after so many calls */
    size_t calls_left;
};

static uint64_t bits_of(const float *x, uint32_t n)
{
    uint64_t h = 1469598103934665603u;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h ^ (h >> 29);
}

static struct seen *find(struct watch *w, const char *tensor, uint32_t matrix)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->seen[i].matrix == matrix && strcmp(w->seen[i].tensor, tensor) == 0)
            return &w->seen[i];
    return NULL;
}

static void watch(void *user, const sluice_input *in)
{
    struct watch *w = user;
    assert_int_equal(in->struct_size, sizeof *in);
    assert_true(in->n > 0 && in->cols > 0 && in->matrix < in->n_matrices);
    struct seen *s = find(w, in->tensor, in->matrix);
    if (!s) {
        assert_true(w->n < SEEN_MAX);
        s = &w->seen[w->n++];
        strncpy(s->tensor, in->tensor, sizeof s->tensor - 1);
        strncpy(s->same_as, in->same_as ? in->same_as : "", sizeof s->same_as - 1);
        s->matrix = in->matrix;
        s->n_matrices = in->n_matrices;
        s->cols = in->cols;
    }
    assert_true(s->n_matrices == in->n_matrices && s->cols == in->cols);
    assert_string_equal(s->same_as, in->same_as ? in->same_as : "");
    s->inputs += in->n;
    for (uint32_t i = 0; i < in->n; i++) s->sum += bits_of(in->x + (size_t)i * in->cols, in->cols);
    if (w->cancel && w->calls_left-- == 0) sluice_session_cancel(w->cancel, 1);
}

struct run {
    uint32_t threads, chunk, slots;
    int observed, logits;
};

static int by_name(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    int order = strcmp(x->tensor, y->tensor);
    return order ? order : (x->matrix > y->matrix) - (x->matrix < y->matrix);
}

/* Evaluates; returns logits [N_TOKENS][n_vocab], or NULL. */
static float *run(const char *path, struct run r, struct watch *w, sluice_model_info *info)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    o.threads = r.threads;
    o.chunk = r.chunk;
    o.slots = r.slots;
    sluice_error e;
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    int32_t ids[N_TOKENS];
    if (sluice_model_open(path, &o, &m, &e) != SLUICE_OK) fail_msg("%s: %s", path, e.text);
    assert_int_equal(sluice_session_open(m, &s, &e), SLUICE_OK);
    sluice_model_get_info(m, info);
    float *logits = r.logits ? calloc((size_t)N_TOKENS * info->n_vocab, sizeof *logits) : NULL;
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (i * 37 + 5) % (int32_t)info->n_vocab;
    w->n = 0;
    memset(w->seen, 0, SEEN_MAX * sizeof *w->seen);
    if (r.observed) sluice_session_observe(s, watch, w);
    if (sluice_session_eval(s, ids, N_TOKENS, logits, &e) != SLUICE_OK) fail_msg("%s", e.text);
    sluice_session_close(s);
    sluice_model_close(m);
    qsort(w->seen, w->n, sizeof *w->seen, by_name);
    return logits;
}

/* Every tensor of the file that is a weight matrix; those of experts that are a tensor each under
 * the name of the stack. */
static void assert_complete(const char *path, struct watch *w, const sluice_model_info *info)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_tensor t = SLUICE_TENSOR_INIT;
    sluice_model *m;
    o.flags = SLUICE_OPEN_HEADER;
    assert_int_equal(sluice_model_open(path, &o, &m, NULL), SLUICE_OK);
    int tied = 1;
    for (uint32_t i = 0; sluice_model_get_tensor(m, i, &t); i++)
        tied &= strcmp(t.name, "output.weight") != 0;
    for (uint32_t i = 0; sluice_model_get_tensor(m, i, &t); i++) {
        int is_matrix = t.n_dims > 1 && strstr(t.name, ".weight") && !strstr(t.name, "norm");
        if (strcmp(t.name, "token_embd.weight") == 0) is_matrix = tied;
        if (!is_matrix) continue;
        uint64_t inputs = 0;
        for (size_t k = 0; k < w->n; k++) {
            if (strcmp(w->seen[k].tensor, t.name) != 0) continue;
            inputs += w->seen[k].inputs;
            assert_int_equal(w->seen[k].cols, t.dims[0]);
            assert_int_equal(w->seen[k].n_matrices, t.dims[2]);
        }
        uint64_t wanted = (uint64_t)N_TOKENS * (strstr(t.name, "_exps.") ? info->top_k : 1);
        if (inputs != wanted)
            fail_msg("%s: %s: %llu inputs", path, t.name, (unsigned long long)inputs);
    }
    sluice_model_close(m);
}

/* What is said to be shown the same is. */
static void assert_same_as(struct watch *w)
{
    for (size_t i = 0; i < w->n; i++) {
        if (!w->seen[i].same_as[0]) continue;
        struct seen *other = find(w, w->seen[i].same_as, w->seen[i].matrix);
        assert_non_null(other);
        assert_true(other->same_as[0] == 0 && other->cols == w->seen[i].cols);
        assert_true(other->inputs == w->seen[i].inputs && other->sum == w->seen[i].sum);
    }
}

static struct watch new_watch(void)
{
    return (struct watch){.seen = calloc(SEEN_MAX, sizeof(struct seen))};
}

static void test_observe__any_model__same_logits_and_every_matrix(void **state)
{
    (void)state;
    struct watch w = new_watch();
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        sluice_model_info info = SLUICE_MODEL_INFO_INIT;
        float *plain = run(models[i], (struct run){1, 16, 0, 0, 1}, &w, &info);
        assert_int_equal(w.n, 0);
        float *watched = run(models[i], (struct run){1, 16, 0, 1, 1}, &w, &info);
        assert_memory_equal(plain, watched, (size_t)N_TOKENS * info.n_vocab * sizeof *plain);
        assert_complete(models[i], &w, &info);
        assert_same_as(&w);
        free(plain);
        free(watched);
    }
    free(w.seen);
}

static void test_observe__chunks_threads_slots__the_same_is_seen(void **state)
{
    (void)state;
    const struct run runs[] = {{2, 16, 0, 1, 1}, {1, 1, 0, 1, 1},  {2, 7, 0, 1, 0},
                               {1, 64, 0, 1, 0}, {2, 16, 8, 1, 1}, {1, 1, 8, 1, 0}};
    struct watch first = new_watch(), w = new_watch();
    for (size_t i = 0; i < 2; i++) {
        sluice_model_info info = SLUICE_MODEL_INFO_INIT;
        free(run(models[i], (struct run){1, 16, 0, 1, 1}, &first, &info));
        for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
            free(run(models[i], runs[k], &w, &info));
            assert_int_equal(w.n, first.n);
            assert_memory_equal(w.seen, first.seen, w.n * sizeof *w.seen);
        }
    }
    free(first.seen);
    free(w.seen);
}

static void test_observe__cancelled_from_within__cancelled_then_unwatched(void **state)
{
    (void)state;
    struct watch w = new_watch();
    sluice_error e;
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    const int32_t ids[] = {1, 2, 3};
    assert_int_equal(sluice_model_open(models[0], NULL, &m, &e), SLUICE_OK);
    assert_int_equal(sluice_session_open(m, &s, &e), SLUICE_OK);
    w.cancel = s;
    w.calls_left = 2;
    sluice_session_observe(s, watch, &w);
    assert_int_equal(sluice_session_eval(s, ids, 3, NULL, &e), SLUICE_E_CANCELLED);
    for (size_t i = 0; i < w.n; i++) assert_non_null(strstr(w.seen[i].tensor, "blk.0."));
    sluice_session_cancel(s, 0);
    sluice_session_observe(s, NULL, NULL);
    size_t n = w.n;
    assert_int_equal(sluice_session_eval(s, ids, 3, NULL, &e), SLUICE_OK);
    assert_int_equal(w.n, n);
    sluice_session_close(s);
    sluice_model_close(m);
    free(w.seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_observe__any_model__same_logits_and_every_matrix),
        cmocka_unit_test(test_observe__chunks_threads_slots__the_same_is_seen),
        cmocka_unit_test(test_observe__cancelled_from_within__cancelled_then_unwatched),
    };
    return cmocka_run_group_tests_name("observe", tests, NULL, NULL);
}
