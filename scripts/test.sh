#!/bin/sh
# Every test. Says how long each part took, and fails if one fails.
#
# The tests run with the dev profile (our code at opt-level 1): a release build of everything takes longer than
# it saves, and debug assertions and overflow checks would be off.
set -eu
cargo=${CARGO:-cargo}

began=$(date +%s)
times=
part() { # name command...
    name=$1
    shift
    start=$(date +%s)
    "$@"
    times="$times
$(printf '%6d s  %s' $(($(date +%s) - start)) "$name")"
}

# Where 16 and 18 can be had, a test that misses one fails. Where not, such tests say SKIPPED.
servers() {
    if sh tests/servers.sh; then
        export INRUSH_TEST_REQUIRE_SERVERS=1
    else
        echo "tests that need PostgreSQL 16 or 18 will say that they are skipped" >&2
    fi
}

# The same for a Kafka broker.
broker() {
    if sh tests/kafka.sh; then
        export INRUSH_TEST_REQUIRE_KAFKA=1
    else
        echo "tests that need Kafka will say that they are skipped" >&2
    fi
}

part "fetch PostgreSQL 16 and 18" servers
part "fetch Kafka" broker
# One that fails does not keep the others from running.
failed=
extension() { RECOVERY=small sh tests/extension.sh || failed=1; }
part "the extension, on every server" extension
# Built from its source, once: packages of it are for newer systems, and assertions find what the others pass over.
checking() {
    if SUITE=trixie sh scripts/postgres.sh asserts 17; then
        CHECKING=asserts VERSIONS=17 sh tests/extension.sh || failed=1
    else
        echo "SKIPPED: the extension on PostgreSQL 17 with assertions, which could not be built: see above" >&2
    fi
}
part "the extension, on 17 with assertions" checking
part "build" $cargo test --workspace --locked --no-run
part "tests" $cargo test --workspace --locked --no-fail-fast
printf '\nWhere the time went:%s\n%6d s  in all\n' "$times" $(($(date +%s) - began))
[ -z "$failed" ] || { echo "the tests of the extension failed: see above" >&2; exit 1; }
