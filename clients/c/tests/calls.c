/* Every call against the server: its effect, its results, and its errors for wrong arguments. */
#define _GNU_SOURCE
#include "check.h"

static larder_error error = {.size = sizeof error};

static larder_bytes T(const char *text) {
    return larder_text(text);
}

static void one_key(larder_client *cache) {
    testing = "one key";
    char buffer[100];
    size_t len = 99;
    larder_meta meta = {.size = sizeof meta};
    CHECK_IS(larder_get(cache, T("k"), NULL, buffer, sizeof buffer, &len, NULL, &error), LARDER_MISS, &error);
    CHECK(len == 0 && error.status == LARDER_MISS && error.outcome == LARDER_ANSWERED && error.message[0] == 0);

    larder_store store = {.size = sizeof store, .flags = 7, .ttl_ms = 59001, .options = LARDER_TELL_CAS};
    CHECK_IS(larder_set(cache, T("k"), T("one"), &store, &meta, &error), LARDER_OK, &error);
    uint64_t cas = meta.cas;
    CHECK(cas > 0 && error.status == LARDER_OK);
    larder_read read = {.size = sizeof read, .want = LARDER_WANT_FLAGS | LARDER_WANT_CAS | LARDER_WANT_TTL | LARDER_WANT_SIZE};
    CHECK_IS(larder_get(cache, T("k"), &read, buffer, sizeof buffer, &len, &meta, &error), LARDER_OK, &error);
    CHECK(is_text(larder_data(buffer, len), "one") && meta.flags == 7 && meta.cas == cas && meta.bytes == 3);
    CHECK(meta.ttl_ms >= 58000 && meta.ttl_ms <= 60000 && meta.ttl_ms % 1000 == 0);

    /* Modes and tokens. */
    store.options = 0;
    store.mode = LARDER_ADD;
    CHECK_IS(larder_set(cache, T("k"), T("two"), &store, NULL, &error), LARDER_NOT_STORED, &error);
    store.mode = LARDER_APPEND;
    CHECK_IS(larder_set(cache, T("k"), T("!"), &store, NULL, &error), LARDER_OK, &error);
    store.mode = LARDER_PREPEND;
    CHECK_IS(larder_set(cache, T("none"), T("!"), &store, NULL, &error), LARDER_NOT_STORED, &error);
    store.mode = LARDER_SET;
    store.cas = cas;
    CHECK_IS(larder_set(cache, T("k"), T("two"), &store, NULL, &error), LARDER_CONFLICT, &error);
    CHECK_IS(larder_set(cache, T("none"), T("two"), &store, NULL, &error), LARDER_MISS, &error);
    larder_remove remove = {.size = sizeof remove, .cas = cas};
    CHECK_IS(larder_delete(cache, T("k"), &remove, &error), LARDER_CONFLICT, &error);

    /* A value longer than the buffer, and a value in memory of its own. */
    CHECK_IS(larder_get(cache, T("k"), NULL, buffer, 2, &len, NULL, &error), LARDER_TRUNCATED, &error);
    CHECK(len == 4 && memcmp(buffer, "on", 2) == 0);
    CHECK_IS(larder_get(cache, T("k"), NULL, NULL, 0, &len, NULL, &error), LARDER_TRUNCATED, &error);
    CHECK_IS(larder_get(cache, T("k"), NULL, buffer, 4, &len, NULL, &error), LARDER_OK, &error);
    larder_bytes value;
    CHECK_IS(larder_get_alloc(cache, T("k"), NULL, &value, NULL, &error), LARDER_OK, &error);
    CHECK(is_text(value, "one!"));
    larder_bytes_free(&value);
    CHECK(value.data == NULL && value.len == 0);
    larder_bytes_free(&value);
    larder_bytes_free(NULL);
    CHECK_IS(larder_set(cache, T("empty"), larder_data(NULL, 0), NULL, NULL, &error), LARDER_OK, &error);
    CHECK_IS(larder_get_alloc(cache, T("empty"), NULL, &value, NULL, &error), LARDER_OK, &error);
    CHECK(value.data == NULL && value.len == 0);
    CHECK_IS(larder_get(cache, T("empty"), NULL, NULL, 0, &len, NULL, &error), LARDER_OK, &error);

    /* A megabyte goes over a connection of its own. */
    size_t large = 900000;
    char *bytes = malloc(large);
    CHECK(bytes != NULL);
    memset(bytes, 'x', large);
    CHECK_IS(larder_set(cache, T("large"), larder_data(bytes, large), NULL, NULL, &error), LARDER_OK, &error);
    CHECK_IS(larder_get_alloc(cache, T("large"), NULL, &value, NULL, &error), LARDER_OK, &error);
    CHECK(value.len == large && memcmp(value.data, bytes, large) == 0);
    larder_bytes_free(&value);
    memset(bytes, 'y', large);
    CHECK_IS(larder_get(cache, T("large"), NULL, bytes, large - 1, &len, NULL, &error), LARDER_TRUNCATED, &error);
    CHECK(len == large && bytes[large - 2] == 'x' && bytes[large - 1] == 'y');
    free(bytes);

    /* Numbers. */
    uint64_t number = 1;
    CHECK_IS(larder_incr(cache, T("n"), 5, NULL, &number, &error), LARDER_MISS, &error);
    CHECK(number == 0);
    larder_count count = {.size = sizeof count, .options = LARDER_CREATE, .initial = 40};
    CHECK_IS(larder_incr(cache, T("n"), 2, &count, &number, &error), LARDER_OK, &error);
    CHECK(number == 40);
    CHECK_IS(larder_incr(cache, T("n"), 2, &count, &number, &error), LARDER_OK, &error);
    CHECK(number == 42);
    CHECK_IS(larder_decr(cache, T("n"), 50, NULL, &number, &error), LARDER_OK, &error);
    CHECK(number == 0);
    CHECK_IS(larder_incr(cache, T("k"), 1, NULL, NULL, &error), LARDER_NOT_NUMBER, &error);

    CHECK_IS(larder_touch(cache, T("k"), 9000, &error), LARDER_OK, &error);
    CHECK_IS(larder_touch(cache, T("none"), 0, &error), LARDER_MISS, &error);
    read.touch_ms = LARDER_FOREVER;
    CHECK_IS(larder_get(cache, T("k"), &read, buffer, sizeof buffer, &len, &meta, &error), LARDER_OK, &error);
    read.touch_ms = 0;
    CHECK_IS(larder_get(cache, T("k"), &read, buffer, sizeof buffer, &len, &meta, &error), LARDER_OK, &error);
    CHECK(meta.ttl_ms == LARDER_FOREVER);
    CHECK_IS(larder_delete(cache, T("k"), NULL, &error), LARDER_OK, &error);
    CHECK_IS(larder_delete(cache, T("k"), NULL, &error), LARDER_MISS, &error);
}

