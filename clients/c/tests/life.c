/* A client's life beside threads, forks and signals.
 *
 *     life [brief | unforked]
 *
 * `unforked` is for allocators whose locks a child may find locked for ever. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/time.h>

enum { THREADS = 8 };

static larder_bytes T(const char *text) {
    return larder_text(text);
}

/* Calls of one thread until they are over. */
typedef struct {
    larder_client *cache;
    int number;
    atomic_int *over;
    long good;
    larder_status last;
} caller;

static void *call(void *argument) {
    caller *self = argument;
    char key[32], value[64], got[64];
    snprintf(key, sizeof key, "key-%d", self->number);
    for (long round = 0; !atomic_load(self->over); round++) {
        size_t len;
        int bytes = snprintf(value, sizeof value, "%d:%ld", self->number, round);
        self->last = larder_set(self->cache, T(key), larder_data(value, (size_t) bytes), NULL, NULL, NULL);
        if (self->last == LARDER_OK) {
            self->last = larder_get(self->cache, T(key), NULL, got, sizeof got, &len, NULL, NULL);
            CHECK(self->last != LARDER_OK || is_text(larder_data(got, len), value));
        }
        if (self->last != LARDER_OK) {
            break;
        }
        self->good++;
    }
    return NULL;
}

static void begin(caller *callers, pthread_t *threads, larder_client *cache, atomic_int *over) {
    for (int at = 0; at < THREADS; at++) {
        callers[at] = (caller){.cache = cache, .number = at, .over = over, .last = LARDER_OK};
        CHECK(pthread_create(&threads[at], NULL, call, &callers[at]) == 0);
    }
}

static void join(pthread_t *threads) {
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
}

/* Every call on a client that was shut down, and on its batch and stream. */
static void all_are_closed(larder_client *cache, larder_batch *batch, larder_stream *stream) {
    larder_error error = {.size = sizeof error};
    larder_bytes value;
    larder_lease lease = {.size = sizeof lease};
    larder_report report = {.size = sizeof report};
    char buffer[8];
    size_t len;
    if (cache != NULL) {
        CHECK_IS(larder_get(cache, T("k"), NULL, buffer, 8, &len, NULL, &error), LARDER_CLOSED, &error);
        CHECK(error.outcome == LARDER_NOT_SENT && error.message[0] != 0);
        CHECK(larder_get_alloc(cache, T("k"), NULL, &value, NULL, NULL) == LARDER_CLOSED);
        CHECK(larder_set(cache, T("k"), T("v"), NULL, NULL, NULL) == LARDER_CLOSED);
        CHECK(larder_delete(cache, T("k"), NULL, NULL) == LARDER_CLOSED);
        CHECK(larder_touch(cache, T("k"), 0, NULL) == LARDER_CLOSED);
        CHECK(larder_incr(cache, T("k"), 1, NULL, NULL, NULL) == LARDER_CLOSED);
        CHECK(larder_get_or_lease(cache, T("k"), &lease, buffer, 8, &len, NULL) == LARDER_CLOSED);
        CHECK(larder_flush_all(cache, NULL) == LARDER_CLOSED);
        CHECK(larder_server_version(cache, 0, buffer, 8, NULL) == LARDER_CLOSED);
    }
    larder_batch_get(batch, T("k"));
    CHECK(larder_batch_run(batch, &error) == LARDER_CLOSED);
    CHECK(larder_stream_barrier(stream, &report, NULL) == LARDER_OK || report.sent == report.refused);
    CHECK(larder_stream_set(stream, T("k"), T("v"), NULL, NULL) == LARDER_OK);
    CHECK_IS(larder_stream_barrier(stream, &report, &error), LARDER_CLOSED, &error);
    CHECK(report.sent == 1 && report.refused == 1);
}

static void ends(const server *server) {
    testing = "an end in two steps";
    larder_client *cache = client_of(server, PATIENCE_MS, 0);
    larder_batch *batch = larder_batch_new(cache);
    larder_stream *stream = larder_stream_new(cache, 0, 0, 0);
    CHECK(larder_set(cache, T("k"), T("v"), NULL, NULL, NULL) == LARDER_OK);
    CHECK(larder_stream_set(stream, T("k"), T("v"), NULL, NULL) == LARDER_OK);
    larder_shutdown(cache);
    all_are_closed(cache, batch, stream);
    larder_shutdown(cache);
    all_are_closed(cache, batch, stream);
    larder_free(cache);
    all_are_closed(NULL, batch, stream);
    larder_batch_free(batch);
    larder_stream_free(stream);
    larder_shutdown(NULL);
    larder_free(NULL);
}

