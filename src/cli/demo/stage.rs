//! Where acts are played: deliveries go to the server, then the books are compared with what the act expects.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::store::events;
use crate::store::reader::Reader;

use super::books::Books;
use super::script::{Act, Delivery, Manner};
use super::server::Running;
use crate::cli::post::{self, Answered, Poster};

/// How long a commit may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two looks at the books.
const PAUSE: Duration = Duration::from_millis(1);

/// The answer that never arrived, on purpose.
const LOST: &str = "answer lost";

/// A server that deliveries go to, and its books.
#[derive(Debug)]
pub(super) struct Stage {
    address: SocketAddr,
    path: String,
    poster: Poster,
    reader: Reader,
}

/// What came of an act.
#[derive(Debug, Serialize)]
pub(super) struct Played {
    pub(super) title: String,
    pub(super) deliveries: usize,
    pub(super) answers: BTreeMap<String, usize>,
    pub(super) effects: BTreeMap<String, usize>,
    /// What is not as the act expects.
    pub(super) problems: Vec<String>,
}

impl Stage {
    pub(super) fn new(running: &Running) -> anyhow::Result<Self> {
        let config = running.config();
        let webhook = config.webhooks.first().context("the demo has no webhook")?;
        let secret = webhook.signing_secrets.first().context("the demo has no secret")?.resolve(&|_| None)?;
        let address = running.address();
        Ok(Self {
            address,
            path: webhook.path.clone(),
            poster: Poster::new(format!("http://{address}{}", webhook.path), secret.expose().to_owned()),
            reader: Reader::open(&config.database.path, 1)?,
        })
    }

    /// Hangs up, so that the server can drain.
    pub(super) fn close(self) -> Reader {
        self.reader
    }

    pub(super) fn play(&self, act: &Act) -> anyhow::Result<Played> {
        let before = self.reader.read(Books::read)?;
        let answers = self.deliver(act)?;
        let after = self.reader.read(Books::read)?;
        let effects = after.effects_since(&before);
        Ok(Played {
            title: act.title.clone(),
            deliveries: act.deliveries.len(),
            problems: problems(act, &answers, &effects, &after),
            answers: post::tally(answers.iter()),
            effects,
        })
    }

    fn deliver(&self, act: &Act) -> anyhow::Result<Vec<Answered>> {
        let bodies: Vec<&[u8]> = act.deliveries.iter().map(|delivery| delivery.body.as_slice()).collect();
        match (act.manner, act.deliveries.split_first()) {
            (Manner::FirstAnswerLost, Some((first, _))) => {
                let mut answers = vec![self.lose_answer(first)?];
                answers.extend(self.poster.post_all(bodies.get(1..).unwrap_or_default(), 1));
                Ok(answers)
            }
            (Manner::AllAtOnce, _) => Ok(self.poster.post_all(&bodies, bodies.len())),
            _ => Ok(self.poster.post_all(&bodies, 1)),
        }
    }

    /// Sends a request, waits until its event is on disk, and hangs up without having read a byte.
    fn lose_answer(&self, delivery: &Delivery) -> anyhow::Result<Answered> {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json; charset=utf-8\r\n\
             Content-Length: {}\r\nStripe-Signature: {}\r\n\r\n",
            self.path,
            self.address,
            delivery.body.len(),
            self.poster.signature(&delivery.body)
        );
        let mut connection = TcpStream::connect(self.address)?;
        connection.write_all(head.as_bytes())?;
        connection.write_all(&delivery.body)?;
        let deadline = Instant::now() + PATIENCE;
        while self.reader.read(|books| events::find(books, &delivery.event_id))?.is_none() {
            if Instant::now() > deadline {
                bail!("{} was not stored within {} s", delivery.event_id, PATIENCE.as_secs());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Answered::Nothing(LOST.to_owned()))
    }
}

fn problems(act: &Act, answers: &[Answered], effects: &BTreeMap<String, usize>, after: &Books) -> Vec<String> {
    let lost = usize::from(act.manner == Manner::FirstAnswerLost);
    let refused = answers.iter().skip(lost).filter(|answer| !answer.is_success()).map(Answered::label);
    let mut problems: Vec<String> = refused.collect();
    let expected: BTreeMap<String, usize> =
        act.effects.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
    if *effects != expected {
        problems.push(format!("{}: expected {expected:?}, the books say {effects:?}", act.title));
    }
    for (account, balance) in &act.balances {
        let held = after.balance(account).unwrap_or_default();
        if held != *balance {
            problems.push(format!("{account}: expected a balance of {balance}, the books say {held}"));
        }
    }
    problems
}
