/* What the tokens of a visit chose, in the shapes that replaying needs: token by token, and each
 * expert once. For trace/ only. */
#ifndef SL_REPLAY_CHOICE_H
#define SL_REPLAY_CHOICE_H

#include "trace/trace.h"

/* Whether an expert was in a slot when it was chosen. */
enum replay_there { REPLAY_MISSING = 0, REPLAY_FLYING = 1, REPLAY_AT_HAND = 2 };

struct replay_choice {
    uint64_t visit;
    uint32_t layer, n_tokens;
    bool in_order;   /* several tokens at once, which go through the ring */
    bool is_prompt;  /* not decoded */
    uint32_t n_uses; /* over all tokens */
    uint32_t count[SL_CHUNK_MAX];
    uint32_t chosen[SL_CHUNK_MAX * SL_TOP_K_MAX]; /* token after token */
    uint32_t n;                                   /* distinct experts, in the order of first use */
    uint32_t expert[SL_EXPERTS_MAX];
    uint32_t uses[SL_EXPERTS_MAX];
    uint8_t there[SL_EXPERTS_MAX];  /* enum replay_there; who replays the visit fills it */
    uint32_t place[SL_EXPERTS_MAX]; /* of a chosen expert in expert[] */
    uint64_t stamp, seen_visit[SL_EXPERTS_MAX], seen_token[SL_EXPERTS_MAX]; /* scratch */
};

/* Zeroed is a fresh one; it may be filled any number of times. */
void replay_collect(const struct sl_trace *t, uint64_t visit, struct replay_choice *out);

/* Whether the eval is of a prompt, or several tokens at once: no decoded token. */
bool replay_is_prompt(const struct sl_trace *t, uint64_t visit);

/* The most experts that a token chooses in each layer with experts, of the header and of what the
 * visits have. */
void replay_top_k(const struct sl_trace *t, uint32_t top_k[SL_LAYERS_MAX]);

/* Number of the first expert of each layer among all; returns how many there are. */
uint32_t replay_first_expert(const struct sl_trace *t, uint32_t first[SL_LAYERS_MAX]);

#endif
