package prepare

import (
	"github.com/millrace-data/millrace/internal/sourceloader/order"
)

const (
	// DefaultShardBytes is a shard of the size that object stores and readers like: some 64 MiB compressed.
	DefaultShardBytes = 128 << 20
	// leastShardBytes keeps a group from being less than a chunk or two.
	leastShardBytes = 1 << 20
	// leastGroups is how many groups a source is divided into, if each then has smallGroup bytes: few
	// large ones would keep most workers idle.
	leastGroups = 16
	smallGroup  = 8 << 20
)

// group is a run of chunks that one worker reads, in order, into shards of their own.
type group struct {
	number int
	chunks []int64
	bytes  int64 // of the files
}

// divide returns the groups of a source: as many chunks as reach the size, by the sizes of the files alone.
func divide(src *order.Source, shardBytes int64) []group {
	size := min(shardBytes, max(src.Manifest.Bytes()/leastGroups, smallGroup))
	layout := src.Order.Layout
	var groups []group
	open := group{}
	for chunk := range layout.Chunks() {
		open.chunks = append(open.chunks, chunk)
		open.bytes += chunkBytes(src, layout.Units(chunk))
		if open.bytes >= size || chunk == layout.Chunks()-1 {
			groups = append(groups, open)
			open = group{number: len(groups)}
		}
	}
	return groups
}

// chunkBytes is the part of its files that a chunk is, about.
func chunkBytes(src *order.Source, units []order.Unit) (bytes int64) {
	for _, u := range units {
		file := &src.Manifest.Files[u.File]
		bytes += file.Size / int64(max(file.Chunks, 1))
	}
	return bytes
}
