# What people run and what CI runs; `make help` lists it.
CARGO ?= cargo
LINERATE = target/release/linerate

.DEFAULT_GOAL := help
.PHONY: help setup build static bench test test-nic test-vm test-steer test-quick fmt lint words check-targets bpf-check docs soak-fleet bench-compare bench-peers bench-workers bench-micro bench-buffers bench-xdp bench-divert bench-hosts bench-ledger bench-stats bench-view report-shots bench-tune bench-predict bench-search exact exact-peers bless-exact bpf bless man completions install deb test-deb fuzz fuzz-coverage deny soak miri clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the build needs and is missing (asks the package manager)
	@scripts/setup build

build: setup ## build linerate
	$(CARGO) build --release --locked -p linerate-cli

static: ## build linerate as one file without libraries (musl): target/x86_64-unknown-linux-musl/release
	@scripts/static

bench: build ## build, then measure every path in the embedded lab
	@$(LINERATE) bench $(ARGS); status=$$?; [ $$status -le 1 ] || exit $$status

test: ## everything that CI runs
	@scripts/test

test-nic: ## cards' settings on real network drivers, in virtual machines (downloads packages once)
	@scripts/test-nic

test-vm: ## the other commands on real drivers, and XDP on Linux 6.1, 6.12 and the newest, in virtual machines
	@scripts/test-vm

test-steer: ## the steering of linerate divert on a real card, undone afterwards: IF=eth1 (root)
	@test -n "$(IF)" || { echo "say which card: make test-steer IF=eth1" >&2; exit 2; }
	LINERATE_STEER_IF=$(IF) $(CARGO) test --locked -p linerate-divert --test steer -- --nocapture a_real_card

test-quick: ## unit tests only
	$(CARGO) test --workspace --lib --bins

fmt: ## format the sources
	$(CARGO) fmt --all

lint: ## formatting, words and clippy, as CI checks them
	$(CARGO) fmt --all --check
	@scripts/words
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

check-targets: ## compile for 64-bit ARM and with musl, without running anything (rustup installs the standard libraries)
	@scripts/check-targets

words: ## sentences that read like a translation, with what to write instead
	@scripts/words

bpf-check: ## compare the committed BPF objects with a rebuild (needs clang 14)
	@scripts/bpf-objects --check

docs: ## the crates' documentation, without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

soak-fleet: ## 200 runs of a fleet with random faults (nats-server); RUNS=N for others
	LINERATE_SOAK_RUNS=$(or $(RUNS),200) $(CARGO) test --locked -p linerate-cli --test fleet -- --nocapture random_faults

bench-compare: build ## linerate's engines against plain C loops on the same lab
	$(CARGO) bench --locked -p linerate-bench --bench compare

bench-peers: ## linerate's senders against xdp-trafficgen, testpmd, trafgen and a C loop, as far as they are installed (root)
	$(CARGO) bench --locked -p linerate-bench --bench peers -- $(ROUNDS)

bench-workers: ## what a worker costs over the bare loop around its port (root)
	$(CARGO) bench --locked -p linerate-traffic --bench workers

bench-buffers: ## what realloc, recycle and pool cost a frame on this CPU, by frame and ring size, beside the kernel's page pool
	$(CARGO) bench --locked -p linerate-port --bench buffers

bench-micro: ## nanoseconds of the hot functions
	$(CARGO) bench --locked -p linerate-wire -p linerate-filter

bench-stats: ## what receive statistics cost, level by level (root)
	$(CARGO) bench --locked -p linerate-traffic --bench statistics

bench-view: ## what a screen, a browser and metrics cost the measured rate, trial by trial in one lab (root)
	@scripts/bench-view $(ROUNDS)

report-shots: build ## pictures of every kind of report at three widths, light and dark (needs chromium, root)
	@scripts/report-shots $(OUT)

bench-xdp: ## the XDP path against a plain sender in XDP (root)
	$(CARGO) bench --locked -p linerate-port --bench xdp

bench-divert: ## a diversion against bare XDP drop, bare AF_XDP, TAP and raw sockets (root)
	$(CARGO) bench --locked -p linerate-divert --bench divert -- $(ARGS)

bench-hosts: ## a trial between two hosts against the same pair in the lab (root)
	$(CARGO) bench --locked -p linerate-bench --bench hosts

bench-tune: ## the tuner against an exhaustive search over the same small space of the lab (root)
	$(CARGO) bench --locked -p linerate-bench --bench tune

bench-predict: build ## the model's predictions beside measurements of this machine (root)
	@scripts/bench-predict

bench-ledger: ## what naming the kernel's drops costs, with and without drops (root)
	$(CARGO) bench --locked -p linerate-ledger --bench drops -- $(ROUNDS)

bench-search: ## trials and errors of the search beside the reference MLRsearch, simulated
	$(CARGO) bench --locked -p linerate-search

exact: build ## instructions per packet that linerate itself executes, against benches/exact.toml (root)
	$(CARGO) bench --locked -p linerate-bench --bench exact

exact-peers: ## instructions per packet of linerate's senders, of trafgen, iperf3, testpmd and plain C loops in one emulated machine; missing ones are downloaded (root)
	$(CARGO) bench --locked -p linerate-bench --bench exact_peers

bless-exact: build ## accept what make exact and CI count; say why in the commit's message
	$(CARGO) bench --locked -p linerate-bench --bench exact -- --bless
	scripts/test-exact --bless

bpf: ## rebuild the BPF objects after a change to a program (needs clang; building linerate does not)
	@scripts/bpf-objects

bless: ## rewrite golden files (schema, reports, help) from the code
	LINERATE_BLESS=1 $(CARGO) test --workspace --locked

man: build ## write the manual page to target/linerate.1
	$(LINERATE) man > target/linerate.1

completions: build ## write shell completions to target/completions
	mkdir -p target/completions
	for shell in bash zsh fish; do $(LINERATE) completions $$shell > target/completions/linerate.$$shell; done

install: build ## install below $$DESTDIR$$PREFIX (/usr/local): program, manual page, completions, unit files
	@scripts/install $(LINERATE)

deb: build ## make a Debian package in target/deb
	@scripts/deb $(LINERATE) target/deb

test-deb: build ## install, use, upgrade, remove and purge the package, over a copy of this machine's root in memory (root)
	@scripts/test-deb $(LINERATE)

fuzz: ## run each fuzz target for a minute, on the stable compiler; SECONDS=N for longer
	cd fuzz && $(CARGO) run --release --locked -- --seconds $(or $(SECONDS),60)

fuzz-coverage: ## the same guided by coverage (needs cargo-fuzz and a nightly toolchain)
	cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do $(CARGO) +nightly fuzz run --features libfuzzer $$target -- -max_total_time=60; done

deny: ## licences, versions and known vulnerabilities of the dependencies (needs cargo-deny)
	@scripts/deny

soak: ## random commands with random faults for an hour (root); SECONDS=N for another time, LINERATE_SOAK_SEED repeats one
	LINERATE_SOAK_SECONDS=$(or $(SECONDS),3600) $(CARGO) test --locked -p linerate-cli --test soak -- --nocapture

miri: ## the ring code and the frames under Miri, over arrays and a fake kernel (rustup installs a pinned nightly)
	@scripts/miri

clean: ## remove what was built
	$(CARGO) clean
