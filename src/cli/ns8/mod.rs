//! The actions of NS8's node agent that are about ports, as the agent starts them: the task's data
//! on standard input, the result on standard output, the rest in the environment.
//!
//! What modules see is what they are used to: the shapes of the results, the statuses 32 and 33, the
//! names of the errors. Every other failure is 1, and a plain message.

mod agent;
mod refusal;
mod task;

use serde_json::{Map, Value, json};

use super::args::Ns8Action;
use super::failure::{Failure, OTHER};
use super::output::Output;
use super::session::Session;
use crate::model::{ModuleId, Owner, PortRange};
use crate::reply::{Allocated, Deallocated, ModuleRemoved};
use crate::request::Method;
use agent::{Agent, TaskUser};
use refusal::Refusal;
use task::{AllocatePorts, Count, DeallocatePorts, RemoveModule};

/// Why an action was not carried out.
enum Stop {
    /// The task is one that NS8 has an error of its own for.
    Refused(Refusal),
    /// Anything else.
    Failed(Failure),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Carries out the action and gives what the agent is to get.
pub(super) fn run(action: Ns8Action, connect: impl FnOnce() -> Result<Session, Failure>) -> Output {
    // first: a descriptor that was not passed has the number of the next one that is opened
    let agent = Agent::of_environment();
    let outcome = task::read_stdin().map_err(Stop::from).and_then(|data| match action {
        Ns8Action::AllocatePorts => allocate(&data, &agent.user, connect),
        Ns8Action::DeallocatePorts => deallocate(&data, &agent.user, connect),
        Ns8Action::RemoveModule => remove(&data, connect),
    });
    match (outcome, action) {
        (Ok(text), _) => Output { text, ..Output::default() },
        (Err(Stop::Failed(failure)), _) => failed(failure.parts()),
        // the agent takes what the steps of this action print together for one value of JSON, and
        // has it from an earlier one; that status would undo nothing of what that has removed
        (Err(Stop::Refused(refusal)), Ns8Action::RemoveModule) => failed((refusal.reason, None)),
        (Err(Stop::Refused(refusal)), _) => {
            let remarks = [Some(refusal.reason.clone()), agent.fail_validation()];
            Output {
                text: refusal.to_json(),
                remarks: remarks.into_iter().flatten().collect(),
                status: refusal.status,
            }
        }
    }
}

/// Every failure that NS8 has no status for.
fn failed((message, advice): (String, Option<String>)) -> Output {
    let remark = advice.map_or(message.clone(), |advice| format!("{message}: {advice}"));
    Output { remarks: vec![remark], status: OTHER, ..Output::default() }
}

/// Prints the range that the owner has now, as `[start, end]`.
fn allocate(
    data: &Value,
    user: &TaskUser,
    connect: impl FnOnce() -> Result<Session, Failure>,
) -> Result<String, Stop> {
    let AllocatePorts { ports, module_id, protocol, keep_existing } = AllocatePorts::of(data)?;
    let target = Target::of(user, &module_id)?;
    let Count::Some(count) = ports else {
        return Err(too_many(data, &target));
    };
    let parameters = json!({ "ports": count, "protocol": protocol, "keepExisting": keep_existing });
    let reply = connect()?.call::<Allocated>(Method::Allocate, &target.with(parameters));
    let Allocated { range } = reply.map_err(|failure| refusal::translate(failure, data))?;
    Ok(format!("[{}, {}]", range.start(), range.end()))
}

/// More ports than there are: of no use to ask for, but more than any module may have.
fn too_many(data: &Value, target: &Target) -> Stop {
    let reason = format!("{} ports are more than there are", data["ports"]);
    match target {
        Target::Module(_) => Refusal::max_ports_exceeded(data, reason).into(),
        Target::Owner(_) => Failure::Usage(reason).into(),
    }
}

/// Prints the ranges that were freed, as `[[start, end], …]`.
fn deallocate(
    data: &Value,
    user: &TaskUser,
    connect: impl FnOnce() -> Result<Session, Failure>,
) -> Result<String, Stop> {
    let DeallocatePorts { module_id, protocol } = DeallocatePorts::of(data)?;
    let target = Target::of(user, &module_id)?;
    let parameters = target.with(json!({ "protocol": protocol }));
    let reply = connect()?.call::<Deallocated>(Method::Deallocate, &parameters);
    let Deallocated { ranges } = reply.map_err(|failure| refusal::translate(failure, data))?;
    let pair = |range: &PortRange| format!("[{}, {}]", range.start(), range.end());
    Ok(format!("[{}]", ranges.iter().map(pair).collect::<Vec<_>>().join(", ")))
}

/// Frees what the module and its helpers hold, and prints nothing. Who may remove a module is
/// decided before the task gets to the agent, and by now the module's user is gone.
fn remove(
    data: &Value,
    connect: impl FnOnce() -> Result<Session, Failure>,
) -> Result<String, Stop> {
    let RemoveModule { module_id } = RemoveModule::of(data)?;
    let parameters = json!({ "moduleId": module_id });
    connect()?.call::<ModuleRemoved>(Method::RemoveModule, &parameters)?;
    Ok(String::new())
}

/// Whose ports a call is about, and as who it is judged.
enum Target {
    /// Anybody's, as an administrator.
    Owner(Owner),
    /// The module's own, as if it had called itself.
    Module(ModuleId),
}

impl Target {
    /// Judges who asks. The agent's own, the cluster's agent and the node itself, come without a
    /// name; the agent library has put a module's id where the module gave none.
    fn of(user: &TaskUser, named: &str) -> Result<Self, Refusal> {
        match user {
            TaskUser::Administrator => {
                Owner::parse(named).map(Self::Owner).map_err(|_| Refusal::no_owner(named))
            }
            TaskUser::Module(id) if named.is_empty() || named == id.as_str() => {
                Ok(Self::Module(id.clone()))
            }
            TaskUser::Module(_) | TaskUser::Other(_) => {
                let reason = format!("{user} may not change the ports of {named:?}");
                Err(Refusal::permission_denied(named, reason))
            }
        }
    }

