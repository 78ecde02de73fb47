use std::collections::HashMap;
use std::sync::Mutex;

use super::super::Dated;
use super::*;

/// Answers by the cursor, and notes the queries.
struct Script {
    by_cursor: HashMap<&'static str, &'static str>,
    asked: Mutex<Vec<String>>,
}

impl Script {
    fn new(pages: &[(&'static str, &'static str)]) -> Self {
        Self { by_cursor: pages.iter().copied().collect(), asked: Mutex::default() }
    }
}

impl Api for Script {
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Dated<Vec<u8>>, ApiError> {
        let text: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.asked.lock().unwrap().push(text.join("&"));
        let cursor = query.iter().find(|(name, _)| *name == "starting_after").map_or("", |(_, id)| *id);
        let body = self.by_cursor.get(cursor).ok_or_else(|| ApiError::new(Kind::Unavailable, path, "gone"))?;
        Ok(Dated { told: body.as_bytes().to_vec(), date: None })
    }
}

const FIRST: &str = r#"{"object":"list","has_more":true,"data":[{"id":"a"},{"id":"b"}]}"#;
const LAST: &str = r#"{"object":"list","has_more":false,"data":[{"id":"c"}]}"#;

fn ids(items: impl Iterator<Item = Result<Box<RawValue>, ApiError>>) -> Vec<String> {
    // None has more: one that does not end would never tell.
    items.take(9).map(|item| item.map_or_else(|error| error.reason.to_owned(), |item| id(&item).unwrap())).collect()
}

#[test]
fn each_page_begins_after_the_last_object_of_the_one_before() {
    let api = Script::new(&[("", FIRST), ("b", LAST)]);
    assert_eq!(ids(Pages::new(&api, "/v1/events", &[("created[gte]", "7")]).items()), ["a", "b", "c"]);
    assert_eq!(*api.asked.lock().unwrap(), ["created[gte]=7&limit=100", "created[gte]=7&limit=100&starting_after=b"]);
}

#[test]
fn a_list_may_begin_after_an_object() {
    let api = Script::new(&[("b", LAST)]);
    assert_eq!(ids(Pages::new(&api, "/v1/events", &[("starting_after", "b"), ("type", "x")]).items()), ["c"]);
    assert_eq!(*api.asked.lock().unwrap(), ["type=x&limit=100&starting_after=b"]);
}

#[test]
fn a_list_that_does_not_end_well_ends_with_an_error() {
    for (pages, told) in [
        (vec![("", r#"{"object":"list","has_more":false,"data":[]}"#)], vec![]),
        (vec![("", FIRST)], vec!["a", "b", "gone"]),
        (vec![], vec!["gone"]),
        (
            vec![("", r#"{"object":"list","has_more":true,"data":[]}"#)],
            vec!["the list says that it has more, and gives nothing"],
        ),
        (
            vec![("", r#"{"object":"list","has_more":false,"data":[{"id":"a"},{"name":"b"}]}"#)],
            vec!["the list has an object without an id"],
        ),
        (
            vec![("", r#"{"object":"list","has_more":false,"data":[{"id":""}]}"#)],
            vec!["the list has an object without an id"],
        ),
        (
            vec![("", r#"{"object":"list","has_more":false,"data":["a"]}"#)],
            vec!["the list has an object without an id"],
        ),
        (vec![("", r#"{"object":"event","has_more":false,"data":[]}"#)], vec!["the answer is no list"]),
        (vec![("", r#"{"object":"list","data":[]}"#)], vec!["the answer is no list"]),
        (vec![("", r#"{"object":"list","has_more":false}"#)], vec!["the answer is no list"]),
        (vec![("", r#"{"object":"list","has_more":false,"data":{}}"#)], vec!["the answer is no list"]),
        // The same page again, and a way round.
        (vec![("", FIRST), ("b", FIRST)], vec!["a", "b", "the list comes back to where it was"]),
        (
            vec![("", FIRST), ("b", r#"{"object":"list","has_more":true,"data":[{"id":"c"}]}"#), ("c", FIRST)],
            vec!["a", "b", "c", "the list comes back to where it was"],
        ),
    ] {
        let api = Script::new(&pages);
        assert_eq!(ids(Pages::new(&api, "/v1/events", &[]).items()), told, "{pages:?}");
    }
}

#[test]
fn a_list_with_more_pages_than_it_may_have_is_an_error() {
    let api = Script::new(&[("", FIRST), ("b", LAST)]);
    let list = |pages| ids(Pages::new(&api, "/v1/events", &[]).at_most(pages).items());
    assert_eq!(list(2), ["a", "b", "c"]);
    assert_eq!(list(1), ["a", "b", "the list has more pages than it may have"]);
    assert_eq!(api.asked.lock().unwrap().len(), 3);
}

#[test]
fn nothing_is_asked_after_the_end_or_before_somebody_wants_it() {
    let api = Script::new(&[("", LAST)]);
    let asked = || api.asked.lock().unwrap().len();
    let mut pages = Pages::new(&api, "/v1/events", &[]);
    assert_eq!(asked(), 0);
    assert!(!pages.next().unwrap().unwrap().has_more);
    assert!(pages.next().is_none());
    assert_eq!(asked(), 1);
    let mut broken = Pages::new(&api, "/v1/events", &[("starting_after", "nowhere")]);
    assert!(broken.next().unwrap().is_err());
    assert!(broken.next().is_none());
    assert_eq!(asked(), 2);
}
