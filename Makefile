# Two commands do everything: `make train` and `make test`. `make check` is the daily loop; `make` alone lists all.
#
# What `make test` does on 2 cores, and the minutes of each part alone. Cold caches add 25 minutes of builds before it:
# Go modules, Debian roots, images (lab/), into the user's cache.
#   make on-lab, which mostly waits for a cluster:
#     molecule           12  default, gpu, pytorchjob and teams, one after the other in the same lab
#     tests/lab           6  builds, nodes and their programs
#     users' scripts      2  tests/cluster: actions, a broken API, five that are not proven, scripts; all in one lab from here
#     guides              3  tests/guides: a short part of each; without the guides they are skipped
#     faults              4  tests/cluster: a sample of two faults of a cluster, and of kills of a playbook
#     the lab's promises  5  tests/cluster/test_lab.py and test_hardening.py
#   make without-lab, beside it:
#     make check          8  lint, tests/unit golden repository, slow ones too: no root, no network, nothing built
#     charts, trainer     8  tests/charts trainer: what is built, without a cluster
# `make test-full` adds the other scenarios, the faults of a training and the live comparison of the library, in parts of
# equal time with PART=1/3; docs/testing.md says how long it takes. What takes longer is a sweep.
SHELL := /bin/sh
.DEFAULT_GOAL := help
JOB ?= jobs/digits.yml
INVENTORY ?= inventories/lab/hosts.yml
PLAYBOOK = .venv/bin/ansible-playbook -i $(INVENTORY)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export HOME := $(or $(HOME),$(shell getent passwd "$$(id -u)" | cut -d: -f6))
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gangplank

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: setup
setup: ## Python packages in the user's cache, and .venv with the code of this checkout (PYTHON=python3.13: switch to that one)
	@tools/setup-venv $(PYTHON)

.PHONY: job
job:
	@test -f "$(JOB)" || { echo "JOB: got $(JOB), expected a job file that exists. Fix: make train JOB=FILE," \
	"with one of $(wildcard jobs/*.yml) or your own" >&2; exit 2; }

.PHONY: train
train: job setup ## everything: lab up, Volcano and storage installed, JOB trained and proven
	@.venv/bin/python -m tools.check_job "$(JOB)"
	@$(PLAYBOOK) playbooks/lab.yml playbooks/site.yml playbooks/train.yml -e @$(JOB)

.PHONY: lab
lab: setup ## only the cluster
	@$(PLAYBOOK) playbooks/lab.yml

.PHONY: site
site: setup ## install what the site's inventory asks for, on the existing cluster
	@$(PLAYBOOK) playbooks/site.yml

.PHONY: teams
teams: setup ## bring the cluster's teams to what the site's team files say
	@$(PLAYBOOK) playbooks/teams.yml

.PHONY: lab-load
lab-load: setup ## IMAGE=my.tar (OCI or docker-save) onto every node
	@$(PLAYBOOK) playbooks/lab-load.yml -e lab_cluster_load="$(abspath $(IMAGE))"

.PHONY: down
down: setup ## remove the lab with its data (KEEP=true keeps them for the next); caches stay
	@$(PLAYBOOK) playbooks/lab-down.yml $(if $(KEEP),-e lab_cluster_keep="$(KEEP)")

.PHONY: clean
clean: ## remove this project's cache (the next run builds for some twenty minutes)
	@! test -e /var/lib/gangplank/lab -o -e /run/gangplank && \
	! find "$(CACHE)/stores" -name images.json -links +1 2> /dev/null | grep -q . || \
	{ echo "make clean: a lab's nodes run from the cache. Fix: make down" >&2; exit 1; }
	@test ! -e "$(CACHE)/build.lock" || flock --nonblock "$(CACHE)/build.lock" true || \
	{ echo "make clean: a build fills the cache. Fix: wait for it or end it, then run it again" >&2; exit 1; }
	@test ! -e "$(CACHE)/venv/lock" || flock --nonblock "$(CACHE)/venv/lock" true || \
	{ echo "make clean: make setup fills the cache. Fix: wait for it or end it, then run it again" >&2; exit 1; }
	rm -rf "$(CACHE).gone" && \
	if mountpoint -q "$(CACHE)" || test -L "$(CACHE)"; then find "$(CACHE)/" -mindepth 1 -delete; \
	elif test -d "$(CACHE)"; then flock --nonblock "$(CACHE)/build.lock" mv -T "$(CACHE)" "$(CACHE).gone"; fi && \
	rm -rf "$(CACHE).gone" .venv.new .venv.gone && \
	if test -e .venv/stamp -o -e .venv/unfinished; then rm -rf .venv; fi

