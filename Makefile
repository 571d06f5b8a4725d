# Two commands do all the set-up on a fresh machine with Go and Python:
#   make demo    runs the main job: a service feeding eight trainer ranks
#   make test    passes the tests
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
STATICCHECK = v0.8.2
GOVULNCHECK = v1.9.0
BIN := bin/millrace
# Without cgo binaries are static, link in two thirds of the time, and need no C compiler. The race detector needs cgo.
export CGO_ENABLED ?= 0
# Arrow's JSON by the standard library and, where cgo is on, Pebble's zstd in Go. The other JSON library is a twelfth of what a
# fresh machine compiles; with zstd in C it is a fifth of what the race detector needs. Millrace writes no JSON by Arrow.
TAGS := arrow_json_stdlib,pebblegozstd
export GOFLAGS := $(strip $(GOFLAGS) -tags=$(TAGS))
VENV := .venv
VENV_TORCH := .venv-torch
VENV_CURRENT := .venv-current
VENV_FRAMEWORKS := .venv-frameworks
STEPS ?= 40
FRAMEWORKS := torch torchdata torchtitan transformers accelerate lightning jax grain orbax-checkpoint
space := $(subst ,, )

.PHONY: help build build-gpu demo test go-test race race-build race-short lint vulncheck generate generate-check bench bench-turns bench-streaming bench-safety bench-ray bench-peers bench-memory bench-peers-balance fuzz py py-torch py-frameworks py-debian-torch chat s3-server rig kills-shared soak stalls planted tokenizers clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 26

build: ## build the one binary, bin/millrace
	go build -o $(BIN) ./cmd/millrace

build-gpu: ## bin/millrace that finds NVIDIA GPUs, for their slots and samples; needs a C compiler, and no CUDA
	CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" go build -tags nvml,$(TAGS) -o $(BIN) ./cmd/millrace

demo: build $(VENV)/installed ## run the main job: real sources, real processes, eight ranks (STEPS=40)
	$(VENV)/bin/python examples/demo.py --millrace $(BIN) --steps $(STEPS)

test: lint $(VENV)/tested go-test py py-debian-torch ## all daily checks: Go and Python, no download but packages

# The packages whose tests take longest, which begin first: else the last of them runs alone.
LONGEST := ./internal/service ./internal/worker ./internal/cli ./bench/killmatrix ./internal/checkpoint
# How many packages are tested at once: tests of services wait about as long as they compute.
PACKAGES := $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) * 3 / 2 )))

# The heaps of tests are small, and collected for a sixth of the lanes' time by default; those of the compiler for a quarter
# of its own.
build generate go-test race-build race-short lint: export GOGC := 400

go-test: ## Go tests
	go test -p $(PACKAGES) -vet=off -timeout 20m -shuffle=on $(LONGEST) ./...

# The packages that start goroutines; go-test has run all tests without -short. Left out is what takes long here and has no two
# goroutines that share anything: damage to each byte of a log, loops over pixels, tables of tensors, the reference alone.
SEQUENTIAL := TestListingLimit|TestEveryByte|TestEveryFile|TestEveryObject|TestCrashAnywhere|TestDamage|TestDiskFails|TestWindow|TestOldStretch|TestAgainstReference|TestArrayTurned|TestOrientations|TestListedSizes|TestParts|TestTraceIsTheInverse|TestPlansAreTheReferences|TestHops|TestDiskNeeded|TestHugeRows|TestForward|TestChangesMatter|TestPlanIsProtobuf

RACED := ./internal/service ./client $(addprefix ./internal/,worker checkpoint/... sourceloader constructor/... engine faultproxy handover imaging \
  metamorphic object/... planner preview rig rpc sim trainer)

race-build: # compile what race-short tests, for a lane that has idle cores
	CGO_ENABLED=1 go build -race $(RACED)

race-short: ## those Go tests under the race detector that a change has to pass
	CGO_ENABLED=1 go test -p $(PACKAGES) -vet=off -timeout 20m -race -short -shuffle=on -skip '^($(SEQUENTIAL))$$' $(RACED)

race: ## Go tests under the race detector
	CGO_ENABLED=1 go test -race -shuffle=on ./...

lint: ## formatting, vet, staticcheck
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK) ./...

vulncheck: ## known vulnerabilities of dependencies; needs vuln.go.dev
	go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) ./...

