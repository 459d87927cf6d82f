package shard

import "testing"

var presets = []Preset{
	Ketama, KetamaFullPort, LibmemcachedConsistent, LibmemcachedConsistentMD5, LibmemcachedConsistentMD5Late, LibmemcachedSpy,
	ModulaOAAT, ModulaMD5, ModulaCRC15, TwemproxyModulaCRC15, ModulaFNV1a64, ModulaMurmur, ModulaMurmur3, ModulaJenkins, ModulaCRC32,
	TwemproxyFNV1a64, RendezvousMurmur3, Dalli,
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
	} {
		if _, err := f(); err == nil {
			t.Error(name)
		}
	}
	// memcached's own port with an IPv6 address, and equal weights with a preset that has no weights.
	if _, err := New(ModulaCRC32, []Server{{"[::1]:11211", 2}, {"[::2]:11211", 2}}); err != nil {
		t.Error(err)
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
