package fleet

import "context"

// Asked is a fleet that starts nothing: how many members there are to be is in the status of the job, and whoever runs
// them looks there.
type Asked struct{}

// Scale implements Fleet.
func (Asked) Scale(context.Context, Role, int) error { return nil }

// Draining implements Fleet.
func (Asked) Draining(Role, []string) {}

// Joined implements Fleet.
func (Asked) Joined(Role, int) {}

// Members implements Fleet: it runs none.
func (Asked) Members(ctx context.Context, changed func([]Member)) {
	changed(nil)
	<-ctx.Done()
}

// Problem implements Fleet.
func (Asked) Problem() string { return "" }
