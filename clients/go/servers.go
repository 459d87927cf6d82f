package larder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
	"larder.example/clients/go/shard"
)

// Failure is what happens to the keys of a server that is down: [FailFast], [Rehash] or [Gutter].
type Failure interface{ failure() }

// FailFast: calls fail at once. When the server comes back, it holds nothing that is out of date.
type FailFast struct{}

// Rehash: the other servers take its keys. What is stored there meanwhile lives no longer than TTL. Default: 10 s.
type Rehash struct{ TTL time.Duration }

// Gutter: servers that are used for nothing else take its keys. What is stored there lives no longer than TTL. Default: 10 s.
type Gutter struct {
	Servers []Server
	TTL     time.Duration
}

func (FailFast) failure() {}
func (Rehash) failure()   {}
func (Gutter) failure()   {}

// failureTTL is the longest time to live of what is stored in another server's place.
const failureTTL = 10 * time.Second

// list is a list of servers. It never changes.
type list struct {
	config  []Server
	servers []*fleet.Server
	picker  *shard.Picker
	// gutter are the servers for keys of those that are down.
	gutter []*fleet.Server
	trough *shard.Picker
}

// named fills in what placement hashes of each server.
func named(servers []Server) ([]Server, error) {
	all := make([]Server, len(servers))
	for i, server := range servers {
		if server.Address == "" {
			return nil, fmt.Errorf("larder: server %d has no address", i)
		}
		if server.Name == "" {
			server.Name = server.Address
		}
		all[i] = server
	}
	return all, nil
}

func picker(preset shard.Preset, servers []Server) (*shard.Picker, error) {
	places := make([]shard.Server, len(servers))
	for i, server := range servers {
		places[i] = shard.Server{Name: server.Name, Weight: server.Weight}
	}
	return shard.New(preset, places)
}

// change replaces the list of servers. Servers that stay keep their connections. Requests under way at servers that go are still
// answered.
func (c *core) change(servers []Server) error {
	servers, err := named(servers)
	if err != nil {
		return err
	}
	next := &list{config: servers}
	if next.picker, err = picker(c.c.Shard, servers); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	before := c.list.Load()
	if before != nil {
		next.gutter, next.trough = before.gutter, before.trough
	} else if gutter, is := c.c.Failure.(Gutter); is {
		others, err := named(gutter.Servers)
		if err != nil {
			return err
		}
		if next.trough, err = picker(c.c.Shard, others); err != nil {
			return err
		}
		for _, server := range others {
			next.gutter = append(next.gutter, c.fleet.Server(server.Name, fleet.Network(server.Address), server.Address))
		}
	}
	stay := map[*fleet.Server]bool{}
	for _, server := range servers {
		var same *fleet.Server
		if before != nil {
			at := slices.IndexFunc(before.config, func(old Server) bool {
				return old.Address == server.Address && old.Name == server.Name
			})
			if at >= 0 {
				same = before.servers[at]
			}
		}
		if same == nil || stay[same] {
			same = c.fleet.Server(server.Name, fleet.Network(server.Address), server.Address)
		}
		stay[same] = true
		next.servers = append(next.servers, same)
	}
	c.list.Store(next)
	if before != nil {
		for _, server := range before.servers {
			if !stay[server] {
				server.Retire(c.c.Timeout)
			}
		}
	}
	return nil
}

// target is the server to ask for a key, and the longest time to live of what is stored there; 0: no limit.
func (c *Client) target(key string) (*fleet.Server, time.Duration, error) {
	l := c.list.Load()
	if l == nil {
		return nil, 0, ErrServerDown
	}
	if c.only != "" {
		for i := range l.config {
			if l.config[i].Name == c.only {
				return l.servers[i], 0, nil
			}
		}
		return nil, 0, &Error{Err: ErrServerDown, Outcome: NotSent, Server: c.only, Detail: "not one of the servers"}
	}
	server := l.servers[l.picker.Pick(key)]
	if c.c.Failure == nil || !server.Down() {
		return server, 0, nil
	}
	return c.elsewhere(l, key, server)
}

