//! A Stripe API that is of no use: it hangs, or refuses every request.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fails {
    /// It is never answered.
    Hangs,
    /// It is one too many.
    Limits,
}

/// A listener, as long as this program runs.
pub(crate) struct Api {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Api {
    pub(crate) fn start(fails: Fails) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let counter = counter.clone();
                std::thread::spawn(move || converse(connection, fails, &counter));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests came.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Until the client goes.
fn converse(mut connection: TcpStream, fails: Fails, asked: &AtomicUsize) {
    const BODY: &str = r#"{"error":{"type":"invalid_request_error","code":"rate_limit","message":"Slow down"}}"#;
    let lines = BufReader::new(connection.try_clone().expect("a second handle")).lines();
    for line in lines.map_while(Result::ok) {
        if !line.is_empty() {
            continue;
        }
        asked.fetch_add(1, Ordering::Relaxed);
        if fails == Fails::Limits {
            let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length:";
            if write!(connection, "{head} {}\r\n\r\n{BODY}", BODY.len()).is_err() {
                return;
            }
        }
    }
}