    /// The parameters with whom the call is about.
    fn with(&self, parameters: Value) -> Value {
        let (name, id) = match self {
            Self::Owner(owner) => ("owner", json!(owner)),
            Self::Module(id) => ("onBehalfOf", json!(id)),
        };
        let mut fields = match parameters {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        fields.insert(name.to_owned(), id);
        Value::Object(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(user: Option<&str>, named: &str) -> Result<Value, (u8, Value)> {
        let user = TaskUser::parse(user.map(Into::into));
        match Target::of(&user, named) {
            Ok(target) => Ok(target.with(json!({ "x": 1 }))),
            Err(refusal) => {
                Err((refusal.status, serde_json::from_str(&refusal.to_json()).unwrap()))
            }
        }
    }

    #[test]
    fn the_nodes_own_act_for_everybody_and_modules_for_themselves() {
        assert_eq!(target(Some(""), "mail1"), Ok(json!({ "x": 1, "owner": "mail1" })));
        assert_eq!(target(Some(""), "mail1_rsync"), Ok(json!({ "x": 1, "owner": "mail1_rsync" })));
        for named in ["mail1", ""] {
            let own = json!({ "x": 1, "onBehalfOf": "mail1" });
            assert_eq!(target(Some("module/mail1"), named), Ok(own));
        }
    }

    #[test]
    fn everybody_else_is_refused() {
        for (user, named) in [
            (Some("module/mail1"), "mail2"),
            (Some("module/mail1"), "mail1_rsync"),
            (Some("module/mail1"), "module/mail1"),
            (Some("module/"), ""),
            (Some("module/a/b"), "a/b"),
            (Some("mail1"), "mail1"),
            (Some("admin"), "mail1"),
            (Some("node/1"), "mail1"),
            (Some(" "), "mail1"),
            (None, "mail1"),
            (None, ""),
        ] {
            let denied = json!([{
                "field": "module_id", "parameter": "module_id", "value": named,
                "error": "module_permission_denied"
            }]);
            assert_eq!(target(user, named), Err((32, denied)), "{user:?} {named}");
        }
        for named in ["", "a b", "../x"] {
            let (status, faults) = target(Some(""), named).unwrap_err();
            assert_eq!((status, &faults[0]["error"]), (10, &json!("module_id_pattern")));
        }
    }
}
