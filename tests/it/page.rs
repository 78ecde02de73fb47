//! The operator's pages, by their links and their forms, with texts in the books that would like to be markup.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use billingd::ops::overview::{self, Scene};
use billingd::store::events::{self, Filter};
use serde_json::json;

use super::cli::run;
use super::fixtures::{Shape, event, invoice_paid};
use super::harness::{Answer, Billing, NOW, PATH};
use super::visitor::{OPERATOR, bearer, open_to_all};

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

const HOSTILE: [&str; 4] =
    ["<script>x()</script>", "\"><img src=x onerror=x()>", "a<svg onload=x()>", "'><b>/?#%2e ../&amp;"];

/// What must stand nowhere, whoever told it.
const FORBIDDEN: [&str; 6] = ["<script", "<img", "<svg onload", "<b>", "javascript:", "onerror=x()>"];

/// A browser that has logged in.
struct Session<'a> {
    billing: &'a Billing,
    cookie: String,
    csrf: String,
}

impl<'a> Session<'a> {
    fn begin(billing: &'a Billing) -> Self {
        let answer = billing.visitor("POST", "/login", &[FORM], &format!("token={OPERATOR}"));
        let set = answer.header("set-cookie").expect("a session");
        let cookie = format!("Cookie: {}", set.split(';').next().expect("a value"));
        let mut session = Self { billing, cookie, csrf: String::new() };
        let page = session.page("/");
        session.csrf = value_of(&page, "csrf");
        session
    }

    fn gets(&self, target: &str) -> Answer {
        self.billing.visitor("GET", target, &[&self.cookie, "Accept: text/html"], "")
    }

    /// A page that must be there.
    fn page(&self, target: &str) -> String {
        let answer = self.gets(target);
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        text(&answer)
    }

    fn posts(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        self.posts_without_csrf(target, &[fields, &[("csrf", self.csrf.as_str())]].concat())
    }

    fn posts_without_csrf(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.billing.visitor("POST", target, &[&self.cookie, FORM], &body.join("&"))
    }

    /// A form that is taken, and the page that it leads to.
    fn does(&self, target: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.posts(target, fields);
        assert_eq!(answer.status, 303, "{target}: {answer:?}");
        self.page(answer.header("location").expect("another page"))
    }
}

