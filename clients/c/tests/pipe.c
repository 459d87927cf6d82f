/* A pipe in an event loop: each request ends once, with its own answer.
 *
 *     pipe [unforked] */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>

static larder_bytes T(const char *text) {
    return larder_text(text);
}

static larder_pipe *pipe_of(const char *address, uint32_t timeout_ms, uint32_t in_flight) {
    larder_config config = {.size = sizeof config, .servers = &address, .servers_count = 1, .in_flight = in_flight};
    config.options = LARDER_VERIFY;
    config.timeout_ms = timeout_ms;
    config.dial_timeout_ms = PATIENCE_MS;
    config.stall_timeout_ms = PATIENCE_MS;
    larder_error error = {.size = sizeof error};
    larder_pipe *pipe = NULL;
    CHECK_IS(larder_pipe_open(&config, &pipe, &error), LARDER_OK, &error);
    return pipe;
}

/* A turn of an event loop. */
static larder_status turn(larder_pipe *pipe, larder_done done, void *user, larder_error *error) {
    int64_t wake_ms;
    uint32_t wants = larder_pipe_wants(pipe, &wake_ms);
    struct pollfd fd = {.fd = larder_pipe_fd(pipe)};
    fd.events = (short) ((wants & LARDER_PIPE_READ ? POLLIN : 0) | (wants & LARDER_PIPE_WRITE ? POLLOUT : 0));
    poll(&fd, 1, (int) wake_ms);
    uint32_t ready = (fd.revents & ~POLLOUT ? LARDER_PIPE_READ : 0) | (fd.revents & ~POLLIN ? LARDER_PIPE_WRITE : 0);
    return larder_pipe_process(pipe, ready, done, user, error);
}

/* State that callbacks share: chains of requests, each of which begins the next. */
enum { CHAINS = 64, LINKS = 100 };

typedef struct {
    larder_pipe *pipe;
    int links[CHAINS], ended[CHAINS];
    int open;
    larder_status last;
} loop;

static void key_of(char *key, size_t room, int chain) {
    snprintf(key, room, "chain-%d", chain);
}

static void submit(loop *self, int chain) {
    char key[32], value[64];
    key_of(key, sizeof key, chain);
    snprintf(value, sizeof value, "%d:%d", chain, self->links[chain] / 2);
    /* A set, and a get of it. */
    larder_request request = {.size = sizeof request, .key = T(key)};
    request.verb = self->links[chain] % 2 == 0 ? LARDER_VERB_SET : LARDER_VERB_GET;
    request.value = T(value);
    larder_error error = {.size = sizeof error};
    CHECK_IS(larder_pipe_submit(self->pipe, &request, (void *) (intptr_t) chain, &error), LARDER_OK, &error);
    self->open++;
}

static void chained(void *user, void *tag, const larder_reply *reply) {
    loop *self = user;
    int chain = (int) (intptr_t) tag;
    char value[64];
    self->open--;
    CHECK(reply->size == sizeof *reply && reply->status == LARDER_OK && reply->outcome == LARDER_ANSWERED);
    CHECK(reply->error == NULL && reply->meta != NULL && reply->meta->size == sizeof *reply->meta);
    if (self->links[chain] % 2 == 1) {
        snprintf(value, sizeof value, "%d:%d", chain, self->links[chain] / 2);
        CHECK(is_text(reply->value, value));
    }
    /* A call that a callback may not make returns an error. */
    CHECK(larder_pipe_process(self->pipe, 0, chained, self, NULL) == LARDER_BAD_ARGUMENT);
    if (++self->links[chain] < LINKS) {
        submit(self, chain);
    }
}

