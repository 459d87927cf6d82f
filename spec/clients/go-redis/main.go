// Command go-redis talks to a cache server as programs that use go-redis do, over RESP2 and RESP3, and
// says of each kind of call whether it did what it should: a line "name: ok", or the error and exit 1.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	{"hashes", hashes},
	{"fields that expire", fields},
	{"lists", lists},
	{"blocking pops", blockingPops},
	{"sets", sets},
	{"sorted sets", sortedSets},
	{"streams", streams},
	{"consumer groups", groups},
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
	config, err := secured(os.Getenv("LARDER_TLS"), os.Getenv("LARDER_CERTIFICATE"))
	if err != nil {
		fail("certificates", 0, err)
	}
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{
			Addr: os.Args[1], Protocol: protocol, ClientName: "larder-smoke", TLSConfig: config,
			Username: os.Getenv("LARDER_USER"), Password: os.Getenv("LARDER_PASSWORD"),
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

// secured trusts the authority in a folder of certificates, and shows the one of that name, if there is a name; without a folder
// there is no TLS.
func secured(folder, name string) (*tls.Config, error) {
	if folder == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("no authority in ca.crt")
	}
	config := &tls.Config{RootCAs: roots}
	if name != "" {
		own, err := tls.LoadX509KeyPair(filepath.Join(folder, name+".crt"), filepath.Join(folder, name+".key"))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
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

func hashes(ctx context.Context, c *redis.Client) error {
	type session struct {
		User  string `redis:"user"`
		Count int    `redis:"count"`
	}
	var got session
	for i := range 1000 {
		if err := is(c.HSet(ctx, "large", fmt.Sprint("f", i), i).Result())(1); err != nil {
			return err
		}
	}
	seen := map[string]string{}
	var cursor uint64
	for {
		page, next, err := c.HScan(ctx, "large", cursor, "f*", 50).Result()
		if err != nil {
			return err
		}
		for i := 0; i < len(page); i += 2 {
			seen[page[i]] = page[i+1]
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	all, err := c.HGetAll(ctx, "large").Result()
	return first(
		err, want(len(all), 1000), want(seen, all), want(all["f999"], "999"),
		is(c.HSet(ctx, "h", session{User: "ann", Count: 1}).Result())(2),
		is(c.HSet(ctx, "h", "user", "bob", "mail", "b@x").Result())(1),
		is(c.HIncrBy(ctx, "h", "count", 41).Result())(42),
		is(c.HIncrByFloat(ctx, "h", "part", 0.5).Result())(0.5),
		c.HGetAll(ctx, "h").Scan(&got), want(got, session{User: "bob", Count: 42}),
		is(c.HSetNX(ctx, "h", "user", "eve").Result())(false),
		is(c.HMGet(ctx, "h", "user", "missing", "count").Result())([]any{"bob", nil, "42"}),
		is(c.HExists(ctx, "h", "mail").Result())(true),
		is(c.HDel(ctx, "h", "mail", "missing").Result())(1),
		is(c.HLen(ctx, "h").Result())(3),
		is(c.HKeys(ctx, "h").Result())([]string{"user", "count", "part"}),
		is(c.HVals(ctx, "h").Result())([]string{"bob", "42", "0.5"}),
		is(c.HRandFieldWithValues(ctx, "h", 3).Result())([]redis.KeyValue{
			{Key: "user", Value: "bob"}, {Key: "count", Value: "42"}, {Key: "part", Value: "0.5"},
		}),
		none(c.HGet(ctx, "h", "missing").Err()),
		is(c.Type(ctx, "h").Result())("hash"),
		want(c.LPush(ctx, "h", 1).Err(), "WRONGTYPE Operation against a key holding the wrong kind of value"),
	)
}

func fields(ctx context.Context, c *redis.Client) error {
	err := first(
		is(c.HSet(ctx, "h", "a", 1, "b", 2).Result())(2),
		is(c.HExpire(ctx, "h", time.Hour, "a", "missing").Result())([]int64{1, -2}),
		is(c.HTTL(ctx, "h", "b", "missing").Result())([]int64{-1, -2}),
		is(c.HExpireWithArgs(ctx, "h", time.Minute, redis.HExpireArgs{GT: true}, "a").Result())([]int64{0}),
		is(c.HPersist(ctx, "h", "a", "b").Result())([]int64{1, -1}),
		is(c.HExpireAt(ctx, "h", time.Unix(4000000000, 0), "a").Result())([]int64{1}),
		is(c.HExpireTime(ctx, "h", "a").Result())([]int64{4000000000}),
		is(c.HPExpire(ctx, "h", 30*time.Millisecond, "b").Result())([]int64{1}),
	)
	if err != nil {
		return err
	}
	for c.HExists(ctx, "h", "b").Val() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return is(c.HGetAll(ctx, "h").Result())(map[string]string{"a": "1"})
}

func lists(ctx context.Context, c *redis.Client) error {
	return first(
		is(c.RPush(ctx, "l", "b", "c", "d").Result())(3),
		is(c.LPush(ctx, "l", "a").Result())(4),
		is(c.LPushX(ctx, "missing", "a").Result())(0),
		is(c.LRange(ctx, "l", 0, -1).Result())([]string{"a", "b", "c", "d"}),
		is(c.LIndex(ctx, "l", -1).Result())("d"),
		is(c.LSet(ctx, "l", 1, "B").Result())("OK"),
		is(c.LInsertBefore(ctx, "l", "c", "x").Result())(5),
		is(c.LPos(ctx, "l", "c", redis.LPosArgs{}).Result())(3),
		is(c.LRem(ctx, "l", 0, "x").Result())(1),
		is(c.LMove(ctx, "l", "done", "LEFT", "RIGHT").Result())("a"),
		is(c.RPopLPush(ctx, "l", "done").Result())("d"),
		is(c.LRange(ctx, "done", 0, -1).Result())([]string{"d", "a"}),
		is(c.LPopCount(ctx, "l", 5).Result())([]string{"B", "c"}),
		is(c.Exists(ctx, "l").Result())(0),
		none(c.RPop(ctx, "l").Err()),
		is(c.RPush(ctx, "l", 3, 1, 2).Result())(3),
		is(c.Sort(ctx, "l", &redis.Sort{Order: "DESC"}).Result())([]string{"3", "2", "1"}),
		is(c.LTrim(ctx, "l", 1, 1).Result())("OK"),
		is(c.LLen(ctx, "l").Result())(1),
	)
}

// blockingPops has four workers take what is pushed: each job is taken once.
func blockingPops(ctx context.Context, c *redis.Client) error {
	const workers, jobs = 4, 200
	taken := make(chan string, jobs)
	errs := make(chan error, workers)
	var wait sync.WaitGroup
	for range workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				popped, err := c.BRPop(ctx, 0, "urgent", "jobs").Result()
				if err != nil {
					errs <- err
					return
				}
				if popped[1] == "end" {
					return
				}
				taken <- popped[1]
			}
		}()
	}
	for i := range jobs {
		queue := []string{"jobs", "urgent"}[i%2]
		if err := c.LPush(ctx, queue, i).Err(); err != nil {
			return err
		}
	}
	for range workers {
		if err := c.LPush(ctx, "jobs", "end").Err(); err != nil {
			return err
		}
	}
	wait.Wait()
	close(taken)
	close(errs)
	each := map[string]bool{}
	for job := range taken {
		each[job] = true
	}
	key, members, err := c.BLMPop(ctx, time.Second, "LEFT", 2, "empty").Result()
	return first(
		<-errs, want(len(each), jobs), is(c.Exists(ctx, "jobs", "urgent").Result())(0),
		none(err), want(key, ""), want(len(members), 0),
		is(c.RPush(ctx, "a", 1, 2).Result())(2),
		is(c.BLMove(ctx, "a", "b", "RIGHT", "LEFT", time.Second).Result())("2"),
		is(c.BLPop(ctx, time.Second, "a", "b").Result())([]string{"a", "1"}),
		is(c.BLPop(ctx, time.Second, "a", "b").Result())([]string{"b", "2"}),
	)
}

func sorted(list []string, err error) ([]string, error) {
	sort.Strings(list)
	return list, err
}

func sets(ctx context.Context, c *redis.Client) error {
	popped, err := c.SPopN(ctx, "missing", 3).Result()
	return first(
		err, want(len(popped), 0),
		is(c.SAdd(ctx, "s", "a", "b", "c", "a").Result())(3),
		is(c.SAdd(ctx, "t", 2, 3, "c").Result())(3),
		is(c.SIsMember(ctx, "s", "b").Result())(true),
		is(c.SMIsMember(ctx, "s", "b", "x").Result())([]bool{true, false}),
		is(sorted(c.SMembers(ctx, "s").Result()))([]string{"a", "b", "c"}),
		is(c.SMembersMap(ctx, "t").Result())(map[string]struct{}{"2": {}, "3": {}, "c": {}}),
		is(c.SInter(ctx, "s", "t").Result())([]string{"c"}),
		is(sorted(c.SUnion(ctx, "s", "t").Result()))([]string{"2", "3", "a", "b", "c"}),
		is(sorted(c.SDiff(ctx, "s", "t").Result()))([]string{"a", "b"}),
		is(c.SInterCard(ctx, 0, "s", "t").Result())(1),
		is(c.SUnionStore(ctx, "u", "s", "t").Result())(5),
		is(c.SMove(ctx, "s", "t", "a").Result())(true),
		is(c.SRem(ctx, "s", "b", "x").Result())(1),
		is(c.SRandMemberN(ctx, "s", 5).Result())([]string{"c"}),
		is(c.SPop(ctx, "s").Result())("c"),
		is(c.Exists(ctx, "s").Result())(0),
		is(c.SCard(ctx, "t").Result())(4),
	)
}

func sortedSets(ctx context.Context, c *redis.Client) error {
	ranked := []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}, {Score: 3, Member: "c"}}
	key, popped, err := c.ZMPop(ctx, "min", 2, "missing", "z").Result()
	return first(
		none(err), want(key, ""), want(len(popped), 0),
		is(c.ZAdd(ctx, "z", ranked...).Result())(3),
		is(c.ZAddNX(ctx, "z", redis.Z{Score: 9, Member: "a"}).Result())(0),
		is(c.ZAddArgs(ctx, "z", redis.ZAddArgs{GT: true, Ch: true, Members: []redis.Z{{Score: 0, Member: "c"}}}).
			Result())(0),
		is(c.ZScore(ctx, "z", "b").Result())(2.5),
		none(c.ZScore(ctx, "z", "x").Err()),
		is(c.ZMScore(ctx, "z", "a", "c").Result())([]float64{1, 3}),
		is(c.ZRank(ctx, "z", "c").Result())(2),
		is(c.ZRankWithScore(ctx, "z", "b").Result())(redis.RankScore{Rank: 1, Score: 2.5}),
		is(c.ZRevRank(ctx, "z", "c").Result())(0),
		is(c.ZRangeWithScores(ctx, "z", 0, -1).Result())(ranked),
		is(c.ZRangeByScore(ctx, "z", &redis.ZRangeBy{Min: "(1", Max: "+inf", Count: 1}).Result())([]string{"b"}),
		is(c.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "z", Start: 0, Stop: 1, Rev: true}).Result())([]string{"c", "b"}),
		is(c.ZCount(ctx, "z", "2", "(3").Result())(1),
		is(c.ZIncrBy(ctx, "z", 1.5, "a").Result())(2.5),
		is(c.ZAdd(ctx, "y", redis.Z{Score: 10, Member: "b"}).Result())(1),
		is(c.ZUnionWithScores(ctx, redis.ZStore{Keys: []string{"z", "y"}, Weights: []float64{2, 1}}).
			Result())([]redis.Z{{Score: 5, Member: "a"}, {Score: 6, Member: "c"}, {Score: 15, Member: "b"}}),
		is(c.ZInterStore(ctx, "i", &redis.ZStore{Keys: []string{"z", "y"}, Aggregate: "MAX"}).Result())(1),
		is(c.ZScore(ctx, "i", "b").Result())(10),
		is(c.ZDiff(ctx, "z", "y").Result())([]string{"a", "c"}),
		is(c.ZPopMax(ctx, "z").Result())([]redis.Z{{Score: 3, Member: "c"}}),
		is(c.BZPopMin(ctx, time.Second, "missing", "z").Result())(&redis.ZWithKey{
			Z: redis.Z{Score: 2.5, Member: "a"}, Key: "z",
		}),
		is(c.ZRemRangeByScore(ctx, "z", "-inf", "+inf").Result())(1),
		is(c.Exists(ctx, "z").Result())(0),
		is(c.ZAdd(ctx, "l", redis.Z{Member: "a"}, redis.Z{Member: "b"}, redis.Z{Member: "c"}).Result())(3),
		is(c.ZRangeByLex(ctx, "l", &redis.ZRangeBy{Min: "[b", Max: "+"}).Result())([]string{"b", "c"}),
		is(c.ZLexCount(ctx, "l", "-", "(c").Result())(2),
		is(c.ZRem(ctx, "l", "a", "x").Result())(1),
	)
}

