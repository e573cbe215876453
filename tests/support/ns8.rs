//! A node of NS8 as far as its actions go: the installed steps, run as NS8's agent runs them, on a
//! real daemon.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use super::Daemon;

/// The repository.
pub const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

pub struct Node {
    pub daemon: Daemon,
}

/// What comes back from a task.
#[derive(Debug, Deserialize)]
pub struct Reply {
    pub status: String,
    pub exit_code: i32,
    pub output: String,
    pub error: String,
}

impl Reply {
    /// It was completed and printed this, to the byte.
    #[track_caller]
    pub fn prints(&self, expected: &str) {
        assert_eq!((self.status.as_str(), self.exit_code), ("completed", 0), "{self:?}");
        assert_eq!(self.output, expected, "{self:?}");
    }

    /// It was refused in NS8's words, with this error of a field.
    #[track_caller]
    pub fn is_refused(&self, status: i32, field: &str, value: &Value, error: &str) {
        let expected = json!([
            { "field": field, "parameter": field, "value": value, "error": error }
        ]);
        assert_eq!(
            (self.status.as_str(), self.exit_code),
            ("validation-failed", status),
            "{self:?}"
        );
        assert_eq!(serde_json::from_str::<Value>(&self.output).unwrap(), expected);
        assert!(self.error.starts_with("portsctl: "), "{self:?}");
    }

    /// It failed as anything else does, and said so with these words.
    #[track_caller]
    pub fn fails(&self, words: &[&str]) {
        assert_eq!((self.status.as_str(), self.exit_code), ("aborted", 1), "{self:?}");
        assert_eq!(self.output, "", "{self:?}");
        for word in words {
            assert!(self.error.contains(word), "{word:?} is missing: {self:?}");
        }
    }
}

impl Node {
    pub fn start() -> Self {
        Self::on(Daemon::start())
    }

    /// With the steps installed.
    pub fn on(daemon: Daemon) -> Self {
        let node = Self { daemon };
        node.is_taken_over();
        node.install();
        fs::remove_file(node.record()).unwrap();
        node
    }

    /// Makes it a node on which the takeover was done.
    pub fn is_taken_over(&self) {
        fs::create_dir_all(self.state()).unwrap();
        fs::write(self.record(), "now, from nowhere, file sum none\n").unwrap();
    }

    /// Runs `make install-ns8`; gives what it said.
    pub fn install(&self) -> String {
        make(&self.tree(), "install-ns8")
    }

    /// What would be / on a node.
    pub fn tree(&self) -> PathBuf {
        self.daemon.path("tree")
    }

    /// Where the steps come from.
    pub fn kept_steps(&self) -> PathBuf {
        self.tree().join("usr/share/portsd/ns8")
    }

    /// What NS8's agent gets as `AGENT_INSTALL_DIR`.
    pub fn directory(&self) -> PathBuf {
        self.tree().join("var/lib/nethserver/node")
    }

    pub fn state(&self) -> PathBuf {
        self.directory().join("state")
    }

    /// What is kept of the takeover.
    pub fn record(&self) -> PathBuf {
        self.state().join("portsd-import.txt")
    }

    /// A command in the environment of the node's agent.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let programs = Path::new(env!("CARGO_BIN_EXE_portsctl")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", programs.display()));
        command.env("PORTSD_SOCKET", self.daemon.path("admin-varlink"));
        command.env("AGENT_INSTALL_DIR", self.directory()).env("AGENT_STATE_DIR", self.state());
        command.env("NODE_ID", "1").env("PYTHONPATH", self.directory().join("pypkg"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        for name in ["AGENT_TASK_USER", "AGENT_COMFD", "REDIS_USER", "REDIS_PASSWORD"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs a task of this action as `user`.
    pub fn task(&self, action: &str, user: Option<&str>, data: &Value) -> Reply {
        self.run_task(&json!({ "action": action, "user": user, "data": data }))
    }

    /// Runs a task with everything that `ns8.py` can vary.
    pub fn run_task(&self, task: &Value) -> Reply {
        let mut command = self.command("python3");
        command.arg(Path::new(SOURCES).join("tests/support/ns8.py")).arg("task");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut agent = command.spawn().unwrap();
        agent.stdin.take().unwrap().write_all(task.to_string().as_bytes()).unwrap();
        let output = agent.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs Python code as a step of a module does; `agent` is the library.
    pub fn module(&self, id: &str, code: &str) -> Output {
        let mut command = self.command("python3");
        command.arg(Path::new(SOURCES).join("tests/support/ns8.py"));
        command.args(["module", id, code]).output().unwrap()
    }

    /// What the node's add-module does about ports, in its own process.
    pub fn add_module(&self, id: &str, tcp: u16, udp: u16) -> String {
        let code = "import sys, node.ports_manager as ports\n\
                    for protocol, count in ('tcp', sys.argv[2]), ('udp', sys.argv[3]):\n\
                    \x20   if int(count): print(ports.allocate_ports(int(count), sys.argv[1], protocol))";
        let mut command = self.command("python3");
        command.args(["-c", code, id, &tcp.to_string(), &udp.to_string()]);
        stdout(&command.output().unwrap())
    }
}

/// Runs a target of the Makefile with this tree; gives what it said.
pub fn make(tree: &Path, target: &str) -> String {
    let mut command = Command::new("make");
    command.args(["--no-print-directory", "-s", "-C", SOURCES, target]);
    command.arg(format!("DESTDIR={}", tree.display()));
    // not those of a make that has started the tests
    let output = command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// What a program printed that has done its work.
#[track_caller]
pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The data of allocate-ports.
pub fn ports(ports: impl Into<Value>, module_id: &str, protocol: &str, keep: bool) -> Value {
    json!({
        "ports": ports.into(), "module_id": module_id, "protocol": protocol, "keep_existing": keep
    })
}
