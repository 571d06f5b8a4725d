package mesh_test

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/planner/mesh"
)

// Sixteen ranks, with samples distributed over dp and tp 0 broadcasting to tp 1.
func Example() {
	tree, err := mesh.New(mesh.Sizes{DP: 2, CP: 2, PP: 2, TP: 2, VPP: 1, EP: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	buckets, _ := tree.Buckets("dp", 0)
	buckets, _ = buckets.BroadcastAt("tp")
	fmt.Print(buckets)

	at, _ := tree.Coordinates(13)
	bucket, _ := buckets.Of(13)
	root, _ := buckets.BroadcastRoot(13)
	fmt.Printf("rank 13 is %s, consumes bucket %d, served by rank %d\n", at, bucket, root)

	ranks, _ := buckets.Ranks(bucket)
	fetchers, _ := buckets.Fetchers(bucket)
	fmt.Println("bucket 1 is shared by", slices.Collect(ranks), "and fetched by", slices.Collect(fetchers))

	// Half of the machines go away: does the batch still divide?
	smaller, _ := tree.Change(mesh.Sizes{DP: 1})
	microbatches, _ := smaller.Microbatches(24, 2)
	fmt.Println(smaller.Canonical(), "runs 24 rows in", microbatches, "microbatches")
	// Output:
	// 16 ranks: tp2 cp2 dp2 pp2
	// distribute at dp: 2 buckets of 8 ranks
	// broadcast at tp: 4 fetchers in each bucket
	// dp 0         bucket 0
	//   cp 0
	//     pp 0
	//       tp 0   rank 0, fetches
	//       tp 1   rank +1, served by tp 0
	//     pp 1     rank +8, as pp 0
	//   cp 1       rank +2, as cp 0
	// dp 1         rank +4, bucket +1, as dp 0
	// rank 13 is dp=1 cp=0 pp=1 tp=1, consumes bucket 1, served by rank 12
	// bucket 1 is shared by [4 5 6 7 12 13 14 15] and fetched by [4 6 12 14]
	// tp2 cp2 dp1 pp2 runs 24 rows in 12 microbatches
}
