/* Runs a fuzz target over files: what libFuzzer found once is tested in every build, with any
 * compiler.
 *
 *   replay_<target> FILE|FOLDER...
 *
 * A folder stands for the files directly in it, in no particular order. Each input lies in a block
 * of exactly its size, so that AddressSanitizer sees the first byte read past it. Fails where there
 * was no file at all: an empty corpus proves nothing. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_BYTES_MAX ((size_t)64 << 20)

static unsigned long n_files;
static unsigned long long n_bytes;

/* Returns 0, or 1 after a message. */
static int replay_file(const char *path, size_t size)
{
    if (size > INPUT_BYTES_MAX) {
        fprintf(stderr, "replay: %s: larger than 64 MiB\n", path);
        return 1;
    }
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(size > 0 ? size : 1);
    int failed = f == NULL || data == NULL || fread(data, 1, size, f) != size;
    if (failed) {
        fprintf(stderr, "replay: %s cannot be read: %s\n", path, strerror(errno));
    } else {
        (void)LLVMFuzzerTestOneInput(data, size);
        n_files++;
        n_bytes += size;
    }
    free(data);
    if (f != NULL) fclose(f);
    return failed;
}

static int replay_folder(const char *path)
{
    int failed = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        fprintf(stderr, "replay: %s: %s\n", path, strerror(errno));
        return 1;
    }
    for (struct dirent *d = readdir(dir); d != NULL; d = readdir(dir)) {
        char name[4096];
        struct stat st;
        int n = snprintf(name, sizeof name, "%s/%s", path, d->d_name);
        if (n < 0 || (size_t)n >= sizeof name || stat(name, &st) != 0)
            failed = 1;
        else if (S_ISREG(st.st_mode))
            failed |= replay_file(name, (size_t)st.st_size);
    }
    closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) != 0) {
            fprintf(stderr, "replay: %s: %s\n", argv[i], strerror(errno));
            failed = 1;
        } else if (S_ISDIR(st.st_mode)) {
            failed |= replay_folder(argv[i]);
        } else {
            failed |= replay_file(argv[i], (size_t)st.st_size);
        }
    }
    printf("replay: %lu files, %llu bytes\n", n_files, n_bytes);
    if (n_files == 0) fprintf(stderr, "replay: no file was run\n");
    return failed || n_files == 0;
}
