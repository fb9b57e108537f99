/* Which processors to use, and how they do arithmetic: see cpu.h.
 *
 * Everything is read from where the kernel says it, never probed by executing something: a feature
 * register read that old phones trap on, or an instruction the kernel does not save, would kill the
 * process. On Android sched_* with pid 0 (the calling thread) works in every version,
 * pthread_setaffinity_np does not. */
#define _GNU_SOURCE /* cpu_set_t */
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup_quota.h"
#include "base/small_file.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define PATH_MAX_BYTES 512
#define FAST_PERCENT 80

_Static_assert(CPU_SETSIZE >= SL_CPU_IDS_MAX, "every core number fits the mask");

/* ---- which cores -------------------------------------------------------------------------------
 */

/* Marks the cores of a list such as "0-3,6"; stops at the first thing that is no list. */
static void mark_list(const char *text, cpu_set_t *set)
{
    const char *p = text;
    while (*p >= '0' && *p <= '9') {
        char *end;
        unsigned long first = strtoul(p, &end, 10);
        unsigned long last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (unsigned long id = first; id <= last && id < SL_CPU_IDS_MAX; id++) CPU_SET(id, set);
        if (*end != ',') break;
        p = end + 1;
    }
}

/* Cores that the system has, whatever this thread may use. */
static void listed_cores(const char *root, cpu_set_t *set)
{
    char path[PATH_MAX_BYTES], text[1024];
    CPU_ZERO(set);
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/online", root);
    if (sl_small_file_read(path, text, sizeof text)) mark_list(text, set);
    if (CPU_COUNT(set) > 0) return;
    for (unsigned id = 0; id < SL_CPU_IDS_MAX; id++) {
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u", root, id);
        if (access(path, F_OK) == 0) CPU_SET(id, set);
    }
}

static void allowed_cores(const char *root, cpu_set_t *set)
{
    CPU_ZERO(set);
    if (root[0] == '\0' && sched_getaffinity(0, sizeof *set, set) == 0 && CPU_COUNT(set) > 0)
        return;
    listed_cores(root, set);
}

/* ---- the fastest of them -----------------------------------------------------------------------
 */

static uint64_t core_number(const char *root, unsigned id, const char *file)
{
    char path[PATH_MAX_BYTES], text[64];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/%s", root, id, file);
    if (!sl_small_file_read(path, text, sizeof text)) return 0;
    return strtoull(text, NULL, 10);
}

/* Keeps the allowed cores whose number in file is near the highest. Returns false, leaving out
 * alone, where not every allowed core has such a number: half an answer would compare a core with
 * nothing. */
static bool keep_fastest(const char *root, const char *file, const cpu_set_t *allowed,
                         cpu_set_t *out)
{
    uint64_t speed[SL_CPU_IDS_MAX];
    uint64_t highest = 0;
    for (unsigned id = 0; id < SL_CPU_IDS_MAX; id++) {
        if (!CPU_ISSET(id, allowed)) continue;
        speed[id] = core_number(root, id, file);
        if (speed[id] == 0 || speed[id] > UINT64_MAX / 100) return false;
        highest = sl_max_u64(highest, speed[id]);
    }
    if (highest == 0) return false;
    CPU_ZERO(out);
    for (unsigned id = 0; id < SL_CPU_IDS_MAX; id++) {
        if (CPU_ISSET(id, allowed) && speed[id] * 100 >= highest * FAST_PERCENT) CPU_SET(id, out);
    }
    return true;
}

void sl_cpu_choose(const char *root, struct sl_cpu_choice *out)
{
    SLUICE_ASSERT(root != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    cpu_set_t allowed, fastest;
    allowed_cores(root, &allowed);
    out->allowed = (uint32_t)CPU_COUNT(&allowed);
    if (!keep_fastest(root, "cpufreq/cpuinfo_max_freq", &allowed, &fastest) &&
        !keep_fastest(root, "cpu_capacity", &allowed, &fastest))
        fastest = allowed;
    out->fastest = (uint32_t)CPU_COUNT(&fastest);
    for (unsigned id = 0; id < SL_CPU_IDS_MAX; id++) {
        if (CPU_ISSET(id, &fastest)) out->ids[out->n_ids++] = (uint16_t)id;
    }
    out->quota = sl_cgroup_cpu_quota(root);
    uint64_t threads = sl_min_u64(sl_max_u64(out->fastest, 1), SL_THREADS_MAX);
    if (out->quota > 0 && out->quota < (double)threads)
        threads = sl_max_u64((uint64_t)out->quota, 1);
    out->threads = (uint32_t)threads;
}

bool sl_cpu_pin(const struct sl_cpu_choice *choice)
{
    cpu_set_t want, got;
    CPU_ZERO(&want);
    for (uint32_t i = 0; i < choice->n_ids; i++) CPU_SET(choice->ids[i], &want);
    if (CPU_COUNT(&want) == 0) return false;
    if (sched_setaffinity(0, sizeof want, &want) != 0) return false;
    /* Some kernels accept a mask and keep the old one. */
    CPU_ZERO(&got);
    if (sched_getaffinity(0, sizeof got, &got) != 0) return false;
    return CPU_EQUAL(&want, &got) != 0;
}

/* ---- floating point and instruction sets --------------------------------------------------------
 */

#if defined(__x86_64__)

/* Exceptions masked, round to nearest, neither flush-to-zero nor denormals-are-zero. */
#define MXCSR_PLAIN 0x1F80u

uint64_t sl_fp_enter(void)
{
    uint64_t saved = _mm_getcsr();
    _mm_setcsr(MXCSR_PLAIN);
    return saved;
}

void sl_fp_leave(uint64_t saved) { _mm_setcsr((unsigned)saved); }

/* Register state that the system saves; XGETBV by its name needs no compiler flag. */
static uint64_t saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t sl_cpu_flags(void)
{
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const unsigned basic = fma | osxsave | avx | f16c, avx2 = 1u << 5;
    const unsigned f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    const unsigned vbmi_gfni_vnni = 1u << 1 | 1u << 8 | 1u << 11;
    const uint64_t vector_state = 6;  /* XMM and YMM */
    const uint64_t wide_state = 0xe0; /* mask registers, and all of ZMM */
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & basic) != basic) return 0;
    uint64_t saved = saved_state();
    if ((saved & vector_state) != vector_state) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & avx2) == 0) return 0;
    bool wide = (b & f_dq_bw_vl) == f_dq_bw_vl && (c & vbmi_gfni_vnni) == vbmi_gfni_vnni &&
                (saved & wide_state) == wide_state;
    return wide ? SL_CPU_AVX2 | SL_CPU_AVX512 : SL_CPU_AVX2;
}

#elif defined(__aarch64__)

uint64_t sl_fp_enter(void)
{
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return saved;
}

void sl_fp_leave(uint64_t saved) { __asm__ volatile("msr fpcr, %0" : : "r"(saved)); }

uint32_t sl_cpu_flags(void)
{
    const unsigned long asimd = 1ul << 1, asimddp = 1ul << 20, i8mm = 1ul << 13; /* <asm/hwcap.h> */
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    uint32_t flags = 0;
    if ((first & asimd) != 0) flags |= SL_CPU_NEON;
    if ((first & asimddp) != 0) flags |= SL_CPU_DOTPROD;
    if ((second & i8mm) != 0) flags |= SL_CPU_I8MM;
    return flags;
}

#else
#error "floating-point control is written for x86-64 and AArch64 only"
#endif
