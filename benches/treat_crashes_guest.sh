#!/bin/sh
# Runs in a guest of the lab (benches/treat_crashes_lab.sh, and the lab's tests): ends `treat apply`, cells with treatments
# and `treat restore` at random moments, COUNT times: by a signal, Ctrl-C twice, a terminal that closes, or the kernel for
# want of memory. Then `restore` has to bring back every value. Says `restored KIND END CHANGES-LEFT SECONDS` for each (when
# it was ended), and ends with the first that is not restored exactly. 126 in a row have each kind ended in each way.
# After them, STATES times: the folder of the journal is full, or the journal is damaged, when `apply` is ended. A full folder
# does not prevent any setting from being restored; with a damaged journal the exit code is 3 if a setting stays changed, never 0.
#
# COUNT: how many; SEED: a number for the random moments; FIRST: the number of the first one.
set -u
state=/tmp/crashes
mkdir -p $state
export WHYLATE_STATE_DIR=$state/state
taskset -c 0 sleep 1000000 &
anywhere=$!
taskset -p -c 0-1 $anywhere >/dev/null || exit 20
taskset -c 1 sleep 1000000 &
bound=$!

# Every setting that one of the treatments may change, and the groups.
settings() {
    grep -sH . /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity /proc/sys/kernel/watchdog_cpumask \
        /proc/sys/vm/stat_interval /proc/sys/kernel/timer_migration /sys/devices/virtual/workqueue/cpumask \
        /sys/devices/system/cpu/online /sys/fs/cgroup/cgroup.subtree_control /proc/*/cgroup | grep -v '^/proc/self'
    find /sys/fs/cgroup -mindepth 1 -type d
    cat /run/whylate-shield.cpus 2>/dev/null
    cut -d' ' -f1,3 /proc/$anywhere/stat /proc/$bound/stat
}

# The CPUs of every thread that can be moved: thread, start, CPUs. Those of the others are the kernel's own business.
threads() {
    {
        grep -sH . /proc/[0-9]*/task/[0-9]*/stat
        grep -sH Cpus_allowed_list /proc/[0-9]*/task/[0-9]*/status
    } | awk '
        { colon = index($0, ":"); path = substr($0, 1, colon - 1); rest = substr($0, colon + 1) }
        path ~ /\/stat$/ {
            sub(/\/stat$/, "", path); sub(/.*\) /, "", rest); split(rest, field, " ")
            if (int(field[7] / 67108864) % 2 == 0) start[path] = field[20]
        }
        path ~ /\/status$/ {
            sub(/\/status$/, "", path); split(rest, field, " ")
            if (path in start) print path, start[path], field[2]
        }' | sort
}

# Everything from before has to be there, except processes that ended.
compare() {
    grep -v '^/proc/[0-9]*/cgroup' $state/settings >$state/one
    grep -v '^/proc/[0-9]*/cgroup' $state/settings-now >$state/two
    diff $state/one $state/two || return 1
    grep '^/proc/[0-9]*/cgroup' $state/settings | sed 's/:/ group /' >>$state/threads
    grep '^/proc/[0-9]*/cgroup' $state/settings-now | sed 's/:/ group /' >>$state/threads-now
    awk '
        FNR == NR { before[$1 " " $2] = $0; next }
        ($1 " " $2) in before && before[$1 " " $2] != $0 { print before[$1 " " $2] " is now " $0; bad = 1 }
        END { exit bad }' $state/threads $state/threads-now
}

cat >$state/plan.toml <<END
name = "crash"
duration = "400ms"
repeats = 1
settle = "1ms"
warmup = "1ms"
noise_floor = "1ms"
interval = "100ms"
[target]
cpus = "1"
[[probe]]
kind = "timer"
interval = "5ms"
[[treatment]]
name = "shield"
kind = "shield"
cpus = "1"
[[treatment]]
name = "interrupts"
kind = "irq-affinity"
interrupts = ["all"]
cpus = "0"
[[treatment]]
name = "statistics"
kind = "sysctl"
key = "vm.stat_interval"
value = "7"
[[treatment]]
name = "sleeper"
kind = "affinity"
process = "$anywhere"
cpus = "0"
[matrix]
treatments = [["statistics", "sleeper"], ["shield"], ["statistics", "interrupts"]]
END

