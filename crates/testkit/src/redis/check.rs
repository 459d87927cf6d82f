//! Random streams of both protocols to a server without sockets, every reply compared with the model's.

use super::model::Model;
use super::stream::{Choices, shown};
use crate::local::{Local, START};
use crate::pattern::escaped;
use crate::talk::encode;

/// Clients that speak RESP; one more speaks memcached's protocol.
const CLIENTS: usize = 3;
/// Milliseconds that may pass at once.
const WAITS_MS: &[i64] = &[1, 499, 1001, 40_003, 100_000, 900_007];

/// Follows the choices for at most `steps` steps.
///
/// # Errors
/// The first reply that differs, with all that was sent before.
pub fn check(mut choices: Choices<'_>, steps: usize) -> Result<(), String> {
    let mut local = Local::new(&[])?;
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| local.resp_connection()).collect();
    let mut memcached = local.connection();
    let mut model = Model::new(START as i64, CLIENTS);
    let mut before = String::new();
    for _ in 0..steps {
        if choices.is_empty() {
            break;
        }
        let (sent, expected, connection) = match choices.below(16) {
            0 => {
                let ms = choices.of(WAITS_MS);
                local.shift(ms);
                local.maintain(4);
                model.wait(ms);
                before.push_str(&format!("\n  {ms} ms later"));
                continue;
            }
            1..=3 => {
                const VERBS: &[&str] = &[
                    "get", "get", "set", "add", "replace", "append", "prepend", "incr", "decr", "delete",
                    "touch",
                ];
                let verb = choices.of(VERBS);
                let key = choices.of(&[&b"a"[..], b"b", b"c", b"d", b"key:1", b"key:2"]);
                let value = choices.word('v');
                let n = choices.of(&[0, 1, 7, 99, 1000]);
                let Some((sent, expected)) = model.ask_memcached(verb, key, &value, n) else { continue };
                before.push_str(&format!("\n  memcached> {}", escaped(&sent)));
                (sent, expected, &mut memcached)
            }
            other => {
                let client = if other == 4 { 1 + choices.below(CLIENTS - 1) } else { 0 };
                let command = choices.command();
                if !model.knows(client, &command) {
                    continue;
                }
                let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                before.push_str(&format!("\n  {client}> {}", shown(&command)));
                (encode(&words), model.ask(client, &command), &mut clients[client])
            }
        };
        local.exchange(connection, &sent);
        if connection.sent() != expected {
            let (expected, got) = (escaped(&expected), escaped(connection.sent()));
            return Err(format!("after{before}\n  expected {expected}\n  got      {got}"));
        }
        connection.forget();
    }
    Ok(())
}
