/* The cases of spec/client, which state in no language's terms what a client sends and returns; its README has their
 * grammar. The server of a case is a thread that reads the expected bytes and sends those of the case.
 *
 *     spec FOLDER [brief]
 *
 * `brief` leaves out replies that come byte by byte, or are cut after each byte, and short timeouts. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/un.h>

enum { FIELDS_MAX = 16, ACTS_MAX = 16, CALLS_MAX = 24, CASES_MAX = 200, OPAQUES_MAX = 16 };

/* ---- Bytes that grow ---- */

typedef struct {
    char *data;
    size_t len, cap;
} text;

static void put(text *to, const void *data, size_t len) {
    if (to->len + len + 1 > to->cap) {
        to->cap = (to->len + len + 1) * 2;
        to->data = realloc(to->data, to->cap);
        CHECK(to->data != NULL);
    }
    if (len > 0) {
        memcpy(to->data + to->len, data, len);
    }
    to->len += len;
    to->data[to->len] = 0;
}

__attribute__((format(printf, 2, 3))) static void say(text *to, const char *format, ...) {
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    CHECK(len >= 0 && (size_t) len < sizeof line);
    put(to, line, (size_t) len);
}

/* Reads \r, \n, \\, \x20 and \{N:c}, which is N times c. */
static text unescaped(const char *from, size_t len) {
    text to = {NULL, 0, 0};
    put(&to, "", 0);
    for (size_t at = 0; at < len; at++) {
        char byte = from[at];
        if (byte != '\\') {
            put(&to, &byte, 1);
            continue;
        }
        CHECK(++at < len);
        switch (from[at]) {
        case 'r': put(&to, "\r", 1); break;
        case 'n': put(&to, "\n", 1); break;
        case '\\': put(&to, "\\", 1); break;
        case 'x': {
            char digits[3] = {from[at + 1], from[at + 2], 0};
            byte = (char) strtol(digits, NULL, 16);
            put(&to, &byte, 1);
            at += 2;
            break;
        }
        case '{': {
            const char *colon = memchr(from + at, ':', len - at), *end = memchr(from + at, '}', len - at);
            CHECK(colon != NULL && end != NULL);
            text what = unescaped(colon + 1, (size_t) (end - colon - 1));
            for (long times = strtol(from + at + 1, NULL, 10); times > 0; times--) {
                put(&to, what.data, what.len);
            }
            free(what.data);
            at = (size_t) (end - from);
            break;
        }
        default: CHECK(!"an escape");
        }
    }
    return to;
}

/* ---- Cases ---- */

typedef struct {
    char *name;
    text value;
    const char *raw; /* as it is written */
} field;

typedef struct {
    field list[FIELDS_MAX];
    int count;
} fields;

typedef struct {
    enum { EXPECT, ANSWER, CLOSE, DIAL } kind;
    char *pattern; /* of EXPECT */
    text bytes;    /* of ANSWER */
} act;

typedef struct {
    char *verb, *want;
    fields given;
    act acts[ACTS_MAX];
    int acts_count;
} call;

typedef struct {
    char *name;
    fields with;
    call calls[CALLS_MAX];
    int calls_count;
} test_case;

static test_case cases[CASES_MAX];
static int cases_count;

static fields read_fields(char *line) {
    fields read = {.count = 0};
    for (char *rest = NULL, *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        CHECK(read.count < FIELDS_MAX);
        field *one = &read.list[read.count++];
        char *value = strchr(word, '=');
        one->raw = value == NULL ? "" : strdup(value + 1);
        one->value = unescaped(one->raw, strlen(one->raw));
        one->name = strndup(word, value == NULL ? strlen(word) : (size_t) (value - word));
    }
    return read;
}

static const field *find(const fields *given, const char *name) {
    for (int at = 0; at < given->count; at++) {
        if (strcmp(given->list[at].name, name) == 0) {
            return &given->list[at];
        }
    }
    return NULL;
}

