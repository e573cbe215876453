//! NS8's own actions on portsd: the installed scripts with the real portsctl and a real service, run
//! as NS8's agent runs them.

#[path = "../support/mod.rs"]
mod support;

mod install;
mod upgrade;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use support::ns8::{Node, ports, stdout};
use support::{Daemon, row};

const MODULE: Option<&str> = Some("module/mail1");
const NODE: Option<&str> = Some("");

fn release(module_id: &str, protocol: &str) -> Value {
    json!({ "module_id": module_id, "protocol": protocol })
}

fn removal(module_id: &str) -> Value {
    json!({ "module_id": module_id, "preserve_data": false })
}

#[test]
fn the_actions_print_what_ns8_prints() {
    // the library names the module; whoever leaves that to the node gets the same
    for id in ["mail1", ""] {
        let node = Node::start();
        node.daemon.set_module("mail1", 8, 4, true);
        let allocate = |data| node.task("allocate-ports", MODULE, &data);
        let deallocate = |data| node.task("deallocate-ports", MODULE, &data);
        allocate(ports(4, id, "tcp", false)).prints("[20000, 20003]");
        allocate(ports(4, id, "tcp", false)).prints("[20000, 20003]");
        allocate(ports(2, id, "tcp", true)).prints("[20004, 20005]");
        allocate(ports(1, id, "udp", false)).prints("[20000, 20000]");
        deallocate(release(id, "tcp")).prints("[[20000, 20003], [20004, 20005]]");
        deallocate(release(id, "tcp")).prints("[]");
        deallocate(release(id, "udp")).prints("[[20000, 20000]]");
    }
}

#[test]
fn what_ns8_accepts_is_accepted() {
    let node = Node::start();
    node.daemon.set_module("mail1", 8, 4, true);
    let mut more = ports(4.0, "mail1", "tcp", false);
    more["comment"] = json!({ "x": [null] });
    node.task("allocate-ports", MODULE, &more).prints("[20000, 20003]");
    // the node itself acts for everybody, registered or not, and no demand counts
    let reply = node.task("allocate-ports", NODE, &ports(20, "web1", "tcp", false));
    reply.prints("[20004, 20023]");
    let reply = node.task("allocate-ports", NODE, &ports(1, "web1_rsync", "tcp", false));
    reply.prints("[20024, 20024]");
    let reply = node.task("deallocate-ports", NODE, &release("web1", "tcp"));
    reply.prints("[[20004, 20023]]");
}

#[test]
fn whoever_may_not_is_refused_in_ns8s_words_and_changes_nothing() {
    let node = Node::start();
    node.daemon.set_module("mail1", 4, 0, true);
    node.daemon.set_module("web1", 4, 0, false);
    node.task("allocate-ports", NODE, &ports(2, "mail1", "tcp", false)).prints("[20000, 20001]");
    node.task("allocate-ports", NODE, &ports(2, "web1", "tcp", false)).prints("[20002, 20003]");
    let before = node.daemon.rows();
    for (user, id) in [
        (Some("module/mail1"), "web1"),
        (Some("module/mail1"), "mail1_rsync"),
        // without the role, and not registered
        (Some("module/web1"), "web1"),
        (Some("module/ghost1"), "ghost1"),
        (Some("admin"), "mail1"),
        (Some("node/1"), "mail1"),
        (Some("mail1"), "mail1"),
        (Some("module/"), ""),
        (None, "mail1"),
    ] {
        for (action, data) in [
            ("allocate-ports", ports(3, id, "tcp", false)),
            ("deallocate-ports", release(id, "tcp")),
        ] {
            let reply = node.task(action, user, &data);
            reply.is_refused(32, "module_id", &json!(id), "module_permission_denied");
        }
        assert_eq!(node.daemon.rows(), before, "{user:?} {id}");
    }
    for (count, protocol, keep) in
        [(5, "tcp", false), (3, "tcp", true), (1, "udp", false), (65536, "tcp", false)]
    {
        let reply = node.task("allocate-ports", MODULE, &ports(count, "mail1", protocol, keep));
        reply.is_refused(33, "ports", &json!(count), "max_ports_exceeded");
        assert_eq!(node.daemon.rows(), before, "{count} {protocol}");
    }
}

