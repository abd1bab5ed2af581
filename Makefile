# What to type. The work is done by CMake (CMakePresets.json) and scripts/.

.PHONY: help packages dev-packages quickstart test build dev debug gpu-check gpu-bundle format tidy docs clean
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

help:
	@echo "make quickstart  install what is missing, build, train for a minute, write some text"
	@echo "make test        install what is missing, build and run all tests (times: CONTRIBUTING.md)"
	@echo "make build       build/release/bin/axonn, optimised, for use"
	@echo "make dev         build/dev: the same with all tests, warnings as errors"
	@echo "make debug       build/debug: libraries and tests, each source on its own, for the edit loop"
	@echo "make gpu-check   builds for the GPU here, tests and times it (under 10 minutes)"
	@echo "make gpu-bundle  packs the programs for a machine that has a GPU and little else"
	@echo "make format      format all sources"
	@echo "make tidy        look for likely faults with clang-tidy (Debian package clang-tidy)"
	@echo "make docs        write docs/configuration.md from the program's own table of keys"
	@echo "make clean       remove build/"

packages:
	@scripts/install-packages.sh

quickstart: build
	@scripts/quickstart.sh

dev-packages:
	@scripts/install-packages.sh --tests

test: dev-packages
	@scripts/test.sh $(if $(LIMIT),--limit $(LIMIT))

build: packages
	@scripts/build.sh release axonn

dev: dev-packages
	@scripts/build.sh dev

debug: dev-packages
	@scripts/build.sh debug

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
