/* Recorded routing, replayed in a model's place: bench --routing.
 *
 * The file is a trace of any form (trace/trace.h), most simply lines of text: "PROMPT PHASE
 * LAYERS", PHASE p (prompt) or d (decoded), LAYERS separated by ;, each a list of expert numbers
 * separated by commas, the most wanted first. Layers in which nobody chose any are left out. */
#ifndef CLI_ROUTING_H
#define CLI_ROUTING_H

#include "include/sluice.h"
#include "tools/text.h"

struct cli_routing {
    struct cli_ids experts; /* of all tokens and layers, one after the other */
    struct cli_ids starts;  /* [n_tokens * n_layers + 1] where in experts those of a layer begin */
    size_t n_tokens, n_layers;
    struct cli_ids layer_of; /* [layers of the model] which layer of the record; -1: none */
};

/* Reads path ("-": standard input): decoded tokens only, or all. Returns an exit code, with a
 * message that names the line where there is something wrong. */
int cli_routing_read(struct cli_routing *r, const char *path, int decoded_only);

/* From now on the session takes its experts from the record: position i those of token i, begun
 * again at the end; layers with experts are laid over those of the record in proportion; an expert
 * number is taken modulo the layer's experts. r has to live as long as the session. */
void cli_routing_use(struct cli_routing *r, const sluice_model *model, sluice_session *session);

void cli_routing_free(struct cli_routing *r);

#endif
