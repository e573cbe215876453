//! The calls that are made, and how they are chosen.

use fastrand::Rng;
use serde_json::{Value, json};

use super::naive::{FIRST, Held, LAST, Module, Node, PROTOCOLS};
use super::support::{ADMIN, PORTS};

/// Who may be a module. `m1_db` is a helper of `m1` while it is none.
pub const MODULES: [&str; 4] = ["m1", "m2", "m3", "m1_db"];
/// Who may hold ports: modules, helpers, software outside, and somebody whom nobody knows.
pub const OWNERS: [&str; 9] =
    ["m1", "m2", "m3", "m1_db", "m1_rsync", "m1_db_copy", "m2_rsync", "host/proxy", "gone"];
/// Whom `RemoveModule` and List name.
const REMOVED: [&str; 9] =
    ["m1", "m2", "m3", "m1_db", "m1_rsync", "m2_rsync", "gone", BAD_NAME, BAD_NAME];
const LISTED: [&str; 4] = ["m1", "host/proxy", BAD_NAME, BAD_NAME];
/// No module id and no owner.
pub const BAD_NAME: &str = "no/name";
const USERS: [&str; 5] = ["m1", "m2", "m3", "m1_db", "shared"];
const NAMES: [&str; 3] = ["db", "sip", "web"];
const PROTOCOL_LISTS: [&[&str]; 5] =
    [&["tcp"], &["udp"], &["tcp", "udp"], &["udp", "tcp"], &["tcp", "udp"]];

/// How many ports a module may hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    pub tcp: u32,
    pub udp: u32,
}

impl Demand {
    pub fn of(self, protocol: &str) -> u32 {
        if protocol == "tcp" { self.tcp } else { self.udp }
    }
}

/// Whom a call is about.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub owner: Option<&'static str>,
    pub on_behalf_of: Option<&'static str>,
}

/// What Deallocate is to free. The last three are malformed.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    All,
    Named(&'static str),
    Ports { start: u16, end: u16 },
    StartOnly(u16),
    EndOnly(u16),
    NamedPorts { name: &'static str, start: u16 },
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Allocate {
        target: Target,
        protocol: &'static str,
        ports: u32,
        keep_existing: bool,
    },
    Ensure {
        target: Target,
        name: &'static str,
        ports: u32,
        protocols: &'static [&'static str],
        may_move: bool,
    },
    Deallocate {
        target: Target,
        protocol: &'static str,
        part: Part,
    },
    Claim {
        owner: &'static str,
        protocols: &'static [&'static str],
        name: Option<&'static str>,
        start: u16,
        end: u16,
    },
    Transfer {
        from: &'static str,
        to: &'static str,
    },
    SetModule {
        module: Module,
        labels_are_good: bool,
    },
    RemoveModule {
        id: &'static str,
    },
    Reclaim {
        dry_run: bool,
    },
    List {
        owner: Option<&'static str>,
        protocol: Option<&'static str>,
    },
    GetStatus,
    ListModules,
    History {
        owner: Option<&'static str>,
        protocol: Option<&'static str>,
        port: Option<u16>,
        limit: Option<usize>,
    },
}

