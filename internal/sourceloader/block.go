package sourceloader

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Skip is an entry of the skip ledger: a bad record that the source's policy
// allows to leave out.
type Skip struct {
	File   string
	Row    int64
	Reason string
	raised bool // a function said it
}

// Absent is a column that records lack.
type Absent struct {
	Path    string
	Records uint64 // that lack it
	Hint    string // what the first of them has in its place; see transform.Hint
}

// Block is one block of a source, read and transformed: its samples in reading
// order, and the order they come in. It is read-only once made.
type Block struct {
	tokens  slabs
	spans   []span            // of each sample in reading order
	kept    [][][]byte        // by column, then by sample in reading order
	masked  [][]int32         // bounds of tokens without loss, of each sample in reading order; nil unless hasMasks
	images  [][]samples.Image // of each sample in reading order; nil unless hasImages
	gone    int               // samples whose tokens, kept values, masks and images' data left while the block is read; kept and masked have the others'
	Order   []int32           // the i-th sample of the block is number Order[i] in reading order
	Lengths []uint32          // tokens of the i-th sample of the block

	hasImages                bool // the source has an image step
	hasMasks                 bool // its samples may have tokens without loss
	Filtered, Dropped, Empty uint64
	NoLoss                   uint64 // samples of which no token carries loss
	Skips                    []Skip
	Records                  uint64         // read, but for those that are no record of their format
	Absent                   []Absent       // columns that some of them lack
	Banned                   []BannedSample // by rising index
	known                    uint32         // bans of the job that it takes into account
	places                   []order.Place  // in reading order; only if other blocks can be made of it
	chunks                   []*pb.ChunkRead
	sum                      uint64   // checksum of all of them
	lending                  *lending // nil while it is read
}

// BannedSample is a sample that comes from a banned record.
type BannedSample struct {
	Index int32
	Ban   uint32
}

// Bans are the banned records of a source. The zero value has none.
type Bans struct {
	ids   map[record]uint32
	known uint32 // bans of the job
}

type record struct {
	file int
	row  int64
}

// Add bans a record of a file, by its number in the manifest.
func (b *Bans) Add(file int, row int64, id uint32) {
	if b.ids == nil {
		b.ids = map[record]uint32{}
	}
	b.ids[record{file, row}] = id
}

// Len is the number of samples.
func (b *Block) Len() int { return len(b.Order) }

// Sample returns the tokens of the i-th sample.
func (b *Block) Sample(i int) []int32 { return b.tokens.at(b.spans[b.Order[i]]) }

// Bytes is the memory that the samples take.
func (b *Block) Bytes() int64 {
	n := b.tokens.bytes() + b.frameBytes()
	for _, col := range b.kept {
		for _, v := range col {
			n += keptMemory(v)
		}
	}
	for _, bounds := range b.masked {
		n += maskMemory(bounds)
	}
	for _, list := range b.images {
		n += imageMemory(list)
	}
	return n
}

// frameBytes is the memory of what is known of all samples.
func (b *Block) frameBytes() int64 {
	return 12*int64(cap(b.spans)) + 8*int64(len(b.Order)) + 24*int64(cap(b.places))
}

func keptMemory(v []byte) int64 { return int64(len(v)) + 24 }

func maskMemory(bounds []int32) int64 { return 4*int64(cap(bounds)) + 24 }

// Report is what the planner learns of the block.
func (b *Block) Report(source uint32, seq uint64) *pb.BlockRead {
	r := &pb.BlockRead{
		Source: source, Seq: seq, Lengths: b.Lengths,
		Filtered: b.Filtered, Dropped: b.Dropped, Empty: b.Empty, BansKnown: b.known, Bytes: uint64(b.Bytes()),
		Sum: b.sum, Chunks: b.chunks,
		Records: b.Records, NoLoss: b.NoLoss,
	}
	for _, x := range b.Banned {
		r.Banned, r.Bans = append(r.Banned, uint32(x.Index)), append(r.Bans, x.Ban)
	}
	for _, s := range b.Skips {
		r.Skips = append(r.Skips, &pb.Skip{File: s.File, Row: s.Row, Reason: s.Reason})
	}
	for _, a := range b.Absent {
		r.Absent = append(r.Absent, &pb.AbsentField{Path: a.Path, Records: a.Records, Hint: a.Hint})
	}
	b.reportImages(r)
	return r
}

// report is what the planner learns of the block.
func (b *Block) report(id blockID) (*pb.BlockRead, error) { return b.Report(id.source, id.seq), nil }

// choose copies the samples that are wanted, by their numbers in the block, into
// set, whose memory is used again. Kept values, masks and images are not copied: they are
// the block's.
func (b *Block) choose(want *pb.BlockSamples, set *samples.Set) error {
	if err := checkIndices(want.Indices, b.Len()); err != nil {
		return err
	}
	set.Tokens = slices.Grow(set.Tokens[:0], b.wanted(want))
	set.Offsets = append(slices.Grow(set.Offsets[:0], len(want.Indices)+1), 0)
	for _, i := range want.Indices {
		set.Tokens = append(set.Tokens, b.Sample(int(i))...)
		set.Offsets = append(set.Offsets, int32(len(set.Tokens)))
	}
	return b.chooseBeside(want, set)
}

