//go:build go1.25

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/faulty"
	"larder.example/clients/go/internal/health"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

var background = context.Background()

// network is the network that a fleet dials in these tests.
type network struct {
	mu     sync.Mutex
	server *faulty.Server
	// mode of new connections: "" is served, "refused", "silent" (accepted and not answered).
	mode  string
	dials int
	ends  []net.Conn
}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	if n.mode == "refused" {
		return nil, errors.New("refused")
	}
	here, there := faulty.Pipe(1 << 20)
	n.ends = append(n.ends, there)
	if n.mode == "" {
		go n.server.Serve(there)
	}
	return here, nil
}

func (n *network) set(mode string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mode = mode
	for _, end := range n.ends {
		_ = end.Close()
	}
	n.ends = nil
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

func in(t *testing.T, f func(t *testing.T, n *network, s *Server), change ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{server: &faulty.Server{}}
		o := Options{Timeout: 500 * time.Millisecond, DialTimeout: time.Second, Stall: 2 * time.Second, Lanes: 1, InFlight: 4096, Verify: true, Dial: n.dial}
		for _, c := range change {
			c(&o)
		}
		fleet := New(o)
		s := fleet.Server("test", "memory", "memory")
		f(t, n, s)
		fleet.Close([]*Server{s})
		fleet.Close([]*Server{s})
		if err := set(s, "k", "late"); !errors.Is(err, fault.Closed) {
			t.Errorf("after Close: %v", err)
		}
		n.set("refused")
	})
}

// newOp does not use the pool, whose channels would be of another test's time.
func newOp() *lane.Op {
	op := new(lane.Op)
	op.Init()
	return op
}

func set(s *Server, key, value string) error {
	return s.Do(background, 0, newOp(), &wire.Request{Verb: wire.Set, Key: key, Value: []byte(value)}, lane.Now()+500*time.Millisecond)
}

func TestI9OneDialForAllWhoWait(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				if err := set(s, fmt.Sprint(i), "v"); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if n.count() != 1 {
			t.Errorf("%d dials", n.count())
		}
	})
}

func TestI9RefusedServerIsDialedFewTimesAndCallersAreToldAtOnce(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		n.set("refused")
		for range 1000 {
			err := set(s, "k", "v")
			if !errors.Is(err, fault.Down) || fault.Of(err) != fault.NotSent {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if n.count() > 20 || n.count() < 4 {
			t.Errorf("%d dials in a second", n.count())
		}
		if !s.Counters().Down {
			t.Error("it is not said to be down")
		}
		before := time.Now()
		if _ = set(s, "k", "v"); time.Since(before) != 0 {
			t.Error("a caller had to wait")
		}
		n.set("")
		time.Sleep(5 * time.Second)
		if err := set(s, "k", "v"); err != nil {
			t.Error(err)
		}
		if s.Counters().Down {
			t.Error("it is still said to be down")
		}
	})
}

func TestDeadlineCoversDialing(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		n.set("silent")
		before := time.Now()
		err := set(s, "k", "v")
		if !errors.Is(err, fault.Timeout) || fault.Of(err) != fault.NotSent {
			t.Error(err)
		}
		if took := time.Since(before); took > 520*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestCallerWithoutTimeLeftIsNoFailureOfTheServer(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		for range 10 {
			err := s.Alone(background, lane.Now(), func(*Conn) (bool, error) { return true, nil })
			if !errors.Is(err, fault.Timeout) || fault.Of(err) != fault.NotSent {
				t.Fatal(err)
			}
		}
		if c := s.Counters(); n.count() != 0 || c.DialsFailed != 0 || c.Down {
			t.Errorf("%d dials, %+v", n.count(), c)
		}
	})
}

func TestServerThatIsLateForHalfIsGivenUp(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		if err := set(s, "k", "v"); err != nil {
			t.Fatal(err)
		}
		// From now on the server accepts and never answers.
		held := make(chan struct{})
		defer close(held)
		n.server.Replace = func(string, string) string { <-held; return "" }
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() { _ = set(s, "k", "v") })
		}
		callers.Wait()
		if !s.Counters().Down {
			t.Error("not given up")
		}
		if err := set(s, "k", "v"); !errors.Is(err, fault.Down) {
			t.Error(err)
		}
	})
}

func TestServerThatCameBackIsAskedSixteenAtFirst(t *testing.T) {
	for _, well := range []bool{true, false} {
		in(t, func(t *testing.T, n *network, s *Server) {
			n.set("refused")
			for range health.FailuresMax {
				_ = set(s, "k", "v")
			}
			if !s.Down() {
				t.Fatal("not down")
			}
			held := make(chan struct{})
			n.server.Replace = func(request, reply string) string {
				if strings.HasPrefix(request, "ms ") {
					<-held
				}
				return reply
			}
			n.set("")
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if s.Down() {
				t.Fatal("still down")
			}
			var refused, failed, done int
			var mu sync.Mutex
			var callers sync.WaitGroup
			for range 40 {
				callers.Go(func() {
					err := set(s, "k", "v")
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						done++
					case errors.Is(err, fault.Down):
						refused++
					default:
						failed++
					}
				})
			}
			synctest.Wait()
			if refused != 40-health.TrialsMax || n.server.Requests > 1+2+1 {
				t.Errorf("%d were refused, %d requests", refused, n.server.Requests)
			}
			if well {
				close(held)
				callers.Wait()
				if done != health.TrialsMax || failed != 0 {
					t.Errorf("%d done, %d failed", done, failed)
				}
				for range 40 {
					callers.Go(func() {
						if err := set(s, "k", "v"); err != nil {
							t.Error(err)
						}
					})
				}
				callers.Wait()
				return
			}
			callers.Wait()
			if !s.Down() || done != 0 || failed == 0 {
				t.Errorf("%d done, %d failed, down: %v", done, failed, s.Down())
			}
			close(held)
		})
	}
}

