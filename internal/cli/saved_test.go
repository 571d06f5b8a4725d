package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
)

// TestSavedFolders: folders that save_to_disk of Hugging Face datasets wrote are read without the results of .map that lie
// in them, on a disk and in a bucket, and lint says when splits are read together.
func TestSavedFolders(t *testing.T) {
	s, err := object.Open(objecttest.Server(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	arrow, err := os.ReadFile("../sourceloader/format/decoders/testdata/hub.arrow")
	if err != nil {
		t.Fatal(err)
	}
	state := []byte(`{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}`)
	put := func(name string, data []byte) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	put("ds/dataset_dict.json", []byte(`{"splits": ["train", "test"]}`))
	for _, split := range []string{"train", "test"} {
		put("ds/"+split+"/state.json", state)
		put("ds/"+split+"/data-00000-of-00001.arrow", arrow)
		put("ds/"+split+"/cache-0b16ba842337be48.arrow", arrow)
	}
	for name, root := range map[string]string{"disk": dir, "bucket": "s3://bucket"} {
		t.Run(name, func(t *testing.T) {
			for folder, want := range map[string]string{"ds/train": "", "ds": root + "/ds is a DatasetDict, and its splits test, train are read together, name the folder of one, such as files: " + root + "/ds/train"} {
				spec := "name: saved\nseed: 1\nsources:\n  - name: s\n    files: " + root + "/" + folder +
					"\n    transforms: [{text: \"{messages[].content}\"}, {tokenize: bytes}]\nbatch: {sequence_length: 64, sequences: 1}\n"
				if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(spec), 0o600); err != nil {
					t.Fatal(err)
				}
				r := millrace(t, dir, "lint", "job.yaml")
				r.expect(t, 0, want)
				if want == "" && r.stderr != "" {
					t.Errorf("%s: %s", folder, r.stderr)
				}
				r = millrace(t, dir, "plan", "job.yaml", "--steps", "1", "--json")
				r.expect(t, 0)
				files := `"files":` + map[string]string{"ds/train": "1", "ds": "2"}[folder] + ","
				if !strings.Contains(strings.ReplaceAll(r.stdout, " ", ""), files) {
					t.Errorf("%s: %s, want %s", folder, r.stdout, files)
				}
			}
		})
	}
}
