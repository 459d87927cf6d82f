package larder

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
)

// Client is a cache of one or more servers.
type Client struct {
	*core
	// only is the name of the one server that On chose.
	only string
}

// core is the state that a client shares with those that On makes of it.
type core struct {
	c     Config
	fleet *fleet.Fleet
	list  atomic.Pointer[list]
	loads loads
	once  sync.Once

	// life ends with stop; watching waits for the discovery's goroutine.
	life     context.Context
	stop     context.CancelFunc
	watching sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// New makes a client with defaults; it dials when it is first used. It panics without an address.
func New(addresses ...string) *Client {
	var c Config
	for _, address := range addresses {
		c.Servers = append(c.Servers, Server{Address: address})
	}
	client, err := newClient(c)
	if err != nil {
		panic(err)
	}
	return client
}

// Open makes a client as configured, and dials each server.
//
// # Errors
//
// The configuration is invalid, no list of servers was found in time, or a server cannot be reached.
func Open(ctx context.Context, c Config) (*Client, error) {
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	if err := client.ready(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

func (c *Client) ready(ctx context.Context) error {
	deadline := c.deadline(ctx)
	if c.c.Discover != nil {
		first := make(chan struct{}, 1)
		c.watching.Add(1)
		go c.watch(c.life, c.c.Discover, first)
		if c.list.Load() == nil {
			timer := time.NewTimer(deadline - lane.Now())
			defer timer.Stop()
			select {
			case <-first:
			case <-timer.C:
				return &Error{Err: ErrTimeout, Outcome: NotSent, Detail: "no list of servers"}
			case <-ctx.Done():
				return &Error{Err: ErrTimeout, Outcome: NotSent, Detail: "no list of servers", Cause: ctx.Err()}
			}
		}
	}
	for _, server := range c.all() {
		if _, err := server.Lane(ctx, 0, deadline); err != nil {
			return err
		}
	}
	return nil
}

func newClient(c Config) (*Client, error) {
	c, err := c.checked()
	if err != nil {
		return nil, err
	}
	options := fleet.Options{
		Protocol: c.Protocol, Timeout: c.Timeout, DialTimeout: c.DialTimeout, Stall: c.StallTimeout, Lanes: c.Lanes,
		InFlight: c.InFlight, Vector: c.LargeBytes, Verify: c.VerifyReplies, RetryReads: !c.NoRetryReads, Dial: c.Dial, TLS: c.TLS,
		Observe: tell(c.Observer),
	}
	if auth := c.Auth; auth != nil {
		options.Auth = func(ctx context.Context, name, address string) (string, string, error) {
			return auth(ctx, Server{Address: address, Name: name})
		}
	}
	life, stop := context.WithCancel(context.Background())
	client := &Client{core: &core{c: c, fleet: fleet.New(options), life: life, stop: stop}}
	if len(c.Servers) > 0 {
		if err := client.change(c.Servers); err != nil {
			stop()
			return nil, err
		}
	}
	return client, nil
}

// Close ends calls under way with ErrClosed. When it returns, no connection and no goroutine is left. It may be called again, and
// beside other calls.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.core.end()
		c.fleet.Close(c.everyone())
		c.loads.wait()
	})
	return nil
}

func (c *Client) deadline(ctx context.Context) time.Duration {
	timeout := c.c.Timeout
	if until, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(until))
	}
	return lane.Now() + timeout
}
