package scaling_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/profile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// What loaders say of a source's cost is kept for the next life of the job.
func Example() {
	dir, _ := os.MkdirTemp("", "costs")
	defer os.RemoveAll(dir)
	job := &jobspec.Job{Name: "demo", Sources: []jobspec.Source{{Name: "web"}}}
	costs := scaling.NewCosts(job, dir, slog.New(slog.DiscardHandler))
	end := costs.Keep(context.Background())
	costs.Add([]*pb.SourceCosts{{Source: 0, Records: 100, Samples: 100, Tokens: 50_000, Bytes: 1 << 20, Seconds: 0.5}})
	end()
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	kept, err := profile.Read(dir)
	fmt.Println(len(files), kept.Sources[0].PerToken(), err)
	// Output: 1 1e-05 <nil>
}
