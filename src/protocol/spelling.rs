//! The same names, as each wire spells them.

use serde_json::Value;

/// How a wire spells the names of parameters and fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `keepExisting`, as the interface descriptions have it.
    CamelCase,
    /// `keep_existing`
    SnakeCase,
}

impl Spelling {
    /// Spells a name that is given in camelCase.
    #[must_use]
    pub fn spell(self, name: &str) -> String {
        match self {
            Self::CamelCase => name.to_owned(),
            Self::SnakeCase => snake_case(name),
        }
    }

    /// Spells the keys of every object in `value`, which are given in camelCase. All of them have
    /// to be names, none of them data.
    pub(super) fn respell(self, value: Value) -> Value {
        match (self, value) {
            (Self::SnakeCase, Value::Object(fields)) => fields
                .into_iter()
                .map(|(name, field)| (snake_case(&name), self.respell(field)))
                .collect(),
            (Self::SnakeCase, Value::Array(items)) => {
                items.into_iter().map(|item| self.respell(item)).collect()
            }
            (_, value) => value,
        }
    }
}

fn snake_case(name: &str) -> String {
    let mut spelt = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !spelt.is_empty() {
            spelt.push('_');
        }
        spelt.push(letter.to_ascii_lowercase());
    }
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt() {
        for (camel, snake) in [
            ("ports", "ports"),
            ("keepExisting", "keep_existing"),
            ("tcpPortsDemand", "tcp_ports_demand"),
            ("WhoAmI", "who_am_i"),
        ] {
            assert_eq!(Spelling::SnakeCase.spell(camel), snake);
            assert_eq!(Spelling::CamelCase.spell(camel), camel);
        }
    }

    #[test]
    fn only_keys_are_respelt() {
        let value = serde_json::json!({"moduleId": "mailBox", "items": [{"aB": null}]});
        assert_eq!(
            Spelling::SnakeCase.respell(value),
            serde_json::json!({"module_id": "mailBox", "items": [{"a_b": null}]})
        );
    }
}
