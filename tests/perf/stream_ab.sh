#!/bin/sh
# Decode rate of Sluice and of another engine, in turn, under one memory limit.
#
#   stream_ab.sh [options] MODEL.gguf IDS
#
# Each run is by itself in a memory control group of the given limit, which counts page cache too,
# after all caches were dropped; before each pair of runs the drive's rate is measured. IDS holds
# token ids, decimal, separated by white space. Both engines evaluate the same ids, one at a time:
# those that --skip says without being counted, then those that are timed.
#
# The other engine, by default llama.cpp through stream_llama.py, gets the model as a read-only loop
# device with direct I/O, whose read-ahead can be set without touching the drive's: with megabytes
# of read-ahead, as some drives have, an engine that maps its file reads many times what it needs.
#
# Needs root (control groups, loop devices, dropping caches), Linux, and python3.
#
#   --limit SIZE        of the control group (1G)
#   --ram SIZE          for Sluice (97 % of the limit)
#   --runs N            of each engine (3)
#   -n N                tokens that are timed (200)
#   --skip N            tokens before them (0)
#   -c N                context (1024)
#   --sluice PROGRAM    (build/release/sluice of this tree)
#   --sluice-options W  more words for it, such as '--io pread'
#   --peer COMMAND      the other engine: gets -m, --tokens, -n, --skip, -c, and prints JSON with
#                       decode_tokens and decode_ms (python3 stream_llama.py)
#   --peer-readahead N  KiB of the loop device (128); 0: the file itself, with the drive's
#   --only NAME         sluice or peer
#   --request N         bytes of a read when the drive is measured (675840)
#   --depth N           such reads at once (16); 0: the drive is not measured
#   --keep DIR          keep what every run printed there
#
# A row a run: tokens a second; MB a token read from the drive while decoding, as the system counts
# it for the whole drive; the group's peak in MB, page cache included, and as a share of the limit;
# the drive's rate in MB/s; seconds until decoding began; and how busy the processors were in the
# second before or after the run, whichever was more: other work on the machine makes a run void.
# Then medians and their ratio.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
limit=1G ram='' runs=3 n=200 skip=0 ctx=1024
sluice=$here/../../build/release/sluice sluice_options=''
peer="python3 $here/stream_llama.py" readahead=128 only='' request=675840 depth=16 keep=''
group='' loop='' scratch='' sampler='' engine=''

fail()
{
    echo "stream_ab.sh: $*" >&2
    exit 1
}

usage()
{
    sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p;}' "$0"
}

# Bytes of 4096, 512K, 1.5G and the like.
bytes()
{
    echo "$1" | awk '
        !/^[0-9]+(\.[0-9]+)?[KMGkmg]?$/ { exit 1 }
        { f = 1; u = toupper(substr($0, length($0)))
          if (u == "K") f = 1024; if (u == "M") f = 1048576; if (u == "G") f = 1073741824
          printf "%.0f\n", $0 * f }' || fail "'$1' is not a size"
}

# The first number of that key in a file of JSON; nothing where there is none.
number()
{
    tr ',{}' '[\n*]' < "$2" | awk -F: -v key="\"$1\"" '
        { gsub(/[ \t]/, "") } $1 == key && $2 + 0 == $2 { print $2; exit }'
}

# The folder of the controller that limits memory; control groups of version 1, then 2.
controller()
{
    folder=$(awk '$3 == "cgroup" && ("," $4 ",") ~ /,memory,/ { print $2; exit }' /proc/mounts)
    if [ -z "$folder" ]; then
        folder=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
        grep -qw memory "$folder/cgroup.controllers" 2> /dev/null ||
            fail "no control group limits memory here"
        echo +memory > "$folder/cgroup.subtree_control" 2> /dev/null
    fi
    echo "$folder"
}

group_open()
{
    group=$groups/stream_ab_$$
    mkdir "$group" || fail "cannot make a control group; root?"
    if [ -e "$group/memory.limit_in_bytes" ]; then
        echo "$limit" > "$group/memory.limit_in_bytes" || fail "cannot set the limit"
        [ ! -e "$group/memory.memsw.limit_in_bytes" ] ||
            echo "$limit" > "$group/memory.memsw.limit_in_bytes" # no swap beyond it
    else
        echo "$limit" > "$group/memory.max" || fail "cannot set the limit"
        [ ! -e "$group/memory.swap.max" ] || echo 0 > "$group/memory.swap.max"
    fi
}

