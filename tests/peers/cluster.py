"""A real control plane of Kubernetes in a network namespace of its own: etcd, kube-apiserver, kube-controller-manager and
kube-scheduler, which `scripts/peers` builds. Its nodes are stand-ins (`kubelet.py`)."""

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request

from kubelet import BRIDGE, DEVICES, HOST, Node
from programs import BUILD, wait_until

from driving import BINARY
from network import Namespace

PROGRAMS = BUILD / "kubernetes"
HELM = PROGRAMS / "helm"
TOKEN = "admin-of-this-test"
SECURE = f"https://{HOST}:6443"


class Api:
    """The API server, asked as its administrator."""

    def __init__(self, network, certificate):
        self.network = network
        self.context = ssl.create_default_context(cafile=certificate)

    def ask(self, method, path, body=None, kind="application/json", token=TOKEN):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        request = urllib.request.Request(SECURE + path, data, headers, method=method)
        with self.network.entered(), urllib.request.urlopen(request, timeout=20, context=self.context) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, body):
        return self.ask("POST", path, body)

    def patch(self, path, body, kind="application/merge-patch+json"):
        return self.ask("PATCH", path, body, kind)

    def apply(self, path, body):
        return self.ask("PATCH", f"{path}?fieldManager=test&force=true", body, "application/apply-patch+yaml")

    def delete(self, path, body=None):
        return self.ask("DELETE", path, body)


class Cluster:
    """The control plane, running."""

    def __init__(self, folder):
        self.folder, self.processes, self.nodes = folder, {}, []
        self.network = Namespace()
        self.certificate = folder / "ca.crt"  # of the authority that signs the API server's
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def begin(self):
        for command in ("link set lo up", f"link add {BRIDGE} type bridge", f"addr add {HOST}/16 dev {BRIDGE}", f"link set {BRIDGE} up"):
            self.network.ip(command)
        self.make_root()
        self.make_certificates()
        self.start_etcd()
        self.start_api_server()
        config = f"--kubeconfig={self.kubeconfig}"
        quick = ["--node-monitor-grace-period=8s", "--node-monitor-period=1s", "--leader-elect=false"]
        key = f"--service-account-private-key-file={self.folder}/accounts.key"
        self.start("manager", PROGRAMS / "kube-controller-manager", config, key, f"--root-ca-file={self.certificate}", "--use-service-account-credentials=false", "--concurrent-deployment-syncs=5", *quick)
        self.start("scheduler", PROGRAMS / "kube-scheduler", config, "--leader-elect=false", f"--authentication-kubeconfig={self.kubeconfig}")

    def make_root(self):
        """The root of our image: the program, and the libraries that it needs."""
        self.root = self.folder / "image"
        for name in ("usr/bin", "etc", "proc", "dev", "tmp", "data"):
            (self.root / name).mkdir(parents=True)
        for name in DEVICES:
            (self.root / "dev" / name).touch()
        (self.root / "etc/hosts").touch()
        (self.root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
        subprocess.run(["strip", "-o", self.root / "usr/bin/konkordia", BINARY], check=True)
        for word in subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout.split():
            if word.startswith("/"):
                target = self.root / word.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(os.path.realpath(word), target)

    def make_certificates(self):
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        names = ["-addext", f"subjectAltName=IP:{HOST},IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        authority = ["-subj", "/CN=authority", "-keyout", f"{self.folder}/ca.key", "-out", self.certificate]
        server = ["-subj", "/CN=api-server", "-keyout", f"{self.folder}/server.key", "-out", f"{self.folder}/server.crt"]
        signed = ["-CA", self.certificate, "-CAkey", f"{self.folder}/ca.key", *names]
        for options in (authority, [*server, *signed]):
            subprocess.run(["openssl", "req", "-x509", *curve, *options], check=True, capture_output=True)
        subprocess.run(["openssl", "genrsa", "-out", f"{self.folder}/accounts.key", "2048"], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        self.kubeconfig = self.folder / "kubeconfig"
        user = {"name": "admin", "user": {"token": TOKEN}}
        server = {"name": "test", "cluster": {"server": SECURE, "certificate-authority": str(self.certificate)}}
        context = {"name": "test", "context": {"cluster": "test", "user": "admin"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "test", "users": [user], "clusters": [server], "contexts": [context]}
        self.kubeconfig.write_text(json.dumps(config))

    def start(self, name, *command):
        with open(self.folder / f"{name}.log", "ab") as log, self.network.entered():
            self.processes[name] = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_etcd(self):
        urls = {"listen-client-urls": "http://127.0.0.1:2379", "advertise-client-urls": "http://127.0.0.1:2379", "listen-peer-urls": "http://127.0.0.1:2380"}
        self.start("etcd", "etcd", f"--data-dir={self.folder}/etcd", *(f"--{name}={value}" for name, value in urls.items()))

    def start_api_server(self):
        folder = self.folder
        options = {
            "etcd-servers": "http://127.0.0.1:2379",
            "secure-port": 6443,
            "advertise-address": HOST,
            "service-cluster-ip-range": "10.96.0.0/24",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": folder / "accounts.key",
            "service-account-key-file": folder / "accounts.key",
            "token-auth-file": folder / "tokens.csv",
            "tls-cert-file": folder / "server.crt",
            "tls-private-key-file": folder / "server.key",
            "authorization-mode": "RBAC",
            "endpoint-reconciler-type": "none",
            "default-not-ready-toleration-seconds": 3,
            "default-unreachable-toleration-seconds": 3,
            "cert-dir": folder,
            "allow-privileged": "true",
        }
        self.start("apiserver", PROGRAMS / "kube-apiserver", *(f"--{name}={value}" for name, value in options.items()))
        self.api = Api(self.network, self.certificate)
        wait_until(self.is_ready, 120, "the API server")

    def stop_program(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def is_ready(self):
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} has ended: {(self.folder / f'{name}.log').read_text()[-2000:]}"
        return self.api.get("/readyz") == "ok"

    def node(self, name, networks=()):
        self.nodes.append(Node(self, name, networks))
        return self.nodes[-1]

    def services(self, namespace):
        """The address of a pod behind each Service of a namespace."""
        found = {}
        for one in self.api.get(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")["items"]:
            for endpoint in one.get("endpoints") or []:
                found[one["metadata"]["labels"]["kubernetes.io/service-name"]] = endpoint["addresses"][0]
        return found

    def pod(self, namespace, name):
        """The running stand-in of a pod, the newest of this name."""
        pods = [pod for node in self.nodes for pod in node.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return pods[-1] if pods else None

    def helm(self, *arguments, check=True, values=None):
        options = []
        if values is not None:
            file = self.folder / f"values-{time.monotonic_ns()}.json"
            file.write_text(json.dumps(values))
            options = ["--values", file]
        command = [HELM, "--kubeconfig", self.kubeconfig, *arguments, *options]
        environment = {**os.environ, "HOME": str(self.folder), "HELM_CACHE_HOME": str(self.folder / "helm")}
        with self.network.entered():
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, env=environment)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def end(self):
        for node in self.nodes:
            node.stop()
        for process in reversed(list(self.processes.values())):
            process.kill()
            process.wait()
        self.network.end()


def refusal(call):
    """What the API server says when it refuses this."""
    try:
        call()
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["message"]
    raise AssertionError("it was not refused")
