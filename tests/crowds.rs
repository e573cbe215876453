//! Nobody waits for somebody else: slow look-ups, no descriptors left, a burst of callers.

mod support;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::json;
use support::varlink::Client;
use support::{Daemon, M1, PORTS, connect_as};

fn who_am_i() -> Vec<u8> {
    format!("{}\0", json!({ "method": format!("{PORTS}.WhoAmI") })).into_bytes()
}

/// Whether the connection has a place and its call is answered.
fn works(client: &mut Client) -> bool {
    client.stream.write_all(&who_am_i()).is_ok() && client.receive().is_some()
}

/// Stands before the C library's function in a daemon that is told to load it first.
const SLOW_USER_DATABASE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pwd.h>
#include <unistd.h>
typedef int look_up(uid_t, struct passwd *, char *, size_t, struct passwd **);
int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found) {
    if (uid >= 800000000)
        sleep(600);
    return ((look_up *) dlsym(RTLD_NEXT, "getpwuid_r"))(uid, entry, buffer, size, found);
}
"#;

#[test]
fn root_a_user_database_that_does_not_answer_holds_up_nobody_else() {
    if !support::is_root() {
        return;
    }
    let directory = support::directory();
    let library = support::preloaded(directory.path(), SLOW_USER_DATABASE);
    let child = support::command(directory.path()).env("LD_PRELOAD", &library).spawn().unwrap();
    let mut daemon = Daemon { child, directory };
    support::wait_for("the daemon", || UnixStream::connect(daemon.path("admin-jsonrpc")).ok());
    daemon.set_module("m1", 4, 4, true);

    let path = daemon.path("varlink");
    let mut strangers: Vec<_> = (0..20).map(|n| connect_as(800_000_000 + n, &path)).collect();
    for stranger in &mut strangers {
        stranger.write_all(&who_am_i()).unwrap();
    }
    let mut known = Client::new(connect_as(M1, &path));
    for _ in 0..50 {
        assert_eq!(known.call(PORTS, "WhoAmI", json!({})).unwrap()["moduleId"], "m1");
        assert!(works(&mut daemon.admin()));
    }
    for stranger in &mut strangers {
        stranger.set_nonblocking(true).unwrap();
        let answer = stranger.read(&mut [0]);
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    // nor does it hold up the end
    assert!(daemon.stop().success());
}

#[test]
fn a_daemon_without_descriptors_serves_who_is_connected_and_recovers() {
    let directory = support::directory();
    let daemon = support::command(directory.path());
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64 && exec \"$@\"", "limited"]);
    limited.arg(daemon.get_program()).args(daemon.get_args());
    let log = fs::OpenOptions::new().append(true).open(directory.path().join("log")).unwrap();
    let child = limited.stderr(log).spawn().unwrap();
    let daemon = Daemon { child, directory };
    let connect = || UnixStream::connect(daemon.path("admin-varlink"));
    support::wait_for("the daemon", || connect().ok());

    let mut first = daemon.admin();
    assert!(works(&mut first));
    // more than it has descriptors for; those that it can't accept wait in the socket's queue
    let crowd: Vec<_> = (0..100).map(|_| connect().unwrap()).collect();
    support::wait_for("the line in the log", || {
        daemon.log().contains("no connection can be accepted").then_some(())
    });
    for _ in 0..50 {
        assert!(works(&mut first));
    }
    drop(crowd);
    support::wait_for("a connection", || works(&mut daemon.admin()).then_some(()));
}

#[test]
fn a_burst_of_callers_is_served() {
    let daemon = Daemon::with_config("[limits]\nconnections_per_uid = 512\n");
    for _ in 0..3 {
        let mut burst: Vec<_> = (0..150).map(|_| daemon.admin()).collect();
        for client in &mut burst {
            client.stream.write_all(&who_am_i()).unwrap();
        }
        assert_eq!(burst.iter_mut().filter_map(Client::receive).count(), 150);
    }
}

#[test]
fn a_stop_does_not_wait_for_somebody_who_goes_on_calling() {
    let mut daemon = Daemon::start();
    let mut client = daemon.admin();
    assert!(works(&mut client));
    let mut last = daemon.admin();
    assert!(works(&mut last));
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    // a thousand calls in a row would take far longer than a stop may
    let calls = (0..1_000_000).take_while(|_| works(&mut client)).count();
    assert!(calls < 1_000_000);
    assert!(daemon.wait().success());
    assert!(!daemon.log().contains("stopped with connections open"));
}

