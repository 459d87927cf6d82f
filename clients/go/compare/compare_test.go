//go:build unix

package compare

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"larder.example/clients/go/internal/live"
)

const (
	valueBytes = 100
	keys       = 1024
)

// patience is a timeout that no call of a healthy server reaches.
const patience = 10 * time.Minute

var keyNames = func() []string {
	all := make([]string, keys)
	for i := range all {
		all[i] = fmt.Sprintf("key:%d", i)
	}
	return all
}()

// value is the value of a key.
func value(i, bytes int) []byte {
	v := make([]byte, bytes)
	for j := range v {
		v[j] = byte('a' + (i+j)%26)
	}
	return v
}

// right says whether a value is the key's. It compares three places, so that the check costs almost nothing.
func right(got []byte, i int) bool {
	return len(got) == valueBytes && got[0] == byte('a'+i%26) && got[50] == byte('a'+(i+50)%26) && got[99] == byte('a'+(i+99)%26)
}

func all(t testing.TB, callers int) []contender {
	memcached, redis, _ := live.ServeTCP(t)
	contenders := []contender{
		ours(t, memcached, patience), oursAsGomemcache(memcached, patience), gomemcache(memcached, max(callers, 2)+1, patience), rueidisClient(t, redis),
	}
	if callers == 1 {
		contenders = append(contenders, byHand(t, memcached))
	}
	for _, c := range contenders {
		t.Cleanup(c.close)
	}
	for i, key := range keyNames {
		if err := contenders[0].set(key, value(i, valueBytes)); err != nil {
			t.Fatal(err)
		}
	}
	return contenders
}

