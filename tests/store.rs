//! The database under a real daemon: what it refuses, what it survives, and what others may do to it.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};
use support::*;
use tempfile::TempDir;

const MIB: u64 = 1024 * 1024;

/// Allocates on behalf of nobody, as an administrator.
fn allocate(client: &mut varlink::Client, owner: &str, ports: u16) -> Result<(u64, u64), Refusal> {
    let parameters = json!({ "ports": ports, "protocol": "tcp", "owner": owner });
    let reply = client.call(PORTS, "Allocate", parameters)?;
    Ok(ranges(&json!([reply["range"]]))[0])
}

fn deallocate(client: &mut varlink::Client, owner: &str) -> Vec<(u64, u64)> {
    let parameters = json!({ "protocol": "tcp", "owner": owner });
    ranges(&client.call(PORTS, "Deallocate", parameters).unwrap()["ranges"])
}

fn list(client: &mut varlink::Client) -> Vec<(u64, u64)> {
    ranges(&client.call(PORTS, "List", json!({})).unwrap()["allocations"])
}

fn failure(reason: &str) -> Refusal {
    Refusal::new("StorageFailure", json!({ "reason": reason }))
}

/// Another process's way to the database.
fn other(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection
}

const INSERT: &str = r#"INSERT INTO allocations
    (owner, protocol, start, "end", claimed, allocated_at) VALUES (?1, ?2, ?3, ?4, ?5, 0)"#;

fn insert(
    connection: &Connection,
    owner: &str,
    range: (i64, i64),
    claimed: bool,
) -> rusqlite::Result<usize> {
    connection.execute(INSERT, (owner, "tcp", range.0, range.1, claimed))
}

/// The state directory of a daemon that has been in use and has ended.
fn used() -> TempDir {
    let directory = directory();
    let mut daemon = Daemon::start_in(directory);
    daemon.set_module("mail1", 100, 100, true);
    let mut client = daemon.admin();
    // more pages than the schema alone has
    for n in 0..300 {
        let call = json!({
            "method": "org.nethserver.Ports.Allocate",
            "parameters": { "ports": 1, "protocol": "tcp", "owner": format!("host/number-{n:050}") },
        });
        client.send(&call);
    }
    for _ in 0..300 {
        varlink::result(&client.receive().unwrap()).unwrap();
    }
    assert!(daemon.stop().success());
    let kept = support::directory();
    fs::rename(daemon.path("state"), kept.path().join("state")).unwrap();
    kept
}

fn database(directory: &TempDir) -> PathBuf {
    directory.path().join("state/ports.sqlite")
}

/// A start over the file is refused, by its path and with advice, and leaves it as it is.
fn assert_refused_unchanged(directory: &TempDir, what: &str, advice: &str) -> String {
    let path = database(directory);
    let before = fs::read(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let said = refused_start(&mut command(directory.path()));
    assert!(said.contains(&path.display().to_string()), "{what}: {said}");
    assert!(said.contains(advice), "{what}: {said}");
    assert!(fs::read(&path).unwrap() == before, "{what}: the file was changed");
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified, "{what}");
    assert!(!path.with_extension("sqlite.new").exists(), "{what}");
    assert!(!directory.path().join("varlink").exists(), "{what}: a socket was made");
    said
}

fn with_database(contents: &[u8]) -> TempDir {
    let directory = directory();
    fs::create_dir(directory.path().join("state")).unwrap();
    fs::write(database(&directory), contents).unwrap();
    directory
}

#[test]
fn an_empty_file_is_refused_and_stays_empty() {
    let directory = with_database(b"");
    assert_refused_unchanged(&directory, "zero bytes", "restore a backup");
    // and so it is every time
    assert_refused_unchanged(&directory, "zero bytes", "restore a backup");
}

#[test]
fn a_file_that_is_no_database_is_refused_unchanged() {
    for (what, contents) in [
        ("a text", &b"start,end,module\n20000,20003,mail1\n"[..]),
        ("one byte", b"\0"),
        ("half a header", b"SQLite fo"),
        ("zeros", &[0; 8192]),
    ] {
        assert_refused_unchanged(&with_database(contents), what, "left untouched");
    }
}

#[test]
fn a_database_of_another_program_is_refused_unchanged() {
    for mode in ["DELETE", "WAL"] {
        let directory = with_database(b"");
        let foreign = Connection::open(database(&directory)).unwrap();
        foreign.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
        foreign
            .execute_batch(
                r#"CREATE TABLE TCP_PORTS (start INT, "end" INT, module CHAR(255));
                   INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail1');"#,
            )
            .unwrap();
        drop(foreign);
        assert_refused_unchanged(&directory, mode, "left untouched");
    }
}

#[test]
fn a_database_of_a_newer_portsd_is_refused_unchanged_and_both_versions_are_named() {
    let directory = used();
    let path = database(&directory);
    let connection = other(&path);
    let known: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    connection.pragma_update(None, "user_version", known + 1).unwrap();
    drop(connection);
    let said = assert_refused_unchanged(&directory, "newer", "restore a backup");
    assert!(said.contains(&format!("version {}", known + 1)), "{said}");
    assert!(said.contains(&format!("up to {known}")), "{said}");

    other(&path).pragma_update(None, "user_version", known).unwrap();
    let daemon = Daemon::start_in(directory);
    assert_eq!(list(&mut daemon.admin()).len(), 300);
}

