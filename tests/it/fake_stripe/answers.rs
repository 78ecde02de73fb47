//! Which answer belongs to which request.

use serde_json::{Value, json};

use super::super::fixtures::Shape;
use super::lists::{self, Asked};
use super::{COLLECTIONS, Call, Held, NEW_SINCE, State};

/// The account of the key.
pub(crate) const ACCOUNT: &str = "acct_of_the_key";

/// What Stripe's sentences say in tests, so that a test can look for it where it must not be.
pub(crate) const PRIVATE: &str = "jane@example.com";

/// The lists inside objects: the collection, the name of the list, and whether the object itself carries it.
const INSIDE: &[(&str, &str)] = &[("/v1/invoices", "lines"), ("/v1/checkout/sessions", "line_items")];

/// An answer.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Where the connection breaks off.
    pub(super) cut: Option<Cut>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Before,
    Inside,
}

impl Reply {
    pub(super) fn new(status: u16, body: Vec<u8>) -> Self {
        Self { status, headers: Vec::new(), body, cut: None }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }
}

/// Where the objects of a collection are that its list leaves out.
pub(super) fn unlisted(collection: &str) -> String {
    format!("{collection} that are not listed")
}

fn success(value: &Value) -> Reply {
    Reply::new(200, serde_json::to_vec_pretty(value).expect("JSON"))
}

/// An error in Stripe's form.
pub(super) fn problem(status: u16, code: Option<&str>, param: Option<&str>) -> Reply {
    let kind = if status < 500 { "invalid_request_error" } else { "api_error" };
    let message =
        format!("Something about {PRIVATE}. Having the 'rak_charge_read' permission would allow this request.");
    let error = json!({ "type": kind, "code": code, "param": param, "message": message });
    Reply::new(status, json!({ "error": error }).to_string().into_bytes())
}

fn missing() -> Reply {
    problem(404, Some("resource_missing"), Some("id"))
}

impl State {
    /// The answer to a request that no fault struck.
    pub(super) fn answer(&mut self, call: &Call) -> Reply {
        if call.header("authorization").is_none() {
            return problem(401, None, None);
        }
        match call.method.as_str() {
            "GET" => self.get(call),
            "POST" => self.post(call),
            _ => problem(405, None, None),
        }
    }

    fn get(&mut self, call: &Call) -> Reply {
        if call.path == "/v1/account" {
            let id = call.header("stripe-account").unwrap_or(ACCOUNT);
            return success(&json!({ "id": id, "object": "account" }));
        }
        if COLLECTIONS.iter().any(|(_, collection)| *collection == call.path) {
            return self.list(call);
        }
        let Some((parent, last)) = call.path.rsplit_once('/') else { return unknown(call) };
        if COLLECTIONS.iter().any(|(_, collection)| *collection == parent) {
            let shape = self.shape(call);
            let id = decode(last);
            let held = self.find(parent, &id).or_else(|| self.find(&unlisted(parent), &id));
            let found = held.map(|held| success(held.render(shape)));
            return found.unwrap_or_else(missing);
        }
        match parent.rsplit_once('/') {
            Some((collection, id)) if INSIDE.contains(&(collection, last)) => self.inside(call, collection, id, last),
            _ => unknown(call),
        }
    }

    fn list(&mut self, call: &Call) -> Reply {
        let mut all = self.collections.get(&call.path).cloned().unwrap_or_default();
        if call.path == "/v1/subscription_items" {
            let Some(subscription) = call.parameter("subscription") else {
                return problem(400, Some("parameter_missing"), Some("subscription"));
            };
            if all.iter().all(|item| item.new["subscription"] != subscription) {
                let held = self.find("/v1/subscriptions", subscription);
                all = held.map_or_else(Vec::new, |held| carried(held, "items"));
                all.iter_mut().for_each(|item| item.new["subscription"] = json!(subscription));
            }
        } else {
            lists::sort(&mut all, self.is_oldest_first);
        }
        self.page(call, all)
    }

    fn inside(&mut self, call: &Call, collection: &str, id: &str, name: &str) -> Reply {
        let Some(held) = self.find(collection, &decode(id)) else { return missing() };
        let all = self.collections.get(&call.path).cloned().unwrap_or_else(|| carried(held, name));
        self.page(call, all)
    }

    fn page(&mut self, call: &Call, all: Vec<Held>) -> Reply {
        let page = Asked::read(call).and_then(|asked| asked.page(all, self.page_max.unwrap_or(usize::MAX)));
        let (page, has_more) = match page {
            Ok(page) => page,
            Err(wrong) => return problem(400, Some(wrong.code), Some(&wrong.param)),
        };
        if let Some(last) = page.last() {
            let cursor = call.parameter("starting_after").map(|cursor| (call.path.clone(), cursor.to_owned()));
            let number = cursor.and_then(|cursor| self.page_after.get(&cursor)).map_or(1, |number| *number);
            self.page_after.insert((call.path.clone(), last.id().to_owned()), number + 1);
        }
        let shape = self.shape(call);
        let data: Vec<&Value> = page.iter().map(|held| held.render(shape)).collect();
        success(&json!({ "object": "list", "url": call.path, "has_more": has_more, "data": data }))
    }

    /// Takes anything, once for each key.
    fn post(&mut self, call: &Call) -> Reply {
        let Some(key) = call.header("idempotency-key") else {
            return problem(400, Some("parameter_missing"), None);
        };
        let taken = json!({ "id": format!("taken_{}", self.posts.len() + 1), "object": "taken" });
        let (form, answer) = self.posts.entry(key.to_owned()).or_insert((call.body.clone(), taken));
        if *form == call.body { success(answer) } else { problem(400, Some("idempotency_error"), None) }
    }

    fn find(&self, collection: &str, id: &str) -> Option<&Held> {
        self.collections.get(collection)?.iter().find(|held| held.id() == id)
    }

    fn shape(&self, call: &Call) -> Shape {
        let is_old = call.header("stripe-version").is_some_and(|version| version < NEW_SINCE);
        self.always.unwrap_or(if is_old { Shape::Old } else { Shape::New })
    }
}

/// Stripe gives no code to a path that it does not know.
fn unknown(call: &Call) -> Reply {
    let error =
        json!({ "type": "invalid_request_error", "message": format!("Unrecognized request URL ({})", call.path) });
    Reply::new(404, json!({ "error": error }).to_string().into_bytes())
}

/// The list that an object carries.
fn carried(held: &Held, name: &str) -> Vec<Held> {
    let items = |object: &Value| object[name]["data"].as_array().cloned().unwrap_or_default();
    items(&held.old).into_iter().zip(items(&held.new)).map(|(old, new)| Held { old, new }).collect()
}

/// `%2F` and the like; everything else stays.
pub(super) fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let encoded = (*first == b'%').then(|| after.get(..2)).flatten();
        let digits = encoded.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &after[2..]).1,
            None => (bytes.push(*first), rest = after).1,
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}
