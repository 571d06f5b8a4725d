package object

import (
	"fmt"
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
