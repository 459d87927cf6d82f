import io.lettuce.core.RedisCommandExecutionException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;

/** What all checks share: their server, comparisons, and threads. */
abstract class Checks {
  /** What each of some threads does; they are numbered from 0 on. */
  interface Work {
    void run(int thread) throws Exception;
  }

  final Server server;

  Checks(Server server) {
    this.server = server;
  }

  static void want(Object expected, Object got) {
    if (!Objects.equals(expected, got)) {
      throw new AssertionError("got " + got + ", expected " + expected);
    }
  }

  /** A reply without elements: Lettuce has no list for some of them, and an empty one for others. */
  static void wantNothing(Collection<?> got) {
    if (got != null && !got.isEmpty()) {
      throw new AssertionError("got " + got + ", expected nothing");
    }
  }

  /** The server refuses the call with this error. */
  static void refused(String error, Callable<?> call) throws Exception {
    Object got;
    try {
      got = call.call();
    } catch (RedisCommandExecutionException told) {
      want(error, told.getMessage());
      return;
    }
    throw new AssertionError("got " + got + ", expected the error " + error);
  }

  /** Starts so many threads. */
  static List<Future<Void>> started(int threads, Work work) {
    List<Future<Void>> all = new ArrayList<>();
    for (int i = 0; i < threads; i++) {
      int thread = i;
      FutureTask<Void> task = new FutureTask<>(() -> {
        work.run(thread);
        return null;
      });
      new Thread(task).start();
      all.add(task);
    }
    return all;
  }

  /** Waits for threads, and fails as the first of them that failed. */
  static void joined(List<Future<Void>> threads) throws Exception {
    for (Future<Void> thread : threads) {
      thread.get();
    }
  }
}
