// A driver of the lab: Go clients as a process that gets its jobs by lines.
//
//	lab                                    driver
//	{"do":"hello"}                    ─►
//	                                  ◄─   {"hello":"go1.26","value":hex,"clients":[[name, version], …]}
//	{"do":"run", job}                 ─►
//	                                  ◄─   {"ready":1, …}       the client is open and warm
//	{"do":"go"}                       ─►
//	                                  ◄─   {"done":1, …}        counts, times, a histogram of its calls
//
// Values are the lab's (crates/lab/src/value.rs): each that is read is compared with the one that is due, byte by byte.
// Between "go" and "done" the driver allocates nothing of its own where there is one caller.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// job is what the lab wants.
type job struct {
	Client     string `json:"client"`
	Op         int    `json:"op"`
	Cold       bool   `json:"cold"`
	Host       string `json:"host"`
	Port       uint16 `json:"port"`
	Socket     string `json:"socket"`
	TLS        bool   `json:"tls"`
	First      uint32 `json:"first"`
	Keys       int    `json:"keys"`
	Version    uint64 `json:"version"`
	ValueBytes int    `json:"value_bytes"`
	OpsMax     int64  `json:"ops_max"`
	TimeNS     int64  `json:"time_ns"`
	Callers    int    `json:"callers"`
	Bursts     int64  `json:"bursts"`
	PauseNS    int64  `json:"pause_ns"`
	TimeoutMS  int64  `json:"timeout_ms"`
	User       string `json:"user"`
	Password   string `json:"password"`
	secured
}

// Operations, by the lab's numbers.
const (
	opSet  = 0
	opGet  = 1
	opMany = 3
	opSets = 4
)

// address is host and port, or the path of the server's Unix socket.
func (j *job) address() string {
	if j.Socket != "" {
		return j.Socket
	}
	return net.JoinHostPort(j.Host, strconv.Itoa(int(j.Port)))
}

// network is that of the address.
func (j *job) network() string {
	if j.Socket != "" {
		return "unix"
	}
	return "tcp"
}

func (j *job) timeout() time.Duration { return time.Duration(j.TimeoutMS) * time.Millisecond }

// result is what came of it.
type result struct {
	Done         int         `json:"done"`
	Calls        int64       `json:"calls"`
	OK           int64       `json:"ok"`
	Misses       int64       `json:"misses"`
	Told         int64       `json:"told"`
	Timeouts     int64       `json:"timeouts"`
	Wrong        int64       `json:"wrong"`
	FirstErrorAt int64       `json:"first_error_at"`
	ToldNS       int64       `json:"told_ns"`
	LastErrorNS  int64       `json:"last_error_ns"`
	Writes       int64       `json:"writes"`
	Error        string      `json:"error"`
	Connections  int64       `json:"connections"`
	ReturnNS     int64       `json:"return_ns"`
	BarrierNS    int64       `json:"barrier_ns"`
	CPUNS        int64       `json:"cpu_ns"`
	Allocations  uint64      `json:"allocations"`
	AllocBytes   uint64      `json:"allocated_bytes"`
	Histogram    [][2]uint64 `json:"histogram"`
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	hear := func(into any) bool {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return false
		}
		if err := json.Unmarshal(line, into); err != nil {
			fail(err)
		}
		return true
	}
	for {
		var asked struct {
			Do string `json:"do"`
			job
		}
		if !hear(&asked) {
			return
		}
		switch asked.Do {
		case "hello":
			say(map[string]any{"hello": runtime.Version(), "value": fmt.Sprintf("%x", value(305419896, 7, 61)), "clients": versions()})
		case "run":
			if !run(&asked.job, func() bool { return hear(&asked) }) {
				return
			}
		default:
			fail(fmt.Errorf("%s is not understood", asked.Do))
		}
	}
}

func say(what any) {
	line, err := json.Marshal(what)
	if err != nil {
		fail(err)
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(1)
	}
}

func fail(err error) {
	line, _ := json.Marshal(map[string]string{"failed": err.Error()})
	_, _ = os.Stdout.Write(append(line, '\n'))
	os.Exit(1)
}

// caller is one goroutine's: its counts, and what it uses of the client.
type caller struct {
	session
	result
	histogram []uint64
	*keyspace
	// at is the key of the next call.
	at int
	// pause is how long it waits after a call that failed.
	pause time.Duration
}

// keyspace is the names of the keys, and the value of each; as many names again as one call asks for stand behind them.
type keyspace struct {
	names  []string
	values [][]byte
	first  uint32
	start  time.Time
}

