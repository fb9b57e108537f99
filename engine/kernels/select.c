/* Chooses the kernel table. The tables are constant; choosing copies a pointer. */
#include "engine/kernels/kernel_variants.h"

static const struct sl_kernels scalar_table = {
    .isa = "scalar",
#define SLUICE_KERNEL(slot, name, avx2) .slot = sl_k_##name##__scalar,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};

#if defined(__x86_64__)
static const struct sl_kernels avx2_table = {
    .isa = "avx2",
#define SLUICE_KERNEL(slot, name, avx2) .slot = sl_k_##name##__##avx2,
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL
};
#endif

enum sl_act_kind sl_k_act_kind(uint32_t type)
{
    const struct sl_type_info *info = sl_type_info(type);
    SLUICE_ASSERT(info != NULL);
    if (info->block_cols == 1) return SL_ACT_F32;
    return info->block_cols == 32 ? SL_ACT_Q8_32 : SL_ACT_Q8_256;
}

/* NULL where this build or this machine has no such instruction set. */
static const struct sl_kernels *table_of(enum sl_isa isa)
{
    if (isa == SL_ISA_SCALAR) return &scalar_table;
#if defined(__x86_64__)
    if (isa == SL_ISA_AVX2 && (sl_cpu_flags() & SL_CPU_AVX2) != 0) return &avx2_table;
#endif
    return NULL;
}

sluice_err sl_kernels_select(enum sl_isa isa, sluice_error *e, const struct sl_kernels **out)
{
    const struct sl_kernels *best = table_of(SL_ISA_AVX2);
    if (best == NULL) best = table_of(SL_ISA_SCALAR);
    *out = isa == SL_ISA_AUTO ? best : table_of(isa);
    if (*out != NULL) return SLUICE_OK;
    return sl_fail(e, SLUICE_E_UNSUPPORTED,
                   "this machine or build lacks the instruction set asked for; it has: scalar%s%s",
                   best == &scalar_table ? "" : ", ", best == &scalar_table ? "" : best->isa);
}
