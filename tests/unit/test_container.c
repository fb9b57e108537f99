/* Containers, written and read again: metadata of every kind and tensors of several types come back
 * as they were, whole or in parts; every record has the checksum of its bytes; every changed bit
 * and every length is found; an index that lies under a right checksum is refused; every allocation
 * may fail. */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/support/container_case.h"

#define INDEX_ROOM 65536

/* ---- round trips -----------------------------------------------------------------------------
 */

static void collect(void *user, const void *data, size_t bytes) { gb_bytes(user, data, bytes); }

static void assert_same_metadata(const struct sl_gguf *a, const struct sl_gguf *b)
{
    struct gguf_build x = {0}, y = {0};
    struct sl_mp_writer wx = {collect, &x}, wy = {collect, &y};

    sl_cn_meta_encode(&a->head.meta, &wx);
    sl_cn_meta_encode(&b->head.meta, &wy);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.p, y.p, x.n);
    gb_end(&x);
    gb_end(&y);
}

static void assert_same_tensors(const struct sl_gguf *g)
{
    assert_int_equal(sl_gguf_n_tensors(g), cc.plan.n_tensors);
    for (uint32_t i = 0; i < cc.plan.n_tensors; i++) {
        const struct sl_gguf_tensor *t = sl_gguf_find_tensor(g, cc.names[i]);

        assert_ptr_equal(t, sl_gguf_tensor(g, i));
        assert_int_equal(t->type, cc.tensors[i].type);
        assert_int_equal(t->n_dims, cc.tensors[i].n_dims);
        assert_memory_equal(t->dims, cc.tensors[i].dims, sizeof t->dims);
        assert_int_equal(t->bytes, case_tensor_bytes(i));
        unsigned char *data = malloc(t->bytes);
        assert_non_null(data);
        assert_int_equal(
            sl_file_read_at(sl_gguf_file(g, t->shard), t->offset, data, t->bytes, &error),
            SLUICE_OK);
        for (uint64_t k = 0; k < t->bytes; k++) {
            if (data[k] != case_byte(i, k)) fail_msg("byte %u of tensor %u", (unsigned)k, i);
        }
        free(data);
    }
}

static void test_open__what_was_written__the_same_model(void **state)
{
    uint32_t v = 0;
    char shown[64];
    (void)state;
    case_write_ok();
    struct sl_container *c = case_open(cc.path);
    struct sl_gguf *g = sl_container_model(c);
    assert_same_metadata(g, cc.meta);
    assert_same_tensors(g);
    assert_int_equal(sl_gguf_u32(g, "k.u32", &v, &error), SLUICE_OK);
    assert_int_equal(v, UINT32_MAX);
    assert_false(sl_gguf_has(g, "split.count"));
    assert_int_equal(sl_gguf_n_keys(g), sl_gguf_n_keys(cc.meta) - 2);
    assert_string_equal(sl_gguf_key_show(g, 1, shown, sizeof shown), "255");
    assert_int_equal(sl_gguf_key_kind(g, 1), SL_GGUF_U8);
    assert_str(sl_gguf_recipe(sl_container_model(c)), "experts=Q4_K rest=as they are");
    assert_true(sl_gguf_source(sl_container_model(c)) == cc.plan.source);
    assert_int_equal(sl_container_verify(c, &budget, NULL, NULL, &error), SLUICE_OK);
    sl_container_close(c);
    case_clean();
}

static void test_open__no_metadata_no_tensors__empty_model(void **state)
{
    struct gguf_build b;
    (void)state;
    gb_begin(&b, 3);
    struct sl_gguf *empty = open_built(&b);
    cc.plan.meta = empty;
    cc.plan.n_tensors = 0;
    cc.plan.recipe = SL_STR("");
    case_write_ok();
    assert_int_equal(case_verify(cc.path), SLUICE_OK);
    struct sl_container *c = case_open(cc.path);
    assert_int_equal(sl_container_n_records(c), 0);
    assert_int_equal(sl_gguf_n_tensors(sl_container_model(c)), 0);
    assert_int_equal(sl_file_bytes(sl_gguf_file(sl_container_model(c), 0)), 2 * SL_CN_ALIGN);
    sl_container_close(c);
    sl_gguf_close(empty);
    gb_end(&b);
    case_clean();
}

