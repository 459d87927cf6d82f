package larder

import (
	"context"
	"errors"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

const (
	// streamOps and streamBytes limit what a stream collects before it is sent.
	streamOps   = 64
	streamBytes = 16 << 10
	// firstMax is how many refusals a report has.
	firstMax = 16
)

// Report is the results of everything that was sent since the last barrier: Sent = Stored + Refused + Unknown.
type Report struct {
	Sent uint64
	// Stored: carried out, as the server has said. A deletion of a key that does not exist counts here.
	Stored uint64
	// Refused: not applied, as the server has said, or because it was never sent.
	Refused uint64
	// Unknown: sent, and not answered.
	Unknown uint64
	// First are the first that were not stored.
	First []Refusal
}

// Refusal is a request that was not stored. Key is empty where the server's error does not say which request it was.
type Refusal struct {
	Key string
	Err error
}

// Window limits what a stream may have sent without an answer.
type Window struct {
	// Ops is a number of requests. Default: 1,024.
	Ops int
}

// Stream sends writes without waiting for each. Barrier waits for all of them, and reports their results. A stream is for one
// goroutine at a time.
type Stream struct {
	c       *Client
	quiet   bool
	ops     int
	paths   []path
	waiting int
	report  Report
	err     error
}

// path holds the groups of one lane: the one that is being collected, and those that were sent.
type path struct {
	server *fleet.Server
	at     int
	bytes  []byte
	keys   []string
	verb   wire.Verb
	opaque uint32
	lane   *lane.Lane
	sent   []group
}

type group struct {
	op    *lane.Op
	lane  *lane.Lane
	keys  []string
	base  uint32
	verb  wire.Verb
	quiet bool
}

// Stream makes a stream with this window.
func (c *Client) Stream(w Window) *Stream {
	if w.Ops <= 0 {
		w.Ops = 1024
	}
	return &Stream{c: c, ops: min(w.Ops, c.c.InFlight)}
}

// Quiet makes a stream of writes whose success the server does not answer: only refusals, and the barrier. Where a server speaks
// classic text, it is a Stream.
func (c *Client) Quiet() *Stream {
	s := c.Stream(Window{})
	s.quiet = true
	return s
}

// Set sends a set.
//
// # Errors
//
// An error of the caller; then nothing is sent or counted.
func (s *Stream) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	seconds, err := exptime(ttl)
	if err != nil {
		return err
	}
	return s.send(ctx, &wire.Request{Verb: wire.Set, Key: key, Value: value, Exptime: seconds})
}

// Delete sends a deletion. Errors as Set's.
func (s *Stream) Delete(ctx context.Context, key string) error {
	return s.send(ctx, &wire.Request{Verb: wire.Delete, Key: key})
}

func (s *Stream) send(ctx context.Context, r *wire.Request) error {
	if err := s.c.keyed(r); err != nil {
		return err
	}
	key := r.Key
	server, limit, err := s.c.target(key)
	s.report.Sent++
	if err != nil {
		s.lose([]string{key}, err)
		return nil
	}
	limited(r, limit)
	p := s.path(server, key)
	if len(p.keys) > 0 && (p.verb != r.Verb || len(p.keys) >= streamOps || len(p.bytes) >= streamBytes || !p.lane.Alive()) {
		s.flush(ctx, p)
	}
	if len(p.keys) == 0 {
		p.verb, p.lane = r.Verb, nil
		if p.lane, err = p.server.Lane(ctx, p.at, s.c.deadline(ctx)); err != nil {
			s.lose([]string{key}, err)
			return nil
		}
		p.opaque = groupOpaque(1024)
	}
	if !p.lane.Protocol().Can(r) {
		s.lose([]string{key}, needsMeta(p.server.Name()))
		return nil
	}
	if p.lane.Protocol() == wire.Meta {
		r.Opaque, r.HasOpaque = p.opaque+uint32(len(p.keys)), true
		r.Quiet = s.quiet
	}
	p.bytes = p.lane.Protocol().Write(p.bytes, r)
	p.keys = append(p.keys, key)
	s.waiting++
	for s.waiting >= s.ops {
		s.flush(ctx, p)
		s.settleOne(ctx)
	}
	return nil
}

