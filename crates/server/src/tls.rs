//! The options of TLS, in both families: memcached's `-Z` and `-o ssl_…` for the cache port, Redis's `tls-…` for
//! `--tls-port`.
//!
//! Certificate, key and authorities are one for both: a file that only one family names serves both ports, and two that
//! differ are refused. What is asked of clients, versions, ciphers and resumption are each port's own, since memcached and
//! Redis begin with different ones. `tls-…` can be set while the server runs ([`set`]).

use std::path::{Path, PathBuf};

use larder_tls::{ClientAuth, ClientUser, Options, Version, cipher_names, suite_names};

use crate::config::Config;
use crate::listen::{AddressTls, ListenAddress};
use crate::values::{number, yes_or_no};

/// The two families' TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// TLS of the listeners that `-p` and `-l` say, with `-Z`.
    pub cache: Options,
    /// TLS of `--tls-port`.
    pub redis: Options,
}

impl Default for TlsOptions {
    /// What each protocol's users expect: memcached asks clients for no certificate and resumes no sessions, Redis does.
    fn default() -> TlsOptions {
        let redis = Options {
            clients: ClientAuth::Required,
            resumption: true,
            ticket_lifetime_s: 300,
            ..Options::default()
        };
        TlsOptions { cache: Options::default(), redis }
    }
}

impl TlsOptions {
    /// Gives both families the files that one of them names.
    ///
    /// # Errors
    /// If both name a file, and these differ.
    pub(crate) fn join(&mut self) -> Result<(), String> {
        let TlsOptions { cache, redis } = self;
        join("-o ssl_chain_cert", &mut cache.chain, "--tls-cert-file", &mut redis.chain)?;
        join("-o ssl_key", &mut cache.key, "--tls-key-file", &mut redis.key)?;
        let mut authorities =
            [&mut cache.authorities, &mut redis.authorities].map(|path| path.take().unwrap_or_default());
        let [of_cache, of_redis] = &mut authorities;
        join("-o ssl_ca_cert", of_cache, "--tls-ca-cert-file", of_redis)?;
        [cache.authorities, redis.authorities] =
            authorities.map(|path| (!path.as_os_str().is_empty()).then_some(path));
        cache.authorities_folder.clone_from(&redis.authorities_folder);
        redis.key_format = cache.key_format;
        Ok(())
    }

    /// Gives the cache's listeners the files of Redis's.
    pub(crate) fn follow_redis(&mut self) {
        let TlsOptions { cache, redis } = self;
        cache.chain.clone_from(&redis.chain);
        cache.key.clone_from(&redis.key);
        cache.authorities.clone_from(&redis.authorities);
        cache.authorities_folder.clone_from(&redis.authorities_folder);
    }

    /// Options of the HTTP listener: any client, since browsers and monitors show no certificates, and tickets, since
    /// they come again and again. No authorities, which would be read for nothing.
    pub(crate) fn http(&self) -> Options {
        let Options { chain, key, key_format, .. } = self.redis.clone();
        Options { chain, key, key_format, resumption: true, ticket_lifetime_s: 300, ..Options::default() }
    }

    /// These options with the files of Redis's.
    pub(crate) fn with_files_of(&self, options: &Options) -> Options {
        let Options { chain, key, key_format, authorities, authorities_folder, .. } = self.redis.clone();
        Options { chain, key, key_format, authorities, authorities_folder, ..options.clone() }
    }
}

fn join(name: &str, path: &mut PathBuf, other_name: &str, other: &mut PathBuf) -> Result<(), String> {
    let is_unset = |path: &Path| path.as_os_str().is_empty();
    if is_unset(path) {
        path.clone_from(other);
    } else if is_unset(other) {
        other.clone_from(path);
    } else if path != other {
        let (path, other) = (path.display(), other.display());
        return Err(format!(
            "{name} {path}, {other_name} {other}: one file serves both ports, and these are two"
        ));
    }
    Ok(())
}

/// Names of the options that one family's TLS needs.
struct Names {
    on: &'static str,
    chain: &'static str,
    key: &'static str,
    authorities: &'static str,
}

const CACHE: Names = Names {
    on: "-Z",
    chain: "-o ssl_chain_cert",
    key: "-o ssl_key",
    authorities: "-o ssl_ca_cert, or -o ssl_verify_mode=0",
};

const REDIS: Names = Names {
    on: "--tls-port",
    chain: "--tls-cert-file",
    key: "--tls-key-file",
    authorities: "--tls-ca-cert-file, --tls-ca-cert-dir, or --tls-auth-clients no",
};

const HTTP: Names = Names {
    on: "--http-tls",
    chain: "--tls-cert-file or -o ssl_chain_cert",
    key: "--tls-key-file or -o ssl_key",
    authorities: "no authorities",
};

