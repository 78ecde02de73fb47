//! What Stripe says about the key, the clock and the endpoint.

use std::fmt::Display;

use super::Check;
use crate::clock::UnixMillis;
use crate::domain::reconcile::{Endpoint, is_same_path};
use crate::stripe::client::{Api, ApiError, Dated, Kind};
use crate::stripe::{lists, wire};

/// What billingd reads, and what for.
const READS: &[(&str, &str)] = &[
    ("/v1/customers", "adopt"),
    ("/v1/subscriptions", "adopt, ties, reconciliation"),
    ("/v1/invoices", "long invoices, reconciliation"),
    ("/v1/invoice_payments", "refunds of newer versions"),
    ("/v1/prices", "prorations"),
    ("/v1/checkout/sessions", "what a session sold"),
    ("/v1/payment_intents", "refunds"),
    ("/v1/charges", "refunds"),
    ("/v1/refunds", "reconciliation"),
    ("/v1/disputes", "reconciliation"),
    ("/v1/events", "missed events"),
    ("/v1/webhook_endpoints", "this check"),
];

/// How far the clock may be off, in seconds: half of what signatures are allowed by default.
const CLOCK_OFF_MAX_S: i64 = 150;

/// What the config says about Stripe.
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    /// The mode of the books.
    pub livemode: bool,
    /// The paths of our webhooks.
    pub paths: Vec<&'a str>,
    /// The books are of a connected account.
    pub is_connected: bool,
}

/// What Stripe was asked. `clock` is this machine's.
#[must_use]
pub fn checks(api: &dyn Api, expected: &Expected<'_>, clock: &dyn Fn() -> UnixMillis) -> Vec<Check> {
    let mut checks = match permissions(api, clock) {
        Ok(checks) => checks,
        Err(check) => return vec![check],
    };
    checks.extend(mode(api, expected));
    checks.extend(endpoint(api, expected));
    checks
}

/// Tries each read once, and compares the clocks by the last answer.
///
/// # Errors
/// The only check, when there is no sense in asking on.
fn permissions(api: &dyn Api, clock: &dyn Fn() -> UnixMillis) -> Result<Vec<Check>, Check> {
    const WHY: &str = "what only Stripe can answer stays pending, or is not compared";
    let mut refused = Vec::new();
    let (mut unknown, mut odd, mut clocks) = (Vec::new(), Vec::new(), None);
    for (path, purpose) in READS {
        match api.get(path, &[("limit", "1")]) {
            Ok(Dated { date, .. }) => clocks = date.map(|told| compare_clocks(clock() / 1000, told)).or(clocks),
            Err(error) if error.kind == Kind::Refused && error.status == Some(403) => {
                let permission = error.told.permission.map(|name| format!(", {name}")).unwrap_or_default();
                refused.push(format!("{path} ({purpose}{permission})"));
            }
            Err(error) if error.kind == Kind::Unknown => unknown.push(*path),
            Err(error) if ends_all(&error) => return Err(unasked(&error)),
            Err(error) => odd.push(error),
        }
    }
    let mut checks: Vec<Check> = odd.iter().map(|error| cannot_tell("key", error)).collect();
    if !unknown.is_empty() {
        checks.push(Check::note("key", format!("this API does not know {}", unknown.join(", "))));
    }
    if refused.is_empty() {
        checks.push(Check::ok(
            "key",
            match READS.len() - unknown.len() - odd.len() {
                read if odd.is_empty() => format!("reads all {read} kinds of objects that are asked for"),
                read => format!("reads {read} of {} kinds of objects that are asked for", READS.len()),
            },
        ));
    } else {
        let fix = "give the restricted key read access to these, in Stripe's dashboard under Developers → API keys";
        checks.push(Check::problem("key", format!("may not read {}", refused.join(", ")), WHY, fix));
    }
    checks.extend(clocks);
    Ok(checks)
}

/// There is no key, or nobody who answers; anything else is about one question.
fn ends_all(error: &ApiError) -> bool {
    error.status == Some(401) || (error.status.is_none() && matches!(error.kind, Kind::Unavailable | Kind::Stopped))
}

/// One odd answer leaves the other checks as they are.
fn cannot_tell(check: &'static str, error: &impl Display) -> Check {
    Check::note(check, format!("cannot tell: {error}"))
}

