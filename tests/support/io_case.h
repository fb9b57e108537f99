/* A file of known bytes and a set of backends to read it with, for the tests of the asynchronous
 * layer. Every backend stands here bare and inside the wrapper with faults that must not show. */
#ifndef SL_TEST_IO_CASE_H
#define SL_TEST_IO_CASE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "io/io.h"
#include "io/io_fault.h"

#define FILE_BYTES ((4u << 20) + 1234) /* ends within a block of any size */
#define PLACES_MAX 512
#define POISON 0xEE

static char folder[64];
static char path[128];
static unsigned char *data; /* what the file holds */

static struct sl_budget budget;
static struct sl_log test_log;
static char log_text[4096]; /* every line so far */

static void take_line(void *user, int level, const char *line)
{
    (void)user, (void)level;
    size_t used = strlen(log_text);
    (void)snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

static void write_file(const char *where, const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(where, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(fsync(fileno(f)), 0);
    assert_int_equal(fclose(f), 0);
}

/* Beside the build rather than in /tmp, which may be memory: direct access is what is tested. */
static int make_file(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "io_test_XXXXXX");
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(path, sizeof path, "%s/data", folder);
    data = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++) data[i] = (unsigned char)random_below(256);
    write_file(path, data, FILE_BYTES);
    sl_budget_init(&budget, UINT64_MAX);
    test_log = (struct sl_log){take_line, NULL, SL_LOG_DEBUG};
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    rmdir(folder);
    free(data);
    return sl_budget_used(&budget) == 0 ? 0 : 1;
}

/* ---- backends ------------------------------------------------------------------------------ */

struct setup {
    const char *name;
    struct sl_io_config config;
    struct sl_io_fault_plan plan; /* kind NONE and times 0: no wrapper */
};

#define NO_WRAPPER                                                                                 \
    {                                                                                              \
        SL_IO_FAULT_NONE, 0, 0, 0, 0, 0, 0                                                         \
    }
#define LATE                                                                                       \
    {                                                                                              \
        SL_IO_FAULT_DELAY, 0, 1, UINT64_MAX, 200000, 0, 0                                          \
    }
#define MIXED                                                                                      \
    {                                                                                              \
        SL_IO_FAULT_REORDER, 0, 1, UINT64_MAX, 0, 0, 0                                             \
    }
#define SHORT                                                                                      \
    {                                                                                              \
        SL_IO_FAULT_SYS_SHORT, 0, 1, UINT64_MAX, 0, 70000, 0                                       \
    }

static const struct setup setups[] = {
    {"pread, one lane", {SL_IO_PREAD, 0, 1, 0}, NO_WRAPPER},
    {"pread, four lanes", {SL_IO_PREAD, 0, 4, 0}, NO_WRAPPER},
    {"pread, late", {SL_IO_PREAD, 0, 3, 0}, LATE},
    {"pread, out of order", {SL_IO_PREAD, 0, 3, 0}, MIXED},
    {"pread, short", {SL_IO_PREAD, 0, 3, 0}, SHORT},
    {"io_uring, depth 1", {SL_IO_URING, 1, 0, 0}, NO_WRAPPER},
    {"io_uring, depth 32", {SL_IO_URING, 32, 0, 0}, NO_WRAPPER},
    {"io_uring, late", {SL_IO_URING, 8, 0, 0}, LATE},
    {"io_uring, out of order", {SL_IO_URING, 8, 0, 0}, MIXED},
    {"io_uring, short", {SL_IO_URING, 8, 0, 0}, SHORT},
};

/* What one test works with. */
struct rig {
    const struct setup *setup;
    struct sl_io *io;
    struct sl_file *file;
    struct sl_io_file *f;
    struct sl_io_request requests[PLACES_MAX];
    unsigned char *memory[PLACES_MAX]; /* room of each request, aligned */
    uint32_t times[PLACES_MAX];        /* handed back */
    uint32_t n;
};

