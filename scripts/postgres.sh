#!/bin/sh
# Builds a PostgreSQL that no distribution has. Running it again does nothing.
#
#     scripts/postgres.sh 32k                             # 32 KB blocks and 64 KB WAL blocks, for `inrush bench c1`
#     scripts/postgres.sh asserts                         # with assertions, and valgrind's requests if it is here
#     scripts/postgres.sh sanitize                        # with assertions, and gcc's address and undefined sanitizers
#     scripts/postgres.sh uring                           # 18 that reads with io_uring, for `inrush bench c5`
#     scripts/postgres.sh 32k 17                          # of another major version that Debian has
#     scripts/postgres.sh 32k postgresql-15.20.tar.bz2    # a release's source archive that is here already
#     SUITE=sid scripts/postgres.sh asserts 18            # of another suite of Debian than the system's
#
# The size of a block is fixed when the server is compiled, and so is how closely it looks at itself: asserts and
# sanitize are for tests of the extension (CONTRIBUTING.md). Without a version it is 15, with io_uring 18, the first
# that has it.
#
# The source comes through apt, with lists and a cache of its own: /etc/apt and /var/lib/apt are read (where the
# packages come from, with which keys) and never written, and no package is installed. No rights are needed.
#
# Where: MAJOR-32k, or checking/MAJOR-asserts and so on, in $INRUSH_TEST_SERVERS, else in
# /var/cache/inrush-test-servers as root (the account the servers run as must be able to read it, and root's home is
# closed to it), else in ~/.cache/inrush-test-servers. The bench looks there for the blocks, tests/extension.sh for those
# that check; what is to use the one with io_uring is told so, with PG_CONFIG. It takes about five minutes of two cores and 400 MB while building; 60 MB stay, or 200.
set -eu

say() { echo "scripts/postgres.sh: $*"; }
give_up() { echo "scripts/postgres.sh: $*" >&2; exit 1; }

if [ "$(id -u)" = 0 ]; then
    default=/var/cache/inrush-test-servers
else
    default=$HOME/.cache/inrush-test-servers
fi
servers=${INRUSH_TEST_SERVERS:-$default}

kind=${1:-}
case $kind in
32k) what="32 KB blocks" ;;
asserts) what="assertions" ;;
sanitize) what="assertions and sanitizers" ;;
uring) what="io_uring" ;;
*) give_up "which one? scripts/postgres.sh 32k, asserts, sanitize or uring" ;;
esac
usual=15
[ "$kind" != uring ] || usual=18
archive=
case ${2:-$usual} in
*.tar.*)
    archive=$(realpath "$2") && [ -r "$archive" ] || give_up "$2 cannot be read"
    major=$(basename "$archive" | sed -n 's/^postgresql-\([0-9][0-9]*\)[._].*/\1/p')
    ;;
*) major=${2:-$usual} ;;
esac
case $major in
'' | *[!0-9]*) give_up "$2 is neither a major version nor an archive named postgresql-VERSION.tar.*" ;;
esac
case $kind in
# The bench finds it by the size of its blocks.
32k) prefix=$servers/$major-$kind ;;
# Nothing may take these for a server of its version: they are slow, or not what its users have.
*) prefix=$servers/checking/$major-$kind ;;
esac

