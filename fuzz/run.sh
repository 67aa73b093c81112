#!/bin/sh
# Runs fuzz targets, each for a number of CPU seconds:
#
#     fuzz/run.sh                     # every target for 600 s
#     fuzz/run.sh 60                  # every target for 60 s
#     fuzz/run.sh 60 cut_csv sniff    # these two
#     fuzz/run.sh 0                   # only run what was kept: fuzz/corpus and fuzz/regressions
#
# What is new goes to fuzz/target/found/TARGET, what fails to fuzz/artifacts/TARGET, one line per run to
# fuzz/target/runs.log. `fuzz/run.sh keep [TARGET...]` adds to fuzz/corpus what reaches code that nothing
# kept there reaches.
#
# Needs Rust and a C++ compiler (libFuzzer is compiled from its sources). Stable Rust will do: the unstable
# flag is unlocked for this build only. Ends with 1 if a target failed.
set -eu
cd "$(dirname "$0")"

say() { echo "fuzz: $*" >&2; }
for tool in cargo:"Rust (https://rustup.rs)" c++:"a C++ compiler (Debian, Ubuntu: apt-get install g++)"; do
    command -v "${tool%%:*}" > /dev/null || { say "please install ${tool#*:}"; exit 1; }
done

seconds=${1:-600}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- $(sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"/\1/p}' Cargo.toml)

host=$(rustc -vV | sed -n 's/^host: //p')
build=target/$host/release
# As cargo-fuzz has it: coverage for libFuzzer, comparisons traced, memory errors found.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Cforce-frame-pointers"
bins=
for target; do
    bins="$bins --bin $target"
    [ "$target" != columnar ] || bins="$bins --features columnar"
done
# shellcheck disable=SC2086 # words on purpose
RUSTC_BOOTSTRAP=1 RUSTFLAGS="$coverage" CARGO_TARGET_DIR=target \
    cargo build --release --locked --target "$host" $bins

# Inputs are small; what is made of them must be bounded, too, and memory that is asked for and never touched
# counts. The Parquet reader reserves what the header of a compressed page says, 2 GiB at most, before it is read.
limits="-timeout=20 -rss_limit_mb=3072 -max_len=12000"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0:allocator_may_return_null=1}"

cpu() { # pid -> CPU seconds, user and system
    awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print int(($12 + $13) / hz) }' "/proc/$1/stat" 2> /dev/null || echo 0
}

failed=0
for target; do
    mkdir -p "corpus/$target" "regressions/$target" "artifacts/$target" "target/found/$target" target/logs
    log=target/logs/$target.log
    most=512
    [ "$target" != columnar ] || most=2100
    options="$limits -malloc_limit_mb=$most -artifact_prefix=artifacts/$target/ -print_final_stats=1"
    if [ "$seconds" = keep ]; then
        # Only what reaches new code: how often it does would make the corpus many times as large.
        "$build/$target" $limits -use_counters=0 -set_cover_merge=1 "corpus/$target" "target/found/$target" > "$log" 2>&1 ||
            { failed=1; say "$target: failed, see fuzz/$log"; continue; }
        say "$target: $(find "corpus/$target" -type f | wc -l) inputs"
        continue
    fi
    if [ "$seconds" = 0 ]; then
        find "corpus/$target" "regressions/$target" -type f -exec "$build/$target" $options {} + > "$log" 2>&1 ||
            { failed=1; say "$target FAILED, see fuzz/$log"; continue; }
        say "$target: what was kept passes"
        continue
    fi
    "$build/$target" $options "target/found/$target" "corpus/$target" "regressions/$target" > "$log" 2>&1 &
    pid=$!
    trap 'kill $pid 2> /dev/null; exit 130' INT TERM
    spent=0
    while kill -0 $pid 2> /dev/null; do
        now=$(cpu $pid)
        # The process may end between the two looks at it.
        [ "$now" -lt "$spent" ] || spent=$now
        [ "$spent" -lt "$seconds" ] || { kill -INT $pid 2> /dev/null || true; break; }
        sleep 1
    done
    status=0
    wait $pid || status=$?
    trap - INT TERM
    # libFuzzer's status for being interrupted.
    [ "$status" != 72 ] || status=0
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    result=ok
    [ "$status" = 0 ] || { failed=1; result="FAILED, see fuzz/$log and fuzz/artifacts/$target"; }
    line="$(date -u +%F) $target $(git rev-parse --short HEAD) $spent CPU s, ${runs:-?} runs: $result"
    echo "$line" >> target/runs.log
    say "$line"
done
exit $failed
