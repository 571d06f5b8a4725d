package object

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestUnknownHost: a host without an address ends a call soon where somebody waits for it, and is
// named. Of a store that has answered that is as any other loss.
func TestUnknownHost(t *testing.T) {
	s, err := NewS3(S3Options{Bucket: "bucket", Endpoint: "nobody.invalid", Plain: true, Region: "r", PathStyle: true, Creds: credentials.NewStaticV4("k", "s", "")})
	if err != nil {
		t.Fatal(err)
	}
	r := Retry{Store: s, For: time.Hour, Unknown: time.Millisecond}
	_, err = r.Stat(t.Context(), "a")
	if fault.ClassOf(err) != fault.Lost || !errors.Is(err, errNoAddress) || !strings.Contains(err.Error(), "nobody.invalid has no address: check the names of the bucket and of the endpoint") {
		t.Errorf("class %v: %v", fault.ClassOf(err), err)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	for from, want := range map[string]string{"s3://bucket": "endpoint (AWS_ENDPOINT_URL_S3):", "s3://bucket/log?endpoint=http://nobody.invalid": "endpoint (?endpoint= of the URL):"} {
		store, err := Open(from)
		if err != nil {
			t.Fatal(err)
		}
		s := store.(Retry).Store.(*S3)
		if err := s.fault(&net.DNSError{Name: "nobody.invalid"}); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", from, err)
		}
	}
	s.answered.Store(true)
	if _, err = s.Stat(t.Context(), "a"); fault.ClassOf(err) != fault.Lost || errors.Is(err, errNoAddress) {
		t.Errorf("of a store that has answered, class %v: %v", fault.ClassOf(err), err)
	}
}
