package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/client"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// clientsArgs are the arguments of the role clients: some of many clients, all in this process, each of which
// has connections of its own.
type clientsArgs struct {
	Addresses []string
	Served    bool // of a service; else of bare servers
	From, To  int  // numbers of the clients
	TP        int  // TP ranks that fetch
}

// fetcher gets the bytes of a client's next step.
type fetcher func(ctx context.Context) error

// clientsRole says that it is ready, waits for SIGUSR1, has all clients fetch, says that they have, and begins again.
func clientsRole(ctx context.Context, arg string) error {
	var a clientsArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	begin := make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	all, err := a.open(ctx)
	if err != nil {
		return err
	}
	for {
		if err := emit(true); err != nil {
			return err
		}
		select {
		case <-begin:
		case <-ctx.Done():
			return nil
		}
		g, each := errgroup.WithContext(ctx)
		for _, fetch := range all {
			g.Go(func() error { return fetch(each) })
		}
		if err := g.Wait(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := emit(true); err != nil {
			return err
		}
	}
}

// open connects all clients.
func (a *clientsArgs) open(ctx context.Context) ([]fetcher, error) {
	all := make([]fetcher, a.To-a.From)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64) // that join at a time
	for i := range all {
		g.Go(func() (err error) {
			if a.Served {
				all[i], err = servedFetcher(ctx, a.Addresses[0], client.Rank{DP: (a.From + i) / a.TP, TP: (a.From + i) % a.TP})
			} else {
				all[i], err = bareFetcher(ctx, a.Addresses)
			}
			return err
		})
	}
	return all, g.Wait()
}

// servedFetcher asks a service for a step when it is wanted, and no sooner.
func servedFetcher(ctx context.Context, address string, rank client.Rank) (fetcher, error) {
	c, err := client.Open(ctx, address, client.Options{Rank: rank, Prefetch: -1, Way: client.WayStream, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		b, err := c.Next(ctx)
		if err != nil {
			return err
		}
		b.Release()
		return nil
	}, nil
}

// bareFetcher asks each of some servers for its part, all at once. It is connected to them.
func bareFetcher(ctx context.Context, addresses []string) (fetcher, error) {
	var parts []*bareRank
	for _, address := range addresses {
		conn, err := rpc.Dial(address, rpc.Security{})
		if err != nil {
			return nil, err
		}
		parts = append(parts, &bareRank{client: pb.NewConstructorClient(conn)})
		if err := parts[len(parts)-1].get(ctx, 0); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, p := range parts {
			g.Go(func() error { return p.get(ctx, 0) })
		}
		return g.Wait()
	}, nil
}
