//! Events of objects in boxes. An object takes up to four kilobytes, and what a watch tells goes through a dozen streams, each of
//! which moves what it passes on.

use std::borrow::Cow;

use kube::Resource;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use serde::{Deserialize, Deserializer};

/// An object that is read into its box, or kube would move kilobytes from hand to hand, from the text of a list to what its watch tells;
/// and without what the API server notes of who manages its fields, which nobody reads of what is watched.
#[derive(Clone, Debug)]
pub(crate) struct Boxed<K>(pub(crate) Box<K>);

impl<'de, K: Resource + Deserialize<'de>> Deserialize<'de> for Boxed<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        resources::unmanaged(deserializer).map(Self)
    }
}

impl<K: Resource> Resource for Boxed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// The same event of another object.
pub(crate) fn of<A, B>(event: Event<A>, other: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Apply(object) => Event::Apply(other(object)),
        Event::Delete(object) => Event::Delete(other(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(other(object)),
        Event::InitDone => Event::InitDone,
    }
}

/// The event of the object itself: for who only reads its metadata, which are small.
pub(super) fn open<K>(event: Event<Box<K>>) -> Event<K> {
    of(event, |object| *object)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_object_is_the_same_in_its_box() {
        let mut object = json!({ "metadata": { "name": "a" }, "spec": { "storageClassName": "", "capacity": { "storage": "20Gi" } } });
        let managed = json!([{ "manager": "m", "fieldsV1": { "f:spec": {} } }]);
        let read =
            |object: &Value| serde_json::from_str::<Boxed<PersistentVolume>>(&object.to_string()).unwrap();
        let mut boxed = read(&object);
        object["metadata"]["managedFields"] = managed;
        assert_eq!(read(&object).0, boxed.0, "it has what nobody reads");
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(*boxed.0, serde_json::from_value::<PersistentVolume>(object).unwrap());
        assert_eq!(boxed.meta().name.as_deref(), Some("a"));
        boxed.meta_mut().name = Some("b".to_owned());
        assert_eq!(boxed.0.metadata.name.as_deref(), Some("b"));
        let (path, kind) =
            (Boxed::<PersistentVolume>::url_path(&(), None), Boxed::<PersistentVolume>::kind(&()));
        assert_eq!((&*path, &*kind), ("/api/v1/persistentvolumes", "PersistentVolume"));
    }
}
