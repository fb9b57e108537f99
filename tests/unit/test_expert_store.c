/* The paged expert store: whatever happens, an expert that is handed out holds exactly its bytes of
 * the file. Random operations over every backend, from the floor to a slot for each expert. */
#define _GNU_SOURCE
#include "tests/support/store_case.h"

static struct rig rig;

static uint64_t expert_bytes(uint32_t l)
{
    return plans[l].bytes[0] + plans[l].bytes[1] + plans[l].bytes[2];
}

/* But for hot lists, which go on by themselves. */
static uint64_t bytes_read(const struct sl_expert_store *s)
{
    struct sl_expert_stats st;
    sl_expert_get_stats(s, &st);
    return st.demand_bytes + st.prompt_bytes + st.ahead_bytes;
}

static uint32_t random_layer(void)
{
    uint32_t l;
    do {
        l = random_below(LAYERS);
    } while (plans[l].n_experts == 0);
    return l;
}

/* ---- random operations --------------------------------------------------------------------- */

static void hint_at(struct sl_expert_store *s, uint32_t layer, bool prompt)
{
    struct sl_expert_hint hints[EXPERTS_MAX];
    uint32_t n = 0;
    for (uint32_t x = 0; x < plans[layer].n_experts; x++)
        if (random_below(3) == 0)
            hints[n++] = (struct sl_expert_hint){x, (float)random_below(101) / 100};
    sl_expert_expect(s, layer, hints, n, prompt);
}

static void disturb(struct sl_expert_store *s, const struct choice *c)
{
    if (random_below(3) == 0) hint_at(s, random_layer(), c->in_order);
    if (random_below(3) == 0) sl_expert_poll(s);
    if (random_below(3) == 0) (void)sl_expert_at_hand(s, c->layer, 0);
}

/* Begins, takes a little, and gives up. */
static void give_up(struct sl_expert_store *s, const struct choice *c)
{
    struct sl_expert_need need = need_of(c);
    struct sl_expert_ready out[3];
    uint32_t n;
    sluice_error e;
    sl_expert_begin(s, &need);
    for (uint32_t i = random_below(3); i > 0; i--) {
        assert_int_equal(sl_expert_next(s, out, 3, &n, &e), SLUICE_OK);
        for (uint32_t k = 0; k < n; k++) {
            assert_true(view_is_right(c->layer, &out[k]));
            if (out[k].steps & SL_EXPERT_OUTPUT) sl_expert_release(s, out[k].expert);
        }
    }
    sl_expert_end(s);
}

static void warm_up(struct sl_expert_store *s)
{
    struct sl_expert_id ids[40];
    uint32_t n = random_below(40);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (struct sl_expert_id){random_below(LAYERS + 1), random_below(EXPERTS_MAX + 3)};
    sl_expert_warm(s, ids, n);
}

static void check_sums_of_layers(const struct sl_expert_store *s)
{
    struct sl_expert_stats all;
    struct sl_expert_layer_stats sum = {0}, l;
    sl_expert_get_stats(s, &all);
    for (uint32_t i = 0; i < LAYERS; i++) {
        sl_expert_get_layer_stats(s, i, &l);
        sum.uses += l.uses, sum.hits += l.hits, sum.hits_flying += l.hits_flying;
        sum.demand_bytes += l.demand_bytes, sum.prompt_bytes += l.prompt_bytes;
        sum.ahead_bytes += l.ahead_bytes, sum.ahead_useful_bytes += l.ahead_useful_bytes;
        sum.ahead_wasted_bytes += l.ahead_wasted_bytes;
        sum.predicted += l.predicted, sum.predicted_used += l.predicted_used;
        sum.stall_ns += l.stall_ns;
    }
    assert_int_equal(sum.uses, all.uses);
    assert_int_equal(sum.hits, all.hits);
    assert_int_equal(sum.hits_flying, all.hits_flying);
    assert_int_equal(sum.demand_bytes, all.demand_bytes);
    assert_int_equal(sum.prompt_bytes, all.prompt_bytes);
    assert_int_equal(sum.ahead_bytes, all.ahead_bytes);
    assert_int_equal(sum.ahead_useful_bytes, all.ahead_useful_bytes);
    assert_int_equal(sum.ahead_wasted_bytes, all.ahead_wasted_bytes);
    assert_int_equal(sum.predicted, all.predicted);
    assert_int_equal(sum.predicted_used, all.predicted_used);
    assert_int_equal(sum.stall_ns, all.stall_ns);
    assert_true(all.hits + all.hits_flying <= all.uses);
    assert_true(all.ahead_useful_bytes + all.ahead_wasted_bytes <= all.ahead_bytes);
    assert_true(all.stall_ns <= all.read_ns || all.n_open == all.n_slots || all.stall_ns > 0);
    assert_true(all.n_resident <= all.n_open && all.n_open <= all.n_slots);
}

