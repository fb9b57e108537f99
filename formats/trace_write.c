/* Writing trace files: see trace_file.h, and docs/FORMAT.md for every byte.
 *
 * A record is packed straight into the block under way, so that it costs little more than copying
 * its arrays; a block that is full, or half a second old, gets its sum and goes to the system in
 * one write. Nothing is synced: what the system has taken survives the end of the process, however
 * it ends. */
#define _GNU_SOURCE /* flock under -std=c11 */
#include "formats/trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "formats/checksum.h"

#define BLOCK_FULL_BYTES 65536u /* a larger record has a block of its own */
#define FLUSH_NS UINT64_C(500000000)
#define RETRIES_MAX 100

struct sl_trace_writer {
    int fd;
    bool failed, told; /* writing is over; sl_trace_failed has said so */
    bool in_eval;
    uint32_t n_tokens;   /* of the eval */
    uint32_t next_layer; /* the lowest that may come in it */
    uint32_t measured, n_layers;
    uint64_t start_ns;      /* of the file's clock */
    uint64_t last_ns;       /* time of the last eval, layer or done */
    uint64_t last_read_ns;  /* when the last read began */
    uint64_t newest_ns;     /* the latest that a record speaks of */
    uint64_t flushed_ns;    /* newest_ns when the last block was written */
    struct sl_mp_writer mp; /* into payload */
    sluice_error failure;
    char shown[256]; /* path, for messages */
    uint8_t top_k[SL_LAYERS_MAX];
    uint32_t used; /* of the payload */
    unsigned char block[SL_TF_HEAD_BYTES + SL_TF_PAYLOAD_MAX + SL_TF_TAIL_BYTES];
};

static void to_payload(void *user, const void *data, size_t bytes)
{
    struct sl_trace_writer *w = user;
    SLUICE_ASSERT(bytes <= SL_TF_PAYLOAD_MAX - w->used);
    memcpy(w->block + SL_TF_HEAD_BYTES + w->used, data, bytes);
    w->used += (uint32_t)bytes;
}

/* ---- to the system ------------------------------------------------------------------------------
 */

static void write_all(struct sl_trace_writer *w, const unsigned char *data, uint64_t bytes)
{
    int interruptions = 0;
    while (bytes > 0 && !w->failed) {
        ssize_t n = write(w->fd, data, (size_t)bytes);
        if (n < 0 && errno == EINTR && ++interruptions <= RETRIES_MAX) continue;
        if (n <= 0) {
            w->failed = true;
            (void)sl_fail_sys(&w->failure, SLUICE_E_IO, n < 0 ? errno : ENOSPC,
                              "writing the trace '%s' failed; what was written can be read",
                              w->shown);
            return;
        }
        interruptions = 0;
        data += n;
        bytes -= (uint64_t)n;
    }
}

/* Ends the block under way and hands it over. */
static void end_block(struct sl_trace_writer *w)
{
    unsigned char *payload = w->block + SL_TF_HEAD_BYTES;
    w->flushed_ns = w->newest_ns;
    if (w->used == 0) return;
    sl_tf_put_head(w->block, w->used);
    sl_tf_put_tail(payload + w->used, sl_xxh3(payload, w->used));
    write_all(w, w->block, SL_TF_HEAD_BYTES + (uint64_t)w->used + SL_TF_TAIL_BYTES);
    w->used = 0;
}

/* ---- the header ---------------------------------------------------------------------------------
 */

static void put_name(struct sl_mp_writer *mp, const char *name)
{
    sl_mp_put_str(mp, (struct sl_str){name, strlen(name)});
}

static void put_key(struct sl_mp_writer *mp, const struct sl_tf_key *k,
                    const struct sl_trace_header *h)
{
    const char *at = (const char *)h + k->offset;
    uint64_t v = 0;
    put_name(mp, k->name);
    if (k->max == 0) {
        SLUICE_ASSERT(memchr(at, 0, SL_TRACE_TEXT) != NULL);
        put_name(mp, at);
        return;
    }
    memcpy(&v, at, k->max <= UINT32_MAX ? 4 : 8);
    SLUICE_ASSERT(v <= k->max);
    sl_mp_put_uint(mp, v);
}

static void put_layer_info(struct sl_mp_writer *mp, const struct sl_trace_layer_info *l,
                           uint32_t n_classes)
{
    SLUICE_ASSERT(l->n_experts <= SL_EXPERTS_MAX && l->size_class < n_classes);
    SLUICE_ASSERT(l->top_k <= SL_TOP_K_MAX && l->top_k <= l->n_experts);
    SLUICE_ASSERT((l->top_k == 0) == (l->n_experts == 0));
    const uint64_t numbers[SL_TF_LAYER_NUMBERS] = {l->n_experts,    l->top_k,      l->size_class,
                                                   l->expert_bytes, l->slot_bytes, l->weights};
    sl_mp_put_array(mp, SL_TF_LAYER_NUMBERS);
    for (uint32_t i = 0; i < SL_TF_LAYER_NUMBERS; i++) {
        SLUICE_ASSERT(numbers[i] <= SL_TRACE_NUMBER_MAX);
        sl_mp_put_uint(mp, numbers[i]);
    }
}

