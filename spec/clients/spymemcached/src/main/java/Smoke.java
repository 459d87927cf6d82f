import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.FailureMode;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;
import net.spy.memcached.internal.OperationFuture;

/**
 * Talks to a cache server as programs that use spymemcached do, by the binary protocol, and says of each kind of call
 * whether it did what it should: a line "name: ok", or the error and exit 1. With a user and a password behind the address
 * it authenticates by SASL.
 */
public final class Smoke {
  private interface Check {
    void run(MemcachedClient client) throws Exception;
  }

  /** How long a reply may take, and a value may stay beyond its time: for hangs. */
  private static final long PATIENCE_MS = 60_000;

  private static final int THREADS = 4;
  private static final int ADDITIONS = 100;

  private final InetSocketAddress server;

  /** The user and the password, or none of both. */
  private final String[] login;

  private Smoke(InetSocketAddress server, String[] login) {
    this.server = server;
    this.login = login;
  }

  public static void main(String[] arguments) throws Exception {
    String[] place = arguments[0].split(":");
    InetSocketAddress server = new InetSocketAddress(place[0], Integer.parseInt(place[1]));
    new Smoke(server, Arrays.copyOfRange(arguments, 1, arguments.length)).all();
    System.exit(0);
  }

  private void all() throws IOException {
    MemcachedClient client = connect(builder());
    check("values", client, this::values);
    check("types", client, this::types);
    check("additions", client, this::additions);
    check("numbers", client, this::numbers);
    check("tokens", client, this::tokens);
    check("many keys", client, this::manyKeys);
    check("many calls at once", client, this::manyCalls);
    check("expiry", client, this::expiry);
    check("large values", client, this::largeValues);
    check("keys of any bytes", client, this::keys);
    check("threads", client, this::threads);
    check("figures", client, this::figures);
    if (login.length > 0) {
      check("mechanisms", client, this::mechanisms);
      check("wrong password", client, this::wrongPassword);
    }
    check("flush", client, this::flush);
    client.shutdown();
  }

  private void check(String name, MemcachedClient client, Check check) {
    try {
      check.run(client);
      System.out.println(name + ": ok");
    } catch (Exception | AssertionError error) {
      System.out.println(name + ": " + error);
      error.printStackTrace(System.out);
      System.exit(1);
    }
  }

  private ConnectionFactoryBuilder builder() {
    ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
        .setProtocol(ConnectionFactoryBuilder.Protocol.BINARY)
        .setOpTimeout(PATIENCE_MS)
        .setAuthWaitTime(PATIENCE_MS)
        .setDaemon(true);
    if (login.length > 0) {
      builder.setAuthDescriptor(descriptor(login[1]));
    }
    return builder;
  }

  private AuthDescriptor descriptor(String password) {
    return new AuthDescriptor(new String[] {"PLAIN"}, new PlainCallbackHandler(login[0], password));
  }

  private MemcachedClient connect(ConnectionFactoryBuilder builder) throws IOException {
    return new MemcachedClient(builder.build(), List.of(server));
  }

  private static void want(Object expected, Object have) {
    if (!Objects.equals(expected, have)) {
      throw new AssertionError("expected " + expected + ", and there is " + have);
    }
  }

  /** Waits until a key has no value any more. */
  private static void gone(MemcachedClient client, String key) throws InterruptedException {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
    while (client.get(key) != null) {
      if (System.nanoTime() > until) {
        throw new AssertionError(key + " has not expired");
      }
      Thread.sleep(50);
    }
  }

  private void values(MemcachedClient client) throws Exception {
    want(true, client.set("k", 0, "v").get());
    want("v", client.get("k"));
    want(null, client.get("none"));
    want(false, client.add("k", 0, "x").get());
    want(true, client.add("n", 0, "x").get());
    want(true, client.replace("k", 0, "y").get());
    want(false, client.replace("none", 0, "y").get());
    want("y", client.get("k"));
    want(true, client.delete("k").get());
    want(false, client.delete("k").get());
    want(null, client.get("k"));
  }

  /** The client keeps in the flags of an item of what type its value is. */
  private void types(MemcachedClient client) throws Exception {
    List<Object> all = List.of(
        "", "ü", 7, -7L, 7L << 40, true, false, 0.5, 1.5f, new Date(1_700_000_000_000L), (byte) 7,
        new ArrayList<>(List.of("a", "b")));
    for (Object one : all) {
      want(true, client.set("typed", 0, one).get());
      want(one, client.get("typed"));
    }
    byte[] bytes = {0, 13, 10, -128, 127};
    want(true, client.set("typed", 0, bytes).get());
    want(true, Arrays.equals(bytes, (byte[]) client.get("typed")));
  }

  private void additions(MemcachedClient client) throws Exception {
    want(true, client.set("s", 0, "b").get());
    want(true, client.append("s", "c").get());
    want(true, client.prepend("s", "a").get());
    want("abc", client.get("s"));
    want(false, client.append("none", "c").get());
    want(null, client.get("none"));
  }

  private void numbers(MemcachedClient client) throws Exception {
    want(-1L, client.incr("number", 3));
    want(40L, client.incr("number", 3, 40));
    want(43L, client.incr("number", 3, 40));
    want(1_000_000_000_043L, client.incr("number", 1_000_000_000_000L));
    want(42L, client.decr("number", 1_000_000_000_001L));
    want(0L, client.decr("number", 43));
    want(true, client.set("digits", 0, "99").get());
    want(100L, client.incr("digits", 1));
    want("100", client.get("digits"));
  }

