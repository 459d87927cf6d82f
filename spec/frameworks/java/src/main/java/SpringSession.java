import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.springframework.context.ApplicationEvent;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.event.EventListener;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.session.FindByIndexNameSessionRepository;
import org.springframework.session.Session;
import org.springframework.session.SessionRepository;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;
import org.springframework.session.data.redis.RedisSessionRepository;
import org.springframework.session.data.redis.config.annotation.web.http.EnableRedisIndexedHttpSession;
import org.springframework.session.events.AbstractSessionEvent;
import org.springframework.session.events.SessionCreatedEvent;
import org.springframework.session.events.SessionDeletedEvent;
import org.springframework.session.events.SessionExpiredEvent;

/** Spring Session: sessions in hashes, indices in sets, and events of keys that expire. */
public final class SpringSession {
    private static final String USER = FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME;
    private static final ConcurrentLinkedQueue<ApplicationEvent> EVENTS = new ConcurrentLinkedQueue<>();

    @Configuration(proxyBeanMethods = false)
    @EnableRedisIndexedHttpSession(maxInactiveIntervalInSeconds = 1000)
    static class Sessions {
        @Bean
        LettuceConnectionFactory connections() {
            return new LettuceConnectionFactory(Checks.ADDRESS.getHost(), Checks.ADDRESS.getPort());
        }

        @EventListener
        void heard(AbstractSessionEvent event) {
            EVENTS.add(event);
        }
    }

    private static boolean heard(Class<? extends AbstractSessionEvent> kind, String id) {
        return EVENTS.stream().anyMatch(event -> kind.isInstance(event) && ((AbstractSessionEvent) event).getSessionId().equals(id));
    }

    public static void main(String[] arguments) {
        var context = new AnnotationConfigApplicationContext(Sessions.class);
        var sessions = context.getBean(RedisIndexedSessionRepository.class);
        var store = new StringRedisTemplate(context.getBean(LettuceConnectionFactory.class));
        plain(context);
        indexed(sessions, store);
        context.close();
        System.exit(0);
    }

    /** Sessions that nobody looks for by another name. */
    private static void plain(AnnotationConfigApplicationContext context) {
        var template = new org.springframework.data.redis.core.RedisTemplate<String, Object>();
        template.setKeySerializer(new org.springframework.data.redis.serializer.StringRedisSerializer());
        template.setHashKeySerializer(new org.springframework.data.redis.serializer.StringRedisSerializer());
        template.setConnectionFactory(context.getBean(LettuceConnectionFactory.class));
        template.afterPropertiesSet();
        var repository = new RedisSessionRepository(template);
        repository.setRedisKeyNamespace("plain");
        SessionRepository<Session> sessions = open(repository);

        Checks.check("a session is saved and found", () -> {
            var session = sessions.createSession();
            session.setAttribute("cart", new java.util.ArrayList<>(List.of("a", "b")));
            sessions.save(session);
            var again = sessions.findById(session.getId());
            Checks.equal(again.getAttribute("cart"), List.of("a", "b"));
            again.removeAttribute("cart");
            again.setAttribute("user", "x".repeat(12000));
            sessions.save(again);
            Checks.equal(sessions.findById(session.getId()).getAttributeNames(), Set.of("user"));
            sessions.deleteById(session.getId());
            Checks.equal(sessions.findById(session.getId()), null);
        });

        Checks.check("a session expires", () -> {
            var session = sessions.createSession();
            session.setMaxInactiveInterval(Duration.ofSeconds(1));
            sessions.save(session);
            String id = session.getId();
            Checks.until(() -> sessions.findById(id) == null);
        });
    }

    private static void indexed(RedisIndexedSessionRepository sessions, StringRedisTemplate store) {
        Checks.check("sessions of a user are found", () -> {
            for (int n = 0; n < 20; n++) {
                var session = sessions.createSession();
                session.setAttribute(USER, n < 15 ? "alice" : "bob");
                session.setAttribute("n", n);
                sessions.save(session);
            }
            Checks.equal(List.of(sessions.findByPrincipalName("alice").size(), sessions.findByPrincipalName("bob").size()), List.of(15, 5));
            int sum = sessions.findByPrincipalName("alice").values().stream().mapToInt(session -> session.<Integer>getAttribute("n")).sum();
            Checks.equal(sum, 105);
            String id = sessions.findByPrincipalName("bob").keySet().iterator().next();
            sessions.deleteById(id);
            Checks.equal(sessions.findByPrincipalName("bob").size(), 4);
            Checks.until(() -> heard(SessionDeletedEvent.class, id));
        });

        Checks.check("a session is told of when it is made", () -> {
            var session = sessions.createSession();
            sessions.save(session);
            String id = session.getId();
            Checks.until(() -> heard(SessionCreatedEvent.class, id));
        });

        Checks.check("a session gets another id", () -> {
            var session = sessions.createSession();
            session.setAttribute(USER, "carol");
            sessions.save(session);
            String before = session.getId();
            session = sessions.findById(before);
            String after = session.changeSessionId();
            sessions.save(session);
            Checks.equal(sessions.findById(before), null);
            Checks.equal(Map.copyOf(sessions.findByPrincipalName("carol")).keySet(), Set.of(after));
        });

        Checks.check("a session is told of when it expires", () -> {
            var session = sessions.createSession();
            session.setAttribute(USER, "dave");
            session.setMaxInactiveInterval(Duration.ofSeconds(2));
            sessions.save(session);
            String id = session.getId();
            Checks.until(() -> heard(SessionExpiredEvent.class, id));
            Checks.equal(sessions.findById(id), null);
            Checks.until(() -> sessions.findByPrincipalName("dave").isEmpty());
        });

        Checks.check("a session that is used does not expire", () -> {
            var session = sessions.createSession();
            session.setMaxInactiveInterval(Duration.ofSeconds(2));
            sessions.save(session);
            for (int n = 0; n < 6; n++) {
                Thread.sleep(500);
                Session used = sessions.findById(session.getId());
                used.setLastAccessedTime(Instant.now());
                SpringSession.<Session>open(sessions).save(used);
            }
            Checks.equal(sessions.findById(session.getId()).isExpired(), false);
            long left = store.getExpire("spring:session:sessions:" + session.getId());
            Checks.equal(left > 280 && left <= 302, true);
        });
    }

    /** The class of its sessions is not told of. */
    @SuppressWarnings("unchecked")
    private static <S extends Session> SessionRepository<S> open(SessionRepository<?> sessions) {
        return (SessionRepository<S>) sessions;
    }
}
