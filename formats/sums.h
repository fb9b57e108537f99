/* Sums files: the checksums that a GGUF lacks, beside it as NAME.sums (of the first shard).
 *
 * One XXH3-64 for every piece that is read by itself: a tensor of three dimensions has a piece for
 * each index of the third (an expert), token_embd.weight one for each row, any other tensor is one
 * piece. The file names what it belongs to, so that sums of another model or of an older version of
 * the file are refused, not compared. docs/FORMAT.md specifies it to the byte.
 *
 * Thread: reading is pure; making is one call on one thread. */
#ifndef SL_SUMS_H
#define SL_SUMS_H

#include "base/mem.h"
#include "formats/gguf.h"

struct sl_sums;

/* How many pieces the tensor has, and their size in bytes. */
uint64_t sl_sums_pieces(const struct sl_gguf_tensor *t, uint64_t *piece_bytes);

/* XXH3 over names, types, sizes and places of all tensors: which model, and which version of it, a
 * file is about. */
uint64_t sl_sums_model(const struct sl_gguf *g);

/* Looks for NAME.sums beside the first shard. No such file, or the model is a container or has a
 * layer of another (gguf_graft.h): SLUICE_OK and *out NULL. One that is
 * damaged, of a newer version, or of another model (number, names, sizes, offsets of tensors, sizes
 * of the files) is an error that says what to do: SLUICE_E_FORMAT, SLUICE_E_VERSION,
 * SLUICE_E_CHANGED, SLUICE_E_TRUNCATED, SLUICE_E_LIMIT, SLUICE_E_IO, SLUICE_E_BUDGET,
 * SLUICE_E_NOMEM. The headers of the model files (all before the first tensor) are read again
 * and compared here: SLUICE_E_CORRUPT. Takes 256 KiB of the budget meanwhile.
 * Owner: the caller; sl_sums_close (NULL is fine). */
SL_MUST_CHECK sluice_err sl_sums_open(const struct sl_gguf *g, struct sl_budget *b, sluice_error *e,
                                      struct sl_sums **out);
void sl_sums_close(struct sl_sums *s);

/* Bytes that an open sums file of this model charges. */
uint64_t sl_sums_bytes(const struct sl_gguf *g);

/* The sum of a piece; tensor is an index of sl_gguf_tensor. */
uint64_t sl_sums_get(const struct sl_sums *s, uint32_t tensor, uint64_t piece);

/* Progress in bytes, each 64 MiB or more often; nonzero gives up (SLUICE_E_CANCELLED). */
typedef int sl_sums_progress_fn(void *user, uint64_t done, uint64_t total);

/* Reads the whole model in fixed memory (about 4 MiB) and writes NAME.sums: under a temporary
 * name, synced, then renamed; a failure leaves nothing behind and an older file as it was. Errors:
 * SLUICE_E_IO (a read, or a write: disk full, read-only), SLUICE_E_TRUNCATED, SLUICE_E_CHANGED (the
 * model was replaced meanwhile), SLUICE_E_CANCELLED, SLUICE_E_LIMIT, SLUICE_E_BUDGET,
 * SLUICE_E_NOMEM. */
SL_MUST_CHECK sluice_err sl_sums_make(const struct sl_gguf *g, struct sl_budget *b,
                                      sl_sums_progress_fn *progress, void *user, sluice_error *e);

/* Reads the whole model, every byte of it, and compares. The first piece that differs is
 * SLUICE_E_CORRUPT, with file, tensor, piece and offset. Other errors as in sl_sums_make. */
SL_MUST_CHECK sluice_err sl_sums_verify(const struct sl_gguf *g, const struct sl_sums *s,
                                        struct sl_budget *b, sl_sums_progress_fn *progress,
                                        void *user, sluice_error *e);

#endif
