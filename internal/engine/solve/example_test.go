package solve_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/engine/solve"
)

// Four tasks that give one partition each and four that take one, on two slots with room
// for one partition.
func Example() {
	p := solve.Problem{
		Operators: []solve.Operator{{Ticks: 1, Gives: 1}, {Ticks: 1}},
		Sources:   4, Slots: []int{2}, Buffer: 1, Pinned: true,
	}
	answer := p.Solve()
	fmt.Println(answer.Ticks, answer.Optimum)
	// Output: 5 true
}
