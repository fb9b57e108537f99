/* What reading experts took; see streaming.h. */
#include "tools/streaming.h"

#include <stdio.h>
#include <string.h>

#include "tools/report.h"

sluice_stats cli_stats_since(const sluice_stats *before, const sluice_stats *now)
{
    sluice_stats d = *now;
    d.eval_tokens -= before->eval_tokens;
    d.eval_ns -= before->eval_ns;
    d.uses -= before->uses;
    d.hits -= before->hits;
    d.hits_flying -= before->hits_flying;
    d.load_bytes -= before->load_bytes;
    d.warm_bytes -= before->warm_bytes;
    d.prompt_bytes -= before->prompt_bytes;
    d.demand_bytes -= before->demand_bytes;
    d.ahead_bytes -= before->ahead_bytes;
    d.ahead_useful_bytes -= before->ahead_useful_bytes;
    d.ahead_wasted_bytes -= before->ahead_wasted_bytes;
    d.evictions -= before->evictions;
    d.stall_ns -= before->stall_ns;
    d.read_ns -= before->read_ns;
    d.checked -= before->checked;
    d.predicted -= before->predicted;
    d.predicted_used -= before->predicted_used;
    d.dropped -= before->dropped;
    d.projection_ns -= before->projection_ns;
    d.mixing_ns -= before->mixing_ns;
    d.routing_ns -= before->routing_ns;
    d.expert_ns -= before->expert_ns;
    d.waiting_ns -= before->waiting_ns;
    d.head_ns -= before->head_ns;
    d.other_ns -= before->other_ns;
    return d;
}

uint64_t cli_stats_read_bytes(const sluice_stats *s)
{
    return s->warm_bytes + s->prompt_bytes + s->demand_bytes + s->ahead_bytes;
}

double cli_share(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 0; }

/* Part of reading that computing hid. */
static double overlap(const sluice_stats *s)
{
    return s->stall_ns < s->read_ns ? 1 - cli_share(s->stall_ns, s->read_ns) : 0;
}

const char *cli_peak_text(char *text, const sluice_stats *stats, const sluice_model_info *info)
{
    char peak[CLI_SIZE_TEXT] = "unknown", ram[CLI_SIZE_TEXT];
    if (stats->process_peak_bytes) (void)cli_size_text(peak, stats->process_peak_bytes);
    (void)snprintf(text, CLI_PEAK_TEXT, "%s%s%s", peak, info->ram_bytes ? " of --ram " : "",
                   info->ram_bytes ? cli_size_text(ram, info->ram_bytes) : "");
    return text;
}

/* ---- lossy settings ----------------------------------------------------------------------- */

static void note_lossy(const struct cli_args *args, const sluice_stats *since)
{
    uint64_t choices = since->uses + since->dropped;
    char size[32] = "";
    if (since->lossy & SLUICE_LOSSY_EXPERTS_USED)
        cli_note("lossy: --experts-used %lld: fewer experts than the model says",
                 (long long)args->experts_used);
    if (args->sticky_size) (void)snprintf(size, sizeof size, ":%lld", (long long)args->sticky_size);
    if (since->lossy & SLUICE_LOSSY_STICKY)
        cli_note("lossy: --sticky %g%s: experts that the text used of late were preferred",
                 args->sticky, size);
    if (since->lossy & SLUICE_LOSSY_DROP_COLD)
        cli_note(
            "lossy: --drop-cold %g: %llu of %llu choices were left out (%.1f %%), depending on "
            "what was in memory",
            args->drop_cold, (unsigned long long)since->dropped, (unsigned long long)choices,
            100 * cli_share(since->dropped, choices));
}

/* ---- notes -------------------------------------------------------------------------------- */

static void note_ahead(const sluice_stats *s)
{
    char read[CLI_SIZE_TEXT], useful[CLI_SIZE_TEXT], wasted[CLI_SIZE_TEXT], came[64] = "";
    if (s->ahead_bytes == 0) return;
    if (s->predicted) /* of a prompt nothing is: all of a layer's experts are likely */
        (void)snprintf(came, sizeof came, "; %.0f %% of the experts that were expected came",
                       100 * cli_share(s->predicted_used, s->predicted));
    cli_note("read ahead %s on a guess: %s of it used, %s wasted%s",
             cli_size_text(read, s->ahead_bytes), cli_size_text(useful, s->ahead_useful_bytes),
             cli_size_text(wasted, s->ahead_wasted_bytes), came);
}

