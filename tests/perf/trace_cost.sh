#!/bin/sh
# What recording costs: bench decode with and without --trace, in turn.
#
#   trace_cost.sh [options] MODEL
#
# The ids are bench's own. Each round runs both, the one that goes first in turn, so that a machine
# that becomes slower or faster counts for both. Rows: tokens a second, and the processor's
# milliseconds a token, loading included, which other work on the machine disturbs less. Then the
# medians, and by how many percent recording is slower.
#
#   --runs N           rounds (9)
#   -n N               tokens (200)
#   -t N               threads (1)
#   --slots N          of the expert cache; 0: all stay in memory (0)
#   --trace FILE       what is written (a temporary file)
#   --sluice PROGRAM   (build/release/sluice of this tree)
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
runs=9 n=200 threads=1 slots=0 trace='' sluice=$here/../../build/release/sluice

fail()
{
    echo "trace_cost.sh: $*" >&2
    exit 1
}

while [ $# -gt 1 ]; do
    case $1 in
    --runs) runs=$2 ;;
    -n) n=$2 ;;
    -t) threads=$2 ;;
    --slots) slots=$2 ;;
    --trace) trace=$2 ;;
    --sluice) sluice=$2 ;;
    *) fail "unknown option $1; see the top of this file" ;;
    esac
    shift 2
done
[ $# -eq 1 ] && [ -r "$1" ] || fail "needs a model; see the top of this file"
model=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
[ -n "$trace" ] || trace=$scratch/trace

# The first number of that key in a file of JSON.
number()
{
    tr ',{}' '[\n*]' < "$2" | awk -F: -v key="\"$1\"" '
        { gsub(/[ \t]/, "") } $1 == key && $2 + 0 == $2 { print $2; exit }'
}

# $1: off or on
measure()
{
    out=$scratch/$1.json
    set -- "$1" "$sluice" bench decode -m "$model" -n "$n" -c "$((n + 64))" -t "$threads" \
        --slots "$slots" --prefetch off --json
    [ "$1" = off ] || set -- "$@" --trace "$trace"
    name=$1
    shift
    python3 -c '
import resource, subprocess, sys
with open(sys.argv[1], "wb") as out:
    code = subprocess.call(sys.argv[2:], stdout=out, stderr=subprocess.DEVNULL)
r = resource.getrusage(resource.RUSAGE_CHILDREN)
print(r.ru_utime + r.ru_stime)
sys.exit(code)' "$out" "$@" > "$scratch/cpu" || fail "sluice ended with an error"
    ms=$(number decode_ms "$out")
    echo "$n $ms $(cat "$scratch/cpu")" | awk -v name="$name" -v run="$run" '{
        printf "%-4s %3d %10.2f %12.3f\n", name, run, 1000 * $1 / $2, 1000 * $3 / $1 }'
    echo "$n $ms $(cat "$scratch/cpu")" | awk '{ print 1000 * $1 / $2 }' >> "$scratch/$name.rates"
    echo "$n $ms $(cat "$scratch/cpu")" | awk '{ print 1000 * $3 / $1 }' >> "$scratch/$name.cpu"
}

median()
{
    sort -g "$1" | awk '{ v[NR] = $1 }
        END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

echo "trace run   tokens/s  cpu ms/token"
run=0
while [ $run -lt "$runs" ]; do
    run=$((run + 1))
    if [ $((run % 2)) -eq 1 ]; then
        measure off
        measure on
    else
        measure on
        measure off
    fi
done
echo "$(median "$scratch/off.rates") $(median "$scratch/on.rates") $(median "$scratch/off.cpu") \
$(median "$scratch/on.cpu")" | awk '{
    printf "medians: %.2f and %.2f tokens/s, with a trace %.2f %% slower; ", $1, $2, 100 * (1 - $2 / $1)
    printf "%.3f and %.3f ms of processor a token, %.2f %% more\n", $3, $4, 100 * ($4 / $3 - 1) }'
[ ! -f "$trace" ] || echo "$(wc -c < "$trace") $n" | awk '{ printf "%.0f bytes a token\n", $1 / $2 }'
