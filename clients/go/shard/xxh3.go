package shard

import "math/bits"

// secret is XXH3's default one: what is mixed with a key are bytes of it, each at its own place.
const secret = "" +
	"\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe\x7c\x01\x81\x2c\xf7\x21\xad\x1c" +
	"\xde\xd4\x6d\xe9\x83\x90\x97\xdb\x72\x40\xa4\xa4\xb7\xb3\x67\x1f" +
	"\xcb\x79\xe6\x4e\xcc\xc0\xe5\x78\x82\x5a\xd0\x7d\xcc\xff\x72\x21" +
	"\xb8\x08\x46\x74\xf7\x43\x24\x8e\xe0\x35\x90\xe6\x81\x3a\x26\x4c" +
	"\x3c\x28\x52\xbb\x91\xc3\x00\xcb\x88\xd0\x65\x8b\x1b\x53\x2e\xa3" +
	"\x71\x64\x48\x97\xa2\x0d\xf9\x4e\x38\x19\xef\x46\xa9\xde\xac\xd8" +
	"\xa8\xfa\x76\x3f\xe3\x9c\x34\x3f\xf9\xdc\xbb\xc7\xc7\x0b\x4f\x1d" +
	"\x8a\x51\xe0\x4b\xcd\xb4\x59\x31\xc8\x9f\x7e\xc9\xd9\x78\x73\x64" +
	"\xea\xc5\xac\x83\x34\xd3\xeb\xc3\xc5\x81\xa0\xff\xfa\x13\x63\xeb" +
	"\x17\x0d\xdd\x51\xb7\xf0\xda\x49\xd3\x16\x55\x26\x29\xd4\x68\x9e" +
	"\x2b\x16\xbe\x58\x7d\x47\xa1\xfc\x8f\xf8\xb8\xd1\x7a\xd0\x31\xce" +
	"\x45\xcb\x3a\x8f\x95\x16\x04\x28\xaf\xd7\xfb\xca\xbb\x4b\x40\x7e"

const (
	prime32a = 0x9e3779b1
	prime32b = 0x85ebca77
	prime32c = 0xc2b2ae3d
	prime64a = 0x9e3779b185ebca87
	prime64b = 0xc2b2ae3d27d4eb4f
	prime64c = 0x165667b19e3779f9
	prime64d = 0x85ebca77c2b2ae63
	prime64e = 0x27d4eb2f165667c5

	// stripeBytes are added at a time to the sums of a long key; after blockStripes, each with the secret from another place on, the
	// sums are scrambled.
	stripeBytes  = 64
	blockStripes = 16
)

// xxh3Low is the low half of xxh3.
func xxh3Low(key string) uint32 { return uint32(xxh3(key)) }

// xxh3 is XXH3 of 64 bits without a seed, by which memcached's proxy places keys. Source: the specification of xxHash 0.8,
// doc/xxhash_spec.md.
func xxh3(key string) uint64 {
	n := len(key)
	sum := uint64(n) * prime64a
	switch {
	case n <= 16:
		return xxh3Short(key)
	case n <= 128:
		// From both ends.
		for i := range (n-1)/32 + 1 {
			sum += mixed(key, 16*i, 32*i) + mixed(key, n-16*(i+1), 32*i+16)
		}
		return avalanche(sum)
	case n <= 240:
		for i := range 8 {
			sum += mixed(key, 16*i, 16*i)
		}
		sum = avalanche(sum)
		for i := 8; i < n/16; i++ {
			sum += mixed(key, 16*i, 16*(i-8)+3)
		}
		return avalanche(sum + mixed(key, n-16, 119))
	}
	sums := [8]uint64{prime32c, prime64a, prime64b, prime64c, prime64d, prime32b, prime64e, prime32a}
	for stripe := range (n - 1) / stripeBytes {
		ofBlock := stripe % blockStripes
		addStripe(&sums, key[stripeBytes*stripe:], 8*ofBlock)
		if ofBlock == blockStripes-1 {
			for i := range sums {
				sums[i] = (sums[i] ^ sums[i]>>47 ^ word64(secret, 128+8*i)) * prime32a
			}
		}
	}
	// The last stripe may overlap the one before.
	addStripe(&sums, key[n-stripeBytes:], 121)
	for i := range 4 {
		sum += folded(sums[2*i]^word64(secret, 11+16*i), sums[2*i+1]^word64(secret, 19+16*i))
	}
	return avalanche(sum)
}

// xxh3Short is xxh3 of 16 bytes at most.
func xxh3Short(key string) uint64 {
	n := len(key)
	switch {
	case n == 0:
		return finished(word64(secret, 56) ^ word64(secret, 64))
	case n <= 3:
		bytes := uint64(key[0])<<16 | uint64(key[n/2])<<24 | uint64(key[n-1]) | uint64(n)<<8
		return finished(bytes ^ word32(secret, 0) ^ word32(secret, 4))
	case n <= 8:
		const multiplier = 0x9fb21c651e98df25
		hash := word32(key, n-4) | word32(key, 0)<<32
		hash ^= word64(secret, 8) ^ word64(secret, 16)
		hash = (hash ^ bits.RotateLeft64(hash, 49) ^ bits.RotateLeft64(hash, 24)) * multiplier
		hash = (hash ^ (hash>>35 + uint64(n))) * multiplier
		return hash ^ hash>>28
	}
	low := word64(key, 0) ^ word64(secret, 24) ^ word64(secret, 32)
	high := word64(key, n-8) ^ word64(secret, 40) ^ word64(secret, 48)
	return avalanche(uint64(n) + bits.ReverseBytes64(low) + high + folded(low, high))
}

// addStripe adds the first stripe of these bytes to the sums, with the secret from this place on.
func addStripe(sums *[8]uint64, stripe string, at int) {
	for i := range sums {
		value := word64(stripe, 8*i)
		mixed := value ^ word64(secret, at+8*i)
		sums[i^1] += value
		sums[i] += (mixed & (1<<32 - 1)) * (mixed >> 32)
	}
}

// mixed is the product of 16 bytes of the key, each half mixed with bytes of the secret.
func mixed(key string, at, of int) uint64 {
	return folded(word64(key, at)^word64(secret, of), word64(key, at+8)^word64(secret, of+8))
}

// folded is both halves of a product, one upon the other.
func folded(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func avalanche(hash uint64) uint64 {
	hash = (hash ^ hash>>37) * 0x165667919e3779f9
	return hash ^ hash>>32
}

// finished is the avalanche of the hash before XXH3, which the shortest keys have.
func finished(hash uint64) uint64 {
	hash = (hash ^ hash>>33) * prime64b
	hash = (hash ^ hash>>29) * prime64c
	return hash ^ hash>>32
}

// word64 is eight bytes, the first the lowest.
func word64(text string, at int) uint64 {
	return word32(text, at) | word32(text, at+4)<<32
}

// word32 is four bytes, the first the lowest.
func word32(text string, at int) uint64 {
	part := text[at : at+4]
	return uint64(part[0]) | uint64(part[1])<<8 | uint64(part[2])<<16 | uint64(part[3])<<24
}
