/* Larder's own client, one for all callers: a part of libmemcached.c, whose names it uses, where that is built with it. */
#include <larder.h>

static larder_client *own;
static long own_callers;
static pthread_mutex_t own_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local larder_batch *own_batch;

static void own_open(void) {
  pthread_mutex_lock(&own_mutex);
  if (own_callers++ == 0) {
    char address[sizeof job.host + 16];
    snprintf(address, sizeof address, strchr(job.host, ':') ? "[%s]:%u" : "%s:%u", job.host, job.port);
    const char *servers[] = {job.socket[0] ? job.socket : address};
    larder_config config = {.size = sizeof config, .servers = servers, .servers_count = 1};
    if (job.tls) {
      config.options = LARDER_TLS;
      config.server_name = job.tls_name;
      if (job.tls_authorities[0]) config.ca_file = job.tls_authorities;
      if (job.tls_chain[0]) {
        config.cert_file = job.tls_chain;
        config.key_file = job.tls_key;
      }
    }
    if (job.password[0]) {
      config.user = job.user;
      config.password = job.password;
    }
    config.timeout_ms = job.timeout_ms ? (uint32_t)job.timeout_ms : PATIENCE_S * 1000;
    if (larder_open(&config, &own, NULL) != LARDER_OK) fail("larder_open");
  }
  pthread_mutex_unlock(&own_mutex);
  own_batch = larder_batch_new(own);
  if (!own_batch) fail("larder_batch_new");
}

static void own_close(void) {
  larder_batch_free(own_batch);
  pthread_mutex_lock(&own_mutex);
  if (--own_callers == 0) {
    larder_free(own);
    own = NULL;
  }
  pthread_mutex_unlock(&own_mutex);
}

static void own_said(larder_status said, const larder_error *error) {
  if (said == LARDER_OK)
    result.ok++;
  else if (said == LARDER_MISS)
    result.misses++;
  else {
    if (said == LARDER_TIMEOUT) result.timeouts++;
    tell(1, error->message);
  }
}

static void own_mget(uint32_t at) {
  larder_error error = {.size = sizeof error};
  uint32_t ids[MGET_KEYS];
  for (uint32_t n = 0; n < MGET_KEYS; n++) {
    char key[KEY_BYTES];
    ids[n] = job.first + (at + n) % job.keys;
    write_key(key, ids[n]);
    if (larder_batch_get(own_batch, larder_data(key, KEY_BYTES)) != LARDER_OK) fail("larder_batch_get");
  }
  larder_status said = larder_batch_run(own_batch, &error);
  if (said != LARDER_OK) {
    own_said(said, &error);
    return;
  }
  for (size_t n = 0; n < MGET_KEYS; n++) {
    larder_bytes value;
    said = larder_batch_result(own_batch, n, &value, NULL, NULL, NULL);
    if (said == LARDER_MISS)
      result.misses++;
    else if (said != LARDER_OK || !is_value(value.data, value.len, ids[n]))
      result.wrong++;
  }
  result.ok++;
}

static void own_sets(long n) {
  larder_error error = {.size = sizeof error};
  for (long end = n + SETS_KEYS; n < end; n++) {
    char key[KEY_BYTES];
    write_key(key, job.first + (uint32_t)(n % job.keys));
    larder_bytes name = larder_data(key, KEY_BYTES), value = larder_data(value_of(n), bytes_of(n));
    if (larder_batch_set(own_batch, name, value, LARDER_FOREVER) != LARDER_OK) fail("larder_batch_set");
  }
  larder_status said = larder_batch_run(own_batch, &error);
  for (size_t at = 0; said == LARDER_OK && at < SETS_KEYS; at++)
    said = larder_batch_result(own_batch, at, NULL, NULL, NULL, &error);
  own_said(said, &error);
}

static void own_call(long n) {
  char key[KEY_BYTES];
  larder_error error = {.size = sizeof error};
  uint32_t at = (uint32_t)(n % job.keys);
  write_key(key, job.first + at);
  larder_bytes name = larder_data(key, KEY_BYTES);
  switch (job.op) {
    case SET: own_said(larder_set(own, name, larder_data(value_of(n), bytes_of(n)), NULL, NULL, &error), &error); break;
    case DELETE: own_said(larder_delete(own, name, NULL, &error), &error); break;
    case MGET: own_mget(at); break;
    case SETS: own_sets(n); break;
    case GET: {
      size_t found;
      larder_status said = larder_get(own, name, NULL, in, in_room, &found, NULL, &error);
      if (said == LARDER_OK && !is_value(in, found, job.first + at)) result.wrong++;
      own_said(said, &error);
    }
  }
}

static void own_barrier(void) {
  larder_error error = {.size = sizeof error};
  size_t found;
  if (larder_get(own, larder_text("barrier"), NULL, in, in_room, &found, NULL, &error) != LARDER_MISS) {
    result.late++;
    if (!result.told) snprintf(result.error, sizeof result.error, "%.128s", error.message);
  }
}
