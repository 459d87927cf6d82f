//! The places of the listener: a path, and what is told there. The page's files (`page`) are beside them.

use std::sync::Arc;

use larder_commands::metrics::{Classes, Scene, Wanted};
use larder_commands::{Host, LastValues, Rights};
use larder_eventloop::Millis;

use super::http::{Answer, METRICS, Request, Status, TEXT, pairs};
use super::latency::{self, Latency};
use super::machine::Observed;
use super::observer::Observer;
use super::page::ASSETS;
use super::reserve::Reserve;
use super::{api, metrics, traffic};
use crate::hub::Hub;

/// What answers are made from, and what was told before.
#[derive(Debug)]
pub struct Routes {
    pub(super) hub: Arc<Hub>,
    told: LastValues,
    pub(super) observer: Observer,
    pub(super) latency: Latency,
    machine: Observed,
    /// What answers and connections take of the memory.
    pub(super) reserve: Reserve,
    /// Settings, as the server was started.
    pub(super) settings_before: Vec<(String, String)>,
    /// Requests that were answered, this one included.
    pub(super) requests: u64,
    /// Wrong passwords that were given.
    pub(super) wrong_passwords: u64,
    /// What may be shown to the client that asks now.
    reader: Rights,
    /// When samples of traffic are to be counted.
    samples_due: Millis,
}

/// Interval at which samples of traffic are counted, if there were some.
const SAMPLES_MS: Millis = 100;
/// Interval if there were more than are counted at a time.
const SAMPLES_MORE_MS: Millis = 10;
const SAMPLES_MANY: usize = 1000;
/// Interval if there were none.
const SAMPLES_IDLE_MS: Millis = 1000;

/// A place.
pub struct Route {
    /// Its path.
    pub path: &'static str,
    /// What is told there.
    pub help: &'static str,
    tell: fn(&mut Routes, &Query) -> Result<Answer, Status>,
}

/// All places.
pub const ROUTES: &[Route] = &[
    Route { path: "/api/v1", help: "these places", tell: |_, _| Ok(Answer::ok(TEXT, index())) },
    Route {
        path: "/healthz",
        help: "ok, while the server takes connections and answers",
        tell: Routes::health,
    },
    Route {
        path: "/metrics",
        help: "metrics for Prometheus; family=memcached,redis,larder and classes=memcached|larder|none say which",
        tell: Routes::metrics,
    },
    Route { path: "/api/v1/now", help: "all figures", tell: |routes, _| Ok(api::now(routes)) },
    Route {
        path: "/api/v1/findings",
        help: "what an operator should know",
        tell: |routes, _| Ok(api::findings(routes)),
    },
    Route {
        path: "/api/v1/figures",
        help: "what the figures mean",
        tell: |routes, _| Ok(api::figures(routes)),
    },
    Route {
        path: "/api/v1/classes",
        help: "figures of slab classes",
        tell: |routes, _| Ok(api::classes(routes)),
    },
    Route {
        path: "/api/v1/commands",
        help: "calls and times of RESP commands, times of memcached's",
        tell: |routes, _| Ok(api::commands(routes)),
    },
    Route {
        path: "/api/v1/connections",
        help: "connections, some at a time: from=, max=",
        tell: |routes, query| api::connections(routes, query),
    },
    Route {
        path: "/api/v1/memory",
        help: "where the memory is, use by use",
        tell: |routes, _| Ok(api::memory(routes)),
    },
    Route {
        path: "/api/v1/map",
        help: "spans of 64 KiB: whose each is, how full, how old, four bytes a cell in base64",
        tell: |routes, _| Ok(api::map(routes)),
    },
    Route {
        path: "/api/v1/slow",
        help: "commands that took long, or had large requests or replies, without their values; what held workers up",
        tell: |routes, _| Ok(api::slow(routes)),
    },
    Route {
        path: "/api/v1/hotkeys",
        help: "keys that were asked for most in the last seconds, with their shares and how sure these are: max=",
        tell: |routes, query| traffic::hot_keys(routes, query),
    },
    Route {
        path: "/api/v1/prefixes",
        help: "prefixes whose keys were asked for most in the last seconds, by the same sample: max=",
        tell: |routes, query| traffic::prefixes(routes, query),
    },
    Route {
        path: "/api/v1/latency",
        help: "how long requests waited, were worked on, and their replies waited: step=, since= as of history",
        tell: |routes, query| latency::told(routes, query),
    },
    Route {
        path: "/api/v1/ages",
        help: "how long what is there has left and was not read, by a look at some thousand items; types of values",
        tell: |routes, _| Ok(traffic::ages(routes)),
    },
    Route {
        path: "/api/v1/forecast",
        help: "the hit ratio that other memory limits would bring, with its error",
        tell: |routes, _| Ok(traffic::forecast(routes)),
    },
    Route {
        path: "/api/v1/clients",
        help: "clients that speak RESP, those with the most commands first: max=",
        tell: |routes, query| api::clients(routes, query),
    },
    Route {
        path: "/api/v1/history",
        help: "what figures were: step=1|15|120 seconds, series=a,b, since=ms of the last point that is known",
        tell: |routes, query| api::history(routes, query),
    },
    Route { path: "/api/v1/settings", help: "settings", tell: |routes, _| Ok(api::settings(routes)) },
];

