//! Whether the definition in force shows every wish there is, asked of the API server itself. One that is older than this operator
//! drops the wishes that it does not know: protection that is not shown looks like none.

use http::{Request, Uri};
use serde_json::Value;

use super::Pass;
use crate::error::Error;

/// How many fields are told by name.
const MOST: usize = 5;

/// An error unless it does.
pub(super) async fn shows_all(pass: &Pass<'_>) -> Result<(), Error> {
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = Uri::from_static(resources::DOCUMENT);
    let client = &pass.context.client;
    let document: Value =
        pass.context.call("ask for the definition of QuestDB", client.request(request)).await?;
    judge(&document).map_err(|what| Error::Definition { what })
}

/// What speaks against it. Pure.
fn judge(document: &Value) -> Result<(), String> {
    let lacking = resources::lacking(document)
        .ok_or_else(|| "the API server does not say which fields its definition of QuestDB has".to_owned())?;
    if lacking.is_empty() {
        return Ok(());
    }
    let told = lacking.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if lacking.len() > MOST { " and others" } else { "" };
    Err(format!(
        "the definition of QuestDB in this cluster is older than this operator, and drops {told}{more}: nobody knows what is asked \
         for by them; apply the definitions (deploy/crds) that belong to it"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_that_says_nothing_or_lacks_something_is_none_to_destroy_by() {
        assert!(judge(&json!({})).unwrap_err().contains("does not say"));
        let kind = json!([{ "group": "crd.questdb.io", "version": "v1", "kind": "QuestDB" }]);
        let spec = json!({ "properties": { "storage": {} } });
        let bare = json!({ "x-kubernetes-group-version-kind": kind, "properties": { "spec": spec } });
        let told = judge(&json!({ "components": { "schemas": { "a": bare } } })).unwrap_err();
        assert!(told.contains("and others") && told.contains("deploy/crds"), "{told}");
    }
}