static int add_one(void *user, const larder_bytes *old, larder_bytes *value) {
    static char digits[24];
    long number = 0;
    if (old != NULL) {
        snprintf(digits, sizeof digits, "%.*s", (int) old->len, (const char *) old->data);
        number = strtol(digits, NULL, 10);
    }
    int len = snprintf(digits, sizeof digits, "%ld", number + 1);
    *value = larder_data(digits, (size_t) len);
    ++*(int *) user;
    return 0;
}

static int leave(void *user, const larder_bytes *old, larder_bytes *value) {
    (void) user, (void) old, (void) value;
    return 1;
}

static int spoil(void *user, const larder_bytes *old, larder_bytes *value) {
    (void) user, (void) old;
    *value = larder_data(NULL, 3);
    return 0;
}

static void updates_and_leases(larder_client *cache) {
    testing = "updates and leases";
    int calls = 0;
    char buffer[100];
    size_t len;
    CHECK_IS(larder_update(cache, T("u"), 0, add_one, &calls, &error), LARDER_OK, &error);
    CHECK_IS(larder_update(cache, T("u"), 0, add_one, &calls, &error), LARDER_OK, &error);
    CHECK_IS(larder_update(cache, T("u"), 0, leave, NULL, &error), LARDER_NOT_STORED, &error);
    CHECK_IS(larder_update(cache, T("u"), 0, spoil, NULL, &error), LARDER_BAD_ARGUMENT, &error);
    CHECK_IS(larder_update(cache, T("u"), 0, NULL, NULL, &error), LARDER_BAD_ARGUMENT, &error);
    CHECK_IS(larder_get(cache, T("u"), NULL, buffer, sizeof buffer, &len, NULL, &error), LARDER_OK, &error);
    CHECK(calls == 2 && is_text(larder_data(buffer, len), "2"));

    larder_lease lease = {.size = sizeof lease};
    CHECK_IS(larder_get_or_lease(cache, T("l"), &lease, buffer, sizeof buffer, &len, &error), LARDER_OK, &error);
    CHECK(lease.state == LARDER_MISS_WON && len == 0);
    larder_lease other = {.size = sizeof other};
    CHECK_IS(larder_get_or_lease(cache, T("l"), &other, buffer, sizeof buffer, &len, &error), LARDER_OK, &error);
    CHECK(other.state == LARDER_MISS_WAIT);
    CHECK_IS(larder_fill(cache, T("l"), T("made"), 60000, &lease, &error), LARDER_OK, &error);
    CHECK_IS(larder_fill(cache, T("l"), T("late"), 60000, &lease, &error), LARDER_CONFLICT, &error);
    CHECK_IS(larder_get_or_lease(cache, T("l"), &other, buffer, 2, &len, &error), LARDER_TRUNCATED, &error);
    CHECK(other.state == LARDER_HIT && len == 4 && memcmp(buffer, "ma", 2) == 0);
    CHECK_IS(larder_invalidate(cache, T("l"), 30000, &error), LARDER_OK, &error);
    CHECK_IS(larder_get_or_lease(cache, T("l"), &lease, buffer, sizeof buffer, &len, &error), LARDER_OK, &error);
    CHECK(lease.state == LARDER_HIT_REFRESH && len == 4);
    CHECK_IS(larder_get_or_lease(cache, T("l"), &other, buffer, sizeof buffer, &len, &error), LARDER_OK, &error);
    CHECK(other.state == LARDER_HIT_STALE);
}

