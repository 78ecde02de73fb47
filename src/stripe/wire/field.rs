//! A field of somebody else's JSON.
//!
//! Reading a [`Field`] never fails: it is absent, null, what we wanted, or something odd. Only whoever needs the
//! value asks for it by [`Field::need`] or [`Field::allow_null`] and then gets an [`Unreadable`] that names the path.
//! Texts are borrowed from the body wherever they hold no escapes.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::domain::event::Unreadable;

/// What stands at a key.
#[derive(Debug, Clone, Default)]
pub(super) enum Field<T> {
    #[default]
    Absent,
    Null,
    Is(T),
    /// Something that cannot be a `T`.
    Odd,
}

/// A value that can be made of some kinds of JSON; every kind that is not overridden is odd.
pub(super) trait Shape<'de>: Sized {
    /// What a field must be, as a complaint.
    const COMPLAINT: &'static str;

    fn text(_text: Cow<'de, str>) -> Option<Self> {
        None
    }

    fn integer(_integer: i64) -> Option<Self> {
        None
    }

    fn boolean(_boolean: bool) -> Option<Self> {
        None
    }

    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

impl<T> Field<T> {
    /// The value, if it is what we wanted.
    pub(super) fn told(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            _ => None,
        }
    }

    /// There is nothing at this key.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Absent | Self::Null)
    }

    /// The value, which a rule needs.
    pub(super) fn need<'de>(&self, path: impl fmt::Display) -> Result<&T, Unreadable>
    where
        T: Shape<'de>,
    {
        self.allow_null(&path)?.ok_or_else(|| unreadable(path, "missing"))
    }

    /// The value, which may be missing, but not odd.
    pub(super) fn allow_null<'de>(&self, path: impl fmt::Display) -> Result<Option<&T>, Unreadable>
    where
        T: Shape<'de>,
    {
        match self {
            Self::Is(value) => Ok(Some(value)),
            Self::Absent | Self::Null => Ok(None),
            Self::Odd => Err(unreadable(path, T::COMPLAINT)),
        }
    }
}

/// Names a field and what is wrong with it.
pub(super) fn unreadable(path: impl fmt::Display, problem: &'static str) -> Unreadable {
    Unreadable { field: path.to_string(), problem }
}

impl<'de, T: Shape<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor(PhantomData))
    }
}

struct FieldVisitor<T>(PhantomData<T>);

fn is_or_odd<T>(value: Option<T>) -> Field<T> {
    value.map_or(Field::Odd, Field::Is)
}

impl<'de, T: Shape<'de>> Visitor<'de> for FieldVisitor<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(is_or_odd(T::text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(is_or_odd(T::text(Cow::Owned(text.to_owned()))))
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Self::Value, E> {
        Ok(is_or_odd(T::integer(integer)))
    }

    fn visit_u64<E>(self, integer: u64) -> Result<Self::Value, E> {
        Ok(is_or_odd(i64::try_from(integer).ok().and_then(T::integer)))
    }

    /// Floats, exponents, and integers beyond 64 bits.
    fn visit_f64<E>(self, _float: f64) -> Result<Self::Value, E> {
        Ok(Field::Odd)
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Self::Value, E> {
        Ok(is_or_odd(T::boolean(boolean)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Field::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::object(map).map(is_or_odd)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        T::list(list).map(is_or_odd)
    }
}

impl<'de: 'a, 'a> Shape<'de> for Cow<'a, str> {
    const COMPLAINT: &'static str = "not a text";

    fn text(text: Cow<'de, str>) -> Option<Self> {
        Some(text)
    }
}

impl Shape<'_> for i64 {
    const COMPLAINT: &'static str = "not an integer of 64 bits";

    fn integer(integer: i64) -> Option<Self> {
        Some(integer)
    }
}

impl Shape<'_> for bool {
    const COMPLAINT: &'static str = "neither true nor false";

    fn boolean(boolean: bool) -> Option<Self> {
        Some(boolean)
    }
}

impl<'de, T: Shape<'de>> Shape<'de> for Vec<Field<T>> {
    const COMPLAINT: &'static str = "not a list";

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        let mut items = Self::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Some(items))
    }
}