static void read_line(const char *file, char *line) {
    char *rest = strchr(line, ' ');
    if (rest != NULL) {
        *rest++ = 0;
        rest += strspn(rest, " ");
    } else {
        rest = line + strlen(line);
    }
    if (*line == 0 || strcmp(line, "#") == 0) {
        return;
    }
    if (strcmp(line, "==") == 0) {
        CHECK(cases_count < CASES_MAX);
        text name = {NULL, 0, 0};
        say(&name, "%s: %s", file, rest);
        cases[cases_count++].name = name.data;
        return;
    }
    CHECK(cases_count > 0);
    test_case *last = &cases[cases_count - 1];
    if (strcmp(line, "with") == 0) {
        last->with = read_fields(rest);
        return;
    }
    if (strcmp(line, "call") == 0) {
        CHECK(last->calls_count < CALLS_MAX);
        call *made = &last->calls[last->calls_count++];
        char *given = strchr(rest, ' ');
        made->verb = strndup(rest, given == NULL ? strlen(rest) : (size_t) (given - rest));
        made->want = strdup("");
        if (given != NULL) {
            made->given = read_fields(given + 1);
        }
        return;
    }
    CHECK(last->calls_count > 0);
    call *made = &last->calls[last->calls_count - 1];
    if (strcmp(line, "=") == 0) {
        free(made->want);
        made->want = unescaped(rest, strlen(rest)).data;
        return;
    }
    CHECK(made->acts_count < ACTS_MAX);
    act *done = &made->acts[made->acts_count++];
    if (strcmp(line, ">") == 0) {
        done->kind = EXPECT;
        done->pattern = strdup(rest);
    } else if (strcmp(line, "<") == 0) {
        done->kind = ANSWER;
        done->bytes = unescaped(rest, strlen(rest));
    } else if (strcmp(line, "close") == 0) {
        done->kind = CLOSE;
    } else {
        CHECK(strcmp(line, "dial") == 0);
        done->kind = DIAL;
    }
}

static int is_text_file(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && strcmp(dot, ".txt") == 0;
}

static void read_cases(const char *folder) {
    struct dirent **files;
    int count = scandir(folder, &files, is_text_file, alphasort);
    CHECK(count > 5);
    for (int at = 0; at < count; at++) {
        text path = {NULL, 0, 0};
        say(&path, "%s/%s", folder, files[at]->d_name);
        FILE *file = fopen(path.data, "r");
        CHECK(file != NULL);
        char *line = NULL;
        size_t room = 0;
        for (ssize_t len; (len = getline(&line, &room, file)) >= 0;) {
            line[strcspn(line, "\n")] = 0;
            read_line(files[at]->d_name, line);
        }
        free(line);
        fclose(file);
        free(path.data);
        free(files[at]);
    }
    free(files);
}

/* ---- The server of a case ---- */

typedef struct {
    struct sockaddr_un address;
    int listener, stream; /* -1: not connected */
    int slowly;
    const char *greets[2]; /* what is asked first, and answered; NULL: that is part of the case */
    struct {
        char name[8], opaque[16];
    } opaques[OPAQUES_MAX];
    int opaques_count;
    const call *playing;
} played;

static void receive(const played *server, char *to, size_t len) {
    struct pollfd ready = {.fd = server->stream, .events = POLLIN};
    for (size_t got = 0; got < len;) {
        CHECK(poll(&ready, 1, PATIENCE_MS) == 1);
        ssize_t more = recv(server->stream, to + got, len - got, 0);
        CHECK(more > 0);
        got += (size_t) more;
    }
}

static void expect_bytes(const played *server, const char *pattern, size_t len) {
    text want = unescaped(pattern, len);
    char *got = calloc(1, want.len + 1);
    CHECK(got != NULL);
    receive(server, got, want.len);
    if (memcmp(got, want.data, want.len) != 0) {
        fprintf(stderr, "error: %s: \"%s\" came in place of \"%s\"\n", testing, got, want.data);
        abort();
    }
    free(got);
    free(want.data);
}

/* Reads the expected bytes; O{n} is an opaque that the client has chosen. */
static void expect(played *server, const char *pattern) {
    const char *mark = strstr(pattern, "O{");
    expect_bytes(server, pattern, mark == NULL ? strlen(pattern) : (size_t) (mark - pattern));
    while (mark != NULL) {
        const char *name = mark + 2, *end = strchr(name, '}');
        CHECK(end != NULL && server->opaques_count < OPAQUES_MAX);
        char *known = server->opaques[server->opaques_count].name;
        char *opaque = server->opaques[server->opaques_count++].opaque;
        snprintf(known, 8, "%.*s", (int) (end - name), name);
        /* Up to the byte that the pattern has behind it. */
        const char *rest = end + 1;
        char stop = *rest == '\\' ? '\r' : *rest;
        size_t len = 0;
        do {
            CHECK(len < 15);
            receive(server, &opaque[len++], 1);
        } while (opaque[len - 1] != stop);
        opaque[len - 1] = 0;
        CHECK(opaque[0] == 'O');
        rest += *rest == '\\' ? 2 : 1;
        mark = strstr(rest, "O{");
        expect_bytes(server, rest, mark == NULL ? strlen(rest) : (size_t) (mark - rest));
    }
}

static void answer(const played *server, const text *bytes) {
    text told = {NULL, 0, 0};
    for (size_t at = 0; at < bytes->len; at++) {
        int is_mark = 0;
        for (int of = 0; of < server->opaques_count && !is_mark; of++) {
            char mark[16];
            size_t len = (size_t) snprintf(mark, sizeof mark, "O{%s}", server->opaques[of].name);
            if (bytes->len - at >= len && memcmp(bytes->data + at, mark, len) == 0) {
                put(&told, server->opaques[of].opaque, strlen(server->opaques[of].opaque));
                at += len - 1;
                is_mark = 1;
            }
        }
        if (!is_mark) {
            put(&told, bytes->data + at, 1);
        }
    }
    /* A client that has read enough may be gone. */
    size_t step = server->slowly && told.len < 4096 ? 1 : told.len;
    for (size_t at = 0; at < told.len; at += step) {
        for (size_t sent = 0; sent < step;) {
            ssize_t more = send(server->stream, told.data + at + sent, step - sent, MSG_NOSIGNAL);
            if (more <= 0) {
                break;
            }
            sent += (size_t) more;
        }
    }
    free(told.data);
}

