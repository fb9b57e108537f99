/* Finds the codes of the container's own weight types: the row scale, and each group's byte.
 *
 * For a given row scale a group has 256 scale bytes, and for each of them every weight's best code
 * is the nearest level. Few bytes are worth looking at: for each offset and sign, the scale at
 * which nothing is cut off says where the good ones lie (group_search). The row scale follows from
 * the group that needs the largest; a few smaller ones are tried too, since a group cut off a
 * little costs less than one with coarse steps (row_scale). All sums are doubles in written order,
 * so the same weights give the same bytes everywhere, and no float32 is too large or too small. */
#include <math.h>

#include "formats/half.h"
#include "formats/sq.h"

/* How far the search of a group goes, by the bits of a code: the parts of the scale at which
 * nothing is cut off from which, and up to which, scales are tried; how much larger than the least
 * such scale that of an offset may be; and where the largest scale of a row is put. */
static const struct reach {
    double low, high, slack, top;
} reaches[] = {
    [2] = {0.56, 0.90, 1.6, 0.88},
    [3] = {0.72, 1.05, 1.4, 0.96},
    [4] = {0.82, 1.12, 1.5, 1.02},
};
/* Row scales are tried in steps of this factor, down to where the largest group scale is this many
 * times that of the average group. */
#define ROW_STEP 0.75
#define ROW_LEAST 1.5

#define NEAR 127 /* level positions in steps of a half: 0 to 63 */

struct encoder {
    const struct sl_sq_info *info;
    const struct reach *reach;
    const float *weights; /* NULL: all the same */
    double weight_floor;
    double near[NEAR];  /* the level nearest to positions from i / 2 up to (i + 1) / 2 */
    uint8_t code[NEAR]; /* and its code */
};

/* A group: columns of one row, with what an error in them costs, and how far they reach. */
struct group {
    uint32_t n;
    double x[32], w[32];
    double high, low; /* max(0, largest x), max(0, -smallest x) */
};

/* Where a group is written. */
struct place {
    uint8_t *unit;
    uint32_t row, half; /* half: which 16 columns of the unit, where groups have 16 */
};

/* The best scale byte found. */
struct choice {
    double error;
    int byte;
};

/* Level k is nearest up to the middle between it and the next; a middle is a multiple of a half. */
static void encoder_init(struct encoder *e, const struct sl_sq_info *info,
                         const struct sl_sq_source *src)
{
    uint32_t k = 0, last = (1u << info->bits) - 1;
    e->info = info;
    e->reach = &reaches[info->bits];
    e->weights = src->weights;
    for (int i = 0; i < NEAR; i++) {
        while (k < last && i >= info->levels[k] + info->levels[k + 1]) k++;
        e->near[i] = info->levels[k];
        e->code[i] = (uint8_t)k;
    }
    double sum = 0.0;
    for (uint32_t c = 0; src->weights != NULL && c < src->cols; c++) sum += src->weights[c];
    e->weight_floor = sum > 0.0 ? sum / src->cols / 1000.0 : 1.0;
}

static void load_group(const struct encoder *e, const float *row, uint32_t col, struct group *g)
{
    g->n = e->info->group_cols;
    g->high = g->low = 0.0;
    for (uint32_t i = 0; i < g->n; i++) {
        double x = row[col + i];
        g->x[i] = x;
        g->w[i] = e->weights != NULL ? e->weights[col + i] + e->weight_floor : 1.0;
        if (x > g->high) g->high = x;
        if (-x > g->low) g->low = -x;
    }
}

static int offset_of(const struct encoder *e, int byte)
{
    return e->info->offset_base + e->info->offset_step * (byte >> 4 & 7);
}

/* The scale, a multiple of the row's, of a scale byte; its sign is that of the byte. */
static double scale_of(double d, int byte)
{
    double s = d * ((byte & 15) + 1);
    return byte & 128 ? -s : s;
}

/* Where a weight lies among the levels, in half steps. No branches: weights at the ends would be
 * guessed wrongly. */
static int position(double v)
{
    v = v > 0.0 ? v : 0.0;
    return (int)((v < 63.0 ? v : 63.0) * 2.0);
}

/* What weight i costs; v = x / scale + offset is where it lies among the levels. */
static inline double cost(const struct encoder *e, const struct group *g, uint32_t i,
                          double inverse, double offset)
{
    double v = g->x[i] * inverse + offset;
    double off = v - e->near[position(v)];
    return g->w[i] * (off * off);
}

/* The weighted error of a group with this scale byte. Four at a time, or each addition would wait
 * for the one before; leaving early, once it is above the best, costs more time than it saves. */
static double group_error(const struct encoder *e, const struct group *g, double d, int byte)
{
    double scale = scale_of(d, byte), inverse = 1.0 / scale, offset = offset_of(e, byte);
    double sum = 0.0;
    for (uint32_t i = 0; i < g->n; i += 4) {
        double a = cost(e, g, i, inverse, offset), b = cost(e, g, i + 1, inverse, offset);
        double c = cost(e, g, i + 2, inverse, offset), f = cost(e, g, i + 3, inverse, offset);
        sum += (a + b) + (c + f);
    }
    return sum * (scale * scale);
}