fn text(answer: &Answer) -> String {
    answer.body.as_str().expect("a page").to_owned()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The value of the first field of this name.
fn value_of(page: &str, name: &str) -> String {
    let (_, rest) =
        page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split('"').next().expect("a value").to_owned()
}

/// The links of a page, as a browser follows them.
fn links(page: &str) -> Vec<String> {
    let values = page.split(" href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let ours = values.map(|link| link.split('#').next().unwrap_or_default().replace("&amp;", "&"));
    ours.filter(|link| link.starts_with('/')).collect()
}

/// Reads all that links lead to; returns the pages by their paths.
fn crawl(session: &Session<'_>) -> Vec<(String, String)> {
    let mut queue = VecDeque::from(["/".to_owned()]);
    let mut known: BTreeSet<String> = queue.iter().cloned().collect();
    let mut pages = Vec::new();
    while let Some(link) = queue.pop_front() {
        assert!(pages.len() < 500, "pages without end: {link}");
        let page = session.page(&link);
        queue.extend(links(&page).into_iter().filter(|link| known.insert(link.clone())));
        pages.push((link, page));
    }
    pages
}

/// Something of everything, told by somebody who means harm.
fn hostile_books(billing: &Billing) {
    for (number, evil) in HOSTILE.iter().enumerate() {
        let id = format!("evt_{number}{evil}");
        let customer =
            json!({ "id": format!("cus_{number}{evil}"), "object": "customer", "metadata": { "account_id": evil } });
        billing.stripe_sends(&event(Shape::New, &format!("{id}c"), "customer.created", customer));
        let mut paid =
            invoice_paid(Shape::New, &id, &format!("in_{number}{evil}"), &format!("cus_{number}{evil}"), 500);
        paid["data"]["object"]["metadata"] = json!({ *evil: evil });
        paid["api_version"] = json!(evil);
        assert_eq!(billing.stripe_sends(&paid).status, 200);
        let unknown = json!({ "id": evil, "object": evil, "customer": evil });
        billing.stripe_sends(&event(Shape::New, &format!("{id}u"), evil, unknown));
        let refund = json!({ "id": format!("ch_{evil}"), "object": "charge", "amount": 500, "amount_captured": 500,
            "amount_refunded": 100, "currency": "usd", "payment_intent": format!("pi_{evil}"), "created": NOW - 90,
            "status": evil, "refunded": false, "metadata": {} });
        billing.stripe_sends(&event(Shape::New, &format!("{id}r"), "charge.refunded", refund));
    }
    let evil = HOSTILE.map(|evil| evil.replace('\'', "''"));
    billing.somebody_runs(&format!(
        "INSERT INTO findings (kind, subject, expected, actual, status, first_seen_at, last_seen_at, amount, currency)
         VALUES ('{0}', '{1}', '{2}', '{3}', 'open', {NOW}, {NOW}, 5, '{1}'),
                ('missing_grant', '{0}', '{1}', '{2}', 'acknowledged', {NOW}, {NOW}, 5, 'usd'),
                ('silence', '{1}', '{0}', '{0}', 'resolved', {NOW}, {NOW}, NULL, NULL);
         INSERT INTO job_runs (job, started_at, finished_at, succeeded, result)
         VALUES ('{0}', {NOW}, {NOW}, 0, '{1}'), ('backup', {NOW}, {NOW}, 0, '{0}');
         INSERT INTO reconciliation_runs (started_at, finished_at, result, counts)
         VALUES ({NOW}, {NOW}, 'ok', '{{\"<script>\": 5, \"events\": 7}}');
         UPDATE events SET last_error = '{0}', error_code = '{1}', status = 'failed', needs = NULL, dead_letter = 1
         WHERE event_id LIKE 'evt_0%r';",
        evil[0], evil[1], evil[2], evil[3]
    ));
}

#[test]
fn every_page_shows_text_as_text() {
    let billing = open_to_all().spawn();
    hostile_books(&billing);
    let session = Session::begin(&billing);
    let pages = crawl(&session);
    assert!(pages.len() > 30, "{}", pages.len());
    for (link, page) in &pages {
        for forbidden in FORBIDDEN {
            assert!(!page.contains(forbidden), "{link} has {forbidden}");
        }
        assert!(!page.contains(" style="), "{link} has a style of its own");
    }
    // What is harmless by being escaped is still there to be read.
    let all: String = pages.iter().map(|(_, page)| page.as_str()).collect();
    for evil in HOSTILE {
        let escaped = evil.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        assert!(all.contains(&escaped), "{evil}");
    }
    for place in ["/", "/events", "/accounts", "/findings", "/jobs", "/audit"] {
        assert!(pages.iter().any(|(link, _)| link == place), "{place}");
    }
    for (number, evil) in HOSTILE.iter().enumerate() {
        let story = session.page(&format!("/events/{}", encoded(&format!("evt_{number}{evil}"))));
        assert!(story.contains("grant:invoice:in_"), "{evil}");
    }
}

#[test]
fn an_empty_database_has_all_its_pages() {
    let billing = open_to_all().spawn();
    let session = Session::begin(&billing);
    let pages = crawl(&session);
    assert!(pages.iter().any(|(link, page)| link == "/" && page.contains("All is well")), "{pages:?}");
    let form = text(&billing.visitor("GET", "/login", &["Accept: text/html"], ""));
    assert!(form.contains("test mode") && form.contains("<code>[[admin.token]]</code>"), "{form}");
    let style = session.gets("/style.css");
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(billing.visitor("GET", "/style.css", &[], "").status, 200, "the form to log in has it, too");
}

#[test]
fn what_is_wrong_stands_first() {
    let billing = open_to_all()
        .toml("[[price]]\nid = \"price_other\"\n[credits]\nbasis = \"catalogue\"\n")
        .with("processing.max_attempts", "1")
        .spawn();
    assert_eq!(billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 5)).short(), "200 dead_letter");
    let page = Session::begin(&billing).page("/");
    let wrong = page.find("1 thing").expect("what is wrong");
    assert!(
        page.contains("1 dead letter; it is evt_1") && page.contains("<code>billingd events replay evt_1</code>"),
        "{page}"
    );
    assert!(wrong < page.find("Deliveries").expect("a section"), "{page}");
    assert!(!page.contains("All is well"));
}

