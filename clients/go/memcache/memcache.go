// Package memcache has what github.com/bradfitz/gomemcache/memcache exports, on the lanes of package larder: change the
// import path, and all callers share one connection to each server.
//
// As there: servers are chosen by CRC-32 modulo their number, expirations are the protocol's raw numbers, and a compare-and-swap
// of a missing key is ErrCacheMiss. Different from there: MaxIdleConns has no effect, the timeout is that of the whole call, an
// error of the server keeps the connection, and an empty key is malformed.
package memcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

var (
	// ErrCacheMiss: there is no such item.
	ErrCacheMiss = errors.New("memcache: cache miss")
	// ErrCASConflict: the item was changed between Get and CompareAndSwap.
	ErrCASConflict = errors.New("memcache: compare-and-swap conflict")
	// ErrNotStored: the condition of Add, Replace, Append or Prepend did not hold.
	ErrNotStored = errors.New("memcache: item not stored")
	// ErrServerError: the server refused the request.
	ErrServerError = errors.New("memcache: server error")
	// ErrNoStats is never returned.
	ErrNoStats = errors.New("memcache: no statistics available")
	// ErrMalformedKey: a key has 1 to 250 bytes, none of them a space or a control character.
	ErrMalformedKey = errors.New("malformed: key is too long or contains invalid characters")
	// ErrNoServers: the selector has no servers.
	ErrNoServers = errors.New("memcache: no servers configured or available")
)

const (
	// DefaultTimeout is the timeout of a call.
	DefaultTimeout = 500 * time.Millisecond
	// DefaultMaxIdleConns has no effect: there is one connection.
	DefaultMaxIdleConns = 2
)

// ConnectTimeoutError: a connection was not made in time.
type ConnectTimeoutError struct {
	Addr net.Addr
}

// Error names the address.
func (e *ConnectTimeoutError) Error() string {
	return "memcache: connect timeout to " + e.Addr.String()
}

// Timeout says that it is a timeout.
func (e *ConnectTimeoutError) Timeout() bool { return true }

// Temporary makes it a net.Error, as the error of a late answer is.
func (e *ConnectTimeoutError) Temporary() bool { return true }

// Item is a value with its attributes.
type Item struct {
	// Key has up to 250 bytes.
	Key   string
	Value []byte
	// Flags are the application's.
	Flags uint32
	// Expiration is the protocol's: seconds up to 30 days, above that a Unix time, 0 never.
	Expiration int32
	// CasID is set by gets, and compared by CompareAndSwap.
	CasID uint64
}

// Client may be used by all goroutines at once. Set its fields before its first use.
type Client struct {
	// DialContext opens connections; TLS, for example.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout of a call. Default: DefaultTimeout.
	Timeout time.Duration
	// MaxIdleConns has no effect.
	MaxIdleConns int

	selector ServerSelector

	mu      sync.RWMutex
	fleet   *fleet.Fleet
	servers map[string]*fleet.Server
}

// New makes a client of these servers; one that is listed twice gets twice as many keys. As there, an address that cannot be
// resolved leaves the client without servers.
func New(server ...string) *Client {
	list := new(ServerList)
	_ = list.SetServers(server...)
	return NewFromSelector(list)
}

// NewFromSelector makes a client whose selector places keys.
func NewFromSelector(selector ServerSelector) *Client {
	return &Client{selector: selector}
}

// Close ends calls under way. The client may be used again.
func (c *Client) Close() error {
	c.mu.Lock()
	ended, servers := c.fleet, c.servers
	c.fleet, c.servers = nil, nil
	c.mu.Unlock()
	if ended != nil {
		all := make([]*fleet.Server, 0, len(servers))
		for _, server := range servers {
			all = append(all, server)
		}
		ended.Close(all)
	}
	return nil
}

func (c *Client) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultTimeout
}

