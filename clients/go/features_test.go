//go:build unix

package larder

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for a state that comes by itself, however slow the machine.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, patience)
}

func TestBatchesOfAllKindsAreAnsweredInTheirOrder(t *testing.T) {
	first, _ := live(t)
	second, _ := live(t)
	for name, change := range map[string]func(*Config){"meta": func(*Config) {}, "classic": classic} {
		c := opened(t, first, change, func(c *Config) { c.Servers = append(c.Servers, Server{Address: second}) })
		must(t, c.FlushAll(background))
		b := c.Batch()
		for round := range 2 {
			b.Reset()
			const n = 300
			for i := range n {
				key := fmt.Sprint(name, i)
				if at := b.Set(key, []byte(key), time.Minute); at != 5*i {
					t.Fatal(at)
				}
				b.Get(key)
				b.Store("n"+key, []byte("7"), StoreOptions{})
				b.Incr("n"+key, uint64(i), CountOptions{})
				b.Delete("none" + key)
			}
			bad := b.Get("not a key")
			if err := b.Do(background); !errors.Is(err, ErrBadKey) || b.Len() != 5*n+1 {
				t.Fatal(err, b.Len())
			}
			for i := range n {
				key := fmt.Sprint(name, i)
				if b.Err(5*i) != nil || b.Err(5*i+1) != nil || string(b.Value(5*i+1)) != key || b.Number(5*i+3) != uint64(7+i) || b.Err(5*i+4) != ErrMiss {
					t.Fatalf("%s, round %d, %d: %q, %d, %v", name, round, i, b.Value(5*i+1), b.Number(5*i+3), b.Err(5*i+4))
				}
			}
			if b.Err(bad) != ErrBadKey {
				t.Error(b.Err(bad))
			}
		}
		b.Reset()
		must(t, b.Do(background))
	}
}

func TestBatchThatIsUsedAgainAllocatesNothing(t *testing.T) {
	socket, _ := live(t)
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := opened(t, socket)
	b := c.Batch()
	var keys []string
	for i := range 64 {
		keys = append(keys, fmt.Sprint("key", i))
	}
	value := []byte(strings.Repeat("v", 100))
	if n := testing.AllocsPerRun(100, func() {
		b.Reset()
		for _, key := range keys {
			b.Set(key, value, time.Minute)
			b.Get(key)
		}
		must(t, b.Do(background))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLargeSetsAreNotCopied(t *testing.T) {
	socket, _ := live(t)
	c := opened(t, socket)
	value := make([]byte, 300_000)
	_, _ = rand.Read(value)
	must(t, c.Set(background, "k", value, 0))
	before := c.Counters()[socket]
	if n := testing.AllocsPerRun(20, func() { must(t, c.Set(background, "k", value, 0)) }); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
	after := c.Counters()[socket]
	if helpers := after.Helpers - before.Helpers; helpers > 21 {
		t.Errorf("%d helpers", helpers)
	}
	got, err := c.Get(background, "k", nil)
	if err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// Several callers at once, each with its own value.
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			key, mine := fmt.Sprint("k", i), bytes.Repeat([]byte{byte('a' + i)}, 200_000+i)
			for range 20 {
				if err := c.Set(background, key, mine, 0); err != nil {
					t.Error(err)
				}
				got, _, err := c.GetItem(background, key, nil, GetOptions{Large: true})
				if err != nil || !bytes.Equal(got, mine) {
					t.Errorf("%s: %d bytes, %v", key, len(got), err)
				}
			}
		}()
	}
	callers.Wait()
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, errOwn
	}
	return len(b), nil
}

func (f *failing) Read(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, errOwn
	}
	return len(b), nil
}

var errOwn = errors.New("own")