#[test]
fn what_has_just_failed_is_not_all_well() {
    let page = Session::begin(&with_a_failed_event()).page("/");
    assert!(
        page.contains("1 event failed; it is evt_1") && page.contains("Stripe will try again. No alert yet"),
        "{page}"
    );
    assert!(page.contains("<a href=\"/events/evt_1\"><bdi>1 event failed"), "{page}");
    assert!(!page.contains("All is well"), "{page}");
}

#[test]
fn unknown_ids_and_odd_filters_are_pages_too() {
    let billing = open_to_all().spawn();
    let session = Session::begin(&billing);
    for (target, status) in [
        ("/events/evt_9", 404),
        ("/events/%00", 404),
        ("/events/%3Cscript%3E", 404),
        ("/accounts/cus_9", 404),
        ("/accounts/..%2F..%2Fetc", 404),
        ("/events?status=odd", 422),
        ("/events?outcome=odd", 422),
        ("/events?since=soon", 422),
        ("/events?account=cus_9", 200),
        ("/events?before=evt_9", 200),
        ("/accounts?after=zzz&search=%25", 200),
        ("/findings?status=odd", 422),
        ("/findings?done=%3Cb%3E", 200),
        ("/nothing/here", 404),
        ("/audit?before=x", 400),
        ("/events?since=1h&since=2h", 400),
    ] {
        let answer = session.gets(target);
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{target}");
        let page = text(&answer);
        assert!(FORBIDDEN.iter().all(|forbidden| !page.contains(forbidden)), "{target}: {page}");
        assert!(page.contains("href=\"/\""), "{target} leads nowhere");
    }
    for target in [
        "/events/evt_9/replay",
        "/events/evt_9/try",
        "/events/evt_9/dismiss",
        "/accounts/cus_9/adjust",
        "/findings/9/acknowledge",
    ] {
        let fields = [("reason", "x"), ("amount", "1"), ("unit", "credits"), ("key", "k")];
        assert_eq!(session.posts(target, &fields).status, 404, "{target}");
        assert_eq!(session.gets(target).status, 405, "{target}");
    }
}

#[test]
fn a_reference_of_several_accounts_names_them() {
    let billing = open_to_all().spawn();
    for id in ["cus_1", "cus_2"] {
        let customer = json!({ "id": id, "object": "customer", "metadata": { "account_id": "shared" } });
        billing.stripe_sends(&event(Shape::New, &format!("evt_{id}"), "customer.created", customer));
    }
    let session = Session::begin(&billing);
    let entry = [("amount", "-1"), ("unit", "credits"), ("reason", "x"), ("key", "k")];
    for answer in [session.gets("/accounts/shared"), session.posts("/accounts/shared/adjust", &entry)] {
        assert_eq!(answer.status, 409);
        assert!(text(&answer).contains("cus_1, cus_2"), "{answer:?}");
    }
    assert_eq!(session.gets("/accounts/nobody").status, 404);
    assert_eq!(billing.rows("SELECT 1 FROM v_ledger"), [""; 0]);
}

