import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.io.File;
import java.time.Duration;

/**
 * Where the server is, and how connections to it are made: by one version of the protocol; over TLS if the
 * environment names a folder of certificates, and as its user if it names one.
 */
final class Server {
  /** The name that each connection has. */
  static final String CONNECTION_NAME = "larder-smoke";

  /** How long a call waits for its reply: the server hangs after that. */
  private static final Duration HANGS = Duration.ofMinutes(10);

  final ProtocolVersion protocol;

  /** The user of the connections, or null: they do not log in. */
  final String user = System.getenv("LARDER_USER");

  private final String password = System.getenv("LARDER_PASSWORD");
  private final String certificates = System.getenv("LARDER_TLS");
  private final String host;
  private final int port;
  private final RedisClient client = RedisClient.create();

  /** The address is HOST:PORT. */
  Server(String address, ProtocolVersion protocol) {
    int colon = address.lastIndexOf(':');
    this.host = address.substring(0, colon);
    this.port = Integer.parseInt(address.substring(colon + 1));
    this.protocol = protocol;
    ClientOptions.Builder options = ClientOptions.builder().protocolVersion(protocol);
    if (certificates != null) {
      options.sslOptions(secured(System.getenv("LARDER_CERTIFICATE")));
    }
    client.setOptions(options.build());
  }

  /** Trusts the authority in the folder, and shows the certificate of that name, if there is a name. */
  private SslOptions secured(String name) {
    SslOptions.Builder options = SslOptions.builder().jdkSslProvider();
    options.trustManager(new File(certificates, "ca.crt"));
    if (name != null) {
      options.keystore(new File(certificates, name + ".p12"), password.toCharArray());
    }
    return options.build();
  }

  private RedisURI uri(int database, String user, String password) {
    RedisURI.Builder uri = RedisURI.builder()
        .withHost(host)
        .withPort(port)
        .withSsl(certificates != null)
        .withDatabase(database)
        .withClientName(CONNECTION_NAME)
        .withTimeout(HANGS);
    if (user != null) {
      uri.withAuthentication(user, password.toCharArray());
    }
    return uri.build();
  }

  StatefulRedisConnection<String, String> connect(int database) {
    return client.connect(uri(database, user, password));
  }

  /** A connection of another user. */
  StatefulRedisConnection<String, String> connectAs(String user, String password) {
    return client.connect(uri(0, user, password));
  }

  /** A connection whose keys and values are bytes. */
  StatefulRedisConnection<byte[], byte[]> connectForBytes() {
    return client.connect(ByteArrayCodec.INSTANCE, uri(0, user, password));
  }

  StatefulRedisPubSubConnection<String, String> subscriber() {
    return client.connectPubSub(uri(0, user, password));
  }

  void shutdown() {
    client.shutdown();
  }
}