static void arguments(larder_client *cache) {
    testing = "arguments that cannot be";
    size_t len;
    char byte;
    CHECK(larder_get(NULL, T("k"), NULL, &byte, 1, &len, NULL, &error) == LARDER_BAD_ARGUMENT);
    CHECK(error.outcome == LARDER_NOT_SENT && strcmp(error.message, "the handle is NULL") == 0);
    CHECK(larder_set(cache, larder_data(NULL, 3), T("v"), NULL, NULL, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_set(cache, T("k"), larder_data("", SIZE_MAX), NULL, NULL, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_get(cache, T("k"), NULL, NULL, 1, &len, NULL, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_get_alloc(cache, T("k"), NULL, NULL, NULL, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_set(cache, T(""), T("v"), NULL, NULL, &error) == LARDER_BAD_KEY && error.outcome == LARDER_NOT_SENT);
    CHECK(larder_set(cache, T("a b"), T("v"), NULL, NULL, NULL) == LARDER_BAD_KEY);
    CHECK(larder_touch(cache, T("k"), -1, &error) == LARDER_BAD_TTL && error.outcome == LARDER_NOT_SENT);
    CHECK(larder_touch(cache, T("k"), INT64_MIN, NULL) == LARDER_BAD_TTL);
    CHECK(larder_fill(cache, T("k"), T("v"), 0, NULL, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_server_version(cache, 1, &byte, 1, NULL) == LARDER_BAD_ARGUMENT);

    /* Sizes: of an older caller, of a newer one, and wrong ones. */
    struct {
        larder_store known;
        uint64_t of_a_later_version;
    } store = {.known = {.size = sizeof store, .flags = 7}};
    CHECK_IS(larder_set(cache, T("k"), T("v"), &store.known, NULL, &error), LARDER_OK, &error);
    store.of_a_later_version = 1;
    CHECK(larder_set(cache, T("k"), T("v"), &store.known, NULL, NULL) == LARDER_BAD_ARGUMENT);
    store.known.size = 0;
    CHECK(larder_set(cache, T("k"), T("v"), &store.known, NULL, NULL) == LARDER_BAD_ARGUMENT);
    store.known.size = UINT32_MAX;
    CHECK(larder_set(cache, T("k"), T("v"), &store.known, NULL, NULL) == LARDER_BAD_ARGUMENT);
    store.known.size = offsetof(larder_store, ttl_ms);
    store.known.ttl_ms = -1;
    CHECK_IS(larder_set(cache, T("k"), T("v"), &store.known, NULL, &error), LARDER_OK, &error);
    larder_read read = {.size = sizeof read, .want = LARDER_WANT_FLAGS | LARDER_WANT_CAS};
    larder_meta meta = {.size = offsetof(larder_meta, cas), .cas = 99};
    CHECK_IS(larder_get(cache, T("k"), &read, &byte, 1, &len, &meta, &error), LARDER_OK, &error);
    CHECK(meta.flags == 7 && meta.cas == 99 && meta.size == offsetof(larder_meta, cas));
    larder_error none = {.size = 0};
    CHECK(larder_get(cache, T("k"), &read, &byte, 1, &len, &meta, &none) == LARDER_BAD_ARGUMENT);
    larder_error small = {.size = offsetof(larder_error, os_error), .os_error = 99};
    CHECK(larder_touch(cache, T("a b"), 0, &small) == LARDER_BAD_KEY);
    CHECK(small.status == LARDER_BAD_KEY && small.os_error == 99);

    /* Configurations. */
    larder_client *client = cache;
    const char *const servers[] = {"127.0.0.1:1", "127.0.0.1:2", NULL}, *const names[] = {"a", NULL, NULL};
    const uint32_t weights[] = {1, 3};
    larder_config config = {.size = sizeof config, .servers = servers};
    CHECK(larder_open(NULL, &client, &error) == LARDER_BAD_ARGUMENT && client == NULL);
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT);
    CHECK(strstr(error.message, "there is no server") != NULL);
    config.servers_count = 3;
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT);
    config.servers_count = 2;
    CHECK(larder_open(&config, NULL, &error) == LARDER_BAD_ARGUMENT);
    config.preset = "nobody's";
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT);
    CHECK(strstr(error.message, "nobody's") != NULL);
    config.preset = "modula-crc32";
    config.weights = weights;
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT);
    config.preset = NULL;
    config.user = "user";
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT);
    config.user = NULL;
    config.options = 1u << 31;
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT);
    config.options = 0;
    config.names = names;
    CHECK_IS(larder_open(&config, &client, &error), LARDER_OK, &error);
    CHECK(larder_server_count(client) == 2 && strcmp(larder_server_name(client, 0), "a") == 0);
    CHECK(strcmp(larder_server_name(client, 1), "127.0.0.1:2") == 0 && larder_server_name(client, 2) == NULL);
    int of_second = 0;
    for (int at = 0; at < 1000; at++) {
        char key[16];
        snprintf(key, sizeof key, "key:%d", at);
        of_second += larder_server_of(client, T(key)) == 1;
    }
    CHECK(of_second > 650 && of_second < 850);
    CHECK(larder_touch(client, T("k"), 0, &error) == LARDER_DOWN);
    CHECK(error.os_error == ECONNREFUSED && error.outcome == LARDER_NOT_SENT && error.server[0] != 0);
    larder_free(client);
    CHECK(larder_server_count(NULL) == 0 && larder_server_name(NULL, 0) == NULL);
    CHECK(strcmp(larder_status_text(LARDER_MISS), "no such item") == 0);
    CHECK(strcmp(larder_status_text((larder_status) 63), "unknown status") == 0);
    CHECK(strchr(larder_version(), '.') != NULL);
}

