//! Whether to ask once more, and when: as the official SDKs do.

use std::time::Duration;

use super::answer::Missed;
use super::error::Kind;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt, after `attempts` of them; none: do not ask again. Any number is a good
/// `chance`.
pub(super) fn delay(missed: &Missed, attempts: u32, chance: u32) -> Option<Duration> {
    let worth = missed.hints.should_retry.unwrap_or_else(|| is_worth_it(missed));
    let asked_for = missed.hints.retry_after.unwrap_or_default();
    worth.then(|| back_off(attempts, chance).max(asked_for))
}

fn is_worth_it(missed: &Missed) -> bool {
    matches!(missed.error.kind, Kind::Limited | Kind::Unavailable)
}

/// Doubles from half a second up to 5 s, and takes off up to a half by chance, so that those who failed together do
/// not come back together; never less than the first.
fn back_off(attempts: u32, chance: u32) -> Duration {
    let doubled = FIRST.saturating_mul(1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX)).min(LONGEST);
    let permille = 500 + chance % 501;
    (doubled * permille / 1_000).max(FIRST)
}

#[cfg(test)]
mod tests {
    use ureq::http::HeaderMap;

    use super::super::answer::Answer;
    use super::super::error::ApiError;
    use super::*;

    fn missed(status: u16, code: &str, headers: &[(&'static str, &'static str)]) -> Missed {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let body = format!(r#"{{"error":{{"type":"a_type","code":"{code}","message":"m"}}}}"#);
        Answer::new(status, &headers, body.into_bytes()).read("/v1/events").unwrap_err()
    }

    #[test]
    fn what_is_asked_again() {
        let yes = &[("stripe-should-retry", "true")][..];
        let no = &[("stripe-should-retry", "false")][..];
        let odd = &[("stripe-should-retry", "perhaps")][..];
        for (status, code, headers, is_asked_again) in [
            (204, "", &[][..], false),
            (302, "", &[], false),
            (400, "parameter_unknown", &[], false),
            (400, "rate_limit", &[], true),
            (400, "lock_timeout", &[], true),
            (400, "parameter_unknown", yes, true),
            (401, "", &[], false),
            (402, "card_declined", &[], false),
            (403, "", &[], false),
            (404, "resource_missing", &[], false),
            (409, "idempotency_key_in_use", &[], true),
            (409, "idempotency_key_in_use", no, false),
            (429, "rate_limit", &[], true),
            (429, "lock_timeout", &[], true),
            (429, "rate_limit", no, false),
            (500, "", &[], true),
            (500, "", no, false),
            (500, "", odd, true),
            (503, "", &[], true),
        ] {
            let delay = delay(&missed(status, code, headers), 1, 0);
            assert_eq!(delay.is_some(), is_asked_again, "{status} {code} {headers:?}");
        }
        for (kind, is_asked_again) in [(Kind::Unavailable, true), (Kind::Garbage, false), (Kind::Stopped, false)] {
            let without_answer = ApiError::new(kind, "/v1/events", "no answer").into();
            assert_eq!(delay(&without_answer, 1, 0).is_some(), is_asked_again, "{kind:?}");
        }
    }

    #[test]
    fn the_delay_doubles_up_to_five_seconds_and_loses_up_to_a_half() {
        for (attempts, shortest, longest) in [
            (1, 500, 500),
            (2, 500, 1_000),
            (3, 1_000, 2_000),
            (4, 2_000, 4_000),
            (5, 2_500, 5_000),
            (40, 2_500, 5_000),
        ] {
            assert_eq!(back_off(attempts, 0), Duration::from_millis(shortest), "{attempts}");
            assert_eq!(back_off(attempts, 500), Duration::from_millis(longest), "{attempts}");
        }
        assert_eq!(back_off(3, 250), Duration::from_millis(1_500));
        assert!(back_off(3, u32::MAX) <= Duration::from_secs(2));
    }

    #[test]
    fn stripe_may_ask_for_a_longer_wait_up_to_a_minute() {
        for (text, delay_ms) in
            [("7", 7_000), ("60", 60_000), ("61", 500), ("0", 500), ("-1", 500), ("Wed, 21 Oct 2026", 500)]
        {
            let missed = missed(429, "rate_limit", &[("retry-after", text)]);
            assert_eq!(delay(&missed, 1, 0), Some(Duration::from_millis(delay_ms)), "{text}");
        }
    }
}
