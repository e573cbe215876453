//! The data of a task, by the rules of NS8's schema for the action. The agent holds them against
//! the schema itself; here it is done again because of what the schema lets through, and for whoever
//! starts an action without the agent. Unknown fields are nobody's business.

use std::io::{self, Read};

use serde_json::{Map, Value};

use super::refusal::{Fault, Refusal};
use crate::cli::failure::Failure;
use crate::model::{ModuleId, PortCount, Protocol};

/// More than any task of these has, in bytes.
const INPUT_BYTES_MAX: u64 = 64 * 1024;

/// The value on standard input.
pub(super) fn read_stdin() -> Result<Value, Failure> {
    let mut text = Vec::new();
    io::stdin()
        .lock()
        .take(INPUT_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| Failure::File(format!("standard input: {error}")))?;
    if u64::try_from(text.len()).is_ok_and(|length| length > INPUT_BYTES_MAX) {
        return Err(Failure::Usage(format!("the task is longer than {INPUT_BYTES_MAX} bytes")));
    }
    serde_json::from_slice(&text)
        .map_err(|error| Failure::Usage(format!("the task on standard input is no JSON: {error}")))
}

/// How many ports, as far as there can be so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Some(PortCount),
    TooMany,
}

#[derive(Debug, PartialEq)]
pub(super) struct AllocatePorts {
    pub(super) ports: Count,
    pub(super) module_id: String,
    pub(super) protocol: Protocol,
    pub(super) keep_existing: bool,
}

#[derive(Debug, PartialEq)]
pub(super) struct DeallocatePorts {
    pub(super) module_id: String,
    pub(super) protocol: Protocol,
}

#[derive(Debug, PartialEq)]
pub(super) struct RemoveModule {
    pub(super) module_id: ModuleId,
}

impl AllocatePorts {
    pub(super) fn of(data: &Value) -> Result<Self, Refusal> {
        let mut fields = Fields::of(data)?;
        let ports = fields.take("ports", ports);
        let module_id = fields.take("module_id", text);
        let protocol = fields.take("protocol", protocol);
        let keep_existing = fields.take("keep_existing", flag);
        match (ports, module_id, protocol, keep_existing) {
            (Some(ports), Some(module_id), Some(protocol), Some(keep_existing)) => {
                Ok(Self { ports, module_id, protocol, keep_existing })
            }
            _ => Err(Refusal::not_valid(fields.faults)),
        }
    }
}

impl DeallocatePorts {
    pub(super) fn of(data: &Value) -> Result<Self, Refusal> {
        let mut fields = Fields::of(data)?;
        match (fields.take("module_id", text), fields.take("protocol", protocol)) {
            (Some(module_id), Some(protocol)) => Ok(Self { module_id, protocol }),
            _ => Err(Refusal::not_valid(fields.faults)),
        }
    }
}

impl RemoveModule {
    pub(super) fn of(data: &Value) -> Result<Self, Refusal> {
        let mut fields = Fields::of(data)?;
        let id = |value: &Value| ModuleId::parse(&text(value)?).map_err(|_| "pattern");
        // what becomes of the data is for other steps, which have seen to it
        match fields.take("module_id", id) {
            Some(module_id) => Ok(Self { module_id }),
            None => Err(Refusal::not_valid(fields.faults)),
        }
    }
}

/// The fields of a task, and what is wrong with them. The errors are named as by the agent's check.
struct Fields<'a> {
    fields: &'a Map<String, Value>,
    faults: Vec<Fault>,
}

impl<'a> Fields<'a> {
    fn of(data: &'a Value) -> Result<Self, Refusal> {
        match data {
            Value::Object(fields) => Ok(Self { fields, faults: Vec::new() }),
            other => Err(Refusal::not_valid(vec![Fault::new("(root)", other, "invalid_type")])),
        }
    }

    /// The field of that name, if it is there and `read` can read it.
    fn take<T>(
        &mut self,
        name: &str,
        read: impl Fn(&Value) -> Result<T, &'static str>,
    ) -> Option<T> {
        let (value, outcome) = match self.fields.get(name) {
            None => (&Value::Null, Err("required")),
            Some(value) => (value, read(value)),
        };
        outcome.map_err(|error| self.faults.push(Fault::new(name, value, error))).ok()
    }
}

const INVALID_TYPE: &str = "invalid_type";

fn text(value: &Value) -> Result<String, &'static str> {
    value.as_str().map(str::to_owned).ok_or(INVALID_TYPE)
}

fn flag(value: &Value) -> Result<bool, &'static str> {
    value.as_bool().ok_or(INVALID_TYPE)
}

