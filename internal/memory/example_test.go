package memory_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/memory"
)

// Example decodes two pictures of 3 and 9 bytes in a Room of 8: the second has to be alone, and says so.
func Example() {
	held := int64(0)
	room := memory.NewRoom(context.Background(), 8, memory.Options{
		Count: func(bytes int64) { held += bytes },
		Alone: func(bytes, most int64) { fmt.Println(bytes, "of", most, "bytes, alone") },
	})
	for _, bytes := range []int64{3, 9} {
		free, err := room.Take(bytes)
		fmt.Println(held, err)
		free()
	}
	fmt.Println(held)
	// Output:
	// 3 <nil>
	// 9 of 8 bytes, alone
	// 9 <nil>
	// 0
}
