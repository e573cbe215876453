//! The database: all SQL on it is here.
//!
//! One connection at a time belongs to the service, in write-ahead mode with full synchronisation:
//! what was committed survives a power cut. Other processes may read the file, and even write to
//! it; the triggers in the schema hold for them too, and [`Store::changed_elsewhere`] notices. A file
//! that is not a current or older portsd database is refused and stays as it is, byte for byte.

mod backup;
mod check;
mod open;
mod path;
mod schema;

use rusqlite::{
    Connection, ErrorCode, Row, Savepoint, Transaction, TransactionBehavior, named_params,
};

pub use backup::{BackupError, backup};
pub use check::{Flaw, check};
pub use open::{FILE_NAME, OpenError};
pub(crate) use path::{beside, open_to_read};
pub(crate) use schema::APPLICATION_ID;

use crate::error::StorageReason;
use crate::model::{
    Allocation, Demand, HistoryEvent, HistoryKind, HistoryQuery, InvalidValue, Module, ModuleId,
    Origin, Owner, PortRange, Protocol, RangeName, Timestamp, UserId, UserName,
};

/// The database of one state directory.
pub struct Store {
    connection: Connection,
    /// What `PRAGMA data_version` said when the contents were last loaded.
    data_version: i64,
}

/// Everything that is stored.
pub struct Contents {
    /// What is held, in no particular order.
    pub allocations: Vec<Allocation>,
    /// What was freed, in the order in which it was: all since a given moment, and the last range
    /// of each owner and name that was no claim.
    pub released: Vec<Released>,
    /// The registered modules, in no particular order.
    pub modules: Vec<Module>,
}

/// A range that was freed.
pub struct Released {
    /// The range as it was.
    pub allocation: Allocation,
    /// When it was freed.
    pub at: Timestamp,
}

/// The database could not be read or written, or holds what portsd would never write.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite said so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A stored value is not valid.
    #[error("stored row: {0}")]
    Row(#[from] InvalidValue),
    /// Stored rows contradict each other.
    #[error("stored rows: {0}")]
    Contradiction(String),
    /// The thread that would own the database could not be started.
    #[error("no thread for the database: {0}")]
    Thread(String),
}

/// What SQLite says besides that the disk is full when there is no space: the index of the
/// write-ahead log can't grow.
const SPACE: [i32; 1] = [rusqlite::ffi::SQLITE_IOERR_SHMSIZE];

impl StoreError {
    /// What a client may know of it.
    #[must_use]
    pub fn reason(&self) -> StorageReason {
        use rusqlite::Error::{
            FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType,
        };
        let error = match self {
            Self::Sqlite(
                FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..),
            )
            | Self::Row(_)
            | Self::Contradiction(_) => return StorageReason::Corrupt,
            Self::Thread(_) => return StorageReason::Other,
            Self::Sqlite(error) => error,
        };
        if error.sqlite_error().is_some_and(|cause| SPACE.contains(&cause.extended_code)) {
            return StorageReason::DiskFull;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StorageReason::DiskFull,
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StorageReason::ReadOnly
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StorageReason::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StorageReason::Corrupt,
            _ => StorageReason::Other,
        }
    }
}

impl Store {
    /// Reads everything, and what was freed after `since`.
    pub fn load(&mut self, since: Timestamp) -> Result<Contents, StoreError> {
        // both in one transaction: they must belong together
        let transaction = self.connection.transaction()?;
        let data_version = data_version(&transaction)?;
        let contents = read_contents(&transaction, since)?;
        transaction.commit()?;
        self.data_version = data_version;
        Ok(contents)
    }

    /// Whether another process has committed anything since the last load.
    pub fn changed_elsewhere(&self) -> Result<bool, StoreError> {
        Ok(data_version(&self.connection)? != self.data_version)
    }

