//go:build unix

package larder

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
)

// BenchmarkGet and BenchmarkSet report the processor time of the client for an operation, by the number of callers, and how many
// writes an operation needs: wall time depends more on the machine. LARDER_SERVER names the server's program.
func BenchmarkGet(b *testing.B) {
	each(b, func(c *Client, key string, value, dst []byte) error {
		_, err := c.Get(background, key, dst)
		return err
	})
}

func BenchmarkSet(b *testing.B) {
	each(b, func(c *Client, key string, value, _ []byte) error { return c.Set(background, key, value, 0) })
}

func each(b *testing.B, f func(c *Client, key string, value, dst []byte) error) {
	socket, _ := live(b)
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			c := opened(b, socket)
			value := make([]byte, 100)
			for i := range 1024 {
				if err := c.Set(background, fmt.Sprint(i), value, 0); err != nil {
					b.Fatal(err)
				}
			}
			before, used := c.Counters()[socket], processorTime()
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for caller := range callers {
				all.Add(1)
				go func() {
					defer all.Done()
					dst := make([]byte, 0, 100)
					key := fmt.Sprint(caller)
					for range (b.N + callers - 1) / callers {
						if err := f(c, key, value, dst); err != nil {
							b.Error(err)
						}
					}
				}()
			}
			all.Wait()
			after := c.Counters()[socket]
			ops := float64(after.Ops - before.Ops)
			b.ReportMetric(float64(processorTime()-used)/ops, "cpu-ns/op")
			b.ReportMetric(float64(after.Writes-before.Writes)/ops, "writes/op")
		})
	}
}

func processorTime() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}
