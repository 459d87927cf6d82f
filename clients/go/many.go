package larder

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// groupMax is how many requests are sent to the servers together; more are sent in turns.
const groupMax = 512

// opaques numbers the requests of groups. These numbers have the highest bit set; a lane's own have not.
var opaques atomic.Uint32

func groupOpaque(n int) uint32 {
	return (opaques.Add(uint32(n)) - uint32(n)) | 1<<31
}

// Buffer is memory that GetMany reuses. It is for one call at a time.
type Buffer struct {
	parts []part
	// of has, for each request of the turn, its part or its error; verbs are those of the requests.
	of      []int
	errs    []error
	verbs   []wire.Verb
	batch   bool
	request wire.Request
}

// part holds the requests for one lane.
type part struct {
	server *fleet.Server
	at     int
	lane   *lane.Lane
	bytes  []byte
	verbs  []wire.Verb
	values []byte
	op     *lane.Op
	count  int
	next   int
	err    error
}

// NewBuffer makes a buffer with room for this many bytes of values from each server.
func NewBuffer(bytes int) *Buffer {
	b := &Buffer{parts: make([]part, 1, 4)}
	b.parts[0].values = make([]byte, 0, bytes)
	return b
}

// part is the index of a lane's part, which is made if the turn has none yet.
func (b *Buffer) part(server *fleet.Server, at int) int {
	for i := range b.parts {
		if b.parts[i].server == server && b.parts[i].at == at {
			return i
		}
	}
	for i := range b.parts {
		if p := &b.parts[i]; p.server == nil {
			p.server, p.at = server, at
			return i
		}
	}
	b.parts = append(b.parts, part{server: server, at: at})
	return len(b.parts) - 1
}

// called is the verb that an observer sees: a batch has requests of several kinds.
func (b *Buffer) called(verb wire.Verb) string {
	if b.batch {
		return "batch"
	}
	return verb.String()
}

func (b *Buffer) begin() {
	for i := range b.parts {
		p := &b.parts[i]
		*p = part{bytes: p.bytes[:0], values: p.values[:0], verbs: p.verbs[:0]}
	}
	b.of, b.errs, b.verbs = b.of[:0], b.errs[:0], b.verbs[:0]
}

// GetMany gets many values with one write to each server, and calls each for every key, in the order of the keys, on the caller's
// goroutine. A value is valid until each returns. buf may be nil; a buffer that is used again saves all allocations.
//
// # Errors
//
// The error of the first key that has another than ErrMiss. each gets all errors, and the values that did come.
func (c *Client) GetMany(ctx context.Context, keys []string, buf *Buffer, each func(i int, value []byte, m Meta, err error)) error {
	return c.many(ctx, len(keys), buf, wire.Get,
		func(i int, r *wire.Request) error { r.Key = keys[i]; return nil },
		each)
}

// GetMap is GetMany into a map, without missing keys. If there is an error, the map has the values that did come.
func (c *Client) GetMap(ctx context.Context, keys []string) (map[string][]byte, error) {
	found := make(map[string][]byte, len(keys))
	err := c.GetMany(ctx, keys, nil, func(i int, value []byte, _ Meta, err error) {
		if err == nil {
			found[keys[i]] = append(make([]byte, 0, len(value)), value...)
		}
	})
	return found, err
}

// ManyError has the errors of some of many requests; the others were carried out.
type ManyError struct {
	// Errors by index.
	Errors map[int]error
	first  int
}

// Error has their number and the first error.
func (e *ManyError) Error() string {
	return fmt.Sprintf("larder: %d of many failed, the first (%d): %v", len(e.Errors), e.first, e.Errors[e.first])
}

// Unwrap returns the first error.
func (e *ManyError) Unwrap() error { return e.Errors[e.first] }

// Item is one value for SetMany.
type Item struct {
	Key   string
	Value []byte
	StoreOptions
}

// SetMany stores many values with one write to each server. It has no modes. Its error is a *ManyError.
func (c *Client) SetMany(ctx context.Context, items []Item) error {
	return c.collect(ctx, len(items), wire.Set, func(i int, r *wire.Request) error {
		item := &items[i]
		if item.Mode != Set {
			return errors.New("larder: SetMany has no modes")
		}
		r.Key, r.Value, r.Flags, r.CAS = item.Key, item.Value, item.Flags, item.CAS
		var err error
		r.Exptime, err = exptime(item.TTL)
		return err
	})
}

// DeleteMany deletes many keys with one write to each server. A missing key is no error. Its error is a *ManyError.
func (c *Client) DeleteMany(ctx context.Context, keys []string) error {
	return c.collect(ctx, len(keys), wire.Delete, func(i int, r *wire.Request) error { r.Key = keys[i]; return nil })
}

