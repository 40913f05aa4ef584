//! The scale of Deployments, read and changed through the API server of Kubernetes. Of the rights in the cluster it
//! needs `get` and `patch` on `deployments/scale` of the pipelines, and no others.

use super::args::ClusterArgs;
use crate::serve::client::tls;
use konkordia_core::failure::{Exit, Failure, reason};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Longest time to connect, and of a request.
const CONNECT: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(10);
/// Pipelines of a detector.
const PIPELINES_MAX: usize = 64;

/// How many of a pipeline there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Name of the pipeline.
    pub pipeline: String,
    /// How many are wanted.
    pub wanted: u32,
    /// How many pods the cluster has made.
    pub pods: u32,
}

/// The API server, and the pipelines that may be changed.
pub struct Cluster {
    agent: Agent,
    url: String,
    namespace: String,
    account: PathBuf,
    pipelines: Vec<String>,
    replicas_max: u32,
}

#[derive(Deserialize)]
struct Answer {
    spec: Replicas,
    status: Replicas,
}

#[derive(Deserialize)]
struct Replicas {
    #[serde(default)]
    replicas: u32,
}

impl Cluster {
    /// Finds the API server and the service account. Sends nothing yet.
    ///
    /// # Errors
    /// This is no pod, and not all of it was given.
    pub fn new(args: &ClusterArgs) -> Result<Self, Failure> {
        let url = match &args.api_server {
            Some(url) => url.trim_end_matches('/').to_string(),
            None => of_this_pod()?,
        };
        let pipelines: Vec<String> = args.pipelines.iter().filter(|name| !name.is_empty()).cloned().collect();
        check_names(&pipelines)?;
        let namespace = match &args.namespace {
            Some(namespace) => namespace.clone(),
            None => read(&args.service_account, "namespace", "give --namespace")?,
        };
        check_names(std::slice::from_ref(&namespace))?;
        let ca = args.service_account.join("ca.crt");
        let agent = tls::agent((CONNECT, PATIENCE), url.starts_with("https://"), Some(&ca))?;
        Ok(Self { agent, url, namespace, account: args.service_account.clone(), pipelines, replicas_max: args.replicas_max })
    }

    /// The pipelines that may be changed.
    pub fn pipelines(&self) -> &[String] {
        &self.pipelines
    }

    /// All pipelines.
    ///
    /// # Errors
    /// As [`Self::scale`].
    pub fn scales(&self) -> Result<Vec<Scale>, Failure> {
        self.pipelines.iter().map(|name| self.scale(name)).collect()
    }

    /// One pipeline.
    ///
    /// # Errors
    /// There is no such pipeline, the rights are missing, or the API server does not answer.
    pub fn scale(&self, name: &str) -> Result<Scale, Failure> {
        let path = self.path(name)?;
        let request = self.agent.get(&path);
        let answer = match self.token()? {
            Some(token) => request.header("Authorization", token).call(),
            None => request.call(),
        };
        self.read_scale(name, "get", answer)
    }

    /// Changes how many of a pipeline are wanted, and returns what holds then.
    ///
    /// # Errors
    /// As [`Self::scale`], and if more are wanted than may be.
    pub fn set(&self, name: &str, replicas: u32) -> Result<Scale, Failure> {
        let path = self.path(name)?;
        if replicas > self.replicas_max {
            let what = format!("cannot run {replicas} of the pipeline '{name}'");
            let why = format!("at most {} are allowed", self.replicas_max);
            let fix = "ask for fewer, or raise --replicas-max (KONKORDIA_REPLICAS_MAX; replicasMax in the chart)";
            return Err(Failure::new(Exit::Usage, what, why, fix));
        }
        let request = self.agent.patch(&path).header("Content-Type", "application/merge-patch+json");
        let body = json!({ "spec": { "replicas": replicas } }).to_string();
        let answer = match self.token()? {
            Some(token) => request.header("Authorization", token).send(body),
            None => request.send(body),
        };
        self.read_scale(name, "patch", answer)
    }

    fn path(&self, name: &str) -> Result<String, Failure> {
        if !self.pipelines.iter().any(|known| known == name) {
            let what = format!("there is no pipeline '{name}'");
            let why = match self.pipelines.is_empty() {
                true => "no pipelines are configured".to_string(),
                false => format!("there are: {}", self.pipelines.join(", ")),
            };
            let fix = "use one of these names, or add it (--pipelines, KONKORDIA_PIPELINES; `pipelines` in the chart)";
            return Err(Failure::new(Exit::Usage, what, why, fix));
        }
        Ok(format!("{}/apis/apps/v1/namespaces/{}/deployments/{name}/scale", self.url, self.namespace))
    }

    /// The token of the service account, read anew because the cluster replaces it every hour. A proxy such as `kubectl
    /// proxy`, which has the rights itself, is used without one.
    fn token(&self) -> Result<Option<String>, Failure> {
        if self.url.starts_with("http://") {
            return Ok(None);
        }
        let token = read(&self.account, "token", "give --service-account, a folder with token and ca.crt")?;
        Ok(Some(format!("Bearer {token}")))
    }

