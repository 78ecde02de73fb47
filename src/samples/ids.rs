//! Ids that look like Stripe's: a prefix, the time in base 62, and a tail that looks random.
//!
//! For one seed, prefix and time, two numbers never give one id: the tail is a permutation of the number.

use super::Sample;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Base-62 digits of the time. Enough until the year 3769.
const TIME_DIGITS: u32 = 6;
/// Base-62 digits of the tail.
const TAIL_DIGITS: u32 = 8;
/// How many tails there are.
const TAILS: u64 = 62_u64.pow(TAIL_DIGITS);
/// Odd and no multiple of 31, so multiplying by it permutes the tails.
const STRIDE: u64 = 97_345_678_901_233;

/// The part that all ids of one Stripe account have in common.
const ACCOUNT: &str = "LqT4dXK3v5";

impl Sample {
    /// `evt_1…`
    #[must_use]
    pub fn event_id(&self) -> String {
        self.id("evt_1", self.now, self.event)
    }

    /// `cus_…`
    #[must_use]
    pub fn customer_id(&self) -> String {
        format!("cus_{}{}", digits(self.subscribed_at, TIME_DIGITS), self.tail("cus_", self.customer))
    }

    /// `sub_1…`
    #[must_use]
    pub fn subscription_id(&self) -> String {
        self.id("sub_1", self.subscribed_at, self.customer)
    }

    /// `si_…`
    #[must_use]
    pub fn subscription_item_id(&self) -> String {
        format!("si_{}{}", digits(self.subscribed_at, TIME_DIGITS), self.tail("si_", self.customer))
    }

    /// `in_1…`
    #[must_use]
    pub fn invoice_id(&self) -> String {
        self.of_purchase("in_1")
    }

    /// `pi_3…`
    #[must_use]
    pub fn payment_intent_id(&self) -> String {
        self.of_purchase("pi_3")
    }

    /// `ch_3…`
    #[must_use]
    pub fn charge_id(&self) -> String {
        self.of_purchase("ch_3")
    }

    /// `re_3…`
    #[must_use]
    pub fn refund_id(&self) -> String {
        self.of_purchase("re_3")
    }

    /// `du_1…`
    #[must_use]
    pub fn dispute_id(&self) -> String {
        self.of_purchase("du_1")
    }

    /// `cs_test_…`
    #[must_use]
    pub fn checkout_id(&self) -> String {
        let mode = if self.livemode { "live" } else { "test" };
        format!("cs_{mode}_a1{}{}", self.of_purchase(""), self.id_like("", 4, self.purchase))
    }

    /// An id of the purchase.
    pub(super) fn of_purchase(&self, prefix: &str) -> String {
        self.id(prefix, self.purchased_at, self.purchase)
    }

    fn id(&self, prefix: &str, at: i64, number: u64) -> String {
        format!("{prefix}{}{ACCOUNT}{}", digits(at, TIME_DIGITS), self.tail(prefix, number))
    }

    /// A text of eight digits and `more` that looks random.
    pub(super) fn id_like(&self, prefix: &str, more: u32, number: u64) -> String {
        let rest = i64::try_from(scramble(self.seed ^ hash(prefix) ^ scramble(number)) >> 1).unwrap_or_default();
        format!("{prefix}{}{}", self.tail(prefix, number), digits(rest, more))
    }

    /// The text of a random UUID.
    pub(super) fn uuid(&self, number: u64) -> String {
        let (high, low) = (scramble(self.seed ^ number), scramble(self.seed.rotate_left(32) ^ scramble(number)));
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low >> 52,
            low & 0xffff_ffff_ffff
        )
    }

    /// Eight digits that look random.
    pub(super) fn tail(&self, prefix: &str, number: u64) -> String {
        let permuted = u128::from(number % TAILS) * u128::from(STRIDE) + u128::from(scramble(self.seed ^ hash(prefix)));
        let tail = u64::try_from(permuted % u128::from(TAILS)).unwrap_or_default();
        digits(i64::try_from(tail).unwrap_or_default(), TAIL_DIGITS)
    }
}

/// The last `width` base-62 digits of a number; their order as text is that of the numbers.
fn digits(number: i64, width: u32) -> String {
    let digit = |place: u32| {
        let index = (number / 62_i64.pow(place)).rem_euclid(62);
        usize::try_from(index).ok().and_then(|index| DIGITS.get(index)).map_or('0', |digit| char::from(*digit))
    };
    (0..width).rev().map(digit).collect()
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finalizer of SplitMix64.
fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
