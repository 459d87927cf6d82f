/* larder.h: the C client of Larder, which works with memcached as well. C11 and C++; Linux.
 *
 *     #include <larder.h>          cc … $(pkg-config --cflags --libs larder-client)
 *
 * A larder_client is for all threads, which share one pipelined connection to each server, and a second one for large
 * values. There is no pool to size, no thread of the library's own, and no signal handler.
 *
 * One after the other: larder_get, larder_set and their like wait for their answer.
 * Together:            a larder_batch is sent at once, and has a result for each of its requests.
 * Later:               a larder_stream does not wait; its barrier says sent = stored + refused + unknown.
 * In an event loop:    a larder_pipe is a connection whose calls never wait.
 *
 * STRUCTS that have a `size` begin with it, and the caller sets it to the sizeof of what it was compiled with: later
 * versions append fields. All other fields may be 0, which is the default of each:
 *
 *     larder_store store = { .size = sizeof store, .ttl_ms = 60000 };              C
 *     larder_store store = {}; store.size = sizeof store; store.ttl_ms = 60000;    C++
 *
 * A size that is not set, or a field that this version of the library does not know, is LARDER_BAD_ARGUMENT. Pointers to
 * such structs may be NULL: then all is default, or nothing is told.
 *
 * BYTES AND TEXTS that are given to a call are read during that call alone. What a call gives out says how long it is there.
 * Keys have 1 to 250 bytes, none of them a space or a control character, unless LARDER_BINARY_KEYS is set. Values have
 * any bytes, and may be empty.
 *
 * TIMES are in milliseconds. Servers count whole seconds: a time to live is rounded up. 0 and LARDER_FOREVER are for ever where
 * a time to live must be said; where it need not, 0 leaves it as it is. Below 0 is LARDER_BAD_TTL.
 *
 * A CALL ENDS within timeout_ms, with waiting and connecting, at most 32 ms late. A call that was given up leaves its
 * connection as it is: its answer is thrown away when it comes.
 *
 * ERRORS: every call returns a larder_status, and tells more to a larder_error. Where outcome is LARDER_UNKNOWN a write may
 * have been made. Should the library itself fail, which no input may bring about, the call returns LARDER_BUG and the
 * program goes on; what was used by it can then only be freed. Memory that the system does not have ends the program.
 *
 * THREADS: any thread may use a client at any time. A batch, a stream or a pipe is for one thread at a time; another that uses
 * it meanwhile is told LARDER_BAD_ARGUMENT.
 *
 * FORK: a client may be used on both sides. In the child, its first call leaves the parent's connections alone, closes what
 * the child has of them without a byte being sent, and makes its own. Batches, streams and pipes belong to the process that made
 * them: in the child every call with them is LARDER_CLOSED, and freeing them sends nothing. (vfork, and clone without the C
 * library, are not noticed: after them use no client before exec.)
 *
 * SIGNALS: a call that a signal interrupts goes on for the rest of its time. SIGPIPE is never raised. No function may be
 * called from a signal handler.
 */
#ifndef LARDER_H
#define LARDER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What calls return -------------------------------------------------------------------------------------------- */

/* Numbers do not change. Whose fault it is: below 16 nobody's (an answer), below 32 the caller's, below 48 the server's, below
 * 64 the network's. */
