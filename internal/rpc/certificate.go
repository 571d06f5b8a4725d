package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/regular"
)

// identity is what the TLS files of a process hold. They are read again when they have changed, so that a certificate that is
// renewed on disk counts for all connections from then on. It is safe for concurrent use.
type identity struct {
	files [3]string   // certificate, key, authority
	met   atomic.Bool // another side has accepted it, and the other way round: what fails from now on may pass

	mu      sync.Mutex // guards the fields below
	seen    [3]os.FileInfo
	config  *tls.Config
	signed  bool      // its certificate is signed by the authority that it asks of others
	ends    time.Time // of its certificate, or that of an authority above it, the first
	margin  time.Duration
	warned  int    // how much was said about its end: 1: it is near, 2: it has come
	problem string // of files that changed, which was logged last: its Kind
}

// identities are those of this process: by their files.
var identities = struct {
	sync.Mutex
	all map[[3]string]*identity
}{all: map[[3]string]*identity{}}

// certificateLog is where what is said of certificates goes; nil: to slog.Default.
var certificateLog atomic.Pointer[slog.Logger]

// LogCertificates says where a process logs what becomes of its certificates.
func LogCertificates(log *slog.Logger) { certificateLog.Store(log) }

// CertificateEnds is when the first of the certificates of this process ends, and whether one ends soon, or has ended; zero if it
// uses none.
func CertificateEnds() (first time.Time, soon bool) {
	identities.Lock()
	defer identities.Unlock()
	for _, i := range identities.all {
		i.mu.Lock()
		if first.IsZero() || i.ends.Before(first) {
			first = i.ends
		}
		soon = soon || time.Until(i.ends) < i.margin
		i.mu.Unlock()
	}
	return first, soon
}

// identity is that of s, the same for all who have the same files. At first its files have to be in order.
func (s Security) identity() (*identity, error) {
	identities.Lock()
	defer identities.Unlock()
	files := [3]string{s.CertFile, s.KeyFile, s.CAFile}
	if i := identities.all[files]; i != nil {
		return i, nil
	}
	i := &identity{files: files}
	if err := i.read(); err != nil {
		return nil, err
	}
	i.warn(time.Now())
	identities.all[files] = i
	return i, nil
}

// current is the configuration of a connection that begins now.
func (i *identity) current() *tls.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.changed() {
		err := i.read()
		switch {
		case err == nil:
			i.problem = ""
			certLog().Info("the TLS certificate was read again", "file", i.files[0], "ends", i.ends)
		case Kind(err.Error()) != i.problem: // they may be half written: the next connection looks again
			i.problem = Kind(err.Error())
			certLog().Warn("the TLS files have changed and are not used: what they held before is", "err", err)
		}
	}
	i.warn(time.Now())
	return i.config
}

// changed says whether a file is another one than was read.
func (i *identity) changed() bool {
	for k, file := range i.files {
		if info, err := os.Stat(file); err != nil || !os.SameFile(info, i.seen[k]) || info.Size() != i.seen[k].Size() || !info.ModTime().Equal(i.seen[k].ModTime()) {
			return true
		}
	}
	return false
}

// read reads the files, and takes what they hold if that fits together and is valid now.
func (i *identity) read() error {
	var seen [3]os.FileInfo
	for k, file := range i.files {
		info, err := os.Stat(file) // before it is read: what is written meanwhile is a change
		if err != nil {
			return fault.Userf("reading the TLS files: %w", err)
		}
		if err := regular.Check(file, info.Mode()); err != nil {
			return fault.Userf("reading the TLS files: %w", err)
		}
		seen[k] = info
	}
	cert, err := tls.LoadX509KeyPair(i.files[0], i.files[1])
	if err != nil {
		return fault.Userf("reading the TLS certificate %s and key %s: %w", i.files[0], i.files[1], err)
	}
	pem, err := os.ReadFile(i.files[2])
	if err != nil {
		return fault.Userf("reading the TLS authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fault.Userf("%s holds no PEM certificate", i.files[2])
	}
	ends, signed, err := i.check(&cert, pool)
	if err != nil {
		return err
	}
	i.seen, i.signed, i.ends, i.margin, i.warned = seen, signed, ends, marginOf(cert.Leaf), 0
	i.config = &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		RootCAs:      pool,
		MinVersion:   tls.VersionTLS13,
	}
	return nil
}

// check refuses a certificate that nobody would accept, and returns until when others do, and whether the authority has signed it:
// that of others may be another one. Where it had signed the one before, files that do not say so are not all renewed yet.
func (i *identity) check(cert *tls.Certificate, authorities *x509.CertPool) (ends time.Time, signed bool, err error) {
	now, leaf := time.Now(), cert.Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return ends, false, fault.Userf("the TLS certificate %s is valid from %s to %s, and now it is %s: renew it, or set the clock",
			i.files[0], inUTC(leaf.NotBefore), inUTC(leaf.NotAfter), inUTC(now))
	}
	between := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil && i.signed {
		return ends, false, fault.Userf("the TLS certificate %s (%s) is not signed by the authority in %s, as the one before was: %w", i.files[0], leaf.Subject, i.files[2], err)
	}
	if err != nil {
		return leaf.NotAfter, false, nil
	}
	for _, chain := range chains {
		first := leaf.NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(ends) {
			ends = first
		}
	}
	return ends, true, nil
}

// longestMargin is how long before the end of a certificate that is said at the most. It is a sixth of the life of
// short-lived ones: who renews them does that after two thirds of it.
const longestMargin = 7 * 24 * time.Hour

func marginOf(cert *x509.Certificate) time.Duration {
	return min(cert.NotAfter.Sub(cert.NotBefore)/6, longestMargin)
}

// warn says that the end of the certificate is near, and that it has come, once each.
func (i *identity) warn(now time.Time) {
	switch left := i.ends.Sub(now); {
	case left <= 0 && i.warned < 2:
		i.warned = 2
		certLog().Error("the TLS certificate, or that of its authority, has ended: nobody takes new connections of this process; renewed files are read by themselves", "file", i.files[0], "ended", inUTC(i.ends))
	case left > 0 && left < i.margin && i.warned < 1:
		i.warned = 1
		certLog().Warn("the TLS certificate, or that of its authority, ends soon: renewed files are read by themselves", "file", i.files[0], "ends", inUTC(i.ends), "left", left.Round(time.Second).String())
	}
}

// watchEvery is how often a server looks at its files when nobody connects.
const watchEvery = time.Minute

// watch looks at the files until done is closed.
func (i *identity) watch(done <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			i.current()
		case <-done:
			return
		}
	}
}

func inUTC(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func certLog() *slog.Logger {
	if log := certificateLog.Load(); log != nil {
		return log
	}
	return slog.Default()
}
