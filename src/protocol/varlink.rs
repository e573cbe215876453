//! varlink: JSON objects with a NUL byte behind each, answered in the order they came.

use std::pin::pin;
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ADMIN_IDL, BadParameter, PORTS_IDL, Params, Spelling, decode, encode, methods};
use crate::allocator::LOCK_PATIENCE;
use crate::config::Limits;
use crate::error::{Condition, Error};
use crate::listener::{Connection, Context, last_look};
use crate::peer::{Peer, Scope};
use crate::request::{Interface, Method};
use crate::service::Service;

const PORTS: &str = "org.nethserver.Ports";
const ADMIN: &str = "org.nethserver.Ports.Admin";
const SERVICE: &str = "org.varlink.service";

/// The interface that every varlink service has.
const SERVICE_IDL: &str = include_str!("org.varlink.service.varlink");

/// Answers the calls of one kind of socket; the same for all its connections.
#[derive(Clone)]
pub struct Dispatcher {
    service: Service,
    scope: Scope,
    message_bytes_max: usize,
}

impl Dispatcher {
    /// Offers every interface that sockets of this scope have.
    #[must_use]
    pub const fn new(service: Service, scope: Scope, limits: &Limits) -> Self {
        let message_bytes_max = match scope {
            Scope::Module => limits.message_bytes,
            Scope::Admin => limits.admin_message_bytes,
        };
        Self { service, scope, message_bytes_max }
    }

    /// Reads calls and answers them, one after the other, until the peer hangs up, leaves a
    /// limit, or the service stops.
    ///
    /// The next call is read only when the last one has been answered and the answer taken, so
    /// that a peer that does not read can't make the service hold more for it.
    pub async fn serve(&self, connection: Connection, context: &Context) -> std::io::Result<()> {
        let Connection { mut stream, received, peer } = connection;
        let mut messages = Messages::new(self.message_bytes_max);
        let mut last_look_is_over = pin!(last_look(&context.stopping));
        loop {
            let next = tokio::select! {
                biased;
                () = &mut last_look_is_over => return Ok(()),
                next = messages.next(&mut stream) => next,
            };
            let (reply, goes_on) = match next? {
                Next::Message(message) => {
                    received.message(messages.has_begun());
                    (self.answer(&peer, &message).await, true)
                }
                Next::TooLong => (Some(invalid("message").into_reply()), false),
                Next::End => return Ok(()),
            };
            if let Some(reply) = reply {
                let mut bytes = serde_json::to_vec(&reply)?;
                bytes.push(0);
                stream.write_all(&bytes).await?;
            }
            if !goes_on {
                return Ok(());
            }
        }
    }
}

/// Cuts a stream of bytes into messages.
struct Messages {
    buffer: Vec<u8>,
    /// Where the next message begins: what stands before it has been given.
    start: usize,
    /// Up to here no NUL follows the start.
    scanned: usize,
    message_bytes_max: usize,
}

enum Next {
    /// A message, without its NUL.
    Message(Vec<u8>),
    /// The message that has begun is longer than allowed.
    TooLong,
    /// The peer will send nothing more.
    End,
}

impl Messages {
    const fn new(message_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, scanned: 0, message_bytes_max }
    }

    /// Whether there are bytes of a further message.
    const fn has_begun(&self) -> bool {
        self.start < self.buffer.len()
    }

    /// The next message. Loses nothing if it is dropped while waiting.
    async fn next(&mut self, stream: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<Next> {
        const READ_BYTES: usize = 8 * 1024;
        loop {
            if let Some(offset) = self.buffer[self.scanned..].iter().position(|byte| *byte == 0) {
                let end = self.scanned + offset;
                let message = self.buffer[self.start..end].to_vec();
                (self.start, self.scanned) = (end + 1, end + 1);
                let fits = message.len() <= self.message_bytes_max;
                return Ok(if fits { Next::Message(message) } else { Next::TooLong });
            }
            // what was given goes, once for all the messages that one read has brought
            self.buffer.drain(..self.start);
            self.start = 0;
            self.scanned = self.buffer.len();
            if self.scanned > self.message_bytes_max {
                return Ok(Next::TooLong);
            }
            if self.buffer.is_empty() {
                // a large message is no reason to hold as much for ever
                self.buffer.shrink_to(READ_BYTES);
            }
            self.buffer.reserve(READ_BYTES);
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(Next::End);
            }
        }
    }
}

/// A call as it comes over the wire.
struct Call<'a> {
    method: String,
    parameters: Option<&'a RawValue>,
    oneway: bool,
    upgrade: bool,
}

impl<'a> Call<'a> {
    /// Reads a message. What is no call is refused by the name of the member that is wrong, or
    /// as `message`.
    fn parse(message: &'a RawValue) -> Result<Self, BadParameter> {
        let known = ["method", "parameters", "more", "oneway", "upgrade"];
        let members = Params::parse(Some(message), Spelling::CamelCase, &known)?;
        // no method here answers more than once, so that a wish for more changes nothing
        members.optional::<bool>("more")?;
        Ok(Self {
            method: members.required("method")?,
            parameters: members.raw("parameters"),
            oneway: members.optional("oneway")?.unwrap_or(false),
            upgrade: members.optional("upgrade")?.unwrap_or(false),
        })
    }

