//! `portsctl import redis`: what a node's modules have in NS8's Redis, by the real program from a
//! real Redis into a real service.

#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::redis::{FalseRedis, Manner, Redis, hangs_up_after, says};
use support::run::Run;
use support::{Daemon, row};

fn portsctl(daemon: &Daemon, url: &str, options: &[&str]) -> Command {
    let mut command = support::import::portsctl(daemon, &["redis", url, "--node-id", "1"]);
    command.args(options);
    command
}

fn import(daemon: &Daemon, url: &str, options: &[&str]) -> Run {
    run(&mut portsctl(daemon, url, options))
}

/// Runs it; a password is never printed.
fn run(command: &mut Command) -> Run {
    let run = Run::of(command);
    assert!(![&run.stdout, &run.stderr].iter().any(|text| text.contains("secret")), "{run:?}");
    run
}

/// The exit status and the report for machines.
fn report(daemon: &Daemon, url: &str, options: &[&str]) -> (Option<i32>, Value) {
    import(daemon, url, &[options, &["--json"]].concat()).report()
}

#[track_caller]
fn refused(daemon: &Daemon, url: &str, words: &[&str]) {
    import(daemon, url, &["--skip-invalid", "--remove-sequences"]).imported_nothing(daemon, words);
}

/// Three modules on node 1 and one on node 2, which has got the same ports as one on node 1.
const CLUSTER: &str = "
    HSET cluster/module_node traefik1 1 mail1 1 nethvoice1 1 mail2 2 ldapproxy1 1
    HSET module/mail1/environment TCP_PORT 20000 TCP_PORTS_RANGE 20000-20003 TCP_PORTS 1,2 MODULE_ID mail2
    HSET module/mail2/environment TCP_PORT 20000 TCP_PORTS_RANGE 20000-20003
    HSET module/nethvoice1/environment TCP_PORT 20004 UDP_PORT 20000 UDP_PORTS_RANGE 20000-22002
    HSET module/traefik1/environment HTTP_PORT 80
    HSET module/gone1/environment TCP_PORT 20005
    SET node/1/tcp_ports_sequence 20005
    SET node/1/udp_ports_sequence 22003
    SET node/2/tcp_ports_sequence 20004";

fn taken() -> [(String, String, u16, u16); 3] {
    [
        row("mail1", "tcp", 20000, 20003),
        row("nethvoice1", "tcp", 20004, 20004),
        row("nethvoice1", "udp", 20000, 22002),
    ]
}

/// The counters of node 1 in a report.
fn counters(found: &Value) -> Vec<(Value, Value, Value, Value)> {
    let counter = |one: &Value| {
        let field = |name: &str| one[name].clone();
        (field("value"), field("unaccounted"), field("remark"), field("removed"))
    };
    found["sequences"].as_array().unwrap().iter().map(counter).collect()
}