// server is that of an address, made when it is first used.
func (c *Client) server(addr net.Addr) *fleet.Server {
	key := addr.String()
	c.mu.RLock()
	server := c.servers[key]
	c.mu.RUnlock()
	if server != nil {
		return server
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fleet == nil {
		c.fleet = fleet.New(fleet.Options{
			Timeout: c.timeout(), DialTimeout: c.timeout(), Stall: 2 * time.Second, Lanes: 1, InFlight: 4096, Vector: 64 << 10, Dial: c.DialContext,
		})
		c.servers = map[string]*fleet.Server{}
	}
	if server = c.servers[key]; server == nil {
		server = c.fleet.Server(key, addr.Network(), key)
		c.servers[key] = server
	}
	return server
}

// do asks the key's server. The reply is in op.
func (c *Client) do(op *lane.Op, r *wire.Request) error {
	if !wire.ValidKey(r.Key) {
		return ErrMalformedKey
	}
	addr, err := c.selector.PickServer(r.Key)
	if err != nil {
		return err
	}
	return c.ask(addr, op, r)
}

func (c *Client) ask(addr net.Addr, op *lane.Op, r *wire.Request) error {
	at := 0
	server := c.server(addr)
	if len(r.Value) >= 64<<10 {
		at = server.Large()
	}
	err := server.Do(context.Background(), at, op, r, lane.Now()+c.timeout())
	if err != nil {
		return failure(err, addr)
	}
	return answer(&op.Head, op.Text)
}

// networkError is a net.Error, as errors of connections are.
type networkError struct{ error }

func (e networkError) Timeout() bool   { return errors.Is(e.error, fault.Timeout) }
func (e networkError) Temporary() bool { return true }
func (e networkError) Unwrap() error   { return e.error }

func failure(err error, addr net.Addr) error {
	var timeout net.Error
	switch {
	case errors.Is(err, fault.Down) && errors.As(err, &timeout) && timeout.Timeout():
		return &ConnectTimeoutError{addr}
	case errors.Is(err, fault.Timeout), errors.Is(err, fault.Down), errors.Is(err, fault.Lost):
		return networkError{err}
	}
	return err
}

func answer(head *wire.Head, text string) error {
	switch head.Status {
	case wire.Done, wire.Value, wire.Number, wire.Barrier, wire.VersionLine:
		return nil
	case wire.Absent:
		return ErrCacheMiss
	case wire.NotStored:
		return ErrNotStored
	case wire.Exists:
		return ErrCASConflict
	case wire.ClientError:
		return errors.New("memcache: client error: " + text)
	case wire.ServerError, wire.Unknown:
	}
	return fmt.Errorf("%w: %s", ErrServerError, text)
}

// Get returns the key's item, or ErrCacheMiss.
func (c *Client) Get(key string) (*Item, error) {
	return c.get(wire.Request{Verb: wire.Get, Key: key, Want: wire.WantFlags | wire.WantCAS})
}

// GetAndTouch is Get, and gives the item another expiration.
func (c *Client) GetAndTouch(key string, expiration int32) (*Item, error) {
	return c.get(wire.Request{Verb: wire.Get, Key: key, Want: wire.WantFlags | wire.WantCAS, Retime: true, Exptime: int64(expiration)})
}

func (c *Client) get(r wire.Request) (*Item, error) {
	op := lane.NewOp()
	defer op.Free()
	if err := c.do(op, &r); err != nil {
		return nil, err
	}
	value := op.Dst
	if value == nil {
		value = []byte{}
	}
	return &Item{Key: r.Key, Value: value, Flags: op.Head.Flags, CasID: op.Head.CAS}, nil
}

// Touch gives an item another expiration.
func (c *Client) Touch(key string, seconds int32) error {
	op := lane.NewOp()
	defer op.Free()
	return c.do(op, &wire.Request{Verb: wire.Touch, Key: key, Exptime: int64(seconds)})
}

// Set writes the item.
func (c *Client) Set(item *Item) error { return c.store(wire.Set, item, false) }

// Add writes the item if there is none with its key.
func (c *Client) Add(item *Item) error { return c.store(wire.Add, item, false) }

// Replace writes the item if there is one with its key.
func (c *Client) Replace(item *Item) error { return c.store(wire.Replace, item, false) }

// Append puts the value behind the existing one.
func (c *Client) Append(item *Item) error { return c.store(wire.Append, item, false) }

// Prepend puts the value before the existing one.
func (c *Client) Prepend(item *Item) error { return c.store(wire.Prepend, item, false) }

// CompareAndSwap writes the item if it has not changed since it was read.
func (c *Client) CompareAndSwap(item *Item) error { return c.store(wire.Set, item, true) }

func (c *Client) store(verb wire.Verb, item *Item, compare bool) error {
	op := lane.NewOp()
	defer op.Free()
	r := wire.Request{Verb: verb, Key: item.Key, Value: item.Value, Flags: item.Flags, Exptime: int64(item.Expiration)}
	if compare {
		r.CAS, r.Compare = item.CasID, true
	}
	return c.do(op, &r)
}

// Delete deletes the key's item.
func (c *Client) Delete(key string) error {
	op := lane.NewOp()
	defer op.Free()
	return c.do(op, &wire.Request{Verb: wire.Delete, Key: key})
}

// Increment adds to a number, modulo 2⁶⁴.
func (c *Client) Increment(key string, delta uint64) (uint64, error) {
	return c.count(wire.Incr, key, delta)
}

// Decrement takes from a number, down to 0.
func (c *Client) Decrement(key string, delta uint64) (uint64, error) {
	return c.count(wire.Decr, key, delta)
}

func (c *Client) count(verb wire.Verb, key string, delta uint64) (uint64, error) {
	op := lane.NewOp()
	defer op.Free()
	op.Dst = op.Small()
	if err := c.do(op, &wire.Request{Verb: verb, Key: key, Delta: delta}); err != nil {
		return 0, err
	}
	if op.Head.Status == wire.Number {
		return op.Head.Number, nil
	}
	return wire.Counter(op.Dst)
}

// FlushAll deletes everything on all servers.
func (c *Client) FlushAll() error {
	return c.selector.Each(func(addr net.Addr) error { return c.bare(addr, wire.FlushAll) })
}

// DeleteAll deletes everything on the server of the empty key: with one server, everything there is.
func (c *Client) DeleteAll() error {
	addr, err := c.selector.PickServer("")
	if err != nil {
		return err
	}
	return c.bare(addr, wire.FlushAll)
}

// Ping asks every server for its version.
func (c *Client) Ping() error {
	return c.selector.Each(func(addr net.Addr) error { return c.bare(addr, wire.Version) })
}

func (c *Client) bare(addr net.Addr, verb wire.Verb) error {
	op := lane.NewOp()
	defer op.Free()
	return c.ask(addr, op, &wire.Request{Verb: verb})
}
