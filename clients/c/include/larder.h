/* larder.h: the C client of Larder, which works with memcached as well. C11 and C++; Linux.
 *
 *     #include <larder.h>          cc … $(pkg-config --cflags --libs larder-client)
 *
 * A larder_client is for all threads, which share one pipelined connection to each server, or a few (lanes), and another one
 * for large values. There is no pool to size, no thread of the library's own, and no signal handler.
 *
 * One by one:          larder_get, larder_set and so on wait for their answer.
 * Together:            a larder_batch is sent at once, and has a result for each of its requests.
 * Later:               a larder_stream does not wait; its barrier reports sent = stored + refused + unknown.
 * In an event loop:    a larder_pipe is a connection whose calls never wait.
 *
 * STRUCTS that have a `size` begin with it, and the caller sets it to the sizeof of what it was compiled with: later
 * versions append fields. All other fields may be 0, which is the default of each:
 *
 *     larder_store store = { .size = sizeof store, .ttl_ms = 60000 };              C
 *     larder_store store = {}; store.size = sizeof store; store.ttl_ms = 60000;    C++
 *
 * If a size is not set, or a field is set that this version of the library does not know, the call returns
 * LARDER_BAD_ARGUMENT. Pointers to such structs may be NULL: then all fields have their defaults, or nothing is returned.
 *
 * BYTES AND TEXTS that are passed to a call are read during that call alone. How long returned bytes are valid is said at each
 * call. Keys have 1 to 250 bytes, none of them a space or a control character, unless LARDER_BINARY_KEYS is set. Values have
 * any bytes, and may be empty.
 *
 * TIMES are in milliseconds. Servers count whole seconds: a time to live is rounded up. Where a time to live is required, 0 and
 * LARDER_FOREVER mean for ever; where it is optional, 0 leaves it as it is. A negative time is LARDER_BAD_TTL.
 *
 * A CALL ENDS within timeout_ms, including waiting and connecting, at most 32 ms late. A call that was given up leaves its
 * connection usable: its answer is dropped when it comes.
 *
 * ERRORS: every call returns a larder_status, and details in a larder_error. If outcome is LARDER_UNKNOWN, a write may have
 * been made. If the library itself fails, which no input should cause, the call returns LARDER_BUG and the program goes on;
 * the handles that the call used can then only be freed. If the system is out of memory, the program ends.
 *
 * THREADS: any thread may use a client at any time. A batch, a stream or a pipe is for one thread at a time; another thread's
 * call meanwhile returns LARDER_BAD_ARGUMENT.
 *
 * FORK: a client may be used on both sides. In the child, its first call leaves the parent's connections alone, closes the
 * child's copies of them without sending a byte, and makes new ones. Batches, streams and pipes belong to the process that made
 * them: in the child every call with them returns LARDER_CLOSED, and freeing them sends nothing. (vfork, and clone without the C
 * library, are not noticed: after them use no client before exec.)
 *
 * TLS: with LARDER_TLS each connection uses TLS 1.2 or 1.3. The server's certificate must be signed by an authority of ca_file,
 * and its subject alternative names must have the server's host or address, or server_name. Otherwise the call returns
 * LARDER_DOWN, and neither a request nor a password was sent. Files are read by larder_open alone. A larder_pipe has no TLS.
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

/* Numbers do not change. Below 16 is an answer, below 32 an error of the caller, below 48 of the server, below 64 of the
 * network. */
