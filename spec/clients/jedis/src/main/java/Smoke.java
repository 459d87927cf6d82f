import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.BitOP;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/**
 * Talks to a cache server as programs that use Jedis do, over RESP2 and RESP3, and says of each kind of
 * call whether it did what it should: a line "name: ok", or the error and exit 1.
 */
public final class Smoke {
  private interface Check {
    void run(Jedis jedis) throws Exception;
  }

  private final HostAndPort server;
  private final RedisProtocol protocol;

  private Smoke(HostAndPort server, RedisProtocol protocol) {
    this.server = server;
    this.protocol = protocol;
  }

  public static void main(String[] arguments) {
    HostAndPort server = HostAndPort.from(arguments[0]);
    for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
      new Smoke(server, protocol).all();
    }
    System.exit(0);
  }

  private void all() {
    check("strings", this::strings);
    check("expiry", this::expiry);
    check("counters", this::counters);
    check("keys", this::keys);
    check("bitmaps", this::bitmaps);
    check("pipeline", this::pipeline);
    check("transaction", this::transaction);
    check("watch conflict", this::conflict);
    check("publish and subscribe", this::subscriptions);
    check("databases", this::databases);
    check("errors", this::errors);
    check("pool", jedis -> pool());
    check("server", this::server);
  }

  private void check(String name, Check check) {
    try (Jedis jedis = connect(0)) {
      jedis.flushAll();
      check.run(jedis);
      System.out.println(protocol + " " + name + ": ok");
    } catch (Exception | AssertionError error) {
      System.out.println(protocol + " " + name + ": " + error);
      error.printStackTrace(System.out);
      System.exit(1);
    }
  }

  private DefaultJedisClientConfig config(int database) {
    return DefaultJedisClientConfig.builder()
        .protocol(protocol)
        .clientName("larder-smoke")
        .database(database)
        .timeoutMillis(20000)
        .build();
  }

  private Jedis connect(int database) {
    return new Jedis(server, config(database));
  }

  private static void want(Object expected, Object got) {
    if (!Objects.equals(expected, got)) {
      throw new AssertionError("got " + got + ", expected " + expected);
    }
  }

  private void strings(Jedis jedis) {
    want("OK", jedis.set("a", "1"));
    want("1", jedis.get("a"));
    want(null, jedis.get("missing"));
    want(null, jedis.set("a", "2", SetParams.setParams().nx()));
    want("OK", jedis.set("a", "2", SetParams.setParams().xx().keepTtl()));
    want("2", jedis.setGet("a", "3", SetParams.setParams().ex(100)));
    want("3", jedis.getDel("a"));
    want("OK", jedis.mset("x", "1", "y", "two"));
    want(Arrays.asList("1", null, "two"), jedis.mget("x", "missing", "y"));
    want(0L, jedis.msetnx("x", "1", "new", "2"));
    want(9L, jedis.append("y", " three"));
    want("three", jedis.getrange("y", 4, -1));
    want(9L, jedis.setrange("y", 4, "THREE"));
    want(9L, jedis.strlen("y"));
    byte[] binary = {0, 13, 10, -1};
    byte[] key = "binary".getBytes(StandardCharsets.UTF_8);
    jedis.set(key, binary);
    want(true, Arrays.equals(binary, jedis.get(key)));
  }

  private void expiry(Jedis jedis) throws InterruptedException {
    want("OK", jedis.setex("a", 100, "1"));
    want(100L, jedis.ttl("a"));
    want(-2L, jedis.ttl("missing"));
    want(0L, jedis.expire("a", 50, ExpiryOption.GT));
    want(1L, jedis.expire("a", 50, ExpiryOption.LT));
    want("1", jedis.getEx("a", GetExParams.getExParams().persist()));
    want(-1L, jedis.ttl("a"));
    want(1L, jedis.pexpireAt("a", 4000000000000L));
    want(4000000000L, jedis.expireTime("a"));
    want("OK", jedis.psetex("short", 20, "1"));
    while (jedis.exists("short")) {
      Thread.sleep(5);
    }
  }

  private void counters(Jedis jedis) {
    want(1L, jedis.incr("n"));
    want(42L, jedis.incrBy("n", 41));
    want(41L, jedis.decr("n"));
    want(41.5, jedis.incrByFloat("n", 0.5));
  }

  private void keys(Jedis jedis) {
    for (int i = 0; i < 500; i++) {
      jedis.set("key:" + i, "" + i);
    }
    Set<String> seen = new HashSet<>();
    ScanParams wanted = new ScanParams().match("key:*").count(50);
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      var page = jedis.scan(cursor, wanted);
      seen.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    want(500, seen.size());
    want(10, jedis.keys("key:49?").size());
    want(500L, jedis.dbSize());
    want("OK", jedis.rename("key:1", "renamed"));
    want(true, jedis.copy("renamed", "copied", false));
    want("string", jedis.type("copied"));
    want(1L, jedis.unlink("copied", "missing"));
    want(2L, jedis.exists("key:2", "key:3", "missing"));
    byte[] dump = jedis.dump("renamed");
    want("OK", jedis.restore("restored", 0, dump));
    want("1", jedis.get("restored"));
  }

  private void bitmaps(Jedis jedis) {
    want(false, jedis.setbit("b", 7, true));
    want(true, jedis.getbit("b", 7));
    want(1L, jedis.bitcount("b"));
    want(7L, jedis.bitpos("b", true));
    want(1L, jedis.bitop(BitOP.NOT, "not", "b"));
    want(List.of(200L, 255L),
        jedis.bitfield("f", "INCRBY", "u8", "0", "200", "OVERFLOW", "SAT", "INCRBY", "u8", "0", "200"));
  }

  private void pipeline(Jedis jedis) {
    Pipeline pipeline = jedis.pipelined();
    List<Response<String>> gets = new ArrayList<>();
    for (int i = 0; i < 1000; i++) {
      pipeline.set("p" + i, "" + i);
      gets.add(pipeline.get("p" + i));
    }
    pipeline.sync();
    for (int i = 0; i < 1000; i++) {
      want("" + i, gets.get(i).get());
    }
  }

  private void transaction(Jedis jedis) {
    Transaction transaction = jedis.multi();
    transaction.set("t", "41");
    Response<Long> n = transaction.incr("t");
    want(List.of("OK", 42L), transaction.exec());
    want(42L, n.get());
    Transaction discarded = jedis.multi();
    discarded.set("t", "0");
    want("OK", discarded.discard());
    want("42", jedis.get("t"));
    // One that fails while it runs does not undo the others.
    Transaction failing = jedis.multi();
    failing.set("t", "text");
    failing.incr("t");
    failing.set("u", "1");
    List<Object> replies = failing.exec();
    want(true, replies.get(1) instanceof JedisDataException);
    want("1", jedis.get("u"));
  }

  private void conflict(Jedis jedis) {
    try (Jedis other = connect(0)) {
      jedis.set("w", "1");
      jedis.watch("w");
      other.set("w", "2");
      Transaction transaction = jedis.multi();
      transaction.set("w", "3");
      want(null, transaction.exec());
      want("2", jedis.get("w"));
      jedis.watch("w");
      jedis.unwatch();
      other.set("w", "4");
      transaction = jedis.multi();
      transaction.set("w", "5");
      want(List.of("OK"), transaction.exec());
    }
  }

  private void subscriptions(Jedis jedis) throws InterruptedException {
    List<String> plain = new ArrayList<>();
    List<String> matched = new ArrayList<>();
    CountDownLatch ready = new CountDownLatch(2);
    JedisPubSub listener = new JedisPubSub() {
      @Override
      public void onSubscribe(String channel, int count) {
        psubscribe("n*");
        ready.countDown();
      }

      @Override
      public void onPSubscribe(String pattern, int count) {
        ready.countDown();
      }

      @Override
      public void onMessage(String channel, String message) {
        plain.add(message);
        enough();
      }

      @Override
      public void onPMessage(String pattern, String channel, String message) {
        matched.add(message);
        enough();
      }

      private void enough() {
        if (plain.size() + matched.size() == 200) {
          unsubscribe("news");
          punsubscribe("n*");
        }
      }
    };
    Thread thread = new Thread(() -> {
      try (Jedis subscriber = connect(0)) {
        subscriber.subscribe(listener, "news");
        want("PONG", subscriber.ping());
      }
    });
    thread.start();
    ready.await();
    List<String> expected = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      want(2L, jedis.publish("news", "" + i));
      expected.add("" + i);
    }
    thread.join();
    want(expected, plain);
    want(expected, matched);
    want(0L, jedis.publish("news", "x"));
  }

  private void databases(Jedis jedis) {
    try (Jedis other = connect(5)) {
      other.set("d", "5");
      want(null, jedis.get("d"));
      want(1L, other.move("d", 0));
      want("5", jedis.get("d"));
      jedis.swapDB(0, 5);
      want("5", other.get("d"));
    }
  }

  private void errors(Jedis jedis) {
    jedis.set("e", "text");
    try {
      jedis.incr("e");
      throw new AssertionError("INCR of a text");
    } catch (JedisDataException error) {
      want("ERR value is not an integer or out of range", error.getMessage());
    }
  }

  private void pool() throws InterruptedException {
    try (JedisPooled pool = new JedisPooled(server, config(0))) {
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 8; i++) {
        Thread thread = new Thread(() -> {
          for (int n = 0; n < 200; n++) {
            pool.incr("pool");
          }
        });
        thread.start();
        threads.add(thread);
      }
      for (Thread thread : threads) {
        thread.join();
      }
      want("1600", pool.get("pool"));
    }
  }

  private void server(Jedis jedis) {
    want("PONG", jedis.ping());
    want("larder-smoke", jedis.clientGetname());
    want(true, jedis.info("server").contains("redis_mode:standalone"));
    want(true, jedis.configGet("maxmemory").containsKey("maxmemory"));
    want(true, jedis.time().size() == 2);
  }
}
