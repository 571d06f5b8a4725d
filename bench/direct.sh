#!/bin/sh
# Blocks of sources without functions are read record by record, past the engine. This reads them in turns with the tree of a
# commit before the engine was there, and prints the least time of each in milliseconds and what this tree takes more.
# Usage: bench/direct.sh COMMIT ROUNDS; needs MILLRACE_DATA and the commit in the clone.
set -eu
[ -d "${MILLRACE_DATA:-}" ] || { echo "bench-direct needs the shared data: set MILLRACE_DATA to its folder" >&2; exit 1; }
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree"; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/tree" "$1"
go test -C "$work/tree" -c -o "$work/before" ./internal/sourceloader
go test -c -o "$work/now" ./internal/sourceloader
for _ in $(seq "$2"); do
	for which in before now; do
		"$work/$which" -test.run '^$' -test.bench 'FirstBlock/.*/warm' -test.benchtime 1s | sed "s/^/$which /"
	done
done | awk '
	$2 ~ /^Benchmark/ { if (!(($1, $2) in least) || $4 < least[$1, $2]) least[$1, $2] = $4; names[$2] }
	END {
		printf "%-38s %10s %10s %8s\n", "native chain", "before", "now", "more"
		for (n in names) printf "%-38s %10.2f %10.2f %7.1f%%\n", n, least["before", n] / 1e6, least["now", n] / 1e6, 100 * (least["now", n] / least["before", n] - 1)
	}'
