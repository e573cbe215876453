//! What can be asked of portsd, without a word about either wire.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{
    HistoryQuery, Module, ModuleId, Owner, Part, PortCount, PortRange, Protocol, Protocols,
    RangeName,
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
    /// See [`Request::Ensure`].
    Ensure,
    /// See [`Request::Deallocate`].
    Deallocate,
    /// See [`Request::List`].
    List,
    /// See [`Request::Monitor`].
    Monitor,
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
    /// See [`Request::Claim`].
    Claim,
    /// See [`Request::Transfer`].
    Transfer,
    /// See [`Request::Reclaim`].
    Reclaim,
    /// See [`Request::Import`].
    Import,
    /// See [`Request::History`].
    History,
    /// See [`Request::Backup`].
    Backup,
}

impl Method {
    /// Every method, in the order of the interface descriptions.
    pub const ALL: [Self; 16] = [
        Self::Allocate,
        Self::Ensure,
        Self::Deallocate,
        Self::List,
        Self::Monitor,
        Self::WhoAmI,
        Self::GetStatus,
        Self::SetModule,
        Self::ListModules,
        Self::RemoveModule,
        Self::Claim,
        Self::Transfer,
        Self::Reclaim,
        Self::Import,
        Self::History,
        Self::Backup,
    ];

