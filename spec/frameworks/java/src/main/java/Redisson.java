import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RMapCache;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSemaphore;
import org.redisson.api.RTopic;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson: locks, limits, semaphores and collections, nearly each step of which is a script. */
public final class Redisson {
    private static final int ROUNDS = 25;

    private static RedissonClient connect() {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        // A lock is held so long by one who says nothing, and kept longer each third of it.
        config.setLockWatchdogTimeout(1500);
        config.useSingleServer().setAddress(Checks.URL).setConnectionMinimumIdleSize(4).setConnectionPoolSize(16);
        return org.redisson.Redisson.create(config);
    }

    /** Adds one in two steps, so that two at once are seen: one of their additions is lost. */
    private static void addUnguarded(RedissonClient client, String key) throws InterruptedException {
        var bucket = client.<String>getBucket(key);
        String was = bucket.get();
        Thread.sleep(1);
        bucket.set(String.valueOf((was == null ? 0 : Integer.parseInt(was)) + 1));
    }

    private static void heldByOne(RedissonClient one, RedissonClient two, String key, java.util.function.Function<RedissonClient, RLock> lock) throws Exception {
        AtomicInteger next = new AtomicInteger();
        Checks.threads(8, () -> {
            RedissonClient client = next.getAndIncrement() % 2 == 0 ? one : two;
            for (int round = 0; round < ROUNDS; round++) {
                RLock held = lock.apply(client);
                held.lock();
                addUnguarded(client, key);
                held.unlock();
            }
        });
        Checks.equal(one.<String>getBucket(key).get(), String.valueOf(8 * ROUNDS));
    }

