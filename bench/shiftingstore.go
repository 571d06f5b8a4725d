package main

import (
	"encoding/xml"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// objectStore serves the files of a folder as objects of one bucket, as far as reading in S3's protocol goes: looking up,
// ranges, and lists. Each answer waits for as long as that of a store far away.
type objectStore struct {
	root   string
	wait   atomic.Int64 // ns before each answer
	server http.Server
}

// shiftingBucket is the bucket's name.
const shiftingBucket = "shifting"

// serveObjects serves a folder, and has this process and those that it starts find it as the store of s3:// URIs.
func serveObjects(root string) (*objectStore, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &objectStore{root: root}
	s.server.Handler = s
	go s.server.Serve(l) // until Close
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": "http://" + l.Addr().String(), "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
	} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close ends the store.
func (s *objectStore) Close() error { return s.server.Close() }

// ServeHTTP implements http.Handler.
func (s *objectStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Duration(s.wait.Load()))
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case bucket != shiftingBucket || r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only the bucket "+shiftingBucket+" can be read", http.StatusNotFound)
	case key == "":
		s.list(w, r.URL.Query().Get("prefix"))
	default:
		s.object(w, r, key)
	}
}

// object gives an object, or a range of it.
func (s *objectStore) object(w http.ResponseWriter, r *http.Request, key string) {
	f, err := os.Open(filepath.Join(s.root, filepath.FromSlash(key)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", etag(info))
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// etag names a version of a file.
func etag(info fs.FileInfo) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%x-%x", info.Size(), info.ModTime().UnixNano()))
}

// objectList is the answer to ListObjectsV2, in one page.
type objectList struct {
	XMLName     xml.Name `xml:"ListBucketResult"`
	Name        string
	Prefix      string
	KeyCount    int
	MaxKeys     int
	IsTruncated bool
	Contents    []listedObject
}

type listedObject struct {
	Key          string
	LastModified time.Time
	ETag         string
	Size         int64
}

// list lists the objects whose keys begin with a prefix.
func (s *objectStore) list(w http.ResponseWriter, prefix string) {
	found := objectList{Name: shiftingBucket, Prefix: prefix}
	err := filepath.WalkDir(s.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(s.root, path)
		if err != nil || !strings.HasPrefix(filepath.ToSlash(name), prefix) {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			found.Contents = append(found.Contents, listedObject{filepath.ToSlash(name), info.ModTime().UTC(), etag(info), info.Size()})
		}
		return err
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	found.KeyCount, found.MaxKeys = len(found.Contents), len(found.Contents)
	w.Header().Set("Content-Type", "application/xml")
	if err := xml.NewEncoder(w).Encode(found); err != nil {
		return // the caller has left
	}
}
