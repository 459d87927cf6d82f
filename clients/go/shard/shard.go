// Package shard is placement: which server a key belongs to, by the rules of other clients, so that clients can be migrated one
// by one.
//
// Placement uses a server's name as configured, never a resolved address. A ring has points (value, server), sorted by value,
// then by the server's index. A key belongs to the first point at or after its hash, and beyond the last point to the first.
package shard

import (
	"crypto/md5"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Preset is a rule of placement.
type Preset string

// The presets, and whose placement each is.
const (
	// Ketama is libmemcached's weighted ketama, php-memcached's with OPT_LIBKETAMA_COMPATIBLE, twemproxy's with md5. For Unix
	// sockets, it is libmemcached's alone: twemproxy names them differently.
	Ketama Preset = "ketama"
	// KetamaFullPort is spymemcached's ketama with addresses: a name includes the port even if it is 11211. If spymemcached resolved
	// the host, the server's name is host/address:port.
	KetamaFullPort Preset = "ketama-full-port"
	// LibmemcachedConsistent is libmemcached's unweighted ketama with its default hash.
	LibmemcachedConsistent Preset = "libmemcached-consistent"
	// LibmemcachedConsistentMD5 has the hash MD5, set before ketama was.
	LibmemcachedConsistentMD5 Preset = "libmemcached-consistent-md5"
	// LibmemcachedConsistentMD5Late has the hash MD5, set after.
	LibmemcachedConsistentMD5Late Preset = "libmemcached-consistent-md5-late"
	// LibmemcachedSpy is libmemcached's weighted ketama with KETAMA_SPY.
	LibmemcachedSpy Preset = "libmemcached-spy"
	// ModulaOAAT is libmemcached's default, and php-memcached's.
	ModulaOAAT Preset = "modula-oaat"
	// ModulaMD5 is libmemcached's with the hash MD5.
	ModulaMD5 Preset = "modula-md5"
	// ModulaCRC15 is python-memcached's and spymemcached's; a server is listed as often as its weight says.
	ModulaCRC15 Preset = "modula-crc15"
	// TwemproxyModulaCRC15 is twemproxy's modula with the hash crc32: it sorts servers by name, shorter names first, before it
	// counts.
	TwemproxyModulaCRC15 Preset = "twemproxy-modula-crc15"
	// ModulaFNV1a64 is libmemcached's with the hash FNV1A_64.
	ModulaFNV1a64 Preset = "modula-fnv1a_64"
	// ModulaMurmur is libmemcached's with the hash MURMUR.
	ModulaMurmur Preset = "modula-murmur"
	// ModulaMurmur3 is libmemcached's with the hash MURMUR3.
	ModulaMurmur3 Preset = "modula-murmur3"
	// ModulaJenkins is libmemcached's with the hash JENKINS.
	ModulaJenkins Preset = "modula-jenkins"
	// ModulaCRC32 is gomemcache's; list a server more than once to give it more keys.
	ModulaCRC32 Preset = "modula-crc32"
	// TwemproxyFNV1a64 is that of twemproxy's example configuration.
	TwemproxyFNV1a64 Preset = "twemproxy-fnv1a_64"
	// RendezvousMurmur3 is pymemcache's, with keys that are str.
	RendezvousMurmur3 Preset = "rendezvous-murmur3"
	// Dalli is Dalli's ring.
	Dalli Preset = "dalli"
	// JumpXXH3 is the default of memcached's built-in proxy.
	JumpXXH3 Preset = "jump-xxh3"
	// ProxyRing is the ring of memcached's built-in proxy, with its default mode and hash.
	ProxyRing Preset = "proxy-ring"
	// XmemcachedKetama is xmemcached's ketama. If xmemcached resolved the host, or found a name for the address, the server's name
	// is host/address:port. A server's points grow with its own weight, whatever the others' are, and all weights add up to 1,000
	// at most.
	XmemcachedKetama Preset = "xmemcached-ketama"
)

// xmemcachedWeightsMax is the most that all weights of an xmemcached ring are together: it has 160 points for each 1.
const xmemcachedWeightsMax = 1000

// Server is one of the servers to choose from.
type Server struct {
	// Name is what is hashed: host:port, or a path.
	Name string
	// Weight is its share of the keys. Default: 1.
	Weight int
}

// Picker chooses a key's server. It never changes, so that all goroutines may use it at once.
type Picker struct {
	preset Preset
	names  []string
	points []point
	// listed has each server as often as its weight says.
	listed []int
	hash   func(string) uint32
}

type point struct {
	value  uint32
	server int
}

// New makes a picker.
//
// # Errors
//
// An unknown preset, no server, a negative weight, weights with a preset that has none, or more than it may have.
func New(preset Preset, servers []Server) (*Picker, error) {
	if len(servers) == 0 {
		return nil, fmt.Errorf("shard: no servers")
	}
	p := &Picker{preset: preset}
	weights := make([]int, len(servers))
	total, equal := 0, true
	for i, server := range servers {
		weights[i] = max(server.Weight, 1)
		if server.Weight < 0 {
			return nil, fmt.Errorf("shard: %s weighs %d", server.Name, server.Weight)
		}
		equal = equal && weights[i] == weights[0]
		total += weights[i]
		p.names = append(p.names, server.Name)
	}
	weighted := true
	switch preset {
	case Ketama:
		p.hash, p.points = md5First, ketama(p.names, weights, total, libmemcachedName)
	case KetamaFullPort:
		p.hash, p.points = md5First, ketama(p.names, weights, total, asIs)
	case LibmemcachedSpy:
		p.hash, p.points = md5First, ketama(p.names, weights, total, func(name string) string {
			if host, port, err := net.SplitHostPort(name); err == nil {
				name = host + ":" + port
			}
			return "/" + name
		})
	case TwemproxyFNV1a64:
		p.hash, p.points = fnv1a64, ketama(p.names, weights, total, shortName)
	case LibmemcachedConsistent:
		p.hash, p.points, weighted = oaat, hashed(p.names, 100, libmemcachedName, oaat), false
	case LibmemcachedConsistentMD5:
		p.hash, p.points, weighted = md5First, hashed(p.names, 100, libmemcachedName, md5First), false
	case LibmemcachedConsistentMD5Late:
		p.hash, p.points, weighted = md5First, hashed(p.names, 100, libmemcachedName, oaat), false
	case ModulaOAAT:
		p.hash, weighted = oaat, false
	case ModulaMD5:
		p.hash, weighted = md5First, false
	case ModulaFNV1a64:
		p.hash, weighted = fnv1a64, false
	case ModulaMurmur:
		p.hash, weighted = murmur, false
	case ModulaMurmur3:
		p.hash, weighted = murmur3OfLength, false
	case ModulaJenkins:
		p.hash, weighted = jenkins, false
	case ModulaCRC32:
		p.hash, weighted = crc, false
	case ModulaCRC15, TwemproxyModulaCRC15:
		p.hash = crc15
	case RendezvousMurmur3, JumpXXH3:
		weighted = false
	case ProxyRing:
		p.hash, p.points, weighted = xxh3Low, hashed(p.names, 160, bareName, xxh3Low), false
	case XmemcachedKetama:
		if slices.Max(weights) > xmemcachedWeightsMax || total > xmemcachedWeightsMax {
			return nil, fmt.Errorf("shard: the weights are more than %d together", xmemcachedWeightsMax)
		}
		p.hash, p.points = md5First, xmemcached(p.names, weights)
	case Dalli:
		p.hash, p.points = crc, dalli(p.names, weights, total)
	default:
		return nil, fmt.Errorf("shard: no preset %q", preset)
	}
	if !weighted && !equal {
		return nil, fmt.Errorf("shard: %s knows no weights", preset)
	}
	if p.points == nil && p.hash != nil {
		order := make([]int, len(servers))
		for i := range order {
			order[i] = i
		}
		if preset == TwemproxyModulaCRC15 {
			slices.SortStableFunc(order, func(a, b int) int {
				x, y := shortName(p.names[a]), shortName(p.names[b])
				if len(x) != len(y) {
					return len(x) - len(y)
				}
				return strings.Compare(x, y)
			})
		}
		for _, i := range order {
			weight := weights[i]
			if !weighted {
				weight = 1
			}
			for range weight {
				p.listed = append(p.listed, i)
			}
		}
	}
	slices.SortFunc(p.points, func(a, b point) int {
		if a.value != b.value {
			if a.value < b.value {
				return -1
			}
			return 1
		}
		return a.server - b.server
	})
	return p, nil
}

// Pick is the index of the key's server.
func (p *Picker) Pick(key string) int {
	switch {
	case len(p.names) == 1:
		return 0
	case p.preset == JumpXXH3:
		return jump(xxh3(key), len(p.names))
	case p.hash == nil:
		return p.rendezvous(key)
	case p.points == nil:
		return p.listed[p.hash(key)%uint32(len(p.listed))]
	}
	hash := p.hash(key)
	if p.preset == Dalli {
		// The last point at or before the hash.
		at, _ := slices.BinarySearchFunc(p.points, hash, func(x point, hash uint32) int {
			if x.value <= hash {
				return -1
			}
			return 1
		})
		if at == 0 {
			at = len(p.points)
		}
		return p.points[at-1].server
	}
	at, _ := slices.BinarySearchFunc(p.points, hash, func(x point, hash uint32) int {
		if x.value < hash {
			return -1
		}
		return 1
	})
	if at == len(p.points) {
		at = 0
	}
	return p.points[at].server
}

func (p *Picker) rendezvous(key string) int {
	best, most := 0, uint32(0)
	for i, name := range p.names {
		hash := scored(name, key)
		if i == 0 || hash > most || (hash == most && name > p.names[best]) {
			best, most = i, hash
		}
	}
	return best
}

func asIs(name string) string { return name }

// shortName omits memcached's default port, as twemproxy does.
func shortName(name string) string { return strings.TrimSuffix(name, ":11211") }

// bareName is host:port, of an IPv6 address without brackets.
func bareName(name string) string {
	if host, port, err := net.SplitHostPort(name); err == nil {
		return host + ":" + port
	}
	return name
}

// libmemcachedName is the host as in libmemcached's calls: an IPv6 address without brackets, a Unix socket with the port 0;
// memcached's default port is omitted.
func libmemcachedName(name string) string {
	host, port, err := net.SplitHostPort(name)
	switch {
	case err != nil && strings.HasPrefix(name, "/"):
		return name + ":0"
	case err != nil:
		return name
	case port == "11211":
		return host
	}
	return host + ":" + port
}

// ketama has four points of each MD5 of name-i. The number of points is computed in single precision, in this order.
func ketama(names []string, weights []int, total int, form func(string) string) []point {
	points := []point{}
	for server, name := range names {
		share := float32(weights[server]) / float32(total)
		hashes := int(float32(float32(share*160/4)*float32(len(names))) + 0.0000000001)
		for i := range hashes {
			points = append4(points, form(name)+"-"+strconv.Itoa(i), server)
		}
	}
	return points
}

// append4 appends the four words of a text's MD5.
func append4(points []point, text string, server int) []point {
	sum := md5.Sum([]byte(text))
	for word := range 4 {
		points = append(points, point{binary.LittleEndian.Uint32(sum[4*word:]), server})
	}
	return points
}

// xmemcached has four points of each MD5 of name-i, 40 of these for each 1 of a server's weight. The name is as Java shows an
// address: the host's name, which may be missing, a slash, and the address with its port.
func xmemcached(names []string, weights []int) []point {
	points := []point{}
	for server, name := range names {
		if !strings.Contains(name, "/") {
			name = "/" + name
		}
		for i := range 40 * weights[server] {
			points = append4(points, name+"-"+strconv.Itoa(i), server)
		}
	}
	return points
}

// hashed has so many points per server, each the hash of name-i.
func hashed(names []string, count int, form func(string) string, hash func(string) uint32) []point {
	points := []point{}
	for server, name := range names {
		for i := range count {
			points = append(points, point{hash(form(name) + "-" + strconv.Itoa(i)), server})
		}
	}
	return points
}

// jump is Lamping's and Veach's jump hash: which of so many buckets, of which there is one at least, a hash has.
func jump(hash uint64, buckets int) int {
	// Of 64 bits wherever it runs: the step beyond the last bucket may be one of 2³¹ and more.
	bucket, next := int64(0), int64(0)
	for next < int64(buckets) {
		bucket = next
		hash = hash*2862933555777941757 + 1
		stride := float64(1<<31) / float64(hash>>33+1)
		next = int64(float64(bucket+1) * stride)
	}
	return int(bucket)
}

func dalli(names []string, weights []int, total int) []point {
	points := []point{}
	for server, name := range names {
		for i := range len(names) * 160 * weights[server] / total {
			sum := sha1.Sum([]byte(name + ":" + strconv.Itoa(i)))
			points = append(points, point{binary.BigEndian.Uint32(sum[:]), server})
		}
	}
	return points
}
