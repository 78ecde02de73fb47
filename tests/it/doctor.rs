//! What doctor finds: each fault that is planted, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use billingd::app;
use billingd::ops::alerts::Scope;
use billingd::ops::backup;
use billingd::ops::doctor::files::{self, Backups};
use billingd::ops::doctor::{Check, Health, books, stripe};
use billingd::stop::Stop;
use billingd::stripe::wire;
use serde_json::{Value, json};

use super::adopt::{CATALOGUE, DATE, says};
use super::fake_stripe::{FakeStripe, Fault};
use super::fixtures::{Shape, customer, invoice_paid};
use super::harness::{Billing, NOW, PATH, SECRET, Setup, spawn};

fn problems(checks: &[Check]) -> Vec<String> {
    let is_problem = |check: &&Check| check.health == Health::Problem;
    checks.iter().filter(is_problem).map(|check| format!("{}: {}", check.check, check.seen)).collect()
}

fn endpoint(types: &[&str]) -> Value {
    json!({
        "id": "we_1", "object": "webhook_endpoint", "url": "https://billing.example.com/webhooks/stripe/",
        "status": "enabled", "enabled_events": types, "api_version": "2025-11-17.clover", "livemode": false,
        "created": NOW - 90_000,
    })
}

/// All is well there.
fn healthy() -> FakeStripe {
    let fake = FakeStripe::default();
    fake.put(customer("cus_1", "user-1"));
    fake.put(endpoint(&["*"]));
    fake
}

fn asks(fake: &FakeStripe, livemode: bool) -> Vec<Check> {
    let expected = stripe::Expected { livemode, paths: vec!["/webhooks/stripe"], is_connected: false };
    stripe::checks(fake, &expected, &|| NOW * 1000)
}

#[test]
fn a_key_and_an_endpoint_that_are_in_order() {
    let fake = healthy();
    fake.order(Fault::at("*").header("date", DATE));
    let checks = asks(&fake, false);
    assert_eq!(problems(&checks), [""; 0]);
    let seen: Vec<String> = checks.iter().map(|check| format!("{}: {}", check.check, check.seen)).collect();
    assert_eq!(
        seen,
        [
            "key: reads all 12 kinds of objects that are asked for",
            "clock: 0 s from Stripe's",
            "mode: the key opens test mode, as the config says",
            &format!(
                "endpoint: we_1 (/webhooks/stripe) is enabled, all {} types, API version 2025-11-17.clover",
                wire::event_types().len()
            ),
        ]
    );
    let listed: Vec<&str> = wire::event_types().iter().map(|(kind, _)| *kind).collect();
    fake.put(endpoint(&listed));
    assert_eq!(problems(&asks(&fake, false)), [""; 0], "each type by its name");
}

#[test]
fn what_is_wrong_at_stripe_is_told() {
    type Plant = fn(&FakeStripe);
    let few: Vec<&str> = wire::event_types().iter().map(|(kind, _)| *kind).skip(2).collect();
    let fake = healthy();
    fake.put(endpoint(&few));
    let missing = "endpoint: we_1 (/webhooks/stripe) does not subscribe to invoice.paid, invoice.payment_succeeded";
    assert_eq!(problems(&asks(&fake, false)), [missing]);
    for (name, plant, told) in [
        (
            "disabled",
            (|fake| {
                let mut disabled = endpoint(&["*"]);
                disabled["status"] = json!("disabled");
                fake.put(disabled);
            }) as Plant,
            &["endpoint: we_1 (/webhooks/stripe) is disabled"][..],
        ),
        (
            "elsewhere",
            |fake| {
                let mut elsewhere = endpoint(&["*"]);
                elsewhere["url"] = json!("https://billing.example.com/hooks?x=/webhooks/stripe");
                fake.put(elsewhere);
            },
            &["endpoint: none of the 1 at Stripe has a URL that ends in /webhooks/stripe"],
        ),
        (
            "a clock that is behind",
            |fake| fake.order(Fault::at("*").header("date", "Mon, 21 Sep 2026 14:18:20 GMT")),
            &["clock: 300 s behind Stripe's"],
        ),
        (
            "a clock that is ahead",
            |fake| fake.order(Fault::at("*").header("date", "Mon, 21 Sep 2026 14:08:20 GMT")),
            &["clock: 300 s ahead of Stripe's"],
        ),
        (
            "a key that may not read all",
            |fake| fake.order(Fault::at("/v1/disputes").status(403)),
            &["key: may not read /v1/disputes (reconciliation, rak_charge_read)"],
        ),
        (
            "a key that is none",
            |fake| fake.order(Fault::at("*").body(401, "{\"error\": {}}")),
            &["key: /v1/customers: Stripe does not accept the key (401, req_0); check \
               stripe.api_key: it may be mistyped, expired or revoked"],
        ),
    ] {
        let fake = healthy();
        plant(&fake);
        assert_eq!(problems(&asks(&fake, false)), told, "{name}");
    }
    let other_mode = problems(&asks(&healthy(), true));
    assert_eq!(
        other_mode,
        ["mode: the key opens test mode, the config says live", "mode: we_1 delivers test mode, the config says live"]
    );
    let old = healthy();
    old.order(Fault::at("/v1/invoice_payments").body(404, "{}"));
    assert_eq!(problems(&asks(&old, false)), [""; 0]);
    assert_eq!(asks(&old, false)[0].seen, "this API does not know /v1/invoice_payments");
}