#[test]
fn the_nodes_own_modules_are_taken_over_once_and_redis_is_only_read() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    let before = server.changes();
    for (url, options, line) in [
        (
            server.url(),
            &["--dry-run"][..],
            "3 would be imported, 0 are there already, no problems.",
        ),
        (server.url(), &[], "3 imported, 0 were there already, no problems."),
        (format!("redis://127.0.0.1:{}", server.port), &[], "0 imported, 3 were there already, no"),
        (format!("redis://default@127.0.0.1:{}/0", server.port), &[], "0 imported, 3 were"),
        (format!("redis+{}", server.url()), &["--skip-invalid"], "0 imported, 3 were there"),
    ] {
        let output = import(&daemon, &url, options);
        assert_eq!((output.status, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        assert!(output.stdout.starts_with(line), "{output:?}");
        assert_eq!(daemon.rows().is_empty(), line.starts_with("3 would"));
    }
    assert_eq!(daemon.rows(), taken());
    let (status, found) = report(&daemon, &server.url(), &[]);
    let counter = |protocol: &str, value: u16| {
        json!({
            "key": format!("node/1/{protocol}_ports_sequence"), "protocol": protocol,
            "exists": true, "value": value, "unaccounted": [], "remark": null, "removed": false
        })
    };
    let expected = json!({
        "dryRun": false, "imported": 0, "unchanged": 3, "problems": [], "remarks": [],
        "sequences": [counter("tcp", 20005), counter("udp", 22003)]
    });
    assert_eq!((status, found), (Some(0), expected));
    assert_eq!(server.changes(), before);
    // those of the tests, and those of the import
    for command in server.counts().into_keys() {
        let of_tests = ["ping", "acl", "hset", "set", "info", "exists", "auth", "client|setinfo"];
        let of_import = ["hgetall", "hmget", "get", "auth"];
        let is_expected = of_tests.contains(&&*command) || of_import.contains(&&*command);
        assert!(is_expected, "{command} was called");
    }
}

#[test]
fn a_database_number_counts_and_what_is_not_ns8s_is_refused() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    refused(&daemon, &server.url(), &["no cluster/module_node", "database"]);
    server.run_lines(CLUSTER);
    refused(&daemon, &format!("{}?db=3", server.url()), &["no cluster/module_node"]);
    refused(&daemon, &format!("redis://127.0.0.1:{}/99", server.port), &["SELECT 99"]);
    server.run_lines("SWAPDB 0 3");
    assert_eq!(import(&daemon, &format!("{}?db=3", server.url()), &[]).status, Some(0));
    assert_eq!(daemon.rows(), taken());
    let (other, daemon) = (Redis::start(), Daemon::start());
    other.run_lines("SET cluster/module_node x");
    refused(&daemon, &other.url(), &["cluster/module_node", "another type"]);
}

#[test]
fn a_node_without_modules_has_nothing_to_import() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines("HSET cluster/module_node mail1 2 mail2 11");
    let (status, found) = report(&daemon, &server.url(), &[]);
    assert_eq!((status, &found["imported"]), (Some(0), &json!(0)));
    assert_eq!(found["remarks"], json!(["cluster/module_node has no modules on node 1"]));
}

/// Everything that modules may have written into their environment.
fn write_faults(server: &Redis) {
    server.run_lines(
        "HSET cluster/module_node a1 1 a2 1 a3 1 a4 1 b1 1 b2 1 b3 1 b4 1 c1 1 c2 1 c3 1 d/e 1
         HSET module/a1/environment TCP_PORT 20000 TCP_PORTS_RANGE 20000-20003
         HSET module/a2/environment TCP_PORTS_RANGE 20003-20006 UDP_PORT 20000
         HSET module/a3/environment TCP_PORT 20011 TCP_PORTS_RANGE 20010-20013
         HSET module/a4/environment TCP_PORTS_RANGE 20023-20020
         HSET module/b1/environment TCP_PORTS_RANGE 20030
         SET module/b2/environment 20040
         HSET module/c3/environment TCP_PORT 45001
         HSET module/d/e/environment TCP_PORT 20070
         HSET cluster/module_node f1 one",
    );
    for (module, field, value) in [
        ("b3", "TCP_PORT", ""),
        ("b4", "UDP_PORT", "20050\n"),
        ("c1", "UDP_PORTS_RANGE", "\u{1b}[2J20060-20063"),
        ("c2", "TCP_PORTS_RANGE", &"2".repeat(1024 * 1024)),
    ] {
        let _: u32 = server.ask(&["HSET", &format!("module/{module}/environment"), field, value]);
    }
}

