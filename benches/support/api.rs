//! A Stripe API on loopback: it hangs, refuses every request, or tells what an account has.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::account::Account;

/// What becomes of a request.
pub(crate) enum Does {
    /// It is never answered.
    Hang,
    /// It is one too many.
    Limit,
    /// It is answered at once.
    Tell(Account),
}

impl Does {
    /// Status line and body of the answer to a request with this first line, if there is one.
    fn answer(&self, request: &str) -> Option<(&'static str, String)> {
        const LIMITED: &str = r#"{"error":{"type":"invalid_request_error","code":"rate_limit","message":"Slow down"}}"#;
        match self {
            Self::Hang => None,
            Self::Limit => Some(("429 Too Many Requests", LIMITED.to_owned())),
            Self::Tell(account) => Some(("200 OK", account.page(request))),
        }
    }
}

/// A listener, as long as this program runs.
pub(crate) struct Api {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Api {
    pub(crate) fn start(does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (does, asked) = (Arc::new(does), Arc::new(AtomicUsize::new(0)));
        let counter = asked.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (does, counter) = (does.clone(), counter.clone());
                std::thread::spawn(move || converse(connection, &does, &counter));
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
fn converse(mut connection: TcpStream, does: &Does, asked: &AtomicUsize) {
    let lines = BufReader::new(connection.try_clone().expect("a second handle")).lines();
    let mut request = String::new();
    for line in lines.map_while(Result::ok) {
        if request.is_empty() {
            request = line;
            continue;
        }
        if !line.is_empty() {
            continue;
        }
        asked.fetch_add(1, Ordering::Relaxed);
        if let Some((status, body)) = does.answer(&std::mem::take(&mut request)) {
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
            if write!(connection, "{head}\r\n\r\n{body}").is_err() {
                return;
            }
        }
    }
}
