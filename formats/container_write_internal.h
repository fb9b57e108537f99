/* What container_layout.c, container_journal.c and container_write.c share; nobody else includes
 * this, tests excepted. */
#ifndef SL_CONTAINER_WRITE_INTERNAL_H
#define SL_CONTAINER_WRITE_INTERNAL_H

#include "formats/container_internal.h"
#include "formats/container_write.h"

/* ---- where everything comes to lie (container_layout.c) -------------------------------------- */

struct sl_cn_layout {
    struct sl_cn_index ix;
    struct sl_gguf_tensor *tensors; /* [plan->n_tensors], placed; names are the plan's */
    uint64_t *part_bytes;           /* [n_parts] of whole files */
    uint64_t parts_capacity;
    uint32_t n_parts;
    uint64_t index_offset, index_bytes; /* in the last part */
    uint64_t total_bytes;
    uint64_t sum; /* of the index with all checksums 0: what there is to be written */
};

SL_MUST_CHECK sluice_err sl_cn_layout_make(struct sl_cn_layout *l,
                                           const struct sl_container_plan *plan, const char *path,
                                           struct sl_budget *b, sluice_error *e);
void sl_cn_layout_deinit(struct sl_cn_layout *l);

/* ---- the journal (container_journal.c) ------------------------------------------------------- */

#define SL_CN_JOURNAL_VERSION 1u
#define SL_CN_JOURNAL_BYTES 48u /* of its header, and of an entry */

enum sl_cn_entry_kind { SL_CN_RECORD = 1, SL_CN_FINISHED = 2 };

struct sl_cn_entry {
    uint32_t kind; /* enum sl_cn_entry_kind */
    uint32_t part;
    uint64_t number;             /* of the record; of SL_CN_FINISHED how many there are */
    uint64_t offset, bytes, sum; /* of the record; of SL_CN_FINISHED of the index */
};

struct sl_cn_journal {
    struct sl_resume_file *file;
    uint64_t at;   /* where the next entry is read or written */
    bool is_new;   /* was begun when it was opened */
    bool is_first; /* and nothing had that name before */
};

/* What a journal belongs to. */
struct sl_cn_belongs {
    uint64_t source, recipe_sum, layout_sum;
    bool anew; /* whatever is there belongs to nothing */
};

/* Opens the journal, or begins one, also in place of one without an entry, or of any (anew). One
 * that belongs to
 * something else is SLUICE_E_CHANGED. A failure leaves it closed. */
SL_MUST_CHECK sluice_err sl_cn_journal_open(struct sl_cn_journal *j, const char *path,
                                            const struct sl_cn_belongs *to,
                                            struct sl_resume_limit *limit, struct sl_budget *b,
                                            sluice_error *e);
void sl_cn_journal_close(struct sl_cn_journal *j);
/* Whether opening would find one that belongs to it, with an entry. Only looks. */
bool sl_cn_journal_goes_on(const char *path, const struct sl_cn_belongs *to, struct sl_budget *b);
void sl_cn_journal_rewind(struct sl_cn_journal *j);
/* The next entry, or *found false: there is none, or a crash left half of one. */
SL_MUST_CHECK sluice_err sl_cn_journal_next(struct sl_cn_journal *j, struct sl_cn_entry *out,
                                            bool *found, sluice_error *e);
/* Forgets everything from here on. */
SL_MUST_CHECK sluice_err sl_cn_journal_cut(struct sl_cn_journal *j, sluice_error *e);
/* Appends; sync makes it last. */
SL_MUST_CHECK sluice_err sl_cn_journal_add(struct sl_cn_journal *j, const struct sl_cn_entry *entry,
                                           sluice_error *e);
SL_MUST_CHECK sluice_err sl_cn_journal_sync(struct sl_cn_journal *j, sluice_error *e);

/* ---- what is there already (container_measure.c) --------------------------------------------- */

/* Before a container is begun in a journal that is new, whose lock is held: SLUICE_E_STATE where
 * one of its files is there under the final name, or, unless stray_ok, as .partial. */
SL_MUST_CHECK sluice_err sl_cn_check_vacant(const char *path, uint32_t n_parts, bool stray_ok,
                                            struct sl_budget *b, sluice_error *e);
/* Removes the .partial files of path, however it was divided. */
SL_MUST_CHECK sluice_err sl_cn_remove_partials(const char *path, struct sl_resume_limit *limit,
                                               struct sl_budget *b, sluice_error *e);

#endif
