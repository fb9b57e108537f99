/* Placement decides speed, never tokens: logits are the same bytes for any number of expert slots,
 * backend, prefetch, eviction policy, number of threads, chunk and instruction set, and so are
 * those of each lossy setting that is a function of the text.
 *
 *   test_stream_invariance [--cross] FOLDER...   a golden case, or a folder of them
 *   test_stream_invariance MODEL.gguf TOKENS     any model with a file of token ids
 *
 * Every model gets a cover of all pairs: whichever two settings of the table below, some run has
 * both. --cross runs every combination instead (all but the instruction sets and the largest
 * chunk, of the lossy settings one, on fewer tokens). Folders that do not exist and architectures
 * that are not supported are skipped with a line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "tests/support/stream_case.h"

#define PATH_BYTES 1024
#define CASES_MAX 256
#define LEVELS_MAX 5
#define CROSS_IDS 40      /* fewer tokens where there are many ways */
#define TRIES 40          /* candidates for a row of the cover */
#define ROWS_MAX 10000    /* the cover ends long before */
#define SLOTS_SEARCH 4096 /* more than the floor of any model here */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#ifndef SLOW_BUILD
#define SLOW_BUILD 0
#endif

/* One model to be run, and what is known of it. */
struct model_case {
    char name[128];
    char model[PATH_BYTES], tokens[PATH_BYTES], greedy[PATH_BYTES];
    bool cross;
    struct stream_text text;
    bool moe, may_differ; /* has experts; a token does not choose all of them */
    uint32_t slots[LEVELS_MAX], n_slots;
    float *expected[STREAM_LOSSY_COUNT];
    float *got;
    bool no_uring; /* found to be refused */
    uint32_t runs;
};

/* ---- settings and their levels ------------------------------------------------------------------
 */

enum axis { SLOTS, IO, PREFETCH, POLICY, THREADS, CHUNK, LOSSY, ISA, AXES };

/* Slots by level: all, the least that is legal, a tenth, a half, and as many as fit into the
 * smallest legal budget. Filled for each model, without doubles. */
#define BY_BUDGET UINT32_MAX
static const uint32_t ios[] = {SLUICE_IO_PREAD, SLUICE_IO_URING, SLUICE_IO_MMAP};
static const uint32_t prefetches[] = {SLUICE_PREFETCH_OFF, SLUICE_PREFETCH_AUTO,
                                      SLUICE_PREFETCH_FORCED};
static const uint32_t policies[] = {SLUICE_CACHE_TWO_RATE, SLUICE_CACHE_LRU, SLUICE_CACHE_LFU,
                                    SLUICE_CACHE_DECAYED_LFU};
static const uint32_t chunks[] = {64, 1, 7, 512};
static const uint32_t isas[] = {SLUICE_ISA_AUTO, SLUICE_ISA_SCALAR};
#define MMAP_LEVEL 2

struct row {
    uint8_t level[AXES];
};

static uint32_t levels_of(const struct model_case *c, enum axis a)
{
    static const uint32_t moe[AXES] = {0, 3, 3, 4, 2, 4, STREAM_LOSSY_COUNT, 2};
    static const uint32_t dense[AXES] = {1, 3, 1, 1, 2, 4, 1, 2};

    if (!c->moe) return dense[a];
    if (a == SLOTS) return c->n_slots;
    if (c->cross && a == ISA) return 1;
    if (c->cross && a == LOSSY) return 2;
    if (c->cross && a == CHUNK) return 3;
    return moe[a];
}

/* Whether the row pages experts: mapped files and one slot for each have no cache to speak of. */
static bool pages(const struct row *r)
{
    return r->level[SLOTS] != 0 && r->level[IO] != MMAP_LEVEL;
}

static struct stream_setup setup_of(const struct model_case *c, const struct row *r)
{
    struct stream_setup u = STREAM_PLAIN;

