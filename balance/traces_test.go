package balance_test

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

func name(w workload) string {
	return fmt.Sprintf("%s/C=%d", strings.ReplaceAll(w.name, " ", "-"), w.capacity)
}

// traces returns the length distributions of real corpora and serving logs at
// several capacities, or none where the data set is not there. Longer items are
// split into pieces of the capacity, as the default rule for long samples does.
func traces(t testing.TB) []workload {
	t.Helper()
	if _, ok := testdata.Find(); !ok {
		t.Logf("no real traces: set %s to the shared data set's folder to have them", testdata.Env)
		return nil
	}
	dir := filepath.Join(testdata.Dir(t), "traces")
	var ws []workload
	for _, trace := range []struct {
		name    string
		lengths []int32
		rows    []int32 // capacities
	}{
		{"multipack", readMultipack(t, dir), []int32{2048, 4096, 32768}},
		{"omnibal", readOmnibal(t, dir), []int32{4096, 32768}},
		{"mooncake", readMooncake(t, dir), []int32{8192, 32768, 131072}},
		{"azure", readColumn(t, filepath.Join(dir, "azure", "AzureLLMInferenceTrace_conv.csv"), "ContextTokens"), []int32{4096, 32768}},
		{"vidur", readColumn(t, filepath.Join(dir, "vidur", "arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv"), "num_total_tokens"), []int32{4096, 32768}},
		{"packedbert", readPackedBERT(t, dir), []int32{512, 4096}},
	} {
		for _, capacity := range trace.rows {
			ws = append(ws, workload{name: trace.name, lengths: split(trace.lengths, capacity), capacity: capacity})
		}
	}
	return ws
}

func split(lengths []int32, capacity int32) []int32 {
	var pieces []int32
	for _, n := range lengths {
		for ; n > capacity; n -= capacity {
			pieces = append(pieces, capacity)
		}
		if n > 0 { // a trace may hold empty items
			pieces = append(pieces, n)
		}
	}
	return pieces
}

func readMultipack(t testing.TB, dir string) []int32 {
	var lengths []int32
	readJSON(t, filepath.Join(dir, "multipack", "testdata.json"), &lengths)
	return lengths
}

func readOmnibal(t testing.TB, dir string) []int32 {
	var samples []struct {
		Tokens int32 `json:"token_num"`
	}
	readJSON(t, filepath.Join(dir, "omnibal-vlm", "ai2d_train_12k_wh_token_lengths.json"), &samples)
	lengths := make([]int32, len(samples))
	for i, s := range samples {
		lengths[i] = s.Tokens
	}
	return lengths
}

// readPackedBERT draws 100 k lengths out of the histogram of 16 M by taking
// every 163rd in sorted order.
func readPackedBERT(t testing.TB, dir string) []int32 {
	var file struct {
		Datasets map[string]struct {
			Histogram []int `json:"histogram"`
		} `json:"datasets"`
	}
	readJSON(t, filepath.Join(dir, "packedbert", "length-histograms.json"), &file)
	const every = 163
	var lengths []int32
	seen := 0
	for i, count := range file.Datasets["wikipedia"].Histogram {
		for range (seen+count)/every - seen/every {
			lengths = append(lengths, int32(i+1))
		}
		seen += count
	}
	return lengths
}

func readMooncake(t testing.TB, dir string) []int32 {
	f, err := os.Open(filepath.Join(dir, "mooncake", "conversation_trace.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lengths []int32
	for lines := json.NewDecoder(bufio.NewReader(f)); lines.More(); {
		var request struct {
			Input int32 `json:"input_length"`
		}
		if err := lines.Decode(&request); err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, request.Input)
	}
	return lengths
}

func readColumn(t testing.TB, path, column string) []int32 {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for rows[0][at] != column {
		at++
	}
	var lengths []int32
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[at])
		if err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, int32(n))
	}
	return lengths
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}