static void *shut_down(void *cache) {
    larder_shutdown(cache);
    return NULL;
}

/* Two threads end a client that eight are using. */
static void ends_while_it_is_used(const server *server, int rounds) {
    testing = "an end while it is used";
    for (int round = 0; round < rounds; round++) {
        larder_client *cache = client_of(server, PATIENCE_MS, 0);
        caller callers[THREADS];
        pthread_t threads[THREADS], enders[2];
        atomic_int over = 0;
        begin(callers, threads, cache, &over);
        sleep_ms(round % 5);
        CHECK(pthread_create(&enders[0], NULL, shut_down, cache) == 0);
        CHECK(pthread_create(&enders[1], NULL, shut_down, cache) == 0);
        join(threads);
        CHECK(pthread_join(enders[0], NULL) == 0 && pthread_join(enders[1], NULL) == 0);
        for (int at = 0; at < THREADS; at++) {
            CHECK(callers[at].last == LARDER_CLOSED);
        }
        larder_free(cache);
    }
}

/* Freeing a client waits for the calls that wait for a silent server, and these return an error. */
static void is_freed_while_calls_wait(const server *server) {
    testing = "a free while calls wait";
    larder_client *cache = client_of(server, PATIENCE_MS, 0);
    caller callers[THREADS];
    pthread_t threads[THREADS];
    atomic_int over = 0;
    larder_counters counters = {.size = sizeof counters};
    CHECK(larder_set(cache, T("k"), T("v"), NULL, NULL, NULL) == LARDER_OK);
    pause_server(server);
    begin(callers, threads, cache, &over);
    /* All calls have begun: a set each, behind the first. */
    do {
        sleep_ms(1);
        CHECK(larder_read_counters(cache, &counters) == LARDER_OK);
    } while (counters.requests < 1 + THREADS);
    double began = seconds_now();
    larder_free(cache);
    join(threads);
    CHECK(seconds_now() - began < PATIENCE_MS / 2e3);
    for (int at = 0; at < THREADS; at++) {
        CHECK(callers[at].last == LARDER_CLOSED && callers[at].good == 0);
    }
    resume_server(server);
}

/* A call that takes its time. */
typedef struct {
    larder_client *cache;
    atomic_int inside, left;
    larder_status status;
} slow;

static int change_slowly(void *user, const larder_bytes *old, larder_bytes *value) {
    slow *self = user;
    (void) old;
    *value = larder_text("changed");
    atomic_store(&self->inside, 1);
    sleep_ms(200);
    atomic_store(&self->left, 1);
    return 0;
}

static void *update(void *argument) {
    slow *self = argument;
    self->status = larder_update(self->cache, T("slow"), 0, change_slowly, self, NULL);
    return NULL;
}

static void a_free_waits_for_calls(const server *server) {
    testing = "a free beside a call that takes its time";
    slow self = {.cache = client_of(server, PATIENCE_MS, 0)};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, update, &self) == 0);
    while (!atomic_load(&self.inside)) {
        sleep_ms(1);
    }
    larder_free(self.cache);
    CHECK(atomic_load(&self.left));
    CHECK(pthread_join(thread, NULL) == 0 && self.status == LARDER_CLOSED);
}

static void *run(void *batch) {
    larder_batch_run(batch, NULL);
    return NULL;
}

static void is_for_one_thread(const server *server) {
    testing = "a batch that two threads use";
    larder_client *cache = client_of(server, PATIENCE_MS, 0);
    larder_batch *batch = larder_batch_new(cache);
    pthread_t thread;
    larder_error error = {.size = sizeof error};
    CHECK(larder_batch_get(batch, T("k")) == LARDER_OK && larder_batch_run(batch, NULL) <= LARDER_MISS);
    CHECK(larder_batch_get(batch, T("k")) == LARDER_OK);
    pause_server(server);
    CHECK(pthread_create(&thread, NULL, run, batch) == 0);
    while (larder_batch_result(batch, 0, NULL, NULL, NULL, &error) != LARDER_BAD_ARGUMENT) {
        sleep_ms(1);
    }
    CHECK(strstr(error.message, "two threads") != NULL);
    CHECK(larder_batch_get(batch, T("k")) == LARDER_BAD_ARGUMENT);
    resume_server(server);
    CHECK(pthread_join(thread, NULL) == 0);
    larder_batch_free(batch);
    larder_free(cache);
}

