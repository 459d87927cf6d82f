//! Servers that listen elsewhere than on a port of 127.0.0.1.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_lab::contender::Target;
use larder_testkit::PATIENCE;

/// A server that is stopped when this value is dropped.
pub struct Serving(Child);

impl Serving {
    /// Starts a server with these options, and waits until it replies as `target`. Returns `None` if it ended
    /// because another process has its port.
    pub fn start(options: &[&str], target: &str) -> Option<Serving> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let command = command
            .args(["serve", "--http-port", "0"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut serving = Serving(command.spawn().unwrap());
        let (control, began) = (Target::parse(target).unwrap().control(), Instant::now());
        while !control.answers() {
            if serving.0.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(began.elapsed() < PATIENCE, "{target} does not answer");
            thread::sleep(Duration::from_millis(10));
        }
        Some(serving)
    }

    /// Starts a server at [::1] for the protocol of `scheme`, on a port that is appended to these options;
    /// returns it with its target. Returns `None` if the machine has no IPv6.
    pub fn at_ipv6(scheme: &str, options: &[&str]) -> Option<(Serving, String)> {
        let free = || TcpListener::bind("[::1]:0").ok()?.local_addr().ok().map(|at| at.port().to_string());
        let start = || {
            let port = free()?;
            let target = format!("a={scheme}://[::1]:{port}");
            let options = [&["-l", "::1"][..], options, &[port.as_str()]].concat();
            Some((Serving::start(&options, &target)?, target))
        };
        free()?;
        // Another process may take a port after it was found free.
        Some((0..5).find_map(|_| start()).expect("a server at [::1]"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
