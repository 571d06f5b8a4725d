package worker

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memory is a file that a worker maps too. It only grows, so that what is mapped stays
// readable whatever the worker does.
type memory struct {
	file *os.File
	data []byte
	held int // bytes that may be in use
}

const (
	// firstMemory holds the default batch.
	firstMemory = 2 << 20
	// keptMemory is what a seat keeps after a larger batch, in bytes: one huge row must not
	// hold its memory for the rest of the job.
	keptMemory = 8 << 20
)

func newMemory() (*memory, error) {
	file, err := memoryFile()
	if err != nil {
		return nil, fmt.Errorf("making memory to share: %w", err)
	}
	m := &memory{file: file}
	if err := m.reserve(firstMemory); err != nil {
		return nil, m.closeWith(err)
	}
	return m, nil
}

func (m *memory) closeWith(err error) error {
	m.close()
	return err
}

// reserve makes it at least size bytes.
func (m *memory) reserve(size int) error {
	if size <= len(m.data) {
		m.held = max(m.held, size)
		return nil
	}
	if size > 2*MaxBatch {
		return fmt.Errorf("a batch of %d bytes", size)
	}
	if err := m.file.Truncate(int64(size)); err != nil {
		return fmt.Errorf("growing shared memory to %d bytes: %w", size, err)
	}
	return m.view(size)
}

// view maps size bytes that are there already, as the worker says.
func (m *memory) view(size int) error {
	if size <= len(m.data) {
		m.held = max(m.held, size)
		return nil
	}
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	if int64(size) > info.Size() {
		return fmt.Errorf("%d bytes of shared memory, which has %d", size, info.Size())
	}
	data, err := unix.Mmap(int(m.file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	if m.data != nil {
		_ = unix.Munmap(m.data)
	}
	m.data, m.held = data, size
	return nil
}

// trim gives back what a large batch took.
func (m *memory) trim() {
	if m.held > keptMemory {
		punch(m.file, keptMemory, int64(len(m.data)-keptMemory))
		m.held = keptMemory
	}
}

func (m *memory) close() {
	if m.data != nil {
		_ = unix.Munmap(m.data)
		m.data = nil
	}
	_ = m.file.Close()
}
