package pool_test

import (
	"fmt"
	"log/slog"

	"github.com/millrace-data/millrace/internal/pool"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

// Pools need not be there: they are looked for as long as the client is open, and their workers are lent to
// environments as they come.
func Example() {
	client, err := pool.NewClient([]string{"127.0.0.1:1"}, rpc.Security{}, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	usage := client.Usage(&worker.Environment{})[0]
	fmt.Println(usage.Name, usage.Connected, usage.Workers)
	// Output: 127.0.0.1:1 false 0
}
