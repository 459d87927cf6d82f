import io.lettuce.core.Consumer;
import io.lettuce.core.ExpireArgs;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LMPopArgs;
import io.lettuce.core.LMoveArgs;
import io.lettuce.core.Limit;
import io.lettuce.core.MapScanCursor;
import io.lettuce.core.Range;
import io.lettuce.core.Range.Boundary;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.SortArgs;
import io.lettuce.core.StreamMessage;
import io.lettuce.core.XAddArgs;
import io.lettuce.core.XAutoClaimArgs;
import io.lettuce.core.XGroupCreateArgs;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.ZAddArgs;
import io.lettuce.core.ZAggregateArgs;
import io.lettuce.core.ZStoreArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.models.stream.ClaimedMessages;
import io.lettuce.core.models.stream.PendingMessages;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;

/** Checks of values that have elements: hashes, lists, sets, sorted sets, streams. */
final class Containers extends Checks {
  Containers(Server server) {
    super(server);
  }

  void hashes(RedisCommands<String, String> redis) throws Exception {
    want(2L, redis.hset("h", Map.of("user", "ann", "count", "1")));
    want(false, redis.hset("h", "user", "bob"));
    want(42L, redis.hincrby("h", "count", 41));
    want(0.5, redis.hincrbyfloat("h", "part", 0.5));
    want(
        List.of(KeyValue.just("user", "bob"), KeyValue.empty("missing"), KeyValue.just("count", "42")),
        redis.hmget("h", "user", "missing", "count"));
    want(false, redis.hsetnx("h", "user", "eve"));
    want(true, redis.hexists("h", "part"));
    want(3L, redis.hstrlen("h", "user"));
    want(1L, redis.hdel("h", "part", "missing"));
    want(Map.of("user", "bob", "count", "42"), redis.hgetall("h"));
    want(Set.of("user", "count"), new HashSet<>(redis.hkeys("h")));
    want(
        Set.of(KeyValue.just("user", "bob"), KeyValue.just("count", "42")),
        new HashSet<>(redis.hrandfieldWithvalues("h", 5)));
    want(2L, redis.hlen("h"));
    want(null, redis.hget("h", "missing"));
    Map<String, String> many = new HashMap<>();
    for (int i = 0; i < 1000; i++) {
      many.put("f" + i, "" + i);
    }
    want(1000L, redis.hset("large", many));
    want(many, redis.hgetall("large"));
    ScanArgs wanted = ScanArgs.Builder.limit(50).match("f*");
    MapScanCursor<String, String> page = redis.hscan("large", wanted);
    Map<String, String> seen = new HashMap<>(page.getMap());
    while (!page.isFinished()) {
      page = redis.hscan("large", page, wanted);
      seen.putAll(page.getMap());
    }
    want(many, seen);
    refused(
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        () -> redis.lpush("h", "x"));
  }

  void fields(RedisCommands<String, String> redis) throws InterruptedException {
    want(2L, redis.hset("h", Map.of("a", "1", "b", "2")));
    want(List.of(1L, -2L), redis.hexpire("h", 3600, "a", "missing"));
    want(List.of(-1L, -2L), redis.httl("h", "b", "missing"));
    want(List.of(0L), redis.hexpire("h", 60, ExpireArgs.Builder.gt(), "a"));
    want(List.of(1L, -1L), redis.hpersist("h", "a", "b"));
    want(List.of(1L), redis.hexpireat("h", 4000000000L, "a"));
    want(List.of(4000000000L), redis.hexpiretime("h", "a"));
    want(List.of(1L), redis.hpexpire("h", 30, "b"));
    while (redis.hexists("h", "b")) {
      Thread.sleep(5);
    }
    want(Map.of("a", "1"), redis.hgetall("h"));
  }

  void lists(RedisCommands<String, String> redis) {
    want(3L, redis.rpush("l", "b", "c", "d"));
    want(4L, redis.lpush("l", "a"));
    want(0L, redis.lpushx("missing", "a"));
    want(List.of("a", "b", "c", "d"), redis.lrange("l", 0, -1));
    want("d", redis.lindex("l", -1));
    want("OK", redis.lset("l", 1, "B"));
    want(5L, redis.linsert("l", true, "c", "x"));
    want(3L, redis.lpos("l", "c"));
    want(1L, redis.lrem("l", 0, "x"));
    want("a", redis.lmove("l", "done", LMoveArgs.Builder.leftRight()));
    want("d", redis.rpoplpush("l", "done"));
    want(List.of("d", "a"), redis.lrange("done", 0, -1));
    want(List.of("B", "c"), redis.lpop("l", 5));
    want(null, redis.rpop("l"));
    want(3L, redis.rpush("l", "3", "1", "2"));
    want(List.of("3", "2", "1"), redis.sort("l", SortArgs.Builder.desc()));
    want("OK", redis.ltrim("l", 1, 1));
    want(1L, redis.llen("l"));
  }