# It runs, is what it is to be, and looks for its libraries in its own place.
works() {
    case $("$prefix/bin/pg_config" --pkglibdir 2> /dev/null) in "$prefix"/*) ;; *) return 1 ;; esac
    "$prefix/bin/postgres" --version 2> /dev/null | grep -q "^postgres (PostgreSQL) $major" || return 1
    settings=$("$prefix/bin/pg_config" --includedir-server)/pg_config.h
    case $kind in
    32k) grep -q '^#define BLCKSZ 32768$' "$settings" ;;
    asserts)
        # Those built before tests asked for it lack the last one.
        grep -q '^#define USE_ASSERT_CHECKING 1$' "$settings" && [ -e "$prefix/share/valgrind.supp" ] &&
            [ -e "$("$prefix/bin/pg_config" --sharedir)/extension/pg_buffercache.control" ]
        ;;
    sanitize) "$prefix/bin/pg_config" --cflags | grep -q -e -fsanitize=address ;;
    uring) grep -q '^#define USE_LIBURING 1$' "$settings" ;;
    esac
}
if works; then
    say "$("$prefix/bin/postgres" --version) with $what is in $prefix"
    exit 0
fi

missing=
# From 17 on a release has no generated parsers in it.
parsers=
[ "$major" -lt 17 ] || parsers="bison:bison flex:flex"
uring=
[ "$kind" != uring ] || uring="/usr/include/liburing.h:liburing-dev pkg-config:pkg-config"
for pair in cc:gcc make:make perl:perl tar:tar bzip2:bzip2 $parsers $uring /usr/include/stdio.h:libc6-dev; do
    case $pair in
    /*) [ -e "${pair%%:*}" ] ;;
    *) command -v "${pair%%:*}" > /dev/null ;;
    esac || missing="$missing ${pair##*:}"
done
if [ -z "$archive" ]; then
    command -v apt-get > /dev/null ||
        give_up "this is not a Debian or Ubuntu system: name the source archive of a release, postgresql-15.x.tar.bz2"
fi
[ -z "$missing" ] || give_up "please install:$missing (apt-get install --no-install-recommends$missing)"

mkdir -p "${prefix%/*}"
work=$(mktemp -d "$servers/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
# The account the servers run as reads what is installed.
chmod 755 "$servers" "${prefix%/*}" "$work"
umask 022

# The system's package sources with deb-src in place of deb, in $work/parts; of the suite that is asked for.
private_sources() {
    mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -r "$file" ] || continue
        sed -n 's/^[[:space:]]*deb\([[:space:]]\)/deb-src\1/p' "$file" |
            if [ -n "${SUITE:-}" ]; then
                # deb-src [options] URI suite components
                awk -v suite="$SUITE" '!/security/ {
                    i = 2
                    if ($i ~ /^\[/) while ($(i++) !~ /\]$/);
                    $(i + 1) = suite
                    print
                }'
            else
                cat
            fi > "$work/parts/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -r "$file" ] || continue
        sed 's/^Types:.*/Types: deb-src/' "$file" |
            if [ -n "${SUITE:-}" ]; then
                awk -v RS= -v ORS='\n\n' '!/security/' | sed "s/^Suites:.*/Suites: $SUITE/"
            else
                cat
            fi > "$work/parts/$(basename "$file")"
    done
}

# apt that keeps everything of its own in $work. Its sandbox account could not write there.
private_apt() { with_private_lists apt-get -q "$@"; }
private_apt_cache() { with_private_lists apt-cache "$@"; }
with_private_lists() {
    program=$1
    shift
    "$program" -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/parts" \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User="$(id -un)" "$@"
}

# Names the archive in Debian's source package.
debian_source() {
    # shellcheck source=/dev/null
    suite=${SUITE:-$(. /etc/os-release && echo "${VERSION_CODENAME:-}")}
    private_sources
    say "fetching the package lists of source packages (${suite:-unknown suite})"
    private_apt update > "$work/log" 2>&1 || {
        cat "$work/log" >&2
        give_up "the lists of source packages could not be fetched; an archive postgresql-$major.x.tar.bz2 may be named instead"
    }
    # The newest that can be had: a mirror may list a version of the security archive whose files it lacks.
    versions=$(private_apt_cache showsrc "postgresql-$major" 2> /dev/null | sed -n 's/^Version: //p' | sort -Vru)
    [ -n "$versions" ] || give_up "${suite:-this system} has no source package postgresql-$major"
    : > "$work/log"
    for version in $versions; do
        say "fetching the source package postgresql-$major $version"
        if (cd "$work" && private_apt source --download-only "postgresql-$major=$version") >> "$work/log" 2>&1; then
            break
        fi
        say "it cannot be had"
        version=
    done
    [ -n "$version" ] || {
        cat "$work/log" >&2
        give_up "the source package could not be fetched; an archive postgresql-$major.x.tar.bz2 may be named instead"
    }
    # Its files are those of the release: apt has checked them against its signed lists. Debian's patches are left
    # out: they compile the paths of Debian's own packages in, and this server would load their libraries.
    archive=$(find "$work" -maxdepth 1 -name "postgresql-${major}_*.orig.tar.*" ! -name '*.asc')
}