#[test]
fn a_newer_version_that_is_still_in_the_log_is_refused_and_nothing_is_lost() {
    let directory = used();
    let path = database(&directory);
    let connection = other(&path);
    let known: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    connection.pragma_update(None, "user_version", known + 1).unwrap();
    assert_refused_unchanged(&directory, "newer, in the log", "version");
    let now: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(now, known + 1);
}

#[test]
fn a_truncated_database_is_refused_unchanged() {
    let directory = used();
    let whole = fs::read(database(&directory)).unwrap();
    assert!(whole.len() > 8 * 4096, "{} bytes", whole.len());
    for length in [17, 99, 100, 512, 4095, 4096, 3 * 4096, whole.len() / 2, whole.len() - 4096] {
        let directory = with_database(&whole[..length]);
        assert_refused_unchanged(&directory, &format!("{length} bytes"), "restore a backup");
    }
}

#[test]
fn garbage_over_any_inner_page_is_refused_unchanged() {
    let directory = used();
    let whole = fs::read(database(&directory)).unwrap();
    let pages = whole.len() / 4096;
    for page in 1..pages {
        let mut damaged = whole.clone();
        for (n, byte) in damaged[page * 4096..(page + 1) * 4096].iter_mut().enumerate() {
            *byte = u8::try_from(n * 31 % 251).unwrap();
        }
        let directory = with_database(&damaged);
        let what = format!("page {page} of {pages}");
        assert_refused_unchanged(&directory, &what, "restore a backup");
    }
}

#[test]
fn a_damaged_schema_page_is_refused_unchanged() {
    let directory = used();
    let file = fs::OpenOptions::new().write(true).open(database(&directory)).unwrap();
    // behind the header, which says whose database it is
    file.write_all_at(&[0xa5; 2000], 100).unwrap();
    drop(file);
    assert_refused_unchanged(&directory, "the first page", "restore a backup");
}

#[test]
fn a_directory_in_the_place_of_the_database_is_refused_by_name() {
    let directory = directory();
    let path = database(&directory);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("file"), "precious").unwrap();
    let said = refused_start(&mut command(directory.path()));
    assert!(said.contains(&path.display().to_string()), "{said}");
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "precious");
}

#[test]
fn a_file_in_the_place_of_the_state_directory_is_refused_by_name() {
    let directory = directory();
    let state = directory.path().join("state");
    fs::write(&state, "precious").unwrap();
    let said = refused_start(&mut command(directory.path()));
    assert!(said.contains(&state.display().to_string()), "{said}");
    assert_eq!(fs::read_to_string(&state).unwrap(), "precious");
}