    /// The newest events that match, the newest first.
    pub fn history(&self, query: &HistoryQuery) -> Result<Vec<HistoryEvent>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            r#"SELECT at, kind, owner, protocol, name, start, "end", uid, on_behalf_of FROM history
               WHERE (:owner IS NULL OR owner = :owner)
                   AND (:protocol IS NULL OR protocol = :protocol)
                   AND (:port IS NULL OR :port BETWEEN start AND "end")
               ORDER BY id DESC LIMIT :limit"#,
        )?;
        let mut rows = statement.query(named_params! {
            ":owner": query.owner.as_ref().map(Owner::as_str),
            ":protocol": query.protocol.map(Protocol::as_str),
            ":port": query.port,
            ":limit": query.limit,
        })?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.push(read_event(row)?);
        }
        Ok(events)
    }

    /// Begins to write. Fails at once as [`StorageReason::Busy`] while another process writes.
    pub fn begin(&mut self) -> Result<Batch<'_>, StoreError> {
        let Self { connection, data_version: loaded } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // between the last look and the lock, another process may have written
        let current = data_version(&transaction)?;
        Ok(Batch { transaction, current, loaded })
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA data_version", [], |row| row.get(0))
}

fn read_contents(connection: &Connection, since: Timestamp) -> Result<Contents, StoreError> {
    let mut statement = connection.prepare_cached(
        r#"SELECT owner, protocol, name, start, "end", claimed, allocated_at FROM allocations"#,
    )?;
    let mut rows = statement.query([])?;
    let mut allocations = Vec::new();
    while let Some(row) = rows.next()? {
        allocations.push(read_allocation(row)?);
    }
    let mut statement = connection
        .prepare_cached("SELECT id, unix_user, portsadm, tcp_demand, udp_demand FROM modules")?;
    let mut rows = statement.query([])?;
    let mut modules = Vec::new();
    while let Some(row) = rows.next()? {
        modules.push(read_module(row)?);
    }
    Ok(Contents { allocations, released: read_released(connection, since)?, modules })
}

fn read_released(connection: &Connection, since: Timestamp) -> Result<Vec<Released>, StoreError> {
    let mut statement = connection.prepare_cached(
        r#"SELECT owner, protocol, name, start, "end", claimed, at AS allocated_at FROM history
           WHERE kind = 'deallocated'
               AND (at > :since OR id IN (
                   SELECT max(id) FROM history
                   WHERE kind = 'deallocated' AND NOT claimed
                   GROUP BY owner, protocol, name))
           ORDER BY id"#,
    )?;
    let mut rows = statement.query(named_params! { ":since": since.as_unix() })?;
    let mut released = Vec::new();
    while let Some(row) = rows.next()? {
        let allocation = read_allocation(row)?;
        released.push(Released { at: allocation.allocated_at, allocation });
    }
    Ok(released)
}

/// Many changes, one transaction. Dropped without [`Batch::commit`], nothing of it stays.
pub struct Batch<'a> {
    transaction: Transaction<'a>,
    /// What `PRAGMA data_version` says in this transaction.
    current: i64,
    /// The store's memory of the last load.
    loaded: &'a mut i64,
}

impl Batch<'_> {
    /// Whether another process had written since the last load when this batch began.
    #[must_use]
    pub const fn changed_elsewhere(&self) -> bool {
        self.current != *self.loaded
    }

    /// Reads everything as this batch sees it, and what was freed after `since`.
    pub fn load(&mut self, since: Timestamp) -> Result<Contents, StoreError> {
        let contents = read_contents(&self.transaction, since)?;
        *self.loaded = self.current;
        Ok(contents)
    }

    /// Opens a part of the batch that can be undone by itself: dropped without
    /// [`Edit::keep`], nothing of it stays.
    pub fn edit(&mut self) -> Result<Edit<'_>, StoreError> {
        Ok(Edit { savepoint: self.transaction.savepoint()? })
    }

    /// Forgets the events before a moment, and all but the newest `rows`.
    pub fn forget(&self, before: Timestamp, rows: u32) -> Result<(), StoreError> {
        let mut statement = self.transaction.prepare_cached(
            "DELETE FROM history
             WHERE at < :before OR id <= (SELECT max(id) FROM history) - :rows",
        )?;
        statement.execute(named_params! { ":before": before.as_unix(), ":rows": rows })?;
        Ok(())
    }

    /// Returns when everything is on the disk.
    pub fn commit(self) -> Result<(), StoreError> {
        Ok(self.transaction.commit()?)
    }
}

