/* Columns of our CSV, which its writer and its reader share. */
#ifndef SL_TRACE_FORMS_CSV_H
#define SL_TRACE_FORMS_CSV_H

enum sl_csv_column {
    RECORD,
    SESSION,
    POSITION,
    TOKENS,
    PHASE,
    LAYER,
    TOP_K,
    RANK,
    EXPERT,
    WEIGHT,
    STATE,
    KIND,
    HOW,
    VISITS,
    BYTES,
    BEGIN_NS,
    DENSE_NS,
    EXPERT_NS,
    WAIT_NS,
    TOOK_NS,
    END_NS,
    PHASE_NS,
    COLUMNS
};
/* [COLUMNS], in the order in which they are written. */
extern const char *const sl_csv_names[COLUMNS];

#define SL_CSV_FIRST_LINE "# sluice_trace csv 1"

#endif
