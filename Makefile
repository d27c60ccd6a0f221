# Two commands do everything on a fresh Debian 12 machine with cargo: `make demo` and `make test`.
# The longer ones: `make faults`, `make kills`, `make power-cuts`, `make ceph`, `make fuzz`, `make soak`,
# `make bench`, `make budgets`, `make experiments`.

SHELL := /bin/bash
SECONDS ?= 600
SEED ?= 1
export FOREBAY ?= $(or $(CARGO_TARGET_DIR),target)/release/forebay

.PHONY: help quick demo test test-browser check budgets soak bench bench-nvme experiments lab build packages static deb rpm dist manual fuzz faults kills power-cuts ceph

help:
	@echo "make demo      a slow disk becomes fast, in front of your eyes (about 5 minutes with the build)"
	@echo "make quick     before a commit: form, lints, structure, unit tests, 400 seeds; installs nothing"
	@echo "make test      everything that fits in 30 minutes"
	@echo "make test-browser   the dashboard in Chromium, which it installs (400 MB)"
	@echo "make budgets   instructions, memory and metadata against their limits"
	@echo "make bench     comparisons with nbdkit and with the bare emulated disk; instructions of a whole guest"
	@echo "               against bench/instructions.json"
	@echo "make bench-nvme SSD=/dev/nvme0n1 DISK=/dev/sdb OPTIONS=--force   beside the kernel's caches on real devices,"
	@echo "               which lose what is on them; a report with plots"
	@echo "make experiments   published comparisons in virtual time, at full size (about 20 minutes)"
	@echo "make lab EXPERIMENT=jobs22 SYSTEMS=bcache,forebay-nbd   beside the kernel's caches, in a virtual machine"
	@echo "make lab EXPERIMENT=recipes   the manual's recipes that need root, devices or a machine, in virtual machines"
	@echo "make manual    the manual as a book of pages, in target/manual"
	@echo "make deb       a Debian package with a static binary, in target/deb; make rpm: the like in target/rpm"
	@echo "make dist      tarball, .deb and .rpm with a static binary, and checksums, in target/dist; tries the result"
	@echo "make faults ROUNDS=100   the built daemon over devices that fail, each scenario that often"
	@echo "make kills ROUNDS=1000   the built daemon killed that often, with three shards"
	@echo "make power-cuts ROUNDS=63   power cuts of three shards, 16 in a round"
	@echo "make ceph ROUNDS=100   an RBD image behind the built daemon; Ceph's parts and the daemon killed that often"
	@echo "make fuzz INPUTS=1000000 SURFACE=nbd SEED=1   forged inputs from that seed on; all surfaces without SURFACE:"
	@echo "          $(SURFACES)"
	@echo "make soak SECONDS=600 SEED=1   random simulations from that seed on, for that long"

packages:
	@ci/packages

build:
	cargo build --locked --release -p forebay

# A binary that needs no library of the machine it runs on. The target is named because build
# scripts and macros, which run here, cannot be static.
STATIC_TARGET := x86_64-unknown-linux-gnu
static:
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --release --target $(STATIC_TARGET) -p forebay

STATIC_FOREBAY := $(or $(CARGO_TARGET_DIR),target)/$(STATIC_TARGET)/release/forebay

# VERSION=0.1.1~test names another version.
deb: static
	packaging/build-deb.sh $(STATIC_FOREBAY) $(or $(CARGO_TARGET_DIR),target)/deb $(VERSION)

rpm: static
	packaging/build-rpm.sh $(STATIC_FOREBAY) $(or $(CARGO_TARGET_DIR),target)/rpm $(VERSION)

# The test that `make test` runs with its own binary is run with what was built here.
dist: static
	packaging/build-dist.sh $(STATIC_FOREBAY) $(or $(CARGO_TARGET_DIR),target)/dist $(VERSION)
	FOREBAY_DIST=$(TARGET)/dist cargo test --locked -p forebay --test packages

