/* Flights: an expert's parts on their way from the file into a slot, and what happens when they
 * land. Every read that lands is compared with what is known of it (store_sums.c). */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "expert_cache/store.h"

#define REAP_BATCH 16

/* ---- places ------------------------------------------------------------------------------------
 */

const struct sl_gguf_tensor *store_part_tensor(const struct store_layer *l, uint32_t expert,
                                               uint32_t part)
{
    const struct sl_gguf_tensor *whole = l->source->tensor[part];
    return whole != NULL ? whole : l->source->single[part][expert];
}

uint64_t store_part_offset(const struct store_layer *l, uint32_t expert, uint32_t part)
{
    uint64_t before = l->source->tensor[part] != NULL ? expert * l->shape.part[part].bytes : 0;
    return store_part_tensor(l, expert, part)->offset + before;
}

struct store_place store_read_place(const struct sl_expert_store *s, struct sl_expert_id id,
                                    uint32_t r)
{
    const struct store_layer *l = &s->layers[id.layer];
    if (l->source->record != NULL) {
        const struct sl_container_record *record = l->source->record[id.expert];
        return (struct store_place){record->part, record->offset, record->bytes};
    }
    return (struct store_place){store_part_tensor(l, id.expert, r)->shard,
                                store_part_offset(l, id.expert, r), l->shape.part[r].bytes};
}

/* In the slot, where the byte at offset goes. */
static uint8_t *read_address(const struct sl_expert_store *s, uint32_t layer, uint32_t slot,
                             uint32_t r, uint64_t offset)
{
    const struct store_layer *l = &s->layers[layer];
    uint32_t k = l->size_class;
    uint64_t at = s->class_at[k] + (slot - s->first_slot[k]) * s->slot_bytes[k] + l->read_at[r];
    return s->memory.base + at + (offset & (s->block - 1));
}

uint8_t *store_part_address(const struct sl_expert_store *s, uint32_t layer, uint32_t expert,
                            uint32_t part, uint32_t slot)
{
    const struct store_layer *l = &s->layers[layer];
    uint32_t r = l->source->record != NULL ? 0 : part;
    struct store_place p = store_read_place(s, (struct sl_expert_id){layer, expert}, r);
    return read_address(s, layer, slot, r, p.offset) +
           (store_part_offset(l, expert, part) - p.offset);
}

/* ---- start -------------------------------------------------------------------------------------
 */

void store_flights_init(struct sl_expert_store *s)
{
    s->free_flight = 0;
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++)
        s->flights[i].next_free = i + 1 < FLIGHTS_MAX ? i + 1 : SL_EC_NONE;
}

static void count_needed(struct sl_expert_store *s)
{
    if (s->n_needed++ > 0) return;
    s->needed_since_ns = sl_now_ns();
    s->needed_bytes = 0;
}

static void prepare(struct sl_expert_store *s, struct flight *f, uint32_t read)
{
    struct sl_io_request *r = &f->r[read];
    bool low = f->why == FETCH_AHEAD || f->why == FETCH_WARM;
    struct store_place p = store_read_place(s, (struct sl_expert_id){f->layer, f->expert}, read);
    *r = (struct sl_io_request){
        .file = s->files[p.shard],
        .offset = p.offset,
        .bytes = p.bytes,
        .dst = read_address(s, f->layer, f->slot, read, p.offset),
        .priority = low ? SL_IO_LOW : SL_IO_DEMAND,
        .user = f,
    };
    s->batch[s->n_batch++] = r;
}

struct flight *store_read(struct sl_expert_store *s, struct sl_expert_id id, uint32_t slot,
                          uint32_t reads, enum fetch_why why)
{
    uint32_t index = s->free_flight;
    SLUICE_ASSERT(index != SL_EC_NONE && reads != 0);
    struct flight *f = &s->flights[index];
    s->free_flight = f->next_free;
    *f = (struct flight){.layer = id.layer, .expert = id.expert, .slot = slot};
    f->why = (uint8_t)why;
    f->pending = (uint8_t)reads;
    f->submitted_ns = sl_now_ns();
    s->n_flights++;
    s->flights_of[why]++;
    s->slots[slot].flight = index;
    s->slots[slot].layer = id.layer;
    if (why == FETCH_DEMAND || why == FETCH_PROMPT) count_needed(s);
    for (uint32_t r = 0; r < SL_EC_PARTS_MAX; r++)
        if (reads >> r & 1) prepare(s, f, r);
    return f;
}

