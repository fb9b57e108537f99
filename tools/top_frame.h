/* What the rows of --top say: figures in, rows out. Knows neither the terminal nor the engine. */
#ifndef CLI_TOP_FRAME_H
#define CLI_TOP_FRAME_H

#include "include/sluice.h"
#include "tools/top_screen.h"

struct cli_top_layer {
    uint32_t n_experts; /* routed; 0: none */
    uint64_t uses, hits;
};

/* What there is to show. */
struct cli_top_figures {
    const sluice_model_info *info;
    sluice_stats now;  /* of about the last second; memory and slots at this moment */
    sluice_stats mean; /* since the prompt was read; before that: since reading it began */
    sluice_stats total; /* since the model was opened */
    uint64_t now_ns, mean_ns;
    const struct cli_top_layer *layers; /* [info->n_layers], as mean */
    uint64_t prompt_done, prompt_total; /* tokens */
    int answering;                      /* the prompt was read */
    int thinking;
};

struct cli_top_style {
    int colour;
    int utf8; /* the terminal knows blocks and lines */
};

/* Rows that the view takes of a terminal; 0: it is too small. */
int cli_top_height(const sluice_model_info *info, int rows, int columns);

/* Adds the rows of the view, screen->height of them, to a frame that was begun. */
void cli_top_rows(const struct cli_top_figures *figures, const struct cli_top_style *style,
                  const struct cli_screen *screen, struct cli_text *frame);

#endif
