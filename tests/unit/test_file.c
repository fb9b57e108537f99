/* Reading files at offsets. Proves that a read is whole or an error that names file, offset and
 * numbers, that interruptions and short reads are resumed but not for ever, and that a file that
 * changed is noticed.
 *
 * The faults of the drive come from a pread of our own: the linker takes the test's definition
 * before libc's. It follows a script of one letter a call and passes everything else through. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "io/file.h"

#define DATA_BYTES 10000

static char folder[64];
static char path[128];
static unsigned char data[DATA_BYTES];

/* i: EINTR, a: EAGAIN, e: EIO, d: ENODEV, s: at most 7 bytes, p: success without reading, '.': as
 * it is. The last letter repeats. */
static const char *script = ".";
static int calls;

/* What was asked of the reads that 'p' answered. */
static uint64_t pretended_max, pretended_end;
static bool pretended_in_order;

static ssize_t pretend(size_t bytes, off_t offset)
{
    if (calls > 1 && (uint64_t)offset != pretended_end) pretended_in_order = false;
    if (bytes > pretended_max) pretended_max = bytes;
    pretended_end = (uint64_t)offset + bytes;
    return (ssize_t)bytes;
}

ssize_t pread(int fd, void *buf, size_t bytes, off_t offset)
{
    char fault = *script;
    calls++;
    if (script[1] != '\0') script++;
    if (fault == 'p') return pretend(bytes, offset);
    if (fault == 's' && bytes > 7) bytes = 7;
    errno = fault == 'i' ? EINTR : fault == 'a' ? EAGAIN : fault == 'e' ? EIO : ENODEV;
    if (fault != '.' && fault != 's') return -1;
    return (ssize_t)syscall(SYS_pread64, fd, buf, bytes, offset);
}

static struct sl_budget budget;

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/sluice_test_file_XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/data.bin", folder);
    for (size_t i = 0; i < DATA_BYTES; i++) data[i] = (unsigned char)(i * 7 + i / 256);
    write_file(path, data, DATA_BYTES);
    sl_budget_init(&budget, UINT64_MAX);
    script = ".";
    calls = 0;
    pretended_max = 0;
    pretended_in_order = true;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0 || atomic_load(&budget.used_bytes) != 0;
}

static struct sl_file *open_data(void)
{
    struct sl_file *f = NULL;
    sluice_error e;
    assert_int_equal(sl_file_open(path, &budget, &e, &f), SLUICE_OK);
    assert_non_null(f);
    return f;
}

static void test_open__regular_file__size_and_path(void **state)
{
    (void)state;
    struct sl_file *f = open_data();
    assert_int_equal(sl_file_bytes(f), DATA_BYTES);
    assert_string_equal(sl_file_path(f), path);
    sl_file_close(f);
    sl_file_close(NULL);
}

static sluice_err open_error(const char *name, sluice_error *e)
{
    struct sl_file *f = (struct sl_file *)e;
    sluice_err err = sl_file_open(name, &budget, e, &f);
    assert_null(f);
    return err;
}

static void test_open__missing__not_found_with_its_name(void **state)
{
    (void)state;
    sluice_error e;
    char name[200];
    snprintf(name, sizeof name, "%s/none\x1B.gguf", folder);
    assert_int_equal(open_error(name, &e), SLUICE_E_NOT_FOUND);
    assert_int_equal(e.sys_errno, ENOENT);
    assert_non_null(strstr(e.text, "none?.gguf"));
    snprintf(name, sizeof name, "%s/under", path);
    assert_int_equal(open_error(name, &e), SLUICE_E_NOT_FOUND);
    assert_int_equal(open_error("", &e), SLUICE_E_NOT_FOUND);
    struct sl_file *f;
    assert_int_equal(sl_file_open("/no/such", &budget, NULL, &f), SLUICE_E_NOT_FOUND);
}

static void test_open__directory__refused(void **state)
{
    (void)state;
    sluice_error e;
    assert_int_equal(open_error(folder, &e), SLUICE_E_IO);
    assert_int_equal(e.sys_errno, EISDIR);
    assert_non_null(strstr(e.text, "directory"));
}

