//go:build !cgo || !nvml

package nvml

import "errors"

// load is that of builds without the library.
func load() (driver, error) {
	return nil, errors.New("this millrace was built without it: build with CGO_ENABLED=1 and -tags nvml (make build-gpu)")
}
