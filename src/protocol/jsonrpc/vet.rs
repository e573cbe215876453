//! Looks at the body of a request before jsonrpsee does.
//!
//! jsonrpsee takes a call whose id it can't use for a notification, and would carry out or drop it
//! without an answer. So each call is judged here, and one that is no proper call is replaced by a
//! text that jsonrpsee answers as an invalid request.

use serde_json::value::RawValue;

use crate::protocol::params::Members;

/// What to do with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Vetted {
    /// Let jsonrpsee answer this text.
    Forward(String),
    /// Nothing but notifications: there is nothing to answer and nothing to do.
    Nothing,
}

/// A text that jsonrpsee answers as one that can't be parsed.
const UNPARSABLE: &str = "{";

/// Judges a body. `batch_max` calls make a batch that jsonrpsee still answers call by call.
pub(super) fn vet(body: &[u8], batch_max: usize) -> Vetted {
    let Ok(text) = serde_json::from_slice::<&RawValue>(body) else {
        return Vetted::Forward(UNPARSABLE.to_owned());
    };
    match serde_json::from_str::<Vec<&RawValue>>(text.get()) {
        Err(_) => match vet_call(text.get()) {
            Some(call) => Vetted::Forward(call),
            None => Vetted::Nothing,
        },
        // an empty batch, or one that is too large, is refused as a whole
        Ok(calls) if calls.is_empty() || calls.len() > batch_max => {
            Vetted::Forward(text.get().to_owned())
        }
        Ok(calls) => {
            let calls: Vec<_> = calls.iter().filter_map(|call| vet_call(call.get())).collect();
            if calls.is_empty() {
                Vetted::Nothing
            } else {
                Vetted::Forward(format!("[{}]", calls.join(",")))
            }
        }
    }
}

/// The text to forward for a call, or `None` for a notification.
fn vet_call(text: &str) -> Option<String> {
    let Ok(members) = serde_json::from_str::<Members<'_>>(text) else {
        return Some(invalid("null"));
    };
    let member =
        |name| members.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.get());
    let is_text = |value| serde_json::from_str::<String>(value).is_ok();
    // a misspelt "params" must not make a call without parameters
    let is_known = |name: &String| ["jsonrpc", "id", "method", "params"].contains(&name.as_str());
    let is_call = members.0.iter().all(|(name, _)| is_known(name))
        && member("method").is_some_and(is_text)
        && member("jsonrpc").is_some_and(|version| {
            serde_json::from_str::<String>(version).is_ok_and(|version| version == "2.0")
        });
    match member("id") {
        Some(id) if !is_usable_id(id) || members.repeated().is_some() => Some(invalid("null")),
        Some(id) if !is_call => Some(invalid(id)),
        None if !is_call || members.repeated().is_some() => Some(invalid("null")),
        Some(_) => Some(text.to_owned()),
        None => None,
    }
}

/// A text that jsonrpsee answers as an invalid request with that id.
fn invalid(id: &str) -> String {
    format!(r#"{{"id":{id}}}"#)
}

/// Whether jsonrpsee can answer with that id: a text, null, or an unsigned 64-bit integer.
fn is_usable_id(id: &str) -> bool {
    id == "null"
        || serde_json::from_str::<u64>(id).is_ok()
        || serde_json::from_str::<String>(id).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(body: &str) -> String {
        match vet(body.as_bytes(), 4) {
            Vetted::Forward(text) => text,
            Vetted::Nothing => String::new(),
        }
    }

    const CALL: &str = r#"{"jsonrpc":"2.0","method":"x","id":1}"#;
    const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"x"}"#;

    #[test]
    fn calls_go_on_as_they_are() {
        for id in ["null", "0", "18446744073709551615", r#""a""#, r#""""#, r#""\u0061""#] {
            let call = format!(r#"{{"jsonrpc":"2.0","method":"x","id":{id}}}"#);
            assert_eq!(forwarded(&call), call);
        }
        assert_eq!(forwarded(&format!("  {CALL}\n")), CALL);
    }

    #[test]
    fn notifications_are_dropped() {
        assert_eq!(vet(NOTIFICATION.as_bytes(), 4), Vetted::Nothing);
        assert_eq!(vet(format!("[{NOTIFICATION},{NOTIFICATION}]").as_bytes(), 4), Vetted::Nothing);
        assert_eq!(forwarded(&format!("[{NOTIFICATION},{CALL}]")), format!("[{CALL}]"));
    }

    #[test]
    fn a_call_with_an_unusable_id_is_none() {
        for id in ["-1", "1.5", "1e2", "true", "{}", "[]", "18446744073709551616", "-0"] {
            let call = format!(r#"{{"jsonrpc":"2.0","method":"x","id":{id}}}"#);
            assert_eq!(forwarded(&call), r#"{"id":null}"#);
            assert_eq!(
                forwarded(&format!("[{call},{CALL}]")),
                format!(r#"[{{"id":null}},{CALL}]"#)
            );
        }
    }

    #[test]
    fn what_is_no_call_keeps_its_id() {
        for (body, expected) in [
            (r#"{"method":"x","id":7}"#, r#"{"id":7}"#),
            (r#"{"jsonrpc":"1.0","method":"x","id":7}"#, r#"{"id":7}"#),
            (r#"{"jsonrpc":"2.0","method":1,"id":"a"}"#, r#"{"id":"a"}"#),
            (r#"{"jsonrpc":"2.0","id":7}"#, r#"{"id":7}"#),
            (r#"{"jsonrpc":"2.0","method":"x","id":1,"id":2}"#, r#"{"id":null}"#),
            (r#"{"jsonrpc":"2.0","method":"x","method":"y"}"#, r#"{"id":null}"#),
            (r#"{"method":"x"}"#, r#"{"id":null}"#),
            (r#"{"jsonrpc":"2.0","method":"x","id":7,"param":{}}"#, r#"{"id":7}"#),
            ("{}", r#"{"id":null}"#),
            ("1", r#"{"id":null}"#),
            ("[1,[]]", r#"[{"id":null},{"id":null}]"#),
            ("[]", "[]"),
            ("[1,2,3,4,5]", "[1,2,3,4,5]"),
        ] {
            assert_eq!(forwarded(body), expected, "{body}");
        }
    }

    #[test]
    fn what_is_no_json_is_unparsable() {
        for body in ["", "{", "[1", "nonsense", "{}x", "{}\0x", "\u{feff}{}"] {
            assert_eq!(forwarded(body), UNPARSABLE, "{body:?}");
        }
        assert_eq!(vet(b"{\"id\":\"\xff\"}", 4), Vetted::Forward(UNPARSABLE.to_owned()));
    }
}
