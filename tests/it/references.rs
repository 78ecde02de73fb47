//! Whom the user's own id means, when several accounts say that it is theirs.

use billingd::ops::adjust::{AdjustError, find_account};
use serde_json::json;

use super::fixtures::{Shape, customer, event};
use super::harness::{Billing, spawn};

/// One thing that Stripe tells about a customer.
#[derive(Clone, Copy)]
enum Tells {
    Metadata(&'static str, &'static str),
    ClientReferenceId(&'static str, &'static str),
    Deleted(&'static str, &'static str),
}

use Tells::{ClientReferenceId, Deleted, Metadata};

fn tells(billing: &Billing, number: usize, told: Tells) {
    let (kind, object) = match told {
        Metadata(id, reference) => ("customer.created", customer(id, reference)),
        Deleted(id, reference) => ("customer.deleted", customer(id, reference)),
        ClientReferenceId(id, reference) => {
            let session = json!({
                "id": format!("cs_{number}"), "object": "checkout.session", "mode": "payment", "customer": id,
                "client_reference_id": reference, "payment_status": "unpaid", "status": "complete",
            });
            ("checkout.session.completed", session)
        }
    };
    let answer = billing.stripe_sends(&event(Shape::New, &format!("evt_{number}"), kind, object));
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Whom commands, pages and the API take a name for.
fn named(billing: &Billing, name: &str) -> Vec<String> {
    let found = billing.reader().read(|connection| Ok(find_account(connection, name))).expect("the books");
    match found {
        Ok(account) => vec![account.to_string()],
        Err(AdjustError::AmbiguousAccount { accounts, .. }) => accounts,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_reference_means_the_live_account_that_has_it_most_surely() {
    let cases: [(&str, &[Tells], &[&str]); 7] = [
        ("the only one", &[Metadata("cus_a", "u")], &["cus_a"]),
        ("a deleted one too, while it is alone", &[Metadata("cus_a", "u"), Deleted("cus_a", "u")], &["cus_a"]),
        ("a live one", &[Metadata("cus_a", "u"), Deleted("cus_a", "u"), Metadata("cus_b", "u")], &["cus_b"]),
        (
            "a live one that a buyer named, rather than a deleted one",
            &[Metadata("cus_a", "u"), Deleted("cus_a", "u"), ClientReferenceId("cus_b", "u")],
            &["cus_b"],
        ),
        (
            "whom the merchant named, not whom a buyer did",
            &[Metadata("cus_vic", "u"), ClientReferenceId("cus_att", "u"), ClientReferenceId("cus_att2", "u")],
            &["cus_vic"],
        ),
        ("nobody of two equals", &[Metadata("cus_a", "u"), Metadata("cus_b", "u")], &["cus_a", "cus_b"]),
        (
            "nor of two that buyers named",
            &[ClientReferenceId("cus_a", "u"), ClientReferenceId("cus_b", "u")],
            &["cus_a", "cus_b"],
        ),
    ];
    for (name, told, expected) in cases {
        let billing = spawn();
        for (number, &one) in told.iter().enumerate() {
            tells(&billing, number, one);
        }
        assert_eq!(named(&billing, "u"), expected, "{name}");
        let in_view = billing.rows("SELECT account_id FROM v_references WHERE reference = 'u'");
        let meant = if expected.len() == 1 { expected } else { &[] };
        assert_eq!(in_view, meant, "{name}");
    }
}
