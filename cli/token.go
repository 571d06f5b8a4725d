package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace-data/millrace/internal/fault"
)

// tokenFile is a resume token on disk: readable enough to see what it is.
type tokenFile struct {
	Job   string `json:"job"`
	Step  int64  `json:"step"`
	Token []byte `json:"token"` // base64
}

// readToken reads a file that writeToken wrote; "" is no token.
func readToken(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Userf("reading the resume token: %w; pass a file that --save-token wrote", err)
	}
	var f tokenFile
	if err := json.Unmarshal(data, &f); err != nil || len(f.Token) == 0 {
		return nil, fault.Userf("%s is not a resume token, or it is damaged; pass a file that --save-token wrote", path)
	}
	return f.Token, nil
}

// checkWritable finds out before the run whether its token can be written.
func checkWritable(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return unwritable(fmt.Errorf("%s is a folder", path))
	case err == nil && !info.Mode().IsRegular():
		return nil // a pipe or device tells when it is written to
	}
	probe, err := os.CreateTemp(filepath.Dir(path), ".millrace-*")
	if err != nil {
		return unwritable(err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func unwritable(err error) error {
	return fault.Userf("writing the resume token: %w; name a file with --save-token that can be written", err)
}

// writeToken writes a token as a whole or not at all; nowhere if path is "".
func writeToken(path string, f tokenFile) error {
	if path == "" {
		return nil
	}
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding the resume token: %w", err)
	}
	write := replace
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		write = func(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }
	}
	if err := write(path, append(data, '\n')); err != nil {
		return unwritable(err)
	}
	return nil
}

// replace puts data in place of a file, which is the old or the new one at any time.
func replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".millrace-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