impl Step {
    pub fn method(&self) -> &'static str {
        match self {
            Self::Allocate { .. } => "Allocate",
            Self::Ensure { .. } => "Ensure",
            Self::Deallocate { .. } => "Deallocate",
            Self::Claim { .. } => "Claim",
            Self::Transfer { .. } => "Transfer",
            Self::SetModule { .. } => "SetModule",
            Self::RemoveModule { .. } => "RemoveModule",
            Self::Reclaim { .. } => "Reclaim",
            Self::List { .. } => "List",
            Self::GetStatus => "GetStatus",
            Self::ListModules => "ListModules",
            Self::History { .. } => "History",
        }
    }

    pub fn interface(&self) -> &'static str {
        match self {
            Self::Allocate { .. }
            | Self::Ensure { .. }
            | Self::Deallocate { .. }
            | Self::List { .. }
            | Self::GetStatus => PORTS,
            _ => ADMIN,
        }
    }

    /// The module whose rights count, as the history names it.
    pub fn on_behalf_of(&self) -> Option<&'static str> {
        match self {
            Self::Allocate { target, .. }
            | Self::Ensure { target, .. }
            | Self::Deallocate { target, .. } => target.on_behalf_of,
            _ => None,
        }
    }

    pub fn parameters(&self) -> Value {
        match *self {
            Self::Allocate { target, protocol, ports, keep_existing } => json!({
                "ports": ports, "protocol": protocol, "keepExisting": keep_existing,
                "owner": target.owner, "onBehalfOf": target.on_behalf_of,
            }),
            Self::Ensure { target, name, ports, protocols, may_move } => json!({
                "name": name, "ports": ports, "protocols": protocols, "mayMove": may_move,
                "owner": target.owner, "onBehalfOf": target.on_behalf_of,
            }),
            Self::Deallocate { target, protocol, part } => {
                let (name, start, end) = match part {
                    Part::All => (None, None, None),
                    Part::Named(name) => (Some(name), None, None),
                    Part::Ports { start, end } => (None, Some(start), Some(end)),
                    Part::StartOnly(start) => (None, Some(start), None),
                    Part::EndOnly(end) => (None, None, Some(end)),
                    Part::NamedPorts { name, start } => (Some(name), Some(start), Some(start)),
                };
                json!({
                    "protocol": protocol, "name": name, "start": start, "end": end,
                    "owner": target.owner, "onBehalfOf": target.on_behalf_of,
                })
            }
            Self::Claim { owner, protocols, name, start, end } => json!({
                "start": start, "end": end, "protocols": protocols, "owner": owner, "name": name,
            }),
            Self::Transfer { from, to } => json!({ "fromOwner": from, "toOwner": to }),
            Self::SetModule { module, labels_are_good } => entry(module, labels_are_good),
            Self::RemoveModule { id } => json!({ "moduleId": id }),
            Self::Reclaim { dry_run } => json!({ "dryRun": dry_run }),
            Self::List { owner, protocol } => json!({ "owner": owner, "protocol": protocol }),
            Self::GetStatus | Self::ListModules => json!({}),
            Self::History { owner, protocol, port, limit } => json!({
                "owner": owner, "protocol": protocol, "port": port, "limit": limit,
            }),
        }
    }
}

/// A module as `SetModule` wants it.
fn entry(module: Module, labels_are_good: bool) -> Value {
    let Module { id, unix_user, portsadm, demand } = module;
    let authorizations = match (labels_are_good, portsadm) {
        (false, _) => "portsadm",
        (true, true) => "traefik@node:routeadm node:fwadm,portsadm",
        (true, false) => "node:fwadm",
    };
    json!({
        "moduleId": id,
        // absent, it is the module's id
        "unixUser": (unix_user != id).then_some(unix_user),
        "labels": {
            "org.nethserver.tcp-ports-demand": demand.tcp.to_string(),
            "org.nethserver.udp-ports-demand": demand.udp.to_string(),
            "org.nethserver.authorizations": authorizations,
        }
    })
}

/// Chooses the next call; `node` is what it meets.
pub fn random(rng: &mut Rng, node: &Node) -> Step {
    match rng.u32(0..100) {
        0..29 => allocate(rng, node),
        29..54 => ensure(rng, node),
        54..70 => deallocate(rng, node),
        70..76 => claim(rng, node),
        76..80 => transfer(rng),
        80..88 => set_module(rng, node),
        88..91 => Step::RemoveModule { id: pick(rng, &REMOVED) },
        91..94 => Step::Reclaim { dry_run: rng.bool() },
        94..96 => Step::List { owner: maybe(rng, &LISTED), protocol: maybe(rng, &PROTOCOLS) },
        96 => Step::GetStatus,
        97 => Step::ListModules,
        _ => Step::History {
            owner: maybe(rng, &OWNERS),
            protocol: maybe(rng, &PROTOCOLS),
            port: rng.bool().then(|| rng.u16(FIRST - 8..=LAST + 8)),
            limit: maybe(rng, &[0, 1, 10_000, 10_001]),
        },
    }
}

/// The end of all modules and of whatever they had, calls that then have nothing to go by, and a
/// new beginning.
pub fn exodus(rng: &mut Rng, node: &Node) -> Vec<Step> {
    let mut steps: Vec<Step> =
        node.modules.iter().map(|module| Step::RemoveModule { id: module.id }).collect();
    steps.extend([Step::Reclaim { dry_run: true }, Step::Reclaim { dry_run: false }]);
    // what an administrator names goes, claims included
    steps.extend(node.held.iter().map(|one| Step::Deallocate {
        target: by_administrator(one.owner),
        protocol: one.protocol,
        part: Part::Ports { start: one.start, end: one.end },
    }));
    steps.extend(MODULES.map(|id| Step::SetModule {
        module: Module { id, unix_user: id, portsadm: true, ..module(rng) },
        labels_are_good: true,
    }));
    steps
}

