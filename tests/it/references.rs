//! Whom the user's own id means, when several accounts say that it is theirs.

use billingd::domain::ids::EventId;
use billingd::ops::adjust::{AdjustError, find_account};
use billingd::ops::reference::{Named, Naming, name};
use serde_json::json;

use super::fixtures::{Shape, customer, event};
use super::harness::{Billing, NOW, spawn};

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

fn operator_names(billing: &Billing, event: &str, account: &str, reference: &str) -> Named {
    let naming = Naming {
        account: account.into(),
        reference: reference.into(),
        reason: "a test".into(),
        operator: "alice".into(),
    };
    let event = EventId::parse(event).expect("an id");
    name(&mut billing.beside(), &naming, &event, false, NOW * 1000).expect("a reference")
}

#[test]
fn what_an_operator_says_stays_whatever_stripe_tells() {
    let told = [Metadata("cus_a", "u"), ClientReferenceId("cus_a", "v"), Metadata("cus_a", "w")];
    for (reference, expected) in [("mine", "mine"), ("u", "u"), ("", "")] {
        for said_after in 1..=told.len() {
            let billing = spawn();
            for (number, &one) in told.iter().enumerate() {
                tells(&billing, number, one);
                if number + 1 == said_after {
                    operator_names(&billing, "op_1", "cus_a", reference);
                }
            }
            let held = billing.row("SELECT reference FROM v_accounts");
            assert_eq!(held, expected, "{reference:?} after {said_after}");
            let again = operator_names(&billing, "op_2", "cus_a", reference);
            assert_eq!(again.event_id, None, "the same again changes nothing");
            assert_eq!(operator_names(&billing, "op_3", "cus_a", "x").reference.as_deref(), Some("x"));
            let audit = "SELECT actor, event_id, detail ->> 'after', detail ->> 'why' FROM v_audit
                         WHERE action = 'account.reference' AND actor <> 'stripe' ORDER BY seq";
            let expected = [format!("operator:alice|op_1|{reference}|a test"), "operator:alice|op_3|x|a test".into()];
            assert_eq!(billing.rows(audit), expected);
            assert_eq!(billing.violations(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_shared_reference_is_settled_by_whichever_account_gives_way() {
    for (gives_way, stays) in [("cus_vic", "cus_att"), ("cus_att", "cus_vic")] {
        for reference in ["", "other"] {
            let billing = spawn();
            tells(&billing, 1, Metadata("cus_vic", "u"));
            tells(&billing, 2, ClientReferenceId("cus_att", "u"));
            let findings = "SELECT kind, subject, status FROM v_findings";
            assert_eq!(billing.rows(findings), ["shared_reference|cus_att|open"]);
            operator_names(&billing, "op_1", gives_way, reference);
            assert_eq!(billing.rows(findings), ["shared_reference|cus_att|resolved"]);
            assert_eq!(named(&billing, "u"), [stays]);
            let back = operator_names(&billing, "op_2", gives_way, "u");
            assert_eq!(back.shared_with.as_deref(), Some(stays));
            assert_eq!(named(&billing, "u"), [gives_way], "an operator is surest");
        }
    }
}
