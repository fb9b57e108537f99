/* The memory plan: how many expert slots, how large a context and how large a chunk fit.
 *
 * Everything that will be charged to the budget is known to the byte before any of it is taken, but
 * for a few small blocks that share an allowance. What the budget does not see (code, stacks, page
 * tables) is an allowance on top. Where all experts fit beside a usable context, they stay in
 * memory; otherwise slots fill what the rest leaves at the start of a text, and the context, as it
 * grows, closes slots one by one: so at the full context the floor must still fit. */
#include <string.h>

#include "engine/api.h"
#include "engine/record.h"

/* Small pieces that are not worth a line each: handles, tables, block headers, requests, open
 * files. */
#define PLAN_SLACK_BYTES ((uint64_t)512 << 10)
#define CHUNK_MIN 16u
/* Of a model that stays in memory a chunk is at least this, where it fits. */
#define CHUNK_RESIDENT 64u
/* A streamed prompt reads each expert once a chunk, and wherever weights are, taking a block of
 * them apart pays the better the more of a chunk's tokens it serves. So chunks are large, but not
 * at the price of many slots: a thirty-third of the memory. */
#define CHUNK_SHARE 33u
/* A hot list while it is read: its text, and what it says. */
#define HOT_BYTES (sizeof(struct sl_expert_id) + 16u)
/* Page tables: 8 bytes for each page of 4096. */
#define PAGE_SHARE 512u

struct work {
    const struct api_plan_input *in;
    const struct sl_model *m;
    const sluice_options *opt;
    struct sl_expert_shape *shapes; /* [n_layers] */
    struct sl_expert_sizes sizes;
    uint32_t least_slots[SL_EC_CLASSES_MAX]; /* as asked for, or the floor */
    uint32_t all_slots[SL_EC_CLASSES_MAX];
    bool maps;
    uint64_t opening; /* opening_bytes() */
    uint64_t limit;   /* of what is charged; UINT64_MAX: none */
    sluice_plan p;
};

/* ---- the process around it ---------------------------------------------------------------------
 */

static uint64_t process_base(uint32_t threads)
{
    return API_PROCESS_BYTES + threads * API_THREAD_BYTES;
}

uint64_t api_budget_limit(uint64_t ram_bytes, uint32_t threads)
{
    uint64_t base = process_base(threads);
    if (ram_bytes == 0) return UINT64_MAX;
    return ram_bytes > base ? (ram_bytes - base) / (PAGE_SHARE + 1) * PAGE_SHARE : 0;
}

/* The smallest ram_bytes whose limit is bytes or more. */
static uint64_t ram_for(const struct work *w, uint64_t bytes)
{
    return process_base(w->in->threads) + (bytes + PAGE_SHARE - 1) / PAGE_SHARE * (PAGE_SHARE + 1);
}

/* ---- parts -------------------------------------------------------------------------------------
 */

static uint32_t least_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t total(const uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) sum += n_slots[k];
    return sum;
}

static uint64_t kv_bytes(const struct work *w, uint32_t n_ctx)
{
    return sl_kv_bytes(w->m, api_kv_type(w->opt->kv), n_ctx);
}

static uint64_t store_bytes(const struct work *w, const uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    if (w->m->n_moe_layers == 0) return 0;
    uint64_t bytes = sl_expert_store_bytes(w->shapes, w->m->n_layers, &w->sizes, n_slots);
    for (uint32_t k = 0; w->maps && k < w->sizes.n_classes; k++)
        bytes -= sl_min_u64(bytes, n_slots[k] * w->sizes.slot_bytes[k]);
    return bytes;
}

/* The most that opening needs before slots and session are there. */
static uint64_t opening_bytes(const struct work *w)
{
    uint64_t reading =
        w->p.dense_bytes + w->p.tokenizer_bytes + w->p.io_bytes + sl_model_stage_bytes();
    return sl_max_u64(reading, w->in->peak_bytes + PLAN_SLACK_BYTES);
}

uint64_t api_sampler_bytes(uint32_t n_vocab, uint32_t n_ctx)
{
    return (uint64_t)n_vocab * 12 + n_vocab / 8 + 4 * (uint64_t)n_ctx;
}

/* A session but for its KV cache and its recurrent state: working memory, the list of ids (which
 * doubles as it grows, and is then there twice), a sampler. */
