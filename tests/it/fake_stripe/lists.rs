//! Filters, order and pages. What Stripe does not know is refused, as Stripe does, so that a filter with a wrong name
//! is not taken for one that finds everything.

use serde_json::Value;

use super::{Call, Held, faults};

/// The filters of each list.
const FILTERS: &[(&str, &[&str])] = &[
    ("/v1/charges", &["created", "customer", "payment_intent"]),
    ("/v1/checkout/sessions", &["created", "customer", "payment_intent", "subscription", "status"]),
    ("/v1/credit_notes", &["created", "customer", "invoice"]),
    ("/v1/customers", &["created", "email"]),
    ("/v1/disputes", &["created", "charge", "payment_intent"]),
    ("/v1/events", &["created", "type", "types", "delivery_success"]),
    ("/v1/invoice_payments", &["created", "invoice", "status", "payment"]),
    ("/v1/invoices", &["created", "customer", "subscription", "status", "collection_method"]),
    ("/v1/payment_intents", &["created", "customer"]),
    ("/v1/prices", &["created", "active", "product", "type"]),
    ("/v1/refunds", &["created", "charge", "payment_intent"]),
    ("/v1/subscription_items", &["subscription"]),
    ("/v1/subscriptions", &["created", "customer", "status", "collection_method"]),
];

/// The most types of events that can be asked for at once.
const TYPES_MAX: usize = 20;

/// What a list was asked for.
pub(super) struct Asked<'a> {
    call: &'a Call,
    limit: usize,
}

/// A parameter that Stripe does not take.
pub(super) struct Wrong {
    pub(super) code: &'static str,
    pub(super) param: String,
}

fn wrong(code: &'static str, param: &str) -> Wrong {
    Wrong { code, param: param.to_owned() }
}

/// The newest first; of one second, what was put later.
pub(super) fn sort(all: &mut [Held], is_oldest_first: bool) {
    all.reverse();
    all.sort_by_key(|held| std::cmp::Reverse(held.new["created"].as_i64()));
    if is_oldest_first {
        all.reverse();
    }
}

impl<'a> Asked<'a> {
    pub(super) fn read(call: &'a Call) -> Result<Self, Wrong> {
        let filters = FILTERS.iter().find(|(path, _)| *path == call.path).map_or(&[][..], |(_, filters)| filters);
        let general = ["limit", "starting_after", "ending_before", "expand"];
        for (name, _) in &call.query {
            let bare = name.split('[').next().unwrap_or_default();
            if !general.contains(&bare) && !filters.contains(&bare) {
                return Err(wrong("parameter_unknown", name));
            }
        }
        let limit = call.parameter("limit").map_or(Some(10), |text| text.parse().ok());
        let limit = limit.filter(|limit| (1..=100).contains(limit));
        if call.parameter("starting_after").is_some() && call.parameter("ending_before").is_some() {
            return Err(wrong("parameters_exclusive", "ending_before"));
        }
        let types = call.query.iter().filter(|(name, _)| name.starts_with("types[")).count();
        if types > TYPES_MAX || (types > 0 && call.parameter("type").is_some()) {
            return Err(wrong("parameters_exclusive", "types"));
        }
        Ok(Self { call, limit: limit.ok_or_else(|| wrong("parameter_invalid_integer", "limit"))? })
    }

    /// The objects of one page, and whether there are more behind it.
    pub(super) fn page(&self, all: Vec<Held>, page_max: usize) -> Result<(Vec<Held>, bool), Wrong> {
        let limit = self.limit.min(page_max);
        // The object of a cursor need not pass the filters.
        let (mut after, mut before) = (0, all.len());
        if let Some(cursor) = self.call.parameter("starting_after") {
            after = 1 + position(&all, cursor, "starting_after")?;
        }
        let goes_back = self.call.parameter("ending_before");
        if let Some(cursor) = goes_back {
            before = position(&all, cursor, "ending_before")?;
        }
        let mut kept: Vec<Held> =
            all.into_iter().take(before).skip(after).filter(|held| self.wants(&held.new)).collect();
        let has_more = kept.len() > limit;
        if goes_back.is_some() {
            kept.drain(..kept.len().saturating_sub(limit));
        }
        kept.truncate(limit);
        Ok((kept, has_more))
    }

    fn wants(&self, object: &Value) -> bool {
        let is_gone = object["deleted"] == true;
        let passes = |(name, value): &(String, String)| match name.as_str() {
            "limit" | "starting_after" | "ending_before" | "expand[]" => true,
            "delivery_success" => (object["pending_webhooks"] == 0) == (value == "true"),
            "status" if object["object"] == "subscription" => has_status(object, value),
            "type" => faults::matches(value, object["type"].as_str().unwrap_or_default()),
            name if name.starts_with("created") => is_created(object, name, value),
            // Of several, any one.
            name if name.starts_with("types[") => true,
            name => value_at(object, name).is_some_and(|found| found == *value),
        };
        !is_gone && self.call.query.iter().all(passes) && self.wants_type(object) && self.wants_canceled(object)
    }

    fn wants_type(&self, object: &Value) -> bool {
        let mut types = self.call.query.iter().filter(|(name, _)| name.starts_with("types[")).peekable();
        let kind = object["type"].as_str().unwrap_or_default();
        types.peek().is_none() || types.any(|(_, wanted)| faults::matches(wanted, kind))
    }

    /// Without a status, canceled subscriptions are left out.
    fn wants_canceled(&self, object: &Value) -> bool {
        let is_canceled = object["object"] == "subscription" && object["status"] == "canceled";
        !is_canceled || self.call.parameter("status").is_some()
    }
}

fn position(all: &[Held], id: &str, param: &str) -> Result<usize, Wrong> {
    all.iter().position(|held| held.id() == id).ok_or_else(|| wrong("resource_missing", param))
}

fn has_status(subscription: &Value, wanted: &str) -> bool {
    match wanted {
        "all" => true,
        "ended" => subscription["status"] == "canceled" || subscription["status"] == "incomplete_expired",
        status => subscription["status"] == status,
    }
}

fn is_created(object: &Value, name: &str, bound: &str) -> bool {
    let (created, bound) = (object["created"].as_i64().expect("a time"), bound.parse().expect("a time"));
    match name {
        "created" => created == bound,
        "created[gt]" => created > bound,
        "created[gte]" => created >= bound,
        "created[lt]" => created < bound,
        "created[lte]" => created <= bound,
        other => panic!("{other} is no range"),
    }
}

/// The id or word under a name such as `customer` or `payment[charge]`; an invoice's subscription in either shape.
fn value_at(object: &Value, name: &str) -> Option<String> {
    let steps: Vec<&str> = name.split(['[', ']']).filter(|step| !step.is_empty()).collect();
    let mut found = steps.iter().try_fold(object, |object, step| object.get(step));
    if name == "subscription" && found.is_none() {
        found = object.pointer("/parent/subscription_details/subscription");
    }
    match found? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        expanded => expanded["id"].as_str().map(str::to_owned),
    }
}
