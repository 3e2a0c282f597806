#!/usr/bin/env bash
# Runs go test with the given arguments. If a test fails, its name and its first lines are repeated at the end: other
# packages print a lot after it, and a continuous integration server may show only the last lines.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test "$@" 2>&1 | tee "$log"
code=$?
if ((code)); then
	echo "$0: what failed:"
	grep -E -A 12 '^ *--- FAIL|^panic: |^fatal error: |WARNING: DATA RACE' "$log" | head -n 100
	grep '^FAIL.' "$log"
fi
exit $code
