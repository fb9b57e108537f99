/* What reading experts took: notes, JSON, and the lossy settings by name. */
#ifndef CLI_STREAMING_H
#define CLI_STREAMING_H

#include "include/sluice.h"
#include "tools/args.h"
#include "tools/json_out.h"

/* The figures between two looks at a session; those of now where they are no counts. */
sluice_stats cli_stats_since(const sluice_stats *before, const sluice_stats *now);

/* All bytes that were read from the files. */
uint64_t cli_stats_read_bytes(const sluice_stats *stats);

/* Part of a whole, 0..1; 0 of nothing. */
double cli_share(uint64_t part, uint64_t whole);

/* Notes after a run: hit rate, bytes a token, stall and overlap, reading ahead, evictions, memory
 * against the budget; and every lossy setting that was on. since: what the run took. tokens: how
 * many the bytes are divided by. Says nothing about experts where all stayed in memory. */
void cli_streaming_note(const struct cli_args *args, const sluice_model_info *info,
                        const sluice_stats *since, uint64_t tokens);

/* "512.3 MiB of --ram 1.0 GiB"; text has CLI_PEAK_TEXT bytes and is returned. */
#define CLI_PEAK_TEXT 64
const char *cli_peak_text(char *text, const sluice_stats *stats, const sluice_model_info *info);

/* The objects "experts" and, where the settings are asked for, their part of "settings". */
void cli_json_experts(struct cli_json *root, const sluice_stats *stats);
void cli_json_streaming_settings(struct cli_json *settings, const struct cli_args *args,
                                 const sluice_model_info *info);

/* "12.3 tok/s, hit rate 71 %, 80.2 MiB a token" for the line that is shown while it runs; text has
 * CLI_LIVE_TEXT bytes and is returned. */
#define CLI_LIVE_TEXT 128
const char *cli_live_text(char *text, const sluice_stats *since, uint64_t ns);

#endif