    u.slots = c->moe ? c->slots[r->level[SLOTS]] : 0;
    u.io = ios[r->level[IO]];
    u.prefetch = prefetches[r->level[PREFETCH]];
    u.policy = policies[r->level[POLICY]];
    u.threads = r->level[THREADS] + 1u;
    u.chunk = chunks[r->level[CHUNK]];
    u.lossy = (enum stream_lossy)r->level[LOSSY];
    u.isa = isas[r->level[ISA]];
    if (u.slots == BY_BUDGET) {
        u.slots = 0;
        sluice_options o = stream_options(&u);
        sluice_plan p = SLUICE_PLAN_INIT;
        sluice_error e;
        if (sluice_memory_plan(c->model, &o, &p, &e) != SLUICE_OK) fail_msg("%s", e.text);
        u.ram_bytes = p.minimum_bytes;
    }
    return u;
}

/* ---- running one way ----------------------------------------------------------------------------
 */

static void compare(const struct model_case *c, const struct stream_setup *u, const char *when)
{
    char text[STREAM_DESCRIPTION_BYTES];
    size_t row = 0;

    if (!stream_equal(&c->text, c->got, c->expected[u->lossy], &row))
        fail_msg("%s: other logits from token %zu on, %s, with: %s", c->name, row, when,
                 stream_describe(u, text));
}

static void check(const struct model_case *c, const struct stream_setup *u, sluice_err err,
                  const sluice_error *e)
{
    char text[STREAM_DESCRIPTION_BYTES];

    if (err != SLUICE_OK)
        fail_msg("%s: %s: %s, with: %s", c->name, sluice_err_name(err), e->text,
                 stream_describe(u, text));
}

/* As a program reads that samples from the distribution after a prompt: of its first part none is
 * wanted, of its second that after the last token, and so of what follows. */
static void read_for_last(struct model_case *c, const struct stream_setup *u, sluice_session *s)
{
    const struct stream_text *t = &c->text;
    const size_t ends[] = {t->n / 3, t->n - t->n / 4, t->n - t->n / 4 + 1, t->n};
    sluice_error e;

    sluice_session_truncate(s, 0);
    check(c, u, sluice_session_eval(s, t->ids, ends[0], NULL, &e), &e);
    for (size_t i = 1; i < sizeof ends / sizeof *ends; i++) {
        float *got = c->got + (ends[i] - 1) * t->n_vocab;
        memset(got, 0xA5, stream_row_bytes(t));
        check(c, u,
              sluice_session_eval_last(s, t->ids + ends[i - 1], ends[i] - ends[i - 1], got, &e),
              &e);
    }
    compare(c, u, "after the last token of a piece");
}

/* The text four times in one session: cold, warm (not for every combination), from a cut on in
 * pieces of seven, which meets a warm cache too, and as a prompt (nor that). */
static void read_four_times(struct model_case *c, const struct stream_setup *u, sluice_session *s)
{
    const struct stream_text *t = &c->text;
    size_t cut = t->n / 3;
    sluice_error e;

    check(c, u, stream_read(s, t, c->got, &e), &e);
    compare(c, u, "cold");
    if (!c->cross) {
        memset(c->got, 0xA5, t->n * stream_row_bytes(t));
        check(c, u, stream_read(s, t, c->got, &e), &e);
        compare(c, u, "warm");
    }
    memset(c->got + cut * t->n_vocab, 0xA5, (t->n - cut) * stream_row_bytes(t));
    sluice_session_truncate(s, cut);
    check(c, u, stream_pieces(s, t, (struct stream_span){cut, t->n, 7}, c->got, &e), &e);
    compare(c, u, "after a cut");
    if (!c->cross) read_for_last(c, u, s);
}

static void run_row(struct model_case *c, const struct row *r)
{
    if (c->no_uring && ios[r->level[IO]] == SLUICE_IO_URING) return;
    struct stream_setup u = setup_of(c, r);
    sluice_options o = stream_options(&u);
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    sluice_error e;

    sluice_err err = sluice_model_open(c->model, &o, &m, &e);
    if (err == SLUICE_E_UNSUPPORTED && u.io == SLUICE_IO_URING) {
        print_message("without io_uring: %s\n", e.text);
        c->no_uring = true;
        return;
    }
    check(c, &u, err, &e);
    check(c, &u, sluice_session_open(m, &s, &e), &e);
    read_four_times(c, &u, s);
    sluice_session_close(s);
    sluice_model_close(m);
    c->runs++;
}

