//go:build unix

package compare

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"larder.example/clients/go/internal/live"
	facade "larder.example/clients/go/memcache"
)

// Both packages have the same defaults; the page on clients for Go has gomemcache's timeout.
func TestFacadeAndGomemcacheHaveTheSameDefaults(t *testing.T) {
	for _, of := range []struct {
		name       string
		one, other any
	}{
		{"DefaultTimeout", memcache.DefaultTimeout, facade.DefaultTimeout},
		{"DefaultMaxIdleConns", memcache.DefaultMaxIdleConns, facade.DefaultMaxIdleConns},
	} {
		if of.one != of.other {
			t.Errorf("%s: gomemcache's %v, the façade's %v", of.name, of.one, of.other)
		}
	}
	page, err := os.ReadFile("../../../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	const row = "| uses gomemcache, and has to |"
	_, rest, found := strings.Cut(string(page), row)
	line, _, _ := strings.Cut(rest, "\n")
	if said := fmt.Sprintf("`Timeout` (%d ms)", memcache.DefaultTimeout.Milliseconds()); !found || !strings.Contains(line, said) {
		t.Errorf("the page's row %q does not say %s:%s", row, said, line)
	}
}

// stored is an item as both clients return it, without its CAS, which differs between servers.
type stored struct {
	value string
	flags uint32
}

// library has the calls that both packages export. swap is about the item that get returned last.
type library struct {
	store     func(verb, key string, value []byte, flags uint32, expiration int32) error
	get       func(key string) (stored, error)
	getTouch  func(key string, expiration int32) (stored, error)
	multi     func(keys []string) (map[string]stored, error)
	swap      func(value []byte, flags uint32) error
	touch     func(key string, expiration int32) error
	delete    func(key string) error
	increment func(key string, delta uint64) (uint64, error)
	decrement func(key string, delta uint64) (uint64, error)
	flush     func() error
	close     func() error
}

func theirs(address string) library {
	c := memcache.New(address)
	c.Timeout = patience
	got := &memcache.Item{Key: "none"}
	as := func(item *memcache.Item, err error) (stored, error) {
		if err != nil {
			return stored{}, err
		}
		return stored{string(item.Value), item.Flags}, nil
	}
	verbs := map[string]func(*memcache.Item) error{
		"set": c.Set, "add": c.Add, "replace": c.Replace, "append": c.Append, "prepend": c.Prepend,
	}
	return library{
		store: func(verb, key string, value []byte, flags uint32, expiration int32) error {
			return verbs[verb](&memcache.Item{Key: key, Value: value, Flags: flags, Expiration: expiration})
		},
		get: func(key string) (stored, error) {
			item, err := c.Get(key)
			if err == nil {
				got = item
			}
			return as(item, err)
		},
		getTouch: func(key string, expiration int32) (stored, error) { return as(c.GetAndTouch(key, expiration)) },
		multi: func(keys []string) (map[string]stored, error) {
			items, err := c.GetMulti(keys)
			found := map[string]stored{}
			for key, item := range items {
				found[key], _ = as(item, nil)
			}
			return found, err
		},
		swap: func(value []byte, flags uint32) error {
			got.Value, got.Flags = value, flags
			return c.CompareAndSwap(got)
		},
		touch: c.Touch, delete: c.Delete, increment: c.Increment, decrement: c.Decrement, flush: c.FlushAll, close: c.Close,
	}
}

func ourFacade(address string) library {
	c := facade.New(address)
	c.Timeout = patience
	got := &facade.Item{Key: "none"}
	as := func(item *facade.Item, err error) (stored, error) {
		if err != nil {
			return stored{}, err
		}
		return stored{string(item.Value), item.Flags}, nil
	}
	verbs := map[string]func(*facade.Item) error{
		"set": c.Set, "add": c.Add, "replace": c.Replace, "append": c.Append, "prepend": c.Prepend,
	}
	return library{
		store: func(verb, key string, value []byte, flags uint32, expiration int32) error {
			return verbs[verb](&facade.Item{Key: key, Value: value, Flags: flags, Expiration: expiration})
		},
		get: func(key string) (stored, error) {
			item, err := c.Get(key)
			if err == nil {
				got = item
			}
			return as(item, err)
		},
		getTouch: func(key string, expiration int32) (stored, error) { return as(c.GetAndTouch(key, expiration)) },
		multi: func(keys []string) (map[string]stored, error) {
			items, err := c.GetMulti(keys)
			found := map[string]stored{}
			for key, item := range items {
				found[key], _ = as(item, nil)
			}
			return found, err
		},
		swap: func(value []byte, flags uint32) error {
			got.Value, got.Flags = value, flags
			return c.CompareAndSwap(got)
		},
		touch: c.Touch, delete: c.Delete, increment: c.Increment, decrement: c.Decrement, flush: c.FlushAll, close: c.Close,
	}
}

// outcome is an error in words for both packages: sentinels by name, others by the side at fault.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, memcache.ErrCacheMiss), errors.Is(err, facade.ErrCacheMiss):
		return "miss"
	case errors.Is(err, memcache.ErrCASConflict), errors.Is(err, facade.ErrCASConflict):
		return "conflict"
	case errors.Is(err, memcache.ErrNotStored), errors.Is(err, facade.ErrNotStored):
		return "not stored"
	case errors.Is(err, memcache.ErrMalformedKey), errors.Is(err, facade.ErrMalformedKey):
		return "malformed key"
	case strings.Contains(err.Error(), "client error"), strings.Contains(err.Error(), "CLIENT_ERROR"):
		return "the client's error"
	case errors.Is(err, memcache.ErrServerError), errors.Is(err, facade.ErrServerError), strings.Contains(err.Error(), "SERVER_ERROR"):
		return "the server's error"
	}
	return err.Error()
}