group_peak()
{
    cat "$group/memory.max_usage_in_bytes" "$group/memory.peak" 2> /dev/null
}

group_close()
{
    [ -n "$group" ] || return 0
    for _ in 1 2 3 4 5; do # a process that has just ended may linger
        rmdir "$group" 2> /dev/null && break
        sleep 0.3
    done
    group=''
}

# Lines of "seconds since boot, bytes read from the drive since boot", four a second, into a file.
sample()
{
    while :; do
        read -r up _ < /proc/uptime
        read -r _ _ sectors _ < "$counts"
        echo "$up $sectors"
        sleep 0.25
    done > "$1"
}

# MB that the drive read in the last $2 milliseconds before $3 (seconds since boot).
drive_read()
{
    awk -v from="$3" -v ms="$2" '
        BEGIN { from -= ms / 1000 }
        $1 <= from { first = $2 } first == "" { first = $2 } { last = $2 }
        END { printf "%.3f\n", (last - first) * 512 / 1e6 }' "$1"
}

drive_rate()
{
    [ "$depth" -gt 0 ] || return 0
    drop_caches
    rate=$(python3 "$here/stream_drive.py" "$model" --bytes "$request" --depth "$depth") ||
        fail "cannot measure the drive"
    echo "$rate" > "$scratch/rate.$run.json"
    rate=$(number mb_per_s "$scratch/rate.$run.json")
}

drop_caches()
{
    sync
    echo 3 > /proc/sys/vm/drop_caches || fail "cannot drop caches; root?"
}

# Percent of all processors' time that was spent working in the next second.
busy()
{
    { head -n 1 /proc/stat; sleep 1; head -n 1 /proc/stat; } | awk '
        { all = 0; for (i = 2; i <= 9; i++) all += $i; idle = $5 + $6 }
        NR == 1 { all_then = all; idle_then = idle }
        END { printf "%.0f\n", 100 * (1 - (idle - idle_then) / (all - all_then)) }'
}

# Runs the words after the first in the group; $1 names the row and the files.
measure()
{
    name=$1
    shift
    out=$scratch/$name.$run.json
    drop_caches
    busy_before=$(busy)
    group_open
    sample "$scratch/samples" &
    sampler=$!
    read -r begun _ < /proc/uptime
    sh -c 'echo $$ > "$0" && exec "$@"' "$group/cgroup.procs" "$@" \
        > "$out" 2> "$scratch/$name.$run.log" &
    engine=$! # in the background, so that a signal is handled at once
    wait "$engine"
    code=$?
    engine=''
    read -r ended _ < /proc/uptime
    kill "$sampler"
    wait "$sampler" 2> /dev/null
    sampler=''
    read -r _ _ sectors _ < "$counts"
    echo "$ended $sectors" >> "$scratch/samples"
    peak=$(group_peak)
    group_close
    busy_after=$(busy)
    if [ $code -ne 0 ]; then
        tail -n 5 "$scratch/$name.$run.log" >&2
        fail "$name ended with $code"
    fi
    report
}

# The row of the run just made; its rate also goes into a list for the medians.
report()
{
    tokens=$(number decode_tokens "$out")
    ms=$(number decode_ms "$out")
    if [ -z "$tokens" ] || [ -z "$ms" ]; then fail "$name did not say tokens and time"; fi
    read_mb=$(drive_read "$scratch/samples" "$ms" "$ended")
    echo "$tokens $ms $read_mb $peak $limit $begun $ended $busy_before $busy_after" |
        awk -v name="$name" -v run="$run" -v rate="${rate:--}" '{
            printf "%-8s %3d %8.3f %13.1f %9.1f %7.1f %% %11s %10.1f %4d %%\n", name, run,
                1000 * $1 / $2, $3 / $1, $4 / 1e6, 100 * $4 / $5, rate, $7 - $6 - $2 / 1e3,
                ($8 > $9 ? $8 : $9) }'
    echo "$tokens $ms" | awk '{ print 1000 * $1 / $2 }' >> "$scratch/$name.rates"
}

