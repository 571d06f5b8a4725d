package transform_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

func Example() {
	chain, err := transform.Compile(jobspec.Source{
		Name: "wiki",
		Transforms: []jobspec.Transform{
			jobspec.Filter("lang in ['en', 'de']"),
			jobspec.Text("{title}: {text}"),
			&jobspec.Tokenize{Encoding: "bytes"},
			&jobspec.AppendEOD{ID: -1},
		},
	}, 8, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("columns:", chain.Columns())

	text := func(s string) format.Value { return format.Value{Kind: format.String, Bytes: []byte(s)} }
	worker := chain.Worker()
	for row, lang := range []string{"en", "fr"} {
		rec := &format.Record{Row: int64(row), Values: []format.Value{text(lang), text("Mill"), text("race")}}
		outcome, err := worker.Apply(context.Background(), rec, func(s *transform.Sample) error {
			fmt.Println(s.Row, s.Piece, s.Tokens)
			return nil
		})
		fmt.Println(outcome, err)
	}
	// Output:
	// columns: [lang title text]
	// 0 0 [77 105 108 108 58 32 114 97]
	// 0 1 [99 101 256]
	// kept <nil>
	// filtered <nil>
}