static void check_settled(struct rig *g)
{
    sl_expert_settle(g->s);
    assert_int_equal(sl_io_outstanding(g->io), 0);
    check_quiet(g->s);
    check_sums_of_layers(g->s);
}

static void shrink_and_grow(struct rig *g)
{
    struct sl_expert_stats before, after;
    uint64_t charged = sl_budget_used(&budget);
    sl_expert_get_stats(g->s, &before);
    if (random_below(2)) {
        uint64_t given = sl_expert_store_shrink(g->s, random_below(400000));
        sl_expert_get_stats(g->s, &after);
        assert_int_equal(sl_budget_used(&budget), charged - given);
        assert_int_equal(after.slot_bytes_open, before.slot_bytes_open - given);
    } else {
        sl_expert_store_regrow(g->s);
        sl_expert_get_stats(g->s, &after);
        assert_int_equal(after.n_open, after.n_slots);
    }
}

static uint64_t uses_of(const struct choice *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->n_tokens * plans[c->layer].top_k; i++)
        n += c->chosen[i] != SL_EC_NONE;
    return n;
}

/* A prompt chunk; where nothing else reads, no expert is read twice. */
static void play_prompt(struct rig *g, bool quiet)
{
    static struct choice c;
    sluice_error e;
    bool right;
    choose(&c, random_layer(), 1 + random_below(40), true);
    if (quiet) sl_expert_settle(g->s);
    uint64_t before = bytes_read(g->s);
    assert_int_equal(run_chunk(g->s, &c, quiet ? NULL : disturb, &right, &e), SLUICE_OK);
    assert_true(right);
    if (quiet) assert_true(bytes_read(g->s) - before <= c.n_distinct * expert_bytes(c.layer));
}

static void play_token(struct rig *g)
{
    static struct choice c;
    sluice_error e;
    bool right;
    struct sl_expert_stats before, after;
    uint32_t next = random_layer();
    if (random_below(2)) hint_at(g->s, next, false);
    choose(&c, next, 1 + random_below(3), false);
    sl_expert_get_stats(g->s, &before);
    assert_int_equal(run_chunk(g->s, &c, disturb, &right, &e), SLUICE_OK);
    assert_true(right);
    sl_expert_get_stats(g->s, &after);
    assert_int_equal(after.uses - before.uses, uses_of(&c));
}

static void play(struct rig *g, uint32_t rounds)
{
    static struct choice c;
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t what = random_below(20);
        if (what < 10)
            play_token(g);
        else if (what < 13)
            play_prompt(g, random_below(2));
        else if (what == 13)
            check_settled(g);
        else if (what == 14)
            shrink_and_grow(g);
        else if (what == 15)
            warm_up(g->s);
        else if (what == 16) {
            bool in_order = random_below(2);
            choose(&c, random_layer(), in_order ? 1 + random_below(30) : 1, in_order);
            give_up(g->s, &c);
        } else if (what == 17)
            hint_at(g->s, random_layer(), random_below(2));
        else
            sl_expert_poll(g->s);
    }
    check_settled(g);
}

