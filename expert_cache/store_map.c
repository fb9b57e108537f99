/* The baseline that others use: the files are mapped, the kernel pages. Outside the budget;
 * compared with its checksum is an expert at its first use only, not what the kernel reads again
 * later; and a file that is cut short while it is mapped kills the process. There to compare with,
 * and for nothing else. */
#define _GNU_SOURCE /* madvise */
#include <errno.h>
#include <sys/mman.h>

#include "expert_cache/store.h"

struct store_map {
    uint32_t n;
    struct {
        uint8_t *base;
        uint64_t bytes;
    } file[];
};

sluice_err store_map_open(struct sl_expert_store *s, sluice_error *e)
{
    uint32_t n = sl_gguf_n_files(s->gguf);
    s->map = sl_alloc(s->budget, 1, sizeof *s->map + n * sizeof s->map->file[0]);
    if (s->map == NULL) return sl_fail(e, SLUICE_E_NOMEM, "no memory to map the model's files");
    for (uint32_t i = 0; i < n; i++) {
        struct sl_file *f = sl_gguf_file(s->gguf, i);
        uint64_t bytes = sl_file_bytes(f);
        void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, sl_file_fd(f), 0);
        if (p == MAP_FAILED)
            return sl_fail_sys(e, SLUICE_E_IO, errno, "'%s' cannot be mapped", sl_file_path(f));
        (void)madvise(p, bytes, MADV_RANDOM); /* whole experts, in no order the kernel could see */
        s->map->file[i].base = p;
        s->map->file[i].bytes = bytes;
        s->map->n++;
    }
    return SLUICE_OK;
}

void store_map_close(struct sl_expert_store *s)
{
    if (s->map == NULL) return;
    for (uint32_t i = 0; i < s->map->n; i++) munmap(s->map->file[i].base, s->map->file[i].bytes);
    sl_free(s->map);
}

const uint8_t *store_map_part(const struct sl_expert_store *s, uint32_t layer, uint32_t expert,
                              uint32_t part)
{
    const struct store_layer *l = &s->layers[layer];
    uint32_t shard = store_part_tensor(l, expert, part)->shard;
    return s->map->file[shard].base + store_part_offset(l, expert, part);
}

sluice_err store_map_check(struct sl_expert_store *s, sluice_error *e)
{
    const struct chunk *c = &s->chunk;
    for (uint32_t i = 0; i < c->n; i++) {
        struct sl_expert_id id = {c->layer, c->list[i].expert};
        for (uint32_t r = 0; r < s->layers[c->layer].n_reads; r++) {
            if (store_checked(s, id, r)) continue;
            struct store_place p = store_read_place(s, id, r);
            sluice_err err = store_check(s, id, r, s->map->file[p.shard].base + p.offset, e);
            if (err == SLUICE_OK) continue;
            if (e != NULL) e->layer = (int32_t)id.layer, e->expert = (int32_t)id.expert;
            return err;
        }
    }
    return SLUICE_OK;
}