static void put_header(struct sl_trace_writer *w, const struct sl_trace_header *h)
{
    struct sl_mp_writer *mp = &w->mp;
    SLUICE_ASSERT(h->n_layers >= 1 && h->n_layers <= SL_LAYERS_MAX);
    SLUICE_ASSERT(h->n_classes >= 1 && h->n_classes <= SL_TRACE_CLASSES);
    sl_mp_put_map(mp, SL_TF_KEYS + 3);
    put_name(mp, "version");
    sl_mp_put_uint(mp, SL_TRACE_VERSION);
    for (uint32_t i = 0; i < SL_TF_KEYS; i++) put_key(mp, &sl_tf_keys[i], h);
    put_name(mp, "n_slots");
    sl_mp_put_array(mp, h->n_classes);
    for (uint32_t i = 0; i < h->n_classes; i++) {
        SLUICE_ASSERT(h->n_slots[i] <= SL_TRACE_SLOTS_MAX);
        sl_mp_put_uint(mp, h->n_slots[i]);
    }
    put_name(mp, "layers");
    sl_mp_put_array(mp, h->n_layers);
    for (uint32_t i = 0; i < h->n_layers; i++) put_layer_info(mp, &h->layer[i], h->n_classes);
}

/* ---- opening and closing ------------------------------------------------------------------------
 */

uint64_t sl_trace_writer_bytes(void)
{
    return sizeof(struct sl_trace_writer) + SL_BLOCK_OVERHEAD_BYTES;
}

/* Only what nobody else records into is emptied: two recordings in one file are none. The lock goes
 * with the descriptor; where a file system has no locks, the file is taken without. EWOULDBLOCK: it
 * is another's. */
static int open_target(const char *path)
{
    int fd, interruptions = 0;
    struct stat st;
    do {
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR && ++interruptions <= RETRIES_MAX);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return fd;
    bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && ftruncate(fd, 0) == 0) return fd;
    int failure = taken ? EWOULDBLOCK : errno;
    close(fd);
    errno = failure;
    return -1;
}

/* Is something else than a trace there? A slip in a command line must not cost a model. */
static bool is_foreign(const char *path)
{
    struct stat st;
    unsigned char start[16];
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    ssize_t n = pread(fd, start, sizeof start, 0);
    close(fd);
    return n < 0 || !sl_trace_is(start, (uint64_t)n);
}

static void release(struct sl_trace_writer *w)
{
    if (w->fd >= 0) close(w->fd);
    sl_free(w);
}

sluice_err sl_trace_create(const char *path, const struct sl_trace_header *h, struct sl_budget *b,
                           sluice_error *e, struct sl_trace_writer **out)
{
    SLUICE_ASSERT(path != NULL && h != NULL && out != NULL);
    *out = NULL;
    void *memory = NULL;
    uint64_t capacity = 0;
    sluice_err err = sl_grow(b, &memory, &capacity, sizeof(struct sl_trace_writer), 1);
    if (err != SLUICE_OK) return sl_fail(e, err, "no memory to write the trace '%.256s'", path);
    struct sl_trace_writer *w = memory;
    w->mp = (struct sl_mp_writer){to_payload, w};
    w->measured = h->measured;
    w->n_layers = h->n_layers;
    sl_str_show((struct sl_str){path, strlen(path)}, w->shown, sizeof w->shown);
    put_header(w, h);
    for (uint32_t i = 0; i < h->n_layers; i++) w->top_k[i] = (uint8_t)h->layer[i].top_k;
    w->fd = -1;
    if (is_foreign(path)) {
        err = sl_fail(e, SLUICE_E_IO,
                      "the trace '%s' is not written, since a file that is no trace is there; "
                      "remove it or give another name",
                      w->shown);
        release(w);
        return err;
    }
    w->fd = open_target(path);
    if (w->fd < 0) {
        if (errno == EWOULDBLOCK)
            err = sl_fail(e, SLUICE_E_IO,
                          "the trace '%s' is being written by another program; wait for its end or "
                          "give another name",
                          w->shown);
        else
            err = sl_fail_sys(e, SLUICE_E_IO, errno, "the trace '%s' cannot be written", w->shown);
        release(w);
        return err;
    }
    write_all(w, sl_tf_magic, sizeof sl_tf_magic);
    end_block(w);
    if (w->failed) {
        err = sl_fail_sys(e, SLUICE_E_IO, w->failure.sys_errno, "writing the trace '%s' failed",
                          w->shown);
        release(w);
        return err;
    }
    w->start_ns = sl_now_ns();
    *out = w;
    return SLUICE_OK;
}

