//! What the labels of a module's image grant.
//!
//! The labels arrive as `podman image inspect` prints them. Those that portsd does not know are
//! nobody's fault and ignored; a known one that can't be understood is refused, since guessing
//! would either take a role away or give one.

use std::collections::BTreeMap;

use crate::model::Demand;

/// The role that lets a module change its own ports.
pub const PORTSADM: &str = "portsadm";

const TCP_PORTS_DEMAND: &str = "org.nethserver.tcp-ports-demand";
const UDP_PORTS_DEMAND: &str = "org.nethserver.udp-ports-demand";
const AUTHORIZATIONS: &str = "org.nethserver.authorizations";

/// The agent that hands out roles on the node.
const NODE_AGENT: &str = "node";

/// What a set of image labels grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels {
    /// Whether the module has the role [`PORTSADM`].
    pub portsadm: bool,
    /// How many ports it may hold. An absent label is 0.
    pub demand: Demand,
}

/// A label whose value can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("label {label}: malformed value {value:?}")]
pub struct MalformedLabel {
    label: &'static str,
    value: String,
}

impl Labels {
    /// Reads the labels that portsd knows and ignores the others.
    pub fn parse(labels: &BTreeMap<String, String>) -> Result<Self, MalformedLabel> {
        let value = |label| labels.get(label).map(String::as_str);
        let malformed = |label, value: &str| MalformedLabel { label, value: value.to_owned() };
        let ports = |label| match value(label) {
            Some(text) => parse_ports(text).map_err(|()| malformed(label, text)),
            None => Ok(0),
        };
        let authorizations = value(AUTHORIZATIONS).unwrap_or_default();
        Ok(Self {
            portsadm: grants_portsadm(authorizations)
                .map_err(|()| malformed(AUTHORIZATIONS, authorizations))?,
            demand: Demand { tcp: ports(TCP_PORTS_DEMAND)?, udp: ports(UDP_PORTS_DEMAND)? },
        })
    }
}

/// A count in plain decimal digits: no sign, no blanks.
pub(super) fn parse_ports(text: &str) -> Result<u16, ()> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(());
    }
    text.parse().map_err(|_| ())
}

/// `list` is `AGENT:ROLE[,ROLE...]` entries with white space between them. The agent counts only
/// as exactly `node`, the role only as exactly `portsadm`; several `node` entries add up.
pub(super) fn grants_portsadm(list: &str) -> Result<bool, ()> {
    let mut granted = false;
    for entry in list.split_whitespace() {
        let (agent, roles) = entry.split_once(':').ok_or(())?;
        if agent.is_empty() || roles.split(',').any(str::is_empty) {
            return Err(());
        }
        granted |= agent == NODE_AGENT && roles.split(',').any(|role| role == PORTSADM);
    }
    Ok(granted)
}

impl From<MalformedLabel> for crate::error::Error {
    fn from(_: MalformedLabel) -> Self {
        Self::invalid("labels")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Labels, MalformedLabel> {
        let labels = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Labels::parse(&labels)
    }

    fn portsadm(authorizations: &str) -> bool {
        parse(&[(AUTHORIZATIONS, authorizations)]).unwrap().portsadm
    }

    #[test]
    fn only_exact_words_grant_the_role() {
        for granted in [
            "node:portsadm",
            "node:fwadm,portsadm",
            "traefik@node:routeadm node:fwadm node:tunadm,portsadm",
            " \tnode:portsadm\n",
            "node:portsadm node:portsadm",
        ] {
            assert!(portsadm(granted), "{granted:?}");
        }
        for not_granted in [
            "",
            "  ",
            "node:portsadmin",
            "node:PORTSADM",
            "Node:portsadm",
            "node:fwadm",
            "cluster:portsadm",
            "traefik@node:portsadm",
            "node@node:portsadm",
            "nodes:portsadm",
        ] {
            assert!(!portsadm(not_granted), "{not_granted:?}");
        }
    }

    #[test]
    fn malformed_authorizations_are_refused() {
        for bad in [
            "portsadm",
            "node:fwadm portsadm",
            "node:",
            ":portsadm",
            "node:fwadm,",
            "node:,portsadm",
        ] {
            assert!(parse(&[(AUTHORIZATIONS, bad)]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn demands_are_plain_counts() {
        let labels = parse(&[(TCP_PORTS_DEMAND, "65535"), ("org.other", "x y z")]).unwrap();
        assert_eq!(labels.demand, Demand { tcp: 65535, udp: 0 });
        for bad in ["", " 1", "1 ", "+1", "-1", "1.0", "65536", "1e3", "٣", "0x10"] {
            assert!(parse(&[(UDP_PORTS_DEMAND, bad)]).is_err(), "{bad:?}");
        }
    }
}
