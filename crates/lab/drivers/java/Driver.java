import com.sun.management.OperatingSystemMXBean;
import com.sun.management.ThreadMXBean;
import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import net.rubyeye.xmemcached.XMemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.transcoders.CachedData;
import net.rubyeye.xmemcached.transcoders.CompressionMode;
import net.rubyeye.xmemcached.transcoders.Transcoder;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.OperationTimeoutException;

/**
 * A driver of the lab: Java clients as a process that is told what to do by lines, as crates/lab/src/driver.rs says.
 *
 * Callers are threads that share a client, as both clients want it. Values are compared byte by byte with those that are
 * due. The objects that the lab sends are flat, so that a name is found by looking for it.
 */
public final class Driver {
  static final int SET = 0, GET = 1, MANY_KEYS = 100, BUCKETS = 4096;
  /** Calls of a caller before any is counted: the first are interpreted. */
  static final int WARM = 400;

  /** A client as one caller sees it. */
  interface Session extends Closeable {
    /** Null if there is none. */
    byte[] get(String key) throws Exception;

    boolean set(String key, byte[] value) throws Exception;

    Map<String, byte[]> many(List<String> keys) throws Exception;
  }

  /** What the lab wants. */
  record Job(String line) {
    long number(String name) {
      Matcher found = Pattern.compile("\"" + name + "\":(\\d+|true|false)").matcher(line);
      if (!found.find()) return 0;
      String text = found.group(1);
      return text.equals("true") ? 1 : text.equals("false") ? 0 : Long.parseLong(text);
    }

    String text(String name) {
      Matcher found = Pattern.compile("\"" + name + "\":\"([^\"]*)\"").matcher(line);
      return found.find() ? found.group(1) : "";
    }

    String client() {
      return text("client");
    }

    InetSocketAddress address() {
      return new InetSocketAddress(text("host"), (int) number("port"));
    }
  }

  // ---- spymemcached: one connection for all ----

  static Session[] spymemcached(Job job, int callers) throws IOException {
    ConnectionFactoryBuilder how = new ConnectionFactoryBuilder();
    how.setOpTimeout(job.number("timeout_ms"));
    how.setUseNagleAlgorithm(false);
    how.setTranscoder(new net.spy.memcached.transcoders.Transcoder<Object>() {
      public boolean asyncDecode(net.spy.memcached.CachedData data) {
        return false;
      }

      public net.spy.memcached.CachedData encode(Object value) {
        return new net.spy.memcached.CachedData(0, (byte[]) value, getMaxSize());
      }

      public Object decode(net.spy.memcached.CachedData data) {
        return data.getData();
      }

      public int getMaxSize() {
        return 1 << 20;
      }
    });
    MemcachedClient client = new MemcachedClient(how.build(), List.of(job.address()));
    long timeout = job.number("timeout_ms");
    Session shared = new Session() {
      public byte[] get(String key) {
        return (byte[]) client.get(key);
      }

      public boolean set(String key, byte[] value) throws Exception {
        return client.set(key, 0, value).get(timeout, TimeUnit.MILLISECONDS);
      }

      public Map<String, byte[]> many(List<String> keys) {
        Map<String, byte[]> found = new HashMap<>();
        client.getBulk(keys).forEach((key, value) -> found.put(key, (byte[]) value));
        return found;
      }

      public void close() {
        client.shutdown();
      }
    };
    return shared(shared, callers);
  }

  // ---- xmemcached: one connection for all ----

  static Session[] xmemcached(Job job, int callers) throws IOException {
    XMemcachedClientBuilder how = new XMemcachedClientBuilder(List.of(job.address()));
    how.setConnectTimeout(job.number("timeout_ms"));
    XMemcachedClient client = (XMemcachedClient) how.build();
    client.setOpTimeout(job.number("timeout_ms"));
    client.setEnableHeartBeat(false);
    Transcoder<byte[]> bytes = new Transcoder<>() {
      public CachedData encode(byte[] value) {
        return new CachedData(0, value);
      }

      public byte[] decode(CachedData data) {
        return data.getData();
      }

      public void setPrimitiveAsString(boolean on) {}

      public void setPackZeros(boolean on) {}

      public void setCompressionThreshold(int bytes) {}

      public boolean isPrimitiveAsString() {
        return false;
      }

      public boolean isPackZeros() {
        return false;
      }

      public void setCompressionMode(CompressionMode mode) {}
    };
    Session shared = new Session() {
      public byte[] get(String key) throws Exception {
        return client.get(key, bytes);
      }

      public boolean set(String key, byte[] value) throws Exception {
        return client.set(key, 0, value, bytes);
      }

      public Map<String, byte[]> many(List<String> keys) throws Exception {
        Map<String, byte[]> found = client.get(keys, bytes);
        return found == null ? Map.of() : found;
      }

      public void close() throws IOException {
        client.shutdown();
      }
    };
    return shared(shared, callers);
  }

