/* See trim.h. */
#include "engine/trim.h"

#include "include/sluice.h"

/* Sequentially consistent, all three: whoever asks notes the level and then looks whether an
 * evaluation runs; whoever ends one clears that mark and then looks for a level. At least one of
 * the two sees the other (api_session.c). */
void sl_model_request_trim(struct sl_model *m, uint32_t level)
{
    atomic_store(&m->trim_request, level);
}

bool sl_model_trim_waits(const struct sl_model *m) { return atomic_load(&m->trim_request) != 0; }

void sl_model_apply_trim(struct sl_model *m)
{
    if (!sl_model_trim_waits(m)) return; /* nearly always: a look, no exchange */
    uint32_t level = atomic_exchange(&m->trim_request, 0);
    if (!m->store || level == 0) return;
    struct sl_expert_stats s;
    sl_expert_get_stats(m->store, &s);
    m->trimmed = level != SLUICE_TRIM_RESTORE;
    switch (level) {
    case SLUICE_TRIM_SOME:
        (void)sl_expert_store_shrink(m->store, s.slot_bytes_open / 4);
        break;
    case SLUICE_TRIM_HALF:
        (void)sl_expert_store_shrink(m->store, s.slot_bytes_open / 2);
        break;
    case SLUICE_TRIM_ALL:
        (void)sl_expert_store_shrink(m->store, UINT64_MAX);
        break;
    default:
        sl_expert_store_regrow(m->store);
        break;
    }
}
