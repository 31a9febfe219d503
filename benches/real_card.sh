#!/bin/bash
# The cases that need a graphics card, a card's own memory or many CPUs, on the machine that runs this: one command that brings
# all results back. It needs no network and installs nothing. `benches/real_card/README.md` says how to take it elsewhere.
#
#     benches/real_card.sh OUT [PIECE...]        without PIECE all of them, each at most 9 minutes
#
#     1  facts, checks, which backends exist and why others do not (2 min at most)
#     2  case 3 by CUDA: buffers allocated each time or kept, against a shielded CPU
#     3  case 3 by Vulkan
#     4  case 4: copies from and to the card's memory, and what they do to others
#     5  case 5: frames streamed into the card's memory, and gaps on up to 14 other CPUs
#     6  case 1: drawing on the card, and a real-time task on the same CPU
#     7  many CPUs: timer, stall, histograms and watch against cyclictest and oslat; a run with many spikes
#
# OUT gets PIECE.tgz (run directories, reports, JSON) and log.txt: at most 8 files, each below 16 MB.
# No setting of the card is changed. Settings of the machine are restored, even if this is killed; after a SIGKILL the next
# call does the rest (the journal is in OUT/state; in /run/whylate-real-card-0 where others can write into OUT).
#
#     REAL_CARD_BIN=DIR       where whylate, whylate-gpu, cyclictest and oslat are [.card of the repository, then PATH]
#     REAL_CARD_SHORT=1       each piece in a minute or two, which shows that everything works and answers nothing
#     REAL_CARD_SET='A=B …'   more values of the plans, as `whylate run --set A=B`
set -u

PIECES="1 2 3 4 5 6 7"
LIMIT_S=520
FILE_MAX=15900000

here=$(cd "$(dirname "$0")" && pwd)
bin=${REAL_CARD_BIN:-$here/../.card}

die() { echo "real_card.sh: $*" >&2; exit 1; }

[ $# -ge 1 ] || die "name a folder for the results: benches/real_card.sh OUT [PIECE...]"
case $1 in -*) die "usage: benches/real_card.sh OUT [PIECE...]" ;; esac
for piece in "${@:2}"; do
    case " $PIECES " in *" $piece "*) ;; *) die "there is no piece $piece; there are $PIECES" ;; esac
done

# Mounts of a namespace of its own go with its last process.
if [ "$(id -u)" = 0 ] && [ -z "${REAL_CARD_MOUNTS:-}" ] && unshare --mount true 2>/dev/null; then
    REAL_CARD_MOUNTS=own exec unshare --mount --propagation private "$0" "$@"
fi

mkdir -p "$1" || die "$1 cannot be made"
out=$(cd "$1" && pwd)
shift
work=$out/work
export WHYLATE_STATE_DIR=$out/state WHYLATE_RUNTIME_DIR=$out/socket XDG_DATA_HOME=$out/work/data
mkdir -p "$work" "$WHYLATE_STATE_DIR" "$WHYLATE_RUNTIME_DIR"

# One call at a time: the lock goes with the process.
exec 9>"$out/state/lock"
flock --nonblock 9 2>/dev/null || die "another real_card.sh works in $out"

log() { echo "$(date +%T) $*" | tee -a "$out/log.txt"; }

# A program that was brought along, packed or not, or that is installed.
program() {
    if [ -e "$bin/$1.gz" ]; then
        mkdir -p "$work/bin" && gunzip -c "$bin/$1.gz" >"$work/bin/$1" && chmod +x "$work/bin/$1" && echo "$work/bin/$1"
    elif [ -x "$bin/$1" ]; then
        echo "$bin/$1"
    else
        command -v "$1"
    fi
}

# Runs a program in place of this shell; it ends with this script, whatever ends that.
with_me() {
    if setpriv --pdeathsig TERM true 2>/dev/null; then exec setpriv --pdeathsig TERM "$@"; else exec "$@"; fi
}

