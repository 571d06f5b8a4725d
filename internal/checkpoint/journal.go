package checkpoint

import "fmt"

// AddChange is Log.AddChange.
func (l *Pebble) AddChange(change []byte) error {
	return l.write(func() error {
		b := l.newBatch()
		n := b.mark.changes
		b.put(changeKind.key(n), change)
		b.mark.changes++
		return l.wrap(l.commit(b), fmt.Sprintf("storing change %d", n))
	})
}

// Changes is Log.Changes.
func (l *Pebble) Changes() (changes [][]byte, err error) {
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
