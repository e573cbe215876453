//! The database, and the file system that it is on.

use std::io::ErrorKind;
use std::path::Path;

use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};

use super::{Check, Report};
use crate::allocator;
use crate::error::StorageReason;
use crate::store::{self, Flaw, OpenError};

/// With less than this, in bytes, the next change may find no room.
const ROOM_MIN: u128 = 1024 * 1024;

/// Blocks: it reads the whole database.
pub(super) fn check(directory: &Path) -> Report {
    let mut report = Report::default();
    for flaw in store::check(directory, allocator::take_in) {
        let (message, advice) = describe(&flaw, directory);
        report.find(Check::Database, message, advice);
    }
    match statvfs(directory) {
        Ok(found) => report.add(judge_room(directory, Room::of(&found))),
        // the database has told of it
        Err(nix::errno::Errno::ENOENT) => {}
        Err(error) => report.remark(format!(
            "the file system of {} does not tell how full it is: {error}",
            directory.display()
        )),
    }
    report
}

/// What is wrong and what to do about it.
fn describe(flaw: &Flaw, directory: &Path) -> (String, String) {
    match flaw {
        Flaw::Missing { path } => (
            format!("{} is not there", path.display()),
            "if the state directory is another one, name it with --state-dir; otherwise portsd has \
             never started here, and `journalctl -u portsd` may say why"
                .to_owned(),
        ),
        Flaw::Unusable(error) => describe_unusable(error, directory),
        Flaw::Older { path, found, known } => (
            format!(
                "{} has schema version {found}, portsctl's is {known}: the portsd that uses it is \
                 an older one",
                path.display()
            ),
            "start the new one with `systemctl restart portsd.service`".to_owned(),
        ),
        Flaw::Schema { path, objects } => (
            format!(
                "{} lacks, or has changed, what keeps wrong rows out of it: {}",
                path.display(),
                objects.join(", ")
            ),
            restore(directory),
        ),
        Flaw::Mode { path, found, expected } => (
            format!("{} has mode {found:04o} instead of {expected:04o}", path.display()),
            format!("`chmod {expected:04o} {}`", path.display()),
        ),
        Flaw::Owner { path, like } => (
            format!(
                "{} has another owner than {}, so that portsd may not be able to use it",
                path.display(),
                like.display()
            ),
            format!("`chown --reference={} {}`", like.display(), path.display()),
        ),
    }
}

fn restore(directory: &Path) -> String {
    format!(
        "stop portsd and its sockets, put a backup in the place of the file (there may be some in \
         {}), without any -wal or -shm file beside it, and start them again",
        directory.join("backups").display()
    )
}

fn describe_unusable(error: &OpenError, directory: &Path) -> (String, String) {
    let restore = || restore(directory);
    match error {
        OpenError::Io { path, source } if source.kind() == ErrorKind::PermissionDenied => (
            format!("{} can't be read by this user", path.display()),
            "run this as root".to_owned(),
        ),
        OpenError::Io { path, source } => {
            (format!("{} can't be read: {source}", path.display()), restore())
        }
        OpenError::Empty { path } => (format!("{} is empty", path.display()), restore()),
        OpenError::Lost { log } => {
            (format!("{} is there without its database", log.display()), restore())
        }
        OpenError::Foreign { path } => (
            format!("{} is no database of portsd, which will not start over it", path.display()),
            restore(),
        ),
        OpenError::Newer { path, found, known } => (
            format!(
                "{} has schema version {found}; this program knows versions up to {known}",
                path.display()
            ),
            format!("install the newer portsd again, or {}", restore()),
        ),
        OpenError::Corrupt { path, finding } => {
            (format!("{} is damaged ({finding})", path.display()), restore())
        }
        OpenError::NoWriteAheadLog { path } => (
            format!("there can be no write-ahead log beside {}", path.display()),
            "put the state directory on a local file system".to_owned(),
        ),
        OpenError::Store { path, source } if source.reason() == StorageReason::Corrupt => (
            format!("{} holds what portsd will not start over ({source})", path.display()),
            format!("mend the row with sqlite3, or {}", restore()),
        ),
        OpenError::Store { path, source } => (
            format!("{} can't be read: {source}", path.display()),
            "if another process keeps it locked, end that one; else see `journalctl -u portsd`"
                .to_owned(),
        ),
    }
}

