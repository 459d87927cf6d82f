/* What the tests share: claims, and a server to talk to. */
#ifndef CHECK_H
#define CHECK_H

#include <larder.h>

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What is being tested, for people. */
static const char *testing = "";

/* Ends the test where a claim does not hold. */
#define CHECK(claim)                                                                          \
    do {                                                                                      \
        if (!(claim)) {                                                                       \
            fprintf(stderr, "%s:%d: error: %s: %s\n", __FILE__, __LINE__, testing, #claim);   \
            abort();                                                                          \
        }                                                                                     \
    } while (0)

/* The same of a status, which is told with the error. */
#define CHECK_IS(status, wanted, error)                                                                         \
    do {                                                                                                        \
        larder_status got_ = (status);                                                                          \
        if (got_ != (wanted)) {                                                                                 \
            fprintf(stderr, "%s:%d: error: %s: %s is %s, not %s: %s\n", __FILE__, __LINE__, testing, #status,   \
                    larder_status_text(got_), larder_status_text(wanted), (error)->message);                    \
            abort();                                                                                            \
        }                                                                                                       \
    } while (0)

/* How long anything may take on a machine that is busy. */
#define PATIENCE_MS 600000

static inline double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static inline void sleep_ms(long ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

typedef struct {
    pid_t pid;
    char address[32];
} server;

static inline int connects(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    int done = connect(fd, (struct sockaddr *) &address, sizeof address) == 0;
    close(fd);
    return done;
}

/* A port that is not used. */
static inline int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *) &address, sizeof address) == 0);
    CHECK(getsockname(fd, (struct sockaddr *) &address, &length) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* Starts the program that LARDER_SERVER names, with more options, the last of which NULL follows, and waits until it listens. It
 * ends with the test. */
static inline server start_server_with(const char *const *options) {
    const char *program = getenv("LARDER_SERVER");
    CHECK(program != NULL);
    for (int attempt = 0; attempt < 5; attempt++) {
        server started;
        char port[8];
        int number = free_port();
        snprintf(port, sizeof port, "%d", number);
        snprintf(started.address, sizeof started.address, "127.0.0.1:%d", number);
        started.pid = fork();
        CHECK(started.pid >= 0);
        if (started.pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (freopen("/dev/null", "w", stdout) == NULL) {
                _exit(1);
            }
            const char *words[32] = {program, "serve", "-l", "127.0.0.1", "-p", port, "--redis-port", "0", "--http-port", "0",
                                     "--threads", "1", "-m", "64"};
            for (size_t at = 14; at < 31 && *options != NULL; at++) {
                words[at] = *options++;
            }
            execv(program, (char *const *) words);
            _exit(1);
        }
        for (double until = seconds_now() + PATIENCE_MS / 1e3; seconds_now() < until; sleep_ms(5)) {
            if (connects(number)) {
                return started;
            }
            /* Another program was faster with the port. */
            if (waitpid(started.pid, NULL, WNOHANG) == started.pid) {
                break;
            }
        }
    }
    CHECK(!"the server starts");
    abort();
}

static inline server start_server(void) {
    static const char *const none[] = {NULL};
    return start_server_with(none);
}

static inline void stop_server(server *server) {
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

/* A server that takes and answers nothing until it goes on. The signal is not at work when it has been sent. */
static inline void pause_server(const server *server) {
    siginfo_t info;
    kill(server->pid, SIGSTOP);
    CHECK(waitid(P_PID, (id_t) server->pid, &info, WSTOPPED) == 0);
}

static inline void resume_server(const server *server) {
    kill(server->pid, SIGCONT);
}

/* A client of a server, with so much patience. */
static inline larder_client *client_of(const server *server, uint32_t timeout_ms, uint32_t options) {
    const char *servers[] = {server->address};
    larder_config config = {.size = sizeof config, .servers = servers, .servers_count = 1, .options = options};
    config.timeout_ms = timeout_ms;
    config.dial_timeout_ms = PATIENCE_MS;
    config.stall_timeout_ms = PATIENCE_MS;
    larder_error error = {.size = sizeof error};
    larder_client *client = NULL;
    CHECK_IS(larder_open(&config, &client, &error), LARDER_OK, &error);
    return client;
}

/* A value is exactly this text. */
static inline int is_text(larder_bytes bytes, const char *text) {
    return bytes.len == strlen(text) && (bytes.len == 0 || memcmp(bytes.data, text, bytes.len) == 0);
}

#endif
