/* Finds the codes of the container's own weight types: the row scale, and each group's byte.
 *
 * For a given row scale a group has 256 scale bytes, and for each of them every weight's best code
 * is the nearest level. Few bytes are worth looking at: for each offset and sign, the scale at
 * which nothing is cut off says where the good ones lie (group_search). The row scale follows from
 * the group that needs the largest; a few smaller ones are tried too, since a group cut off a
 * little costs less than one with coarse steps (row_scale).
 *
 * What is nearest is too small: the part of a row that points where its weights point is less than
 * they are, by as much as the squared error, and every row's product with activations with it. So
 * the row scale is put right at the end (unshrunk). This costs a little error, and it takes out
 * what rows and layers would add up (docs/LEARNED.md).
 *
 * A row is searched as multiples of a power of two, so that float32 is enough for it whatever its
 * size (sq_search.h, which has the inner loops). All sums have one written order: the same weights
 * give the same bytes everywhere. */
#include <math.h>

#include "formats/half.h"
#include "formats/sq_search.h"

/* How far the search of a group goes, by the bits of a code: the parts of the scale at which
 * nothing is cut off from which, and up to which, scales are tried; how much larger than the least
 * such scale that of an offset may be; and where the largest scale of a row is put. */
static const struct reach {
    float low, high, slack, top;
} reaches[] = {
    [2] = {0.56f, 0.90f, 1.6f, 0.88f}, [3] = {0.76f, 1.02f, 1.33f, 0.96f},
    [4] = {0.86f, 1.12f, 1.5f, 1.02f}, [5] = {0.95f, 1.02f, 1.3f, 1.06f},
    [6] = {0.99f, 1.02f, 1.3f, 1.06f},
};
/* Row scales are tried in steps of this factor, down to where the largest group scale is this many
 * times that of the average group. */
#define ROW_STEP 0.75f
#define ROW_LEAST 1.5f
#define UNSHRINK_MOST 1.25 /* 2-bit rows take 1.1 */

#define SIDES (2 * SL_SQ_OFFSETS) /* an offset and a sign: the upper four bits of a scale byte */

struct encoder {
    const struct sl_sq_info *info;
    const struct reach *reach;
    const struct sl_sq_variant *run;
    struct sl_sq_levels levels;
    float offset[SL_SQ_OFFSETS]; /* and what the largest weight above 0, and below, is to be */
    float per_above[SIDES];      /* multiplied by for the scale that cuts nothing off */
    float per_below[SIDES];
    const float *weights; /* NULL: all the same */
    float weight_factor, weight_floor;
    double weight_unit; /* what a weight of 1 in the search stands for */
};

/* A row: its weights times factor are searched, and unit is what a 1 of these stands for. */
struct row {
    const float *x;
    uint32_t cols;
    float factor;
    double unit;
};

/* A group, and its scales that cut nothing off. */
struct candidate {
    struct sl_sq_group g;
    float full[SIDES], least;
};

/* Where it is written. */
struct place {
    uint8_t *unit;
    uint32_t row, half; /* half: which 16 columns of the unit, where groups have 16 */
};

/* The best scale byte found. */
struct choice {
    float error;
    uint8_t byte;
};

/* The power of two, times which x lies between a half and 1, as far as float32 has it; 1 for 0. */
static float scaling(double x, double *unit)
{
    int exponent = 0;
    (void)frexp(x, &exponent);
    if (exponent < -126) exponent = -126;
    *unit = ldexp(1.0, exponent);
    return ldexpf(1.0f, -exponent);
}

static void init_weights(struct encoder *e, const struct sl_sq_source *src)
{
    double sum = 0.0;
    e->weights = src->weights;
    for (uint32_t c = 0; src->weights != NULL && c < src->cols; c++) sum += src->weights[c];
    e->weight_unit = 1.0;
    if (sum > 0.0) {
        e->weight_factor = scaling(sum / src->cols, &e->weight_unit);
        e->weight_floor = (float)(sum / src->cols / 1000.0 / e->weight_unit);
    } else {
        e->weight_factor = 0.0f;
        e->weight_floor = 1.0f;
    }
}