generate: ## write generated files: protobuf code, the job spec's reference page
	@command -v protoc >/dev/null || { echo "protoc is missing: install protobuf-compiler (Debian) or protobuf (brew)"; exit 1; }
	protoc --plugin=protoc-gen-go=$$(go tool -n protoc-gen-go) --plugin=protoc-gen-go-grpc=$$(go tool -n protoc-gen-go-grpc) \
	  --go_out=. --go_opt=module=$$(go list -m) --go-grpc_out=. --go-grpc_opt=module=$$(go list -m) proto/state.proto proto/millrace.proto
	go generate ./...

generate-check: generate ## fail if generated files are not up to date (protoc's own version aside)
	@git diff --exit-code -I '^// [-\t ]*protoc ' -- proto internal/proto docs || { echo "generated files are not current: commit what make generate wrote"; exit 1; }

bench: ## measure, beside the ceilings of this machine (minutes; writes build/bench.jsonl)
	@mkdir -p build
	go run ./bench -out build/bench.jsonl

TURNS ?= 7

bench-turns: ## the bench of this tree in turns with that of another commit: OLD=<commit>, TURNS=7, SCENARIO=text,plancycle (about half an hour for all; build/turns.jsonl)
	@[ -n "$(OLD)" ] || { echo "name the commit to compare with: make bench-turns OLD=<commit>"; exit 1; }
	@mkdir -p build
	go run ./bench -against "$(OLD)" -runs $(TURNS) -scenario "$(SCENARIO)" -out build/turns.jsonl

bench-streaming: ## the engine's scheduler in virtual time, beside baselines and the solver (minutes)
	go run ./bench/streaming

BEFORE_ENGINE := eb57cf3

bench-direct: ## blocks of native chains, which no engine has a part in, in turns with the tree before the engine read any (ROUNDS=12; about 2 minutes; needs the history, MILLRACE_DATA and an idle machine)
	@bench/direct.sh $(BEFORE_ENGINE) $(if $(filter file,$(origin ROUNDS)),12,$(ROUNDS))

bench-safety: build ## what log, mirror and shadows cost, and the first batch on a log of a million steps: build/safety.md (about 3 minutes; needs an idle machine)
	@mkdir -p build
	go run ./bench/safety -millrace $(BIN) -markdown build/safety.md

VENV_PEERS := .venv-peers
VENV_PEERS_TORCH := .venv-peers-torch
MB ?= 100
ROUNDS ?= 2

$(VENV_PEERS)/installed: client/python/pyproject.toml
	[ -x $(VENV_PEERS)/bin/python ] || $(PYTHON) -m venv $(VENV_PEERS)
	$(VENV_PEERS)/bin/python -m pip install --quiet 'ray[data]' tiktoken pyarrow ./client/python
	$(VENV_PEERS)/bin/python -m pip install --quiet torch --index-url https://download.pytorch.org/whl/cpu || echo "no torch from its index for CPUs: Debian's python3-torch is tried"
	$(VENV_PEERS)/bin/python -c 'import torch' 2>/dev/null || ! /usr/bin/python3 -c 'import torch, venv' 2>/dev/null || { \
	  /usr/bin/python3 -m venv --system-site-packages $(VENV_PEERS_TORCH) && $(VENV_PEERS_TORCH)/bin/python -m pip install --quiet tiktoken 'pyarrow<20'; }
	@touch $@

bench-ray: build $(VENV_PEERS)/installed ## JSONL to tokens in Parquet beside Ray Data and PyTorch's DataLoader: build/peers.md (MB=100; minutes; installs ray)
	$(VENV_PEERS)/bin/python -m pip install --quiet --no-deps ./client/python
	@[ -d "$$MILLRACE_DATA" ] || { echo "bench-ray needs the shared data: set MILLRACE_DATA to its folder"; exit 1; }
	@mkdir -p build; torch=$(VENV_PEERS)/bin/python; [ ! -x $(VENV_PEERS_TORCH)/bin/python ] || torch=$(CURDIR)/$(VENV_PEERS_TORCH)/bin/python; \
	$(VENV_PEERS)/bin/python bench/peers/measure.py --millrace $(BIN) --data "$$MILLRACE_DATA" --megabytes $(MB) --torch-python $$torch --markdown build/peers.md

VENV_BALANCE := .venv-peers-balance

