package format

import (
	lists "container/list"
	"sync"

	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// maxIndexes bounds the memory of all indexes of a process, in bytes: that of a file with 20,000 chunks
// takes 320 KB, and one that found no room is read again for each chunk.
const maxIndexes = 16 << 20

// Indexes keep where the chunks of a source's files are, as decoders have read it from footers and message
// headers: without them each chunk that is opened would walk those of all chunks before it. They are known by the
// name, size and version of the file, so that one that changed is never read by an old index; that of a file
// without a version is not kept. All Indexes of a process share their memory, of which those used least recently give way.
// nil keeps nothing. They are safe for concurrent use.
type Indexes struct {
	all *indexes
}

// NewIndexes returns indexes of one source, whose files are all of one store.
func NewIndexes() *Indexes { return &Indexes{&kept} }

// kept are the indexes of this process.
var kept = indexes{limit: maxIndexes}

type indexes struct {
	limit int64
	mu    sync.Mutex // guards the fields below
	by    map[indexKey]*lists.Element
	used  lists.List // of *keptIndex, the most recently used first
	bytes int64
}

type indexKey struct {
	of  *Indexes // names may mean other files in another store
	obj store.Object
}

type keptIndex struct {
	key   indexKey
	value any
	bytes int64
}

// Get returns what Put kept of a file, or nil.
func (x *Indexes) Get(obj store.Object) any {
	if x == nil {
		return nil
	}
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	e := x.all.by[indexKey{x, obj}]
	if e == nil {
		return nil
	}
	x.all.used.MoveToFront(e)
	return e.Value.(*keptIndex).value
}

// Put keeps the index of a file, which takes bytes of memory, in place of the one before it. It may be used by several
// readers at a time.
func (x *Indexes) Put(obj store.Object, value any, bytes int64) {
	if x == nil || obj.Version == "" {
		return
	}
	all, key := x.all, indexKey{x, obj}
	bytes += int64(len(obj.URI)+len(obj.Version)) + keptBytes
	all.mu.Lock()
	defer all.mu.Unlock()
	all.drop(all.by[key])
	if bytes > all.limit {
		return
	}
	for all.bytes+bytes > all.limit {
		all.drop(all.used.Back())
	}
	if all.by == nil {
		all.by = map[indexKey]*lists.Element{}
	}
	all.by[key] = all.used.PushFront(&keptIndex{key, value, bytes})
	all.bytes += bytes
}

// keptBytes is what an index takes beside its value and names: its entry in the map and in the list.
const keptBytes = 256

// Forget lets go of the index of a file, which is then read again.
func (x *Indexes) Forget(obj store.Object) {
	if x == nil {
		return
	}
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	x.all.drop(x.all.by[indexKey{x, obj}])
}

// drop lets go of an index; nil is none. The caller has mu.
func (all *indexes) drop(e *lists.Element) {
	if e == nil {
		return
	}
	index := all.used.Remove(e).(*keptIndex)
	delete(all.by, index.key)
	all.bytes -= index.bytes
}
