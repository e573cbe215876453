# The interface that people and CI use. `make help` lists the targets.

CARGO ?= cargo

.PHONY: help build check test

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build both programs
	$(CARGO) build --release --locked

test: ## run the tests
	$(CARGO) test --locked

check: test ## what CI runs: tests, format, lints, documentation
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --no-deps --document-private-items --locked
