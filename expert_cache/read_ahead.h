/* Whether reading ahead on a guess pays, learned from the reads themselves.
 *
 * A guess that comes true in time saves the stall of its read; one that is wrong costs the drive
 * time that demand reads wait behind it, and maybe an evicted expert. Both are entered in a ledger
 * per read. From it the threshold moves: a guess is read only if its probability reaches it; where
 * the ledger is in the red even at a high threshold reading ahead stops, and is tried again after a
 * while, since text and drive change.
 *
 * Pure arithmetic on numbers that are handed in; no clock, no reads. Thread: the driver. */
#ifndef SL_READ_AHEAD_H
#define SL_READ_AHEAD_H

#include "base/base.h"

/* A guess below it is never read ahead. */
#define SL_READ_AHEAD_PROBABILITY_MIN 0.25f

enum sl_read_ahead_mode {
    SL_READ_AHEAD_AUTO = 0,
    SL_READ_AHEAD_OFF = 1,
    SL_READ_AHEAD_FORCED = 2, /* every guess from the minimum on, whatever the ledger says: tests */
};

struct sl_read_ahead {
    enum sl_read_ahead_mode mode;
    float threshold;            /* above 1: stopped */
    uint64_t saved_ns, cost_ns; /* of the present trial */
    uint64_t reads, came_true;  /* guesses in the present trial */
    uint64_t layers;            /* of the present trial, or of the pause */
    uint32_t strikes;           /* stops in a row without a trial that paid */
};

void sl_read_ahead_init(struct sl_read_ahead *r, enum sl_read_ahead_mode mode);

/* Read a missing expert of this probability ahead? */
bool sl_read_ahead_wanted(const struct sl_read_ahead *r, float probability);
/* Nothing is wanted at present: guessing need not be paid for, but to protect. */
bool sl_read_ahead_stopped(const struct sl_read_ahead *r);
/* Guesses at or above it protect a resident expert from eviction, whatever the mode. */
#define SL_PROTECT_PROBABILITY 0.5f

/* The ledger. issued: a guess read was started. saved: one came true, and a demand read of it
 * would have stalled for so long beyond what it did (0 where it came too late to help). lost:
 * demand reads waited so long behind guess reads, or a guess was dropped unused after taking the
 * drive for so long while it was wanted. */
void sl_read_ahead_issued(struct sl_read_ahead *r);
void sl_read_ahead_saved(struct sl_read_ahead *r, uint64_t ns);
void sl_read_ahead_lost(struct sl_read_ahead *r, uint64_t ns);
/* Once for each layer of each decode token; moves the threshold when enough has been seen. */
void sl_read_ahead_layer(struct sl_read_ahead *r);

#endif
