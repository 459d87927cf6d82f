package larder

import (
	"context"
	"time"

	"larder.example/clients/go/internal/wire"
)

// Batch holds requests of any kinds that are sent together, with one write to each server, and a result for each. It is for one
// goroutine at a time. After Reset it may be used again, and then allocates nothing. Keys and values must stay unchanged until Do
// has returned.
//
// Requests for one key are carried out in their order.
type Batch struct {
	c        *Client
	requests []wire.Request
	results  []batched
	values   []byte
	buffer   Buffer
}

// batched is a result; its value lies in the batch's buffer.
type batched struct {
	from, to int
	meta     Meta
	err      error
}

// Batch returns an empty batch.
func (c *Client) Batch() *Batch { return &Batch{c: c, buffer: Buffer{batch: true}} }

// Reset removes all requests.
func (b *Batch) Reset() {
	clear(b.requests)
	clear(b.results)
	b.requests, b.results, b.values = b.requests[:0], b.results[:0], b.values[:0]
}

// Len is the number of requests.
func (b *Batch) Len() int { return len(b.requests) }

// add returns the request's index. An invalid request is kept with its error, and not sent.
func (b *Batch) add(r wire.Request, err error) int {
	b.requests = append(b.requests, r)
	b.results = append(b.results, batched{err: err})
	return len(b.requests) - 1
}

// Get adds a read and returns the request's index, as all of these methods do.
func (b *Batch) Get(key string) int {
	return b.add(wire.Request{Verb: wire.Get, Key: key}, nil)
}

// GetItem adds a read of a value with what is known about it.
func (b *Batch) GetItem(key string, o GetOptions) int {
	r, err := o.request(key)
	return b.add(r, err)
}

// Set adds a store.
func (b *Batch) Set(key string, value []byte, ttl time.Duration) int {
	return b.Store(key, value, StoreOptions{TTL: ttl})
}

// Store adds a store with options.
func (b *Batch) Store(key string, value []byte, o StoreOptions) int {
	r, err := o.request(key)
	r.Value = value
	return b.add(r, err)
}

// Delete adds a deletion.
func (b *Batch) Delete(key string) int { return b.Remove(key, RemoveOptions{}) }

// Remove adds a deletion with options.
func (b *Batch) Remove(key string, o RemoveOptions) int {
	r, err := o.request(key)
	return b.add(r, err)
}

// Touch adds a new time to live of an item.
func (b *Batch) Touch(key string, ttl time.Duration) int {
	seconds, err := exptime(ttl)
	return b.add(wire.Request{Verb: wire.Touch, Key: key, Exptime: seconds}, err)
}

// Incr adds an addition to a counter, whose new value is Number.
func (b *Batch) Incr(key string, delta uint64, o CountOptions) int {
	r, err := o.request(wire.Incr, key, delta)
	return b.add(r, err)
}

// Decr adds a subtraction from a counter, whose new value is Number.
func (b *Batch) Decr(key string, delta uint64, o CountOptions) int {
	r, err := o.request(wire.Decr, key, delta)
	return b.add(r, err)
}

// Do sends all requests, and returns when each is answered or has failed.
//
// # Errors
//
// The error of the first request that failed, answers (ErrMiss, ErrConflict, ErrNotStored) not counted. Err returns the error of
// each request.
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

// batch is many for the requests of a batch.
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

// Value is the value that a Get found. It is valid until Do or Reset.
func (b *Batch) Value(i int) []byte {
	result := &b.results[i]
	return b.values[result.from:result.to:result.to]
}

// Number is the new value of a counter.
func (b *Batch) Number(i int) uint64 { return b.results[i].meta.number }

// Meta is what was asked for besides the value.
func (b *Batch) Meta(i int) Meta { return b.results[i].meta }

// Err is the error of a request; nil: it was carried out.
func (b *Batch) Err(i int) error { return b.results[i].err }
