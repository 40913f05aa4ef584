//! Processes of a graph that find each other in etcd or in the API server of Kubernetes. Each process where edges begin
//! announces its addresses, and each process where one ends looks for those of the stage before it. Nothing else
//! depends on the directory: while it does not answer, all go on with the addresses that they know.

use crate::pipelines::cluster::of_this_pod;
use crate::serve::client::tls;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossbeam_channel::{Receiver, Sender, bounded};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_graph::file::{Directory, Discovery};
use konkordia_graph::producer::MEMBERS_MAX;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::{Agent, http};

/// Longest time of a request.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the directory is asked.
const LOOK: Duration = Duration::from_secs(1);
/// What was announced is forgotten by etcd after so long without a sign of life.
const LEASE_S: u64 = 10;
/// How often such a sign is given.
const RENEW: Duration = Duration::from_secs(3);
/// Folder of the service account in a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// One end of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The stage before it.
    pub from: String,
    /// The stage behind it.
    pub to: String,
}

/// The thread that talks to the directory; it ends with this.
pub struct Finder {
    found: Receiver<String>,
    trouble: Arc<Mutex<Option<String>>>,
    stop: Option<Sender<()>>,
    left: Receiver<()>,
}

/// Where a directory is, and how it is asked.
struct Client {
    agent: Agent,
    url: String,
    directory: Directory,
    name: String,
    namespace: String,
    account: PathBuf,
    lease: Option<String>,
}