typedef enum {
    LARDER_OK = 0,
    LARDER_MISS = 1,          /* there is no such item */
    LARDER_CONFLICT = 2,      /* the item has another token than expected */
    LARDER_NOT_STORED = 3,    /* an add found an item, or a replace, append or prepend found none */
    LARDER_TRUNCATED = 4,     /* the value is longer than the buffer, which holds its beginning */

    LARDER_BAD_KEY = 16,      /* nothing was sent */
    LARDER_TOO_LARGE = 17,    /* for the server; a set that is too large deletes the value that was there */
    LARDER_BAD_TTL = 18,      /* a negative time; nothing was sent */
    LARDER_NOT_NUMBER = 19,   /* the value is not a number */
    LARDER_CLOSED = 20,       /* the client was shut down, or the handle belongs to another process */
    LARDER_BAD_ARGUMENT = 21, /* nothing was sent; the message says what is wrong */
    LARDER_AUTH = 22,         /* user and password are missing or refused; no new try for 5 s */
    LARDER_UNSUPPORTED = 23,  /* classic text cannot express this; nothing was sent */

    LARDER_SERVER_MEMORY = 32, /* the server is out of memory */
    LARDER_SERVER = 33,        /* the server refused; the message has its line */
    LARDER_PROTOCOL = 34,      /* the server's reply is not understood; the connection was given up */

    LARDER_TIMEOUT = 48,      /* no answer in time */
    LARDER_DOWN = 49,         /* the server could not be reached, now or a moment ago; nothing was sent */
    LARDER_LOST = 50,         /* the connection ended before the answer came */
    LARDER_WOULD_BLOCK = 51,  /* there is no room now; nothing was sent */

    LARDER_BUG = 64           /* a bug of the library */
} larder_status;

/* Whether a request may have been applied. */
typedef enum {
    LARDER_NOT_SENT = 0, /* it was not */
    LARDER_UNKNOWN = 1,  /* it was on its way, and no answer came */
    LARDER_ANSWERED = 2  /* the server has answered, and the status says what it did */
} larder_outcome;

/* Details of a call's result. Each call that gets one fills it, whatever it returns. Its texts end with 0, are cut to their
 * room, and are empty where there is nothing to say. */
typedef struct {
    uint32_t size;
    larder_status status;
    larder_outcome outcome;
    int32_t os_error;  /* errno of a connection that was lost or not made; 0 if there is none */
    char server[64];   /* the server that it is about */
    char message[128]; /* for people */
} larder_error;

/* A few words for people; "unknown status" for a number that is none of the above. Valid as long as the library is loaded. */
const char *larder_status_text(larder_status status);

/* The library's version, "0.1.0". Valid as long as the library is loaded. */
const char *larder_version(void);

/* ---- Bytes -------------------------------------------------------------------------------------------------------- */

/* len bytes at data, which may be NULL if len is 0. */
typedef struct {
    const void *data;
    size_t len;
} larder_bytes;

/* The bytes of a text, without the 0 at its end. */
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

/* A time to live that never ends. */
#define LARDER_FOREVER INT64_MAX

/* ---- A client ----------------------------------------------------------------------------------------------------- */

typedef struct larder_client larder_client;

/* The protocol to speak. */
typedef enum {
    LARDER_AUTO = 0,   /* the best that the server speaks: each connection asks it */
    LARDER_META = 1,   /* meta text: memcached from 1.6.10 on, and Larder */
    LARDER_CLASSIC = 2 /* classic text: no deletes or counts by token, no new counters, no quiet requests */
} larder_protocol;

/* Options of a client. */
enum {
    LARDER_NO_RETRY_READS = 1, /* a read whose connection was lost is not made once more */
    LARDER_VERIFY = 2,         /* meta text: each request has a number that its reply must repeat */
    LARDER_BINARY_KEYS = 4,    /* meta text: keys of any bytes, up to 186; base64 where servers would refuse them */
    LARDER_TLS = 8             /* connections are encrypted, and servers show certificates */
};

