// Package fleet keeps the lanes to each server. It dials them when needed, one dial at a time, fails requests at once while a
// server is down, and probes the server until it answers.
package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/health"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// Protocol is the protocol to speak.
type Protocol uint8

const (
	// Auto asks the server for its version: meta from memcached 1.6.10 on, else classic.
	Auto Protocol = iota
	Meta
	Classic
)

// Dial opens a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Event is something that happened to a server's connections.
type Event uint8

const (
	// Dialed: a connection was made and greeted.
	Dialed Event = iota
	// DialFailed: no connection was made.
	DialFailed
	// WentDown: calls fail at once, and one goroutine dials.
	WentDown
	// CameBack: a probe was answered.
	CameBack
)

// Options are a fleet's limits. All have to be set, except Dial, TLS, Auth and Observe.
type Options struct {
	Protocol    Protocol
	Timeout     time.Duration
	DialTimeout time.Duration
	Stall       time.Duration
	Lanes       int
	InFlight    int
	// Vector: values from this length on are not copied.
	Vector     int
	Verify     bool
	RetryReads bool
	Dial       Dial
	TLS        *tls.Config
	// Auth returns the user and the password for a server.
	Auth func(ctx context.Context, name, address string) (user, password string, err error)
	// Observe is called with events, outside of all locks.
	Observe func(server string, event Event, took time.Duration, err error)
}

// observe reports an event, if Observe is set.
func (f *Fleet) observe(server string, event Event, took time.Duration, err error) {
	if f.o.Observe != nil {
		f.o.Observe(server, event, took, err)
	}
}

// Fleet is the state that all servers share.
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

// beside runs f, and lets Close wait for it. It may be called while a server is open, or from such an f.
func (f *Fleet) beside(run func()) {
	f.others.Add(1)
	go func() {
		defer f.others.Done()
		run()
	}()
}

// Close fails everything that waits, and returns when nothing of these servers is left.
func (f *Fleet) Close(servers []*Server) {
	f.end()
	for _, s := range servers {
		s.close()
	}
	f.others.Wait()
}

// Server is one server of a fleet.
type Server struct {
	f                *Fleet
	name             string
	network, address string
	// lanes has the Lanes for usual requests, and one for large values.
	lanes []place

	// alone is the connection for one caller at a time.
	alone direct

	// state is the breaker's state, for readers without the mutex.
	state atomic.Uint32

	mu      sync.Mutex
	breaker health.Breaker
	// refused is the time until which no password is tried again, and why.
	refused      time.Duration
	refusedCause error
	closed       bool
	// gone is why the server is closed, if the client is not.
	gone   error
	past   lane.Counters
	dials  uint64
	failed uint64
}

// place holds a lane, or will hold one.
type place struct {
	lane    atomic.Pointer[lane.Lane]
	dialing *dialing
}

type dialing struct {
	done chan struct{}
	err  error
}

// Server makes a server. Nothing is dialed yet.
func (f *Fleet) Server(name, network, address string) *Server {
	return &Server{
		f: f, name: name, network: network, address: address, lanes: make([]place, f.o.Lanes+1),
		alone: direct{free: make(chan struct{}, 1)},
	}
}

// Network is the network of an address as people write it: a path is a Unix socket.
func Network(address string) string {
	if strings.Contains(address, "/") {
		return "unix"
	}
	return "tcp"
}

// Name is the server's name.
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

// Do makes a request with one reply on a lane. A request of which nothing was sent is sent once more, and so is a read if
// RetryReads says so.
func (s *Server) Do(ctx context.Context, at int, op *lane.Op, r *wire.Request, deadline time.Duration) error {
	if cause := ctx.Err(); cause != nil {
		return &fault.Error{Err: fault.Timeout, Outcome: fault.NotSent, Server: s.name, Cause: cause}
	}
	if s.state.Load() != up {
		tried, err := s.admitted()
		if err != nil {
			return err
		}
		if tried {
			err = s.do(ctx, at, op, r, deadline)
			s.tried(err)
			return err
		}
	}
	return s.do(ctx, at, op, r, deadline)
}

func (s *Server) do(ctx context.Context, at int, op *lane.Op, r *wire.Request, deadline time.Duration) error {
	for again := false; ; again = true {
		l, err := s.Lane(ctx, at, deadline)
		if err != nil {
			return err
		}
		if !l.Protocol().Can(r) {
			return &fault.Error{Err: fault.Server, Outcome: fault.NotSent, Server: s.name, Detail: fault.NeedsMeta.Error(), Cause: fault.NeedsMeta}
		}
		dst := op.Dst
		err = l.Do(ctx, op, r, deadline)
		if err == nil {
			return nil
		}
		if again || !s.again(err, r.Verb == wire.Get && !r.Retime && !r.Lease) {
			return s.told(ctx, err)
		}
		op.Again(dst)
	}
}

