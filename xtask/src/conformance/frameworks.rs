//! `cargo xtask conformance --frameworks`: frameworks that keep queues, locks, limits, caches and sessions in Redis.
//!
//! `spec/frameworks` has one project for each language, with all packages and their versions (`requirements.txt`, `go.mod`,
//! `package-lock.json`, `pom.xml`, `packages.txt`), and one program for each framework. The program does what users of the
//! framework do, with workers as processes where there are workers, and checks results and exact counts. It prints `name: ok` for
//! each check, and ends at the first failure. It connects to `REDIS_URL`. The first suite of a language installs its packages.
//!
//! Each program also runs on the newest Redis, right after Larder. It has to pass as many checks there, and both times are
//! printed.

use super::clients::{COPY_PACKAGES, SERVER_OPTIONS, copied, copy, counted};
use super::namespace::Namespace;
use super::suites::{go, pytest, succeeded, summed_up};
use super::{Counts, Program, expected_of};
use crate::install::{debian, python_environment};
use crate::peers::peer;
use crate::run::{Outcome, command, root, run};
use crate::tidy::NOTE;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// The Python interpreter with all packages, beside the programs.
const PYTHON: &str = "../python-environment/bin/python";

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    Python,
    Go,
    Node,
    Java,
    Ruby,
}

/// A framework, and the program that uses it.
#[derive(Debug)]
pub struct Framework {
    /// The suite's name.
    pub name: &'static str,
    /// The framework's name.
    title: &'static str,
    language: Language,
    /// The package that has the framework's version.
    package: &'static str,
    /// The framework's own tests, run beside the program. For Go a package and arguments; for Python the arguments of pytest; for
    /// Node the package with the tests, and the arguments of Jest.
    own_tests: &'static [&'static str],
    /// What the program tries, for people.
    tries: &'static str,
    /// Seconds of the whole suite on Larder and then on Redis 8.0, if both were measured.
    took_s: Option<(f32, f32)>,
}

