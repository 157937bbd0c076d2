//! Lists for people, which end before nobody reads them any more.

/// Most items that are told by name.
const MOST: usize = 8;

/// The first of them, and how many more there are.
pub(crate) fn few<T: AsRef<str>>(all: &[T], between: &str) -> String {
    let told: Vec<&str> = all.iter().take(MOST).map(AsRef::as_ref).collect();
    let told = told.join(between);
    if all.len() > MOST { format!("{told} and {} more", all.len() - MOST) } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_ends() {
        let all: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        assert_eq!(few(&all[..8], ", "), "0, 1, 2, 3, 4, 5, 6, 7");
        assert_eq!(few(&all, ", "), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
        assert_eq!(few::<String>(&[], ", "), "");
    }
}
