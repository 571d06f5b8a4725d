package order

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// Files that save_to_disk of Hugging Face datasets writes beside the data.
const (
	savedState = "state.json"        // of a Dataset: it lists the files that are its data
	savedDict  = "dataset_dict.json" // of a DatasetDict, which has a folder for each split
)

// maxState bounds the memory for a state.json; 64 MiB are those of some 800,000 files.
const maxState = 64 << 20

// arrowFormat is the format of what save_to_disk writes.
const arrowFormat = "arrow"

// Doubt is something about the files of a source that may not be meant.
type Doubt struct{ Message, Valid string }

// withoutCaches drops, of the files that a folder or glob names, those that lie beside a state.json and are not in its
// list: steps such as .map and .filter leave their results there, which hold the same records again.
func withoutCaches(ctx context.Context, st store.Store, objects []store.Object) (kept, dropped []store.Object, err error) {
	var states []store.Object
	there, holds := map[string]bool{}, map[string]bool{} // files, and folders with an Arrow file
	for _, o := range objects {
		there[o.URI] = true
		folder, name := split(o.URI)
		if name == savedState {
			states = append(states, o)
		}
		holds[folder] = holds[folder] || formats.Accepts(arrowFormat, o.URI)
	}
	listed := map[string]map[string]bool{} // by folder, the files of its list
	for _, o := range states {
		if folder, _ := split(o.URI); holds[folder] {
			if listed[folder], err = readState(ctx, st, o); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, o := range objects {
		if folder, _ := split(o.URI); len(listed[folder]) > 0 && !listed[folder][o.URI] && formats.Accepts(arrowFormat, o.URI) {
			dropped = append(dropped, o)
			continue
		}
		kept = append(kept, o)
	}
	for _, folder := range slices.Sorted(maps.Keys(listed)) {
		for _, file := range slices.Sorted(maps.Keys(listed[folder])) {
			if !there[file] {
				return nil, nil, fault.Userf("%s%s lists the file %s, which is not among those that are named: copy the whole folder, or name the files that are meant",
					folder, savedState, strings.TrimPrefix(file, folder))
			}
		}
	}
	return kept, dropped, nil
}

// readState returns the files that a state.json lists, none if it is not one of save_to_disk. One that says nothing is an
// error: without it the caches beside it would be read as data.
func readState(ctx context.Context, st store.Store, obj store.Object) (map[string]bool, error) {
	if obj.Size > maxState {
		return nil, unreadable(obj, fmt.Sprintf("has %d bytes, which is more than %d", obj.Size, maxState))
	}
	file, err := input.Open(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, obj.Size)
	if err := input.ReadFullAt(file, data, 0); err != nil {
		return nil, fmt.Errorf("reading %s: %w", obj.URI, err)
	}
	var state map[string]json.RawMessage
	if err := json.Unmarshal(data, &state); err != nil && !json.Valid(data) {
		return nil, unreadable(obj, fmt.Sprintf("is not JSON (%v)", err))
	}
	list, saved := state["_data_files"]
	if !saved {
		return nil, nil // a file of this name that means something else
	}
	var names []struct {
		Name string `json:"filename"`
	}
	if json.Unmarshal(list, &names) != nil || len(names) == 0 {
		return nil, unreadable(obj, "names no files in _data_files")
	}
	folder, _ := split(obj.URI)
	files := map[string]bool{}
	for _, f := range names {
		if f.Name == "" {
			return nil, unreadable(obj, "has an entry without a filename in _data_files")
		}
		files[folder+path.Clean(f.Name)] = true
	}
	return files, nil
}

// unreadable is the error of a state.json that does not say which files are data.
func unreadable(obj store.Object, why string) error {
	folder, _ := split(obj.URI)
	return fault.Userf("%s %s: save_to_disk of Hugging Face datasets lists there which Arrow files of the folder are data, and not results of .map and .filter; "+
		"copy or save the folder again, or name the files that are meant, such as %sdata-*.arrow", obj.URI, why, folder)
}

// split cuts a URI behind its last slash. (Those of package path clean the slashes of s3:// away.)
func split(uri string) (folder, name string) {
	at := strings.LastIndexByte(uri, '/') + 1
	return uri[:at], uri[at:]
}

// cacheName is the name that datasets gives to the results of .map and .filter, with a number for each process.
var cacheName = regexp.MustCompile(`^cache-[0-9a-f]{16}(_\d+_of_\d+)?\.arrow$`)

// doubts are those about files of datasets: all of a source, those that are read, and those that a state.json does not list.
func doubts(src *jobspec.Source, all, read, dropped []store.Object) (found []Doubt) {
	isCache := func(o store.Object) bool { return cacheName.MatchString(path.Base(o.URI)) }
	if other := slices.DeleteFunc(slices.Clone(dropped), isCache); len(other) > 0 {
		found = append(found, Doubt{fmt.Sprintf("%d of the files there are left out, because %s in their folder does not list them, such as %s", len(other), savedState, other[0].URI),
			"name those that are meant, or take them out of the folder"})
	}
	caches := slices.DeleteFunc(slices.Clone(read), func(o store.Object) bool { return !isCache(o) || slices.Contains(src.Files, o.URI) })
	if len(caches) > 0 && len(caches) < len(read) {
		found = append(found, Doubt{fmt.Sprintf("%d of its files have names that Hugging Face datasets gives to the results of .map and .filter, which hold records of the others again, such as %s", len(caches), caches[0].URI),
			"name the others, such as by data-*.arrow, or the whole folder that save_to_disk wrote, of which only the data are read"})
	}
	for _, o := range all {
		if folder, name := split(o.URI); name == savedDict {
			if splits := splitsOf(folder, read); len(splits) > 1 {
				found = append(found, Doubt{fmt.Sprintf("%s is a DatasetDict, and its splits %s are read together", strings.TrimSuffix(folder, "/"), strings.Join(splits, ", ")),
					fmt.Sprintf("name the folder of one, such as files: %s%s, or make each a source", folder, trained(splits))})
			}
		}
	}
	return found
}

// splitsOf returns the folders in a folder that files are read from, sorted.
func splitsOf(folder string, read []store.Object) (splits []string) {
	for _, o := range read {
		if below, inside := strings.CutPrefix(o.URI, folder); inside {
			if name, _, deeper := strings.Cut(below, "/"); deeper {
				splits = append(splits, name)
			}
		}
	}
	slices.Sort(splits)
	return slices.Compact(splits)
}

// trained is the split that is most likely meant.
func trained(splits []string) string {
	if slices.Contains(splits, "train") {
		return "train"
	}
	return splits[0]
}
