// Package worker runs Python functions over batches of records in processes of their own.
//
// An Environment is one interpreter with its modules: a fork server, which has imported
// everything and runs no function, and workers that are forked from it and serve all its
// functions. Batches cross in memory that both sides map, in Arrow's layout; frames on a
// socket say which (docs/bytes.md, "Worker processes"). The Python side is
// client/python/src/millrace: _worker.py, _function.py, _columns.py.
//
// The package owns the processes and what they may use: memory, time, network. It runs a
// lost batch again, divides one that kills its worker until the row is found, and checks
// all that comes back as it would a damaged file. It never retries what a function raised, which
// is an error of the row, and knows nothing of chains, sources or plans.
package worker
