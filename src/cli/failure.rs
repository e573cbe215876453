//! What went wrong, said so that the reader knows what to do, and as an exit status.

use std::io;
use std::process::ExitCode;

use serde_json::Value;

use super::output::say;
use super::socket::{self, ADMIN_SOCKET};
use crate::client::{ClientError, ErrorReply};
use crate::error::Condition;
use crate::import::Unreadable;

/// The exit status of a command line that can't be carried out as it is.
const USAGE: u8 = 2;
/// The exit status where no service answers.
const UNREACHABLE: u8 = 7;
/// The exit status of everything that has none of its own.
pub(super) const OTHER: u8 = 1;

/// Why a command was not carried out.
#[derive(Debug)]
pub(super) enum Failure {
    /// The command line, or what it points at, is wrong.
    Usage(String),
    /// A file can't be read or written.
    File(String),
    /// What is to be imported can't be read.
    Source(Unreadable),
    /// The result can't be printed.
    Output(io::Error),
    /// The service can't be asked, or refused.
    Client(ClientError),
    /// The service can't tell all that has happened since the last event.
    Lagged,
    /// The service has ended while it was monitored.
    Ended,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Self {
        Self::Source(error)
    }
}

impl Failure {
    /// Tells whoever reads standard error, and gives the exit status.
    pub(super) fn report(&self) -> ExitCode {
        say(&self.message());
        ExitCode::from(self.exit_status())
    }

    fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::File(_) | Self::Source(_) | Self::Output(_) | Self::Lagged => OTHER,
            Self::Ended => UNREACHABLE,
            Self::Client(error) => match error {
                ClientError::PathTooLong(_)
                | ClientError::NoSocket { .. }
                | ClientError::NotASocket { .. }
                | ClientError::Dead { .. }
                | ClientError::Forbidden { .. }
                | ClientError::Connect { .. }
                | ClientError::TimedOut(_)
                | ClientError::Lost => UNREACHABLE,
                ClientError::Broken(_) => OTHER,
                ClientError::Refused(reply) => {
                    condition(reply).map_or(OTHER, |condition| condition.row().exit_status)
                }
            },
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Usage(message) | Self::File(message) => message.clone(),
            Self::Source(error) => format!("nothing was imported: {error}"),
            Self::Output(error) => {
                format!("the command was carried out, but its result can't be printed: {error}")
            }
            Self::Client(ClientError::Refused(reply)) => refusal(reply),
            Self::Client(error) => match advice(error) {
                Some(advice) => format!("{error}: {advice}"),
                None => error.to_string(),
            },
            Self::Lagged => {
                "changes were missed: they came faster than they were read, the database was \
                 changed by another program, or it failed. Start again"
                    .to_owned()
            }
            Self::Ended => {
                "portsd has ended, or has hung up since its events were not read in good time: \
                 start again, and see `journalctl -u portsd`"
                    .to_owned()
            }
        }
    }

    /// What is wrong and, where that can be told apart, what to do about it.
    pub(super) fn parts(&self) -> (String, Option<String>) {
        match self {
            Self::Client(error) => match advice(error) {
                Some(advice) => (error.to_string(), Some(advice)),
                None => (self.message(), None),
            },
            _ => (self.message(), None),
        }
    }

    /// The condition that the service refused with, if it did and it is one of ours.
    pub(super) fn condition(&self) -> Option<Condition> {
        match self {
            Self::Client(ClientError::Refused(reply)) => condition(reply),
            _ => None,
        }
    }
}

/// What to do where there is no answer. A refusal's text has its advice inside.
fn advice(error: &ClientError) -> Option<String> {
    const MAYBE_DONE: &str = "The command may have been carried out all the same; `portsctl list` \
                              shows what is held";
    Some(match error {
        ClientError::Refused(_) => return None,
        ClientError::PathTooLong(_) => "give a shorter --socket or $PORTSD_SOCKET".to_owned(),
        ClientError::NoSocket { path } => socket::missing(path),
        ClientError::NotASocket { .. } => "check --socket and $PORTSD_SOCKET".to_owned(),
        ClientError::Dead { path } => socket::dead(path),
        ClientError::Forbidden { path } => socket::forbidden(path),
        ClientError::Connect { .. } => "portsd can't be reached".to_owned(),
        ClientError::TimedOut(_) => {
            format!("portsd may be stuck: see `journalctl -u portsd`. {MAYBE_DONE}")
        }
        ClientError::Lost => {
            format!(
                "portsd has ended, or this user has too many connections: see `journalctl -u \
                 portsd`. {MAYBE_DONE}"
            )
        }
        ClientError::Broken(_) => {
            format!("is this portsd's varlink socket, and of the same version? {MAYBE_DONE}")
        }
    })
}

