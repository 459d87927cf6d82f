package shard

import (
	"crypto/md5"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

func md5First(key string) uint32 {
	var room [256]byte
	sum := md5.Sum(append(room[:0], key...))
	return binary.LittleEndian.Uint32(sum[:])
}

// crc is CRC-32 (IEEE), a byte at a time: the library's takes a slice, which would be allocated.
func crc(key string) uint32 {
	sum := ^uint32(0)
	for i := range len(key) {
		sum = crc32.IEEETable[byte(sum)^key[i]] ^ sum>>8
	}
	return ^sum
}

func crc15(key string) uint32 { return crc(key) >> 16 & 0x7fff }

// oaat is Jenkins' one-at-a-time over signed bytes.
func oaat(key string) uint32 {
	var hash uint32
	for i := range len(key) {
		hash += uint32(int8(key[i]))
		hash += hash << 10
		hash ^= hash >> 6
	}
	hash += hash << 3
	hash ^= hash >> 11
	return hash + hash<<15
}

// fnv1a64 is what libmemcached and twemproxy call FNV1A_64: 32 bits of state, signed bytes.
func fnv1a64(key string) uint32 {
	hash := uint32(0x84222325)
	for i := range len(key) {
		hash ^= uint32(int8(key[i]))
		hash *= 0x1b3
	}
	return hash
}

// scored is the 32-bit MurmurHash3 of "name-key" with the seed 0, over the low eight bits of each code point, as pymemcache
// computes it.
func scored(name, key string) uint32 {
	var room [512]byte
	low := room[:0]
	for _, part := range [...]string{name, "-", key} {
		for _, letter := range part {
			low = append(low, byte(letter))
		}
	}
	return murmur3(low, 0)
}

// ofLength is the seed by which libmemcached starts its Murmur hashes.
func ofLength(key string) uint32 { return 0xdeadbeef * uint32(len(key)) }

// murmur is MurmurHash2, with a seed of the key's length.
func murmur(key string) uint32 {
	const m = 0x5bd1e995
	hash := ofLength(key) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		word := little(key[:4]) * m
		hash = hash*m ^ (word^word>>24)*m
	}
	if key != "" {
		hash = (hash ^ little(key)) * m
	}
	hash = (hash ^ hash>>13) * m
	return hash ^ hash>>15
}

func murmur3OfLength(key string) uint32 { return murmur3(key, ofLength(key)) }

// murmur3 is the 32-bit MurmurHash3.
func murmur3[K string | []byte](key K, seed uint32) uint32 {
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
	hash, word := seed, uint32(0)
	for i := range len(key) {
		word |= uint32(key[i]) << (8 * (i % 4))
		if i%4 == 3 {
			hash = bits.RotateLeft32(hash^mix(word), 13)*5 + 0xe6546b64
			word = 0
		}
	}
	hash ^= mix(word) ^ uint32(len(key))
	hash = (hash ^ hash>>16) * 0x85ebca6b
	hash = (hash ^ hash>>13) * 0xc2b2ae35
	return hash ^ hash>>16
}

// jenkins is Jenkins' lookup3, with libmemcached's initial value.
func jenkins(key string) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + 13
	b, c := a, a
	for ; len(key) > 12; key = key[12:] {
		a, b, c = a+little(key[:4]), b+little(key[4:8]), c+little(key[8:12])
		for _, turn := range [...]int{4, 6, 8, 16, 19, 4} {
			a = (a - c) ^ bits.RotateLeft32(c, turn)
			c += b
			a, b, c = b, c, a
		}
	}
	if key == "" {
		return c
	}
	end := len(key)
	a, b, c = a+little(key[:min(4, end)]), b+little(key[min(4, end):min(8, end)]), c+little(key[min(8, end):])
	for _, turn := range [...]int{14, 11, 25, 16, 4, 14, 24} {
		c = (c ^ b) - bits.RotateLeft32(b, turn)
		a, b, c = b, c, a
	}
	return b
}

// little is up to four bytes, the first the lowest.
func little(text string) uint32 {
	word := uint32(0)
	for i := len(text) - 1; i >= 0; i-- {
		word = word<<8 | uint32(text[i])
	}
	return word
}
