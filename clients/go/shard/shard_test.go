package shard

import (
	"fmt"
	"strings"
	"testing"
)

// Where other libraries have put these keys, made with them on the servers below.
var vectors = []struct {
	preset  Preset
	weights [4]int
	digits  string
}{
	{Ketama, [4]int{}, "11221322301112111031030322222032300023303120302"},
	{Ketama, [4]int{1, 2, 3, 1}, "11221222121112111001211122212132310023103212102"},
	{KetamaFullPort, [4]int{}, "02103220121332111033000120022022031300333120212"},
	{LibmemcachedConsistent, [4]int{}, "33102022323030213001021301222103102200200333331"},
	{LibmemcachedConsistentMD5, [4]int{}, "12122133232123131221121322212020200223221213333"},
	{LibmemcachedConsistentMD5Late, [4]int{}, "31213232033032000303200133100333232131320111233"},
	{LibmemcachedSpy, [4]int{}, "01203213201130202022010220113100022210303021123"},
	{ModulaOAAT, [4]int{}, "10132013223303133021310002332330331220332131002"},
	{ModulaMD5, [4]int{}, "32230220210032112310111200202020213123110011111"},
	{ModulaCRC15, [4]int{}, "03211230300321123030123003212121033012123300300"},
	{TwemproxyModulaCRC15, [4]int{1, 2, 3, 1}, "21220122222111222322220222222010211223222101210"},
	{ModulaFNV1a64, [4]int{}, "21032103213012301230032103210312301230120303131"},
	{TwemproxyFNV1a64, [4]int{}, "00000000001111111111111111111111111111111122323"},
	{ModulaCRC32, [4]int{}, "20203131021313020231202031310231312020133131022"},
	{RendezvousMurmur3, [4]int{}, "31330333333202033303002330200102222002031010121"},
	{Dalli, [4]int{}, "10332213113203312013113221003101203322130102321"},
}

func TestKeysAreWhereOtherLibrariesPutThem(t *testing.T) {
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("key:%d", i))
	}
	keys = append(keys, "a", "foo", "ob", "üñî", "日本", "🍺", strings.Repeat("x", 250))
	for _, v := range vectors {
		var servers []Server
		for i, name := range []string{"10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11212", "10.0.0.4:11211"} {
			servers = append(servers, Server{name, v.weights[i]})
		}
		picker, err := New(v.preset, servers)
		if err != nil {
			t.Fatal(v.preset, err)
		}
		var digits strings.Builder
		for _, key := range keys {
			fmt.Fprint(&digits, picker.Pick(key))
		}
		if digits.String() != v.digits {
			t.Errorf("%s %v:\n%s, not\n%s", v.preset, v.weights, digits.String(), v.digits)
		}
		if allocations := testing.AllocsPerRun(100, func() { picker.Pick("key:1") }); allocations != 0 {
			t.Errorf("%s: %v allocations", v.preset, allocations)
		}
	}
}

func TestOneServerHasAllKeys(t *testing.T) {
	for _, v := range vectors {
		picker, err := New(v.preset, []Server{{Name: "/run/cache.sock"}})
		if err != nil || picker.Pick("k") != 0 {
			t.Errorf("%s: %v", v.preset, err)
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
	// memcached's own port with an IPv6 address, and equal weights with a preset that knows none.
	if _, err := New(ModulaCRC32, []Server{{"[::1]:11211", 2}, {"[::2]:11211", 2}}); err != nil {
		t.Error(err)
	}
}
