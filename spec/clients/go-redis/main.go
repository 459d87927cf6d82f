// Command go-redis talks to a cache server as programs that use go-redis do, over RESP2 and RESP3, and
// says of each kind of call whether it did what it should: a line "name: ok", or the error and exit 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

type check struct {
	name string
	run  func(context.Context, *redis.Client) error
}

var checks = []check{
	{"strings", stringsDo},
	{"expiry", expiry},
	{"counters", counters},
	{"keys", keys},
	{"bitmaps", bitmaps},
	{"pipeline", pipeline},
	{"transaction", transaction},
	{"watch conflict", watchConflict},
	{"optimistic counter", optimisticCounter},
	{"publish and subscribe", pubsub},
	{"databases", databases},
	{"errors", errorsTell},
	{"server", server},
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{
			Addr: os.Args[1], Protocol: protocol, ClientName: "larder-smoke",
		})
		for _, c := range checks {
			if err := client.FlushAll(ctx).Err(); err != nil {
				fail(c.name, protocol, err)
			}
			if err := c.run(ctx, client); err != nil {
				fail(c.name, protocol, err)
			}
			fmt.Printf("RESP%d %s: ok\n", protocol, c.name)
		}
		if err := client.Close(); err != nil {
			fail("close", protocol, err)
		}
	}
}

func fail(name string, protocol int, err error) {
	fmt.Printf("RESP%d %s: %v\n", protocol, name, err)
	os.Exit(1)
}

