/* Recording: what happens while a model runs, as records of a trace file (formats/trace_file.h).
 *
 * The forward pass tells where a chunk begins, what it chose, and when a layer and a chunk are
 * through; the expert store tells the rest (sl_expert_watch). A layer's record bears its times and
 * is therefore written when the layer is through: ops and hints that came meanwhile are held back
 * and follow it, in their order; single reads are written as they arrive, before it.
 *
 * Nothing is allocated while it runs, and no failure of writing reaches the answer: it is logged
 * once, as SL_LOG_ERROR, and the recording ends there.
 *
 * Thread: whoever has the model (one evaluation, or trimming, at a time). */
#ifndef SL_RECORD_H
#define SL_RECORD_H

#include "base/log.h"
#include "engine/session.h"
#include "formats/trace_file.h"

struct sl_record;

struct sl_record_config {
    const char *path;
    const struct sl_trace_header *header; /* of the model's layers */
    const struct sl_model *m;             /* has layers with experts; outlives the recording */
    const struct sl_log *log;             /* likewise */
};

/* Bytes of the budget that a recording of this model takes. */
uint64_t sl_record_bytes(const struct sl_model *m);
/* Creates the file. Errors: those of sl_trace_create. Owner: the caller; sl_record_close. */
SL_MUST_CHECK sluice_err sl_record_open(const struct sl_record_config *c, struct sl_budget *b,
                                        sluice_error *e, struct sl_record **out);
/* Ends the file. NULL is fine. The store that is watched is closed before. */
void sl_record_close(struct sl_record *r);

/* For sl_expert_store_config. */
const struct sl_expert_watch *sl_record_watch(const struct sl_record *r);
/* The number of a session that is opened now. */
uint32_t sl_record_session(struct sl_record *r);

/* A chunk begins to go through the layers; the clock of its session runs. */
void sl_record_eval(struct sl_record *r, const struct sl_chunk *c);
/* Its layer has chosen: k experts a token, in scratch.chosen with their weights, which stay as they
 * are until the layer is through. Before sl_expert_begin. */
void sl_record_chosen(struct sl_record *r, const struct sl_chunk *c, uint32_t k);
/* That layer is through, or has failed. After sl_expert_end. */
void sl_record_layer(struct sl_record *r, const struct sl_chunk *c);
/* The chunk is through, the head included. */
void sl_record_done(struct sl_record *r, const struct sl_chunk *c);
/* Hands what is there to the system. */
void sl_record_flush(struct sl_record *r);

#endif