// wanted is the number of tokens of samples that the block has.
func (b *Block) wanted(want *pb.BlockSamples) (tokens int) {
	for _, i := range want.Indices {
		tokens += int(b.Lengths[i])
	}
	return tokens
}

// chooseBeside puts into a set what samples have beside their tokens.
func (b *Block) chooseBeside(want *pb.BlockSamples, set *samples.Set) error {
	set.Kept, set.Masked = make([][][]byte, len(b.kept)), nil
	for _, i := range want.Indices {
		for c := range b.kept {
			set.Kept[c] = append(set.Kept[c], b.kept[c][b.Order[i]])
		}
		if b.hasMasks {
			set.Masked = append(set.Masked, b.masked[b.Order[i]])
		}
	}
	return b.selectImages(want, set)
}

func checkIndices(indices []uint32, samples int) error {
	for _, i := range indices {
		if int(i) >= samples {
			return fmt.Errorf("sample %d was asked for, the block has %d", i, samples)
		}
	}
	return nil
}

// Source is a source ready to be read: indexed, with its transforms compiled.
// It is read-only and safe for concurrent use.
type Source struct {
	*order.Source
	Spec   *jobspec.Source
	Chain  *transform.Chain
	digest [32]byte // of the manifest
	flow   *flow    // nil: its records go through the chain one by one
	costs  *costs   // of reading it; nil: nobody counts them
}

// Open indexes source i of a job and compiles its transforms.
func Open(ctx context.Context, st store.Store, job *jobspec.Job, i int, shared *transform.Shared) (*Source, error) {
	return open(ctx, st, job.ResolvedSources()[i], job.Seed, job.LongestSample(), shared)
}

// open is Open for a source with resolved paths, whose samples have a bounded number of tokens.
func open(ctx context.Context, st store.Store, spec jobspec.Source, seed uint64, longest int, shared *transform.Shared) (*Source, error) {
	chain, err := transform.Compile(spec, longest, shared)
	if err != nil {
		return nil, err // it names the source
	}
	src, err := order.Index(ctx, st, &spec, seed, chain.Columns())
	if err != nil {
		return nil, err
	}
	src.Manifest.Encoding = chain.EncodingDigest()
	return &Source{Source: src, Spec: &spec, Chain: chain, digest: src.Manifest.Digest()}, nil
}

// Read reads and transforms block seq. worker is one of the source's own chain.
// Samples of banned records are part of the block, and named.
func (s *Source) Read(ctx context.Context, st store.Store, worker *transform.Worker, seq int64, bans Bans) (*Block, error) {
	b, _, err := s.ReadPlaced(ctx, st, worker, seq, bans)
	return b, err
}

// ReadPlaced is Read, with the place of each sample in reading order: the i-th of
// the block was read at places[b.Order[i]].
func (s *Source) ReadPlaced(ctx context.Context, st store.Store, worker *transform.Worker, seq int64, bans Bans) (b *Block, places []order.Place, err error) {
	r := s.reading(worker, nil)
	if err := r.chunks(ctx, st, seq); err != nil {
		return nil, nil, err
	}
	return r.finish(seq, bans), r.places, nil
}

// arrange puts the samples, which were read at these places, in the order of block seq,
// and names the banned ones.
func (b *Block) arrange(o *order.Order, seq int64, places []order.Place, bans Bans) {
	b.Order = o.Sort(seq, places)
	b.Lengths = make([]uint32, len(b.Order))
	b.Banned, b.known = nil, bans.known
	for i, at := range b.Order {
		b.Lengths[i] = uint32(b.spans[at].length)
		if id, banned := bans.ids[record{int(places[at].File), places[at].Row}]; banned {
			b.Banned = append(b.Banned, BannedSample{int32(i), id})
		}
	}
}

// reading fills a block record by record.
type reading struct {
	source *Source
	worker *transform.Worker
	others []*transform.Worker // of a pass, which work beside it; may be nil
	grows  growth              // what records become that they work on
	block  *Block
	window *window       // nil if all of it may be in memory
	visit  visit         // gets each sample, which is then let go of; may be nil
	give   give          // gets each sample, which the block does not hear of; may be nil
	ended  ended         // hears of each chunk; may be nil
	pass   []int64       // the chunks to read, in place of those of a block; may be nil
	places []order.Place // of the samples; they decide the order
	sums   summing
	kept   [][]byte // memory of lastKept
	file   int
	timing *timing // nil: nobody counts what it costs
}

func (s *Source) reading(worker *transform.Worker, w *window) *reading {
	b := &Block{kept: make([][][]byte, len(s.Spec.Keep)), hasImages: s.Spec.Images() != nil, hasMasks: s.Spec.Masks()}
	return &reading{source: s, worker: worker, block: b, window: w}
}

