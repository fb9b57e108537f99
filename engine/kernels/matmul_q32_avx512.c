/* Matrix times vectors for weights in blocks of 32, for AVX-512 with VNNI and VBMI.
 *
 * A block of sixteen rows is brought into the shape that the container's types have in the file: a
 * vector per four columns (a quad), with a lane per row; so are the scales. The bytes are
 * transposed as they lie there, still packed, and taken apart afterwards. No sum is ever taken
 * across lanes, and what is unpacked serves all activations.
 *
 * Codes become unsigned by a bias, with which the sums begin: -bias times the sum of the
 * activation's codes. Rows that are left over after the last sixteen go to the AVX2 variant. */
#include "engine/kernels/kernel_variants.h"
#include "engine/kernels/passes_avx512.h"
#include "formats/blocks.h"

/* Sixteen rows, stride bytes apart: quarter[i] points into row 4 * i, at the block at hand. */
struct rows16 {
    const uint8_t *quarter[4];
    uint64_t stride;
};

/* A block of them, unpacked. */
struct block16 {
    __m512i level[8]; /* unsigned bytes: columns 4i to 4i + 3 */
    __m512 d, m;
};

typedef void unpack_fn(const struct rows16 *r, __m512i table, struct block16 *out);

struct layout {
    unpack_fn *unpack;
    const int8_t *values; /* of the sixteen codes, or NULL */
    uint32_t block_bytes;
    int bias;
    bool offsets;   /* a second half-precision number follows the scale */
    uint32_t least; /* activations for which it pays; for fewer there is the AVX2 variant */
};

/* ---- sixteen rows ---------------------------------------------------------------------------- */

SL_INLINE const uint8_t *row_at(const struct rows16 *r, uint32_t row, uint32_t at)
{
    return r->quarter[row / 4] + row % 4 * r->stride + at;
}

/* Sixteen bytes of every row, from at on: out[i] gets bytes 4i to 4i + 3. */
SL_INLINE void transpose(const struct rows16 *r, uint32_t at, __m512i out[4])
{
    __m512i v[4];
    for (uint32_t i = 0; i < 4; i++)
        v[i] = join512(load_pair(row_at(r, i, at), row_at(r, 4 + i, at)),
                       load_pair(row_at(r, 8 + i, at), row_at(r, 12 + i, at)));
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

/* Two bytes of eight rows. */
SL_INLINE __m128i words8(const struct rows16 *r, uint32_t first, uint32_t at)
{
    __m128i a = _mm_setzero_si128(), b = a;
    a = _mm_insert_epi16(a, sl_load_u16(row_at(r, first, at)), 0);
    b = _mm_insert_epi16(b, sl_load_u16(row_at(r, first + 4, at)), 0);
    a = _mm_insert_epi16(a, sl_load_u16(row_at(r, first + 1, at)), 1);
    b = _mm_insert_epi16(b, sl_load_u16(row_at(r, first + 5, at)), 1);
    a = _mm_insert_epi16(a, sl_load_u16(row_at(r, first + 2, at)), 2);
    b = _mm_insert_epi16(b, sl_load_u16(row_at(r, first + 6, at)), 2);
    a = _mm_insert_epi16(a, sl_load_u16(row_at(r, first + 3, at)), 3);
    b = _mm_insert_epi16(b, sl_load_u16(row_at(r, first + 7, at)), 3);
    return _mm_unpacklo_epi64(a, b);
}

/* The half-precision numbers at offset at of each row, as floats. */
SL_INLINE __m512 halves16(const struct rows16 *r, uint32_t at)
{
    return _mm512_cvtph_ps(_mm256_setr_m128i(words8(r, 0, at), words8(r, 8, at)));
}

/* Four bytes of every row. */
SL_INLINE __m512i dwords16(const struct rows16 *r, uint32_t at)
{
    __m128i v[4];
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = _mm_cvtsi32_si128((int)sl_load_u32(row_at(r, 4 * i, at)));
        v[i] = _mm_insert_epi32(v[i], (int)sl_load_u32(row_at(r, 4 * i + 1, at)), 1);
        v[i] = _mm_insert_epi32(v[i], (int)sl_load_u32(row_at(r, 4 * i + 2, at)), 2);
        v[i] = _mm_insert_epi32(v[i], (int)sl_load_u32(row_at(r, 4 * i + 3, at)), 3);
    }
    return join512(_mm256_setr_m128i(v[0], v[1]), _mm256_setr_m128i(v[2], v[3]));
}

