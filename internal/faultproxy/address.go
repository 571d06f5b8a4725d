package faultproxy

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
)

// Free ports lie below those that systems give to connections and to listeners that name none: whoever does not
// listen at once, or listens again, finds its own still free, and no other server that a caller would take for it.
const firstPort, lastPort = 20_000, 30_000

// ports counts those that this process has given away. Processes begin at different ones.
var ports struct {
	sync.Mutex
	next int
}

// FreeAddress returns a loopback address, HOST:PORT, on which nobody listens, another one with each call. It is safe
// for concurrent use.
func FreeAddress() (string, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = firstPort + os.Getpid()*37%(lastPort-firstPort)
	}
	for range lastPort - firstPort {
		if ports.next++; ports.next >= lastPort {
			ports.next = firstPort
		}
		address := "127.0.0.1:" + strconv.Itoa(ports.next)
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no port from 20000 to 30000 is free")
}