static uint64_t session_bytes(const struct work *w, uint32_t chunk, uint32_t n_ctx)
{
    struct sl_session_config config;
    struct api_session_input in = {w->opt, chunk, n_ctx, w->m->n_moe_layers != 0};
    api_session_config(&in, &config);
    uint64_t ids = 3 * (uint64_t)n_ctx * sizeof(int32_t);
    uint64_t sampler = api_sampler_bytes(w->m->n_vocab, n_ctx);
    return sl_scratch_bytes(w->m, chunk, w->in->threads) + sl_session_extra_bytes(w->m, &config) +
           ids + sampler;
}

/* All but slots and KV cache. */
static uint64_t fixed_bytes(const struct work *w, uint32_t chunk, uint32_t n_ctx)
{
    return w->p.dense_bytes + w->p.tokenizer_bytes + w->p.io_bytes + w->p.state_bytes +
           session_bytes(w, chunk, n_ctx);
}

static uint64_t sum_bytes(const struct work *w, uint32_t chunk, uint32_t n_ctx, uint64_t experts)
{
    return fixed_bytes(w, chunk, n_ctx) + experts + kv_bytes(w, n_ctx);
}

static uint32_t smallest_chunk(const struct work *w)
{
    return w->opt->chunk ? w->opt->chunk : CHUNK_MIN;
}

/* What a context and a chunk take. Where experts stream: the whole context beside the floor, and
 * its start beside the slots that were asked for. */
static uint64_t need_bytes(const struct work *w, uint32_t chunk, uint32_t n_ctx, bool streams)
{
    if (!streams) return sum_bytes(w, chunk, n_ctx, store_bytes(w, w->all_slots));
    uint64_t whole = sum_bytes(w, chunk, n_ctx, store_bytes(w, w->sizes.floor.fewest));
    uint64_t start = fixed_bytes(w, chunk, n_ctx) + store_bytes(w, w->least_slots) +
                     kv_bytes(w, least_u32(n_ctx, API_CONTEXT_START));
    return sl_max_u64(whole, start);
}

/* The largest chunk from first down with which n_ctx tokens fit. */
static uint32_t chunk_that_fits(const struct work *w, uint32_t first, uint32_t n_ctx, bool streams)
{
    if (w->opt->chunk) return w->opt->chunk;
    while (first > CHUNK_MIN && need_bytes(w, first, n_ctx, streams) > w->limit) first /= 2;
    return first;
}

/* ---- contexts ----------------------------------------------------------------------------------
 */

static uint32_t longest_context(const struct work *w)
{
    return least_u32(w->m->n_ctx_most, SL_CONTEXT_MAX);
}

static uint32_t shortest_context(const struct work *w)
{
    if (w->opt->n_ctx) return w->opt->n_ctx;
    return least_u32(longest_context(w), API_CONTEXT_MIN);
}

/* The longest context of up to most tokens that fits; the shortest allowed one where none does. */
static uint32_t context_that_fits(const struct work *w, uint32_t chunk, uint32_t most, bool streams)
{
    uint32_t low = shortest_context(w);
    if (w->opt->n_ctx || need_bytes(w, chunk, most, streams) <= w->limit) return most;
    for (uint32_t high = most; high - low > SL_KV_BLOCK;) {
        uint32_t middle = low + (high - low) / 2;
        if (need_bytes(w, chunk, middle, streams) <= w->limit)
            low = middle;
        else
            high = middle;
    }
    return low > API_CONTEXT_MIN ? low / SL_KV_BLOCK * SL_KV_BLOCK : low;
}

/* ---- the two kinds of plan ---------------------------------------------------------------------
 */

/* The context that a model which stays in memory should at least have: one with experts streams
 * rather than have less. */
static uint32_t resident_context(const struct work *w)
{
    if (w->opt->n_ctx) return w->opt->n_ctx;
    return least_u32(longest_context(w),
                     w->m->n_moe_layers ? API_CONTEXT_STREAMED : API_CONTEXT_MIN);
}

static bool stays_in_memory(const struct work *w)
{
    if (w->m->n_moe_layers == 0 || w->maps) return true;
    if (w->opt->slots && w->opt->slots < w->p.n_experts) return false;
    return need_bytes(w, smallest_chunk(w), resident_context(w), false) <= w->limit;
}

