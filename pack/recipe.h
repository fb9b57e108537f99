/* Recipes: which tensor becomes what. A text of lines "PATTERN TYPE"; the first line whose pattern
 * fits a tensor's name decides; # begins a comment. docs/PACKING.md is the manual.
 *
 * A pattern is compared with the name as a container has it (blk.3.ffn_down.7.weight), and, for a
 * part of an expert, also with that of the stack it is from (blk.3.ffn_down_exps.weight). * stands
 * for any bytes or none, ? for one.
 *
 * Thread: pure, except for open and close. */
#ifndef SL_RECIPE_H
#define SL_RECIPE_H

#include "base/mem.h"

#define SL_RECIPE_KEEP UINT32_MAX      /* as a type: the one that the source has */
#define SL_RECIPE_BYTES_MAX (1u << 20) /* of a file */
#define SL_RECIPE_TYPE_NAME_MAX 16     /* bytes of a type's name, with its NUL */

struct sl_recipe;

struct sl_recipe_rule {
    struct sl_str pattern;
    uint32_t type; /* enum sl_type, enum sl_sq_type, or SL_RECIPE_KEEP */
    uint32_t line; /* from 1 */
};

/* Reads a file. SLUICE_E_FORMAT: a line that is none, by number and with what was wanted;
 * SLUICE_E_LIMIT: longer than any recipe; those of file.h. */
SL_MUST_CHECK sluice_err sl_recipe_open(const char *path, struct sl_budget *b, sluice_error *e,
                                        struct sl_recipe **out);
/* The same of a text, which is copied; name is for messages. */
SL_MUST_CHECK sluice_err sl_recipe_parse(struct sl_str text, const char *name, struct sl_budget *b,
                                         sluice_error *e, struct sl_recipe **out);
void sl_recipe_close(struct sl_recipe *r); /* NULL is fine */

uint32_t sl_recipe_n_rules(const struct sl_recipe *r);
const struct sl_recipe_rule *sl_recipe_rule(const struct sl_recipe *r, uint32_t index);

/* The index of the first rule that fits a tensor of that name; stacked is the name of the stack it
 * is from, or empty. UINT32_MAX: none does. */
uint32_t sl_recipe_find(const struct sl_recipe *r, struct sl_str name, struct sl_str stacked);

/* Whether name fits pattern. */
bool sl_recipe_matches(struct sl_str pattern, struct sl_str name);

/* "keep", "f16", "sq3_32" or "SQ3_32": one of the types that can be written; false: none of them.
 */
bool sl_recipe_type(struct sl_str word, uint32_t *type);
/* The word for a type, also one that can only be kept ("q4_k"); buf has
 * SL_RECIPE_TYPE_NAME_MAX bytes and is returned. */
const char *sl_recipe_type_name(uint32_t type, char *buf);
/* "keep, f32, ...", for messages and help; buf has SL_RECIPE_TYPES_MAX bytes and is returned. */
#define SL_RECIPE_TYPES_MAX 192
const char *sl_recipe_types(char *buf);

#endif
