# Shortcuts for common tasks. CMake (CMakePresets.json) and scripts/ do the work.

.PHONY: help packages dev-packages quickstart test test-all attack build dev debug package gpu-check gpu-bundle format tidy docs clean
.DEFAULT_GOAL := help
BEGAN := $(shell date +%s)
MAKEFLAGS += --no-print-directory

help:
	@echo "make quickstart  install missing packages, build, train for a minute, generate some text"
	@echo "make test        install missing packages, build and run all tests (times: CONTRIBUTING.md)"
	@echo "make test-all    the same, with what make test leaves out to save time"
	@echo "make attack      kill, damage and starve the program for an hour: survived of tried"
	@echo "make build       build the optimised program, build/release/bin/axonn"
	@echo "make dev         build/dev: the same with all tests; warnings are errors"
	@echo "make debug       build/debug: libraries and tests, sources compiled separately, for editing"
	@echo "make package     build/packages: Debian packages and a tarball for any x86-64 (docs/packages.md)"
	@echo "make gpu-check   build for this machine's GPU, test and time it (at most 10 minutes after the build)"
	@echo "make gpu-bundle  pack the programs for a GPU machine without the build dependencies"
	@echo "make format      format all sources"
	@echo "make tidy        search for likely faults with clang-tidy (Debian package clang-tidy)"
	@echo "make docs        write docs/configuration.md from the program's table of keys"
	@echo "make clean       remove build/"

packages:
	@scripts/install-packages.sh

quickstart: build
	@scripts/quickstart.sh

dev-packages:
	@scripts/install-packages.sh --tests

test: dev-packages
	@scripts/testing/run.py $(if $(LIMIT),--limit $$(($(BEGAN) + $(LIMIT) - $$(date +%s)))) $(PARTS)

test-all: dev-packages
	@scripts/testing/run.py --all

attack: dev-packages
	@scripts/build.sh dev axonn
	@tests/attacks/run.py build/dev/bin/axonn --long

build: packages
	@scripts/build.sh release axonn

dev: dev-packages
	@scripts/build.sh dev

debug: dev-packages
	@scripts/build.sh debug

package: packages
	@scripts/package.sh

gpu-check:
	@scripts/gpu-check.sh

gpu-bundle:
	@scripts/gpu-bundle.sh

format:
	@scripts/format.sh

tidy: debug
	@run-clang-tidy -quiet -p build/debug "$(CURDIR)/axonn/.*\.cpp"

docs: build
	@build/release/bin/axonn help --markdown > docs/configuration.md

clean:
	@rm -rf build