/* The first and the second half of four bytes. */
SL_INLINE void two_halves16(const struct rows16 *r, struct block16 *out)
{
    __m512i v = dwords16(r, 0);
    out->d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
    out->m = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
}

/* ---- the types ------------------------------------------------------------------------------- */

/* The low and the high four bits of the sixteen bytes from at on are columns 0 to 15 and 16 to 31;
 * what lies above the low four is still to be taken away. */
SL_INLINE void nibbles(const struct rows16 *r, uint32_t at, __m512i level[8])
{
    transpose(r, at, level);
    for (int i = 0; i < 4; i++) level[4 + i] = _mm512_srli_epi16(level[i], 4);
}

SL_INLINE void mask_nibbles(__m512i level[8])
{
    for (int i = 0; i < 8; i++) level[i] = _mm512_and_si512(level[i], _mm512_set1_epi8(15));
}

SL_INLINE void look_up(__m512i table, __m512i level[8])
{
    for (int i = 0; i < 8; i++) level[i] = _mm512_permutexvar_epi8(level[i], table);
}

/* Puts bit 4i + k of each lane of bits to bit 4 of byte k of level[i]; what it finds above the low
 * four bits is dropped. */
SL_INLINE void add_high_bits(__m512i bits, __m512i level[8])
{
    const __m512i low4 = _mm512_set1_epi8(15), five = _mm512_set1_epi8(31);
    for (int i = 0; i < 8; i++) {
        int first = 4 * i - 4; /* of the eight bits that byte 0 gets; they wrap around at 64 */
        __m512i from =
            _mm512_add_epi8(_mm512_set1_epi64(0x2322212003020100), _mm512_set1_epi8((char)first));
        __m512i high = _mm512_multishift_epi64_epi8(from, bits);
        level[i] = _mm512_and_si512(select512(low4, level[i], high), five);
    }
}

SL_INLINE void unpack_q8_0(const struct rows16 *r, __m512i table, struct block16 *out)
{
    (void)table;
    out->d = halves16(r, 0);
    transpose(r, 2, out->level);
    transpose(r, 18, out->level + 4);
    for (int i = 0; i < 8; i++)
        out->level[i] = _mm512_xor_si512(out->level[i], _mm512_set1_epi8(-128));
}

SL_INLINE void unpack_q4_0(const struct rows16 *r, __m512i table, struct block16 *out)
{
    (void)table;
    out->d = halves16(r, 0);
    nibbles(r, 2, out->level);
    mask_nibbles(out->level);
}

SL_INLINE void unpack_q4_1(const struct rows16 *r, __m512i table, struct block16 *out)
{
    (void)table;
    two_halves16(r, out);
    nibbles(r, 4, out->level);
    mask_nibbles(out->level);
}

SL_INLINE void unpack_q5_0(const struct rows16 *r, __m512i table, struct block16 *out)
{
    (void)table;
    out->d = halves16(r, 0);
    nibbles(r, 6, out->level);
    add_high_bits(dwords16(r, 2), out->level);
}

SL_INLINE void unpack_q5_1(const struct rows16 *r, __m512i table, struct block16 *out)
{
    (void)table;
    two_halves16(r, out);
    nibbles(r, 8, out->level);
    add_high_bits(dwords16(r, 4), out->level);
}

SL_INLINE void unpack_iq4_nl(const struct rows16 *r, __m512i table, struct block16 *out)
{
    out->d = halves16(r, 0);
    nibbles(r, 2, out->level);
    look_up(table, out->level);
}

