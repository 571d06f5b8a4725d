package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	resume "github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/regular"
)

// tokenFile is a resume token on disk: readable enough to see what it is.
type tokenFile struct {
	Job   string `json:"job"`
	Step  int64  `json:"step"`
	Token []byte `json:"token"` // base64
}

// readToken reads a file that writeToken wrote, or one of the bytes that Client.State
// returns; "" is no token.
func readToken(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	data, err := regular.Text(path)
	if err != nil {
		return nil, fault.Userf("reading the resume token: %w; pass a file that --save-token wrote", err)
	}
	if resume.Whole(data) {
		return data, nil
	}
	var f tokenFile
	if err := json.Unmarshal(data, &f); err != nil || len(f.Token) == 0 {
		return nil, fault.Userf("%s is not a resume token, or it is damaged; pass a file that --save-token wrote, or one with the bytes that State of the Go client gave", path)
	}
	return f.Token, nil
}

// output is a file that a verb writes when its work is done.
type output struct{ what, flag string }

var (
	tokenOutput  = output{"the resume token", "--save-token"}
	pageOutput   = output{"the page", "--html"}
	exportOutput = output{"the export", "--out"}
)

// probeBytes are written beside a file to see that the disk has room: more than a token has.
const probeBytes = 64 << 10

// check finds out before the work whether a file can be written, by one beside it; ""
// is none. What is there already stays as it is.
func (o output) check(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return o.unwritable(path, errors.New("it is a folder"))
	case err == nil && !info.Mode().IsRegular():
		return nil // a pipe or device tells when it is written to
	}
	probe, err := os.CreateTemp(filepath.Dir(path), ".millrace-*")
	if err != nil {
		return o.unwritable(path, err)
	}
	_, err = probe.Write(make([]byte, probeBytes))
	if err = errors.Join(err, probe.Sync(), probe.Close(), os.Remove(probe.Name())); err != nil {
		return o.unwritable(path, err)
	}
	return nil
}

func (o output) unwritable(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok { // of a file beside it, whose name says nothing
		err = at.Err
	}
	class := fault.User
	if errors.Is(err, syscall.ENOSPC) {
		class = fault.Lost
	}
	return fault.As(class, fmt.Errorf("writing %s to %s: %w; name a file with %s in a folder that is there, has room and can be written to", o.what, path, err, o.flag))
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
	if err := replace(path, append(data, '\n'), 0o600); err != nil {
		return tokenOutput.unwritable(path, err)
	}
	return nil
}

// replace puts data in place of a file, as replaceBy does.
func replace(path string, data []byte, perm os.FileMode) error {
	return replaceBy(path, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// replaceBy puts what fill writes in place of a file, which is the old or the new one at any time.
// What is no file, such as a pipe or device, is written to.
func replaceBy(path string, perm os.FileMode, fill func(io.Writer) error) error {
	if real, err := filepath.EvalSymlinks(path); err == nil { // a link stays one
		path = real
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		device, err := os.OpenFile(path, os.O_WRONLY, perm)
		if err != nil {
			return err
		}
		return errors.Join(fill(device), device.Close())
	} else if err == nil {
		perm &= info.Mode().Perm()
	}
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".millrace-%d-%d", os.Getpid(), time.Now().UnixNano()))
	tmp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm) // and umask
	if err != nil {
		return err
	}
	if err = errors.Join(fill(tmp), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
