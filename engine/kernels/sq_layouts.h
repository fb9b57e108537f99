/* The container's own weight types as constants that kernels are made of. formats/sq.c has the same
 * numbers for whoever learns the type while running; test_kernels holds both together, since the
 * scalar kernels go by those. */
#ifndef SL_SQ_LAYOUTS_H
#define SL_SQ_LAYOUTS_H

#include "engine/kernels/kernels.h"

struct layout {
    uint32_t bits, group;
    int base, step; /* offset number j is base + j * step */
};

/* Defines one function for each type by MATMUL(name, type, members of struct layout). */
#define SL_FOR_TYPES_SQ(MATMUL)                                                                    \
    MATMUL(sq2_32, SL_SQ2_32, 2, 32, 26, 3)                                                        \
    MATMUL(sq2_16, SL_SQ2_16, 2, 16, 26, 3)                                                        \
    MATMUL(sq3_32, SL_SQ3_32, 3, 32, 32, 2)                                                        \
    MATMUL(sq3_16, SL_SQ3_16, 3, 16, 32, 2)                                                        \
    MATMUL(sq4_32, SL_SQ4_32, 4, 32, 31, 2)                                                        \
    MATMUL(sq4_16, SL_SQ4_16, 4, 16, 31, 2)                                                        \
    MATMUL(sq5_32, SL_SQ5_32, 5, 32, 25, 2)                                                        \
    MATMUL(sq6_32, SL_SQ6_32, 6, 32, 29, 2)

#endif
