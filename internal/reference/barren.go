package reference

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// discarded counts the records of an epoch that gave no sample, by why they did not.
type discarded struct {
	blocks                        int64 // that were read; with a limit an epoch may have others
	filtered, tooLong, empty, bad int64
	first                         []Skip // of the bad ones, at most firstBad
}

// firstBad are the bad records that the error names.
const firstBad = 3

func (d *discarded) add(outcome transform.Outcome) {
	switch outcome {
	case transform.Filtered:
		d.filtered++
	case transform.TooLong:
		d.tooLong++
	case transform.Empty:
		d.empty++
	}
}

func (d *discarded) addBad(s Skip) {
	if d.bad++; len(d.first) < firstBad {
		d.first = append(d.first, s)
	}
}

// barren is the error of a source that gave nothing in an epoch: what became of its records, and what to do.
func (s *source) barren() error {
	d := &s.lastLost
	return fault.Userf("source %q gave no sample in a whole epoch: in %d of its %d blocks %d records gave none: %d filtered out, %d dropped as too long, %d empty, %d bad; %s",
		s.spec.Name, d.blocks, s.Order.Blocks(), d.filtered+d.tooLong+d.empty+d.bad, d.filtered, d.tooLong, d.empty, d.bad, d.remedy())
}

// remedy is what to look at first: what took the most.
func (d *discarded) remedy() string {
	switch max(d.filtered, d.tooLong, d.empty, d.bad) {
	case 0:
		return "its files hold no record: name files with some, or take the source out"
	case d.empty:
		return "a record's text is its column `text` unless `transforms` says otherwise, and the column txt in tar files with `format: webdataset`"
	case d.filtered:
		return "look at its filter"
	case d.tooLong:
		return "split or truncate what is `long`, or make `batch.sequence_length` larger"
	}
	var named []string
	for _, s := range d.first {
		if strings.HasPrefix(s.Reason, s.File) { // it says where
			named = append(named, s.Reason)
			continue
		}
		named = append(named, fmt.Sprintf("%s row %d: %s", s.File, s.Row, s.Reason))
	}
	if more := d.bad - int64(len(d.first)); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return "the bad records: " + strings.Join(named, "; ")
}
