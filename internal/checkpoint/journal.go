package checkpoint

import "fmt"

// AddChange stores a change to the job: an external input, which nothing else
// could give back. Changes are numbered from 0 as they come; Truncate leaves
// them. It is durable when AddChange returns nil. The bytes are copied.
func (l *Log) AddChange(change []byte) error {
	return l.write(func() error {
		b := l.newBatch()
		n := b.mark.changes
		b.put(changeKind.key(n), change)
		b.mark.changes++
		return l.wrap(l.commit(b), fmt.Sprintf("storing change %d", n))
	})
}

// Changes returns all changes in the order in which they were added.
func (l *Log) Changes() (changes [][]byte, err error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	err = l.each(changeKind.all(), func(_, value []byte) error {
		changes = append(changes, append([]byte{}, value...))
		return nil
	})
	if err != nil {
		return nil, l.wrap(err, fmt.Sprintf("reading change %d", len(changes)))
	}
	return changes, nil
}
