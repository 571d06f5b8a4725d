package objecttest

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/faultproxy"
	"github.com/millrace-data/millrace/internal/object"
)

// Env names the environment variable with the path of versitygw, the S3 server of tests.
const Env = "MILLRACE_S3_SERVER"

// What the server's one user is called. These are no secrets: it serves the test alone.
const (
	user   = "test"
	secret = "test-secret"
)

// Server starts a real S3 server on a folder of its own, with one empty bucket, and returns
// the bucket's URL. The environment has the credentials until the test ends. Without the
// server's program the test is skipped, and says how to get it.
func Server(t testing.TB) string {
	t.Helper()
	program := find(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bucket"), 0o700); err != nil {
		t.Fatal(err)
	}
	address, err := faultproxy.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	cmd := exec.Command(program, "--access", user, "--secret", secret, "--port", address, "--quiet", "posix", dir)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("the S3 server said:\n%s", output.String())
		}
	})
	t.Setenv("AWS_ACCESS_KEY_ID", user)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_ENDPOINT_URL", "http://"+address)
	where := "s3://bucket?endpoint=" + url.QueryEscape("http://"+address)
	await(t, where)
	return where
}

// find returns the server's program.
func find(t testing.TB) string {
	t.Helper()
	if program := os.Getenv(Env); program != "" {
		return program
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		program := filepath.Join(dir, "bin", "versitygw")
		if _, err := os.Stat(program); !errors.Is(err, fs.ErrNotExist) {
			return program
		}
	}
	t.Skipf("no S3 server: `make s3-server` builds one (some minutes, once), or set %s to the path of versitygw", Env)
	return ""
}

// await waits until the server answers.
func await(t testing.TB, where string) {
	t.Helper()
	store, err := object.Open(where)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := store.List(ctx, "", "")
		if err == nil {
			return
		}
		if fault.ClassOf(err) != fault.Lost || ctx.Err() != nil {
			t.Fatalf("the S3 server does not answer: %v", err)
		}
	}
}
