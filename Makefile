# What to type. The work is done by CMake (CMakePresets.json) and scripts/.

.PHONY: help packages quickstart test build debug gpu-check gpu-bundle format tidy docs clean
.DEFAULT_GOAL := help

help:
	@echo "make quickstart  install what is missing, build, train for a minute, write some text"
	@echo "make test        install what is missing, build and run all tests (15 minutes, 50 from nothing)"
	@echo "make build       build/release/bin/axonn"
	@echo "make debug       the same in build/debug, for the edit loop"
	@echo "make gpu-check   builds for the card here, tests and times it (under 10 minutes)"
	@echo "make gpu-bundle  packs the programs for a machine that has a card and little else"
	@echo "make format      format all sources"
	@echo "make tidy        look for likely faults with clang-tidy (Debian package clang-tidy)"
	@echo "make docs        write docs/configuration.md from the program's own table of keys"
	@echo "make clean       remove build/"

packages:
	@scripts/install-packages.sh

quickstart: build
	@scripts/quickstart.sh

test:
	@scripts/install-packages.sh --tests
	@scripts/test.sh

build: packages
	@scripts/build.sh release axonn

debug: packages
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