static void dial(played *server) {
    struct pollfd ready = {.fd = server->listener, .events = POLLIN};
    CHECK(poll(&ready, 1, PATIENCE_MS) == 1);
    server->stream = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(server->stream >= 0);
    if (server->greets[0] != NULL) {
        expect(server, server->greets[0]);
        text greeting = unescaped(server->greets[1], strlen(server->greets[1]));
        answer(server, &greeting);
        free(greeting.data);
    }
}

static void hang_up(played *server) {
    if (server->stream >= 0) {
        shutdown(server->stream, SHUT_RDWR);
        close(server->stream);
        server->stream = -1;
    }
}

static void *play(void *argument) {
    played *server = argument;
    for (int at = 0; at < server->playing->acts_count; at++) {
        const act *done = &server->playing->acts[at];
        switch (done->kind) {
        case EXPECT:
            if (server->stream < 0) {
                dial(server);
            }
            expect(server, done->pattern);
            break;
        case ANSWER: answer(server, &done->bytes); break;
        case CLOSE: hang_up(server); break;
        case DIAL:
            hang_up(server);
            dial(server);
            break;
        }
    }
    return NULL;
}

static played listening(const test_case *of, int slowly) {
    static int number;
    played server = {.stream = -1, .slowly = slowly, .address = {.sun_family = AF_UNIX}};
    const char *folder = getenv("TMPDIR") == NULL ? "/tmp" : getenv("TMPDIR");
    int len = snprintf(server.address.sun_path, sizeof server.address.sun_path, "%s/larder-spec-%d-%d", folder,
                       (int) getpid(), number++);
    CHECK((size_t) len < sizeof server.address.sun_path);
    unlink(server.address.sun_path);
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(server.listener >= 0);
    CHECK(bind(server.listener, (struct sockaddr *) &server.address, sizeof server.address) == 0);
    CHECK(listen(server.listener, 16) == 0);
    const field *protocol = find(&of->with, "protocol");
    if (protocol != NULL && strcmp(protocol->raw, "classic") == 0) {
        server.greets[0] = "version\\r\\n", server.greets[1] = "VERSION 1.6.45\\r\\n";
    } else if (protocol == NULL && find(&of->with, "auth") == NULL) {
        server.greets[0] = "mn\\r\\n", server.greets[1] = "MN\\r\\n";
    }
    return server;
}

/* ---- The client ---- */

/* Whether a case has reads sent again (1), as by default, or not (0); -1 if it does not say. */
static int retries(const test_case *of) {
    const field *retry = find(&of->with, "retry-reads");
    return retry == NULL ? -1 : strcmp(retry->raw, "no") != 0;
}

/* Replies are cut: a lost reply must be an error, and its request must not be sent again. */
static int is_cut;

/* The configuration of a case's client; the address, and room for its user and password, are the caller's. */
static void configure(larder_config *config, const test_case *of, const char *const *address, char *user, size_t room) {
    const field *protocol = find(&of->with, "protocol"), *auth = find(&of->with, "auth");
    const field *prefix = find(&of->with, "prefix");
    memset(config, 0, sizeof *config);
    config->size = sizeof *config;
    config->servers = address;
    config->servers_count = 1;
    config->timeout_ms = find(&of->with, "timeout") != NULL ? 100 : PATIENCE_MS;
    config->dial_timeout_ms = PATIENCE_MS;
    config->stall_timeout_ms = PATIENCE_MS;
    config->options = (is_cut || retries(of) == 0 ? LARDER_NO_RETRY_READS : 0) |
                      (find(&of->with, "verify") != NULL ? LARDER_VERIFY : 0) |
                      (find(&of->with, "binary-keys") != NULL ? LARDER_BINARY_KEYS : 0);
    config->protocol = protocol == NULL                        ? LARDER_META
                       : strcmp(protocol->raw, "classic") == 0 ? LARDER_CLASSIC
                                                               : LARDER_AUTO;
    if (prefix != NULL) {
        config->key_prefix = larder_data(prefix->value.data, prefix->value.len);
    }
    if (auth != NULL) {
        snprintf(user, room, "%s", auth->raw);
        char *password = strchr(user, ':');
        CHECK(password != NULL);
        *password++ = 0;
        config->user = user;
        config->password = password;
    }
}