fn problems_of_the_faults() -> Vec<Value> {
    let problem = |source: &str, range: Value, reason: &str| {
        json!({
            "source": source, "owner": range[0], "protocol": range[1], "start": range[2],
            "end": range[3], "reason": reason
        })
    };
    let of = |module: &str, field: &str, range: Value, reason: &str| {
        let source = format!("module/{module}/environment {field}");
        let range = json!([module, range[0], range[1], range[2]]);
        problem(&source, range, reason)
    };
    let overlap = "overlaps tcp 20000-20003 of a1";
    let not_first = "TCP_PORT is \"20011\", which is not the first port of the range";
    let reversed = "not a range of ports from 1 to 65535";
    let long = format!("the value is \"{}\"... (1048576 bytes), which is no", "2".repeat(64));
    let escape = r#"the value is "\u{1b}[2J20060-20063", which is no range of ports"#;
    let no_range = r#"the value is "20030", which is no range of ports"#;
    let newline = r#"the value is "20050\n", which is no port"#;
    let no_node = r#"its node is "one", which is no number"#;
    let nobody = json!([null, null, null, null]);
    vec![
        problem(r#"cluster/module_node "d/e""#, nobody.clone(), r#""d/e" is no module id"#),
        problem(r#"cluster/module_node "f1""#, nobody, no_node),
        of("a3", "TCP_PORTS_RANGE", json!(["tcp", 20010, 20013]), not_first),
        of("b1", "TCP_PORTS_RANGE", json!(["tcp", null, null]), no_range),
        problem("module/b2/environment", json!(["b2", null, null, null]), "this is no HASH"),
        of("b3", "TCP_PORT", json!(["tcp", null, null]), r#"the value is "", which is no port"#),
        of("b4", "UDP_PORT", json!(["udp", null, null]), newline),
        of("c1", "UDP_PORTS_RANGE", json!(["udp", null, null]), escape),
        of("c2", "TCP_PORTS_RANGE", json!(["tcp", null, null]), &format!("{long} range of ports")),
        // what can be sent comes behind, the smaller ones first
        of("a4", "TCP_PORTS_RANGE", json!(["tcp", 20023, 20020]), reversed),
        of("a2", "TCP_PORTS_RANGE", json!(["tcp", 20003, 20006]), overlap),
    ]
}

#[test]
fn every_value_that_is_no_range_is_named_and_stops_all_unless_it_is_skipped() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    write_faults(&server);
    let problems = json!(problems_of_the_faults());
    for (options, imported, unchanged) in [
        (&[][..], 0, 0),
        (&["--dry-run"], 0, 0),
        (&["--dry-run", "--skip-invalid"], 4, 0),
        (&["--skip-invalid"], 4, 0),
        (&["--skip-invalid"], 0, 3),
    ] {
        let (status, found) = report(&daemon, &server.url(), options);
        assert_eq!(status, Some(1), "{options:?}");
        assert_eq!(found["problems"], problems);
        let counts = (&found["imported"], &found["unchanged"]);
        assert_eq!(counts, (&json!(imported), &json!(unchanged)), "{options:?}");
        assert_eq!(daemon.rows().is_empty(), imported + unchanged == 0 || options.len() == 2);
    }
    let taken = [
        row("a1", "tcp", 20000, 20003),
        // of its range, what a1 does not have
        row("a2", "tcp", 20004, 20006),
        row("c3", "tcp", 45001, 45001),
        row("a2", "udp", 20000, 20000),
    ];
    assert_eq!(daemon.rows(), taken);
    let output = import(&daemon, &server.url(), &[]);
    let lines: Vec<_> = output.stdout.lines().collect();
    // the problems, two counters that are not there, and the conclusion
    assert_eq!(lines.len(), 11 + 2 + 1, "{lines:#?}");
    assert!(lines[13].starts_with("nothing is imported: 11 problems. 0 more could be imported, 3"));
    assert!(lines.iter().all(|line| line.len() < 300) && !output.stdout.contains('\x1b'));
}

#[test]
fn what_a_module_writes_counts_for_itself_only() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    let held = json!({ "start": 20000, "end": 20001, "protocols": ["tcp"], "owner": "host/there" });
    daemon.admin().call(support::ADMIN, "Claim", held).unwrap();
    let access = ["resetchannels", "~module/mail1/*", "+@all", "-@dangerous"];
    server.run(&[&["ACL", "SETUSER", "module/mail1", "on", ">m1-secret"], &access[..]].concat());
    let set = |field: &str, value: &str| {
        let words = ["HSET", "module/mail1/environment", field, value];
        let _: u32 = server.run_as("module/mail1", "m1-secret", &words).unwrap();
    };
    set("MODULE_ID", "nethvoice1");
    // the ports of another module and of software outside
    for (range, other) in
        [("20004-20004", "20004-20004 of mail1"), ("20001-20001", "20000-20001 of host/there")]
    {
        set("TCP_PORTS_RANGE", range);
        set("TCP_PORT", range.split('-').next().unwrap());
        let (status, found) = report(&daemon, &server.url(), &[]);
        assert_eq!((status, &found["imported"]), (Some(1), &json!(0)));
        assert_eq!(found["problems"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["problems"][0]["reason"], format!("overlaps tcp {other}"));
    }
    assert_eq!(daemon.rows(), [row("host/there", "tcp", 20000, 20001)]);
    let (_, found) = report(&daemon, &server.url(), &["--skip-invalid"]);
    assert_eq!(found["problems"][0]["owner"], "mail1");
    assert_eq!(daemon.rows()[1..], taken()[1..]);
}

#[test]
fn what_is_too_long_is_not_read_and_is_told_as_its_module_s() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    let long = "2".repeat(3 * 1024 * 1024);
    for field in ["TCP_PORT", "TCP_PORTS_RANGE", "UDP_PORT"] {
        let _: u32 = server.ask(&["HSET", "module/ldapproxy1/environment", field, &long]);
    }
    let (status, found) = report(&daemon, &server.url(), &["--skip-invalid"]);
    assert_eq!((status, found["problems"].as_array().unwrap().len()), (Some(1), 1), "{found}");
    assert_eq!(found["problems"][0]["source"], "module/ldapproxy1/environment");
    assert_eq!(found["problems"][0]["reason"], "the values have more than 8388608 bytes");
    assert_eq!(daemon.rows(), taken());
    // a server that does not stop
    let daemon = Daemon::start();
    let flooding = FalseRedis::start(|_: &[String], stream: &mut TcpStream| {
        let _ = stream.write_all(b"$400000000\r\n");
        while stream.write_all(&[b'x'; 8192]).is_ok() {}
        false
    });
    refused(&daemon, &flooding.url(), &["longer than anything"]);
}

#[test]
fn a_module_cant_take_all_that_is_free_or_push_out_another() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    server.run_lines(
        "HSET cluster/tcp_ports_demand mail1 4 traefik1 2\nDEL node/1/udp_ports_sequence",
    );
    for (ends, start, reason) in [
        ("1-65535", 1, "no ports below 20000 were handed out"),
        ("20005-45000", 20005, "the module's demand is 2"),
        ("20003-20004", 20003, "overlaps tcp 20004-20004 of nethvoice1"),
    ] {
        server.run_lines(&format!(
            "HSET module/traefik1/environment TCP_PORT {start} TCP_PORTS_RANGE {ends}"
        ));
        let (_, found) = report(&daemon, &server.url(), &["--skip-invalid"]);
        let problems = found["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1, "{found}");
        assert_eq!(problems[0]["owner"], "traefik1");
        assert!(problems[0]["reason"].as_str().unwrap().contains(reason), "{found}");
    }
    assert_eq!(daemon.rows(), taken());
}

#[test]
fn ports_that_two_modules_claim_are_given_to_nobody_else() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    server.run_lines(
        "HSET cluster/module_node aforger1 1 webtop1 1
         HSET cluster/tcp_ports_demand mail1 4
         HSET module/aforger1/environment TCP_PORT 20001 UDP_PORT 21000
         HSET module/webtop1/environment TCP_PORTS_RANGE 30000-30002",
    );
    let (_, found) = report(&daemon, &server.url(), &["--skip-invalid"]);
    let reasons = found["problems"].as_array().unwrap().iter().map(|one| &one["reason"]);
    let expected = ["overlaps tcp 20000-20003 of mail1", "overlaps udp 21000-21000 of aforger1"];
    assert_eq!(reasons.collect::<Vec<_>>(), expected);
    let rows = [
        // its module's demand accounts for it
        row("mail1", "tcp", 20000, 20003),
        row("nethvoice1", "tcp", 20004, 20004),
        row("webtop1", "tcp", 30000, 30002),
        // nothing does for either, and the rest is as little free as it was
        row("nethvoice1", "udp", 20000, 20999),
        row("aforger1", "udp", 21000, 21000),
        row("nethvoice1", "udp", 21001, 22002),
    ];
    assert_eq!(daemon.rows(), rows);
    let (_, found) = report(&daemon, &server.url(), &["--skip-invalid"]);
    assert_eq!(found["imported"], 0);
    assert_eq!(daemon.rows(), rows);
}

