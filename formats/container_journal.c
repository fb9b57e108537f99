/* The journal of a container that is being written: a header that says what it belongs to, then an
 * entry for each finished record, each with a checksum of its own, since a crash may leave half of
 * the last one. */
#include <string.h>

#include "formats/checksum.h"
#include "formats/container_write_internal.h"

#define SUM_AT (SL_CN_JOURNAL_BYTES - 8)

static const unsigned char magic[8] = {'S', 'L', 'J', 'R', 'N', '\r', '\n', 0x1A};

static void seal(unsigned char *raw) { sl_cn_put(raw + SUM_AT, sl_xxh3(raw, SUM_AT), 8); }

static bool is_sealed(const unsigned char *raw)
{
    return sl_gg_load_u64(raw + SUM_AT) == sl_xxh3(raw, SUM_AT);
}

/* Old entries go before the new header comes: a crash between must not leave them to it. Nor does
 * it ever leave less than a header of what was begun: parts beside an empty journal are nobody's.
 */
static sluice_err begin(struct sl_cn_journal *j, const unsigned char *head, uint64_t bytes,
                        sluice_error *e)
{
    sluice_err err = SLUICE_OK;

    if (bytes > SL_CN_JOURNAL_BYTES) err = sl_resume_file_cut(j->file, SL_CN_JOURNAL_BYTES, e);
    if (err == SLUICE_OK) err = sl_resume_file_write(j->file, 0, head, SL_CN_JOURNAL_BYTES, e);
    return err == SLUICE_OK ? sl_resume_file_sync(j->file, e) : err;
}

/* Whose journal this is. */
static sluice_err check_head(const unsigned char *found, const unsigned char *wanted,
                             const char *path, sluice_error *e)
{
    static const char *const what[] = {"another source", "another recipe", "another division"};

    if (memcmp(found, magic, sizeof magic) != 0)
        return sl_cn_fail(e, SLUICE_E_FORMAT, path,
                          "this is no journal of Sluice; it is in the way, and was left as it is");
    if (memcmp(found, wanted, SL_CN_JOURNAL_BYTES) == 0) return SLUICE_OK;
    if (!is_sealed(found))
        return sl_cn_fail(e, SLUICE_E_CORRUPT, path,
                          "the journal is damaged; begin anew (--restart)");
    if (memcmp(found + 8, wanted + 8, 8) != 0)
        return sl_cn_fail(e, SLUICE_E_VERSION, path,
                          "the journal is of another version of Sluice; begin anew (--restart)");
    uint32_t i = 0;
    while (i < 2 && memcmp(found + 16 + 8 * i, wanted + 16 + 8 * i, 8) == 0) i++;
    return sl_cn_fail(
        e, SLUICE_E_CHANGED, path,
        "what was begun here has %s: finish it with the options and the model that it "
        "was begun with, or begin anew (--restart)",
        what[i]);
}

static void make_head(const struct sl_cn_belongs *to, unsigned char head[SL_CN_JOURNAL_BYTES])
{
    memset(head, 0, SL_CN_JOURNAL_BYTES);
    memcpy(head, magic, sizeof magic);
    sl_cn_put(head + 8, SL_CN_JOURNAL_VERSION, 4);
    sl_cn_put(head + 16, to->source, 8);
    sl_cn_put(head + 24, to->recipe_sum, 8);
    sl_cn_put(head + 32, to->layout_sum, 8);
    seal(head);
}

/* Whether it was begun, by whatever settings, and nothing was finished: then there is nothing to
 * keep for them. */
static bool is_vain(const unsigned char *found, uint64_t bytes)
{
    return memcmp(found, magic, sizeof magic) == 0 && bytes < 2 * (uint64_t)SL_CN_JOURNAL_BYTES;
}

bool sl_cn_journal_goes_on(const char *path, const struct sl_cn_belongs *to, struct sl_budget *b)
{
    unsigned char head[SL_CN_JOURNAL_BYTES], found[SL_CN_JOURNAL_BYTES];
    struct sl_file *f;

    if (sl_file_open(path, b, NULL, &f) != SLUICE_OK) return false;
    make_head(to, head);
    bool same = sl_file_bytes(f) >= 2 * (uint64_t)SL_CN_JOURNAL_BYTES &&
                sl_file_read_at(f, 0, found, sizeof found, NULL) == SLUICE_OK &&
                memcmp(found, head, sizeof head) == 0;
    sl_file_close(f);
    return same;
}