fn reads(billing: &Billing, due: Vec<(&'static str, i64)>) -> Vec<Check> {
    let config = billing.config();
    let digest = config.catalogue_digest();
    let scope = Scope { due: Arc::new(move |_| due.clone()), ..app::scope(config) };
    let expected = books::Expected {
        livemode: false,
        connected_account: None,
        secrets: vec![(PATH, 2)],
        digest_key: app::CATALOGUE_DIGEST,
        digest: &digest,
        scope: &scope,
    };
    billing.reader().read(|connection| books::checks(connection, &expected, NOW * 1000)).expect("checks")
}

#[test]
fn a_run_that_a_killed_server_has_left_does_not_run() {
    let no_jobs = ["reaper", "retention", "fx", "backup"];
    let mut billing = no_jobs.iter().fold(Setup::new(), |setup, job| setup.with(&format!("jobs.{job}"), "")).spawn();
    billing.somebody_runs(&format!(
        "UPDATE meta SET value = '{}' WHERE key = 'jobs_since';
         INSERT INTO job_runs (job, started_at) VALUES ('backup', {})",
        NOW - 90_000,
        NOW - 60
    ));
    assert_eq!(problems(&reads(&billing, vec![("backup", NOW - 7_200)])), [""; 0]);
    billing.restart();
    let told = ["jobs: the job backup was due 2h 0m ago, and ran well never"];
    assert_eq!(problems(&reads(&billing, vec![("backup", NOW - 7_200)])), told);
    let left = "SELECT result, finished_at FROM job_runs";
    assert_eq!(billing.rows(left), ["its server ended in the middle|"]);
}

#[test]
fn what_is_wrong_with_the_books_is_told() {
    let mut billing = Setup::new().toml(CATALOGUE).spawn();
    billing.is_broken_on_purpose();
    billing.stripe_sends(&invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000));
    assert_eq!(problems(&reads(&billing, vec![("backup", NOW - 60)])), [""; 0], "no schedule was ever kept");
    let pending = |at: i64| {
        format!(
            "INSERT INTO events (event_id, source, type, status, needs, livemode, created_at, received_at, tried_at)
             VALUES ('evt_{at}', 'webhook', 't', 'pending', 'payment:pi_1', 0, 0, {at}000, 0);"
        )
    };
    for (sql, due, told) in [
        (pending(NOW - 60), None, &[][..]),
        (
            pending(NOW - 400),
            None,
            &["events: 1 event pending for 5m or longer; it is evt_1789999600, received 6m ago"],
        ),
        (
            "UPDATE events SET status = 'failed', needs = NULL WHERE status = 'pending'".to_owned(),
            None,
            &["events: 2 events failed; the oldest is evt_1789999600, received 6m ago"],
        ),
        (
            "UPDATE events SET dead_letter = 1 WHERE status = 'failed'".to_owned(),
            None,
            &["events: 2 dead letters; the oldest is evt_1789999600, received 6m ago"],
        ),
        ("DELETE FROM events WHERE status = 'failed'".to_owned(), None, &[]),
        (
            format!(
                "INSERT INTO findings (kind, subject, status, first_seen_at, last_seen_at)
             VALUES ('credit_note', 'cn_1', 'open', {NOW}, 0), ('credit_note', 'cn_2', 'open', {NOW}, 0),
                    ('silence', '/', 'resolved', 0, 0)"
            ),
            None,
            &["findings: 2 open findings (2 credit_note), first seen just now"],
        ),
        ("UPDATE findings SET status = 'acknowledged' WHERE kind = 'credit_note'".to_owned(), None, &[]),
        (
            format!(
                "INSERT INTO meta (key, value) VALUES ('jobs_since', '{}')
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                NOW - 90_000
            ),
            Some(NOW - 7_200),
            &["jobs: the job backup was due 2h 0m ago, and ran well never"],
        ),
        (
            format!("INSERT INTO job_runs (job, started_at, succeeded) VALUES ('backup', {}, 1)", NOW - 86_400),
            Some(NOW - 7_200),
            &["jobs: the job backup was due 2h 0m ago, and ran well 1d 0h ago"],
        ),
        // It runs, for however long that takes; but not for a day.
        (format!("INSERT INTO job_runs (job, started_at) VALUES ('backup', {})", NOW - 86_399), Some(NOW - 7_200), &[]),
        (
            format!("UPDATE job_runs SET started_at = {} WHERE succeeded = 0", NOW - 86_400),
            Some(NOW - 7_200),
            &["jobs: the job backup was due 2h 0m ago, and ran well 1d 0h ago"],
        ),
        // It waits for another one; but one that began later does not keep it.
        (
            format!("UPDATE job_runs SET job = 'fx', started_at = {} WHERE succeeded = 0", NOW - 7_200),
            Some(NOW - 7_200),
            &[],
        ),
        (
            format!("UPDATE job_runs SET started_at = {} WHERE succeeded = 0", NOW - 7_199),
            Some(NOW - 7_200),
            &["jobs: the job backup was due 2h 0m ago, and ran well 1d 0h ago"],
        ),
        (
            format!("INSERT INTO job_runs (job, started_at, succeeded) VALUES ('backup', {}, 1)", NOW - 7_200),
            Some(NOW - 7_200),
            &[],
        ),
        (
            "UPDATE meta SET value = 'other' WHERE key = 'catalogue_digest'".to_owned(),
            None,
            &["catalogue: the server started with other prices, tiers or credits than this config has"],
        ),
        (
            "UPDATE meta SET value = 'live' WHERE key = 'livemode'".to_owned(),
            None,
            &[
                "books: live mode, the account's own events; the config says another mode or account",
                "catalogue: the server started with other prices, tiers or credits than this config has",
            ],
        ),
    ] {
        billing.somebody_runs(&sql);
        let due = due.map(|due| ("backup", due)).into_iter().collect();
        assert_eq!(problems(&reads(&billing, due)), told, "{sql}");
    }
    billing.somebody_runs("UPDATE meta SET value = 'test' WHERE key = 'livemode'");
}

