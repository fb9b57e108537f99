/* The rows that --top keeps; see top_screen.h. Sequences are those that the VT100 has and every
 * terminal since (DECSTBM, DECSC, DECRC, IND), but for hiding the cursor. */
#define _DEFAULT_SOURCE
#include "tools/top_screen.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVE "\0337"
#define BACK "\0338"
#define WHOLE_SCREEN "\033[r"
#define ERASE_BELOW "\033[J"
#define DOWN "\033D" /* keeps the column, and scrolls at the lower end */
#define ERASE_ROW "\033[2K"
#define HIDE "\033[?25l"
#define SHOW "\033[?25h"
#define PLAIN "\033[0m"
#define BREAK_OFF "\030" /* ends a sequence that was cut */
#define PLACE_BYTES 512
#define HEIGHT_MAX 64
#define TAB_COLUMNS 8

/* What a signal handler has to know. */
static atomic_int placed;  /* a view is on the screen */
static atomic_int drawing; /* the cursor may be inside it */

static void put_all(const char *bytes, size_t n)
{
    while (n) {
        ssize_t put = write(STDERR_FILENO, bytes, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return; /* the terminal is gone: nothing to be tidy about */
        bytes += put;
        n -= (size_t)put;
    }
}

int cli_screen_size(int *rows, int *columns)
{
    struct winsize size;
    *rows = *columns = 0;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        return -1;
    *rows = size.ws_row;
    *columns = size.ws_col;
    return 0;
}

/* Whether standard output is the terminal of standard error, under whatever name. */
static int is_shared(void)
{
    struct stat out, err;
    if (!isatty(STDOUT_FILENO)) return 0;
    if (fstat(STDOUT_FILENO, &out) != 0 || fstat(STDERR_FILENO, &err) != 0) return 1;
    if (out.st_rdev == err.st_rdev) return 1;
    return tcgetpgrp(STDOUT_FILENO) != -1 && tcgetpgrp(STDERR_FILENO) != -1; /* /dev/tty is one */
}

void cli_screen_init(struct cli_screen *screen)
{
    memset(screen, 0, sizeof *screen);
    screen->shared = is_shared();
}

int cli_screen_changed(struct cli_screen *screen)
{
    int rows, columns;
    if (cli_screen_size(&rows, &columns) != 0) return 0;
    int same = rows == screen->rows && columns == screen->columns;
    screen->rows = rows;
    screen->columns = columns;
    return !same || (screen->height && !atomic_load(&placed));
}

/* In a signal handler, too. */
static void take_away(const char *colours)
{
    static const char cut[] = BREAK_OFF BACK, region[] = SAVE WHOLE_SCREEN BACK;
    static const char rest[] = ERASE_BELOW SHOW;
    if (!atomic_exchange(&placed, 0)) return;
    if (atomic_exchange(&drawing, 0)) put_all(cut, sizeof cut - 1);
    put_all(region, sizeof region - 1);
    put_all(colours, strlen(colours));
    put_all(rest, sizeof rest - 1);
}

void cli_screen_restore(void) { take_away(PLAIN); }

void cli_screen_place(struct cli_screen *screen, int height)
{
    char text[PLACE_BYTES];
    size_t at = 0;
    take_away(""); /* a dimmed thought stays dim */
    screen->height = height < HEIGHT_MAX && height < screen->rows ? height : 0;
    if (screen->columns) screen->column %= screen->columns;
    if (screen->height == 0) return;
    for (int i = 0; i < screen->height; i++) {
        memcpy(text + at, DOWN, sizeof DOWN - 1);
        at += sizeof DOWN - 1;
    }
    at += (size_t)snprintf(text + at, sizeof text - at, "\033[%dA" SAVE "\033[1;%dr" BACK,
                           screen->height, screen->rows - screen->height);
    atomic_store(&placed, 1);
    put_all(text, at);
}

int cli_screen_ready(const struct cli_screen *screen)
{
    if (screen->height == 0 || !atomic_load(&placed)) return 0;
    return !screen->shared || screen->column < screen->columns;
}

/* ---- where the text is -------------------------------------------------------------------- */

/* Columns of a character. Rough: a wrong answer costs one character of an answer, on terminals that
 * forget a cursor behind the last column, if the view is drawn just then. */
static int width_of(uint32_t c)
{
    static const struct {
        uint32_t first, last;
        int width;
    } ranges[] = {
        {0x300, 0x36f, 0},       {0x1100, 0x115f, 2},     {0x200b, 0x200f, 0},
        {0x20d0, 0x20ff, 0},     {0x2e80, 0xa4cf, 2},     {0xac00, 0xd7a3, 2},
        {0xf900, 0xfaff, 2},     {0xfe00, 0xfe0f, 0},     {0xfe30, 0xfe6f, 2},
        {0xff00, 0xff60, 2},     {0xffe0, 0xffe6, 2},     {0x1f300, 0x1faff, 2},
        {0x20000, 0x3fffd, 2},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return ranges[i].width;
    return 1;
}

/* The character that text begins with, and in *used its bytes; a byte that begins none is one. */
static uint32_t character(const char *text, size_t bytes, size_t *used)
{
    unsigned char lead = (unsigned char)text[0];
    size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    uint32_t c = n == 1 ? lead : lead & (0xffu >> (n + 1));
    *used = 1;
    if (n > bytes) return lead;
    for (; *used < n; ++*used) c = c << 6 | ((unsigned char)text[*used] & 0x3fu);
    return c;
}

void cli_screen_follow(struct cli_screen *screen, const char *text, size_t bytes, int begins)
{
    int columns = screen->columns;
    if (begins) screen->column = 0;
    for (size_t at = 0, used; at < bytes; at += used) {
        uint32_t c = character(text + at, bytes - at, &used);
        if (c == '\n' || c == '\r') {
            screen->column = 0;
        } else if (c == '\t') {
            int next = (screen->column / TAB_COLUMNS + 1) * TAB_COLUMNS;
            screen->column = next < columns ? next : columns - 1;
        } else {
            int width = width_of(c);
            screen->column = screen->column + width > columns ? width : screen->column + width;
        }
    }
}

/* ---- drawing ------------------------------------------------------------------------------ */

static void add(struct cli_text *text, const char *bytes)
{
    cli_text_add(text, bytes, strlen(bytes));
}

void cli_screen_begin(struct cli_text *frame)
{
    cli_text_clear(frame);
    add(frame, SAVE HIDE PLAIN);
}

void cli_screen_row(const struct cli_screen *screen, struct cli_text *frame, int row)
{
    char place[32];
    (void)snprintf(place, sizeof place, "\033[%d;1H" ERASE_ROW,
                   screen->rows - screen->height + row + 1);
    add(frame, place);
}

void cli_screen_draw(const struct cli_screen *screen, struct cli_text *frame)
{
    add(frame, BACK SHOW);
    if (!cli_screen_ready(screen)) return;
    atomic_store(&drawing, 1);
    put_all(frame->bytes, frame->size);
    atomic_store(&drawing, 0);
}
