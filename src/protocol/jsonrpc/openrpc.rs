//! What a socket offers, as an OpenRPC document: the interface descriptions in other words.

use serde_json::{Map, Value, json};
use zlink_idl::{Comment, CustomType, Field, Interface, Type};

use super::offered;
use crate::error::Condition;
use crate::peer::Scope;
use crate::protocol::{ADMIN_IDL, PORTS_IDL, Spelling};

/// The version of the OpenRPC specification that the document follows.
const OPENRPC: &str = "1.3.2";

/// The document for sockets of that scope.
pub(super) fn document(scope: Scope) -> Result<Value, zlink_idl::parse::Error> {
    let texts: &[&str] = match scope {
        Scope::Module => &[PORTS_IDL],
        Scope::Admin => &[PORTS_IDL, ADMIN_IDL],
    };
    let mut methods = Vec::new();
    let mut schemas = Map::new();
    let is_offered = |one: &&zlink_idl::Method<'_>| {
        offered(scope).any(|(method, _)| one.name() == method.name())
    };
    for text in texts {
        let interface = Interface::try_from(*text)?;
        methods.extend(interface.methods().filter(is_offered).map(method));
        for custom in interface.custom_types() {
            schemas.insert(custom.name().to_string(), custom_schema(custom));
        }
    }
    Ok(json!({
        "openrpc": OPENRPC,
        "info": {
            "title": env!("CARGO_PKG_NAME"),
            "description": env!("CARGO_PKG_DESCRIPTION"),
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": env!("CARGO_PKG_LICENSE") },
        },
        "methods": methods,
        "components": { "schemas": schemas },
    }))
}

fn method(method: &zlink_idl::Method<'_>) -> Value {
    let params: Vec<_> = method
        .inputs()
        .map(|field| {
            json!({
                "name": spelt(field),
                "description": said(field.comments()),
                "required": is_required(field),
                "schema": schema(field.ty()),
            })
        })
        .collect();
    json!({
        "name": Spelling::SnakeCase.spell(method.name().as_ref()),
        "description": said(method.comments()),
        "paramStructure": "by-name",
        "params": params,
        "result": { "name": "result", "schema": object_schema(method.outputs()) },
        "errors": errors(),
    })
}

/// The conditions of the error table; data has their name and fields.
fn errors() -> Vec<Value> {
    let rows = Condition::ALL.iter().map(|condition| condition.row());
    rows.map(|row| json!({ "code": row.json_rpc_code, "message": row.name })).collect()
}

fn custom_schema(custom: &CustomType<'_>) -> Value {
    if let Some(object) = custom.as_object() {
        let mut schema = object_schema(object.fields());
        schema["description"] = said(object.comments()).into();
        schema
    } else {
        let variants = custom.as_enum().into_iter().flat_map(zlink_idl::CustomEnum::variants);
        let names: Vec<_> = variants.map(|variant| variant.name().to_string()).collect();
        json!({ "type": "string", "enum": names })
    }
}

fn object_schema<'a>(fields: impl Iterator<Item = &'a Field<'a>>) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let mut property = schema(field.ty());
        property["description"] = said(field.comments()).into();
        properties.insert(spelt(field), property);
    }
    // every field of a result is there, if only as null
    let required: Vec<_> = properties.keys().cloned().collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn schema(kind: &Type<'_>) -> Value {
    match kind {
        Type::Bool => json!({ "type": "boolean" }),
        Type::Int => json!({ "type": "integer" }),
        Type::Float => json!({ "type": "number" }),
        Type::String => json!({ "type": "string" }),
        Type::Optional(inner) => json!({ "anyOf": [schema(inner), { "type": "null" }] }),
        Type::Array(inner) => json!({ "type": "array", "items": schema(inner) }),
        Type::Map(inner) => json!({ "type": "object", "additionalProperties": schema(inner) }),
        Type::Custom(name) => json!({ "$ref": format!("#/components/schemas/{name}") }),
        Type::Object(fields) => object_schema(fields.iter()),
        Type::Enum(variants) => {
            let names: Vec<_> = variants.iter().map(|one| one.name().to_string()).collect();
            json!({ "type": "string", "enum": names })
        }
        Type::ForeignObject | Type::Any => json!({}),
    }
}

fn is_required(field: &Field<'_>) -> bool {
    field.ty().as_optional().is_none()
}

fn spelt(field: &Field<'_>) -> String {
    Spelling::SnakeCase.spell(field.name().as_ref())
}

/// The comment as one paragraph.
fn said<'a>(comments: impl Iterator<Item = &'a Comment<'a>>) -> String {
    comments.map(|comment| comment.text().trim()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_socket_is_there() {
        for scope in [Scope::Module, Scope::Admin] {
            let document = document(scope).unwrap();
            let names: Vec<_> =
                document["methods"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
            assert_eq!(names.len(), offered(scope).count());
            for (method, name) in offered(scope) {
                assert!(names.contains(&&json!(name)), "{method:?}");
            }
        }
    }

    #[test]
    fn parameters_and_results_are_described() {
        let document = document(Scope::Admin).unwrap();
        let method = |name: &str| {
            document["methods"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()
        };
        let allocate = method("allocate");
        let keep = &allocate["params"][2];
        assert_eq!((&keep["name"], &keep["required"]), (&json!("keep_existing"), &json!(false)));
        assert_eq!(allocate["params"][0]["schema"], json!({ "type": "integer" }));
        assert_eq!(
            allocate["params"][1]["schema"],
            json!({ "$ref": "#/components/schemas/Protocol" })
        );
        let range = &allocate["result"]["schema"]["properties"]["range"];
        assert_eq!(range["$ref"], "#/components/schemas/PortRange");
        let schemas = &document["components"]["schemas"];
        assert_eq!(schemas["Protocol"]["enum"], json!(["tcp", "udp"]));
        assert!(schemas["Allocation"]["properties"]["allocated_at"].is_object());
        let labels = &method("set_module")["params"][2]["schema"];
        assert_eq!(labels["additionalProperties"], json!({ "type": "string" }));
        assert_eq!(allocate["errors"].as_array().unwrap().len(), Condition::ALL.len());
    }
}
