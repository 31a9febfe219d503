#!/bin/sh
# Dispatches to five boards by Ansible and ssh: one successful round, then one for each way not to measure. A board
# is a network namespace with a host name, a disk and an sshd of its own.
#   farm_ansible.sh WHYLATE ANSIBLE_PLAYBOOK PYTHON [LAKE]     as root; PYTHON has duckdb; LAKE is a new folder by default
# WAYS="full-disk no-board": these rounds alone.
# Exit codes: 0 as expected; 1 a way passed, or the good round did not; 77 SKIPPED: something is missing.
set -u
[ $# -ge 3 ] || { sed -n 2,7p "$0"; exit 1; }
whylate=$(realpath "$1") playbook=$2
export WHYLATE_QUERY_PYTHON="$3"
missing=""
for tool in "$whylate" "$playbook" "$WHYLATE_QUERY_PYTHON" /usr/sbin/sshd ssh-keygen ip unshare nsenter strip; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ "$(id -u)" -eq 0 ] || missing="$missing root"
"$WHYLATE_QUERY_PYTHON" -c 'import duckdb' 2>/dev/null || missing="$missing duckdb"
[ -z "$missing" ] || { echo "SKIPPED: farm_ansible.sh: there is no$missing" >&2; exit 77; }

folder=$(mktemp -d /tmp/farm-ansible.XXXXXX)
lake=${4:-$folder/lake}
# A board's disk is memory here: symbols would fill it.
strip -o "$folder/whylate" "$whylate"
whylate=$folder/whylate
pids=""
finish() {
    for pid in $pids; do kill "$pid" 2>/dev/null; done
    for board in 1 2 3 4 5; do ip netns delete "wl-board-$board" 2>/dev/null; done
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' INT TERM

ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
ssh-keygen -q -t ed25519 -N '' -f "$folder/host"
cat >"$folder/sshd" <<SSHD
HostKey $folder/host
AuthorizedKeysFile $folder/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
SSHD
for board in 1 2 3 4 5; do
    ip netns add "wl-board-$board"
    ip link add "wl$board" type veth peer name eth0 netns "wl-board-$board"
    ip address add "10.213.$board.1/30" dev "wl$board"
    ip link set "wl$board" up
    ip -n "wl-board-$board" address add "10.213.$board.2/30" dev eth0
    ip -n "wl-board-$board" link set eth0 up
    ip -n "wl-board-$board" link set lo up
    ip netns exec "wl-board-$board" unshare --uts --mount sh -c "hostname board-$board &&
        mount -t tmpfs -o size=300m tmpfs /var/tmp && mkdir -p /run/sshd &&
        exec /usr/sbin/sshd -D -f '$folder/sshd' -E '$folder/sshd-$board.log'" &
    pids="$pids $!"
    # Read below as board_1 to board_5.
    eval "board_$board=$!"
done

plan='name = "small"
repeats = 2
duration = "700ms"
warmup = "0s"
limit = "10s"
[[probe]]
kind = "timer"
'
printf '%s[[cell]]\n' "$plan" >"$folder/small.toml"
printf '%s[target]\ncpus = "4000"\n[[cell]]\n' "$plan" >"$folder/offline.toml"
printf '%s[[load]]\nname = "dead"\nkind = "exec"\ncommand = ["false"]\n[[cell]]\nloads = ["dead"]\n' "$plan" >"$folder/dead.toml"
{
    printf 'name = "rack"\nlake = "%s"\nprogram = "%s"\n' "$lake" "$whylate"
    for board in 1 2 3 4 5; do printf '[[host]]\nname = "board-%s"\naddress = "10.213.%s.2"\n' $board $board; done
} >"$folder/farm.toml"
for name in small offline dead; do
    "$whylate" farm render "$folder/$name.toml" --farm "$folder/farm.toml" --for ansible -o "$folder/$name" || exit 1
done

export ANSIBLE_HOST_KEY_CHECKING=False ANSIBLE_PRIVATE_KEY_FILE="$folder/key" ANSIBLE_REMOTE_USER=root ANSIBLE_NOCOLOR=1
export ANSIBLE_LOCAL_TEMP="$folder/ansible" ANSIBLE_SSH_ARGS="-o UserKnownHostsFile=/dev/null -o ControlMaster=no -o ConnectTimeout=5"
# play PLANS SLOT [arguments]: a round; its output is in a file of its name.
play() {
    plans=$1 slot=$2
    shift 2
    (cd "$folder/$plans" && "$playbook" -i inventory.yml site.yml -e ansible_python_interpreter=/usr/bin/python3 \
        -e "whylate_slot=$slot" "$@") >"$folder/$slot.log" 2>&1
}
sleep 1
begun=$(date +%s)
is_asked() { case " ${WAYS:-$1} " in *" $1 "*) true ;; *) false ;; esac }
# The boards share this machine's CPUs: one after the other.
good=0
if is_asked good; then
    play small good --forks 1
    good=$?
    echo "five boards: exit code $good after $(($(date +%s) - begun)) s"
