package faulty

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server answers meta text from a map, as slowly and in as small pieces as its fields say.
type Server struct {
	// Random decides about pauses and pieces; nil: none.
	Random *rand.Rand
	// Pause is the longest pause before a reply; there is one now and then.
	Pause time.Duration
	// Cut closes a connection after this many bytes of replies; 0: never.
	Cut int
	// Version is the reported version; "" is a memcached with meta text.
	Version string
	// Replace, if set, may return another reply than the true one.
	Replace func(request, reply string) string

	mu    sync.Mutex
	items map[string]item
	cas   uint64
	// Requests counts requests.
	Requests int
}

type item struct {
	value string
	flags string
	cas   uint64
}

// Value is the value of a key.
func (s *Server) Value(key string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := s.items[key]
	return it.value, ok
}

// Serve answers a connection until it ends.
func (s *Server) Serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	sent := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			return
		}
		value := ""
		if words[0] == "ms" {
			n, _ := strconv.Atoi(words[2])
			bytes := make([]byte, n+2)
			if _, err := io.ReadFull(in, bytes); err != nil {
				return
			}
			value = string(bytes[:n])
		}
		reply := s.answer(words, value)
		if s.Replace != nil {
			reply = s.Replace(line, reply)
		}
		if s.Cut > 0 && sent+len(reply) > s.Cut {
			_, _ = conn.Write([]byte(reply[:max(0, s.Cut-sent)]))
			return
		}
		sent += len(reply)
		if !s.send(conn, reply) {
			return
		}
	}
}

func (s *Server) random(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Random == nil {
		return n
	}
	return s.Random.IntN(n + 1)
}

// send writes in pieces, with pauses.
func (s *Server) send(conn net.Conn, reply string) bool {
	for len(reply) > 0 {
		n := max(1, s.random(len(reply)))
		if s.Random != nil && s.Pause > 0 && s.random(8) == 0 {
			time.Sleep(time.Duration(s.random(int(s.Pause))))
		}
		if _, err := conn.Write([]byte(reply[:n])); err != nil {
			return false
		}
		reply = reply[n:]
	}
	return true
}

// answer carries out one request.
func (s *Server) answer(words []string, value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items = map[string]item{}
	}
	s.Requests++
	switch words[0] {
	case "version":
		if s.Version != "" {
			return "VERSION " + s.Version + "\r\n"
		}
		return "VERSION 1.6.45\r\n"
	case "mn":
		return "MN\r\n"
	}
	key := words[1]
	old, there := s.items[key]
	flags, echo, quiet := map[byte]string{}, "", false
	from := 2
	if words[0] == "ms" {
		from = 3
	}
	for _, word := range words[from:] {
		flags[word[0]] = word[1:]
		switch word[0] {
		case 'O':
			echo += " " + word
		case 'q':
			quiet = true
		}
	}
	silent := func(status string) string {
		if quiet {
			return ""
		}
		return status + echo + "\r\n"
	}
	if cas, ok := flags['C']; ok && words[0] != "mg" {
		switch {
		case !there:
			return "NF" + echo + "\r\n"
		case cas != strconv.FormatUint(old.cas, 10):
			return "EX" + echo + "\r\n"
		}
	}
	switch words[0] {
	case "mg":
		if !there {
			return "EN" + echo + "\r\n"
		}
		shown := ""
		for _, word := range words[2:] {
			switch word[0] {
			case 'c':
				shown += fmt.Sprintf(" c%d", old.cas)
			case 'f':
				shown += " f" + old.flags
			case 'O':
				shown += " " + word
			}
		}
		if _, ok := flags['v']; ok {
			return fmt.Sprintf("VA %d%s\r\n%s\r\n", len(old.value), shown, old.value)
		}
		return "HD" + shown + "\r\n"
	case "ms":
		switch flags['M'] {
		case "E":
			if there {
				return "NS" + echo + "\r\n"
			}
		case "R", "A", "P":
			if !there {
				return "NS" + echo + "\r\n"
			}
		}
		switch flags['M'] {
		case "A":
			value = old.value + value
		case "P":
			value += old.value
		}
		s.cas++
		f := flags['F']
		if f == "" {
			f = "0"
		}
		s.items[key] = item{value, f, s.cas}
		return silent("HD")
	case "md":
		if !there {
			return "NF" + echo + "\r\n"
		}
		delete(s.items, key)
		return silent("HD")
	case "ma":
		if !there {
			return "NF" + echo + "\r\n"
		}
		n, err := strconv.ParseUint(old.value, 10, 64)
		if err != nil {
			return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
		}
		delta, _ := strconv.ParseUint(flags['D'], 10, 64)
		if flags['M'] == "D" {
			n -= min(n, delta)
		} else {
			n += delta
		}
		s.cas++
		s.items[key] = item{strconv.FormatUint(n, 10), old.flags, s.cas}
		digits := strconv.FormatUint(n, 10)
		return fmt.Sprintf("VA %d%s\r\n%s\r\n", len(digits), echo, digits)
	}
	return "ERROR\r\n"
}