#[test]
fn counters_tell_which_ports_no_module_accounts_for() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    let tcp = |value: &str| {
        server.run_lines(&format!("SET node/1/tcp_ports_sequence {value}"));
        let (status, found) = report(&daemon, &server.url(), &["--dry-run"]);
        assert_eq!(status, Some(0));
        counters(&found).swap_remove(0)
    };
    let range = |start: u16, end: u16| json!({ "start": start, "end": end });
    assert_eq!(
        tcp("20010"),
        (json!(20010), json!([range(20005, 20009)]), json!(null), json!(false))
    );
    assert_eq!(tcp("45001").1, json!([range(20005, 45000)]));
    let held = json!({ "start": 20007, "end": 20007, "protocols": ["tcp"], "owner": "host/x" });
    daemon.admin().call(support::ADMIN, "Claim", held).unwrap();
    assert_eq!(tcp("20010").1, json!([range(20005, 20006), range(20008, 20009)]));
    let output = import(&daemon, &server.url(), &["--dry-run"]);
    let line =
        "tcp 20005-20006, 20008-20009: node/1/tcp_ports_sequence has passed them (20010), but";
    assert!(output.stdout.starts_with(line), "{output:?}");

    for (value, words) in [
        ("20004", "is 20004, but a module has tcp 20004-20004: nothing tells how far tcp"),
        ("5", "is 5, and counts from 20000 on"),
        ("99999", "is 99999, and counts from 20000 on"),
        ("x", "is \"x\", which is no counter"),
    ] {
        let (_, _, remark, _) = tcp(value);
        assert!(remark.as_str().unwrap().contains(words), "{remark}");
    }
    server.run_lines("DEL node/1/tcp_ports_sequence node/1/udp_ports_sequence\nHSET node/1/udp_ports_sequence a b");
    let (status, found) = report(&daemon, &server.url(), &["--dry-run"]);
    assert_eq!(status, Some(0));
    let [tcp, udp] = &counters(&found)[..] else { panic!("{found}") };
    assert_eq!(
        (&tcp.0, &tcp.1, &udp.0, &udp.1),
        (&json!(null), &json!([]), &json!(null), &json!([]))
    );
    assert!(tcp.2.as_str().unwrap().contains("node/1/tcp_ports_sequence is not there: nothing"));
    assert!(udp.2.as_str().unwrap().contains("of another type, which is no counter"));
}