void cli_streaming_note(const struct cli_args *args, const sluice_model_info *info,
                        const sluice_stats *since, uint64_t tokens)
{
    char bytes[CLI_SIZE_TEXT];
    uint64_t read = cli_stats_read_bytes(since);
    if (strcmp(info->io, "mmap") == 0) { /* what is counted would say: all hits, nothing read */
        cli_note("experts are mapped: the kernel reads them unseen, outside of --ram");
    } else if (since->uses && (read || since->n_slots < info->n_experts_total)) {
        cli_note("experts: hit rate %.1f %%, %s read a token (%s); waited %.2f s for the drive, "
                 "%.0f %% of reading overlapped; %llu evictions; %u of %u in memory",
                 100 * cli_share(since->hits, since->uses),
                 cli_size_text(bytes, tokens ? read / tokens : read), info->io,
                 (double)since->stall_ns / 1e9, 100 * overlap(since),
                 (unsigned long long)since->evictions, (unsigned)since->n_slots_filled,
                 (unsigned)info->n_experts_total);
        note_ahead(since);
        if (since->n_slots_open < since->n_slots)
            cli_note("%u of %u expert slots are closed, for the context or since memory was asked "
                     "back",
                     (unsigned)(since->n_slots - since->n_slots_open), (unsigned)since->n_slots);
    }
    note_lossy(args, since);
}

const char *cli_live_text(char *text, const sluice_stats *since, uint64_t ns)
{
    char size[CLI_SIZE_TEXT];
    double rate = ns ? (double)since->eval_tokens * 1e9 / (double)ns : 0;
    size_t at = (size_t)snprintf(text, CLI_LIVE_TEXT, "%llu tokens, %.1f tok/s",
                                 (unsigned long long)since->eval_tokens, rate);
    if (since->uses && since->eval_tokens)
        (void)snprintf(text + at, CLI_LIVE_TEXT - at, ", hit rate %.0f %%, %s a token",
                       100 * cli_share(since->hits, since->uses),
                       cli_size_text(size, cli_stats_read_bytes(since) / since->eval_tokens));
    return text;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void put_rate(struct cli_json *json, const char *key, uint64_t part, uint64_t whole)
{
    if (whole)
        cli_json_number(json, key, cli_share(part, whole));
    else
        cli_json_null(json, key);
}

void cli_json_experts(struct cli_json *root, const sluice_stats *s)
{
    struct cli_json *json = cli_json_child(root, "experts");
    cli_json_integer(json, "slots", s->n_slots);
    cli_json_integer(json, "slots_open", s->n_slots_open);
    cli_json_integer(json, "slots_filled", s->n_slots_filled);
    cli_json_integer(json, "slots_bytes", s->slot_bytes);
    cli_json_integer(json, "uses", s->uses);
    cli_json_integer(json, "hits", s->hits);
    cli_json_integer(json, "hits_flying", s->hits_flying);
    put_rate(json, "hit_rate", s->hits, s->uses);
    cli_json_integer(json, "read_bytes", cli_stats_read_bytes(s));
    cli_json_integer(json, "demand_bytes", s->demand_bytes);
    cli_json_integer(json, "prompt_bytes", s->prompt_bytes);
    cli_json_integer(json, "ahead_bytes", s->ahead_bytes);
    cli_json_integer(json, "ahead_useful_bytes", s->ahead_useful_bytes);
    cli_json_integer(json, "ahead_wasted_bytes", s->ahead_wasted_bytes);
    cli_json_integer(json, "warm_bytes", s->warm_bytes);
    cli_json_integer(json, "evictions", s->evictions);
    cli_json_number(json, "stall_ms", (double)s->stall_ns / 1e6);
    cli_json_number(json, "read_ms", (double)s->read_ns / 1e6);
    if (s->read_ns)
        cli_json_number(json, "overlap", overlap(s));
    else
        cli_json_null(json, "overlap");
    cli_json_integer(json, "checked", s->checked);
    cli_json_integer(json, "predicted", s->predicted);
    cli_json_integer(json, "predicted_used", s->predicted_used);
    cli_json_integer(json, "dropped", s->dropped);
}

static void put_lossy(struct cli_json *settings, uint32_t lossy)
{
    struct cli_json *list = cli_json_child_array(settings, "lossy");
    if (lossy & SLUICE_LOSSY_EXPERTS_USED) cli_json_string(list, NULL, "experts_used");
    if (lossy & SLUICE_LOSSY_STICKY) cli_json_string(list, NULL, "sticky");
    if (lossy & SLUICE_LOSSY_DROP_COLD) cli_json_string(list, NULL, "drop_cold");
}

void cli_json_streaming_settings(struct cli_json *settings, const struct cli_args *args,
                                 const sluice_model_info *info)
{
    static const char *const prefetches[] = {"auto", "off", "forced"};
    cli_json_known_string(settings, "io", info->io);
    cli_json_known_string(settings, "cache_policy", info->cache_policy);
    cli_json_string(settings, "prefetch", prefetches[args->prefetch]);
    cli_json_integer(settings, "slots", info->n_slots);
    cli_json_known_string(settings, "hot_list", args->hot_list ? args->hot_list : "");
    cli_json_integer(settings, "experts_used", info->top_k);
    cli_json_number(settings, "sticky", args->sticky);
    cli_json_integer(settings, "sticky_size", (uint64_t)args->sticky_size);
    cli_json_number(settings, "drop_cold", args->drop_cold);
    put_lossy(settings, info->lossy);
}
