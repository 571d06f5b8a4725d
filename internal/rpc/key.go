package rpc

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// The variables of the environment that say which access key counts. client/python
// reads the same.
const (
	envKey     = "MILLRACE_ACCESS_KEY"      // the key itself
	envKeyFile = "MILLRACE_ACCESS_KEY_FILE" // a file that holds it
	envKeyDir  = "MILLRACE_KEY_DIR"         // where keys that services make are left for the clients of the same user
)

// keyBytes is the size of a key that is made: nobody guesses one of 256 bits.
const keyBytes = 32

// Shortest and longest key that is taken, in characters: no slip of a hand, and no file that
// is something else.
const minKey, maxKey = 16, 256

// keys is where one side of a connection has the access key of a job from. It is safe for
// concurrent use.
type keys struct {
	fixed string   // the key, if it is known
	files []string // else the first of these that is there
	named bool     // the file was named by a person: it must be there
	also  []*keys  // of planners that may take the place of this one

	mu     sync.Mutex // guards what was read last
	stamp  stamp
	latest string
}

// stamp tells a file from one that took its place.
type stamp struct {
	file     string
	inode    uint64
	modified time.Time
}

// keys returns where s has its key from; nil if requests need none. With TLS it is
// certificates that count, and a key only beside them if it is given.
func (s Security) keys() *keys {
	switch file := cmp.Or(s.AccessKeyFile, os.Getenv(envKeyFile)); {
	case s.accessKey != "":
		return &keys{fixed: s.accessKey}
	case s.AccessKeyFile == "" && os.Getenv(envKey) != "":
		return &keys{fixed: strings.TrimSpace(os.Getenv(envKey))}
	case file != "":
		return &keys{files: []string{file}, named: true}
	case s.planner == "" || s.enabled() || s.network != nil:
		return nil
	}
	var all []*keys
	for address := range strings.SplitSeq(s.planner, ",") {
		k := &keys{}
		for _, dir := range keyDirs() {
			k.files = append(k.files, filepath.Join(dir, keyName(strings.TrimSpace(address))))
		}
		all = append(all, k)
	}
	all[0].also = all[1:]
	return all[0]
}

// opens says whether a key is one of those that count.
func (k *keys) opens(key string) (bool, error) {
	want, err := k.key()
	if err == nil && want != "" && subtle.ConstantTimeCompare([]byte(key), []byte(want)) == 1 {
		return true, nil
	}
	for _, other := range k.also {
		if ok, _ := other.opens(key); ok {
			return true, nil
		}
	}
	return false, err
}

// first is the first key that is there.
func (k *keys) first() (string, error) {
	key, err := k.key()
	for i := 0; key == "" && i < len(k.also); i++ {
		var failed error
		key, failed = k.also[i].key()
		err = cmp.Or(err, failed)
	}
	if key != "" {
		return key, nil
	}
	return "", err
}

// key returns the key as it is now, "" if there is none. One that was read stays when its file
// goes: a planner that ends takes it along, and what is under way then ends in order.
func (k *keys) key() (string, error) {
	if k.fixed != "" {
		return k.fixed, validKey(envKey, k.fixed)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var failed error // of the first file that may be there
	for _, file := range k.files {
		now, err := stampOf(file)
		if err == nil && now == k.stamp {
			return k.latest, nil
		}
		key := ""
		if err == nil {
			key, err = readKey(file)
		}
		if err == nil {
			k.stamp, k.latest = now, key
			return key, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			failed = cmp.Or(failed, err)
		}
	}
	lost := fault.ClassOf(failed) == fault.Lost
	switch {
	case failed == nil && k.named && k.latest == "":
		return "", fault.Userf("there is no access key in %s: copy the file that the service's --access-key-file names", k.files[0])
	case failed == nil, k.latest != "" && (lost || !k.named):
		return k.latest, nil
	case !lost && !k.named:
		return "", fault.Userf("%w; mend that, or give the service's key with --access-key-file (Python: access_key_file=), %s or %s", failed, envKeyFile, envKey)
	}
	return "", failed
}

// stampOf is the stamp that a file has now.
func stampOf(file string) (stamp, error) {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}, keyError("reading the access key: %w", err)
	}
	now := stamp{file: file, modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = sys.Ino
	}
	return now, nil
}

func readKey(file string) (string, error) {
	f, err := regular.Open(file)
	if err != nil {
		return "", keyError("reading the access key: %w", err)
	}
	defer f.Close()
	text := make([]byte, maxKey+2)
	n, err := f.Read(text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EISDIR) { // a folder holds no key
		return "", keyError("reading the access key: %w", err)
	}
	key := string(bytes.TrimSpace(text[:n]))
	return key, validKey(file, key)
}

// keyError gives an error of a key's file its class: a process without descriptors and a disk that fails are not the
// user's fault.
func keyError(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EIO) {
		return fault.As(fault.Lost, err)
	}
	return fault.As(fault.User, err)
}

// keyStatus is the status of a call whose key is not to be had.
func keyStatus(err error) error {
	if fault.ClassOf(err) == fault.Lost {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Unauthenticated, err.Error())
}