/// All frameworks, the most used first.
pub const FRAMEWORKS: &[Framework] = &[
    Framework {
        name: "celery",
        title: "Celery",
        language: Language::Python,
        package: "celery",
        own_tests: &[],
        tries: "queues by priority, results, chords, retries, tasks of a megabyte, tasks for later, locks, revoking, events, tasks of a killed worker",
        took_s: Some((21.4, 21.8)),
    },
    Framework {
        name: "rq",
        title: "RQ",
        language: Language::Python,
        package: "rq",
        own_tests: &[],
        tries: "queues, results, retries, jobs and results of a megabyte, jobs for later and with dependencies, locks, unique jobs, limits, commands to workers",
        took_s: Some((5.1, 5.8)),
    },
    Framework {
        name: "bullmq",
        title: "BullMQ",
        language: Language::Node,
        package: "bullmq",
        own_tests: &[],
        tries: "queues, events, priorities, jobs and results of a megabyte, retries, delays, schedulers, flows, limits, jobs of a killed worker",
        took_s: Some((7.0, 7.3)),
    },
    Framework {
        name: "sidekiq",
        title: "Sidekiq",
        language: Language::Ruby,
        package: "ruby-sidekiq",
        own_tests: &[],
        tries: "queues in their order, exact counts, jobs of a megabyte, also for later and as retries, dead jobs, processes, jobs of one that ends",
        took_s: Some((77.5, 62.6)),
    },
    Framework {
        name: "node-resque",
        title: "node-resque",
        language: Language::Node,
        package: "node-resque",
        own_tests: &["node-resque", "--testPathIgnorePatterns", "/utils/", "/ioredis-mock"],
        tries: "queues of Resque and jobs of its scheduler: queues in their order, exact counts, one scheduler that leads, jobs for later, retries, failed jobs, unique jobs, locks, jobs of a killed worker; its own tests",
        took_s: Some((51.0, 52.2)),
    },
    Framework {
        name: "redis-lock",
        title: "redis-py's Lock",
        language: Language::Python,
        package: "redis",
        own_tests: &[],
        tries: "one holder at a time of six processes, expiry, extending",
        took_s: Some((2.1, 2.2)),
    },
    Framework {
        name: "asynq",
        title: "asynq",
        language: Language::Go,
        package: "github.com/hibiken/asynq",
        own_tests: &["github.com/hibiken/asynq/internal/rdb"],
        tries: "queues, results, retries, tasks for later, unique tasks, groups, periodic tasks, tasks of a killed server; its own tests of what it does in Redis",
        took_s: Some((79.5, 82.9)),
    },
    Framework {
        name: "dramatiq",
        title: "Dramatiq",
        language: Language::Python,
        package: "dramatiq",
        own_tests: &[],
        tries: "queues, results, retries, messages of a megabyte, delays, pipelines, groups, limits, barriers, messages of a killed worker",
        took_s: Some((9.8, 14.0)),
    },
    Framework {
        name: "huey",
        title: "Huey",
        language: Language::Python,
        package: "huey",
        own_tests: &["huey.tests.test_storage", "huey.tests.test_helpers", "-k", "not Sqlite"],
        tries: "queues by priority, results, retries, schedules, chords, locks, semaphores, limits; its own tests of what it does in Redis",
        took_s: Some((16.2, 13.5)),
    },
    Framework {
        name: "django-redis",
        title: "django-redis",
        language: Language::Python,
        package: "django-redis",
        own_tests: &[],
        tries: "Django's cache and sessions, patterns, counters, locks, sets and hashes, compression",
        took_s: Some((1.4, 1.8)),
    },
    Framework {
        name: "cacheops",
        title: "cacheops",
        language: Language::Python,
        package: "django-cacheops",
        own_tests: &[],
        tries: "answers of queries and functions, dropped by the changes that concern them, one by one and by the hundred; transactions, locks",
        took_s: None,
    },
    Framework {
        name: "flask-session",
        title: "Flask-Session",
        language: Language::Python,
        package: "Flask-Session",
        own_tests: &[],
        tries: "sessions of many clients at once, short and long ones, another ID, expiry",
        took_s: None,
    },
    Framework {
        name: "redsync",
        title: "Redsync",
        language: Language::Go,
        package: "github.com/go-redsync/redsync/v4",
        own_tests: &[],
        tries: "one holder at a time of sixteen, expiry, extending, a quorum of three",
        took_s: Some((2.6, 2.2)),
    },
    Framework {
        name: "redis-rate",
        title: "redis_rate",
        language: Language::Go,
        package: "github.com/go-redis/redis_rate/v10",
        own_tests: &[],
        tries: "a leaky bucket, exact among twenty",
        took_s: Some((2.1, 2.1)),
    },
    Framework {
        name: "limits",
        title: "limits",
        language: Language::Python,
        package: "limits",
        own_tests: &[],
        tries: "fixed, moving and sliding windows, exact among eight threads",
        took_s: Some((9.6, 10.0)),
    },
    Framework {
        name: "redlock",
        title: "node-redlock",
        language: Language::Node,
        package: "redlock",
        own_tests: &[],
        tries: "one holder at a time of sixteen, expiry, extending, several keys, a quorum of three",
        took_s: Some((2.7, 3.0)),
    },
    Framework {
        name: "rate-limit-redis",
        title: "rate-limit-redis",
        language: Language::Node,
        package: "rate-limit-redis",
        own_tests: &[],
        tries: "limits of sites by ioredis and node-redis, exact among three sites",
        took_s: Some((4.9, 4.5)),
    },
    Framework {
        name: "redisson",
        title: "Redisson",
        language: Language::Java,
        package: "redisson",
        own_tests: &[],
        tries: "locks of six kinds with one holder at a time, rates, semaphores, latches, queues, delayed queues, map caches, topics, batches, streams",
        took_s: Some((17.1, 17.1)),
    },
    Framework {
        name: "spring-session",
        title: "Spring Session",
        language: Language::Java,
        package: "spring-session-data-redis",
        own_tests: &[],
        tries: "sessions, those of a user, another id, events of sessions that are made, deleted, expired",
        took_s: Some((11.6, 11.1)),
    },
    Framework {
        name: "spring-locks",
        title: "Spring Integration",
        language: Language::Java,
        package: "spring-integration-redis",
        own_tests: &[],
        tries: "locks of both kinds with one holder at a time, expiry, metadata, groups of messages",
        took_s: Some((7.3, 7.2)),
    },
];

/// The text of docs/frameworks.md.
pub fn document() -> Outcome<String> {
    let mut page = format!("# Frameworks\n\n{NOTE}\n{}", include_str!("frameworks_intro.md"));
    page.push_str(
        "\n| framework | version | what is tried | checks | seconds, Larder / Redis 8.0 |\n|---|---|---|---|---|\n",
    );
    for framework in FRAMEWORKS {
        let Framework { name, title, language, package, tries, took_s, .. } = framework;
        let took = took_s.map_or("–".to_owned(), |(larder, redis)| format!("{larder:.1} / {redis:.1}"));
        let version = language.version(package)?;
        let checks = expected_of(name)?.passed;
        page.push_str(&format!("| {title} | {version} | {tries} | {checks} | {took} |\n"));
    }
    Ok(page)
}

