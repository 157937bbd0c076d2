//! The Secret with a database's credentials, without the passwords: those are drawn by whoever creates it, once.

use resources::names;
use serde_json::json;

use crate::{Kind, Manifest, Subject};

/// Everything of the Secret but its data.
pub fn secret(subject: &Subject) -> Manifest {
    let name = names::credentials(&subject.name);
    let mut metadata = subject.owned(&name);
    metadata["annotations"][names::SECRET_OF] = json!(subject.name);
    metadata["annotations"][names::secret::TYPE] = json!("psql");
    Manifest {
        kind: Kind::Secret,
        namespace: Some(subject.namespace.clone()),
        body: json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque" }),
        name,
        uid: None,
    }
}

/// Everything but the data of the Secret in which a key is handed out. It says of no database that it holds its credentials:
/// the public half is taken over once, and then it may go.
pub fn drawn_key(subject: &Subject, id: &str) -> Manifest {
    let name = names::drawn_key(&subject.name, id);
    let mut metadata = subject.owned(&name);
    // Known by its mark alone: nothing with a private key comes over the watch of what has our labels.
    metadata["labels"] = json!({});
    Manifest {
        kind: Kind::Secret,
        namespace: Some(subject.namespace.clone()),
        body: json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque" }),
        name,
        uid: None,
    }
}
