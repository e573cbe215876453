//! The replies of the service, for people.

use std::fmt::Write;

use super::output::Output;
use super::session::Show;
use super::table::{Column, table};
use crate::model::{Allocation, HistoryEvent, ModuleId, RangeName, UserName};
use crate::reply::{
    Allocated, CallerInfo, CallerKind, Claimed, Deallocated, Ensured, Listed, ModuleEntry,
    ModuleRemoved, ModuleSet, Modules, Past, Reclaimed, Transferred,
};

impl Show for Allocated {
    fn show(&self) -> Output {
        Output::line(self.range)
    }
}

impl Show for Ensured {
    fn show(&self) -> Output {
        Output::line(self.range)
    }
}

impl Show for Deallocated {
    fn show(&self) -> Output {
        let mut lines = String::new();
        for range in &self.ranges {
            // a String takes everything
            let _ = writeln!(lines, "{range}");
        }
        Output::text_or(lines, "there was nothing to free")
    }
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
            one.range.to_string(),
            one.range.count().get().to_string(),
            one.owner.to_string(),
            one.name.as_ref().map_or("-".to_owned(), RangeName::to_string),
            yes_no(one.claimed),
            one.allocated_at.to_string(),
        ]
    };
    table(columns, &allocations.iter().map(row).collect::<Vec<_>>())
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

impl Show for Listed {
    fn show(&self) -> Output {
        Output::text_or(allocations(&self.allocations), "there are no ranges to show")
    }
}

const fn kind(caller: CallerKind) -> &'static str {
    match caller {
        CallerKind::Anonymous => "anonymous",
        CallerKind::Module => "module",
        CallerKind::Administrator => "administrator",
    }
}

impl Show for CallerInfo {
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
        line("caller", Some(kind(self.caller).to_owned()));
        line("module-id", self.module_id.as_ref().map(ModuleId::to_string));
        // what an administrator may do does not come from a role
        line("portsadm", (self.caller != CallerKind::Administrator).then(|| yes_no(self.portsadm)));
        line("tcp-ports-demand", self.tcp_ports_demand.map(|ports| ports.to_string()));
        line("udp-ports-demand", self.udp_ports_demand.map(|ports| ports.to_string()));
        Output { text, ..Output::default() }
    }
}

impl Show for ModuleSet {
    fn show(&self) -> Output {
        Output::default()
    }
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
        let row = |module: &ModuleEntry| {
            [
                module.module_id.to_string(),
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

impl Show for ModuleRemoved {
    fn show(&self) -> Output {
        Output::text_or(allocations(&self.freed), "there was nothing to free")
    }
}

impl Show for Claimed {
    fn show(&self) -> Output {
        Output::default()
    }
}

impl Show for Transferred {
    fn show(&self) -> Output {
        Output::text_or(allocations(&self.moved), "there was nothing to transfer")
    }
}

impl Show for Reclaimed {
    fn show(&self) -> Output {
        Output::text_or(allocations(&self.freed), "there is nothing to reclaim")
    }
}

impl Show for Past {
    fn show(&self) -> Output {
        let columns = [
            Column::Left("WHEN"),
            Column::Left("EVENT"),
            Column::Left("PROTOCOL"),
            Column::Left("RANGE"),
            Column::Left("OWNER"),
            Column::Left("NAME"),
            Column::Right("UID"),
            Column::Left("ON BEHALF OF"),
        ];
        let row = |event: &HistoryEvent| {
            [
                event.at.to_string(),
                event.kind.as_str().to_owned(),
                event.protocol.to_string(),
                event.range.to_string(),
                event.owner.to_string(),
                event.name.as_ref().map_or("-".to_owned(), RangeName::to_string),
                event.uid.to_string(),
                event.on_behalf_of.as_ref().map_or("-".to_owned(), ModuleId::to_string),
            ]
        };
        let rows: Vec<_> = self.events.iter().map(row).collect();
        Output::text_or(table(columns, &rows), "there is nothing that is remembered")
    }
}
