/* Token ids from a file, for the programs of this folder. */
#ifndef SL_PERF_IDS_H
#define SL_PERF_IDS_H

#include <inttypes.h>
#include <stdio.h>

#define IDS_MAX 8192

/* Decimal ids separated by white space, at most IDS_MAX of them. Returns how many. */
static inline size_t read_ids(const char *path, int32_t *ids)
{
    FILE *f = fopen(path, "r");
    size_t n = 0;
    while (f && n < IDS_MAX && fscanf(f, "%" SCNd32, &ids[n]) == 1) n++;
    if (f) fclose(f);
    return n;
}

#endif
