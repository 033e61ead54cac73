# Each target does the set-up that it needs (scripts/setup), and says nothing where there is nothing to do.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

CARGO ?= cargo
# Most tests wait for a server, a process or a time, and not for the processor.
export RUST_TEST_THREADS ?= 4
# `make sim` runs the seeds FROM, FROM + 1, and so on: SEEDS of them, in each world.
SEEDS ?= 10000
FROM ?= 1
# `make faults` goes through more of them, always the same, so that two runs can be compared.
FAULT_SEEDS ?= 100000
# `make fuzz` goes on for so long.
FUZZ_SECONDS ?= 300
ROUNDS ?= 100
PEERS_FAULT_SEEDS ?= 20000
# `make campaign` holds its election on directory, etcd, zookeeper, redis, redlock, postgres or consensus.
STORE ?= etcd
FAULTS ?= 1000
SEED ?= 1
LIBRARY_FAULT_SEEDS ?= 20000
# `make bench-handover` hands over so many times in each way.
HANDOVERS ?= 200

# What has to be installed, as groups of scripts/setup.
BUILD_NEEDS := build rust
LINT_NEEDS := $(BUILD_NEEDS) lint
TEST_NEEDS := $(BUILD_NEEDS) etcd zookeeper curator kazoo redis postgres pgbouncer psycopg

# Crates with fault tests that use real processes, behind their feature `faults`: one line each.
FAULT_CRATES := \
	incumbent-campaign \
	incumbent-cli \
	incumbent-etcd \
	incumbent-file \
	incumbent-guardian \
	incumbent-peers \
	incumbent-postgres \
	incumbent-redis \
	incumbent-zookeeper

# Crates that read what others have written.
FUZZED_CRATES := incumbent-store incumbent incumbent-file incumbent-etcd incumbent-redis incumbent-zookeeper incumbent-postgres \
	incumbent-peers incumbent-cli

# Go's elections on etcd, against the distribution's packages.
BUILD_ETCD_PEER := GO111MODULE=off GOPATH=/usr/share/gocode go build -o target/etcd-peer bench/peers/etcd/main.go

SIM := $(CARGO) run --release --quiet --locked -p incumbent-sim --

.PHONY: help
help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## Run every test that needs no faults, documentation examples included
	@scripts/setup $(TEST_NEEDS)
	@$(CARGO) test --workspace --locked --no-fail-fast

.PHONY: test-core
test-core: ## Run the tests that need nothing but Rust: core, seam, library and simulation
	@$(CARGO) test --locked --no-fail-fast -p incumbent-core -p incumbent-store -p incumbent -p incumbent-sim

.PHONY: test-sqlx
test-sqlx: ## Run the example of a fence with sqlx, which takes a while to build and is no part of `make test`
	@scripts/setup $(BUILD_NEEDS) postgres
	@$(CARGO) test --locked --manifest-path examples/postgres/sqlx/Cargo.toml --target-dir target/sqlx

.PHONY: setup
setup: ## Install what the other targets would, beforehand: servers, JDK, components of Rust
	@scripts/setup $(TEST_NEEDS) lint

.PHONY: lint
lint: ## Check format, lints, documentation and the rules of the project
	@scripts/setup $(LINT_NEEDS)
	@scripts/lint
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --all-features --no-deps --locked --quiet
	@echo "lint: clean"

.PHONY: sim
sim: ## Show that known-bad variants are caught, then simulate SEEDS=10000 seeds FROM=1
	@scripts/setup $(BUILD_NEEDS)
	@$(SIM) --flaws
	@$(SIM) --seeds $(SEEDS) --from $(FROM)

.PHONY: fuzz
fuzz: ## Feed the decoders of what comes from outside with nonsense, each for FUZZ_SECONDS=300 (`make test`: a moment)
	@scripts/setup $(BUILD_NEEDS)
	@INCUMBENT_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked $(addprefix -p ,$(FUZZED_CRATES)) --lib --bins -- fuzz founding

.PHONY: bench
bench: ## Measure the library on the memory store, each line beside a yardstick
	@scripts/setup $(BUILD_NEEDS)
	@mkdir -p target
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --bin library | tee target/bench-library.md

.PHONY: bench-file
bench-file: ## Measure the directory as a store, beside flock(1) on the same machine
	@scripts/setup $(BUILD_NEEDS)
	@$(CARGO) build --release --quiet --locked -p incumbent-cli
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --features file --bin file -- target/release/incumbent | tee target/bench-file.md

.PHONY: demo
demo: ## See it work: real processes, a killed leader, a stopped one, a refused late write
	@scripts/setup $(BUILD_NEEDS)
	@$(CARGO) run --quiet --locked -p incumbent-cli --no-default-features -- demo

.PHONY: bench-etcd
bench-etcd: ## Measure elections on etcd beside Go's, in one run; the chart is target/bench-etcd.svg
	@scripts/setup $(BUILD_NEEDS) etcd go etcd_peer
	@mkdir -p target
	@$(BUILD_ETCD_PEER)
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --features etcd --bin etcd -- target/etcd-peer target/bench-etcd.svg | tee target/bench-etcd.md

.PHONY: bench-zookeeper
bench-zookeeper: ## Measure elections on ZooKeeper beside Curator's and kazoo's; the chart is target/bench-zookeeper.svg
	@scripts/setup $(BUILD_NEEDS) zookeeper curator kazoo
	@mkdir -p target/curator-peer
	@javac -cp /usr/share/java/curator-recipes.jar -d target/curator-peer bench/peers/curator/Peer.java
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --features zookeeper --bin zookeeper -- target/curator-peer bench/peers/kazoo/peer.py target/bench-zookeeper.svg | tee target/bench-zookeeper.md