typedef struct {
    uint32_t size;
    uint32_t options;             /* LARDER_NO_RETRY_READS | … */
    const char *const *servers;   /* each host:port, or a path that begins with '/' */
    size_t servers_count;
    const char *const *names;     /* what placement hashes; NULL, or NULL for some: the server's address */
    const uint32_t *weights;      /* shares of the keys; NULL: equal shares */
    const char *preset;           /* the rule of placement, by its name in docs/clients.md; NULL: "ketama" */
    const char *user, *password;  /* sent first on each connection; NULL: none */
    larder_bytes key_prefix;      /* put before each key; counts for the key's length */
    larder_protocol protocol;
    uint32_t timeout_ms;          /* of a whole call; 500 */
    uint32_t dial_timeout_ms;     /* to connect, within that of the call; 1,000 */
    uint32_t stall_timeout_ms;    /* a connection that owes replies and receives nothing this long is given up; 2,000 */
    uint32_t in_flight;           /* replies that a connection may owe, before callers wait; 4,096 */
    uint32_t large_bytes;         /* values of this size or more are stored over a connection of their own; 65,536 */
    /* With LARDER_TLS; else NULL. Files are PEM, of 1 MiB at most. */
    const char *ca_file;          /* certificates of the authorities that sign servers'; NULL: the system's authorities */
    const char *cert_file;        /* the client's certificate and those between it and its authority; NULL: none */
    const char *key_file;         /* the key of the client's certificate, not encrypted */
    const char *server_name;      /* the name in the servers' certificates; NULL: the host of each address */
    uint32_t lanes;               /* connections to each server for other values, 1 to 8; a key always has the same one; 1 */
    uint32_t reserved;            /* 0 */
} larder_config;

/* Makes a client, into *client, which is NULL if it cannot be made. The configuration is copied. Nothing is dialed before
 * the first call. LARDER_BAD_ARGUMENT: the message says what is wrong with the configuration. */
larder_status larder_open(const larder_config *config, larder_client **client, larder_error *error);

/* Ends a client's connections. Calls under way and later ones, also of its batches and streams, return LARDER_CLOSED: at once,
 * or if they are connecting, when that ends. A call whose request was sent has the outcome LARDER_UNKNOWN. May be called from
 * any thread, at any time, repeatedly; NULL is fine. */
void larder_shutdown(larder_client *client);

/* Shuts a client down, waits for calls under way, and frees it. Call it once, when no thread begins another call with it; NULL
 * is fine. Its batches and streams may be freed later; until then their calls return LARDER_CLOSED. */
void larder_free(larder_client *client);

/* Number of servers; 0 for NULL. */
size_t larder_server_count(const larder_client *client);

/* The name of a server, counted from 0, as configured; NULL if there are fewer. Valid as long as the client. */
const char *larder_server_name(const larder_client *client, size_t server);

/* The server of a key, which need not exist; 0 for NULL. */
size_t larder_server_of(const larder_client *client, larder_bytes key);

/* Asks a server for its version: a text in buf, which ends with 0 and is cut to cap bytes including it. */
larder_status larder_server_version(larder_client *client, size_t server, char *buf, size_t cap, larder_error *error);

/* Deletes everything on all servers. Returns the first failure; the other servers are asked in any case. */
larder_status larder_flush_all(larder_client *client, larder_error *error);

/* What a client's connections have done so far. */
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

/* ---- One by one ---------------------------------------------------------------------------------------------------
 *
 * A thread alone takes two system calls for a request; the more threads there are, the fewer each takes. In steady state
 * nothing is allocated for values of up to 64 KiB, except by TLS. */

/* What a read may ask for. */
enum {
    LARDER_WANT_FLAGS = 1,
    LARDER_WANT_CAS = 2,
    LARDER_WANT_TTL = 4,
    LARDER_WANT_SIZE = 8,
    LARDER_WANT_LAST_ACCESS = 16,
    LARDER_WANT_HIT_BEFORE = 32,
    LARDER_NO_BUMP = 64 /* the read does not change the item's place in the order of eviction */
};

typedef struct {
    uint32_t size;
    uint32_t want;    /* LARDER_WANT_FLAGS | …: fields of larder_meta to fill; 0: none */
    int64_t touch_ms; /* the item's new time to live; 0: as it was */
} larder_read;

/* Marks of an item. */
enum {
    LARDER_HIT_BEFORE = 1, /* it had been read before */
    LARDER_STALE = 2,      /* it was invalidated, or a store was too late */
    LARDER_WON = 4,        /* this caller has to store a new value */
    LARDER_PENDING = 8     /* another caller has to */
};

