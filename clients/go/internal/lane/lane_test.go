//go:build go1.25

package lane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/faulty"
	"larder.example/clients/go/internal/wire"
)

var background = context.Background()

const timeout = 500 * time.Millisecond

func options() Options {
	return Options{Server: "test", Timeout: timeout, Stall: 2 * time.Second, InFlight: 4096, Verify: true}
}

// in runs a test in simulated time; its return proves that no goroutine is left (I10).
func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// A channel belongs to the time in which it was made.
		ops = pool()
		f(t)
		// The server may be in the middle of a pause.
		time.Sleep(2 * time.Second)
	})
}

// served is a lane to a server in memory.
func served(s *faulty.Server, room int, o Options) *Lane {
	here, there := faulty.Pipe(room)
	go s.Serve(there)
	return New(here, o)
}

func request(l *Lane, ctx context.Context, r wire.Request, dst []byte) ([]byte, wire.Head, error) {
	op := NewOp()
	op.Dst = dst
	err := l.Do(ctx, op, &r, Now()+timeout)
	dst, head := op.Dst, op.Head
	if err != nil {
		dst = nil
	}
	op.Free()
	return dst, head, err
}

func set(l *Lane, key, value string) error {
	_, head, err := request(l, background, wire.Request{Verb: wire.Set, Key: key, Value: []byte(value)}, nil)
	if err == nil && head.Status != wire.Done {
		return fmt.Errorf("status %d", head.Status)
	}
	return err
}

func get(l *Lane, key string) (string, error) {
	value, head, err := request(l, background, wire.Request{Verb: wire.Get, Key: key}, nil)
	if err == nil && head.Status != wire.Value {
		return "", fault.Miss
	}
	return string(value), err
}

func outcome(err error) fault.Outcome { return fault.Of(err) }

func TestOneCallerWritesOnceAndReadsOnceARequest(t *testing.T) {
	in(t, func(t *testing.T) {
		l := served(&faulty.Server{}, 1<<20, options())
		for i := range 100 {
			if err := set(l, "k", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			if value, err := get(l, "k"); err != nil || value != fmt.Sprint(i) {
				t.Fatalf("%q, %v", value, err)
			}
		}
		c := l.Counters()
		if c.Ops != 200 || c.Replies != 200 || c.Writes != 200 || c.Reads != 200 || c.Yields != 0 || c.Helpers != 0 {
			t.Errorf("%+v", c)
		}
		l.Close(fault.Closed)
	})
}

// stopped is a lane to a server that answers nothing until it is released.
func stopped(t *testing.T, room int, o Options) (*Lane, func()) {
	t.Helper()
	here, there := faulty.Pipe(room)
	server := &faulty.Server{}
	return New(here, o), func() { go server.Serve(there) }
}

func TestManyCallersShareWrites(t *testing.T) {
	in(t, func(t *testing.T) {
		l, serve := stopped(t, 1<<20, options())
		var callers sync.WaitGroup
		for i := range 256 {
			callers.Go(func() {
				if err := set(l, fmt.Sprint(i), "v"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		serve()
		callers.Wait()
		if c := l.Counters(); c.Ops != 256 || c.Replies != 256 || c.Writes > 64 {
			t.Errorf("%+v", c)
		}
		l.Close(fault.Closed)
	})
}

func TestI1FailureEndsEveryOpOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		l, _ := stopped(t, 1<<20, options())
		var callers sync.WaitGroup
		errs := make(chan error, 100)
		for i := range 100 {
			callers.Go(func() { errs <- set(l, fmt.Sprint(i), "v") })
		}
		synctest.Wait()
		l.Close(fault.Closed)
		callers.Wait()
		for range 100 {
			if err := <-errs; !errors.Is(err, fault.Closed) || outcome(err) != fault.Unknown {
				t.Errorf("%v, %v", err, outcome(err))
			}
		}
		if err := set(l, "later", "v"); !errors.Is(err, fault.Closed) || outcome(err) != fault.NotSent {
			t.Errorf("%v, %v", err, outcome(err))
		}
		l.Close(fault.Closed)
	})
}

func TestI2ReplyToAnotherQuestionEndsTheLane(t *testing.T) {
	wrong := map[string]func(request, reply string) string{
		"another opaque": func(_, reply string) string { return strings.Replace(reply, " O2", " O3", 1) },
		"no opaque":      func(_, reply string) string { return strings.Replace(reply, " O2", "", 1) },
		"twice": func(_, reply string) string {
			if strings.Contains(reply, " O2") {
				return reply + reply
			}
			return reply
		},
		"another status": func(request, reply string) string {
			if strings.Contains(request, " O2") {
				return "NS O2\r\n"
			}
			return reply
		},
		"a stray line": func(request, reply string) string {
			if strings.Contains(request, " O2") {
				return "hello\r\n" + reply
			}
			return reply
		},
		"too short a value": func(_, reply string) string { return strings.Replace(reply, "VA 4", "VA 3", 1) },
	}
	for name, replace := range wrong {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				l := served(&faulty.Server{Replace: replace}, 1<<20, options())
				if err := set(l, "k", "four"); err != nil {
					t.Fatal(err)
				}
				_, err := get(l, "k")
				if name == "twice" {
					// The first reply is right; the next answers no request.
					_, err = get(l, "k")
				}
				if !errors.Is(err, fault.Protocol) || l.Alive() {
					t.Errorf("%v", err)
				}
				if _, err := get(l, "k"); !errors.Is(err, fault.Protocol) || outcome(err) != fault.NotSent {
					t.Errorf("%v", err)
				}
				l.Close(fault.Closed)
			})
		})
	}
}

