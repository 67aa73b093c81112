#!/bin/sh
# Builds Debian packages of the command and the extension, and shows what is in them:
#
#     scripts/deb.sh target/release/inrush target/deb
#
# They are built in a copy of the working tree and land in the directory of the second argument. Nothing is installed:
# neither they nor what building them needs (`scripts/deps.sh build deb` does that). The extension is built for the
# versions of debian/pgversions whose development packages are here, as Debian's pg_buildext finds them.
set -eu

give_up() { echo "scripts/deb.sh: $*" >&2; exit 1; }

[ $# = 2 ] || give_up "which binary, and where to? scripts/deb.sh target/release/inrush target/deb"
inrush=$(realpath "$1")
mkdir -p "$2"
to=$(realpath "$2")
cd "$(dirname "$0")/.."
for program in dpkg-buildpackage dh pg_buildext fakeroot; do
    command -v "$program" > /dev/null || give_up "$program is missing: scripts/deps.sh build deb installs it"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/inrush-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
umask 022
mkdir "$work/inrush"
tar -c --exclude-vcs --exclude=./target --exclude=./fuzz/target --exclude=./demo --exclude='*.o' --exclude='*.so' . |
    tar -x -C "$work/inrush"
cd "$work/inrush"
# Another system has other versions of PostgreSQL than the one that debian/control was written on.
pg_buildext updatecontrol
# -d: Rust comes from elsewhere than packages.
INRUSH=$inrush DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} noautodbgsym" \
    dpkg-buildpackage -b -us -uc -d -r'fakeroot' > "$work/log" 2>&1 || { cat "$work/log"; give_up "no packages"; }
rm -f "$to"/*.deb
mv "$work"/*.deb "$to/"
for package in "$to"/*.deb; do
    echo "$package"
    dpkg-deb -c "$package" | grep -v '/$' | awk '{ print "  " $6 }'
done
