#!/usr/bin/env bash
# Prints the Go packages of this module with files that changed since a revision, except the program and bench: make race
# BASE=REVISION. Files without a package of their own, such as SQL, count for the package above them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=$(git rev-parse --verify "${1:?usage: scripts/changed.sh REVISION}^{commit}")
git diff --name-only --diff-filter=d "$base" |
	while IFS=/ read -r -a parts; do
		dir=.
		for part in "${parts[@]::${#parts[@]}-1}"; do dir+=/$part; done
		while [ "$dir" != . ] && ! compgen -G "$dir/*.go" >/dev/null; do dir=${dir%/*}; done
		printf '%s\n' "$dir"
	done | sort -u | sed -E '/^\.\/(cmd|command|internal\/cli|bench|deploy|examples\/outside)(\/|$)/d'
