//! `portsctl import`, whatever it imports from.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::Daemon;
use super::run::Run;

/// `portsctl import` into this service.
pub fn portsctl(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portsctl"));
    command.env("PORTSD_SOCKET", daemon.path("admin-varlink")).stdin(Stdio::null());
    command.arg("import").args(arguments);
    command
}

impl Run {
    /// The exit status, and the report for machines that `--json` has printed.
    #[track_caller]
    pub fn report(&self) -> (Option<i32>, Value) {
        assert_eq!(self.stderr, "");
        (self.status, serde_json::from_str(&self.stdout).unwrap())
    }

    /// It has failed and has said why with all these words in one line, and nothing is imported.
    #[track_caller]
    pub fn imported_nothing(&self, daemon: &Daemon, words: &[&str]) {
        assert_eq!((self.status, self.stdout.as_str()), (Some(1), ""), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:?}");
        }
        assert!(self.stderr.contains("nothing was imported"), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert_eq!(daemon.rows(), []);
    }
}
