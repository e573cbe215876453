//! How full the pools are: numbers, and a map of what is held where.

use std::env;
use std::io::{self, IsTerminal};

use serde_json::{Value, json};

use super::failure::Failure;
use super::map::{Cells, Map};
use super::output::Output;
use super::session::{self, Session};
use super::table::{Column, table};
use crate::model::{Allocation, ModuleId, PortRange, Protocol};
use crate::reply::{CallerInfo, Listed, PoolStatus, Status};
use crate::request::Method;

/// How wide a map is where there is no terminal.
const WIDTH: u16 = 80;

/// Shows the pools; as JSON, that is the one reply which has the numbers.
pub(super) fn show(session: &mut Session) -> Result<Output, Failure> {
    if session.is_json() {
        let reply: Value = session.call(Method::GetStatus, &json!({}))?;
        return Ok(session::as_json(&reply));
    }
    let status: Status = session.call(Method::GetStatus, &json!({}))?;
    let caller: CallerInfo = session.call(Method::WhoAmI, &json!({}))?;
    let held: Listed = session.call(Method::List, &json!({}))?;
    let page = Page { caller: &caller, held: &held.allocations, screen: Screen::of_stdout() };
    Ok(Output { text: page.render(&status.pools), ..Output::default() })
}

/// What the reader's terminal can show.
#[derive(Debug, Clone, Copy)]
struct Screen {
    width: u16,
    cells: Cells,
}

impl Screen {
    fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self { width: WIDTH, cells: Cells::ASCII };
        }
        let size = terminal_size::terminal_size_of(io::stdout());
        let width = size.map_or(WIDTH, |(width, _)| width.0);
        let cells = if speaks_utf8() { Cells::BLOCKS } else { Cells::ASCII };
        Self { width, cells }
    }
}

/// Whether the locale says that the terminal shows UTF-8.
fn speaks_utf8() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8")
}

/// The whole page.
struct Page<'a> {
    caller: &'a CallerInfo,
    held: &'a [Allocation],
    screen: Screen,
}

impl Page<'_> {
    fn render(&self, pools: &[PoolStatus]) -> String {
        let mut text = numbers(pools);
        if let Some(module) = &self.caller.module_id {
            text.push('\n');
            for pool in pools {
                text.push_str(&self.share(module, pool.protocol));
            }
        }
        for pool in pools {
            text.push('\n');
            text.push_str(&self.map(pool));
        }
        text.push('\n');
        text.push_str(&self.legend());
        text
    }

    /// What the module has of its demand.
    fn share(&self, module: &ModuleId, protocol: Protocol) -> String {
        let own = || self.held.iter().filter(move |one| one.protocol == protocol);
        let ports = |claimed| -> u32 {
            let some = own().filter(|one| one.claimed == claimed);
            some.map(|one| u32::from(one.range.count().get())).sum()
        };
        let demand = match protocol {
            Protocol::Tcp => self.caller.tcp_ports_demand,
            Protocol::Udp => self.caller.udp_ports_demand,
        };
        let demand = demand.unwrap_or_default();
        let ranges = match own().count() {
            1 => "1 range".to_owned(),
            count => format!("{count} ranges"),
        };
        let claims = match ports(true) {
            0 => String::new(),
            claimed => format!(", besides {claimed} that an administrator fixed"),
        };
        format!(
            "{protocol}: {module} holds {} of at most {demand} ports{claims}, in {ranges}\n",
            ports(false)
        )
    }

    fn map(&self, pool: &PoolStatus) -> String {
        let same = self.held.iter().filter(|one| one.protocol == pool.protocol);
        let held: Vec<PortRange> = same.map(|one| one.range).collect();
        let range = pool.range;
        let map = Map::draw(range, &held, self.screen.width, self.screen.cells);
        let ports = match map.ports_per_cell {
            1 => "1 port".to_owned(),
            count => format!("{count} ports"),
        };
        let excluded = match u32::from(range.count().get()).saturating_sub(pool.total) {
            0 => String::new(),
            count => format!(" ({count} excluded ports are drawn as if they were free)"),
        };
        format!("{} {range}, {ports} to a character{excluded}\n{}", pool.protocol, map.rows)
    }

    fn legend(&self) -> String {
        let Cells { full, partial, empty } = self.screen.cells;
        match &self.caller.module_id {
            Some(module) => format!(
                "{full} held by {module}   {partial} partly   {empty} free, or held by others\n\
                 The maps show the ranges of {module} only: others' are not shown to modules.\n"
            ),
            None => format!("{full} allocated   {partial} partly allocated   {empty} free\n"),
        }
    }
}

