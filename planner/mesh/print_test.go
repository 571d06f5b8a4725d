package mesh

import (
	"fmt"
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	for _, tc := range []struct {
		mesh, at  string
		group     int
		broadcast string
		want      string
	}{
		{"tp8 cp2 dp64 pp4 vpp2 ep16", "", 0, "", `
4096 ranks: tp8 cp2 dp64 pp4 vpp2 ep16
dp 0
  cp 0
    pp 0
      tp 0      rank 0
      tp 1..7   rank +1 each, as tp 0
    pp 1..3     rank +1024 each, as pp 0
  cp 1          rank +8, as cp 0
dp 1..63        rank +16 each, as dp 0
`},
		{"tp8 cp2 dp64 pp4", "dp", 8, "tp", `
4096 ranks: tp8 cp2 dp64 pp4
distribute at dp: 64 buckets of 64 ranks, in 8 groups of 8 buckets
broadcast at tp: 8 fetchers in each bucket
dp 0            bucket 0
  cp 0
    pp 0
      tp 0      rank 0, fetches
      tp 1..7   rank +1 each, served by tp 0
    pp 1..3     rank +1024 each, as pp 0
  cp 1          rank +8, as cp 0
dp 1..63        rank +16 each, bucket +1 each, as dp 0
`},
		{"tp2 cp4 dp4 pp2", "cp", 0, "pp tp", `
64 ranks: tp2 cp4 dp4 pp2
distribute at cp: 16 buckets of 4 ranks
broadcast at pp, tp: 1 fetcher in each bucket
dp 0
  cp 0       bucket 0
    pp 0
      tp 0   rank 0, fetches
      tp 1   rank +1, served by tp 0
    pp 1     rank +32, served by pp 0
  cp 1..3    rank +2 each, bucket +1 each, as cp 0
dp 1..3      rank +8 each, bucket +4 each, as dp 0
`},
		{"tp2 cp1 dp3 pp1", "world", 2, "", `
6 ranks: tp2 cp1 dp3 pp1
distribute at world: 6 buckets of 1 rank, in 3 groups of 2 buckets
dp 0
  cp 0
    pp 0
      tp 0   rank 0, bucket 0, fetches
      tp 1   rank +1, bucket +1, as tp 0
dp 1..2      rank +2 each, bucket +2 each, as dp 0
`},
		{"tp1 cp1 dp1 pp1", "dp", 0, "cp pp tp", `
1 rank: tp1 cp1 dp1 pp1
distribute at dp: 1 bucket of 1 rank
broadcast at cp, pp, tp: 1 fetcher in each bucket
dp 0         bucket 0
  cp 0
    pp 0
      tp 0   rank 0, fetches
`},
	} {
		tree := parse(t, tc.mesh)
		got := tree.String()
		if tc.at != "" {
			b, err := tree.Buckets(tc.at, tc.group)
			if err != nil {
				t.Fatal(err)
			}
			if b, err = b.BroadcastAt(strings.Fields(tc.broadcast)...); err != nil {
				t.Fatal(err)
			}
			got = b.String()
		}
		if want := strings.TrimPrefix(tc.want, "\n"); got != want {
			t.Errorf("%s at %s prints\n%swant\n%s", tc.mesh, tc.at, got, want)
		}
	}
}

// TestPrintFitsAScreen prints the largest meshes.
func TestPrintFitsAScreen(t *testing.T) {
	for _, mesh := range []string{"tp64 cp64 dp64 pp64", "tp1 cp1 dp1048576 pp16"} {
		b, err := parse(t, mesh).Buckets("cp", 4)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(fmt.Sprint(b), "\n"); lines > 12 {
			t.Errorf("%s prints %d lines:\n%s", mesh, lines, b)
		}
	}
}
