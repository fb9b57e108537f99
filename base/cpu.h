/* Which processors to compute on, and how floating point is set there.
 *
 * The default number of threads is the number of fastest cores that the affinity mask allows,
 * bounded by the cgroup CPU quota (v1 and v2); phones get slower, not faster, when the small cores
 * join. */
#ifndef SL_CPU_H
#define SL_CPU_H

#include "base/base.h"
#include "base/limits.h"

#define SL_CPU_IDS_MAX 1024

/* What was found, so that it can be logged. */
struct sl_cpu_choice {
    uint32_t threads;             /* recommended, 1..SL_THREADS_MAX */
    uint32_t allowed;             /* cores the affinity mask allows */
    uint32_t fastest;             /* of those, cores of the fastest kind */
    double quota;                 /* cores the control group grants; 0: no limit */
    uint32_t n_ids;               /* entries of ids */
    uint16_t ids[SL_CPU_IDS_MAX]; /* core numbers of the fastest allowed cores, ascending */
};

/* Looks at sysfs, the affinity mask and the control group. root is "" for the real system; tests
 * pass a folder that holds sys/ and proc/ of another machine (then all cores listed there count as
 * allowed). Never fails: what cannot be read counts as no restriction. Cores count as fastest when
 * their cpuinfo_max_freq (or else cpu_capacity) is at least 80 % of the highest. Thread: safe. */
void sl_cpu_choose(const char *root, struct sl_cpu_choice *out);

/* Restricts the calling thread to the cores of choice. Returns false where the system refused or
 * did not apply it; that is worth a log line, nothing else. */
bool sl_cpu_pin(const struct sl_cpu_choice *choice);

/* Floating-point control of the calling thread: round to nearest, denormals kept, no traps. enter
 * returns what was set before; leave restores it. */
uint64_t sl_fp_enter(void);
void sl_fp_leave(uint64_t saved);

/* Instruction sets of this processor as the operating system allows them. */
enum sl_cpu_flag {
    SL_CPU_AVX2 = 1, /* AVX2, FMA and F16C */
    SL_CPU_NEON = 2,
    SL_CPU_DOTPROD = 4, /* SDOT and UDOT */
    SL_CPU_I8MM = 8,    /* SMMLA */
    SL_CPU_AVX512 = 16  /* F, BW, DQ, VL, VBMI, VNNI and GFNI */
};
uint32_t sl_cpu_flags(void);

#endif
