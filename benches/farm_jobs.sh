#!/bin/sh
# Runs the jobs that are rendered for Slurm, Kubernetes and LAVA as those would start them, but without them, on this
# machine: one successful round, and twelve ways not to measure, which must not pass.
#   farm_jobs.sh WHYLATE PYTHON [LAVA]
# With SLURM=real the jobs of Slurm are submitted to the Slurm of this machine. WAYS chooses rounds. PYTHON has yaml. LAVA is a source tree of LAVA, of which the schemas (PYTHON then has voluptuous, too) and lava-test-case
# are used.
# Exit codes: 0 as expected, 1 not so; 77 SKIPPED: something is missing.
set -u
[ $# -ge 2 ] || { sed -n 2,9p "$0"; exit 1; }
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
# The words of a way are those of a shell: it may set `host`, `kernel`, `plan`, and what job.sh reads.
sed 's/^\[\[probe/[target]\ncpus = "4000"\n&/' "$folder/small.toml" >"$folder/offline.toml"
sed 's/^\[\[cell.*/[[load]]\nname = "dead"\nkind = "exec"\ncommand = ["false"]\n&\nloads = ["dead"]/' "$folder/small.toml" >"$folder/dead.toml"
{ sed '/^\[/,$d' "$folder/small.toml"; printf '[[probe]]\nkind = "tracer"\ntracer = "hwlat"\n[[cell]]\n'; } >"$folder/tracer.toml"
program() { # NAME TEXT
    printf '#!/bin/sh\n%s\n' "$2" >"$folder/$1" && chmod 755 "$folder/$1"
}
program killed 'kill -9 $$'
program idle ''
program no-push "[ \"\$1\" = push ] && kill -9 \$\$; exec $whylate \"\$@\""
program past "FAKETIME='2011-01-01 00:00:00' FAKETIME_DONT_FAKE_MONOTONIC=1 LD_PRELOAD=\$(echo /usr/lib/*/faketime/libfaketime.so.1) exec $whylate \"\$@\""
way() { # NAME
    host=$(hostname) kernel="" plan=small WHYLATE=$whylate WHYLATE_RESULTS="$folder/results" WHYLATE_LAKE="$folder/lake-$1"
    case $1 in
        good) ;;
        other-machine) host=other-host ;;
        other-kernel) kernel=0.1 ;;
        no-program) WHYLATE=/nonexistent/whylate ;;
        killed-program) WHYLATE="$folder/killed" ;;
        idle-program) WHYLATE="$folder/idle" ;;
        no-plan) ;;
        cpu-offline) plan=offline ;;
        dead-load) plan=dead ;;
        no-tracer) plan=tracer ;;
        clock-off) WHYLATE="$folder/past" ;;
        full-disk) WHYLATE_RESULTS=/dev/full/results ;;
        cut-upload) WHYLATE="$folder/no-push" ;;
    esac
    export WHYLATE WHYLATE_RESULTS WHYLATE_LAKE
}
ways=${WAYS:-"good other-machine other-kernel no-program killed-program idle-program no-plan cpu-offline dead-load no-tracer clock-off full-disk cut-upload"}
render() { # NAME
    way "$1"
    { printf 'name = "rack"\nlake = "%s"\nprogram = "%s"\nwatch = "audio"\n' "$WHYLATE_LAKE" "$whylate"
      printf '[[host]]\nname = "%s"\nlabels = { device_type = "qemu" }\n' "$host"
      [ -z "$kernel" ] || printf 'kernel = "%s"\n' "$kernel"; } >"$folder/farm-$1.toml"
    for engine in kubernetes slurm lava; do
        "$whylate" farm render "$folder/$plan.toml" --farm "$folder/farm-$1.toml" --for $engine -o "$folder/$1-$engine" 2>/dev/null || exit 1
        [ "$1" != no-plan ] || rm "$folder/$1-$engine/small.toml"
    done
}
for round in $ways; do render "$round"; done
find "$folder/${ways%% *}"-* '(' -name '*.sh' -o -name '*.sbatch' ')' -exec shellcheck -s sh {} +
expect "shellcheck of all scripts" $? 0

# Slurm runs a copy of the batch script, in the folder from which it was submitted.
[ "${SLURM:-}" = real ] || cat >"$folder/bin/sbatch" <<'SBATCH'
#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac do case "$1" in --array=0-*) last=${1#--array=0-} last=${last%%%*} ;; esac; shift; done
copy=$(mktemp) && cp "$1" "$copy" && chmod 700 "$copy" && shift
ended=0
for task in $(seq 0 "$last"); do SLURM_SUBMIT_DIR=$PWD SLURM_ARRAY_TASK_ID=$task "$copy" "$@" || ended=$?; done
rm "$copy"
exit $ended
SBATCH
[ "${SLURM:-}" = real ] || chmod 755 "$folder/bin/sbatch"
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

for round in $ways; do
    [ $round = good ] && expected=0 || expected="not 0"
    way $round
    fresh() { rm -rf "$folder/results" "$folder/lake-$round"; mkdir "$folder/lake-$round"; }
    fresh
    wait=--partition=boards
    [ "${SLURM:-}" != real ] || wait=--wait
    "$folder/$round-slurm/submit.sh" $wait >"$folder/said" 2>&1
    expect "slurm, $round" $? "$expected"
    fresh
    "$python" "$folder/containers.py" "$folder/$round-kubernetes" >"$folder/commands"
    code=$?
    expect "kubernetes, $round: commands of $(wc -l <"$folder/commands") containers" $code 0
    sh "$folder/commands" >"$folder/said" 2>&1
    expect "kubernetes, $round" $? "$expected"
    fresh
    "$python" "$folder/steps.py" "$folder/$round-lava" "$lava" >"$folder/steps"
    expect "lava, $round: definition and job${lava:+ by the schemas of LAVA}" $? 0
    (cd "$folder/$round-lava" && sh "$folder/steps") >"$folder/said" 2>&1
    grep -q 'TEST_CASE_ID=[a-z]* RESULT=pass' "$folder/said"
    code=$?
    expect "lava, $round: $(grep -o 'TEST_CASE_ID.*RESULT=[a-z]*' "$folder/said")" $code "$expected"
    [ $code -eq 0 ] || grep -h -o 'INCOMPLETE: .*' "$folder/said" | head -n 1
done
shellcheck -s sh -S warning -e SC2086 "$folder/${ways%% *}-kubernetes/watch-command.sh"
expect "shellcheck of the DaemonSet's command" $? 0
[ $wrong -eq 0 ]
