//go:build !linux

package hostmem

import "errors"

var errSystem = errors.New("shared memory is for Linux")

// Memory is memory that its maker writes, and that others map.
type Memory struct{}

// Create fails: this system cannot seal memory.
func Create(int) (*Memory, error) { return nil, errSystem }

// Bytes is the memory.
func (m *Memory) Bytes() []byte { return nil }

// Descriptor returns one more descriptor of the memory.
func (m *Memory) Descriptor() (int, error) { return 0, errSystem }

// Close lets go of the memory.
func (m *Memory) Close() error { return nil }

// View is memory of another process, which can be read only.
type View struct{ Bytes []byte }

// Close unmaps the view.
func (v *View) Close() error { return nil }

func mapMemory(int, uint64) (*View, error) { return nil, errSystem }

func userOf(int) (int, error) { return 0, errSystem }

// Machine is "": there is no name that all processes of the machine give.
func Machine() string { return "" }

func supported() error { return errSystem }