sluice_err sl_cn_journal_open(struct sl_cn_journal *j, const char *path,
                              const struct sl_cn_belongs *to, struct sl_resume_limit *limit,
                              struct sl_budget *b, sluice_error *e)
{
    unsigned char head[SL_CN_JOURNAL_BYTES], found[SL_CN_JOURNAL_BYTES];
    uint64_t bytes = 0;

    memset(j, 0, sizeof *j);
    make_head(to, head);
    sluice_err err = sl_resume_file_open(path, limit, b, e, &j->file);
    if (err != SLUICE_OK) return err;
    err = sl_resume_file_bytes(j->file, &bytes, e);
    j->is_first = bytes == 0;
    j->is_new = to->anew || bytes < sizeof head; /* a crash while it was begun */
    if (err == SLUICE_OK && !j->is_new) {
        err = sl_resume_file_read(j->file, 0, found, sizeof found, e);
        j->is_new = err == SLUICE_OK && is_vain(found, bytes);
    }
    if (err == SLUICE_OK && j->is_new) err = begin(j, head, bytes, e);
    if (err == SLUICE_OK && !j->is_new) err = check_head(found, head, path, e);
    if (err != SLUICE_OK) sl_cn_journal_close(j);
    sl_cn_journal_rewind(j);
    return err;
}

void sl_cn_journal_close(struct sl_cn_journal *j)
{
    sl_resume_file_close(j->file);
    j->file = NULL;
}

void sl_cn_journal_rewind(struct sl_cn_journal *j) { j->at = SL_CN_JOURNAL_BYTES; }

sluice_err sl_cn_journal_next(struct sl_cn_journal *j, struct sl_cn_entry *out, bool *found,
                              sluice_error *e)
{
    unsigned char raw[SL_CN_JOURNAL_BYTES];
    uint64_t bytes;

    *found = false;
    sluice_err err = sl_resume_file_bytes(j->file, &bytes, e);
    if (err != SLUICE_OK || bytes < j->at || bytes - j->at < sizeof raw) return err;
    err = sl_resume_file_read(j->file, j->at, raw, sizeof raw, e);
    if (err != SLUICE_OK || !is_sealed(raw)) return err;
    *out = (struct sl_cn_entry){
        .kind = sl_gg_load_u32(raw),
        .part = sl_gg_load_u32(raw + 4),
        .number = sl_gg_load_u64(raw + 8),
        .offset = sl_gg_load_u64(raw + 16),
        .bytes = sl_gg_load_u64(raw + 24),
        .sum = sl_gg_load_u64(raw + 32),
    };
    j->at += sizeof raw;
    *found = true;
    return SLUICE_OK;
}

sluice_err sl_cn_journal_cut(struct sl_cn_journal *j, sluice_error *e)
{
    return sl_resume_file_cut(j->file, j->at, e);
}

sluice_err sl_cn_journal_add(struct sl_cn_journal *j, const struct sl_cn_entry *entry,
                             sluice_error *e)
{
    unsigned char raw[SL_CN_JOURNAL_BYTES];

    sl_cn_put(raw, entry->kind, 4);
    sl_cn_put(raw + 4, entry->part, 4);
    sl_cn_put(raw + 8, entry->number, 8);
    sl_cn_put(raw + 16, entry->offset, 8);
    sl_cn_put(raw + 24, entry->bytes, 8);
    sl_cn_put(raw + 32, entry->sum, 8);
    seal(raw);
    sluice_err err = sl_resume_file_write(j->file, j->at, raw, sizeof raw, e);
    if (err == SLUICE_OK) j->at += sizeof raw;
    return err;
}

sluice_err sl_cn_journal_sync(struct sl_cn_journal *j, sluice_error *e)
{
    return sl_resume_file_sync(j->file, e);
}
