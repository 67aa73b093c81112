#!/bin/sh
# Runs the suites of the extension on PostgreSQL 15, 16 and 18 (and 17, where there is one with headers):
#
#     tests/extension.sh                      # every test on every server
#     tests/extension.sh types hostile        # only these
#     VERSIONS='16 18' tests/extension.sh     # only there
#     KEEP=1 tests/extension.sh types         # leaves the directory with the results
#     ACCEPT=1 tests/extension.sh types       # takes what comes out as what is expected: read the diff
#
#     INRUSH_KILLS=300 tests/extension.sh crash    # kills servers so often; INRUSH_SEED=N repeats a run
#     INRUSH_FUZZ_SECONDS=600 tests/extension.sh fuzz     # CPU seconds of a hostile client, and other seeds
#     CHECKING=asserts tests/extension.sh          # on a server of scripts/postgres.sh; or sanitize, or valgrind
#
# pg_regress runs extension/test/sql, and extension/test/isolation.py runs extension/test/specs, each on a server of
# its own in a directory under $TMPDIR, on a Unix socket, with the extension built from the working tree
# (tests/extension-server.sh). Where they differ from extension/test/expected, the differences are printed.
# extension/test/recovery.py has servers of its own, in the same directory, that die: it runs for the tests that are
# named, and as a whole with RECOVERY=1, or in a small version with RECOVERY=small, as in scripts/test.sh.
# extension/test/cluster.py has three servers of its own, for distribute_dml(). Its test "citus" wants a cluster that is
# there: INRUSH_TEST_CITUS, as in that file.
# extension/test/fuzz.py sends what was kept in fuzz/corpus/direct, and then what nobody has thought of: for some
# seconds with numbers that are always the same, unless INRUSH_FUZZ_SECONDS asks for more. What fails it leaves in
# fuzz/artifacts/direct, what is new in fuzz/target/found/direct.
#
# A version that cannot be tested says SKIPPED and why; with CI or INRUSH_TEST_REQUIRE_SERVERS set that is a failure.
set -u

cd "$(dirname "$0")/.."
tests=$PWD/extension/test
if [ "$(id -u)" = 0 ]; then
    default=/var/cache/inrush-test-servers
    user=postgres
    id postgres > /dev/null 2>&1 || user=nobody
    as="setpriv --reuid=$user --regid=$(id -g $user) --clear-groups"
else
    default=$HOME/.cache/inrush-test-servers
    user=
    as=
fi
servers=${INRUSH_TEST_SERVERS:-$default}
# No setting of the developer's reaches psql or the server.
for name in $(env | sed -n 's/^\(PG[A-Z_]*\)=.*/\1/p'); do
    [ "$name" = PG_CONFIG ] || unset "$name"
done
unset LANGUAGE
export LC_ALL=C
# A server with sanitizers: leaks at the end of a process are its way, and it compares addresses on the stack.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
CHECKING=${CHECKING:-}
# The fuzzer: without a wish for more the same cases every time.
seconds=${INRUSH_FUZZ_SECONDS:-10}
seed=${INRUSH_SEED:-$([ -n "${INRUSH_FUZZ_SECONDS:-}" ] || echo 1)}
# Of this script and what it starts; pg_regress looks for a shell there too.
umask 022

