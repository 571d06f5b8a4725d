package object

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// defaultSilence is well below DefaultRetry, so that a request which was swallowed leaves time for others.
const defaultSilence = 8 * time.Second

// patience is by how much more of it an attempt has that is not the first.
const patience = 3

type patientKey struct{}

// patient is a context of which requests have more time.
func patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

// What the kernel took of a body may be on its way yet: a request has once more that time for each drainBytes of it, up
// to what the kernel holds, so that an upload at 170 kB/s is waited for.
const (
	drainBytes = 2 << 20
	heldBytes  = 4 << 20 // that Linux buffers for a connection by default
)

// watched is a transport that gives up requests which make no progress: nothing of their body is taken, or nothing
// of the answer comes. It notes that somebody answered, too.
type watched struct {
	*http.Transport
	answered *atomic.Bool
	silence  time.Duration // for which nothing may move
}

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	if req.Context().Value(patientKey{}) != nil {
		w.silence *= patience
	}
	p := &progress{ctx: ctx, cancel: cancel, silence: w.silence}
	p.timer = time.AfterFunc(w.silence, func() {
		if ctx.Err() != nil {
			return // the request has ended, and something of its body was taken since
		}
		w.CloseIdleConnections() // they may be dead, too
		cancel(fault.Lostf("nothing has moved for %v or longer: the store, or the network before it, is stuck", w.silence))
	})
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &upload{req.Body, p, 0}
	}
	response, err := w.Transport.RoundTrip(req)
	if err != nil {
		err = p.cause(err)
		p.end()
		return nil, err
	}
	w.answered.Store(true)
	p.moved(0)
	response.Body = answer{response.Body, p}
	return response, nil
}

// progress is that of one request.
type progress struct {
	ctx     context.Context // of the request
	cancel  context.CancelCauseFunc
	silence time.Duration
	timer   *time.Timer // ends it
}

// moved notes that something did, and how many bytes may be on their way. A request that was given up stays so.
func (p *progress) moved(held int64) {
	p.timer.Reset(p.silence + p.silence*time.Duration(min(held, heldBytes))/drainBytes)
}

func (p *progress) end() {
	p.timer.Stop()
	p.cancel(nil)
}

// cause is why a request failed with err.
func (p *progress) cause(err error) error {
	if cause := context.Cause(p.ctx); cause != nil {
		return cause
	}
	return err
}

// upload is the body of a request, each part of which is progress.
type upload struct {
	io.ReadCloser
	*progress
	taken int64 // bytes
}

func (u *upload) Read(data []byte) (int, error) {
	n, err := u.ReadCloser.Read(data)
	u.taken += int64(n)
	u.moved(u.taken)
	return n, err
}

// answer is the body of an answer, each part of which is progress. The request ends with it.
type answer struct {
	io.ReadCloser
	*progress
}

func (a answer) Read(data []byte) (int, error) {
	n, err := a.ReadCloser.Read(data)
	a.moved(0)
	if err != nil && err != io.EOF {
		err = a.cause(err)
	}
	return n, err
}

func (a answer) Close() error {
	err := a.ReadCloser.Close()
	a.end()
	return err
}