func TestI3NothingIsWrittenToDstAfterTimeout(t *testing.T) {
	in(t, func(t *testing.T) {
		l, serve := stopped(t, 1<<20, options())
		const room = 64
		buffers := make([][]byte, 32)
		var callers sync.WaitGroup
		for i := range buffers {
			buffers[i] = bytes.Repeat([]byte{'-'}, room)
			callers.Go(func() {
				_, _, err := request(l, background, wire.Request{Verb: wire.Get, Key: "k"}, buffers[i][:0])
				if !errors.Is(err, fault.Timeout) || outcome(err) != fault.Unknown {
					t.Errorf("%v", err)
				}
			})
		}
		started := time.Now()
		callers.Wait()
		if took := time.Since(started); took > timeout+2*stepMax {
			t.Errorf("a timeout of %v took %v", timeout, took)
		}
		serve()
		// I6: the replies of abandoned ops are read and dropped, and the lane stays.
		if err := set(l, "k", "value"); err != nil {
			t.Fatal(err)
		}
		if value, err := get(l, "k"); err != nil || value != "value" {
			t.Fatalf("%q, %v", value, err)
		}
		for _, buffer := range buffers {
			if string(buffer) != strings.Repeat("-", room) {
				t.Fatalf("%q", buffer)
			}
		}
		if c := l.Counters(); c.Abandoned != 32 || c.Replies != 34 {
			t.Errorf("%+v", c)
		}
		l.Close(fault.Closed)
	})
}

