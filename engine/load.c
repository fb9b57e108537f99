/* Reading weights: one resident segment for everything but routed experts, then the expert store.
 *
 * The segment is read with direct access through a few staging buffers, so that nothing of it stays
 * in the page cache: pieces are requested in file order, several at once, and copied (or decoded to
 * float) to their place in the same order. Of a container whole records are read and compared, and
 * the piece is taken from among them. */
#include <string.h>

#include "engine/record.h"
#include "formats/checksum.h"
#include "formats/records.h"
#include "io/block.h"

#define PIECE_BYTES (1u << 20) /* of one read */
#define PIECES 4u              /* reads at once: a drive is busy with 2 to 4 large ones */

struct load {
    struct sl_model *m;
    const struct sl_gguf *g;
    const struct sl_load_config *c;
    uint64_t done, total;
    sluice_error *e;
};

static int report(void *user, uint64_t bytes)
{
    struct load *l = user;
    l->done += bytes;
    return l->c->progress ? l->c->progress(l->c->progress_user, l->done, l->total) : 0;
}

/* ---- the files ---------------------------------------------------------------------------------
 */

static sluice_err open_backend(struct load *l, struct sl_budget *b)
{
    struct sl_io_config config = {.kind = l->c->io};
    struct sl_io *io;
    sluice_err err = sl_io_open(&config, b, l->c->log, l->e, &io);
    if (err == SLUICE_OK && l->c->wrap) err = l->c->wrap(l->c->wrap_user, io, l->e, &io);
    if (err == SLUICE_OK) l->m->io = io;
    return err;
}

/* Opens a file directly where that works with the blocks that buffers are laid out for. */
static sluice_err open_file(struct load *l, uint32_t i)
{
    struct sl_model *m = l->m;
    struct sl_file *file = sl_gguf_file(l->g, i);
    sluice_err err = sl_io_file_open(m->io, file, SL_IO_DIRECT, l->e, &m->files[i]);
    if (err != SLUICE_OK || sl_io_file_block(m->files[i]) <= sl_model_block()) return err;
    sl_io_file_close(m->files[i]);
    m->files[i] = NULL;
    return sl_io_file_open(m->io, file, SL_IO_BUFFERED, l->e, &m->files[i]);
}

static sluice_err open_files(struct load *l, struct sl_budget *b)
{
    struct sl_model *m = l->m;
    sluice_err err = open_backend(l, b);
    if (err != SLUICE_OK) return err;
    uint32_t n = sl_gguf_n_files(l->g);
    m->files = sl_alloc(b, n, sizeof *m->files);
    if (!m->files) return sl_fail(l->e, SLUICE_E_NOMEM, "no memory for the list of files");
    m->n_files = n;
    for (uint32_t i = 0; i < n && err == SLUICE_OK; i++) err = open_file(l, i);
    return err;
}

/* ---- the resident segment ----------------------------------------------------------------------
 */

/* A piece under way. */
struct piece {
    struct sl_io_request request; /* of whole records, where there are any */
    uint8_t *buffer;              /* [room] from a multiple of the block */
    const struct sl_weight *w;
    uint64_t at;          /* bytes from the start of the weight */
    uint64_t lead, bytes; /* of what was read, where it begins, and how much it is */
};

struct stage {
    struct load *l;
    struct piece piece[PIECES];
    uint64_t weight, at;       /* what is requested next */
    uint32_t first, n;         /* oldest piece under way, and how many */
    struct sl_xxh3_stream sum; /* of the tensor being copied */
    uint64_t summed;           /* bytes of it; UINT64_MAX: it did not begin at its start */
};

static uint64_t piece_bytes(const struct sl_weight *w, uint64_t at)
{
    uint32_t block = w->as_f32 ? sl_type_info(w->tensor->type)->block_bytes : 1;
    uint64_t most = PIECE_BYTES / block * block; /* decoding takes whole blocks */
    return sl_min_u64(most, w->src_bytes - at);
}

