//! The flows that move modules: clone-module and import-module take a port for a helper.

use serde_json::{Value, json};

use crate::support::ns8::{Node, ports, stdout};
use crate::support::{ADMIN, ranges};
use crate::{NODE, held, of, output};

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
fn a_clone_that_has_ports_already_keeps_those_that_it_is_given() {
    let node = Node::start();
    // of the one that has the lower numbers, and of the one that has the higher ones
    for (from, to, start) in [("mail2", "mail1", 20004), ("mail3", "mail4", 20008)] {
        add_module(&node, from.min(to), 4, 0);
        add_module(&node, from.max(to), 4, 0);
        let older = "UPDATE allocations SET allocated_at = allocated_at - 3600 WHERE owner = ?1";
        let database = rusqlite::Connection::open(node.daemon.database()).unwrap();
        assert_eq!(database.execute(older, [from]).unwrap(), 1);
        let parameters = json!({ "fromOwner": from, "toOwner": to });
        node.daemon.admin().call(ADMIN, "Transfer", parameters).unwrap();
        let mut command = node.command(env!("CARGO_BIN_EXE_portsctl"));
        let variables = stdout(&command.args(["env", "--owner", to]).output().unwrap());
        assert!(
            variables.contains(&format!("TCP_PORTS_RANGE={start}-{}\n", start + 3)),
            "{variables}"
        );
        let printed = stdout(&node.module(to, "print(agent.allocate_ports(4, 'tcp'))"));
        assert_eq!(printed, format!("[{start}, {}]\n", start + 3));
        assert_eq!(of(&held(&node), to), [("tcp", start, start + 3)]);
    }
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
