//! What was told of the conditions: once that one is there, once that it is gone, whatever happens in between.

use crate::domain::alert::Condition;
use crate::domain::event::UnixSeconds;

/// A condition is over when nobody has seen it for so long, in seconds. One that comes and goes, such as a count about
/// its threshold, is one condition, and one call.
pub const OVER_AFTER_S: i64 = 120;

/// What is told of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It is there.
    Raised,
    /// It is over.
    Cleared,
    /// Nothing: somebody wants to see whether it would arrive.
    Test,
}

impl State {
    /// The word for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Cleared => "cleared",
            Self::Test => "test",
        }
    }
}

/// A condition, and what was told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// As it is, or as it was told.
    pub condition: Condition,
    /// When it was seen first.
    pub raised_at: UnixSeconds,
    /// Somebody was told that it is there.
    pub told: bool,
    /// From when on it was not seen any more; `None`: it is there.
    pub gone_at: Option<UnixSeconds>,
}

/// What is to be told now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What of it.
    pub state: State,
    /// The name of the condition.
    pub condition: String,
    /// In words.
    pub text: String,
    /// Since when it was there, as far as is known.
    pub since: Option<UnixSeconds>,
}

/// The conditions that stand, and those that are over and not told so yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alerts(Vec<Alert>);

impl Alerts {
    /// Goes on where a former process has ended.
    #[must_use]
    pub fn held(alerts: Vec<Alert>) -> Self {
        Self(alerts)
    }

    /// All of them, in the order in which they were raised.
    #[must_use]
    pub fn all(&self) -> &[Alert] {
        &self.0
    }

    /// Takes in what is seen now. Returns the names of those that are over before anybody was told of them: nobody
    /// needs to be.
    pub fn see(&mut self, seen: Vec<Condition>, now: UnixSeconds) -> Vec<String> {
        for alert in &mut self.0 {
            let is_seen = seen.iter().any(|condition| condition.name == alert.condition.name);
            alert.gone_at = if is_seen { None } else { alert.gone_at.or(Some(now)) };
        }
        for condition in seen {
            match self.0.iter_mut().find(|alert| alert.condition.name == condition.name) {
                // What was told stays as it was told; what was not is told as it is.
                Some(alert) if alert.told => {}
                Some(alert) => alert.condition = condition,
                None => self.0.push(Alert { condition, raised_at: now, told: false, gone_at: None }),
            }
        }
        let untold = self.0.extract_if(.., |alert| !alert.told && alert.is_over(now));
        untold.map(|alert| alert.condition.name).collect()
    }

    /// What is to be told now.
    #[must_use]
    pub fn notices(&self, now: UnixSeconds) -> Vec<Notice> {
        self.0.iter().filter_map(|alert| alert.notice(now)).collect()
    }

    /// Somebody was told.
    pub fn told(&mut self, notice: &Notice) {
        match notice.state {
            State::Raised => {
                let told = self.0.iter_mut().find(|alert| alert.condition.name == notice.condition);
                told.into_iter().for_each(|alert| alert.told = true);
            }
            State::Cleared => self.0.retain(|alert| alert.condition.name != notice.condition),
            State::Test => {}
        }
    }
}

impl Alert {
    /// Gone for long enough; or nobody knows for how long, since the clock was set back.
    fn is_over(&self, now: UnixSeconds) -> bool {
        self.gone_at.is_some_and(|at| !(0..OVER_AFTER_S).contains(&(now - at)))
    }