void store_flush(struct sl_expert_store *s)
{
    if (s->n_batch == 0) return;
    sluice_err err = sl_io_submit(s->io, s->batch, s->n_batch);
    SLUICE_ASSERT(err == SLUICE_OK); /* places were checked with the file, rooms with the block */
    s->n_batch = 0;
}

static bool is_guess(const struct flight *f)
{
    return f->why == FETCH_AHEAD || f->why == FETCH_COMING || f->why == FETCH_WARM;
}

void store_adopt(struct sl_expert_store *s, struct flight *f)
{
    if (f->adopted || !is_guess(f)) return;
    f->adopted = true;
    f->needed_ns = sl_now_ns();
    count_needed(s);
    for (uint32_t p = 0; p < SL_EC_PARTS_MAX; p++)
        if ((f->pending & ~f->dropped) >> p & 1)
            if (sl_io_promote(s->io, &f->r[p])) f->promoted = true;
}

void store_cancel(struct sl_expert_store *s, struct flight *f)
{
    for (uint32_t p = 0; p < SL_EC_PARTS_MAX; p++)
        if ((f->pending & ~f->dropped) >> p & 1)
            if (sl_io_cancel(s->io, &f->r[p])) f->dropped = (uint8_t)(f->dropped | 1u << p);
}

/* ---- arrival -----------------------------------------------------------------------------------
 */

static void count_bytes(struct sl_expert_store *s, struct flight *f, uint64_t bytes)
{
    struct sl_expert_layer_stats *l = &s->layers[f->layer].stats;
    f->arrived_bytes += bytes;
    if (f->why == FETCH_DEMAND) s->stats.demand_bytes += bytes, l->demand_bytes += bytes;
    if (f->why == FETCH_PROMPT) s->stats.prompt_bytes += bytes, l->prompt_bytes += bytes;
    if (f->why == FETCH_WARM) s->stats.warm_bytes += bytes;
    if (f->why == FETCH_LOAD) s->stats.load_bytes += bytes;
    if (f->why == FETCH_AHEAD || f->why == FETCH_COMING)
        s->stats.ahead_bytes += bytes, l->ahead_bytes += bytes;
    if (f->why < FETCH_AHEAD || f->adopted) s->needed_bytes += bytes;
}

/* Whose failure it is: the open chunk's, or nobody's, since the expert is read again when it is
 * needed. A guess that the chunk has begun to compute with cannot be read again. */
static void report(struct sl_expert_store *s, const struct flight *f, sluice_error *e)
{
    e->layer = (int32_t)f->layer;
    e->expert = (int32_t)f->expert;
    const struct wanted *w = store_wanted(s, f->layer, f->expert);
    bool begun = w != NULL && f->adopted && w->handed != 0;
    if (is_guess(f) && !begun) {
        sl_log_line(s->log, SL_LOG_WARN, "reading expert %u of layer %u ahead failed: %s",
                    f->expert, f->layer, e->text);
        return;
    }
    if (!s->chunk.failed) s->error = *e;
    s->chunk.failed = true;
}

static void needed_no_more(struct sl_expert_store *s)
{
    if (--s->n_needed > 0) return;
    uint64_t ns = sl_now_ns() - s->needed_since_ns;
    s->stats.read_ns += ns;
    if (!s->waited || s->needed_bytes == 0) return; /* noticed late: says nothing of the drive */
    double rate = (double)ns / (double)s->needed_bytes;
    s->ns_per_byte = s->ns_per_byte == 0 ? rate : s->ns_per_byte + (rate - s->ns_per_byte) / 8;
}

