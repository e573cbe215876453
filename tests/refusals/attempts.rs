//! Ways to make calls that are refused, over either wire.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::calls::{self, Call, Refused};
use super::support::{Daemon, PORTS, Refusal, jsonrpc, varlink};

/// What is sent, and refused.
#[derive(Debug, Clone)]
pub enum Attempt {
    Varlink(Refused),
    Jsonrpc(Refused),
    /// A call that nobody waits for.
    Oneway(Refused),
    Batch(Vec<Refused>),
    /// A call that would be granted, had it an id.
    Notification(Call),
    /// A call that would be granted, in an envelope with a fault, and the code of the error.
    Envelope(String, i64),
    /// A varlink message with a fault, and the member that is named.
    Message(String, &'static str),
    /// More calls than a batch may have.
    LargeBatch(Call),
}

impl Attempt {
    /// What the attempt is about.
    pub fn kind(&self) -> String {
        match self {
            Self::Varlink((_, refusal)) | Self::Jsonrpc((_, refusal)) => &refusal.condition,
            Self::Oneway(_) => "a oneway call",
            Self::Batch(_) => "a batch",
            Self::Notification(_) => "a notification",
            Self::Envelope(..) => "a faulty envelope",
            Self::Message(..) => "a faulty message",
            Self::LargeBatch(_) => "a batch that is too large",
        }
        .to_owned()
    }
}

const HEAD: &str = r#""jsonrpc":"2.0","id":1"#;
/// So many calls make a batch that is refused as a whole.
const TOO_MANY: usize = 65;

pub fn any() -> impl Strategy<Value = Attempt> {
    let granted = || select(calls::granted());
    prop_oneof![
        8 => calls::refused().prop_map(Attempt::Varlink),
        8 => calls::refused().prop_map(Attempt::Jsonrpc),
        2 => calls::refused().prop_map(Attempt::Oneway),
        2 => prop::collection::vec(calls::refused(), 1..6).prop_map(Attempt::Batch),
        2 => granted().prop_map(Attempt::Notification),
        2 => (granted(), 0..7_usize).prop_map(|(call, fault)| envelope(&call, fault)),
        2 => (granted(), 0..5_usize).prop_map(|(call, fault)| message(&call, fault)),
        1 => granted().prop_map(Attempt::LargeBatch),
    ]
}

fn envelope(call: &Call, fault: usize) -> Attempt {
    let good = call.jsonrpc(HEAD);
    let (text, code) = match fault {
        0 => (good[..good.len() - 1].to_owned(), -32700),
        1 => (format!("{good} x"), -32700),
        2 => (call.jsonrpc(r#""jsonrpc":"1.0","id":1"#), -32600),
        3 => (call.jsonrpc(r#""jsonrpc":"2.0","id":-1"#), -32600),
        4 => (call.jsonrpc(r#""jsonrpc":"2.0","id":1,"id":2"#), -32600),
        5 => (call.jsonrpc(r#""jsonrpc":"2.0","id":1,"param":{}"#), -32600),
        _ => ("[]".to_owned(), -32600),
    };
    Attempt::Envelope(text, code)
}

fn message(call: &Call, fault: usize) -> Attempt {
    let good = call.varlink();
    let but = |head: &str| format!("{{{head},{}", &good[1..]);
    match fault {
        0 => Attempt::Message(good[..good.len() - 1].to_owned(), "message"),
        1 => Attempt::Message(but(r#""upgrade":true"#), "upgrade"),
        2 => Attempt::Message(but(r#""param":{}"#), "param"),
        3 => Attempt::Message(but(r#""method":"org.nethserver.Ports.List""#), "method"),
        _ => Attempt::Message(but(r#""oneway":0"#), "oneway"),
    }
}

/// Both ways to the administrators' sockets of a daemon.
pub struct Wires {
    varlink: varlink::Client,
    jsonrpc: jsonrpc::Client,
}

impl Wires {
    pub fn connect(daemon: &Daemon) -> Self {
        let jsonrpc = jsonrpc::Client::connect(&daemon.path("admin-jsonrpc"));
        Self { varlink: daemon.admin(), jsonrpc }
    }

    pub fn over_varlink(&mut self, call: &Call) -> Result<Value, Refusal> {
        self.varlink.send_raw(call.varlink().as_bytes());
        varlink::result(&self.varlink.receive().expect("a reply"))
    }

    /// Makes the attempt, and sees that it is refused as it should be.
    pub fn refuse(&mut self, attempt: &Attempt) {
        match attempt {
            Attempt::Varlink((call, refusal)) => compare(self.over_varlink(call), refusal, call),
            Attempt::Jsonrpc((call, refusal)) => {
                let reply = self.post(&call.jsonrpc(HEAD));
                compare(result(&reply), refusal, call);
            }
            Attempt::Oneway((call, _)) => self.oneway(call),
            Attempt::Batch(refused) => self.batch(refused),
            Attempt::Notification(call) => {
                let notification = call.jsonrpc(r#""jsonrpc":"2.0""#);
                let response = self.jsonrpc.post(notification.as_bytes());
                assert_eq!((response.status, response.body.as_str()), (204, ""), "{call:?}");
            }
            Attempt::Envelope(text, code) => {
                assert_eq!(self.post(text)["error"]["code"], *code, "{text}");
            }
            Attempt::Message(text, parameter) => {
                self.varlink.send_raw(text.as_bytes());
                let got = varlink::result(&self.varlink.receive().expect("a reply"));
                let fields = json!({ "parameter": parameter });
                assert_eq!(got, Err(Refusal::new("InvalidParameter", fields)), "{text}");
            }
            Attempt::LargeBatch(call) => {
                let reply =
                    self.post(&format!("[{}]", vec![call.jsonrpc(HEAD); TOO_MANY].join(",")));
                assert!(reply["error"]["code"].is_i64(), "{reply}");
            }
        }
    }

    fn post(&mut self, body: &str) -> Value {
        let response = self.jsonrpc.post(body.as_bytes());
        assert_eq!(response.status, 200, "{body}: {}", response.body);
        response.json()
    }

    /// A refused call that asks for no answer: the next reply is that of the next call.
    fn oneway(&mut self, call: &Call) {
        let call = call.varlink();
        self.varlink.send_raw(format!(r#"{{"oneway":true,{}"#, &call[1..]).as_bytes());
        let reply = self.varlink.call(PORTS, "WhoAmI", json!({})).unwrap();
        assert_eq!(reply["caller"], "administrator", "{call}");
    }

    /// A notification among them gets no answer.
    fn batch(&mut self, refused: &[Refused]) {
        let mut calls: Vec<String> = refused.iter().map(|(call, _)| call.jsonrpc(HEAD)).collect();
        calls.insert(1, calls::granted()[0].jsonrpc(r#""jsonrpc":"2.0""#));
        let replies = self.post(&format!("[{}]", calls.join(",")));
        let replies = replies.as_array().expect("a batch");
        assert_eq!(replies.len(), refused.len());
        for (reply, (call, refusal)) in replies.iter().zip(refused) {
            compare(result(reply), refusal, call);
        }
    }
}

/// What a reply of JSON-RPC says.
fn result(reply: &Value) -> Result<Value, Refusal> {
    match reply.get("error") {
        None => Ok(reply["result"].clone()),
        Some(error) => {
            Err(jsonrpc::refusal(error["code"].as_i64().unwrap(), error["data"].clone()))
        }
    }
}

fn compare(got: Result<Value, Refusal>, expected: &Refusal, call: &Call) {
    let got = got.expect_err(&format!("{call:?}"));
    assert_eq!(got.condition, expected.condition, "{call:?}");
    if !expected.fields.is_null() {
        assert_eq!(got.fields, expected.fields, "{call:?}");
    }
}
