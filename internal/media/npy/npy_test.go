package npy_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/media/npy"
	"github.com/millrace-data/millrace/internal/testdata"
)

func ExampleAppendHeader() {
	file := append(npy.AppendHeader(nil, npy.Int16, 2, 1), 1, 0, 2, 0)
	fmt.Printf("%d bytes, %q\n", len(file), file[10:67])
	// Output: 132 bytes, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1),"
}

// TestLength: values begin at a multiple of 64 whatever the shape, and the header says where.
func TestLength(t *testing.T) {
	for n := range 80 {
		shape := make([]int, 1+n%20)
		for i := range shape {
			shape[i] = n * n * n
		}
		h := npy.AppendHeader([]byte("before"), npy.Float32, shape...)[6:]
		if len(h)%64 != 0 || int(h[8])+int(h[9])<<8 != len(h)-10 || h[len(h)-1] != '\n' || !bytes.HasPrefix(h, []byte("\x93NUMPY\x01\x00")) {
			t.Fatalf("shape %v: %q", shape, h)
		}
	}
}

// TestNumPyReads has NumPy read arrays of each type, and write the same header.
func TestNumPyReads(t *testing.T) {
	python, _ := testdata.Python(t)
	for _, c := range []struct {
		kind   string
		size   int
		shape  []int
		python string
	}{{npy.Uint8, 1, []int{2, 3, 3}, "uint8 (2, 3, 3)"}, {npy.Int16, 2, []int{5}, "int16 (5,)"}, {npy.Float32, 4, []int{4, 2}, "float32 (4, 2)"}} {
		n := c.size
		for _, side := range c.shape {
			n *= side
		}
		cmd := exec.Command(python, "-c", `
import io, sys, numpy as np
data = sys.stdin.buffer.read()
a = np.load(io.BytesIO(data))
again = io.BytesIO()
np.lib.format.write_array(again, a, version=(1, 0))
print(a.dtype, a.shape, again.getvalue() == data)`)
		cmd.Stdin = bytes.NewReader(append(npy.AppendHeader(nil, c.kind, c.shape...), make([]byte, n)...))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != c.python+" True" {
			t.Errorf("%s: %s, %v", c.python, got, err)
		}
	}
}