  static Session[] shared(Session session, int callers) {
    Session[] all = new Session[callers];
    Arrays.fill(all, session);
    return all;
  }

  // ---- by hand: a connection for each caller ----

  static final class ByHand implements Session {
    final Job job;
    Socket socket;
    InputStream in;
    OutputStream out;

    ByHand(Job job) {
      this.job = job;
    }

    void send(byte[] request) throws IOException {
      if (socket == null) {
        int timeout = (int) job.number("timeout_ms");
        Socket fresh = new Socket();
        fresh.setTcpNoDelay(true);
        fresh.setSoTimeout(timeout);
        fresh.connect(job.address(), timeout);
        in = new BufferedInputStream(fresh.getInputStream(), 65536);
        out = fresh.getOutputStream();
        socket = fresh;
      }
      out.write(request);
    }

    String line() throws IOException {
      StringBuilder text = new StringBuilder();
      for (int letter = in.read(); letter != '\n'; letter = in.read()) {
        if (letter < 0) throw new IOException("the server closed the connection");
        if (letter != '\r') text.append((char) letter);
      }
      return text.toString();
    }

    Map<String, byte[]> ask(String keys, Set<String> asked) throws IOException {
      try {
        send(("get " + keys + "\r\n").getBytes(StandardCharsets.US_ASCII));
        Map<String, byte[]> found = new HashMap<>();
        for (String text = line(); !text.equals("END"); text = line()) {
          String[] words = text.split(" ");
          if (words.length != 4 || !words[0].equals("VALUE") || !asked.contains(words[1]))
            throw new IOException("a reply that was not expected");
          byte[] value = in.readNBytes(Integer.parseInt(words[3]));
          in.skipNBytes(2);
          found.put(words[1], value);
        }
        return found;
      } catch (IOException | RuntimeException error) {
        close();
        throw error;
      }
    }

    public byte[] get(String key) throws IOException {
      return ask(key, Set.of(key)).get(key);
    }

