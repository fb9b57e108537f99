#!/bin/sh
# Builds Sluice and runs its tests: one command from a fresh clone.
#
#   sh tools/test.sh            release and asan (address + undefined behaviour) with gcc, arm64-quick
#   sh tools/test.sh --all      also debug, clang, tsan (thread tests), arm64 and a minute of fuzzing per parser
#   sh tools/test.sh PRESET...  only these of CMakePresets.json, or arm64-quick
#
# arm64: what ARM could break, cross-compiled, under qemu; arm64-quick: the part of it that proves most in a
# minute, skipped where its compiler, emulator and libraries cannot be had.
# FUZZ_SECONDS changes the minute. Exit code 0 only where every test of every preset passed.
set -eu

case "${1:-}" in
-h | --help)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
--all) presets="release asan debug clang tsan arm64 fuzz" ;;
'') presets="release asan arm64-quick" ;;
-*)
    echo "test.sh: unknown option $1; see --help" >&2
    exit 2
    ;;
*) presets="$*" ;;
esac

cd "$(dirname "$0")/.."
jobs=$(nproc 2>/dev/null || echo 2)
fuzz_seconds=${FUZZ_SECONDS:-60}
thread_tests='pool|api|expert_store'
summary=
failures=0

needed=
case " $presets " in *" clang "* | *" fuzz "*) needed=--clang ;; esac
case " $presets " in *" arm64 "*) needed="$needed --arm64" ;; esac
sh tools/install_deps.sh $needed

note() { # preset, verdict
    summary="$summary
  $1: $2"
}

# Shows the end of a log; all of it where something went wrong.
build() { # preset
    log=build/$1.log
    mkdir -p build
    echo "== $1: configure and build"
    if cmake --preset "$1" >"$log" 2>&1 && cmake --build --preset "$1" -j "$jobs" >>"$log" 2>&1; then
        return 0
    fi
    cat "$log"
    note "$1" "does not build"
    failures=$((failures + 1))
    return 1
}

run_ctest() { # preset, further arguments of ctest
    preset=$1
    shift
    log=build/$preset-ctest.log
    status=0
    echo "== $preset: tests, some minutes; log in $log"
    (cd "build/$preset" && ctest --output-on-failure -j "$jobs" "$@") >"$log" 2>&1 || status=$?
    # A filter that matches nothing must not look like success.
    if grep -q 'No tests were found' "$log"; then status=1; fi
    if [ "$status" -eq 0 ]; then
        tail -n 4 "$log"
    else
        cat "$log"
        failures=$((failures + 1))
    fi
    note "$preset" "$(grep -E 'tests passed|No tests were found' "$log" | tail -n 1)"
    failed=$(sed -n '/^The following tests FAILED:/,/^Errors/s/^[[:space:]]*[0-9][0-9]* - //p' "$log")
    [ -z "$failed" ] || note "$preset failed" "$(echo "$failed" | tr '\n' ' ')"
}

# The preset arm64, built and tested in part.
run_arm64_quick() {
    mkdir -p build
    if ! timeout 300 sh tools/install_deps.sh --arm64 >build/arm64-deps.log 2>&1; then
        tail -n 5 build/arm64-deps.log
        note arm64-quick "SKIPPED, since what it needs cannot be installed here: build/arm64-deps.log"
        return
    fi
    build arm64 || return 0
    run_ctest arm64 -L arm64-quick
}

run_fuzz() {
    targets=0
    for target in build/fuzz/tests/fuzz/fuzz_*; do
        [ -x "$target" ] && [ -f "$target" ] || continue
        targets=$((targets + 1))
        name=$(basename "$target")
        found=build/fuzz/found/$name
        mkdir -p "$found"
        echo "== $name: $fuzz_seconds s"
        if "$target" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=2048 \
            -artifact_prefix="$found/" "$found" "tests/fuzz/corpus/${name#fuzz_}" \
            >"build/$name.log" 2>&1; then
            tail -n 1 "build/$name.log"
            note "$name" "no finding in $fuzz_seconds s"
        else
            tail -n 60 "build/$name.log"
            note "$name" "FAILED, input in $found/"
            failures=$((failures + 1))
        fi
    done
    if [ "$targets" -eq 0 ]; then
        note fuzz "no target was built"
        failures=$((failures + 1))
    fi
}

for preset in $presets; do
    if [ "$preset" = arm64-quick ]; then
        run_arm64_quick
        continue
    fi
    build "$preset" || continue
    case $preset in
    fuzz) run_fuzz ;;
    tsan) run_ctest tsan -R "$thread_tests" ;;
    arm64) run_ctest arm64 -L arm64 ;; # what ARM could break; all else takes an emulator too long
    *) run_ctest "$preset" ;;
    esac
done

echo "== summary$summary"
[ "$failures" -eq 0 ] || exit 1