/// Checks that listeners have what their TLS needs.
///
/// # Errors
/// The option that is missing, or contradicts another.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    let speaks_of_it = |listed: &&ListenAddress| listed.tls.is_some();
    if let Some(listed) = config.listen.iter().find(speaks_of_it).filter(|_| !config.tls) {
        return Err(format!("-l {}: its prefix is about TLS and needs -Z", listed.host));
    }
    if config.tls {
        if config.unix_socket.is_some() || config.text_port().is_none() && config.listen.is_empty() {
            return Err("-Z: You cannot enable SSL without a TCP port.".into());
        }
        check_family(&config.tls_options.cache, &CACHE)?;
        let is_mutual = |listed: &ListenAddress| listed.tls == Some(AddressTls::Mutual);
        if config.listen.iter().any(is_mutual) && !has_authorities(&config.tls_options.cache) {
            return Err("-l mtls: needs -o ssl_ca_cert".into());
        }
    }
    if config.redis_tls_port.is_some() {
        check_family(&config.tls_options.redis, &REDIS)?;
    }
    if config.http_tls {
        if config.http_port.is_none() {
            return Err("--http-tls, --http-port 0: TLS for HTTP, which is off".into());
        }
        check_family(&config.tls_options.http(), &HTTP)?;
    }
    Ok(())
}

fn has_authorities(options: &Options) -> bool {
    options.authorities.is_some() || options.authorities_folder.is_some()
}

fn check_family(options: &Options, names: &Names) -> Result<(), String> {
    let needs = |missing: bool, name: &str| match missing {
        true => Err(format!("{} needs {name}", names.on)),
        false => Ok(()),
    };
    needs(options.chain.as_os_str().is_empty(), names.chain)?;
    needs(options.key.as_os_str().is_empty(), names.key)?;
    needs(options.clients != ClientAuth::None && !has_authorities(options), names.authorities)
}

/// Sets a parameter of Redis's by its name, `tls-` in front.
///
/// # Errors
/// Why the value cannot be, without the name.
pub(crate) fn set(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    let path = || (!value.is_empty()).then(|| PathBuf::from(value));
    match name {
        "tls-cert-file" => options.chain = value.into(),
        "tls-key-file" => options.key = value.into(),
        "tls-ca-cert-file" => options.authorities = path(),
        "tls-ca-cert-dir" => options.authorities_folder = path(),
        "tls-auth-clients" => {
            options.clients = match value.to_ascii_lowercase().as_str() {
                "yes" => ClientAuth::Required,
                "optional" => ClientAuth::Optional,
                "no" => ClientAuth::None,
                _ => return Err("yes, no or optional".into()),
            }
        }
        "tls-auth-clients-user" => {
            options.client_user = match value.to_ascii_lowercase().as_str() {
                "off" => ClientUser::Off,
                "cn" => ClientUser::CommonName,
                _ => return Err("off or CN".into()),
            }
        }
        "tls-protocols" => (options.min_version, options.max_version) = versions(value)?,
        "tls-ciphers" => options.ciphers = names(value, cipher_names())?,
        "tls-ciphersuites" => options.suites = names(value, suite_names())?,
        "tls-prefer-server-ciphers" => options.prefer_own_ciphers = yes_or_no(value)?,
        "tls-session-caching" => options.resumption = yes_or_no(value)?,
        "tls-session-cache-timeout" => options.ticket_lifetime_s = number(value, 0, i32::MAX as u32)?,
        "tls-key-file-pass" if !value.is_empty() => {
            return Err("encrypted keys are not read; decrypt it with `openssl pkey`".into());
        }
        "tls-key-file-pass" => {}
        _ => return Err("there is no such parameter".into()),
    }
    Ok(())
}

/// What a parameter of Redis's is set to; `None` if [`set`] knows none of this name.
pub(crate) fn get(options: &Options, name: &str) -> Option<String> {
    let path = |path: Option<&PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
    let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
    Some(match name {
        "tls-cert-file" => path(Some(&options.chain)),
        "tls-key-file" => path(Some(&options.key)),
        "tls-ca-cert-file" => path(options.authorities.as_ref()),
        "tls-ca-cert-dir" => path(options.authorities_folder.as_ref()),
        "tls-auth-clients" => match options.clients {
            ClientAuth::Required => "yes".into(),
            ClientAuth::Optional => "optional".into(),
            ClientAuth::None => "no".into(),
        },
        "tls-auth-clients-user" => match options.client_user {
            ClientUser::Off => "off".into(),
            ClientUser::CommonName => "CN".into(),
        },
        "tls-protocols" => match (options.min_version, options.max_version) {
            // Redis's default, which stands for both.
            (Version::Tls12, Version::Tls13) => String::new(),
            (Version::Tls12, Version::Tls12) => "TLSv1.2".into(),
            (Version::Tls13, _) => "TLSv1.3".into(),
        },
        "tls-ciphers" => options.ciphers.join(":"),
        "tls-ciphersuites" => options.suites.join(":"),
        "tls-prefer-server-ciphers" => yes_or_no(options.prefer_own_ciphers),
        "tls-session-caching" => yes_or_no(options.resumption),
        "tls-session-cache-timeout" => options.ticket_lifetime_s.to_string(),
        "tls-key-file-pass" => String::new(),
        _ => return None,
    })
}