/// The schema as text.
fn schema(path: &Path) -> Vec<String> {
    other(path)
        .prepare(
            "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn user_version(path: &Path) -> i64 {
    other(path).query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_first_start_that_is_killed_at_any_moment_leaves_nothing_that_stops_the_next_one() {
    const KILLS: u32 = 40;
    // how long a first start takes here
    let started = Instant::now();
    let daemon = Daemon::start();
    let whole = started.elapsed();
    let (wanted, version) = (schema(&daemon.database()), user_version(&daemon.database()));
    assert!(wanted.len() > 5);
    drop(daemon);
    let mut unfinished = 0;
    for n in 0..KILLS {
        let directory = directory();
        let mut child = command(directory.path()).spawn().unwrap();
        thread::sleep(whole * n / KILLS);
        child.kill().unwrap();
        child.wait().unwrap();
        unfinished += u32::from(!database(&directory).exists());
        let daemon = Daemon::start_in(directory);
        assert_eq!(allocate(&mut daemon.admin(), "host/a", 4), Ok((20000, 20003)), "kill {n}");
        assert_eq!(schema(&daemon.database()), wanted, "kill {n}");
        assert_eq!(user_version(&daemon.database()), version, "kill {n}");
        assert!(!daemon.path("state/ports.sqlite.new").exists(), "kill {n}");
    }
    assert!(unfinished > 0, "no kill came before the database was there");
}

#[test]
fn what_an_interrupted_first_start_has_left_is_cleared_away() {
    let directory = directory();
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let left = ["ports.sqlite.new", "ports.sqlite.new-wal", "ports.sqlite.new-journal"];
    for name in left {
        fs::write(state.join(name), "half a database").unwrap();
    }
    let daemon = Daemon::start_in(directory);
    assert_eq!(allocate(&mut daemon.admin(), "host/a", 1), Ok((20000, 20000)));
    for name in left {
        assert!(!state.join(name).exists(), "{name}");
    }
}

#[test]
fn a_first_start_that_ended_just_before_its_last_step_is_completed_by_the_next() {
    let directory = used();
    let path = database(&directory);
    let new = path.with_extension("sqlite.new");
    // the database has its name already, and still the other one too
    fs::hard_link(&path, &new).unwrap();
    let daemon = Daemon::start_in(directory);
    assert_eq!(list(&mut daemon.admin()).len(), 300);
    assert!(!new.exists());
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
}

/// Kills the daemon, takes its database away but not the log beside it, as an administrator does
/// who wants to begin anew, and starts over that.
fn assert_log_is_not_mixed_in(mut daemon: Daemon) {
    daemon.kill();
    assert!(daemon.path("state/ports.sqlite-wal").exists(), "there is no log to be left over");
    fs::remove_file(daemon.database()).unwrap();
    daemon.child = command(daemon.directory.path()).spawn().unwrap();
    let last = daemon.path("admin-jsonrpc");
    let ended = wait_for("the daemon, or its end", || match daemon.child.try_wait().unwrap() {
        Some(status) => Some(Some(status)),
        None => UnixStream::connect(&last).ok().map(|_| None),
    });
    if let Some(status) = ended {
        // to refuse is as good, if it says what it is about
        assert!(!status.success());
        assert!(daemon.log().contains("ports.sqlite-wal"), "the log beside it is not named");
        return;
    }
    let check: String = other(&daemon.database())
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    assert_eq!(list(&mut daemon.admin()), []);
}

#[test]
fn a_log_that_is_left_without_its_database_is_not_mixed_into_a_new_one() {
    let daemon = Daemon::start();
    assert_eq!(allocate(&mut daemon.admin(), "host/a", 4), Ok((20000, 20003)));
    assert_log_is_not_mixed_in(daemon);
}

#[test]
fn a_log_that_has_a_part_of_a_lost_database_does_no_harm_to_a_new_one() {
    let daemon = Daemon::start_in(used());
    assert_eq!(allocate(&mut daemon.admin(), "host/a", 4), Ok((20300, 20303)));
    assert_log_is_not_mixed_in(daemon);
}

#[test]
fn every_call_of_a_burst_that_was_answered_is_there_after_a_kill() {
    let mut daemon = Daemon::start();
    let mut answered = Vec::new();
    for round in 0..12_u32 {
        let mut clients: Vec<_> = (0..40)
            .map(|n| {
                let mut client = daemon.admin();
                let owner = format!("host/{round}-{n}");
                client.send(&json!({
                    "method": "org.nethserver.Ports.Allocate",
                    "parameters": { "ports": 3, "protocol": "tcp", "owner": owner },
                }));
                (owner, client)
            })
            .collect();
        // one answer at least, and then a little more from round to round
        let mut replies = vec![(clients[0].0.clone(), clients[0].1.receive().unwrap())];
        thread::sleep(Duration::from_micros(300) * round);
        daemon.kill();
        for (owner, client) in &mut clients[1..] {
            replies.extend(client.receive().map(|reply| (owner.clone(), reply)));
        }
        for (owner, reply) in replies {
            let range = varlink::result(&reply).unwrap()["range"].clone();
            answered.push((owner, ranges(&json!([range]))[0]));
        }
        daemon.restart();
        let rows = daemon.rows();
        for (owner, (start, end)) in &answered {
            let is_stored = |row: &(String, String, u16, u16)| {
                row.0 == *owner && u64::from(row.2) == *start && u64::from(row.3) == *end
            };
            assert!(rows.iter().any(is_stored), "round {round}: {start}-{end} of {owner}");
        }
        assert!(rows.windows(2).all(|pair| pair[0].3 < pair[1].2), "round {round}: {rows:?}");
        let listed = list(&mut daemon.admin());
        assert_eq!(listed.len(), rows.len(), "round {round}");
    }
}

#[test]
fn what_was_answered_is_there_after_a_kill() {
    let mut daemon = Daemon::start();
    let mut given = Vec::new();
    for n in 0..20 {
        given.push(allocate(&mut daemon.admin(), &format!("host/{n}"), 3).unwrap());
        daemon.kill();
        daemon.restart();
        assert_eq!(list(&mut daemon.admin()), given);
    }
}

#[test]
fn the_database_itself_refuses_rows_that_overlap_or_lie_outside_the_pool() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    // 20000-20009 and 20010-20019
    allocate(&mut client, "host/a", 10).unwrap();
    allocate(&mut client, "host/b", 10).unwrap();
    let connection = other(&daemon.database());
    insert(&connection, "host/claim", (80, 80), true).unwrap();
    let before = daemon.rows();
    let refused = |what: String, result: rusqlite::Result<usize>| {
        assert!(result.is_err(), "{what} was taken");
        assert_eq!(daemon.rows(), before, "{what}");
    };
    for range in [
        (20000, 20009),
        (20003, 20005),
        (20009, 20009),
        (20019, 20030),
        (20005, 20014),
        (20000, 45000),
        (19999, 19999),
        (19999, 20000),
        (45001, 45001),
        (45000, 45001),
        (30000, 29999),
        (70000, 70000),
        (65535, 65536),
        (0, 0),
        (-1, 5),
        (80, 80),
        (1, 65535),
    ] {
        refused(format!("{range:?}"), insert(&connection, "host/c", range, false));
    }
    for range in [(20000, 20000), (20019, 20020), (1, 80), (70000, 70000), (80, 90), (0, 10)] {
        refused(format!("claim {range:?}"), insert(&connection, "host/c", range, true));
    }
    for conflict in ["REPLACE", "IGNORE", "ROLLBACK"] {
        for range in [(20000, 20001), (20005, 20006), (19000, 19001)] {
            let sql = INSERT.replace("INSERT", &format!("INSERT OR {conflict}"));
            let result = connection.execute(&sql, ("host/c", "tcp", range.0, range.1, false));
            refused(format!("OR {conflict} {range:?}"), result);
        }
    }
    for change in [
        r#"SET "end" = 20010 WHERE owner = 'host/a'"#,
        "SET start = 20009 WHERE owner = 'host/b'",
        "SET start = 19999 WHERE owner = 'host/a'",
        r#"SET "end" = 45001 WHERE owner = 'host/b'"#,
        r#"SET start = 20005, "end" = 20006 WHERE owner = 'host/b'"#,
        r#"SET start = 20011, "end" = 20011 WHERE owner = 'host/claim'"#,
        r#"SET start = start + 10, "end" = "end" + 10 WHERE owner = 'host/a'"#,
        r#"SET start = 70000, "end" = 70000 WHERE owner = 'host/a'"#,
        "SET protocol = 'sctp' WHERE owner = 'host/a'",
        "SET protocol = 'TCP' WHERE owner = 'host/a'",
        "SET owner = NULL WHERE owner = 'host/a'",
    ] {
        let result = connection.execute(&format!("UPDATE allocations {change}"), ());
        refused(change.to_owned(), result);
    }
    // the same numbers of the other protocol are others
    connection.execute(INSERT, ("host/u", "udp", 20000, 20009, false)).unwrap();
    let result =
        connection.execute("UPDATE allocations SET protocol = 'tcp' WHERE owner = 'host/u'", ());
    assert!(result.is_err(), "a change of protocol into a neighbour was taken");
    assert_eq!(list(&mut client), [(80, 80), (20000, 20009), (20010, 20019), (20000, 20009)]);
}

#[test]
fn the_database_itself_keeps_a_claim_outside_the_pool_a_claim() {
    let daemon = Daemon::start();
    let connection = other(&daemon.database());
    insert(&connection, "host/claim", (80, 80), true).unwrap();
    let result = connection.execute("UPDATE allocations SET claimed = 0", ());
    assert!(result.is_err(), "a range outside the pool was taken");
}

#[test]
fn the_database_itself_allows_claims_anywhere_and_the_daemon_keeps_clear_of_them() {
    let daemon = Daemon::start();
    let connection = other(&daemon.database());
    for range in [(1, 1), (80, 443), (20002, 20003), (44990, 45010), (65535, 65535)] {
        insert(&connection, "host/claim", range, true).unwrap();
    }
    let mut client = daemon.admin();
    // the smallest block that is large enough lies below the claim
    assert_eq!(allocate(&mut client, "host/a", 2), Ok((20000, 20001)));
    assert_eq!(allocate(&mut client, "host/b", 2), Ok((20004, 20005)));
    assert_eq!(list(&mut client).len(), 7);
    let status = client.call(PORTS, "GetStatus", json!({})).unwrap();
    assert_eq!(status["pools"][0]["allocated"], 2 + 2 + 2 + 11);
}

#[test]
fn what_another_connection_changes_counts_from_the_very_next_call() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let connection = other(&daemon.database());
    for round in 0..20_i64 {
        let start = 20000 + 10 * round;
        insert(&connection, "host/other", (start, start + 8), false).unwrap();
        assert_eq!(list(&mut client).len(), 1, "round {round}: a new row is not seen");
        // a call to Allocate that comes first
        connection.execute("DELETE FROM allocations", ()).unwrap();
        insert(&connection, "host/other", (20000, 20000 + round), false).unwrap();
        let (first, _) = allocate(&mut client, "host/mine", 2).unwrap();
        assert_eq!(i64::try_from(first), Ok(20001 + round));
        connection.execute("DELETE FROM allocations", ()).unwrap();
        assert_eq!(allocate(&mut client, "host/mine", 1), Ok((20000, 20000)), "round {round}");
        connection.execute("DELETE FROM allocations", ()).unwrap();
        assert_eq!(list(&mut client), [], "round {round}: a row that is gone is still seen");
    }
}

