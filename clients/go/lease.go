package larder

import (
	"context"
	"errors"
	"time"

	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// LeaseOptions are options of GetOrLease.
type LeaseOptions struct {
	// Vivify is how long the winner of a miss may take to fill it, in seconds, rounded up. Default: 30 s.
	Vivify time.Duration
	// Refresh, if not 0: an item with less than this left has one winner, too.
	Refresh time.Duration
}

// LeaseState is what a caller has to do.
type LeaseState uint8

const (
	// Hit: there is a value.
	Hit LeaseState = iota
	// HitRefresh: there is a value, about to expire or stale, and this caller has to renew it.
	HitRefresh
	// HitStale: the value is stale, and another caller renews it.
	HitStale
	// MissWon: there is no value, and this caller has to fill it.
	MissWon
	// MissWait: there is no value, and another caller fills it.
	MissWait
)

// String is the state's name.
func (s LeaseState) String() string {
	return [...]string{"Hit", "HitRefresh", "HitStale", "MissWon", "MissWait"}[s]
}

// Lease is the reply to GetOrLease.
type Lease struct {
	State LeaseState
	// CAS is the token that Fill compares.
	CAS uint64
	TTL time.Duration
}

// GetOrLease appends the value to dst, if there is one. One caller becomes the winner if there is no value, or if it is stale or
// about to expire. Meta only.
func (c *Client) GetOrLease(ctx context.Context, key string, dst []byte, o LeaseOptions) ([]byte, Lease, error) {
	if o.Vivify == 0 {
		o.Vivify = 30 * time.Second
	}
	r := wire.Request{Verb: wire.Get, Key: key, Want: wire.WantCAS | wire.WantTTL, Lease: true}
	var err error
	if r.Vivify, err = exptime(o.Vivify); err == nil {
		r.Refresh, err = exptime(o.Refresh)
	}
	if err != nil {
		return dst, Lease{}, err
	}
	op := lane.NewOp()
	op.Dst = dst
	var lease Lease
	if err = c.do(ctx, op, &r, false); err == nil {
		lease = leased(&op.Head)
		if lease.State < MissWon {
			dst = op.Dst
		}
	}
	op.Free()
	return dst, lease, err
}

// leased reads a reply. An item that a miss created is empty, and has a winner.
func leased(h *wire.Head) Lease {
	lease := Lease{CAS: h.CAS, TTL: time.Duration(max(h.TTL, 0)) * time.Second}
	switch empty := h.Bytes == 0 && !h.Stale; {
	case h.Won && empty:
		lease.State = MissWon
	case h.Won:
		lease.State = HitRefresh
	case h.Pending && empty:
		lease.State = MissWait
	case h.Stale:
		lease.State = HitStale
	}
	return lease
}

// Fill stores the value that a winner has loaded. ErrConflict: the key was deleted, invalidated or filled since, and the value is
// dropped.
func (c *Client) Fill(ctx context.Context, key string, value []byte, ttl time.Duration, l Lease) error {
	_, err := c.Store(ctx, key, value, StoreOptions{TTL: ttl, CAS: l.CAS})
	if errors.Is(err, ErrMiss) || errors.Is(err, ErrNotStored) {
		return ErrConflict
	}
	return err
}
