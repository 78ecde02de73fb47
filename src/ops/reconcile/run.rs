//! What the parts of a run share: what they have found, what they looked at, and how far they came.

use std::collections::{HashMap, HashSet};

use crate::domain::event::UnixSeconds;
use crate::domain::reconcile::{Difference, Kind, OpenEvent};
use crate::ops::account_of_key;
use crate::store::runs::Known;
use crate::store::{StoreError, compare, findings};
use crate::stripe::ask::NoAnswer;
use crate::stripe::client::Kind as ApiKind;

use super::{Counts, Options, Place, Rules};

/// An event that was told to Stripe's list late is fetched by the next run: so far back it looks once more, in seconds.
const OVERLAP_S: i64 = 3_600;

/// Stripe keeps events for so long, in seconds.
pub(super) const REACH_S: i64 = 30 * 86_400;

/// How many single objects one part asks for at most: each is a request of its own.
pub(super) const LOOKUPS_MAX: usize = 1_000;

/// So many things that cannot be read are told; more would tell nothing else.
const TOLD_MAX: usize = 20;

/// Why a part was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The database did not do its part: the run ends.
    Store(StoreError),
    /// Stripe did not answer, or not so that it could be used.
    Stripe(NoAnswer),
    /// The key opens the other mode.
    OtherMode,
    /// The key opens another account.
    OtherAccount,
    /// More single objects would have to be asked for than [`LOOKUPS_MAX`].
    TooMany(usize),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<NoAnswer> for Trouble {
    fn from(error: NoAnswer) -> Self {
        Self::Stripe(error)
    }
}

/// Whether a run is complete without a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// It is not.
    Always,
    /// It is, if the API knows no such thing or the key may not read it.
    IfTold,
}

/// A run.
pub(super) struct Run<'a> {
    pub(super) place: Place<'a>,
    pub(super) rules: &'a Rules,
    pub(super) options: Options,
    pub(super) known: Known,
    /// When it began.
    pub(super) started: UnixSeconds,
    /// From when on objects are looked at.
    pub(super) since: UnixSeconds,
    /// What differs, as far as is known.
    pub(super) differences: Vec<Difference>,
    /// What events of the last minutes are about.
    pub(super) young: HashSet<String>,
    /// Our events that are not completed, by what they are about.
    pub(super) open: HashMap<String, OpenEvent>,
    pub(super) counts: Counts,
    pub(super) cut_short: Vec<String>,
    pub(super) cannot_tell: Vec<String>,
    /// At least one part was done.
    pub(super) did_something: bool,
    /// No further part makes sense.
    is_over: bool,
    /// Nothing shows that the key opens another mode or account.
    pub(super) key_fits: bool,
    /// When the oldest event happened that could not be read, if there was one.
    pub(super) unread_since: Option<UnixSeconds>,
    /// The findings that were not resolved before, by subject; true: what they are about was looked at.
    pub(super) before: HashMap<String, Vec<(Kind, bool)>>,
}

impl<'a> Run<'a> {
    pub(super) fn begin(
        place: Place<'a>,
        rules: &'a Rules,
        options: Options,
        known: Known,
        started: UnixSeconds,
    ) -> Result<Self, StoreError> {
        let needed = (started - rules.lookback_s).min(known.until.map_or(started, |until| until - OVERLAP_S));
        let mut before: HashMap<String, Vec<(Kind, bool)>> = HashMap::new();
        for (kind, subject) in place.reader.read(findings::unresolved)? {
            if let Some(kind) = Kind::parse(&kind) {
                before.entry(subject).or_default().push((kind, false));
            }
        }
        Ok(Self {
            place,
            rules,
            options,
            known,
            started,
            since: options.since_s.map_or(needed, |since_s| started - since_s),
            differences: Vec::new(),
            young: HashSet::new(),
            open: HashMap::new(),
            counts: Counts::default(),
            cut_short: Vec::new(),
            cannot_tell: Vec::new(),
            did_something: false,
            is_over: false,
            key_fits: true,
            unread_since: None,
            before,
        })
    }

    /// Looks which of our events are not completed.
    pub(super) fn knows_open_events(&mut self) -> Result<(), StoreError> {
        self.open = self.place.reader.read(compare::open_events)?;
        Ok(())
    }

    /// Does one part; `None`: it was not done, or not to its end, which is noted.
    pub(super) fn part<T>(
        &mut self,
        name: &str,
        need: Need,
        work: impl FnOnce(&mut Self) -> Result<T, Trouble>,
    ) -> Result<Option<T>, StoreError> {
        if self.is_over {
            return Ok(None);
        }
        match work(self) {
            Ok(done) => {
                self.did_something |= need == Need::Always;
                return Ok(Some(done));
            }
            Err(Trouble::Store(error)) => return Err(error),
            Err(Trouble::Stripe(error)) if need == Need::IfTold && is_beyond(&error) => {
                self.cannot_tell.push(format!("{name}: {error}"));
            }
            Err(Trouble::Stripe(error)) => {
                self.is_over = ends_all(&error);
                self.cut_short.push(format!("{name}: {error}"));
            }
            Err(Trouble::OtherMode) => {
                (self.is_over, self.key_fits) = (true, false);
                let (books, key) = if self.rules.policy.livemode { ("live", "test") } else { ("test", "live") };
                self.cut_short.push(format!(
                    "{name}: stripe.api_key opens the {key} mode, and these books are of the {books} mode; give the \
                     key of that mode"
                ));
            }
            Err(Trouble::OtherAccount) => {
                (self.is_over, self.key_fits) = (true, false);
                self.cut_short.push(format!("{name}: {}", account_of_key::ANOTHER));
            }
            Err(Trouble::TooMany(left)) => {
                self.cut_short.push(format!(
                    "{name}: {left} of ours that are not in Stripe's list were not asked for by their ids, to spare \
                     its limits; is stripe.api_key of the account that these books are of?"
                ));
            }
        }
        Ok(None)
    }

