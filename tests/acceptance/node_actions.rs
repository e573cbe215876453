//! The sentences about the node's own actions, and the flows that go through them.

use serde_json::{Value, json};

use crate::support::ns8::{Node, Reply, ports, stdout};
use crate::support::{ADMIN, ranges};

const NODE: Option<&str> = Some("");

/// What a task of the node itself prints.
#[track_caller]
fn output(reply: &Reply) -> Value {
    assert_eq!((reply.status.as_str(), reply.exit_code), ("completed", 0), "{reply:?}");
    serde_json::from_str(&reply.output).unwrap()
}

/// The one port that a helper of the module gets from the node.
fn rsync_port(node: &Node, module_id: &str) -> u64 {
    let data = ports(1, &format!("{module_id}_rsync"), "tcp", false);
    let range = output(&node.task("allocate-ports", NODE, &data));
    assert_eq!(range[0], range[1]);
    range[0].as_u64().unwrap()
}

fn release_rsync_port(node: &Node, module_id: &str) -> Value {
    let data = json!({ "module_id": format!("{module_id}_rsync"), "protocol": "tcp" });
    output(&node.task("deallocate-ports", NODE, &data))
}

fn remove(node: &Node, module_id: &str) {
    let data = json!({ "module_id": module_id, "preserve_data": false });
    node.task("remove-module", NODE, &data).prints("");
}

/// What the cluster's add-module does: the node takes the ports, then the module is registered.
fn add_module(node: &Node, module_id: &str, tcp: u16, udp: u16) {
    node.add_module(module_id, tcp, udp);
    node.daemon.set_module(module_id, tcp, udp, true);
}

/// What is held, as owner, protocol, start and end; no two overlap.
fn held(node: &Node) -> Vec<(String, String, u16, u16)> {
    let rows = node.daemon.rows();
    for pair in rows.windows(2) {
        assert!(pair[0].1 != pair[1].1 || pair[0].3 < pair[1].2, "{pair:?}");
    }
    rows
}

fn of<'a>(rows: &'a [(String, String, u16, u16)], owner: &str) -> Vec<(&'a str, u16, u16)> {
    let own = rows.iter().filter(|row| row.0 == owner);
    own.map(|(_, protocol, start, end)| (protocol.as_str(), *start, *end)).collect()
}

/// What would be freed for modules that are gone.
fn reclaimable(node: &Node, dry_run: bool) -> Vec<(u64, u64)> {
    let parameters = json!({ "dryRun": dry_run });
    let reply = node.daemon.admin().call(ADMIN, "Reclaim", parameters).unwrap();
    ranges(&reply["freed"])
}

/// What `portsctl check` says about owners.
fn check(node: &Node) -> Vec<String> {
    let mut command = node.command(env!("CARGO_BIN_EXE_portsctl"));
    let state = node.daemon.database();
    let output = command.arg("check").arg("--state-dir").arg(state.parent().unwrap()).output();
    let found = String::from_utf8(output.unwrap().stdout).unwrap();
    found.lines().filter(|line| line.contains("owners")).map(str::to_owned).collect()
}

#[test]
fn modules_with_the_portsadm_role_can_run_allocate_ports_and_deallocate_ports_and_others_cant() {
    let node = Node::start();
    node.daemon.set_module("mail1", 4, 2, true);
    node.daemon.set_module("web1", 4, 2, false);
    let code = "print(agent.allocate_ports(4, 'tcp'), agent.deallocate_ports('tcp'))";
    assert_eq!(stdout(&node.module("mail1", code)), "[20000, 20003] [[20000, 20003]]\n");
    for code in ["agent.allocate_ports(4, 'tcp')", "agent.deallocate_ports('tcp')"] {
        for id in ["web1", "ghost1"] {
            let failed = node.module(id, code);
            assert!(!failed.status.success(), "{failed:?}");
        }
        // nor does the role reach farther than the module
        let code = code.replace("')", "', 'web1')");
        assert!(!node.module("mail1", &code).status.success());
    }
    // a label that was taken away counts from the next call on
    node.daemon.set_module("mail1", 4, 2, false);
    assert!(!node.module("mail1", code).status.success());
    assert_eq!(held(&node), []);
}

#[test]
fn port_ranges_are_allocated_without_conflicts() {
    let node = Node::start();
    for number in 1..=4 {
        node.daemon.set_module(&format!("mail{number}"), 40, 40, true);
    }
    let code = "for count in (1, 7, 3, 12):\n\
                \x20   agent.allocate_ports(count, 'tcp')\n\
                \x20   agent.allocate_ports(count, 'udp', keep_existing=True)\n";
    // at once, with the node adding modules in between
    std::thread::scope(|scope| {
        for number in 1..=4 {
            let node = &node;
            scope.spawn(move || stdout(&node.module(&format!("mail{number}"), code)));
            scope.spawn(move || node.add_module(&format!("web{number}"), 5, 5));
        }
    });
    let rows = held(&node);
    for number in 1..=4 {
        let ports = |owner: &str, protocol: &str| -> u16 {
            let own = of(&rows, owner).into_iter().filter(|row| row.0 == protocol);
            own.map(|(_, start, end)| end - start + 1).sum()
        };
        let (mail, web) = (format!("mail{number}"), format!("web{number}"));
        assert_eq!((ports(&mail, "tcp"), ports(&mail, "udp")), (12, 23), "{rows:?}");
        assert_eq!((ports(&web, "tcp"), ports(&web, "udp")), (5, 5), "{rows:?}");
    }
}

