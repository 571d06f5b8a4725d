package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Lost counts the records of a block that gave no sample, by why they did not.
type Lost struct {
	Filtered, Dropped, Empty, Bad int64

	Absent string   // a field that none of the records has, and what they have; "" if there is none
	First  []string // of the bad ones: where they are, and what is wrong; at most FirstBad
}

// FirstBad are the bad records that an error names: enough to see what they have in common.
const FirstBad = 3

func (l *Lost) add(m Lost) {
	l.Filtered += m.Filtered
	l.Dropped += m.Dropped
	l.Empty += m.Empty
	l.Bad += m.Bad
	l.Absent = cmp.Or(l.Absent, m.Absent)
	l.First = append(l.First, m.First[:min(len(m.First), FirstBad-len(l.First))]...)
}

func (l *Lost) sum() int64 { return l.Filtered + l.Dropped + l.Empty + l.Bad }

// errBarren says that a source gave nothing in the epoch that ends at block seq, and
// what became of its records. With a limit an epoch may have blocks that nobody read.
func (c *Core) errBarren(src int32, seq int64) error {
	s := &c.sources[src]
	var lost Lost
	var banned, blocks int64 // samples; blocks that were read
	end := seq / s.Blocks * s.Blocks
	for k := end - s.Blocks; k < end; k++ {
		b, ok := s.blocks[k]
		if !ok {
			continue
		}
		lost.add(b.lost)
		banned += int64(len(b.lengths))
		blocks++
	}
	text := fmt.Sprintf("%d records gave none: %d filtered out, %d dropped as too long, %d empty, %d bad", lost.sum(), lost.Filtered, lost.Dropped, lost.Empty, lost.Bad)
	if banned > 0 {
		text += fmt.Sprintf(", and %d samples of others are banned", banned)
		if s.Limit > 0 {
			text += fmt.Sprintf(" up to its limit of %d", s.Limit)
		}
	}
	return fault.Userf("source %q gave no sample in a whole epoch: in %d of its %d blocks %s; %s", c.name(src), blocks, s.Blocks, text, lost.advice(banned))
}

// FewOf lists the first of many.
func FewOf(first []string, all int64) string {
	text := strings.Join(first, "; ")
	if more := all - int64(len(first)); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// advice is what to look at first: what took the most.
func (l *Lost) advice(banned int64) string {
	switch max(l.Filtered, l.Dropped, l.Empty, l.Bad, banned) {
	case 0:
		return "its files hold no record: name files with some, or take the source out"
	case l.Empty:
		return "a record's text is its column `text` unless `transforms` says otherwise, and the column txt in tar files with `format: webdataset`"
	case l.Filtered:
		if l.Absent != "" {
			return "look at its filter: " + l.Absent
		}
		return "look at its filter"
	case l.Dropped:
		return "split or truncate what is `long`, or make `batch.sequence_length` larger"
	case l.Bad:
		return "the bad records: " + FewOf(l.First, l.Bad)
	}
	return "cancel bans, or drop the source"
}