func streams(ctx context.Context, c *redis.Client) error {
	add := func(id string, n int) func(string) error {
		return is(c.XAdd(ctx, &redis.XAddArgs{Stream: "x", ID: id, Values: []any{"n", n}}).Result())
	}
	entry := func(id string, n int) redis.XMessage {
		return redis.XMessage{ID: id, Values: map[string]any{"n": fmt.Sprint(n)}}
	}
	return first(
		add("1-1", 1)("1-1"), add("1-2", 2)("1-2"), add("2-*", 3)("2-0"),
		want(c.XAdd(ctx, &redis.XAddArgs{Stream: "x", ID: "1-1", Values: []any{"n", 1}}).Err(),
			"ERR The ID specified in XADD is equal or smaller than the target stream top item"),
		is(c.XLen(ctx, "x").Result())(3),
		is(c.XRange(ctx, "x", "-", "+").Result())([]redis.XMessage{entry("1-1", 1), entry("1-2", 2), entry("2-0", 3)}),
		is(c.XRevRangeN(ctx, "x", "+", "-", 1).Result())([]redis.XMessage{entry("2-0", 3)}),
		is(c.XRead(ctx, &redis.XReadArgs{Streams: []string{"x", "1-1"}, Count: 1, Block: -1}).Result())(
			[]redis.XStream{{Stream: "x", Messages: []redis.XMessage{entry("1-2", 2)}}}),
		none(c.XRead(ctx, &redis.XReadArgs{Streams: []string{"x", "$"}, Block: 10 * time.Millisecond}).Err()),
		is(c.XDel(ctx, "x", "1-2", "9-9").Result())(1),
		is(c.XTrimMaxLen(ctx, "x", 1).Result())(1),
		is(c.XTrimMinID(ctx, "x", "3").Result())(1),
		is(c.XLen(ctx, "x").Result())(0),
		is(c.Type(ctx, "x").Result())("stream"),
	)
}