static larder_bytes bytes_of(const call *made, const char *name) {
    const field *found = find(&made->given, name);
    return found == NULL ? larder_data(NULL, 0) : larder_data(found->value.data, found->value.len);
}

static uint64_t number_of(const call *made, const char *name) {
    const field *found = find(&made->given, name);
    return found == NULL ? 0 : strtoull(found->raw, NULL, 10);
}

/* Seconds, in milliseconds. */
static int64_t time_of(const call *made, const char *name) {
    const field *found = find(&made->given, name);
    double ms = found == NULL ? 0 : strtod(found->raw, NULL) * 1000;
    return (int64_t) (ms < 0 ? ms - 0.5 : ms + 0.5);
}

static int has(const call *made, const char *name) {
    return find(&made->given, name) != NULL;
}

static uint32_t wants(const call *made) {
    static const struct {
        const char *name;
        uint32_t bit;
    } known[] = {
        {"flags", LARDER_WANT_FLAGS},
        {"cas", LARDER_WANT_CAS},
        {"ttl", LARDER_WANT_TTL},
        {"size", LARDER_WANT_SIZE},
        {"last-access", LARDER_WANT_LAST_ACCESS},
        {"hit-before", LARDER_WANT_HIT_BEFORE},
    };
    uint32_t bits = has(made, "no-bump") ? LARDER_NO_BUMP : 0;
    const field *want = find(&made->given, "want");
    char names[100] = "", *rest = NULL;
    if (want != NULL) {
        snprintf(names, sizeof names, "%s", want->raw);
    }
    for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        size_t of = 0;
        while (strcmp(known[of].name, name) != 0) {
            CHECK(++of < sizeof known / sizeof *known);
        }
        bits |= known[of].bit;
    }
    return bits;
}

/* ---- What calls return, in the words of the cases ---- */

static void say_failed(text *to, const larder_error *error) {
    static const char *const outcomes[] = {"not-sent", "unknown", "answered"};
    const char *name = NULL;
    switch (error->status) {
    case LARDER_MISS: say(to, "miss"); return;
    case LARDER_CONFLICT: say(to, "conflict"); return;
    case LARDER_NOT_STORED: say(to, "not-stored"); return;
    case LARDER_BAD_KEY: name = "bad-key"; break;
    case LARDER_TOO_LARGE: name = "too-large"; break;
    case LARDER_BAD_TTL: name = "bad-ttl"; break;
    case LARDER_NOT_NUMBER: name = "not-number"; break;
    case LARDER_CLOSED: name = "closed"; break;
    case LARDER_AUTH: name = "auth"; break;
    case LARDER_SERVER_MEMORY: name = "server-memory"; break;
    case LARDER_SERVER:
    case LARDER_UNSUPPORTED: name = "server"; break;
    case LARDER_PROTOCOL: name = "protocol"; break;
    case LARDER_TIMEOUT: name = "timeout"; break;
    case LARDER_DOWN: name = "down"; break;
    case LARDER_LOST: name = "lost"; break;
    case LARDER_OK:
    case LARDER_TRUNCATED:
    case LARDER_BAD_ARGUMENT:
    case LARDER_WOULD_BLOCK:
    case LARDER_BUG: name = error->message; break;
    }
    say(to, "error %s %s", name, outcomes[error->outcome]);
}

static void say_number(text *to, const char *name, uint64_t number) {
    if (number > 0) {
        say(to, " %s=%llu", name, (unsigned long long) number);
    }
}

static uint64_t in_seconds(int64_t ms) {
    return ms == LARDER_FOREVER ? 0 : (uint64_t) ms / 1000;
}

static void say_hit(text *to, larder_bytes value, const larder_meta *meta) {
    say(to, "hit value=");
    put(to, value.data, value.len);
    say_number(to, "flags", meta->flags);
    say_number(to, "cas", meta->cas);
    say_number(to, "ttl", in_seconds(meta->ttl_ms));
    say_number(to, "size", meta->bytes);
    say_number(to, "last-access", in_seconds(meta->last_access_ms));
    say_number(to, "hit-before", (meta->marks & LARDER_HIT_BEFORE) != 0);
    say_number(to, "stale", (meta->marks & LARDER_STALE) != 0);
    say_number(to, "won", (meta->marks & LARDER_WON) != 0);
    say_number(to, "pending", (meta->marks & LARDER_PENDING) != 0);
}

/* The parts of "verb:key:value,…". */
typedef struct {
    char verb[8], key[40], value[40];
} part;

