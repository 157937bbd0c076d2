//! The merge patch that is asked about: from the command line, a file, or flags.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use crate::error::Error;

const HINT: &str = r#"such as {"storage": {"sizeGib": 100}}; a field that is null is taken out"#;

/// A merge patch in JSON or YAML.
pub(super) fn parse(text: &str) -> Result<Value, Error> {
    let wrong =
        |message: String| Error::Usage { message, hint: format!("give a merge patch of the spec, {HINT}") };
    let patch: Value = serde_json::from_str(text)
        .or_else(|_| serde_saphyr::from_str(text))
        .map_err(|error| wrong(format!("the patch is neither JSON nor YAML: {error}")))?;
    let Value::Object(fields) = &patch else {
        return Err(wrong("the patch is no object".to_owned()));
    };
    if ["apiVersion", "kind", "metadata", "spec"].iter().any(|field| fields.contains_key(*field)) {
        return Err(wrong("this looks like a whole resource, not like a patch of its spec".to_owned()));
    }
    Ok(patch)
}

/// The text of a file; of standard input where it is called `-`.
pub(super) fn read(file: &Path) -> Result<String, Error> {
    let failed = |source| Error::File { action: "read", path: file.to_owned(), source };
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(failed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_an_object_in_json_or_yaml() {
        let table = [
            ("{}", json!({})),
            (r#"{"storage":{"sizeGib":80}}"#, json!({ "storage": { "sizeGib": 80 } })),
            ("storage:\n  sizeGib: 80\n", json!({ "storage": { "sizeGib": 80 } })),
            ("{storage: {sizeGib: 80}}", json!({ "storage": { "sizeGib": 80 } })),
            ("config: {a: null}\nversion: \"9.3\"", json!({ "config": { "a": null }, "version": "9.3" })),
            ("deletionProtection: false", json!({ "deletionProtection": false })),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        for (text, reason) in [
            ("", "no object"),
            ("[]", "no object"),
            ("80", "no object"),
            ("{", "neither"),
            ("a: 1\na: 2", "neither"),
            (r#"{"spec":{"storage":{"sizeGib":80}}}"#, "whole resource"),
            ("kind: QuestDB", "whole resource"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.explain().contains(reason), "{text}: {}", error.explain());
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("/nowhere/patch.yaml")).unwrap_err();
        assert!(error.explain().contains("/nowhere/patch.yaml"), "{}", error.explain());
    }
}
