/* Reading the small text files in which the system describes itself (/proc, /sys). Model files are
 * read through io/. */
#ifndef SL_SMALL_FILE_H
#define SL_SMALL_FILE_H

#include "base/base.h"

/* Reads at most size - 1 bytes of the file and NUL-terminates them. Returns false, with buf an
 * empty string, where it cannot be read. Thread: safe. */
bool sl_small_file_read(const char *path, char *buf, size_t size);

#endif