/// A secret is being changed; which one does Stripe sign with?
#[test]
fn the_secret_that_verified_last_is_told() {
    let toml = format!("[[webhook]]\npath = \"{PATH}\"\nsigning_secrets = [\"{SECRET}\", \"whsec_old\"]\n");
    let billing = Setup::new().toml(&toml).spawn();
    let seen = || {
        let checks = reads(&billing, Vec::new());
        checks.into_iter().find(|check| check.check == "secret").map(|check| check.seen).expect("a check")
    };
    assert_eq!(seen(), "of /webhooks/stripe: none has verified anything since the server started");
    let first = invoice_paid(Shape::New, "evt_1", "in_1", "cus_1", 2_000);
    billing.stripe_sends_signed_with(PATH, &first, "whsec_nobodys", NOW);
    assert_eq!(seen(), "of /webhooks/stripe: none has verified anything since the server started");
    billing.stripe_sends_signed_with(PATH, &first, "whsec_old", NOW);
    assert_eq!(seen(), "of /webhooks/stripe: number 2 of 2 verified last, 0s ago");
    let second = invoice_paid(Shape::New, "evt_2", "in_2", "cus_1", 2_000);
    billing.stripe_sends(&second);
    assert_eq!(seen(), "of /webhooks/stripe: number 2 of 2 verified last, 0s ago", "written once a minute");
}