// Submit sends a group on one of the server's lanes. Unless it returns an error, Wait has to follow.
func (s *Server) Submit(ctx context.Context, l *lane.Lane, op *lane.Op, g lane.Group, deadline time.Duration) error {
	if s.state.Load() != up {
		tried, err := s.admitted()
		if err != nil {
			return err
		}
		op.Trial = tried
	}
	err := l.Submit(ctx, op, g, deadline)
	if err != nil && op.Trial {
		s.tried(err)
	}
	return err
}

// again says whether a request may be sent once more.
func (s *Server) again(err error, read bool) bool {
	if !errors.Is(err, fault.Lost) && !errors.Is(err, fault.Protocol) {
		return false
	}
	return fault.Of(err) == fault.NotSent || (read && s.f.o.RetryReads && errors.Is(err, fault.Lost))
}

// told counts late requests, except those for which the caller's own context allowed less time than the timeout.
func (s *Server) told(ctx context.Context, err error) error {
	var e *fault.Error
	if errors.As(err, &e) && e.Err == fault.Timeout && e.Cause == nil {
		if until, ok := ctx.Deadline(); ok && time.Until(until) <= 0 {
			// The context's timer may not have run yet.
			e.Cause = context.DeadlineExceeded
		} else {
			s.late()
		}
	}
	return err
}

// Wait is the lane's Wait, and counts late requests.
func (s *Server) Wait(ctx context.Context, l *lane.Lane, op *lane.Op) error {
	err := l.Wait(ctx, op)
	if err != nil {
		err = s.told(ctx, err)
	}
	if op.Trial {
		s.tried(err)
	}
	return err
}

// Lane returns a lane that takes requests, and dials it if there is none.
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
		err := s.why()
		s.mu.Unlock()
		return nil, err
	case s.breaker.Open():
		s.mu.Unlock()
		return nil, fault.Down
	case s.refusedCause != nil && lane.Now() < s.refused:
		err := s.refusedCause
		s.mu.Unlock()
		return nil, err
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
	down := false
	s.mu.Lock()
	s.lanes[at].dialing = nil
	if err == nil && s.closed {
		s.f.beside(func() { l.Close(fault.Closed) })
		err = s.why()
	}
	switch {
	case err == nil:
		s.install(at, l)
		s.breaker.Answered()
	case s.closed, errors.Is(err, fault.Closed):
	default:
		down = s.missed(err)
	}
	d.err = err
	s.mu.Unlock()
	close(d.done)
	if down {
		s.f.observe(s.name, WentDown, 0, err)
	}
}

// missed counts a failed dial; true if that opened the breaker. Under the mutex.
func (s *Server) missed(err error) bool {
	s.failed++
	if errors.Is(err, fault.Auth) {
		s.refused, s.refusedCause = lane.Now()+refusedPause, err
		return false
	}
	if !s.breaker.Failed() {
		return false
	}
	s.look()
	s.f.beside(s.probe)
	return true
}

// install puts a lane in its place, and keeps the counters of the one before. Under the mutex.
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
		if err != nil && !errors.Is(err, fault.Auth) {
			s.failed++
			s.mu.Unlock()
			continue
		}
		if err != nil {
			_ = s.missed(err)
		}
		s.breaker.Probed()
		s.look()
		// Dials may have failed for another lane: a living lane is not replaced while callers use it.
		current := s.lanes[0].lane.Load()
		use := err == nil && !s.closed && (current == nil || !current.Alive())
		if use {
			s.install(0, l)
		}
		s.mu.Unlock()
		if err == nil && !use {
			l.Close(fault.Closed)
		}
		s.f.observe(s.name, CameBack, 0, nil)
		return
	}
}

// why is the error of calls after the server was closed. Under the mutex.
func (s *Server) why() error {
	if s.gone != nil {
		return s.gone
	}
	return fault.Closed
}

// Retire closes a server that is no longer asked, when nothing is under way any more, or after the given time.
func (s *Server) Retire(time time.Duration) {
	s.mu.Lock()
	s.gone = &fault.Error{Err: fault.Down, Outcome: fault.NotSent, Server: s.name, Detail: "no longer one of the servers"}
	s.mu.Unlock()
	s.f.beside(func() {
		s.Drain(s.f.life, lane.Now()+time)
		s.close()
	})
}

// Drain takes no more requests and waits for those under way; false if some remained at the deadline.
func (s *Server) Drain(ctx context.Context, deadline time.Duration) bool {
	s.mu.Lock()
	s.closed = true
	why := s.why()
	s.mu.Unlock()
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			l.Drain(why)
		}
	}
	for i := range s.lanes {
		l := s.lanes[i].lane.Load()
		for l != nil && !l.Idle() {
			if ctx.Err() != nil || lane.Now() >= deadline {
				return false
			}
			time.Sleep(time.Millisecond)
		}
	}
	return s.alone.idle(ctx, deadline)
}

func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	why := fault.Closed
	if s.gone != nil {
		why = fault.Lost
	}
	s.mu.Unlock()
	s.alone.end()
	for i := range s.lanes {
		if l := s.lanes[i].lane.Load(); l != nil {
			l.Close(why)
		}
	}
}
