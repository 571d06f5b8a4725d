package reference

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// source is one source as an endless queue of samples.
type source struct {
	*order.Source
	spec   *jobspec.Source
	read   func(order.Unit, func(*format.Record) error) error
	apply  func(file int, rec *format.Record, f func(*transform.Sample) error) (transform.Outcome, error)
	epochs int64
	block  int64    // next block to read
	epoch  int64    // samples queued of its epoch
	queue  []sample // samples read, in order
	at     int      // next of them
	from   []int    // at before each sample that was drawn in this step, and the banned ones that it stepped over
	blocks []int64  // of the samples drawn in this step, after that of the last earlier one
	owed   int64    // debt: tokens (or samples) behind the schedule, in 2^-32
	bad    []Skip   // records left out that no step has entered in its list
	gave   int64    // last block that gave a sample

	lost, lastLost discarded // of the epoch that is read, and of the one before

	paused, dropped bool
}

type sample struct {
	tokens []int32
	masked []int32 // bounds of tokens without loss
	kept   []batch.Kept
	images []batch.Image
	place  Place
}

func (s sample) ban() ban { return ban{s.place.Source, s.place.File, s.place.Row} }

// next returns the next sample that is not banned; one without tokens at the
// limit of epochs.
func (s *source) next(banned map[ban]bool) (sample, error) {
	began, most := s.block, 2*s.Order.Blocks()
	if s.spec.Limit > 0 {
		most = 1000 * s.Order.Blocks() // each epoch has other samples up to the limit
	}
	for from := s.at; ; {
		if s.block-began > most {
			return sample{}, fault.Userf("source %q gave no sample that is not banned in %d epochs; cancel bans, or drop the source", s.spec.Name, (s.block-began)/s.Order.Blocks())
		}
		t, err := s.nextOfAll()
		if err != nil || t.tokens == nil || !banned[t.ban()] {
			if t.tokens != nil {
				s.from = append(s.from, from)
				s.blocks = append(s.blocks, t.place.Seq)
			}
			return t, err
		}
	}
}

func (s *source) nextOfAll() (sample, error) {
	for barren := int64(0); s.at == len(s.queue); barren++ {
		epoch, block := s.Order.Position(s.block)
		over := s.epochs > 0 && epoch >= s.epochs
		if over && len(s.blocks) > 0 {
			return sample{}, nil
		}
		if over || barren > 2*s.Order.Blocks() {
			if block == 0 {
				s.lastLost = s.lost // that epoch has ended
			}
			return sample{}, s.barren()
		}
		if block == 0 {
			s.epoch = 0
			s.lost, s.lastLost = discarded{}, s.lost
			s.endEpoch()
		}
		if err := s.readBlock(); err != nil {
			return sample{}, err
		}
	}
	s.at++
	return s.queue[s.at-1], nil
}

// position returns the block of the last sample drawn.
func (s *source) position() int64 {
	if len(s.blocks) == 0 {
		return 0
	}
	return s.blocks[len(s.blocks)-1]
}

// settle ends a step.
func (s *source) settle(random bool) {
	s.owed = (s.owed + 1<<(rounded-1)) >> rounded << rounded
	if random {
		s.owed = 0
	}
	s.queue, s.at, s.from = s.queue[s.at:], 0, s.from[:0]
	s.blocks = s.blocks[max(len(s.blocks)-1, 0):]
}

// readBlock queues the samples of the next block, up to the epoch's limit.
func (s *source) readBlock() error {
	var samples []sample
	var places []order.Place
	for _, chunk := range s.Order.Chunks(s.block) {
		for _, unit := range s.Order.Layout.Units(chunk) {
			err := s.read(unit, func(rec *format.Record) error {
				outcome, err := s.apply(unit.File, rec, func(t *transform.Sample) error {
					at := Place{Source: s.spec.Name, File: s.Manifest.Name(int32(unit.File)), Row: t.Row, Piece: t.Piece, Seq: s.block}
					samples = append(samples, sample{append([]int32(nil), t.Tokens...), append([]int32(nil), t.Masked...), s.keep(t.Extras), s.images(t.Images), at})
					places = append(places, order.Place{File: int32(unit.File), Row: t.Row, Piece: t.Piece})
					return nil
				})
				switch {
				case err == nil:
					s.lost.add(outcome)
				case transform.Skips(s.spec, err):
					s.skip(unit.File, rec.Row, err)
					s.lost.addBad(s.bad[len(s.bad)-1])
					return nil
				case rec.Err == nil: // errors of transforms do not name the file
					return fmt.Errorf("%s: %w", s.Manifest.Files[unit.File].URI, format.Placed(s.Format, err))
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("source %q: %w", s.spec.Name, err)
			}
		}
	}
	for n, i := range s.Order.Sort(s.block, places) {
		samples[i].place.Index = int32(n)
		if s.spec.Limit > 0 && s.epoch == s.spec.Limit {
			break
		}
		s.queue = append(s.queue, samples[i])
		s.epoch, s.gave = s.epoch+1, s.block
	}
	s.block++
	s.lost.blocks++
	return nil
}
