# Everything a checkout needs; `make` alone lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Several processes train at once: more threads each would only get in each other's way.
export OMP_NUM_THREADS ?= 1

.PHONY: help install demo test test-slow test-long test-busy test-timing lint types imports format images lock sbom audit settings federation benchmarks results pictures docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(BIN)/.installed ## make the environment in .venv (once, and when pyproject.toml changes)

$(BIN)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: install ## FedDC beside FedAvg, training alone and pooling: first in the lab, then on Flower
	$(BIN)/feddc lab demo

# Tests of one file share what takes long to start.
PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: install ## the tests, without the slow ones
	$(PYTEST) -m "not slow"

test-slow: install ## the slow tests, without the long ones, and the fuzz tests with 1,000 examples each
	code=0; $(BIN)/python -m pytest -m "slow and alone" || code=$$?; \
	HYPOTHESIS_PROFILE=more $(PYTEST) -m "(slow or fuzz) and not (alone or long)" || code=$$?; exit $$code

test-long: install ## the long tests only, and the fuzz tests with 10,000 examples each: an hour
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "long or fuzz"

test-busy: install ## the tests, without the slow ones, beside four CPU hogs
	$(BIN)/python -m tests.busy $(PYTEST) -m "not slow"

test-timing: install ## the tests that involve waiting, ten times in a row beside four CPU hogs
	$(BIN)/python -m tests.busy --times 10 $(PYTEST) -m "timing and not slow"

lint: install ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy, strict
	$(BIN)/mypy

imports: install ## who may import whom
	$(BIN)/lint-imports

format: install ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

IMAGES = agent supernode forwarder superlink proxy

images: ## the Docker images; BASE=IMAGE@sha256:… (or UNPINNED_BASE=1), TORCH=cpu TORCH_INDEX=…
	cd docker/hospital && FEDDC_COORDINATOR=any:1 docker compose build
	cd docker/coordinator && docker compose build

lock: install ## the images' Python packages with their hashes; TORCH=cpu: those without CUDA
	$(BIN)/python docker/lock.py

sbom: ## dist/sbom: what is in each image, as CycloneDX JSON
	mkdir -p dist/sbom
	for image in $(IMAGES); do docker run --rm --network none --entrypoint cat \
	  feddc/$$image:$${FEDDC_VERSION:-0.1.0} /usr/share/feddc/sbom.cdx.json >dist/sbom/$$image.cdx.json || exit 1; done

audit: install ## look up known vulnerabilities of the images' Python packages (needs internet)
	$(BIN)/python docker/audit.py

settings: install ## write the settings into pyproject.toml and docs/settings.md
	$(BIN)/python -m server_app.config.settings_docs

federation: ## a coordinator and three hospitals in containers: FedDC beside training alone; KEEP=1 keeps it
	$(PYTHON) docker/local/run.py

benchmarks: install ## every benchmark, one JSON line each
	$(BIN)/python -m benchmarks.envelope --json
	$(BIN)/python -m benchmarks.courier --json
	$(BIN)/python -m benchmarks.synthetic --json
	$(BIN)/python -m benchmarks.leg --json
	$(BIN)/python -m benchmarks.memory --json
	$(BIN)/python -m benchmarks.engine --json
	$(BIN)/python -m benchmarks.scaling --json
	$(BIN)/python -m benchmarks.plain --json
	$(BIN)/python -m benchmarks.secure_average --json
	$(BIN)/python -m benchmarks.private_step --json
	$(BIN)/python -m benchmarks.ledger --json
	$(BIN)/python -m benchmarks.flood --json
	$(BIN)/python -m benchmarks.report --json
	$(BIN)/python -m benchmarks.data --json

results: install ## regenerate docs/results.md, docs/when-it-helps.md and the README's plot from docs/results
	$(BIN)/feddc lab report

pictures: install ## the docs' pictures, from real runs and the tutorials' own commands; needs Chromium and nginx
	PYTHONPATH=. $(BIN)/python docs/pictures.py

docs: install ## the documentation as HTML that works offline, in dist/docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning docs dist/docs

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