#[test]
fn what_is_wrong_with_the_files_is_told() {
    let mut billing = spawn();
    let database = billing.database();
    let folder = database.with_file_name("kept");
    let backups = Backups { folder: folder.clone(), by_command: None };
    let look = |livemode| problems(&files::checks(&database, &backups, livemode, NOW * 1000));
    let none = format!("backup: there is none in {}", folder.display());
    assert_eq!(look(false), [""; 0]);
    assert_eq!(look(true), [none]);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("others-20260920-000000.backup"), "").unwrap();
    let written = fs::File::create(folder.join("books-20260920-000000.backup")).unwrap();
    let write = |at: i64| written.set_modified(UNIX_EPOCH + Duration::from_secs(at.unsigned_abs())).unwrap();
    write(NOW - 86_400);
    assert_eq!(look(true), [""; 0]);
    write(NOW - 3 * 86_400);
    assert_eq!(look(true), [format!("backup: the newest in {} is 3d 0h old", folder.display())]);
    write(NOW);
    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    let owner = billing_owner(&database);
    assert_eq!(look(true), [format!("permissions: mode 644, owner {owner}")]);
    fs::set_permissions(&database, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(
        problems(&files::checks(&database, &backups, true, 1_000_000)),
        ["clock: this machine lives in the past"]
    );
    billing.stop();
    assert_eq!(
        problems(&files::checks(&billing.database(), &backups, true, NOW * 1000)),
        ["server: no billingd serves this database"]
    );
    let nowhere = folder.join("none.db");
    assert_eq!(
        problems(&files::checks(&nowhere, &backups, true, NOW * 1000)),
        [format!("database: {}: No such file or directory (os error 2)", nowhere.display())]
    );
}

#[test]
fn a_backup_elsewhere_counts() {
    let billing = spawn();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let written = backup::backup(&billing.database(), &elsewhere.path().join("mine"), &Stop::default()).unwrap();
    backup::remember(&mut billing.beside(), &written.path, NOW * 1000).unwrap();
    let folder = billing.database().with_file_name("kept");
    let seen = |now: i64, by_command| {
        let backups = Backups { folder: folder.clone(), by_command };
        let checks = files::checks(&billing.database(), &backups, true, now * 1000);
        checks.into_iter().find(|check| check.check == "backup").map(|check| (check.health, check.seen)).unwrap()
    };
    let by_command = || billing.reader().read(backup::remembered).unwrap();
    let path = written.path.display();
    assert_eq!(seen(NOW + 3_600, by_command()), (Health::Ok, format!("the newest was written to {path}, 1h 0m ago")));
    let late = format!("the newest was written to {path}, 3d 0h ago");
    assert_eq!(seen(NOW + 3 * 86_400, by_command()), (Health::Problem, late));
    fs::create_dir(&folder).unwrap();
    let shelved = fs::File::create(folder.join("books-20260920-000000.backup")).unwrap();
    shelved.set_modified(UNIX_EPOCH + Duration::from_secs((NOW + 60).unsigned_abs())).unwrap();
    let newer = format!("the newest in {} is 59m old", folder.display());
    assert_eq!(seen(NOW + 3_600, by_command()), (Health::Ok, newer));
    assert_eq!(seen(NOW, None).0, Health::Ok);
}

#[test]
fn one_odd_answer_leaves_the_other_checks_as_they_are() {
    for (path, told) in [
        ("/v1/disputes", "key: cannot tell: /v1/disputes: "),
        ("/v1/customers", "mode: cannot tell: /v1/customers: "),
        ("/v1/webhook_endpoints", "endpoint: cannot tell: /v1/webhook_endpoints: "),
    ] {
        for (status, body) in [(400, "{\"error\": {}}"), (500, "oops")] {
            let fake = healthy();
            fake.order(Fault::at(path).body(status, body));
            let checks = asks(&fake, false);
            let seen: Vec<String> = checks.iter().map(|check| format!("{}: {}", check.check, check.seen)).collect();
            assert!(seen.iter().any(|one| one.starts_with(told)), "{status} at {path}: {seen:?}");
            let kinds: BTreeSet<&str> = checks.iter().map(|check| check.check).collect();
            assert_eq!(kinds, BTreeSet::from(["endpoint", "key", "mode"]), "{status} at {path}");
        }
    }
}

fn billing_owner(database: &std::path::Path) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(database).unwrap().uid()
}