median()
{
    sort -g "$1" | awk '{ v[NR] = $1 }
        END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

summary()
{
    for name in sluice peer; do
        [ -e "$scratch/$name.rates" ] || continue
        sort -g "$scratch/$name.rates" |
            awk -v name=$name -v median="$(median "$scratch/$name.rates")" '
                { if (NR == 1) low = $1; high = $1 }
                END { printf "%s: median %.3f tok/s of %d (%.3f to %.3f)\n",
                      name, median, NR, low, high }'
    done
    [ -e "$scratch/sluice.rates" ] && [ -e "$scratch/peer.rates" ] || return 0
    echo "$(median "$scratch/sluice.rates") $(median "$scratch/peer.rates")" |
        awk '{ printf "sluice / peer: %.2f\n", $1 / $2 }'
}

clean()
{
    [ -z "$sampler" ] || kill "$sampler"
    if [ -n "$engine" ]; then
        kill "$engine"
        wait "$engine"
    fi
    group_close
    [ -z "$loop" ] || losetup -d "$loop"
    if [ -n "$keep" ] && [ -n "$scratch" ]; then
        mkdir -p "$keep" && cp "$scratch"/*.json "$scratch"/*.log "$keep" 2> /dev/null
    fi
    [ -z "$scratch" ] || rm -rf "$scratch"
}

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    -*) [ $# -ge 2 ] || fail "$1 needs a value; see --help" ;;
    *) break ;;
    esac
    case $1 in
    --limit) limit=$2 ;;
    --ram) ram=$2 ;;
    --runs) runs=$2 ;;
    -n) n=$2 ;;
    --skip) skip=$2 ;;
    -c) ctx=$2 ;;
    --sluice) sluice=$2 ;;
    --sluice-options) sluice_options=$2 ;;
    --peer) peer=$2 ;;
    --peer-readahead) readahead=$2 ;;
    --only) only=$2 ;;
    --request) request=$2 ;;
    --depth) depth=$2 ;;
    --keep) keep=$2 ;;
    *) fail "unknown option $1; see --help" ;;
    esac
    shift 2
done
[ $# -eq 2 ] || fail "needs a model and a file of token ids; see --help"
model=$1 ids=$2
if [ ! -r "$model" ] || [ ! -r "$ids" ]; then fail "cannot read $model, or $ids"; fi
limit=$(bytes "$limit") || exit 1
ram=$(bytes "${ram:-$((limit * 97 / 100))}") || exit 1
groups=$(controller) || exit 1
drive=$(readlink -f "$(df --output=source "$model" | tail -n 1)")
counts=/sys/class/block/${drive##*/}/stat
[ -r "$counts" ] || fail "cannot tell the drive under $model"
scratch=$(mktemp -d) || exit 1
trap clean EXIT
trap 'exit 130' INT TERM

have=$(wc -w < "$ids")
[ "$have" -ge $((skip + n)) ] || fail "$ids holds $have ids, not $((skip + n))"
tr -s ' \t\r\n' '\n' < "$ids" | grep . | head -n $((skip + n)) > "$scratch/ids"

peer_model=$model
if [ "$only" != sluice ] && [ "$readahead" -gt 0 ]; then
    [ $(($(stat -c %s "$model") % 512)) -eq 0 ] ||
        fail "a loop device needs whole blocks; lengthen the file: truncate -s %4096 $model"
    loop=$(losetup -r --direct-io=on -f --show "$model") || fail "cannot make a loop device"
    blockdev --setra $((readahead * 2)) "$loop" || fail "cannot set the read-ahead"
    peer_model=$loop
fi

run_sluice()
{
    # shellcheck disable=SC2086 # the options are words
    measure sluice "$sluice" bench decode -m "$model" --tokens "$scratch/ids" -c "$ctx" \
        --ram "$ram" --warm "$skip" -n "$n" --json $sluice_options
}

run_peer()
{
    # shellcheck disable=SC2086 # the command is words
    measure peer $peer -m "$peer_model" --tokens "$scratch/ids" -n "$n" --skip "$skip" -c "$ctx"
}

echo "limit $limit, sluice --ram $ram, $n tokens after $skip, context $ctx"
echo "engine   run    tok/s  drive MB/tok   peak MB  of limit  drive MB/s  to decode   busy"
run=0
while [ $run -lt "$runs" ]; do
    run=$((run + 1))
    drive_rate
    [ "$only" = sluice ] || run_peer
    [ "$only" = peer ] || run_sluice
done
summary
