package lane

import (
	"strings"

	"larder.example/clients/go/internal/fault"
	"larder.example/clients/go/internal/wire"
)

// Refusal is the sentinel of an error line. The texts are memcached's.
func Refusal(verb wire.Verb, status wire.Status, text string) error {
	switch {
	case strings.Contains(text, "too large"):
		return fault.TooLarge
	case strings.Contains(text, "non-numeric"):
		return fault.NotNumber
	case status == wire.ServerError && strings.Contains(text, "out of memory"):
		return fault.ServerMemory
	}
	return fault.Server
}
