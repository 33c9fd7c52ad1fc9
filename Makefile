# Mage, from the command line. `make` alone prints what there is to do.
#
# A rule is written comment, .PHONY, recipe, and its comment (##) is its line in the help. Recipes only call
# `python -m mage`; they run in the tree's own environment, which is built on first use and then left alone.
# With ENV=system the python3 at hand runs them and nothing is installed.

# Notes share the device, and two measurements at once are both wrong.
.NOTPARALLEL:
.DEFAULT_GOAL := help

# Not `?=`: some shells export a variable of this name.
ENV = venv
PYTHON ?= python3
EXPERIMENT ?=
NOTE ?=
SLUG ?=
KERNELS ?=

SLUGS := $(sort $(basename $(notdir $(wildcard notebooks/note-*.ipynb))))
NOTES := $(sort $(foreach slug,$(SLUGS),note-$(word 2,$(subst -, ,$(slug)))))
VENV := .venv
STAMP := $(VENV)/.stamp-installed

ifeq ($(ENV),venv)
    ENVIRONMENT := $(STAMP)
    PY := $(VENV)/bin/python
else ifeq ($(ENV),system)
    ENVIRONMENT := system-python
    PY := $(PYTHON)
    export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
    $(error ENV is venv (the default) or system, not '$(ENV)')
endif

# A run ends with the make that started it, even when that make is killed.
MAGE := $(if $(shell command -v setpriv),setpriv --pdeathsig TERM) $(PY) -m mage

# Two tests with a message that says what to do, for a python3 that is missing, too old or without venv.
define need-python
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
    echo "Mage needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true). Name another: make PYTHON=python3.12 …" >&2; exit 1; }
endef
define need-venv
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
    echo "'$(PYTHON)' cannot make an environment: its venv module is missing (Debian, Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
endef
# What the notes are is read from their files by the standard library alone: no environment is needed to ask.
define list-notes
@$(PYTHON) -m mage notes
endef

## List what there is to do
.PHONY: help
help:
	@echo "make TARGET"
	@awk '/^## / { text = substr($$0, 4); next } \
	    text && /^[^.#\t :=][^:=]*:/ { split($$0, part, ":"); sub(/^\$$\(NOTES\).*/, "note-NNN", part[1]); \
	        printf "  %-14s %s\n", part[1], text; text = "" }' $(firstword $(MAKEFILE_LIST))
	@echo "The notes, and their experiments:"
	$(need-python)
	$(list-notes)
	@echo "Next: make $(or $(firstword $(filter note-004,$(NOTES)) $(NOTES)),setup)"

## Build the environment (.venv); every target that needs it does so by itself
.PHONY: setup
setup: $(ENVIRONMENT)
	@echo "Next: make $(or $(firstword $(filter note-004,$(NOTES)) $(NOTES)),help)"

## Run one note, all its experiments or one: make note-004 EXPERIMENT=mage-006
.PHONY: $(NOTES) $(SLUGS)
$(NOTES) $(SLUGS): note-%: $(ENVIRONMENT)
	@exec $(MAGE) run $@ $(if $(EXPERIMENT),-e '$(EXPERIMENT)')
	@echo "Next: open outputs/index.html in a browser"

# The notes of one command share one measurement of this machine: it says when it began, and for which experiments.
notes: export MAGE_RUN := $(shell date +%s) $(filter here-%,$(basename $(notdir $(wildcard params/here-*.yaml))))

## Run every note
.PHONY: notes
notes: $(NOTES)

# Three at a time, a file in one process, the long ones first: most tests wait for compilers and for notes. The python3
# at hand may lack the plugin.
## Run the whole test suite, the same that CI runs
.PHONY: test
test: $(ENVIRONMENT)
	@exec $(PY) -m pytest $(if $(filter venv,$(ENV)),-n 3 --dist loadfile --no-loadscope-reorder)
	@echo "Next: make notes"

