//! Objects at Stripe, and what happens to them. A step that does not apply does nothing, so that any list of steps is
//! a life; each step has a seed of its own, so that a life with a step less is the same life with a step less.

use serde_json::{Value, json};

use super::render::{self, Shape};
use super::rng::Rng;

/// The first second.
pub(crate) const START: i64 = 1_767_225_600;
/// What a period lasts.
pub(crate) const MONTH: i64 = 30 * 86_400;

/// A price at Stripe.
pub(crate) struct Price {
    pub(crate) id: &'static str,
    pub(crate) product: &'static str,
    pub(crate) amount: i64,
}

/// The first three are plans, lowest first; then what is bought once; then what is in nobody's list, and what belongs
/// to another product.
pub(crate) const PRICES: [Price; 7] = [
    Price { id: "price_basic", product: "prod_basic", amount: 1000 },
    Price { id: "price_pro", product: "prod_pro", amount: 3001 },
    Price { id: "price_team", product: "prod_team", amount: 9000 },
    Price { id: "price_addon", product: "prod_addon", amount: 500 },
    Price { id: "price_sms", product: "prod_sms", amount: 333 },
    Price { id: "price_unlisted", product: "prod_unlisted", amount: 700 },
    Price { id: "price_foreign", product: "prod_foreign", amount: 800 },
];
pub(crate) const PLANS: usize = 3;
pub(crate) const ADDON: usize = 3;
pub(crate) const SMS: usize = 4;
pub(crate) const UNLISTED: usize = 5;
pub(crate) const FOREIGN: usize = 6;

#[derive(Debug, Clone)]
pub(crate) struct Customer {
    pub(crate) id: String,
    pub(crate) reference: Option<String>,
    pub(crate) deleted: bool,
    /// It had an event of its own.
    pub(crate) told: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) price: usize,
    pub(crate) quantity: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    pub(crate) id: String,
    pub(crate) customer: usize,
    pub(crate) status: String,
    pub(crate) items: Vec<Item>,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) cancel_at: Option<i64>,
    pub(crate) cancel_at_period_end: bool,
    pub(crate) ended_at: Option<i64>,
    pub(crate) paused: bool,
    pub(crate) reference: Option<String>,
    /// Prorations that wait for the next invoice.
    pub(crate) unbilled: Vec<Line>,
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) price: usize,
    pub(crate) amount: i64,
    pub(crate) quantity: i64,
    pub(crate) proration: bool,
    pub(crate) subscription: Option<usize>,
    pub(crate) period: (i64, i64),
}

#[derive(Debug, Clone)]
pub(crate) struct Invoice {
    pub(crate) id: String,
    pub(crate) customer: usize,
    pub(crate) subscription: Option<usize>,
    pub(crate) status: String,
    pub(crate) created: i64,
    pub(crate) paid_at: Option<i64>,
    pub(crate) lines: Vec<Line>,
    pub(crate) total: i64,
    pub(crate) amount_paid: i64,
    pub(crate) out_of_band: bool,
    pub(crate) currency: &'static str,
    /// The event does not carry all lines.
    pub(crate) truncated: bool,
    pub(crate) payments: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Payment {
    pub(crate) intent: String,
    pub(crate) charge: String,
    pub(crate) customer: usize,
    pub(crate) amount: i64,
    pub(crate) captured: i64,
    pub(crate) released: i64,
    pub(crate) refunded: i64,
    pub(crate) invoice: Option<usize>,
    /// A charge without an intent, as they were once.
    pub(crate) bare: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Refund {
    pub(crate) id: String,
    pub(crate) payment: usize,
    pub(crate) amount: i64,
    pub(crate) status: String,
    pub(crate) created: i64,
    /// Rendered before refunds knew their payment intent.
    pub(crate) old: bool,
    /// Of a payment intent without a charge.
    pub(crate) chargeless: bool,
    /// An event or an embedded list has told of it.
    pub(crate) told: bool,
    /// It was told with its payment intent.
    pub(crate) named: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Dispute {
    pub(crate) id: String,
    pub(crate) payment: usize,
    pub(crate) amount: i64,
    pub(crate) currency: &'static str,
    pub(crate) status: String,
    /// The money is with the bank.
    pub(crate) out: bool,
    /// It was told with its payment intent.
    pub(crate) named: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Checkout {
    pub(crate) id: String,
    pub(crate) customer: usize,
    pub(crate) mode: &'static str,
    pub(crate) payment_status: &'static str,
    pub(crate) subscription: Option<usize>,
    pub(crate) invoice: Option<usize>,
    pub(crate) payment: Option<usize>,
    pub(crate) amount: Option<i64>,
    pub(crate) price: Option<usize>,
    pub(crate) quantity: i64,
    pub(crate) client_reference_id: Option<String>,
}

/// A user's id for a customer that an event told.
#[derive(Debug, Clone)]
pub(crate) struct Naming {
    pub(crate) customer: usize,
    pub(crate) by_merchant: bool,
    pub(crate) at: i64,
    pub(crate) text: String,
}

/// One event as it is delivered.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) created: i64,
    pub(crate) body: Value,
    /// What it says, in short, for people.
    pub(crate) story: String,
}

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Subscribe,
    Renew,
    PayPart,
    Recover,
    GiveUp,
    ChangePrice,
    ChangeQuantity,
    AddItem,
    CancelNow,
    CancelLater,
    KeepOn,
    End,
    Pause,
    Refund,
    FailRefund,
    Dispute,
    MoveDispute,
    Buy,
    Settle,
    Name,
    Delete,
    Repeat,
}

impl Action {
    /// Each as often as it should happen.
    const ALL: &[(Self, usize)] = &[
        (Self::Subscribe, 12),
        (Self::Renew, 12),
        (Self::PayPart, 4),
        (Self::Recover, 6),
        (Self::GiveUp, 3),
        (Self::ChangePrice, 12),
        (Self::ChangeQuantity, 3),
        (Self::AddItem, 3),
        (Self::CancelNow, 4),
        (Self::CancelLater, 4),
        (Self::KeepOn, 2),
        (Self::End, 4),
        (Self::Pause, 4),
        (Self::Refund, 14),
        (Self::FailRefund, 8),
        (Self::Dispute, 8),
        (Self::MoveDispute, 12),
        (Self::Buy, 8),
        (Self::Settle, 4),
        (Self::Name, 3),
        (Self::Delete, 1),
        (Self::Repeat, 4),
    ];

    pub(crate) fn any(rng: &mut Rng) -> Self {
        let mut left = rng.below(Self::ALL.iter().map(|(_, weight)| weight).sum());
        for (action, weight) in Self::ALL {
            if left < *weight {
                return *action;
            }
            left -= weight;
        }
        Self::Subscribe
    }
}

/// One step of a life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) seed: u64,
    /// Seconds since the step before.
    pub(crate) after: i64,
}

/// What this Stripe is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Habits {
    /// The shape of events; `None`: any, as with two endpoints of different versions.
    pub(crate) shape: Option<Shape>,
    /// Charges of the old shape embed their refunds.
    pub(crate) embeds: bool,
    /// Refunds have events of their own in the old shape too.
    pub(crate) refund_events: bool,
    /// Everything that Stripe could send; else only what has one right answer.
    pub(crate) wild: bool,
}

