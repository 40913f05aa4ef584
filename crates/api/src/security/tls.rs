//! TLS from PEM files, by rustls with ring. TLS 1.2 and 1.3, HTTP/1.1.

use konkordia_core::failure::{Exit, Failure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM with the certificate of the server first, then those that lead to a root.
    pub certificate: PathBuf,
    /// PEM with its private key.
    pub key: PathBuf,
}

/// Reads both files.
///
/// # Errors
/// If a file cannot be read, is not PEM of its kind, or the two do not belong together.
pub fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, Failure> {
    let certificates = certificates(&files.certificate)?;
    let key_text = read("cannot read the key", &files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key_text).map_err(|error| {
        let what = format!("there is no private key in {}", files.key.display());
        Failure::new(
            Exit::Configuration,
            what,
            error.to_string(),
            "the file must be PEM with a 'BEGIN PRIVATE KEY' that has no passphrase",
        )
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has the default versions");
    let made = builder.with_no_client_auth().with_single_cert(certificates, key);
    let mut config = made.map_err(|error| {
        let what = format!("{} and {} cannot be used together", files.certificate.display(), files.key.display());
        let fix =
            "key and certificate must be of one pair (RSA, ECDSA or Ed25519), and the server's certificate the first in its file";
        Failure::new(Exit::Configuration, what, error.to_string(), fix)
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates of a PEM file.
///
/// # Errors
/// If it cannot be read, or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let text = read("cannot read the certificate", path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let why = match found {
        Ok(certificates) if !certificates.is_empty() => return Ok(certificates),
        Ok(_) => "it has no 'BEGIN CERTIFICATE'".to_string(),
        Err(error) => error.to_string(),
    };
    let what = format!("there is no certificate in {}", path.display());
    Err(Failure::new(Exit::Configuration, what, why, "the file must be PEM; is it DER, or the key?"))
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::io(what, path, &error))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A self-signed pair for localhost that only tests use; valid for a hundred years.
    pub(crate) fn test_files() -> TlsFiles {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/security/testdata");
        TlsFiles { certificate: folder.join("localhost.crt"), key: folder.join("localhost.key") }
    }

    #[test]
    fn good_files_are_taken_and_bad_ones_explained() {
        let good = test_files();
        assert_eq!(load(&good).unwrap().alpn_protocols, [b"http/1.1".to_vec()]);
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let why = |certificate: &Path, key: &Path| {
            let failure = load(&TlsFiles { certificate: certificate.into(), key: key.into() }).unwrap_err();
            format!("{failure}")
        };
        let none = folder.path().join("none");
        assert!(why(&none, &good.key).contains("cannot read the certificate"));
        assert!(why(&good.certificate, &none).contains("cannot read the key"));
        assert!(why(&good.key, &good.key).contains("there is no certificate in"));
        assert!(why(&good.certificate, &good.certificate).contains("there is no private key in"));
        assert!(why(&file("odd", &[0xFF, 0, 1]), &good.key).contains("there is no certificate in"));
        let broken = b"-----BEGIN PRIVATE KEY-----\nMIGHAgEA\n-----END PRIVATE KEY-----\n";
        assert!(why(&good.certificate, &file("broken", broken)).contains("cannot be used together"));
    }
}