/* ---- Forks ---- */

/* Number of open sockets of this process; sets the highest. */
static int sockets(int *highest) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct stat status;
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
            count++;
            *highest = fd;
        }
    }
    closedir(folder);
    return count;
}

static void in_child(larder_client *cache, larder_batch *batch, larder_stream *stream, int other_sockets, int round) {
    char key[32], got[32];
    size_t len;
    int highest;
    larder_error error = {.size = sizeof error};
    larder_counters counters = {.size = sizeof counters};
    /* The parent's batches and streams are closed, and to free them sends nothing. */
    CHECK(larder_batch_get(batch, T("k")) == LARDER_CLOSED && larder_batch_run(batch, NULL) == LARDER_CLOSED);
    CHECK(larder_stream_set(stream, T("k"), T("v"), NULL, NULL) == LARDER_CLOSED);
    CHECK(larder_stream_barrier(stream, NULL, NULL) == LARDER_CLOSED);
    larder_batch_free(batch);
    larder_stream_free(stream);
    if (round % 4 == 3) {
        larder_free(cache);
        CHECK(sockets(&highest) == other_sockets);
        _exit(0);
    }
    snprintf(key, sizeof key, "child-%d", (int) getpid());
    CHECK_IS(larder_set(cache, T(key), T(key), NULL, NULL, &error), LARDER_OK, &error);
    CHECK_IS(larder_get(cache, T(key), NULL, got, sizeof got, &len, NULL, &error), LARDER_OK, &error);
    CHECK(is_text(larder_data(got, len), key));
    CHECK(larder_read_counters(cache, &counters) == LARDER_OK && counters.dials == 1 && counters.requests == 2);
    CHECK(sockets(&highest) == other_sockets + 1);
    /* A child of the child. */
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
        CHECK(larder_delete(cache, T(key), NULL, NULL) == LARDER_OK);
        larder_free(cache);
        _exit(0);
    }
    int status;
    CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    CHECK(larder_delete(cache, T(key), NULL, NULL) == LARDER_MISS);
    CHECK(larder_read_counters(cache, &counters) == LARDER_OK && counters.dials == 1);
    larder_free(cache);
    _exit(0);
}

static void forks(const server *server, int rounds) {
    testing = "forks beside calls";
    int highest;
    int other_sockets = sockets(&highest);
    larder_client *cache = client_of(server, PATIENCE_MS, 0);
    larder_batch *batch = larder_batch_new(cache);
    larder_stream *stream = larder_stream_new(cache, 0, 0, 0);
    caller callers[THREADS];
    pthread_t threads[THREADS];
    atomic_int over = 0;
    CHECK(larder_batch_get(batch, T("k")) == LARDER_OK);
    CHECK(larder_stream_set(stream, T("of-parent"), T("v"), NULL, NULL) == LARDER_OK);
    begin(callers, threads, cache, &over);
    for (int round = 0; round < rounds; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(PATIENCE_MS / 1000);
            in_child(cache, batch, stream, other_sockets, round);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&over, 1);
    join(threads);
    for (int at = 0; at < THREADS; at++) {
        CHECK(callers[at].last == LARDER_OK && callers[at].good > 0);
    }
    larder_report report = {.size = sizeof report};
    larder_counters counters = {.size = sizeof counters};
    CHECK(larder_batch_run(batch, NULL) <= LARDER_MISS);
    CHECK(larder_stream_barrier(stream, &report, NULL) == LARDER_OK && report.stored == 1);
    CHECK(larder_read_counters(cache, &counters) == LARDER_OK && counters.dials == 1 && counters.overdue == 0);
    larder_batch_free(batch);
    larder_stream_free(stream);
    larder_free(cache);
}

/* A child that closed everything, as daemons do, and opened a file where the parent's socket was. */
static void forks_a_daemon(const server *server) {
    testing = "a daemon";
    int highest = -1;
    larder_client *cache = client_of(server, PATIENCE_MS, 0);
    CHECK(larder_set(cache, T("k"), T("v"), NULL, NULL, NULL) == LARDER_OK);
    CHECK(sockets(&highest) > 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(PATIENCE_MS / 1000);
        CHECK(dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), highest) == highest);
        CHECK(larder_touch(cache, T("k"), 0, NULL) == LARDER_OK);
        struct stat file;
        CHECK(fstat(highest, &file) == 0 && S_ISCHR(file.st_mode));
        larder_free(cache);
        CHECK(fstat(highest, &file) == 0 && S_ISCHR(file.st_mode));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(larder_touch(cache, T("k"), 0, NULL) == LARDER_OK);
    larder_free(cache);
}

