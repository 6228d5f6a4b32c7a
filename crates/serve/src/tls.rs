//! TLS, with the certificate and the key of the settings.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::files::read_text;
use crate::{Error, Settings};

const CERTIFICATE_HELP: &str = "tls_certificate is a PEM file with the certificate, and those that lead to its root";
const KEY_HELP: &str = "tls_key is a PEM file with the private key of the certificate, without a password";

/// The acceptor for connections with TLS 1.2 and 1.3; `None` without a certificate.
///
/// # Errors
/// When only one of the two files is named, or they do not hold a certificate and its key.
pub fn acceptor(settings: &Settings) -> Result<Option<TlsAcceptor>, Error> {
    let (certificate, key) = match (&settings.tls_certificate, &settings.tls_key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(alone("tls_certificate", "tls_key")),
        (None, Some(_)) => return Err(alone("tls_key", "tls_certificate")),
    };
    let text = read_text(certificate, CERTIFICATE_HELP)?;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = match chain {
        Ok(chain) if chain.is_empty() => {
            return Err(wrong(certificate, "there is no certificate in it", CERTIFICATE_HELP));
        }
        chain => chain.map_err(|error| wrong(certificate, &error.to_string(), CERTIFICATE_HELP))?,
    };
    let private = PrivateKeyDer::from_pem_slice(read_text(key, KEY_HELP)?.as_bytes())
        .map_err(|error| wrong(key, &format!("there is no private key in it: {error}"), KEY_HELP))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = builder.with_safe_default_protocol_versions().map(|builder| builder.with_no_client_auth());
    let config = config.and_then(|builder| builder.with_single_cert(chain, private));
    let mut config = config.map_err(|error| wrong(key, &error.to_string(), KEY_HELP))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn alone(set: &str, missing: &str) -> Error {
    let problem = format!("{missing} is missing");
    Error::Setting { origin: set.to_owned(), problem, help: "set both, or none of them".to_owned() }
}

fn wrong(path: &Path, problem: &str, help: &str) -> Error {
    Error::Setting { origin: path.display().to_string(), problem: problem.to_owned(), help: help.to_owned() }
}
