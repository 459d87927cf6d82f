// redis_rate: a leaky bucket in one script, by the server's clock.
package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"

	. "frameworks/checks"
)

func main() {
	ctx := context.Background()
	limiter := redis_rate.NewLimiter(Store)
	// The script reckons in binary fractions of seconds: one in 16 s is none that is rounded.
	slowly := redis_rate.Limit{Rate: 1, Burst: 16, Period: 16 * time.Second}

	Check("as many as there may be at once", func() {
		for n := range 16 {
			result, err := limiter.Allow(ctx, "burst", slowly)
			Works(err)
			Equal(result.Allowed, 1)
			Equal(result.Remaining, 15-n)
		}
		result, err := limiter.Allow(ctx, "burst", slowly)
		Works(err)
		Equal(result.Allowed, 0)
		Equal(result.RetryAfter > 0 && result.RetryAfter <= 16*time.Second, true)
		Equal(result.ResetAfter > 240*time.Second && result.ResetAfter <= 256*time.Second, true)
	})

	Check("exact among many", func() {
		var allowed atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 20 {
					result, err := limiter.Allow(ctx, "many", slowly)
					Works(err)
					allowed.Add(int64(result.Allowed))
				}
			})
		}
		all.Wait()
		Equal(allowed.Load(), int64(16))
	})

	Check("several at once", func() {
		result, err := limiter.AllowN(ctx, "several", slowly, 10)
		Works(err)
		Equal([]int{result.Allowed, result.Remaining}, []int{10, 6})
		result, err = limiter.AllowN(ctx, "several", slowly, 7)
		Works(err)
		Equal([]int{result.Allowed, result.Remaining}, []int{0, 0})
		result, err = limiter.AllowAtMost(ctx, "several", slowly, 10)
		Works(err)
		Equal([]int{result.Allowed, result.Remaining}, []int{6, 0})
	})

	Check("it fills again", func() {
		quickly := redis_rate.Limit{Rate: 8, Burst: 4, Period: time.Second}
		result, err := limiter.AllowN(ctx, "again", quickly, 4)
		Works(err)
		Equal(result.Allowed, 4)
		began, allowed := time.Now(), 0
		for time.Since(began) < 2*time.Second {
			result, err := limiter.Allow(ctx, "again", quickly)
			Works(err)
			allowed += result.Allowed
			time.Sleep(5 * time.Millisecond)
		}
		// Eight a second; the last may be due at the end.
		most := int(time.Since(began)/(125*time.Millisecond)) + 1
		Equal(allowed >= 14 && allowed <= most, true)
	})

	Check("a limit is forgotten", func() {
		Works(limiter.Reset(ctx, "burst"))
		result, err := limiter.Allow(ctx, "burst", slowly)
		Works(err)
		Equal(result.Remaining, 15)
		left, err := Store.TTL(ctx, "rate:burst").Result()
		Works(err)
		Equal(left > 14*time.Second && left <= 16*time.Second, true)
	})
}
