package larder

import (
	"context"
	"errors"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

func validPrefix(prefix string) bool { return wire.ValidKey(prefix) }

// keyed sets the key of a request as servers know it: with the prefix, and encoded if necessary.
func (c *Client) keyed(r *wire.Request) error {
	if r.Key == "" {
		return ErrBadKey
	}
	if c.c.KeyPrefix != "" {
		r.Key = c.c.KeyPrefix + r.Key
	}
	if wire.ValidKey(r.Key) {
		return nil
	}
	if !c.c.BinaryKeys || len(r.Key) > wire.RawBytesMax {
		return ErrBadKey
	}
	r.Base64 = true
	return nil
}

// do makes a request with one reply. The caller frees op.
func (c *Client) do(ctx context.Context, op *lane.Op, r *wire.Request, large bool) error {
	if c.c.Observer != nil {
		return c.observed(ctx, op, r, large)
	}
	_, err := c.ask(ctx, op, r, large)
	return err
}

// movesMax is how often a call follows its key from one server to another.
const movesMax = 8

func (c *Client) ask(ctx context.Context, op *lane.Op, r *wire.Request, large bool) (*fleet.Server, error) {
	if err := c.keyed(r); err != nil {
		return nil, err
	}
	server, limit, err := c.target(r.Key)
	if err != nil {
		return nil, err
	}
	limited(r, limit)
	at := 0
	if large {
		at = server.Large()
	} else if c.c.Lanes > 1 {
		at = server.Of(r.Key)
	}
	dst := op.Dst
	for try := 0; ; try++ {
		err := server.Do(ctx, at, op, r, c.deadline(ctx))
		if err == nil {
			break
		}
		// A server that has left the list meanwhile is not asked again: the key belongs to another server now.
		now, limit, wrong := c.target(r.Key)
		if Applied(err) != NotSent || wrong != nil || now == server || ctx.Err() != nil || try == movesMax {
			return server, err
		}
		limited(r, limit)
		op.Again(dst)
		server = now
	}
	return server, answer(r.Verb, op.Head.Status, op.Text, server.Name())
}

// Want is what GetItem returns besides the value.
type Want = wire.Want

const (
	WantFlags      = wire.WantFlags
	WantCAS        = wire.WantCAS
	WantTTL        = wire.WantTTL
	WantSize       = wire.WantSize
	WantLastAccess = wire.WantLastAccess
	WantHitBefore  = wire.WantHitBefore
)

// Meta is what is known about an item: the fields that were asked for.
type Meta struct {
	CAS             uint64
	Flags           uint32
	Size            int
	TTL, LastAccess time.Duration // TTL is Forever for what never expires
	HitBefore       bool
	// Stale: the item was invalidated, and this caller (Won) or another (Pending) has to renew it.
	Stale, Won, Pending bool

	number uint64
	// knowsTTL: the reply had the TTL.
	knowsTTL bool
}

func meta(h *wire.Head) Meta {
	return Meta{
		CAS: h.CAS, Flags: h.Flags, Size: h.Size, TTL: time.Duration(max(h.TTL, 0)) * time.Second,
		LastAccess: time.Duration(h.LastAccess) * time.Second, HitBefore: h.HitBefore, Stale: h.Stale, Won: h.Won, Pending: h.Pending,
		number: h.Number, knowsTTL: h.TTL != 0,
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

// GetOptions are options of a read.
type GetOptions struct {
	Want Want
	// Touch gives the item this time to live; Retime is needed for Forever.
	Touch  time.Duration
	Retime bool
	// NoBump: the read does not change the item's place in the order of eviction. Meta only.
	NoBump bool
	// Large uses the connection for large values, so that small ones do not wait behind this.
	Large bool
}

// request is the read by these options.
func (o *GetOptions) request(key string) (wire.Request, error) {
	r := wire.Request{Verb: wire.Get, Key: key, Want: o.Want, Retime: o.Retime || o.Touch != 0}
	if o.NoBump {
		r.Want |= wire.WantNoBump
	}
	var err error
	r.Exptime, err = exptime(o.Touch)
	return r, err
}

// GetItem is Get with what is known about the item.
func (c *Client) GetItem(ctx context.Context, key string, dst []byte, o GetOptions) ([]byte, Meta, error) {
	r, err := o.request(key)
	if err != nil {
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

// Mode is the kind of a store.
type Mode uint8

const (
	Set Mode = iota
	Add
	Replace
	Append
	Prepend
)

var modes = [...]wire.Verb{Set: wire.Set, Add: wire.Add, Replace: wire.Replace, Append: wire.Append, Prepend: wire.Prepend}

// StoreOptions are options of a store.
type StoreOptions struct {
	TTL   time.Duration
	Flags uint32
	// CAS, if not 0, is the token that the item must have: else ErrConflict, or ErrMiss.
	CAS  uint64
	Mode Mode
	// StaleIfOlder: if CAS is below the item's token, the value is stored all the same, and marked stale. Meta only.
	StaleIfOlder bool
	// WantCAS asks for the new token. Meta only.
	WantCAS bool
}

// request is the store by these options, without its value.
func (o *StoreOptions) request(key string) (wire.Request, error) {
	if int(o.Mode) >= len(modes) {
		return wire.Request{}, errors.New("larder: no such mode")
	}
	r := wire.Request{Verb: modes[o.Mode], Key: key, Flags: o.Flags, CAS: o.CAS, Stale: o.StaleIfOlder}
	if o.WantCAS {
		r.Want = wire.WantCAS
	}
	var err error
	r.Exptime, err = exptime(o.TTL)
	return r, err
}

// Set stores a value. No allocation.
func (c *Client) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := c.Store(ctx, key, value, StoreOptions{TTL: ttl})
	return err
}

// Store stores a value with options.
func (c *Client) Store(ctx context.Context, key string, value []byte, o StoreOptions) (Meta, error) {
	r, err := o.request(key)
	if err != nil {
		return Meta{}, err
	}
	r.Value = value
	op := lane.NewOp()
	err = c.do(ctx, op, &r, len(value) >= c.c.LargeBytes)
	m := Meta{CAS: op.Head.CAS}
	op.Free()
	return m, err
}

// Delete deletes an item; ErrMiss if there is none. No allocation.
func (c *Client) Delete(ctx context.Context, key string) error {
	return c.Remove(ctx, key, RemoveOptions{})
}

// RemoveOptions are options of a deletion.
type RemoveOptions struct {
	// CAS, if not 0, is the token that the item must have: else ErrConflict. Meta only.
	CAS uint64
	// KeepStale, if not 0, keeps the item for this long, marked stale: see Invalidate. Meta only.
	KeepStale time.Duration
	// Empty removes the value and keeps the item. Meta only.
	Empty bool
}

// request is the deletion by these options.
func (o *RemoveOptions) request(key string) (wire.Request, error) {
	r := wire.Request{Verb: wire.Delete, Key: key, CAS: o.CAS, Empty: o.Empty}
	var err error
	if o.KeepStale != 0 {
		r.Stale, r.Retime = true, true
		r.Exptime, err = exptime(o.KeepStale)
	}
	return r, err
}

// Remove deletes an item with options.
func (c *Client) Remove(ctx context.Context, key string, o RemoveOptions) error {
	r, err := o.request(key)
	if err != nil {
		return err
	}
	op := lane.NewOp()
	err = c.do(ctx, op, &r, false)
	op.Free()
	return err
}

// Invalidate marks an item stale, and keeps it for serveStale. Readers see that it is stale, and one of them has to renew it.
// Earlier leases cannot be filled any more. Meta only.
func (c *Client) Invalidate(ctx context.Context, key string, serveStale time.Duration) error {
	if serveStale <= 0 {
		return ErrBadTTL
	}
	return c.Remove(ctx, key, RemoveOptions{KeepStale: serveStale})
}

// Touch gives an item a new time to live; ErrMiss if there is none. No allocation.
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

// CountOptions are options of a count.
type CountOptions struct {
	// Create makes a counter that does not exist, with the value Init. Meta only.
	Create bool
	Init   uint64
	// TTL is the time to live of a counter that is made.
	TTL time.Duration
	// CAS, if not 0, is the token that the counter must have: else ErrConflict. Meta only.
	CAS uint64
}

// request is the count by these options.
func (o *CountOptions) request(verb wire.Verb, key string, delta uint64) (wire.Request, error) {
	r := wire.Request{Verb: verb, Key: key, Delta: delta, CAS: o.CAS, Create: o.Create, Initial: o.Init}
	var err error
	r.Exptime, err = exptime(o.TTL)
	return r, err
}

// Incr adds to a counter, modulo 2⁶⁴, and returns its new value; ErrMiss if there is none. No allocation.
func (c *Client) Incr(ctx context.Context, key string, delta uint64, o CountOptions) (uint64, error) {
	return c.count(ctx, wire.Incr, key, delta, o)
}

// Decr subtracts from a counter, down to 0, and returns its new value; ErrMiss if there is none. No allocation.
func (c *Client) Decr(ctx context.Context, key string, delta uint64, o CountOptions) (uint64, error) {
	return c.count(ctx, wire.Decr, key, delta, o)
}

func (c *Client) count(ctx context.Context, verb wire.Verb, key string, delta uint64, o CountOptions) (uint64, error) {
	r, err := o.request(verb, key, delta)
	if err != nil {
		return 0, err
	}
	op := lane.NewOp()
	op.Dst = op.Small()
	err = c.do(ctx, op, &r, false)
	number := op.Head.Number
	if err == nil && op.Head.Status == wire.Value {
		if number, err = wire.Counter(op.Dst); err != nil {
			err = ErrProtocol
		}
	}
	op.Free()
	return number, err
}

// FlushAll deletes everything on all servers.
func (c *Client) FlushAll(ctx context.Context) error {
	for _, server := range c.all() {
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