static void chains(const server *server) {
    testing = "requests that begin others";
    larder_error error = {.size = sizeof error};
    loop self = {.pipe = pipe_of(server->address, PATIENCE_MS, 0)};
    int fd = larder_pipe_fd(self.pipe);
    for (int chain = 0; chain < CHAINS; chain++) {
        submit(&self, chain);
    }
    while (self.open > 0) {
        CHECK_IS(turn(self.pipe, chained, &self, &error), LARDER_OK, &error);
    }
    for (int chain = 0; chain < CHAINS; chain++) {
        CHECK(self.links[chain] == LINKS);
    }
    int64_t wake_ms;
    CHECK(larder_pipe_wants(self.pipe, &wake_ms) == LARDER_PIPE_READ && wake_ms == -1);
    CHECK(fd >= 0 && larder_pipe_fd(self.pipe) == fd);
    larder_pipe_free(self.pipe);
    larder_pipe_free(NULL);
}

static void freeing(void *user, void *tag, const larder_reply *reply) {
    (void) tag, (void) reply;
    loop *self = user;
    if (self->open-- == 10) {
        larder_pipe_free(self->pipe);
    }
}

static void is_freed_in_a_callback(const server *server) {
    testing = "a pipe that is freed in a callback";
    loop self = {.pipe = pipe_of(server->address, PATIENCE_MS, 0)};
    for (int chain = 0; chain < 10; chain++) {
        submit(&self, chain);
    }
    while (self.open == 10) {
        turn(self.pipe, freeing, &self, NULL);
    }
}

static void note(void *user, void *tag, const larder_reply *reply) {
    loop *self = user;
    self->ended[(intptr_t) tag]++;
    self->last = reply->status;
    CHECK((reply->status < LARDER_BAD_KEY) == (reply->error == NULL));
    CHECK(reply->error == NULL || reply->error->message[0] != 0);
    self->open--;
}

