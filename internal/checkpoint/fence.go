package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// Generation is a stretch of a job's delivery, from a step on: what was on its way of the
// generations before it is void. A planner opens one when ranks join or the job is moved.
type Generation struct {
	Number uint64 // rises; not every number is there
	Step   int64  // the first step of it
	Since  uint64 // the join after which ranks entered at Step that go on in it; 0: there are none
}

// Epoch is the time of one writer of a log.
type Epoch struct {
	Number uint64 // rises
	Step   int64  // that came next when it was fenced; 0 in an empty log
}

// maxNumber bounds epochs and the numbers of generations: they are in keys, as steps are.
const maxNumber = math.MaxInt64

// Epoch is Log.Epoch.
func (l *Pebble) Epoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

func (b *batch) fence(epoch uint64) error {
	if epoch <= b.epoch || epoch > maxNumber {
		return fmt.Errorf("the log in %s: fencing epoch %d: %w: epochs rise, up to 2^63-1, and the highest so far is %d", b.log.dir, epoch, ErrOrder, b.epoch)
	}
	b.put(epochKind.key(int64(epoch)), encodeStep(b.mark.steps.next))
	b.epoch = epoch
	return nil
}

func (b *batch) setGeneration(g Generation) error {
	known, err := b.log.generationsFrom(b.db, g.Number)
	if err != nil {
		return err
	}
	isNew, err := g.follows(known)
	if err != nil {
		return fmt.Errorf("the log in %s: %w", b.log.dir, err)
	}
	if isNew {
		b.put(generationKind.key(int64(g.Number)), encodeGeneration(g))
	}
	return nil
}

// follows says whether g is new to a log that has the generations known from g's number
// on. It returns an error if g cannot be.
func (g Generation) follows(known []Generation) (isNew bool, err error) {
	switch {
	case g.Step < 0 || g.Number > maxNumber:
		return false, fmt.Errorf("generation %d from step %d on: %w: steps are not negative, and numbers end at 2^63-1", g.Number, g.Step, ErrOrder)
	case len(known) == 0:
		return true, nil
	case known[0] == g:
		return false, nil
	case known[0].Number == g.Number:
		return false, fmt.Errorf("generation %d from step %d on, after join %d: %w: it begins at step %d there, after join %d", g.Number, g.Step, g.Since, ErrDiverged, known[0].Step, known[0].Since)
	default:
		return false, fmt.Errorf("generation %d: %w: it has generation %d already", g.Number, ErrOrder, known[0].Number)
	}
}

// Generations is Log.Generations.
func (l *Pebble) Generations() ([]Generation, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	return l.generationsFrom(l.db, 0)
}

// generationsFrom returns the generations from a number on, in order.
func (l *Pebble) generationsFrom(r pebble.Reader, number uint64) (all []Generation, err error) {
	if number > maxNumber {
		return nil, nil
	}
	bounds := &pebble.IterOptions{LowerBound: generationKind.key(int64(number)), UpperBound: generationKind.end()}
	err = l.each(r, bounds, func(key, value []byte) error {
		g, err := decodeGeneration(value)
		g.Number = uint64(stepOf(key))
		all = append(all, g)
		return err
	})
	return all, l.wrap(err, "reading generations")
}

// Epochs is Log.Epochs.
func (l *Pebble) Epochs() (all []Epoch, err error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	return l.epochs()
}

func (l *Pebble) epochs() (all []Epoch, err error) {
	err = l.each(l.db, epochKind.all(), func(key, value []byte) error {
		step, err := decodeStep(value)
		all = append(all, Epoch{Number: uint64(stepOf(key)), Step: step})
		return err
	})
	return all, l.wrap(err, "reading epochs")
}

// Place is Log.Place.
func (l *Pebble) Place() (p Place, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.place == nil {
		return p, false
	}
	return *l.place, true
}

func (p Place) encode() []byte { return binary.BigEndian.AppendUint64(bytes.Clone(p.Chain[:]), p.Slot) }

// storedPlace is the place that the database has, nil if there is none.
func (l *Pebble) storedPlace() (*Place, error) {
	value, ok, err := l.get(l.db, placeKey)
	if err != nil || !ok {
		return nil, l.wrap(err, "reading its place in the mirror")
	}
	var p Place
	if len(value) != len(p.Chain)+8 {
		return nil, l.damaged("its place in the mirror has %d bytes", len(value))
	}
	copy(p.Chain[:], value)
	p.Slot = binary.BigEndian.Uint64(value[len(p.Chain):])
	return &p, nil
}

// storedTrim is what the database says of the steps that were let go of.
func (l *Pebble) storedTrim() (int64, error) {
	value, ok, err := l.get(l.db, trimmedKey)
	if err != nil || !ok {
		return 0, l.wrap(err, "reading where it was trimmed")
	}
	step, err := decodeStep(value)
	return step, l.wrap(err, "reading where it was trimmed")
}

// encodeGeneration leaves out Since where it is 0, as in all logs of earlier builds.
func encodeGeneration(g Generation) []byte {
	value := encodeStep(g.Step)
	if g.Since > 0 {
		value = binary.BigEndian.AppendUint64(value, g.Since)
	}
	return value
}

// decodeGeneration is the inverse of encodeGeneration: all but the number, which is in the key.
func decodeGeneration(value []byte) (g Generation, err error) {
	if len(value) == 16 {
		g.Since = binary.BigEndian.Uint64(value[8:])
		value = value[:8]
	}
	g.Step, err = decodeStep(value)
	return g, err
}

func encodeStep(step int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(step)) }

func decodeStep(value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("a step has %d bytes: %w", len(value), errMissing)
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}