uint64_t sl_trace_now_ns(const struct sl_trace_writer *w) { return sl_now_ns() - w->start_ns; }

void sl_trace_flush(struct sl_trace_writer *w) { end_block(w); }

sluice_err sl_trace_failed(struct sl_trace_writer *w, sluice_error *e)
{
    if (!w->failed || w->told) return SLUICE_OK;
    w->told = true;
    if (e != NULL) *e = w->failure;
    return SLUICE_E_IO;
}

sluice_err sl_trace_close(struct sl_trace_writer *w, sluice_error *e)
{
    if (w == NULL) return SLUICE_OK;
    if (w->used + SL_TF_FIXED_MAX > SL_TF_PAYLOAD_MAX) end_block(w);
    sl_mp_put_array(&w->mp, 1);
    sl_mp_put_uint(&w->mp, SL_TRACE_END);
    end_block(w);
    int failed = close(w->fd); /* some file systems notice only now that there is no room */
    w->fd = -1;
    if (failed != 0 && errno != EINTR && !w->failed) {
        w->failed = true;
        (void)sl_fail_sys(&w->failure, SLUICE_E_IO, errno, "writing the trace '%s' failed",
                          w->shown);
    }
    sluice_err err = sl_trace_failed(w, e);
    release(w);
    return err;
}

/* ---- records ------------------------------------------------------------------------------------
 */

/* Makes room for a record of so many bytes of arrays and begins it, an array of items. */
static void begin_record(struct sl_trace_writer *w, uint64_t array_bytes, enum sl_trace_kind kind,
                         uint32_t items)
{
    uint64_t bytes = SL_TF_FIXED_MAX + array_bytes;
    SLUICE_ASSERT(bytes <= SL_TF_PAYLOAD_MAX);
    if (w->used > 0 && w->used + bytes > BLOCK_FULL_BYTES) end_block(w);
    sl_mp_put_array(&w->mp, items);
    sl_mp_put_uint(&w->mp, kind);
}

/* Bytes or nanoseconds. */
static void put_number(struct sl_trace_writer *w, uint64_t v)
{
    SLUICE_ASSERT(v <= SL_TRACE_NUMBER_MAX);
    sl_mp_put_uint(&w->mp, v);
}

/* The time of a record, as what has passed since the last of these. */
static void put_time(struct sl_trace_writer *w, uint64_t ns)
{
    SLUICE_ASSERT(ns >= w->last_ns);
    put_number(w, ns - w->last_ns);
    w->last_ns = ns;
    w->newest_ns = sl_max_u64(w->newest_ns, ns);
}

/* Those that are not finite as 0: a broken model makes them, and its trace has to be readable. */
static void put_floats(struct sl_trace_writer *w, const float *v, uint64_t bytes)
{
    sl_mp_put_bin(&w->mp, v, bytes);
    unsigned char *at = w->block + SL_TF_HEAD_BYTES + w->used - bytes;
    for (uint64_t i = 0; i < bytes; i += 4) {
        uint32_t bits;
        memcpy(&bits, at + i, sizeof bits);
        if ((bits & SL_TF_EXPONENT) == SL_TF_EXPONENT) memset(at + i, 0, sizeof bits);
    }
}

/* After a record that tells of a moment. */
static void flush_if_due(struct sl_trace_writer *w, uint64_t ns)
{
    w->newest_ns = sl_max_u64(w->newest_ns, ns);
    if (w->newest_ns - w->flushed_ns >= FLUSH_NS) end_block(w);
}

void sl_trace_put_eval(struct sl_trace_writer *w, const struct sl_trace_eval *r)
{
    if (w->failed) return;
    SLUICE_ASSERT(r->n_tokens >= 1 && r->n_tokens <= SL_CHUNK_MAX);
    begin_record(w, 0, SL_TRACE_EVAL, 6);
    sl_mp_put_uint(&w->mp, r->session);
    sl_mp_put_uint(&w->mp, r->position);
    sl_mp_put_uint(&w->mp, r->n_tokens);
    sl_mp_put_uint(&w->mp, r->prompt);
    put_time(w, r->begin_ns);
    w->in_eval = true;
    w->n_tokens = r->n_tokens;
    w->next_layer = 0;
}

