package imaging

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// qwen is the geometry of Qwen2-VL's published settings for training.
var qwen = Geometry{Patch: 14, Merge: 2, MinPixels: 56 * 56, MaxPixels: 28 * 28 * 1280}

func TestGrid(t *testing.T) {
	for _, c := range []struct {
		g             Geometry
		width, height int
		want          Grid
	}{
		{qwen, 28, 28, Grid{4, 4}},       // enlarged to 56 x 56
		{qwen, 640, 480, Grid{34, 46}},   // 476 x 644: 480/28 is 17.14, 640/28 is 22.86
		{qwen, 42, 70, Grid{4, 4}},       // 1.5 and 2.5 blocks both go to 2, the even one
		{qwen, 98, 98, Grid{8, 8}},       // 3.5 blocks go to 4
		{qwen, 8192, 8192, Grid{70, 70}}, // 35 blocks a side: 35.78 rounded down
		{qwen, 1080, 1536, Grid{84, 60}}, // 42.67 and exactly 30 blocks: a float root gives 29
		{qwen, 200, 1, Grid{2, 14}},      // a strip has one block on its short side
		{qwen, 1, 200, Grid{14, 2}},
		{Geometry{Patch: 16, Merge: 2, MinPixels: 0, MaxPixels: 1024}, 3000, 20, Grid{2, 2}},
		{Geometry{Patch: 14, Merge: 1, MinPixels: 0, MaxPixels: 224 * 224}, 500, 375, Grid{13, 18}},
		{Geometry{Patch: 14, Merge: 2, MinPixels: 10 * 784, MaxPixels: 10 * 784}, 280, 280, Grid{6, 6}}, // no grid is 10 blocks of a square: the bound above wins
	} {
		got, err := c.g.Grid(c.width, c.height)
		if err != nil || got != c.want {
			t.Errorf("%+v: grid of %d x %d is %v, %v; want %v", c.g, c.width, c.height, got, err, c.want)
		}
	}
}

func (g Grid) turned() Grid { return Grid{g.W, g.H} }

// TestGridLaws checks the laws that a plan relies on, for many sizes and geometries.
func TestGridLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		g := Geometry{Patch: []int{8, 14, 16}[r.IntN(3)], Merge: 1 + r.IntN(3)}
		unit := g.Patch * g.Merge
		g.MinPixels = r.IntN(300 * unit * unit)
		g.MaxPixels = max(g.MinPixels, unit*unit) + r.IntN(4000*unit*unit)
		w, h := 1+r.IntN(1<<(2+r.IntN(13))), 1+r.IntN(1<<(2+r.IntN(13)))
		grid, err := g.Grid(w, h)
		if max(w, h) > MaxAspect*min(w, h) {
			if err == nil {
				t.Fatalf("%+v: an aspect of %d x %d is not refused", g, w, h)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		rows, cols := grid.H/g.Merge, grid.W/g.Merge
		if rows < 1 || cols < 1 || grid.H != rows*g.Merge || grid.W != cols*g.Merge || g.Tokens(grid) != rows*cols {
			t.Fatalf("%+v: grid of %d x %d is %v, which is not whole blocks", g, w, h, grid)
		}
		area := rows * cols * unit * unit
		if area > g.MaxPixels {
			t.Fatalf("%+v: grid of %d x %d has %d pixels, above the bound", g, w, h, area)
		}
		if area < g.MinPixels && g.MaxPixels > 8*(g.MinPixels+unit*unit) {
			t.Fatalf("%+v: grid of %d x %d has %d pixels, below the bound", g, w, h, area)
		}
		// The aspect is kept within one block on each side.
		if (rows-1)*w > (cols+1)*h || (cols-1)*h > (rows+1)*w {
			t.Fatalf("%+v: grid of %d x %d is %v: another shape", g, w, h, grid)
		}
		if turned, err := g.Grid(h, w); err != nil || (turned != grid.turned() && rows*cols*unit*unit < g.MaxPixels/2) {
			t.Fatalf("%+v: grid of %d x %d is %v, but of %d x %d %v, %v", g, w, h, grid, h, w, turned, err)
		}
		if area < g.MinPixels || max(rows, cols) > MaxAspect*min(rows, cols) {
			continue
		}
		if again, err := g.Grid(cols*unit, rows*unit); err != nil || again != grid {
			t.Fatalf("%+v: grid of %d x %d is %v, but its own is %v, %v", g, w, h, grid, again, err)
		}
	}
}

func TestGridRefuses(t *testing.T) {
	for _, c := range []struct {
		g             Geometry
		width, height int
		say           string
	}{
		{qwen, 201, 1, "longer than 200 times"},
		{qwen, 10, 2001, "longer than 200 times"},
		{qwen, 0, 10, "sides are 1 to"},
		{qwen, 10, -1, "sides are 1 to"},
		{qwen, MaxPictureSide + 1, MaxPictureSide, "sides are 1 to"},
		{Geometry{}, 10, 10, "patch is 0"},
		{Geometry{Patch: 14}, 10, 10, "merge is 0"},
		{Geometry{Patch: 14, Merge: 2, MaxPixels: 783}, 10, 10, "max_pixels is 783; valid are 784"},
		{Geometry{Patch: 14, Merge: 2, MaxPixels: 1 << 30}, 10, 10, "max_pixels is"},
		{Geometry{Patch: 14, Merge: 2, MinPixels: 900, MaxPixels: 800}, 10, 10, "min_pixels is 900"},
		{Geometry{Patch: 14, Merge: 2, MinPixels: -1, MaxPixels: 800}, 10, 10, "min_pixels is -1"},
	} {
		_, err := c.g.Grid(c.width, c.height)
		refused(t, err, c.say)
	}
}

// refused checks that err is a user error with the given text.
func refused(t *testing.T, err error, say string) {
	t.Helper()
	if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), say) {
		t.Errorf("error %q of class %v; want one of class user with %q", err, fault.ClassOf(err), say)
	}
}
