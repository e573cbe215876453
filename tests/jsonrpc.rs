//! JSON-RPC and HTTP at their edges.

mod support;

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use support::jsonrpc::Client;
use support::{Daemon, read_all};

fn admin(daemon: &Daemon) -> Client {
    Client::connect(&daemon.path("admin-jsonrpc"))
}

fn rows(daemon: &Daemon) -> usize {
    daemon.rows().len()
}

/// A call that would give `owner` a port.
fn allocate(owner: &str, id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"allocate","params":{{"ports":1,"protocol":"tcp","owner":"{owner}"}}}}"#
    )
}

fn code(reply: &Value) -> i64 {
    reply["error"]["code"].as_i64().unwrap()
}

#[test]
fn parameters_are_refused_by_name_and_change_nothing() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    for (params, named) in [
        (r#"{"ports":4,"protocol":"tcp","owner":"a","keepExisting":true}"#, "keepExisting"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a","keep_exisiting":true}"#, "keep_exisiting"),
        (r#"{"prots":4,"protocol":"tcp","owner":"a"}"#, "prots"),
        (r#"{"protocol":"tcp","owner":"a"}"#, "ports"),
        (r#"{"ports":4,"ports":4,"protocol":"tcp","owner":"a"}"#, "ports"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a","keep_existing":"yes"}"#, "keep_existing"),
        (r#"{"ports":4,"protocol":"tcp","on_behalf_of":"a b"}"#, "on_behalf_of"),
        (r#"{"ports":4,"protocol":"tcp"}"#, "owner"),
        (r#"{"ports":4.0,"protocol":"tcp","owner":"a"}"#, "ports"),
        (r#"{"ports":"4","protocol":"tcp","owner":"a"}"#, "ports"),
        (r#"{"ports":1e400,"protocol":"tcp","owner":"a"}"#, "ports"),
        (r#"{"ports":4,"protocol":"tcp","owner":"a\u0000b"}"#, "owner"),
        (r#"[4,"tcp"]"#, "params"),
        ("4", "params"),
        (r#""x""#, "params"),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"allocate","params":{params}}}"#);
        let reply = client.post(body.as_bytes()).json();
        assert_eq!(
            reply["error"],
            json!({
                "code": -32602,
                "message": "InvalidParameter",
                "data": { "error": "InvalidParameter", "parameter": named }
            }),
            "{params}"
        );
    }
    let taken = json!({ "module_id": "m1", "unix_user": "x", "labels": {} });
    client.call("set_module", taken).unwrap();
    let again = json!({ "module_id": "m2", "unix_user": "x", "labels": {} });
    let (_, data) = client.call("set_module", again).unwrap_err();
    assert_eq!(data["parameter"], "unix_user");
    assert_eq!(rows(&daemon), 0);
}

#[test]
fn ids_come_back_as_they_were() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    let long = format!("\"{}\"", "x".repeat(60_000));
    for id in ["null", "0", "1", "9007199254740993", "9223372036854775808", "\"a\"", "\"\"", &long]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"who_am_i"}}"#);
        let response = client.post(body.as_bytes());
        assert!(response.body.contains(&format!(r#""id":{id}"#)), "{}", response.body);
        assert!(response.json().get("result").is_some());
    }
}

#[test]
fn a_call_whose_id_cant_be_answered_is_refused_and_changes_nothing() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    for id in ["-1", "1.5", "1e2", "true", "{}", "[]", "18446744073709551616"] {
        let reply = client.post(allocate("a", id).as_bytes()).json();
        assert_eq!((code(&reply), &reply["id"]), (-32600, &Value::Null), "{id}");
        let batch = format!("[{},{}]", allocate("a", id), allocate("b", "7"));
        let replies = client.post(batch.as_bytes()).json();
        assert_eq!(code(&replies[0]), -32600);
        assert_eq!(replies[1]["id"], 7);
    }
    let owners: Vec<_> = daemon.rows().into_iter().map(|row| row.0).collect();
    assert_eq!(owners, ["b"]);
}

#[test]
fn a_notification_changes_nothing_and_is_not_answered() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    let notification = r#"{"jsonrpc":"2.0","method":"allocate","params":{"ports":1,"protocol":"tcp","owner":"a"}}"#;
    for body in [notification.to_owned(), format!("[{notification},{notification}]")] {
        let response = client.post(body.as_bytes());
        assert_eq!((response.status, response.body.as_str()), (204, ""));
    }
    let mixed = format!("[{notification},{}]", allocate("b", "1"));
    let replies = client.post(mixed.as_bytes()).json();
    assert_eq!(replies.as_array().unwrap().len(), 1);
    assert_eq!(daemon.rows(), [("b".into(), "tcp".into(), 20000, 20000)]);
}

#[test]
fn what_is_no_call_is_an_invalid_request_with_its_id() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    for (body, id) in [
        (r#"{"id":7,"method":"who_am_i"}"#, json!(7)),
        (r#"{"jsonrpc":"1.0","id":7,"method":"who_am_i"}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":"x","method":1}"#, json!("x")),
        (r#"{"jsonrpc":"2.0","id":7}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"who_am_i"}"#, Value::Null),
        (r#"{"method":"who_am_i"}"#, Value::Null),
        ("{}", Value::Null),
        ("1", Value::Null),
        ("\"x\"", Value::Null),
        ("[]", Value::Null),
    ] {
        let response = client.post(body.as_bytes());
        let reply = response.json();
        assert_eq!((response.status, code(&reply), &reply["id"]), (200, -32600, &id), "{body}");
    }
    let replies = client.post(br#"[1,[],{},{"jsonrpc":"2.0","id":3,"method":"who_am_i"}]"#).json();
    let replies = replies.as_array().unwrap();
    assert_eq!(replies.len(), 4);
    assert!(replies[..3].iter().all(|reply| code(reply) == -32600 && reply["id"].is_null()));
    assert!(replies[3].get("result").is_some());
}

#[test]
fn what_is_no_json_is_a_parse_error() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    let call = allocate("a", "1");
    for body in [
        Vec::new(),
        b"{".to_vec(),
        b"[1".to_vec(),
        b"rubbish".to_vec(),
        format!("\u{feff}{call}").into_bytes(),
        format!("{call}\0{call}").into_bytes(),
        format!("{call} x").into_bytes(),
        format!("[{call},").into_bytes(),
        b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"who_am_i\"}".to_vec(),
    ] {
        let response = client.post(&body);
        let reply = response.json();
        assert_eq!((response.status, code(&reply), &reply["id"]), (200, -32700, &Value::Null));
    }
    let blanks = format!("{}{call}", " ".repeat(200));
    assert!(client.post(blanks.as_bytes()).json().get("result").is_some());
    assert_eq!(rows(&daemon), 1);
}

#[test]
fn calls_of_a_batch_are_judged_one_by_one() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    let batch = format!(
        r#"[{},{},{{"jsonrpc":"2.0","id":3,"method":"no_such"}},{},{{"jsonrpc":"2.0","id":4,"method":"list"}}]"#,
        allocate("a", "1"),
        allocate("b/c", "2"),
        allocate("a", "1"),
    );
    let replies = client.post(batch.as_bytes()).json();
    assert_eq!(replies[0]["result"]["range"], json!({ "start": 20000, "end": 20000 }));
    assert_eq!(replies[1]["error"]["data"]["parameter"], "owner");
    assert_eq!(code(&replies[2]), -32601);
    // the same id twice: both are carried out, both are answered
    assert_eq!(replies[3], replies[0]);
    assert_eq!(replies[4]["result"]["allocations"].as_array().unwrap().len(), 1);
}

#[test]
fn a_batch_that_is_too_large_runs_none_of_its_calls() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    let batch = |count: usize| {
        let calls: Vec<_> =
            (0..count).map(|n| allocate(&format!("o{n}"), &n.to_string())).collect();
        format!("[{}]", calls.join(","))
    };
    let reply = client.post(batch(65).as_bytes()).json();
    assert!(code(&reply) < 0);
    assert_eq!(rows(&daemon), 0);
    let replies = client.post(batch(64).as_bytes()).json();
    assert_eq!(replies.as_array().unwrap().len(), 64);
    assert_eq!(rows(&daemon), 64);
}

#[test]
fn a_large_answer_is_given_whole() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    for hundred in 0..40 {
        let calls: Vec<_> =
            (0..64).map(|n| allocate(&format!("owner-{hundred}-{n}"), "1")).collect();
        client.post(format!("[{}]", calls.join(",")).as_bytes());
    }
    let list = client.call("list", json!({})).unwrap();
    assert_eq!(list["allocations"].as_array().unwrap().len(), 40 * 64);
}

/// Sends bytes and reads until the other end hangs up.
fn raw(daemon: &Daemon, name: &str, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(daemon.path(name)).unwrap();
    // the other end may refuse before it has read all
    let _ = stream.write_all(bytes);
    stream.shutdown(Shutdown::Write).unwrap();
    String::from_utf8(read_all(&mut stream)).unwrap()
}

fn request(head: &str, body: &str) -> Vec<u8> {
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

const HEAD: &str = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";

#[test]
fn http_that_is_not_understood_is_refused_and_the_next_connection_is_fine() {
    let daemon = Daemon::start();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"who_am_i"}"#;
    let length = call.len();
    let refused = |bytes: &[u8], statuses: &[&str]| {
        let answer = raw(&daemon, "jsonrpc", bytes);
        let status = answer.split(' ').nth(1).unwrap_or("closed").to_owned();
        assert!(statuses.contains(&status.as_str()), "{answer:?}");
        assert!(!answer.contains("\"result\""), "{answer}");
        assert!(raw(&daemon, "jsonrpc", &request(HEAD, call)).contains("\"result\""));
    };
    refused(b"rubbish\r\n\r\n", &["400"]);
    refused(b"\r\n\r\n\r\n", &["400", "closed"]);
    refused(b"GET /\r\n", &["400", "closed"]);
    refused(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &["405"]);
    refused(b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n", &["405"]);
    refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &["400", "404", "505", "closed"]);
    refused(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        &["405"],
    );
    refused(
        &request("POST /x HTTP/1.1\r\nHost: x\r\nContent-Type: application/json", call),
        &["404"],
    );
    refused(&request("POST / HTTP/1.1\r\nHost: x", call), &["415"]);
    refused(&request("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain", call), &["415"]);
    refused(&request(&format!("{HEAD}\r\nbad header: x"), call), &["400"]);
    refused(
        format!("{HEAD}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{call}").as_bytes(),
        &["400"],
    );
    refused(format!("{HEAD}\r\nContent-Length: x\r\n\r\n{call}").as_bytes(), &["400"]);
    refused(
        format!("{HEAD}\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{call}").as_bytes(),
        &["400", "closed"],
    );
    // the body ends before its length
    refused(
        format!("{HEAD}\r\nContent-Length: {}\r\n\r\n{call}", length + 9).as_bytes(),
        &["400", "closed"],
    );
    refused(format!("{HEAD}\r\nContent-Length: 99999999\r\n\r\n{call}").as_bytes(), &["413"]);
    let padded = format!("{HEAD}\r\nX-Padding: {}", "x".repeat(100 * 1024));
    refused(&request(&padded, call), &["431", "400", "closed"]);
}

#[test]
fn what_clients_of_unix_sockets_send_is_understood() {
    let daemon = Daemon::start();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"who_am_i"}"#;
    for host in ["localhost", "", "/run/portsd/jsonrpc.sock", "x:0"] {
        let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json");
        assert!(raw(&daemon, "jsonrpc", &request(&head, call)).contains("\"result\""), "{host}");
    }
    for head in [
        "POST / HTTP/1.1\r\nContent-Type: application/json",
        "POST / HTTP/1.0\r\nContent-Type: application/json",
        "POST /?x=y HTTP/1.1\r\nContent-Type: application/json",
        "POST http://localhost/ HTTP/1.1\r\nContent-Type: application/json",
        "POST / HTTP/1.1\r\nContent-Type: application/json; charset=utf-8",
        "POST / HTTP/1.1\r\nContent-Type: Application/JSON; charset=\"utf-8\"",
    ] {
        let answer = raw(&daemon, "jsonrpc", &request(head, call));
        assert!(answer.contains("\"result\""), "{head}: {answer}");
    }
    let chunked = format!(
        "{HEAD}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{call}\r\n0\r\n\r\n",
        call.len()
    );
    assert!(raw(&daemon, "jsonrpc", chunked.as_bytes()).contains("\"result\""));
}

#[test]
fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let daemon = Daemon::start();
    let mut client = Client::connect(&daemon.path("jsonrpc"));
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"who_am_i"}"#;
    let padded = |length: usize| format!("{call}{}", " ".repeat(length - call.len()));
    assert_eq!(client.post(padded(64 * 1024).as_bytes()).status, 200);
    assert_eq!(client.post(padded(64 * 1024 + 1).as_bytes()).status, 413);
    assert_eq!(admin(&daemon).post(padded(1024 * 1024).as_bytes()).status, 200);
    // without a length, the body is cut off where it gets too long
    let chunk = "x".repeat(64 * 1024 + 1);
    let chunked =
        format!("{HEAD}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{chunk}\r\n", chunk.len());
    assert!(raw(&daemon, "jsonrpc", chunked.as_bytes()).starts_with("HTTP/1.1 413"));
}

#[test]
fn deep_nesting_harms_nobody() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    for depth in [200, 5_000, 1_000_000] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        for body in [
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"list","params":{{"owner":{open}{close}}}}}"#
            ),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"list","params":{open}{close}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":{open}{close},"method":"list"}}"#),
            format!("{open}{close}"),
            open.clone(),
            "{\"a\":".repeat(depth),
        ] {
            let reply = client.post(body.as_bytes()).json();
            let is_error = |reply: &Value| reply.get("error").is_some();
            let all =
                reply.as_array().map_or_else(|| is_error(&reply), |all| all.iter().all(is_error));
            assert!(all, "{reply}");
        }
        let extra = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"list","x":{open}{close}}}"#);
        assert_eq!(client.post(extra.as_bytes()).status, 200);
    }
}

