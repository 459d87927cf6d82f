package compare

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/redis/rueidis"

	"larder.example/clients/go"
	facade "larder.example/clients/go/memcache"
)

var background = context.Background()

// contender is a client behind the operations that all of them have.
type contender struct {
	name string
	// get appends the value to dst, or returns a slice of its own.
	get   func(key string, dst []byte) ([]byte, error)
	set   func(key string, value []byte) error
	many  func(keys []string, each func(value []byte)) error
	close func()
	// dials is the number of connections that were made, if that is known.
	dials func() int64
}

// dialer counts its connections.
type dialer struct{ count atomic.Int64 }

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.count.Add(1)
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func ours(t testing.TB, address string, timeout time.Duration) contender {
	d := &dialer{}
	c, err := larder.Open(background, larder.Config{Servers: []larder.Server{{Address: address}}, Timeout: timeout, Dial: d.dial})
	if err != nil {
		t.Fatal(err)
	}
	// A buffer is for one caller; only one caller uses many.
	buffer := larder.NewBuffer(64 << 10)
	return contender{
		name:  "larder",
		get:   func(key string, dst []byte) ([]byte, error) { return c.Get(background, key, dst) },
		set:   func(key string, value []byte) error { return c.Set(background, key, value, 0) },
		close: func() { _ = c.Close() },
		dials: d.count.Load,
		many: func(keys []string, each func([]byte)) error {
			return c.GetMany(background, keys, buffer, func(_ int, value []byte, _ larder.Meta, err error) {
				if err == nil {
					each(value)
				}
			})
		},
	}
}

func oursAsGomemcache(address string, timeout time.Duration) contender {
	c := facade.New(address)
	c.Timeout = timeout
	return contender{
		name: "facade",
		get: func(key string, _ []byte) ([]byte, error) {
			item, err := c.Get(key)
			if err != nil {
				return nil, err
			}
			return item.Value, nil
		},
		set:   func(key string, value []byte) error { return c.Set(&facade.Item{Key: key, Value: value}) },
		close: func() { _ = c.Close() },
	}
}

// gomemcache keeps this many idle connections: 2 as shipped, or as many as there are callers.
func gomemcache(address string, idle int, timeout time.Duration) contender {
	d := &dialer{}
	c := memcache.New(address)
	c.DialContext = d.dial
	c.Timeout = timeout
	name := "gomemcache"
	if c.MaxIdleConns = idle; idle == memcache.DefaultMaxIdleConns {
		name = "gomemcache-2"
	}
	return contender{
		name: name,
		get: func(key string, _ []byte) ([]byte, error) {
			item, err := c.Get(key)
			if err != nil {
				return nil, err
			}
			return item.Value, nil
		},
		set:   func(key string, value []byte) error { return c.Set(&memcache.Item{Key: key, Value: value}) },
		close: func() { _ = c.Close() },
		dials: d.count.Load,
		many: func(keys []string, each func([]byte)) error {
			found, err := c.GetMulti(keys)
			for _, item := range found {
				each(item.Value)
			}
			return err
		},
	}
}

// rueidisClient speaks Redis's protocol to the same store.
func rueidisClient(t testing.TB, address string) contender {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	return contender{
		name: "rueidis",
		get: func(key string, _ []byte) ([]byte, error) {
			return c.Do(background, c.B().Get().Key(key).Build()).AsBytes()
		},
		set: func(key string, value []byte) error {
			return c.Do(background, c.B().Set().Key(key).Value(rueidis.BinaryString(value)).Build()).Error()
		},
		close: c.Close,
		many: func(keys []string, each func([]byte)) error {
			values, err := c.Do(background, c.B().Mget().Key(keys...).Build()).AsStrSlice()
			for _, value := range values {
				each([]byte(value))
			}
			return err
		},
	}
}

// byHand is the least that a program can do: one connection, one caller, no deadline, no check of keys.
func byHand(t testing.TB, address string) contender {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	out := make([]byte, 0, 512<<10)
	line := func() ([]byte, error) {
		text, err := in.ReadSlice('\n')
		return bytes.TrimSuffix(text, []byte("\r\n")), err
	}
	value := func(dst []byte) ([]byte, error) {
		head, err := line()
		if err != nil || !bytes.HasPrefix(head, []byte("VA ")) {
			return dst, errors.Join(err, errors.New("no value"))
		}
		n, err := strconv.Atoi(string(head[3:]))
		if err != nil {
			return dst, err
		}
		from := len(dst)
		if cap(dst) < from+n+2 {
			dst = append(make([]byte, 0, from+n+2), dst...)
		}
		dst = dst[:from+n+2]
		_, err = io.ReadFull(in, dst[from:])
		return dst[:from+n], err
	}
	return contender{
		name: "by-hand",
		get: func(key string, dst []byte) ([]byte, error) {
			out = append(append(append(out[:0], "mg "...), key...), " v\r\n"...)
			if _, err := conn.Write(out); err != nil {
				return dst, err
			}
			return value(dst)
		},
		set: func(key string, value []byte) error {
			out = append(append(append(out[:0], "ms "...), key...), ' ')
			out = append(strconv.AppendInt(out, int64(len(value)), 10), "\r\n"...)
			if len(value) < 16<<10 {
				out = append(append(out, value...), "\r\n"...)
				if _, err := conn.Write(out); err != nil {
					return err
				}
			} else {
				parts := net.Buffers{out, value, []byte("\r\n")}
				if _, err := parts.WriteTo(conn); err != nil {
					return err
				}
			}
			text, err := line()
			if err != nil || string(text) != "HD" {
				return fmt.Errorf("%q, %w", text, err)
			}
			return nil
		},
		many: func(keys []string, each func([]byte)) error {
			out = out[:0]
			for _, key := range keys {
				out = append(append(append(out, "mg "...), key...), " v\r\n"...)
			}
			if _, err := conn.Write(out); err != nil {
				return err
			}
			var room [256]byte
			for range keys {
				got, err := value(room[:0])
				if err != nil {
					return err
				}
				each(got)
			}
			return nil
		},
		close: func() { _ = conn.Close() },
	}
}
