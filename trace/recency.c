/* LRU stack distances by a binary indexed tree over times of last uses; see recency.h. Times are
 * counted up to a few times the number of keys and then numbered anew, so memory does not grow with
 * the trace. Source: Fenwick, "A new data structure for cumulative frequency tables", Software:
 * Practice and Experience 24 (1994). */
#include "trace/recency.h"

#include <string.h>

sluice_err sl_recency_open(struct sl_recency *r, uint32_t n_keys, struct sl_budget *b,
                           sluice_error *e)
{
    *r = (struct sl_recency){.n_keys = n_keys, .n_times = 3 * n_keys + 64};
    r->time_of = sl_alloc(b, n_keys, sizeof *r->time_of);
    r->key_at = sl_alloc(b, (uint64_t)r->n_times + 1, sizeof *r->key_at);
    r->sums = sl_alloc(b, (uint64_t)r->n_times + 1, sizeof *r->sums);
    if (r->time_of && r->key_at && r->sums) return SLUICE_OK;
    sl_recency_close(r);
    return sl_fail(e, SLUICE_E_BUDGET, "distances of %u experts do not fit into memory", n_keys);
}

void sl_recency_close(struct sl_recency *r)
{
    sl_free(r->time_of);
    sl_free(r->key_at);
    sl_free(r->sums);
    *r = (struct sl_recency){0};
}

static void add(struct sl_recency *r, uint32_t time, uint32_t what)
{
    for (; time <= r->n_times; time += time & -time) r->sums[time] += what;
}

/* Last uses at this time and before. */
static uint32_t up_to(const struct sl_recency *r, uint32_t time)
{
    uint32_t n = 0;
    for (; time; time -= time & -time) n += r->sums[time];
    return n;
}

bool sl_recency_distance(const struct sl_recency *r, uint32_t key, uint32_t *out)
{
    uint32_t time = r->time_of[key];
    if (time == 0) return false;
    *out = up_to(r, r->clock) - up_to(r, time);
    return true;
}

/* Gives the last uses the times 1, 2, ... in the order they have. */
static void number_anew(struct sl_recency *r)
{
    uint32_t n = 0;
    memset(r->sums, 0, ((size_t)r->n_times + 1) * sizeof *r->sums);
    for (uint32_t time = 1; time <= r->clock; time++) {
        uint32_t key = r->key_at[time];
        if (r->time_of[key] != time) continue;
        r->key_at[++n] = key;
        r->time_of[key] = n;
        add(r, n, 1);
    }
    r->clock = n;
}

void sl_recency_use(struct sl_recency *r, uint32_t key)
{
    if (r->clock == r->n_times) number_anew(r);
    if (r->time_of[key]) add(r, r->time_of[key], UINT32_MAX); /* minus one */
    r->time_of[key] = ++r->clock;
    r->key_at[r->clock] = key;
    add(r, r->clock, 1);
}
