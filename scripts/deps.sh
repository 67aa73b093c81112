#!/bin/sh
# Installs the Debian packages that are missing, and only those. What for is named:
#
#     scripts/deps.sh build         # the build
#     scripts/deps.sh build test    # the build and the tests
#     scripts/deps.sh extension     # the server extension, for the system's own PostgreSQL
#     scripts/deps.sh build deb     # the build, and packaging
#
# As root, or through sudo. Where neither is possible, or on another system, it prints what to install and
# ends with 1. It does nothing, and needs no rights, when everything is there.
#
# The build needs Rust and a C compiler with the C library's headers: zstd, xz and ring are compiled from the
# sources inside their crates. No system library, no pkg-config, no libpq.
set -eu

say() { echo "deps: $*" >&2; }

# The headers and PGXS of the system's own server, which the extension is built against; of the one that
# "postgresql" will bring, where there is none yet.
server_dev() {
    for major in 15 16 17 18; do
        [ ! -e "/usr/lib/postgresql/$major/bin/postgres" ] || { echo "postgresql-server-dev-$major"; return; }
    done
    echo postgresql-server-dev-all
}

[ $# -gt 0 ] || set -- build test
wanted=
for what; do
    case $what in
    # program or file to look for : Debian package
    build) wanted="$wanted cc:gcc /usr/include/stdio.h:libc6-dev make:make" ;;
    fuzz) wanted="$wanted c++:g++" ;;
    extension) wanted="$wanted headers:$(server_dev) /usr/include/gssapi/gssapi.h:libkrb5-dev" ;;
    deb) wanted="$wanted dpkg-buildpackage:dpkg-dev dh:debhelper fakeroot:fakeroot
                  /usr/share/postgresql-common/pgxs_debian_control.mk:postgresql-server-dev-all" ;;
    test) wanted="$wanted postgres:postgresql psql:postgresql-client pip:python3-pip openssl:openssl ps:procps
                  bison:bison flex:flex setpriv:util-linux python3:python3 curl:curl java:default-jre-headless
                  headers:$(server_dev) /usr/include/gssapi/gssapi.h:libkrb5-dev /etc/ssl/certs/ca-certificates.crt:ca-certificates" ;;
    *) say "unknown: $what (build, test, fuzz, extension, deb)"; exit 2 ;;
    esac
done

have() { # what
    case $1 in
    /*) [ -e "$1" ] ;;
    # Debian keeps the server's programs off PATH. 15 is the oldest that is used; where the system has only an
    # older one, tests/servers.sh brings newer ones.
    postgres) command -v postgres > /dev/null || ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1 ;;
    # Debian has pgxs.mk in its client's package, the headers in the one that is meant.
    headers) ls /usr/include/postgresql/*/server/postgres.h > /dev/null 2>&1 ||
        [ -e "$(pg_config --includedir-server 2> /dev/null)/postgres.h" ] ;;
    pip) python3 -m pip --version > /dev/null 2>&1 ;;
    *) command -v "$1" > /dev/null ;;
    esac
}

if ! command -v cargo > /dev/null; then
    say "no Rust toolchain is on PATH. Install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer: https://rustup.rs"
    exit 1
fi

missing=
for pair in $wanted; do
    have "${pair%%:*}" || missing="$missing ${pair##*:}"
done
[ -n "$missing" ] || exit 0

by_hand() {
    say "$*"
    say "please install:$missing"
    say "on Debian or Ubuntu: apt-get install --no-install-recommends$missing"
    exit 1
}

command -v apt-get > /dev/null || by_hand "this is not a Debian or Ubuntu system"
as=
if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null || by_hand "not root, and there is no sudo"
    if sudo -n true 2> /dev/null; then
        as="sudo -n"
    elif [ -t 0 ] && [ -z "${CI:-}" ]; then
        as=sudo
    else
        by_hand "not root, and sudo asks for a password"
    fi
fi

say "installing$missing"
install() { $as env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing > /dev/null; }
# The lists may be fresh enough; fetching them takes longer than the rest.
install 2> /dev/null || { $as apt-get update -q > /dev/null && install; } || by_hand "apt-get failed"