child=
# Runs a program for at most MOST seconds. What it prints goes to the file NAME, and to the log if NAME has no ending.
step() {
    local name=$1 most=$2 left status file whole
    shift 2
    left=$((deadline - $(date +%s)))
    [ "$left" -gt 5 ] || { log "-- $name: skipped, no time is left for it"; return 1; }
    [ "$most" -lt "$left" ] || most=$left
    case $name in *.*) file=$dir/$name ;; *) file=$dir/$name.txt ;; esac
    # Whylate itself gets one signal: it ends its own processes. The processes of a shell are all ended.
    case $1 in bash) whole=(timeout) ;; *) whole=(timeout --foreground) ;; esac
    log "-- $name: $(echo "$*" | sed "s#$bin/##g; s#$work/##g" | tr -s '\n ' ' ' | cut -c1-300)"
    with_me "${whole[@]}" --signal=TERM --kill-after=20 "$most" "$@" >"$file" 2>"$file.err" </dev/null 9>&- &
    child=$!
    wait "$child"
    status=$?
    child=
    case $name in *.*) ;; *) head -c 6000 "$file" | sed 's/^/   /' >>"$out/log.txt" ;; esac
    if [ -s "$file.err" ]; then grep -v '^$' "$file.err" | tail -12 | sed 's/^/   ! /' | tee -a "$out/log.txt"; else rm -f "$file.err"; fi
    case $status in 0) ;; 124) log "   stopped after $most s" ;; *) log "   ended with status $status" ;; esac
    return "$status"
}

# A run of a plan, and its reports. Loads that would be on all other CPUs are on those of `loads`.
run() {
    local name=$1 plan=$here/real_card/$1.toml sets=() load value
    shift
    for load in $(awk '/^\[/ { load = $0 == "[[load]]" } load && /^name/ { name = $3 } load && /^cpus = "others"/ { gsub(/"/, "", name); print name }' "$plan"); do
        sets+=(--set "load.$load.cpus=$loads")
    done
    for value in ${REAL_CARD_SET:-}; do sets+=(--set "$value"); done
    [ -z "$short" ] || sets+=(--short)
    # Some time is left for the reports.
    step "run-$name" "$((deadline - $(date +%s) - 60))" "${around[@]}" "$whylate" run "$plan" -o "$dir/$name" --quiet "${sets[@]}" "$@"
    report "$name"
}