func run(j *job, hear func() bool) bool {
	k := &keyspace{first: j.First}
	for i := range j.Keys + manyKeys {
		id := j.First + uint32(i%j.Keys)
		k.names = append(k.names, fmt.Sprintf("key:%012d", id))
		if i < j.Keys {
			k.values = append(k.values, value(uint64(id), j.Version, j.ValueBytes))
		}
	}
	connections.Store(0)
	client, err := open(j)
	if err != nil {
		fail(err)
	}
	callers := make([]*caller, max(j.Callers, 1))
	for i := range callers {
		callers[i] = &caller{session: client.session(), histogram: make([]uint64, buckets), keyspace: k, at: i * 37 % j.Keys}
		if j.Bursts == 0 {
			callers[i].pause = time.Duration(j.PauseNS)
		}
	}
	if _, can := callers[0].session.(setter); j.Op == opSets && !can {
		fail(fmt.Errorf("%s has no call that stores several keys", j.Client))
	}
	ready := map[string]any{"ready": 1, "warm_told": 0, "warm_error": ""}
	if !j.Cold && j.Bursts == 0 {
		together(callers, func(c *caller) {
			for range 4 {
				c.call(j.Op)
			}
		})
		for _, c := range callers {
			if c.Told > 0 {
				ready["warm_told"], ready["warm_error"] = c.Told, c.Error
			}
			c.result = result{}
			clear(c.histogram)
		}
	}
	runtime.GC()
	say(ready)
	if !hear() {
		return false
	}
	done := measured(j, k, client, callers)
	say(&done)
	for _, c := range callers {
		c.close()
	}
	client.close()
	return true
}

// measured lets callers call until it is over.
func measured(j *job, k *keyspace, client client, callers []*caller) result {
	each := j.OpsMax / int64(len(callers))
	limit := time.Duration(j.TimeNS)
	var before, after runtime.MemStats
	writes := client.writes()
	runtime.ReadMemStats(&before)
	used := processorTime()
	k.start = time.Now()
	switch {
	case j.Bursts > 0:
		for burst := range j.Bursts {
			if burst > 0 {
				time.Sleep(time.Duration(j.PauseNS))
			}
			together(callers, func(c *caller) { c.timed(j.Op, time.Now()) })
		}
	case len(callers) == 1:
		callers[0].loop(j.Op, each, limit)
	default:
		together(callers, func(c *caller) { c.loop(j.Op, each, limit) })
	}
	total := result{Done: 1, ReturnNS: int64(time.Since(k.start))}
	total.CPUNS = processorTime() - used
	runtime.ReadMemStats(&after)
	total.BarrierNS = total.ReturnNS
	total.Writes = client.writes() - writes
	total.Allocations, total.AllocBytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	total.Connections = connections.Load()
	all := make([]uint64, buckets)
	for _, c := range callers {
		total.add(&c.result)
		for i, n := range c.histogram {
			all[i] += n
		}
	}
	total.Histogram = [][2]uint64{}
	for i, n := range all {
		if n > 0 {
			total.Histogram = append(total.Histogram, [2]uint64{uint64(i), n})
		}
	}
	return total
}

func (r *result) add(c *result) {
	if c.Told > 0 && (r.Told == 0 || c.FirstErrorAt < r.FirstErrorAt) {
		r.FirstErrorAt, r.Error = c.FirstErrorAt, c.Error
	}
	r.ToldNS += c.ToldNS
	r.LastErrorNS = max(r.LastErrorNS, c.LastErrorNS)
	r.Calls += c.Calls
	r.OK += c.OK
	r.Misses += c.Misses
	r.Told += c.Told
	r.Timeouts += c.Timeouts
	r.Wrong += c.Wrong
}

func together(callers []*caller, f func(c *caller)) {
	var everybody sync.WaitGroup
	for _, c := range callers {
		everybody.Add(1)
		go func() {
			defer everybody.Done()
			f(c)
		}()
	}
	everybody.Wait()
}

func (c *caller) loop(op int, most int64, limit time.Duration) {
	for last := c.start; c.Calls < most && (limit == 0 || last.Sub(c.start) < limit); {
		last = c.timed(op, last)
	}
}

// timed calls, and notes how long it took since last.
func (c *caller) timed(op int, last time.Time) time.Time {
	told := c.Told
	c.call(op)
	now := time.Now()
	took := now.Sub(last)
	c.histogram[bucket(uint64(took))]++
	if c.Told != told {
		c.ToldNS += int64(took)
		c.LastErrorNS = int64(now.Sub(c.start))
		if c.pause > 0 {
			time.Sleep(c.pause)
			now = time.Now()
		}
	}
	return now
}

// call does what the job says with the next key.
func (c *caller) call(op int) {
	at := c.at
	if c.at++; c.at == len(c.values) {
		c.at = 0
	}
	var err error
	switch op {
	case opSet:
		err = c.set(c.names[at], c.values[at])
	case opGet:
		var got []byte
		if got, err = c.get(c.names[at]); err == nil && !bytes.Equal(got, c.values[at]) {
			c.Wrong++
		}
	case opMany:
		var found, wrong int
		found, wrong, err = c.many(c.names[at:at+manyKeys], c.keyspace)
		c.Wrong += int64(wrong)
		if err == nil {
			c.Misses += int64(manyKeys - found)
		}
	case opSets:
		err = c.session.(setter).sets(at, c.keyspace)
	}
	c.Calls++
	switch {
	case err == nil:
		c.OK++
	case isMiss(err):
		c.Misses++
	default:
		if isTimeout(err) {
			c.Timeouts++
		}
		if c.Told++; c.Told == 1 {
			c.FirstErrorAt, c.Error = c.Calls, err.Error()
		}
	}
}

// right says whether a value is that of a key.
func (k *keyspace) right(key string, got []byte) bool {
	id := uint32(0)
	for _, digit := range []byte(key[len("key:"):]) {
		id = id*10 + uint32(digit-'0')
	}
	at := id - k.first
	return int(at) < len(k.values) && bytes.Equal(got, k.values[at])
}

func processorTime() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}
