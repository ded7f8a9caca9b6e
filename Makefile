# One command each, on a fresh machine too: `make demo`, `make test`, `make lint`, `make bench`.
# All begin with `make setup`. To choose a Python:  make test PYTHON=python3.11 VENV=.venv311

VENV   ?= .venv
PYTHON ?=
JOBS   ?= 3

PY    := $(VENV)/bin/python
STAMP := $(VENV)/.setup-done

.DEFAULT_GOAL := help
.PHONY: help setup same-python demo test test-jax-side test-full jax-tests lint format bench protos lock clean

help:                   ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

setup: $(STAMP)         ## a virtual environment with pinned versions, in .venv/
$(STAMP): pyproject.toml $(wildcard requirements/*.txt) scripts/setup
	scripts/setup "$(VENV)" "$(PYTHON)"
	touch $@

# An environment that stands keeps its Python. Whoever asks for another by name must not get this one.
ifneq ($(strip $(PYTHON)),)
setup: same-python
same-python: $(STAMP)
	@test "$$("$(PYTHON)" --version)" = "$$($(PY) --version)" || { \
	    echo "$(VENV) has $$($(PY) --version), $(PYTHON) is $$("$(PYTHON)" --version): give VENV= another name"; exit 1; }
endif

demo: setup             ## see it at work: four clients share 2048 simulated TPUs
	$(PY) -m experiments.demo

test: setup             ## all tests but the slow ones
	$(PY) -m pytest tests -n $(JOBS) -m "not full" $(ARGS)

# What speaks to JAX, and may differ by its version. The door's own transport and its access know nothing of that.
JAX_SIDE = $(addprefix tests/,backend/door backend/pjrt backend/sandbox seaway/api seaway/costs jax_plugins seaway/specs \
    seaway/graph seaway/test_examples.py seaway/test_public_examples.py seaway/test_mistakes_real.py \
    $(addprefix seaway/sessions/test_,arrays.py connected_code.py connected_real.py laws.py pricing.py \
    simulated_door.py values.py)) $(addprefix --ignore=tests/backend/door/,transport server)
test-jax-side: setup    ## the tests that depend on JAX: `.ci/run` runs them on the second Python
	$(PY) -m pytest $(JAX_SIDE) -n $(JOBS) -m "not full" $(ARGS)

test-full: setup        ## all tests, the laws on many more examples, drawn afresh
	$(PY) -m pytest tests -n $(JOBS) --hypothesis-profile=explore $(ARGS)

jax-tests: setup        ## JAX's own tests through the door: `JAX_TESTS=FOLDER make jax-tests`
	$(PY) -m tests.backend.door.jax_suite $(ARGS)

lint: setup             ## format, lint, types, layers
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo

format: setup           ## put the format right, and what ruff can mend
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

protos: setup           ## compile backend/xla/protos
	cd backend/xla/protos && $(abspath $(PY)) -m grpc_tools.protoc -I. --descriptor_set_out=messages.binpb *.proto

bench: setup            ## the figures
	$(PY) -m experiments.bench

lock: setup             ## choose the pinned versions anew
	scripts/lock

clean:                  ## remove caches and builds (`rm -r .venv` for the environment)
	rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