#[test]
fn counters_are_removed_only_if_asked_for_and_only_after_the_import() {
    let (mut daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    let url = server.url_as("node/1", "n1-secret");
    let there =
        || ["node/1/tcp_ports_sequence", "node/1/udp_ports_sequence"].map(|key| server.has(key));
    // not asked for, a dry run, problems, no service
    assert_eq!(import(&daemon, &url, &["--dry-run", "--remove-sequences"]).status, Some(0));
    server.run_lines("HSET module/traefik1/environment TCP_PORT x");
    let (status, found) = report(&daemon, &url, &["--remove-sequences"]);
    assert_eq!((status, daemon.rows().len()), (Some(1), 0));
    assert_eq!(found["remarks"], json!(["the counters stay, since nothing was imported"]));
    daemon.kill();
    assert_eq!(import(&daemon, &url, &["--remove-sequences"]).status, Some(7));
    daemon.restart();
    server.run_lines("HDEL module/traefik1/environment TCP_PORT");
    assert_eq!(import(&daemon, &url, &[]).status, Some(0));
    assert_eq!(there(), [true, true]);

    // everything is there already; asked once more, nothing is left to remove
    let (status, found) = report(&daemon, &url, &["--remove-sequences"]);
    assert_eq!((status, &found["unchanged"]), (Some(0), &json!(3)));
    assert!(counters(&found).iter().all(|counter| counter.3 == true), "{found}");
    assert_eq!(there(), [false, false]);
    assert!(server.has("node/2/tcp_ports_sequence"));
    let (status, found) = report(&daemon, &url, &["--remove-sequences"]);
    assert_eq!(status, Some(0));
    assert!(counters(&found).iter().all(|counter| counter.3 == false), "{found}");

    // what is left out on purpose does not hold it up
    server.run_lines(
        "SET node/1/tcp_ports_sequence 20005\nHSET module/traefik1/environment TCP_PORT x",
    );
    let output = import(&daemon, &url, &["--remove-sequences", "--skip-invalid"]);
    assert_eq!(output.status, Some(1));
    assert!(output.stdout.contains("node/1/tcp_ports_sequence is removed"), "{output:?}");
    assert_eq!(there(), [false, false]);
}

#[test]
fn without_the_right_to_remove_counters_all_is_imported_and_it_is_said() {
    let server = Redis::start();
    server.run_lines(CLUSTER);
    let replica = Redis::replica_of(&server, "");
    for (url, reason) in [
        (server.url(), "this user may not"),
        (replica.url(), "this user may not"),
        (replica.url_as("leader", "leader-secret"), "this Redis is a replica"),
    ] {
        let daemon = Daemon::start();
        let (status, found) = report(&daemon, &url, &["--remove-sequences"]);
        assert_eq!(
            (status, &found["imported"], daemon.rows()),
            (Some(1), &json!(3), taken().to_vec())
        );
        let remarks = found["remarks"].as_array().unwrap();
        assert_eq!(remarks.len(), 2);
        for (remark, protocol) in remarks.iter().zip(["tcp", "udp"]) {
            let start = format!("node/1/{protocol}_ports_sequence was not removed: {reason}");
            assert!(remark.as_str().unwrap().starts_with(&start), "{remark}");
        }
        assert!(server.has("node/1/tcp_ports_sequence"));
        // what was to be imported is there
        assert_eq!(import(&daemon, &url, &[]).status, Some(0));
    }
}

#[test]
fn a_key_or_a_command_that_is_forbidden_is_named_and_nothing_is_imported() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    let access = "nocommands +get +hgetall +auth resetchannels ~cluster/* ~node/* ~module/*";
    server.run_lines(&format!("ACL SETUSER limited on >l-secret {access}"));
    let limited = server.url_as("limited", "l-secret");
    refused(&daemon, &limited, &["HMGET module/ldapproxy1/environment", "may not"]);
    server.run_lines(
        "ACL SETUSER limited +hmget resetkeys ~cluster/* ~node/* ~module/mail1/* ~module/l*",
    );
    refused(&daemon, &limited, &["HMGET module/nethvoice1/environment", "may not"]);
    server.run_lines("ACL SETUSER limited resetkeys ~cluster/* ~module/* ~node/1/tcp*");
    refused(&daemon, &limited, &["GET node/1/udp_ports_sequence", "may not"]);
    server.run_lines("ACL SETUSER limited resetkeys ~node/* ~module/*");
    refused(&daemon, &limited, &["HGETALL cluster/module_node", "may not"]);
    server.run_lines("ACL SETUSER limited ~cluster/*");
    assert_eq!(import(&daemon, &limited, &[]).status, Some(0));
    assert_eq!(daemon.rows(), taken());
}