static void test_open__fifo_or_device__refused_without_waiting(void **state)
{
    (void)state;
    sluice_error e;
    char name[200];
    snprintf(name, sizeof name, "%s/fifo", folder);
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_int_equal(open_error(name, &e), SLUICE_E_IO);
    assert_int_equal(open_error("/dev/null", &e), SLUICE_E_IO);
}

static void test_open__no_permission__io_error(void **state)
{
    (void)state;
    if (geteuid() == 0) skip(); /* root may read everything */
    sluice_error e;
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(open_error(path, &e), SLUICE_E_IO);
    assert_int_equal(e.sys_errno, EACCES);
}

static void test_open__budget_too_small__error_and_descriptor_closed(void **state)
{
    (void)state;
    struct sl_budget small;
    sluice_error e;
    struct sl_file *f;
    sl_budget_init(&small, 10);
    int before = dup(0);
    close(before);
    assert_int_equal(sl_file_open(path, &small, &e, &f), SLUICE_E_BUDGET);
    assert_null(f);
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
}

static void test_read__every_kind_of_range__exact_bytes(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset, bytes;
    } ranges[] = {{0, DATA_BYTES}, {0, 1},      {DATA_BYTES - 1, 1},
                  {4095, 2},       {123, 7777}, {DATA_BYTES, 0}};
    struct sl_file *f = open_data();
    unsigned char buf[DATA_BYTES];
    for (size_t i = 0; i < SL_ARRAY_LEN(ranges); i++) {
        sluice_error e;
        memset(buf, 0xAA, sizeof buf);
        assert_int_equal(sl_file_read_at(f, ranges[i].offset, buf, ranges[i].bytes, &e), SLUICE_OK);
        assert_memory_equal(buf, data + ranges[i].offset, ranges[i].bytes);
    }
    sl_file_close(f);
}

static void test_read__nothing__ok_anywhere(void **state)
{
    (void)state;
    struct sl_file *f = open_data();
    assert_int_equal(sl_file_read_at(f, 0, NULL, 0, NULL), SLUICE_OK);
    assert_int_equal(sl_file_read_at(f, DATA_BYTES + 5, NULL, 0, NULL), SLUICE_OK);
    assert_int_equal(calls, 0);
    sl_file_close(f);
}

static void test_read__past_the_end__truncated_with_numbers(void **state)
{
    (void)state;
    struct sl_file *f = open_data();
    unsigned char buf[100];
    sluice_error e;
    assert_int_equal(sl_file_read_at(f, DATA_BYTES - 30, buf, 100, &e), SLUICE_E_TRUNCATED);
    assert_true(e.file_offset == DATA_BYTES - 30);
    assert_int_equal(e.sys_errno, 0);
    assert_non_null(strstr(e.text, "100 bytes wanted at offset 9970, 30 found"));
    assert_non_null(strstr(e.text, path));
    assert_int_equal(sl_file_read_at(f, DATA_BYTES + 1, buf, 1, &e), SLUICE_E_TRUNCATED);
    assert_non_null(strstr(e.text, ", 0 found"));
    assert_int_equal(sl_file_read_at(f, DATA_BYTES, buf, 1, NULL), SLUICE_E_TRUNCATED);
    sl_file_close(f);
}

static void test_read__impossible_range__truncated_before_any_read(void **state)
{
    (void)state;
    struct sl_file *f = open_data();
    unsigned char buf[10];
    sluice_error e;
    assert_int_equal(sl_file_read_at(f, UINT64_MAX - 3, buf, 10, &e), SLUICE_E_TRUNCATED);
    assert_int_equal(sl_file_read_at(f, INT64_MAX, buf, 10, &e), SLUICE_E_TRUNCATED);
    assert_int_equal(sl_file_read_at(f, 10, buf, UINT64_MAX - 5, &e), SLUICE_E_TRUNCATED);
    assert_non_null(strstr(e.text, "9990 found"));
    assert_int_equal(calls, 0);
    sl_file_close(f);
}

