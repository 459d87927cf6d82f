package larder

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	servers "larder.example/clients/go/internal/live"
)

var background = context.Background()

// live is a server for this test; clients that the test opens have to be closed at its end.
func live(t testing.TB, options ...string) (string, *exec.Cmd) {
	t.Helper()
	servers.Leaks(t)
	return servers.Serve(t, options...)
}

// opened is a patient client of the server: the test must not depend on the machine's speed.
func opened(t testing.TB, socket string, change ...func(*Config)) *Client {
	t.Helper()
	c := Config{Servers: []Server{{Address: socket}}, Timeout: patience, DialTimeout: patience, StallTimeout: patience, VerifyReplies: true}
	for _, f := range change {
		f(&c)
	}
	client, err := Open(background, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func classic(c *Config) { c.Protocol = ClassicText }

func TestVerbsDoWhatTheySay(t *testing.T) {
	socket, _ := live(t)
	for name, change := range map[string]func(*Config){"meta": func(*Config) {}, "classic": classic} {
		t.Run(name, func(t *testing.T) {
			c := opened(t, socket, change, func(c *Config) { c.KeyPrefix = name + ":" })
			is := func(what string, err, want error) {
				t.Helper()
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, not %v", what, err, want)
				}
			}
			holds := func(key, want string) {
				t.Helper()
				if value, err := c.Get(background, key, nil); err != nil || string(value) != want {
					t.Errorf("%s: %q, %v; not %q", key, value, err, want)
				}
			}
			_, err := c.Get(background, "a", nil)
			is("get of nothing", err, ErrMiss)
			is("set", c.Set(background, "a", []byte("one"), time.Minute), nil)
			holds("a", "one")
			_, err = c.Store(background, "a", []byte("x"), StoreOptions{Mode: Add})
			is("add of what is there", err, ErrNotStored)
			_, err = c.Store(background, "b", []byte("x"), StoreOptions{Mode: Replace})
			is("replace of nothing", err, ErrNotStored)
			_, err = c.Store(background, "a", []byte("2"), StoreOptions{Mode: Append})
			is("append", err, nil)
			_, err = c.Store(background, "a", []byte("0"), StoreOptions{Mode: Prepend})
			is("prepend", err, nil)
			holds("a", "0one2")
			_, err = c.Store(background, "f", []byte("x"), StoreOptions{Flags: 1<<32 - 1})
			is("flags", err, nil)
			value, m, err := c.GetItem(background, "f", []byte("before "), GetOptions{Want: WantCAS | WantFlags})
			if err != nil || string(value) != "before x" || m.Flags != 1<<32-1 || m.CAS == 0 {
				t.Errorf("%q, %+v, %v", value, m, err)
			}
			_, err = c.Store(background, "f", []byte("y"), StoreOptions{CAS: m.CAS})
			is("cas", err, nil)
			_, err = c.Store(background, "f", []byte("z"), StoreOptions{CAS: m.CAS})
			is("old cas", err, ErrConflict)
			_, err = c.Store(background, "none", []byte("z"), StoreOptions{CAS: m.CAS})
			is("cas of nothing", err, ErrMiss)
			holds("f", "y")
			is("delete", c.Delete(background, "f"), nil)
			is("delete of nothing", c.Delete(background, "f"), ErrMiss)
			_, err = c.Incr(background, "n", 1, CountOptions{})
			is("incr of nothing", err, ErrMiss)
			is("set", c.Set(background, "n", []byte("18446744073709551615"), Forever), nil)
			for _, step := range []struct {
				count func(context.Context, string, uint64, CountOptions) (uint64, error)
				by    uint64
				want  uint64
			}{{c.Incr, 11, 10}, {c.Decr, 1, 9}, {c.Decr, 100, 0}, {c.Incr, 7, 7}} {
				if n, err := step.count(background, "n", step.by, CountOptions{}); err != nil || n != step.want {
					t.Errorf("%d, %v, not %d", n, err, step.want)
				}
			}
			_, err = c.Incr(background, "a", 1, CountOptions{})
			is("incr of a word", err, ErrNotNumber)
			is("touch", c.Touch(background, "a", time.Hour), nil)
			is("touch of nothing", c.Touch(background, "none", time.Hour), ErrMiss)
			if name == "meta" {
				_, m, err = c.GetItem(background, "a", nil, GetOptions{Want: WantTTL | WantSize | WantHitBefore})
				if err != nil || m.TTL < 59*time.Minute || m.TTL > time.Hour || m.Size != 5 || !m.HitBefore {
					t.Errorf("%+v, %v", m, err)
				}
				if n, err := c.Incr(background, "new", 5, CountOptions{Create: true, Init: 40}); err != nil || n != 40 {
					t.Errorf("%d, %v", n, err)
				}
				is("delete by an old cas", c.Remove(background, "a", RemoveOptions{CAS: 1}), ErrConflict)
			} else {
				err = c.Remove(background, "a", RemoveOptions{CAS: 1})
				is("delete by cas", err, ErrServer)
				if Applied(err) != NotSent {
					t.Errorf("%v", Applied(err))
				}
				holds("a", "0one2")
			}
			_, m, err = c.GetItem(background, "a", nil, GetOptions{Retime: true, Want: WantTTL})
			is("get and touch", err, nil)
			for _, key := range []string{"", " ", "a b", "a\n", strings.Repeat("k", 251-len(name)-1)} {
				is("bad key", c.Set(background, key, nil, 0), ErrBadKey)
			}
			is("longest key", c.Set(background, strings.Repeat("k", 250-len(name)-1), nil, 0), nil)
			is("negative time", c.Set(background, "k", nil, -time.Second), ErrBadTTL)
			is("too large", c.Set(background, "a", make([]byte, 2<<20), 0), ErrTooLarge)
			is("after it", c.Set(background, "a", []byte("v"), 0), nil)
			holds("a", "v")
			large := []byte(strings.Repeat("0123456789", 30_000))
			is("large", c.Set(background, "large", large, 0), nil)
			if value, _, err := c.GetItem(background, "large", nil, GetOptions{Large: true}); err != nil || string(value) != string(large) {
				t.Errorf("%d bytes, %v", len(value), err)
			}
			holds("large", string(large))
			is("flush", c.FlushAll(background), nil)
			_, err = c.Get(background, "a", nil)
			is("get after a flush", err, ErrMiss)
		})
	}
}

func TestManyComeInOrder(t *testing.T) {
	first, _ := live(t)
	second, _ := live(t)
	for name, change := range map[string]func(*Config){"meta": func(*Config) {}, "classic": classic} {
		t.Run(name, func(t *testing.T) {
			c := opened(t, first, change, func(c *Config) {
				c.Servers = append(c.Servers, Server{Address: second})
				c.Lanes = 2
			})
			const n = 1500
			var items []Item
			var keys []string
			for i := range n {
				keys = append(keys, fmt.Sprintf("%s%d", name, i))
				if i%3 != 0 {
					items = append(items, Item{Key: keys[i], Value: []byte(strings.Repeat("v", i%700) + fmt.Sprint(i))})
				}
			}
			if err := c.SetMany(background, items); err != nil {
				t.Fatal(err)
			}
			keys[7] = "not a key"
			next := 0
			err := c.GetMany(background, keys, NewBuffer(1000), func(i int, value []byte, _ Meta, err error) {
				if i != next {
					t.Fatalf("%d after %d", i, next-1)
				}
				next++
				want := strings.Repeat("v", i%700) + fmt.Sprint(i)
				switch {
				case i == 7:
					if !errors.Is(err, ErrBadKey) {
						t.Error(err)
					}
				case i%3 == 0:
					if !errors.Is(err, ErrMiss) {
						t.Error(i, err)
					}
				case err != nil || string(value) != want:
					t.Errorf("%d: %q, %v", i, value, err)
				}
			})
			if !errors.Is(err, ErrBadKey) || next != n {
				t.Errorf("%d, %v", next, err)
			}
			keys[7] = name + "7"
			if found, err := c.GetMap(background, keys); err != nil || len(found) != n-n/3 {
				t.Errorf("%d, %v", len(found), err)
			}
			if err := c.DeleteMany(background, keys); err != nil {
				t.Error(err)
			}
			if found, err := c.GetMap(background, keys); err != nil || len(found) != 0 {
				t.Errorf("%d, %v", len(found), err)
			}
			var many *ManyError
			err = c.SetMany(background, []Item{{Key: "a"}, {Key: " "}, {Key: "c", Value: make([]byte, 2<<20)}, {Key: "d"}})
			if !errors.As(err, &many) || len(many.Errors) != 2 || !errors.Is(many.Errors[1], ErrBadKey) || !errors.Is(many.Errors[2], ErrTooLarge) {
				t.Errorf("%v", err)
			}
			for server, counters := range c.Counters() {
				if counters.Dials > 3 || counters.DialsFailed != 0 || counters.Down {
					t.Errorf("%s: %+v", server, counters)
				}
			}
		})
	}
}

func TestNothingIsAllocated(t *testing.T) {
	socket, _ := live(t)
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := opened(t, socket)
	ctx, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	value := []byte(strings.Repeat("v", 100))
	dst := make([]byte, 0, 200)
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf("many%d", i))
		if err := c.Set(ctx, keys[i], value, 0); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Set(ctx, "n", []byte("1"), 0))
	buffer := NewBuffer(100 * 100)
	each := func(_ int, value []byte, _ Meta, err error) {
		if err != nil || len(value) != 100 {
			t.Error(len(value), err)
		}
	}
	for name, f := range map[string]func(ctx context.Context){
		"set":   func(ctx context.Context) { must(c.Set(ctx, "k", value, time.Minute)) },
		"get":   func(ctx context.Context) { _, err := c.Get(ctx, "k", dst); must(err) },
		"touch": func(ctx context.Context) { must(c.Touch(ctx, "k", time.Minute)) },
		"incr":  func(ctx context.Context) { _, err := c.Incr(ctx, "n", 1, CountOptions{}); must(err) },
		"miss": func(ctx context.Context) {
			if _, err := c.Get(ctx, "none", dst); err != ErrMiss {
				t.Fatal(err)
			}
		},
		"delete": func(ctx context.Context) {
			if err := c.Delete(ctx, "none"); err != ErrMiss {
				t.Fatal(err)
			}
		},
		"many": func(ctx context.Context) { must(c.GetMany(ctx, keys, buffer, each)) },
	} {
		must(c.Set(ctx, "k", value, 0))
		for with, ctx := range map[string]context.Context{"": background, " with a deadline": ctx} {
			// A collection in between empties the pool: the average is rounded down.
			if allocations := testing.AllocsPerRun(300, func() { f(ctx) }); allocations != 0 {
				t.Errorf("%s%s: %v allocations", name, with, allocations)
			}
		}
	}
}