func TestStreamedValuesComeAndGoWhole(t *testing.T) {
	socket, _ := live(t, "-I", "8m")
	for name, change := range map[string]func(*Config){"meta": func(*Config) {}, "classic": classic} {
		c := opened(t, socket, change, func(c *Config) { c.KeyPrefix = name })
		value := make([]byte, 5<<20)
		_, _ = rand.Read(value)
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				key := fmt.Sprint("k", i)
				if _, err := c.SetFrom(background, key, bytes.NewReader(value[i:]), int64(len(value)-i), StoreOptions{TTL: time.Hour}); err != nil {
					t.Error(err)
				}
				var into bytes.Buffer
				if _, err := c.GetTo(background, key, &into, GetOptions{}); err != nil || !bytes.Equal(into.Bytes(), value[i:]) {
					t.Errorf("%d bytes, %v", into.Len(), err)
				}
			}()
		}
		callers.Wait()
		if n := c.Counters()[socket].Dials; n != 2 {
			t.Errorf("%d connections", n)
		}
		// The writer fails, the reader fails, the reader ends early: each is reported, and the old value stays.
		if _, err := c.GetTo(background, "k1", &failing{after: 100_000}, GetOptions{}); err != errOwn {
			t.Error(err)
		}
		if _, err := c.SetFrom(background, "k1", &failing{after: 100_000}, 1<<20, StoreOptions{}); !errors.Is(err, errOwn) || Applied(err) != NotSent {
			t.Error(err)
		}
		if _, err := c.SetFrom(background, "k1", strings.NewReader("short"), 1<<20, StoreOptions{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		var into bytes.Buffer
		if _, err := c.GetTo(background, "k1", &into, GetOptions{}); err != nil || !bytes.Equal(into.Bytes(), value[1:]) {
			t.Errorf("%d bytes, %v", into.Len(), err)
		}
		if _, err := c.GetTo(background, "none", &into, GetOptions{}); err != ErrMiss {
			t.Error(err)
		}
		if _, err := c.SetFrom(background, "k1", bytes.NewReader(make([]byte, 9<<20)), 9<<20, StoreOptions{}); !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(background)
		reader, writer := io.Pipe()
		go func() { _, _ = writer.Write(make([]byte, 1000)); cancel(); _ = writer.CloseWithError(errOwn) }()
		if _, err := c.SetFrom(ctx, "k2", reader, 1<<20, StoreOptions{}); err == nil {
			t.Error("a source that failed was stored")
		}
		if _, err := c.SetFrom(ctx, "k2", strings.NewReader("x"), 1, StoreOptions{}); !errors.Is(err, context.Canceled) || Applied(err) != NotSent {
			t.Error(err)
		}
	}
}

// secured is a TLS front of a server: its address, and a configuration that trusts it.
func secured(t *testing.T, socket string) (string, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	must(t, err)
	var copies sync.WaitGroup
	copies.Add(1)
	go func() {
		defer copies.Done()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", socket)
			if err != nil {
				_ = conn.Close()
				continue
			}
			copies.Add(2)
			for _, way := range [][2]net.Conn{{conn, server}, {server, conn}} {
				go func() {
					defer copies.Done()
					_, _ = io.Copy(way[0], way[1])
					_ = conn.Close()
					_ = server.Close()
				}()
			}
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); copies.Wait() })
	return listener.Addr().String(), &tls.Config{RootCAs: roots}
}

func TestTLSIsSpoken(t *testing.T) {
	socket, _ := live(t)
	address, trusts := secured(t, socket)
	c := opened(t, address, func(c *Config) { c.TLS = trusts })
	large := make([]byte, 700_000)
	_, _ = rand.Read(large)
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			key := fmt.Sprint("k", i)
			for j := range 20 {
				value := fmt.Appendf(nil, "%s:%d", key, j)
				if err := c.Set(background, key, value, 0); err != nil {
					t.Error(err)
				}
				if got, err := c.Get(background, key, nil); err != nil || !bytes.Equal(got, value) {
					t.Errorf("%q, %v", got, err)
				}
			}
		}()
	}
	callers.Wait()
	must(t, c.Set(background, "large", large, 0))
	if got, err := c.Get(background, "large", nil); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	var into bytes.Buffer
	if _, err := c.GetTo(background, "large", &into, GetOptions{}); err != nil || !bytes.Equal(into.Bytes(), large) {
		t.Errorf("%d bytes, %v", into.Len(), err)
	}
	if _, err := Open(background, Config{Servers: []Server{{Address: address}}, TLS: &tls.Config{RootCAs: x509.NewCertPool()}, Timeout: patience, DialTimeout: patience}); !errors.Is(err, ErrServerDown) {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
}

