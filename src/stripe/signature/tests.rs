//! Vectors that four of Stripe's SDKs agree on, and how each odd header is taken.

use super::*;

const CURRENT: &str = "whsec_billingd_test_current_00000001";
const PREVIOUS: &str = "whsec_billingd_test_previous_0000001";
const BODY: &str = r#"{"id":"evt_1","object":"event"}"#;
const NOW: i64 = 1_700_000_000;
const RIGHT: &str = "5dd1f2c9f7b5ed3f4a8ed056c95047bcc5c89b078d70fe201d6b3d8d0e25e665";
const OLD: &str = "b5489def7744c5a117d10c6c95543064c7f5af2ac91d704ea06703524d410510";

fn verifier(secrets: &[&str]) -> Verifier {
    Verifier::new(secrets, 300).expect("usable secrets")
}

fn verify(header: &str) -> Result<usize, Rejection> {
    verifier(&[CURRENT]).verify(&[header.as_bytes()], BODY.as_bytes(), NOW)
}

/// A header whose signature is right for any text of `t`.
fn signed_over(timestamp: &str, shown: &str) -> String {
    let mac = keyed(CURRENT).expect("a key").chain_update(timestamp).chain_update(".").chain_update(BODY);
    format!("t={shown},v1={}", base16ct::lower::encode_string(&mac.finalize().into_bytes()))
}

#[test]
fn the_vectors_of_the_official_sdks() {
    let rows = [
        (CURRENT, NOW, BODY, RIGHT),
        (CURRENT, 1, "{}", "732b5bb037061e63648376a2668e162483f0405e44b361a685c55935b80fdbbe"),
        (
            CURRENT,
            1_767_225_600,
            "{\"name\":\"Zo\u{eb} \u{20ac}5 \u{2603}\"}",
            "23ef9681825064d488659fa72d2ed025c4d31309001ec423f69921374a2f2454",
        ),
        (
            CURRENT,
            1_767_225_600,
            "{\"id\":\"evt_4\"}\n",
            "83bbdc345f6d3f8b8f279800fdae41daffbef03bd76d5bf1dd984c53834f9b1d",
        ),
        (
            CURRENT,
            1_767_225_600,
            "{\r\n  \"id\": \"evt_5\"\r\n}\r\n",
            "c32c0f3ec8c6557de22daf0d7ece23f89fc5748a11e78fa1ba3c7465dbf59ade",
        ),
        (PREVIOUS, NOW, BODY, OLD),
        (
            CURRENT,
            32_503_680_000,
            r#"{"id":"evt_9"}"#,
            "3bbef91cc60e9af7f0857be1cdfe4a7a44e617cfb6fe8c77b29894d46fc68541",
        ),
        (CURRENT, NOW, " ", "9b4eb7abfb1a61332d0b23ec5dc774f4298f2dd2fed1ce3d99a9082e51642fe9"),
    ];
    for (secret, time, body, signature) in rows {
        let header = format!("t={time},v1={signature}");
        assert_eq!(sign(secret, time, body.as_bytes()), header);
        assert_eq!(verifier(&[secret]).verify(&[header.as_bytes()], body.as_bytes(), time), Ok(0), "{body:?}");
    }
}

#[test]
fn the_exact_bytes_of_the_secret_count() {
    let without_prefix = "9b596c505a84029b3bd235cd35cb396580a28b9346851f8aeea7f19579a81b99";
    let with_line_feed = "b0a691289cdef3ea1667d8cbc28b87c74031d887f714874d17a23ebf9304365a";
    for (secret, signature) in
        [(CURRENT.trim_start_matches("whsec_").to_owned(), without_prefix), (format!("{CURRENT}\n"), with_line_feed)]
    {
        assert_eq!(sign(&secret, NOW, BODY.as_bytes()), format!("t={NOW},v1={signature}"));
        assert_eq!(verify(&format!("t={NOW},v1={signature}")), Err(Rejection::Mismatch));
    }
}

