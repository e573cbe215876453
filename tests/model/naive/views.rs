//! What the calls that change nothing reply.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{EXCLUDED, Event, FIRST, Held, LAST, Module, Node, PROTOCOLS};

/// Seconds since 1970 as the daemon writes them.
pub fn rfc3339(seconds: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The ranges as the daemon shows them.
pub fn allocations(ranges: &[Held]) -> Value {
    ranges.iter().map(allocation).collect()
}

fn allocation(one: &Held) -> Value {
    json!({
        "owner": one.owner,
        "protocol": one.protocol,
        "name": one.name,
        "start": one.start,
        "end": one.end,
        "claimed": one.claimed,
        "allocatedAt": rfc3339(one.given.expect("what is held was given once")),
    })
}

/// For people who look into a failure.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.allocation_rows() {
            writeln!(f, "{row}")?;
        }
        for protocol in PROTOCOLS {
            for port in (FIRST..=LAST).filter(|port| self.is_resting(protocol, *port)) {
                let (owner, at) = self.freed(protocol, port).unwrap_or_default();
                writeln!(f, "{protocol} {port} rests since {owner} freed it at {at}")?;
            }
        }
        Ok(())
    }
}

impl Node {
    pub fn list(&self, owner: Option<&str>, protocol: Option<&str>) -> Value {
        let is_wanted = |one: &Held| {
            owner.is_none_or(|owner| owner == one.owner)
                && protocol.is_none_or(|protocol| protocol == one.protocol)
        };
        let listed: Vec<Held> = self.all().into_iter().filter(is_wanted).collect();
        json!({ "allocations": allocations(&listed) })
    }

    pub fn list_modules(&self) -> Value {
        let mut modules = self.modules.clone();
        modules.sort_by_key(|module| module.id);
        let entry = |module: &Module| {
            json!({
                "moduleId": module.id,
                "unixUser": module.unix_user,
                "portsadm": module.portsadm,
                "tcpPortsDemand": module.demand.tcp,
                "udpPortsDemand": module.demand.udp,
                "stale": false,
            })
        };
        json!({ "modules": modules.iter().map(entry).collect::<Vec<_>>() })
    }

    pub fn status(&self) -> Value {
        json!({ "pools": PROTOCOLS.map(|protocol| self.pool(protocol)) })
    }

    fn pool(&self, protocol: &'static str) -> Value {
        let held: Vec<&Held> = self.held.iter().filter(|one| one.protocol == protocol).collect();
        let is_held = |port: &u16| held.iter().any(|one| one.has(*port));
        let is_excluded =
            |port: u16| EXCLUDED.iter().any(|(start, end)| *start <= port && port <= *end);
        json!({
            "protocol": protocol,
            "start": FIRST,
            "end": LAST,
            // an excluded port counts while somebody has claimed it
            "total": (FIRST..=LAST).filter(|port| is_held(port) || !is_excluded(*port)).count(),
            "allocated": (FIRST..=LAST).filter(is_held).count(),
            "free": self.free(protocol),
            "quarantined": (FIRST..=LAST).filter(|port| self.is_resting(protocol, *port)).count(),
            "bound": 0,
            "largestFree": self.largest_free(protocol),
            "allocations": held.len(),
        })
    }

    pub fn history(
        &self,
        owner: Option<&str>,
        protocol: Option<&str>,
        port: Option<u16>,
        limit: usize,
    ) -> Value {
        let is_wanted = |event: &&Event| {
            owner.is_none_or(|owner| owner == event.range.owner)
                && protocol.is_none_or(|protocol| protocol == event.range.protocol)
                && port.is_none_or(|port| event.range.has(port))
        };
        let wanted = self.events.iter().rev().filter(is_wanted).take(limit);
        json!({ "events": wanted.map(|event| self.event(event)).collect::<Vec<_>>() })
    }

    fn event(&self, event: &Event) -> Value {
        let Event { at, kind, range, on_behalf_of } = event;
        json!({
            "at": rfc3339(*at),
            "kind": kind,
            "owner": range.owner,
            "protocol": range.protocol,
            "name": range.name,
            "start": range.start,
            "end": range.end,
            "uid": self.uid,
            "onBehalfOf": on_behalf_of,
        })
    }

    /// The newest events.
    pub fn newest(&self, limit: usize) -> Value {
        self.history(None, None, None, limit.max(1))
    }

    /// The rows of the table of ranges, ordered by protocol and start.
    pub fn allocation_rows(&self) -> Vec<String> {
        let row = |one: &Held| {
            let Held { owner, protocol, name, start, end, claimed, given } = one;
            let claimed = u8::from(*claimed);
            json!([owner, protocol, name, start, end, claimed, given]).to_string()
        };
        self.all().iter().map(row).collect()
    }

    /// The rows of the history, the oldest first.
    pub fn history_rows(&self) -> Vec<String> {
        let row = |event: &Event| {
            let Event { at, kind, range, on_behalf_of } = event;
            let Held { owner, protocol, name, start, end, claimed, .. } = range;
            let (uid, claimed) = (self.uid, u8::from(*claimed));
            json!([at, kind, owner, protocol, name, start, end, claimed, uid, on_behalf_of])
                .to_string()
        };
        self.events.iter().map(row).collect()
    }
}