impl Finder {
    /// Announces `addresses` of `member`, each for an edge, and looks for those of an edge that ends here.
    ///
    /// # Errors
    /// It is not clear which directory.
    pub fn start(
        discovery: &Discovery,
        member: &str,
        addresses: Vec<(End, String)>,
        wanted: Option<End>,
    ) -> Result<Self, Failure> {
        let mut client = Client::new(discovery)?;
        let (to, found) = bounded(MEMBERS_MAX);
        let (stop, stopped) = bounded::<()>(0);
        let (leaving, left) = bounded::<()>(0);
        let trouble = Arc::new(Mutex::new(None));
        let (said, member) = (Arc::clone(&trouble), member.to_owned());
        let work = move || {
            // Dropped when the thread ends.
            let _leaving = leaving;
            let (mut known, mut announced, mut since) = (BTreeSet::new(), None::<Instant>, None);
            loop {
                let outcome = client.turn(&member, &addresses, wanted.as_ref(), &mut announced);
                let why = outcome.as_ref().err().cloned();
                since = why.as_ref().and_then(|_| since.or_else(|| Some(Instant::now())));
                *said.lock().unwrap_or_else(PoisonError::into_inner) =
                    why.zip(since).map(|(why, since)| format!("{why} (since {} s)", since.elapsed().as_secs()));
                for address in outcome.unwrap_or_default() {
                    if known.len() < MEMBERS_MAX && known.insert(address.clone()) && to.send(address).is_err() {
                        return;
                    }
                }
                if !matches!(stopped.recv_timeout(LOOK), Err(crossbeam_channel::RecvTimeoutError::Timeout)) {
                    client.leave(&member, &addresses);
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("discovery".into()).spawn(work);
        thread.map_err(|error| super::work::no_thread(&error))?;
        Ok(Self { found, trouble, stop: Some(stop), left })
    }

    /// An address that was not known before.
    pub fn found(&self) -> Option<String> {
        self.found.try_recv().ok()
    }

    /// Why the directory could not be asked the last time.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Finder {
    /// Gives the thread time to say that the process is gone.
    fn drop(&mut self) {
        self.stop = None;
        _ = self.left.recv_timeout(PATIENCE);
    }
}

/// The address of this host on the way to the directory.
///
/// # Errors
/// There is no way.
pub fn own_address(discovery: &Discovery) -> Result<IpAddr, Failure> {
    let url = url(discovery)?;
    let host = url.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default().to_owned();
    let with_port = if host.ends_with(']') || !host.contains(':') { format!("{host}:80") } else { host };
    let find = || {
        let to = with_port.to_socket_addrs()?.next().ok_or_else(|| std::io::Error::other("it has no address"))?;
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        // Nothing is sent: the kernel only chooses the way.
        socket.connect(to)?;
        socket.local_addr().map(|address| address.ip())
    };
    find().map_err(|error: std::io::Error| {
        let fix = "correct [discovery] url, or give the host an address in [[host]]";
        Failure::new(Exit::Unreachable, format!("there is no way to {url}"), reason(&error), fix)
    })
}

fn url(discovery: &Discovery) -> Result<String, Failure> {
    match (&discovery.url, discovery.kind) {
        (Some(url), _) => Ok(url.trim_end_matches('/').to_owned()),
        (None, Directory::Kubernetes) => of_this_pod(),
        (None, Directory::Etcd) => {
            let why = "[discovery] kind = \"etcd\" needs 'url'";
            Err(Failure::new(Exit::Configuration, "which etcd?", why, "give for example url = \"http://10.0.0.1:2379\""))
        }
    }
}

impl Client {
    fn new(discovery: &Discovery) -> Result<Self, Failure> {
        let account = discovery.service_account.clone().unwrap_or_else(|| ACCOUNT.into());
        let url = url(discovery)?;
        let ca = account.join("ca.crt");
        let agent = tls::agent((PATIENCE, PATIENCE), url.starts_with("https://"), ca.exists().then_some(&ca))?;
        let of_pod = || std::fs::read_to_string(account.join("namespace")).map(|text| text.trim().to_owned());
        let namespace = discovery.namespace.clone().or_else(|| of_pod().ok()).unwrap_or_else(|| "default".into());
        let (directory, name) = (discovery.kind, discovery.name.clone());
        Ok(Self { agent, url, directory, name, namespace, account, lease: None })
    }

    /// Announces what was not announced for long, and returns the addresses of an edge.
    fn turn(
        &mut self,
        member: &str,
        addresses: &[(End, String)],
        wanted: Option<&End>,
        announced: &mut Option<Instant>,
    ) -> Result<Vec<String>, String> {
        if !addresses.is_empty() && announced.is_none_or(|at| at.elapsed() > RENEW) {
            match self.directory {
                Directory::Etcd => self.announce_in_etcd(member, addresses)?,
                Directory::Kubernetes => {
                    addresses.iter().try_for_each(|(end, address)| self.announce_in_cluster(member, end, address))?;
                }
            }
            *announced = Some(Instant::now());
        }
        match (wanted, self.directory) {
            (None, _) => Ok(Vec::new()),
            (Some(end), Directory::Etcd) => self.find_in_etcd(end),
            (Some(end), Directory::Kubernetes) => self.find_in_cluster(end),
        }
    }

    fn ask(&self, method: http::Method, path: &str, content: &str, body: Option<&Value>) -> Result<(u16, Value), String> {
        let mut request = http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        request = request.header("Content-Type", content);
        if self.directory == Directory::Kubernetes
            && let Ok(token) = std::fs::read_to_string(self.account.join("token"))
        {
            // Read anew, because the cluster replaces it every hour.
            request = request.header("Authorization", format!("Bearer {}", token.trim()));
        }
        let bytes = body.map(ToString::to_string).unwrap_or_default();
        let answer = request.body(bytes).map_err(|error| error.to_string()).and_then(|request| {
            self.agent.run(request).map_err(|error| match error {
                ureq::Error::Io(error) => reason(&error),
                other => other.to_string(),
            })
        });
        let mut answer = answer.map_err(|why| format!("{} does not answer: {why}", self.url))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().map_err(|error| format!("{} cannot be understood: {error}", self.url))?;
        Ok((status, serde_json::from_str(&text).unwrap_or_default()))
    }

    /// As [`Self::ask`]; another status than 2xx is an error.
    fn need(&self, method: http::Method, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let (status, said) = self.ask(method, path, "application/json", body)?;
        self.checked(status, said)
    }

    fn checked(&self, status: u16, said: Value) -> Result<Value, String> {
        if (200..300).contains(&status) {
            return Ok(said);
        }
        let why = said["message"].as_str().or_else(|| said["error"].as_str()).unwrap_or("it gave no reason").to_owned();
        Err(format!("{} refuses ({status}): {why}", self.url))
    }

    fn etcd(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.need(http::Method::POST, path, Some(body))
    }

    /// Edges are folders of keys.
    fn folder(&self, end: &End) -> String {
        format!("/konkordia/{}/{}/{}/", self.name, end.from, end.to)
    }

    fn announce_in_etcd(&mut self, member: &str, addresses: &[(End, String)]) -> Result<(), String> {
        if let Some(lease) = &self.lease {
            let said = self.etcd("/v3/lease/keepalive", &json!({ "ID": lease }))?;
            // A lease that has expired has no time left.
            if said["result"]["TTL"].as_str().is_some_and(|seconds| seconds != "0") {
                return Ok(());
            }
        }
        let said = self.etcd("/v3/lease/grant", &json!({ "TTL": LEASE_S, "ID": 0 }))?;
        let lease = said["ID"].as_str().ok_or_else(|| format!("{} gives no lease; is it etcd 3.4 or newer?", self.url))?;
        for (end, address) in addresses {
            let key = STANDARD.encode(format!("{}{member}", self.folder(end)));
            self.etcd("/v3/kv/put", &json!({ "key": key, "value": STANDARD.encode(address), "lease": lease }))?;
        }
        self.lease = Some(lease.to_owned());
        Ok(())
    }

    fn find_in_etcd(&self, end: &End) -> Result<Vec<String>, String> {
        let folder = self.folder(end);
        // All keys of the folder: '0' is the letter behind '/'.
        let behind = format!("{}0", folder.trim_end_matches('/'));
        let range = json!({ "key": STANDARD.encode(&folder), "range_end": STANDARD.encode(behind), "limit": MEMBERS_MAX });
        let said = self.etcd("/v3/kv/range", &range)?;
        let value = |entry: &Value| String::from_utf8(STANDARD.decode(entry["value"].as_str()?).ok()?).ok();
        Ok(said["kvs"].as_array().into_iter().flatten().filter_map(value).collect())
    }

    fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn lease_of(&self, member: &str, end: &End) -> String {
        format!("{}-{}-{member}-{}", self.name, end.from, end.to).to_ascii_lowercase().replace('_', "-")
    }

    fn announce_in_cluster(&self, member: &str, end: &End, address: &str) -> Result<(), String> {
        let name = self.lease_of(member, end);
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "labels": { "konkordia/graph": self.name },
                "annotations": { "konkordia/from": end.from, "konkordia/to": end.to, "konkordia/address": address },
            },
            "spec": { "holderIdentity": member, "leaseDurationSeconds": LEASE_S },
        });
        let path = format!("{}/{name}", self.leases());
        let (status, said) = self.ask(http::Method::PATCH, &path, "application/merge-patch+json", Some(&body))?;
        if status == 404 {
            return self.need(http::Method::POST, &self.leases(), Some(&body)).map(|_| ());
        }
        self.checked(status, said).map(|_| ())
    }

