# belay: `make demo` shows it, `make test` checks it, `make help` tells the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

CARGO ?= cargo

# The programs that users get.
RELEASE := target/release
# What the tests run on: optimised, but with checks and built faster. One profile for linters, tests,
# documentation and soak, so that nothing is compiled twice.
PROFILE := ci
CHECKED := target/$(PROFILE)

# make install
PREFIX ?= /usr/local
DESTDIR ?=
TRAINED ?=

# make demo
KILLS ?=
SIZE_MB ?= 100

# make soak: for how long, or how many kills, or both; SEED repeats a run
DURATION ?=
SEED ?=
FIXTURES ?=
SOAK_FLAGS ?=

# make bench
BENCH_FIXTURES ?= all
BENCH_NODES ?= 1000000
BENCH_KILLS ?= 100
BENCH_FLAGS ?=
BENCH_OUT ?= docs/benchmarks
RELAY_FIXTURES ?= fuser-musl,go-fuse-static,go-fuse-cgo,gocryptfs
# Of daemons that buffer: sizes are a fraction of the paper's, see the page
MEMBRANE_FLAGS ?= --sessions 12 --rounds 24 --file-mib 256 --files 100 --macro-rounds 6 --build-rounds 4
RECOVERY_FLAGS ?= --crashes 30

# make study: with these flags, the costs (Tables 6 and 7) take about an hour
STUDY_OUT ?= target/study
STUDY_FIXTURES ?=
STUDY_CRASHES ?= 100
STUDY_KILLS ?= 10000
# The results and the page of make study-relay
RELAY_STUDY := docs/fault-study/relay/controlled.json --page docs/relay-study.md
# Results that have their pages beside them
VOLUME_PAGES := $(addprefix docs/volumes/,loris.json table3.json soak.json soak-in-place.json soak-checked.json powercut.json \
  powercut-kept.json powercut-in-place.json powercut-vm.json powercut-build.json controlled.json)
