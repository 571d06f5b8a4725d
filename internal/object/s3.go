package object

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/millrace-data/millrace/internal/fault"
)

// S3 is a Store in a bucket of an object store that speaks S3. A version is an ETag. Each
// call is one request, but for the reason of a refusal, and is not repeated; [Retry] does that.
type S3 struct {
	client minio.Core
	bucket string
	prefix string // of all keys, with a slash at its end, or ""
	creds  *credentials.Credentials

	answered *atomic.Bool // something has, whatever it said
	named    string       // S3Options.EndpointFrom
}

var _ Store = (*S3)(nil)

// S3Options say where a bucket is.
type S3Options struct {
	Bucket   string
	Prefix   string // of all keys; "" for none
	Endpoint string // HOST or HOST:PORT
	Plain    bool   // HTTP instead of HTTPS
	// EndpointFrom is where the endpoint is said, or would be, for messages.
	EndpointFrom string
	Region       string
	PathStyle    bool                     // the bucket is in the path, not in the host's name
	Creds        *credentials.Credentials // default: those of the environment, of ~/.aws and of the machine, in this order
	Silence      time.Duration            // for which a request may make no progress; default: so long that Retry makes another one
}

// Limits of one HTTP request.
const (
	dialTimeout = 5 * time.Second
	connections = 64 // kept to one host: as many as blocks are read at a time
)

// NewS3 returns the store in a bucket, which must be there. It sends nothing.
func NewS3(opts S3Options) (*S3, error) {
	if err := s3utils.CheckValidBucketName(opts.Bucket); err != nil {
		return nil, fault.Userf("the bucket %q: %w: valid is a name of 3 to 63 letters, digits, dots and dashes", opts.Bucket, err)
	}
	if opts.Creds == nil {
		opts.Creds = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Timeout: dialTimeout}},
		})
	}
	lookup := minio.BucketLookupDNS
	if opts.PathStyle {
		lookup = minio.BucketLookupPath
	}
	answered := new(atomic.Bool)
	client, err := minio.New(opts.Endpoint, &minio.Options{
		Creds: opts.Creds, Secure: !opts.Plain, Region: opts.Region, BucketLookup: lookup, MaxRetries: 1,
		Transport: watched{answered: answered, silence: cmp.Or(opts.Silence, defaultSilence), Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			MaxIdleConns:        connections,
			MaxIdleConnsPerHost: connections,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true, // an object that is compressed is what it is
		}},
	})
	if err != nil {
		return nil, fault.Userf("the object store at %s: %w", opts.Endpoint, err)
	}
	prefix := strings.Trim(opts.Prefix, "/")
	if prefix != "" {
		if err := checkKey(prefix); err != nil {
			return nil, err
		}
		prefix += "/"
	}
	return &S3{minio.Core{Client: client}, opts.Bucket, prefix, opts.Creds, answered, cmp.Or(opts.EndpointFrom, "AWS_ENDPOINT_URL_S3")}, nil
}

// String implements Store.
func (s *S3) String() string {
	return "s3://" + s.bucket + "/" + strings.TrimSuffix(s.prefix, "/") + " at " + s.client.EndpointURL().Host
}

// checkCall refuses what the client would, whose errors have no class.
func (s *S3) checkCall(ctx context.Context, key string) error {
	if err := checkCall(ctx, key); err != nil {
		return err
	}
	return s.checkName(key)
}

// checkName refuses a key, or a prefix of keys, that no object in a bucket can have.
func (s *S3) checkName(key string) error {
	if err := s3utils.CheckValidObjectNamePrefix(s.prefix + key); err != nil {
		return fault.Userf("%w: a key in a bucket is UTF-8, and has 1024 bytes at most", err)
	}
	return nil
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string, r Range) ([]byte, error) {
	data, err := s.get(ctx, key, r)
	return data, wrap(s, "reading", key, s.fault(err))
}

func (s *S3) get(ctx context.Context, key string, r Range) ([]byte, error) {
	if err := s.checkCall(ctx, key); err != nil {
		return nil, err
	}
	if r.N == 0 { // S3 has no empty range
		info, err := s.Stat(ctx, key)
		if err == nil && r.Version != "" && r.Version != info.Version {
			err = fault.As(fault.User, ErrChanged)
		}
		return nil, err
	}
	var opts minio.GetObjectOptions
	var err error
	switch {
	case r.N > 0:
		err = opts.SetRange(r.Off, r.Off+r.N-1)
	case r.Off > 0:
		err = opts.SetRange(r.Off, 0)
	}
	if err == nil && r.Version != "" {
		err = opts.SetMatchETag(r.Version)
	}
	if err != nil {
		return nil, err
	}
	body, info, _, err := s.client.GetObject(ctx, s.bucket, s.prefix+key, opts)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return nil, nil // the object ends before
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return readAll(body, info.Size)
}

