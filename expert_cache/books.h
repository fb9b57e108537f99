/* The tables behind expert_cache.h, for the files of this folder only.
 *
 *   books_open.c     open, close, figures       coldest.c    who may go, and who goes first
 *   slots.c          visits, leases, and who    policy_*.c   the scores that decide it
 *                    gets a slot from whom      recall.c     what the text's past adds to them
 *   size_classes.c   few slot sizes for many    check.c      whether the tables agree
 *
 * An entry for every expert of every layer (the direct table, found by layer.first + expert), a
 * record for every slot, and for each layer two rows of keys, by which coldest.c finds victims. */
#ifndef SL_BOOKS_H
#define SL_BOOKS_H

#include "expert_cache/expert_cache.h"

enum slot_state {
    SLOT_EMPTY = 0,
    SLOT_IN_FLIGHT = 1,
    SLOT_READY = 2,
    SLOT_DOOMED = 3, /* its read failed; waits for its leases */
    SLOT_CLOSED = 4,
};

struct slot {
    uint32_t layer, expert; /* SL_EC_NONE when empty, doomed or closed */
    uint32_t leases;
    uint32_t next_free; /* in the class's list of empty slots */
    uint8_t state;      /* enum slot_state */
    uint8_t parts;      /* arrived */
    uint8_t size_class;
    bool passing; /* empties itself when released */
    bool guess;   /* read on a guess and not used since */
};

struct entry {
    struct sl_ec_heat heat;
    uint64_t protected_until; /* no victim while the clock is below */
    uint32_t slot;            /* or SL_EC_NONE */
};

/* Position in the order of eviction: lowest first. */
struct rank {
    double score;
    uint64_t last_use;
    uint32_t id; /* index of the entry; SL_EC_NONE: nobody */
};

enum { COLD_FREE = 0, COLD_PROTECTED = 1, COLD_KINDS = 2 };

struct layer {
    uint32_t first;     /* entry of expert 0 */
    uint32_t first_key; /* in each row of keys; keys_of rounds the number of experts up */
    uint32_t n_experts, n_residents;
    uint32_t turn; /* among the layers with experts */
    uint32_t top_k;
    uint32_t first_past; /* in recall.past */
    uint32_t size_class; /* of all its experts */
    uint8_t all_parts;
    bool keyed;       /* the keys are the scores as of its last visit */
    bool known;       /* cold[] is right, until the clock reaches expires */
    bool foreseen;    /* recall.follows is as of its last visit */
    uint64_t visits;  /* so far */
    uint64_t expires; /* not after the first of its protections ends */
    uint32_t n_evictable[COLD_KINDS];
    struct rank cold[COLD_KINDS]; /* candidates, by whether they are protected */
};

#define RECALL_SPAN 256u
#define RECALL_NOBODY SL_EXPERTS_MAX /* fills a choice of fewer than top_k */

/* What recall.c remembers. past NULL: nothing, since the policy does not ask or every expert has a
 * slot. */
struct recall {
    uint16_t *past; /* each layer's [RECALL_SPAN][top_k]: choices by visit, modulo the span */
    double *alike;  /* [n_turns][RECALL_SPAN]: likeness of lag 1 on, as of the layer's last visit */
    double *follows;                 /* [n_entries]: what may be expected next */
    uint32_t latest;                 /* layer visited last, or SL_EC_NONE */
    uint8_t mark[RECALL_NOBODY + 1]; /* scratch; 0 between calls */
};

#define KEY_LANES 4 /* each layer's keys are padded to a multiple */

struct size_class {
    uint32_t first_slot, n_slots;
    uint32_t free_head, n_free, n_closed, n_passing;
    uint32_t fewest;
    uint32_t first_member, n_members; /* layers, in sl_ec.members */
};

struct sl_ec {
    struct sl_arena arena;
    const struct sl_ec_policy *policy;
    struct layer *layers;     /* [n_layers] */
    struct entry *entries;    /* [n_entries] */
    struct slot *slots;       /* [n_slots] */
    double *keys[COLD_KINDS]; /* [n_keys]: scores of evictable experts, infinity for others */
    uint32_t *members;        /* layers with experts, class by class */
    double *wait;             /* [n_turns + 1]: what policy->wait says, 0 where it is NULL */
    struct recall recall;
    uint32_t n_layers, n_entries, n_slots, n_turns;
    uint32_t ring_slots;
    uint32_t visiting; /* layer of the visit under way, or SL_EC_NONE */
    uint32_t now_turn; /* its turn */
    uint32_t n_chosen; /* experts of that visit */
    uint32_t chosen[SL_EXPERTS_MAX];
    uint64_t clock; /* visits of all layers */
    uint64_t use_stamp;
    uint64_t changes; /* paces the validator in debug builds */
    struct size_class classes[SL_EC_CLASSES_MAX];
    struct sl_ec_stats stats;
};

static inline struct entry *entry_of(const struct sl_ec *c, uint32_t layer, uint32_t expert)
{
    return &c->entries[c->layers[layer].first + expert];
}

/* a is evicted before b. */
static inline bool rank_before(const struct rank *a, const struct rank *b)
{
    if (a->id == SL_EC_NONE || b->id == SL_EC_NONE) return a->id != SL_EC_NONE;
    if (a->score != b->score) return a->score < b->score;
    if (a->last_use != b->last_use) return a->last_use < b->last_use;
    return a->id < b->id;
}

static inline uint32_t keys_of(uint32_t n_experts)
{
    return (n_experts + KEY_LANES - 1) / KEY_LANES * KEY_LANES;
}

/* Could be a victim, protection aside: what the keys say, found from the slots. */
bool books_evictable(const struct sl_ec *c, uint32_t layer, uint32_t expert);
/* Place in its own layer's order, which has been foreseen. */
struct rank books_rank(const struct sl_ec *c, uint32_t layer, uint32_t expert);
/* The same, comparable with those of other layers: less what its layer's wait takes off. */
struct rank books_rank_overall(struct sl_ec *c, uint32_t layer, uint32_t expert);
/* To be called when an expert may have become evictable (nothing happens where it is not, or was
 * already), and when it ceases to be (nothing happens where it was not). */
void books_offer(struct sl_ec *c, uint32_t layer, uint32_t expert);
void books_withdraw(struct sl_ec *c, uint32_t layer, uint32_t expert);
/* A new visit of the layer, with this choice: its scores have changed. */
void books_aged(struct sl_ec *c, uint32_t layer, const uint32_t *experts, uint32_t n);

/* The choice of a visit that has been counted in layer.visits. Nothing where nothing is kept. */
void recall_visit(struct sl_ec *c, uint32_t layer, const uint32_t *experts, uint32_t n);
/* Brings the layer's part of recall.follows up to date. */
void recall_foresee(struct sl_ec *c, uint32_t layer);

struct victims {
    struct rank best[COLD_KINDS]; /* overall ranks */
    uint32_t layer[COLD_KINDS];
};
void books_coldest(struct sl_ec *c, uint32_t size_class, struct victims *out);

/* Debug builds: sl_ec_check, at intervals that keep its cost per call bounded. */
#ifdef NDEBUG
static inline void books_changed(struct sl_ec *c) { (void)c; }
#else
void books_changed(struct sl_ec *c);
#endif

#endif
