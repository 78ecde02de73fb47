//! A Stripe that keeps back what only its API tells: the same life, told with less.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fake_stripe::{FakeStripe, Fault};
use crate::fixtures;
use crate::sim::render::{self, Shape};
use crate::sim::world::{Payment, World};
use crate::sim::{Rng, Told};

/// What the events keep back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserve {
    /// No event ties a payment to its invoice.
    links: bool,
    /// Events of invoices embed only so many lines.
    lines: Option<usize>,
    /// Updates of subscriptions do not say what they changed.
    previous: bool,
    /// So many of a hundred types are sent as thin events, with or without their snapshots.
    thin: usize,
    /// The API is of a look-alike, which has the old shapes and no list of the payments of invoices.
    is_look_alike: bool,
}

/// How the events of a type are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Whole,
    Thin,
    Both,
}

/// What a thin event may stand for: of these, the object as it is in the end tells no more than the events do.
const THIN: &[(&str, &str)] = &[
    ("invoice_payment.", "/v1/invoice_payments"),
    ("invoice.", "/v1/invoices"),
    ("customer.subscription.", "/v1/subscriptions"),
    ("charge.dispute.", "/v1/disputes"),
    ("charge.refund.", "/v1/refunds"),
    ("charge.", "/v1/charges"),
    ("refund.", "/v1/refunds"),
    ("payment_intent.", "/v1/payment_intents"),
    ("checkout.session.", "/v1/checkout/sessions"),
];

impl Reserve {
    /// Objects have one shape each time that they are told only where all events have the newer one.
    pub(crate) fn new(shape: Option<Shape>, rng: &mut Rng) -> Self {
        let is_look_alike = shape == Some(Shape::Old) && rng.percent(60);
        Self {
            links: rng.percent(70),
            lines: *rng.pick(&[None, Some(0), Some(1), Some(1)]),
            previous: rng.percent(60),
            thin: if shape == Some(Shape::New) { *rng.pick(&[0, 0, 30, 100]) } else { 0 },
            is_look_alike,
        }
    }

    /// What is delivered of a life.
    pub(crate) fn told(&self, world: &World, rng: &mut Rng) -> Vec<Told> {
        let mut sent = BTreeMap::new();
        let mut told = Vec::new();
        for whole in &world.told {
            if self.links && whole.kind == "invoice_payment.paid" {
                continue;
            }
            let chosen = *sent.entry(whole.kind).or_insert_with(|| self.chosen(rng));
            let thin = path_of(whole).map(|path| thin(whole, &path)).filter(|_| chosen != Sent::Whole);
            if thin.is_none() || chosen == Sent::Both {
                told.push(self.cut(whole.clone()));
            }
            told.extend(thin);
        }
        told
    }

    fn chosen(&self, rng: &mut Rng) -> Sent {
        if rng.percent(self.thin) { *rng.pick(&[Sent::Thin, Sent::Both]) } else { Sent::Whole }
    }

    fn cut(&self, mut told: Told) -> Told {
        if let (Some(embedded), Some(lines)) = (self.lines, told.body["data"]["object"].get_mut("lines")) {
            let all = lines["data"].as_array_mut().unwrap();
            let has_more = all.len() > embedded;
            all.truncate(embedded);
            lines["has_more"] = json!(has_more);
        }
        if self.previous {
            told.body["data"].as_object_mut().unwrap().remove("previous_attributes");
        }
        told
    }

    /// What the API of this Stripe tells in the end.
    pub(crate) fn api(&self, world: &World) -> FakeStripe {
        let fake = FakeStripe::default();
        if self.is_look_alike {
            fake.always(fixtures::Shape::Old);
            fake.order(Fault::at("/v1/invoice_payments").body(404, r#"{"error":{"type":"invalid_request_error"}}"#));
        }
        let put = |object: &dyn Fn(Shape) -> Value| fake.put_shapes(object(Shape::Old), object(Shape::New));
        world.subscriptions.iter().for_each(|one| put(&|shape| render::subscription(world, one, shape)));
        world.invoices.iter().for_each(|one| put(&|shape| render::invoice(world, one, shape)));
        world.refunds.iter().for_each(|one| put(&|shape| render::refund(world, one, shape)));
        world.disputes.iter().for_each(|one| put(&|shape| render::dispute(world, one, shape)));
        for one in &world.payments {
            put_payment(&fake, world, one);
        }
        for one in &world.checkouts {
            fake.put(render::checkout(world, one));
            if let Some(price) = one.price {
                let list = format!("/v1/checkout/sessions/{}/line_items", one.id);
                let item = json!({
                    "id": "li_0", "object": "item", "price": render::price(price), "quantity": one.quantity,
                    "amount_subtotal": one.amount, "amount_total": one.amount, "currency": "usd",
                });
                fake.put_inside(&list, item.clone(), item);
            }
        }
        (0..crate::sim::world::PRICES.len()).for_each(|index| fake.put(render::price(index)));
        fake
    }
}

fn put_payment(fake: &FakeStripe, world: &World, one: &Payment) {
    let charge = |shape| render::charge(world, one, shape, false);
    fake.put_shapes(charge(Shape::Old), charge(Shape::New));
    let intent = |shape| render::payment_intent(world, one, shape);
    fake.put_shapes(intent(Shape::Old), intent(Shape::New));
    if one.invoice.is_some() {
        fake.put(render::invoice_payment(world, one));
    }
}

/// Where the API tells the object of an event, if that may be sent thinly.
fn path_of(told: &Told) -> Option<String> {
    let (_, collection) = THIN.iter().find(|(prefix, _)| told.kind.starts_with(prefix))?;
    Some(format!("{collection}/{}", told.body["data"]["object"]["id"].as_str()?))
}

fn thin(whole: &Told, path: &str) -> Told {
    let created = jiff::Timestamp::from_second(whole.created).unwrap().to_string();
    let mut body = Map::new();
    for (name, value) in [
        ("id", json!(format!("{}_thin", whole.id))),
        ("object", json!("v2.core.event")),
        ("type", json!(format!("v1.{}", whole.kind))),
        ("created", json!(created)),
        ("livemode", json!(true)),
        ("snapshot_event", json!(whole.id)),
        ("related_object", json!({"id": whole.body["data"]["object"]["id"], "type": "x", "url": path})),
    ] {
        body.insert(name.to_owned(), value);
    }
    let story = format!("thin: {path}");
    Told { id: format!("{}_thin", whole.id), body: Value::Object(body), story, ..whole.clone() }
}
