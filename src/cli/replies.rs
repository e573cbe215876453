//! The replies of the service, as far as they are shown.

use std::fmt::Write;

use serde::Deserialize;

use super::output::Output;
use super::session::Show;
use super::table::{Column, table};
use crate::model::{InvalidValue, ModuleId, Owner, PortRange, Protocol, RangeName, UserName};

/// A range of ports, whose ends are the right way round.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Ends")]
pub(super) struct Range(pub(super) PortRange);

#[derive(Deserialize)]
struct Ends {
    start: u16,
    end: u16,
}

impl TryFrom<Ends> for Range {
    type Error = InvalidValue;

    fn try_from(Ends { start, end }: Ends) -> Result<Self, InvalidValue> {
        PortRange::new(start, end).map(Self)
    }
}

/// To Allocate.
#[derive(Debug, Deserialize)]
pub(super) struct Allocated {
    range: Range,
}

impl Show for Allocated {
    fn show(&self) -> Output {
        Output::line(self.range.0)
    }
}

/// To Deallocate.
#[derive(Debug, Deserialize)]
pub(super) struct Deallocated {
    ranges: Vec<Range>,
}

impl Show for Deallocated {
    fn show(&self) -> Output {
        let mut lines = String::new();
        for range in &self.ranges {
            // a String takes everything
            let _ = writeln!(lines, "{}", range.0);
        }
        Output::text_or(lines, "there was nothing to free")
    }
}

/// A range and who holds it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Allocation {
    pub(super) owner: Owner,
    pub(super) protocol: Protocol,
    pub(super) name: Option<RangeName>,
    #[serde(flatten)]
    pub(super) range: Range,
    pub(super) claimed: bool,
    pub(super) allocated_at: String,
}

fn allocations(allocations: &[Allocation]) -> String {
    let columns = [
        Column::Left("PROTOCOL"),
        Column::Left("RANGE"),
        Column::Right("PORTS"),
        Column::Left("OWNER"),
        Column::Left("NAME"),
        Column::Left("CLAIMED"),
        Column::Left("SINCE"),
    ];
    let row = |one: &Allocation| {
        [
            one.protocol.to_string(),
            one.range.0.to_string(),
            one.range.0.count().get().to_string(),
            one.owner.to_string(),
            one.name.as_ref().map_or("-".to_owned(), RangeName::to_string),
            yes_no(one.claimed),
            one.allocated_at.clone(),
        ]
    };
    table(columns, &allocations.iter().map(row).collect::<Vec<_>>())
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// To List.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub(super) allocations: Vec<Allocation>,
}

impl Show for Listed {
    fn show(&self) -> Output {
        Output::text_or(allocations(&self.allocations), "there are no ranges to show")
    }
}

/// What a caller counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Caller {
    Anonymous,
    Module,
    Administrator,
}

impl Caller {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Module => "module",
            Self::Administrator => "administrator",
        }
    }
}

/// To `WhoAmI`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhoAmI {
    pub(super) uid: u32,
    pub(super) caller: Caller,
    pub(super) module_id: Option<ModuleId>,
    pub(super) unix_user: Option<UserName>,
    pub(super) portsadm: bool,
    pub(super) tcp_ports_demand: Option<u16>,
    pub(super) udp_ports_demand: Option<u16>,
}

impl WhoAmI {
    /// How many ports of a protocol the module may hold.
    pub(super) const fn demand(&self, protocol: Protocol) -> Option<u16> {
        match protocol {
            Protocol::Tcp => self.tcp_ports_demand,
            Protocol::Udp => self.udp_ports_demand,
        }
    }
}

impl Show for WhoAmI {
    fn show(&self) -> Output {
        let mut text = String::new();
        let mut line = |key, value: Option<String>| {
            if let Some(value) = value {
                // a String takes everything
                let _ = writeln!(text, "{key}: {value}");
            }
        };
        line("uid", Some(self.uid.to_string()));
        line("unix-user", self.unix_user.as_ref().map(UserName::to_string));
        line("caller", Some(self.caller.as_str().to_owned()));
        line("module-id", self.module_id.as_ref().map(ModuleId::to_string));
        // what an administrator may do does not come from a role
        line("portsadm", (self.caller != Caller::Administrator).then(|| yes_no(self.portsadm)));
        line("tcp-ports-demand", self.tcp_ports_demand.map(|ports| ports.to_string()));
        line("udp-ports-demand", self.udp_ports_demand.map(|ports| ports.to_string()));
        Output { text, remarks: Vec::new() }
    }
}

/// One pool of the reply to `GetStatus`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pool {
    pub(super) protocol: Protocol,
    #[serde(flatten)]
    pub(super) range: Range,
    pub(super) total: u32,
    pub(super) allocated: u32,
    pub(super) free: u32,
    pub(super) largest_free: u32,
    pub(super) allocations: u32,
}

/// To `GetStatus`.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub(super) pools: Vec<Pool>,
}

/// To `SetModule`.
#[derive(Debug, Deserialize)]
pub(super) struct ModuleSet {}

impl Show for ModuleSet {
    fn show(&self) -> Output {
        Output::default()
    }
}

/// To `ListModules`.
#[derive(Debug, Deserialize)]
pub(super) struct Modules {
    modules: Vec<Module>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Module {
    #[serde(rename = "moduleId")]
    id: ModuleId,
    unix_user: UserName,
    portsadm: bool,
    tcp_ports_demand: u16,
    udp_ports_demand: u16,
    stale: bool,
}

impl Show for Modules {
    fn show(&self) -> Output {
        let columns = [
            Column::Left("MODULE"),
            Column::Left("USER"),
            Column::Left("PORTSADM"),
            Column::Right("TCP DEMAND"),
            Column::Right("UDP DEMAND"),
            Column::Left("STALE"),
        ];
        let row = |module: &Module| {
            [
                module.id.to_string(),
                module.unix_user.to_string(),
                yes_no(module.portsadm),
                module.tcp_ports_demand.to_string(),
                module.udp_ports_demand.to_string(),
                yes_no(module.stale),
            ]
        };
        let rows: Vec<_> = self.modules.iter().map(row).collect();
        Output::text_or(table(columns, &rows), "there are no modules to show")
    }
}

/// To `RemoveModule`.
#[derive(Debug, Deserialize)]
pub(super) struct ModuleRemoved {
    freed: Vec<Allocation>,
}

impl Show for ModuleRemoved {
    fn show(&self) -> Output {
        Output::text_or(allocations(&self.freed), "there was nothing to free")
    }
}
