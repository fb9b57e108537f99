/* What the books of the expert cache cost: finding an expert, and evicting one for another, from
 * 100 to 50,000 slots of one model.
 *
 *     expert_cache_bench [POLICY]
 *
 * Columns: slots; ns for sl_ec_find of random experts; ns for a miss (reserve with an eviction, and
 * arrival) while the layers are visited in turn; ns for the visit itself, of 8 experts. A miss
 * includes its share of renewing the visited layer's keys, which grows with the residents of one
 * layer up to its number of experts and no further. The best of many short runs each, since another
 * program on the machine can only add time. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "expert_cache/expert_cache.h"

#define LAYERS 128
#define EXPERTS 512
#define TOP_K 8
#define FINDS 50000
#define VISITS 512
#define RUNS 150
#define WARM_UP_RUNS 70 /* what a policy remembers of each layer is full: 280 visits */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

struct cost {
    double find_ns, miss_ns, visit_ns;
    uint64_t checksum; /* keeps the calls from being left out */
};

static void time_finds(const struct sl_ec *c, uint64_t *seed, struct cost *best)
{
    uint64_t start = now_ns();
    for (uint32_t i = 0; i < FINDS; i++) {
        uint32_t r = next_random(seed);
        best->checksum += sl_ec_find(c, r % LAYERS, (r >> 8) % EXPERTS);
    }
    double ns = (double)(now_ns() - start) / FINDS;
    if (ns < best->find_ns) best->find_ns = ns;
}

static uint32_t miss_all(struct sl_ec *c, uint32_t layer, const uint32_t *chosen)
{
    uint32_t misses = 0;
    for (uint32_t i = 0; i < TOP_K; i++) {
        struct sl_ec_slot_of got;
        if (sl_ec_find(c, layer, chosen[i]) != SL_EC_NONE) continue;
        if (sl_ec_reserve(c, layer, chosen[i], SL_EC_DEMAND, &got) != SL_EC_ENTERS) exit(1);
        sl_ec_arrived(c, got.slot, 1);
        misses++;
    }
    return misses;
}

static void time_visits(struct sl_ec *c, uint64_t *seed, struct cost *best)
{
    uint64_t visit_ns = 0, miss_ns = 0, misses = 0;
    for (uint32_t v = 0; v < VISITS; v++) {
        uint32_t chosen[TOP_K], layer = v % LAYERS;
        for (uint32_t i = 0; i < TOP_K; i++)
            chosen[i] = i * (EXPERTS / TOP_K) + next_random(seed) % (EXPERTS / TOP_K);
        uint64_t a = now_ns();
        sl_ec_visit(c, layer, chosen, TOP_K);
        uint64_t b = now_ns();
        misses += miss_all(c, layer, chosen);
        miss_ns += now_ns() - b;
        visit_ns += b - a;
    }
    double per_miss = (double)miss_ns / (double)misses, per_visit = (double)visit_ns / VISITS;
    if (per_miss < best->miss_ns) best->miss_ns = per_miss;
    if (per_visit < best->visit_ns) best->visit_ns = per_visit;
}

static int measure(const struct sl_ec_policy *policy, uint32_t n_slots)
{
    struct sl_budget budget;
    sl_budget_init(&budget, UINT64_MAX);
    struct sl_ec_layer layers[LAYERS];
    for (int l = 0; l < LAYERS; l++) layers[l] = (struct sl_ec_layer){EXPERTS, TOP_K, 1, 0};
    struct sl_ec_config config = {layers, LAYERS, {n_slots}, 1, policy};
    struct sl_ec *c;
    sluice_error e;
    if (sl_ec_open(&config, &budget, &e, &c) != SLUICE_OK) return 1;
    uint64_t seed = 1;
    for (uint32_t i = 0; i < n_slots; i++) { /* the misses that are timed all evict */
        struct sl_ec_slot_of got;
        if (sl_ec_reserve(c, i % LAYERS, i / LAYERS, SL_EC_DEMAND, &got) != SL_EC_ENTERS) return 1;
        sl_ec_arrived(c, got.slot, 1);
    }
    struct cost best = {1e9, 1e9, 1e9, 0};
    for (int run = 0; run < WARM_UP_RUNS; run++) time_visits(c, &seed, &best);
    best = (struct cost){1e9, 1e9, 1e9, 0};
    for (int run = 0; run < RUNS; run++) {
        time_visits(c, &seed, &best);
        time_finds(c, &seed, &best);
    }
    printf("%8u %8.1f %8.0f %8.0f    (%llx)\n", n_slots, best.find_ns, best.miss_ns, best.visit_ns,
           (unsigned long long)best.checksum & 0xf);
    sl_ec_close(c);
    return 0;
}

int main(int argc, char **argv)
{
    const struct sl_ec_policy *policy = argc > 1 ? sl_ec_policy_find(argv[1]) : sl_ec_policy_at(0);
    if (policy == NULL) {
        fprintf(stderr, "no such policy\n");
        return 2;
    }
    static const uint32_t sizes[] = {100, 300, 1000, 3000, 10000, 30000, 50000};
    printf("%s, %d layers x %d experts, top-%d\n   slots  find ns  miss ns visit ns\n",
           policy->name, LAYERS, EXPERTS, TOP_K);
    int failed = 0;
    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) failed |= measure(policy, sizes[i]);
    return failed;
}