func (c *Client) collect(ctx context.Context, n int, verb wire.Verb, request func(int, *wire.Request) error) error {
	failed := &ManyError{Errors: map[int]error{}}
	_ = c.many(ctx, n, nil, verb, request, func(i int, _ []byte, _ Meta, err error) {
		if err == nil || (verb == wire.Delete && errors.Is(err, ErrMiss)) {
			return
		}
		if len(failed.Errors) == 0 {
			failed.first = i
		}
		failed.Errors[i] = err
	})
	if len(failed.Errors) == 0 {
		return nil
	}
	return failed
}

// many makes n requests, in turns.
func (c *Client) many(ctx context.Context, n int, buf *Buffer, verb wire.Verb, request func(int, *wire.Request) error,
	each func(i int, value []byte, m Meta, err error)) error {
	if buf == nil {
		buf = &Buffer{}
	}
	var first error
	began := lane.Now()
	deadline := c.deadline(ctx)
	for from := 0; from < n; from += groupMax {
		to := min(from+groupMax, n)
		c.submit(ctx, buf, from, to, verb, request, deadline)
		c.wait(ctx, buf)
		for i := from; i < to; i++ {
			value, m, err := c.next(buf, i-from)
			if err != nil && first == nil && !errors.Is(err, ErrMiss) {
				first = err
			}
			each(i, value, m, err)
		}
		for i := range buf.parts {
			if p := &buf.parts[i]; p.op != nil {
				p.values = p.op.Dst
				p.op.Free()
				p.op = nil
			}
		}
	}
	c.noted(ctx, buf.called(verb), "", n, began, first)
	return first
}

// submit encodes a turn and sends each lane its part.
func (c *Client) submit(ctx context.Context, buf *Buffer, from, to int, verb wire.Verb, request func(int, *wire.Request) error,
	deadline time.Duration) {
	buf.begin()
	base := groupOpaque(0)
	if c.c.VerifyReplies {
		base = groupOpaque(to - from)
	}
	for i := from; i < to; i++ {
		r := &buf.request
		*r = wire.Request{Verb: verb}
		err := request(i, r)
		if err == nil {
			err = c.keyed(r)
		}
		var server *fleet.Server
		var limit time.Duration
		if err == nil {
			server, limit, err = c.target(r.Key)
		}
		if err == nil {
			limited(r, limit)
			at := buf.part(server, server.Of(r.Key))
			err = c.encode(ctx, &buf.parts[at], r, base, deadline)
			buf.of = append(buf.of, at)
		}
		if err != nil {
			buf.of = append(buf.of[:i-from], -1)
		}
		buf.errs, buf.verbs = append(buf.errs, err), append(buf.verbs, r.Verb)
	}
	for i := range buf.parts {
		p := &buf.parts[i]
		if p.server == nil || p.lane == nil || p.count == 0 {
			continue
		}
		p.op = lane.NewOp()
		p.op.Dst = p.values[:0]
		p.err = p.server.Submit(ctx, p.lane, p.op, lane.Group{
			Bytes: p.bytes, Verb: p.verbs[0], Verbs: p.verbs, Replies: p.count, Opaque: base,
			Verify: c.c.VerifyReplies && p.lane.Protocol() == wire.Meta,
		}, deadline)
	}
}

// encode appends a request to its part.
func (c *Client) encode(ctx context.Context, p *part, r *wire.Request, base uint32, deadline time.Duration) error {
	if p.lane == nil && p.err == nil {
		p.lane, p.err = p.server.Lane(ctx, p.at, deadline)
	}
	if p.lane == nil {
		return p.err
	}
	if !p.lane.Protocol().Can(r) {
		return needsMeta(p.server.Name())
	}
	if c.c.VerifyReplies && p.lane.Protocol() == wire.Meta {
		// The opaques of a part count up from the turn's base: two parts never share a lane.
		r.Opaque, r.HasOpaque = base+uint32(p.count), true
	}
	p.bytes = p.lane.Protocol().Write(p.bytes, r)
	p.verbs = append(p.verbs, r.Verb)
	p.count++
	return nil
}

// wait waits for what was submitted.
func (c *Client) wait(ctx context.Context, buf *Buffer) {
	for i := range buf.parts {
		if p := &buf.parts[i]; p.op != nil && p.err == nil {
			p.err = p.server.Wait(ctx, p.lane, p.op)
		}
	}
}

// next is the answer to the turn's next request.
func (c *Client) next(buf *Buffer, i int) ([]byte, Meta, error) {
	if buf.of[i] < 0 {
		return nil, Meta{}, buf.errs[i]
	}
	p := &buf.parts[buf.of[i]]
	at := p.next
	p.next++
	if p.op == nil || at >= len(p.op.Results) {
		if p.err == nil {
			return nil, Meta{}, ErrProtocol
		}
		return nil, Meta{}, p.err
	}
	result := &p.op.Results[at]
	if err := answer(buf.verbs[i], result.Head.Status, result.Text, p.server.Name()); err != nil {
		return nil, Meta{}, err
	}
	return p.op.Dst[result.From:result.To:result.To], meta(&result.Head), nil
}
