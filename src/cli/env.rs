//! The ports of an owner as lines that a shell can read.

use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::output::Output;
use super::session::{self, Session};
use crate::model::{Allocation, Owner, PortRange, Protocol, RangeName};
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
        session::as_json(&Value::Object(variables))
    } else {
        lines(&variables)
    };
    Ok(Output { remarks, ..output })
}

fn lines(variables: &Map<String, Value>) -> Output {
    let line = |(name, value): (&String, &Value)| {
        format!("{name}={}\n", value.as_str().unwrap_or_default())
    };
    Output { text: variables.iter().map(line).collect(), ..Output::default() }
}

/// The variables, and what is to be said about them.
fn variables(held: &[Allocation]) -> (Map<String, Value>, Vec<String>) {
    let mut variables = Map::new();
    let mut remarks = Vec::new();
    for protocol in Protocol::ALL {
        let unnamed = |one: &&Allocation| one.protocol == protocol && one.is_unnamed();
        let count = held.iter().filter(unnamed).count();
        let first = held.iter().filter(unnamed).min_by_key(|one| one.held_since());
        if let Some(Allocation { range, .. }) = first {
            describe(protocol, None, *range, &mut variables);
            if count > 1 {
                remarks.push(format!(
                    "{count} unnamed {protocol} ranges are held; the variables are of the one that is \
                     held longest, {range}"
                ));
            }
        }
    }
    for one in held.iter().filter(|one| !one.claimed) {
        if let Some(name) = &one.name
            && !describe(one.protocol, Some(name), one.range, &mut variables)
        {
            remarks.push(format!("another range has the variables of {}", one.range));
        }
    }
    if variables.is_empty() {
        remarks.push("no range is held, so that there are no variables".to_owned());
    }
    (variables, remarks)
}

/// The variables of one range: `TCP_PORT` and so on, with the name of a named one behind it. False if
/// another range has them: names that differ only in letters that a variable can't have are one.
fn describe(
    protocol: Protocol,
    name: Option<&RangeName>,
    range: PortRange,
    variables: &mut Map<String, Value>,
) -> bool {
    let prefix = protocol.as_str().to_ascii_uppercase();
    let suffix = name.map_or(String::new(), |name| format!("_{}", variable_part(name)));
    if variables.contains_key(&format!("{prefix}_PORT{suffix}")) {
        return false;
    }
    let mut set = |kind, value: String| {
        variables.insert(format!("{prefix}_{kind}{suffix}"), Value::String(value));
    };
    set("PORT", range.start().to_string());
    let count = range.count().get();
    if count > 1 {
        set("PORTS_RANGE", range.to_string());
    }
    // `PORTS_RANGE` and `PORTS_RANGE_X` are ranges, never the list of one that is called so
    let reads_as_range = suffix == "_RANGE" || suffix.starts_with("_RANGE_");
    if (2..=LISTED_PORTS_MAX).contains(&count) && !reads_as_range {
        let ports: Vec<_> = (range.start()..=range.end()).map(|port| port.to_string()).collect();
        set("PORTS", ports.join(","));
    }
    true
}

/// The name in upper case, with `_` for what a variable's name can't have.
fn variable_part(name: &RangeName) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.as_str().chars().map(letter).collect()
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
    fn named_ranges_have_their_name_in_the_variables() {
        let held = [
            ("tcp", Some("db"), 20000, 20000, false),
            ("udp", Some("rtp-media.1"), 20005, 20006, false),
        ];
        let expected = "TCP_PORT_DB=20000\nUDP_PORT_RTP_MEDIA_1=20005\n\
                        UDP_PORTS_RANGE_RTP_MEDIA_1=20005-20006\n\
                        UDP_PORTS_RTP_MEDIA_1=20005,20006\n";
        assert_eq!(render(&held), (expected.to_owned(), vec![]));
        let alike =
            [("tcp", Some("a-b"), 20000, 20000, false), ("tcp", Some("a.b"), 20001, 20001, false)];
        let (text, remarks) = render(&alike);
        assert_eq!((text.as_str(), remarks.len()), ("TCP_PORT_A_B=20000\n", 1));
        let longer =
            [("tcp", Some("a-b"), 20000, 20000, false), ("tcp", Some("a.b"), 20001, 20002, false)];
        let (text, remarks) = render(&longer);
        assert_eq!((text.as_str(), remarks.len()), ("TCP_PORT_A_B=20000\n", 1));
    }

    #[test]
    fn a_name_that_says_range_takes_no_other_ranges_variable() {
        let held = [
            ("tcp", Some("range"), 20000, 20001, false),
            ("tcp", Some("range-x"), 20002, 20003, false),
            ("tcp", Some("x"), 20004, 20005, false),
        ];
        let (text, remarks) = render(&held);
        assert_eq!(
            text,
            "TCP_PORT_RANGE=20000\nTCP_PORTS_RANGE_RANGE=20000-20001\nTCP_PORT_RANGE_X=20002\n\
             TCP_PORTS_RANGE_RANGE_X=20002-20003\nTCP_PORT_X=20004\n\
             TCP_PORTS_RANGE_X=20004-20005\nTCP_PORTS_X=20004,20005\n"
        );
        assert!(remarks.is_empty(), "{remarks:?}");
    }

    #[test]
    fn claims_are_left_out() {
        let held = [
            ("tcp", Some("web"), 20000, 20000, true),
            ("tcp", None, 20001, 20001, true),
            ("udp", None, 20005, 20005, false),
        ];
        assert_eq!(render(&held), ("UDP_PORT=20005\n".to_owned(), vec![]));
        let (text, remarks) = render(&held[..2]);
        assert_eq!((text.as_str(), remarks.len()), ("", 1));
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
