//! A Stripe account that is in order: what it lists is what its events have told.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::support::Events;

/// What Stripe puts on one page.
const PAGE: u64 = 100;

/// How many events each walk meets that the walk before has met: a half of invoices, a quarter of subscriptions.
const KNOWN: u64 = 2_000;

/// The number of the first event. Whoever sends events stays below it.
const FIRST: u64 = 100_000_000;

/// The number of the first event that is new when somebody walks through them.
const FIRST_NEW: u64 = 200_000_000;

/// Its lists, printed beforehand.
pub(crate) struct Account {
    events: Vec<Page>,
    subscriptions: Vec<Page>,
    invoices: Vec<Page>,
    walks: AtomicU64,
}

struct Page {
    last: String,
    json: String,
}

impl Account {
    pub(crate) fn new() -> Self {
        // So many customers that none has two subscriptions.
        let events = Events::mixed(1 << 40);
        let events: Vec<Value> = (FIRST..FIRST + KNOWN).rev().map(|number| parse(&events.body(number))).collect();
        let objects = |kind: &str| -> Vec<Value> {
            let objects = events.iter().map(|event| &event["data"]["object"]);
            objects.filter(|object| object["object"] == kind).cloned().collect()
        };
        let (subscriptions, invoices) = (pages(&objects("subscription")), pages(&objects("invoice")));
        Self { events: pages(&events), subscriptions, invoices, walks: AtomicU64::new(0) }
    }

    /// The page that the first line of a request asks for. The list of events begins with a page of new ones.
    pub(crate) fn page(&self, request: &str) -> String {
        let path = request.trim_start_matches("GET /v1/").split(['?', ' ']).next().unwrap_or_default();
        let pages: &[Page] = match path {
            "events" if !request.contains("starting_after") => return self.new_events(),
            "events" => &self.events,
            "subscriptions" => &self.subscriptions,
            "invoices" => &self.invoices,
            _ => &[],
        };
        let next = pages.iter().position(|page| request.contains(&page.last)).map_or(0, |before| before + 1);
        pages.get(next).map_or_else(|| list(&[], false), |page| page.json.clone())
    }

    fn new_events(&self) -> String {
        let first = FIRST_NEW + self.walks.fetch_add(1, Ordering::Relaxed) * PAGE;
        let events = Events::of(1_000);
        let page: Vec<Value> = (first..first + PAGE).rev().map(|number| parse(&events.body(number))).collect();
        list(&page, true)
    }
}

fn pages(objects: &[Value]) -> Vec<Page> {
    let chunks = objects.chunks(usize::try_from(PAGE).expect("a small number"));
    let count = chunks.len();
    chunks
        .enumerate()
        .map(|(at, page)| {
            let last = page.last().and_then(|object| object["id"].as_str()).expect("an id");
            Page { last: last.to_owned(), json: list(page, at + 1 < count) }
        })
        .collect()
}

fn list(objects: &[Value], has_more: bool) -> String {
    json!({ "object": "list", "has_more": has_more, "data": objects }).to_string()
}

fn parse(body: &str) -> Value {
    serde_json::from_str(body).expect("JSON")
}