  /** Four workers take what is pushed, each of them on a connection of its own: each job is taken once. */
  void blockingPops(RedisCommands<String, String> redis) throws Exception {
    List<String> taken = Collections.synchronizedList(new ArrayList<>());
    List<Future<Void>> workers = started(4, worker -> {
      try (StatefulRedisConnection<String, String> own = server.connect(0)) {
        for (;;) {
          String job = own.sync().brpop(0L, "urgent", "jobs").getValue();
          if (job.equals("end")) {
            return;
          }
          taken.add(job);
        }
      }
    });
    Set<String> expected = new HashSet<>();
    for (int i = 0; i < 200; i++) {
      redis.lpush(i % 2 == 0 ? "jobs" : "urgent", "" + i);
      expected.add("" + i);
    }
    for (int i = 0; i < 4; i++) {
      redis.lpush("jobs", "end");
    }
    joined(workers);
    want(200, taken.size());
    want(expected, new HashSet<>(taken));
    want(0L, redis.exists("jobs", "urgent"));
    want(null, redis.blmpop(0.01, LMPopArgs.Builder.left(), "empty"));
    want(2L, redis.rpush("a", "1", "2"));
    want("2", redis.blmove("a", "b", LMoveArgs.Builder.rightLeft(), 1L));
    want(KeyValue.just("b", "2"), redis.blpop(1L, "b", "a"));
    want(KeyValue.just("a", "1"), redis.blpop(1L, "b", "a"));
  }

  void sets(RedisCommands<String, String> redis) {
    want(3L, redis.sadd("s", "a", "b", "c", "a"));
    want(3L, redis.sadd("t", "c", "2", "3"));
    want(true, redis.sismember("s", "b"));
    want(List.of(true, false), redis.smismember("s", "b", "x"));
    want(Set.of("a", "b", "c"), redis.smembers("s"));
    want(Set.of("c"), redis.sinter("s", "t"));
    want(Set.of("a", "b", "c", "2", "3"), redis.sunion("s", "t"));
    want(Set.of("a", "b"), redis.sdiff("s", "t"));
    want(1L, redis.sintercard("s", "t"));
    want(5L, redis.sunionstore("u", "s", "t"));
    want(true, redis.smove("s", "t", "a"));
    want(1L, redis.srem("s", "b", "x"));
    want(List.of("c"), redis.srandmember("s", 5));
    want("c", redis.spop("s"));
    want(0L, redis.exists("s"));
    want(Set.of("a", "c", "2", "3"), redis.spop("t", 9));
  }

  private static ScoredValue<String> scored(double score, String member) {
    return ScoredValue.just(score, member);
  }

  void sortedSets(RedisCommands<String, String> redis) {
    want(1L, redis.zadd("z", 1, "a"));
    want(2L, redis.zadd("z", scored(2.5, "b"), scored(3, "c")));
    want(0L, redis.zadd("z", ZAddArgs.Builder.nx(), 9, "a"));
    want(0L, redis.zadd("z", ZAddArgs.Builder.gt().ch(), 0, "c"));
    want(2.5, redis.zscore("z", "b"));
    want(null, redis.zscore("z", "x"));
    want(Arrays.asList(1.0, null), redis.zmscore("z", "a", "x"));
    want(2L, redis.zrank("z", "c"));
    want(0L, redis.zrevrank("z", "c"));
    want(List.of(scored(1, "a"), scored(2.5, "b"), scored(3, "c")), redis.zrangeWithScores("z", 0, -1));
    Range<Double> above = Range.from(Boundary.excluding(1.0), Boundary.unbounded());
    want(List.of("b"), redis.zrangebyscore("z", above, Limit.create(0, 1)));
    want(List.of("c", "b"), redis.zrevrange("z", 0, 1));
    Range<Double> between = Range.from(Boundary.including(2.0), Boundary.excluding(3.0));
    want(1L, redis.zcount("z", between));
    want(2.5, redis.zincrby("z", 1.5, "a"));
    want(1L, redis.zadd("y", 10, "b"));
    want(
        List.of(scored(5, "a"), scored(6, "c"), scored(15, "b")),
        redis.zunionWithScores(ZAggregateArgs.Builder.weights(2, 1), "z", "y"));
    want(1L, redis.zinterstore("i", ZStoreArgs.Builder.max(), "z", "y"));
    want(10.0, redis.zscore("i", "b"));
    want(List.of("a", "c"), redis.zdiff("z", "y"));
    want(scored(3, "c"), redis.zpopmax("z"));
    want(KeyValue.just("z", scored(2.5, "a")), redis.bzpopmin(1L, "missing", "z"));
    Range<Double> all = Range.unbounded();
    want(1L, redis.zremrangebyscore("z", all));
    want(0L, redis.exists("z"));
    want(3L, redis.zadd("l", scored(0, "a"), scored(0, "b"), scored(0, "c")));
    Range<String> fromB = Range.from(Boundary.including("b"), Boundary.unbounded());
    want(List.of("b", "c"), redis.zrangebylex("l", fromB));
    want(1L, redis.zrem("l", "a", "x"));
  }

