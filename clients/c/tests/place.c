/* Placement: keys have the same servers as with other libraries, by clients/vectors.txt, whose path is the argument.
 *
 *     key TEXT                   a key; there are a thousand
 *     place PRESET by LIBRARY    a preset, and the library that made the answer
 *     server WEIGHT NAME         its servers, in their order
 *     at DIGITS                  the answer: for each key the number of its server among them, as a digit
 */
#define _GNU_SOURCE
#include "check.h"

enum { KEYS_MAX = 2000, SERVERS_MAX = 16, LINE_BYTES = 8192, NAME_BYTES = 64 };

static char *keys[KEYS_MAX];
static size_t keys_count;

/* The preset and the servers of the next answer. */
static struct {
    char preset[NAME_BYTES];
    char names[SERVERS_MAX][NAME_BYTES];
    uint32_t weights[SERVERS_MAX];
    size_t servers;
} asked;

/* Checks that a client of these servers, none of which is dialed, has each key on the server of its digit. */
static void answer(const char *digits) {
    char addresses[SERVERS_MAX][NAME_BYTES];
    const char *servers[SERVERS_MAX], *names[SERVERS_MAX];
    for (size_t n = 0; n < asked.servers; n++) {
        snprintf(addresses[n], NAME_BYTES, "127.0.0.1:%d", (int) n + 1);
        servers[n] = addresses[n];
        names[n] = asked.names[n];
    }
    larder_config config = {.size = sizeof config, .servers = servers, .servers_count = asked.servers};
    config.names = names;
    config.weights = asked.weights;
    config.preset = asked.preset;
    larder_error error = {.size = sizeof error};
    larder_client *client = NULL;
    testing = asked.preset;
    CHECK_IS(larder_open(&config, &client, &error), LARDER_OK, &error);
    CHECK(larder_server_count(client) == asked.servers && strlen(digits) == keys_count);
    for (size_t n = 0; n < keys_count; n++) {
        size_t server = larder_server_of(client, larder_text(keys[n]));
        if (server != (size_t) (digits[n] - '0')) {
            fprintf(stderr, "%s of %d servers: \"%s\" is at %d, there at %c\n", asked.preset, (int) asked.servers, keys[n],
                    (int) server, digits[n]);
            CHECK(!"keys are where other libraries put them");
        }
    }
    larder_free(client);
}

/* The rest of a line that begins with this word and a space; NULL for another line. */
static const char *behind(const char *line, const char *word) {
    size_t length = strlen(word);
    return strncmp(line, word, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

int main(int count, char **words) {
    CHECK(count >= 2);
    FILE *file = fopen(words[1], "r");
    CHECK(file != NULL);
    static char line[LINE_BYTES];
    size_t places = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char *end = strchr(line, '\n');
        CHECK(end != NULL);
        *end = 0;
        const char *rest;
        if ((rest = behind(line, "key")) != NULL) {
            CHECK(keys_count < KEYS_MAX);
            keys[keys_count] = malloc(strlen(rest) + 1);
            CHECK(keys[keys_count] != NULL);
            strcpy(keys[keys_count++], rest);
        } else if ((rest = behind(line, "place")) != NULL) {
            memset(&asked, 0, sizeof asked);
            size_t length = strcspn(rest, " ");
            CHECK(length < NAME_BYTES);
            memcpy(asked.preset, rest, length);
        } else if ((rest = behind(line, "server")) != NULL) {
            char *name;
            CHECK(asked.servers < SERVERS_MAX);
            asked.weights[asked.servers] = (uint32_t) strtoul(rest, &name, 10);
            CHECK(*name == ' ' && strlen(name + 1) < NAME_BYTES);
            strcpy(asked.names[asked.servers++], name + 1);
        } else if ((rest = behind(line, "at")) != NULL) {
            answer(rest);
            places++;
        } else {
            CHECK(line[0] == '#');
        }
    }
    fclose(file);
    /* An empty file would prove nothing. */
    CHECK(keys_count == 1000 && places >= 80);
    printf("%d keys at %d places\n", (int) keys_count, (int) places);
    while (keys_count > 0) {
        free(keys[--keys_count]);
    }
    return 0;
}
