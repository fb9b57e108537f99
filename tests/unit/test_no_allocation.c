/* Decoding allocates nothing. The linker puts these wrappers between every module and the system's
 * allocator and memory maps (--wrap; see CMakeLists.txt); while they are locked, a call counts as a
 * fault. They are open for the prompt and the first token, and where the context enters another
 * block of 64 positions: there the KV cache grows by a block (ARCHITECTURE.md), and the list of ids
 * doubles now and then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "engine/kv.h"
#include "include/sluice.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"
#define PROMPT 20
#define TOKENS 120 /* two borders of blocks are among them */

static atomic_bool locked;
static atomic_uint faults, calls;
static _Atomic(const char *) last;

static void note(const char *name)
{
    atomic_fetch_add(&calls, 1);
    if (!atomic_load(&locked)) return;
    atomic_fetch_add(&faults, 1);
    atomic_store(&last, name);
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int rights, int flags, int fd, off_t offset);
int __real_mprotect(void *at, size_t n, int rights);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int rights, int flags, int fd, off_t offset);
int __wrap_mprotect(void *at, size_t n, int rights);

void *__wrap_malloc(size_t n)
{
    note("malloc");
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    note("calloc");
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    note("realloc");
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    note("aligned_alloc");
    return __real_aligned_alloc(align, n);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    note("posix_memalign");
    return __real_posix_memalign(p, align, n);
}

void *__wrap_mmap(void *at, size_t n, int rights, int flags, int fd, off_t offset)
{
    note("mmap");
    return __real_mmap(at, n, rights, flags, fd, offset);
}

int __wrap_mprotect(void *at, size_t n, int rights)
{
    note("mprotect");
    return __real_mprotect(at, n, rights);
}

/* One way to run. */
struct setup {
    const char *model;
    uint32_t slots, threads, io, prefetch;
    float sticky;
};

static const struct setup setups[] = {
    {GOLDEN "qwen3moe-Q8_0/model.gguf", 0, 1, SLUICE_IO_AUTO, SLUICE_PREFETCH_OFF, 0},
    {GOLDEN "qwen3moe-Q8_0/model.gguf", 0, 2, SLUICE_IO_AUTO, SLUICE_PREFETCH_OFF, 0},
    {GOLDEN "qwen3moe-Q8_0/model.gguf", 8, 1, SLUICE_IO_AUTO, SLUICE_PREFETCH_AUTO, 0},
    {GOLDEN "qwen3moe-Q8_0/model.gguf", 8, 2, SLUICE_IO_PREAD, SLUICE_PREFETCH_FORCED, 0},
    {GOLDEN "qwen2moe-Q8_0/model.gguf", 8, 2, SLUICE_IO_AUTO, SLUICE_PREFETCH_FORCED, 0.1f},
    {GOLDEN "qwen2moe-Q8_0/model.gguf", 0, 1, SLUICE_IO_MMAP, SLUICE_PREFETCH_OFF, 0},
    {GOLDEN "llama-Q8_0/model.gguf", 0, 2, SLUICE_IO_AUTO, SLUICE_PREFETCH_OFF, 0},
};

static void check(const struct setup *u, const char *trace)
{
    sluice_options o = SLUICE_OPTIONS_INIT;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error e;
    sluice_model *m;
    sluice_session *s;
    int32_t ids[TOKENS];
    uint32_t borders = 0;
    o.slots = u->slots;
    o.threads = u->threads;
    o.io = u->io;
    o.prefetch = u->prefetch;
    o.sticky = u->sticky;
    o.trace = trace;
    if (sluice_model_open(u->model, &o, &m, &e)) fail_msg("%s", e.text);
    if (sluice_session_open(m, &s, &e)) fail_msg("%s", e.text);
    sluice_model_get_info(m, &info);
    float *logits = calloc(info.n_vocab, sizeof *logits);
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 37 + 5) % (int32_t)info.n_vocab;
    if (sluice_session_eval(s, ids, PROMPT, NULL, &e)) fail_msg("%s", e.text);
    for (uint32_t i = PROMPT; i < TOKENS; i++) {
        unsigned before = atomic_load(&calls);
        atomic_store(&locked, i > PROMPT && i % SL_KV_BLOCK != 0);
        sluice_err err = sluice_session_eval(s, &ids[i], 1, logits, &e);
        atomic_store(&locked, false);
        if (err) fail_msg("%s", e.text);
        if (i % SL_KV_BLOCK == 0) borders += atomic_load(&calls) > before;
    }
    if (atomic_load(&faults))
        fail_msg("%s, slots %u, threads %u, io %u, prefetch %u, trace %s: %u calls, the last of %s",
                 u->model, u->slots, u->threads, u->io, u->prefetch, trace ? trace : "none",
                 atomic_load(&faults), atomic_load(&last));
    assert_int_equal(borders, (TOKENS - 1) / SL_KV_BLOCK - (PROMPT - 1) / SL_KV_BLOCK);
    free(logits);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_allocation__after_the_first_token__none(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        check(&setups[i], NULL);
        if (!strstr(setups[i].model, "llama")) check(&setups[i], "/dev/null"); /* has no experts */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocation__after_the_first_token__none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