/* The scale, of those that cut nothing off, with this offset and sign. */
static double full_scale(const struct encoder *e, const struct group *g, int byte)
{
    double below = offset_of(e, byte), above = 63.0 - below;
    double high = byte & 128 ? g->low : g->high, low = byte & 128 ? g->high : g->low;
    double a = high / above, b = low / below;
    return a > b ? a : b;
}

static double least_full_scale(const struct encoder *e, const struct group *g)
{
    double least = full_scale(e, g, 0);
    for (int byte = 16; byte < 256; byte += 16) {
        double s = full_scale(e, g, byte);
        if (s < least) least = s;
    }
    return least;
}

/* s / d, rounded, as |m| - 1 and held within the range that a byte has. */
static int magnitude(double s, double d)
{
    double m = s / d + 0.5;
    if (!(m >= 1.0)) return 0;
    return m < SL_SQ_SCALE_MAX ? (int)m - 1 : SL_SQ_SCALE_MAX - 1;
}

static struct choice group_search(const struct encoder *e, const struct group *g, double d)
{
    struct choice best = {INFINITY, 0};
    double enough = e->reach->slack * least_full_scale(e, g);
    for (int byte = 0; byte < 256; byte += 16) {
        double s = full_scale(e, g, byte);
        if (s > enough) continue;
        int first = magnitude(e->reach->low * s, d);
        int last = magnitude(e->reach->high * s, d);
        for (int m = first; m <= last; m++) {
            double error = group_error(e, g, d, byte + m);
            if (error < best.error) best = (struct choice){error, byte + m};
        }
    }
    return best;
}

static double row_error(const struct encoder *e, const float *row, uint32_t cols, double d,
                        double limit)
{
    double sum = 0.0;
    for (uint32_t c = 0; c < cols && sum < limit; c += e->info->group_cols) {
        struct group g;
        load_group(e, row, c, &g);
        sum += group_search(e, &g, d).error;
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

/* The largest scale that a group of the row needs, and their average by weight. */
static void row_scales(const struct encoder *e, const float *row, uint32_t cols, double *largest,
                       double *mean)
{
    double sum = 0.0, weights = 0.0;
    *largest = 0.0;
    for (uint32_t c = 0; c < cols; c += e->info->group_cols) {
        struct group g;
        load_group(e, row, c, &g);
        double s = least_full_scale(e, &g), w = 0.0;
        for (uint32_t i = 0; i < g.n; i++) w += g.w[i];
        if (s > *largest) *largest = s;
        sum += w * s;
        weights += w;
    }
    *mean = sum / weights;
}

/* In an ordinary row only the first is worth trying, which needs no comparison. 0 where the row is
 * zero, or smaller than any scale. */
static uint16_t row_scale(const struct encoder *e, const float *row, uint32_t cols)
{
    double largest, mean, least = INFINITY;
    row_scales(e, row, cols, &largest, &mean);
    double top = e->reach->top * largest;
    uint16_t best = to_bf16(top / SL_SQ_SCALE_MAX);
    if (best == 0 || top * ROW_STEP < ROW_LEAST * mean) return best;
    for (; top >= ROW_LEAST * mean; top *= ROW_STEP) {
        uint16_t h = to_bf16(top / SL_SQ_SCALE_MAX);
        if (h == 0) break;
        double error = row_error(e, row, cols, sl_bf16_to_f32(h), least);
        if (error < least) {
            least = error;
            best = h;
        }
    }
    return best;
}

/* Puts a group's codes into its unit and counts what they cost. */
static void write_group(const struct encoder *e, const struct group *g, double d, int byte,
                        const struct place *at, struct sl_sq_error *err)
{
    double scale = scale_of(d, byte), offset = offset_of(e, byte);
    at->unit[e->info->bits * 32 + at->half * SL_SQ_BAND_ROWS + at->row] = (uint8_t)byte;
    for (uint32_t i = 0; i < g->n; i++) {
        int p = position(d > 0.0 ? g->x[i] / scale + offset : offset);
        double off = g->x[i] - scale * (e->near[p] - offset);
        sl_sq_put_code(e->info, at->unit, at->row, 16 * at->half + i, e->code[p]);
        err->weighted += g->w[i] * (off * off);
        err->weighted_all += g->w[i] * (g->x[i] * g->x[i]);
        err->plain += off * off;
        err->plain_all += g->x[i] * g->x[i];
    }
}

static void write_row(const struct encoder *e, const float *row, uint32_t cols, uint8_t *band,
                      struct place *at, struct sl_sq_error *err)
{
    uint16_t h = row_scale(e, row, cols);
    double d = sl_bf16_to_f32(h);
    memcpy(band + 2 * at->row, &h, sizeof h);
    for (uint32_t c = 0; c < cols; c += e->info->group_cols) {
        struct group g;
        load_group(e, row, c, &g);
        at->unit = band + SL_SQ_ROW_SCALE_BYTES;
        at->unit += (uint64_t)(c / SL_SQ_UNIT_COLS) * e->info->unit_bytes;
        at->half = c % SL_SQ_UNIT_COLS / 16;
        write_group(e, &g, d, d > 0.0 ? group_search(e, &g, d).byte : 0, at, err);
    }
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
        struct place at = {.row = r};
        write_row(&e, src->x + r * src->x_stride, src->cols, band, &at, err);
    }
    return true;
}
