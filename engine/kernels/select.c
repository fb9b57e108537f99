/* Chooses the kernel table. The tables are constant; choosing copies a pointer. */
#include <stdio.h>

#include "engine/kernels/kernel_variants.h"

static const struct sl_kernels scalar_table = {
    .isa = "scalar",
#define SLUICE_KERNEL(slot, name, avx2, avx512, neon, dotprod, i8mm) .slot = sl_k_##name##__scalar,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};

#if defined(__x86_64__)
static const struct sl_kernels avx2_table = {
    .isa = "avx2",
#define SLUICE_KERNEL(slot, name, avx2, avx512, neon, dotprod, i8mm) .slot = sl_k_##name##__##avx2,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};

static const struct sl_kernels avx512_table = {
    .isa = "avx512",
#define SLUICE_KERNEL(slot, name, avx2, avx512, neon, dotprod, i8mm)                               \
    .slot = sl_k_##name##__##avx512,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};
#endif

#if defined(__aarch64__)
static const struct sl_kernels neon_table = {
    .isa = "neon",
#define SLUICE_KERNEL(slot, name, avx2, avx512, neon, dotprod, i8mm) .slot = sl_k_##name##__##neon,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};

static const struct sl_kernels dotprod_table = {
    .isa = "dotprod",
#define SLUICE_KERNEL(slot, name, avx2, avx512, neon, dotprod, i8mm)                               \
    .slot = sl_k_##name##__##dotprod,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};

static const struct sl_kernels i8mm_table = {
    .isa = "i8mm",
#define SLUICE_KERNEL(slot, name, avx2, avx512, neon, dotprod, i8mm) .slot = sl_k_##name##__##i8mm,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};
#endif

/* What this build has, slowest first, and what the processor must have for it. */
static const struct set {
    enum sl_isa isa;
    uint32_t needs; /* enum sl_cpu_flag, all of them */
    const struct sl_kernels *table;
} sets[] = {
    {SL_ISA_SCALAR, 0, &scalar_table},
#if defined(__x86_64__)
    {SL_ISA_AVX2, SL_CPU_AVX2, &avx2_table},
    {SL_ISA_AVX512, SL_CPU_AVX2 | SL_CPU_AVX512, &avx512_table},
#endif
#if defined(__aarch64__)
    {SL_ISA_NEON, SL_CPU_NEON, &neon_table},
    {SL_ISA_DOTPROD, SL_CPU_NEON | SL_CPU_DOTPROD, &dotprod_table},
    {SL_ISA_I8MM, SL_CPU_NEON | SL_CPU_DOTPROD | SL_CPU_I8MM, &i8mm_table},
#endif
};

enum sl_act_kind sl_k_act_kind(uint32_t type)
{
    const struct sl_type_info *info = sl_type_info(type);
    SLUICE_ASSERT(info != NULL);
    if (info->block_cols == 1) return SL_ACT_F32;
    if (type == SL_TYPE_Q2_K || type == SL_TYPE_Q3_K) return SL_ACT_Q8_256_ROUGH;
    if (info->block_cols != 32) return SL_ACT_Q8_256;
    const struct sl_sq_info *sq = sl_sq_info(type);
    return sq && sq->bits <= 4 ? SL_ACT_Q8_32_ROUGH : SL_ACT_Q8_32;
}

sluice_err sl_kernels_select(enum sl_isa isa, sluice_error *e, const struct sl_kernels **out)
{
    char names[64] = "";
    uint32_t flags = sl_cpu_flags();
    size_t n = 0;
    *out = NULL;
    for (size_t i = 0; i < SL_ARRAY_LEN(sets); i++) {
        if ((sets[i].needs & ~flags) != 0) continue;
        if (isa == SL_ISA_AUTO || isa == sets[i].isa) *out = sets[i].table;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n == 0 ? "" : ", ",
                              sets[i].table->isa);
    }
    if (*out != NULL) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_UNSUPPORTED,
                   "this machine or build lacks the instruction set asked for; it has: %s", names);
}
