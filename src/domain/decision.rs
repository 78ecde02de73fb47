//! What is to be done with an event: the output of a decision, as plain data that a test can compare.

use std::borrow::Cow;
use std::fmt;

use crate::domain::clawback::{ChargeHeld, Correction, DisputeHeld, RefundHeld};
use crate::domain::event::{PaymentRef, Price, UnixSeconds};
use crate::domain::fact::Fact;
use crate::domain::facts::Reference;
use crate::domain::grant::GrantLine;
use crate::domain::ids::{AccountId, ChargeId, CheckoutId, InvoiceId, PaymentId, PriceId, SubscriptionId};
use crate::domain::money::Currency;
use crate::domain::subscription::{Known, PaidPeriod, Standing};

/// What to do with an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It is done, with these effects, all of them or none.
    Complete(Completion),
    /// It stays pending until any of these is known, and leaves nothing else behind.
    Wait(Vec<Need>),
    /// It cannot be applied until a person acts, and leaves nothing else behind.
    Fail(Failure),
}

/// A completed event.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// What became of it.
    pub outcome: Outcome,
    /// Why, where the outcome alone does not say.
    pub reason: Option<Cow<'static, str>>,
    /// What to write, in this order.
    pub effects: Vec<Effect>,
    /// What is known from now on, and others may wait for.
    pub arrivals: Vec<Need>,
}

/// What became of a completed event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// An entry, a tier change, a subscription or an account changed.
    Applied,
    /// Understood, and none of these changed.
    NoEffect,
    /// Older than what we hold.
    Stale,
    /// Not for us.
    Ignored,
}

impl Outcome {
    /// The word in answers and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NoEffect => "no_effect",
            Self::Stale => "stale",
            Self::Ignored => "ignored",
        }
    }
}

/// One change of the books.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// The newest snapshot of an invoice.
    SaveInvoice(InvoiceRow),
    /// These payments paid this invoice.
    LinkPayments(InvoiceId, Vec<PaymentRef>),
    /// A price and what one of it costs.
    LearnPrice(Price),
    /// The account exists from now on.
    OpenAccount(AccountId),
    /// The user's own id for the account.
    SetReference(AccountId, Reference),
    /// The user's own id for the account, as before, but earlier or more surely known.
    ConfirmReference(AccountId, Reference),
    /// The customer was deleted at Stripe; its books stay.
    CloseAccount(AccountId, UnixSeconds),
    /// An entry in the ledger.
    Grant(AccountId, Fact, Vec<GrantLine>),
    /// A paid checkout without invoice.
    SaveCheckout(CheckoutRow),
    /// A session made an invoice: both are one purchase.
    TieCheckout(CheckoutId, InvoiceId),
    /// A charge belongs to a payment intent.
    NamePayment(ChargeId, PaymentId),
    /// The newest snapshot of a charge.
    SaveCharge(ChargeHeld),
    /// What is known of a refund.
    SaveRefund(RefundHeld),
    /// What is known of a dispute.
    SaveDispute(DisputeHeld),
    /// An entry that takes back of a grant, or gives again.
    Correct(AccountId, Fact, Vec<Correction>),
    /// What is known of a subscription, and how it stands.
    SaveSubscription(Box<Known>, Box<Standing>),
    /// How a subscription stands, when nothing new is known of it but the time or what was paid.
    Restand(Box<Standing>),
    /// What was paid for by an invoice of a subscription.
    SavePaidPeriods(SubscriptionId, Vec<PaidPeriod>),
    /// The account's plan changes from one to another.
    ChangeTier(AccountId, Option<String>, Option<String>),
    /// A person should look at this.
    OpenFinding(Finding),
    /// What a person should have looked at is gone.
    ResolveFinding(&'static str, String),
}

/// One difference that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: &'static str,
    /// The object's id.
    pub subject: String,
    /// What was to be expected.
    pub expected: String,
    /// What is.
    pub actual: String,
}

/// What we keep of a paid checkout without invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutRow {
    /// `cs_…`
    pub id: CheckoutId,
    /// Whose it is.
    pub account: Option<AccountId>,
    /// Its payment.
    pub payment_intent: Option<PaymentId>,
    /// Minor units.
    pub amount_paid: i64,
    /// The currency.
    pub currency: Option<Currency>,
}

/// What we keep of an invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceRow {
    /// `in_…`
    pub id: InvoiceId,
    /// Its customer.
    pub account: Option<AccountId>,
    /// Its subscription.
    pub subscription: Option<SubscriptionId>,
    /// Its status.
    pub status: String,
    /// The currency of the amounts.
    pub currency: Currency,
    /// Minor units.
    pub total: i64,
    /// Minor units.
    pub amount_paid: i64,
    /// When the invoice was made.
    pub created: Option<UnixSeconds>,
    /// `created` of the event that told this.
    pub snapshot_at: UnixSeconds,
}

/// What a pending event waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Need {
    /// All lines of an invoice.
    Lines(InvoiceId),
    /// The unit amount of a price.
    Price(PriceId),
    /// What a payment paid; by any of its names.
    Payment(String),
    /// What became of a grant.
    Grant(Fact),
    /// The other items of a subscription.
    Subscription(SubscriptionId),
    /// What a checkout session sold.
    Session(CheckoutId),
    /// A rate of exchange.
    Rate(Currency),
    /// The object of a thin event, by its path at Stripe's API.
    Object(String),
}

impl Need {
    /// Reads what [`Display`](fmt::Display) wrote; `None`: it was something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "lines" => InvoiceId::parse(name).ok().map(Self::Lines),
            "price" => PriceId::parse(name).ok().map(Self::Price),
            "payment" => Some(Self::Payment(name.to_owned())),
            "grant" => Some(Self::Grant(Fact::stored(text))),
            "subscription" => SubscriptionId::parse(name).ok().map(Self::Subscription),
            "session" => CheckoutId::parse(name).ok().map(Self::Session),
            "rate" => Currency::parse(name).ok().map(Self::Rate),
            "object" => Some(Self::Object(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines(id) => write!(f, "lines:{id}"),
            Self::Price(id) => write!(f, "price:{id}"),
            Self::Payment(name) => write!(f, "payment:{name}"),
            Self::Grant(fact) => write!(f, "{fact}"),
            Self::Subscription(id) => write!(f, "subscription:{id}"),
            Self::Session(id) => write!(f, "session:{id}"),
            Self::Rate(currency) => write!(f, "rate:{currency}"),
            Self::Object(path) => write!(f, "object:{path}"),
        }
    }
}

/// Why an event failed, without anything private.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Stable, so that failures can be grouped.
    pub code: &'static str,
    /// What happened, on which input, and what to do next.
    pub message: String,
}