func TestContendersDoTheSameWork(t *testing.T) {
	large := value(7, 300_000)
	for _, c := range all(t, 1) {
		for i, key := range keyNames[:50] {
			if got, err := c.get(key, nil); err != nil || !right(got, i) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
			if err := c.set(c.name+key, value(i, valueBytes)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if got, err := c.get(c.name+key, nil); err != nil || !right(got, i) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
		}
		if c.many != nil {
			n := 0
			if err := c.many(keyNames[:100], func(v []byte) { n += len(v) }); err != nil || n != 100*valueBytes {
				t.Errorf("%s: %d, %v", c.name, n, err)
			}
		}
		if err := c.set("large", large); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got, err := c.get("large", nil); err != nil || !slices.Equal(got, large) {
			t.Errorf("%s: %d, %v", c.name, len(got), err)
		}
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// visit has this many callers repeat f for this long, and returns the processor time of an operation.
func visit(b *testing.B, callers int, length time.Duration, f func(caller, i int, dst []byte) error) float64 {
	var over atomic.Bool
	var ops atomic.Int64
	var everybody sync.WaitGroup
	runtime.GC()
	used := processorTime()
	for caller := range callers {
		everybody.Add(1)
		go func() {
			defer everybody.Done()
			dst := make([]byte, 0, 2*valueBytes)
			n := 0
			for ; !over.Load(); n++ {
				if err := f(caller, n, dst); err != nil {
					b.Error(err)
					break
				}
			}
			ops.Add(int64(n))
		}()
	}
	time.Sleep(length)
	over.Store(true)
	everybody.Wait()
	return float64(processorTime()-used) / float64(max(ops.Load(), 1))
}

// rounds lets contenders take turns and reports their medians, and the medians of their ratios to the first.
func rounds(b *testing.B, n int, contenders []contender, f func(c contender) float64) {
	figures := make([][]float64, len(contenders))
	for range n {
		for _, i := range rand.Perm(len(contenders)) {
			figures[i] = append(figures[i], f(contenders[i]))
		}
	}
	for i, c := range contenders {
		b.ReportMetric(median(figures[i])/1000, c.name+"-µs")
		if i > 0 {
			ratios := make([]float64, n)
			for round := range n {
				ratios[round] = figures[0][round] / figures[i][round]
			}
			b.ReportMetric(median(ratios), "larder/"+c.name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// roundsWanted is the number of rounds, of 50 ms each: COMPARE_ROUNDS.
func roundsWanted() int {
	if n, err := strconv.Atoi(os.Getenv("COMPARE_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 31
}

func BenchmarkGet(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			contenders := all(b, callers)
			rounds(b, roundsWanted(), contenders, func(c contender) float64 {
				return visit(b, callers, 50*time.Millisecond, func(caller, i int, dst []byte) error {
					at := (caller*37 + i) % keys
					got, err := c.get(keyNames[at], dst)
					if err == nil && !right(got, at) {
						return fmt.Errorf("%s: %s is %q", c.name, keyNames[at], got)
					}
					return err
				})
			})
		})
	}
}

func BenchmarkSet(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			contenders := all(b, callers)
			values := make([][]byte, keys)
			for i := range values {
				values[i] = value(i, valueBytes)
			}
			rounds(b, roundsWanted(), contenders, func(c contender) float64 {
				return visit(b, callers, 50*time.Millisecond, func(caller, i int, _ []byte) error {
					at := (caller*37 + i) % keys
					return c.set(keyNames[at], values[at])
				})
			})
		})
	}
}

// BenchmarkMany gets 100 keys at a time; its figures are those of a key.
func BenchmarkMany(b *testing.B) {
	contenders := all(b, 1)
	contenders = slices.DeleteFunc(contenders, func(c contender) bool { return c.many == nil })
	rounds(b, roundsWanted(), contenders, func(c contender) float64 {
		return visit(b, 1, 50*time.Millisecond, func(_, i int, _ []byte) error {
			n := 0
			from := i * 100 % (keys - 100)
			err := c.many(keyNames[from:from+100], func(v []byte) { n += len(v) })
			if err == nil && n != 100*valueBytes {
				return fmt.Errorf("%s: %d bytes", c.name, n)
			}
			return err
		}) / 100
	})
}

func BenchmarkSetOf300000Bytes(b *testing.B) {
	contenders := all(b, 1)
	large := value(7, 300_000)
	rounds(b, roundsWanted(), contenders, func(c contender) float64 {
		return visit(b, 1, 50*time.Millisecond, func(int, int, []byte) error { return c.set("large", large) })
	})
}

// BenchmarkBurst has 256 callers begin together, each with one get, twenty times.
func BenchmarkBurst(b *testing.B) {
	memcached, redis, _ := live.ServeTCP(b)
	contenders := []contender{
		ours(b, memcached, patience), gomemcache(memcached, 2, patience), gomemcache(memcached, 256, patience), rueidisClient(b, redis),
	}
	for _, c := range contenders {
		b.Cleanup(c.close)
	}
	for i, key := range keyNames {
		if err := contenders[0].set(key, value(i, valueBytes)); err != nil {
			b.Fatal(err)
		}
	}
	const bursts, callers = 20, 256
	failed := map[string]int{}
	most := map[string]int64{}
	rounds(b, max(roundsWanted()/4, 3), contenders, func(c contender) float64 {
		var before int64
		if c.dials != nil {
			before = c.dials()
		}
		runtime.GC()
		used := processorTime()
		var errs atomic.Int64
		for range bursts {
			var everybody sync.WaitGroup
			for caller := range callers {
				everybody.Add(1)
				go func() {
					defer everybody.Done()
					if got, err := c.get(keyNames[caller], nil); err != nil || !right(got, caller) {
						errs.Add(1)
					}
				}()
			}
			everybody.Wait()
			time.Sleep(5 * time.Millisecond)
		}
		cost := float64(processorTime()-used) / (bursts * callers)
		failed[c.name] += int(errs.Load())
		if c.dials != nil {
			most[c.name] = max(most[c.name], c.dials()-before)
		}
		return cost
	})
	for _, c := range contenders {
		if c.dials != nil {
			n := most[c.name]
			if c.name == "larder" {
				n = c.dials()
			}
			b.ReportMetric(float64(n), c.name+"-connections")
		}
		b.ReportMetric(float64(failed[c.name]), c.name+"-failed")
	}
}

// BenchmarkStopped reports the longest of 256 calls that wait for a stopped server, with a timeout of 100 ms.
func BenchmarkStopped(b *testing.B) {
	memcached, _, server := live.ServeTCP(b)
	for _, c := range []contender{ours(b, memcached, 100*time.Millisecond), gomemcache(memcached, 256, 100*time.Millisecond)} {
		b.Cleanup(c.close)
		for range 10 {
			_ = c.set("k", value(0, valueBytes))
		}
		if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
			b.Fatal(err)
		}
		for err := error(nil); err == nil; _, err = c.get("k", nil) {
			// The server has not stopped yet.
		}
		var longest atomic.Int64
		var everybody sync.WaitGroup
		for range 256 {
			everybody.Add(1)
			go func() {
				defer everybody.Done()
				began := time.Now()
				if _, err := c.get("k", nil); err == nil {
					b.Error("answered")
				}
				took := int64(time.Since(began))
				for now := longest.Load(); took > now && !longest.CompareAndSwap(now, took); now = longest.Load() {
				}
			}()
		}
		everybody.Wait()
		if err := server.Process.Signal(syscall.SIGCONT); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(longest.Load())/1e6, c.name+"-longest-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRefused calls for two seconds while nothing listens at the address.
func BenchmarkRefused(b *testing.B) {
	memcached, _, server := live.ServeTCP(b)
	contenders := []contender{ours(b, memcached, 500*time.Millisecond), gomemcache(memcached, 2, 500*time.Millisecond)}
	_ = server.Process.Kill()
	_ = server.Wait()
	for _, c := range contenders {
		b.Cleanup(c.close)
		// Until the server counts as down.
		for range 20 {
			if _, err := c.get("k", nil); err == nil {
				b.Fatal("answered")
			}
		}
		before, calls := c.dials(), 0
		used := processorTime()
		for began := time.Now(); time.Since(began) < 2*time.Second; calls++ {
			if _, err := c.get("k", nil); err == nil {
				b.Fatal("answered")
			}
			if calls%64 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		b.ReportMetric(float64(c.dials()-before)/2, c.name+"-connects/s")
		b.ReportMetric(float64(processorTime()-used)/float64(calls)/1000, c.name+"-call-µs")
	}
	b.ReportMetric(0, "ns/op")
}