static void limits(const server *server) {
    testing = "a pipe that is full";
    larder_error error = {.size = sizeof error};
    loop self = {.pipe = pipe_of(server->address, PATIENCE_MS, 10)};
    larder_request request = {.size = sizeof request, .verb = LARDER_VERB_GET, .key = T("none")};
    for (int round = 0; round < 2; round++) {
        for (int at = 0; at < 10; at++) {
            CHECK_IS(larder_pipe_submit(self.pipe, &request, (void *) (intptr_t) at, &error), LARDER_OK, &error);
            self.open++;
        }
        CHECK(larder_pipe_submit(self.pipe, &request, NULL, &error) == LARDER_WOULD_BLOCK);
        CHECK(error.outcome == LARDER_NOT_SENT && error.message[0] != 0);
        while (self.open > 0) {
            CHECK_IS(turn(self.pipe, note, &self, &error), LARDER_OK, &error);
        }
        CHECK(self.last == LARDER_MISS);
    }
    request.key = T("a b");
    CHECK(larder_pipe_submit(self.pipe, &request, NULL, NULL) == LARDER_BAD_KEY);
    CHECK(larder_pipe_process(self.pipe, 4, note, &self, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_pipe_process(self.pipe, 0, NULL, NULL, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_pipe_fd(NULL) == -1 && larder_pipe_wants(NULL, NULL) == 0);
    larder_pipe_free(self.pipe);

    const char *name = "localhost:11211";
    larder_config config = {.size = sizeof config, .servers = &name, .servers_count = 1};
    larder_pipe *none = self.pipe;
    CHECK(larder_pipe_open(&config, &none, &error) == LARDER_BAD_ARGUMENT && none == NULL);
    CHECK(strstr(error.message, "localhost") != NULL);
}

static void the_server_dies(void) {
    testing = "a pipe whose server dies";
    server dies = start_server();
    larder_error error = {.size = sizeof error};
    loop self = {.pipe = pipe_of(dies.address, PATIENCE_MS, 0)};
    larder_request request = {.size = sizeof request, .verb = LARDER_VERB_TOUCH, .key = T("k")};
    CHECK(larder_pipe_submit(self.pipe, &request, NULL, NULL) == LARDER_OK);
    self.open = 1;
    while (self.open > 0) {
        CHECK_IS(turn(self.pipe, note, &self, &error), LARDER_OK, &error);
    }
    memset(self.ended, 0, sizeof self.ended);
    pause_server(&dies);
    for (; self.open < 50; self.open++) {
        CHECK(larder_pipe_submit(self.pipe, &request, (void *) (intptr_t) self.open, NULL) == LARDER_OK);
    }
    CHECK(larder_pipe_process(self.pipe, 0, note, &self, NULL) == LARDER_OK);
    stop_server(&dies);
    while (turn(self.pipe, note, &self, &error) == LARDER_OK) {
    }
    CHECK(error.status == LARDER_LOST && self.open == 0 && self.last == LARDER_LOST);
    for (int at = 0; at < 50; at++) {
        CHECK(self.ended[at] == 1);
    }
    CHECK(larder_pipe_wants(self.pipe, NULL) == 0);
    CHECK(larder_pipe_process(self.pipe, 0, note, &self, NULL) == LARDER_LOST);
    CHECK(larder_pipe_submit(self.pipe, &request, NULL, &error) == LARDER_LOST && error.outcome == LARDER_NOT_SENT);
    larder_pipe_free(self.pipe);

    self.pipe = pipe_of(dies.address, PATIENCE_MS, 0);
    CHECK(larder_pipe_submit(self.pipe, &request, NULL, NULL) == LARDER_OK);
    self.open = 1;
    while (turn(self.pipe, note, &self, &error) == LARDER_OK) {
    }
    CHECK(error.status == LARDER_DOWN && error.os_error == ECONNREFUSED && self.open == 0 && self.last == LARDER_DOWN);
    larder_pipe_free(self.pipe);
}

static void is_late(const server *server) {
    testing = "a pipe whose server is late";
    larder_error error = {.size = sizeof error};
    loop self = {.pipe = pipe_of(server->address, 50, 0)};
    larder_request request = {.size = sizeof request, .verb = LARDER_VERB_TOUCH, .key = T("k")};
    pause_server(server);
    CHECK(larder_pipe_submit(self.pipe, &request, NULL, NULL) == LARDER_OK);
    self.open = 1;
    while (self.open > 0) {
        CHECK_IS(turn(self.pipe, note, &self, &error), LARDER_OK, &error);
    }
    CHECK(self.last == LARDER_TIMEOUT);
    resume_server(server);
    larder_pipe_free(self.pipe);
}

static void forks(const server *server) {
    testing = "a pipe and a fork";
    larder_error error = {.size = sizeof error};
    loop self = {.pipe = pipe_of(server->address, PATIENCE_MS, 0)};
    submit(&self, 0);
    while (self.links[0] < 10) {
        CHECK_IS(turn(self.pipe, chained, &self, &error), LARDER_OK, &error);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        larder_request request = {.size = sizeof request, .verb = LARDER_VERB_TOUCH, .key = T("k")};
        CHECK(larder_pipe_submit(self.pipe, &request, NULL, NULL) == LARDER_CLOSED);
        CHECK(larder_pipe_process(self.pipe, LARDER_PIPE_READ, chained, &self, NULL) == LARDER_CLOSED);
        CHECK(larder_pipe_wants(self.pipe, NULL) == 0);
        int fd = larder_pipe_fd(self.pipe);
        larder_pipe_free(self.pipe);
        char byte;
        CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EBADF);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    while (self.links[0] < LINKS) {
        CHECK_IS(turn(self.pipe, chained, &self, &error), LARDER_OK, &error);
    }
    larder_pipe_free(self.pipe);
}

int main(int count, char **arguments) {
    int unforked = count > 1 && strcmp(arguments[1], "unforked") == 0;
    server server = start_server();
    chains(&server);
    is_freed_in_a_callback(&server);
    limits(&server);
    is_late(&server);
    if (!unforked) {
        forks(&server);
    }
    stop_server(&server);
    the_server_dies();
    printf("pipe: done\n");
    return 0;
}