static void play_all(enum sl_read_ahead_mode mode)
{
    static const uint32_t percents[] = {0, 30, 50, 100};
    for (size_t i = 0; i < SL_ARRAY_LEN(setups); i++)
        for (size_t k = 0; k < SL_ARRAY_LEN(percents); k++) {
            if (!rig_prepare(&rig, &setups[i])) continue;
            rig_slots(&rig, percents[k]);
            rig.config.read_ahead = mode;
            rig_open(&rig);
            play(&rig, 150);
            rig_close_store(&rig);
            rig_end(&rig);
        }
}

static void test_store__random_operations_no_reading_ahead__right_bytes(void **state)
{
    (void)state;
    play_all(SL_READ_AHEAD_OFF);
}

static void test_store__random_operations_reading_ahead__right_bytes(void **state)
{
    (void)state;
    play_all(SL_READ_AHEAD_AUTO);
}

static void test_store__random_operations_forced_guesses__right_bytes(void **state)
{
    (void)state;
    play_all(SL_READ_AHEAD_FORCED);
}

/* ---- decode -------------------------------------------------------------------------------- */

static void open_first(uint32_t percent, enum sl_read_ahead_mode mode)
{
    size_t i = 0;
    while (!rig_prepare(&rig, &setups[i])) i++;
    rig_slots(&rig, percent);
    rig.config.read_ahead = mode;
    rig_open(&rig);
}

static void close_first(void)
{
    rig_close_store(&rig);
    rig_end(&rig);
}

static void token(uint32_t layer, uint32_t first)
{
    static struct choice c;
    sluice_error e;
    bool right;
    memset(&c, 0, sizeof c);
    c.layer = layer;
    c.n_tokens = 1;
    for (uint32_t k = 0; k < plans[layer].top_k; k++) {
        c.chosen[k] = first + k;
        c.is_chosen[first + k] = true;
        c.n_distinct++;
    }
    assert_int_equal(run_chunk(rig.s, &c, NULL, &right, &e), SLUICE_OK);
    assert_true(right);
}

static void test_decode__same_experts_again__hits_and_nothing_read(void **state)
{
    (void)state;
    struct sl_expert_stats st;
    open_first(50, SL_READ_AHEAD_OFF);
    token(0, 3);
    token(2, 5);
    uint64_t before = bytes_read(rig.s);
    assert_int_equal(before, 4 * expert_bytes(0) + 6 * expert_bytes(2));
    token(0, 3);
    token(2, 5);
    assert_int_equal(bytes_read(rig.s), before);
    sl_expert_get_stats(rig.s, &st);
    assert_int_equal(st.hits, 10);
    assert_int_equal(st.uses, 20);
    assert_int_equal(st.demand_bytes, before);
    assert_int_equal(st.checked, 0); /* first reads only, and no sums file */
    assert_int_equal(st.n_resident, 10);
    assert_true(st.read_ns > 0);
    close_first();
}

static void test_decode__reread_after_eviction__sums_compared(void **state)
{
    (void)state;
    struct sl_expert_stats st;
    open_first(0, SL_READ_AHEAD_OFF);
    for (uint32_t i = 0; i < 6; i++) token(4, i % 2 ? 0 : 8);
    for (uint32_t i = 0; i < 6; i++) token(0, i % 2 ? 0 : 8);
    sl_expert_get_stats(rig.s, &st);
    assert_true(st.evictions > 0);
    assert_true(st.checked > 0);
    close_first();
}

/* ---- guesses ------------------------------------------------------------------------------- */

static void wait_for_guesses(void)
{
    for (int i = 0; i < 5000 && sl_io_outstanding(rig.io) > 0; i++) {
        sl_expert_poll(rig.s);
        usleep(200);
    }
    assert_int_equal(sl_io_outstanding(rig.io), 0);
}

