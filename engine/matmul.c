/* Matrix products over the pool. See matmul.h. */
#include "engine/matmul.h"

#include <stdatomic.h>
#include <string.h>

/* A task is a tile, or fewer rows where threads would be left without: a kernel starts anew with
 * each, and does a multiple of these at once. */
#define TILE_ROWS_LEAST 16u
#define TILES_PER_THREAD 4u

/* ---- activations ------------------------------------------------------------------------ */

/* A block of codes q with max|q| = 127 gets a second digit where sum q^2 is below this: its largest
 * element is more than 3 times (blocks of 32) or 8 times (256) its root mean square. Few blocks of
 * bell-shaped values are like that; language models have channels that dwarf the rest, and the rest
 * carries the meaning. On SmolLM2-135M (Q4_1, a prompt of 37 tokens, 2026-11) this takes the error
 * of logits from 0.074 to 0.021 of their standard deviation; llama.cpp's is 0.067. Weights of the
 * container's 2 to 4 bits, of Q2_K and of Q3_K (rough) are off by so much themselves that 4.5 times
 * (the root of 20) and 10 times are as good for them, and faster. docs/LEARNED.md has the figures
 * for other borders. */
static uint32_t outlier_limit(enum sl_act_kind kind)
{
    static const uint32_t limits[SL_ACT_KINDS] = {
        [SL_ACT_Q8_32] = 127 * 127 * 32 / 9,
        [SL_ACT_Q8_32_ROUGH] = 127 * 127 * 32 / 20,
        [SL_ACT_Q8_256] = 127 * 127 * 256 / 64,
        [SL_ACT_Q8_256_ROUGH] = 127 * 127 * 256 / 100,
    };
    return limits[kind];
}

#define LINE_BYTES 64

/* Elements of one digit's arrays of one vector; each stays 64-byte aligned. Codes have a line to
 * spare: kernels go through the same columns of many vectors, which at a distance of a power of two
 * would all want the same few places in the first-level cache. */
struct strides {
    uint64_t q, d, sums;
};

static struct strides strides_of(enum sl_act_kind kind, uint32_t cols)
{
    uint64_t padded = ((uint64_t)cols + 255) & ~(uint64_t)255;
    uint64_t blocks = padded / sl_k_act_block(kind);
    return (struct strides){padded + LINE_BYTES, (blocks + 15) & ~(uint64_t)15,
                            (padded / 16 + 31) & ~(uint64_t)31};
}

void sl_acts_layout(struct sl_acts *a, struct sl_layout *l, uint32_t kinds, uint32_t capacity,
                    uint32_t cols_max)
{
    *a = (struct sl_acts){.kinds = kinds, .capacity = capacity, .cols_max = cols_max};
    a->f = sl_layout_take(l, capacity * (uint64_t)cols_max, sizeof(float));
    for (int kind = 0; kind < SL_ACT_KINDS; kind++) {
        if (!(kinds & 1u << kind)) continue;
        a->act[kind] = sl_layout_take(l, capacity, sizeof(struct sl_k_act));
        if (kind == SL_ACT_F32) continue;
        struct strides st = strides_of((enum sl_act_kind)kind, cols_max);
        a->q[kind] = sl_layout_take(l, 2 * capacity * st.q, 1);
        a->d[kind] = sl_layout_take(l, 2 * capacity * st.d, sizeof(float));
        a->sums[kind] = sl_layout_take(l, 2 * capacity * st.sums, sizeof(int16_t));
    }
}

void sl_acts_begin(struct sl_acts *a, uint32_t n, uint32_t cols)
{
    SLUICE_ASSERT(n <= a->capacity && cols <= a->cols_max);
    a->n = n;
    a->cols = cols;
    for (int kind = 0; kind < SL_ACT_KINDS; kind++) a->ready[kind] = false;
}

