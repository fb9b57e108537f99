/* The asynchronous layer against the system: a kernel that refuses io_uring at once or later, file
 * systems without direct access, files that are cut or replaced while open, the memory-lock limit,
 * and the page cache. What the system cannot show here is skipped with a line. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "tests/support/io_case.h"

#define SKIPPED 77

static const struct setup automatic = {"automatic", {SL_IO_AUTO, 0, 0, 0}, NO_WRAPPER};
static const struct setup uring = {"io_uring", {SL_IO_URING, 0, 0, 0}, NO_WRAPPER};
static const struct setup bare[] = {
    {"pread", {SL_IO_PREAD, 0, 3, 0}, NO_WRAPPER},
    {"io_uring", {SL_IO_URING, 8, 0, 0}, NO_WRAPPER},
};
static struct rig rig;

/* From here on the process gets `sys` as errno of one system call. False: no filter possible. */
static bool refuse(long call, int sys)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned)sys & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {SL_ARRAY_LEN(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Whether reads through the rig are whole; without asserting, for children. */
static bool reads_work(struct rig *g)
{
    rig_forget(g);
    for (uint32_t i = 0; i < 20; i++)
        rig_add(g, 5 + i * 200003, 70000 + i, i % 3 == 0 ? SL_IO_LOW : SL_IO_DEMAND);
    rig_submit(g, 0, g->n);
    rig_reap_all(g, NULL);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->requests[i].code != SLUICE_OK || !holds_data(&g->requests[i])) return false;
    return true;
}

/* Runs the body in a process of its own and asserts that it returns 0, or skips. */
static void in_child(int (*body)(void))
{
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- a kernel that refuses ----------------------------------------------------------------- */

static int fall_back(long call, int sys)
{
    if (!refuse(call, sys)) return SKIPPED;
    log_text[0] = '\0';
    if (!rig_open(&rig, &automatic, SL_IO_DIRECT)) return 1;
    if (strcmp(sl_io_name(rig.io), "pread") != 0) return 2;
    if (strstr(log_text, "io_uring") == NULL || strstr(log_text, "threads") == NULL) return 3;
    if (!reads_work(&rig)) return 4;
    rig_close(&rig);
    if (sl_budget_used(&budget) != 0) return 5;
    return rig_open(&rig, &uring, SL_IO_DIRECT) ? 6 : 0; /* by name it is an error */
}

static int setup_eperm(void) { return fall_back(SYS_io_uring_setup, EPERM); }
static int setup_enosys(void) { return fall_back(SYS_io_uring_setup, ENOSYS); }
static int setup_enomem(void) { return fall_back(SYS_io_uring_setup, ENOMEM); }
static int setup_eacces(void) { return fall_back(SYS_io_uring_setup, EACCES); }
static int enter_eperm(void) { return fall_back(SYS_io_uring_enter, EPERM); }
static int register_eperm(void)
{
    return fall_back(SYS_io_uring_register, EPERM); /* nobody can say whether it can read */
}

static void test_open__io_uring_refused__pread_takes_over_and_the_log_says_so(void **state)
{
    (void)state;
    in_child(setup_eperm);
    in_child(setup_enosys);
    in_child(setup_enomem);
    in_child(setup_eacces);
    in_child(enter_eperm);
    in_child(register_eperm);
}

static int refused_later(void)
{
    if (!rig_open(&rig, &uring, SL_IO_DIRECT)) return SKIPPED;
    if (!reads_work(&rig)) return 1;
    if (!refuse(SYS_io_uring_enter, EPERM)) return SKIPPED;
    log_text[0] = '\0';
    if (!reads_work(&rig) || !reads_work(&rig)) return 2;
    if (strstr(log_text, "no more requests") == NULL) return 3;
    rig_close(&rig);
    return sl_budget_used(&budget) == 0 ? 0 : 4;
}

static void test_submit__io_uring_refused_later__reads_still_whole(void **state)
{
    (void)state;
    in_child(refused_later);
}

/* ---- the memory-lock limit ----------------------------------------------------------------- */

static int without_locked_memory(void)
{
    const struct rlimit none = {0, 0};
    const size_t bytes = 8u << 20;
    void *memory = NULL;
    if (chmod(folder, 0755) != 0 || chmod(path, 0644) != 0) return 1;
    int here = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (here < 0 || setrlimit(RLIMIT_MEMLOCK, &none) != 0) return 2;
    /* Root may lock what it likes. */
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0))
        return SKIPPED;
    if (fchdir(here) != 0) return SKIPPED;
    (void)snprintf(path, sizeof path, "data");
    if (access(path, R_OK) != 0 || !rig_open(&rig, &automatic, SL_IO_DIRECT)) return SKIPPED;
    if (posix_memalign(&memory, 65536, bytes) != 0) return SKIPPED;
    if (sl_io_pin(rig.io, memory, bytes)) return 3;
    bool whole = reads_work(&rig);
    free(memory);
    rig_close(&rig);
    return whole ? 0 : 4;
}

