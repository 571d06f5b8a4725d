package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Discarded counts the records of a block that gave no sample, by why they did not.
type Discarded struct {
	Filtered, Dropped, Empty, Bad int64

	Absent string   // a field that none of the records has, and what they have; "" if there is none
	First  []string // of the bad ones: where they are, and what is wrong; at most FirstBad
}

// barrenEpochs is how many epochs in a row may have nothing but banned samples up to their source's limit: each has others
// there, unless the source is read in the same order again and again.
const barrenEpochs = 1000

// FirstBad are the bad records that an error names: enough to see what they have in common.
const FirstBad = 3

func (d *Discarded) add(m Discarded) {
	d.Filtered += m.Filtered
	d.Dropped += m.Dropped
	d.Empty += m.Empty
	d.Bad += m.Bad
	d.Absent = cmp.Or(d.Absent, m.Absent)
	d.First = append(d.First, m.First[:min(len(m.First), FirstBad-len(d.First))]...)
}

func (d *Discarded) sum() int64 { return d.Filtered + d.Dropped + d.Empty + d.Bad }

// errBarren says that a source gave nothing in the epoch that ends at block seq, and
// what became of its records. With a limit an epoch may have blocks that nobody read.
func (c *Core) errBarren(src int32, seq int64) error {
	s := &c.sources[src]
	var discarded Discarded
	var banned, blocks int64 // samples under bans in force; blocks that were read
	end := seq / s.Blocks * s.Blocks
	for k := end - s.Blocks; k < end; k++ {
		b, ok := s.blocks[k]
		if !ok {
			continue
		}
		discarded.add(b.discarded)
		for _, x := range b.banned {
			if c.inForce(x.Ban) {
				banned++
			}
		}
		blocks++
	}
	text := fmt.Sprintf("%d records gave none: %d filtered out, %d dropped as too long, %d empty, %d bad", discarded.sum(), discarded.Filtered, discarded.Dropped, discarded.Empty, discarded.Bad)
	advice := discarded.advice(banned)
	switch {
	case s.Limit > 0 && banned >= s.Limit: // whatever others gave none
		text += fmt.Sprintf(", and the samples of others are banned up to its limit of %d", s.Limit)
		advice = unban
	case banned > 0:
		text += fmt.Sprintf(", and %d samples of others are banned", banned)
	}
	return fault.Userf("source %q gave no sample in a whole epoch: in %d of its %d blocks %s; %s", c.name(src), blocks, s.Blocks, text, advice)
}

// FewOf lists the first of many.
func FewOf(first []string, all int64) string {
	text := strings.Join(first, "; ")
	if more := all - int64(len(first)); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

const unban = "cancel bans, or drop the source"

// advice is what to look at first: what took the most.
func (d *Discarded) advice(banned int64) string {
	switch max(d.Filtered, d.Dropped, d.Empty, d.Bad, banned) {
	case 0:
		return "its files hold no record: name files with some, or take the source out"
	case d.Empty:
		return "a record's text is its column `text` unless `transforms` says otherwise, and the column txt in tar files with `format: webdataset`"
	case d.Filtered:
		if d.Absent != "" {
			return "look at its filter: " + d.Absent
		}
		return "look at its filter"
	case d.Dropped:
		return "split or truncate what is `long`, or make `batch.sequence_length` larger"
	case d.Bad:
		return "the bad records: " + FewOf(d.First, d.Bad)
	}
	return unban
}