# Runs a program, and prints the most memory that it took.
with_memory=(bash -c '"$@" & pid=$!
    while grep -s VmHWM /proc/$pid/status; do sleep 0.1; done | sort -k2n | tail -1
    wait $pid' with_memory)
around=()

# Also of a run that was stopped: its tables are whole.
report() {
    [ -e "$dir/$1/run.json" ] || return
    step "report-$1" 60 "$whylate" report "$dir/$1" --details
    [ -e "$dir/$1/result.json" ] || step "$1.json" 60 "$whylate" report "$dir/$1" --json
    step "$1.html" 60 "$whylate" report "$dir/$1" --format html
}

# Packs a piece. What makes it too large is left out, and the log says so.
pack() {
    local piece=$1 left_out=() what
    [ -d "$work/$piece" ] || return
    for what in "" traces stacks causes spikes; do
        [ -z "$what" ] || { left_out+=(--exclude="$what"); log "piece $piece: $what left out, else it has more than $FILE_MAX bytes"; }
        tar -C "$work" "${left_out[@]}" -czf "$work/$piece.tgz" "$piece" 2>/dev/null
        [ "$(stat -c %s "$work/$piece.tgz")" -gt "$FILE_MAX" ] || break
    done
    mv "$work/$piece.tgz" "$out/$piece.tgz" && rm -rf "${work:?}/$piece"
}

# Undoes what a killed run has changed. The journal stays if something could not be restored.
give_back() {
    if "$whylate" treat restore >"$work/restore.txt" 2>&1 9>&-; then
        rm -rf "$WHYLATE_STATE_DIR/journal"
    else
        log "settings were not given back:"
        tee -a "$out/log.txt" <"$work/restore.txt"
    fi
}

ended=
finish() {
    [ -z "$ended" ] || return
    ended=yes
    trap '' INT TERM HUP
    if [ -n "$child" ] && kill -0 "$child" 2>/dev/null; then
        # `timeout` passes it on; whylate restores what it changed, and ends its probes and loads.
        kill -TERM "$child" 2>/dev/null
        for _ in $(seq 100); do kill -0 "$child" 2>/dev/null || break; sleep 0.2; done
        kill -KILL "$child" 2>/dev/null
    fi
    give_back
    [ -z "${piece:-}" ] || pack "$piece"
    rm -rf "$work" "$WHYLATE_RUNTIME_DIR"
    rm -f "$out/state/lock"
    rmdir "$out/state" "$WHYLATE_STATE_DIR" 2>/dev/null
}
trap 'log "stopped by a signal"; finish; exit 130' INT TERM HUP
trap finish EXIT

whylate=$(program whylate) || die "there is no whylate in $bin or PATH: build it with benches/real_card_build.sh"
gpu=$(program whylate-gpu) && export WHYLATE_GPU=$gpu
# A journal is only trusted where no other user can write.
if ! "$whylate" treat status >/dev/null 2>&1 9>&-; then
    for folder in /run /tmp; do
        WHYLATE_STATE_DIR=$folder/whylate-real-card-$(id -u)
        mkdir -m 700 "$WHYLATE_STATE_DIR" 2>/dev/null
        "$whylate" treat status >/dev/null 2>&1 9>&- && break
    done
fi
give_back
# Clears up what a killed call has left.
for old in "$work"/*/; do
    old=$(basename "$old")
    case " $PIECES " in *" $old "*) log "piece $old of a call that was killed is packed"; pack "$old" ;; esac
done

# Drivers, loaders and the peers' libraries that are not where the dynamic linker looks.
listed() { ldconfig -p 2>/dev/null | grep -q "$1"; }
nvidia=/usr/local/nvidia
if [ -d "$bin/lib" ] && { ! listed libvulkan.so.1 || ! listed libnuma.so.1; }; then
    export LD_LIBRARY_PATH=$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
listed libcuda.so.1 || [ ! -d $nvidia/lib64 ] || export LD_LIBRARY_PATH=$nvidia/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
icd=$nvidia/share/vulkan/icd.d/nvidia_icd.json
[ -n "${VK_DRIVER_FILES:-}" ] || [ ! -e $icd ] || export VK_DRIVER_FILES=$icd

# CPUs: the last is measured alone, the first one or two work, at most fourteen are measured at once.
join() { local IFS=,; echo "$*"; }
mapfile -t cpus < <(taskset -pc $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done)
[ ${#cpus[@]} -ge 2 ] || die "two CPUs are needed; this may use ${cpus[*]}"
works=$((${#cpus[@]} >= 4 ? 2 : 1))
loads=$(join "${cpus[@]:0:works}")
measured=("${cpus[@]:works}")
[ ${#measured[@]} -le 14 ] || measured=("${measured[@]: -14}")
many=$(join "${measured[@]}")
short=${REAL_CARD_SHORT:+yes}
seconds() { if [ -n "$short" ]; then echo 2; else echo "$1"; fi; }

mount_if_missing() {
    [ "${REAL_CARD_MOUNTS:-}" = own ] && ! mountpoint -q "$2" && mount -t "$1" none "$2" 2>/dev/null
}
mount_if_missing debugfs /sys/kernel/debug
mount_if_missing tracefs /sys/kernel/tracing

piece_1() {
    deadline=$(($(date +%s) + 115))
    step version 5 "$whylate" --version
    step system 10 bash -c 'uname -a; cat /proc/cmdline /proc/version; nproc; free -m; ulimit -a
        for file in /sys/kernel/security/lockdown /sys/devices/system/clocksource/clocksource0/current_clocksource; do echo "$file: $(cat $file 2>&1)"; done
        for device in /sys/bus/pci/devices/*; do echo "$device $(cat $device/vendor $device/device $device/class | tr "\n" " ") $(readlink $device/driver) $(cd $device; ls -d resource[0-9]* 2>/dev/null | tr "\n" " ")"; done
        ls -l /dev/dri /dev/nvidia* /dev/fb* 2>&1; ldconfig -p | grep -E "cuda|vulkan|libGLX|libEGL|nvidia" | head -40; ls /usr/local/nvidia /usr/share/vulkan/icd.d /etc/vulkan/icd.d 2>&1 | head -40'
    step interrupts 5 cat /proc/interrupts
    step types 5 cat /sys/kernel/debug/x86/pat_memtype_list
    step config 5 bash -c 'zcat /proc/config.gz | grep -E "PREEMPT|HWLAT|OSNOISE|TIMERLAT|FTRACE|KPROBES|BPF|LOCKDOWN|STRICT_DEVMEM|DEVMEM|NO_HZ|PAT|PCI"'
    if command -v nvidia-smi >/dev/null; then
        step nvidia-smi 20 nvidia-smi
        step nvidia-smi-query 20 nvidia-smi -q -d MEMORY,PCIE,CLOCK,PERFORMANCE
    else
        log "-- nvidia-smi: not here"
    fi
    step nvidia 5 bash -c 'cat /proc/driver/nvidia/version /proc/driver/nvidia/params /proc/driver/nvidia/gpus/*/information'
    step check 20 "$whylate" check --verbose
    step check.json 20 "$whylate" check --json
    step tracing 30 "$whylate" check --tracing
    step cpus 10 "$whylate" cpus
    step gpus 15 "$whylate" load gpu --list
    step gpus.json 15 "$whylate" load gpu --list --json
    step backends 20 "$whylate" copy --backends
    [ -z "${gpu:-}" ] || step helper 5 bash -c "'$gpu' list; '$gpu' backends; ldd '$gpu'"
    # Each work once: what does not run here, and why.
    local api work memory
    for api in cuda vulkan; do
        for work in reduction alloc-churn particles particles-churn copy-up copy-down; do
            step "$api-$work" 8 "$whylate" load gpu --cpus 0 --api $api --work $work --size 1MiB -D 1s
        done
        for memory in pinned write-combined $([ $api = cuda ] && echo managed); do
            step "$api-$memory" 8 "$whylate" load gpu --cpus 0 --api $api --work alloc-churn --memory $memory --size 1MiB -D 1s
        done
    done
    step frames 8 "$whylate" load framebuffer --backend card --cpus 0 -D 1s
    step kernel-log 5 bash -c 'dmesg | tail -60'
}