#[test]
fn port_ranges_are_deallocated_and_can_be_allocated_again() {
    let node = Node::start();
    node.daemon.set_module("mail1", 4, 4, true);
    let code = "first = agent.allocate_ports(4, 'tcp')\n\
                assert agent.deallocate_ports('tcp') == [first]\n\
                assert agent.deallocate_ports('tcp') == []\n\
                assert agent.allocate_ports(4, 'tcp') == first\n\
                agent.deallocate_ports('tcp')";
    stdout(&node.module("mail1", code));
    assert_eq!(held(&node), []);
    // by everybody, once nothing else is left
    let all = output(&node.task("allocate-ports", NODE, &ports(25001, "web1", "tcp", false)));
    assert_eq!(all, json!([20000, 45000]));
    let freed = json!({ "module_id": "web1", "protocol": "tcp" });
    assert_eq!(output(&node.task("deallocate-ports", NODE, &freed)), json!([[20000, 45000]]));
    assert_eq!(
        stdout(&node.module("mail1", "print(agent.allocate_ports(4, 'tcp'))")),
        "[20000, 20003]\n"
    );
}

#[test]
fn it_works_with_clone_module() {
    let node = Node::start();
    add_module(&node, "mail1", 4, 1);
    add_module(&node, "mail2", 4, 1);
    let port = rsync_port(&node, "mail2");
    // while it is copied, both live side by side, and both may call
    let rows = held(&node);
    assert_eq!((of(&rows, "mail1").len(), of(&rows, "mail2").len()), (2, 2), "{rows:?}");
    assert_eq!(of(&rows, "mail2_rsync").len(), 1);
    for id in ["mail1", "mail2"] {
        stdout(&node.module(id, "agent.allocate_ports(4, 'tcp')"));
    }
    assert_eq!(held(&node), rows);
    assert_eq!(reclaimable(&node, true), []);
    assert_eq!(release_rsync_port(&node, "mail2"), json!([[port, port]]));
    assert_eq!(held(&node).len(), 4);
}

#[test]
fn it_works_with_clone_module_that_replaces_the_module() {
    let node = Node::start();
    add_module(&node, "mail1", 4, 1);
    add_module(&node, "mail2", 4, 1);
    rsync_port(&node, "mail2");
    let rows = held(&node);
    remove(&node, "mail1");
    let left = held(&node);
    assert_eq!(of(&left, "mail2"), of(&rows, "mail2"));
    assert_eq!(of(&left, "mail1"), []);
    release_rsync_port(&node, "mail2");
    assert_eq!(held(&node).len(), 2);
}

#[test]
fn a_clone_can_keep_the_ports_of_the_module_it_replaces() {
    let node = Node::start();
    add_module(&node, "mail1", 4, 1);
    let before = held(&node);
    add_module(&node, "mail2", 4, 1);
    for protocol in ["tcp", "udp"] {
        let own = json!({ "module_id": "mail2", "protocol": protocol });
        output(&node.task("deallocate-ports", NODE, &own));
    }
    let parameters = json!({ "fromOwner": "mail1", "toOwner": "mail2" });
    node.daemon.admin().call(ADMIN, "Transfer", parameters).unwrap();
    remove(&node, "mail1");
    assert_eq!(of(&held(&node), "mail2"), of(&before, "mail1"));
    // and the module finds them to be its own
    let printed = stdout(&node.module("mail2", "print(agent.allocate_ports(4, 'tcp'))"));
    assert_eq!(printed, "[20000, 20003]\n");
}

#[test]
fn a_clone_that_dies_in_the_middle_leaves_nothing_behind() {
    let node = Node::start();
    add_module(&node, "mail1", 4, 1);
    let before = held(&node);
    // the copy did not get to its end, and the administrator removes the new module
    add_module(&node, "mail2", 4, 1);
    let port = rsync_port(&node, "mail2");
    assert_eq!(rsync_port(&node, "mail2"), port, "a second attempt needs no second port");
    remove(&node, "mail2");
    assert_eq!(held(&node), before);
    // the node died before the new module was registered
    node.add_module("mail3", 4, 1);
    rsync_port(&node, "mail3");
    assert_eq!(reclaimable(&node, true).len(), 3);
    let found = check(&node);
    assert!(found.iter().any(|line| line.contains("mail3 belongs")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("mail3_rsync belongs")), "{found:?}");
    assert_eq!(held(&node).len(), before.len() + 3);
    assert_eq!(reclaimable(&node, false).len(), 3);
    assert_eq!(held(&node), before);
    assert_eq!(check(&node), [""; 0]);
}

#[test]
fn it_works_with_import_module() {
    let node = Node::start();
    add_module(&node, "nethvoice1", 36, 2003);
    let port = rsync_port(&node, "nethvoice1");
    let rows = held(&node);
    assert_eq!(of(&rows, "nethvoice1_rsync").len(), 1);
    // NS8 leaves the helper's port to the removal; nobody else gets it, and it does not go before
    assert_eq!(reclaimable(&node, false), []);
    add_module(&node, "nethvoice2", 36, 2003);
    assert_ne!(rsync_port(&node, "nethvoice2"), port);
    let both = held(&node);
    assert_eq!(of(&both, "nethvoice1_rsync"), of(&rows, "nethvoice1_rsync"));
    remove(&node, "nethvoice1");
    remove(&node, "nethvoice2");
    assert_eq!(held(&node), []);
}
