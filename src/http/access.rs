//! Who may use the private listener: by a token, or by the session that a browser was given for one.
//!
//! Nothing is kept about sessions. A cookie says whose it is and until when, under a MAC whose key is the token: a new
//! token ends all sessions of the former one. The value that forms carry against forged requests is a MAC of the cookie.

use std::net::IpAddr;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue};
use hmac::digest::{CtOutput, InvalidLength};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::config::{Scope, Secret};

type HmacSha256 = Hmac<Sha256>;

/// How long a browser stays logged in.
pub(super) const SESSION_S: i64 = 12 * 60 * 60;

const SESSION_COOKIE: &str = "billingd_session";

/// Under these names a browser asks its own machine, whatever an address elsewhere may resolve to.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A token of the config.
pub struct Token {
    name: String,
    scope: Scope,
    digest: CtOutput<Sha256>,
    /// Has read the token as its key already.
    keyed: HmacSha256,
}

impl Token {
    /// The token called `name`.
    ///
    /// # Errors
    /// When the secret cannot be a key.
    pub fn new(name: &str, scope: Scope, secret: &Secret) -> Result<Self, InvalidLength> {
        let bytes = secret.expose().as_bytes();
        Ok(Self { name: name.to_owned(), scope, digest: digest(bytes), keyed: HmacSha256::new_from_slice(bytes)? })
    }

    fn mac(&self, purpose: &str, text: &str) -> HmacSha256 {
        // The purposes are words without a point, so that no MAC can be taken for one of another purpose.
        self.keyed.clone().chain_update(purpose).chain_update(".").chain_update(text)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("name", &self.name).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Whom the private listener serves.
#[derive(Debug)]
pub struct Access {
    /// All tokens.
    pub tokens: Vec<Token>,
    /// Names, besides the loopback ones, under which it is reached.
    pub hosts: Vec<String>,
    /// Proxies whose `X-Forwarded-Proto` counts.
    pub trusted_proxies: Vec<IpAddr>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Visitor {
    /// The name of the token.
    pub(super) name: String,
    pub(super) scope: Scope,
    /// What a form of this session must carry; none for who shows a token.
    pub(super) csrf: Option<String>,
}

/// Why nobody knows who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stranger {
    /// Neither a token nor a session.
    Nothing,
    /// A token that is none of ours.
    Token,
    /// A session that has ended or was made up.
    Session,
}

impl Stranger {
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Nothing => "token_missing",
            Self::Token => "token_unknown",
            Self::Session => "session_invalid",
        }
    }
}

impl Access {
    /// Who sends these headers. A token counts before a cookie, also if it is none of ours.
    pub(super) fn visitor(&self, headers: &HeaderMap, now_s: i64) -> Result<Visitor, Stranger> {
        let mut authorizations = headers.get_all(AUTHORIZATION);
        if let Some(first) = authorizations.next() {
            let alone = authorizations.next().is_none();
            let token = bearer(first).filter(|_| alone).and_then(|text| self.token(text)).ok_or(Stranger::Token)?;
            return Ok(Visitor { name: token.name.clone(), scope: token.scope, csrf: None });
        }
        let mut stranger = Stranger::Nothing;
        for session in sessions(headers) {
            match self.session(session, now_s) {
                Some(visitor) => return Ok(visitor),
                None => stranger = Stranger::Session,
            }
        }
        Err(stranger)
    }

    /// The token that `text` is. All are compared, each in constant time.
    pub(super) fn token(&self, text: &str) -> Option<&Token> {
        let given = digest(text.as_bytes());
        self.tokens.iter().fold(None, |found, token| if token.digest == given { Some(token) } else { found })
    }

    /// Whether this listener is meant, and not one that a stranger's name was made to point at (DNS rebinding).
    pub(super) fn is_reached_by_name(&self, request: &ServiceRequest) -> bool {
        let mut hosts = request.headers().get_all(HOST);
        let only = hosts.next().filter(|_| hosts.next().is_none()).and_then(|host| host.to_str().ok());
        let is_ours = |host: &str| self.is_ours(host);
        only.is_some_and(is_ours) && request.uri().authority().is_none_or(|authority| is_ours(authority.as_str()))
    }

    /// Whether the browser's connection is encrypted, as far as a proxy that is trusted tells.
    pub(super) fn is_https(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> bool {
        peer.is_some_and(|peer| self.trusted_proxies.contains(&peer.to_canonical()))
            && headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
    }

    fn is_ours(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        LOOPBACK_NAMES
            .into_iter()
            .chain(self.hosts.iter().map(String::as_str))
            .any(|ours| ours.eq_ignore_ascii_case(name))
    }

    fn session(&self, cookie: &str, now_s: i64) -> Option<Visitor> {
        let (claims, mac) = cookie.rsplit_once('.')?;
        let (name, expiry) = claims.split_once('.')?;
        let name = String::from_utf8(base16ct::lower::decode_vec(name).ok()?).ok()?;
        let token = self.tokens.iter().find(|token| token.name == name && token.scope == Scope::Operator)?;
        token.mac("session", claims).verify_slice(&base16ct::lower::decode_vec(mac).ok()?).ok()?;
        let lives = expiry.parse::<i64>().is_ok_and(|expiry| now_s < expiry);
        lives.then(|| Visitor { name, scope: token.scope, csrf: Some(hex(token.mac("csrf", cookie))) })
    }
}

/// The header that starts a session of an operator.
pub(super) fn cookie(token: &Token, now_s: i64, secure: bool) -> String {
    let claims = format!("{}.{}", base16ct::lower::encode_string(token.name.as_bytes()), now_s + SESSION_S);
    set_cookie(&format!("{claims}.{}", hex(token.mac("session", &claims))), SESSION_S, secure)
}

/// The header that ends it.
pub(super) fn no_cookie(secure: bool) -> String {
    set_cookie("", 0, secure)
}

/// Whether a token opens the pages for people.
pub(super) fn is_operator(token: &Token) -> bool {
    token.scope == Scope::Operator
}

/// Compares what a form carries with what it must carry, in constant time.
pub(super) fn same(given: &str, expected: &str) -> bool {
    digest(given.as_bytes()) == digest(expected.as_bytes())
}

fn set_cookie(value: &str, seconds: i64, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{SESSION_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

fn digest(bytes: &[u8]) -> CtOutput<Sha256> {
    CtOutput::new(Sha256::digest(bytes))
}

fn hex(mac: HmacSha256) -> String {
    base16ct::lower::encode_string(&mac.finalize().into_bytes())
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn sessions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(COOKIE)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(SESSION_COOKIE)?.strip_prefix('='))
}

/// The name in `name`, `name:port`, `[v6]` or `[v6]:port`.
fn name_of(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?,
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(name)
}