static void encoder_init(struct encoder *e, const struct sl_sq_info *info,
                         const struct sl_sq_source *src)
{
    e->info = info;
    e->reach = &reaches[info->bits];
    e->run = sl_sq_variant();
    sl_sq_levels_init(info, &e->levels);
    for (uint32_t j = 0; j < SL_SQ_OFFSETS; j++) {
        float offset = (float)(info->offset_base + info->offset_step * j) * 0.125f;
        e->offset[j] = offset;
        e->per_above[j] = e->per_below[j + SL_SQ_OFFSETS] = 1.0f / (SL_SQ_LAST - offset);
        e->per_below[j] = e->per_above[j + SL_SQ_OFFSETS] = 1.0f / offset;
    }
    init_weights(e, src);
}

static void load_group(const struct encoder *e, const struct row *row, uint32_t col,
                       struct candidate *c)
{
    c->g.n = e->info->group_cols;
    e->run->load(row->x + col, row->factor, &c->g);
    for (uint32_t i = 0; i < SIDES; i++) {
        float a = c->g.high * e->per_above[i], b = c->g.low * e->per_below[i];
        c->full[i] = a > b ? a : b;
    }
    float least[SIDES / 2];
    for (uint32_t i = 0; i < SIDES / 2; i++) {
        float a = c->full[i], b = c->full[i + SIDES / 2];
        least[i] = a < b ? a : b;
    }
    c->least = least[0];
    for (uint32_t i = 1; i < SIDES / 2; i++) c->least = least[i] < c->least ? least[i] : c->least;
}

static void load_weights(const struct encoder *e, uint32_t col, struct sl_sq_group *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        g->w[i] =
            e->weights == NULL ? 1.0f : e->weights[col + i] * e->weight_factor + e->weight_floor;
}

/* The scale of a scale byte, a multiple of the row's; its sign is that of the byte. */
static float scale_of(float d, uint32_t byte)
{
    float s = d * (float)((byte & 15) + 1);
    return byte & 128 ? -s : s;
}

static struct sl_sq_try try_of(const struct encoder *e, float d, uint32_t byte)
{
    return (struct sl_sq_try){1.0f / scale_of(d, byte), e->offset[byte >> 4 & 7]};
}

/* s / d, rounded, as |m| - 1 and held within the range that a byte has. */
static uint32_t magnitude(float s, float per_d)
{
    float m = s * per_d + 0.5f;
    if (!(m >= 1.0f)) return 0;
    return m < (float)SL_SQ_SCALE_MAX ? (uint32_t)m - 1 : SL_SQ_SCALE_MAX - 1;
}

/* The scale bytes that are worth trying; returns how many. */
static uint32_t list_bytes(const struct encoder *e, const struct candidate *c, float d,
                           uint8_t bytes[SL_SQ_BYTES])
{
    uint32_t n = 0;
    float enough = e->reach->slack * c->least, per_d = 1.0f / d;
    for (uint32_t i = 0; i < SIDES; i++) {
        if (c->full[i] > enough) continue;
        uint32_t first = magnitude(e->reach->low * c->full[i], per_d);
        uint32_t last = magnitude(e->reach->high * c->full[i], per_d);
        for (uint32_t m = first; m <= last; m++) bytes[n++] = (uint8_t)(16 * i + m);
    }
    return n;
}