// throughASmallWindow has callers write and read values over a lane that takes seven bytes at a time.
func throughASmallWindow(t *testing.T, o Options) {
	t.Helper()
	in(t, func(t *testing.T) {
		l := served(&faulty.Server{}, 7, o)
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				value := strings.Repeat(strconv.Itoa(i%10), 300+i)
				if err := set(l, fmt.Sprint(i), value); err != nil {
					t.Error(err)
				}
				if got, err := get(l, fmt.Sprint(i)); err != nil || got != value {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		callers.Wait()
		l.Close(fault.Closed)
	})
}

func TestI4RequestsAreWrittenWholeThroughASmallWindow(t *testing.T) {
	throughASmallWindow(t, options())
}

func TestI5WhoWritesMuchDoesNotWaitForWhoReadsNothing(t *testing.T) {
	// Few: the part that does not go on within a step finds a reader. Many: there is a reader before the writing begins.
	for _, n := range []int{1000, 2 * readerFrom / len("mg k v\r\n")} {
		in(t, func(t *testing.T) {
			// The server answers each request before it takes the next, and holds few bytes: without a reader the
			// writer would wait for ever.
			l := served(&faulty.Server{}, 100, options())
			if err := set(l, "k", strings.Repeat("v", 100)); err != nil {
				t.Fatal(err)
			}
			var b []byte
			for range n {
				b = wire.Meta.Write(b, &wire.Request{Verb: wire.Get, Key: "k"})
			}
			started := time.Now()
			op := NewOp()
			if err := l.Submit(background, op, Group{Bytes: b, Verb: wire.Get, Replies: n}, Now()+time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := l.Wait(background, op); err != nil || len(op.Results) != n || len(op.Dst) != n*100 {
				t.Fatalf("%v, %d", err, len(op.Results))
			}
			if l.Counters().Helpers == 0 {
				t.Error("nobody read for the writer")
			}
			if took := time.Since(started); len(b) > readerFrom && took != 0 {
				t.Errorf("the writer was stuck for %v", took)
			}
			op.Free()
			l.Close(fault.Closed)
		})
	}
}

func TestWriterThatCannotGoOnReturnsInTimeAndTheRestIsWritten(t *testing.T) {
	in(t, func(t *testing.T) {
		l, serve := stopped(t, 100, options())
		started := time.Now()
		err := set(l, "k", strings.Repeat("v", 1000))
		if !errors.Is(err, fault.Timeout) || outcome(err) != fault.Unknown {
			t.Fatal(err)
		}
		if took := time.Since(started); took > timeout+2*stepMax {
			t.Errorf("took %v", took)
		}
		serve()
		if value, err := get(l, "k"); err != nil || len(value) != 1000 {
			t.Errorf("%d, %v", len(value), err)
		}
		l.Close(fault.Closed)
	})
}

func TestValuesThatAreNotCopiedArriveWholeThroughASmallWindow(t *testing.T) {
	o := options()
	o.Vector = 100
	throughASmallWindow(t, o)
}

func TestCallerWhoseValueIsNotCopiedReturnsInTimeAndOwnsItAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		o := options()
		o.Vector = 100
		l, serve := stopped(t, 100, o)
		value := bytes.Repeat([]byte{'v'}, 1000)
		started := time.Now()
		_, _, err := request(l, background, wire.Request{Verb: wire.Set, Key: "k", Value: value}, nil)
		if !errors.Is(err, fault.Timeout) || outcome(err) != fault.Unknown {
			t.Fatal(err)
		}
		if took := time.Since(started); took > timeout+2*stepMax {
			t.Errorf("took %v", took)
		}
		// The server must not get bytes that are written from now on.
		clear(value)
		serve()
		if got, err := get(l, "k"); err != nil || got != strings.Repeat("v", 1000) {
			t.Errorf("%d, %v", len(got), err)
		}
		l.Close(fault.Closed)
	})
}

func TestConnectionThatEndsWithinAValueThatIsNotCopied(t *testing.T) {
	in(t, func(t *testing.T) {
		o := options()
		o.Vector = 100
		here, there := faulty.Pipe(10)
		l := New(here, o)
		var err error
		var callers sync.WaitGroup
		callers.Go(func() { err = set(l, "k", strings.Repeat("v", 1000)) })
		synctest.Wait()
		_ = there.Close()
		callers.Wait()
		if !errors.Is(err, fault.Lost) || outcome(err) != fault.Unknown {
			t.Error(err)
		}
		l.Close(fault.Closed)
	})
}

func TestI7SilentServerIsGivenUpAfterStall(t *testing.T) {
	in(t, func(t *testing.T) {
		l, _ := stopped(t, 1<<20, options())
		started := time.Now()
		var err error
		for l.Alive() {
			if err = set(l, "k", "v"); !errors.Is(err, fault.Timeout) && !errors.Is(err, fault.Lost) {
				t.Fatal(err)
			}
		}
		if took := time.Since(started); took < 2*time.Second || took > 2*time.Second+timeout {
			t.Errorf("given up after %v", took)
		}
		if !errors.Is(err, fault.Lost) || outcome(err) != fault.Unknown {
			t.Errorf("%v", err)
		}
		l.Close(fault.Closed)
	})
}

func TestI7WhatWasNotWrittenIsSaidToBeNotSent(t *testing.T) {
	in(t, func(t *testing.T) {
		here, there := faulty.Pipe(10)
		l := New(here, options())
		var first, second error
		var callers sync.WaitGroup
		callers.Go(func() { first = set(l, "k", strings.Repeat("v", 100)) })
		synctest.Wait()
		callers.Go(func() { second = set(l, "l", "v") })
		synctest.Wait()
		_ = there.Close()
		callers.Wait()
		if !errors.Is(first, fault.Lost) || outcome(first) != fault.Unknown {
			t.Errorf("%v", first)
		}
		if !errors.Is(second, fault.Lost) || outcome(second) != fault.NotSent {
			t.Errorf("%v", second)
		}
		l.Close(fault.Closed)
	})
}

