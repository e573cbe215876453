//! The two wires. They differ in framing and spelling and share everything else: which methods a
//! socket offers, how parameters become a [`Request`] and how answers are spelt.

pub mod jsonrpc;
mod params;
mod spelling;
#[cfg(test)]
mod tests;
pub mod varlink;

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::model::{HistoryQuery, Module, ModuleId, Part, PortRange};
use crate::peer::Scope;
use crate::registry::Labels;
use crate::request::{Interface, Method, Request, Target};
pub use params::BadParameter;
use params::Params;
pub use spelling::Spelling;

/// The interface for everybody, as varlink describes it.
pub const PORTS_IDL: &str = include_str!("org.nethserver.Ports.varlink");
/// The administrators' interface, as varlink describes it.
pub const ADMIN_IDL: &str = include_str!("org.nethserver.Ports.Admin.varlink");

/// The methods that a socket offers.
fn methods(scope: Scope) -> impl Iterator<Item = Method> {
    Method::ALL.into_iter().filter(move |method| match method.interface() {
        Interface::Ports => true,
        Interface::Admin => scope == Scope::Admin,
    })
}

/// Makes a request of a method's parameters. Every parameter has a name, and one that is unknown,
/// missing, given twice or not of its type is refused by that name, as the wire spells it.
fn decode(
    method: Method,
    raw: Option<&RawValue>,
    spelling: Spelling,
) -> Result<Request, BadParameter> {
    let params = |known| Params::parse(raw, spelling, known);
    Ok(match method {
        Method::Allocate => {
            let params = params(&["ports", "protocol", "keepExisting", "owner", "onBehalfOf"])?;
            Request::Allocate {
                ports: params.required("ports")?,
                protocol: params.required("protocol")?,
                keep_existing: params.optional("keepExisting")?.unwrap_or(false),
                target: target(&params)?,
            }
        }
        Method::Ensure => {
            let params = params(&["name", "ports", "protocols", "mayMove", "owner", "onBehalfOf"])?;
            Request::Ensure {
                name: params.required("name")?,
                ports: params.required("ports")?,
                protocols: params.required("protocols")?,
                may_move: params.optional("mayMove")?.unwrap_or(false),
                target: target(&params)?,
            }
        }
        Method::Deallocate => {
            let params = params(&["protocol", "name", "start", "end", "owner", "onBehalfOf"])?;
            Request::Deallocate {
                protocol: params.required("protocol")?,
                part: part(&params)?,
                target: target(&params)?,
            }
        }
        Method::List => {
            let params = params(&["owner", "protocol"])?;
            Request::List {
                owner: params.optional("owner")?,
                protocol: params.optional("protocol")?,
            }
        }
        Method::Monitor => params(&[]).map(|_| Request::Monitor)?,
        Method::WhoAmI => params(&[]).map(|_| Request::WhoAmI)?,
        Method::GetStatus => params(&[]).map(|_| Request::GetStatus)?,
        Method::ListModules => params(&[]).map(|_| Request::ListModules)?,
        Method::SetModule => {
            let params = params(&["moduleId", "unixUser", "labels"])?;
            Request::SetModule { module: module(&params)? }
        }
        Method::RemoveModule => {
            let params = params(&["moduleId"])?;
            Request::RemoveModule { module_id: params.required("moduleId")? }
        }
        Method::Claim => {
            let params = params(&["start", "end", "protocols", "owner", "name"])?;
            Request::Claim {
                range: ports(&params, params.required("start")?, params.required("end")?)?,
                protocols: params.required("protocols")?,
                owner: params.required("owner")?,
                name: params.optional("name")?,
            }
        }
        Method::Transfer => {
            let params = params(&["fromOwner", "toOwner"])?;
            Request::Transfer {
                from: params.required("fromOwner")?,
                to: params.required("toOwner")?,
            }
        }
        Method::Reclaim => {
            let params = params(&["dryRun", "olderThan"])?;
            let older_than: u32 = params.optional("olderThan")?.unwrap_or(0);
            Request::Reclaim {
                dry_run: params.required("dryRun")?,
                older_than: Duration::from_secs(older_than.into()),
            }
        }
        Method::Import => {
            let params = params(&["allocations", "dryRun", "skipInvalid"])?;
            Request::Import {
                ranges: params.required::<Vec<_>>("allocations")?.into(),
                dry_run: params.required("dryRun")?,
                skip_invalid: params.optional("skipInvalid")?.unwrap_or(false),
            }
        }
        Method::History => {
            let params = params(&["owner", "protocol", "port", "limit"])?;
            Request::History(HistoryQuery {
                owner: params.optional("owner")?,
                protocol: params.optional("protocol")?,
                port: params.optional("port")?,
                limit: limit(&params)?,
            })
        }
        Method::Backup => params(&[]).map(|_| Request::Backup)?,
    })
}

/// A name, or both ends of a range, or neither.
fn part(params: &Params<'_>) -> Result<Part, BadParameter> {
    let name = params.optional("name")?;
    match (name, params.optional("start")?, params.optional("end")?) {
        (None, None, None) => Ok(Part::All),
        (Some(name), None, None) => Ok(Part::Named(name)),
        (None, Some(start), Some(end)) => ports(params, start, end).map(Part::Ports),
        (Some(_), _, _) => Err(params.bad("name")),
        (None, None, Some(_)) => Err(params.bad("start")),
        (None, Some(_), None) => Err(params.bad("end")),
    }
}

/// How many events to show.
fn limit(params: &Params<'_>) -> Result<u32, BadParameter> {
    const DEFAULT: u32 = 100;
    const MAX: u32 = 10_000;
    match params.optional("limit")? {
        None => Ok(DEFAULT),
        Some(limit) if (1..=MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(params.bad("limit")),
    }
}

/// The range between two ends, or the end that is wrong.
fn ports(params: &Params<'_>, start: u16, end: u16) -> Result<PortRange, BadParameter> {
    let wrong = if start == 0 { "start" } else { "end" };
    PortRange::new(start, end).map_err(|_| params.bad(wrong))
}

fn target(params: &Params<'_>) -> Result<Target, BadParameter> {
    Ok(Target { owner: params.optional("owner")?, on_behalf_of: params.optional("onBehalfOf")? })
}

fn module(params: &Params<'_>) -> Result<Module, BadParameter> {
    let id: ModuleId = params.required("moduleId")?;
    let labels = params.required_texts("labels")?;
    let Labels { portsadm, demand } = Labels::parse(&labels).map_err(|_| params.bad("labels"))?;
    let unix_user = match params.optional("unixUser")? {
        Some(user) => user,
        None => id.as_str().parse().map_err(|_| params.bad("unixUser"))?,
    };
    Ok(Module { id, unix_user, portsadm, demand })
}

/// The object of an error's or a reply's fields.
fn encode(fields: &impl Serialize, spelling: Spelling) -> Value {
    // the types have no maps with other keys than texts, and nothing else can fail
    let value = serde_json::to_value(fields).unwrap_or_default();
    spelling.respell(value)
}

/// An error of the service as a wire shows it: where it names a parameter, that is the wire's name.
fn spell_error(error: Error, spelling: Spelling) -> Error {
    match error {
        Error::InvalidParameter { parameter } => Error::invalid(spelling.spell(&parameter)),
        other => other,
    }
}