func TestPasswordThatIsRefusedIsNotTriedAgainAtOnce(t *testing.T) {
	asked := 0
	in(t, func(t *testing.T, n *network, s *Server) {
		// This server does not know classic text, and so has no password there.
		for range 20 {
			if err := set(s, "k", "v"); !errors.Is(err, fault.Auth) || fault.Of(err) != fault.NotSent {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if asked != 2 || s.Down() {
			t.Errorf("asked %d times in ten seconds", asked)
		}
	}, func(o *Options) {
		o.Auth = func(context.Context, string, string) (string, string, error) { asked++; return "u", "p", nil }
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err == nil {
				_ = conn.Close()
				here, there := faulty.Pipe(1 << 10)
				go func() { _, _ = there.Write([]byte("CLIENT_ERROR authentication failure\r\n")) }()
				return here, nil
			}
			return conn, err
		}
	})
}

func TestProbeDoesNotReplaceAConnectionThatLives(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		if err := set(s, "k", "v"); err != nil {
			t.Fatal(err)
		}
		before := s.lanes[0].lane.Load()
		// The other lane cannot be dialed until the prober can.
		n.mu.Lock()
		n.mode = "refused"
		n.mu.Unlock()
		for range health.FailuresMax {
			if _, err := s.Lane(background, s.Large(), lane.Now()+time.Second); !errors.Is(err, fault.Down) {
				t.Error(err)
			}
		}
		if !s.Counters().Down {
			t.Error("it is not said to be down")
		}
		n.mu.Lock()
		n.mode = ""
		n.mu.Unlock()
		time.Sleep(5 * time.Second)
		if now := s.lanes[0].lane.Load(); now != before || !now.Alive() || s.Counters().Down {
			t.Errorf("%p was %p, %+v", now, before, s.Counters())
		}
	})
}

func TestContextThatHasEndedSendsNothing(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		if err := set(s, "k", "v"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		err := s.Do(ctx, 0, newOp(), &wire.Request{Verb: wire.Set, Key: "k", Value: []byte("other")}, lane.Now()+time.Second)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, fault.Timeout) || fault.Of(err) != fault.NotSent {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if value, _ := n.server.Value("k"); value != "v" {
			t.Errorf("%q was stored", value)
		}
	})
}

// slowContext is a context whose timer has not run yet.
type slowContext struct {
	context.Context
	until time.Time
}

func (c slowContext) Deadline() (time.Time, bool) { return c.until, true }

func TestCallersOwnDeadlinesSayNothingAboutTheServer(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		held := make(chan struct{})
		defer close(held)
		if err := set(s, "k", "v"); err != nil {
			t.Fatal(err)
		}
		n.server.Replace = func(string, string) string { <-held; return "" }
		var callers sync.WaitGroup
		for range 64 {
			callers.Go(func() {
				ctx := slowContext{background, time.Now().Add(10 * time.Millisecond)}
				err := s.Do(ctx, 0, newOp(), &wire.Request{Verb: wire.Get, Key: "k"}, lane.Now()+10*time.Millisecond)
				if !errors.Is(err, fault.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if s.Counters().Down {
			t.Error("given up")
		}
	})
}

func TestConnectionThatEndedIsReplaced(t *testing.T) {
	in(t, func(t *testing.T, n *network, s *Server) {
		if err := set(s, "k", "v"); err != nil {
			t.Fatal(err)
		}
		n.set("")
		err := set(s, "k", "v")
		for range 3 {
			if err != nil && !errors.Is(err, fault.Lost) {
				t.Error(err)
			}
			err = set(s, "k", "v")
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestGreetingFindsOutWhatIsSpoken(t *testing.T) {
	for version, meta := range map[string]bool{
		"1.6.45": true, "1.6.10": true, "1.6.9": false, "1.5.22": false, "1.6.45-larder-0.1": true, "2.0.0": true, "other": false, "1.6": false, "1.x.30": false,
	} {
		in(t, func(t *testing.T, n *network, s *Server) {
			n.server.Version = version
			l, err := s.Lane(background, 0, lane.Now()+time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if (l.Protocol() == wire.Meta) != meta {
				t.Errorf("%s: %d", version, l.Protocol())
			}
		})
	}
}

func TestGreetingThatIsNoneIsNoConnection(t *testing.T) {
	for _, wrong := range []string{"ERROR\r\n", "SERVER_ERROR too many connections\r\n", "hello\r\n", "VERSION 1.6.45\r\nVERSION 1.6.45\r\n", strings.Repeat("x", 5000)} {
		in(t, func(t *testing.T, n *network, s *Server) {
			n.server.Replace = func(string, string) string { return wrong }
			if err := set(s, "k", "v"); !errors.Is(err, fault.Down) || fault.Of(err) != fault.NotSent {
				t.Errorf("%q: %v", wrong, err)
			}
		})
	}
}
