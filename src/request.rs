//! What can be asked of portsd and what it answers, without a word about either wire.

use serde::Serialize;

use crate::model::{
    Allocation, Module, ModuleId, Owner, PortCount, PortRange, Protocol, UserId, UserName,
};

/// The two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// `org.nethserver.Ports`, on every socket.
    Ports,
    /// `org.nethserver.Ports.Admin`, on the admin sockets only.
    Admin,
}

/// The methods of both interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// See [`Request::Allocate`].
    Allocate,
    /// See [`Request::Deallocate`].
    Deallocate,
    /// See [`Request::List`].
    List,
    /// See [`Request::WhoAmI`].
    WhoAmI,
    /// See [`Request::GetStatus`].
    GetStatus,
    /// See [`Request::SetModule`].
    SetModule,
    /// See [`Request::ListModules`].
    ListModules,
    /// See [`Request::RemoveModule`].
    RemoveModule,
}

impl Method {
    /// Every method, in the order of the interface descriptions.
    pub const ALL: [Self; 8] = [
        Self::Allocate,
        Self::Deallocate,
        Self::List,
        Self::WhoAmI,
        Self::GetStatus,
        Self::SetModule,
        Self::ListModules,
        Self::RemoveModule,
    ];

    /// The method's name in the interface description, in `UpperCamelCase`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "Allocate",
            Self::Deallocate => "Deallocate",
            Self::List => "List",
            Self::WhoAmI => "WhoAmI",
            Self::GetStatus => "GetStatus",
            Self::SetModule => "SetModule",
            Self::ListModules => "ListModules",
            Self::RemoveModule => "RemoveModule",
        }
    }

    /// The interface that has the method.
    #[must_use]
    pub const fn interface(self) -> Interface {
        match self {
            Self::Allocate | Self::Deallocate | Self::List | Self::WhoAmI | Self::GetStatus => {
                Interface::Ports
            }
            Self::SetModule | Self::ListModules | Self::RemoveModule => Interface::Admin,
        }
    }
}

/// Whom a call is about, as far as it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The owner that the call names.
    pub owner: Option<Owner>,
    /// The module whose rights count instead of the caller's own. Administrators only.
    pub on_behalf_of: Option<ModuleId>,
}

/// A valid call: everything in it has been parsed, nothing has been authorised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Gives the owner a range of `ports` ports.
    Allocate {
        /// How many ports.
        ports: PortCount,
        /// Of which protocol.
        protocol: Protocol,
        /// `false`: afterwards the owner has exactly one unnamed range, of that size.
        /// `true`: one more unnamed range.
        keep_existing: bool,
        /// For whom.
        target: Target,
    },
    /// Frees every range of the owner in one protocol, claims aside.
    Deallocate {
        /// The protocol.
        protocol: Protocol,
        /// Whose ranges.
        target: Target,
    },
    /// The ranges that are held.
    List {
        /// Only those of this owner.
        owner: Option<Owner>,
        /// Only those of this protocol.
        protocol: Option<Protocol>,
    },
    /// Who the caller is to portsd.
    WhoAmI,
    /// How full the pools are.
    GetStatus,
    /// Registers a module, or replaces its entry.
    SetModule {
        /// The entry.
        module: Module,
    },
    /// The registered modules.
    ListModules,
    /// Takes a module's entry away, and every range of the module and of its helper owners.
    RemoveModule {
        /// The module.
        module_id: ModuleId,
    },
}

impl Request {
    /// The method that was called.
    #[must_use]
    pub const fn method(&self) -> Method {
        match self {
            Self::Allocate { .. } => Method::Allocate,
            Self::Deallocate { .. } => Method::Deallocate,
            Self::List { .. } => Method::List,
            Self::WhoAmI => Method::WhoAmI,
            Self::GetStatus => Method::GetStatus,
            Self::SetModule { .. } => Method::SetModule,
            Self::ListModules => Method::ListModules,
            Self::RemoveModule { .. } => Method::RemoveModule,
        }
    }

