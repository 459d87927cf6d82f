// Package checks is what the programs beside it share: checks that are told one by one.
package checks

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// URL is where the server is.
func URL() string {
	if url := os.Getenv("REDIS_URL"); url != "" {
		return url
	}
	return "redis://127.0.0.1:6379/0"
}

// Options are those of a client of it.
func Options() *redis.Options {
	options, err := redis.ParseURL(URL())
	Works(err)
	return options
}

// Store is a client of it.
var Store = redis.NewClient(Options())

// Check runs it and tells that it passed; an error ends the program.
func Check(name string, check func()) {
	check()
	fmt.Printf("%s: ok\n", name)
}

// Works ends the program unless there is no error.
func Works(err error) {
	if err != nil {
		panic(err)
	}
}

// Equal ends the program unless they are the same.
func Equal(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("%v, not %v", got, wanted))
	}
}

// Until waits until it holds.
func Until(holds func() bool) {
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			panic("it does not come to hold")
		}
	}
}

// AddUnguarded adds one to a number in two steps, so that two at once are seen: one of their additions is lost.
func AddUnguarded(key string) {
	ctx := context.Background()
	number, err := Store.Get(ctx, key).Int()
	if err != redis.Nil {
		Works(err)
	}
	time.Sleep(time.Millisecond)
	Works(Store.Set(ctx, key, strconv.Itoa(number+1), 0).Err())
}
