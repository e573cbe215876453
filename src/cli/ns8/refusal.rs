//! The errors that NS8's callers know, and what they stand for.

use serde::Serialize;
use serde_json::{Value, json};

use super::Stop;
use crate::cli::failure::Failure;
use crate::error::Condition;

/// The agent's own status for input that is not valid.
const NOT_VALID: u8 = 10;
/// NS8's status where a module may not do this.
const PERMISSION_DENIED: u8 = 32;
/// NS8's status where a module asks for more than its image does.
const MAX_PORTS_EXCEEDED: u8 = 33;

/// What is wrong with one of the task's fields.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Fault {
    field: String,
    /// The field again: none of ours is inside another one.
    parameter: String,
    value: Value,
    error: String,
}

impl Fault {
    /// `error` without the field's name in front of it, as the agent's own check has it.
    pub(super) fn new(field: &str, value: &Value, error: &str) -> Self {
        let (field, error) = (field.to_owned(), format!("{field}_{error}"));
        Self { parameter: field.clone(), field, value: value.clone(), error }
    }
}

/// Why a task is refused: for the caller in NS8's words, for the log in ours.
#[derive(Debug)]
pub(super) struct Refusal {
    faults: Vec<Fault>,
    pub(super) status: u8,
    pub(super) reason: String,
}

impl Refusal {
    /// The task's data are not as the action's schema has them.
    pub(super) fn not_valid(faults: Vec<Fault>) -> Self {
        let errors: Vec<_> = faults.iter().map(|fault| fault.error.as_str()).collect();
        let reason = format!("the task's data are not valid: {}", errors.join(", "));
        Self { faults, status: NOT_VALID, reason }
    }

    /// Nobody can hold ports by that name.
    pub(super) fn no_owner(named: &str) -> Self {
        Self::not_valid(vec![Fault::new("module_id", &json!(named), "pattern")])
    }

    pub(super) fn permission_denied(named: impl Into<Value>, reason: String) -> Self {
        Self::of("module_id", &named.into(), "module_permission_denied", PERMISSION_DENIED, reason)
    }

    pub(super) fn max_ports_exceeded(data: &Value, reason: String) -> Self {
        Self::of("ports", &data["ports"], "max_ports_exceeded", MAX_PORTS_EXCEEDED, reason)
    }

    fn of(field: &str, value: &Value, error: &str, status: u8, reason: String) -> Self {
        let error = error.to_owned();
        let fault = Fault { error, ..Fault::new(field, value, "") };
        Self { faults: vec![fault], status, reason }
    }

    /// The list that the caller gets.
    pub(super) fn to_json(&self) -> String {
        json!(self.faults).to_string()
    }
}

/// What the service's refusal is in NS8's words, if it has any for it.
pub(super) fn translate(failure: Failure, data: &Value) -> Stop {
    let (reason, _) = failure.parts();
    match failure.condition() {
        Some(Condition::PermissionDenied | Condition::MissingRole | Condition::UnknownModule) => {
            Refusal::permission_denied(data["module_id"].clone(), reason).into()
        }
        Some(Condition::DemandExceeded) => Refusal::max_ports_exceeded(data, reason).into(),
        Some(
            Condition::PoolExhausted
            | Condition::CannotGrow
            | Condition::NotAllocated
            | Condition::Occupied
            | Condition::NameTaken
            | Condition::RegistryUnavailable
            | Condition::StorageFailure
            | Condition::ShuttingDown
            | Condition::InvalidParameter,
        )
        | None => Stop::Failed(failure),
    }
}
