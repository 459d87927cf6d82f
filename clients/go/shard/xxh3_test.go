package shard

import (
	"math/bits"
	"strings"
	"testing"
)

// Keys of both sides of each length at which the way changes, and the beginnings of a text, of 0 to 2,100 bytes, have the hashes of
// xxHash 0.8.4.
func TestKeysOfEveryLengthHaveTheHashesOfTheLibrary(t *testing.T) {
	for _, c := range []struct {
		key  string
		hash uint64
	}{
		{"", 0x2d06800538d394c2},
		{"a", 0xe6c632b61e964e1f},
		{"abcd", 0x6497a96f53a89890},
		{"key:0", 0xb464ee7b63344e80},
		{"0123456789abcdef", 0x64439946d8fa212d},
		{strings.Repeat("x", 17), 0x89975e6b7d2f5a11},
		{strings.Repeat("x", 128), 0x4ca37e83f6cddd17},
		{strings.Repeat("x", 129), 0xe4f9742108fe27dc},
		{strings.Repeat("x", 240), 0x3e16ca8a0c6ccb68},
		{strings.Repeat("x", 241), 0x14da9e5c301a6a1d},
	} {
		if got := xxh3(c.key); got != c.hash {
			t.Errorf("%d bytes: %x, not %x", len(c.key), got, c.hash)
		}
	}
	text := make([]byte, 2100)
	for i := range text {
		text[i] = byte(i*31 + 7)
	}
	all := uint64(0)
	for n := range len(text) + 1 {
		all = bits.RotateLeft64(all, 1) ^ xxh3(string(text[:n]))
	}
	if all != 0xc9c0392b75996fb3 {
		t.Errorf("%x", all)
	}
}
