package shard

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// asked is one question that a library has answered.
type asked struct {
	preset  Preset
	by      string
	servers []Server
	digits  string
}

// vectors reads the file of cargo xtask vectors: the keys, and the servers that other clients choose for them.
func vectors(t *testing.T) ([]string, []asked) {
	t.Helper()
	text, err := os.ReadFile("../../vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	var all []asked
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "#":
		case "key":
			keys = append(keys, rest)
		case "place":
			preset, by, _ := strings.Cut(rest, " by ")
			all = append(all, asked{preset: Preset(preset), by: by})
		case "server":
			last := &all[len(all)-1]
			var server Server
			if _, err := fmt.Sscan(rest, &server.Weight, &server.Name); err != nil {
				t.Fatal(line, err)
			}
			last.servers = append(last.servers, server)
		case "at":
			all[len(all)-1].digits = rest
		default:
			t.Fatal(line)
		}
	}
	return keys, all
}

func TestKeysAreWhereOtherLibrariesPutThem(t *testing.T) {
	keys, all := vectors(t)
	if len(keys) != 1000 || len(all) < 80 {
		t.Fatalf("%d keys, %d places", len(keys), len(all))
	}
	seen := map[Preset]bool{}
	for _, place := range all {
		seen[place.preset] = true
		picker, err := New(place.preset, place.servers)
		if err != nil {
			t.Errorf("%s by %s: %v", place.preset, place.by, err)
			continue
		}
		wrong, first := 0, ""
		for i, key := range keys {
			if got := byte('0' + picker.Pick(key)); got != place.digits[i] {
				if wrong++; wrong == 1 {
					first = fmt.Sprintf("%q goes to %c, there to %c", key, got, place.digits[i])
				}
			}
		}
		if wrong > 0 {
			t.Errorf("%s by %s, %v: %d of %d keys elsewhere: %s", place.preset, place.by, place.servers, wrong, len(keys), first)
		}
	}
	for _, preset := range presets {
		if !seen[preset] {
			t.Errorf("nobody was asked about %s", preset)
		}
	}
}
