# Every target sets up .venv first if it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

.PHONY: demo test test-fast coverage check format fuzz wheel-test bench docs extras clean

demo: $(READY)
	$(BIN)/zeroone demo

test: check
	$(PYTEST)

test-fast: $(READY)
	$(PYTEST) -m 'not slow'

# Not part of `make test`: tracing adds about a fifth to its CPU time on Python 3.11.
coverage: $(READY)
	$(PYTEST) --cov --cov-report=term --cov-report=html:build/coverage --cov-fail-under=90

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Damaged and hostile files for every reader; ARGS='--readers npz,csv --inputs 20000 --seed 7'.
fuzz: $(READY)
	$(BIN)/python tests/fuzz/driver.py --json results/fuzz.json $(ARGS)

# Builds the wheel and tries it in a fresh environment that has the core dependencies only.
wheel-test: $(READY)
	$(BIN)/python .ci/wheel_test.py

bench: $(READY)
	$(BIN)/python benchmarks/v_step.py --json results/v_step.json
	$(BIN)/python benchmarks/exact_sweep.py --json results/exact_sweep.json
	$(BIN)/python benchmarks/train_cost.py --json results/train_cost.json
	$(BIN)/python benchmarks/rival_cost.py --json results/rival_cost.json
	$(BIN)/python benchmarks/conv_cost.py --json results/conv_cost.json
	$(BIN)/python benchmarks/predict_many.py --json results/predict_many.json

docs: $(READY)
	$(INSTALL) '.[dev,docs]'
	$(BIN)/python -m mkdocs build --quiet --strict
	@echo "The site is in build/site/index.html."

# Tests that need TensorBoard, Lightning, accelerate, Chromium, Node, a compiler for 32-bit programs
# or one for Arm with QEMU are skipped without them. The system packages are Debian's and need root.
extras: $(READY)
	$(INSTALL) '.[dev,tensorboard,frameworks,browser]'
	command -v chromium >/dev/null && command -v chromedriver >/dev/null && command -v node >/dev/null && \
	  echo 'int main(void) { return 0; }' | gcc -m32 -x c -o /dev/null - 2>/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends \
	    chromium chromium-driver nodejs gcc libc6-dev $$(dpkg --print-architecture | sed 's/^amd64$$/gcc-multilib/;t;d'); }
	command -v qemu-system-arm >/dev/null && command -v arm-none-eabi-gcc >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends qemu-system-arm gcc-arm-none-eabi; }

clean:
	rm -rf $(VENV) build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis zeroone-demo

# The stamp is written last, so that an interrupted installation is repeated.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "zeroone needs Python 3.11 or newer; set PYTHON=/path/to/python3.11 (found: $$($(PYTHON) -V 2>&1))"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[dev]'
	@touch $(READY)
