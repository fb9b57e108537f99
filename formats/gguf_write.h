/* Small GGUF files (version 3) written front to back, in fixed memory: a few metadata entries and
 * tensors of 32-bit floats. The whole file or none of it (io/new_file.h).
 *
 * The order is that of the file: all keys, then all tensors by name and shape, then their data in
 * the same order. Calls do not return errors: after the first failure the others do nothing, and
 * close tells it. Thread: one per handle. */
#ifndef SL_GGUF_WRITE_H
#define SL_GGUF_WRITE_H

#include "base/mem.h"

struct sl_gguf_write;

/* The file will have just so many keys and tensors. Errors: those of sl_new_file_open. */
SL_MUST_CHECK sluice_err sl_gguf_write_open(const char *path, uint64_t n_keys, uint64_t n_tensors,
                                            struct sl_budget *b, sluice_error *e,
                                            struct sl_gguf_write **out);

void sl_gguf_write_str(struct sl_gguf_write *w, const char *key, struct sl_str value);
void sl_gguf_write_str_array(struct sl_gguf_write *w, const char *key, const struct sl_str *values,
                             uint64_t n);
void sl_gguf_write_u32(struct sl_gguf_write *w, const char *key, uint32_t value);

/* A tensor of rows x cols floats, each at least 1; one row makes a tensor of one dimension. */
void sl_gguf_write_tensor(struct sl_gguf_write *w, const char *name, uint64_t cols, uint64_t rows);

/* The next n floats of the tensor whose turn it is; end says that it has all of them. */
void sl_gguf_write_floats(struct sl_gguf_write *w, const float *x, uint64_t n);
void sl_gguf_write_end(struct sl_gguf_write *w);

/* Gives the file its name, or removes it, and releases w. Returns the first failure: SLUICE_E_IO.
 * Counts and sizes that were not kept are asserted. */
SL_MUST_CHECK sluice_err sl_gguf_write_close(struct sl_gguf_write *w, sluice_error *e);

#endif