#[test]
fn what_somebody_else_wrote_is_no_command_to_copy() {
    let billing = open_to_all().spawn();
    let id = "evt_` rm -rf / `";
    let told = json!({ "id": "cus_1`a`", "object": "customer", "metadata": { "account_id": "u`b`" } });
    billing.stripe_sends(&event(Shape::New, id, "customer.created", told));
    billing.somebody_runs("UPDATE events SET reason = 'for `c`', outcome = 'ignored', dismissed = 1");
    let session = Session::begin(&billing);
    let here = format!("/events/{}", encoded(id).replace('+', "%20"));
    let entry = [("amount", "1"), ("unit", "x`d`"), ("reason", "x"), ("key", "k`e`")];
    session.does("/accounts/cus_1%60a%60/adjust", &entry);
    let again = [("amount", "2"), ("unit", "x`d`"), ("reason", "x"), ("key", "k`e`")];
    let pages = [
        session.posts("/accounts/cus_1%60a%60/adjust", &again),
        session.posts("/accounts/none%60f%60/adjust", &again),
        session.gets("/accounts/none%60f%60"),
        session.gets("/events/none%60f%60"),
        session.posts(&format!("{here}/try"), &[]),
    ];
    for page in pages {
        let page = text(&page);
        for stranger in ["a", "b", "c", "d", "e", "f", " rm -rf / "] {
            assert!(!page.contains(&format!("<code>{stranger}</code>")), "{stranger}: {page}");
        }
    }
}

/// An event that fails for now, in books that sell nothing of what it is about.
fn with_a_failed_event() -> Billing {
    let billing = open_to_all().toml("[[price]]\nid = \"price_other\"\n[credits]\nbasis = \"catalogue\"\n").spawn();
    assert_eq!(billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 5)).short(), "500 failed");
    billing
}

