package larder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"larder.example/clients/go/internal/faulty"
	servers "larder.example/clients/go/internal/live"
)

// The cases of spec/client, which state in no language's terms what a client sends and returns: spec/client/README.md has their
// grammar.

type specCase struct {
	file, name string
	with       map[string]string
	steps      []specStep
}

// specStep is a call with the server's acts and the call's result.
type specStep struct {
	line   int
	verb   string
	fields map[string]string
	script []specAct
	want   string
}

// specAct is one act of the server: ">" expects bytes, "<" answers, "close", "dial" accepts a new connection.
type specAct struct {
	kind  string
	bytes string
}

func specCases(t *testing.T) []specCase {
	t.Helper()
	files, err := filepath.Glob("../../spec/client/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	var cases []specCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			word, rest, _ := strings.Cut(line, " ")
			rest = strings.TrimSpace(rest)
			bad := func() { t.Fatalf("%s:%d: %q", file, i+1, line) }
			if line == "" || word == "#" {
				continue
			}
			if word == "==" {
				cases = append(cases, specCase{file: filepath.Base(file), name: rest, with: map[string]string{}})
				continue
			}
			if len(cases) == 0 {
				bad()
			}
			c := &cases[len(cases)-1]
			switch {
			case word == "with":
				c.with = specFields(rest)
			case word == "call":
				verb, fields, _ := strings.Cut(rest, " ")
				c.steps = append(c.steps, specStep{line: i + 1, verb: verb, fields: specFields(fields)})
			case len(c.steps) == 0:
				bad()
			case word == "=":
				c.steps[len(c.steps)-1].want = repeated.ReplaceAllStringFunc(rest, unescaped)
			case word == ">" || word == "<" || word == "close" || word == "dial":
				step := &c.steps[len(c.steps)-1]
				step.script = append(step.script, specAct{word, unescaped(rest)})
			default:
				bad()
			}
		}
	}
	return cases
}

// specFields reads "a=1 b c=x": b has the empty value.
func specFields(text string) map[string]string {
	fields := map[string]string{}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		fields[name] = unescaped(value)
	}
	return fields
}

// unescaped reads \r, \n, \\, \xNN, and \{N:c}, which is N times c.
func unescaped(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 'r':
			out.WriteByte('\r')
		case 'n':
			out.WriteByte('\n')
		case '\\':
			out.WriteByte('\\')
		case 'x':
			n, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
			if err != nil {
				panic(text)
			}
			out.WriteByte(byte(n))
			i += 2
		case '{':
			end := strings.IndexByte(text[i:], '}')
			count, letter, _ := strings.Cut(text[i+1:i+end], ":")
			n, err := strconv.Atoi(count)
			if err != nil {
				panic(text)
			}
			out.WriteString(strings.Repeat(unescaped(letter), n))
			i += end
		default:
			panic(text)
		}
	}
	return out.String()
}

// repeated matches the repeated parts of a result; its other escapes stay as they are.
var repeated = regexp.MustCompile(`\\\{\d+:[^}]*\}`)

func escaped(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		switch {
		case b == '\r':
			out.WriteString(`\r`)
		case b == '\n':
			out.WriteString(`\n`)
		case b == '\\':
			out.WriteString(`\\`)
		case b <= ' ' || b > '~':
			fmt.Fprintf(&out, `\x%02x`, b)
		default:
			out.WriteByte(b)
		}
	}
	return out.String()
}

// specServer is the server to which the client's connections go.
type specServer struct {
	room  int
	conns chan net.Conn
	dials int
}

func (s *specServer) dial(context.Context, string, string) (net.Conn, error) {
	here, there := faulty.Pipe(s.room)
	s.dials++
	s.conns <- there
	return here, nil
}

// patience is for a machine with other work; nothing waits for it if all is well.
const patience = 10 * time.Minute

