//! The door and the gates of the private listener, attacked.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::cli::{check, run};
use super::harness::{Answer, Billing, NOW, Setup, spawn};
use super::visitor::{APP, METRICS, OPERATOR, bearer, open_to_all};

const HTML: &str = "Accept: text/html,application/xhtml+xml";

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

fn log_in(billing: &Billing, token: &str, headers: &[&str]) -> Answer {
    let headers = [&[FORM], headers].concat();
    billing.visitor("POST", "/login", &headers, &format!("token={token}"))
}

/// The header that a browser sends from now on.
fn cookie(answer: &Answer) -> String {
    let set = answer.header("set-cookie").expect("a session");
    format!("Cookie: {}", set.split(';').next().expect("a value"))
}

/// The value of the hidden field of a page.
fn csrf(page: &Answer) -> String {
    let page = page.body.as_str().expect("a page");
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a hidden field");
    rest.split('"').next().expect("a value").to_owned()
}

#[test]
fn without_a_token_there_is_no_private_listener() {
    assert_eq!(spawn().admin_address(), None);
}

#[test]
fn an_address_that_is_taken_is_named_with_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = taken.local_addr().expect("an address").to_string();
    let (file, _) = open_to_all().toml(&format!("[admin]\nlisten = \"{address}\"\n")).config_in(folder.path());
    let ran = run(folder.path(), &["--config", &file.display().to_string()]);
    check(&ran, 1, &[&format!("[admin] listen = {address} cannot be bound")]);
}

#[test]
fn without_its_secret_nothing_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = "[[admin.token]]\nname = \"alice\"\nsecret = { env = \"NOT_SET\" }\n";
    let (file, _) = Setup::new().toml(token).config_in(folder.path());
    let ran = run(folder.path(), &["--config", &file.display().to_string()]);
    check(&ran, 1, &["[[admin.token]] alice", "NOT_SET is not set"]);
}

