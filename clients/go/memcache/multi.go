package memcache

import (
	"context"
	"net"
	"sync"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

const (
	// groupMax is how many gets are sent to a server together.
	groupMax = 512
	// smallBytes: values up to this size share blocks of blockBytes: a caller that keeps a value keeps no more than its block.
	smallBytes = 512
	blockBytes = 4 << 10
	// itemsMax is how many items share an allocation.
	itemsMax = 64
	// keepBytes: memory for requests, or for values, is reused only up to this size.
	keepBytes = 256 << 10
)

// part holds the requests for one server.
type part struct {
	addr   net.Addr
	server *fleet.Server
	count  int
	lane   *lane.Lane
	op     *lane.Op
}

// multi is the memory of a call for several keys. It is reused.
type multi struct {
	parts []part
	// of has the part of each key.
	of []int
	// bytes are requests, and values the received values, by part.
	bytes  []byte
	values [][]byte
	block  []byte
	items  []Item
}

var multis = sync.Pool{New: func() any { return new(multi) }}

// GetMulti returns the items of those keys that exist. If there is an error, the map has the items that did come.
func (c *Client) GetMulti(keys []string) (map[string]*Item, error) {
	m := multis.Get().(*multi)
	defer m.free()
	if err := m.split(c, keys); err != nil {
		return nil, err
	}
	found := make(map[string]*Item, len(keys))
	deadline := lane.Now() + c.timeout()
	var failed error
	for at := range m.parts {
		if err := m.submit(at, keys, deadline); err != nil {
			failed = failure(err, m.parts[at].addr)
		}
	}
	for at := range m.parts {
		p := &m.parts[at]
		if p.op == nil {
			continue
		}
		if err := p.server.Wait(context.Background(), p.lane, p.op); err != nil {
			failed = failure(err, p.addr)
		}
		if err := m.take(at, keys, found); err != nil {
			failed = err
		}
		if m.values[at] = p.op.Dst; cap(p.op.Dst) > keepBytes {
			m.values[at] = nil
		}
		p.op.Free()
	}
	return found, failed
}

// split finds the part of each key.
func (m *multi) split(c *Client, keys []string) error {
	for _, key := range keys {
		if !wire.ValidKey(key) {
			return ErrMalformedKey
		}
		addr, err := c.selector.PickServer(key)
		if err != nil {
			return err
		}
		at := len(m.parts) - 1
		for at >= 0 && (m.parts[at].addr != addr || m.parts[at].count == groupMax) {
			at--
		}
		if at < 0 {
			at = len(m.parts)
			m.parts = append(m.parts, part{addr: addr, server: c.server(addr)})
		}
		m.parts[at].count++
		m.of = append(m.of, at)
	}
	return nil
}

// submit sends a server its part.
func (m *multi) submit(at int, keys []string, deadline time.Duration) error {
	p := &m.parts[at]
	var err error
	if p.lane, err = p.server.Lane(context.Background(), 0, deadline); err != nil {
		return err
	}
	m.bytes = m.bytes[:0]
	for i, key := range keys {
		if m.of[i] == at {
			m.bytes = p.lane.Protocol().Write(m.bytes, &wire.Request{Verb: wire.Get, Key: key, Want: wire.WantFlags | wire.WantCAS})
		}
	}
	op := lane.NewOp()
	for len(m.values) <= at {
		m.values = append(m.values, nil)
	}
	op.Dst = m.values[at][:0]
	if err = p.server.Submit(context.Background(), p.lane, op, lane.Group{Bytes: m.bytes, Verb: wire.Get, Replies: p.count}, deadline); err != nil {
		op.Free()
		return err
	}
	p.op = op
	return nil
}

// take puts the replies of a part into the map; they come in the order of keys.
func (m *multi) take(at int, keys []string, found map[string]*Item) (failed error) {
	op := m.parts[at].op
	next := 0
	for i, key := range keys {
		if m.of[i] != at || next == len(op.Results) {
			continue
		}
		result := &op.Results[next]
		next++
		if result.Head.Status == wire.Value {
			item := m.item()
			*item = Item{Key: key, Value: m.copied(op.Dst[result.From:result.To]), Flags: result.Head.Flags, CasID: result.Head.CAS}
			found[key] = item
		} else if err := answer(&result.Head, result.Text); err != ErrCacheMiss {
			failed = err
		}
	}
	return failed
}

// item returns a new item.
func (m *multi) item() *Item {
	if len(m.items) == 0 {
		left := 0
		for _, p := range m.parts {
			left += p.count
		}
		m.items = make([]Item, min(left, itemsMax))
	}
	item := &m.items[0]
	m.items = m.items[1:]
	return item
}

// copied is a copy for the caller, whose capacity covers no other value.
func (m *multi) copied(value []byte) []byte {
	size := len(value)
	if size > smallBytes || size == 0 {
		return append([]byte{}, value...)
	}
	if len(m.block) < size {
		m.block = make([]byte, blockBytes)
	}
	own := m.block[:size:size]
	m.block = m.block[size:]
	copy(own, value)
	return own
}

func (m *multi) free() {
	clear(m.parts)
	m.parts, m.of = m.parts[:0], m.of[:0]
	// The rest of these blocks is shared with values that callers have.
	m.block, m.items = nil, nil
	if cap(m.bytes) > keepBytes {
		m.bytes = nil
	}
	multis.Put(m)
}