#[test]
fn a_module_entry_that_another_connection_changes_counts_from_the_very_next_call() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    daemon.set_module("mail1", 4, 0, true);
    let connection = other(&daemon.database());
    let mut call = |ports: u16| {
        let parameters = json!({ "ports": ports, "protocol": "tcp", "onBehalfOf": "mail1" });
        client.call(PORTS, "Allocate", parameters).map_err(|refusal| refusal.condition)
    };
    for _ in 0..5 {
        call(4).unwrap();
        connection.execute("UPDATE modules SET portsadm = 0", ()).unwrap();
        assert_eq!(call(4).unwrap_err(), "MissingRole");
        connection.execute("UPDATE modules SET portsadm = 1, tcp_demand = 6", ()).unwrap();
        call(6).unwrap();
        connection.execute("UPDATE modules SET tcp_demand = 4", ()).unwrap();
        assert_eq!(call(7).unwrap_err(), "DemandExceeded");
    }
    connection.execute("DELETE FROM modules", ()).unwrap();
    assert_eq!(call(1).unwrap_err(), "UnknownModule");
}

/// Stores two ranges that overlap, which only somebody who first takes the triggers away can do.
/// Returns what restores them.
fn force_overlap(connection: &Connection) -> Vec<String> {
    let triggers: Vec<(String, String)> = connection
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for (name, _) in &triggers {
        connection.execute(&format!("DROP TRIGGER {name}"), ()).unwrap();
    }
    insert(connection, "host/first", (30000, 30003), false).unwrap();
    insert(connection, "host/second", (30002, 30005), false).unwrap();
    triggers.into_iter().map(|(_, sql)| sql).collect()
}