static void together(larder_client *cache) {
    testing = "together";
    enum { COUNT = 5000 };
    larder_batch *batch = larder_batch_new(cache);
    CHECK(batch != NULL && larder_batch_new(NULL) == NULL);
    char key[32], value[32];
    larder_bytes got;
    for (int round = 0; round < 2; round++) {
        for (int at = 0; at < COUNT; at++) {
            snprintf(key, sizeof key, "b%d", at);
            snprintf(value, sizeof value, "%d-%d", round, at);
            CHECK(larder_batch_set(batch, T(key), T(value), 0) == LARDER_OK);
        }
        CHECK_IS(larder_batch_run(batch, &error), LARDER_OK, &error);
        for (int at = 0; at <= COUNT; at++) {
            snprintf(key, sizeof key, "b%d", at);
            CHECK(larder_batch_get(batch, T(key)) == LARDER_OK);
        }
        CHECK_IS(larder_batch_run(batch, &error), LARDER_OK, &error);
        for (int at = 0; at < COUNT; at++) {
            snprintf(value, sizeof value, "%d-%d", round, at);
            CHECK_IS(larder_batch_result(batch, (size_t) at, &got, NULL, NULL, &error), LARDER_OK, &error);
            CHECK(is_text(got, value));
        }
        CHECK(larder_batch_result(batch, COUNT, &got, NULL, NULL, NULL) == LARDER_MISS && got.len == 0);
        CHECK(larder_batch_result(batch, COUNT + 1, &got, NULL, NULL, NULL) == LARDER_BAD_ARGUMENT);
    }

    larder_read read = {.size = sizeof read, .want = LARDER_WANT_FLAGS};
    larder_store store = {.size = sizeof store, .flags = 3, .mode = LARDER_REPLACE};
    larder_count count = {.size = sizeof count, .options = LARDER_CREATE, .initial = 10};
    larder_request requests[] = {
        {.size = sizeof *requests, .verb = LARDER_VERB_SET, .key = T("b0"), .value = T("new"), .store = &store},
        {.size = sizeof *requests, .verb = LARDER_VERB_GET, .key = T("b0"), .read = &read},
        {.size = sizeof *requests, .verb = LARDER_VERB_INCR, .key = T("bn"), .delta = 1, .count = &count},
        {.size = sizeof *requests, .verb = LARDER_VERB_DECR, .key = T("bn"), .delta = 3},
        {.size = sizeof *requests, .verb = LARDER_VERB_TOUCH, .key = T("b0"), .ttl_ms = 1000},
        {.size = sizeof *requests, .verb = LARDER_VERB_DELETE, .key = T("b0")},
        {.size = sizeof *requests, .verb = LARDER_VERB_GET, .key = T("no key")},
    };
    size_t number;
    for (size_t at = 0; at < sizeof requests / sizeof *requests; at++) {
        CHECK_IS(larder_batch_add(batch, &requests[at], &number, &error), LARDER_OK, &error);
        CHECK(number == at);
    }
    CHECK(larder_batch_run(batch, &error) == LARDER_BAD_KEY);
    larder_meta meta = {.size = sizeof meta};
    uint64_t counted;
    CHECK(larder_batch_result(batch, 1, &got, NULL, &meta, NULL) == LARDER_OK && is_text(got, "new") && meta.flags == 3);
    CHECK(larder_batch_result(batch, 2, NULL, &counted, NULL, NULL) == LARDER_OK && counted == 10);
    CHECK(larder_batch_result(batch, 3, NULL, &counted, NULL, NULL) == LARDER_OK && counted == 7);
    CHECK(larder_batch_result(batch, 5, NULL, NULL, NULL, NULL) == LARDER_OK);
    CHECK(larder_batch_result(batch, 6, NULL, NULL, NULL, NULL) == LARDER_BAD_KEY);
    requests[0].verb = (larder_verb) 9;
    CHECK(larder_batch_add(batch, &requests[0], NULL, NULL) == LARDER_BAD_ARGUMENT);
    CHECK(larder_batch_add(batch, NULL, NULL, NULL) == LARDER_BAD_ARGUMENT);
    larder_batch_free(batch);
    larder_batch_free(NULL);
}

