//! The HTTP thread of a world, and its scrapers. They have a network and random draws of their own, and act beside all
//! others: in each step one of them at most.
//!
//! Time and the server are the world's. A turn of the HTTP thread gives no worker anything to do, and the
//! thread answers even while workers stand still.

use std::ops::RangeInclusive;
use std::sync::Arc;

use larder_eventloop::Millis;
use larder_eventloop::sim::{Due, Network, Peer, Weather};
use larder_server::{HttpServer, Hub};

use crate::world::books::Bytes;
use crate::world::lobby::{HttpSim, Lobby};
use crate::world::plan::{Memory, Plan};
use crate::world::random::Random;
use crate::world::scene::Scene;
use crate::world::scraper::{Scraper, Stage};
use crate::world::scrapes::Scrapes;

/// The part of the seed from which the HTTP thread and its scrapers draw.
const DRAWS: u64 = 0x6874_7470;

/// A thread whose connections move no byte takes no more turns in [`WINDOW_MS`].
const IDLE_TURNS_MAX: u64 = 500;
const WINDOW_MS: Millis = 100;

/// Time until the page that [`Http::ask_once_more`] asks for.
const MOMENT_MS: Millis = 50;

/// The listener's address. `CROWD`: the address of all connections of a crowd.
const LISTENER: [u8; 4] = [127, 0, 0, 1];
const CROWD: [u8; 4] = [127, 1, 1, 1];

/// The HTTP thread and what is around it.
pub struct Http {
    server: Option<HttpServer<HttpSim>>,
    lobby: Lobby,
    network: Network,
    random: Random,
    scrapers: Vec<Scraper>,
    pub scrapes: Scrapes,
    /// The thread does not run before this time.
    stalled_until: Millis,
    weather_at: Millis,
    /// Connections without requests, all from one address, and until when they stay.
    crowd: (Vec<Peer>, Millis),
    /// A crowd will still come.
    awaits_crowd: bool,
    /// Fair time, in microseconds: the thread was not stalled, and the system refused no accept.
    fair_us: u64,
    /// The window of [`WINDOW_MS`]: when it began, the turns in it, and the bytes that had moved before.
    window: (Millis, u64, u64),
    resets: bool,
    calm: bool,
}

impl Http {
    /// The HTTP thread of a server, and its scrapers.
    pub fn new(seed: u64, plan: &Plan, hub: &Arc<Hub>, scene: &Scene) -> Http {
        let mut random = Random(seed ^ DRAWS);
        let network = Network::new(random.below(u64::MAX), weather(&mut random), scene.time.clone());
        let lobby = Lobby::new(network.clone(), scene.time.clone());
        let server = HttpServer::new(Arc::clone(hub), lobby.sockets(), LISTENER.into());
        let count = 1 + random.index(2);
        let scrapers = (0..count).map(|index| {
            let left = 3 + random.below(5);
            Scraper::new(index, left, &mut random)
        });
        let scrapers = scrapers.collect();
        Http {
            server: Some(server),
            lobby,
            network,
            scrapers,
            scrapes: Scrapes::default(),
            stalled_until: 0,
            weather_at: 0,
            crowd: Default::default(),
            awaits_crowd: random.one_in(4),
            fair_us: 0,
            window: (0, 0, 0),
            resets: plan.resets,
            calm: false,
            random,
        }
    }

    fn server_due(&self, now: Millis) -> Due {
        match &self.server {
            None => Due::Never,
            Some(_) if now < self.stalled_until => Due::At(self.stalled_until),
            Some(_) => self.lobby.due(),
        }
    }

    /// Lets the thread or a scraper take a turn, if one can. `workers`: the workers' network, and their
    /// number.
    ///
    /// # Errors
    /// What is wrong.
    pub fn act(&mut self, scene: &mut Scene, workers: (&Network, usize)) -> Result<(), String> {
        if scene.now() >= self.weather_at {
            self.weather(scene);
        }
        let now = scene.now();
        let mut ready = Vec::new();
        if self.server_due(now) == Due::Now {
            ready.push(None);
        }
        let scrapers = self.scrapers.iter().enumerate();
        ready.extend(scrapers.filter(|(_, scraper)| scraper.next_at <= now).map(|(index, _)| Some(index)));
        if ready.is_empty() {
            return Ok(());
        }
        match self.random.of(&ready) {
            None => self.turn(now, workers),
            Some(index) => {
                let mut stage = Stage {
                    scene,
                    random: &mut self.random,
                    scrapes: &mut self.scrapes,
                    lobby: &self.lobby,
                    fair_us: self.fair_us,
                    resets: self.resets,
                    calm: self.calm,
                };
                self.scrapers[index].act(&mut stage)
            }
        }
    }

