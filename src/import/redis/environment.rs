//! The ports in a module's environment. Pure: the values have been read already.

use super::super::{Problem, Row, number, shown};
use crate::model::{ModuleId, Protocol};
use crate::request::ImportedRange;

/// The fields that count, for TCP and for UDP: the range, which is there for more than one port,
/// and the first port. `TCP_PORTS` only lists the same ports again.
pub(super) const FIELDS: [&str; 4] = ["TCP_PORTS_RANGE", "TCP_PORT", "UDP_PORTS_RANGE", "UDP_PORT"];

/// The values of [`FIELDS`].
pub(super) type Values = [Option<Vec<u8>>; FIELDS.len()];

/// The module's environment.
pub(super) fn key(module: &ModuleId) -> String {
    format!("module/{module}/environment")
}

/// What the module says that it has: a row for each protocol at most.
pub(super) fn rows(module: &ModuleId, values: &Values) -> Vec<Row> {
    let [tcp_range, tcp_port, udp_range, udp_port] = values.each_ref().map(Option::as_deref);
    let rows = [
        row(module, Protocol::Tcp, tcp_range, tcp_port),
        row(module, Protocol::Udp, udp_range, udp_port),
    ];
    rows.into_iter().flatten().collect()
}

fn row(
    module: &ModuleId,
    protocol: Protocol,
    range: Option<&[u8]>,
    port: Option<&[u8]>,
) -> Option<Row> {
    let prefix = protocol.as_str().to_ascii_uppercase();
    let field =
        if range.is_some() { format!("{prefix}_PORTS_RANGE") } else { format!("{prefix}_PORT") };
    let source = format!("{} {field}", key(module));
    let owner = module.to_string();
    Some(match ends(&prefix, range, port)? {
        Ok((start, end)) => {
            Row::Range { source, range: ImportedRange { owner, protocol, start, end } }
        }
        Err(Fault { ends, reason }) => {
            let (start, end) = ends.unzip();
            let (owner, protocol) = (Some(owner), Some(protocol));
            Row::Problem(Problem { source, owner, protocol, start, end, reason })
        }
    })
}

/// Values that are no range.
struct Fault {
    /// The ends that the range would have, if it says so much.
    ends: Option<(i64, i64)>,
    reason: String,
}

/// The ends of the range, if there is one.
fn ends(
    prefix: &str,
    range: Option<&[u8]>,
    port: Option<&[u8]>,
) -> Option<Result<(i64, i64), Fault>> {
    let fault = |ends, reason| Some(Err(Fault { ends, reason }));
    let Some(range) = range else {
        let port = port?;
        return match number(port) {
            Some(number) => Some(Ok((number, number))),
            None => fault(None, format!("the value is {}, which is no port", shown(port))),
        };
    };
    let Some((start, end)) = parse_range(range) else {
        let reason = format!("the value is {}, which is no range of ports", shown(range));
        return fault(None, reason);
    };
    match port {
        Some(port) if number(port) != Some(start) => {
            let first = format!("{prefix}_PORT is {}", shown(port));
            fault(Some((start, end)), format!("{first}, which is not the first port of the range"))
        }
        _ => Some(Ok((start, end))),
    }
}

/// `20000-20003`; the service judges whether these are ports.
fn parse_range(text: &[u8]) -> Option<(i64, i64)> {
    let hyphen = text.iter().position(|byte| *byte == b'-')?;
    let (start, end) = text.split_at(hyphen);
    Some((number(start)?, number(&end[1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: Option<&str>, port: Option<&str>) -> Option<Result<(i64, i64), String>> {
        let [range, port] = [range, port].map(|text| text.map(str::as_bytes));
        ends("TCP", range, port).map(|found| found.map_err(|fault| fault.reason))
    }

    #[test]
    fn the_range_counts_else_the_port() {
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some("20000")), Some(Ok((20000, 20000))));
        assert_eq!(of(Some("20000-20003"), Some("20000")), Some(Ok((20000, 20003))));
        assert_eq!(of(Some("20000-20003"), None), Some(Ok((20000, 20003))));
        // the service says what is wrong with these
        assert_eq!(of(Some("20003-20000"), Some("20003")), Some(Ok((20003, 20000))));
        assert_eq!(of(None, Some("0")), Some(Ok((0, 0))));
        assert_eq!(of(None, Some("70000")), Some(Ok((70000, 70000))));
    }

    #[test]
    fn values_that_are_no_ports_are_told() {
        for port in ["", " ", "x", "20000\n", "20000,20001", "-1", "2e4", "99999999999999999999"] {
            let reason = of(None, Some(port)).unwrap().unwrap_err();
            assert_eq!(reason, format!("the value is {port:?}, which is no port"));
        }
        for range in
            ["", "-", "20000", "20000-", "-20003", "20000--20003", "20000-20003\n", "a-b", "1-2-3"]
        {
            let reason = of(Some(range), Some("20000")).unwrap().unwrap_err();
            assert_eq!(reason, format!("the value is {range:?}, which is no range of ports"));
        }
    }

    #[test]
    fn a_port_that_is_not_the_first_of_the_range_is_told() {
        for port in ["20001", "20003", "", "x", "20000\n"] {
            let reason = of(Some("20000-20003"), Some(port)).unwrap().unwrap_err();
            let expected =
                format!("TCP_PORT is {port:?}, which is not the first port of the range");
            assert_eq!(reason, expected);
        }
    }

    #[test]
    fn each_protocol_has_its_row_and_its_place() {
        let module = ModuleId::parse("mail1").unwrap();
        let values = [Some("20000-20001"), Some("20000"), None, Some("x")];
        let found = rows(&module, &values.map(|value| value.map(|text| text.as_bytes().to_vec())));
        let [Row::Range { source: tcp, range }, Row::Problem(udp)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(tcp, "module/mail1/environment TCP_PORTS_RANGE");
        assert_eq!((range.owner.as_str(), range.start, range.end), ("mail1", 20000, 20001));
        assert_eq!(udp.source, "module/mail1/environment UDP_PORT");
        assert_eq!((udp.owner.as_deref(), udp.protocol), (Some("mail1"), Some(Protocol::Udp)));
        assert!(rows(&module, &[None, None, None, None]).is_empty());
    }
}
