//! The cases of `spec/client`: they define, for clients in any programming language, what a client sends and
//! returns. The README there has their grammar. A case's server is a thread that reads the expected bytes and
//! sends the case's replies.

mod case;
mod front;
mod played;
mod words;

use case::{Act, Call, Case, cases, unescaped};
use front::Front;
use larder_client::{Client, Dialect, Error, LeaseState, Leasing, Meta, Mode, Server, Ttl, Want, tokio};
use larder_testkit::PATIENCE;
use played::Played;
use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;
use words::{failed, found, plain, stored};

fn client<C: Front>(case: &Case, path: &Path) -> C {
    let option = |name: &str| case.with.get(name);
    let mut builder = Client::builder()
        .server(path.to_str().expect("text"))
        .timeout(if option("timeout").is_some() { Duration::from_millis(100) } else { PATIENCE })
        .dial_timeout(PATIENCE)
        .stall_timeout(PATIENCE)
        .verify(option("verify").is_some())
        .binary_keys(option("binary-keys").is_some());
    if option("retry-reads").is_some_and(|retry| retry == "no") {
        builder = builder.retry_reads(false);
    }
    match option("protocol").map(String::as_str) {
        Some("auto") => {}
        Some("classic") => builder = builder.protocol(Dialect::Classic),
        _ => builder = builder.protocol(Dialect::Meta),
    }
    if let Some(prefix) = option("prefix") {
        builder = builder.key_prefix(unescaped(prefix));
    }
    if let Some((user, password)) = option("auth").and_then(|auth| auth.split_once(':')) {
        builder = builder.auth(user, password);
    }
    C::build(builder).expect("a client")
}

impl Call {
    fn text(&self, name: &str) -> Vec<u8> {
        self.fields.get(name).map(|text| unescaped(text)).unwrap_or_default()
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.fields.get(name).and_then(|text| text.parse().ok())
    }

    fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    fn ttl(&self, name: &str) -> Ttl {
        match self.number::<f64>(name) {
            None | Some(0.0) => Ttl::Forever,
            Some(seconds) => Ttl::In(Duration::from_secs_f64(seconds)),
        }
    }

    /// Makes the call; returns its result in the words of the cases.
    fn make<C: Front>(&self, client: &C) -> String {
        let key = self.text("key");
        let value = self.text("value");
        let hit = |result: Result<Option<Meta>, Error>, bytes: &[u8]| match result {
            Ok(Some(meta)) => found(bytes, &meta),
            Ok(None) => "miss".to_owned(),
            Err(error) => failed(&error),
        };
        let yes = |result: Result<bool, Error>, word: &str| match result {
            Ok(true) => word.to_owned(),
            Ok(false) => "miss".to_owned(),
            Err(error) => failed(&error),
        };
        let mut bytes = Vec::new();
        match self.verb.as_str() {
            "get" => hit(client.get_into(&key, &mut bytes), &bytes),
            "item" => {
                let mut want = Want::default();
                for name in self.fields.get("want").iter().flat_map(|names| names.split(',')) {
                    want = want
                        | match name {
                            "flags" => Want::FLAGS,
                            "cas" => Want::CAS,
                            "ttl" => Want::TTL,
                            "size" => Want::SIZE,
                            "last-access" => Want::LAST_ACCESS,
                            "hit-before" => Want::HIT_BEFORE,
                            _ => panic!("{name}"),
                        };
                }
                if self.has("no-bump") {
                    want = want | Want::NO_BUMP;
                }
                if self.has("touch") {
                    return hit(client.get_and_touch(&key, self.ttl("touch"), &mut bytes), &bytes);
                }
                hit(client.get_with(&key, want, &mut bytes), &bytes)
            }
            "set" | "add" | "replace" | "append" | "prepend" => {
                let mode = match self.verb.as_str() {
                    "add" => Mode::Add,
                    "replace" => Mode::Replace,
                    "append" => Mode::Append,
                    "prepend" => Mode::Prepend,
                    _ => Mode::Set,
                };
                let flags = self.number("flags").unwrap_or(0);
                let mut set = client.set(&key, &value).mode(mode).ttl(self.ttl("ttl")).flags(flags);
                if let Some(cas) = self.number("cas") {
                    set = set.cas(cas);
                }
                if self.has("want-cas") {
                    set = set.want_cas();
                }
                if self.has("stale-if-older") {
                    set = set.stale_if_older();
                }
                stored(C::store(set))
            }
            "delete" | "invalidate" => {
                let mut delete = client.delete(&key);
                if let Some(cas) = self.number("cas") {
                    delete = delete.cas(cas);
                }
                for name in ["keep-stale", "serve-stale"] {
                    if self.has(name) {
                        delete = delete.keep_stale(self.ttl(name));
                    }
                }
                if self.has("empty") {
                    delete = delete.keep_empty();
                }
                yes(C::remove(delete), "deleted")
            }
            "touch" => yes(client.touch(&key, self.ttl("ttl")), "touched"),
            "incr" | "decr" => {
                let delta = self.number("delta").expect("a delta");
                let mut count =
                    if self.verb == "incr" { client.incr(&key, delta) } else { client.decr(&key, delta) };
                if self.has("create") {
                    count = count.or_make(self.number("init").unwrap_or(0), self.ttl("ttl"));
                }
                if let Some(cas) = self.number("cas") {
                    count = count.cas(cas);
                }
                match C::count(count) {
                    Ok(Some(number)) => format!("number {number}"),
                    Ok(None) => "miss".to_owned(),
                    Err(error) => failed(&error),
                }
            }
            "get-or-lease" => {
                let seconds = |name| Duration::from_secs(self.number(name).unwrap_or(0));
                let leasing = Leasing { vivify: seconds("vivify"), refresh: seconds("refresh") };
                match client.get_or_lease(&key, leasing, &mut bytes) {
                    Err(error) => failed(&error),
                    Ok(lease) => {
                        let mut text = format!("{:?}", lease.state);
                        if !matches!(lease.state, LeaseState::MissWon | LeaseState::MissWait) {
                            write!(text, " value={}", plain(&bytes)).expect("text");
                        }
                        write!(text, " cas={} ttl={}", lease.cas, lease.ttl.unwrap_or_default().as_secs())
                            .expect("text");
                        text
                    }
                }
            }
            "fill" => {
                let lease = larder_client::Lease {
                    state: LeaseState::MissWon,
                    cas: self.number("cas").expect("a token"),
                    ttl: None,
                };
                stored(client.fill(&key, &value, self.ttl("ttl"), &lease))
            }
            "get-to" => hit(client.get_to(&key, &mut bytes), &bytes),
            "set-from" => {
                let set = client.set(&key, b"").ttl(self.ttl("ttl"));
                stored(C::store_from(set, &value, self.number("size").expect("a size")))
            }
            "many" => client.many(&self.fields["keys"].split(',').map(unescaped).collect::<Vec<_>>()),
            "batch" => client.batch(&self.fields["of"]),
            "stream" | "quiet" => client.stream(self.verb == "quiet", &self.fields["of"]),
            "version" => match client.versions().pop().expect("one server").1 {
                Ok(version) => format!("version {version}"),
                Err(error) => failed(&error),
            },
            "flush" => match client.flush_all() {
                Ok(()) => "flushed".to_owned(),
                Err(error) => failed(&error),
            },
            verb => panic!("{verb}"),
        }
    }
}