#[test]
fn what_is_not_valid_is_a_failed_validation_for_everybody() {
    let node = Node::start();
    node.daemon.set_module("mail1", 4, 0, true);
    for user in [MODULE, NODE, None] {
        for (value, error) in [
            (json!(0), "ports_number_gte"),
            (json!(-4), "ports_number_gte"),
            (json!("4"), "ports_invalid_type"),
            (json!(1.5), "ports_invalid_type"),
        ] {
            let data = ports(value.clone(), "mail1", "tcp", false);
            node.task("allocate-ports", user, &data).is_refused(10, "ports", &value, error);
        }
        let reply = node.task("deallocate-ports", user, &release("mail1", "sctp"));
        reply.is_refused(10, "protocol", &json!("sctp"), "protocol_enum");
        let reply = node.task("deallocate-ports", user, &json!({ "protocol": "tcp" }));
        reply.is_refused(10, "module_id", &json!(null), "module_id_required");
    }
    assert_eq!(node.daemon.rows(), []);
}

#[test]
fn the_descriptor_for_commands_may_be_anything() {
    let node = Node::start();
    for com_fd in ["none", "closed", "deaf", "", "0", "1", "2", "x", "-1", "99", "123456789012"] {
        let task = json!({
            "action": "allocate-ports", "user": null, "com_fd": com_fd,
            "data": ports(1, "mail1", "tcp", false)
        });
        let reply = node.run_task(&task);
        assert_eq!(
            (reply.status.as_str(), reply.exit_code),
            ("aborted", 32),
            "{com_fd}: {reply:?}"
        );
        assert!(reply.output.contains("module_permission_denied"), "{com_fd}: {reply:?}");
        assert_eq!(reply.error.contains("$AGENT_COMFD"), com_fd != "none", "{com_fd}: {reply:?}");
        let mut task = task;
        task["user"] = json!("");
        node.run_task(&task).prints("[20000, 20000]");
    }
}

#[test]
fn every_other_failure_is_a_plain_one() {
    let mut node = Node::on(Daemon::with_config("[pool]\nstart = 20000\nend = 20009\n"));
    let allocate = |node: &Node, count: u32| {
        node.task("allocate-ports", NODE, &ports(count, "web1", "tcp", false))
    };
    allocate(&node, 11).fails(&["no room", "10"]);
    allocate(&node, 65536).fails(&["65536", "more than there are"]);
    for (text, words) in [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("{} {}", "no JSON"),
        (&format!("{{\"x\": \"{}\"}}", "y".repeat(70_000)), "65536 bytes"),
    ] {
        let task = json!({ "action": "allocate-ports", "user": "", "text": text });
        node.run_task(&task).fails(&[words]);
    }
    let endless = node
        .command(node.directory().join("actions/allocate-ports/50allocate"))
        .stdin(fs::File::open("/dev/zero").unwrap())
        .output()
        .unwrap();
    assert_eq!(endless.status.code(), Some(1), "{endless:?}");
    node.daemon.kill();
    allocate(&node, 1).fails(&["nobody listens"]);
    let reply = node.task("deallocate-ports", NODE, &release("web1", "tcp"));
    reply.fails(&["nobody listens"]);
}

