package memcache

import (
	"hash/crc32"
	"net"
	"sync"

	"larder.example/clients/go/internal/fleet"
)

// ServerSelector places keys on servers. Many goroutines use it at once.
type ServerSelector interface {
	// PickServer is the address of the key's server.
	PickServer(key string) (net.Addr, error)
	// Each calls the function for every server, until it fails.
	Each(func(net.Addr) error) error
}

// ServerList is a selector by CRC-32 modulo the number of servers. Its zero value has none.
type ServerList struct {
	mu    sync.RWMutex
	addrs []net.Addr
}

// address is an address that is known as text.
type address struct{ network, text string }

func (a *address) Network() string { return a.network }
func (a *address) String() string  { return a.text }

// SetServers replaces the list. Calls under way end where they began. A server that is listed twice gets twice as many keys.
//
// # Errors
//
// A name cannot be resolved; the list stays as it was.
func (l *ServerList) SetServers(servers ...string) error {
	addrs := make([]net.Addr, len(servers))
	for i, server := range servers {
		network := fleet.Network(server)
		var resolved net.Addr
		var err error
		if network == "unix" {
			resolved, err = net.ResolveUnixAddr("unix", server)
		} else {
			resolved, err = net.ResolveTCPAddr("tcp", server)
		}
		if err != nil {
			return err
		}
		addrs[i] = &address{resolved.Network(), resolved.String()}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addrs = addrs
	return nil
}

// Each calls f for every server, until it fails.
func (l *ServerList) Each(f func(net.Addr) error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, addr := range l.addrs {
		if err := f(addr); err != nil {
			return err
		}
	}
	return nil
}

// PickServer is the key's server, or ErrNoServers.
func (l *ServerList) PickServer(key string) (net.Addr, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch len(l.addrs) {
	case 0:
		return nil, ErrNoServers
	case 1:
		return l.addrs[0], nil
	}
	sum := ^uint32(0)
	for i := range len(key) {
		sum = crc32.IEEETable[byte(sum)^key[i]] ^ sum>>8
	}
	return l.addrs[^sum%uint32(len(l.addrs))], nil
}
