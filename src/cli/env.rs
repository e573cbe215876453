//! The ports of an owner as lines that a shell can read.

use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::output::Output;
use super::session::{self, Session};
use crate::model::{Allocation, Owner, PortRange, Protocol};
use crate::reply::{CallerInfo, CallerKind, Listed};
use crate::request::Method;

/// Ports are also listed one by one up to this count.
const LISTED_PORTS_MAX: u16 = 8;

/// Shows the variables. An administrator holds nothing, and has to say whose they are.
pub(super) fn show(session: &mut Session, owner: Option<Owner>) -> Result<Output, Failure> {
    let caller: CallerInfo = session.call(Method::WhoAmI, &json!({}))?;
    if owner.is_none() && caller.caller == CallerKind::Administrator {
        return Err(Failure::Usage("say whose ports you want: --owner OWNER".to_owned()));
    }
    let parameters = owner.map_or(json!({}), |owner| json!({ "owner": owner }));
    let held: Listed = session.call(Method::List, &parameters)?;
    let (variables, remarks) = variables(&held.allocations);
    let output = if session.is_json() {
        session::json(&Value::Object(variables))
    } else {
        lines(&variables)
    };
    Ok(Output { remarks, ..output })
}

fn lines(variables: &Map<String, Value>) -> Output {
    let line = |(name, value): (&String, &Value)| {
        format!("{name}={}\n", value.as_str().unwrap_or_default())
    };
    Output { text: variables.iter().map(line).collect(), remarks: Vec::new() }
}

/// The variables, and what is to be said about them.
fn variables(held: &[Allocation]) -> (Map<String, Value>, Vec<String>) {
    let mut variables = Map::new();
    let mut remarks = Vec::new();
    for protocol in Protocol::ALL {
        let unnamed =
            |one: &&Allocation| one.protocol == protocol && one.name.is_none() && !one.claimed;
        let mut ranges: Vec<PortRange> = held.iter().filter(unnamed).map(|one| one.range).collect();
        ranges.sort_unstable();
        if let Some(lowest) = ranges.first() {
            describe(protocol, *lowest, &mut variables);
        }
        if ranges.len() > 1 {
            remarks.push(format!(
                "{} unnamed {protocol} ranges are held; the variables are of the lowest, {}",
                ranges.len(),
                ranges[0]
            ));
        }
    }
    if variables.is_empty() {
        remarks.push("no unnamed range is held, so that there are no variables".to_owned());
    }
    (variables, remarks)
}

/// The variables of one range.
fn describe(protocol: Protocol, range: PortRange, variables: &mut Map<String, Value>) {
    let prefix = protocol.as_str().to_ascii_uppercase();
    let mut set = |name, value: String| {
        variables.insert(format!("{prefix}_{name}"), Value::String(value));
    };
    set("PORT", range.start().to_string());
    let count = range.count().get();
    if count > 1 {
        set("PORTS_RANGE", range.to_string());
    }
    if (2..=LISTED_PORTS_MAX).contains(&count) {
        let ports: Vec<_> = (range.start()..=range.end()).map(|port| port.to_string()).collect();
        set("PORTS", ports.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(held: &[(&str, Option<&str>, u16, u16, bool)]) -> (String, Vec<String>) {
        let held: Vec<Allocation> = held
            .iter()
            .map(|(protocol, name, start, end, claimed)| {
                serde_json::from_value(json!({
                    "owner": "a", "protocol": protocol, "name": name, "start": start, "end": end,
                    "claimed": claimed, "allocatedAt": "2025-12-01T00:00:00Z"
                }))
                .unwrap()
            })
            .collect();
        let (variables, remarks) = variables(&held);
        (lines(&variables).text, remarks)
    }

    #[test]
    fn the_count_decides_which_variables_there_are() {
        let tcp = |end| render(&[("tcp", None, 20000, end, false)]).0;
        assert_eq!(tcp(20000), "TCP_PORT=20000\n");
        assert_eq!(
            tcp(20001),
            "TCP_PORT=20000\nTCP_PORTS_RANGE=20000-20001\nTCP_PORTS=20000,20001\n"
        );
        assert!(
            tcp(20007).ends_with("TCP_PORTS=20000,20001,20002,20003,20004,20005,20006,20007\n")
        );
        assert_eq!(tcp(20008), "TCP_PORT=20000\nTCP_PORTS_RANGE=20000-20008\n");
    }

    #[test]
    fn named_ranges_and_claims_are_left_out() {
        let held = [
            ("tcp", Some("db"), 20000, 20000, false),
            ("tcp", None, 20001, 20001, true),
            ("udp", None, 20005, 20005, false),
        ];
        assert_eq!(render(&held), ("UDP_PORT=20005\n".to_owned(), vec![]));
        let (text, remarks) = render(&held[..2]);
        assert_eq!(text, "");
        assert_eq!(remarks.len(), 1);
    }

    #[test]
    fn the_lowest_of_several_is_taken_and_the_choice_is_told() {
        let held = [("tcp", None, 20007, 20007, false), ("tcp", None, 20002, 20002, false)];
        let (text, remarks) = render(&held);
        assert_eq!(text, "TCP_PORT=20002\n");
        assert_eq!(remarks.len(), 1);
        assert!(remarks[0].contains("2 unnamed tcp ranges"), "{remarks:?}");
    }
}
