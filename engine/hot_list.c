/* See hot_list.h. Read whole, since the longest legal list has a few megabytes; parsed strictly,
 * since a list that is wrong in one place may be wrong in all. */
#include "engine/hot_list.h"

#include <stdio.h>
#include <string.h>

#include "io/file.h"
#include "io/new_file.h"

#define NAME "sluice-hot-list"
#define VERSION 1u
#define LINE_BYTES 64u
#define PAIR_BYTES 10u /* the longest line of a pair: "511 1023\n" */

_Static_assert(SL_LAYERS_MAX <= 999 && SL_EXPERTS_MAX <= 9999, "a pair fits into PAIR_BYTES");

static uint64_t all_experts(const struct sl_hot_list_model *m)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < m->n_layers; l++) sum += m->n_experts[l];
    return sum;
}

static uint32_t most_experts(const struct sl_hot_list_model *m)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < m->n_layers; l++)
        if (m->n_experts[l] > most) most = m->n_experts[l];
    return most;
}

/* The first line; text has LINE_BYTES and is returned. */
static const char *first_line(const struct sl_hot_list_model *m, char *text)
{
    snprintf(text, LINE_BYTES, NAME " %u %u %u %llu\n", VERSION, m->n_layers, most_experts(m),
             (unsigned long long)m->file_bytes);
    return text;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

struct parse {
    const char *path;
    const struct sl_hot_list_model *model;
    const char *at, *end;
    uint8_t *seen; /* a bit for each expert */
    sluice_error *e;
};

/* A decimal number of at most 4 digits, then the byte `after`. */
static bool take_number(struct parse *p, char after, uint32_t *out)
{
    uint32_t value = 0, digits = 0;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9' && digits < 5) {
        value = value * 10 + (uint32_t)(*p->at++ - '0');
        digits++;
    }
    if (digits == 0 || digits > 4 || p->at == p->end || *p->at != after) return false;
    p->at++;
    *out = value;
    return true;
}

/* Numbers of a bitmap: experts of all layers, one after the other. */
static uint64_t number_of(const struct sl_hot_list_model *m, const struct sl_expert_id *id)
{
    uint64_t before = 0;
    for (uint32_t l = 0; l < id->layer; l++) before += m->n_experts[l];
    return before + id->expert;
}

static sluice_err parse_first_line(struct parse *p)
{
    char wanted[LINE_BYTES];
    size_t n = strlen(first_line(p->model, wanted)), have = (size_t)(p->end - p->at);
    if (have >= n && memcmp(p->at, wanted, n) == 0) {
        p->at += n;
        return SLUICE_OK;
    }
    bool ours = have > sizeof NAME && memcmp(p->at, NAME " ", sizeof NAME) == 0;
    if (!ours) return sl_fail(p->e, SLUICE_E_FORMAT, "%s: this is no hot list", p->path);
    return sl_fail(p->e, SLUICE_E_CHANGED,
                   "%s: the hot list belongs to another model, or to another version of this one",
                   p->path);
}

static sluice_err parse_pairs(struct parse *p, struct sl_hot_list *out, uint64_t capacity)
{
    for (uint64_t line = 2; p->at < p->end; line++) {
        struct sl_expert_id id;
        if (!take_number(p, ' ', &id.layer) || !take_number(p, '\n', &id.expert) ||
            id.layer >= p->model->n_layers || id.expert >= p->model->n_experts[id.layer])
            return sl_fail(p->e, SLUICE_E_FORMAT,
                           "%s: line %llu does not name a layer and an expert of this model",
                           p->path, (unsigned long long)line);
        uint64_t k = number_of(p->model, &id);
        if (p->seen[k / 8] >> (k % 8) & 1)
            return sl_fail(p->e, SLUICE_E_FORMAT, "%s: line %llu repeats an expert", p->path,
                           (unsigned long long)line);
        p->seen[k / 8] |= (uint8_t)(1u << (k % 8));
        SLUICE_ASSERT(out->n < capacity); /* each expert once */
        out->ids[out->n++] = id;
    }
    return SLUICE_OK;
}

