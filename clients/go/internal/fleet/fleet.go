// Package fleet keeps the lanes to each server: dials them when they are needed, one dial at a time, says at once that
// a server is down, and probes it until it is not.
package fleet

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/health"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// Protocol is which one is to be spoken.
type Protocol uint8

const (
	// Auto asks the server for its version: meta from memcached 1.6.10 on, else classic.
	Auto Protocol = iota
	Meta
	Classic
)

// Dial opens a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Options are a fleet's limits; all are to be set, but Dial.
type Options struct {
	Protocol    Protocol
	Timeout     time.Duration
	DialTimeout time.Duration
	Stall       time.Duration
	Lanes       int
	InFlight    int
	Verify      bool
	RetryReads  bool
	Dial        Dial
}

// Fleet is what all servers share.
type Fleet struct {
	o      Options
	life   context.Context
	end    context.CancelFunc
	others sync.WaitGroup
}

// New makes a fleet without servers.
func New(o Options) *Fleet {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	life, end := context.WithCancel(context.Background())
	return &Fleet{o: o, life: life, end: end}
}

// beside runs f and lets Close wait for it. While a server is open, or from such an f.
func (f *Fleet) beside(run func()) {
	f.others.Add(1)
	go func() {
		defer f.others.Done()
		run()
	}()
}

// Close fails what waits and returns when nothing of these servers is left.
func (f *Fleet) Close(servers []*Server) {
	f.end()
	for _, s := range servers {
		s.close()
	}
	f.others.Wait()
}

// Counters of a server.
type Counters struct {
	lane.Counters
	Dials, DialsFailed uint64
	Down               bool
}

// Server is one.
type Server struct {
	f                *Fleet
	name             string
	network, address string
	// lanes has Lanes for usual requests and one for large ones.
	lanes []place

	mu      sync.Mutex
	breaker health.Breaker
	closed  bool
	past    lane.Counters
	dials   uint64
	failed  uint64
}

// place is where a lane is, or will be.
type place struct {
	lane    atomic.Pointer[lane.Lane]
	dialing *dialing
}

type dialing struct {
	done chan struct{}
	err  error
}

// Server makes one; nothing is dialed yet.
func (f *Fleet) Server(name, network, address string) *Server {
	return &Server{f: f, name: name, network: network, address: address, lanes: make([]place, f.o.Lanes+1)}
}

// Network of an address as people write it: a path is a Unix socket's.
func Network(address string) string {
	if strings.Contains(address, "/") {
		return "unix"
	}
	return "tcp"
}

// Name is the server's.
func (s *Server) Name() string { return s.name }

// Large is the index of the lane for large values.
func (s *Server) Large() int { return s.f.o.Lanes }

// Of is the index of a key's lane.
func (s *Server) Of(key string) int {
	if s.f.o.Lanes == 1 {
		return 0
	}
	hash := uint32(2166136261)
	for i := range len(key) {
		hash = (hash ^ uint32(key[i])) * 16777619
	}
	return int(hash % uint32(s.f.o.Lanes))
}

// Do asks for one reply on a lane. A request of which nothing was sent is sent once more, and a read if RetryReads
// says so.
func (s *Server) Do(ctx context.Context, at int, op *lane.Op, r *wire.Request, deadline time.Duration) error {
	if cause := ctx.Err(); cause != nil {
		return &fault.Error{Err: fault.Timeout, Outcome: fault.NotSent, Server: s.name, Cause: cause}
	}
	for again := false; ; again = true {
		l, err := s.Lane(ctx, at, deadline)
		if err != nil {
			return err
		}
		if !l.Protocol().Can(r) {
			return &fault.Error{Err: fault.Server, Outcome: fault.NotSent, Server: s.name, Detail: "needs meta text"}
		}
		dst := op.Dst
		err = l.Do(ctx, op, r, deadline)
		if err == nil {
			return nil
		}
		if again || !s.again(err, r.Verb == wire.Get && !r.Retime) {
			return s.told(ctx, err)
		}
		op.Again(dst)
	}
}