/// Places that are shown without a password, also where others need one: what monitors look at, which has no keys.
const OPEN: [&str; 2] = ["/healthz", "/metrics"];

/// Whether a place is shown without a password.
pub fn is_open(path: &str) -> bool {
    OPEN.contains(&path)
}

fn index() -> String {
    let lines = ROUTES.iter().map(|route| format!("{:<22} {}\n", route.path, route.help));
    std::iter::once(concat!("larder ", env!("CARGO_PKG_VERSION"), "\n").to_owned()).chain(lines).collect()
}

/// A query: what is behind the `?`.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// The last value of a name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(found, _)| found == name).map(|(_, value)| &value[..])
    }

    /// The last value of a name as a number.
    pub(super) fn number(&self, name: &str, default: u64) -> Result<u64, Status> {
        self.value(name).map_or(Ok(default), |text| text.parse().map_err(|_| Status::BadRequest))
    }

    /// All values of a name, which may be lists with commas.
    pub(super) fn words(&self, name: &str) -> Vec<&str> {
        let values = self.0.iter().filter(|(found, _)| found == name);
        values.flat_map(|(_, value)| value.split(',')).filter(|word| !word.is_empty()).collect()
    }

    /// What a scraper asks for.
    fn wanted(&self) -> Result<Wanted, Status> {
        let mut wanted = Wanted::default();
        let families = self.words("family");
        if !families.is_empty() {
            (wanted.memcached, wanted.redis, wanted.larder) = (false, false, false);
        }
        for family in families {
            match family {
                "memcached" => wanted.memcached = true,
                "redis" => wanted.redis = true,
                "larder" => wanted.larder = true,
                _ => return Err(Status::BadRequest),
            }
        }
        wanted.classes = match self.value("classes") {
            None | Some("memcached") => Classes::Memcached,
            Some("larder") => Classes::Larder,
            Some("none") => Classes::None,
            Some(_) => return Err(Status::BadRequest),
        };
        Ok(wanted)
    }
}

/// All lines of `stats settings`.
pub(super) fn settings(hub: &Hub) -> Vec<(String, String)> {
    let mut all = Vec::new();
    hub.settings(&mut |name, value| all.push((name.to_owned(), value.to_string())));
    all
}

fn scene(hub: &Hub) -> Scene<'_> {
    Scene { host: hub, store: &hub.store, system: hub.clock.system_ms(), redis_port: hub.redis_port() }
}

impl Routes {
    /// With nothing told yet.
    pub fn new(hub: Arc<Hub>) -> Routes {
        let now = hub.clock.elapsed().as_millis() as Millis;
        let observer = Observer::new(now, &hub.shared.reading(scene(&hub)));
        let settings_before = settings(&hub);
        let latency = Latency::new(now, &hub);
        let mut machine = Observed::default();
        machine.look(now, &hub);
        let reserve = Reserve::new(&hub.store);
        Routes {
            hub,
            told: LastValues::default(),
            observer,
            latency,
            machine,
            reserve,
            settings_before,
            requests: 0,
            wrong_passwords: 0,
            reader: Rights::None,
            samples_due: now,
        }
    }

    /// When samples of traffic are to be counted.
    pub fn samples_due(&self) -> Millis {
        self.samples_due
    }

    /// Counts some samples of traffic.
    pub fn count_samples(&mut self, now: Millis) {
        let pause_ms = match self.hub.shared.count_samples(&self.hub.store, now) {
            0 => SAMPLES_IDLE_MS,
            SAMPLES_MANY.. => SAMPLES_MORE_MS,
            _ => SAMPLES_MS,
        };
        // With nothing to do the thread wakes up once, for both.
        self.samples_due = (now + pause_ms).min(self.observer.due().max(now + SAMPLES_MS));
    }

    /// Looks at the figures, for the history.
    pub fn observe(&mut self, now: Millis) {
        let scene = scene(&self.hub);
        let reading = self.hub.shared.reading(scene);
        self.machine.look(now, &self.hub);
        let findings = || self.hub.shared.findings(scene).iter().map(|finding| finding.rule.name).collect();
        self.observer.look(now, &reading, &self.hub.stalls, findings);
        self.hub.shared.look_ahead(scene, now);
        self.latency.look(now, &self.hub);
    }

    /// The answer to a client that may be shown so much; `has_room`: there is memory for one that may be long.
    pub fn answer(&mut self, request: &Request<'_>, reader: Rights, has_room: bool) -> Answer {
        self.requests += 1;
        self.reader = reader;
        if !has_room {
            return Answer::refusal(Status::Unavailable);
        }
        if let Some(asset) = ASSETS.iter().find(|asset| asset.path == request.path) {
            return Answer::ok(asset.content_type, asset.text);
        }
        let Some(route) = ROUTES.iter().find(|route| route.path == request.path) else {
            return Answer::refusal(Status::NotFound);
        };
        let answer = pairs(request.query).and_then(|pairs| (route.tell)(self, &Query(pairs)));
        answer.unwrap_or_else(Answer::refusal)
    }