static void test_take_model__container_closed__the_model_lives(void **state)
{
    (void)state;
    case_write_ok();
    struct sl_container *c = case_open(cc.path);
    struct sl_gguf *g = sl_container_take_model(c);
    assert_null(sl_container_model(c));
    sl_container_close(c);
    assert_same_tensors(g);
    sl_gguf_drop_metadata(g);
    assert_false(sl_gguf_has(g, "k.u32"));
    assert_same_tensors(g);
    sl_gguf_close(g);
    case_clean();
}

static bool probe(void)
{
    bool container;
    assert_int_equal(sl_container_probe(cc.path, &budget, &error, &container), SLUICE_OK);
    return container;
}

static void test_probe__container_or_not__told_apart(void **state)
{
    bool container = true;
    (void)state;
    assert_int_equal(sl_container_probe(cc.path, &budget, &error, &container), SLUICE_E_NOT_FOUND);
    assert_false(container);
    case_put(cc.path, "SLUIC", 5);
    assert_false(probe());
    assert_true(gb_write(&cc.gguf, cc.path));
    assert_false(probe());
    unlink(cc.path);
    case_write_ok();
    assert_true(probe());
    case_clean();
}

/* ---- records ---------------------------------------------------------------------------------
 */

static void test_records__each__aligned_and_with_the_sum_of_its_bytes(void **state)
{
    uint64_t experts = 0;
    (void)state;
    case_write_ok();
    struct case_bytes all = case_read(cc.path);
    struct sl_container *c = case_open(cc.path);
    for (uint64_t i = 0; i < sl_container_n_records(c); i++) {
        const struct sl_container_record *r = sl_container_record(c, i);

        assert_int_equal(r->offset % SL_CN_ALIGN, 0);
        assert_int_equal(r->bytes % SL_CN_ALIGN, 0);
        assert_true(r->sum == sl_xxh3(all.p + r->offset, r->bytes));
        assert_ptr_equal(sl_gguf_record(sl_container_model(c), 0, r->offset), r);
        assert_ptr_equal(sl_gguf_record(sl_container_model(c), 0, r->offset + r->bytes - 1), r);
        if (r->layer >= 0) {
            assert_int_equal(r->layer, experts / CASE_EXPERTS);
            assert_int_equal(r->expert, experts++ % CASE_EXPERTS);
        }
    }
    assert_int_equal(experts, CASE_LAYERS * CASE_EXPERTS);
    assert_null(sl_gguf_record(sl_container_model(c), 0, SL_CN_HEADER_BYTES - 1));
    assert_null(sl_gguf_record(sl_container_model(c), 0, all.n - 1));
    assert_null(sl_gguf_record(sl_container_model(c), 1, SL_CN_HEADER_BYTES));
    sl_container_close(c);
    free(all.p);
    case_clean();
}

static void test_records__parts_of_an_expert__side_by_side_in_one(void **state)
{
    (void)state;
    case_write_ok();
    struct sl_container *c = case_open(cc.path);
    struct sl_gguf *g = sl_container_model(c);
    for (uint32_t i = 3; i < cc.plan.n_tensors; i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor(g, i);
        const struct sl_container_record *r =
            sl_gguf_record(sl_container_model(c), t->shard, t->offset);

        assert_non_null(r);
        assert_int_equal(r->layer, cc.tensors[i].layer);
        assert_int_equal(r->expert, cc.tensors[i].expert);
        assert_int_equal(t->offset % SL_CN_TENSOR_ALIGN, 0);
        assert_true(t->offset + t->bytes <= r->offset + r->bytes);
        if (i % 3 == 0) assert_int_equal(t->offset, r->offset);
    }
    sl_container_close(c);
    case_clean();
}

