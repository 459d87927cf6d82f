package larder

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Discovery provides the list of servers.
type Discovery interface {
	// Watch calls change with the servers, at once and whenever they change, until the context ends. The error of change says why a
	// list cannot be used; the previous list stays. If Watch itself returns an error before the context ends, it is called again
	// after a pause.
	Watch(ctx context.Context, change func([]Server) error) error
}

// Static is a list that does not change.
type Static []Server

// Watch passes the list once.
func (s Static) Watch(_ context.Context, change func([]Server) error) error { return change(s) }

// Resolver is what DNS uses; net.DefaultResolver is one.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// DNS looks names up: the addresses of Host, each with Port, or, if Service is set, the SRV records of _Service._tcp.Host, with
// their names, ports and weights. Placement hashes the address, or the record's name with its port.
type DNS struct {
	Host string
	// Port of the addresses. Default: 11211.
	Port int
	// Service is the service of SRV records.
	Service string
	// Every is the interval of look-ups. A failed look-up leaves the list as it is. Default: 30 s.
	Every    time.Duration
	Resolver Resolver
}

// Watch looks the names up at each interval.
func (d DNS) Watch(ctx context.Context, change func([]Server) error) error {
	if d.Every <= 0 {
		d.Every = 30 * time.Second
	}
	if d.Port == 0 {
		d.Port = 11211
	}
	if d.Resolver == nil {
		d.Resolver = net.DefaultResolver
	}
	var last []Server
	for {
		servers, err := d.lookUp(ctx)
		switch {
		case err != nil && last == nil:
			return err
		case err == nil && !slices.Equal(servers, last):
			if err := change(servers); err != nil {
				return err
			}
			last = servers
		}
		if !rest(ctx, d.Every) {
			return ctx.Err()
		}
	}
}

// lookUp looks up once. The result is sorted, since placement may depend on the order and answers come in any.
func (d DNS) lookUp(ctx context.Context) ([]Server, error) {
	var servers []Server
	if d.Service != "" {
		_, records, err := d.Resolver.LookupSRV(ctx, d.Service, "tcp", d.Host)
		if err != nil {
			return nil, err
		}
		least := uint16(0)
		for i, record := range records {
			if i == 0 || record.Priority < least {
				least = record.Priority
			}
		}
		weighted := slices.ContainsFunc(records, func(r *net.SRV) bool { return r.Weight != records[0].Weight })
		for _, record := range records {
			if record.Priority != least {
				continue
			}
			server := Server{Address: net.JoinHostPort(strings.TrimSuffix(record.Target, "."), strconv.Itoa(int(record.Port)))}
			if weighted {
				server.Weight = max(int(record.Weight), 1)
			}
			servers = append(servers, server)
		}
	} else {
		addresses, err := d.Resolver.LookupHost(ctx, d.Host)
		if err != nil {
			return nil, err
		}
		for _, address := range addresses {
			servers = append(servers, Server{Address: net.JoinHostPort(address, strconv.Itoa(d.Port))})
		}
	}
	if len(servers) == 0 {
		return nil, errNoServers
	}
	slices.SortFunc(servers, func(a, b Server) int { return strings.Compare(a.Address, b.Address) })
	return slices.Compact(servers), nil
}
