/* Where the time of evaluations goes: one clock that runs in one phase at a time. Thread: the
 * driver. */
#ifndef SL_PHASES_H
#define SL_PHASES_H

#include "base/clock.h"

enum sl_phase {
    SL_PHASE_OTHER,      /* embedding, norms, residual sums */
    SL_PHASE_PROJECTION, /* products of resident weights, and making their inputs' codes */
    SL_PHASE_MIXING,     /* attention to earlier positions, recurrent state; RoPE and head norms */
    SL_PHASE_ROUTING,    /* router scores and choices; guesses */
    SL_PHASE_EXPERT,     /* products of routed experts, and adding them up */
    SL_PHASE_WAITING,    /* taking experts over from the drive: their checksums, and waiting */
    SL_PHASE_HEAD        /* logits */
};
#define SL_PHASES 7

struct sl_phases {
    uint64_t ns[SL_PHASES];
    uint64_t since_ns;
    enum sl_phase now;
};

static inline void sl_phase_start(struct sl_phases *p)
{
    p->now = SL_PHASE_OTHER;
    p->since_ns = sl_now_ns();
}

/* Ends the phase under way, and begins the next. Returns the one that ended. */
static inline enum sl_phase sl_phase_next(struct sl_phases *p, enum sl_phase next)
{
    uint64_t now_ns = sl_now_ns();
    enum sl_phase ended = p->now;
    p->ns[ended] += now_ns - p->since_ns;
    p->since_ns = now_ns;
    p->now = next;
    return ended;
}

#endif
