//! What would resolve what an event waits for, in words for people.

/// What a need is about, and what brings it, by the kind before its first colon.
#[must_use]
pub fn of_need(need: &str) -> &'static str {
    match need.split(':').next().unwrap_or_default() {
        "payment" => {
            "the event that ties this payment to an invoice or checkout: invoice_payment.paid, a charge or the invoice"
        }
        "grant" => "the decision about this grant: replay or dismiss the event that announces it",
        "price" => "an event that tells what the price costs; or set unit_amount in its [[price]], restart and replay",
        "lines" => {
            "the other lines of the invoice, which only Stripe's API tells; or settle it with `billingd accounts adjust` and dismiss it"
        }
        "session" => {
            "what the session sold, which only Stripe's API tells; or settle it with `billingd accounts adjust` and dismiss it"
        }
        "subscription" => {
            "the other items of the subscription, which only Stripe's API tells; a later event with all items applies too"
        }
        "object" => "the object of the thin event, which only Stripe's API tells; its snapshot event does the same",
        "rate" => "a rate of exchange for the day; or leave [credits] unit empty, restart and replay",
        _ => "replay it, or dismiss it if it is not ours",
    }
}

/// The same for all needs of an event, as they stand in its row.
pub fn of_needs(needs: &str) -> impl Iterator<Item = (&str, &'static str)> {
    needs.split_whitespace().map(|need| (need, of_need(need)))
}
