package sourceloader

import (
	"strings"
	"testing"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// TestLabelsWithoutPaths: metrics of functions name no folder.
func TestLabelsWithoutPaths(t *testing.T) {
	n := 0
	observeEngine("l0", &pb.LoaderUsage{Functions: []*pb.WorkersUsage{{Name: "/home/jane/bin/python with /data/secret", Workers: 2, Busy: 1}}}, func(m telemetry.ID, _ float64, labels ...string) {
		n++
		if len(labels) != len(telemetry.Metrics[m].Labels) || strings.Contains(strings.Join(labels, ""), "/") {
			t.Errorf("%s has labels %v", telemetry.Metrics[m].Name, labels)
		}
	})
	if n != 4 {
		t.Errorf("there are %d values", n)
	}
}
