package regular_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace-data/millrace/internal/regular"
)

// What is no regular file is not opened.
func ExampleRead() {
	dir, _ := os.MkdirTemp("", "regular")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "cert.pem")
	_ = os.WriteFile(path, []byte("a certificate"), 0o600)
	data, err := regular.Read(path)
	fmt.Println(string(data), err)
	_, err = regular.Read(os.DevNull)
	fmt.Println(err)
	// Output:
	// a certificate <nil>
	// /dev/null is a device, and has to be a regular file: put one in its place
}