    /// The method's name in the interface description, in `UpperCamelCase`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "Allocate",
            Self::Ensure => "Ensure",
            Self::Deallocate => "Deallocate",
            Self::List => "List",
            Self::Monitor => "Monitor",
            Self::WhoAmI => "WhoAmI",
            Self::GetStatus => "GetStatus",
            Self::SetModule => "SetModule",
            Self::ListModules => "ListModules",
            Self::RemoveModule => "RemoveModule",
            Self::Claim => "Claim",
            Self::Transfer => "Transfer",
            Self::Reclaim => "Reclaim",
            Self::Import => "Import",
            Self::History => "History",
            Self::Backup => "Backup",
        }
    }

    /// Whether the method may change anything.
    #[must_use]
    pub const fn is_change(self) -> bool {
        match self {
            Self::Allocate
            | Self::Ensure
            | Self::Deallocate
            | Self::SetModule
            | Self::RemoveModule
            | Self::Claim
            | Self::Transfer
            | Self::Reclaim
            | Self::Import => true,
            Self::List
            | Self::Monitor
            | Self::WhoAmI
            | Self::GetStatus
            | Self::ListModules
            | Self::History
            | Self::Backup => false,
        }
    }

    /// The interface that has the method.
    #[must_use]
    pub const fn interface(self) -> Interface {
        match self {
            Self::Allocate
            | Self::Ensure
            | Self::Deallocate
            | Self::List
            | Self::Monitor
            | Self::WhoAmI
            | Self::GetStatus => Interface::Ports,
            Self::SetModule
            | Self::ListModules
            | Self::RemoveModule
            | Self::Claim
            | Self::Transfer
            | Self::Reclaim
            | Self::Import
            | Self::History
            | Self::Backup => Interface::Admin,
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

/// A range as somebody else has kept it, who may have kept nonsense.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportedRange {
    /// Whose, if it is a name.
    pub owner: String,
    /// In which protocol.
    pub protocol: Protocol,
    /// The lowest port, if it is one.
    pub start: i64,
    /// The highest port, if it is one.
    pub end: i64,
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
    /// Gives the owner a range of that name, or changes the size of the one that it has.
    Ensure {
        /// The name of the range.
        name: RangeName,
        /// How many ports.
        ports: PortCount,
        /// In which protocols, at the same numbers.
        protocols: Protocols,
        /// Whether the range may get other numbers where it can't grow.
        may_move: bool,
        /// For whom.
        target: Target,
    },
    /// Frees ports of the owner in one protocol.
    Deallocate {
        /// The protocol.
        protocol: Protocol,
        /// Which ports.
        part: Part,
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
    /// The ranges that are held, and then every change of them. Answered more than once.
    Monitor,
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
    /// Gives the owner ports of fixed numbers.
    Claim {
        /// The ports, inside or outside the pool.
        range: PortRange,
        /// In which protocols.
        protocols: Protocols,
        /// For whom.
        owner: Owner,
        /// The name of the range.
        name: Option<RangeName>,
    },
    /// Gives everything that one owner holds to another.
    Transfer {
        /// Who gives.
        from: Owner,
        /// Who gets.
        to: Owner,
    },
    /// Frees what modules hold that are no longer there.
    Reclaim {
        /// Only says what would be freed.
        dry_run: bool,
        /// Spares what has not been held for so long: a module is registered after it has got its
        /// ports.
        older_than: Duration,
    },
    /// Takes over what others have handed out before.
    Import {
        /// The ranges, as they were kept.
        ranges: Arc<[ImportedRange]>,
        /// Only says what would be taken over.
        dry_run: bool,
        /// Takes over the others where some can't be.
        skip_invalid: bool,
    },
    /// Who held what, and when.
    History(HistoryQuery),
    /// Copies the database.
    Backup,
}

impl Request {
    /// The method that was called.
    #[must_use]
    pub const fn method(&self) -> Method {
        match self {
            Self::Allocate { .. } => Method::Allocate,
            Self::Ensure { .. } => Method::Ensure,
            Self::Deallocate { .. } => Method::Deallocate,
            Self::List { .. } => Method::List,
            Self::Monitor => Method::Monitor,
            Self::WhoAmI => Method::WhoAmI,
            Self::GetStatus => Method::GetStatus,
            Self::SetModule { .. } => Method::SetModule,
            Self::ListModules => Method::ListModules,
            Self::RemoveModule { .. } => Method::RemoveModule,
            Self::Claim { .. } => Method::Claim,
            Self::Transfer { .. } => Method::Transfer,
            Self::Reclaim { .. } => Method::Reclaim,
            Self::Import { .. } => Method::Import,
            Self::History(_) => Method::History,
            Self::Backup => Method::Backup,
        }
    }

    /// Whom a call is about that may be made for another.
    const fn target(&self) -> Option<&Target> {
        match self {
            Self::Allocate { target, .. }
            | Self::Ensure { target, .. }
            | Self::Deallocate { target, .. } => Some(target),
            Self::List { .. }
            | Self::Monitor
            | Self::WhoAmI
            | Self::GetStatus
            | Self::SetModule { .. }
            | Self::ListModules
            | Self::RemoveModule { .. }
            | Self::Claim { .. }
            | Self::Transfer { .. }
            | Self::Reclaim { .. }
            | Self::Import { .. }
            | Self::History(_)
            | Self::Backup => None,
        }
    }

    /// The owner that the call names, if it names one.
    #[must_use]
    pub const fn named_owner(&self) -> Option<&Owner> {
        match self {
            Self::Allocate { target, .. }
            | Self::Ensure { target, .. }
            | Self::Deallocate { target, .. } => target.owner.as_ref(),
            Self::List { owner, .. } => owner.as_ref(),
            Self::Claim { owner, .. } => Some(owner),
            Self::Transfer { from, .. } => Some(from),
            Self::Monitor
            | Self::WhoAmI
            | Self::GetStatus
            | Self::SetModule { .. }
            | Self::ListModules
            | Self::RemoveModule { .. }
            | Self::Reclaim { .. }
            | Self::Import { .. }
            | Self::History(_)
            | Self::Backup => None,
        }
    }

    /// The module that the call names, if it names one.
    #[must_use]
    pub const fn named_module(&self) -> Option<&ModuleId> {
        match self {
            Self::SetModule { module } => Some(&module.id),
            Self::RemoveModule { module_id } => Some(module_id),
            Self::Allocate { .. }
            | Self::Ensure { .. }
            | Self::Deallocate { .. }
            | Self::List { .. }
            | Self::Monitor
            | Self::WhoAmI
            | Self::GetStatus
            | Self::ListModules
            | Self::Claim { .. }
            | Self::Transfer { .. }
            | Self::Reclaim { .. }
            | Self::Import { .. }
            | Self::History(_)
            | Self::Backup => None,
        }
    }

    /// The protocol that the call is about, if it is about one.
    #[must_use]
    pub const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Allocate { protocol, .. } | Self::Deallocate { protocol, .. } => Some(*protocol),
            Self::List { protocol, .. } => *protocol,
            Self::Ensure { .. }
            | Self::Monitor
            | Self::WhoAmI
            | Self::GetStatus
            | Self::SetModule { .. }
            | Self::ListModules
            | Self::RemoveModule { .. }
            | Self::Claim { .. }
            | Self::Transfer { .. }
            | Self::Reclaim { .. }
            | Self::Import { .. }
            | Self::History(_)
            | Self::Backup => None,
        }
    }

    /// The module on whose behalf the call is made, if any.
    #[must_use]
    pub fn on_behalf_of(&self) -> Option<&ModuleId> {
        self.target()?.on_behalf_of.as_ref()
    }
}