/* The scale is sl_e8m0_half_to_f32 of the first byte. */
SL_INLINE void unpack_mxfp4(const struct rows16 *r, __m512i table, struct block16 *out)
{
    const __m512i one = _mm512_set1_epi32(1);
    uint8_t bytes[WIDE_ROWS];
    for (uint32_t i = 0; i < WIDE_ROWS; i++) bytes[i] = *row_at(r, i, 0);
    __m512i e = _mm512_cvtepu8_epi32(load128(bytes));
    __m512i d = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    d = _mm512_mask_sllv_epi32(d, _mm512_cmple_epi32_mask(e, one), _mm512_set1_epi32(0x00200000),
                               e);
    out->d = _mm512_castsi512_ps(d);
    nibbles(r, 1, out->level);
    look_up(table, out->level);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The block times one digit of an activation's: added to acc, a lane per row. */
SL_INLINE __m512 add_digit(const struct layout l, const struct block16 *w, struct sl_k_digit x,
                           uint64_t b, __m512 acc)
{
    const int8_t *q = x.q + 32 * b;
    const __m512i zero = _mm512_setzero_si512(), sums = spread512(x.sums + 2 * b);
    __m512i even = zero, odd = zero;
    if (l.bias) even = _mm512_dpwssd_epi32(zero, _mm512_set1_epi16((short)-l.bias), sums);
    for (int i = 0; i < 8; i += 2) {
        even = dot512(even, w->level[i], q + 4 * i);
        odd = dot512(odd, w->level[i + 1], q + 4 * i + 4);
    }
    __m512 isum = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)), dx = _mm512_set1_ps(x.d[b]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(w->d, dx), isum, acc);
    if (!l.offsets) return acc;
    __m512i xsum = _mm512_dpwssd_epi32(zero, _mm512_set1_epi16(1), sums);
    return _mm512_fmadd_ps(_mm512_mul_ps(w->m, dx), _mm512_cvtepi32_ps(xsum), acc);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

SL_INLINE struct rows16 rows16_at(const struct sl_k_matmul *m, uint32_t first)
{
    const uint8_t *w = (const uint8_t *)m->w + first * m->row_bytes;
    struct rows16 r = {.stride = m->row_bytes};
    for (uint32_t i = 0; i < 4; i++) r.quarter[i] = w + 4 * i * m->row_bytes;
    return r;
}

/* The block at hand; then the next one is. */
SL_INLINE void unpack_next(const struct layout l, struct rows16 *r, __m512i table,
                           struct block16 *out)
{
    l.unpack(r, table, out);
    for (uint32_t i = 0; i < 4; i++) r->quarter[i] += l.block_bytes;
}

/* Sixteen rows from first on times an activation; second, a constant: it may have second digits. */
SL_INLINE __m512 rows_times_one(const struct layout l, const struct sl_k_matmul *m, uint32_t first,
                                __m512i table, bool second)
{
    const struct sl_k_act *x = m->x;
    const struct sl_k_digit digit = {x->q, x->d, x->sums};
    struct rows16 r = rows16_at(m, first);
    struct next_rows next = next_rows(m, r.quarter[0]);
    __m512 acc = _mm512_setzero_ps();
    for (uint64_t b = 0; b < m->cols / 32; b++) {
        struct block16 w;
        prefetch_piece(&next, b, WIDE_ROWS * l.block_bytes);
        unpack_next(l, &r, table, &w);
        acc = add_digit(l, &w, digit, b, acc);
        if (second && has_second(x, b)) acc = add_digit(l, &w, x->second, b, acc);
    }
    return acc;
}