static int fork_inside(void *user, const larder_bytes *old, larder_bytes *value) {
    (void) old;
    *(pid_t *) user = fork();
    *value = larder_text("changed");
    return 0;
}

static void forks_in_an_update(const server *server) {
    testing = "a fork in an update";
    larder_client *cache = client_of(server, PATIENCE_MS, 0);
    pid_t child = -1;
    larder_status updated = larder_update(cache, T("update"), 0, fork_inside, &child, NULL);
    if (child == 0) {
        CHECK(updated == LARDER_CLOSED && larder_touch(cache, T("k"), 0, NULL) <= LARDER_MISS);
        _exit(0);
    }
    int status;
    CHECK(updated == LARDER_OK && waitpid(child, &status, 0) == child && status == 0);
    larder_free(cache);
}

/* ---- Signals ---- */

static atomic_long rung;

static void ring(int signal) {
    (void) signal;
    atomic_fetch_add(&rung, 1);
}

static void ring_every_us(long us) {
    struct itimerval timer = {.it_interval = {.tv_usec = us}, .it_value = {.tv_usec = us}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void signals(const server *server) {
    testing = "signals";
    /* The signals interrupt system calls. */
    struct sigaction action = {.sa_handler = ring};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    larder_client *cache = client_of(server, PATIENCE_MS, 0);
    char got[8];
    size_t len;
    CHECK(larder_set(cache, T("k"), T("v"), NULL, NULL, NULL) == LARDER_OK);
    ring_every_us(500);
    for (int at = 0; at < 2000 || atomic_load(&rung) < 20; at++) {
        CHECK(larder_get(cache, T("k"), NULL, got, sizeof got, &len, NULL, NULL) == LARDER_OK && len == 1);
    }
    /* A call that is interrupted all the time still ends at its timeout. */
    ring_every_us(0);
    larder_client *hasty = client_of(server, 200, 0);
    while (larder_get(hasty, T("k"), NULL, got, sizeof got, &len, NULL, NULL) != LARDER_OK) {
    }
    pause_server(server);
    ring_every_us(500);
    double began = seconds_now();
    larder_error error = {.size = sizeof error};
    CHECK_IS(larder_get(hasty, T("k"), NULL, got, sizeof got, &len, NULL, &error), LARDER_TIMEOUT, &error);
    CHECK(error.outcome == LARDER_UNKNOWN && seconds_now() - began < PATIENCE_MS / 1e3);
    ring_every_us(0);
    resume_server(server);
    larder_free(hasty);
    larder_free(cache);
}

/* SIGPIPE, which ends programs that neither ignore nor handle it. */
static void no_pipe_breaks(void) {
    testing = "SIGPIPE";
    server dies = start_server();
    const char *servers[] = {dies.address};
    larder_config config = {.size = sizeof config, .servers = servers, .servers_count = 1};
    config.timeout_ms = PATIENCE_MS;
    config.large_bytes = 1 << 30;
    larder_client *cache = NULL;
    size_t large = 4 << 20;
    CHECK(larder_open(&config, &cache, NULL) == LARDER_OK);
    char *value = calloc(1, large);
    CHECK(value != NULL && larder_touch(cache, T("k"), 0, NULL) == LARDER_MISS);
    stop_server(&dies);
    for (int at = 0; at < 20; at++) {
        CHECK(larder_set(cache, T("k"), larder_data(value, large), NULL, NULL, NULL) >= LARDER_DOWN);
    }
    free(value);
    larder_free(cache);
}

int main(int count, char **arguments) {
    int brief = count > 1 && strcmp(arguments[1], "brief") == 0;
    int unforked = count > 1 && strcmp(arguments[1], "unforked") == 0;
    server server = start_server();
    ends(&server);
    ends_while_it_is_used(&server, brief ? 3 : 50);
    is_freed_while_calls_wait(&server);
    a_free_waits_for_calls(&server);
    is_for_one_thread(&server);
    if (!unforked) {
        forks(&server, brief ? 4 : 40);
    }
    forks_a_daemon(&server);
    forks_in_an_update(&server);
    signals(&server);
    no_pipe_breaks();
    stop_server(&server);
    printf("life: done\n");
    return 0;
}
