import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.BitOP;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.args.ListDirection;
import redis.clients.jedis.args.ListPosition;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.SortingParams;
import redis.clients.jedis.params.XAddParams;
import redis.clients.jedis.params.XAutoClaimParams;
import redis.clients.jedis.params.XClaimParams;
import redis.clients.jedis.params.XPendingParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.params.ZAddParams;
import redis.clients.jedis.params.ZParams;
import redis.clients.jedis.resps.StreamEntry;
import redis.clients.jedis.resps.Tuple;

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

  /** What makes connections by TLS, or null. */
  private final SSLSocketFactory sockets;

  private Smoke(HostAndPort server, RedisProtocol protocol, SSLSocketFactory sockets) {
    this.server = server;
    this.protocol = protocol;
    this.sockets = sockets;
  }

  public static void main(String[] arguments) throws Exception {
    HostAndPort server = HostAndPort.from(arguments[0]);
    SSLSocketFactory sockets = secured(System.getenv("LARDER_TLS"), System.getenv("LARDER_CERTIFICATE"));
    for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
      new Smoke(server, protocol, sockets).all();
    }
    System.exit(0);
  }

  /**
   * Trusts the authority in a folder of certificates, and shows the one of that name, if there is a name; without a folder there is
   * no TLS.
   */
  private static SSLSocketFactory secured(String folder, String name)
      throws IOException, GeneralSecurityException {
    if (folder == null) {
      return null;
    }
    KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
    trusted.load(null, null);
    try (InputStream authority = Files.newInputStream(Path.of(folder, "ca.crt"))) {
      CertificateFactory reader = CertificateFactory.getInstance("X.509");
      trusted.setCertificateEntry("ca", reader.generateCertificate(authority));
    }
    TrustManagerFactory trusts = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trusts.init(trusted);
    KeyManager[] shown = name == null ? new KeyManager[0] : own(folder, name);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(shown, trusts.getTrustManagers(), null);
    return context.getSocketFactory();
  }

  /** Shows the certificate of this name. */
  private static KeyManager[] own(String folder, String name) throws IOException, GeneralSecurityException {
    char[] password = System.getenv("LARDER_PASSWORD").toCharArray();
    KeyStore own = KeyStore.getInstance("PKCS12");
    try (InputStream pair = Files.newInputStream(Path.of(folder, name + ".p12"))) {
      own.load(pair, password);
    }
    KeyManagerFactory shows = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    shows.init(own, password);
    return shows.getKeyManagers();
  }

  private void all() {
    check("strings", this::strings);
    check("expiry", this::expiry);
    check("counters", this::counters);
    check("keys", this::keys);
    check("bitmaps", this::bitmaps);
    check("hashes", this::hashes);
    check("fields that expire", this::fields);
    check("lists", this::lists);
    check("blocking pops", this::blockingPops);
    check("sets", this::sets);
    check("sorted sets", this::sortedSets);
    check("streams", this::streams);
    check("consumer groups", this::groups);
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
    DefaultJedisClientConfig.Builder builder = DefaultJedisClientConfig.builder()
        .protocol(protocol)
        .clientName("larder-smoke")
        .database(database)
        .timeoutMillis(20000);
    if (sockets != null) {
      builder.ssl(true).sslSocketFactory(sockets);
      builder.user(System.getenv("LARDER_USER")).password(System.getenv("LARDER_PASSWORD"));
    }
    return builder.build();
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

  private void hashes(Jedis jedis) {
    want(2L, jedis.hset("h", Map.of("user", "ann", "count", "1")));
    want(0L, jedis.hset("h", "user", "bob"));
    want(42L, jedis.hincrBy("h", "count", 41));
    want(0.5, jedis.hincrByFloat("h", "part", 0.5));
    want(Arrays.asList("bob", null, "42"), jedis.hmget("h", "user", "missing", "count"));
    want(0L, jedis.hsetnx("h", "user", "eve"));
    want(true, jedis.hexists("h", "part"));
    want(3L, jedis.hstrlen("h", "user"));
    want(1L, jedis.hdel("h", "part", "missing"));
    want(Map.of("user", "bob", "count", "42"), jedis.hgetAll("h"));
    want(Set.of("user", "count"), jedis.hkeys("h"));
    want(2, jedis.hrandfieldWithValues("h", 5).size());
    want(2L, jedis.hlen("h"));
    want(null, jedis.hget("h", "missing"));
    Map<String, String> many = new HashMap<>();
    for (int i = 0; i < 1000; i++) {
      many.put("f" + i, "" + i);
    }
    want(1000L, jedis.hset("large", many));
    want(many, jedis.hgetAll("large"));
    Map<String, String> seen = new HashMap<>();
    ScanParams wanted = new ScanParams().match("f*").count(50);
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      var page = jedis.hscan("large", cursor, wanted);
      page.getResult().forEach(entry -> seen.put(entry.getKey(), entry.getValue()));
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    want(many, seen);
    try {
      jedis.lpush("h", "x");
      throw new AssertionError("LPUSH to a hash");
    } catch (JedisDataException error) {
      want("WRONGTYPE Operation against a key holding the wrong kind of value", error.getMessage());
    }
  }

  private void fields(Jedis jedis) throws InterruptedException {
    want(2L, jedis.hset("h", Map.of("a", "1", "b", "2")));
    want(List.of(1L, -2L), jedis.hexpire("h", 3600, "a", "missing"));
    want(List.of(-1L, -2L), jedis.httl("h", "b", "missing"));
    want(List.of(0L), jedis.hexpire("h", 60, ExpiryOption.GT, "a"));
    want(List.of(1L, -1L), jedis.hpersist("h", "a", "b"));
    want(List.of(1L), jedis.hexpireAt("h", 4000000000L, "a"));
    want(List.of(4000000000L), jedis.hexpireTime("h", "a"));
    want(List.of(1L), jedis.hpexpire("h", 30, "b"));
    while (jedis.hexists("h", "b")) {
      Thread.sleep(5);
    }
    want(Map.of("a", "1"), jedis.hgetAll("h"));
  }

  private void lists(Jedis jedis) {
    want(3L, jedis.rpush("l", "b", "c", "d"));
    want(4L, jedis.lpush("l", "a"));
    want(0L, jedis.lpushx("missing", "a"));
    want(List.of("a", "b", "c", "d"), jedis.lrange("l", 0, -1));
    want("d", jedis.lindex("l", -1));
    want("OK", jedis.lset("l", 1, "B"));
    want(5L, jedis.linsert("l", ListPosition.BEFORE, "c", "x"));
    want(3L, jedis.lpos("l", "c"));
    want(1L, jedis.lrem("l", 0, "x"));
    want("a", jedis.lmove("l", "done", ListDirection.LEFT, ListDirection.RIGHT));
    want("d", jedis.rpoplpush("l", "done"));
    want(List.of("d", "a"), jedis.lrange("done", 0, -1));
    want(List.of("B", "c"), jedis.lpop("l", 5));
    want(null, jedis.rpop("l"));
    want(3L, jedis.rpush("l", "3", "1", "2"));
    want(List.of("3", "2", "1"), jedis.sort("l", new SortingParams().desc()));
    want("OK", jedis.ltrim("l", 1, 1));
    want(1L, jedis.llen("l"));
  }

  /** Four workers take what is pushed, each of them on a connection of its own: each job is taken once. */
  private void blockingPops(Jedis jedis) throws InterruptedException {
    List<String> taken = Collections.synchronizedList(new ArrayList<>());
    List<Thread> workers = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      Thread worker = new Thread(() -> {
        try (Jedis own = connect(0)) {
          for (;;) {
            String job = own.brpop(0, "urgent", "jobs").get(1);
            if (job.equals("end")) {
              return;
            }
            taken.add(job);
          }
        }
      });
      worker.start();
      workers.add(worker);
    }
    Set<String> expected = new HashSet<>();
    for (int i = 0; i < 200; i++) {
      jedis.lpush(i % 2 == 0 ? "jobs" : "urgent", "" + i);
      expected.add("" + i);
    }
    for (int i = 0; i < 4; i++) {
      jedis.lpush("jobs", "end");
    }
    for (Thread worker : workers) {
      worker.join();
    }
    want(200, taken.size());
    want(expected, new HashSet<>(taken));
    want(0L, jedis.exists("jobs", "urgent"));
    want(null, jedis.blmpop(0.01, ListDirection.LEFT, "empty"));
    jedis.rpush("a", "1", "2");
    want("2", jedis.blmove("a", "b", ListDirection.RIGHT, ListDirection.LEFT, 1));
    want(List.of("b", "2"), jedis.blpop(1, "b", "a"));
    want(List.of("a", "1"), jedis.blpop(1, "b", "a"));
  }

  private void sets(Jedis jedis) {
    want(3L, jedis.sadd("s", "a", "b", "c", "a"));
    want(3L, jedis.sadd("t", "c", "2", "3"));
    want(true, jedis.sismember("s", "b"));
    want(List.of(true, false), jedis.smismember("s", "b", "x"));
    want(Set.of("a", "b", "c"), jedis.smembers("s"));
    want(Set.of("c"), jedis.sinter("s", "t"));
    want(Set.of("a", "b", "c", "2", "3"), jedis.sunion("s", "t"));
    want(Set.of("a", "b"), jedis.sdiff("s", "t"));
    want(1L, jedis.sintercard("s", "t"));
    want(5L, jedis.sunionstore("u", "s", "t"));
    want(1L, jedis.smove("s", "t", "a"));
    want(1L, jedis.srem("s", "b", "x"));
    want(List.of("c"), jedis.srandmember("s", 5));
    want("c", jedis.spop("s"));
    want(false, jedis.exists("s"));
    want(Set.of("a", "c", "2", "3"), jedis.spop("t", 9));
  }

  private void sortedSets(Jedis jedis) {
    want(3L, jedis.zadd("z", Map.of("a", 1.0, "b", 2.5, "c", 3.0)));
    want(0L, jedis.zadd("z", 9, "a", ZAddParams.zAddParams().nx()));
    want(0L, jedis.zadd("z", 0, "c", ZAddParams.zAddParams().gt().ch()));
    want(2.5, jedis.zscore("z", "b"));
    want(null, jedis.zscore("z", "x"));
    want(Arrays.asList(1.0, null), jedis.zmscore("z", "a", "x"));
    want(2L, jedis.zrank("z", "c"));
    want(0L, jedis.zrevrank("z", "c"));
    want(List.of(new Tuple("a", 1.0), new Tuple("b", 2.5), new Tuple("c", 3.0)), jedis.zrangeWithScores("z", 0, -1));
    want(List.of("b"), jedis.zrangeByScore("z", "(1", "+inf", 0, 1));
    want(List.of("c", "b"), jedis.zrevrange("z", 0, 1));
    want(1L, jedis.zcount("z", "2", "(3"));
    want(2.5, jedis.zincrby("z", 1.5, "a"));
    want(1L, jedis.zadd("y", 10, "b"));
    want(List.of(new Tuple("a", 5.0), new Tuple("c", 6.0), new Tuple("b", 15.0)),
        new ArrayList<>(jedis.zunionWithScores(new ZParams().weights(2, 1), "z", "y")));
    want(1L, jedis.zinterstore("i", new ZParams().aggregate(ZParams.Aggregate.MAX), "z", "y"));
    want(10.0, jedis.zscore("i", "b"));
    want(List.of("a", "c"), new ArrayList<>(jedis.zdiff("z", "y")));
    want(new Tuple("c", 3.0), jedis.zpopmax("z"));
    want(new Tuple("a", 2.5), jedis.bzpopmin(1, "missing", "z").getValue());
    want(1L, jedis.zremrangeByScore("z", "-inf", "+inf"));
    want(false, jedis.exists("z"));
    want(3L, jedis.zadd("l", Map.of("a", 0.0, "b", 0.0, "c", 0.0)));
    want(List.of("b", "c"), jedis.zrangeByLex("l", "[b", "+"));
    want(1L, jedis.zrem("l", "a", "x"));
  }

  private static StreamEntryID id(String text) {
    return new StreamEntryID(text);
  }

  private void streams(Jedis jedis) {
    want(id("1-1"), jedis.xadd("x", id("1-1"), Map.of("n", "1")));
    want(id("1-2"), jedis.xadd("x", id("1-2"), Map.of("n", "2")));
    want(id("2-5"), jedis.xadd("x", Map.of("n", "3"), XAddParams.xAddParams().id("2-5").maxLen(3)));
    try {
      jedis.xadd("x", id("1-1"), Map.of("n", "1"));
      throw new AssertionError("XADD of an old ID");
    } catch (JedisDataException error) {
      want("ERR The ID specified in XADD is equal or smaller than the target stream top item", error.getMessage());
    }
    List<String> all = new ArrayList<>();
    jedis.xrange("x", "-", "+").forEach(entry -> all.add(entry.getID() + " " + entry.getFields()));
    want(List.of("1-1 {n=1}", "1-2 {n=2}", "2-5 {n=3}"), all);
    want(id("2-5"), jedis.xrevrange("x", "+", "-", 1).get(0).getID());
    var read = jedis.xread(XReadParams.xReadParams().count(1), Map.of("x", id("1-1")));
    want("x", read.get(0).getKey());
    want(id("1-2"), read.get(0).getValue().get(0).getID());
    want(null, jedis.xread(XReadParams.xReadParams().block(10), Map.of("x", StreamEntryID.XREAD_NEW_ENTRY)));
    want(1L, jedis.xdel("x", id("1-2"), id("9-9")));
    want(1L, jedis.xtrim("x", 1, false));
    want(1L, jedis.xlen("x"));
  }

  /** Four consumers read what one adds, each entry by one of them; what one has not confirmed another claims. */
  private void groups(Jedis jedis) throws InterruptedException {
    want("OK", jedis.xgroupCreate("x", "g", StreamEntryID.XGROUP_LAST_ENTRY, true));
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    List<Thread> consumers = new ArrayList<>();
    Map<String, StreamEntryID> fresh = Map.of("x", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
    for (int i = 0; i < 4; i++) {
      String name = "c" + i;
      Thread consumer = new Thread(() -> {
        try (Jedis own = connect(0)) {
          for (;;) {
            var params = XReadGroupParams.xReadGroupParams().count(1).block(0);
            StreamEntry entry = own.xreadGroup("g", name, params, fresh).get(0).getValue().get(0);
            want(1L, own.xack("x", "g", entry.getID()));
            if (entry.getFields().get("n").equals("end")) {
              return;
            }
            seen.add(entry.getFields().get("n"));
          }
        }
      });
      consumer.start();
      consumers.add(consumer);
    }
    Set<String> expected = new HashSet<>();
    for (int i = 0; i < 100; i++) {
      jedis.xadd("x", StreamEntryID.NEW_ENTRY, Map.of("n", "" + i));
      expected.add("" + i);
    }
    for (int i = 0; i < 4; i++) {
      jedis.xadd("x", StreamEntryID.NEW_ENTRY, Map.of("n", "end"));
    }
    for (Thread consumer : consumers) {
      consumer.join();
    }
    want(100, seen.size());
    want(expected, new HashSet<>(seen));
    want(0L, jedis.xpending("x", "g").getTotal());
    StreamEntryID left = jedis.xadd("x", StreamEntryID.NEW_ENTRY, Map.of("n", "left"));
    var read = jedis.xreadGroup("g", "c0", XReadGroupParams.xReadGroupParams(), fresh);
    want(left, read.get(0).getValue().get(0).getID());
    var pending = jedis.xpending("x", "g");
    want(1L, pending.getTotal());
    want(Map.of("c0", 1L), pending.getConsumerMessageCount());
    var found = jedis.xautoclaim("x", "g", "c2", 0, id("0-0"), XAutoClaimParams.xAutoClaimParams());
    want(id("0-0"), found.getKey());
    want(Map.of("n", "left"), found.getValue().get(0).getFields());
    want(left, jedis.xclaim("x", "g", "c1", 0, XClaimParams.xClaimParams(), left).get(0).getID());
    want(0, jedis.xpending("x", "g", XPendingParams.xPendingParams("-", "+", 5).consumer("c0")).size());
    var info = jedis.xinfoGroups("x").get(0);
    want(4L, info.getConsumers());
    want(1L, info.getPending());
    want(left, info.getLastDeliveredId());
    want(105L, info.getGroupInfo().get("entries-read"));
    want(0L, info.getGroupInfo().get("lag"));
    want(1L, jedis.xack("x", "g", left));
    want(0L, jedis.xgroupDelConsumer("x", "g", "c1"));
    want(1L, jedis.xgroupDestroy("x", "g"));
    try {
      jedis.xreadGroup("g", "c0", XReadGroupParams.xReadGroupParams(), fresh);
      throw new AssertionError("XREADGROUP without its group");
    } catch (JedisDataException error) {
      want(true, error.getMessage().startsWith("NOGROUP "));
    }
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
