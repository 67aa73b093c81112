# Everything a person needs, by name. `make help` lists it.

CARGO  ?= cargo
INRUSH ?= $(or $(CARGO_TARGET_DIR),target)/release/inrush
# Kills of `make kill-test`, `make lever-test` and `make extension-crash-test`.
N      ?= 200
# CPU seconds of each target of `make fuzz`, and on each server of `make extension-fuzz`.
FUZZ_SECONDS ?= 600
# The server whose `make extension` and `make install-extension` are meant, by its pg_config.
PG_CONFIG ?= pg_config
# Tests of `make extension-test`, as TESTS='types hostile'; all of them if empty. VERSIONS='15 18' chooses servers.
TESTS  ?=
# Options of `make bench-c1` to `make bench-c5`, as BENCH='--runs 9 --versions 15 --rung btree'.
BENCH  ?=

.DEFAULT_GOAL := help
.PHONY: help deps build deb demo test lint fmt doc extension install-extension extension-test extension-recovery-test extension-crash-test extension-fuzz extension-valgrind fuzz kill-test stream-kill-test lever-test bench-c1 bench-c2 bench-c3 bench-c4 bench-c5 postgres-32k postgres-asserts postgres-uring clean-demo

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what building and testing need (Debian, Ubuntu), or say what to install
	@sh scripts/deps.sh build test

build: ## the release binary, target/release/inrush
	@sh scripts/deps.sh build
	$(CARGO) build --release --locked --bin inrush

demo: ## build, write a case-C1 file, start the embedded PostgreSQL, load the file, show the report
	@sh scripts/deps.sh build
	@CARGO='$(CARGO)' sh scripts/demo.sh

test: ## every test, after installing what they need; says where the time goes
	@sh scripts/deps.sh build test
	@CARGO='$(CARGO)' sh scripts/test.sh

deb: build ## Debian packages of the command and, for the PostgreSQL of this system, the extension; into target/deb
	@sh scripts/deb.sh '$(INRUSH)' '$(or $(CARGO_TARGET_DIR),target)/deb'

# What was built for another server must not stay. Without bitcode, which only expressions could use, and which needs
# the version of clang that the server was built with.
extension: ## build the server extension for the PostgreSQL of PG_CONFIG
	@$(MAKE) -C extension clean PG_CONFIG='$(PG_CONFIG)' with_llvm=no > /dev/null
	$(MAKE) -C extension PG_CONFIG='$(PG_CONFIG)' with_llvm=no

install-extension: extension ## build it and install it into that PostgreSQL; then CREATE EXTENSION inrush
	$(MAKE) -C extension install PG_CONFIG='$(PG_CONFIG)' with_llvm=no

extension-test: ## the extension's tests on PostgreSQL 15, 16 and 18, installing nothing; TESTS=names for some
	@sh scripts/deps.sh test
	@sh tests/extension.sh $(TESTS)

extension-recovery-test: ## servers that die, standbys, backups, replication, a full disk: minutes on each server
	@sh scripts/deps.sh test
	@RECOVERY=1 sh tests/extension.sh

extension-crash-test: ## N kills of servers while they load, and the longest versions of the tests beside it
	@sh scripts/deps.sh test
	INRUSH_KILLS=$(N) sh tests/extension.sh crash interrupts races segment

extension-fuzz: postgres-asserts ## a hostile client for FUZZ_SECONDS of CPU, on a server with assertions and one with sanitizers
	@for kind in asserts sanitize; do \
		CHECKING=$$kind INRUSH_FUZZ_SECONDS=$(FUZZ_SECONDS) sh tests/extension.sh fuzz || exit 1; \
	done

extension-valgrind: postgres-asserts ## the extension's tests (TESTS=names) with the server under valgrind: a quarter of an hour
	@CHECKING=valgrind sh tests/extension.sh $(TESTS)

lint: ## formatting and clippy, as strict as in CI
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

fmt: ## format the code
	$(CARGO) fmt --all

doc: ## the documentation of the crates, without warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

fuzz: ## every fuzz target for FUZZ_SECONDS of CPU each
	@sh scripts/deps.sh build fuzz
	@sh fuzz/run.sh $(FUZZ_SECONDS)

kill-test: ## N kills of client, server and connection; every row exactly once
	@sh scripts/deps.sh build test
	INRUSH_KILLS=$(N) $(CARGO) test --locked -p inrush-cli --test kill -- --nocapture

stream-kill-test: ## N kills of inrush serve, servers and brokers while rows come, each for HTTP and Kafka
	@sh scripts/deps.sh build test
	INRUSH_KILLS=$(N) $(CARGO) test --locked -p inrush-cli --test streams arrive_once -- --nocapture --test-threads 1
	INRUSH_KILLS=$(N) $(CARGO) test --locked -p inrush-cli --test streams_kafka messages_arrive_once -- --nocapture

lever-test: ## N kills while levers are pulled and taken back; the table is what it was
	@sh scripts/deps.sh build test
	INRUSH_KILLS=$(N) $(CARGO) test --locked -p inrush-cli --test levers levers_survive -- --nocapture

bench-c1: build ## case C1 (wide rows, every rung) against psql and others; keeps the run under bench/runs
	$(INRUSH) bench c1 $(BENCH)

bench-c2: build ## case C2 (narrow rows; INSERT, COPY, batches); keeps the run under bench/runs
	$(INRUSH) bench c2 $(BENCH)

bench-c3: build ## case C3 (a stream into tables with BRIN) against pgbench and COPY; BENCH='--minutes 10' for one long run
	$(INRUSH) bench c3 $(BENCH)

bench-c4: build ## case C4 (a cluster, past its coordinator), on the one that BENCH='--to DSN' names; keeps the run under bench/runs
	$(INRUSH) bench c4 $(BENCH)

bench-c5: build ## case C5 (scans of what is on the disk only, on slow storage too: as root); keeps the run under bench/runs
	$(INRUSH) bench c5 $(BENCH)

postgres-32k: ## build a PostgreSQL with 32 KB blocks, outside the repository; some rungs of bench-c1 need it
	@sh scripts/postgres.sh 32k

postgres-asserts: ## build one with assertions, and one with gcc's sanitizers too, for extension-fuzz
	@sh scripts/postgres.sh asserts
	@sh scripts/postgres.sh sanitize

postgres-uring: ## build one of 18 that can read with io_uring (liburing-dev), for tests of tune and for bench-c5
	@SUITE=sid sh scripts/postgres.sh uring

clean-demo: ## remove the files of the demo
	rm -rf demo