static struct choice group_search(const struct encoder *e, const struct candidate *c, float d)
{
    uint8_t bytes[SL_SQ_BYTES];
    struct sl_sq_try tries[SL_SQ_BYTES];
    float errors[SL_SQ_BYTES], inverse[SL_SQ_SCALE_MAX];
    struct choice best = {INFINITY, 0};
    uint32_t n = list_bytes(e, c, d, bytes);
    SLUICE_ASSERT(n > 0); /* the least scale is always listed */
    for (uint32_t m = 0; m < SL_SQ_SCALE_MAX; m++) inverse[m] = 1.0f / (d * (float)(m + 1));
    for (uint32_t i = 0; i < n; i++) {
        float v = inverse[bytes[i] & 15];
        tries[i] = (struct sl_sq_try){bytes[i] & 128 ? -v : v, e->offset[bytes[i] >> 4 & 7]};
    }
    e->run->errors(&e->levels, &c->g, tries, n, errors);
    for (uint32_t i = 0; i < n; i++) {
        float scale = scale_of(d, bytes[i]), error = errors[i] * (scale * scale);
        if (error < best.error) best = (struct choice){error, bytes[i]};
    }
    return best;
}

static double row_error(const struct encoder *e, const struct row *row, float d, double limit)
{
    double sum = 0.0;
    for (uint32_t col = 0; col < row->cols && sum < limit; col += e->info->group_cols) {
        struct candidate c;
        load_group(e, row, col, &c);
        load_weights(e, col, &c.g);
        sum += group_search(e, &c, d).error;
    }
    return sum;
}