fi
[ $good -eq 0 ] || grep -E '^.ERROR.|UNREACHABLE' "$folder/good.log"

passed=0
# way NAME PLANS [arguments]: a round that must not pass.
way() {
    what=$1 plans=$2
    shift 2
    is_asked "$what" || return 0
    play "$plans" "$what" "$@"
    code=$?
    why=$(grep -m 1 -E '^.ERROR.|UNREACHABLE' "$folder/$what.log" | cut -c 1-240)
    echo "$what: exit code $code: $why"
    [ $code -ne 0 ] || passed=$((passed + 1))
}
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$folder/$1" && chmod 755 "$folder/$1"
    echo "whylate_program_here=$folder/$1"
}
way no-program small --limit board-1 -e whylate_program_here=/nonexistent/whylate
way killed-program small --limit board-1 -e "$(program killed 'kill -9 $$')"
way idle-program small --limit board-1 -e "$(program idle 'exit 0')"
way cpu-not-there offline --limit board-2
way dead-load dead --limit board-3
way other-kernel small --limit board-4 -e whylate_kernel=0.1
way lake-not-writable small --limit board-5 -e whylate_lake=/dev/full/lake
way killed-push small --limit board-5 -e "$(program push "[ \"\$1\" != push ] || kill -9 \$\$; exec '$whylate' \"\$@\"")"
nsenter -t "$board_2" -u hostname other-host
way other-machine small --limit board-2
# Takes the measuring threads' priority away, as long as there are any.
(while :; do
    for process in $(pgrep -f 'internal-probe'); do
        [ "$(readlink "/proc/$process/ns/net")" != "$(readlink "/proc/$board_3/ns/net")" ] ||
            chrt --all-tasks --other --pid 0 "$process" 2>/dev/null
    done
    sleep 0.02
done) &
changer=$!
pids="$pids $changer"
way wrong-priority small --limit board-3
kill $changer
nsenter -t "$board_4" -m sh -c 'cat /dev/zero >/var/tmp/full' 2>/dev/null
way full-disk small --limit board-4
kill "$board_5"
way no-board small --limit board-5

# In the lake, only the good round counts as measured.
cat >"$folder/rounds.sql" <<'SQL'
SELECT host, run, verdict, mismatches FROM runs ORDER BY run
SQL
"$whylate" farm query "$folder/rounds.sql" --lake "$lake"
cat >"$folder/passed.sql" <<'SQL'
SELECT count(*) AS passed, sum(CASE WHEN run LIKE '%-good' THEN 1 ELSE 0 END) AS good
FROM runs WHERE verdict IN ('pass', 'no_limit')
SQL
rows=$("$whylate" farm query "$folder/passed.sql" --lake "$lake" --csv | tail -1)
echo "ways that passed: $passed; runs in the lake that passed, of the good round: $rows"
is_asked good && expected=5,5 || expected=0,
[ $good -eq 0 ] && [ $passed -eq 0 ] && [ "$rows" = $expected ]