/* The largest chunk that keeps to its share of the memory, or least; smaller where even that does
 * not fit. */
static uint32_t default_chunk(const struct work *w, uint32_t n_ctx, bool streams)
{
    uint32_t least = streams ? CHUNK_MIN : CHUNK_RESIDENT, chunk = SL_CHUNK_MAX;
    uint64_t whole = w->limit;
    if (whole == UINT64_MAX) whole = need_bytes(w, least, n_ctx, streams);
    while (chunk > least && sl_scratch_bytes(w->m, chunk, w->in->threads) > whole / CHUNK_SHARE)
        chunk /= 2;
    return chunk_that_fits(w, chunk, n_ctx, streams);
}

static void plan_resident(struct work *w, struct api_plan *out)
{
    memcpy(out->n_slots, w->all_slots, sizeof out->n_slots);
    w->p.chunk = default_chunk(w, resident_context(w), false);
    w->p.n_ctx =
        w->opt->n_ctx ? w->opt->n_ctx : context_that_fits(w, w->p.chunk, longest_context(w), false);
    w->p.kv_start_bytes = kv_bytes(w, w->p.n_ctx);
    w->p.n_slots_full = total(out->n_slots);
}

/* The slots that fit beside the rest and so many bytes of KV cache. */
static void slots_that_fit(const struct work *w, uint64_t kv, uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    uint64_t rest = fixed_bytes(w, w->p.chunk, w->p.n_ctx) + kv;
    uint64_t left = w->limit > rest ? w->limit - rest : 0;
    if (w->opt->slots && store_bytes(w, w->least_slots) <= left)
        memcpy(n_slots, w->least_slots, sizeof w->least_slots);
    else if (!sl_expert_slots_for_bytes(w->shapes, w->m->n_layers, &w->sizes, left, n_slots))
        memcpy(n_slots, w->sizes.floor.fewest, sizeof w->sizes.floor.fewest);
}

static void plan_streamed(struct work *w, struct api_plan *out)
{
    uint32_t most = least_u32(longest_context(w), API_CONTEXT_STREAMED);
    if (w->opt->n_ctx) most = w->opt->n_ctx;
    w->p.streams = 1;
    w->p.n_ctx = context_that_fits(w, smallest_chunk(w), most, true);
    w->p.chunk = default_chunk(w, w->p.n_ctx, true);
    uint32_t start = least_u32(w->p.n_ctx, API_CONTEXT_START);
    w->p.kv_start_bytes = kv_bytes(w, w->limit == UINT64_MAX ? w->p.n_ctx : start);
    slots_that_fit(w, w->p.kv_start_bytes, out->n_slots);
    uint32_t full[SL_EC_CLASSES_MAX];
    slots_that_fit(w, kv_bytes(w, w->p.n_ctx), full);
    w->p.n_slots_full = total(full);
}

/* ---- figures about other budgets ---------------------------------------------------------------
 */

/* The fewest slots, as they are divided among the classes, that hold a token's experts. */
static uint32_t hits_slots(const struct work *w, uint32_t n_slots[SL_EC_CLASSES_MAX])
{
    uint32_t low = total(w->sizes.floor.lru_hits), high = w->p.n_experts;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool enough = sl_expert_slots_for_count(&w->sizes, middle, n_slots);
        for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++)
            enough = enough && n_slots[k] >= w->sizes.floor.lru_hits[k];
        if (enough)
            high = middle;
        else
            low = middle + 1;
    }
    (void)sl_expert_slots_for_count(&w->sizes, low, n_slots);
    return low;
}

