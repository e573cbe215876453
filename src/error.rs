//! What can go wrong with a call, in the words of the domain.
//!
//! A client learns the condition and its numbers; the cause goes to the journal. Each wire spells
//! a condition in one place, from the row that [`Condition::row`] gives.

use std::fmt;

use serde::Serialize;

use crate::model::{ModuleId, Owner, Protocol, RangeName};

/// Why a call was refused or failed. A call that ends in an error has changed nothing.
///
/// Serialised, it is the object of its fields, spelt in camelCase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Error {
    /// The caller may not do this, or not to this owner.
    PermissionDenied {
        /// The owner that the call was about, where it named one.
        owner: Option<Owner>,
    },
    /// The module's image does not grant it the role that the call needs.
    MissingRole {
        /// The module.
        module_id: ModuleId,
        /// The role, always `portsadm`.
        role: &'static str,
    },
    /// The registry has no such module.
    UnknownModule {
        /// The id that was named.
        module_id: ModuleId,
    },
    /// The module would hold more ports than its image asks for. In ports.
    DemandExceeded {
        /// What this call asked for.
        requested: u16,
        /// What the module holds now in this protocol, claims aside.
        allocated: u32,
        /// What it may hold.
        demand: u16,
    },
    /// No free block of the pool is large enough. In ports.
    PoolExhausted {
        /// The protocol asked for.
        protocol: Protocol,
        /// What this call asked for.
        requested: u16,
        /// The most that this call could have got.
        largest_free: u16,
    },
    /// The range can't grow where it is.
    CannotGrow {
        /// Its first port.
        start: u16,
        /// Its last port.
        end: u16,
        /// The ports asked for.
        requested: u16,
    },
    /// The owner does not hold what the call named.
    NotAllocated {
        /// The owner.
        owner: Owner,
    },
    /// A port of the range belongs to somebody.
    Occupied {
        /// Who holds it.
        owner: Owner,
        /// The first port of what they hold.
        start: u16,
        /// The last port of what they hold.
        end: u16,
    },
    /// The owner has a range of that name.
    NameTaken {
        /// The owner.
        owner: Owner,
        /// The name.
        name: RangeName,
    },
    /// Nobody can say now who the caller is.
    RegistryUnavailable {},
    /// The database could not be read or written.
    StorageFailure {
        /// What kind of failure.
        reason: StorageReason,
    },
    /// The service is on its way out; the next connection starts it anew.
    ShuttingDown {},
    /// A parameter is unknown, missing, given twice, of the wrong type or out of range.
    InvalidParameter {
        /// The parameter's name, in camelCase; each wire spells it its own way.
        parameter: String,
    },
}

/// What kind of storage failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageReason {
    /// The disk or the quota is full.
    DiskFull,
    /// The file or its directory can't be written.
    ReadOnly,
    /// Another process keeps the database locked.
    Busy,
    /// The database is damaged, or holds what portsd would never write.
    Corrupt,
    /// Anything else; the journal has the cause.
    Other,
}

/// The conditions without their fields: one row of the error table each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Condition {
    /// See [`Error::PermissionDenied`].
    PermissionDenied,
    /// See [`Error::MissingRole`].
    MissingRole,
    /// See [`Error::UnknownModule`].
    UnknownModule,
    /// See [`Error::DemandExceeded`].
    DemandExceeded,
    /// See [`Error::PoolExhausted`].
    PoolExhausted,
    /// See [`Error::CannotGrow`].
    CannotGrow,
    /// See [`Error::NotAllocated`].
    NotAllocated,
    /// See [`Error::Occupied`].
    Occupied,
    /// See [`Error::NameTaken`].
    NameTaken,
    /// See [`Error::RegistryUnavailable`].
    RegistryUnavailable,
    /// See [`Error::StorageFailure`].
    StorageFailure,
    /// See [`Error::ShuttingDown`].
    ShuttingDown,
    /// See [`Error::InvalidParameter`].
    InvalidParameter,
}

