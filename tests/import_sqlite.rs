//! `portsctl import sqlite`: a node's file from NS8's own allocator, whatever is in it, by the real
//! program against a real service.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};
use rusqlite::Connection;
use serde_json::{Value, json};
use support::run::Run;
use support::{Daemon, M1, row};
use tempfile::TempDir;

/// The tables as NS8's allocator makes them.
const NS8_TABLES: &str = "
    CREATE TABLE TCP_PORTS (start INT NOT NULL, end INT NOT NULL, module CHAR(255) NOT NULL,
        UNIQUE(start), UNIQUE(end));
    CREATE TABLE UDP_PORTS (start INT NOT NULL, end INT NOT NULL, module CHAR(255) NOT NULL,
        UNIQUE(start), UNIQUE(end));";

/// Tables with the same columns, which take anything.
const LAX_TABLES: &str = "
    CREATE TABLE TCP_PORTS (start INT, end INT, module CHAR(255));
    CREATE TABLE UDP_PORTS (start INT, end INT, module CHAR(255));";

/// A directory with a legacy file in it.
struct Legacy {
    directory: TempDir,
}

impl Legacy {
    fn with(sql: &str) -> Self {
        let legacy = Self { directory: support::directory() };
        Connection::open(legacy.path()).unwrap().execute_batch(sql).unwrap();
        legacy
    }

    /// A file that is no database.
    fn of(contents: &[u8]) -> Self {
        let legacy = Self { directory: support::directory() };
        fs::write(legacy.path(), contents).unwrap();
        legacy
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("ports.sqlite")
    }

    /// What there is in the directory, with the sum of each file.
    fn look(&self) -> Vec<(String, String)> {
        let mut found: Vec<_> = fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name().into_string().unwrap(), sha256(&entry.path()))
            })
            .collect();
        found.sort();
        found
    }
}