/// What a file system can still take.
#[derive(Debug, Clone, Copy)]
struct Room {
    is_read_only: bool,
    /// For users other than root, in bytes.
    bytes: u128,
    has_files_left: bool,
}

impl Room {
    fn of(found: &Statvfs) -> Self {
        let bytes =
            u128::from(found.blocks_available()).saturating_mul(u128::from(found.fragment_size()));
        Self {
            is_read_only: found.flags().contains(FsFlags::ST_RDONLY),
            bytes,
            // some file systems count none at all
            has_files_left: found.files() == 0 || found.files_available() > 0,
        }
    }
}

fn judge_room(directory: &Path, room: Room) -> Report {
    let mut report = Report::default();
    let directory = directory.display();
    if room.is_read_only {
        report.find(
            Check::Database,
            format!("the file system of {directory} is read-only"),
            format!(
                "see `dmesg` for a failing disk, and mount it writable: `findmnt -T {directory}`"
            ),
        );
    } else if room.bytes < ROOM_MIN {
        report.find(
            Check::Database,
            format!("the file system of {directory} is full: {} bytes are left", room.bytes),
            format!("make some room: `df -h {directory}`"),
        );
    } else if !room.has_files_left {
        report.find(
            Check::Database,
            format!("the file system of {directory} can't take any more files"),
            format!("remove some: `df -i {directory}`"),
        );
    }
    report
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    const STATE: &str = "/var/lib/portsd";

    fn path() -> PathBuf {
        Path::new(STATE).join("ports.sqlite")
    }

    fn said(flaw: &Flaw) -> String {
        let (message, advice) = describe(flaw, Path::new(STATE));
        format!("{message}. {advice}")
    }

    #[test]
    fn every_flaw_names_its_file_and_a_way_out() {
        let path = path;
        let io = |kind: ErrorKind| {
            Flaw::Unusable(OpenError::Io { path: path(), source: io::Error::from(kind) })
        };
        for (flaw, word) in [
            (Flaw::Missing { path: path() }, "--state-dir"),
            (Flaw::Older { path: path(), found: 1, known: 2 }, "systemctl restart portsd.service"),
            (
                Flaw::Mode { path: path(), found: 0o644, expected: 0o640 },
                "mode 0644 instead of 0640. `chmod 0640 /var/lib/portsd/ports.sqlite`",
            ),
            (
                Flaw::Owner { path: path(), like: STATE.into() },
                "`chown --reference=/var/lib/portsd /var/lib/portsd/ports.sqlite`",
            ),
            (io(ErrorKind::PermissionDenied), "as root"),
            (io(ErrorKind::Other), "/var/lib/portsd/backups"),
            (Flaw::Unusable(OpenError::Empty { path: path() }), "empty"),
            (Flaw::Unusable(OpenError::Foreign { path: path() }), "no database of portsd"),
            (
                Flaw::Unusable(OpenError::Newer { path: path(), found: 9, known: 2 }),
                "version 9; this program knows versions up to 2",
            ),
            (
                Flaw::Unusable(OpenError::Corrupt { path: path(), finding: "page 3".to_owned() }),
                "damaged (page 3). stop portsd",
            ),
        ] {
            let said = said(&flaw);
            assert!(said.contains("/var/lib/portsd/ports.sqlite"), "{said}");
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn little_room_is_no_room() {
        let sound = Room { is_read_only: false, bytes: ROOM_MIN, has_files_left: true };
        let found = |room| {
            let report = judge_room(Path::new(STATE), room);
            report.findings.first().map(|finding| finding.message.clone()).unwrap_or_default()
        };
        assert_eq!(found(sound), "");
        assert!(found(Room { bytes: ROOM_MIN - 1, ..sound }).contains("1048575 bytes"));
        assert!(found(Room { has_files_left: false, ..sound }).contains("files"));
        let broken = Room { is_read_only: true, bytes: 0, ..sound };
        assert!(found(broken).contains("read-only"), "the cause comes first");
    }
}
