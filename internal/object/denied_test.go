package object

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/millrace-data/millrace/internal/fault"
)

// renewed are credentials that count how often they are looked for.
type renewed struct {
	credentials.Static
	looked int
}

func (r *renewed) Retrieve() (credentials.Value, error) {
	r.looked++
	return credentials.Value{AccessKeyID: "k", SecretAccessKey: "s", SignerType: credentials.SignatureV4}, nil
}

func (r *renewed) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return r.Retrieve()
}

// TestDenied: a store that denies access is the user's to mend, at once; one that was proved may take the same
// credentials soon, or others, which are looked for.
func TestDenied(t *testing.T) {
	for code, status := range map[string]int{"AccessDenied": 403, "InvalidAccessKeyId": 403, "": 401, "ExpiredToken": 400, "TokenRefreshRequired": 400} {
		left := 0 // requests that are denied
		s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
			if left--; left >= 0 {
				w.WriteHeader(status)
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
				return
			}
			w.Header().Set("ETag", `"abc"`)
		})
		found := &renewed{}
		s.creds = credentials.New(found)
		again := func() error { _, err := s.creds.GetWithContext(nil); return err }
		for _, proved := range []bool{false, true} {
			if left = 3; again() != nil {
				t.Fatal("no credentials")
			}
			before := found.looked
			err := Retry{Store: s, Proved: proved}.PutIfAbsent(t.Context(), "a", []byte("data"))
			switch {
			case proved && err != nil:
				t.Errorf("%d %s, for a while: %v", status, code, err)
			case !proved && (fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "AWS_ACCESS_KEY_ID") || left != 2):
				t.Errorf("%d %s: class %v, %v, after %d requests; want one of class user after 1", status, code, fault.ClassOf(err), err, 3-left)
			}
			if err := again(); err != nil || found.looked != before+1 {
				t.Errorf("%d %s: the credentials were looked for %d times, %v", status, code, found.looked-before, err)
			}
		}
		left = 1 << 30
		if err := (Retry{Store: s, Proved: true, For: 50 * time.Millisecond}).Put(t.Context(), "a", nil); fault.ClassOf(err) != fault.Lost {
			t.Errorf("%d %s, for ever: class %v, %v", status, code, fault.ClassOf(err), err)
		}
	}
}

// TestGranted: what a store has granted since it was opened is proved, and no other right is.
func TestGranted(t *testing.T) {
	left := 0 // requests that are denied
	s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		if left--; left >= 0 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if r.URL.Query().Has("list-type") {
			_, _ = w.Write([]byte("<ListBucketResult></ListBucketResult>"))
			return
		}
		describe(w, "0")
	})
	r := Retry{Store: s, Granted: new(Granted)}
	calls := map[right]func() error{
		reading:  func() error { _, err := r.Get(t.Context(), "a", Whole); return err },
		listing:  func() error { _, err := r.List(t.Context(), "a/", ""); return err },
		writing:  func() error { return r.Put(t.Context(), "a", nil) },
		removing: func() error { return r.Delete(t.Context(), "a") },
	}
	for what := range rights - 1 {
		if err := calls[what](); err != nil {
			t.Fatal(err)
		}
		left = 2
		if err := calls[what](); err != nil || left > 0 {
			t.Errorf("right %d, denied for a while after it was granted: %v, %d more requests were denied", what, err, left)
		}
		left = 2
		if err := calls[what+1](); fault.ClassOf(err) != fault.User || left != 1 {
			t.Errorf("right %d, which was never granted: class %v, %v, after %d requests; want one of class user after 1", what+1, fault.ClassOf(err), err, 2-left)
		}
		left = 0
	}
	left = 2
	if _, err := r.Stat(t.Context(), "a"); err != nil || left > 0 {
		t.Errorf("looking up, where reading was granted: %v", err)
	}
}

// TestReason: a store that refuses to look an object up without a word is asked why. Expired credentials are, as others,
// of class user in a store that never took them, and tried again in one that did.
func TestReason(t *testing.T) {
	left, code := 0, "" // requests that are refused, and why
	s := bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		if left--; left < 0 {
			describe(w, "1")
			_, _ = w.Write([]byte("x"))
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		}
	})
	r := Retry{Store: s, Granted: new(Granted)}
	left, code = 2, "ExpiredToken"
	if _, err := r.Stat(t.Context(), "a"); fault.ClassOf(err) != fault.User || !errors.Is(err, ErrDenied) || left != 0 {
		t.Errorf("at the start: class %v, %v", fault.ClassOf(err), err)
	}
	for _, left = range []int{0, 4, 1} { // 1: the credentials are good when it is asked why
		if _, err := r.Stat(t.Context(), "a"); err != nil {
			t.Errorf("%d more requests are refused: %v", left, err)
		}
	}
	left, code = 2, "AuthorizationHeaderMalformed"
	if _, err := r.Stat(t.Context(), "a"); fault.ClassOf(err) != fault.User || errors.Is(err, ErrDenied) || !strings.Contains(fmt.Sprint(err), "the endpoint and the region (AWS_ENDPOINT_URL_S3 and AWS_REGION") {
		t.Errorf("another region: class %v, %v", fault.ClassOf(err), err)
	}
}

// TestMissingRight: an access that a file system denies is an error that names the missing right, that of reading or of writing.
func TestMissingRight(t *testing.T) {
	for _, right := range []string{"read", "write"} {
		err := fileError(&fs.PathError{Op: "open", Path: "a", Err: fs.ErrPermission}, right)
		if fault.ClassOf(err) != fault.User || !errors.Is(err, ErrDenied) || !strings.HasSuffix(err.Error(), "give this user the right to "+right+" the folder") {
			t.Errorf("%s: %v", right, err)
		}
	}
}

// TestNoStore: what answers a write as if it were one, such as the page of a proxy, has stored nothing.
func TestNoStore(t *testing.T) {
	s := bucketOf(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>sign in first</html>") })
	for name, put := range map[string]func(context.Context, string, []byte) error{"Put": s.Put, "PutIfAbsent": s.PutIfAbsent} {
		if err := put(t.Context(), "a", []byte("data")); fault.ClassOf(err) != fault.Lost || !strings.Contains(fmt.Sprint(err), "no ETag") {
			t.Errorf("%s: class %v, %v", name, fault.ClassOf(err), err)
		}
	}
}