fn protocol(value: &Value) -> Result<Protocol, &'static str> {
    text(value)?.parse().map_err(|_| "enum")
}

/// A whole number, 4.0 being one by the rules of JSON Schema.
fn ports(value: &Value) -> Result<Count, &'static str> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0).ok_or(INVALID_TYPE)?;
    if number < 1.0 {
        return Err("number_gte");
    }
    // exact: a whole number of so few digits is written without an exponent
    let count = format!("{number}").parse::<u16>().ok();
    let count = count.and_then(|count| PortCount::try_from(count).ok());
    Ok(count.map_or(Count::TooMany, Count::Some))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task() -> Value {
        json!({ "ports": 4, "module_id": "mail1", "protocol": "tcp", "keep_existing": false })
    }

    fn with(name: &str, value: Value) -> Value {
        let mut task = task();
        task[name] = value;
        task
    }

    /// The names of the errors, if there are any.
    fn errors<T>(outcome: Result<T, Refusal>) -> Vec<String> {
        let Err(refusal) = outcome else { return Vec::new() };
        assert_eq!(refusal.status, 10);
        let faults: Value = serde_json::from_str(&refusal.to_json()).unwrap();
        let faults = faults.as_array().unwrap().iter();
        faults.map(|fault| fault["error"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_the_schema_accepts_is_accepted() {
        let four = Count::Some(PortCount::try_from(4).unwrap());
        let expected = AllocatePorts {
            ports: four,
            module_id: "mail1".to_owned(),
            protocol: Protocol::Tcp,
            keep_existing: false,
        };
        assert_eq!(AllocatePorts::of(&task()).unwrap(), expected);
        for value in [json!(4.0), serde_json::from_str("4e0").unwrap()] {
            assert_eq!(AllocatePorts::of(&with("ports", value)).unwrap().ports, four);
        }
        for task in [
            with("other", json!({})),
            with("module_id", json!("")),
            with("module_id", json!("a b")),
        ] {
            assert!(AllocatePorts::of(&task).is_ok(), "{task}");
            assert!(DeallocatePorts::of(&task).is_ok(), "{task}");
        }
        let most = Count::Some(PortCount::try_from(65535).unwrap());
        for (ports, count) in [
            (json!(65535), most),
            (json!(65536), Count::TooMany),
            (json!(u64::MAX), Count::TooMany),
            (json!(1e30), Count::TooMany),
        ] {
            assert_eq!(AllocatePorts::of(&with("ports", ports)).unwrap().ports, count);
        }
    }

    #[test]
    fn what_is_wrong_is_told_field_by_field() {
        for (name, value, error) in [
            ("ports", json!("4"), "ports_invalid_type"),
            ("ports", json!(1.5), "ports_invalid_type"),
            ("ports", json!(null), "ports_invalid_type"),
            ("ports", json!(true), "ports_invalid_type"),
            ("ports", json!(0), "ports_number_gte"),
            ("ports", json!(-1), "ports_number_gte"),
            ("ports", json!(i64::MIN), "ports_number_gte"),
            ("ports", json!(-1e30), "ports_number_gte"),
            ("module_id", json!(1), "module_id_invalid_type"),
            ("protocol", json!(6), "protocol_invalid_type"),
            ("protocol", json!("TCP"), "protocol_enum"),
            ("protocol", json!("sctp"), "protocol_enum"),
            ("keep_existing", json!("false"), "keep_existing_invalid_type"),
            ("keep_existing", json!(0), "keep_existing_invalid_type"),
        ] {
            assert_eq!(errors(AllocatePorts::of(&with(name, value))), [error]);
        }
        let all =
            ["ports_required", "module_id_required", "protocol_required", "keep_existing_required"];
        assert_eq!(errors(AllocatePorts::of(&json!({}))), all);
        assert_eq!(errors(DeallocatePorts::of(&json!({}))), all[1..3]);
        let module = json!({ "module_id": "a/b" });
        assert_eq!(errors(RemoveModule::of(&module)), ["module_id_pattern"]);
        for value in [json!(null), json!([]), json!("x"), json!(1)] {
            assert_eq!(errors(AllocatePorts::of(&value)), ["(root)_invalid_type"]);
        }
    }

    #[test]
    fn the_callers_get_the_shape_they_know() {
        let refusal = AllocatePorts::of(&with("ports", json!(0))).unwrap_err();
        let expected =
            r#"[{"field":"ports","parameter":"ports","value":0,"error":"ports_number_gte"}]"#;
        assert_eq!(refusal.to_json(), expected);
    }
}
