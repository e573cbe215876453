//! `ports.sqlite` as NS8's own allocator keeps it: `TCP_PORTS` and `UDP_PORTS`, each
//! `(start INT, end INT, module CHAR(255))`.
//!
//! The file stays as it is, byte for byte, and nothing is made beside it. SQLite, opened
//! read-only, changes nothing in the file, but it makes files beside one with a write-ahead log, and
//! with `immutable` it does not look at the log. So a file with a log that has changes in it is
//! refused, as is one that a write left half done.
//!
//! The SQL here reads a foreign file; that of portsd's own database is in [`crate::store`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OptionalExtension, ffi};

use super::{Contents, Problem, Row, Unreadable, number, shown};
use crate::model::Protocol;
use crate::request::ImportedRange;
use crate::store::{self, beside, open_to_read};

/// How long a reader waits for a writer that keeps the file locked.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// More rows than NS8 can have: its pool has 25001 ports in each protocol.
const ROWS_MAX: usize = 100_000;

/// The longest owner that is sent, as its column is declared.
const OWNER_BYTES_MAX: usize = 255;

/// Reads a file. `progress` is told how many rows there are so far.
pub fn read(path: &Path, progress: &mut dyn FnMut(usize)) -> Result<Contents, Unreadable> {
    // SQLite follows links, too, and looks for its other files beside the one that it finds
    let found = fs::canonicalize(path).map_err(Reason::from);
    let contents = found.and_then(|path| read_file(&path, progress));
    contents.map_err(|Reason(reason)| Unreadable::new(path.display().to_string(), reason))
}

/// What is wrong with a file, in words.
struct Reason(String);

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<rusqlite::Error> for Reason {
    fn from(error: rusqlite::Error) -> Self {
        Self(explain(&error))
    }
}

fn read_file(path: &Path, progress: &mut dyn FnMut(usize)) -> Result<Contents, Reason> {
    let header = header(path)?;
    header.check()?;
    // SQLite looks into a log that is there, whatever the header says
    let log = beside(path, "-wal");
    let log = (header.has_log() || log.exists()).then_some(log);
    check_log(log.as_deref())?;
    if log.is_some() && !header.has_log() && has_content(&beside(path, "-journal")) {
        return Err(
            "an empty log and a journal are beside it: it can't be told which belongs to it. \
                    Copy it with the journal only, and import the copy"
                .into(),
        );
    }
    let mut connection = open(path, log.is_some())?;
    // one transaction: both tables as they are at one moment
    let transaction = connection.transaction()?;
    let contents = contents(&transaction, progress)?;
    // without locks, a writer may have come in between
    check_log(log.as_deref())?;
    Ok(contents)
}

/// Refuses a file whose log has changes that are not in the file yet.
fn check_log(log: Option<&Path>) -> Result<(), Reason> {
    match log {
        Some(log) if has_content(log) => Err(format!(
            "a part of it is in {} only. Copy both files to another directory, run `sqlite3 COPY \
             'PRAGMA journal_mode=DELETE'` there, and import the copy",
            log.display()
        )
        .into()),
        _ => Ok(()),
    }
}

fn open(path: &Path, is_immutable: bool) -> rusqlite::Result<Connection> {
    let connection = open_to_read(path, is_immutable, LOCK_PATIENCE)?;
    // what a schema of unknown origin says is not carried out
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// The beginning of a database file.
struct Header([u8; 100]);

impl Header {
    const MAGIC: &[u8] = b"SQLite format 3\0";

    fn check(&self) -> Result<(), Reason> {
        if !self.0.starts_with(Self::MAGIC) {
            return Err("this is no SQLite database".into());
        }
        if self.0[68..72] == store::APPLICATION_ID.to_be_bytes() {
            return Err(OUR_OWN.into());
        }
        Ok(())
    }

    /// Whether changes go to a write-ahead log first: the version for writing or for reading is 2.
    fn has_log(&self) -> bool {
        self.0[18] == 2 || self.0[19] == 2
    }
}

const OUR_OWN: &str = "this is portsd's own database, there is nothing to take over. NS8's own \
                       allocator has its file in /var/lib/nethserver/node/state";

/// Reads the beginning of a file, if it is one, without waiting for anything.
fn header(path: &Path) -> Result<Header, Reason> {
    // a FIFO would wait for somebody to write
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let mut file: File = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err("this is a directory; name the file ports.sqlite in it".into());
    }
    if !metadata.is_file() {
        return Err("this is no regular file".into());
    }
    if metadata.len() == 0 {
        return Err("the file is empty".into());
    }
    let mut header = [0; 100];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err("this is no SQLite database".into())
        }
        result => Ok(result.map(|()| Header(header))?),
    }
}