typedef enum {
    LARDER_OK = 0,
    LARDER_MISS = 1,          /* there is no such item */
    LARDER_CONFLICT = 2,      /* the item has another token than was expected */
    LARDER_NOT_STORED = 3,    /* it was to be added and is there, or to be replaced or appended to and is not */
    LARDER_TRUNCATED = 4,     /* the value is longer than the buffer, which holds its beginning */

    LARDER_BAD_KEY = 16,      /* nothing was sent */
    LARDER_TOO_LARGE = 17,    /* for the server; a set that is too large deletes the value that was there */
    LARDER_BAD_TTL = 18,      /* a time that cannot be, below 0; nothing was sent */
    LARDER_NOT_NUMBER = 19,   /* the value cannot be counted */
    LARDER_CLOSED = 20,       /* the client was shut down, or what was used is another process's */
    LARDER_BAD_ARGUMENT = 21, /* nothing was sent; the message says what is wrong */
    LARDER_AUTH = 22,         /* the server does not accept user and password, or wants some; no new try for 5 s */
    LARDER_UNSUPPORTED = 23,  /* the server speaks classic text, which cannot say this; nothing was sent */

    LARDER_SERVER_MEMORY = 32, /* the server is out of memory */
    LARDER_SERVER = 33,        /* the server refused; the message has its line */
    LARDER_PROTOCOL = 34,      /* the server's reply is not understood; the connection was given up */

    LARDER_TIMEOUT = 48,      /* no answer in time */
    LARDER_DOWN = 49,         /* the server could not be reached, now or a moment ago; nothing was sent */
    LARDER_LOST = 50,         /* the connection ended before the answer came */
    LARDER_WOULD_BLOCK = 51,  /* there is no room now; nothing was sent */

    LARDER_BUG = 64           /* of the library */
} larder_status;

/* Whether a request may have been applied. */
typedef enum {
    LARDER_NOT_SENT = 0, /* it was not */
    LARDER_UNKNOWN = 1,  /* it was on its way, and no answer came */
    LARDER_ANSWERED = 2  /* the server has answered, and the status says what it did */
} larder_outcome;

/* What a call has met; each call that is given one fills it, whatever it returns. Its texts end with 0, are cut to their
 * room, and are empty where there is nothing to say. */
typedef struct {
    uint32_t size;
    larder_status status;
    larder_outcome outcome;
    int32_t os_error;  /* errno of a connection that was lost or not made; 0 if the system said nothing */
    char server[64];   /* the server that it is about */
    char message[128]; /* for people */
} larder_error;

/* A few words for people. Of a number that is none of the above: "unknown status". It is there as long as the library is. */
const char *larder_status_text(larder_status status);

/* The library's version, "0.1.0". It is there as long as the library is. */
const char *larder_version(void);

/* ---- Bytes -------------------------------------------------------------------------------------------------------- */

/* So many bytes there; data may be NULL where len is 0. */
typedef struct {
    const void *data;
    size_t len;
} larder_bytes;

/* The bytes of a text that ends with 0, without it. */
static inline larder_bytes larder_text(const char *text) {
    larder_bytes bytes;
    bytes.data = text;
    bytes.len = strlen(text);
    return bytes;
}

/* Any bytes. */
static inline larder_bytes larder_data(const void *data, size_t len) {
    larder_bytes bytes;
    bytes.data = data;
    bytes.len = len;
    return bytes;
}

/* A time to live without an end. */
#define LARDER_FOREVER INT64_MAX

/* ---- A client ----------------------------------------------------------------------------------------------------- */

typedef struct larder_client larder_client;

/* What is spoken. */
typedef enum {
    LARDER_AUTO = 0,   /* what each server speaks: it is asked by each connection */
    LARDER_META = 1,   /* meta text: memcached from 1.6.10 on, and Larder */
    LARDER_CLASSIC = 2 /* classic text: neither deletes nor counts by token, makes no counters, is not quiet */
} larder_protocol;

/* Options of a client. */
enum {
    LARDER_NO_RETRY_READS = 1, /* a read whose connection was lost is not asked once more */
    LARDER_VERIFY = 2,         /* meta text: each request has a number that its reply must repeat */
    LARDER_BINARY_KEYS = 4     /* meta text: keys of any bytes, up to 186; what servers do not take goes as base64 */
};

typedef struct {
    uint32_t size;
    uint32_t options;             /* LARDER_NO_RETRY_READS | … */
    const char *const *servers;   /* each host:port, or a path that begins with '/' */
    size_t servers_count;
    const char *const *names;     /* what placement hashes in place of a server's address; NULL, or NULL for some: that */
    const uint32_t *weights;      /* shares of the keys; NULL: all the same */
    const char *preset;           /* which server has a key, docs/clients.md has the names; NULL: "ketama" */
    const char *user, *password;  /* the first thing that each connection says, if there are some */
    larder_bytes key_prefix;      /* stands in front of each key, and counts with it */
    larder_protocol protocol;
    uint32_t timeout_ms;          /* of a whole call; 500 */
    uint32_t dial_timeout_ms;     /* to connect, within that of the call; 1,000 */
    uint32_t stall_timeout_ms;    /* a connection that owes replies and sends nothing so long is given up; 2,000 */
    uint32_t in_flight;           /* replies that a connection may owe, before callers wait; 4,096 */
    uint32_t large_bytes;         /* values from here on are stored over the second connection; 65,536 */
} larder_config;

