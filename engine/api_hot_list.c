/* The hot list of an open model: read once it is loaded, written when it is closed. */
#include "engine/api.h"

/* Remembered for the first evaluation, whose thread may then read. A list that cannot be used is
 * worth a warning, not a model that does not open. */
void api_open_hot_list(sluice_model *m)
{
    sluice_error e;
    uint32_t n_experts[SL_LAYERS_MAX];
    if (!m->hot_path || !m->m.store || m->opt.io == SLUICE_IO_MMAP) return;
    struct sl_hot_list_model about = {m->m.n_layers, n_experts, m->file_bytes};
    for (uint32_t l = 0; l < m->m.n_layers; l++) n_experts[l] = m->m.layers[l].n_experts;
    sluice_err err = sl_hot_list_read(m->hot_path, &about, &m->budget, &m->hot, &e);
    if (err != SLUICE_OK) {
        m->hot_foreign = err != SLUICE_E_CHANGED;
        sl_log_line(&m->log, SL_LOG_WARN, "%s; the cache starts empty%s", e.text,
                    m->hot_foreign ? ", and the file is left as it is" : "");
        return;
    }
    sl_log_line(&m->log, SL_LOG_INFO, "hot list %s: %u experts", m->hot_path, m->hot.n);
}

void api_save_hot_list(sluice_model *m)
{
    sluice_error e;
    uint32_t n_experts[SL_LAYERS_MAX];
    struct sl_hot_list_model about = {m->m.n_layers, n_experts, m->file_bytes};
    for (uint32_t l = 0; l < m->m.n_layers; l++) n_experts[l] = m->m.layers[l].n_experts;
    struct sl_hot_list list = {sl_alloc(NULL, m->n_slots, sizeof *list.ids), 0};
    sluice_err err = list.ids ? SLUICE_OK : sl_fail(&e, SLUICE_E_NOMEM, "no memory");
    if (err == SLUICE_OK) list.n = sl_expert_hottest(m->m.store, list.ids, m->n_slots);
    if (err == SLUICE_OK && list.n > 0)
        err = sl_hot_list_write(m->hot_path, &about, NULL, &list, &e);
    if (err != SLUICE_OK)
        sl_log_line(&m->log, SL_LOG_WARN, "the hot list was not saved: %s", e.text);
    sl_hot_list_free(&list);
}