    public static void main(String[] arguments) {
        RedissonClient one = connect();
        RedissonClient two = connect();

        Checks.check("one holder at a time", () -> {
            heldByOne(one, two, "locked", client -> client.getLock("lock"));
            Checks.equal(one.getLock("lock").isLocked(), false);
        });

        Checks.check("one holder at a time, in their order", () -> heldByOne(one, two, "fair", client -> client.getFairLock("fair lock")));

        Checks.check("one holder at a time, who waits by asking", () -> heldByOne(one, two, "spun", client -> client.getSpinLock("spin lock")));

        Checks.check("several locks at once", () ->
            heldByOne(one, two, "several", client -> client.getMultiLock(client.getLock("first"), client.getLock("second"), client.getLock("third"))));

        Checks.check("its holder takes it again", () -> {
            RLock lock = one.getLock("again");
            lock.lock();
            lock.lock();
            Checks.equal(lock.getHoldCount(), 2);
            lock.unlock();
            Checks.equal(two.getLock("again").tryLock(), false);
            Checks.threads(1, () -> Checks.equal(one.getLock("again").isHeldByCurrentThread(), false));
            lock.unlock();
            Checks.equal(two.getLock("again").tryLock(), true);
            Checks.equal(two.getLock("again").forceUnlock(), true);
        });

        Checks.check("a lock is kept longer while it is held", () -> {
            RLock lock = one.getLock("kept");
            lock.lock();
            Thread.sleep(3500);
            Checks.equal(lock.isHeldByCurrentThread() && lock.remainTimeToLive() > 0, true);
            Checks.equal(two.getLock("kept").tryLock(100, TimeUnit.MILLISECONDS), false);
            lock.unlock();
        });

        Checks.check("a lock expires, and who waits for it has it", () -> {
            one.getLock("expires").lock(500, TimeUnit.MILLISECONDS);
            Checks.equal(two.getLock("expires").tryLock(10, TimeUnit.SECONDS), true);
            try {
                one.getLock("expires").unlock();
                throw new AssertionError("it is another's");
            } catch (IllegalMonitorStateException expected) {
                two.getLock("expires").unlock();
            }
        });

        Checks.check("many read or one writes", () -> {
            RReadWriteLock lock = one.getReadWriteLock("read write");
            RReadWriteLock others = two.getReadWriteLock("read write");
            lock.readLock().lock();
            Checks.equal(List.of(others.readLock().tryLock(), others.writeLock().tryLock()), List.of(true, false));
            lock.readLock().unlock();
            others.readLock().unlock();
            heldByOne(one, two, "written", client -> client.getReadWriteLock("read write").writeLock());
        });

        Checks.check("a rate, exact among many", () -> {
            RRateLimiter limiter = one.getRateLimiter("rate");
            Checks.equal(limiter.trySetRate(RateType.OVERALL, 50, java.time.Duration.ofMinutes(10)), true);
            AtomicInteger allowed = new AtomicInteger();
            AtomicInteger next = new AtomicInteger();
            Checks.threads(8, () -> {
                RRateLimiter own = (next.getAndIncrement() % 2 == 0 ? one : two).getRateLimiter("rate");
                for (int n = 0; n < 20; n++) if (own.tryAcquire()) allowed.incrementAndGet();
            });
            Checks.equal(allowed.get(), 50);
            Checks.equal(limiter.availablePermits(), 0L);
        });

        Checks.check("a rate fills again", () -> {
            RRateLimiter limiter = one.getRateLimiter("refill");
            limiter.trySetRate(RateType.OVERALL, 5, java.time.Duration.ofSeconds(1));
            long began = System.nanoTime();
            for (int n = 0; n < 13; n++) limiter.acquire();
            // Two times five were over before.
            Checks.equal(System.nanoTime() - began >= 1_900_000_000L, true);
        });

        Checks.check("semaphores", () -> {
            RSemaphore semaphore = one.getSemaphore("semaphore");
            semaphore.trySetPermits(3);
            AtomicInteger now = new AtomicInteger();
            AtomicInteger most = new AtomicInteger();
            Checks.threads(8, () -> {
                for (int round = 0; round < 10; round++) {
                    two.getSemaphore("semaphore").acquire();
                    most.accumulateAndGet(now.incrementAndGet(), Math::max);
                    Thread.sleep(2);
                    now.decrementAndGet();
                    two.getSemaphore("semaphore").release();
                }
            });
            Checks.equal(List.of(most.get(), semaphore.availablePermits()), List.of(3, 3));
            RPermitExpirableSemaphore expiring = one.getPermitExpirableSemaphore("permits");
            expiring.trySetPermits(1);
            expiring.acquire(300, TimeUnit.MILLISECONDS);
            String permit = expiring.tryAcquire(10, 30, TimeUnit.SECONDS);
            expiring.release(permit);
        });

        Checks.check("latches", () -> {
            RCountDownLatch latch = one.getCountDownLatch("latch");
            latch.trySetCount(3);
            CountDownLatch passed = new CountDownLatch(1);
            new Thread(() -> {
                try {
                    two.getCountDownLatch("latch").await();
                    passed.countDown();
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            }).start();
            for (int n = 0; n < 3; n++) {
                Checks.equal(passed.getCount(), 1L);
                latch.countDown();
            }
            Checks.equal(passed.await(30, TimeUnit.SECONDS), true);
        });

        Checks.check("blocking queues", () -> {
            RBlockingQueue<String> queue = one.getBlockingQueue("queue");
            AtomicInteger taken = new AtomicInteger();
            AtomicInteger sum = new AtomicInteger();
            Thread feeder = new Thread(() -> IntStream.range(0, 400).forEach(n -> two.<String>getBlockingQueue("queue").offer(String.valueOf(n))));
            feeder.start();
            Checks.threads(4, () -> {
                for (String item; (item = queue.poll(2, TimeUnit.SECONDS)) != null; taken.incrementAndGet()) sum.addAndGet(Integer.parseInt(item));
            });
            feeder.join();
            Checks.equal(List.of(taken.get(), sum.get(), queue.size()), List.of(400, 400 * 399 / 2, 0));
        });

        Checks.check("delayed queues", () -> {
            var queue = one.<String>getBlockingQueue("delayed");
            var delayed = one.<String>getDelayedQueue(queue);
            long began = System.nanoTime();
            delayed.offer("later", 1500, TimeUnit.MILLISECONDS);
            delayed.offer("sooner", 500, TimeUnit.MILLISECONDS);
            Checks.equal(List.of(queue.take(), queue.take()), List.of("sooner", "later"));
            Checks.equal(System.nanoTime() - began >= 1_500_000_000L, true);
            delayed.destroy();
        });

        Checks.check("maps whose entries expire", () -> {
            RMapCache<String, String> map = one.getMapCache("entries");
            map.put("short", "a", 300, TimeUnit.MILLISECONDS);
            map.put("long", "b", 10, TimeUnit.MINUTES);
            Checks.equal(map.putIfAbsent("long", "c"), "b");
            Checks.equal(map.readAllMap(), Map.of("short", "a", "long", "b"));
            Thread.sleep(400);
            Checks.equal(map.get("short"), null);
            Checks.equal(map.readAllMap(), Map.of("long", "b"));
            Checks.equal(map.addAndGet("count", 5), 5);
            Checks.equal(map.replace("long", "b", "d"), true);
            Checks.equal(map.fastRemove("long", "none"), 1L);
            map.destroy();
        });

        Checks.check("topics", () -> {
            List<String> heard = new ArrayList<>();
            RTopic topic = one.getTopic("topic");
            topic.addListener(String.class, (channel, message) -> heard.add(message));
            two.getPatternTopic("top*").addListener(String.class, (pattern, channel, message) -> {});
            for (int n = 0; n < 100; n++) Checks.equal(two.getTopic("topic").publish(String.valueOf(n)), 2L);
            Checks.until(() -> heard.size() == 100);
            Checks.equal(heard, IntStream.range(0, 100).mapToObj(String::valueOf).toList());
        });

        Checks.check("counters, scores and batches", () -> {
            Checks.threads(8, () -> {
                for (int n = 0; n < 50; n++) two.getAtomicLong("count").incrementAndGet();
            });
            Checks.equal(one.getAtomicLong("count").get(), 400L);
            Checks.equal(one.getAtomicLong("count").compareAndSet(400, 1), true);
            RScoredSortedSet<String> scores = one.getScoredSortedSet("scores");
            for (int n = 0; n < 100; n++) scores.add(n, "member " + n);
            Checks.equal(List.of(scores.rank("member 42"), scores.revRank("member 42"), scores.first()), List.of(42, 57, "member 0"));
            Checks.equal(scores.addScore("member 0", 1000), 1000.0);
            Checks.equal(scores.pollLast(), "member 0");
            var batch = one.createBatch(org.redisson.api.BatchOptions.defaults().executionMode(org.redisson.api.BatchOptions.ExecutionMode.IN_MEMORY_ATOMIC));
            for (int n = 0; n < 100; n++) batch.getAtomicLong("batch").incrementAndGetAsync();
            Checks.equal(batch.execute().getResponses().get(99), 100L);
        });

        Checks.check("streams of a group", () -> {
            var stream = one.<String, String>getStream("stream");
            stream.createGroup(org.redisson.api.stream.StreamCreateGroupArgs.name("group").makeStream());
            for (int n = 0; n < 50; n++) stream.add(org.redisson.api.stream.StreamAddArgs.entry("n", String.valueOf(n)));
            var read = stream.readGroup("group", "me", org.redisson.api.stream.StreamReadGroupArgs.neverDelivered().count(100));
            Checks.equal(List.of(read.size(), stream.size()), List.of(50, 50L));
            Checks.equal(stream.ack("group", read.keySet().toArray(new org.redisson.api.StreamMessageId[0])), 50L);
            Checks.equal(stream.getPendingInfo("group").getTotal(), 0L);
        });

        one.shutdown();
        two.shutdown();
        System.exit(0);
    }
}
