package columnar_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

func ExampleUnder() {
	fmt.Println(columnar.Under("messages", true, []string{"role", "content"}))
	fmt.Println(columnar.DecimalText(columnar.BigEndian([]byte{0xfb, 0x1e}), 2))
	// Output:
	// [messages[].role messages[].content]
	// -12.50
}
