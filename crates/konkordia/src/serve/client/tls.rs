//! TLS of the commands that talk to a service: rustls with the given certificates, or with those that the system
//! trusts.
//!
//! The usual command `openssl req -x509` makes a certificate that is allowed to sign others. webpki refuses such a
//! certificate for a server, even if it is trusted. Here it is accepted if it is itself, byte by byte, one of the
//! trusted certificates.

use konkordia_api::security::tls::certificates;
use konkordia_core::failure::{Exit, Failure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, TcpConnector, Transport, TransportAdapter,
};

/// What sends requests, to a server that answers within `patience` and to which a connection is made within `connect`.
/// It follows no redirection, uses no proxy, and gives answers that are errors as answers. Over https (`is_secure`) it
/// trusts the certificates of the file `ca`, or without it those that the system trusts.
///
/// # Errors
/// The file cannot be read or has no certificate; the system has none.
pub fn agent((connect, patience): (Duration, Duration), is_secure: bool, ca: Option<&Path>) -> Result<Agent, Failure> {
    let config = Agent::config_builder().http_status_as_error(false).timeout_connect(Some(connect));
    let config = config.timeout_global(Some(patience)).max_redirects(0).proxy(None).build();
    if !is_secure {
        return Ok(config.new_agent());
    }
    let connector = ().chain(TcpConnector::default()).chain(Tls::new(ca)?);
    Ok(Agent::with_parts(config, connector, DefaultResolver::default()))
}

/// Adds TLS to connections to https.
struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Trusts the certificates of a PEM file; without a file, those that the system trusts.
    ///
    /// # Errors
    /// The file cannot be read or has no certificate; the system has none.
    pub fn new(file: Option<&Path>) -> Result<Self, Failure> {
        let trusted = file.map_or_else(of_system, of_file)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        let usual = usual.map_err(|error| {
            let what = file.map_or("the certificates of this system cannot be used".into(), |f| {
                format!("the certificates in {} cannot be used", f.display())
            });
            Failure::new(Exit::Usage, what, error.to_string(), "give another file with --ca (KONKORDIA_CA)")
        })?;
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            config.map_err(|error| Failure::new(Exit::Bug, "TLS cannot be used", error.to_string(), "please report this"))?;
        // As strict as the usual verifier, except for certificates that are themselves trusted.
        let verifier = Arc::new(Verifier { usual, trusted });
        Ok(Self(Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())))
    }
}

fn of_file(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    certificates(file).map_err(|failure| Failure { exit: Exit::Usage, ..failure })
}

fn of_system() -> Result<Vec<CertificateDer<'static>>, Failure> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(found.certs);
    }
    let why = found.errors.first().map_or("no certificates were found in the usual places".to_string(), ToString::to_string);
    let fix = "give --ca FILE (or KONKORDIA_CA): the certificate of the service, or of the authority that signed it; or install the package ca-certificates";
    Err(Failure::new(Exit::Usage, "this system trusts no certificates", why, fix))
}

/// What is wrong with the TLS of the server; `None` = the connection failed for another reason.
pub fn refusal(error: &std::io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(why) => Some(match why {
            CertificateError::UnknownIssuer => "its certificate is not signed by a trusted authority".into(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired".into(),
            other => format!("its certificate is refused: {other}"),
        }),
        other => Some(other.to_string()),
    }
}

#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

/// True if the only fault is that the certificate may sign others. What webpki has checked before that, its dates among
/// others, is in order.
fn is_only_a_signer(why: &CertificateError) -> bool {
    let CertificateError::Other(other) = why else { return false };
    other.0.downcast_ref::<webpki::Error>().is_some_and(|error| *error == webpki::Error::CaUsedAsEndEntity)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let is_trusted = || self.trusted.iter().any(|trusted| trusted == end_entity);
        match &verdict {
            Err(rustls::Error::InvalidCertificate(why)) if is_only_a_signer(why) && is_trusted() => {}
            _ => return verdict,
        }
        match verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name) {
            // The certificate has no name: whoever has its key is the intended server.
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }))
                if presented.is_empty() =>
            {
                Ok(ServerCertVerified::assertion())
            }
            result => result.map(|()| ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_string();
        let name = ServerName::try_from(host).map_err(|_| ureq::Error::Tls("the host name in --url is not valid"))?;
        let mut conn = ClientConnection::new(Arc::clone(&self.0), name).map_err(std::io::Error::other)?;
        let mut sock = TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        sock.set_timeout(details.timeout);
        conn.complete_io(&mut sock)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned { conn, sock } })))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// A connection with TLS.
pub struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        std::io::Write::write_all(&mut self.stream, &self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = std::io::Read::read(&mut self.stream, self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}
