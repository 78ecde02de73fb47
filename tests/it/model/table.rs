//! What people bring into the books of a life: favours, and an old credit table with rows of its own, rows of what events
//! grant as well, and rows that only name such an event.

use billingd::domain::ids::{AccountId, EventId};
use billingd::ops::import_ledger::{Report, Row};

use super::{Rules, expected};
use crate::books::{Totals, number_of};
use crate::sim::{Rng, Told, World};

/// What a row is for.
#[derive(Debug, Clone)]
enum For {
    /// Nothing that Stripe knows.
    Itself,
    /// An invoice, which it names: it is the grant, or repeats it.
    Invoice,
    /// The invoice of an event, which it names: one too many, once that is granted.
    EventOf(String),
}

/// What somebody gives or takes by hand.
#[derive(Debug, Clone)]
pub(super) struct Favour {
    pub(super) account: String,
    pub(super) amount: i64,
    pub(super) key: String,
}

/// The table, and what is given by hand.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub(super) favours: Vec<Favour>,
    pub(super) rows: Vec<Row>,
    fors: Vec<For>,
}

impl Table {
    /// About some of the customers and of the invoices of a life.
    pub(super) fn new(world: &World, rules: Rules, now: i64, has_rows: bool, rng: &mut Rng) -> Self {
        let mut table = Self::default();
        let mut poor = world.clone();
        poor.invoices.clear();
        poor.checkouts.clear();
        // Whoever is known by other things than money.
        let known = expected::books(&poor, rules, now);
        let known: Vec<&str> = known.keys().filter_map(|name| name.strip_prefix("account ")).collect();
        for (index, account) in known.iter().enumerate() {
            if rng.percent(50) {
                continue;
            }
            let (account, amount) = ((*account).to_owned(), *rng.pick(&[30, -7]));
            table.favours.push(Favour { account, amount, key: format!("ticket-{index}") });
        }
        if !has_rows {
            return table;
        }
        for account in &known {
            for amount in (0..rng.below(3)).map(|_| *rng.pick(&[100, 250, -40])).collect::<Vec<_>>() {
                table.add(account, "credits", amount, "old_none", None, For::Itself);
            }
        }
        let mut unrefunded = world.clone();
        unrefunded.refunds.clear();
        unrefunded.disputes.clear();
        let books = expected::books(&unrefunded, rules, now);
        for invoice in world.invoices.iter().filter(|one| known.contains(&&*world.customers[one.customer].id)) {
            let is_paid = |told: &&Told| told.kind == "invoice.paid" && told.body["data"]["object"]["id"] == invoice.id;
            let told = world.told.iter().find(is_paid);
            let (Some(told), true) = (told, rng.percent(40)) else { continue };
            let by_event = rng.percent(50);
            for (name, row) in books.range(format!("grant grant:invoice:{} ", invoice.id)..) {
                let Some(unit) = name.strip_prefix(&format!("grant grant:invoice:{} ", invoice.id)) else { break };
                let (account, amount) = (world.customers[invoice.customer].id.as_str(), number_of(row));
                if by_event {
                    table.add(account, unit, amount, &told.id, None, For::EventOf(invoice.id.clone()));
                } else {
                    table.add(account, unit, amount, &told.id, Some(&invoice.id), For::Invoice);
                }
            }
        }
        table
    }

    fn add(&mut self, account: &str, unit: &str, amount: i64, event: &str, object: Option<&str>, what: For) {
        let line = u64::try_from(self.rows.len()).unwrap() + 2;
        let source_event = match what {
            // Rows of one source repeat each other, and these do not.
            For::Itself => format!("{event}_{line}"),
            For::Invoice | For::EventOf(_) => event.to_owned(),
        };
        self.rows.push(Row {
            line,
            account: AccountId::parse(account).unwrap(),
            unit: unit.to_owned(),
            amount,
            source_event: EventId::parse(&source_event).unwrap(),
            source_object: object.map(str::to_owned),
            created: None,
        });
        self.fors.push(what);
    }

    /// Whether a row is the grant of an invoice, or would be.
    pub(super) fn grants(&self, invoice: &str) -> bool {
        self.rows.iter().any(|row| row.source_object.as_deref() == Some(invoice))
    }

    /// What all of it adds to the books, once what was given twice is repaired.
    pub(super) fn add_to(&self, expected: &mut Totals, report: &Report) {
        for ((row, what), taken) in self.rows.iter().zip(&self.fors).zip(&report.rows) {
            let stands = match what {
                For::Itself => true,
                For::Invoice => false,
                For::EventOf(invoice) => {
                    let grant = format!("grant grant:invoice:{invoice} ");
                    !expected.range(grant.clone()..).next().is_some_and(|(name, _)| name.starts_with(&grant))
                }
            };
            if stands {
                add(expected, &taken.event_id, row.account.as_str(), &row.unit, row.amount);
            }
        }
        for Favour { account, amount, key } in &self.favours {
            add(expected, &format!("adjust:{key}"), account, "credits", *amount);
        }
    }
}

fn add(books: &mut Totals, root: &str, account: &str, unit: &str, amount: i64) {
    let balance = books.entry(format!("balance {account} {unit}")).or_insert_with(|| "0".into());
    *balance = (number_of(balance) + amount).to_string();
    books.insert(format!("grant {root} {unit}"), format!("{account} | {amount}"));
}