/// The condition of the error table that a reply stands for, if it is one of ours.
fn condition(reply: &ErrorReply) -> Option<Condition> {
    let (interface, name) = reply.name.rsplit_once('.')?;
    let condition = Condition::from_name(name)?;
    let expected = match condition {
        Condition::InvalidParameter => "org.varlink.service",
        _ => "org.nethserver.Ports",
    };
    (interface == expected).then_some(condition)
}

fn refusal(reply: &ErrorReply) -> String {
    let fields = Fields(&reply.parameters);
    match condition(reply) {
        Some(condition) => explain(condition, &fields),
        None => unknown(&reply.name, &fields),
    }
}

/// The fields of an error.
struct Fields<'a>(&'a Value);

impl Fields<'_> {
    /// A field as text; a question mark where it is missing.
    fn get(&self, name: &str) -> String {
        match &self.0[name] {
            Value::Null => "?".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    fn has(&self, name: &str) -> bool {
        !self.0[name].is_null()
    }
}

/// What a condition means and what to do about it.
fn explain(condition: Condition, fields: &Fields<'_>) -> String {
    let get = |name| fields.get(name);
    match condition {
        Condition::PermissionDenied if fields.has("owner") => format!(
            "permission denied for {}: a module may act for itself only, an administrator for \
             everybody, on {ADMIN_SOCKET}. `portsctl whoami` shows who you are to portsd",
            get("owner")
        ),
        Condition::PermissionDenied => format!(
            "permission denied: this is for modules and administrators, and `portsctl whoami` \
             shows who you are to portsd. Is the module registered, with this Unix user? \
             Administrators use {ADMIN_SOCKET}; where the cluster is the registry, its modules \
             can't be set here"
        ),
        Condition::MissingRole => format!(
            "module {} lacks the role {role}: the label org.nethserver.authorizations of its image \
             has to have node:{role}. Labels are set by an administrator with `portsctl set-module`, or by the \
             cluster where that is the registry",
            get("moduleId"),
            role = get("role")
        ),
        Condition::UnknownModule => format!(
            "there is no module {} on this node: `portsctl list-modules` shows those there are, \
             `portsctl set-module` registers one, unless that is for the cluster to do",
            get("moduleId")
        ),
        Condition::DemandExceeded => format!(
            "too many ports: {} requested, {} held, {} allowed. Ask for fewer, free some with \
             `portsctl deallocate`, or raise the label org.nethserver.tcp-ports-demand or \
             org.nethserver.udp-ports-demand of the module's image",
            get("requested"),
            get("allocated"),
            get("demand")
        ),
        Condition::PoolExhausted => format!(
            "no room for {} {} ports: the largest free block has {}. Ask for fewer, or free some; \
             `portsctl status` shows the pool",
            get("requested"),
            get("protocol"),
            get("largestFree")
        ),
        Condition::CannotGrow => format!(
            "{}-{} can't have {} ports where it is, and stays as it was: ask for fewer, or let it \
             move",
            get("start"),
            get("end"),
            get("requested")
        ),
        Condition::NotAllocated => {
            format!("{} does not hold that: `portsctl list` shows what is held", get("owner"))
        }
        Condition::Occupied => format!(
            "{} holds {}-{}: choose other ports, or free those first",
            get("owner"),
            get("start"),
            get("end")
        ),
        Condition::NameTaken => format!(
            "{} has a range named {} already: choose another name, or free that range first",
            get("owner"),
            get("name")
        ),
        Condition::RegistryUnavailable => {
            "portsd can't find out now which modules there are, or knows of none: see `portsctl \
             list-modules`, and `journalctl -u portsd` for the cause; then try again"
                .to_owned()
        }
        Condition::StorageFailure => storage_failure(&get("reason")),
        Condition::ShuttingDown => "portsd is about to end: try again".to_owned(),
        Condition::InvalidParameter => invalid_parameter(&get("parameter")),
    }
}

fn storage_failure(reason: &str) -> String {
    let advice = match reason {
        "disk_full" => "the disk or the quota is full: make room in /var/lib/portsd",
        "read_only" => {
            "the file can't be written: check the modes and the mount of /var/lib/portsd"
        }
        "busy" => "another process keeps it locked: end that one, and try again",
        "corrupt" => "it is damaged: stop portsd and restore a backup",
        _ => "it can't be read or written",
    };
    format!(
        "portsd's database: {advice}. Nothing was changed; `journalctl -u portsd` has the cause"
    )
}

fn invalid_parameter(parameter: &str) -> String {
    let advice = match parameter {
        "owner" => "say whose ports these are: --owner OWNER, or --on-behalf-of MODULE_ID",
        "labels" => "a label that portsd reads has a value which it can't understand",
        "unixUser" => "is it a user's name, and of no other module? See `portsctl list-modules`",
        "message" => "the command is longer than portsd takes",
        "toOwner" => "nobody can give to himself",
        _ => "are portsctl and portsd of the same version?",
    };
    format!("portsd does not take the parameter {parameter}: {advice}")
}

/// An error that is not in the table.
fn unknown(name: &str, fields: &Fields<'_>) -> String {
    match name {
        "org.varlink.service.InterfaceNotFound" => format!(
            "this socket does not offer {}: administration is done on {ADMIN_SOCKET}, as root",
            fields.get("interface")
        ),
        "org.varlink.service.MethodNotFound" => format!(
            "this portsd has no method {}: portsctl and portsd are of different versions",
            fields.get("method")
        ),
        _ => format!("portsd refused with {name} {}", fields.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(name: &str, parameters: Value) -> Failure {
        Failure::Client(ClientError::Refused(ErrorReply { name: name.to_owned(), parameters }))
    }

    fn full_name(condition: Condition) -> String {
        let interface = match condition {
            Condition::InvalidParameter => "org.varlink.service",
            _ => "org.nethserver.Ports",
        };
        format!("{interface}.{}", condition.row().name)
    }

    #[test]
    fn every_condition_has_its_status_and_a_text() {
        for condition in Condition::ALL {
            let failure = refused(&full_name(condition), json!({}));
            assert_eq!(failure.exit_status(), condition.row().exit_status);
            assert!(!failure.message().contains(condition.row().name), "{}", failure.message());
        }
    }

    #[test]
    fn names_of_other_interfaces_are_not_taken_for_ours() {
        for name in ["org.varlink.service.PermissionDenied", "x.InvalidParameter", "Occupied", ""] {
            let failure = refused(name, json!({"a": 1}));
            assert_eq!(failure.exit_status(), 1, "{name}");
            assert!(failure.message().contains(name));
        }
    }

    #[test]
    fn texts_have_the_numbers() {
        let fields = json!({
            "owner": "mail1", "moduleId": "mail2", "role": "portsadm", "requested": 1001,
            "allocated": 1002, "demand": 1003, "protocol": "udp", "largestFree": 1004,
            "start": 1005, "end": 1006, "name": "rtp", "reason": "busy", "parameter": "owner"
        });
        for (condition, words) in [
            (Condition::PermissionDenied, &["mail1", "whoami"][..]),
            (Condition::MissingRole, &["mail2", "org.nethserver.authorizations", "node:portsadm"]),
            (Condition::UnknownModule, &["mail2", "list-modules"]),
            (Condition::DemandExceeded, &["1001 requested", "1002 held", "1003 allowed"]),
            (Condition::PoolExhausted, &["1001 udp", "1004"]),
            (Condition::CannotGrow, &["1005-1006", "1001"]),
            (Condition::NotAllocated, &["mail1"]),
            (Condition::Occupied, &["mail1", "1005-1006"]),
            (Condition::NameTaken, &["mail1", "rtp"]),
            (Condition::RegistryUnavailable, &["try again"]),
            (Condition::StorageFailure, &["locked"]),
            (Condition::ShuttingDown, &["try again"]),
            (Condition::InvalidParameter, &["owner", "--owner", "--on-behalf-of"]),
        ] {
            let message = refused(&full_name(condition), fields.clone()).message();
            for word in words {
                assert!(message.contains(word), "{message}");
            }
        }
    }
}