#[test]
fn a_trial_tells_what_a_run_would_do_and_changes_nothing() {
    let billing = with_a_failed_event();
    let seen = || [billing.rows("SELECT * FROM v_events"), billing.rows("SELECT seq FROM v_audit")];
    let before = seen();
    let session = Session::begin(&billing);
    let answer = session.posts("/events/evt_1/try", &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let page = text(&answer);
    assert!(page.contains("Trial: would fail") && page.contains("nothing was written"), "{page}");
    assert_eq!(seen(), before);
}

#[test]
fn a_replay_is_one_effect_by_the_operator_however_often_it_is_asked_for() {
    let mut billing = with_a_failed_event();
    billing.restart_with(open_to_all());
    let session = Session::begin(&billing);
    let trial = text(&session.posts("/events/evt_1/try", &[]));
    assert!(
        trial.contains("would be applied") && trial.contains("grant:invoice:in_1") && trial.contains("0.05 USD"),
        "{trial}"
    );
    assert_eq!(billing.rows("SELECT 1 FROM v_ledger"), [""; 0]);
    let page = session.does("/events/evt_1/replay", &[]);
    assert!(page.contains("It has run again") && page.contains("grant:invoice:in_1"), "{page}");
    let page = session.does("/events/evt_1/replay", &[]);
    assert!(page.contains("nothing is applied twice"), "{page}");
    assert_eq!(billing.rows("SELECT amount, source_event_id FROM v_ledger"), ["5|evt_1"]);
    let actors = billing.rows("SELECT DISTINCT actor FROM v_audit WHERE action = 'grant'");
    assert_eq!(actors, ["operator:alice"]);
}

#[test]
fn a_dismissal_needs_a_reason_and_can_be_taken_back() {
    let billing = with_a_failed_event();
    let session = Session::begin(&billing);
    let refused = session.posts("/events/evt_1/dismiss", &[("reason", "  ")]);
    assert_eq!(refused.status, 422);
    assert!(text(&refused).contains("role=\"alert\""), "{refused:?}");
    let page = session.does("/events/evt_1/dismiss", &[("reason", "another <b>shop")]);
    assert!(page.contains("It is dismissed") && page.contains("another &lt;b&gt;shop"), "{page}");
    assert!(session.does("/events/evt_1/dismiss", &[("reason", "again")]).contains("nothing has changed"));
    let rows = billing.rows("SELECT actor, event_id FROM v_audit WHERE action = 'event.dismissed'");
    assert_eq!(rows, ["operator:alice|evt_1"]);
    assert!(session.does("/events/evt_1/replay", &[]).contains("nothing is applied twice"), "it stays dismissed");
    let page = session.does("/events/evt_1/replay", &[("dismissed", "yes")]);
    assert!(page.contains("failed again"), "{page}");
    assert_eq!(billing.row("SELECT status FROM v_events"), "failed");
}

#[test]
fn an_entry_by_hand_is_posted_once_and_a_refused_form_loses_nothing() {
    let billing = open_to_all().spawn();
    let customer = json!({ "id": "cus_1", "object": "customer", "metadata": { "account_id": "user 1" } });
    billing.stripe_sends(&event(Shape::New, "evt_1", "customer.created", customer));
    let session = Session::begin(&billing);
    let page = session.page("/accounts/user%201");
    let key = value_of(&page, "key");
    assert!(key.starts_with("page-") && key != value_of(&session.page("/accounts/cus_1"), "key"), "a fresh one: {key}");
    let fields =
        |amount| [("amount", amount), ("unit", "credits"), ("reason", "lost & \"found\""), ("key", key.as_str())];
    for odd in ["", "x", "1.5", "0", "9223372036854775808"] {
        let refused = session.posts("/accounts/cus_1/adjust", &fields(odd));
        assert_eq!(refused.status, 422, "{odd}");
        let page = text(&refused);
        let kept = [value_of(&page, "amount"), value_of(&page, "reason"), value_of(&page, "key")];
        assert_eq!(kept, [odd.to_owned(), "lost &amp; &quot;found&quot;".into(), key.clone()]);
    }
    let debt = session.posts("/accounts/cus_1/adjust", &fields("-40"));
    assert_eq!(debt.status, 409);
    assert!(text(&debt).contains("40 credits are needed and 0 are available"), "{debt:?}");
    assert_eq!(billing.rows("SELECT 1 FROM v_ledger"), [""; 0]);
    let allowed = |amount| [&fields(amount)[..], &[("allow_debt", "yes")]].concat();
    assert!(session.does("/accounts/cus_1/adjust", &allowed("-40")).contains("The entry is posted"));
    assert!(session.does("/accounts/cus_1/adjust", &fields("-40")).contains("nothing has changed"));
    let taken = session.posts("/accounts/cus_1/adjust", &allowed("-41"));
    assert_eq!(taken.status, 409);
    assert!(text(&taken).contains("was used for -40 credits"), "{taken:?}");
    assert_eq!(billing.rows("SELECT fact, amount FROM v_ledger"), [format!("adjust:{key}|-40")]);
    let audit = billing.rows("SELECT actor, action, subject FROM v_audit WHERE action = 'adjustment'");
    assert_eq!(audit, ["operator:alice|adjustment|cus_1"]);
}

#[test]
fn a_finding_is_acknowledged_with_a_reason() {
    let billing = open_to_all().spawn();
    billing.somebody_runs(&format!(
        "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at)
         VALUES ('missing_grant', 'in_1', 'open', {NOW}, {NOW}), ('missing_grant', 'in_2', 'resolved', {NOW}, {NOW})"
    ));
    let session = Session::begin(&billing);
    assert!(session.page("/").contains("1 open finding"));
    assert_eq!(session.posts("/findings/1/acknowledge", &[]).status, 422);
    assert_eq!(session.posts("/findings/2/acknowledge", &[("reason", "x")]).status, 409);
    let seen = value_of(&session.page("/findings"), "seen");
    let page = session.does("/findings/1/acknowledge", &[("reason", "paid in cash"), ("seen", &seen)]);
    assert!(page.contains("is acknowledged") && page.contains("None is open"), "{page}");
    assert!(session.page("/findings?status=acknowledged").contains("paid in cash"));
    let audit = billing.rows("SELECT actor, subject FROM v_audit WHERE action = 'finding.acknowledge'");
    assert_eq!(audit, ["operator:alice|in_1"]);
    assert!(session.page("/").contains("All is well"));
}

#[test]
fn a_finding_leads_to_the_account_of_its_invoice() {
    let billing = open_to_all().spawn();
    assert_eq!(billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 5)).status, 200);
    billing.somebody_runs(&format!(
        "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at)
         VALUES ('surplus_credit', 'in_1', 'open', {NOW}, {NOW}), ('surplus_credit', 'in_2', 'open', {NOW}, {NOW})"
    ));
    let session = Session::begin(&billing);
    for place in ["/", "/findings"] {
        let page = session.page(place);
        assert_eq!(page.matches("href=\"/accounts/cus_1\"").count(), if place == "/" { 2 } else { 1 }, "{page}");
        assert!(page.contains("1: <bdi>surplus_credit</bdi>"), "{page}");
    }
    assert!(session.page("/audit").contains("<a href=\"/accounts/cus_1\">"));
}