fn allocate(rng: &mut Rng, node: &Node) -> Step {
    let keep_existing = rng.bool();
    let (target, protocol, ports) = (target(rng), pick(rng, &PROTOCOLS), ports(rng));
    let unnamed: Vec<&Held> = node.held.iter().filter(|one| one.is_unnamed()).collect();
    if rng.u32(0..6) == 0 && !unnamed.is_empty() {
        // as many as somebody has, or some more
        let one = pick(rng, &unnamed);
        let more = rng.u32(0..=2) * rng.u32(0..=2);
        let (target, ports) = (as_owner(rng, node, one.owner), one.count() + more);
        return Step::Allocate { target, protocol: one.protocol, ports, keep_existing: false };
    }
    Step::Allocate { target, protocol, ports, keep_existing }
}

fn ensure(rng: &mut Rng, node: &Node) -> Step {
    let named: Vec<&Held> = node.held.iter().filter(|one| one.name.is_some()).collect();
    let (may_move, protocols) = (rng.bool(), pick(rng, &PROTOCOL_LISTS));
    if rng.u32(0..3) == 0 && !named.is_empty() {
        // what somebody has, as it is, larger or smaller
        let one = pick(rng, &named);
        let ports = (one.count() + rng.u32(0..=2)).saturating_sub(1).max(1);
        let (target, name) = (as_owner(rng, node, one.owner), one.name.unwrap_or_default());
        return Step::Ensure { target, name, ports, protocols, may_move };
    }
    let ports = if rng.bool() { ports(rng) } else { rng.u32(1..=5) };
    Step::Ensure { target: target(rng), name: pick(rng, &NAMES), ports, protocols, may_move }
}

fn deallocate(rng: &mut Rng, node: &Node) -> Step {
    let (target, owner, protocol) = if let Some(one) = somebody(rng, node) {
        (as_owner(rng, node, one.owner), one.owner, one.protocol)
    } else {
        let target = target(rng);
        let owner = target.on_behalf_of.or(target.owner).unwrap_or("gone");
        (target, owner, pick(rng, &PROTOCOLS))
    };
    let own = node.own(owner, protocol);
    let part = match rng.u32(0..24) {
        0..2 => Part::All,
        2..6 => Part::Named(name_of(rng, &own)),
        6 => Part::StartOnly(FIRST),
        7 => Part::EndOnly(FIRST),
        8 => Part::NamedPorts { name: pick(rng, &NAMES), start: FIRST },
        9 => Part::Ports { start: rng.u16(0..=1) * LAST, end: FIRST },
        _ => some_ports(rng, &own),
    };
    Step::Deallocate { target, protocol, part }
}

/// A range whose owner is worth naming: a module with a claim, or somebody with ranges side by side,
/// or anybody; or none at all.
fn somebody(rng: &mut Rng, node: &Node) -> Option<Held> {
    let all = node.all();
    let choice = rng.u32(0..10);
    let is_worth_it = |one: &&Held| match choice {
        0..3 => false,
        3..5 => one.claimed && node.module(one.owner).is_some(),
        5..7 => all.iter().any(|other| {
            (other.owner, other.protocol) == (one.owner, one.protocol)
                && other.start.checked_sub(1) == Some(one.end)
        }),
        _ => true,
    };
    let some: Vec<Held> = all.iter().filter(is_worth_it).copied().collect();
    (!some.is_empty()).then(|| pick(rng, &some))
}

