package larder

import (
	"context"
	"errors"
	"sync"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
	"larder.example/clients/go/shard"
)

// Client is a cache of one or more servers.
type Client struct {
	c       Config
	picker  *shard.Picker
	fleet   *fleet.Fleet
	servers []*fleet.Server
	close   sync.Once
}

// New is a client with defaults; it dials when it is first used. It panics without an address.
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

// Open is a client as configured; it dials each server.
//
// # Errors
//
// What is wrong with the configuration, or that a server cannot be reached.
func Open(ctx context.Context, c Config) (*Client, error) {
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	for _, server := range client.servers {
		if _, err := server.Lane(ctx, 0, client.deadline(ctx)); err != nil {
			_ = client.Close()
			return nil, err
		}
	}
	return client, nil
}

func newClient(c Config) (*Client, error) {
	c, err := c.checked()
	if err != nil {
		return nil, err
	}
	var places []shard.Server
	for _, server := range c.Servers {
		places = append(places, shard.Server{Name: server.Name, Weight: server.Weight})
	}
	picker, err := shard.New(c.Shard, places)
	if err != nil {
		return nil, err
	}
	client := &Client{c: c, picker: picker, fleet: fleet.New(fleet.Options{
		Protocol: c.Protocol, Timeout: c.Timeout, DialTimeout: c.DialTimeout, Stall: c.StallTimeout, Lanes: c.Lanes,
		InFlight: c.InFlight, Verify: c.VerifyReplies, RetryReads: c.RetryReads, Dial: c.Dial,
	})}
	for _, server := range c.Servers {
		client.servers = append(client.servers, client.fleet.Server(server.Name, fleet.Network(server.Address), server.Address))
	}
	return client, nil
}

// Close ends what is under way with ErrClosed; when it returns, no connection and no goroutine is left. Calling it
// again, or beside other calls, does no harm.
func (c *Client) Close() error {
	c.close.Do(func() { c.fleet.Close(c.servers) })
	return nil
}

func (c *Client) deadline(ctx context.Context) time.Duration {
	timeout := c.c.Timeout
	if until, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(until))
	}
	return lane.Now() + timeout
}

func validPrefix(prefix string) bool { return wire.ValidKey(prefix) }

// keyed is the key as servers have it.
func (c *Client) keyed(key string) (string, error) {
	if c.c.KeyPrefix != "" {
		if key == "" {
			return "", ErrBadKey
		}
		key = c.c.KeyPrefix + key
	}
	if !wire.ValidKey(key) {
		return "", ErrBadKey
	}
	return key, nil
}

// ServerOf is the server that has the key.
func (c *Client) ServerOf(key string) Server {
	return c.c.Servers[c.picker.Pick(c.c.KeyPrefix+key)]
}

// do asks for one reply; op is the caller's to free.
func (c *Client) do(ctx context.Context, op *lane.Op, r *wire.Request, large bool) error {
	key, err := c.keyed(r.Key)
	if err != nil {
		return err
	}
	r.Key = key
	server := c.servers[c.picker.Pick(key)]
	at := 0
	if large {
		at = server.Large()
	} else if c.c.Lanes > 1 {
		at = server.Of(key)
	}
	if err := server.Do(ctx, at, op, r, c.deadline(ctx)); err != nil {
		return err
	}
	return answer(r.Verb, op.Head.Status, op.Text, server.Name())
}

// Want is what GetItem tells beside the value.
type Want = wire.Want

const (
	WantFlags      = wire.WantFlags
	WantCAS        = wire.WantCAS
	WantTTL        = wire.WantTTL
	WantSize       = wire.WantSize
	WantLastAccess = wire.WantLastAccess
	WantHitBefore  = wire.WantHitBefore
)

// Meta is what is known about an item: what was asked for.
type Meta struct {
	CAS             uint64
	Flags           uint32
	Size            int
	TTL, LastAccess time.Duration // TTL is Forever for what never expires
	HitBefore       bool
	// Stale: invalidated, and this caller (Won) or another (Pending) is to renew it.
	Stale, Won, Pending bool
}

func meta(h *wire.Head) Meta {
	return Meta{
		CAS: h.CAS, Flags: h.Flags, Size: h.Size, TTL: time.Duration(max(h.TTL, 0)) * time.Second,
		LastAccess: time.Duration(h.LastAccess) * time.Second, HitBefore: h.HitBefore, Stale: h.Stale, Won: h.Won, Pending: h.Pending,
	}
}

// Get appends the value to dst. No allocation if it fits.
//
// # Errors
//
// ErrMiss if there is none.
func (c *Client) Get(ctx context.Context, key string, dst []byte) ([]byte, error) {
	op := lane.NewOp()
	op.Dst = dst
	err := c.do(ctx, op, &wire.Request{Verb: wire.Get, Key: key}, false)
	if err == nil {
		dst = op.Dst
	}
	op.Free()
	return dst, err
}

// GetOptions are how an item is got.
type GetOptions struct {
	Want Want
	// Touch gives the item this time to live; Retime says so if it is to be Forever.
	Touch  time.Duration
	Retime bool
	// NoBump leaves the item's place in the order of eviction as it is. Meta only.
	NoBump bool
	// Large asks on the connection for large values, where small ones do not wait for it.
	Large bool
}