fn sha256(path: &Path) -> String {
    if !path.is_file() {
        return "no file".to_owned();
    }
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

fn portsctl(daemon: &Daemon, path: &Path, options: &[&str]) -> Run {
    Run::of(support::import::portsctl(daemon, &["sqlite"]).arg(path).args(options))
}

/// Imports, and checks that the file and its directory stay as they are.
fn import(daemon: &Daemon, legacy: &Legacy, options: &[&str]) -> Run {
    let before = legacy.look();
    let output = portsctl(daemon, &legacy.path(), options);
    assert_eq!(legacy.look(), before, "{output:?}");
    output
}

/// The exit status and the report for machines.
fn report(daemon: &Daemon, legacy: &Legacy, options: &[&str]) -> (Option<i32>, Value) {
    import(daemon, legacy, &[options, &["--json"]].concat()).report()
}

#[track_caller]
fn refused(daemon: &Daemon, legacy: &Legacy, words: &[&str]) {
    import(daemon, legacy, &["--skip-invalid"]).imported_nothing(daemon, words);
}

const SOUND: &str = "
    INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail1'), (20004, 20004, 'mail1_rsync'),
        ('20005', '20005', 'traefik1'), (45000, 45002, 'old1');
    INSERT INTO UDP_PORTS VALUES (20000, 22002, 'nethvoice1');";

#[test]
fn a_sound_file_is_taken_over_once_and_read_only() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("{NS8_TABLES}{SOUND}"));
    for (options, line) in [
        (&["--dry-run"][..], "5 would be imported, 0 are there already, no problems. Run it again"),
        (&[], "5 imported, 0 were there already, no problems. `portsctl list` shows"),
        (&[], "0 imported, 5 were there already, no problems."),
        (&["--dry-run", "--skip-invalid"], "0 would be imported, 5 are there already, no"),
    ] {
        let output = import(&daemon, &legacy, options);
        assert_eq!((output.status, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        assert!(output.stdout.starts_with(line), "{output:?}");
        assert_eq!(output.stdout.lines().count(), 1);
        assert_eq!(daemon.rows().is_empty(), line.starts_with("5 would"));
    }
    let expected = [
        row("mail1", "tcp", 20000, 20003),
        row("mail1_rsync", "tcp", 20004, 20004),
        row("traefik1", "tcp", 20005, 20005),
        row("old1", "tcp", 45000, 45002),
        row("nethvoice1", "udp", 20000, 22002),
    ];
    assert_eq!(daemon.rows(), expected);
    let expected = json!({
        "dryRun": false, "imported": 0, "unchanged": 5, "problems": [], "remarks": []
    });
    assert_eq!(report(&daemon, &legacy, &[]), (Some(0), expected));
}

/// Every fault that a row can have, and in between what is sound.
const FAULTY: &str = "
    INSERT INTO TCP_PORTS (rowid, start, end, module) VALUES
        (1, 20000, 20003, 'mail1'),
        (2, NULL, 20004, 'mail2'),
        (3, 20003, 20006, 'mail3'),
        (4, 20010.5, x'00ff', 'mail4'),
        (5, 20020, 20020, NULL),
        (6, 20000, 20003, 'mail1'),
        (7, 'abc' || char(27) || '[2J', 20030, 'mail6'),
        (8, 20043, 20040, 'mail7'),
        (9, 0, 70000, 'mail8'),
        (10, 20050, 20050, 'a/b' || char(10) || 'c'),
        (11, '20060', ' 20060 ', 'mail9_rsync');
    INSERT INTO UDP_PORTS (rowid, start, end, module) VALUES
        (1, 2, 0, 'nethvoice1'),
        (2, 2, 3, 'nethvoice2'),
        (5, 40000, 40001, x'6d61696c31'),
        (9, 30000, 30099, 'nethvoice3');";

/// A problem; `row` is its owner and the two ends.
fn problem(source: &str, row: &Value, reason: &str) -> Value {
    let protocol = source[..3].to_lowercase();
    json!({
        "source": source, "owner": row[0], "protocol": protocol, "start": row[1], "end": row[2],
        "reason": reason
    })
}

const NO_RANGE: &str = "not a range of ports from 1 to 65535";
const MISREAD: &str = "these are the first two digits of a range that NS8's own upgrade misread; \
                       `portsctl import redis` reads the true one, if its module is still there";

fn problems_of_the_faulty() -> Vec<Value> {
    let tcp = |row, found: Value, reason| problem(&format!("TCP_PORTS row {row}"), &found, reason);
    let udp = |row, found: Value, reason| problem(&format!("UDP_PORTS row {row}"), &found, reason);
    let overlap = "overlaps tcp 20000-20003 of mail1";
    let two_faults = "start is the fraction 20010.5, end is a blob of 2 bytes";
    let strange_text = r#"start is the text "abc\u{1b}[2J""#;
    let strange_owner = r#""a/b\nc" is not a valid owner"#;
    vec![
        tcp(2, json!(["mail2", null, 20004]), "start is NULL"),
        tcp(3, json!(["mail3", 20003, 20006]), overlap),
        tcp(4, json!(["mail4", null, null]), two_faults),
        tcp(5, json!([null, 20020, 20020]), "module is NULL"),
        tcp(7, json!(["mail6", null, 20030]), strange_text),
        tcp(8, json!(["mail7", 20043, 20040]), NO_RANGE),
        tcp(9, json!(["mail8", 0, 70000]), NO_RANGE),
        tcp(10, json!(["a/b\nc", 20050, 20050]), strange_owner),
        udp(1, json!(["nethvoice1", 2, 0]), MISREAD),
        udp(2, json!(["nethvoice2", 2, 3]), MISREAD),
        udp(5, json!([null, 40000, 40001]), "module is a blob of 5 bytes"),
    ]
}

#[test]
fn every_faulty_row_is_told_in_the_order_of_the_file_and_stops_all_unless_it_is_skipped() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("{LAX_TABLES}{FAULTY}"));
    let problems = problems_of_the_faulty();
    let expected = |dry_run: bool, imported: u16, unchanged: u16| {
        json!({
            "dryRun": dry_run, "imported": imported, "unchanged": unchanged, "problems": problems,
            "remarks": []
        })
    };
    // row 6 says again what row 1 says
    assert_eq!(report(&daemon, &legacy, &[]), (Some(1), expected(false, 0, 1)));
    assert_eq!(report(&daemon, &legacy, &["--dry-run"]), (Some(1), expected(true, 0, 1)));
    let skipping = ["--dry-run", "--skip-invalid"];
    assert_eq!(report(&daemon, &legacy, &skipping), (Some(1), expected(true, 4, 1)));
    assert_eq!(daemon.rows(), []);
    assert_eq!(report(&daemon, &legacy, &["--skip-invalid"]), (Some(1), expected(false, 4, 1)));
    let taken = [
        row("mail1", "tcp", 20000, 20003),
        // of row 3, what row 1 does not have
        row("mail3", "tcp", 20004, 20006),
        row("mail9_rsync", "tcp", 20060, 20060),
        row("nethvoice3", "udp", 30000, 30099),
    ];
    assert_eq!(daemon.rows(), taken);
    assert_eq!(report(&daemon, &legacy, &["--skip-invalid"]), (Some(1), expected(false, 0, 4)));
    assert_eq!(daemon.rows(), taken);
}