// want is an error unless both are printed alike.
func want(got, expected any) error {
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		return fmt.Errorf("got %v, expected %v", got, expected)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// is compares what a command replied.
func is[T any](got T, err error) func(T) error {
	return func(expected T) error { return first(err, want(got, expected)) }
}

func none(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return fmt.Errorf("got %v, expected no value", err)
}

func stringsDo(ctx context.Context, c *redis.Client) error {
	binary := string([]byte{0, 13, 10, 255})
	return first(
		is(c.Set(ctx, "a", "1", 0).Result())("OK"),
		is(c.Get(ctx, "a").Result())("1"),
		none(c.Get(ctx, "missing").Err()),
		is(c.SetNX(ctx, "a", "2", 0).Result())(false),
		is(c.SetNX(ctx, "b", "2", time.Minute).Result())(true),
		is(c.SetXX(ctx, "a", "3", redis.KeepTTL).Result())(true),
		is(c.SetXX(ctx, "missing", "3", 0).Result())(false),
		is(c.SetArgs(ctx, "a", "4", redis.SetArgs{Get: true}).Result())("3"),
		is(c.GetSet(ctx, "a", "5").Result())("4"),
		is(c.GetDel(ctx, "a").Result())("5"),
		none(c.Get(ctx, "a").Err()),
		is(c.MSet(ctx, "x", 1, "y", "two", "z", binary).Result())("OK"),
		is(c.MGet(ctx, "x", "missing", "z").Result())([]any{"1", nil, binary}),
		is(c.MSetNX(ctx, "x", 1, "new", 2).Result())(false),
		is(c.Append(ctx, "y", " three").Result())(9),
		is(c.StrLen(ctx, "y").Result())(9),
		is(c.GetRange(ctx, "y", 4, -1).Result())("three"),
		is(c.SetRange(ctx, "y", 4, "THREE").Result())(9),
		is(c.Get(ctx, "y").Result())("two THREE"),
	)
}

func expiry(ctx context.Context, c *redis.Client) error {
	err := first(
		is(c.Set(ctx, "a", 1, 100*time.Second).Result())("OK"),
		is(c.TTL(ctx, "a").Result())(100*time.Second),
		is(c.TTL(ctx, "missing").Result())(-2),
		is(c.Persist(ctx, "a").Result())(true),
		is(c.TTL(ctx, "a").Result())(-1),
		is(c.Expire(ctx, "a", time.Hour).Result())(true),
		is(c.ExpireGT(ctx, "a", time.Minute).Result())(false),
		is(c.ExpireLT(ctx, "a", time.Minute).Result())(true),
		is(c.ExpireNX(ctx, "a", time.Minute).Result())(false),
		is(c.GetEx(ctx, "a", 2*time.Hour).Result())("1"),
		is(c.TTL(ctx, "a").Result())(2*time.Hour),
		is(c.ExpireAt(ctx, "a", time.Unix(4000000000, 0)).Result())(true),
		is(c.ExpireTime(ctx, "a").Result())(4000000000*time.Second),
		is(c.Set(ctx, "short", 1, 30*time.Millisecond).Result())("OK"),
		is(c.Exists(ctx, "short").Result())(1),
	)
	if err != nil {
		return err
	}
	// It goes by itself; when is the server's affair, so the test is only that it does.
	for c.Exists(ctx, "short").Val() == 1 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func counters(ctx context.Context, c *redis.Client) error {
	return first(
		is(c.Incr(ctx, "n").Result())(1),
		is(c.IncrBy(ctx, "n", 41).Result())(42),
		is(c.Decr(ctx, "n").Result())(41),
		is(c.DecrBy(ctx, "n", 40).Result())(1),
		is(c.IncrByFloat(ctx, "n", 0.5).Result())(1.5),
		is(c.Get(ctx, "n").Float64())(1.5),
	)
}

func keys(ctx context.Context, c *redis.Client) error {
	for i := range 500 {
		if err := c.Set(ctx, fmt.Sprintf("key:%d", i), i, 0).Err(); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	iterator := c.Scan(ctx, 0, "key:*", 50).Iterator()
	for iterator.Next(ctx) {
		seen[iterator.Val()] = true
	}
	found, err := c.Keys(ctx, "key:49?").Result()
	sort.Strings(found)
	return first(
		iterator.Err(), want(len(seen), 500), err, want(len(found), 10), want(found[0], "key:490"),
		is(c.DBSize(ctx).Result())(500),
		is(c.Exists(ctx, "key:1", "key:2", "missing").Result())(2),
		is(c.Rename(ctx, "key:1", "renamed").Result())("OK"),
		is(c.Copy(ctx, "renamed", "copied", 0, false).Result())(1),
		is(c.Type(ctx, "copied").Result())("string"),
		is(c.Unlink(ctx, "copied", "missing").Result())(1),
		is(c.Del(ctx, "key:2", "key:3", "missing").Result())(2),
		is(c.Touch(ctx, "key:4", "missing").Result())(1),
	)
}

func bitmaps(ctx context.Context, c *redis.Client) error {
	return first(
		is(c.SetBit(ctx, "b", 7, 1).Result())(0),
		is(c.SetBit(ctx, "b", 100, 1).Result())(0),
		is(c.GetBit(ctx, "b", 7).Result())(1),
		is(c.BitCount(ctx, "b", nil).Result())(2),
		is(c.BitPos(ctx, "b", 1).Result())(7),
		is(c.BitOpNot(ctx, "not", "b").Result())(13),
		is(c.BitField(ctx, "f", "INCRBY", "u8", 0, 200, "OVERFLOW", "SAT", "INCRBY", "u8", 0, 200).
			Result())([]int64{200, 255}),
	)
}

func pipeline(ctx context.Context, c *redis.Client) error {
	pipe := c.Pipeline()
	var gets []*redis.StringCmd
	for i := range 1000 {
		pipe.Set(ctx, fmt.Sprint("p", i), i, time.Hour)
		gets = append(gets, pipe.Get(ctx, fmt.Sprint("p", i)))
	}
	missing := pipe.Get(ctx, "missing")
	if _, err := pipe.Exec(ctx); !errors.Is(err, redis.Nil) {
		return fmt.Errorf("got %v, expected that one key is missing", err)
	}
	for i, get := range gets {
		if err := is(get.Int())(i); err != nil {
			return err
		}
	}
	return none(missing.Err())
}

func transaction(ctx context.Context, c *redis.Client) error {
	var n *redis.IntCmd
	_, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", 41, 0)
		n = pipe.Incr(ctx, "t")
		return nil
	})
	if err := first(err, is(n.Result())(42)); err != nil {
		return err
	}
	// One that fails while it runs does not undo the others.
	_, err = c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", "text", 0)
		pipe.Incr(ctx, "t")
		pipe.Set(ctx, "u", 1, 0)
		return nil
	})
	return first(want(err, "ERR value is not an integer or out of range"), is(c.Get(ctx, "u").Result())("1"))
}

