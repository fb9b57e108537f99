/* Output files that appear whole or not at all; see out_file.h. */
#define _POSIX_C_SOURCE 200809L
#include "tools/out_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/report.h"

int cli_out_open(struct cli_out_file *file, const char *name)
{
    struct stat found;
    memset(file, 0, sizeof *file);
    file->name = name;
    /* /dev/stdout may well be a file, but beside it is no place for another */
    int direct = strncmp(name, "/dev/", 5) == 0 || strncmp(name, "/proc/", 6) == 0 ||
                 (stat(name, &found) == 0 && !S_ISREG(found.st_mode));
    if (!direct) {
        int n = snprintf(file->partial, sizeof file->partial, "%s.partial", name);
        if (n < 0 || (size_t)n >= sizeof file->partial) {
            cli_error("%.60s...: the name is longer than %d bytes", name, CLI_PATH_BYTES);
            return -1;
        }
    }
    const char *target = direct ? name : file->partial;
    file->stream = fopen(target, "wb");
    if (file->stream) return 0;
    cli_error("%s: %s", target, strerror(errno));
    return -1;
}

static int fail(struct cli_out_file *file)
{
    cli_error("%s: %s", file->partial[0] ? file->partial : file->name, strerror(errno));
    cli_out_abandon(file);
    return -1;
}

int cli_out_put(struct cli_out_file *file, const void *bytes, size_t n)
{
    return fwrite(bytes, 1, n, file->stream) == n ? 0 : fail(file);
}

int cli_out_commit(struct cli_out_file *file)
{
    if (fflush(file->stream)) return fail(file);
    FILE *stream = file->stream;
    file->stream = NULL;
    if (fclose(stream)) return fail(file);
    if (file->partial[0] && rename(file->partial, file->name)) return fail(file);
    file->partial[0] = 0;
    return 0;
}

void cli_out_abandon(struct cli_out_file *file)
{
    if (file->stream) (void)fclose(file->stream);
    if (file->partial[0]) (void)unlink(file->partial);
    file->stream = NULL;
    file->partial[0] = 0;
}
