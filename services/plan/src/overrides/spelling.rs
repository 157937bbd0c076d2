//! How names within a pod are spelt, where the definition does not say it. The API server refuses some of them of a pod alone, and
//! takes them of its StatefulSet: the pod that served would have been stopped for one that nobody makes.

use crate::reach::{is_key, is_name};

/// Whether a text can name an image.
pub(super) fn is_image(text: &str) -> bool {
    !text.contains(char::is_whitespace)
}

/// Whether a text can name a port.
pub(super) fn is_port(text: &str) -> bool {
    text.contains(|letter: char| letter.is_ascii_lowercase()) && !text.contains("--")
}

/// Whether a text can be a key within a Secret or a `ConfigMap`.
pub(super) fn is_entry(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text != "." && !text.starts_with("..") && text.bytes().all(good)
}

/// Whether texts can be the key and the value of a taint.
pub(super) fn is_taint(key: &str, value: Option<&str>) -> bool {
    is_key(key) && value.is_none_or(|value| value.is_empty() || is_name(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_the_api_server_wants_them() {
        type Row<'a> = (&'a [&'a str], &'a [&'a str], fn(&str) -> bool);
        let table: [Row<'_>; 5] = [
            (&["a", "example.com/a:1"], &[" a", "a ", "a b"], is_image),
            (&["a", "1a", "a-1"], &["1", "8-0", "a--b"], is_port),
            (&["a", "A_b.c-1", ".a"], &["a b", ".", "..", "..a", "a/b"], is_entry),
            (
                &["a", "example.com/a", "a-b.c/a", "A_b"],
                &["a b", "/a", "a/", "a.com/b/c", "-a.com/b", "a-.com/b", "a..com/b", ".com/b", "com./b"],
                |key| is_taint(key, None),
            ),
            (&["", "a", "A_b.c-1"], &["a b", "-a", "a/b"], |value| is_taint("a", Some(value))),
        ];
        for (good, bad, is_good) in table {
            assert!(good.iter().all(|text| is_good(text)), "{good:?}");
            assert_eq!(bad.iter().find(|text| is_good(text)), None);
        }
    }
}