#[test]
fn a_finding_that_is_another_by_now_is_not_acknowledged() {
    for (change, is_seen_anew) in [
        ("kind = 'surplus_credit'", true),
        ("subject = 'in_2'", true),
        ("expected = 'nothing'", true),
        ("actual = '4000 usd'", true),
        ("actual = NULL", true),
        ("status = 'acknowledged', reason = 'somebody else''s'", true),
        ("last_seen_at = last_seen_at + 60", false),
    ] {
        let billing = open_to_all().spawn();
        billing.somebody_runs(&format!(
            "INSERT INTO findings (kind, subject, expected, actual, status, first_seen_at, last_seen_at)
             VALUES ('missing_grant', 'in_1', 'a grant', '20 usd', 'open', {NOW}, {NOW})"
        ));
        let session = Session::begin(&billing);
        let seen = value_of(&session.page("/findings"), "seen");
        billing.somebody_runs(&format!("UPDATE findings SET {change}"));
        let before = billing.rows("SELECT * FROM v_findings");
        let answer = session.posts("/findings/1/acknowledge", &[("reason", "paid in cash"), ("seen", &seen)]);
        assert_eq!(answer.status, if is_seen_anew { 409 } else { 303 }, "{change}");
        if is_seen_anew {
            assert_eq!(billing.rows("SELECT * FROM v_findings"), before, "{change}");
            assert!(text(&answer).contains("is not what the page showed"), "{answer:?}");
        }
    }
}

#[test]
fn a_form_that_is_none_is_told_on_a_page() {
    let billing = with_a_failed_event();
    let posts = |content_type: &str, body: &str| {
        billing.visitor("POST", "/events/evt_1/dismiss", &[&bearer(OPERATOR), content_type], body)
    };
    for (answer, status) in [
        (posts("Content-Type: application/json", "{}"), 415),
        (posts(FORM, "reason=x&reason=y"), 400),
        (posts(FORM, &format!("reason={}", "x".repeat(70_000))), 413),
    ] {
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{answer:?}");
        assert!(text(&answer).contains("Not understood") && text(&answer).contains(" form"), "{answer:?}");
    }
    assert_eq!(billing.row("SELECT status FROM v_events"), "failed");
}

#[test]
fn no_form_is_taken_without_its_csrf() {
    let billing = with_a_failed_event();
    billing.somebody_runs(&format!(
        "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at)
         VALUES ('missing_grant', 'in_1', 'open', {NOW}, {NOW})"
    ));
    let session = Session::begin(&billing);
    let seen = || {
        billing.rows("SELECT count(*) FROM audit_log UNION ALL SELECT status FROM findings UNION ALL SELECT attempts FROM events")
    };
    let before = seen();
    for target in [
        "/events/evt_1/try",
        "/events/evt_1/replay",
        "/events/evt_1/dismiss",
        "/accounts/cus_1/adjust",
        "/findings/1/acknowledge",
    ] {
        let fields = [("reason", "x"), ("amount", "1"), ("unit", "credits"), ("key", "k")];
        assert_eq!(session.posts_without_csrf(target, &fields).status, 403, "{target}");
        let wrong = [&fields[..], &[("csrf", "0123")]].concat();
        assert_eq!(session.posts_without_csrf(target, &wrong).status, 403, "{target}");
    }
    assert_eq!(seen(), before);
    let with_token = billing.visitor("POST", "/events/evt_1/replay", &[&bearer(OPERATOR), FORM], "x=y");
    assert_eq!(with_token.status, 303, "who shows a token needs none");
}

/// Follows the links to the next page; returns all pages.
fn follow(session: &Session<'_>, first: &str) -> Vec<String> {
    let mut pages = vec![session.page(first)];
    while let Some((_, rest)) = pages.last().and_then(|page| page.split_once("rel=\"next\" href=\"")) {
        assert!(pages.len() < 10, "pages without end");
        let next = rest.split('"').next().expect("a link").replace("&amp;", "&");
        let page = session.page(&next);
        pages.push(page);
    }
    pages
}

