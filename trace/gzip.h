/* gzip streams, packed and unpacked piece by piece. Where the program is built without zlib,
 * opening fails with a sentence that says to use gzip itself. Memory is charged to the budget
 * (about 50 KiB to unpack, 300 KiB to pack). Thread: one per handle. */
#ifndef SL_GZIP_H
#define SL_GZIP_H

#include "base/mem.h"

struct sl_gzip;

/* Whether the bytes begin a gzip stream. */
bool sl_gzip_is(const void *data, uint64_t bytes);

/* Errors: SLUICE_E_UNSUPPORTED (no zlib), SLUICE_E_BUDGET. */
SL_MUST_CHECK sluice_err sl_gzip_open(bool pack, struct sl_budget *b, sluice_error *e,
                                      struct sl_gzip **out);

/* One step: takes up to n bytes of in, makes up to room bytes of out, and says how many of both.
 * last: no input follows after these. */
struct sl_gzip_step {
    const void *in;
    uint64_t n, taken;
    void *out;
    uint64_t room, made;
    bool last;
    bool ended; /* packing: all is out; unpacking: a member of the stream is complete */
};
/* Errors: SLUICE_E_CORRUPT, the stream is damaged. */
SL_MUST_CHECK sluice_err sl_gzip_run(struct sl_gzip *z, struct sl_gzip_step *step, sluice_error *e);
/* Unpacking: whether the stream may end here, between two members. */
bool sl_gzip_whole(const struct sl_gzip *z);
void sl_gzip_close(struct sl_gzip *z); /* NULL is fine */

#endif
