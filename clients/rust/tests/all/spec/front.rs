//! Both clients as the cases use them: with calls that block.

use super::words::{failed, found, plain, reported};
use larder_client::{
    Builder, Client, Delete, Error, Incr, Lease, Leasing, Meta, Set, Stored, Ticket, Ttl, Value, Want,
    Window, tokio,
};
use std::sync::OnceLock;

/// The calls of the cases.
pub trait Front: Sized {
    /// The client's name in messages of failed tests.
    const NAME: &'static str;
    /// Calls that the client lacks: values that are streamed, the server's statistics.
    const ABSENT: &'static [&'static str];

    fn build(builder: Builder) -> Result<Self, Error>;
    fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error>;
    fn get_with(&self, key: &[u8], want: Want, buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error>;
    fn get_and_touch(&self, key: &[u8], ttl: Ttl, buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error>;
    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Set<'a, Self>;
    fn store(set: Set<'_, Self>) -> Result<Stored, Error>;
    fn delete<'a>(&'a self, key: &'a [u8]) -> Delete<'a, Self>;
    fn remove(delete: Delete<'_, Self>) -> Result<bool, Error>;
    fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error>;
    fn incr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a, Self>;
    fn decr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a, Self>;
    fn count(incr: Incr<'_, Self>) -> Result<Option<u64>, Error>;
    fn get_or_lease(&self, key: &[u8], leasing: Leasing, buffer: &mut Vec<u8>) -> Result<Lease, Error>;
    fn fill(&self, key: &[u8], value: &[u8], ttl: Ttl, lease: &Lease) -> Result<Stored, Error>;
    fn versions(&self) -> Vec<(String, Result<String, Error>)>;
    fn flush_all(&self) -> Result<(), Error>;
    /// Runs a batch of gets; returns its results as text.
    fn many(&self, keys: &[Vec<u8>]) -> String;
    /// Runs a batch of these requests; returns its results as text.
    fn batch(&self, parts: &str) -> String;
    /// Runs a stream of these requests; returns its report as text.
    fn stream(&self, quiet: bool, parts: &str) -> String;
    /// Reads a value piece by piece, if the client can.
    fn get_to(&self, _key: &[u8], _to: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        unreachable!("it is absent")
    }
    /// Stores the bytes of a reader, which should be `bytes`, if the client can.
    fn store_from(_set: Set<'_, Self>, _from: &[u8], _bytes: u64) -> Result<Stored, Error> {
        unreachable!("it is absent")
    }
}

/// A request of a batch.
enum Of {
    Get(Ticket<Option<Value>>),
    Set(Ticket<Stored>),
    Delete(Ticket<bool>),
    Incr(Ticket<Option<u64>>),
}

/// The result of a call of the blocking client, unchanged.
fn returned<T>(result: T) -> T {
    result
}

/// The result of a call of the async client, which it runs.
fn awaited<F: Future>(future: F) -> F::Output {
    static RUNTIME: OnceLock<::tokio::runtime::Runtime> = OnceLock::new();
    let start = || ::tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    RUNTIME.get_or_init(|| start().expect("a runtime")).block_on(future)
}

/// Splits `set:k:v` into verb, key and value.
fn split(part: &str) -> (&str, &[u8], &[u8]) {
    let mut words = part.split(':');
    let (verb, key) = (words.next().expect("a verb"), words.next().expect("a key").as_bytes());
    (verb, key, words.next().unwrap_or_default().as_bytes())
}

macro_rules! front {
    ($client:ty, $name:literal, $build:ident, $finish:path, $absent:expr, { $($more:tt)* }) => {
        impl Front for $client {
            const NAME: &'static str = $name;
            const ABSENT: &'static [&'static str] = &$absent;

            $($more)*

            fn build(builder: Builder) -> Result<Self, Error> {
                builder.$build()
            }

            fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
                $finish(<$client>::get_into(self, key, buffer))
            }

            fn get_with(&self, key: &[u8], want: Want, buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
                $finish(<$client>::get_with(self, key, want, buffer))
            }

            fn get_and_touch(
                &self,
                key: &[u8],
                ttl: Ttl,
                buffer: &mut Vec<u8>,
            ) -> Result<Option<Meta>, Error> {
                $finish(<$client>::get_and_touch(self, key, ttl, buffer))
            }

            fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Set<'a, Self> {
                <$client>::set(self, key, value)
            }

            fn store(set: Set<'_, Self>) -> Result<Stored, Error> {
                $finish(set.send())
            }

            fn delete<'a>(&'a self, key: &'a [u8]) -> Delete<'a, Self> {
                <$client>::delete(self, key)
            }

            fn remove(delete: Delete<'_, Self>) -> Result<bool, Error> {
                $finish(delete.send())
            }

            fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
                $finish(<$client>::touch(self, key, ttl))
            }

            fn incr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a, Self> {
                <$client>::incr(self, key, delta)
            }

            fn decr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a, Self> {
                <$client>::decr(self, key, delta)
            }

            fn count(incr: Incr<'_, Self>) -> Result<Option<u64>, Error> {
                $finish(incr.send())
            }

            fn get_or_lease(
                &self,
                key: &[u8],
                leasing: Leasing,
                buffer: &mut Vec<u8>,
            ) -> Result<Lease, Error> {
                $finish(<$client>::get_or_lease(self, key, leasing, buffer))
            }

            fn fill(&self, key: &[u8], value: &[u8], ttl: Ttl, lease: &Lease) -> Result<Stored, Error> {
                $finish(<$client>::fill(self, key, value, ttl, lease))
            }

            fn versions(&self) -> Vec<(String, Result<String, Error>)> {
                $finish(<$client>::versions(self))
            }

            fn flush_all(&self) -> Result<(), Error> {
                $finish(<$client>::flush_all(self))
            }

            fn many(&self, keys: &[Vec<u8>]) -> String {
                let mut batch = <$client>::batch(self);
                let tickets: Vec<_> = keys.iter().map(|key| batch.get(key)).collect();
                let done = $finish(batch.run());
                let results: Vec<_> = tickets.iter().map(|ticket| done.value(ticket)).collect();
                let all = results.iter().find_map(|result| result.as_ref().err());
                let all = all.map(|error| format!("all: {}", failed(error)));
                let each = results.iter().map(|result| match result {
                    Ok(Some((bytes, meta))) => found(bytes, meta),
                    Ok(None) => "miss".to_owned(),
                    Err(error) => failed(error),
                });
                each.chain(all).collect::<Vec<_>>().join("; ")
            }

            fn batch(&self, parts: &str) -> String {
                let mut batch = <$client>::batch(self);
                let mut tickets = Vec::new();
                for (verb, key, value) in parts.split(',').map(split) {
                    tickets.push(match verb {
                        "get" => Of::Get(batch.get(key)),
                        "set" => Of::Set(batch.set(key, value, Ttl::Forever)),
                        "delete" => Of::Delete(batch.delete(key)),
                        "incr" => Of::Incr(batch.incr(key, 1)),
                        _ => panic!("{parts}"),
                    });
                }
                let done = $finish(batch.run());
                let text = |value: &[u8], number: u64| format!("value={} number={number}", plain(value));
                let told = |result: Result<Option<String>, Error>| match result {
                    Ok(Some(text)) => text,
                    Ok(None) => "miss".to_owned(),
                    Err(error) => failed(&error),
                };
                let each = tickets.into_iter().map(|ticket| {
                    told(match ticket {
                        Of::Get(ticket) => done.take(ticket).map(|got| got.map(|got| text(&got.bytes, 0))),
                        Of::Set(ticket) => done.take(ticket).map(|_| Some(text(b"", 0))),
                        Of::Delete(ticket) => done.take(ticket).map(|was| was.then(|| text(b"", 0))),
                        Of::Incr(ticket) => done.take(ticket).map(|n| n.map(|n| text(b"", n))),
                    })
                });
                each.collect::<Vec<_>>().join("; ")
            }

            fn stream(&self, quiet: bool, parts: &str) -> String {
                let mut stream = match quiet {
                    true => <$client>::quiet(self),
                    false => <$client>::stream(self, Window::default()),
                };
                for (verb, key, value) in parts.split(',').map(split) {
                    let sent = match verb {
                        "set" => $finish(stream.set(key, value, Ttl::Forever)),
                        "delete" => $finish(stream.delete(key)),
                        _ => panic!("{parts}"),
                    };
                    sent.expect("its key is good");
                }
                reported(&$finish(stream.barrier()))
            }
        }
    };
}

front!(Client, "blocking", build, returned, ["stats"], {
    fn get_to(&self, key: &[u8], to: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        Client::get_to(self, key, Want::default(), to)
    }

    fn store_from(set: Set<'_, Self>, mut from: &[u8], bytes: u64) -> Result<Stored, Error> {
        set.send_from(&mut from, bytes)
    }
});
front!(tokio::Client, "tokio", build_tokio, awaited, ["stats", "get-to", "set-from"], {});