static void landed_well(struct sl_expert_store *s, struct flight *f)
{
    struct store_slot *slot = &s->slots[f->slot];
    slot->took_ns = sl_now_ns() - f->submitted_ns;
    if (!f->useful) return;
    struct store_layer *l = &s->layers[f->layer];
    s->stats.ahead_useful_bytes += f->arrived_bytes;
    l->stats.ahead_useful_bytes += f->arrived_bytes;
    if (f->why != FETCH_AHEAD) return;
    uint64_t saved = f->promoted ? 0 : f->needed_ns - f->submitted_ns;
    double most = s->ns_per_byte * (double)l->expert_bytes;
    sl_read_ahead_saved(&s->ahead, most > 0 && most < (double)saved ? (uint64_t)most : saved);
}

static void landed_badly(struct sl_expert_store *s, struct flight *f)
{
    struct wanted *w = store_wanted(s, f->layer, f->expert);
    if (f->why == FETCH_LOAD) return; /* the store will not open */
    if (w != NULL && w->lease.slot == f->slot) store_want_again(s, w);
    store_coming_failed(s, f);
    if (f->useful) s->slots[f->slot].guess = f->why; /* it came to nothing after all */
    if (s->slots[f->slot].guess != 0) store_guess_wasted(s, f->layer, f->slot, f->arrived_bytes);
    sl_ec_failed(s->ec, f->slot);
}

/* To whoever records: what has become of the read, now that the books know. */
static void tell_landed(const struct sl_expert_store *s, const struct flight *f)
{
    if (s->watch == NULL || f->why == FETCH_LOAD) return;
    if (is_guess(f))
        store_tell(s, f->failed ? SL_TRACE_GONE : SL_TRACE_LANDED, f->layer, f->expert, 0);
    if (f->failed) return;
    const struct sl_trace_read r = {.layer = f->layer,
                                    .expert = f->expert,
                                    .why = f->why,
                                    .bytes = f->arrived_bytes,
                                    .begin_ns = f->submitted_ns,
                                    .took_ns = s->slots[f->slot].took_ns};
    s->watch->on_read(s->watch->user, &r);
}

static void land(struct sl_expert_store *s, struct flight *f)
{
    s->slots[f->slot].flight = SL_EC_NONE;
    if (f->why < FETCH_AHEAD || f->adopted) needed_no_more(s);
    if (f->failed)
        landed_badly(s, f);
    else
        landed_well(s, f);
    tell_landed(s, f);
    s->n_flights--;
    s->flights_of[f->why]--;
    f->next_free = s->free_flight;
    s->free_flight = (uint32_t)(f - s->flights);
}

static void arrive(struct sl_expert_store *s, struct sl_io_request *r)
{
    struct flight *f = r->user;
    uint32_t part = (uint32_t)(r - f->r);
    SLUICE_ASSERT(part < SL_EC_PARTS_MAX && (f->pending >> part & 1));
    f->pending = (uint8_t)(f->pending & ~(1u << part));
    sluice_error e;
    sluice_err err = r->code;
    if (err == SLUICE_OK) {
        count_bytes(s, f, r->bytes);
        err = store_check(s, (struct sl_expert_id){f->layer, f->expert}, part, r->dst, &e);
    } else {
        sluice_error cause;
        (void)sl_io_request_error(r, &cause);
        sl_fail(&e, err, "layer %u, expert %u: %s", f->layer, f->expert, cause.text);
        e.sys_errno = cause.sys_errno;
        e.file_offset = cause.file_offset;
    }
    if (err != SLUICE_OK && err != SLUICE_E_CANCELLED) report(s, f, &e);
    if (err != SLUICE_OK && !f->failed) {
        f->failed = true;
        store_cancel(s, f);
    }
    if (!f->failed) sl_ec_arrived(s->ec, f->slot, 1u << part);
    if (f->pending == 0) land(s, f);
}

void store_reap(struct sl_expert_store *s, uint32_t min)
{
    struct sl_io_request *out[REAP_BATCH];
    if (s->n_flights == 0) return;
    s->waited = min > 0;
    uint32_t n;
    do {
        n = sl_io_reap(s->io, out, REAP_BATCH, min);
        for (uint32_t i = 0; i < n; i++) arrive(s, out[i]);
        min = 0;
    } while (n == REAP_BATCH);
}