#[test]
fn stored_ranges_that_overlap_stop_the_start_unchanged() {
    let directory = used();
    let path = database(&directory);
    let connection = other(&path);
    force_overlap(&connection);
    drop(connection);
    let before = fs::read(&path).unwrap();
    let said = refused_start(&mut command(directory.path()));
    for word in ["30000-30003", "30002-30005", "host/first", "host/second"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(said.contains(&path.display().to_string()), "the file is not named: {said}");
    assert!(fs::read(&path).unwrap() == before, "the file was changed");
}

#[test]
fn stored_ranges_that_come_to_overlap_are_a_failure_until_they_are_mended() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    assert_eq!(allocate(&mut client, "host/a", 4), Ok((20000, 20003)));
    let connection = other(&daemon.database());
    let triggers = force_overlap(&connection);
    for _ in 0..2 {
        let refusal = client.call(PORTS, "List", json!({})).unwrap_err();
        assert_eq!(refusal, failure("corrupt"));
        assert_eq!(allocate(&mut client, "host/b", 4), Err(failure("corrupt")));
        let refusal = client.call(ADMIN, "RemoveModule", json!({ "moduleId": "host" }));
        assert_eq!(refusal, Err(failure("corrupt")));
    }
    assert_eq!(daemon.rows().len(), 3);
    connection.execute("DELETE FROM allocations WHERE owner = 'host/second'", ()).unwrap();
    for sql in triggers {
        connection.execute_batch(&sql).unwrap();
    }
    assert_eq!(list(&mut client), [(20000, 20003), (30000, 30003)]);
    assert_eq!(allocate(&mut client, "host/b", 4), Ok((20004, 20007)));
}

#[test]
fn the_dump_query_of_the_old_allocator_gives_the_rows() {
    let daemon = Daemon::start();
    daemon.set_module("mail1", 9, 9, true);
    let mut client = daemon.admin();
    for (protocol, owner, ports) in
        [("tcp", "mail1", 4), ("udp", "mail1", 2), ("tcp", "mail1_rsync", 1), ("udp", "host/x", 3)]
    {
        let parameters = json!({ "ports": ports, "protocol": protocol, "owner": owner });
        client.call(PORTS, "Allocate", parameters).unwrap();
    }
    let dump: BTreeSet<(u16, u16, String, String)> = other(&daemon.database())
        .prepare("SELECT *, 'tcp' FROM TCP_PORTS UNION SELECT *, 'udp' FROM UDP_PORTS;")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let row = |start, end, module: &str, protocol: &str| {
        (start, end, module.to_owned(), protocol.to_owned())
    };
    let wanted = BTreeSet::from([
        row(20000, 20003, "mail1", "tcp"),
        row(20004, 20004, "mail1_rsync", "tcp"),
        row(20000, 20001, "mail1", "udp"),
        row(20002, 20004, "host/x", "udp"),
    ]);
    assert_eq!(dump, wanted);
    let columns: Vec<String> = other(&daemon.database())
        .prepare("SELECT * FROM TCP_PORTS")
        .unwrap()
        .column_names()
        .map(str::to_owned)
        .collect();
    assert_eq!(columns, ["start", "end", "module"]);
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_state_is_closed_to_other_users() {
    for umask in ["000", "022"] {
        let directory = directory();
        let inner = command(directory.path());
        let mut outer = Command::new("sh");
        outer.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\""));
        outer.arg(inner.get_program()).args(inner.get_args());
        outer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = Daemon { child: outer.spawn().unwrap(), directory };
        let last = daemon.path("admin-jsonrpc");
        wait_for("the daemon", || UnixStream::connect(&last).ok());
        allocate(&mut daemon.admin(), "host/a", 4).unwrap();
        assert_eq!(mode(&daemon.path("state")), 0o750, "umask {umask}");
        for name in ["ports.sqlite", "ports.sqlite-wal", "ports.sqlite-shm"] {
            let path = daemon.path(&format!("state/{name}"));
            assert_eq!(mode(&path), 0o640, "{name} under umask {umask}");
        }
        assert!(daemon.stop().success());
        assert_eq!(mode(&daemon.database()), 0o640, "umask {umask}");
    }
}