/// A Stripe.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) habits: Habits,
    pub(crate) customers: Vec<Customer>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) invoices: Vec<Invoice>,
    pub(crate) payments: Vec<Payment>,
    pub(crate) refunds: Vec<Refund>,
    pub(crate) disputes: Vec<Dispute>,
    pub(crate) checkouts: Vec<Checkout>,
    pub(crate) namings: Vec<Naming>,
    pub(crate) told: Vec<Told>,
    /// Of the step that runs.
    rng: Rng,
}

impl World {
    pub(crate) fn new(habits: Habits, customers: usize) -> Self {
        let customer = |index| Customer { id: format!("cus_{index}"), reference: None, deleted: false, told: false };
        Self {
            now: START,
            habits,
            customers: (0..customers).map(customer).collect(),
            subscriptions: Vec::new(),
            invoices: Vec::new(),
            payments: Vec::new(),
            refunds: Vec::new(),
            disputes: Vec::new(),
            checkouts: Vec::new(),
            namings: Vec::new(),
            told: Vec::new(),
            rng: Rng::new(0),
        }
    }

    pub(crate) fn act(&mut self, step: &Step) {
        self.now += step.after;
        self.rng = Rng::new(step.seed);
        match step.action {
            Action::Subscribe => self.subscribe(),
            Action::Renew => self.renew(),
            Action::PayPart => self.pay_part(),
            Action::Recover => self.recover(),
            Action::GiveUp => self.give_up(),
            Action::ChangePrice => self.change_price(),
            Action::ChangeQuantity => self.change_quantity(),
            Action::AddItem => self.add_item(),
            Action::CancelNow => self.cancel_now(),
            Action::CancelLater => self.cancel_later(),
            Action::KeepOn => self.keep_on(),
            Action::End => self.end(),
            Action::Pause => self.pause(),
            Action::Refund => self.refund(),
            Action::FailRefund => self.fail_refund(),
            Action::Dispute => self.dispute(),
            Action::MoveDispute => self.move_dispute(),
            Action::Buy => self.buy(),
            Action::Settle => self.settle(),
            Action::Name => self.name(),
            Action::Delete => self.delete(),
            Action::Repeat => self.repeat(),
        }
    }

    // Telling.

    fn shape(&mut self) -> Shape {
        self.habits.shape.unwrap_or_else(|| *self.rng.pick(&[Shape::Old, Shape::New]))
    }

    fn tell(&mut self, kind: &'static str, object: Value, previous: Option<Value>, shape: Shape, story: String) {
        let id = format!("evt_{:012x}", self.rng.next() >> 16);
        let mut data = json!({"object": object});
        if let Some(previous) = previous {
            data["previous_attributes"] = previous;
        }
        let body = json!({
            "id": id, "object": "event", "type": kind, "created": self.now, "livemode": true,
            "api_version": shape.api_version(), "data": data,
        });
        self.told.push(Told { id, kind, created: self.now, body, story });
    }

    fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}_{:08x}", self.rng.next() >> 32)
    }

    fn tell_subscription(&mut self, kind: &'static str, index: usize, before: Option<&Subscription>) {
        let shape = self.shape();
        let one = self.subscriptions[index].clone();
        let object = render::subscription(self, &one, shape);
        let mut previous = before.map(|before| render::changed(&render::subscription(self, before, shape), &object));
        if self.habits.wild && self.rng.percent(8) {
            previous = None;
        }
        if let Some(text) = &one.reference {
            self.namings.push(Naming { customer: one.customer, by_merchant: true, at: self.now, text: text.clone() });
        }
        let prices: Vec<_> =
            one.items.iter().map(|item| format!("{}×{}", PRICES[item.price].id, item.quantity)).collect();
        let scheduled = one.cancel_at.or(Some(one.end).filter(|_| one.cancel_at_period_end));
        let story = format!(
            "{} of {} is {} with {}, until {}, ends {:?}, paused {}; before: {}",
            one.id,
            one.customer,
            one.status,
            prices.join("+"),
            one.end,
            one.ended_at.or(scheduled),
            one.paused,
            previous.as_ref().map_or_else(|| "untold".into(), ToString::to_string),
        );
        self.tell(kind, object, previous, shape, story);
    }

    /// Changes a subscription and tells so.
    fn change(&mut self, index: usize, change: impl FnOnce(&mut Subscription)) {
        let before = self.subscriptions[index].clone();
        change(&mut self.subscriptions[index]);
        self.tell_subscription("customer.subscription.updated", index, Some(&before));
    }

    fn tell_invoice(&mut self, kind: &'static str, index: usize) {
        let shape = self.shape();
        let one = self.invoices[index].clone();
        let object = render::invoice(self, &one, shape);
        let lines: Vec<_> = one
            .lines
            .iter()
            .map(|line| {
                let mark = if line.proration { " prorated" } else { "" };
                format!("{}×{}={}{mark} {:?}", PRICES[line.price].id, line.quantity, line.amount, line.period)
            })
            .collect();
        let story = format!(
            "{shape:?} {} of cus_{} is {}, paid {} of {}, payments {:?}: {}",
            one.id,
            one.customer,
            one.status,
            one.amount_paid,
            one.total,
            one.payments.iter().map(|payment| &self.payments[*payment].intent).collect::<Vec<_>>(),
            lines.join(", ")
        );
        self.tell(kind, object, None, shape, story);
    }

    fn tell_charge(&mut self, kind: &'static str, index: usize) {
        let shape = self.shape();
        let one = self.payments[index].clone();
        let embeds = self.habits.embeds && shape == Shape::Old;
        if embeds {
            for refund in self.refunds.iter_mut().filter(|refund| refund.payment == index) {
                (refund.told, refund.named) = (true, true);
            }
        }
        let object = render::charge(self, &one, shape, embeds);
        let story = format!(
            "{shape:?} {} of {}: captured {} of {}, refunded {} (and released {}){}",
            one.charge,
            one.intent,
            one.captured,
            one.amount,
            one.refunded,
            one.released,
            if embeds { format!(", lists {}", object["refunds"]["data"]) } else { String::new() }
        );
        self.tell(kind, object, None, shape, story);
    }

    /// The card was declined at first; the intent is the same.
    fn tell_failed_charge(&mut self, index: usize) {
        let (shape, mut one) = (self.shape(), self.payments[index].clone());
        one.charge = self.id("ch");
        let mut object = render::charge(self, &one, shape, false);
        (object["status"], object["paid"], object["amount_captured"]) = (json!("failed"), json!(false), json!(0));
        let story = format!("{} of {} was declined", one.charge, one.intent);
        self.tell("charge.failed", object, None, shape, story);
    }

    fn tell_refund(&mut self, kind: &'static str, index: usize) {
        let shape = self.shape();
        self.refunds[index].told = true;
        self.refunds[index].named |= shape == Shape::New || !self.refunds[index].old;
        let one = self.refunds[index].clone();
        let object = render::refund(self, &one, shape);
        let story = format!("{shape:?} {} of {} is {:?}, made at {}", one.id, one.amount, one.status, one.created);
        self.tell(kind, object, None, shape, story);
    }

    fn tell_dispute(&mut self, kind: &'static str, index: usize) {
        let shape = self.shape();
        self.disputes[index].named |= shape == Shape::New;
        let one = self.disputes[index].clone();
        let object = render::dispute(self, &one, shape);
        let charge = &self.payments[one.payment].charge;
        let story = format!("{} of {} {} of {charge} is {}", one.id, one.amount, one.currency, one.status);
        self.tell(kind, object, None, shape, story);
    }

    fn tell_checkout(&mut self, kind: &'static str, index: usize) {
        let shape = self.shape();
        let one = self.checkouts[index].clone();
        let object = render::checkout(self, &one);
        if let Some(text) = one.client_reference_id.clone() {
            self.namings.push(Naming { customer: one.customer, by_merchant: false, at: self.now, text });
        }
        let story = format!("{} ({}) is {}: {object}", one.id, one.mode, one.payment_status);
        self.tell(kind, object, None, shape, story);
    }

    fn tell_customer(&mut self, kind: &'static str, index: usize) {
        let shape = self.shape();
        let object = render::customer(self, index);
        self.customers[index].told = true;
        if let Some(text) = self.customers[index].reference.clone() {
            self.namings.push(Naming { customer: index, by_merchant: true, at: self.now, text });
        }
        let story = format!("{object}");
        self.tell(kind, object, None, shape, story);
    }

    // Choosing.

    fn customer(&mut self) -> Option<usize> {
        let index = self.rng.below(self.customers.len());
        (!self.customers[index].deleted).then_some(index)
    }

    fn subscription(&mut self, fits: impl Fn(&Subscription) -> bool) -> Option<usize> {
        let all: Vec<usize> =
            self.subscriptions.iter().enumerate().filter(|(_, one)| fits(one)).map(|(index, _)| index).collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    fn running(&mut self) -> Option<usize> {
        self.subscription(|one| matches!(one.status.as_str(), "active" | "trialing" | "past_due"))
    }

    fn reference(&mut self) -> Option<String> {
        self.rng.percent(30).then(|| format!("user_{}", self.rng.below(4)))
    }

    // Subscriptions.

    fn subscribe(&mut self) {
        let Some(customer) = self.customer() else { return };
        let id = self.id("sub");
        let mut items = vec![self.item(None)];
        if self.habits.wild && self.rng.percent(15) {
            items.push(self.item(None));
        }
        let trial = self.rng.percent(25);
        let end = self.now + if trial { 7 * 86_400 } else { MONTH };
        let index = self.subscriptions.len();
        let reference = self.reference();
        self.subscriptions.push(Subscription {
            id,
            customer,
            status: if trial { "trialing" } else { "incomplete" }.into(),
            items,
            start: self.now,
            end,
            cancel_at: None,
            cancel_at_period_end: false,
            ended_at: None,
            paused: false,
            reference,
            unbilled: Vec::new(),
        });
        self.tell_subscription("customer.subscription.created", index, None);
        let lines = self.lines_of(index, trial);
        let invoice = self.bill(customer, Some(index), lines);
        let works = trial || self.rng.percent(85);
        if works {
            self.pay(invoice);
        } else {
            self.tell_invoice("invoice.payment_failed", invoice);
        }
        if works && !trial {
            self.change(index, |one| one.status = "active".into());
        }
        if self.rng.percent(25) {
            let client_reference_id = self.reference();
            let id = self.id("cs");
            self.checkouts.push(Checkout {
                id,
                customer,
                mode: "subscription",
                payment_status: "paid",
                subscription: Some(index),
                invoice: Some(invoice),
                payment: None,
                amount: Some(0),
                price: None,
                quantity: 0,
                client_reference_id,
            });
            self.tell_checkout("checkout.session.completed", self.checkouts.len() - 1);
        }
    }

    fn item(&mut self, price: Option<usize>) -> Item {
        let id = self.id("si");
        let price = match price {
            Some(price) => price,
            None if self.habits.wild && self.rng.percent(8) => *self.rng.pick(&[UNLISTED, FOREIGN, ADDON]),
            None => self.rng.below(PLANS),
        };
        let quantity = if self.rng.percent(20) { self.rng.within(2, 4) } else { 1 };
        Item { id, price, quantity }
    }

    fn lines_of(&self, index: usize, free: bool) -> Vec<Line> {
        let one = &self.subscriptions[index];
        let line = |item: &Item| Line {
            price: item.price,
            amount: if free { 0 } else { PRICES[item.price].amount * item.quantity },
            quantity: item.quantity,
            proration: false,
            subscription: Some(index),
            period: (one.start, one.end),
        };
        one.items.iter().map(line).collect()
    }

    fn renew(&mut self) {
        let Some(index) = self.running() else { return };
        if self.subscriptions[index].cancel_at.is_some() || self.subscriptions[index].cancel_at_period_end {
            return;
        }
        let was_trial = self.subscriptions[index].status == "trialing";
        if !(self.habits.wild && self.rng.percent(50)) {
            self.now = self.now.max(self.subscriptions[index].end);
        }
        self.change(index, |one| {
            (one.start, one.end) = (one.end, one.end + MONTH);
            if was_trial {
                one.status = "active".into();
            }
        });
        let mut lines = self.lines_of(index, false);
        lines.append(&mut self.subscriptions[index].unbilled);
        let invoice = self.bill(self.subscriptions[index].customer, Some(index), lines);
        if self.subscriptions[index].paused {
            self.void(invoice);
        } else if self.rng.percent(75) {
            self.pay(invoice);
        } else {
            self.tell_invoice("invoice.payment_failed", invoice);
            self.change(index, |one| one.status = "past_due".into());
        }
    }

    fn open_invoice(&self, index: usize) -> Option<usize> {
        let open = |status: &str| matches!(status, "open" | "uncollectible");
        self.invoices.iter().position(|invoice| invoice.subscription == Some(index) && open(&invoice.status))
    }

    fn recover(&mut self) {
        let waits = |one: &Subscription| matches!(one.status.as_str(), "past_due" | "unpaid" | "incomplete");
        let Some(index) = self.subscription(waits) else { return };
        let Some(invoice) = self.open_invoice(index) else { return };
        self.pay(invoice);
        self.change(index, |one| one.status = "active".into());
    }

    fn give_up(&mut self) {
        let Some(index) = self.subscription(|one| matches!(one.status.as_str(), "past_due" | "incomplete")) else {
            return;
        };
        if self.subscriptions[index].status == "incomplete" {
            if let Some(invoice) = self.open_invoice(index) {
                self.void(invoice);
            }
            self.change(index, |one| one.status = "incomplete_expired".into());
        } else {
            self.change(index, |one| one.status = "unpaid".into());
            if let Some(invoice) = self.open_invoice(index).filter(|_| self.habits.wild && self.rng.percent(40)) {
                self.tell_uncollectible(invoice);
            }
        }
    }

    /// Nobody expects it to be paid; it may be all the same.
    fn tell_uncollectible(&mut self, index: usize) {
        self.invoices[index].status = "uncollectible".into();
        self.tell_invoice("invoice.marked_uncollectible", index);
    }

    /// Statuses that give no access, one of them as new as can be.
    fn sleep(&mut self) {
        let asleep = |one: &Subscription| matches!(one.status.as_str(), "paused" | "hibernating");
        if let Some(index) = self.subscription(asleep) {
            self.subscriptions[index].status = "active".into();
            self.tell_subscription("customer.subscription.resumed", index, None);
        } else if let Some(index) = self.running() {
            self.subscriptions[index].status = (*self.rng.pick(&["paused", "hibernating"])).into();
            self.tell_subscription("customer.subscription.paused", index, None);
        }
    }

    fn change_price(&mut self) {
        let Some(index) = self.running() else { return };
        let Some(old) = self.subscriptions[index].items.first().cloned() else { return };
        let price = if self.habits.wild && self.rng.percent(8) { UNLISTED } else { self.rng.below(PLANS) };
        if price == old.price {
            return;
        }
        let (start, end) = (self.subscriptions[index].start, self.subscriptions[index].end);
        let is_trial = self.subscriptions[index].status == "trialing";
        self.change(index, |one| one.items[0].price = price);
        if is_trial || self.now >= end || self.now <= start {
            return;
        }
        let part = |price: usize| PRICES[price].amount * old.quantity * (end - self.now) / (end - start);
        let line = |price, amount| Line {
            price,
            amount,
            quantity: old.quantity,
            proration: true,
            subscription: Some(index),
            period: (self.now, end),
        };
        let lines = vec![line(old.price, -part(old.price)), line(price, part(price))];
        if lines.iter().map(|line| line.amount).sum::<i64>() > 0 && self.rng.percent(80) {
            let invoice = self.bill(self.subscriptions[index].customer, Some(index), lines);
            self.pay(invoice);
        } else {
            self.subscriptions[index].unbilled.extend(lines);
        }
    }

    fn change_quantity(&mut self) {
        let Some(index) = self.running() else { return };
        let quantity = self.rng.within(1, 5);
        self.change(index, |one| one.items[0].quantity = quantity);
    }

    fn add_item(&mut self) {
        let Some(index) = self.running() else { return };
        let price = if self.habits.wild { None } else { Some(ADDON) };
        let item = self.item(price);
        if self.subscriptions[index].items.len() < 3 {
            self.change(index, |one| one.items.push(item));
        } else {
            self.change(index, |one| one.items.truncate(1));
        }
    }

    fn cancel_now(&mut self) {
        let alive = |one: &Subscription| !matches!(one.status.as_str(), "canceled" | "incomplete_expired");
        if let Some(index) = self.subscription(alive) {
            self.cancel(index);
        }
    }

    fn cancel(&mut self, index: usize) {
        let before = self.subscriptions[index].clone();
        let now = self.now;
        let one = &mut self.subscriptions[index];
        (one.status, one.ended_at) = ("canceled".into(), Some(now));
        if self.habits.wild && self.rng.percent(20) {
            self.tell_subscription("customer.subscription.updated", index, Some(&before));
        }
        self.tell_subscription("customer.subscription.deleted", index, None);
    }

    fn cancel_later(&mut self) {
        let Some(index) = self.running() else { return };
        let way = self.rng.below(3);
        self.change(index, |one| {
            one.cancel_at_period_end = way < 2;
            one.cancel_at = (way > 0).then_some(one.end);
        });
    }

    fn keep_on(&mut self) {
        let Some(index) = self.running() else { return };
        self.change(index, |one| (one.cancel_at, one.cancel_at_period_end) = (None, false));
    }

    fn end(&mut self) {
        let scheduled = |one: &Subscription| {
            (one.cancel_at.is_some() || one.cancel_at_period_end)
                && matches!(one.status.as_str(), "active" | "trialing" | "past_due")
        };
        if let Some(index) = self.subscription(scheduled) {
            self.now = self.now.max(self.subscriptions[index].end);
            self.cancel(index);
        }
    }

    fn pause(&mut self) {
        let Some(index) = self.running() else { return };
        self.change(index, |one| one.paused = !one.paused);
    }

    // Invoices.

    fn bill(&mut self, customer: usize, subscription: Option<usize>, lines: Vec<Line>) -> usize {
        let id = self.id("in");
        let index = self.invoices.len();
        let truncated = self.habits.wild && self.rng.percent(2);
        self.invoices.push(Invoice {
            id,
            customer,
            subscription,
            status: "draft".into(),
            created: self.now,
            paid_at: None,
            total: lines.iter().map(|line| line.amount).sum(),
            lines,
            amount_paid: 0,
            out_of_band: false,
            currency: if self.habits.wild && self.rng.percent(3) { "eur" } else { "usd" },
            truncated,
            payments: Vec::new(),
        });
        if self.rng.percent(30) {
            self.tell_invoice("invoice.created", index);
        }
        self.invoices[index].status = "open".into();
        if self.rng.percent(30) {
            self.tell_invoice("invoice.finalized", index);
        }
        index
    }

    fn pay(&mut self, index: usize) {
        let total = self.invoices[index].total.max(0);
        let (before, left) = (self.invoices[index].payments.len(), total - self.invoices[index].amount_paid);
        if total > 0 && before == 0 && self.rng.percent(6) {
            self.invoices[index].out_of_band = true;
        } else if total > 1 && self.habits.shape == Some(Shape::New) && self.rng.percent(12) {
            let first = self.rng.within(1, left.max(2));
            self.charge_for(index, first);
            if left > first {
                self.charge_for(index, left - first);
            }
        } else if left > 0 {
            self.charge_for(index, left);
        }
        let now = self.now;
        let one = &mut self.invoices[index];
        (one.status, one.amount_paid, one.paid_at) = ("paid".into(), total, Some(now));
        let payments = one.payments.clone();
        for payment in &payments[before..] {
            self.tell_payment(*payment);
        }
        self.tell_invoice("invoice.paid", index);
        if !payments.is_empty() {
            self.tell_invoice("invoice.payment_succeeded", index);
        }
        if self.rng.percent(15) {
            self.tell_invoice("invoice.updated", index);
        }
    }

    /// A part is paid, and the invoice stays open.
    fn pay_part(&mut self) {
        let open = |one: &Invoice| one.status == "open" && one.payments.is_empty() && one.total > 1;
        let Some(index) = self.invoices.iter().position(open).filter(|_| self.habits.shape == Some(Shape::New)) else {
            return;
        };
        let part = self.rng.within(1, self.invoices[index].total);
        self.charge_for(index, part);
        self.invoices[index].amount_paid = part;
        let payment = self.payments.len() - 1;
        self.tell_payment(payment);
        if !self.habits.wild || self.rng.percent(50) {
            self.tell_invoice("invoice.updated", index);
        }
        if self.habits.wild && self.rng.percent(30) {
            self.void(index);
        }
    }

    fn charge_for(&mut self, invoice: usize, amount: i64) {
        let customer = self.invoices[invoice].customer;
        let payment = self.make_payment(customer, amount, Some(invoice));
        self.invoices[invoice].payments.push(payment);
    }

    fn make_payment(&mut self, customer: usize, amount: i64, invoice: Option<usize>) -> usize {
        let (intent, charge) = (self.id("pi"), self.id("ch"));
        self.payments.push(Payment {
            intent,
            charge,
            customer,
            amount,
            captured: amount,
            released: 0,
            refunded: 0,
            invoice,
            bare: self.habits.wild && self.habits.shape == Some(Shape::Old) && self.rng.percent(25),
        });
        self.payments.len() - 1
    }

    fn tell_payment(&mut self, index: usize) {
        if self.habits.wild && self.rng.percent(10) {
            self.tell_failed_charge(index);
        }
        self.tell_charge("charge.succeeded", index);
        if self.payments[index].bare {
            return;
        }
        let (shape, one) = (self.shape(), self.payments[index].clone());
        let object = render::payment_intent(self, &one, shape);
        let story = format!("{shape:?} {} with {}", one.intent, one.charge);
        self.tell("payment_intent.succeeded", object, None, shape, story);
        if one.invoice.is_some() && self.habits.shape != Some(Shape::Old) {
            let object = render::invoice_payment(self, &one);
            let story = format!("{} paid {}", one.intent, object["invoice"]);
            self.tell("invoice_payment.paid", object, None, Shape::New, story);
        }
    }

    fn void(&mut self, index: usize) {
        self.invoices[index].status = "void".into();
        self.tell_invoice("invoice.voided", index);
    }

    // Refunds and disputes.

    fn payment(&mut self, fits: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.payments.len()).filter(|index| fits(self, *index)).collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    /// What moves money of an open invoice waits; where only what is final may happen, it does not move.
    fn is_settled(&self, payment: &Payment) -> bool {
        self.habits.wild || payment.invoice.is_none_or(|invoice| self.invoices[invoice].status == "paid")
    }

    fn refund(&mut self) {
        let Some(payment) = self.payment(|world, index| {
            let one = &world.payments[index];
            one.captured > one.refunded && world.is_settled(one)
        }) else {
            return;
        };
        let left = self.payments[payment].captured - self.payments[payment].refunded;
        let amount = if self.rng.percent(50) { left } else { self.rng.within(1, left + 1) };
        let (id, old) = (self.id("re"), self.rng.percent(40));
        let status = *self.rng.pick(&["succeeded", "succeeded", "pending"]);
        let index = self.refunds.len();
        let chargeless = self.habits.wild && !old && !self.payments[payment].bare && self.rng.percent(20);
        let created = self.now;
        self.refunds.push(Refund {
            id,
            payment,
            amount,
            status: status.into(),
            created,
            old,
            chargeless,
            told: false,
            named: false,
        });
        self.payments[payment].refunded += amount;
        let own = self.habits.refund_events || self.habits.shape != Some(Shape::Old);
        if own {
            self.tell_refund("refund.created", index);
        }
        self.tell_charge("charge.refunded", payment);
        if status == "pending" && own && self.rng.percent(70) {
            self.now += i64::from(self.rng.percent(80));
            self.refunds[index].status = "succeeded".into();
            self.tell_refund("refund.updated", index);
        }
    }

    fn fail_refund(&mut self) {
        let alive: Vec<usize> = (0..self.refunds.len())
            .filter(|index| !matches!(self.refunds[*index].status.as_str(), "failed" | "canceled"))
            .collect();
        if alive.is_empty() {
            return;
        }
        let index = *self.rng.pick(&alive);
        let (payment, amount) = (self.refunds[index].payment, self.refunds[index].amount);
        self.refunds[index].status = (*self.rng.pick(&["failed", "failed", "canceled"])).into();
        self.payments[payment].refunded -= amount;
        let way = self.rng.below(4);
        let own = self.habits.refund_events || self.habits.shape != Some(Shape::Old);
        // An embedded list, or the charge's total, may be all that tells.
        let silent = way == 0 && (self.habits.wild || self.habits.embeds && self.habits.shape == Some(Shape::Old));
        if !silent {
            let kind = if own { "refund.failed" } else { "charge.refund.updated" };
            self.tell_refund(kind, index);
            if way == 1 {
                self.tell_refund("refund.updated", index);
            }
        }
        if silent || way == 2 {
            self.now += i64::from(!(self.habits.wild && self.rng.percent(50)));
            self.tell_charge("charge.updated", payment);
        }
    }

    fn dispute(&mut self) {
        let Some(payment) = self.payment(|world, index| {
            let one = &world.payments[index];
            one.captured > 0 && world.is_settled(one) && world.disputes.iter().all(|dispute| dispute.payment != index)
        }) else {
            return;
        };
        let captured = self.payments[payment].captured;
        let amount = if self.rng.percent(70) { captured } else { self.rng.within(1, captured + 1) };
        let inquiry = self.rng.percent(25);
        let currency = if self.habits.wild && self.rng.percent(10) { "eur" } else { "usd" };
        let id = self.id("dp");
        let status = if inquiry { "warning_needs_response" } else { "needs_response" };
        self.disputes.push(Dispute {
            id,
            payment,
            amount,
            currency,
            status: status.into(),
            out: !inquiry,
            named: false,
        });
        let index = self.disputes.len() - 1;
        self.tell_dispute("charge.dispute.created", index);
        if !inquiry {
            self.tell_dispute("charge.dispute.funds_withdrawn", index);
        }
        if self.rng.percent(30) {
            self.tell_charge("charge.updated", payment);
        }
    }

    fn move_dispute(&mut self) {
        if self.disputes.is_empty() {
            return;
        }
        let index = self.rng.below(self.disputes.len());
        let coin = self.rng.percent(50);
        match self.disputes[index].status.clone().as_str() {
            "warning_needs_response" | "warning_under_review" if coin => self.set_dispute(index, "warning_closed"),
            "warning_needs_response" | "warning_under_review" => {
                self.disputes[index].status = "needs_response".into();
                self.disputes[index].out = true;
                self.tell_dispute("charge.dispute.updated", index);
                self.tell_dispute("charge.dispute.funds_withdrawn", index);
            }
            "needs_response" if coin => self.set_dispute(index, "under_review"),
            "needs_response" | "under_review" if coin => self.set_dispute(index, "lost"),
            "needs_response" | "under_review" | "lost" => {
                self.set_dispute(index, "won");
                self.disputes[index].out = false;
                self.now += i64::from(self.rng.percent(50));
                if self.rng.percent(80) {
                    self.tell_dispute("charge.dispute.funds_reinstated", index);
                }
            }
            "won" if self.habits.wild && coin => {
                self.disputes[index].status = "under_review".into();
                self.disputes[index].out = true;
                self.tell_dispute("charge.dispute.funds_withdrawn", index);
            }
            _ => {}
        }
    }

    fn set_dispute(&mut self, index: usize, status: &str) {
        let closed = matches!(status, "won" | "lost" | "warning_closed");
        self.disputes[index].status = status.into();
        self.tell_dispute(if closed { "charge.dispute.closed" } else { "charge.dispute.updated" }, index);
    }

    // One-off purchases.

    fn buy(&mut self) {
        let Some(customer) = self.customer() else { return };
        let price = if self.habits.wild && self.rng.percent(8) { UNLISTED } else { *self.rng.pick(&[ADDON, SMS]) };
        let quantity = self.rng.within(1, 4);
        let amount = PRICES[price].amount * quantity;
        let with_invoice = self.rng.percent(40);
        let invoice = with_invoice.then(|| {
            let period = (self.now, self.now);
            let line = Line { price, amount, quantity, proration: false, subscription: None, period };
            self.bill(customer, None, vec![line])
        });
        let (id, client_reference_id) = (self.id("cs"), self.reference());
        let index = self.checkouts.len();
        self.checkouts.push(Checkout {
            id,
            customer,
            mode: "payment",
            payment_status: "unpaid",
            subscription: None,
            invoice,
            payment: None,
            amount: Some(amount),
            price: (!(self.habits.wild && self.rng.percent(10))).then_some(price),
            quantity,
            client_reference_id,
        });
        if let Some(invoice) = invoice {
            self.pay(invoice);
            self.checkouts[index].payment_status = "paid";
            self.checkouts[index].payment = self.invoices[invoice].payments.last().copied();
            self.tell_checkout("checkout.session.completed", index);
            return;
        }
        let payment = self.make_payment(customer, amount, None);
        self.checkouts[index].payment = Some(payment);
        if self.rng.percent(25) {
            // Paid later, or never.
            self.payments[payment].captured = 0;
            self.tell_checkout("checkout.session.completed", index);
            return;
        }
        if self.habits.wild && self.rng.percent(10) {
            // The session does not say; only its charge tells how much was paid.
            self.checkouts[index].amount = None;
        }
        if self.habits.wild && self.rng.percent(15) {
            let released = self.rng.within(1, amount);
            (self.payments[payment].released, self.payments[payment].captured) = (released, amount - released);
        }
        self.tell_payment(payment);
        self.checkouts[index].payment_status = "paid";
        self.tell_checkout("checkout.session.completed", index);
    }

    fn settle(&mut self) {
        let unpaid = |one: &Checkout| one.mode == "payment" && one.payment_status == "unpaid" && one.invoice.is_none();
        let Some(index) = self.checkouts.iter().position(unpaid) else { return };
        let Some(payment) = self.checkouts[index].payment else { return };
        if self.rng.percent(25) {
            self.checkouts[index].payment = None;
            self.tell_checkout("checkout.session.async_payment_failed", index);
            return;
        }
        self.payments[payment].captured = self.payments[payment].amount;
        self.tell_payment(payment);
        self.checkouts[index].payment_status = "paid";
        self.tell_checkout("checkout.session.async_payment_succeeded", index);
    }

    // Customers, and whatever else.

    fn name(&mut self) {
        let Some(index) = self.customer() else { return };
        self.customers[index].reference = self.reference();
        let kind = if self.rng.percent(30) { "customer.created" } else { "customer.updated" };
        self.tell_customer(kind, index);
    }

    fn delete(&mut self) {
        let Some(customer) = self.customer() else { return };
        for index in 0..self.subscriptions.len() {
            let one = &self.subscriptions[index];
            if one.customer == customer && !matches!(one.status.as_str(), "canceled" | "incomplete_expired") {
                self.cancel(index);
            }
        }
        self.customers[customer].deleted = true;
        self.tell_customer("customer.deleted", customer);
    }

    /// Something happens that changes nothing that billing is about.
    fn repeat(&mut self) {
        match self.rng.below(5) {
            4 => self.sleep(),
            0 => {
                if let Some(index) = self.running() {
                    self.tell_subscription("customer.subscription.trial_will_end", index, None);
                }
            }
            1 if !self.invoices.is_empty() => {
                let index = self.rng.below(self.invoices.len());
                self.tell_invoice("invoice.updated", index);
            }
            2 => {
                if let Some(payment) = self.payment(|world, index| world.payments[index].captured > 0) {
                    self.tell_charge("charge.updated", payment);
                }
            }
            _ => {
                let shape = self.shape();
                let index = self.rng.below(PLANS);
                self.tell("price.updated", render::price(index), None, shape, PRICES[index].id.into());
            }
        }
    }
}
