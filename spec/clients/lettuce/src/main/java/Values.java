import io.lettuce.core.BitFieldArgs;
import io.lettuce.core.ExpireArgs;
import io.lettuce.core.GetExArgs;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandType;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Checks of keys, and of values that are strings. */
final class Values extends Checks {
  Values(Server server) {
    super(server);
  }

  void strings(RedisCommands<String, String> redis) {
    want("OK", redis.set("a", "1"));
    want("1", redis.get("a"));
    want(null, redis.get("missing"));
    want(null, redis.set("a", "2", SetArgs.Builder.nx()));
    want("OK", redis.set("a", "2", SetArgs.Builder.xx().keepttl()));
    want("2", redis.setGet("a", "3", SetArgs.Builder.ex(100)));
    want("3", redis.getdel("a"));
    want("OK", redis.mset(Map.of("x", "1", "y", "two")));
    want(
        List.of(KeyValue.just("x", "1"), KeyValue.empty("missing"), KeyValue.just("y", "two")),
        redis.mget("x", "missing", "y"));
    want(false, redis.msetnx(Map.of("x", "1", "new", "2")));
    want(9L, redis.append("y", " three"));
    want("three", redis.getrange("y", 4, -1));
    want(9L, redis.setrange("y", 4, "THREE"));
    want(9L, redis.strlen("y"));
    byte[] binary = {0, 13, 10, -1};
    byte[] key = "binary".getBytes(StandardCharsets.UTF_8);
    try (StatefulRedisConnection<byte[], byte[]> connection = server.connectForBytes()) {
      want("OK", connection.sync().set(key, binary));
      want(true, Arrays.equals(binary, connection.sync().get(key)));
    }
  }

  void expiry(RedisCommands<String, String> redis) throws InterruptedException {
    want("OK", redis.setex("a", 100, "1"));
    want(100L, redis.ttl("a"));
    want(-2L, redis.ttl("missing"));
    want(false, redis.expire("a", 50, ExpireArgs.Builder.gt()));
    want(true, redis.expire("a", 50, ExpireArgs.Builder.lt()));
    want("1", redis.getex("a", GetExArgs.Builder.persist()));
    want(-1L, redis.ttl("a"));
    want(true, redis.pexpireat("a", 4000000000000L));
    want(4000000000L, redis.expiretime("a"));
    want("OK", redis.psetex("short", 20, "1"));
    while (redis.exists("short") == 1) {
      Thread.sleep(5);
    }
  }

  void counters(RedisCommands<String, String> redis) {
    want(1L, redis.incr("n"));
    want(42L, redis.incrby("n", 41));
    want(41L, redis.decr("n"));
    want(41.5, redis.incrbyfloat("n", 0.5));
  }

  void keys(RedisCommands<String, String> redis) {
    for (int i = 0; i < 500; i++) {
      redis.set("key:" + i, "" + i);
    }
    ScanArgs wanted = ScanArgs.Builder.limit(50).match("key:*");
    KeyScanCursor<String> page = redis.scan(wanted);
    Set<String> seen = new HashSet<>(page.getKeys());
    while (!page.isFinished()) {
      page = redis.scan(page, wanted);
      seen.addAll(page.getKeys());
    }
    want(500, seen.size());
    want(10, redis.keys("key:49?").size());
    want(500L, redis.dbsize());
    want("OK", redis.rename("key:1", "renamed"));
    want(true, redis.copy("renamed", "copied"));
    want("string", redis.type("copied"));
    want(1L, redis.unlink("copied", "missing"));
    want(2L, redis.exists("key:2", "key:3", "missing"));
    byte[] dump = redis.dump("renamed");
    want("OK", redis.restore("restored", 0, dump));
    want("1", redis.get("restored"));
  }

  void bitmaps(RedisCommands<String, String> redis) {
    want(0L, redis.setbit("b", 7, 1));
    want(1L, redis.getbit("b", 7));
    want(1L, redis.bitcount("b"));
    want(7L, redis.bitpos("b", true));
    want(1L, redis.bitopNot("not", "b"));
    BitFieldArgs.BitFieldType byteWide = BitFieldArgs.unsigned(8);
    BitFieldArgs twice = new BitFieldArgs()
        .incrBy(byteWide, 0, 200)
        .overflow(BitFieldArgs.OverflowType.SAT)
        .incrBy(byteWide, 0, 200);
    want(List.of(200L, 255L), redis.bitfield("f", twice));
  }

  void databases(RedisCommands<String, String> redis) {
    try (StatefulRedisConnection<String, String> connection = server.connect(5)) {
      RedisCommands<String, String> other = connection.sync();
      want("OK", other.set("d", "5"));
      want(null, redis.get("d"));
      want(true, other.move("d", 0));
      want("5", redis.get("d"));
      want("OK", redis.swapdb(0, 5));
      want("5", other.get("d"));
    }
  }

  void errors(RedisCommands<String, String> redis) throws Exception {
    want("OK", redis.set("e", "text"));
    refused("ERR value is not an integer or out of range", () -> redis.incr("e"));
    refused("ERR no such key", () -> redis.rename("missing", "x"));
    refused(
        "ERR wrong number of arguments for 'get' command",
        () -> redis.dispatch(CommandType.GET, new StatusOutput<>(StringCodec.UTF8)));
    want("text", redis.get("e"));
  }
}
