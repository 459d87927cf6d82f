//go:build unix

package larder

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A server that stops for a while and goes on answers what was given up long ago: nobody may take that for an answer of
// his own.
func TestServerThatStopsAndGoesOnGivesNoWrongValues(t *testing.T) {
	socket, server := live(t)
	// Not opened: on a slow machine a greeting takes longer than that.
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
	// However slow the machine: until it is well again.
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
	// What was acknowledged last is there, and every key's value is its own.
	for i := range 64 {
		key := fmt.Sprintf("key%d", i)
		if value, err := patient.Get(background, key, nil); err != nil || !strings.HasPrefix(string(value), key+":") {
			t.Errorf("%s: %q, %v", key, value, err)
		}
	}
}
