//go:build race

package memcache_test

const raceEnabled = true
