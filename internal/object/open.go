package object

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Valid is what a URL of a store may be, for messages.
const Valid = "file:///folder, or s3://BUCKET/PREFIX with ?endpoint=HOST:PORT, region=NAME and path_style=true as needed"

// Open returns the store that a URL names, with retries: file:///folder, or
// s3://bucket/prefix. Where an S3 store is, the query of the URL says (endpoint, region,
// path_style), and else the environment: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL,
// AWS_REGION or AWS_DEFAULT_REGION. Credentials are those that other programs find:
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials, the machine's role.
// What the store has granted once is proved from then on (Retry.Granted). Errors are of class
// fault.User. Nothing is sent.
func Open(rawURL string) (Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.User != nil { // err has the URL, which may have a secret
		return nil, fault.Userf("the URL of an object store cannot be read, or has a user in it: valid is %s; credentials come from the environment", Valid)
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "localhost" || u.Path == "" || u.RawQuery != "" {
			return nil, fault.Userf("%s: valid is file:///folder, with three slashes", u.Redacted())
		}
		d, err := NewDirectory(u.Path)
		if err != nil {
			return nil, err
		}
		return Retry{Store: d, Granted: new(Granted)}, nil
	case "s3":
		opts, err := s3Options(u)
		if err != nil {
			return nil, err
		}
		s, err := NewS3(opts)
		if err != nil {
			return nil, err
		}
		return Retry{Store: s, Granted: new(Granted)}, nil
	}
	return nil, fault.Userf("%s: this object store is not known: valid is %s", u.Redacted(), Valid)
}

// OpenProved is Open of a store that took the credentials before it was opened (Retry.Proved).
func OpenProved(rawURL string) (Store, error) {
	s, err := Open(rawURL)
	if r, ok := s.(Retry); ok {
		r.Proved = true
		s = r
	}
	return s, err
}

// Folder is the folder that the URL of a store names; ok is false if it names another store, or none.
func Folder(rawURL string) (path string, ok bool) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	return u.Path, true
}

// s3Options reads where a bucket is from a URL and from the environment.
func s3Options(u *url.URL) (S3Options, error) {
	query := u.Query()
	for name := range query {
		if name != "endpoint" && name != "region" && name != "path_style" {
			return S3Options{}, fault.Userf("s3://%s%s: the setting %q is not known: valid is %s", u.Host, u.Path, name, Valid)
		}
	}
	endpoint := cmp.Or(query.Get("endpoint"), os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	opts := S3Options{
		Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"),
		Region:    cmp.Or(query.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1"),
		PathStyle: !strings.Contains(endpoint, "amazonaws.com"), // few others serve a name for each bucket
	}
	if text := query.Get("path_style"); text != "" {
		var err error
		if opts.PathStyle, err = strconv.ParseBool(text); err != nil {
			return opts, fault.Userf("s3://%s%s: path_style is %q: valid is true or false", u.Host, u.Path, text)
		}
	}
	opts.Endpoint, opts.Plain = strings.CutPrefix(endpoint, "http://")
	opts.Endpoint = strings.TrimSuffix(strings.TrimPrefix(opts.Endpoint, "https://"), "/")
	if opts.EndpointFrom = "?endpoint= of the URL"; query.Get("endpoint") == "" {
		opts.EndpointFrom = "AWS_ENDPOINT_URL_S3"
	}
	if opts.Bucket != "" && query.Get("endpoint") == "" && strings.ContainsAny(opts.Endpoint, "/@") {
		return opts, fault.Userf("s3://%s%s: the endpoint of AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL is malformed: valid is http://HOST:PORT or https://HOST:PORT", u.Host, u.Path)
	}
	if opts.Bucket == "" || opts.Endpoint == "" || strings.ContainsAny(opts.Endpoint, "/@") {
		return opts, fault.Userf("s3://%s%s: bucket or endpoint is missing or malformed: valid is %s", u.Host, u.Path, Valid)
	}
	return opts, nil
}

// Prove finds out whether a store creates conditionally, as its contract says: of two
// creates of one object at a time, one wins, and what is read is the winner's. A store that
// lets both win cannot tell one writer from another, and is refused with an error of class
// fault.User. The object has prefix and a random number for a name; it is removed.
func Prove(ctx context.Context, s Store, prefix string) error {
	key := fmt.Sprintf("%s%016x", prefix, rand.Uint64())
	type result struct {
		text string
		err  error
	}
	results := make(chan result, 2)
	for _, text := range []string{"first", "second"} {
		go func() { results <- result{text, s.PutIfAbsent(ctx, key, []byte(text))} }()
	}
	var won []string
	for range 2 {
		r := <-results
		switch {
		case r.err == nil:
			won = append(won, r.text)
		case !isExists(r.err):
			return r.err
		}
	}
	got, err := s.Get(ctx, key, Whole)
	if err != nil {
		return err
	}
	if len(won) != 1 || string(got) != won[0] {
		return fault.Userf("%s does not create conditionally: of two creates of %s at a time %d succeeded, and it holds %q: "+
			"use a store that honours If-None-Match: * (S3 itself does, and current MinIO, Ceph and versitygw), or a folder (file:///...)", s, key, len(won), got)
	}
	return s.Delete(ctx, key)
}
