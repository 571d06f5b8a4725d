package mesh

import (
	"fmt"
	"testing"
)

// BenchmarkQueries queries single ranks of meshes of 16, 4096 and 2^24 ranks: the time
// does not depend on the size.
func BenchmarkQueries(b *testing.B) {
	for _, mesh := range []string{"tp2 cp2 dp2 pp2", "tp8 cp2 dp64 pp4", "tp64 cp64 dp64 pp64"} {
		tree := parse(b, mesh)
		buckets, err := tree.Buckets("dp", 1)
		if err == nil {
			buckets, err = buckets.BroadcastAt("tp", "cp")
		}
		if err != nil {
			b.Fatal(err)
		}
		rank := 0
		next := func() int { rank = (rank + 7) % tree.World(); return rank }
		b.Run(fmt.Sprintf("coordinates/ranks=%d", tree.World()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, _ := tree.Coordinates(next())
				if _, err := tree.Rank(c); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("bucket+root/ranks=%d", tree.World()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bucket, _ := buckets.Of(next())
				root, _ := buckets.BroadcastRoot(rank)
				if same, err := buckets.Of(root); err != nil || same != bucket {
					b.Fatal(bucket, same, err)
				}
			}
		})
	}
}

// BenchmarkNew makes and distributes a tree: nothing grows with the mesh.
func BenchmarkNew(b *testing.B) {
	for _, mesh := range []string{"tp2 cp2 dp2 pp2", "tp8 cp2 dp64 pp4"} {
		b.Run(mesh, func(b *testing.B) {
			b.ReportAllocs()
			m := parse(b, mesh).Sizes()
			for b.Loop() {
				tree, err := New(m)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := tree.Buckets("cp", 2); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
