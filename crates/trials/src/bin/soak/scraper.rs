//! A scraper of the HTTP listener: whatever else happens, each of its paths answers, completely and in its
//! format.

use crate::random::Random;
use crate::world::World;
use larder_testkit::process::Server;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Longest time of an answer: the listener has its own thread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(50);

/// The address at which the server shows its figures.
///
/// # Errors
/// The server names no address.
pub fn address(server: &Server) -> Result<SocketAddr, String> {
    let output = server.output();
    let named = output.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
    named.and_then(|(text, _)| text.parse().ok()).ok_or_else(|| format!("no address for HTTP: {output}"))
}

/// Runs until the soak ends.
pub fn run(world: &World, seed: u64, address: SocketAddr) {
    let mut random = Random::of(seed, 4 << 32);
    let places = match ask(address, "/api/v1") {
        Ok(index) => places(&index),
        Err(error) => return world.complain(&format!("/api/v1: {error}")),
    };
    if places.len() < 5 {
        return world.complain(&format!("/api/v1 names {places:?}"));
    }
    while world.runs() {
        let place = random.of_list(&places);
        match ask(address, place).and_then(|body| is_whole(place, &body)) {
            Ok(()) => world.count("http: answers", 1),
            Err(error) => world.complain(&format!("{place}: {error}")),
        }
        thread::sleep(PAUSE);
    }
}

/// The paths in the index that answer with data.
fn places(index: &str) -> Vec<String> {
    let named = index.lines().filter_map(|line| line.split(' ').next());
    named.filter(|word| word.starts_with("/api/v1/") || *word == "/metrics").map(str::to_owned).collect()
}

/// Requests a path; returns the answer's body, which must be as long as the head says.
fn ask(address: SocketAddr, place: &str) -> Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(told)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    let request = format!("GET {place} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(told)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(head.lines().next().unwrap_or_default().to_owned());
    }
    if !head.contains(&format!("\r\nContent-Length: {}", body.len())) {
        return Err(format!("{} bytes, and its head says {head}", body.len()));
    }
    Ok(body.to_owned())
}

/// Checks that a body is complete and in the format of its path.
fn is_whole(place: &str, body: &str) -> Result<(), String> {
    if place.starts_with("/api/") {
        return serde_json::from_str::<serde_json::Value>(body).map(drop).map_err(|error| error.to_string());
    }
    let is_sample = |line: &str| line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
    match body.lines().find(|line| !line.starts_with('#') && !is_sample(line)) {
        Some(line) => Err(format!("no sample: {line}")),
        None if body.ends_with('\n') => Ok(()),
        None => Err("its last line does not end".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_answer_is_found() {
        assert_eq!(is_whole("/api/v1/now", "{\"a\":[1]}"), Ok(()));
        assert!(is_whole("/api/v1/now", "{\"a\":[1").is_err());
        assert_eq!(is_whole("/metrics", "# HELP a b\na{b=\"c d\"} 1.5\na +Inf\n"), Ok(()));
        for wrong in ["a b\n", "a\n", "a 1"] {
            assert!(is_whole("/metrics", wrong).is_err(), "{wrong}");
        }
    }
}
