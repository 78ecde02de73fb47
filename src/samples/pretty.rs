//! JSON as Stripe prints it: two spaces, raw UTF-8, `id` and `object` first, the other keys in order.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

/// The bytes of a body.
#[must_use]
pub fn pretty(value: &Value) -> Vec<u8> {
    // Writing values without foreign keys into memory cannot fail.
    serde_json::to_vec_pretty(&InStripesOrder(value)).unwrap_or_default()
}

struct InStripesOrder<'a>(&'a Value);

impl Serialize for InStripesOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                for (key, value) in in_order(object) {
                    map.serialize_entry(key, &InStripesOrder(value))?;
                }
                map.end()
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(InStripesOrder)),
            other => other.serialize(serializer),
        }
    }
}

fn in_order(object: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_by_key(|(key, _)| {
        let rank = match key.as_str() {
            "id" => 0,
            "object" => 1,
            _ => 2,
        };
        (rank, *key)
    });
    entries
}
