import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.spy.memcached.ArrayModNodeLocator;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.KetamaNodeKeyFormatter;
import net.spy.memcached.KetamaNodeLocator;
import net.spy.memcached.MemcachedNode;
import net.spy.memcached.NodeLocator;

/** Where spymemcached puts keys; what it reads is told in plan.py. */
class Vectors {
  record Set(String preset, List<InetSocketAddress> servers, Map<InetSocketAddress, Integer> weights) {}

  public static void main(String[] arguments) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var keys = new ArrayList<String>();
    var sets = new ArrayList<Set>();
    for (String line; (line = in.readLine()) != null; ) {
      var words = line.split(" ", 2);
      switch (words[0]) {
        case "key" -> keys.add(words[1]);
        case "set" -> sets.add(new Set(words[1], new ArrayList<>(), new HashMap<>()));
        default -> {
          var server = words[1].split(" ", 2);
          var set = sets.get(sets.size() - 1);
          int colon = server[1].lastIndexOf(':');
          // Without brackets, or it is looked up as a name; the name stands before a slash.
          var host = server[1].substring(0, colon).replace("[", "").replace("]", "");
          int slash = host.indexOf('/');
          var bytes = InetAddress.getByName(host.substring(slash + 1)).getAddress();
          var name = slash > 0 ? host.substring(0, slash) : host;
          // An address that has its name is not looked up; one that has none is shown without.
          var named = slash > 0 || set.preset.equals("ketama");
          var at = new InetSocketAddress(
              named ? InetAddress.getByAddress(name, bytes) : InetAddress.getByAddress(bytes),
              Integer.parseInt(server[1].substring(colon + 1)));
          set.servers.add(at);
          set.weights.put(at, Integer.parseInt(server[0]));
        }
      }
    }
    System.out.println("spymemcached " + arguments[0]);
    for (var set : sets) {
      var nodes = new ArrayList<MemcachedNode>();
      for (var address : set.servers) {
        nodes.add((MemcachedNode) Proxy.newProxyInstance(
            Vectors.class.getClassLoader(), new Class<?>[] {MemcachedNode.class}, (self, method, given) ->
                switch (method.getName()) {
                  case "getSocketAddress" -> address;
                  case "hashCode" -> System.identityHashCode(self);
                  case "equals" -> self == given[0];
                  case "toString" -> address.toString();
                  default -> throw new UnsupportedOperationException(method.getName());
                }));
      }
      var digits = new StringBuilder();
      var locator = locator(set, nodes);
      for (var key : keys) {
        digits.append(nodes.indexOf(locator.getPrimary(key)));
      }
      System.out.println(digits);
    }
  }

  static NodeLocator locator(Set set, List<MemcachedNode> nodes) {
    return switch (set.preset) {
      case "ketama" -> ketama(set, nodes, KetamaNodeKeyFormatter.Format.LIBMEMCACHED);
      case "ketama-full-port" -> ketama(set, nodes, KetamaNodeKeyFormatter.Format.SPYMEMCACHED);
      case "modula-crc15" -> new ArrayModNodeLocator(nodes, DefaultHashAlgorithm.CRC_HASH);
      default -> throw new IllegalArgumentException(set.preset);
    };
  }

  static NodeLocator ketama(Set set, List<MemcachedNode> nodes, KetamaNodeKeyFormatter.Format format) {
    boolean equal = set.weights.values().stream().distinct().count() == 1;
    return new KetamaNodeLocator(
        nodes, DefaultHashAlgorithm.KETAMA_HASH, format, equal ? new HashMap<>() : set.weights);
  }
}
