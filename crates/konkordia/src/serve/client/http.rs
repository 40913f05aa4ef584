//! Requests to the service. An error answer becomes a failure with its exit code.

use super::args::TargetArgs;
use super::tls;
use konkordia_api::http::problem::ProblemBody;
use konkordia_core::failure::{Exit, Failure};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Longest time of an ordinary request; an arm may take this long.
const PATIENCE: Duration = Duration::from_secs(160);
/// Longest time to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// Talks to one service.
pub struct Client {
    agent: Agent,
    url: String,
    token: Option<String>,
    detector: Option<String>,
}

impl Client {
    /// For this service.
    ///
    /// # Errors
    /// The address is not that of a service, or the certificate file cannot be used.
    pub fn new(target: &TargetArgs) -> Result<Self, Failure> {
        let url = target.url.trim_end_matches('/').to_string();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let why = "it begins with neither http:// nor https://";
            let fix = "give --url (or KONKORDIA_URL) such as http://127.0.0.1:8090";
            return Err(Failure::new(Exit::Usage, format!("'{url}' is not the URL of a service"), why, fix));
        }
        let is_secure = url.starts_with("https://") || target.ca.is_some();
        let agent = tls::agent((CONNECT, PATIENCE), is_secure, target.ca.as_deref())?;
        Ok(Self { agent, url, token: target.token.clone(), detector: target.detector.clone() })
    }

    fn address(&self, path: &str, query: &[(&str, &str)]) -> String {
        let detector = self.detector.as_deref().map(|name| ("detector", name));
        let pairs = detector.into_iter().chain(query.iter().copied());
        let text: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        format!("{}/api/v1/{path}{}{}", self.url, if text.is_empty() { "" } else { "?" }, text.join("&"))
    }

    fn bearer(&self) -> String {
        self.token.as_deref().map_or(String::new(), |token| format!("Bearer {token}"))
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// The service cannot be reached, or refuses the request.
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, Failure> {
        self.get_within(path, query, PATIENCE)
    }

    /// As [`Self::get`], with another time limit.
    pub fn get_within<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)], patience: Duration) -> Result<T, Failure> {
        let mut request = self.agent.get(self.address(path, query)).config().timeout_global(Some(patience)).build();
        if self.token.is_some() {
            request = request.header("Authorization", self.bearer());
        }
        self.read(request.call())
    }

    /// Sends a command.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Failure> {
        // Where no token says it, the service shows this as who sent the command.
        let mut request = self.agent.post(self.address(path, &[])).header("User-Agent", format!("konkordia {path}"));
        if self.token.is_some() {
            request = request.header("Authorization", self.bearer());
        }
        self.read(request.send_json(body))
    }

    /// Opens an answer without end, such as the event stream.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn open(&self, path: &str, query: &[(&str, &str)]) -> Result<impl Read + Send + use<>, Failure> {
        let mut request = self.agent.get(self.address(path, query)).config().timeout_global(None).build();
        if self.token.is_some() {
            request = request.header("Authorization", self.bearer());
        }
        let answer = request.call().map_err(|error| self.unreachable(&error))?;
        if answer.status().is_success() { Ok(answer.into_body().into_reader()) } else { Err(self.refused(answer)) }
    }

    fn read<T: DeserializeOwned>(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<T, Failure> {
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            return Err(self.refused(answer));
        }
        answer.body_mut().read_json().map_err(|error| self.strange(&error.to_string()))
    }

    fn strange(&self, why: &str) -> Failure {
        let what = format!("the answer of {} cannot be read", self.url);
        let fix = "is it a konkordia of the same version? compare `konkordia version` on both sides";
        Failure::new(Exit::Unreachable, what, why, fix)
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let what = format!("cannot reach the service at {}", self.url);
        let why = match error {
            ureq::Error::Io(error) => {
                if let Some(why) = tls::refusal(error) {
                    let what = format!("cannot make a secure connection to {}", self.url);
                    let fix = "give --ca FILE (or KONKORDIA_CA): the certificate of the service, or of the authority that signed it; without it, the certificates that this system trusts are used. The host name in --url must be one that the certificate is for";
                    return Failure::new(Exit::Unreachable, what, why, fix);
                }
                konkordia_core::failure::reason(error)
            }
            other => other.to_string(),
        };
        let fix = "is it running (konkordia serve -c CONFIG.toml)? give its URL with --url or KONKORDIA_URL";
        Failure::new(Exit::Unreachable, what, why, fix)
    }

    /// The failure for an error answer of the service.
    fn refused(&self, mut answer: Response<Body>) -> Failure {
        let status = answer.status();
        let Ok(problem) = answer.body_mut().read_json::<ProblemBody>() else {
            return self.strange(&format!("it answered {status}"));
        };
        let exit = match problem.code.as_str() {
            "wrong_state" | "no_trigger" | "refused" | "busy" | "not_ready" => Exit::State,
            "arm_failed" => Exit::Io,
            "bug" => Exit::Bug,
            _ => Exit::Usage,
        };
        Failure::new(exit, problem.detail, String::new(), problem.hint.unwrap_or_default())
    }
}

/// Escapes everything but the plainest characters, for a query.
fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_whole_and_escaped() {
        let target = |url: &str, detector: Option<&str>| TargetArgs {
            detector: detector.map(str::to_string),
            url: url.into(),
            token: None,
            ca: None,
            json: false,
        };
        let client = Client::new(&target("http://host:1/", Some("a&b ü"))).unwrap();
        assert_eq!(
            client.address("wait", &[("timeout_s", "1.5")]),
            "http://host:1/api/v1/wait?detector=a%26b%20%C3%BC&timeout_s=1.5"
        );
        assert_eq!(Client::new(&target("http://host:1", None)).unwrap().address("status", &[]), "http://host:1/api/v1/status");
        assert!(Client::new(&target("host:1", None)).is_err_and(|e| e.exit == Exit::Usage));
        let nobody = Client::new(&target("http://127.0.0.1:9", None)).unwrap().get::<Value>("status", &[]).unwrap_err();
        assert_eq!(nobody.exit, Exit::Unreachable);
    }
}
