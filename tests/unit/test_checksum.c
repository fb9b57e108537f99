/* XXH3-64 against the published vectors of xxHash's own self-test (seed 0; each length takes
 * another path through the algorithm); every length up to past the block borders at every
 * alignment, in each variant; sensitivity to each bit. Prints the speed and judges none. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "formats/checksum.h"
#include "formats/checksum_variants.h"

#define SANITY_BYTES 4096

/* The buffer of the self-test: the high byte of a product that grows by one prime a step. */
static void fill_sanity(unsigned char *buf, size_t n)
{
    uint64_t state = 2654435761u;
    for (size_t i = 0; i < n; i++) {
        buf[i] = (unsigned char)(state >> 56);
        state *= 11400714785074694797u;
    }
}

static void test_xxh3__published_vectors__equal(void **state)
{
    (void)state;
    static const struct {
        size_t bytes;
        uint64_t sum;
    } cases[] = {
        {0, 0x2D06800538D394C2u},    {1, 0xC44BDFF4074EECDBu},    {6, 0x27B56A84CD2D7325u},
        {12, 0xA713DAF0DFBB77E7u},   {24, 0xA3FE70BF9D3510EBu},   {48, 0x397DA259ECBA1F11u},
        {80, 0xBCDEFBBB2C47C90Au},   {195, 0xCD94217EE362EC3Au},  {403, 0xCDEB804D65C6DEA4u},
        {512, 0x617E49599013CB6Bu},  {2048, 0xDD59E2C3A5F038E0u}, {2240, 0x6E73A90539CF2948u},
        {2367, 0xCB37AEB9E5D361EDu},
    };
    unsigned char buf[SANITY_BYTES];
    fill_sanity(buf, sizeof buf);
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++)
        assert_int_equal(sl_xxh3(buf, cases[i].bytes), cases[i].sum);
    assert_int_equal(sl_xxh3(NULL, 0), cases[0].sum);
}

/* The sum over the sums of every length at every alignment, as computed with Debian's libxxhash
 * 0.8.1, another build of the same definition. */
#define ALL_LENGTHS_SUM 0x73F9AC44556024CAu

static uint64_t sum_of_all(uint64_t (*hash)(const void *, uint64_t))
{
    static unsigned char buf[SANITY_BYTES];
    static uint64_t sums[SANITY_BYTES - 64];
    fill_sanity(buf, sizeof buf);
    for (size_t n = 0; n < SL_ARRAY_LEN(sums); n++) sums[n] = hash(buf + n % 64, n);
    return hash(sums, sizeof sums);
}

static void test_xxh3__every_length__equal_in_every_variant(void **state)
{
    (void)state;
    assert_int_equal(sum_of_all(sl_xxh3), ALL_LENGTHS_SUM);
    assert_int_equal(sum_of_all(sl_xxh3_plain.hash), ALL_LENGTHS_SUM);
#if defined(__x86_64__)
    if ((sl_cpu_flags() & SL_CPU_AVX2) != 0)
        assert_int_equal(sum_of_all(sl_xxh3_avx2.hash), ALL_LENGTHS_SUM);
#endif
}

static uint64_t streamed(const unsigned char *data, size_t n, size_t part)
{
    struct sl_xxh3_stream s;
    sl_xxh3_begin(&s);
    for (size_t at = 0; at < n; at += part) sl_xxh3_add(&s, data + at, sl_min_u64(part, n - at));
    uint64_t sum = sl_xxh3_end(&s);
    assert_int_equal(sl_xxh3_end(&s), sum);
    return sum;
}

static void test_stream__parts_of_any_size__the_sum_of_the_whole(void **state)
{
    (void)state;
    static const size_t parts[] = {1, 7, 64, 255, 256, 257, 1000, SANITY_BYTES};
    unsigned char buf[SANITY_BYTES];
    fill_sanity(buf, sizeof buf);
    for (size_t i = 0; i < SL_ARRAY_LEN(parts); i++) {
        for (size_t n = 0; n <= sizeof buf; n += n < 1100 ? 1 : 97)
            assert_int_equal(streamed(buf, n, parts[i]), sl_xxh3(buf, n));
    }
}

/* A stream that one variant began may be ended by the other. */
static void test_stream__variants_mixed__the_same_sum(void **state)
{
    (void)state;
    const struct sl_xxh3_variant *v[2] = {&sl_xxh3_plain, &sl_xxh3_plain};
#if defined(__x86_64__)
    if ((sl_cpu_flags() & SL_CPU_AVX2) != 0) v[1] = &sl_xxh3_avx2;
#endif
    unsigned char buf[SANITY_BYTES];
    struct sl_xxh3_stream s;
    fill_sanity(buf, sizeof buf);
    sl_xxh3_begin(&s);
    for (size_t at = 0; at < sizeof buf; at += 512) v[at / 512 % 2]->add(&s, buf + at, 512);
    assert_int_equal(v[0]->end(&s), sl_xxh3(buf, sizeof buf));
    assert_int_equal(v[1]->end(&s), sl_xxh3(buf, sizeof buf));
}

static void test_xxh3__any_single_bit__another_sum(void **state)
{
    (void)state;
    unsigned char buf[300];
    fill_sanity(buf, sizeof buf);
    uint64_t sum = sl_xxh3(buf, sizeof buf);
    for (size_t bit = 0; bit < sizeof buf * 8; bit++) {
        buf[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(sl_xxh3(buf, sizeof buf), sum);
        buf[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void time_one(const char *name, uint64_t (*hash)(const void *, uint64_t))
{
    enum { BLOCK = 16384, ROUNDS = 4096 };
    static unsigned char buf[BLOCK];
    fill_sanity(buf, sizeof buf);
    uint64_t start = sl_now_ns();
    for (int i = 0; i < ROUNDS; i++) buf[0] ^= (unsigned char)hash(buf, BLOCK);
    double seconds = (double)(sl_now_ns() - start) * 1e-9;
    printf("%-6s %.1f GB/s (16 KiB blocks from cache)\n", name,
           BLOCK * (double)ROUNDS / seconds / 1e9);
}

static uint64_t hash_in_stream(const void *data, uint64_t bytes)
{
    struct sl_xxh3_stream s;
    sl_xxh3_begin(&s);
    sl_xxh3_add(&s, data, bytes);
    return sl_xxh3_end(&s);
}

static void test_xxh3__speed__printed(void **state)
{
    (void)state;
    time_one("chosen", sl_xxh3);
    time_one("plain", sl_xxh3_plain.hash);
    time_one("stream", hash_in_stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xxh3__published_vectors__equal),
        cmocka_unit_test(test_xxh3__every_length__equal_in_every_variant),
        cmocka_unit_test(test_stream__parts_of_any_size__the_sum_of_the_whole),
        cmocka_unit_test(test_stream__variants_mixed__the_same_sum),
        cmocka_unit_test(test_xxh3__any_single_bit__another_sum),
        cmocka_unit_test(test_xxh3__speed__printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
