//! Samples are written by one module and read by another; here they meet.

use billingd::domain::event::Body;
use billingd::samples::{self, Sample, Shape};
use billingd::stripe::wire;

const NOW: i64 = 1_796_054_400;

#[test]
fn every_sample_is_read_in_both_shapes() {
    for shape in [Shape::Current, Shape::Older] {
        for (number, kind) in (1..).zip(samples::types()) {
            let body = Sample { shape, ..Sample::new(number, NOW) }.body(kind).unwrap();
            let event = wire::read(&body, "account_id").unwrap();
            assert_eq!((event.kind.as_str(), event.created, event.livemode), (kind, NOW, false));
            assert!(!matches!(event.body, Body::Unreadable(_) | Body::Other), "{kind}: {:?}", event.body);
        }
    }
}

#[test]
fn every_type_with_a_sample_is_one_that_billingd_acts_on() {
    let acted_on: Vec<&str> = wire::event_types().iter().map(|(kind, _)| *kind).collect();
    for kind in samples::types() {
        assert!(acted_on.contains(&kind), "{kind}");
    }
}
