//! New nodes, and those that have run NS8 for years.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::json;

use crate::support::ns8::{Node, stdout};
use crate::support::redis::Redis;
use crate::support::varlink::Client;
use crate::support::{Daemon, M1, M2, PORTS, Refusal, connect_as, is_root};
use crate::{Row, dump, held};

/// A node of the cluster, with portsd and the steps put in place; NS8's allocations are still where
/// they were.
struct Member {
    number: u8,
    node: Node,
    /// The node's own copy of the cluster's keys, which portsd asks.
    _replica: Redis,
}

impl Member {
    fn join(leader: &Redis, number: u8) -> Self {
        let replica = Redis::replica_of(leader, "");
        let config = replica.config().replace("node_id = 1", &format!("node_id = {number}"));
        let agent = format!("node/{number}");
        let access = format!(
            "ACL SETUSER {agent} on >n{number}-secret resetchannels ~{agent}/* %R~cluster/* \
             %R~module/* -@all +@read +@write +@connection"
        );
        leader.run_lines(&access);
        Self { number, node: Node::on(Daemon::with_config(&config)), _replica: replica }
    }

    /// What the update of NS8's core does; gives what it says.
    fn update_core(&self, leader: &Redis) -> String {
        let mut command =
            self.node.command(self.node.directory().join("update-core.d/10upgrade_ports"));
        command.env("NODE_ID", self.number.to_string());
        command.env("REDIS_ADDRESS", format!("127.0.0.1:{}", leader.port));
        command.env("REDIS_USER", format!("node/{}", self.number));
        command.env("REDIS_PASSWORD", format!("n{}-secret", self.number));
        let output = command.output().unwrap();
        stdout(&output);
        String::from_utf8(output.stderr).unwrap()
    }

    /// What the cluster's add-module does: the node takes the ports, then the module is registered.
    fn add_module(&self, leader: &Redis, id: &str, roles: &[&str]) {
        self.node.add_module(id, 4, 2);
        leader.module(id, &self.number.to_string(), roles, "8", "4");
    }
}

/// A cluster of two nodes that has run for years: the first has counters only, the second the file
/// that NS8 went over to. Both give the same numbers.
const EXISTING: &str = "
    HSET cluster/module_node mail1 1 nethvoice1 1 mail2 2 nethvoice2 2 traefik1 1 traefik2 2
    HSET module/mail1/environment TCP_PORT 20000 TCP_PORTS_RANGE 20000-20003
    HSET module/nethvoice1/environment TCP_PORT 20004 UDP_PORT 20000 UDP_PORTS_RANGE 20000-22002
    HSET module/mail2/environment TCP_PORT 20000 TCP_PORTS_RANGE 20000-20003
    HSET module/nethvoice2/environment UDP_PORT 20000 UDP_PORTS_RANGE 20000-20999
    SET node/1/tcp_ports_sequence 20005
    SET node/1/udp_ports_sequence 22003
    SET node/2/tcp_ports_sequence 20004
    SET node/2/udp_ports_sequence 21000";

const FILE_OF_THE_SECOND: &str = "
    CREATE TABLE TCP_PORTS (start INT, end INT, module CHAR(255));
    CREATE TABLE UDP_PORTS (start INT, end INT, module CHAR(255));
    INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail2');
    INSERT INTO UDP_PORTS VALUES (2, 0, 'nethvoice2');";

fn existing() -> (Redis, [Member; 2]) {
    let leader = Redis::start();
    leader.run_lines(EXISTING);
    let members = [1, 2].map(|number| Member::join(&leader, number));
    let file = members[1].node.state().join("ports.sqlite");
    Connection::open(file).unwrap().execute_batch(FILE_OF_THE_SECOND).unwrap();
    (leader, members)
}

fn row(start: u16, end: u16, module: &str, protocol: &str) -> Row {
    (start, end, module.to_owned(), protocol.to_owned())
}

#[test]
fn it_works_on_a_new_installation() {
    let leader = Redis::start();
    leader.run_lines("HSET cluster/module_node traefik1 1");
    let member = Member::join(&leader, 1);
    assert!(member.update_core(&leader).contains("Nothing to take over"));
    member.add_module(&leader, "mail1", &["node:portsadm"]);
    let rows = [row(20000, 20001, "mail1", "udp"), row(20000, 20003, "mail1", "tcp")];
    assert_eq!(dump(&member.node), rows);
    let code =
        "print(agent.allocate_ports(4, 'tcp'), agent.allocate_ports(2, 'tcp', keep_existing=True))";
    let printed = stdout(&member.node.module("mail1", code));
    assert_eq!(printed, "[20000, 20003] [20004, 20005]\n");
    assert_eq!(held(&member.node).len(), 3);
}

