package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/bradfitz/gomemcache/memcache"
	rainycape "github.com/rainycape/memcache"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"larder.example/clients/go"
	facade "larder.example/clients/go/memcache"
)

// client is one that is open.
type client interface {
	// session is what one caller uses of it.
	session() session
	// writes is how often it wrote to a socket, if it counts that.
	writes() int64
	close()
}

// uncounted is a client that does not count its writes.
type uncounted struct{}

func (uncounted) writes() int64 { return 0 }

// session is a client as one caller sees it. A value that get returns is the caller's until the next call.
type session interface {
	get(key string) ([]byte, error)
	set(key string, value []byte) error
	// many gets keys, holds each value against k, and says how many were found and how many were wrong.
	many(keys []string, k *keyspace) (found, wrong int, err error)
	close()
}

// setter is a session that stores several keys with one call: setsKeys of them, from number at on.
type setter interface {
	sets(at int, k *keyspace) error
}

// clients by their names, with the module whose version they have.
var clients = []struct {
	name, module string
	open         func(j *job) (client, error)
}{
	{"larder", "larder.example/clients/go", func(j *job) (client, error) { return openLarder(j, false) }},
	{"larder, replies verified", "larder.example/clients/go", func(j *job) (client, error) { return openLarder(j, true) }},
	{"larder façade", "larder.example/clients/go", openFacade},
	{"gomemcache", "github.com/bradfitz/gomemcache", func(j *job) (client, error) { return openGomemcache(j, 0) }},
	{"gomemcache, pool = callers", "github.com/bradfitz/gomemcache", func(j *job) (client, error) { return openGomemcache(j, j.Callers+1) }},
	{"rainycape", "github.com/rainycape/memcache", openRainycape},
	{"by hand", "", openHand},
	{"rueidis", "github.com/redis/rueidis", openRueidis},
	{"go-redis", "github.com/redis/go-redis/v9", openGoRedis},
}

func open(j *job) (client, error) {
	for _, c := range clients {
		if c.name == j.Client {
			return c.open(j)
		}
	}
	return nil, fmt.Errorf("there is no client %q", j.Client)
}

// versions of the clients, as they are linked.
func versions() [][2]string {
	linked := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			linked[module.Path] = module.Version
		}
	}
	var all [][2]string
	for _, c := range clients {
		version := linked[c.module]
		if strings.HasPrefix(version, "v0.0.0") {
			version = strings.TrimPrefix(strings.TrimPrefix(version, "v0.0.0"), "-")
		}
		all = append(all, [2]string{c.name, version})
	}
	return all
}

func isMiss(err error) bool {
	return errors.Is(err, larder.ErrMiss) || err == memcache.ErrCacheMiss || err == facade.ErrCacheMiss ||
		err == rainycape.ErrCacheMiss || err == redis.Nil || err == errHandMiss || rueidis.IsRedisNil(err)
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, larder.ErrTimeout) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &network) && network.Timeout()
}

// connections that were asked for, where the client lets us see.
var connections atomic.Int64

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	connections.Add(1)
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

var background = context.Background()

// deadline is a context for a call where what is asked is when it ends: clients that have no timeout of their own.
func deadline(j *job) (context.Context, context.CancelFunc) {
	if j.TimeoutMS < 1000 {
		return context.WithTimeout(background, j.timeout())
	}
	return background, func() {}
}

// ---- larder ----

type larderClient struct{ c *larder.Client }

type larderSession struct {
	c       *larder.Client
	dst     []byte
	buffer  *larder.Buffer
	batch   *larder.Batch
	asked   []string
	against *keyspace
	found   int
	wrong   int
	each    func(i int, value []byte, m larder.Meta, err error)
}

// openTries is how often a first connection is tried for: what is measured begins behind it, and a busy machine may stand
// still for as long as a dial may take.
const openTries = 5

func openLarder(j *job, verify bool) (client, error) {
	config := larder.Config{
		Servers: []larder.Server{{Address: j.address()}}, Timeout: j.timeout(), VerifyReplies: verify, Dial: dial,
	}
	if j.TLS {
		// By the client's own option: its Dial makes the connections below.
		secure, err := j.config()
		if err != nil {
			return nil, err
		}
		config.TLS = secure
	}
	if j.Password != "" {
		config.Auth = func(context.Context, larder.Server) (string, string, error) { return j.User, j.Password, nil }
	}
	c, err := larder.Open(background, config)
	for tries := 1; tries < openTries && isTimeout(err); tries++ {
		c, err = larder.Open(background, config)
	}
	return &larderClient{c}, err
}

