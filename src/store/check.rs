//! What is wrong with a database, found without changing a byte of it, while others use it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::open::{
    FILE_MODE, FILE_NAME, LOCK_PATIENCE, judge_absence, judge_contents, judge_head, judgement,
};
use super::path::{beside, open_to_read};
use super::schema::VERSION;
use super::{Contents, OpenError, StoreError, read_contents, schema};
use crate::model::Timestamp;

/// Something that is wrong with a database.
#[derive(Debug)]
pub enum Flaw {
    /// There is no such file.
    Missing {
        /// The file that should be there.
        path: PathBuf,
    },
    /// The service would refuse it, or could not use it.
    Unusable(OpenError),
    /// An earlier version of portsd has written it, and none of this version has opened it since.
    Older {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this program writes.
        known: u32,
    },
    /// Something is missing in it that keeps other programs from storing nonsense, or is not what
    /// this program makes.
    Schema {
        /// The file.
        path: PathBuf,
        /// The tables, indexes, triggers and views that are.
        objects: Vec<String>,
    },
    /// Its mode gives away more than reading to the group, or its owner less than reading and
    /// writing.
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        found: u32,
        /// The bits it should have.
        expected: u32,
    },
    /// It belongs to another user than the file or directory beside it that is the service's.
    Owner {
        /// The file.
        path: PathBuf,
        /// The file or directory whose owner it should have.
        like: PathBuf,
    },
}

/// Refuses what the service would not start over.
type TakeIn = fn(Contents) -> Result<(), StoreError>;

/// Looks at the database of a state directory. It is read, never written, and no file is made, but
/// for one case: where a log was left behind without its index, SQLite makes the index anew, and
/// gives it the owner and the mode of the database. What is stored has to be something that the service
/// would `take_in`. Blocks.
#[must_use]
pub fn check(directory: &Path, take_in: TakeIn) -> Vec<Flaw> {
    let path = directory.join(FILE_NAME);
    let io = |source| Flaw::Unusable(OpenError::Io { path: path.clone(), source });
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            vec![judge_absence(&path).err().map_or(Flaw::Missing { path }, Flaw::Unusable)]
        }
        Err(error) => vec![io(error)],
        Ok(found) => {
            let mut flaws: Vec<Flaw> = judge(&path, take_in).err().into_iter().collect();
            if found.is_file() {
                flaws.extend(judge_mode(&path, found.mode()));
                flaws.extend(judge_owners(directory, &path));
            }
            flaws
        }
    }
}

/// Whether the file is a sound database of this version.
fn judge(path: &Path, take_in: TakeIn) -> Result<(), Flaw> {
    judge_head(path).map_err(Flaw::Unusable)?;
    // SQLite puts the log beside what a link points to
    let path = fs::canonicalize(path)
        .map_err(|source| Flaw::Unusable(OpenError::Io { path: path.to_owned(), source }))?;
    let was_idle = is_idle(&path);
    match judge_all(&path, was_idle, take_in) {
        // the service has begun to use it meanwhile, and may have written to what was read
        Err(_) if was_idle && !is_idle(&path) => judge_all(&path, false, take_in),
        result => result,
    }
}

fn judge_all(path: &Path, is_idle: bool, take_in: TakeIn) -> Result<(), Flaw> {
    let fail = |error: rusqlite::Error| Flaw::Unusable(judgement(path, error));
    let connection = open_to_read(path, is_idle, LOCK_PATIENCE).map_err(fail)?;
    let found = judge_contents(path, &connection).map_err(Flaw::Unusable)?;
    if found < i64::from(VERSION) {
        return Err(Flaw::Older { path: path.to_owned(), found, known: VERSION });
    }
    let taken = read_contents(&connection, Timestamp::now()).and_then(take_in);
    taken.map_err(|source| Flaw::Unusable(OpenError::Store { path: path.to_owned(), source }))?;
    let objects = schema::deviations(&connection).map_err(fail)?;
    if objects.is_empty() { Ok(()) } else { Err(Flaw::Schema { path: path.to_owned(), objects }) }
}

/// Whether all there is stands in the database's own file, and nobody uses it: whoever does has an
/// index beside it.
fn is_idle(path: &Path) -> bool {
    let is_empty = fs::metadata(beside(path, "-wal")).map_or(true, |log| log.len() == 0);
    is_empty && !beside(path, "-shm").exists()
}

const PERMISSION_BITS: u32 = 0o7777;
/// What the service itself needs.
const OWNER_MODE: u32 = 0o600;

