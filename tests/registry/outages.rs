//! Redis away, hanging, loading, behind; and modules that nobody knows yet, or ever.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::support::redis::{FalseRedis, Redis, authorizations, hangs_up_after, says};
use super::support::varlink::{Client, result};
use super::support::{Daemon, M1, M2, PORTS, connect_as, is_root, wait_for};
use super::{AWAY, BACK, allocate_for, client, give, modules, said, unavailable, unknown, who};

/// Waits until entries are memories, or no longer.
fn wait_until_stale(daemon: &Daemon, stale: bool) {
    wait_for("the news of Redis", || {
        modules(daemon).iter().all(|module| module.4 == stale).then_some(())
    });
}

#[test]
fn root_what_was_known_counts_while_redis_is_away() {
    if !is_root() {
        return;
    }
    let mut redis = Redis::start();
    redis.module("m1", "1", &["node:portsadm"], "4", "4");
    let mut daemon = Daemon::with_config(&redis.config());
    let mut module = client(&daemon, M1);
    let call = json!({ "ports": 2, "protocol": "tcp" });
    module.call(PORTS, "Allocate", call.clone()).unwrap();
    redis.kill();
    wait_until_stale(&daemon, true);
    for _ in 0..5 {
        assert!(module.call(PORTS, "Allocate", call.clone()).is_ok());
        assert_eq!(client(&daemon, M2).call(PORTS, "List", json!({})), Err(unavailable()));
        assert_eq!(allocate_for(&daemon, "web1", 1), Err(unavailable()));
    }
    // what is known is in the database
    assert!(daemon.stop().success());
    daemon.restart();
    assert!(client(&daemon, M1).call(PORTS, "Allocate", call.clone()).is_ok());
    wait_until_stale(&daemon, true);
    assert_eq!(said(&daemon, AWAY), 2);

    redis.restart();
    redis.module("m1", "1", &[], "4", "4");
    redis.module("m2", "1", &[], "1", "1");
    wait_until_stale(&daemon, false);
    let refusal = client(&daemon, M1).call(PORTS, "Allocate", call).unwrap_err();
    assert_eq!(refusal.condition, "MissingRole");
    assert_eq!(who(&mut client(&daemon, M2))["tcpPortsDemand"], 1);
    assert_eq!((said(&daemon, AWAY), said(&daemon, BACK)), (2, 1));
}

#[test]
fn root_a_server_that_hangs_is_in_nobodys_way() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    redis.module("m1", "1", &["node:portsadm"], "4", "4");
    let mut daemon = Daemon::with_config(&redis.config());
    assert_eq!(who(&mut client(&daemon, M1))["moduleId"], "m1");
    redis.signal(Signal::SIGSTOP);
    let call = json!({ "method": format!("{PORTS}.WhoAmI") });
    let mut waiting: Vec<_> = [M1, M1, M2, M2].map(|uid| client(&daemon, uid)).into();
    for module in &mut waiting {
        module.send(&call);
    }
    // who needs no registry is served meanwhile
    for _ in 0..50 {
        give(&daemon, "host/x", 1);
        let nobody = UnixStream::connect(daemon.path("varlink")).unwrap();
        assert_eq!(who(&mut Client::new(nobody))["caller"], "anonymous");
    }
    let replies = waiting.iter_mut().map(|module| result(&module.receive().unwrap()));
    let replies: Vec<_> = replies.collect();
    for reply in &replies[..2] {
        assert_eq!(reply.as_ref().unwrap()["moduleId"], "m1");
    }
    assert_eq!(replies[2..], [Err(unavailable()), Err(unavailable())]);
    wait_until_stale(&daemon, true);
    assert_eq!(said(&daemon, AWAY), 1);
    redis.signal(Signal::SIGCONT);
    wait_until_stale(&daemon, false);
    redis.run(&["HSET", "cluster/tcp_ports_demand", "m1", "7"]);
    assert_eq!(who(&mut client(&daemon, M1))["tcpPortsDemand"], 7);
    assert_eq!(said(&daemon, BACK), 1);
    // a stop finishes the calls that wait
    redis.signal(Signal::SIGSTOP);
    let mut module = client(&daemon, M1);
    assert!(module.call(PORTS, "WhoAmI", json!({})).is_ok());
    let mut module = client(&daemon, M1);
    module.send(&call);
    assert!(daemon.stop().success());
    assert_eq!(said(&daemon, "stopped with connections open"), 0);
    redis.signal(Signal::SIGCONT);
}

