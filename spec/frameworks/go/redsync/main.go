// Redsync: locks that are released and extended by scripts that compare their holders.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	goredis9 "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	. "frameworks/checks"
)

const (
	holders = 16
	rounds  = 25
)

func main() {
	locks := redsync.New(goredis9.NewPool(Store))

	Check("one holder at a time", func() {
		var all sync.WaitGroup
		for range holders {
			all.Go(func() {
				own := goredis.NewClient(Options())
				defer own.Close()
				mutex := redsync.New(goredis9.NewPool(own)).NewMutex("lock", redsync.WithTries(100000), redsync.WithRetryDelay(2*time.Millisecond))
				for range rounds {
					Works(mutex.Lock())
					AddUnguarded("guarded")
					held, err := mutex.Unlock()
					Works(err)
					Equal(held, true)
				}
			})
		}
		all.Wait()
		Equal(Store.Get(context.Background(), "guarded").Val(), "400")
		Equal(Store.Exists(context.Background(), "lock").Val(), int64(0))
	})

	Check("a held lock is refused", func() {
		first, second := locks.NewMutex("held"), locks.NewMutex("held", redsync.WithTries(1))
		Works(first.Lock())
		var taken *redsync.ErrTaken
		if err := second.TryLock(); !errors.As(err, &taken) {
			panic(err)
		}
		_, err := second.Unlock()
		Equal(err != nil, true)
		Equal(Store.Get(context.Background(), "held").Val(), first.Value())
		_, err = first.Unlock()
		Works(err)
	})

	Check("a lock is kept longer by its holder alone", func() {
		mutex := locks.NewMutex("longer", redsync.WithExpiry(500*time.Millisecond))
		Works(mutex.Lock())
		for range 4 {
			time.Sleep(300 * time.Millisecond)
			held, err := mutex.Extend()
			Works(err)
			Equal(held, true)
		}
		Works(Store.Set(context.Background(), "longer", "another's", 0).Err())
		held, _ := mutex.Extend()
		Equal(held, false)
		held, _ = mutex.Unlock()
		Equal(held, false)
		Equal(Store.Get(context.Background(), "longer").Val(), "another's")
	})

	Check("a lock expires", func() {
		first, second := locks.NewMutex("expires", redsync.WithExpiry(200*time.Millisecond)), locks.NewMutex("expires")
		Works(first.Lock())
		Works(second.Lock())
		_, err := first.Unlock()
		Equal(err != nil, true)
		held, err := second.Unlock()
		Works(err)
		Equal(held, true)
	})

	Check("several servers' worth of locks", func() {
		var pools []goredis.UniversalClient
		for database := range 3 {
			options := Options()
			options.DB = database + 1
			pools = append(pools, goredis.NewClient(options))
		}
		three := redsync.New(goredis9.NewPool(pools[0]), goredis9.NewPool(pools[1]), goredis9.NewPool(pools[2]))
		Works(pools[0].Set(context.Background(), "quorum", "another's", 0).Err())
		mutex := three.NewMutex("quorum", redsync.WithTries(1))
		Works(mutex.Lock())
		Works(pools[1].Set(context.Background(), "quorum", "another's", 0).Err())
		second := three.NewMutex("quorum", redsync.WithTries(1))
		Equal(second.Lock() != nil, true)
	})
}
