//! An object without what the API server notes of who manages which of its fields (`metadata.managedFields`). Pure.
//!
//! That is as long as all the rest of many an object, and takes longer to be read: each field is a map of its own. Nobody who
//! watches objects asks for it, and so it is passed over in their text. Whoever asks who writes a field reads the object as it is.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::value::CowStrDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Reads an object without that; all else of it is as it is read otherwise.
///
/// # Errors
///
/// It cannot be read.
pub fn unmanaged<'de, K, D>(deserializer: D) -> Result<Box<K>, D::Error>
where
    K: Resource + Deserialize<'de>,
    D: Deserializer<'de>,
{
    let mut metadata: Option<ObjectMeta> = None;
    // Its metadata are read beside it: else all that it consists of would have to be able to be read in two ways.
    let mut object = Box::<K>::deserialize(Without { inner: deserializer, part: &mut metadata })?;
    if let Some(metadata) = metadata {
        *object.meta_mut() = metadata;
    }
    Ok(object)
}

/// A part of something that is taken from it while it is read, so that it is read as if it had none.
trait Part {
    const NAME: &'static str;

    fn take<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error>;
}

impl Part for Option<ObjectMeta> {
    const NAME: &'static str = "metadata";

    fn take<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        let found: Option<Metadata> = map.next_value()?;
        *self = found.map(|Metadata(found)| found);
        Ok(())
    }
}

/// Who manages which fields.
struct Managers;

impl Part for Managers {
    const NAME: &'static str = "managedFields";

    fn take<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        map.next_value::<IgnoredAny>().map(drop)
    }
}

/// Metadata without them.
struct Metadata(ObjectMeta);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ObjectMeta::deserialize(Without { inner: deserializer, part: &mut Managers }).map(Self)
    }
}

/// What reads something, or makes it of what was read, from which a part is taken on the way.
struct Without<'a, T, P> {
    inner: T,
    part: &'a mut P,
}

impl<'de, D: Deserializer<'de>, P: Part> Deserializer<'de> for Without<'_, D, P> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let Self { inner, part } = self;
        inner.deserialize_any(Without { inner: visitor, part })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>, P: Part> Visitor<'de> for Without<'_, V, P> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { inner, part } = self;
        inner.visit_map(Entries { map, part, is_part: false })
    }
}

/// What there is in it.
struct Entries<'a, A, P> {
    map: A,
    part: &'a mut P,
    /// Whether the next value is the part.
    is_part: bool,
}

impl<'de, A: MapAccess<'de>, P: Part> MapAccess<'de> for Entries<'_, A, P> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(Name(name)) = self.map.next_key::<Name<'de>>()? else { return Ok(None) };
        self.is_part = name == P::NAME;
        seed.deserialize(CowStrDeserializer::<A::Error>::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if !self.is_part {
            return self.map.next_value_seed(seed);
        }
        self.part.take(&mut self.map)?;
        seed.deserialize(Nothing::<A::Error>(PhantomData))
    }
}

/// The name of an entry; nearly always it is where it is read from.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(NameReader)
    }
}

struct NameReader;

impl<'de> Visitor<'de> for NameReader {
    type Value = Name<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

/// What is read where the part was: none, or one that has nothing.
struct Nothing<E>(PhantomData<E>);

impl<'de, E: Error> Deserializer<'de> for Nothing<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_map(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_none()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, E: Error> MapAccess<'de> for Nothing<E> {
    type Error = E;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, _: S) -> Result<Option<S::Value>, E> {
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, _: S) -> Result<S::Value, E> {
        Err(E::custom("there is no value"))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use k8s_openapi::api::apps::v1::StatefulSet;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::QuestDB;

    /// An object of which the API server notes something.
    fn managed(api_version: &str, kind: &str, content: &Value) -> Value {
        let mut object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": { "managedFields": "theirs", "metadata": "theirs" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "v" }],
                "managedFields": [{ "manager": "m", "operation": "Apply", "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:metadata": { "f:labels": { "f:a": {} } } } }],
            },
        });
        object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        object
    }

    /// It is read as one of which nothing was noted, from a text and from its pieces.
    fn check<K>(object: Value)
    where
        K: Resource + DeserializeOwned + PartialEq + Debug,
    {
        let mut plain = object.clone();
        plain["metadata"].as_object_mut().unwrap().remove("managedFields").unwrap();
        let plain: K = serde_json::from_value(plain).unwrap();
        assert_eq!(plain.meta().uid.as_deref(), Some("u"));
        let text = object.to_string();
        let read = unmanaged::<K, _>(&mut serde_json::Deserializer::from_str(&text)).unwrap();
        assert_eq!(*read, plain, "{text}");
        assert_eq!(*unmanaged::<K, _>(object).unwrap(), plain, "{text}");
    }

    #[test]
    fn all_of_an_object_is_read_but_who_manages_it() {
        let data = json!({ "data": { "metadata": "x", "managedFields": "y" } });
        check::<ConfigMap>(managed("v1", "ConfigMap", &data));
        check::<DynamicObject>(managed("v1", "ConfigMap", &data));
        let template = json!({ "metadata": { "labels": { "metadata": "z" } }, "spec": { "containers": [] } });
        let set = json!({ "spec": { "selector": {}, "serviceName": "s", "template": template }, "status": { "replicas": 1 } });
        check::<StatefulSet>(managed("apps/v1", "StatefulSet", &set));
        let database =
            json!({ "spec": { "storage": { "sizeGib": 20 } }, "status": { "phase": "Provisioning" } });
        check::<QuestDB>(managed("crd.questdb.io/v1", "QuestDB", &database));
    }

    #[test]
    fn nobody_looks_into_what_is_passed_over_and_all_else_is_judged_as_ever() {
        let read = |change: fn(&mut Value)| {
            let mut object = managed("v1", "ConfigMap", &json!({}));
            change(&mut object);
            let text = object.to_string();
            (
                serde_json::from_str::<ConfigMap>(&text).is_ok(),
                unmanaged::<ConfigMap, _>(&mut serde_json::Deserializer::from_str(&text)).is_ok(),
            )
        };
        assert_eq!(read(|_| {}), (true, true));
        assert_eq!(read(|object| object["metadata"]["managedFields"] = json!(7)), (false, true));
        assert_eq!(read(|object| object["metadata"]["labels"] = json!(7)), (false, false));
        assert_eq!(read(|object| object["metadata"] = json!(7)), (false, false));
        assert_eq!(read(|object| object["data"] = json!(7)), (false, false));
        assert_eq!(read(|object| object["kind"] = json!("Secret")), (false, false));
        let without = |object: &mut Value| drop(object.as_object_mut().unwrap().remove("metadata"));
        assert_eq!(read(without), (true, true));
        let nameless = unmanaged::<QuestDB, _>(json!({ "spec": { "storage": { "sizeGib": 20 } } }));
        assert!(nameless.is_err(), "it needs metadata: {nameless:?}");
    }
}
