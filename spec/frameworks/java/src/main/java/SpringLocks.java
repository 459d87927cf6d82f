import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.metadata.RedisMetadataStore;
import org.springframework.integration.redis.store.RedisMessageStore;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.messaging.support.GenericMessage;

/** Spring Integration: locks by scripts, who waits being told by publishing or asking again; stores of messages. */
public final class SpringLocks {
    public static void main(String[] arguments) {
        var connections = new LettuceConnectionFactory(Checks.ADDRESS.getHost(), Checks.ADDRESS.getPort());
        connections.afterPropertiesSet();
        connections.start();
        var store = new StringRedisTemplate(connections);

        for (RedisLockType type : RedisLockType.values()) {
            Checks.check("one holder at a time, " + type, () -> {
                RedisLockRegistry[] registries = new RedisLockRegistry[4];
                for (int n = 0; n < registries.length; n++) {
                    registries[n] = new RedisLockRegistry(connections, "locks" + type, 30000);
                    registries[n].setRedisLockType(type);
                }
                AtomicInteger next = new AtomicInteger();
                String key = "guarded" + type;
                Checks.threads(8, () -> {
                    Lock lock = registries[next.getAndIncrement() % registries.length].obtain("lock");
                    for (int round = 0; round < 15; round++) {
                        lock.lock();
                        String was = store.opsForValue().get(key);
                        Thread.sleep(1);
                        store.opsForValue().set(key, String.valueOf((was == null ? 0 : Integer.parseInt(was)) + 1));
                        lock.unlock();
                    }
                });
                Checks.equal(store.opsForValue().get(key), "120");
                Checks.equal(store.hasKey("locks" + type + ":lock"), false);
                for (RedisLockRegistry registry : registries) registry.destroy();
            });
        }

        Checks.check("a lock expires, and is another's then", () -> {
            var first = new RedisLockRegistry(connections, "expiring", 500);
            var second = new RedisLockRegistry(connections, "expiring", 30000);
            Checks.equal(first.obtain("lock").tryLock(), true);
            Checks.equal(second.obtain("lock").tryLock(), false);
            Checks.equal(second.obtain("lock").tryLock(10, TimeUnit.SECONDS), true);
            try {
                first.obtain("lock").unlock();
                throw new AssertionError("it is another's");
            } catch (java.util.ConcurrentModificationException | IllegalStateException expected) {
                second.obtain("lock").unlock();
            }
        });

        Checks.check("a lock is kept longer", () -> {
            var registry = new RedisLockRegistry(connections, "longer", 500);
            registry.obtain("lock").lock();
            for (int n = 0; n < 4; n++) {
                Thread.sleep(300);
                registry.renewLock("lock");
            }
            registry.obtain("lock").unlock();
        });

        Checks.check("what is known is kept", () -> {
            var known = new RedisMetadataStore(connections, "known");
            Checks.equal(known.putIfAbsent("a", "1"), null);
            Checks.equal(known.putIfAbsent("a", "2"), "1");
            Checks.equal(known.replace("a", "1", "3"), true);
            Checks.equal(known.replace("a", "1", "4"), false);
            Checks.equal(known.remove("a"), "3");
        });

        Checks.check("groups of messages", () -> {
            var messages = new RedisMessageStore(connections);
            for (int n = 0; n < 30; n++) messages.addMessagesToGroup("group", new GenericMessage<>("message " + n));
            Checks.equal(messages.messageGroupSize("group"), 30);
            for (int n = 0; n < 30; n++) Checks.equal(messages.pollMessageFromGroup("group").getPayload(), "message " + n);
            Checks.equal(messages.messageGroupSize("group"), 0);
        });

        connections.destroy();
        System.exit(0);
    }
}
