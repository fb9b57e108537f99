/* Declarations of all kernel variants, taken from kernels.def; each has the type of its slot in
 * struct sl_kernels. For the files that define kernels and for select.c; everybody else goes
 * through the table. */
#ifndef SL_KERNEL_VARIANTS_H
#define SL_KERNEL_VARIANTS_H

#include "engine/kernels/kernels.h"

#define SLUICE_KERNEL(slot, name, avx2, avx512, neon, dotprod, i8mm)                               \
    __typeof__(*((struct sl_kernels *)0)->slot) sl_k_##name##__scalar, sl_k_##name##__##avx2,      \
        sl_k_##name##__##avx512, sl_k_##name##__##neon, sl_k_##name##__##dotprod,                  \
        sl_k_##name##__##i8mm;
#include "engine/kernels/kernels.def"
#undef SLUICE_KERNEL

#endif
