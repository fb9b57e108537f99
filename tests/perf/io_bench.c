/* How fast a file can be read, by backend, access, depth and request size: a table of MB/s.
 *
 *     io_bench FILE [MEGABYTES]
 *
 * Each figure reads that many megabytes (256 if not given) in random order, every request a
 * different part of the file, with `depth` requests out all the time. Buffered figures are of the
 * drive only if the page cache holds none of the file: the layer gives back what it reads, and this
 * program asks for the rest to be dropped first. Page caches of a hypervisor cannot be dropped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/io.h"

#define DEPTH_MAX 32

static const uint32_t depths[] = {1, 2, 4, 8, 32};
static const uint64_t sizes[] = {256u << 10, 1u << 20, 2u << 20};

struct bench {
    const char *path;
    uint64_t megabytes;
    unsigned char *memory; /* DEPTH_MAX rooms */
    struct sl_budget budget;
};

static void drop_cache(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Points r at the k-th of n parts in an order that jumps about: step is odd and prime to n. */
static void aim(struct sl_io_request *r, uint64_t k, uint64_t n, unsigned char *room)
{
    uint64_t part = (k * 7919) % n;
    r->offset = part * r->bytes + 160; /* unaligned, as experts in a GGUF are */
    r->dst = room + (r->offset & (sl_io_file_block(r->file) - 1));
}

/* Seconds for `count` requests; negative: one failed. */
static double read_all(struct bench *b, struct sl_io *io, struct sl_io_file *f, uint32_t depth,
                       uint64_t bytes)
{
    struct sl_io_request requests[DEPTH_MAX];
    uint64_t parts = (sl_file_bytes(sl_io_file_of(f)) - 160) / bytes;
    uint64_t count = b->megabytes * 1000000 / bytes;
    uint64_t room = sl_io_room(SL_IO_BLOCK_MAX, bytes);
    uint64_t sent = 0;
    if (parts % 7919 == 0) parts--;
    if (count > parts) count = parts;
    memset(requests, 0, sizeof requests);
    uint64_t began = sl_now_ns();
    for (; sent < depth && sent < count; sent++) {
        struct sl_io_request *r = &requests[sent];
        r->file = f;
        r->bytes = bytes;
        aim(r, sent, parts, b->memory + sent * room);
        if (sl_io_submit(io, &r, 1) != SLUICE_OK) return -1;
    }
    while (sl_io_outstanding(io) > 0) {
        struct sl_io_request *out[DEPTH_MAX];
        uint32_t n = sl_io_reap(io, out, DEPTH_MAX, 1);
        for (uint32_t i = 0; i < n; i++) {
            if (out[i]->code != SLUICE_OK) return -1;
            if (sent == count) continue;
            aim(out[i], sent++, parts, b->memory + (uint64_t)(out[i] - requests) * room);
            if (sl_io_submit(io, &out[i], 1) != SLUICE_OK) return -1;
        }
    }
    return (double)(sl_now_ns() - began) * 1e-9 / ((double)count * (double)bytes * 1e-6);
}

/* One cell of the table; cpu receives processor seconds per gigabyte. Negative: failed. */
static double measure(struct bench *b, const struct sl_io_config *c, enum sl_io_access access,
                      uint64_t bytes, double *cpu)
{
    struct sl_io *io = NULL;
    struct sl_file *file = NULL;
    struct sl_io_file *f = NULL;
    sluice_error e = {0};
    double seconds = -1;
    drop_cache(b->path);
    sluice_err err = sl_io_open(c, &b->budget, NULL, &e, &io);
    if (err == SLUICE_OK) err = sl_file_open(b->path, &b->budget, &e, &file);
    if (err == SLUICE_OK) err = sl_io_file_open(io, file, access, &e, &f);
    if (err == SLUICE_OK) {
        uint32_t depth = c->kind == SL_IO_URING ? c->depth : c->lanes;
        double before = cpu_seconds();
        seconds = read_all(b, io, f, depth, bytes);
        *cpu = (cpu_seconds() - before) / ((double)b->megabytes * 1e-3);
    } else {
        (void)fprintf(stderr, "io_bench: %s\n", e.text);
    }
    sl_io_file_close(f);
    sl_file_close(file);
    sl_io_close(io);
    return seconds;
}

static void print_row(struct bench *b, enum sl_io_kind kind, enum sl_io_access access,
                      uint64_t bytes)
{
    double cpu = 0;
    printf("%-9s %-9s %5" PRIu64 " KiB", kind == SL_IO_URING ? "io_uring" : "pread",
           access == SL_IO_DIRECT ? "direct" : "buffered", bytes >> 10);
    for (size_t d = 0; d < SL_ARRAY_LEN(depths); d++) {
        struct sl_io_config c = {.kind = kind, .depth = depths[d], .lanes = depths[d]};
        double seconds = measure(b, &c, access, bytes, &cpu);
        if (seconds > 0)
            printf(" %8.0f", 1 / seconds);
        else
            printf(" %8s", "failed");
        (void)fflush(stdout);
    }
    printf("   %6.3f\n", cpu);
}

int main(int argc, char **argv)
{
    struct bench b = {.path = argc > 1 ? argv[1] : NULL, .megabytes = 256};
    if (argc > 2) b.megabytes = strtoull(argv[2], NULL, 10);
    if (b.path == NULL || b.megabytes == 0) {
        (void)fprintf(stderr, "usage: io_bench FILE [MEGABYTES]\n");
        return 2;
    }
    sl_budget_init(&b.budget, UINT64_MAX);
    void *memory = NULL;
    uint64_t bytes = DEPTH_MAX * sl_io_room(SL_IO_BLOCK_MAX, 2u << 20);
    if (posix_memalign(&memory, SL_IO_BLOCK_MAX, bytes) != 0) return 1;
    memset(memory, 1, bytes);
    b.memory = memory;
    printf("MB/s at depth");
    for (size_t d = 0; d < SL_ARRAY_LEN(depths); d++) printf(" %u", depths[d]);
    printf("; last column: processor seconds per GB at the deepest\n");
    for (int kind = SL_IO_URING; kind <= SL_IO_PREAD; kind++)
        for (int access = SL_IO_DIRECT; access <= SL_IO_BUFFERED; access++)
            for (size_t s = 0; s < SL_ARRAY_LEN(sizes); s++)
                print_row(&b, (enum sl_io_kind)kind, (enum sl_io_access)access, sizes[s]);
    free(memory);
    return 0;
}
