//! Parameters by Redis's names: what each may be set to, and the texts that were set and are not kept elsewhere.

mod parameter;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use larder_store::{Eviction, Store};

pub(crate) use parameter::{PARAMETERS, Parameter};

/// The eviction that a policy's name stands for.
pub(super) fn eviction(policy: &str) -> Eviction {
    match policy {
        "noeviction" => Eviction::Off,
        "volatile-ttl" => Eviction::VolatileTtl,
        name if name.starts_with("volatile-") => Eviction::Volatile,
        _ => Eviction::All,
    }
}

/// The texts of parameters that were set. Those of most parameters that take effect are kept elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Mutex<BTreeMap<&'static str, String>>);

impl Parameters {
    /// The text of a parameter that is kept here: what it was set to, or its default.
    pub fn text(&self, name: &str) -> String {
        if let Some(text) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return text.clone();
        }
        PARAMETERS.iter().find(|one| one.name == name).map_or(String::new(), |one| one.default.into())
    }

    /// Visits each parameter that was set and is kept here, except passwords.
    pub fn each_set(&self, visit: &mut dyn FnMut(&'static str, &str)) {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = set.iter().filter(|(name, _)| !is_password(name));
        shown.for_each(|(name, text)| visit(name, text));
    }

    /// The policy's name: the one that was set, if that still stands for what the store does.
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

    /// Keeps the text that a parameter was set to.
    pub(super) fn set(&self, name: &'static str, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, text);
    }
}

/// Whether a parameter of this name holds a password.
pub(crate) fn is_password(parameter: &str) -> bool {
    SECRETS.contains(&parameter)
}

/// Parameters that hold passwords, here or in other servers that this one may be taken for.
pub(super) const SECRETS: [&str; 6] = [
    "requirepass",
    "masterauth",
    "primaryauth",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
    "sentinel-pass",
];