fn numbers(pools: &[PoolStatus]) -> String {
    let columns = [
        Column::Left("PROTOCOL"),
        Column::Left("POOL"),
        Column::Right("PORTS"),
        Column::Right("ALLOCATED"),
        Column::Right("FREE"),
        Column::Right("QUARANTINED"),
        Column::Right("BOUND"),
        Column::Right("LARGEST FREE"),
        Column::Right("RANGES"),
    ];
    let row = |pool: &PoolStatus| {
        [
            pool.protocol.to_string(),
            pool.range.to_string(),
            pool.total.to_string(),
            pool.allocated.to_string(),
            pool.free.to_string(),
            pool.quarantined.to_string(),
            pool.bound.to_string(),
            pool.largest_free.to_string(),
            pool.allocations.to_string(),
        ]
    };
    table(columns, &pools.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn pools() -> Vec<PoolStatus> {
        let pool = |protocol, allocated, largest| {
            json!({
                "protocol": protocol, "start": 20000, "end": 20019, "total": 18,
                "allocated": allocated, "free": 17 - allocated, "quarantined": 3, "bound": 1, "largestFree": largest,
                "allocations": 2
            })
        };
        read(json!([pool("tcp", 5, 10), pool("udp", 0, 18)]))
    }

    fn held() -> Vec<Allocation> {
        let one = |start, end, claimed| {
            json!({
                "owner": "mail1", "protocol": "tcp", "name": null, "start": start, "end": end,
                "claimed": claimed, "allocatedAt": "2025-12-01T00:00:00Z"
            })
        };
        read(json!([one(20000, 20003, false), one(20010, 20010, true)]))
    }

    const ADMINISTRATOR: &str = r#"{"uid": 0, "caller": "administrator", "portsadm": false}"#;
    const MODULE: &str = r#"{"uid": 7, "caller": "module", "moduleId": "mail1",
        "unixUser": "mail1", "portsadm": true, "tcpPortsDemand": 8, "udpPortsDemand": 0}"#;

    fn page(caller: &str, cells: Cells) -> String {
        let caller: CallerInfo = serde_json::from_str(caller).unwrap();
        let page = Page { caller: &caller, held: &held(), screen: Screen { width: 80, cells } };
        page.render(&pools())
    }

    #[test]
    fn administrators_see_everything() {
        let expected = "\
PROTOCOL  POOL         PORTS  ALLOCATED  FREE  QUARANTINED  BOUND  LARGEST FREE  RANGES
tcp       20000-20019     18          5    12            3      1            10       2
udp       20000-20019     18          0    17            3      1            18       2

tcp 20000-20019, 1 port to a character (2 excluded ports are drawn as if they were free)
20000 ####......#.........

udp 20000-20019, 1 port to a character (2 excluded ports are drawn as if they were free)
20000 ....................

# allocated   + partly allocated   . free
";
        assert_eq!(page(ADMINISTRATOR, Cells::ASCII), expected);
        let blocks = page(ADMINISTRATOR, Cells::BLOCKS);
        assert!(blocks.contains("20000 ████······█·········\n"), "{blocks}");
        assert!(blocks.ends_with("█ allocated   ▒ partly allocated   · free\n"), "{blocks}");
    }

    #[test]
    fn modules_are_told_that_they_see_their_own() {
        let page = page(MODULE, Cells::ASCII);
        for line in [
            "tcp: mail1 holds 4 of at most 8 ports, besides 1 that an administrator fixed, in 2 ranges\n",
            "udp: mail1 holds 0 of at most 0 ports, in 0 ranges\n",
            "# held by mail1   + partly   . free, or held by others\n",
            "The maps show the ranges of mail1 only: others' are not shown to modules.\n",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}