/* docs/FORMAT.md, read by hand. */
static void test_header__a_container__the_bytes_of_the_specification(void **state)
{
    (void)state;
    case_write_ok();
    struct case_bytes all = case_read(cc.path);
    assert_memory_equal(all.p, "SLUIC\r\n\x1A\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 24);
    assert_int_equal(sl_gg_load_u64(all.p + 24), all.n);
    assert_int_equal(sl_gg_load_u64(all.p + 32), all.n);
    uint64_t at = sl_gg_load_u64(all.p + 40), bytes = sl_gg_load_u64(all.p + 48);
    assert_int_equal((at + bytes + 16383) / 16384 * 16384, all.n);
    assert_true(sl_gg_load_u64(all.p + 56) == sl_xxh3(all.p + at, all.n - at));
    assert_true(sl_gg_load_u64(all.p + 16376) == sl_xxh3(all.p, 16376));
    assert_memory_equal(all.p + at, "\x86\xA8metadata", 10);
    free(all.p);
    case_clean();
}

/* ---- parts -----------------------------------------------------------------------------------
 */

static void test_parts__any_of_them_opened__the_same_model(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    case_write_ok();
    uint32_t n = case_n_parts();
    assert_true(n > 2);
    for (uint32_t i = 0; i < n; i++) {
        struct sl_container *c = case_open(case_part(i, n, ""));
        struct sl_gguf *g = sl_container_model(c);

        assert_int_equal(sl_gguf_n_files(g), n);
        assert_true(sl_file_bytes(sl_gguf_file(g, i)) < CASE_SMALL_PART);
        assert_same_metadata(g, cc.meta);
        assert_same_tensors(g);
        assert_int_equal(sl_container_verify(c, &budget, NULL, NULL, &error), SLUICE_OK);
        sl_container_close(c);
    }
    case_clean();
}

static void test_parts__one_missing__named(void **state)
{
    struct sl_container *c;
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    case_write_ok();
    uint32_t n = case_n_parts();
    unlink(case_part(1, n, ""));
    char first[CASE_PATH_BYTES + 32];
    snprintf(first, sizeof first, "%s", case_part(0, n, ""));
    assert_int_equal(sl_container_open(first, &budget, &error, &c), SLUICE_E_NOT_FOUND);
    assert_null(c);
    assert_mentions("m-00002-of-0000");
    assert_mentions("part 2 of ");
    assert_mentions("keep the names that they were written with");
    case_clean();
}

/* A GGUF that says 7 where it is yes or no is damaged, and a container of it would be as well. */
static void test_write__truth_value_of_seven__refused(void **state)
{
    (void)state;
    struct gguf_build odd;
    gb_begin(&odd, 3);
    gb_kv_bool(&odd, "k.bool", true);
    odd.p[odd.n - 1] = 7;
    struct sl_gguf *meta = open_built(&odd);
    cc.plan.meta = meta;
    assert_int_equal(case_write(), SLUICE_E_FORMAT);
    assert_mentions("the model says 7 for 'k.bool'");
    cc.plan.meta = cc.meta;
    sl_gguf_close(meta);
    gb_end(&odd);
}

static void test_parts__of_two_containers__refused(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    case_write_ok();
    uint32_t n = case_n_parts();
    struct case_bytes other = case_read(case_part(1, n, ""));
    case_clean();
    cc.plan.source++;
    case_write_ok();
    assert_int_equal(case_n_parts(), n);
    case_put(case_part(1, n, ""), other.p, other.n);
    assert_int_equal(case_verify(case_part(0, n, "")), SLUICE_E_FORMAT);
    assert_mentions("mixed");
    free(other.p);
    case_clean();
}

static void test_parts__too_small_for_a_tensor__refused_by_name(void **state)
{
    (void)state;
    cc.plan.part_bytes = 5 * SL_CN_ALIGN;
    assert_int_equal(case_write(), SLUICE_E_ARG);
    assert_mentions("resident.1.weight");
    cc.plan.part_bytes = 100;
    assert_int_equal(case_write(), SLUICE_E_ARG);
    assert_false(case_exists(case_part(0, 1, ".journal")));
}

static void test_parts__every_size__reads_back(void **state)
{
    (void)state;
    for (uint64_t blocks = 6; blocks <= 24; blocks++) {
        cc.plan.part_bytes = blocks * SL_CN_ALIGN + 1;
        case_write_ok();
        assert_int_equal(case_verify(case_part(0, case_n_parts(), "")), SLUICE_OK);
        case_clean();
    }
}

/* ---- damage ----------------------------------------------------------------------------------
 */

/* Fewer and smaller tensors, so that every bit can be tried. */
static void small_case(void)
{
    cc.plan.n_tensors = 0;
    case_tensor(SL_TYPE_F32, 40, 1, -1, -1);
    case_tensor(SL_TYPE_Q8_0, 32, 3, 0, 0);
    case_write_ok();
}

static void flip(FILE *f, const struct case_bytes *all, size_t at, unsigned bit)
{
    unsigned char changed = all->p[at] ^ (unsigned char)(1u << bit);

    assert_int_equal(pwrite(fileno(f), &changed, 1, (off_t)at), 1);
    sluice_err err = case_verify(cc.path);
    if (err != SLUICE_E_CORRUPT && err != SLUICE_E_VERSION && err != SLUICE_E_FORMAT)
        fail_msg("bit %u of byte %u: %s", bit, (unsigned)at, sl_err_name(err));
    assert_int_equal(error.code, err);
    assert_int_equal(pwrite(fileno(f), &all->p[at], 1, (off_t)at), 1);
}

/* Every bit of every byte that is not 0, and one of every seventh that is. */
static void test_verify__any_bit_flipped__found(void **state)
{
    (void)state;
    small_case();
    struct case_bytes all = case_read(cc.path);
    FILE *f = fopen(cc.path, "r+b");
    assert_non_null(f);
    for (size_t at = 0; at < all.n; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            if (all.p[at] != 0 || (at % 7 == 0 && bit == at % 8)) flip(f, &all, at, bit);
        }
    }
    assert_int_equal(case_verify(cc.path), SLUICE_OK);
    fclose(f);
    free(all.p);
    case_clean();
}