#[test]
fn it_ends_with_the_public_one() {
    // Whoever forgets to tell it waits for a third of that.
    let mut billing = open_to_all().with("server.shutdown_grace", "5m").spawn();
    let address = billing.admin_address().expect("a token");
    assert_eq!(billing.asks(OPERATOR, "/").status, 200);
    let began = Instant::now();
    billing.stop();
    assert!(began.elapsed() < Duration::from_secs(60), "it was told");
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn every_answer_has_the_headers_that_browsers_obey() {
    let billing = open_to_all().spawn();
    let operator = bearer(OPERATOR);
    for (what, answer) in [
        ("a page", billing.asks(OPERATOR, "/")),
        ("the form", billing.visitor("GET", "/login", &[], "")),
        ("a stranger", billing.visitor("GET", "/", &[], "")),
        ("a stranger with a browser", billing.visitor("GET", "/", &[HTML], "")),
        ("another scope", billing.asks(APP, "/")),
        ("no such path", billing.asks(OPERATOR, "/nothing")),
        ("another method", billing.visitor("PUT", "/", &[&operator], "")),
        ("another name", billing.hears("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")),
        ("a bad form", billing.visitor("POST", "/login", &[FORM], "x=y")),
        ("a large form", billing.visitor("POST", "/login", &[FORM], &"x".repeat(70_000))),
        ("no form", billing.visitor("POST", "/login", &[], "token=x")),
        ("everything", billing.visitor("OPTIONS", "*", &[&operator], "")),
    ] {
        let csp = answer.header("content-security-policy").unwrap_or_else(|| panic!("{what}: {answer:?}"));
        for part in ["default-src 'none'", "style-src 'self'", "form-action 'self'", "frame-ancestors 'none'"] {
            assert!(csp.contains(part), "{what}: {csp}");
        }
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{what}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{what}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{what}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{what}");
    }
}

#[test]
fn only_its_own_names_reach_it() {
    let billing = open_to_all().with("admin.hosts", "[\"Billing.example\", \"10.0.0.7\", \"fd00::7\"]").spawn();
    let with = |target: &str, hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| format!("Host: {host}\r\n")).collect::<String>();
        billing.hears(format!("GET {target} HTTP/1.1\r\n{hosts}{}\r\nConnection: close\r\n\r\n", bearer(OPERATOR)))
    };
    for host in [
        "localhost",
        "LocalHost:1",
        "127.0.0.1:8788",
        "127.0.0.1",
        "[::1]",
        "[::1]:8788",
        "billing.example",
        "BILLING.example:443",
        "10.0.0.7:80",
        "[fd00::7]",
    ] {
        assert_eq!(with("/", &[host]).status, 200, "{host}");
    }
    for host in [
        "",
        "evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "localhost:",
        "localhost:80x",
        "localhost@evil",
        "localhost,evil.example",
        "127.0.0.2",
        "[::1",
        "::1:80x",
        "[::1]x",
        "0.0.0.0",
        "127.1",
        "billing.example.",
        "evil.example:localhost",
    ] {
        let answer = with("/", &[host]);
        assert!([400, 421].contains(&answer.status), "{host}: {answer:?}");
    }
    let told = with("/", &["evil.example"]).body.to_string();
    assert!(told.contains("[admin] hosts") && !told.contains("evil"), "{told}");
    assert!([400, 421].contains(&with("/", &[]).status), "no name at all");
    assert!([400, 421].contains(&with("/", &["localhost", "evil.example"]).status), "two names");
    assert!([400, 421].contains(&with("/", &["localhost", "localhost"]).status), "the same name twice");
    assert_eq!(with("http://evil.example/", &["localhost"]).status, 421, "the name in the target counts");
    assert_eq!(with("http://localhost/", &["evil.example"]).status, 421);
    assert_eq!(with("http://localhost/", &["localhost"]).status, 200);
    let forwarded = billing.visitor("GET", "/", &[&bearer(OPERATOR), "X-Forwarded-Host: evil.example"], "");
    assert_eq!(forwarded.status, 200, "it counts for nothing");
}

#[test]
fn each_scope_opens_what_it_is_for() {
    let billing = open_to_all().spawn();
    for (token, path, expected) in [
        (OPERATOR, "/", 200),
        (APP, "/", 403),
        (METRICS, "/", 403),
        (OPERATOR, "/nothing", 404),
        (APP, "/nothing", 403),
        (METRICS, "/nothing", 403),
        (OPERATOR, "//", 404),
        (OPERATOR, "/login/", 404),
        (OPERATOR, "/api/v1/events", 200),
        (OPERATOR, "/metrics", 200),
        (METRICS, "/metrics", 200),
        (APP, "/metrics", 403),
        (APP, "/api/v1/events", 403),
        (METRICS, "/api/v1/events", 403),
        (METRICS, "/api/v1/accounts/cus_1", 403),
        (APP, "/%61pi/v1/events", 403),
        (OPERATOR, "/%61pi/v1/events", 200),
        (APP, "/api/v1/accounts/../events", 404),
        (APP, "/api/v1/accounts/%2e%2e/events", 404),
        (APP, "/api/v1/accounts/../../..", 404),
        (METRICS, "/api/v1/accounts/../../..", 403),
        (APP, "/api/v1/accounts", 404),
        (APP, "/api/v1/accountsx/cus_1", 403),
        (APP, "/api//v1/accounts/cus_1", 403),
        (APP, "/api/v1/accounts/cus_1?x=/../../events", 404),
        (METRICS, "/metrics/../", 403),
        (METRICS, "//metrics", 403),
    ] {
        let answer = billing.asks(token, path);
        assert_eq!(answer.status, expected, "{path} with {token}");
        if expected != 200 {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}");
            assert_eq!(answer.body["status"], expected, "{path}");
        }
    }
}

