/* Lines that a user types; see lineedit.h. The one file that knows libedit.
 *
 * libedit gets its characters from read_character(), for three reasons: Ctrl-C must end the line
 * (its own reader retries after a signal), characters are UTF-8 whatever the locale says, and a
 * paste (terminals bracket it with ESC [ 200 ~ and ESC [ 201 ~ when asked) must not be sent at its
 * first line end: inside a paste a line end is shown as U+240A and a tab as U+2409 (their
 * pictures), and turned back afterwards.
 * Prompt and echo go to standard error, since standard output is for answers. */
#define _POSIX_C_SOURCE 200809L
#include "tools/lineedit.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "tools/interrupt.h"
#include "tools/report.h"

#define HISTORY_LINES 500
#define ESCAPE 0x1b
#define CTRL_D 4
#define ESCAPE_WAIT_MS 50 /* a key's sequence arrives together; a lone Escape does not go on */
#define SEQUENCE_BYTES 6  /* ESC [ 2 0 0 ~ */
#define LINE_END L'\x240a'
#define TAB L'\x2409'
#define REPLACEMENT L'\xfffd'

struct cli_lines {
    EditLine *edit; /* NULL: not a terminal */
    HistoryW *history;
    wchar_t prompt[16];
    int pasting;
    unsigned char queue[SEQUENCE_BYTES]; /* read ahead while telling a paste from a key */
    size_t queued, taken;
};

/* Returns a byte, or -1 at the end of input or after Ctrl-C. */
static int next_byte(struct cli_lines *lines)
{
    unsigned char byte;
    if (lines->taken < lines->queued) return lines->queue[lines->taken++];
    for (;;) {
        if (cli_interrupted()) return -1;
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got == 1) return byte;
        if (got == 0 || errno != EINTR) return -1;
    }
}

/* After an ESC: takes a paste bracket if one follows. Returns 1 if so; else what was read ahead is
 * in the queue, and the ESC is an ordinary key. */
static int take_bracket(struct cli_lines *lines)
{
    struct pollfd waiting = {STDIN_FILENO, POLLIN, 0};
    const char *bracket = lines->pasting ? "[201~" : "[200~";
    if (lines->taken < lines->queued) return 0;
    lines->queued = lines->taken = 0;
    while (poll(&waiting, 1, ESCAPE_WAIT_MS) == 1) {
        unsigned char byte;
        if (read(STDIN_FILENO, &byte, 1) != 1) break;
        lines->queue[lines->queued++] = byte;
        if (byte != (unsigned char)bracket[lines->queued - 1]) break;
        if (bracket[lines->queued]) continue;
        lines->queued = 0;
        lines->pasting = !lines->pasting;
        return 1;
    }
    return 0;
}

/* The character that begins with byte; U+FFFD where it is not UTF-8. */
static wchar_t decode(struct cli_lines *lines, int byte)
{
    int more = byte < 0x80 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : -1;
    if (more == 0) return byte;
    if (more < 0) return REPLACEMENT;
    unsigned value = (unsigned)byte & (0x3fu >> more);
    for (; more; more--) {
        int next = next_byte(lines);
        if (next < 0 || (next & 0xc0) != 0x80) return REPLACEMENT;
        value = value << 6 | ((unsigned)next & 0x3fu);
    }
    return (wchar_t)value;
}

/* How a pasted character is shown and kept while the line is edited: control characters would be
 * commands to the editor. */
static wchar_t pasted(wchar_t c)
{
    if (c == L'\n' || c == L'\r') return LINE_END;
    if (c == L'\t') return TAB;
    return (unsigned)c < L' ' ? L' ' : c; /* wchar_t has a sign here and none there */
}

static int read_character(EditLine *edit, wchar_t *out)
{
    struct cli_lines *lines;
    if (el_get(edit, EL_CLIENTDATA, &lines)) return -1;
    for (;;) {
        int byte = next_byte(lines);
        if (byte < 0) return cli_interrupted() ? -1 : 0;
        if (byte == ESCAPE && take_bracket(lines)) continue;
        if (byte == 0) byte = CTRL_D; /* what a Ctrl-D typed before the prompt came arrives as */
        *out = decode(lines, byte);
        if (lines->pasting) *out = pasted(*out);
        return 1;
    }
}

