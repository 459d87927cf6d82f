<?php
/*
 * PHP's sessions in memcached, by the binary protocol, with locks: each check that holds is a line that ends in `: ok`. With a
 * user and a password as arguments it authenticates by SASL. As `worker WHAT SESSION [USER PASSWORD]` it is a process of a check.
 *
 * The extension keeps a session at `memc.sess.key.ID`, and its lock, which `add` takes and `delete` gives back, at
 * `memc.sess.key.lock.ID`.
 */

const SERVER = '127.0.0.1';
const PORT = 11211;
const PREFIX = 'memc.sess.key.';
const WORKERS = 8;
const TURNS = 50;
/* How long something may take that has to come about: for hangs. */
const PATIENCE_S = 60;

set_error_handler(function (int $level, string $what) {
    global $warnings;
    $warnings[] = $what;
    return true;
});
$warnings = [];

$arguments = array_slice($argv, 1);
$work = [];
if (($arguments[0] ?? '') === 'worker') {
    $work = array_slice($arguments, 1, 2);
    $arguments = array_slice($arguments, 3);
}
$login = $arguments;

$settings = [
    'session.save_handler' => 'memcached',
    'session.save_path' => SERVER . ':' . PORT,
    'session.gc_maxlifetime' => '600',
    'session.use_cookies' => '0',
    'session.cache_limiter' => '',
    'session.lazy_write' => '1',
    'memcached.sess_binary_protocol' => '1',
    'memcached.sess_locking' => '1',
    'memcached.sess_lock_wait_min' => '1',
    'memcached.sess_lock_wait_max' => '5',
    'memcached.sess_lock_retries' => '100000',
    'memcached.sess_prefix' => PREFIX,
];
if ($login) {
    $settings['memcached.sess_sasl_username'] = $login[0];
    $settings['memcached.sess_sasl_password'] = $login[1];
}
foreach ($settings as $name => $value) {
    if (ini_set($name, $value) === false) {
        fail("$name cannot be set");
    }
}

/* Output that is no output to PHP: sessions want to be first. */
function say(string $line): void
{
    fwrite(STDOUT, "$line\n");
}

function fail(string $what): never
{
    global $warnings;
    say("$what; warnings: " . json_encode($warnings ?? []));
    exit(1);
}

function want(mixed $expected, mixed $have, string $what): void
{
    if ($expected !== $have) {
        fail("$what: expected " . var_export($expected, true) . ', and there is ' . substr(var_export($have, true), 0, 200));
    }
}

/* A new session's ID. */
function fresh(): string
{
    return bin2hex(random_bytes(16));
}

/* Opens a session, has $use change it, and closes it. Returns what $use does. */
function session(string $id, callable $use): mixed
{
    session_id($id);
    want(true, session_start(), 'session_start');
    $result = $use();
    want(true, session_write_close(), 'session_write_close');
    $_SESSION = [];
    return $result;
}

/* A client that looks at the same server. */
function observer(): Memcached
{
    global $login;
    $client = new Memcached();
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, true);
    if ($login) {
        want(true, $client->setSaslAuthData($login[0], $login[1]), 'setSaslAuthData');
    }
    want(true, $client->addServer(SERVER, PORT), 'addServer');
    return $client;
}

function has(string $key): bool
{
    $client = observer();
    $client->get($key);
    $code = $client->getResultCode();
    if ($code !== Memcached::RES_SUCCESS && $code !== Memcached::RES_NOTFOUND) {
        fail("get $key: " . $client->getResultMessage());
    }
    return $code === Memcached::RES_SUCCESS;
}

function gone(string $key): void
{
    $until = time() + PATIENCE_S;
    while (has($key)) {
        if (time() > $until) {
            fail("$key has not expired");
        }
        usleep(50_000);
    }
}

/* Starts a process that does `what` with a session. */
function start(string $what, string $id): mixed
{
    global $login;
    $words = array_merge([PHP_BINARY, __FILE__, 'worker', $what, $id], $login);
    $process = proc_open($words, [1 => STDOUT, 2 => STDERR], $pipes);
    if ($process === false) {
        fail('no process');
    }
    return $process;
}