#[test]
fn doctor_tells_people_and_programs() {
    // The program has another clock than the service, so it would find every job overdue.
    let jobs = "[jobs]\nreaper = \"\"\nreconcile = \"\"\nretention = \"\"\n";
    let mut billing = Setup::new().toml(&format!("{CATALOGUE}{jobs}")).spawn();
    let fake = healthy();
    let served = fake.serve();
    let url = served.url();
    let key = [("BILLINGD__STRIPE__API_KEY", "rk_test_hush"), ("BILLINGD__STRIPE__API_BASE", &url)];
    let owner = billing_owner(&billing.database());
    let (status, told) = says(&billing, &["doctor"], &key);
    let disk = told.lines().find(|line| line.starts_with("ok       disk")).expect("room");
    let backups = billing.database().with_file_name("backups").display().to_string();
    let well = format!(
        "\
ok       config       valid, and every secret is there
ok       clock        plausible; without an answer of Stripe's nobody can tell more
ok       permissions  mode 640, owner {owner}
{disk}
note     backup       there is none in {backups}
ok       server       it runs
ok       database     in WAL mode, schema as this billingd knows it
ok       books        test mode, the account's own events
note     secret       of /webhooks/stripe: none has verified anything since the server started
ok       events       none failed, 0 pending
ok       findings     none is open
ok       key          reads all 12 kinds of objects that are asked for
ok       mode         the key opens test mode, as the config says
ok       endpoint     we_1 (/webhooks/stripe) is enabled, all {} types, API version 2025-11-17.clover

all is well
",
        wire::event_types().len()
    );
    assert_eq!((status, told), (0, well));
    let (status, told) = says(&billing, &["doctor"], &[]);
    assert!(status == 0 && told.contains("note     no key"), "{told}");
    billing.stop();
    fake.order(Fault::at("/v1/charges").status(403));
    let (status, told) = says(&billing, &["doctor"], &key);
    let failing = "\
PROBLEM  server       no billingd serves this database
                      why: nothing receives what Stripe sends; it tries again for three days
                      fix: `systemctl start billingd`, or `billingd serve`
";
    assert!(status == 3 && told.contains(failing), "{told}");
    let refused = "\
PROBLEM  key          may not read /v1/charges (refunds, rak_charge_read)
                      why: what only Stripe can answer stays pending, or is not compared
                      fix: give the restricted key read access to these, in Stripe's dashboard under Developers → API \
                   keys
";
    assert!(told.contains(refused) && told.ends_with("\n2 problems\n"), "{told}");
    assert!(!told.contains("hush") && !told.contains("jane"), "{told}");
    let (status, told) = says(&billing, &["doctor", "--json"], &key);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let server = told.as_array().expect("a list").iter().find(|check| check["check"] == "server").expect("the server");
    assert_eq!((status, &server["health"]), (3, &json!("problem")));
    assert_eq!(server["fix"], "`systemctl start billingd`, or `billingd serve`");
}

#[test]
fn check_without_a_key_names_what_never_resolves() {
    let billing = Setup::new().toml(CATALOGUE).spawn();
    let (status, told) = says(&billing, &["check"], &[]);
    for needs in ["(object:…)", "(payment:…)", "(subscription:…)", "(lines:…)", "(session:…)"] {
        assert!(told.contains(needs), "{needs} is not in {told}");
    }
    assert!(status == 0 && told.contains("prorations of price_basic, price_pro stay pending (price:…)"), "{told}");
    let by_money = spawn();
    let (_, told) = says(&by_money, &["check"], &[]);
    assert!(told.contains("(payment:…)") && !told.contains("(lines:…)"), "{told}");
    let (status, told) = says(&billing, &["check"], &[("BILLINGD__STRIPE__API_KEY", "rk_test_hush")]);
    assert!(status == 0 && !told.contains("without a key"), "{told}");
}

#[test]
fn check_finds_what_serve_would_refuse() {
    let billing = Setup::new().spawn();
    for (variable, value, problem) in [
        ("BILLINGD__STRIPE__LIVEMODE", "true", "holds test mode books, the config says live mode"),
        ("BILLINGD__DATABASE__PATH", "/nonexistent/books.db", "/nonexistent: no database can be made in this folder"),
    ] {
        let (status, told) = says(&billing, &["check"], &[(variable, value)]);
        assert!(status == 3 && told.contains(problem), "{status} {told}");
        assert!(told.ends_with("billingd would not start: 1 problem\n"), "{told}");
    }
}

#[test]
fn check_notes_what_is_probably_not_meant() {
    let billing = Setup::new().spawn();
    for (variable, value, note) in [
        ("BILLINGD__STRIPE__API_KEY", "rk_live_hush", "api_key is a key of live mode, and livemode = false"),
        ("BILLINGD__CREDITS__BASIS", "catalogue", "no [[price]] is listed: every paid invoice will fail"),
        ("BILLINGD__WEBHOOK", "[{ signing_secrets = [\"hush_hush_hush\"] }]", "does not begin with whsec_"),
    ] {
        let (status, told) = says(&billing, &["check"], &[(variable, value)]);
        assert!(status == 0 && told.contains(note) && told.ends_with("ok: billingd would start\n"), "{status} {told}");
        assert!(!told.contains("hush"), "{told}");
    }
}
