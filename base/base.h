/* What every module shares: assertions, checked arithmetic, string views, error filling.
 *
 * Three kinds of failure are kept apart: operating errors and bad data are returned as codes with a
 * sentence (sl_fail); a broken invariant of our own goes to SLUICE_ASSERT, which calls a
 * replaceable handler and stops the process. Nothing here knows about models. */
#ifndef SL_BASE_H
#define SL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/sluice_err.h"

_Static_assert(sizeof(size_t) == 8, "Sluice needs a 64-bit system");

#if defined(__GNUC__)
#define SL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SL_NORETURN __attribute__((noreturn))
#define SL_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SL_PRINTF(fmt, args)
#define SL_NORETURN
#define SL_MUST_CHECK
#endif

#define SL_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- assertions (assert.c) -------------------------------------------------------------- */

/* Called once with the broken expression and its place; must not return (if it does, the process is
 * aborted). Set for the whole process, before any other call. NULL restores the default, which
 * writes one line to stderr and aborts. Thread: not while others run. */
typedef void sl_assert_fn(const char *expression, const char *file, int line);
void sl_assert_set_handler(sl_assert_fn *fn);
SL_NORETURN void sl_assert_failed(const char *expression, const char *file, int line);

/* On in every build. */
#define SLUICE_ASSERT(x) ((x) ? (void)0 : sl_assert_failed(#x, __FILE__, __LINE__))
/* Inner loops only: off where NDEBUG is defined. */
#ifdef NDEBUG
#define SLUICE_DASSERT(x) ((void)sizeof(!(x)))
#else
#define SLUICE_DASSERT(x) SLUICE_ASSERT(x)
#endif

/* ---- checked arithmetic ----------------------------------------------------------------- */

/* Each returns false, leaving *out alone, where the result would not fit. */
static inline bool sl_mul_ok(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool sl_add_ok(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Rounds n up to a multiple of align, a power of two; false where that would not fit. */
static inline bool sl_align_ok(uint64_t n, uint64_t align, uint64_t *out)
{
    uint64_t r;
    if (!sl_add_ok(n, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

static inline uint64_t sl_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t sl_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- string views ----------------------------------------------------------------------- */

/* Bytes that belong to somebody else; not NUL-terminated, may hold NULs. */
struct sl_str {
    const char *p;
    size_t n;
};

bool sl_str_eq(struct sl_str a, const char *b); /* b is NUL-terminated */
bool sl_str_same(struct sl_str a, struct sl_str b);
bool sl_str_starts(struct sl_str a, const char *prefix);
bool sl_str_ends(struct sl_str a, const char *suffix);
/* A literal as a view. */
#define SL_STR(lit) ((struct sl_str){(lit), sizeof(lit) - 1})

/* Writes s into buf as printable UTF-8 for a message: a newline becomes `\n`, other control bytes
 * and invalid UTF-8 become `?`, what does not fit in size - 1 bytes ends in "...". Always
 * NUL-terminates; size >= 4. Returns buf.
 */
const char *sl_str_show(struct sl_str s, char *buf, size_t size);

/* ---- errors (err.c) ---------------------------------------------------------------------------
 */

/* Fills e (NULL: nothing to fill) with code and the formatted sentence, no layer, expert, offset or
 * errno, and returns code, so that `return sl_fail(e, SLUICE_E_FORMAT, ...)` is one line. */
sluice_err sl_fail(sluice_error *e, sluice_err code, const char *fmt, ...) SL_PRINTF(3, 4);

/* The same for a failed system call: keeps sys_errno and appends its meaning, e.g. ": Input/output
 * error". */
sluice_err sl_fail_sys(sluice_error *e, sluice_err code, int sys_errno, const char *fmt, ...)
    SL_PRINTF(4, 5);

/* "E_FORMAT" and the sentence of the list; "E_UNKNOWN" for a number that is none. */
const char *sl_err_name(sluice_err code);
const char *sl_err_text(sluice_err code);

#endif
