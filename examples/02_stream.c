/* Runs a model in less memory than it takes: plans, opens with a budget, generates, reads the
 * statistics, gives memory back, and generates again: the same text, from fewer experts in memory.
 *
 * Introduces: sluice_memory_plan, ram_bytes, sluice_session_get_stats, sluice_model_trim.
 *
 * Usage: 02_stream MODEL.gguf TEXT [MIB]. TEXT is continued. Without MIB the budget lies halfway
 * between the smallest that works and the one that holds every expert. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

#define MOST_IDS 256
#define MIB 1048576.0

struct answer {
    char text[4096];
    size_t bytes;
};

static int keep_text(void *user, const char *text, size_t bytes)
{
    struct answer *answer = user;
    if (bytes > sizeof answer->text - answer->bytes) return 1; /* full: enough is enough */
    memcpy(answer->text + answer->bytes, text, bytes);
    answer->bytes += bytes;
    return 0;
}

/* Reads headers only, so it costs next to nothing: ask before opening. */
static sluice_err choose_budget(const char *path, const char *mib, sluice_options *options,
                                sluice_error *error)
{
    sluice_plan plan = SLUICE_PLAN_INIT;
    sluice_err err = sluice_memory_plan(path, options, &plan, error);
    if (err) return err;
    options->ram_bytes = mib ? (uint64_t)strtoul(mib, NULL, 10) << 20
                             : (plan.minimum_bytes + plan.resident_bytes) / 2;
    err = sluice_memory_plan(path, options, &plan, error);
    if (err) return err;
    fprintf(stderr, "budget %.1f MiB (smallest %.1f, for all %.1f): %u of %u experts\n",
            (double)options->ram_bytes / MIB, (double)plan.minimum_bytes / MIB,
            (double)plan.resident_bytes / MIB, (unsigned)plan.n_slots, (unsigned)plan.n_experts);
    return SLUICE_OK; /* a budget below the smallest: sluice_model_open refuses it and says so */
}

static sluice_err continue_text(sluice_session *session, const sluice_ids *ids,
                                struct answer *answer, sluice_error *error)
{
    sluice_generate_options generate = SLUICE_GENERATE_INIT;
    sluice_result result = SLUICE_RESULT_INIT;
    sluice_stats stats = SLUICE_STATS_INIT;
    generate.max_tokens = 32;
    generate.temperature = 0; /* the most likely token each time */
    generate.on_text = keep_text;
    generate.user = answer;
    answer->bytes = 0;
    sluice_err err = sluice_generate(session, ids->ids, ids->count, &generate, &result, error);
    if (err) return err;

    uint64_t later = result.generated_tokens > 1 ? result.generated_tokens - 1 : 1;
    double uses = result.decode_uses ? (double)result.decode_uses : 1;
    sluice_session_get_stats(session, &stats);
    fprintf(stderr,
            "%llu tokens: hit rate %.0f %%, %.2f MiB read a token, %.0f ms waited for the drive; "
            "%u of %u slots open\n",
            (unsigned long long)result.generated_tokens, 100 * (double)result.decode_hits / uses,
            (double)result.decode_read_bytes / MIB / (double)later,
            (double)result.decode_stall_ns / 1e6, (unsigned)stats.n_slots_open,
            (unsigned)stats.n_slots);
    return SLUICE_OK;
}

int main(int argc, char **argv)
{
    sluice_options options = SLUICE_OPTIONS_INIT;
    sluice_model *model = NULL;
    sluice_session *session = NULL;
    sluice_error error;
    static struct answer before, after;
    int32_t room[MOST_IDS];
    sluice_ids ids = {room, MOST_IDS, 0};
    int failed = 1;

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: 02_stream MODEL.gguf TEXT [MIB]\n");
        return 2;
    }
    if (choose_budget(argv[1], argc == 4 ? argv[3] : NULL, &options, &error)) goto out;
    if (sluice_model_open(argv[1], &options, &model, &error)) goto out;
    if (sluice_session_open(model, &session, &error)) goto out;
    if (sluice_tokenize(model, argv[2], strlen(argv[2]), SLUICE_TOKENIZE_BOS, &ids, &error))
        goto out;
    if (continue_text(session, &ids, &before, &error)) goto out;
    /* Another program needs memory (Android: onTrimMemory). Any thread may say so at any time. */
    if (sluice_model_trim(model, SLUICE_TRIM_HALF, &error)) goto out;
    if (continue_text(session, &ids, &after, &error)) goto out;
    if (sluice_model_trim(model, SLUICE_TRIM_RESTORE, &error)) goto out;
    printf("%s%.*s\n", argv[2], (int)after.bytes, after.text);
    failed = before.bytes != after.bytes || memcmp(before.text, after.text, after.bytes) != 0;
    if (failed) (void)snprintf(error.text, sizeof error.text, "less memory changed the text");
out:
    if (failed) fprintf(stderr, "02_stream: %s\n", error.text);
    sluice_session_close(session);
    sluice_model_close(model);
    return failed;
}