#[test]
fn combined_headers() {
    let upper = RIGHT.to_ascii_uppercase();
    let rows = [
        (format!("t={NOW},v1={OLD},v1={RIGHT}"), Ok(0)),
        (format!("t={NOW},v1={RIGHT},v0={OLD}"), Ok(0)),
        (format!("t={NOW},v0={RIGHT}"), Err(Rejection::Malformed)),
        (format!("t={NOW},v1={upper}"), Err(Rejection::Malformed)),
        (format!("t={},v1={RIGHT}", NOW + 1), Err(Rejection::Mismatch)),
    ];
    for (header, expected) in rows {
        assert_eq!(verify(&header), expected, "{header}");
    }
}

#[test]
fn odd_headers_get_the_strictest_reading() {
    use Rejection::{InFuture, Malformed, Mismatch, Missing, TooOld};
    let rows = [
        (String::new(), Err(Missing)),
        (" \t".to_owned(), Err(Missing)),
        (format!("v1={RIGHT}"), Err(Malformed)),
        (signed_over("", ""), Err(Malformed)),
        (signed_over("abc", "abc"), Err(Malformed)),
        (signed_over("1700000000", "1700000000abc"), Err(Malformed)),
        (signed_over("1700000000", "1700000000.5"), Err(Malformed)),
        (signed_over("01700000000", "01700000000"), Ok(0)),
        (signed_over("1700000000", "01700000000"), Err(Mismatch)),
        (signed_over("1700000000", "+1700000000"), Err(Malformed)),
        (signed_over("+1700000000", "+1700000000"), Err(Malformed)),
        (signed_over("-1700000000", "-1700000000"), Err(Malformed)),
        (signed_over("0", "0"), Err(TooOld)),
        (signed_over("999999999999", "999999999999"), Err(InFuture)),
        (signed_over("1999999999999", "1999999999999"), Err(Malformed)),
        (format!("t={NOW},v0={RIGHT}"), Err(Malformed)),
        (format!("t={NOW},V1={RIGHT}"), Err(Malformed)),
        (format!("T={NOW},v1={RIGHT}"), Err(Malformed)),
        (format!("t={NOW},t=1,v1={RIGHT}"), Err(Malformed)),
        (format!("t=1,t={NOW},v1={RIGHT}"), Err(Malformed)),
        (format!("t={NOW},t={NOW},v1={RIGHT}"), Err(Malformed)),
        (format!("t={NOW},t=,v1={RIGHT}"), Err(Malformed)),
        (format!("t={NOW},v1={RIGHT},v1={OLD}"), Ok(0)),
        (format!("t={NOW},v1={OLD},v1={RIGHT}"), Ok(0)),
        (format!("v1={RIGHT},t={NOW}"), Ok(0)),
        (format!("t={NOW},v0={OLD},v1={RIGHT},v2=x"), Ok(0)),
        (format!("t={NOW}, v1={RIGHT}"), Ok(0)),
        (format!(" t={NOW} ,\tv1={RIGHT} , v0=x "), Ok(0)),
        (format!("t ={NOW},v1={RIGHT}"), Err(Malformed)),
        (format!("t= {NOW},v1={RIGHT}"), Err(Malformed)),
        (format!("t={NOW},v1 ={RIGHT}"), Err(Malformed)),
        (format!("t={NOW},v1= {RIGHT}"), Err(Malformed)),
        (format!("t={NOW},v1={}", RIGHT.to_ascii_uppercase()), Err(Malformed)),
        (format!("t={NOW},v1=5dd1f2,v1={RIGHT}"), Ok(0)),
        (format!("t={NOW},v1={},v1={RIGHT}", "z".repeat(64)), Ok(0)),
        (format!("t={NOW},v1=,v1={RIGHT}"), Ok(0)),
        (format!("t={NOW},junk,v1={RIGHT},"), Ok(0)),
        (format!("t={NOW},x=a=b,v1={RIGHT}"), Ok(0)),
        (format!("t={NOW},v1={RIGHT}=x"), Err(Malformed)),
        (format!("t={NOW}"), Err(Malformed)),
        (format!("t={NOW},v1=zz"), Err(Malformed)),
        (",,,=,=".to_owned(), Err(Malformed)),
        ("test".to_owned(), Err(Malformed)),
        (format!("t={NOW},v1={OLD}"), Err(Mismatch)),
        (format!("t={NOW},v1={RIGHT}{}", format!(",v1={OLD}").repeat(SIGNATURES_MAX - 1)), Ok(0)),
        (format!("t={NOW},v1={RIGHT}{}", format!(",v1={OLD}").repeat(SIGNATURES_MAX)), Err(Malformed)),
        (format!("t={NOW},v1={RIGHT},x={}", "x".repeat(HEADER_BYTES_MAX)), Err(Malformed)),
    ];
    for (header, expected) in rows {
        assert_eq!(verify(&header), expected, "{header:?}");
    }
}