    public boolean set(String key, byte[] value) throws IOException {
      try {
        ByteArrayOutputStream request = new ByteArrayOutputStream(value.length + 64);
        request.write(("set " + key + " 0 0 " + value.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
        request.write(value);
        request.write('\r');
        request.write('\n');
        send(request.toByteArray());
        return line().equals("STORED");
      } catch (IOException error) {
        close();
        throw error;
      }
    }

    public Map<String, byte[]> many(List<String> keys) throws IOException {
      return ask(String.join(" ", keys), new HashSet<>(keys));
    }

    public void close() {
      try {
        if (socket != null) socket.close();
      } catch (IOException error) {
        // It is closed all the same.
      }
      socket = null;
    }
  }

  static Session[] open(Job job, int callers) throws IOException {
    switch (job.client()) {
      case "spymemcached":
        return spymemcached(job, callers);
      case "xmemcached":
        return xmemcached(job, callers);
      case "by hand":
        Session[] all = new Session[callers];
        Arrays.setAll(all, at -> new ByHand(job));
        return all;
      default:
        throw new IOException("there is no client " + job.client());
    }
  }

  // ---- values, as crates/lab/src/value.rs has them ----

  static byte[] value(long key, long version, int count) {
    if (count < 24) version = 0;
    long x = key * 0xD6E8FEB86659FD93L ^ Long.rotateLeft(version, 32) ^ (long) count << 17;
    x = (x ^ x >>> 30) * 0xBF58476D1CE4E5B9L;
    x = (x ^ x >>> 27) * 0x94D049BB133111EBL;
    x ^= x >>> 31;
    ByteBuffer out = ByteBuffer.allocate(count + 8).order(ByteOrder.LITTLE_ENDIAN);
    if (count >= 24) out.putLong(key).putLong(version);
    for (; out.position() < count; x += 0x9E3779B97F4A7C15L) out.putLong(x);
    return Arrays.copyOf(out.array(), count);
  }

  /** Exact below 64 ns, then 64 buckets for each power of two. */
  static int bucket(long ns) {
    if (ns < 64) return (int) Math.max(ns, 0);
    int power = 63 - Long.numberOfLeadingZeros(ns);
    return Math.min((power - 5) * 64 + (int) (ns >> power - 6 & 63), BUCKETS - 1);
  }

  // ---- callers ----

  static final class Caller {
    final Job job;
    final Session session;
    final List<String> names;
    final Map<String, byte[]> values;
    final int op, keys;
    final long[] histogram = new long[BUCKETS];
    int at;
    long calls, ok, misses, told, timeouts, wrong, firstErrorAt, toldNs, lastErrorNs;
    String error = "";

    Caller(Job job, Session session, List<String> names, Map<String, byte[]> values, int number) {
      this.job = job;
      this.session = session;
      this.names = names;
      this.values = values;
      op = (int) job.number("op");
      keys = values.size();
      at = number * 37 % keys;
    }

    void reset() {
      calls = ok = misses = told = timeouts = wrong = firstErrorAt = toldNs = lastErrorNs = 0;
      error = "";
      Arrays.fill(histogram, 0);
    }

    void call() {
      int from = at;
      String key = names.get(from);
      at = (at + 1) % keys;
      calls++;
      try {
        if (op == SET) {
          if (!session.set(key, values.get(key))) throw new IOException("it is not stored");
        } else if (op == GET) {
          byte[] got = session.get(key);
          if (got == null) {
            misses++;
            return;
          }
          if (!Arrays.equals(got, values.get(key))) wrong++;
        } else {
          Map<String, byte[]> found = session.many(names.subList(from, from + MANY_KEYS));
          misses += MANY_KEYS - found.size();
          for (Map.Entry<String, byte[]> one : found.entrySet())
            if (!Arrays.equals(one.getValue(), values.get(one.getKey()))) wrong++;
        }
        ok++;
      } catch (Exception failed) {
        if (failed instanceof TimeoutException
            || failed instanceof SocketTimeoutException
            || failed instanceof OperationTimeoutException) timeouts++;
        if (told++ == 0) {
          firstErrorAt = calls;
          error = String.valueOf(failed).replaceAll("[^ -~]|[\"\\\\]", " ");
        }
      }
    }

    long timed(long began, long last, long pause) {
      long before = told;
      call();
      long now = System.nanoTime();
      histogram[bucket(now - last)]++;
      if (told != before) {
        toldNs += now - last;
        lastErrorNs = now - began;
        if (pause > 0) {
          sleep(pause);
          now = System.nanoTime();
        }
      }
      return now;
    }

    void steady(long began) {
      long most = job.number("ops_max") / Math.max(job.number("callers"), 1);
      long limit = job.number("time_ns"), pause = job.number("pause_ns");
      for (long last = began; calls < most && (limit == 0 || last - began < limit); ) last = timed(began, last, pause);
    }
  }

  static void sleep(long ns) {
    try {
      TimeUnit.NANOSECONDS.sleep(ns);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
  static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  static void await(CyclicBarrier barrier) {
    try {
      barrier.await();
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  static void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  static void run(Job job, BufferedReader lines) throws Exception {
    int count = (int) Math.max(job.number("callers"), 1), keys = (int) job.number("keys");
    List<String> names = new ArrayList<>();
    Map<String, byte[]> values = new HashMap<>();
    for (int at = 0; at < keys + MANY_KEYS; at++) {
      long id = job.number("first") + at % keys;
      names.add(String.format("key:%012d", id));
      if (at < keys) values.put(names.get(at), value(id, job.number("version"), (int) job.number("value_bytes")));
    }
    Session[] sessions = open(job, count);
    Caller[] callers = new Caller[count];
    for (int at = 0; at < count; at++) callers[at] = new Caller(job, sessions[at], names, values, at);
    long bursts = job.number("bursts");
    boolean warm = job.number("cold") == 0 && bursts == 0;
    int rounds = job.number("ops_max") == 0 ? 1 : Math.max(WARM / count, 8);
    CyclicBarrier gate = new CyclicBarrier(count + 1), together = new CyclicBarrier(count);
    Thread[] threads = new Thread[count == 1 ? 0 : count];
    for (int at = 0; at < threads.length; at++) {
      Caller caller = callers[at];
      threads[at] = new Thread(() -> {
        for (int n = 0; warm && n < rounds; n++) caller.call();
        caller.reset();
        await(gate);
        await(gate);
        long began = System.nanoTime();
        if (bursts == 0) caller.steady(began);
        for (long burst = 0; burst < bursts; burst++) {
          await(together);
          caller.timed(began, System.nanoTime(), 0);
          await(together);
          sleep(job.number("pause_ns"));
        }
        await(gate);
      });
      threads[at].setDaemon(true);
      threads[at].start();
    }
    if (threads.length == 0) {
      for (int n = 0; warm && n < rounds; n++) callers[0].call();
      callers[0].reset();
    } else {
      await(gate);
    }
    say("{\"ready\":1}");
    if (lines.readLine() == null) return;
    long own = Thread.currentThread().getId();
    long bytes = THREADS.getThreadAllocatedBytes(own);
    long cpu = SYSTEM.getProcessCpuTime(), began = System.nanoTime();
    if (threads.length == 0) {
      callers[0].steady(began);
    } else {
      await(gate);
      await(gate);
    }
    long took = System.nanoTime() - began;
    cpu = SYSTEM.getProcessCpuTime() - cpu;
    bytes = THREADS.getThreadAllocatedBytes(own) - bytes;
    long calls = 0, ok = 0, misses = 0, told = 0, timeouts = 0, wrong = 0, first = 0, toldNs = 0, last = 0;
    String error = "";
    long[] histogram = new long[BUCKETS];
    for (Caller caller : callers) {
      calls += caller.calls;
      ok += caller.ok;
      misses += caller.misses;
      if (told == 0 && caller.told > 0) {
        first = caller.firstErrorAt;
        error = caller.error;
      }
      told += caller.told;
      timeouts += caller.timeouts;
      wrong += caller.wrong;
      toldNs += caller.toldNs;
      last = Math.max(last, caller.lastErrorNs);
      for (int at = 0; at < BUCKETS; at++) histogram[at] += caller.histogram[at];
    }
    StringBuilder pairs = new StringBuilder();
    for (int at = 0; at < BUCKETS; at++)
      if (histogram[at] > 0) pairs.append(pairs.length() == 0 ? "" : ",").append("[" + at + "," + histogram[at] + "]");
    say(String.format(
        "{\"done\":1,\"calls\":%d,\"ok\":%d,\"misses\":%d,\"told\":%d,\"timeouts\":%d,\"wrong\":%d,\"first_error_at\":%d,"
            + "\"told_ns\":%d,\"last_error_ns\":%d,\"error\":\"%s\",\"return_ns\":%d,\"barrier_ns\":%d,\"cpu_ns\":%d,"
            + "\"allocated_bytes\":%d,\"histogram\":[%s]}",
        calls, ok, misses, told, timeouts, wrong, first, toldNs, last, error, took, took, cpu,
        threads.length == 0 ? bytes : 0, pairs));
    for (Thread thread : threads) thread.join();
    for (Session session : new HashSet<>(Arrays.asList(sessions))) session.close();
  }

  public static void main(String[] words) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SLF4JLogger");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (line.contains("\"do\":\"hello\"")) {
        StringBuilder hex = new StringBuilder();
        for (byte one : value(305419896, 7, 61)) hex.append(String.format("%02x", one));
        say("{\"hello\":\"Java " + System.getProperty("java.version") + "\",\"value\":\"" + hex
            + "\",\"clients\":[[\"spymemcached\",\"2.12.3\"],[\"xmemcached\",\"2.4.8\"],[\"by hand\",\"\"]]}");
      } else if (line.contains("\"do\":\"run\"")) {
        try {
          run(new Job(line), lines);
        } catch (Exception error) {
          say("{\"failed\":\"" + String.valueOf(error).replaceAll("[^ -~]|[\"\\\\]", " ") + "\"}");
          System.exit(1);
        }
      } else {
        say("{\"failed\":\"it is not understood\"}");
        System.exit(1);
      }
    }
    System.exit(0);
  }
}