/* Makes a client, into *client, which is NULL if it cannot be made. The configuration is copied. Nothing is dialed before
 * the first call. LARDER_BAD_ARGUMENT: the message says what is wrong with the configuration. */
larder_status larder_open(const larder_config *config, larder_client **client, larder_error *error);

/* Ends a client's connections: calls under way and later ones, also of its batches and streams, end with LARDER_CLOSED; at
 * once, or if they are connecting, when that ends. A call whose request was sent has the outcome LARDER_UNKNOWN. From any
 * thread, at any time, again and again; NULL is fine. */
void larder_shutdown(larder_client *client);

/* Shuts a client down, waits for calls under way, and frees it. Once, when nobody begins another call with it; NULL is fine.
 * Its batches and streams may be used and freed later; what they are asked is LARDER_CLOSED. */
void larder_free(larder_client *client);

/* How many servers there are; 0 of NULL. */
size_t larder_server_count(const larder_client *client);

/* The name of one of them, counted from 0, as configured; NULL if there are fewer. It is there as long as the client is. */
const char *larder_server_name(const larder_client *client, size_t server);

/* Which of them has a key, which need not be there; 0 of NULL. */
size_t larder_server_of(const larder_client *client, larder_bytes key);

/* Asks one of them for its version: a text in buf, which ends with 0 and is cut to cap bytes with it. */
larder_status larder_server_version(larder_client *client, size_t server, char *buf, size_t cap, larder_error *error);

/* Throws everything away, on all servers. The first failure; the others were asked all the same. */
larder_status larder_flush_all(larder_client *client, larder_error *error);

/* What a client's connections have done. */
typedef struct {
    uint32_t size;
    uint32_t servers;
    uint64_t requests;
    uint64_t writes;     /* system calls that sent */
    uint64_t reads;      /* system calls that received */
    uint64_t overdue;    /* requests that were not answered in time */
    uint64_t dials;      /* connections that were tried */
    uint64_t unreported; /* writes of streams that were freed without a barrier, and were not stored, or may not have been */
} larder_counters;

/* Reads the counters. */
larder_status larder_read_counters(const larder_client *client, larder_counters *counters);

/* ---- One after the other ------------------------------------------------------------------------------------------
 *
 * Two system calls for a request, where one thread is alone; with more threads the fewer the more of them there are. In steady
 * state nothing is allocated for values of up to 64 KiB. */

/* What a read may ask for. */
enum {
    LARDER_WANT_FLAGS = 1,
    LARDER_WANT_CAS = 2,
    LARDER_WANT_TTL = 4,
    LARDER_WANT_SIZE = 8,
    LARDER_WANT_LAST_ACCESS = 16,
    LARDER_WANT_HIT_BEFORE = 32,
    LARDER_NO_BUMP = 64 /* the item's place in the order of eviction stays as it is */
};

typedef struct {
    uint32_t size;
    uint32_t want;    /* LARDER_WANT_FLAGS | …: what larder_meta tells; 0: nothing */
    int64_t touch_ms; /* the item's new time to live; 0: as it was */
} larder_read;

/* What is told of an item beside its value. */
enum {
    LARDER_HIT_BEFORE = 1, /* it had been read before */
    LARDER_STALE = 2,      /* it was invalidated, or a store was too late */
    LARDER_WON = 4,        /* this caller is to store another */
    LARDER_PENDING = 8     /* somebody else is about to */
};

/* What is known of an item; what was not asked for is 0, or what the server tells unasked. */
typedef struct {
    uint32_t size;
    uint32_t flags;         /* the client flags that it was stored with */
    uint64_t cas;           /* its token, which changes with each store */
    int64_t ttl_ms;         /* the time that it has left, or LARDER_FOREVER */
    uint64_t bytes;         /* how long its value is */
    int64_t last_access_ms; /* how long ago it was read */
    uint32_t marks;         /* LARDER_STALE | … */
    uint32_t reserved;      /* 0 */
} larder_meta;