# `make test` runs the commands of the manual without this.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
MDBOOK_VERSION := 0.5.4
manual:
	cargo install --locked --quiet mdbook --version $(MDBOOK_VERSION) --no-default-features --features search --root $(TARGET)/tools
	$(TARGET)/tools/bin/mdbook build manual --dest-dir $(TARGET)/manual
	@echo "$(TARGET)/manual/index.html"

demo: packages build
	demo/demo.sh

test: packages check
	cargo test --locked --workspace
	cargo run --locked --release -q -p forebay-budgets
	$(MAKE) lab EXPERIMENT=smoke

test-browser: packages
	command -v chromium > /dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium
	cargo test --locked -p forebay --test browser

# What `make test` does once or a few times, as often as wanted.
faults: packages
	FAULTS_ROUNDS=$(or $(ROUNDS),100) cargo test --locked -p forebay --test faults

kills: packages
	CRASH_ROUNDS=$(or $(ROUNDS),1000) cargo test --locked -p forebay --test crash three_shards_on_two_threads

power-cuts: packages
	POWERCUT_ROUNDS=$(or $(ROUNDS),63) cargo test --locked -p forebay --test powercut three_shards_on_two_threads

# A cluster of Ceph on loopback, which the test starts and ends. 200 MB of packages.
CEPH_PACKAGES := ceph-mon ceph-osd ceph-common qemu-utils qemu-block-extra e2fsprogs
ceph:
	@ci/packages $(CEPH_PACKAGES)
	CEPH_ROUNDS=$(or $(ROUNDS),100) cargo test --locked -p forebay --test ceph -- --nocapture --test-threads=1

# Everything that takes bytes from outside, one surface after the other.
SURFACES := nbd nbd-client superblock control configuration records segments traces
fuzz:
	@set -e; for surface in $(or $(SURFACE),$(SURFACES)); do \
		case $$surface in \
		control) tests="-p forebay --bin forebay daemon::control::fuzz" ;; \
		configuration) tests="-p forebay --bin forebay config::fuzz" ;; \
		*) tests="-p forebay-fuzz --test $$surface" ;; \
		esac; \
		FUZZ_INPUTS=$(or $(INPUTS),1000000) FUZZ_SEED=$(SEED) \
			cargo test --locked --release -q $$tests -- --nocapture; \
	done

# Before a commit, on a tree that is built: under two minutes, without packages or machines.
quick:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -q -- -D warnings
	ci/dependencies
	ci/documents
	ci/english
	ci/structure
	cargo test --locked --workspace --lib --bins -q
	cargo run --locked --release -q -p forebay-sim -- run --seeds 1..201
	cargo run --locked --release -q -p forebay-sim -- run --seeds 1000001..1000201

# What needs no running program: form, lints, documents, dependencies.
check:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps -q
	ci/dependencies
	ci/documents
	ci/english
	ci/structure

budgets: packages
	cargo run --locked --release -q -p forebay-budgets

soak:
	cargo run --locked --release -q -p forebay-sim -- soak --seconds $(SECONDS) --seed $(SEED)

experiments:
	cargo run --locked --release -q -p forebay-experiments -- --markdown docs/experiments.md

# In an initramfs and in an image for containers the binary must do without libraries.
comma := ,
LAB_STATIC := $(filter root root-two all recipes recipe-%,$(subst $(comma), ,$(EXPERIMENT)))
lab: $(if $(LAB_STATIC),static,build)
	cargo build --locked --release -p forebay-lab
	$(if $(LAB_STATIC),FOREBAY=$(STATIC_FOREBAY)) $(dir $(FOREBAY))forebay-lab run $(or $(EXPERIMENT),jobs22) --systems "$(SYSTEMS)" $(LAB_OPTIONS)

# DISK and SSD lose all that is on them: OPTIONS=--force says so. bench/nvme.sh --help has the other options.
bench-nvme: build
	bench/nvme.sh --ssd "$(SSD)" --disk "$(DISK)" $(OPTIONS)

bench: packages build
	python3 bench/measure.py
	python3 bench/instructions.py