cat >$state/apply <<END
case \$1 in
0) exec whylate treat apply shield --cpus 1 ;;
1) exec whylate treat apply shield --cpus 1 --method affinity ;;
2) exec whylate treat apply sysfs /sys/devices/system/cpu/cpu1/online 0 ;;
3) exec whylate treat apply irq-affinity all --cpus 0 ;;
4) exec whylate treat apply affinity $anywhere --cpus 0 ;;
5) exec whylate treat apply cpu-quota $anywhere --percent 20 ;;
run) exec whylate run $state/plan.toml -o $state/run -q --json ;;
esac
END
# end.py HOW SECONDS COMMAND…: runs a command on a terminal of its own and ends it after that time. Says how it was ended:
# `late` when it had ended by itself.
cat >$state/end.py <<'END'
import os, pty, select, signal, sys, time
how, moment, command = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
group = "/sys/fs/cgroup/memory-of-crashes"
pid, terminal = pty.fork()
if pid == 0:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    with open(group + "/cgroup.procs", "w") as file:
        file.write("0")
    os.execvp(command[0], command)
ended = False
def is_over(seconds):
    global ended
    until = time.monotonic() + seconds
    while not ended and (left := until - time.monotonic()) > 0:
        ended = os.waitpid(pid, os.WNOHANG)[0] != 0
        if not ended and terminal is not None and select.select([terminal], [], [], min(left, 0.02))[0]:
            try:
                os.read(terminal, 65536)
            except OSError:
                time.sleep(min(left, 0.01))
        elif not ended and terminal is None:
            time.sleep(0.02)
    return ended
if is_over(moment):
    print("late")
    sys.exit()
if how == "terminal":
    os.close(terminal)
    terminal = None
elif how == "INT-twice":
    os.write(terminal, b"\x03")
    time.sleep(0.04)
    os.write(terminal, b"\x03")
elif how == "memory":
    used = int(open(group + "/memory.current").read())
    with open(group + "/memory.max", "w") as file:
        file.write(str(used // 2))
else:
    os.kill(pid, getattr(signal, "SIG" + how))
if not is_over(5 if how == "memory" else 60):
    # A shield may have taken it out of the group.
    how = "KILL" if how == "memory" else "does-not-end"
    os.kill(pid, signal.SIGKILL)
    is_over(60)
print(how)
with open(group + "/memory.max", "w") as file:
    file.write("max")
END
apply() { sh $state/apply "$1"; }
now_ms() { date +%s%3N; }

# How long `apply` of $1 takes undisturbed, and how long it takes to take it back; once.
time_of() {
    eval "[ -z \"\${apply_$1:-}\" ]" || return 0
    rm -rf $state/run
    begin=$(now_ms)
    apply "$1" >$state/said 2>&1 || { cat $state/said; exit 21; }
    middle=$(now_ms)
    whylate treat restore >$state/said 2>&1 || { cat $state/said; exit 22; }
    eval "apply_$1=$((middle - begin)) restore_$1=$(($(now_ms) - middle))"
}

# A moment within $1 milliseconds, as a number of seconds.
random() {
    SEED=$(((SEED * 1103515245 + 12345) % 2147483648))
    awk -v from="$1" -v random=$SEED 'BEGIN { printf "%.4f", from * random / 2147483648 / 1000 }'
}

# end_within HOW MILLISECONDS COMMAND…
end_within() {
    how=$1
    moment=$(random "$2")
    shift 2
    rm -rf $state/run
    how=$(python3 $state/end.py $how "$moment" "$@") || { echo "the end of $* failed"; exit 27; }
    [ "$how" != does-not-end ] || { echo "end $number ($kind, $end): it does not end"; exit 28; }
}

echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/memory-of-crashes || exit 29
ulimit -c 0
settings >$state/settings
threads >$state/threads
# Before Linux 6.18 quotas are refused on PREEMPT_RT.
treatments=6
whylate treat apply cpu-quota $anywhere --percent 20 --dry-run >/dev/null 2>&1 || treatments=5
SEED=${SEED:-1}
number=${FIRST:-0}
last=$((number + ${COUNT:-6}))
while [ $number -lt $last ]; do
    treatment=$((number / 3 % treatments))
    end=$(echo KILL HUP QUIT TERM INT-twice terminal memory | cut -d' ' -f$(((number / 3 + number % 3 * 2) % 7 + 1)))
    time_of $treatment
    time_of run
    case $((number % 3)) in
    0) kind=apply-$treatment; eval "length=\$apply_$treatment"; end_within $end "$length" sh $state/apply $treatment ;;
    1) kind=cell; end_within $end "$apply_run" sh $state/apply run ;;
    2)
        kind=restore-$treatment
        apply $treatment >$state/said 2>&1 || { cat $state/said; exit 24; }
        eval "length=\$restore_$treatment"
        end_within $end "$length" whylate treat restore
        ;;
    esac
    left=$(whylate treat status --json | grep -c '"treatment":')
    whylate treat restore >$state/said 2>&1 || { echo "end $number ($kind, $how, $moment s): restore failed"; cat $state/said; exit 25; }
    settings >$state/settings-now
    threads >$state/threads-now
    compare || { echo "end $number ($kind, $how, $moment s): not as before"; cat $state/said; exit 26; }
    echo "restored $kind $how $left $moment"
    number=$((number + 1))