// again says whether a request may be sent once more.
func (s *Server) again(err error, read bool) bool {
	if !errors.Is(err, fault.Lost) && !errors.Is(err, fault.Protocol) {
		return false
	}
	return fault.Of(err) == fault.NotSent || (read && s.f.o.RetryReads && errors.Is(err, fault.Lost))
}

// told counts what is late; but not what the caller's own context gave less time than the timeout.
func (s *Server) told(ctx context.Context, err error) error {
	var e *fault.Error
	if errors.As(err, &e) && e.Err == fault.Timeout && e.Cause == nil {
		if until, ok := ctx.Deadline(); ok && time.Until(until) <= 0 {
			// Its timer may not have run yet.
			e.Cause = context.DeadlineExceeded
		} else {
			s.late()
		}
	}
	return err
}

// Wait is the lane's, and counts what is late.
func (s *Server) Wait(ctx context.Context, l *lane.Lane, op *lane.Op) error {
	if err := l.Wait(ctx, op); err != nil {
		return s.told(ctx, err)
	}
	return nil
}

// Lane is one that takes requests, dialed now if there is none.
func (s *Server) Lane(ctx context.Context, at int, deadline time.Duration) (*lane.Lane, error) {
	p := &s.lanes[at]
	if l := p.lane.Load(); l != nil && l.Alive() {
		return l, nil
	}
	s.mu.Lock()
	if l := p.lane.Load(); l != nil && l.Alive() {
		s.mu.Unlock()
		return l, nil
	}
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, fault.Closed
	case s.breaker.Open():
		s.mu.Unlock()
		return nil, fault.Down
	}
	d := p.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		p.dialing = d
		s.f.beside(func() { s.dial(at, d) })
	}
	s.mu.Unlock()
	timer := time.NewTimer(deadline - lane.Now())
	defer timer.Stop()
	select {
	case <-d.done:
	case <-timer.C:
		return nil, &fault.Error{Err: fault.Timeout, Outcome: fault.NotSent, Server: s.name, Detail: "dialing"}
	case <-ctx.Done():
		return nil, &fault.Error{Err: fault.Timeout, Outcome: fault.NotSent, Server: s.name, Detail: "dialing", Cause: ctx.Err()}
	}
	if l := p.lane.Load(); d.err == nil && l != nil {
		return l, nil
	}
	return nil, d.err
}

// dial makes the lane that callers wait for.
func (s *Server) dial(at int, d *dialing) {
	l, err := s.connect()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes[at].dialing = nil
	defer close(d.done)
	if err == nil && s.closed {
		s.f.beside(func() { l.Close(fault.Closed) })
		err = fault.Closed
	}
	if err == nil {
		s.install(at, l)
		s.breaker.Answered()
		return
	}
	d.err = err
	if errors.Is(err, fault.Closed) {
		return
	}
	s.failed++
	if s.breaker.Failed() {
		s.f.beside(s.probe)
	}
}

// install puts a lane in its place and keeps what the one before has counted. Under the mutex.
func (s *Server) install(at int, l *lane.Lane) {
	if before := s.lanes[at].lane.Swap(l); before != nil {
		add(&s.past, before.Counters())
	}
}

// probe dials until the server answers.
func (s *Server) probe() {
	for {
		s.mu.Lock()
		pause, closed := s.breaker.Pause(), s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.f.life.Done():
			timer.Stop()
			return
		}
		l, err := s.connect()
		s.mu.Lock()
		if err != nil {
			s.failed++
			s.mu.Unlock()
			continue
		}
		s.breaker.Answered()
		// Dials may have failed for another lane: that which lives is not replaced under those who use it.
		current := s.lanes[0].lane.Load()
		use := !s.closed && (current == nil || !current.Alive())
		if use {
			s.install(0, l)
		}
		s.mu.Unlock()
		if !use {
			l.Close(fault.Closed)
		}
		return
	}
}

