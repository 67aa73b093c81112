#!/bin/sh
# Runs every fuzz target for a number of CPU seconds: scripts/fuzz.sh [SECONDS] [TARGET...]
# What was found stays in fuzz/corpus (kept in the repository) and fuzz/artifacts (crashes).
set -eu
seconds=${1:-600}
[ $# = 0 ] || shift

need() { echo "fuzz: $*" >&2; exit 1; }
[ -d fuzz ] || need "there are no fuzz targets in this tree"
cargo +nightly --version > /dev/null 2>&1 || need "nightly Rust is needed: rustup toolchain install nightly"
cargo +nightly fuzz --version > /dev/null 2>&1 || need "cargo-fuzz is needed: cargo install --locked cargo-fuzz"

[ $# -gt 0 ] || set -- $(cargo +nightly fuzz list)
for target; do
    echo "fuzz: $target for $seconds s"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -print_final_stats=1
done