#[test]
fn while_another_process_keeps_the_database_locked_changes_are_busy_and_reads_are_answered() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    assert_eq!(allocate(&mut client, "host/a", 4), Ok((20000, 20003)));
    let connection = other(&daemon.database());
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    client.send(&json!({
        "method": "org.nethserver.Ports.Allocate",
        "parameters": { "ports": 4, "protocol": "tcp", "owner": "host/b" },
    }));
    let mut module = jsonrpc::Client::connect(&daemon.path("admin-jsonrpc"));
    client.stream.set_nonblocking(true).unwrap();
    let mut answered = 0;
    let mut chunk = [0; 4096];
    let reply: Value = wait_for("the change to be given up", || {
        for method in ["list", "who_am_i", "get_status"] {
            module.call(method, json!({})).unwrap();
        }
        match std::io::Read::read(&mut client.stream, &mut chunk) {
            Ok(length) => Some(serde_json::from_slice(&chunk[..length - 1]).unwrap()),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                answered += 1;
                None
            }
        }
    });
    client.stream.set_nonblocking(false).unwrap();
    assert_eq!(varlink::result(&reply), Err(failure("busy")));
    assert!(answered > 10, "only {answered} rounds of reads were answered meanwhile");
    assert_eq!(list(&mut client), [(20000, 20003)]);
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(allocate(&mut client, "host/b", 4), Ok((20004, 20007)));
    assert_eq!(list(&mut client).len(), 2);
    assert_eq!(daemon.rows().len(), 2);
}

#[test]
fn calls_that_wait_for_a_lock_see_what_its_holder_has_written() {
    let daemon = Daemon::start();
    let connection = other(&daemon.database());
    for round in 0..5_u64 {
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut waiting: Vec<_> = (0..4)
            .map(|n| {
                let mut client = daemon.admin();
                client.send(&json!({
                    "method": "org.nethserver.Ports.Allocate",
                    "parameters": {
                        "ports": 2, "protocol": "tcp", "owner": format!("host/{round}-{n}"),
                    },
                }));
                client
            })
            .collect();
        // the daemon is at it: this one came later and is answered
        daemon.admin().call(PORTS, "GetStatus", json!({})).unwrap();
        let start = i64::try_from(20000 + round * 10).unwrap();
        insert(&connection, "host/other", (start, start + 1), false).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        let mut given: Vec<_> = waiting
            .iter_mut()
            .map(|client| {
                let reply = varlink::result(&client.receive().unwrap()).unwrap();
                ranges(&json!([reply["range"]]))[0]
            })
            .collect();
        given.sort_unstable();
        let first = 20000 + round * 10 + 2;
        let wanted: Vec<_> = (0..4).map(|n| (first + 2 * n, first + 2 * n + 1)).collect();
        assert_eq!(given, wanted, "round {round}");
    }
}
/// Something mounted, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], at: &Path) -> Self {
        let status = Command::new("mount").args(arguments).arg(at).status().unwrap();
        assert!(status.success(), "mount {arguments:?} {}", at.display());
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A state directory on a file system of one MiB.
fn small_disk(directory: &Path) -> Mounted {
    let state = directory.join("state");
    fs::create_dir(&state).unwrap();
    Mounted::new(&["-t", "tmpfs", "-o", "size=1m,mode=0750", "tmpfs"], &state)
}

/// Takes all space that is left.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    for chunk in [&[1; 4096][..], &[1]] {
        // more than there is room for
        let error = (0..10_000).find_map(|_| file.write_all(chunk).err()).unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
}

#[test]
fn root_on_a_full_disk_a_change_fails_without_a_trace_and_works_when_there_is_space_again() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let _disk = small_disk(directory.path());
    let daemon = Daemon::start_in(directory);
    let mut client = daemon.admin();
    assert_eq!(allocate(&mut client, "host/a", 4), Ok((20000, 20003)));
    let ballast = daemon.path("state/ballast");
    for round in 0..3 {
        fill(&ballast);
        let before = list(&mut client);
        for n in 0..3 {
            let owner = format!("host/full-{round}-{n}");
            assert_eq!(allocate(&mut client, &owner, 4), Err(failure("disk_full")));
            // moving, freeing and registering are changes, too
            assert_eq!(allocate(&mut client, "host/a", 5 + round), Err(failure("disk_full")));
            let parameters = json!({ "protocol": "tcp", "owner": "host/a" });
            let refusal = client.call(PORTS, "Deallocate", parameters).unwrap_err();
            assert_eq!(refusal, failure("disk_full"));
            let refusal = client.call(ADMIN, "SetModule", module("m1", 1, 1, true)).unwrap_err();
            assert_eq!(refusal, failure("disk_full"));
            assert_eq!(list(&mut client), before);
        }
        let modules = client.call(ADMIN, "ListModules", json!({})).unwrap();
        assert_eq!(modules["modules"], json!([]));
        assert_eq!(daemon.rows().len(), before.len());
        fs::remove_file(&ballast).unwrap();
        let owner = format!("host/after-{round}");
        let (start, _) = allocate(&mut client, &owner, 4).unwrap();
        assert_eq!(start, before.last().unwrap().1 + 1);
        assert_eq!(daemon.rows().len(), before.len() + 1);
    }
    let check: String = other(&daemon.database())
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

/// Whether a message says that a disk is full.
fn speaks_of_space(said: &str) -> bool {
    said.contains("full") || said.contains("No space left")
}

#[test]
fn root_a_first_start_on_a_full_disk_says_so_and_leaves_no_half_of_a_database() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let _disk = small_disk(directory.path());
    let ballast = directory.path().join("state/ballast");
    fill(&ballast);
    for _ in 0..2 {
        let said = refused_start(&mut command(directory.path()));
        assert!(speaks_of_space(&said), "{said}");
        assert!(said.contains("ports.sqlite"), "{said}");
        assert!(!database(&directory).exists());
    }
    fs::remove_file(&ballast).unwrap();
    let daemon = Daemon::start_in(directory);
    assert_eq!(allocate(&mut daemon.admin(), "host/a", 4), Ok((20000, 20003)));
}