func TestBurstsNeedOneConnectionAndFewWrites(t *testing.T) {
	socket, _ := live(t)
	c := opened(t, socket)
	for range 20 {
		var callers sync.WaitGroup
		for i := range 256 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				if err := c.Set(background, fmt.Sprint(i), []byte("v"), 0); err != nil {
					t.Error(err)
				}
			}()
		}
		callers.Wait()
	}
	counters := c.Counters()[socket]
	if counters.Dials != 1 || counters.Ops != 20*256 || counters.Replies != 20*256 {
		t.Errorf("%+v", counters)
	}
	t.Logf("%d writes, %d reads for %d operations", counters.Writes, counters.Reads, counters.Ops)
	if counters.Writes > counters.Ops/2 {
		t.Errorf("%+v", counters)
	}
}

// Each value contains its key: whatever is cancelled, no caller gets another's value, and the counts agree with the server's.
func TestStressWithCancellationsKeepsValuesApart(t *testing.T) {
	socket, _ := live(t)
	c := opened(t, socket)
	var callers sync.WaitGroup
	const each = 150
	for i := range 64 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			key := fmt.Sprintf("key%d", i)
			var dst []byte
			for j := range each {
				ctx, cancel := background, context.CancelFunc(func() {})
				if j%3 == 0 {
					ctx, cancel = context.WithTimeout(background, time.Duration(j*i%300)*time.Microsecond)
				}
				value, err := c.Get(ctx, key, dst[:0])
				if err == nil && !strings.HasPrefix(string(value), key+":") {
					t.Errorf("%s: %q", key, value)
				}
				if err == nil {
					dst = value
				}
				if err != nil && !errors.Is(err, ErrMiss) && !errors.Is(err, ErrTimeout) {
					t.Error(err)
				}
				if err := c.Set(ctx, key, []byte(fmt.Sprintf("%s:%d", key, j)), 0); err != nil && !errors.Is(err, ErrTimeout) {
					t.Error(err)
				}
				cancel()
			}
		}()
	}
	callers.Wait()
	if counters := c.Counters()[socket]; counters.Dials != 1 {
		t.Errorf("%+v", counters)
	}
}