[ -n "$archive" ] || debian_source
mkdir "$work/source"
tar -xf "$archive" -C "$work/source" --strip-components=1 || give_up "$archive could not be unpacked"
[ -x "$work/source/configure" ] || give_up "the source has no configure script"

# Without readline, zlib and ICU they need no further package; COPY uses none of them.
set -- --prefix="$prefix" --without-readline --without-zlib
[ "$major" -lt 16 ] || set -- "$@" --without-icu
# What tests look at tables, pages and buffers with.
contrib="amcheck pageinspect pg_buffercache"
case $kind in
32k)
    # Debian's flags, so that this server differs from the installed one in the size of its blocks and in nothing that
    # a load could notice. -g changes no code and takes most of the disk.
    contrib=
    set -- "$@" --with-blocksize=32 --with-wal-blocksize=64 \
        CFLAGS='-O2 -fstack-protector-strong -Wformat -Werror=format-security -fno-omit-frame-pointer' \
        CPPFLAGS=-D_FORTIFY_SOURCE=2 LDFLAGS='-Wl,-z,relro -Wl,-z,now'
    ;;
uring)
    set -- "$@" --with-liburing CFLAGS='-O2 -fno-omit-frame-pointer'
    ;;
asserts)
    # -O1: the functions that a report names are those of the source. The requests tell valgrind of palloc's memory,
    # and are nothing without it.
    requests=
    if [ -e /usr/include/valgrind/memcheck.h ]; then
        requests=-DUSE_VALGRIND
    else
        say "without valgrind's requests: /usr/include/valgrind/memcheck.h is not here (Debian: valgrind)"
    fi
    set -- "$@" --enable-cassert CFLAGS='-O1 -g -fno-omit-frame-pointer' CPPFLAGS="$requests"
    ;;
sanitize)
    # Alignment too: the server's own code has been clean of it since 15. What a sanitizer finds ends the process, so
    # that no test can miss it; -O1 keeps it bearable.
    set -- "$@" --enable-cassert \
        CFLAGS='-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all' \
        LDFLAGS='-fsanitize=address,undefined'
    # Programs that run while it is built, too: leaks at their end are no flaw, and the check of the stack's depth
    # compares addresses of locals.
    export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
    ;;
esac
say "building PostgreSQL $major with $what (about five minutes)"
(
    cd "$work/source"
    # PostgreSQL makes its headers (utils/errcodes.h ...) only in a make that is nobody's child, and this script may be
    # one's: "make test" calls it (PostgreSQL: Installation from Source, Makefile.global.in).
    unset MAKELEVEL MAKEFLAGS MFLAGS
    ./configure "$@" && nice -n 10 make -s -j"$(getconf _NPROCESSORS_ONLN)" &&
        make -s install DESTDIR="$work/installed" || exit 1
    for module in $contrib; do
        make -s -C "contrib/$module" install DESTDIR="$work/installed" || exit 1
    done
    # What valgrind says of the server itself, and is no flaw.
    [ "$kind" != asserts ] || cp src/tools/valgrind.supp "$work/installed$prefix/share/" || exit 1
) > "$work/log" 2>&1 || {
    tail -n 30 "$work/log" >&2
    kept=$servers/postgres-$kind.log
    cp "$work/log" "$kept"
    give_up "the build failed; the whole log is $kept"
}
rm -rf "$prefix"
# Whoever comes second finds the first one's there.
mv -T "$work/installed$prefix" "$prefix" 2> /dev/null || [ -d "$prefix" ] || give_up "cannot write $prefix"
works || give_up "PostgreSQL $major in $prefix does not run: $("$prefix/bin/postgres" --version 2>&1)"
say "$("$prefix/bin/postgres" --version) with $what is now in $prefix"