/* Attributes of an item. Those that were not asked for are 0, unless the server sends them unasked. */
typedef struct {
    uint32_t size;
    uint32_t flags;         /* the client flags that it was stored with */
    uint64_t cas;           /* its token, which changes with each store */
    int64_t ttl_ms;         /* the time until it expires, or LARDER_FOREVER */
    uint64_t bytes;         /* the length of its value */
    int64_t last_access_ms; /* how long ago it was last read */
    uint32_t marks;         /* LARDER_STALE | … */
    uint32_t reserved;      /* 0 */
} larder_meta;

/* Reads a value into buf. *len is its length, even if that is more than cap: then buf holds the first cap bytes, and the call
 * returns LARDER_TRUNCATED. *len is 0 if there is no value. buf may be NULL if cap is 0. */
larder_status larder_get(larder_client *client, larder_bytes key, const larder_read *read, void *buf, size_t cap, size_t *len,
                         larder_meta *meta, larder_error *error);

/* Reads a value of any length into new memory, which larder_bytes_free frees. *value is empty, with data NULL, if there is no
 * value. */
larder_status larder_get_alloc(larder_client *client, larder_bytes key, const larder_read *read, larder_bytes *value,
                               larder_meta *meta, larder_error *error);

/* Frees the memory of larder_get_alloc and empties *value; NULL and empty are fine. */
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
    LARDER_STALE_IF_OLDER = 1, /* meta text: if the token is older than the item's, the value is stored as stale */
    LARDER_TELL_CAS = 2        /* meta text: larder_meta has the item's new token */
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
    LARDER_KEEP_EMPTY = 1 /* meta text: the value is removed, and the item stays */
};

typedef struct {
    uint32_t size;
    uint32_t options;
    uint64_t cas;          /* meta text: only if the item has this token; 0: whatever it has */
    int64_t keep_stale_ms; /* meta text: the item stays this long as stale, and one reader wins; 0: it is deleted */
} larder_remove;

/* Deletes an item; LARDER_MISS if there is none. */
larder_status larder_delete(larder_client *client, larder_bytes key, const larder_remove *remove, larder_error *error);

/* Marks an item stale and keeps it for serve_stale_ms, which is more than 0. Of the callers that read it by larder_get_or_lease
 * one has to renew it; the others see that it is stale. Meta text. LARDER_MISS if there is no item. */
larder_status larder_invalidate(larder_client *client, larder_bytes key, int64_t serve_stale_ms, larder_error *error);

/* Gives an item a new time to live; LARDER_MISS if there is none. */
larder_status larder_touch(larder_client *client, larder_bytes key, int64_t ttl_ms, larder_error *error);

/* Options of a count. */
enum {
    LARDER_CREATE = 1 /* meta text: creates a number that does not exist: `initial`, with `ttl_ms` */
};

typedef struct {
    uint32_t size;
    uint32_t options;
    uint64_t initial;
    int64_t ttl_ms;   /* of a number that is created; 0: for ever */
    int64_t touch_ms; /* meta text: the new time to live of an existing number; 0: as it was */
    uint64_t cas;     /* meta text: only if the number has this token; 0: whatever it has */
} larder_count;

/* Adds to a number, into *number, which may be NULL; beyond 2^64 it begins again at 0. LARDER_MISS if there is none,
 * LARDER_NOT_NUMBER if the value is something else. */
larder_status larder_incr(larder_client *client, larder_bytes key, uint64_t delta, const larder_count *count,
                          uint64_t *number, larder_error *error);

/* Subtracts from a number, which stops at 0; otherwise as larder_incr. */
larder_status larder_decr(larder_client *client, larder_bytes key, uint64_t delta, const larder_count *count,
                          uint64_t *number, larder_error *error);

/* Makes the new value of an update. `old` is NULL if there is no item, and valid during the call alone. To store a value, the
 * function sets *value and returns 0; the bytes must stay valid until its next call or until larder_update returns. Any other
 * number leaves the item as it is. It may be called several times. It must return: no exception, no longjmp. */
