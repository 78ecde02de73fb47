//! Digests of an object's values by path.
//!
//! Objects are followed, everything else is a leaf: a changed list appears whole in `previous_attributes`. A digest
//! is 64-bit FNV-1a over the value's JSON with sorted keys: it means the same in every build, and it need not resist
//! anyone, because only Stripe can sign what is digested.

use serde_json::Value;

use super::field::unreadable;
use crate::domain::event::{Trace, Unreadable};

pub(super) fn read(object: &str, previous: Option<&str>) -> Result<Trace, Unreadable> {
    Ok(Trace {
        values: leaves(object, "", true)?,
        previous: previous.map(|text| leaves(text, "previous_attributes", false)).transpose()?,
    })
}

/// The leaves, sorted by path. `whole`: an object that is followed also says that it is there.
fn leaves(text: &str, field: &'static str, whole: bool) -> Result<Vec<(u64, u64)>, Unreadable> {
    let value: Value = serde_json::from_str(text).map_err(|_| unreadable(field, "nested too deeply, or no number"))?;
    let mut leaves = Vec::with_capacity(64);
    if let Value::Object(fields) = &value {
        for (name, value) in fields {
            flatten(Digest::default().text(name), value, whole, &mut leaves);
        }
    }
    leaves.sort_unstable();
    Ok(leaves)
}

fn flatten(path: Digest, value: &Value, whole: bool, leaves: &mut Vec<(u64, u64)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            if whole {
                leaves.push((path.finish(), Digest::default().text("object").finish()));
            }
            for (name, value) in fields {
                flatten(path.text(".").text(name), value, whole, leaves);
            }
        }
        Value::Null => leaves.push((path.finish(), Trace::NULL)),
        leaf => leaves.push((path.finish(), Digest::default().value(leaf).finish())),
    }
}

/// 64-bit FNV-1a, <http://www.isthe.com/chongo/tech/comp/fnv/>.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn text(self, text: &str) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        // A byte that no text contains ends it, so that no two sequences of texts are alike.
        Self(step(text.bytes().fold(self.0, step), 0xff))
    }

    /// Keys are sorted here, because the order of `serde_json`'s map depends on features that other crates choose.
    fn value(self, value: &Value) -> Self {
        match value {
            Value::Object(fields) => {
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                sorted
                    .into_iter()
                    .fold(self.text("{"), |digest, (name, value)| digest.text(name).value(value))
                    .text("}")
            }
            Value::Array(items) => items.iter().fold(self.text("["), Self::value).text("]"),
            Value::String(text) => self.text("\"").text(text),
            scalar => self.text(&scalar.to_string()),
        }
    }

    /// Never [`Trace::NULL`].
    fn finish(self) -> u64 {
        self.0.max(Trace::NULL + 1)
    }
}