/// An id, alone or inside of the object that was expanded in its place.
#[derive(Debug, Clone)]
pub(super) struct Reference<'a>(pub(super) Cow<'a, str>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Identified<'a> {
    #[serde(borrow)]
    id: Field<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Shape<'de> for Reference<'a> {
    const COMPLAINT: &'static str = "neither an id nor an object with an id";

    fn text(text: Cow<'de, str>) -> Option<Self> {
        Some(Self(text))
    }

    fn object<A: MapAccess<'de>>(map: A) -> Result<Option<Self>, A::Error> {
        let expanded = Identified::deserialize(MapAccessDeserializer::new(map))?;
        Ok(match expanded.id {
            Field::Is(id) => Some(Self(id)),
            _ => None,
        })
    }
}

impl Field<Reference<'_>> {
    /// The id, where there is one that can be one.
    pub(super) fn id<T, E>(&self, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        self.told().and_then(|reference| parse(&reference.0).ok())
    }
}

/// The user's own pairs. PHP re-encodes an empty object as an empty list, which is odd and holds no pairs.
#[derive(Debug, Clone)]
pub(super) struct Metadata<'a>(Vec<(Cow<'a, str>, Field<Cow<'a, str>>)>);

/// A key that is borrowed if it can be.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Shape<'de> for Metadata<'a> {
    const COMPLAINT: &'static str = "not an object";

    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = map.next_entry::<Key<'de>, Field<Cow<'de, str>>>()? {
            pairs.push((key.0, value));
        }
        Ok(Some(Self(pairs)))
    }
}

impl Field<Metadata<'_>> {
    /// The text of a key that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let pairs = &self.told()?.0;
        let value = pairs.iter().rev().find(|(name, _)| name == key)?.1.told()?;
        Some(value.as_ref()).filter(|text| !text.is_empty())
    }
}

/// Lets structs of fields be read where an object stands; everything but an object is odd.
macro_rules! object_shapes {
    ($($name:ident $(<$life:lifetime>)?)+) => {$(
        impl<'de $(: $life, $life)?> Shape<'de> for $name $(<$life>)? {
            const COMPLAINT: &'static str = "not an object";

            fn object<A: serde::de::MapAccess<'de>>(map: A) -> Result<Option<Self>, A::Error> {
                Self::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Some)
            }
        }
    )+};
}
pub(super) use object_shapes;

/// Stripe's way to embed many: the first ones, and whether there are more.
#[derive(Debug)]
pub(super) struct List<T> {
    pub(super) data: Field<Vec<Field<T>>>,
    pub(super) has_more: Field<bool>,
    pub(super) total_count: Field<i64>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Shape<'de>"))]
struct Page<T> {
    #[serde(default = "absent")]
    data: Field<Vec<Field<T>>>,
    #[serde(default = "absent")]
    has_more: Field<bool>,
    #[serde(default = "absent")]
    total_count: Field<i64>,
    /// The name of `total_count` before 2014.
    #[serde(default = "absent")]
    count: Field<i64>,
}

fn absent<T>() -> Field<T> {
    Field::Absent
}

impl<'de, T: Shape<'de>> Shape<'de> for List<T> {
    const COMPLAINT: &'static str = "not a list object";

    fn object<A: MapAccess<'de>>(map: A) -> Result<Option<Self>, A::Error> {
        let page = Page::deserialize(MapAccessDeserializer::new(map))?;
        let total_count = if page.total_count.told().is_some() { page.total_count } else { page.count };
        Ok(Some(Self { data: page.data, has_more: page.has_more, total_count }))
    }

    /// Before 2014 some lists stood there bare, and whole.
    fn list<A: SeqAccess<'de>>(list: A) -> Result<Option<Self>, A::Error> {
        let data = is_or_odd(Vec::list(list)?);
        Ok(Some(Self { data, has_more: Field::Absent, total_count: Field::Absent }))
    }
}

impl<T> Field<List<T>> {
    /// What is embedded.
    pub(super) fn items(&self) -> Option<&[Field<T>]> {
        self.told()?.data.told().map(Vec::as_slice)
    }

    /// Nothing is embedded that could be read, or not everything.
    pub(super) fn is_truncated(&self) -> bool {
        let (Some(list), Some(items)) = (self.told(), self.items()) else {
            return true;
        };
        let total = list.total_count.told().copied().unwrap_or_default();
        list.has_more.told() == Some(&true) || usize::try_from(total).is_ok_and(|total| total > items.len())
    }
}