#[test]
fn an_existing_system_is_upgraded_and_its_allocations_are_migrated_for_each_node() {
    let (leader, members) = existing();
    let [first, second] = &members;
    let file = second.node.state().join("ports.sqlite");
    let before = fs::read(&file).unwrap();
    for member in &members {
        member.update_core(&leader);
    }
    let expected = [
        row(20000, 20003, "mail1", "tcp"),
        row(20000, 22002, "nethvoice1", "udp"),
        row(20004, 20004, "nethvoice1", "tcp"),
    ];
    assert_eq!(dump(&first.node), expected);
    let expected = [row(20000, 20003, "mail2", "tcp"), row(20000, 20999, "nethvoice2", "udp")];
    assert_eq!(dump(&second.node), expected);
    assert_eq!(fs::read(&file).unwrap(), before);
    // what comes next does not meet them
    for (member, start) in members.iter().zip([20005, 20004]) {
        let id = format!("web{}", member.number);
        member.add_module(&leader, &id, &[]);
        let next = row(start, start + 3, &id, "tcp");
        assert!(dump(&member.node).contains(&next), "{:?}", dump(&member.node));
        held(&member.node);
    }
}

#[test]
fn the_ports_sequence_keys_are_removed() {
    let (leader, members) = existing();
    let left = || {
        let mut keys: Vec<String> = leader.ask(&["KEYS", "*_ports_sequence"]);
        keys.sort();
        keys
    };
    assert_eq!(left().len(), 4);
    members[0].update_core(&leader);
    // each node its own
    assert_eq!(left(), ["node/2/tcp_ports_sequence", "node/2/udp_ports_sequence"]);
    members[1].update_core(&leader);
    assert_eq!(left(), [""; 0]);
}

#[test]
fn the_dump_query_prints_what_is_stored() {
    let (leader, [member, _]) = existing();
    member.update_core(&leader);
    member.add_module(&leader, "web1", &[]);
    let claim =
        json!({ "start": 443, "end": 443, "protocols": ["tcp", "udp"], "owner": "host/haproxy" });
    member.node.daemon.admin().call(crate::support::ADMIN, "Claim", claim).unwrap();
    let mut dumped: Vec<_> = dump(&member.node)
        .into_iter()
        .map(|(start, end, owner, protocol)| (owner, protocol, start, end))
        .collect();
    dumped.sort_by_key(|(_, protocol, start, _)| (protocol.clone(), *start));
    assert_eq!(dumped, held(&member.node));
    assert_eq!(dumped.len(), 7);
}

/// As the module itself, by its own user.
fn allocate_as(uid: u32, socket: &Path) -> Result<(), Refusal> {
    let call = json!({ "ports": 4, "protocol": "tcp" });
    Client::new(connect_as(uid, socket)).call(PORTS, "Allocate", call).map(drop)
}

#[test]
fn root_a_new_installation_and_an_updated_existing_instance_both_may_allocate() {
    if !is_root() {
        return;
    }
    let (leader, [member, _]) = existing();
    // m1 was installed from an image without the label
    leader.run_lines(
        "HSET cluster/module_node m1 1
         HSET module/m1/environment TCP_PORT 20010 TCP_PORTS_RANGE 20010-20013
         SET node/1/tcp_ports_sequence 20014",
    );
    member.update_core(&leader);
    let socket = member.node.daemon.path("varlink");
    let refused = allocate_as(M1, &socket).map_err(|refusal| refusal.condition);
    assert_eq!(refused, Err("MissingRole".to_owned()));
    // its update brings one that has it
    leader.module("m1", "1", &["node:portsadm"], "4", "0");
    member.add_module(&leader, "m2", &["node:portsadm"]);
    crate::support::wait_for("replication", || allocate_as(M1, &socket).ok());
    allocate_as(M2, &socket).unwrap();
    let rows = dump(&member.node);
    assert!(rows.contains(&row(20010, 20013, "m1", "tcp")), "{rows:?}");
    assert!(rows.contains(&row(20005, 20008, "m2", "tcp")), "{rows:?}");
    // and by NS8's own library
    for id in ["m1", "m2"] {
        stdout(&member.node.module(id, "agent.allocate_ports(4, 'tcp')"));
    }
    assert_eq!(dump(&member.node), rows);
}