static void test_guess__came_true__useful_and_no_demand_read(void **state)
{
    (void)state;
    struct sl_expert_stats st;
    const struct sl_expert_hint hints[] = {{8, 0.9f}, {9, 0.8f}, {10, 0.7f}, {11, 0.6f}};
    open_first(50, SL_READ_AHEAD_FORCED);
    token(0, 0);
    sl_expert_expect(rig.s, 4, hints, 4, false);
    wait_for_guesses();
    assert_true(sl_expert_at_hand(rig.s, 4, 9));
    token(4, 8);
    sl_expert_get_stats(rig.s, &st);
    assert_int_equal(st.demand_bytes, 4 * expert_bytes(0));
    assert_int_equal(st.ahead_bytes, 4 * expert_bytes(4));
    assert_int_equal(st.ahead_useful_bytes, st.ahead_bytes);
    assert_int_equal(st.ahead_wasted_bytes, 0);
    assert_int_equal(st.predicted, 4);
    assert_int_equal(st.predicted_used, 4);
    assert_int_equal(st.hits, 4);
    close_first();
}

static void test_guess__wrong_and_evicted__wasted(void **state)
{
    (void)state;
    struct sl_expert_stats st;
    const struct sl_expert_hint hint = {12, 0.9f};
    open_first(30, SL_READ_AHEAD_FORCED);
    sl_expert_expect(rig.s, 4, &hint, 1, false);
    wait_for_guesses();
    assert_true(sl_expert_at_hand(rig.s, 4, 12));
    for (uint32_t i = 0; i < 8 && sl_expert_at_hand(rig.s, 4, 12); i++) {
        token(4, 4 * (i % 3));
        token(0, 4 * (i % 4));
    }
    sl_expert_get_stats(rig.s, &st);
    assert_int_equal(st.ahead_wasted_bytes, expert_bytes(4));
    assert_int_equal(st.ahead_useful_bytes, 0);
    assert_int_equal(st.predicted, 1);
    assert_int_equal(st.predicted_used, 0);
    close_first();
}

static void test_guess__mode_off__nothing_is_read(void **state)
{
    (void)state;
    const struct sl_expert_hint hint = {1, 1};
    open_first(50, SL_READ_AHEAD_OFF);
    sl_expert_expect(rig.s, 0, &hint, 1, false);
    sl_expert_expect(rig.s, 0, &hint, 1, true);
    sl_expert_poll(rig.s);
    assert_int_equal(sl_io_outstanding(rig.io), 0);
    assert_int_equal(bytes_read(rig.s), 0);
    close_first();
}

/* A prompt's coming layer: read while this one is computed, and not once more at its turn. */
static void test_guess__coming_layer_of_a_prompt__taken_over(void **state)
{
    (void)state;
    static struct choice c;
    struct sl_expert_hint hints[EXPERTS_MAX];
    struct sl_expert_stats st;
    sluice_error e;
    bool right;
    open_first(50, SL_READ_AHEAD_AUTO);
    choose(&c, 4, 40, true);
    uint32_t n = 0;
    for (uint32_t x = 0; x < plans[4].n_experts; x++)
        if (c.is_chosen[x] || x == 0) hints[n++] = (struct sl_expert_hint){x, 0.95f};
    sl_expert_expect(rig.s, 4, hints, n, true);
    assert_int_equal(run_chunk(rig.s, &c, NULL, &right, &e), SLUICE_OK);
    assert_true(right);
    sl_expert_get_stats(rig.s, &st);
    assert_true(st.ahead_bytes > 0);
    assert_true(st.ahead_bytes + st.prompt_bytes <= n * expert_bytes(4));
    assert_true(st.ahead_useful_bytes > 0);
    close_first();
}

/* ---- hot lists ----------------------------------------------------------------------------- */

static void test_warm__hottest_of_another_run__in_slots_before_use(void **state)
{
    (void)state;
    struct sl_expert_id hot[200];
    struct sl_expert_stats st;
    open_first(50, SL_READ_AHEAD_OFF);
    for (uint32_t i = 0; i < 4; i++) token(0, 0), token(2, 0), token(3, 2);
    uint32_t n = sl_expert_hottest(rig.s, hot, 200);
    assert_int_equal(n, 4 + 6 + 2);
    close_first();
    open_first(50, SL_READ_AHEAD_OFF);
    sl_expert_warm(rig.s, hot, n);
    sl_expert_settle(rig.s); /* puts off, does not forget */
    wait_for_guesses();
    sl_expert_poll(rig.s);
    for (int i = 0; i < 100; i++) sl_expert_poll(rig.s), wait_for_guesses();
    for (uint32_t i = 0; i < n; i++)
        assert_true(sl_expert_at_hand(rig.s, hot[i].layer, hot[i].expert));
    sl_expert_get_stats(rig.s, &st);
    assert_int_equal(st.warm_bytes,
                     4 * expert_bytes(0) + 6 * expert_bytes(2) + 2 * expert_bytes(3));
    token(0, 0);
    assert_int_equal(bytes_read(rig.s), 0);
    close_first();
}

