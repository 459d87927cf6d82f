package memcache_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"larder.example/clients/go/internal/live"
	"larder.example/clients/go/memcache"
)

func served(t *testing.T) string {
	t.Helper()
	live.Leaks(t)
	socket, _ := live.Serve(t, "-t", "1")
	return socket
}

func TestFacadeAllocatesItemAndValueAlone(t *testing.T) {
	c := memcache.New(served(t))
	c.Timeout = 10 * time.Minute
	defer c.Close()
	item := &memcache.Item{Key: "k", Value: []byte(strings.Repeat("v", 100))}
	if n := testing.AllocsPerRun(300, func() {
		if err := c.Set(item); err != nil {
			t.Fatal(err)
		}
	}); n != 0 && !raceEnabled {
		t.Errorf("set: %v allocations", n)
	}
	if n := testing.AllocsPerRun(300, func() {
		if it, err := c.Get("k"); err != nil || len(it.Value) != 100 {
			t.Fatal(err)
		}
	}); n > 2 && !raceEnabled {
		t.Errorf("get: %v allocations", n)
	}
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprintf("m%d", i)
		if err := c.Set(&memcache.Item{Key: keys[i], Value: item.Value}); err != nil {
			t.Fatal(err)
		}
	}
	// The map, two blocks of items, three of values.
	if n := testing.AllocsPerRun(100, func() {
		if found, err := c.GetMulti(keys); err != nil || len(found) != len(keys) {
			t.Fatal(err)
		}
	}); n > 12 && !raceEnabled {
		t.Errorf("get of 100 keys: %v allocations", n)
	}
}

func TestFacadeItemsOfOneCallAreTheCallersOwn(t *testing.T) {
	c := memcache.New(served(t))
	c.Timeout = 10 * time.Minute
	defer c.Close()
	// Small values that lie together, the longest of them, longer ones, and none.
	keys := make([]string, 200)
	value := func(i int) string {
		return strings.Repeat(string(rune('a'+i%26)), []int{1, 100, 511, 512, 513, 0, 5000}[i%7])
	}
	for i := range keys {
		keys[i] = fmt.Sprintf("own%d", i)
		if err := c.Set(&memcache.Item{Key: keys[i], Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
	}
	found, err := c.GetMulti(append([]string{"absent"}, keys...))
	if err != nil || len(found) != len(keys) {
		t.Fatal(len(found), err)
	}
	// Bytes that are appended to one value, or written into it, are in no other.
	for i, key := range keys {
		item := found[key]
		if item.Key != key || string(item.Value) != value(i) {
			t.Fatalf("%s: %d bytes", key, len(item.Value))
		}
		item.Value = append(item.Value, "added"...)
		for at := range item.Value {
			item.Value[at] = '!'
		}
	}
	if again, err := c.GetMulti(keys); err != nil || string(again[keys[3]].Value) != value(3) {
		t.Fatal(err)
	}
}

func TestFacadeOfManyCallersAndKeys(t *testing.T) {
	c := memcache.New(served(t))
	c.Timeout = 10 * time.Minute
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			var keys []string
			for j := range 30 {
				key := fmt.Sprintf("%d-%d", i, j)
				keys = append(keys, key)
				if err := c.Set(&memcache.Item{Key: key, Value: []byte(key), Flags: uint32(j)}); err != nil {
					t.Error(err)
				}
			}
			found, err := c.GetMulti(append(keys, "none"))
			if err != nil || len(found) != 30 {
				t.Error(len(found), err)
			}
			for key, item := range found {
				if string(item.Value) != key || item.CasID == 0 {
					t.Errorf("%s: %+v", key, item)
				}
			}
		}()
	}
	callers.Wait()
	empty := &memcache.Item{Key: "empty", CasID: 0}
	if err := c.CompareAndSwap(empty); err != memcache.ErrCacheMiss {
		t.Error(err)
	}
	if err := c.Set(empty); err != nil {
		t.Error(err)
	}
	if err := c.CompareAndSwap(empty); err != memcache.ErrCASConflict {
		t.Errorf("by the CAS 0, which no item has: %v", err)
	}
	if it, err := c.GetAndTouch("empty", -1); err != nil || it.Value == nil {
		t.Error(it, err)
	}
	if _, err := c.Get("empty"); err != memcache.ErrCacheMiss {
		t.Errorf("an expiration of -1 is over at once: %v", err)
	}
	if err := c.Set(&memcache.Item{Key: "large", Value: make([]byte, 2<<20)}); !errors.Is(err, memcache.ErrServerError) {
		t.Error(err)
	}
	// A closed client may be used again.
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Ping(); err != nil {
		t.Error(err)
	}
	_ = c.Close()
}

func TestFacadeErrorsOfTheNetworkAreNetErrors(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := memcache.New(listener.Addr().String())
	c.Timeout = 50 * time.Millisecond
	defer c.Close()
	_, err = c.Get("k")
	var network net.Error
	if !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("%v", err)
	}
	if _, err := memcache.New().Get("k"); err != memcache.ErrNoServers {
		t.Error(err)
	}
}
