#!/bin/sh
# Decode rate with 1 to 8 threads: no number of them may be much slower than the best.
#
#   threads.sh [options] MODEL
#
#   --most N           threads at most (8)
#   --runs N           rounds; the median of a number's runs counts (3)
#   -n N               tokens that are timed (64), after 16 that are not
#   --sluice PROGRAM   (build/release/sluice of this tree)
#
# Prints asked for, in use (more than the process has cores are cut to that), tokens a second, and
# the ratio to the best. Exit code 1 where one is below 0.8.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
most=8 runs=3 n=64 sluice=$here/../../build/release/sluice

while [ $# -gt 1 ]; do
    case "$1" in
    --most) most=$2 ;;
    --runs) runs=$2 ;;
    -n) n=$2 ;;
    --sluice) sluice=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -eq 1 ] || { sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p;}' "$0" >&2; exit 2; }

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

round=0
while [ "$round" -lt "$runs" ]; do
    for t in $(seq "$most"); do
        "$sluice" bench decode -m "$1" -t "$t" -n "$n" --warm 16 -q --json > "$scratch/out" || exit 1
        python3 -c 'import json, sys
run = json.load(open(sys.argv[1]))
print(sys.argv[2], run["settings"]["threads"], run["tokens_per_s"])' "$scratch/out" "$t" >> "$scratch/all"
    done
    round=$((round + 1))
done
sort -k1,1n -k3,3n "$scratch/all" | awk '
    { used[$1] = $2; rate[$1, ++count[$1]] = $3; if ($1 > most) most = $1 }
    END {
        for (t = 1; t <= most; t++) {
            middle[t] = rate[t, int((count[t] + 1) / 2)]
            if (middle[t] > best) best = middle[t]
        }
        printf "%8s %8s %10s %8s\n", "threads", "in use", "tok/s", "of best"
        for (t = 1; t <= most; t++) {
            printf "%8d %8d %10.2f %8.2f\n", t, used[t], middle[t], middle[t] / best
            if (middle[t] < 0.8 * best) slow = 1
        }
        exit slow
    }'