#[test]
fn root_a_later_start_on_a_full_disk_works_or_says_so_and_the_database_stays() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let _disk = small_disk(directory.path());
    let mut daemon = Daemon::start_in(directory);
    assert_eq!(allocate(&mut daemon.admin(), "host/a", 4), Ok((20000, 20003)));
    assert!(daemon.stop().success());
    let ballast = daemon.path("state/ballast");
    fill(&ballast);
    let mut command = command(daemon.directory.path());
    let said = refused_start(&mut command);
    fs::remove_file(&ballast).unwrap();
    daemon.restart();
    assert_eq!(list(&mut daemon.admin()), [(20000, 20003)]);
    assert!(said.contains("ports.sqlite"), "{said}");
    assert!(speaks_of_space(&said), "{said}");
}

#[test]
fn root_a_state_directory_that_is_read_only_is_refused_by_name() {
    if !is_root() {
        return;
    }
    for is_first in [true, false] {
        let directory = if is_first { directory() } else { used() };
        let state = directory.path().join("state");
        fs::create_dir_all(&state).unwrap();
        let _bind = Mounted::new(&["--bind", state.to_str().unwrap()], &state);
        let status =
            Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&state).status().unwrap();
        assert!(status.success());
        let before = fs::read(database(&directory)).ok();
        let said = refused_start(&mut command(directory.path()));
        assert!(said.contains("ports.sqlite"), "{said}");
        let said = said.to_lowercase();
        assert!(said.contains("read-only") || said.contains("readonly"), "{said}");
        assert!(fs::read(database(&directory)).ok() == before);
    }
}

#[test]
fn the_log_grows_behind_a_reader_and_is_cut_back_when_it_has_ended() {
    let mut daemon = Daemon::start();
    let mut client = daemon.admin();
    assert_eq!(allocate(&mut client, "host/stays", 4), Ok((20000, 20003)));
    let reader = other(&daemon.database());
    reader.execute_batch("BEGIN").unwrap();
    let count = |connection: &Connection| -> i64 {
        connection.query_row("SELECT count(*) FROM allocations", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(&reader), 1);
    for n in 0..3000_u64 {
        let ports = 1 + n % 9;
        let range = (20004, 20003 + ports);
        assert_eq!(allocate(&mut client, "host/comes", u16::try_from(ports).unwrap()), Ok(range));
        if n % 500 == 0 {
            assert_eq!(list(&mut client), [(20000, 20003), range]);
        }
        assert_eq!(deallocate(&mut client, "host/comes"), [range]);
    }
    assert_eq!(count(&reader), 1);
    let log = daemon.path("state/ports.sqlite-wal");
    let grown = fs::metadata(&log).unwrap().len();
    assert!(grown > 5 * MIB, "the log has only {grown} bytes: there is nothing to cut back");
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    for _ in 0..20 {
        assert_eq!(allocate(&mut client, "host/comes", 3), Ok((20004, 20006)));
        assert_eq!(deallocate(&mut client, "host/comes"), [(20004, 20006)]);
    }
    let cut = fs::metadata(&log).unwrap().len();
    assert!(cut <= 4 * MIB + 64 * 1024, "the log still has {cut} bytes of {grown}");
    assert_eq!(list(&mut client), [(20000, 20003)]);
    assert!(daemon.stop().success());
    assert!(!log.exists());
    assert!(!daemon.path("state/ports.sqlite-shm").exists());
    assert_eq!(daemon.rows().len(), 1);
}

#[test]
fn a_reply_is_sent_only_when_its_change_is_on_the_disk() {
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("left out: needs strace");
        return;
    }
    let directory = directory();
    let trace = directory.path().join("trace");
    let inner = command(directory.path());
    let mut traced = Command::new("strace");
    // -D: the daemon is our child, and strace is its observer
    traced.args(["-D", "-f", "-y", "-s", "400", "-o"]).arg(&trace);
    traced.args(["-e", "trace=fsync,fdatasync,pwrite64,write,writev,sendto,sendmsg"]);
    traced.arg(inner.get_program()).args(inner.get_args());
    traced.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = Daemon { child: traced.spawn().unwrap(), directory };
    let last = daemon.path("admin-jsonrpc");
    wait_for("the daemon", || UnixStream::connect(&last).ok());
    let mut client = daemon.admin();
    for n in 0..5_u64 {
        let start = 20000 + 4 * n;
        assert_eq!(allocate(&mut client, &format!("host/{n}"), 4), Ok((start, start + 3)));
    }
    drop(client);
    assert!(daemon.stop().success());
    let is_complete = |text: &str| text.lines().last().is_some_and(|l| l.contains("exited with"));
    let trace = wait_for("the whole trace", || {
        fs::read_to_string(&trace).ok().filter(|text| is_complete(text))
    });
    // how far the log is written, and how far it is on the disk
    let (mut written, mut is_synced, mut syncing) = (0, false, false);
    let mut replies = 0;
    for line in trace.lines() {
        let is_sync = line.contains("fsync(") || line.contains("fdatasync(");
        if line.contains("pwrite64(") && line.contains("ports.sqlite-wal>") {
            written += 1;
            is_synced = false;
        } else if is_sync && line.contains("ports.sqlite-wal>") {
            syncing = line.contains("unfinished");
            is_synced = !syncing;
        } else if line.contains("sync resumed>") && syncing {
            syncing = false;
            is_synced = true;
        } else if line.contains(r#"{\"range\":{\"start\":2"#) {
            assert!(written > 0, "reply {replies} came without a change: {line}");
            assert!(is_synced, "reply {replies} came before its change was on the disk: {line}");
            replies += 1;
            written = 0;
        }
    }
    assert_eq!(replies, 5, "{trace}");
}