fn judge_mode(path: &Path, mode: u32) -> Option<Flaw> {
    let found = mode & PERMISSION_BITS;
    let is_sound = found & !FILE_MODE == 0 && found & OWNER_MODE == OWNER_MODE;
    (!is_sound).then(|| Flaw::Mode { path: path.to_owned(), found, expected: FILE_MODE })
}

/// The service's user owns the state directory; a backup that was put in place by root, or a
/// side file that root has made, would lock the service out.
fn judge_owners(directory: &Path, path: &Path) -> Vec<Flaw> {
    let owner = |path: &Path| fs::metadata(path).ok().map(|found| found.uid());
    let Some(expected) = owner(directory) else { return Vec::new() };
    let files = [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")];
    let strange = files.into_iter().filter(|file| owner(file).is_some_and(|uid| uid != expected));
    strange.map(|path| Flaw::Owner { path, like: directory.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::super::Store;
    use super::*;
    use crate::allocator;
    use crate::model::PortRange;

    fn check(directory: &Path) -> Vec<Flaw> {
        super::check(directory, allocator::take_in)
    }

    fn store(directory: &Path) -> Store {
        Store::open(directory, PortRange::new(20000, 20009).unwrap()).unwrap()
    }

    /// A state directory with a database that nobody uses.
    fn idle() -> TempDir {
        let directory = TempDir::with_prefix("portsd check ?#%é").unwrap();
        drop(store(directory.path()));
        directory
    }

    /// Names, owners and contents of all files.
    fn contents(directory: &Path) -> Vec<(OsString, u32, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let uid = entry.metadata().unwrap().uid();
                (entry.file_name(), uid, fs::read(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_sound_database_has_no_flaw_and_stays_as_it_is() {
        let directory = idle();
        let before = contents(directory.path());
        assert_eq!(before.len(), 1);
        assert!(check(directory.path()).is_empty());
        assert_eq!(contents(directory.path()), before);

        let store = store(directory.path());
        assert!(check(directory.path()).is_empty());
        let names: Vec<_> = contents(directory.path()).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["ports.sqlite", "ports.sqlite-shm", "ports.sqlite-wal"]);
        drop(store);
        assert_eq!(contents(directory.path()), before);
    }

    #[test]
    fn what_was_left_by_a_crash_stays_and_counts() {
        let (directory, crashed) = (idle(), TempDir::new().unwrap());
        let path = directory.path().join(FILE_NAME);
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("PRAGMA user_version = 99").unwrap();
        for suffix in ["", "-wal"] {
            let name = beside(Path::new(FILE_NAME), suffix);
            fs::copy(directory.path().join(&name), crashed.path().join(&name)).unwrap();
        }
        let before = contents(crashed.path());
        let flaws = check(crashed.path());
        assert!(
            matches!(flaws[..], [Flaw::Unusable(OpenError::Newer { found: 99, .. })]),
            "{flaws:?}"
        );
        let mut after = contents(crashed.path());
        after.retain(|(name, ..)| name != "ports.sqlite-shm");
        assert_eq!(after, before);
    }

    #[test]
    fn absent_and_foreign_files_are_told_apart() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(FILE_NAME);
        let flaws = || check(directory.path());
        assert!(matches!(flaws()[..], [Flaw::Missing { .. }]));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        fs::create_dir(&path).unwrap();
        assert!(matches!(flaws()[..], [Flaw::Unusable(OpenError::Foreign { .. })]));
        fs::remove_dir(&path).unwrap();
        // nobody writes to it: whoever opened it would wait for ever
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(flaws()[..], [Flaw::Unusable(OpenError::Foreign { .. })]));
        fs::remove_file(&path).unwrap();
        let write = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(FILE_MODE)).unwrap();
        };
        write(b"");
        assert!(matches!(flaws()[..], [Flaw::Unusable(OpenError::Empty { .. })]));
        write(&[b'x'; 4096]);
        assert!(matches!(flaws()[..], [Flaw::Unusable(OpenError::Foreign { .. })]));
        fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(FILE_MODE)).unwrap();
        assert!(matches!(flaws()[..], [Flaw::Unusable(OpenError::Foreign { .. })]));
    }

    #[test]
    fn other_versions_are_noticed() {
        let directory = idle();
        let path = directory.path().join(FILE_NAME);
        let set = |version: i64| {
            Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        };
        set(1);
        let flaws = check(directory.path());
        assert!(matches!(flaws[..], [Flaw::Older { found: 1, known: VERSION, .. }]), "{flaws:?}");
        set(i64::from(VERSION) + 1);
        let flaws = check(directory.path());
        assert!(matches!(flaws[..], [Flaw::Unusable(OpenError::Newer { .. })]), "{flaws:?}");
    }

    #[test]
    fn damage_is_found() {
        let directory = idle();
        let path = directory.path().join(FILE_NAME);
        let mut bytes = fs::read(&path).unwrap();
        // every page but the first: its header says what the file is
        bytes[4096..].fill(0x55);
        fs::write(&path, &bytes).unwrap();
        let flaws = check(directory.path());
        assert!(matches!(flaws[..], [Flaw::Unusable(OpenError::Corrupt { .. })]), "{flaws:?}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn what_the_service_would_not_take_in_is_found() {
        let found = |sql: &str| {
            let directory = idle();
            let path = directory.path().join(FILE_NAME);
            Connection::open(&path).unwrap().execute_batch(sql).unwrap();
            check(directory.path()).pop()
        };
        let insert = |owner: &str, start: u16| {
            format!(
                r#"INSERT INTO allocations (owner, protocol, start, "end", allocated_at)
                   VALUES ('{owner}', 'tcp', {start}, {start} + 1, 0);"#
            )
        };
        assert!(found(&insert("a", 20000)).is_none());
        let flaw = found(&insert("a/b", 20000));
        assert!(matches!(flaw, Some(Flaw::Unusable(OpenError::Store { .. }))), "{flaw:?}");
        let trigger = "DROP TRIGGER allocations_insert_overlap;";
        let flaw = found(&[trigger, &insert("b", 20001), &insert("a", 20000)].concat());
        assert!(format!("{flaw:?}").contains("of a overlaps 20001-20002 of b"), "{flaw:?}");
        let flaw = found(&[trigger, "DROP INDEX allocations_name"].concat());
        let Some(Flaw::Schema { objects, .. }) = flaw else { panic!("{flaw:?}") };
        assert_eq!(objects, ["allocations_insert_overlap", "allocations_name"]);
        // statistics and the like are no deviation
        assert!(found("CREATE TABLE other (a); ANALYZE").is_none());
    }

    #[test]
    fn a_log_without_its_database_is_a_lost_database() {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("ports.sqlite-wal"), "x").unwrap();
        let flaws = check(directory.path());
        assert!(matches!(flaws[..], [Flaw::Unusable(OpenError::Lost { .. })]), "{flaws:?}");
    }

    #[test]
    fn modes_are_held_against_the_services_own() {
        let path = Path::new("x");
        for mode in [0o100_640, 0o100_600] {
            assert!(judge_mode(path, mode).is_none(), "{mode:o}");
        }
        for mode in [0o100_644, 0o100_660, 0o100_641, 0o100_440, 0o100_200, 0o104_640] {
            assert!(judge_mode(path, mode).is_some(), "{mode:o}");
        }
    }

    /// A user who is not root; it need not exist.
    const OTHER: u32 = 61001;

    #[test]
    fn root_side_files_belong_to_the_owner_of_the_database() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("left out: needs root");
            return;
        }
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(OTHER), Some(OTHER)).unwrap();
        let (directory, crashed) = (idle(), TempDir::new().unwrap());
        let writer = Connection::open(directory.path().join(FILE_NAME)).unwrap();
        writer.pragma_update(None, "user_version", VERSION).unwrap();
        for suffix in ["", "-wal"] {
            let name = beside(Path::new(FILE_NAME), suffix);
            let copy = crashed.path().join(&name);
            fs::copy(directory.path().join(&name), &copy).unwrap();
            give(&copy);
        }
        let flaws = check(crashed.path());
        // the directory is still root's
        assert_eq!(flaws.len(), 3, "{flaws:?}");
        assert!(flaws.iter().all(|flaw| matches!(flaw, Flaw::Owner { .. })), "{flaws:?}");
        give(crashed.path());
        fs::remove_file(crashed.path().join("ports.sqlite-shm")).unwrap();
        assert!(check(crashed.path()).is_empty());
        let after = contents(crashed.path());
        assert_eq!(after.len(), 3, "SQLite made an index");
        assert!(after.iter().all(|(_, uid, _)| *uid == OTHER), "{after:?}");
        let index = fs::metadata(crashed.path().join("ports.sqlite-shm")).unwrap();
        assert_eq!(index.mode() & PERMISSION_BITS, FILE_MODE);
        fs::remove_file(crashed.path().join("ports.sqlite-wal")).unwrap();
        fs::remove_file(crashed.path().join("ports.sqlite-shm")).unwrap();
        assert!(check(crashed.path()).is_empty());
        assert_eq!(contents(crashed.path()).len(), 1, "nothing is made without need");
    }
}