  void streams(RedisCommands<String, String> redis) throws Exception {
    want("1-1", redis.xadd("x", new XAddArgs().id("1-1"), Map.of("n", "1")));
    want("1-2", redis.xadd("x", new XAddArgs().id("1-2"), Map.of("n", "2")));
    want("2-5", redis.xadd("x", new XAddArgs().id("2-5").maxlen(3), Map.of("n", "3")));
    refused(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        () -> redis.xadd("x", new XAddArgs().id("1-1"), Map.of("n", "1")));
    Range<String> all = Range.unbounded();
    List<String> entries = new ArrayList<>();
    redis.xrange("x", all).forEach(entry -> entries.add(entry.getId() + " " + entry.getBody()));
    want(List.of("1-1 {n=1}", "1-2 {n=2}", "2-5 {n=3}"), entries);
    want("2-5", redis.xrevrange("x", all, Limit.create(0, 1)).get(0).getId());
    List<StreamMessage<String, String>> read =
        redis.xread(XReadArgs.Builder.count(1), StreamOffset.from("x", "1-1"));
    want(1, read.size());
    want("x", read.get(0).getStream());
    want("1-2", read.get(0).getId());
    wantNothing(redis.xread(XReadArgs.Builder.block(10), StreamOffset.latest("x")));
    want(1L, redis.xdel("x", "1-2", "9-9"));
    want(1L, redis.xtrim("x", 1));
    want(1L, redis.xlen("x"));
  }

  /** Four consumers read entries, each by one of them; what one has not confirmed another claims. */
  void groups(RedisCommands<String, String> redis) throws Exception {
    StreamOffset<String> fresh = StreamOffset.lastConsumed("x");
    want("OK", redis.xgroupCreate(StreamOffset.latest("x"), "g", XGroupCreateArgs.Builder.mkstream()));
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    List<Future<Void>> consumers = started(4, number -> {
      Consumer<String> name = Consumer.from("g", "c" + number);
      try (StatefulRedisConnection<String, String> own = server.connect(0)) {
        for (;;) {
          XReadArgs one = XReadArgs.Builder.count(1).block(0);
          StreamMessage<String, String> entry = own.sync().xreadgroup(name, one, fresh).get(0);
          want(1L, own.sync().xack("x", "g", entry.getId()));
          if (entry.getBody().get("n").equals("end")) {
            return;
          }
          seen.add(entry.getBody().get("n"));
        }
      }
    });
    Set<String> expected = new HashSet<>();
    for (int i = 0; i < 100; i++) {
      redis.xadd("x", Map.of("n", "" + i));
      expected.add("" + i);
    }
    for (int i = 0; i < 4; i++) {
      redis.xadd("x", Map.of("n", "end"));
    }
    joined(consumers);
    want(100, seen.size());
    want(expected, new HashSet<>(seen));
    want(0L, redis.xpending("x", "g").getCount());
    String left = redis.xadd("x", Map.of("n", "left"));
    want(left, redis.xreadgroup(Consumer.from("g", "c0"), fresh).get(0).getId());
    PendingMessages pending = redis.xpending("x", "g");
    want(1L, pending.getCount());
    want(Map.of("c0", 1L), pending.getConsumerMessageCount());
    ClaimedMessages<String, String> claimed =
        redis.xautoclaim("x", XAutoClaimArgs.Builder.xautoclaim(Consumer.from("g", "c2"), 0, "0-0"));
    want("0-0", claimed.getId());
    want(Map.of("n", "left"), claimed.getMessages().get(0).getBody());
    want(left, redis.xclaim("x", Consumer.from("g", "c1"), 0, left).get(0).getId());
    Range<String> all = Range.unbounded();
    want(0, redis.xpending("x", Consumer.from("g", "c0"), all, Limit.create(0, 5)).size());
    Map<Object, Object> info = pairs((List<?>) redis.xinfoGroups("x").get(0));
    want(4L, info.get("consumers"));
    want(1L, info.get("pending"));
    want(left, info.get("last-delivered-id"));
    want(105L, info.get("entries-read"));
    want(0L, info.get("lag"));
    want(1L, redis.xack("x", "g", left));
    want(0L, redis.xgroupDelconsumer("x", Consumer.from("g", "c1")));
    want(true, redis.xgroupDestroy("x", "g"));
    refused(
        "NOGROUP No such key 'x' or consumer group 'g' in XREADGROUP with GROUP option",
        () -> redis.xreadgroup(Consumer.from("g", "c0"), fresh));
  }

  /** Names and values, which Lettuce returns as one list. */
  private static Map<Object, Object> pairs(List<?> list) {
    Map<Object, Object> pairs = new HashMap<>();
    for (int i = 0; i + 1 < list.size(); i += 2) {
      pairs.put(list.get(i), list.get(i + 1));
    }
    return pairs;
  }
}