typedef int (*larder_change)(void *user, const larder_bytes *old, larder_bytes *value);

/* Reads a value, passes it to `change`, and stores the result if the item has not changed meanwhile. Otherwise tries again, up
 * to 16 times, with pauses drawn from 50 µs to 10 ms. The item keeps its client flags. LARDER_NOT_STORED if `change` left it as
 * it was, LARDER_CONFLICT after the last attempt. If outcome is LARDER_UNKNOWN, the value may have been stored, and nothing can
 * tell afterwards whether it was. */
larder_status larder_update(larder_client *client, larder_bytes key, int64_t ttl_ms, larder_change change, void *user,
                            larder_error *error);

/* What a caller of larder_get_or_lease has to do. */
typedef enum {
    LARDER_HIT = 0,         /* there is a value */
    LARDER_HIT_REFRESH = 1, /* there is one, stale or about to expire, and this caller has to renew it */
    LARDER_HIT_STALE = 2,   /* there is a stale one, which another caller renews */
    LARDER_MISS_WON = 3,    /* there is none, and this caller has to fill it */
    LARDER_MISS_WAIT = 4    /* there is none, and another caller fills it */
} larder_lease_state;

typedef struct {
    uint32_t size;
    larder_lease_state state; /* output */
    uint64_t cas;             /* output: the token that larder_fill compares */
    int64_t ttl_ms;           /* output: the time until the item expires */
    int64_t vivify_ms;        /* input: how long the winner of a miss may take to fill it; 0: 30,000 */
    int64_t refresh_ms;       /* input: an item with less left has one winner, too; 0: never */
} larder_lease;

/* Reads a value as larder_get does. If there is no value, or it is stale or about to expire, one of all callers in all processes
 * becomes the winner. Meta text. LARDER_OK also if there is no value: see the state. */
larder_status larder_get_or_lease(larder_client *client, larder_bytes key, larder_lease *lease, void *buf, size_t cap,
                                  size_t *len, larder_error *error);

/* Stores the value of a winner. LARDER_CONFLICT if the key was deleted, invalidated or filled since. */
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

/* Makes a batch; NULL if the client is NULL or cannot be used in this process. */
larder_batch *larder_batch_new(larder_client *client);

/* Adds a request, whose bytes are copied. *number, which may be NULL, is its number, counted from 0. A bad key is not refused
 * here: it is the request's result. */
larder_status larder_batch_add(larder_batch *batch, const larder_request *request, size_t *number, larder_error *error);

/* Sends all requests that were added since the last run and waits for all replies. LARDER_OK if each was answered, even by a
 * refusal; otherwise the status of the first that was not. Each request has its own result. */
larder_status larder_batch_run(larder_batch *batch, larder_error *error);

/* The result of a request in the last run, by its number: its status, as the call for one key would return it, and *value,
 * *counted (the number of a count) and *meta, each of which may be NULL. The bytes of *value are valid until the batch is run
 * again or freed. LARDER_BAD_ARGUMENT: the last run had no such request. */
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
    uint32_t told;    /* how many refusals larder_stream_refused has: 16 at most */
    uint64_t sent;    /* since the last barrier */
    uint64_t stored;  /* carried out, as the server has said; a deletion of a missing key counts here */
    uint64_t refused; /* not applied: as the server has said, or because it was never sent */
    uint64_t unknown; /* sent, and not answered */
} larder_report;

/* Makes a stream with at most this many requests and bytes under way; 0: 1,024 and 1 MiB. If failures_only is not 0, the server
 * answers only refusals (meta text; in classic text everything is answered). NULL if the client is NULL or cannot be used in
 * this process. */
larder_stream *larder_stream_new(larder_client *client, uint32_t requests, uint32_t bytes, int failures_only);

/* Sends a store. LARDER_OK says only that it counts as sent; with anything else it was not sent and does not count. The new
 * token is not reported. */
