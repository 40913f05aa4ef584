"""A stand-in for the kubelet: starts the program of each pod of its node in namespaces of its own, with the folders, the
user and the environment that the pod asks for, runs its probes and its preStop hook, and honours the grace period.

Every image is ours: its root is `root`, which is read-only for the pod. Names of Services are in /etc/hosts, in place of
the DNS and the proxy of a cluster.
"""

import base64
import contextlib
import datetime
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

BRIDGE, HOST = "pods", "10.88.0.1"
ADDRESSES = itertools.count(10)
LOOK_S = 0.1
DEVICES = ("null", "zero", "full", "random", "urandom")


def now():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def port_of(container, port):
    return next(p["containerPort"] for p in container["ports"] if p.get("name") == port) if isinstance(port, str) else port


class Pod:
    """One pod and its process."""

    def __init__(self, node, pod):
        self.node, self.pod, self.api = node, pod, node.cluster.api
        self.namespace, self.name, self.uid = pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"]
        self.container = pod["spec"]["containers"][0]
        self.folder = node.folder / self.uid
        self.process, self.address, self.ready, self.ending = None, None, False, False
        self.hook, self.failures, self.deleted = None, 0, None
        self.log = self.folder / "log.txt"
        threading.Thread(target=self.run, daemon=True).start()

    def path(self, *more):
        return "/".join([f"/api/v1/namespaces/{self.namespace}/pods/{self.name}", *more])

    def run(self):
        try:
            self.start()
        except (OSError, KeyError, urllib.error.HTTPError, subprocess.SubprocessError) as why:
            (self.folder / "why.txt").write_text(repr(why))
            self.status("Failed", message=repr(why))
            return
        self.status("Running")
        threading.Thread(target=self.probe, daemon=True).start()
        code = self.process.wait()
        if self.ending or self.node.lost:
            return
        if self.pod["spec"].get("restartPolicy") == "Never":
            self.status("Succeeded" if code == 0 else "Failed", code=code)
        else:
            self.status("Failed", code=code)

    def volume(self, volume):
        """The folder that a volume is, on this host."""
        target = self.folder / "volumes" / volume["name"]
        if "hostPath" in volume:
            return pathlib.Path(volume["hostPath"]["path"])
        target.mkdir(parents=True)
        if "configMap" in volume:
            content = self.api.get(f"/api/v1/namespaces/{self.namespace}/configmaps/{volume['configMap']['name']}")["data"]
        elif "secret" in volume:
            data = self.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/{volume['secret']['secretName']}")["data"]
            content = {key: base64.b64decode(value).decode() for key, value in data.items()}
        elif "projected" in volume:
            account = self.pod["spec"]["serviceAccountName"]
            token = self.api.post(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token", {"spec": {"expirationSeconds": 3600}})
            content = {"token": token["status"]["token"], "ca.crt": self.node.cluster.certificate.read_text(), "namespace": self.namespace}
        else:
            content = {}
            target.chmod(0o1777)
        for name, text in content.items():
            (target / name).write_text(text)
            (target / name).chmod(0o644)
        return target

    def environment(self):
        own = {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": "6443", "PATH": "/usr/sbin:/usr/bin"}
        for one in self.container.get("env", []):
            if "value" in one:
                own[one["name"]] = one["value"]
            elif "valueFrom" in one:
                ref = one["valueFrom"]["secretKeyRef"]
                data = self.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/{ref['name']}")["data"]
                own[one["name"]] = base64.b64decode(data[ref["key"]]).decode()
        return own

    def start(self):
        """Makes the namespaces, mounts the folders and becomes the program, as the user of the pod."""
        cluster, security = self.node.cluster, self.pod["spec"]["securityContext"]
        self.folder.mkdir(parents=True)
        volumes = {volume["name"]: self.volume(volume) for volume in self.pod["spec"].get("volumes", [])}
        number = next(ADDRESSES)
        self.address, link = f"10.88.{number // 250}.{number % 250 + 2}", f"p{number}"
        root = self.folder / "root"
        root.mkdir()
        hosts = self.folder / "hosts"
        self.write_hosts()
        lines = ["set -e", "mount --make-rprivate /", f"mount --bind {cluster.root} {root}"]
        for mount in self.container.get("volumeMounts", []):
            place = f"{root}{mount['mountPath']}"
            # The root of the image has a folder for each mount: the runtime of a cluster makes them.
            lines.append(f"mount --bind {volumes[mount['name']]} {place}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {place}")
        lines += [f"mount --bind /dev/{name} {root}/dev/{name}" for name in DEVICES]
        lines += [f"mount --bind {hosts} {root}/etc/hosts", f"mount -t proc proc {root}/proc", f"mount -o remount,bind,ro {root}"]
        lines += ["ip link set lo up", "read go"]
        program = self.command(self.container.get("command"), self.container.get("args", []))
        lines.append(f"exec chroot --userspec={security['runAsUser']}:{security['runAsGroup']} {root} \"$@\"")
        for mount in self.container.get("volumeMounts", []):
            (cluster.root / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as log, cluster.network.entered():
            command = ["unshare", "--net", "--mount", "bash", "-c", "\n".join(lines), "pod", *program]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self.environment())
            own = os.readlink("/proc/thread-self/ns/net")
            while os.readlink(f"/proc/{self.process.pid}/ns/net") == own:
                time.sleep(0.005)
            pid = self.process.pid
            subprocess.run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid)], check=True)
            subprocess.run(["ip", "link", "set", link, "master", BRIDGE, "up"], check=True)
            enter = ["nsenter", "--target", str(pid), "--net"]
            subprocess.run([*enter, "bash", "-c", f"ip addr add {self.address}/16 dev eth0; ip link set eth0 up"], check=True)
            self.process.stdin.write(b"go\n")
            self.process.stdin.close()

    def write_hosts(self):
        services = self.node.cluster.services(self.namespace)
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in services.items()))

    def command(self, command, arguments):
        return [*(command or ["/usr/bin/konkordia"]), *arguments]

    def inside(self, command):
        """Runs a command in the pod, as its user."""
        security, pid = self.pod["spec"]["securityContext"], self.process.pid
        user = f"--userspec={security['runAsUser']}:{security['runAsGroup']}"
        enter = ["nsenter", "--target", str(pid), "--net", "--mount", "chroot", user, str(self.folder / "root"), *command]
        return subprocess.Popen(enter, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def asks(self, probe):
        get = probe["httpGet"]
        url = f"http://{self.address}:{port_of(self.container, get['port'])}{get['path']}"
        with self.node.cluster.network.entered(), contextlib.suppress(OSError):
            with urllib.request.urlopen(url, timeout=probe.get("timeoutSeconds", 1)) as answer:
                return answer.status == 200
        return False

    def probe(self):
        """startupProbe until it succeeds, then readinessProbe and livenessProbe."""
        startup, ready, live = (self.container.get(f"{kind}Probe") for kind in ("startup", "readiness", "liveness"))
        failures = 0
        while startup and self.process.poll() is None and not self.asks(startup):
            failures += 1
            if failures >= startup.get("failureThreshold", 3):
                return self.process.kill()
            time.sleep(startup.get("periodSeconds", 10) / 5)
        while self.process.poll() is None and not self.node.lost:
            is_ready = not ready or self.asks(ready)
            if is_ready != self.ready:
                self.ready = is_ready
                self.status("Running")
            if live:
                self.failures = 0 if self.asks(live) else self.failures + 1
                if self.failures >= live.get("failureThreshold", 3):
                    return self.process.kill()
            time.sleep(0.3 if not is_ready else 1)
        return None

    def status(self, phase, code=None, message=""):
        state = {"running": {"startedAt": now()}} if phase == "Running" else {"terminated": {"exitCode": code or 0, "message": message}}
        ready = str(self.ready and phase == "Running")
        body = {
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}] if self.address else [],
            "hostIP": HOST,
            "startTime": now(),
            "conditions": [{"type": kind, "status": ready, "lastTransitionTime": now()} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [{"name": self.container["name"], "image": self.container["image"], "imageID": "", "ready": ready == "True", "restartCount": 0, "state": state}],
        }
        with contextlib.suppress(OSError):
            self.api.patch(self.path("status"), {"status": body})

    def end(self, grace_s):
        """preStop hook, SIGTERM, and SIGKILL when the grace period is over; then the pod is gone."""
        self.ending = True
        begun = time.monotonic()
        hook = self.container.get("lifecycle", {}).get("preStop", {}).get("exec")
        if hook and self.process and self.process.poll() is None:
            running = self.inside(hook["command"])
            try:
                self.hook = running.communicate(timeout=max(grace_s, 0.1))[0]
            except subprocess.TimeoutExpired:
                running.kill()
                self.hook = "killed: the grace period is over"
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                # Kubernetes gives two more seconds if the hook has taken all of the time.
                self.process.wait(max(grace_s - (time.monotonic() - begun), 2))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        with contextlib.suppress(OSError):
            self.api.delete(self.path(), {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})
        self.deleted = time.monotonic()

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Node:
    """A node that is ready, and runs the pods that are bound to it."""

    def __init__(self, cluster, name, networks=()):
        self.cluster, self.name, self.lost = cluster, name, False
        self.folder = cluster.folder / name
        self.pods = {}
        self.folder.mkdir()
        has = {"cpu": "32", "memory": "64Gi", "pods": "110", **{f"daq.network.interface/{network}": "4" for network in networks}}
        cluster.api.post("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        self.has = {"capacity": has, "allocatable": has}
        self.beat()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.watch, self.keep_alive)]
        for thread in self.threads:
            thread.start()

    def beat(self):
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
        self.cluster.api.patch(f"/api/v1/nodes/{self.name}/status", {"status": {**self.has, "conditions": [condition]}})
        lease = {"metadata": {"name": self.name}, "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 8, "renewTime": now().replace("Z", ".000000Z")}}
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        try:
            self.cluster.api.patch(f"{path}/{self.name}", lease)
        except urllib.error.HTTPError:
            self.cluster.api.post(path, lease)

    def keep_alive(self):
        while not self.lost:
            with contextlib.suppress(OSError):
                self.beat()
            time.sleep(2)

    def watch(self):
        looks = 0
        while not self.lost:
            looks += 1
            try:
                listed = self.cluster.api.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}")["items"]
            except OSError:
                # What runs goes on while the API server is away.
                time.sleep(0.5)
                continue
            for pod in listed:
                uid, deleted = pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]
                if uid not in self.pods and not deleted:
                    self.pods[uid] = Pod(self, pod)
                elif deleted and uid in self.pods and not self.pods[uid].ending:
                    self.pods[uid].ending = True
                    grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
                    threading.Thread(target=self.pods[uid].end, args=(grace,), daemon=True).start()
            if looks % 20 == 0:
                for pod in [pod for pod in self.pods.values() if pod.address and not pod.ending]:
                    with contextlib.suppress(OSError):
                        pod.write_hosts()
            time.sleep(LOOK_S)

    def lose(self):
        """The node loses power: its programs are gone, and nobody hears of it any more."""
        self.lost = True
        for pod in list(self.pods.values()):
            pod.kill()

    def stop(self):
        self.lose()
        for thread in self.threads:
            thread.join(10)
        shutil.rmtree(self.folder, ignore_errors=True)
