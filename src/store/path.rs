//! Database files by name: as SQLite's URIs spell them, and those that SQLite keeps beside them.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// Opens a file for reading only, and waits so long for a writer that keeps it locked. SQLite makes
/// its other files beside one with a write-ahead log even so, unless it is told that the file is
/// `immutable`; then it looks at that file only, and locks nothing.
pub(crate) fn open_to_read(
    path: &Path,
    is_immutable: bool,
    patience: Duration,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri(path, is_immutable), flags)?;
    connection.busy_timeout(patience)?;
    Ok(connection)
}

/// A file that SQLite keeps beside a database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn uri(path: &Path, is_immutable: bool) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // a String takes everything
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push_str(if is_immutable { "?mode=ro&immutable=1" } else { "?mode=ro" });
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_is_a_uri() {
        let path = Path::new("/a b/?x=1&y#z%/é.sqlite");
        assert_eq!(uri(path, false), "file:/a%20b/%3Fx%3D1%26y%23z%25/%C3%A9.sqlite?mode=ro");
        assert!(uri(path, true).ends_with("?mode=ro&immutable=1"));
        let path = Path::new("/a b/é?#%.x");
        assert_eq!(uri(path, false), "file:/a%20b/%C3%A9%3F%23%25.x?mode=ro");
    }
}
