//! The command line of `larder serve`, built from the option table.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use crate::config::Config;
use crate::extended::EXTENDED;
use crate::options::{Effect, OPTIONS, described, markdown};

/// Options whose values are shown nowhere: they hold passwords.
const SECRETS: [&str; 4] = ["requirepass", "acl-user", "tls-key-file-pass", "tls-client-key-file-pass"];

/// What a command line asks for.
#[derive(Debug)]
pub enum Request {
    /// Start a server.
    Serve(Box<Config>),
    /// Print this and stop.
    Print(String),
}

/// Reads the arguments behind `serve`.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    let program = std::iter::once(OsString::from("larder serve"));
    let matches = match command().try_get_matches_from(program.chain(arguments)) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Request::Print(error.render().to_string())),
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let reason = line.strip_prefix("error: ").unwrap_or(line);
            return Err(format!("{reason}; see larder serve --help"));
        }
    };
    let mut config = Config::default();
    for row in OPTIONS {
        let values: Vec<String> = match row.value {
            Some(_) => matches.get_many::<String>(row.name).into_iter().flatten().cloned().collect(),
            None => vec![String::new(); usize::from(matches.get_count(row.name))],
        };
        let name = row.letter.map_or(format!("--{}", row.name), |letter| format!("-{letter}"));
        for value in values {
            let is_secret = SECRETS.contains(&row.name);
            let is_shown = !value.is_empty() && !is_secret;
            let shown = if is_shown { format!("{name} {value}") } else { name.clone() };
            if let Effect::Refused(why) = row.effect {
                return Err(format!("{shown} is refused: {why}"));
            }
            (row.apply)(&mut config, &value).map_err(|why| format!("{shown}: {why}"))?;
            let value = if is_secret { "(not shown)".into() } else { value };
            config.given.push((row.name, value));
        }
    }
    // Behind the loop: an option that is refused is refused whatever else is asked for, and clients
    // find out so, by asking for the version with it, what a server can do.
    if matches.get_flag("version") {
        return Ok(Request::Print(format!("larder {}\n", env!("CARGO_PKG_VERSION"))));
    }
    if matches.get_flag("license") {
        return Ok(Request::Print("Larder is licensed under the Apache License, version 2.0.\n".into()));
    }
    if matches.get_flag("options-markdown") {
        return Ok(Request::Print(markdown()));
    }
    // These options have no effect where nothing speaks TLS, as in memcached.
    if config.tls || config.redis_tls_port.is_some() || config.http_tls {
        config.tls_options.join()?;
    }
    config.check()?;
    Ok(Request::Serve(Box::new(config)))
}

fn command() -> Command {
    let mut command = Command::new("larder serve")
        .about("A cache that memcached's and Redis's clients use unchanged.")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .term_width(100)
        .after_help(extended_help())
        .arg(flag('V', "version", "prints the version"))
        .arg(flag('i', "license", "prints the licence"))
        .arg(
            Arg::new("options-markdown")
                .long("options-markdown")
                .hide(true)
                .action(ArgAction::SetTrue)
                .help("prints the option table as Markdown"),
        );
    for row in OPTIONS {
        let mut help = described(row.help, row.effect);
        if row.value.is_some() && row.effect == Effect::Works && !row.default.is_empty() {
            help.push_str(&format!(" [default: {}]", row.default));
        }
        if row.value.is_some() && !row.range.is_empty() {
            help.push_str(&format!(" [{}]", row.range));
        }
        let mut arg = Arg::new(row.name).long(row.name).help(help);
        if let Some(letter) = row.letter {
            arg = arg.short(letter);
        }
        arg = match row.value {
            // Values may begin with a minus: `-p -1`.
            Some(value) => arg.value_name(value).action(ArgAction::Append).allow_hyphen_values(true),
            None => arg.action(ArgAction::Count),
        };
        command = command.arg(arg);
    }
    command
}

fn flag(letter: char, name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).short(letter).long(name).action(ArgAction::SetTrue).help(help)
}

