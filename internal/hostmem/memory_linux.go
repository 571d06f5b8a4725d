package hostmem

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sealed is what nobody can do any more with memory that is there: change its size, or map it for writing
// beside the mapping of who made it.
const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// Memory is memory that its maker writes, and that others map. Its methods are not safe for concurrent use.
type Memory struct {
	fd    int
	bytes []byte
}

// Create makes memory of a size in bytes. It takes pages as they are written.
func Create(size int) (*Memory, error) {
	fd, err := unix.MemfdCreate("millrace", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making memory without a name: %w", err)
	}
	bytes, err := sealing(fd, size)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &Memory{fd, bytes}, nil
}

func sealing(fd, size int) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("giving memory %d bytes: %w", size, err)
	}
	bytes, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil { // before Linux 5.1
		return nil, errors.Join(fmt.Errorf("sealing memory: %w", err), unix.Munmap(bytes))
	}
	return bytes, nil
}

// Bytes is the memory.
func (m *Memory) Bytes() []byte { return m.bytes }

// Descriptor returns one more descriptor of the memory, which the caller closes.
func (m *Memory) Descriptor() (int, error) {
	return unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0)
}

// Close lets go of the memory, which must not be used here any more. Who has mapped it keeps it.
func (m *Memory) Close() error { return errors.Join(unix.Munmap(m.bytes), unix.Close(m.fd)) }

// View is memory of another process, which can be read only.
type View struct{ Bytes []byte }

// mapMemory maps memory of a size that nobody can change.
func mapMemory(fd int, size uint64) (*View, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sealed != sealed {
		return nil, errors.Join(fmt.Errorf("memory came that is not sealed: its seals are %#x", seals), err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || uint64(stat.Size) != size {
		return nil, errors.Join(fmt.Errorf("memory of %d bytes came, %d were announced", stat.Size, size), err)
	}
	bytes, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of another process: %w", size, err)
	}
	return &View{bytes}, nil
}

// Close unmaps the view: whatever lies in it must not be read any more.
func (v *View) Close() error { return unix.Munmap(v.Bytes) }

// userOf is whose process is at the other end of a socket.
func userOf(fd int) (int, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

// Machine names the machine since it was started: processes that give the same may share memory. "" if it is
// not known.
func Machine() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// supported says whether memory can be made here, which a sandbox may refuse.
func supported() error {
	if Machine() == "" {
		return errors.New("this machine has no boot id")
	}
	m, err := Create(os.Getpagesize())
	if err != nil {
		return err
	}
	return m.Close()
}