/* ---- every combination --------------------------------------------------------------------------
 */

/* Where nothing is paged, what only matters to paging is run once. */
static bool redundant(const struct row *r)
{
    if (r->level[IO] == MMAP_LEVEL && r->level[SLOTS] != 0) return true;
    return !pages(r) && (r->level[PREFETCH] != 0 || r->level[POLICY] != 0);
}

static void run_cross(struct model_case *c)
{
    struct row r = {{0}};
    int a = 0;

    while (a < AXES) {
        if (!redundant(&r)) run_row(c, &r);
        for (a = 0; a < AXES; a++) {
            if (++r.level[a] < levels_of(c, (enum axis)a)) break;
            r.level[a] = 0;
        }
    }
}

/* ---- all pairs ----------------------------------------------------------------------------------
 */

struct cover {
    bool done[AXES][AXES][LEVELS_MAX][LEVELS_MAX];
};

/* A row counts for a pair only if both settings have a meaning in it (a dense model has one level
 * of those that have none). */
static bool counts(const struct model_case *c, const struct row *r, int a, int b)
{
    bool cache_a = a == PREFETCH || a == POLICY, cache_b = b == PREFETCH || b == POLICY;

    if (!c->moe || pages(r) || (!cache_a && !cache_b)) return true;
    return a == SLOTS || b == SLOTS;
}

/* Pairs that the row adds; marks them where told to. */
static uint32_t gain(struct cover *v, const struct model_case *c, const struct row *r, bool mark)
{
    uint32_t n = 0;

    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++) {
            bool *done = &v->done[a][b][r->level[a]][r->level[b]];
            if (*done || !counts(c, r, a, b)) continue;
            n++;
            if (mark) *done = true;
        }
    return n;
}

/* Pairs that no row can have: mapped files have no slots, and no cache. */
static void strike_impossible(struct cover *v)
{
    for (int i = 1; i < LEVELS_MAX; i++) v->done[SLOTS][IO][i][MMAP_LEVEL] = true;
    for (int i = 0; i < LEVELS_MAX; i++) {
        v->done[IO][PREFETCH][MMAP_LEVEL][i] = true;
        v->done[IO][POLICY][MMAP_LEVEL][i] = true;
    }
}

static uint32_t left(const struct cover *v, const struct model_case *c)
{
    uint32_t n = 0;

    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            for (uint32_t i = 0; i < levels_of(c, (enum axis)a); i++)
                for (uint32_t k = 0; k < levels_of(c, (enum axis)b); k++) n += !v->done[a][b][i][k];
    return n;
}

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static struct row random_row(const struct model_case *c, uint64_t *state)
{
    struct row r;

    for (int a = 0; a < AXES; a++)
        r.level[a] = (uint8_t)random_below(state, levels_of(c, (enum axis)a));
    if (r.level[IO] == MMAP_LEVEL) r.level[SLOTS] = 0;
    return r;
}

/* Greedy: of some candidates, drawn alike on every machine, the one with most new pairs. */
static void run_pairs(struct model_case *c)
{
    static struct cover v;
    uint64_t state = 20261130;

    memset(&v, 0, sizeof v);
    if (c->moe) strike_impossible(&v);
    for (uint32_t n = 0; left(&v, c) > 0; n++) {
        struct row best = {{0}};
        uint32_t most = 0;

        assert_true(n < ROWS_MAX);
        for (int i = 0; i < TRIES; i++) {
            struct row r = random_row(c, &state);
            uint32_t g = gain(&v, c, &r, false);
            if (g > most) {
                most = g;
                best = r;
            }
        }
        if (most == 0) continue;
        (void)gain(&v, c, &best, true);
        run_row(c, &best);
    }
}

/* ---- a model ------------------------------------------------------------------------------------
 */

static void read_ids(struct stream_text *t, const char *path, bool first_column)
{
    char line[4096];
    FILE *f = fopen(path, "r");

    if (f == NULL) return;
    while (t->n < STREAM_IDS_MAX && fgets(line, sizeof line, f) != NULL) {
        char *at = line, *end = NULL;
        if (line[0] == '#') continue;
        while (t->n < STREAM_IDS_MAX) {
            long id = strtol(at, &end, 10);
            if (end == at) break;
            t->ids[t->n++] = (int32_t)id;
            at = end;
            if (first_column) break;
        }
    }
    (void)fclose(f);
}

