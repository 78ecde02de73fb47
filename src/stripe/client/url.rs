//! Paths and queries in the letters that a URL may have.

use std::fmt::Write as _;

/// The path of an object, such as `/v1/prices/price_1`. Merchants choose some ids, so the id is encoded.
#[must_use]
pub fn path(collection: &str, id: &str) -> String {
    format!("{collection}/{}", encode(id))
}

/// `a=1&b=2`, as in a query or a form.
pub(super) fn pairs(pairs: &[(&str, &str)]) -> String {
    let encoded: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    encoded.join("&")
}

/// Nothing that would end the path, or be no path at all.
pub(super) fn is_path(text: &str) -> bool {
    let is_plain = |byte: u8| is_unreserved(byte) || matches!(byte, b'/' | b'%');
    text.starts_with('/') && text.bytes().all(is_plain)
}

fn encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if is_unreserved(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a text cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_letter_is_encoded() {
        for (id, encoded) in [
            ("price_1", "/v1/prices/price_1"),
            ("gold-1.0~a", "/v1/prices/gold-1.0~a"),
            ("gold/€", "/v1/prices/gold%2F%E2%82%AC"),
            ("a?b#c%d e", "/v1/prices/a%3Fb%23c%25d%20e"),
        ] {
            assert_eq!(path("/v1/prices", id), encoded);
            assert!(is_path(encoded));
        }
        assert_eq!(pairs(&[("created[gte]", "7"), ("types[]", "a&b=c")]), "created%5Bgte%5D=7&types%5B%5D=a%26b%3Dc");
        assert_eq!(pairs(&[]), "");
    }

    #[test]
    fn what_is_no_path_is_told() {
        for text in ["", "v1/events", "/v1/events?limit=1", "/v1/a b", "/v1/a#b", "/v1/ä", "@evil.example/"] {
            assert!(!is_path(text), "{text}");
        }
    }
}