// play runs a case; the reply of step cut, if it is not -1, ends after this many bytes.
func (c *specCase) play(t *testing.T, room, cut, after int) {
	t.Helper()
	server := &specServer{room: room, conns: make(chan net.Conn, 16)}
	config := Config{Servers: []Server{{Address: "server"}}, Timeout: patience, DialTimeout: patience, StallTimeout: patience, Dial: server.dial, Protocol: MetaText}
	greeting := [2]string{"mn\r\n", "MN\r\n"}
	for name, value := range c.with {
		switch name + "=" + value {
		case "protocol=classic":
			config.Protocol, greeting = ClassicText, [2]string{"version\r\n", "VERSION 1.6.45\r\n"}
		case "protocol=auto":
			config.Protocol, greeting = Auto, [2]string{}
		case "binary-keys=":
			config.BinaryKeys = true
		case "verify=":
			config.VerifyReplies = true
		case "retry-reads=":
			// The default, unless a case says otherwise.
		case "retry-reads=no":
			config.NoRetryReads = true
		case "auth=user:password":
			config.Auth = func(context.Context, Server) (string, string, error) { return "user", "password", nil }
			greeting = [2]string{}
		case "timeout=short":
			config.Timeout = 50 * time.Millisecond
		default:
			if name != "prefix" {
				t.Fatalf("%s: with %s", c.name, name)
			}
			config.KeyPrefix = value
		}
	}
	if cut >= 0 {
		config.NoRetryReads = true
	}
	client, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var conn net.Conn
	opaques := map[string]string{}
	accept := func() {
		select {
		case conn = <-server.conns:
		case <-time.After(patience):
			t.Fatalf("%s, %s: no connection was made", c.file, c.name)
		}
		expect(t, c, conn, greeting[0], opaques)
		_, _ = io.WriteString(conn, greeting[1])
	}
	dials := 1
	for i, step := range c.steps {
		result := make(chan string, 1)
		go func() { result <- client.specCall(step) }()
		want := step.want
		for _, act := range step.script {
			if act.kind == "dial" {
				dials++
				accept()
				continue
			}
			if conn == nil {
				accept()
			}
			switch act.kind {
			case ">":
				expect(t, c, conn, act.bytes, opaques)
			case "<":
				act.bytes = opaqueName.ReplaceAllStringFunc(act.bytes, func(name string) string { return opaques[name] })
				if i == cut {
					act.bytes = act.bytes[:after]
				}
				_, _ = io.WriteString(conn, act.bytes)
				if i == cut {
					_ = conn.Close()
					want = "error lost unknown"
				}
			case "close":
				_ = conn.Close()
			}
		}
		select {
		case got := <-result:
			if got != want {
				t.Fatalf("%s:%d, %s: %s\n%.300s, not\n%.300s", c.file, step.line, c.name, step.verb, got, want)
			}
		case <-time.After(patience + patience/2):
			t.Fatalf("%s:%d, %s: %s does not return", c.file, step.line, c.name, step.verb)
		}
		if i == cut {
			return
		}
	}
	_ = client.Close()
	if conn != nil {
		if rest, _ := io.ReadAll(conn); len(rest) != 0 {
			t.Fatalf("%s, %s: sent besides: %q", c.file, c.name, rest)
		}
	} else {
		dials = 0
	}
	if server.dials != dials {
		t.Fatalf("%s, %s: %d connections, not %d", c.file, c.name, server.dials, dials)
	}
}

// opaqueName is an opaque that the client chooses: O{1} is the same wherever it stands.
var opaqueName = regexp.MustCompile(`O\{\d+\}`)

