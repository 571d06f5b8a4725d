package inference_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/millrace-data/millrace/internal/inference"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// A model server is asked about a record once, whoever wants to know.
func Example() {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		fmt.Fprintf(w, `{"score": %d}`, 40+2*asked)
	}))
	defer server.Close()
	answers, err := os.MkdirTemp("", "answers")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(answers)
	for range 2 {
		f, err := inference.Open(&jobspec.Call{
			URL: server.URL, Request: `{"prompt": "Rate this: {text}"}`, Give: []jobspec.CallColumn{{Column: "quality", Type: "int", At: "score"}},
			Rows: 1, Parallel: 1, Timeout: 10, Answers: answers,
		}, inference.Pages{Rows: 256}, slog.Default())
		if err != nil {
			fmt.Println(err)
			return
		}
		in, rec := &format.Batch{}, format.Record{Values: []format.Value{{Kind: format.String, Bytes: []byte("a poem")}}}
		in.Add(&rec)
		out, _, err := f.Caller.Call(context.Background(), in)
		if err != nil {
			fmt.Println(err)
			return
		}
		out.Record(0, &rec)
		fmt.Println("quality", rec.Values[0].Int, "asked", asked)
	}
	// Output:
	// quality 42 asked 1
	// quality 42 asked 1
}