func (s *Stream) path(server *fleet.Server, key string) *path {
	at := server.Of(key)
	for i := range s.paths {
		if p := &s.paths[i]; p.server == server && p.at == at {
			return p
		}
	}
	s.paths = append(s.paths, path{server: server, at: at})
	return &s.paths[len(s.paths)-1]
}

// flush sends what was collected to the lane.
func (s *Stream) flush(ctx context.Context, p *path) {
	if len(p.keys) == 0 {
		return
	}
	g := group{op: lane.NewOp(), lane: p.lane, keys: p.keys, base: p.opaque, verb: p.verb}
	request := lane.Group{Bytes: p.bytes, Verb: p.verb, Replies: len(p.keys), Opaque: p.opaque, Verify: p.lane.Protocol() == wire.Meta}
	if s.quiet && p.lane.Protocol() == wire.Meta {
		p.bytes = wire.Meta.Write(p.bytes, &wire.Request{Verb: wire.Noop})
		g.quiet = true
		request.Bytes, request.Replies, request.Quiet, request.Verify = p.bytes, 1, true, false
	}
	err := p.server.Submit(ctx, p.lane, g.op, request, s.c.deadline(ctx))
	p.bytes, p.keys = p.bytes[:0], nil
	if err != nil {
		g.op.Free()
		s.waiting -= len(g.keys)
		s.lose(g.keys, err)
		return
	}
	p.sent = append(p.sent, g)
}

// settleOne waits for the oldest group of some path.
func (s *Stream) settleOne(ctx context.Context) {
	for i := range s.paths {
		if p := &s.paths[i]; len(p.sent) > 0 {
			s.settle(ctx, p)
			return
		}
	}
	// What other paths have collected fills the window.
	for i := range s.paths {
		s.flush(ctx, &s.paths[i])
	}
}

// settle waits for a path's oldest group and counts its results.
func (s *Stream) settle(ctx context.Context, p *path) {
	g := p.sent[0]
	p.sent[0] = group{}
	p.sent = p.sent[1:]
	err := p.server.Wait(ctx, g.lane, g.op)
	s.waiting -= len(g.keys)
	name := p.server.Name()
	told := 0
	for i := range g.op.Results {
		result := &g.op.Results[i]
		told++
		refusal := answer(g.verb, result.Head.Status, result.Text, name)
		if refusal == nil || (g.verb == wire.Delete && errors.Is(refusal, ErrMiss)) {
			s.report.Stored++
			continue
		}
		key := ""
		if !g.quiet {
			key = g.keys[i]
		} else if at := result.Opaque - g.base; result.Head.HasOpaque && at < uint32(len(g.keys)) {
			key = g.keys[at]
		}
		s.report.Refused++
		s.tell(key, refusal)
	}
	rest := g.keys[min(told, len(g.keys)):]
	if g.quiet && told > 0 {
		// Refused requests need not be the first ones: which are left is unknown without looking at all.
		rest = make([]string, len(rest))
	}
	switch {
	case g.quiet && g.op.Whole:
		s.report.Stored += uint64(len(rest))
	case len(rest) > 0 && err != nil:
		s.lose(rest, err)
	case len(rest) > 0:
		s.lose(rest, &Error{Err: ErrProtocol, Outcome: Unknown, Server: name})
	}
	g.op.Free()
}

// lose counts requests that were not answered.
func (s *Stream) lose(keys []string, err error) {
	if s.err == nil {
		s.err = err
	}
	if Applied(err) == Unknown {
		s.report.Unknown += uint64(len(keys))
	} else {
		s.report.Refused += uint64(len(keys))
	}
	for _, key := range keys {
		s.tell(key, err)
	}
}

func (s *Stream) tell(key string, err error) {
	if len(s.report.First) < firstMax {
		s.report.First = append(s.report.First, Refusal{key, err})
	}
}

// Barrier sends what is left, waits for every answer, and reports the results of everything since the last barrier.
//
// # Errors
//
// The first failure that is not a server's refusal. The report is complete in any case.
func (s *Stream) Barrier(ctx context.Context) (Report, error) {
	for i := range s.paths {
		s.flush(ctx, &s.paths[i])
	}
	for i := range s.paths {
		for len(s.paths[i].sent) > 0 {
			s.settle(ctx, &s.paths[i])
		}
	}
	report, err := s.report, s.err
	s.report, s.err = Report{}, nil
	return report, err
}