/* The fewest slots that open: all below are refused as too small a budget. */
static uint32_t fewest_slots(const struct model_case *c)
{
    struct stream_setup u = STREAM_PLAIN;

    for (u.slots = 1; u.slots < SLOTS_SEARCH; u.slots++) {
        sluice_options o = stream_options(&u);
        sluice_model *m = NULL;
        sluice_error e;
        sluice_err err = sluice_model_open(c->model, &o, &m, &e);

        sluice_model_close(m);
        if (err == SLUICE_OK) return u.slots;
        if (err != SLUICE_E_BUDGET) fail_msg("%s: %s", sluice_err_name(err), e.text);
    }
    fail_msg("%s: not even %u slots open", c->name, SLOTS_SEARCH);
    return 0;
}

static void add_slots(struct model_case *c, uint32_t slots)
{
    for (uint32_t i = 0; i < c->n_slots; i++)
        if (c->slots[i] == slots) return;
    assert_true(c->n_slots < LEVELS_MAX);
    c->slots[c->n_slots++] = slots;
}

/* What the model is, and the logits of the reference. */
static void describe(struct model_case *c)
{
    struct stream_setup u = STREAM_PLAIN;
    sluice_options o = stream_options(&u);
    sluice_model *m = NULL;
    sluice_model_info info = SLUICE_MODEL_INFO_INIT;
    sluice_error e;

    if (sluice_model_open(c->model, &o, &m, &e) != SLUICE_OK) fail_msg("%s", e.text);
    sluice_model_get_info(m, &info);
    c->text.n_vocab = info.n_vocab;
    c->moe = info.n_experts > 0;
    c->may_differ = info.top_k < info.n_experts;
    uint32_t experts = info.n_experts * info.n_moe_layers;
    sluice_model_close(m);
    read_ids(&c->text, c->tokens, false);
    if (c->greedy[0] != '\0') read_ids(&c->text, c->greedy, true);
    if (c->cross && c->text.n > CROSS_IDS) c->text.n = CROSS_IDS;
    if (c->text.n < 4) fail_msg("%s: no tokens in %s", c->name, c->tokens);
    if (!c->moe) return;
    uint32_t fewest = fewest_slots(c);
    add_slots(c, 0);
    add_slots(c, fewest);
    add_slots(c, experts / 10 > fewest ? experts / 10 : fewest);
    add_slots(c, experts / 2 > fewest ? experts / 2 : fewest);
    add_slots(c, BY_BUDGET);
}

static void run_reference(struct model_case *c, enum stream_lossy lossy)
{
    struct stream_setup u = STREAM_PLAIN;
    sluice_model *m = NULL;
    sluice_session *s = NULL;
    sluice_error e;

    u.lossy = lossy;
    sluice_options o = stream_options(&u);
    check(c, &u, sluice_model_open(c->model, &o, &m, &e), &e);
    check(c, &u, sluice_session_open(m, &s, &e), &e);
    c->expected[lossy] = stream_room(&c->text);
    check(c, &u, stream_read(s, &c->text, c->expected[lossy], &e), &e);
    sluice_session_close(s);
    sluice_model_close(m);
}

static void test_logits__every_way_to_stream__same_bytes(void **state)
{
    struct model_case *c = *state;
    size_t row = 0;

    c->cross = c->cross && !SLOW_BUILD;
    describe(c);
    c->got = stream_room(&c->text);
    for (int i = 0; i < (c->moe ? STREAM_LOSSY_COUNT : 1); i++)
        run_reference(c, (enum stream_lossy)i);
    /* A lever that moves nothing would pass everything below. */
    if (c->may_differ &&
        stream_equal(&c->text, c->expected[STREAM_EXACT], c->expected[STREAM_STICKY], &row))
        fail_msg("%s: --sticky changes nothing", c->name);
    if (c->cross)
        run_cross(c);
    else
        run_pairs(c);
    print_message("%s: %u ways, %s, %zu tokens\n", c->name, c->runs,
                  c->cross ? "every combination" : "all pairs", c->text.n);
    for (int i = 0; i < STREAM_LOSSY_COUNT; i++) free(c->expected[i]);
    free(c->got);
}

