/* Sluice's own model files, *.sluice: weights in checksummed records that begin on 16 KiB
 * boundaries, an expert's parts side by side in one of them, and an index that describes the model
 * as a GGUF does. docs/FORMAT.md specifies them to the byte. All untrusted input of the format dies
 * here.
 *
 * A container is used as a struct sl_gguf: its metadata and tensors are those of a GGUF, except
 * that each expert's parts are tensors of their own (blk.0.ffn_gate.7.weight), as in older files of
 * Mixtral, and that a type may be one of the container's own (sq.h). So what reads a GGUF reads a
 * container.
 *
 * Errors carry one sentence: SLUICE_E_FORMAT broken file, SLUICE_E_VERSION a newer version,
 * SLUICE_E_CORRUPT a checksum that does not match, SLUICE_E_TRUNCATED a file shorter than it should
 * be, SLUICE_E_UNSUPPORTED a weight type of a newer build, SLUICE_E_LIMIT, SLUICE_E_NOT_FOUND (a
 * part is missing, by name), SLUICE_E_IO, SLUICE_E_NOMEM, SLUICE_E_BUDGET.
 * Thread: one thread per handle to open and close; look-ups are pure. */
#ifndef SL_CONTAINER_H
#define SL_CONTAINER_H

#include "base/mem.h"
#include "formats/gguf.h"
#include "formats/records.h"

struct sl_container;

/* Whether the file begins like a container. Errors are those of opening and reading the file. */
SL_MUST_CHECK sluice_err sl_container_probe(const char *path, struct sl_budget *b, sluice_error *e,
                                            bool *is_container);

/* path: the file, or any part. Reads headers and index, and checks both; no record is read. */
SL_MUST_CHECK sluice_err sl_container_open(const char *path, struct sl_budget *b, sluice_error *e,
                                           struct sl_container **out);
void sl_container_close(struct sl_container *c); /* NULL is fine */

/* Whether a journal says that packing the container, of which path names the file, a part, or one
 * that is not whole yet (.partial), was not finished. Then e says so, and what to do
 * (SLUICE_E_TRUNCATED). To be asked where opening failed. */
bool sl_container_unfinished(const char *path, struct sl_budget *b, sluice_error *e);

/* The model, as a GGUF of as many files as there are parts. The container's until close, except for
 * sl_gguf_drop_metadata; NULL once it was taken. */
struct sl_gguf *sl_container_model(struct sl_container *c);
/* Hands the model over, with its records: the caller closes it with sl_gguf_close, and may close c
 * before. */
struct sl_gguf *sl_container_take_model(struct sl_container *c);

/* Records in the order of the files: they follow one another without a gap. None once the model was
 * taken. */
uint64_t sl_container_n_records(const struct sl_container *c);
const struct sl_container_record *sl_container_record(const struct sl_container *c, uint64_t index);

/* Progress in bytes, for each record or more often; nonzero gives up (SLUICE_E_CANCELLED). */
typedef int sl_container_progress_fn(void *user, uint64_t done, uint64_t total);

/* Reads every byte of every part, in fixed memory (256 KiB), and compares all checksums. The first
 * that differs is SLUICE_E_CORRUPT with file, offset, layer and expert. The model must not have
 * been taken. */
SL_MUST_CHECK sluice_err sl_container_verify(struct sl_container *c, struct sl_budget *b,
                                             sl_container_progress_fn *progress, void *user,
                                             sluice_error *e);

#endif