/* Reads a value into buf. *len is how long it is, even if it is longer than cap: then buf holds its first cap bytes, and the
 * call returns LARDER_TRUNCATED. *len is 0 where there is no value. buf may be NULL if cap is 0. */
larder_status larder_get(larder_client *client, larder_bytes key, const larder_read *read, void *buf, size_t cap, size_t *len,
                         larder_meta *meta, larder_error *error);

/* Reads a value of any length into memory of its own, which larder_bytes_free gives back. *value is empty, with data NULL,
 * where there is none. */
larder_status larder_get_alloc(larder_client *client, larder_bytes key, const larder_read *read, larder_bytes *value,
                               larder_meta *meta, larder_error *error);

/* Gives the memory of larder_get_alloc back and empties *value; NULL and empty are fine. */
void larder_bytes_free(larder_bytes *value);

/* When a value is stored, and where. */
typedef enum {
    LARDER_SET = 0,     /* whatever there is */
    LARDER_ADD = 1,     /* if there is no item */
    LARDER_REPLACE = 2, /* if there is one */
    LARDER_APPEND = 3,  /* behind the value that is there */
    LARDER_PREPEND = 4  /* in front of it */
} larder_mode;

/* Options of a store. */
enum {
    LARDER_STALE_IF_OLDER = 1, /* meta text: with a token that is older than the item's, it is stored all the same, as stale */
    LARDER_TELL_CAS = 2        /* meta text: larder_meta tells the item's new token */
};

typedef struct {
    uint32_t size;
    larder_mode mode;
    uint32_t flags;   /* the client flags */
    uint32_t options; /* LARDER_STALE_IF_OLDER | … */
    int64_t ttl_ms;   /* 0: for ever */
    uint64_t cas;     /* only if the item has this token; 0: whatever it has */
} larder_store;

/* Stores a value: sets, adds, replaces, appends, prepends, compares and swaps, as `store` says. LARDER_CONFLICT, LARDER_MISS
 * (there is no item to compare with) or LARDER_NOT_STORED where a condition did not hold. */
larder_status larder_set(larder_client *client, larder_bytes key, larder_bytes value, const larder_store *store,
                         larder_meta *meta, larder_error *error);

/* Options of a deletion. */
enum {
    LARDER_KEEP_EMPTY = 1 /* meta text: the value goes, and the item stays */
};

typedef struct {
    uint32_t size;
    uint32_t options;
    uint64_t cas;          /* meta text: only if the item has this token; 0: whatever it has */
    int64_t keep_stale_ms; /* meta text: it stays so long as stale, and one reader wins; 0: it goes */
} larder_remove;

/* Deletes an item; LARDER_MISS if there is none. */
larder_status larder_delete(larder_client *client, larder_bytes key, const larder_remove *remove, larder_error *error);

/* Leaves an item for so long as stale, which is more than 0: one of those who read it by larder_get_or_lease renews it, the
 * others are told that it is stale. Meta text. LARDER_MISS if there is none. */
larder_status larder_invalidate(larder_client *client, larder_bytes key, int64_t serve_stale_ms, larder_error *error);

/* Gives an item a new time to live; LARDER_MISS if there is none. */
larder_status larder_touch(larder_client *client, larder_bytes key, int64_t ttl_ms, larder_error *error);

/* Options of a count. */
enum {
    LARDER_CREATE = 1 /* meta text: where there is no number, it is made: `initial`, with `ttl_ms` */
};

typedef struct {
    uint32_t size;
    uint32_t options;
    uint64_t initial;
    int64_t ttl_ms;   /* of a number that is made; 0: for ever */
    int64_t touch_ms; /* meta text: the new time to live of one that is there; 0: as it was */
    uint64_t cas;     /* meta text: only if the number has this token; 0: whatever it has */
} larder_count;

/* Adds to a number, into *number, which may be NULL; beyond 2^64 it begins again at 0. LARDER_MISS if there is none,
 * LARDER_NOT_NUMBER if the value is something else. */