fn extended_help() -> String {
    let mut text = String::from("Options of -o:\n");
    for row in EXTENDED.iter().filter(|row| row.effect == Effect::Works) {
        let value = row.value.map(|value| format!("={value}")).unwrap_or_default();
        text.push_str(&format!("  {:<28} {}\n", format!("{}{value}", row.name), row.help));
    }
    let names = |wanted: fn(Effect) -> bool| {
        let names: Vec<&str> = EXTENDED.iter().filter(|row| wanted(row.effect)).map(|row| row.name).collect();
        names.join(" ")
    };
    text.push_str(&format!(
        "\nAccepted without effect: {}\n\nRefused: {}\n",
        names(|effect| matches!(effect, Effect::Accepted(_))),
        names(|effect| matches!(effect, Effect::Refused(_))),
    ));
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn config(line: &str) -> Result<Config, String> {
        match parse(line.split_ascii_whitespace().map(OsString::from))? {
            Request::Serve(config) => Ok(*config),
            Request::Print(text) => Err(text),
        }
    }

    #[test]
    fn errors_show_no_passwords() {
        for line in
            ["--tls-key-file-pass=hunter2", "--requirepass=hunter2 --requirepass=", "--acl-user=hunter2"]
        {
            let why = config(line).err();
            assert!(why.as_ref().is_none_or(|why| !why.contains("hunter2")), "{line}: {why:?}");
        }
        assert!(config("--tls-key-file-pass=hunter2").is_err());
        let given = config("--tls-client-key-file-pass=hunter2 --tls-replication=no").unwrap().given;
        assert!(given.iter().all(|(_, value)| value != "hunter2"), "{given:?}");
    }

    #[test]
    fn letters_long_names_and_repeats_are_read() {
        let short =
            config("-p -1 -l 127.0.0.1,::1 -l [::1]:99 -m 1024 -t 2 -c 10 -I 1m -vv -M -A -U 0").unwrap();
        assert_eq!(short.port, Some(0));
        assert_eq!(short.listen.len(), 3);
        assert_eq!((short.memory_bytes, short.threads, short.connections_max), (1 << 30, 2, 10));
        assert_eq!(short.verbosity, 2);
        assert!(!short.evict && short.shutdown);
        let long =
            config("--port=5 --memory-limit 8 --threads=1 --max-item-size=2k --extended idle_timeout=9");
        let long = long.unwrap();
        assert_eq!((long.port, long.memory_bytes, long.threads), (Some(5), 8 << 20, 1));
        assert_eq!((long.item_bytes_max(), long.idle_timeout_s), (2048, 9));
        assert_eq!(config("-p11212").unwrap().port, Some(11212));
    }

    #[test]
    fn bad_and_refused_options_are_one_line_that_names_them() {
        for bad in [
            "-t 0",
            "-c 0",
            "-c -1",
            "-R 0",
            "-B http",
            "-I 1000",
            "-I 256m",
            "-m 0",
            "-m x",
            "-p 70000",
            "-U 11211",
            "-S",
            "-S -B ascii --requirepass x",
            "-S -B auto --requirepass x",
            "-S --text-auth no --requirepass x",
            "-Y /dev/null",
            "-e /x",
            "-N 4",
            "-o ext_path=/x:1g",
            "-o nonsense",
            "-o proxy_config=x",
            "-o ssl_min_version=0",
            "-a 8",
            "-a 1000",
            "-f 1",
            "-n 0",
            "-D ab",
            "-b 0",
            "--seccomp strict",
            "--seccomp",
            "--http-host 127.0.0.1 --http-port 0",
            "-p",
        ] {
            let error = config(bad).expect_err(bad);
            assert!(!error.contains('\n'), "{error}");
            assert!(error.contains(&bad[..2]), "{bad}: {error}");
        }
        assert!(config("--nonsense").unwrap_err().contains("--nonsense"));
        assert!(config("-l mtls:127.0.0.1").unwrap_err().contains("TLS"));
    }

    #[test]
    fn tls_has_all_that_it_needs_or_says_what_is_missing() {
        let pair = "-o ssl_chain_cert=/c,ssl_key=/k";
        for (line, missing) in [
            ("-Z".to_owned(), "ssl_chain_cert"),
            ("-Z -o ssl_chain_cert=/c".into(), "ssl_key"),
            (format!("-Z {pair} -p 0"), "TCP port"),
            (format!("-Z {pair} -s /s"), "TCP port"),
            (format!("-Z {pair},ssl_verify_mode=1"), "ssl_ca_cert"),
            (format!("-Z {pair} -l mtls:127.0.0.1"), "ssl_ca_cert"),
            (format!("{pair} -l btls:127.0.0.1"), "-Z"),
            (format!("{pair} -l notls:127.0.0.1"), "-Z"),
            (format!("-Z {pair} --tls-cert-file /d"), "--tls-cert-file /d"),
            ("--tls-port 1".into(), "--tls-cert-file"),
            ("--tls-port 1 --tls-cert-file /c".into(), "--tls-key-file"),
            ("--tls-port 1 --tls-cert-file /c --tls-key-file /k".into(), "--tls-ca-cert-file"),
        ] {
            let error = config(&line).expect_err(&line);
            assert!(error.contains(missing) && !error.contains('\n'), "{line}: {error}");
        }
        let text = config(&format!("-Z {pair} -l notls:127.0.0.1,btls:[::1]:99")).unwrap();
        assert!(text.tls && text.resp_port().is_none() && !text.tls_options.cache.resumption);
        assert_eq!(config(&format!("-Z {pair} --redis-port 7")).unwrap().resp_port(), Some(7));
        let redis = "--tls-port 1 --tls-cert-file /c --tls-key-file /k --tls-auth-clients no";
        let redis = config(redis).unwrap();
        assert_eq!((redis.redis_tls_port, redis.resp_port()), (Some(1), Some(6379)));
        assert!(redis.tls_options.redis.resumption);
        let two = format!("{pair} --tls-cert-file /d");
        for line in [pair, &two] {
            assert!(config(line).is_ok_and(|config| !config.tls), "as in memcached, of no effect without -Z");
        }
    }

    #[test]
    fn http_by_tls_takes_the_files_of_either_family_without_another_port() {
        let files = |line: &str| {
            let http = config(line).map(|config| config.tls_options.http());
            http.map(|http| (http.chain, http.key))
        };
        let pair: Result<(PathBuf, PathBuf), String> = Ok(("/c".into(), "/k".into()));
        for given in [
            "-o ssl_chain_cert=/c,ssl_key=/k",
            "--tls-cert-file /c --tls-key-file /k",
            "-o ssl_chain_cert=/c --tls-key-file /k",
        ] {
            assert_eq!(files(&format!("--http-tls yes {given}")), pair, "{given}");
        }
        let two = files("--http-tls yes -o ssl_chain_cert=/c,ssl_key=/k --tls-key-file /l").unwrap_err();
        assert!(two.contains("/k") && two.contains("--tls-key-file /l"), "{two}");
    }

    #[test]
    fn help_names_every_option_and_version_is_larders() {
        let help = config("--help").unwrap_err();
        let short = config("-h").unwrap_err();
        for row in OPTIONS {
            assert!(help.contains(&format!("--{}", row.name)), "{}", row.name);
            assert!(short.contains(&format!("--{}", row.name)), "{}", row.name);
        }
        for row in EXTENDED {
            assert!(help.contains(row.name), "{}", row.name);
        }
        assert_eq!(config("-V").unwrap_err(), format!("larder {}\n", env!("CARGO_PKG_VERSION")));
        assert_eq!(config("--version").unwrap_err(), config("-V").unwrap_err());
    }

    #[test]
    fn what_was_given_is_known_but_for_a_password() {
        let long = "secret".repeat(10_000);
        let refused = config(&format!("--requirepass {long}")).unwrap_err();
        assert!(refused.starts_with("--requirepass: ") && !refused.contains("secret"), "{refused}");
        let config = config("-m 128 -vv --requirepass secret -o idle_timeout=3,slab_automove").unwrap();
        let given: Vec<(&str, &str)> = config.given.iter().map(|(name, value)| (*name, &value[..])).collect();
        let expected = [
            ("requirepass", "(not shown)"),
            ("memory-limit", "128"),
            ("verbose", ""),
            ("verbose", ""),
            ("idle_timeout", "3"),
            ("slab_automove", ""),
            ("extended", "idle_timeout=3,slab_automove"),
        ];
        assert_eq!(given, expected);
    }

    #[test]
    fn the_markdown_table_has_a_row_for_every_option() {
        let page = config("--options-markdown").unwrap_err();
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, OPTIONS.len() + EXTENDED.len() + 1);
    }
}