// visible are the characters that a header may carry.
var visible = regexp.MustCompile(`^[!-~]*$`)

// validKey refuses what is no key; it does not repeat it.
func validKey(where, key string) error {
	if len(key) < minKey || len(key) > maxKey || !visible.MatchString(key) {
		return fault.Userf("%s holds no access key: valid are %d to %d visible characters in one line, such as `openssl rand -hex %d` prints",
			where, minKey, maxKey, keyBytes)
	}
	return nil
}

// issue returns s with the access key of a planner that listens on l: the one that it was
// given, or a new one. It is left where clients of the same user find it by the service's
// address, until withdraw is called.
func (s Security) issue(l net.Listener, advertised string) (issued Security, withdraw func(), err error) {
	withdraw = func() {}
	given := s.keys()
	if given == nil && s.enabled() {
		return s, withdraw, nil
	}
	if given != nil {
		s.accessKey, err = given.give(!s.standby)
	} else {
		s.accessKey, err = newKey(), nil
	}
	if err != nil {
		return s, withdraw, err
	}
	var left []string
	for _, address := range []string{Address(l), advertised} {
		file, err := leave(keyName(address), s.accessKey)
		if err != nil && given == nil {
			return s, withdraw, err
		}
		if err == nil { // a key that was given, clients may be given as well
			left = append(left, file)
		}
	}
	return s, func() { remove(left, s.accessKey) }, nil
}

func newKey() string {
	b := make([]byte, keyBytes)
	rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// give is key for the side that begins: a file that is named and not there is made, if that may be.
func (k *keys) give(makes bool) (string, error) {
	if !k.named {
		return k.key()
	}
	file := k.files[0]
	info, err := os.Stat(file)
	switch absent := errors.Is(err, fs.ErrNotExist); {
	case absent && makes:
		key := newKey()
		return key, write(file, key)
	case absent:
		return "", fault.Userf("there is no access key in %s, and a planner that stands by makes none, as loaders, constructors and ranks have the one of the planner that it stands by for: "+
			"copy the file that that one's --access-key-file names, and name the copy with --access-key-file", file)
	}
	if err == nil && info.Mode().Perm()&0o007 != 0 {
		return "", fault.Userf("the access key %s may be read by everyone: close it to others (chmod 600)", file)
	}
	return k.key()
}

// leave puts a key under a name into the first folder for keys that takes it.
func leave(name, key string) (file string, err error) {
	for _, dir := range keyDirs() {
		if err = private(dir); err == nil {
			file = filepath.Join(dir, name)
			err = write(file, key)
		}
		if err == nil {
			return file, nil
		}
	}
	return "", keyError("leaving the service's access key for its clients: %w; name a folder for it with %s, or give a key with --access-key-file or %s", err, envKeyDir, envKey)
}

// private makes a folder that is this user's alone.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user's", dir)
	}
	return os.Chmod(dir, 0o700)
}

// write writes a key whole, or not at all.
func write(file, key string) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".key-*") // of mode 0600
	if err == nil {
		_, err = temp.WriteString(key + "\n")
		if err = cmp.Or(err, temp.Close()); err == nil {
			err = os.Rename(temp.Name(), file)
		}
		if err != nil {
			os.Remove(temp.Name())
		}
	}
	if err != nil {
		return keyError("writing the access key %s: %w", file, err)
	}
	return nil
}

// remove takes away the files that still hold a key: another service may have come to the
// same address since.
func remove(files []string, key string) {
	for _, file := range files {
		if found, err := readKey(file); err == nil && found == key {
			os.Remove(file)
		}
	}
}

// keyDirs are the folders where keys are left and looked for, in this order. Not
// XDG_RUNTIME_DIR: it is emptied when the user logs out, and the service may stay.
func keyDirs() []string {
	if dir := os.Getenv(envKeyDir); dir != "" {
		return []string{dir}
	}
	dirs := []string{filepath.Join(os.TempDir(), "millrace-"+strconv.Itoa(os.Geteuid()))}
	home, err := os.UserHomeDir()
	if err != nil {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	if filepath.IsAbs(home) {
		dirs = append([]string{filepath.Join(home, ".millrace", "keys")}, dirs...)
	}
	return dirs
}

// plain are the characters of a file name that need no thought.
var plain = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// keyName is the name of the file that holds the key of the service at an address. What is
// reached on one machine only, such as loopback, has its name in it: homes may be shared.
func keyName(address string) string {
	machine, err := os.Hostname()
	if err != nil {
		machine = "localhost"
	}
	name := machine + "-" + address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		sum := sha256.Sum256([]byte(path))
		name = machine + "-unix-" + hex.EncodeToString(sum[:8])
	} else if host, port, err := net.SplitHostPort(address); err == nil {
		ip := net.ParseIP(host)
		switch {
		case host == "localhost", ip != nil && (ip.IsUnspecified() || ip.Equal(net.IPv6loopback) || ip.Equal(net.IPv4(127, 0, 0, 1))):
			name = machine + "-localhost-" + port
		default:
			name = strings.ToLower(host) + "-" + port
		}
	}
	return plain.ReplaceAllString(name, "_") + ".key"
}