static sluice_err request_next(struct stage *s)
{
    struct sl_model *m = s->l->m;
    const struct sl_weight *w = &m->weights[s->weight];
    struct piece *p = &s->piece[(s->first + s->n) % PIECES];
    struct sl_range part = {w->tensor->offset + w->src_offset + s->at, piece_bytes(w, s->at)};
    struct sl_range whole = sl_gguf_widen(s->l->g, w->tensor->shard, part);
    p->w = w;
    p->at = s->at;
    p->lead = part.offset - whole.offset;
    p->bytes = part.bytes;
    p->request = (struct sl_io_request){
        .file = m->files[w->tensor->shard],
        .offset = whole.offset,
        .bytes = whole.bytes,
        .dst = p->buffer + whole.offset % sl_model_block(),
    };
    s->at += part.bytes;
    if (s->at == w->src_bytes) s->weight++, s->at = 0;
    s->n++;
    struct sl_io_request *r = &p->request;
    sluice_err err = sl_io_submit(m->io, &r, 1);
    if (err != SLUICE_OK) s->n--;
    return err == SLUICE_OK ? err : sl_fail(s->l->e, err, "the weights could not be requested");
}

/* Names the tensor in an error of reading. */
static sluice_err name_tensor(struct stage *s, const struct sl_weight *w, sluice_err err)
{
    sluice_error *e = s->l->e;
    if (!e) return err;
    char name[SL_NAME_MAX], why[sizeof e->text];
    sluice_error cause = *e;
    memcpy(why, e->text, sizeof why);
    sl_fail(e, err, "tensor %s: %s", sl_str_show(w->tensor->name, name, sizeof name), why);
    e->sys_errno = cause.sys_errno;
    e->file_offset = cause.file_offset;
    return err;
}

/* A tensor is summed where its pieces come from its start to its end without a gap, as they do
 * unless only a part of it is bound. */
static sluice_err check_sum(struct stage *s, const struct piece *p)
{
    const struct sl_weight *w = p->w;
    const struct sl_sums *sums = s->l->m->sums;
    uint64_t
        bytes; /* the embedding table as the output matrix has a sum for each row: check_rows */
    if (!sums || sl_sums_pieces(w->tensor, &bytes) != 1) return SLUICE_OK;
    uint64_t at = w->src_offset + p->at;
    if (at == 0) sl_xxh3_begin(&s->sum), s->summed = 0;
    if (s->summed != at) {
        s->summed = UINT64_MAX;
        return SLUICE_OK;
    }
    sl_xxh3_add(&s->sum, p->request.dst, p->bytes); /* no records, so nothing before it */
    s->summed += p->bytes;
    if (s->summed < w->tensor->bytes) return SLUICE_OK;
    uint32_t tensor = (uint32_t)(w->tensor - sl_gguf_tensor(s->l->g, 0));
    if (sl_xxh3_end(&s->sum) == sl_sums_get(sums, tensor, 0)) return SLUICE_OK;
    sl_fail(s->l->e, SLUICE_E_CORRUPT,
            "%s: the bytes from %llu on do not match the sums file; the file or the drive is "
            "damaged: get the model again, or read it again with sluice verify",
            sl_file_path(sl_gguf_file(s->l->g, w->tensor->shard)),
            (unsigned long long)w->tensor->offset);
    if (s->l->e) s->l->e->file_offset = w->tensor->offset;
    return name_tensor(s, w, SLUICE_E_CORRUPT);
}

/* Waits for the oldest piece and puts it in its place. */
static sluice_err place_oldest(struct stage *s)
{
    struct load *l = s->l;
    struct piece *p = &s->piece[s->first];
    struct sl_io_request *r = &p->request;
    sl_io_wait(l->m->io, &r, 1);
    s->first = (s->first + 1) % PIECES;
    s->n--;
    if (r->code != SLUICE_OK) return name_tensor(s, p->w, sl_io_request_error(r, l->e));
    struct sl_range whole = {r->offset, r->bytes};
    sluice_err err = sl_gguf_check(l->g, p->w->tensor->shard, whole, r->dst, l->e);
    if (err != SLUICE_OK) return name_tensor(s, p->w, err);
    err = check_sum(s, p);
    if (err != SLUICE_OK) return err;
    uint8_t *to = l->m->resident.base + p->w->offset;
    const uint8_t *from = (const uint8_t *)r->dst + p->lead;
    if (p->w->as_f32) {
        const struct sl_type_info *info = sl_type_info(p->w->tensor->type);
        uint64_t first = p->at / info->block_bytes * info->block_cols;
        info->decode(from, (float *)(void *)to + first,
                     p->bytes / info->block_bytes * info->block_cols);
    } else {
        memcpy(to + p->at, from, p->bytes);
    }
    if (report(l, p->bytes)) return sl_fail(l->e, SLUICE_E_CANCELLED, "loading was cancelled");
    return SLUICE_OK;
}

