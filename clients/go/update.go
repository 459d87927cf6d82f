package larder

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff is the pause between two attempts: a random part of a time that doubles from Min to Max.
type Backoff struct{ Min, Max time.Duration }

// UpdateOptions are options of Update.
type UpdateOptions struct {
	TTL time.Duration
	// KeepTTL stores an existing item with the time that it had left when it was read; TTL is for a new item. The protocol
	// has that time in whole seconds, and it counts from the store on. So each update moves the item's end:
	//   - with Larder, which returns the nearest second, by up to half a second and the time from the read to the store, or,
	//     where less than half a second is left, by up to a second, since it is stored for one then. An item whose updates are
	//     at most half a second apart does not come nearer to its end;
	//   - with memcached, by a second for each one that begins between the read and the store;
	//   - beyond 30 days, where the protocol has Unix times, also by the difference between the clocks of client and server.
	//
	// Incr, Decr, Append and Prepend leave the end where it is: use them for a limit that has to end whatever the traffic is,
	// or keep its end in its value. Meta only.
	KeepTTL bool
	// Want is what Update passes to f of the item beside its CAS and its flags.
	Want Want
	// Attempts is how often Update tries. Default: 16.
	Attempts int
	// Backoff is the pause. Default: 50 µs to 10 ms.
	Backoff Backoff
}

// Update stores what f makes of the value, if it has not changed meanwhile; else it tries again. old is nil if there is no item.
// It belongs to f during the call, and the new value may lie in it. m is what is known of the item. Flags are kept.
//
// # Errors
//
// The error of f ends it. ErrConflict: the value changed during each attempt. If Applied returns Unknown, the last write may have
// been made.
func (c *Client) Update(ctx context.Context, key string, o UpdateOptions, f func(old []byte, m Meta) ([]byte, error)) error {
	if o.Attempts == 0 {
		o.Attempts = 16
	}
	if o.Backoff.Min <= 0 {
		o.Backoff.Min = 50 * time.Microsecond
	}
	if o.Backoff.Max <= 0 {
		o.Backoff.Max = 10 * time.Millisecond
	}
	want := WantCAS | WantFlags | o.Want
	if o.KeepTTL {
		want |= WantTTL
	}
	room := make([]byte, 0, 512)
	for attempt := 0; ; attempt++ {
		store := StoreOptions{TTL: o.TTL}
		old, m, err := c.GetItem(ctx, key, room[:0], GetOptions{Want: want})
		switch {
		case err == nil && o.KeepTTL && !m.knowsTTL:
			return &Error{Err: ErrServer, Outcome: NotSent, Detail: "classic text does not tell how long an item has left"}
		case err == nil:
			if o.KeepTTL {
				// No set leaves an item's time as it is, except one with I and an older CAS, which ignores faster writers, and
				// marks the item stale. Without T the time is for ever.
				store.TTL = m.TTL
			}
			room = old
			store.CAS, store.Flags = m.CAS, m.Flags
			if old == nil {
				old = []byte{}
			}
		case errors.Is(err, ErrMiss):
			old, store.Mode = nil, Add
		default:
			return err
		}
		value, err := f(old, m)
		if err != nil {
			return err
		}
		_, err = c.Store(ctx, key, value, store)
		if err == nil || !(errors.Is(err, ErrConflict) || errors.Is(err, ErrNotStored) || errors.Is(err, ErrMiss)) {
			return err
		}
		if attempt+1 >= o.Attempts {
			return ErrConflict
		}
		pause := o.Backoff.Max
		if attempt < 16 {
			pause = min(pause, o.Backoff.Min<<attempt)
		}
		timer := time.NewTimer(rand.N(pause) + 1)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &Error{Err: ErrTimeout, Outcome: NotSent, Cause: ctx.Err()}
		}
	}
}
