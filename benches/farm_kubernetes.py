"""Stands in for the nodes of a cluster that has an API server, controllers and a scheduler, and no kubelets.

    KUBECONFIG=... farm_kubernetes.py FARM_DIRECTORY NODE... -- PODMAN...

Makes the nodes, applies the directory that `whylate farm render --for kubernetes` wrote, and starts the containers of the pods that the
scheduler bound to the nodes, as their specifications say: image, command, host name, capabilities, read-only root, volumes.
It reports to the API server how they ended. PODMAN is the command that starts a container, for example `podman --runtime runc`.
The exit code is 0 if each job has ended, with whatever result; the result of each is printed.
"""

import json
import os
import subprocess
import sys
import tempfile

at = sys.argv.index("--")
directory, nodes, podman = sys.argv[1], sys.argv[2:at], sys.argv[at + 1:]


def kubectl(*words, text=None):
    done = subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"kubectl {' '.join(words[:3])}: {done.stderr}")
    return done.stdout


def patch(kind, name, document, *more):
    kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(document), *more)


def make_node(name):
    labels = {"kubernetes.io/hostname": name}
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}))
    has = {"cpu": "2", "memory": "4Gi", "pods": "50"}
    ready = {"type": "Ready", "status": "True", "reason": "StandIn", "message": "no kubelet"}
    patch("node", name, {"status": {"capacity": has, "allocatable": has, "conditions": [ready]}}, "--subresource=status")
    patch("node", name, {"spec": {"taints": None}})


def volume(spec, scratch):
    if "hostPath" in spec:
        os.makedirs(spec["hostPath"]["path"], exist_ok=True)
        return spec["hostPath"]["path"]
    folder = tempfile.mkdtemp(dir=scratch)
    if "configMap" in spec:
        data = json.loads(kubectl("get", "configmap", spec["configMap"]["name"], "-o", "json"))["data"]
        for name, text in data.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
    return folder


def run(pod):
    spec, scratch = pod["spec"], tempfile.mkdtemp()
    container = spec["containers"][0]
    security = container["securityContext"]
    folders = {it["name"]: volume(it, scratch) for it in spec["volumes"]}
    words = [*podman, "run", "--rm", "--network", "host", "--uts", "private", "--hostname", spec.get("hostname", pod["metadata"]["name"])]
    words += ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
    words += [f"--cap-drop={it}" for it in security["capabilities"]["drop"]] + [f"--cap-add={it}" for it in security["capabilities"]["add"]]
    words += ["--read-only", "--read-only-tmpfs=false"] if security.get("readOnlyRootFilesystem") else []
    for mount in container["volumeMounts"]:
        words += ["-v", f"{folders[mount['name']]}:{mount['mountPath']}" + (":ro" if mount.get("readOnly") else "")]
    command = container["command"]
    words += ["--entrypoint", command[0], container["image"], *command[1:]]
    done = subprocess.run(words, capture_output=True, text=True)
    ended = {"terminated": {"exitCode": done.returncode, "reason": "Completed" if done.returncode == 0 else "Error"}}
    status = {"name": container["name"], "ready": False, "restartCount": 0, "image": container["image"], "imageID": "", "state": ended}
    phase = "Failed" if done.returncode else "Succeeded"
    patch("pod", pod["metadata"]["name"], {"status": {"phase": phase, "containerStatuses": [status]}}, "--subresource=status")
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    print(f"{pod['metadata']['name']} on {spec['nodeName']}: exit code {done.returncode}: {' '.join(last)}", flush=True)


def waiting():
    pods = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
    of_job = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["kind"] == "Job" and pod["status"]["phase"] == "Pending"]
    return [pod for pod in of_job if pod["spec"].get("nodeName") in nodes and "deletionTimestamp" not in pod["metadata"]]


for node in nodes:
    make_node(node)
kubectl("apply", "-k", directory)
while True:
    jobs = json.loads(kubectl("get", "jobs", "-o", "json"))["items"]
    if all(any(it["type"] in ("Complete", "Failed") for it in job["status"].get("conditions", [])) for job in jobs):
        break
    for pod in waiting():
        run(pod)
print(kubectl("get", "jobs,daemonsets"))
