#!/usr/bin/env bash
# Prints the folder for the files of the tests' servers, which make and delete tens of thousands of them: a file system
# in memory does that at a fraction of a disk's cost. It is TMPDIR if that is set, and /tmp where less than 8 GB of memory
# are free, or that file system has less room, or may not run programs.
set -euo pipefail

memory=/dev/shm
need=$((8 << 20)) # KB
room=$(df --output=avail -k "$memory" 2>/dev/null | tail -n 1) || room=0
free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
if [ -n "${TMPDIR:-}" ]; then
	echo "$TMPDIR"
elif [ "$room" -ge "$need" ] && [ "${free:-0}" -ge "$need" ] && [ -w "$memory" ] &&
	! findmnt -no OPTIONS -T "$memory" | grep -qw noexec; then
	echo "$memory"
else
	echo /tmp
fi
