//! Who may run allocate-ports and deallocate-ports, and what comes of it.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::ns8::{Node, ports, stdout};
use crate::support::redis::Redis;
use crate::support::{ADMIN, Daemon, PORTS};
use crate::{NODE, held, of, output};

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

/// The published modules; some of the 119 are there twice.
fn published() -> Vec<Value> {
    serde_json::from_str(include_str!("../data/modules.json")).unwrap()
}

/// Those of them whose images have the label.
const WITH_PORTSADM: [&str; 8] = [
    "gitea1",
    "grantora1",
    "hermes-agent1",
    "idevice-backup1",
    "ldapproxy1",
    "nethsecurity-controller1",
    "nethvoice1",
    "openvpnui1",
];

/// The modules that are registered, and those of them that have the role.
fn registered(node: &Node) -> (usize, BTreeSet<String>) {
    let listed = node.daemon.admin().call(ADMIN, "ListModules", json!({})).unwrap();
    let modules = listed["modules"].as_array().unwrap();
    let granted = modules.iter().filter(|module| module["portsadm"] == true);
    let id = |module: &Value| module["moduleId"].as_str().unwrap().to_owned();
    (modules.len(), granted.map(id).collect())
}

#[test]
fn a_label_on_the_image_grants_the_role() {
    let node = Node::start();
    for module in published() {
        let id = format!("{}1", module["module"].as_str().unwrap());
        let labels = json!({
            "org.nethserver.authorizations": module["authorizations"],
            "org.nethserver.tcp-ports-demand": module["tcp_ports_demand"],
        });
        // what `podman image inspect` prints
        let image = json!([{ "Labels": without_nulls(labels) }]).to_string();
        let mut command = node.command(env!("CARGO_BIN_EXE_portsctl"));
        command.args(["set-module", &id, "--labels-from", "-"]).stdin(Stdio::piped());
        let mut portsctl = command.spawn().unwrap();
        portsctl.stdin.take().unwrap().write_all(image.as_bytes()).unwrap();
        assert!(portsctl.wait().unwrap().success(), "{id}");
    }
    let expected = (119, WITH_PORTSADM.map(str::to_owned).into());
    assert_eq!(registered(&node), expected);
    // and counts: 1024 is what its image asks for
    stdout(&node.module("ldapproxy1", "assert agent.allocate_ports(1024, 'tcp')[1] == 21023"));
}

fn without_nulls(labels: Value) -> Value {
    let Value::Object(labels) = labels else { panic!("{labels}") };
    labels.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

#[test]
fn a_label_on_the_image_grants_the_role_by_way_of_the_cluster() {
    let redis = Redis::start();
    let node = Node::on(Daemon::with_config(&redis.config()));
    for module in published() {
        let id = format!("{}1", module["module"].as_str().unwrap());
        // as the cluster's add-module takes the label apart
        let roles: Vec<_> =
            module["authorizations"].as_str().unwrap_or_default().split(' ').collect();
        let roles: Vec<_> = roles.into_iter().filter(|role| !role.is_empty()).collect();
        let demand = module["tcp_ports_demand"].as_str().unwrap_or("0");
        redis.module(&id, "1", &roles, demand, "0");
        let call = json!({ "protocol": "tcp", "onBehalfOf": id });
        let _ = node.daemon.admin().call(PORTS, "Deallocate", call);
    }
    let expected = (119, WITH_PORTSADM.map(str::to_owned).into());
    assert_eq!(registered(&node), expected);
}