.PHONY: parts
parts: setup ## build what the lab needs, into the cache
	@.venv/bin/python -m lab.build > /dev/null

.PHONY: lint
lint: setup ## ruff, mypy, the layers of gangplank/, yamllint, ansible-lint
	.venv/bin/ruff check .
	.venv/bin/mypy gangplank lab plugins tools bench tests molecule
	.venv/bin/lint-imports --no-logo --no-cache
	cd trainer && ../.venv/bin/mypy --config-file mypy.ini .
	.venv/bin/yamllint --strict .
	.venv/bin/python -m tools.lint_ansible

.PHONY: check
check: setup ## lint, and the quick tests that need nothing: no root, no network, no cluster, nothing built (under 3 minutes; ALL=1: slow ones too)
	@.venv/bin/python -m tools.beside unit lint

.PHONY: unit
# Compiled tests are kept, whatever the environment says: pytest takes longer to compile them than to collect them.
unit: setup
	PYTHONDONTWRITEBYTECODE= .venv/bin/pytest $(if $(ALL)$(GANGPLANK_FULL),,-m "not slow") -n 2 --dist loadfile tests/unit tests/golden tests/repository

SCENARIOS ?= default gpu pytorchjob teams
.PHONY: molecule
molecule: setup ## scenarios in one lab: the whole stack comes up, and training finishes (SCENARIOS="default gpu", or all)
	.venv/bin/molecule destroy --scenario-name default # what an earlier run left, in its notes too
	@rm -f .molecule.log
	ANSIBLE_LOG_PATH="$(CURDIR)/.molecule.log" \
	.venv/bin/molecule test $(if $(filter all,$(SCENARIOS)),--all,$(addprefix --scenario-name ,$(SCENARIOS))) \
	|| { status=$$?; echo "what failed, from .molecule.log:"; .venv/bin/python -m tools.failed_plays .molecule.log; exit $$status; }

WITHOUT_LAB = tests/charts tests/trainer
TESTS ?= $(WITHOUT_LAB) tests/lab tests/cluster/test_actions.py tests/cluster/test_api_faults.py \
	tests/cluster/test_cluster_faults.py tests/cluster/test_fakes.py \
	tests/cluster/test_hardening.py tests/cluster/test_lab.py tests/cluster/test_script_corpus.py \
	tests/cluster/test_playbook_kills.py::test_d6_site_and_uninstall_killed_at_a_point_converge \
	tests/guides/test_flyte.py::test_our_job_is_the_pages_task tests/guides/test_flyte.py::test_the_task_is_accepted_by_the_cluster \
	tests/guides/test_study.py::test_the_job_is_accepted_as_it_is_printed \
	tests/guides/test_tencent.py::test_the_tag_that_the_page_has_is_refused \
	tests/guides/test_volcano_site.py::test_the_example_trains tests/guides/test_vsphere.py::test_the_operator_is_verified \
	tests/guides/test_vsphere.py::test_an_indented_end_ends_nothing tests/guides/test_vsphere.py::test_the_job_is_accepted_as_it_is_printed
.PHONY: pytest
pytest: setup parts
	$(if $(TESTS),GANGPLANK_TRAINER_ROOT=$$(.venv/bin/python -m lab.build --show roots.trainer) .venv/bin/pytest --durations=40 --durations-min=10 $(TESTS))

.PHONY: test
test: export ALL := 1
test: setup parts ## all that a contributor must pass
	@.venv/bin/python -m tools.beside on-lab without-lab

APART = $(filter $(addsuffix %,$(WITHOUT_LAB)),$(TESTS))
.PHONY: on-lab
on-lab: molecule
	@$(MAKE) --no-print-directory pytest TESTS="$(filter-out $(APART),$(TESTS))"

.PHONY: without-lab
without-lab: check
	@$(MAKE) --no-print-directory pytest TESTS="$(APART)"

.PHONY: test-full
test-full: setup ## every scenario and all of tests/, with larger counts; PART=1/3 runs a third of it (SEED=n: the order of a noted run)
	@.venv/bin/python -m tools.split_tests "$(PART)" "$(SEED)"

