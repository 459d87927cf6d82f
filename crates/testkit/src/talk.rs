//! Conversations with RESP clients over a [`Local`] server, in words: `say(1, "SET k v")`.

use crate::local::{Local, LocalConnection};

/// Some clients of one server; a client connects when it sends for the first time.
#[derive(Debug)]
pub struct Talk {
    local: Local,
    clients: Vec<Option<LocalConnection>>,
}

impl Talk {
    /// A fresh server with these options.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(options: &[&str]) -> Talk {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        Talk { local: Local::new(&options).expect("a server"), clients: Vec::new() }
    }

    /// Sends a command whose words are separated by spaces (`""` is an empty word); returns the reply, with spaces for line ends.
    pub fn say(&mut self, client: usize, command: &str) -> String {
        let words: Vec<&[u8]> =
            command.split(' ').map(|word| if word == "\"\"" { &b""[..] } else { word.as_bytes() }).collect();
        self.send(client, &encode(&words))
    }

    /// Sends bytes as they are; returns what has come back since, with spaces for line ends.
    pub fn send(&mut self, client: usize, bytes: &[u8]) -> String {
        if self.clients.len() <= client {
            self.clients.resize_with(client + 1, || None);
        }
        let mut connection = self.clients[client].take().unwrap_or_else(|| self.local.connection());
        self.local.exchange(&mut connection, bytes);
        self.clients[client] = Some(connection);
        for delivery in self.local.deliveries() {
            self.clients.iter_mut().flatten().for_each(|connection| connection.deliver(&delivery));
        }
        self.heard(client)
    }

    /// Returns what a client has received since the last call, with spaces for line ends.
    pub fn heard(&mut self, client: usize) -> String {
        let Some(Some(connection)) = self.clients.get_mut(client) else { return String::new() };
        let text = String::from_utf8_lossy(connection.sent()).trim_end().replace("\r\n", " ");
        connection.forget();
        text
    }

    /// Ends a client's connection.
    pub fn hang_up(&mut self, client: usize) {
        self.clients[client] = None;
    }

    /// Whether the session has closed the connection.
    pub fn is_closed(&self, client: usize) -> bool {
        self.clients[client].as_ref().is_none_or(LocalConnection::is_closed)
    }

    /// The server.
    pub fn local(&mut self) -> &mut Local {
        &mut self.local
    }
}

/// Lets clients send their commands, one after another; the reply to each must be the text behind it.
///
/// # Panics
/// At the first reply that is another one.
pub fn expect(talk: &mut Talk, lines: &[(usize, &str, &str)]) {
    for (n, &(client, command, reply)) in lines.iter().enumerate() {
        assert_eq!(talk.say(client, command), reply, "line {n}: client {client}: {command}");
    }
}

/// A request of these arguments.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// As [`encode`], of arguments that are text.
pub fn encode_text(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    encode(&words)
}
