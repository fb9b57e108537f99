/* The threshold moves in trials.
 *
 * A trial is over after TRIAL_READS reads, or after TRIAL_LAYERS layers with at least READS_MIN of
 * them. Where its reads cost more than they saved, the threshold is raised by a large step: a drive
 * that demand reads keep busy is left alone after a few trials. Where they paid, it moves a small
 * step towards the probability at which a guess breaks even, what a read costs over what a right
 * guess saves: the average pays long after the least likely guesses have ceased to. A threshold
 * above the start that no guess reaches counts as failing, so that it does not stay there unproven.
 *
 * Once stopped, it starts again high, where guesses are nearly sure, and falls from there. Every
 * failure in a row doubles the pause. Steps and thresholds are sums of powers of two: exact. */
#include "expert_cache/read_ahead.h"

#define THRESHOLD_START 0.5f
#define THRESHOLD_MIN SL_READ_AHEAD_PROBABILITY_MIN
#define THRESHOLD_RETRY 0.75f
#define THRESHOLD_STOPPED 2.0f
#define THRESHOLD_MAX 0.95f /* past it reading ahead stops */
#define STEP_FAILED 0.125f
#define STEP 0.0625f

#define TRIAL_READS 64
#define TRIAL_LAYERS 2000
#define READS_MIN 8 /* fewer say nothing */

#define PAUSE_LAYERS 20000
#define PAUSE_DOUBLINGS_MAX 6

static void begin_trial(struct sl_read_ahead *r)
{
    r->saved_ns = r->cost_ns = 0;
    r->reads = r->came_true = r->layers = 0;
}

void sl_read_ahead_init(struct sl_read_ahead *r, enum sl_read_ahead_mode mode)
{
    *r = (struct sl_read_ahead){.mode = mode, .threshold = THRESHOLD_START};
}

bool sl_read_ahead_wanted(const struct sl_read_ahead *r, float probability)
{
    if (r->mode == SL_READ_AHEAD_OFF) return false;
    if (r->mode == SL_READ_AHEAD_FORCED) return probability >= THRESHOLD_MIN;
    return probability >= r->threshold;
}

bool sl_read_ahead_stopped(const struct sl_read_ahead *r)
{
    return r->mode == SL_READ_AHEAD_OFF ||
           (r->mode == SL_READ_AHEAD_AUTO && r->threshold > THRESHOLD_MAX);
}

void sl_read_ahead_issued(struct sl_read_ahead *r) { r->reads++; }
void sl_read_ahead_lost(struct sl_read_ahead *r, uint64_t ns) { r->cost_ns += ns; }

void sl_read_ahead_saved(struct sl_read_ahead *r, uint64_t ns)
{
    r->came_true++;
    r->saved_ns += ns;
}

static void raise_threshold(struct sl_read_ahead *r)
{
    r->threshold += STEP_FAILED;
    if (r->threshold <= THRESHOLD_MAX) return;
    r->threshold = THRESHOLD_STOPPED;
    r->strikes++;
}

static void end_trial(struct sl_read_ahead *r)
{
    if (r->saved_ns <= r->cost_ns) {
        raise_threshold(r);
        begin_trial(r);
        return;
    }
    double read_cost = (double)r->cost_ns / (double)r->reads;
    double break_even = read_cost * (double)r->came_true / (double)r->saved_ns;
    double up = (double)r->threshold + (double)STEP, down = (double)r->threshold - (double)STEP;
    if ((double)r->threshold < break_even && up <= (double)THRESHOLD_MAX)
        r->threshold = (float)up;
    else if (down >= break_even && down >= (double)THRESHOLD_MIN)
        r->threshold = (float)down;
    r->strikes = 0;
    begin_trial(r);
}

static uint64_t pause_layers(const struct sl_read_ahead *r)
{
    uint64_t doublings = sl_min_u64(r->strikes - 1, PAUSE_DOUBLINGS_MAX);
    return (uint64_t)PAUSE_LAYERS << doublings;
}

void sl_read_ahead_layer(struct sl_read_ahead *r)
{
    if (r->mode != SL_READ_AHEAD_AUTO) return;
    r->layers++;
    if (sl_read_ahead_stopped(r)) {
        if (r->layers < pause_layers(r)) return;
        r->threshold = THRESHOLD_RETRY;
        begin_trial(r);
        return;
    }
    if (r->reads >= TRIAL_READS) {
        end_trial(r);
        return;
    }
    if (r->layers < TRIAL_LAYERS) return;
    if (r->reads >= READS_MIN) {
        end_trial(r);
    } else if (r->threshold > THRESHOLD_START) {
        raise_threshold(r);
        begin_trial(r);
    } else {
        r->layers = 0; /* hardly anything to read ahead: nothing is lost by waiting for more */
    }
}
