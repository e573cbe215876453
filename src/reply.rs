//! What portsd answers, without a word about either wire.
//!
//! Serialised, a reply is the object of its fields, spelt in camelCase, and no object in it has
//! keys that are data. portsctl reads them back.

use serde::{Deserialize, Serialize};

use crate::model::{
    Allocation, HistoryEvent, Module, ModuleId, PortRange, Protocol, UserId, UserName,
};
use crate::request::ImportedRange;

/// What a call answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// To Allocate.
    Allocate(Allocated),
    /// To Ensure.
    Ensure(Ensured),
    /// To Deallocate.
    Deallocate(Deallocated),
    /// To List.
    List(Listed),
    /// To Monitor, again and again.
    Monitor(Monitored),
    /// To `WhoAmI`.
    WhoAmI(CallerInfo),
    /// To `GetStatus`.
    GetStatus(Status),
    /// To `SetModule`.
    SetModule(ModuleSet),
    /// To `ListModules`.
    ListModules(Modules),
    /// To `RemoveModule`.
    RemoveModule(ModuleRemoved),
    /// To Claim.
    Claim(Claimed),
    /// To Transfer.
    Transfer(Transferred),
    /// To Reclaim.
    Reclaim(Reclaimed),
    /// To Import.
    Import(Imported),
    /// To History.
    History(Past),
    /// To Backup.
    Backup(BackedUp),
}

/// The range that the owner has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocated {
    /// The range as it is stored.
    pub range: PortRange,
}

/// The range of that name that the owner has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ensured {
    /// The range as it is stored, at the same numbers in every protocol listed.
    pub range: PortRange,
    /// Whether anything is new about it.
    pub changed: bool,
}

/// What was freed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deallocated {
    /// The ranges that were freed.
    pub ranges: Vec<PortRange>,
}

/// What is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Ordered by protocol and start.
    pub allocations: Vec<Allocation>,
}

/// What somebody who monitors learns next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitored {
    /// What has happened, or is there.
    pub event: Event,
}

/// One thing to learn for somebody who monitors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What this tells.
    pub kind: EventKind,
    /// The range that it is about, if it is about one.
    pub allocation: Option<Allocation>,
}

/// What an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The range was held when monitoring began.
    Present,
    /// That was all that was held; changes follow.
    Ready,
    /// The range has been given.
    Allocated,
    /// The range has been freed.
    Deallocated,
    /// The next changes are not told. The last event.
    Lagged,
}

/// Who the caller is to portsd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallerInfo {
    /// The user id that the kernel reported when the caller connected.
    pub uid: UserId,
    /// What the caller counts as.
    pub caller: CallerKind,
    /// The module, where the caller is one.
    pub module_id: Option<ModuleId>,
    /// The Unix user that the user id stands for, where there is one.
    pub unix_user: Option<UserName>,
    /// Whether the module may change its own ports.
    pub portsadm: bool,
    /// How many TCP ports the module may hold.
    pub tcp_ports_demand: Option<u16>,
    /// How many UDP ports the module may hold.
    pub udp_ports_demand: Option<u16>,
}

/// What a caller counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallerKind {
    /// Nobody that portsd knows.
    Anonymous,
    /// A process of a registered module.
    Module,
    /// The superuser, or the service's own user, on an admin socket.
    Administrator,
}

/// How full the pools are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// One for each protocol.
    pub pools: Vec<PoolStatus>,
}

/// How full the pool is in one protocol. Numbers of ports, unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// The protocol.
    pub protocol: Protocol,
    /// The first port and the last port of the pool.
    #[serde(flatten)]
    pub range: PortRange,
    /// Ports in the pool that are held, or that the configuration does not exclude: the sum of
    /// `allocated`, `free` and `bound`.
    pub total: u32,
    /// Of these, ports that somebody holds.
    pub allocated: u32,
    /// Of these, ports that can be given.
    pub free: u32,
    /// Of the free ones, ports that others get only when nothing else fits, since they were freed
    /// a short while ago.
    pub quarantined: u32,
    /// Ports that nobody holds and some process has bound.
    pub bound: u32,
    /// The largest block of free ports, quarantined ones included.
    pub largest_free: u16,
    /// How many ranges are held, claims outside the pool included.
    pub allocations: usize,
}

/// The module is registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSet {}

/// The registered modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modules {
    /// Ordered by id.
    pub modules: Vec<ModuleEntry>,
}

/// The ports are the owner's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {}

/// What has another owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transferred {
    /// The ranges, with their new owner.
    pub moved: Vec<Allocation>,
}

/// What modules held that are no longer there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// The ranges that were freed, or would be.
    pub freed: Vec<Allocation>,
}

/// What was taken over of what others have handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// How many ranges are new, or would be.
    pub imported: usize,
    /// How many were held already, just so.
    pub unchanged: usize,
    /// What can't be taken over.
    pub problems: Vec<Problem>,
}

/// A range that can't be taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The range as it was given.
    #[serde(flatten)]
    pub range: ImportedRange,
    /// Why not.
    pub reason: String,
}

/// Who held what, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The newest first.
    pub events: Vec<HistoryEvent>,
}

/// There is a copy of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUp {
    /// Where.
    pub path: String,
}

/// What a removed module and its helpers held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleRemoved {
    /// The ranges that were freed.
    pub freed: Vec<Allocation>,
}

/// A module as `ListModules` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleEntry {
    /// The module's id.
    pub module_id: ModuleId,
    /// The Unix user that its processes run as.
    pub unix_user: UserName,
    /// Whether it may change its own ports.
    pub portsadm: bool,
    /// How many TCP ports it may hold.
    pub tcp_ports_demand: u16,
    /// How many UDP ports it may hold.
    pub udp_ports_demand: u16,
    /// Whether the entry is a memory of a source that does not answer now. Never so for entries
    /// that `SetModule` made.
    pub stale: bool,
}

impl From<&Module> for ModuleEntry {
    fn from(module: &Module) -> Self {
        Self {
            module_id: module.id.clone(),
            unix_user: module.unix_user.clone(),
            portsadm: module.portsadm,
            tcp_ports_demand: module.demand.tcp,
            udp_ports_demand: module.demand.udp,
            stale: false,
        }
    }
}
