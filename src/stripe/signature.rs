//! Stripe's webhook signature.
//!
//! `Stripe-Signature: t=<seconds>,v1=<hex>,…` signs the text of `t`, a point and the raw body with HMAC-SHA256; the
//! key is the whole secret, `whsec_` included. The reading is the strictest that accepts everything that Stripe
//! sends. The signature is compared before the time, so "too old" always means authentic but late.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

type HmacSha256 = Hmac<Sha256>;

/// The most bytes that all header lines together may have. Stripe's own have about 100, or 250 during a rotation.
pub const HEADER_BYTES_MAX: usize = 4096;
/// The most `v1` signatures that are compared. Stripe sends one for each active secret.
pub const SIGNATURES_MAX: usize = 16;

const TIMESTAMP_DIGITS_MAX: usize = 12;
const SIGNATURE_BYTES: usize = 32;

/// Checks signatures against every configured secret.
pub struct Verifier {
    /// One HMAC state per secret that has read the key already.
    keyed: Vec<HmacSha256>,
    tolerance: i64,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("secrets", &self.keyed.len())
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}

/// Secrets or a tolerance that nothing can be verified with. Names a secret by its position, never by its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The list of secrets is empty.
    #[error("there is no signing secret: give at least one")]
    NoSecret,
    /// A secret is the empty text.
    #[error("signing secret {} is empty", .0 + 1)]
    EmptySecret(usize),
    /// A secret contains white space or a control character.
    #[error("signing secret {} contains white space or a control character: copy it again", .0 + 1)]
    BlankInSecret(usize),
    /// The tolerance is zero or negative.
    #[error("the tolerance must be at least one second")]
    Tolerance,
}

/// Why a request was not accepted as Stripe's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// No header, or an empty one.
    Missing,
    /// No usable `t` or `v1`, two `t`, or too much of anything.
    Malformed,
    /// No secret made any of the signatures.
    Mismatch,
    /// Authentic, but signed longer ago than the tolerance.
    TooOld,
    /// Authentic, but signed further in the future than the tolerance.
    InFuture,
}

impl Rejection {
    /// The code in the answer.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "signature_missing",
            Self::Malformed => "signature_malformed",
            Self::Mismatch => "signature_mismatch",
            Self::TooOld => "timestamp_too_old",
            Self::InFuture => "timestamp_in_future",
        }
    }

    /// What is wrong, and what to do about it.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Missing => {
                "no Stripe-Signature header: only Stripe may call this address; if it does, let the proxy pass the header on"
            }
            Self::Malformed => {
                "the Stripe-Signature header has no usable t or v1: let the proxy pass it on as Stripe wrote it"
            }
            Self::Mismatch => {
                "no configured secret made this signature: compare the signing secret with the endpoint's at Stripe, and \
                 let the proxy pass the body on byte for byte"
            }
            Self::TooOld => {
                "the signature is authentic but older than the tolerance: compare this machine's clock, or look for a \
                 replayed or delayed request"
            }
            Self::InFuture => "the signature is authentic but from the future: set this machine's clock",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Rejection {}

impl Verifier {
    /// Takes all secrets that may have signed, and how many seconds a signature's time may differ from ours.
    ///
    /// # Errors
    /// [`Unusable`] for no secret, an empty one, one with white space, or a tolerance below one second.
    pub fn new<S: AsRef<str>>(secrets: &[S], tolerance: i64) -> Result<Self, Unusable> {
        if secrets.is_empty() {
            return Err(Unusable::NoSecret);
        }
        if tolerance < 1 {
            return Err(Unusable::Tolerance);
        }
        let keyed = secrets.iter().enumerate().map(|(index, secret)| key(index, secret.as_ref()));
        Ok(Self { keyed: keyed.collect::<Result<_, _>>()?, tolerance })
    }