    fn find_in_cluster(&self, end: &End) -> Result<Vec<String>, String> {
        let path = format!("{}?limit={MEMBERS_MAX}&labelSelector=konkordia%2Fgraph%3D{}", self.leases(), self.name);
        let said = self.need(http::Method::GET, &path, None)?;
        let of_edge = |item: &&Value| {
            let notes = &item["metadata"]["annotations"];
            notes["konkordia/from"] == end.from.as_str() && notes["konkordia/to"] == end.to.as_str()
        };
        let address = |item: &Value| item["metadata"]["annotations"]["konkordia/address"].as_str().map(str::to_owned);
        Ok(said["items"].as_array().into_iter().flatten().filter(of_edge).filter_map(address).collect())
    }

    /// What was announced is no longer so. Without it etcd forgets it later, and in a cluster it is replaced.
    fn leave(&self, member: &str, addresses: &[(End, String)]) {
        match (self.directory, &self.lease) {
            (Directory::Etcd, Some(lease)) => _ = self.etcd("/v3/lease/revoke", &json!({ "ID": lease })),
            (Directory::Etcd, None) => (),
            (Directory::Kubernetes, _) => {
                for (end, _) in addresses {
                    let path = format!("{}/{}", self.leases(), self.lease_of(member, end));
                    _ = self.need(http::Method::DELETE, &path, None);
                }
            }
        }
    }
}
