# Each target sets up what it needs in .venv; a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check format bench docs extras clean

demo: $(READY)
	$(BIN)/zeroone demo

test: check
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/v_step.py --json results/v_step.json
	$(BIN)/python benchmarks/exact_sweep.py --json results/exact_sweep.json
	$(BIN)/python benchmarks/train_cost.py --json results/train_cost.json
	$(BIN)/python benchmarks/rival_cost.py --json results/rival_cost.json
	$(BIN)/python benchmarks/conv_cost.py --json results/conv_cost.json

docs: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	$(BIN)/python -m mkdocs build --quiet --strict
	@echo "the site is in build/site/index.html"

# What some tests need and say if it is missing: TensorBoard, Lightning, accelerate; by Debian's apt, as root, Chromium, a C
# compiler that also makes programs of 32 bits, and Node.
extras: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,pages,tensorboard,frameworks]'
	command -v chromium >/dev/null && command -v chromedriver >/dev/null && command -v node >/dev/null && \
	  echo 'int main(void) { return 0; }' | gcc -m32 -x c -o /dev/null - 2>/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends \
	    chromium chromium-driver nodejs gcc libc6-dev $$(dpkg --print-architecture | sed 's/^amd64$$/gcc-multilib/;t;d'); }

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis zeroone-demo

# The stamp is written last, so an interrupted installation is taken up again.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "zeroone needs Python 3.11 or newer; set PYTHON=/path/to/python3.11 (found: $$($(PYTHON) -V 2>&1))"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)