    /// What of a page can be read; the rest is noted.
    pub(super) fn readable_items<T>(&mut self, page: Vec<Result<T, NoAnswer>>) -> Vec<T> {
        let mut items = Vec::with_capacity(page.len());
        for item in page {
            match item {
                Ok(item) => items.push(item),
                Err(error) => self.note(error.to_string()),
            }
        }
        items
    }

    /// One object; `None`: it cannot be read, which is noted, and the others go on.
    pub(super) fn readable<T>(&mut self, told: Result<T, impl Into<Trouble>>) -> Result<Option<T>, Trouble> {
        match told.map_err(Into::into) {
            Ok(told) => Ok(Some(told)),
            Err(Trouble::Stripe(error @ NoAnswer::Unreadable { .. })) => {
                self.note(error.to_string());
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// An event cannot be read: that all events were seen is true only until then.
    pub(super) fn lacks_event(&mut self, problem: String, created: Option<UnixSeconds>) {
        let created = created.unwrap_or(self.since);
        self.unread_since = Some(self.unread_since.map_or(created, |oldest| oldest.min(created)));
        self.note(problem);
    }

    /// Notes that something could not be read.
    pub(super) fn note(&mut self, problem: String) {
        if self.cut_short.len() < TOLD_MAX && !self.cut_short.contains(&problem) {
            self.cut_short.push(problem);
        }
    }

    /// The objects of a page must be of the mode of these books.
    pub(super) fn check_mode(&self, told: Option<bool>) -> Result<(), Trouble> {
        match told {
            Some(livemode) if livemode != self.rules.policy.livemode => Err(Trouble::OtherMode),
            _ => Ok(()),
        }
    }

    /// A subject was compared: whatever findings of these kinds it has are told again, or gone.
    pub(super) fn looked_at(&mut self, subject: &str, kinds: &[Kind]) {
        let held = self.before.get_mut(subject).into_iter().flatten();
        held.filter(|(kind, _)| kinds.contains(kind)).for_each(|(_, looked)| *looked = true);
    }

    /// All that could be found of a kind was compared.
    pub(super) fn looked_at_all(&mut self, kind: Kind) {
        let held = self.before.values_mut().flatten();
        held.filter(|(one, _)| *one == kind).for_each(|(_, looked)| *looked = true);
    }

    /// The subjects that have findings of these kinds and were not looked at.
    pub(super) fn not_looked_at(&self, kinds: &[Kind]) -> Vec<String> {
        let waits = |held: &Vec<(Kind, bool)>| held.iter().any(|(kind, looked)| kinds.contains(kind) && !looked);
        let mut subjects: Vec<String> =
            self.before.iter().filter(|(_, held)| waits(held)).map(|(subject, _)| subject.clone()).collect();
        subjects.sort();
        subjects
    }

    /// The changes of the last minutes, from then on.
    pub(super) fn young_since(&self) -> UnixSeconds {
        self.started - self.rules.grace_s
    }
}

/// What is asked for by its id: what is absent from the list, and what findings are about, as far as the limit leaves
/// room for it; and how many of the absent are too many.
pub(super) fn look_ups<T: Ord>(mut absent: Vec<T>, of_findings: impl Iterator<Item = T>) -> (Vec<T>, usize) {
    absent.sort();
    absent.dedup();
    let left = absent.len().saturating_sub(LOOKUPS_MAX);
    absent.truncate(LOOKUPS_MAX);
    let room = LOOKUPS_MAX - absent.len();
    let more: Vec<T> = of_findings.filter(|id| absent.binary_search(id).is_err()).take(room).collect();
    absent.extend(more);
    (absent, left)
}

/// The API has no such thing, or the key may not read it.
fn is_beyond(error: &NoAnswer) -> bool {
    match error {
        NoAnswer::Api(error) => match error.kind {
            ApiKind::Unknown | ApiKind::Rejected => true,
            ApiKind::Refused => error.status == Some(403),
            _ => false,
        },
        NoAnswer::Unreadable { .. } => false,
    }
}

/// Whatever else is asked will not be answered either.
fn ends_all(error: &NoAnswer) -> bool {
    match error {
        NoAnswer::Api(error) => {
            error.kind == ApiKind::Stopped || (error.kind == ApiKind::Refused && error.status == Some(401))
        }
        NoAnswer::Unreadable { .. } => false,
    }
}
