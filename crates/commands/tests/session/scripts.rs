//! Scripts: what they may do and what not, what they leave when they are refused or ended, what they take.

use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Context, Next, Output, Pace, Session, Settings};
use larder_testkit::local::Local;
use larder_testkit::talk::{Talk, encode};
use std::sync::atomic::Ordering::Relaxed;

impl Bench {
    fn words(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let (reply, _) = self.run(&mut Session::new(), &encode(&words), usize::MAX);
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Runs a script without keys.
    fn eval(&mut self, script: &str) -> String {
        self.words(&["EVAL", script, "0"])
    }

    /// One turn of a session: what it replies, and what is next.
    fn once(&mut self, session: &mut Session, input: &[u8]) -> (String, Next) {
        let mut out = Output::new(self.limit);
        let guard = self.worker.enter(self.shared.now(self.system));
        self.room.work().begin_slice();
        let counters = &self.host.counters;
        let mut cx = Context::new(guard, counters, &self.shared, &self.host, &self.host, &self.room);
        let progress = session.receive(&mut cx, input, &mut out);
        assert_eq!(progress.consumed, input.len());
        (String::from_utf8_lossy(&out.to_vec()).into_owned(), progress.next)
    }

    /// A session does not take a request yet.
    fn waits(&mut self, session: &mut Session, input: &[u8]) -> bool {
        let mut out = Output::new(self.limit);
        let guard = self.worker.enter(self.shared.now(self.system));
        let counters = &self.host.counters;
        let mut cx = Context::new(guard, counters, &self.shared, &self.host, &self.host, &self.room);
        let progress = session.receive(&mut cx, input, &mut out);
        progress.consumed == 0 && out.is_empty() && matches!(progress.next, Next::Sleep(_))
    }

    /// A script of the key `k` has no end; others have their turns in between, until one kills it.
    fn lets_others_in_until_killed(&mut self, script: &str) {
        let mut client = Session::new();
        let mut input = encode(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
        for _ in 0..3 {
            assert_eq!(self.once(&mut client, &input), (String::new(), Next::Yield), "{script}");
            input.clear();
            assert_eq!(self.words(&["SET", "k", "v", "GET"]), "$1\r\nv\r\n");
            assert_eq!(self.eval("return {redis.call('GET', 'k')}"), "*1\r\n$1\r\nv\r\n");
            assert_eq!(self.ask("get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
        }
        assert_eq!(self.words(&["SCRIPT", "KILL"]), "+OK\r\n", "{script}");
        let (reply, _) = self.once(&mut client, b"");
        assert!(reply.contains("killed by user with SCRIPT KILL"), "{script}: {reply}");
        assert_eq!(self.once(&mut client, &encode(&[b"PING"])).0, "+PONG\r\n");
    }

    /// What a script says is wrong, without where.
    fn error(&mut self, script: &str) -> String {
        let reply = self.eval(script);
        assert!(reply.starts_with('-'), "{script}: {reply}");
        let end = reply.find(" script: ").unwrap_or(reply.trim_end().len());
        reply[1..end].to_owned()
    }
}

#[test]
fn scripts_read_and_write_keys_that_they_declare_and_others() {
    let mut bench = bench();
    let set = "return redis.call('SET', KEYS[1], ARGV[1])";
    assert_eq!(bench.words(&["EVAL", set, "1", "a", "1"]), "+OK\r\n");
    let sum = "return redis.call('INCRBY', KEYS[1], redis.call('GET', KEYS[2]))";
    assert_eq!(bench.words(&["EVAL", sum, "2", "a", "a"]), ":2\r\n");
    // None of these is declared.
    assert_eq!(bench.eval("return redis.call('GET', 'a')"), "$1\r\n2\r\n");
    let many = "for i = 1, 50 do redis.call('SET', 'k' .. i, i) end \
                local sum = 0 for i = 1, 50 do sum = sum + redis.call('GET', 'k' .. i) end return sum";
    assert_eq!(bench.eval(many), ":1275\r\n");
    assert_eq!(bench.eval("return redis.call('DBSIZE')"), ":51\r\n");
    assert_eq!(bench.eval("return #redis.call('KEYS', 'k*')"), ":50\r\n");
    // Another database, for the time of the script.
    let other = "redis.call('SELECT', 3) redis.call('SET', 'a', 'other') return redis.call('GET', 'a')";
    assert_eq!(bench.eval(other), "$5\r\nother\r\n");
    assert_eq!(bench.words(&["GET", "a"]), "$1\r\n2\r\n");
}

#[test]
fn a_script_that_named_its_keys_in_many_runs_is_told_of_one_that_it_does_not() {
    let mut bench = bench();
    let script =
        "redis.call('INCR', KEYS[1]) if ARGV[1] then return redis.call('INCR', ARGV[1]) end return 0";
    for _ in 0..64 {
        assert_eq!(bench.words(&["EVAL", script, "1", "a"]), ":0\r\n");
    }
    // Now it is trusted with the keys that it names, and leaves all others to others.
    let held = bench.worker.store().whole_holds();
    assert_eq!(bench.words(&["EVAL", script, "1", "a"]), ":0\r\n");
    assert_eq!(bench.worker.store().whole_holds(), held);
    let refused = bench.words(&["EVAL", script, "1", "a", "b"]);
    assert!(refused.starts_with("-ERR the script named a key behind its first write"), "{refused}");
    // From now on it has all keys.
    for n in 1..4 {
        assert_eq!(bench.words(&["EVAL", script, "1", "a", "b"]), format!(":{n}\r\n"));
    }
    // One that never wrote before it named another is trusted with it at once.
    let reads = "return redis.call('GET', ARGV[1])";
    for _ in 0..70 {
        assert_eq!(bench.words(&["EVAL", reads, "1", "a", "b"]), "$1\r\n3\r\n");
    }
}

#[test]
fn values_become_replies_and_replies_values() {
    let mut bench = bench();
    for (script, reply) in [
        ("return 1", ":1\r\n"),
        ("return 3.99", ":3\r\n"),
        ("return -3.99", ":-3\r\n"),
        ("return 'a\\0b'", "$3\r\na\0b\r\n"),
        ("return true", ":1\r\n"),
        ("return false", "$-1\r\n"),
        ("return nil", "$-1\r\n"),
        ("", "$-1\r\n"),
        ("return {1, 2, {3, 'x'}, nil, 5}", "*3\r\n:1\r\n:2\r\n*2\r\n:3\r\n$1\r\nx\r\n"),
        ("return {}", "*0\r\n"),
        ("return {ok = 'fine\\r\\n'}", "+fine  \r\n"),
        ("return {err = 'BAD thing'}", "-BAD thing\r\n"),
        ("return redis.status_reply('A')", "+A\r\n"),
        ("return redis.error_reply('CODE text')", "-CODE text\r\n"),
        ("return redis.error_reply('text')", "-ERR text\r\n"),
        ("return redis.error_reply('-CODE text')", "-CODE text\r\n"),
        ("return {double = 1.5}", "$3\r\n1.5\r\n"),
        ("return {map = {a = 1}}", "*2\r\n$1\r\na\r\n:1\r\n"),
        ("return {set = {a = true}}", "*1\r\n$1\r\na\r\n"),
        ("return {big_number = '123'}", "$3\r\n123\r\n"),
        ("return {verbatim_string = {format = 'txt', string = 'x'}}", "$1\r\nx\r\n"),
        ("return redis.call('SET', 'k', 'v').ok", "$2\r\nOK\r\n"),
        ("return redis.call('GET', 'nosuch') == false", ":1\r\n"),
        ("return redis.pcall('INCR', 'k').err", "$55\r\nERR value is not an integer or out of range"),
        ("return type(redis.call('PING'))", "$5\r\ntable\r\n"),
        ("return redis.call('ECHO', 0.1)", "$3\r\n0.1\r\n"),
        ("return redis.call('ECHO', 0/0) == tostring(0/0)", ":1\r\n"),
        ("return redis.call('ECHO', -(0/0)) == tostring(-(0/0))", ":1\r\n"),
        ("return redis.call('ECHO', 1e15)", "$16\r\n1000000000000000\r\n"),
        (
            "redis.setresp(3) redis.call('ZADD', 'z', 1.5, 'm') return redis.call('ZSCORE', 'z', 'm').double == 1.5",
            ":1\r\n",
        ),
        (
            "redis.setresp(3) redis.call('HSET', 'h', 'f', 'v') return redis.call('HGETALL', 'h').map.f",
            "$1\r\nv\r\n",
        ),
        ("redis.setresp(3) return redis.call('GET', 'nosuch') == nil", ":1\r\n"),
        ("redis.setresp(3) return true", ":1\r\n"),
        ("return redis.sha1hex('')", "$40\r\nda39a3ee5e6b4b0d3255bfef95601890afd80709\r\n"),
        ("return redis.REDIS_VERSION_NUM", ":524288\r\n"),
        ("return redis.replicate_commands()", ":1\r\n"),
        ("return redis.breakpoint()", "$-1\r\n"),
        (
            "redis.log(redis.LOG_WARNING, 'said', 1) redis.set_repl(redis.REPL_ALL) redis.debug('x') return 1",
            ":1\r\n",
        ),
        ("return redis.acl_check_cmd('set', 'a', 'b')", ":1\r\n"),
        ("return server.call('PING')", "+PONG\r\n"),
    ] {
        let got = bench.eval(script);
        if reply.starts_with("$55") {
            assert!(got.contains("ERR value is not an integer or out of range"), "{script}: {got}");
        } else {
            assert_eq!(got, reply, "{script}");
        }
    }
    let hello = |script: &str| {
        [&encode(&[b"HELLO", b"3"])[..], &encode(&[b"EVAL", script.as_bytes(), b"0"])].concat()
    };
    for (script, reply) in [
        ("return {map = {a = 1}}", "%1\r\n$1\r\na\r\n:1\r\n"),
        ("return {double = 1.5}", ",1.5\r\n"),
        ("return {set = {a = true}}", "~1\r\n$1\r\na\r\n"),
        ("return true", ":1\r\n"),
        ("redis.setresp(3) return true", "#t\r\n"),
        ("redis.setresp(3) return false", "#f\r\n"),
        ("return nil", "_\r\n"),
        ("return {big_number = '123'}", "(123\r\n"),
        ("return {verbatim_string = {format = 'txt', string = 'x'}}", "=5\r\ntxt:x\r\n"),
    ] {
        let (replies, _) = bench.run(&mut Session::new(), &hello(script), usize::MAX);
        let replies = String::from_utf8_lossy(&replies).into_owned();
        assert!(replies.ends_with(reply), "{script}: {replies}");
    }
}

#[test]
fn errors_say_where_they_were() {
    let mut bench = bench();
    let sha = |script: &str| larder_script::sha1_hex(script.as_bytes());
    for (script, text, line) in [
        ("return redis.call('NOSUCH')", "ERR Unknown Redis command called from script", 1),
        ("\n\nredis.call('GET')", "ERR Wrong number of args calling Redis command from script", 3),
        ("return redis.call('SUBSCRIBE', 'c')", "ERR This Redis command is not allowed from script", 1),
        ("return redis.call()", "ERR Please specify at least one argument for this redis lib call", 1),
        ("return redis.call({})", "ERR Lua redis lib command arguments must be strings or integers", 1),
        ("\nerror('here')", "ERR user_script:2: here", 2),
        ("error({err = 'MY words'})", "MY words", 1),
        (
            "return nosuch",
            "ERR user_script:1: Script attempted to access nonexistent global variable 'nosuch'",
            1,
        ),
        ("x = 1", "ERR user_script:1: Attempt to modify a readonly table", 1),
        ("local a = nil\nreturn a.b", "ERR user_script:2: attempt to index local 'a' (a nil value)", 2),
        (
            "redis.call('SET', 'k', 'v') return redis.call('INCR', 'k')",
            "ERR value is not an integer or out of range",
            1,
        ),
        (
            "local function f()\nreturn cjson.encode(f)\nend\nreturn (f())",
            "ERR user_script:2: Cannot serialise function: type not supported",
            2,
        ),
    ] {
        let reply = bench.eval(script);
        assert_eq!(
            reply,
            format!("-{text} script: {}, on @user_script:{line}.\r\n", sha(script)),
            "{script:?}"
        );
    }
    for words in [&["EVAL", "return (", "0"][..], &["SCRIPT", "LOAD", "return ("]] {
        let broken = bench.words(words);
        assert!(broken.starts_with("-ERR Error compiling script (new function): user_script:1:"), "{broken}");
    }
    assert_eq!(
        bench.words(&["EVALSHA", &sha("return ("), "0"]),
        "-NOSCRIPT No matching script. Please use EVAL.\r\n"
    );
    // Caught, it is text, and by `redis.pcall` a table.
    assert_eq!(
        bench.eval("local ok, e = pcall(redis.call, 'NOSUCH') return e"),
        "$44\r\nERR Unknown Redis command called from script\r\n"
    );
    assert_eq!(
        bench.eval("return redis.pcall('NOSUCH')"),
        "-ERR Unknown Redis command called from script\r\n"
    );
    assert_eq!(bench.eval("local ok, e = pcall(error, 'x') return e"), "$1\r\nx\r\n");
    assert_eq!(
        bench.eval("return select(2, xpcall(function() error('x', 0) end, function(e) return e .. 'y' end))"),
        "$2\r\nxy\r\n"
    );
}

/// What Redis 8.0.6 says of each: its functions are C's, which know their caller also where what they return is returned.
#[test]
fn errors_of_returned_calls_say_where_they_were() {
    let mut bench = bench();
    for (call, text) in [
        ("string.match('x','(')", "user_script:1: unfinished capture"),
        ("string.find('x','[')", "user_script:1: malformed pattern (missing ']')"),
        ("string.gsub('x','(','%1')", "user_script:1: unfinished capture"),
        ("string.gmatch('x','(')()", "user_script:1: unfinished capture"),
        ("string.rep()", "user_script:1: bad argument #1 to 'rep' (string expected, got no value)"),
        ("string.sub('x')", "user_script:1: bad argument #2 to 'sub' (number expected, got no value)"),
        ("string.lower(nil)", "user_script:1: bad argument #1 to 'lower' (string expected, got nil)"),
        ("('x'):rep()", "user_script:1: bad argument #1 to 'rep' (number expected, got no value)"),
        ("('x'):sub({})", "user_script:1: bad argument #1 to 'sub' (number expected, got table)"),
        ("('x'):gsub('x')", "user_script:1: bad argument #2 to 'gsub' (string/function/table expected)"),
        (
            "string.gsub('x','x','x',{})",
            "user_script:1: bad argument #4 to 'gsub' (number expected, got table)",
        ),
        ("string.find('x','x',{})", "user_script:1: bad argument #3 to 'find' (number expected, got table)"),
        (
            "string.match('x','x',{})",
            "user_script:1: bad argument #3 to 'match' (number expected, got table)",
        ),
        (
            "string.format('%d','x')",
            "user_script:1: bad argument #2 to 'format' (number expected, got string)",
        ),
        ("unpack()", "user_script:1: bad argument #1 to 'unpack' (table expected, got no value)"),
        ("unpack({},1,8000)", "user_script:1: too many results to unpack"),
        ("next({},1)", "invalid key to 'next'"),
        ("pairs()", "user_script:1: bad argument #1 to 'pairs' (table expected, got no value)"),
        ("ipairs()", "user_script:1: bad argument #1 to 'ipairs' (table expected, got no value)"),
        ("rawget({})", "user_script:1: bad argument #2 to 'rawget' (value expected)"),
        ("rawset({},1)", "user_script:1: bad argument #3 to 'rawset' (value expected)"),
        ("setmetatable({})", "user_script:1: bad argument #2 to 'setmetatable' (nil or table expected)"),
        ("load()", "user_script:1: bad argument #1 to 'load' (function expected, got no value)"),
        ("loadstring(nil)", "user_script:1: bad argument #1 to 'loadstring' (string expected, got nil)"),
        ("struct.unpack('>i4','')", "user_script:1: bad argument #2 to 'unpack' (data string too short)"),
        ("cmsgpack.unpack('\\217')", "user_script:1: Missing bytes in input."),
        ("math.random(0)", "user_script:1: bad argument #1 to 'random' (interval is empty)"),
        (
            "math.randomseed()",
            "user_script:1: bad argument #1 to 'randomseed' (number expected, got no value)",
        ),
        (
            "cjson.encode_max_depth(0)",
            "user_script:1: bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)",
        ),
        (
            "cjson.encode_sparse_array(1,2,3,4)",
            "user_script:1: bad argument #4 to 'encode_sparse_array' (found too many arguments)",
        ),
        ("table.insert()", "user_script:1: bad argument #1 to 'insert' (table expected, got no value)"),
        ("table.insert({},1,2,3)", "user_script:1: wrong number of arguments to 'insert'"),
        ("table.remove()", "user_script:1: bad argument #1 to 'remove' (table expected, got no value)"),
        (
            "table.sort({1,2,3,4,5},function() return true end)",
            "user_script:1: invalid order function for sorting",
        ),
        ("table.maxn()", "user_script:1: bad argument #1 to 'maxn' (table expected, got no value)"),
        (
            "table.foreach({})",
            "user_script:1: bad argument #2 to 'foreach' (function expected, got no value)",
        ),
        ("coroutine.resume(1)", "user_script:1: bad argument #1 to 'resume' (coroutine expected)"),
        ("xpcall()", "user_script:1: bad argument #2 to 'xpcall' (value expected)"),
        (
            "collectgarbage('nosuch')",
            "user_script:1: bad argument #1 to 'collectgarbage' (invalid option 'nosuch')",
        ),
        ("tonumber()", "user_script:1: bad argument #1 to 'tonumber' (value expected)"),
        ("redis.log()", "redis.log() requires two arguments or more."),
        ("redis.log(9,'x')", "Invalid log level."),
        ("redis.setresp(1)", "RESP version must be 2 or 3."),
        ("redis.set_repl()", "redis.set_repl() requires one argument."),
        ("redis.acl_check_cmd('nosuch')", "Invalid command passed to redis.acl_check_cmd()"),
        ("redis.sha1hex()", "wrong number of arguments"),
        ("redis.call('nosuch')", "Unknown Redis command called from script"),
        ("rawset(redis,'x',1)", "Attempt to modify a readonly table"),
        ("setmetatable(_G,{})", "Attempt to modify a readonly table"),
        ("table.insert(redis,1)", "Attempt to modify a readonly table"),
        ("(function() error('x') end)()", "user_script:1: x"),
        ("error('x')", "user_script:1: x"),
        ("({f=redis.call}).f('nosuch')", "Unknown Redis command called from script"),
        ("redis['call']('nosuch')", "Unknown Redis command called from script"),
    ] {
        let script = format!("return {call}");
        let sha = larder_script::sha1_hex(script.as_bytes());
        assert_eq!(
            bench.eval(&script),
            format!("-ERR {text} script: {sha}, on @user_script:1.\r\n"),
            "{call}"
        );
    }
    let code = "#!lua name=errors\n\
        redis.register_function('log', function(keys, args)\nreturn redis.log() end)\n\
        redis.register_function('meta', function(keys, args)\nreturn setmetatable({}) end)\n\
        redis.register_function('insert', function(keys, args)\nreturn table.insert() end)\n\
        redis.register_function('random', function(keys, args)\nreturn math.random(0) end)\n\
        redis.register_function('match', function(keys, args)\nreturn string.match('x', '(') end)\n\
        redis.register_function('none', function() \
        return select('#', (function() return redis.log(1, 'x') end)()) end)";
    assert_eq!(bench.words(&["FUNCTION", "LOAD", code]), "$6\r\nerrors\r\n");
    for (name, text, line) in [
        ("log", "redis.log() requires two arguments or more.", 3),
        ("meta", "user_function:5: bad argument #2 to 'setmetatable' (nil or table expected)", 5),
        ("insert", "user_function:7: bad argument #1 to 'insert' (table expected, got no value)", 7),
        ("match", "user_function:11: unfinished capture", 11),
        ("random", "user_function:9: bad argument #1 to 'random' (interval is empty)", 9),
    ] {
        assert_eq!(
            bench.words(&["FCALL", name, "0"]),
            format!("-ERR {text} script: {name}, on @user_function:{line}.\r\n")
        );
    }
    // What returns nothing still does.
    assert_eq!(bench.words(&["FCALL", "none", "0"]), ":0\r\n");
}

/// As Redis 8.0.6 answers them.
#[test]
fn what_lua_and_its_libraries_answer_at_their_edges() {
    let mut bench = bench();
    for (script, reply) in [
        ("return {pcall()}", "*2\r\n$-1\r\n$31\r\nattempt to call a boolean value\r\n"),
        ("return string.gsub('abc', '(a', 'x')", "$3\r\nxbc\r\n"),
        ("return string.gsub('abc', '(a', '%0y')", "$4\r\naybc\r\n"),
        ("return {string.gsub('abc', '()(b', 'x')}", "*2\r\n$3\r\naxc\r\n:1\r\n"),
        ("return string.gsub('aaa', 'a', 'b', 1.9)", "$3\r\nbaa\r\n"),
        ("return string.gsub('aaa', 'a', {a = 'b'}, 1.9)", "$3\r\nbaa\r\n"),
        ("return collectgarbage('setpause', 100)", ":200\r\n"),
        ("return collectgarbage('setstepmul', 100)", ":200\r\n"),
        ("return collectgarbage('stop')", ":0\r\n"),
        ("local t = {} for i = 1, 7999 do t[i] = i end return select('#', unpack(t))", ":7999\r\n"),
        ("return select('#', unpack({}, 1, 7997))", ":7997\r\n"),
        ("local t = {3, 1, 2} table.sort(t) return t", "*3\r\n:1\r\n:2\r\n:3\r\n"),
        (
            "local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t",
            "*3\r\n:3\r\n:2\r\n:1\r\n",
        ),
        // Numbers of 64 bits without a sign are read as if they had one.
        ("return tostring(cmsgpack.unpack('\\207' .. string.rep('\\255', 8)))", "$2\r\n-1\r\n"),
        (
            "return tostring(cmsgpack.unpack('\\207\\128' .. string.rep('\\0', 7)))",
            "$20\r\n-9.2233720368548e+18\r\n",
        ),
        ("return tostring(cmsgpack.unpack('\\207' .. string.rep('\\0', 7) .. '\\200'))", "$3\r\n200\r\n"),
        ("return tostring(cmsgpack.unpack('\\206' .. string.rep('\\255', 4)))", "$10\r\n4294967295\r\n"),
    ] {
        assert_eq!(bench.eval(script), reply, "{script}");
    }
    for (script, text) in [
        (
            "local t = {} for i = 1, 8000 do t[i] = i end unpack(t)",
            "ERR user_script:1: too many results to unpack",
        ),
        ("unpack({}, 1, 7998)", "ERR user_script:1: too many results to unpack"),
        ("table.sort({3, 1, 2}, function(a, b) error('why') end)", "ERR user_script:1: why"),
        ("table.sort({3, 'x', 2})", "ERR attempt to compare string with number"),
        ("redis.x = 1", "ERR user_script:1: Attempt to modify a readonly table"),
    ] {
        assert_eq!(bench.error(script), text, "{script}");
    }
}

/// As many as Redis's unpacking of a table can give.
#[test]
fn a_command_takes_as_many_arguments_as_can_be_unpacked() {
    let mut bench = bench();
    let push = |count: usize| {
        format!(
            "local t = {{}} for i = 1, {count} do t[i] = i end \
             return {{redis.call('RPUSH', KEYS[1], unpack(t)), redis.call('LINDEX', KEYS[1], -1), redis.call('DEL', KEYS[1])}}"
        )
    };
    for count in [7498, 7499, 7997, 7998] {
        let reply = bench.words(&["EVAL", &push(count), "1", "l"]);
        assert_eq!(reply, format!("*3\r\n:{count}\r\n$4\r\n{count}\r\n:1\r\n"));
    }
    assert_eq!(bench.words(&["EVAL", &push(7999), "1", "l"]).find("too many arguments"), Some(5));
    let holes = "return redis.call('DEL', unpack({}, 1, 7600))";
    assert!(bench.error(holes).contains("arguments must be strings or integers"));
    let caught = "return redis.pcall('ECHO', unpack({}, 1, 7600))";
    assert!(bench.eval(caught).contains("arguments must be strings or integers"));
}

/// What begins and ends lines around an error's text goes; where `error` says that it was raised no call of the sandbox is named.
#[test]
fn errors_have_the_text_and_the_place_that_redis_gives_them() {
    let mut bench = bench();
    for (given, made, raw) in [
        ("'\\n'", "ERR ", ""),
        ("'\\r\\nhello\\r\\n'", "ERR hello", "  hello"),
        ("'a\\nb\\n\\n'", "ERR a b", "a b"),
        ("'-x\\n'", "ERR x", "-x"),
        ("' \\n'", " ", " "),
        ("'ab\\r\\n \\r\\n'", "ab   ", "ab   "),
    ] {
        assert_eq!(
            bench.eval(&format!("return redis.error_reply({given})")),
            format!("-{made}\r\n"),
            "{given}"
        );
        assert_eq!(bench.eval(&format!("return {{err = {given}}}")), format!("-{raw}\r\n"), "{given}");
    }
    for (script, text) in [
        ("select(2, pcall(error, 'x', 2))", "user_script:1: x"),
        ("select(2, pcall(error, 'x', 3))", "x"),
        ("select(2, pcall(function() error('x', 2) end))", "x"),
        ("select(2, pcall(function() error('x', 3) end))", "user_script:1: x"),
        ("select(2, xpcall(function() error('x', 3) end, function(e) return e end))", "user_script:1: x"),
        ("select(2, pcall(string.gsub, 'a', 'a', function() error('x', 2) end))", "x"),
        ("select(2, pcall(error, 'x', 9))", "x"),
        ("select(2, pcall(error, 0.5, 7))", "0.5"),
        ("select(2, pcall(error, 'x', '1.5'))", "x"),
    ] {
        let reply = bench.eval(&format!("return {script}"));
        assert_eq!(reply, format!("${}\r\n{text}\r\n", text.len()), "{script}");
    }
}

/// A library logs, and names that are numbers are names.
#[test]
fn a_library_that_is_loaded_logs_and_takes_numbers_for_names() {
    let mut bench = bench();
    let load = |bench: &mut Bench, body: &str| {
        bench.words(&["FUNCTION", "LOAD", "REPLACE", &format!("#!lua name=l\n{body}")])
    };
    let logs =
        "redis.log(redis.LOG_NOTICE, 'loaded', 1) redis.register_function('f', function() return 1 end)";
    assert_eq!(load(&mut bench, logs), "$1\r\nl\r\n");
    assert_eq!(bench.host.take_noted(), [(2, "loaded 1".to_owned())]);
    assert_eq!(bench.words(&["FCALL", "f", "0"]), ":1\r\n");
    // There is nothing else, neither of Redis's nor of Lua's, and its log stays with it.
    for (body, name) in [
        ("redis.setresp(3)", "setresp"),
        ("redis.call('PING')", "call"),
        ("local t = tostring(1)", "tostring"),
        ("error('no')", "error"),
        ("local g = _G", "_G"),
    ] {
        let refused = format!("Script attempted to access nonexistent global variable '{name}'");
        assert!(load(&mut bench, body).contains(&refused), "{body}");
    }
    // What it registers has all of it, by its globals.
    let later = "local own = redis redis.register_function('f', function() return {tostring(1), redis.sha1hex('')} end)";
    assert_eq!(load(&mut bench, later), "$1\r\nl\r\n");
    assert!(bench.words(&["FCALL", "f", "0"]).starts_with("*2\r\n$1\r\n1\r\n$40\r\n"));
    // One that is there is there, whatever its code.
    let taken = bench.words(&["FUNCTION", "LOAD", "#!lua name=l\n("]);
    assert_eq!(taken, "-ERR Library 'l' already exists\r\n");
    bench.host.take_noted();
    assert_eq!(bench.eval("local ok = pcall(redis.log, 9, 'x') redis.log(1, 'script') return 1"), ":1\r\n");
    assert_eq!(bench.host.take_noted(), [(1, "script".to_owned())]);
    assert_eq!(load(&mut bench, "redis.register_function(34, function() return 1 end)"), "$1\r\nl\r\n");
    assert_eq!(bench.words(&["FCALL", "34", "0"]), ":1\r\n");
    let named = "redis.register_function{function_name=12, callback=function() return 2 end, description=1}";
    assert_eq!(load(&mut bench, named), "$1\r\nl\r\n");
    assert_eq!(bench.words(&["FCALL", "12", "0"]), ":2\r\n");
    assert!(bench.words(&["FUNCTION", "LIST"]).contains("description\r\n$1\r\n1\r\n"));
    for (body, text) in [
        (
            "redis.register_function{function_name='f', callback=f, [1]='x'}",
            "unknown argument given to redis.register_function",
        ),
        (
            "redis.register_function{[true]='x'}",
            "named argument key given to redis.register_function is not a string",
        ),
        (
            "redis.register_function(1.5, function() end)",
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
    ] {
        let body = format!("local f = function() end {body}");
        assert_eq!(load(&mut bench, &body), format!("-ERR Error registering functions: ERR {text}\r\n"));
    }
    let function = "redis.register_function('g', function() return 1 end)";
    for (head, reply) in [
        ("#! lua name=m", "-ERR Invalid metadata value given: lua\r\n"),
        ("#!", "-ERR Library name was not given\r\n"),
        ("#! name=m", "-ERR Engine '' not found\r\n"),
        ("#!\"lua\" name=m", "$1\r\nm\r\n"),
    ] {
        assert_eq!(bench.words(&["FUNCTION", "LOAD", &format!("{head}\n{function}")]), reply, "{head}");
    }
}

/// A script gets the answer that it may not call what the server refuses every client.
#[test]
fn what_nobody_may_call_a_script_is_told_it_may_not() {
    let may = "local may = {} for i, name in ipairs(ARGV) do may[i] = redis.acl_check_cmd(name, 'x') and 1 or 0 end return may";
    let asked = ["EVAL", may, "0", "flushall", "keys", "get"];
    assert_eq!(bench().words(&asked), "*3\r\n:1\r\n:1\r\n:1\r\n");
    let mut closed = Bench::new(Settings { dump: false, flush: false, ..Settings::default() });
    assert_eq!(closed.words(&asked), "*3\r\n:0\r\n:0\r\n:1\r\n");
}

#[test]
fn scripts_that_only_read_do_not_write() {
    let mut bench = bench();
    let write = "return redis.call('SET', KEYS[1], 'x')";
    let refused = bench.words(&["EVAL_RO", write, "1", "a"]);
    assert!(refused.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{refused}");
    assert_eq!(bench.words(&["GET", "a"]), "$-1\r\n");
    assert_eq!(bench.words(&["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "a"]), "$-1\r\n");
    let flagged = format!("#!lua flags=no-writes\n{write}");
    assert!(bench.words(&["EVAL", &flagged, "1", "a"]).starts_with("-ERR Write commands are not allowed"));
    let flagged = format!("#!lua\n{write}");
    assert_eq!(
        bench.words(&["EVAL_RO", &flagged, "1", "a"]),
        "-ERR Can not execute a script with write flag using *_ro command.\r\n"
    );
    assert_eq!(bench.words(&["EVAL", &flagged, "1", "a"]), "+OK\r\n");
    for (head, reply) in [
        ("#!lua", "-ERR Invalid script shebang\r\n"),
        ("#!perl\nreturn 1", "-ERR Unexpected engine in script shebang: #!perl\r\n"),
        ("#!lua flags=x\nreturn 1", "-ERR Unexpected flag in script shebang: x\r\n"),
        ("#!lua x=1\nreturn 1", "-ERR Unknown lua shebang option: x=1\r\n"),
    ] {
        assert_eq!(bench.eval(head), reply);
    }
}

/// What a script may not reach, name by name: the error that it gets, or what it finds instead.
#[test]
fn the_sandbox_is_closed() {
    let mut bench = bench();
    for name in [
        "io",
        "debug",
        "package",
        "require",
        "module",
        "dofile",
        "loadfile",
        "print",
        "newproxy",
        "os.execute",
        "os.getenv",
        "os.exit",
        "os.remove",
        "string.dump",
        "getfenv",
        "setfenv",
        "rawget(_G, 'getfenv')",
        "rawget(_G, 'setfenv')",
    ] {
        let found = bench.eval(&format!(
            "local ok, found = pcall(function() return {name} end) return ok and found ~= nil"
        ));
        assert_eq!(found, "$-1\r\n", "{name}");
    }
    let readonly = "Attempt to modify a readonly table";
    for script in [
        "redis.call = nil",
        "_G.x = 1",
        "string.len = nil",
        "cjson.null = 1",
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'call', nil)",
        "table.insert(redis, 1)",
        "table.remove(string)",
        "table.sort(math)",
        "setmetatable(_G, {})",
        "setmetatable(redis, {__index = {}})",
        // CVE-2025-46818: another user's functions by the metatables of basic types.
        "getmetatable('').__index = {}",
        "getmetatable('').__index.rep = nil",
        "rawset(getmetatable(''), '__index', {})",
        "coroutine.wrap(function() x = 1 end)()",
        "loadstring('x = 1')()",
        "getmetatable('').__metatable = 1",
    ] {
        let error = bench.error(script);
        assert!(error.contains(readonly), "{script}: {error}");
    }
    for (script, reply) in [
        ("return getmetatable(_G) == false", ":1\r\n"),
        ("return rawget(_G, 'x') == nil", ":1\r\n"),
        ("return ('x'):rep(3)", "$3\r\nxxx\r\n"),
        ("return loadstring('return ' .. 6 * 7)()", ":42\r\n"),
        ("return load(function() return nil end) ~= nil", ":1\r\n"),
        // Bytecode is not loaded.
        ("return select(2, loadstring('\\27Lua'))", "$39\r\nattempt to load chunk with wrong mode"),
        ("local n = 0 for k in pairs(redis) do n = n + 1 end return n > 10", ":1\r\n"),
        ("local t = {} for k, v in pairs(math) do t[k] = v end t.pi = 3 return math.pi > 3", ":1\r\n"),
        ("return next(redis) ~= nil", ":1\r\n"),
    ] {
        let got = bench.eval(script);
        assert!(got.starts_with(reply.trim_end()) || got.contains("wrong mode"), "{script}: {got}");
    }
    // What would show or change another function's globals has Redis's error.
    for name in ["getfenv", "setfenv"] {
        assert_eq!(
            bench.error(&format!("return {name}(1)")),
            format!("ERR user_script:1: Script attempted to access nonexistent global variable '{name}'")
        );
    }
    // Nothing is left of all that.
    assert_eq!(bench.eval("return redis.call('PING')"), "+PONG\r\n");
    assert_eq!(bench.eval("return string.len('abc')"), ":3\r\n");
}

/// Redis's own, without `__redis__err__handler`, and `server`, which Valkey has.
#[test]
fn scripts_see_the_globals_that_redis_has() {
    let mut bench = bench();
    let names = "local names = {} for name in pairs(_G) do names[#names + 1] = name end \
                 table.sort(names) return table.concat(names, ' ')";
    let expected = "ARGV KEYS _G _VERSION assert bit cjson cmsgpack collectgarbage coroutine error gcinfo getmetatable \
                    ipairs load loadstring math next os pairs pcall rawequal rawget rawset redis select server \
                    setmetatable string struct table tonumber tostring type unpack xpcall";
    assert_eq!(bench.eval(names), format!("${}\r\n{expected}\r\n", expected.len()));
}

/// Each ended a server, or ran what it should not, somewhere.
#[test]
fn what_broke_others_breaks_nothing_here() {
    let mut bench = Bench::new(Settings::default());
    for script in [
        // CVE-2022-24834: long strings in cjson and cmsgpack.
        "local s = string.rep('a', 1024 * 1024) return cjson.encode({s, s, s, s, s, s, s, s, s})",
        "local s = string.rep('a', 1024 * 1024) return cmsgpack.pack(s, s, s, s, s, s, s, s, s)",
        "return cjson.decode(string.rep('[', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        // CVE-2024-31449: bit.tohex of the smallest number of digits.
        "return bit.tohex(65535, -2147483648)",
        "return bit.tohex(1, 2147483648)",
        // CVE-2024-46981, CVE-2025-49844: collections while chunks are compiled and what has a finalizer.
        "for i = 1, 200 do loadstring(string.rep('local a = {} ', 50), 'name' .. i .. '\\0x') collectgarbage() end return 1",
        "return collectgarbage('setpause', 0), collectgarbage('stop')",
        // CVE-2025-46817: ranges whose length overflows.
        "return {unpack({}, 0, 2147483647)}",
        "return {unpack({}, -2147483648, 2147483647)}",
        "return {unpack({1}, 1, 1e8)}",
        // CVE-2025-46819: the longest of brackets.
        "return loadstring('return [' .. string.rep('=', 100000) .. '[')",
        "return loadstring('--[' .. string.rep('=', 100000))",
        // Patterns as deep as they are long, and ones that take for ever.
        "return string.find(string.rep('a', 100000), string.rep('a?', 100000))",
        "return string.find(string.rep('a', 100000), string.rep('(', 50))",
        "return string.rep('', 1000000000)",
        "return string.rep('x', 1e10)",
        "return string.format('%99999d', 1)",
        "return string.format(string.rep('%s', 300), unpack({}, 1, 300))",
        // As many values as there may be, and more.
        "local t = {} for i = 1, 7999 do t[i] = 'x' end return redis.call('ECHO', unpack(t))",
        "local function f(n, ...) if n == 0 then return redis.call(...) end return f(n - 1, 'a', 'b', 'c', ...) end return f(5000)",
        "local function f(n) if n == 0 then return 'x' end return 'x', f(n - 1) end return redis.pcall(f(15000))",
        "local function f(n, ...) if n == 0 then return cmsgpack.pack(...) end return f(n - 1, {}, {}, ...) end return f(6000)",
        // Depth.
        "local function f() return f() + 1 end return f()",
        "local function f() return pcall(f) end return f()",
        "local t = {} t.t = t return t",
        "local t = {} for i = 1, 10000 do t = {t} end return t",
        "local t = {} t[1] = t return cjson.encode(t)",
        "local t = {} t[1] = t return cmsgpack.pack(t)",
        "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
        "return loadstring(string.rep('(', 1000))",
        "return loadstring('return ' .. string.rep('{', 1000))",
        "return loadstring(string.rep('return function() ', 300))",
        "local co co = coroutine.wrap(function() return co() end) return co()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "return struct.pack('!3i', 1)",
        "return struct.pack('i2147483647', 1)",
        "return struct.unpack('c0', 'x')",
        "return struct.unpack('i4', 'x', 2147483647)",
        "return struct.size('c2147483647c2147483647')",
        "return table.concat({}, 'x', 1, 2147483647)",
        "return math.random(0)",
        "return redis.sha1hex()",
        "error()",
        "error(nil)",
        "error(cjson.null)",
        "error(setmetatable({}, {__tostring = error}))",
        "return redis.error_reply(1)",
        "return setmetatable({}, {__index = error})",
        "local s = 'return redis.call([[x]]' return loadstring(s:rep(1000))",
    ] {
        let reply = bench.eval(script);
        assert!(!reply.is_empty(), "{script}");
        assert_eq!(bench.eval("return 'alive'"), "$5\r\nalive\r\n", "{script}");
    }
}

/// Scripts without end.
const ENDLESS: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    "coroutine.wrap(function() while true do end end)()",
    "local s = string.rep('a', 30000) while true do pcall(string.find, s, string.rep('.-', 50) .. 'b') end",
    "return setmetatable({}, {__index = function() while true do end end}).x",
    "table.sort({3, 2, 1}, function() while true do end end)",
    "string.gsub('aaa', 'a', function() while true do end end)",
];

#[test]
fn a_script_without_end_that_holds_keys_is_ended_and_cannot_catch_it() {
    let mut bench = bench();
    bench.host.look_us.store(1000, Relaxed);
    assert_eq!(bench.words(&["CONFIG", "SET", "busy-reply-threshold", "20"]), "+OK\r\n");
    assert_eq!(
        bench.words(&["CONFIG", "GET", "lua-time-limit"]),
        "*2\r\n$14\r\nlua-time-limit\r\n$2\r\n20\r\n"
    );
    let writes = ENDLESS.iter().map(|script| format!("redis.call('SET', 'written', 1) {script}"));
    // These ask again and again, and so hold what they ask for.
    let asks = ["while true do pcall(redis.call, 'PING') end", "while true do redis.pcall('PING') end"];
    for script in writes.chain(asks.map(str::to_owned)) {
        bench.words(&["DEL", "written"]);
        let reply = bench.eval(&script);
        assert!(reply.starts_with("-ERR Script ended: it ran for longer"), "{script}: {reply}");
        assert_eq!(bench.eval("return 1"), ":1\r\n", "{script}");
        // What it wrote before stays.
        let written = bench.words(&["EXISTS", "written"]);
        assert_eq!(written == ":1\r\n", script.contains("SET"), "{script}");
    }
    // In EXEC, too, where nothing goes on later.
    let requests: [&[&[u8]]; 4] =
        [&[b"MULTI"], &[b"EVAL", b"while true do end", b"0"], &[b"PING"], &[b"EXEC"]];
    let input: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
    let (replies, _) = bench.run(&mut Session::new(), &input, usize::MAX);
    let replies = String::from_utf8_lossy(&replies).into_owned();
    assert!(replies.contains("*2\r\n-ERR Script ended") && replies.ends_with("+PONG\r\n"), "{replies}");
}

/// Its words are kept where it goes on in later turns: it keeps its worker where there is no room for them, and no longer than
/// one that holds keys.
#[test]
fn a_script_without_end_whose_words_cannot_be_kept_is_ended() {
    let mut bench = bench();
    bench.host.look_us.store(1000, Relaxed);
    assert_eq!(bench.words(&["CONFIG", "SET", "busy-reply-threshold", "20"]), "+OK\r\n");
    let most = bench.worker.store().held_bytes_max() as i64;
    bench.worker.store().hold(most);
    let reply = bench.eval("while true do end");
    bench.worker.store().hold(-most);
    assert!(reply.starts_with("-ERR Script ended: it ran for longer"), "{reply}");
    assert_eq!(bench.eval("return 1"), ":1\r\n");
}

#[test]
fn a_script_without_end_that_holds_nothing_delays_nobody() {
    let mut bench = bench();
    bench.words(&["SET", "k", "v"]);
    for script in ENDLESS {
        let before = bench.host.clock_us.load(Relaxed);
        let mut client = Session::new();
        let eval = encode(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
        assert_eq!(bench.once(&mut client, &eval), (String::new(), Next::Yield), "{script}");
        for _ in 0..3 {
            assert_eq!(bench.once(&mut client, b""), (String::new(), Next::Yield), "{script}");
            // Its worker serves others, their scripts, too, and its key is free.
            assert_eq!(bench.words(&["SET", "k", "v", "GET"]), "$1\r\nv\r\n");
            assert_eq!(bench.eval("return redis.call('GET', 'k')"), "$1\r\nv\r\n");
            assert_eq!(bench.ask("get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
        }
        // Another that takes long gets that error, when the first has done so for longer than a script may.
        bench.host.clock_us.store(before + 6_000_000, Relaxed);
        let busy = bench.eval("while true do end");
        assert!(busy.starts_with("-BUSY Redis is busy running a script."), "{busy}");
        assert_eq!(bench.words(&["SCRIPT", "KILL"]), "+OK\r\n", "{script}");
        let (reply, _) = bench.once(&mut client, b"");
        let killed = format!(
            "-ERR Script killed by user with SCRIPT KILL... script: {}",
            larder_script::sha1_hex(script.as_bytes())
        );
        assert_eq!(reply, format!("{killed}, on @user_script:1.\r\n"), "{script}");
        assert_eq!(bench.words(&["SCRIPT", "KILL"]), "-NOTBUSY No scripts in execution right now.\r\n");
        assert_eq!(bench.once(&mut client, &encode(&[b"PING"])).0, "+PONG\r\n");
    }
}

/// Where a script has changed nothing it never holds what it has read for so long that no client could end it.
#[test]
fn a_script_that_reads_for_ever_lets_others_in_and_is_killed() {
    let mut bench = bench();
    bench.words(&["SET", "k", "v"]);
    for script in [
        "while true do redis.call('GET', KEYS[1]) end",
        "while true do redis.call('GET', 'k') end",
        "while true do redis.call('KEYS', '*') end",
        "while true do pcall(function() while true do redis.call('GET', KEYS[1]) end end) end",
    ] {
        bench.lets_others_in_until_killed(script);
    }
}

/// What takes its time in commands, and little in Lua, lets others in as well.
#[test]
fn a_script_whose_commands_take_long_lets_others_in() {
    let mut bench = bench();
    bench.words(&["SET", "k", "v"]);
    // A millisecond for each look at the clock, that is, for each command that may take long.
    bench.host.look_us.store(1000, Relaxed);
    let script = "local n = 0 while true do n = n + #redis.call('KEYS', '*') end";
    let mut client = Session::new();
    let mut input = encode(&[b"EVAL", script.as_bytes(), b"0"]);
    for _ in 0..3 {
        assert_eq!(bench.once(&mut client, &input), (String::new(), Next::Yield));
        input.clear();
        assert_eq!(bench.words(&["SET", "k", "v"]), "+OK\r\n");
    }
    assert_eq!(bench.words(&["SCRIPT", "KILL"]), "+OK\r\n");
    assert!(bench.once(&mut client, b"").0.contains("killed by user"));
    // One that ends within eight times what it has worked already sees one moment.
    let script = "local n = 0 for i = 1, 30 do n = n + #redis.call('KEYS', '*') end return n";
    assert_eq!(bench.words(&["EVAL", script, "0"]), ":30\r\n");
}

/// An error is counted where it comes from, and once: that of a command when it fails, whatever becomes of it, and that which
/// a script has made when it is replied.
#[test]
fn errors_of_scripts_are_counted_once() {
    let mut bench = bench();
    let mut counted = |script: &str| {
        bench.words(&["CONFIG", "RESETSTAT"]);
        bench.eval(script);
        let info = bench.words(&["INFO", "errorstats"]);
        let lines = info.lines().filter_map(|line| line.strip_prefix("errorstat_"));
        lines.map(|line| line.replace(":count=", " ")).collect::<Vec<_>>().join(", ")
    };
    for (script, errors) in [
        ("redis.pcall('GET') return 1", "ERR 1"),
        ("return redis.pcall('GET')", "ERR 1"),
        ("return {redis.pcall('GET'), redis.pcall('GET')}", "ERR 2"),
        ("return redis.call('GET')", "ERR 1"),
        ("pcall(redis.call, 'GET') error('mine')", "ERR 2"),
        ("return {{err = 'A x'}, {err = 'B y'}}", "A 1, B 1"),
        ("return redis.error_reply('MINE x')", "MINE 1"),
        ("error({err = 'MINE x'})", "MINE 1"),
        ("return 1", ""),
    ] {
        assert_eq!(counted(script), errors, "{script}");
    }
    for (script, reply) in [
        ("error({1, 2})", "-ERR unknown error script: "),
        ("error({err = 5})", "-5 script: "),
        ("return redis.sha1hex()", "-ERR wrong number of arguments script: "),
    ] {
        let told = bench.eval(script);
        assert!(told.starts_with(reply) && told.ends_with(", on @user_script:1.\r\n"), "{script}: {told}");
    }
}

#[test]
fn a_script_that_goes_on_in_later_turns_has_failed_as_any_other() {
    let mut bench = bench();
    bench.words(&["SET", "a", "x"]);
    bench.words(&["CONFIG", "RESETSTAT"]);
    let works = "for i = 1, 400000 do end";
    assert_eq!(bench.eval(&format!("{works} return redis.error_reply('Y')")), "-ERR Y\r\n");
    assert_eq!(bench.eval(&format!("{works} return {{{{err = 'X one'}}}}")), "*1\r\n-X one\r\n");
    assert!(bench.eval(&format!("{works} error('Z')")).starts_with("-ERR user_script:1: Z"));
    assert_eq!(bench.eval(&format!("{works} return 1")), ":1\r\n");
    let told = bench.words(&["INFO", "commandstats"]);
    let line = told.lines().find(|line| line.starts_with("cmdstat_eval:calls=4,"));
    assert!(line.is_some_and(|line| line.ends_with(",rejected_calls=0,failed_calls=3")), "{told}");
}

#[test]
fn a_script_that_fails_in_exec_has_failed_and_exec_has_not() {
    let mut bench = bench();
    let input = [
        command(&["MULTI"]),
        command(&["EVAL", "return redis.error_reply('Y')", "0"]),
        command(&["EVAL", "error('Z')", "0"]),
        command(&["EXEC"]),
    ];
    let (replies, _) = bench.run(&mut Session::new(), &input.concat(), 4096);
    let replies = String::from_utf8(replies).expect("text");
    assert!(replies.contains("*2\r\n-ERR Y\r\n-ERR user_script:1: Z"), "{replies}");
    let told = bench.words(&["INFO", "commandstats"]);
    for (command, calls, failed) in [("eval", 2, 2), ("exec", 1, 0)] {
        let start = format!("cmdstat_{command}:calls={calls},");
        let line = told.lines().find(|line| line.starts_with(&start));
        assert!(line.is_some_and(|line| line.ends_with(&format!(",failed_calls={failed}"))), "{told}");
    }
}

#[test]
fn a_script_that_replies_an_error_has_failed_and_what_it_may_not_run_was_refused() {
    let mut bench = bench();
    bench.words(&["SET", "a", "x"]);
    bench.words(&["CONFIG", "RESETSTAT"]);
    for (script, reply) in [
        ("return redis.pcall('incr', 'a')", "-ERR value is not an integer or out of range\r\n"),
        ("return {1, {err='X one'}, {err='X two'}}", "*3\r\n:1\r\n-X one\r\n-X two\r\n"),
        ("return redis.error_reply('Y')", "-ERR Y\r\n"),
        ("redis.pcall('incr', 'a') return 1", ":1\r\n"),
        ("redis.pcall('set', 'a') redis.pcall('subscribe', 'c') return 1", ":1\r\n"),
    ] {
        assert_eq!(bench.eval(script), reply, "{script}");
    }
    let told = bench.words(&["INFO", "commandstats"]);
    for (command, calls, rejected, failed) in
        [("eval", 5, 0, 3), ("incr", 2, 0, 2), ("set", 0, 1, 0), ("subscribe", 0, 1, 0)]
    {
        let start = format!("cmdstat_{command}:calls={calls},");
        let line = told.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{told}"));
        let end = format!(",rejected_calls={rejected},failed_calls={failed}");
        assert!(line.ends_with(&end), "{line}");
    }
}

#[test]
fn a_script_goes_with_its_connection_if_it_holds_nothing() {
    let mut bench = bench();
    bench.eval("return 1");
    let used = |bench: &mut Bench| bench.worker.enter(crate::START).store().heap_bytes();
    let before = used(&mut bench);
    let mut client = Session::new();
    let input = encode(&[b"EVAL", b"local t = {} for i = 1, 10000 do t[i] = {} end while true do end", b"0"]);
    bench.once(&mut client, &input);
    // How far it comes in a turn is not said.
    for _ in 0..10_000 {
        if used(&mut bench) > before + (256 << 10) {
            break;
        }
        bench.once(&mut client, b"");
    }
    assert!(used(&mut bench) > before + (256 << 10));
    drop(client);
    // Its state has gone with it; the next script has a new one.
    assert!(used(&mut bench) < before, "{}", used(&mut bench));
    assert_eq!(bench.words(&["SCRIPT", "KILL"]), "-NOTBUSY No scripts in execution right now.\r\n");
    assert_eq!(bench.eval("return 1"), ":1\r\n");
}

/// A client may have closed its sending side, and gets a reply that comes in time; behind that a script whose client is gone is
/// ended.
#[test]
fn a_script_that_goes_on_for_longer_than_its_time_ends_with_its_client() {
    for threshold in ["5000", "0"] {
        let mut bench = bench();
        bench.words(&["CONFIG", "SET", "busy-reply-threshold", threshold]);
        let mut client = Session::new();
        let eval = encode(&[b"EVAL", b"while true do end", b"0"]);
        assert_eq!(bench.once(&mut client, &eval), (String::new(), Next::Yield));
        assert_eq!(bench.once(&mut client, b""), (String::new(), Next::Yield));
        bench.host.clock_us.fetch_add(5_000_000, Relaxed);
        // It goes on at once, if its client is still there. If not, the connection is closed: nothing must come to its end.
        assert_eq!(bench.once(&mut client, b""), (String::new(), Next::Await(Some(0))));
        assert_eq!(bench.once(&mut client, b""), (String::new(), Next::Await(Some(0))));
        assert!(!client.must_end());
        assert_eq!(bench.words(&["SCRIPT", "KILL"]), "+OK\r\n");
        assert!(bench.once(&mut client, b"").0.contains("killed by user"));
    }
}

/// What is long work in few instructions lets others in as well.
#[test]
fn a_script_whose_functions_take_long_lets_others_in() {
    // Each takes far longer than three turns on the fastest machine: it is killed behind them.
    let long = "local s = string.rep('a', 100000) for i = 1, 1e7 do ";
    let table = "local t = {} for i = 1, 9000 do t[i] = i end for i = 1, 1e7 do ";
    let mut keep_others = Vec::new();
    // Each table has the one before it three times.
    let fan = "local t = {} for i = 1, 14 do t = {t, t, t} end ";
    for script in [
        format!("{long} s:upper() end"),
        format!("{long} s:lower() end"),
        format!("{long} s:reverse() end"),
        format!("{long} string.rep('ab', 50000) end"),
        format!("{long} local n = #s:sub(1 + i % 1000) end"),
        format!("{long} string.format('%q', s) end"),
        format!("{long} redis.sha1hex(s) end"),
        format!("{long} cjson.encode(s) end"),
        format!("{long} cmsgpack.pack(s, s, s) end"),
        format!("{table} table.concat(t) end"),
        format!("{table} table.insert(t, 1, i) table.remove(t, 1) end"),
        format!("{table} table.maxn(t) end"),
        format!("{table} table.sort(t) end"),
        format!("{fan} pcall(cjson.encode, t)"),
        format!("{fan} pcall(cmsgpack.pack, t)"),
        "table.insert({}, -1000000000, 'x')".to_owned(),
        "local t = {} for i = 1, 9000 do t[i] = i end for i = 1, 9000 do t[i] = nil end while true do next(t) end"
            .to_owned(),
        "string.find(string.rep('a', 50000), '[' .. string.rep('b', 50000) .. ']')".to_owned(),
        "load(function() return ' ' end)".to_owned(),
    ] {
        let mut bench = bench();
        // These are few instructions; where the machine is slow, turns are the more.
        bench.host.script_pace = Some(Pace::Machine);
        let mut client = Session::new();
        let input = encode(&[b"EVAL", script.as_bytes(), b"0"]);
        let steps = [&input[..], b"", b""].map(|input| bench.once(&mut client, input).1);
        if steps != [Next::Yield; 3] {
            keep_others.push(script);
            continue;
        }
        assert_eq!(bench.words(&["SCRIPT", "KILL"]), "+OK\r\n", "{script}");
        let (reply, _) = bench.once(&mut client, b"");
        assert!(reply.contains("killed by user with SCRIPT KILL"), "{script}: {reply}");
    }
    assert!(keep_others.is_empty(), "{keep_others:#?}");
}

/// Turns of a script until it has replied, where each look at it is a turn; and its reply.
fn turns(bench: &mut Bench, script: &str) -> (usize, String) {
    bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
    let mut client = Session::new();
    let mut input = encode(&[b"EVAL", script.as_bytes(), b"0"]);
    for turn in 0..1_000_000 {
        let (reply, _) = bench.once(&mut client, &input);
        if !reply.is_empty() {
            return (turn, reply);
        }
        input.clear();
    }
    panic!("{script}: no end");
}

/// What is long work in one call is looked at while it lasts, as Lua's own instructions are, and not only behind it.
#[test]
fn long_work_of_one_call_is_looked_at_meanwhile() {
    let empty = "local m, t = {}, {} for i = 1, 400 do t[i] = m end ";
    for script in [
        "string.gsub(string.rep('a', 2000000), 'a', 'b')",
        "struct.size(string.rep('x', 2000000))",
        "struct.pack(string.rep('x', 2000000))",
        "struct.unpack(string.rep(' ', 2000000), '')",
        "cjson.decode(string.rep(' ', 2000000) .. '1')",
        "cjson.decode('\"' .. string.rep('a', 2000000) .. '\"')",
        "cjson.encode(string.rep('a', 2000000))",
        "redis.sha1hex(string.rep('a', 2000000))",
        // Each table may have any number of places that are empty.
        &format!("{empty} cjson.encode(t)"),
        &format!("{empty} cmsgpack.pack(t)"),
        &format!("{empty} return t"),
        &format!("{empty} return {{map = t}}"),
        &format!("{empty} for i = 1, 400 do t[i] = {{set = m}} end return t"),
        "table.foreach(cjson.decode('[' .. string.rep('1,', 20000) .. '1]'), getmetatable)",
        "table.foreachi(cjson.decode('[' .. string.rep('1,', 20000) .. '1]'), getmetatable)",
    ] {
        // A state has room for some copies of a text.
        let mut bench = Bench::of(Settings::default(), 512 << 20);
        let (turns, reply) = turns(&mut bench, script);
        assert!(!reply.starts_with('-'), "{script}: {reply}");
        assert!(turns >= 25, "{script}: {turns}");
    }
}

#[test]
fn a_collection_is_looked_at_the_more_often_the_more_there_is() {
    let mut bench = bench();
    let (few, _) = turns(&mut bench, "return collectgarbage()");
    let made = "local t = cjson.decode('[' .. string.rep('{},', 20000) .. '1]') ";
    let (making, _) = turns(&mut bench, made);
    let (many, reply) = turns(&mut bench, &format!("{made} return collectgarbage('collect')"));
    assert_eq!(reply, ":0\r\n");
    assert!(few > 10 && many - making > 2 * few, "{few}, {making}, {many}");
}

#[test]
fn collections_do_what_lua_says_of_them() {
    let mut bench = bench();
    for (script, reply) in [
        ("return collectgarbage()", ":0\r\n"),
        ("local n = collectgarbage('count') return n > 100 and n < 10000", ":1\r\n"),
        ("return gcinfo() > 100", ":1\r\n"),
        (
            "string.rep('a', 2000000) local before = collectgarbage('count') collectgarbage() \
             return before - collectgarbage('count') > 1900",
            ":1\r\n",
        ),
        // Wherever Lua is at when it is called, one call is enough.
        (
            "local w = setmetatable({}, {__mode = 'v'}) local function fill() for i = 1, 9 do w[i] = {} end end \
             local function clear(_, _, _, _, _, _, _, _) end \
             local left = 0 for i = 1, 60 do \
               fill() clear() for j = 1, 100 * i do local _ = {} end \
               collectgarbage() left = left + #w \
             end return left",
            ":0\r\n",
        ),
        (
            "local left = 0 for i = 1, 20 do \
               local w, t = setmetatable({}, {__mode = 'k'}), {} w[t] = 1 w[{}] = 2 collectgarbage('collect') \
               for _ in pairs(w) do left = left + 1 end \
             end return left",
            ":20\r\n",
        ),
        ("local n = 0 repeat n = n + 1 until collectgarbage('step') return n > 10", ":1\r\n"),
        ("return collectgarbage('step', 1000000)", ":1\r\n"),
        ("return coroutine.wrap(function() return collectgarbage() end)()", ":0\r\n"),
        ("return collectgarbage('stop') + collectgarbage('setpause', 100)", ":200\r\n"),
    ] {
        assert_eq!(bench.eval(script), reply, "{script}");
    }
    // What was used up to the last byte is there again.
    let fills = "local t, n, size = {}, 1, 4096 for i = 1, 20000 do t[i] = false end \
        local function fill() while true do t[n] = string.rep('x', size) .. n n = n + 1 end end \
        while size >= 1 do pcall(fill) size = size / 2 end \
        t = nil collectgarbage() return #string.rep('x', 1000000)";
    assert_eq!(bench.eval(fills), ":1000000\r\n");
}

/// A few tables that lie in one another: a reply of 2^60 of them.
const FANNED: &str = "local t = {} for i = 1, 60 do t = {t, t} end return t";

/// A reply is written in the time of its script, and holds nothing.
#[test]
fn a_reply_without_end_lets_others_in_and_is_killed() {
    let mut bench = bench();
    bench.words(&["SET", "k", "v"]);
    let fanned = [
        FANNED.to_owned(),
        FANNED.replace("{t, t} end", "{map = {[t] = t}} end"),
        FANNED.replace("{t, t} end", "{set = {[t] = 1, [{t}] = 1}} end"),
    ];
    for script in
        fanned.iter().flat_map(|fanned| [fanned.clone(), format!("redis.call('GET', 'k') {fanned}")])
    {
        bench.lets_others_in_until_killed(&script);
    }
}

/// Also where the script has written, which keeps all that it did; its time has an end.
#[test]
fn a_reply_without_end_of_a_script_that_wrote_lets_others_in_and_ends() {
    let mut bench = bench();
    let script = format!("redis.call('SET', KEYS[1], 'w') {FANNED}");
    let mut client = Session::new();
    let mut input = encode(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
    for n in 0..3 {
        assert_eq!(bench.once(&mut client, &input), (String::new(), Next::Yield));
        input.clear();
        let before = if n == 0 { "w" } else { "v" };
        assert_eq!(bench.words(&["SET", "k", "v", "GET"]), format!("$1\r\n{before}\r\n"));
    }
    assert!(bench.words(&["SCRIPT", "KILL"]).starts_with("-UNKILLABLE"));
    bench.host.clock_us.fetch_add(6_000_000, Relaxed);
    let (reply, _) = bench.once(&mut client, b"");
    assert!(reply.starts_with("-ERR Script ended: it ran for longer"), "{reply}");
    assert_eq!(bench.words(&["GET", "k"]), "$1\r\nv\r\n");
    // In EXEC nothing goes on later.
    bench.host.look_us.store(1000, Relaxed);
    bench.words(&["CONFIG", "SET", "busy-reply-threshold", "20"]);
    let requests: [&[&[u8]]; 4] = [&[b"MULTI"], &[b"EVAL", FANNED.as_bytes(), b"0"], &[b"PING"], &[b"EXEC"]];
    let input: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
    let (replies, _) = bench.run(&mut Session::new(), &input, usize::MAX);
    let replies = String::from_utf8_lossy(&replies).into_owned();
    assert!(replies.contains("*2\r\n-ERR Script ended") && replies.ends_with("+PONG\r\n"), "{replies}");
}

/// What is between is written in several turns, and is whole.
#[test]
fn a_long_reply_of_several_turns_is_one_reply() {
    let mut bench = bench();
    let script = "local t = {} for i = 1, 5000 do t[i] = {i, {err = 'MY ' .. i}, 'x'} end return t";
    let (turns, reply) = turns(&mut bench, script);
    assert!(turns > 100, "{turns}");
    let expected: String = (1..=5000).map(|n| format!("*3\r\n:{n}\r\n-MY {n}\r\n$1\r\nx\r\n")).collect();
    assert!(reply == format!("*5000\r\n{expected}"), "{}", reply.len());
    // Others of the worker came between, and have their own.
    assert_eq!(bench.eval("return {1, {2}}"), "*2\r\n:1\r\n*1\r\n:2\r\n");
    assert_eq!(bench.words(&["INFO", "errorstats"]).matches("errorstat_MY:count=1024").count(), 1);
}

#[test]
fn a_reply_has_no_more_bytes_than_connections_may_hold() {
    let mut bench = bench();
    let most = bench.worker.store().held_bytes_max() as usize;
    // A head of its own, and those of its texts.
    let shared = |texts: usize| {
        format!("local s, t = string.rep('x', 99991), {{}} for i = 1, {texts} do t[i] = s end return t")
    };
    let fits = most / 100_000 - 20;
    assert_eq!(bench.eval(&shared(fits)).len(), format!("*{fits}\r\n").len() + fits * (99_991 + 10));
    let refused = bench.eval(&shared(most / 100_000 + 1));
    assert_eq!(refused, "-OOM connections hold as much memory as they may\r\n");
    assert_eq!(bench.eval("return {1}"), "*1\r\n:1\r\n");
}

/// What one worker's script replies is held with what others hold, and given back however the script ends.
#[test]
fn a_reply_has_the_room_that_others_have_left() {
    let mut bench = bench();
    let script = "local s, t = string.rep('x', 99990), {} for i = 1, 10 do t[i] = s end return t";
    let held = |bench: &Bench| bench.worker.store().held_bytes();
    let whole = "*10\r\n".len() + 10 * 100_000;
    assert_eq!(bench.eval(script).len(), whole);
    let before = held(&bench);
    let taken = bench.worker.store().held_bytes_max() - before - 500_000;
    bench.worker.store().hold(taken as i64);
    assert_eq!(bench.eval(script), "-OOM connections hold as much memory as they may\r\n");
    assert!(bench.worker.store().take_refusal(), "those who stand are to let go");
    assert_eq!(held(&bench), before + taken);
    bench.worker.store().hold(-(taken as i64));
    assert_eq!(bench.eval(script).len(), whole);
    assert_eq!(held(&bench), before);
}

/// Each word of a command may be the same long text.
#[test]
fn words_of_a_command_have_no_more_bytes_than_a_state() {
    let mut bench = bench();
    let script = "local s, t = string.rep('x', 100000), {} for i = 1, 7000 do t[i] = s end ";
    for call in ["redis.call('ECHO', unpack(t))", "redis.acl_check_cmd(unpack(t))"] {
        let told = bench.error(&format!("{script} return {call}"));
        assert_eq!(told, "ERR arguments have too many bytes together", "{call}");
    }
    assert_eq!(bench.eval("return #redis.call('ECHO', string.rep('x', 500000))"), ":500000\r\n");
}

#[test]
fn flags_that_are_said_again_are_one() {
    let mut bench = bench();
    let code = "#!lua name=mine\nlocal flags = {} for i = 1, 1000 do flags[i] = 'no-writes' end \
        flags[1001] = 'allow-oom' \
        redis.register_function{function_name = 'f', callback = function() return 1 end, flags = flags}";
    bench.words(&["FUNCTION", "LOAD", code]);
    let listed = bench.words(&["FUNCTION", "LIST"]);
    assert_eq!(
        (listed.matches("no-writes").count(), listed.matches("allow-oom").count()),
        (1, 1),
        "{listed}"
    );
}

#[test]
fn tables_are_sorted_filled_and_emptied_however_long_they_are() {
    let mut bench = bench();
    let filled = "local t = {} for i = 1, 6000 do t[i] = (i * 7) % 6007 end ";
    for (script, value) in [
        ("table.sort(t) for i = 2, #t do if t[i - 1] > t[i] then return i end end return #t", ":6000\r\n"),
        (
            "table.sort(t, function(a, b) return a > b end) for i = 2, #t do if t[i - 1] < t[i] then return i end end \
             return #t",
            ":6000\r\n",
        ),
        (
            "table.insert(t, 1, 'x') return {#t, t[1], t[2], t[6001]}",
            "*4\r\n:6001\r\n$1\r\nx\r\n:7\r\n:5958\r\n",
        ),
        ("return {table.remove(t, 1), #t, t[1]}", "*3\r\n:7\r\n:5999\r\n:14\r\n"),
        ("return {pcall(table.sort, t, function(a, b) error('no', 0) end)}", "*1\r\n$-1\r\n"),
    ] {
        let reply = bench.eval(&format!("{filled}{script}"));
        if script.contains("pcall") {
            assert!(reply.contains("no"), "{reply}");
        } else {
            assert_eq!(reply, value, "{script}");
        }
    }
    let script =
        "local t = {5, 4} table.insert(t, -2, 9) return {t[-2], t[-1] or 'n', t[1] or 'n', t[2], t[3]}";
    assert_eq!(bench.eval(script), "*5\r\n:9\r\n$1\r\nn\r\n$1\r\nn\r\n:5\r\n:4\r\n");
    let script = "local t = {} for i = 1, 600 do t[i] = i end t[300] = 'x' table.sort(t)";
    assert_eq!(bench.error(script), "ERR attempt to compare string with number");
    for elements in [511, 512, 513, 514, 6000] {
        for less in ["true", "a ~= nil"] {
            let script = format!(
                "local t = {{}} for i = 1, {elements} do t[i] = i % 7 end \
                 table.sort(t, function(a, b) return {less} end)"
            );
            let told = "ERR user_script:1: invalid order function for sorting";
            assert_eq!(bench.error(&script), told, "{elements}, {less}");
        }
    }
}

#[test]
fn cjson_works_as_a_script_has_set_it_for_its_own_time() {
    let mut bench = bench();
    for (script, reply) in [
        ("cjson.encode_sparse_array(true) return cjson.encode({[1] = 1, [100] = 2})", r#"{"1":1,"100":2}"#),
        ("cjson.encode_invalid_numbers(true) return cjson.encode({1 / 0, -1 / 0})", "[inf,-inf]"),
        ("cjson.encode_invalid_numbers('null') return cjson.encode({1 / 0})", "[null]"),
        (
            "cjson.encode_number_precision(3) return cjson.encode({math.pi, 12345.678, 0.00012345, 100})",
            "[3.14,1.23e+04,0.000123,100]",
        ),
        ("cjson.encode_keep_buffer(false) return cjson.encode({1})", "[1]"),
        ("return cjson.new().encode({1})", "[1]"),
        ("local j = cjson.new() j.encode_max_depth(1) return cjson.encode({{1}})", "[[1]]"),
    ] {
        assert_eq!(bench.eval(script), format!("${}\r\n{reply}\r\n", reply.len()), "{script}");
    }
    assert_eq!(bench.eval("return {cjson.encode_sparse_array()}"), "*3\r\n$-1\r\n:2\r\n:10\r\n");
    let usual =
        "return {cjson.encode_max_depth(), cjson.decode_max_depth(), cjson.encode_number_precision()}";
    assert_eq!(bench.eval(usual), "*3\r\n:1000\r\n:1000\r\n:14\r\n");
    for (script, told) in [
        ("cjson.encode({[1] = 1, [100] = 2})", "Cannot serialise table: excessively sparse array"),
        ("cjson.encode_max_depth(2) cjson.encode({{{}}})", "Cannot serialise, excessive nesting (3)"),
        (
            "cjson.decode_max_depth(2) cjson.decode('[[[]]]')",
            "Found too many nested data structures (3) at character 3",
        ),
        (
            "cjson.decode_invalid_numbers(false) cjson.decode('[0x10]')",
            "Expected value but found invalid number at character 2",
        ),
        (
            "cjson.decode_invalid_numbers(false) cjson.decode('[nan]')",
            "Expected value but found invalid token at character 2",
        ),
        (
            "cjson.encode_max_depth(0)",
            "bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)",
        ),
        ("cjson.encode_sparse_array('x')", "bad argument #1 to 'encode_sparse_array' (invalid option 'x')"),
        (
            "cjson.encode_sparse_array(true, 1, 2, 3)",
            "bad argument #4 to 'encode_sparse_array' (found too many arguments)",
        ),
    ] {
        assert_eq!(bench.error(script), format!("ERR user_script:1: {told}"), "{script}");
    }
}

#[test]
fn errors_of_functions_say_where_they_were_called() {
    let mut bench = bench();
    for (script, told) in [
        ("pairs(nil)", "bad argument #1 to 'pairs' (table expected, got nil)"),
        ("next()", "bad argument #1 to 'next' (table expected, got no value)"),
        ("unpack(nil)", "bad argument #1 to 'unpack' (table expected, got nil)"),
        ("ipairs()", "bad argument #1 to 'ipairs' (table expected, got no value)"),
        ("table.insert(nil, 1)", "bad argument #1 to 'insert' (table expected, got nil)"),
        ("table.insert({}, 1, 2, 3)", "wrong number of arguments to 'insert'"),
        ("table.insert({})", "wrong number of arguments to 'insert'"),
        ("table.insert({}, 'x', 1)", "bad argument #2 to 'insert' (number expected, got string)"),
        ("table.remove(nil)", "bad argument #1 to 'remove' (table expected, got nil)"),
        ("table.concat({{}})", "invalid value (table) at index 1 in table for 'concat'"),
        ("table.concat(1)", "bad argument #1 to 'concat' (table expected, got number)"),
        ("table.sort({1, 2}, 1)", "bad argument #2 to 'sort' (function expected, got number)"),
        ("string.format('%d', 'x')", "bad argument #2 to 'format' (number expected, got string)"),
        ("string.format('%y', 1)", "invalid option '%y' to 'format'"),
        ("string.rep('x')", "bad argument #2 to 'rep' (number expected, got no value)"),
        ("string.sub('x', 'y')", "bad argument #2 to 'sub' (number expected, got string)"),
        ("string.upper({})", "bad argument #1 to 'upper' (string expected, got table)"),
        ("load(1)", "bad argument #1 to 'load' (function expected, got number)"),
    ] {
        assert_eq!(bench.error(script), format!("ERR user_script:1: {told}"), "{script}");
    }
}

#[test]
fn texts_of_scripts_have_a_bound() {
    let mut bench = bench();
    let text = format!("return 1 --{}", "x".repeat((512 << 10) - 11));
    assert_eq!(bench.eval(&text), ":1\r\n");
    let text = format!("{text}x");
    let told = "-ERR scripts have 524288 bytes at most\r\n";
    assert_eq!(bench.eval(&text), told);
    assert_eq!(bench.words(&["SCRIPT", "LOAD", &text]), told);
    assert_eq!(bench.words(&["FUNCTION", "LOAD", &text]), told);
    assert_eq!(
        bench.error("return #loadstring(string.rep(' ', 524289))"),
        "ERR user_script:1: attempt to get length of a nil value"
    );
}

/// Half a MiB takes some tens of milliseconds, and seconds where functions lie deep in one another.
#[test]
fn a_script_goes_on_in_later_turns_while_it_compiles_a_long_chunk() {
    let mut bench = bench();
    // Each look at a script is a turn.
    bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
    let reads = "local read = false return load(function() if not read then read = true return s end end)()";
    for compiles in ["return loadstring(s)()", reads] {
        let script = format!("local s = 'return 42 --' .. string.rep('x', 65536) {compiles}");
        let mut client = Session::new();
        let mut input = encode(&[b"EVAL", script.as_bytes(), b"0"]);
        let mut turns = 0;
        loop {
            let (reply, next) = bench.once(&mut client, &input);
            if !reply.is_empty() {
                assert_eq!(reply, ":42\r\n", "{compiles}");
                break;
            }
            assert_eq!(next, Next::Yield);
            input.clear();
            turns += 1;
            assert_eq!(bench.words(&["SET", "k", "v"]), "+OK\r\n");
        }
        // One for each piece of 256 bytes, and some where the script itself is looked at.
        assert!((257..400).contains(&turns), "{compiles}: {turns}");
    }
}

#[test]
fn what_is_wrong_with_a_long_chunk_is_told_as_of_a_short_one() {
    let mut bench = bench();
    let told = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    for (script, text) in [
        ("string.rep('\\n', 9000) .. 'x x'", "user_script:9001: '=' expected near 'x'"),
        ("'\\27' .. string.rep('x', 9000)", "attempt to load chunk with wrong mode"),
        ("string.rep(' ', 524289)", "chunk is too long"),
    ] {
        let script = format!("return select(2, loadstring({script}))");
        assert_eq!(bench.eval(&script), told(text), "{script}");
    }
    for (levels, is_compiled) in [(150, true), (300, false)] {
        let script = format!(
            "local s = string.rep('do ', {levels}) .. string.rep(' ', 9000) .. string.rep('end ', {levels}) \
             return loadstring(s) and 1 or 0"
        );
        assert_eq!(bench.eval(&script), format!(":{}\r\n", u8::from(is_compiled)), "{levels}");
    }
    // One that ends meanwhile does not catch it.
    assert_eq!(bench.words(&["SET", "k", "v"]), "+OK\r\n");
    let text = "while true do pcall(loadstring, 'return 1 --' .. string.rep('x', 9000)) end";
    bench.lets_others_in_until_killed(text);
}

#[test]
fn functions_are_found_in_either_case_and_libraries_are_not() {
    let mut bench = bench();
    let load = |name: &str, function: &str| {
        format!("#!lua name={name}\nredis.register_function('{function}', function() return 1 end)")
    };
    assert_eq!(bench.words(&["FUNCTION", "LOAD", &load("Lib", "g")]), "$3\r\nLib\r\n");
    assert_eq!(bench.words(&["FCALL", "G", "0"]), ":1\r\n");
    assert!(bench.words(&["FUNCTION", "LIST", "LIBRARYNAME", "lIB"]).contains("$3\r\nLib"));
    assert_eq!(bench.words(&["FUNCTION", "DELETE", "lib"]), "-ERR Library not found\r\n");
    assert_eq!(bench.words(&["FUNCTION", "LOAD", &load("other", "G")]), "-ERR Function G already exists\r\n");
    assert_eq!(bench.words(&["FCALL", "none", "x"]), "-ERR Function not found\r\n");
    assert!(bench.words(&["EVALSHA", "none", "9"]).starts_with("-NOSCRIPT "));
    let info = bench.words(&["COMMAND", "INFO", "fcall_ro"]);
    assert!(info.contains("+readonly\r\n") && info.contains(":0\r\n:0\r\n:0\r\n"), "{info}");
    assert!(bench.words(&["COMMAND", "INFO", "function|load"]).contains("+denyoom\r\n"));
}

/// Where there is room for no other call a script cannot be looked at.
#[test]
fn a_script_that_stays_as_deep_as_calls_may_be_is_ended() {
    let mut bench = bench();
    bench.host.look_us.store(1000, Relaxed);
    for script in [
        "local function f() pcall(f) return f() end f()",
        "redis.call('SET', 'a', 1) local function f() pcall(f) redis.pcall('PING') return f() end f()",
    ] {
        let reply = bench.eval(script);
        assert!(reply.starts_with("-ERR Script ended: "), "{script}: {reply}");
        assert_eq!(bench.eval("return 1"), ":1\r\n");
    }
}

/// Where calls are as deep as may be nothing is made for a script, of which what an ended one has left might be collected.
#[test]
fn a_script_as_deep_as_calls_may_be_is_told_so_where_it_asks() {
    let mut bench = bench();
    bench.host.look_us.store(1000, Relaxed);
    let deepest = bench.eval("local n = 0 local function f() n = n + 1 pcall(f) end f() return n");
    let deep = "local n, asked, told = 0, 0, {} \
        local function ask() \
            for i = 1, 2000 do redis.call('ECHO', string.rep(n, 1000)) asked = asked + 1 end \
        end \
        local function f() n = n + 1 \
            if n == DEEPEST then ask() end \
            told[n] = select(2, pcall(f)) \
        end \
        f() return {asked, told[DEEPEST - 1]}"
        .replace("DEEPEST", deepest.trim_matches([':', '\r', '\n']));
    for _ in 0..4 {
        let ended = bench.eval("local function f() pcall(f) return f() end f()");
        assert!(ended.starts_with("-ERR Script ended: "), "{ended}");
        assert_eq!(bench.eval(&deep), "*2\r\n:0\r\n$14\r\nstack overflow\r\n");
    }
}

/// Deep in a handler of errors, and with no more room than a few bytes, an error about errors has none for its text.
#[test]
fn a_script_without_room_that_asks_while_errors_are_handled_ends_no_other_stack() {
    let mut bench = bench();
    let store = std::sync::Arc::clone(bench.worker.store());
    let limit = (store.memory_bytes() / 8 / store.workers_max() as u64).clamp(1 << 20, 64 << 20);
    let script = "local slack, limit, raised, long = tonumber(ARGV[1]), tonumber(ARGV[2]), {}, string.rep('x', 20000) \
        local count, sub = collectgarbage, string.sub \
        local function ask() local _ = redis.call('ECHO', 'x') end \
        local hold, at, n = {}, 0, 0 \
        for i = 1, limit / 4000 + 1000 do hold[i] = 0 end \
        local function room() return limit - count('count') * 1024 - slack - 25 end \
        while room() > 120000 do at = at + 1 hold[at] = sub(long, 1, 4000) .. at end \
        local function handler() \
            n = n + 1 \
            if n == 205 then \
                while room() > 8000 do at = at + 1 hold[at] = sub(long, 1, 4000 + at % 4000) end \
                at = at + 1 \
                if room() > 4000 then hold[at] = sub(long, 1, 3500) end \
                at = at + 1 \
                local left = room() \
                if left > 0 then hold[at] = sub(long, 1, left) end \
            end \
            if n == 220 then ask() end \
            error(raised, 0) \
        end \
        xpcall(function() error(raised, 0) end, handler) \
        hold = nil return n";
    for slack in (20..60).step_by(2) {
        let reply = bench.words(&["EVAL", script, "0", &slack.to_string(), &limit.to_string()]);
        assert!(reply.starts_with([':', '-']), "{slack}: {reply}");
        assert_eq!(bench.eval("return 1"), ":1\r\n");
    }
}

/// What ends a script as deep in calls as may be has its own text.
#[test]
fn an_error_as_deep_as_calls_may_be_says_what_it_is() {
    let mut bench = bench();
    let script = "local n, meta, deepest = 0, {}, tonumber(ARGV[1]) \
        local t = setmetatable({}, meta) \
        meta.__index = function(_, k) n = k if k == deepest then error({err = 'MY text'}) end return t[k + 1] end \
        return t[1]";
    let said =
        |bench: &mut crate::Bench, deepest: u32| bench.words(&["EVAL", script, "0", &deepest.to_string()]);
    let reached =
        (1..300).find(|&deepest| !said(&mut bench, deepest).starts_with("-MY text")).expect("a bound");
    let overflows = said(&mut bench, 1_000);
    assert!(overflows.contains("stack overflow"), "{overflows}");
    let counted = "local n, meta = 0, {} \
        local t = setmetatable({}, meta) \
        meta.__index = function(_, k) n = k return t[k + 1] end \
        pcall(function() return t[1] end) return n";
    let depth: u32 = bench.eval(counted).trim_matches([':', '\r', '\n']).parse().expect("a number");
    assert_eq!(reached, depth + 1, "as deep as there is room for the call of what explains it");
}

/// Lua takes places for numbers of 32 bits.
#[test]
fn places_that_no_number_of_32_bits_has_are_no_others() {
    let mut bench = bench();
    for (script, expected) in [
        ("return #{unpack({}, 2147483648, 2147483647)}", ":0\r\n"),
        ("return #{unpack({}, 1e300, 1e300)}", "-ERR user_script:1: too many results to unpack"),
        ("return #{unpack({}, 0/0, 1)}", "-ERR user_script:1: too many results to unpack"),
        ("return #{unpack({}, -2147483648, -2147483648)}", "-ERR user_script:1: too many results to unpack"),
        ("local t = {} table.insert(t, 2147483648, 'x') return t[2147483648]", "$1\r\nx\r\n"),
        ("local t = {1, 2, 3} table.insert(t, 7.5, 'x') return {t[7], #t}", "*2\r\n$1\r\nx\r\n:3\r\n"),
        ("local t = {1} return {select('#', table.remove(t, 4294967297)), #t}", "*2\r\n:0\r\n:1\r\n"),
    ] {
        let reply = bench.eval(script);
        assert!(reply.starts_with(expected), "{script}: {reply}");
    }
}

/// A function goes with its library, however its name is written.
#[test]
fn a_function_whose_name_has_capitals_goes_with_its_library() {
    let mut bench = bench();
    let code = "#!lua name=l\nredis.register_function('MyF', function() return 1 end)";
    for _ in 0..2 {
        assert_eq!(bench.words(&["FUNCTION", "LOAD", code]), "$1\r\nl\r\n");
        assert_eq!(bench.words(&["FCALL", "myf", "0"]), ":1\r\n");
        assert_eq!(bench.words(&["FUNCTION", "DELETE", "l"]), "+OK\r\n");
        assert_eq!(bench.words(&["FCALL", "MyF", "0"]), "-ERR Function not found\r\n");
    }
}

/// However many functions libraries have, there are places for what scripts say.
#[test]
fn functions_of_many_libraries_leave_room_for_the_values_of_scripts() {
    let mut bench = crate::Bench::of(larder_commands::Settings::default(), 1 << 30);
    for library in 0..70 {
        let code = format!(
            "#!lua name=l{library:02}\nfor i = 1, 80 do \
                redis.register_function('f{library}_' .. i, function() return i end) end"
        );
        assert_eq!(bench.words(&["FUNCTION", "LOAD", &code]), format!("$3\r\nl{library:02}\r\n"));
        assert_eq!(bench.words(&["FCALL", &format!("f{library}_80"), "0"]), ":80\r\n");
    }
    let many = "local t = {} for i = 1, 7400 do t[i] = 'x' end return redis.call('DEL', unpack(t))";
    assert_eq!(bench.eval(many), ":0\r\n");
    assert_eq!(bench.words(&["FCALL", "f0_1", "0"]), ":1\r\n");
}

/// A script that reads, works for long and reads again sees one moment all the same.
#[test]
fn a_script_that_was_left_and_asks_again_is_begun_anew() {
    let mut bench = bench();
    bench.words(&["SET", "a", "1"]);
    bench.words(&["SET", "b", "1"]);
    let script = "local a = redis.call('GET', KEYS[1]) \
        for i = 1, 4000000 do end \
        return {a, redis.call('GET', KEYS[2])}";
    let mut client = Session::new();
    let (reply, next) = bench.once(&mut client, &encode(&[b"EVAL", script.as_bytes(), b"2", b"a", b"b"]));
    assert_eq!((reply.as_str(), next), ("", Next::Yield));
    bench.words(&["MSET", "a", "2", "b", "2"]);
    let (replies, _) = bench.run(&mut client, &encode(&[b"PING"]), usize::MAX);
    assert_eq!(String::from_utf8_lossy(&replies), "*2\r\n$1\r\n2\r\n$1\r\n2\r\n+PONG\r\n");
    // One that asks for the first time when it was left holds its keys from there on.
    let late = "for i = 1, 4000000 do end redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[1])";
    assert_eq!(bench.words(&["EVAL", late, "1", "a"]), ":4\r\n");
}

/// A function that keeps something in variables of its library is not begun anew, which would count a call twice: it has the
/// store to itself from its first command on, until its keys were enough in many runs.
#[test]
fn a_function_that_counts_its_calls_counts_each_once() {
    let mut bench = bench();
    let code = "#!lua name=counts\n\
        local calls = {reads = 0, writes = 0, strays = 0}\n\
        local function count(what) calls[what] = calls[what] + 1 return calls[what] end\n\
        redis.register_function('reads', function(keys) \
            local n = count('reads') redis.call('GET', keys[1]) redis.call('GET', keys[2]) return n end)\n\
        redis.register_function('writes', function(keys) \
            local n = count('writes') redis.call('GET', keys[1]) redis.call('INCR', keys[2]) return n end)\n\
        redis.register_function('strays', function(keys, args) \
            local n = count('strays') for _, key in ipairs(args) do redis.call('GET', key) end \
            redis.call('INCR', keys[1]) redis.call('INCR', args[1]) return n end)";
    assert_eq!(bench.words(&["FUNCTION", "LOAD", code]), "$6\r\ncounts\r\n");
    for n in 1..=200 {
        for (words, whole_runs) in [
            (&["FCALL", "reads", "2", "a", "b"][..], 64),
            (&["FCALL", "writes", "2", "a", "b"][..], 64),
            (&["FCALL", "strays", "1", "a", "x", "y", "z"][..], u64::MAX),
        ] {
            let held = bench.worker.store().whole_holds();
            assert_eq!(bench.words(words), format!(":{n}\r\n"), "{words:?}");
            let holds = bench.worker.store().whole_holds() - held;
            assert_eq!(holds, u64::from(n <= whole_runs), "{words:?}, {n}");
        }
    }
    assert_eq!(bench.words(&["MGET", "a", "b", "x"]), "*3\r\n$3\r\n200\r\n$3\r\n200\r\n$3\r\n200\r\n");
    // One that keeps nothing is begun anew as a script is, and one that only reads leaves others alone.
    let code = "#!lua name=plain\n\
        local function get(key) return redis.call('GET', key) end\n\
        redis.register_function('gets', function(keys, args) return {get(keys[1]), get(args[1])} end)";
    assert_eq!(bench.words(&["FUNCTION", "LOAD", code]), "$5\r\nplain\r\n");
    let held = bench.worker.store().whole_holds();
    let got = bench.words(&["FCALL", "gets", "1", "a", "b"]);
    assert_eq!(got, "*2\r\n$3\r\n200\r\n$3\r\n200\r\n");
    assert_eq!(bench.worker.store().whole_holds(), held);
}

/// Where such a function wants more than it did in many runs it is begun anew, once, and so is one that works for long.
#[test]
fn a_function_that_keeps_something_and_does_what_it_never_did_is_begun_anew_once() {
    let mut bench = bench();
    let code = "#!lua name=counts\n\
        local n = 0\n\
        redis.register_function('f', function(keys, args) \
            n = n + 1 redis.call('GET', keys[1]) \
            if args[1] == 'write' then redis.call('INCR', keys[1]) elseif args[1] then redis.call('GET', args[1]) end \
            return n end)\n\
        redis.register_function('works', function(keys, args) \
            n = n + 1 redis.call('GET', keys[1]) for i = 1, args[1] do end redis.call('GET', keys[1]) return n end)";
    bench.words(&["FUNCTION", "LOAD", code]);
    let call = |bench: &mut Bench, word: &str, n: u64, holds: u64| {
        let held = bench.worker.store().whole_holds();
        assert_eq!(bench.words(&["FCALL", "f", "1", "k", word]), format!(":{n}\r\n"), "{word}");
        assert_eq!(bench.worker.store().whole_holds() - held, holds, "{word}, {n}");
    };
    // `k` is declared, and read once more.
    (1..=64).for_each(|n| call(&mut bench, "k", n, 1));
    call(&mut bench, "k", 65, 0);
    // It writes for the first time, and has done so in 64 runs then.
    call(&mut bench, "write", 67, 1);
    (68..=130).for_each(|n| call(&mut bench, "write", n, 1));
    call(&mut bench, "write", 131, 0);
    // It names a key that it has not declared.
    call(&mut bench, "other", 133, 1);
    (134..=300).for_each(|n| call(&mut bench, "write", n, 1));
    // Work of two and a half milliseconds, by the look, and of twenty-five: it holds its keys for eight.
    assert_eq!(bench.words(&["FCALL", "works", "1", "k", "100000"]), ":301\r\n");
    assert_eq!(bench.words(&["FCALL", "works", "1", "k", "1000000"]), ":303\r\n");
}

/// What a function keeps is in the state of the script that goes on in later turns: it waits for that as long as others do.
#[test]
fn a_function_that_keeps_something_waits_for_a_script_of_its_worker_that_goes_on() {
    let mut bench = bench();
    let code = "#!lua name=l\nlocal n = 0 \
        redis.register_function('count', function() n = n + 1 return n end) \
        redis.register_function('plain', function() return 7 end)";
    bench.words(&["FUNCTION", "LOAD", code]);
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":1\r\n");
    let (mut goes_on, mut counts) = (Session::new(), Session::new());
    let endless = encode(&[b"EVAL", b"while true do end", b"0"]);
    let count = encode(&[b"FCALL", b"count", b"0"]);
    for waited_ms in [4_999, 5_000] {
        assert_eq!(bench.once(&mut goes_on, &endless), (String::new(), Next::Yield));
        assert_eq!(bench.once(&mut counts, &count), (String::new(), Next::Yield));
        // It looks every two milliseconds, however many wait, and each look is work of its turn.
        for _ in 0..3 {
            assert_eq!(bench.once(&mut counts, b""), (String::new(), Next::Sleep(2)));
            assert!(bench.room.work().done_ns() >= 1_000);
        }
        // Others do not wait, nor does what comes in MULTI: that has a variable of its own.
        assert_eq!(bench.words(&["FCALL", "plain", "0"]), ":7\r\n");
        assert_eq!(bench.eval("return 8"), ":8\r\n");
        let mut queues = encode(&[b"MULTI"]);
        queues.extend_from_slice(&count);
        queues.extend_from_slice(&encode(&[b"EXEC"]));
        let (replies, _) = bench.run(&mut Session::new(), &queues, usize::MAX);
        assert_eq!(String::from_utf8_lossy(&replies), "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n");
        bench.host.clock_us.fetch_add(1000 * waited_ms, Relaxed);
        let (reply, next) = bench.once(&mut counts, b"");
        if waited_ms < 5_000 {
            assert_eq!((reply.as_str(), next), ("", Next::Sleep(2)));
        } else {
            let busy =
                "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n";
            assert_eq!(reply, busy);
        }
        assert_eq!(bench.words(&["SCRIPT", "KILL"]), "+OK\r\n");
        assert!(bench.once(&mut goes_on, b"").0.contains("killed by user"));
        if waited_ms < 5_000 {
            assert_eq!(bench.once(&mut counts, b"").0, ":2\r\n");
        }
    }
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":3\r\n");
    // With its client the script goes, and not the state.
    assert_eq!(bench.once(&mut goes_on, &endless), (String::new(), Next::Yield));
    drop(goes_on);
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":4\r\n");
}

/// Where scripts may go on for ever, what waits for one does not outlive its client.
#[test]
fn a_function_that_waits_for_a_script_without_end_ends_with_its_client() {
    let mut bench = bench();
    assert_eq!(bench.words(&["CONFIG", "SET", "busy-reply-threshold", "0"]), "+OK\r\n");
    let code =
        "#!lua name=l\nlocal n = 0 redis.register_function('count', function() n = n + 1 return n end)";
    bench.words(&["FUNCTION", "LOAD", code]);
    let (mut goes_on, mut counts) = (Session::new(), Session::new());
    let endless = encode(&[b"EVAL", b"while true do end", b"0"]);
    assert_eq!(bench.once(&mut goes_on, &endless), (String::new(), Next::Yield));
    // That script has gone on for longer by then.
    bench.host.clock_us.fetch_add(9_000_000, Relaxed);
    let count = encode(&[b"FCALL", b"count", b"0"]);
    assert_eq!(bench.once(&mut counts, &count), (String::new(), Next::Yield));
    bench.host.clock_us.fetch_add(4_999_000, Relaxed);
    assert_eq!(bench.once(&mut counts, b""), (String::new(), Next::Sleep(2)));
    bench.host.clock_us.fetch_add(1_000, Relaxed);
    // It goes on looking. If its client has gone, the connection is closed: nothing must come to its end.
    assert_eq!(bench.once(&mut counts, b""), (String::new(), Next::Await(Some(2))));
    assert!(!counts.must_end());
    assert_eq!(bench.words(&["SCRIPT", "KILL"]), "+OK\r\n");
    assert!(bench.once(&mut goes_on, b"").0.contains("killed by user"));
    assert_eq!(bench.once(&mut counts, b"").0, ":1\r\n");
}

/// What is left beside a library is collected in steps: before a run, and before what is only compiled. Another library is read
/// elsewhere.
#[test]
fn what_runs_leave_beside_a_library_is_collected_in_steps() {
    let mut bench = bench();
    // Each look at a script is a turn.
    bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
    let code =
        "#!lua name=l\nlocal n = 0 redis.register_function('count', function() n = n + 1 return n end)";
    bench.words(&["FUNCTION", "LOAD", code]);
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":1\r\n");
    let fills = "local t = {} for i = 1, 1e9 do t[i] = {i} end";
    let loaded = format!("$40\r\n{}\r\n", larder_script::sha1_hex(b"return 6"));
    let other = b"#!lua name=o\nredis.register_function('o', function() end)";
    let requests: [(&[&[u8]], &str); 3] = [
        (&[b"EVAL", b"return 5", b"0"], ":5\r\n"),
        (&[b"SCRIPT", b"LOAD", b"return 6"], &loaded),
        (&[b"FCALL", b"count", b"0"], ":2\r\n"),
    ];
    for (request, reply) in requests {
        assert!(bench.eval(fills).contains("not enough memory"));
        let mut client = Session::new();
        assert_eq!(bench.once(&mut client, &encode(request)), (String::new(), Next::Yield));
        for _ in 0..10 {
            assert_eq!(bench.once(&mut client, b""), (String::new(), Next::Yield));
            // Others have their turn meanwhile.
            assert_eq!(bench.words(&["PING"]), "+PONG\r\n");
        }
        let (replies, _) = bench.run(&mut client, &encode(&[b"PING"]), usize::MAX);
        assert_eq!(String::from_utf8_lossy(&replies), format!("{reply}+PONG\r\n"));
    }
    assert!(bench.eval(fills).contains("not enough memory"));
    let load: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", other];
    assert_eq!(bench.once(&mut Session::new(), &encode(&load)).0, "$1\r\no\r\n");
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":3\r\n");
}

/// The lines of a run that is begun anew are forgotten with it.
#[test]
fn a_script_that_is_begun_anew_logs_each_line_once() {
    let mut bench = bench();
    let lines = |bench: &Bench| -> Vec<String> {
        bench.host.take_noted().into_iter().map(|(_, text)| text).collect()
    };
    // It is begun anew for the second key and for the third.
    let reads = "for i = 1, 3 do redis.log(1, 'reads', i) redis.call('GET', 'k' .. i) end redis.log(1, 'ends') return 1";
    assert_eq!(bench.eval(reads), ":1\r\n");
    assert_eq!(lines(&bench), ["reads 1", "reads 2", "reads 3", "ends"]);
    // And before its first write; lines behind that are not kept. It has them, too, if it fails.
    let writes = "redis.log(1, 'reads') redis.call('GET', KEYS[1]) redis.log(1, 'writes') redis.call('INCR', KEYS[1]) \
        redis.log(1, 'fails') error('no')";
    assert!(bench.words(&["EVAL", writes, "1", "k"]).starts_with("-ERR user_script:1: no"));
    assert_eq!(lines(&bench), ["reads", "writes", "fails"]);
    // Of more than are kept, so many are passed over as were written.
    for logged in [31, 32, 33, 34, 70] {
        let script = format!(
            "for i = 1, {logged} do redis.log(1, i) end redis.call('GET', 'a') redis.call('GET', 'b') redis.log(1, 'ends')"
        );
        assert_eq!(bench.eval(&script), "$-1\r\n");
        let expected: Vec<String> = (1..=logged).map(|n| n.to_string()).chain(["ends".to_owned()]).collect();
        assert_eq!(lines(&bench), expected, "{logged}");
    }
    // One that goes on in later turns logs what it has to when it ends.
    let mut client = Session::new();
    let input = encode(&[b"EVAL", b"redis.log(1, 'begins') while true do end", b"0"]);
    assert_eq!(bench.once(&mut client, &input).1, Next::Yield);
    assert_eq!(lines(&bench), [""; 0]);
    assert_eq!(bench.words(&["SCRIPT", "KILL"]), "+OK\r\n");
    assert!(bench.once(&mut client, b"").0.contains("killed by user"));
    assert_eq!(lines(&bench), ["begins"]);
}

#[test]
fn a_script_is_one_command_of_a_transaction() {
    let mut bench = bench();
    let mut session = Session::new();
    let set = b"redis.call('SET', KEYS[1], 1) return redis.call('INCR', 'undeclared')";
    let requests: [&[&[u8]]; 5] =
        [&[b"MULTI"], &[b"SET", b"a", b"0"], &[b"EVAL", set, b"1", b"a"], &[b"GET", b"a"], &[b"EXEC"]];
    let input: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
    let (replies, _) = bench.run(&mut session, &input, usize::MAX);
    let replies = String::from_utf8(replies).unwrap();
    assert!(replies.ends_with("*3\r\n+OK\r\n:1\r\n$1\r\n1\r\n"), "{replies}");
}

/// Names that a script has not declared are kept while it is begun anew; long ones are not, and it has the store to itself.
#[test]
fn a_script_may_name_long_keys_that_it_has_not_declared() {
    let mut bench = bench();
    let mut session = Session::new();
    let script = b"local n = 0 for i = 1, 3 do n = n + redis.call('INCR', string.rep(tostring(i), ARGV[1])) end return n";
    for (length, sum) in [(10, 3), (7_000, 3), (60_000, 3), (60_000, 6)] {
        let request = encode(&[b"EVAL", script, b"0", length.to_string().as_bytes()]);
        let (reply, _) = bench.run(&mut session, &request, usize::MAX);
        assert_eq!(String::from_utf8_lossy(&reply), format!(":{sum}\r\n"), "keys of {length} bytes");
    }
}

#[test]
fn what_scripts_take_is_charged_and_given_back() {
    let mut local = Local::new(&[]).expect("a server");
    // A connection of its own for each, and what is charged when it has gone.
    let mut eval = |script: &str| {
        let mut client = local.charged_connection();
        local.exchange(&mut client, &encode(&[b"EVAL", script.as_bytes(), b"0"]));
        let reply = String::from_utf8_lossy(client.sent()).into_owned();
        local.ended(client);
        (reply, local.store().heap_bytes())
    };
    let (_, one) = eval("return 1");
    let (refused, behind) = eval("local t = {} for i = 1, 1e9 do t[i] = {i} end");
    assert!(refused.contains("not enough memory"), "{refused}");
    // What was kept of it goes with the state, which is made anew.
    assert!(behind <= one + (256 << 10), "{behind} behind {one}");
    assert_eq!(eval("return 1").0, ":1\r\n");
    let (caught, _) = eval("return pcall(function() local s = 'x' while true do s = s .. s end end)");
    assert_eq!(caught, "$-1\r\n");
    let many = "local s = string.rep('x', 100000) local t = {} for i = 1, 20000 do t[i] = s end return t";
    let (large, _) = eval(many);
    assert!(large.starts_with("-OOM"), "{}", &large[..60.min(large.len())]);
    // What replies took is charged for a while.
    let (_, one) = eval("return 1");
    // What is charged while it runs is no more than a state may take.
    let grows = "local t = {} for i = 1, 1e9 do t[i] = {i} redis.call('PING') end";
    assert!(eval(grows).0.contains("not enough memory"));
    let (_, behind) = eval("return 1");
    assert!(behind <= one + (256 << 10), "{behind} behind {one}");
}

#[test]
fn others_are_told_what_scripts_do() {
    let mut talk = Talk::new(&[]);
    assert_eq!(talk.say(0, "CONFIG SET notify-keyspace-events KEA"), "+OK");
    talk.say(1, "PSUBSCRIBE __key*__:*");
    talk.say(2, "SUBSCRIBE news");
    talk.say(3, "MONITOR");
    talk.say(4, "SET watched 1");
    talk.say(4, "WATCH watched");
    let script =
        "redis.call('SET', KEYS[1], 2) redis.call('PUBLISH', 'news', 'x') return redis.call('DEL', KEYS[1])";
    let eval = |talk: &mut Talk| {
        let words: [&[u8]; 4] = [b"EVAL", script.as_bytes(), b"1", b"watched"];
        talk.send(0, &encode(&words))
    };
    talk.heard(1);
    talk.heard(3);
    assert_eq!(eval(&mut talk), ":1");
    let events = talk.heard(1);
    for event in ["watched $3 set", "watched $3 del"] {
        assert!(events.contains(event), "{events}");
    }
    assert!(talk.heard(2).contains("$4 news $1 x"));
    // The script, and then what it has called.
    let shown = talk.heard(3);
    let at = |what: &str| shown.find(what).unwrap_or_else(|| panic!("{what}: {shown}"));
    assert!(
        at("\"EVAL\"") < at("[0 lua] \"SET\"") && at("[0 lua] \"SET\"") < at("[0 lua] \"DEL\""),
        "{shown}"
    );
    talk.say(4, "MULTI");
    talk.say(4, "PING");
    assert_eq!(talk.say(4, "EXEC"), "*-1");
}

/// Keys that are declared are not asked for by that.
#[test]
fn a_miss_in_a_script_is_told_of_what_it_calls() {
    let mut talk = Talk::new(&[]);
    assert_eq!(talk.say(0, "CONFIG SET notify-keyspace-events Em"), "+OK");
    talk.say(1, "SUBSCRIBE __keyevent@0__:keymiss");
    talk.heard(1);
    for (script, misses) in [("return redis.call('GET', KEYS[1])", 1), ("return 1", 0)] {
        for name in ["EVAL", "EVAL_RO"] {
            talk.send(0, &encode(&[name, script, "1", "k"].map(str::as_bytes)));
            assert_eq!(talk.heard(1).matches("keymiss $1 k").count(), misses, "{name} {script}");
        }
    }
}

#[test]
fn commands_that_wait_do_not_wait_in_scripts_and_serve_those_who_do() {
    let mut bench = bench();
    for script in [
        "return redis.call('BLPOP', KEYS[1], 0)",
        "return redis.call('BRPOP', KEYS[1], 0)",
        "return redis.call('BLMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT', 0)",
        "return redis.call('BRPOPLPUSH', KEYS[1], KEYS[1], 0)",
        "return redis.call('BLMPOP', 0, 1, KEYS[1], 'LEFT')",
        "return redis.call('BZPOPMIN', KEYS[1], 0)",
        "return redis.call('BZPOPMAX', KEYS[1], 0)",
        "return redis.call('BZMPOP', 0, 1, KEYS[1], 'MIN')",
    ] {
        assert_eq!(bench.words(&["EVAL", script, "1", "list"]), "$-1\r\n", "{script}");
    }
    // A client that waits is served when the script has ended, and not before.
    let mut waits = Session::new();
    let (reply, next) = bench.once(&mut waits, &encode(&[b"BLPOP", b"list", b"0"]));
    assert_eq!((reply.as_str(), next), ("", Next::Await(None)));
    let script = "redis.call('RPUSH', KEYS[1], 'a', 'b') return redis.call('LLEN', KEYS[1])";
    assert_eq!(bench.words(&["EVAL", script, "1", "list"]), ":2\r\n");
    assert_eq!(bench.once(&mut waits, b"").0, "*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
    let script = "return redis.call('BLPOP', KEYS[1], 0)";
    assert_eq!(bench.words(&["EVAL", script, "1", "list"]), "*2\r\n$4\r\nlist\r\n$1\r\nb\r\n");
}

#[test]
fn an_error_in_the_middle_leaves_what_was_done_before() {
    let mut bench = bench();
    let script = "redis.call('SET', 'a', 1) redis.call('LPUSH', 'a', 1) redis.call('SET', 'b', 1)";
    assert!(bench.eval(script).starts_with("-WRONGTYPE"));
    assert_eq!(bench.words(&["EXISTS", "a", "b"]), ":1\r\n");
    // Nothing is held any more.
    assert_eq!(bench.words(&["MSET", "a", "2", "b", "2"]), "+OK\r\n");
    bench.check();
}

#[test]
fn functions_are_loaded_called_and_forgotten() {
    let mut bench = bench();
    let code = "#!lua name=mine\n\
        local calls = 0\n\
        redis.register_function('add', function(keys, args) return redis.call('INCRBY', keys[1], args[1]) end)\n\
        redis.register_function{function_name='look', callback=function(keys) return redis.call('GET', keys[1]) end, \
        description='looks', flags={'no-writes'}}\n\
        redis.register_function('fails', function() return nosuch end)";
    assert_eq!(bench.words(&["FUNCTION", "LOAD", code]), "$4\r\nmine\r\n");
    assert_eq!(bench.words(&["FCALL", "add", "1", "k", "5"]), ":5\r\n");
    assert_eq!(bench.words(&["FCALL_RO", "look", "1", "k"]), "$1\r\n5\r\n");
    assert_eq!(
        bench.words(&["FCALL_RO", "add", "1", "k", "5"]),
        "-ERR Can not execute a script with write flag using *_ro command.\r\n"
    );
    assert_eq!(
        bench.words(&["FCALL", "fails", "0"]),
        "-ERR user_function:5: Script attempted to access nonexistent global variable 'nosuch' script: fails, on @user_function:5.\r\n"
    );
    for (words, reply) in [
        (vec!["FUNCTION", "LOAD", "x"], "-ERR Missing library metadata"),
        (
            vec!["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('add', function() end)"],
            "-ERR Function add already exists",
        ),
        (
            vec!["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('b c', function() end)"],
            "-ERR Error registering functions: ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
        (
            vec!["FUNCTION", "LOAD", "#!lua name=a\nwhile true do end"],
            "-ERR Error registering functions: FUNCTION LOAD timeout",
        ),
        (vec!["FUNCTION", "KILL"], "-NOTBUSY No scripts in execution right now."),
        (vec!["FUNCTION", "DELETE", "nosuch"], "-ERR Library not found"),
        (vec!["FUNCTION", "RESTORE", "x"], "-ERR DUMP payload version or checksum are wrong"),
    ] {
        assert_eq!(bench.words(&words), format!("{reply}\r\n"), "{words:?}");
    }
    assert!(bench.eval("return redis.register_function('x', function() end)").contains("(a nil value)"));
    let list = bench.words(&["FUNCTION", "LIST", "LIBRARYNAME", "m*"]);
    assert!(
        list.starts_with("*1\r\n*6\r\n$12\r\nlibrary_name\r\n$4\r\nmine\r\n") && list.contains("+no-writes"),
        "{list}"
    );
    let (dump, _) = bench.run(&mut Session::new(), &encode(&[b"FUNCTION", b"DUMP"]), usize::MAX);
    let at = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let payload = dump[at..dump.len() - 2].to_vec();
    assert_eq!(bench.words(&["FUNCTION", "FLUSH"]), "+OK\r\n");
    assert_eq!(bench.words(&["FCALL", "add", "1", "k", "5"]), "-ERR Function not found\r\n");
    let restore = |bench: &mut Bench, policy: &[u8]| {
        let words: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &payload, policy];
        String::from_utf8_lossy(&bench.run(&mut Session::new(), &encode(&words), usize::MAX).0).into_owned()
    };
    assert_eq!(restore(&mut bench, b"APPEND"), "+OK\r\n");
    assert_eq!(restore(&mut bench, b"APPEND"), "-ERR Library mine already exists\r\n");
    assert_eq!(restore(&mut bench, b"REPLACE"), "+OK\r\n");
    assert_eq!(restore(&mut bench, b"FLUSH"), "+OK\r\n");
    assert_eq!(bench.words(&["FCALL", "add", "1", "k", "5"]), ":10\r\n");
    assert_eq!(bench.words(&["FUNCTION", "DELETE", "mine"]), "+OK\r\n");
    let stats = bench.words(&["FUNCTION", "STATS"]);
    assert!(stats.ends_with("libraries_count\r\n:0\r\n$15\r\nfunctions_count\r\n:0\r\n"), "{stats}");
}

#[test]
fn a_function_that_works_for_long_is_shown_and_killed_as_one() {
    let mut bench = bench();
    let code = "#!lua name=mine\nredis.register_function('stays', function() while true do end end)";
    bench.words(&["FUNCTION", "LOAD", code]);
    let mut client = Session::new();
    bench.once(&mut client, &encode(&[b"FCALL", b"stays", b"0", b"x"]));
    let stats = bench.words(&["FUNCTION", "STATS"]);
    assert!(stats.contains("$4\r\nname\r\n$5\r\nstays\r\n$7\r\ncommand\r\n*4\r\n$5\r\nfcall"), "{stats}");
    assert!(bench.words(&["SCRIPT", "KILL"]).starts_with("-BUSY"));
    assert_eq!(bench.words(&["FUNCTION", "KILL"]), "+OK\r\n");
    assert_eq!(
        bench.once(&mut client, b"").0,
        "-ERR Script killed by user with SCRIPT KILL... script: stays, on @user_function:2.\r\n"
    );
    assert!(bench.words(&["FUNCTION", "STATS"]).contains("running_script\r\n$-1\r\n"));
}

#[test]
fn a_script_is_killed_before_it_writes_and_not_behind() {
    let mut local = Local::new(&["-t".to_owned(), "2".to_owned()]).expect("a server");
    let mut other = local.sibling().expect("another worker");
    for (script, killed) in [
        // It holds its keys, so that it is at work until a client ends it.
        ("while true do redis.call('GET', KEYS[1]) end", true),
        ("redis.call('SET', KEYS[1], 1) while ARGV[1] do end", false),
    ] {
        // One that has named its keys in many runs holds nothing else: others go on, and can say what they want.
        let mut client = local.resp_connection();
        for _ in 0..if killed { 0 } else { 64 } {
            local.exchange(&mut client, &encode(&[b"EVAL", script.as_bytes(), b"1", b"a"]));
        }
        // Its time passes when it is known that it is not killed.
        let look_us = other.look_us();
        look_us.store(0, Relaxed);
        let other = &mut other;
        std::thread::scope(|scope| {
            let runs = scope.spawn(move || {
                let mut client = other.resp_connection();
                loop {
                    client.forget();
                    other.exchange(&mut client, &encode(&[b"EVAL", script.as_bytes(), b"1", b"a", b"x"]));
                    let ended = String::from_utf8_lossy(client.sent()).into_owned();
                    if killed || !ended.contains("killed by user") {
                        return ended;
                    }
                }
            });
            let mut client = local.resp_connection();
            let mut reply = String::from("-NOTBUSY");
            // The first is killed at whatever moment; the other one is to have written.
            while reply.starts_with("-NOTBUSY") || !killed && reply == "+OK\r\n" {
                client.forget();
                local.exchange(&mut client, &encode(&[b"SCRIPT", b"KILL"]));
                reply = String::from_utf8_lossy(client.sent()).into_owned();
                std::thread::yield_now();
            }
            look_us.store(1_000_000, Relaxed);
            let ended = runs.join().expect("no panic");
            if killed {
                assert_eq!(reply, "+OK\r\n");
                assert!(ended.contains("killed by user with SCRIPT KILL"), "{ended}");
            } else {
                assert!(reply.starts_with("-UNKILLABLE"), "{reply}");
                assert!(ended.contains("it ran for longer than"), "{ended}");
            }
        });
    }
}

#[test]
fn libraries_are_those_that_scripts_know() {
    let mut bench = bench();
    for (script, reply) in [
        ("return cjson.encode({1, 'a', true, cjson.null, {x = 1.5}})", "[1,\"a\",true,null,{\"x\":1.5}]"),
        ("return cjson.encode({})", "{}"),
        ("return cjson.encode('/\\n\\1\"')", "\"\\/\\n\\u0001\\\"\""),
        ("return cjson.encode({[1] = 1, [3] = 3})", "[1,null,3]"),
        ("return cjson.decode('{\"a\": [1, 2.5, \"\\\\u00e9\\\\ud83d\\\\ude00\"]}').a[3]", "\u{e9}\u{1f600}"),
        ("return tostring(cjson.decode('null') == cjson.null)", "true"),
        ("return tostring(cjson.decode('[1e3]')[1])", "1000"),
        (
            "return select(2, pcall(cjson.decode, '{\"a\":}'))",
            "Expected value but found T_OBJ_END at character 6",
        ),
        ("return select(2, pcall(cjson.decode, '[1,'))", "Expected value but found T_END at character 4"),
        (
            "return select(2, pcall(cjson.decode, 'x'))",
            "Expected value but found invalid token at character 1",
        ),
        ("return cmsgpack.unpack(cmsgpack.pack({'a', 300, -5}))[1]", "a"),
        ("return cmsgpack.pack(1, -1, 300, 'a', true, nil)", "\u{1}"),
        ("return cjson.encode({cmsgpack.unpack(cmsgpack.pack(1, 'a', {x = 0.5}))})", "[1,\"a\",{\"x\":0.5}]"),
        ("return bit.tohex(bit.band(0xFF00FF, 0x0FF0), 4)", "00f0"),
        ("return tostring(bit.bnot(0)) .. bit.lshift(1, 31)", "-1-2147483648"),
        ("return struct.pack('>I2s', 258, 'ab')", "\u{1}\u{2}ab\0"),
        ("return cjson.encode({struct.unpack('>I2s', '\\1\\2ab\\0')})", "[258,\"ab\",6]"),
        (
            "return cjson.encode({struct.unpack('<i4Bc0', struct.pack('<i4Bc0', -7, 3, 'xyz'))})",
            "[-7,\"xyz\",9]",
        ),
        ("return tostring(struct.size('!8bd'))", "16"),
        ("return (string.gsub('hello world', '%w+', '<%0>'))", "<hello> <world>"),
        ("return (string.gsub('abc', '%w', {a = '1', b = true and '2'}))", "12c"),
        ("return (string.gsub('abc', '', '-'))", "-a-b-c-"),
        ("return (string.gsub('a,b', '(%w)', function(c) return c:upper() end))", "A,B"),
        (
            "local t = {} for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do t[#t + 1] = k .. v end return table.concat(t, '|')",
            "a1|b2",
        ),
        ("return string.match('key = value', '^(%w+)%s*=%s*(%w+)$')", "key"),
        ("return table.concat({string.find('hello', 'l(l)')}, ',')", "3,4,l"),
        ("return string.format('%5.2f|%s|%q', 3.14159, 'x', 'y')", " 3.14|x|\"y\""),
        (
            "math.randomseed(0) local a = math.random(100) math.randomseed(0) return tostring(a == math.random(100))",
            "true",
        ),
        ("return type(os.clock())", "number"),
        ("return table.concat(ARGV, ',')", "x,y"),
    ] {
        let got = bench.words(&["EVAL", script, "0", "x", "y"]);
        let text = got.split_once("\r\n").map_or("", |(_, rest)| rest.trim_end_matches("\r\n"));
        assert!(got.starts_with('$') && text.starts_with(reply), "{script}: {got}");
    }
}

/// Commands about clients and about the server are not for scripts, and least of all those that log in.
#[test]
fn scripts_call_commands_on_keys_and_few_others() {
    use larder_commands::redis::row::flag;
    use larder_commands::redis::table::REDIS;
    let rows = REDIS.iter().flat_map(|group| group.rows);
    let leaves = rows.flat_map(|row| {
        if row.subcommands().is_empty() { std::slice::from_ref(row) } else { row.subcommands() }
    });
    const NEVER: u64 = flag::ADMIN | flag::GUARDED | flag::NO_AUTH | flag::RUNS_QUEUE | flag::SUBSCRIBES;
    let never: Vec<_> = leaves.filter(|row| row.has(NEVER) && !row.name.ends_with("|help")).collect();
    assert!(never.len() > 30, "{}", never.len());
    for row in never {
        assert!(row.has(flag::NOSCRIPT), "{}", row.name);
    }
    let mut bench = bench();
    for refused in ["'AUTH', 'x'", "'MULTI'", "'EVAL', 'return 1', '0'", "'CONFIG', 'GET', '*'", "'SHUTDOWN'"]
    {
        let error = bench.error(&format!("return redis.call({refused})"));
        assert_eq!(error, "ERR This Redis command is not allowed from script", "{refused}");
    }
}

#[test]
fn scripts_wait_while_writes_are_paused_unless_they_only_read() {
    let mut bench = bench();
    bench.words(&["SET", "k", "v"]);
    assert_eq!(bench.words(&["CLIENT", "PAUSE", "100000", "WRITE"]), "+OK\r\n");
    let mut client = Session::new();
    let eval = encode(&[b"EVAL", b"return redis.call('SET', KEYS[1], 'w')", b"1", b"k"]);
    assert!(bench.waits(&mut client, &eval));
    assert_eq!(bench.words(&["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "k"]), "$1\r\nv\r\n");
    assert_eq!(bench.words(&["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(bench.words(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]), "$1\r\nv\r\n");
    assert_eq!(bench.once(&mut client, &eval).0, "+OK\r\n");
    assert_eq!(bench.words(&["GET", "k"]), "$1\r\nw\r\n");
}

#[test]
fn scripts_are_not_allowed_what_the_server_was_started_without() {
    let mut talk = Talk::new(&["-X", "-F"]);
    talk.say(0, "SET k v");
    for (script, flag) in [
        ("return redis.call('KEYS', '*')", "(-X)"),
        ("return redis.call('SCAN', '0')", "(-X)"),
        ("return redis.call('FLUSHALL')", "(-F)"),
        ("return redis.call('FLUSHDB')", "(-F)"),
        ("return redis.pcall('FLUSHALL')", "(-F)"),
    ] {
        let reply = talk.send(0, &encode(&[b"EVAL", script.as_bytes(), b"0"]));
        assert!(reply.starts_with("-ERR") && reply.contains(flag), "{script}: {reply}");
    }
    assert_eq!(talk.say(0, "GET k"), "$1 v");
}

#[test]
fn scripts_in_a_full_store_evict_or_are_told_that_there_is_no_memory() {
    let fills = "local n = 0 for i = 1, 3000 do \
        redis.call('SET', 'k' .. i, string.rep('x', 10000)) n = n + 1 end return n";
    let mut evicts = Talk::new(&["-m", "16"]);
    let eval = |talk: &mut Talk, script: &str| talk.send(0, &encode(&[b"EVAL", script.as_bytes(), b"0"]));
    for _ in 0..3 {
        assert_eq!(eval(&mut evicts, fills), ":3000");
    }
    let left = eval(&mut evicts, "return redis.call('DBSIZE')");
    let left: u64 = left[1..].parse().expect("a number");
    assert!((500..2000).contains(&left), "{left}");
    assert_eq!(evicts.say(0, "STRLEN k3000"), ":10000");
    let store = std::sync::Arc::clone(evicts.local().store());
    drop(evicts);
    store.check();

    let mut keeps = Talk::new(&["-m", "16", "-M"]);
    let refused = eval(&mut keeps, fills);
    assert!(refused.starts_with("-OOM"), "{refused}");
    // What was written before stays, and there is room again when it goes.
    assert_eq!(keeps.say(0, "STRLEN k1"), ":10000");
    let frees = "for i = 1, 3000 do redis.call('DEL', 'k' .. i) end return redis.call('DBSIZE')";
    assert_eq!(eval(&mut keeps, frees), ":0");
    assert_eq!(eval(&mut keeps, "return redis.call('SET', 'k', string.rep('x', 10000))"), "+OK");
    let store = std::sync::Arc::clone(keeps.local().store());
    drop(keeps);
    store.check();
}

#[test]
fn slowlog_has_scripts_as_they_were_asked_for() {
    let mut bench = bench();
    assert_eq!(bench.words(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]), "+OK\r\n");
    bench.words(&["SLOWLOG", "RESET"]);
    bench.words(&["EVAL", "redis.call('SET', KEYS[1], ARGV[1]) redis.pcall('AUTH', 'word')", "1", "k", "v"]);
    let log = bench.words(&["SLOWLOG", "GET"]);
    assert!(log.contains("$4\r\nEVAL\r\n") || log.contains("$4\r\neval\r\n"), "{log}");
    // What it calls is part of it.
    assert!(!log.contains("$3\r\nSET\r\n"), "{log}");
    assert!(!log.contains("$4\r\nAUTH\r\n"), "{log}");
}

#[test]
fn scripts_in_a_transaction_see_what_is_before_them_and_watches_see_scripts() {
    let mut talk = Talk::new(&[]);
    let incr = b"return redis.call('INCR', KEYS[1])";
    let loaded = talk.send(0, &encode(&[b"SCRIPT", b"LOAD", incr]));
    let sha = loaded.split(' ').nth(1).expect("a digest").to_owned();
    talk.say(0, "MULTI");
    for command in [
        "SET n 4".to_owned(),
        format!("EVALSHA {sha} 1 n"),
        "EVALSHA 0000000000000000000000000000000000000000 1 n".to_owned(),
        format!("EVALSHA {sha} 1 n"),
        format!("EVALSHA {sha} 5 n"),
        "SCRIPT EXISTS x".to_owned(),
    ] {
        assert_eq!(talk.say(0, &command), "+QUEUED", "{command}");
    }
    assert_eq!(
        talk.say(0, "EXEC"),
        "*6 +OK :5 -NOSCRIPT No matching script. Please use EVAL. :6 \
         -ERR Number of keys can't be greater than number of args *1 :0"
    );
    // A script that only reads what is watched changes nothing; one that writes it does, also undeclared.
    for (script, executed) in [
        ("return redis.call('GET', 'n')", true),
        ("return redis.call('SET', 'other', 1)", true),
        ("return redis.call('SET', 'n', 1)", false),
    ] {
        talk.say(1, "WATCH n");
        talk.send(0, &encode(&[b"EVAL", script.as_bytes(), b"0"]));
        talk.say(1, "MULTI");
        talk.say(1, "PING");
        assert_eq!(talk.say(1, "EXEC"), if executed { "*1 +PONG" } else { "*-1" }, "{script}");
    }
    // One's own script too.
    talk.say(1, "WATCH n");
    talk.send(1, &encode(&[b"EVAL", incr, b"1", b"n"]));
    talk.say(1, "MULTI");
    talk.say(1, "PING");
    assert_eq!(talk.say(1, "EXEC"), "*-1");
}

#[test]
fn what_is_forgotten_is_given_back() {
    let mut bench = bench();
    // What buffers are charged is the most that they were in a while.
    let used = |bench: &mut Bench| {
        let guard = bench.worker.enter(crate::START);
        let store = guard.store();
        store.ledger().aside + store.held_bytes()
    };
    // Other things are kept for the next of their kind, also of a script that goes on in later turns.
    bench.eval("return redis.call('DBSIZE')");
    let works = |n: usize| format!("for i = 1, 400000 do end return redis.call('DBSIZE') + {n}");
    bench.eval(&works(0));
    bench.words(&["FLUSHALL"]);
    bench.words(&["SCRIPT", "FLUSH"]);
    let before = used(&mut bench);
    for n in 0..50 {
        assert_eq!(
            bench.eval(&format!("local t = {{}} for i = 1, 100 do t[i] = {n} end return 1")),
            ":1\r\n"
        );
    }
    for n in 0..5 {
        assert_eq!(bench.eval(&works(n)), format!(":{n}\r\n"));
    }
    bench.words(&["SCRIPT", "LOAD", "return 2"]);
    assert!(used(&mut bench) > before + (100 << 10));
    // Items are no scripts.
    assert_eq!(bench.words(&["FLUSHALL"]), "+OK\r\n");
    assert_eq!(bench.eval("return redis.call('DBSIZE')"), ":0\r\n");
    assert!(bench.words(&["EVALSHA", &larder_script::sha1_hex(b"return 2"), "0"]).starts_with(":2"));
    assert_eq!(bench.words(&["SCRIPT", "FLUSH"]), "+OK\r\n");
    assert_eq!(used(&mut bench), before);
    // Variables of libraries stay as long as these do.
    let code =
        "#!lua name=mine\nlocal n = 0 redis.register_function('count', function() n = n + 1 return n end)";
    bench.words(&["FUNCTION", "LOAD", code]);
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":1\r\n");
    bench.words(&["SCRIPT", "FLUSH"]);
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":2\r\n");
    assert_eq!(bench.words(&["FUNCTION", "FLUSH"]), "+OK\r\n");
    assert_eq!(used(&mut bench), before);
    bench.words(&["FUNCTION", "LOAD", code]);
    assert_eq!(bench.words(&["FCALL", "count", "0"]), ":1\r\n");
}

/// CVE-2026-23631: what a run goes on with was freed by a client that replaced all scripts meanwhile.
#[test]
fn what_others_forget_while_a_script_goes_on_later_is_there_until_it_ends() {
    let mut bench = bench();
    let works = "for i = 1, 400000 do end ";
    let code = format!(
        "#!lua name=mine\nlocal text = ('t'):rep(1000) \
         redis.register_function('f', function(keys, args) {works} \
         return {{#text, keys[1], args[1], redis.call('GET', keys[1])}} end)"
    );
    let script = format!("local t = {{KEYS[1], ARGV[1]}} {works} t[3] = redis.call('GET', KEYS[1]) return t");
    bench.words(&["SET", "k", "v"]);
    bench.words(&["FUNCTION", "LOAD", &code]);
    let (dump, _) = bench.run(&mut Session::new(), &encode(&[b"FUNCTION", b"DUMP"]), usize::MAX);
    let at = dump.iter().position(|byte| *byte == b'\n').expect("a length") + 1;
    let payload = dump[at..dump.len() - 2].to_vec();
    let restore: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &payload, b"FLUSH"];
    let requests: [&[&[u8]]; 7] = [
        &[b"SCRIPT", b"FLUSH"],
        &[b"FUNCTION", b"FLUSH"],
        &restore,
        &[b"FUNCTION", b"DELETE", b"mine"],
        &[b"FLUSHALL"],
        &[b"SWAPDB", b"0", b"1"],
        &[b"EVAL", b"return {collectgarbage(), string.rep('x', 100000)}", b"0"],
    ];
    for request in requests {
        bench.words(&["FLUSHALL"]);
        bench.words(&["SET", "k", "v"]);
        bench.run(&mut Session::new(), &encode(&restore), usize::MAX);
        let begun: [&[&[u8]]; 2] =
            [&[b"EVAL", script.as_bytes(), b"1", b"k", b"a"], &[b"FCALL", b"f", b"1", b"k", b"a"]];
        for (begun, head) in begun.iter().zip(["*3\r\n", "*4\r\n:1000\r\n"]) {
            bench.words(&["SET", "k", "v"]);
            let mut client = Session::new();
            assert_eq!(bench.once(&mut client, &encode(begun)), (String::new(), Next::Yield));
            bench.run(&mut Session::new(), &encode(request), usize::MAX);
            let (replies, _) = bench.run(&mut client, &encode(&[b"PING"]), usize::MAX);
            let replies = String::from_utf8_lossy(&replies).into_owned();
            let value = if matches!(request[0], b"FLUSHALL" | b"SWAPDB") { "$-1\r\n" } else { "$1\r\nv\r\n" };
            assert_eq!(replies, format!("{head}$1\r\nk\r\n$1\r\na\r\n{value}+PONG\r\n"), "{request:?}");
            if request[0] == b"SWAPDB" {
                bench.words(&["SWAPDB", "0", "1"]);
            }
            bench.run(&mut Session::new(), &encode(&restore), usize::MAX);
        }
    }
}

/// CVE-2025-67733: an error's text that has ends of lines was several replies.
#[test]
fn a_reply_is_one_whatever_text_it_has() {
    let mut bench = bench();
    for script in [
        "return redis.error_reply('a\\r\\n+OK\\r\\n')",
        "return redis.error_reply('a\\n+OK')",
        "return {err = 'a\\r\\n+OK'}",
        "return {ok = 'a\\r\\n+OK'}",
        "return redis.status_reply('a\\r\\n+OK')",
        "error('a\\r\\n+OK')",
        "error({err = 'a\\r\\n+OK'})",
        "return redis.call('a\\r\\n+OK')",
        "return redis.pcall('GET', 'k', 'a\\r\\n+OK')",
        "return nosuch['a\\r\\n+OK']",
        "return {big_number = '1\\r\\n+OK'}",
        "return cjson.decode('\\r\\n+OK')",
    ] {
        for hello in ["2", "3"] {
            let mut client = Session::new();
            bench.run(&mut client, &encode(&[b"HELLO", hello.as_bytes()]), usize::MAX);
            let input = [encode(&[b"EVAL", script.as_bytes(), b"0"]), encode(&[b"ECHO", b"end"])].concat();
            let (replies, _) = bench.run(&mut client, &input, usize::MAX);
            let text = String::from_utf8_lossy(&replies).into_owned();
            let reply = text.strip_suffix("$3\r\nend\r\n").expect("the next reply");
            let body = match reply.strip_prefix('$').and_then(|bulk| bulk.split_once("\r\n")) {
                Some((length, body)) => body.get(length.parse().expect("a length")..).unwrap_or_default(),
                None => reply,
            };
            assert_eq!(body.find('\n'), Some(body.len() - 1), "{script}: {text:?}");
        }
    }
}

/// As Redis 8.0 and Valkey 9.1 answer: what random scripts found to be otherwise here.
#[test]
fn libraries_have_the_quirks_of_those_in_c() {
    let mut bench = bench();
    for (script, reply) in [
        ("return select('#', pcall(function() end))", ":1\r\n"),
        ("return select(2, pcall(struct.unpack, '', '', 0/0))", ":-9223372036854775808\r\n"),
        ("return select('#', pcall(struct.unpack, 'b', 'a', -1))", ":2\r\n"),
        ("return #struct.pack('b\0b', 1)", ":1\r\n"),
        (
            "return string.match(select(2, pcall(cjson.decode, '[+x]')), 'invalid %a+')",
            "$14\r\ninvalid number\r\n",
        ),
        (
            "local bit = {band = function() return 1, 2 end} local f = function() return bit.band() end return select('#', f())",
            ":2\r\n",
        ),
        ("return select('#', xpcall(function() end, function() end))", ":1\r\n"),
        ("return select('#', coroutine.resume(coroutine.create(function() end)))", ":1\r\n"),
        ("return select('#', string.find('a', 'b'))", ":1\r\n"),
        ("return select('#', string.find('a', '%d'))", ":1\r\n"),
        ("return select('#', loadstring('return 1'))", ":1\r\n"),
        (
            "return {select('#', pcall(error, {1})), select('#', pcall(error, {err = 'x'})), select(2, pcall(error, {err = 7}))}",
            "*3\r\n:3\r\n:2\r\n:7\r\n",
        ),
        ("return {ok = 'a\\0b'}", "+a\r\n"),
        ("return {err = 'A b\\0c'}", "-A b\r\n"),
        (
            "return {bit.bnot(1e17), bit.band(-1e20, -1), bit.tobit(1e100), bit.tobit('0x1F'), bit.tobit(0/0), bit.tobit(1/0), bit.tobit(2^51 + 0.5)}",
            "*7\r\n:2049400831\r\n:2025163840\r\n:630506365\r\n:31\r\n:0\r\n:0\r\n:0\r\n",
        ),
        ("return {cmsgpack.unpack_limit('-1', 0)}", "*2\r\n:45\r\n:49\r\n"),
        ("return {cmsgpack.unpack_limit('abc', 0, 1)}", "*1\r\n:1\r\n"),
        ("return {cmsgpack.unpack_limit('abc', 1, 1)}", "*2\r\n:2\r\n:98\r\n"),
        ("return {cmsgpack.unpack_limit('abc', 2)}", "*3\r\n:2\r\n:97\r\n:98\r\n"),
        ("return {cmsgpack.unpack_one('abc', 2)}", "*2\r\n:-1\r\n:99\r\n"),
        ("return {cmsgpack.unpack_one(7)}", "*2\r\n:-1\r\n:55\r\n"),
        (
            "return select(2, pcall(cmsgpack.unpack_limit, 'abc', -1))",
            "$58\r\nInvalid request to unpack with offset of 0 and limit of 3.\r\n",
        ),
        (
            "return select(2, pcall(cmsgpack.unpack_one, 'abc', 4))",
            "$43\r\nStart offset 4 greater than input length 3.\r\n",
        ),
        ("return #cmsgpack.pack(-0)", ":1\r\n"),
        ("return {struct.unpack('i17', struct.pack('i17', -257))}", "*2\r\n:-1\r\n:18\r\n"),
        ("return {struct.unpack('I9', struct.pack('I9', -1))}", "*2\r\n:-9223372036854775808\r\n:10\r\n"),
        ("return {struct.size('z'), struct.size('bz')}", "*2\r\n:0\r\n:1\r\n"),
        ("return {struct.unpack('d', struct.pack('d', '0x10'))}", "*2\r\n:16\r\n:9\r\n"),
        ("return {struct.unpack('I8', struct.pack('I8', 0/0))}", "*2\r\n:-9223372036854775808\r\n:9\r\n"),
        ("return struct.pack('s', 1.5)", "$4\r\n1.5\0\r\n"),
        ("return {struct.pack('c2', 12)}", "*1\r\n$2\r\n12\r\n"),
        (
            "return select(2, pcall(function() local x = struct.pack('c3', 'a') return x end))",
            "$59\r\nuser_script:1: bad argument #3 to 'pack' (string too short)\r\n",
        ),
        (
            "return select(2, pcall(function() local x = struct.pack('i4') return x end))",
            "$67\r\nuser_script:1: bad argument #2 to 'pack' (number expected, got nil)\r\n",
        ),
        (
            "return select(2, pcall(function() local x = struct.size('c0') return x end))",
            "$72\r\nuser_script:1: bad argument #1 to 'size' (option 'c0' has no fixed size)\r\n",
        ),
        (
            "return select(2, pcall(function() local x = struct.size('s') return x end))",
            "$71\r\nuser_script:1: bad argument #1 to 'size' (option 's' has no fixed size)\r\n",
        ),
        (
            "return select(2, pcall(function() local x = bit.band(nil) return x end))",
            "$67\r\nuser_script:1: bad argument #1 to 'band' (number expected, got nil)\r\n",
        ),
        (
            "return select(2, pcall(function() local x = cmsgpack.unpack_one({}) return x end))",
            "$75\r\nuser_script:1: bad argument #1 to 'unpack_one' (string expected, got table)\r\n",
        ),
        (
            "return select(2, pcall(function() setmetatable({}, 1) end))",
            "$72\r\nuser_script:1: bad argument #2 to 'setmetatable' (nil or table expected)\r\n",
        ),
        (
            "return select(2, pcall(function() return string.rep(true, 1) end))",
            "$70\r\nuser_script:1: bad argument #1 to 'rep' (string expected, got boolean)\r\n",
        ),
        (
            "return select(2, pcall(function() return bit.ror(nil, 1) end))",
            "$66\r\nuser_script:1: bad argument #1 to 'ror' (number expected, got nil)\r\n",
        ),
        (
            "return select(2, pcall(function() rawset(1, 2, 3) end))",
            "$71\r\nuser_script:1: bad argument #1 to 'rawset' (table expected, got number)\r\n",
        ),
        ("return redis.error_reply('a\\0b').err", "$5\r\nERR a\r\n"),
        ("return redis.error_reply('-CODE a\\0b').err", "$6\r\nCODE a\r\n"),
        ("return {big_number = '1\\r\\n2'}", "$4\r\n1  2\r\n"),
        ("return cjson.decode('[1]\\0x')", "*1\r\n:1\r\n"),
        (
            "return select(2, pcall(cjson.decode, '\"abc\\0\"'))",
            "$64\r\nExpected value but found unexpected end of string at character 5\r\n",
        ),
        (
            "return select(2, pcall(cjson.decode, '[-]'))",
            "$54\r\nExpected value but found invalid number at character 2\r\n",
        ),
        (
            "return select(2, pcall(cjson.decode, '[nope]'))",
            "$53\r\nExpected value but found invalid token at character 2\r\n",
        ),
        (
            "return select(2, pcall(function() return {struct.unpack('b', 'a', 0)} end))",
            "$72\r\nuser_script:1: bad argument #3 to 'unpack' (offset must be 1 or greater)\r\n",
        ),
        ("return cjson.decode('+3')", ":3\r\n"),
        (
            "return select(2, pcall(cjson.encode, {[true] = 1}))",
            "$62\r\nCannot serialise boolean: table key must be a number or string\r\n",
        ),
        ("return redis.setresp(3.99)", "$-1\r\n"),
        (
            "return select(2, pcall(function() local x = cmsgpack.unpack(string.rep('a', 8193)) return x end))",
            "$103\r\nuser_script:1: stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)\r\n",
        ),
    ] {
        assert_eq!(bench.eval(script), reply, "{script}");
    }
}