done

# damage.py SEED: one kind of damage to the files of the journal.
cat >$state/damage.py <<'END'
import os, random, sys
random.seed(int(sys.argv[1]))
folder = sys.argv[2]
names = [name for name in ("treatments.jsonl", "treatments.mark") if os.path.getsize(f"{folder}/{name}")]
for name in names[:random.randint(1, 2)]:
    with open(f"{folder}/{name}", "rb") as file:
        text = bytearray(file.read())
    lines, at = text.splitlines(keepends=True), random.randrange(len(text))
    how = random.choice(["bit", "cut", "zeros", "line", "swap", "twice", "empty", "gone", "rubbish"])
    if how == "bit":
        text[at] ^= 1 << random.randrange(8)
    elif how == "cut":
        del text[at:]
    elif how == "zeros":
        text[at:] = bytes(len(text) - at)
    elif how == "rubbish":
        text[at:] = random.randbytes(200)
    else:
        line = random.randrange(len(lines))
        chosen = {"line": lines[:line] + lines[line + 1:], "swap": lines[line:] + lines[:line], "twice": lines + lines[line:]}
        text = b"".join(chosen.get(how, []))
    print(name, how, end=" ")
    with open(f"{folder}/{name}", "wb") as file:
        file.write(text)
    if how == "gone":
        os.unlink(f"{folder}/{name}")
END

# As `compare`, now.
is_as_before() {
    settings >$state/settings-now
    threads >$state/threads-now
    compare >$state/differs
}

number=0
while [ $number -lt ${STATES:-0} ]; do
    treatment=$((number / 2 % treatments))
    time_of $treatment
    rm -rf $WHYLATE_STATE_DIR
    mkdir $WHYLATE_STATE_DIR
    if [ $((number % 2)) = 0 ]; then
        # From 4 to 64 KiB: sometimes too little for the first line, sometimes enough for all.
        mount -t tmpfs -o size=$((4 << (number / 2 % 5)))k full $WHYLATE_STATE_DIR || exit 40
        end_within KILL $((apply_$treatment * 2)) sh $state/apply $treatment
        whylate treat restore >$state/said 2>&1; status=$?
        is_as_before || { echo "full state $number: $status, not as before"; cat $state/said $state/differs; exit 41; }
        [ $status = 0 ] || { echo "full state $number: $status, though all is as before"; cat $state/said; exit 42; }
        umount $WHYLATE_STATE_DIR
        what=full
    else
        apply $treatment >$state/said 2>&1 || { cat $state/said; exit 43; }
        rm -rf $state/whole
        cp -a $WHYLATE_STATE_DIR $state/whole
        what=$(python3 $state/damage.py $((SEED + number)) $WHYLATE_STATE_DIR/journal)
        whylate treat restore >$state/said 2>&1; status=$?
        case $status in
        0) is_as_before || { echo "damaged state $number ($what): 0, not as before"; cat $state/said $state/differs; exit 44; } ;;
        3) ;;
        *) echo "damaged state $number ($what): $status"; cat $state/said; exit 45 ;;
        esac
        # What could not be read is restored with the whole journal.
        rm -rf $WHYLATE_STATE_DIR
        mv $state/whole $WHYLATE_STATE_DIR
        whylate treat restore >$state/said 2>&1
        is_as_before || { echo "damaged state $number ($what): not as before"; cat $state/said $state/differs; exit 46; }
    fi
    echo "state $what $status"
    number=$((number + 1))
done
kill $anywhere $bound
rmdir /sys/fs/cgroup/memory-of-crashes