/* Rounded to nearest even, held to scales whose largest weight is finite. */
static uint16_t to_bf16(double d)
{
    double most = 0x1.fep127 / (SL_SQ_SCALE_MAX * 64.0);
    uint32_t u = sl_f32_bits((float)(d < most ? d : most));
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* A row scale as the search sees it. The levels' own unit is an eighth of the search's. */
static float searched(const struct row *row, uint16_t d)
{
    return (float)((double)sl_bf16_to_f32(d) / row->unit * 8.0);
}

static uint16_t from_searched(const struct row *row, double d)
{
    return to_bf16(d * row->unit * 0.125);
}

/* The largest scale that a group of the row needs, and their average. */
static float largest_scale(const struct encoder *e, const struct row *row, float *mean)
{
    double sum = 0.0;
    float largest = 0.0f;
    for (uint32_t col = 0; col < row->cols; col += e->info->group_cols) {
        struct candidate c;
        load_group(e, row, col, &c);
        if (c.least > largest) largest = c.least;
        sum += c.least;
    }
    *mean = (float)(sum / (row->cols / e->info->group_cols));
    return largest;
}

/* In an ordinary row only the first is worth trying, which needs no comparison. 0 where the row is
 * zero, or smaller than any scale. */
static uint16_t row_scale(const struct encoder *e, const struct row *row)
{
    double least = INFINITY;
    float mean, top = e->reach->top * largest_scale(e, row, &mean);
    uint16_t best = from_searched(row, top / SL_SQ_SCALE_MAX);
    if (best == 0 || top * ROW_STEP < ROW_LEAST * mean) return best;
    for (; top >= ROW_LEAST * mean; top *= ROW_STEP) {
        uint16_t h = from_searched(row, top / SL_SQ_SCALE_MAX);
        if (h == 0) break;
        double error = row_error(e, row, searched(row, h), least);
        if (error < least) {
            least = error;
            best = h;
        }
    }
    return best;
}

/* Chooses a group's byte and puts it and the codes into the band. */
static void write_group(const struct encoder *e, const struct candidate *c, float d,
                        const struct place *at, struct sl_sq_sums *sums)
{
    uint8_t codes[32], byte = d > 0.0f ? group_search(e, c, d).byte : 0;
    struct sl_sq_try t = {0.0f, e->offset[0]};
    if (d > 0.0f) t = try_of(e, d, byte);
    e->run->settle(&e->levels, &c->g, &t, scale_of(d, byte), codes, sums);
    at->unit[e->info->bits * 32 + at->half * SL_SQ_BAND_ROWS + at->row] = byte;
    for (uint32_t i = 0; i < c->g.n; i++)
        sl_sq_put_code(e->info, at->unit, at->row, 16 * at->half + i, codes[i]);
}

static double sum_of(const double lanes[4])
{
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/* The row scale times which codes neither shrink the row nor stretch it, as activations see it. */
static uint16_t unshrunk(const struct row *row, float d, const struct sl_sq_sums *s)
{
    double ratio = sum_of(s->wxx) / sum_of(s->wxq);
    if (!(ratio > 1.0)) ratio = 1.0;
    if (ratio > UNSHRINK_MOST) ratio = UNSHRINK_MOST;
    return from_searched(row, d * ratio);
}

/* The errors of a row of sums s where what is decoded is ratio times what is in them. */
static void add_errors(const struct encoder *e, const struct row *row, const struct sl_sq_sums *s,
                       double ratio, struct sl_sq_error *err)
{
    double unit = row->unit * row->unit, weighted = unit * e->weight_unit;
    double error = sum_of(s->xx) - ratio * (2.0 * sum_of(s->xq) - ratio * sum_of(s->qq));
    double werror = sum_of(s->wxx) - ratio * (2.0 * sum_of(s->wxq) - ratio * sum_of(s->wqq));
    err->plain += (error > 0.0 ? error : 0.0) * unit;
    err->plain_all += sum_of(s->xx) * unit;
    err->weighted += (werror > 0.0 ? werror : 0.0) * weighted;
    err->weighted_all += sum_of(s->wxx) * weighted;
}

static void write_row(const struct encoder *e, const struct row *row, uint32_t r, uint8_t *band,
                      struct sl_sq_error *err)
{
    struct sl_sq_sums sums = {0};
    uint16_t h = row_scale(e, row);
    float d = searched(row, h);
    double ratio = 0.0;
    for (uint32_t col = 0; col < row->cols; col += e->info->group_cols) {
        struct candidate c;
        uint64_t unit = (uint64_t)(col / SL_SQ_UNIT_COLS) * e->info->unit_bytes;
        const struct place at = {band + SL_SQ_ROW_SCALE_BYTES + unit, r,
                                 col % SL_SQ_UNIT_COLS / 16};
        load_group(e, row, col, &c);
        load_weights(e, col, &c.g);
        write_group(e, &c, d, &at, &sums);
    }
    if (h > 0) {
        h = unshrunk(row, d, &sums);
        ratio = (double)searched(row, h) / d;
    }
    memcpy(band + 2 * r, &h, sizeof h);
    add_errors(e, row, &sums, ratio, err);
}

static bool source_ok(const struct sl_sq_source *src)
{
    for (uint32_t c = 0; src->weights != NULL && c < src->cols; c++) {
        if (!isfinite(src->weights[c]) || src->weights[c] < 0.0f) return false;
    }
    for (uint32_t r = 0; r < src->rows; r++) {
        for (uint32_t c = 0; c < src->cols; c++) {
            if (!isfinite(src->x[r * src->x_stride + c])) return false;
        }
    }
    return true;
}

static float largest_of(const float *x, uint32_t n)
{
    float most = 0.0f;
    for (uint32_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* Rows that are not there have scale 0, which makes whatever their codes say a zero. */
bool sl_sq_encode_band(const struct sl_sq_info *info, const struct sl_sq_source *src, uint8_t *band,
                       struct sl_sq_error *err)
{
    struct encoder e;
    SLUICE_ASSERT(src->rows >= 1 && src->rows <= SL_SQ_BAND_ROWS);
    SLUICE_ASSERT(src->cols >= 1 && src->cols % SL_SQ_UNIT_COLS == 0);
    if (!source_ok(src)) return false;
    encoder_init(&e, info, src);
    uint64_t units = src->cols / SL_SQ_UNIT_COLS;
    memset(band, 0, SL_SQ_ROW_SCALE_BYTES + units * info->unit_bytes);
    for (uint32_t r = 0; r < src->rows; r++) {
        struct row row = {.x = src->x + r * src->x_stride, .cols = src->cols};
        row.factor = scaling(largest_of(row.x, row.cols), &row.unit);
        write_row(&e, &row, r, band, err);
    }
    return true;
}
