/* Error codes of Sluice, their names and their sentences.
 *
 * One list makes the enum, sluice_err_name() and sluice_err_text(). Values are part of the ABI:
 * they are grouped with gaps (-1 arguments, -10 memory, -20 I/O, -30 data, -40 support) and never
 * reused. A failing call returns a code and, where the caller passes a sluice_error, fills it with
 * one sentence that names the file, what was found, what was wanted and what to do. */
#ifndef SLUICE_ERR_H
#define SLUICE_ERR_H

#include <stdint.h>

#define SLUICE_ERR_LIST(X)                                                                         \
    X(OK, 0, "no error")                                                                           \
    X(E_ARG, -1, "an argument is out of its documented range")                                     \
    X(E_STATE, -2, "the handle is not in a state that allows this call")                           \
    X(E_CANCELLED, -3, "the call was cancelled")                                                   \
    X(E_LIMIT, -4, "a fixed limit of this build was exceeded")                                     \
    X(E_CONTEXT_FULL, -5, "the text does not fit into the context")                                \
    X(E_NOMEM, -10, "the system refused memory")                                                   \
    X(E_BUDGET, -11, "the memory budget is too small")                                             \
    X(E_IO, -20, "a read or write failed")                                                         \
    X(E_NOT_FOUND, -21, "no such file")                                                            \
    X(E_TRUNCATED, -22, "the file ends before its data does")                                      \
    X(E_CHANGED, -23, "the file changed while it was open")                                        \
    X(E_FORMAT, -30, "the file breaks its format")                                                 \
    X(E_VERSION, -31, "the file is of a version this build does not read")                         \
    X(E_CORRUPT, -32, "the data does not match its checksum")                                      \
    X(E_NUMERIC, -33, "a value is not a finite number")                                            \
    X(E_UNSUPPORTED, -40, "this build does not support that")                                      \
    X(E_TEMPLATE, -41, "the chat template is missing or not recognized")

typedef enum sluice_err {
#define SLUICE_ERR_ENUM(name, value, sentence) SLUICE_##name = (value),
    SLUICE_ERR_LIST(SLUICE_ERR_ENUM)
#undef SLUICE_ERR_ENUM
} sluice_err;

#define SLUICE_ERROR_TEXT_MAX 768
#define SLUICE_NO_OFFSET UINT64_MAX

/* What went wrong, for a human and for a program. The caller owns it (it may live on the stack); a
 * call that fails overwrites it whole, a call that succeeds leaves it alone. */
typedef struct sluice_error {
    int32_t code;                     /* a sluice_err */
    int32_t sys_errno;                /* errno of the failing system call; 0: none */
    int32_t layer;                    /* layer index; -1: not about a layer */
    int32_t expert;                   /* expert index; -1: not about an expert */
    uint64_t file_offset;             /* bytes; SLUICE_NO_OFFSET: not about a place in a file */
    char text[SLUICE_ERROR_TEXT_MAX]; /* one English sentence, UTF-8, NUL-terminated */
} sluice_error;

#endif
