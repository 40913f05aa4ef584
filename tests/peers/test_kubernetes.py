"""The chart, the policies and the pipeline control of `deploy/kubernetes` on a real control plane of Kubernetes."""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pytest
import yaml
from cluster import HELM, HOST, PROGRAMS, Cluster, refusal
from programs import BUILD, wait_until

from driving import BINARY

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy/kubernetes"
CHART = DEPLOY / "konkordia"
IMAGE = "registry.test/konkordia:0.1.0"
UID = 1201
NEEDED = [HELM, *(PROGRAMS / name for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"))]
helm_only = [pytest.mark.peer("Helm"), pytest.mark.skipif(not HELM.exists(), reason=f"{HELM} is not there; scripts/peers says why")]
on_a_cluster = [
    pytest.mark.peer("Kubernetes"),
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the namespaces"),
    pytest.mark.skipif(not all(path.exists() for path in NEEDED) or not shutil.which("etcd"), reason="the control plane is not there; scripts/peers says why"),
]


def marked(marks):
    def apply(function):
        for mark in marks:
            function = mark(function)
        return function

    return apply


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    one = Cluster(tmp_path_factory.mktemp("cluster"))
    one.node("a", ["purple"])
    yield one
    one.end()


class Release:
    """A detector in a namespace of its own, with the values of the chart for it."""

    def __init__(self, cluster, folder, name, port, **values):
        self.cluster, self.name, self.api = cluster, name, cluster.api
        self.data = folder / "data"
        self.data.mkdir()
        self.data.chmod(0o777)
        self.port = port
        tokens = folder / "tokens"
        made = subprocess.run([BINARY, "token", "create", "drain", "--role", "operate", "--file", tokens], capture_output=True, text=True, check=True)
        self.token = made.stdout.strip()
        annotations = {"konkordia/uid": str(UID), "konkordia/host-paths": str(self.data), "konkordia/networks": "purple"}
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"konkordia/detector": name}, "annotations": annotations}})
        data = {"tokens": tokens.read_text(), "drain": self.token}
        secret = {"metadata": {"name": "tokens"}, "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}
        self.api.post(f"/api/v1/namespaces/{name}/secrets", secret)
        wait_until(lambda: self.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"), 30, "the service account")
        self.values = {
            "image": IMAGE,
            "tokensSecret": "tokens",
            "detector": {"address": f"tcp://{HOST}:{port}", "protocol": "stins", "accept": "armed", "extra": "[run]\nstall_timeout_s = 30.0\n"},
            "output": {"directory": "/data"},
            "mounts": [{"name": "data", "path": "/data", "hostPath": str(self.data)}],
            "user": {"uid": UID, "gid": UID},
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
            "drain": {"longestRunSeconds": 120, "closeSeconds": 20},
            **values,
        }

    def helm(self, verb, check=True, **values):
        return self.cluster.helm(verb, self.name, CHART, "--namespace", self.name, check=check, values={**self.values, **values})

    def pod(self):
        return self.cluster.pod(self.name, f"{self.name}-0")

    def ready(self, after=None):
        """The stand-in of the pod when it is ready, another one than `after`."""

        def look():
            pod = self.pod()
            return pod if pod and pod.ready and pod is not after and not pod.ending else None

        try:
            return wait_until(look, 90, "a ready pod")
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.explain()}") from None

    def explain(self):
        events = self.api.get(f"/api/v1/namespaces/{self.name}/events")["items"]
        logs = [pod.log.read_text()[-2000:] for node in self.cluster.nodes for pod in node.pods.values() if pod.namespace == self.name and pod.log.exists()]
        return "\n".join([event["message"] for event in events] + logs)

    def ask(self, method, path, body=None, pod=None, port=8090, token=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
        url = f"http://{(pod or self.pod()).address}:{port}{path}"
        with self.cluster.network.entered(), urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=20) as answer:
            return json.loads(answer.read())

    @contextlib.contextmanager
    def sending(self, images, rate, series=1):
        """The detector: it waits for a receiver, then sends."""
        command = [BINARY, "stream", "--to", f"tcp://{HOST}:{self.port}", "--size", "20k", "--images", images, "--rate", rate, "--series", series, "--wait", 60]
        with self.cluster.network.entered():
            process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run_of(self, images, rate, prefix):
        self.ask("POST", "/api/v1/arm", {"images": images, "prefix": prefix})
        return self.sending(images, rate)

    def is_whole(self, prefix, images):
        """The file of a run is valid and has all of its images."""
        (master,) = self.data.glob(f"{prefix}*_master.h5")
        done = subprocess.run([BINARY, "check", master], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        seen = json.loads(subprocess.run([BINARY, "inspect", master, "--json"], capture_output=True, text=True, check=True).stdout)
        assert seen["images"] == images, seen
        ledger = seen["ledger"]
        return ledger

    def end(self):
        self.helm_uninstall()

    def helm_uninstall(self):
        self.cluster.helm("uninstall", self.name, "--namespace", self.name, check=False)
        for node in self.cluster.nodes:
            for pod in list(node.pods.values()):
                if pod.namespace == self.name:
                    pod.kill()


@pytest.fixture
def release(cluster, tmp_path, request):
    made = []

    def make(name, port, **values):
        made.append(Release(cluster, tmp_path, name, port, **values))
        return made[-1]

    yield make
    for one in made:
        one.end()


def template(values, namespace="eiger", *options):
    command = [HELM, "template", "eiger", CHART, "--namespace", namespace, "--kube-version", "1.36.3", "--values", "-", *options]
    return subprocess.run([str(part) for part in command], input=json.dumps(values), capture_output=True, text=True, timeout=120)


@marked(helm_only)
@pytest.mark.peer("kubernetes-validate")
def test_the_chart_is_valid(tmp_path):
    """Helm finds no mistake in the chart, and what it makes fits the schemas of Kubernetes strictly."""
    assert (CHART / "dashboards/konkordia.json").read_text() == (ROOT / "deploy/grafana-dashboard.json").read_text(), "copy it"
    for values in sorted(DEPLOY.glob("gitops/detectors/*/values.yaml")):
        done = subprocess.run([HELM, "lint", "--strict", CHART, "--kube-version", "1.36.3", "--namespace", "eiger", "--values", values], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        full = {
            **yaml.safe_load(values.read_text()),
            "pipelines": {"azint": {"command": ["azint"]}},
            "pipelineControl": {"enabled": True},
            "http": {"ingress": {"host": "eiger.example.org", "tlsSecret": "eiger-tls"}},
            "monitoring": {"dashboards": True, "serviceMonitor": True, "tokenSecret": {"name": "grafana", "key": "token"}},
        }
        done = template(full)
        assert done.returncode == 0, done.stderr
        objects = [one for one in yaml.safe_load_all(done.stdout) if one]
        kinds = {one["kind"] for one in objects}
        assert kinds >= {"StatefulSet", "Service", "Ingress", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor", "Role", "Job", "ConfigMap"}, kinds
        dashboard = next(one for one in objects if one["metadata"]["name"] == "eiger-dashboard")
        assert json.loads(dashboard["data"]["konkordia.json"])["panels"]
        validate = BUILD / "kubernetes-validate"
        if not validate.exists():
            pytest.skip("kubernetes-validate is not there; scripts/peers says why")
        known = [one for one in objects if one["kind"] != "ServiceMonitor"]
        code = "import sys, json, kubernetes_validate as k\nfor one in json.load(sys.stdin): k.validate(one, '1.36', strict=True)"
        checked = subprocess.run(["python3", "-c", code], input=json.dumps(known), capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(validate)})
        assert checked.returncode == 0, checked.stderr
        config = next(one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "eiger-config")["data"]["konkordia.toml"]
        file = tmp_path / "konkordia.toml"
        file.write_text(config.replace("/etc/konkordia/secret/tokens", str(tmp_path / "tokens")).replace("/data/visitors", str(tmp_path)).replace("10.20.0.7", "127.0.0.1"))
        (tmp_path / "eiger").mkdir(exist_ok=True)
        if "jungfrau" not in config:
            seen = subprocess.run([BINARY, "config", "check", file], capture_output=True, text=True)
            assert seen.returncode == 0, seen.stdout + seen.stderr


@marked(helm_only)
def test_the_template_for_gitops_fits_together():
    """Each folder of a detector allows in its namespace what its values ask for; the other files are valid YAML."""
    folders = sorted((DEPLOY / "gitops/detectors").iterdir())
    assert len(folders) >= 2
    for folder in folders:
        namespace = yaml.safe_load((folder / "namespace.yaml").read_text())["metadata"]
        values = yaml.safe_load((folder / "values.yaml").read_text())
        allowed = namespace["annotations"]
        assert namespace["name"] == folder.name == namespace["labels"]["konkordia/detector"]
        assert allowed["konkordia/uid"] == str(values["user"]["uid"])
        assert set(values["networks"]) == set(allowed["konkordia/networks"].split(","))
        for mount in values["mounts"]:
            hosts = allowed["konkordia/host-paths"].split(",")
            assert "hostPath" not in mount or any(mount["hostPath"].startswith(f"{host}/") for host in hosts), mount
        assert len([line for line in (DEPLOY / "gitops/detectors/eiger/values.yaml").read_text().splitlines() if not line.startswith("#")]) <= 15
    generator = yaml.safe_load((DEPLOY / "gitops/argocd.yaml").read_text())
    assert generator["spec"]["generators"][0]["git"]["directories"] == [{"path": "detectors/*"}]
    rules = [rule["name"] for policy in yaml.safe_load_all((DEPLOY / "policies/kyverno.yaml").read_text()) for rule in policy["spec"]["rules"]]
    assert rules == ["user", "privileged", "mounts", "networks", "interface", "annotation"]


GOOD = {"image": IMAGE, "tokensSecret": "t", "detector": {"address": "tcp://10.0.0.1:9999"}, "output": {"directory": "/data/x"}, "mounts": [{"name": "data", "path": "/data", "claim": "gpfs"}]}
WRONG = {
    "a key that is not known": ({"wrokers": 4}, "wrokers"),
    "text for a number": ({"workers": "four"}, "workers"),
    "an address without protocol": ({"detector": {"address": "10.0.0.1:9999"}}, "detector"),
    "a protocol that is not known": ({"detector": {"address": "tcp://10.0.0.1:9999", "protocol": "stream3"}}, "must be one of 'stins'"),
    "root": ({"user": {"uid": 0, "gid": 1}}, "uid"),
    "two sources of a mount": ({"mounts": [{"name": "data", "path": "/data", "claim": "a", "hostPath": "/b"}]}, "mounts"),
    "an image without tag": ({"image": "konkordia"}, "image"),
    "no image": ({"image": None}, "image"),
    "an output that is in no mount": ({"output": {"directory": "/elsewhere"}}, "add it to mounts"),
    "no detector": ({"detector": {"address": ""}}, "which detector?"),
    "two detectors": ({"detector": {"address": "tcp://10.0.0.1:1", "config": "[detector]"}}, "both given"),
    "a port of root": ({"http": {"port": 80}}, "port"),
    "too large a group of pipelines": ({"pipelineControl": {"replicasMax": 100000}}, "replicasMax"),
}


@marked(helm_only)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_refused_with_a_clear_error(case):
    """Wrong values of the chart are refused, and the error names the key."""
    change, named = WRONG[case]
    assert template(GOOD).returncode == 0
    done = template({**GOOD, **change})
    assert done.returncode != 0 and named in done.stderr, done.stderr
    assert "namespace of its own" in template(GOOD, "default").stderr


@marked(on_a_cluster)
def test_an_upgrade_in_mid_run_waits_and_loses_nothing(release):
    """Installed by Helm on a real control plane; an upgrade in mid-run waits for the run, and no image is lost."""
    eiger = release("eiger", 31001)
    eiger.helm("install")
    first = eiger.ready()
    assert eiger.ask("GET", "/api/v1/status")["state"] == "idle"
    images = 1000
    with eiger.run_of(images, 60, "first") as sender:
        wait_until(lambda: eiger.ask("GET", "/api/v1/status")["images_committed"] > 50, 30, "images")
        eiger.helm("upgrade", workers=2)
        wait_until(lambda: first.ending, 60, "the end of the old pod")
        time.sleep(1)
        # The interface stays, shows the run, and lets nobody begin another one.
        assert eiger.ask("GET", "/api/v1/status", pod=first)["state"] == "running"
        with pytest.raises(urllib.error.HTTPError) as refused:
            eiger.ask("POST", "/api/v1/start", {"images": 1, "prefix": "late"}, pod=first)
        assert refused.value.code == 409
        assert eiger.cluster.services("eiger")["eiger"] == first.address
        second = eiger.ready(after=first)
        assert sender.wait(60) == 0, sender.stderr.read()
    assert first.hook and "first" in first.hook, (first.hook, first.log.read_text()[-3000:])
    ledger = eiger.is_whole("first", images)
    assert first.deleted, ledger
    # The new pod has the new configuration, and takes the next run.
    assert eiger.ask("GET", "/api/v1/configuration")["processing"]["workers"] == 2
    with eiger.run_of(100, 100, "second"):
        wait_until(lambda: eiger.pod().ready and eiger.ask("GET", "/api/v1/status")["images_committed"] == 100, 60, "the second run")
        wait_until(lambda: eiger.ask("GET", "/api/v1/status")["state"] == "idle", 60, "its end")
    eiger.is_whole("second", 100)
    assert second is eiger.pod()
    print(f"upgrade in mid-run: {images} of {images} images, and 100 of 100 after it; the hook said: {first.hook.strip()}")


@marked(on_a_cluster)
def test_a_wrong_configuration_never_reaches_the_receiver(release):
    """A configuration that the program refuses stops the upgrade; the receiver goes on with the one that it has."""
    eiger = release("wrong", 31002)
    eiger.helm("install")
    first = eiger.ready()
    done = eiger.helm("upgrade", check=False, detector={**eiger.values["detector"], "extra": "[run]\nno_such_key = 1\n"})
    assert done.returncode != 0 and "pre-upgrade" in done.stderr, done.stderr
    check = [pod for node in eiger.cluster.nodes for pod in node.pods.values() if pod.namespace == "wrong" and "config-check" in pod.name][-1]
    assert "no_such_key" in check.log.read_text()
    assert eiger.pod() is first and not first.ending and eiger.ask("GET", "/api/v1/status")["state"] == "idle"
    # A mistake of a user, after which the detector is in its error state or not armed, does not make the pod unready.
    with pytest.raises(urllib.error.HTTPError):
        eiger.ask("POST", "/api/v1/arm", {"images": 1, "prefix": "../../outside"})
    time.sleep(2)
    assert first.ready and eiger.pod() is first


def apply_policies(cluster):
    paths = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "MutatingAdmissionPolicy": "mutatingadmissionpolicies"}
    paths |= {f"{kind}Binding": path[:-3] + "ybindings" for kind, path in paths.items()}
    for one in yaml.safe_load_all((DEPLOY / "policies/admission.yaml").read_text()):
        cluster.api.apply(f"/apis/{one['apiVersion']}/{paths[one['kind']]}/{one['metadata']['name']}", one)


def plain_pod(**spec):
    container = {"name": "c", "image": IMAGE}
    return {"metadata": {"generateName": "p-", **spec.pop("metadata", {})}, "spec": {"securityContext": {"runAsUser": UID}, "containers": [container], **spec}}


@marked(on_a_cluster)
def test_the_policies_refuse_and_the_label_gives_an_interface(cluster, release):
    """The policies of the API server refuse users, mounts and networks that a namespace does not allow; a label becomes an SR-IOV interface."""
    apply_policies(cluster)
    policed = release("policed", 31003, networks={"purple": "dhcp"})
    path = "/api/v1/namespaces/policed/pods?dryRun=All"

    def said(pod):
        return refusal(lambda: cluster.api.post(path, pod))

    wait_until(lambda: refused_or_not(cluster, path, plain_pod(securityContext={"runAsUser": 0})), 30, "the policies")
    assert "run as the user 1201" in said(plain_pod(securityContext={"runAsUser": 0}))
    assert "run as the user 1201" in said(plain_pod(securityContext={}))
    assert "another user" in said(plain_pod(containers=[{"name": "c", "image": IMAGE, "securityContext": {"runAsUser": 0}}]))
    assert "privileged" in said(plain_pod(containers=[{"name": "c", "image": IMAGE, "securityContext": {"privileged": True}}]))
    assert "a mount is not allowed: /etc" in said(plain_pod(volumes=[{"name": "v", "hostPath": {"path": "/etc"}}]))
    assert "a mount is not allowed" in said(plain_pod(volumes=[{"name": "v", "hostPath": {"path": f"{policed.data}/../.."}}]))
    assert "network of the host" in said(plain_pod(hostNetwork=True))
    assert "daq.network.interface/green" in said(plain_pod(metadata={"labels": {"daq.network.interface/green": "dhcp"}}))
    # What is allowed passes, and the label becomes the annotation of Multus and the resource of the device plugin.
    made = cluster.api.post(path, plain_pod(metadata={"labels": {"daq.network.interface/purple": "dhcp"}}, volumes=[{"name": "v", "hostPath": {"path": str(policed.data)}}]))
    assert made["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "purple"
    assert made["spec"]["containers"][0]["resources"]["limits"]["daq.network.interface/purple"] == "1"
    assert "annotations" not in cluster.api.post(path, plain_pod())["metadata"]
    # The chart with this network runs on the node that has one to give.
    policed.helm("install")
    pod = policed.ready()
    assert pod.node.name == "a" and pod.pod["spec"]["containers"][0]["resources"]["requests"]["daq.network.interface/purple"] == "1"


def refused_or_not(cluster, path, pod):
    try:
        cluster.api.post(path, pod)
    except urllib.error.HTTPError:
        return True
    return False


def pipelines(release, control, method, name="", verb="", body=None, token=None):
    path = "/pipelines" + (f"/{name}/{verb}" if name else "")
    return release.ask(method, path, body, pod=control, port=8091, token=token)


@marked(on_a_cluster)
def test_pipelines_go_from_0_to_20_and_back(cluster, release):
    """Pipeline control with a service account of least rights scales from 0 to 20 pods in under 10 s, and back when the detector is idle."""
    command = ["/usr/bin/konkordia", "record", "tcp://127.0.0.1:9", "--kind", "sub", "-o", "/tmp/x.zmsg"]
    values = {"pipelines": {"azint": {"command": command}, "spots": {"command": command}}, "pipelineControl": {"enabled": True, "idleSeconds": 2, "downWhenIdle": False}}
    piped = release("piped", 31004, **values)
    piped.helm("install")
    piped.ready()

    def named(name):
        return [pod for node in cluster.nodes for pod in node.pods.values() if pod.namespace == "piped" and pod.name.startswith(name) and not pod.ending]

    control = wait_until(lambda: next((pod for pod in named("piped-pipelines") if pod.ready), None), 60, "pipeline control")
    assert [one["wanted"] for one in pipelines(piped, control, "GET")["pipelines"]] == [0, 0]
    begun = time.monotonic()
    assert pipelines(piped, control, "POST", "azint", "up", {"replicas": 20})["wanted"] == 20
    wait_until(lambda: sum(pod.process is not None and pod.process.poll() is None for pod in named("azint-")) == 20, 60, "20 pods")
    ready_s = time.monotonic() - begun
    print(f"pipeline control: 0 to 20 running pods in {ready_s:.1f} s")
    # An upgrade of the chart leaves the number.
    piped.helm("upgrade")
    assert pipelines(piped, control, "GET")["pipelines"][0]["wanted"] == 20
    assert pipelines(piped, control, "POST", "azint", "down", {"when_idle": True})["when_idle"]
    wait_until(lambda: pipelines(piped, control, "GET")["pipelines"][0]["wanted"] == 0, 30, "no pipeline while idle")
    wait_until(lambda: not named("azint-"), 60, "no pods")
    for name, body, code in (("indexing", {"replicas": 1}, 404), ("azint", {"replicas": 21}, 422), ("azint", {"replicas": -1}, 422)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            pipelines(piped, control, "POST", name, "up", body)
        assert refused.value.code == code, refused.value.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        pipelines(piped, control, "POST", "azint", "up", {"replicas": 1}, token="wrong")
    assert refused.value.code == 401
    # Its service account may do nothing else.
    account = cluster.api.post("/api/v1/namespaces/piped/serviceaccounts/piped-pipelines/token", {"spec": {}})["status"]["token"]
    for path in ("/api/v1/namespaces/piped/secrets/tokens", "/api/v1/namespaces/piped/pods", "/apis/apps/v1/namespaces/piped/deployments/azint", "/apis/apps/v1/namespaces/piped/deployments/piped-pipelines/scale"):
        assert "cannot" in refusal(lambda path=path: cluster.api.ask("GET", path, token=account))
    # Without its Role the answer says what is missing.
    cluster.api.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/piped/roles/piped-pipelines")

    def without_rights():
        try:
            pipelines(piped, control, "POST", "azint", "up", {"replicas": 1})
        except urllib.error.HTTPError as error:
            return json.loads(error.read())
        return None

    problem = wait_until(without_rights, 30, "a refusal")
    assert problem["code"] == "no_rights_in_cluster" and "deployments/scale" in problem["hint"], problem
    assert ready_s < 10


@marked(on_a_cluster)
def test_the_api_server_is_away_for_a_minute(cluster, release):
    """The API server is away for a minute in mid-run: the run goes on and is whole, pipeline control says so, and all works again after it."""
    away = release("away", 31005, pipelines={"azint": {"command": ["/usr/bin/konkordia", "version"]}})
    away.helm("install")
    away.ready()
    away_s = 60 if os.environ.get("KONKORDIA_SLOW") else 15
    rate = 50
    images = rate * (away_s + 10)
    with away.run_of(images, rate, "through"):
        wait_until(lambda: away.ask("GET", "/api/v1/status")["images_committed"] > 10, 30, "images")
        cluster.stop_api_server()
        options = ["--api-server", f"http://{HOST}:6443", "--namespace", "away", "--pipelines", "azint"]
        with cluster.network.entered():
            done = subprocess.run([BINARY, "pipelines", "up", "azint", *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 4 and "goes on without it" in done.stderr, done.stderr
        time.sleep(away_s)
        seen = away.ask("GET", "/api/v1/status")
        assert seen["state"] == "running" and seen["images_committed"] > rate * away_s / 2, seen
        cluster.start_api_server()
        wait_until(lambda: away.ask("GET", "/api/v1/status")["state"] == "idle", 120, "the end of the run")
    away.is_whole("through", images)
    assert away.api.get("/api/v1/namespaces/away/pods/away-0")["status"]["phase"] == "Running"


@marked(on_a_cluster)
def test_a_node_is_lost_in_mid_run(cluster, release):
    """A node is lost in mid-run: another one takes the detector over, the file has every image up to then, and the next run is whole."""
    lost = release("lost", 31006)
    lost.helm("install")
    first = lost.ready()
    other = cluster.node("b", ["purple"])
    with lost.run_of(2000, 100, "cut"):
        wait_until(lambda: lost.ask("GET", "/api/v1/status")["images_committed"] > 200, 60, "images")
        first.node.lose()
    # As an operator who has seen that the node has no power: only then the cluster may start the pod elsewhere.
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    cluster.api.patch(f"/api/v1/nodes/{first.node.name}", {"spec": {"taints": [taint]}})
    second = lost.ready(after=first)
    assert second.node is other
    (master,) = lost.data.glob("cut*_master.h5")
    subprocess.run([BINARY, "repair", master], check=True, capture_output=True)
    seen = json.loads(subprocess.run([BINARY, "inspect", master, "--json"], capture_output=True, text=True, check=True).stdout)
    assert seen["images"] >= 200, seen
    with lost.run_of(100, 100, "next"):
        wait_until(lambda: lost.ask("GET", "/api/v1/status")["images_committed"] == 100, 60, "the next run")
        wait_until(lambda: lost.ask("GET", "/api/v1/status")["state"] == "idle", 60, "its end")
    lost.is_whole("next", 100)


PODMAN = [shutil.which(name) for name in ("podman", "buildah", "skopeo", "runc", "cargo-sbom")]


@pytest.mark.peer("podman")
@pytest.mark.skipif(not all(PODMAN), reason="podman, buildah, skopeo, runc (Debian) and cargo-sbom (cargo install) are needed")
def test_the_image_runs_as_an_ordinary_user_with_a_read_only_root(tmp_path):
    """The image, below 60 MB, runs as an ordinary user with a read-only root: the service answers, and a simulated run is written."""
    # Images and state of this test only. The path of the state may have 50 characters.
    runs = pathlib.Path(tempfile.mkdtemp(prefix="konk-", dir="/tmp"))
    (tmp_path / "containers.conf").write_text('[containers]\ndefault_ulimits = []\n[engine]\nruntime = "runc"\n')
    (tmp_path / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/store"\nrunroot = "{runs}"\n')
    files = {f"CONTAINERS_{name}": str(tmp_path / file) for name, file in (("CONF", "containers.conf"), ("STORAGE_CONF", "storage.conf"))}
    environment = {**os.environ, **files, "KONKORDIA_BIN": str(BINARY)}

    def call(*command, timeout=300):
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, env=environment, cwd=ROOT)

    made = call("scripts/image", "--out", tmp_path / "image.oci.tar", "konkordia:test", timeout=900)
    assert made.returncode == 0, made.stdout + made.stderr
    print(made.stdout.strip())
    assert (tmp_path / "image.oci.tar").stat().st_size < 60e6
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    hard = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none"]
    run = ["podman", "run", "--rm", *hard, "--volume", f"{out}:/out"]
    demo = call(*run, "konkordia:test", "demo", "--images", "50", "--dir", "/out/demo")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert (out / "demo/demo_master.h5").stat().st_uid == 65532
    config = '[detector]\ntype = "stream"\n[source]\nprotocol = "stins"\nupstreams = ["tcp://127.0.0.1:9999"]\n[output]\ndirectory = "/out"\nprefix = "s"\n'
    (out / "serve.toml").write_text(config)
    name = f"konkordia-test-{os.getpid()}"
    log = []

    def serve():
        log.append(call(*run, "--name", name, "konkordia:test", "serve", "-c", "/out/serve.toml"))

    server = threading.Thread(target=serve)
    server.start()
    try:
        wait_until(lambda: call("podman", "exec", name, "/usr/bin/konkordia", "status").returncode == 0, 60, "the service")
        refused = call("podman", "exec", name, "/usr/bin/konkordia", "token", "create", "x", "--file", "/etc/x")
        assert refused.returncode != 0 and "Read-only" in refused.stderr, refused.stderr
    finally:
        call("podman", "stop", "-t", "20", name)
        server.join(60)
        shutil.rmtree(runs, ignore_errors=True)
    assert log[0].returncode == 0, log[0].stderr