#[test]
fn paging_shows_each_once_and_ends() {
    let billing = open_to_all().spawn();
    for number in 0..101 {
        let id = format!("cus/{number:03}");
        let customer =
            json!({ "id": id, "object": "customer", "metadata": { "account_id": format!("user-{number:03}") } });
        assert_eq!(
            billing.stripe_sends(&event(Shape::New, &format!("evt_{number:03}"), "customer.created", customer)).status,
            200
        );
    }
    let session = Session::begin(&billing);
    for (first, part, count) in [
        ("/events", "href=\"/events/evt_", 101),
        ("/events?status=completed&type=customer.created", "href=\"/events/evt_", 101),
        ("/events?status=failed", "href=\"/events/evt_", 0),
        ("/events?account=user-007", "href=\"/events/evt_", 1),
        ("/accounts", "href=\"/accounts/cus%2F", 101),
        ("/accounts?search=user-00", "href=\"/accounts/cus%2F", 10),
        ("/accounts?search=cus/09", "href=\"/accounts/cus%2F", 10),
        ("/audit", "href=\"/events/evt_", 101),
        ("/audit?event=evt_007", "href=\"/events/evt_", 1),
    ] {
        let pages = follow(&session, first);
        let found: Vec<&str> = pages.iter().flat_map(|page| page.split(part).skip(1)).map(|rest| &rest[..3]).collect();
        let different: BTreeSet<&&str> = found.iter().collect();
        assert_eq!((found.len(), different.len()), (count, count), "{first}");
        assert_eq!(pages.len(), count / 50 + 1, "{first}");
    }
}

#[test]
fn very_long_and_unreadable_texts_stay_within_the_page() {
    let billing = open_to_all().spawn();
    let customer = json!({ "id": "cus_1", "object": "customer", "metadata": {} });
    assert_eq!(billing.stripe_sends(&event(Shape::New, "evt_1", "customer.created", customer)).status, 200);
    let odd = format!("{}\u{7}\u{202e}", "x".repeat(100_000));
    billing.somebody_runs(&format!(
        "UPDATE events SET type = '{odd}', reason = '{odd}', api_version = '{odd}', object_id = '{odd}';
         UPDATE accounts SET reference = '{odd}';
         INSERT INTO job_runs (job, started_at, finished_at, result) VALUES ('backup', {NOW}, {NOW}, '{odd}');
         INSERT INTO findings (kind, subject, expected, actual, status, first_seen_at, last_seen_at)
         VALUES ('{odd}', 'in_1', '{odd}', '\u{202e}gpj', 'open', {NOW}, {NOW})"
    ));
    let session = Session::begin(&billing);
    for (link, page) in crawl(&session) {
        assert!(page.len() < 60_000, "{link} has {} bytes", page.len());
        assert!(!page.contains('\u{7}') && !page.contains('\u{202e}'), "{link}");
    }
}

/// Somebody looks at it all night, in books of any size.
#[test]
fn neither_the_first_screen_nor_a_next_page_walks_through_all_events() {
    let billing = open_to_all().spawn();
    billing.somebody_runs(
        "WITH RECURSIVE n(n) AS (SELECT 10001 UNION ALL SELECT n + 1 FROM n WHERE n < 30000)
         INSERT INTO events (event_id, source, type, status, outcome, livemode, created_at, received_at, tried_at, processed_at)
         SELECT 'evt_' || n, iif(n > 10001, 'import', 'webhook'), 't', 'completed', 'applied', 0, 0, n, 0, 0 FROM n",
    );
    let scene = Scene {
        alerts: billingd::app::scope(billing.config()),
        backups: billing.database().with_file_name("backups"),
        webhooks: vec![(PATH.to_owned(), 1)],
        plan: Arc::new(|_| Vec::new()),
    };
    let connection = billing.outside();
    connection.progress_handler(20_000, Some(|| true)).expect("a limit");
    let seen = overview::read(&connection, &scene, None, NOW * 1000).expect("the first screen");
    assert_eq!((seen.received.last_at, seen.lately.len()), (Some(10), 20));
    let list =
        |filter: Filter| events::list(&connection, &Filter { limit: 20, ..filter }).map(|found| found.rows.len());
    let before = Some("evt_15000".to_owned());
    assert_eq!(list(Filter { before: before.clone(), ..Filter::default() }).expect("a page"), 20);
    let completed = Some("completed".to_owned());
    assert_eq!(list(Filter { before: before.clone(), status: completed, ..Filter::default() }).expect("a page"), 20);
    assert_eq!(list(Filter { status: Some("failed".into()), ..Filter::default() }).expect("a page"), 0);
    assert_eq!(list(Filter { before: Some("evt_0".into()), ..Filter::default() }).expect("a page"), 0);
    list(Filter { kind: Some("rare".into()), ..Filter::default() }).expect_err("this one does");
}