static void later(larder_client *cache, int failures_only) {
    testing = failures_only ? "later, failures only" : "later";
    char key[32];
    larder_stream *stream = larder_stream_new(cache, 256, 0, failures_only);
    CHECK(stream != NULL && larder_stream_new(NULL, 0, 0, 0) == NULL);
    larder_store store = {.size = sizeof store, .flags = 5};
    for (int at = 0; at < 10000; at++) {
        snprintf(key, sizeof key, "s%d", at);
        CHECK_IS(larder_stream_set(stream, T(key), T("v"), &store, &error), LARDER_OK, &error);
    }
    larder_report report = {.size = sizeof report};
    CHECK_IS(larder_stream_barrier(stream, &report, &error), LARDER_OK, &error);
    CHECK(report.sent == 10000 && report.stored == 10000 && report.told == 0);

    store.mode = LARDER_ADD;
    CHECK(larder_stream_set(stream, T("a b"), T("v"), NULL, NULL) == LARDER_BAD_KEY);
    CHECK(larder_stream_set(stream, T("s1"), T("v"), &store, NULL) == LARDER_OK);
    CHECK(larder_stream_delete(stream, T("s2"), NULL, NULL) == LARDER_OK);
    CHECK(larder_stream_delete(stream, T("s2"), NULL, NULL) == LARDER_OK);
    CHECK(larder_stream_barrier(stream, &report, &error) == LARDER_NOT_STORED);
    CHECK(report.sent == 3 && report.stored == 2 && report.refused == 1 && report.unknown == 0 && report.told == 1);
    larder_bytes refused;
    CHECK(larder_stream_refused(stream, 0, &refused, NULL) == LARDER_NOT_STORED && is_text(refused, "s1"));
    CHECK(larder_stream_refused(stream, 1, &refused, NULL) == LARDER_BAD_ARGUMENT);

    /* A stream that is freed without a barrier sends its requests, and counts the refused ones. */
    larder_counters before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK(larder_read_counters(cache, &before) == LARDER_OK && before.servers == 1);
    CHECK(larder_stream_set(stream, T("s1"), T("v"), &store, NULL) == LARDER_OK);
    CHECK(larder_stream_set(stream, T("last"), T("v"), NULL, NULL) == LARDER_OK);
    larder_stream_free(stream);
    larder_stream_free(NULL);
    CHECK(larder_touch(cache, T("last"), 0, NULL) == LARDER_OK);
    CHECK(larder_delete(cache, T("last"), NULL, NULL) == LARDER_OK);
    CHECK(larder_read_counters(cache, &after) == LARDER_OK && after.unreported == before.unreported + 1);
}