#[test]
fn a_server_that_never_answered_is_in_nobodys_way() {
    let redis = Redis::start();
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    redis.signal(Signal::SIGSTOP);
    let daemon = Daemon::with_config(&redis.config());
    assert_eq!(allocate_for(&daemon, "mail1", 1), Err(unavailable()));
    redis.signal(Signal::SIGCONT);
    wait_for("Redis", || allocate_for(&daemon, "mail1", 1).ok());
}

/// Answers as a server does that knows of one module, `mail1` on node 1.
fn sound(words: &[String], stream: &mut TcpStream) -> bool {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let answer: &[u8] = match words[..] {
        ["EXISTS", _] => b":1\r\n",
        ["HGET", "cluster/module_node", "mail1"] => b"$1\r\n1\r\n",
        ["HGET", "cluster/tcp_ports_demand", "mail1"] => b"$1\r\n4\r\n",
        ["SRANDMEMBER", "cluster/authorizations/module/mail1", _] => {
            b"*1\r\n$13\r\nnode:portsadm\r\n"
        }
        ["HGETALL", "cluster/module_node"] => b"*2\r\n$5\r\nmail1\r\n$1\r\n1\r\n",
        ["SRANDMEMBER", ..] => b"*0\r\n",
        ["AUTH", ..] => b"+OK\r\n",
        _ => b"$-1\r\n",
    };
    stream.write_all(answer).is_ok()
}

const LOADING: &[u8] = b"-LOADING Redis is loading the dataset in memory\r\n";

/// Stops answering soundly in one way.
type Failing = fn(&FalseRedis);

