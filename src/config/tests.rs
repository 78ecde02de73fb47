//! The configuration as a whole: what loads, what is refused, and what is said about it.

use std::io::Write;

use super::*;

fn load_text(text: &str) -> Result<Config, ConfigError> {
    load_with(text, &[])
}

fn load_with(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut file = tempfile::Builder::new().prefix("own").suffix(".toml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    load(Some(file.path()), variables(env).into_iter())
}

fn load_env(env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    load(None, variables(env).into_iter())
}

fn variables(env: &[(&str, &str)]) -> Vec<(String, String)> {
    env.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn defaults() -> Config {
    load_env(&[]).unwrap()
}

/// The text is refused with exactly one problem, at this key, and its message has all these words.
#[track_caller]
fn refused(text: &str, key: &str, words: &[&str]) {
    let error = load_text(text).unwrap_err();
    let problems = error.problems();
    assert_eq!(problems.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), [key], "{error}");
    let told = problems[0].to_string();
    assert!(told.contains(" in /") && told.contains(".toml: "), "no file in: {told}");
    for word in words {
        assert!(told.contains(word), "no {word:?} in: {told}");
    }
}

#[test]
fn the_defaults_load_alone() {
    let config = defaults();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8787");
    assert_eq!(config.server.max_body.as_u64(), 1_048_576);
    assert_eq!(config.webhooks, [Webhook::default()]);
    assert!(config.stripe.livemode && config.stripe.api_key.is_none() && config.stripe.connected_account.is_none());
    assert!(config.prices.is_empty() && config.admin.tokens.is_empty());
    assert_eq!(config.alerts.success_rate.millionths(), 990_000);
    assert_eq!((config.credits.since, config.credits.unit), (None, None));
    assert_eq!(config.jobs.reaper.unwrap().as_str(), "0 */15 * * * *");
    assert_eq!(config.jobs.fx, None);
}

#[test]
fn the_blocks_that_are_switched_off_show_the_defaults_of_the_elements() {
    let documented = load_text(&shape::switched_on(layers::DOCUMENTATION).replace("\nfx = \"\"", "")).unwrap_err();
    // The example price names an example tier; nothing else stands in the way.
    assert_eq!(documented.problems().len(), 1, "{documented}");
    let text = shape::switched_on(layers::DOCUMENTATION).replace("order = []", "order = [\"basic\"]");
    let documented = load_text(&text).unwrap();
    let bare = load_text(
        "[tiers]\norder = [\"basic\"]\n[stripe]\napi_key = { env = \"STRIPE_SECRET_KEY\" }\n[[webhook]]\n\
         [[admin.token]]\nname = \"ops\"\nsecret = { env = \"BILLINGD_OPS_TOKEN\" }\n\
         [[price]]\nid = \"price_basic\"\ntier = \"basic\"\ncredits = 100\nunit_amount = 2000\n",
    )
    .unwrap();
    assert_eq!(documented, bare);
    assert_eq!(bare.webhooks, defaults().webhooks);
    let least = load_text("[[price]]\nid = \"p\"\n").unwrap();
    assert_eq!(
        (least.prices[0].tier.clone(), least.prices[0].credits, least.prices[0].unit_amount),
        (None, None, None)
    );
}

#[test]
fn everything_documented_is_rendered_and_nothing_else() {
    let documented = shape::switched_on(layers::DOCUMENTATION).replace("order = []", "order = [\"basic\"]");
    let keys = |text: &str| -> Vec<String> {
        let is_key = |line: &&str| line.starts_with(|c: char| c == '[' || c.is_ascii_lowercase());
        text.lines().filter(is_key).map(|line| line.split(" = ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&load_text(&documented).unwrap().redacted()), keys(&documented));
}

#[test]
fn the_file_wins_over_the_defaults_and_the_environment_over_the_file() {
    let text = "[server]\nmax_body = \"2 MiB\"\nrequest_timeout = \"2s\"\n[tiers]\norder = [\"a\", \"b\"]\n";
    let env = [("BILLINGD__SERVER__MAX_BODY", "3 MiB"), ("BILLINGD__TIERS__ORDER", "[\"c\"]")];
    let config = load_with(text, &env).unwrap();
    assert_eq!(config.server.max_body.as_u64(), 3 * 1_048_576);
    assert_eq!(config.server.request_timeout.as_secs(), 2);
    assert_eq!(config.server.shutdown_grace.as_secs(), 15);
    assert_eq!(config.tiers.order, ["c"]);
}

#[test]
fn a_variable_is_read_as_the_type_of_its_key() {
    let config = load_env(&[
        ("BILLINGD__STRIPE__LIVEMODE", "false"),
        ("BILLINGD__DATABASE__PATH", "123"),
        ("BILLINGD__STRIPE__API_KEY", "sk_test_hush"),
        ("BILLINGD__PROCESSING__MAX_ATTEMPTS", "7"),
        ("BILLINGD__ALERTS__SUCCESS_RATE", "1"),
        ("BILLINGD__ALERTS__WEBHOOK_URL", "{ file = \"url\" }"),
        ("BILLINGD__SERVER__TRUSTED_PROXIES", "[\"10.0.0.1\", \"::1\"]"),
        ("BILLINGD__WEBHOOK", "[{ path = \"/hook\", signing_secrets = [{ env = \"ONE\" }, \"whsec_hush\"] }]"),
        ("BILLINGD__ADMIN__TOKEN", "[{ name = \"app\", scope = \"app\", secret = { file = \"token\" } }]"),
        ("BILLINGD__ACCOUNTS__METADATA_KEY", "true"),
        ("BILLINGD_CONFIG", "ignored"),
        ("BILLINGD_OPS_TOKEN", "ignored"),
        ("PATH", "/bin"),
    ])
    .unwrap();
    assert!(!config.stripe.livemode);
    assert_eq!(config.database.path.to_str(), Some("123"));
    assert_eq!(config.stripe.api_key, Some(SecretSource::Plain("sk_test_hush".into())));
    assert_eq!(config.processing.max_attempts, 7);
    assert_eq!(config.alerts.success_rate.millionths(), 1_000_000);
    assert!(config.alerts.webhook_url.is_some());
    assert_eq!(config.server.trusted_proxies.len(), 2);
    assert_eq!((config.webhooks[0].path.as_str(), config.webhooks[0].signing_secrets.len()), ("/hook", 2));
    assert_eq!(config.admin.tokens[0].scope, Scope::App);
    assert_eq!(config.accounts.metadata_key, "true");
}

#[test]
fn a_variable_that_does_not_fit_is_refused_by_its_name() {
    for (name, text, words) in [
        ("BILLINGD__STRIPE__LIVEMOD", "true", "did you mean BILLINGD__STRIPE__LIVEMODE?"),
        ("BILLINGD__Stripe__livemode", "true", "did you mean BILLINGD__STRIPE__LIVEMODE?"),
        ("BILLINGD__SERVER", "x", "BILLINGD__SERVER is no key"),
        ("BILLINGD__WEBHOOK__0__PATH", "/hush", "is no key"),
        ("BILLINGD__", "x", "is no key"),
        ("BILLINGD__STRIPE__LIVEMODE", "hush", "true or false"),
        ("BILLINGD__PROCESSING__MAX_ATTEMPTS", "hush", "a whole number"),
        ("BILLINGD__TIERS__ORDER", "hush, hush", "[\"first\", \"second\"]"),
        ("BILLINGD__TIERS__ORDER", "[]\nhush = 1", "[\"first\", \"second\"]"),
        ("BILLINGD__STRIPE__API_KEY", "{ evn = \"NAME\" }", "did you mean `env`?"),
        ("BILLINGD__STRIPE__API_KEY", "", "is empty"),
        ("BILLINGD__SERVER__MAX_BODY", "1 TiB", "64 MiB"),
        ("BILLINGD__WEBHOOK", "[{ tolerance = \"0s\" }]", "tolerance"),
    ] {
        let error = load_env(&[(name, text)]).unwrap_err();
        assert_eq!(error.problems().len(), 1, "{error}");
        let told = error.to_string();
        assert!(told.contains(&format!("environment variable {name}:")) && told.contains(words), "{told}");
        assert!(!told.contains("hush"), "{told}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    refused("[server]\nlisten_on = \"\"\n", "server.listen_on", &["did you mean `server.listen`?"]);
    refused("[servr]\nlisten = \"\"\n", "servr", &["did you mean `server`?"]);
    refused("[[webhook]]\ntolerence = \"5m\"\n", "webhook[0].tolerence", &["did you mean `webhook[0].tolerance`?"]);
    refused("[[webhook]]\nlivemode = true\n", "webhook[0].livemode", &["did you mean `stripe.livemode`?"]);
    refused("[[price]]\nid = \"p\"\n[[price]]\nid = \"q\"\nteir = \"x\"\n", "price[1].teir", &["`price[1].tier`?"]);
    refused("[stripe]\napi_key = { enw = \"NAME\" }\n", "stripe.api_key.enw", &["did you mean `env`?"]);
    refused("[log]\nzzz = 1\n", "log.zzz", &["take it out", "format, level"]);
    refused("livemode = true\n", "livemode", &["did you mean `stripe.livemode`?"]);
    let token = "[[admin.token]]\nname = \"x\"\nsecret = { env = \"X\", file = \"Y\" }\n";
    refused(token, "admin.token[0].secret", &["single source"]);
}

#[test]
fn a_wrong_type_is_refused_with_what_to_write() {
    refused("server = 1\n", "server", &["a whole number", "a section with keys"]);
    refused("[server]\nmax_body = 5\n", "server.max_body", &["text in quotes, such as \"1 MiB\""]);
    refused("[stripe]\nlivemode = \"no\"\n", "stripe.livemode", &["true or false"]);
    refused("[processing]\nmax_attempts = 1.5\n", "processing.max_attempts", &["a whole number"]);
    refused("[credits]\nsince = 2026-01-31\n", "credits.since", &["text in quotes"]);
    refused("[webhook]\npath = \"/x\"\n", "webhook", &["a list of tables"]);
    refused("[tiers]\norder = [1]\n", "tiers.order[0]", &["text in quotes"]);
    refused("[[price]]\nid = 1\n", "price[0].id", &["text in quotes"]);
    let text = "[[webhook]]\nsigning_secrets = \"whsec_hush\"\n";
    refused(text, "webhook[0].signing_secrets", &["a list in brackets", "{ env = \"NAME\" }"]);
    assert!(!load_text(text).unwrap_err().to_string().contains("hush"));
}

#[test]
fn a_wrong_value_is_refused_with_what_to_write() {
    for (text, key, words) in [
        ("[server]\nlisten = \"localhost\"", "server.listen", "127.0.0.1:8787"),
        ("[server]\ntrusted_proxies = [\"10.0.0.0/8\"]", "server.trusted_proxies", "no networks"),
        ("[server]\nmax_body = \"lots\"", "server.max_body", "1 MiB"),
        ("[server]\nmax_body = \"1023 B\"", "server.max_body", "1 KiB"),
        ("[server]\nmax_body = \"65 MiB\"", "server.max_body", "64 MiB"),
        ("[server]\nrequest_timeout = \"999ms\"", "server.request_timeout", "\"1s\" to \"5m\""),
        ("[server]\nrequest_timeout = \"6m\"", "server.request_timeout", "\"1s\" to \"5m\""),
        ("[server]\nrequest_timeout = \"10\"", "server.request_timeout", "15m"),
        ("[admin]\nlisten = \"127.0.0.1:8787\"", "admin.listen", "server.listen"),
        ("[admin]\nhosts = [\"https://example.com\"]", "admin.hosts[0]", "plain host name"),
        ("[admin]\nhosts = [\"a.example\", \"b.example:80\"]", "admin.hosts[1]", "plain host name"),
        ("[[admin.token]]\nname = \"x\"", "admin.token[0].secret", "missing"),
        ("[[admin.token]]\nname = \"\"\nsecret = \"x\"", "admin.token[0].name", "one word"),
        ("[[admin.token]]\nname = \"x\"\nscope = \"opertor\"\nsecret = \"x\"", "admin.token[0].scope", "\"operator\"?"),
        ("[[admin.token]]\nname = \"x\"\nsecret = \"a b\"", "admin.token[0].secret", "white space"),
        ("[database]\npath = \"\"", "database.path", "billingd.db"),
        ("webhook = []", "webhook", "[[webhook]]"),
        ("[[webhook]]\npath = \"hook\"", "webhook[0].path", "/webhooks/stripe"),
        ("[[webhook]]\npath = \"/a/{b}\"", "webhook[0].path", "/webhooks/stripe"),
        ("[[webhook]]\npath = \"/a//b\"", "webhook[0].path", "single slashes"),
        ("[[webhook]]\npath = \"/healthz/\"", "webhook[0].path", "taken"),
        ("[[webhook]]\npath = \"/a\"\n[[webhook]]\npath = \"/a/\"", "webhook[1].path", "its own path"),
        ("[[webhook]]\nsigning_secrets = []", "webhook[0].signing_secrets", "at least one"),
        ("[[webhook]]\nsigning_secrets = [\"\"]", "webhook[0].signing_secrets[0]", "empty"),
        ("[[webhook]]\nsigning_secrets = [{ env = \"\" }]", "webhook[0].signing_secrets[0]", "NAME"),
        ("[[webhook]]\ntolerance = \"0s\"", "webhook[0].tolerance", "tolerance cannot be switched off"),
        ("[[webhook]]\ntolerance = \"25h\"", "webhook[0].tolerance", "\"1d\""),
        ("[stripe]\nconnected_account = \"cus_1\"", "stripe.connected_account", "acct_"),
        ("[stripe]\napi_base = \"http://api.stripe.com\"", "stripe.api_base", "not https"),
        ("[stripe]\napi_base = \"\"", "stripe.api_base", "empty"),
        ("[accounts]\nmetadata_key = \"\"", "accounts.metadata_key", "account_id"),
        ("[tiers]\norder = [\"a\", \"b\", \"a\"]", "tiers.order[2]", "twice"),
        ("[tiers]\norder = [\"\"]", "tiers.order[0]", "no name"),
        ("[tiers]\ndowngrade = \"period-end\"", "tiers.downgrade", "did you mean \"period_end\"?"),
        ("[credits]\nbasis = \"x\"", "credits.basis", "\"amount_paid\" or \"catalogue\""),
        ("[credits]\nproration = \"x\"", "credits.proration", "\"prorate\" or \"none\""),
        ("[credits]\nunlisted_price = \"x\"", "credits.unlisted_price", "\"fail\" or \"ignore\""),
        ("[credits]\nsince = \"2026-02-30\"", "credits.since", "2026-01-31"),
        ("[credits]\nsince = \"2026-01-31T12:00:00\"", "credits.since", "RFC 3339"),
        ("[credits]\nunit = \"dollars\"", "credits.unit", "usd"),
        ("[credits]\nunit = \"usd\"", "credits.unit", "no rates would ever come"),
        ("[[price]]\ncredits = 1", "price[0].id", "missing"),
        ("[[price]]\nid = \"\"", "price[0].id", "no id"),
        ("[[price]]\nid = \"p\"\n[[price]]\nid = \"p\"", "price[1].id", "listed already"),
        ("[[price]]\nid = \"p\"\ntier = \"pro\"", "price[0].tier", "tiers.order"),
        ("[[price]]\nid = \"p\"\ncredits = -1", "price[0].credits", "negative"),
        ("[[price]]\nid = \"p\"\nunit_amount = -1", "price[0].unit_amount", "negative"),
        ("[[price]]\nid = \"p\"\nunit = \"\"", "price[0].unit", "credits"),
        ("[[price]]\nid = \"p\"\nper = \"seat\"", "price[0].per", "\"unit\" or \"invoice\""),
        ("[[price]]\nid = \"p\"\nforeign = true\ncredits = 1", "price[0].foreign", "neither tier nor credits"),
        ("[processing]\nmax_attempts = 0", "processing.max_attempts", "1 to 100"),
        ("[processing]\nmax_attempts = 101", "processing.max_attempts", "1 to 100"),
        ("[processing]\nmax_attempts = -1", "processing.max_attempts", "out of range"),
        ("[jobs]\nreaper = \"*/15 * * * *\"", "jobs.reaper", "six fields"),
        ("[jobs]\nbackup = \"0 0 25 * * *\"", "jobs.backup", "0 30 3 * * *"),
        ("[reconcile]\nlookback = \"31d\"", "reconcile.lookback", "30d"),
        ("[reaper]\npending_after = \"0s\"", "reaper.pending_after", "\"1s\""),
        ("[fx]\nbase = \"euro\"", "fx.base", "usd"),
        ("[fx]\nurl = \"rates\"", "fx.url", "https://example.com"),
        ("[alerts]\nsuccess_rate = 1.5", "alerts.success_rate", "from 0 to 1"),
        ("[alerts]\nwebhook_url = \"http://example.com/x\"", "alerts.webhook_url", "not https"),
        ("[alerts]\nheartbeat_url = { credential = \"a/b\" }", "alerts.heartbeat_url", "LoadCredential"),
        ("[log]\nformat = \"xml\"", "log.format", "\"auto\" or \"text\" or \"json\""),
        ("[log]\nlevel = \"warning\"", "log.level", "\"warn\""),
    ] {
        refused(text, key, &[words]);
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let text = "zzz = 1\n[server]\nlisten = \"x\"\nmax_body = \"y\"\n[log]\nlevel = 3\nformat = \"z\"\n\
                [[price]]\nid = \"a\"\nper = \"b\"\n[[price]]\nper = \"c\"\n";
    let error = load_with(text, &[("BILLINGD__JOBS__FX", "never")]).unwrap_err();
    let keys: Vec<&str> = error.problems().iter().map(|problem| problem.key.as_str()).collect();
    for key in [
        "zzz",
        "server.listen",
        "server.max_body",
        "log.level",
        "log.format",
        "price[0].per",
        "price[1].per",
        "price[1].id",
        "jobs.fx",
    ] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    assert_eq!(keys.len(), 9, "{error}");
    let broken_rules = "[server]\nmax_body = \"1 B\"\n[[webhook]]\npath = \"x\"\ntolerance = \"0s\"\n";
    assert_eq!(load_text(broken_rules).unwrap_err().problems().len(), 3);
}

#[test]
fn a_file_that_cannot_be_read_or_parsed_is_named() {
    let error = load(Some(Path::new("no/such/file.toml")), std::iter::empty()).unwrap_err().to_string();
    assert!(error.contains("no/such/file.toml") && error.contains("check the path"), "{error}");
    for key in ["\"sk_live_hush", "sk_live_hush", "hush hush", "{ env = hush }", "\"\"\"hush\nhush"] {
        let error = load_text(&format!("[stripe]\napi_key = {key}\nlivemode = true\n")).unwrap_err().to_string();
        assert!(error.contains(".toml is not valid TOML") && error.contains("line "), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
}

#[test]
fn values_arrive_as_what_they_mean() {
    let text = "[credits]\nsince = \"2026-01-31\"\nunit = \"USD\"\n[jobs]\nfx = \"0 0 16 * * *\"\n\
                [admin]\nhosts = [\"a.b\"]\n[stripe]\nconnected_account = \"acct_1\"\n\
                api_base = \"http://127.0.0.1:1\"\n";
    let config = load_text(text).unwrap();
    assert_eq!(config.credits.since, Some(1_769_817_600));
    assert_eq!(config.credits.unit.as_deref(), Some("usd"));
    assert_eq!(config.stripe.connected_account.as_deref(), Some("acct_1"));
    assert_eq!(config.stripe.api_base.resolve(&|_| None).unwrap().expose(), "http://127.0.0.1:1");
    let moment = load_text("[credits]\nsince = \"2026-01-31T01:00:00+01:00\"\n").unwrap();
    assert_eq!(moment.credits.since, config.credits.since);
    assert!(load_text("[[price]]\nid = \"p\"\nforeign = true\n").unwrap().prices[0].foreign);
}

#[test]
fn dev_needs_no_secret_from_the_environment() {
    let config = load_text(include_str!("../../config/dev.toml")).unwrap();
    let env = |_: &str| None;
    assert!(config.server.listen.ip().is_loopback() && config.admin.listen.ip().is_loopback());
    assert!(!config.stripe.livemode && config.stripe.api_key.is_none());
    assert_eq!(config.credits.basis, Basis::AmountPaid);
    assert_eq!(config.database.path.to_str(), Some("billingd-dev.db"));
    let [webhook] = config.webhooks.as_slice() else { panic!("one webhook") };
    assert!(webhook.signing_secrets[0].resolve(&env).unwrap().expose().starts_with("whsec_dev"));
    assert_eq!(config.admin.tokens.len(), 3);
    assert!(config.admin.tokens.iter().all(|token| token.resolve(&env).is_ok()));
}

#[test]
fn the_example_for_production_loads_and_holds_no_secret() {
    let config = load_text(include_str!("../../config/prod.example.toml")).unwrap();
    assert_eq!(config.database.path.to_str(), Some("/var/lib/billingd/billingd.db"));
    assert!(config.stripe.livemode && config.tiers.order.len() == 2 && config.prices.len() == 3);
    let secrets = config.admin.tokens.iter().map(|token| &token.secret);
    let mut secrets = secrets.chain(&config.webhooks[0].signing_secrets).chain(&config.stripe.api_key);
    assert!(secrets.all(|source| matches!(source, SecretSource::Credential { .. })));
}

#[test]
fn the_starter_loads_with_its_tokens_and_nothing_else() {
    let tokens = StarterTokens::from_random(&[7; 96]);
    let mut config = load_text(&starter(&tokens)).unwrap();
    let scopes: Vec<Scope> = config.admin.tokens.iter().map(|token| token.scope).collect();
    assert_eq!(scopes, [Scope::Operator, Scope::App, Scope::Metrics]);
    assert_eq!(config.admin.tokens[0].resolve(&|_| None).unwrap(), tokens.operator);
    config.admin.tokens.clear();
    assert_eq!(config, defaults());
}

#[test]
fn the_redacted_text_loads_again_and_holds_no_secret() {
    let text = "[stripe]\napi_key = \"sk_live_hush\"\n[alerts]\nwebhook_url = \"https://hooks.example.com/hush?hush\"\n\
                heartbeat_url = { env = \"HEARTBEAT\" }\n[credits]\nsince = \"2026-01-31\"\n\
                [[webhook]]\nsigning_secrets = [\"whsec_hush\", { credential = \"next\" }, { file = \"a\\\"b\" }]\n\
                [[admin.token]]\nname = \"ops\"\nsecret = \"hush-hush-hush-hush-hush-hush-hush-hush\"\n";
    let config = load_text(text).unwrap();
    let shown = config.redacted();
    assert!(!shown.contains("hush") && !format!("{config:?}").contains("hush"), "{shown}");
    for line in [
        "api_key = \"[redacted]\"",
        "webhook_url = \"https://hooks.example.com/[redacted]\"",
        "heartbeat_url = { env = \"HEARTBEAT\" }",
        "signing_secrets = [\"[redacted]\", { credential = \"next\" }, { file = \"a\\\"b\" }]",
        "since = \"2026-01-31T00:00:00Z\"",
        "max_body = \"1 MiB\"",
        "api_base = \"https://api.stripe.com\"",
        "success_rate = 0.99",
    ] {
        assert!(shown.lines().any(|it| it == line), "no line {line} in:\n{shown}");
    }
    assert_eq!(load_text(&shown).unwrap().redacted(), shown);
}

#[test]
fn the_digest_follows_what_decides_about_money() {
    let base = "[tiers]\norder = [\"a\", \"b\"]\n[[price]]\nid = \"p\"\ncredits = 1\n[[price]]\nid = \"q\"\n";
    let digest = |text: &str| load_text(text).unwrap().catalogue_digest();
    assert_eq!(digest(base).len(), 64);
    for same in ["[log]\nlevel = \"debug\"", "[server]\nmax_body = \"2 MiB\"", "[stripe]\napi_key = \"sk_live_x\""] {
        assert_eq!(digest(&format!("{base}{same}\n")), digest(base), "{same}");
    }
    let reordered = "[tiers]\norder = [\"a\", \"b\"]\n[[price]]\nid = \"q\"\n[[price]]\nid = \"p\"\ncredits = 1\n";
    assert_eq!(digest(reordered), digest(base));
    for other in [
        "[stripe]\nlivemode = false",
        "[stripe]\nconnected_account = \"acct_1\"",
        "[accounts]\nmetadata_key = \"user\"",
        "[access]\nunpaid = true",
        "[credits]\nbasis = \"catalogue\"",
        "[credits]\nsince = \"2026-01-31\"",
        "[[price]]\nid = \"r\"",
    ] {
        assert_ne!(digest(&format!("{base}{other}\n")), digest(base), "{other}");
    }
    let rates = |more: &str| {
        let on = "[credits]\nunit = \"usd\"\n[jobs]\nfx = \"0 0 16 * * *\"\n";
        (digest(&format!("{base}{on}{more}")), digest(&format!("{base}{more}")))
    };
    for decides in ["[fx]\nbase = \"usd\"\n", "[fx]\nmax_age = \"3d\"\n"] {
        assert_ne!(rates(decides).0, rates("").0, "{decides}");
        assert_eq!(rates(decides).1, rates("").1, "nothing is converted: {decides}");
    }
    let elsewhere = "[fx]\nurl = \"https://example.com/rates.xml\"\n";
    assert_eq!(rates(elsewhere), rates(""), "where rates come from");
    assert_ne!(digest(&base.replace("\"a\", \"b\"", "\"b\", \"a\"")), digest(base));
    assert_ne!(digest(&base.replace("credits = 1", "credits = 2")), digest(base));
}