static int parts_of(const call *made, const char *name, part *parts, int room) {
    char words[400], *rest = NULL;
    int count = 0;
    snprintf(words, sizeof words, "%s", find(&made->given, name)->raw);
    for (char *word = strtok_r(words, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        CHECK(count < room);
        part *one = &parts[count++];
        memset(one, 0, sizeof *one);
        CHECK(sscanf(word, "%7[^:]:%39[^:]:%39s", one->verb, one->key, one->value) >= 1);
    }
    return count;
}

static void make_many(text *to, larder_client *client, const call *made) {
    larder_batch *batch = larder_batch_new(client);
    larder_error error = {.size = sizeof error}, first = {.size = 0};
    const field *keys = find(&made->given, "keys");
    size_t count = 0;
    for (const char *key = keys->raw; key != NULL; count++) {
        const char *comma = strchr(key, ',');
        text bytes = unescaped(key, comma == NULL ? strlen(key) : (size_t) (comma - key));
        CHECK(larder_batch_get(batch, larder_data(bytes.data, bytes.len)) == LARDER_OK);
        free(bytes.data);
        key = comma == NULL ? NULL : comma + 1;
    }
    larder_status ran = larder_batch_run(batch, &error);
    for (size_t at = 0; at < count; at++) {
        larder_bytes value;
        larder_meta meta = {.size = sizeof meta};
        larder_status status = larder_batch_result(batch, at, &value, NULL, &meta, &error);
        say(to, at == 0 ? "" : "; ");
        if (status == LARDER_OK) {
            say_hit(to, value, &meta);
        } else {
            say_failed(to, &error);
        }
        if (status >= LARDER_BAD_KEY && first.size == 0) {
            first = error;
        }
    }
    CHECK(ran == (first.size == 0 ? LARDER_OK : first.status));
    if (first.size > 0) {
        say(to, "; all: ");
        say_failed(to, &first);
    }
    larder_batch_free(batch);
}

static void make_batch(text *to, larder_client *client, const call *made) {
    part parts[16];
    int count = parts_of(made, "of", parts, 16);
    larder_batch *batch = larder_batch_new(client);
    larder_error error = {.size = sizeof error};
    for (int at = 0; at < count; at++) {
        larder_request request = {.size = sizeof request, .key = larder_text(parts[at].key), .delta = 1};
        request.value = larder_text(parts[at].value);
        request.verb = strcmp(parts[at].verb, "get") == 0   ? LARDER_VERB_GET
                       : strcmp(parts[at].verb, "set") == 0 ? LARDER_VERB_SET
                       : strcmp(parts[at].verb, "incr") == 0 ? LARDER_VERB_INCR
                                                              : LARDER_VERB_DELETE;
        size_t number = 99;
        CHECK_IS(larder_batch_add(batch, &request, &number, &error), LARDER_OK, &error);
        CHECK(number == (size_t) at);
    }
    larder_batch_run(batch, &error);
    for (int at = 0; at < count; at++) {
        larder_bytes value;
        uint64_t counted;
        say(to, at == 0 ? "" : "; ");
        if (larder_batch_result(batch, (size_t) at, &value, &counted, NULL, &error) == LARDER_OK) {
            say(to, "value=");
            put(to, value.data, value.len);
            say(to, " number=%llu", (unsigned long long) counted);
        } else {
            say_failed(to, &error);
        }
    }
    larder_batch_free(batch);
}

static void make_stream(text *to, larder_client *client, const call *made, int quiet) {
    part parts[16];
    int count = parts_of(made, "of", parts, 16);
    larder_stream *stream = larder_stream_new(client, 0, 0, quiet);
    larder_error error = {.size = sizeof error};
    for (int at = 0; at < count; at++) {
        larder_bytes key = larder_text(parts[at].key);
        larder_status sent = strcmp(parts[at].verb, "set") == 0
                                 ? larder_stream_set(stream, key, larder_text(parts[at].value), NULL, &error)
                                 : larder_stream_delete(stream, key, NULL, &error);
        CHECK_IS(sent, LARDER_OK, &error);
    }
    larder_report report = {.size = sizeof report};
    larder_status status = larder_stream_barrier(stream, &report, &error);
    CHECK(report.sent == report.stored + report.refused + report.unknown);
    CHECK((status == LARDER_OK) == (report.sent == report.stored));
    say(to, "sent=%llu stored=%llu refused=%llu unknown=%llu", (unsigned long long) report.sent,
        (unsigned long long) report.stored, (unsigned long long) report.refused, (unsigned long long) report.unknown);
    for (size_t at = 0; at < report.told; at++) {
        larder_bytes key;
        larder_error refused = {.size = sizeof refused};
        larder_stream_refused(stream, at, &key, &refused);
        say(to, "; %.*s ", (int) key.len, key.len > 0 ? (const char *) key.data : "");
        say_failed(to, &refused);
    }
    if (status >= LARDER_TIMEOUT) {
        say(to, "; all: ");
        say_failed(to, &error);
    }
    larder_stream_free(stream);
}

/* A request of one key, with its options. */
typedef struct {
    larder_request request;
    larder_read read;
    larder_store store;
    larder_remove remove;
    larder_count count;
} asked;

/* Its reply. */
typedef struct {
    int ended;
    larder_status status;
    text value;
    uint64_t counted;
    larder_meta meta;
    larder_error error;
} answered;

/* The request of a call, if it is one of one key. */
static int ask(const call *made, asked *to) {
    static const char *const modes[] = {"set", "add", "replace", "append", "prepend"};
    const char *verb = made->verb;
    memset(to, 0, sizeof *to);
    to->request.size = sizeof to->request;
    to->request.key = bytes_of(made, "key");
    if (strcmp(verb, "get") == 0 || strcmp(verb, "item") == 0) {
        to->request.verb = LARDER_VERB_GET;
        to->request.read = &to->read;
        to->read.size = sizeof to->read;
        to->read.want = wants(made);
        to->read.touch_ms = time_of(made, "touch");
        if (has(made, "touch") && to->read.touch_ms == 0) {
            to->read.touch_ms = LARDER_FOREVER;
        }
        return 1;
    }
    if (strcmp(verb, "delete") == 0 || strcmp(verb, "invalidate") == 0) {
        to->request.verb = LARDER_VERB_DELETE;
        to->request.remove = &to->remove;
        to->remove.size = sizeof to->remove;
        to->remove.cas = number_of(made, "cas");
        to->remove.keep_stale_ms = time_of(made, *verb == 'i' ? "serve-stale" : "keep-stale");
        to->remove.options = has(made, "empty") ? LARDER_KEEP_EMPTY : 0;
        return 1;
    }
    if (strcmp(verb, "touch") == 0) {
        to->request.verb = LARDER_VERB_TOUCH;
        to->request.ttl_ms = time_of(made, "ttl");
        return 1;
    }
    if (strcmp(verb, "incr") == 0 || strcmp(verb, "decr") == 0) {
        to->request.verb = *verb == 'i' ? LARDER_VERB_INCR : LARDER_VERB_DECR;
        to->request.delta = number_of(made, "delta");
        to->request.count = &to->count;
        to->count.size = sizeof to->count;
        to->count.options = has(made, "create") ? LARDER_CREATE : 0;
        to->count.initial = number_of(made, "init");
        to->count.ttl_ms = time_of(made, "ttl");
        to->count.cas = number_of(made, "cas");
        return 1;
    }
    for (int mode = LARDER_SET; mode <= LARDER_PREPEND; mode++) {
        if (strcmp(verb, modes[mode]) == 0) {
            to->request.verb = LARDER_VERB_SET;
            to->request.value = bytes_of(made, "value");
            to->request.store = &to->store;
            to->store.size = sizeof to->store;
            to->store.mode = (larder_mode) mode;
            to->store.flags = (uint32_t) number_of(made, "flags");
            to->store.ttl_ms = time_of(made, "ttl");
            to->store.cas = number_of(made, "cas");
            to->store.options = (has(made, "want-cas") ? LARDER_TELL_CAS : 0) |
                                (has(made, "stale-if-older") ? LARDER_STALE_IF_OLDER : 0);
            return 1;
        }
    }
    return 0;
}

/* Sends the request by its call. */
static void by_call(larder_client *client, const call *made, const asked *of, answered *to) {
    static char buffer[200000];
    const larder_request *request = &of->request;
    larder_error *error = &to->error;
    larder_bytes value;
    size_t len;
    switch (request->verb) {
    case LARDER_VERB_GET:
        /* Both ways to read. */
        if (strcmp(made->verb, "get") == 0) {
            to->status = larder_get_alloc(client, request->key, NULL, &value, &to->meta, error);
            put(&to->value, value.data, value.len);
            larder_bytes_free(&value);
        } else {
            to->status = larder_get(client, request->key, &of->read, buffer, sizeof buffer, &len, &to->meta, error);
            put(&to->value, buffer, len);
        }
        break;
    case LARDER_VERB_SET:
        to->status = larder_set(client, request->key, request->value, &of->store, &to->meta, error);
        break;
    case LARDER_VERB_DELETE:
        to->status = *made->verb == 'i' ? larder_invalidate(client, request->key, of->remove.keep_stale_ms, error)
                                        : larder_delete(client, request->key, &of->remove, error);
        break;
    case LARDER_VERB_TOUCH: to->status = larder_touch(client, request->key, request->ttl_ms, error); break;
    case LARDER_VERB_INCR:
        to->status = larder_incr(client, request->key, request->delta, &of->count, &to->counted, error);
        break;
    case LARDER_VERB_DECR:
        to->status = larder_decr(client, request->key, request->delta, &of->count, &to->counted, error);
        break;
    }
    CHECK(to->status == error->status);
}

static void take(void *user, void *tag, const larder_reply *reply) {
    answered *to = user;
    CHECK(tag == to && !to->ended);
    to->ended = 1;
    to->status = reply->status;
    to->counted = reply->counted;
    put(&to->value, reply->value.data, reply->value.len);
    if (reply->meta != NULL) {
        to->meta = *reply->meta;
    }
    if (reply->error != NULL) {
        to->error = *reply->error;
        CHECK(reply->error->outcome == reply->outcome);
    }
}

/* Sends the request by a pipe; 0 when the pipe has ended. */
static int by_pipe(larder_pipe *pipe, const asked *of, answered *to) {
    to->status = larder_pipe_submit(pipe, &of->request, to, &to->error);
    if (to->status != LARDER_OK) {
        return 1;
    }
    int open = 1;
    while (!to->ended) {
        CHECK(open);
        int64_t wake_ms;
        uint32_t wants_now = larder_pipe_wants(pipe, &wake_ms);
        struct pollfd fd = {.fd = larder_pipe_fd(pipe)};
        fd.events = (short) ((wants_now & LARDER_PIPE_READ ? POLLIN : 0) | (wants_now & LARDER_PIPE_WRITE ? POLLOUT : 0));
        poll(&fd, 1, (int) wake_ms);
        uint32_t ready = (fd.revents & ~POLLOUT ? LARDER_PIPE_READ : 0) | (fd.revents & ~POLLIN ? LARDER_PIPE_WRITE : 0);
        open = larder_pipe_process(pipe, ready, take, to, NULL) == LARDER_OK;
    }
    return open;
}

/* The result of a request of one key, in the words of the cases. */
static text said(const asked *of, answered *answer) {
    text to = {NULL, 0, 0};
    put(&to, "", 0);
    if (answer->status != LARDER_OK) {
        answer->error.status = answer->status;
        say_failed(&to, &answer->error);
    } else {
        switch (of->request.verb) {
        case LARDER_VERB_GET: say_hit(&to, larder_data(answer->value.data, answer->value.len), &answer->meta); break;
        case LARDER_VERB_SET:
            say(&to, "stored");
            say_number(&to, "cas", answer->meta.cas);
            break;
        case LARDER_VERB_DELETE: say(&to, "deleted"); break;
        case LARDER_VERB_TOUCH: say(&to, "touched"); break;
        case LARDER_VERB_INCR:
        case LARDER_VERB_DECR: say(&to, "number %llu", (unsigned long long) answer->counted); break;
        }
    }
    free(answer->value.data);
    return to;
}

/* Makes a call that is not a request of one key; returns the result in the words of the cases. */
static text make(larder_client *client, const call *made) {
    char buffer[1000];
    text to = {NULL, 0, 0};
    put(&to, "", 0);
    larder_error error = {.size = sizeof error};
    larder_bytes key = bytes_of(made, "key");
    const char *verb = made->verb, *word = NULL;
    larder_status status = LARDER_OK;
    if (strcmp(verb, "get-or-lease") == 0) {
        static const char *const states[] = {"Hit", "HitRefresh", "HitStale", "MissWon", "MissWait"};
        larder_lease lease = {.size = sizeof lease, .vivify_ms = time_of(made, "vivify")};
        lease.refresh_ms = time_of(made, "refresh");
        size_t len;
        status = larder_get_or_lease(client, key, &lease, buffer, sizeof buffer, &len, &error);
        if (status == LARDER_OK) {
            say(&to, "%s", states[lease.state]);
            if (lease.state <= LARDER_HIT_STALE) {
                say(&to, " value=");
                put(&to, buffer, len);
            }
            say(&to, " cas=%llu ttl=%llu", (unsigned long long) lease.cas, (unsigned long long) in_seconds(lease.ttl_ms));
        }
    } else if (strcmp(verb, "fill") == 0) {
        larder_lease lease = {.size = sizeof lease, .state = LARDER_MISS_WON, .cas = number_of(made, "cas")};
        status = larder_fill(client, key, bytes_of(made, "value"), time_of(made, "ttl"), &lease, &error);
        word = "stored";
    } else if (strcmp(verb, "many") == 0) {
        make_many(&to, client, made);
    } else if (strcmp(verb, "batch") == 0) {
        make_batch(&to, client, made);
    } else if (strcmp(verb, "stream") == 0 || strcmp(verb, "quiet") == 0) {
        make_stream(&to, client, made, *verb == 'q');
    } else if (strcmp(verb, "version") == 0) {
        status = larder_server_version(client, 0, buffer, sizeof buffer, &error);
        if (status == LARDER_OK) {
            say(&to, "version %s", buffer);
        }
    } else {
        CHECK(strcmp(verb, "flush") == 0);
        status = larder_flush_all(client, &error);
        word = "flushed";
    }
    CHECK(status == LARDER_OK || status == error.status);
    if (status != LARDER_OK) {
        say_failed(&to, &error);
    } else if (word != NULL) {
        say(&to, "%s", word);
    }
    return to;
}

/* Plays a case by the client's calls, or by a pipe until it ends; returns whether the case can be played so. */
static int play_case(const test_case *of, int slowly, int piped) {
    testing = of->name;
    for (int at = 0; at < of->calls_count && piped; at++) {
        asked what;
        const call *made = &of->calls[at];
        int says_nothing = *made->verb == 'i' && strcmp(made->verb, "invalidate") == 0 && !has(made, "serve-stale");
        if (!ask(made, &what) || says_nothing || retries(of) == 1) {
            return 0;
        }
    }
    played server = listening(of, slowly);
    larder_config config;
    char user[40];
    const char *address = server.address.sun_path;
    configure(&config, of, &address, user, sizeof user);
    larder_error error = {.size = sizeof error};
    larder_client *client = NULL;
    larder_pipe *pipe = NULL;
    if (piped) {
        CHECK_IS(larder_pipe_open(&config, &pipe, &error), LARDER_OK, &error);
    } else {
        CHECK_IS(larder_open(&config, &client, &error), LARDER_OK, &error);
    }
    int open = 1;
    for (int at = 0; at < of->calls_count && open; at++) {
        const call *made = &of->calls[at];
        pthread_t thread;
        server.playing = made;
        CHECK(pthread_create(&thread, NULL, play, &server) == 0);
        asked what;
        text got;
        if (ask(made, &what)) {
            answered answer = {.meta = {.size = sizeof answer.meta}, .error = {.size = sizeof answer.error}};
            if (piped) {
                open = by_pipe(pipe, &what, &answer);
            } else {
                by_call(client, made, &what, &answer);
            }
            got = said(&what, &answer);
        } else {
            got = make(client, made);
        }
        if (strlen(made->want) != got.len || memcmp(made->want, got.data, got.len) != 0) {
            fprintf(stderr, "error: %s: %s returns \"%s\", not \"%s\"\n", testing, made->verb, got.data, made->want);
            abort();
        }
        free(got.data);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    /* The client has sent nothing else. */
    char more;
    CHECK(server.stream < 0 || recv(server.stream, &more, 1, MSG_DONTWAIT) <= 0);
    struct pollfd another = {.fd = server.listener, .events = POLLIN};
    CHECK(piped || poll(&another, 1, 0) == 0);
    larder_free(client);
    larder_pipe_free(pipe);
    hang_up(&server);
    close(server.listener);
    unlink(server.address.sun_path);
    return 1;
}

/* The C client has no values that are streamed, and does not read servers' figures. */
static int is_for_us(const test_case *of) {
    for (int at = 0; at < of->calls_count; at++) {
        const char *verb = of->calls[at].verb;
        if (strcmp(verb, "get-to") == 0 || strcmp(verb, "set-from") == 0 || strcmp(verb, "stats") == 0) {
            return 0;
        }
    }
    return 1;
}

/* Plays a case with its reply cut after each byte, which loses it; returns the number of cuts. */
static int play_cut(const test_case *of) {
    static const char *const several[] = {"many", "batch", "stream", "quiet"};
    const call *made = &of->calls[0];
    if (of->calls_count != 1 || made->acts_count != 2 || made->acts[0].kind != EXPECT || made->acts[1].kind != ANSWER) {
        return 0;
    }
    for (size_t at = 0; at < sizeof several / sizeof *several; at++) {
        if (strcmp(made->verb, several[at]) == 0) {
            return 0;
        }
    }
    size_t len = made->acts[1].bytes.len;
    if (strstr(made->want, "error") != NULL || len > 1000) {
        return 0;
    }
    static test_case cut;
    cut = *of;
    cut.calls[0].acts_count = 3;
    cut.calls[0].acts[2].kind = CLOSE;
    cut.calls[0].want = strdup("error lost unknown");
    is_cut = 1;
    for (size_t bytes = 0; bytes < len; bytes++) {
        cut.calls[0].acts[1].bytes.len = bytes;
        play_case(&cut, 0, 0);
        play_case(&cut, 0, 1);
    }
    is_cut = 0;
    free(cut.calls[0].want);
    return (int) len;
}

int main(int count, char **arguments) {
    CHECK(count > 1);
    /* A checker slows everything down, so that timeouts would fail. In valgrind the other cases run once, too. */
    int untimed = count > 2, brief = untimed && strcmp(arguments[2], "brief") == 0, ours = 0, pipes = 0, cuts = 0;
    read_cases(arguments[1]);
    for (int at = 0; at < cases_count; at++) {
        if (is_for_us(&cases[at])) {
            ours++;
            if (untimed && find(&cases[at].with, "timeout") != NULL) {
                continue;
            }
            play_case(&cases[at], 0, 0);
            pipes += play_case(&cases[at], 0, 1);
            if (!brief) {
                play_case(&cases[at], 1, 0);
                play_case(&cases[at], 1, 1);
                cuts += play_cut(&cases[at]);
            }
        }
    }
    CHECK(ours >= 75 && pipes >= 40 && (brief || cuts > 100));
    printf("spec: %d cases, %d of them by a pipe, too, %d replies cut\n", ours, pipes, cuts);
    return 0;
}
