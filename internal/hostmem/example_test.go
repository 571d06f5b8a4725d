package hostmem_test

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/internal/hostmem"
)

// One process writes to memory that another one maps, and says on a socket where to look.
func Example() {
	dir, _ := os.MkdirTemp("", "lines")
	defer os.RemoveAll(dir)
	socket, err := hostmem.Listen(dir)
	if err != nil {
		fmt.Println("no memory is shared here:", err)
		return
	}
	defer socket.Close()
	go func() {
		rank, _ := socket.Accept()
		memory, _ := hostmem.Create(4096)
		copy(memory.Bytes()[64:], "a body")
		fd, _ := memory.Descriptor()
		_ = rank.SendMemory(hostmem.Place{Ring: 1, Size: 4096}, fd)
		_ = unix.Close(fd)
		_ = rank.Send(hostmem.InRing, 0, hostmem.Place{Ring: 1, Offset: 64, Size: 6}.Append, nil)
		_ = memory.Close()
		_ = rank.Close()
	}()
	constructor, _ := hostmem.Dial(context.Background(), socket.Path)
	defer constructor.Close()
	_, _ = constructor.Receive()
	view, _ := constructor.Memory(4096)
	m, _ := constructor.Receive()
	at, _, _ := hostmem.ReadPlace(m.Payload)
	fmt.Printf("%s\n", view.Bytes[at.Offset:at.Offset+at.Size])
	// Output: a body
}
