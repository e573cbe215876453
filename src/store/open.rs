//! How a database file is found, judged and opened.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, named_params};

use super::path::beside;
use super::schema::{APPLICATION_ID, VERSION, migrate};
use super::{Store, StoreError};
use crate::error::StorageReason;
use crate::model::PortRange;

/// The database's name in the state directory.
pub const FILE_NAME: &str = "ports.sqlite";

/// The file grows here before it gets its name, so that a database is complete or absent.
const NEW_FILE_NAME: &str = "ports.sqlite.new";

const DIRECTORY_MODE: u32 = 0o750;
pub(super) const FILE_MODE: u32 = 0o640;

/// How long the start waits for a process that keeps the database locked.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// The write-ahead log is cut back to this size once nobody reads behind it, in bytes.
const WAL_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// Why the database can't be used. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory or the file can't be read or made.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// What could not be read or made.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file exists and is empty.
    #[error(
        "{path} is empty. portsd does not start over a database that was lost: {RESTORE}, or \
         remove it and the like-named files beside it to begin with an empty pool",
        path = path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file does not exist, but the log of its last changes does.
    #[error(
        "{log} is there without its database. portsd does not start over a database that was lost: \
         {RESTORE}, or remove the log to begin with an empty pool", log = log.display()
    )]
    Lost {
        /// The log.
        log: PathBuf,
    },
    /// The file is not portsd's.
    #[error("{path} is not a portsd database; it is left untouched", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version of portsd has written the file.
    #[error(
        "{path} has schema version {found}; this portsd knows versions up to {known}. Start the \
         newer portsd, or {RESTORE}", path = path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The file is damaged.
    #[error(
        "{path} is damaged ({finding}). It is left untouched: {RESTORE}", path = path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What the check found first.
        finding: String,
    },
    /// The file system can't do what a shared database needs.
    #[error(
        "{path}: no write-ahead log on this file system. Put the state directory on a local one",
        path = path.display()
    )]
    NoWriteAheadLog {
        /// The file.
        path: PathBuf,
    },
    /// SQLite can't open it or write to it.
    #[error("{path}: {source}. {advice}", path = path.display(), advice = advice(source))]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        source: StoreError,
    },
}

/// A log of another database must not be mixed into one that is put in its place.
const RESTORE: &str = "restore a backup, without any -wal or -shm file beside it";

/// What an administrator can do about a failure.
fn advice(error: &StoreError) -> &'static str {
    match error.reason() {
        StorageReason::DiskFull => "The disk or a quota is full: make some space",
        StorageReason::ReadOnly => {
            "It can't be written: the file system is read-only, or the owner or mode of the file \
             or its directory is wrong"
        }
        StorageReason::Busy => {
            "Another process keeps it locked, or the file system knows no locks: the state \
             directory has to be on a local disk"
        }
        StorageReason::Corrupt => "Mend the rows with sqlite3, or restore a backup",
        StorageReason::Other => "The state directory has to be on a local disk that works",
    }
}

impl OpenError {
    /// A failure of the database in `directory`.
    #[must_use]
    pub fn in_directory(directory: &Path, source: StoreError) -> Self {
        Self::Store { path: directory.join(FILE_NAME), source }
    }
}

impl Store {
    /// Opens the database of a state directory, making the directory and the file where they are
    /// absent, and brings it to the current schema. `pool` is what the triggers then enforce.
    pub fn open(directory: &Path, pool: PortRange) -> Result<Self, OpenError> {
        let path = directory.join(FILE_NAME);
        if !exists(directory)? {
            make_directory(directory)?;
        }
        remove_unfinished(directory)?;
        if exists(&path)? {
            judge(&path)?;
        } else {
            create(directory, &path)?;
        }
        let fail = |source: StoreError| OpenError::Store { path: path.clone(), source };
        let mut connection = connect(&path)?;
        let version = version(&connection).map_err(|error| fail(error.into()))?;
        migrate(&mut connection, version).map_err(|error| fail(error.into()))?;
        store_pool(&connection, pool).map_err(|error| fail(error.into()))?;
        // from here on the owner of the store decides how long to wait
        connection.busy_timeout(Duration::ZERO).map_err(|error| fail(error.into()))?;
        Ok(Self { connection, data_version: 0 })
    }
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|source| OpenError::Io { path: path.to_owned(), source })
}

fn make_directory(directory: &Path) -> Result<(), OpenError> {
    fs::create_dir(directory)
        .and_then(|()| set_mode(directory, DIRECTORY_MODE))
        .map_err(|source| OpenError::Io { path: directory.to_owned(), source })
}

