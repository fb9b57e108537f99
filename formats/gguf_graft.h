/* One layer of a model put in place of the same layer of another: for finding out which layers a
 * quantization hurts. Both files are of the same model, in whatever types; one may stack the
 * experts of a layer where the other has a tensor for each, since a layer is exchanged as a whole.
 * What comes of it is a model of the files of both, which the engine runs like any other.
 *
 * Thread: as in gguf.h. */
#ifndef SL_GGUF_GRAFT_H
#define SL_GGUF_GRAFT_H

#include "formats/gguf.h"

/* The parts of a model that can be exchanged: layers by their number, and two more. */
#define SL_GROUP_EMBEDDING 0x10000u /* token_embd.* */
#define SL_GROUP_OUTPUT 0x10001u    /* everything else: output.weight, output_norm.weight, ... */

/* The group of a tensor of that name. */
uint32_t sl_gguf_group(struct sl_str name);
/* "layer 3", "embedding", "output"; buf has at least 16 bytes and is returned. */
#define SL_GROUP_TEXT 16
const char *sl_gguf_group_text(uint32_t group, char *buf);

/* Replaces the tensors of a group of g by those of from, whose files become g's, after its own;
 * metadata stays g's. Where one of them has output.weight and the other uses the embedding for it,
 * both go together. Checksums of containers stay; sums files are not used with a model of two.
 * Both models must have their metadata. from is closed, whatever comes of it.
 *
 * SLUICE_E_FORMAT: not the same model (its architecture, or the number of weights in the group);
 * SLUICE_E_NOT_FOUND: no such layer; SLUICE_E_LIMIT: too many files; SLUICE_E_NOMEM,
 * SLUICE_E_BUDGET. After a failure g can only be closed. */
SL_MUST_CHECK sluice_err sl_gguf_graft(struct sl_gguf *g, struct sl_gguf *from, uint32_t group,
                                       sluice_error *e);

/* Whether that was done. */
bool sl_gguf_is_grafted(const struct sl_gguf *g);

#endif