bench-peers-balance: ## samples of served plans through verl's, TRL's and Megatron-Core's packing and balancing: build/peers-balance.md (a minute; downloads their wheels, without what they depend on)
	[ -x $(VENV_BALANCE)/bin/python ] || $(PYTHON) -m venv $(VENV_BALANCE)
	$(VENV_BALANCE)/bin/python -m pip install --quiet numpy pyarrow
	@mkdir -p build; for p in verl trl megatron-core; do \
	  $(VENV_BALANCE)/bin/python -m pip download --quiet --no-deps --only-binary :all: --dest $(VENV_BALANCE)/wheels $$p || echo "$$p: no wheel, it is left out"; done
	go run ./bench/peers/plans > build/peers-balance.json
	$(VENV_BALANCE)/bin/python bench/peers/balance.py --plans build/peers-balance.json --wheels $(VENV_BALANCE)/wheels --markdown build/peers-balance.md

VENV_LOADERS := .venv-loaders

$(VENV_LOADERS)/installed: client/python/pyproject.toml
	[ -x $(VENV_LOADERS)/bin/python ] || $(PYTHON) -m venv $(VENV_LOADERS)
	$(VENV_LOADERS)/bin/python -m pip install --quiet torch torchvision --index-url https://download.pytorch.org/whl/cpu || $(VENV_LOADERS)/bin/python -m pip install --quiet torch torchvision
	$(VENV_LOADERS)/bin/python -m pip install --quiet tiktoken pyarrow numpy grpcio
	for p in mosaicml-streaming litdata grain; do $(VENV_LOADERS)/bin/python -m pip install --quiet $$p || echo "$$p does not install: it is left out"; done
	@touch $@

bench-peers: build $(VENV_LOADERS)/installed ## batches for Python trainers beside DataLoader, MosaicML Streaming, LitData and Grain: build/loaders.md (ROUNDS=2; about 15 minutes; text too with MILLRACE_DATA; installs the peers and torch, gigabytes)
	$(VENV_LOADERS)/bin/python -m pip install --quiet --no-deps ./client/python
	@mkdir -p build; $(VENV_LOADERS)/bin/python -W ignore bench/peers/loaders.py --millrace $(BIN) --ways shared,stream --rounds $(ROUNDS) $(if $(MILLRACE_DATA),--data "$(MILLRACE_DATA)") --markdown build/loaders.md

bench-memory: build $(VENV_PEERS)/installed ## peak memory of whole jobs under 256 MiB, 512 MiB and 2 GiB: build/memory.md (minutes)
	$(VENV_PEERS)/bin/python -m pip install --quiet --no-deps ./client/python
	@[ -d "$$MILLRACE_DATA" ] || { echo "bench-memory needs the shared data: set MILLRACE_DATA to its folder"; exit 1; }
	@mkdir -p build; $(VENV_PEERS)/bin/python -u bench/peers/memory.py --millrace $(BIN) --data "$$MILLRACE_DATA" --markdown build/memory.md

RIG := build/rig
KILLS ?= 3000
SHARED ?= 1000
SPLITS ?= 100
DAMAGE ?= 600
SEEDS ?= 2000
SEED ?= 1

rig: ## the binaries that soak runs, static, for a machine without Go: build/rig
	CGO_ENABLED=0 go build -trimpath -tags failpoint,$(TAGS) -o $(RIG)/millrace-failpoint ./cmd/millrace
	CGO_ENABLED=0 go build -trimpath -o $(RIG)/millrace ./cmd/millrace
	CGO_ENABLED=0 go build -trimpath -o $(RIG)/ ./bench/killmatrix ./bench/stalls
	CGO_ENABLED=0 go test -trimpath -c -o $(RIG)/metamorphic.test ./internal/metamorphic
	CGO_ENABLED=0 go test -trimpath -c -o $(RIG)/sim.test ./internal/sim

kills-shared: rig $(VENV)/installed ## kill 1,000 constructors and ranks, in Go and Python, that share memory (5 minutes; SHARED=1000 SEED=1)
	MILLRACE_ACCESS_KEY=key-of-one-matrix-on-one-machine $(RIG)/killmatrix -millrace $(RIG)/millrace-failpoint -shared $(SHARED) -seed $(SEED) -python $(VENV)/bin/python