static sluice_err parse(struct parse *p, struct sl_budget *b, struct sl_hot_list *out)
{
    uint64_t capacity = all_experts(p->model);
    p->seen = sl_alloc(b, capacity / 8 + 1, 1);
    out->ids = sl_alloc(b, capacity, sizeof *out->ids);
    sluice_err err = p->seen && out->ids
                         ? parse_first_line(p)
                         : sl_fail(p->e, SLUICE_E_NOMEM, "no memory for the hot list");
    if (err == SLUICE_OK) err = parse_pairs(p, out, capacity);
    sl_free(p->seen);
    if (err != SLUICE_OK) sl_hot_list_free(out);
    return err;
}

sluice_err sl_hot_list_read(const char *path, const struct sl_hot_list_model *model,
                            struct sl_budget *b, struct sl_hot_list *out, sluice_error *e)
{
    *out = (struct sl_hot_list){0};
    struct sl_file *f = NULL;
    sluice_error cause;
    sluice_err err = sl_file_open(path, b, &cause, &f);
    if (err == SLUICE_E_NOT_FOUND) return SLUICE_OK;
    if (err != SLUICE_OK) {
        if (e) *e = cause;
        return err;
    }
    uint64_t bytes = sl_file_bytes(f);
    char *text = NULL;
    if (bytes > LINE_BYTES + PAIR_BYTES * all_experts(model)) {
        err =
            sl_fail(e, SLUICE_E_LIMIT,
                    "%s: a hot list of this model has no more than %llu bytes, this file has %llu",
                    path, (unsigned long long)(LINE_BYTES + PAIR_BYTES * all_experts(model)),
                    (unsigned long long)bytes);
    } else {
        text = sl_alloc(b, bytes + 1, 1);
        err = text ? sl_file_read_at(f, 0, text, bytes, e)
                   : sl_fail(e, SLUICE_E_NOMEM, "no memory for the hot list");
    }
    sl_file_close(f);
    if (err == SLUICE_OK) {
        struct parse p = {path, model, text, text + bytes, NULL, e};
        err = parse(&p, b, out);
    }
    sl_free(text);
    return err;
}

void sl_hot_list_free(struct sl_hot_list *list)
{
    sl_free(list->ids);
    *list = (struct sl_hot_list){0};
}

/* ---- writing -----------------------------------------------------------------------------------
 */

/* The text of a list in new memory. */
static char *print(const struct sl_hot_list_model *model, struct sl_budget *b,
                   const struct sl_hot_list *list, size_t *bytes)
{
    size_t size = LINE_BYTES + (size_t)list->n * PAIR_BYTES;
    char *text = sl_alloc(b, size, 1);
    if (!text) return NULL;
    size_t n = strlen(first_line(model, text));
    for (uint32_t i = 0; i < list->n; i++)
        n += (size_t)snprintf(text + n, size - n, "%u %u\n", list->ids[i].layer,
                              list->ids[i].expert);
    SLUICE_ASSERT(n < size);
    *bytes = n;
    return text;
}

sluice_err sl_hot_list_write(const char *path, const struct sl_hot_list_model *model,
                             struct sl_budget *b, const struct sl_hot_list *list, sluice_error *e)
{
    size_t bytes = 0;
    char *text = print(model, b, list, &bytes);
    if (!text) return sl_fail(e, SLUICE_E_NOMEM, "no memory for the hot list");
    struct sl_new_file *f = NULL;
    sluice_err err = sl_new_file_open(path, b, e, &f);
    if (err == SLUICE_OK) {
        err = sl_new_file_write(f, text, bytes, e);
        if (err == SLUICE_OK)
            err = sl_new_file_commit(f, e);
        else
            sl_new_file_discard(f);
    }
    sl_free(text);
    return err;
}
