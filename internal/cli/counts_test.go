package cli

import (
	"testing"

	"github.com/millrace-data/millrace/internal/service"
)

// TestSameCounts: flags and options of a service have the same limits.
func TestSameCounts(t *testing.T) {
	if maxLoaders != service.MaxLoaders || maxPrefetch != service.MaxPrefetch {
		t.Errorf("flags take %d loaders and %d steps ahead, a service %d and %d", maxLoaders, maxPrefetch, service.MaxLoaders, service.MaxPrefetch)
	}
}
