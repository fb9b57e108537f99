/* MessagePack, as much of it as the container's index needs: integers, floats, strings, bytes,
 * arrays and maps. Writing is msgpack-c's; only msgpack_io.c knows the library.
 *
 * Reading is a cursor over bytes in memory that hands out one item after another and trusts none: a
 * length or a count is compared with the bytes left (an element takes one at least) before it is
 * handed out. It allocates nothing, and a failed cursor stays failed, so a reader may check once at
 * the end of a run of items. msgpack-c's own unpacker would build a tree from memory of its own, as
 * much of it as the counts of a hostile file demand.
 *
 * Thread: one per cursor or writer. */
#ifndef SL_MSGPACK_IO_H
#define SL_MSGPACK_IO_H

#include "base/base.h"

/* ---- writing ----------------------------------------------------------------------------------
 */

/* Takes the next bytes. Whatever can fail is kept by the user and asked for afterwards. */
typedef void sl_mp_sink_fn(void *user, const void *data, size_t bytes);

struct sl_mp_writer {
    sl_mp_sink_fn *sink;
    void *user;
};

void sl_mp_put_uint(struct sl_mp_writer *w, uint64_t v); /* the shortest form */
void sl_mp_put_int(struct sl_mp_writer *w, int64_t v);   /* the shortest form */
void sl_mp_put_sum(struct sl_mp_writer *w, uint64_t v);  /* always 9 bytes: sizes known before */
void sl_mp_put_f32(struct sl_mp_writer *w, uint32_t bits);
void sl_mp_put_f64(struct sl_mp_writer *w, uint64_t bits);
/* At most UINT32_MAX bytes or elements. */
void sl_mp_put_str(struct sl_mp_writer *w, struct sl_str s);
void sl_mp_put_bin(struct sl_mp_writer *w, const void *data, uint64_t bytes);
/* The start of bin of that many bytes, which the caller hands to the sink. */
void sl_mp_put_bin_head(struct sl_mp_writer *w, uint64_t bytes);
void sl_mp_put_array(struct sl_mp_writer *w, uint64_t count); /* count items follow */
void sl_mp_put_map(struct sl_mp_writer *w, uint64_t count);   /* count pairs follow */

/* ---- reading ----------------------------------------------------------------------------------
 */

struct sl_mp_reader {
    const unsigned char *base;
    uint64_t bytes;
    uint64_t at;        /* next byte; where it failed, the item that did */
    const char *failed; /* NULL; else what was wanted there: "an array of 3" */
};

void sl_mp_read(struct sl_mp_reader *r, const void *data, uint64_t bytes);

/* Each gives the next item, or fails where it is another or reaches past the end; then, and ever
 * after, it gives 0 or nothing. */
uint64_t sl_mp_get_uint(struct sl_mp_reader *r, uint64_t max); /* 0..max */
int64_t sl_mp_get_int(struct sl_mp_reader *r, int64_t min, int64_t max);
uint32_t sl_mp_get_f32(struct sl_mp_reader *r); /* its bits */
uint64_t sl_mp_get_f64(struct sl_mp_reader *r); /* its bits */
struct sl_str sl_mp_get_str(struct sl_mp_reader *r);
struct sl_str sl_mp_get_bin(struct sl_mp_reader *r);
uint64_t sl_mp_get_array(struct sl_mp_reader *r, uint64_t min, uint64_t max); /* its count */
uint64_t sl_mp_get_map(struct sl_mp_reader *r);                               /* its pairs */

/* The next item is the string name, or fails with that as what was wanted. */
void sl_mp_expect(struct sl_mp_reader *r, const char *name);

/* Steps over one item with all that is in it, of any type and depth. */
void sl_mp_skip(struct sl_mp_reader *r);

/* Makes the cursor fail here; a cursor that has failed keeps its first reason. wanted is
 * borrowed. */
void sl_mp_fail(struct sl_mp_reader *r, const char *wanted);

#endif
