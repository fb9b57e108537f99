/* Whether what was read is what it should be: a container's record has its checksum; of a GGUF the
 * sum of each part is remembered at its first read, and a sums file knows that one too. In the
 * table 0 means "not yet read", so a hash of 0 counts as 1. */
#include <inttypes.h>
#include <string.h>

#include "expert_cache/store.h"
#include "formats/checksum.h"

static uint64_t *known_sum(struct sl_expert_store *s, struct sl_expert_id id, uint32_t r)
{
    const struct store_layer *l = &s->layers[id.layer];
    return &s->sums[l->first_sum + (uint64_t)id.expert * l->n_reads + r];
}

bool store_checked(struct sl_expert_store *s, struct sl_expert_id id, uint32_t r)
{
    return *known_sum(s, id, r) != 0;
}

static uint64_t filed_sum(const struct sl_expert_store *s, struct sl_expert_id id, uint32_t part)
{
    const struct store_layer *l = &s->layers[id.layer];
    if (s->sums_file == NULL) return 0;
    const struct sl_gguf_tensor *t = store_part_tensor(l, id.expert, part);
    uint32_t index = (uint32_t)(t - sl_gguf_tensor(s->gguf, 0));
    uint64_t piece = l->source->tensor[part] != NULL ? id.expert : 0;
    uint64_t sum = sl_sums_get(s->sums_file, index, piece);
    return sum != 0 ? sum : 1;
}

static const char *path_of(const struct sl_expert_store *s, uint32_t shard)
{
    return sl_file_path(s->map != NULL ? sl_gguf_file(s->gguf, shard)
                                       : sl_io_file_of(s->files[shard]));
}

static sluice_err fail(const struct sl_expert_store *s, struct sl_expert_id id, uint32_t part,
                       bool reread, sluice_error *e)
{
    struct store_place p = store_read_place(s, id, part);
    const char *path = path_of(s, p.shard);
    char shown[256];
    sl_str_show((struct sl_str){path, strlen(path)}, shown, sizeof shown);
    sl_fail(e, SLUICE_E_CORRUPT,
            "'%s', layer %u, expert %u, part %u of %u: the %" PRIu64 " bytes at offset %" PRIu64
            " are not %s; %s",
            shown, id.layer, id.expert, part + 1, s->layers[id.layer].shape.n_parts, p.bytes,
            p.offset, reread ? "those that were read before" : "those of the sums file",
            reread ? "the drive or the memory fails, or the file was changed: run `sluice verify`"
                   : "the file is damaged: run `sluice verify`, or download it again");
    if (e != NULL) e->file_offset = p.offset;
    return SLUICE_E_CORRUPT;
}

sluice_err store_check(struct sl_expert_store *s, struct sl_expert_id id, uint32_t r,
                       const void *data, sluice_error *e)
{
    const struct store_layer *l = &s->layers[id.layer];
    struct store_place p = store_read_place(s, id, r);
    uint64_t *known = known_sum(s, id, r);
    uint64_t found = sl_xxh3(data, p.bytes);
    if (l->source->record != NULL) {
        const struct sl_container_record *x = l->source->record[id.expert];
        s->stats.checked++;
        *known = 1;
        if (found == x->sum) return SLUICE_OK;
        return sl_record_damaged(x, path_of(s, p.shard), e);
    }
    if (found == 0) found = 1;
    bool reread = *known != 0;
    uint64_t wanted = reread ? *known : filed_sum(s, id, r);
    if (wanted != 0) s->stats.checked++;
    if (wanted != 0 && wanted != found) return fail(s, id, r, reread, e);
    *known = found;
    return SLUICE_OK;
}
