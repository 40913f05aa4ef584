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
from cluster import HELM, HOST, PROGRAMS, SECURE, TOKEN, Cluster, refusal
from programs import BUILD, wait_until

from driving import BINARY

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy/kubernetes"
CHART = DEPLOY / "konkordia"
IMAGE = "registry.test/konkordia:0.1.0"
UID = 1201
KUSTOMIZE = shutil.which("kubectl") and "Kustomize Version: v5" in subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True).stdout
NEEDED = [HELM, *(PROGRAMS / name for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"))]
helm_only = [pytest.mark.peer("Helm"), pytest.mark.skipif(not HELM.exists(), reason=f"{HELM} is not there; scripts/peers says why")]
on_a_cluster = [
    pytest.mark.peer("Kubernetes"),
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the namespaces"),
    pytest.mark.skipif(not all(path.exists() for path in NEEDED) or not shutil.which("etcd"), reason="kube-apiserver, kube-controller-manager, kube-scheduler and helm (scripts/peers builds them) and etcd (Debian: etcd-server) are needed"),
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
        annotations = {"konkordia/uid": str(UID), "konkordia/host-paths": str(self.data), "konkordia/networks": "purple,blue,red"}
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"konkordia/detector": name}, "annotations": annotations}})
        data = {"tokens": tokens.read_text(), "drain": self.token}
        secret = {"metadata": {"name": "tokens"}, "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}
        self.api.post(f"/api/v1/namespaces/{name}/secrets", secret)
        wait_until(lambda: self.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"), 120, "the service account")
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
        for_flux = yaml.safe_load((folder / "kustomization.yaml").read_text())
        assert for_flux["namespace"] == folder.name and f'"value": "{folder.name}"' in for_flux["patches"][0]["patch"]
    flux = list(yaml.safe_load_all((DEPLOY / "gitops/flux/flux.yaml").read_text()))
    assert [one["spec"]["path"] for one in flux if one["kind"] == "Kustomization"] == [f"./detectors/{folder.name}" for folder in folders]
    generator = yaml.safe_load((DEPLOY / "gitops/argocd.yaml").read_text())
    assert generator["spec"]["generators"][0]["git"]["directories"] == [{"path": "detectors/*"}]
    rules = [rule["name"] for policy in yaml.safe_load_all((DEPLOY / "policies/kyverno.yaml").read_text()) for rule in policy["spec"]["rules"]]
    assert rules == ["user", "privileged", "mounts", "volumes", "networks", "interface", "annotation"]


@marked(helm_only)
@pytest.mark.skipif(not KUSTOMIZE, reason="a kubectl with Kustomize 5 is needed")
def test_kustomize_makes_the_release_of_each_detector_for_flux():
    """Kustomize makes of each folder the namespace, the values as they are and the release, with which Helm makes the chart of this detector."""
    for folder in sorted((DEPLOY / "gitops/detectors").iterdir()):
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        made = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
        assert set(made) == {"Namespace", "ConfigMap", "HelmRelease"}
        release = made["HelmRelease"]
        assert release["metadata"]["namespace"] == release["spec"]["releaseName"] == made["Namespace"]["metadata"]["name"] == folder.name
        (source,) = release["spec"]["valuesFrom"]
        assert (source["kind"], source["name"]) == ("ConfigMap", made["ConfigMap"]["metadata"]["name"])
        values = made["ConfigMap"]["data"]["values.yaml"]
        assert values == (folder / "values.yaml").read_text()
        assert template(yaml.safe_load(values), folder.name).returncode == 0


@marked(helm_only)
def test_network_policies_name_whom_the_pods_may_reach():
    """The NetworkPolicies let the receiver connect to its detector, pipelines to their namespace, pipeline control to the API server, and none to anybody else."""
    broker = {"ipBlock": {"cidr": "10.30.0.9/32"}}
    values = {
        **GOOD,
        "detector": {"address": ["tcp://10.10.0.5:31001", "tcp://dcu.example.org:31002"]},
        "pipelines": {"azint": {}},
        "pipelineControl": {"enabled": True},
        "networkPolicy": {"detectorCidrs": ["10.20.0.0/24"], "to": [broker]},
    }
    done = template(values)
    assert done.returncode == 0, done.stderr
    policies = {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "NetworkPolicy"}
    everybody = [{"to": [{"podSelector": {}}]}, {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}, {"to": [broker]}]
    detector = [{"ports": [{"port": 31001}], "to": [{"ipBlock": {"cidr": "10.10.0.5/32"}}]}, {"ports": [{"port": 31002}]}, {"to": [{"ipBlock": {"cidr": "10.20.0.0/24"}}]}]
    wanted = {"eiger": detector, "eiger-processing": [], "eiger-pipelines": [{"ports": [{"port": 443}, {"port": 6443}]}]}
    assert {name: spec["egress"] for name, spec in policies.items()} == {name: everybody + more for name, more in wanted.items()}
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in policies.values())
    assert policies["eiger-processing"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    without = template({**values, "networkPolicy": {"enabled": False}}).stdout
    assert "kind: NetworkPolicy" not in without


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
        eiger.helm("upgrade", output={"directory": "/data", "prefix": "changed"})
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
    assert "changed" in eiger.ask("GET", "/api/v1/configuration")["master"]
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
    assert "a mount is not allowed" in said(plain_pod(volumes=[{"name": "v", "hostPath": {"path": f"{policed.data}x"}}]))
    assert "must not contain '..'" in said(plain_pod(volumes=[{"name": "v", "hostPath": {"path": f"{policed.data}/../.."}}]))
    assert "volume of this kind" in said(plain_pod(volumes=[{"name": "v", "nfs": {"server": "10.0.0.9", "path": "/"}}]))
    assert "network of the host" in said(plain_pod(hostNetwork=True))
    assert "processes of the host" in said(plain_pod(hostPID=True))
    assert "annotation k8s.v1.cni.cncf.io/networks asks for green" in said(plain_pod(metadata={"annotations": {"k8s.v1.cni.cncf.io/networks": "green"}}))
    assert "daq.network.interface/green" in said(plain_pod(metadata={"labels": {"daq.network.interface/green": "dhcp"}}))
    # What is allowed passes, and the label becomes the annotation of Multus and the resource of the device plugin.
    allowed = plain_pod(metadata={"labels": {"daq.network.interface/purple": "dhcp"}}, volumes=[{"name": "v", "hostPath": {"path": str(policed.data)}}])
    wait_until(lambda: "annotations" in cluster.api.post(path, allowed)["metadata"], 30, "the policy that changes")
    made = cluster.api.post(path, allowed)
    assert made["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/networks": "purple"}
    assert made["spec"]["containers"][0]["resources"]["limits"]["daq.network.interface/purple"] == "1"
    assert "annotations" not in cluster.api.post(path, plain_pod())["metadata"]
    # Several, in the order of their names; what the pod has already, stays.
    labels = {f"daq.network.interface/{network}": "dhcp" for network in ("red", "purple", "blue")}
    limits = {"limits": {"cpu": "1"}}
    several = cluster.api.post(path, plain_pod(metadata={"labels": labels, "annotations": {"a": "b"}}, containers=[{"name": "c", "image": IMAGE, "resources": limits}]))
    assert several["metadata"]["annotations"] == {"a": "b", "k8s.v1.cni.cncf.io/networks": "blue,purple,red"}
    assert several["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", **dict.fromkeys(labels, "1")}
    # The chart with this network runs on the node that has one to give.
    policed.helm("install")
    pod = policed.ready()
    running = cluster.api.get("/api/v1/namespaces/policed/pods/policed-0")
    assert running["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "purple"
    # A debugging container may do no more than the others.
    debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": IMAGE, "securityContext": {"runAsUser": 0}}]}}
    ephemeral = "/api/v1/namespaces/policed/pods/policed-0/ephemeralcontainers"
    assert "another user" in refusal(lambda: cluster.api.patch(ephemeral, debug, "application/strategic-merge-patch+json"))
    # The API server finds no wrong type in the expressions.
    kind = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/konkordia-pods"
    wait_until(lambda: "typeChecking" in cluster.api.get(kind).get("status", {}), 30, "the check of the types")
    assert not cluster.api.get(kind)["status"]["typeChecking"], cluster.api.get(kind)["status"]
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


AWAY_S = 60


@marked(on_a_cluster)
@pytest.mark.parametrize("program", ["apiserver", "etcd"])
def test_the_control_plane_is_away_for_a_minute(cluster, release, tmp_path, program):
    """The API server, or etcd, is away for a minute in mid-run: the run goes on and is whole, pipeline control says so, and all works again after it."""
    name = f"away-{program}"
    away = release(name, 31005 + len(program), pipelines={"azint": {"command": ["/usr/bin/konkordia", "version"]}})
    away.helm("install")
    pod = away.ready()
    account = tmp_path / "account"
    account.mkdir()
    for file, text in {"token": TOKEN, "ca.crt": cluster.certificate.read_text(), "namespace": name}.items():
        (account / file).write_text(text)

    def scale(*command):
        options = ["--api-server", SECURE, "--service-account", account, "--pipelines", "azint"]
        with cluster.network.entered():
            return subprocess.run([str(part) for part in (BINARY, "pipelines", *command, *options)], capture_output=True, text=True, timeout=60)

    assert scale("list").returncode == 0
    rate = 50
    images = rate * (AWAY_S + 15)
    with away.run_of(images, rate, "through"):
        wait_until(lambda: away.ask("GET", "/api/v1/status")["images_committed"] > 10, 30, "images")
        cluster.stop_program(program)
        begun = time.monotonic()
        done = scale("up", "azint")
        assert done.returncode == 4 and "goes on without it" in done.stderr, done.stderr
        time.sleep(AWAY_S - (time.monotonic() - begun))
        seen = away.ask("GET", "/api/v1/status")
        assert seen["state"] == "running" and seen["images_committed"] > rate * AWAY_S / 2, seen
        if program == "etcd":
            cluster.start_etcd()
            wait_until(cluster.is_ready, 120, "the API server")
        else:
            cluster.start_api_server()
        wait_until(lambda: away.ask("GET", "/api/v1/status")["state"] == "idle", 120, "the end of the run")
    away.is_whole("through", images)
    # The same pod is there, and what was refused meanwhile is possible again.
    assert away.pod() is pod and not pod.ending
    assert away.api.get(f"/api/v1/namespaces/{name}/pods/{name}-0")["status"]["phase"] == "Running"
    wait_until(lambda: scale("up", "azint").returncode == 0, 30, "pipeline control")
    # The controllers find back by themselves, at the latest when they ask again: then there is a pod of the pipeline.
    wait_until(lambda: json.loads(scale("list", "--json").stdout)[0]["pods"] == 1, 120, "the controllers")
    print(f"{program} away for {AWAY_S} s: {images} of {images} images; konkordia pipelines: {done.stderr.strip()}")


@marked(on_a_cluster)
def test_a_node_is_emptied_in_mid_run(release):
    """`kubectl drain` of a node: refused where the values say so; otherwise the run ends first, and no image is lost. The other Services and the Ingress are made."""
    streams = [{"name": "live", "port": 23500, "socket": "pub", "service": "latest", "reach": "external"}, {"name": "azint", "port": 23501}]
    values = {"streams": streams, "http": {"ingress": {"host": "eiger.example.org"}}, "evictable": False}
    emptied = release("emptied", 31020, **values)
    emptied.helm("install")
    first = emptied.ready()
    path = "/api/v1/namespaces/emptied/pods/emptied-0/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "emptied-0"}}
    budget = "/apis/policy/v1/namespaces/emptied/poddisruptionbudgets/emptied"
    wait_until(lambda: emptied.api.get(budget)["status"].get("currentHealthy") == 1, 30, "the budget")
    assert "disruption budget" in refusal(lambda: emptied.api.post(path, eviction))
    emptied.helm("upgrade", evictable=True)
    wait_until(lambda: emptied.api.get(budget)["status"]["disruptionsAllowed"] == 1, 30, "the changed budget")
    assert emptied.pod() is first and not first.ending
    outside = emptied.api.get("/api/v1/namespaces/emptied/services/emptied-external")["spec"]
    assert [(port["name"], port["port"]) for port in outside["ports"]] == [("live", 23500)] and outside["type"] == "LoadBalancer"
    rule = emptied.api.get("/apis/networking.k8s.io/v1/namespaces/emptied/ingresses/emptied")["spec"]["rules"][0]
    assert rule["host"] == "eiger.example.org" and rule["http"]["paths"][0]["backend"]["service"]["name"] == "emptied"
    with emptied.run_of(600, 60, "kept"):
        wait_until(lambda: emptied.ask("GET", "/api/v1/status")["images_committed"] > 50, 30, "images")
        emptied.api.post(path, eviction)
        wait_until(lambda: first.ending, 30, "the end of the old pod")
        emptied.ready(after=first)
    assert first.hook and "kept" in first.hook, (first.hook, first.log.read_text()[-3000:])
    emptied.is_whole("kept", 600)


@marked(on_a_cluster)
def test_a_node_is_lost_in_mid_run(cluster, release):
    """A node is lost in mid-run: another one takes the detector over, the file has every image up to then, and the next run is whole."""
    lost = release("lost", 31030)
    lost.helm("install")
    first = lost.ready()
    other = cluster.node("b", ["purple"])
    with lost.run_of(2000, 100, "cut"):
        wait_until(lambda: lost.ask("GET", "/api/v1/status")["images_committed"] > 200, 60, "images")
        safe = lost.ask("GET", "/api/v1/status")["images_committed"]
        first.node.lose()
    # As an operator who has seen that the node has no power: only then the cluster may start the pod elsewhere.
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    cluster.api.patch(f"/api/v1/nodes/{first.node.name}", {"spec": {"taints": [taint]}})
    second = lost.ready(after=first)
    assert second.node is other
    (master,) = lost.data.glob("cut*_master.h5")
    subprocess.run([BINARY, "repair", master], check=True, capture_output=True)
    seen = json.loads(subprocess.run([BINARY, "inspect", master, "--json"], capture_output=True, text=True, check=True).stdout)
    assert seen["images"] >= safe, (safe, seen)
    print(f"node lost: {safe} images were safe, {seen['images']} are in the file")
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
    # The list of what is in it: our crates, the library of C that comes with one, those of Debian, and nothing of other systems.
    assert call("podman", "create", "--name", "listed", "konkordia:test").returncode == 0
    copied = call("podman", "cp", "listed:/usr/share/konkordia/konkordia.spdx.json", tmp_path)
    assert copied.returncode == 0, copied.stderr
    parts = {one["name"]: one for one in json.loads((tmp_path / "konkordia.spdx.json").read_text())["packages"]}
    assert {"konkordia", "konkordia-core", "zeromq-src", "hdf5-metno-src", "libstdc++6", "libc6"} <= parts.keys()
    assert len(parts) > 200 and not [name for name in parts if name.startswith("windows")]
    assert parts["tokio"]["licenseDeclared"] == "MIT" and parts["libc6"]["versionInfo"]
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