// A server that reads nothing for a while delays a write; over TLS the connection must survive that.
func TestTLSOutlivesAWriteThatIsHeldUp(t *testing.T) {
	socket, server := live(t)
	address, trusts := secured(t, socket)
	patient := opened(t, address, func(c *Config) { c.TLS = trusts })
	c, err := newClient(Config{Servers: []Server{{Address: address}}, TLS: trusts, Timeout: 300 * time.Millisecond, DialTimeout: patience, StallTimeout: patience})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	until(t, "a first answer", func() bool { return c.Set(background, "k", make([]byte, 70_000), 0) == nil })
	dials := c.Counters()[address].Dials
	halt(t, server)
	value := make([]byte, 900_000)
	began := time.Now()
	for range 8 {
		if err := c.Set(background, "k", value, 0); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
	}
	if took := time.Since(began); took > patience {
		t.Errorf("eight timeouts of 300 ms took %v", took)
	}
	goOn(t, server)
	until(t, "an answer after it went on", func() bool { return c.Set(background, "k", value, 0) == nil })
	if now := c.Counters()[address].Dials; now != dials {
		t.Errorf("%d connections, were %d", now, dials)
	}
	must(t, patient.Set(background, "other", nil, 0))
}

func TestKeysOfADeadServerGoElsewhereForAShortTime(t *testing.T) {
	first, server := live(t)
	second, _ := live(t)
	third, _ := live(t)
	two := []Server{{Address: first}, {Address: second}}
	open := func(failure Failure) *Client {
		return opened(t, first, func(c *Config) { c.Servers, c.Failure = two, failure })
	}
	fast, rehash, gutter := open(FailFast{}), open(Rehash{TTL: 7 * time.Second}), open(Gutter{Servers: []Server{{Address: third}}})
	var keys []string
	for i := 0; len(keys) < 50; i++ {
		if key := fmt.Sprint("key", i); fast.ServerOf(key).Address == first {
			keys = append(keys, key)
		}
	}
	must(t, server.Process.Kill())
	_ = server.Wait()
	down := func(c *Client) func() bool {
		return func() bool { _ = c.Set(background, keys[0], nil, 0); return c.Counters()[first].Down }
	}
	for _, c := range []*Client{fast, rehash, gutter} {
		until(t, "the breaker", down(c))
	}
	if err := fast.Set(background, keys[0], nil, 0); !errors.Is(err, ErrServerDown) || Applied(err) != NotSent {
		t.Error(err)
	}
	for name, c := range map[string]*Client{"rehash": rehash, "gutter": gutter} {
		where, limit := second, 7*time.Second
		if name == "gutter" {
			where, limit = third, failureTTL
		}
		var items []Item
		for _, key := range keys {
			items = append(items, Item{Key: key, Value: []byte(name)})
		}
		must(t, c.SetMany(background, items))
		must(t, c.Set(background, keys[0], []byte(name), time.Hour))
		other := opened(t, where)
		for _, key := range keys {
			value, m, err := other.GetItem(background, key, nil, GetOptions{Want: WantTTL})
			if err != nil || string(value) != name || m.TTL > limit || m.TTL == Forever {
				t.Fatalf("%s: %q, %+v, %v", name, value, m, err)
			}
		}
		if value, err := c.Get(background, keys[1], nil); err != nil || string(value) != name {
			t.Errorf("%q, %v", value, err)
		}
		s := c.Stream(Window{})
		must(t, s.Set(background, keys[2], []byte("streamed"), Forever))
		if report, err := s.Barrier(background); err != nil || report.Stored != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		if _, m, err := other.GetItem(background, keys[2], nil, GetOptions{Want: WantTTL}); err != nil || m.TTL > limit || m.TTL == Forever {
			t.Errorf("%+v, %v", m, err)
		}
	}
}

