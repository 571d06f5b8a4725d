package token_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/planner/mesh"
)

// A trainer saves a position, and resumes from it in a service that has seen nothing yet.
func Example() {
	job := token.Job{Name: "demo", Identity: [32]byte{1}, Manifest: [32]byte{2}, Sources: []token.Source{{Name: "web"}, {Name: "code"}}}
	state := plan.Start(2)
	state.Step = 1000
	state.Cursors[0] = plan.Cursor{Seq: 7, Index: 42, Deficit: -120, Tokens: 8_000_000}

	saved := token.Encode(job, mesh.Single(), state, [32]byte{3})
	at, err := token.Decode(job, saved)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(at.State.Step, at.State.Cursors[0], at.State.Same(state))

	job.Manifest[0]++ // its files are others now
	_, err = token.Decode(job, saved)
	fmt.Println(err)
	// Output:
	// 1000 {7 42 -120 8000000 0 0} true
	// the data of job "demo" changed since the resume token was made (manifest 020000000000 then, 030000000000 now): put the files back as they were, or start again without a token
}