/// The changes of one call.
pub struct Edit<'a> {
    savepoint: Savepoint<'a>,
}

impl Edit<'_> {
    /// Makes the changes part of the batch.
    pub fn keep(self) -> Result<(), StoreError> {
        Ok(self.savepoint.commit()?)
    }

    /// Stores a new range and returns the row as it is stored.
    pub fn insert(&self, allocation: &Allocation) -> Result<Allocation, StoreError> {
        let mut statement = self.savepoint.prepare_cached(
            r#"INSERT INTO allocations (owner, protocol, name, start, "end", claimed, allocated_at)
               VALUES (:owner, :protocol, :name, :start, :end, :claimed, :allocated_at)
               RETURNING *"#,
        )?;
        let mut rows = statement.query(named_params! {
            ":owner": allocation.owner.as_str(),
            ":protocol": allocation.protocol.as_str(),
            ":name": allocation.name.as_ref().map(RangeName::as_str),
            ":start": allocation.range.start(),
            ":end": allocation.range.end(),
            ":claimed": allocation.claimed,
            ":allocated_at": allocation.allocated_at.as_unix(),
        })?;
        the_row(&mut rows)
    }

    /// Gives a stored range other ports and returns the row as it is stored.
    pub fn resize(&self, from: &Allocation, to: PortRange) -> Result<Allocation, StoreError> {
        let mut statement = self.savepoint.prepare_cached(
            r#"UPDATE allocations SET start = :to_start, "end" = :to_end
               WHERE protocol = :protocol AND start = :start AND owner = :owner
               RETURNING *"#,
        )?;
        let mut rows = statement.query(named_params! {
            ":to_start": to.start(),
            ":to_end": to.end(),
            ":protocol": from.protocol.as_str(),
            ":start": from.range.start(),
            ":owner": from.owner.as_str(),
        })?;
        the_row(&mut rows)
    }

    /// Gives a stored range another owner and returns the row as it is stored.
    pub fn give(&self, from: &Allocation, to: &Owner) -> Result<Allocation, StoreError> {
        let mut statement = self.savepoint.prepare_cached(
            "UPDATE allocations SET owner = :to
               WHERE protocol = :protocol AND start = :start AND owner = :owner
               RETURNING *",
        )?;
        let mut rows = statement.query(named_params! {
            ":to": to.as_str(),
            ":protocol": from.protocol.as_str(),
            ":start": from.range.start(),
            ":owner": from.owner.as_str(),
        })?;
        the_row(&mut rows)
    }

    /// Frees a stored range and returns the row as it was stored.
    pub fn delete(&self, allocation: &Allocation) -> Result<Allocation, StoreError> {
        let mut statement = self.savepoint.prepare_cached(
            "DELETE FROM allocations
               WHERE protocol = :protocol AND start = :start AND owner = :owner
               RETURNING *",
        )?;
        let mut rows = statement.query(named_params! {
            ":protocol": allocation.protocol.as_str(),
            ":start": allocation.range.start(),
            ":owner": allocation.owner.as_str(),
        })?;
        the_row(&mut rows)
    }

    /// Adds an event to the history.
    pub fn record(
        &self,
        kind: HistoryKind,
        allocation: &Allocation,
        at: Timestamp,
        origin: &Origin,
    ) -> Result<(), StoreError> {
        let mut statement = self.savepoint.prepare_cached(
            r#"INSERT INTO history
                   (at, kind, owner, protocol, name, start, "end", claimed, uid, on_behalf_of)
               VALUES (:at, :kind, :owner, :protocol, :name, :start, :end, :claimed, :uid,
                   :on_behalf_of)"#,
        )?;
        statement.execute(named_params! {
            ":at": at.as_unix(),
            ":kind": kind.as_str(),
            ":owner": allocation.owner.as_str(),
            ":protocol": allocation.protocol.as_str(),
            ":name": allocation.name.as_ref().map(RangeName::as_str),
            ":start": allocation.range.start(),
            ":end": allocation.range.end(),
            ":claimed": allocation.claimed,
            ":uid": origin.uid.0,
            ":on_behalf_of": origin.on_behalf_of.as_ref().map(ModuleId::as_str),
        })?;
        Ok(())
    }

    /// Stores a module's entry, over an older one of the same id.
    pub fn set_module(&self, module: &Module) -> Result<(), StoreError> {
        let mut statement = self.savepoint.prepare_cached(
            "INSERT INTO modules (id, unix_user, portsadm, tcp_demand, udp_demand)
             VALUES (:id, :unix_user, :portsadm, :tcp_demand, :udp_demand)
             ON CONFLICT (id) DO UPDATE SET
                 unix_user = excluded.unix_user, portsadm = excluded.portsadm,
                 tcp_demand = excluded.tcp_demand, udp_demand = excluded.udp_demand",
        )?;
        statement.execute(named_params! {
            ":id": module.id.as_str(),
            ":unix_user": module.unix_user.as_str(),
            ":portsadm": module.portsadm,
            ":tcp_demand": module.demand.tcp,
            ":udp_demand": module.demand.udp,
        })?;
        Ok(())
    }

    /// Takes a module's entry away, if there is one.
    pub fn delete_module(&self, id: &ModuleId) -> Result<(), StoreError> {
        let mut statement = self.savepoint.prepare_cached("DELETE FROM modules WHERE id = :id")?;
        statement.execute(named_params! { ":id": id.as_str() })?;
        Ok(())
    }
}

