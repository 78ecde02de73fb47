//! Somebody at the private listener, who writes requests byte by byte as they like.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::harness::{Answer, Billing, Setup};

pub(crate) const OPERATOR: &str = "operator-token-of-the-tests-0123456789";
pub(crate) const APP: &str = "app-token-of-the-tests-0123456789-0123";
pub(crate) const METRICS: &str = "metrics-token-of-the-tests-0123456789-";

/// A setup with a token of each scope: alice, shop and watch.
pub(crate) fn open_to_all() -> Setup {
    let token = |name: &str, scope: &str, secret: &str| {
        format!("[[admin.token]]\nname = \"{name}\"\nscope = \"{scope}\"\nsecret = \"{secret}\"\n")
    };
    let tokens = [("alice", "operator", OPERATOR), ("shop", "app", APP), ("watch", "metrics", METRICS)];
    let tokens = tokens.map(|(name, scope, secret)| token(name, scope, secret)).concat();
    Setup::new().with("admin.listen", "127.0.0.1:0").toml(&tokens)
}

impl Billing {
    /// Sends a whole request to the private listener as it stands, and reads until the connection ends.
    pub(crate) fn hears(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut stream = TcpStream::connect(self.admin_address().expect("a token")).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        // Whoever answers early may close before everything has arrived.
        drop(stream.write_all(request.as_ref()));
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes));
        parse(&String::from_utf8(bytes).expect("a text"))
    }

    /// A request to the private listener under its usual name.
    pub(crate) fn visitor(&self, method: &str, target: &str, headers: &[&str], body: &str) -> Answer {
        let headers = headers.iter().map(|header| format!("{header}\r\n")).collect::<String>();
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.hears(format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost:8788\r\nConnection: close\r\n{headers}{length}\r\n{body}"
        ))
    }

    /// GET with a token.
    pub(crate) fn asks(&self, token: &str, target: &str) -> Answer {
        self.visitor("GET", target, &[&bearer(token)], "")
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// An answer of HTTP/1.1 whose connection has ended; names of headers in small letters.
fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    Answer {
        status: status.unwrap_or_else(|| panic!("no status: {head:?}")),
        body: serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())),
        headers: lines.filter_map(header).collect(),
    }
}
