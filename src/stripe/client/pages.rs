//! Lists, page by page: newest first, each page after the last object of the one before.
//!
//! A list either ends or fails; one that was cut short never looks complete.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Api;
use super::error::{ApiError, Kind};

/// The most objects that Stripe puts on one page.
const PAGE_SIZE: &str = "100";

/// The pages of one list. Ends after the first error.
pub struct Pages<'a> {
    api: &'a dyn Api,
    path: &'a str,
    /// The filters, without cursor and page size.
    query: Vec<(&'a str, &'a str)>,
    /// The last object of the page before.
    cursor: Option<String>,
    /// All cursors so far: a list that comes back to one would never end.
    passed: HashSet<String>,
    /// How many more pages may be asked for.
    left: u32,
    has_ended: bool,
}

/// One page.
#[derive(Debug)]
pub struct Page {
    /// The objects, each as its JSON text.
    pub items: Vec<Box<RawValue>>,
    /// There are older ones.
    pub has_more: bool,
}

impl<'a> Pages<'a> {
    /// All pages of the list at `path`. A `starting_after` in the query is where the first page begins.
    #[must_use]
    pub fn new(api: &'a dyn Api, path: &'a str, query: &[(&'a str, &'a str)]) -> Self {
        let (begins_after, query): (Vec<_>, Vec<_>) = query.iter().partition(|(name, _)| *name == "starting_after");
        let cursor = begins_after.first().map(|(_, id)| (*id).to_owned());
        Self { api, path, query, cursor, passed: HashSet::new(), left: u32::MAX, has_ended: false }
    }

    /// No more than so many pages: a list that has more is an error.
    #[must_use]
    pub fn at_most(mut self, pages: u32) -> Self {
        self.left = pages;
        self
    }

    /// The objects of all pages, one after the other.
    pub fn items(self) -> impl Iterator<Item = Result<Box<RawValue>, ApiError>> + use<'a> {
        self.flat_map(|page| match page {
            Ok(page) => page.items.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        })
    }

    fn fetch(&mut self) -> Result<Page, ApiError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.garbage("the list has more pages than it may have"))?;
        let mut query = self.query.clone();
        query.push(("limit", PAGE_SIZE));
        query.extend(self.cursor.as_deref().map(|cursor| ("starting_after", cursor)));
        let body = self.api.get(self.path, &query)?.told;
        let list: List = serde_json::from_slice(&body).map_err(|_| self.garbage("the answer is no list"))?;
        if list.object != "list" {
            return Err(self.garbage("the answer is no list"));
        }
        let ids: Option<Vec<String>> = list.data.iter().map(|item| id(item)).collect();
        let last = ids.ok_or_else(|| self.garbage("the list has an object without an id"))?.pop();
        self.has_ended = !list.has_more;
        if list.has_more {
            self.advance(last)?;
        }
        Ok(Page { items: list.data, has_more: list.has_more })
    }

    fn advance(&mut self, last: Option<String>) -> Result<(), ApiError> {
        let last = last.ok_or_else(|| self.garbage("the list says that it has more, and gives nothing"))?;
        self.passed.extend(self.cursor.take());
        if self.passed.contains(&last) {
            return Err(self.garbage("the list comes back to where it was"));
        }
        self.cursor = Some(last);
        Ok(())
    }

    fn garbage(&self, reason: &'static str) -> ApiError {
        ApiError::new(Kind::Garbage, self.path, reason)
    }
}

impl Iterator for Pages<'_> {
    type Item = Result<Page, ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let page = self.fetch();
        self.has_ended |= page.is_err();
        Some(page)
    }
}

#[derive(Deserialize)]
struct List {
    object: String,
    has_more: bool,
    data: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

fn id(item: &RawValue) -> Option<String> {
    let named: Named = serde_json::from_str(item.get()).ok()?;
    (!named.id.is_empty()).then_some(named.id)
}

#[cfg(test)]
mod tests;