    fn notice(&self, now: UnixSeconds) -> Option<Notice> {
        let Condition { name, text, remedy, since } = &self.condition;
        let (state, text) = match (self.told, self.gone_at) {
            (false, None) => (State::Raised, format!("{text}\n{remedy}")),
            (true, Some(_)) if self.is_over(now) => (State::Cleared, format!("over: {text}")),
            _ => return None,
        };
        Some(Notice { state, condition: name.clone(), text, since: since.or(Some(self.raised_at)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = 1_000_000;

    fn condition(name: &str, text: &str) -> Condition {
        Condition { name: name.into(), text: text.into(), remedy: "`look`".into(), since: None }
    }

    /// Plays a story. Each step: seconds after the beginning, what is seen, whether who is told hears it, and what is told.
    #[track_caller]
    fn play(story: &[(i64, &[&str], bool, &[&str])]) -> Alerts {
        let mut alerts = Alerts::default();
        for (after, seen, hears, expected) in story {
            let now = NOW + after;
            let seen = seen.iter().map(|name| condition(name, &format!("seen at {after}"))).collect();
            let mut told: Vec<String> =
                alerts.see(seen, now).into_iter().map(|name| format!("dropped {name}")).collect();
            for notice in alerts.notices(now) {
                let text = notice.text.lines().next().unwrap_or_default();
                told.push(format!("{} {}: {text}", notice.state.as_str(), notice.condition));
                if *hears {
                    alerts.told(&notice);
                }
            }
            assert_eq!(told, *expected, "after {after} s");
        }
        alerts
    }

    #[test]
    fn a_condition_is_told_once_and_once_when_it_is_over() {
        let alerts = play(&[
            (0, &["disk"], true, &["raised disk: seen at 0"]),
            (15, &["disk"], true, &[]),
            (30, &["disk", "wal"], true, &["raised wal: seen at 30"]),
            (45, &["wal"], true, &[]),
            (164, &["wal"], true, &[]),
            (165, &["wal"], true, &["cleared disk: over: seen at 0"]),
            (180, &["wal"], true, &[]),
            (300, &["disk", "wal"], true, &["raised disk: seen at 300"]),
        ]);
        assert_eq!(alerts.all().len(), 2);
    }

    #[test]
    fn who_did_not_hear_is_told_again_as_it_is_now() {
        play(&[
            (0, &["disk"], false, &["raised disk: seen at 0"]),
            (15, &["disk"], false, &["raised disk: seen at 15"]),
            (30, &["disk"], true, &["raised disk: seen at 30"]),
            (45, &["disk"], true, &[]),
            (60, &[], true, &[]),
            (180, &[], false, &["cleared disk: over: seen at 30"]),
            (195, &[], true, &["cleared disk: over: seen at 30"]),
            (210, &[], true, &[]),
        ]);
    }

    #[test]
    fn what_comes_and_goes_is_one_condition() {
        play(&[
            (0, &["wal"], true, &["raised wal: seen at 0"]),
            (60, &[], true, &[]),
            (179, &["wal"], true, &[]),
            (180, &[], true, &[]),
            (299, &[], true, &[]),
            (300, &[], false, &["cleared wal: over: seen at 0"]),
            // Nobody heard that it was over.
            (315, &["wal"], true, &[]),
        ]);
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nobody() {
        play(&[
            (0, &["disk"], true, &["raised disk: seen at 0"]),
            (15, &[], true, &[]),
            (30 - 21_600, &[], true, &["cleared disk: over: seen at 0"]),
        ]);
    }

    #[test]
    fn what_is_over_before_anybody_heard_of_it_is_dropped() {
        let alerts = play(&[
            (0, &["wal"], false, &["raised wal: seen at 0"]),
            (15, &[], true, &[]),
            (134, &[], true, &[]),
            (135, &[], true, &["dropped wal"]),
        ]);
        assert_eq!(alerts, Alerts::default());
    }

    #[test]
    fn a_notice_tells_what_helps_and_since_when() {
        let mut alerts = Alerts::default();
        alerts.see(vec![condition("disk", "full"), Condition { since: Some(7), ..condition("wal", "long") }], NOW);
        let told: Vec<_> = alerts.notices(NOW).into_iter().map(|notice| (notice.text, notice.since)).collect();
        assert_eq!(told, [("full\n`look`".into(), Some(NOW)), ("long\n`look`".into(), Some(7))]);
    }
}