#[test]
fn a_row_that_the_service_never_sees_stops_all_the_others_too() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!(
        "{LAX_TABLES}{SOUND} INSERT INTO UDP_PORTS VALUES (NULL, NULL, NULL);"
    ));
    let (status, found) = report(&daemon, &legacy, &[]);
    assert_eq!((status, &found["imported"]), (Some(1), &json!(0)));
    assert_eq!(found["problems"].as_array().unwrap().len(), 1);
    assert_eq!(daemon.rows(), []);
    let (status, found) = report(&daemon, &legacy, &["--skip-invalid"]);
    assert_eq!((status, &found["imported"]), (Some(1), &json!(5)));
    assert_eq!(daemon.rows().len(), 5);
}

#[test]
fn people_get_a_line_for_each_problem_and_one_with_what_to_do() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("{LAX_TABLES}{FAULTY}"));
    for (options, last) in [
        (
            &[][..],
            "nothing is imported: 11 problems. 3 more could be imported, 1 are there already.",
        ),
        (&["--dry-run"], "nothing is imported: 11 problems. 3 more could be imported, 1 are there"),
        (&["--dry-run", "--skip-invalid"], "4 would be imported, 1 are there already, 11 would be"),
        (
            &["--skip-invalid"],
            "4 imported, 1 were there already, 11 left out, but for what of them",
        ),
    ] {
        let output = import(&daemon, &legacy, options);
        assert_eq!((output.status, output.stderr.as_str()), (Some(1), ""), "{output:?}");
        let lines: Vec<_> = output.stdout.lines().collect();
        assert_eq!(lines.len(), 12, "{lines:#?}");
        assert_eq!(lines[0], "TCP_PORTS row 2: tcp ?-20004 of mail2: start is NULL");
        let overlap =
            "TCP_PORTS row 3: tcp 20003-20006 of mail3: overlaps tcp 20000-20003 of mail1";
        assert_eq!(lines[1], overlap);
        let strange =
            r#"TCP_PORTS row 10: tcp 20050-20050 of "a/b\nc": "a/b\nc" is not a valid owner"#;
        assert_eq!(lines[7], strange);
        assert!(lines[11].starts_with(last), "{}", lines[11]);
        assert!(!output.stdout.contains('\x1b'));
    }
}

#[test]
fn what_portsd_holds_already_comes_first() {
    let daemon = Daemon::start();
    let held = json!({ "start": 20000, "end": 20001, "protocols": ["tcp"], "owner": "host/there" });
    daemon.admin().call(support::ADMIN, "Claim", held).unwrap();
    let before = daemon.rows();
    let legacy = Legacy::with(&format!("{NS8_TABLES}{SOUND}"));
    let (status, found) = report(&daemon, &legacy, &[]);
    assert_eq!((status, &found["imported"]), (Some(1), &json!(0)));
    assert_eq!(found["problems"].as_array().unwrap().len(), 1);
    assert_eq!(found["problems"][0]["reason"], "overlaps tcp 20000-20001 of host/there");
    assert_eq!(daemon.rows(), before);
}

