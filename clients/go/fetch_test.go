//go:build unix

package larder

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wait is long enough for any machine.
var wait = FetchOptions{WaitMax: patience}

func TestFetchLoadsOnceForAllCallersOfAllProcesses(t *testing.T) {
	socket, _ := live(t)
	for name, processes := range map[string][]*Client{
		"meta": {opened(t, socket), opened(t, socket), opened(t, socket)}, "classic": {opened(t, socket, classic)},
	} {
		var loads atomic.Int32
		var callers sync.WaitGroup
		for i := range 60 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				value, err := processes[i%len(processes)].Fetch(background, name, []byte("="), wait, func(context.Context) ([]byte, time.Duration, error) {
					loads.Add(1)
					time.Sleep(20 * time.Millisecond)
					return []byte("loaded"), time.Minute, nil
				})
				if err != nil || string(value) != "=loaded" {
					t.Errorf("%q, %v", value, err)
				}
			}()
		}
		callers.Wait()
		// Without leases, a caller that looked before the value was stored, and asks after it was loaded, loads it once more.
		if n := loads.Load(); n != 1 && (name == "meta" || n > 60) {
			t.Errorf("%s: %d loads", name, n)
		}
		if value, err := processes[0].Get(background, name, nil); err != nil || string(value) != "loaded" {
			t.Errorf("%q, %v", value, err)
		}
	}
}

func TestFetchGivesStaleValuesWhileOneRenews(t *testing.T) {
	socket, _ := live(t)
	c, other := opened(t, socket), opened(t, socket)
	must(t, c.Set(background, "k", []byte("old"), time.Hour))
	must(t, c.Invalidate(background, "k", time.Minute))
	loading, loaded := make(chan struct{}), make(chan struct{})
	find := func(context.Context) ([]byte, time.Duration, error) {
		close(loading)
		<-loaded
		return []byte("new"), time.Hour, nil
	}
	if value, err := c.Fetch(background, "k", nil, wait, find); err != nil || string(value) != "old" {
		t.Fatalf("%q, %v", value, err)
	}
	<-loading
	for range 10 {
		if value, err := other.Fetch(background, "k", nil, wait, nil); err != nil || string(value) != "old" {
			t.Fatalf("%q, %v", value, err)
		}
	}
	close(loaded)
	until(t, "the new value", func() bool {
		value, err := other.Get(background, "k", nil)
		return err == nil && string(value) == "new"
	})
	// The value is about to expire: one caller renews it, and all get the present value.
	again := make(chan struct{})
	must(t, c.Set(background, "k", []byte("soon"), 30*time.Second))
	o := FetchOptions{Refresh: time.Minute, WaitMax: patience}
	if value, err := c.Fetch(background, "k", nil, o, func(context.Context) ([]byte, time.Duration, error) {
		defer close(again)
		return []byte("renewed"), time.Hour, nil
	}); err != nil || string(value) != "soon" {
		t.Errorf("%q, %v", value, err)
	}
	<-again
	until(t, "the renewed value", func() bool {
		value, err := other.Get(background, "k", nil)
		return err == nil && string(value) == "renewed"
	})
}

func TestFetchDoesNotStoreWhatWasDeletedMeanwhile(t *testing.T) {
	socket, _ := live(t)
	c, other := opened(t, socket), opened(t, socket)
	for name, change := range map[string]func(key string) error{
		"deleted":     func(key string) error { return other.Delete(background, key) },
		"invalidated": func(key string) error { return other.Invalidate(background, key, time.Minute) },
		"set":         func(key string) error { return other.Set(background, key, []byte("newer"), 0) },
	} {
		value, err := c.Fetch(background, name, nil, wait, func(context.Context) ([]byte, time.Duration, error) {
			return []byte("from before"), time.Hour, change(name)
		})
		if err != nil || string(value) != "from before" {
			t.Errorf("%s: %q, %v", name, value, err)
		}
		if value, err := other.Get(background, name, nil); err == nil && string(value) == "from before" {
			t.Errorf("%s: stored all the same", name)
		}
	}
}