// elsewhere is the target for a key whose own server is down.
func (c *Client) elsewhere(l *list, key string, server *fleet.Server) (*fleet.Server, time.Duration, error) {
	limit := func(ttl time.Duration) time.Duration {
		if ttl <= 0 {
			return failureTTL
		}
		return ttl
	}
	switch f := c.c.Failure.(type) {
	case Gutter:
		return l.gutter[l.trough.Pick(key)], limit(f.TTL), nil
	case Rehash:
		// All clients that know the same servers to be down choose the same server.
		for try := range 2 * len(l.servers) {
			if other := l.servers[l.picker.Pick(strconv.Itoa(try)+key)]; !other.Down() {
				return other, limit(f.TTL), nil
			}
		}
		for _, other := range l.servers {
			if !other.Down() {
				return other, limit(f.TTL), nil
			}
		}
	}
	return server, 0, nil
}

// limited limits the time to live of what a request stores.
func limited(r *wire.Request, limit time.Duration) {
	if limit <= 0 {
		return
	}
	seconds := max(int64(limit/time.Second), 1)
	if stores := r.Verb.Stores() || r.Verb == wire.Touch || r.Retime || r.Create; stores && (r.Exptime == 0 || r.Exptime > seconds) {
		r.Exptime = seconds
	}
	if r.Lease && r.Vivify > seconds {
		r.Vivify = seconds
	}
}

// ServerOf is the key's server; the zero Server if the list is not known yet.
func (c *Client) ServerOf(key string) Server {
	l := c.list.Load()
	if l == nil {
		return Server{}
	}
	if c.only != "" {
		for _, server := range l.config {
			if server.Name == c.only {
				return server
			}
		}
		return Server{Name: c.only}
	}
	return l.config[l.picker.Pick(c.c.KeyPrefix+key)]
}

// Servers is the present list.
func (c *Client) Servers() []Server {
	if l := c.list.Load(); l != nil {
		return slices.Clone(l.config)
	}
	return nil
}

// On returns the same client, with this server for every key. The server is given by its name, or by its address if it has no
// other name.
func (c *Client) On(server string) *Client {
	return &Client{core: c.core, only: server}
}

// all are the servers for a question to every server.
func (c *Client) all() []*fleet.Server {
	l := c.list.Load()
	if l == nil {
		return nil
	}
	if c.only == "" {
		return l.servers
	}
	for i := range l.config {
		if l.config[i].Name == c.only {
			return l.servers[i : i+1]
		}
	}
	return nil
}

// Drain takes no more requests, waits for those under way, and closes the client.
//
// # Errors
//
// ErrTimeout if some were still under way when the context ended: they end with ErrClosed.
func (c *Client) Drain(ctx context.Context) error {
	deadline := lane.Now() + time.Hour
	if until, ok := ctx.Deadline(); ok {
		deadline = lane.Now() + time.Until(until)
	}
	c.core.end()
	idle := true
	for _, server := range c.everyone() {
		idle = server.Drain(ctx, deadline) && idle
	}
	_ = c.Close()
	if !idle {
		return &Error{Err: ErrTimeout, Outcome: Unknown, Cause: ctx.Err()}
	}
	return nil
}

// end stops what changes the list.
func (c *core) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.watching.Wait()
}

// everyone is all servers, the gutter's included.
func (c *core) everyone() []*fleet.Server {
	l := c.list.Load()
	if l == nil {
		return nil
	}
	return append(slices.Clone(l.servers), l.gutter...)
}

// watch has the discovery change the list until the client is closed.
func (c *core) watch(ctx context.Context, discovery Discovery, first chan<- struct{}) {
	defer c.watching.Done()
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := discovery.Watch(ctx, func(servers []Server) error {
			if err := c.change(servers); err != nil {
				return err
			}
			select {
			case first <- struct{}{}:
			default:
			}
			return nil
		})
		if ctx.Err() != nil || (err == nil && c.list.Load() != nil) {
			return
		}
		if o := c.c.Observer; o != nil {
			o.Conn(ConnEvent{Kind: DiscoveryFailed, Err: err})
		}
		if !rest(ctx, pause) {
			return
		}
	}
}

// rest pauses; false if the context ended.
func rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errNoServers = errors.New("larder: no servers")