static void test_warm__more_than_slots__free_slots_only(void **state)
{
    (void)state;
    struct sl_expert_id all[LAYERS * EXPERTS_MAX];
    uint32_t n = 0;
    struct sl_expert_stats st;
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t x = 0; x < plans[l].n_experts; x++) all[n++] = (struct sl_expert_id){l, x};
    open_first(30, SL_READ_AHEAD_OFF);
    token(4, 3);
    sl_expert_warm(rig.s, all, n);
    for (int i = 0; i < 100; i++) sl_expert_poll(rig.s), wait_for_guesses();
    sl_expert_get_stats(rig.s, &st);
    assert_int_equal(st.evictions, 0);
    for (uint32_t k = 0; k < 4; k++) assert_true(sl_expert_at_hand(rig.s, 4, 3 + k));
    close_first();
}

/* ---- open ---------------------------------------------------------------------------------- */

static void test_open__memory_refused_at_each_place__nothing_left(void **state)
{
    (void)state;
    sluice_error e;
    static const uint32_t percents[] = {0, 100};
    for (size_t i = 0; i < 2; i++) {
        assert_true(rig_prepare(&rig, &setups[1]));
        rig_slots(&rig, percents[i]);
        int n = 0;
        for (;; n++) {
            budget.fail_after = n;
            sluice_err err = sl_expert_store_open(&rig.config, &budget, &e, &rig.s);
            if (err == SLUICE_OK) break;
            assert_null(rig.s);
            assert_true(err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
            assert_int_equal(sl_budget_used(&budget), rig.before_bytes);
            assert_true(n < 100);
        }
        assert_true(n >= 5);
        budget.fail_after = -1;
        rig_close_store(&rig);
        rig_end(&rig);
    }
}

static void test_open__fewer_slots_than_the_floor__refused(void **state)
{
    (void)state;
    sluice_error e;
    assert_true(rig_prepare(&rig, &setups[1]));
    rig_slots(&rig, 0);
    rig.config.n_slots[1]--;
    assert_int_equal(sl_expert_store_open(&rig.config, &budget, &e, &rig.s), SLUICE_E_BUDGET);
    assert_null(rig.s);
    rig_end(&rig);
}

struct counted {
    uint64_t bytes;
    int left; /* calls until it gives up; 0: never */
};

static int count_progress(void *user, uint64_t bytes)
{
    struct counted *c = user;
    c->bytes += bytes;
    return c->left > 0 && --c->left == 0;
}

static void test_open__slot_for_each_expert__all_read_once(void **state)
{
    (void)state;
    struct sl_expert_stats st;
    for (size_t i = 0; i < SL_ARRAY_LEN(setups); i++) {
        struct counted c = {0, 0};
        if (!rig_prepare(&rig, &setups[i])) continue;
        rig_slots(&rig, 100);
        rig.config.progress = count_progress;
        rig.config.progress_user = &c;
        rig_open(&rig);
        assert_int_equal(c.bytes, rig.sizes.file_bytes);
        sl_expert_get_stats(rig.s, &st);
        assert_int_equal(st.load_bytes, rig.sizes.file_bytes);
        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint32_t x = 0; x + plans[l].top_k <= plans[l].n_experts && plans[l].n_experts;
                 x++)
                token(l, x);
        assert_int_equal(bytes_read(rig.s), 0);
        assert_true(sl_expert_store_shrink(rig.s, 300000) >= 300000);
        play(&rig, 60);
        rig_close_store(&rig);
        rig_end(&rig);
    }
}