const FAILINGS: [Failing; 8] = [
    |server| server.become_another(says(LOADING)),
    |server| server.become_another(hangs_up_after(b"")),
    // hangs up in the middle of a reply
    |server| {
        server.become_another(|words: &[String], stream: &mut TcpStream| {
            words[0] == "EXISTS" && stream.write_all(b":1\r\n$100\r\nab").is_ok()
        });
    },
    |server| server.become_another(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    |server| server.become_another(says(b"-MASTERDOWN Link with MASTER is down\r\n")),
    |server| server.become_another(says(b":0\r\n")),
    |server| server.become_another(says(b"")),
    // more than anybody wants to know
    |server| {
        server.become_another(|_: &[String], stream: &mut TcpStream| {
            let endless = [b"$400000000\r\n".to_vec(), vec![b'x'; 3_000_000]].concat();
            stream.write_all(&endless).is_ok()
        });
    },
];

#[test]
fn a_server_that_fails_in_any_manner_is_away_until_it_does_not() {
    let server = FalseRedis::start(says(LOADING));
    let daemon = Daemon::with_config(&server.config_with("node:very-secret@"));
    assert_eq!(allocate_for(&daemon, "mail1", 1), Err(unavailable()));
    server.become_another(sound);
    wait_for("the server", || allocate_for(&daemon, "mail1", 1).ok());
    for (count, fail) in (1..).zip(FAILINGS) {
        fail(&server);
        // what is known still counts, and nobody else is known
        wait_until_stale_by_calls(&daemon);
        assert_eq!(allocate_for(&daemon, "web1", 1), Err(unavailable()), "{count}");
        server.become_another(sound);
        wait_until_stale(&daemon, false);
        assert!(allocate_for(&daemon, "mail1", 1).is_ok());
    }
    assert!(!daemon.log().contains("very-secret"));
    assert_eq!(modules(&daemon), [("mail1".into(), true, 4, 0, false)]);
}

/// Calls until the entry is a memory; each call is answered all the time.
fn wait_until_stale_by_calls(daemon: &Daemon) {
    wait_for("the news of Redis", || {
        assert!(allocate_for(daemon, "mail1", 1).is_ok());
        modules(daemon)[0].4.then_some(())
    });
}

#[test]
fn a_connection_that_was_closed_for_idleness_is_no_outage() {
    let redis = Redis::start();
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    allocate_for(&daemon, "mail1", 1).unwrap();
    let connections = || {
        let listed = redis.run(&["CLIENT", "LIST", "TYPE", "normal"]);
        let listed: String = redis::from_redis_value(listed).unwrap();
        let ours = listed.lines().filter(|line| line.contains(" user=default "));
        ours.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = connections();
    assert_eq!(before.len(), 1);
    // one that ends sooner has not been idle
    thread::sleep(Duration::from_millis(2500));
    redis.run(&["CLIENT", "KILL", "USER", "default"]);
    wait_for("another connection", || {
        let now = connections();
        (now.len() == 1 && now != before).then_some(())
    });
    redis.run(&["HSET", "cluster/tcp_ports_demand", "mail1", "2"]);
    allocate_for(&daemon, "mail1", 2).unwrap();
    assert_eq!(modules(&daemon), [("mail1".into(), true, 2, 4, false)]);
    assert_eq!((said(&daemon, AWAY), said(&daemon, BACK)), (0, 0));
}

#[test]
fn no_password_is_told() {
    // a server that says what it was given
    let server = FalseRedis::start(|words: &[String], stream: &mut TcpStream| {
        let said = format!("-ERR unknown command, with args: {}\r\n", words.join(" "));
        stream.write_all(said.as_bytes()).is_ok()
    });
    let daemon = Daemon::with_config(&server.config_with("node:very-secret@"));
    wait_for("the log", || (said(&daemon, AWAY) > 0).then_some(()));
    assert!(!daemon.log().contains("secret"), "{}", daemon.log());
    // one that wants another one
    let redis = Redis::with_settings("user guest on >right ~* +@all");
    let url = redis.config().replace("redis://", "redis://guest:very-wrong-secret@");
    let daemon = Daemon::with_config(&url);
    assert_eq!(allocate_for(&daemon, "mail1", 1), Err(unavailable()));
    wait_for("the log", || (said(&daemon, AWAY) > 0).then_some(()));
    assert!(!daemon.log().contains("secret"), "{}", daemon.log());
    let url = redis.config().replace("redis://", "redis://guest:right@");
    redis.module("mail1", "1", &["node:portsadm"], "1", "1");
    let daemon = Daemon::with_config(&url);
    assert!(allocate_for(&daemon, "mail1", 1).is_ok());
    assert!(!daemon.log().contains("right"), "{}", daemon.log());
}

#[test]
fn a_server_without_the_clusters_keys_takes_nothing_away() {
    let mut redis = Redis::start();
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    allocate_for(&daemon, "mail1", 2).unwrap();
    redis.kill();
    redis.restart();
    assert!(allocate_for(&daemon, "mail1", 2).is_ok());
    wait_until_stale_by_calls(&daemon);
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    wait_until_stale(&daemon, false);
    redis.run(&["FLUSHALL"]);
    wait_until_stale_by_calls(&daemon);
    assert_eq!(modules(&daemon), [("mail1".into(), true, 4, 4, true)]);
}

#[test]
fn the_first_module_of_a_new_cluster_may_call_at_once() {
    let redis = Redis::start();
    let daemon = Daemon::with_config(&redis.config());
    assert_eq!(allocate_for(&daemon, "mail1", 1), Err(unavailable()));
    wait_for("the log", || (said(&daemon, AWAY) > 0).then_some(()));
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    assert!(allocate_for(&daemon, "mail1", 1).is_ok());
    assert_eq!((said(&daemon, AWAY), said(&daemon, BACK)), (1, 1));
}

#[test]
fn a_replica_answers_without_its_leader_unless_it_is_told_not_to() {
    let mut leader = Redis::start();
    leader.module("mail1", "1", &["node:portsadm"], "4", "4");
    let replica = Redis::replica_of(&leader, "");
    let cautious = Redis::replica_of(&leader, "replica-serve-stale-data no");
    let daemons = [&replica, &cautious].map(|redis| Daemon::with_config(&redis.config()));
    for daemon in &daemons {
        allocate_for(daemon, "mail1", 2).unwrap();
    }
    leader.run(&["HSET", "cluster/tcp_ports_demand", "mail1", "1"]);
    for daemon in &daemons {
        wait_for("replication", || {
            allocate_for(daemon, "mail1", 2).unwrap();
            (modules(daemon)[0].2 == 1).then_some(())
        });
    }
    leader.kill();
    wait_until_stale_by_calls_of(&daemons[1]);
    assert_eq!(modules(&daemons[0]), [("mail1".into(), true, 1, 4, false)]);
    assert!(allocate_for(&daemons[0], "mail1", 1).is_ok());
}

fn wait_until_stale_by_calls_of(daemon: &Daemon) {
    wait_for("the news of Redis", || {
        let _ = allocate_for(daemon, "mail1", 1);
        modules(daemon)[0].4.then_some(())
    });
}

#[test]
fn root_a_module_that_was_just_installed_is_waited_for() {
    if !is_root() {
        return;
    }
    let leader = Redis::start();
    leader.module("m1", "1", &[], "1", "1");
    let replica = Redis::replica_of(&leader, "");
    let daemon = Daemon::with_config(&replica.config());
    assert_eq!(who(&mut client(&daemon, M1))["moduleId"], "m1");
    let before = replica.count("hget");
    // two processes of the module, and the node on its behalf
    let mut starting = [client(&daemon, M2), client(&daemon, M2)];
    for process in &mut starting {
        process.send(&json!({ "method": format!("{PORTS}.WhoAmI") }));
    }
    let behalf = thread::scope(|scope| {
        let node = scope.spawn(|| allocate_for(&daemon, "m2", 1));
        // the replica has been asked, and does not know it
        wait_for("a look-up of each", || (replica.count("hget") >= before + 9).then_some(()));
        leader.module("m2", "1", &["node:portsadm"], "1", "1");
        node.join().unwrap()
    });
    assert!(behalf.is_ok(), "{behalf:?}");
    for process in &mut starting {
        assert_eq!(result(&process.receive().unwrap()).unwrap()["moduleId"], "m2");
    }
}

#[test]
fn root_users_that_are_no_modules_are_no_load() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    redis.module("m1", "1", &["node:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    who(&mut client(&daemon, M1));
    let before = redis.count("hget");
    // users that every system has
    let users = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut crowd: Vec<_> = users
        .iter()
        .flat_map(|uid| (0..20).map(|_| Client::new(connect_as(*uid, &daemon.path("varlink")))))
        .collect();
    for one in &mut crowd {
        one.send(&json!({ "method": format!("{PORTS}.WhoAmI") }));
    }
    // a module is served meanwhile
    let call = json!({ "ports": 2, "protocol": "tcp" });
    for _ in 0..20 {
        client(&daemon, M1).call(PORTS, "Allocate", call.clone()).unwrap();
    }
    for one in &mut crowd {
        assert_eq!(result(&one.receive().unwrap()).unwrap()["caller"], "anonymous");
    }
    // three fields for each call, and for each user's further look-ups
    let asked = redis.count("hget") - before;
    let bound = 3 * (crowd.len() + 20 + 3 * users.len());
    assert!(asked <= u64::try_from(bound).unwrap(), "{asked} of {bound}");
    assert_eq!(modules(&daemon), [("m1".into(), true, 4, 4, false)]);
}

#[test]
fn root_a_user_that_calls_again_and_again_is_not_asked_about_each_time() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    redis.module("mail1", "1", &[], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    let mut stranger = client(&daemon, M1);
    assert_eq!(who(&mut stranger)["caller"], "anonymous");
    let before = redis.count("hget");
    for _ in 0..1000 {
        assert_eq!(who(&mut stranger)["caller"], "anonymous");
    }
    let asked = redis.count("hget") - before;
    assert!(asked < 1000, "{asked}");
}

#[test]
fn a_module_that_was_refused_may_call_later() {
    let redis = Redis::start();
    redis.module("mail1", "1", &[], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    assert_eq!(allocate_for(&daemon, "web1", 1), Err(unknown("web1")));
    redis.module("web1", "1", &["node:portsadm"], "4", "4");
    wait_for("the name to be asked about again", || {
        thread::sleep(Duration::from_millis(20));
        allocate_for(&daemon, "web1", 1).ok()
    });
    // what was known once is not waited for when it goes
    redis.run(&["HDEL", "cluster/module_node", "web1"]);
    let before = redis.count("hget");
    assert_eq!(allocate_for(&daemon, "web1", 1), Err(unknown("web1")));
    assert_eq!(redis.count("hget") - before, 3);
    redis.run(&["DEL", &authorizations("web1")]);
}