larder_status larder_incr(larder_client *client, larder_bytes key, uint64_t delta, const larder_count *count,
                          uint64_t *number, larder_error *error);

/* Takes from a number, which stops at 0; else as larder_incr. */
larder_status larder_decr(larder_client *client, larder_bytes key, uint64_t delta, const larder_count *count,
                          uint64_t *number, larder_error *error);

/* What an update makes of a value: `old` is NULL where there is no item, and there during the call alone. It returns 0 after it
 * has set *value, whose bytes are the caller's and stay until it is called again or larder_update returns; and another
 * number to leave everything as it is. It may be called several times. It must return: it throws no exception and does not
 * jump away. */
typedef int (*larder_change)(void *user, const larder_bytes *old, larder_bytes *value);

/* Reads a value, gives it to `change`, and stores what that makes of it if nobody has changed it meanwhile; else again, up to 16
 * times, with pauses drawn from 50 µs to 10 ms. The item keeps its client flags. LARDER_NOT_STORED if `change` left it as it
 * was, LARDER_CONFLICT after the last attempt. Where outcome is LARDER_UNKNOWN the value may have been stored: whether,
 * cannot be found out afterwards. */
larder_status larder_update(larder_client *client, larder_bytes key, int64_t ttl_ms, larder_change change, void *user,
                            larder_error *error);

/* What a caller of larder_get_or_lease is to do. */
typedef enum {
    LARDER_HIT = 0,         /* there is a value */
    LARDER_HIT_REFRESH = 1, /* there is one, stale or about to expire, and this caller is to fill in another */
    LARDER_HIT_STALE = 2,   /* there is a stale one, which another caller is to renew */
    LARDER_MISS_WON = 3,    /* there is none, and this caller is to fill it in */
    LARDER_MISS_WAIT = 4    /* there is none, and another caller is to fill it in */
} larder_lease_state;

typedef struct {
    uint32_t size;
    larder_lease_state state; /* told */
    uint64_t cas;             /* told; what larder_fill compares */
    int64_t ttl_ms;           /* told: the time that the item has left */
    int64_t vivify_ms;        /* asked: how long the winner of a miss has to fill it; 0: 30,000 */
    int64_t refresh_ms;       /* asked: one caller is the winner of an item that has less left; 0: of none */
} larder_lease;

/* Reads a value as larder_get does, and names one of all callers, in all processes, the winner if there is none, or if it is
 * stale or about to expire. Meta text. LARDER_OK also where there is no value: the state says so. */
larder_status larder_get_or_lease(larder_client *client, larder_bytes key, larder_lease *lease, void *buf, size_t cap,
                                  size_t *len, larder_error *error);

/* Stores what a winner has made. LARDER_CONFLICT if the key was deleted, invalidated or filled since. */
larder_status larder_fill(larder_client *client, larder_bytes key, larder_bytes value, int64_t ttl_ms,
                          const larder_lease *lease, larder_error *error);

/* ---- Together -----------------------------------------------------------------------------------------------------
 *
 * Requests of a batch go in one write to each server, and are answered together. A batch that is used again keeps its
 * memory. */

typedef struct larder_batch larder_batch;

typedef enum {
    LARDER_VERB_GET = 1,
    LARDER_VERB_SET = 2,
    LARDER_VERB_DELETE = 3,
    LARDER_VERB_TOUCH = 4,
    LARDER_VERB_INCR = 5,
    LARDER_VERB_DECR = 6
} larder_verb;

/* Any request of one key. */
typedef struct {
    uint32_t size;
    larder_verb verb;
    larder_bytes key;
    larder_bytes value;          /* of LARDER_VERB_SET */
    uint64_t delta;              /* of LARDER_VERB_INCR, LARDER_VERB_DECR */
    int64_t ttl_ms;              /* of LARDER_VERB_TOUCH, and of LARDER_VERB_SET if `store` is NULL */
    const larder_read *read;     /* of LARDER_VERB_GET, or NULL */
    const larder_store *store;   /* of LARDER_VERB_SET, or NULL */
    const larder_remove *remove; /* of LARDER_VERB_DELETE, or NULL */
    const larder_count *count;   /* of LARDER_VERB_INCR, LARDER_VERB_DECR, or NULL */
} larder_request;

