//go:build unix

package larder

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A server that stops for a while and goes on answers requests that were abandoned long ago: no caller may take these answers for
// its own.
func TestServerThatStopsAndGoesOnGivesNoWrongValues(t *testing.T) {
	socket, server := live(t)
	// Not by opened: on a slow machine a greeting takes longer than that.
	c, err := newClient(Config{Servers: []Server{{Address: socket}}, Timeout: 40 * time.Millisecond, VerifyReplies: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	patient := opened(t, socket)
	for i := range 64 {
		key := fmt.Sprintf("key%d", i)
		if err := patient.Set(background, key, []byte(key+":0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	var over atomic.Bool
	var late, right atomic.Uint64
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			key := fmt.Sprintf("key%d", i)
			dst := make([]byte, 0, 64)
			for j := 0; !over.Load(); j++ {
				value, err := c.Get(background, key, dst)
				switch {
				case err == nil && strings.HasPrefix(string(value), key+":"):
					right.Add(1)
				case err == nil:
					t.Errorf("%s: %q", key, value)
				case Fault(err) != FaultNetwork:
					t.Error(err)
				case errors.Is(err, ErrTimeout):
					late.Add(1)
				default:
					time.Sleep(time.Millisecond)
				}
				if err := c.Set(background, key, fmt.Appendf(nil, "%s:%d", key, j), 0); err != nil && Fault(err) != FaultNetwork {
					t.Error(err)
				}
			}
		}()
	}
	for range 4 {
		time.Sleep(50 * time.Millisecond)
		if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		if err := server.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	// However slow the machine is: until the server works again.
	before := right.Load()
	for begun := time.Now(); right.Load() < before+1000 && time.Since(begun) < patience; {
		time.Sleep(10 * time.Millisecond)
	}
	over.Store(true)
	callers.Wait()
	if late.Load() == 0 || right.Load() < before+1000 {
		t.Errorf("%d late, %d right before it went on, %d in all", late.Load(), before, right.Load())
	}
	t.Logf("%d right, %d late, %+v", right.Load(), late.Load(), c.Counters()[socket])
	// The last acknowledged value of each key is there, and is the key's own.
	for i := range 64 {
		key := fmt.Sprintf("key%d", i)
		if value, err := patient.Get(background, key, nil); err != nil || !strings.HasPrefix(string(value), key+":") {
			t.Errorf("%s: %q, %v", key, value, err)
		}
	}
}

// relay passes bytes between clients and a server, and harms what the server sends.
type relay struct {
	listener net.Listener
	server   string
	// cut closes a connection after the server has sent this many bytes; 0: never.
	cut atomic.Int64
	// hold is the delay of what the server sends, in nanoseconds.
	hold atomic.Int64
	// refuses: new connections are closed at once.
	refuses atomic.Bool
	// harmed counts the harms that were done.
	harmed atomic.Int64

	mu   sync.Mutex
	open []net.Conn
	all  sync.WaitGroup
}

// relayed starts a relay before the socket of a server. It ends with the test.
func relayed(t *testing.T, server string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, server: server}
	r.all.Add(1)
	go r.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		r.closeAll()
		r.all.Wait()
	})
	return r
}

func (r *relay) accept() {
	defer r.all.Done()
	for {
		client, err := r.listener.Accept()
		if err != nil {
			// A connection that came just before the end was closed with the others, or is closed now.
			r.closeAll()
			return
		}
		server, err := net.Dial("unix", r.server)
		if err != nil || r.refuses.Load() {
			r.harmed.Add(1)
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		r.mu.Lock()
		r.open = append(r.open, client, server)
		r.mu.Unlock()
		r.all.Add(2)
		go r.pass(client, server, nil)
		go r.pass(server, client, r)
	}
}

// pass copies from one connection to the other; harm, if there is one, decides what is harmed.
func (r *relay) pass(from, to net.Conn, harm *relay) {
	defer r.all.Done()
	defer from.Close()
	defer to.Close()
	buffer, passed := make([]byte, 4096), 0
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if harm != nil {
			if hold := time.Duration(harm.hold.Load()); hold > 0 {
				harm.harmed.Add(1)
				time.Sleep(hold)
			}
			if cut := int(harm.cut.Load()); cut > 0 && passed+n > cut {
				harm.harmed.Add(1)
				_, _ = to.Write(buffer[:max(cut-passed, 0)])
				return
			}
		}
		passed += n
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (r *relay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.open {
		_ = conn.Close()
	}
	r.open = nil
}

// Whatever is done to the replies of a third of the writes, a report counts every write, its stored values exist, and its
// refused ones do not.
func TestReportsOfStreamsAddUpBesideEveryFault(t *testing.T) {
	socket, server := live(t)
	direct := opened(t, socket)
	signal := func(signal syscall.Signal) { _ = server.Process.Signal(signal) }
	for _, fault := range []struct {
		name       string
		begin, end func(r *relay, quiet bool)
	}{
		{"none", func(*relay, bool) {}, func(*relay, bool) {}},
		{"late", func(r *relay, _ bool) { r.hold.Store(int64(60 * time.Millisecond)) }, func(r *relay, _ bool) { r.hold.Store(0) }},
		{"cut", func(r *relay, quiet bool) {
			// A group of a quiet stream has a reply of four bytes. Greetings are passed on.
			r.cut.Store(400)
			if quiet {
				r.cut.Store(60)
			}
		}, func(r *relay, _ bool) { r.cut.Store(0) }},
		{"refused", func(r *relay, _ bool) { r.refuses.Store(true); r.closeAll() }, func(r *relay, _ bool) { r.refuses.Store(false) }},
		{"stopped", func(r *relay, _ bool) { signal(syscall.SIGSTOP); r.harmed.Add(1) }, func(*relay, bool) { signal(syscall.SIGCONT) }},
	} {
		for _, quiet := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, quiet %v", fault.name, quiet), func(t *testing.T) {
				r := relayed(t, socket)
				config := Config{Servers: []Server{{Address: r.listener.Addr().String()}}, Timeout: 50 * time.Millisecond, VerifyReplies: true}
				if fault.name == "none" {
					// No timeout ends a call, even on a slow machine.
					config.Timeout, config.DialTimeout, config.StallTimeout = patience, patience, patience
				}
				c, err := newClient(config)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				s := c.Stream(Window{})
				if quiet {
					s = c.Quiet()
				}
				var keys []string
				var report Report
				send := func() {
					key := fmt.Sprintf("%s-%v-%d", fault.name, quiet, len(keys))
					keys = append(keys, key)
					if err := s.Set(background, key, []byte(key), 0); err != nil {
						t.Fatal(err)
					}
				}
				third := func() {
					for range 1000 {
						send()
					}
				}
				settle := func() {
					// The report counts writes without a reply, too.
					part, _ := s.Barrier(background)
					report.Sent += part.Sent
					report.Stored += part.Stored
					report.Refused += part.Refused
					report.Unknown += part.Unknown
					report.First = append(report.First, part.First...)
				}
				third()
				fault.begin(r, quiet)
				defer fault.end(r, quiet)
				third()
				settle()
				for begun := time.Now(); fault.name != "none" && r.harmed.Load() == 0 && time.Since(begun) < patience; {
					send()
					settle()
				}
				fault.end(r, quiet)
				third()
				settle()
				n, harmed := uint64(len(keys)), r.harmed.Load()
				t.Logf("%d sent, %d stored, %d refused, %d unknown, harm %d times", n, report.Stored, report.Refused, report.Unknown, harmed)
				if report.Sent != n || report.Sent != report.Stored+report.Refused+report.Unknown {
					t.Errorf("%d sent: %+v", n, report)
				}
				if (fault.name == "none") != (harmed == 0) || fault.name == "none" && report.Stored != n {
					t.Errorf("harm %d times: %+v", harmed, report)
				}
				found := map[string]bool{}
				if err := direct.GetMany(background, keys, nil, func(i int, value []byte, _ Meta, err error) {
					switch {
					case err == nil && string(value) == keys[i]:
						found[keys[i]] = true
					case !errors.Is(err, ErrMiss):
						t.Errorf("%s: %q, %v", keys[i], value, err)
					}
				}); err != nil {
					t.Error(err)
				}
				if there := uint64(len(found)); there < report.Stored || there > report.Stored+report.Unknown {
					t.Errorf("%d are there: %d stored, %d unknown", there, report.Stored, report.Unknown)
				}
				// Named refusals are checked one by one: a count would not show a lost write if another one was stored after all.
				for _, refusal := range report.First {
					if found[refusal.Key] && Applied(refusal.Err) != Unknown {
						t.Errorf("%s is there: %v", refusal.Key, refusal.Err)
					}
				}
			})
		}
	}
}