/* Whatever dies meanwhile, a value that was sent is stored, refused or unknown. */
static void the_server_dies(int failures_only) {
    testing = "a stream whose server dies";
    server dies = start_server();
    larder_client *cache = client_of(&dies, PATIENCE_MS, 0);
    larder_stream *stream = larder_stream_new(cache, 256, 65536, failures_only);
    char key[32];
    for (int at = 0; at < 20000; at++) {
        if (at == 5000) {
            stop_server(&dies);
        }
        snprintf(key, sizeof key, "s%d", at);
        CHECK_IS(larder_stream_set(stream, T(key), T("v"), NULL, &error), LARDER_OK, &error);
    }
    larder_report report = {.size = sizeof report};
    CHECK(larder_stream_barrier(stream, &report, &error) >= LARDER_DOWN);
    CHECK(report.sent == 20000 && report.sent == report.stored + report.refused + report.unknown);
    CHECK(report.stored <= 5000 && report.refused > 0 && report.told == 16);
    CHECK(larder_set(cache, T("k"), T("v"), NULL, NULL, &error) == LARDER_DOWN);
    larder_stream_free(stream);
    larder_free(cache);
}

/* A server that stops amid a stream and goes on: what is reported as stored is there, and what is refused is not. */
static void the_server_stops(int failures_only) {
    testing = "a stream whose server stops";
    server stops = start_server();
    larder_client *patient = client_of(&stops, PATIENCE_MS, 0), *hasty = client_of(&stops, 50, 0);
    larder_stream *stream = larder_stream_new(hasty, 256, 65536, failures_only);
    char key[32];
    for (int at = 0; at < 3000; at++) {
        if (at == 1000) {
            pause_server(&stops);
        }
        if (at == 2000) {
            resume_server(&stops);
        }
        snprintf(key, sizeof key, "s%d", at);
        CHECK_IS(larder_stream_set(stream, T(key), T("v"), NULL, &error), LARDER_OK, &error);
    }
    larder_report report = {.size = sizeof report};
    CHECK(larder_stream_barrier(stream, &report, NULL) != LARDER_OK);
    CHECK(report.sent == 3000 && report.sent == report.stored + report.refused + report.unknown);
    /* Of the 1,000 writes meanwhile all were waited for in vain, but a window of 256 and a group of 64 that is collected. */
    CHECK(report.stored <= 2320 && report.told > 0);
    uint64_t there = 0;
    size_t len;
    for (int at = 0; at < 3000; at++) {
        snprintf(key, sizeof key, "s%d", at);
        larder_status found = larder_get(patient, T(key), NULL, NULL, 0, &len, NULL, &error);
        CHECK(found == LARDER_TRUNCATED || found == LARDER_MISS);
        there += found == LARDER_TRUNCATED;
    }
    CHECK(there >= report.stored && there <= report.stored + report.unknown);
    for (uint32_t at = 0; at < report.told; at++) {
        larder_bytes refused;
        CHECK(larder_stream_refused(stream, at, &refused, &error) != LARDER_OK);
        if (error.outcome != LARDER_UNKNOWN) {
            CHECK(larder_get(patient, refused, NULL, NULL, 0, &len, NULL, NULL) == LARDER_MISS);
        }
    }
    larder_stream_free(stream);
    larder_free(hasty);
    larder_free(patient);
    stop_server(&stops);
}

