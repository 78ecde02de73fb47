//! Digests of an object's values by path.
//!
//! Objects are followed, everything else is a leaf: a changed list appears whole in `previous_attributes`. A digest
//! is the first 8 bytes of the SHA-256 of the value's JSON with sorted keys, so that it means the same in every build.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::field::unreadable;
use crate::domain::event::{Trace, Unreadable};

pub(super) fn read(object: &str, previous: Option<&str>) -> Result<Trace, Unreadable> {
    Ok(Trace {
        values: leaves(object, "")?,
        previous: previous.map(|text| leaves(text, "previous_attributes")).transpose()?,
    })
}

fn leaves(text: &str, field: &'static str) -> Result<Vec<(String, u64)>, Unreadable> {
    let value: Value = serde_json::from_str(text).map_err(|_| unreadable(field, "nested too deeply, or no number"))?;
    let mut leaves = Vec::new();
    if let Value::Object(fields) = &value {
        for (name, value) in fields {
            flatten(name.clone(), value, &mut leaves);
        }
    }
    leaves.sort_unstable();
    Ok(leaves)
}

fn flatten(path: String, value: &Value, leaves: &mut Vec<(String, u64)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(format!("{path}.{name}"), value, leaves);
            }
        }
        leaf => leaves.push((path, digest(leaf))),
    }
}

fn digest(value: &Value) -> u64 {
    let mut canonical = String::new();
    write_canonical(value, &mut canonical);
    let hash = Sha256::digest(canonical.as_bytes());
    hash.iter().take(8).fold(0, |digest, byte| digest << 8 | u64::from(*byte))
}

/// Keys are sorted here, because the order of serde_json's map depends on features that other crates choose.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            out.push('{');
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, value) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_canonical(value, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