static sluice_err run_stage(struct stage *s)
{
    struct sl_model *m = s->l->m;
    sluice_err err = SLUICE_OK;
    while (err == SLUICE_OK && (s->n > 0 || s->weight < m->n_weights)) {
        if (s->weight < m->n_weights && s->n < PIECES)
            err = request_next(s);
        else
            err = place_oldest(s);
    }
    if (err != SLUICE_OK) sl_io_drain(m->io);
    return err;
}

/* The embedding table as the output matrix: it has a sum for each row. */
static sluice_err check_rows(struct load *l)
{
    const struct sl_model *m = l->m;
    const struct sl_gguf_tensor *t = m->embd_tensor;
    for (uint32_t i = 0; m->tied && m->sums && i < m->n_vocab; i++) {
        const uint8_t *row = m->token_embd.w + i * t->row_bytes;
        if (sl_xxh3(row, t->row_bytes) == sl_sums_get(m->sums, m->embd_index, i)) continue;
        uint64_t offset = t->offset + i * t->row_bytes;
        sl_fail(l->e, SLUICE_E_CORRUPT,
                "%s: row %u of token_embd.weight at %llu does not match the sums file; the file or "
                "the drive is damaged: get the model again",
                sl_file_path(sl_gguf_file(l->g, t->shard)), i, (unsigned long long)offset);
        if (l->e) l->e->file_offset = offset;
        return SLUICE_E_CORRUPT;
    }
    return SLUICE_OK;
}

static uint64_t piece_room(void)
{
    return sl_io_room(sl_model_block(), PIECE_BYTES + 2 * SL_SHEET_BYTES);
}

static sluice_err read_resident(struct load *l, struct sl_budget *b)
{
    struct sl_model *m = l->m;
    sluice_err err = sl_region_reserve(&m->resident, b, m->resident_bytes);
    if (err == SLUICE_OK) err = sl_region_commit(&m->resident, m->resident_bytes);
    if (err != SLUICE_OK)
        return sl_fail(l->e, err, "no memory for the resident weights: %llu bytes wanted",
                       (unsigned long long)m->resident_bytes);
    sl_region_prefer_huge(&m->resident); /* every token reads all of it */
    struct sl_region staging;
    err = sl_region_reserve(&staging, b, PIECES * piece_room());
    if (err == SLUICE_OK) err = sl_region_commit(&staging, PIECES * piece_room());
    if (err != SLUICE_OK) {
        if (staging.base) sl_region_deinit(&staging);
        return sl_fail(l->e, err, "no memory for reading the weights");
    }
    struct stage s = {.l = l, .summed = UINT64_MAX};
    for (uint32_t i = 0; i < PIECES; i++) s.piece[i].buffer = staging.base + i * piece_room();
    err = run_stage(&s);
    sl_region_deinit(&staging);
    for (uint64_t i = 0; i < m->n_weights; i++)
        *m->weights[i].slot = m->resident.base + m->weights[i].offset;
    if (m->tied) m->token_embd.w = m->output.w;
    return err == SLUICE_OK ? check_rows(l) : err;
}

/* ---- the rest ----------------------------------------------------------------------------------
 */

