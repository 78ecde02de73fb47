//! What goes wrong, when and how often.

use std::time::Duration;

use super::answers::{Cut, Reply, problem};
use super::{Call, State};

/// Longer than any test takes: whatever waits so long hangs until it is let go.
const FOREVER: Duration = Duration::from_secs(600);

/// Something that goes wrong: `Fault::at("/v1/events").page(2).times(1).status(500)`. Strikes each time, unless told
/// otherwise.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    path: String,
    page: Option<u32>,
    spared: u32,
    times: Option<u32>,
    pub(super) does: Does,
    code: Option<String>,
    headers: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
pub(super) enum Does {
    /// Nothing but headers.
    Nothing,
    Status(u16),
    Body(u16, Vec<u8>),
    /// Answers properly after so long, or when let go.
    Wait(Duration),
    Cut(Cut),
}

/// When and where.
impl Fault {
    /// At requests of this path; `*` stands for anything.
    pub(crate) fn at(path: &str) -> Self {
        let does = Does::Nothing;
        Self { path: path.to_owned(), page: None, spared: 0, times: None, does, code: None, headers: Vec::new() }
    }

    /// Only at this page of a list; the first is 1.
    pub(crate) fn page(mut self, page: u32) -> Self {
        self.page = Some(page);
        self
    }

    /// Only after so many requests that would match.
    pub(crate) fn after(mut self, requests: u32) -> Self {
        self.spared = requests;
        self
    }

    /// Only so many times.
    pub(crate) fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }
}

/// What happens. The last one counts, together with the headers.
impl Fault {
    /// An error in Stripe's form, with a sentence that nobody may pass on.
    pub(crate) fn status(mut self, status: u16) -> Self {
        self.does = Does::Status(status);
        self
    }

    /// The code of that error.
    pub(crate) fn code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// An answer as it stands here, such as the page of a proxy.
    pub(crate) fn body(mut self, status: u16, body: impl Into<Vec<u8>>) -> Self {
        self.does = Does::Body(status, body.into());
        self
    }

    /// The proper answer, but late.
    pub(crate) fn delay(mut self, time: Duration) -> Self {
        self.does = Does::Wait(time);
        self
    }

    /// No answer until it is let go.
    pub(crate) fn hang(self) -> Self {
        self.delay(FOREVER)
    }

    /// The connection ends without an answer.
    pub(crate) fn cut(mut self) -> Self {
        self.does = Does::Cut(Cut::Before);
        self
    }

    /// The connection ends in the middle of the answer.
    pub(crate) fn cut_inside(mut self) -> Self {
        self.does = Does::Cut(Cut::Inside);
        self
    }

    /// One more header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What is answered instead of the proper answer.
    pub(super) fn reply(&self) -> Option<Reply> {
        match &self.does {
            Does::Status(status) => {
                let code = self.code.as_deref().or(match status {
                    404 => Some("resource_missing"),
                    429 => Some("rate_limit"),
                    _ => None,
                });
                Some(problem(*status, code, None))
            }
            Does::Body(status, body) => Some(Reply::new(*status, body.clone())),
            Does::Nothing | Does::Wait(_) | Does::Cut(_) => None,
        }
    }

    pub(super) fn spoil(self, reply: &mut Reply) {
        reply.headers.extend(self.headers);
        if let Does::Cut(cut) = self.does {
            reply.cut = Some(cut);
        }
    }
}

impl State {
    /// The fault that strikes this request.
    pub(super) fn strike(&mut self, call: &Call) -> Option<Fault> {
        let page = call
            .parameter("starting_after")
            .map_or(1, |cursor| *self.page_after.get(&(call.path.clone(), cursor.to_owned())).unwrap_or(&2));
        let hit = |fault: &Fault| matches(&fault.path, &call.path) && fault.page.is_none_or(|wanted| wanted == page);
        let mut struck = None;
        for fault in self.faults.iter_mut().filter(|fault| hit(fault)) {
            if fault.spared > 0 {
                fault.spared -= 1;
            } else if struck.is_none() && fault.times != Some(0) {
                fault.times = fault.times.map(|times| times - 1);
                struck = Some(fault.clone());
            }
        }
        struck
    }
}

/// `*` stands for any letters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
        }),
    }
}