static void test_verify__an_expert_damaged__named(void **state)
{
    (void)state;
    case_write_ok();
    struct case_bytes all = case_read(cc.path);
    struct sl_container *c = case_open(cc.path);
    const struct sl_container_record *r = sl_container_record(c, sl_container_n_records(c) - 2);
    uint64_t offset = r->offset;
    all.p[offset + r->bytes - 1] ^= 1; /* its padding */
    sl_container_close(c);
    case_put(cc.path, all.p, all.n);
    assert_int_equal(case_verify(cc.path), SLUICE_E_CORRUPT);
    assert_mentions("expert 1 of layer 1");
    assert_mentions("m.sluice");
    assert_int_equal(error.layer, 1);
    assert_int_equal(error.expert, 1);
    assert_int_equal(error.file_offset, offset);
    free(all.p);
    case_clean();
}

static void test_open__every_length__refused(void **state)
{
    (void)state;
    small_case();
    struct case_bytes all = case_read(cc.path);
    for (size_t n = all.n; n-- > 0;) {
        struct sl_container *c;

        assert_int_equal(truncate(cc.path, (off_t)n), 0);
        assert_int_equal(sl_container_open(cc.path, &budget, &error, &c), SLUICE_E_TRUNCATED);
        assert_null(c);
    }
    assert_mentions("incomplete");
    for (size_t more = 1; more < 4; more++) {
        case_put(cc.path, all.p, all.n);
        assert_int_equal(truncate(cc.path, (off_t)(all.n + more)), 0);
        assert_int_equal(case_verify(cc.path), SLUICE_E_FORMAT);
    }
    free(all.p);
    case_clean();
}