static void test_read__file_cut_while_open__truncated_and_changed(void **state)
{
    (void)state;
    struct sl_file *f = open_data();
    unsigned char buf[1000];
    sluice_error e;
    assert_int_equal(truncate(path, 500), 0);
    assert_int_equal(sl_file_read_at(f, 0, buf, 1000, &e), SLUICE_E_TRUNCATED);
    assert_non_null(strstr(e.text, "500 found"));
    assert_int_equal(sl_file_check_unchanged(f, &e), SLUICE_E_CHANGED);
    sl_file_close(f);
}

/* What the script makes of a read of the whole file. */
static sluice_err read_with(const char *faults, sluice_error *e)
{
    struct sl_file *f = open_data();
    unsigned char buf[DATA_BYTES];
    memset(buf, 0xAA, sizeof buf);
    script = faults;
    calls = 0;
    sluice_err err = sl_file_read_at(f, 0, buf, sizeof buf, e);
    script = ".";
    if (err == SLUICE_OK) assert_memory_equal(buf, data, sizeof buf);
    sl_file_close(f);
    return err;
}

static void test_read__short_reads_and_interruptions__resumed(void **state)
{
    (void)state;
    sluice_error e;
    assert_int_equal(read_with("s", &e), SLUICE_OK);
    assert_int_equal(calls, (DATA_BYTES + 6) / 7);
    assert_int_equal(read_with("iis.", &e), SLUICE_OK);
    assert_int_equal(read_with("asaisia.", &e), SLUICE_OK);
}

static void test_read__interrupted_for_ever__given_up(void **state)
{
    (void)state;
    sluice_error e;
    assert_int_equal(read_with("si", &e), SLUICE_E_IO);
    assert_int_equal(e.sys_errno, EINTR);
    assert_true(e.file_offset == 7);
    assert_int_equal(calls, 1 + 101);
    assert_int_equal(read_with("a", &e), SLUICE_E_IO);
    assert_int_equal(e.sys_errno, EAGAIN);
}

static void test_read__drive_error__retried_once_then_reported(void **state)
{
    (void)state;
    sluice_error e;
    assert_int_equal(read_with("e.", &e), SLUICE_OK);
    assert_int_equal(read_with("sse", &e), SLUICE_E_IO);
    assert_int_equal(calls, 4);
    assert_int_equal(e.sys_errno, EIO);
    assert_true(e.file_offset == 14);
    assert_non_null(strstr(e.text, "data.bin"));
    assert_non_null(strstr(e.text, "14 of 10000 bytes"));
    assert_non_null(strstr(e.text, strerror(EIO)));
}

static void test_read__device_gone__reported_and_next_read_works(void **state)
{
    (void)state;
    sluice_error e;
    struct sl_file *f = open_data();
    unsigned char buf[10];
    script = "d.";
    assert_int_equal(sl_file_read_at(f, 5, buf, 10, &e), SLUICE_E_IO);
    assert_int_equal(e.sys_errno, ENODEV);
    assert_int_equal(sl_file_read_at(f, 5, buf, 10, NULL), SLUICE_OK);
    assert_memory_equal(buf, data + 5, 10);
    sl_file_close(f);
}

static void test_check__untouched__ok(void **state)
{
    (void)state;
    struct sl_file *f = open_data();
    sluice_error e;
    assert_int_equal(sl_file_check_unchanged(f, &e), SLUICE_OK);
    sl_file_close(f);
}

static void test_check__rewritten_replaced_or_removed__changed(void **state)
{
    (void)state;
    sluice_error e;
    char other[200];
    snprintf(other, sizeof other, "%s/other", folder);

    struct sl_file *f = open_data(); /* same size, other time */
    const struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(sl_file_check_unchanged(f, &e), SLUICE_E_CHANGED);
    sl_file_close(f);

    f = open_data(); /* same size and time, another file under the name */
    write_file(other, data, DATA_BYTES);
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(sl_file_check_unchanged(f, &e), SLUICE_E_CHANGED);
    sl_file_close(f);

    f = open_data();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(sl_file_check_unchanged(f, &e), SLUICE_E_CHANGED);
    assert_int_equal(e.sys_errno, ENOENT);
    sl_file_close(f);
}

