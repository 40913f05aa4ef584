# The entry points of this repository, for people and for continuous integration. Every target first sets up what it
# needs. The scripts in scripts/ do the work, so that it can also be done without make.

.DEFAULT_GOAL := help
.PHONY: help setup setup-slow demo test test-slow test-rtl test-gpu test-peers test-repeat bench check check-memory fuzz clean

# Seconds that `make fuzz` spends on each target.
SECONDS := 60
# How often `make test-repeat` runs the whole suite.
RUNS := 10
# Arguments for `konkordia demo`, for example: make demo ARGS="--images 2000 --once"
ARGS :=

help:
	@echo "make setup       install what is missing to build and to test"
	@echo "make demo        build, then run the service with a simulated JUNGFRAU check the file, and show it all in a browser until Ctrl-C (ARGS=--once to end after the check)"
	@echo "make test        build and run all tests"
	@echo "make test-slow   the same with the long lanes: kill -9 loop, long simulations, DIALS, models, Miri, the sanitizers"
	@echo "make test-rtl    the FPGA logic of rtl/: tests with Verilator and cocotb, resources by Yosys; some minutes"
	@echo "make test-gpu    the pipeline for GPUs on the first GPU of this machine (without one scripts/test-gpu exits with 77)"
	@echo "make test-peers  other people's programs on our files and sockets; writes the matrix in README (a missing program or a skipped test: scripts/peers exits with 77)"
	@echo "make test-repeat the whole suite RUNS=10 times, every second time beside a compiler"
	@echo "make check       formatting, clippy, documentation, licences; changes nothing"
	@echo "make check-memory  the concurrent unsafe code under loom, Miri and ThreadSanitizer (a tool that cannot be had: scripts/check-memory exits with 77)"
	@echo "make bench       measure, and write the figures to benches/record/"
	@echo "make fuzz        run each fuzz target for SECONDS=60 (default)"
	@echo "make clean       remove build results, the Python environment and demo files"

setup:
	@scripts/setup build python browser

setup-slow:
	@scripts/setup build python browser slow models

# The demonstration needs no Python.
demo:
	@scripts/setup build
	@scripts/build
	@scripts/konkordia demo $(ARGS)

test:
	@scripts/setup build python browser
	@scripts/test

test-slow:
	@scripts/setup build python browser slow models
	@KONKORDIA_SLOW=1 scripts/test

test-rtl:
	@scripts/setup build python rtl
	@scripts/rtl test
	@scripts/build
	@scripts/rtl run
	@scripts/rtl synth

test-gpu:
	@scripts/setup build
	@scripts/test-gpu

# DIALS may be unavailable, so its setup may fail. make itself exits with 2 where a target fails; the last lines of the
# output say whether a test failed or a program was only unavailable.
test-peers:
	@scripts/setup build python
	-@scripts/setup slow
	@scripts/build
	@scripts/python
	@.venv/bin/python scripts/peers

test-repeat:
	@scripts/setup build python browser
	@scripts/test-repeat $(RUNS)

check:
	@scripts/setup build deny python browser
	@scripts/check

check-memory:
	@scripts/setup build
	@scripts/check-memory

bench:
	@scripts/setup build python
	@scripts/build
	@scripts/record

fuzz:
	@scripts/setup build
	@scripts/fuzz $(SECONDS)

clean:
	cargo clean
	rm -rf .venv demo-out fuzz/target
