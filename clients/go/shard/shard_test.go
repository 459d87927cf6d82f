package shard

import "testing"

var presets = []Preset{
	Ketama, KetamaFullPort, LibmemcachedConsistent, LibmemcachedConsistentMD5, LibmemcachedConsistentMD5Late, LibmemcachedSpy,
	ModulaOAAT, ModulaMD5, ModulaCRC15, TwemproxyModulaCRC15, ModulaFNV1a64, ModulaMurmur, ModulaMurmur3, ModulaJenkins, ModulaCRC32,
	TwemproxyFNV1a64, RendezvousMurmur3, Dalli, JumpXXH3, ProxyRing, XmemcachedKetama,
}

func TestOneServerHasAllKeys(t *testing.T) {
	for _, preset := range presets {
		picker, err := New(preset, []Server{{Name: "/run/cache.sock"}})
		if err != nil || picker.Pick("k") != 0 {
			t.Errorf("%s: %v", preset, err)
		}
	}
}

func TestWhatCannotBePlacedIsRefused(t *testing.T) {
	two := func(weight int) []Server { return []Server{{"a:1", 1}, {"b:1", weight}} }
	for name, f := range map[string]func() (*Picker, error){
		"no servers": func() (*Picker, error) { return New(Ketama, nil) },
		"negative":   func() (*Picker, error) { return New(Ketama, two(-1)) },
		"no preset":  func() (*Picker, error) { return New("x", two(1)) },
		"weights":    func() (*Picker, error) { return New(ModulaCRC32, two(2)) },
		"heavy":      func() (*Picker, error) { return New(XmemcachedKetama, two(xmemcachedWeightsMax)) },
	} {
		if _, err := f(); err == nil {
			t.Error(name)
		}
	}
	// memcached's own port with an IPv6 address, and equal weights with a preset that has no weights.
	if _, err := New(ModulaCRC32, []Server{{"[::1]:11211", 2}, {"[::2]:11211", 2}}); err != nil {
		t.Error(err)
	}
	for below := range 2 {
		weight := xmemcachedWeightsMax - 1 - below
		picker, err := New(XmemcachedKetama, two(weight))
		if err != nil || len(picker.points) != 160*(weight+1) {
			t.Errorf("%d: %v", weight, err)
		}
	}
}

func TestHashJumpsAmongBucketsAsElsewhere(t *testing.T) {
	for _, c := range []struct {
		hash            uint64
		buckets, bucket int
	}{
		{0, 1, 0}, {0, 2, 0}, {1, 10, 6}, {0xdeadbeef, 10, 5}, {1<<64 - 1, 10, 9}, {1<<64 - 1, 1000, 313},
		{0xfedcba9876543210, 1000, 143},
	} {
		if got := jump(c.hash, c.buckets); got != c.bucket {
			t.Errorf("%d of %d: %d, not %d", c.hash, c.buckets, got, c.bucket)
		}
	}
}

func TestChoosingAllocatesNothing(t *testing.T) {
	for _, preset := range presets {
		picker, err := New(preset, []Server{{Name: "a:1"}, {Name: "b:1"}})
		if err != nil {
			t.Fatal(preset, err)
		}
		if allocations := testing.AllocsPerRun(100, func() { picker.Pick("key:1") }); allocations != 0 {
			t.Errorf("%s: %v allocations", preset, allocations)
		}
	}
}