func TestCancelledCallerReturnsAtOnceAndGivesTheRoleAway(t *testing.T) {
	in(t, func(t *testing.T) {
		l, serve := stopped(t, 1<<20, options())
		ctx, cancel := context.WithCancel(background)
		var leader, follower error
		var callers sync.WaitGroup
		callers.Go(func() {
			_, _, leader = request(l, ctx, wire.Request{Verb: wire.Get, Key: "a"}, nil)
		})
		synctest.Wait()
		callers.Go(func() { follower = set(l, "b", "v") })
		synctest.Wait()
		started := time.Now()
		cancel()
		time.Sleep(2 * stepMax)
		synctest.Wait()
		if !errors.Is(leader, context.Canceled) || !errors.Is(leader, fault.Timeout) {
			t.Errorf("%v after %v", leader, time.Since(started))
		}
		serve()
		callers.Wait()
		if follower != nil {
			t.Error(follower)
		}
		l.Close(fault.Closed)
	})
}

func TestFullLaneMakesCallersWaitAndNotForEver(t *testing.T) {
	in(t, func(t *testing.T) {
		o := options()
		o.InFlight = 4
		l, serve := stopped(t, 1<<20, o)
		var callers sync.WaitGroup
		results := make([]error, 8)
		for i := range results {
			callers.Go(func() { results[i] = set(l, fmt.Sprint(i), "v") })
		}
		callers.Wait()
		counts := map[fault.Outcome]int{}
		for _, err := range results {
			if !errors.Is(err, fault.Timeout) {
				t.Error(err)
			}
			counts[outcome(err)]++
		}
		if counts[fault.Unknown] != 4 || counts[fault.NotSent] != 4 {
			t.Errorf("%v", counts)
		}
		serve()
		for i := range 8 {
			if err := set(l, fmt.Sprint(i), "v"); err != nil {
				t.Error(err)
			}
		}
		l.Close(fault.Closed)
	})
}

func TestLargeValuesOfEveryLengthArriveWhole(t *testing.T) {
	in(t, func(t *testing.T) {
		l := served(&faulty.Server{Random: rand.New(rand.NewPCG(1, 1))}, 50_000, options())
		for _, size := range []int{0, 1, readBytes - 40, readBytes - 12, readBytes, readBytes + 1, 100_000, wholeBytes - 2, wholeBytes, 3*wholeBytes + 7} {
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(i * 7 % 251)
			}
			if err := set(l, "k", string(value)); err != nil {
				t.Fatal(size, err)
			}
			for _, dst := range [][]byte{nil, make([]byte, 0, size+10), []byte("before")} {
				got, _, err := request(l, background, wire.Request{Verb: wire.Get, Key: "k"}, dst)
				if err != nil || !bytes.Equal(got[len(dst):], value) || !bytes.Equal(got[:len(dst)], dst) {
					t.Fatalf("%d bytes: %d, %v", size, len(got), err)
				}
			}
			if err := set(l, "small", "s"); err != nil {
				t.Fatal(size, err)
			}
		}
		l.Close(fault.Closed)
	})
}

func TestCutAfterAnyByteLosesNothingUntold(t *testing.T) {
	const replies = "HD O1\r\nVA 5 O2\r\nhello\r\nHD O3\r\n"
	for cut := 1; cut <= len(replies); cut++ {
		in(t, func(t *testing.T) {
			s := &faulty.Server{Cut: cut}
			l := served(s, 1<<20, options())
			done := 0
			var failed error
			for _, f := range []func() error{
				func() error { return set(l, "k", "hello") },
				func() error {
					value, err := get(l, "k")
					if err == nil && value != "hello" {
						t.Errorf("cut %d: %q", cut, value)
					}
					return err
				},
				func() error { return set(l, "k", "again") },
			} {
				if err := f(); err != nil {
					failed = err
					break
				}
				done++
			}
			whole := 0
			for _, end := range []int{7, 23, 30} {
				if cut >= end {
					whole++
				}
			}
			if done != whole || (done < 3 && (!errors.Is(failed, fault.Lost) || outcome(failed) != fault.Unknown)) {
				t.Errorf("cut %d: %d done of %d, %v", cut, done, whole, failed)
			}
			l.Close(fault.Closed)
		})
	}
}

