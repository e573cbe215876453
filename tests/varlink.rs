//! varlink at its edges: what is malformed, unknown, pipelined, unanswered or never read.

mod support;

use std::io::Write;
use std::net::Shutdown;

use serde_json::{Value, json};
use support::varlink::{Client, result};
use support::{ADMIN, Daemon, PORTS, Refusal, read_all};

const SERVICE: &str = "org.varlink.service";

fn invalid(parameter: &str) -> Refusal {
    Refusal::new("InvalidParameter", json!({ "parameter": parameter }))
}

fn allocate(owner: &str, ports: u16) -> Value {
    json!({
        "method": format!("{PORTS}.Allocate"),
        "parameters": { "ports": ports, "protocol": "tcp", "owner": owner }
    })
}

fn listed(client: &mut Client) -> usize {
    let reply = client.call(PORTS, "List", json!({})).unwrap();
    reply["allocations"].as_array().unwrap().len()
}

#[test]
fn a_service_describes_itself_and_what_its_socket_offers() {
    let daemon = Daemon::start();
    for (name, interfaces) in
        [("varlink", vec![SERVICE, PORTS]), ("admin-varlink", vec![SERVICE, PORTS, ADMIN])]
    {
        let mut client = Client::connect(&daemon.path(name));
        let info = client.call(SERVICE, "GetInfo", json!({})).unwrap();
        assert_eq!(info["interfaces"], json!(interfaces));
        assert_eq!(info["product"], "portsd");
        assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
        for interface in interfaces {
            let parameters = json!({ "interface": interface });
            let reply = client.call(SERVICE, "GetInterfaceDescription", parameters).unwrap();
            let text = reply["description"].as_str().unwrap();
            let parsed = zlink_idl::Interface::try_from(text).unwrap();
            assert_eq!(parsed.name().to_string(), interface);
        }
        for interface in ["org.nethserver.Nothing", ""] {
            let parameters = json!({ "interface": interface });
            let refusal = client.call(SERVICE, "GetInterfaceDescription", parameters.clone());
            assert_eq!(refusal, Err(Refusal::new("InterfaceNotFound", parameters)));
        }
        let refusal = client.call(SERVICE, "GetInterfaceDescription", json!({}));
        assert_eq!(refusal, Err(invalid("interface")));
        let refusal = client.call(SERVICE, "GetInfo", json!({ "x": 1 }));
        assert_eq!(refusal, Err(invalid("x")));
    }
}

#[test]
fn the_admin_interface_does_not_exist_on_a_module_socket() {
    let daemon = Daemon::start();
    let mut client = Client::connect(&daemon.path("varlink"));
    let missing = Err(Refusal::new("InterfaceNotFound", json!({ "interface": ADMIN })));
    assert_eq!(client.call(ADMIN, "ListModules", json!({})), missing);
    let parameters = json!({ "interface": ADMIN });
    assert_eq!(client.call(SERVICE, "GetInterfaceDescription", parameters), missing);
}

#[test]
fn what_is_not_there_is_said_by_name() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    for (method, condition, fields) in [
        ("org.nethserver.Ports.Nope", "MethodNotFound", "method"),
        ("org.nethserver.Ports.allocate", "MethodNotFound", "method"),
        ("org.nethserver.Ports.SetModule", "MethodNotFound", "method"),
        ("org.nethserver.Ports.Admin.Allocate", "MethodNotFound", "method"),
        ("org.varlink.service.Nope", "MethodNotFound", "method"),
    ] {
        let reply = client.exchange(&json!({ "method": method }));
        assert_eq!(result(&reply), Err(Refusal::new(condition, json!({ fields: method }))));
    }
    for (method, interface) in
        [("a.b.C", "a.b"), ("org.nethserver.ports.List", "org.nethserver.ports")]
    {
        let reply = client.exchange(&json!({ "method": method }));
        let fields = json!({ "interface": interface });
        assert_eq!(result(&reply), Err(Refusal::new("InterfaceNotFound", fields)));
    }
}

