package larder

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"larder.example/clients/go/internal/fault"
)

// Load loads a value from its source, and returns how long it is valid.
type Load func(ctx context.Context) (value []byte, ttl time.Duration, err error)

// FetchOptions are options of Fetch.
type FetchOptions struct {
	// Vivify is how long one process may take to load a value before another tries. Default: 30 s.
	Vivify time.Duration
	// Refresh, if not 0: a value with less than this left is loaded anew, while callers get the old one.
	Refresh time.Duration
	// WaitMax is how long a caller waits for another process's load before it loads the value itself. Default: 1 s.
	WaitMax time.Duration
	// LoadTimeout limits a load in the background. Default: 10 s.
	LoadTimeout time.Duration
}

const (
	// refreshesMax limits the loads in the background. A winner beyond that loads before it returns.
	refreshesMax = 64
	// waitMin and waitMax bound the pauses between looks for the value that another process loads.
	waitMin = time.Millisecond
	waitMax = 50 * time.Millisecond
)

// loads are the loads that are under way in this client.
type loads struct {
	mu         sync.Mutex
	running    map[string]*load
	refreshes  int
	background sync.WaitGroup
	closed     bool
}

// load is one load, for which other callers may wait.
type load struct {
	done  chan struct{}
	value []byte
	err   error
}

// Fetch appends the cached value of the key to dst, or loads it with find and stores it. Of all callers in all processes, one
// loads. The others wait for it, or get the old value while it is renewed. If the key is deleted or invalidated during a load,
// the loaded value is returned and not stored.
//
// Where the cache does not answer, or speaks classic text, callers of one process share a load.
//
// # Errors
//
// The error of find, for all callers that share the load; or that of waiting, when the context ends. Failures of the cache are
// not returned: Counters and Observer have them.
func (c *Client) Fetch(ctx context.Context, key string, dst []byte, o FetchOptions, find Load) ([]byte, error) {
	if o.WaitMax == 0 {
		o.WaitMax = time.Second
	}
	if o.LoadTimeout == 0 {
		o.LoadTimeout = 10 * time.Second
	}
	began := time.Now()
	for pause := waitMin; ; pause = min(2*pause, waitMax) {
		value, lease, err := c.GetOrLease(ctx, key, dst, LeaseOptions{Vivify: o.Vivify, Refresh: o.Refresh})
		if errors.Is(err, fault.NeedsMeta) {
			if value, err = c.Get(ctx, key, dst); errors.Is(err, ErrMiss) {
				return c.share(ctx, key, dst, find, Lease{}, true)
			}
		}
		switch {
		case err != nil && (Fault(err) == FaultCaller || ctx.Err() != nil || unfinished(err)):
			return dst, err
		case err != nil:
			return c.share(ctx, key, dst, find, Lease{}, false)
		}
		switch lease.State {
		case Hit, HitStale:
			return value, nil
		case HitRefresh:
			c.refresh(ctx, key, o, find, lease)
			return value, nil
		case MissWon:
			return c.share(ctx, key, dst, find, lease, true)
		case MissWait:
		}
		if l := c.loads.of(c.only + "\x00" + key); l != nil {
			if value, err := l.wait(ctx, dst); !unfinished(err) || ctx.Err() != nil {
				return value, err
			}
		}
		if time.Since(began) >= o.WaitMax {
			return c.share(ctx, key, dst, find, lease, true)
		}
		if !rest(ctx, pause/2+rand.N(pause/2+1)) {
			return dst, &Error{Err: ErrTimeout, Outcome: NotSent, Cause: ctx.Err()}
		}
	}
}

// share loads the value, or waits for the caller that does. If store is true, the loaded value is stored.
func (c *Client) share(ctx context.Context, key string, dst []byte, find Load, lease Lease, store bool) ([]byte, error) {
	for {
		l, mine := c.loads.begin(c.only + "\x00" + key)
		if mine {
			value, err := c.load(ctx, key, l, find, lease, store)
			return append(dst, value...), err
		}
		value, err := l.wait(ctx, dst)
		if !unfinished(err) || ctx.Err() != nil {
			return value, err
		}
	}
}

// unfinished: a shared load failed because the context of its own caller ended.
func unfinished(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errLoad)
}

// load loads, stores, and wakes the waiting callers.
func (c *Client) load(ctx context.Context, key string, l *load, find Load, lease Lease, store bool) (value []byte, err error) {
	loaded := false
	defer func() {
		if !loaded && err == nil {
			err = errLoad
		}
		l.value, l.err = value, err
		c.loads.end(c.only+"\x00"+key, l)
		if !loaded && lease.CAS != 0 && lease.State == MissWon {
			// Gives the lease back, so that the next caller need not wait.
			_ = c.Remove(context.WithoutCancel(ctx), key, RemoveOptions{CAS: lease.CAS})
		}
	}()
	var ttl time.Duration
	if value, ttl, err = find(ctx); err != nil {
		return nil, err
	}
	loaded = true
	if store {
		// A value that could not be stored is returned all the same.
		_ = c.Fill(ctx, key, value, ttl, lease)
	}
	return value, nil
}

var errLoad = errors.New("larder: the load did not end")

// refresh loads in the background if there is room, else before it returns.
func (c *Client) refresh(ctx context.Context, key string, o FetchOptions, find Load, lease Lease) {
	l, mine := c.loads.begin(c.only + "\x00" + key)
	if !mine {
		return
	}
	again := func(ctx context.Context) {
		ctx, end := context.WithTimeout(ctx, o.LoadTimeout)
		defer end()
		_, _ = c.load(ctx, key, l, find, lease, true)
	}
	if !c.loads.more() {
		again(ctx)
		return
	}
	go func() {
		defer c.loads.less()
		// The context has the caller's values, and ends with the client.
		ctx, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		defer context.AfterFunc(c.life, end)()
		again(ctx)
	}()
}

// wait waits for another caller's load.
func (l *load) wait(ctx context.Context, dst []byte) ([]byte, error) {
	select {
	case <-l.done:
		if l.err != nil {
			return dst, l.err
		}
		return append(dst, l.value...), nil
	case <-ctx.Done():
		return dst, &Error{Err: ErrTimeout, Outcome: NotSent, Cause: ctx.Err()}
	}
}

func (l *loads) of(key string) *load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[key]
}

// begin returns the key's load, and whether this caller has to do it.
func (l *loads) begin(key string) (*load, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if running := l.running[key]; running != nil {
		return running, false
	}
	if l.running == nil {
		l.running = map[string]*load{}
	}
	mine := &load{done: make(chan struct{})}
	l.running[key] = mine
	return mine, true
}

func (l *loads) end(key string, mine *load) {
	l.mu.Lock()
	delete(l.running, key)
	l.mu.Unlock()
	close(mine.done)
}

func (l *loads) more() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refreshes == refreshesMax || l.closed {
		return false
	}
	l.refreshes++
	l.background.Add(1)
	return true
}

func (l *loads) less() {
	l.mu.Lock()
	l.refreshes--
	l.mu.Unlock()
	l.background.Done()
}

// wait waits for the loads in the background, whose contexts have ended.
func (l *loads) wait() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.background.Wait()
}
