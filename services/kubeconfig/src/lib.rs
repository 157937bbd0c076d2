//! What is told of a kubeconfig that is of no use: where it stops being one, and how the program that it names for tokens ended. And
//! that program itself, run so that it ends.
//!
//! Shared by the programs that are given kubeconfigs. *Invariant:* nothing of what stands in a kubeconfig, and nothing of what such a
//! program said or was called with: either may be the token, and what is told becomes lines in logs, reasons in rows, and answers.
//! The library repeats all of it in its errors, so that they end here.

mod credential;
mod files;
#[cfg(test)]
mod fixture;
mod given;
mod program;
mod token;

use kube::config::KubeconfigError;

pub use credential::Credential;
pub use files::files;
pub use given::Given;
pub use program::Program;
pub use token::{NoClient, NoToken};

/// Where a text stops being a kubeconfig, to be put behind its name; `None` for an error that is not about the text.
pub fn place(error: &KubeconfigError) -> Option<String> {
    let KubeconfigError::Parse(error) = error else { return None };
    let place = error.location().map(|at| format!(" (line {}, column {})", at.line(), at.column()));
    Some(place.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn where_a_text_stops_being_a_kubeconfig_is_told_and_nothing_of_it() {
        let text = "users:\n- name: a\n  user:\n    token: swordfish\n    bad: [\n";
        let told = place(&Kubeconfig::from_yaml(text).unwrap_err()).unwrap();
        assert!(told.contains("line 5") && !told.contains("swordfish"), "{told}");
    }

    #[test]
    fn an_error_that_is_not_about_the_text_has_no_place() {
        assert_eq!(place(&KubeconfigError::CurrentContextNotSet), None);
    }
}
