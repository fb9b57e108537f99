#!/bin/sh
# Decode and prompt rates of a model that fits into memory: llama.cpp, Sluice, and Sluice on a
# container of the same model, in turn.
#
#   resident_ab.sh [options] MODEL.gguf [MODEL.sluice]
#
# Everybody evaluates the same ids (stream_tokens.py, unless --ids gives others): 512 at once as a
# prompt, and 128 one by one after 16 that are not counted. Keys and values are what each engine's
# defaults make of them (llama.cpp F16, Sluice int8); llama.cpp repacks weights as its defaults do.
# The model is read once before, so that nobody pays for the drive.
#
#   --runs N           rounds; each engine runs once a round (3)
#   -t N               threads (2)
#   --ids FILE         token ids, decimal, 512 at least
#   --sluice PROGRAM   (build/release/sluice of this tree)
#   --peer COMMAND     the other engine: python3 stream_llama.py, or with another python
#
# A row a run: prompt and decode tokens a second. Then, of each engine, the medians and their ratio
# to the first; how fast all threads read memory (median of a measurement a round); the bytes of
# weights that a token takes, and what part of that rate decoding reaches with them.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
runs=3 threads=2 ids='' sluice=$here/../../build/release/sluice peer="python3 $here/stream_llama.py"

usage()
{
    sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p;}' "$0"
}

fail()
{
    echo "resident_ab.sh: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case "$1" in
    --runs) runs=$2; shift ;;
    -t) threads=$2; shift ;;
    --ids) ids=$2; shift ;;
    --sluice) sluice=$2; shift ;;
    --peer) peer=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1; see --help" ;;
    *) break ;;
    esac
    shift
done
[ $# -eq 1 ] || [ $# -eq 2 ] || { usage >&2; exit 2; }
gguf=$1 container=${2:-}
[ -x "$sluice" ] || fail "no program $sluice; build it, or give --sluice"

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

# The value of a key in a file of JSON, the last where there are several.
number()
{
    python3 -c 'import json, sys
value = json.load(open(sys.argv[2]))
for key in sys.argv[1].split("."):
    value = value[int(key) if key.lstrip("-").isdigit() else key]
print(value)' "$1" "$2"
}

# "prompt rate, decode rate" of one run, to the list of NAME.
note()
{
    awk -v name="$1" -v p="$2" -v d="$3" 'BEGIN { printf "%-18s %10.2f %10.2f\n", name, p, d }'
    echo "$2" >> "$scratch/$1.prompt"
    echo "$3" >> "$scratch/$1.decode"
}

run_peer()
{
    $peer -m "$gguf" --tokens "$ids" -t "$threads" --prompt 512 --batch 512 --skip 16 -n 128 \
        > "$scratch/out" || fail "the other engine failed"
    note llama.cpp "$(awk -v ms="$(number prompt_ms "$scratch/out")" 'BEGIN { print 512e3 / ms }')" \
        "$(awk -v ms="$(number decode_ms "$scratch/out")" 'BEGIN { print 128e3 / ms }')"
}

run_sluice() # name, model
{
    "$sluice" bench prefill -m "$2" --tokens "$ids" -n 512 -c 1024 -t "$threads" -q --json \
        > "$scratch/prompt" || fail "sluice failed"
    "$sluice" bench decode -m "$2" --tokens "$ids" -n 128 --warm 16 -c 1024 -t "$threads" -q --json \
        > "$scratch/$1.json" || fail "sluice failed"
    note "$1" "$(number tokens_per_s "$scratch/prompt")" "$(number tokens_per_s "$scratch/$1.json")"
}

median()
{
    sort -n "$1" | awk '{ v[NR] = $1 } END { printf "%.4g\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

if [ -z "$ids" ]; then
    ids=$scratch/ids
    "$sluice" info "$gguf" --json > "$scratch/info" || exit 1
    python3 "$here/stream_tokens.py" --count 640 --below "$(number vocab_size "$scratch/info")" > "$ids" || exit 1
fi
cat "$gguf" ${container:+"$container"} > /dev/null || exit 1
"$sluice" --version
printf '%-18s %10s %10s\n' engine prompt/s decode/s
round=0
while [ "$round" -lt "$runs" ]; do
    "$sluice" bench memory -t "$threads" --json > "$scratch/out" || exit 1
    number memory.-1.bytes_per_s "$scratch/out" >> "$scratch/memory"
    run_peer
    run_sluice Sluice "$gguf"
    [ -z "$container" ] || run_sluice Sluice-container "$container"
    round=$((round + 1))
done

memory=$(median "$scratch/memory")
p1=$(median "$scratch/llama.cpp.prompt") d1=$(median "$scratch/llama.cpp.decode")
echo
awk -v m="$memory" -v t="$threads" 'BEGIN { printf "%d threads read memory at %.1f GB/s\n", t, m / 1e9 }'
printf '%-18s %10s %7s %10s %7s %12s %7s\n' medians prompt/s ratio decode/s ratio MB/token share
for name in llama.cpp Sluice Sluice-container; do
    [ -e "$scratch/$name.decode" ] || continue
    bytes=0
    [ ! -e "$scratch/$name.json" ] || bytes=$(number token_weight_bytes "$scratch/$name.json")
    awk -v name="$name" -v p="$(median "$scratch/$name.prompt")" -v d="$(median "$scratch/$name.decode")" \
        -v p1="$p1" -v d1="$d1" -v bytes="$bytes" -v memory="$memory" 'BEGIN {
        printf "%-18s %10.2f %7.2f %10.2f %7.2f", name, p, p / p1, d, d / d1
        if (bytes > 0) printf " %12.1f %7.2f", bytes / 1e6, d * bytes / memory
        printf "\n" }'
done