/// Whether there is anything in a file. If nobody can tell, there is.
fn has_content(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) => metadata.len() > 0,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// What SQLite's errors mean here.
fn explain(error: &rusqlite::Error) -> String {
    let Some(code) = error.sqlite_error() else { return error.to_string() };
    if code.extended_code == ffi::SQLITE_READONLY_ROLLBACK {
        return "a write to it was left half done. Copy it together with the file named -journal \
                beside it to another directory, run `sqlite3 COPY 'PRAGMA quick_check'` there, and \
                import the copy"
            .to_owned();
    }
    match code.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            "another program keeps it locked: try again when that has ended".to_owned()
        }
        ErrorCode::NotADatabase => "this is no SQLite database".to_owned(),
        ErrorCode::DatabaseCorrupt => format!("the file is damaged ({error})"),
        _ => error.to_string(),
    }
}

/// The tables of NS8's own allocator.
const TABLES: [(&str, Protocol); 2] = [("TCP_PORTS", Protocol::Tcp), ("UDP_PORTS", Protocol::Udp)];

fn contents(database: &Connection, progress: &mut dyn FnMut(usize)) -> Result<Contents, Reason> {
    let finding: String = database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if finding != "ok" {
        return Err(format!("the file is damaged ({})", shown(finding.as_bytes())).into());
    }
    let mut contents = Contents::default();
    let mut is_ns8s = false;
    for (table, protocol) in TABLES {
        if is_there(database, table)? {
            is_ns8s = true;
            read_table(database, table, protocol, &mut contents.rows, progress)?;
        } else {
            contents
                .remarks
                .push(format!("the file has no table {table}: it keeps no {protocol} ports"));
        }
    }
    if is_ns8s { Ok(contents) } else { Err(NOT_NS8S.into()) }
}

const NOT_NS8S: &str = "there are no tables TCP_PORTS and UDP_PORTS: this is not the ports \
                        database of NS8's own allocator";