.PHONY: sweep
sweep: setup ## NAME=honest PART=1/3: all cases of a test that is sampled elsewhere; the result is to be committed. Without NAME: a list
	@.venv/bin/python -m tools.sweep "$(NAME)" "$(PART)"

.PHONY: test-vm
test-vm: setup parts ## the lab on cgroup v2 with systemd, and after power cuts, in a user-mode Linux (20 minutes; x86_64, gcc, Debian packages)
	GANGPLANK_VM=1 .venv/bin/pytest tests/vm

.PHONY: bench
bench: setup ## PARTS="gangs expand": figures beside peers and floors, into bench/results and docs/bench.md. Without PARTS: a list
	@.venv/bin/python -m bench $(PARTS) $(if $(OUT),--out "$(OUT)")

.PHONY: bench-why
bench-why: PARTS := fit
bench-why: bench ## how long fit and why take on a large cluster: PARTS=fit

.PHONY: bench-faults
bench-faults: PARTS := faults
bench-faults: bench ## how a training ends under each fault of its cluster: PARTS=faults (FAULTS="a rank killed,…": these alone)

.PHONY: gpu-check
gpu-check: ## the trainer on this machine's GPUs: proof, exact resume, samples per second (PYTHON: one with torch; RESULT=file.json)
	@$(or $(PYTHON),python3) -m tools.gpu_check $(if $(RESULT),--json "$(RESULT)")

.PHONY: pins
pins: setup ## write lab/modules/*/go.{mod,sum} from lab/versions.yml
	.venv/bin/python -m lab.build.pin_modules

.PHONY: relock
relock: setup ## write lab/lock.json: the packages and the digests of everything, as built here (nothing else writes it)
	.venv/bin/python -m lab.build --relock

.PHONY: verify
verify: setup ## hash the whole cache again; what differs from lab/lock.json or go.sum is named, and removed unless a lab runs
	@.venv/bin/python -m lab.build.verify

SBOM = $(CACHE)/venv/sbom-$(shell sha256sum requirements-sbom.txt | cut -c1-16)
.PHONY: sbom
sbom: setup parts ## a bill of materials (CycloneDX 1.6) for every image, binary and root into sbom/, checked against the schema
	@.venv/bin/python -m lab.build.sbom sbom
	@test -e "$(SBOM)/complete" || { rm -rf "$(SBOM)" && .venv/bin/python -m venv --without-pip "$(SBOM)" \
	&& .venv/bin/python -m pip --python "$(SBOM)/bin/python" install --quiet --disable-pip-version-check --require-hashes \
	--requirement requirements-sbom.txt && sync -f "$(SBOM)" && touch "$(SBOM)/complete"; }
	@"$(SBOM)/bin/python" tools/validate_sbom.py sbom

.PHONY: dist
dist: setup ## what a site installs, into dist/: wheel, collection, charts with an index, schema of job files (docs/install.md)
	@.venv/bin/python -m tools.dist

.PHONY: bundle
bundle: setup ## INVENTORY=…: one archive for a site without internet: dist/, images, charts, packages, programs (docs/airgap.md)
	@.venv/bin/python -m tools.bundle $(INVENTORY)

.PHONY: sanity
sanity: setup ## ansible-test sanity on the built collection (two minutes; needs the package index)
	@.venv/bin/python -m tools.sanity

.PHONY: docs
docs: setup ## write what is generated from values, argument specs and the library: READMEs, docs and the job chart's schema
	@.venv/bin/python -m tools.write_job_chart --write
	@helm_docs=$$(.venv/bin/python -m lab.build --show bin.helm-docs)/helm-docs; \
	for chart in charts/*/; do (cd $$chart && "$$helm_docs" --log-level warning --template-files=../README.md.gotmpl); done
	.venv/bin/python tools/write_role_readmes.py --write
	@.venv/bin/python -m tools.write_docs_tables --write
	@.venv/bin/python -m bench.page --write

.PHONY: house
house: setup ## count what the layout promises
	@.venv/bin/python -m tools.count_house

.PHONY: release
release: setup ## VERSION=x.y.z: write it wherever it is named, build the changelog, print the next steps
	@.venv/bin/python -m tools.release "$(VERSION)"
