package larder

import "time"

// Forever is the time to live of an item that never expires.
const Forever time.Duration = 0

// relativeMax is the longest time that the protocol takes as relative: 30 days, in seconds.
const relativeMax = 60 * 60 * 24 * 30

// Until is the time to live of an item that expires at t; a time in the past expires within a second.
func Until(t time.Time) time.Duration {
	return max(time.Until(t), 1)
}

// exptime is the protocol's form: whole seconds, rounded up; beyond 30 days a Unix time, which the server would take the number
// for.
func exptime(ttl time.Duration) (int64, error) {
	if ttl < 0 {
		return 0, ErrBadTTL
	}
	seconds := int64(ttl / time.Second)
	if ttl%time.Second != 0 {
		seconds++
	}
	if seconds > relativeMax {
		seconds += time.Now().Unix()
	}
	return seconds, nil
}