/* What a layer record must not break: it would be of no use to whoever reads it. */
static void check_layer(const struct sl_trace_writer *w, const struct sl_trace_layer *r)
{
    SLUICE_ASSERT(w->in_eval && r->n_tokens == w->n_tokens);
    SLUICE_ASSERT(r->layer >= w->next_layer && r->layer < w->n_layers);
    SLUICE_ASSERT(r->top_k >= 1 && r->top_k <= w->top_k[r->layer]);
    SLUICE_ASSERT((r->weights != NULL) == ((w->measured & SL_TRACE_WEIGHTS) != 0));
    SLUICE_ASSERT((r->states != NULL) == ((w->measured & SL_TRACE_STATES) != 0));
    SLUICE_ASSERT(r->n_entries <= SL_EXPERTS_MAX);
}

void sl_trace_put_layer(struct sl_trace_writer *w, const struct sl_trace_layer *r)
{
    if (w->failed) return;
    check_layer(w, r);
    w->next_layer = r->layer + 1;
    uint64_t n = (uint64_t)r->n_tokens * r->top_k;
    uint64_t weight_bytes = r->weights != NULL ? 4 * n : 0;
    uint64_t state_bytes = r->states != NULL ? n : 0;
    begin_record(w, 2 * n + weight_bytes + state_bytes + r->n_entries, SL_TRACE_LAYER, 12);
    sl_mp_put_uint(&w->mp, r->layer);
    sl_mp_put_uint(&w->mp, r->top_k);
    sl_mp_put_bin(&w->mp, r->chosen, 2 * n);
    put_floats(w, r->weights, weight_bytes);
    sl_mp_put_bin(&w->mp, r->states, state_bytes);
    sl_mp_put_bin(&w->mp, r->entries, r->n_entries);
    put_number(w, r->read_bytes);
    put_time(w, r->begin_ns);
    put_number(w, r->dense_ns);
    put_number(w, r->expert_ns);
    put_number(w, r->wait_ns);
    flush_if_due(w, r->begin_ns + r->expert_ns + r->wait_ns);
}

void sl_trace_put_hints(struct sl_trace_writer *w, const struct sl_trace_hints *r)
{
    if (w->failed) return;
    SLUICE_ASSERT(r->layer < w->n_layers && r->n <= SL_EXPERTS_MAX);
    begin_record(w, 6 * (uint64_t)r->n, SL_TRACE_HINT, 6);
    sl_mp_put_uint(&w->mp, r->layer);
    sl_mp_put_uint(&w->mp, r->visits);
    sl_mp_put_uint(&w->mp, r->prompt);
    sl_mp_put_bin(&w->mp, r->experts, 2 * (uint64_t)r->n);
    put_floats(w, r->probabilities, 4 * (uint64_t)r->n);
}

void sl_trace_put_op(struct sl_trace_writer *w, const struct sl_trace_op *r)
{
    if (w->failed) return;
    bool of_slot = r->kind == SL_TRACE_SLOT_CLOSED || r->kind == SL_TRACE_SLOT_OPENED;
    SLUICE_ASSERT(of_slot || r->layer < w->n_layers);
    begin_record(w, 0, SL_TRACE_OP, 5);
    sl_mp_put_uint(&w->mp, r->kind);
    sl_mp_put_uint(&w->mp, of_slot ? 0 : r->layer);
    sl_mp_put_uint(&w->mp, r->expert);
    sl_mp_put_uint(&w->mp, sl_trace_op_has_how(r->kind) ? r->how : 0);
}

/* Reads begin close to one another, so a few bytes tell by how much; one that took long may have
 * begun before the last. */
void sl_trace_put_read(struct sl_trace_writer *w, const struct sl_trace_read *r)
{
    if (w->failed) return;
    SLUICE_ASSERT(r->layer < w->n_layers && r->begin_ns <= SL_TRACE_NUMBER_MAX);
    begin_record(w, 0, SL_TRACE_READ, 7);
    sl_mp_put_uint(&w->mp, r->layer);
    sl_mp_put_uint(&w->mp, r->expert);
    sl_mp_put_uint(&w->mp, r->why);
    put_number(w, r->bytes);
    sl_mp_put_int(&w->mp, (int64_t)r->begin_ns - (int64_t)w->last_read_ns);
    put_number(w, r->took_ns);
    w->last_read_ns = r->begin_ns;
    flush_if_due(w, r->begin_ns + r->took_ns);
}

void sl_trace_put_done(struct sl_trace_writer *w, const struct sl_trace_done *r)
{
    if (w->failed) return;
    SLUICE_ASSERT(w->in_eval);
    w->in_eval = false;
    begin_record(w, 0, SL_TRACE_DONE, 3);
    put_time(w, r->end_ns);
    sl_mp_put_array(&w->mp, SL_TRACE_PHASES);
    for (uint32_t i = 0; i < SL_TRACE_PHASES; i++) put_number(w, r->phase_ns[i]);
    flush_if_due(w, r->end_ns);
}
