/* TLS: servers that are trusted are spoken to, and no others.
 *
 *     tls FOLDER [unforked]
 *
 * The folder has server.crt and server.key, whose names are 127.0.0.1 and cache.internal, and of the same kind client.crt and
 * client.key. `unforked` is for allocators whose locks a child may find locked for ever. */
#define _GNU_SOURCE
#include "check.h"

enum { PATH_BYTES = 512, LONG = 300000 };

static const char *folder;

/* The path of a file of the folder; valid as long as the room. */
static const char *path_of(char *room, const char *name) {
    CHECK(snprintf(room, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES);
    return room;
}

/* A server with the certificate of the folder. */
static server start_secure(const char *more) {
    char cert[PATH_BYTES], key[PATH_BYTES], options[4 * PATH_BYTES];
    int length = snprintf(options, sizeof options, "ssl_chain_cert=%s,ssl_key=%s%s", path_of(cert, "server.crt"),
                          path_of(key, "server.key"), more);
    CHECK(length > 0 && length < (int) sizeof options);
    const char *words[] = {"-Z", "-o", options, NULL};
    return start_server_with(words);
}

static larder_config config_of(const char *const *servers, uint32_t options) {
    larder_config config = {.size = sizeof config, .servers = servers, .servers_count = 1, .options = options};
    config.timeout_ms = PATIENCE_MS;
    config.dial_timeout_ms = PATIENCE_MS;
    config.stall_timeout_ms = PATIENCE_MS;
    return config;
}

static larder_client *opened(const larder_config *config) {
    larder_error error = {.size = sizeof error};
    larder_client *client = NULL;
    CHECK_IS(larder_open(config, &client, &error), LARDER_OK, &error);
    return client;
}

/* Values of all lengths come back. */
static void speaks(larder_client *client) {
    static char value[LONG], got[LONG];
    static const size_t lengths[] = {0, 1, 16384, 65536, LONG};
    larder_error error = {.size = sizeof error};
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        size_t len;
        memset(value, 'a' + (int) at, lengths[at]);
        CHECK_IS(larder_set(client, larder_text("k"), larder_data(value, lengths[at]), NULL, NULL, &error), LARDER_OK, &error);
        CHECK_IS(larder_get(client, larder_text("k"), NULL, got, sizeof got, &len, NULL, &error), LARDER_OK, &error);
        CHECK(len == lengths[at] && memcmp(got, value, len) == 0);
    }
}

/* Nothing is sent to a server that is not trusted. */
static void refuses(const larder_config *config) {
    larder_client *client = opened(config);
    larder_error error = {.size = sizeof error};
    char got[8];
    size_t len;
    larder_status status = larder_get(client, larder_text("k"), NULL, got, sizeof got, &len, NULL, &error);
    CHECK_IS(status, LARDER_DOWN, &error);
    CHECK(error.outcome == LARDER_NOT_SENT);
    larder_free(client);
}

static void trusts(void) {
    testing = "which servers are trusted";
    char ca[PATH_BYTES], other[PATH_BYTES];
    server secure = start_secure(""), plain = start_server();
    const char *servers[] = {secure.address};
    larder_config config = config_of(servers, LARDER_TLS);
    config.ca_file = path_of(ca, "server.crt");
    larder_client *client = opened(&config);
    speaks(client);
    larder_counters counters = {.size = sizeof counters};
    CHECK(larder_read_counters(client, &counters) == LARDER_OK && counters.dials == 2);
    larder_free(client);
    config.server_name = "cache.internal";
    client = opened(&config);
    speaks(client);
    larder_free(client);
    config.server_name = "other.internal";
    refuses(&config);
    config.server_name = NULL;
    config.ca_file = path_of(other, "client.crt");
    refuses(&config);
    config.ca_file = ca;
    servers[0] = plain.address;
    refuses(&config);
    stop_server(&plain);
    stop_server(&secure);
}

static void shows(void) {
    testing = "certificates of clients";
    char ca[PATH_BYTES], cert[PATH_BYTES], key[PATH_BYTES], more[2 * PATH_BYTES];
    int length = snprintf(more, sizeof more, ",ssl_verify_mode=2,ssl_ca_cert=%s", path_of(cert, "client.crt"));
    CHECK(length > 0 && length < (int) sizeof more);
    server secure = start_secure(more);
    const char *servers[] = {secure.address};
    larder_config config = config_of(servers, LARDER_TLS);
    config.ca_file = path_of(ca, "server.crt");
    larder_client *client = opened(&config);
    larder_error error = {.size = sizeof error};
    /* The client's part of a handshake of TLS 1.3 ends before the server refuses it: the greeting, which comes before the first
     * request, finds out. */
    CHECK_IS(larder_set(client, larder_text("k"), larder_text("v"), NULL, NULL, &error), LARDER_DOWN, &error);
    CHECK(error.outcome == LARDER_NOT_SENT);
    larder_free(client);
    config.cert_file = cert;
    config.key_file = path_of(key, "client.key");
    client = opened(&config);
    speaks(client);
    larder_free(client);
    stop_server(&secure);
}

static void arguments(void) {
    testing = "what cannot be";
    char ca[PATH_BYTES], key[PATH_BYTES];
    const char *servers[] = {"127.0.0.1:1"};
    larder_error error = {.size = sizeof error};
    larder_client *client = NULL;
    larder_pipe *pipe = NULL;
    larder_config config = config_of(servers, 0);
    config.ca_file = path_of(ca, "server.crt");
    CHECK_IS(larder_open(&config, &client, &error), LARDER_BAD_ARGUMENT, &error);
    config.options = LARDER_TLS;
    config.ca_file = "/no/such";
    CHECK_IS(larder_pipe_open(&config, &pipe, &error), LARDER_BAD_ARGUMENT, &error);
    CHECK(pipe == NULL && strcmp(error.message, "a larder_pipe has no TLS") == 0);
    config.ca_file = ca;
    config.cert_file = ca;
    CHECK_IS(larder_open(&config, &client, &error), LARDER_BAD_ARGUMENT, &error);
    config.cert_file = NULL;
    config.ca_file = path_of(key, "server.key");
    CHECK_IS(larder_open(&config, &client, &error), LARDER_BAD_ARGUMENT, &error);
    CHECK(client == NULL && strncmp(error.message, "ca_file ", 8) == 0);
}

static void forks(void) {
    testing = "forks";
    char ca[PATH_BYTES];
    server secure = start_secure("");
    const char *servers[] = {secure.address};
    larder_config config = config_of(servers, LARDER_TLS);
    config.ca_file = path_of(ca, "server.crt");
    larder_client *client = opened(&config);
    speaks(client);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        speaks(client);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    speaks(client);
    larder_free(client);
    stop_server(&secure);
}

int main(int count, char **words) {
    CHECK(count >= 2);
    folder = words[1];
    trusts();
    shows();
    arguments();
    if (count < 3 || strcmp(words[2], "unforked") != 0) {
        forks();
    }
    return 0;
}
