// Package millracepb is the wire: what roles, trainers and tools say to each other.
// millrace.proto says what each message means; the rest is generated from it. It owns
// no behaviour but the names that messages to people go by.
package millracepb

import (
	"fmt"

	statepb "github.com/millrace-data/millrace/internal/proto/state"
)

// Mesh is the mesh of trainer ranks; resume tokens have it too.
type Mesh = statepb.Mesh

// Name is how everybody names a rank: as in "rank dp=0 cp=1 pp=0 tp=3".
func (x *Coordinates) Name() string {
	return fmt.Sprintf("rank dp=%d cp=%d pp=%d tp=%d", x.GetDp(), x.GetCp(), x.GetPp(), x.GetTp())
}
