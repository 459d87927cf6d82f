import io.lettuce.core.AclCategory;
import io.lettuce.core.AclSetuserArgs;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.reactive.RedisReactiveCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import reactor.core.publisher.Flux;

/** Checks of ways to call the server, of what connections tell each other, and of what their users may do. */
final class Calls extends Checks {
  private static final String NOT_A_NUMBER = "ERR value is not an integer or out of range";

  Calls(Server server) {
    super(server);
  }

  /** Two thousand requests are sent together. */
  void pipeline(RedisCommands<String, String> redis) throws Exception {
    try (StatefulRedisConnection<String, String> connection = server.connect(0)) {
      RedisAsyncCommands<String, String> async = connection.async();
      connection.setAutoFlushCommands(false);
      List<RedisFuture<String>> sets = new ArrayList<>();
      List<RedisFuture<String>> gets = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        sets.add(async.set("p" + i, "" + i));
        gets.add(async.get("p" + i));
      }
      connection.flushCommands();
      for (int i = 0; i < 1000; i++) {
        want("OK", sets.get(i).get());
        want("" + i, gets.get(i).get());
      }
    }
    want(1000L, redis.dbsize());
  }

  /** Calls are under way at once, their replies come in order, and an error is of its own call alone. */
  void asynchronous(RedisCommands<String, String> redis) throws Exception {
    try (StatefulRedisConnection<String, String> connection = server.connect(0)) {
      RedisAsyncCommands<String, String> async = connection.async();
      List<RedisFuture<Long>> counts = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        counts.add(async.incr("n"));
      }
      for (int i = 0; i < 1000; i++) {
        want(i + 1L, counts.get(i).get());
      }
      RedisFuture<String> set = async.set("text", "x");
      RedisFuture<Long> failing = async.incr("text");
      RedisFuture<String> get = async.get("text");
      want("OK", set.get());
      want("x", get.get());
      try {
        throw new AssertionError("INCR of a text: " + failing.get());
      } catch (ExecutionException error) {
        want(NOT_A_NUMBER, error.getCause().getMessage());
      }
    }
    want("1000", redis.get("n"));
  }

  @SuppressWarnings("deprecation")
  void reactive(RedisCommands<String, String> redis) {
    try (StatefulRedisConnection<String, String> connection = server.connect(0)) {
      RedisReactiveCommands<String, String> reactive = connection.reactive();
      Long highest = Flux.range(0, 1000).flatMap(i -> reactive.incr("n")).reduce(0L, Long::max).block();
      want(1000L, highest);
      want(null, reactive.get("missing").block());
      want(3L, reactive.rpush("l", "a", "b", "c").block());
      want(List.of("a", "b", "c"), reactive.lrange("l", 0, -1).collectList().block());
    }
    want("1000", redis.get("n"));
  }

  /** Eight threads share a connection, and each of them gets the replies to its own requests. */
  void shared(RedisCommands<String, String> redis) throws Exception {
    List<Future<Void>> threads = started(8, thread -> {
      for (int n = 0; n < 200; n++) {
        redis.incr("shared");
        want("OK", redis.set("of " + thread, "" + n));
        want("" + n, redis.get("of " + thread));
      }
    });
    joined(threads);
    want("1600", redis.get("shared"));
  }

  void transaction(RedisCommands<String, String> redis) {
    want("OK", redis.multi());
    redis.set("t", "41");
    redis.incr("t");
    TransactionResult done = redis.exec();
    want(false, done.wasDiscarded());
    want(List.of("OK", 42L), done.stream().toList());
    want("OK", redis.multi());
    redis.set("t", "0");
    want("OK", redis.discard());
    want("42", redis.get("t"));
    // One that fails while it runs does not undo the others.
    want("OK", redis.multi());
    redis.set("t", "text");
    redis.incr("t");
    redis.set("u", "1");
    List<Object> replies = redis.exec().stream().toList();
    want(3, replies.size());
    want("OK", replies.get(0));
    want(NOT_A_NUMBER, ((RedisCommandExecutionException) replies.get(1)).getMessage());
    want("1", redis.get("u"));
  }

  void conflict(RedisCommands<String, String> redis) {
    try (StatefulRedisConnection<String, String> connection = server.connect(0)) {
      RedisCommands<String, String> other = connection.sync();
      want("OK", redis.set("w", "1"));
      want("OK", redis.watch("w"));
      want("OK", other.set("w", "2"));
      want("OK", redis.multi());
      redis.set("w", "3");
      want(true, redis.exec().wasDiscarded());
      want("2", redis.get("w"));
      want("OK", redis.watch("w"));
      want("OK", redis.unwatch());
      want("OK", other.set("w", "4"));
      want("OK", redis.multi());
      redis.set("w", "5");
      want(List.of("OK"), redis.exec().stream().toList());
    }
  }

  void scripts(RedisCommands<String, String> redis) throws Exception {
    String[] keys = {"n"};
    String add = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
    Long sum = redis.eval(add, ScriptOutputType.INTEGER, keys, "5");
    want(5L, sum);
    String digest = redis.scriptLoad(add);
    want(redis.digest(add), digest);
    want(List.of(true, false), redis.scriptExists(digest, "0".repeat(40)));
    sum = redis.evalsha(digest, ScriptOutputType.INTEGER, keys, "37");
    want(42L, sum);
    List<Object> list = redis.eval("return {KEYS[1], ARGV[1], 3}", ScriptOutputType.MULTI, keys, "v");
    want(List.of("n", "v", 3L), list);
    String text = redis.eval("return redis.call('GET', KEYS[1])", ScriptOutputType.VALUE, keys);
    want("42", text);
    String told = "return redis.error_reply('BAD thing')";
    refused("BAD thing", () -> redis.eval(told, ScriptOutputType.STATUS, keys));
    want("OK", redis.scriptFlush());
    refused(
        "NOSCRIPT No matching script. Please use EVAL.",
        () -> redis.evalsha(digest, ScriptOutputType.INTEGER, keys, "1"));
  }

  /** What a subscriber receives: two confirmations, messages on a channel and by a pattern, two ends. */
  private static final class Listener extends RedisPubSubAdapter<String, String> {
    final List<String> plain = Collections.synchronizedList(new ArrayList<>());
    final List<String> matched = Collections.synchronizedList(new ArrayList<>());
    final CountDownLatch begun = new CountDownLatch(2);
    final CountDownLatch messages = new CountDownLatch(200);
    final CountDownLatch ended = new CountDownLatch(2);

    @Override
    public void subscribed(String channel, long count) {
      begun.countDown();
    }

    @Override
    public void psubscribed(String pattern, long count) {
      begun.countDown();
    }

    @Override
    public void message(String channel, String message) {
      plain.add(message);
      messages.countDown();
    }

    @Override
    public void message(String pattern, String channel, String message) {
      matched.add(message);
      messages.countDown();
    }

    @Override
    public void unsubscribed(String channel, long count) {
      ended.countDown();
    }

    @Override
    public void punsubscribed(String pattern, long count) {
      ended.countDown();
    }
  }

  void subscriptions(RedisCommands<String, String> redis) throws InterruptedException {
    want("OK", redis.set("kept", "value"));
    Listener listener = new Listener();
    try (StatefulRedisPubSubConnection<String, String> subscriber = server.subscriber()) {
      subscriber.addListener(listener);
      subscriber.sync().subscribe("news");
      subscriber.sync().psubscribe("n*");
      listener.begun.await();
      want(List.of("news"), redis.pubsubChannels("*"));
      want(Map.of("news", 1L), redis.pubsubNumsub("news"));
      want(1L, redis.pubsubNumpat());
      List<String> expected = new ArrayList<>();
      for (int i = 0; i < 100; i++) {
        want(2L, redis.publish("news", "" + i));
        expected.add("" + i);
        // Over RESP3 a subscriber may send any command, and its replies come between the messages.
        if (server.protocol == ProtocolVersion.RESP3) {
          want("value", subscriber.sync().get("kept"));
        }
      }
      listener.messages.await();
      want(expected, new ArrayList<>(listener.plain));
      want(expected, new ArrayList<>(listener.matched));
      subscriber.sync().unsubscribe("news");
      subscriber.sync().punsubscribe("n*");
      listener.ended.await();
      want(0L, redis.publish("news", "x"));
      want("value", subscriber.sync().get("kept"));
    }
  }

  /** A user may do what its rules grant and nothing else, and its password is good until it is deleted. */
  void rules(RedisCommands<String, String> redis) throws Exception {
    want(server.user == null ? "default" : server.user, redis.aclWhoami());
    AclSetuserArgs rules = AclSetuserArgs.Builder.on()
        .addPassword("let-me-in")
        .keyPattern("mine:*")
        .channelPattern("mine.*")
        .addCategory(AclCategory.STRING)
        .addCommand(CommandType.PUBLISH)
        .removeCommand(CommandType.APPEND);
    want("OK", redis.aclSetuser("reader", rules));
    want("OK", redis.set("other", "1"));
    try (StatefulRedisConnection<String, String> connection = server.connectAs("reader", "let-me-in")) {
      RedisCommands<String, String> reader = connection.sync();
      want("OK", reader.set("mine:a", "1"));
      want("1", reader.get("mine:a"));
      want(0L, reader.publish("mine.news", "x"));
      refused("NOPERM No permissions to access a key", () -> reader.get("other"));
      refused("NOPERM No permissions to access a key", () -> reader.mget("mine:a", "other"));
      refused("NOPERM No permissions to access a channel", () -> reader.publish("news", "x"));
      refused(
          "NOPERM User reader has no permissions to run the 'append' command",
          () -> reader.append("mine:a", "2"));
      refused(
          "NOPERM User reader has no permissions to run the 'flushall' command",
          () -> reader.flushall());
    }
    want("1", redis.get("mine:a"));
    String wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    want(wrong, whyNotConnected("reader", "let-me-out"));
    want(1L, redis.aclDeluser("reader"));
    want(wrong, whyNotConnected("reader", "let-me-in"));
  }

  /** The error for which a user is not let in. */
  private String whyNotConnected(String user, String password) {
    try (StatefulRedisConnection<String, String> connection = server.connectAs(user, password)) {
      throw new AssertionError("connected as " + user);
    } catch (RedisConnectionException error) {
      Throwable cause = error;
      while (cause.getCause() != null) {
        cause = cause.getCause();
      }
      return cause.getMessage();
    }
  }

  void server(RedisCommands<String, String> redis) {
    want("PONG", redis.ping());
    want("hello", redis.echo("hello"));
    want(Server.CONNECTION_NAME, redis.clientGetname());
    want(true, redis.info("server").contains("redis_mode:standalone"));
    want(true, redis.configGet("maxmemory").containsKey("maxmemory"));
    want(2, redis.time().size());
    // The connection is of the version, the user and the library that it should be of.
    String own = "id=" + redis.clientId() + " ";
    String line = redis.clientList().lines().filter(each -> each.startsWith(own)).findFirst().orElse("");
    String version = server.protocol == ProtocolVersion.RESP3 ? "3" : "2";
    String user = server.user == null ? "default" : server.user;
    want(true, line.contains(" resp=" + version + " "));
    want(true, line.contains(" user=" + user + " "));
    want(true, line.contains(" lib-name=Lettuce"));
  }
}
