# Rethinking the Neuron. `make book` and `make test` set up everything that they need: a .venv here, from the lock.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
export JOBS ?= 2

.PHONY: help setup book notebooks serve checks test plain oldest wheel colab lanes bench results claims zoo gpu lock clean

help:
	@echo "make book      build the rendered book and say where it lies"
	@echo "make notebooks write copies of the chapters for Jupyter, into notebooks/"
	@echo "make checks    run what answers in a minute: lint, types and the gate"
	@echo "make test      run the checks, every test and every notebook"
	@echo "make plain     run notebooks, ledger and operators as a processor without vector extensions computes"
	@echo "make oldest    run the operators' tests with the oldest torch that the package accepts"
	@echo "make wheel     install the package into an empty environment and run the example there"
	@echo "make colab     run the copies for Colab, and compile the kernels, with what Colab has"
	@echo "make lanes     run all of these, as continuous integration does"
	@echo "make serve     show the book in a browser"
	@echo "make bench     measure time and memory on this machine, into runs/"
	@echo "make results   promote finished runs to data/results and re-execute the notebooks"
	@echo "make claims    compute the verdicts on the papers' claims and write them to data/claims"
	@echo "make zoo       call all functions at two thousand drawn cases, and take networks of torchvision, timm,"
	@echo "               transformers and strangers through all that is done to networks here"
	@echo "make gpu       prove, test and time the kernels on a GPU, and write one file to send to the project"
	@echo "make lock      renew the locked versions"
	@echo "make clean     remove what was built, and .venv"

setup: $(READY)

# uv is itself in the lock: pip installs that one package by its hash, and uv installs the rest.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; PYTHON=… names one")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > .venv/uv.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .venv/uv.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

book: $(READY)
	$(BIN)/python -m book._tools.build

# In plain Markdown. What a reader has changed there is kept beside the new copy.
notebooks: $(READY)
	$(BIN)/python -m book._tools.plain
	@echo "Open them with $(BIN)/jupyter lab notebooks"

serve: book
	@echo "Open http://localhost:8000 in a browser; end with Ctrl-C."
	@cd book/_build/html && ../../../$(BIN)/python -m http.server 8000 --bind localhost

# To its end, whatever fails on the way; one summary last. The lanes are in tests/lanes.py.
checks: $(READY)
	$(BIN)/python tests/lanes.py checks

test: $(READY)
	$(BIN)/python tests/lanes.py test

plain: $(READY)
	$(BIN)/python tests/lanes.py plain

oldest: .venv-oldest/ready
	$(BIN)/python tests/lanes.py oldest

wheel: $(READY)
	$(BIN)/python tests/lanes.py wheel

colab: .venv-colab/ready
	$(BIN)/python tests/lanes.py colab

# Everything that continuous integration runs, in one go and with one summary.
lanes: $(READY) .venv-oldest/ready .venv-colab/ready
	$(BIN)/python tests/lanes.py test plain oldest wheel colab

# The first Python of these that there is: old and new versions of torch have no wheels for all of them.
first = $(shell for python in $(1) $(PYTHON); do "$$python" -c '' 2>/dev/null && echo "$$python" && break; done)
pyenv = $(wildcard $(HOME)/.pyenv/versions/$(1).*/bin/python)

# Only the package and its operators: the book is built with the versions in requirements.lock.
.venv-oldest/ready: $(READY) requirements-oldest.lock
	test -x .venv-oldest/bin/python || $(call first,python3.11 python3.12 $(call pyenv,3.11)) -m venv --without-pip .venv-oldest
	$(BIN)/uv pip sync --quiet --python .venv-oldest/bin/python --require-hashes requirements-oldest.lock
	touch $@

# Python 3.13, as Colab has it; where there is none, the usual one. torch's wheel brings CUDA's libraries: 5.4 GB.
.venv-colab/ready: $(READY) requirements-colab.lock
	test -x .venv-colab/bin/python || $(call first,python3.13 $(call pyenv,3.13)) -m venv --without-pip .venv-colab
	$(BIN)/uv pip sync --quiet --python .venv-colab/bin/python --require-hashes requirements-colab.lock
	touch $@

bench: $(READY)
	$(BIN)/python -m companion bench all

claims: $(READY)
	$(BIN)/python -m tests.claims.write

results: $(READY)
	$(BIN)/python -m companion experiments promote
	$(BIN)/python -m book._tools.execute

zoo: $(READY)
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.zoo

gpu: $(READY)
	$(BIN)/python -m tests.gpu

lock: $(READY)
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --upgrade --quiet \
	  --extra dev --extra gpu pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --upgrade --quiet \
	  --group oldest --output-file requirements-oldest.lock
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --upgrade --quiet \
	  --group colab --override requirements-colab.override --output-file requirements-colab.lock

clean:
	rm -rf .venv .venv-oldest .venv-wheel .venv-colab build dist book/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