impl Framework {
    /// Runs the program, and then the framework's own tests, each against a fresh server; and all of it on Redis.
    pub fn run(&self, namespace: &Namespace, program: &Program) -> Outcome<Counts> {
        let home = self.language.prepared()?;
        self.build_own_tests(&home)?;
        let (ours, took_s) = self.timed(namespace, program, &home)?;
        if program.is_redis {
            return Ok(ours);
        }
        let peer = peer("redis-server")?;
        let redis = Program { words: vec![peer.to_string_lossy().into_owned()], is_redis: true };
        let (theirs, theirs_s) =
            self.timed(namespace, &redis, &home).map_err(|error| format!("on Redis: {error}"))?;
        println!(
            "{}: {} checks in {took_s:.1} s; on Redis {} in {theirs_s:.1} s",
            self.name, ours.passed, theirs.passed
        );
        if ours == theirs { Ok(ours) } else { Err(format!("{ours:?}, but on Redis {theirs:?}")) }
    }

    /// Runs both on one server; returns the counts and the seconds that it took.
    fn timed(&self, namespace: &Namespace, program: &Program, home: &Path) -> Outcome<(Counts, f64)> {
        let began = Instant::now();
        let ours = self.run_program(namespace, program, home)?;
        let own = self.run_own_tests(namespace, program, home)?;
        let counts = Counts { passed: ours.passed + own.passed, skipped: ours.skipped + own.skipped };
        Ok((counts, began.elapsed().as_secs_f64()))
    }

    fn run_program(&self, namespace: &Namespace, program: &Program, home: &Path) -> Outcome<Counts> {
        let file = self.name.replace('-', "_");
        let (runs, words) = match self.language {
            Language::Python => (home.join(PYTHON), vec![format!("with_{file}.py")]),
            Language::Go => (home.join("bin").join(&file), vec![]),
            Language::Node => ("node".into(), vec![format!("with_{file}.js")]),
            Language::Java => {
                ("java".into(), ["-cp", "packages/*:classes", &class(self.name)].map(str::to_owned).to_vec())
            }
            Language::Ruby => ("ruby".into(), vec![format!("with_{file}.rb")]),
        };
        let mut command = namespace.command(runs);
        command.args(words).current_dir(home).env("REDIS_URL", "redis://127.0.0.1:6379/0");
        counted(namespace, program, command)
    }

    /// The path of the program of a Go framework's own tests.
    fn go_tests(&self, home: &Path) -> PathBuf {
        home.join("bin").join(self.name).with_extension("test")
    }

    /// Builds the framework's own tests, once for both servers.
    fn build_own_tests(&self, home: &Path) -> Outcome {
        let Some(package) = self.own_tests.first().filter(|_| self.language == Language::Go) else {
            return Ok(());
        };
        let mut build = go(home, &["test", "-c", "-o", &self.go_tests(home).to_string_lossy(), package]);
        build.env("GOFLAGS", "-mod=readonly");
        run(build)
    }

    fn run_own_tests(&self, namespace: &Namespace, program: &Program, home: &Path) -> Outcome<Counts> {
        let Some((package, arguments)) = self.own_tests.split_first() else {
            return Ok(Counts { passed: 0, skipped: 0 });
        };
        match self.language {
            Language::Go => {
                let _server = namespace.serve(program, SERVER_OPTIONS)?;
                let mut command = namespace.command(self.go_tests(home));
                command.arg("-test.v").args(arguments).current_dir(home);
                let output = succeeded(command)?;
                let count = |mark: &str| output.lines().filter(|line| line.starts_with(mark)).count() as u32;
                Ok(Counts { passed: count("--- PASS"), skipped: count("--- SKIP") })
            }
            Language::Python => {
                let _server = namespace.serve(program, SERVER_OPTIONS)?;
                let mut command = pytest(namespace, &home.join(PYTHON));
                command.args(["--pyargs", package]).args(arguments).current_dir(home);
                summed_up(command)
            }
            Language::Node => {
                // Jest does not look for tests below node_modules.
                let tests = home.join("own").join(package);
                copy(&home.join("node_modules").join(package), &tests)
                    .map_err(|error| format!("{}: {error}", tests.display()))?;
                let _server = namespace.serve(program, SERVER_OPTIONS)?;
                let mut command = namespace.command(home.join("node_modules/.bin/jest"));
                command.args(["--config", "jest.json", "--runInBand", "--forceExit", "--rootDir"]);
                command.arg(&tests).args(arguments).current_dir(home);
                summed_up(command)
            }
            Language::Java | Language::Ruby => Err(format!(
                "{}: tests of its own are run of Go's, Python's and Node's frameworks",
                self.name
            )),
        }
    }
}