// lists is a discovery whose lists the tests send.
type lists chan []Server

func (l lists) Watch(ctx context.Context, change func([]Server) error) error {
	for {
		select {
		case list := <-l:
			if err := change(list); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestServersThatAreDiscoveredReplaceOthers(t *testing.T) {
	first, _ := live(t)
	second, _ := live(t)
	told := make(lists, 1)
	told <- []Server{{Address: first}}
	c := opened(t, first, func(c *Config) { c.Servers, c.Discover = nil, told })
	must(t, c.Set(background, "k", []byte("first"), 0))
	told <- []Server{{Address: first}, {Address: second}}
	until(t, "two servers", func() bool { return len(c.Servers()) == 2 })
	for i := range 100 {
		must(t, c.Set(background, fmt.Sprint("k", i), []byte("v"), 0))
	}
	if n := c.Counters()[first].Dials; n != 1 {
		t.Errorf("the server that stayed was dialed %d times", n)
	}
	if c.Counters()[second].Ops == 0 {
		t.Error("the server that came has no keys")
	}
	// An unusable list is ignored.
	told <- []Server{{Address: ""}}
	told <- []Server{{Address: second}}
	until(t, "one server", func() bool { return len(c.Servers()) == 1 })
	must(t, c.Set(background, "k", []byte("second"), 0))
	if value, err := c.On(second).Get(background, "k", nil); err != nil || string(value) != "second" {
		t.Errorf("%q, %v", value, err)
	}
	if _, err := c.On(first).Get(background, "k", nil); !errors.Is(err, ErrServerDown) {
		t.Error(err)
	}
	if _, err := Open(background, Config{Discover: make(lists), Timeout: 20 * time.Millisecond}); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}

// A call during a change of the list is answered by one server or the other.
func TestCallsAreAnsweredWhileServersComeAndGo(t *testing.T) {
	first, _ := live(t)
	second, _ := live(t)
	told := make(lists)
	c := opened(t, first, func(c *Config) { c.Discover = told })
	var over atomic.Bool
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			key := fmt.Sprint("key", i)
			for !over.Load() {
				if err := c.Set(background, key, []byte(key), 0); err != nil {
					t.Error(err)
					return
				}
				if value, err := c.Get(background, key, nil); err != nil && err != ErrMiss || err == nil && string(value) != key {
					t.Errorf("%q, %v", value, err)
					return
				}
			}
		}()
	}
	for i := range 40 {
		list := []Server{{Address: first}}
		if i%2 == 0 {
			list = []Server{{Address: second}}
		}
		told <- list
		time.Sleep(2 * time.Millisecond)
	}
	over.Store(true)
	callers.Wait()
}

func TestCallThatWaitedForAServerThatWentIsAskedWhereItsKeyIsNow(t *testing.T) {
	first, _ := live(t)
	second, _ := live(t)
	dialing, held := make(chan struct{}), make(chan struct{})
	c, err := newClient(Config{
		Servers: []Server{{Address: first}}, Timeout: patience, DialTimeout: patience,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == first {
				close(dialing)
				<-held
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	stored := make(chan error)
	go func() { stored <- c.Set(background, "k", []byte("v"), 0) }()
	<-dialing
	must(t, c.change([]Server{{Address: second}}))
	// The removed server's side knows it by now, or will before its dial ends.
	until(t, "the end of the server that went", func() bool { return c.Counters()[first].Dials == 0 })
	close(held)
	must(t, <-stored)
	if value, err := opened(t, second).Get(background, "k", nil); err != nil || string(value) != "v" {
		t.Errorf("%q, %v", value, err)
	}
}

// resolving is a resolver for tests.
type resolving struct {
	mu    sync.Mutex
	hosts []string
	srv   []*net.SRV
	err   error
}

func (n *resolving) LookupHost(context.Context, string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts, n.err
}

func (n *resolving) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return "", n.srv, n.err
}

func TestNamesAreLookedUp(t *testing.T) {
	resolver := &resolving{hosts: []string{"10.0.0.2", "10.0.0.1", "::1"}}
	ctx, cancel := context.WithCancel(background)
	got := make(chan []Server, 10)
	done := make(chan error, 1)
	go func() {
		done <- DNS{Host: "cache", Every: time.Millisecond, Resolver: resolver}.Watch(ctx, func(list []Server) error { got <- list; return nil })
	}()
	want := []Server{{Address: "10.0.0.1:11211"}, {Address: "10.0.0.2:11211"}, {Address: "[::1]:11211"}}
	if list := <-got; !slices.Equal(list, want) {
		t.Errorf("%v", list)
	}
	set := func(hosts []string, err error) {
		resolver.mu.Lock()
		defer resolver.mu.Unlock()
		resolver.hosts, resolver.err = hosts, err
	}
	set(nil, errOwn)
	time.Sleep(5 * time.Millisecond)
	set([]string{"10.0.0.1", "10.0.0.2", "::1"}, nil)
	time.Sleep(5 * time.Millisecond)
	set([]string{"10.0.0.3"}, nil)
	if list := <-got; len(list) != 1 || list[0].Address != "10.0.0.3:11211" {
		t.Errorf("%v: neither a failure nor another order is a change", list)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	resolver.srv = []*net.SRV{{Target: "b.example.", Port: 2, Priority: 1, Weight: 3}, {Target: "a.example.", Port: 1, Priority: 1, Weight: 1}, {Target: "c.example.", Port: 3, Priority: 2, Weight: 1}}
	list, err := DNS{Host: "cache", Service: "memcache", Resolver: resolver}.lookUp(background)
	if err != nil || !slices.Equal(list, []Server{{Address: "a.example:1", Weight: 1}, {Address: "b.example:2", Weight: 3}}) {
		t.Errorf("%v, %v", list, err)
	}
	if err := (DNS{Host: "cache", Resolver: &resolving{err: errOwn}}).Watch(background, nil); err != errOwn {
		t.Error(err)
	}
	if err := (DNS{Host: "cache", Resolver: &resolving{}}).Watch(background, nil); err != errNoServers {
		t.Error(err)
	}
}

func TestDrainWaitsForWhatWasTaken(t *testing.T) {
	socket, server := live(t)
	c := opened(t, socket)
	must(t, c.Set(background, "k", []byte("v"), 0))
	halt(t, server)
	var answered atomic.Int32
	var callers sync.WaitGroup
	for range 16 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			if _, err := c.Get(background, "k", nil); err != nil {
				t.Error(err)
			}
			answered.Add(1)
		}()
	}
	until(t, "sixteen that wait", func() bool { return c.Counters()[socket].Ops == 17 })
	drained := make(chan error, 1)
	go func() { drained <- c.Drain(background) }()
	until(t, "a refusal", func() bool {
		ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
		defer cancel()
		_, err := c.Get(ctx, "other", nil)
		return errors.Is(err, ErrClosed)
	})
	goOn(t, server)
	must(t, <-drained)
	callers.Wait()
	if answered.Load() != 16 {
		t.Errorf("%d were answered", answered.Load())
	}
	// The context of a caller that does not wait that long.
	c = opened(t, socket)
	halt(t, server)
	var err error
	callers.Add(1)
	go func() { defer callers.Done(); _, err = c.Get(background, "k", nil) }()
	until(t, "one that waits", func() bool { return c.Counters()[socket].Ops == 1 })
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	if err := c.Drain(ctx); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	callers.Wait()
	if !errors.Is(err, ErrClosed) || Applied(err) != Unknown {
		t.Error(err)
	}
	goOn(t, server)
}

// notes is an observer for tests.
type notes struct {
	mu    sync.Mutex
	ops   []OpEvent
	conns []ConnEvent
}

func (n *notes) Op(e OpEvent)     { n.mu.Lock(); defer n.mu.Unlock(); n.ops = append(n.ops, e) }
func (n *notes) Conn(e ConnEvent) { n.mu.Lock(); defer n.mu.Unlock(); n.conns = append(n.conns, e) }

func TestObserverIsToldOfCallsAndConnections(t *testing.T) {
	socket, server := live(t)
	n := &notes{}
	c := opened(t, socket, func(c *Config) { c.Observer = n })
	must(t, c.Set(background, "k", []byte("v"), 0))
	_, _ = c.Get(background, "none", nil)
	_ = c.Set(background, "not a key", nil, 0)
	_, _ = c.GetMap(background, []string{"k", "none", "l"})
	_, _ = c.GetTo(background, "k", io.Discard, GetOptions{})
	n.mu.Lock()
	var said []string
	for _, e := range n.ops {
		said = append(said, fmt.Sprint(e.Verb, " ", e.Server == socket, " ", e.Keys, " ", e.Err != nil, " ", e.Took >= 0 && !e.Began.IsZero()))
	}
	n.mu.Unlock()
	want := []string{"set true 1 false true", "get true 1 true true", "set false 1 true true", "get false 3 false true", "get true 1 false true"}
	if !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	until(t, "the end of the server", func() bool {
		_ = c.Set(background, "k", nil, 0)
		n.mu.Lock()
		defer n.mu.Unlock()
		kinds := map[ConnKind]int{}
		for _, e := range n.conns {
			kinds[e.Kind]++
		}
		return kinds[Connected] == 2 && kinds[ConnectFailed] >= 3 && kinds[ServerDown] == 1
	})
}

func TestServersTellAboutThemselves(t *testing.T) {
	first, _ := live(t)
	second, _ := live(t)
	c := opened(t, first, func(c *Config) { c.Servers = append(c.Servers, Server{Address: second, Name: "two"}) })
	versions, err := c.Version(background)
	if err != nil || len(versions) != 2 || versions[1].Server != "two" || !strings.HasPrefix(versions[0].Version, "1.6.") {
		t.Errorf("%+v, %v", versions, err)
	}
	must(t, c.On("two").Set(background, "k", []byte("v"), 0))
	stats, err := c.Stats(background)
	if err != nil || len(stats) != 2 || stats[0].Stats["curr_items"] != "0" || stats[1].Stats["curr_items"] != "1" {
		t.Errorf("%+v, %v", stats, err)
	}
	if stats, err := c.On("two").Stats(background, "items"); err != nil || len(stats) != 1 || len(stats[0].Stats) == 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	if _, err := c.Stats(background, "no\r\nstats"); err != ErrBadKey {
		t.Error(err)
	}
	if stats, err := c.Stats(background, "nonsense"); !errors.Is(err, ErrServer) || len(stats) != 2 {
		t.Error(err)
	}
	if got := c.On("two").ServerOf("any"); got.Address != second {
		t.Errorf("%+v", got)
	}
}

func TestKeysOfAnyBytes(t *testing.T) {
	socket, _ := live(t)
	c := opened(t, socket, func(c *Config) { c.BinaryKeys = true })
	keys := []string{"plain", "two words", "\x00", "line\r\n", strings.Repeat("\xff", 186), " "}
	for _, key := range keys {
		must(t, c.Set(background, key, []byte(key), 0))
	}
	found, err := c.GetMap(background, keys)
	if err != nil || len(found) != len(keys) {
		t.Errorf("%v, %v", found, err)
	}
	for key, value := range found {
		if string(value) != key {
			t.Errorf("%q: %q", key, value)
		}
		must(t, c.Delete(background, key))
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Get(background, "two words", nil) }); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}
