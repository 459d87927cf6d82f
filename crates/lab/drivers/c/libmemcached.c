/* A driver of the lab: libmemcached, a loop by hand over a socket, and, built WITH_LARDER, Larder's own client, as a process that
 * is told what to do by lines. One caller with every option of the library, or several, a thread each, with a handle each or one
 * client for all, steady or in bursts.
 *
 *   lab                                     driver
 *   {"do":"hello"}                    ->
 *                                     <-    {"hello":"1.1.4","value":"<hex>"}
 *   {"do":"run", what, how, how long} ->
 *                                     <-    {"ready":1, options as the library and the socket have them}
 *   {"do":"go"}                       ->
 *                                     <-    {"paused":n}         at call "pause_at", if there is one
 *   {"do":"go"}                       ->
 *                                     <-    {"done":1, counts, times, histogram}
 *
 * Objects are flat and names are unlike each other, so that a name is found by looking for it. The end of stdin is the
 * end of the driver. When the library aborts the process, {"aborted":n,…} is the last line: n calls had returned.
 *
 * Values are the lab's (crates/lab/src/value.rs), so that each that is read is verified. Between "go" and "done" the
 * driver asks nothing of the system but what its client does.
 */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <libmemcached/memcached.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { KEY_BYTES = 16, MGET_KEYS = 100, SETS_KEYS = 64, BUCKETS = 4096, LINE_BYTES = 128 * 1024, PATIENCE_S = 5 };
enum { SOCKET_BYTES = sizeof((struct sockaddr_un *)0)->sun_path, PATH_BYTES = 4096 };
enum op { SET, GET, DELETE, MGET, SETS };

/* What is to be done. */
static struct job {
  int by_hand, own, churn, segments, leave, cold;
  int no_block, nodelay, buffer, noreply;
  enum op op;
  char host[64]; /* an IP address, as it is written */
  uint16_t port;
  char socket[SOCKET_BYTES]; /* the path of a Unix socket, in place of both; empty where there is none */
  int tls;
  char tls_name[256], tls_authorities[PATH_BYTES], tls_chain[PATH_BYTES], tls_key[PATH_BYTES]; /* empty: none */
  uint32_t first, keys;
  uint64_t version;
  size_t value_bytes, large_bytes;
  long ops_min, ops_max, time_ns, batch, pause_at, large_at;
  long callers, bursts, pause_ns, timeout_ms;
  char user[1024], password[1024]; /* empty where the server asks for none */
} job;

/* The server's address. */
static union {
  struct sockaddr any;
  struct sockaddr_in four;
  struct sockaddr_in6 six;
  struct sockaddr_un path;
} server;
static socklen_t server_bytes;

/* What came of it: of the calls of a thread. */
static _Thread_local struct result {
  long calls, ok, queued, misses, told, late, wrong, first_error_at;
  long timeouts, told_ns, last_error_ns;
  char error[160];
  long connections, segments;
  uint32_t histogram[BUCKETS];
} result;

static _Thread_local volatile sig_atomic_t calls; /* that have returned */
static _Thread_local long answered;               /* of the requests of the call that is under way */
static char *values;                /* of all keys, one behind the other, when they are set */
static char *large;                 /* a value that a server refuses */
static char line[LINE_BYTES];       /* what the lab said last, and what is said to it */

/* ---- lines ---- */

static void say(size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t written = write(1, line + at, bytes - at);
    if (written <= 0) _exit(1);
    at += (size_t)written;
  }
}

static int hear(void) {
  for (size_t at = 0; at < LINE_BYTES - 1;) {
    ssize_t received = read(0, line + at, LINE_BYTES - 1 - at);
    if (received <= 0) return 0;
    at += (size_t)received;
    if (line[at - 1] == '\n') {
      line[at] = 0;
      return 1;
    }
  }
  return 0;
}

static long number(const char *name) {
  char quoted[40];
  snprintf(quoted, sizeof quoted, "\"%s\":", name);
  const char *found = strstr(line, quoted);
  if (!found) return 0;
  found += strlen(quoted);
  return strncmp(found, "true", 4) == 0 ? 1 : strtol(found, NULL, 10);
}

static void fail(const char *what);

/* A text of the job, which has to fit; empty if there is none. */
static void text(const char *name, char *out, size_t room) {
  char quoted[40];
  snprintf(quoted, sizeof quoted, "\"%s\":\"", name);
  const char *from = strstr(line, quoted);
  size_t at = 0;
  if (from) from += strlen(quoted);
  for (; from && *from && *from != '"'; from++) {
    if (at + 1 == room) fail(name);
    char letter = *from;
    if (letter == '\\') {
      const char *short_names = "bfnrt", *short_ones = "\b\f\n\r\t";
      letter = *++from;
      if (!letter) break;
      const char *found = strchr(short_names, letter);
      if (found) {
        letter = short_ones[found - short_names];
      } else if (letter == 'u' && strlen(from) > 4) {
        /* Only characters below a space are written so. */
        char digits[5] = {from[1], from[2], from[3], from[4], 0};
        letter = (char)strtol(digits, NULL, 16);
        from += 4;
      }
    }
    out[at++] = letter;
  }
  out[at] = 0;
}