have() { case " $1 " in *" $2 "*) true ;; *) false ;; esac }
major_of() { "$1" --version 2> /dev/null | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'; }

# The pg_config for a major version, or nothing.
find_pg_config() { # major
    if [ -n "$CHECKING" ]; then
        # valgrind runs the one that has its requests.
        kind=$(echo "$CHECKING" | sed 's/^valgrind$/asserts/')
        [ ! -x "$servers/checking/$1-$kind/bin/pg_config" ] || echo "$servers/checking/$1-$kind/bin/pg_config"
        return
    fi
    for candidate in "${PG_CONFIG:-}" "/usr/lib/postgresql/$1/bin/pg_config" "/usr/pgsql-$1/bin/pg_config" \
        "$servers/$1/bin/pg_config" "$(command -v pg_config)"; do
        if [ -x "$candidate" ] && [ "$(major_of "$candidate")" = "$1" ]; then
            echo "$candidate"
            return
        fi
    done
}

# Why a version cannot be tested, or nothing.
obstacle() { # pg_config
    if [ "$CHECKING" = valgrind ] && ! command -v valgrind > /dev/null; then
        echo "valgrind is not installed"
    elif [ -z "$1" ] && [ -n "$CHECKING" ]; then
        echo "there is no server for \"$CHECKING\" (make postgres-asserts builds them)"
    elif [ -z "$1" ]; then
        echo "no PostgreSQL $major is installed (tests/servers.sh fetches 16 and 18)"
    elif [ ! -x "$("$1" --bindir)/postgres" ]; then
        echo "$("$1" --bindir) has no server"
    elif [ ! -e "$("$1" --pgxs)" ]; then
        echo "PGXS is missing (Debian: apt-get install postgresql-server-dev-$major)"
    elif [ ! -x "$(dirname "$("$1" --pgxs)")/../test/regress/pg_regress" ]; then
        echo "pg_regress is missing"
    fi
}

passed=0
failed=0
count() { # what, from the output of pg_regress, isolation.py or recovery.py
    grep -cE "$1" "$2" || true
}

# A program that runs the server under valgrind, with what PostgreSQL says is no flaw of its own.
under_valgrind() { # directory of the programs, suppressions
    cat > "$work/valgrind-postgres" <<END
#!/bin/sh
exec valgrind --quiet --leak-check=no --error-markers=VALGRINDERROR-BEGIN,VALGRINDERROR-END --gen-suppressions=no \
    --suppressions=$2 --trace-children=yes --log-file=$work/valgrind/%p.log $1/postgres "\$@"
END
    chmod 755 "$work/valgrind-postgres"
    mkdir "$work/valgrind"
    [ -z "$user" ] || chown "$user" "$work/valgrind"
}

# Inputs of the fuzzer, out of a directory that goes.
keep_inputs() { # what, where to
    [ -d "$work/fuzzed/$1" ] || return 0
    mkdir -p "$2"
    cp "$work/fuzzed/$1"/* "$2/"
    echo "  $1: $2"
}

# The suites on one server. Leaves what happened in $work.
run() { # major pg_config
    major=$1
    bin=$(sh tests/extension-server.sh "$2") || return 1
    pgxs=$(dirname "$("$2" --pgxs)")
    work=$(mktemp -d "${TMPDIR:-/tmp}/inrush-ext-$major.XXXXXX") || return 1
    mkdir "$work/data" "$work/results"
    cp -R "$tests/sql" "$tests/expected" "$tests/specs" "$tests/isolation.py" "$tests/recovery" "$tests/recovery.py" \
        "$tests/fuzz" "$tests/fuzz.py" "$tests/cluster" "$tests/cluster.py" "$work/"
    cp -R fuzz/corpus/direct "$work/corpus"
    for name in $regress; do
        touch "$work/expected/$name.out"
    done
    chmod 755 "$work"
    [ -z "$user" ] || chown -R "$user" "$work"
    with="$as env LD_LIBRARY_PATH=$bin/../lib PATH=$bin:$PATH PGHOST=$work PGUSER=postgres"

    $with initdb -D "$work/data" -U postgres -A trust -N -E UTF8 --locale=C > "$work/initdb.log" 2>&1 || {
        cat "$work/initdb.log"
        return 1
    }
    cat >> "$work/data/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$work'
fsync = off
autovacuum = off
wal_level = logical
max_prepared_transactions = 4
max_wal_senders = 4
shared_buffers = 32MB
log_min_messages = warning
END
    program=$bin/postgres
    slow=
    if [ "$CHECKING" = valgrind ]; then
        under_valgrind "$bin" "$("$2" --bindir)/../share/valgrind.supp"
        program=$work/valgrind-postgres
        slow="INRUSH_FUZZ_PATIENCE=1800"
    fi
    (cd "$work" && $with pg_ctl start -w -t 300 -p "$program" -D "$work/data" -l "$work/server.log") > "$work/pg_ctl.log" 2>&1 || {
        cat "$work/pg_ctl.log" "$work/server.log"
        return 1
    }

    bad=0
    echo "extension on $("$2" --version): pg_regress"
    # psql runs in $work: the tests write the streams they send there.
    # shellcheck disable=SC2086
    (cd "$work" && $with "$pgxs/../test/regress/pg_regress" --inputdir=. --outputdir=. --bindir="$bin" \
        --host="$work" --user=postgres --dbname=regression $regress) > "$work/regress.out" 2>&1 || bad=1
    sed 's/^/  /' "$work/regress.out"
    p=$(count '(^ok |\.\.\. ok )' "$work/regress.out")
    f=$(count '(^not ok |\.\.\. FAILED)' "$work/regress.out")
    if [ -n "$isolation" ]; then
        echo "extension on $("$2" --version): isolation"
        # shellcheck disable=SC2086
        (cd "$work" && $with python3 isolation.py $isolation) > "$work/isolation.out" 2>&1 || bad=1
        sed 's/^/  /' "$work/isolation.out"
        p=$((p + $(count '^ok ' "$work/isolation.out")))
        f=$((f + $(count '^not ok ' "$work/isolation.out")))
    fi
    if [ -n "$recovery" ]; then
        echo "extension on $("$2" --version): recovery"
        # A small file system, which only root can mount, and not in every container.
        small=$work/small
        mkdir "$small"
        if mount -t tmpfs -o size=12m tmpfs "$small" 2> /dev/null; then
            [ -z "$user" ] || chown "$user" "$small"
        else
            small=
        fi
        mkdir "$work/recover"
        [ -z "$user" ] || chown "$user" "$work/recover"
        # shellcheck disable=SC2086
        (cd "$work/recover" && INRUSH_SMALL_DISK=$small $with python3 ../recovery.py $recovery) > "$work/recovery.out" 2>&1 ||
            bad=1
        sed 's/^/  /' "$work/recovery.out"
        p=$((p + $(count '^ok ' "$work/recovery.out")))
        f=$((f + $(count '^not ok ' "$work/recovery.out")))
    fi
    if [ -n "$cluster" ]; then
        echo "extension on $("$2" --version): cluster"
        mkdir "$work/clustered"
        [ -z "$user" ] || chown "$user" "$work/clustered"
        # shellcheck disable=SC2086
        (cd "$work/clustered" && $with python3 ../cluster.py $cluster) > "$work/cluster.out" 2>&1 || bad=1
        sed 's/^/  /' "$work/cluster.out"
        p=$((p + $(count '^ok ' "$work/cluster.out")))
        f=$((f + $(count '^not ok ' "$work/cluster.out")))
    fi
    if [ -n "$fuzz" ]; then
        echo "extension on $("$2" --version): fuzz"
        mkdir "$work/fuzzed"
        [ -z "$user" ] || chown "$user" "$work/fuzzed"
        # shellcheck disable=SC2086
        (cd "$work/fuzzed" && $with env INRUSH_SEED="$seed" INRUSH_FUZZ_SECONDS="$seconds" INRUSH_FUZZ_CORPUS="$work/corpus" \
            INRUSH_FUZZ_OUT="$work/fuzzed" $slow python3 ../fuzz.py) > "$work/fuzz.out" 2>&1 || bad=1
        sed 's/^/  /' "$work/fuzz.out"
        p=$((p + $(count '^ok ' "$work/fuzz.out")))
        f=$((f + $(count '^not ok ' "$work/fuzz.out")))
        keep_inputs findings fuzz/artifacts/direct
        keep_inputs found fuzz/target/found/direct
    fi
    if [ -n "${ACCEPT:-}" ]; then
        for name in $regress $isolation; do
            cp "$work/results/$name.out" "$tests/expected/"
        done
        [ -z "$cluster" ] || cp "$work/cluster"/*.out "$tests/cluster/"
        bad=0
        f=0
    fi
    # What no client sees.
    if grep -E 'PANIC|was terminated by signal|TRAP:| leak|Sanitizer|runtime error:' "$work/server.log"; then
        echo "  the server's log has what it should not have"
        bad=1
    fi
    if [ "$CHECKING" = valgrind ] && grep -h -A 25 VALGRINDERROR-BEGIN "$work"/valgrind/*.log; then
        echo "  valgrind has found something"
        bad=1
    fi
    [ $bad = 0 ] || [ $f != 0 ] || f=1
    passed=$((passed + p))
    failed=$((failed + f))
    [ -n "${ACCEPT:-}" ] || [ ! -e "$work/regression.diffs" ] || cat "$work/regression.diffs"
    echo "extension on PostgreSQL $major: $p passed, $f failed"
    return $bad
}

# Ends the server that run() has started, by its own directory, and cleans up.
finish() {
    [ -n "${work:-}" ] || return 0
    if [ -e "$work/data/postmaster.pid" ]; then
        $with pg_ctl stop -m immediate -w -D "$work/data" > "$work/pg_ctl.log" 2>&1
    fi
    [ -z "$small" ] || umount "$small"
    small=
    if [ -n "${KEEP:-}" ]; then
        echo "kept: $work"
    else
        rm -rf "$work"
    fi
    work=
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

# The test "setup" makes what the others use.
regress=
isolation=
recovery=
cluster=
small=
for file in "$tests"/sql/*.sql; do
    name=$(basename "$file" .sql)
    if [ "$name" != setup ] && { [ $# = 0 ] || have "$*" "$name"; }; then
        regress="$regress $name"
    fi
done
for file in "$tests"/specs/*.spec; do
    name=$(basename "$file" .spec)
    [ "$name" != '*' ] || break
    if [ $# = 0 ] || have "$*" "$name"; then
        isolation="$isolation $name"
    fi
done
for name in $(python3 "$tests/cluster.py" --list); do
    if [ $# = 0 ] || have "$*" "$name"; then
        cluster="$cluster $name"
    fi
done
# Those that let servers die take minutes.
for name in $(python3 "$tests/recovery.py" --list); do
    # Two gigabytes are too much for every day.
    if [ "${RECOVERY:-}" = small ] && [ "$name" = segment ]; then
        continue
    fi
    if { [ $# = 0 ] && [ -n "${RECOVERY:-}" ]; } || have "$*" "$name"; then
        recovery="$recovery $name"
    fi
done
# Figures, and no test.
if have "$*" rate; then
    recovery="$recovery rate"
fi
if [ "${RECOVERY:-}" = small ]; then
    export INRUSH_KILLS="${INRUSH_KILLS:-3}"
fi
fuzz=
if [ $# = 0 ] || have "$*" fuzz; then
    fuzz=fuzz
fi
for name; do
    have "$regress $isolation $recovery $cluster $fuzz" "$name" ||
        { echo "there is no test $name in extension/test/sql, specs, recovery.py or cluster.py" >&2; exit 2; }
done
regress="setup$regress"

status=0
tested=0
[ -z "$CHECKING" ] || VERSIONS=${VERSIONS:-15}
for major in ${VERSIONS:-15 16 17 18}; do
    pg_config=$(find_pg_config "$major")
    why=$(obstacle "$pg_config")
    if [ -n "$why" ]; then
        # Nobody has a 17 with headers for us to fetch: it is tested where it is.
        if [ "$major" = 17 ] && [ -z "${VERSIONS:-}" ]; then
            continue
        fi
        echo "SKIPPED: extension on PostgreSQL $major: $why" >&2
        if [ -n "${CI:-}${INRUSH_TEST_REQUIRE_SERVERS:-}" ]; then
            status=1
        fi
        continue
    fi
    tested=$((tested + 1))
    run "$major" "$pg_config" || status=1
    finish
    # The cluster that INRUSH_TEST_CITUS names is the same for all versions.
    [ -z "${INRUSH_TEST_CITUS:-}" ] || cluster=$(echo "$cluster " | sed 's/ citus / /')
done
[ $tested != 0 ] || { echo "the extension was tested nowhere" >&2; status=1; }
echo "extension: $passed passed, $failed failed"
[ $status = 0 ] || echo "the tests of the extension FAILED"
exit $status
