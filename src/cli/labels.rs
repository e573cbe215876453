//! The labels of an image, from the command line and from what `podman image inspect` prints.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;

use serde_json::{Map, Value};

use super::failure::Failure;
use crate::registry;

/// More than any description of an image has.
const INPUT_BYTES_MAX: u64 = 1024 * 1024;

/// Labels and their values.
type Labels = BTreeMap<String, String>;

/// One label: `KEY=VALUE`, where the value may be empty or have more equals signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    key: String,
    value: String,
}

impl FromStr for Label {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                Ok(Self { key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err("not of the form KEY=VALUE"),
        }
    }
}

/// Where more labels come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        if text == "-" { Self::Stdin } else { Self::File(PathBuf::from(text)) }
    }
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::Stdin => "standard input".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// What is there, but one byte more than allowed at most.
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let limit = INPUT_BYTES_MAX + 1;
        match self {
            Self::Stdin => io::stdin().lock().take(limit).read_to_end(&mut bytes)?,
            Self::File(path) => File::open(path)?.take(limit).read_to_end(&mut bytes)?,
        };
        Ok(bytes)
    }
}

/// All labels together; single ones count more than those from the source. A label that the
/// service would refuse is refused here, where it can be named.
pub(super) fn gather(source: Option<Source>, single: Vec<Label>) -> Result<Labels, Failure> {
    let mut labels = match source {
        Some(source) => read(&source)?,
        None => Labels::new(),
    };
    labels.extend(single.into_iter().map(|Label { key, value }| (key, value)));
    registry::Labels::parse(&labels).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(labels)
}

fn read(source: &Source) -> Result<Labels, Failure> {
    let name = source.name();
    let bytes = source.read().map_err(|error| Failure::File(format!("{name}: {error}")))?;
    parse(&bytes).map_err(|reason| {
        Failure::Usage(format!(
            "{name}: {reason}; expected the output of `podman image inspect IMAGE`, or an object \
             of labels"
        ))
    })
}

fn parse(bytes: &[u8]) -> Result<Labels, String> {
    if u64::try_from(bytes.len()).is_ok_and(|length| length > INPUT_BYTES_MAX) {
        return Err(format!("longer than {INPUT_BYTES_MAX} bytes"));
    }
    if bytes.trim_ascii().is_empty() {
        return Err("empty".to_owned());
    }
    let value = serde_json::from_slice(bytes).map_err(|error| format!("no JSON: {error}"))?;
    match value {
        Value::Array(images) => match <[Value; 1]>::try_from(images) {
            Ok([Value::Object(image)]) => of_object(image),
            Ok(_) => Err("an array, but not of an object".to_owned()),
            Err(images) => Err(format!("{} images instead of one", images.len())),
        },
        Value::Object(object) => of_object(object),
        _ => Err("neither an array nor an object".to_owned()),
    }
}

/// The labels of an image's description, or those that the object itself has: a label is a text,
/// which in a description neither `Labels` nor `Config` is.
fn of_object(mut object: Map<String, Value>) -> Result<Labels, String> {
    let is_description =
        ["Labels", "Config"].iter().any(|key| object.get(*key).is_some_and(|it| !it.is_string()));
    if !is_description {
        return texts(Value::Object(object));
    }
    let own = object.get_mut("Labels").map(Value::take).unwrap_or_default();
    let configured = object.get_mut("Config").and_then(|config| config.get_mut("Labels"));
    match (own, configured.map(Value::take)) {
        (Value::Null, None | Some(Value::Null)) => Ok(Labels::new()),
        (Value::Null, Some(labels)) | (labels, _) => texts(labels),
    }
}

fn texts(labels: Value) -> Result<Labels, String> {
    let Value::Object(labels) = labels else {
        return Err("the labels are no object".to_owned());
    };
    let text = |(key, value)| match value {
        Value::String(value) => Ok((key, value)),
        _ => Err(format!("the value of {key:?} is no text")),
    };
    labels.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Result<String, String> {
        let labels = parse(text.as_bytes())?;
        let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Ok(pairs.join(" "))
    }

    #[test]
    fn every_shape_is_taken() {
        for (text, labels) in [
            (r#"[{"Id": "x", "Labels": {"a": "1", "b": ""}}]"#, "a=1 b="),
            (r#"{"Labels": {"a": "1"}}"#, "a=1"),
            (r#"[{"Labels": {"a": "1"}, "Config": {"Labels": {"a": "2"}}}]"#, "a=1"),
            (r#"[{"Labels": {}, "Config": {"Labels": {"a": "2"}}}]"#, ""),
            (r#"[{"Labels": null, "Config": {"Labels": {"a": "2"}}}]"#, "a=2"),
            (r#"[{"Config": {"Labels": {"a": "2"}}}]"#, "a=2"),
            (r#"[{"Config": {"Labels": null}}]"#, ""),
            (r#"[{"Config": {}}]"#, ""),
            (r#"[{"Config": null}]"#, ""),
            (r#"[{"Labels": null}]"#, ""),
            (r#"{"a": "1", "b": "2"}"#, "a=1 b=2"),
            (r#"{"Labels": "1", "Config": "2"}"#, "Config=2 Labels=1"),
            ("{}", ""),
            (" \n[ {\"Labels\": {}} ]\n", ""),
        ] {
            assert_eq!(keys(text).as_deref(), Ok(labels), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, reason) in [
            ("", "empty"),
            (" \n", "empty"),
            ("x", "no JSON"),
            ("{", "no JSON"),
            ("{} {}", "no JSON"),
            ("\"x\"", "neither an array nor an object"),
            ("[]", "0 images"),
            ("[{}, {}]", "2 images"),
            ("[1]", "not of an object"),
            (r#"{"a": 1}"#, "\"a\" is no text"),
            (r#"{"Labels": {"a": null}}"#, "\"a\" is no text"),
            (r#"{"Labels": []}"#, "no object"),
            (r#"[{"Id": "x", "Size": 5}]"#, "\"Size\" is no text"),
        ] {
            let error = keys(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(parse(&[0xff]).unwrap_err().contains("no JSON"));
        assert!(parse(&vec![b' '; 1024 * 1024 + 1]).unwrap_err().contains("longer than"));
    }

    #[test]
    fn single_labels_are_split_at_the_first_equals_sign() {
        let label = |text: &str| text.parse().map(|Label { key, value }| (key, value));
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(label("a=b"), pair("a", "b"));
        assert_eq!(label("a=b=c"), pair("a", "b=c"));
        assert_eq!(label("a="), pair("a", ""));
        for bad in ["", "a", "=", "=b"] {
            assert!(label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn single_labels_count_more_and_bad_ones_are_named() {
        let single = |text: &str| text.parse::<Label>().unwrap();
        let labels = gather(None, vec![single("a=1"), single("b=2"), single("a=3")]).unwrap();
        assert_eq!(labels, Labels::from([("a".into(), "3".into()), ("b".into(), "2".into())]));
        match gather(None, vec![single("org.nethserver.tcp-ports-demand=x")]) {
            Err(Failure::Usage(message)) => {
                assert!(message.contains("tcp-ports-demand"));
            }
            other => panic!("{other:?}"),
        }
    }
}