static void test_pin__no_memory_may_be_locked__false_and_reads_whole(void **state)
{
    (void)state;
    in_child(without_locked_memory);
}

/* ---- file systems -------------------------------------------------------------------------- */

/* Reads a copy of the data in another folder with every backend, direct wanted. 0: all whole. */
static int read_in(const char *where)
{
    char copy[sizeof path];
    char kept[sizeof path];
    int result = 0;
    (void)snprintf(copy, sizeof copy, "%.80s/sluice_io_copy", where);
    write_file(copy, data, FILE_BYTES);
    memcpy(kept, path, sizeof path);
    memcpy(path, copy, sizeof path);
    for (size_t i = 0; i < SL_ARRAY_LEN(bare); i++) {
        if (!rig_open(&rig, &bare[i], SL_IO_DIRECT)) continue;
        if (!reads_work(&rig)) result = 1;
        print_message("%s in %s: block %u\n", bare[i].name, where, sl_io_file_block(rig.f));
        rig_close(&rig);
    }
    unlink(copy);
    memcpy(path, kept, sizeof path);
    return result;
}

static void test_direct__tmpfs__whole_whatever_it_offers(void **state)
{
    (void)state;
    if (access("/dev/shm", W_OK) != 0) skip();
    assert_int_equal(read_in("/dev/shm"), 0);
}

/* An overlay whose upper layer is memory, in a mount namespace that ends with the child. */
static int read_in_overlay(void)
{
    char options[256];
    static const char base[] = "/tmp/sluice_io_overlay";
    if (unshare(CLONE_NEWNS) != 0) return SKIPPED;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return SKIPPED;
    (void)mkdir(base, 0700);
    if (mount("tmpfs", base, "tmpfs", 0, NULL) != 0) return SKIPPED;
    if (chdir(base) != 0) return SKIPPED;
    if (mkdir("lower", 0700) != 0 || mkdir("upper", 0700) != 0 || mkdir("work", 0700) != 0 ||
        mkdir("all", 0700) != 0)
        return SKIPPED;
    (void)snprintf(options, sizeof options, "lowerdir=lower,upperdir=upper,workdir=work");
    if (mount("overlay", "all", "overlay", 0, options) != 0) return SKIPPED;
    return read_in("all");
}

static void test_direct__overlay__whole_whatever_it_offers(void **state)
{
    (void)state;
    in_child(read_in_overlay);
}

/* ext4 with all data in the journal reads buffered, whatever the file was opened with; a kernel
 * without statx does not say so. In a mount namespace that ends with the child. */
static int read_journalled(void)
{
    static const char make[] = "dd if=/dev/zero of=image bs=1M count=40 2>/dev/null && mkdir m && "
                               "mkfs.ext4 -q image && mount -o loop,data=journal image m";
    if (unshare(CLONE_NEWNS) != 0 || chdir(folder) != 0) return SKIPPED;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return SKIPPED;
    int result = SKIPPED;
    if (system(make) == 0 && refuse(SYS_statx, ENOSYS)) {
        (void)snprintf(path, sizeof path, "m/data");
        write_file(path, data, FILE_BYTES);
        sync();
        log_text[0] = '\0';
        result = 1;
        if (rig_open(&rig, &bare[0], SL_IO_DIRECT)) {
            if (sl_io_file_block(rig.f) == 1 && reads_work(&rig) &&
                strstr(log_text, "page cache") != NULL)
                result = 0;
            rig_close(&rig);
        }
        (void)umount2("m", MNT_DETACH);
    }
    unlink("image");
    rmdir("m");
    return result;
}

static void test_direct__file_system_reads_buffered_in_secret__noticed(void **state)
{
    (void)state;
    in_child(read_journalled);
}

static void test_direct__empty_file__buffered_and_reads_truncated(void **state)
{
    (void)state;
    char kept[sizeof path];
    memcpy(kept, path, sizeof path);
    (void)snprintf(path, sizeof path, "%s/empty", folder);
    write_file(path, data, 0);
    assert_true(rig_open(&rig, &bare[0], SL_IO_DIRECT));
    assert_int_equal(sl_io_file_block(rig.f), 1);
    assert_non_null(strstr(log_text, "empty"));
    rig_add(&rig, 0, 1, SL_IO_DEMAND);
    rig_submit(&rig, 0, 1);
    rig_reap_all(&rig, NULL);
    assert_int_equal(rig.requests[0].code, SLUICE_E_TRUNCATED);
    rig_close(&rig);
    unlink(path);
    memcpy(path, kept, sizeof path);
}

