//! Parameters by Redis's names: what each may be set to, and what was set and means nothing elsewhere.

mod parameter;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use larder_store::{Eviction, Store};

pub(crate) use parameter::{PARAMETERS, Parameter};

/// What a policy's name stands for.
pub(super) fn eviction(policy: &str) -> Eviction {
    match policy {
        "noeviction" => Eviction::Off,
        "volatile-ttl" => Eviction::VolatileTtl,
        name if name.starts_with("volatile-") => Eviction::Volatile,
        _ => Eviction::All,
    }
}

/// What was set and is not kept where it means something.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Mutex<BTreeMap<&'static str, String>>);

impl Parameters {
    /// A parameter that is kept here only.
    pub fn text(&self, name: &str) -> String {
        if let Some(text) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return text.clone();
        }
        PARAMETERS.iter().find(|one| one.name == name).map_or(String::new(), |one| one.default.into())
    }

    /// Calls `visit` with each that was set and is kept here, passwords excepted.
    pub fn each_set(&self, visit: &mut dyn FnMut(&'static str, &str)) {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = set.iter().filter(|(name, _)| !is_password(name));
        shown.for_each(|(name, text)| visit(name, text));
    }

    /// The policy's name: what was set, if that still stands for what the store does.
    pub fn policy(&self, store: &Store) -> String {
        let is = store.eviction();
        let set = self.text("maxmemory-policy");
        if !set.is_empty() && eviction(&set) == is {
            return set;
        }
        let name = match is {
            Eviction::Off => "noeviction",
            Eviction::All => "allkeys-lru",
            Eviction::Volatile => "volatile-lru",
            Eviction::VolatileTtl => "volatile-ttl",
        };
        name.into()
    }

    /// Keeps what one was set to.
    pub(super) fn set(&self, name: &'static str, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, text);
    }
}

/// A parameter of this name holds a password.
pub(crate) fn is_password(parameter: &str) -> bool {
    SECRETS.contains(&parameter)
}

/// Parameters that hold passwords, here or in other servers, for which this one may be taken.
pub(super) const SECRETS: [&str; 6] = [
    "requirepass",
    "masterauth",
    "primaryauth",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
    "sentinel-pass",
];