    /// The owner that the call names, if it names one.
    #[must_use]
    pub const fn named_owner(&self) -> Option<&Owner> {
        match self {
            Self::Allocate { target, .. } | Self::Deallocate { target, .. } => {
                target.owner.as_ref()
            }
            Self::List { owner, .. } => owner.as_ref(),
            Self::WhoAmI
            | Self::GetStatus
            | Self::SetModule { .. }
            | Self::ListModules
            | Self::RemoveModule { .. } => None,
        }
    }

    /// The module that the call names, if it names one.
    #[must_use]
    pub const fn named_module(&self) -> Option<&ModuleId> {
        match self {
            Self::SetModule { module } => Some(&module.id),
            Self::RemoveModule { module_id } => Some(module_id),
            Self::Allocate { .. }
            | Self::Deallocate { .. }
            | Self::List { .. }
            | Self::WhoAmI
            | Self::GetStatus
            | Self::ListModules => None,
        }
    }

    /// The module on whose behalf the call is made, if any.
    #[must_use]
    pub const fn on_behalf_of(&self) -> Option<&ModuleId> {
        match self {
            Self::Allocate { target, .. } | Self::Deallocate { target, .. } => {
                target.on_behalf_of.as_ref()
            }
            Self::List { .. }
            | Self::WhoAmI
            | Self::GetStatus
            | Self::SetModule { .. }
            | Self::ListModules
            | Self::RemoveModule { .. } => None,
        }
    }
}

/// What a call answers. Serialised, it is the object of its fields, spelt in camelCase, and no
/// object in it has keys that are data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Reply {
    /// To [`Request::Allocate`].
    Allocate {
        /// The range as it is stored.
        range: PortRange,
    },
    /// To [`Request::Deallocate`].
    Deallocate {
        /// The ranges that were freed.
        ranges: Vec<PortRange>,
    },
    /// To [`Request::List`].
    List {
        /// Ordered by protocol and start.
        allocations: Vec<Allocation>,
    },
    /// To [`Request::WhoAmI`].
    WhoAmI {
        /// The user id that the kernel reported when the caller connected.
        uid: UserId,
        /// What the caller counts as.
        caller: CallerKind,
        /// The module, where the caller is one.
        module_id: Option<ModuleId>,
        /// The Unix user that the user id stands for, where there is one.
        unix_user: Option<UserName>,
        /// Whether the module may change its own ports.
        portsadm: bool,
        /// How many TCP ports the module may hold.
        tcp_ports_demand: Option<u16>,
        /// How many UDP ports the module may hold.
        udp_ports_demand: Option<u16>,
    },
    /// To [`Request::GetStatus`].
    GetStatus {
        /// One for each protocol.
        pools: Vec<PoolStatus>,
    },
    /// To [`Request::SetModule`].
    SetModule {},
    /// To [`Request::ListModules`].
    ListModules {
        /// Ordered by id.
        modules: Vec<ModuleEntry>,
    },
    /// To [`Request::RemoveModule`].
    RemoveModule {
        /// The ranges that were freed.
        freed: Vec<Allocation>,
    },
}

/// What a caller counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallerKind {
    /// Nobody that portsd knows.
    Anonymous,
    /// A process of a registered module.
    Module,
    /// The superuser, or the service's own user, on an admin socket.
    Administrator,
}

/// How full the pool is in one protocol. Numbers of ports, unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// The protocol.
    pub protocol: Protocol,
    /// The first port and the last port of the pool.
    #[serde(flatten)]
    pub range: PortRange,
    /// Ports in the pool, those excluded by configuration aside.
    pub total: u32,
    /// Of these, ports that somebody holds.
    pub allocated: u32,
    /// Of these, ports that nobody holds.
    pub free: u32,
    /// The largest block of free ports.
    pub largest_free: u16,
    /// How many ranges are held, claims outside the pool included.
    pub allocations: usize,
}

/// A module as [`Reply::ListModules`] shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// that [`Request::SetModule`] made.
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