soak: rig ## kill every role at every failpoint, stop leaders, damage logs, simulate (about an hour; KILLS=3000 SPLITS=100 DAMAGE=600 SEEDS=2000 SEED=1)
	$(RIG)/killmatrix -millrace $(RIG)/millrace-failpoint -kills $(KILLS) -splits $(SPLITS) -damage $(DAMAGE) -seed $(SEED) -markdown $(RIG)/kills.md -json $(RIG)/kills.json
	$(RIG)/metamorphic.test -test.run TestSeeds -test.timeout 60m -seed $(SEED) -seeds $(SEEDS)
	$(RIG)/sim.test -test.run TestSeeds -test.timeout 60m -seed $(SEED) -seeds $(SEEDS)

planted: ## apply each planted bug to a copy of the tree and run what is to find it: fails if one is not found (minutes)
	@for p in testdata/planted/*.patch; do testdata/planted/find $$p || exit 1; done

stalls: rig $(VENV)/installed ## how long ranks of a paced trainer wait while roles die: build/rig/stalls.md, .svg (about 10 minutes)
	$(RIG)/stalls -millrace $(RIG)/millrace -python $(VENV)/bin/python -markdown $(RIG)/stalls.md -json $(RIG)/stalls.jsonl -svg $(RIG)/stalls.svg

TOKENIZERS := build/tokenizers
MEGABYTES ?= 1000

tokenizers: ## ids and speed of tokenizer.json files and SentencePiece models beside their libraries (minutes; MEGABYTES=1000 of each text file)
	@[ -x .venv-tokenizers/bin/python ] || $(PYTHON) -m venv .venv-tokenizers
	@if ! .venv-tokenizers/bin/python -m pip install --quiet --only-binary :all: tokenizers==0.23.3 sentencepiece==0.2.3 protobuf; then \
	  echo "tokenizers skipped: the library cannot be installed here"; exit 0; fi; \
	set -e; [ -d "$$MILLRACE_DATA" ] || { echo "tokenizers skipped: set MILLRACE_DATA to the shared data"; exit 0; }; \
	rm -rf $(TOKENIZERS); .venv-tokenizers/bin/python internal/sourceloader/tokenize/testdata/library.py "$$MILLRACE_DATA" $(TOKENIZERS) $(MEGABYTES); \
	MILLRACE_TOKENIZERS=$(CURDIR)/$(TOKENIZERS) go test -run 'TestLibrary$$' -count 1 -timeout 60m ./internal/sourceloader/tokenize; \
	cat $(TOKENIZERS)/table.md

fuzz: ## fuzz every decoder for 20 s each
	@for t in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
	  for f in $$(grep -oE '^func Fuzz[A-Za-z0-9]+' $$t | cut -c6-); do \
	    echo "$$t $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime 20s -fuzzminimizetime 10x ./$$(dirname $$t) || exit 1; done; done

# ---- Python ----

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python client/python/pyproject.toml $(shell find client/python/src -name '*.py')
	$(VENV)/bin/python -m pip install --quiet ./client/python
	@touch $@

$(VENV)/tested: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet pytest mypy ruff
	@touch $@

s3-server: bin/versitygw ## build the S3 server that tests use (minutes, once); without it they are skipped

bin/versitygw: internal/tools/s3server/go.mod
	cd internal/tools/s3server && go build -o $(CURDIR)/$@ github.com/versity/versitygw/cmd/versitygw
	@touch $@

PYTHON_BESIDE := ../../examples ../../internal/worker/testdata ../../bench

py: build $(VENV)/tested ## Python client: format, types, tests against the real service
	cd client/python && ../../$(VENV)/bin/ruff format --check . $(PYTHON_BESIDE) && ../../$(VENV)/bin/ruff check . $(PYTHON_BESIDE) && ../../$(VENV)/bin/mypy && ../../$(VENV)/bin/mypy ../../bench
	cd client/python && MILLRACE_BIN=$(CURDIR)/$(BIN) ../../$(VENV)/bin/python -m pytest -q

VENV_CHAT ?= .venv-chat
CHAT := internal/sourceloader/transform/jinja

chat: ## Chat templates of today's models against Jinja2 as Transformers sets it up (downloads 30 MB)
	[ -x $(VENV_CHAT)/bin/python ] || $(PYTHON) -m venv $(VENV_CHAT)
	$(VENV_CHAT)/bin/python -m pip install --quiet jinja2 markupsafe transformers tokenizers
	$(VENV_CHAT)/bin/python -m pip install --quiet --no-deps trl # for the templates in it
	cd internal/tools/chat && ../../../$(VENV_CHAT)/bin/python cases.py ../../../$(CHAT)/testdata/own.jsonl
	git diff --exit-code $(CHAT)/testdata
	cd internal/tools/chat && ../../../$(VENV_CHAT)/bin/python cases.py ../../../$(VENV_CHAT)/cases.jsonl ../../../$(VENV_CHAT)/lib/python*/site-packages/trl/chat_templates/*.jinja
	cd internal/tools/chat && ../../../$(VENV_CHAT)/bin/python tokens.py ../../../$(CHAT)/../testdata/conversations.jsonl ../../../internal/sourceloader/tokenize/testdata/files.jsonl
	cd internal/tools/chat && ../../../$(VENV_CHAT)/bin/python images.py ../../../$(CHAT)/../testdata/images.jsonl ../../../internal/sourceloader/tokenize/testdata/files.jsonl
	git diff --exit-code $(CHAT)/../testdata
	cd internal/tools/chat && ../../../$(VENV_CHAT)/bin/python tokens.py ../../../$(VENV_CHAT)/tokens.jsonl ../../../internal/sourceloader/tokenize/testdata/files.jsonl ../../../$(VENV_CHAT)/lib/python*/site-packages/trl/chat_templates/*.jinja
	MILLRACE_CHAT_TOKENS=$(CURDIR)/$(VENV_CHAT)/tokens.jsonl go test -count=1 -v -run TestConversations ./$(CHAT)/..
	MILLRACE_CHAT_CASES=$(CURDIR)/$(VENV_CHAT)/cases.jsonl go test -count=1 -v -run TestTemplates ./$(CHAT)

py-debian-torch: build ## PyTorch adapter against Debian's python3-torch (skipped where it is not installed)
	@if ! /usr/bin/python3 -c 'import torch, venv' 2>/dev/null; then \
	  echo "PyTorch tests skipped: /usr/bin/python3 has no torch (Debian: apt-get install python3-torch python3-venv)"; exit 0; fi; \
	set -e; [ -x $(VENV_TORCH)/bin/python ] || /usr/bin/python3 -m venv --system-site-packages $(VENV_TORCH); \
	$(VENV_TORCH)/bin/python -m pip install --quiet ./client/python pytest; \
	cd client/python && MILLRACE_BIN=$(CURDIR)/$(BIN) ../../$(VENV_TORCH)/bin/python -m pytest -q tests/test_torch.py tests/test_broadcast.py tests/test_feed.py tests/test_megatron.py tests/test_models.py tests/test_formats.py

py-frameworks: build ## Lightning, Transformers, Accelerate, torchdata, torchtitan, JAX and Grain of today (downloads gigabytes)
	[ -x $(VENV_FRAMEWORKS)/bin/python ] || $(PYTHON) -m venv $(VENV_FRAMEWORKS)
	$(VENV_FRAMEWORKS)/bin/python -m pip install --quiet ./client/python pytest $(FRAMEWORKS)
	$(VENV_FRAMEWORKS)/bin/python -m pip list 2>/dev/null | grep -E '^($(subst $(space),|,$(FRAMEWORKS))) '
	cd client/python && MILLRACE_BIN=$(CURDIR)/$(BIN) ../../$(VENV_FRAMEWORKS)/bin/python -m pytest -q tests/test_frameworks.py tests/test_documents.py tests/test_resume.py tests/test_feed.py tests/test_megatron.py tests/test_torch.py tests/test_broadcast.py tests/test_torchdata.py tests/test_models.py tests/test_formats.py

py-torch: build ## PyTorch and torchdata of today (downloads gigabytes)
	[ -x $(VENV_CURRENT)/bin/python ] || $(PYTHON) -m venv $(VENV_CURRENT)
	$(VENV_CURRENT)/bin/python -m pip install --quiet ./client/python pytest torch torchdata
	cd client/python && MILLRACE_BIN=$(CURDIR)/$(BIN) ../../$(VENV_CURRENT)/bin/python -m pytest -q tests/test_torch.py tests/test_broadcast.py tests/test_torchdata.py

clean: ## remove everything built
	rm -rf bin build $(VENV) $(VENV_TORCH) $(VENV_CURRENT) $(VENV_FRAMEWORKS) $(VENV_CHAT) $(VENV_PEERS) $(VENV_PEERS_TORCH)