#[test]
fn passwords_come_from_a_file_the_url_or_the_environment_and_are_never_shown() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    server.run_lines("ACL SETUSER default off");
    refused(&daemon, &server.url(), &["it wants a password"]);
    refused(&daemon, &server.url_as("all", "wrong-secret"), &["refuses the user or the password"]);
    let tcp = format!("redis://nobody:x-secret@127.0.0.1:{}", server.port);
    refused(&daemon, &tcp, &["refuses the user or the password"]);

    let file = daemon.path("password");
    fs::write(&file, "n1-secret\n").unwrap();
    let url = format!("redis://node%2F1@127.0.0.1:{}", server.port);
    let run = |url: &str, variable: &str, options: &[&str]| {
        run(portsctl(&daemon, url, options).env("PORTSD_REDIS_PASSWORD", variable)).status
    };
    let from_file = ["--dry-run", "--password-file", file.to_str().unwrap()];
    assert_eq!(run(&url, "", &["--dry-run"]), Some(1));
    assert_eq!(run(&url, "n1-secret", &["--dry-run"]), Some(0));
    assert_eq!(run(&url, "wrong-secret", &from_file), Some(0));
    assert_eq!(
        run(&server.url_as("leader", "leader-secret"), "wrong-secret", &["--dry-run"]),
        Some(0)
    );
    assert_eq!(run(&server.url_as("node/1", "wrong-secret"), "", &from_file), Some(0));
    fs::write(&file, "").unwrap();
    assert_eq!(run(&url, "n1-secret", &from_file), Some(2));
    fs::remove_file(&file).unwrap();
    assert_eq!(run(&url, "n1-secret", &from_file), Some(1));
}