/// What NS8 has as the steps before ours: the first prints the action's whole result.
fn add_step_of_ns8(node: &Node) {
    let step = node.directory().join("actions/remove-module/50update");
    fs::write(&step, "#!/bin/sh\nprintf '{}\\n'\n").unwrap();
    fs::set_permissions(&step, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_removal_frees_the_module_and_its_helpers_and_adds_nothing_to_the_result() {
    let node = Node::start();
    add_step_of_ns8(&node);
    node.daemon.set_module("mail1", 4, 4, true);
    node.daemon.set_module("mail2", 4, 0, true);
    for (id, protocol) in [
        ("mail1", "tcp"),
        ("mail1", "udp"),
        ("mail1_rsync", "tcp"),
        ("mail1_rsync", "udp"),
        ("mail2", "tcp"),
    ] {
        let reply = node.task("allocate-ports", NODE, &ports(2, id, protocol, false));
        assert_eq!(reply.exit_code, 0, "{reply:?}");
    }
    // an administrator may do it from the user interface, which names him
    let reply = node.task("remove-module", Some("admin"), &removal("mail1"));
    reply.prints("{}\n");
    assert_eq!(node.daemon.rows(), [row("mail2", "tcp", 20004, 20005)]);
    node.task("remove-module", NODE, &removal("mail1")).prints("{}\n");
    node.task("remove-module", NODE, &removal("never1")).prints("{}\n");
}

#[test]
fn a_removal_that_cant_free_anything_is_a_removal_all_the_same() {
    let mut node = Node::start();
    add_step_of_ns8(&node);
    node.task("allocate-ports", NODE, &ports(2, "mail1", "tcp", false)).prints("[20000, 20001]");
    for data in [json!({}), json!(null), removal("../x")] {
        let reply = node.task("remove-module", NODE, &data);
        reply.prints("{}\n");
        assert!(reply.error.contains("<4>portsd: "), "{reply:?}");
    }
    node.daemon.kill();
    let reply = node.task("remove-module", NODE, &removal("mail1"));
    reply.prints("{}\n");
    assert!(reply.error.contains("nobody listens"), "{reply:?}");
    assert!(reply.error.contains("`portsctl remove-module ID`"), "{reply:?}");
    node.daemon.restart();
    assert_eq!(node.daemon.rows(), [row("mail1", "tcp", 20000, 20001)]);
    node.task("remove-module", NODE, &removal("mail1")).prints("{}\n");
    assert_eq!(node.daemon.rows(), []);
}

/// A step of a module that knows nothing of portsd.
const STEP: &str = r#"
start, end = agent.allocate_ports(4, "tcp")
assert end - start == 3
assert agent.allocate_ports(4, "tcp") == [start, end]
more = agent.allocate_ports(2, "tcp", keep_existing=True)
assert agent.allocate_ports(1, "udp", "mail1") == [20000, 20000]
print(start, end, more)
try:
    agent.allocate_ports(100, "tcp")
except Exception as ex:
    assert "100 requested" in str(ex), ex
try:
    agent.deallocate_ports("tcp", "web1")
except Exception as ex:
    assert "web1" in str(ex), ex
print(agent.deallocate_ports("udp"), agent.deallocate_ports("tcp"), agent.deallocate_ports("tcp"))
"#;

#[test]
fn a_modules_code_goes_on_unchanged() {
    let node = Node::start();
    node.daemon.set_module("mail1", 8, 4, true);
    let printed = stdout(&node.module("mail1", STEP));
    let expected =
        "20000 20003 [20004, 20005]\n[[20000, 20000]] [[20000, 20003], [20004, 20005]] []\n";
    assert_eq!(printed, expected);
    assert_eq!(node.daemon.rows(), []);
}

#[test]
fn the_nodes_add_module_takes_ports_from_portsd_too() {
    let mut node = Node::start();
    // NS8's own, in a directory that Python looks into later; other modules there are still found
    let ns8 = node.tree().join("usr/local/agent/pypkg");
    fs::create_dir_all(ns8.join("node")).unwrap();
    fs::write(ns8.join("node/ports_manager.py"), "raise Exception('NS8 allocates')").unwrap();
    fs::write(ns8.join("node/other.py"), "name = 'other'").unwrap();
    let python = |node: &Node, code: &str| {
        let path = node.directory().join("pypkg");
        let mut command = node.command("python3");
        command.env("PYTHONPATH", format!("{}:{}", path.display(), ns8.display()));
        command.args(["-c", code]).output().unwrap()
    };
    let code = "import node.ports_manager as ports, node.other as other\n\
                print(other.name, ports.allocate_ports(4, 'web1', 'tcp'))\n\
                print(ports.allocate_ports(2, 'web1', 'tcp', True))\n\
                print(ports.get_tcp_ports_by_module('web1'), ports.get_udp_ports_by_module('web1'))\n\
                print(ports.deallocate_ports('web1', 'tcp'), ports.deallocate_ports('web1', 'udp'))\n";
    let expected = "other (20000, 20003)\n(20004, 20005)\n6 0\n\
                    [(20000, 20003), (20004, 20005)] []\n";
    assert_eq!(stdout(&python(&node, code)), expected);
    let errors = "import node.ports_manager as ports\n\
                  for count, kind in (0, ports.InvalidPortRequestError), (-1, ports.InvalidPortRequestError), \
                  (30000, ports.PortRangeExceededError):\n\
                  \x20   try: ports.allocate_ports(count, 'web1', 'tcp')\n\
                  \x20   except kind: pass\n\
                  \x20   else: raise SystemExit(count)\n";
    stdout(&python(&node, errors));
    assert_eq!(node.daemon.rows(), []);
    node.daemon.kill();
    let down = "import node.ports_manager as ports\n\
                try: ports.allocate_ports(1, 'web1', 'tcp')\n\
                except ports.StorageError as error: print(error)\n\
                try: ports.write_range(1, 1, 'web1', 'tcp')\n\
                except ports.PortError as error: print(error)\n";
    let said = stdout(&python(&node, down));
    assert!(said.contains("nobody listens") && said.contains("portsctl import"), "{said}");
}