# The same of the fault study
STUDY_TIMES := $(wildcard docs/fault-study/refuse.json docs/fault-study/restart.json)
STUDY_PAGES := $(filter-out $(STUDY_TIMES),$(wildcard docs/fault-study/*.json))
STUDY_FLAGS ?= --sessions 12 --rounds 24 --file-mib 256 --macro-rounds 6 --build-rounds 4

# make volumes, each of its parts alone, and how often something happens in each
VOLUMES_OUT ?= docs/volumes
LORIS_KILLS ?= 1000
LORIS_FLAGS ?=
TABLE3_INJECTIONS ?= 1500
TABLE3_OVERWRITES ?= 200
TABLE3_FLAGS ?=
VOLUME_CUTS ?= 2000
VOLUME_IN_PLACE_CUTS ?= 300
VOLUME_BUILD_CUTS ?= 200
VOLUME_VM_CUTS ?= 60
LAYOUTS_FLAGS ?=

# make miri: crates without `belay-`; all if none is named
CRATES ?=

# make zoo: ZOO names daemons, ZOO_FLAGS is for belay-chaos zoo
ZOO ?=
ZOO_FLAGS ?=

# make away
AWAY_FLAGS ?=

# make suites
SUITE_FLAGS ?=

# The soak that is part of `make test`.
TEST_SOAK_FIXTURES ?= passthrough-ll,passthrough-hl,bindfs,mergerfs,sshfs,ntfs-3g,avfs
TEST_SOAK_DURATION ?= 120s
TEST_SOAK_SEED ?= 20
# The same for a volume, every process of which is killed.
TEST_VOLUME_DURATION ?= 20s
# Its lower layers, its module and its power, in little.
TEST_LORIS_FLAGS ?= --scale tiny --kills 12 --every 400ms --any-time
TEST_TABLE3_FLAGS ?= --scale tiny --injections 10 --overwrites 3
TEST_VOLUME_CUTS ?= 5
TEST_BUILD_CUTS ?= 6
# And the fault study: the operations with most effects.
TEST_STUDY_FIXTURES ?= ntfs-3g,bindfs,mergerfs,avfs,sshfs
TEST_STUDY_OPS ?= create,mkdir,rename-over,unlink,append,chmod
# The same on disk images whose daemons buffer, in little: every so many of the points.
TEST_MEMBRANE_FIXTURES ?= fuse2fs-ext2,fuse2fs-ext4
TEST_MEMBRANE_ROWS ?= create,mkdir:accesses,rename-over:accesses,release:accesses,append,flush:FSYNCDIR,commit:supervisor,commit:both
TEST_MEMBRANE_EVERY ?= 5

# make powercuts: power failures; the machine is emulated in make powercuts-vm
CUTS ?=
POWER_FLAGS ?=
POWER_VM_FLAGS ?=
TEST_POWER_FLAGS ?= --cuts 15 --also 3 --seed 4

.PHONY: help
help: ## This list
	@echo 'usage: make TARGET [VARIABLE=VALUE ...]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  examples:'
	@echo '    make demo KILLS=200'
	@echo '    make soak DURATION=1h SEED=7 FIXTURES=sshfs,bindfs'
	@echo '    make soak KILLS=10000'
	@echo '    make install PREFIX=/usr DESTDIR=/tmp/package'

.PHONY: setup
setup: ## Install what is missing of the tools and daemons (Debian; root or sudo)
	@scripts/setup

.PHONY: build
build: ## Build everything for use: belay, its shim, belay-chaos, belay-bench
	$(CARGO) build --release --locked --workspace

.PHONY: train
train: setup build ## Build the shim by what daemons do with it, in place of the one that `make build` makes; until the next build
	@scripts/train $(RELEASE)

.PHONY: demo
demo: setup build ## Show it: real work on an sshfs that is killed 50 times (KILLS, SIZE_MB)
	@scripts/guarded $(RELEASE)/belay-chaos demo --kills $(or $(KILLS),50) --size-mb $(SIZE_MB)

.PHONY: picture
picture: setup build ## Record the picture in README.md anew (root)
	@scripts/record-demo $(RELEASE)

.PHONY: test
test: setup format lint build-checked unit doc daemons-page-check pages-check fault-study-check soak-short volumes-short study-short powercuts-short fuzz-short scribble-short away-short ## Everything that must hold before a change is accepted
	@echo
	@echo 'test runs:'
	@grep '^test result:' $(CHECKED)/tests.log
	@awk '/^test result:/ { runs++; passed += $$4; failed += $$6; ignored += $$8 } \
	  END { printf "test result: ok in all. %d runs; %d passed; %d failed; %d ignored\n", runs, passed, failed, ignored }' \
	  $(CHECKED)/tests.log

.PHONY: format
format:
	$(CARGO) fmt --all --check

.PHONY: lint
lint:
	$(CARGO) clippy --locked --workspace --all-targets --profile $(PROFILE) -- -D warnings

# `cargo test` does not build the shim as a library to be preloaded, nor the programs of other crates.
.PHONY: build-checked
build-checked:
	$(CARGO) build --locked --workspace --profile $(PROFILE)

.PHONY: unit
unit:
	@scripts/guarded $(CARGO) test --locked --workspace --no-fail-fast --profile $(PROFILE) -- --show-output 2>&1 \
	  | scripts/test-log $(CHECKED)/tests.log

.PHONY: doc
# Private items are documented too, so links to them are right.
doc: ## Build the documentation of all crates, without warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' \
	  $(CARGO) doc --locked --workspace --no-deps --document-private-items --profile $(PROFILE)

.PHONY: soak-short
soak-short:
	@scripts/guarded $(CHECKED)/belay-chaos soak --duration $(TEST_SOAK_DURATION) --seed $(TEST_SOAK_SEED) --fixtures $(TEST_SOAK_FIXTURES) \
	  --every 150ms

.PHONY: volumes-short
volumes-short:
	@scripts/guarded $(CHECKED)/belay-chaos soak --fixtures volume --oracle dir --every 20ms --seed $(TEST_SOAK_SEED) \
	  --duration $(TEST_VOLUME_DURATION)
	@scripts/guarded $(CHECKED)/belay-chaos study controlled --columns belay --fixtures volume --signals KILL --out $(CHECKED)/study
	@scripts/guarded $(CHECKED)/belay-chaos study loris --seed $(TEST_SOAK_SEED) $(TEST_LORIS_FLAGS) --out $(CHECKED)/study
	@scripts/guarded $(CHECKED)/belay-chaos study table3 --seed $(TEST_SOAK_SEED) $(TEST_TABLE3_FLAGS) --out $(CHECKED)/study
	@scripts/guarded $(CHECKED)/belay-chaos powercut --fixtures volume --cuts $(TEST_VOLUME_CUTS) --also 1 --seed $(TEST_SOAK_SEED)
	@scripts/guarded $(CHECKED)/belay-chaos powercut --fixtures volume --memory kept --cuts $(TEST_VOLUME_CUTS) --seed $(TEST_SOAK_SEED)
	@scripts/guarded $(CHECKED)/belay-chaos powercut-build --scale tiny --life 1s --cuts $(TEST_BUILD_CUTS) --seed $(TEST_SOAK_SEED)

.PHONY: volumes
volumes: volumes-soak volumes-steps volumes-bytes volumes-loris volumes-faults volumes-suites volumes-blackout volumes-power volumes-build volumes-power-vm volumes-layouts ## All of these, into docs/volumes (SEED, and the variables of each)

.PHONY: volumes-soak
volumes-soak: setup build ## Volumes under fire: a soak whose processes are killed, and a crash at every point (KILLS, SEED)
	@mkdir -p $(VOLUMES_OUT)
	@scripts/guarded $(RELEASE)/belay-chaos soak --fixtures volume --times 200 --oracle dir --every 20ms --kills $(or $(KILLS),10000) \
	  $(if $(SEED),--seed $(SEED)) --page $(VOLUMES_OUT)/soak.md
	@scripts/guarded $(RELEASE)/belay-chaos soak --fixtures volume --times 1000 --oracle dir --every 200ms --kills 1000 \
	  $(if $(SEED),--seed $(SEED)) --page $(VOLUMES_OUT)/soak-checked.md
	@scripts/guarded $(RELEASE)/belay-chaos soak --fixtures volume-in-place --times 40 --oracle dir --every 20ms --kills 2000 \
	  $(if $(SEED),--seed $(SEED)) --page $(VOLUMES_OUT)/soak-in-place.md
	@scripts/guarded $(RELEASE)/belay-chaos study controlled --columns belay --fixtures volume --no-verdict --out $(VOLUMES_OUT)

.PHONY: volumes-steps
volumes-steps: setup build-checked ## Kill the supervisor at each step of a restart, and have a disk stall for 30 s
	@mkdir -p $(VOLUMES_OUT)
	@BELAY_STEPS=1 BELAY_STALL=30 scripts/guarded $(CARGO) test --locked --workspace --profile $(PROFILE) --test volumes -- \
	  --show-output --test-threads 1 steps:: a_disk_that_stalls_is_waited_for 2>&1 \
	  | scripts/test-words $(VOLUMES_OUT)/steps.txt make volumes-steps

.PHONY: volumes-bytes
volumes-bytes: ## Have every byte of three small volumes be wrong, one at a time
	@mkdir -p $(VOLUMES_OUT)
	@BELAY_BYTES=1 $(CARGO) test --locked --profile $(PROFILE) -p belay-volume-sim --test hostile -- --show-output any_byte_that 2>&1 \
	  | scripts/test-words $(VOLUMES_OUT)/bytes.txt make volumes-bytes

.PHONY: volumes-loris
volumes-loris: setup build ## Build OpenSSH on a volume while its lower layers are killed (LORIS_KILLS, LORIS_FLAGS, SEED)
	@scripts/setup-study
	@scripts/guarded $(RELEASE)/belay-chaos study loris --kills $(LORIS_KILLS) $(if $(SEED),--seed $(SEED)) --out $(VOLUMES_OUT) $(LORIS_FLAGS)

.PHONY: volumes-faults
volumes-faults: setup build ## Kill a volume's namespace module and corrupt its code (TABLE3_INJECTIONS, TABLE3_OVERWRITES, TABLE3_FLAGS, SEED)
	@scripts/setup-study
	@scripts/guarded $(RELEASE)/belay-chaos study table3 --injections $(TABLE3_INJECTIONS) --overwrites $(TABLE3_OVERWRITES) \
	  $(if $(SEED),--seed $(SEED)) --out $(VOLUMES_OUT) $(TABLE3_FLAGS)

.PHONY: volumes-suites
volumes-suites: setup build ## pjdfstest and fsx on a volume, at rest and under fire (SUITE_FLAGS)
	@scripts/guarded $(RELEASE)/belay-chaos suite --suite pjdfstest --fixtures volume $(SUITE_FLAGS)
	@scripts/guarded $(RELEASE)/belay-chaos suite --suite fsx --fixtures volume $(SUITE_FLAGS)

.PHONY: volumes-blackout
volumes-blackout: setup build ## The pause that an application sees when a volume's namespace module is killed (BLACKOUT_KILLS)
	@scripts/guarded $(RELEASE)/belay-bench blackout --fixtures volume --starts 0 --pin none --kills $(or $(BLACKOUT_KILLS),1000) \
	  --out $(VOLUMES_OUT)
	@$(RELEASE)/belay-bench page $(VOLUMES_OUT)/blackout-unpinned.json

.PHONY: volumes-power
volumes-power: setup build ## Kill all of a volume at once, with and without its memory, and lose what was not synced (VOLUME_CUTS, SEED)
	@mkdir -p $(VOLUMES_OUT)
	@scripts/guarded $(RELEASE)/belay-chaos powercut --fixtures volume --cuts $(VOLUME_CUTS) --also 1 $(if $(SEED),--seed $(SEED)) \
	  --page $(VOLUMES_OUT)/powercut.md
	@scripts/guarded $(RELEASE)/belay-chaos powercut --fixtures volume --memory kept --cuts $(VOLUME_CUTS) $(if $(SEED),--seed $(SEED)) \
	  --page $(VOLUMES_OUT)/powercut-kept.md
	@scripts/guarded $(RELEASE)/belay-chaos powercut --fixtures volume-in-place --cuts $(VOLUME_IN_PLACE_CUTS) --also 1 \
	  $(if $(SEED),--seed $(SEED)) --page $(VOLUMES_OUT)/powercut-in-place.md

.PHONY: volumes-build
volumes-build: setup build ## Build OpenSSH on a volume that loses its processes and its power (VOLUME_BUILD_CUTS, SEED)
	@scripts/setup-study
	@mkdir -p $(VOLUMES_OUT)
	@scripts/guarded $(RELEASE)/belay-chaos powercut-build --cuts $(VOLUME_BUILD_CUTS) $(if $(SEED),--seed $(SEED)) \
	  --page $(VOLUMES_OUT)/powercut-build.md

.PHONY: volumes-power-vm
volumes-power-vm: setup build ## Cut the power of an emulated machine with a volume (VOLUME_VM_CUTS, SEED)
	@mkdir -p $(VOLUMES_OUT)
	@scripts/setup-vm target/vm $(RELEASE)
	@scripts/guarded $(RELEASE)/belay-chaos powercut-vm --machine target/vm --fixtures volume --cuts $(VOLUME_VM_CUTS) \
	  $(if $(SEED),--seed $(SEED)) --page $(VOLUMES_OUT)/powercut-vm.md

.PHONY: volumes-layouts
volumes-layouts: setup build ## What layouts of a volume cost, and what they survive (LAYOUTS_FLAGS)
	@scripts/setup-study
	@scripts/guarded $(RELEASE)/belay-bench layouts --out $(VOLUMES_OUT) $(LAYOUTS_FLAGS)

.PHONY: soak
soak: setup build ## Random operations under fire, compared with the bare daemon (DURATION, KILLS, SEED, FIXTURES)
	@scripts/guarded $(RELEASE)/belay-chaos soak \
	  $(if $(DURATION),--duration $(DURATION)) $(if $(KILLS),--kills $(KILLS)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(FIXTURES),--fixtures $(FIXTURES)) $(SOAK_FLAGS)

.PHONY: zoo
zoo: setup build ## The same on further daemons, for reading, archives, encryption, object stores and more (KILLS, ZOO)
	@scripts/setup-zoo
	@scripts/guarded $(RELEASE)/belay-chaos zoo $(if $(ZOO),--only $(ZOO)) --kills $(or $(KILLS),1000) \
	  $(if $(SEED),--seed $(SEED)) --json docs/daemons/soak.json $(ZOO_FLAGS)

.PHONY: certify
certify: setup build ## Have `belay qualify` say which policy each of these daemons needs (ZOO)
	@scripts/setup-zoo
	@scripts/guarded $(RELEASE)/belay-chaos certify $(if $(ZOO),--only $(ZOO)) --json docs/daemons/certificates.json \
	  --profiles target/profiles

.PHONY: daemons-page
daemons-page: build-checked ## Write docs/daemons.md from the results of zoo and certify
	$(CHECKED)/belay-chaos zoo-page

.PHONY: daemons-page-check
daemons-page-check:
	@$(CHECKED)/belay-chaos zoo-page --check

.PHONY: powercuts
powercuts: setup build ## Kill everything at once, 2,000 times, and lose what was not synced (CUTS, SEED, FIXTURES)
	@mkdir -p $(STUDY_OUT)
	@scripts/guarded $(RELEASE)/belay-chaos powercut --cuts $(or $(CUTS),2000) --also 1 $(if $(SEED),--seed $(SEED)) \
	  $(if $(FIXTURES),--fixtures $(FIXTURES)) --page $(STUDY_OUT)/powercut-random.md $(POWER_FLAGS)
	@scripts/guarded $(RELEASE)/belay-chaos powercut --cuts 12 --also 0 --steps 12 $(if $(SEED),--seed $(SEED)) \
	  $(if $(FIXTURES),--fixtures $(FIXTURES)) --page $(STUDY_OUT)/powercut-every.md $(POWER_FLAGS)

.PHONY: powercuts-vm
powercuts-vm: setup build ## Cut the power of an emulated machine, 50 times (CUTS, SEED, FIXTURES)
	@mkdir -p $(STUDY_OUT)
	@scripts/setup-vm target/vm $(RELEASE)
	@scripts/guarded $(RELEASE)/belay-chaos powercut-vm --machine target/vm --cuts $(or $(CUTS),50) \
	  $(if $(SEED),--seed $(SEED)) $(if $(FIXTURES),--fixtures $(FIXTURES)) --page $(STUDY_OUT)/powercut-vm.md $(POWER_VM_FLAGS)

.PHONY: powercuts-short
powercuts-short:
	@scripts/guarded $(CHECKED)/belay-chaos powercut $(TEST_POWER_FLAGS)

.PHONY: bench
bench: setup build ## Cost, memory and blackout against the bare daemon, into docs/benchmarks (BENCH_FIXTURES, BENCH_FLAGS, ...)
	@scripts/setup-study
	@mkdir -p $(BENCH_OUT)
	@scripts/guarded $(RELEASE)/belay-bench path --out $(BENCH_OUT)
	@scripts/guarded $(RELEASE)/belay-bench cost --out $(BENCH_OUT) --fixtures $(BENCH_FIXTURES) $(BENCH_FLAGS)
	@scripts/guarded $(RELEASE)/belay-bench memory --out $(BENCH_OUT) --nodes $(BENCH_NODES)
	@scripts/guarded $(RELEASE)/belay-bench blackout --out $(BENCH_OUT) --kills $(BENCH_KILLS)
	@scripts/guarded $(RELEASE)/belay-bench blackout --out $(BENCH_OUT) --fixtures bindfs --kills $(BENCH_KILLS) \
	  --nodes $(BENCH_NODES) --open-files 10000
	@scripts/guarded $(RELEASE)/belay-bench membrane --out $(BENCH_OUT) $(MEMBRANE_FLAGS)
	@scripts/guarded $(RELEASE)/belay-bench recovery --out $(BENCH_OUT) $(RECOVERY_FLAGS)
	$(RELEASE)/belay-bench report --in $(BENCH_OUT) --out docs

.PHONY: bench-relay
bench-relay: setup build ## What the relay costs, against the bare daemons, into docs/benchmarks/relay (RELAY_FIXTURES)
	@scripts/setup-zoo
	@mkdir -p $(BENCH_OUT)/relay
	@scripts/guarded $(RELEASE)/belay-bench cost --out $(BENCH_OUT)/relay --fixtures $(RELAY_FIXTURES) --threads 1 $(BENCH_FLAGS)
	@scripts/guarded $(RELEASE)/belay-bench cost --aa --out $(BENCH_OUT)/relay --fixtures $(RELAY_FIXTURES) --threads 1 $(BENCH_FLAGS)
	@$(RELEASE)/belay-bench carry --out $(BENCH_OUT)/relay
	$(RELEASE)/belay-bench report --relay --in $(BENCH_OUT)/relay --out $(BENCH_OUT)/relay

.PHONY: suites
suites: setup build ## pjdfstest and fsx, held under fire against bare, test by test (FIXTURES, SUITE_FLAGS)
	@scripts/guarded $(RELEASE)/belay-chaos suite --suite pjdfstest $(if $(FIXTURES),--fixtures $(FIXTURES)) $(SUITE_FLAGS)
	@scripts/guarded $(RELEASE)/belay-chaos suite --suite fsx $(if $(FIXTURES),--fixtures $(FIXTURES)) $(SUITE_FLAGS)

.PHONY: study
study: setup build ## Fault studies after Re-FUSE and Membrane, into docs/fault-study.md (STUDY_FIXTURES, STUDY_CRASHES, STUDY_FLAGS, ...)
	@scripts/setup-study
	@mkdir -p $(STUDY_OUT)
	@scripts/guarded $(RELEASE)/belay-chaos study controlled --no-verdict --out $(STUDY_OUT) $(if $(STUDY_FIXTURES),--fixtures $(STUDY_FIXTURES))
	@scripts/guarded $(RELEASE)/belay-chaos study random --crashes $(STUDY_CRASHES) --out $(STUDY_OUT) \
	  $(if $(STUDY_FIXTURES),--fixtures $(STUDY_FIXTURES))
	@scripts/guarded $(RELEASE)/belay-chaos soak --kills $(STUDY_KILLS) --every 30ms --belay-arg=--max-crashes=0 \
	  --page $(STUDY_OUT)/soak.md $(if $(SEED),--seed $(SEED)) \
	  --fixtures $(or $(STUDY_FIXTURES),$(TEST_SOAK_FIXTURES))
	@scripts/guarded $(RELEASE)/belay-chaos study membrane --no-verdict --out $(STUDY_OUT)
	@scripts/guarded $(RELEASE)/belay-bench refuse --out $(STUDY_OUT) $(if $(STUDY_FIXTURES),--fixtures $(STUDY_FIXTURES)) $(STUDY_FLAGS)
	@scripts/guarded $(RELEASE)/belay-bench restart --out $(STUDY_OUT) $(if $(STUDY_FIXTURES),--fixtures $(STUDY_FIXTURES))
	@scripts/fault-study $(STUDY_OUT)

.PHONY: fault-study-check
fault-study-check:
	@scripts/fault-study --check

.PHONY: study-relay
study-relay: setup build ## The controlled faults on daemons that the relay holds, into docs/relay-study.md
	@scripts/setup-zoo
	@scripts/guarded $(RELEASE)/belay-chaos study controlled --no-verdict --columns bare,belay --signals KILL \
	  --fixtures fuser-musl,go-fuse-cgo,go-fuse-static,gocryptfs --out $(STUDY_OUT)/relay
	@mkdir -p docs/fault-study/relay
	cp $(STUDY_OUT)/relay/controlled.json docs/fault-study/relay/controlled.json
	$(RELEASE)/belay-chaos page $(RELAY_STUDY)

.PHONY: pages-check
pages-check:
	@$(CHECKED)/belay-chaos page $(RELAY_STUDY) --check
	@$(CHECKED)/belay-chaos page $(VOLUME_PAGES) --check
	@$(CHECKED)/belay-chaos page $(STUDY_PAGES) --check
	@set -e; for times in $(STUDY_TIMES); do $(CHECKED)/belay-bench page $$times --check; done
	@$(CHECKED)/belay-bench page $(VOLUMES_OUT)/layouts.json --check
	@$(CHECKED)/belay-bench page $(VOLUMES_OUT)/blackout-unpinned.json --check
	@$(CHECKED)/belay-bench report --check --in docs/benchmarks --out docs
	@$(CHECKED)/belay-bench report --check --relay --in docs/benchmarks/relay --out docs/benchmarks/relay
	@$(CHECKED)/belay-volume-sim --check $(VOLUMES_OUT)/simulation.json --page $(VOLUMES_OUT)/simulation.md

.PHONY: study-short
study-short:
	@scripts/guarded $(CHECKED)/belay-chaos study controlled --columns belay --fixtures $(TEST_STUDY_FIXTURES) --ops $(TEST_STUDY_OPS) \
	  --signals KILL --out $(CHECKED)/study
	@scripts/guarded $(CHECKED)/belay-chaos study membrane --columns belay --fixtures $(TEST_MEMBRANE_FIXTURES) --rows $(TEST_MEMBRANE_ROWS) \
	  --every $(TEST_MEMBRANE_EVERY) --signals SEGV --out $(CHECKED)/study

.PHONY: scribble
scribble: setup build ## Scribble over the memory that belay shares with daemons, under load (TIMES mounts of each policy, SEED)
	@scripts/guarded $(RELEASE)/belay-chaos scribble --times $(or $(TIMES),100) $(if $(SEED),--seed $(SEED))

.PHONY: scribble-short
scribble-short:
	@scripts/guarded $(CHECKED)/belay-chaos scribble --times 2 --seed 11

.PHONY: away
away: setup build ## Take the servers of sshfs mounts away for 1 s to 5 minutes, 200 times: no error is seen (TIMES, SEED)
	@scripts/guarded $(RELEASE)/belay-chaos away --times $(or $(TIMES),200) $(if $(SEED),--seed $(SEED)) $(AWAY_FLAGS)

.PHONY: away-short
away-short:
	@scripts/guarded $(CHECKED)/belay-chaos away --times 4 --parallel 2 --shortest 1s --longest 3s --seed 5

.PHONY: simulate
simulate: build ## Simulate crashes at every step until 10 million operations are compared (OPERATIONS, SEED); docs/simulation.json
	@$(RELEASE)/belay-sim --operations $(or $(OPERATIONS),10000000) --seed $(or $(SEED),1) --json docs/simulation.json

.PHONY: simulate-volume
simulate-volume: build ## The same of volumes, with disks that lie and fail, and power failures (OPERATIONS, SEED); docs/volumes/simulation.md
	@$(RELEASE)/belay-volume-sim --operations $(or $(OPERATIONS),10000000) --seed $(or $(SEED),1) \
	  --json $(VOLUMES_OUT)/simulation.json --page $(VOLUMES_OUT)/simulation.md

.PHONY: fuzz
fuzz: setup ## Fuzz everything that reads what others wrote, MILLIONS of executions of each target (TARGETS); counted in docs/fuzz.json
	@scripts/fuzz $(or $(MILLIONS),1) $(TARGETS)

.PHONY: fuzz-short
fuzz-short:
	@scripts/fuzz 5s

.PHONY: miri
miri: ## Run the tests that need no kernel in Miri, which finds undefined behaviour; some minutes (CRATES)
	@scripts/miri $(CRATES)

.PHONY: bless
bless: ## Print again what comes from the code: tables in docs/, and what tests/snapshots of a crate holds
	SNAPSHOTS=overwrite $(CARGO) test --locked --profile $(PROFILE) -p belay-session --test decision_doc
	SNAPSHOTS=overwrite $(CARGO) test --locked --profile $(PROFILE) -p belay-recorder --test document
	SNAPSHOTS=overwrite $(CARGO) test --locked --profile $(PROFILE) -p belay-supervisor -p belay --lib

.PHONY: install
install: $(if $(TRAINED),train,build) ## Install below PREFIX (/usr/local), or below DESTDIR/PREFIX for packages (TRAINED=1: after make train)
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/lib/belay' '$(DESTDIR)$(PREFIX)/share/man/man1' \
	  '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' \
	  '$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	install -m 755 $(RELEASE)/belay '$(DESTDIR)$(PREFIX)/bin/belay'
	install -m 755 $(RELEASE)/libbelay_shim.so '$(DESTDIR)$(PREFIX)/lib/belay/libbelay_shim.so'
	$(RELEASE)/belay man --dir '$(DESTDIR)$(PREFIX)/share/man/man1'
	$(RELEASE)/belay completions bash > '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/belay'
	$(RELEASE)/belay completions zsh > '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_belay'
	$(RELEASE)/belay completions fish > '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/belay.fish'

.PHONY: uninstall
uninstall: ## Remove what `make install` installed
	rm -rf '$(DESTDIR)$(PREFIX)/lib/belay'
	rm -f '$(DESTDIR)$(PREFIX)/bin/belay' '$(DESTDIR)$(PREFIX)'/share/man/man1/belay.1 \
	  '$(DESTDIR)$(PREFIX)'/share/man/man1/belay-*.1 \
	  '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/belay' \
	  '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_belay' \
	  '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/belay.fish'

.PHONY: clean
clean: ## Remove everything that was built
	$(CARGO) clean