/* ---- files that change --------------------------------------------------------------------- */

static void test_reads__file_cut_while_open__truncated_and_the_rest_whole(void **state)
{
    (void)state;
    const uint64_t left = 1000001;
    for (size_t i = 0; i < 2 * SL_ARRAY_LEN(bare); i++) {
        if (!rig_open(&rig, &bare[i / 2], i % 2 == 0 ? SL_IO_DIRECT : SL_IO_BUFFERED)) continue;
        assert_int_equal(truncate(path, (off_t)left), 0);
        rig_add(&rig, left - 5000, 5001, SL_IO_DEMAND);
        rig_add(&rig, left + 2000000, 5000, SL_IO_DEMAND);
        rig_add(&rig, left - 5000, 5000, SL_IO_DEMAND);
        rig_submit(&rig, 0, 3);
        rig_reap_all(&rig, NULL);
        assert_int_equal(rig.requests[0].code, SLUICE_E_TRUNCATED);
        assert_int_equal(rig.requests[0].fail_offset, left);
        assert_int_equal(rig.requests[1].code, SLUICE_E_TRUNCATED);
        check_whole(&rig, 2);
        rig_close(&rig);
        write_file(path, data, FILE_BYTES);
    }
}

static void test_reads__file_replaced_while_open__old_bytes_and_a_new_open_refuses(void **state)
{
    (void)state;
    char other[160];
    (void)snprintf(other, sizeof other, "%s/other", folder);
    for (size_t i = 0; i < SL_ARRAY_LEN(bare); i++) {
        struct sl_io_file *again = NULL;
        sluice_error e = {0};
        if (!rig_open(&rig, &bare[i], SL_IO_DIRECT)) continue;
        write_file(other, (const unsigned char *)"other", 5);
        assert_int_equal(rename(other, path), 0);
        assert_true(reads_work(&rig));
        assert_int_equal(sl_file_check_unchanged(rig.file, &e), SLUICE_E_CHANGED);
        assert_int_equal(sl_io_file_open(rig.io, rig.file, SL_IO_DIRECT, &e, &again),
                         SLUICE_E_CHANGED);
        assert_null(again);
        assert_non_null(strstr(e.text, path));
        unlink(path);
        assert_int_equal(sl_io_file_open(rig.io, rig.file, SL_IO_DIRECT, &e, &again),
                         SLUICE_E_NOT_FOUND);
        rig_close(&rig);
        write_file(path, data, FILE_BYTES);
    }
}

/* ---- the page cache ------------------------------------------------------------------------ */

/* Bytes of the file that are in the page cache. */
static size_t cached_bytes(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = (FILE_BYTES + page - 1) / page;
    unsigned char *resident = malloc(pages);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mincore(map, FILE_BYTES, resident), 0);
    size_t n = 0;
    for (size_t i = 0; i < pages; i++) n += resident[i] & 1;
    munmap(map, FILE_BYTES);
    close(fd);
    free(resident);
    return n * page;
}

static void test_reads__either_access__leave_nothing_in_the_page_cache(void **state)
{
    (void)state;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
    size_t before = cached_bytes();
    if (before > 100000) skip(); /* a file system that lives in memory */
    for (size_t i = 0; i < 2 * SL_ARRAY_LEN(bare); i++) {
        if (!rig_open(&rig, &bare[i / 2], i % 2 == 0 ? SL_IO_DIRECT : SL_IO_BUFFERED)) continue;
        assert_true(reads_work(&rig));
        rig_close(&rig);
        assert_in_range(cached_bytes(), 0, before + 65536); /* of 1.4 MB that were read */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open__io_uring_refused__pread_takes_over_and_the_log_says_so),
        cmocka_unit_test(test_submit__io_uring_refused_later__reads_still_whole),
        cmocka_unit_test(test_pin__no_memory_may_be_locked__false_and_reads_whole),
        cmocka_unit_test(test_direct__tmpfs__whole_whatever_it_offers),
        cmocka_unit_test(test_direct__overlay__whole_whatever_it_offers),
        cmocka_unit_test(test_direct__file_system_reads_buffered_in_secret__noticed),
        cmocka_unit_test(test_direct__empty_file__buffered_and_reads_truncated),
        cmocka_unit_test(test_reads__file_cut_while_open__truncated_and_the_rest_whole),
        cmocka_unit_test(test_reads__file_replaced_while_open__old_bytes_and_a_new_open_refuses),
        cmocka_unit_test(test_reads__either_access__leave_nothing_in_the_page_cache),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
