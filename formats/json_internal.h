/* The table of nodes that json_in.c makes and json_value.c reads; nobody else includes this. */
#ifndef SL_JSON_INTERNAL_H
#define SL_JSON_INTERNAL_H

#include "formats/json_in.h"

/* A value; members of an object are two nodes, name and value. */
struct sl_json_node {
    uint32_t at;    /* of a scalar: where its text begins */
    uint32_t bytes; /* of a scalar: of its text; of a container: its members or elements */
    uint32_t next;  /* the node behind this one and all that is in it */
    uint32_t kind;  /* enum sl_json_kind */
};

struct sl_json {
    struct sl_budget *budget;
    char *text;
    uint64_t bytes;
    char *owned; /* text, where it is the document's own */
    struct sl_json_node *nodes;
    uint64_t capacity;
    uint32_t n_nodes;
};

_Static_assert(SL_JSON_BYTES_MAX < UINT32_MAX, "places in a text fit a node");

#endif
