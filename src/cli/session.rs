//! Calls of the service, and what becomes of the replies.

use std::ops::ControlFlow;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::Output;
use crate::client::{Client, ClientError};
use crate::request::{Interface, Method};

/// A reply that can be shown.
pub(super) trait Show: DeserializeOwned {
    /// The reply for people.
    fn show(&self) -> Output;
}

/// A connection, and the form in which its replies are shown.
pub(super) struct Session {
    client: Client,
    json: bool,
}

impl Session {
    pub(super) fn connect(path: &Path, json: bool) -> Result<Self, Failure> {
        Ok(Self { client: Client::connect(path)?, json })
    }

    /// Whether replies are shown as JSON.
    pub(super) const fn is_json(&self) -> bool {
        self.json
    }

    /// Calls a method and gives its reply.
    pub(super) fn call<R: DeserializeOwned>(
        &mut self,
        method: Method,
        parameters: &impl Serialize,
    ) -> Result<R, Failure> {
        let reply = self.call_raw(method, parameters)?;
        serde_json::from_value(reply).map_err(|error| not_understood(&error))
    }

    /// Calls a method and shows its reply.
    pub(super) fn show<R: Show>(
        &mut self,
        method: Method,
        parameters: &impl Serialize,
    ) -> Result<Output, Failure> {
        if self.json {
            self.call_raw(method, parameters).map(|reply| as_json(&reply))
        } else {
            self.call::<R>(method, parameters).map(|reply| reply.show())
        }
    }

    /// Calls a method that answers again and again, and hands each reply to `take`, until that has
    /// had enough or there are no more.
    pub(super) fn follow(
        &mut self,
        method: Method,
        take: impl FnMut(Value) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        self.client.follow(&full_name(method), &json!({}), take)
    }

    fn call_raw(&mut self, method: Method, parameters: &impl Serialize) -> Result<Value, Failure> {
        let parameters =
            serde_json::to_value(parameters).map_err(|error| not_understood(&error))?;
        Ok(self.client.call(&full_name(method), &parameters)?)
    }
}

/// The method's name with its interface.
fn full_name(method: Method) -> String {
    let interface = match method.interface() {
        Interface::Ports => "org.nethserver.Ports",
        Interface::Admin => "org.nethserver.Ports.Admin",
    };
    format!("{interface}.{}", method.name())
}

pub(super) fn not_understood(error: &serde_json::Error) -> Failure {
    Failure::Client(ClientError::Broken(error.to_string()))
}

/// A value as text that JSON parsers and people can read.
pub(super) fn as_json(value: &Value) -> Output {
    Output::line(format_args!("{value:#}"))
}
