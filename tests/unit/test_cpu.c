/* The choice of cores, on made-up machines (folders that look like /sys and /proc) and on this one;
 * and floating-point control. Proves that small cores and quotas are respected in every form the
 * kernel states them, and that damaged or missing files mean "no restriction", never zero threads.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fenv.h>
#include <float.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/cgroup_quota.h"
#include "base/cpu.h"

static char root[256];

/* Makes every folder on the way to path, then the file. */
static void put(const char *path, const char *text)
{
    char full[1024];
    int n = snprintf(full, sizeof full, "%s/%s", root, path);
    assert_true(n > 0 && (size_t)n < sizeof full);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0777);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_core(unsigned id, const char *file, unsigned long value)
{
    char path[128], text[32];
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%u/%s", id, file);
    snprintf(text, sizeof text, "%lu\n", value);
    put(path, text);
}

static int machine_new(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/sluice_test_cpu_XXXXXX");
    return mkdtemp(root) == NULL;
}

static int machine_delete(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static struct sl_cpu_choice choose(void)
{
    struct sl_cpu_choice c;
    memset(&c, 0x77, sizeof c);
    sl_cpu_choose(root, &c);
    return c;
}

static void test_choose__empty_machine__one_thread(void **state)
{
    (void)state;
    struct sl_cpu_choice c = choose();
    assert_int_equal(c.threads, 1);
    assert_int_equal(c.allowed, 0);
    assert_int_equal(c.n_ids, 0);
    assert_true(c.quota == 0);
    assert_false(sl_cpu_pin(&c));
}

/* 1 + 3 + 4: the prime core and the three next ones are within 80 %, the small ones are not. */
static void test_choose__phone_with_three_kinds__fast_kinds_only(void **state)
{
    (void)state;
    static const unsigned long khz[] = {2000000, 2000000, 2000000, 2000000,
                                        2850000, 2850000, 2850000, 3250000};
    put("sys/devices/system/cpu/online", "0-7\n");
    for (unsigned i = 0; i < 8; i++) put_core(i, "cpufreq/cpuinfo_max_freq", khz[i]);
    struct sl_cpu_choice c = choose();
    assert_int_equal(c.allowed, 8);
    assert_int_equal(c.fastest, 4);
    assert_int_equal(c.threads, 4);
    assert_int_equal(c.n_ids, 4);
    for (uint16_t i = 0; i < 4; i++) assert_int_equal(c.ids[i], i + 4);
}

static void test_choose__exactly_80_percent__counts(void **state)
{
    (void)state;
    put("sys/devices/system/cpu/online", "0-2");
    put_core(0, "cpufreq/cpuinfo_max_freq", 2500000);
    put_core(1, "cpufreq/cpuinfo_max_freq", 2000000);
    put_core(2, "cpufreq/cpuinfo_max_freq", 1999999);
    assert_int_equal(choose().fastest, 2);
}

static void test_choose__capacity_only__used(void **state)
{
    (void)state;
    put("sys/devices/system/cpu/online", "0-3");
    put_core(0, "cpu_capacity", 462);
    put_core(1, "cpu_capacity", 462);
    put_core(2, "cpu_capacity", 1024);
    put_core(3, "cpu_capacity", 1024);
    struct sl_cpu_choice c = choose();
    assert_int_equal(c.fastest, 2);
    assert_int_equal(c.ids[0], 2);
}

static void test_choose__frequency_of_some_cores_only__no_distinction(void **state)
{
    (void)state;
    put("sys/devices/system/cpu/online", "0-3");
    put_core(0, "cpufreq/cpuinfo_max_freq", 1000000);
    assert_int_equal(choose().fastest, 4);
}

static void test_choose__garbage_frequency__no_distinction(void **state)
{
    (void)state;
    put("sys/devices/system/cpu/online", "0-1");
    put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "fast\n");
    put("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "99999999999999999999999\n");
    assert_int_equal(choose().fastest, 2);
}

static void test_choose__no_online_file__folders_counted(void **state)
{
    (void)state;
    put_core(0, "cpu_capacity", 1024);
    put_core(1, "cpu_capacity", 1024);
    put_core(5, "cpu_capacity", 1024);
    struct sl_cpu_choice c = choose();
    assert_int_equal(c.allowed, 3);
    assert_int_equal(c.ids[2], 5);
}

static void test_choose__lists__parsed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t cores;
    } cases[] = {
        {"0", 1},   {"0-3,8-11\n", 8}, {"1,3,5", 3}, {"0-1023", 1024}, {"0-99999999999", 1024},
        {"5-3", 0}, {"", 0},           {"x", 0},     {"2,x", 1},       {"0-", 1},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        put("sys/devices/system/cpu/online", cases[i].text);
        assert_int_equal(choose().allowed, cases[i].cores);
    }
}