static void test_open__progress_gives_up__cancelled(void **state)
{
    (void)state;
    sluice_error e;
    for (size_t i = 0; i < SL_ARRAY_LEN(setups); i++)
        for (int left = 1; left < 4; left++) {
            struct counted c = {0, left};
            if (!rig_prepare(&rig, &setups[i])) continue;
            rig_slots(&rig, 100);
            rig.config.progress = count_progress;
            rig.config.progress_user = &c;
            assert_int_equal(sl_expert_store_open(&rig.config, &budget, &e, &rig.s),
                             SLUICE_E_CANCELLED);
            assert_null(rig.s);
            assert_int_equal(sl_io_outstanding(rig.io), 0);
            rig_end(&rig);
        }
}

static void test_open__expert_past_the_end__error_names_layer_and_expert(void **state)
{
    (void)state;
    sluice_error e;
    uint64_t at = whole[4][2].offset;
    whole[4][2].offset = SHARD_BYTES - 3 * plans[4].bytes[2] - 100; /* three, then a piece */
    assert_true(rig_prepare(&rig, &setups[1]));
    rig_slots(&rig, 100);
    assert_int_equal(sl_expert_store_open(&rig.config, &budget, &e, &rig.s), SLUICE_E_TRUNCATED);
    assert_null(rig.s);
    assert_int_equal(e.layer, 4);
    assert_in_range(e.expert, 3, 15);
    assert_non_null(strstr(e.text, path[1]));
    whole[4][2].offset = at;
    rig_end(&rig);
}

/* ---- the plan ------------------------------------------------------------------------------ */

static void test_sizes__every_budget__as_many_slots_as_fit(void **state)
{
    (void)state;
    struct sl_expert_sizes z;
    uint32_t n[SL_EC_CLASSES_MAX], before[SL_EC_CLASSES_MAX] = {0};
    sl_expert_sizes(shapes, LAYERS, &z);
    assert_int_equal(z.n_classes, 3);
    uint64_t least = sl_expert_store_bytes(shapes, LAYERS, &z, z.floor.fewest);
    uint64_t most = sl_expert_store_bytes(shapes, LAYERS, &z, z.n_experts);
    assert_false(sl_expert_slots_for_bytes(shapes, LAYERS, &z, least - 1, n));
    assert_memory_equal(n, z.floor.fewest, sizeof n);
    for (uint64_t bytes = least; bytes <= most + 5000; bytes += 3001) {
        assert_true(sl_expert_slots_for_bytes(shapes, LAYERS, &z, bytes, n));
        assert_true(sl_expert_store_bytes(shapes, LAYERS, &z, n) <= bytes);
        uint64_t total = 0, total_before = 0;
        for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) {
            assert_true(n[k] >= z.floor.fewest[k] && n[k] <= z.n_experts[k]);
            total += n[k], total_before += before[k];
            if (n[k] == z.n_experts[k]) continue;
            n[k]++; /* one more of any class is too many */
            assert_true(sl_expert_store_bytes(shapes, LAYERS, &z, n) > bytes);
            n[k]--;
        }
        assert_true(total + SL_EC_CLASSES_MAX >= total_before);
        memcpy(before, n, sizeof n);
    }
    assert_memory_equal(n, z.n_experts, sizeof n);
}

static void test_sizes__every_count__that_many_slots(void **state)
{
    (void)state;
    struct sl_expert_sizes z;
    uint32_t n[SL_EC_CLASSES_MAX];
    sl_expert_sizes(shapes, LAYERS, &z);
    for (uint32_t total = 0; total < 80; total++) {
        uint32_t sum = 0;
        bool fits = sl_expert_slots_for_count(&z, total, n);
        for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) sum += n[k];
        assert_true(fits == (total >= 4 + 6 + 2));
        if (fits) assert_int_equal(sum, total < 64 ? total : 64);
    }
}

/* ---- mapped files -------------------------------------------------------------------------- */

#define MODEL SLUICE_SOURCE_DIR "/tests/golden/qwen3moe-Q8_0/model.gguf"

