package main

import (
	"encoding/binary"
	"math/bits"
)

const (
	manyKeys = 100
	setsKeys = 64
	buckets  = 4096
)

// bucket is that of a time: exact below 64 ns, then 64 for each power of two.
func bucket(ns uint64) int {
	if ns < 64 {
		return int(ns)
	}
	power := bits.Len64(ns) - 1
	return min((power-5)*64+int(ns>>(power-6)&63), buckets-1)
}

// value is the lab's of a key at a version.
func value(key, version uint64, n int) []byte {
	const named = 24
	if n < named {
		version = 0
	}
	x := key*0xD6E8FEB86659FD93 ^ bits.RotateLeft64(version, 32) ^ uint64(n)<<17
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	x ^= x >> 31
	out := make([]byte, 0, n+8)
	if n >= named {
		out = binary.LittleEndian.AppendUint64(out, key)
		out = binary.LittleEndian.AppendUint64(out, version)
	}
	for ; len(out) < n; x += 0x9E3779B97F4A7C15 {
		out = binary.LittleEndian.AppendUint64(out, x)
	}
	return out[:n]
}
