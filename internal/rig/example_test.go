package rig_test

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace-data/millrace/internal/rig"
)

// The jobs of the rig have data of their own; the reference reader says what ranks get.
func ExampleSolve() {
	dir, err := os.MkdirTemp("", "rig-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := rig.Write(dir); err != nil {
		fmt.Println(err)
		return
	}
	a, err := rig.Solve(context.Background(), dir, &rig.Recipes[0], 2)
	fmt.Println(a.Job.Name, a.Steps(), len(a.Samples[0]), err)
	// Output: mix 50 9 <nil>
}
