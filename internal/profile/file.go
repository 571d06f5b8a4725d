package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace-data/millrace/internal/regular"
)

// FileName is that of the profile in the folder of a step log.
const FileName = "profile.json"

// version is that of the file. Another one is as if there was no file: what it says can be
// measured again.
const version = 1

// mostFile bounds the file: a thousand times what 306 sources take.
const mostFile = 256 << 20

// file is the form of a profile on disk (docs/bytes.md).
type file struct {
	Version int             `json:"version"`
	Sum     string          `json:"sum"` // the first 16 bytes of SHA-256(profile), in hex
	Profile json.RawMessage `json:"profile"`
}

// Encode returns the profile as bytes of a file.
func (p *Profile) Encode() ([]byte, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{version, sum(body), body})
}

// Decode reads what Encode wrote. It refuses what is cut, damaged or of another version.
func Decode(data []byte) (*Profile, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("not a profile: %w", err)
	}
	if f.Version != version {
		return nil, fmt.Errorf("it has version %d, and this build reads version %d", f.Version, version)
	}
	if f.Sum != sum(f.Profile) {
		return nil, errors.New("its checksum does not match: it is damaged")
	}
	p := &Profile{}
	if err := json.Unmarshal(f.Profile, p); err != nil {
		return nil, fmt.Errorf("not a profile: %w", err)
	}
	kept := p.Sources
	p.Sources = nil
	for _, s := range kept {
		p.Add(s)
	}
	return p, nil
}

func sum(body []byte) string {
	digest := sha256.Sum256(body)
	return hex.EncodeToString(digest[:16])
}

// Read reads the profile in a folder. Without one the error is os.ErrNotExist.
func Read(dir string) (*Profile, error) { return ReadFile(filepath.Join(dir, FileName)) }

// ReadFile reads a profile.
func ReadFile(path string) (*Profile, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.Size() > mostFile {
		return nil, fmt.Errorf("profile %s: not a profile: it has %d bytes, and the largest has %d", path, info.Size(), mostFile)
	}
	data, err := regular.Read(path)
	if err != nil {
		return nil, err
	}
	p, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", path, err)
	}
	return p, nil
}

// Write puts the profile into a folder that is there, whole or not at all.
func (p *Profile) Write(dir string) error { return p.WriteFile(filepath.Join(dir, FileName)) }

// WriteFile writes the profile, whole or not at all.
func (p *Profile) WriteFile(path string) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	return write(path, data)
}

// WriteTo is Write of what Encode returned: who shares a profile need not hold it while the disk works.
func WriteTo(dir string, data []byte) error { return write(filepath.Join(dir, FileName), data) }

func write(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".profile-*")
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
