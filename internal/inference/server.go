package inference

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/time/rate"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/jobspec"
)

// server sends requests to a model server. It is safe for concurrent use.
type server struct {
	url      string
	name     string   // the URL without what may be secret
	secrets  []string // what hide takes out: parts of the URL's query
	tokenEnv string   // environment variable of a bearer token; "" sends none
	client   *http.Client
	limit    *rate.Limiter // nil: none
	slots    chan struct{} // one for each request under way
	log      *slog.Logger
	unheard  time.Duration // how long a server that never answered is asked again; 0: patience
	needed   bool          // a server that never answered in that time is an error of the user's
	answered atomic.Bool   // the server did, whatever it said
	mu       sync.Mutex    // guards the fields below
	told     time.Time     // when the log heard last that the server does not answer
	since    time.Time     // when it first did not, since it last did; zero: it answers
	why      error         // it did not the last time
}

const (
	// mostAnswer is the bytes of an answer at most.
	mostAnswer = 64 << 20
	// mostRedirects is how many of them one request follows.
	mostRedirects = 5
	// patience is how long a server that is busy or away is asked again, before the work is given back, or a run is over:
	// it is longer than most take to load a model.
	patience = 2 * time.Minute
	// unheardTime is patience of a command with a server that nothing was ever heard of: its name may be wrong.
	unheardTime = 3 * time.Second
	// The pauses between attempts, unless the server says how long: the first, and the longest. Each is moved by up to
	// a fifth, so that loaders that a server turned away together do not return together.
	firstPause   = 200 * time.Millisecond
	longestPause = 10 * time.Second
	// tellEvery is how often the log hears of a server that does not answer.
	tellEvery = 30 * time.Second
)

func newServer(step *jobspec.Call, log *slog.Logger) (*server, error) {
	u, err := url.Parse(step.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, fault.Userf("url: valid is http://HOST:PORT/PATH or https://...; credentials come from the environment, by token_env")
	}
	s := &server{
		url: step.URL, name: plain(u), secrets: inQuery(u.RawQuery), tokenEnv: step.TokenEnv, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		client: &http.Client{
			Timeout:       time.Duration(step.Timeout) * time.Second,
			CheckRedirect: redirected,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: step.Parallel, ForceAttemptHTTP2: true},
		},
		slots: make(chan struct{}, step.Parallel),
	}
	if step.Rate > 0 {
		s.limit = rate.NewLimiter(rate.Limit(step.Rate), 1)
	}
	return s, nil
}

// refusal is that the server takes a request for no request: another of the same would be refused, too.
type refusal struct{ said string }

func (r *refusal) Error() string { return r.said }

