//! Whether outgoing connections may take ports of the pool.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use super::{Check, Report};
use crate::model::PortRange;
use crate::reply::PoolStatus;

/// From where the kernel takes ports for connections, in IPv6 and UDP too.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Ports that it then leaves out.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

pub(super) fn check(pools: &[PoolStatus]) -> Report {
    let mut report = Report::default();
    match read() {
        Ok((ephemeral, reserved)) => {
            // the protocols have the same pool, and are told as one
            let pools: BTreeSet<PortRange> = pools.iter().map(|pool| pool.range).collect();
            for pool in pools {
                report.add(judge(pool, ephemeral, &reserved));
            }
        }
        Err(error) => report.remark(format!(
            "what the kernel gives to outgoing connections can't be read: {error}"
        )),
    }
    report
}

fn read() -> io::Result<(PortRange, Vec<PortRange>)> {
    let text = |path: &str| {
        fs::read_to_string(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
    };
    let bad = |path: &str| io::Error::other(format!("{path} can't be understood"));
    let ephemeral = parse_ends(&text(EPHEMERAL)?).ok_or_else(|| bad(EPHEMERAL))?;
    let reserved = parse_list(&text(RESERVED)?).ok_or_else(|| bad(RESERVED))?;
    Ok((ephemeral, reserved))
}

/// Two numbers with white space between them.
fn parse_ends(text: &str) -> Option<PortRange> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(start)), Some(Ok(end)), None) => PortRange::new(start, end).ok(),
        _ => None,
    }
}

/// Numbers and ranges with commas between them; nothing at all is an empty list. The kernel also
/// takes port 0, which is none.
fn parse_list(text: &str) -> Option<Vec<PortRange>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let ends: Option<Vec<_>> = text.split(',').map(parse_range).collect();
    let range = |(start, end): (u16, u16)| PortRange::new(start.max(1), end).ok();
    Some(ends?.into_iter().filter_map(range).collect())
}

/// The two ends of a range of the list.
fn parse_range(text: &str) -> Option<(u16, u16)> {
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    (start <= end).then_some((start, end))
}

/// The ports of the pool that the kernel may give to an outgoing connection.
fn unreserved(pool: PortRange, ephemeral: PortRange, reserved: &[PortRange]) -> Vec<PortRange> {
    let mut rest: Vec<_> = pool.intersection(ephemeral).into_iter().collect();
    for range in reserved {
        rest = rest.into_iter().flat_map(|some| some.without(*range)).collect();
    }
    rest.sort_unstable();
    rest
}

fn judge(pool: PortRange, ephemeral: PortRange, reserved: &[PortRange]) -> Report {
    let mut report = Report::default();
    let unreserved = unreserved(pool, ephemeral, reserved);
    if !unreserved.is_empty() {
        report.find(
            Check::Ephemeral,
            format!(
                "outgoing connections may take ports of the pool {pool}: {} in \
                 net.ipv4.ip_local_port_range ({ephemeral}) and not in \
                 net.ipv4.ip_local_reserved_ports",
                list(&unreserved, if unreserved.len() == 1 { " is" } else { " are" })
            ),
            format!(
                "set `net.ipv4.ip_local_reserved_ports = {}` in /etc/sysctl.d/50-portsd.conf, load \
                 it with `sysctl -p /etc/sysctl.d/50-portsd.conf`, and look for another file in \
                 /etc/sysctl.d or /etc/sysctl.conf that sets it too: the last one counts alone",
                reservation(pool, reserved)
            ),
        );
    }
    report
}

fn list(ranges: &[PortRange], suffix: &str) -> String {
    let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
    format!("{}{suffix}", ranges.join(", "))
}

/// What to reserve: the pool, and what is reserved already.
fn reservation(pool: PortRange, reserved: &[PortRange]) -> String {
    let mut ranges: Vec<_> = reserved.iter().flat_map(|range| range.without(pool)).collect();
    ranges.push(pool);
    ranges.sort_unstable();
    let one = |range: &PortRange| match range.count().get() {
        1 => range.start().to_string(),
        _ => range.to_string(),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> PortRange {
        text.parse().unwrap()
    }

    fn ranges(text: &str) -> Vec<PortRange> {
        parse_list(text).unwrap()
    }

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(parse_ends("32768\t60999\n"), Some(range("32768-60999")));
        for bad in ["", "1", "1 2 3", "a b", "2 1", "0 5", "1 65536"] {
            assert_eq!(parse_ends(bad), None, "{bad:?}");
        }
        assert_eq!(ranges("\n"), []);
        assert_eq!(ranges("8080\n"), [range("8080")]);
        assert_eq!(
            ranges("8080,20000-45000,65535\n"),
            [range("8080"), range("20000-45000"), range("65535")]
        );
        assert_eq!(ranges("0,0-5"), [range("1-5")]);
        for bad in ["x", "1,", "1-", "-1", "2-1", "1-65536", "1 2"] {
            assert_eq!(parse_list(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_the_overlap_has_to_be_reserved() {
        let rest = |pool, ephemeral, reserved| {
            let rest = unreserved(range(pool), range(ephemeral), &ranges(reserved));
            rest.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        for (pool, ephemeral, reserved, expected) in [
            ("20000-45000", "32768-60999", "", "32768-45000"),
            ("20000-45000", "32768-60999", "20000-45000", ""),
            ("20000-45000", "32768-60999", "32768-45000", ""),
            ("20000-45000", "32768-60999", "45000,32768-44999", ""),
            ("20000-45000", "32768-60999", "40000", "32768-39999 40001-45000"),
            ("20000-45000", "32768-60999", "33000-34000,33500-44000", "32768-32999 44001-45000"),
            ("20000-30000", "32768-60999", "", ""),
            ("40000-41000", "32768-60999", "1-39999,41001-65535", "40000-41000"),
            ("20000-45000", "1-65535", "1-65535", ""),
            ("20000-65535", "45000-65535", "45000-65534", "65535-65535"),
        ] {
            assert_eq!(rest(pool, ephemeral, reserved), expected, "{pool} {ephemeral} {reserved}");
        }
    }

    #[test]
    fn what_is_reserved_for_others_stays_so() {
        let pool = range("20000-45000");
        for (reserved, expected) in [
            ("", "20000-45000"),
            ("8080,50000-50010", "8080,20000-45000,50000-50010"),
            ("19000-20010,30000", "19000-19999,20000-45000"),
        ] {
            assert_eq!(reservation(pool, &ranges(reserved)), expected);
        }
    }

    #[test]
    fn the_finding_names_ports_and_line() {
        let report = judge(range("20000-45000"), range("32768-60999"), &ranges("8080,40000"));
        let finding = &report.findings[0];
        assert!(finding.message.contains("32768-39999, 40001-45000 are in"), "{finding:?}");
        assert!(
            finding.advice.contains("`net.ipv4.ip_local_reserved_ports = 8080,20000-45000`"),
            "{finding:?}"
        );
        assert_eq!(judge(range("20000-30000"), range("32768-60999"), &[]), Report::default());
    }
}
