package order_test

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// opened counts how often a file of a name is opened, and says that it has a size.
type opened struct {
	store.Memory
	name  string
	size  int64 // 0: its own
	times int
}

func (o *opened) List(ctx context.Context, pattern string) ([]store.Object, error) {
	objects, err := o.Memory.List(ctx, pattern)
	for i := range objects {
		if o.size > 0 && path.Base(objects[i].URI) == o.name {
			objects[i].Size = o.size
		}
	}
	return objects, err
}

func (o *opened) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	if path.Base(obj.URI) == o.name {
		o.times++
	}
	return o.Memory.Open(ctx, obj)
}

const cacheFile = "cache-0b16ba842337be48.arrow"

// TestSaved: of a folder that save_to_disk of Hugging Face datasets wrote, what its state.json lists is read, and not
// the results of .map and .filter that lie beside it.
func TestSaved(t *testing.T) {
	arrow, err := os.ReadFile("../format/decoders/testdata/hub.arrow")
	if err != nil {
		t.Fatal(err)
	}
	const two = `{"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}], "_split": null}`
	for _, c := range []struct {
		name   string
		files  string // what is there below /d, but for state.json
		state  string // "" if there is none
		size   int64  // of state.json, if it is not that of its text
		src    string // patterns
		want   string // files read
		reads  int    // of state.json
		doubts []string
		err    string
	}{
		{name: "no caches", files: "data-0.arrow data-1.arrow dataset_info.json", state: two, src: "/d", want: "data-0.arrow data-1.arrow", reads: 1},
		{name: "caches", files: "data-0.arrow data-1.arrow " + cacheFile, state: two, src: "/d", want: "data-0.arrow data-1.arrow", reads: 1},
		{name: "whole folder by a glob", files: "data-0.arrow data-1.arrow " + cacheFile, state: two, src: "/d/**", want: "data-0.arrow data-1.arrow", reads: 1},
		{name: "a cache that is named", files: "data-0.arrow data-1.arrow " + cacheFile, state: two, src: "/d /d/" + cacheFile, want: cacheFile + " data-0.arrow data-1.arrow", reads: 1},
		{name: "a glob takes what it matches", files: "data-0.arrow data-1.arrow " + cacheFile, state: two, src: "/d/*.arrow", want: cacheFile + " data-0.arrow data-1.arrow",
			doubts: []string{"1 of its files have names that Hugging Face datasets gives", "/d/" + cacheFile, "data-*.arrow"}},
		{name: "no state", files: "data-0.arrow cache-0b16ba842337be48_00001_of_00002.arrow", src: "/d", want: "cache-0b16ba842337be48_00001_of_00002.arrow data-0.arrow",
			doubts: []string{"1 of its files have names", "data-*.arrow"}},
		{name: "nothing but caches", files: cacheFile, src: "/d", want: cacheFile},
		{name: "added", files: "data-0.arrow data-1.arrow more.arrow", state: two, src: "/d", want: "data-0.arrow data-1.arrow", reads: 1,
			doubts: []string{"1 of the files there are left out, because state.json in their folder does not list them, such as /d/more.arrow", "name those that are meant"}},
		{name: "one is missing", files: "data-0.arrow", state: two, src: "/d", reads: 1, err: "/d/state.json lists the file data-1.arrow, which is not among"},
		{name: "another state", files: "data-0.arrow more.arrow", state: `{"step": 3}`, src: "/d", want: "data-0.arrow more.arrow", reads: 1},
		{name: "another state, not an object", files: "data-0.arrow more.arrow", state: `[{"_data_files": []}]`, src: "/d", want: "data-0.arrow more.arrow", reads: 1},
		{name: "an empty list", files: "data-0.arrow " + cacheFile, state: `{"_data_files": []}`, src: "/d", reads: 1, err: "/d/state.json names no files in _data_files: "},
		{name: "no list", files: "data-0.arrow " + cacheFile, state: `{"_data_files": null}`, src: "/d", reads: 1, err: "/d/state.json names no files in _data_files: "},
		{name: "another list", files: "data-0.arrow " + cacheFile, state: `{"_data_files": [{"name": "data-0.arrow"}]}`, src: "/d", reads: 1, err: "/d/state.json has an entry without a filename in _data_files: "},
		{name: "a list of another type", files: "data-0.arrow " + cacheFile, state: `{"_data_files": ["data-0.arrow"]}`, src: "/d", reads: 1, err: "/d/state.json names no files in _data_files: "},
		{name: "no JSON", files: "data-0.arrow " + cacheFile, state: `x`, src: "/d", reads: 1, err: "/d/state.json is not JSON (invalid character"},
		{name: "cut", files: "data-0.arrow " + cacheFile, state: two[:60], src: "/d", reads: 1, err: "such as /d/data-*.arrow"},
		{name: "too large", files: "data-0.arrow " + cacheFile, state: two, size: 64<<20 + 1, src: "/d", err: "/d/state.json has 67108865 bytes, which is more than 67108864: "},
		{name: "cut, and the files are named", files: "data-0.arrow data-1.arrow " + cacheFile, state: two[:60], src: "/d/data-*.arrow", want: "data-0.arrow data-1.arrow"},
		{name: "a folder below", files: "data-0.arrow data-1.arrow e/x.arrow", state: two, src: "/d", want: "data-0.arrow data-1.arrow e/x.arrow", reads: 1},
		{name: "a list of files below", files: "x/0.arrow y.arrow", state: `{"_data_files": [{"filename": "x/0.arrow"}]}`, src: "/d", want: "x/0.arrow", reads: 1,
			doubts: []string{"left out", "/d/y.arrow", "name those"}},
		{name: "splits", files: "dataset_dict.json train/state.json train/0.arrow test/state.json test/0.arrow", src: "/d", want: "test/0.arrow train/0.arrow", reads: 2,
			doubts: []string{"/d is a DatasetDict, and its splits test, train are read together", "name the folder of one, such as files: /d/train, or make each a source"}},
		{name: "a split", files: "dataset_dict.json train/state.json train/0.arrow test/state.json test/0.arrow", src: "/d/train", want: "train/0.arrow", reads: 1},
		{name: "splits by name", files: "dataset_dict.json train/state.json train/0.arrow test/state.json test/0.arrow", src: "/d/train /d/test", want: "test/0.arrow train/0.arrow", reads: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := &opened{name: "state.json", size: c.size}
			for name := range strings.FieldsSeq(c.files) {
				switch path.Ext(name) {
				case ".arrow":
					st.Put("d/"+name, arrow)
				default:
					st.Put("d/"+name, []byte(`{"_data_files": [{"filename": "0.arrow"}]}`))
				}
			}
			if c.state != "" {
				st.Put("d/state.json", []byte(c.state))
			}
			src := &jobspec.Source{Name: "s", Files: strings.Fields(c.src)}
			s, err := order.Index(t.Context(), st, src, 1, []string{"messages"})
			if st.times != c.reads {
				t.Errorf("state.json is opened %d times, want %d", st.times, c.reads)
			}
			if c.err != "" {
				if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range s.Manifest.Files {
				got = append(got, strings.TrimPrefix(f.URI, "/d/"))
			}
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("%q is read, want %q", got, want)
			}
			checkDoubts(t, s.Doubts, c.doubts)
		})
	}
}

// checkDoubts wants one doubt with all of words, or none if there are no words.
func checkDoubts(t *testing.T, doubts []order.Doubt, words []string) {
	t.Helper()
	if len(doubts) != min(len(words), 1) {
		t.Fatalf("doubts %q, want %q", doubts, words)
	}
	for _, word := range words {
		if text := doubts[0].Message + ", " + doubts[0].Valid; !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}