/* ---- finding cases ------------------------------------------------------------------------------
 */

/* The string value of a key in a small JSON file; false where it is not there. */
static bool json_string(const char *path, const char *key, char *out, size_t size)
{
    static char text[1 << 16];
    char wanted[64];
    FILE *f = fopen(path, "r");

    if (f == NULL) return false;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    (void)fclose(f);
    (void)snprintf(wanted, sizeof wanted, "\"%s\": \"", key);
    const char *at = strstr(text, wanted);
    if (at == NULL) return false;
    at += strlen(wanted);
    size_t n = strcspn(at, "\"");
    if (n >= size) return false;
    memcpy(out, at, n);
    out[n] = '\0';
    return true;
}

static bool is_supported(const char *arch)
{
    for (uint32_t i = 0; sluice_arch_name(i) != NULL; i++)
        if (strcmp(sluice_arch_name(i), arch) == 0) return true;
    return false;
}

static struct model_case cases[CASES_MAX];
static size_t n_cases;

/* False where the folder is no case. */
static bool add_folder(const char *folder, bool cross)
{
    char meta[PATH_BYTES], arch[64], file[128];

    if (snprintf(meta, sizeof meta, "%s/meta.json", folder) >= (int)sizeof meta) return false;
    if (!json_string(meta, "arch", arch, sizeof arch)) return false;
    const char *name = strrchr(folder, '/') != NULL ? strrchr(folder, '/') + 1 : folder;
    if (!is_supported(arch)) {
        print_message("%s: skipped, architecture %s is not supported yet\n", name, arch);
        return true;
    }
    if (!json_string(meta, "model_file", file, sizeof file))
        (void)snprintf(file, sizeof file, "model.gguf");
    assert_true(n_cases < CASES_MAX);
    struct model_case *c = &cases[n_cases++];
    c->cross = cross;
    (void)snprintf(c->name, sizeof c->name, "%.*s", (int)sizeof c->name - 1, name);
    if (snprintf(c->model, sizeof c->model, "%s/%s", folder, file) >= (int)sizeof c->model ||
        snprintf(c->tokens, sizeof c->tokens, "%s/tokens.txt", folder) >= (int)sizeof c->tokens ||
        snprintf(c->greedy, sizeof c->greedy, "%s/greedy.txt", folder) >= (int)sizeof c->greedy)
        return false;
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_folders(const char *folder, bool cross)
{
    struct dirent **list = NULL;
    char path[PATH_BYTES];

    if (add_folder(folder, cross)) return;
    int n = scandir(folder, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name) < (int)sizeof path)
            (void)add_folder(path, cross);
        free(list[i]);
    }
    free(list);
}

static void add_model(const char *model, const char *tokens)
{
    struct model_case *c = &cases[n_cases++];
    const char *name = strrchr(model, '/');

    (void)snprintf(c->name, sizeof c->name, "%.100s", name != NULL ? name + 1 : model);
    (void)snprintf(c->model, sizeof c->model, "%s", model);
    (void)snprintf(c->tokens, sizeof c->tokens, "%s", tokens);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[CASES_MAX];
    bool cross = argc > 1 && strcmp(argv[1], "--cross") == 0;
    int first = cross ? 2 : 1;
    struct stat st;

    for (int i = first; i < argc; i++) {
        if (stat(argv[i], &st) != 0) {
            print_message("skipped: there is no %s\n", argv[i]);
        } else if (S_ISDIR(st.st_mode)) {
            add_folders(argv[i], cross);
        } else if (i + 1 < argc) {
            add_model(argv[i], argv[i + 1]);
            i++;
        }
    }
    if (argc <= first) add_folders(SLUICE_SOURCE_DIR "/tests/golden", false);
    if (n_cases == 0) return 77;
    for (size_t i = 0; i < n_cases; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, test_logits__every_way_to_stream__same_bytes,
                                       NULL, NULL, &cases[i]};
    return _cmocka_run_group_tests("streaming", tests, n_cases, NULL, NULL);
}