    fn read_scale(&self, name: &str, verb: &str, answer: Result<Response<Body>, ureq::Error>) -> Result<Scale, Failure> {
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            let Answer { spec, status } = answer.body_mut().read_json().map_err(|error| self.strange(&error.to_string()))?;
            return Ok(Scale { pipeline: name.into(), wanted: spec.replicas, pods: status.replicas });
        }
        let said: Value = answer.body_mut().read_json().unwrap_or_default();
        let said = said["message"].as_str().unwrap_or("it gave no reason").to_string();
        Err(self.refused(name, verb, status, said))
    }

    fn refused(&self, name: &str, verb: &str, status: u16, said: String) -> Failure {
        let namespace = &self.namespace;
        let what = format!("the API server refuses to {verb} the scale of the pipeline '{name}' in '{namespace}'");
        match status {
            401 => Failure::new(
                Exit::Configuration,
                what,
                said,
                format!("the token in {} is not valid: is it of this cluster?", self.account.display()),
            ),
            403 => {
                let fix = format!(
                    "give its service account a Role in '{namespace}' with get and patch on deployments/scale of '{name}' (the chart has one: pipelineControl)"
                );
                Failure::new(Exit::Configuration, what, said, fix)
            }
            404 => {
                let what = format!("the pipeline '{name}' is not in the cluster (namespace '{namespace}')");
                Failure::new(Exit::Usage, what, said, "install the chart with this pipeline, or correct the name")
            }
            409 | 422 => Failure::new(Exit::State, what, said, "try again"),
            429 | 500.. => self.strange(&format!("it answered {status}: {said}")),
            _ => Failure::new(Exit::Unreachable, what, format!("{status}: {said}"), "look at the log of the API server"),
        }
    }

    fn strange(&self, why: &str) -> Failure {
        let what = format!("the API server at {} cannot answer", self.url);
        let fix = "what runs goes on without it; try again in a minute";
        Failure::new(Exit::Unreachable, what, why, fix)
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let what = format!("the API server at {} does not answer", self.url);
        let why = match error {
            ureq::Error::Io(error) => tls::refusal(error).unwrap_or_else(|| reason(error)),
            other => other.to_string(),
        };
        let fix = "what runs goes on without it; see in a minute with `konkordia pipelines list` what holds";
        Failure::new(Exit::Unreachable, what, why, fix)
    }
}

/// The address of the API server, as every pod gets it.
pub fn of_this_pod() -> Result<String, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) if host.contains(':') => Ok(format!("https://[{host}]:{port}")),
        (Some(host), Some(port)) => Ok(format!("https://{host}:{port}")),
        _ => {
            let why = "KUBERNETES_SERVICE_HOST is not set, so this is no pod of a cluster";
            let fix = "give --api-server, for example http://127.0.0.1:8001 of `kubectl proxy`";
            Err(Failure::new(Exit::Usage, "which API server?", why, fix))
        }
    }
}

fn read(folder: &Path, file: &str, fix: &str) -> Result<String, Failure> {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path);
    let text =
        text.map_err(|error| Failure { fix: fix.into(), ..Failure::io("cannot read the service account", &path, &error) })?;
    Ok(text.trim().to_string())
}

/// Names become parts of a path.
fn check_names(names: &[String]) -> Result<(), Failure> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let wrong = names.iter().find(|name| name.is_empty() || name.len() > 63 || !name.bytes().all(is_plain));
    if let Some(name) = wrong {
        let why = "names in a cluster have lower case letters, digits and '-', at most 63";
        return Err(Failure::new(Exit::Usage, format!("'{name}' is not a name"), why, "correct it"));
    }
    if names.len() > PIPELINES_MAX {
        let why = format!("at most {PIPELINES_MAX} are supported");
        return Err(Failure::new(Exit::Usage, format!("{} pipelines", names.len()), why, "name fewer"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(url: &str, pipelines: &[&str]) -> ClusterArgs {
        ClusterArgs {
            pipelines: pipelines.iter().map(ToString::to_string).collect(),
            api_server: Some(url.into()),
            service_account: "/nowhere".into(),
            namespace: Some("eiger".into()),
            replicas_max: 20,
        }
    }

    #[test]
    fn only_known_pipelines_and_numbers_reach_the_api_server() {
        let cluster = Cluster::new(&args("http://127.0.0.1:9", &["azint", "spots"])).unwrap();
        let unknown = cluster.scale("indexing").unwrap_err();
        assert!(unknown.exit == Exit::Usage && unknown.why.contains("azint, spots"), "{unknown}");
        assert!(cluster.set("azint", 21).unwrap_err().why.contains("at most 20"));
        let away = cluster.set("azint", 20).unwrap_err();
        assert!(away.exit == Exit::Unreachable && away.fix.contains("goes on"), "{away}");
        assert!(Cluster::new(&args("http://x", &["a/../b"])).is_err_and(|error| error.exit == Exit::Usage));
        assert!(Cluster::new(&args("http://x", &[&"a".repeat(64)])).is_err());
    }
}
