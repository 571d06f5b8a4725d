package checkpoint

import (
	"errors"
	"fmt"
)

// AddChange stores a change to the job: an external input, which nothing else
// could give back. Changes are numbered from 0 as they come; Truncate leaves
// them. It is durable when AddChange returns nil. The bytes are copied.
func (l *Log) AddChange(change []byte) error {
	return l.write(func() error {
		n, err := l.countChanges()
		if err != nil {
			return l.wrap(err, "counting changes")
		}
		b := l.db.NewBatch()
		err = errors.Join(b.Set(changeKind.key(n), change, nil), l.commit(b, l.commitAs))
		return l.wrap(err, fmt.Sprintf("storing change %d", n))
	})
}

func (l *Log) countChanges() (n int64, err error) {
	it, err := l.db.NewIter(changeKind.all())
	if err != nil {
		return 0, err
	}
	if it.Last() {
		n = stepOf(it.Key()) + 1
	}
	return n, errors.Join(it.Close(), l.failure())
}

// Changes returns all changes in the order in which they were added.
func (l *Log) Changes() (changes [][]byte, err error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	it, err := l.db.NewIter(changeKind.all())
	if err != nil {
		return nil, l.wrap(err, "reading changes")
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		if value, err = it.ValueAndErr(); err == nil && stepOf(it.Key()) != int64(len(changes)) {
			err = errMissing
		}
		changes = append(changes, append([]byte{}, value...))
	}
	if err := errors.Join(err, it.Close(), l.failure()); err != nil {
		return nil, l.wrap(err, fmt.Sprintf("reading change %d", len(changes)))
	}
	return changes, nil
}
