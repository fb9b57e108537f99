/* The lists of `sluice trace replay`: cache sizes and policies, words between commas. */
#include <stdio.h>
#include <string.h>

#include "tools/report.h"
#include "tools/trace_replay.h"

#define WORD_TEXT 64

/* The next word of the list; 0: there is none. A word that is too long is cut, and then unknown. */
static int next_word(const char **list, char word[WORD_TEXT])
{
    const char *end = *list;
    if (end == NULL || *end == 0) return 0;
    while (*end && *end != ',') end++;
    size_t n = (size_t)(end - *list);
    if (n >= WORD_TEXT) n = WORD_TEXT - 1;
    memcpy(word, *list, n);
    word[n] = 0;
    *list = *end ? end + 1 : end;
    return 1;
}

static int bad_size(const char *list, const char *word)
{
    cli_error("--cache %s: found '%s', wanted percent of the experts (20%%), bytes (2G), a number "
              "of slots (600), or recorded, separated by commas",
              list, word);
    return CLI_EXIT_USAGE;
}

static int parse_size(struct cli_replay_size *out, char word[WORD_TEXT])
{
    size_t n = strlen(word);
    int64_t slots;
    double percent;
    memset(out, 0, sizeof *out);
    if (n == 0 || n >= sizeof out->text) return -1;
    (void)snprintf(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1, word);
    if (strcmp(word, "recorded") == 0) {
        out->recorded = 1;
        return 0;
    }
    if (word[n - 1] == '%') {
        word[n - 1] = 0;
        if (cli_read_number(word, &percent) || !(percent > 0) || percent > 100) return -1;
        out->size.share = percent / 100;
        return 0;
    }
    if (cli_read_integer(word, &slots) == 0) {
        if (slots < 1 || slots > INT32_MAX) return -1;
        out->size.slots = (uint32_t)slots;
        return 0;
    }
    return cli_read_size(word, &out->size.bytes) || out->size.bytes == 0 ? -1 : 0;
}

int cli_replay_parse_sizes(struct cli_replay *r, const char *list)
{
    char word[WORD_TEXT], typed[WORD_TEXT];
    const char *at = list;
    while (next_word(&at, word)) {
        memcpy(typed, word, sizeof typed);
        if (r->n_sizes == CLI_REPLAY_SIZES_MAX) {
            cli_error("--cache %s: too many sizes, wanted %d at most", list, CLI_REPLAY_SIZES_MAX);
            return CLI_EXIT_USAGE;
        }
        if (parse_size(&r->size[r->n_sizes++], word)) return bad_size(list, typed);
    }
    return r->n_sizes ? CLI_EXIT_OK : bad_size(list, "");
}

/* Adds one, unless it is there. */
static void add_policy(struct cli_replay *r, const char *name, const struct sl_ec_policy *policy)
{
    for (uint32_t i = 0; i < r->n_policies; i++)
        if (r->policy[i].policy == policy) return;
    if (policy == NULL) r->optimum = (int32_t)r->n_policies;
    r->policy[r->n_policies++] = (struct cli_replay_policy){name, policy};
}

static int add_word(struct cli_replay *r, const char *word)
{
    if (strcmp(word, "all") == 0) {
        for (uint32_t i = 0; sl_ec_policy_at(i); i++)
            add_policy(r, sl_ec_policy_at(i)->name, sl_ec_policy_at(i));
        add_policy(r, "optimum", NULL);
        return 0;
    }
    if (strcmp(word, "belady") == 0 || strcmp(word, "optimum") == 0) {
        add_policy(r, "optimum", NULL);
        return 0;
    }
    const struct sl_ec_policy *policy = sl_ec_policy_find(word);
    if (strcmp(word, "default") == 0) policy = sl_ec_policy_at(0);
    if (strcmp(word, "decay") == 0) policy = &sl_ec_policy_decayed_lfu;
    if (policy == NULL) return -1;
    add_policy(r, policy->name, policy);
    return 0;
}

int cli_replay_parse_policies(struct cli_replay *r, const char *list)
{
    char word[WORD_TEXT] = "";
    const char *at = list;
    int unknown = 0;
    r->optimum = -1;
    while (!unknown && next_word(&at, word)) unknown = add_word(r, word) != 0;
    if (r->n_policies && !unknown) return CLI_EXIT_OK;
    cli_error("--policy %s: found '%s', wanted default, recall, two_rate, lru, lfu, decay, belady "
              "or all, separated by commas",
              list, word);
    return CLI_EXIT_USAGE;
}
