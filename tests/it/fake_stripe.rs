//! A fake of Stripe's REST API: objects in memory, the lists and retrievals that billingd may ask for, and faults on
//! order.
//!
//! Put objects in, then reach it in either of two ways: as an [`Api`] in this process, without sockets, repeats and
//! waiting; or over HTTP on a free port ([`FakeStripe::serve`]), for tests of the client and of the real program. All
//! clones are one.
//!
//! - `lists.rs`: filters, order and pages, as strict as Stripe's
//! - `answers.rs`: which answer belongs to which request
//! - `faults.rs`: what goes wrong, when and how often
//! - `server.rs`: HTTP

mod answers;
mod faults;
mod lists;
mod server;
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use billingd::stripe::client::{Answer, Api, ApiError, Dated, Kind, STRIPE_VERSION};
use serde_json::Value;
use ureq::http::{HeaderMap, HeaderName, HeaderValue};

use super::fixtures::Shape;
use answers::Reply;
pub(crate) use answers::{ACCOUNT, PRIVATE};
use faults::Does;
pub(crate) use faults::Fault;
pub(crate) use server::Served;

/// Each kind of object, and the path of its collection.
const COLLECTIONS: &[(&str, &str)] = &[
    ("charge", "/v1/charges"),
    ("checkout.session", "/v1/checkout/sessions"),
    ("credit_note", "/v1/credit_notes"),
    ("customer", "/v1/customers"),
    ("dispute", "/v1/disputes"),
    ("event", "/v1/events"),
    ("invoice", "/v1/invoices"),
    ("invoice_payment", "/v1/invoice_payments"),
    ("payment_intent", "/v1/payment_intents"),
    ("price", "/v1/prices"),
    ("refund", "/v1/refunds"),
    ("subscription", "/v1/subscriptions"),
    ("subscription_item", "/v1/subscription_items"),
    ("v2.core.event", "/v2/core/events"),
    ("webhook_endpoint", "/v1/webhook_endpoints"),
];

/// The versions from this one on have the new shapes.
const NEW_SINCE: &str = "2025-03-31";

/// The fake. A new one is empty.
#[derive(Clone, Default)]
pub(crate) struct FakeStripe(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    /// By the path of the collection, in the order in which they were put.
    collections: BTreeMap<String, Vec<Held>>,
    faults: Vec<Fault>,
    calls: Vec<Call>,
    page_max: Option<usize>,
    always: Option<Shape>,
    is_oldest_first: bool,
    /// What each POST was answered, by its key: with which form, and what.
    posts: BTreeMap<String, (String, Value)>,
    /// The number of the page that follows an object: by path and id.
    page_after: BTreeMap<(String, String), u32>,
    hanging: usize,
    releases: usize,
}

/// One object in both families of shapes.
#[derive(Clone)]
struct Held {
    old: Value,
    new: Value,
}

impl Held {
    fn id(&self) -> &str {
        self.new["id"].as_str().expect("an id")
    }

    fn render(&self, shape: Shape) -> &Value {
        match shape {
            Shape::Old => &self.old,
            Shape::New => &self.new,
        }
    }
}

/// A request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: String,
    /// As it was sent: encoded.
    pub(crate) path: String,
    /// Decoded.
    pub(crate) query: Vec<(String, String)>,
    /// The names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// None while it hangs, and if it was cut off.
    pub(crate) status: Option<u16>,
}

impl Call {
    /// The value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        value_of(&self.query, name)
    }

    /// The value of a header; its name in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        value_of(&self.headers, name)
    }
}

fn value_of<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// What Stripe holds.
impl FakeStripe {
    /// Adds an object that looks the same in all versions, such as an event, or replaces it.
    pub(crate) fn put(&self, object: Value) {
        self.put_shapes(object.clone(), object);
    }

    /// Adds an object, or replaces it, as each family of versions renders it.
    pub(crate) fn put_shapes(&self, old: Value, new: Value) {
        let kind = new["object"].as_str().expect("a kind");
        let known = COLLECTIONS.iter().find(|(known, _)| *known == kind);
        let (_, collection) = known.unwrap_or_else(|| panic!("the fake knows no {kind}"));
        self.put_into(collection, old, new);
    }

    /// Adds an item to a list inside an object, such as `/v1/invoices/in_1/lines`. Without any, the list is what the
    /// object itself carries.
    pub(crate) fn put_inside(&self, list: &str, old: Value, new: Value) {
        self.put_into(list, old, new);
    }

