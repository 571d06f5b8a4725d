// Package inference sends records to a model server, for the call steps of a job, and
// records its answers.
//
// A model server is no function: asked twice, it may answer twice. So its first answer to a record
// is written to a [Ledger] before anyone sees it, and is the answer from then on, for every loader,
// restart and replay: an input of the job as its files are. The package owns requests (their form,
// their rate, what is tried again) and the ledger. It never decides what becomes of a record that the
// server refuses, which is the source's rule of bad records, and knows nothing of plans.
package inference