  private void tokens(MemcachedClient client) throws Exception {
    OperationFuture<Boolean> stored = client.set("t", 0, "1");
    want(true, stored.get());
    CASValue<Object> first = client.gets("t");
    want("1", first.getValue());
    want(stored.getCas(), first.getCas());
    want(CASResponse.OK, client.cas("t", first.getCas(), "2"));
    want(CASResponse.EXISTS, client.cas("t", first.getCas(), "3"));
    want(CASResponse.NOT_FOUND, client.cas("none", first.getCas(), "3"));
    want("2", client.get("t"));
    want(false, client.delete("t", first.getCas()).get());
    want(true, client.delete("t", client.gets("t").getCas()).get());
    want(null, client.gets("t"));
  }

  private void manyKeys(MemcachedClient client) throws Exception {
    Map<String, Object> all = new HashMap<>();
    for (int n = 0; n < 300; n++) {
      all.put("many" + n, n);
      want(true, client.set("many" + n, 0, n).get());
    }
    List<String> keys = new ArrayList<>();
    for (int n = 0; n < 400; n++) {
      keys.add("many" + n);
    }
    want(all, client.getBulk(keys));
    want(Map.of(), client.getBulk("none", "neither"));
  }

  /** Requests of many calls are under way on one connection, and each has its own reply. */
  private void manyCalls(MemcachedClient client) throws Exception {
    List<OperationFuture<Boolean>> stored = new ArrayList<>();
    for (int n = 0; n < 1000; n++) {
      stored.add(client.set("call" + n, 0, "value " + n));
    }
    for (OperationFuture<Boolean> one : stored) {
      want(true, one.get());
    }
    List<Future<Object>> read = new ArrayList<>();
    for (int n = 0; n < 1500; n++) {
      read.add(client.asyncGet("call" + n));
    }
    for (int n = 0; n < 1500; n++) {
      want(n < 1000 ? "value " + n : null, read.get(n).get());
    }
  }

  private void expiry(MemcachedClient client) throws Exception {
    want(true, client.set("soon", 1, "v").get());
    gone(client, "soon");
    want(true, client.set("touched", 0, "v").get());
    want(true, client.touch("touched", 1).get());
    gone(client, "touched");
    want(false, client.touch("touched", 100).get());
    want(true, client.set("read", 0, "v").get());
    want("v", client.getAndTouch("read", 1).getValue());
    gone(client, "read");
    want(null, client.getAndTouch("read", 100));
    want(5L, client.incr("counted", 1, 5, 1));
    gone(client, "counted");
  }

  private void largeValues(MemcachedClient client) throws Exception {
    byte[] large = new byte[900_000];
    // Bytes that the client cannot make fewer.
    new Random(7).nextBytes(large);
    want(true, client.set("large", 0, large).get());
    want(true, Arrays.equals(large, (byte[]) client.get("large")));
    String text = "text ".repeat(100_000);
    want(true, client.set("compressed", 0, text).get());
    want(text, client.get("compressed"));
  }

  private void keys(MemcachedClient client) throws Exception {
    for (String key : List.of("k".repeat(250), "two words", "ü\r\n")) {
      want(true, client.set(key, 0, key).get());
      want(key, client.get(key));
      want(Map.of(key, key), client.getBulk(key));
      want(true, client.delete(key).get());
    }
  }

  private void threads(MemcachedClient client) throws Exception {
    want(true, client.set("sum", 0, 0).get());
    AtomicReference<Throwable> failed = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < THREADS; i++) {
      Thread thread = new Thread(() -> {
        try {
          MemcachedClient own = connect(builder());
          for (int n = 0; n < ADDITIONS; n++) {
            CASValue<Object> have;
            do {
              have = own.gets("sum");
            } while (own.cas("sum", have.getCas(), (Integer) have.getValue() + 1) != CASResponse.OK);
          }
          own.shutdown();
        } catch (IOException | RuntimeException error) {
          failed.set(error);
        }
      });
      thread.start();
      threads.add(thread);
    }
    for (Thread thread : threads) {
      thread.join();
    }
    want(null, failed.get());
    want(THREADS * ADDITIONS, client.get("sum"));
  }

  private void figures(MemcachedClient client) {
    Map<String, String> all = client.getStats().get(server);
    want(true, Long.parseLong(all.get("curr_items")) > 0);
    want(true, client.getStats("settings").get(server).containsKey("maxbytes"));
    want(all.get("version"), client.getVersions().get(server));
  }

  private void mechanisms(MemcachedClient client) {
    want(true, client.listSaslMechanisms().contains("PLAIN"));
  }

  private void wrongPassword(MemcachedClient client) throws Exception {
    // A client tries again and again: a call that waits for it is cancelled after a second.
    MemcachedClient other = connect(builder()
        .setAuthDescriptor(descriptor("wrong"))
        .setAuthWaitTime(1000)
        .setFailureMode(FailureMode.Cancel));
    try {
      want(false, other.set("forbidden", 0, "v").get(5, TimeUnit.SECONDS));
    } catch (ExecutionException | TimeoutException | RuntimeException refused) {
      // The usual outcome: the call is cancelled.
    }
    other.shutdown();
    want(null, client.get("forbidden"));
  }

  private void flush(MemcachedClient client) throws Exception {
    want(true, client.set("k", 0, "v").get());
    want(true, client.flush().get());
    want(null, client.get("k"));
  }
}