/* Makes a batch; NULL of NULL, or of a client that belongs to nobody any more. */
larder_batch *larder_batch_new(larder_client *client);

/* Adds a request, whose bytes are copied, and says its number, counted from 0: *number, which may be NULL. A key that
 * servers do not take is not refused here but told as the request's result. */
larder_status larder_batch_add(larder_batch *batch, const larder_request *request, size_t *number, larder_error *error);

/* Sends all requests that were added since the last run and waits for all of them. LARDER_OK if each was answered, be it by no;
 * else what the first had that was not. Each has a result of its own. */
larder_status larder_batch_run(larder_batch *batch, larder_error *error);

/* What the last run answered to a request, by its number: its status, as the call for one key would return it, and what it
 * read: *value, *counted (a number that was counted) and *meta, each of which may be NULL. The bytes of *value are there
 * until the batch is run again or freed. LARDER_BAD_ARGUMENT: the last run had no such request. */
larder_status larder_batch_result(const larder_batch *batch, size_t number, larder_bytes *value, uint64_t *counted,
                                  larder_meta *meta, larder_error *error);

/* Frees a batch; NULL is fine. */
void larder_batch_free(larder_batch *batch);

/* Adds the usual requests. */
static inline larder_status larder_batch_get(larder_batch *batch, larder_bytes key) {
    larder_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.verb = LARDER_VERB_GET;
    request.key = key;
    return larder_batch_add(batch, &request, NULL, NULL);
}

static inline larder_status larder_batch_set(larder_batch *batch, larder_bytes key, larder_bytes value, int64_t ttl_ms) {
    larder_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.verb = LARDER_VERB_SET;
    request.key = key;
    request.value = value;
    request.ttl_ms = ttl_ms;
    return larder_batch_add(batch, &request, NULL, NULL);
}

static inline larder_status larder_batch_delete(larder_batch *batch, larder_bytes key) {
    larder_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.verb = LARDER_VERB_DELETE;
    request.key = key;
    return larder_batch_add(batch, &request, NULL, NULL);
}

/* ---- Later --------------------------------------------------------------------------------------------------------
 *
 * Writes of a stream are sent in groups and not waited for, unless the window is full. After a barrier
 *
 *     sent = stored + refused + unknown
 *
 * also if the server has died meanwhile. */

typedef struct larder_stream larder_stream;

typedef struct {
    uint32_t size;
    uint32_t told;    /* how many of those that were not stored larder_stream_refused can tell: 16 at most */
    uint64_t sent;    /* since the last barrier */
    uint64_t stored;  /* carried out, as the server has said; a deletion of what was not there counts here */
    uint64_t refused; /* not applied: as the server has said, or because it was never sent */
    uint64_t unknown; /* sent, and not answered */
} larder_report;

/* Makes a stream that has at most so many requests, of so many bytes, under way: 0 for 1,024 and 1 MiB. Where failures_only is
 * not 0, the server answers only what it refuses (meta text; in classic text everything is answered). NULL of NULL, or of a
 * client that belongs to nobody any more. */
larder_stream *larder_stream_new(larder_client *client, uint32_t requests, uint32_t bytes, int failures_only);

/* Sends a store. LARDER_OK says that it counts as sent, no more. Anything else: it was not sent and does not count. A new token
 * is not told. */
larder_status larder_stream_set(larder_stream *stream, larder_bytes key, larder_bytes value, const larder_store *store,
                                larder_error *error);

/* Sends a deletion; else as larder_stream_set. */
larder_status larder_stream_delete(larder_stream *stream, larder_bytes key, const larder_remove *remove,
                                   larder_error *error);

/* Sends what is left, waits for all answers, and says what became of everything since the last barrier. LARDER_OK if all was
 * carried out; else what the first had that was not. */
larder_status larder_stream_barrier(larder_stream *stream, larder_report *report, larder_error *error);

/* What one of the first that were not stored has met, before the last barrier, counted from 0, and its key, which is there
 * until the next barrier and empty where the server did not say which it was. LARDER_BAD_ARGUMENT: there are fewer. */