// late counts an operation that was not answered in time; when too many are, the lanes end and the prober begins.
func (s *Server) late() {
	var ended []*lane.Lane
	s.mu.Lock()
	answered := s.past.Replies
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			answered += l.Counters().Replies
		}
	}
	if !s.closed && s.breaker.Late(lane.Now(), answered) {
		for i := range s.lanes {
			if l := s.lanes[i].lane.Load(); l != nil {
				ended = append(ended, l)
			}
		}
		s.f.beside(s.probe)
	}
	s.mu.Unlock()
	for _, l := range ended {
		l.Close(fault.Lost)
	}
}

func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			l.Close(fault.Closed)
		}
	}
}

// Counters is what was done until now.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Counters{Counters: s.past, Dials: s.dials, DialsFailed: s.failed, Down: s.breaker.Open()}
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			add(&c.Counters, l.Counters())
		}
	}
	return c
}

func add(to *lane.Counters, c lane.Counters) {
	to.Ops += c.Ops
	to.Replies += c.Replies
	to.Writes += c.Writes
	to.Reads += c.Reads
	to.Yields += c.Yields
	to.Abandoned += c.Abandoned
	to.Helpers += c.Helpers
	to.BytesOut += c.BytesOut
	to.BytesIn += c.BytesIn
}

// connect dials and greets.
func (s *Server) connect() (*lane.Lane, error) {
	s.mu.Lock()
	s.dials++
	s.mu.Unlock()
	o := &s.f.o
	ctx, end := context.WithTimeout(s.f.life, o.DialTimeout)
	defer end()
	down := func(err error) error {
		if s.f.life.Err() != nil {
			return fault.Closed
		}
		return &fault.Error{Err: fault.Down, Outcome: fault.NotSent, Server: s.name, Detail: err.Error(), Cause: err}
	}
	conn, err := o.Dial(ctx, s.network, s.address)
	if err != nil {
		return nil, down(err)
	}
	// Close has to end a greeting that is not answered. What is told then is why, not that the connection is closed.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	protocol, err := greet(conn, o.Protocol)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, down(err)
	}
	return lane.New(conn, lane.Options{
		Server: s.name, Protocol: protocol, Timeout: o.Timeout, Stall: o.Stall, InFlight: o.InFlight, Verify: o.Verify,
	}), nil
}

// greet finds out what the server speaks, and that it answers. One question after the other: servers that do not know
// mn may take it ill.
func greet(conn net.Conn, protocol Protocol) (wire.Protocol, error) {
	if protocol != Meta {
		head, err := ask(conn, wire.Version)
		if err != nil {
			return 0, err
		}
		if protocol == Classic || !knowsMeta(string(head.Text)) {
			return wire.Classic, nil
		}
	}
	if _, err := ask(conn, wire.Noop); err != nil {
		return 0, err
	}
	return wire.Meta, nil
}

func ask(conn net.Conn, verb wire.Verb) (wire.Head, error) {
	var head wire.Head
	if _, err := conn.Write(wire.Meta.Write(nil, &wire.Request{Verb: verb})); err != nil {
		return head, err
	}
	room := make([]byte, wire.LineBytesMax+2)
	for have := 0; ; {
		n, err := conn.Read(room[have:])
		have += n
		line, taken, wrong := wire.Line(room[:have])
		if wrong != nil {
			return head, wrong
		}
		if taken > 0 {
			if wrong = wire.Meta.Read(verb, line, &head); wrong == nil && head.Status >= wire.ClientError {
				wrong = errors.New(string(line))
			}
			if wrong == nil && taken != have {
				wrong = wire.ErrGrammar
			}
			return head, wrong
		}
		if err != nil {
			return head, err
		}
	}
}

// knowsMeta: versions before 1.6.10 had another dialect of it.
func knowsMeta(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 {
		return false
	}
	end := 0
	for end < len(parts[2]) && parts[2][end] >= '0' && parts[2][end] <= '9' {
		end++
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	patch, err3 := strconv.Atoi(parts[2][:end])
	if err1 != nil || err2 != nil || err3 != nil {
		return false
	}
	return major > 1 || (major == 1 && (minor > 6 || (minor == 6 && patch >= 10)))
}