/// What is rare is looked for in so many events at a time; each door says so, and goes on.
#[test]
fn a_search_through_large_books_ends_and_goes_on() {
    let billing = open_to_all().spawn();
    let customer = json!({ "id": "cus_1", "object": "customer", "metadata": {} });
    assert_eq!(billing.stripe_sends(&event(Shape::New, "evt_1", "customer.created", customer)).status, 200);
    billing.somebody_runs(&format!(
        "WITH RECURSIVE n(n) AS (SELECT 1000001 UNION ALL SELECT n + 1 FROM n WHERE n < 1200010)
         INSERT INTO events (event_id, source, type, status, outcome, livemode, created_at, received_at, tried_at, processed_at)
         SELECT 'evt_' || n, 'webhook', 't', 'completed', 'ignored', 0, 0, {NOW} * 1000 + n, 0, 0 FROM n"
    ));
    let session = Session::begin(&billing);
    let pages = follow(&session, "/events?account=cus_1");
    assert_eq!(pages.len(), 2);
    assert!(pages[0].contains("Looked back to") && !pages[0].contains("evt_1<"), "{}", pages[0]);
    assert!(pages[1].contains("evt_1<") && !pages[1].contains("Looked back to"), "{}", pages[1]);
    assert!(session.page("/accounts/cus_1").contains("Looked back to"));
    let told = billing.asks(OPERATOR, "/api/v1/events?type=customer.created").body;
    assert_eq!((&told["rows"], told["before"].as_str()), (&json!([]), Some("evt_1000010")), "{told}");
    let told = billing.asks(OPERATOR, "/api/v1/events?type=customer.created&before=evt_1000010").body;
    assert_eq!((&told["rows"][0]["event_id"], &told["before"]), (&json!("evt_1"), &json!(null)));
    let folder = billing.config_file().parent().expect("a folder").to_owned();
    let ran = run(&folder, &["--config", "billingd.toml", "events", "list", "--outcome", "applied"]);
    assert!(
        ran.out.contains("no events") && ran.err.contains("`--before evt_1000010` goes on"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn a_replay_that_ran_is_told_although_what_it_woke_cannot_run() {
    let billing = open_to_all().spawn();
    let note = event(Shape::New, "evt_1", "unknown.type", json!({ "id": "x_1", "object": "x" }));
    assert_eq!(billing.stripe_sends(&note).short(), "200 completed ignored");
    billing.somebody_runs(&format!(
        "INSERT INTO events (event_id, source, type, status, needs, woken, livemode, created_at, received_at, tried_at)
         VALUES ('evt_2', 'webhook', 't', 'pending', 'payment:pi_1', 1, 0, {NOW}, {NOW} * 1000, {NOW} * 1000);
         CREATE TRIGGER stuck BEFORE UPDATE OF woken ON events WHEN OLD.woken = 1 BEGIN SELECT RAISE(ABORT, 'stuck'); END"
    ));
    let page = Session::begin(&billing).does("/events/evt_1/replay", &[]);
    assert!(page.contains("It has run again"), "{page}");
    billing.somebody_runs("DROP TRIGGER stuck; UPDATE events SET woken = 0");
}