static wchar_t *prompt_of(EditLine *edit)
{
    static wchar_t none[] = L"";
    struct cli_lines *lines;
    return el_get(edit, EL_CLIENTDATA, &lines) ? none : lines->prompt;
}

struct cli_lines *cli_lines_open(void)
{
    struct cli_lines *lines = cli_alloc(1, sizeof *lines);
    HistEventW event;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return lines;
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX < 4) (void)setlocale(LC_CTYPE, "C.UTF-8");
    lines->edit = el_init("sluice", stdin, stderr, stderr);
    lines->history = history_winit();
    if (!lines->edit || !lines->history) {
        cli_lines_close(lines);
        return cli_alloc(1, sizeof *lines);
    }
    (void)history_w(lines->history, &event, H_SETSIZE, HISTORY_LINES);
    (void)el_wset(lines->edit, EL_CLIENTDATA, lines);
    (void)el_wset(lines->edit, EL_EDITOR, L"emacs");
    (void)el_wset(lines->edit, EL_HIST, history_w, lines->history);
    (void)el_wset(lines->edit, EL_PROMPT, prompt_of);
    (void)el_wset(lines->edit, EL_GETCFN, read_character);
    return lines;
}

void cli_lines_close(struct cli_lines *lines)
{
    if (lines->edit) el_end(lines->edit);
    if (lines->history) history_wend(lines->history);
    cli_free(lines);
}

int cli_lines_edited(const struct cli_lines *lines) { return lines->edit != NULL; }

static void add_utf8(struct cli_text *text, wchar_t wide)
{
    unsigned c = wide == LINE_END ? '\n' : wide == TAB ? '\t' : (unsigned)wide;
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(lead[n == 1 ? 0 : n] | c);
    cli_text_add(text, bytes, n);
}

static int read_edited(struct cli_lines *lines, struct cli_text *text)
{
    static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";
    HistEventW event;
    int count = 0;
    const char *terminal = getenv("TERM");
    int smart = terminal && *terminal && strcmp(terminal, "dumb") != 0;
    lines->pasting = 0;
    lines->queued = lines->taken = 0;
    el_resize(lines->edit);
    if (smart) (void)!write(STDERR_FILENO, paste_on, sizeof paste_on - 1);
    const wchar_t *line = el_wgets(lines->edit, &count);
    if (smart) (void)!write(STDERR_FILENO, paste_off, sizeof paste_off - 1);
    if (cli_interrupted() || !line || count <= 0) {
        (void)!write(STDERR_FILENO, "\n", 1);
        return cli_interrupted() ? -1 : 0;
    }
    if (line[count - 1] == L'\n' || line[count - 1] == L'\r') count--;
    for (int i = 0; i < count; i++) add_utf8(text, line[i]);
    if (count) (void)history_w(lines->history, &event, H_ENTER, line);
    return 1;
}

static int read_plain(struct cli_text *text)
{
    int any = 0;
    for (;;) {
        int c = getc(stdin);
        if (c == EOF && ferror(stdin) && errno == EINTR && !cli_interrupted()) {
            clearerr(stdin);
            continue;
        }
        if (c == EOF && cli_interrupted()) return -1;
        if (c == EOF && !any) return 0;
        if (c == EOF || c == '\n') break;
        any = 1;
        char byte = (char)c;
        if (byte) cli_text_add(text, &byte, 1); /* a message cannot hold NUL */
    }
    if (text->size && text->bytes[text->size - 1] == '\r') text->bytes[--text->size] = 0;
    return 1;
}

int cli_lines_read(struct cli_lines *lines, const char *prompt, struct cli_text *text)
{
    size_t n = strlen(prompt);
    cli_text_clear(text);
    if (!lines->edit) return read_plain(text);
    if (n >= sizeof lines->prompt / sizeof lines->prompt[0]) n = 0;
    for (size_t i = 0; i < n; i++) lines->prompt[i] = (wchar_t)(unsigned char)prompt[i];
    lines->prompt[n] = 0;
    return read_edited(lines, text);
}
