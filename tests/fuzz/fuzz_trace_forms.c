/* Fuzzes the readers of all forms of traces: any bytes as a file. What is accepted keeps to the
 * rules that everybody else relies on, can be written in every form, and comes back the same from
 * those that keep everything. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trace/forms.h"
#include "trace/study.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())
#define BUDGET_BYTES (256u << 20)
#define INPUT_MAX 65536
#define STUDIED_MAX 2000 /* choices: a curve of more takes too long here */

static int new_memfd(const void *bytes, size_t n, char path[64])
{
    int fd = memfd_create("sluice_fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(n == 0 || write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static sluice_err to_fd(void *user, const void *bytes, uint64_t n, sluice_error *e)
{
    (void)e;
    CHECK(write(*(int *)user, bytes, n) == (ssize_t)n);
    return SLUICE_OK;
}

static void check_visits(const struct sl_trace *t)
{
    uint64_t visits = 0, steps = 0, reads = 0;
    for (uint64_t i = 0; i < t->n_evals; i++) {
        const struct sl_trace_eval_span *s = &t->evals[i];
        CHECK(s->first_visit == visits && s->n_visits <= t->header.n_layers);
        CHECK(s->e.n_tokens >= 1 && s->e.n_tokens <= SL_CHUNK_MAX);
        for (uint64_t v = visits; v < visits + s->n_visits; v++) {
            const struct sl_trace_visit *x = &t->visits[v];
            CHECK(x->eval == i && x->layer < t->header.n_layers && x->n_tokens == s->e.n_tokens);
            CHECK(x->first_choice + (uint64_t)x->n_tokens * x->top_k <= t->n_choices);
            CHECK(x->first_entry + x->n_entries <= t->n_entries);
            CHECK(x->first_step == steps && x->first_read == reads);
            for (uint32_t k = 0; k < x->n_tokens * x->top_k; k++) {
                uint32_t expert = t->chosen[x->first_choice + k];
                CHECK(expert == SL_TRACE_NONE || expert < t->header.layer[x->layer].n_experts);
            }
            steps += x->n_steps;
            reads += x->n_reads;
        }
        visits += s->n_visits;
    }
    CHECK(visits == t->n_visits && t->n_tokens + (uint64_t)t->n_prompt > 0);
    CHECK(steps + t->n_steps_after == t->n_steps && reads + t->n_reads_after == t->n_reads);
}

/* Writes the form, and loads it again. */
static void check_form(const struct sl_trace *t, enum sl_trace_form form, struct sl_budget *b)
{
    char path[64];
    sluice_error e;
    struct sl_trace *again = NULL;
    int fd = new_memfd("", 0, path);
    struct sl_trace_sink sink = {to_fd, &fd, false};
    bool keeps_all = form <= SL_TRACE_FORM_JSONL;
    sluice_err code = form == SL_TRACE_FORM_TRACE ? sl_trace_write_file(t, path, b, &e)
                                                  : sl_trace_write_form(t, form, &sink, b, &e);
    CHECK(code == SLUICE_OK || code == SLUICE_E_BUDGET);
    if (code == SLUICE_OK) code = sl_trace_load(path, NULL, NULL, b, &e, &again);
    if (code == SLUICE_OK && keeps_all) {
        CHECK(again->n_tokens == t->n_tokens && again->n_visits == t->n_visits);
        CHECK(again->n_choices == t->n_choices && again->n_steps == t->n_steps);
        CHECK(again->n_reads == t->n_reads && again->n_hints == t->n_hints);
        CHECK(!memcmp(again->chosen, t->chosen, t->n_choices * sizeof *t->chosen));
        CHECK(!t->weights || !memcmp(again->weights, t->weights, t->n_choices * sizeof(float)));
        CHECK(!t->states || !memcmp(again->states, t->states, t->n_choices));
    }
    CHECK(code == SLUICE_OK || code == SLUICE_E_BUDGET || !keeps_all);
    sl_trace_free(again);
    close(fd);
}

static void check_studies(const struct sl_trace *t, struct sl_budget *b)
{
    sluice_error e;
    struct sl_reuse reuse;
    struct sl_curve curve;
    struct sl_predict_study studies[SL_PREDICTORS];
    for (int k = 0; k < 6; k++) {
        struct sl_curve_config c = {.policy = (enum sl_stack_policy)(k % 3),
                                    .pool = (enum sl_replay_pool)(k / 3)};
        if (sl_curve_stack(t, &c, b, &e, &curve) == SLUICE_OK)
            CHECK(curve.hits[curve.n_max] + curve.cold == curve.uses);
        sl_curve_free(&curve);
    }
    for (uint32_t k = 0; k < SL_PREDICTORS; k++)
        studies[k] =
            (struct sl_predict_study){.kind = (enum sl_predictor_kind)k, .ahead = 1, .budget = 2};
    CHECK(sl_predict_studies(t, studies, SL_PREDICTORS, b, &e) != SLUICE_E_FORMAT);
    CHECK(sl_reuse(t, b, &e, &reuse) != SLUICE_E_FORMAT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_budget budget;
    struct sl_trace *t = NULL;
    sluice_error e = {.code = 0};
    char path[64];
    if (size > INPUT_MAX) return 0;
    sl_budget_init(&budget, BUDGET_BYTES);
    int fd = new_memfd(data, size, path);
    if (sl_trace_load(path, NULL, NULL, &budget, &e, &t) == SLUICE_OK) {
        check_visits(t);
        for (unsigned form = 0; form < SL_TRACE_FORMS && t->n_choices <= STUDIED_MAX; form++)
            check_form(t, (enum sl_trace_form)form, &budget);
        if (t->n_choices <= STUDIED_MAX) check_studies(t, &budget);
    } else {
        CHECK(t == NULL && e.text[0] && !strchr(e.text, '\n'));
    }
    sl_trace_free(t);
    CHECK(sl_budget_used(&budget) == 0);
    close(fd);
    return 0;
}