func TestLoadThatFailsIsToldAndLeavesNobodyWaiting(t *testing.T) {
	socket, _ := live(t)
	c, other := opened(t, socket), opened(t, socket)
	if _, err := c.Fetch(background, "k", nil, wait, func(context.Context) ([]byte, time.Duration, error) { return nil, 0, errOwn }); err != errOwn {
		t.Error(err)
	}
	// The lease was given back: the next caller loads at once.
	began := time.Now()
	value, err := other.Fetch(background, "k", nil, FetchOptions{WaitMax: time.Hour}, func(context.Context) ([]byte, time.Duration, error) {
		return []byte("v"), time.Minute, nil
	})
	if err != nil || string(value) != "v" || time.Since(began) > patience {
		t.Errorf("%q, %v", value, err)
	}
	// A caller that gives up does not take the others with it.
	ctx, cancel := context.WithCancel(background)
	loading := make(chan struct{})
	var callers sync.WaitGroup
	callers.Add(1)
	go func() {
		defer callers.Done()
		_, err := c.Fetch(ctx, "l", nil, wait, func(ctx context.Context) ([]byte, time.Duration, error) {
			close(loading)
			<-ctx.Done()
			return nil, 0, ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	<-loading
	for i := range 8 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			value, err := c.Fetch(background, "l", nil, wait, func(context.Context) ([]byte, time.Duration, error) {
				return []byte("other"), time.Minute, nil
			})
			if err != nil || string(value) != "other" {
				t.Errorf("%d: %q, %v", i, value, err)
			}
		}()
	}
	cancel()
	callers.Wait()
	// Another client holds a lease and never fills it.
	if _, lease, err := other.GetOrLease(background, "m", nil, LeaseOptions{Vivify: time.Hour}); err != nil || lease.State != MissWon {
		t.Fatal(lease, err)
	}
	value, err = c.Fetch(background, "m", nil, FetchOptions{WaitMax: 20 * time.Millisecond}, func(context.Context) ([]byte, time.Duration, error) {
		return []byte("own"), time.Minute, nil
	})
	if err != nil || string(value) != "own" {
		t.Errorf("%q, %v", value, err)
	}
	ctx, cancel = context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	if _, _, err := other.GetOrLease(background, "n", nil, LeaseOptions{Vivify: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fetch(ctx, "n", nil, wait, func(ctx context.Context) ([]byte, time.Duration, error) {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestFetchLoadsWhereTheCacheDoesNotAnswer(t *testing.T) {
	socket, server := live(t)
	c := opened(t, socket)
	_ = server.Process.Kill()
	_ = server.Wait()
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			value, err := c.Fetch(background, fmt.Sprint(i%2), nil, FetchOptions{}, func(context.Context) ([]byte, time.Duration, error) {
				return []byte("v"), time.Minute, nil
			})
			if err != nil || string(value) != "v" {
				t.Errorf("%q, %v", value, err)
			}
		}()
	}
	callers.Wait()
	if _, err := c.Fetch(background, "not a key", nil, FetchOptions{}, nil); err != ErrBadKey {
		t.Error(err)
	}
}

func TestClosingEndsWhatIsRenewedInTheBackground(t *testing.T) {
	socket, _ := live(t)
	c := opened(t, socket)
	must(t, c.Set(background, "k", []byte("old"), time.Hour))
	must(t, c.Invalidate(background, "k", time.Minute))
	ended := make(chan error, 1)
	if _, err := c.Fetch(background, "k", nil, FetchOptions{LoadTimeout: time.Hour}, func(ctx context.Context) ([]byte, time.Duration, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, 0, ctx.Err()
	}); err != nil {
		t.Fatal(err)
	}
	must(t, c.Close())
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