/// Sets the mode of what was just made, whatever the umask says.
fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Takes away what a start that was cut short has left.
fn remove_unfinished(directory: &Path) -> Result<(), OpenError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = directory.join(format!("{NEW_FILE_NAME}{suffix}"));
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(OpenError::Io { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses what is not a sound database of this program or an older one, without writing a byte.
fn judge(path: &Path) -> Result<(), OpenError> {
    judge_head(path)?;
    let fail = |error: rusqlite::Error| judgement(path, error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(fail)?;
    // closing the last connection would write the log back into a file that may be refused
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fail)?;
    connection.busy_timeout(LOCK_PATIENCE).map_err(fail)?;
    judge_contents(path, &connection).map(drop)
}

/// Refuses what is of a later version or damaged; gives the version otherwise.
pub(super) fn judge_contents(path: &Path, connection: &Connection) -> Result<i64, OpenError> {
    let fail = |error: rusqlite::Error| judgement(path, error);
    let found: i64 =
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
    if found > i64::from(VERSION) {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: VERSION });
    }
    let finding: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fail)?;
    if finding == "ok" {
        Ok(found)
    } else {
        Err(OpenError::Corrupt { path: path.to_owned(), finding })
    }
}

/// Looks at the header of SQLite's file format, where it stands: SQLite itself might repair a
/// foreign file in passing.
pub(super) fn judge_head(path: &Path) -> Result<(), OpenError> {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    const HEADER_BYTES: u64 = 100;
    const APPLICATION_ID_AT: usize = 68;
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let mut header = Vec::new();
    // whatever else there is could keep whoever opens it waiting
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    let file = File::open(path).map_err(io)?;
    file.take(HEADER_BYTES).read_to_end(&mut header).map_err(io)?;
    if header.is_empty() {
        return Err(OpenError::Empty { path: path.to_owned() });
    }
    if !header.starts_with(MAGIC) {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    match header.get(APPLICATION_ID_AT..APPLICATION_ID_AT + 4) {
        Some(id) if id == APPLICATION_ID.to_be_bytes() => Ok(()),
        Some(_) => Err(OpenError::Foreign { path: path.to_owned() }),
        None => Err(OpenError::Corrupt {
            path: path.to_owned(),
            finding: "the header is cut off".to_owned(),
        }),
    }
}

pub(super) fn judgement(path: &Path, error: rusqlite::Error) -> OpenError {
    let source = StoreError::from(error);
    match source.reason() {
        StorageReason::Corrupt => {
            OpenError::Corrupt { path: path.to_owned(), finding: source.to_string() }
        }
        _ => OpenError::Store { path: path.to_owned(), source },
    }
}

/// Refuses to begin anew where the log of a database is there and the database is not.
pub(super) fn judge_absence(path: &Path) -> Result<(), OpenError> {
    let log = beside(path, "-wal");
    if exists(&log)? { Err(OpenError::Lost { log }) } else { Ok(()) }
}

/// Makes a complete database under another name and only then gives it its own, so that a start
/// that is cut short leaves no half of one.
fn create(directory: &Path, path: &Path) -> Result<(), OpenError> {
    let new = directory.join(NEW_FILE_NAME);
    let io = |source| OpenError::Io { path: new.clone(), source };
    judge_absence(path)?;
    File::create_new(&new).and_then(|_| set_mode(&new, FILE_MODE)).map_err(io)?;
    let fail =
        |error: rusqlite::Error| OpenError::Store { path: new.clone(), source: error.into() };
    let mut connection = connect(&new)?;
    migrate(&mut connection, 0).map_err(fail)?;
    connection.close().map_err(|(_, error)| fail(error))?;
    // a link never replaces a database that another process made meanwhile
    fs::hard_link(&new, path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    fs::remove_file(&new).map_err(io)?;
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| OpenError::Io { path: directory.to_owned(), source })
}

/// Opens an existing file the way the service uses it.
fn connect(path: &Path) -> Result<Connection, OpenError> {
    let fail = |error: rusqlite::Error| judgement(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    connection.busy_timeout(LOCK_PATIENCE).map_err(fail)?;
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(fail)?;
    if mode != "wal" {
        return Err(OpenError::NoWriteAheadLog { path: path.to_owned() });
    }
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    // what a savepoint would need to undo stays in memory: there may be no other place to write to
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(fail)?;
    connection
        .pragma_update_and_check(None, "journal_size_limit", WAL_BYTES_MAX, |_| Ok(()))
        .map_err(fail)?;
    Ok(connection)
}

fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Tells the triggers where the pool is. Writes only if it has moved.
fn store_pool(connection: &Connection, pool: PortRange) -> rusqlite::Result<()> {
    let stored: Option<(u16, u16)> = connection
        .query_row(r#"SELECT start, "end" FROM pool"#, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if stored == Some((pool.start(), pool.end())) {
        return Ok(());
    }
    connection.execute(
        r#"INSERT INTO pool (id, start, "end") VALUES (1, :start, :end)
           ON CONFLICT (id) DO UPDATE SET start = excluded.start, "end" = excluded."end""#,
        named_params! { ":start": pool.start(), ":end": pool.end() },
    )?;
    Ok(())
}