/// Ports of which the owner mostly holds all: some out of a row of adjacent ones.
fn some_ports(rng: &mut Rng, own: &[Held]) -> Part {
    if own.is_empty() {
        let start = rng.u16(FIRST..=LAST);
        return Part::Ports { start, end: start + rng.u16(0..4) };
    }
    let is_held = |port: u16| own.iter().any(|one| one.has(port));
    let goes_on = |end: u16| end.checked_add(1).is_some_and(is_held);
    let adjacent: Vec<Held> = own.iter().copied().filter(|one| goes_on(one.end)).collect();
    let one = if adjacent.is_empty() { pick(rng, own) } else { pick(rng, &adjacent) };
    let (mut low, mut high) = (one.start, one.end);
    while is_held(low - 1) {
        low -= 1;
    }
    while goes_on(high) {
        high += 1;
    }
    match rng.u32(0..8) {
        0 => Part::Ports { start: low, end: high },
        1 => Part::Ports { start: one.start, end: one.end },
        // one too many
        2 => Part::Ports { start: low, end: high.saturating_add(1) },
        _ => {
            let start = rng.u16(low..=high);
            Part::Ports { start, end: rng.u16(start..=high) }
        }
    }
}

/// A name that the owner mostly has.
fn name_of(rng: &mut Rng, own: &[Held]) -> &'static str {
    let names: Vec<&'static str> = own.iter().filter_map(|one| one.name).collect();
    if names.is_empty() || rng.u32(0..4) == 0 { pick(rng, &NAMES) } else { pick(rng, &names) }
}

fn transfer(rng: &mut Rng) -> Step {
    let from = pick(rng, &OWNERS);
    let to = if rng.u32(0..8) == 0 { from } else { pick(rng, &OWNERS) };
    Step::Transfer { from, to }
}

fn claim(rng: &mut Rng, node: &Node) -> Step {
    let start = match rng.u32(0..10) {
        0 => rng.u16(0..=5),
        1 => rng.u16(65_525..=65_532),
        2..6 => rng.u16(FIRST - 8..=LAST + 8),
        // ports that are rather free than held
        _ => {
            let is_held = |port: &u16| node.held.iter().any(|one| one.has(*port));
            let free: Vec<u16> = (FIRST - 8..=LAST + 8).filter(|port| !is_held(port)).collect();
            pick(rng, &free)
        }
    };
    let is_reversed = rng.u32(0..10) == 0;
    let end = if is_reversed { start.saturating_sub(1) } else { start + rng.u16(0..4) };
    let (owner, protocols) = (pick(rng, &OWNERS), pick(rng, &PROTOCOL_LISTS));
    let name = rng.bool().then(|| name_of(rng, &node.own(owner, protocols[0])));
    Step::Claim { owner, protocols, name, start, end }
}

fn set_module(rng: &mut Rng, node: &Node) -> Step {
    let module = match rng.u32(0..8) {
        0 if !node.modules.is_empty() => pick(rng, &node.modules),
        _ => module(rng),
    };
    Step::SetModule { module, labels_are_good: rng.u32(0..20) > 0 }
}

fn module(rng: &mut Rng) -> Module {
    let id = pick(rng, &MODULES);
    let demand = Demand { tcp: rng.u32(0..=40), udp: rng.u32(0..=40) };
    let unix_user = if rng.u32(0..3) == 0 { pick(rng, &USERS) } else { id };
    Module { id, unix_user, portsadm: rng.u32(0..4) > 0, demand }
}

fn by_administrator(owner: &'static str) -> Target {
    Target { owner: Some(owner), on_behalf_of: None }
}

/// An administrator's call for the owner, or one as the owner itself where it is a module.
fn as_owner(rng: &mut Rng, node: &Node, owner: &'static str) -> Target {
    if node.module(owner).is_some() && rng.bool() {
        Target { owner: None, on_behalf_of: Some(owner) }
    } else {
        by_administrator(owner)
    }
}

fn target(rng: &mut Rng) -> Target {
    let owner = Some(pick(rng, &OWNERS));
    let on_behalf_of = Some(pick(rng, &["m1", "m1", "m2", "m2", "m3", "m3", "m1_db", "gone"]));
    match rng.u32(0..20) {
        0 => Target { owner: None, on_behalf_of: None },
        1 => Target { owner, on_behalf_of },
        2..12 => Target { owner, on_behalf_of: None },
        _ => Target { owner: None, on_behalf_of },
    }
}

fn ports(rng: &mut Rng) -> u32 {
    match rng.u32(0..40) {
        0 => 0,
        1 => 65_536,
        2 => 65_535,
        3 => rng.u32(60..=100),
        4..8 => rng.u32(13..=30),
        _ => rng.u32(1..=12),
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

fn maybe<T: Copy>(rng: &mut Rng, from: &[T]) -> Option<T> {
    rng.bool().then(|| pick(rng, from))
}