// readAll reads n bytes, or as many as there are if n is negative: a body may end early.
func readAll(body io.Reader, n int64) ([]byte, error) {
	if n < 0 {
		return io.ReadAll(body)
	}
	data := make([]byte, n)
	_, err := io.ReadFull(body, data)
	return data, err
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, key string) (Info, error) {
	err := s.checkCall(ctx, key)
	var info minio.ObjectInfo
	if err == nil {
		info, err = s.client.StatObject(ctx, s.bucket, s.prefix+key, minio.StatObjectOptions{})
	}
	if minio.ToErrorResponse(err).StatusCode == http.StatusBadRequest {
		err = s.reason(ctx, key, err)
	}
	if err != nil {
		return Info{}, wrap(s, "looking up", key, s.fault(err))
	}
	return Info{key, info.Size, info.ETag}, nil
}

// reason is why the store refuses to look an object up, as it says where its byte is asked for: the answer to the first
// request has no body. S3 refuses expired credentials like this.
func (s *S3) reason(ctx context.Context, key string, refused error) error {
	_, err := s.get(ctx, key, Range{N: 1})
	if err == nil {
		return fault.As(fault.Lost, refused) // it takes by now what it has just refused
	}
	return err
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, data []byte) error {
	return wrap(s, "writing", key, s.fault(s.put(ctx, key, data, minio.PutObjectOptions{})))
}

// PutIfAbsent implements Store.
func (s *S3) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	var opts minio.PutObjectOptions
	opts.SetMatchETagExcept("*") // If-None-Match: *
	err := s.put(ctx, key, data, opts)
	switch response := minio.ToErrorResponse(err); {
	case response.StatusCode == http.StatusPreconditionFailed:
		err = fault.As(fault.User, ErrExists)
	case response.StatusCode == http.StatusConflict: // another one is creating it, and may yet fail
		err = fault.Lostf("%w: another create of it is under way", err)
	}
	return wrap(s, "creating", key, s.fault(err))
}

func (s *S3) put(ctx context.Context, key string, data []byte, opts minio.PutObjectOptions) error {
	if err := s.checkCall(ctx, key); err != nil {
		return err
	}
	info, err := s.client.PutObject(ctx, s.bucket, s.prefix+key, bytes.NewReader(data), int64(len(data)), "", "", opts)
	if err == nil && info.ETag == "" {
		return fault.Lostf("the answer names no ETag of what was written, as every store does: something between here and the store may have given it")
	}
	return err
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix, after string) (all []Info, err error) {
	opts := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
	if after != "" {
		opts.StartAfter = s.prefix + after
	}
	if err := s.checkName(prefix); err != nil {
		return nil, wrap(s, "listing", prefix, err)
	}
	for o := range s.client.ListObjectsIter(ctx, s.bucket, opts) {
		if o.Err != nil {
			return nil, wrap(s, "listing", prefix, s.fault(o.Err))
		}
		if key := strings.TrimPrefix(o.Key, s.prefix); key > after && !strings.HasSuffix(key, "/") { // some stores list folders
			all = append(all, Info{key, o.Size, o.ETag})
		}
	}
	if err := ctx.Err(); err != nil { // the client ends a list that is cancelled as if it were whole
		return nil, wrap(s, "listing", prefix, fault.As(fault.Lost, err))
	}
	return all, nil
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, key string) error {
	err := s.checkCall(ctx, key)
	if err == nil {
		err = s.client.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{})
	}
	if err = s.fault(err); errors.Is(err, ErrNotExist) {
		return nil
	}
	return wrap(s, "removing", key, err)
}

// errNoAddress is part of the error of a store whose host has no address and that never answered.
var errNoAddress = errors.New("the host of the object store is not known")

// fault is s3Error of an error of this store. Credentials that are refused are looked for again, as they may have been
// changed where they were found.
func (s *S3) fault(err error) error {
	if err = s3Error(err); errors.Is(err, ErrDenied) {
		s.creds.Expire()
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && !s.answered.Load() {
		return fault.Lostf("%w: %s has no address: check the names of the bucket and of the endpoint (%s): %w", errNoAddress, unknown.Name, s.named, err)
	}
	return err
}

// expired are the codes for credentials that are not good any more, or not yet, with 400 Bad Request.
var expired = []string{"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}

// s3Error gives an error of the client its class, and says what to do.
func s3Error(err error) error {
	if err == nil || fault.ClassOf(err) != fault.Bug {
		return err
	}
	r := minio.ToErrorResponse(err)
	switch {
	case r.Code == "NoSuchBucket":
		return fault.Userf("%w: %w: create the bucket, or name another one", ErrNotExist, err)
	case r.StatusCode == http.StatusNotFound:
		return fault.Userf("%w: %w: check the bucket and the path", ErrNotExist, err)
	case r.StatusCode == http.StatusPreconditionFailed:
		return fault.Userf("%w: %w", ErrChanged, err)
	case r.StatusCode == http.StatusTooManyRequests, r.StatusCode == http.StatusRequestTimeout, r.Code == "RequestTimeout":
		return fault.As(fault.Lost, err)
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized, slices.Contains(expired, r.Code):
		return fault.Userf("%w: %w: give these credentials the right to it, or set others (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials)", ErrDenied, err)
	case 400 <= r.StatusCode && r.StatusCode < 500:
		return fault.Userf("%w: check the bucket, the endpoint and the region (AWS_ENDPOINT_URL_S3 and AWS_REGION, unless the URL of a mirror or of answers says them)", err)
	}
	return fault.As(fault.Lost, err)
}