/* A client with the default of lanes, or with what the configuration says, has made this many connections for 200 keys. */
static void lanes_are(const larder_config *config, uint64_t dials) {
    larder_client *client = NULL;
    CHECK_IS(larder_open(config, &client, &error), LARDER_OK, &error);
    for (int at = 0; at < 200; at++) {
        char key[16];
        snprintf(key, sizeof key, "key:%d", at);
        CHECK_IS(larder_set(client, T(key), T(key), NULL, NULL, &error), LARDER_OK, &error);
    }
    larder_counters counters = {.size = sizeof counters};
    CHECK(larder_read_counters(client, &counters) == LARDER_OK);
    CHECK(counters.dials == dials && counters.requests == 200 && counters.overdue == 0);
    larder_free(client);
}

static void several_lanes(const server *server) {
    testing = "several lanes";
    const char *servers[] = {server->address};
    larder_config config = {.size = sizeof config, .servers = servers, .servers_count = 1, .lanes = 9};
    config.timeout_ms = config.dial_timeout_ms = config.stall_timeout_ms = PATIENCE_MS;
    larder_client *client = NULL;
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT && client == NULL);
    CHECK(strstr(error.message, "lanes") != NULL);
    config.lanes = 8;
    config.reserved = 1;
    CHECK(larder_open(&config, &client, &error) == LARDER_BAD_ARGUMENT && client == NULL);
    CHECK(strstr(error.message, "reserved") != NULL);
    config.reserved = 0;
    lanes_are(&config, 8);
    config.lanes = 0;
    lanes_are(&config, 1);
    /* A program that was compiled before there were lanes: its struct ends where they begin. */
    config.lanes = 8;
    config.size = offsetof(larder_config, lanes);
    lanes_are(&config, 1);
}

int main(void) {
    server server = start_server();
    larder_client *cache = client_of(&server, PATIENCE_MS, LARDER_VERIFY);
    one_key(cache);
    updates_and_leases(cache);
    arguments(cache);
    together(cache);
    later(cache, 0);
    later(cache, 1);
    testing = "the client's own";
    char version[64], cut[4];
    CHECK_IS(larder_server_version(cache, 0, version, sizeof version, &error), LARDER_OK, &error);
    CHECK(strstr(version, "larder") != NULL);
    CHECK(larder_server_version(cache, 0, cut, sizeof cut, NULL) == LARDER_TRUNCATED && strlen(cut) == 3);
    CHECK_IS(larder_flush_all(cache, &error), LARDER_OK, &error);
    CHECK(larder_touch(cache, T("b1"), 0, NULL) == LARDER_MISS);
    larder_counters counters = {.size = sizeof counters};
    CHECK(larder_read_counters(cache, &counters) == LARDER_OK && larder_read_counters(cache, NULL) == LARDER_OK);
    /* One connection for most values, one for large ones. */
    CHECK(counters.dials == 2 && counters.overdue == 0 && counters.requests > 30000);
    larder_free(cache);
    several_lanes(&server);
    stop_server(&server);
    the_server_dies(0);
    the_server_dies(1);
    the_server_stops(0);
    the_server_stops(1);
    printf("calls: done\n");
    return 0;
}