#[test]
fn strangers_are_told_nothing() {
    let billing = open_to_all().spawn();
    let upper = OPERATOR.to_uppercase();
    let longer = format!("{OPERATOR}x");
    let twice = bearer(OPERATOR);
    let basic = format!("Authorization: Basic {OPERATOR}");
    for path in ["/", "/nothing", "/logout", "/metrics", "/api/v1/accounts/cus_1", "/api/v1/events", "/%2e%2e/"] {
        for headers in [
            &[][..],
            &["Authorization: Bearer"],
            &["Authorization: "],
            &[&bearer(&upper)],
            &[&bearer(&longer)],
            &[&bearer(&OPERATOR[1..])],
            &[&basic],
            &[&twice, &twice],
            &["Cookie: billingd_session=x"],
            &["Cookie: billingd_session=616c696365.9999999999."],
            &["Cookie: billingd_session=..; billingd_session"],
        ] {
            let answer = billing.visitor("GET", path, headers, "");
            assert_eq!(answer.status, 401, "{path} {headers:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"billingd\""));
            assert_eq!(answer.body["type"], "urn:billingd:problem:unauthorized");
        }
    }
    let lower = billing.visitor("GET", "/", &[&format!("authorization: bearer {OPERATOR}")], "");
    assert_eq!(lower.status, 200, "the name of a scheme has no case");
}