fn unasked(error: &ApiError) -> Check {
    let fix = match error.kind {
        Kind::Refused => "check [stripe] api_key: copy it again, or make a new one",
        _ => "check the network and [stripe] api_base, then try again",
    };
    Check::problem("key", error.to_string(), "nothing can be asked of Stripe", fix)
}

fn compare_clocks(here: i64, told: i64) -> Check {
    let off = here - told;
    if off.abs() <= CLOCK_OFF_MAX_S {
        return Check::ok("clock", format!("{} s from Stripe's", off.abs()));
    }
    let direction = if off > 0 { "ahead of" } else { "behind" };
    Check::problem(
        "clock",
        format!("{} s {direction} Stripe's", off.abs()),
        "signatures are refused that are more than `tolerance` off",
        "let the machine keep the time: `timedatectl set-ntp true`",
    )
}

fn mode(api: &dyn Api, expected: &Expected<'_>) -> Option<Check> {
    let told = match lists::livemode(api) {
        Ok(mode) => mode.told?,
        Err(error) => return Some(cannot_tell("mode", &error)),
    };
    Some(if told == expected.livemode {
        Check::ok("mode", format!("the key opens {} mode, as the config says", name(told)))
    } else {
        other_mode(format!("the key opens {} mode, the config says {}", name(told), name(expected.livemode)))
    })
}

fn other_mode(seen: String) -> Check {
    Check::problem(
        "mode",
        seen,
        "what Stripe is asked would be about other objects than the events are",
        "give the key of the mode of these books, or set [stripe] livemode",
    )
}

fn name(livemode: bool) -> &'static str {
    if livemode { "live" } else { "test" }
}

fn endpoint(api: &dyn Api, expected: &Expected<'_>) -> Vec<Check> {
    if expected.is_connected {
        return vec![Check::note("endpoint", "not looked at: that of a connected account belongs to the platform")];
    }
    let all = match lists::endpoints(api) {
        Ok(all) => all,
        Err(error) => return vec![cannot_tell("endpoint", &error)],
    };
    let is_ours = |endpoint: &&Endpoint| expected.paths.iter().any(|path| is_same_path(path, &endpoint.path));
    let ours: Vec<Check> = all.iter().filter(is_ours).flat_map(|endpoint| of_endpoint(endpoint, expected)).collect();
    if !ours.is_empty() {
        return ours;
    }
    vec![Check::problem(
        "endpoint",
        format!("none of the {} at Stripe has a URL that ends in {}", all.len(), expected.paths.join(" or ")),
        "Stripe does not deliver here",
        "make one at Stripe (Workbench → Webhooks) with the types of `billingd events types`, or correct [[webhook]] path",
    )]
}

fn of_endpoint(endpoint: &Endpoint, expected: &Expected<'_>) -> Vec<Check> {
    let Endpoint { id, path, is_enabled, api_version, livemode, .. } = endpoint;
    let path = path.trim_end_matches('/');
    let mut checks = Vec::new();
    if !is_enabled {
        checks.push(Check::problem(
            "endpoint",
            format!("{id} ({path}) is disabled"),
            "Stripe does not deliver here",
            "enable it at Stripe, then `billingd reconcile` fetches what was missed",
        ));
    }
    if let Some(told) = livemode.filter(|told| *told != expected.livemode) {
        checks.push(other_mode(format!(
            "{id} delivers {} mode, the config says {}",
            name(told),
            name(expected.livemode)
        )));
    }
    let types = wire::event_types().iter().map(|(kind, _)| *kind);
    let missing: Vec<&str> = types.clone().filter(|kind| !endpoint.wants(kind)).collect();
    if !missing.is_empty() {
        checks.push(Check::problem(
            "endpoint",
            format!("{id} ({path}) does not subscribe to {}", missing.join(", ")),
            "what these tell is missed; `billingd events types` says what each is for",
            "add them to the endpoint at Stripe",
        ));
    }
    if checks.is_empty() {
        let version = api_version.as_deref().unwrap_or("the account's default");
        let count = types.count();
        checks
            .push(Check::ok("endpoint", format!("{id} ({path}) is enabled, all {count} types, API version {version}")));
    }
    checks
}
