//! JSON-RPC over HTTP/1.1, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{PATIENCE, Refusal};

pub struct Client {
    pub stream: UnixStream,
}

/// What came back over HTTP.
#[derive(Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Client {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    pub fn connect(path: &Path) -> Self {
        Self::new(UnixStream::connect(path).unwrap())
    }

    /// Posts a body and reads the response; the connection stays.
    pub fn post(&mut self, body: &[u8]) -> Response {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        self.response().expect("a response")
    }

    /// Reads one response, or `None` if the other end has hung up.
    pub fn response(&mut self) -> Option<Response> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.stream.read(&mut byte) {
                Ok(0) => return None,
                Ok(_) => head.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        Some(Response { status, body: String::from_utf8(body).unwrap() })
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers make the value in place")]
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, (i64, Value)> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.post(call.to_string().as_bytes());
        assert_eq!(response.status, 200, "{}", response.body);
        let reply = response.json();
        assert_eq!(reply["id"], 1);
        match reply.get("error") {
            None => Ok(reply["result"].clone()),
            Some(error) => Err((error["code"].as_i64().unwrap(), error["data"].clone())),
        }
    }
}

pub fn snake_case(name: &str) -> String {
    let mut spelt = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !spelt.is_empty() {
            spelt.push('_');
        }
        spelt.extend(letter.to_lowercase());
    }
    spelt
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |spelt, word| {
        let (initial, rest) = word.split_at(1);
        spelt + &initial.to_uppercase() + rest
    })
}

/// Spells every key anew.
fn respell(value: Value, spell: fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (spell(&key), respell(value, spell))).collect()
        }
        Value::Array(items) => items.into_iter().map(|item| respell(item, spell)).collect(),
        other => other,
    }
}

impl super::Client for Client {
    fn call(&mut self, _: &str, method: &str, parameters: Value) -> Result<Value, Refusal> {
        // only the parameters' own names: labels are data
        let parameters: Map<String, Value> = match parameters {
            Value::Object(fields) => {
                fields.into_iter().map(|(key, value)| (snake_case(&key), value)).collect()
            }
            other => panic!("{other}"),
        };
        self.call(&snake_case(method), Value::Object(parameters))
            .map(|result| respell(result, camel_case))
            .map_err(|(code, data)| refusal(code, data))
    }
}

/// An error object's code and data as a refusal, spelt as varlink does.
pub fn refusal(code: i64, data: Value) -> Refusal {
    if code == -32601 {
        return Refusal::new("MethodNotFound", json!({}));
    }
    let mut fields = respell(data, camel_case);
    let condition = fields["error"].as_str().unwrap().to_owned();
    let known = portsd::error::Condition::from_name(&condition).unwrap();
    assert_eq!(i64::from(known.row().json_rpc_code), code);
    fields.as_object_mut().unwrap().shift_remove("error");
    // a parameter's name is spelt as the wire does
    if let Some(parameter) = fields["parameter"].as_str().map(camel_case) {
        fields["parameter"] = Value::from(parameter);
    }
    Refusal { condition, fields }
}
