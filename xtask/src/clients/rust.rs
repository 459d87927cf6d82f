//! The Rust client as its users have it: in a Cargo project of their own, made as README.md says.

use super::server::Server;
use crate::run::{Outcome, capture, command, root, run, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What surrounds lines of the documents that are in no function: blocking lines, and async lines.
const WAITS: &str =
    "fn main() -> Result<(), larder_client::Error> {\nLINES\n    println!(\"{value:?}\");\n    Ok(())\n}\n";
const AWAITS: &str = "#[tokio::main]\nasync fn main() -> Result<(), larder_client::Error> {\nLINES\n    println!(\"{value:?}\");\n    Ok(())\n}\n";

/// Makes a project, adds the crate, and runs what the documents show.
pub fn rust() -> Outcome {
    let server = Server::start()?;
    let project = Project::create()?;
    project.cargo(&["add", "--quiet", "larder-client", "--features", "tokio"], Some("clients/rust"))?;
    project.cargo(&["add", "--quiet", "tokio", "--features", "macros,net,rt-multi-thread,time"], None)?;
    let mut programs = 0;
    for (document, wanted) in [("README.md", 2), ("docs/clients.md", 2)] {
        let text =
            fs::read_to_string(root().join(document)).map_err(|error| format!("{document}: {error}"))?;
        let blocks: Vec<&str> = text
            .split("```rust\n")
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap_or_default())
            .collect();
        if blocks.len() != wanted {
            return Err(format!("{document} shows {} programs in Rust, not {wanted}", blocks.len()));
        }
        for block in blocks {
            programs += 1;
            let program = match (block.contains("fn main"), block.contains(".await")) {
                (true, _) => block.to_owned(),
                (false, false) => WAITS.replace("LINES", block),
                (false, true) => AWAITS.replace("LINES", block),
            };
            let name = format!("program{programs}");
            let output = project.run(&name, &program.replace("127.0.0.1:11211", &server.address))?;
            if !block.contains("fn main") && !output.contains("104, 101, 108, 108, 111") {
                return Err(format!("{document}: its lines read {output}, not hello"));
            }
        }
    }
    Ok(())
}

/// A new user's project, removed when this is dropped.
struct Project {
    home: PathBuf,
}

impl Project {
    /// Makes a project outside of the workspace: Cargo would take one within for a part of it.
    fn create() -> Outcome<Project> {
        let home = std::env::temp_dir().join(format!("larder-new-user-{}", std::process::id()));
        let project = Project { home };
        let mut new = command("cargo", &["new", "--quiet", "--vcs", "none", "--name", "new-user"]);
        new.arg(&project.home);
        run(new)?;
        // The versions that everything here is tested with; Cargo adds what is missing.
        let lock = root().join("Cargo.lock");
        fs::copy(&lock, project.home.join("Cargo.lock"))
            .map_err(|error| format!("{}: {error}", lock.display()))?;
        Ok(project)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut cargo = command("cargo", arguments);
        cargo.current_dir(&self.home).env("CARGO_TARGET_DIR", root().join(target()).join("new-user"));
        cargo
    }

    fn cargo(&self, arguments: &[&str], path: Option<&str>) -> Outcome {
        let mut cargo = self.command(arguments);
        if let Some(path) = path {
            cargo.arg("--path").arg(root().join(path));
        }
        run(cargo)
    }

    /// Runs a program; returns its output.
    fn run(&self, name: &str, program: &str) -> Outcome<String> {
        let programs = self.home.join("src/bin");
        let file = programs.join(name).with_extension("rs");
        let written = fs::create_dir_all(&programs).and_then(|()| fs::write(&file, program));
        written.map_err(|error| format!("{}: {error}", file.display()))?;
        let (works, output) = capture(self.command(&["run", "--quiet", "--bin", name]))?;
        if works { Ok(output) } else { Err(format!("a program fails: {output}\n{program}")) }
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.home));
    }
}
