// Package prepare runs the transforms of sources once over all their records and writes what they
// become as Parquet shards, which any job then reads by a tokens step, as often as it likes.
//
// It owns the division of a source into groups of chunks, the shards and the manifest beside them.
// A group is a pure task: its shards are a function of the files, the steps and the size of shards, whoever
// makes them, when, and how often. So work that was interrupted goes on with the groups that are not in the manifest, and a
// shard that is damaged or gone is made again and compared. The package never shuffles, packs or cuts a
// document: those are the job's that reads the shards. It reads records by sourceloader, with the loader's
// decoders, chains and engine.
package prepare