    /// Takes all `Stripe-Signature` lines, the raw body and the time, and tells which secret made the signature.
    ///
    /// # Errors
    /// [`Rejection`]; nothing of the body has been looked at but its bytes.
    pub fn verify(&self, headers: &[&[u8]], body: &[u8], now: i64) -> Result<usize, Rejection> {
        let signed = Signed::read(headers)?;
        let secret = self.matching(&signed, body).ok_or(Rejection::Mismatch)?;
        let age = now.saturating_sub(signed.seconds);
        if age > self.tolerance {
            return Err(Rejection::TooOld);
        }
        if age < -self.tolerance {
            return Err(Rejection::InFuture);
        }
        Ok(secret)
    }

    /// Every secret is tried with every signature, so that the time taken does not tell which one matched.
    fn matching(&self, signed: &Signed<'_>, body: &[u8]) -> Option<usize> {
        let mut found = None;
        for (index, keyed) in self.keyed.iter().enumerate() {
            let computed = keyed.clone().chain_update(signed.timestamp).chain_update(b".").chain_update(body);
            for signature in &signed.signatures {
                let matches = computed.clone().verify_slice(signature).is_ok();
                found = found.or(matches.then_some(index));
            }
        }
        found
    }
}

/// The value of a `Stripe-Signature` header for a body, as Stripe would make it.
#[must_use]
pub fn sign(secret: &str, timestamp: i64, body: &[u8]) -> String {
    let text = timestamp.to_string();
    let signature = keyed(secret).map(|mac| {
        let signed = mac.chain_update(&text).chain_update(b".").chain_update(body);
        base16ct::lower::encode_string(&signed.finalize().into_bytes())
    });
    format!("t={text},v1={}", signature.unwrap_or_default())
}

fn key(index: usize, secret: &str) -> Result<HmacSha256, Unusable> {
    if secret.is_empty() {
        return Err(Unusable::EmptySecret(index));
    }
    if secret.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Err(Unusable::BlankInSecret(index));
    }
    keyed(secret).ok_or(Unusable::EmptySecret(index))
}

/// HMAC takes keys of any length, so there always is one.
fn keyed(secret: &str) -> Option<HmacSha256> {
    HmacSha256::new_from_slice(secret.as_bytes()).ok()
}

/// What the header claims.
struct Signed<'a> {
    /// `t` as received: its very text is signed.
    timestamp: &'a [u8],
    seconds: i64,
    signatures: Vec<[u8; SIGNATURE_BYTES]>,
}

impl<'a> Signed<'a> {
    fn read(headers: &[&'a [u8]]) -> Result<Self, Rejection> {
        if headers.iter().all(|line| trim(line).is_empty()) {
            return Err(Rejection::Missing);
        }
        if headers.iter().map(|line| line.len() + 1).sum::<usize>() > HEADER_BYTES_MAX {
            return Err(Rejection::Malformed);
        }
        let mut timestamp = None;
        let mut signatures = Vec::new();
        for (name, value) in headers.iter().flat_map(|line| line.split(|byte| *byte == b',')).filter_map(element) {
            match name {
                b"t" if timestamp.is_some() => return Err(Rejection::Malformed),
                b"t" => timestamp = Some(value),
                b"v1" => signatures.extend(signature(value)),
                _ => {}
            }
        }
        let timestamp = timestamp.ok_or(Rejection::Malformed)?;
        let seconds = seconds(timestamp).ok_or(Rejection::Malformed)?;
        if signatures.is_empty() || signatures.len() > SIGNATURES_MAX {
            return Err(Rejection::Malformed);
        }
        Ok(Self { timestamp, seconds, signatures })
    }
}

/// Splits at the first `=`; nothing else is trimmed but the element as a whole.
fn element(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = trim(text);
    let equals = text.iter().position(|byte| *byte == b'=')?;
    Some((text.get(..equals)?, text.get(equals + 1..)?))
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

fn seconds(text: &[u8]) -> Option<i64> {
    let digits = (1..=TIMESTAMP_DIGITS_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0, |seconds, digit| seconds * 10 + i64::from(digit - b'0')))
}

fn signature(text: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    let mut bytes = [0; SIGNATURE_BYTES];
    let decoded = base16ct::lower::decode(text, &mut bytes).ok()?.len();
    (decoded == SIGNATURE_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests;