// expect reads the bytes that the server has to receive; opaques gets the client's.
func expect(t *testing.T, c *specCase, conn net.Conn, want string, opaques map[string]string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if names := opaqueName.FindAllString(want, -1); names != nil {
		var got []byte
		for range strings.Count(want, "\n") {
			for one := []byte{0}; one[0] != '\n'; got = append(got, one...) {
				if _, err := io.ReadFull(conn, one); err != nil {
					t.Fatalf("%s, %s: sent %s (%v), not\n%s", c.file, c.name, escaped(string(got)), err, escaped(want))
				}
			}
		}
		parts := opaqueName.Split(want, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		found := regexp.MustCompile("^" + strings.Join(parts, "(O[0-9a-z]+)") + "$").FindSubmatch(got)
		if found == nil {
			t.Fatalf("%s, %s: sent %s, not\n%s", c.file, c.name, escaped(string(got)), escaped(want))
		}
		for i, name := range names {
			opaques[name] = string(found[i+1])
		}
		return
	}
	got := make([]byte, len(want))
	n, err := io.ReadFull(conn, got)
	if err != nil || string(got) != want {
		t.Fatalf("%s, %s: sent %s (%v), not\n%s", c.file, c.name, escaped(string(got[:n])), err, escaped(want))
	}
}

// specCall makes the call of a step and returns its result in the words of the cases.
func (c *Client) specCall(step specStep) string {
	f := step.fields
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(f[name], 10, 64)
		return n
	}
	has := func(name string) bool { _, is := f[name]; return is }
	seconds := func(name string) time.Duration {
		n, err := strconv.ParseFloat("0"+f[name], 64)
		if strings.HasPrefix(f[name], "-") || err != nil {
			return -time.Second
		}
		return time.Duration(n * float64(time.Second))
	}
	key := f["key"]
	done := func(word string, err error) string {
		if err != nil {
			return specError(err)
		}
		return word
	}
	switch step.verb {
	case "get":
		value, err := c.Get(background, key, nil)
		return done("hit value="+escaped(string(value)), err)
	case "item":
		o := GetOptions{Touch: seconds("touch"), Retime: has("touch"), NoBump: has("no-bump"), Large: has("large")}
		for _, want := range strings.Split(f["want"], ",") {
			o.Want |= map[string]Want{"flags": WantFlags, "cas": WantCAS, "ttl": WantTTL, "size": WantSize, "last-access": WantLastAccess, "hit-before": WantHitBefore}[want]
		}
		value, m, err := c.GetItem(background, key, nil, o)
		return done("hit value="+escaped(string(value))+specMeta(m), err)
	case "set", "add", "replace", "append", "prepend":
		mode := map[string]Mode{"set": Set, "add": Add, "replace": Replace, "append": Append, "prepend": Prepend}[step.verb]
		m, err := c.Store(background, key, []byte(f["value"]), StoreOptions{
			Mode: mode, TTL: seconds("ttl"), Flags: uint32(number("flags")), CAS: number("cas"), WantCAS: has("want-cas"), StaleIfOlder: has("stale-if-older"),
		})
		return done("stored"+specMeta(m), err)
	case "delete":
		return done("deleted", c.Remove(background, key, RemoveOptions{CAS: number("cas"), KeepStale: seconds("keep-stale"), Empty: has("empty")}))
	case "invalidate":
		return done("deleted", c.Invalidate(background, key, seconds("serve-stale")))
	case "touch":
		return done("touched", c.Touch(background, key, seconds("ttl")))
	case "incr", "decr":
		count := c.Incr
		if step.verb == "decr" {
			count = c.Decr
		}
		n, err := count(background, key, number("delta"), CountOptions{Create: has("create"), Init: number("init"), TTL: seconds("ttl"), CAS: number("cas")})
		return done(fmt.Sprint("number ", n), err)
	case "get-or-lease":
		value, l, err := c.GetOrLease(background, key, nil, LeaseOptions{Vivify: seconds("vivify"), Refresh: seconds("refresh")})
		word := l.State.String()
		if l.State < MissWon {
			word += " value=" + escaped(string(value))
		}
		return done(word+specMeta(Meta{CAS: l.CAS, TTL: l.TTL}), err)
	case "fill":
		return done("stored", c.Fill(background, key, []byte(f["value"]), seconds("ttl"), Lease{State: MissWon, CAS: number("cas")}))
	case "many":
		var words []string
		err := c.GetMany(background, strings.Split(f["keys"], ","), nil, func(_ int, value []byte, _ Meta, err error) {
			words = append(words, done("hit value="+escaped(string(value)), err))
		})
		if err != nil {
			words = append(words, "all: "+specError(err))
		}
		return strings.Join(words, "; ")
	case "batch":
		b := c.Batch()
		for _, word := range strings.Split(f["of"], ",") {
			parts := append(strings.Split(word, ":"), "", "")
			switch parts[0] {
			case "get":
				b.Get(parts[1])
			case "set":
				b.Set(parts[1], []byte(parts[2]), Forever)
			case "delete":
				b.Delete(parts[1])
			case "incr":
				b.Incr(parts[1], 1, CountOptions{})
			}
		}
		_ = b.Do(background)
		var words []string
		for i := range b.Len() {
			words = append(words, done(fmt.Sprintf("value=%s number=%d", escaped(string(b.Value(i))), b.Number(i)), b.Err(i)))
		}
		return strings.Join(words, "; ")
	case "stream", "quiet":
		s := c.Stream(Window{})
		if step.verb == "quiet" {
			s = c.Quiet()
		}
		for _, word := range strings.Split(f["of"], ",") {
			parts := append(strings.Split(word, ":"), "", "")
			var err error
			if parts[0] == "set" {
				err = s.Set(background, parts[1], []byte(parts[2]), Forever)
			} else {
				err = s.Delete(background, parts[1])
			}
			if err != nil {
				return specError(err)
			}
		}
		report, err := s.Barrier(background)
		words := fmt.Sprintf("sent=%d stored=%d refused=%d unknown=%d", report.Sent, report.Stored, report.Refused, report.Unknown)
		for _, refusal := range report.First {
			words += "; " + refusal.Key + " " + specError(refusal.Err)
		}
		if err != nil {
			words += "; all: " + specError(err)
		}
		return words
	case "get-to":
		var into bytes.Buffer
		m, err := c.GetTo(background, key, &into, GetOptions{})
		return done("hit value="+escaped(into.String())+specMeta(m), err)
	case "set-from":
		_, err := c.SetFrom(background, key, strings.NewReader(f["value"]), int64(number("size")), StoreOptions{TTL: seconds("ttl")})
		return done("stored", err)
	case "version":
		all, err := c.Version(background)
		return done("version "+all[0].Version, err)
	case "stats":
		all, err := c.Stats(background)
		return done(fmt.Sprint("stats ", all[0].Stats), err)
	case "flush":
		return done("flushed", c.FlushAll(background))
	}
	return "no such call"
}