/* The same times the activations of a pass. */
SL_INLINE void rows_times(const struct layout l, const struct sl_k_matmul *m, uint32_t first,
                          __m512i table, const struct pass *p, __m512 *acc)
{
    const struct sl_k_act *x = p->x;
    uint64_t blocks = m->cols / 32, who[SECONDS_AHEAD] = {0};
    struct rows16 r = rows16_at(m, first);
    struct next_rows next = next_rows(m, r.quarter[0]);
    if (x != m->x) next.ahead = AHEAD_NOT; /* once is enough */
    for (uint32_t i = 0; i < p->n; i++) acc[i] = _mm512_setzero_ps();
    for (uint64_t b = 0; b < blocks; b++) {
        struct block16 w;
        prefetch_piece(&next, b, WIDE_ROWS * l.block_bytes);
        unpack_next(l, &r, table, &w);
        if (p->n_second > 0 && b % SECONDS_AHEAD == 0) find_seconds(p, b, blocks - b, who);
        for (uint32_t i = 0; i < p->n; i++)
            acc[i] = add_digit(l, &w, (struct sl_k_digit){x[i].q, x[i].d, x[i].sums}, b, acc[i]);
        for (uint64_t left = who[b % SECONDS_AHEAD]; left != 0; left &= left - 1) {
            int i = __builtin_ctzll(left);
            acc[i] = add_digit(l, &w, x[i].second, b, acc[i]);
        }
    }
}

SL_INLINE void rows_times_many(const struct layout l, const struct sl_k_matmul *m, uint32_t first,
                               __m512i table)
{
    __m512 acc[WIDE_TOKENS];
    for (uint32_t t = 0; t < m->n_tokens; t += WIDE_TOKENS) {
        struct pass p;
        begin_pass(m->x + t, m->n_tokens - t < WIDE_TOKENS ? m->n_tokens - t : WIDE_TOKENS, &p);
        rows_times(l, m, first, table, &p, acc);
        for (uint32_t i = 0; i < p.n; i++)
            _mm512_storeu_ps(m->y + (t + i) * m->y_stride + first, acc[i]);
    }
}

SL_INLINE void matmul(const struct layout l, sl_k_matmul_fn *avx2, const struct sl_k_matmul *m)
{
    if (m->n_tokens < l.least) {
        avx2(m);
        return;
    }
    SLUICE_ASSERT(m->rows >= 1 && m->y_stride >= m->rows);
    SLUICE_ASSERT(m->cols >= 1 && m->cols % 32 == 0);
    __m512i table = _mm512_setzero_si512();
    if (l.values) table = _mm512_broadcast_i32x4(load128(l.values));
    table = _mm512_add_epi8(table, _mm512_set1_epi8((char)l.bias));
    uint32_t whole = m->rows / WIDE_ROWS * WIDE_ROWS;
    for (uint32_t r = 0; r < whole; r += WIDE_ROWS)
        if (m->n_tokens > 1)
            rows_times_many(l, m, r, table);
        else if (m->x->second.d != NULL)
            _mm512_storeu_ps(m->y + r, rows_times_one(l, m, r, table, true));
        else
            _mm512_storeu_ps(m->y + r, rows_times_one(l, m, r, table, false));
    if (whole == m->rows) return;
    struct sl_k_matmul rest = *m;
    rest.w = (const uint8_t *)m->w + whole * m->row_bytes;
    rest.rows -= whole;
    rest.y += whole;
    avx2(&rest);
}

#define MATMUL(name, values, bytes, bias, offsets, least)                                          \
    void sl_k_matmul_##name##__avx512(const struct sl_k_matmul *m)                                 \
    {                                                                                              \
        matmul((struct layout){unpack_##name, values, bytes, bias, offsets, least},                \
               sl_k_matmul_##name##__avx2, m);                                                     \
    }

MATMUL(q8_0, NULL, SL_Q8_0_BYTES, 128, false, 2)
MATMUL(q4_0, NULL, SL_Q4_0_BYTES, 8, false, 1)
MATMUL(q4_1, NULL, SL_Q4_1_BYTES, 0, true, 1)
MATMUL(q5_0, NULL, SL_Q5_0_BYTES, 16, false, 1)
MATMUL(q5_1, NULL, SL_Q5_1_BYTES, 0, true, 1)
MATMUL(iq4_nl, sl_iq4_values, SL_IQ4_NL_BYTES, 128, false, 1)
MATMUL(mxfp4, sl_fp4_values, SL_MXFP4_BYTES, 12, false, 1)