larder_status larder_stream_refused(larder_stream *stream, size_t number, larder_bytes *key, larder_error *error);

/* Frees a stream; NULL is fine. Without a barrier before, what is left is sent and waited for, and what was not stored is
 * counted in larder_counters.unreported. */
void larder_stream_free(larder_stream *stream);

/* ---- Event loops --------------------------------------------------------------------------------------------------
 *
 * A pipe is one connection to one server, for a program's own event loop: no call of it ever waits. Wait for larder_pipe_fd as
 * larder_pipe_wants says, at most wake_ms, and call larder_pipe_process:
 *
 *     int64_t wake_ms;
 *     uint32_t wants = larder_pipe_wants(pipe, &wake_ms);
 *     struct pollfd fd = {.fd = larder_pipe_fd(pipe)};
 *     fd.events = (wants & LARDER_PIPE_READ ? POLLIN : 0) | (wants & LARDER_PIPE_WRITE ? POLLOUT : 0);
 *     poll(&fd, 1, (int) wake_ms);
 *     uint32_t ready = (fd.revents & ~POLLOUT ? LARDER_PIPE_READ : 0) | (fd.revents & ~POLLIN ? LARDER_PIPE_WRITE : 0);
 *     larder_pipe_process(pipe, ready, done, user, &error);
 *
 * Each request that was taken ends once: answered, late, or told why the connection is over. A connection that is over stays
 * so; another takes its place. */

typedef struct larder_pipe larder_pipe;

/* What a pipe waits for, and what is ready; an error, or that the other side has hung up, is both. */
enum {
    LARDER_PIPE_READ = 1,
    LARDER_PIPE_WRITE = 2
};

/* What became of a request. It is there during the call of larder_done alone. */
typedef struct {
    uint32_t size;             /* as much of it as this version of the library has */
    larder_status status;      /* as the call for one key would return it */
    larder_outcome outcome;
    uint32_t reserved;         /* 0 */
    larder_bytes value;        /* what it read */
    uint64_t counted;          /* the number that it counted */
    const larder_meta *meta;   /* NULL if it was not answered */
    const larder_error *error; /* NULL if it was */
} larder_reply;

/* Tells what became of a request, by the tag that it was submitted with. It may submit others, and free the pipe, which then
 * happens when all were told. It must return. */
typedef void (*larder_done)(void *user, void *tag, const larder_reply *reply);

/* Begins to connect to the one server of a configuration, which must be an address and not a name: looking names up waits. Into
 * *pipe, which is NULL if it cannot be made. Of the configuration, placement and retries mean nothing, and all values go over the
 * one connection. */
larder_status larder_pipe_open(const larder_config *config, larder_pipe **pipe, larder_error *error);

/* The socket, the same as long as the pipe is there. It is the pipe's: look at it, and do nothing with it. −1 of NULL. */
int larder_pipe_fd(const larder_pipe *pipe);

/* What to wait for: LARDER_PIPE_READ | LARDER_PIPE_WRITE; 0 where the connection is over. *wake_ms, which may be NULL, is in how
 * many milliseconds at the latest to process, whatever is ready; −1: there is no such time. */
uint32_t larder_pipe_wants(const larder_pipe *pipe, int64_t *wake_ms);

/* Takes a request, whose bytes are copied, also while the connection is being made. It is sent by the next larder_pipe_process,
 * whatever is ready. LARDER_WOULD_BLOCK: in_flight replies are owed, or a mebibyte waits to be sent; there is room after some have
 * ended. Where it is not LARDER_OK nothing was taken, and nothing is told by this tag. */
larder_status larder_pipe_submit(larder_pipe *pipe, const larder_request *request, void *tag, larder_error *error);

/* Sends and receives what can be, and tells what has ended. Anything but LARDER_OK: the connection is over, and what was under way
 * has been told. */
larder_status larder_pipe_process(larder_pipe *pipe, uint32_t ready, larder_done done, void *user, larder_error *error);

/* Closes and frees a pipe; NULL is fine. Requests that have not ended are not told any more. */
void larder_pipe_free(larder_pipe *pipe);

#ifdef __cplusplus
}
#endif

#endif
