/* The view of --top; see top.h. Here: when to draw, and figures of the last second and since the
 * prompt. What the rows say is top_frame.c, where they stand is top_screen.c. */
#define _POSIX_C_SOURCE 200809L
#include "tools/top.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/streaming.h"
#include "tools/top_frame.h"
#include "tools/top_screen.h"

#define DRAW_NS 100000000u    /* between two frames */
#define SECOND_NS 1000000000u /* what "now" is an average of */
#define LOOKS 16u             /* frames of more than a second */

/* The engine's figures at a moment. */
struct look {
    uint64_t at_ns;
    sluice_stats stats;
};

struct cli_top {
    const sluice_model *model;
    const sluice_session *session;
    const sluice_model_info *info;
    struct cli_screen screen;
    struct cli_top_style style;
    struct cli_text frame;
    struct cli_top_figures figures;
    struct look first;        /* where the means begin */
    struct look looks[LOOKS]; /* the last frames', a ring */
    uint64_t n_looks;
    struct cli_top_layer *first_layers, *layers; /* [n_layers] */
    uint64_t drawn_ns;
};

int cli_top_possible(void)
{
    const char *terminal = getenv("TERM");
    int rows, columns;
    if (!isatty(STDERR_FILENO))
        cli_note("--top needs a terminal on standard error; ignored");
    else if (!cli_progress_in_place())
        cli_note("--top needs a terminal that obeys escape sequences, and TERM is '%s'; ignored",
                 terminal ? terminal : "");
    else if (cli_screen_size(&rows, &columns))
        cli_note("--top needs to know the terminal's size, and the terminal does not say it; "
                 "'stty rows 24 cols 80' tells it; ignored");
    else
        return 1;
    return 0;
}

/* ---- looking ------------------------------------------------------------------------------ */

static void look_now(const struct cli_top *top, struct look *look)
{
    const sluice_stats fresh = SLUICE_STATS_INIT;
    look->stats = fresh;
    look->at_ns = cli_now_ns();
    sluice_session_get_stats(top->session, &look->stats);
}

static void look_at_layers(const struct cli_top *top, struct cli_top_layer *layers)
{
    for (uint32_t i = 0; i < top->info->n_layers; i++) {
        sluice_layer_stats stats = SLUICE_LAYER_STATS_INIT;
        (void)sluice_model_get_layer_stats(top->model, i, &stats);
        layers[i] = (struct cli_top_layer){stats.n_experts, stats.uses, stats.hits};
    }
}

/* Means begin here. */
static void start_over(struct cli_top *top)
{
    look_now(top, &top->first);
    look_at_layers(top, top->first_layers);
    top->n_looks = 0;
}

/* The newest look that is a second old; where there is none, the oldest. */
static const struct look *second_ago(const struct cli_top *top, uint64_t now_ns)
{
    for (uint64_t i = 0; i < top->n_looks && i < LOOKS; i++) {
        const struct look *look = &top->looks[(top->n_looks - 1 - i) % LOOKS];
        if (now_ns - look->at_ns >= SECOND_NS) return look;
    }
    return top->n_looks < LOOKS ? &top->first : &top->looks[top->n_looks % LOOKS];
}

static void update(struct cli_top *top)
{
    struct cli_top_figures *f = &top->figures;
    struct look now;
    look_now(top, &now);
    look_at_layers(top, top->layers);
    for (uint32_t i = 0; i < top->info->n_layers; i++) {
        top->layers[i].uses -= top->first_layers[i].uses;
        top->layers[i].hits -= top->first_layers[i].hits;
    }
    const struct look *before = second_ago(top, now.at_ns);
    f->now = cli_stats_since(&before->stats, &now.stats);
    f->now_ns = now.at_ns - before->at_ns;
    f->mean = cli_stats_since(&top->first.stats, &now.stats);
    f->mean_ns = now.at_ns - top->first.at_ns;
    f->total = now.stats;
    top->looks[top->n_looks++ % LOOKS] = now;
}

/* ---- drawing ------------------------------------------------------------------------------ */

static void draw(struct cli_top *top)
{
    uint64_t now_ns = cli_now_ns();
    if (now_ns - top->drawn_ns < DRAW_NS || !cli_screen_ready(&top->screen)) return;
    top->drawn_ns = now_ns;
    update(top);
    cli_screen_begin(&top->frame);
    cli_top_rows(&top->figures, &top->style, &top->screen, &top->frame);
    cli_screen_draw(&top->screen, &top->frame);
}

static void keep_up(struct cli_top *top)
{
    if (!cli_screen_changed(&top->screen)) return;
    cli_screen_place(&top->screen,
                     cli_top_height(top->info, top->screen.rows, top->screen.columns));
    top->drawn_ns = 0;
}

/* As the user's locale says, whatever the program has set. */
static int is_utf8(void)
{
    locale_t users = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!users) return 0;
    int is = strcmp(nl_langinfo_l(CODESET, users), "UTF-8") == 0;
    freelocale(users);
    return is;
}

struct cli_top *cli_top_open(const sluice_model *model, const sluice_session *session,
                             const sluice_model_info *info)
{
    static int at_exit;
    const char *no_colour = getenv("NO_COLOR");
    struct cli_top *top = cli_alloc(1, sizeof *top);
    top->model = model;
    top->session = session;
    top->info = info;
    top->first_layers = cli_alloc(info->n_layers, sizeof *top->first_layers);
    top->layers = cli_alloc(info->n_layers, sizeof *top->layers);
    top->figures.info = info;
    top->figures.layers = top->layers;
    top->style.colour = !(no_colour && *no_colour);
    top->style.utf8 = is_utf8();
    if (!at_exit) at_exit = atexit(cli_screen_restore) == 0;
    cli_screen_init(&top->screen);
    start_over(top);
    cli_interrupt_leave(cli_screen_restore);
    keep_up(top);
    return top;
}

void cli_top_prompt(struct cli_top *top, size_t done, size_t total)
{
    if (!top) return;
    top->figures.prompt_done = done;
    top->figures.prompt_total = total;
    keep_up(top);
    draw(top);
    if (done < total) return;
    top->figures.answering = 1;
    start_over(top);
}

void cli_top_before_text(struct cli_top *top)
{
    if (top) keep_up(top);
}

void cli_top_text(struct cli_top *top, const char *text, size_t bytes, int thought)
{
    if (!top) return;
    if (top->screen.shared)
        cli_screen_follow(&top->screen, text, bytes, thought != top->figures.thinking);
    top->figures.thinking = thought;
    draw(top);
}

void cli_top_close(struct cli_top *top)
{
    if (!top) return;
    cli_screen_restore();
    cli_interrupt_leave(NULL);
    cli_text_free(&top->frame);
    cli_free(top->first_layers);
    cli_free(top->layers);
    cli_free(top);
}