func (l *larderClient) close() { _ = l.c.Close() }

func (l *larderClient) writes() int64 {
	var all int64
	for _, server := range l.c.Counters() {
		all += int64(server.Writes)
	}
	return all
}

func (l *larderClient) session() session {
	s := &larderSession{c: l.c, dst: make([]byte, 0, 4096)}
	s.each = func(i int, value []byte, _ larder.Meta, err error) {
		if err == nil {
			s.found++
			if !s.against.right(s.asked[i], value) {
				s.wrong++
			}
		}
	}
	return s
}

func (s *larderSession) get(key string) ([]byte, error) {
	got, err := s.c.Get(background, key, s.dst[:0])
	if cap(got) > cap(s.dst) {
		s.dst = got
	}
	return got, err
}

func (s *larderSession) set(key string, value []byte) error {
	return s.c.Set(background, key, value, 0)
}

func (s *larderSession) many(keys []string, k *keyspace) (int, int, error) {
	if s.buffer == nil {
		s.buffer = larder.NewBuffer(64 << 10)
	}
	s.asked, s.against, s.found, s.wrong = keys, k, 0, 0
	err := s.c.GetMany(background, keys, s.buffer, s.each)
	return s.found, s.wrong, err
}

func (s *larderSession) sets(at int, k *keyspace) error {
	if s.batch == nil {
		s.batch = s.c.Batch()
	}
	s.batch.Reset()
	for i := at; i < at+setsKeys; i++ {
		s.batch.Set(k.names[i], k.values[i%len(k.values)], larder.Forever)
	}
	if err := s.batch.Do(background); err != nil {
		return err
	}
	for i := range setsKeys {
		if err := s.batch.Err(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *larderSession) close() {}

// ---- its façade, and gomemcache ----

type facadeClient struct {
	uncounted
	c *facade.Client
}

func openFacade(j *job) (client, error) {
	dialer, err := j.dialer()
	if err != nil {
		return nil, err
	}
	c := facade.New(j.address())
	c.Timeout, c.DialContext = j.timeout(), dialer
	return facadeClient{c: c}, nil
}

func (f facadeClient) session() session { return facadeSession{f.c} }
func (f facadeClient) close()           { _ = f.c.Close() }

type facadeSession struct{ c *facade.Client }

func (f facadeSession) get(key string) ([]byte, error) {
	item, err := f.c.Get(key)
	if err != nil {
		return nil, err
	}
	return item.Value, nil
}

func (f facadeSession) set(key string, value []byte) error {
	return f.c.Set(&facade.Item{Key: key, Value: value})
}

func (f facadeSession) many(keys []string, k *keyspace) (found, wrong int, err error) {
	items, err := f.c.GetMulti(keys)
	for key, item := range items {
		if !k.right(key, item.Value) {
			wrong++
		}
	}
	return len(items), wrong, err
}

func (f facadeSession) close() {}

type gomemcacheClient struct {
	uncounted
	c *memcache.Client
}

// openGomemcache keeps so many idle connections; as shipped with 0.
func openGomemcache(j *job, idle int) (client, error) {
	dialer, err := j.dialer()
	if err != nil {
		return nil, err
	}
	c := memcache.New(j.address())
	c.Timeout, c.DialContext, c.MaxIdleConns = j.timeout(), dialer, idle
	return gomemcacheClient{c: c}, nil
}

func (g gomemcacheClient) session() session { return gomemcacheSession{g} }
func (g gomemcacheClient) close()           { _ = g.c.Close() }

type gomemcacheSession struct{ gomemcacheClient }

func (g gomemcacheSession) close() {}

func (g gomemcacheClient) get(key string) ([]byte, error) {
	item, err := g.c.Get(key)
	if err != nil {
		return nil, err
	}
	return item.Value, nil
}

func (g gomemcacheClient) set(key string, value []byte) error {
	return g.c.Set(&memcache.Item{Key: key, Value: value})
}

func (g gomemcacheClient) many(keys []string, k *keyspace) (found, wrong int, err error) {
	items, err := g.c.GetMulti(keys)
	for key, item := range items {
		if !k.right(key, item.Value) {
			wrong++
		}
	}
	return len(items), wrong, err
}

// ---- rainycape's, which speaks the binary protocol ----

type rainycapeClient struct {
	uncounted
	c *rainycape.Client
}

func openRainycape(j *job) (client, error) {
	c, err := rainycape.New(j.address())
	if err != nil {
		return nil, err
	}
	c.SetTimeout(j.timeout())
	return rainycapeClient{c: c}, nil
}

func (r rainycapeClient) session() session { return rainycapeSession{r} }
func (r rainycapeClient) close()           { _ = r.c.Close() }

type rainycapeSession struct{ rainycapeClient }

func (r rainycapeSession) close() {}

func (r rainycapeClient) get(key string) ([]byte, error) {
	item, err := r.c.Get(key)
	if err != nil {
		return nil, err
	}
	return item.Value, nil
}

func (r rainycapeClient) set(key string, value []byte) error {
	return r.c.Set(&rainycape.Item{Key: key, Value: value})
}

func (r rainycapeClient) many(keys []string, k *keyspace) (found, wrong int, err error) {
	items, err := r.c.GetMulti(keys)
	for key, item := range items {
		if !k.right(key, item.Value) {
			wrong++
		}
	}
	return len(items), wrong, err
}

// ---- Redis's protocol ----

type rueidisClient struct {
	uncounted
	c rueidis.Client
	j *job
}

func openRueidis(j *job) (client, error) {
	dialer, err := j.dialer()
	if err != nil {
		return nil, err
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{j.address()}, Username: j.User, Password: j.Password, DisableCache: true, ConnWriteTimeout: j.timeout(),
		DialCtxFn: func(ctx context.Context, address string, library *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if j.network() != "tcp" || j.TLS {
				return dialer(ctx, j.network(), address)
			}
			connections.Add(1)
			return library.DialContext(ctx, "tcp", address)
		},
	})
	return rueidisClient{c: c, j: j}, err
}

func (r rueidisClient) session() session { return rueidisSession{r} }
func (r rueidisClient) close()           { r.c.Close() }

type rueidisSession struct{ rueidisClient }

func (r rueidisSession) close() {}

func (r rueidisClient) get(key string) ([]byte, error) {
	ctx, cancel := deadline(r.j)
	defer cancel()
	return r.c.Do(ctx, r.c.B().Get().Key(key).Build()).AsBytes()
}

func (r rueidisClient) set(key string, value []byte) error {
	ctx, cancel := deadline(r.j)
	defer cancel()
	return r.c.Do(ctx, r.c.B().Set().Key(key).Value(rueidis.BinaryString(value)).Build()).Error()
}

func (r rueidisClient) many(keys []string, k *keyspace) (found, wrong int, err error) {
	values, err := r.c.Do(background, r.c.B().Mget().Key(keys...).Build()).ToArray()
	for i := range values {
		if values[i].IsNil() {
			continue
		}
		found++
		if got, err := values[i].AsBytes(); err != nil || !k.right(keys[i], got) {
			wrong++
		}
	}
	return found, wrong, err
}

type goRedisClient struct {
	uncounted
	c *redis.Client
	j *job
}

func openGoRedis(j *job) (client, error) {
	dialer, err := j.dialer()
	if err != nil {
		return nil, err
	}
	c := redis.NewClient(&redis.Options{
		Network: j.network(), Addr: j.address(), Username: j.User, Password: j.Password,
		DialTimeout: j.timeout(), ReadTimeout: j.timeout(), WriteTimeout: j.timeout(),
		ContextTimeoutEnabled: true, Dialer: dialer,
	})
	return goRedisClient{c: c, j: j}, nil
}

func (g goRedisClient) session() session { return goRedisSession{g} }
func (g goRedisClient) close()           { _ = g.c.Close() }

type goRedisSession struct{ goRedisClient }

func (g goRedisSession) close() {}

func (g goRedisClient) get(key string) ([]byte, error) {
	ctx, cancel := deadline(g.j)
	defer cancel()
	return g.c.Get(ctx, key).Bytes()
}

func (g goRedisClient) set(key string, value []byte) error {
	ctx, cancel := deadline(g.j)
	defer cancel()
	return g.c.Set(ctx, key, value, 0).Err()
}

func (g goRedisClient) many(keys []string, k *keyspace) (found, wrong int, err error) {
	values, err := g.c.MGet(background, keys...).Result()
	for i, got := range values {
		if text, ok := got.(string); ok {
			found++
			if !k.right(keys[i], []byte(text)) {
				wrong++
			}
		}
	}
	return found, wrong, err
}