/// Whether the file has the table. Anything else of that name is refused: portsd's own database has
/// such views.
fn is_there(database: &Connection, table: &str) -> Result<bool, Reason> {
    let sql = "SELECT type, sql FROM sqlite_schema \
               WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
    let found: Option<(String, String)> =
        database.query_row(sql, [table], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    match found {
        None => Ok(false),
        Some((kind, _)) if kind == "view" => {
            Err(format!("{table} is a view and no table: {OUR_OWN}").into())
        }
        Some((_, sql)) if sql.to_ascii_uppercase().starts_with("CREATE VIRTUAL") => {
            Err(format!("{table} is no ordinary table: {NOT_NS8S}").into())
        }
        Some(_) => Ok(true),
    }
}

fn read_table(
    database: &Connection,
    table: &str,
    protocol: Protocol,
    rows: &mut Vec<Row>,
    progress: &mut dyn FnMut(usize),
) -> Result<(), Reason> {
    // with the table's name before them, words in quotes are never taken for texts
    let sql =
        format!(r#"SELECT t.rowid, t.start, t."end", t.module FROM {table} AS t ORDER BY t.rowid"#);
    let mut query = database.prepare(&sql).map_err(|error| {
        format!("the table {table} is not that of NS8's own allocator ({error})")
    })?;
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        if rows.len() == ROWS_MAX {
            return Err(
                format!("there are more than {ROWS_MAX} rows, and NS8 has no such number").into()
            );
        }
        let id: i64 = row.get(0)?;
        let source = format!("{table} row {id}");
        let [start, end, module] =
            [1, 2, 3].map(|column| row.get_ref(column).unwrap_or(ValueRef::Null));
        rows.push(parse(source, protocol, start, end, module));
        progress(rows.len());
    }
    Ok(())
}

/// What a row says, whatever its columns hold.
fn parse(
    source: String,
    protocol: Protocol,
    start: ValueRef<'_>,
    end: ValueRef<'_>,
    module: ValueRef<'_>,
) -> Row {
    let columns = (owner(module), integer("start", start), integer("end", end));
    let reason = match columns {
        (Ok(owner), Ok(start), Ok(end)) if !is_misread(protocol, start, end) => {
            let owner = owner.to_owned();
            return Row::Range { source, range: ImportedRange { owner, protocol, start, end } };
        }
        (Ok(_), Ok(_), Ok(_)) => MISREAD.to_owned(),
        (ref owner, ref start, ref end) => {
            let faults = [owner.as_ref().err(), start.as_ref().err(), end.as_ref().err()];
            faults.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
        }
    };
    let (owner, start, end) = columns;
    let owner = owner.ok().map(str::to_owned);
    let (start, end) = (start.ok(), end.ok());
    Row::Problem(Problem { source, owner, protocol: Some(protocol), start, end, reason })
}

/// NS8's upgrade from counters to this file took the first two digits of a UDP range for its ends.
/// NS8 never gave ports as low as that.
fn is_misread(protocol: Protocol, start: i64, end: i64) -> bool {
    protocol == Protocol::Udp && (0..=9).contains(&start) && (0..=9).contains(&end)
}

const MISREAD: &str = "these are the first two digits of a range that NS8's own upgrade misread; \
                       `portsctl import redis` reads the true one, if its module is still there";

/// The number in a column. A text is taken for one if it is nothing else: SQLite turns those into
/// integers where the column is declared as NS8 does it.
fn integer(column: &str, value: ValueRef<'_>) -> Result<i64, String> {
    match value {
        ValueRef::Integer(number) => Ok(number),
        ValueRef::Text(text) => {
            number(text).ok_or_else(|| format!("{column} is the text {}", shown(text)))
        }
        ValueRef::Real(real) => Err(format!("{column} is the fraction {real:?}")),
        ValueRef::Null => Err(format!("{column} is NULL")),
        ValueRef::Blob(blob) => Err(format!("{column} is a blob of {} bytes", blob.len())),
    }
}

/// The owner in the column `module`. The service judges whether it is a good name for one.
fn owner(value: ValueRef<'_>) -> Result<&str, String> {
    let reason = match value {
        ValueRef::Text(text) if text.len() <= OWNER_BYTES_MAX => match str::from_utf8(text) {
            Ok(owner) => return Ok(owner),
            Err(_) => format!("module is no text in UTF-8: {}", shown(text)),
        },
        ValueRef::Text(text) => format!("module is too long for a name: {}", shown(text)),
        ValueRef::Integer(number) => format!("module is the number {number}"),
        ValueRef::Real(real) => format!("module is the fraction {real:?}"),
        ValueRef::Null => "module is NULL".to_owned(),
        ValueRef::Blob(blob) => format!("module is a blob of {} bytes", blob.len()),
    };
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(protocol: Protocol, columns: [ValueRef<'_>; 3]) -> Row {
        let [start, end, module] = columns;
        parse("X row 1".to_owned(), protocol, start, end, module)
    }

    fn reason(protocol: Protocol, columns: [ValueRef<'_>; 3]) -> Option<String> {
        match row(protocol, columns) {
            Row::Range { .. } => None,
            Row::Problem(problem) => Some(problem.reason),
        }
    }

    #[test]
    fn integers_and_their_texts_are_sent_whatever_they_say() {
        let module = ValueRef::Text(b"mail1_rsync");
        for (start, end) in [(20000, 20003), (20003, 20000), (-1, i64::MAX), (2, 10)] {
            let expected = ImportedRange {
                owner: "mail1_rsync".to_owned(),
                protocol: Protocol::Udp,
                start,
                end,
            };
            let columns = [ValueRef::Integer(start), ValueRef::Integer(end), module];
            let sent = Row::Range { source: "X row 1".to_owned(), range: expected };
            assert_eq!(row(Protocol::Udp, columns), sent);
        }
        let columns = [ValueRef::Text(b"20000"), ValueRef::Integer(20000), module];
        assert_eq!(reason(Protocol::Tcp, columns), None);
    }

    #[test]
    fn what_cant_be_sent_says_what_stands_there() {
        let (port, module) = (ValueRef::Integer(20000), ValueRef::Text(b"a"));
        let long = [b'x'; 256];
        for (columns, expected) in [
            ([ValueRef::Null, port, module], "start is NULL"),
            ([ValueRef::Text(b"20000 \n"), port, module], "start is the text \"20000 \\n\""),
            ([port, ValueRef::Real(20000.5), module], "end is the fraction 20000.5"),
            ([port, ValueRef::Real(f64::INFINITY), module], "end is the fraction inf"),
            ([port, ValueRef::Blob(b"\0\0"), module], "end is a blob of 2 bytes"),
            ([port, port, ValueRef::Null], "module is NULL"),
            ([port, port, port], "module is the number 20000"),
            ([port, port, ValueRef::Text(b"a\xff")], "module is no text in UTF-8: \"a\\xff\""),
            ([ValueRef::Null, ValueRef::Null, module], "start is NULL, end is NULL"),
        ] {
            assert_eq!(reason(Protocol::Tcp, columns).as_deref(), Some(expected));
        }
        let too_long = reason(Protocol::Tcp, [port, port, ValueRef::Text(&long)]).unwrap();
        assert!(too_long.contains("(256 bytes)"), "{too_long}");
    }

    #[test]
    fn what_an_old_upgrade_made_of_udp_ranges_is_told_apart() {
        let columns =
            |start, end| [ValueRef::Integer(start), ValueRef::Integer(end), ValueRef::Text(b"a")];
        // 20000-20003, 23000-23003 and 45000-45003
        for (start, end) in [(2, 0), (2, 3), (4, 5)] {
            assert_eq!(reason(Protocol::Udp, columns(start, end)).as_deref(), Some(MISREAD));
            assert_eq!(reason(Protocol::Tcp, columns(start, end)), None);
        }
        assert_eq!(reason(Protocol::Udp, columns(2, 10)), None);
    }
}
