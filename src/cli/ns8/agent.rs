//! What NS8's agent tells a step, and how a step answers besides its output.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc::O_NONBLOCK;

use crate::model::ModuleId;

/// Who has asked for the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TaskUser {
    /// The cluster's agent or the node itself, who put their tasks into the queue without a name.
    Administrator,
    /// A module, by the API server's word.
    Module(ModuleId),
    /// Anybody else; `None` where nobody says who.
    Other(Option<String>),
}

impl TaskUser {
    /// Reads `AGENT_TASK_USER`. That it is empty says something; that it is missing, nothing.
    pub(super) fn parse(value: Option<OsString>) -> Self {
        let Some(value) = value else { return Self::Other(None) };
        let name = value.to_string_lossy();
        match name.strip_prefix("module/").map(ModuleId::parse) {
            _ if value.is_empty() => Self::Administrator,
            Some(Ok(id)) => Self::Module(id),
            Some(Err(_)) | None => Self::Other(Some(name.into_owned())),
        }
    }
}

impl fmt::Display for TaskUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Administrator => f.write_str("the node"),
            Self::Module(id) => write!(f, "module/{id}"),
            Self::Other(Some(name)) => write!(f, "{name:?}"),
            Self::Other(None) => f.write_str("whoever this is, without $AGENT_TASK_USER,"),
        }
    }
}

/// The agent that has started this process, or the lack of one.
pub(super) struct Agent {
    pub(super) user: TaskUser,
    /// Where commands to it go.
    commands: Commands,
}

enum Commands {
    /// Nobody has named a descriptor: somebody tries this by hand.
    Nowhere,
    Open(File),
    Unusable(String),
}

impl Agent {
    pub(super) fn of_environment() -> Self {
        let commands = match env::var_os("AGENT_COMFD") {
            None => Commands::Nowhere,
            Some(number) => Commands::open(&number.to_string_lossy()),
        };
        Self { user: TaskUser::parse(env::var_os("AGENT_TASK_USER")), commands }
    }

    /// Lets the task end as one whose input was not valid. Gives a remark if the agent can't be told;
    /// the exit status tells it most of it.
    pub(super) fn fail_validation(self) -> Option<String> {
        let failed = match self.commands {
            Commands::Nowhere => return None,
            Commands::Open(mut file) => {
                file.write_all(b"set-status validation-failed\n").err().map(|e| e.to_string())
            }
            Commands::Unusable(reason) => Some(reason),
        };
        failed.map(|reason| format!("the agent can't be told by $AGENT_COMFD: {reason}"))
    }
}

impl Commands {
    /// Opens what the descriptor stands for anew, by its name in /proc: nothing then depends on its
    /// being open, or on nobody else using it. An agent that reads no longer is not waited for.
    fn open(number: &str) -> Self {
        let opened = number
            .parse::<u16>()
            .map_err(io::Error::other)
            .and_then(|number| match number {
                // this end of a standard input that is a pipe would keep it from ever ending
                0..=2 => Err(io::Error::other("this is a standard stream")),
                _ => Ok(number),
            })
            .map(|number| format!("/proc/self/fd/{number}"))
            .and_then(|path| OpenOptions::new().append(true).custom_flags(O_NONBLOCK).open(path));
        opened.map_or_else(|error| Self::Unusable(error.to_string()), Self::Open)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_an_empty_name_is_the_nodes_own() {
        let parse = |name: &str| TaskUser::parse(Some(name.into()));
        assert_eq!(parse(""), TaskUser::Administrator);
        assert_eq!(TaskUser::parse(None), TaskUser::Other(None));
        assert_eq!(parse("module/a1"), TaskUser::Module(ModuleId::parse("a1").unwrap()));
        for name in ["module/", "module", "Module/a1", "module/a 1", "module/_a", "node/1", " "] {
            assert_eq!(parse(name), TaskUser::Other(Some(name.to_owned())));
        }
    }

    fn tell(number: &str) -> Option<String> {
        let agent = Agent { user: TaskUser::Other(None), commands: Commands::open(number) };
        agent.fail_validation()
    }

    #[test]
    fn the_agent_is_told_by_the_descriptor_it_has_named() {
        let (mut reader, writer) = pipe().unwrap();
        assert_eq!(tell(&writer.as_raw_fd().to_string()), None);
        drop(writer);
        let mut told = String::new();
        reader.read_to_string(&mut told).unwrap();
        assert_eq!(told, "set-status validation-failed\n");
    }

    #[test]
    fn an_agent_that_is_gone_is_neither_waited_for_nor_a_reason_to_fail() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        assert!(tell(&writer.as_raw_fd().to_string()).is_some());
        for number in ["", "-1", "x", "65536", "999999999999"] {
            assert!(tell(number).unwrap().contains("$AGENT_COMFD"), "{number}");
        }
        // one that reads nothing, though much has been sent
        let (_reader, mut writer) = pipe().unwrap();
        writer.write_all(&vec![b'\n'; 65536]).unwrap();
        let number = writer.as_raw_fd().to_string();
        let (sender, told) = mpsc::channel();
        thread::spawn(move || sender.send(tell(&number)));
        assert!(told.recv_timeout(Duration::from_secs(30)).unwrap().is_some());
        let nowhere = Agent { user: TaskUser::Other(None), commands: Commands::Nowhere };
        assert_eq!(nowhere.fail_validation(), None);
    }
}
