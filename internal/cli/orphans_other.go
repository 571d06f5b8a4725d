//go:build !linux

package cli

import (
	"context"
	"time"
)

const orphansEvery = time.Minute

// reapOrphans is for the first process of a Linux container.
func reapOrphans(context.Context, time.Duration) {}
