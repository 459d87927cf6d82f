package memcache

import (
	"context"
	"net"
	"time"

	"larder.example/clients/go/internal/fleet"
	"larder.example/clients/go/internal/lane"
	"larder.example/clients/go/internal/wire"
)

// groupMax is how many gets a server is asked together.
const groupMax = 512

// part is what one server is asked.
type part struct {
	addr   net.Addr
	server *fleet.Server
	keys   []string
	lane   *lane.Lane
	op     *lane.Op
}

// GetMulti is the items of those keys that there are. When there is an error, what came is there as well.
func (c *Client) GetMulti(keys []string) (map[string]*Item, error) {
	var parts []*part
	at := map[net.Addr]*part{}
	for _, key := range keys {
		if !wire.ValidKey(key) {
			return nil, ErrMalformedKey
		}
		addr, err := c.selector.PickServer(key)
		if err != nil {
			return nil, err
		}
		p := at[addr]
		if p == nil || len(p.keys) == groupMax {
			p = &part{addr: addr, server: c.server(addr)}
			at[addr] = p
			parts = append(parts, p)
		}
		p.keys = append(p.keys, key)
	}
	found := make(map[string]*Item, len(keys))
	deadline := lane.Now() + c.timeout()
	var failed error
	for _, p := range parts {
		if err := p.submit(deadline); err != nil {
			failed = failure(err, p.addr)
		}
	}
	for _, p := range parts {
		if p.op == nil {
			continue
		}
		if err := p.server.Wait(context.Background(), p.lane, p.op); err != nil {
			failed = failure(err, p.addr)
		}
		for i := range p.op.Results {
			result := &p.op.Results[i]
			if result.Head.Status == wire.Value {
				value := append([]byte{}, p.op.Dst[result.From:result.To]...)
				found[p.keys[i]] = &Item{Key: p.keys[i], Value: value, Flags: result.Head.Flags, CasID: result.Head.CAS}
			} else if err := answer(&result.Head, result.Text); err != ErrCacheMiss {
				failed = err
			}
		}
		p.op.Free()
	}
	return found, failed
}

func (p *part) submit(deadline time.Duration) error {
	var err error
	if p.lane, err = p.server.Lane(context.Background(), 0, deadline); err != nil {
		return err
	}
	var bytes []byte
	for _, key := range p.keys {
		bytes = p.lane.Protocol().Write(bytes, &wire.Request{Verb: wire.Get, Key: key, Want: wire.WantFlags | wire.WantCAS})
	}
	op := lane.NewOp()
	if err = p.server.Submit(context.Background(), p.lane, op, lane.Group{Bytes: bytes, Verb: wire.Get, Replies: len(p.keys)}, deadline); err != nil {
		op.Free()
		return err
	}
	p.op = op
	return nil
}