static void other_budgets(struct work *w)
{
    uint32_t chunk = smallest_chunk(w), least = shortest_context(w);
    uint64_t need = sl_max_u64(need_bytes(w, chunk, least, true), w->opening);
    w->p.n_ctx_min = least;
    w->p.minimum_bytes = ram_for(w, need);
    need = sl_max_u64(need_bytes(w, chunk, resident_context(w), false), w->opening);
    w->p.resident_bytes = ram_for(w, need);
    if (w->m->n_moe_layers == 0) return;
    uint32_t n_slots[SL_EC_CLASSES_MAX];
    uint32_t n_ctx = w->p.streams ? w->p.n_ctx : resident_context(w);
    w->p.n_slots_hits = hits_slots(w, n_slots);
    need = fixed_bytes(w, w->p.chunk, n_ctx) + store_bytes(w, n_slots) +
           kv_bytes(w, least_u32(n_ctx, API_CONTEXT_START));
    need = ram_for(w, sl_max_u64(need, w->opening)); /* with a larger chunk perhaps than the next */
    w->p.hits_bytes = sl_min_u64(need, w->p.resident_bytes);
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

static void describe_slots(struct work *w, struct api_plan *out)
{
    if (w->m->n_moe_layers == 0) return;
    sl_expert_sizes(w->shapes, w->m->n_layers, &w->sizes);
    memcpy(w->all_slots, w->sizes.n_experts, sizeof w->all_slots);
    memcpy(w->least_slots, w->sizes.floor.fewest, sizeof w->least_slots);
    w->p.n_experts = total(w->sizes.n_experts);
    w->p.n_slots_min = total(w->sizes.floor.fewest);
    w->p.model_expert_bytes = w->sizes.file_bytes;
    w->p.slot_least_bytes = w->sizes.slot_bytes[0];
    for (uint32_t k = 0; k < w->sizes.n_classes; k++) {
        w->p.slot_bytes = sl_max_u64(w->p.slot_bytes, w->sizes.slot_bytes[k]);
        w->p.slot_least_bytes = sl_min_u64(w->p.slot_least_bytes, w->sizes.slot_bytes[k]);
    }
    if (w->opt->slots && !w->maps)
        out->below_floor = !sl_expert_slots_for_count(&w->sizes, w->opt->slots, w->least_slots);
}

static void make_plan(struct work *w, struct api_plan *out)
{
    const struct api_plan_input *in = w->in;
    w->p.dense_bytes = PLAN_SLACK_BYTES + in->charged_bytes - in->tokenizer_bytes +
                       w->m->resident_bytes + sl_pool_bytes(in->threads);
    w->p.tokenizer_bytes = in->tokenizer_bytes;
    w->p.io_bytes = sl_model_load_bytes(w->m) + in->sums_bytes;
    w->p.ram_bytes = w->opt->ram_bytes;
    w->p.available_bytes = in->available_bytes;
    w->p.kv_token_bytes = kv_bytes(w, SL_KV_BLOCK) / SL_KV_BLOCK;
    w->p.state_bytes = sl_recurrent_bytes(w->m);
    describe_slots(w, out);
    if (w->opt->trace && w->m->n_moe_layers) w->p.io_bytes += sl_record_bytes(w->m);
    if (w->opt->hot_list) w->p.io_bytes += w->p.n_experts * HOT_BYTES;
    if (stays_in_memory(w))
        plan_resident(w, out);
    else
        plan_streamed(w, out);
    w->p.n_slots = total(out->n_slots);
    w->p.expert_bytes = store_bytes(w, out->n_slots);
    w->p.kv_bytes = kv_bytes(w, w->p.n_ctx);
    w->p.scratch_bytes = session_bytes(w, w->p.chunk, w->p.n_ctx);
    uint64_t sum = fixed_bytes(w, w->p.chunk, w->p.n_ctx) + w->p.expert_bytes + w->p.kv_start_bytes;
    w->opening = opening_bytes(w);
    other_budgets(w);
    if (w->opening > sum) { /* a very small model */
        w->p.io_bytes += w->opening - sum;
        sum = w->opening;
    }
    w->p.total_bytes = ram_for(w, sum);
    w->p.process_bytes = w->p.total_bytes - sum;
}

sluice_err api_plan(const struct api_plan_input *in, struct sl_budget *b, sluice_error *e,
                    struct api_plan *out)
{
    *out = (struct api_plan){.p = SLUICE_PLAN_INIT};
    struct work w = {.in = in, .m = in->m, .opt = in->opt, .p = SLUICE_PLAN_INIT};
    w.limit = api_budget_limit(in->opt->ram_bytes, in->threads);
    w.maps = in->opt->io == SLUICE_IO_MMAP;
    w.shapes = sl_alloc(b, in->m->n_layers, sizeof *w.shapes);
    if (!w.shapes) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the memory plan");
    for (uint32_t l = 0; l < in->m->n_layers; l++) w.shapes[l] = in->m->layers[l].experts;
    make_plan(&w, out);
    out->p = w.p;
    sl_free(w.shapes);
    return SLUICE_OK;
}
