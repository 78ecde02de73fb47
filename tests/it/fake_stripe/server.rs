//! The fake over HTTP: one thread for each connection, which stays open as long as the client likes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::answers::{Cut, Reply, decode};
use super::{Call, FakeStripe};

/// A listener; ends with its connections when dropped.
pub(crate) struct Served {
    fake: FakeStripe,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(super) fn start(fake: FakeStripe) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (is_over, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let thread = std::thread::spawn({
            let (fake, is_over, open) = (fake.clone(), is_over.clone(), open.clone());
            move || {
                for connection in listener.incoming().flatten() {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    open.lock().unwrap().push(connection.try_clone().expect("a second handle"));
                    let fake = fake.clone();
                    std::thread::spawn(move || converse(&fake, connection));
                }
            }
        });
        Self { fake, address, is_over, open, thread: Some(thread) }
    }

    /// The base of the API, for `stripe.api_base`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.open.lock().unwrap().len()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.fake.release();
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        for connection in self.open.lock().unwrap().iter() {
            // Most have ended already.
            drop(connection.shutdown(Shutdown::Both));
        }
    }
}

/// Answers until the client goes, or the answer is cut off.
fn converse(fake: &FakeStripe, connection: TcpStream) {
    let mut writer = connection.try_clone().expect("a second handle");
    let mut reader = BufReader::new(connection);
    while let Some(call) = read(&mut reader) {
        let reply = fake.reply(call);
        let bytes = bytes(&reply);
        let kept = match reply.cut {
            None => &bytes[..],
            Some(Cut::Before) => &[],
            Some(Cut::Inside) => &bytes[..bytes.len() - reply.body.len() / 2],
        };
        if writer.write_all(kept).is_err() || reply.is_cut() {
            drop(writer.shutdown(Shutdown::Both));
            return;
        }
    }
}

/// One request; none: the client has gone.
fn read(reader: &mut BufReader<TcpStream>) -> Option<Call> {
    let mut line = || {
        let mut line = String::new();
        let length = reader.read_line(&mut line).ok()?;
        (length > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    while let Some((name, value)) = line()?.split_once(':') {
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, text)| text.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query =
        pairs.map(|pair| pair.split_once('=').map_or((decode(pair), String::new()), |(a, b)| (decode(a), decode(b))));
    Some(Call {
        method,
        path: path.to_owned(),
        query: query.collect(),
        headers,
        body: String::from_utf8(body).expect("a form"),
        status: None,
    })
}

fn bytes(reply: &Reply) -> Vec<u8> {
    let mut text = format!(
        "HTTP/1.1 {} Told\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    [text.as_bytes(), &reply.body].concat()
}
