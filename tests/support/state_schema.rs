//! Checks a state's document against `docs/state.schema.json`. Supports only the parts of JSON Schema that
//! this schema uses.

use super::root;
use serde_json::{Map, Value as Json};
use std::fs;
use std::sync::LazyLock;

static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let text = fs::read_to_string(root().join("docs/state.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
});

/// Checks a document.
///
/// # Errors
/// The place where the document differs from the schema, and how.
pub fn check(document: &Json) -> Result<(), String> {
    conforms(&SCHEMA, document, "")
}

/// A field of the format.
pub struct Field {
    /// The path of the field, as in `at[].cursor.taken`.
    pub path: String,
    pub required: bool,
    pub description: String,
}

/// All fields.
pub fn fields() -> Vec<Field> {
    let mut fields = Vec::new();
    collect(&SCHEMA, "", &mut fields);
    fields
}

fn collect(schema: &Json, path: &str, fields: &mut Vec<Field>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, property) in properties {
        let path = format!("{path}{name}");
        let required = schema["required"].as_array().is_some_and(|all| all.contains(&name.as_str().into()));
        let description = property["description"].as_str().expect("each field is described").to_owned();
        fields.push(Field { path: path.clone(), required, description });
        let (value, path) = match property.get("items") {
            Some(items) => (items, format!("{path}[].")),
            None => (property, format!("{path}.")),
        };
        if let Some(name) = value["$ref"].as_str() {
            collect(resolve(name), &path, fields);
        }
    }
}

fn resolve(name: &str) -> &'static Json {
    SCHEMA.pointer(name.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("{name} is not defined"))
}

fn conforms(schema: &Json, value: &Json, at: &str) -> Result<(), String> {
    let require = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{at}: {value} {what}")) };
    for (keyword, wanted) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => {}
            "$ref" => conforms(resolve(wanted.as_str().unwrap()), value, at)?,
            "type" => require(is_of_type(value, wanted.as_str().unwrap()), &format!("is no {wanted}"))?,
            "const" => require(value == wanted, &format!("is not {wanted}"))?,
            "enum" => require(wanted.as_array().unwrap().contains(value), &format!("is none of {wanted}"))?,
            "minimum" => require(value.as_u64() >= wanted.as_u64(), "is too small")?,
            "maximum" => require(value.as_u64() <= wanted.as_u64(), "is too large")?,
            "pattern" => {
                assert_eq!(wanted, "^[0-9a-f]{16}$", "no other pattern is known here");
                let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                let is_hash = |text: &str| text.len() == 16 && text.bytes().all(is_digit);
                require(value.as_str().is_some_and(is_hash), "is no hash of 16 digits")?;
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    conforms(wanted, item, &format!("{at}/{index}"))?;
                }
            }
            "minProperties" => require(members(value).len() as u64 >= wanted.as_u64().unwrap(), "is empty")?,
            "maxProperties" => {
                require(members(value).len() as u64 <= wanted.as_u64().unwrap(), "has several fields")?;
            }
            "required" => {
                for name in wanted.as_array().unwrap() {
                    require(members(value).contains_key(name.as_str().unwrap()), &format!("lacks {name}"))?;
                }
            }
            "properties" => {
                for (name, property) in wanted.as_object().unwrap() {
                    if let Some(member) = members(value).get(name) {
                        conforms(property, member, &format!("{at}/{name}"))?;
                    }
                }
            }
            "additionalProperties" => {
                let is_known = |name: &String| schema["properties"].get(name).is_some();
                for (name, member) in members(value).iter().filter(|(name, _)| !is_known(name)) {
                    require(*wanted != Json::Bool(false), &format!("has the unknown field {name}"))?;
                    conforms(wanted, member, &format!("{at}/{name}"))?;
                }
            }
            keyword => panic!("{keyword} is not known here"),
        }
    }
    Ok(())
}

/// The fields of an object; no fields for any other value.
fn members(value: &Json) -> &Map<String, Json> {
    static NONE: LazyLock<Map<String, Json>> = LazyLock::new(Map::new);
    value.as_object().unwrap_or(&NONE)
}

fn is_of_type(value: &Json, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        name => panic!("{name} is not known here"),
    }
}