/* What a process does; its exit code. */
function work(string $what, string $id): int
{
    if ($what === 'add') {
        for ($turn = 0; $turn < TURNS; $turn++) {
            session($id, fn () => $_SESSION['sum'] = ($_SESSION['sum'] ?? 0) + 1);
        }
        return 0;
    }
    /* 'try': enters the session if its lock is free within some tries. */
    ini_set('memcached.sess_lock_retries', '3');
    session_id($id);
    if (!session_start()) {
        return 3;
    }
    session_write_close();
    return 0;
}

$checks = [
    'a session is read as it was written' => function () {
        $id = fresh();
        $data = ['text' => "ü\r\n\0", 'number' => -7, 'list' => [1, 2.5, null, true]];
        want([], session($id, fn () => $_SESSION), 'a new session');
        session($id, fn () => $_SESSION = $data);
        want($data, session($id, fn () => $_SESSION), 'the session');
        want(true, has(PREFIX . $id), 'its key');
    },
    'sessions are apart' => function () {
        $ids = array_map(fn () => fresh(), range(1, 100));
        foreach ($ids as $at => $id) {
            session($id, fn () => $_SESSION['at'] = $at);
        }
        foreach ($ids as $at => $id) {
            want($at, session($id, fn () => $_SESSION['at']), 'a session');
        }
    },
    'a session is destroyed' => function () {
        $id = fresh();
        session($id, fn () => $_SESSION['a'] = 1);
        session_id($id);
        want(true, session_start(), 'session_start');
        want(true, session_destroy(), 'session_destroy');
        $_SESSION = [];
        want(false, has(PREFIX . $id), 'its key');
        want(false, has(PREFIX . "lock.$id"), 'its lock');
        want([], session($id, fn () => $_SESSION), 'the session');
    },
    'a session gets another ID' => function () {
        $id = fresh();
        session($id, fn () => $_SESSION['a'] = 1);
        $next = session($id, function () {
            want(true, session_regenerate_id(true), 'session_regenerate_id');
            return session_id();
        });
        want(false, $id === $next, 'the same ID');
        want(false, has(PREFIX . $id), 'the old key');
        want(['a' => 1], session($next, fn () => $_SESSION), 'the session');
    },
    'a large session is whole' => function () {
        $id = fresh();
        $text = bin2hex(random_bytes(400_000));
        session($id, fn () => $_SESSION['text'] = $text);
        want(true, session($id, fn () => $_SESSION['text'] === $text), 'the text');
    },
    'a lock lies beside an open session' => function () {
        $id = fresh();
        want(true, session($id, fn () => has(PREFIX . "lock.$id")), 'the lock');
        want(false, has(PREFIX . "lock.$id"), 'the lock of a closed session');
    },
    'an open session is refused to others' => function () {
        $id = fresh();
        $code = session($id, fn () => proc_close(start('try', $id)));
        want(3, $code, 'a process beside it');
        want(0, proc_close(start('try', $id)), 'a process behind it');
    },
    'processes that add to one session miss no turn' => function () {
        $id = fresh();
        $processes = array_map(fn () => start('add', $id), range(1, WORKERS));
        foreach ($processes as $process) {
            want(0, proc_close($process), 'a process');
        }
        want(WORKERS * TURNS, session($id, fn () => $_SESSION['sum']), 'the sum');
    },
    'an ID that nobody gave is replaced in strict mode' => function () {
        ini_set('session.use_strict_mode', '1');
        $id = fresh();
        want(false, session($id, fn () => session_id()) === $id, 'an ID of the client');
        $given = session(fresh(), function () {
            $_SESSION['a'] = 1;
            return session_id();
        });
        want($given, session($given, fn () => session_id()), 'a given ID');
        ini_set('session.use_strict_mode', '0');
    },
    'a session expires' => function () {
        $id = fresh();
        ini_set('session.gc_maxlifetime', '1');
        session($id, fn () => $_SESSION['a'] = 1);
        ini_set('session.gc_maxlifetime', '600');
        gone(PREFIX . $id);
        want([], session($id, fn () => $_SESSION), 'the session');
    },
    'a session that was only read is touched' => function () {
        $id = fresh();
        session($id, fn () => $_SESSION['a'] = 1);
        ini_set('session.gc_maxlifetime', '1');
        want(['a' => 1], session($id, fn () => $_SESSION), 'the session');
        ini_set('session.gc_maxlifetime', '600');
        gone(PREFIX . $id);
    },
];

if ($work) {
    exit(work(...$work));
}
foreach ($checks as $name => $check) {
    $warnings = [];
    $check();
    want([], $warnings, "$name, warnings");
    say("$name: ok");
}