/// How the outside sees a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The condition's name, on both wires.
    pub name: &'static str,
    /// The code of its JSON-RPC error object.
    pub json_rpc_code: i32,
    /// The exit status of a portsctl that met it.
    pub exit_status: u8,
}

impl Condition {
    /// Every condition, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::PermissionDenied,
        Self::MissingRole,
        Self::UnknownModule,
        Self::DemandExceeded,
        Self::PoolExhausted,
        Self::CannotGrow,
        Self::NotAllocated,
        Self::Occupied,
        Self::NameTaken,
        Self::RegistryUnavailable,
        Self::StorageFailure,
        Self::ShuttingDown,
        Self::InvalidParameter,
    ];

    /// The condition's row of the table.
    #[must_use]
    pub const fn row(self) -> Row {
        let (name, json_rpc_code, exit_status) = match self {
            Self::PermissionDenied => ("PermissionDenied", -32021, 3),
            Self::MissingRole => ("MissingRole", -32022, 3),
            Self::UnknownModule => ("UnknownModule", -32023, 6),
            Self::DemandExceeded => ("DemandExceeded", -32024, 4),
            Self::PoolExhausted => ("PoolExhausted", -32025, 5),
            Self::CannotGrow => ("CannotGrow", -32026, 5),
            Self::NotAllocated => ("NotAllocated", -32027, 6),
            Self::Occupied => ("Occupied", -32028, 5),
            Self::NameTaken => ("NameTaken", -32029, 5),
            Self::RegistryUnavailable => ("RegistryUnavailable", -32030, 7),
            Self::StorageFailure => ("StorageFailure", -32031, 7),
            Self::ShuttingDown => ("ShuttingDown", -32032, 7),
            Self::InvalidParameter => ("InvalidParameter", -32602, 2),
        };
        Row { name, json_rpc_code, exit_status }
    }

    /// The condition of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|condition| condition.row().name == name)
    }
}

impl Error {
    /// An [`Error::InvalidParameter`] that names `parameter`.
    pub fn invalid(parameter: impl Into<String>) -> Self {
        Self::InvalidParameter { parameter: parameter.into() }
    }

    /// The condition without its fields.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        match self {
            Self::PermissionDenied { .. } => Condition::PermissionDenied,
            Self::MissingRole { .. } => Condition::MissingRole,
            Self::UnknownModule { .. } => Condition::UnknownModule,
            Self::DemandExceeded { .. } => Condition::DemandExceeded,
            Self::PoolExhausted { .. } => Condition::PoolExhausted,
            Self::CannotGrow { .. } => Condition::CannotGrow,
            Self::NotAllocated { .. } => Condition::NotAllocated,
            Self::Occupied { .. } => Condition::Occupied,
            Self::NameTaken { .. } => Condition::NameTaken,
            Self::RegistryUnavailable {} => Condition::RegistryUnavailable,
            Self::StorageFailure { .. } => Condition::StorageFailure,
            Self::ShuttingDown {} => Condition::ShuttingDown,
            Self::InvalidParameter { .. } => Condition::InvalidParameter,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.condition().row().name)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_codes_are_unique() {
        let rows = Condition::ALL.map(Condition::row);
        assert_eq!(rows.iter().map(|row| row.name).collect::<HashSet<_>>().len(), rows.len());
        let codes: HashSet<_> = rows.iter().map(|row| row.json_rpc_code).collect();
        assert_eq!(codes.len(), rows.len());
    }

    #[test]
    fn fields_are_spelt_in_camel_case() {
        let error = Error::PoolExhausted { protocol: Protocol::Udp, requested: 9, largest_free: 4 };
        assert_eq!(
            serde_json::to_value(error).unwrap(),
            serde_json::json!({"protocol": "udp", "requested": 9, "largestFree": 4})
        );
        let error = Error::StorageFailure { reason: StorageReason::DiskFull };
        assert_eq!(
            serde_json::to_value(error).unwrap(),
            serde_json::json!({"reason": "disk_full"})
        );
        assert_eq!(serde_json::to_value(Error::ShuttingDown {}).unwrap(), serde_json::json!({}));
    }
}
