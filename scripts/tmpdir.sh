#!/usr/bin/env bash
# Prints the folder for the files of the tests' servers. The tests create and delete tens of thousands of files, which
# is much faster in a file system in memory. The folder is TMPDIR if that is set. It is /tmp if less than 8 GB of memory
# are free, or if the file system in memory has less space or does not allow executables.
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
