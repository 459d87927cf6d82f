import java.net.URI;
import java.time.Duration;
import java.util.Objects;
import java.util.function.BooleanSupplier;

/** What the programs beside it share: checks that are told one by one. */
final class Checks {
    static final String URL = Objects.requireNonNullElse(System.getenv("REDIS_URL"), "redis://127.0.0.1:6379/0");
    static final URI ADDRESS = URI.create(URL);

    interface Check {
        void run() throws Exception;
    }

    private Checks() {}

    /** Runs it and tells that it passed; an error ends the program. */
    static void check(String name, Check check) {
        try {
            check.run();
            System.out.println(name + ": ok");
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void equal(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) throw new AssertionError(got + ", not " + wanted);
    }

    /** Waits until it holds. */
    static void until(BooleanSupplier holds) throws InterruptedException {
        long end = System.nanoTime() + Duration.ofMinutes(1).toNanos();
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > end) throw new AssertionError("it does not come to hold");
            Thread.sleep(10);
        }
    }

    /** So many threads do it at once; the first error of one is the error. */
    static void threads(int count, Check each) throws Exception {
        Throwable[] failed = new Throwable[1];
        Thread[] threads = new Thread[count];
        for (int n = 0; n < count; n++) {
            threads[n] = new Thread(() -> {
                try {
                    each.run();
                } catch (Throwable error) {
                    failed[0] = error;
                }
            });
            threads[n].start();
        }
        for (Thread thread : threads) thread.join();
        if (failed[0] != null) throw new AssertionError(failed[0]);
    }
}