static void test_open__last_part_cut__named(void **state)
{
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    case_write_ok();
    uint32_t n = case_n_parts();
    assert_int_equal(truncate(case_part(n - 1, n, ""), SL_CN_ALIGN + 5), 0);
    assert_int_equal(case_verify(case_part(0, n, "")), SLUICE_E_TRUNCATED);
    assert_mentions("file is 16389 bytes");
    case_clean();
}

static int half_way(void *user, uint64_t done, uint64_t total)
{
    uint64_t *last = user;

    assert_true(done > *last && done <= total);
    *last = done;
    return done > total / 2;
}

static void test_verify__progress_says_no__cancelled(void **state)
{
    uint64_t last = 0;
    (void)state;
    case_write_ok();
    struct sl_container *c = case_open(cc.path);
    assert_int_equal(sl_container_verify(c, &budget, half_way, &last, &error), SLUICE_E_CANCELLED);
    assert_mentions("cancelled");
    sl_container_close(c);
    case_clean();
}

/* ---- headers and indexes that lie ------------------------------------------------------------
 */

static void put_header(struct case_bytes *all)
{
    sl_cn_put(all->p + 16376, sl_xxh3(all->p, 16376), 8);
    case_put(cc.path, all->p, all->n);
}

static void test_open__newer_version__refused_with_a_sentence(void **state)
{
    (void)state;
    small_case();
    struct case_bytes all = case_read(cc.path);
    all.p[8] = 2;
    put_header(&all);
    assert_int_equal(case_verify(cc.path), SLUICE_E_VERSION);
    assert_mentions("version 2");
    assert_mentions("newer Sluice");
    free(all.p);
    case_clean();
}

static void test_open__header_of_zeros__unfinished(void **state)
{
    (void)state;
    small_case();
    struct case_bytes all = case_read(cc.path);
    memset(all.p, 0, SL_CN_HEADER_BYTES);
    case_put(cc.path, all.p, all.n);
    assert_int_equal(case_verify(cc.path), SLUICE_E_TRUNCATED);
    assert_mentions("not finished");
    free(all.p);
    case_clean();
}

static void test_open__header_that_contradicts_itself__refused(void **state)
{
    static const struct {
        uint32_t at, bytes;
        uint64_t v;
    } lies[] = {
        {12, 4, 0},
        {12, 4, 1025},
        {12, 4, 2},
        {16, 4, 1},
        {20, 4, 1},
        {24, 8, 16384},
        {24, 8, 0},
        {24, 8, 65537},
        {32, 8, 16384},
        {32, 8, 1},
        {32, 8, UINT64_MAX},
        {40, 8, 0},
        {40, 8, 16385},
        {40, 8, 32768},
        {40, 8, UINT64_MAX},
        {40, 8, UINT64_MAX - 16383},
        {48, 8, 0},
        {48, 8, 40000},
        {48, 8, UINT64_MAX},
        {64, 8, 1},
        {16368, 8, 1ull << 63},
    };
    (void)state;
    small_case();
    struct case_bytes all = case_read(cc.path);
    for (size_t i = 0; i < SL_ARRAY_LEN(lies); i++) {
        unsigned char before[8];

        memcpy(before, all.p + lies[i].at, 8);
        sl_cn_put(all.p + lies[i].at, lies[i].v, lies[i].bytes);
        put_header(&all);
        sluice_err err = case_verify(cc.path);
        if (err != SLUICE_E_FORMAT && err != SLUICE_E_NOT_FOUND)
            fail_msg("lie %u: %s", (unsigned)i, sl_err_name(err));
        memcpy(all.p + lies[i].at, before, 8);
    }
    free(all.p);
    case_clean();
}