// groups has four consumers read what one adds, each entry by one of them; what one of them has not confirmed another claims.
func groups(ctx context.Context, c *redis.Client) error {
	const consumers, entries = 4, 100
	if err := is(c.XGroupCreateMkStream(ctx, "x", "g", "$").Result())("OK"); err != nil {
		return err
	}
	read := make(chan string, entries)
	errs := make(chan error, consumers)
	var wait sync.WaitGroup
	for i := range consumers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				got, err := c.XReadGroup(ctx, &redis.XReadGroupArgs{
					Group: "g", Consumer: fmt.Sprint("c", i), Streams: []string{"x", ">"}, Count: 1, Block: 0,
				}).Result()
				if err != nil {
					errs <- err
					return
				}
				message := got[0].Messages[0]
				if err := is(c.XAck(ctx, "x", "g", message.ID).Result())(1); err != nil {
					errs <- err
					return
				}
				if message.Values["n"] == "end" {
					return
				}
				read <- fmt.Sprint(message.Values["n"])
			}
		}()
	}
	add := func(n any) error { return c.XAdd(ctx, &redis.XAddArgs{Stream: "x", Values: []any{"n", n}}).Err() }
	for i := range entries + consumers {
		n := any(i)
		if i >= entries {
			n = "end"
		}
		if err := add(n); err != nil {
			return err
		}
	}
	wait.Wait()
	close(read)
	close(errs)
	each := map[string]bool{}
	for n := range read {
		each[n] = true
	}
	pending, err := c.XPending(ctx, "x", "g").Result()
	if err := first(<-errs, want(len(each), entries), err, want(pending.Count, 0), add("left")); err != nil {
		return err
	}
	left, err := c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c0", Streams: []string{"x", ">"}}).Result()
	if err != nil {
		return err
	}
	id := left[0].Messages[0].ID
	claimed := []redis.XMessage{{ID: id, Values: map[string]any{"n": "left"}}}
	pending, err = c.XPending(ctx, "x", "g").Result()
	if err := first(err, want(*pending, redis.XPending{
		Count: 1, Lower: id, Higher: id, Consumers: map[string]int64{"c0": 1},
	})); err != nil {
		return err
	}
	found, next, err := c.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: "x", Group: "g", Consumer: "c2", MinIdle: 0, Start: "0",
	}).Result()
	info, cause := c.XInfoGroups(ctx, "x").Result()
	return first(
		err, want(found, claimed), want(next, "0-0"),
		is(c.XClaim(ctx, &redis.XClaimArgs{
			Stream: "x", Group: "g", Consumer: "c1", MinIdle: 0, Messages: []string{id},
		}).Result())(claimed),
		is(c.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: "x", Group: "g", Start: "-", End: "+", Count: 5, Consumer: "c0",
		}).Result())([]redis.XPendingExt{}),
		cause, want(len(info), 1), want(info[0].Consumers, consumers), want(info[0].Pending, 1),
		want(info[0].EntriesRead, entries+consumers+1), want(info[0].Lag, 0),
		is(c.XAck(ctx, "x", "g", id).Result())(1),
		is(c.XGroupDelConsumer(ctx, "x", "g", "c1").Result())(0),
		is(c.XGroupDestroy(ctx, "x", "g").Result())(1),
		want(c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c0", Streams: []string{"x", ">"}}).Err(),
			"NOGROUP No such key 'x' or consumer group 'g' in XREADGROUP with GROUP option"),
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
