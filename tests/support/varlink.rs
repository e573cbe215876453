//! varlink, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::{PATIENCE, Refusal};

pub struct Client {
    pub stream: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub fn connect(path: &Path) -> Self {
        Self::new(UnixStream::connect(path).unwrap())
    }

    /// Sends a message as it stands, with a NUL behind it.
    pub fn send_raw(&mut self, message: &[u8]) {
        self.stream.write_all(&[message, b"\0"].concat()).unwrap();
    }

    pub fn send(&mut self, message: &Value) {
        self.send_raw(message.to_string().as_bytes());
    }

    /// The next message, or `None` if the other end has hung up.
    pub fn receive(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == 0) {
                let rest = self.buffer.split_off(at + 1);
                let message = std::mem::replace(&mut self.buffer, rest);
                return Some(serde_json::from_slice(&message[..at]).unwrap());
            }
            let mut chunk = [0; 8192];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A message and the reply to it.
    pub fn exchange(&mut self, message: &Value) -> Value {
        self.send(message);
        self.receive().expect("a reply")
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers make the value in place")]
    pub fn call(
        &mut self,
        interface: &str,
        method: &str,
        parameters: Value,
    ) -> Result<Value, Refusal> {
        let method = format!("{interface}.{method}");
        let reply = self.exchange(&json!({ "method": method, "parameters": parameters }));
        result(&reply)
    }
}

/// What a reply says.
pub fn result(reply: &Value) -> Result<Value, Refusal> {
    match reply.get("error") {
        None => Ok(reply["parameters"].clone()),
        Some(error) => {
            let (interface, condition) = error.as_str().unwrap().rsplit_once('.').unwrap();
            assert!(
                matches!(interface, "org.nethserver.Ports" | "org.varlink.service"),
                "{interface}"
            );
            Err(Refusal::new(condition, reply["parameters"].clone()))
        }
    }
}

impl super::Client for Client {
    fn call(&mut self, interface: &str, method: &str, parameters: Value) -> Result<Value, Refusal> {
        self.call(interface, method, parameters)
    }
}
