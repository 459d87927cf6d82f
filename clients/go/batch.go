package larder

import (
	"context"
	"time"

	"larder.example/clients/go/internal/wire"
)

// Batch is requests of any kinds that go to the servers together, with one write to each, and a result for each. It is
// for one goroutine at a time, and may be used again after Reset; then it allocates nothing. Keys and values are the
// caller's until Do has returned.
//
// Requests for one key are carried out in their order.
type Batch struct {
	c        *Client
	requests []wire.Request
	results  []batched
	values   []byte
	buffer   Buffer
}

// batched is a result; its value lies in the batch's.
type batched struct {
	from, to int
	meta     Meta
	err      error
}

// Batch is an empty one.
func (c *Client) Batch() *Batch { return &Batch{c: c, buffer: Buffer{batch: true}} }

// Reset empties it.
func (b *Batch) Reset() {
	clear(b.requests)
	clear(b.results)
	b.requests, b.results, b.values = b.requests[:0], b.results[:0], b.values[:0]
}

// Len is how many requests there are.
func (b *Batch) Len() int { return len(b.requests) }

// add returns the request's index. A request that is wrong already is kept with its error, and not sent.
func (b *Batch) add(r wire.Request, err error) int {
	b.requests = append(b.requests, r)
	b.results = append(b.results, batched{err: err})
	return len(b.requests) - 1
}

// Get asks for a value and returns the request's index, as all of these do.
func (b *Batch) Get(key string) int {
	return b.add(wire.Request{Verb: wire.Get, Key: key}, nil)
}

// GetItem asks for a value with what is known about it.
func (b *Batch) GetItem(key string, o GetOptions) int {
	r, err := o.request(key)
	return b.add(r, err)
}

// Set stores a value.
func (b *Batch) Set(key string, value []byte, ttl time.Duration) int {
	return b.Store(key, value, StoreOptions{TTL: ttl})
}

// Store stores a value as the options say.
func (b *Batch) Store(key string, value []byte, o StoreOptions) int {
	r, err := o.request(key)
	r.Value = value
	return b.add(r, err)
}

// Delete deletes.
func (b *Batch) Delete(key string) int { return b.Remove(key, RemoveOptions{}) }

// Remove deletes as the options say.
func (b *Batch) Remove(key string, o RemoveOptions) int {
	r, err := o.request(key)
	return b.add(r, err)
}

// Touch gives an item another time to live.
func (b *Batch) Touch(key string, ttl time.Duration) int {
	seconds, err := exptime(ttl)
	return b.add(wire.Request{Verb: wire.Touch, Key: key, Exptime: seconds}, err)
}

// Incr adds to a counter, whose new value is Number.
func (b *Batch) Incr(key string, delta uint64, o CountOptions) int {
	r, err := o.request(wire.Incr, key, delta)
	return b.add(r, err)
}

// Decr takes from a counter, whose new value is Number.
func (b *Batch) Decr(key string, delta uint64, o CountOptions) int {
	r, err := o.request(wire.Decr, key, delta)
	return b.add(r, err)
}

// Do asks the servers, and returns when everything is answered or will not be.
//
// # Errors
//
// That of the first request that failed in another way than with an answer (ErrMiss, ErrConflict, ErrNotStored); Err
// tells those of all.
func (b *Batch) Do(ctx context.Context) error {
	b.values = b.values[:0]
	var first error
	b.c.batch(ctx, b)
	for i := range b.results {
		if err := b.results[i].err; err != nil && first == nil && Fault(err) != FaultAnswer {
			first = err
		}
	}
	return first
}

// batch is many, of requests that are there already.
func (c *Client) batch(ctx context.Context, b *Batch) {
	_ = c.many(ctx, len(b.requests), &b.buffer, wire.Get,
		func(i int, r *wire.Request) error {
			*r = b.requests[i]
			return b.results[i].err
		},
		func(i int, value []byte, m Meta, err error) {
			result := &b.results[i]
			*result = batched{from: len(b.values), meta: m, err: err}
			if verb := b.requests[i].Verb; err == nil && (verb == wire.Incr || verb == wire.Decr) && len(value) > 0 {
				if result.meta.number, err = wire.Counter(value); err != nil {
					result.err = ErrProtocol
				}
				value = nil
			}
			b.values = append(b.values, value...)
			result.to = len(b.values)
		})
}

// Value is what a Get found; it is the batch's, until Do or Reset.
func (b *Batch) Value(i int) []byte {
	result := &b.results[i]
	return b.values[result.from:result.to:result.to]
}

// Number is what a counter has become.
func (b *Batch) Number(i int) uint64 { return b.results[i].meta.number }

// Meta is what was asked for beside the value.
func (b *Batch) Meta(i int) Meta { return b.results[i].meta }

// Err is what became of a request.
func (b *Batch) Err(i int) error { return b.results[i].err }
