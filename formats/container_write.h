/* Writing containers: once, in order, in fixed memory, and taken up again after a crash.
 *
 * What will be written is said first, so that every place is known before the first byte and the
 * disk can be asked for room. Files are written as NAME.partial; NAME.journal beside them says
 * which records are finished and on the drive. Headers come last, then the files get their names
 * and the journal goes. Opening the same plan again keeps the finished records, after reading them
 * back and comparing; the result is the same file to the byte. docs/FORMAT.md specifies both.
 *
 *     sl_container_write_open(path, &plan, b, e, &w)
 *     while ((i = sl_container_write_next(w)) < plan.n_tensors)
 *         sl_container_write_data(w, ...) with the bytes of tensor i, in as many pieces as wanted
 *     sl_container_write_commit(w, e)
 *     sl_container_write_close(w)
 *
 * Thread: one per handle. */
#ifndef SL_CONTAINER_WRITE_H
#define SL_CONTAINER_WRITE_H

#include "base/mem.h"
#include "formats/gguf.h"
#include "io/resume_file.h"

struct sl_container_writer;

struct sl_container_tensor {
    struct sl_str name;    /* 1..SL_NAME_MAX bytes, each once */
    uint32_t type;         /* enum sl_type, or enum sl_sq_type */
    uint32_t n_dims;       /* 1..4 */
    uint64_t dims[4];      /* unused ones are 1 */
    int32_t layer, expert; /* whose part it is; -1, -1: resident */
};

struct sl_container_plan {
    const struct sl_gguf *meta; /* its metadata describes the model */
    struct sl_str recipe;       /* what became what, for people and for 'info' */
    uint64_t source;            /* a checksum of what the weights are made from */
    /* Resident tensors first. Then experts, layer by layer in ascending order; the tensors of an
     * expert follow one another (gate, up, down) and share a record. */
    const struct sl_container_tensor *tensors;
    uint32_t n_tensors;
    uint64_t part_bytes; /* every file is shorter than that; 0: one file */
    bool restart;        /* what an earlier run has begun, whatever its parts, is removed */
    uint64_t sync_bytes; /* written between two entries of the journal, about; 0: 64 MiB */
    struct sl_resume_limit *limit; /* NULL, or for tests: see resume_file.h */
};

/* What would be written, and what is there already. Nothing is changed. */
struct sl_container_measure {
    uint64_t total_bytes; /* of all parts */
    uint64_t index_bytes; /* of those for headers and index */
    uint32_t n_parts;
    bool begun;   /* an earlier run left its journal */
    bool goes_on; /* and it is of this plan, and says that something is finished */
    bool taken;   /* there is a file with the name of a finished part */
};
SL_MUST_CHECK sluice_err sl_container_measure(const char *path,
                                              const struct sl_container_plan *plan,
                                              struct sl_budget *b, sluice_error *e,
                                              struct sl_container_measure *out);
/* The name of a part, with what suffix says after it: "", or ".partial" as long as it is written.
 * To be freed with sl_free. NULL: no memory. */
char *sl_container_part_path(const char *path, uint32_t part, uint32_t n_parts, const char *suffix,
                             struct sl_budget *b);

/* plan and what it points at are borrowed until close. Errors: SLUICE_E_ARG (a tensor that no
 * container can hold, or that no part of that size can), SLUICE_E_IO (also: the disk has too little
 * room, by how much; another process is writing it), SLUICE_E_CHANGED (what is there was begun from
 * another source or with another recipe, and some of it is finished), SLUICE_E_STATE (a finished
 * container has the name; .partial files that no journal tells of), SLUICE_E_FORMAT,
 * SLUICE_E_LIMIT, SLUICE_E_NOMEM, SLUICE_E_BUDGET. Takes about 1 MiB and 100 bytes for each tensor
 * and record. */
SL_MUST_CHECK sluice_err sl_container_write_open(const char *path,
                                                 const struct sl_container_plan *plan,
                                                 struct sl_budget *b, sluice_error *e,
                                                 struct sl_container_writer **out);

/* Bytes of all parts together, and how many of them an earlier run had finished. */
uint64_t sl_container_write_total(const struct sl_container_writer *w);
uint64_t sl_container_write_kept(const struct sl_container_writer *w);

/* The tensor whose bytes are wanted next; n_tensors: none any more. Those of an earlier run are
 * skipped. */
uint32_t sl_container_write_next(const struct sl_container_writer *w);

/* The next bytes of that tensor, at most as many as it still lacks. After an error only close or
 * discard is allowed. */
SL_MUST_CHECK sluice_err sl_container_write_data(struct sl_container_writer *w, const void *data,
                                                 uint64_t bytes, sluice_error *e);

/* Writes index and headers, syncs, and gives the files their names. No tensor may be wanted.
 * SLUICE_E_CHANGED where somebody removed or replaced one of them meanwhile. */
SL_MUST_CHECK sluice_err sl_container_write_commit(struct sl_container_writer *w, sluice_error *e);

/* Before close, where a run ends early: every record that is complete is synced and gets its entry,
 * so that at most the one at hand is lost (after a write that failed also the 1 MiB before it); a
 * failure to do so is not one more error. Returns the bytes of all records that the next run will
 * keep. Only close or discard is allowed after it. */
uint64_t sl_container_write_suspend(struct sl_container_writer *w);

/* Keeps what is there for the next time, as far as the journal has it. NULL is fine. */
void sl_container_write_close(struct sl_container_writer *w);
/* Removes what is there, and closes. */
void sl_container_write_discard(struct sl_container_writer *w);

#endif