static void test_map__golden_file__bytes_of_the_file(void **state)
{
    (void)state;
    static const char *const names[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    sluice_error e;
    struct sl_gguf *g;
    struct sl_expert_shape shape = {.top_k = 2, .n_parts = 3};
    struct sl_expert_source source = {.tensor = {NULL}};
    assert_int_equal(sl_gguf_open(MODEL, &budget, &e, &g), SLUICE_OK);
    for (uint32_t p = 0; p < 3; p++) {
        char full[64];
        (void)snprintf(full, sizeof full, "blk.1.%s.weight", names[p]);
        const struct sl_gguf_tensor *t = sl_gguf_find_tensor(g, full);
        source.tensor[p] = t;
        shape.n_experts = (uint32_t)t->dims[2];
        shape.part[p].bytes = t->dims[1] * t->row_bytes;
    }
    struct sl_expert_store_config c = {
        .gguf = g, .map = true, .shapes = &shape, .sources = &source, .n_layers = 1};
    struct sl_expert_store *s;
    assert_int_equal(sl_expert_store_open(&c, &budget, &e, &s), SLUICE_OK);
    const uint32_t chosen[] = {3, 1, 0, 3};
    struct sl_expert_need need = {0, 2, 2, chosen, true};
    struct sl_expert_ready out[4];
    struct sl_expert_stats st;
    uint32_t n;
    sl_expert_begin(s, &need);
    assert_int_equal(sl_expert_next(s, out, 4, &n, &e), SLUICE_OK);
    assert_int_equal(n, 3);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(out[i].expert, i == 2 ? 3 : i);
        for (uint32_t p = 0; p < 3; p++) {
            uint64_t bytes = shape.part[p].bytes;
            unsigned char *want = malloc(bytes);
            assert_int_equal(sl_file_read_at(sl_gguf_file(g, 0),
                                             source.tensor[p]->offset + out[i].expert * bytes, want,
                                             bytes, &e),
                             SLUICE_OK);
            assert_memory_equal(out[i].view.part[p], want, bytes);
            free(want);
        }
        sl_expert_release(s, out[i].expert);
    }
    assert_int_equal(sl_expert_next(s, out, 4, &n, &e), SLUICE_OK);
    assert_int_equal(n, 0);
    sl_expert_end(s);
    sl_expert_settle(s);
    sl_expert_get_stats(s, &st);
    assert_int_equal(st.uses, 4);
    assert_int_equal(st.hits, 4);
    sl_expert_store_close(s);
    sl_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store__random_operations_no_reading_ahead__right_bytes),
        cmocka_unit_test(test_store__random_operations_reading_ahead__right_bytes),
        cmocka_unit_test(test_store__random_operations_forced_guesses__right_bytes),
        cmocka_unit_test(test_decode__same_experts_again__hits_and_nothing_read),
        cmocka_unit_test(test_decode__reread_after_eviction__sums_compared),
        cmocka_unit_test(test_guess__came_true__useful_and_no_demand_read),
        cmocka_unit_test(test_guess__wrong_and_evicted__wasted),
        cmocka_unit_test(test_guess__mode_off__nothing_is_read),
        cmocka_unit_test(test_guess__coming_layer_of_a_prompt__taken_over),
        cmocka_unit_test(test_warm__hottest_of_another_run__in_slots_before_use),
        cmocka_unit_test(test_warm__more_than_slots__free_slots_only),
        cmocka_unit_test(test_open__memory_refused_at_each_place__nothing_left),
        cmocka_unit_test(test_open__fewer_slots_than_the_floor__refused),
        cmocka_unit_test(test_open__slot_for_each_expert__all_read_once),
        cmocka_unit_test(test_open__progress_gives_up__cancelled),
        cmocka_unit_test(test_open__expert_past_the_end__error_names_layer_and_expert),
        cmocka_unit_test(test_sizes__every_budget__as_many_slots_as_fit),
        cmocka_unit_test(test_sizes__every_count__that_many_slots),
        cmocka_unit_test(test_map__golden_file__bytes_of_the_file),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
