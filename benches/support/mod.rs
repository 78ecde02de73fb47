//! What both benchmarks share: distinct events of the hottest kind, with ids as Stripe makes them.

#![allow(dead_code, reason = "each benchmark uses its part")]

use std::fmt::Write as _;

use billingd::samples::Sample;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The secret of the benchmarks' endpoint.
pub(crate) const SECRET: &str = "whsec_benchmarks_only";

/// An `invoice.paid` of 3 KB as Stripe prints it; `{…}` stands for what differs.
const TEMPLATE: &str = include_str!("invoice_paid.json");

/// Events that share the leading, time-ordered part of their ids: those of one second of a busy merchant.
const EVENTS_PER_TICK: u64 = 100;

/// Makes events by number; a later number has later ids.
pub(crate) struct Events {
    parts: Vec<Part>,
    accounts: u64,
    /// Every second one is of a subscription or of a charge.
    mixed: bool,
}

enum Part {
    Text(&'static str),
    Created,
    End,
    Number,
    Customer,
    Id(&'static str),
}

impl Events {
    /// Events that are spread evenly over so many accounts.
    pub(crate) fn of(accounts: u64) -> Self {
        let mut parts = Vec::new();
        let mut rest = TEMPLATE;
        // A brace of JSON is followed by white space or its end, never by a letter.
        while let Some(start) = rest
            .match_indices('{')
            .map(|(at, _)| at)
            .find(|at| rest[at + 1..].starts_with(|next: char| next.is_ascii_lowercase()))
        {
            let end = start + rest[start..].find('}').expect("a closed name");
            parts.push(Part::Text(&rest[..start]));
            parts.push(match &rest[start + 1..end] {
                "created" => Part::Created,
                "end" => Part::End,
                "number" => Part::Number,
                "customer" => Part::Customer,
                "event" => Part::Id("evt_1"),
                "invoice" => Part::Id("in_1"),
                "line" => Part::Id("il_1"),
                "charge" => Part::Id("ch_3"),
                "payment" => Part::Id("pi_3"),
                "subscription" => Part::Id("sub_1"),
                other => panic!("{other} is no name of the template"),
            });
            rest = &rest[end + 1..];
        }
        parts.push(Part::Text(rest));
        Self { parts, accounts, mixed: false }
    }

    /// A half of them invoices, a quarter subscriptions, a quarter charges.
    pub(crate) fn mixed(accounts: u64) -> Self {
        Self { mixed: true, ..Self::of(accounts) }
    }

    /// The body of the event with this number.
    pub(crate) fn body(&self, number: u64) -> String {
        let created = 1_760_000_000 + number / EVENTS_PER_TICK;
        match number % 4 {
            1 if self.mixed => return self.sample(number, created, "customer.subscription.updated"),
            3 if self.mixed => return self.sample(number, created, "charge.succeeded"),
            _ => {}
        }
        let mut body = String::with_capacity(TEMPLATE.len() + 512);
        for part in &self.parts {
            match part {
                Part::Text(text) => body.push_str(text),
                Part::Created => write!(body, "{created}").expect("a text"),
                Part::End => write!(body, "{}", created + 2_592_000).expect("a text"),
                Part::Number => write!(body, "{number:08}").expect("a text"),
                Part::Customer => {
                    body.push_str("cus_");
                    push_letters(&mut body, scatter(scatter(number) % self.accounts), 10);
                }
                Part::Id(prefix) => {
                    body.push_str(prefix);
                    push_letters(&mut body, 500_000_000 + number / EVENTS_PER_TICK, 5);
                    body.push_str("BenchAcct1");
                    push_letters(&mut body, scatter(number), 8);
                }
            }
        }
        body
    }

    fn sample(&self, number: u64, created: u64, kind: &str) -> String {
        let now = i64::try_from(created).expect("a time");
        let sample = Sample { customer: scatter(number) % self.accounts, ..Sample::new(number, now) };
        String::from_utf8(sample.body(kind).expect("a sample")).expect("a text")
    }

    /// The body with the header that signs it at `now`.
    pub(crate) fn signed(&self, number: u64, now: i64) -> (String, String) {
        let body = self.body(number);
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key");
        mac.update(format!("{now}.").as_bytes());
        mac.update(body.as_bytes());
        let header = format!("t={now},v1={}", base16ct::lower::encode_string(&mac.finalize().into_bytes()));
        (body, header)
    }
}

/// The last letters of a number written with 62 digits; of two numbers, the larger one's text is the larger one.
fn push_letters(text: &mut String, mut number: u64, letters: usize) {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut reversed = [b'0'; 16];
    for letter in &mut reversed[..letters] {
        *letter = DIGITS[usize::try_from(number % 62).expect("a digit")];
        number /= 62;
    }
    text.extend(reversed[..letters].iter().rev().map(|letter| char::from(*letter)));
}

/// SplitMix64: the same number always gives the same one, and neighbours lie far apart.
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