#[test]
fn calls_share_a_connection() {
    let daemon = Daemon::start();
    let mut client = admin(&daemon);
    // pipelined
    let bytes: Vec<u8> =
        (0..20).flat_map(|n| request(HEAD, &allocate(&format!("o{n}"), &n.to_string()))).collect();
    client.stream.write_all(&bytes).unwrap();
    for n in 0..20 {
        assert_eq!(client.response().unwrap().json()["id"], n);
    }
    assert_eq!(rows(&daemon), 20);
}

#[test]
fn unfinished_and_silent_connections_end() {
    let daemon =
        Daemon::with_config("[limits]\nunfinished_message = 1\nidle_connection = \"2s\"\n");
    let mut half_head = admin(&daemon);
    half_head.stream.write_all(b"POST / HTTP/1.1\r\nHost:").unwrap();
    let mut half_body = admin(&daemon);
    half_body
        .stream
        .write_all(format!("{HEAD}\r\nContent-Length: 99\r\n\r\n{{").as_bytes())
        .unwrap();
    let mut silent = admin(&daemon);
    let mut answered = admin(&daemon);
    answered.call("who_am_i", json!({})).unwrap();
    assert_eq!(half_head.response(), None);
    if let Some(response) = half_body.response() {
        assert_eq!(response.status, 400);
    }
    for client in [&mut half_body, &mut silent, &mut answered] {
        assert_eq!(client.response(), None);
    }
}

#[test]
fn a_socket_tells_what_it_offers() {
    let daemon = Daemon::start();
    for (name, methods) in [("jsonrpc", 6), ("admin-jsonrpc", 15)] {
        let mut client = Client::connect(&daemon.path(name));
        let document = client.call("rpc.discover", json!({})).unwrap();
        assert_eq!(document["methods"].as_array().unwrap().len(), methods);
        let (_, data) = client.call("rpc.discover", json!({ "x": 1 })).unwrap_err();
        assert_eq!(data["parameter"], "x");
    }
}
