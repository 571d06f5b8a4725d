package rpc

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestKeyNames: whatever a service on this machine is called, its key has one name; and what
// another machine serves has another.
func TestKeyNames(t *testing.T) {
	want := keyName("127.0.0.1:7070")
	for _, address := range []string{"localhost:7070", "[::1]:7070", "0.0.0.0:7070", "[::]:7070"} {
		if got := keyName(address); got != want {
			t.Errorf("%s has its key in %s, 127.0.0.1:7070 in %s", address, got, want)
		}
	}
	seen := map[string]string{want: "127.0.0.1:7070"}
	for _, address := range []string{"127.0.0.1:7071", "127.0.0.2:7070", "10.0.0.1:7070", "data7:7070", "data7.example:7070", "[fe80::1]:7070", "unix:/tmp/s", "unix:/tmp/t", "unix:s", "unix:/tmp_s"} {
		name := keyName(address)
		if before, ok := seen[name]; ok || strings.ContainsAny(name, "/:[]") {
			t.Errorf("the key of %s is in %s, as is that of %q", address, name, before)
		}
		seen[name] = address
	}
	if a, b := keyName("Data7:1"), keyName("data7:1"); a != b {
		t.Errorf("names of machines have no capitals: %s, %s", a, b)
	}
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := keyName("unix:s"), keyName("unix:"+filepath.Join(here, "s")); a != b {
		t.Errorf("the same socket has its key in %s and %s", a, b)
	}
}

// TestKeyIsLeft: a service leaves its key, for its user only, while it runs.
func TestKeyIsLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	t.Setenv(envKeyDir, dir)
	t.Run("serving", func(t *testing.T) {
		address := serveAll(t, Security{})
		for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, keyName(address)): 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v %v, want mode %o", path, info, err, mode)
			}
		}
		if a, b := keyOf(t, address), keyOf(t, serveAll(t, Security{})); a == b || len(a) != 2*keyBytes {
			t.Errorf("two services have the keys %q and %q", a, b)
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("services that ended leave %v (%v)", left, err)
	}
}

func keyOf(t *testing.T, address string) string {
	t.Helper()
	key, err := Security{}.Of(address).keys().key()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestKeyOfAnother: a service takes along its own key only.
func TestKeyOfAnother(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envKeyDir, dir)
	newer := newKey()
	var file string
	t.Run("serving", func(t *testing.T) {
		file = filepath.Join(dir, keyName(serveAll(t, Security{})))
		if err := write(file, newer); err != nil {
			t.Fatal(err)
		}
	})
	if key, err := readKey(file); err != nil || key != newer {
		t.Errorf("the key of the service that came next: %q %v", key, err)
	}
}

// TestKeyOfTheNextService: a connection that outlives its service has the key of the next one
// on the same address, and that of the last one while there is none.
func TestKeyOfTheNextService(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	k := Security{}.Of(address).keys()
	serve := func() (key string) {
		err := Run(t.Context(), address, "", Security{}, MaxControl, func(grpc.ServiceRegistrar) {}, func(context.Context, string) (err error) {
			key, err = k.key()
			return cmp.Or(err, context.Canceled)
		})
		if err != nil || len(key) != 2*keyBytes {
			t.Fatalf("the key is %q: %v", key, err)
		}
		return key
	}
	if key, err := k.key(); key != "" || err != nil {
		t.Errorf("before the service there is the key %q (%v)", key, err)
	}
	first := serve()
	if key, err := k.key(); key != first || err != nil {
		t.Errorf("after the service the key is %q (%v), want the last one", key, err)
	}
	if second := serve(); second == first {
		t.Error("two services have one key")
	}
}

