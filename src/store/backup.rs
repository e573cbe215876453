//! Consistent copies of the database while it is used.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::StoreError;
use super::open::FILE_NAME;
use crate::error::StorageReason;
use crate::model::Timestamp;

/// Copies are kept in this directory of the state directory.
const DIRECTORY: &str = "backups";
/// So many copies are kept, the newest.
const KEPT: usize = 14;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database can't be read, or the copy not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory or the file can't be made.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// What could not be made.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl BackupError {
    /// What a client may know of it.
    #[must_use]
    pub fn reason(&self) -> StorageReason {
        match self {
            Self::Store(error) => error.reason(),
            Self::Io { source, .. } => match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StorageReason::DiskFull,
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                    StorageReason::ReadOnly
                }
                _ => StorageReason::Other,
            },
        }
    }
}

/// Copies the database of a state directory, as it is at one moment, while others read and write
/// it. The copy is complete and on the disk when its path is returned; of the others the newest 13
/// stay. Blocks. Only one at a time may be made.
pub fn backup(state: &Path) -> Result<PathBuf, BackupError> {
    let directory = state.join(DIRECTORY);
    let io = |path: &Path, source| BackupError::Io { path: path.to_owned(), source };
    match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(&directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(io(&directory, error));
        }
        _ => {}
    }
    let (path, file) = new_file(&directory)?;
    copy(&state.join(FILE_NAME), &path).inspect_err(|_| {
        // half a copy is none, and the error that matters is the first
        let _ = fs::remove_file(&path);
    })?;
    file.sync_all().map_err(|error| io(&path, error))?;
    if let Err(error) = remove_old(&directory, &path) {
        // there is a copy, and more of them than there should be
        tracing::warn!(%error, path = %directory.display(), "old copies can't be taken away");
    }
    File::open(&directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| io(&directory, error))?;
    Ok(path)
}

/// An empty file named after the moment, and after a number where several are of one second.
fn new_file(directory: &Path) -> Result<(PathBuf, File), BackupError> {
    let moment = Timestamp::now().to_string().replace([':', '-'], "");
    let prefix = format!("ports-{moment}-");
    let io = |path: &Path, source| BackupError::Io { path: path.to_owned(), source };
    let copies = copies(directory).map_err(|source| io(directory, source))?;
    // after the highest number, so that names go on sorting by age when old ones are gone
    let number = |path: &PathBuf| -> Option<u32> {
        let name = path.file_stem()?.to_str()?;
        name.strip_prefix(&prefix)?.parse().ok()
    };
    let next = copies.iter().filter_map(number).max().map_or(0, |last| last.saturating_add(1));
    let path = directory.join(format!("{prefix}{next:03}.sqlite"));
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path);
    file.map(|file| (path.clone(), file)).map_err(|source| io(&path, source))
}

fn copy(database: &Path, to: &Path) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    // one transaction, which in write-ahead mode holds up nobody
    connection.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
    Ok(())
}

/// The copies that there are. Their names sort by age, as far as the clock was right.
fn copies(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut copies = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("ports-") && name.ends_with(".sqlite") && entry.file_type()?.is_file() {
            copies.push(entry.path());
        }
    }
    copies.sort();
    Ok(copies)
}

/// Takes away all but the newest copies. The `new` one stays, whatever the clock has said before.
fn remove_old(directory: &Path, new: &Path) -> std::io::Result<()> {
    let mut others = copies(directory)?;
    others.retain(|path| path != new);
    let excess = others.len().saturating_sub(KEPT - 1);
    others[..excess].iter().try_for_each(fs::remove_file)
}
