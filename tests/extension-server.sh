#!/bin/sh
# Makes a PostgreSQL with this repository's extensions in it, and prints the directory of its programs:
#
#     tests/extension-server.sh /usr/lib/postgresql/15/bin/pg_config
#
# The installation of that pg_config is not touched. 15 to 17 read extensions from one directory only, which they
# find relative to their programs; so this is a tree with copies of the programs (through a link they would find
# where they came from) and links to the rest, with inrush and inrush_test built from the working tree beside it.
#
# Run a server of it as any other: with LD_LIBRARY_PATH=BIN/../lib, and not as root. The tree is named by what it
# was made from: asking again is cheap, a changed source gives another tree, and a server that runs keeps its own.
# It is in inrush-ext-MAJOR where tests/servers.sh keeps its servers; trees nobody asked for in three days go.
set -eu

give_up() { echo "tests/extension-server.sh: $*" >&2; exit 1; }
say() { echo "tests/extension-server.sh: $*" >&2; }

[ $# = 1 ] || give_up "which server? tests/extension-server.sh PG_CONFIG"
pg_config=$1
bin=$("$pg_config" --bindir) || give_up "$pg_config does not run"
bin=$(realpath "$bin")
share=$(realpath "$("$pg_config" --sharedir)")
modules=$(realpath "$("$pg_config" --pkglibdir)")
[ -x "$bin/postgres" ] || give_up "there is no server beside $pg_config"
[ -e "$("$pg_config" --pgxs)" ] || give_up "$pg_config has no PGXS: its development package is missing"
major=$("$pg_config" --version | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p')

# What bin, share and lib have in common: the tree must have the same way from one to the other.
below() { case $1 in "$2"/*) true ;; *) false ;; esac }
prefix=${bin%/*}
while ! below "$share" "$prefix" || ! below "$modules" "$prefix"; do
    prefix=${prefix%/*}
done

if [ "$(id -u)" = 0 ]; then
    default=/var/cache/inrush-test-servers
else
    default=$HOME/.cache/inrush-test-servers
fi
servers=${INRUSH_TEST_SERVERS:-$default}
extension=$(cd "$(dirname "$0")/../extension" && pwd)

made_from=$(
    cd "$extension"
    {
        "$pg_config" --version
        stat -c '%n %s %Y' "$bin/postgres"
        # A module that was installed meanwhile is to be found too.
        ls "$modules"
        for file in Makefile ./*.control sql/* src/*.[ch] dml/Makefile dml/*.[ch] test/module/Makefile test/module/*.[c] \
            test/module/*.sql test/module/*.control ../tests/extension-server.sh; do
            sha256sum "$file"
        done
    } | sha256sum | cut -c 1-12
)
tree=$servers/inrush-ext-$major/$made_from
tree_bin=$tree${bin#"$prefix"}
if [ -d "$tree" ]; then
    touch "$tree"
    echo "$tree_bin"
    exit 0
fi

umask 022
mkdir -p "$servers/inrush-ext-$major"
chmod 755 "$servers"
# Not in $tree's place: whoever finds it there takes it as finished.
work=$(mktemp -d "$servers/inrush-ext-$major/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$work"

say "making a PostgreSQL $major with the extension"
new=$work/tree
links() { # to all files below a directory
    mkdir -p "$new${1#"$prefix"}"
    cp -as "$1/." "$new${1#"$prefix"}/"
}
mkdir -p "$new${bin#"$prefix"}"
cp -L "$bin"/* "$new${bin#"$prefix"}/"
links "$share"
# An installation that brings its own libraries has them here; in Debian's these are the modules.
links "$(realpath "$bin/../lib")"
case $modules in "$(realpath "$bin/../lib")"*) ;; *) links "$modules" ;; esac
# A Python wheel has its libraries beside what was packed.
for library in "$bin"/../../../*.libs/*; do
    [ -e "$library" ] || continue
    ln -sf "$(realpath "$library")" "$new${bin#"$prefix"}/../lib/"
done
# What somebody has installed there is not what is tested.
rm -f "$new${share#"$prefix"}"/extension/inrush* "$new${modules#"$prefix"}"/inrush*

cp -R "$extension" "$work/source"
find "$work/source" -name '*.o' -o -name '*.so' -o -name '*.bc' | xargs rm -f
for part in "$work/source" "$work/source/test/module"; do
    # Without bitcode: it would need the server's version of clang, and nothing of ours is in expressions.
    if ! make -C "$part" install PG_CONFIG="$pg_config" DESTDIR="$work/installed" with_llvm=no > "$work/log" 2>&1; then
        cat "$work/log" >&2
        give_up "the extension could not be built for PostgreSQL $major"
    fi
done
cp "$work/installed$("$pg_config" --sharedir)"/extension/inrush* "$new${share#"$prefix"}/extension/"
cp "$work/installed$("$pg_config" --pkglibdir)"/inrush*.so "$new${modules#"$prefix"}/"

# A tree found by its programs finds its own files, or something else would be tested.
found=$("$new${bin#"$prefix"}/pg_config" --pkglibdir)
[ "$found" = "$new${modules#"$prefix"}" ] || give_up "a server in $new would look for modules in $found"
mv -T "$new" "$tree" 2> /dev/null || [ -d "$tree" ] || give_up "cannot write $tree"
find "$servers/inrush-ext-$major" -mindepth 1 -maxdepth 1 -mtime +2 -exec rm -rf {} +
echo "$tree_bin"
