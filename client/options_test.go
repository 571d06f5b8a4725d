package client_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
)

// TestOptions: what can be no option, rank or step is refused here, in the words of the caller and
// before anything is asked.
func TestOptions(t *testing.T) {
	for want, opts := range map[string]client.Options{
		"Options.Prefetch is 5000, valid is 1024 or less":                                                                 {Prefetch: 5000},
		"Options.Token is empty, as a file that was cut: give the token of a whole checkpoint, or nil for the first step": {Token: []byte{}},
		"the rank is dp=-1 cp=0 pp=0 tp=0: places count up from 0":                                                        {Rank: client.Rank{DP: -1}},
		"the rank is dp=0 cp=0 pp=0 tp=4294967296: places count up from 0":                                                {Rank: client.Rank{TP: 1 << 32}},
		"the mesh is dp 2 cp -1 pp 0 tp 0: sizes are 1 or more, and 0 is not checked":                                     {Mesh: client.Mesh{DP: 2, CP: -1}},
		`Options.Way is "pigeon": give "shared", "stream" or "calls", or leave it out`:                                    {Way: "pigeon"},
	} {
		_, err := client.Open(t.Context(), "unix:none", opts)
		if err == nil || fault.ClassOf(err) != fault.User || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	_, err := client.Peek(t.Context(), "unix:none", 0, client.Options{Rank: client.Rank{PP: -3}})
	if want := "the rank is dp=0 cp=0 pp=-3 tp=0: places count up from 0"; err == nil || fault.ClassOf(err) != fault.User || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("a look: got %v, want %s", err, want)
	}
}

// TestNegatives: a client refuses what is negative, and goes on.
func TestNegatives(t *testing.T) {
	p := &aging{}
	p.epoch.Store(1)
	c := p.open(t)
	for want, call := range map[string]func() error{
		"there is no step -1: steps count up from 0": func() error { _, err := c.At(t.Context(), -1); return err },
		"the mesh is dp -2 cp 0 pp 0 tp 0: sizes are 1 or more, and 0 is not checked": func() error {
			return c.Remesh(t.Context(), client.Mesh{DP: -2}, client.Rank{}, 3)
		},
		"the rank is dp=-1 cp=0 pp=0 tp=0: places count up from 0": func() error {
			return c.Remesh(t.Context(), client.Mesh{DP: 2}, client.Rank{DP: -1}, 3)
		},
	} {
		if err := call(); err == nil || fault.ClassOf(err) != fault.User || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, _, err := c.State(context.Background()); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
}