impl Language {
    fn directory(self) -> &'static str {
        match self {
            Language::Python => "frameworks/python",
            Language::Go => "frameworks/go",
            Language::Node => "frameworks/node",
            Language::Java => "frameworks/java",
            Language::Ruby => "frameworks/ruby",
        }
    }

    /// The folder of the language's programs with everything that they need. Makes it once.
    fn prepared(self) -> Outcome<PathBuf> {
        static READY: Mutex<BTreeMap<Language, Outcome<PathBuf>>> = Mutex::new(BTreeMap::new());
        let mut ready = READY.lock().map_err(|_| "an installation has panicked")?;
        ready.entry(self).or_insert_with(|| self.prepare()).clone()
    }

    fn prepare(self) -> Outcome<PathBuf> {
        let home = copied(self.directory())?;
        let inside = |program: &str, arguments: &[&str]| {
            let mut command = command(program, arguments);
            command.current_dir(&home);
            run(command)
        };
        match self {
            Language::Python => {
                let requirements = home.join("requirements.txt");
                python_environment(
                    "frameworks/python-environment",
                    &["-r", &requirements.to_string_lossy()],
                )?;
            }
            Language::Go => {
                debian(&[("go", "golang-go")])?;
                fs::create_dir_all(home.join("bin")).map_err(|error| error.to_string())?;
                let mut build = go(&home, &["build", "-o", "bin/", "./..."]);
                // The versions are those of go.sum, or it does not build.
                build.env("GOFLAGS", "-mod=readonly");
                run(build)?;
            }
            Language::Node => {
                debian(&[("node", "nodejs"), ("npm", "npm")])?;
                inside("npm", &["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"])?;
            }
            Language::Java => {
                debian(&[("mvn", "maven"), ("javac", "default-jdk-headless")])?;
                inside("mvn", &["-q", "-B", COPY_PACKAGES, "-DoutputDirectory=packages"])?;
                inside("sh", &["-c", "javac -d classes -cp 'packages/*' src/main/java/*.java"])?;
            }
            Language::Ruby => debian(&[("ruby", "ruby"), ("sidekiq", "ruby-sidekiq")])?,
        }
        Ok(home)
    }

    /// The version of a package that its project asks for.
    fn version(self, package: &str) -> Outcome<String> {
        let manifest = match self {
            Language::Python => "requirements.txt",
            Language::Go => "go.mod",
            Language::Node => "package.json",
            Language::Java => "pom.xml",
            Language::Ruby => "packages.txt",
        };
        let path = root().join("spec").join(self.directory()).join(manifest);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        version_in(&text, package).ok_or_else(|| format!("{} says no version of {package}", path.display()))
    }
}

/// The word with digits that follows the package's name in a list of packages of any kind.
fn version_in(text: &str, package: &str) -> Option<String> {
    let is_of_name = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    let mut rest = text;
    loop {
        let at = rest.find(package)?;
        let before = rest[..at].chars().next_back();
        rest = &rest[at + package.len()..];
        if before.is_none_or(|letter| !is_of_name(letter)) && !rest.starts_with(is_of_name) {
            break;
        }
    }
    let from = rest.find(|letter: char| letter.is_ascii_digit())?;
    let word = &rest[from..];
    let end = word.find(|letter: char| !is_of_name(letter)).unwrap_or(word.len());
    Some(word[..end].to_owned())
}

/// The class of the program: `SpringSession` for `spring-session`.
fn class(name: &str) -> String {
    let words = name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]);
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_all_kinds_of_lists() {
        let version = |text, package| version_in(text, package);
        assert_eq!(version("django-redis==7.0.0\nredis==8.1.0\n", "redis").as_deref(), Some("8.1.0"));
        assert_eq!(
            version("\tgithub.com/a/asynq v0.26.0\n", "github.com/a/asynq").as_deref(),
            Some("0.26.0")
        );
        assert_eq!(version("{ \"a\": { \"bullmq\": \"6.7.0\" } }", "bullmq").as_deref(), Some("6.7.0"));
        let pom = "<artifactId>redisson</artifactId>\n  <version>3.52.0</version>";
        assert_eq!(version(pom, "redisson").as_deref(), Some("3.52.0"));
        assert_eq!(version("a==1\n", "b"), None);
    }

    #[test]
    fn the_readme_names_some_and_counts_the_others() {
        let named = ["Celery", "RQ", "BullMQ", "Sidekiq", "asynq", "Redisson", "Spring Session"];
        let others = FRAMEWORKS.iter().filter(|framework| !named.contains(&framework.title)).count();
        assert_eq!(others + named.len(), FRAMEWORKS.len());
        let readme = fs::read_to_string(root().join("README.md")).expect("it is in the repository");
        let said = format!("{} and {others} others keep", named.join(", "));
        assert!(readme.contains(&said), "README.md does not say {said:?}");
    }

    #[test]
    fn classes_are_named_as_java_does() {
        assert_eq!(class("spring-session"), "SpringSession");
    }
}