// GetItem is Get with what is known about the item.
func (c *Client) GetItem(ctx context.Context, key string, dst []byte, o GetOptions) ([]byte, Meta, error) {
	r := wire.Request{Verb: wire.Get, Key: key, Want: o.Want, Retime: o.Retime || o.Touch != 0}
	if o.NoBump {
		r.Want |= wire.WantNoBump
	}
	var err error
	if r.Exptime, err = exptime(o.Touch); err != nil {
		return dst, Meta{}, err
	}
	op := lane.NewOp()
	op.Dst = dst
	var m Meta
	if err = c.do(ctx, op, &r, o.Large); err == nil {
		dst, m = op.Dst, meta(&op.Head)
	}
	op.Free()
	return dst, m, err
}

// Mode is which store is meant.
type Mode uint8

const (
	Set Mode = iota
	Add
	Replace
	Append
	Prepend
)

var modes = [...]wire.Verb{Set: wire.Set, Add: wire.Add, Replace: wire.Replace, Append: wire.Append, Prepend: wire.Prepend}

// StoreOptions are how a value is stored.
type StoreOptions struct {
	TTL   time.Duration
	Flags uint32
	// CAS, if not 0, is what the item has to have: else ErrConflict, or ErrMiss.
	CAS  uint64
	Mode Mode
	// WantCAS tells the new one. Meta only.
	WantCAS bool
}

// Set stores a value. No allocation.
func (c *Client) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := c.Store(ctx, key, value, StoreOptions{TTL: ttl})
	return err
}

// Store stores a value as the options say.
func (c *Client) Store(ctx context.Context, key string, value []byte, o StoreOptions) (Meta, error) {
	if int(o.Mode) >= len(modes) {
		return Meta{}, errors.New("larder: no such mode")
	}
	r := wire.Request{Verb: modes[o.Mode], Key: key, Value: value, Flags: o.Flags, CAS: o.CAS}
	if o.WantCAS {
		r.Want = wire.WantCAS
	}
	var err error
	if r.Exptime, err = exptime(o.TTL); err != nil {
		return Meta{}, err
	}
	op := lane.NewOp()
	err = c.do(ctx, op, &r, len(value) >= c.c.LargeBytes)
	m := Meta{CAS: op.Head.CAS}
	op.Free()
	return m, err
}

// Delete deletes; ErrMiss if there was nothing. No allocation.
func (c *Client) Delete(ctx context.Context, key string) error {
	return c.Remove(ctx, key, RemoveOptions{})
}

// RemoveOptions are how an item is deleted.
type RemoveOptions struct {
	// CAS, if not 0, is what the item has to have: else ErrConflict. Meta only.
	CAS uint64
}

// Remove deletes as the options say.
func (c *Client) Remove(ctx context.Context, key string, o RemoveOptions) error {
	op := lane.NewOp()
	err := c.do(ctx, op, &wire.Request{Verb: wire.Delete, Key: key, CAS: o.CAS}, false)
	op.Free()
	return err
}

// Touch gives an item another time to live; ErrMiss if there is none. No allocation.
func (c *Client) Touch(ctx context.Context, key string, ttl time.Duration) error {
	seconds, err := exptime(ttl)
	if err != nil {
		return err
	}
	op := lane.NewOp()
	err = c.do(ctx, op, &wire.Request{Verb: wire.Touch, Key: key, Exptime: seconds}, false)
	op.Free()
	return err
}

// CountOptions are how a counter is changed.
type CountOptions struct {
	// Create makes one that is not there, with Init as its value. Meta only.
	Create bool
	Init   uint64
	// TTL is that of a counter that is made.
	TTL time.Duration
}

// Incr adds to a counter, modulo 2⁶⁴, and returns its new value; ErrMiss if there is none. No allocation.
func (c *Client) Incr(ctx context.Context, key string, delta uint64, o CountOptions) (uint64, error) {
	return c.count(ctx, wire.Incr, key, delta, o)
}

// Decr takes from a counter, down to 0, and returns its new value; ErrMiss if there is none. No allocation.
func (c *Client) Decr(ctx context.Context, key string, delta uint64, o CountOptions) (uint64, error) {
	return c.count(ctx, wire.Decr, key, delta, o)
}

func (c *Client) count(ctx context.Context, verb wire.Verb, key string, delta uint64, o CountOptions) (uint64, error) {
	seconds, err := exptime(o.TTL)
	if err != nil {
		return 0, err
	}
	op := lane.NewOp()
	op.Dst = op.Small()
	err = c.do(ctx, op, &wire.Request{Verb: verb, Key: key, Delta: delta, Create: o.Create, Initial: o.Init, Exptime: seconds}, false)
	number := op.Head.Number
	if err == nil && op.Head.Status == wire.Value {
		if number, err = wire.Counter(op.Dst); err != nil {
			err = ErrProtocol
		}
	}
	op.Free()
	return number, err
}

// FlushAll empties every server.
func (c *Client) FlushAll(ctx context.Context) error {
	for _, server := range c.servers {
		op := lane.NewOp()
		err := server.Do(ctx, 0, op, &wire.Request{Verb: wire.FlushAll}, c.deadline(ctx))
		if err == nil {
			err = answer(wire.FlushAll, op.Head.Status, op.Text, server.Name())
		}
		op.Free()
		if err != nil {
			return err
		}
	}
	return nil
}

// Counters are what the client has done.
type Counters = fleet.Counters

// Counters of each server, by its name.
func (c *Client) Counters() map[string]Counters {
	all := make(map[string]Counters, len(c.servers))
	for _, server := range c.servers {
		all[server.Name()] = server.Counters()
	}
	return all
}