static bool is_coarse(const int8_t *q, enum sl_act_kind kind)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < sl_k_act_block(kind); i += 32) {
        int16_t code[32]; /* as words two products are added up at once */
        for (uint32_t j = 0; j < 32; j++) code[j] = q[i + j];
        for (uint32_t j = 0; j < 32; j++) sum += code[j] * code[j];
    }
    return sum > 0 && (uint32_t)sum < outlier_limit(kind);
}

struct digits {
    const struct sl_kernels *k;
    enum sl_act_kind kind;
    struct sl_k_act_out first, second;
};

/* Where both digits of vector i are. */
static struct digits digits_of(const struct sl_acts *a, enum sl_act_kind kind, uint64_t i)
{
    struct strides st = strides_of(kind, a->cols);
    struct digits g = {.kind = kind};
    g.first = (struct sl_k_act_out){a->q[kind] + 2 * i * st.q, a->d[kind] + 2 * i * st.d,
                                    a->sums[kind] + 2 * i * st.sums};
    g.second = (struct sl_k_act_out){g.first.q + st.q, g.first.d + st.d, g.first.sums + st.sums};
    return g;
}

/* Quantizes the rounding errors of block b, x - d * q rounded once. False where there are none. */
static bool second_digit(const struct digits *g, const float *x, uint32_t b)
{
    const struct sl_k_act_out *first = &g->first, *second = &g->second;
    float error[256], codes[256];
    uint32_t n = sl_k_act_block(g->kind);
    for (uint32_t i = 0; i < n; i++) codes[i] = (float)first->q[b * n + i];
    memcpy(error, x + b * n, n * sizeof *error);
    g->k->axpy(-first->d[b], codes, n, error);
    struct sl_k_act_out out = {second->q + b * n, second->d + b, second->sums + b * (n / 16)};
    return g->k->quantize(error, n, n, &out) && out.d[0] != 0.0f;
}

bool sl_acts_part(const struct sl_compute *c, struct sl_acts *a, enum sl_act_kind kind, uint32_t i,
                  struct sl_stretch part)
{
    SLUICE_DASSERT(i < a->n && part.n <= a->cols && part.first <= a->cols - part.n);
    SLUICE_DASSERT(a->kinds & 1u << kind);
    if (kind == SL_ACT_F32) return true;
    struct digits g = digits_of(a, kind, i);
    uint32_t block = sl_k_act_block(kind), first = part.first / block, n = part.n / block;
    const float *x = a->f + (uint64_t)i * a->cols;
    SLUICE_DASSERT(first * block == part.first && n * block == part.n);
    g.k = c->kernels;
    struct sl_k_act_out out = {g.first.q + part.first, g.first.d + first,
                               g.first.sums + part.first / 16};
    bool good = g.k->quantize(x + part.first, part.n, block, &out);
    for (uint32_t b = first; b < first + n; b++) {
        bool has = is_coarse(g.first.q + b * block, kind) && second_digit(&g, x, b);
        if (!has) g.second.d[b] = 0.0f;
    }
    return good;
}

void sl_acts_complete(struct sl_acts *a, enum sl_act_kind kind, uint32_t i)
{
    if (kind == SL_ACT_F32) {
        a->act[kind][i] = (struct sl_k_act){.f = a->f + (uint64_t)i * a->cols};
        return;
    }
    struct digits g = digits_of(a, kind, i);
    bool any = false;
    for (uint32_t b = 0; b < a->cols / sl_k_act_block(kind); b++) any |= g.second.d[b] != 0.0f;
    a->act[kind][i] = (struct sl_k_act){
        .q = g.first.q,
        .d = g.first.d,
        .sums = g.first.sums,
        .second = {g.second.q, any ? g.second.d : NULL, g.second.sums},
    };
}

struct acts_job {
    const struct sl_compute *c;
    struct sl_acts *a;
    enum sl_act_kind kind;
    atomic_bool bad; /* relaxed: read after the pool's own barrier */
};

static void acts_one(void *arg, uint32_t task, uint32_t worker)
{
    (void)worker;
    struct acts_job *j = arg;
    if (!sl_acts_part(j->c, j->a, j->kind, task, (struct sl_stretch){0, j->a->cols}))
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    sl_acts_complete(j->a, j->kind, task);
}