/// Plays a case, and compares the results of its calls.
fn play<C: Front>(case: &Case, slowly: bool) {
    let mut server = Played::new(case, slowly);
    let client: C = client(case, &server.path);
    for call in &case.calls {
        thread::scope(|scope| {
            let played = scope.spawn(|| server.play(&call.acts));
            let want = String::from_utf8(unescaped(&call.want)).expect("text");
            let got = call.make(&client);
            let name = format!("{}, {}: {} {:?}", C::NAME, case.name, call.verb, call.fields);
            assert_eq!(got, want, "{name}, slowly {slowly}");
            played.join().expect("the server has seen what it expects");
        });
    }
    server.is_silent();
}

/// Returns whether the client has all calls of the case, and its types can express them: a negative time to
/// live they cannot.
fn is_for<C: Front>(case: &Case) -> bool {
    case.calls.iter().all(|call| !C::ABSENT.contains(&call.verb.as_str()) && !call.want.contains("bad-ttl"))
}

/// Plays a case if it applies to this client; returns whether it did.
fn play_if<C: Front>(case: &Case, slowly: bool) -> bool {
    let is_for = is_for::<C>(case);
    if is_for {
        play::<C>(case, slowly);
    }
    is_for
}

/// Plays the cases that set a timeout, or those that do not; returns how many each client has played.
fn play_all(end_soon: bool) -> [u32; 2] {
    let mut played = [0; 2];
    for case in cases().iter().filter(|case| case.with.contains_key("timeout") == end_soon) {
        for slowly in [false, true] {
            played[0] += u32::from(play_if::<Client>(case, slowly));
            played[1] += u32::from(play_if::<tokio::Client>(case, slowly));
        }
    }
    played
}

#[test]
fn what_a_client_sends_and_returns() {
    let played = play_all(false);
    assert!(played[0] > played[1] && played[1] >= 138, "{played:?} cases");
}

#[test]
#[ignore = "time: calls with a timeout of 100 ms, of which some are to be answered"]
fn what_a_client_returns_that_is_answered_late() {
    assert_eq!(play_all(true), [2; 2]);
}

#[test]
fn an_answer_that_is_cut_after_any_byte_is_lost() {
    let mut cut = 0;
    for case in cases().iter().filter(|case| case.calls.len() == 1) {
        let call = &case.calls[0];
        let several = matches!(call.verb.as_str(), "many" | "batch" | "stream" | "quiet");
        let [Act::Expect(_), Act::Answer(answer)] = call.acts.as_slice() else { continue };
        if several || call.want.contains("error") || answer.len() > 1000 {
            continue;
        }
        for bytes in 0..answer.len() {
            let mut case = case.clone();
            case.calls[0].acts[1] = Act::Answer(answer[..bytes].to_vec());
            case.calls[0].acts.push(Act::Close);
            case.calls[0].want = "error lost unknown".to_owned();
            // Without this setting the client would repeat a read.
            case.with.insert("retry-reads".to_owned(), "no".to_owned());
            cut += u32::from(play_if::<Client>(&case, false));
            play_if::<tokio::Client>(&case, false);
        }
    }
    assert!(cut > 100, "{cut} cuts");
}

#[test]
fn a_server_has_a_name_of_its_own() {
    let server = Server { name: Some("a".to_owned()), ..Server::from("/run/x") };
    let client = Client::builder().server(server).build().expect("a client");
    assert_eq!(client.server_of(b"k"), "a");
}
