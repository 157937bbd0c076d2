//! Where a cluster's credentials are: a reference in the registry, a file in a directory. The registry never holds the
//! credentials themselves, and cannot point outside the directory.

use std::path::{Component, Path};

/// Credentials cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a reference that this program knows.
    #[error("the credentials reference {reference:?} is not file:NAME, with the plain name of a file")]
    Reference {
        /// As registered.
        reference: String,
    },
    /// The file cannot be read.
    #[error("read the credentials {name}")]
    Read {
        /// Name of the file.
        name: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

/// The name of the file that a reference names.
pub fn file(reference: &str) -> Result<&str, Error> {
    let refused = || Error::Reference { reference: reference.to_owned() };
    let name = reference.strip_prefix("file:").ok_or_else(refused)?;
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    if plain && !name.contains(['/', '\\', '\0']) { Ok(name) } else { Err(refused()) }
}

/// Reads what a reference names.
pub async fn read(directory: &Path, reference: &str) -> Result<Vec<u8>, Error> {
    let name = file(reference)?;
    let bytes = tokio::fs::read(directory.join(name)).await;
    bytes.map_err(|source| Error::Read { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stay_in_the_directory() {
        assert_eq!(file("file:eu-west-1.kubeconfig").unwrap(), "eu-west-1.kubeconfig");
        for bad in [
            "",
            "eu",
            "file:",
            "file:.",
            "file:..",
            "file:../x",
            "file:/etc/passwd",
            "file:a/b",
            "file:a/",
            "secret:x",
        ] {
            assert!(file(bad).is_err(), "{bad}");
        }
    }
}