#[test]
fn a_missing_table_is_told_and_two_are_refused() {
    let daemon = Daemon::start();
    let tcp_only = Legacy::with(
        "CREATE TABLE tcp_ports (start INT, end INT, module CHAR(255));
         INSERT INTO tcp_ports VALUES (20000, 20000, 'mail1');",
    );
    let (status, found) = report(&daemon, &tcp_only, &["--dry-run"]);
    assert_eq!((status, &found["imported"]), (Some(0), &json!(1)));
    assert_eq!(found["remarks"], json!(["the file has no table UDP_PORTS: it keeps no udp ports"]));
    let output = import(&daemon, &tcp_only, &["--dry-run"]);
    assert!(output.stdout.starts_with("the file has no table UDP_PORTS"), "{output:?}");
    let empty_tables = Legacy::with(LAX_TABLES);
    let (status, found) = report(&daemon, &empty_tables, &[]);
    assert_eq!((status, &found["imported"], &found["remarks"]), (Some(0), &json!(0), &json!([])));

    refused(&daemon, &Legacy::with("CREATE TABLE other (start INT)"), &["no tables TCP_PORTS"]);
    let no_end = "CREATE TABLE TCP_PORTS (start INT, module CHAR(255));
                  INSERT INTO TCP_PORTS VALUES (20000, 'mail1');";
    refused(&daemon, &Legacy::with(no_end), &["TCP_PORTS", "t.end"]);
    let virtual_table = "CREATE VIRTUAL TABLE TCP_PORTS USING fts5(start, \"end\", module)";
    refused(&daemon, &Legacy::with(virtual_table), &["TCP_PORTS is no ordinary table"]);
}

#[test]
fn portsds_own_database_is_refused() {
    let daemon = Daemon::start();
    let view = "CREATE TABLE allocations (start, 'end', owner);
                CREATE VIEW TCP_PORTS (start, 'end', module) AS SELECT * FROM allocations;";
    refused(&daemon, &Legacy::with(view), &["TCP_PORTS is a view", "portsd's own"]);
    // a copy as Backup makes it, and the file in use, with its log
    let reply = daemon.admin().call(support::ADMIN, "Backup", json!({})).unwrap();
    let copy = Legacy::of(&fs::read(reply["path"].as_str().unwrap()).unwrap());
    refused(&daemon, &copy, &["portsd's own"]);
    let output = portsctl(&daemon, &daemon.database(), &[]);
    assert_eq!(output.status, Some(1));
    assert!(output.stderr.contains("portsd's own"), "{output:?}");
}

#[test]
fn what_is_no_readable_database_is_refused_at_once() {
    let daemon = Daemon::start();
    let sound = fs::read(Legacy::with(&format!("{NS8_TABLES}{SOUND}")).path()).unwrap();
    refused(&daemon, &Legacy::of(b""), &["is empty"]);
    refused(&daemon, &Legacy::of(b"SQLite format 3\0"), &["no SQLite database"]);
    refused(&daemon, &Legacy::of(&b"no database at all\n".repeat(1000)), &["no SQLite database"]);
    refused(&daemon, &Legacy::of(&sound[..sound.len() / 2]), &["damaged"]);
    let mut garbled = sound.clone();
    garbled[4096..8192].fill(0x5a);
    refused(&daemon, &Legacy::of(&garbled), &["damaged"]);

    let absent = Legacy::of(&sound);
    fs::remove_file(absent.path()).unwrap();
    refused(&daemon, &absent, &["No such file"]);
    fs::create_dir(absent.path()).unwrap();
    refused(&daemon, &absent, &["this is a directory"]);
    fs::remove_dir(absent.path()).unwrap();
    mkfifo(&absent.path(), Mode::S_IRWXU).unwrap();
    refused(&daemon, &absent, &["no regular file"]);
    fs::remove_file(absent.path()).unwrap();
    std::os::unix::fs::symlink("/dev/zero", absent.path()).unwrap();
    refused(&daemon, &absent, &["no regular file"]);
}