#[test]
fn several_lines_are_one_list() {
    let verifier = verifier(&[CURRENT]);
    let (time, wrong, right) = (format!("t={NOW}"), format!("v1={OLD}"), format!("v1={RIGHT}"));
    let verify = |lines: &[&[u8]]| verifier.verify(lines, BODY.as_bytes(), NOW);
    assert_eq!(verify(&[]), Err(Rejection::Missing));
    assert_eq!(verify(&[b"", b" "]), Err(Rejection::Missing));
    assert_eq!(verify(&[time.as_bytes(), wrong.as_bytes(), right.as_bytes()]), Ok(0));
    assert_eq!(verify(&[time.as_bytes(), right.as_bytes(), time.as_bytes()]), Err(Rejection::Malformed));
    assert_eq!(verify(&[b"\xff\xfe", time.as_bytes(), right.as_bytes()]), Ok(0));
}

#[test]
fn the_tolerance_has_two_sides_and_comes_after_the_signature() {
    let verifier = verifier(&[CURRENT]);
    let at = |time: i64| verifier.verify(&[sign(CURRENT, time, b"{}").as_bytes()], b"{}", NOW);
    assert_eq!(at(NOW - 300), Ok(0));
    assert_eq!(at(NOW + 300), Ok(0));
    assert_eq!(at(NOW - 301), Err(Rejection::TooOld));
    assert_eq!(at(NOW + 301), Err(Rejection::InFuture));
    let forged = format!("t={},v1={OLD}", NOW - 9999);
    assert_eq!(verifier.verify(&[forged.as_bytes()], b"{}", NOW), Err(Rejection::Mismatch));
    for now in [i64::MIN, i64::MAX] {
        assert!(verifier.verify(&[sign(CURRENT, NOW, b"{}").as_bytes()], b"{}", now).is_err());
    }
}

#[test]
fn the_secret_that_matched_is_told() {
    let verifier = verifier(&["whsec_another", CURRENT, PREVIOUS]);
    let verify = |secret| verifier.verify(&[sign(secret, NOW, b"").as_bytes()], b"", NOW);
    assert_eq!(verify(CURRENT), Ok(1));
    assert_eq!(verify(PREVIOUS), Ok(2));
    assert_eq!(verify("whsec_foreign"), Err(Rejection::Mismatch));
    assert_eq!(verify(""), Err(Rejection::Mismatch));
}

#[test]
fn unusable_secrets_are_refused() {
    let refused = |secrets: &[&str]| Verifier::new(secrets, 300).expect_err("refused");
    assert_eq!(refused(&[]), Unusable::NoSecret);
    assert_eq!(refused(&[CURRENT, ""]), Unusable::EmptySecret(1));
    for blank in [" ", "whsec_a\n", "\twhsec_a", "whsec a", "whsec_\u{a0}a", "whsec_\0"] {
        assert_eq!(refused(&[blank]), Unusable::BlankInSecret(0), "{blank:?}");
    }
    assert_eq!(Verifier::new(&[CURRENT], 0).expect_err("refused"), Unusable::Tolerance);
    assert_eq!(Verifier::new(&[CURRENT], -1).expect_err("refused"), Unusable::Tolerance);
}

#[test]
fn nothing_prints_a_secret() {
    assert!(!format!("{:?}", verifier(&[CURRENT])).contains("whsec"));
    assert!(!Unusable::BlankInSecret(0).to_string().contains("whsec"));
}
