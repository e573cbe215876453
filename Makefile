# The interface that people and CI use; `make help` lists the targets. Debian packages that a target
# needs are named here and installed when missing. A Rust toolchain has to be there.

CARGO ?= cargo
# of the tests and checks: no colours, no progress bars in a log
export CARGO_TERM_COLOR ?= auto

# To build: a C compiler for SQLite, and systemd's library.
BUILD_PACKAGES := gcc libc6-dev libsystemd-dev pkg-config
# To show it at work.
DEMO_PACKAGES := curl jq
# To test: other clients, other users and namespaces, a look at the system calls, NS8's Redis.
TEST_PACKAGES := curl iproute2 python3 python3-venv redis-server strace util-linux
# To check units, scripts and the SELinux policy.
CHECK_PACKAGES := systemd selinux-policy-dev shellcheck
# To make a node's file system, and to boot it under an emulated processor.
SYSTEM_PACKAGES := binutils debian-archive-keyring e2fsprogs mmdebstrap procps python3 \
                   qemu-system-x86 util-linux xz-utils zstd
# To make packages, and to check them.
DEB_PACKAGES := debhelper dpkg-dev git
RPM_PACKAGES := git rpm
PACKAGE_CHECK_PACKAGES := binutils cpio lintian mmdebstrap

need = @packaging/need-packages.sh

# The varlink package of PyPI, for the tests that use it.
PYTHON := target/python
PYTHON_PACKAGES := varlink==31.0.0

# Where cargo puts what it builds.
BUILD ?= $(or $(CARGO_TARGET_DIR),target)/release

# An ordinary user can't run the tests that become other users; their names begin with root_.
ifneq ($(shell id -u),0)
  TESTS_LEFT_OUT := --skip root_
endif

.PHONY: help build demo simulate test model system-test check lint docs check-units check-scripts \
        selinux deb rpm check-packages

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-15s %s\n", $$1, $$2}' Makefile

build: ## build portsd and portsctl
	$(need) $(BUILD_PACKAGES)
	$(CARGO) build --release --locked

demo: ## build, and show it at work with 124 real modules
	$(need) $(BUILD_PACKAGES) $(DEMO_PACKAGES)
	$(CARGO) build --release --locked
	BUILD='$(BUILD)' demo/run

# Takes SEED= and RUNS= from the command line or the environment. Started directly: cargo would do it
# by tests/runner, with users and a namespace that it does not need.
simulate: ## compare placement policies over months of simulated installs
	$(need) $(BUILD_PACKAGES)
	$(CARGO) build --release --locked --example simulate
	'$(BUILD)/examples/simulate'

test: $(PYTHON) ## run the tests; those that need root only as root
	$(need) $(BUILD_PACKAGES) $(TEST_PACKAGES)
	PORTSD_TEST_PYTHON='$(CURDIR)/$(PYTHON)/bin/python3' \
	  $(CARGO) test --locked --no-fail-fast -- $(TESTS_LEFT_OUT)
ifdef TESTS_LEFT_OUT
	@echo 'left out, since they need root:'
	@grep -rhoE 'fn root_[a-z0-9_]+' tests | sed 's/^fn /  /'
endif

$(PYTHON):
	$(need) $(TEST_PACKAGES)
	python3 -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check $(PYTHON_PACKAGES) || { rm -rf $@; false; }

model: ## hold the daemon against the model of it; SEED=... repeats a run, STEPS=... sets its length
	$(need) $(BUILD_PACKAGES) $(TEST_PACKAGES)
	PORTSD_MODEL_SEED='$(SEED)' PORTSD_MODEL_STEPS='$(STEPS)' \
	  $(CARGO) test --locked --test model -- --nocapture

# For containers, which have no libraries of ours. portsctl needs nothing of libsystemd, which the linker
# proves by being given an empty one: an archive, since there is no static one. Built before the other
# programs, since cargo puts it in the place of the dynamic portsctl.
STATIC := target/system
$(STATIC)/portsctl: $(wildcard src/*.rs src/*/*.rs src/*/*/*.rs src/*/*/*/*.rs) Cargo.lock
	$(need) $(BUILD_PACKAGES) $(SYSTEM_PACKAGES)
	mkdir -p $(STATIC)
	ar rcs $(STATIC)/libsystemd.a
	$(CARGO) rustc --release --locked --bin portsctl -- \
	  -C target-feature=+crt-static -L native='$(CURDIR)/$(STATIC)'
	cp '$(BUILD)/portsctl' $@

# SCENARIOS='systemd/… …' runs some scenarios; TIER=namespace and TIER=guest leave the other out.
system-test: $(STATIC)/portsctl $(PYTHON) ## boot nodes with portsd on them: systemd, podman, SELinux; root only
	$(need) $(BUILD_PACKAGES) $(SYSTEM_PACKAGES) $(DEB_PACKAGES) $(RPM_PACKAGES)
	$(CARGO) build --release --locked
	BUILD='$(BUILD)' PORTSCTL_STATIC='$(STATIC)/portsctl' \
	  PYTHON_PATH="$$(echo $(PYTHON)/lib/python3*/site-packages)" \
	  TIER='$(TIER)' tests/system/run $(SCENARIOS)

check: test lint docs check-units check-scripts selinux check-packages ## everything that CI runs but for system-test

lint: ## format and clippy
	$(need) $(BUILD_PACKAGES)
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

docs: ## the code's documentation, without warnings
	$(need) $(BUILD_PACKAGES)
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --no-deps --document-private-items --locked

check-units: build ## hold the installed units against systemd's own checks
	$(need) $(CHECK_PACKAGES)
	rm -rf target/root
	$(MAKE) --no-print-directory install DESTDIR='$(CURDIR)/target/root' > /dev/null
	packaging/check-units.sh target/root

check-scripts: ## hold the shell scripts that are installed against shellcheck
	$(need) $(CHECK_PACKAGES)
	shellcheck packaging/*.sh packaging/debian/portsd.p* packaging/tests/*.sh ns8/*.sh ns8/actions/*/* ns8/update-core.d/*
	shellcheck --external-sources tests/system/run tests/system/*.sh tests/system/node/start \
	  tests/system/node/before-reboot tests/system/node/import-image
	shellcheck --shell=bash --exclude=SC2154,SC1090 tests/system/scenarios/*/*.sh

selinux: ## compile the SELinux policy module
	$(need) $(CHECK_PACKAGES)
	$(MAKE) --no-print-directory -C selinux

# What a later version of this package is: the number of commits, unless RELEASE= says another.
deb: build selinux ## make a Debian package in target/packages
	$(need) $(DEB_PACKAGES)
	BUILD='$(BUILD)' RELEASE='$(RELEASE)' packaging/build.sh deb

rpm: build $(if $(wildcard /etc/debian_version),,selinux) ## make an RPM package in target/packages
	$(need) $(RPM_PACKAGES)
	BUILD='$(BUILD)' RELEASE='$(RELEASE)' packaging/build.sh rpm

check-packages: deb rpm ## hold the packages against `make install`, and install them in a Debian of their own
	$(need) $(PACKAGE_CHECK_PACKAGES)
	BUILD='$(BUILD)' packaging/tests/contents.sh target/packages
	packaging/tests/chroot.sh target/packages

include Makefile.install
