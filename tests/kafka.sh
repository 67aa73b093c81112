#!/bin/sh
# Fetches a Kafka broker for the tests: 46 jars from Maven Central into a directory of their own, where
# crates/inrush-testkit looks for them. Running it again does nothing. It needs curl, and Java 17 or newer to run the
# broker; HTTPS_PROXY is honoured.
#
# Where: as tests/servers.sh, $INRUSH_TEST_SERVERS, else /var/cache/inrush-test-servers as root, else
# ~/.cache/inrush-test-servers.
#
# tests/kafka.sha256 has the jars: org.apache.kafka:kafka_2.13:4.3.1 with what it needs at run time, as Maven resolves
# it, and slf4j-simple, without which the broker says nothing.
set -eu

version=4.3.1
central=https://repo1.maven.org/maven2
sums=$(cd "$(dirname "$0")" && pwd)/kafka.sha256

say() { echo "tests/kafka.sh: $*"; }
give_up() { echo "tests/kafka.sh: $*" >&2; exit 1; }

if [ "$(id -u)" = 0 ]; then
    default=/var/cache/inrush-test-servers
else
    default=$HOME/.cache/inrush-test-servers
fi
servers=${INRUSH_TEST_SERVERS:-$default}

# "openjdk version "17.0.15" 2025-04-15"
major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || major=
[ "${major:-0}" -ge 17 ] || give_up "Java 17 or newer is needed to run a broker (Debian: apt-get install default-jre-headless)"

# Only ever there as a whole: it is moved into its place.
if [ -d "$servers/kafka-$version" ]; then
    say "Kafka $version is in $servers/kafka-$version"
    exit 0
fi

command -v curl > /dev/null || give_up "curl is needed to fetch Kafka (Debian: apt-get install curl)"
mkdir -p "$servers"
work=$(mktemp -d "$servers/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$servers" "$work"
umask 022

say "fetching Kafka $version"
mkdir "$work/jars" "$work/kafka-$version"
while read -r sum path; do
    printf 'url = "%s/%s"\noutput = "%s/jars/%s"\n' "$central" "$path" "$work" "$path"
done < "$sums" > "$work/wanted"
curl --fail --no-progress-meter --location --retry 5 --create-dirs --parallel --parallel-max 8 \
    --config "$work/wanted" || give_up "Kafka $version could not be fetched"
(cd "$work/jars" && sha256sum --check --quiet "$sums") || give_up "Kafka $version is not what it was"
find "$work/jars" -name '*.jar' -exec mv -t "$work/kafka-$version" {} +
# Whoever comes second finds the first one's there.
mv -T "$work/kafka-$version" "$servers/kafka-$version" 2> /dev/null || [ -d "$servers/kafka-$version" ] ||
    give_up "cannot write $servers/kafka-$version"
say "Kafka $version is now in $servers/kafka-$version"
