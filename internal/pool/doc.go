// Package pool has worker processes of other machines run Python functions for loaders.
//
// A Server is a pool: environments of worker processes (internal/worker), and the Workers service, by which
// loaders open functions and have batches run. A Client is a process's side of all its pools: it looks for
// them, opens functions on each one that comes, and lends their workers to environments here.
//
// The package owns the way between the two: who serves what, how much is on the way, and when a pool
// counts as lost. It never decides what becomes of rows, which is the loader's (internal/worker), and knows nothing of
// sources, plans or jobs: a pool may serve several.
package pool
