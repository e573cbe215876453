//! The parameters of a call, by name and still as text until their type is known.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Spelling;

/// The name of a parameter that can't be taken, as the wire spells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadParameter(pub String);

/// The members of a JSON object in the order given, repeated ones included.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl Members<'_> {
    /// The first name that stands there twice.
    pub(super) fn repeated(&self) -> Option<&str> {
        let mut seen = HashSet::new();
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

/// The parameters of one call, all of them known to the method and none given twice.
pub(super) struct Params<'a> {
    members: Members<'a>,
    spelling: Spelling,
}

impl<'a> Params<'a> {
    /// Takes the parameters of a method that knows those named in `known`, in camelCase.
    pub(super) fn parse(
        raw: Option<&'a RawValue>,
        spelling: Spelling,
        known: &[&str],
    ) -> Result<Self, BadParameter> {
        let whole = match spelling {
            Spelling::CamelCase => "parameters",
            Spelling::SnakeCase => "params",
        };
        // null stands for nothing, as it does for a single parameter
        let text = raw.map(RawValue::get).filter(|text| *text != "null").unwrap_or("{}");
        let members: Members<'a> =
            serde_json::from_str(text).map_err(|_| BadParameter(whole.to_owned()))?;
        let is_known = |name: &str| known.iter().any(|known| spelling.spell(known) == name);
        if let Some((name, _)) = members.0.iter().find(|(name, _)| !is_known(name)) {
            return Err(BadParameter(name.clone()));
        }
        match members.repeated() {
            Some(name) => Err(BadParameter(name.to_owned())),
            None => Ok(Self { members, spelling }),
        }
    }

    /// The refusal of the parameter `name`, which is given in camelCase.
    pub(super) fn bad(&self, name: &str) -> BadParameter {
        BadParameter(self.spelling.spell(name))
    }

    /// A parameter that has to be there.
    pub(super) fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T, BadParameter> {
        self.optional(name)?.ok_or_else(|| self.bad(name))
    }

    /// A parameter that may be absent, or null.
    pub(super) fn optional<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, BadParameter> {
        match self.raw(name) {
            Some(raw) => serde_json::from_str(raw.get()).map_err(|_| self.bad(name)),
            None => Ok(None),
        }
    }

    /// An object of texts that has to be there, without a repeated key.
    pub(super) fn required_texts(
        &self,
        name: &str,
    ) -> Result<BTreeMap<String, String>, BadParameter> {
        let bad = || self.bad(name);
        let raw = self.raw(name).ok_or_else(bad)?;
        let members: Members<'_> = serde_json::from_str(raw.get()).map_err(|_| bad())?;
        let count = members.0.len();
        let texts: BTreeMap<String, String> = members
            .0
            .into_iter()
            .map(|(key, value)| Some((key, serde_json::from_str(value.get()).ok()?)))
            .collect::<Option<_>>()
            .ok_or_else(bad)?;
        if texts.len() == count { Ok(texts) } else { Err(bad()) }
    }

    /// A parameter as text, if it is there.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let name = self.spelling.spell(name);
        self.members.0.iter().find(|(given, _)| *given == name).map(|(_, raw)| *raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PortCount, Protocol};

    fn parse(text: &str) -> Result<(PortCount, Option<Protocol>), BadParameter> {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let params = Params::parse(Some(raw), Spelling::SnakeCase, &["portCount", "protocol"])?;
        Ok((params.required("portCount")?, params.optional("protocol")?))
    }

    #[test]
    fn good_parameters_are_taken() {
        let count = PortCount::try_from(4).unwrap();
        assert_eq!(parse(r#"{"port_count": 4}"#), Ok((count, None)));
        assert_eq!(parse(r#"{"port_count": 4, "protocol": null}"#), Ok((count, None)));
        assert_eq!(
            parse(r#"{"\u0070ort_count": 4, "protocol": "t\u0063p"}"#),
            Ok((count, Some(Protocol::Tcp)))
        );
    }

    #[test]
    fn bad_parameters_are_named() {
        for (text, name) in [
            ("{}", "port_count"),
            ("[4]", "params"),
            ("\"x\"", "params"),
            (r#"{"portCount": 4}"#, "portCount"),
            (r#"{"port_count": 4, "prot": "tcp"}"#, "prot"),
            (r#"{"port_count": 4, "port_count": 5}"#, "port_count"),
            (r#"{"port_count": 4, "port\u005fcount": 4}"#, "port_count"),
            (r#"{"port_count": 4, "protocol": "TCP"}"#, "protocol"),
            (r#"{"port_count": 4, "protocol": ["tcp"]}"#, "protocol"),
            (r#"{"port_count": 4, "protocol": {"tcp": null}}"#, "protocol"),
        ] {
            assert_eq!(parse(text), Err(BadParameter(name.to_owned())), "{text}");
        }
    }

    #[test]
    fn numbers_are_exact_integers_in_range() {
        for number in [
            "0",
            "-1",
            "-0",
            "4.0",
            "1e3",
            "1E3",
            "65536",
            "2147483648",
            "9007199254740993",
            "18446744073709551616",
            "1e400",
            "\"4\"",
            "null",
            "true",
            "[]",
        ] {
            let text = format!(r#"{{"port_count": {number}}}"#);
            assert_eq!(parse(&text), Err(BadParameter("port_count".to_owned())), "{number}");
        }
    }
}
