/* A small Mixture-of-Experts model with a fault wrapper between it and its files, for the tests of
 * what happens when reads fail. Everything is reached through the public API but the wrapper, which
 * goes in by the internal hook of opening. */
#ifndef SL_TEST_STREAM_RIG_H
#define SL_TEST_STREAM_RIG_H

#include "tests/support/stream_case.h"

#include <unistd.h>

#include "engine/api.h"
#include "io/io_backend.h" /* the budget behind a backend */
#include "io/io_fault.h"

#define RIG_SECONDS_MAX 120 /* one step that takes longer hangs */

static const struct sl_io_fault_plan rig_no_fault = {SL_IO_FAULT_NONE, 0, 1, 1, 0, 0, 0};

struct rig {
    /* Before opening. */
    const char *path;
    struct stream_setup setup;
    struct sl_io_fault_plan at_open; /* from the first read of opening on */
    const char *hot_list;            /* NULL: none */
    const char *trace;               /* NULL: none */
    int64_t fail_after;              /* charges from then on until one fails; -1: none does */
    /* After it. */
    sluice_model *model;
    sluice_session *session;
    struct sl_io *wrapper;
    struct stream_text text;
    uint64_t used; /* bytes charged after the first clean reading */
    float *right, *got;
};

static inline sluice_err rig_wrap(void *user, struct sl_io *io, sluice_error *e, struct sl_io **out)
{
    struct rig *g = user;
    struct sl_budget *b = io->budget;
    sluice_err err = sl_io_fault_open(io, &g->at_open, e, out);

    if (err != SLUICE_OK) {
        sl_io_close(io);
        return err;
    }
    g->wrapper = *out;
    b->fail_after = g->fail_after;
    return SLUICE_OK;
}

/* The text of every test here: short, so that a loop over all its reads is. */
static inline void rig_set_text(struct rig *g, size_t n)
{
    assert_in_range(n, 1, STREAM_IDS_MAX);
    for (size_t i = 0; i < n; i++) g->text.ids[i] = (int32_t)((i * 73 + 5) % 500);
    g->text.n = n;
}

static inline sluice_err rig_try_open(struct rig *g, sluice_error *e)
{
    sluice_options o = stream_options(&g->setup);
    const struct api_hook hook = {rig_wrap, g};

    o.hot_list = g->hot_list;
    o.trace = g->trace;
    g->wrapper = NULL;
    sluice_err err = api_model_open(g->path, &o, &hook, &g->model, e);
    if (err != SLUICE_OK) return err;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_model_get_info(g->model, &info);
    g->text.n_vocab = info.n_vocab;
    return SLUICE_OK;
}

/* False where the system does not grant the backend. */
static inline bool rig_open(struct rig *g)
{
    sluice_error e;

    g->at_open = rig_no_fault;
    g->fail_after = -1;
    sluice_err err = rig_try_open(g, &e);
    if (err == SLUICE_E_UNSUPPORTED && g->setup.io == SLUICE_IO_URING) {
        print_message("without io_uring: %s\n", e.text);
        return false;
    }
    if (err != SLUICE_OK) fail_msg("%s: %s", sluice_err_name(err), e.text);
    if (sluice_session_open(g->model, &g->session, &e) != SLUICE_OK) fail_msg("%s", e.text);
    g->got = stream_room(&g->text);
    return true;
}

static inline uint64_t rig_used(const struct rig *g) { return sl_budget_used(&g->model->budget); }

static inline void rig_close(struct rig *g)
{
    sluice_session_close(g->session);
    sluice_model_close(g->model);
    free(g->got);
    g->session = NULL;
    g->model = NULL;
    g->got = NULL;
}

/* The logits without streaming and without faults. Owner: the caller, free(). */
static inline float *rig_reference(const struct rig *g)
{
    struct rig plain = *g;

    plain.setup = (struct stream_setup)STREAM_PLAIN;
    plain.hot_list = NULL;
    assert_true(rig_open(&plain));
    sluice_error e;
    if (stream_read(plain.session, &plain.text, plain.got, &e) != SLUICE_OK) fail_msg("%s", e.text);
    float *right = plain.got;
    plain.got = NULL;
    rig_close(&plain);
    return right;
}

/* A new plan, counted from now. An evaluation leaves no read under way, since the next one may come
 * from another thread. */
static inline void rig_set(struct rig *g, const struct sl_io_fault_plan *plan)
{
    assert_int_equal(sl_io_outstanding(g->wrapper), 0);
    sl_io_fault_set(g->wrapper, plan);
    alarm(RIG_SECONDS_MAX);
}

static inline sluice_err rig_read(struct rig *g, sluice_error *e)
{
    memset(g->got, 0xA5, g->text.n * stream_row_bytes(&g->text));
    memset(e, 0, sizeof *e);
    return stream_read(g->session, &g->text, g->got, e);
}

/* The text without faults, which must succeed and be right. */
static inline void rig_read_right(struct rig *g)
{
    sluice_error e;
    size_t row = 0;

    rig_set(g, &rig_no_fault);
    sluice_err err = rig_read(g, &e);
    if (err != SLUICE_OK) fail_msg("without a fault: %s: %s", sluice_err_name(err), e.text);
    if (!stream_equal(&g->text, g->got, g->right, &row))
        fail_msg("without a fault: other logits from token %zu on", row);
}

#endif