/* False: this system does not grant it. */
static bool rig_open(struct rig *g, const struct setup *s, enum sl_io_access access)
{
    sluice_error e = {0};
    memset(g, 0, sizeof *g);
    g->setup = s;
    sluice_err err = sl_io_open(&s->config, &budget, &test_log, &e, &g->io);
    if (err == SLUICE_E_UNSUPPORTED) {
        print_message("without %s: %s\n", s->name, e.text);
        return false;
    }
    assert_int_equal(err, SLUICE_OK);
    if (s->plan.times != 0) {
        struct sl_io *inner = g->io;
        assert_int_equal(sl_io_fault_open(inner, &s->plan, &e, &g->io), SLUICE_OK);
    }
    assert_int_equal(sl_file_open(path, &budget, &e, &g->file), SLUICE_OK);
    assert_int_equal(sl_io_file_open(g->io, g->file, access, &e, &g->f), SLUICE_OK);
    return true;
}

static void rig_forget(struct rig *g)
{
    for (uint32_t i = 0; i < g->n; i++) free(g->memory[i]);
    g->n = 0;
    memset(g->times, 0, sizeof g->times);
}

static void rig_close(struct rig *g)
{
    rig_forget(g);
    sl_io_file_close(g->f);
    sl_file_close(g->file);
    sl_io_close(g->io);
}

/* Prepares a request in memory of its own, poisoned. */
static struct sl_io_request *rig_add(struct rig *g, uint64_t offset, uint64_t bytes,
                                     enum sl_io_priority priority)
{
    assert_true(g->n < PLACES_MAX);
    uint32_t block = sl_io_file_block(g->f);
    uint64_t room = sl_io_room(block, bytes);
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, block < 64 ? 64 : block, room), 0);
    memset(memory, POISON, room);
    struct sl_io_request *r = &g->requests[g->n];
    *r = (struct sl_io_request){.file = g->f, .offset = offset, .bytes = bytes};
    r->dst = (unsigned char *)memory + (offset & (block - 1));
    r->priority = priority;
    g->memory[g->n++] = memory;
    return r;
}

static void rig_submit(struct rig *g, uint32_t from, uint32_t n)
{
    struct sl_io_request *list[PLACES_MAX];
    for (uint32_t i = 0; i < n; i++) list[i] = &g->requests[from + i];
    assert_int_equal(sl_io_submit(g->io, list, n), SLUICE_OK);
}

/* Takes completions until none is out; order receives the indices if it is not NULL. */
static void rig_reap_all(struct rig *g, uint32_t *order)
{
    uint32_t seen = 0;
    while (sl_io_outstanding(g->io) > 0) {
        struct sl_io_request *out[7];
        uint32_t n = sl_io_reap(g->io, out, 7, 1);
        assert_in_range(n, 1, 7);
        for (uint32_t i = 0; i < n; i++) {
            size_t index = (size_t)(out[i] - g->requests);
            assert_true(index < g->n);
            g->times[index]++;
            if (order != NULL) order[seen] = (uint32_t)index;
            seen++;
        }
    }
}

static bool holds_data(const struct sl_io_request *r)
{
    return memcmp(r->dst, data + r->offset, r->bytes) == 0;
}

/* Whole, and nothing written outside the rounded range. */
static void check_whole(const struct rig *g, uint32_t i)
{
    const struct sl_io_request *r = &g->requests[i];
    assert_int_equal(g->times[i], 1);
    assert_int_equal(r->code, SLUICE_OK);
    assert_true(holds_data(r));
    struct sl_io_span s = sl_io_span(g->f, r->offset, r->bytes);
    uint64_t room = sl_io_room(sl_io_file_block(g->f), r->bytes);
    assert_true(s.bytes <= room);
    for (uint64_t k = s.bytes; k < room; k++) assert_int_equal(g->memory[i][k], POISON);
}

#endif
