# Two commands: `make bench` measures this machine, `make test` checks a change. `make` lists the rest.

SHELL := bash
.DEFAULT_GOAL := help

ifneq ($(origin TARGET),undefined)
export IOGAUGE_TARGET := $(TARGET)
endif

.PHONY: help setup bench test test-lustre lint docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: ## make .venv and find the benchmark programs (STACK=bench, or a site's environment: build them)
	@ci/setup
	@$(if $(STACK),ci/bring $(STACK),ci/stack)

bench: ## set up, bring what is missing, run the quick checks (TARGET=/path, ARGS='...'), show the table
	@[ -z "$${IOGAUGE_TARGET+named}" ] || [ -d "$$IOGAUGE_TARGET" ] || { \
	    echo "iogauge: there is no directory $$IOGAUGE_TARGET. Make it, mount its file system, or name" \
	        "another target" >&2; exit 1; }
	@[ -z "$$IOGAUGE_TARGET" ] || [ -w "$$IOGAUGE_TARGET" ] || { \
	    echo "iogauge: you may not write in $$IOGAUGE_TARGET. Name a directory of your own" >&2; exit 1; }
	@ci/setup
	@ci/bring
	@. ./activate && iogauge bench $(ARGS)

test: ## everything that the pipeline demands: lint and tests (ARGS='...' for pytest)
	@ci/test $(ARGS)

test-lustre: ## does iogauge work on your Lustre? (TARGET=/path, one page)
	@[ -d "$$IOGAUGE_TARGET" ] || { echo "iogauge: name a directory on Lustre: make test-lustre TARGET=/path" >&2; exit 1; }
	@ci/setup --dev
	@. ./activate && IOGAUGE_RIG_TARGET="$$IOGAUGE_TARGET" python -m pytest -q -rs tests/rig $(ARGS)

lint: ## ruff, mypy, shellcheck, yamllint
	@ci/setup --dev
	@ci/lint $(ARGS)

docs: ## write the parts of the pages that are made from code
	@ci/setup --dev
	@.venv/bin/python ci/docs.py

lock: ## pin requirements/*.in anew, with hashes
	@ci/setup --dev
	@cd requirements && for name in runtime dev spack mpi; do \
	    echo "lock: $$name.lock" && known= && \
    if [ "$$name" = runtime ]; then \
        known='--no-emit-package polars --no-emit-package polars-runtime-32'; \
    fi && \
	    if [ "$$name" = dev ]; then \
	        known=$$(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p' runtime.lock); \
	    fi && \
	    ../.venv/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	        --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $$known \
	        --output-file "$$name.lock" "$$name.in" $(ARGS) || exit; \
	done

clean: ## remove .venv and the tools' caches; records in .iogauge stay
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