    /// Whether a message that is no call still says that it wants no answer.
    fn is_oneway(message: &RawValue) -> bool {
        #[derive(Deserialize)]
        struct Oneway {
            oneway: bool,
        }
        serde_json::from_str(message.get()).is_ok_and(|Oneway { oneway }| oneway)
    }
}

#[cfg(test)]
pub(super) fn error_reply(error: Error) -> Value {
    Failure::from(error).into_reply()
}

/// A failed call as it goes over the wire.
struct Failure {
    error: String,
    parameters: Value,
}

impl Failure {
    fn into_reply(self) -> Value {
        json!({ "error": self.error, "parameters": self.parameters })
    }
}

fn service_failure(condition: &str, parameters: Value) -> Failure {
    Failure { error: format!("{SERVICE}.{condition}"), parameters }
}

fn invalid(parameter: &str) -> Failure {
    service_failure("InvalidParameter", json!({ "parameter": parameter }))
}

impl From<BadParameter> for Failure {
    fn from(BadParameter(name): BadParameter) -> Self {
        invalid(&name)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let interface = match error.condition() {
            Condition::InvalidParameter => SERVICE,
            Condition::PermissionDenied
            | Condition::MissingRole
            | Condition::UnknownModule
            | Condition::DemandExceeded
            | Condition::PoolExhausted
            | Condition::CannotGrow
            | Condition::NotAllocated
            | Condition::Occupied
            | Condition::NameTaken
            | Condition::RegistryUnavailable
            | Condition::StorageFailure
            | Condition::ShuttingDown => PORTS,
        };
        Self {
            error: format!("{interface}.{}", error.condition().row().name),
            parameters: encode(&error, Spelling::CamelCase),
        }
    }
}

impl Dispatcher {
    /// The reply to a message, or `None` where the caller wants none.
    async fn answer(&self, peer: &Peer, message: &[u8]) -> Option<Value> {
        let (result, wants_reply) = match serde_json::from_slice::<&RawValue>(message) {
            Ok(message) => match Call::parse(message) {
                Ok(call) => (self.call(peer, &call).await, !call.oneway),
                Err(bad) => (Err(bad.into()), !Call::is_oneway(message)),
            },
            Err(_) => (Err(invalid("message")), true),
        };
        wants_reply.then(|| match result {
            Ok(parameters) => json!({ "parameters": parameters }),
            Err(failure) => failure.into_reply(),
        })
    }

    async fn call(&self, peer: &Peer, call: &Call<'_>) -> Result<Value, Failure> {
        if call.upgrade {
            return Err(invalid("upgrade"));
        }
        let (interface, method) = call.method.rsplit_once('.').ok_or_else(|| invalid("method"))?;
        let wanted = match interface {
            SERVICE => return self.introspect(method, call.parameters),
            PORTS => Interface::Ports,
            ADMIN if self.scope == Scope::Admin => Interface::Admin,
            _ => return Err(interface_not_found(interface)),
        };
        let known =
            |candidate: &Method| candidate.name() == method && candidate.interface() == wanted;
        let method =
            methods(self.scope).find(known).ok_or_else(|| method_not_found(&call.method))?;
        match decode(method, call.parameters, Spelling::CamelCase) {
            Ok(request) => {
                let reply =
                    self.service.call(peer, request, Instant::now() + LOCK_PATIENCE).await?;
                Ok(encode(&reply, Spelling::CamelCase))
            }
            Err(bad) => {
                self.service.refuse(peer, method, &bad.0);
                Err(bad.into())
            }
        }
    }

    /// What this service is and what it speaks.
    fn introspect(&self, method: &str, parameters: Option<&RawValue>) -> Result<Value, Failure> {
        let offered: &[(&str, &str)] = match self.scope {
            Scope::Module => &[(SERVICE, SERVICE_IDL), (PORTS, PORTS_IDL)],
            Scope::Admin => &[(SERVICE, SERVICE_IDL), (PORTS, PORTS_IDL), (ADMIN, ADMIN_IDL)],
        };
        match method {
            "GetInfo" => {
                Params::parse(parameters, Spelling::CamelCase, &[])?;
                Ok(json!({
                    "vendor": "NethServer",
                    "product": env!("CARGO_PKG_NAME"),
                    "version": env!("CARGO_PKG_VERSION"),
                    "url": "https://www.nethserver.org/",
                    "interfaces": offered.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
                }))
            }
            "GetInterfaceDescription" => {
                let params = Params::parse(parameters, Spelling::CamelCase, &["interface"])?;
                let interface: String = params.required("interface")?;
                let found = offered.iter().find(|(name, _)| *name == interface);
                found
                    .map(|(_, description)| json!({ "description": description }))
                    .ok_or_else(|| interface_not_found(&interface))
            }
            _ => Err(method_not_found(&format!("{SERVICE}.{method}"))),
        }
    }
}

fn interface_not_found(interface: &str) -> Failure {
    service_failure("InterfaceNotFound", json!({ "interface": interface }))
}

fn method_not_found(method: &str) -> Failure {
    service_failure("MethodNotFound", json!({ "method": method }))
}