#[test]
fn an_unreadable_file_is_refused() {
    let legacy = Legacy::with(NS8_TABLES);
    fs::set_permissions(legacy.path(), fs::Permissions::from_mode(0o000)).unwrap();
    let program = legacy.directory.path().join("portsctl");
    // by another program, since one that this process has open for writing can't be started
    let copied =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_portsctl")).arg(&program).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new(program);
    if geteuid().is_root() {
        command.uid(M1).gid(M1);
    }
    let output = Run::of(command.args(["import", "sqlite"]).arg(legacy.path()));
    assert_eq!(output.status, Some(1));
    assert!(output.stderr.contains("Permission denied"), "{output:?}");
}

#[test]
fn a_file_with_a_log_is_read_if_nothing_is_left_in_the_log() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("PRAGMA journal_mode = WAL; {NS8_TABLES}{SOUND}"));
    assert_eq!(legacy.look().len(), 1, "the last one to close the file empties its log");
    let (status, found) = report(&daemon, &legacy, &["--dry-run"]);
    assert_eq!((status, &found["imported"]), (Some(0), &json!(5)));

    let writer = Connection::open(legacy.path()).unwrap();
    writer.execute("INSERT INTO TCP_PORTS VALUES (30000, 30000, 'late1')", []).unwrap();
    assert_eq!(legacy.look().len(), 3);
    refused(&daemon, &legacy, &["ports.sqlite-wal only", "Copy both files"]);
    drop(writer);
    let (status, found) = report(&daemon, &legacy, &["--dry-run"]);
    assert_eq!((status, &found["imported"]), (Some(0), &json!(6)));
}

#[test]
fn a_log_beside_a_file_that_has_none_is_noticed() {
    let daemon = Daemon::start();
    let with_log = Legacy::with(&format!("PRAGMA journal_mode = WAL; {NS8_TABLES}{SOUND}"));
    let writer = Connection::open(with_log.path()).unwrap();
    writer.execute("INSERT INTO TCP_PORTS VALUES (30000, 30000, 'ghost1')", []).unwrap();
    let log = fs::read(with_log.directory.path().join("ports.sqlite-wal")).unwrap();
    assert!(!log.is_empty());

    let legacy = Legacy::with(&format!("{NS8_TABLES}{SOUND}"));
    let path = |name: &str| legacy.directory.path().join(name);
    fs::write(path("ports.sqlite-wal"), log).unwrap();
    refused(&daemon, &legacy, &["ports.sqlite-wal only", "Copy both files"]);
    fs::write(path("ports.sqlite-wal"), "").unwrap();
    let (status, found) = report(&daemon, &legacy, &["--dry-run"]);
    assert_eq!((status, &found["imported"]), (Some(0), &json!(5)));
    fs::write(path("ports.sqlite-journal"), "x").unwrap();
    refused(&daemon, &legacy, &["an empty log and a journal"]);
}

#[test]
fn a_write_that_was_left_half_done_is_neither_undone_nor_read() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("{NS8_TABLES}{SOUND}"));
    let path = |name: &str| legacy.directory.path().join(name);
    let sound = fs::read(legacy.path()).unwrap();
    // the file and its journal amid a write, as a crash leaves them
    let mut writer = Connection::open(legacy.path()).unwrap();
    writer.pragma_update(None, "cache_size", 1).unwrap();
    writer.pragma_update(None, "cache_spill", 1).unwrap();
    let transaction = writer.transaction().unwrap();
    for port in 30000..31000 {
        transaction.execute("INSERT INTO TCP_PORTS VALUES (?1, ?1, 'late1')", [port]).unwrap();
    }
    let [torn, journal] = ["ports.sqlite", "ports.sqlite-journal"].map(|name| {
        let found = fs::read(path(name)).unwrap();
        assert!(!found.is_empty());
        found
    });
    drop(transaction);
    drop(writer);
    assert_ne!(torn, sound);
    fs::write(path("ports.sqlite"), &torn).unwrap();
    fs::write(path("ports.sqlite-journal"), &journal).unwrap();
    refused(&daemon, &legacy, &["half done", "-journal", "quick_check"]);

    // as it advises
    let copy = Legacy::of(&torn);
    fs::write(copy.directory.path().join("ports.sqlite-journal"), &journal).unwrap();
    let mended = Connection::open(copy.path()).unwrap();
    mended.query_row("PRAGMA quick_check", [], |_| Ok(())).unwrap();
    drop(mended);
    let (status, found) = report(&daemon, &copy, &["--dry-run"]);
    assert_eq!((status, &found["imported"]), (Some(0), &json!(5)));
}