#[test]
fn urls_that_cant_be_used_are_refused_without_showing_them() {
    let daemon = Daemon::start();
    for (url, word) in [
        ("rediss://:secret@127.0.0.1:6379", "TLS"),
        ("http://:secret@127.0.0.1", "redis://"),
        (":secret@127.0.0.1", "redis://"),
        ("redis://:s3/cret@127.0.0.1", "redis://"),
    ] {
        let output = import(&daemon, url, &[]);
        assert_eq!(output.status, Some(2), "{output:?}");
        assert!(output.stderr.contains(word), "{output:?}");
    }
}

/// Answers as a server does that has one module, mail1, and no counters.
fn sound(command: &[String], stream: &mut TcpStream) -> bool {
    let answer: &[u8] = match command[0].as_str() {
        "AUTH" | "SELECT" => b"+OK\r\n",
        "HGETALL" => b"*2\r\n$5\r\nmail1\r\n$1\r\n1\r\n",
        "HMGET" => b"*4\r\n$-1\r\n$5\r\n20000\r\n$-1\r\n$-1\r\n",
        "GET" => b"$-1\r\n",
        other => panic!("{other}"),
    };
    // whoever hangs up is heard of when the next command is read
    let _ = stream.write_all(answer);
    true
}

/// Soundly, until that command comes.
fn sound_but(name: &'static str, manner: impl Manner) -> impl Manner {
    move |command: &[String], stream: &mut TcpStream| {
        if command[0] == name { manner(command, stream) } else { sound(command, stream) }
    }
}

const LOADING: &[u8] = b"-LOADING Redis is loading the dataset in memory\r\n";

#[test]
fn a_server_that_loads_its_data_is_waited_for_and_given_up_on() {
    let daemon = Daemon::start();
    // the pauses between 25 attempts take longer than people are left without a word
    let attempts = AtomicUsize::new(0);
    let fake = FalseRedis::start(move |command: &[String], stream: &mut TcpStream| {
        let is_login = command[0] == "AUTH";
        let attempts = attempts.fetch_add(usize::from(is_login), Ordering::Relaxed);
        if attempts < 25 { stream.write_all(LOADING).is_ok() } else { sound(command, stream) }
    });
    // the login, too, is told that it is loading
    let url = format!("{}/2", fake.url_with("leader:a-secret@"));
    let output = import(&daemon, &url, &["--json"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(daemon.rows(), [row("mail1", "tcp", 20000, 20000)]);
    // it took so long that people are told, and machines get their report all the same
    assert_eq!(output.stderr, "portsctl: 1 ranges read\n");
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(found["imported"], 1);
    let heard = fake.heard.lock().unwrap().clone();
    assert_eq!(heard.iter().filter(|command| command[0] == "AUTH").count(), 26, "{heard:?}");

    let daemon = Daemon::start();
    let fake = FalseRedis::start(says(LOADING));
    refused(&daemon, &fake.url(), &["still loads its data"]);
    // it begins to load again amid the import
    let fake = FalseRedis::start(sound_but("GET", says(LOADING)));
    refused(&daemon, &fake.url(), &["still loads its data"]);
}

const PART: &[u8] = b"*2\r\n$5\r\nmai";

#[test]
fn servers_that_hang_or_hang_up_are_told_apart() {
    let daemon = Daemon::start();
    let silent = FalseRedis::start(says(b""));
    let silent_amid = FalseRedis::start(says(PART));
    let silent_later = FalseRedis::start(sound_but("HMGET", says(b"")));
    let trickling = FalseRedis::start(|_: &[String], stream: &mut TcpStream| {
        let _ = stream.write_all(b"$1000\r\n");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(300));
        }
        false
    });
    for hanging in [silent, silent_amid, silent_later, trickling] {
        refused(&daemon, &hanging.url(), &["no answer within 5 seconds"]);
    }
    let gone = FalseRedis::start(hangs_up_after(b""));
    let gone_amid = FalseRedis::start(hangs_up_after(PART));
    let gone_later = FalseRedis::start(sound_but("GET", hangs_up_after(b"")));
    for gone in [gone, gone_amid, gone_later] {
        refused(&daemon, &gone.url(), &["the connection ended before the answer"]);
    }
}