# Memory of the card in use during each work, and the interrupts that came meanwhile: separate from what is measured.
memory_in_use() {
    local api=$1 work
    command -v nvidia-smi >/dev/null || { log "-- memory in use: nvidia-smi is not here"; return; }
    for work in alloc-churn preallocated particles-churn particles; do
        step "in-use-$api-$work" 12 bash -c "cat /proc/interrupts >'$dir/before'; '$whylate' load gpu --cpus 0 --api $api --work $work --size 4MiB -D 3s & sleep 2
            nvidia-smi --query-gpu=memory.used --format=csv; nvidia-smi --query-compute-apps=name,used_memory --format=csv; wait; diff '$dir/before' /proc/interrupts"
    done
}

piece_2() { run buffers-cuda; memory_in_use cuda; }
piece_3() { run buffers-vulkan; memory_in_use vulkan; }

piece_4() {
    local frame=1920x1080:nv12@60 trials file name backend methods=()
    trials=$([ -n "$short" ] && echo 1 || echo 7)
    step backends.json 20 "$whylate" copy --backends --json
    # Every method of this CPU; of Vulkan's types, which may be many, three.
    for backend in anonymous card cuda vulkan; do
        [ "$backend" != vulkan ] || methods=(--method memcpy,movntdqa,sse2-nt)
        step "copy-$backend.json" 120 "$whylate" copy --backend $backend --frame $frame --trials $trials --json --quiet \
            "${methods[@]}"
        # Two blocks to read at once.
        step "copy-$backend" 60 "$whylate" copy --backend $backend --frame $frame --trials 1 --quiet --method memcpy,movntdqa,sse2-nt --block 4096
    done
    # By the files of sysfs only where no driver has the card: its driver's own data may be at any place of its window.
    for file in /sys/bus/pci/devices/*/resource*_wc; do
        [ -e "$file" ] || { log "-- the card by sysfs: there is no resourceN_wc here"; break; }
        grep -q ^0x03 "${file%/*}/class" || continue
        [ ! -e "${file%/*}/driver" ] || { log "-- $file: skipped, a driver has this card"; continue; }
        for name in "$file" "${file%_wc}"; do
            step "copy-$(basename "$name").json" 60 "$whylate" copy --backend pci --device "$name" --frame $frame --trials $trials --json --quiet
        done
    done
    run copies-card
}

piece_5() {
    local half=()
    # Two detectors, one after the other, in the time of one.
    ! grep -qs hwlat /sys/kernel/tracing/available_tracers || half=(--set duration=5s)
    run frames-card --set "target.cpus=$many" "${half[@]}"
}
piece_6() { run drawing-card; }

# What a program took: elapsed, user and system seconds.
cost() {
    local name=$1 most=$2
    shift 2
    step "$name" "$most" bash -c 'TIMEFORMAT="took %R s, %U s user, %S s system"; time "$@"' cost "$@"
}

piece_7() {
    local round s cyclictest oslat
    s=$(seconds 10)
    cyclictest=$(program cyclictest) || log "-- cyclictest: not here"
    oslat=$(program oslat) || log "-- oslat: not here"
    log "-- ${#measured[@]} CPUs are measured at once: $many"
    for round in 1 2 3; do
        cost "timer-$round" 60 "$whylate" measure timer -a "$many" -p95 -i200us -D${s}s
        [ -z "$cyclictest" ] || cost "cyclictest-$round" 60 "$cyclictest" -m -t"${#measured[@]}" -a"$many" -p95 -i200 -D"$s" -q -h1000
        cost "stall-$round" 60 "$whylate" measure stall -a "$many" -p95 --threshold 1us -D${s}s
        [ -z "$oslat" ] || cost "oslat-$round" 60 "$oslat" -c "$many" -f95 -D"$s" -q
        [ -z "$short" ] || break
    done
    # The same while the kernel's histograms of all wake-ups are counted.
    cost histograms 60 bash -c "'$whylate' histograms -D $((s + 4))s --json >'$dir/histograms.json' & sleep 2
        '$whylate' measure timer -a '$many' -p95 -i200us -D${s}s; wait"
    if [ -n "$cyclictest" ]; then
        cost watch 90 "$whylate" watch -o "$dir/watch" -D "$((s + 5))s" -- "$cyclictest" -m -t"${#measured[@]}" -a"$many" -p95 -i1000 -D"$s" -q
        report watch
    fi
    around=("${with_memory[@]}")
    run many-spikes --set "target.cpus=$many"
    around=()
    [ -d "$dir/many-spikes" ] || return
    step disk 5 du -sk "$dir/many-spikes"
    cost report-cost 120 "${with_memory[@]}" "$whylate" report "$dir/many-spikes" --format html
}

[ -n "$short" ] && log "short: what is measured answers nothing"
log "whylate: $("$whylate" --version); $(nproc) CPUs; $(id -un); $(uname -r)"
[ $# -gt 0 ] || set -- $PIECES
for piece in "$@"; do
    dir=$work/$piece
    rm -rf "$dir" && mkdir -p "$dir"
    begin=$(date +%s)
    deadline=$((begin + LIMIT_S))
    log "== piece $piece"
    "piece_$piece"
    give_back
    log "== piece $piece took $(($(date +%s) - begin)) s"
    pack "$piece"
done
piece=