const struct sl_k_act *sl_acts_for(const struct sl_compute *c, struct sl_acts *a, uint32_t type)
{
    enum sl_act_kind kind = sl_k_act_kind(type);
    SLUICE_ASSERT(a->kinds & 1u << kind);
    if (a->ready[kind]) return a->act[kind];
    struct acts_job j = {c, a, kind, false};
    if (kind == SL_ACT_F32)
        for (uint32_t i = 0; i < a->n; i++) acts_one(&j, i, 0); /* not worth waking anybody */
    else
        sl_pool_run(c->pool, acts_one, &j, a->n);
    if (atomic_load_explicit(&j.bad, memory_order_relaxed)) return NULL;
    a->ready[kind] = true;
    return a->act[kind];
}

/* ---- products --------------------------------------------------------------------------- */

/* Rows of a product, but for where they go. */
static struct sl_k_matmul rows_of(const struct sl_mm *mm, struct sl_stretch rows)
{
    return (struct sl_k_matmul){
        .w = mm->w.w + rows.first * mm->w.row_bytes,
        .row_bytes = mm->w.row_bytes,
        .rows = rows.n,
        .cols = mm->w.cols,
        .x = mm->x,
        .n_tokens = mm->n_tokens,
    };
}

void sl_mm_rows(const struct sl_compute *c, const struct sl_mm *mm, struct sl_stretch rows)
{
    struct sl_k_matmul m = rows_of(mm, rows);
    m.y = mm->y + rows.first;
    m.y_stride = mm->y_stride;
    c->kernels->matmul[SL_TYPE_SLOT(mm->w.type)](&m);
}

void sl_mm_tile(const struct sl_compute *c, const struct sl_mm *mm, struct sl_stretch rows,
                const uint8_t *next, float *y)
{
    struct sl_k_matmul m = rows_of(mm, rows);
    m.next = next;
    m.y = y;
    m.y_stride = rows.n;
    c->kernels->matmul[SL_TYPE_SLOT(mm->w.type)](&m);
}

struct mm_job {
    const struct sl_compute *c;
    const struct sl_mm *items;
    uint32_t n_items, tile_rows;
};

static uint32_t tile_rows_for(const struct sl_compute *c, const struct sl_mm *items,
                              uint32_t n_items)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < n_items; i++) rows += items[i].w.rows;
    uint64_t tile = rows / (TILES_PER_THREAD * sl_pool_threads(c->pool));
    tile = tile / TILE_ROWS_LEAST * TILE_ROWS_LEAST;
    return (uint32_t)sl_max_u64(TILE_ROWS_LEAST, sl_min_u64(tile, SL_TILE_ROWS));
}

/* The item that owns a task: the last whose first_task is not above it. */
static const struct sl_mm *item_of(const struct mm_job *j, uint32_t task)
{
    uint32_t low = 0, high = j->n_items;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (j->items[mid].first_task <= task)
            low = mid;
        else
            high = mid;
    }
    return &j->items[low];
}

static void run_tile(void *arg, uint32_t task, uint32_t worker)
{
    (void)worker;
    const struct mm_job *j = arg;
    const struct sl_mm *i = item_of(j, task);
    uint32_t row = (task - i->first_task) * j->tile_rows;
    uint32_t rows = i->w.rows - row < j->tile_rows ? i->w.rows - row : j->tile_rows;
    sl_mm_rows(j->c, i, (struct sl_stretch){row, rows});
}

void sl_mm_run(const struct sl_compute *c, struct sl_mm *items, uint32_t n_items)
{
    struct mm_job j = {c, items, n_items, tile_rows_for(c, items, n_items)};
    uint32_t tasks = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        items[i].first_task = tasks;
        tasks += (items[i].w.rows + j.tile_rows - 1) / j.tile_rows;
    }
    sl_pool_run(c->pool, run_tile, &j, tasks);
}