#[test]
fn a_message_that_is_no_call_is_answered_and_the_connection_goes_on() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let method = "org.nethserver.Ports.WhoAmI";
    for (message, named) in [
        (String::new(), "message"),
        ("rubbish".to_owned(), "message"),
        ("{".to_owned(), "message"),
        ("\u{feff}{}".to_owned(), "message"),
        (format!(r#"{{"method":"{method}"}} x"#), "message"),
        ("{}".to_owned(), "method"),
        (r#"{"method":1}"#.to_owned(), "method"),
        (r#"{"method":null}"#.to_owned(), "method"),
        (r#"{"method":"List"}"#.to_owned(), "method"),
        (format!(r#"{{"method":"{method}","more":1}}"#), "more"),
        (format!(r#"{{"method":"{method}","oneway":"true"}}"#), "oneway"),
        (format!(r#"{{"method":"{method}","upgrade":true}}"#), "upgrade"),
        (format!(r#"{{"method":"{method}","extra":true}}"#), "extra"),
        (format!(r#"{{"method":"{method}","method":"{method}"}}"#), "method"),
        (format!(r#"{{"method":"{method}","parameters":[]}}"#), "parameters"),
        (format!(r#"{{"method":"{method}","parameters":4}}"#), "parameters"),
    ] {
        client.send_raw(message.as_bytes());
        let reply = client.receive().unwrap();
        assert_eq!(result(&reply), Err(invalid(named)), "{message}");
    }
    client.send_raw(b"{\"method\":\"\xff\"}");
    assert_eq!(result(&client.receive().unwrap()), Err(invalid("message")));
    for message in ["[]", "1", "null", "\"x\""] {
        client.send_raw(message.as_bytes());
        assert!(result(&client.receive().unwrap()).is_err(), "{message}");
    }
    assert!(client.call(PORTS, "WhoAmI", json!({})).is_ok());
}

#[test]
fn a_bad_parameter_is_named_and_changes_nothing() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    for (parameters, named) in [
        (r#"{"ports":4,"protocol":"tcp","owner":"a","keep_existing":true}"#, "keep_existing"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a","keepExisiting":true}"#, "keepExisiting"),
        (r#"{"prots":4,"protocol":"tcp","owner":"a"}"#, "prots"),
        (r#"{"Ports":4,"protocol":"tcp","owner":"a"}"#, "Ports"),
        (r#"{"protocol":"tcp","owner":"a"}"#, "ports"),
        (r#"{"ports":4,"owner":"a"}"#, "protocol"),
        (r#"{"ports":4,"ports":4,"protocol":"tcp","owner":"a"}"#, "ports"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a","keepExisting":1}"#, "keepExisting"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a","keepExisting":"true"}"#, "keepExisting"),
        (r#"{"ports":4,"protocol":"TCP","owner":"a"}"#, "protocol"),
        (r#"{"ports":4,"protocol":"Tcp","owner":"a"}"#, "protocol"),
        (r#"{"ports":4,"protocol":"sctp","owner":"a"}"#, "protocol"),
        (r#"{"ports":4,"protocol":"","owner":"a"}"#, "protocol"),
        (r#"{"ports":4,"protocol":null,"owner":"a"}"#, "protocol"),
        (r#"{"ports":4,"protocol":"tcp","owner":""}"#, "owner"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a/b"}"#, "owner"),
        (r#"{"ports":4,"protocol":"tcp","owner":"host/"}"#, "owner"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a\u0000b"}"#, "owner"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a\nb"}"#, "owner"),
        (r#"{"ports":4,"protocol":"tcp","owner":"\ud800"}"#, "owner"),
        (r#"{"ports":4,"protocol":"tcp","owner":4}"#, "owner"),
        (r#"{"ports":4,"protocol":"tcp","onBehalfOf":"host/x"}"#, "onBehalfOf"),
        (r#"{"ports":4,"protocol":"tcp"}"#, "owner"),
    ] {
        client.send_raw(
            format!(r#"{{"method":"{PORTS}.Allocate","parameters":{parameters}}}"#).as_bytes(),
        );
        let reply = client.receive().unwrap();
        assert_eq!(result(&reply), Err(invalid(named)), "{parameters}");
    }
    for number in [
        "0",
        "-0",
        "-1",
        "1e3",
        "4.0",
        "\"4\"",
        "65536",
        "2147483648",
        "9007199254740993",
        "9223372036854775808",
        "18446744073709551616",
        "1e400",
        "true",
        "[4]",
        "{}",
        "null",
    ] {
        let message = format!(
            r#"{{"method":"{PORTS}.Allocate","parameters":{{"ports":{number},"protocol":"tcp","owner":"a"}}}}"#
        );
        client.send_raw(message.as_bytes());
        let reply = client.receive().unwrap();
        assert_eq!(result(&reply), Err(invalid("ports")), "{number}");
    }
    for (count, named) in [(25002, 25001), (65535, 25001)] {
        let fields = json!({ "protocol": "tcp", "requested": count, "largestFree": named });
        let reply = client.exchange(&allocate("a", count));
        assert_eq!(result(&reply), Err(Refusal::new("PoolExhausted", fields)));
    }
    assert_eq!(listed(&mut client), 0);
    assert_eq!(daemon.rows(), []);
}

#[test]
fn an_escaped_name_is_the_plain_name() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    client.send_raw(
        format!(
            r#"{{"method":"{PORTS}.Allocate","parameters":{{"p\u006frts":1,"protocol":"tcp","owner":"\u006d1"}}}}"#
        )
        .as_bytes(),
    );
    assert!(result(&client.receive().unwrap()).is_ok());
    assert_eq!(daemon.rows(), [("m1".into(), "tcp".into(), 20000, 20000)]);
}

#[test]
fn malformed_module_entries_are_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let label = |name: &str, value: Value| json!({ "moduleId": "m1", "labels": { name: value } });
    let tcp = "org.nethserver.tcp-ports-demand";
    let authorizations = "org.nethserver.authorizations";
    for (parameters, named) in [
        (json!({ "moduleId": "m1" }), "labels"),
        (json!({ "labels": {} }), "moduleId"),
        (json!({ "moduleId": "m/1", "labels": {} }), "moduleId"),
        (json!({ "moduleId": "host/x", "labels": {} }), "moduleId"),
        (json!({ "moduleId": "m1", "unixUser": "a b", "labels": {} }), "unixUser"),
        (json!({ "moduleId": "m1", "labels": [] }), "labels"),
        (label(tcp, json!(4)), "labels"),
        (label(tcp, json!("many")), "labels"),
        (label(tcp, json!("65536")), "labels"),
        (label(tcp, json!("-1")), "labels"),
        (label(authorizations, json!("portsadm")), "labels"),
        (label(authorizations, json!("node:fwadm portsadm")), "labels"),
        (label("org.other", json!(null)), "labels"),
    ] {
        let refusal = client.call(ADMIN, "SetModule", parameters.clone());
        assert_eq!(refusal, Err(invalid(named)), "{parameters}");
    }
    client.send_raw(
        format!(r#"{{"method":"{ADMIN}.SetModule","parameters":{{"moduleId":"m1","labels":{{"a":"1","a":"2"}}}}}}"#)
            .as_bytes(),
    );
    assert_eq!(result(&client.receive().unwrap()), Err(invalid("labels")));
    client.call(ADMIN, "SetModule", json!({ "moduleId": "m1", "labels": {} })).unwrap();
    let taken = json!({ "moduleId": "m2", "unixUser": "m1", "labels": {} });
    assert_eq!(client.call(ADMIN, "SetModule", taken), Err(invalid("unixUser")));
    let modules = client.call(ADMIN, "ListModules", json!({})).unwrap();
    assert_eq!(
        modules["modules"],
        json!([{
            "moduleId": "m1", "unixUser": "m1", "portsadm": false,
            "tcpPortsDemand": 0, "udpPortsDemand": 0, "stale": false
        }])
    );
}

#[test]
fn a_oneway_call_is_carried_out_and_never_answered() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let oneway = |mut call: Value| {
        call["oneway"] = json!(true);
        call
    };
    client.send(&oneway(allocate("a", 4)));
    client.send(&oneway(allocate("a", 65535)));
    client.send(&oneway(json!({ "method": format!("{PORTS}.Allocate"), "parameters": {"x": 1} })));
    client.send(&oneway(json!({ "method": "no.such.Method" })));
    client.send(&oneway(json!({ "method": format!("{PORTS}.WhoAmI"), "extra": 1 })));
    client.send(&oneway(json!({ "method": format!("{PORTS}.WhoAmI"), "upgrade": true })));
    let reply = client.exchange(&json!({ "method": format!("{PORTS}.List") }));
    assert_eq!(support::ranges(&reply["parameters"]["allocations"]), [(20000, 20003)]);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.receive(), None);
}

#[test]
fn a_wish_for_more_replies_is_met_with_the_one_there_is() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let call = json!({ "method": format!("{PORTS}.WhoAmI"), "more": true });
    let reply = client.exchange(&call);
    assert!(matches!(reply.get("continues"), None | Some(Value::Bool(false))));
    assert!(client.call(PORTS, "WhoAmI", json!({})).is_ok());
}

#[test]
fn pipelined_calls_are_answered_in_order() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    let mut bytes = Vec::new();
    for n in 1..=200 {
        bytes.extend(allocate(&format!("o{n}"), n).to_string().into_bytes());
        bytes.push(0);
    }
    // in pieces that have nothing to do with the messages
    for piece in bytes.chunks(77) {
        client.stream.write_all(piece).unwrap();
    }
    for n in 1..=200u64 {
        let range = &client.receive().unwrap()["parameters"]["range"];
        assert_eq!(range["end"].as_u64().unwrap() - range["start"].as_u64().unwrap() + 1, n);
    }
}

#[test]
fn a_client_may_close_its_sending_side_before_it_reads() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    client.send(&allocate("a", 1));
    client.send(&allocate("b", 1));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let replies = read_all(&mut client.stream);
    assert_eq!(replies.split(|byte| *byte == 0).filter(|reply| !reply.is_empty()).count(), 2);
}

#[test]
fn a_message_that_is_too_long_is_refused_and_ends_the_connection() {
    let daemon = Daemon::start();
    let mut client = Client::connect(&daemon.path("varlink"));
    let call = |padding: usize| {
        let call = format!(r#"{{"method":"{PORTS}.WhoAmI"}}"#);
        format!("{call}{}", " ".repeat(padding - call.len()))
    };
    client.send_raw(call(64 * 1024).as_bytes());
    assert!(result(&client.receive().unwrap()).is_ok());
    // the other end may hang up before all of it is written
    let _ = client.stream.write_all(call(64 * 1024 + 1).as_bytes());
    let _ = client.stream.write_all(b"\0");
    assert_eq!(result(&client.receive().unwrap()), Err(invalid("message")));
    assert_eq!(client.receive(), None);
    let mut admin = daemon.admin();
    admin.send_raw(call(1024 * 1024).as_bytes());
    assert!(result(&admin.receive().unwrap()).is_ok());
}

#[test]
fn deep_nesting_harms_nobody() {
    let daemon = Daemon::start();
    let mut other = daemon.admin();
    let mut client = daemon.admin();
    for depth in [200, 5_000, 1_000_000] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        for message in [
            format!(r#"{{"method":"{PORTS}.List","parameters":{{"owner":{open}{close}}}}}"#),
            format!(r#"{{"method":"{PORTS}.List","parameters":{open}{close}}}"#),
            format!(r#"{{"method":"{PORTS}.List","x":{open}{close}}}"#),
            format!(r#"{{"method":{open}{close}}}"#),
            open.clone(),
            "{\"a\":".repeat(depth),
        ] {
            client.send_raw(message.as_bytes());
            assert!(result(&client.receive().unwrap()).is_err());
        }
    }
    assert!(other.call(PORTS, "WhoAmI", json!({})).is_ok());
}

#[test]
fn bad_messages_of_one_client_leave_the_others_alone() {
    let daemon = Daemon::start();
    let mut others: Vec<_> = (0..3).map(|_| daemon.admin()).collect();
    let mut client = daemon.admin();
    for n in 0..1000 {
        client.send_raw(format!("bad {n}").as_bytes());
        assert!(result(&client.receive().unwrap()).is_err());
    }
    for other in &mut others {
        assert!(other.call(PORTS, "WhoAmI", json!({})).is_ok());
    }
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_and_is_hung_up_on() {
    let daemon = Daemon::with_config("[limits]\nunread_reply = 1\n");
    let mut greedy = daemon.admin();
    let mut other = daemon.admin();
    for n in 0..200 {
        other.exchange(&allocate(&format!("o{n}"), 1));
    }
    greedy.stream.set_write_timeout(Some(support::PATIENCE)).unwrap();
    let call = json!({ "method": format!("{PORTS}.List") }).to_string();
    let mut sent = 0;
    // bounded: once its replies fill the socket, the daemon neither reads nor waits for ever
    while sent < 100_000 && greedy.stream.write_all(&[call.as_bytes(), b"\0"].concat()).is_ok() {
        sent += 1;
        if sent % 1000 == 0 {
            assert!(other.call(PORTS, "WhoAmI", json!({})).is_ok());
        }
    }
    assert!(sent < 100_000, "the daemon took everything");
    assert!(other.call(PORTS, "WhoAmI", json!({})).is_ok());
}

#[test]
fn unfinished_and_silent_connections_end() {
    let daemon =
        Daemon::with_config("[limits]\nunfinished_message = 1\nidle_connection = \"2s\"\n");
    let mut unfinished = daemon.admin();
    unfinished.stream.write_all(b"{\"method\":").unwrap();
    // one that has begun in the same breath as a whole one counts as well
    let mut half = daemon.admin();
    half.send_raw(format!(r#"{{"method":"{PORTS}.WhoAmI"}}"#).as_bytes());
    half.stream.write_all(b"{\"meth").unwrap();
    assert!(half.receive().is_some());
    let mut silent = daemon.admin();
    let mut answered = daemon.admin();
    answered.call(PORTS, "WhoAmI", json!({})).unwrap();
    for client in [&mut unfinished, &mut half, &mut silent, &mut answered] {
        assert_eq!(client.receive(), None);
    }
}

#[test]
fn a_user_has_so_many_connections_and_no_more() {
    let daemon = Daemon::with_config("[limits]\nconnections = 5\nconnections_per_uid = 3\n");
    let connect = || daemon.admin();
    let works = |client: &mut Client| {
        // a connection without a place is closed, at once or under the first call
        let call = json!({ "method": format!("{PORTS}.WhoAmI") }).to_string() + "\0";
        client.stream.write_all(call.as_bytes()).is_ok() && client.receive().is_some()
    };
    // whoever looked whether the daemon is there has gone by then
    let mut held = support::wait_for("three places", || {
        let mut held: Vec<_> = (0..3).map(|_| connect()).collect();
        held.iter_mut().all(works).then_some(held)
    });
    for _ in 0..10 {
        assert!(!works(&mut connect()));
    }
    // the module sockets have places of their own
    let mut module = Client::connect(&daemon.path("varlink"));
    assert!(works(&mut module));
    held.pop();
    let again = support::wait_for("a place", || {
        let mut client = connect();
        works(&mut client).then_some(client)
    });
    assert!(held.iter_mut().all(works));
    drop(again);
}
