import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import java.util.List;

/**
 * Talks to a cache server as programs that use Lettuce do, over RESP2 and RESP3, and says of each kind of
 * call whether it did what it should: a line "name: ok", or the error and exit 1.
 */
public final class Smoke {
  private interface Check {
    void run(RedisCommands<String, String> redis) throws Exception;
  }

  private final Server server;

  private Smoke(Server server) {
    this.server = server;
  }

  public static void main(String[] arguments) {
    for (ProtocolVersion protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
      Server server = new Server(arguments[0], protocol);
      new Smoke(server).all();
      server.shutdown();
    }
    System.exit(0);
  }

  private void all() {
    Values values = new Values(server);
    check("strings", values::strings);
    check("expiry", values::expiry);
    check("counters", values::counters);
    check("keys", values::keys);
    check("bitmaps", values::bitmaps);
    check("databases", values::databases);
    check("errors", values::errors);
    Containers containers = new Containers(server);
    check("hashes", containers::hashes);
    check("fields that expire", containers::fields);
    check("lists", containers::lists);
    check("blocking pops", containers::blockingPops);
    check("sets", containers::sets);
    check("sorted sets", containers::sortedSets);
    check("streams", containers::streams);
    check("consumer groups", containers::groups);
    Calls calls = new Calls(server);
    check("pipeline", calls::pipeline);
    check("asynchronous calls", calls::asynchronous);
    check("reactive calls", calls::reactive);
    check("one connection of threads", calls::shared);
    check("transaction", calls::transaction);
    check("watch conflict", calls::conflict);
    check("scripts", calls::scripts);
    check("publish and subscribe", calls::subscriptions);
    check("rules of a user", calls::rules);
    check("server", calls::server);
  }

  private void check(String name, Check check) {
    try (StatefulRedisConnection<String, String> connection = server.connect(0)) {
      connection.sync().flushall();
      check.run(connection.sync());
      System.out.println(server.protocol.name() + " " + name + ": ok");
    } catch (Exception | AssertionError error) {
      System.out.println(server.protocol.name() + " " + name + ": " + error);
      error.printStackTrace(System.out);
      System.exit(1);
    }
  }
}
