# One command for each task; `make` lists them. Needs GNU make, a POSIX shell and Python 3.11 or newer.
# The environment is .venv here; the Kubernetes programs of the tests are kept in ~/.cache/paddle-operator (testbed/assets.py).

PYTHON ?= python3
BIN := .venv/bin
# Named by the content of its inputs, not by their dates: a checkout gives all files the same date.
ENVIRONMENT := .venv/made-of-$(shell cat requirements.lock pyproject.toml | cksum | tr ' ' '-')
CHECKED := src testbed tests tools e2e $(wildcard bench)

# $(call step,what,command): print what, run it, print the duration. On standard error, since `make cluster` is for eval.
step = @printf '==> %s\n' '$(1)' >&2; began=$$(date +%s); $(2) && printf '    %s s\n' $$(( $$(date +%s) - began )) >&2

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo environment programs test test-all lint cluster cluster-down generate manifests e2e bench lock docs clean

help: ## list the commands
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r command text; do \
		printf '%-18s %s\n' "$$command" "$$text"; done

demo: environment ## train the wide-and-deep example on this machine: two parameter servers, two workers
	@$(BIN)/paddlejob run deploy/examples/wide_and_deep.yaml --local
	@printf '%s\n' '' 'What to try next:' \
		'  .venv/bin/paddlejob run deploy/examples/resnet.yaml --cpu       two workers that train together' \
		'  .venv/bin/paddlejob describe wide-ande-deep                     what happened, and where the pods were' \
		'  .venv/bin/paddlejob up                                          a cluster that stays, also for kubectl' \
		'  docs/en/local.md                                                   your own YAML and your own image'

test: lint programs ## check everything: format, lint, types, layers, tests on a real control plane
	$(call step,tests,$(BIN)/python -m tools.run_tests)

test-all: lint programs ## the same with the long versions of tests: nightly
	$(call step,tests,$(BIN)/python -m tools.run_tests --long)

lint: environment ## check format, lint, types, import layers, sizes, generated files, links of pages, and workflows
	$(call step,format,$(BIN)/ruff format --check --quiet $(CHECKED) images)
	$(call step,lint,$(BIN)/ruff check --quiet $(CHECKED) images)
	$(call step,types,$(BIN)/mypy $(CHECKED))
	$(call step,layers,$(BIN)/python tools/layers.py)
	$(call step,sizes,$(BIN)/python tools/sizes.py)
	$(call step,generated files,$(BIN)/python -m tools.generate --check)
	$(call step,links,$(BIN)/python tools/links.py)
	$(call step,workflows,$(BIN)/zizmor --offline --no-progress --quiet .github .pre-commit-config.yaml \
		&& $(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yaml \
		&& $(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml)

environment: $(ENVIRONMENT) ## create .venv with the packages of requirements.lock

$(ENVIRONMENT):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"$(PYTHON) is Python %d.%d, but 3.11 or newer is needed: make PYTHON=python3.11" % sys.version_info[:2])'
	$(call step,environment,$(PYTHON) -m venv .venv \
		&& $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock \
		&& $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . \
		&& rm -f .venv/made-of-* && touch $@)

programs: environment
	$(call step,control plane,$(BIN)/python -m testbed.assets)

cluster: environment ## start a control plane in the background and print how to reach it
	@$(BIN)/python -m testbed.cluster up

cluster-down: environment ## stop it
	@$(BIN)/python -m testbed.cluster down

generate: environment ## write CRDs and generated pages from the types
	@$(BIN)/python -m tools.generate

e2e: environment ## a few minutes on the cluster of KUBECONFIG, in a namespace of its own: docs/en/e2e.md
	$(BIN)/pytest -p no:randomly --timeout=0 e2e  # E2E_TIMEOUT_SECONDS bounds each wait, and the namespace is to be removed

manifests: programs ## write deploy/ from config/
	@$(BIN)/python -m tools.manifests

bench: environment programs ## run the benchmarks and print the figures
	@$(BIN)/python -m bench

lock: ## update the lock files of the tests, the operator's image and the docs
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder" \
		&& "$$folder/bin/pip" install --quiet --disable-pip-version-check uv \
		&& "$$folder/bin/uv" pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --no-header --quiet -o requirements.lock \
		&& "$$folder/bin/uv" pip compile images/controller/requirements.in --python-platform linux --python-version 3.13 --generate-hashes \
			--no-emit-index-url --no-header --quiet -o images/controller/requirements.lock \
		&& "$$folder/bin/uv" pip compile docs/requirements.in --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --no-header --quiet -o docs/requirements.lock

docs: .docs-venv/bin/mkdocs ## build the documentation site into site/, strictly: a bad link or a missing page fails
	$(call step,docs site,NO_MKDOCS_2_WARNING=1 .docs-venv/bin/mkdocs build --strict --config-file mkdocs.yaml)

.docs-venv/bin/mkdocs: docs/requirements.lock
	$(call step,environment of the docs,$(PYTHON) -m venv .docs-venv \
		&& .docs-venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $< && touch $@)

clean: ## remove environments, caches and builds; the cached programs of the tests are kept
	rm -rf .venv .docs-venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