/* Puts other bytes in the place of the index of the container at cc.path. */
static sluice_err with_index(const unsigned char *index, size_t n)
{
    struct case_bytes all = case_read(cc.path);
    uint64_t at = sl_gg_load_u64(all.p + 40);
    size_t padded = (n + SL_CN_ALIGN - 1) / SL_CN_ALIGN * SL_CN_ALIGN;
    unsigned char *file = calloc(1, at + padded);

    assert_non_null(file);
    memcpy(file, all.p, at);
    memcpy(file + at, index, n);
    struct sl_cn_header h = {.version = SL_CN_VERSION,
                             .n_parts = 1,
                             .file_bytes = at + padded,
                             .total_bytes = at + padded,
                             .index_offset = at,
                             .index_bytes = n,
                             .index_sum = sl_xxh3(file + at, padded)};
    sl_cn_header_encode(&h, file);
    case_put(cc.path, file, at + padded);
    sluice_err err = case_verify(cc.path);
    case_put(cc.path, all.p, all.n);
    free(file);
    free(all.p);
    return err;
}

static void test_records__range_of_a_tensor__widened_to_sheets_and_compared(void **state)
{
    (void)state;
    case_write_ok();
    struct sl_container *c = case_open(cc.path);
    const struct sl_gguf *g = sl_container_model(c);
    const struct sl_gguf_tensor *t = sl_gguf_find_tensor(g, "resident.1.weight");
    struct case_bytes all = case_read(cc.path);
    struct sl_range row = {t->offset + t->bytes - 68, 68}, whole = sl_gguf_widen(g, 0, row);
    assert_true(sl_gguf_has_records(g));
    assert_int_equal(whole.offset % SL_CN_ALIGN, 0);
    assert_true(whole.offset <= row.offset && row.offset + 68 <= whole.offset + whole.bytes);
    assert_true(whole.bytes <= 68 + 2 * SL_SHEET_BYTES);
    assert_int_equal(sl_gguf_check(g, 0, whole, all.p + whole.offset, &error), SLUICE_OK);
    for (uint64_t bit = 0; bit < 8 * whole.bytes; bit += 4099) {
        all.p[whole.offset + bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(sl_gguf_check(g, 0, whole, all.p + whole.offset, &error),
                         SLUICE_E_CORRUPT);
        all.p[whole.offset + bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    struct sl_range header = {0, 64}, same = sl_gguf_widen(g, 0, header);
    assert_int_equal(same.offset, 0);
    assert_int_equal(same.bytes, 64);
    free(all.p);
    sl_container_close(c);
    case_clean();
}

static void test_gguf_open__container__the_model_and_its_records(void **state)
{
    struct sl_gguf *g;
    (void)state;
    case_write_ok();
    assert_int_equal(sl_gguf_open(cc.path, &budget, &error, &g), SLUICE_OK);
    const struct sl_gguf_tensor *t = sl_gguf_find_tensor(g, "blk.1.ffn_up.1.weight");
    const struct sl_container_record *r = sl_gguf_record(g, t->shard, t->offset);
    assert_non_null(r);
    assert_int_equal(r->layer, 1);
    assert_int_equal(r->expert, 1);
    sl_gguf_close(g);
    case_clean();
}

static sluice_err with_layout(const struct sl_cn_layout *l)
{
    struct gguf_build b = {0};
    struct sl_mp_writer w = {collect, &b};

    sl_cn_index_encode(&l->ix, &cc.meta->head.meta, l->tensors, cc.plan.n_tensors, &w);
    sluice_err err = with_index(b.p, b.n);
    gb_end(&b);
    return err;
}

/* With the field changed opening and verifying must give what is wanted. */
#define LIE(field, v, wanted)                                                                      \
    do {                                                                                           \
        const uint64_t before = (uint64_t)(field);                                                 \
        (field) = (v);                                                                             \
        assert_int_equal(with_layout(&l), wanted);                                                 \
        (field) = before;                                                                          \
    } while (0)

static void test_open__index_that_lies__refused(void **state)
{
    struct sl_cn_layout l;
    (void)state;
    case_write_ok();
    assert_int_equal(sl_cn_layout_make(&l, &cc.plan, cc.path, &budget, &error), SLUICE_OK);
    struct case_bytes all = case_read(cc.path);
    for (uint64_t i = 0; i < l.ix.n_records; i++)
        l.ix.records[i].sum = sl_xxh3(all.p + l.ix.records[i].offset, l.ix.records[i].bytes);
    free(all.p);
    assert_int_equal(with_layout(&l), SLUICE_OK);
    struct sl_container_record *x = &l.ix.records[l.ix.n_sheets];
    LIE(x[0].sum, 5, SLUICE_E_CORRUPT);
    LIE(x[0].layer, 1, SLUICE_E_FORMAT);
    LIE(x[1].expert, 0, SLUICE_E_FORMAT);
    LIE(x[0].layer, SL_LAYERS_MAX, SLUICE_E_FORMAT);
    LIE(x[0].expert, SL_EXPERTS_MAX, SLUICE_E_FORMAT);
    LIE(x[0].offset, x[0].offset + SL_CN_ALIGN, SLUICE_E_FORMAT);
    LIE(x[0].bytes, x[0].bytes + SL_CN_ALIGN, SLUICE_E_FORMAT);
    LIE(x[0].bytes, 0, SLUICE_E_FORMAT);
    LIE(x[0].part, 1, SLUICE_E_FORMAT);
    LIE(l.ix.segments[0].bytes, l.ix.segments[0].bytes + SL_CN_ALIGN, SLUICE_E_FORMAT);
    LIE(l.ix.segments[0].offset, 0, SLUICE_E_FORMAT);
    LIE(l.ix.segments[0].n_records, l.ix.segments[0].n_records - 1, SLUICE_E_FORMAT);
    LIE(l.ix.n_records, l.ix.n_records - 1, SLUICE_E_FORMAT);
    LIE(l.tensors[0].type, 1000, SLUICE_E_UNSUPPORTED);
    LIE(l.tensors[0].n_dims, 0, SLUICE_E_FORMAT);
    LIE(l.tensors[0].dims[0], 0, SLUICE_E_FORMAT);
    LIE(l.tensors[0].dims[0], (uint64_t)1 << 62, SLUICE_E_FORMAT);
    LIE(l.tensors[0].bytes, 1, SLUICE_E_FORMAT);
    LIE(l.tensors[0].offset, 0, SLUICE_E_FORMAT);
    LIE(l.tensors[0].offset, l.tensors[0].offset + 4, SLUICE_E_FORMAT);
    LIE(l.tensors[1].offset, l.tensors[0].offset, SLUICE_E_FORMAT);
    LIE(l.tensors[2].offset, x[0].offset - 64, SLUICE_E_FORMAT);
    LIE(l.tensors[3].shard, 1, SLUICE_E_FORMAT);
    LIE(l.tensors[4].offset, x[1].offset, SLUICE_E_FORMAT);
    LIE(l.tensors[1].name.n, l.tensors[1].name.n - 7, SLUICE_OK);
    LIE(l.tensors[3].name.n, l.tensors[3].name.n - 1, SLUICE_E_FORMAT); /* no expert's any more */
    LIE(l.tensors[1].name.n, 0, SLUICE_E_FORMAT);
    struct sl_str own = l.tensors[1].name;
    l.tensors[1].name = l.tensors[0].name;
    assert_int_equal(with_layout(&l), SLUICE_E_FORMAT);
    assert_mentions("twice");
    l.tensors[1].name = own;
    assert_int_equal(with_layout(&l), SLUICE_OK);
    sl_cn_layout_deinit(&l);
    case_clean();
}

static void test_open__index_cut_or_longer__refused(void **state)
{
    (void)state;
    small_case();
    struct case_bytes all = case_read(cc.path);
    uint64_t at = sl_gg_load_u64(all.p + 40), n = sl_gg_load_u64(all.p + 48);
    for (uint64_t length = 1; length < n; length++)
        assert_int_equal(with_index(all.p + at, length), SLUICE_E_FORMAT);
    assert_int_equal(with_index(all.p + at, n), SLUICE_OK);
    assert_int_equal(with_index(all.p + at, n + 1), SLUICE_E_FORMAT);
    free(all.p);
    case_clean();
}

static void test_open__keys_of_later_revisions__passed_over(void **state)
{
    static const char later[] =
        "\xA5later\x92\x81\x01\xC0\xC7\x01\x05\x00\xA1x\x93\xC2\xC3\xCA\0\0\0\0";
    unsigned char index[INDEX_ROOM];
    (void)state;
    small_case();
    struct case_bytes all = case_read(cc.path);
    uint64_t at = sl_gg_load_u64(all.p + 40), n = sl_gg_load_u64(all.p + 48);
    assert_true(n + sizeof later < sizeof index);
    memcpy(index, all.p + at, n);
    memcpy(index + n, later, sizeof later - 1);
    index[0] = 0x88; /* two pairs more */
    assert_int_equal(with_index(index, n + sizeof later - 1), SLUICE_OK);
    index[0] = 0x89;
    assert_int_equal(with_index(index, n + sizeof later - 1), SLUICE_E_FORMAT);
    free(all.p);
    case_clean();
}

/* ---- memory ----------------------------------------------------------------------------------
 */

static void test_open_and_verify__any_allocation_fails__an_error_and_nothing_leaks(void **state)
{
    sluice_err err = SLUICE_E_NOMEM;
    int64_t n = 0;
    (void)state;
    cc.plan.part_bytes = CASE_SMALL_PART;
    case_write_ok();
    uint64_t used = sl_budget_used(&budget);
    for (; err != SLUICE_OK; n++) {
        atomic_store(&budget.fail_after, n);
        err = case_verify(case_part(0, case_n_parts(), ""));
        assert_true(err == SLUICE_OK || err == SLUICE_E_NOMEM || err == SLUICE_E_BUDGET);
        assert_int_equal(sl_budget_used(&budget), used);
        assert_true(n < 1000);
    }
    atomic_store(&budget.fail_after, -1);
    assert_true(n > 10);
    case_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE_TEST(test_open__what_was_written__the_same_model),
        CASE_TEST(test_open__no_metadata_no_tensors__empty_model),
        CASE_TEST(test_take_model__container_closed__the_model_lives),
        CASE_TEST(test_records__range_of_a_tensor__widened_to_sheets_and_compared),
        CASE_TEST(test_gguf_open__container__the_model_and_its_records),
        CASE_TEST(test_probe__container_or_not__told_apart),
        CASE_TEST(test_records__each__aligned_and_with_the_sum_of_its_bytes),
        CASE_TEST(test_records__parts_of_an_expert__side_by_side_in_one),
        CASE_TEST(test_header__a_container__the_bytes_of_the_specification),
        CASE_TEST(test_parts__any_of_them_opened__the_same_model),
        CASE_TEST(test_parts__one_missing__named),
        CASE_TEST(test_write__truth_value_of_seven__refused),
        CASE_TEST(test_parts__of_two_containers__refused),
        CASE_TEST(test_parts__too_small_for_a_tensor__refused_by_name),
        CASE_TEST(test_parts__every_size__reads_back),
        CASE_TEST(test_verify__any_bit_flipped__found),
        CASE_TEST(test_verify__an_expert_damaged__named),
        CASE_TEST(test_open__every_length__refused),
        CASE_TEST(test_open__last_part_cut__named),
        CASE_TEST(test_verify__progress_says_no__cancelled),
        CASE_TEST(test_open__newer_version__refused_with_a_sentence),
        CASE_TEST(test_open__header_of_zeros__unfinished),
        CASE_TEST(test_open__header_that_contradicts_itself__refused),
        CASE_TEST(test_open__index_that_lies__refused),
        CASE_TEST(test_open__index_cut_or_longer__refused),
        CASE_TEST(test_open__keys_of_later_revisions__passed_over),
        CASE_TEST(test_open_and_verify__any_allocation_fails__an_error_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
