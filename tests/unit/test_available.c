/* How much memory there is to have, in the words of made-up machines: a folder with the few files
 * of /proc and /sys that say so. */
#define _GNU_SOURCE /* mkdtemp */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/available.h"

#define PATH_BYTES 512
#define MIB ((uint64_t)1 << 20)

static char root[] = "/tmp/sluice_test_available_XXXXXX";

/* Writes text to root/name, making its folders. */
static void put(const char *name, const char *text)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", root, name);

    assert_true(n > 0 && (size_t)n < sizeof path);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = '\0';
        (void)mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_number(const char *name, uint64_t n)
{
    char text[32];

    snprintf(text, sizeof text, "%llu\n", (unsigned long long)n);
    put(name, text);
}

static int set_up(void **state)
{
    (void)state;
    memcpy(root + sizeof root - 7, "XXXXXX", 6);
    return mkdtemp(root) == NULL;
}

static int tear_down(void **state)
{
    char command[PATH_BYTES];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

static void test_available__nothing_to_read__unknown(void **state)
{
    (void)state;
    assert_true(sl_available_bytes(root) == UINT64_MAX);
    put("proc/meminfo", "MemTotal: 100 kB\n");
    assert_true(sl_available_bytes(root) == UINT64_MAX);
}

static void test_available__no_limits__what_the_kernel_says(void **state)
{
    (void)state;
    put("proc/meminfo",
        "MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:   4096 kB\nBuffers: 7 kB\n");
    assert_int_equal(sl_available_bytes(root), 4 * MIB);
    put("proc/self/cgroup", "0::/user.slice/session\n");
    put("sys/fs/cgroup/user.slice/session/memory.max", "max\n");
    assert_int_equal(sl_available_bytes(root), 4 * MIB);
}

static void test_available__v2_limit_above__less_what_is_used_but_not_its_cache(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 10485760 kB\n");
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put_number("sys/fs/cgroup/a/memory.max", 1000 * MIB);
    put_number("sys/fs/cgroup/a/memory.current", 600 * MIB);
    assert_int_equal(sl_available_bytes(root), 400 * MIB);
    put("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 9\ninactive_file 104857600\nactive_file "
                                       "20971520\n");
    assert_int_equal(sl_available_bytes(root), 510 * MIB);
    put_number("sys/fs/cgroup/a/b/memory.max", 100 * MIB);
    put_number("sys/fs/cgroup/a/b/memory.current", 200 * MIB);
    assert_int_equal(sl_available_bytes(root), 0);
}

static void test_available__v1_limit__found_beside_other_controllers(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 10485760 kB\n");
    put("proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/jobs/one\n1:memorylike:/y\n");
    put_number("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", 300 * MIB);
    put_number("sys/fs/cgroup/memory/jobs/one/memory.usage_in_bytes", 100 * MIB);
    put("sys/fs/cgroup/memory/jobs/one/memory.stat", "total_inactive_file 1048576\n");
    assert_int_equal(sl_available_bytes(root), 201 * MIB);
}

/* In a container the mount is the group, and the named path is not there. */
static void test_available__path_not_there__the_mount_counts(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 10485760 kB\n");
    put("proc/self/cgroup", "0::/docker/0123\n");
    put_number("sys/fs/cgroup/memory.max", 64 * MIB);
    put_number("sys/fs/cgroup/memory.current", 4 * MIB);
    assert_int_equal(sl_available_bytes(root), 60 * MIB);
    put("proc/self/cgroup", "0::/../../up\n");
    assert_int_equal(sl_available_bytes(root), 60 * MIB);
}

static void test_available__this_machine__something(void **state)
{
    (void)state;
    assert_true(sl_available_bytes("") > 0);
}

static void test_reserve__any_size__a_tenth_and_at_least_256_mib(void **state)
{
    (void)state;
    assert_int_equal(sl_available_less_reserve(0), 0);
    assert_int_equal(sl_available_less_reserve(200 * MIB), 0);
    assert_int_equal(sl_available_less_reserve(1000 * MIB), 744 * MIB);
    assert_int_equal(sl_available_less_reserve(10000 * MIB), 9000 * MIB);
    assert_true(sl_available_less_reserve(UINT64_MAX) == UINT64_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_available__nothing_to_read__unknown),
        TEST(test_available__no_limits__what_the_kernel_says),
        TEST(test_available__v2_limit_above__less_what_is_used_but_not_its_cache),
        TEST(test_available__v1_limit__found_beside_other_controllers),
        TEST(test_available__path_not_there__the_mount_counts),
        TEST(test_available__this_machine__something),
        TEST(test_reserve__any_size__a_tenth_and_at_least_256_mib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
