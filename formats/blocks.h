/* Blocks taken apart: the integers and scales that the bits of a quantized block stand for.
 *
 * This is where each block layout is written down, once (decode_legacy.c, decode_iq4.c,
 * decode_kquant.c). The decoders of tensor_type.h turn a block into floats, the scalar kernels
 * multiply its integers; both start here. The layouts are those of the GGUF format. Thread: pure.
 */
#ifndef SL_BLOCKS_H
#define SL_BLOCKS_H

#include <stdint.h>

/* 32 weights with one scale: weight i = d * q[i] + m. */
struct sl_block32 {
    float d;
    float m; /* -0 (which changes nothing when added) in types without an offset */
    int8_t q[32];
};

/* 256 weights with a scale, and perhaps a minimum, for every 16 (where the format has one for every
 * 32, both halves get it): weight i = (d * scale[i / 16]) * q[i] - dmin * min[i / 16]. */
struct sl_block256 {
    float d;
    float dmin; /* 0, with all of min, in types without minima */
    int8_t scale[16];
    uint8_t min[16]; /* 0..63 */
    int8_t q[256];
};

/* block: one whole block, any alignment and any content. */
typedef void sl_unpack32_fn(const uint8_t *block, struct sl_block32 *out);
typedef void sl_unpack256_fn(const uint8_t *block, struct sl_block256 *out);

sl_unpack32_fn sl_unpack_q8_0, sl_unpack_q4_0, sl_unpack_q4_1, sl_unpack_q5_0, sl_unpack_q5_1;
sl_unpack32_fn sl_unpack_iq4_nl, sl_unpack_mxfp4;
sl_unpack256_fn sl_unpack_q2_k, sl_unpack_q3_k, sl_unpack_q4_k, sl_unpack_q5_k, sl_unpack_q6_k;
sl_unpack256_fn sl_unpack_iq4_xs;

#define SL_Q8_0_BYTES 34
#define SL_Q4_0_BYTES 18
#define SL_Q4_1_BYTES 20
#define SL_Q5_0_BYTES 22
#define SL_Q5_1_BYTES 24
#define SL_IQ4_NL_BYTES 18
#define SL_MXFP4_BYTES 17
#define SL_Q2_K_BYTES 84
#define SL_Q3_K_BYTES 110
#define SL_Q4_K_BYTES 144
#define SL_Q5_K_BYTES 176
#define SL_Q6_K_BYTES 210
#define SL_IQ4_XS_BYTES 136

/* The values of the 4-bit codes of IQ4_NL and IQ4_XS, and, doubled, of the E2M1 codes of MXFP4. */
extern const int8_t sl_iq4_values[16];
extern const int8_t sl_fp4_values[16];

#endif
