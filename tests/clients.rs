//! Clients that others wrote: curl, the varlink package of PyPI, systemd's varlinkctl.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::{Daemon, M1, PORTS};

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Whether there is such a program; says so where there is none.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("left out: there is no {program} here");
    }
    found
}

#[test]
fn root_curl_as_a_module_uses_it() {
    if !support::is_root() {
        return;
    }
    let daemon = Daemon::start();
    daemon.set_module("m1", 4, 0, true);
    let body =
        r#"{"jsonrpc":"2.0","id":1,"method":"allocate","params":{"ports":4,"protocol":"tcp"}}"#;
    let output = output(
        Command::new("setpriv")
            .args([&format!("--reuid={M1}"), "--clear-groups", "curl", "--silent"])
            .arg("--unix-socket")
            .arg(daemon.path("jsonrpc"))
            .args(["-d", body, "-H", "content-type: application/json", "http://localhost/"]),
    );
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["result"], json!({ "range": { "start": 20000, "end": 20003 } }));
}

#[test]
fn the_varlink_package_of_pypi_works() {
    let Some(python) = std::env::var_os("PORTSD_TEST_PYTHON") else {
        eprintln!("left out: PORTSD_TEST_PYTHON names no Python that has the varlink package");
        return;
    };
    let daemon = Daemon::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/varlink_client.py");
    let output =
        output(Command::new(python).arg(script).arg(daemon.path("admin-varlink")).arg("mail1"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "20000-20003\n");
    assert_eq!(daemon.rows(), [("mail1".into(), "udp".into(), 20000, 20000)]);
}

#[test]
fn varlinkctl_works() {
    if !has("varlinkctl") {
        return;
    }
    let daemon = Daemon::start();
    let socket = daemon.path("admin-varlink");
    let varlinkctl = |arguments: &[&str]| {
        let (verb, rest) = arguments.split_first().unwrap();
        let output = output(Command::new("varlinkctl").arg(verb).arg(&socket).args(rest));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(varlinkctl(&["info"]).contains("portsd"));
    assert!(varlinkctl(&["introspect", PORTS]).contains("method Allocate"));
    let parameters = r#"{"ports":4,"protocol":"tcp","owner":"mail1"}"#;
    let reply = varlinkctl(&["call", "-j", "org.nethserver.Ports.Allocate", parameters]);
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!(reply, json!({ "range": { "start": 20000, "end": 20003 } }));
    for description in ["org.nethserver.Ports.varlink", "org.nethserver.Ports.Admin.varlink"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol").join(description);
        output(Command::new("varlinkctl").arg("validate-idl").arg(path));
    }
}