    /// Runs a turn of the thread; an error if it gives a worker something to do.
    fn turn(&mut self, now: Millis, (workers, count): (&Network, usize)) -> Result<(), String> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let due = || (0..count).map(|worker| workers.due(worker)).collect::<Vec<Due>>();
        let before = due();
        server.turn().map_err(|error| error.to_string())?;
        let behind = due();
        if before != behind {
            return Err(format!("workers were due {before:?}, and behind a turn of HTTP {behind:?}"));
        }
        let (began, turns, moved) = &mut self.window;
        let moves = self.network.moved(0);
        if now >= *began + WINDOW_MS || moves != *moved {
            self.window = (now, 0, moves);
            return Ok(());
        }
        *turns += 1;
        if *turns > IDLE_TURNS_MAX {
            let ms = now - *began;
            return Err(format!("the HTTP thread takes {turns} turns in {ms} ms, and moves nothing"));
        }
        Ok(())
    }

    fn weather(&mut self, scene: &mut Scene) {
        let now = scene.now();
        let random = &mut self.random;
        self.weather_at = now + 1 + random.below(20);
        if self.server.is_none() {
            return;
        }
        if random.one_in(4) {
            self.network.set_weather(weather(random));
        }
        if now >= self.crowd.1 && !self.crowd.0.is_empty() {
            // Each is reset or ended: the server would keep a connection that is merely silent for a minute.
            for peer in self.crowd.0.drain(..) {
                if random.one_in(2) { peer.reset() } else { peer.end() }
            }
        }
        if self.calm {
            return;
        }
        if random.one_in(40) {
            self.stalled_until = now + random.below(300);
            scene.note(&format!("the HTTP thread is stalled until {}", self.stalled_until));
        }
        if random.one_in(40) {
            self.lobby.refuse(now + random.below(100));
            scene.note("accepts of HTTP connections are refused for a while");
        }
        if self.awaits_crowd && random.one_in(5) {
            self.awaits_crowd = false;
            let count = 10 + random.index(30);
            let connect = |_| self.lobby.connect(CROWD.into());
            self.crowd = ((0..count).map(connect).collect(), now + 50 + random.below(200));
            scene.note(&format!("{count} HTTP connections come from one address, and ask nothing"));
        }
    }

    /// Of `us`, in which nothing else of the world can act: the time until the thread or a scraper can.
    pub fn idle_us(&mut self, scene: &Scene, us: u64) -> u64 {
        let now = scene.now();
        let server = match self.server_due(now) {
            Due::Now => now,
            Due::At(at) => at,
            Due::Never => Millis::MAX,
        };
        let at = self.scrapers.iter().map(|scraper| scraper.next_at).min().unwrap_or(Millis::MAX).min(server);
        match at.saturating_mul(1000).saturating_sub(scene.time.now_us()) {
            0 => us.min(1 + self.random.below(40)),
            until => us.min(until),
        }
    }

    /// Notes that time has passed.
    pub fn pass(&mut self, us: u64, now: Millis) {
        if now >= self.stalled_until && !self.lobby.refuses() {
            self.fair_us += us;
        }
    }

    /// True if scrapers have asked everything, and have all answers.
    pub fn is_done(&self) -> bool {
        self.scrapers.iter().all(Scraper::is_done)
    }

    /// The scrapers' states, for messages.
    pub fn shown(&self) -> String {
        let open = self.scrapers.iter().filter(|scraper| !scraper.is_done());
        open.map(Scraper::shown).collect::<Vec<_>>().join("; ")
    }

    /// Ends the thread. Requests without an answer stay so.
    pub fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.end();
        }
        self.lobby.close();
        self.crowd.0.clear();
        self.scrapers.iter_mut().for_each(Scraper::stop);
    }

    /// From now on nothing is cut, and a scraper asks for one page of all metrics after [`MOMENT_MS`].
    pub fn ask_once_more(&mut self, now: Millis) {
        self.calm = true;
        if let Some(scraper) = self.scrapers.first_mut() {
            (scraper.left, scraper.next_at) = (1, now + MOMENT_MS);
        }
    }

    /// True if [`Http::ask_once_more`] was called.
    pub fn is_calm(&self) -> bool {
        self.calm
    }

    /// Compares the newest page with what clients did; no request is under way.
    ///
    /// # Errors
    /// What does not agree.
    pub fn agrees(&self, scene: &Scene) -> Result<(), String> {
        let (plan, books) = (&scene.plan, &scene.books);
        let accepted = scene.door.accepted();
        let Bytes { sent, unsure, received } = books.bytes;
        // A request that is refused at its head is answered before the server receives the rest of it.
        let takes_all = plan.memory == Memory::Ample && !plan.users;
        let read_min = if takes_all { sent.saturating_sub(unsure) } else { 0 };
        // A client's reset loses bytes that the server has written. So does the end of a TLS connection with
        // encrypted bytes that still wait for room.
        let written_max = if self.resets || plan.speaks_tls() { u64::MAX } else { received };
        let published: Vec<(u64, u64)> = books.channels.iter().map(|channel| channel.bounds()).collect();
        let surely: u64 = published.iter().map(|(surely, _)| surely).sum();
        // In worlds with users other clients' PUBLISH is refused, and may be counted.
        let perhaps = if plan.users { u64::MAX } else { published.iter().map(|(_, most)| most).sum() };
        let sums: [(&str, RangeInclusive<u64>); 6] = [
            ("memcached_connections_total", accepted..=accepted),
            ("redis_connections_received_total", accepted..=accepted),
            ("memcached_read_bytes_total", read_min..=sent),
            ("memcached_written_bytes_total", received..=written_max),
            ("redis_net_output_bytes_total", received..=written_max),
            ("redis_commands_total{cmd=\"publish\"}", surely..=perhaps),
        ];
        for (series, right) in sums {
            let value = self.scrapes.latest(series);
            if !right.contains(&value) {
                return Err(format!("{series} is {value}, and clients have done {right:?}"));
            }
        }
        Ok(())
    }
}

/// The weather of some time. Pages are long: they never come byte by byte.
fn weather(random: &mut Random) -> Weather {
    let receive_max = random.of(&[1, 100, 4096, usize::MAX, usize::MAX]);
    let send_max = random.of(&[300, 4096, usize::MAX, usize::MAX]);
    let window = random.of(&[500, 8 << 10, 64 << 10, 256 << 10, 256 << 10]);
    Weather { receive_max, send_max, window, arbitrary: !random.one_in(3) }
}