#[test]
fn a_journal_that_is_done_with_does_no_harm() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("PRAGMA journal_mode = PERSIST; {NS8_TABLES}{SOUND}"));
    assert_eq!(legacy.look().len(), 2);
    assert_eq!(report(&daemon, &legacy, &[]).0, Some(0));
    assert_eq!(daemon.rows().len(), 5);
}

#[test]
fn a_writer_is_waited_for_and_given_up_on() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("{NS8_TABLES}{SOUND}"));
    let writer = Connection::open(legacy.path()).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    refused(&daemon, &legacy, &["another program keeps it locked"]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| report(&daemon, &legacy, &[]).0);
        std::thread::sleep(Duration::from_secs(1));
        writer.execute_batch("COMMIT").unwrap();
        assert_eq!(waiting.join().unwrap(), Some(0));
    });
}

#[test]
fn any_name_of_a_file_will_do() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!("{NS8_TABLES}{SOUND}"));
    let directory = legacy.directory.path();
    for name in ["a b?mode=rwc&x#y%41.sqlite", "é\n.sqlite", "-x"] {
        fs::copy(legacy.path(), directory.join(name)).unwrap();
        let output = portsctl(&daemon, &directory.join(name), &["--dry-run"]);
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!(output.stdout.starts_with("5 would be imported"), "{output:?}");
    }
    assert_eq!(legacy.look().len(), 4, "and nothing else is made");
}

#[test]
fn a_pool_full_of_single_ports_is_taken_over_and_machines_get_nothing_but_the_report() {
    let daemon = Daemon::start();
    let legacy = Legacy::with(&format!(
        "{NS8_TABLES}
         WITH RECURSIVE ports (port) AS
             (SELECT 20000 UNION ALL SELECT port + 1 FROM ports WHERE port < 45000)
         INSERT INTO TCP_PORTS SELECT port, port, 'm' || port FROM ports;
         INSERT INTO UDP_PORTS SELECT * FROM TCP_PORTS;"
    ));
    for (imported, unchanged) in [(50002, 0), (0, 50002)] {
        let output = import(&daemon, &legacy, &["--json"]);
        assert_eq!(output.status, Some(0), "{output:?}");
        let found: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(
            (&found["imported"], &found["unchanged"]),
            (&json!(imported), &json!(unchanged))
        );
    }
    assert_eq!(daemon.rows().len(), 50002);
}

#[test]
fn a_kill_at_any_moment_leaves_all_or_nothing() {
    let legacy = Legacy::with(&format!(
        "{NS8_TABLES}
         WITH RECURSIVE ports (port) AS
             (SELECT 20000 UNION ALL SELECT port + 1 FROM ports WHERE port < 24999)
         INSERT INTO TCP_PORTS SELECT port, port, 'm' || port FROM ports;"
    ));
    for delay in [1, 10, 20, 40, 60, 80, 120, 320] {
        let mut daemon = Daemon::start();
        let mut command = support::import::portsctl(&daemon, &["sqlite"]);
        command.arg(legacy.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        daemon.kill();
        let done = child.wait().unwrap().success();
        daemon.restart();
        let rows = daemon.rows().len();
        assert!(rows == 5000 || (rows == 0 && !done), "{rows} rows, {done}");
        assert_eq!(report(&daemon, &legacy, &[]).0, Some(0));
        assert_eq!(daemon.rows().len(), 5000);
    }
}