    /// What figures are read from.
    pub(super) fn scene(&self) -> Scene<'_> {
        scene(&self.hub)
    }

    /// True if keys are not shown to the client that asks: by an option, or clients may not list them, or this one may not.
    pub(super) fn hides_keys(&self) -> bool {
        let config = &self.hub.config;
        config.http_hide_keys || !config.dump || self.reader != Rights::Keys
    }

    fn health(&mut self, _: &Query) -> Result<Answer, Status> {
        Ok(Answer::ok(TEXT, "ok\n"))
    }

    fn metrics(&mut self, query: &Query) -> Result<Answer, Status> {
        let wanted = query.wanted()?;
        let mut told = std::mem::take(&mut self.told);
        let mut page = larder_commands::Exposition::new(&mut told);
        if wanted.larder {
            metrics::expose(self, &mut page);
        }
        self.hub.shared.expose(self.scene(), wanted, &mut page);
        let text = page.finish();
        self.told = told;
        Ok(Answer::ok(METRICS, text))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use larder_store::Store;

    use super::*;
    use crate::admin::http::{Parsed, parse};
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::log::Log;

    fn routes(config: Config) -> Routes {
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let clock = Clock::Machine { started: Instant::now() };
        Routes::new(Arc::new(Hub::new(config, store, Vec::new(), Log::default(), clock).expect("wakers")))
    }

    #[test]
    fn names_of_keys_are_shown_to_those_who_may_list_them_unless_they_are_to_be_hidden() {
        let config = |http_hide_keys: bool, dump: bool| Config {
            threads: 1,
            http_hide_keys,
            dump,
            ..Config::default()
        };
        for (config, reader, hidden) in [
            (config(false, true), Rights::Keys, false),
            (config(false, true), Rights::Figures, true),
            (config(true, true), Rights::Keys, true),
            (config(false, false), Rights::Keys, true),
        ] {
            let mut routes = routes(config);
            for place in ["hotkeys", "prefixes", "slow"] {
                let head = format!("GET /api/v1/{place} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                let Parsed::Whole(request) = parse(head.as_bytes()) else { panic!("{head}") };
                let answer = routes.answer(&request, reader, true);
                let line = format!("\"keys_hidden\":{hidden}");
                assert!(answer.body.contains(&line), "{place}: {}", answer.body);
            }
        }
    }

    #[test]
    fn times_are_told_by_stage_and_by_protocol() {
        let head = "GET /api/v1/latency HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let Parsed::Whole(request) = parse(head.as_bytes()) else { panic!("{head}") };
        let mut routes = routes(Config { threads: 1, ..Config::default() });
        let answer = routes.answer(&request, Rights::Figures, true);
        let told: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        let rows = told["since_start"].as_array().expect("rows").iter();
        let rows: Vec<[&serde_json::Value; 3]> =
            rows.map(|row| ["protocol", "stage", "count"].map(|name| &row[name])).collect();
        let mut expected = Vec::new();
        for protocol in ["memcached", "redis"] {
            for stage in ["queue", "service", "reply"] {
                assert!(told["stages"][stage].is_object(), "{told}");
                expected.push([protocol.into(), stage.into(), serde_json::Value::from(0)]);
            }
        }
        assert_eq!(rows, expected.iter().map(|row| row.each_ref()).collect::<Vec<_>>());
    }

    fn wanted(query: &str) -> Result<Wanted, Status> {
        Query(pairs(query)?).wanted()
    }

    #[test]
    fn a_scraper_says_what_it_wants() {
        assert_eq!(wanted(""), Ok(Wanted::default()));
        let redis = Wanted { memcached: false, larder: false, ..Wanted::default() };
        assert_eq!(wanted("family=redis"), Ok(redis));
        let two = Wanted { redis: false, classes: Classes::None, ..Wanted::default() };
        assert_eq!(wanted("family=memcached%2Clarder&classes=none"), Ok(two));
        assert_eq!(wanted("family=memcached&family=larder&classes=none"), Ok(two));
        for bad in ["family=nobody", "classes=all", "family=redis,x"] {
            assert_eq!(wanted(bad), Err(Status::BadRequest), "{bad}");
        }
    }

    #[test]
    fn each_place_is_named_once_and_said_in_the_index() {
        let text = index();
        for (at, route) in ROUTES.iter().enumerate() {
            assert!(text.contains(route.help), "{}", route.path);
            assert!(ROUTES[..at].iter().all(|other| other.path != route.path), "{}", route.path);
            assert!(ASSETS.iter().all(|asset| asset.path != route.path), "{}", route.path);
        }
        for open in OPEN {
            assert!(ROUTES.iter().any(|route| route.path == open), "{open}");
        }
    }
}
