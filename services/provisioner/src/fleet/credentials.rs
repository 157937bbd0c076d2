//! Where a cluster's credentials are: a reference in the registry, a file in a directory, and the files that it names in
//! turn. The registry never holds the credentials themselves, and cannot point outside the directory.

use std::path::{Component, Path, PathBuf};

use kube::config::{Kubeconfig, KubeconfigError};

/// Credentials cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a reference that this program knows.
    #[error("the credentials reference {reference:?} is not file:NAME, with the plain name of a file")]
    Reference {
        /// As registered.
        reference: String,
    },
    /// A file cannot be read.
    #[error("read the credentials {name}")]
    Read {
        /// Name of the file.
        name: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// Not text.
    #[error("the credentials {name} are not text")]
    Text {
        /// Name of the file.
        name: String,
    },
    /// A token that is none: a file that is just being written, perhaps.
    #[error("the credentials {name} are empty")]
    Empty {
        /// Name of the file.
        name: String,
    },
    /// Not a kubeconfig. Where, and not what: the library repeats lines of the file, tokens and all, and what is said here becomes
    /// a reason in rows, logs and answers.
    #[error("the credentials {name} are no kubeconfig{place}")]
    Parse {
        /// Name of the file.
        name: String,
        /// Where it stops being one.
        place: String,
    },
}

/// Credentials as they are now.
pub struct Credentials {
    /// The bytes of all files they come from: other bytes are other credentials.
    pub source: Vec<u8>,
    /// What to make clients of: paths absolute, the token in it.
    pub kubeconfig: Kubeconfig,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The name of the file that a reference names.
pub fn file(reference: &str) -> Result<&str, Error> {
    let refused = || Error::Reference { reference: reference.to_owned() };
    let name = reference.strip_prefix("file:").ok_or_else(refused)?;
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    if plain && !name.contains(['/', '\\', '\0']) { Ok(name) } else { Err(refused()) }
}

/// Reads what a reference names, and the files that are named there; relative paths start at `directory`.
pub async fn read(directory: &Path, reference: &str) -> Result<Credentials, Error> {
    let mut source = bytes(&directory.join(file(reference)?)).await?;
    let text = std::str::from_utf8(&source);
    let text = text.map_err(|_| Error::Text { name: reference.to_owned() })?;
    let mut kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| unparsed(reference, &error))?;
    for path in make_absolute(&mut kubeconfig, directory) {
        source.push(0);
        source.extend(bytes(&path).await?);
    }
    for auth in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        // Given to the library as a value: it would take a line end behind it for a part of the token, and read the file
        // once a minute only.
        if let Some(path) = auth.token_file.take().filter(|_| auth.token.is_none()) {
            let content = bytes(Path::new(&path)).await?;
            let token = String::from_utf8(content).map_err(|_| Error::Text { name: path.clone() })?;
            let token = token.trim();
            if token.is_empty() {
                return Err(Error::Empty { name: path });
            }
            source.push(0);
            source.extend(token.as_bytes());
            auth.token = Some(token.to_owned().into());
        }
    }
    Ok(Credentials { source, kubeconfig })
}

fn unparsed(reference: &str, error: &KubeconfigError) -> Error {
    let place = kubeconfig::place(error).unwrap_or_default();
    Error::Parse { name: reference.to_owned(), place }
}

async fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    tokio::fs::read(path).await.map_err(|source| Error::Read { name: name(), source })
}

/// Makes every path absolute; gives those whose content the library reads when a client is made.
fn make_absolute(kubeconfig: &mut Kubeconfig, directory: &Path) -> Vec<PathBuf> {
    let mut read_later = Vec::new();
    let mut absolute = |path: &mut Option<String>, is_read_later: bool| {
        if let Some(relative) = path.as_mut() {
            let whole = directory.join(&*relative);
            *relative = whole.display().to_string();
            read_later.extend(is_read_later.then_some(whole));
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority, true);
    }
    for auth in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        absolute(&mut auth.client_certificate, true);
        absolute(&mut auth.client_key, true);
        absolute(&mut auth.token_file, false);
    }
    read_later
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

    /// What is wrong with a kubeconfig is told to many: it becomes a reason in rows, logs and answers.
    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_read_is_not_repeated_in_the_error() {
        let folder = std::env::temp_dir().join(format!("provisioner-broken-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for text in [
            "users:\n- name: a\n  user:\n    token: swordfish\n    bad: [\n",
            "users:\n- name: a\n  user:\n    token: [swordfish]\n",
            "users:\n- name: a\n  user: swordfish\n",
            "users:\n- name: a\n  user:\n    token: swordfish\n   worse: x\n",
            "token: swordfish\nusers: 3\n",
            "apiVersion: swordfish\nkind: Config\nusers: {name: swordfish}\n",
        ] {
            std::fs::write(folder.join("broken"), text).unwrap();
            let error = read(&folder, "file:broken").await.unwrap_err();
            let (told, shown) = (crate::classify::chain(&error), format!("{error:?}"));
            assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{text}\n{told}\n{shown}");
            assert!(told.contains("line "), "nobody can find what is wrong: {told}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    const KUBECONFIG: &str = "{apiVersion: v1, kind: Config, current-context: a, \
        contexts: [{name: a, context: {cluster: a, user: a}}], \
        clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}], \
        users: [{name: a, user: {tokenFile: token}}]}";

    #[tokio::test]
    async fn every_file_that_is_named_is_a_part_of_them() {
        use secrecy::ExposeSecret as _;
        let directory = std::env::temp_dir().join(format!("credentials-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, content: &str| std::fs::write(directory.join(name), content).unwrap();
        let now = async || read(&directory, "file:a").await;
        write("a", KUBECONFIG);
        assert!(matches!(now().await, Err(Error::Read { name, .. }) if name == "ca.crt"));
        write("ca.crt", "one");
        write("token", "\n");
        assert!(matches!(now().await, Err(Error::Empty { .. })), "a token that is being written");
        write("token", "first\n");
        let first = now().await.unwrap();
        let token = |credentials: &Credentials| {
            let auth = credentials.kubeconfig.auth_infos[0].auth_info.as_ref().unwrap();
            assert_eq!(auth.token_file, None);
            auth.token.as_ref().unwrap().expose_secret().to_owned()
        };
        assert_eq!(token(&first), "first", "without the end of its line");
        let ca = first.kubeconfig.clusters[0].cluster.as_ref().unwrap().certificate_authority.clone();
        assert_eq!(ca, Some(directory.join("ca.crt").display().to_string()));
        assert_eq!(now().await.unwrap().source, first.source);
        write("token", "second");
        let second = now().await.unwrap();
        assert_eq!(token(&second), "second");
        assert_ne!(second.source, first.source);
        write("ca.crt", "two");
        assert_ne!(now().await.unwrap().source, second.source);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
