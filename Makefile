# Tranche: every command a developer or operator types. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# The programs of the image, and what the cluster tests run as processes.
CLUSTER_TARGETS := $(shell sed -n 's/^programs=(\(.*\))$$/\1/p' deploy/image/build) vnic_tc null_backend
DEMO_TARGETS := tranched tranchectl vnic_tc vnic-attach tranche-demo

.PHONY: help setup demo test unit test-conformance abi test-asan test-tsan fuzz bench cluster-up cluster-demo cluster-down test-cluster soak format lint check-includes clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: ## install the Debian packages that building and testing need
	@tools/setup

build/%/build.ninja: CMakeLists.txt CMakePresets.json | setup
	@cmake --preset $* > build-$*.log 2>&1 || { cat build-$*.log; rm -f build-$*.log; exit 1; }
	@mkdir -p build/$* && mv build-$*.log build/$*/configure.log

demo: build/dev/build.ninja ## share one NIC among four tenants on this machine, prove every limit (needs root)
	@cmake --build --preset dev -j $(JOBS) --target $(DEMO_TARGETS)
	@build/dev/bin/tranche-demo --report build/demo/report.json

test: build/dev/build.ninja check-includes ## build and run every test of the dev preset
	@cmake --build --preset dev -j $(JOBS)
	@tools/run_tests.py build/dev

unit: build/dev/build.ninja ## the fast tests only
	@cmake --build --preset dev -j $(JOBS)
	@tools/run_tests.py build/dev --label unit

test-conformance: build/dev/build.ninja ## the conformance kit over every backend, both examples and every faulty one (needs root)
	@cmake --build --preset dev -j $(JOBS) --target conform_test
	@build/dev/test/conform_test

abi: ## compare the ABI's headers with every released minor
	@tools/setup
	@tools/abi_gate

test-asan: build/asan/build.ninja ## every test under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --build --preset asan -j $(JOBS)
	@ASAN_OPTIONS=detect_leaks=1:$$ASAN_OPTIONS UBSAN_OPTIONS=print_stacktrace=1 tools/run_tests.py build/asan

test-tsan: build/tsan/build.ninja ## the tests labelled threads under ThreadSanitizer
	@cmake --build --preset tsan -j $(JOBS) --target threads_tests
	@TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=$(CURDIR)/test/tsan.supp:exitcode=66 tools/run_tests.py build/tsan --label threads

FUZZ_SECONDS ?= 20
fuzz: ## run each fuzz target with libFuzzer for FUZZ_SECONDS (20) on top of the committed corpus
	@tools/setup --with-clang
	@cmake --preset fuzz > /dev/null && cmake --build --preset fuzz -j $(JOBS) --target fuzz_targets
	@tools/fuzz build/fuzz $(FUZZ_SECONDS)

bench: build/release/build.ninja ## measure the host, and a backend beside a faulty one; writes build/bench/host.json (needs root; 4 minutes)
	@cmake --build --preset release -j $(JOBS) --target tranche-bench
	@mkdir -p build/bench && build/release/bin/tranche-bench --output build/bench/host.json

bench-peer: build/release/build.ninja ## measure the host against a Go driver on a real API server; writes build/bench/peer.json (40 minutes; BENCH_PEER_RUNS=1: 8)
	@tools/setup --with-cluster
	@cmake --build --preset release -j $(JOBS) --target tranched tranche-runner null_backend
	@test/bench/peer/run

cluster-up: ## start a one-node Kubernetes in private namespaces (needs root; the first time builds it: 15-35 minutes); test/cluster/README.md
	@tools/setup --with-cluster
	@test/cluster/tools/node up

cluster-down: ## end that node; nothing of it is left
	@test/cluster/tools/node down

cluster-demo: build/dev/build.ninja ## two pods share one interface of a real Kubernetes node, a third waits: a transcript with a table (needs root)
	@tools/setup --with-cluster
	@cmake --build --preset dev -j $(JOBS) --target $(CLUSTER_TARGETS)
	@test/cluster/tools/demo

test-cluster: build/dev/build.ninja ## the tests on a real Kubernetes node (needs root); TEST=Name runs one
	@tools/setup --with-cluster
	@cmake --build --preset dev -j $(JOBS) --target $(CLUSTER_TARGETS)
	@test/cluster/tools/test $(if $(TEST),-test.run '$(TEST)')

soak: ## 500 pods in a loop and an API server that is away for two minutes, on a real Kubernetes node (needs root; 20 minutes)
	@TRANCHE_SOAK_PODS=500 TRANCHE_SOAK_OUTAGE=120s $(MAKE) test-cluster TEST='TestPodsInALoop|TestSharesSurvive'

format: ## format the sources in place
	@tools/setup --with-clang
	@git ls-files '*.cc' '*.h' '*.hpp' '*.c' | xargs clang-format-14 -i

lint: build/dev/build.ninja check-includes ## clang-tidy on the files that differ from the last commit, or LINT_FILES
	@tools/setup --with-clang
	@files="$(LINT_FILES)"; [ -n "$$files" ] || files=$$(git diff --name-only HEAD -- '*.cc'); \
	  if [ -z "$$files" ]; then echo "lint: no changed .cc file (LINT_FILES=\"a.cc b.cc\" names some)"; else clang-tidy-14 -p build/dev --quiet $$files; fi

check-includes: | setup ## hold the includes against the declared arrows between rooms
	@python3 tools/check_includes.py

clean: ## remove everything that was built
	@rm -rf build