static void test_choose__more_cores_than_the_limit__bounded(void **state)
{
    (void)state;
    put("sys/devices/system/cpu/online", "0-191");
    struct sl_cpu_choice c = choose();
    assert_int_equal(c.fastest, 192);
    assert_int_equal(c.threads, SL_THREADS_MAX);
}

static void eight_cores(void) { put("sys/devices/system/cpu/online", "0-7"); }

static void test_quota__v2_in_a_container__floor(void **state)
{
    (void)state;
    eight_cores();
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "250000 100000\n");
    struct sl_cpu_choice c = choose();
    assert_true(c.quota == 2.5);
    assert_int_equal(c.threads, 2);
    assert_int_equal(c.fastest, 8);
}

static void test_quota__below_one_core__one_thread(void **state)
{
    (void)state;
    eight_cores();
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "20000 100000\n");
    assert_int_equal(choose().threads, 1);
}

static void test_quota__larger_than_the_machine__cores(void **state)
{
    (void)state;
    eight_cores();
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "6400000 100000\n");
    assert_int_equal(choose().threads, 8);
}

static void test_quota__v2_limit_at_a_parent__found(void **state)
{
    (void)state;
    eight_cores();
    put("proc/self/cgroup", "0::/user.slice/app.slice/run.scope\n");
    put("sys/fs/cgroup/user.slice/app.slice/run.scope/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/user.slice/app.slice/cpu.max", "600000 100000\n");
    put("sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n");
    assert_true(choose().quota == 3.0);
    put("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    assert_true(choose().quota == 6.0);
}

static void test_quota__path_outside_the_mount__mount_read(void **state)
{
    (void)state;
    eight_cores();
    put("proc/self/cgroup", "0::/docker/0123abc\n");
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    assert_true(choose().quota == 1.5);
    put("proc/self/cgroup", "0::/../../elsewhere\n");
    assert_true(choose().quota == 1.5);
}

static void test_quota__v1__found_at_every_level(void **state)
{
    (void)state;
    eight_cores();
    put("proc/self/cgroup",
        "12:cpuset:/x\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n");
    put("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_true(choose().quota == 4.0);
    put("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "50000\n");
    put("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "25000\n");
    assert_true(choose().quota == 2.0);
    put("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "-1\n");
    assert_true(choose().quota == 4.0);
}

static void test_quota__hybrid_and_android_mounts__found(void **state)
{
    (void)state;
    eight_cores();
    put("proc/self/cgroup", "3:cpu:/\n0::/a\n");
    put("sys/fs/cgroup/unified/a/cpu.max", "700000 100000\n");
    assert_true(choose().quota == 7.0);
    put("dev/cpuctl/cpu.cfs_quota_us", "500000\n");
    put("dev/cpuctl/cpu.cfs_period_us", "100000\n");
    assert_true(choose().quota == 5.0);
}

static void test_quota__damaged_files__no_limit(void **state)
{
    (void)state;
    static const char *const texts[] = {"",         "max",        "100000",   "0 100000",
                                        "100000 0", "-5 100000x", "\xFF\xFE", "100000,100000"};
    eight_cores();
    put("proc/self/cgroup", "0::/\nno colons\n:\n::\n5:cpu\n");
    for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++) {
        put("sys/fs/cgroup/cpu.max", texts[i]);
        struct sl_cpu_choice c = choose();
        assert_true(c.threads >= 1 && c.threads <= 8);
        if (i != 5) assert_int_equal(c.threads, 8);
    }
}

static void test_quota__very_long_group__survives(void **state)
{
    (void)state;
    static char text[7000];
    eight_cores();
    memset(text, 'g', sizeof text - 1);
    memcpy(text, "0::/", 4);
    put("proc/self/cgroup", text);
    put("sys/fs/cgroup/cpu.max", "200000 100000");
    assert_int_equal(choose().threads, 2);
}

static void test_choose__this_machine__within_the_affinity_mask(void **state)
{
    (void)state;
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    struct sl_cpu_choice c;
    sl_cpu_choose("", &c);
    assert_int_equal(c.allowed, CPU_COUNT(&mask));
    assert_true(c.threads >= 1 && c.threads <= c.fastest && c.fastest <= c.allowed);
    for (uint32_t i = 0; i < c.n_ids; i++) assert_true(CPU_ISSET(c.ids[i], &mask));
    printf("allowed %u, fastest %u, quota %.2f, threads %u\n", c.allowed, c.fastest, c.quota,
           c.threads);
}

static void test_choose__restricted_to_one_core__one_thread_and_pin_works(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    struct sl_cpu_choice c;
    sl_cpu_choose("", &c);
    c.n_ids = 1;
    assert_true(sl_cpu_pin(&c));
    assert_int_equal(sched_getaffinity(0, sizeof one, &one), 0);
    assert_int_equal(CPU_COUNT(&one), 1);
    assert_true(CPU_ISSET(c.ids[0], &one));
    struct sl_cpu_choice now;
    sl_cpu_choose("", &now);
    assert_int_equal(now.threads, 1);
    assert_int_equal(now.ids[0], c.ids[0]);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* volatile: the compiler must not compute at its own rounding mode. */
static volatile float one = 1.0f, tiny = FLT_MIN, half = 0.5f;

/* By arithmetic, not by fegetround, which on x86 tells of the x87 unit that nobody here uses. */
static bool rounds_upward(void)
{
    volatile float sum = one + tiny; /* stored, or the addition may move past a call */
    return sum > one;
}

static bool keeps_denormals(void)
{
    volatile float product = tiny * half;
    return product > 0;
}

static void test_fp__host_rounds_up_and_flushes__plain_inside_restored_after(void **state)
{
    (void)state;
    assert_false(rounds_upward());
    assert_int_equal(fesetround(FE_UPWARD), 0);
    bool host = rounds_upward();
    uint64_t saved = sl_fp_enter();
    bool inside = rounds_upward();
    bool denormals = keeps_denormals();
    sl_fp_leave(saved);
    bool after = rounds_upward();
    fesetround(FE_TONEAREST);
    assert_true(host && !inside && denormals && after);
#if defined(__x86_64__)
    saved = sl_fp_enter();
    sl_fp_leave(saved | 0x8040u); /* a host with flush-to-zero and denormals-are-zero */
    assert_false(keeps_denormals());
    uint64_t flushing = sl_fp_enter();
    assert_true(keeps_denormals());
    sl_fp_leave(flushing);
    assert_false(keeps_denormals());
    sl_fp_leave(saved);
#endif
}

static void test_flags__this_machine__agrees_with_the_compiler_runtime(void **state)
{
    (void)state;
    uint32_t flags = sl_cpu_flags();
#if defined(__x86_64__)
    bool want = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    assert_int_equal((flags & SL_CPU_AVX2) != 0, want);
    bool wide = want && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") &&
                __builtin_cpu_supports("gfni");
    assert_int_equal((flags & SL_CPU_AVX512) != 0, wide);
    assert_int_equal(flags & SL_CPU_NEON, 0);
#elif defined(__aarch64__)
    uint32_t sets = SL_CPU_NEON | SL_CPU_DOTPROD | SL_CPU_I8MM;
    assert_int_equal(flags & SL_CPU_NEON, SL_CPU_NEON);
    assert_int_equal(flags & ~sets, 0);
    bool complete = (flags & SL_CPU_I8MM) == 0 || flags == sets; /* no core has the last alone */
    assert_true(complete);
#endif
}

#define ON_A_MACHINE(f) cmocka_unit_test_setup_teardown(f, machine_new, machine_delete)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_MACHINE(test_choose__empty_machine__one_thread),
        ON_A_MACHINE(test_choose__phone_with_three_kinds__fast_kinds_only),
        ON_A_MACHINE(test_choose__exactly_80_percent__counts),
        ON_A_MACHINE(test_choose__capacity_only__used),
        ON_A_MACHINE(test_choose__frequency_of_some_cores_only__no_distinction),
        ON_A_MACHINE(test_choose__garbage_frequency__no_distinction),
        ON_A_MACHINE(test_choose__no_online_file__folders_counted),
        ON_A_MACHINE(test_choose__lists__parsed),
        ON_A_MACHINE(test_choose__more_cores_than_the_limit__bounded),
        ON_A_MACHINE(test_quota__v2_in_a_container__floor),
        ON_A_MACHINE(test_quota__below_one_core__one_thread),
        ON_A_MACHINE(test_quota__larger_than_the_machine__cores),
        ON_A_MACHINE(test_quota__v2_limit_at_a_parent__found),
        ON_A_MACHINE(test_quota__path_outside_the_mount__mount_read),
        ON_A_MACHINE(test_quota__v1__found_at_every_level),
        ON_A_MACHINE(test_quota__hybrid_and_android_mounts__found),
        ON_A_MACHINE(test_quota__damaged_files__no_limit),
        ON_A_MACHINE(test_quota__very_long_group__survives),
        cmocka_unit_test(test_choose__this_machine__within_the_affinity_mask),
        cmocka_unit_test(test_choose__restricted_to_one_core__one_thread_and_pin_works),
        cmocka_unit_test(test_fp__host_rounds_up_and_flushes__plain_inside_restored_after),
        cmocka_unit_test(test_flags__this_machine__agrees_with_the_compiler_runtime),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