/// The one row that a statement returns.
fn the_row(rows: &mut rusqlite::Rows<'_>) -> Result<Allocation, StoreError> {
    let allocation = match rows.next()? {
        Some(row) => read_allocation(row)?,
        None => return Err(StoreError::Contradiction("a range that was read is gone".to_owned())),
    };
    // a statement that returns rows has done its work only when it has been stepped to its end
    while rows.next()?.is_some() {}
    Ok(allocation)
}

fn read_allocation(row: &Row<'_>) -> Result<Allocation, StoreError> {
    let protocol: String = row.get("protocol")?;
    let name: Option<String> = row.get("name")?;
    Ok(Allocation {
        owner: Owner::try_from(row.get::<_, String>("owner")?)?,
        protocol: protocol.parse::<Protocol>()?,
        name: name.map(RangeName::try_from).transpose()?,
        range: PortRange::new(row.get("start")?, row.get("end")?)?,
        claimed: row.get("claimed")?,
        allocated_at: Timestamp::from_unix(row.get("allocated_at")?),
    })
}

fn read_event(row: &Row<'_>) -> Result<HistoryEvent, StoreError> {
    let kind: String = row.get("kind")?;
    let protocol: String = row.get("protocol")?;
    let name: Option<String> = row.get("name")?;
    let on_behalf_of: Option<String> = row.get("on_behalf_of")?;
    Ok(HistoryEvent {
        at: Timestamp::from_unix(row.get("at")?),
        kind: kind.parse()?,
        owner: Owner::try_from(row.get::<_, String>("owner")?)?,
        protocol: protocol.parse()?,
        name: name.map(RangeName::try_from).transpose()?,
        range: PortRange::new(row.get("start")?, row.get("end")?)?,
        uid: UserId(row.get("uid")?),
        on_behalf_of: on_behalf_of.map(ModuleId::try_from).transpose()?,
    })
}

fn read_module(row: &Row<'_>) -> Result<Module, StoreError> {
    Ok(Module {
        id: ModuleId::try_from(row.get::<_, String>("id")?)?,
        unix_user: UserName::try_from(row.get::<_, String>("unix_user")?)?,
        portsadm: row.get("portsadm")?,
        demand: Demand { tcp: row.get("tcp_demand")?, udp: row.get("udp_demand")? },
    })
}