.PHONY: bench-postgres
bench-postgres: ## Measure elections in PostgreSQL beside loops and tooz; the chart is target/bench-postgres.svg
	@scripts/setup $(BUILD_NEEDS) postgres tooz
	@mkdir -p target/tooz-peer
	@cp bench/peers/lock_rounds.py bench/peers/tooz/peer.py target/tooz-peer
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --features postgres --bin postgres -- target/tooz-peer/peer.py target/bench-postgres.svg | tee target/bench-postgres.md

.PHONY: bench-redis
bench-redis: ## Measure elections in Redis beside rslock, redlock and pottery; the chart is target/bench-redis.svg
	@scripts/setup $(BUILD_NEEDS) redis node venv
	@$(MAKE) target/redlock-peer/peer.js target/pottery-peer/peer.py
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --features redis --bin redis -- target/redlock-peer target/pottery-peer target/bench-redis.svg | tee target/bench-redis.md

# The libraries that it is compared with, in the versions that are pinned there. The last line shows that all was done.
target/redlock-peer/peer.js: $(wildcard bench/peers/redlock/*)
	@mkdir -p $(@D)
	@cp bench/peers/redlock/package*.json $(@D)
	@npm ci --prefix $(@D) --silent
	@cp bench/peers/redlock/peer.js $@

target/pottery-peer/peer.py: bench/peers/lock_rounds.py $(wildcard bench/peers/pottery/*)
	@/usr/bin/python3 -m venv $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check -r bench/peers/pottery/requirements.txt
	@cp bench/peers/lock_rounds.py $(@D)
	@cp bench/peers/pottery/peer.py $@

.PHONY: bench-peers
bench-peers: ## Measure elections among peers; the charts are target/bench-peers-times.svg and -messages.svg
	@scripts/setup $(BUILD_NEEDS)
	@mkdir -p target
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --features peers --bin peers -- target/bench-peers-times.svg target/bench-peers-messages.svg | tee target/bench-peers.md

.PHONY: bench-handover
bench-handover: ## Hand over HANDOVERS=200 times while a client writes, on each store, beside Go's; the chart is target/bench-handover.svg
	@scripts/setup $(BUILD_NEEDS) etcd zookeeper redis postgres go etcd_peer
	@mkdir -p target
	@$(BUILD_ETCD_PEER)
	@$(CARGO) run --release --quiet --locked -p incumbent-bench --features handover --bin handover -- $(HANDOVERS) target/etcd-peer target/bench-handover.svg | tee target/bench-handover.md

.PHONY: bench-page
bench-page: ## Put the tables and charts of the benchmarks that were run here into docs/how-fast.md
	@scripts/how-fast

.PHONY: campaign
campaign: ## Put candidates on STORE=etcd through FAULTS=1000 faults, from SEED=1; the chart is target/campaign-STORE.svg
	@scripts/setup $(BUILD_NEEDS) $(filter $(STORE:redlock=redis),etcd zookeeper redis postgres)
	@$(CARGO) run --release --quiet --locked -p incumbent-campaign -- $(STORE) $(FAULTS) $(SEED) target/campaign-$(STORE).svg

# For scripts/lint.
.PHONY: fault-crates
fault-crates:
	@printf '%s\n' $(FAULT_CRATES)

.PHONY: faults
faults: ## Run every test, those with faults and real processes as well, and FAULT_SEEDS=100000 simulated seeds
	@scripts/setup $(TEST_NEEDS) network
	@$(CARGO) test --workspace --locked --no-fail-fast $(FAULT_CRATES:%=--features %/faults)
	@$(SIM) --flaws
	@$(SIM) --world store --seeds $(FAULT_SEEDS) --from 1
	@$(SIM) --world library --seeds $(LIBRARY_FAULT_SEEDS) --from 1
	@$(SIM) --world peers --seeds $(PEERS_FAULT_SEEDS) --from 1

# Not part of .ci/run: it takes half an hour.
.PHONY: healthy
healthy: ## Have the doctor look at what is well, ROUNDS=100 rounds of each situation
	@scripts/setup $(TEST_NEEDS)
	@DOCTOR_ROUNDS=$(ROUNDS) $(CARGO) test --locked -p incumbent-cli --test cli healthy::

.PHONY: doc
doc: ## Build the documentation of all crates
	@scripts/setup $(BUILD_NEEDS)
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --all-features --no-deps --locked

# Not part of .ci/run: it takes hours. It can be stopped, and goes on where it was.
.PHONY: mutants
mutants: ## Change the program in one place at a time, and see which changes no test notices: PART=core, library, etcd, ...
	@scripts/setup $(TEST_NEEDS) mutants
	@scripts/mutants $(PART)

# Not part of .ci/run: it asks the registry, and builds the command once more.
.PHONY: front-door
front-door: ## Do what README says in a crate of its own and with the installed command, where there is no protoc
	@scripts/setup $(BUILD_NEEDS) etcd
	@scripts/front-door

# Not part of .ci/run: it asks the registry, and builds every crate once more from its package.
.PHONY: publish-check
publish-check: ## Package every crate as it would be published, in order, and build it from its package
	@scripts/setup $(BUILD_NEEDS)
	@$(CARGO) publish --workspace --dry-run --locked

# Not part of .ci/run: cargo-deny takes minutes to compile, and its advisories come over the network.
.PHONY: deny
deny: ## Check licences, sources and security advisories of dependencies (installs cargo-deny)
	@scripts/setup $(BUILD_NEEDS) deny
	@$(CARGO) deny check