// post sends a request until it is answered. Its error is a *refusal if what was sent is to blame, of class
// fault.User if nothing that is sent would be taken, and of class fault.Lost if the server was busy or away
// for all of patience, or of unheard.
func (s *server) post(ctx context.Context, body []byte) ([]byte, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	begin := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if s.limit != nil {
			if err := s.limit.Wait(ctx); err != nil {
				return nil, fault.As(fault.Lost, err)
			}
		}
		answer, after, err := s.once(ctx, body)
		switch {
		case err == nil || fault.ClassOf(err) != fault.Lost:
			s.served()
			return answer, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		s.tell(err)
		if time.Since(begin) > s.patience() {
			return nil, s.missed(err)
		}
		select {
		case <-time.After(cmp.Or(after, pause*time.Duration(80+rand.IntN(41))/100)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// patience is how long a request is sent again.
func (s *server) patience() time.Duration {
	if s.unheard > 0 && !s.answered.Load() {
		return s.unheard
	}
	return patience
}

// missed is the error of a server that was asked for all of patience.
func (s *server) missed(err error) error {
	if s.needed && !s.answered.Load() {
		return fault.Userf("%w; the model server has not answered once in %.0f s: start it, or write its address as url", err, s.patience().Seconds())
	}
	return err
}

// served notes that the server answers.
func (s *server) served() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.why = time.Time{}, nil
}

// awaits says with what the last attempt ended, and how long none has gone better; "" while the server answers.
func (s *server) awaits() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return ""
	}
	return fmt.Sprintf("%v, for %.0f s", s.why, time.Since(s.since).Seconds())
}

// tell notes that the server does not answer, and has the log say so now and then.
func (s *server) tell(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why = err; s.since.IsZero() {
		s.since = time.Now()
	}
	if time.Since(s.told) > tellEvery {
		s.told = time.Now()
		s.log.Warn("waiting for the model server: is it running there?", "url", s.name, "err", err)
	}
}

// once sends a request. after is how long the server asks to wait, if it does.
func (s *server) once(ctx context.Context, body []byte) (answer []byte, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, 0, fault.Userf("url: %s: valid is http://HOST:PORT/PATH", s.name)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.tokenEnv != "" {
		token, err := s.token()
		if err != nil {
			return nil, 0, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, 0, s.unanswered(err)
	}
	s.answered.Store(true)
	defer resp.Body.Close() // read as far as it is used
	answer, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	if err != nil {
		return nil, 0, fault.Lostf("reading the answer of %s: %w", s.name, err)
	}
	if err := s.status(resp, answer); err != nil {
		return nil, retryAfter(resp), err
	}
	if len(answer) > mostAnswer {
		return nil, 0, &refusal{fmt.Sprintf("the answer has more than %d MiB", mostAnswer>>20)}
	}
	if unmarked(resp) && cut(answer) {
		return nil, 0, fault.Lostf("the answer of %s is cut off after %d bytes, without a word of its length: the server, or a proxy before it, may have ended meanwhile", s.name, len(answer))
	}
	return answer, 0, nil
}

// token is the bearer token.
func (s *server) token() (string, error) {
	token := os.Getenv(s.tokenEnv)
	if token == "" {
		return "", fault.Userf("token_env: the environment variable %s is not set on this machine, and %s is to get it", s.tokenEnv, s.name)
	}
	if strings.ContainsFunc(token, unicode.IsControl) {
		return "", fault.Userf("token_env: the environment variable %s has a line break or another control character, which no token has: write the token alone into it", s.tokenEnv)
	}
	return token, nil
}

// unanswered is the error of a request without an answer: of class fault.User if the next one would get none either.
func (s *server) unanswered(err error) error {
	if from, ok := errors.AsType[*url.Error](err); ok {
		err = from.Err // without the URL, whose query may be secret
	}
	said := fmt.Sprintf("asking %s: %s", s.name, s.hide(err.Error()))
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fault.Userf("%s; have this machine trust the server's certificate (the environment variable SSL_CERT_FILE names a file with authorities), or name the server in url as its certificate does", said)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return fault.Userf("%s; without TLS its url begins with http://", said)
	}
	return fault.Lostf("%s", said)
}

// retryAfter is how long a server asks to wait, within bounds.
func retryAfter(resp *http.Response) (after time.Duration) {
	header := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		after = time.Until(at)
	}
	return min(max(after, 0), patience/2)
}

// status is the error that a status code is.
func (s *server) status(resp *http.Response, answer []byte) error {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	said := fmt.Sprintf("%s answers %d %s: %q", s.name, code, http.StatusText(code), beginning(s.hide(string(answer))))
	to, err := resp.Location()
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
		return fault.Lostf("%s", said)
	case code == http.StatusBadRequest, code == http.StatusUnprocessableEntity, code == http.StatusRequestEntityTooLarge:
		return &refusal{said}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fault.Userf("%s; token_env names the environment variable with a token that it takes", said)
	case code >= 300 && code < 400 && err == nil && circle(resp, to):
		return fault.Userf("%s; it sends requests on in a circle, to %s again: mend the redirect there, or write the address that answers as url", said, s.hide(plain(to)))
	case (code == http.StatusTemporaryRedirect || code == http.StatusPermanentRedirect) && err == nil:
		return fault.Userf("%s; it sends requests on to %s, and %d redirects were followed, which is the most: write the address that answers as url", said, s.hide(plain(to)), mostRedirects)
	case code >= 300 && code < 400 && err == nil:
		return fault.Userf("%s; it sends requests on to %s, which would get nothing of what they say: write the address that answers as url", said, s.hide(plain(to)))
	}
	return fault.Userf("%s; url has to be the address that requests are posted to, such as http://HOST:8000/v1/completions", said)
}

// plain is a URL without what may be secret.
func plain(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// redirected has only redirects followed that send the same request on (307 and 308): the others would send one without a body.
func redirected(req *http.Request, via []*http.Request) error {
	if req.Method != http.MethodPost || len(via) > mostRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// circle reports whether an answer sends a request on to where it was already.
func circle(resp *http.Response, to *url.URL) bool {
	for ; resp != nil; resp = resp.Request.Response {
		if resp.Request.URL.String() == to.String() {
			return true
		}
	}
	return false
}

// unmarked reports whether the connection's end was the only mark of an answer's end, be it that of the server.
func unmarked(resp *http.Response) bool {
	return resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !resp.Uncompressed && resp.ProtoMajor == 1
}
