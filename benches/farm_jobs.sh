#!/bin/sh
# Runs what is rendered for Slurm, Kubernetes and LAVA as those would start it, without them: jobs with their arguments, on this
# machine. One round in which all is well, and one as another machine, which must not pass.
#   farm_jobs.sh WHYLATE PYTHON [LAVA]
# PYTHON has yaml. LAVA is a source tree of LAVA, of which the schemas (PYTHON then has voluptuous, too) and lava-test-case
# are used.
# Exit codes: 0 as expected, 1 not so; 77 SKIPPED: something is missing.
set -u
[ $# -ge 2 ] || { sed -n 2,8p "$0"; exit 1; }
whylate=$(realpath "$1") python=$2 lava=${3:-}
missing=""
for tool in "$whylate" "$python" shellcheck; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
"$python" -c 'import yaml' 2>/dev/null || missing="$missing yaml"
[ -z "$lava" ] || "$python" -c 'import voluptuous' 2>/dev/null || missing="$missing voluptuous"
[ -z "$missing" ] || { echo "SKIPPED: farm_jobs.sh: there is no$missing" >&2; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export WHYLATE_RESULTS="$folder/results" SLURM_SUBMIT_DIR="" PATH="$folder/bin:$PATH"
mkdir "$folder/bin"
wrong=0
expect() { # WHAT CODE EXPECTED: EXPECTED is `0` or `not 0`
    echo "$1: exit code $2"
    case "$3" in 0) [ "$2" -eq 0 ] ;; *) [ "$2" -ne 0 ] ;; esac || { echo "    $3 was expected"; wrong=$((wrong + 1)); }
}

cat >"$folder/small.toml" <<'PLAN'
name = "small"
question = "Does it: run?"
repeats = 2
duration = "700ms"
warmup = "0s"
limit = "10s"
[[probe]]
kind = "timer"
policy = "other"
[[cell]]
PLAN
render() { # NAME HOST
    printf 'name = "rack"\nlake = "%s"\nprogram = "%s"\nwatch = "audio"\n[[host]]\nname = "%s"\nlabels = { device_type = "qemu" }\n' \
        "$folder/lake-$1" "$whylate" "$2" >"$folder/farm-$1.toml"
    for engine in kubernetes slurm lava; do
        "$whylate" farm render "$folder/small.toml" --farm "$folder/farm-$1.toml" --for $engine -o "$folder/$1-$engine" 2>/dev/null || exit 1
    done
}
render good "$(hostname)"
render other somebody-else
find "$folder"/good-* '(' -name '*.sh' -o -name '*.sbatch' ')' -exec shellcheck -s sh {} +
expect "shellcheck of all scripts" $? 0

# Slurm runs a copy of the batch script, in the folder from which it was submitted.
cat >"$folder/bin/sbatch" <<'SBATCH'
#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac do case "$1" in --array=0-*) last=${1#--array=0-} last=${last%%%*} ;; esac; shift; done
copy=$(mktemp) && cp "$1" "$copy" && chmod 700 "$copy" && shift
ended=0
for task in $(seq 0 "$last"); do SLURM_SUBMIT_DIR=$PWD SLURM_ARRAY_TASK_ID=$task "$copy" "$@" || ended=$?; done
rm "$copy"
exit $ended
SBATCH
chmod 755 "$folder/bin/sbatch"
# Kubernetes: the command of each container, with the ConfigMap's files at /farm.
cat >"$folder/containers.py" <<'PY'
import sys, yaml, shlex, os
for name in sorted(os.listdir(sys.argv[1])):
    if name.endswith(".yaml"):
        for document in yaml.safe_load_all(open(os.path.join(sys.argv[1], name))):
            spec = document.get("spec", {}).get("template", {}).get("spec", {})
            for container in spec.get("containers", []):
                if document["kind"] == "Job":
                    print(shlex.join(it.replace("/farm/", sys.argv[1] + "/") if it.startswith("/farm/") else it for it in container["command"]))
                else:
                    open(sys.argv[1] + "/watch-command.sh", "w").write(container["command"][-1] + "\n")
PY
# LAVA: parameters as variables, then the steps; its own lava-test-case says of each case whether it passed.
cat >"$folder/steps.py" <<'PY'
import glob, os, sys, yaml
folder, lava = sys.argv[1], sys.argv[2]
jobs = [yaml.safe_load(open(it)) for it in glob.glob(folder + "/jobs/*.yaml")]
if lava:
    sys.path.insert(0, lava)
    from lava_common import schemas
    from lava_common.schemas.test import testdef
    # What each board adds, here for QEMU.
    timeout = {"minutes": 5}
    deploy = {"deploy": {"timeout": timeout, "to": "tmpfs", "images": {"rootfs": {"url": "http://x/y", "image_arg": "-drive file={rootfs}"}}}}
    boot = {"boot": {"timeout": timeout, "method": "qemu", "media": "tmpfs", "prompts": ["#"]}}
    for job in jobs:
        full = dict(job, actions=[deploy, boot, *job["actions"]], context={"arch": "amd64"})
        schemas.validate(full)
        if hasattr(schemas, "extra_checks"):
            schemas.extra_checks(full)
for job in jobs:
    of = job["actions"][0]["test"]["definitions"][0]
    definition = yaml.safe_load(open(os.path.join(folder, of["path"])))
    if lava:
        testdef.validate(definition)
    for name, value in {**definition["params"], **of["parameters"]}.items():
        print(f"{name}='{value}'")
    print("\n".join(definition["run"]["steps"]))
PY
if [ -n "$lava" ]; then
    shell="$lava/lava_dispatcher/lava_test_shell"
    cp "$shell/lava-test-case" "$shell/lava-common-functions" "$folder/bin/" || exit 1
    { echo '#!/bin/sh'; cat "$shell/lava-test-case"; } >"$folder/bin/lava-test-case"
else
    # What of it matters here.
    printf '#!/bin/sh\ncase=$1; shift 2; "$@" && result=pass || result=fail\necho "<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=$case RESULT=$result>"\n' >"$folder/bin/lava-test-case"
fi
chmod 755 "$folder/bin/lava-test-case"
export LAVA_RESULT_DIR="$folder/lava-results"

for round in good other; do
    [ $round = good ] && expected=0 || expected="not 0"
    rm -rf "$folder/results"
    "$folder/$round-slurm/submit.sh" --partition=boards >"$folder/said" 2>&1
    expect "slurm, $round machine" $? "$expected"
    rm -rf "$folder/results" "$folder/lake-$round"
    "$python" "$folder/containers.py" "$folder/$round-kubernetes" >"$folder/commands"
    code=$?
    expect "kubernetes, commands of $(wc -l <"$folder/commands") containers" $code 0
    shellcheck -s sh -S warning -e SC2086 "$folder/$round-kubernetes/watch-command.sh"
    expect "shellcheck of the DaemonSet's command" $? 0
    sh "$folder/commands" >"$folder/said" 2>&1
    expect "kubernetes, $round machine" $? "$expected"
    rm -rf "$folder/results" "$folder/lake-$round"
    "$python" "$folder/steps.py" "$folder/$round-lava" "$lava" >"$folder/steps"
    expect "lava, definition and job${lava:+ by the schemas of LAVA}" $? 0
    (cd "$folder/$round-lava" && sh "$folder/steps") >"$folder/said" 2>&1
    grep -q 'TEST_CASE_ID=small RESULT=pass' "$folder/said"
    code=$?
    expect "lava, $round machine: $(grep -o 'TEST_CASE_ID.*RESULT=[a-z]*' "$folder/said")" $code "$expected"
done
[ $wrong -eq 0 ]