func specMeta(m Meta) string {
	var words string
	field := func(name string, is bool, value any) {
		if is {
			words += fmt.Sprintf(" %s=%v", name, value)
		}
	}
	field("flags", m.Flags != 0, m.Flags)
	field("cas", m.CAS != 0, m.CAS)
	field("ttl", m.TTL != 0, int(m.TTL.Seconds()))
	field("size", m.Size != 0, m.Size)
	field("last-access", m.LastAccess != 0, int(m.LastAccess.Seconds()))
	field("hit-before", m.HitBefore, 1)
	field("stale", m.Stale, 1)
	field("won", m.Won, 1)
	field("pending", m.Pending, 1)
	return words
}

func specError(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) && Fault(err) == FaultOther {
		return "error source " + strings.ReplaceAll(Applied(err).String(), " ", "-")
	}
	switch name := ErrorName(err); name {
	case "other":
	case "miss", "conflict", "not-stored":
		return name
	default:
		return "error " + name + " " + strings.ReplaceAll(Applied(err).String(), " ", "-")
	}
	return "error other: " + err.Error()
}

func TestCasesOfTheSpecification(t *testing.T) {
	servers.Leaks(t)
	for _, c := range specCases(t) {
		t.Run(c.file+"/"+c.name, func(t *testing.T) {
			// Short timeouts fail beside other cases, and under the race detector.
			if c.with["timeout"] != "short" {
				t.Parallel()
			} else if raceEnabled {
				t.Skip("it is of time")
			}
			c.play(t, 1<<16, -1, 0)
			c.play(t, 1, -1, 0)
		})
	}
}

// A reply that is cut after any byte: the error has the right outcome.
func TestCasesOfTheSpecificationCutAfterEveryByte(t *testing.T) {
	servers.Leaks(t)
	cuts := 0
	for _, c := range specCases(t) {
		// Cases with retries are played where replies are not cut.
		if retry, is := c.with["retry-reads"]; is && retry != "no" {
			continue
		}
		for i, step := range c.steps {
			if len(step.script) != 2 || step.script[0].kind != ">" || step.script[1].kind != "<" || len(step.script[1].bytes) > 200 {
				continue
			}
			switch step.verb {
			case "many", "batch", "stream", "quiet", "stats", "version", "flush", "get-to", "set-from":
				continue
			}
			if strings.HasPrefix(step.want, "error protocol") || c.with["protocol"] == "auto" || c.with["auth"] != "" {
				continue
			}
			for after := range len(step.script[1].bytes) {
				c.play(t, 1<<16, i, after)
				cuts++
			}
		}
	}
	t.Logf("%d cuts", cuts)
	if cuts < 300 {
		t.Errorf("%d cuts", cuts)
	}
}
