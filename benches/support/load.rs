//! The load: requests signed beforehand into a file, sent by `wrk`, a released load tool.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Events;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/post.lua");

/// A file of signed requests.
pub(crate) struct Requests {
    pub(crate) path: PathBuf,
}

impl Requests {
    /// Writes the requests of `count` events from number `first` on, signed now.
    pub(crate) fn write(path: PathBuf, events: &Events, first: u64, count: u64) -> Self {
        let now = billingd::clock::now() / 1000;
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).expect("a file"));
        for number in first..first + count {
            let (body, signature) = events.signed(number, now);
            let request = format!(
                "POST /webhooks/stripe HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Stripe/1.0\r\nAccept: */*\r\n\
                 Content-Type: application/json; charset=utf-8\r\nStripe-Signature: {signature}\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            write!(file, "{:08}{request}", request.len()).expect("room on the disk");
        }
        // What the system still has to write would slow the flushes that are measured.
        file.into_inner().expect("room on the disk").sync_all().expect("room on the disk");
        Self { path }
    }
}

/// What one run of the load tool saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) answers: u64,
}

/// Sends the first `limit` requests of a file for some seconds; over again only if `repeat`.
///
/// # Panics
/// When an answer was not good, or when distinct events were wanted and ran out.
pub(crate) fn run(
    address: SocketAddr,
    requests: &Path,
    limit: u64,
    seconds: u64,
    connections: u32,
    repeat: bool,
) -> Seen {
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--timeout=30s", "-s", SCRIPT])
        .args([&format!("http://{address}/"), "--"])
        .arg(requests)
        .arg(limit.to_string())
        .output()
        .expect("wrk");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = text
        .lines()
        .find_map(|line| line.strip_prefix("RESULT "))
        .unwrap_or_else(|| panic!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)))
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    let [answers, microseconds, p50, p99, bad, rewound] = numbers[..] else { panic!("six numbers: {text}") };
    assert_eq!(bad, 0, "answers that were not 2xx");
    assert!(repeat || rewound == 0, "the distinct events ran out: write more of them");
    Seen {
        per_second: answers as f64 * 1e6 / microseconds as f64,
        p50_ms: p50 as f64 / 1e3,
        p99_ms: p99 as f64 / 1e3,
        answers,
    }
}

/// Whether the load tool is there.
pub(crate) fn is_there() -> bool {
    Command::new("wrk").arg("-v").output().is_ok()
}