larder_status larder_stream_set(larder_stream *stream, larder_bytes key, larder_bytes value, const larder_store *store,
                                larder_error *error);

/* Sends a deletion; otherwise as larder_stream_set. */
larder_status larder_stream_delete(larder_stream *stream, larder_bytes key, const larder_remove *remove,
                                   larder_error *error);

/* Sends what is left, waits for all answers, and reports the results of everything since the last barrier. LARDER_OK if all was
 * carried out; otherwise the status of the first request that was not. */
larder_status larder_stream_barrier(larder_stream *stream, larder_report *report, larder_error *error);

/* The error of one of the first refusals of the last barrier, counted from 0, and its key. The key is valid until the next
 * barrier, and empty where the server did not say which request it was. LARDER_BAD_ARGUMENT: there are fewer refusals. */
larder_status larder_stream_refused(larder_stream *stream, size_t number, larder_bytes *key, larder_error *error);

/* Frees a stream; NULL is fine. Without a barrier before, what is left is sent and waited for, and writes that were not stored
 * count in larder_counters.unreported. */
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
 * Each request that was taken ends exactly once: answered, late, or with the error that ended the connection. After its end
 * a connection takes no requests; open another pipe. */

typedef struct larder_pipe larder_pipe;

/* What a pipe waits for, and what is ready. Pass both for an error or a hang-up. */
enum {
    LARDER_PIPE_READ = 1,
    LARDER_PIPE_WRITE = 2
};

/* The result of a request. Valid during the call of larder_done alone. */
typedef struct {
    uint32_t size;             /* as this version of the library has it */
    larder_status status;      /* as the call for one key would return it */
    larder_outcome outcome;
    uint32_t reserved;         /* 0 */
    larder_bytes value;        /* what it read */
    uint64_t counted;          /* the number that it counted */
    const larder_meta *meta;   /* NULL if it was not answered */
    const larder_error *error; /* NULL if it was */
} larder_reply;

/* Gets the result of a request, with the tag that it was submitted with. The function may submit requests, and free the pipe,
 * which then happens after the last callback. It must return. */
typedef void (*larder_done)(void *user, void *tag, const larder_reply *reply);

/* Begins to connect to the one server of a configuration, which must be an address and not a name: looking names up waits.
 * *pipe is NULL if it cannot be made. Placement and retries of the configuration have no effect, and all values use the one
 * connection. */
larder_status larder_pipe_open(const larder_config *config, larder_pipe **pipe, larder_error *error);

/* The socket, the same as long as the pipe exists. It belongs to the pipe: only wait for it. −1 for NULL. */
int larder_pipe_fd(const larder_pipe *pipe);

/* What to wait for: LARDER_PIPE_READ | LARDER_PIPE_WRITE; 0 after the end of the connection. *wake_ms, which may be NULL, is in
 * how many milliseconds larder_pipe_process has to be called at the latest, whatever is ready; −1: there is no such time. */
uint32_t larder_pipe_wants(const larder_pipe *pipe, int64_t *wake_ms);

/* Takes a request, whose bytes are copied, also while the connection is being made. The next larder_pipe_process sends it,
 * whatever is ready. LARDER_WOULD_BLOCK: in_flight replies are owed, or a mebibyte waits to be sent; there is room after some
 * requests have ended. Unless it returns LARDER_OK, the request was not taken, and its tag is never passed to larder_done. */
larder_status larder_pipe_submit(larder_pipe *pipe, const larder_request *request, void *tag, larder_error *error);

/* Sends and receives what it can, and calls `done` for requests that have ended. Anything but LARDER_OK: the connection has
 * ended, and `done` was called for everything that was under way. */
larder_status larder_pipe_process(larder_pipe *pipe, uint32_t ready, larder_done done, void *user, larder_error *error);

/* Closes and frees a pipe; NULL is fine. `done` is not called for requests that have not ended. */
void larder_pipe_free(larder_pipe *pipe);

#ifdef __cplusplus
}
#endif

#endif