## Measure on this machine and keep the evidence: make measure EXPERIMENT=h200-006
.PHONY: measure
measure: $(if $(EXPERIMENT),$(ENVIRONMENT))
	@[ -n '$(EXPERIMENT)' ] || { echo "Which experiment? make measure EXPERIMENT=h200-006" >&2; exit 2; }
	@exec $(MAGE) measure $(foreach one,$(EXPERIMENT),'$(one)')
	@echo "Next: make notes"

## Search for the fastest configurations on this GPU and retain them: make tune KERNELS=matmul/triton
.PHONY: tune
tune: $(ENVIRONMENT)
	@exec $(MAGE) tune $(foreach one,$(KERNELS),'$(one)') --retain
	@echo "Next: make measure EXPERIMENT=h200-006"

## Count what the compilers made of every kernel, for sm_89 and sm_90; needs no GPU
.PHONY: census
census: $(ENVIRONMENT)
	@exec $(MAGE) census
	@echo "Next: make note-004"

## Install other releases of the tile compiler apart, and count with them
.PHONY: tile-compilers
tile-compilers: $(ENVIRONMENT)
	@exec $(MAGE) tile-compilers
	@echo "Next: make note-004 EXPERIMENT=mage-004"

## Start a note of your own: make new-note SLUG=my-idea
.PHONY: new-note
new-note: $(if $(SLUG),$(ENVIRONMENT))
	@[ -n '$(SLUG)' ] || { echo "Which name? make new-note SLUG=my-idea" >&2; exit 2; }
	@exec $(MAGE) new-note -- '$(SLUG)'

## Open the notes in JupyterLab
.PHONY: lab
lab: $(ENVIRONMENT)
	@echo "Next: open a note, Run > Run All Cells; stop with Ctrl-C"
	@exec $(PY) -m jupyterlab --ServerApp.root_dir='$(CURDIR)' --LabApp.default_url=/lab/tree/notebooks

## Show a note's parameters: make params NOTE=004
.PHONY: params
params: $(if $(NOTE),$(ENVIRONMENT))
	@[ -n '$(NOTE)' ] || { echo "Which note? make params NOTE=004" >&2; exit 2; }
	@exec $(MAGE) params 'note-$(patsubst note-%,%,$(NOTE))'
	@echo "Next: make note-$(firstword $(subst -, ,$(patsubst note-%,%,$(NOTE))))"

## List the reports that are stale, and why
.PHONY: check
check: $(ENVIRONMENT)
	@exec $(MAGE) check
	@echo "Next: open outputs/index.html in a browser"

## Remove reports and caches; retained evidence and the environment stay
.PHONY: clean
clean:
	@find outputs -mindepth 1 -maxdepth 1 ! -name retained -exec rm -rf {} +
	@find . -path './$(VENV)' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf .pytest_cache .ruff_cache .hypothesis
	@echo "Next: make notes"

## Remove the environment too
.PHONY: distclean
distclean: clean
	@rm -rf $(VENV) mage.egg-info build
	@echo "Next: make setup"

# The environment stands when its stamp does. An install that was interrupted leaves none, so the next make starts
# it anew; a change of either list brings the one that is there up to date. It knows its tree by path: the stamp of
# a tree that was copied or moved is void.
ifneq ($(wildcard $(STAMP)),)
ifneq ($(file < $(STAMP)),$(CURDIR))
    $(shell rm -f $(STAMP))
endif
endif
$(STAMP): pyproject.toml constraints.txt
	$(need-python)
	$(need-venv)
	@[ -e $@ ] || { echo "Building the environment in $(VENV): once, a few minutes"; $(PYTHON) -m venv --clear $(VENV); }
	@rm -f $@
	@$(PY) -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[test,lab,crosscheck]'
	@printf '%s\n' "$(CURDIR)" > $@

.PHONY: system-python
system-python:
	$(need-python)

# A note that is not there: say which are.
note-%:
	@echo "There is no $@. The notes are:" >&2
	$(list-notes) >&2
	@exit 2