    /// Adds an object that is told by its id, and left out of lists.
    pub(crate) fn put_unlisted(&self, object: Value) {
        let kind = object["object"].as_str().expect("a kind");
        let known = COLLECTIONS.iter().find(|(known, _)| *known == kind);
        let (_, collection) = known.unwrap_or_else(|| panic!("the fake knows no {kind}"));
        self.put_into(&answers::unlisted(collection), object.clone(), object);
    }

    fn put_into(&self, collection: &str, old: Value, new: Value) {
        let held = Held { old, new };
        let mut state = self.state();
        let all = state.collections.entry(collection.to_owned()).or_default();
        match all.iter_mut().find(|one| one.id() == held.id()) {
            Some(one) => *one = held,
            None => all.push(held),
        }
    }

    /// Forgets an object, as if it had never been.
    pub(crate) fn remove(&self, id: &str) {
        self.state().collections.values_mut().for_each(|all| all.retain(|one| one.id() != id));
    }
}

/// How it behaves.
impl FakeStripe {
    /// Puts no more than so many objects on a page, whatever is asked for.
    pub(crate) fn page_max(&self, objects: usize) {
        self.state().page_max = Some(objects);
    }

    /// Renders everything in one family of shapes, whatever version is asked for.
    pub(crate) fn always(&self, shape: Shape) {
        self.state().always = Some(shape);
    }

    /// Lists the oldest first, which Stripe never does but a look-alike may.
    pub(crate) fn oldest_first(&self) {
        self.state().is_oldest_first = true;
    }

    /// Lets something go wrong from now on. Of several faults that match, the first one ordered strikes.
    pub(crate) fn order(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Lets something go wrong from now on, whatever else was ordered.
    pub(crate) fn order_first(&self, fault: Fault) {
        self.state().faults.insert(0, fault);
    }

    /// Ends the fault that was ordered first.
    pub(crate) fn end_first(&self) {
        self.state().faults.remove(0);
    }

    /// Ends all faults, and lets go what hangs.
    pub(crate) fn heal(&self) {
        self.state().faults.clear();
        self.release();
    }

    /// Lets go what hangs now; it is answered as if nothing had been.
    pub(crate) fn release(&self) {
        self.state().releases += 1;
        self.0.released.notify_all();
    }

    /// How many requests hang now.
    pub(crate) fn hanging(&self) -> usize {
        self.state().hanging
    }

    /// All requests so far, in the order in which they came.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// The requests of a path so far; `*` stands for anything.
    pub(crate) fn calls_of(&self, path: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| faults::matches(path, &call.path)).collect()
    }

    /// Serves HTTP on a free port of this machine, until the answer is dropped.
    pub(crate) fn serve(&self) -> Served {
        Served::start(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody panicked with the fake in hand")
    }

    /// Notes a request, lets the faults have their way, and answers.
    fn reply(&self, call: Call) -> Reply {
        let mut state = self.state();
        let number = state.calls.len();
        state.calls.push(call.clone());
        let struck = state.strike(&call);
        if let Some(Does::Wait(time)) = struck.as_ref().map(|fault| &fault.does) {
            let before = state.releases;
            state.hanging += 1;
            let is_held = |state: &mut State| state.releases == before;
            state = self.0.released.wait_timeout_while(state, *time, is_held).expect("no panic").0;
            state.hanging -= 1;
        }
        let mut reply = struck.as_ref().and_then(Fault::reply).unwrap_or_else(|| state.answer(&call));
        if let Some(fault) = struck {
            fault.spoil(&mut reply);
        }
        reply.headers.push(("request-id".to_owned(), format!("req_{number}")));
        state.calls[number].status = Some(reply.status).filter(|_| !reply.is_cut());
        reply
    }
}

/// Without a network: no repeats, no waiting, the newest shapes that the client asks for.
impl Api for FakeStripe {
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let reply = self.reply(Call {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: query.iter().map(owned).collect(),
            headers: [("authorization", "Bearer none"), ("stripe-version", STRIPE_VERSION)].iter().map(owned).collect(),
            body: String::new(),
            status: None,
        });
        if reply.is_cut() {
            return Err(ApiError::new(Kind::Unavailable, path, "the connection broke off"));
        }
        let header = |(name, value): &(String, String)| {
            (HeaderName::try_from(name).expect("a name"), HeaderValue::try_from(value).expect("a value"))
        };
        let headers: HeaderMap = reply.headers.iter().map(header).collect();
        Answer::new(reply.status, &headers, reply.body).read(path).map_err(|missed| missed.error)
    }
}