// TestKeysThatAreGiven: a file or variable that holds no key, or one that all may read, is
// refused, and what it holds is not told.
func TestKeysThatAreGiven(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		return path
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("k", 40)
	for _, c := range []struct{ name, file, env, want string }{
		{"good", file("good", long+"\n", 0o600), "", ""},
		{"good for a group", file("group", long, 0o640), "", ""},
		{"made", filepath.Join(dir, "made"), "", ""},
		{"variable", "", long, ""},
		{"short", file("short", "secret\n", 0o600), "", "holds no access key"},
		{"empty", file("empty", "", 0o600), "", "holds no access key"},
		{"long", file("long", strings.Repeat(long, 1000), 0o600), "", "holds no access key"},
		{"two lines", file("lines", long+"\n"+long, 0o600), "", "holds no access key"},
		{"everyone's", file("all", long, 0o644), "", "chmod 600"},
		{"folder", dir, "", "chmod 600"},
		{"no folder", filepath.Join(dir, "none", "key"), "", "writing the access key"},
		{"bad variable", "", "se cret secret secret secret", envKey + " holds no access key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(envKey, c.env)
			sec := Security{AccessKeyFile: c.file}
			var got error
			err := Run(t.Context(), "127.0.0.1:0", "", sec, MaxControl, func(s grpc.ServiceRegistrar) { pb.RegisterPlannerServer(s, pb.UnimplementedPlannerServer{}) },
				func(_ context.Context, address string) error {
					conn, err := Dial(address, sec)
					if err != nil {
						return err
					}
					defer conn.Close()
					got = call(t, conn, pb.Planner_Status_FullMethodName)
					return context.Canceled
				})
			if c.want == "" && (err != nil || status.Code(got) != codes.Unimplemented) {
				t.Errorf("%v, and a client: %v", err, got)
			}
			if c.want != "" && (fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// withoutFiles calls do where no file can be opened.
func withoutFiles(t *testing.T, do func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Skip("limits cannot be set here: ", err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

// TestKeyThatCannotBeRead: only a file that does not exist is no key. What else keeps one from being read is said, with the
// file, and is lost where it passes; a key that was read stays.
func TestKeyThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envKeyDir, dir)
	const address = "127.0.0.1:7070"
	file, key := filepath.Join(dir, keyName(address)), newKey()
	for _, sec := range []Security{{}, {AccessKeyFile: file}} {
		if err := write(file, key); err != nil {
			t.Fatal(err)
		}
		k := sec.Of(address).keys()
		withoutFiles(t, func() {
			got, err := k.first()
			if got != "" || fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), file+": too many open files") {
				t.Errorf("without descriptors: %q, %v", got, err)
			}
			if err := FromStatus(keyStatus(err)); fault.ClassOf(err) != fault.Lost {
				t.Errorf("a call ends with %v, which is not lost", err)
			}
		})
		if got, err := k.first(); got != key || err != nil {
			t.Errorf("with descriptors: %q, %v", got, err)
		}
		if err := write(file, newKey()); err != nil {
			t.Fatal(err)
		}
		withoutFiles(t, func() {
			if got, err := k.first(); got != key || err != nil {
				t.Errorf("once it was read: %q, %v", got, err)
			}
		})
		if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := sec.Of(address).keys().first(); got != "" || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), file+" holds no access key") {
			t.Errorf("of a file that holds none: %q, %v", got, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, file); err != nil {
			t.Fatal(err)
		}
		if got, err := sec.Of(address).keys().first(); got != "" || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "reading the access key: ") || !strings.Contains(err.Error(), file) {
			t.Errorf("of a link to itself: %q, %v", got, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := (Security{}.Of(address)).keys().first(); got != "" || err != nil {
		t.Errorf("where there is none: %q, %v", got, err)
	}
}

// TestKeyOfTheOtherPlanner: a key that cannot be read does not keep that of another planner from being used.
func TestKeyOfTheOtherPlanner(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envKeyDir, dir)
	key := newKey()
	if err := write(filepath.Join(dir, keyName("127.0.0.1:2")), key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, keyName("127.0.0.1:1")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := (Security{}.Of("127.0.0.1:1,127.0.0.1:2")).keys().first(); got != key || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNoFolderForKeys: a service that cannot leave its key says what to do, and one that was
// given a key does not need to.
func TestNoFolderForKeys(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envKeyDir, filepath.Join(dir, "file", "keys"))
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() error {
		return Run(t.Context(), "127.0.0.1:0", "", Security{}, MaxControl, func(grpc.ServiceRegistrar) {}, func(context.Context, string) error { return context.Canceled })
	}
	if err := run(); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), envKeyDir) || !strings.Contains(err.Error(), "--access-key-file") {
		t.Errorf("without a folder: %v", err)
	}
	t.Setenv(envKey, newKey())
	if err := run(); err != nil {
		t.Errorf("with a key: %v", err)
	}
}