#[test]
fn a_pool_that_was_made_smaller_keeps_what_it_gave_and_gives_only_what_it_has() {
    let mut daemon = Daemon::start();
    let mut client = daemon.admin();
    assert_eq!(allocate(&mut client, "host/below", 10), Ok((20000, 20009)));
    assert_eq!(allocate(&mut client, "host/above", 10), Ok((20010, 20019)));
    drop(client);
    assert!(daemon.stop().success());
    fs::write(daemon.path("portsd.toml"), "[pool]\nstart = 20015\nend = 20034\n").unwrap();
    daemon.restart();
    let mut client = daemon.admin();
    assert_eq!(list(&mut client), [(20000, 20009), (20010, 20019)]);
    // what is there stays, and may shrink
    assert_eq!(allocate(&mut client, "host/below", 10), Ok((20000, 20009)));
    assert_eq!(allocate(&mut client, "host/below", 9), Ok((20000, 20008)));
    assert_eq!(allocate(&mut client, "host/new", 5), Ok((20020, 20024)));
    let connection = other(&daemon.database());
    assert!(insert(&connection, "host/x", (20009, 20009), false).is_err());
    assert!(insert(&connection, "host/x", (20035, 20035), false).is_err());
    // what has to move moves into the pool
    assert_eq!(allocate(&mut client, "host/below", 10), Ok((20025, 20034)));
    let refusal = allocate(&mut client, "host/more", 1).unwrap_err();
    let fields = json!({ "protocol": "tcp", "requested": 1, "largestFree": 0 });
    assert_eq!(refusal, Refusal::new("PoolExhausted", fields));
    assert_eq!(list(&mut client), [(20010, 20019), (20020, 20024), (20025, 20034)]);
    drop(client);
    assert!(daemon.stop().success());
    // and back: the whole pool counts again
    fs::write(daemon.path("portsd.toml"), "[pool]\nquarantine = 0\n").unwrap();
    daemon.restart();
    assert_eq!(allocate(&mut daemon.admin(), "host/more", 10), Ok((20000, 20009)));
}

#[test]
fn the_state_directory_is_the_one_that_was_named() {
    let directory = directory();
    let managed = directory.path().join("managed");
    let absent = directory.path().join("absent/state");
    let portsd = |arguments: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portsd"));
        let socket = directory.path().join("varlink");
        command.arg("--listen").arg(format!("varlink={}", socket.display()));
        command.args(arguments).env("STATE_DIRECTORY", &managed).stdin(Stdio::null());
        command
    };
    // only the directory itself is made, not those above it
    let said = refused_start(&mut portsd(&[Path::new("--state-dir"), &absent]));
    assert!(said.contains(&absent.display().to_string()), "{said}");
    assert!(!managed.exists());
    let child = portsd(&[]).stderr(Stdio::null()).spawn().unwrap();
    let mut daemon = Daemon { child, directory: TempDir::new_in(directory.path()).unwrap() };
    wait_for("the database", || managed.join("ports.sqlite").exists().then_some(()));
    daemon.kill();
}

/// A file system without locks, as some network file systems are.
const NO_LOCKS: &str = r"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
static int either(const char *name, int fd, int command, void *argument) {
    if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return ((int (*)(int, int, ...)) dlsym(RTLD_NEXT, name))(fd, command, argument);
}
#define STAND_IN(name) int name(int fd, int command, ...) { \
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list); \
    return either(#name, fd, command, argument); }
#undef fcntl
#undef fcntl64
STAND_IN(fcntl)
STAND_IN(fcntl64)
";

#[test]
fn a_file_system_without_locks_is_refused_by_name() {
    let directory = directory();
    let library = support::preloaded(directory.path(), NO_LOCKS);
    let said = refused_start(command(directory.path()).env("LD_PRELOAD", &library));
    assert!(said.contains("ports.sqlite"), "{said}");
    assert!(said.contains("local disk"), "{said}");
    // nothing of it stays in the way
    let daemon = Daemon::start_in(directory);
    assert_eq!(list(&mut daemon.admin()), []);
}

#[test]
fn a_pipe_in_the_place_of_the_database_keeps_nobody_waiting() {
    let directory = directory();
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let made = Command::new("mkfifo").arg(state.join("ports.sqlite")).status().unwrap();
    assert!(made.success());
    let said = refused_start(&mut command(directory.path()));
    assert!(said.contains("ports.sqlite"), "{said}");
}
