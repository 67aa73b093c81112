#!/bin/sh
# A real load from nothing: builds inrush, writes a case-C1 file, starts the embedded PostgreSQL, loads the file
# and shows the report; with the server extension, too, where that can be installed. Run it twice: the second time it finds the rows already there.
# ROWS=1000000 makes another size. The file is in demo/, which git ignores.
set -eu
rows=${ROWS:-610000}
file=demo/c1-$rows.csv
# Where cargo builds is a setting of the user's: CARGO_TARGET_DIR, or a cargo configuration file.
target=$("${CARGO:-cargo}" metadata --format-version 1 --no-deps --offline |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
[ "$target" != "$PWD/target" ] || target=target
inrush=$target/release/inrush

# Shows a command so that it can be pasted, and runs it.
step() {
    printf '\n$'
    for word; do
        case $word in *[!A-Za-z0-9_./:=,-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$@"
}

step "${CARGO:-cargo}" build --release --locked --bin inrush
mkdir -p demo
if [ ! -s "$file" ]; then
    # Under another name until it is whole: an interrupted demo must not leave half a file behind.
    step "$inrush" bench data c1 --rows "$rows" --header "$file.part"
    mv "$file.part" "$file"
fi
step "$inrush" local start
url=$("$inrush" local url)

# The extension, where it may be installed: a server that came with the system, and the right to write beside it.
pg_config=$("$inrush" local psql -- -qAtXc "SELECT setting FROM pg_config WHERE name = 'BINDIR'")/pg_config
case $pg_config in
/usr/lib/postgresql/*) sh scripts/deps.sh extension || true ;;
esac
if [ -e "$("$pg_config" --pgxs 2> /dev/null)" ] && [ -w "$("$pg_config" --pkglibdir)" ]; then
    step "${MAKE:-make}" --silent install-extension PG_CONFIG="$pg_config"
    "$inrush" local psql -- -qXc 'SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS inrush'
    step "$inrush" load "$file" --table demo_c1_copy --via copy-binary --to "$url"
else
    cat <<END

The server extension is not installed: that takes $pg_config with the server's headers, and the right to write to its
directories (make install-extension PG_CONFIG=$pg_config). This is what plain COPY does:
END
fi
step "$inrush" load "$file" --table demo_c1 --to "$url"

cat <<END

The rows are in the table demo_c1 of the embedded server. To look at them:

    $inrush local psql -- -c 'SELECT count(*), min(c13), max(c13) FROM demo_c1'
    $inrush local psql -- -c 'SELECT id, c1, c13 FROM demo_c1 LIMIT 5'
    $inrush loads list --to "$url"

make demo again loads nothing: every row is there exactly once.
To end: $inrush local stop; with all data: $inrush local destroy; the file: make clean-demo
END