#[test]
fn what_is_no_redis_is_told() {
    let daemon = Daemon::start();
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        // what a server that wants TLS says
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"+OK\r\n",
        b":1\r\n",
        b"*1\r\n$1\r\na\r\n",
    ] {
        let fake = FalseRedis::start(hangs_up_after(answer));
        refused(&daemon, &fake.url(), &["is this Redis"]);
    }
    let fake = FalseRedis::start(says(b"-ERR \x1b[2J what \x07 is this\r\n"));
    refused(
        &daemon,
        &fake.url(),
        &["HGETALL cluster/module_node was refused: ERR \\u{1b}[2J what"],
    );
    let echo = FalseRedis::start(|command: &[String], stream: &mut TcpStream| {
        stream.write_all(format!("-ERR you sent {}\r\n", command.join(" ")).as_bytes()).is_ok()
    });
    refused(&daemon, &echo.url_with("leader:a-secret@"), &["it refuses to let the user in (ERR)"]);
}

#[test]
fn where_nobody_listens_is_told() {
    let daemon = Daemon::start();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = format!("127.0.0.1:{port}");
    refused(&daemon, &format!("redis://{place}"), &[&place, "Connection refused"]);
    let absent = daemon.path("absent.sock");
    let url = format!("unix://{}", absent.display());
    refused(&daemon, &url, &["absent.sock", "No such file"]);
    fs::write(&absent, "").unwrap();
    refused(&daemon, &url, &["Connection refused"]);
    // the kernel connects, and nobody accepts
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    refused(&daemon, &url, &["no answer within 5 seconds"]);
}

#[test]
fn ranges_that_ns8s_file_has_only_two_digits_of_are_made_good() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    server.run_lines(CLUSTER);
    let file = daemon.path("ports.sqlite");
    let tables = "CREATE TABLE TCP_PORTS (start INT, end INT, module CHAR(255));
        CREATE TABLE UDP_PORTS (start INT, end INT, module CHAR(255));
        INSERT INTO TCP_PORTS VALUES ('20000', '20003', 'mail1'), (20004, 20004, 'nethvoice1');
        INSERT INTO UDP_PORTS VALUES ('2', '0', 'nethvoice1');";
    rusqlite::Connection::open(&file).unwrap().execute_batch(tables).unwrap();
    let mut command = support::import::portsctl(&daemon, &["sqlite", "--skip-invalid"]);
    assert_eq!(Run::of(command.arg(&file)).status, Some(1));
    assert_eq!(daemon.rows(), taken()[..2]);
    let (status, found) = report(&daemon, &server.url(), &[]);
    let counts = (&found["imported"], &found["unchanged"]);
    assert_eq!((status, counts), (Some(0), (&json!(1), &json!(2))));
    assert_eq!(daemon.rows(), taken());
}

#[test]
fn thousands_of_modules_are_taken_over() {
    let (daemon, server) = (Daemon::start(), Redis::start());
    let script = "for n = 0, 4999 do
        redis.call('HSET', 'cluster/module_node', 'm' .. n, '1')
        redis.call('HSET', 'module/m' .. n .. '/environment', 'TCP_PORT', 20000 + 5 * n,
            'TCP_PORTS_RANGE', string.format('%d-%d', 20000 + 5 * n, 20003 + 5 * n))
    end";
    let _: redis::Value = server.ask(&["EVAL", script, "0"]);
    for (imported, unchanged) in [(5000, 0), (0, 5000)] {
        let (status, found) = report(&daemon, &server.url(), &[]);
        assert_eq!((status, &found["imported"]), (Some(0), &json!(imported)));
        assert_eq!(found["unchanged"], json!(unchanged));
    }
    assert_eq!(daemon.rows().len(), 5000);
}
