//! How a program on this machine reaches the service.

use konkordia_api::security::tls;
use konkordia_config::settings::TlsFiles;
use konkordia_core::failure::Failure;
use rustls::pki_types::ServerName;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use webpki::EndEntityCert;

/// The environment variable with the certificates to trust.
pub const AUTHORITY: &str = "KONKORDIA_CA";

/// True if the service itself was told which certificates to trust; its programs get the same.
pub fn has_authority() -> bool {
    std::env::var_os(AUTHORITY).is_some()
}

/// A URL of the service that listens at `listen`. With TLS it has a host name that the certificate is for.
///
/// # Errors
/// The certificate cannot be read.
pub fn url(listen: SocketAddr, tls: Option<&TlsFiles>) -> Result<String, Failure> {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let address = SocketAddr::new(ip, listen.port());
    let Some(tls) = tls else { return Ok(format!("http://{address}")) };
    let certificates = tls::certificates(&tls.certificate)?;
    let name = certificates.first().and_then(|der| name_of(&EndEntityCert::try_from(der).ok()?, ip));
    Ok(name.map_or_else(|| format!("https://{address}"), |name| format!("https://{name}:{}", listen.port())))
}

/// The first plain host name of a certificate that is not for the address itself.
fn name_of(certificate: &EndEntityCert<'_>, ip: IpAddr) -> Option<String> {
    if certificate.verify_is_valid_for_subject_name(&ServerName::from(ip)).is_ok() {
        return None;
    }
    certificate.valid_dns_names().find(|name| !name.contains('*')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_any_interface_is_reached_by_loopback() {
        let of = |listen: &str| url(listen.parse().unwrap(), None).unwrap();
        assert_eq!(of("0.0.0.0:80"), "http://127.0.0.1:80");
        assert_eq!(of("[::]:80"), "http://[::1]:80");
        assert_eq!(of("10.0.0.2:8090"), "http://10.0.0.2:8090");
    }
}