func watchConflict(ctx context.Context, c *redis.Client) error {
	if err := c.Set(ctx, "w", 1, 0).Err(); err != nil {
		return err
	}
	err := c.Watch(ctx, func(tx *redis.Tx) error {
		if err := c.Set(ctx, "w", 2, 0).Err(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "w", 3, 0)
			return nil
		})
		return err
	}, "w")
	if !errors.Is(err, redis.TxFailedErr) {
		return fmt.Errorf("got %v, expected that the transaction fails", err)
	}
	return is(c.Get(ctx, "w").Result())("2")
}

func optimisticCounter(ctx context.Context, c *redis.Client) error {
	const threads, times = 4, 50
	add := func(tx *redis.Tx) error {
		n, err := tx.Get(ctx, "o").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "o", n+1, 0)
			return nil
		})
		return err
	}
	var wait sync.WaitGroup
	errs := make(chan error, threads)
	for range threads {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for done := 0; done < times; {
				switch err := c.Watch(ctx, add, "o"); {
				case err == nil:
					done++
				case !errors.Is(err, redis.TxFailedErr):
					errs <- err
					return
				}
			}
		}()
	}
	wait.Wait()
	close(errs)
	return first(<-errs, is(c.Get(ctx, "o").Int())(threads*times))
}

func pubsub(ctx context.Context, c *redis.Client) error {
	subscriber := c.Subscribe(ctx, "news")
	defer subscriber.Close()
	if err := subscriber.PSubscribe(ctx, "n*w?"); err != nil {
		return err
	}
	for range 2 {
		if _, err := subscriber.Receive(ctx); err != nil {
			return err
		}
	}
	const count = 100
	for i := range count {
		if err := is(c.Publish(ctx, "news", i).Result())(2); err != nil {
			return err
		}
	}
	var plain, pattern int
	for plain < count || pattern < count {
		message, err := subscriber.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		next := &plain
		if message.Pattern != "" {
			next = &pattern
		}
		if err := want(message.Payload, *next); err != nil {
			return err
		}
		*next++
	}
	return first(
		is(c.PubSubChannels(ctx, "*").Result())([]string{"news"}),
		is(c.PubSubNumSub(ctx, "news").Result())(map[string]int64{"news": 1}),
		is(c.PubSubNumPat(ctx).Result())(1),
	)
}

func databases(ctx context.Context, c *redis.Client) error {
	options := *c.Options()
	options.DB = 5
	other := redis.NewClient(&options)
	defer other.Close()
	return first(
		is(other.Set(ctx, "d", 5, 0).Result())("OK"),
		none(c.Get(ctx, "d").Err()),
		is(other.Move(ctx, "d", 0).Result())(true),
		is(c.Get(ctx, "d").Result())("5"),
		is(other.DBSize(ctx).Result())(0),
	)
}

func errorsTell(ctx context.Context, c *redis.Client) error {
	return first(
		is(c.Set(ctx, "e", "text", 0).Result())("OK"),
		want(c.Incr(ctx, "e").Err(), "ERR value is not an integer or out of range"),
		want(c.Do(ctx, "GET").Err(), "ERR wrong number of arguments for 'get' command"),
		want(c.Do(ctx, "NOSUCH", "a").Err(), "ERR unknown command 'NOSUCH', with args beginning with: 'a' "),
		want(c.Rename(ctx, "missing", "x").Err(), "ERR no such key"),
	)
}

func server(ctx context.Context, c *redis.Client) error {
	conn := c.Conn()
	defer conn.Close()
	info, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	config, err := c.ConfigGet(ctx, "maxmemory").Result()
	commands, cause := c.Command(ctx).Result()
	return first(
		err, cause,
		is(conn.ClientGetName(ctx).Result())("larder-smoke"),
		is(c.Ping(ctx).Result())("PONG"),
		is(c.Echo(ctx, "hello").Result())("hello"),
		want(info["Server"]["redis_mode"], "standalone"),
		want(config["maxmemory"] != "", true),
		want(commands["get"] != nil && commands["get"].ReadOnly, true),
	)
}
