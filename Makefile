# The commands of the README. Each installs what it needs and may be called again at any time.
EMU := .venv/bin/emu
PYTHON := .venv/bin/python
OUT := out

.PHONY: setup kernel demo test check unit guest bench validation wheel clean fuzz stateful

setup:
	@tools/setup.sh

kernel: setup
	@$(EMU) kernel build

# What a Thunderbolt 5 mesh does to tokens under TCP and RDMA, and what the dual plane does: a table and a plot.
demo: kernel
	@mkdir -p $(OUT)
	@$(EMU) compare mesh4-tb5-tcp mesh4-tb5-rdma dual-plane-8=aggregate dual-plane-8-rails=aggregate --plot $(OUT)/demo.png --output $(OUT)/demo.json

# Everything: style, types, unit tests, tests in the guest.
test: kernel check
	@$(PYTHON) -m pytest tests

check: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

unit: setup
	@$(PYTHON) -m pytest tests/unit

guest: kernel
	@$(PYTHON) -m pytest tests/guest

# Speed and accuracy, as ratios against a reference in the same run.
bench: kernel
	@$(PYTHON) -m bench

# docs/validation.md: predictions held against published measurements. Takes some minutes.
validation: kernel
	@$(PYTHON) -m emulator.study.validation docs/validation.md

# Random and damaged input for all that is read: make fuzz SECONDS=60
SECONDS := 60
fuzz: setup
	@$(PYTHON) -m tests.fuzz $(SECONDS)

# Random sequences of commands and kills: make stateful SEQUENCES=200
SEQUENCES := 200
stateful: kernel
	@$(PYTHON) -m tests.guest.stateful $(SEQUENCES)

wheel: setup
	@$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	@rm -rf .venv $(OUT) dist
