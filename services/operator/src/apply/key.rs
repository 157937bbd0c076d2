//! Keys of the line protocol over TCP that the operator draws. *Invariant:* the private half is written once, into the Secret
//! in which it is handed out, and is neither kept nor read again.

use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::ByteString;
use kube::core::DynamicObject;
use plan::{Manifest, left_beside};
use resources::names;
use serde_json::{Value, json};

use super::Pass;
use super::kubernetes::{check_ours, delete, dynamic};
use crate::error::Error;
use crate::write;

/// Draws a key and hands it out, unless that was done.
pub(super) async fn draw(pass: &Pass<'_>, manifest: &Manifest, id: &str) -> Result<(), Error> {
    let api = dynamic(pass.context, manifest.kind, manifest.namespace.as_deref());
    let mut body = manifest.body.clone();
    body["data"] = json!({ names::secret::JWK: ByteString(jwk(id)?.to_string().into_bytes()) });
    let object: DynamicObject = serde_json::from_value(body)
        .map_err(|error| Error::kubernetes("build the Secret")(kube::Error::SerdeError(error)))?;
    match pass.context.call("hand out a key", api.create(&write::parameters(), &object)).await {
        // One of its name is there: an earlier draw, or somebody else's.
        Err(error) if error.is_conflict() => check_ours(pass, &api, manifest).await.map(drop),
        made => made.map(drop),
    }
}

/// Deletes the Secret in which a key was to be handed out. What somebody else has under its name holds no key of ours.
pub(super) async fn revoke(pass: &Pass<'_>, manifest: &Manifest) -> Result<(), Error> {
    let api = dynamic(pass.context, manifest.kind, manifest.namespace.as_deref());
    let found = pass
        .context
        .call("look for a key that may have been drawn", api.get_metadata_opt(&manifest.name))
        .await?;
    let subject = &pass.validated.subject;
    let ours = found.and_then(|found| left_beside(subject, manifest.kind, &found.metadata));
    let Some(target) = ours else { return Ok(()) };
    delete(pass, &target).await
}

/// A new key, as clients of QuestDB are given it.
fn jwk(id: &str) -> Result<Value, Error> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| Error::Key)?;
    let private = pair.private_key().as_be_bytes().map_err(|_| Error::Key)?;
    // Uncompressed: 4, x, y.
    let (x, y) = pair.public_key().as_ref().get(1..65).ok_or(Error::Key)?.split_at(32);
    let [d, x, y] = [private.as_ref(), x, y].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    Ok(json!({ "kty": "EC", "crv": "P-256", "kid": id, "d": d, "x": x, "y": y }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_key_is_whole_and_never_the_same() {
        let (one, other) = (jwk("k1").unwrap(), jwk("k1").unwrap());
        assert_ne!((&one["d"], &one["x"]), (&other["d"], &other["x"]));
        for field in ["d", "x", "y"] {
            let bytes = URL_SAFE_NO_PAD.decode(one[field].as_str().unwrap()).unwrap();
            assert_eq!(bytes.len(), 32, "{field}");
        }
        assert_eq!((&one["kty"], &one["crv"], &one["kid"]), (&json!("EC"), &json!("P-256"), &json!("k1")));
    }
}
