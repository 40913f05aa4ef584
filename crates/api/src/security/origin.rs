//! Host names that the service answers to, and web pages from which it takes commands.
//!
//! A foreign web page that is open in a browser at the beamline can send requests here. Two checks keep it out. The
//! host name that the request was sent to must be one of ours, because a page can make its own name point to this
//! machine (DNS rebinding). A request that changes something must come from a page of ours or of a configured origin,
//! or from no page at all.

use std::net::IpAddr;

/// The host names and web pages that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    /// Host names (without port) beside addresses and `localhost`; empty and `any_name` unset = no others.
    hosts: Vec<String>,
    /// Any host name is accepted, because every request needs a token and browsers do not send ours by themselves.
    any_name: bool,
    /// Origins of foreign pages that may send requests, as browsers write them: `https://viewer.example.org:8443`.
    pages: Vec<String>,
}

impl Origins {
    /// With the host names and pages of the configuration; `tokens` = every request needs a token.
    ///
    /// # Errors
    /// Which text is not an origin.
    pub fn new(hosts: &[String], pages: &[String], tokens: bool) -> Result<Self, String> {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
        if let Some(odd) = pages.iter().find(|page| !is_origin(page)) {
            return Err(format!(
                "'{odd}' is not a valid origin; write http:// or https://, the host name, and the port if it is not the usual one"
            ));
        }
        Ok(Self { any_name: tokens && hosts.is_empty(), hosts: lower(hosts), pages: lower(pages) })
    }

    /// The foreign pages that may send requests.
    pub fn pages(&self) -> &[String] {
        &self.pages
    }

    /// True if a request that was sent to `host` (with or without port) is meant for us.
    pub fn is_ours(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        let name = name.to_ascii_lowercase();
        let is_local = name == "localhost" || name.ends_with(".localhost");
        self.any_name || is_local || is_address(&name) || self.hosts.contains(&name)
    }

    /// True if a page of `origin` may change something at `host`.
    pub fn may_change(&self, origin: &str, host: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let of_ours = origin
            .split_once("://")
            .is_some_and(|(scheme, rest)| matches!(scheme, "http" | "https") && rest == host.to_ascii_lowercase());
        of_ours || self.pages.contains(&origin)
    }
}

/// The name without the port; `None` if it is not a name.
fn name_of(host: &str) -> Option<&str> {
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    if let Some(rest) = host.strip_prefix('[') {
        let (name, port) = rest.split_once(']')?;
        return (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name);
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (!name.is_empty() && name.chars().all(is_name) && is_port(port)).then_some(name)
}

fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|host| name_of(host).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_refused_where_no_token_is_needed() {
        let hosts = ["x06sa-daq.psi.ch".to_string()];
        let origins = Origins::new(&hosts, &[], false).unwrap();
        for ours in [
            "localhost",
            "localhost:8090",
            "LocalHost:1",
            "127.0.0.1:8090",
            "[::1]:8090",
            "[::1]",
            "10.1.2.3",
            "X06SA-DAQ.psi.ch:80",
        ] {
            assert!(origins.is_ours(ours), "{ours}");
        }
        for other in [
            "",
            "evil.example",
            "localhost.evil.example:8090",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]x",
            "a b",
            "localhost:99999",
            "localhost:x",
        ] {
            assert!(!origins.is_ours(other), "{other}");
        }
        let any = Origins::new(&[], &[], true).unwrap();
        assert!(any.is_ours("daq.example.org:8090") && !any.is_ours("no name"));
        assert!(!Origins::new(&hosts, &[], true).unwrap().is_ours("other.example.org"));
    }

    #[test]
    fn only_our_pages_and_configured_ones_change_something() {
        let origins = Origins::new(&[], &["https://viewer.example.org".to_string()], true).unwrap();
        assert!(origins.may_change("http://daq:8090", "daq:8090") && origins.may_change("HTTPS://daq", "DAQ"));
        assert!(origins.may_change("https://viewer.example.org", "daq:8090"));
        for other in [
            "null",
            "",
            "http://daq",
            "http://daq:80901",
            "http://viewer.example.org",
            "https://viewer.example.org.evil",
            "ftp://daq:8090",
        ] {
            assert!(!origins.may_change(other, "daq:8090"), "{other}");
        }
        for odd in ["viewer.example.org", "https://", "*", "https://a/b", "file:///x"] {
            assert!(Origins::new(&[], &[odd.to_string()], false).is_err(), "{odd}");
        }
    }
}