static sluice_err open_store(struct load *l, struct sl_budget *b)
{
    struct sl_model *m = l->m;
    if (m->n_moe_layers == 0) return SLUICE_OK;
    struct sl_expert_shape *shapes = sl_alloc(b, m->n_layers, sizeof *shapes);
    if (!shapes) return sl_fail(l->e, SLUICE_E_NOMEM, "no memory for the expert table");
    for (uint32_t y = 0; y < m->n_layers; y++) shapes[y] = m->layers[y].experts;
    struct sl_expert_store_config c = {
        .gguf = l->g,
        .io = m->io,
        .files = m->files,
        .map = l->c->map,
        .shapes = shapes,
        .sources = m->sources,
        .n_layers = m->n_layers,
        .policy = l->c->policy,
        .read_ahead = l->c->read_ahead,
        .sums = m->sums,
        .log = l->c->log,
        .watch = m->record ? sl_record_watch(m->record) : NULL,
        .progress = report,
        .progress_user = l,
    };
    memcpy(c.n_slots, l->c->n_slots, sizeof c.n_slots);
    sluice_err err = sl_expert_store_open(&c, b, l->e, &m->store);
    sl_free(shapes);
    return err;
}

/* Whether sums of embedding rows have to be remembered. */
static bool keeps_row_sums(const struct sl_model *m)
{
    return !m->tied && !sl_gguf_record(m->gguf, m->embd_tensor->shard, m->embd_tensor->offset);
}

static sluice_err open_row_sums(struct load *l, struct sl_budget *b)
{
    if (!keeps_row_sums(l->m)) return SLUICE_OK;
    l->m->embd_sums = sl_alloc(b, l->m->n_vocab, sizeof *l->m->embd_sums);
    return l->m->embd_sums ? SLUICE_OK
                           : sl_fail(l->e, SLUICE_E_NOMEM, "no memory for sums of the embedding");
}

uint64_t sl_model_load_bytes(const struct sl_model *m)
{
    return keeps_row_sums(m) ? (uint64_t)m->n_vocab * sizeof *m->embd_sums : 0;
}

uint64_t sl_model_stage_bytes(void) { return PIECES * piece_room(); }

static bool reads_all_experts(const struct load *l)
{
    uint64_t slots = 0, experts = 0;
    for (uint32_t k = 0; k < SL_EC_CLASSES_MAX; k++) slots += l->c->n_slots[k];
    for (uint32_t y = 0; y < l->m->n_layers; y++) experts += l->m->layers[y].n_experts;
    return slots >= experts && !l->c->map;
}

sluice_err sl_model_load(struct sl_model *m, const struct sl_gguf *g,
                         const struct sl_load_config *c, struct sl_budget *b, sluice_error *e)
{
    struct load l = {m, g, c, 0, 0, e};
    for (uint64_t i = 0; i < m->n_weights; i++) l.total += m->weights[i].src_bytes;
    for (uint32_t y = 0; y < m->n_layers && reads_all_experts(&l); y++)
        l.total += sl_expert_shape_bytes(&m->layers[y].experts);
    sluice_err err = sl_sums_open(g, b, e, &m->sums);
    if (err == SLUICE_OK) err = open_files(&l, b);
    if (err == SLUICE_OK && c->opened) err = c->opened(c->opened_user, e);
    if (err == SLUICE_OK) err = open_row_sums(&l, b);
    if (err == SLUICE_OK) err = read_resident(&l, b);
    if (err == SLUICE_OK) err = open_store(&l, b);
    /* A file that was replaced meanwhile has given weights of two models. */
    for (uint32_t i = 0; i < sl_gguf_n_files(g) && err == SLUICE_OK; i++)
        err = sl_file_check_unchanged(sl_gguf_file(g, i), e);
    return err;
}

void sl_model_deinit(struct sl_model *m)
{
    sl_expert_store_close(m->store);
    for (uint32_t i = 0; i < m->n_files; i++) sl_io_file_close(m->files[i]);
    sl_free(m->files);
    sl_io_close(m->io);
    sl_sums_close(m->sums);
    sl_free(m->embd_sums);
    if (m->resident.base) sl_region_deinit(&m->resident);
    sl_free(m->weights);
    if (m->arena.budget) sl_arena_deinit(&m->arena);
    *m = (struct sl_model){0};
}