#[test]
fn a_batch_of_long_lists_is_not_held_whole() {
    let daemon = Daemon::with_config("[limits]\nconnections_per_uid = 512\n");
    let mut admin = daemon.admin();
    for n in 0..3000 {
        let parameters = json!({ "ports": 1, "protocol": "tcp", "owner": format!("owner-{n}") });
        admin.call(PORTS, "Allocate", parameters).unwrap();
    }
    let mut calls = vec![r#"{"jsonrpc":"2.0","id":1,"method":"list"}"#; 63];
    calls.push(
        r#"{"jsonrpc":"2.0","id":2,"method":"allocate","params":{"ports":1,"protocol":"udp","owner":"a"}}"#,
    );
    let mut client = support::jsonrpc::Client::connect(&daemon.path("admin-jsonrpc"));
    let response = client.post(format!("[{}]", calls.join(",")).as_bytes());
    assert!(response.body.len() < 4 * 1024 * 1024, "{} bytes", response.body.len());
    let replies = response.json();
    let replies = replies.as_array().unwrap();
    assert_eq!(replies.len(), 64);
    assert_eq!(replies[0]["result"]["allocations"].as_array().unwrap().len(), 3000);
    // reads are refused from some point on, a change never
    assert_eq!(replies[62]["error"]["code"], -32008);
    assert_eq!(replies[63]["result"]["range"]["start"], 20000);
}

#[test]
fn a_client_that_leaves_before_the_answer_harms_nobody() {
    let daemon = Daemon::with_config("[limits]\nconnections_per_uid = 512\n");
    for n in 0..200 {
        let mut client = daemon.admin();
        client.send(&json!({
            "method": format!("{PORTS}.Allocate"),
            "parameters": { "ports": 1, "protocol": "tcp", "owner": format!("o{n}") }
        }));
    }
    let mut admin = support::wait_for("a place", || {
        let mut client = daemon.admin();
        works(&mut client).then_some(client)
    });
    // all of them are carried out, whoever has left
    support::wait_for("the rows", || (daemon.rows().len() == 200).then_some(()));
    for n in 0..200 {
        let owner = format!("o{n}");
        let parameters = json!({ "ports": 1, "protocol": "tcp", "owner": owner });
        admin.call(PORTS, "Allocate", parameters).unwrap();
        let list = admin.call(PORTS, "List", json!({ "owner": owner })).unwrap();
        assert_eq!(list["allocations"].as_array().unwrap().len(), 1);
    }
}

/// The daemon's memory that is in use, in KiB.
fn resident(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn what_is_too_large_is_refused_before_it_is_held() {
    let daemon = Daemon::start();
    let chunk = vec![b'['; 1024 * 1024];
    let head = b"POST / HTTP/1.1\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n6400000\r\n";
    for name in ["varlink", "jsonrpc"] {
        let mut streams: Vec<_> =
            (0..20).map(|_| UnixStream::connect(daemon.path(name)).unwrap()).collect();
        for stream in &mut streams {
            stream.set_write_timeout(Some(support::PATIENCE)).unwrap();
            if name == "jsonrpc" {
                stream.write_all(head).unwrap();
            }
            // a hundred of these would be a message of 100 MiB; the daemon hangs up long before
            let written = (0..100).take_while(|_| stream.write_all(&chunk).is_ok()).count();
            assert!(written < 100, "{name} took everything");
        }
        assert!(resident(&daemon) < 100 * 1024, "{} KiB", resident(&daemon));
    }
    assert!(works(&mut daemon.admin()));
}

#[test]
fn bad_messages_leave_nothing_behind() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let mut send = |count: usize| {
        for _ in 0..count {
            client.send_raw(br#"{"method":"org.nethserver.Ports.List","parameters":{"x":[1,{}]}}"#);
            assert!(client.receive().unwrap()["error"].is_string());
        }
        resident(&daemon)
    };
    let before = send(5_000);
    let after = send(50_000);
    assert!(after < before + 8 * 1024, "{before} KiB became {after} KiB");
}