// A random scheduler of calls, cancellations and server steps: a caller reads only values that it may have written.
func TestRandomCallsAgreeWithAModel(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		in(t, func(t *testing.T) {
			if !random(t, seed) {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

func random(t *testing.T, seed uint64) bool {
	dice := rand.New(rand.NewPCG(seed, 2))
	o := options()
	o.InFlight = []int{4, 64, 4096}[dice.IntN(3)]
	s := &faulty.Server{Random: rand.New(rand.NewPCG(seed, 3)), Pause: []time.Duration{0, 50 * time.Millisecond, 900 * time.Millisecond}[dice.IntN(3)]}
	if dice.IntN(3) == 0 {
		s.Cut = 1 + dice.IntN(4000)
	}
	room := []int{1, 20, 3000, 1 << 20}[dice.IntN(4)]
	l := served(s, room, o)
	var callers sync.WaitGroup
	var mu sync.Mutex
	calls, unsent := 0, 0
	for c := range 1 + dice.IntN(24) {
		mine := rand.New(rand.NewPCG(seed, uint64(c)+10))
		callers.Go(func() {
			// Possible values of the key: an abandoned write is applied late, so it stays possible until a later acknowledged one (the
			// lane keeps the order).
			may := map[string]bool{"": true}
			key := fmt.Sprintf("key%d", c)
			for i := range 20 {
				ctx, cancel := background, context.CancelFunc(func() {})
				if mine.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(background, time.Duration(mine.IntN(40_000_000)))
				}
				r := wire.Request{Verb: wire.Get, Key: key}
				value := fmt.Sprintf("%s:%d:%s", key, i, strings.Repeat("x", mine.IntN(200)))
				if mine.IntN(2) == 0 {
					r.Verb, r.Value = wire.Set, []byte(value)
				}
				dst := make([]byte, 0, 16)
				got, head, err := request(l, ctx, r, dst)
				cancel()
				mu.Lock()
				calls++
				if err != nil && fault.Of(err) == fault.NotSent {
					unsent++
				}
				mu.Unlock()
				switch {
				case err == nil && r.Verb == wire.Set:
					may = map[string]bool{value: true}
				case r.Verb == wire.Set && fault.Of(err) == fault.Unknown:
					may[value] = true
				case err == nil:
					text := string(got)
					if head.Status == wire.Absent {
						text = ""
					}
					if !may[text] {
						t.Errorf("seed %d: %s is %q, may be %v", seed, key, text, may)
					}
				}
			}
		})
	}
	callers.Wait()
	c := l.Counters()
	if c.Ops > uint64(calls) || c.Ops+uint64(unsent) < uint64(calls) || c.Replies > c.Ops {
		t.Errorf("seed %d: %d calls, %d not sent, %+v", seed, calls, unsent, c)
	}
	l.Close(fault.Closed)
	return !t.Failed()
}

func TestQuietGroupTellsWhatWasRefused(t *testing.T) {
	in(t, func(t *testing.T) {
		l := served(&faulty.Server{}, 1<<20, options())
		if err := set(l, "there", "v"); err != nil {
			t.Fatal(err)
		}
		var b []byte
		for i, key := range []string{"a", "there", "b", "there"} {
			b = wire.Meta.Write(b, &wire.Request{Verb: wire.Add, Key: key, Value: []byte("v"), Opaque: uint32(100 + i), HasOpaque: true, Quiet: true})
		}
		b = wire.Meta.Write(b, &wire.Request{Verb: wire.Noop})
		op := NewOp()
		if err := l.Submit(background, op, Group{Bytes: b, Verb: wire.Add, Replies: 1, Quiet: true}, Now()+timeout); err != nil {
			t.Fatal(err)
		}
		if err := l.Wait(background, op); err != nil || !op.Whole || len(op.Results) != 2 {
			t.Fatalf("%v, %+v", err, op.Results)
		}
		if op.Results[0].Opaque != 101 || op.Results[1].Opaque != 103 || op.Results[0].Head.Status != wire.NotStored {
			t.Errorf("%+v", op.Results)
		}
		op.Free()
		l.Close(fault.Closed)
	})
}

// errorConn fails as networks do.
type errorConn struct {
	net.Conn
	err error
}

func (c errorConn) Write([]byte) (int, error) { return 0, c.err }

func TestWriteErrorFailsWithoutClaimingToHaveSent(t *testing.T) {
	in(t, func(t *testing.T) {
		here, there := faulty.Pipe(100)
		l := New(errorConn{here, io.ErrClosedPipe}, options())
		err := set(l, "k", "v")
		if !errors.Is(err, fault.Lost) || outcome(err) != fault.NotSent || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v", err)
		}
		_ = there.Close()
		l.Close(fault.Closed)
	})
}
