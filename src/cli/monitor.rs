//! What is held and what changes, line by line, until somebody has seen enough.

use serde_json::Value;

use super::failure::Failure;
use super::output::{Output, print};
use super::session::{Session, not_understood};
use crate::client::ClientError;
use crate::model::{Allocation, RangeName};
use crate::reply::{Event, EventKind, Monitored};
use crate::request::Method;

/// Prints an event a line, or a reply a line as JSON. Ends when the service does, when it can't
/// tell all that happens, or when nobody reads what is printed.
pub(super) fn show(session: &mut Session) -> Result<Output, Failure> {
    let is_json = session.is_json();
    let mut has_begun = false;
    let mut has_lagged = false;
    let followed = session.follow(Method::Monitor, |reply| {
        has_begun = true;
        let line = reply.to_string();
        let event = read(reply)?;
        has_lagged = event.kind == EventKind::Lagged;
        print(&format!("{}\n", if is_json { line } else { describe(&event) }))
    });
    match followed {
        // no more events than that: the service has sent us away
        Ok(()) if has_lagged => Err(Failure::Lagged),
        // the connection was there, and what it was for is done
        Err(Failure::Client(ClientError::Lost)) if has_begun => Err(Failure::Ended),
        other => other.map(|()| Output::default()),
    }
}

fn read(reply: Value) -> Result<Event, Failure> {
    let reply: Monitored = serde_json::from_value(reply).map_err(|error| not_understood(&error))?;
    Ok(reply.event)
}

fn describe(event: &Event) -> String {
    let kind = match event.kind {
        EventKind::Present => "present",
        EventKind::Ready => "ready",
        EventKind::Allocated => "allocated",
        EventKind::Deallocated => "deallocated",
        EventKind::Lagged => "lagged",
    };
    match &event.allocation {
        None => kind.to_owned(),
        Some(Allocation { owner, protocol, name, range, claimed, .. }) => {
            let name = name.as_ref().map_or("-", RangeName::as_str);
            let claimed = if *claimed { " claimed" } else { "" };
            format!("{kind:<11} {protocol} {range} {owner} {name}{claimed}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let line = |event: Value| describe(&read(json!({ "event": event })).unwrap());
        let allocation = json!({
            "owner": "mail1", "protocol": "tcp", "name": null, "start": 20000, "end": 20003,
            "claimed": false, "allocatedAt": "2025-12-01T00:00:00Z"
        });
        let mut claim = allocation.clone();
        (claim["name"], claim["claimed"]) = (json!("web"), json!(true));
        for (kind, allocation, expected) in [
            ("present", allocation.clone(), "present     tcp 20000-20003 mail1 -"),
            ("ready", json!(null), "ready"),
            ("allocated", claim, "allocated   tcp 20000-20003 mail1 web claimed"),
            ("deallocated", allocation, "deallocated tcp 20000-20003 mail1 -"),
            ("lagged", json!(null), "lagged"),
        ] {
            assert_eq!(line(json!({ "kind": kind, "allocation": allocation })), expected);
        }
        assert!(read(json!({ "event": { "kind": "else", "allocation": null } })).is_err());
    }
}
