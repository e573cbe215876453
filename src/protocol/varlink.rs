//! varlink: JSON objects with a NUL byte behind each, answered in the order they came.

mod wire;

use std::io;
use std::pin::pin;
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{ADMIN_IDL, BadParameter, PORTS_IDL, Params, Spelling, decode, encode, methods};
use crate::allocator::LOCK_PATIENCE;
use crate::config::Limits;
use crate::error::{Condition, Error};
use crate::listener::{Connection, Context, last_look};
use crate::peer::{Peer, Scope};
use crate::reply::{EventKind, Monitored};
use crate::request::{Interface, Method, Request};
use crate::service::{Service, Subscription};
use wire::{Next, Wire};

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
    pub async fn serve(&self, connection: Connection, context: &Context) -> io::Result<()> {
        let Connection { stream, received, peer } = connection;
        let mut wire = Wire::new(stream, received, self.message_bytes_max);
        let mut last_look_is_over = pin!(last_look(&context.stopping));
        loop {
            let next = tokio::select! {
                biased;
                () = &mut last_look_is_over => return Ok(()),
                next = wire.next() => next?,
            };
            let answer = match next {
                Next::Message(message) => self.answer(&peer, &message).await,
                Next::TooLong => {
                    return wire.write(&invalid("message").into_reply()).await;
                }
                Next::End => return Ok(()),
            };
            let goes_on = match answer {
                None => true,
                Some(Answer::One(reply)) => {
                    wire.write(&reply).await?;
                    true
                }
                Some(Answer::Events(events)) => {
                    tokio::select! {
                        biased;
                        () = &mut last_look_is_over => false,
                        told = tell(*events, &mut wire) => told?,
                    }
                }
            };
            if !goes_on {
                return Ok(());
            }
        }
    }
}

/// What a call is answered with.
enum Answer {
    /// One reply, and that is all.
    One(Value),
    /// Replies without an end.
    Events(Box<Subscription>),
}

impl Answer {
    /// The reply with the object of these fields.
    fn of(fields: &Value) -> Self {
        Self::One(json!({ "parameters": fields }))
    }
}

/// Tells events until the peer has hung up, or there are no more. Gives whether the connection goes
/// on: it does after an error, and ends for somebody who has fallen behind.
async fn tell(mut events: Subscription, wire: &mut Wire) -> io::Result<bool> {
    wire.may_be_silent();
    loop {
        let event = tokio::select! {
            biased;
            closed = wire.hung_up() => return closed.map(|()| false),
            event = events.next() => event,
        };
        match event {
            Ok(event) => {
                let is_last = event.kind == EventKind::Lagged;
                let parameters = encode(&Monitored { event }, Spelling::CamelCase);
                let reply = json!({ "parameters": parameters, "continues": !is_last });
                wire.write(&reply).await?;
                if is_last {
                    return Ok(false);
                }
            }
            Err(error) => {
                wire.write(&Failure::from(error).into_reply()).await?;
                wire.silence_ends();
                return Ok(true);
            }
        }
    }
}

/// A call as it comes over the wire.
struct Call<'a> {
    method: String,
    parameters: Option<&'a RawValue>,
    more: bool,
    oneway: bool,
    upgrade: bool,
}

impl<'a> Call<'a> {
    /// Reads a message. What is no call is refused by the name of the member that is wrong, or
    /// as `message`.
    fn parse(message: &'a RawValue) -> Result<Self, BadParameter> {
        let known = ["method", "parameters", "more", "oneway", "upgrade"];
        let members = Params::parse(Some(message), Spelling::CamelCase, &known)?;
        Ok(Self {
            method: members.required("method")?,
            parameters: members.raw("parameters"),
            // to a method that answers once, a wish for more changes nothing
            more: members.optional("more")?.unwrap_or(false),
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
    /// The answer to a message, or `None` where the caller wants none.
    async fn answer(&self, peer: &Peer, message: &[u8]) -> Option<Answer> {
        let (result, wants_reply) = match serde_json::from_slice::<&RawValue>(message) {
            Ok(message) => match Call::parse(message) {
                Ok(call) => (self.call(peer, &call).await, !call.oneway),
                Err(bad) => (Err(bad.into()), !Call::is_oneway(message)),
            },
            Err(_) => (Err(invalid("message")), true),
        };
        wants_reply.then(|| result.unwrap_or_else(|failure| Answer::One(failure.into_reply())))
    }

    async fn call(&self, peer: &Peer, call: &Call<'_>) -> Result<Answer, Failure> {
        if call.upgrade {
            return Err(invalid("upgrade"));
        }
        let (interface, method) = call.method.rsplit_once('.').ok_or_else(|| invalid("method"))?;
        let wanted = match interface {
            SERVICE => {
                return self.introspect(method, call.parameters).map(|fields| Answer::of(&fields));
            }
            PORTS => Interface::Ports,
            ADMIN if self.scope == Scope::Admin => Interface::Admin,
            _ => return Err(interface_not_found(interface)),
        };
        let known =
            |candidate: &Method| candidate.name() == method && candidate.interface() == wanted;
        let method =
            methods(self.scope).find(known).ok_or_else(|| method_not_found(&call.method))?;
        match decode(method, call.parameters, Spelling::CamelCase) {
            Ok(Request::Monitor) if !call.more => Err(service_failure("ExpectedMore", json!({}))),
            Ok(Request::Monitor) => {
                let events = self.service.monitor(peer).await?;
                Ok(Answer::Events(Box::new(events)))
            }
            Ok(request) => {
                let reply =
                    self.service.call(peer, request, Instant::now() + LOCK_PATIENCE).await?;
                Ok(Answer::of(&encode(&reply, Spelling::CamelCase)))
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