static void fail(const char *what) {
  say((size_t)snprintf(line, LINE_BYTES, "{\"failed\":\"%s\"}\n", what));
  _exit(1);
}

/* Writes into `said` at `at`, and returns where it ends. A handler of signals may call little. */
static size_t put_text(char *said, size_t at, const char *text) {
  while (*text) said[at++] = *text++;
  return at;
}

static size_t put_number(char *said, size_t at, long number) {
  char digits[20];
  size_t count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while (number /= 10);
  while (count) said[at++] = digits[--count];
  return at;
}

static void aborted(int signal_number) {
  char said[80];
  size_t at = put_number(said, put_text(said, 0, "{\"aborted\":"), calls);
  at = put_number(said, put_text(said, at, ",\"said_ok\":"), result.ok + result.queued);
  at = put_text(said, at, "}\n");
  if (write(1, said, at) < 0) _exit(1);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/* ---- time ---- */

static long now_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Exact below 64 ns, then 64 buckets for each power of two: an error below 1.6 %. */
static void note_call(long ns) {
  uint64_t value = ns < 0 ? 0 : (uint64_t)ns;
  size_t bucket = value;
  if (value >= 64) {
    unsigned power = 63u - (unsigned)__builtin_clzll(value);
    bucket = (power - 5) * 64 + ((value >> (power - 6)) & 63);
  }
  result.histogram[bucket]++;
}

/* ---- keys and values: as crates/lab/src/keys.rs and value.rs have them ---- */

static void write_key(char *key, uint32_t id) {
  memcpy(key, "key:000000000000", KEY_BYTES);
  for (int at = KEY_BYTES - 1; id; at--, id /= 10) key[at] = (char)('0' + id % 10);
}

static uint64_t seed(uint64_t key, uint64_t version, uint64_t bytes) {
  uint64_t x = (key * 0xD6E8FEB86659FD93u) ^ (version << 32 | version >> 32) ^ (bytes << 17);
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

enum { NAMED_BYTES_MIN = 24 };
static const uint64_t STEP = 0x9E3779B97F4A7C15u;

static void write_value(char *value, uint64_t id, uint64_t version, size_t bytes) {
  if (bytes < NAMED_BYTES_MIN) version = 0;
  uint64_t word = seed(id, version, bytes);
  size_t at = 0;
  if (bytes >= NAMED_BYTES_MIN) {
    memcpy(value, &id, 8);
    memcpy(value + 8, &version, 8);
    at = 16;
  }
  for (; at < bytes; at += 8, word += STEP) memcpy(value + at, &word, bytes - at < 8 ? bytes - at : 8);
}

static int is_value(const char *value, size_t bytes, uint64_t id) {
  if (bytes != job.value_bytes) return 0;
  uint64_t version = 0, named = id;
  size_t at = 0;
  if (bytes >= NAMED_BYTES_MIN) {
    memcpy(&named, value, 8);
    memcpy(&version, value + 8, 8);
    at = 16;
  }
  uint64_t word = seed(named, version, bytes), differ = named ^ id, have;
  for (; at + 8 <= bytes; at += 8, word += STEP) {
    memcpy(&have, value + at, 8);
    differ |= have ^ word;
  }
  return differ == 0 && memcmp(value + at, &word, bytes - at) == 0;
}

/* What call number `n` stores. */
static const char *value_of(long n) {
  return n + 1 == job.large_at ? large : values + (size_t)(n % job.keys) * job.value_bytes;
}

static size_t bytes_of(long n) {
  return n + 1 == job.large_at ? job.large_bytes : job.value_bytes;
}

/* ---- what is seen of sockets: the library calls these in place of libc's ---- */

static _Thread_local int connected = -1; /* the last socket that was connected, until it is closed */
static _Thread_local long segments_before;

static long segments_of(int fd) {
  struct tcp_info info;
  socklen_t bytes = sizeof info;
  memset(&info, 0, sizeof info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes)) return 0;
  if (bytes < offsetof(struct tcp_info, tcpi_segs_in) + sizeof info.tcpi_segs_in) return 0;
  return (long)info.tcpi_segs_out + info.tcpi_segs_in;
}

int connect(int fd, const struct sockaddr *to, socklen_t bytes) {
  int family = to->sa_family;
  if (job.socket[0] ? family == AF_UNIX : family == AF_INET || family == AF_INET6) {
    result.connections++;
    connected = fd;
    segments_before = 0;
  }
  return (int)syscall(SYS_connect, fd, to, bytes);
}

int close(int fd) {
  if (fd == connected) {
    if (job.segments) result.segments += segments_of(fd) - segments_before;
    connected = -1;
  }
  return (int)syscall(SYS_close, fd);
}

/* ---- what is allocated: by the library, too ---- */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static _Thread_local long allocations, allocated_bytes;

static void note_allocation(size_t bytes) {
  allocations++;
  allocated_bytes += (long)bytes;
}

void *malloc(size_t bytes) {
  note_allocation(bytes);
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  note_allocation(count * bytes);
  return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
  note_allocation(bytes);
  return __libc_realloc(old, bytes);
}

/* ---- outcomes ---- */

static void tell(long count, const char *what) {
  if (!result.told && !result.late) {
    result.first_error_at = calls + answered + 1;
    size_t at = 0;
    for (; what[at] && at < sizeof result.error - 1; at++)
      result.error[at] = what[at] < ' ' || what[at] == '"' || what[at] == '\\' || what[at] > '~' ? ' ' : what[at];
    result.error[at] = 0;
  }
  result.told += count;
}

/* ---- libmemcached ---- */

static _Thread_local memcached_st *handle;

static void library_open(void) {
  handle = memcached_create(NULL);
  if (!handle) fail("memcached_create");
  struct {
    memcached_behavior_t name;
    int on;
  } all[] = {{MEMCACHED_BEHAVIOR_NO_BLOCK, job.no_block},
             {MEMCACHED_BEHAVIOR_TCP_NODELAY, job.nodelay},
             {MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, job.buffer},
             {MEMCACHED_BEHAVIOR_NOREPLY, job.noreply}};
  for (size_t at = 0; at < sizeof all / sizeof *all; at++)
    if (all[at].on && memcached_behavior_set(handle, all[at].name, 1) != MEMCACHED_SUCCESS) fail("memcached_behavior_set");
  if (job.timeout_ms) {
    memcached_behavior_set(handle, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, (uint64_t)job.timeout_ms);
    memcached_behavior_set(handle, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, (uint64_t)job.timeout_ms);
  }
  if (job.tls) fail("libmemcached has no TLS");
  memcached_return_t added = job.socket[0] ? memcached_server_add_unix_socket(handle, job.socket)
                                           : memcached_server_add(handle, job.host, job.port);
  if (added != MEMCACHED_SUCCESS) fail("memcached_server_add");
}

static void library_close(void) {
  memcached_free(handle);
  handle = NULL;
}

static void library_said(memcached_return_t said) {
  if (said == MEMCACHED_SUCCESS || said == MEMCACHED_END)
    result.ok++;
  else if (said == MEMCACHED_BUFFERED)
    result.queued++;
  else if (said == MEMCACHED_NOTFOUND)
    result.misses++;
  else {
    if (said == MEMCACHED_TIMEOUT) result.timeouts++;
    tell(1, memcached_strerror(handle, said));
  }
}

static void library_mget(uint32_t at) {
  char texts[MGET_KEYS][KEY_BYTES];
  const char *keys[MGET_KEYS];
  size_t lengths[MGET_KEYS];
  for (uint32_t n = 0; n < MGET_KEYS; n++) {
    write_key(texts[n], job.first + (at + n) % job.keys);
    keys[n] = texts[n];
    lengths[n] = KEY_BYTES;
  }
  memcached_return_t said = memcached_mget(handle, keys, lengths, MGET_KEYS);
  if (said != MEMCACHED_SUCCESS) {
    library_said(said);
    return;
  }
  memcached_result_st found;
  memcached_result_create(handle, &found);
  long count = 0;
  while (memcached_fetch_result(handle, &found, &said)) {
    char text[KEY_BYTES + 1] = {0};
    if (memcached_result_length(&found) != job.value_bytes || memcached_result_key_length(&found) != KEY_BYTES) {
      result.wrong++;
      continue;
    }
    memcpy(text, memcached_result_key_value(&found), KEY_BYTES);
    uint64_t id = strtoull(text + 4, NULL, 10);
    if (!is_value(memcached_result_value(&found), memcached_result_length(&found), id)) result.wrong++;
    count++;
  }
  memcached_result_free(&found);
  result.misses += MGET_KEYS - count;
  library_said(said == MEMCACHED_END || said == MEMCACHED_NOTFOUND ? MEMCACHED_SUCCESS : said);
}

static void library_call(long n) {
  char key[KEY_BYTES];
  uint32_t at = (uint32_t)(n % job.keys);
  write_key(key, job.first + at);
  switch (job.op) {
    case SET: library_said(memcached_set(handle, key, KEY_BYTES, value_of(n), bytes_of(n), 0, 0)); break;
    case DELETE: library_said(memcached_delete(handle, key, KEY_BYTES, 0)); break;
    case MGET: library_mget(at); break;
    case SETS: tell(1, "libmemcached has no call that stores several keys"); break;
    case GET: {
      memcached_return_t said;
      uint32_t flags;
      size_t found;
      char *read = memcached_get(handle, key, KEY_BYTES, &found, &flags, &said);
      if (said == MEMCACHED_SUCCESS && !is_value(read, found, job.first + at)) result.wrong++;
      free(read);
      library_said(said);
    }
  }
}

/* Everything that was sent before has been answered, or an error is told. */
static void library_barrier(void) {
  memcached_return_t said = memcached_flush_buffers(handle);
  if (said != MEMCACHED_SUCCESS && said != MEMCACHED_BUFFERED) {
    result.late++;
    if (!result.told) snprintf(result.error, sizeof result.error, "%.150s", memcached_strerror(handle, said));
  }
  uint32_t flags;
  size_t found;
  free(memcached_get(handle, "barrier", 7, &found, &flags, &said));
  if (said != MEMCACHED_NOTFOUND) {
    result.late++;
    if (!result.told) snprintf(result.error, sizeof result.error, "%.150s", memcached_strerror(handle, said));
  }
}

/* ---- a loop by hand: one send, and as many receives as replies need ---- */

static _Thread_local int hand = -1;
static _Thread_local char *out, *in;
static _Thread_local size_t out_bytes, in_room, in_from, in_to;

static void hand_open(void) {
  struct timeval patience = {PATIENCE_S, 0};
  if (job.timeout_ms) patience = (struct timeval){job.timeout_ms / 1000, job.timeout_ms % 1000 * 1000};
  int on = 1;
  in_from = in_to = 0;
  if (job.tls) fail("the loop by hand has no TLS");
  hand = socket(server.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (hand < 0) fail("socket");
  if (!job.socket[0]) setsockopt(hand, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(hand, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(hand, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(hand, &server.any, server_bytes)) {
    int why = errno;
    close(hand);
    hand = -1;
    errno = why;
  }
}

static void hand_close(void) {
  if (hand >= 0) close(hand);
  hand = -1;
}

static void append(const void *bytes, size_t count) {
  memcpy(out + out_bytes, bytes, count);
  out_bytes += count;
}

static int hand_send(void) {
  for (size_t at = 0; at < out_bytes;) {
    ssize_t sent = send(hand, out + at, out_bytes - at, MSG_NOSIGNAL);
    if (sent <= 0) return 0;
    at += (size_t)sent;
  }
  return 1;
}

/* More bytes of replies; 0 when none come. */
static int hand_receive(void) {
  if (in_from == in_to) in_from = in_to = 0;
  if (in_to == in_room) {
    memmove(in, in + in_from, in_to - in_from);
    in_to -= in_from;
    in_from = 0;
  }
  ssize_t received = in_to < in_room ? recv(hand, in + in_to, in_room - in_to, 0) : -1;
  if (received <= 0) return 0;
  in_to += (size_t)received;
  return 1;
}

/* The next line without its end, and its length; NULL when none comes. */
static char *hand_line(size_t *bytes) {
  for (;;) {
    char *end = memchr(in + in_from, '\n', in_to - in_from);
    if (end) {
      char *start = in + in_from;
      in_from = (size_t)(end - in) + 1;
      *end = 0;
      if (end > start && end[-1] == '\r') *--end = 0;
      *bytes = (size_t)(end - start);
      return start;
    }
    if (!hand_receive()) return NULL;
  }
}

static void hand_lost(long unanswered) {
  if (errno == EAGAIN) result.timeouts += unanswered;
  tell(unanswered, errno ? strerror(errno) : "the server closed the connection");
  hand_close();
}

/* Values until END; each is verified. */
static int hand_values(long wanted) {
  for (;;) {
    size_t bytes;
    char *text = hand_line(&bytes);
    if (!text) return 0;
    if (strcmp(text, "END") == 0) break;
    if (strncmp(text, "VALUE key:", 10) != 0 || bytes < 6 + KEY_BYTES) {
      result.wrong++;
      return 0;
    }
    uint64_t id = strtoull(text + 10, NULL, 10);
    const char *size = strrchr(text, ' ');
    size_t length = size ? strtoul(size, NULL, 10) : 0;
    while (in_to - in_from < length + 2)
      if (!hand_receive()) return 0;
    if (!is_value(in + in_from, length, id)) result.wrong++;
    in_from += length + 2;
    wanted--;
  }
  result.misses += wanted;
  return 1;
}

/* Appends a set of the key and the value of call `n`, without the end of its line. */
static void append_set(long n) {
  char key[KEY_BYTES], size[24];
  size_t bytes = bytes_of(n);
  write_key(key, job.first + (uint32_t)(n % job.keys));
  append("set ", 4);
  append(key, KEY_BYTES);
  append(size, (size_t)snprintf(size, sizeof size, " 0 0 %zu\r\n", bytes));
  append(value_of(n), bytes);
}

/* Makes SETS_KEYS sets from key `n` on, sent in one piece: one call, with one outcome. */
static void hand_sets(long n) {
  long refused = 0;
  answered = 0;
  errno = 0;
  if (hand < 0) hand_open();
  if (hand < 0) {
    tell(1, strerror(errno));
    return;
  }
  out_bytes = 0;
  for (long end = n + SETS_KEYS; n < end; n++) {
    append_set(n);
    append("\r\n", 2);
  }
  if (!hand_send()) {
    hand_lost(1);
    return;
  }
  for (int reply = 0; reply < SETS_KEYS; reply++) {
    size_t length;
    char *said = hand_line(&length);
    if (!said) {
      hand_lost(refused ? 0 : 1);
      return;
    }
    if (strcmp(said, "STORED") != 0 && refused++ == 0) tell(1, said);
  }
  if (!refused) result.ok++;
}

/* `count` calls from number `n` on, sent in one piece. */
static void hand_call(long n, long count) {
  char key[KEY_BYTES];
  if (job.op == SETS) {
    hand_sets(n);
    return;
  }
  answered = 0;
  errno = 0;
  if (hand < 0) hand_open();
  if (hand < 0) {
    tell(count, strerror(errno));
    return;
  }
  out_bytes = 0;
  for (long end = n + count; n < end; n++) {
    uint32_t at = (uint32_t)(n % job.keys);
    write_key(key, job.first + at);
    if (job.op == SET) {
      append_set(n);
    } else if (job.op == DELETE) {
      append("delete ", 7);
      append(key, KEY_BYTES);
    } else {
      append("get ", 4);
      append(key, KEY_BYTES);
      for (uint32_t more = 1; job.op == MGET && more < MGET_KEYS; more++) {
        write_key(key, job.first + (at + more) % job.keys);
        append(" ", 1);
        append(key, KEY_BYTES);
      }
    }
    append("\r\n", 2);
  }
  if (!hand_send()) {
    hand_lost(count);
    return;
  }
  for (; answered < count; answered++) {
    size_t length;
    if (job.op == GET || job.op == MGET) {
      long absent = result.misses;
      if (!hand_values(job.op == MGET ? MGET_KEYS : 1)) {
        hand_lost(count - answered);
        return;
      }
      if (job.op == MGET || absent == result.misses) result.ok++;
      continue;
    }
    char *said = hand_line(&length);
    if (!said) {
      hand_lost(count - answered);
      return;
    }
    if (strcmp(said, job.op == SET ? "STORED" : "DELETED") == 0)
      result.ok++;
    else if (strcmp(said, "NOT_FOUND") == 0)
      result.misses++;
    else
      tell(1, said);
  }
}

static void hand_barrier(void) {
  size_t bytes;
  char *said = NULL;
  if (hand < 0) hand_open();
  out_bytes = 0;
  append("get barrier\r\n", 13);
  if (hand >= 0 && hand_send()) said = hand_line(&bytes);
  if (!said || strcmp(said, "END") != 0) {
    result.late++;
    if (!result.told) snprintf(result.error, sizeof result.error, "the barrier was not answered");
  }
}

/* ---- Larder's own client ---- */

#ifdef WITH_LARDER
#include "own.h"
#else
static void own_open(void) { fail("this driver is built without larder"); }
static void own_close(void) {}
static void own_call(long n) { (void)n; }
static void own_barrier(void) {}
#endif

/* ---- any of them ---- */

static void open_client(void) {
  if (job.by_hand) hand_open();
  else if (job.own) own_open();
  else library_open();
}

static void close_client(void) {
  if (job.by_hand) hand_close();
  else if (job.own) own_close();
  else library_close();
}

static void barrier(void) {
  if (job.by_hand) hand_barrier();
  else if (job.own) own_barrier();
  else library_barrier();
}

static void call(long n, long count) {
  if (job.churn) open_client();
  if (job.by_hand) hand_call(n, count);
  else if (job.own) own_call(n);
  else library_call(n);
  if (job.churn) close_client();
}

/* Room for requests and replies of a thread. */
static void buffers(void) {
  size_t largest = job.value_bytes > job.large_bytes ? job.value_bytes : job.large_bytes;
  free(out);
  free(in);
  size_t together = job.op == SETS ? SETS_KEYS : (size_t)job.batch;
  out = malloc(together * (job.value_bytes + 64) + largest + 64 + MGET_KEYS * (KEY_BYTES + 1));
  in_room = job.value_bytes + 64 * 1024;
  in = malloc(in_room);
  if (!out || !in) fail("memory");
}

static void find_server(void) {
  memset(&server, 0, sizeof server);
  if (job.socket[0]) {
    server.path.sun_family = AF_UNIX;
    memcpy(server.path.sun_path, job.socket, sizeof job.socket);
    server_bytes = sizeof server.path;
  } else if (inet_pton(AF_INET, job.host, &server.four.sin_addr) == 1) {
    server.four.sin_family = AF_INET;
    server.four.sin_port = htons(job.port);
    server_bytes = sizeof server.four;
  } else if (inet_pton(AF_INET6, job.host, &server.six.sin6_addr) == 1) {
    server.six.sin6_family = AF_INET6;
    server.six.sin6_port = htons(job.port);
    server_bytes = sizeof server.six;
  } else {
    fail("the server's address");
  }
}

static void prepare(void) {
  memset(&result, 0, sizeof result);
  memset(&job, 0, sizeof job);
  job.by_hand = (int)number("by_hand");
  job.own = strstr(line, "\"client\":\"larder\"") != NULL;
  job.churn = (int)number("churn");
  job.segments = (int)number("segments");
  job.leave = (int)number("leave");
  job.cold = (int)number("cold");
  job.no_block = (int)number("no_block");
  job.nodelay = (int)number("nodelay");
  job.buffer = (int)number("buffer");
  job.noreply = (int)number("noreply");
  job.op = (enum op)number("op");
  text("host", job.host, sizeof job.host);
  text("user", job.user, sizeof job.user);
  text("password", job.password, sizeof job.password);
  job.port = (uint16_t)number("port");
  text("socket", job.socket, sizeof job.socket);
  job.tls = (int)number("tls");
  text("tls_name", job.tls_name, sizeof job.tls_name);
  text("tls_authorities", job.tls_authorities, sizeof job.tls_authorities);
  text("tls_chain", job.tls_chain, sizeof job.tls_chain);
  text("tls_key", job.tls_key, sizeof job.tls_key);
  find_server();
  job.first = (uint32_t)number("first");
  job.keys = (uint32_t)number("keys");
  job.version = (uint64_t)number("version");
  job.value_bytes = (size_t)number("value_bytes");
  job.large_bytes = (size_t)number("large_bytes");
  job.ops_min = number("ops_min");
  job.ops_max = number("ops_max");
  job.time_ns = number("time_ns");
  job.batch = number("batch");
  job.pause_at = number("pause_at");
  job.large_at = number("large_at");
  job.callers = number("callers");
  job.bursts = number("bursts");
  job.pause_ns = number("pause_ns");
  job.timeout_ms = number("timeout_ms");
  if (job.callers < 1) job.callers = 1;
  if (job.batch < 1) job.batch = 1;
  if (job.keys < 1) job.keys = 1;
  calls = answered = 0;
  free(values);
  free(large);
  size_t all = job.op == SET || job.op == SETS ? job.keys * job.value_bytes : 0;
  values = malloc(all + 1);
  large = calloc(1, job.large_bytes + 1);
  if (!values || !large) fail("memory");
  buffers();
  for (uint32_t at = 0; all && at < job.keys; at++)
    write_value(values + at * job.value_bytes, job.first + at, job.version, job.value_bytes);
}

/* Says what came of it, of all calls that `result` has. */
static void tell_done(long returned, long settled, long cpu, long allocated, long bytes) {
  int at = snprintf(line, LINE_BYTES,
                    "{\"done\":1,\"calls\":%ld,\"ok\":%ld,\"queued\":%ld,\"misses\":%ld,\"told\":%ld,\"late\":%ld,"
                    "\"wrong\":%ld,\"first_error_at\":%ld,\"error\":\"%s\",\"connections\":%ld,\"segments\":%ld,"
                    "\"return_ns\":%ld,\"barrier_ns\":%ld,\"cpu_ns\":%ld,\"timeouts\":%ld,\"told_ns\":%ld,"
                    "\"last_error_ns\":%ld,\"allocations\":%ld,\"allocated_bytes\":%ld,\"histogram\":[",
                    result.calls, result.ok, result.queued, result.misses, result.told, result.late, result.wrong,
                    result.first_error_at, result.error, result.connections, result.segments, returned, settled, cpu,
                    result.timeouts, result.told_ns, result.last_error_ns, allocated, bytes);
  const char *comma = "";
  for (int bucket = 0; bucket < BUCKETS && at < LINE_BYTES - 64; bucket++)
    if (result.histogram[bucket]) {
      at += snprintf(line + at, 64, "%s[%d,%u]", comma, bucket, result.histogram[bucket]);
      comma = ",";
    }
  at += snprintf(line + at, 8, "]}\n");
  say((size_t)at);
}

static void run(void) {
  if (!job.churn) {
    open_client();
    /* Connects, and warms what is cold; a delete would take a key away that is counted on. */
    if (!job.cold && job.op != DELETE) call(0, 1);
    barrier();
  }
  int seen_nodelay = 0;
  struct linger seen_linger = {0, 0};
  /* A Unix socket has none of the options of TCP. */
  int has_options = connected >= 0 && !job.socket[0];
  if (has_options) {
    socklen_t bytes = sizeof seen_nodelay;
    getsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &seen_nodelay, &bytes);
    bytes = sizeof seen_linger;
    getsockopt(connected, SOL_SOCKET, SO_LINGER, &seen_linger, &bytes);
  }
  int had_options[4] = {0};
  if (!job.by_hand && !job.own) {
    int temporary = !handle;
    if (temporary) library_open();
    had_options[0] = (int)memcached_behavior_get(handle, MEMCACHED_BEHAVIOR_NO_BLOCK);
    had_options[1] = (int)memcached_behavior_get(handle, MEMCACHED_BEHAVIOR_TCP_NODELAY);
    had_options[2] = (int)memcached_behavior_get(handle, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS);
    had_options[3] = (int)memcached_behavior_get(handle, MEMCACHED_BEHAVIOR_NOREPLY);
    if (temporary) library_close();
  }
  struct result warm = result;
  memset(&result, 0, sizeof result);
  if (job.segments && connected >= 0) segments_before = segments_of(connected);
  say((size_t)snprintf(line, LINE_BYTES,
                       "{\"ready\":1,\"has_no_block\":%d,\"has_nodelay\":%d,\"has_buffer\":%d,\"has_noreply\":%d,"
                       "\"socket\":%d,\"socket_nodelay\":%d,\"socket_linger\":%d,\"warm_told\":%ld,\"warm_error\":\"%s\"}\n",
                       had_options[0], had_options[1], had_options[2], had_options[3], has_options,
                       seen_nodelay, seen_linger.l_onoff, warm.told + warm.late, warm.error));
  if (!hear()) _exit(0);

  long allocations_before = allocations, bytes_before = allocated_bytes;
  long cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns(CLOCK_MONOTONIC), last = start, done = 0;
  while (done < job.ops_max && (done < job.ops_min || last - start < job.time_ns)) {
    long count = job.batch < job.ops_max - done ? job.batch : job.ops_max - done;
    call(done, count);
    done += count;
    calls = done;
    long time = now_ns(CLOCK_MONOTONIC);
    note_call(time - last);
    last = time;
    if (job.pause_at && done >= job.pause_at && done - count < job.pause_at) {
      say((size_t)snprintf(line, LINE_BYTES, "{\"paused\":%ld,\"ok\":%ld,\"queued\":%ld,\"told\":%ld}\n", done,
                           result.ok, result.queued, result.told));
      if (!hear()) _exit(0);
      last = now_ns(CLOCK_MONOTONIC);
    }
  }
  result.calls = done;
  long returned = last - start;
  /* Over a handle for each call there is nothing left to wait for, nor where each is awaited within a timeout. */
  if (!job.churn && !job.leave && !job.timeout_ms) barrier();
  long settled = now_ns(CLOCK_MONOTONIC) - start;
  cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  if (job.segments && connected >= 0) result.segments += segments_of(connected) - segments_before;
  tell_done(returned, settled, cpu, allocations - allocations_before, allocated_bytes - bytes_before);
  /* Gone without a word: what the library still holds goes with it. */
  if (job.leave) _exit(0);
  if (!job.churn) close_client();
}

/* ---- several callers: a thread each, with a handle or a socket of its own ---- */

static pthread_barrier_t ready_barrier, go_barrier, burst_barrier;
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct result all; /* of all threads that are done */
static long callers_start;

static void timed_call(long n, long *last) {
  long told = result.told;
  call(n, 1);
  result.calls++;
  calls++;
  long time = now_ns(CLOCK_MONOTONIC);
  note_call(time - *last);
  if (result.told != told) {
    result.told_ns += time - *last;
    result.last_error_ns = time - callers_start;
    if (job.pause_ns && !job.bursts) {
      struct timespec pause = {job.pause_ns / 1000000000L, job.pause_ns % 1000000000L};
      nanosleep(&pause, NULL);
      time = now_ns(CLOCK_MONOTONIC);
    }
  }
  *last = time;
}

static void *caller(void *number_of) {
  long own = (long)(intptr_t)number_of, n = own * 37, most = job.ops_max / job.callers;
  buffers();
  if (!job.bursts) open_client();
  if (!job.bursts && !job.cold) call(n, 1);
  long connections = result.connections;
  memset(&result, 0, sizeof result);
  result.connections = connections;
  pthread_barrier_wait(&ready_barrier);
  pthread_barrier_wait(&go_barrier);
  long last = callers_start;
  if (job.bursts) {
    open_client();
    for (long burst = 0; burst < job.bursts; burst++) {
      pthread_barrier_wait(&burst_barrier);
      last = now_ns(CLOCK_MONOTONIC);
      timed_call(n + burst, &last);
      pthread_barrier_wait(&burst_barrier);
      struct timespec pause = {job.pause_ns / 1000000000L, job.pause_ns % 1000000000L};
      nanosleep(&pause, NULL);
    }
  } else {
    while (result.calls < most && (!job.time_ns || last - callers_start < job.time_ns)) timed_call(n++, &last);
  }
  pthread_mutex_lock(&all_mutex);
  if (result.told && !all.told) {
    all.first_error_at = result.first_error_at;
    memcpy(all.error, result.error, sizeof all.error);
  }
  long *sums = &all.calls, *own_sums = &result.calls;
  for (size_t at = 0; at <= offsetof(struct result, wrong) / sizeof(long); at++) sums[at] += own_sums[at];
  all.timeouts += result.timeouts;
  all.told_ns += result.told_ns;
  if (result.last_error_ns > all.last_error_ns) all.last_error_ns = result.last_error_ns;
  all.connections += result.connections;
  for (int bucket = 0; bucket < BUCKETS; bucket++) all.histogram[bucket] += result.histogram[bucket];
  pthread_mutex_unlock(&all_mutex);
  pthread_barrier_wait(&go_barrier);
  close_client();
  free(out);
  free(in);
  out = in = NULL;
  return NULL;
}

enum { CALLERS_MAX = 1024 };

static void run_callers(void) {
  static pthread_t threads[CALLERS_MAX];
  if (job.callers > CALLERS_MAX) fail("too many callers");
  memset(&all, 0, sizeof all);
  pthread_barrier_init(&ready_barrier, NULL, (unsigned)job.callers + 1);
  pthread_barrier_init(&go_barrier, NULL, (unsigned)job.callers + 1);
  pthread_barrier_init(&burst_barrier, NULL, (unsigned)job.callers);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 * 1024);
  for (long at = 0; at < job.callers; at++)
    if (pthread_create(&threads[at], &small, caller, (void *)(intptr_t)at)) fail("pthread_create");
  pthread_barrier_wait(&ready_barrier);
  say((size_t)snprintf(line, LINE_BYTES, "{\"ready\":1}\n"));
  if (!hear()) _exit(0);
  long cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  callers_start = now_ns(CLOCK_MONOTONIC);
  pthread_barrier_wait(&go_barrier);
  /* They wait here when they are done, and close when all is read. */
  pthread_barrier_wait(&go_barrier);
  long returned = now_ns(CLOCK_MONOTONIC) - callers_start;
  cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  for (long at = 0; at < job.callers; at++) pthread_join(threads[at], NULL);
  result = all;
  tell_done(returned, returned, cpu, 0, 0);
}

static void hello(void) {
  char value[61];
  write_value(value, 305419896, 7, sizeof value);
  int at = snprintf(line, LINE_BYTES, "{\"hello\":\"%s\",\"value\":\"", memcached_lib_version());
  for (size_t byte = 0; byte < sizeof value; byte++)
    at += snprintf(line + at, 8, "%02x", (unsigned char)value[byte]);
  at += snprintf(line + at, 128, "\",\"clients\":[[\"libmemcached\",\"%s\"],[\"by hand\",\"\"]", memcached_lib_version());
#ifdef WITH_LARDER
  at += snprintf(line + at, 64, ",[\"larder\",\"%s\"]", larder_version());
#endif
  at += snprintf(line + at, 8, "]}\n");
  say((size_t)at);
}

int main(void) {
  /* An abort is a result, and no reason to fill a disk. */
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(SIGABRT, aborted);
  signal(SIGPIPE, SIG_IGN);
  while (hear()) {
    if (strstr(line, "\"do\":\"hello\"")) hello();
    else if (strstr(line, "\"do\":\"run\"")) {
      prepare();
      if (job.callers > 1) run_callers();
      else run();
    }
    else fail("not understood");
  }
  return 0;
}
