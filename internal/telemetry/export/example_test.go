package export_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/millrace-data/millrace/internal/telemetry"
	"github.com/millrace-data/millrace/internal/telemetry/export"
)

// A process shows its roles on a page, and says what they wait for.
func ExampleOpen() {
	x, board, err := export.Open(context.Background(), export.Options{Address: "127.0.0.1:0", Role: "loader"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	board.Add(telemetry.Part{Role: "loader", ID: "loader-0", Ready: func() string { return "a planner at 10.0.0.1:7070" }})
	resp, err := http.Get("http://" + x.Addresses()[0].String() + "/readyz")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	fmt.Print(resp.StatusCode, " ", string(text))
	fmt.Println(err)
	// Output:
	// 503 loader loader-0 waits for a planner at 10.0.0.1:7070
	// <nil>
}