// chunks reads those of block seq.
func (r *reading) chunks(ctx context.Context, st store.Store, seq int64) (err error) {
	r.timing = r.source.costs.begin()
	st = r.timing.watch(st)
	defer func() { r.timing.end(r, seq, err) }()
	if r.source.flow != nil {
		err = r.stream(ctx, st, seq)
	} else {
		err = r.each(ctx, st, seq)
	}
	r.block.sum = r.sums.block.Sum()
	return err
}

// numbers are the chunks to read.
func (r *reading) numbers(seq int64) []int64 {
	if r.pass != nil {
		return r.pass
	}
	return r.source.Order.Chunks(seq)
}

// each reads the chunks of block seq one after the other.
func (r *reading) each(ctx context.Context, st store.Store, seq int64) error {
	s := r.source
	for _, chunk := range r.numbers(seq) {
		units := s.Order.Layout.Units(chunk)
		for _, unit := range units {
			r.file = unit.File
			r.window.reads(&s.Manifest.Files[unit.File].URI)
			if err := r.unit(ctx, st, unit); err != nil {
				return fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", s.Spec.Name, err))
			}
		}
		r.endChunk(chunk, units)
	}
	return nil
}

// finish returns the block, all of whose chunks were read.
func (r *reading) finish(seq int64, bans Bans) *Block {
	b, o := r.block, &r.source.Order
	b.tokens.trim()
	b.arrange(o, seq, r.places, bans)
	b.remember(o, r.places)
	return b.sealed()
}

func (r *reading) record(ctx context.Context, rec *format.Record) error {
	r.count(rec)
	r.window.worked()
	outcome, err := r.timing.apply(ctx, r, rec)
	if err != nil {
		return r.bad(rec, err)
	}
	r.outcome(outcome)
	return nil
}

func (r *reading) outcome(outcome transform.Outcome) {
	switch outcome {
	case transform.Filtered:
		r.block.Filtered++
	case transform.TooLong:
		r.block.Dropped++
	case transform.Empty:
		r.block.Empty++
	}
}

// count counts the record, and the columns that it lacks and may lack.
func (r *reading) count(rec *format.Record) {
	if rec.Err != nil {
		return
	}
	r.block.Records++
	for i := range rec.Values {
		if rec.Values[i].Absent && !r.source.Chain.Requires(i) {
			r.absent(rec, i)
		}
	}
}

// absent counts a column that the record lacks. One that records must have counts where
// that makes a bad record: a filter may have left the record out before.
func (r *reading) absent(rec *format.Record, column int) {
	path, b := r.source.Options.Columns[column], r.block
	at := slices.IndexFunc(b.Absent, func(a Absent) bool { return a.Path == path })
	if at < 0 {
		at = len(b.Absent)
		b.Absent = append(b.Absent, Absent{Path: path, Hint: transform.Hint(r.source.Chain.Lacks(rec, column))})
	}
	b.Absent[at].Records++
}

// bad applies the source's policy to a record that cannot be used.
func (r *reading) bad(rec *format.Record, err error) error {
	if column, ok := transform.AbsentColumn(err); ok {
		r.absent(rec, column)
	}
	return r.skip(rec, err)
}

// skip leaves a bad record out, if the policy allows that.
func (r *reading) skip(rec *format.Record, err error) error {
	err = inFile(r.source.Manifest.Files[r.file].URI, r.source.Format, rec, err)
	if !transform.Skips(r.source.Spec, err) {
		return transform.Stops(r.source.Spec, err)
	}
	_, raised := transform.Raised(err)
	r.block.Skips = append(r.block.Skips, Skip{
		File:   r.source.Manifest.Files[r.file].URI,
		Row:    rec.Row,
		Reason: err.Error(),
		raised: raised,
	})
	return nil
}

func (b *Block) countLoss(s *transform.Sample) {
	if s.NoLoss() {
		b.NoLoss++
	}
}

func (r *reading) sample(s *transform.Sample) error {
	r.timing.sample(s)
	if r.give != nil {
		return r.give(order.Place{File: int32(r.file), Row: s.Row, Piece: s.Piece}, s)
	}
	b := r.block
	if err := r.window.add(b, s); err != nil {
		return err
	}
	b.spans = append(b.spans, b.tokens.add(s.Tokens))
	r.places = append(r.places, order.Place{File: int32(r.file), Row: s.Row, Piece: s.Piece})
	for c := range b.kept {
		var v []byte
		if c < len(s.Extras) && s.Extras[c] != nil {
			v = append([]byte{}, s.Extras[c]...)
		}
		b.kept[c] = append(b.kept[c], v)
	}
	if b.hasMasks {
		b.masked = append(b.masked, slices.Clone(s.Masked))
		b.countLoss(s)
	}
	r.addImages(s)
	r.addSum(s)
	if r.visit != nil {
		r.visit(b, len(b.spans)-1)
		b.forgetSamples()
	}
	return nil
}