/// Reads names of ciphers with colons between; no text is no names, which stands for all.
///
/// # Errors
/// The first that is not spoken.
pub(crate) fn names(
    text: &str,
    known: impl Iterator<Item = &'static str> + Clone,
) -> Result<Vec<String>, String> {
    let is_known = |name: &str| known.clone().any(|known| known == name);
    let names = text.split(':').filter(|name| !name.is_empty());
    match names.clone().find(|name| !is_known(name)) {
        None => Ok(names.map(str::to_owned).collect()),
        Some(name) => {
            let known = known.collect::<Vec<_>>().join(":");
            Err(format!("{name} is not spoken; there are {known}"))
        }
    }
}

/// Reads versions by Redis's names: the least and the highest.
fn versions(text: &str) -> Result<(Version, Version), String> {
    let version = |word: &str| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(Version::Tls12),
        "tlsv1.3" => Ok(Version::Tls13),
        "tlsv1" | "tlsv1.1" => Err(format!("{word} is not spoken: it is not safe any more")),
        _ => Err("TLSv1.2, TLSv1.3, or both".to_owned()),
    };
    if text.is_empty() {
        return Ok((Version::Tls12, Version::Tls13));
    }
    let versions: Vec<Version> = text.split_ascii_whitespace().map(version).collect::<Result<_, _>>()?;
    let (least, highest) = (versions.iter().min(), versions.iter().max());
    least.zip(highest).map(|(&least, &highest)| (least, highest)).ok_or_else(|| "a version".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_any_order_and_old_ones_are_refused() {
        use Version::{Tls12, Tls13};
        assert_eq!(versions("TLSv1.3 TLSv1.2"), Ok((Tls12, Tls13)));
        assert_eq!(versions(" tlsv1.3"), Ok((Tls13, Tls13)));
        assert_eq!(versions(""), Ok((Tls12, Tls13)));
        for bad in [" ", "TLSv1.1 TLSv1.2", "TLSv1", "1.2"] {
            assert!(versions(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_set_is_what_is_told() {
        let mut options = TlsOptions::default().redis;
        for (name, value) in [
            ("tls-cert-file", "/c"),
            ("tls-key-file", "/k"),
            ("tls-key-file-pass", ""),
            ("tls-ca-cert-file", "/a"),
            ("tls-ca-cert-dir", "/d"),
            ("tls-auth-clients", "optional"),
            ("tls-auth-clients-user", "CN"),
            ("tls-auth-clients-user", "off"),
            ("tls-protocols", "TLSv1.3"),
            ("tls-ciphers", "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256"),
            ("tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"),
            ("tls-prefer-server-ciphers", "yes"),
            ("tls-session-caching", "no"),
            ("tls-session-cache-timeout", "60"),
        ] {
            assert_ne!((value, get(&options, name)), ("", None));
            set(&mut options, name, value).unwrap();
            assert_eq!(get(&options, name).as_deref(), Some(value), "{name}");
        }
        for (name, value) in [
            ("tls-auth-clients", "maybe"),
            ("tls-auth-clients-user", "URI"),
            ("tls-ciphers", "HIGH:!aNULL"),
            ("tls-ciphersuites", "TLS_AES_128_CCM_SHA256"),
            ("tls-session-cache-timeout", "-1"),
            ("tls-key-file-pass", "secret"),
            ("tls-nonsense", ""),
        ] {
            assert!(set(&mut options, name, value).is_err_and(|why| !why.contains("secret")), "{name}");
        }
    }

    #[test]
    fn a_file_of_one_family_serves_both_and_two_are_refused_by_both_names() {
        let mut options = TlsOptions::default();
        options.cache.chain = "/c".into();
        options.redis.key = "/k".into();
        options.redis.authorities = Some("/a".into());
        options.join().unwrap();
        assert_eq!((&options.cache.key, &options.redis.chain), (&"/k".into(), &"/c".into()));
        assert_eq!(options.cache.authorities, Some("/a".into()));
        options.cache.key = "/other".into();
        let why = options.join().unwrap_err();
        assert!(why.contains("-o ssl_key /other") && why.contains("--tls-key-file /k"), "{why}");
    }
}
