#!/bin/sh
# Builds PostgreSQL with 32 KB blocks and 64 KB WAL blocks, for the rungs of `inrush bench c1` that need such a
# server: the size of a block is fixed when the server is compiled. Running it again does nothing.
#
#     scripts/postgres-32k.sh                             # Debian's own source package of PostgreSQL 15
#     scripts/postgres-32k.sh 17                          # of another major version that Debian has
#     scripts/postgres-32k.sh postgresql-15.20.tar.bz2    # a release's source archive that is here already
#
# The source comes through apt, with lists and a cache of its own: /etc/apt and /var/lib/apt are read (where the
# packages come from, with which keys) and never written, and no package is installed. No rights are needed.
#
# Where: MAJOR-32k in $INRUSH_TEST_SERVERS, else in /var/cache/inrush-test-servers as root (the account the
# servers run as must be able to read it, and root's home is closed to it), else in ~/.cache/inrush-test-servers.
# The bench looks there. It takes about five minutes of two cores and 400 MB while building; 60 MB stay.
set -eu

say() { echo "scripts/postgres-32k.sh: $*"; }
give_up() { echo "scripts/postgres-32k.sh: $*" >&2; exit 1; }

if [ "$(id -u)" = 0 ]; then
    default=/var/cache/inrush-test-servers
else
    default=$HOME/.cache/inrush-test-servers
fi
servers=${INRUSH_TEST_SERVERS:-$default}

archive=
case ${1:-15} in
*.tar.*)
    archive=$(realpath "$1") && [ -r "$archive" ] || give_up "$1 cannot be read"
    major=$(basename "$archive" | sed -n 's/^postgresql-\([0-9][0-9]*\)[._].*/\1/p')
    ;;
*) major=${1:-15} ;;
esac
case $major in
'' | *[!0-9]*) give_up "$1 is neither a major version nor an archive named postgresql-VERSION.tar.*" ;;
esac
prefix=$servers/$major-32k

# It runs, has the blocks, and looks for its libraries in its own place.
works() {
    case $("$prefix/bin/pg_config" --pkglibdir 2> /dev/null) in "$prefix"/*) ;; *) return 1 ;; esac
    "$prefix/bin/postgres" --version 2> /dev/null | grep -q "^postgres (PostgreSQL) $major" &&
        grep -q '^#define BLCKSZ 32768$' "$("$prefix/bin/pg_config" --includedir-server)/pg_config.h"
}
if works; then
    say "$("$prefix/bin/postgres" --version) with 32 KB blocks is in $prefix"
    exit 0
fi

missing=
for pair in cc:gcc make:make perl:perl tar:tar bzip2:bzip2 /usr/include/stdio.h:libc6-dev; do
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

mkdir -p "$servers"
work=$(mktemp -d "$servers/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
# The account the servers run as reads what is installed.
chmod 755 "$servers" "$work"
umask 022

# The system's package sources with deb-src in place of deb, in $work/parts.
private_sources() {
    mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -r "$file" ] || continue
        sed -n 's/^[[:space:]]*deb\([[:space:]]\)/deb-src\1/p' "$file" > "$work/parts/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -r "$file" ] || continue
        sed 's/^Types:.*/Types: deb-src/' "$file" > "$work/parts/$(basename "$file")"
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
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
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

# Debian's flags, so that this server differs from the installed one in the size of its blocks and in nothing
# that a load could notice. -g changes no code and takes most of the disk. Without readline, zlib and ICU it
# needs no further package; COPY uses none of them.
say "building PostgreSQL $major with 32 KB blocks (about five minutes)"
(
    cd "$work/source"
    ./configure --prefix="$prefix" --with-blocksize=32 --with-wal-blocksize=64 \
        --without-readline --without-zlib $([ "$major" -lt 16 ] || echo --without-icu) \
        CFLAGS='-O2 -fstack-protector-strong -Wformat -Werror=format-security -fno-omit-frame-pointer' \
        CPPFLAGS=-D_FORTIFY_SOURCE=2 LDFLAGS='-Wl,-z,relro -Wl,-z,now' &&
        nice -n 10 make -s -j"$(getconf _NPROCESSORS_ONLN)" &&
        make -s install DESTDIR="$work/installed"
) > "$work/log" 2>&1 || {
    tail -n 30 "$work/log" >&2
    kept=$servers/postgres-32k.log
    cp "$work/log" "$kept"
    give_up "the build failed; the whole log is $kept"
}
rm -rf "$prefix"
# Whoever comes second finds the first one's there.
mv -T "$work/installed$prefix" "$prefix" 2> /dev/null || [ -d "$prefix" ] || give_up "cannot write $prefix"
works || give_up "PostgreSQL $major in $prefix does not run: $("$prefix/bin/postgres" --version 2>&1)"
say "$("$prefix/bin/postgres" --version) with 32 KB blocks is now in $prefix"