// step makes the same call with both, and returns the result of each.
func step(r *rand.Rand, both [2]library) (what string, said [2]string) {
	pool := []string{"a", "b", "c", "d", "e", "n", "m", strings.Repeat("k", 250), strings.Repeat("k", 251), "a b", "a\x7f", "日本"}
	key := pool[r.IntN(len(pool))]
	values := []string{"", "7", "18446744073709551615", "word", strings.Repeat("long ", 200)}
	value := []byte(values[r.IntN(len(values))])
	expiration := []int32{0, 0, 0, 1000, -1}[r.IntN(5)]
	flags := []uint32{0, 1, 1<<32 - 1}[r.IntN(3)]
	delta := []uint64{0, 1, 10, 1<<64 - 1}[r.IntN(4)]
	each := func(f func(l library) (any, error)) {
		for i, l := range both {
			result, err := f(l)
			said[i] = fmt.Sprintf("%v, %s", result, outcome(err))
		}
	}
	bare := func(f func(l library) error) { each(func(l library) (any, error) { return "", f(l) }) }
	verbs := []string{"set", "set", "set", "add", "replace", "append", "prepend"}
	switch n := r.IntN(100); {
	case n < 35:
		verb := verbs[r.IntN(len(verbs))]
		// Now and then the value is larger than a server accepts.
		if verb == "set" && r.IntN(50) == 0 {
			value = make([]byte, 2<<20)
		}
		what = fmt.Sprintf("%s %q, %d bytes, flags %d, expiration %d", verb, key, len(value), flags, expiration)
		bare(func(l library) error { return l.store(verb, key, value, flags, expiration) })
	case n < 55:
		what = fmt.Sprintf("get %q", key)
		each(func(l library) (any, error) { return l.get(key) })
	case n < 63:
		asked := []string{key, pool[r.IntN(len(pool))], pool[r.IntN(7)], "none"}
		what = fmt.Sprintf("get %q", asked)
		each(func(l library) (any, error) {
			found, err := l.multi(asked)
			var lines []string
			for _, key := range slices.Sorted(maps.Keys(found)) {
				lines = append(lines, fmt.Sprintf("%q: %v", key, found[key]))
			}
			return lines, err
		})
	case n < 73:
		what = fmt.Sprintf("swap what was got last for %d bytes, flags %d", len(value), flags)
		bare(func(l library) error { return l.swap(value, flags) })
	case n < 78:
		what = fmt.Sprintf("get and touch %q, %d", key, expiration)
		each(func(l library) (any, error) { return l.getTouch(key, expiration) })
	case n < 82:
		what = fmt.Sprintf("touch %q, %d", key, expiration)
		bare(func(l library) error { return l.touch(key, expiration) })
	case n < 87:
		what = fmt.Sprintf("delete %q", key)
		bare(func(l library) error { return l.delete(key) })
	case n < 93:
		what = fmt.Sprintf("increment %q by %d", key, delta)
		each(func(l library) (any, error) { return l.increment(key, delta) })
	case n < 99:
		what = fmt.Sprintf("decrement %q by %d", key, delta)
		each(func(l library) (any, error) { return l.decrement(key, delta) })
	default:
		what = "flush"
		bare(func(l library) error { return l.flush() })
	}
	return what, said
}

// The same calls, drawn by a seed, are made on a server each: both return the same, call by call.
func TestFacadeAndGomemcacheSayTheSame(t *testing.T) {
	const seeds, steps = 8, 1500
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			one, _ := live.Serve(t, "-t", "1")
			other, _ := live.Serve(t, "-t", "1")
			both := [2]library{theirs(one), ourFacade(other)}
			defer func() { _, _ = both[0].close(), both[1].close() }()
			r := rand.New(rand.NewPCG(seed, 36))
			var before []string
			outcomes := map[string]int{}
			for at := range steps {
				what, said := step(r, both)
				if before = append(before, what); len(before) > 8 {
					before = before[1:]
				}
				if said[0] != said[1] {
					t.Fatalf("step %d: gomemcache says %.200q, the façade %.200q of the last of\n%s", at, said[0], said[1], strings.Join(before, "\n"))
				}
				_, word, _ := strings.Cut(said[0], ", ")
				outcomes[word]++
			}
			// Every outcome occurred.
			for _, word := range []string{"done", "miss", "conflict", "not stored", "malformed key"} {
				found := 0
				for said, count := range outcomes {
					if strings.HasSuffix(said, word) {
						found += count
					}
				}
				if found == 0 {
					t.Errorf("%s: not once in %d steps", word, steps)
				}
			}
		})
	}
}