/* Address space without memory will do: the drive is made up and touches no byte of it. */
static void test_read__more_than_one_gigabyte__split_without_gaps(void **state)
{
    (void)state;
    const uint64_t size = ((uint64_t)2 << 30) + 12345;
    struct sl_region r;
    assert_int_equal(sl_region_reserve(&r, &budget, size), SLUICE_OK);
    struct sl_file *f = open_data();
    script = "p";
    assert_int_equal(sl_file_read_at(f, 77, r.base, size, NULL), SLUICE_OK);
    assert_int_equal(calls, 3);
    assert_int_equal(pretended_max, (uint64_t)1 << 30);
    assert_int_equal(pretended_end, 77 + size);
    assert_true(pretended_in_order);
    sl_file_close(f);
    sl_region_deinit(&r);
}

/* Pages of the file in the page cache; -1: the system does not tell. */
static int cached_pages(void)
{
    unsigned char in[64];
    int n = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t pages = (DATA_BYTES + (size_t)sysconf(_SC_PAGESIZE) - 1) / (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, DATA_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED && pages <= sizeof in);
    if (mincore(map, DATA_BYTES, in) != 0) n = -1;
    for (size_t i = 0; i < pages && n >= 0; i++) n += in[i] & 1;
    munmap(map, DATA_BYTES);
    close(fd);
    return n;
}

static void test_drop_cache__any_range__gone_and_still_readable(void **state)
{
    (void)state;
    unsigned char buf[DATA_BYTES];
    struct sl_file *f = open_data();
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fsync(fd), 0); /* dirty pages stay */
    close(fd);
    assert_int_equal(sl_file_read_at(f, 0, buf, DATA_BYTES, NULL), SLUICE_OK);
    int before = cached_pages();
    sl_file_drop_cache(f, 5000, 1); /* in the middle of the second page */
    int middle = cached_pages();
    sl_file_drop_cache(f, 0, 0);
    int after = cached_pages();
    assert_true(middle <= before && after <= middle); /* on tmpfs they stay */
    sl_file_drop_cache(f, 0, UINT64_MAX);
    sl_file_drop_cache(f, UINT64_MAX, 5);
    sl_file_drop_cache(f, INT64_MAX, INT64_MAX);
    assert_int_equal(sl_file_read_at(f, 0, buf, DATA_BYTES, NULL), SLUICE_OK);
    assert_memory_equal(buf, data, DATA_BYTES);
    sl_file_close(f);
    printf("pages in the cache: %d, %d, %d\n", before, middle, after);
}

#define IN_A_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(test_open__regular_file__size_and_path),
        IN_A_FOLDER(test_open__missing__not_found_with_its_name),
        IN_A_FOLDER(test_open__directory__refused),
        IN_A_FOLDER(test_open__fifo_or_device__refused_without_waiting),
        IN_A_FOLDER(test_open__no_permission__io_error),
        IN_A_FOLDER(test_open__budget_too_small__error_and_descriptor_closed),
        IN_A_FOLDER(test_read__every_kind_of_range__exact_bytes),
        IN_A_FOLDER(test_read__nothing__ok_anywhere),
        IN_A_FOLDER(test_read__past_the_end__truncated_with_numbers),
        IN_A_FOLDER(test_read__impossible_range__truncated_before_any_read),
        IN_A_FOLDER(test_read__file_cut_while_open__truncated_and_changed),
        IN_A_FOLDER(test_read__short_reads_and_interruptions__resumed),
        IN_A_FOLDER(test_read__interrupted_for_ever__given_up),
        IN_A_FOLDER(test_read__drive_error__retried_once_then_reported),
        IN_A_FOLDER(test_read__device_gone__reported_and_next_read_works),
        IN_A_FOLDER(test_check__untouched__ok),
        IN_A_FOLDER(test_check__rewritten_replaced_or_removed__changed),
        IN_A_FOLDER(test_drop_cache__any_range__gone_and_still_readable),
        IN_A_FOLDER(test_read__more_than_one_gigabyte__split_without_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