func TestUpdatesOfManyAddUp(t *testing.T) {
	socket, _ := live(t)
	c := opened(t, socket)
	var callers sync.WaitGroup
	const n, each = 8, 25
	for range n {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for range each {
				err := c.Update(background, "log", UpdateOptions{Attempts: 10_000}, func(old []byte, _ Meta) ([]byte, error) {
					return append(old, 'x'), nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	callers.Wait()
	if value, err := c.Get(background, "log", nil); err != nil || string(value) != strings.Repeat("x", n*each) {
		t.Errorf("%d, %v", len(value), err)
	}
	own := errors.New("own")
	err := c.Update(background, "log", UpdateOptions{}, func([]byte, Meta) ([]byte, error) { return nil, own })
	if err != own {
		t.Error(err)
	}
	calls := 0
	err = c.Update(background, "log", UpdateOptions{Attempts: 3}, func(old []byte, _ Meta) ([]byte, error) {
		calls++
		return old, c.Set(background, "log", []byte("other"), 0)
	})
	if !errors.Is(err, ErrConflict) || calls != 3 {
		t.Errorf("%d, %v", calls, err)
	}
}

func TestUpdatesKnowTheItemAndMayKeepItsTime(t *testing.T) {
	socket, _ := live(t)
	c := opened(t, socket)
	options := UpdateOptions{TTL: time.Minute, KeepTTL: true, Want: WantSize}
	var told []Meta
	grow := func(old []byte, m Meta) ([]byte, error) {
		told = append(told, m)
		return append(old, 'x'), nil
	}
	left := func(key string) (Meta, []byte) {
		t.Helper()
		value, m, err := c.GetItem(background, key, nil, GetOptions{Want: WantTTL | WantFlags | WantCAS})
		if err != nil {
			t.Fatal(err)
		}
		return m, value
	}
	if _, err := c.Store(background, "k", []byte("ab"), StoreOptions{TTL: 10 * time.Hour, Flags: 7}); err != nil {
		t.Fatal(err)
	}
	before, _ := left("k")
	if err := c.Update(background, "k", options, grow); err != nil {
		t.Fatal(err)
	}
	m, value := left("k")
	if string(value) != "abx" || m.Flags != 7 || m.TTL < 9*time.Hour || m.TTL > 10*time.Hour {
		t.Errorf("%q, %+v", value, m)
	}
	if len(told) != 1 || told[0].Size != 2 || told[0].Flags != 7 || told[0].CAS != before.CAS || told[0].TTL < 9*time.Hour {
		t.Errorf("%+v", told)
	}
	// An item that never expires stays so, and a new one has the time of the options.
	if err := c.Set(background, "ever", nil, Forever); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ever", "new"} {
		if err := c.Update(background, key, options, grow); err != nil {
			t.Fatal(err)
		}
	}
	if m, _ := left("ever"); m.TTL != Forever || !m.knowsTTL {
		t.Errorf("%+v", m)
	}
	if m, _ := left("new"); m.TTL <= 0 || m.TTL > time.Minute {
		t.Errorf("%+v", m)
	}
	// Without KeepTTL the time is that of the options, and for ever if they have none.
	if err := c.Update(background, "k", UpdateOptions{}, grow); err != nil {
		t.Fatal(err)
	}
	if m, _ := left("k"); m.TTL != Forever {
		t.Errorf("%+v", m)
	}
	// Classic text returns no times: nothing is stored.
	old := opened(t, socket, classic)
	if err := old.Update(background, "k", options, grow); !errors.Is(err, ErrServer) || Applied(err) != NotSent {
		t.Errorf("%v", err)
	}
	if _, value := left("k"); string(value) != "abxx" {
		t.Errorf("%q", value)
	}
	if err := old.Update(background, "k", UpdateOptions{}, grow); err != nil {
		t.Error(err)
	}
}

func TestReportsOfStreamsAddUp(t *testing.T) {
	socket, server := live(t)
	for _, mode := range []string{"stream", "quiet", "classic quiet"} {
		t.Run(mode, func(t *testing.T) {
			var changes []func(*Config)
			if mode == "classic quiet" {
				changes = append(changes, classic)
			}
			c := opened(t, socket, changes...)
			s := c.Stream(Window{Ops: 100})
			if mode != "stream" {
				s = c.Quiet()
			}
			const n = 1000
			for i := range n {
				value := []byte(fmt.Sprint(i))
				if i == 500 {
					value = make([]byte, 2<<20)
				}
				if err := s.Set(background, fmt.Sprintf("%s%d", strings.ReplaceAll(mode, " ", ""), i), value, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Set(background, "not a key", nil, 0); !errors.Is(err, ErrBadKey) {
				t.Error(err)
			}
			report, err := s.Barrier(background)
			if err != nil || report.Sent != n || report.Stored != n-1 || report.Refused != 1 || report.Unknown != 0 ||
				len(report.First) != 1 || !errors.Is(report.First[0].Err, ErrTooLarge) {
				t.Errorf("%+v, %v", report, err)
			}
			for i := range n {
				value, err := c.Get(background, fmt.Sprintf("%s%d", strings.ReplaceAll(mode, " ", ""), i), nil)
				if (err == nil) == (i == 500) || (err == nil && string(value) != fmt.Sprint(i)) {
					t.Fatalf("%d: %q, %v", i, value, err)
				}
				if err := s.Delete(background, fmt.Sprintf("%s%d", strings.ReplaceAll(mode, " ", ""), i)); err != nil {
					t.Fatal(err)
				}
			}
			if report, err := s.Barrier(background); err != nil || report.Sent != n || report.Stored != n {
				t.Errorf("%+v, %v", report, err)
			}
			if report, err := s.Barrier(background); err != nil || report.Sent != 0 {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
	// The server dies in the middle: acknowledged writes were stored, and the others are reported.
	c := opened(t, socket)
	s := c.Stream(Window{Ops: 200})
	for i := range 2000 {
		if i == 1000 {
			_ = server.Process.Kill()
		}
		if err := s.Set(background, fmt.Sprintf("k%d", i), []byte("v"), 0); err != nil {
			t.Fatal(err)
		}
	}
	report, err := s.Barrier(background)
	if Fault(err) != FaultNetwork || report.Sent != 2000 || report.Sent != report.Stored+report.Refused+report.Unknown || report.Stored > 1000 {
		t.Errorf("%+v, %v", report, err)
	}
}