#[test]
fn a_browser_logs_in_and_out() {
    let billing = open_to_all().spawn();
    let sent = billing.visitor("GET", "/", &[HTML], "");
    assert_eq!((sent.status, sent.header("location")), (303, Some("/login")));
    let form = billing.visitor("GET", "/login", &[HTML], "");
    assert!(form.status == 200 && form.body.to_string().contains("type=\\\"password\\\""), "{form:?}");
    let begun = log_in(&billing, OPERATOR, &[]);
    assert_eq!((begun.status, begun.header("location")), (303, Some("/")));
    let set = begun.header("set-cookie").expect("a session");
    assert!(set.starts_with("billingd_session=616c696365."), "the name in hex: {set}");
    assert!(set.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"), "{set}");
    assert!(!set.contains(OPERATOR));
    let cookie = cookie(&begun);
    let page = billing.visitor("GET", "/", &[HTML, &cookie], "");
    assert!(page.status == 200 && page.body.to_string().contains("alice"), "{page:?}");
    let ended = billing.visitor("POST", "/logout", &[FORM, &cookie], &format!("csrf={}", csrf(&page)));
    assert_eq!((ended.status, ended.header("location")), (303, Some("/login")));
    assert!(ended.header("set-cookie").is_some_and(|set| set.starts_with("billingd_session=; Path=/; Max-Age=0;")));
}

#[test]
fn only_an_operators_token_logs_in() {
    let billing = open_to_all().spawn();
    for (token, expected) in [(APP, 403), (METRICS, 403), ("", 401), ("wrong", 401), (&OPERATOR.to_uppercase(), 401)] {
        let refused = log_in(&billing, token, &[]);
        assert_eq!((refused.status, refused.header("set-cookie")), (expected, None), "{token}");
        let page = refused.body.as_str().expect("the form again");
        assert!(page.contains("role=\"alert\"") && (token.is_empty() || !page.contains(token)), "{page}");
    }
    assert_eq!(billing.visitor("POST", "/login", &["Content-Type: text/plain"], "token=x").status, 415);
    assert_eq!(billing.visitor("POST", "/login", &[FORM], &format!("token={}", "x".repeat(70_000))).status, 413);
    let long = billing.visitor("POST", "/login", &[FORM], &format!("token={}", "x".repeat(5_000)));
    assert_eq!(
        (long.status, &long.body["type"]),
        (413, &"urn:billingd:problem:form".into()),
        "a stranger is not heard out"
    );
    let other = billing.visitor("POST", "/login", &[FORM], "x=y");
    assert_eq!((other.status, &other.body["type"]), (400, &"urn:billingd:problem:form".into()));
    let put = billing.visitor("PUT", "/login", &[FORM], "token=x");
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, HEAD, POST")));
}

#[test]
fn a_session_is_secure_if_a_trusted_proxy_says_so() {
    let https = "X-Forwarded-Proto: https";
    let is_secure = |setup: Setup, headers: &[&str]| {
        log_in(&setup.spawn(), OPERATOR, headers).header("set-cookie").expect("a session").ends_with("; Secure")
    };
    let trusting = || open_to_all().with("server.trusted_proxies", "[\"127.0.0.1\"]");
    assert!(is_secure(trusting(), &[https]));
    assert!(!is_secure(trusting(), &["X-Forwarded-Proto: http"]));
    assert!(!is_secure(trusting(), &[]));
    assert!(!is_secure(open_to_all(), &[https]), "anybody can say so");
    assert!(!is_secure(open_to_all().with("server.trusted_proxies", "[\"10.0.0.1\"]"), &[https]));
}

#[test]
fn only_so_many_are_connected_at_a_time() {
    let billing = open_to_all().spawn();
    let address = billing.admin_address().expect("a token");
    let idle: Vec<TcpStream> = (0..128).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    let mut next = TcpStream::connect(address).expect("a connection that the system has taken");
    next.set_read_timeout(Some(Duration::from_millis(300))).expect("a time limit");
    next.write_all(b"GET /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
    next.read(&mut [0; 1]).expect_err("nobody has read it");
    drop(idle);
    next.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    assert_eq!(next.read(&mut [0; 1]).expect("an answer"), 1);
}

static SECONDS: AtomicI64 = AtomicI64::new(NOW);

fn hours() -> i64 {
    SECONDS.load(Ordering::SeqCst) * 1000
}

#[test]
fn a_session_ends_after_twelve_hours_or_with_its_token() {
    let mut billing = open_to_all().clock(hours).spawn();
    let cookie = cookie(&log_in(&billing, OPERATOR, &[]));
    let opens = |billing: &Billing| billing.visitor("GET", "/", &[&cookie], "").status;
    SECONDS.store(NOW + 12 * 3600 - 1, Ordering::SeqCst);
    assert_eq!(opens(&billing), 200);
    SECONDS.store(NOW + 12 * 3600, Ordering::SeqCst);
    assert_eq!(opens(&billing), 401);
    SECONDS.store(NOW, Ordering::SeqCst);
    billing.restart();
    assert_eq!(opens(&billing), 200, "a restart ends none");
    let token = |secret: &str, scope: &str| {
        let text = format!("[[admin.token]]\nname = \"alice\"\nscope = \"{scope}\"\nsecret = \"{secret}\"\n");
        Setup::new().with("admin.listen", "127.0.0.1:0").toml(&text)
    };
    billing.restart_with(token(&OPERATOR.replace('0', "1"), "operator"));
    assert_eq!(opens(&billing), 401, "another secret");
    billing.restart_with(token(OPERATOR, "app"));
    assert_eq!(opens(&billing), 401, "another scope");
    billing.restart_with(token(OPERATOR, "operator"));
    assert_eq!(opens(&billing), 200);
}

#[test]
fn a_forged_session_opens_nothing() {
    let second = "[[admin.token]]\nname = \"bob\"\nsecret = \"another-operator-of-the-tests-0123456789\"\n";
    let billing = open_to_all().toml(second).spawn();
    let cookie = cookie(&log_in(&billing, OPERATOR, &[]));
    let opens = |cookie: &str| billing.visitor("GET", "/", &[cookie], "").status;
    assert_eq!(opens(&cookie), 200);
    assert_eq!(opens(&format!("{cookie}; theme=dark")), 200);
    assert_eq!(opens(&cookie.replace("Cookie: ", "Cookie: billingd_session=old; ")), 200, "one of them is good");
    let parts: Vec<&str> = cookie.split('.').collect();
    let (claims, mac) = (parts[..2].join("."), parts[2]);
    let later = format!("{}.{}.{mac}", parts[0], NOW + 1_000_000);
    let bob = cookie.replace("616c696365", "626f62");
    let shop = cookie.replace("616c696365", "73686f70");
    let csrf = csrf(&billing.visitor("GET", "/", &[&cookie], ""));
    for (what, forged) in [
        ("a later end", later),
        ("another name", bob),
        ("a name of another scope", shop),
        ("no MAC", format!("{claims}.")),
        ("a shorter MAC", cookie[..cookie.len() - 2].to_owned()),
        ("a MAC in capitals", format!("{claims}.{}", mac.to_uppercase())),
        ("the MAC of the forms", format!("{claims}.{csrf}")),
        ("another cookie", cookie.replace("billingd_session", "billingd_sessions")),
        ("a cookie in capitals", cookie.replace("billingd_session", "BILLINGD_SESSION")),
    ] {
        assert_eq!(opens(&forged), 401, "{what}: {forged}");
    }
    let both = billing.visitor("GET", "/", &[&cookie, &bearer("wrong")], "");
    assert_eq!(both.status, 401, "who shows a token is who has it");
}

#[test]
fn a_form_of_another_site_does_nothing() {
    let billing = open_to_all().spawn();
    let cookie = cookie(&log_in(&billing, OPERATOR, &[]));
    let other = self::cookie(&log_in(&billing, OPERATOR, &["X-Forwarded-For: 1.2.3.4"]));
    assert_eq!(cookie, other, "the clock stands still");
    let good = format!("csrf={}", csrf(&billing.visitor("GET", "/", &[&cookie], "")));
    let posts = |path: &str, headers: &[&str], body: &str| {
        billing.visitor("POST", path, &[&[cookie.as_str()], headers].concat(), body)
    };
    for (what, headers, body) in [
        ("no body", &[FORM][..], String::new()),
        ("no field", &[FORM], "a=b".into()),
        ("an empty field", &[FORM], "csrf=".into()),
        ("a wrong field", &[FORM], format!("csrf={}", good[5..].chars().rev().collect::<String>())),
        ("no form", &["Content-Type: application/json"], good.clone()),
        ("a text", &["Content-Type: text/plain"], good.clone()),
        ("the field twice", &[FORM], format!("{good}&{good}")),
        ("too much", &[FORM], format!("{good}&x={}", "x".repeat(70_000))),
    ] {
        let answer = posts("/logout", headers, &body);
        assert_eq!((answer.status, answer.header("set-cookie")), (403, None), "{what}");
        assert_eq!(answer.body["type"], "urn:billingd:problem:csrf", "{what}");
        assert_eq!(posts("/nothing", headers, &body).status, 403, "before it is known whether there is a path");
    }
    assert_eq!(posts("/nothing", &[FORM], &good).status, 404);
    assert_eq!(posts("/logout", &[FORM], &format!("a=b&{good}&c=d")).status, 303, "the real form");
    let with_token = billing.visitor("POST", "/logout", &[&bearer(OPERATOR)], "");
    assert_eq!(with_token.status, 303, "who shows a token is no browser");
}

#[test]
fn another_method_is_told_which_it_may_be_and_head_is_get_without_a_body() {
    let billing = open_to_all().spawn();
    let operator = bearer(OPERATOR);
    for (method, path, allow) in [
        ("POST", "/", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("TRACE", "/", "GET, HEAD"),
        ("GET", "/logout", "POST"),
        ("HEAD", "/logout", "POST"),
    ] {
        let answer = billing.visitor(method, path, &[&operator], "");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
    for path in ["/", "/login"] {
        let head = billing.visitor("HEAD", path, &[&operator], "");
        assert_eq!((head.status, head.body.as_str()), (200, Some("")), "{path}");
        assert_eq!(head.header("content-length"), billing.asks(OPERATOR, path).header("content-length"));
    }
}
