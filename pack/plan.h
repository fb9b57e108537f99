/* What packing will write: for every tensor of a source its type, and the recipe text that says so.
 *
 * Types are given to classes, not to tensors: a resident tensor is a class by itself, and of the
 * experts of a layer all gates are one, all ups, all downs. The engine computes the experts of a
 * layer alike, and a slot of its cache is as large as the largest expert, so a single expert of a
 * better type would cost memory as if all had it.
 *
 * Thread: one. */
#ifndef SL_PACK_PLAN_H
#define SL_PACK_PLAN_H

#include "formats/container_write.h"
#include "pack/column_stats.h"
#include "pack/recipe.h"
#include "pack/source.h"

enum sl_pack_kind {
    SL_PACK_EMBEDDING,
    SL_PACK_OUTPUT,
    SL_PACK_ATTENTION,
    SL_PACK_RECURRENT, /* DeltaNet and other state-space parts */
    SL_PACK_FFN,       /* dense feed-forward */
    SL_PACK_SHARED,    /* shared experts */
    SL_PACK_ROUTER,
    SL_PACK_NORM,
    SL_PACK_OTHER,
    SL_PACK_GATE, /* of routed experts, from here on */
    SL_PACK_UP,
    SL_PACK_DOWN,
    SL_PACK_KINDS,
};
const char *sl_pack_kind_name(enum sl_pack_kind kind); /* "experts, down" */

struct sl_pack_class {
    struct sl_str name; /* the tensor's, or that of the stack of experts */
    enum sl_pack_kind kind;
    int32_t layer;       /* -1: none in its name */
    uint32_t first, n;   /* index of its first tensor, and how many there are */
    uint32_t from, type; /* in the source, in the container */
    uint32_t wanted;     /* what was asked for, where that could not be: else as type */
    uint32_t rule;       /* of the recipe; UINT32_MAX: the built-in rules */
    uint64_t rows, cols; /* of each tensor */
    uint64_t from_bytes; /* of all its tensors */
    uint64_t bytes;      /* the same in type */
    uint64_t unreached;  /* tensors of which the statistics know nothing */
};

struct sl_pack_request {
    uint32_t bits;                       /* of experts: 2..6, 8; 0: keep everything */
    const struct sl_recipe *recipe;      /* before the built-in rules; NULL */
    const struct sl_column_stats *stats; /* NULL */
    const char *stats_name;              /* of their file, for messages; NULL */
    const char *creator;                 /* "sluice 0.1.0" */
};

struct sl_pack_plan {
    struct sl_budget *budget;
    const struct sl_source *source;
    struct sl_pack_class *classes;
    uint32_t n_classes;
    uint32_t *class_of;    /* [n_tensors] */
    const float **weights; /* [n_tensors] of the statistics; NULL where they know nothing */
    uint64_t n_reached;    /* tensors that have weights */
    uint64_t n_weights;    /* elements of all tensors */
    int32_t first_layer;   /* that has experts */
    int32_t early_end;     /* layers before it are the first ones, for the built-in rules */
    bool recurrent;        /* there are recurrent layers: the same */
    /* What sl_pack_plan_settle fills. */
    struct sl_container_tensor *tensors; /* [n_tensors] */
    char *recipe;
    uint64_t recipe_bytes, recipe_capacity;
    struct sl_arena names;
};

/* Vectors and narrow matrices stay exact whatever a recipe says: as they are, or float32. */
bool sl_pack_is_exact(const struct sl_pack_class *c);

/* Whether there are built-in rules for so many bits. */
bool sl_pack_bits_known(uint32_t bits);

/* request is borrowed until close, as the source is. SLUICE_E_FORMAT (a recipe that gives experts
 * of one class different types; statistics of another model), SLUICE_E_UNSUPPORTED (experts of one
 * class that are not alike), SLUICE_E_NOMEM. */
SL_MUST_CHECK sluice_err sl_pack_plan_make(const struct sl_source *s,
                                           const struct sl_pack_request *request,
                                           struct sl_budget *b, sluice_error *e,
                                           struct sl_pack_plan *plan);
void sl_pack_plan_deinit(struct sl_pack_plan *plan);

/* Gives a class another type, if it can have that: else false. */
bool sl_pack_plan_set(struct sl_pack_plan *plan, uint32_t class_index, uint32_t type);
/* The same, only asked; *bytes: of all its tensors. */
bool sl_pack_plan_can(const struct sl_pack_plan *plan, uint32_t class_index, uint32_t type,
                      uint64_t *bytes);

/* After the last change: fills tensors and recipe. */
SL_MUST_CHECK sluice_err sl_pack_plan_settle(struct sl_pack_plan *plan,
                                             const struct sl_pack_request *request,
                                             sluice_error *e);

#endif
