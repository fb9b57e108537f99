/* The rows of --top; see top_frame.h. A row is a label and items; an item that does not fit is left
 * out, with all after it, so the important ones come first. */
#include "tools/top_frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/report.h"
#include "tools/streaming.h"

#define ROWS_MIN 20 /* terminals below these get one row */
#define COLUMNS_MIN 50
#define ROWS_LEAST 4 /* and below this none */
#define ROWS_DENSE 5
#define ROWS_EXPERTS 10
#define LABEL_COLUMNS 9
#define GAP 3 /* columns between items */
#define ITEM_BYTES 160
#define RUN_BYTES 256
#define WORST 3

#define DIM "2"
#define BOLD "1"

/* A row under way. */
struct row {
    struct cli_text *out;
    const struct cli_top_style *style;
    int columns, limit;
    int gap, items; /* columns between items; items so far */
    int full;
};

int cli_top_height(const sluice_model_info *info, int rows, int columns)
{
    if (rows < ROWS_LEAST || columns < 2) return 0;
    if (rows < ROWS_MIN || columns < COLUMNS_MIN) return 1;
    return info->n_experts_total ? ROWS_EXPERTS : ROWS_DENSE;
}

/* ---- rows and items ----------------------------------------------------------------------- */

static int columns_of(const char *text)
{
    int columns = 0;
    for (; *text; text++) columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

static void put(struct row *row, const char *colours, const char *text)
{
    int coloured = row->style->colour && *colours && *text;
    if (coloured) {
        cli_text_add(row->out, "\033[", 2);
        cli_text_add(row->out, colours, strlen(colours));
        cli_text_add(row->out, "m", 1);
    }
    cli_text_add(row->out, text, strlen(text));
    if (coloured) cli_text_add(row->out, "\033[0m", 4);
    row->columns += columns_of(text);
}

/* The same character n times, at most to the end of the row. */
static void put_run(struct row *row, const char *colours, const char *character, int n)
{
    char run[RUN_BYTES];
    size_t bytes = strlen(character), at = 0;
    if (n > row->limit - row->columns) n = row->limit - row->columns;
    for (; n > 0; n--) {
        memcpy(run + at, character, bytes + 1);
        at += bytes;
        if (n > 1 && at + bytes < sizeof run) continue;
        put(row, colours, run);
        at = 0;
    }
}

static void pad(struct row *row, int columns) { put_run(row, "", " ", columns - row->columns); }

static void put_item(struct row *row, const char *colours, const char *text)
{
    int gap = row->items ? row->gap : 0;
    if (row->full || row->columns + gap + columns_of(text) > row->limit) {
        row->full = 1;
        return;
    }
    pad(row, row->columns + gap);
    put(row, colours, text);
    row->items++;
}

static void item(struct row *row, const char *colours, const char *format, ...) CLI_PRINTF(3, 4);

static void item(struct row *row, const char *colours, const char *format, ...)
{
    char text[ITEM_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_item(row, colours, text);
}

/* The next row of the view, with its label. */
static void begin_row(struct row *row, const struct cli_screen *screen, int *number,
                      const char *label)
{
    cli_screen_row(screen, row->out, (*number)++);
    row->columns = row->items = row->full = 0;
    row->gap = GAP;
    row->limit = screen->columns - 1;
    if (!label) return;
    put(row, DIM, label);
    pad(row, LABEL_COLUMNS);
}

/* ---- figures ------------------------------------------------------------------------------ */

static double per_second(uint64_t count, uint64_t ns)
{
    return ns ? (double)count * 1e9 / (double)ns : 0;
}

static double percent(uint64_t part, uint64_t whole) { return 100 * cli_share(part, whole); }

/* "12.3", "123": three digits or so. */
#define RATE_TEXT 32
static const char *rate_text(char *text, double rate)
{
    (void)snprintf(text, RATE_TEXT, rate < 10 ? "%.2f" : rate < 100 ? "%.1f" : "%.0f", rate);
    return text;
}

static void put_title(struct row *row, const struct cli_top_figures *f)
{
    char title[ITEM_BYTES];
    const char *line = row->style->utf8 ? "\u2500" : "-";
    put_run(row, DIM, line, 2);
    (void)snprintf(title, sizeof title, " sluice --top  %s  %u layers  %u thread%s%s%s%s%s ",
                   f->info->arch, (unsigned)f->info->n_layers, (unsigned)f->info->threads,
                   f->info->threads == 1 ? "" : "s", f->info->io[0] ? "  " : "", f->info->io,
                   f->info->cache_policy[0] ? "  " : "", f->info->cache_policy);
    if (row->columns + columns_of(title) > row->limit) (void)snprintf(title, sizeof title, " top ");
    put(row, "", title);
    put_run(row, DIM, line, row->limit);
}

static void put_speed(struct row *row, const struct cli_top_figures *f)
{
    char now[RATE_TEXT], mean[RATE_TEXT];
    double rate = per_second(f->now.eval_tokens, f->now_ns);
    (void)rate_text(now, rate);
    (void)rate_text(mean, per_second(f->mean.eval_tokens, f->mean_ns));
    if (f->answering) {
        item(row, BOLD, "%s tok/s", now);
        item(row, "", "mean %s", mean);
        item(row, "", "%llu token%s", (unsigned long long)f->mean.eval_tokens,
             f->mean.eval_tokens == 1 ? "" : "s");
        if (f->thinking) item(row, "", "thinking");
        item(row, "", "context %llu of %u",
             (unsigned long long)(f->prompt_total + f->mean.eval_tokens), (unsigned)f->info->n_ctx);
        return;
    }
    item(row, BOLD, "%s tok/s", now);
    item(row, "", "%llu of %llu tokens of the prompt", (unsigned long long)f->prompt_done,
         (unsigned long long)f->prompt_total);
    if (f->now.eval_tokens)
        item(row, "", "%.0f s left", (double)(f->prompt_total - f->prompt_done) / rate);
    item(row, "", "mean %s", mean);
}

static int is_mapped(const sluice_model_info *info) { return strcmp(info->io, "mmap") == 0; }

static void put_hits(struct row *row, const struct cli_top_figures *f)
{
    if (is_mapped(f->info)) {
        item(row, "", "experts are mapped: the kernel reads them unseen");
        return;
    }
    if (f->now.uses) item(row, BOLD, "%.0f %%", percent(f->now.hits, f->now.uses));
    if (f->mean.uses) item(row, "", "mean %.0f %%", percent(f->mean.hits, f->mean.uses));
    item(row, "", "%u of %u slots filled", (unsigned)f->now.n_slots_filled,
         (unsigned)f->now.n_slots_open);
    item(row, "", "%u experts", (unsigned)f->info->n_experts_total);
    if (f->now.n_slots_open < f->now.n_slots)
        item(row, "", "%u slots closed", (unsigned)(f->now.n_slots - f->now.n_slots_open));
}

static void put_reads(struct row *row, const struct cli_top_figures *f)
{
    char size[CLI_SIZE_TEXT];
    uint64_t read = cli_stats_read_bytes(&f->now);
    if (f->now.eval_tokens)
        item(row, BOLD, "%s a token", cli_size_text(size, read / f->now.eval_tokens));
    item(row, "", "waiting %.0f %%", percent(f->now.stall_ns, f->now_ns));
    item(row, "", "mean %.0f %%", percent(f->mean.stall_ns, f->mean_ns));
    item(row, "", "%s/s", cli_size_text(size, (uint64_t)per_second(read, f->now_ns)));
    item(row, "", "%s so far", cli_size_text(size, cli_stats_read_bytes(&f->mean)));
}

/* Of all there were: what the last second used was read before it. */
static void put_guesses(struct row *row, const struct cli_top_figures *f)
{
    char size[CLI_SIZE_TEXT];
    const sluice_stats *s = &f->total;
    if (s->ahead_bytes == 0) {
        item(row, "", "nothing read ahead");
        return;
    }
    item(row, "", "%s read ahead", cli_size_text(size, s->ahead_bytes));
    item(row, "", "%.0f %% used", percent(s->ahead_useful_bytes, s->ahead_bytes));
    item(row, "", "%.0f %% wasted", percent(s->ahead_wasted_bytes, s->ahead_bytes));
}

static void put_memory(struct row *row, const struct cli_top_figures *f)
{
    char size[CLI_SIZE_TEXT], peak[CLI_PEAK_TEXT];
    item(row, "", "peak %s", cli_peak_text(peak, &f->now, f->info));
    item(row, "", "keys and values %s", cli_size_text(size, f->now.kv_bytes));
    if (f->now.slot_bytes) item(row, "", "slots %s", cli_size_text(size, f->now.slot_bytes));
}

/* ---- where time goes ---------------------------------------------------------------------- */

#define PHASES 7

struct phase {
    const char *name, *letter, *colours;
    uint64_t ns;
};

/* Of the last second, or of all where nothing was computed in it; the most telling first. Returns
 * their sum. */
static uint64_t phases_of(const struct cli_top_figures *f, struct phase *phases)
{
    uint64_t sum = 0;
    for (int attempt = 0; attempt < 2 && sum == 0; attempt++) {
        const sluice_stats *s = attempt ? &f->mean : &f->now;
        const struct phase of[PHASES] = {
            {"experts", "e", "30;42", s->expert_ns},
            {"wait", "w", "30;41", s->waiting_ns},
            {"dense", "d", "30;44", s->projection_ns},
            {"mix", "m", "30;46", s->mixing_ns},
            {"route", "r", "30;45", s->routing_ns},
            {"head", "h", "30;43", s->head_ns},
            {"other", "o", "30;47", s->other_ns},
        };
        memcpy(phases, of, sizeof of);
        for (int i = 0; i < PHASES; i++) sum += of[i].ns;
    }
    return sum;
}

/* One letter a column, so that it reads without colours. */
static void put_bar(struct row *row, const struct phase *phases, uint64_t sum)
{
    int width = row->limit - row->columns;
    uint64_t before = 0;
    int at = 0;
    for (int i = 0; i < PHASES && sum; i++) {
        before += phases[i].ns;
        int end = (int)((double)before / (double)sum * width + 0.5);
        put_run(row, phases[i].colours, phases[i].letter, end - at);
        at = end;
    }
}

static void put_legend(struct row *row, const struct phase *phases, uint64_t sum, int has_experts)
{
    row->gap = GAP - 1;
    for (int i = 0; i < PHASES && sum; i++) {
        int of_experts = strchr("ewr", phases[i].letter[0]) != NULL;
        if (has_experts || !of_experts)
            item(row, "", "%s %.0f%%", phases[i].name, percent(phases[i].ns, sum));
    }
}

/* ---- layers ------------------------------------------------------------------------------- */

static const char *cell(const struct cli_top_style *style, uint64_t uses, uint64_t hits,
                        char *digit)
{
    static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    if (uses == 0) return style->utf8 ? "\u00b7" : ".";
    double share = cli_share(hits, uses);
    if (style->utf8) return blocks[share < 1 ? (int)(share * 8) : 7];
    digit[0] = (char)('0' + (share < 1 ? (int)(share * 10) : 9));
    return digit;
}

/* A cell a layer, or for several where there are more than columns. */
static void put_layers(struct row *row, const struct cli_top_figures *f)
{
    char cells[RUN_BYTES * 4] = "", note[48] = "", digit[2] = "";
    size_t at = 0;
    uint32_t n = f->info->n_layers, width = (uint32_t)(row->limit - row->columns), each = 1;
    if (width > RUN_BYTES) width = RUN_BYTES;
    if (n > width) {
        uint32_t room = width - (uint32_t)sizeof "  99 layers each";
        each = (n + room - 1) / room;
        (void)snprintf(note, sizeof note, "  %u layers each", (unsigned)each);
    }
    for (uint32_t first = 0; first < n; first += each) {
        uint64_t uses = 0, hits = 0;
        for (uint32_t i = first; i < n && i < first + each; i++) {
            uses += f->layers[i].uses;
            hits += f->layers[i].hits;
        }
        at += (size_t)snprintf(cells + at, sizeof cells - at, "%s",
                               cell(row->style, uses, hits, digit));
    }
    put(row, "32", cells);
    put(row, DIM, note);
}

static int is_worse(const struct cli_top_layer *a, const struct cli_top_layer *b)
{
    return cli_share(a->hits, a->uses) < cli_share(b->hits, b->uses);
}

/* The layers with the lowest hit rates, the lowest first, from 0. */
static void put_worst(struct row *row, const struct cli_top_figures *f)
{
    uint32_t worst[WORST];
    int n = 0;
    for (uint32_t i = 0; i < f->info->n_layers; i++) {
        int at = n;
        if (f->layers[i].uses == 0) continue;
        while (at > 0 && is_worse(&f->layers[i], &f->layers[worst[at - 1]])) at--;
        if (at == WORST) continue;
        if (n < WORST) n++;
        memmove(worst + at + 1, worst + at, (size_t)(n - 1 - at) * sizeof *worst);
        worst[at] = i;
    }
    for (int i = 0; i < n; i++)
        item(row, "", "layer %u: %.0f %%", (unsigned)worst[i],
             percent(f->layers[worst[i]].hits, f->layers[worst[i]].uses));
}

/* ---- the view ----------------------------------------------------------------------------- */

/* All in one row. */
static void put_short(struct row *row, const struct cli_top_figures *f)
{
    char now[RATE_TEXT], size[CLI_SIZE_TEXT];
    item(row, BOLD, "%s tok/s", rate_text(now, per_second(f->now.eval_tokens, f->now_ns)));
    if (!f->answering)
        item(row, "", "prompt %llu of %llu", (unsigned long long)f->prompt_done,
             (unsigned long long)f->prompt_total);
    if (f->now.uses && !is_mapped(f->info)) {
        item(row, "", "hits %.0f %%", percent(f->now.hits, f->now.uses));
        item(row, "", "wait %.0f %%", percent(f->now.stall_ns, f->now_ns));
        if (f->now.eval_tokens)
            item(row, "", "%s a token",
                 cli_size_text(size, cli_stats_read_bytes(&f->now) / f->now.eval_tokens));
    }
    if (f->answering)
        item(row, "", "%llu token%s", (unsigned long long)f->mean.eval_tokens,
             f->mean.eval_tokens == 1 ? "" : "s");
}

void cli_top_rows(const struct cli_top_figures *f, const struct cli_top_style *style,
                  const struct cli_screen *screen, struct cli_text *frame)
{
    struct row row = {.out = frame, .style = style};
    struct phase phases[PHASES];
    int number = 0, has_experts = f->info->n_experts_total > 0;
    uint64_t sum = phases_of(f, phases);
    begin_row(&row, screen, &number, NULL);
    if (screen->height == 1) {
        put_short(&row, f);
        return;
    }
    put_title(&row, f);
    begin_row(&row, screen, &number, f->answering ? "speed" : "prompt");
    put_speed(&row, f);
    if (has_experts) {
        begin_row(&row, screen, &number, "hits");
        put_hits(&row, f);
        begin_row(&row, screen, &number, "reads");
        put_reads(&row, f);
        begin_row(&row, screen, &number, "guesses");
        put_guesses(&row, f);
    }
    begin_row(&row, screen, &number, "memory");
    put_memory(&row, f);
    begin_row(&row, screen, &number, "time");
    put_bar(&row, phases, sum);
    begin_row(&row, screen, &number, "");
    put_legend(&row, phases, sum, has_experts);
    if (!has_experts) return;
    begin_row(&row, screen, &number, "layers");
    put_layers(&row, f);
    begin_row(&row, screen, &number, "worst");
    put_worst(&row, f);
}
